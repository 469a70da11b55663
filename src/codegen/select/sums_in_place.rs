//! Sums of tiles in memory.
//!
//! Where a block of sums is copied to a buffer of its own, summed there and copied back, the sum works
//! on the block itself. Tile registers load and store the sums around all loops in which they stay, so that a copy saves nothing. Rows of local sums at a
//! distance at which they would meet in few sets of the first cache lie a line further apart.
//!
//! In and out: a nest. Invariant: its meaning, but for the contents of the buffer of the copy, which nothing else reads.

use crate::codegen::Target;
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::loopnest::{Accesses, BufferKind, LoopNest, Stmt, accesses};
use crate::codegen::select::point_loops::region;
use crate::expr::interval::constant_range;
use crate::expr::{Affine, BufferId, Expr, Index, Var};
use rustc_hash::FxHashMap;

/// Sums in place wherever tiles are summed in a copy that nothing else uses.
pub fn sum_in_place(nest: &mut LoopNest, target: &Target) {
    let rows: Vec<TensorInstruction> = target.instructions.iter().filter(|row| row.is_tile()).cloned().collect();
    if rows.is_empty() {
        return;
    }
    let mut copies = Accesses::default();
    for_each_sum(&nest.body, &mut |three| {
        if let Some((block, _)) = in_place(nest, &rows, three) {
            *copies.entry(block).or_default() += ACCESSES;
        }
    });
    let used = accesses(&nest.body);
    copies.retain(|block, count| used[block] == *count);
    let body = std::mem::take(&mut nest.body);
    nest.body = in_body(nest, &rows, &copies, body);
}

/// Rows at multiples of so many bytes meet in a quarter of the sets of a first cache of 64 sets, or in fewer.
const MEETING_BYTES: i64 = 1024;

/// Moves the rows of local sums apart that would meet in few sets of the first cache.
pub fn pad_rows(nest: &mut LoopNest, target: &Target) {
    let rows: Vec<TensorInstruction> = target.instructions.iter().filter(|row| row.is_tile()).cloned().collect();
    if rows.is_empty() {
        return;
    }
    let mut sums = FxHashMap::default();
    let mut note = |s: &Stmt| {
        if let Some((block, _)) = region(&rows, TensorInstruction::is_tile, s)
            && let Some(dimension) = block.rows.and_then(|(v, _)| block.index.iter().position(|i| uses(i, v)))
        {
            sums.insert(block.buffer, dimension);
        }
    };
    nest.body.iter().for_each(|s| s.visit(&mut note));
    for (buffer, dimension) in sums {
        let buffer = &mut nest.buffers[buffer.0 as usize];
        let (stride, bytes) = (buffer.strides[dimension], buffer.dtype.bytes() as i64);
        if buffer.kind == BufferKind::Local && stride * bytes % MEETING_BYTES == 0 {
            let apart = stride + target.machine.line_bytes as i64 / bytes;
            let outer = buffer.strides.iter_mut().filter(|s| **s >= stride);
            outer.for_each(|s| *s = *s / stride * apart);
        }
    }
}

fn uses(index: &Index, v: Var) -> bool {
    index.affine().is_some_and(|a| a.uses(v))
}

/// Accesses of a copy that is written, summed in and copied back.
const ACCESSES: usize = 3;

fn for_each_sum(body: &[Stmt], f: &mut dyn FnMut([&Stmt; 3])) {
    for stmt in body {
        for_each_sum(stmt.body(), f);
    }
    for three in body.windows(3) {
        f([&three[0], &three[1], &three[2]]);
    }
}

fn in_body(nest: &LoopNest, rows: &[TensorInstruction], copies: &Accesses, body: Vec<Stmt>) -> Vec<Stmt> {
    let mut out: Vec<Stmt> = vec![];
    for stmt in body {
        out.push(stmt.map_body(|body| in_body(nest, rows, copies, body)));
        if let [.., before, sum, after] = &out[..]
            && let Some((block, sum)) = in_place(nest, rows, [before, sum, after])
            && copies.contains_key(&block)
        {
            out.truncate(out.len() - 3);
            out.push(sum);
        }
    }
    out
}

/// A copy of a block of one buffer to all of another one.
struct Copy {
    from: BufferId,
    to: BufferId,
    /// The subscripts of the larger buffer over those of the block, variables 0 …, and variables from outside, whose numbers are
    /// moved up by the rank of the block.
    place: Vec<Affine>,
}

impl Copy {
    /// The copy that a statement makes, where its subscripts of the block, of `shape`, count through it; `back`: from the block.
    fn new(stmt: &Stmt, block: BufferId, shape: &[i64], back: bool) -> Option<Copy> {
        let (mut loops, mut at): (Vec<(Var, i64)>, &Stmt) = (vec![], stmt);
        let (buffer, index, access) = loop {
            match at {
                Stmt::Loop { var, lower, upper, step: 1, kind, body } if !kind.is_parallel() => {
                    let (Some((0, end)), [inside]) = (constant_range(lower, upper), &body[..]) else { return None };
                    loops.push((*var, end));
                    at = inside;
                }
                Stmt::Store { buffer, index, value: Expr::Load(access), reduce: None } if access.guard.is_empty() => {
                    break (*buffer, index, access);
                }
                _ => return None,
            }
        };
        let (from, to) = (access.buffer, buffer);
        let (inner, outer) = if back { (&access.index, index) } else { (index, &access.index) };
        if block != if back { from } else { to } || from == to || loops.len() != shape.len() {
            return None;
        }
        let mut dimensions = vec![];
        for (subscript, &extent) in inner.iter().zip(shape) {
            let [(v, 1)] = subscript.affine().filter(|a| a.constant == 0)?.terms[..] else { return None };
            if dimensions.contains(&v) || !loops.contains(&(v, extent)) {
                return None;
            }
            dimensions.push(v);
        }
        let rank = shape.len() as u32;
        let place = outer.iter().map(|subscript| {
            let dimension = |v: Var| match dimensions.iter().position(|d| *d == v) {
                Some(d) => Var(d as u32),
                None => Var(v.0 + rank),
            };
            Some(subscript.affine()?.substitute(|v| Affine::var(dimension(v))))
        });
        Some(Copy { from, to, place: place.collect::<Option<_>>()? })
    }

    /// The subscripts of the larger buffer for an element of the block.
    fn at(&self, element: &[Affine]) -> Vec<Index> {
        let rank = element.len() as u32;
        let value = |v: Var| element.get(v.0 as usize).cloned().unwrap_or_else(|| Affine::var(Var(v.0 - rank)));
        self.place.iter().map(|a| Index::Affine(a.substitute(value))).collect()
    }
}

/// The sum of tiles between a copy and the copy back, in place, and the buffer of the copy.
fn in_place(nest: &LoopNest, rows: &[TensorInstruction], [before, sum, after]: [&Stmt; 3]) -> Option<(BufferId, Stmt)> {
    let (found, _) = region(rows, TensorInstruction::is_tile, sum)?;
    let block = found.buffer;
    let shape = &nest.buffer(block).shape;
    let (copy, back) = (Copy::new(before, block, shape, false)?, Copy::new(after, block, shape, true)?);
    let inside = accesses(std::slice::from_ref(sum));
    let whole = copy.from == back.to && copy.place == back.place;
    if !whole || inside[&block] != 1 || inside.contains_key(&copy.from) {
        return None;
    }
    let source = nest.buffer(copy.from);
    let element: Option<Vec<Affine>> = found.index.iter().map(|i| i.affine().cloned()).collect();
    let place = copy.at(&element?);
    // a tile has its columns side by side
    let along = |v: Var| source.place(&place).is_some_and(|p| p.coefficient(v) == 1);
    if !found.columns.is_none_or(|(v, _)| along(v)) {
        return None;
    }
    let mut sum = sum.clone();
    sum.visit_mut(&mut |s| {
        if let Stmt::Store { buffer, index, .. } = s {
            (*buffer, *index) = (copy.from, place.clone());
        }
    });
    Some((block, sum))
}
