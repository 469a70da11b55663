//! Vector loops over memory that is walked backwards.
//!
//! In: a vector loop. Out: true where its lanes take the iterations the other way round: all elements that differ between
//! lanes are then neighbours in ascending order, and no vector is reversed by a permutation after its load and before its store.

use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::codegen::select::locals::visit;
use crate::expr::{Index, Var};
use rustc_hash::FxHashSet;

/// Returns true if each element that `body` accesses is one for all iterations of `var`, or the one before that of the iteration before,
/// and some are.
pub fn is_backward(nest: &LoopNest, body: &[Stmt], var: Var) -> bool {
    let (mut backward, mut others) = (false, false);
    let (mut expanded, mut vector) = (FxHashSet::default(), FxHashSet::default());
    visit(body, &mut expanded, &mut vector, &mut |buffer, index, _, _| {
        let strides = &nest.buffer(buffer).strides;
        let step = index.iter().zip(strides).try_fold(0, |sum, (i, stride)| match i {
            Index::Affine(a) => Some(sum + a.coefficient(var) * stride),
            Index::Value(_) => None,
        });
        backward |= step == Some(-1);
        others |= !matches!(step, Some(0 | -1));
    });
    backward && !others
}

#[cfg(test)]
mod tests {
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::Inst;

    /// Accesses of the first phase for AVX-512 whose lanes are not neighbours in ascending order.
    fn strided(body: &str) -> usize {
        let text = format!(
            "kernel p {{ A: f32[16][90] argument 0 written; B: f32[16][90] argument 1 written; C: f64[90] argument 2 written;
             {body} }}"
        );
        let functions = check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1);
        functions[0].insts.iter().filter(|i| matches!(i, Inst::VGather { .. } | Inst::VScatter { .. })).count()
    }

    #[test]
    fn lanes_run_against_their_iterations_where_memory_does() {
        // whole vectors and a part of one; an invariant, a subscript as a value, and a conversion
        assert_eq!(strided("for i in 0..16 { vector k in 0..40 { A[i][80 - k] = (B[i][81 - k] * B[i][3]); } }"), 0);
        assert_eq!(strided("for i in 0..16 { vector k in 0..21 { A[i][80 - k] = cast f32(index(i + 2*k)); } }"), 0);
        assert_eq!(strided("for i in 0..16 { vector k in 0..11 { C[60 - k] = cast f64(A[i][70 - k]); } }"), 0);
        // an element that a later lane of the same vector overwrites
        assert_eq!(strided("for i in 0..16 { vector k in 0..16 { A[i][80 - k] = (A[i][79 - k] + B[i][i]); } }"), 0);
        // a sum
        assert_eq!(strided("for i in 0..16 { vector k in 0..40 { A[i][0] add = B[i][81 - k]; } }"), 0);
    }

    #[test]
    fn accesses_in_both_directions_stay() {
        // the store of each row is reversed, not its two loads
        assert_eq!(strided("for i in 0..16 { vector k in 0..16 { A[i][80 - k] = (B[i][k] + B[i][k + 1]); } }"), 16);
    }
}
