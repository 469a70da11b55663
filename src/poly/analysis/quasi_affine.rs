//! Subscripts and conditions over indices alone that are not affine: with quotients, remainders, minima or maxima.

use crate::expr::Expr;
use crate::expr::piecewise::division;
use crate::poly::statement::{Statement, TensorDecl};

/// An expression over indices that decides what a statement does.
pub struct QuasiAffine<'a> {
    pub e: &'a Expr,
    /// Of a condition; otherwise of a subscript.
    pub condition: bool,
    /// Dependences follow from it: a condition, or a subscript of an array that the program writes.
    pub depends: bool,
    /// A subscript of the last dimension, in which neighbouring elements lie side by side.
    pub contiguous: bool,
}

/// The subscripts that are not affine and read no data, and the conditions of selections with quotients or remainders.
pub fn quasi_affine<'a>(s: &'a Statement, tensors: &[TensorDecl]) -> Vec<QuasiAffine<'a>> {
    let of_indices = |e: &Expr| !e.any(&mut |e| matches!(e, Expr::Load(_)));
    let mut out = vec![];
    for (d, e) in s.computed.iter().filter(|(_, e)| of_indices(e)) {
        let contiguous = d + 1 == tensors[s.target.0 as usize].shape.len();
        out.push(QuasiAffine { e, condition: false, depends: true, contiguous });
    }
    s.body.visit(&mut |e| match e {
        Expr::Load(access) => {
            let depends = tensors[access.buffer.0 as usize].role.is_written();
            for (d, e) in access.index.iter().enumerate().filter_map(|(d, i)| i.value().map(|e| (d, e))) {
                if of_indices(e) {
                    let contiguous = d + 1 == access.index.len();
                    out.push(QuasiAffine { e, condition: false, depends, contiguous });
                }
            }
        }
        Expr::Select(c, ..) if of_indices(c) && c.any(&mut |e| division(e).is_some()) => {
            out.push(QuasiAffine { e: c, condition: true, depends: true, contiguous: false });
        }
        _ => {}
    });
    out
}
