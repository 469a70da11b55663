//! Short names for the graph operators that converters build expressions of.
//!
//! Operands broadcast as in NumPy; a scalar has the element type of the other operand.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::runtime::{DType, Error, Result, Tensor};

impl Importer<'_> {
    pub(super) fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryOp::Add, a, b)
    }

    pub(super) fn sub(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryOp::Sub, a, b)
    }

    pub(super) fn mul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryOp::Mul, a, b)
    }

    pub(super) fn div(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryOp::Div, a, b)
    }

    /// `x + number`.
    pub(super) fn plus(&mut self, x: ValueId, number: f64) -> Result<ValueId> {
        let number = self.scalar_like(x, number)?;
        self.add(x, number)
    }

    /// `x · factor`; the operand itself where the factor is 1.
    pub(super) fn times(&mut self, x: ValueId, factor: f64) -> Result<ValueId> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.scalar_like(x, factor)?;
        self.mul(x, factor)
    }

    /// `min(max(x, low), high)`.
    pub(super) fn clamp(&mut self, x: ValueId, low: f64, high: f64) -> Result<ValueId> {
        let low = self.scalar_like(x, low)?;
        let high = self.scalar_like(x, high)?;
        let above = self.binary(BinaryOp::Max, x, low)?;
        self.binary(BinaryOp::Min, above, high)
    }

    pub(super) fn neg(&mut self, x: ValueId) -> Result<ValueId> {
        self.unary(UnaryOp::Neg, x)
    }

    /// A reduction that keeps the reduced dimensions with extent 1.
    pub(super) fn reduce_kept(&mut self, op: ReduceOp, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.emit(Op::Reduce { op, axes: axes.to_vec(), keep: true }, &[x])
    }

    /// A sum that drops the reduced dimensions.
    pub(super) fn sum_over(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.emit(Op::Reduce { op: ReduceOp::Sum, axes: axes.to_vec(), keep: false }, &[x])
    }

    /// Dimension `i` of the result is dimension `perm[i]`; the operand itself where nothing moves.
    pub(super) fn permuted(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        self.emit(Op::Transpose { perm: perm.to_vec() }, &[x])
    }

    pub(super) fn matmul(&mut self, a: ValueId, b: ValueId, transpose_b: bool) -> Result<ValueId> {
        self.wrapped(Op::MatMul { transpose_a: false, transpose_b }, &[a, b])
    }

    pub(super) fn joined(&mut self, axis: usize, parts: &[ValueId]) -> Result<ValueId> {
        let filled: Vec<ValueId> = parts.iter().copied().filter(|&p| self.shape(p).get(axis) != Some(&0)).collect();
        match (&filled[..], parts) {
            ([], [first, ..]) => Ok(*first),
            ([one], _) => Ok(*one),
            _ => self.emit(Op::Concat { axis }, &filled),
        }
    }

    /// Broadcast to `shape`; the operand itself where it has that shape.
    pub(super) fn expanded(&mut self, x: ValueId, shape: &[i64]) -> Result<ValueId> {
        if self.shape(x) == shape {
            return Ok(x);
        }
        self.emit(Op::Expand { shape: shape.to_vec() }, &[x])
    }

    /// Elements `start..end` of one axis.
    pub(super) fn slice(&mut self, x: ValueId, axis: usize, start: i64, end: i64) -> Result<ValueId> {
        self.strided_slice(x, axis, start, end, 1)
    }

    /// Elements `start`, `start + step`, … before `end` of one axis, counted from the front.
    pub(super) fn strided_slice(
        &mut self,
        x: ValueId,
        axis: usize,
        start: i64,
        end: i64,
        step: i64,
    ) -> Result<ValueId> {
        let extent = self.shape(x)[axis];
        if (start, end, step) == (0, extent, 1) {
            return Ok(x);
        }
        let mut ends = self.shape(x).to_vec();
        let (mut starts, mut steps) = (vec![0; ends.len()], vec![1; ends.len()]);
        (starts[axis], ends[axis], steps[axis]) = (start, end, step);
        self.emit(Op::Slice { starts, ends, steps }, &[x])
    }

    /// A new dimension of extent 1.
    pub(super) fn unsqueezed(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mut shape = self.shape(x).to_vec();
        shape.insert(axis, 1);
        self.reshape_to(x, shape)
    }

    /// A constant tensor of the element type of `like`; it counts against the limit on computed constants.
    pub(super) fn numbers(&mut self, like: ValueId, shape: &[i64], values: &[f64]) -> Result<ValueId> {
        self.claim(shape, DType::F64)?;
        let wide = self.constant(Tensor::new(shape, values));
        self.cast_to(wide, self.ty(like).dtype)
    }

    /// 0, 1, … along dimension `axis` of `rank`, as i64.
    pub(super) fn counting(&mut self, count: i64, axis: usize, rank: usize) -> Result<ValueId> {
        self.claim(&[count], DType::I64)?;
        let mut shape = vec![1; rank];
        shape[axis] = count;
        Ok(self.constant(Tensor::new(&shape, &(0..count).collect::<Vec<i64>>())))
    }

    /// Integers as `i64`, each of which has to lie in `0..=most`. Those that are known at run time alone are looked up in a
    /// table of these numbers, since the subscripts of a lookup are checked before its kernel runs.
    ///
    /// # Errors
    /// `Invalid` where a known one lies outside; `Limit` where the table exceeds the budget.
    pub(super) fn up_to(&mut self, value: ValueId, most: i64, what: &str) -> Result<ValueId> {
        if self.graph.constant(value).is_none() {
            let table = self.counting(most + 1, 0, 1)?;
            return self.emit(Op::Lookup, &[table, value]);
        }
        if let Some(wrong) = self.integers(value, what)?.iter().find(|v| !(0..=most).contains(*v)) {
            return Err(Error::Invalid(format!("its {what} have {wrong}, which is outside of 0..={most}")));
        }
        self.cast_to(value, DType::I64)
    }

    /// A constant of zeros.
    ///
    /// # Errors
    /// `Limit` where it exceeds the budget.
    pub(super) fn zeros(&mut self, dtype: DType, shape: &[i64]) -> Result<ValueId> {
        self.claim(shape, dtype)?;
        Ok(self.constant(Tensor::zeros(dtype, shape)))
    }

    /// The value of an operand of one element that must be known, as f64.
    pub(super) fn known_number(&self, id: ValueId, what: &str) -> Result<f64> {
        let first = if self.ty(id).dtype.is_float() {
            self.doubles(id, what)?.first().copied()
        } else {
            self.integers(id, what)?.first().map(|v| *v as f64)
        };
        first.ok_or_else(|| Error::Invalid(format!("its {what} is empty")))
    }

    /// The value of an operand of one element that must be known, as an integer.
    pub(super) fn known_integer(&self, id: ValueId, what: &str) -> Result<i64> {
        self.integers(id, what)?.first().copied().ok_or_else(|| Error::Invalid(format!("its {what} is empty")))
    }
}

/// The product of extents.
pub(super) fn count(shape: &[i64]) -> i64 {
    shape.iter().product()
}
