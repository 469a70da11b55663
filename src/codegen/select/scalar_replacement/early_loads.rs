//! Loads of other columns of the rows that a store writes, before it.
//!
//! In: a body without loops, in which lanes lie apart as the fields of records do. Out: the same with such a load before the stores
//! whose bytes it would meet. The vectors of a load hold all columns, so that it waits for a store of one of them until the cache
//! has it (store forwarding fails), though it needs none of its elements.

use super::Pass;
use super::accesses::{Accesses, Reference, Shape, is_apart};
use crate::codegen::select::register_pressure::RegisterPressure;
use crate::codegen::select::tree::Node;
use crate::expr::Var;
use crate::expr::interval::Facts;

impl Pass<'_> {
    /// The body with its strided loads before strided stores of other columns, as far as registers last.
    pub(super) fn early_loads(&self, body: Vec<Node>, var: Var, facts: &Facts) -> Vec<Node> {
        let accesses = Accesses::of(&body, &self.pointers, &self.registers);
        let by_vectors = |r: &&Reference| match r.value {
            Some((dst, Shape::Lanes { ty, mem, stride, part: None }, _)) => {
                let distance = stride / mem.bytes() as i64;
                let moves = self.target.close_moves(distance, mem.bytes(), ty.lanes.into(), false);
                moves.is_some() && self.registers.is_single(dst)
            }
            _ => false,
        };
        let loads = accesses.all.iter().filter(|r| !r.store && r.strided.is_some()).filter(by_vectors);
        let registers = self.target.vector_registers - 1;
        let mut live = RegisterPressure::of(&body).greatest();
        let mut places: Vec<(usize, bool)> = (0..body.len()).map(|at| (at, true)).collect();
        for load in loads {
            let stores = || accesses.all.iter().filter(|w| w.store && w.root == load.root && w.at < load.at);
            let apart = |w: &Reference| is_apart(w, 0, var, load, facts, &self.unknown);
            let meets = |w: &&Reference| apart(w) && !apart(&Reference { strided: None, ..(*w).clone() });
            let Some(first) = stores().find(meets).map(|w| w.at) else { continue };
            let clobbered = accesses.clobbered.iter().any(|&(at, root)| at >= first && root == load.root);
            let defined = body[first..load.at].iter().any(|n| n.defines().is_some_and(|v| load.bytes.uses(v)));
            if live < registers && !clobbered && !defined && stores().filter(|w| w.at >= first).all(apart) {
                live += 1;
                places[load.at] = (first, false);
            }
        }
        let mut nodes: Vec<_> = places.into_iter().zip(body).collect();
        nodes.sort_by_key(|n| n.0);
        nodes.into_iter().map(|n| n.1).collect()
    }
}
