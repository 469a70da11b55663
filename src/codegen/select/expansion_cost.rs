//! Rough costs of loops: limits for their expansion.

use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Expr;
use crate::expr::interval::{ceil_div, constant_range};

/// Instructions of an expression.
fn expression(e: &Expr) -> i64 {
    let operation = match e {
        Expr::Const(_) | Expr::Index(_) => 0,
        Expr::Load(a) => 1 + 2 * a.guard.len() as i64,
        Expr::Unary(op, _) => op.cost().instructions,
        Expr::Binary(op, ..) => op.cost().instructions,
        Expr::Compare(..) | Expr::Select(..) | Expr::Cast(..) | Expr::Bitcast(..) => 1,
    };
    operation + e.operands().map(expression).sum::<i64>()
}

/// Instructions of a body for one vector of each of its statements, unrolled loops expanded.
pub fn cost(body: &[Stmt]) -> i64 {
    let total = body.iter().map(|stmt| match stmt {
        Stmt::Store { value, reduce, .. } => 1 + expression(value) + reduce.is_some() as i64,
        Stmt::Let { .. } => 0,
        Stmt::Read { value, .. } => 2 + expression(value),
        Stmt::If { body, .. } => cost(body),
        Stmt::Loop { lower, upper, kind, body, .. } => match (kind, constant_range(lower, upper)) {
            (LoopKind::Unroll, Some((first, end))) => (end - first) * cost(body),
            (LoopKind::Instruction(_), _) => 3,
            _ => cost(body),
        },
    });
    total.sum()
}

/// Vector statements of a body when unrolled and vector loops (of `lanes` lanes) are expanded; `None` when it has a loop.
pub fn vector_statements(body: &[Stmt], lanes: i64) -> Option<i64> {
    let mut sum = 0;
    for stmt in body {
        sum += match stmt {
            Stmt::Store { value, .. } => 1 + expression(value) / 4,
            Stmt::Let { .. } => 0,
            Stmt::Read { .. } => 1,
            Stmt::If { body, .. } => vector_statements(body, lanes)?,
            Stmt::Loop { lower, upper, kind, body, .. } => {
                let extent = constant_range(lower, upper).map(|(first, end)| end - first);
                match (kind, extent) {
                    (LoopKind::Unroll, Some(n)) => n * vector_statements(body, lanes)?,
                    (LoopKind::Instruction(_), Some(_)) => 1,
                    (LoopKind::Vector, Some(n)) => ceil_div(n, lanes) * vector_statements(body, lanes)?,
                    _ => return None,
                }
            }
        };
    }
    Some(sum)
}
