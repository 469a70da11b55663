//! The statements between two serial loops, in the loops that are expanded around them.

use crate::codegen::loopnest::LoopNest;
use crate::expr::{Affine, BinaryOp, BufferId, Expr, Index, Var};

/// A loop that is expanded around a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expanded {
    pub var: Var,
    /// Copies of what changes along it: iterations, or vectors.
    pub copies: f64,
    /// Lanes of a vector loop.
    pub lanes: Option<f64>,
    /// Iterations.
    pub trips: f64,
    /// Terms of a tensor instruction, whose loop it is; 1 of others.
    pub terms: i64,
    /// The instruction works on tiles.
    pub tile: bool,
    /// Its time in fused products; 1 of others.
    pub factor: f64,
}

/// A store, in the loops that are expanded around it.
#[derive(Clone, Debug)]
pub(super) struct Placed<'a> {
    pub buffer: BufferId,
    pub index: &'a [Index],
    pub value: &'a Expr,
    pub reduce: Option<BinaryOp>,
    pub around: Vec<Expanded>,
    /// Share of the iterations in which it is reached.
    pub share: f64,
    /// Conditions on its lanes.
    pub masks: usize,
    /// The outermost branch of the block that it stands in; 0 for none.
    pub branch: usize,
    /// Terms that a tensor instruction sums together; 1 without one.
    pub terms: i64,
}

impl Placed<'_> {
    /// The loop over lanes around the store.
    pub fn vector(&self) -> Option<&Expanded> {
        self.around.iter().find(|e| e.lanes.is_some())
    }
}

/// The place of an element in memory, in elements; `None` where a subscript is computed.
pub(super) fn address_of(nest: &LoopNest, buffer: BufferId, index: &[Index]) -> Option<Affine> {
    nest.buffer(buffer).place(index)
}

/// Returns true if the loop over `v` may change the value of `e`.
pub(super) fn changes_along(e: &Expr, v: Var) -> bool {
    e.any(&mut |e| match e {
        Expr::Index(a) => a.uses(v),
        Expr::Load(a) => a.affine_forms().any(|i| i.uses(v)),
        _ => false,
    })
}

/// How many elements apart an access is from one iteration of the loop over `v` to the next; `None` where a subscript is
/// computed from what the loop changes.
pub(super) fn distance_along(nest: &LoopNest, buffer: BufferId, index: &[Index], v: Var) -> Option<i64> {
    let along = |(i, &stride): (&Index, &i64)| match i {
        Index::Affine(a) => Some(a.coefficient(v) * stride),
        Index::Value(e) => match e.affine_terms() {
            (_, Some(rest)) if changes_along(&rest, v) => None,
            (affine, _) => Some(affine.coefficient(v) * stride),
        },
    };
    index.iter().zip(&nest.buffer(buffer).strides).map(along).sum()
}
