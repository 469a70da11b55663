//! Bounded dimensions of the results of graph operators.
//!
//! In: an operator and operands of which some have bounded dimensions. Out: the operator on operands whose elements beyond the
//! count are neutral where it would read them, and the bounded dimensions of its result. An operator without a rule here is
//! refused, so that the model has exact sizes.

use super::state::{Axis, is_fixed, sum};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::{Source, ValueId};
use crate::graph::op::{Op, ReduceOp, Window};
use crate::runtime::bounds::Form;
use crate::runtime::{DType, Error, Result, Tensor};

/// The refusal of an operator on a dimension that grows.
pub fn refused(reason: &str) -> Error {
    Error::Unsupported(format!("{reason} of a dimension that grows"))
}

/// A bounded dimension of a result, and for each operand what it holds beyond the count; `None` where the operand is stretched.
struct Joined {
    axis: usize,
    count: Form,
    zeros: Vec<Option<bool>>,
}

impl Importer<'_> {
    /// The bounded dimensions of a value.
    pub(in crate::graph::import) fn axes(&self, id: ValueId) -> Vec<Axis> {
        self.bounded.as_ref().and_then(|b| b.axes.get(&id)).cloned().unwrap_or_default()
    }

    /// The bounded dimension `axis` of a value.
    pub(super) fn bounded_axis(&self, id: ValueId, axis: usize) -> Option<Axis> {
        self.axes(id).into_iter().find(|a| a.axis == axis)
    }

    pub(in crate::graph::import) fn set_axes(&mut self, id: ValueId, axes: Vec<Axis>) {
        if let Some(bounded) = self.bounded.as_mut().filter(|_| !axes.is_empty()) {
            bounded.axes.insert(id, axes);
        }
    }

    /// A node for an operator with operands that have bounded dimensions.
    pub(in crate::graph::import) fn emit_bounded(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let mut inputs = inputs.to_vec();
        match &op {
            Op::Softmax { axis, .. } => {
                inputs[0] = self.masked(inputs[0], *axis, f64::NEG_INFINITY, 1)?;
            }
            Op::Reduce { op: ReduceOp::Mean, axes, keep }
                if axes.iter().any(|&axis| self.bounded_axis(inputs[0], axis).is_some()) =>
            {
                return Ok(vec![self.bounded_mean(inputs[0], axes, *keep)?]);
            }
            Op::Reduce { op, axes, .. } => {
                for &axis in axes {
                    if self.bounded_axis(inputs[0], axis).is_some() {
                        let (neutral, least) = neutral(*op, self.ty(inputs[0]).dtype)?;
                        inputs[0] = self.masked(inputs[0], axis, neutral, least)?;
                    }
                }
            }
            Op::MatMul { transpose_a, transpose_b } => {
                let [a, b] = [0, 1].map(|i| self.rank(inputs[i]));
                let inner = [a - 1 - usize::from(*transpose_a), b - 2 + usize::from(*transpose_b)];
                for (input, axis) in inputs.iter_mut().zip(inner) {
                    if !self.is_share(*input, axis) {
                        *input = self.masked(*input, axis, 0.0, 0)?;
                    }
                }
            }
            Op::Conv { .. } => {
                for bounded in self.axes(inputs[0]).into_iter().filter(|a| a.axis >= 2) {
                    inputs[0] = self.masked(inputs[0], bounded.axis, 0.0, 1)?;
                }
            }
            _ => {}
        }
        let axes = self.result_axes(&op, &inputs)?;
        let outputs = self.emit_exact(op, &inputs)?;
        outputs.iter().for_each(|&id| self.set_axes(id, axes.clone()));
        Ok(outputs)
    }

    fn result_axes(&self, op: &Op, inputs: &[ValueId]) -> Result<Vec<Axis>> {
        let x = inputs[0];
        let none_but_first = || match inputs[1..].iter().all(|&v| self.axes(v).is_empty()) {
            true => Ok(()),
            false => Err(refused("an operand")),
        };
        Ok(match op {
            _ if op.is_elementwise() => {
                let joined = self.stretched(inputs, 0)?;
                let zero = |j: &Joined| self.keeps_zeros(op, inputs, &j.zeros);
                joined.iter().map(|j| Axis { axis: j.axis, count: j.count, zero: zero(j) }).collect()
            }
            Op::Transpose { perm } => {
                let moved = |a: Axis| Some(Axis { axis: perm.iter().position(|&p| p == a.axis)?, ..a });
                sorted(self.axes(x).into_iter().filter_map(moved).collect())
            }
            Op::Reshape { shape } => self.reshaped(x, shape)?,
            Op::Expand { shape } => {
                let added = shape.len() - self.rank(x);
                self.axes(x).into_iter().map(|a| Axis { axis: a.axis + added, ..a }).collect()
            }
            Op::Slice { starts, ends, steps } => {
                let shape = self.shape(x);
                let whole = |a: &Axis| (starts[a.axis], ends[a.axis], steps[a.axis]) == (0, shape[a.axis], 1);
                if !self.axes(x).iter().all(whole) {
                    return Err(refused("a part"));
                }
                self.axes(x)
            }
            Op::Pad { before, after, .. } => {
                if self.axes(x).iter().any(|a| before[a.axis] != 0 || after[a.axis] != 0) {
                    return Err(refused("padding"));
                }
                self.axes(x)
            }
            Op::Concat { axis } => self.side_by_side(inputs, *axis)?,
            Op::Gather { axis } => self.gathered(x, inputs[1], *axis)?,
            Op::Lookup => self.gathered(x, inputs[1], 0)?,
            Op::Softmax { .. } => {
                none_but_first()?;
                self.axes(x).into_iter().map(|a| Axis { zero: false, ..a }).collect()
            }
            Op::LayerNorm { axis, .. } => {
                none_but_first()?;
                if self.axes(x).iter().any(|a| a.axis >= *axis) {
                    return Err(refused("the norm"));
                }
                self.axes(x).into_iter().map(|a| Axis { zero: false, ..a }).collect()
            }
            Op::Reduce { axes, keep, .. } => {
                let left = self.axes(x).into_iter().filter(|a| !axes.contains(&a.axis));
                let before = |a: usize| if *keep { 0 } else { axes.iter().filter(|&&r| r < a).count() };
                left.map(|a| Axis { axis: a.axis - before(a.axis), zero: false, ..a }).collect()
            }
            Op::MatMul { transpose_a, transpose_b } => self.multiplied(inputs, *transpose_a, *transpose_b)?,
            Op::Conv { window, .. } => {
                none_but_first()?;
                let fits = |a: &Axis| a.axis == 0 || a.axis >= 2 && keeps_extent(window, a.axis - 2);
                if !self.axes(x).iter().all(fits) {
                    return Err(refused("the convolution"));
                }
                self.axes(x).into_iter().map(|a| Axis { zero: false, ..a }).collect()
            }
            _ => return Err(refused(op.mnemonic())),
        })
    }

    /// Where operands broadcast: the bounded dimensions of the result, the last `without` dimensions left out.
    fn stretched(&self, inputs: &[ValueId], without: usize) -> Result<Vec<Joined>> {
        let rank = inputs.iter().map(|&v| self.rank(v)).max().unwrap_or(0);
        let mut joined = vec![];
        for axis in 0..rank.saturating_sub(without) {
            let of = |v: ValueId| (axis + self.rank(v)).checked_sub(rank);
            let axes: Vec<Option<Axis>> =
                inputs.iter().map(|&v| of(v).and_then(|axis| self.bounded_axis(v, axis))).collect();
            let Some(count) = axes.iter().flatten().map(|a| a.count).next() else { continue };
            let same = axes.iter().flatten().all(|a| a.count == count);
            let stretched = |&v: &ValueId| of(v).is_none_or(|axis| self.shape(v)[axis] == 1);
            let fits = inputs.iter().zip(&axes).all(|(v, a)| a.is_some() || stretched(v));
            if !same || !fits {
                return Err(refused("another size"));
            }
            joined.push(Joined { axis, count, zeros: axes.into_iter().map(|a| a.map(|a| a.zero)).collect() });
        }
        Ok(joined)
    }

    /// Returns true if an elementwise operator gives zeros where the operands hold these.
    fn keeps_zeros(&self, op: &Op, inputs: &[ValueId], zeros: &[Option<bool>]) -> bool {
        let zero = |i: usize| zeros.get(i) == Some(&Some(true));
        let number = |i: usize, divisor: bool| {
            let finite = |t: &Tensor| {
                t.dtype == DType::F32 && t.to_vec::<f32>().iter().all(|v| v.is_finite() && (!divisor || *v != 0.0))
            };
            inputs.get(i).and_then(|&v| self.graph.constant(v)).is_some_and(|t| t.len() == 1 && finite(t))
        };
        match op {
            Op::Unary(op) => {
                let odd = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sqrt, UnaryOp::Erf, UnaryOp::Tanh];
                zero(0) && odd.contains(op)
            }
            Op::Cast(_) | Op::Silu | Op::Gelu | Op::HardSwish | Op::PRelu => zero(0),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max) => zero(0) && zero(1),
            Op::Binary(BinaryOp::Mul) => zero(0) && (zero(1) || number(1, false)) || zero(1) && number(0, false),
            Op::Binary(BinaryOp::Div) => zero(0) && number(1, true),
            Op::Select => zero(1) && zero(2),
            _ => false,
        }
    }

    /// A bounded dimension stays where its extent stands behind the same number of elements. Of an empty tensor these numbers
    /// say nothing: there only dimensions of 1 may come and go.
    fn reshaped(&self, x: ValueId, shape: &[i64]) -> Result<Vec<Axis>> {
        let old = self.shape(x);
        let long = |shape: &[i64]| (0..shape.len()).filter(|&d| shape[d] != 1).collect::<Vec<usize>>();
        let (from, to) = (long(old), long(shape));
        let place = |a: Axis| {
            if old.contains(&0) {
                let kept = from.len() == to.len() && from.iter().zip(&to).all(|(&f, &t)| old[f] == shape[t]);
                let place = from.iter().position(|&d| d == a.axis).filter(|_| kept);
                return place.map(|i| Axis { axis: to[i], ..a }).ok_or_else(|| refused("a reshape"));
            }
            let before: i64 = old[..a.axis].iter().product();
            let fits = |&d: &usize| shape[d] == old[a.axis] && shape[..d].iter().product::<i64>() == before;
            (0..shape.len()).find(fits).map(|axis| Axis { axis, ..a }).ok_or_else(|| refused("a reshape"))
        };
        self.axes(x).into_iter().map(place).collect()
    }

    /// Parts along a dimension that is bounded in none of them.
    fn side_by_side(&self, parts: &[ValueId], axis: usize) -> Result<Vec<Axis>> {
        let mut axes = self.axes(parts[0]);
        for &part in parts {
            let other = self.axes(part);
            let same = other.len() == axes.len()
                && other.iter().zip(&axes).all(|(a, b)| (a.axis, a.count) == (b.axis, b.count));
            if !same || other.iter().any(|a| a.axis == axis) {
                return Err(refused("a concatenation"));
            }
            axes.iter_mut().zip(other).for_each(|(a, b)| a.zero &= b.zero);
        }
        Ok(axes)
    }

    fn gathered(&self, x: ValueId, indices: ValueId, axis: usize) -> Result<Vec<Axis>> {
        let (of_indices, rank) = (self.axes(indices), self.rank(indices));
        if of_indices.iter().any(|a| !a.zero) || self.bounded_axis(x, axis).is_some() {
            return Err(refused("a gather"));
        }
        let moved = |a: Axis| Axis { axis: if a.axis > axis { a.axis + rank - 1 } else { a.axis }, ..a };
        let chosen = of_indices.into_iter().map(|a| Axis { axis: a.axis + axis, zero: false, ..a });
        Ok(sorted(self.axes(x).into_iter().map(moved).chain(chosen).collect()))
    }

    /// Rows and columns of a product, and its batch.
    fn multiplied(&self, inputs: &[ValueId], transpose_a: bool, transpose_b: bool) -> Result<Vec<Axis>> {
        let (a, b) = (inputs[0], inputs[1]);
        let (of_a, of_b, rank) = (self.rank(a), self.rank(b), self.rank(a).max(self.rank(b)));
        let inner = [
            self.bounded_axis(a, of_a - 1 - usize::from(transpose_a)),
            self.bounded_axis(b, of_b - 2 + usize::from(transpose_b)),
        ];
        if inner[0].map(|i| i.count) != inner[1].map(|i| i.count) {
            return Err(refused("another size"));
        }
        let batch = self.stretched(inputs, 2)?.into_iter().map(|j| Axis { axis: j.axis, count: j.count, zero: false });
        let rows = self.bounded_axis(a, of_a - 2 + usize::from(transpose_a));
        let columns = self.bounded_axis(b, of_b - 1 - usize::from(transpose_b));
        let rows = rows.map(|r| Axis { axis: rank - 2, zero: false, ..r });
        let columns = columns.map(|c| Axis { axis: rank - 1, zero: false, ..c });
        Ok(batch.chain(rows).chain(columns).collect())
    }

    /// `x` with a neutral element beyond the count of a bounded dimension, of which there have to be `least`. The operand
    /// itself where the dimension is not bounded.
    pub(super) fn masked(&mut self, x: ValueId, axis: usize, neutral: f64, least: i64) -> Result<ValueId> {
        let (Some(bounds), Some(bounded)) = (&self.bounded, self.bounded_axis(x, axis)) else { return Ok(x) };
        bounds.require(bounded.count, least)?;
        if bounded.zero && neutral == 0.0 {
            return Ok(x);
        }
        let mask = self.mask(bounded.count)?;
        let mut shape = vec![1; self.rank(x) - axis];
        shape[0] = self.shape(x)[axis];
        let mask = self.reshape_to(mask, shape)?;
        let neutral_value = self.scalar_like(x, neutral)?;
        let masked = self.emit_exact(Op::Select, &[mask, x, neutral_value])?[0];
        let axes = self.axes(x).into_iter();
        // zeros beyond another count may be neutral elements now
        let zero = |a: &Axis| neutral == 0.0 && (a.zero || a.axis == axis);
        let axes = axes.map(|a| Axis { zero: zero(&a), ..a }).collect();
        self.set_axes(masked, axes);
        Ok(masked)
    }

    /// True for places below a count, for all places of the capacity.
    pub(super) fn mask(&mut self, count: Form) -> Result<ValueId> {
        if let Some(made) = self.made(count, true) {
            return Ok(made);
        }
        let capacity = self.bounded.as_ref().map_or(0, |b| b.capacity);
        let (places, count_value) = (self.counting(capacity, 0, 1)?, self.form_value(count)?);
        let mask = self.compare(CompareOp::Lt, places, count_value)?;
        self.keep(count, true, mask);
        Ok(mask)
    }

    /// Returns true for a softmax along a dimension. Beyond the count it is zero, and not-a-number where all that counts in the
    /// row is as well: a sum of products does not need to know which.
    fn is_share(&self, x: ValueId, axis: usize) -> bool {
        let Source::Node(n, _) = self.graph.value(x).source else { return false };
        let node = &self.graph.nodes[n as usize];
        match node.op {
            Op::Softmax { axis: along, log: false } => along == axis,
            Op::Cast(to) => to.is_float() && self.is_share(node.inputs[0], axis),
            _ => false,
        }
    }

    fn made(&self, form: Form, mask: bool) -> Option<ValueId> {
        self.bounded.as_ref()?.made.borrow().get(&(form, mask)).copied()
    }

    fn keep(&self, form: Form, mask: bool, value: ValueId) {
        if let Some(bounded) = &self.bounded {
            bounded.made.borrow_mut().insert((form, mask), value);
        }
    }

    /// A scalar i64 of a form.
    pub(super) fn form_value(&mut self, form: Form) -> Result<ValueId> {
        if let Some(made) = self.made(form, false) {
            return Ok(made);
        }
        let count = match &self.bounded {
            Some(bounded) if !is_fixed(form) => bounded.count,
            _ => return Ok(self.constant(Tensor::new(&[], &[form.offset]))),
        };
        let mut value = count;
        if form.factor != 1 {
            let factor = self.constant(Tensor::new(&[], &[form.factor]));
            value = self.mul(value, factor)?;
        }
        if form.offset != 0 {
            let offset = self.constant(Tensor::new(&[], &[form.offset]));
            value = self.add(value, offset)?;
        }
        self.keep(form, false, value);
        Ok(value)
    }

    /// The mean over dimensions of which some are bounded: a sum over what counts, divided by its number.
    fn bounded_mean(&mut self, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
        let dtype = self.ty(x).dtype;
        if !dtype.is_float() {
            return Err(refused("a mean of integers"));
        }
        let mut number = self.scalar_like(x, 1.0)?;
        for &axis in axes {
            let size = match self.bounded_axis(x, axis) {
                Some(bounded) => {
                    let bounds = self.bounded.as_ref().ok_or_else(|| refused("a mean"))?;
                    bounds.require(bounded.count, 1)?;
                    let count = self.form_value(bounded.count)?;
                    self.cast_to(count, dtype)?
                }
                None => self.scalar_like(x, self.shape(x)[axis] as f64)?,
            };
            number = self.mul(number, size)?;
        }
        let total = self.emit(Op::Reduce { op: ReduceOp::Sum, axes: axes.to_vec(), keep }, &[x])?;
        self.div(total, number)
    }

    /// A new value with the elements of `x`, of which dimensions are bounded.
    pub(super) fn with_axes(&mut self, x: ValueId, axes: Vec<Axis>) -> Result<ValueId> {
        let fresh = match self.graph.constant(x).cloned() {
            Some(tensor) => self.constant(Tensor::clone(&tensor)),
            None => self.emit_exact(Op::Reshape { shape: self.shape(x).to_vec() }, &[x])?[0],
        };
        self.set_axes(fresh, sorted(axes));
        Ok(fresh)
    }

    /// The extents of a value.
    pub(super) fn extents(&self, id: ValueId) -> Vec<Form> {
        let mut extents: Vec<Form> = self.shape(id).iter().map(|&d| super::state::fixed(d)).collect();
        self.axes(id).iter().for_each(|a| extents[a.axis] = a.count);
        extents
    }

    /// Decides whether `a ≥ b`.
    pub(super) fn at_least(&self, a: Form, b: Form) -> Result<bool> {
        let difference = sum(a, b, -1)?;
        match &self.bounded {
            Some(bounded) => bounded.not_negative(difference),
            None => Ok(difference.offset >= 0),
        }
    }
}

/// Returns true if a window has as many places along a dimension as the dimension has elements, however many these are.
fn keeps_extent(window: &Window, d: usize) -> bool {
    let reach = (window.kernel[d] - 1) * window.dilation[d];
    window.stride[d] == 1 && window.pad_before[d] + window.pad_after[d] == reach
}

fn sorted(mut axes: Vec<Axis>) -> Vec<Axis> {
    axes.sort_by_key(|a| a.axis);
    axes
}

/// The element that a reduction leaves out, and the least number of elements that it is asked for.
fn neutral(op: ReduceOp, dtype: DType) -> Result<(f64, i64)> {
    let (least, most) = match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => (f64::NEG_INFINITY, f64::INFINITY),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
        _ => return Err(refused("a reduction")),
    };
    Ok(match op {
        ReduceOp::Sum | ReduceOp::SumSquare | ReduceOp::L1 | ReduceOp::L2 => (0.0, 0),
        ReduceOp::LogSum => (0.0, 1),
        ReduceOp::LogSumExp => (least, 1),
        ReduceOp::Max => (least, 1),
        ReduceOp::Min => (most, 1),
        ReduceOp::Prod => (1.0, 0),
        ReduceOp::Mean => return Err(refused("a mean")),
    })
}
