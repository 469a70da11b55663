//! Values that may be read before a loop instead of in it.

use crate::codegen::loopnest::{BufferKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::{BufferId, Expr, Index};
use rustc_hash::FxHashSet;

/// Returns true if an expression reads elements that are there, and that nothing writes.
pub(super) fn may_read(nest: &LoopNest, e: &Expr, facts: &Facts) -> bool {
    may_read_before(nest, e, facts, None)
}

/// Returns true if an expression reads elements that are there, and that nothing writes but statements outside of the loop that stores to the buffers `written`.
/// `None` where nothing at all may write them.
pub(super) fn may_read_before(nest: &LoopNest, e: &Expr, facts: &Facts, written: Option<&FxHashSet<BufferId>>) -> bool {
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
        let unchanged = match b.kind {
            BufferKind::Argument { written: false, .. } => true,
            // more of them may become registers of lanes
            BufferKind::Local if b.shape.iter().any(|n| *n != 1) => false,
            BufferKind::Local | BufferKind::Argument { .. } => {
                written.is_some_and(|written| !written.contains(&access.buffer))
            }
        };
        may &= unchanged && access.guard.is_empty() && access.index.iter().zip(&b.shape).all(inside);
    });
    may
}

/// The buffers that statements write.
pub(in crate::codegen) fn written_in(body: &[Stmt]) -> FxHashSet<BufferId> {
    let mut out = FxHashSet::default();
    body.iter().for_each(|s| {
        s.visit(&mut |s| match s {
            Stmt::Store { buffer, .. } => drop(out.insert(*buffer)),
            Stmt::Read { recorded: Some(extremes), .. } => out.extend(extremes),
            _ => {}
        })
    });
    out
}
