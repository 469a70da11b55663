//! The tiles of a sum in one pass over its loops: registers and shapes.

use crate::codegen::instruction::TILES;
use crate::codegen::vcode::{Shapes, Tile};

/// The tiles of one pass over the loops: all have the same shape.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The iteration of the outer loop and the first row of each row of tiles.
    pub rows: Vec<[i64; 2]>,
    /// The first column of each column of tiles.
    pub columns: Vec<i64>,
    /// Rows and columns of a tile.
    pub tile: [i64; 2],
    /// Iterations of the innermost loop that an instruction takes, and those that are left at its end.
    pub steps: i64,
    pub left: i64,
    /// Those of the instructions to come.
    pub now: i64,
}

impl Pass {
    pub fn sums(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    pub fn sum(&self, i: usize, j: usize) -> Tile {
        Tile((i * self.columns.len() + j) as u8)
    }

    /// Registers of operands: of A, and the first of B.
    pub fn operands(&self) -> [Tile; 2] {
        let sums = self.sums() as u8;
        match self.left > 0 && self.now == self.left {
            true => [Tile(sums + 2), Tile(sums + 3)],
            false => [Tile(sums), Tile(sums + 1)],
        }
    }

    /// Returns true if each column of tiles has a register of its own for B.
    pub fn keeps_columns(&self) -> bool {
        self.left == 0 && self.sums() + 1 + self.columns.len() <= TILES
    }

    pub fn shapes(&self) -> Shapes {
        let [rows, columns] = self.tile;
        let mut shapes = [(0, 0); TILES];
        let sums = self.sums();
        shapes[..sums].fill((rows as u8, 4 * columns as u8));
        let operands = |steps: i64| [(rows as u8, 4 * steps as u8), (steps as u8, 4 * columns as u8)];
        shapes[sums..sums + 2].copy_from_slice(&operands(self.steps));
        if self.keeps_columns() {
            shapes[sums + 1..][..self.columns.len()].fill(operands(self.steps)[1]);
        } else if self.left > 0 {
            shapes[sums + 2..sums + 4].copy_from_slice(&operands(self.left));
        }
        Shapes(shapes)
    }
}
