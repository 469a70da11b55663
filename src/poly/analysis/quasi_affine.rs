//! Subscripts and conditions over indices alone that are not affine: with quotients, remainders, minima or maxima.

use crate::expr::piecewise::division;
use crate::expr::{Expr, Index};
use crate::poly::statement::{Statement, TensorDecl};

/// An expression over indices that decides what a statement does.
pub struct QuasiAffine<'a> {
    pub e: &'a Expr,
    /// Of a condition; otherwise of a subscript.
    pub condition: bool,
    /// Dependences follow from it: a condition, or a subscript of an array that the program writes.
    pub depends: bool,
}

/// The subscripts that are not affine and read no data, and the conditions of selections with quotients or remainders.
pub fn quasi_affine<'a>(s: &'a Statement, tensors: &[TensorDecl]) -> Vec<QuasiAffine<'a>> {
    let of_indices = |e: &Expr| !e.any(&mut |e| matches!(e, Expr::Load(_)));
    let mut out = vec![];
    for (_, e) in s.computed.iter().filter(|(_, e)| of_indices(e)) {
        out.push(QuasiAffine { e, condition: false, depends: true });
    }
    s.body.visit(&mut |e| match e {
        Expr::Load(access) => {
            let depends = tensors[access.buffer.0 as usize].role.is_written();
            let values = access.index.iter().filter_map(Index::value).filter(|e| of_indices(e));
            out.extend(values.map(|e| QuasiAffine { e, condition: false, depends }));
        }
        Expr::Select(c, ..) if of_indices(c) && c.any(&mut |e| division(e).is_some()) => {
            out.push(QuasiAffine { e: c, condition: true, depends: true });
        }
        _ => {}
    });
    out
}
