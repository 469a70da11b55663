//! Tiles of a range of elements: whole ones, and narrower ones for what they leave.

use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::{Affine, Bound, Var};

/// Elements of the narrowest tiles. Unmeasured.
const LEAST_WIDTH: i64 = 4;

/// Tiles of `width` elements from the one that `first` is to the one before `stop`; `var` is the first one of a tile.
pub struct Tile {
    pub var: Var,
    pub width: i64,
    pub first: Var,
    pub stop: Affine,
}

/// The tiles of a range in its order: whole ones, of what is left those of a part of their width, then single elements.
pub fn by_widths(
    nest: &mut LoopNest,
    tile: Tile,
    facts: &mut Facts,
    out: &mut Vec<Stmt>,
    body: &mut dyn FnMut(&mut LoopNest, Var, i64) -> Vec<Stmt>,
) {
    let Tile { var, first, stop, .. } = tile;
    let name = nest.vars[var.0 as usize].clone();
    let start = Affine::var(first);
    let (mut width, mut after) = (tile.width, start.clone());
    loop {
        let var = if width == tile.width { var } else { nest.new_var(name.clone()) };
        let mut lower = vec![Bound { affine: start.clone(), divisor: 1 }];
        // where the end lies before the first element, so does what is after whole tiles
        lower.extend((after != start).then(|| Bound { affine: after.clone(), divisor: 1 }));
        let upper = vec![Bound { affine: stop.clone().offset(1 - width), divisor: 1 }];
        let body = body(nest, var, width);
        if width > 1 {
            let count = nest.new_var("whole");
            let extent = stop.add_scaled(&after, -1);
            facts.bind(count, &extent, width);
            out.push(Stmt::Let { var: count, value: extent, divisor: width });
            after = after.plus(count, width);
        }
        out.push(Stmt::Loop { var, lower, upper, step: width, kind: LoopKind::Serial, body });
        width = match width {
            1 => return,
            8.. => (width / 4).max(LEAST_WIDTH),
            _ => 1,
        };
    }
}
