//! Expected values of limits from data, for costs.

use crate::codegen::loopnest::LoopNest;
use crate::expr::interval::gcd;
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, Bound, Expr, Index};

/// A limit as it is where the data divide the range evenly among the elements that they are read from; the end of the range
/// where that is not known.
pub fn expected(nest: &LoopNest, (limit, lower): (&Expr, bool), (first, end): (i64, i64)) -> Bound {
    let unknown = Bound::constant(if lower { first } else { end });
    let (mut value, mut offset) = (limit, 0);
    loop {
        value = match value {
            Expr::Cast(_, a) => a,
            Expr::Binary(BinaryOp::Add, a, b) => match &**b {
                Expr::Const(c) if !c.dtype.is_float() => {
                    offset += Value::from(*c).as_i64();
                    a
                }
                _ => return unknown,
            },
            Expr::Load(access) => {
                let shape = &nest.buffer(access.buffer).shape;
                let (Some(index), Some(&elements)) = (access.index.last(), shape.last()) else { return unknown };
                let element = match index {
                    Index::Affine(a) => a.clone(),
                    Index::Value(e) => Affine::constant(added(e)),
                };
                let (mut share, mut rows) = (end - first, (elements - 1).max(1));
                while share > 1 << 30 && rows > 1 {
                    (share, rows) = (share / 2, (rows / 2).max(1));
                }
                let by = gcd(share.max(1), rows);
                let (share, rows) = (share / by, rows / by);
                return Bound { affine: element.scale(share).offset((first + offset) * rows), divisor: rows };
            }
            _ => return unknown,
        };
    }
}

/// The number that a subscript from data adds to what it reads.
fn added(e: &Expr) -> i64 {
    match e {
        Expr::Const(c) if !c.dtype.is_float() => Value::from(*c).as_i64(),
        Expr::Index(a) => a.constant,
        Expr::Cast(_, a) => added(a),
        Expr::Binary(BinaryOp::Add, a, b) => added(a).saturating_add(added(b)),
        Expr::Binary(BinaryOp::Sub, a, b) => added(a).saturating_sub(added(b)),
        // limits of the dimension
        Expr::Binary(BinaryOp::Min | BinaryOp::Max, a, b) if matches!(**b, Expr::Const(_)) => added(a),
        _ => 0,
    }
}
