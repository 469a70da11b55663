//! Packing: copies of operands in the order in which the loops read them.
//!
//! In: an access of a statement and the loops around it. Out: a [`Pack`], the packed tensor as a map from its dimensions
//! to subscripts of the source, zero outside of the source. A constant is packed at compile time; anything else by a phase
//! of its own before the kernel. The last dimension is the vector, padded to whole tiles, so that the kernel may read
//! full vectors everywhere (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).

use crate::codegen::loopnest::row_major;
use crate::expr::interval::ceil_div;
use crate::expr::{Access, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::poly::scop::Scop;
use crate::poly::statement::{Panel, StatementId};
use crate::runtime::{DType, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

/// A packed copy of tensor `source`: element `p` is `source[index(p)]` where every guard is ≥ 0 and zero elsewhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Pack {
    pub source: BufferId,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// Subscripts of the source over the packed dimensions, [`Var`] 0 …
    pub index: Vec<Affine>,
    pub guard: Vec<Affine>,
}

/// The part of an iterator that is a dimension of the packed tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum PackedDim {
    Whole,
    /// ⌊i / T⌋.
    Tile(i64),
    /// i mod T.
    Point(i64),
    /// ⌊(i mod T) / P⌋, between ⌊i / T⌋ and i mod P; P divides T.
    Middle(i64, i64),
}

/// One access of one statement that is read from a packed copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Packing {
    pub statement: StatementId,
    /// The read that is replaced, over the iterators of the statement.
    pub access: Access,
    /// Dimensions of the packed tensor, outermost first.
    pub dims: Vec<(Var, PackedDim)>,
}

impl Packing {
    /// The packed tensor. `Internal` when an iterator of the access is in no dimension or the access is a gather.
    pub fn pack(&self, scop: &Scop) -> Result<Pack> {
        let statement = scop.statement(self.statement);
        let source = scop.tensor(self.access.buffer);
        let extent = |v: Var| statement.extent(v);
        let mut shape = vec![];
        let mut guard = vec![];
        let mut value = vec![Affine::constant(0); statement.iterators.len()];
        for (p, &(iterator, part)) in self.dims.iter().enumerate() {
            let (size, scale) = match part {
                PackedDim::Whole => (extent(iterator), 1),
                PackedDim::Tile(t) => (ceil_div(extent(iterator), t), t),
                PackedDim::Point(t) => (t, 1),
                PackedDim::Middle(t, p) => (t / p, p),
            };
            shape.push(size);
            let v = &mut value[iterator.0 as usize];
            *v = std::mem::take(v).plus(Var(p as u32), scale);
        }
        let range = |p: Var| (0, shape[p.0 as usize] - 1);
        let mut require = |a: Affine| {
            if a.bounds(range).0 < 0 && !guard.contains(&a) {
                guard.push(a);
            }
        };
        for &(iterator, part) in &self.dims {
            if let PackedDim::Point(_) = part {
                require(value[iterator.0 as usize].scale(-1).offset(extent(iterator) - 1));
            }
        }
        let mut index = vec![];
        for (d, subscript) in self.access.index.iter().enumerate() {
            let Index::Affine(a) = subscript else {
                return Err(Error::Internal(format!("packing a gather of {}", source.name)));
            };
            if let Some((v, _)) = a.terms.iter().find(|(v, _)| !self.dims.iter().any(|d| d.0 == *v)) {
                return Err(Error::Internal(format!("packing {} leaves out an iterator {}", source.name, v.0)));
            }
            let a = a.compose(&value);
            require(a.clone());
            require(a.scale(-1).offset(source.shape[d] - 1));
            index.push(a);
        }
        for g in &self.access.guard {
            require(g.compose(&value));
        }
        Ok(Pack { source: self.access.buffer, dtype: source.dtype, shape, index, guard })
    }

    /// Subscripts of the packed tensor for values of the statement's iterators, which are affine in loop variables that
    /// lie in the closed intervals `range`. `Schedule` when a value does not split at its tile.
    pub fn subscripts(&self, value: &[Affine], range: &impl Fn(Var) -> (i64, i64)) -> Result<Vec<Affine>> {
        let split_of = |whole: &Affine, t: i64| {
            let mut tile = Affine::constant(whole.constant.div_euclid(t));
            let mut point = Affine::constant(whole.constant.rem_euclid(t));
            for &(x, c) in &whole.terms {
                if c % t == 0 {
                    tile = tile.plus(x, c / t);
                } else {
                    point = point.plus(x, c);
                }
            }
            let (lo, hi) = point.bounds(range);
            if lo < 0 || hi >= t {
                return Err(Error::refused(format!("a packed operand is read across tiles of {t}: {lo}..={hi}")));
            }
            Ok((tile, point))
        };
        let split = |v: Var, t: i64| split_of(&value[v.0 as usize], t);
        self.dims
            .iter()
            .map(|&(v, part)| match part {
                PackedDim::Whole => Ok(value[v.0 as usize].clone()),
                PackedDim::Tile(t) => Ok(split(v, t)?.0),
                PackedDim::Point(t) => Ok(split(v, t)?.1),
                PackedDim::Middle(t, p) => Ok(split_of(&split(v, t)?.1, p)?.0),
            })
            .collect()
    }
}

impl Pack {
    /// The form with as few dimensions as possible for the bytes of this one, from a source without a number: tiles of an iterator
    /// that follow each other are one dimension. Equal forms are equal memory.
    pub fn canonical(&self) -> Pack {
        let mut pack = Pack { source: BufferId(0), ..self.clone() };
        for p in (1..pack.shape.len()).rev() {
            let (outer, inner, size) = (Var(p as u32 - 1), Var(p as u32), pack.shape[p]);
            let all = || pack.index.iter().chain(&pack.guard);
            if !all().all(|a| a.coefficient(outer) == a.coefficient(inner) * size) {
                continue;
            }
            let merged = |a: &Affine| {
                let inner_terms = a.terms.iter().filter(|(v, _)| *v != outer);
                let terms = inner_terms.map(|&(v, c)| (if v >= inner { Var(v.0 - 1) } else { v }, c));
                terms.fold(Affine::constant(a.constant), |sum, (v, c)| sum.plus(v, c))
            };
            (pack.index, pack.guard) =
                (pack.index.iter().map(merged).collect(), pack.guard.iter().map(merged).collect());
            pack.shape[p - 1] *= size;
            pack.shape.remove(p);
        }
        pack
    }

    /// The panels; `None` where the vector runs along no dimension alone.
    pub fn panel(&self) -> Option<Panel> {
        let last = Var(self.shape.len().checked_sub(1)? as u32);
        let dimension = self.index.iter().position(|a| a.terms.contains(&(last, 1)))?;
        Some(Panel { dimension, points: *self.shape.last()? })
    }

    /// Bytes of the packed tensor.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.dtype.bytes()
    }

    /// The read of one element as an expression over the packed dimensions; zero outside the guard.
    pub fn read(&self) -> Expr {
        Expr::Load(Access {
            buffer: self.source,
            index: self.index.iter().cloned().map(Index::Affine).collect(),
            guard: self.guard.clone(),
            otherwise: (!self.guard.is_empty()).then_some(crate::expr::Scalar { dtype: self.dtype, bits: 0 }),
        })
    }

    /// Packs a constant. The source's shape is the one that the subscripts were made for.
    pub fn apply(&self, source: &Tensor) -> Tensor {
        let mut out = Tensor::zeros(self.dtype, &self.shape);
        self.write(&source.shape, &source.data, &mut out.data);
        out
    }

    /// Packs the bytes of a constant into zeros. Its shape is the one that the subscripts were made for.
    pub fn write(&self, shape: &[i64], source: &[u8], out: &mut [u8]) {
        if out.is_empty() || source.is_empty() {
            return;
        }
        match self.dtype.bytes() {
            1 => self.copy::<1>(shape, source, out),
            2 => self.copy::<2>(shape, source, out),
            4 => self.copy::<4>(shape, source, out),
            _ => self.copy::<8>(shape, source, out),
        }
    }

    fn copy<const B: usize>(&self, shape: &[i64], source: &[u8], out: &mut [u8]) {
        let strides = row_major(shape);
        let mut offset = Affine::constant(0);
        for (a, s) in self.index.iter().zip(&strides) {
            offset = offset.add_scaled(a, *s);
        }
        let rank = self.shape.len();
        // The two innermost dimensions are loops of their own; the others are counted up like an odometer.
        let extent = |d: usize| if d < rank { self.shape[d] } else { 1 };
        let (rows, columns) = if rank >= 2 { (extent(rank - 2), extent(rank - 1)) } else { (1, extent(0)) };
        let (row, column) = (Var(rank.wrapping_sub(2) as u32), Var(rank.saturating_sub(1) as u32));
        let (row_step, column_step) = (if rank >= 2 { offset.coefficient(row) } else { 0 }, offset.coefficient(column));
        let outer = &self.shape[..rank.saturating_sub(2)];
        let mut counter = vec![0i64; outer.len()];
        let inner = (rows * columns) as usize * B;
        let source_elements: &[[u8; B]] = source.as_chunks::<B>().0;
        for block in out.chunks_exact_mut(inner) {
            let target: &mut [[u8; B]] = block.as_chunks_mut::<B>().0;
            let outside = |v: Var| counter.get(v.0 as usize).copied().unwrap_or(0);
            let start = offset.evaluate(outside);
            let guards: Vec<(i64, i64, i64)> = self
                .guard
                .iter()
                .map(|g| (g.evaluate(outside), if rank >= 2 { g.coefficient(row) } else { 0 }, g.coefficient(column)))
                .filter(|&(c, a, b)| c + (a * (rows - 1)).min(0) + (b * (columns - 1)).min(0) < 0)
                .collect();
            let steps = [start, row_step, column_step];
            if guards.is_empty() && column_step == 1 {
                for (r, line) in (0..).zip(target.chunks_exact_mut(columns as usize)) {
                    let base = (start + r * row_step) as usize;
                    line.copy_from_slice(&source_elements[base..base + line.len()]);
                }
            } else {
                copy_across(target, source_elements, rows, columns, steps, &guards);
            }
            for (d, n) in counter.iter_mut().zip(outer).rev() {
                *d += 1;
                if *d < *n {
                    break;
                }
                *d = 0;
            }
        }
    }
}

/// Copies rows and columns from `start + r·row_step + c·column_step`, where all guards `g + a·r + b·c` hold. Both are blocked,
/// so that lines of a source that is read across are used again before they are evicted.
fn copy_across<T: Copy>(
    target: &mut [T],
    source: &[T],
    rows: i64,
    columns: i64,
    [start, row_step, column_step]: [i64; 3],
    guards: &[(i64, i64, i64)],
) {
    for r0 in (0..rows).step_by(16) {
        for c0 in (0..columns).step_by(64) {
            for r in r0..(r0 + 16).min(rows) {
                let base = start + r * row_step;
                let line = &mut target[(r * columns) as usize..((r + 1) * columns) as usize];
                for c in c0..(c0 + 64).min(columns) {
                    if guards.iter().all(|&(g, a, b)| g + a * r + b * c >= 0) {
                        line[c as usize] = source[(base + c * column_step) as usize];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::statement::{Iterator, Role, Statement, TensorDecl};

    fn convolution_weights() -> (Scop, Packing) {
        let iterator = |name: &str, extent| Iterator::new(name, extent);
        let [f, c, r] = [Var(0), Var(1), Var(2)];
        let access = Access {
            buffer: BufferId(0),
            index: [f, c, r].map(|v| Index::Affine(Affine::var(v))).to_vec(),
            guard: vec![],
            otherwise: None,
        };
        let tensor = TensorDecl::new("W", DType::F32, [5, 3, 2], Role::Constant);
        let statement = Statement {
            name: "S".into(),
            iterators: vec![iterator("f", 5), iterator("c", 3), iterator("r", 2)],
            domain: vec![],
            target: BufferId(1),
            write: vec![],
            computed: vec![],
            reduce: None,
            body: Expr::Load(access.clone()),
        };
        let scop = Scop::in_sequence("t", vec![tensor], vec![statement]);
        let dims =
            vec![(f, PackedDim::Tile(4)), (r, PackedDim::Whole), (c, PackedDim::Whole), (f, PackedDim::Point(4))];
        (scop, Packing { statement: StatementId(0), access, dims })
    }

    /// Tiles of an iterator that its extent divides are the same memory, whatever their size.
    #[test]
    fn packs_are_equal_where_their_bytes_are() {
        let (f, c) = (Var(0), Var(1));
        let (mut scop, mut packing) = convolution_weights();
        scop.tensors[0].shape = vec![5, 12, 2];
        scop.statements[0].iterators[1].extent = 12;
        let source = Tensor::seeded(DType::F32, &[5, 12, 2], 1, 0, 2);
        let mut tiled = |tile: i64, lanes: i64| {
            let c_parts = [(c, PackedDim::Tile(tile)), (Var(2), PackedDim::Whole), (c, PackedDim::Point(tile))];
            let inner = if tile == 12 { vec![c_parts[1], (c, PackedDim::Whole)] } else { c_parts.to_vec() };
            packing.dims = [vec![(f, PackedDim::Tile(lanes))], inner, vec![(f, PackedDim::Point(lanes))]].concat();
            packing.pack(&scop).unwrap()
        };
        let together = |mut pack: Pack| {
            let bytes = pack.apply(&source).data;
            let same = pack.canonical();
            assert!(same.apply(&source).data == bytes && same.bytes() == pack.bytes());
            pack.shape.clear();
            (same, bytes)
        };
        let [whole, thirds, wide] = [(12, 4), (4, 4), (12, 8)].map(|(tile, lanes)| together(tiled(tile, lanes)));
        assert!(whole.0 != thirds.0 && whole.1 != thirds.1, "the rows of the filter stand between the tiles");
        assert!(whole.0 != wide.0 && whole.1 != wide.1);
        let contiguous = |tile: i64| {
            let parts = [(f, PackedDim::Tile(4)), (c, PackedDim::Tile(tile)), (c, PackedDim::Point(tile))];
            packing.dims = [&parts[..], &[(Var(2), PackedDim::Whole), (f, PackedDim::Point(4))]].concat();
            together(packing.pack(&scop).unwrap())
        };
        let [halves, quarters] = [6, 3].map(contiguous);
        assert_eq!(halves.0.shape, [2, 12, 2, 4]);
        assert_eq!(halves, quarters);
        assert_eq!(halves.0.panel(), Some(Panel { dimension: 0, points: 4 }));
    }

    #[test]
    fn weights_come_out_in_loop_order_and_zero_padded() {
        let (scop, packing) = convolution_weights();
        let pack = packing.pack(&scop).unwrap();
        assert_eq!(pack.shape, [2, 2, 3, 4]);
        let source: Vec<f32> = (1..=30).map(|x| x as f32).collect();
        let packed = pack.apply(&Tensor::new(&[5, 3, 2], &source)).to_vec::<f32>();
        for (p, value) in packed.iter().enumerate() {
            let (fo, r, c, fi) = (p / 24, p / 12 % 2, p / 4 % 3, p % 4);
            let f = fo * 4 + fi;
            assert_eq!(*value, if f < 5 { source[f * 6 + c * 2 + r] } else { 0.0 }, "{p}");
        }
    }

    #[test]
    fn subscripts_split_at_the_tile() {
        let (_, packing) = convolution_weights();
        let (fo, fi, k) = (Var(0), Var(1), Var(2));
        let f = Affine::var(fi).plus(fo, 4).offset(8);
        let range = |v: Var| if v == fi { (0, 3) } else { (0, 9) };
        let value = [f, Affine::var(k), Affine::constant(0)];
        let subscripts = packing.subscripts(&value, &range).unwrap();
        assert_eq!(subscripts[0], Affine::var(fo).offset(2));
        assert_eq!(subscripts[3], Affine::var(fi));
        assert!(packing.subscripts(&[Affine::var(k), Affine::var(k), Affine::var(k)], &range).is_err());
    }
}
