//! Values that may be read before a loop instead of in it.

use crate::codegen::loopnest::{BufferKind, LoopNest};
use crate::expr::interval::Facts;
use crate::expr::{Expr, Index};

/// Returns true if an expression reads elements that are there, and that nothing writes.
pub(super) fn may_read(nest: &LoopNest, e: &Expr, facts: &Facts) -> bool {
    let mut may = true;
    e.visit_accesses(&mut |access| {
        let b = nest.buffer(access.buffer);
        let inside = |(i, extent): (&Index, &i64)| match i {
            Index::Affine(a) => {
                let (low, high) = facts.bounds(a);
                0 <= low && high < *extent
            }
            // the ranges of its data are checked
            Index::Value(_) => true,
        };
        may &= matches!(b.kind, BufferKind::Argument { written: false, .. })
            && access.guard.is_empty()
            && access.index.iter().zip(&b.shape).all(inside);
    });
    may
}
