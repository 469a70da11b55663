//! Subscripts that a program keeps inside of their dimension, and need not: what it has written, as its text says it.
//!
//! In: a Scop with the checks of its subscripts. Out: of a record the subscript; of a statement those that are brought into their dimension and lie in it anyway wherever they
//! count, since a run checks the elements before it begins, or since conditions around say so.

use super::subscript_checks::{Condition, brought_within, conditions_of, lasting_value, limits, with_values};
use crate::expr::dynamic_bounds::Target;
use crate::expr::{BinaryOp, BufferId, Expr, Scalar};
use crate::poly::analysis::conditional_range::conditional_range;
use crate::poly::analysis::guarded_range::{Instances, guarded_range};
use crate::poly::schedule::Node;
use crate::poly::scop::Scop;
use crate::poly::statement::{ElementRange, Statement, StatementId};
use crate::runtime::DType;

/// The subscript of which a statement keeps an extreme: what its conditions choose beside the neutral element.
pub(super) fn recorded(s: &Statement) -> &Expr {
    let is_neutral = |e: &Expr| match (e, s.reduce) {
        (Expr::Const(c), Some(op)) => Scalar::neutral(op, c.dtype).is_ok_and(|neutral| *c == neutral),
        _ => false,
    };
    let mut value = &s.body;
    while let Expr::Select(_, yes, no) = value {
        value = match (is_neutral(yes), is_neutral(no)) {
            (false, true) => yes,
            (true, false) => no,
            _ => break,
        };
    }
    value
}

/// The subscripts of a statement, brought into their dimension, that are inside wherever they count, as the ranges of the arrays say.
pub(super) fn checked_before<'s>(scop: &'s Scop, s: &'s Statement) -> Vec<&'s Expr> {
    let mut out = vec![];
    if s.domain.is_empty() {
        brought(scop, s, &mut |(value, _), conditions, extent| {
            if is_checked(scop, s, conditions, value, extent) {
                out.push(value);
            }
        });
    }
    out
}

/// The subscripts of a statement, as what brings them into their dimension, that its conditions keep inside in all places.
pub(super) fn guarded(scop: &Scop, id: StatementId) -> Vec<&Expr> {
    let (mut out, mut open): (Vec<&Expr>, Vec<&Expr>) = (vec![], vec![]);
    let (s, values) = (scop.statement(id), values_at(scop, id));
    brought(scop, s, &mut |(value, brought), conditions, extent| {
        let conditions: Vec<Condition> =
            conditions.iter().map(|(e, holds)| (with_values(e, &values), *holds)).collect();
        let instances = Instances { iterators: &s.iterators, domain: &s.domain, conditions: &conditions };
        let range = guarded_range(&scop.tensors, &instances, &with_values(value, &values));
        let is_in = range.is_some_and(|(low, high)| 0 <= low && high < extent);
        if is_in { out.push(brought) } else { open.push(brought) }
    });
    out.retain(|brought| !open.contains(brought));
    out
}

/// Takes a subscript and what brings it into its dimension, the conditions where it counts, and the extent.
type Visit<'v, 's> = &'v mut dyn FnMut((&'s Expr, &'s Expr), &[Condition], i64);

/// Calls `f` on the subscripts of a statement that are brought into their dimension.
fn brought<'s>(scop: &'s Scop, s: &'s Statement, f: Visit<'_, 's>) {
    collect(scop, &s.body, &mut vec![], f);
    let (array, index) = (scop.tensor(s.target), s.subscripts());
    let target = Target { buffer: s.target, index: &index, reduce: s.reduce, dtype: array.dtype };
    let conditions = conditions_of(&target, &s.body).0.into_iter().map(|(e, holds)| (e.clone(), holds));
    let conditions: Vec<Condition> = conditions.collect();
    for (d, e) in &s.computed {
        of_dimension(scop, e, array.shape[*d])
            .into_iter()
            .for_each(|value| f((value, e), &conditions, array.shape[*d]));
    }
}

fn collect<'s>(scop: &Scop, e: &'s Expr, conditions: &mut Vec<Condition>, f: Visit<'_, 's>) {
    let mut under = |condition: &Expr, holds: bool, e: &'s Expr, f: Visit<'_, 's>| {
        conditions.push((condition.clone(), holds));
        collect(scop, e, conditions, f);
        conditions.pop();
    };
    match e {
        Expr::Select(condition, yes, no) => {
            under(condition, true, yes, f);
            under(condition, false, no, f);
            collect(scop, condition, conditions, f);
        }
        Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b)
            if e.dtype(&|b| scop.tensor(b).dtype) == DType::Bool =>
        {
            under(a, *op == BinaryOp::And, b, f);
            collect(scop, a, conditions, f);
        }
        Expr::Load(access) => {
            let tensor = scop.tensor(access.buffer);
            for (index, &extent) in access.index.iter().zip(&tensor.shape) {
                let Some(e) = index.value() else { continue };
                of_dimension(scop, e, extent).into_iter().for_each(|value| f((value, e), conditions, extent));
                collect(scop, e, conditions, f);
            }
        }
        e => e.operands().for_each(|e| collect(scop, e, conditions, f)),
    }
}

/// Returns true if ranges of the arrays keep a subscript in `0..extent` wherever the conditions are as said.
fn is_checked(scop: &Scop, s: &Statement, conditions: &[Condition], value: &Expr, extent: i64) -> bool {
    let range = conditional_range(&scop.tensors, &s.iterators, conditions, value, extent);
    range.is_some_and(|r| {
        let covers = |known: &ElementRange| {
            (known.offset, known.stride) == (r.offset, r.stride) && r.lower <= known.lower && known.upper <= r.upper
        };
        scop.tensor(r.tensor).ranges.iter().any(covers)
    })
}

/// The value that is brought into a dimension of `extent`.
fn of_dimension<'e>(scop: &Scop, e: &'e Expr, extent: i64) -> Option<&'e Expr> {
    let value = brought_inside(e)?;
    let limits = limits(value.dtype(&|b| scop.tensor(b).dtype), extent)?;
    (*e == brought_within(value, limits)).then_some(value)
}

/// The temporaries whose values a statement finds as its block, or one around it, has assigned them.
fn values_at(scop: &Scop, id: StatementId) -> Vec<(BufferId, Expr)> {
    let (mut out, mut node, domain) = (vec![], &scop.order.root, &scop.statement(id).domain);
    loop {
        node = match node {
            Node::Leaf => return out,
            Node::Band(_, child) => child,
            Node::Sequence(children) => {
                let Some(at) = children.iter().position(|(ids, _)| ids.contains(&id)) else { return out };
                for (ids, _) in children[..at].iter().filter(|(_, child)| matches!(child, Node::Leaf)) {
                    let [before] = ids[..] else { continue };
                    let before = scop.statement(before);
                    let is_only = scop.statements.iter().filter(|s| s.target == before.target).count() == 1;
                    let holds = before.domain.iter().all(|c| domain.contains(c));
                    out.extend(lasting_value(&scop.tensors, before).filter(|_| is_only && holds));
                }
                &children[at].1
            }
        };
    }
}

/// The value that a minimum and a maximum bring into a dimension.
pub(super) fn brought_inside(e: &Expr) -> Option<&Expr> {
    match e {
        Expr::Binary(BinaryOp::Min, above, _) => match above.as_ref() {
            Expr::Binary(BinaryOp::Max, value, _) => Some(value),
            _ => None,
        },
        _ => None,
    }
}
