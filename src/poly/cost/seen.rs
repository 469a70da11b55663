//! Accesses and values of a block that were priced already.

use crate::expr::{Affine, BufferId, Expr, Var};
use rustc_hash::FxHashSet;

/// Accesses and values of a block.
#[derive(Default)]
pub(super) struct Seen<'a> {
    /// Accesses priced so far.
    pub(super) made: FxHashSet<(BufferId, Affine)>,
    /// All accesses.
    pub(super) addresses: FxHashSet<(BufferId, Affine)>,
    /// Those among them that store.
    pub(super) stored: FxHashSet<(BufferId, Affine)>,
    /// Operations priced so far, which code generation does not repeat.
    pub(super) values: FxHashSet<&'a Expr>,
    /// Divisors whose inverse is known.
    pub(super) inverses: FxHashSet<&'a Expr>,
}

impl Seen<'_> {
    /// Forgets the values that depend on a buffer, which is written.
    pub(super) fn written(&mut self, buffer: BufferId) {
        let stays = |e: &&Expr| !e.any(&mut |e| matches!(e, Expr::Load(a) if a.buffer == buffer));
        self.values.retain(stays);
        self.inverses.retain(stays);
    }

    /// Returns true if one of the `iterations` iterations of the loop over `v`, which advances by `by`, has accessed the place.
    pub(super) fn carries(&self, buffer: BufferId, address: &Affine, (v, by): (Var, i64), iterations: i64) -> bool {
        let step = by * address.coefficient(v);
        step != 0 && (1..=iterations).any(|k| self.addresses.contains(&(buffer, address.clone().offset(k * step))))
    }
}
