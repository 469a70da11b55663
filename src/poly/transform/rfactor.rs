//! Primitive `rfactor`: divides a reduction into two steps.

use super::cache::{dimension_names, tensor};
use super::fuse::value_of;
use super::insert::{
    InsertionPoint, add_temporary, element_accesses, insert, join_privates, nest, path_to, private, settled,
    statement_name,
};
use crate::expr::syntax::Name;
use crate::expr::{Affine, Var};
use crate::expr::{BinaryOp, BufferId, Expr, Scalar};
use crate::poly::analysis::dependence::reads_sums;
use crate::poly::schedule::{Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::{Iterator, Statement, StatementId, TensorDecl};
use crate::poly::transform::argument::Loop;
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
    let (id, op) = update(&scop, target, &row, name, over)?;
    refuse_unfit(&scop, id, &row, [name, into], over, &isl)?;
    let s = scop.statement(id).clone();
    // The loops outside of all loops of the reduction stay around the two steps.
    let reduces = |r: &Row| is_of_reduction(&s, id, r);
    let steps = path_to(&schedule, schedule.path(id).iter().rev().find_map(row_of).expect("the row found"));
    let depth = steps.iter().position(reduces).expect("a loop of the reduction");
    if let Some(other) = steps[depth].phi.iter().find(|p| p.0 != id) {
        return refuse(format!(
            "`{}` is also in loop `{}` of the reduction",
            scop.statement(other.0).name,
            steps[depth].name
        ));
    }
    let above = InsertionPoint::new(&scop, steps[..depth].to_vec())?;
    let digits = digits(&mut scop, id, &row, &steps);
    for (r, a) in &digits.split {
        schedule = split_digit(&schedule, id, r, a, into)?;
    }
    let count = digits.count;

    let decl = scop.tensor(target).clone();
    let names = dimension_names(&scop, target, &above.rows);
    let writes: Vec<_> = element_accesses(&scop, &[id], target, true).into_iter().filter(|t| t.write).collect();
    let Some(domain) = above.reach(&scop, &writes, &decl.shape, &isl)? else {
        return refuse(format!("`{}` never runs", s.name));
    };
    let partial =
        TensorDecl { shape: [decl.shape.clone(), vec![count]].concat(), literals: None, panel: None, ..decl.clone() };
    let partial = add_temporary(&mut scop, &into.text, &partial);
    let update = &mut scop.statements[id.0 as usize];
    update.target = partial;
    update.write.push(digits.place);
    update.name = into.text.clone();

    let n = above.rows.len();
    let dimensions = names.iter().zip(&decl.shape).map(|(name, &extent)| Iterator::new(name, extent));
    let last = Iterator::new(&over.name.text, count);
    let iterators: Vec<Iterator> = above.iterators.iter().cloned().chain(dimensions).chain([last]).collect();
    let places: Vec<Affine> = (n..iterators.len()).map(|v| Affine::var(Var(v as u32))).collect();
    let start = Statement {
        name: statement_name(&scop, &format!("{into}_init")),
        iterators: iterators.clone(),
        domain: domain.clone(),
        target: partial,
        write: places.clone(),
        computed: vec![],
        reduce: None,
        body: Expr::Const(Scalar::neutral(op, decl.dtype)?),
    };
    let combine = Statement {
        name: s.name,
        iterators: iterators.clone(),
        domain,
        target,
        write: places[..decl.shape.len()].to_vec(),
        computed: vec![],
        reduce: Some(op),
        body: Expr::load(partial, places),
    };
    let new = [0, 1].map(|i| StatementId(scop.statements.len() as u32 + i));
    scop.statements.extend([start, combine]);
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

/// The one update of the tensor in the loop, and its operation.
fn update(scop: &Scop, target: BufferId, row: &Row, name: &Name, over: &Loop) -> Result<(StatementId, BinaryOp)> {
    let updates = |id: &StatementId| scop.statement(*id).target == target && scop.statement(*id).reduce.is_some();
    let candidates: Vec<StatementId> = row.phi.iter().map(|p| p.0).filter(updates).collect();
    let [id] = candidates[..] else {
        return refuse(format!(
            "{} updates of `{name}` are in loop `{over}`: exactly one can be factored",
            candidates.len()
        ));
    };
    match scop.statement(id).reduce {
        Some(op) => Ok((id, op)),
        None => refuse(format!("`{}` is not a reduction", scop.statement(id).name)),
    }
}

/// Returns true if all iterations of the loop update the same elements.
fn is_of_reduction(s: &Statement, id: StatementId, r: &Row) -> bool {
    !s.write.iter().any(|w| r.of(id).terms.iter().any(|t| w.uses(t.0)))
}

/// Refuses a loop that is none of the reduction, updates that have an order, a name that is taken.
fn refuse_unfit(
    scop: &Scop,
    id: StatementId,
    row: &Row,
    [name, into]: [&Name; 2],
    over: &Loop,
    isl: &Isl,
) -> Result<()> {
    let s = scop.statement(id);
    if !is_of_reduction(s, id, row) {
        return refuse(format!(
            "each iteration of `{over}` updates other elements of `{name}`: it is not a loop of the reduction"
        ));
    }
    if reads_sums(s, &[], isl)? {
        return refuse(format!("`{}` reads `{name}` itself: its updates have an order", s.name));
    }
    if scop.tensors.iter().any(|t| t.name == into.text) || scop.statements.iter().any(|s| s.name == into.text) {
        return refuse(format!("`{into}` is already defined"));
    }
    Ok(())
}

/// Which partial result an iteration updates.
struct Digits {
    place: Affine,
    count: i64,
    /// Loops over tiles, with the value that a loop of its own below them takes.
    split: Vec<(Row, Affine)>,
}

/// The value of the loop, within that of the loop that it was split from.
fn digits(scop: &mut Scop, id: StatementId, row: &Row, steps: &[Row]) -> Digits {
    let from =
        steps.iter().take_while(|r| *r != row).filter(|r| r.tile % row.tile == 0 && r.of(id) == row.of(id)).last();
    let mut split: Vec<(Row, Affine)> = vec![];
    let mut value = |scop: &mut _, r: &Row| {
        let a = value_of(scop, r, id);
        if r.tile > 1 {
            split.push((r.clone(), a.clone()));
        }
        a
    };
    let (lo, hi) = row.values(scop);
    let inner_value = value(scop, row);
    let (place, count) = match from {
        None => (inner_value.offset(-lo), hi - lo + 1),
        Some(outer) => {
            let outer_value = value(scop, outer);
            (inner_value.add_scaled(&outer_value, -(outer.tile / row.tile)), outer.tile / row.tile)
        }
    };
    Digits { place, count, split }
}

/// Puts a loop over the one value `a` below loop `row` of a statement.
fn split_digit(schedule: &Schedule, id: StatementId, row: &Row, a: &Affine, into: &Name) -> Result<Schedule> {
    replace(schedule, row, &mut |r, below| {
        let digit = Row {
            name: format!("{}_{into}", r.name),
            phi: vec![(id, a.clone())],
            tile: 1,
            kind: RowKind::Serial,
            ..r.clone()
        };
        Ok(single(r, single(digit, below)))
    })
}

fn row_of<'a>(step: &crate::poly::schedule::TimeDimension<'a>) -> Option<&'a Row> {
    match step {
        crate::poly::schedule::TimeDimension::Row(r) => Some(r),
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
