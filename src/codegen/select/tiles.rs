//! Products of tiles: a sum of a tensor instruction on tile registers, and the loops around it in which its sums stay there.
//!
//! In: point loops ([`point_loops`](super::point_loops)) around one sum whose row works on tiles. Out: tiles of sums that are loaded before the outermost loop that they do not depend on and stored after it, and in the innermost loop, of
//! which an instruction takes up to 16 iterations, loads of operands and instructions. All tiles of one pass have the same
//! shape: rows that divide into no equal tiles are in tiles that overlap, where the sums begin at zero or stay in one pass, and
//! the rest of rows or columns has loops and shapes of its own otherwise; the rest of the innermost loop has registers of its
//! own. Two loops over rows are one where their rows lie at one distance. Nothing outside of the operands is read.

use crate::codegen::instruction::{Part, TILE_ROW_BYTES, TILE_ROWS, TILES, TensorInstruction, tile_extents, tile_rows};
use crate::codegen::loopnest::Stmt;
use crate::codegen::select::point_loops::{Block, block, region};
use crate::codegen::select::state::{Address, LANE, LocalMode, Selected, Selector, Stop};
use crate::codegen::select::tile_pass::Pass;
use crate::codegen::select::tree::Node;
use crate::codegen::vcode::{Addr, Function, Inst, Shapes, Tile};
use crate::expr::interval::{ceil_div, constant_range};
use crate::expr::{Access, Affine, Bound, BufferId, Expr, Index, Var};

/// Columns of a tile of sums.
const COLUMNS: i64 = TILE_ROW_BYTES as i64 / 4;
const ROWS: i64 = TILE_ROWS as i64;

/// The tiles of `extent` points, of `most` points at most: the points of a tile, and the starts of those that have so many.
fn parts(extent: i64, most: i64) -> Vec<(i64, Vec<i64>)> {
    let mut first = 0;
    let starts = |(size, count): (i64, i64)| {
        let starts = (0..count).map(|n| first + n * size).collect();
        first += size * count;
        (size, starts)
    };
    tile_extents(extent, most).map(starts).collect()
}

/// The tiles of rows, as [`parts`]: overlapping ones where the sums begin at zero, or where they are in one pass of `most`.
fn row_parts(extent: i64, cleared: bool, most: usize) -> Vec<(i64, Vec<i64>)> {
    let (height, count) = tile_rows(extent);
    if !cleared && height * count != extent && count > most as i64 {
        return parts(extent, ROWS);
    }
    vec![(height, (0..count).map(|n| (n * height).min(extent - height)).collect())]
}

/// Returns true if a statement sets all sums of a block to zero: its subscripts count through the rows and columns.
fn clears(stmt: &Stmt, block: &Block) -> bool {
    let (mut current, mut loops) = (stmt, vec![]);
    let (buffer, index) = loop {
        match current {
            Stmt::Loop { var, lower, upper, step, kind, body } if !kind.is_parallel() => {
                let (Some((0, end)), [inside]) = (constant_range(lower, upper), &body[..]) else { return false };
                loops.push((*var, *step, ceil_div(end, *step)));
                current = inside;
            }
            Stmt::Store { buffer, index, value: Expr::Const(zero), reduce: None } if zero.bits == 0 => {
                break (*buffer, index);
            }
            _ => return false,
        }
    };
    let counts = |(written, cleared): (&Index, &Index)| {
        let (Some(written), Some(cleared)) = (written.affine(), cleared.affine()) else { return false };
        let axis = block.outer.into_iter().chain(block.rows).chain(block.columns).find(|axis| written.uses(axis.0));
        let first = axis.map_or(written.clone(), |axis| written.clone().plus(axis.0, -1));
        let (mut digits, mut start): (Vec<(i64, i64)>, _) = (vec![], cleared.clone());
        for l in &loops {
            let coefficient = cleared.coefficient(l.0);
            if coefficient != 0 {
                digits.push((coefficient * l.1, l.2));
                start = start.plus(l.0, -coefficient);
            }
        }
        digits.sort_unstable();
        let total = digits.iter().try_fold(1, |total, &(unit, count)| (unit == total).then_some(total * count));
        start == first && total == Some(axis.map_or(1, |a| a.1))
    };
    let used = |l: &(Var, i64, i64)| index.iter().filter_map(Index::affine).filter(|a| a.uses(l.0)).count() == 1;
    buffer == block.buffer && loops.iter().all(used) && block.index.iter().zip(index).all(counts)
}

impl Selector<'_> {
    /// Selects `stmt` where it is a sum in tiles, with the loops in which they stay; false for other statements. `cleared`: the
    /// statement before, which is not selected yet and goes with the sum where it clears the tiles.
    pub fn tiles(&mut self, cleared: Option<&Stmt>, stmt: &Stmt) -> Selected<bool> {
        if self.tile.is_some() || !self.target.instructions.iter().any(TensorInstruction::is_tile) {
            return Ok(false);
        }
        let instructions = self.target.instructions.clone();
        let Some((block, steps)) = region(&instructions, TensorInstruction::is_tile, stmt) else { return Ok(false) };
        if cleared.is_some_and(|before| !clears(before, &block)) {
            return Ok(false);
        }
        if self.in_registers(block.buffer) {
            return Err(Stop::Retry(block.buffer, LocalMode::Memory { offset: 0 }));
        }
        let [outer, rows, columns] = [block.outer, block.rows, block.columns].map(|axis| axis.map_or(1, |a| a.1));
        let (outer, rows) = if self.is_dense(&block)? { (1, outer * rows) } else { (outer, rows) };
        let (now, left) = if steps < ROWS { (steps, 0) } else { (ROWS, steps % ROWS) };
        // Sums, and registers for operands: two, or four where steps are left.
        let most = TILES - if left > 0 { 4 } else { 2 };
        self.settle_all();
        for (height, starts) in row_parts(rows, cleared.is_some(), most / outer as usize) {
            let place = |o: i64, row: i64| block.rows.map_or([o, 0], |(_, n)| [o + row / n, row % n]);
            let tiles: Vec<[i64; 2]> = (0..outer).flat_map(|o| starts.iter().map(move |&row| place(o, row))).collect();
            for rows in tiles.chunks(most) {
                for (width, starts) in parts(columns, COLUMNS) {
                    for columns in starts.chunks(most / rows.len()) {
                        let (rows, columns, tile) = (rows.to_vec(), columns.to_vec(), [height, width]);
                        let pass = Pass { rows, columns, tile, steps: now, left, now };
                        self.pass(&block, pass, stmt, cleared.is_some())?;
                    }
                }
            }
        }
        self.forget();
        Ok(true)
    }

    /// Returns true if the rows of the outer loop follow those of the inner one at the same distance, in the sums and in the
    /// operand.
    fn is_dense(&self, block: &Block) -> Selected<bool> {
        let (Some(_), Some((_, n))) = (block.outer, block.rows) else { return Ok(false) };
        let [a, _] = self.operands(block)?;
        for (buffer, index) in [(block.buffer, block.index), (a.buffer, &a.index[..])] {
            if self.stride(buffer, index, block.outer)? != n * self.stride(buffer, index, block.rows)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One pass over the loops.
    fn pass(&mut self, block: &Block, pass: Pass, stmt: &Stmt, cleared: bool) -> Selected<()> {
        self.out.push(Node::Inst(Inst::TileShapes { shapes: pass.shapes() }));
        self.sums(block, &pass, &mut |tile, addr, stride| match cleared {
            true => Inst::TileZero { tile },
            false => Inst::TileLoad { tile, addr, stride, streamed: false },
        })?;
        self.tile = Some(pass);
        self.statement(stmt)?;
        let Some(pass) = self.tile.take() else { return self.internal("a pass over tiles inside of another one") };
        self.sums(block, &pass, &mut |tile, addr, stride| Inst::TileStore { tile, addr, stride })
    }

    /// An instruction for each tile of sums.
    fn sums(&mut self, block: &Block, pass: &Pass, inst: &mut dyn FnMut(Tile, Addr, i64) -> Inst) -> Selected<()> {
        let stride = self.stride(block.buffer, block.index, block.rows)?;
        let unit = self.stride(block.buffer, block.index, block.columns)?;
        let size = self.nest.buffer(block.buffer).dtype.bytes() as i64;
        if block.columns.is_some() && unit != size {
            return self.internal("the columns of a tile of sums are not neighbours");
        }
        for i in 0..pass.rows.len() {
            for j in 0..pass.columns.len() {
                self.enter_tile(block, pass, [i, j]);
                let address = self.address(block.buffer, block.index)?;
                let addr = self.tile_address(&address)?;
                let inst = inst(pass.sum(i, j), addr, stride);
                self.out.push(Node::Inst(inst));
            }
        }
        Ok(())
    }

    /// Sets the variables of rows, columns and terms to the first element of a tile.
    fn enter_tile(&mut self, block: &Block, pass: &Pass, [i, j]: [usize; 2]) {
        let [outer, row] = pass.rows[i];
        let firsts = [(block.outer, outer), (block.rows, row), (block.columns, pass.columns[j])];
        for (axis, first) in firsts {
            if let Some((v, _)) = axis {
                self.env[v.0 as usize] = Affine::constant(first);
            }
        }
        self.env[block.terms.0 as usize] = Affine::constant(0);
    }

    fn tile_address(&mut self, address: &Address) -> Selected<Addr> {
        if !address.gather.is_empty() || address.linear.uses(LANE) {
            return self.internal("a tile at subscripts from data");
        }
        Ok(self.element_address(address))
    }

    /// Bytes between the elements of an access along a variable; 0 where there is none.
    pub fn stride(&self, buffer: BufferId, index: &[Index], axis: Option<(Var, i64)>) -> Selected<i64> {
        let Some((v, _)) = axis else { return Ok(0) };
        let b = self.nest.buffer(buffer);
        let mut elements = 0;
        for (i, stride) in index.iter().zip(&b.strides) {
            match i.affine() {
                Some(a) => elements += a.coefficient(v) * stride,
                None => return self.internal("a tile at subscripts from data"),
            }
        }
        Ok(elements * b.dtype.bytes() as i64)
    }

    /// The innermost loop over terms: false where this is none of a tile instruction.
    pub fn tile_steps(&mut self, var: Var, end: i64, body: &[Stmt]) -> Selected<bool> {
        let Some(pass) = self.tile.clone() else { return Ok(false) };
        let instructions = self.target.instructions.clone();
        let ([inside], true) = (body, end == pass.steps || end >= ROWS) else { return Ok(false) };
        if block(&instructions, TensorInstruction::is_tile, inside).is_none() {
            return Ok(false);
        }
        let (steps, left) = (pass.steps, end % pass.steps);
        let outer = self.innermost.replace(var);
        let bounds = |n| vec![Bound::constant(n)];
        match end / steps {
            1 => {
                self.env[var.0 as usize] = Affine::constant(0);
                self.statements(body)?;
            }
            _ => self.real_loop(var, bounds(0), bounds(end - left), steps, false, body)?,
        }
        if left > 0 {
            self.env[var.0 as usize] = Affine::constant(end - left);
            self.tile = Some(Pass { now: left, ..pass.clone() });
            self.statements(body)?;
            self.tile = Some(pass);
        }
        self.innermost = outer;
        Ok(true)
    }

    /// The instructions of a block; false where this is none.
    pub fn tile_block(&mut self, stmt: &Stmt) -> Selected<bool> {
        let Some(pass) = self.tile.clone() else { return Ok(false) };
        let instructions = self.target.instructions.clone();
        let Some(block) = block(&instructions, TensorInstruction::is_tile, stmt) else { return Ok(false) };
        self.under(block.conditions, &mut |s| s.tile_products(&block, &pass))?;
        Ok(true)
    }

    /// The operands of a block, that in rows and that in columns.
    pub fn operands<'b>(&self, block: &Block<'b>) -> Selected<[&'b Access; 2]> {
        let moves = |access: &Access, axis: Option<(Var, i64)>| {
            axis.is_none_or(|(v, _)| access.affine_forms().any(|form| form.uses(v)))
        };
        let fits = &mut |n: usize, part: &Part| {
            let axis = if n == 1 { block.rows } else { block.columns };
            block.row.operands[n].is_part(part, self.nest.buffer(part.access.buffer).dtype) && moves(part.access, axis)
        };
        match block.row.unify(block.value, fits).map(<[&Access; 2]>::try_from) {
            Some(Ok(operands)) => Ok(operands),
            _ => self.internal(&format!("the terms of a sum are not those of `{}`", block.row.name)),
        }
    }

    fn tile_products(&mut self, block: &Block, pass: &Pass) -> Selected<()> {
        let [a, b] = self.operands(block)?;
        let strides = self.operand_strides(block, pass, [a, b])?;
        let [register, first] = pass.operands();
        let mut loaded = None;
        for i in 0..pass.rows.len() {
            self.enter_tile(block, pass, [i, 0]);
            self.tile_load(a, register, strides[0])?;
            let columns: Vec<usize> = match i % 2 {
                0 => (0..pass.columns.len()).collect(),
                _ => (0..pass.columns.len()).rev().collect(),
            };
            for j in columns {
                let other = if pass.keeps_columns() { Tile(first.0 + j as u8) } else { first };
                let loaded_before = if pass.keeps_columns() { i > 0 } else { loaded == Some(j) };
                if !loaded_before {
                    self.enter_tile(block, pass, [i, j]);
                    self.tile_load(b, other, strides[1])?;
                    loaded = Some(j);
                }
                let (acc, row) = (pass.sum(i, j), block.row.name);
                self.out.push(Node::Inst(Inst::TileTensor { acc, row, a: register, b: other }));
            }
        }
        Ok(())
    }

    fn tile_load(&mut self, access: &Access, tile: Tile, stride: i64) -> Selected<()> {
        if self.in_registers(access.buffer) {
            return Err(Stop::Retry(access.buffer, LocalMode::Memory { offset: 0 }));
        }
        if access.guard.iter().any(|g| self.facts.decide(&self.resolve(g)) != Some(true)) {
            return self.internal("an operand of a tile instruction under a guard");
        }
        let address = self.address(access.buffer, &access.index)?;
        let addr = self.tile_address(&address)?;
        self.out.push(Node::Inst(Inst::TileLoad { tile, addr, stride, streamed: false }));
        Ok(())
    }

    /// Bytes between the rows of both operands, whose elements must stand as the instruction reads them.
    fn operand_strides(&self, block: &Block, pass: &Pass, [a, b]: [&Access; 2]) -> Selected<[i64; 2]> {
        let steps = self.innermost.map(|v| (v, 0));
        let along = |access: &Access, axis| self.stride(access.buffer, &access.index, axis);
        let [of_a, of_b] = [a, b].map(|access| self.nest.buffer(access.buffer).dtype.bytes() as i64);
        let terms = Some((block.terms, 0));
        let group = block.row.terms_in_lane();
        let contiguous = pass.now == 1 || along(a, steps)? == group * of_a;
        let packed = block.columns.is_none() || along(b, block.columns)? == group * of_b;
        let apart = along(a, block.columns)? == 0 && along(b, block.rows)? == 0 && along(b, block.outer)? == 0;
        if !contiguous || !packed || !apart || along(a, terms)? != of_a || along(b, terms)? != of_b {
            return self.internal(&format!("the operands of `{}` do not stand as the row says", block.row.name));
        }
        Ok([along(a, block.rows)?, along(b, steps)?])
    }
}

/// Gives the tile registers of a function their shapes once where all are equal, and gives them up at its end.
pub fn finish(function: &mut Function) {
    let shapes = |inst: &Inst| if let Inst::TileShapes { shapes } = inst { Some(*shapes) } else { None };
    let configurations: Vec<Shapes> = function.insts.iter().filter_map(shapes).collect();
    let Some(first) = configurations.first() else { return };
    if configurations.iter().all(|s| s == first) {
        function.insts.retain(|inst| shapes(inst).is_none());
        function.insts.insert(0, Inst::TileShapes { shapes: *first });
    }
    function.insts.push(Inst::TileRelease);
}

#[cfg(test)]
mod tests {
    use super::{parts, row_parts};

    #[test]
    fn tiles_of_rows_overlap_where_no_sum_is_added_twice() {
        assert_eq!(row_parts(49, true, 2), [(13, vec![0, 13, 26, 36])]);
        assert_eq!(row_parts(33, false, 2), [(11, vec![0, 11, 22])]);
        // Sums that are loaded and stored in two passes would be added to twice.
        assert_eq!(row_parts(49, false, 2), parts(49, 16));
        assert_eq!(row_parts(49, false, 4), [(13, vec![0, 13, 26, 36])]);
    }
}
