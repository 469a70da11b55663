//! Loops around products of tiles, which decide what of their operands the first cache keeps.
//!
//! In: a loop nest. Out: how its loops over terms read.

use crate::codegen::Target;
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::select::point_loops::block;
use crate::expr::Index;

/// Loops around products of tiles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TileLoops {
    /// There are none.
    None,
    /// There is one loop over terms, and what the next loop around it moves passes the first cache.
    Streaming,
    /// Loops over terms read operands again.
    Reading,
}

/// The loops around the products of tiles in a nest.
pub(super) fn tile_loops(nest: &LoopNest, target: &Target) -> TileLoops {
    if !target.instructions.iter().any(TensorInstruction::is_tile) {
        return TileLoops::None;
    }
    let block = |s| block(&target.instructions, TensorInstruction::is_tile, s);
    let mut found = TileLoops::None;
    nest.body.iter().for_each(|s| {
        s.visit(&mut |s| {
            let Stmt::Loop { var, kind: LoopKind::Serial, body, .. } = s else { return };
            if found == TileLoops::None && body.iter().any(|s| block(s).is_some()) {
                found = TileLoops::Streaming;
            }
            let [Stmt::Loop { kind: LoopKind::Serial, body, .. }] = &body[..] else { return };
            if let [stmt] = &body[..]
                && let Some(block) = block(stmt)
                && !block.index.iter().filter_map(Index::affine).any(|a| a.uses(*var))
            {
                found = TileLoops::Reading;
            }
        })
    });
    found
}
