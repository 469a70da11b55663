//! A reduction in two steps.

use super::cache::{dimension_names, tensor};
use super::fuse::value_of;
use super::insert::{
    Around, add_temporary, insert, join_privates, nest, path_to, private, settled, statement_name, touches,
};
use crate::expr::syntax::Name;
use crate::expr::{Affine, Var};
use crate::expr::{Expr, Scalar};
use crate::poly::analysis::dependence::reads_sums;
use crate::poly::schedule::{Node, Row, RowKind, Schedule};
use crate::poly::sets::isl::Isl;
use crate::poly::statement::{Iterator, Statement, StatementId, TensorDecl};
use crate::poly::transform::primitive::Loop;
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{apart, find, refuse, replace, single, together};
use crate::runtime::Result;

/// `rfactor C over ki -> P`: P holds a partial result for each value of ki, which are combined afterwards. The update
/// is called P from then on, its initialisation `P_init`, and what combines has the update's old name. Sums and
/// products of floating-point numbers are taken in another order.
///
/// ```text
/// for k                 for q  P[q] = 0
///   C += f(k)           for ko for ki  P[ki] += f(k)
///                       for q  C += P[q]
/// ```
pub fn rfactor(before: &Transformed, name: &Name, over: &Loop, into: &Name) -> Result<Transformed> {
    let (mut scop, mut schedule) = (before.scop.clone(), before.schedule.clone());
    let isl = Isl::default();
    let target = tensor(&scop, name)?;
    let row = find(&scop, &schedule, over)?;
    let updates = |id: &StatementId| scop.statement(*id).target == target && scop.statement(*id).reduce.is_some();
    let found: Vec<StatementId> = row.phi.iter().map(|p| p.0).filter(updates).collect();
    let [id] = found[..] else {
        return refuse(format!("{} updates of {name} are in loop `{over}`: one reduction is factored", found.len()));
    };
    let s = scop.statement(id).clone();
    let Some(op) = s.reduce else { return refuse(format!("{} is no reduction", s.name)) };
    let reduces = |r: &Row| !s.write.iter().any(|w| r.of(id).terms.iter().any(|t| w.uses(t.0)));
    if !reduces(&row) {
        return refuse(format!(
            "each iteration of `{over}` updates other elements of {name}: it is no loop of the reduction"
        ));
    }
    if reads_sums(&s, &[], &isl)? {
        return refuse(format!("{} reads {name} itself: its updates have an order", s.name));
    }
    if scop.tensors.iter().any(|t| t.name == into.text) || scop.statements.iter().any(|s| s.name == into.text) {
        return refuse(format!("there is a `{into}` already"));
    }
    // The loops outside of all loops of the reduction stay around the two steps.
    let steps = path_to(&schedule, schedule.path(id).iter().rev().find_map(row_of).expect("the row found"));
    let depth = steps.iter().position(reduces).expect("a loop of the reduction");
    if let Some(other) = steps[depth].phi.iter().find(|p| p.0 != id) {
        return refuse(format!(
            "{} is in the loop `{}` of the reduction too",
            scop.statement(other.0).name,
            steps[depth].name
        ));
    }
    let above = Around::new(&scop, steps[..depth].to_vec())?;

    // Which partial result: the value of the loop, within that of the loop that it was split from.
    let from =
        steps.iter().take_while(|r| **r != row).filter(|r| r.tile % row.tile == 0 && r.of(id) == row.of(id)).last();
    let mut digits: Vec<(Row, Affine)> = vec![];
    let mut value = |scop: &mut _, r: &Row| {
        let a = value_of(scop, r, id);
        if r.tile > 1 {
            digits.push((r.clone(), a.clone()));
        }
        a
    };
    let (lo, hi) = row.values(&scop);
    let own = value(&mut scop, &row);
    let (place, count) = match from {
        None => (own.offset(-lo), hi - lo + 1),
        Some(outer) => {
            let outer_value = value(&mut scop, outer);
            (own.add_scaled(&outer_value, -(outer.tile / row.tile)), outer.tile / row.tile)
        }
    };
    for (r, a) in digits {
        schedule = replace(&schedule, &r, &mut |r, below| {
            let digit = Row {
                name: format!("{}_{into}", r.name),
                phi: vec![(id, a.clone())],
                tile: 1,
                kind: RowKind::Serial,
                ..r.clone()
            };
            Ok(single(r, single(digit, below)))
        })?;
    }

    let decl = scop.tensor(target).clone();
    let names = dimension_names(&scop, target, &above.rows);
    let writes: Vec<_> = touches(&scop, &[id], target, true).into_iter().filter(|t| t.write).collect();
    let Some(domain) = above.reach(&scop, &writes, &decl.shape, &isl)? else {
        return refuse(format!("{} never runs", s.name));
    };
    let partial = TensorDecl { shape: [decl.shape.clone(), vec![count]].concat(), ..decl.clone() };
    let partial = add_temporary(&mut scop, &into.text, &partial);
    let update = &mut scop.statements[id.0 as usize];
    update.target = partial;
    update.write.push(place);
    let old = std::mem::replace(&mut update.name, into.text.clone());

    let n = above.rows.len();
    let own = names.iter().zip(&decl.shape).map(|(name, &extent)| Iterator::new(name, extent));
    let last = Iterator::new(&over.name.text, count);
    let iterators: Vec<Iterator> = above.iterators.iter().cloned().chain(own).chain([last]).collect();
    let places: Vec<Affine> = (n..iterators.len()).map(|v| Affine::var(Var(v as u32))).collect();
    let element = places[..decl.shape.len()].to_vec();
    let start = Statement {
        name: statement_name(&scop, &format!("{into}_init")),
        iterators: iterators.clone(),
        domain: domain.clone(),
        target: partial,
        write: places.clone(),
        reduce: None,
        body: Expr::Const(Scalar::neutral(op, decl.dtype)?),
    };
    let combine = Statement {
        name: old,
        iterators: iterators.clone(),
        domain,
        target,
        write: element,
        reduce: Some(op),
        body: Expr::load(partial, places),
    };
    let first = StatementId(scop.statements.len() as u32);
    let second = StatementId(first.0 + 1);
    scop.statements.extend([start, combine]);
    let new = [first, second];
    let tree = insert(&schedule, (n, id), &new, &|j, _| above.phi(j, 0), &mut |node, old| {
        let nests = new.map(|s| (vec![s], nest(s, &iterators, n..iterators.len())));
        Ok(between(node, old, id, nests))
    })?;
    let tree = Schedule { root: together(apart(&tree.root)) };
    let joined = new.map(|s| (s, 0));
    join_privates(&mut scop, &above, &joined)?;
    if n > 0 {
        scop.privates.push(private(partial, None, &above, &joined));
    }
    Ok(settled(scop, tree, before))
}

fn row_of<'a>(step: &crate::poly::schedule::Step<'a>) -> Option<&'a Row> {
    match step {
        crate::poly::schedule::Step::Row(r) => Some(r),
        _ => None,
    }
}

/// The node with the part that is `id` between two others.
fn between(node: Node, old: Vec<StatementId>, id: StatementId, [first, last]: [(Vec<StatementId>, Node); 2]) -> Node {
    let children = match node {
        Node::Sequence(children) => children,
        node => vec![(old, node)],
    };
    let mut out = vec![];
    for (ids, child) in children {
        if !ids.contains(&id) {
            out.push((ids, child));
        } else if ids.len() > 1 {
            let all = ids.iter().chain(&first.0).chain(&last.0).copied().collect();
            out.push((all, between(child, ids, id, [first.clone(), last.clone()])));
        } else {
            out.extend([first.clone(), (ids, child), last.clone()]);
        }
    }
    Node::Sequence(out)
}
