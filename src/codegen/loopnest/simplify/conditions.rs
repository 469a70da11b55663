//! The affine conditions of a body: those of its statements, guards of what it reads, and comparisons of iterators in its values, as
//! `i > 1` in `select(i > 1 && x > y, a, b)`.
//!
//! A comparison that intervals decide is a constant, and so are conjunctions, disjunctions and selections by it.

use crate::codegen::loopnest::Stmt;
use crate::expr::interval::Facts;
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, CompareOp, Expr, UnaryOp};
use crate::runtime::DType;

/// The difference of the sides of a comparison of integers that are affine, one of them of iterators.
fn difference(a: &Expr, b: &Expr) -> Option<Affine> {
    let side = |e: &Expr| match e {
        Expr::Index(a) => Some(a.clone()),
        Expr::Const(c) if c.dtype == DType::I64 => Some(Affine::constant(Value::from(*c).as_i64())),
        _ => None,
    };
    let of_iterators = matches!(a, Expr::Index(_)) || matches!(b, Expr::Index(_));
    of_iterators.then(|| Some(side(a)?.add_scaled(&side(b)?, -1))).flatten()
}

/// The affine conditions, `≥ 0`, that decide the comparisons of `e` and the guards of what it reads.
pub(super) fn of_values(e: &Expr) -> Vec<Affine> {
    let mut out = vec![];
    e.visit(&mut |e| match e {
        Expr::Load(access) => out.extend(access.guard.iter().cloned()),
        Expr::Compare(op, a, b) => match (op, difference(a, b)) {
            (_, None) => {}
            (CompareOp::Lt | CompareOp::Ge, Some(d)) => out.push(d),
            (CompareOp::Le | CompareOp::Gt, Some(d)) => out.push(d.offset(-1)),
            (CompareOp::Eq | CompareOp::Ne, Some(d)) => out.extend([d.scale(-1), d]),
        },
        _ => {}
    });
    out
}

/// `e`, whose operands are simplified, where intervals may decide it.
pub(in crate::codegen) fn decided(e: Expr, facts: &Facts) -> Expr {
    let constant = |e: &Expr| match e {
        Expr::Const(c) if c.dtype == DType::Bool => Some(Value::from(*c).is_true()),
        _ => None,
    };
    let truth = |value: bool| Expr::Const(Value::Bool(value).into());
    match e {
        Expr::Compare(op, a, b) => match difference(&a, &b).and_then(|d| holds(op, &d, facts)) {
            Some(value) => truth(value),
            None => Expr::Compare(op, a, b),
        },
        Expr::Unary(UnaryOp::Not, a) => match constant(&a) {
            Some(value) => truth(!value),
            None => Expr::Unary(UnaryOp::Not, a),
        },
        Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => match (constant(&a), constant(&b)) {
            // the one that is neutral goes
            (Some(value), _) if value == (op == BinaryOp::And) => *b,
            (_, Some(value)) if value == (op == BinaryOp::And) => *a,
            (Some(value), _) | (_, Some(value)) => truth(value),
            _ => Expr::Binary(op, a, b),
        },
        Expr::Select(condition, a, b) => match constant(&condition) {
            Some(true) => *a,
            Some(false) => *b,
            None => Expr::Select(condition, a, b),
        },
        e => e,
    }
}

/// Decides `difference op 0`, where intervals know.
fn holds(op: CompareOp, difference: &Affine, facts: &Facts) -> Option<bool> {
    let at_least = |bound: i64| facts.decide(&difference.clone().offset(-bound));
    match op {
        CompareOp::Ge => at_least(0),
        CompareOp::Gt => at_least(1),
        CompareOp::Lt => at_least(0).map(|holds| !holds),
        CompareOp::Le => at_least(1).map(|holds| !holds),
        CompareOp::Eq | CompareOp::Ne => {
            let equal = match (at_least(0), at_least(1)) {
                (Some(false), _) | (_, Some(true)) => Some(false),
                (Some(true), Some(false)) => Some(true),
                _ => None,
            };
            equal.map(|equal| equal == (op == CompareOp::Eq))
        }
    }
}

/// Returns true if no loop and no division is in the body.
pub(super) fn is_straight(body: &[Stmt]) -> bool {
    body.iter().all(|s| match s {
        Stmt::Store { .. } => true,
        Stmt::If { body, .. } => is_straight(body),
        Stmt::Loop { .. } | Stmt::Let { .. } | Stmt::Read { .. } => false,
    })
}

/// The conditions on all statements of a body.
pub(in crate::codegen) fn everywhere(body: &[Stmt]) -> Vec<Affine> {
    let conditions = |s: &Stmt| match s {
        Stmt::If { conditions, .. } => conditions.clone(),
        _ => vec![],
    };
    let mut common = body.first().map_or(vec![], conditions);
    body.iter().for_each(|s| {
        let conditions = conditions(s);
        common.retain(|c| conditions.contains(c));
    });
    common
}

/// Adds the conditions of a body's statements and values.
pub(super) fn of_parts(body: &[Stmt], parts: &mut Vec<Affine>) {
    for s in body {
        match s {
            Stmt::If { conditions, body } => {
                parts.extend(conditions.iter().cloned());
                of_parts(body, parts);
            }
            s => s.expressions().for_each(|e| parts.extend(of_values(e))),
        }
    }
}
