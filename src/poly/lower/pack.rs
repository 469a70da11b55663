//! Phases that write the packed copies of operands which are given at run time.
//!
//! Where neighbours in the copy are apart in the source, as the terms of a tensor instruction are, those of one group are put
//! together in a register and written as one word.

use super::loop_over;
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, Stmt, row_major};
use crate::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, Scalar, Var};
use crate::poly::lower::state::Lowering;
use crate::poly::packing::Pack;
use crate::runtime::{DType, Error, Result};

/// Fewest bytes of neighbours that make the order of the source worth it: shorter pieces are written one after the other.
const LEAST_RUN: usize = 32;
/// Iterations that are enough for threads.
const LEAST_STEPS: i64 = 8;
/// Bytes of a word.
const WORD: usize = 4;

impl Lowering<'_> {
    /// Loops that write a packed copy, converted to the type of its buffer: the outer dimensions in parallel, the innermost as vector.
    pub(super) fn pack_phase(&mut self, pack: &Pack, buffer: BufferId) -> Result<()> {
        let source = self.tensors[pack.source.0 as usize]
            .ok_or_else(|| Error::Internal("a temporary is packed before it exists".into()))?;
        let dtype = self.nest.buffer(buffer).dtype;
        let words = dtype == pack.dtype && self.is_of_words(pack);
        let rank = pack.shape.len() - usize::from(words);
        let vars: Vec<Var> = (0..rank).map(|d| self.new_var(&format!("p{d}"), (0, pack.shape[d] - 1))).collect();
        let element = |term: i64| {
            let replace = |v: Var| vars.get(v.0 as usize).map_or(Affine::constant(term), |&v| Affine::var(v));
            let read = pack.read().substitute(&mut |v| replace(v));
            let read = read.rewrite_loads(&mut |a| Expr::Load(Access { buffer: source, ..a }));
            if dtype == pack.dtype { read } else { Expr::cast(dtype, read) }
        };
        let (buffer, value) = match words {
            false => (buffer, element(0)),
            true => (self.as_words(buffer, rank), word(pack, element)),
        };
        let index = vars.iter().map(|&v| Index::Affine(Affine::var(v))).collect();
        let mut body = vec![Stmt::Store { buffer, index, value, reduce: None }];
        let order = self.order_of_copying(pack, rank);
        for (place, &d) in order.iter().enumerate().rev() {
            let kind = match place {
                0 if rank > 1 => LoopKind::Parallel,
                _ if place == rank - 1 => LoopKind::Vector,
                _ => LoopKind::Serial,
            };
            body = vec![loop_over(vars[d], pack.shape[d], kind, body)];
        }
        if rank == 1 {
            body = vec![self.once(body)];
        }
        self.nest.body.extend(body);
        Ok(())
    }

    /// The first `rank` dimensions of a copy, those of the outer loops first. Where the vector reads neighbours, the loops go through the
    /// source as it lies in memory: caches fetch long pieces ahead, and lines that are only written need not be waited for.
    fn order_of_copying(&self, pack: &Pack, rank: usize) -> Vec<usize> {
        let stride = |d: usize| self.source_stride(pack, d);
        let mut order: Vec<usize> = (0..rank).collect();
        let long = |d: &usize| pack.shape[*d] as usize * pack.dtype.bytes() >= LEAST_RUN;
        if let Some(vector) = rank.checked_sub(1).filter(|&d| stride(d) == 1).filter(long) {
            order[..vector].sort_by_key(|&d| -stride(d).abs());
            // the outermost loop is divided over threads
            let many = order[..vector].iter().position(|&d| pack.shape[d] >= LEAST_STEPS);
            order[..=many.unwrap_or(0)].rotate_right(1);
        }
        order
    }

    /// Elements of the source between neighbours along a dimension of a copy.
    fn source_stride(&self, pack: &Pack, dimension: usize) -> i64 {
        let strides = row_major(&self.scop.tensor(pack.source).shape);
        pack.index.iter().zip(&strides).map(|(a, s)| a.coefficient(Var(dimension as u32)) * s).sum()
    }

    /// Returns true if the last dimension of a copy fills words with elements that are apart in the source, where those
    /// along the dimension before it are neighbours.
    fn is_of_words(&self, pack: &Pack) -> bool {
        let [.., _, terms] = pack.shape[..] else { return false };
        let along = |back: usize| self.source_stride(pack, pack.shape.len() - back);
        let narrow = matches!(pack.dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::BF16 | DType::F16);
        narrow && terms as usize * pack.dtype.bytes() == WORD && along(1) > 1 && along(2) == 1
    }

    /// The first `rank` dimensions of a packed copy as a buffer of words, in the same memory.
    fn as_words(&mut self, buffer: BufferId, rank: usize) -> BufferId {
        let packed = self.nest.buffer(buffer);
        let name = format!("{}_words", packed.name);
        let words = Buffer::dense(name, DType::I32, &packed.shape[..rank], packed.kind);
        debug_assert!(matches!(words.kind, BufferKind::Argument { .. }));
        self.nest.buffers.push(words);
        BufferId(self.nest.buffers.len() as u32 - 1)
    }
}

/// The elements of a group as one word, the first in the lowest bits.
fn word(pack: &Pack, element: impl Fn(i64) -> Expr) -> Expr {
    let bits = 8 * pack.dtype.bytes() as i64;
    let constant = |v: i64| Expr::Const(Scalar { dtype: DType::I32, bits: v as u64 });
    let unsigned = if bits == 8 { DType::U8 } else { DType::U16 };
    let term = |n: i64| {
        let plain = if pack.dtype == unsigned { element(n) } else { Expr::bitcast(unsigned, element(n)) };
        let wide = Expr::cast(DType::I32, plain);
        if n == 0 { wide } else { Expr::binary(BinaryOp::ShiftLeft, wide, constant(n * bits)) }
    };
    let terms = *pack.shape.last().expect("a group");
    (1..terms).fold(term(0), |all, n| Expr::binary(BinaryOp::Or, all, term(n)))
}
