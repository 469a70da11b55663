//! Sums of sums: the loop that a sum shares with another one, which adds up its results.
//!
//! In: the tree of a phase in which one child computes a sum for each value of an iterator, and a later one adds these up, both in the
//! same outer loops. Out: the tree with one loop over that iterator around both, so that each result is used while it is in a
//! register (loop fusion; Kennedy and McKinley 1993):
//!
//! ```text
//! for n { for b { for k { S(b, n) += … } }  for b { Y(n) += f(S(b, n)) } }
//! for n { for b { for k { S(b, n) += … }  Y(n) += f(S(b, n)) } }
//! ```
//!
//! Invariant: a statement between the two exchanges no values with the first.

use crate::expr::{Affine, BinaryOp, BufferId, Index, Var};
use crate::poly::analysis::access::references;
use crate::poly::schedule::{Band, Node, Row};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId};
use crate::poly::tile::plan::unit;
use crate::runtime::DType;

type Child = (Vec<StatementId>, Node);

/// The tree in which a sum and the one that adds up its results share a loop; `None` where there are none.
pub(super) fn fused(scop: &Scop, node: &Node) -> Option<Node> {
    let Node::Band(outer, child) = node else { return None };
    let Node::Sequence(children) = &**child else { return None };
    let pairs = (0..children.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
    let (first, last, node) =
        pairs.into_iter().find_map(|(i, j)| Some((i, j, together(scop, &children[i], &children[j])?)))?;
    let between = &children[first + 1..last];
    if between.iter().any(|child| exchange(scop, &child.0, &children[first].0)) {
        return None;
    }
    let statements = [&children[first].0[..], &children[last].0].concat();
    let mut children = children.clone();
    children[last] = (statements, node);
    children.remove(first);
    Some(Node::Band(outer.clone(), Box::new(Node::Sequence(children))))
}

/// One loop around a child that computes sums and one that adds them up.
fn together(scop: &Scop, (summed, first): &Child, (adding, last): &Child) -> Option<Node> {
    let (Node::Band(own, inside), Node::Band(adds, leaf)) = (first, last) else { return None };
    let (&[y], [row], [along]) = (&adding[..], &own.rows[..], &adds.rows[..]) else { return None };
    let s = *summed.iter().find(|&&id| scop.statement(id).reduce.is_some())?;
    let (v, w) = (unit(row, s)?, unit(along, y)?);
    let (sum, total) = (scop.statement(s), scop.statement(y));
    let tensor = scop.tensor(sum.target);
    let mut users = scop.users(sum.target);
    users.retain(|id| *id != y && !summed.contains(id));
    let private = tensor.role == Role::Temporary && users.is_empty() && tensor.dtype != DType::F16;
    let adds_up = **leaf == Node::Leaf && total.reduce == Some(BinaryOp::Add) && !total.writes_along(w);
    let unshifted = |row: &Row| row.tile == 1 && row.phi.iter().all(|p| p.1.constant == 0 && p.1.terms.len() == 1);
    let equal = unshifted(row) && unshifted(along) && sum.extent(v) == total.extent(w);
    let literal = |id| references(scop, id).iter().any(|r| r.nonzero.is_some());
    if !private || !adds_up || !equal || !row.coincident || literal(s) || literal(y) {
        return None;
    }
    let place = sum.write.iter().position(|a| a.terms == [(v, 1)] && a.constant == 0)?;
    let mut reads = 0;
    let mut in_place = true;
    total.body.visit_accesses(&mut |a| {
        if a.buffer == sum.target {
            reads += 1;
            let is_w = |form: &Affine| form.terms == [(w, 1)] && form.constant == 0;
            let mut subscripts = a.index.iter().enumerate();
            let fits = |(d, i): (usize, &Index)| match i.affine() {
                Some(form) => {
                    if d == place {
                        is_w(form)
                    } else {
                        !form.uses(w)
                    }
                }
                None => false,
            };
            in_place &= subscripts.all(fits);
        }
    });
    if reads != 1 || !in_place {
        return None;
    }
    let phi = row.phi.iter().chain(&along.phi).cloned().collect();
    let shared = Row { phi, coincident: false, ..row.clone() };
    let mut parts = match &**inside {
        Node::Sequence(parts) => parts.clone(),
        node => vec![(summed.clone(), node.clone())],
    };
    parts.push((vec![y], Node::Leaf));
    Some(Node::Band(Band { rows: vec![shared], permutable: true }, Box::new(Node::Sequence(parts))))
}

/// The rows that carry dependences in bands around several parts, on the way to a statement.
pub(super) fn rows_around(node: &Node, id: StatementId) -> Vec<Row> {
    match node {
        Node::Band(band, child) => match &**child {
            Node::Sequence(parts) if parts.iter().any(|p| p.1 != Node::Leaf) => {
                let carrying = band.rows.iter().filter(|r| !r.coincident);
                carrying.cloned().chain(rows_around(child, id)).collect()
            }
            _ => vec![],
        },
        Node::Sequence(parts) => parts.iter().find(|p| p.0.contains(&id)).map_or(vec![], |p| rows_around(&p.1, id)),
        Node::Leaf => vec![],
    }
}

/// The sums of other statements for each of a statement's: those that it shares a loop with along which they are summed.
pub(super) fn sums_beside(scop: &Scop, node: &Node, id: StatementId) -> i64 {
    let carried = |r: &&Row| unit(r, id).is_some_and(|v: Var| scop.statement(id).writes_along(v));
    let others = |r: &Row| {
        let sums = |other: StatementId| {
            let s = scop.statement(other);
            other != id && s.reduce.is_some() && unit(r, other).is_some_and(|v| !s.writes_along(v))
        };
        r.phi.iter().filter(|p| sums(p.0)).count() as i64
    };
    rows_around(node, id).iter().filter(carried).map(others).sum()
}

/// Returns true if one of `a` or `b` writes a tensor that the other touches.
pub(super) fn exchange(scop: &Scop, a: &[StatementId], b: &[StatementId]) -> bool {
    let touches = |id: StatementId, tensor: BufferId| scop.statement(id).uses(tensor);
    let writes = |x: &[StatementId], y: &[StatementId]| {
        x.iter().any(|&w| y.iter().any(|&id| touches(id, scop.statement(w).target)))
    };
    writes(a, b) || writes(b, a)
}
