//! ONNX operators on dimensions that grow.
//!
//! In: a node of which an operand has a bounded dimension or elements that depend on the count. Out: its results. Conversions
//! that make constants of extents must not see a bounded dimension: there is a list of those that do not, and functions for
//! operators whose conversion would be another one. Every other operator is refused.

use super::operators::refused;
use super::state::{Axis, FAR, fixed, is_fixed, product, sum};
use super::{apart, movement, scatter};
use crate::expr::{BinaryOp, CompareOp};
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::import::table::Converter;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::bounds::Form;
use crate::runtime::{DType, Error, Result, Tensor};

/// Operators whose conversion makes no constant of an extent, sorted: what it emits follows bounded dimensions by itself.
#[rustfmt::skip]
const AS_THEY_ARE: &[&str] = &[
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Conv", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Flatten",
    "Floor", "Gelu", "Gemm", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul", "Max", "Mean", "Min", "Mish", "Mod",
    "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "RMSNormalization", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "SimplifiedLayerNormalization", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt",
    "Sub", "Sum", "SwiGLU", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Transpose", "Unsqueeze", "Where", "Xor",
];

/// The results of a node. Where elements of an operand depend on the count, but none of its extents, any conversion will do: it
/// takes them for data, and an operand that must be known refuses.
pub(in crate::graph::import) fn convert(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let operands: Vec<ValueId> = n.operands().into_iter().flatten().collect();
    let bounded = operands.iter().any(|&v| !g.axes(v).is_empty());
    let symbolic = operands.iter().any(|&v| g.is_symbolic(v));
    if !bounded && !symbolic {
        return convert(g, n);
    }
    if !n.proto.domain.is_empty() {
        return if bounded { Err(refused(&n.proto.op_type)) } else { convert(g, n) };
    }
    if !bounded && let Some(results) = g.symbolic(n, convert)? {
        n.present();
        return Ok(results);
    }
    match n.proto.op_type.as_str() {
        "Shape" => shape(g, n),
        "Size" => size(g, n),
        "Reshape" => movement::reshape(g, n),
        "Expand" => movement::expand(g, n),
        "ConstantOfShape" => movement::constant_of_shape(g, n),
        "Range" => movement::range(g, n),
        "Slice" => super::slice::slice(g, n),
        "Concat" => movement::concat(g, n, convert),
        "Gather" => movement::gather(g, n, convert),
        "GatherND" => scatter::gather_nd(g, n, convert),
        "ScatterElements" => scatter::scatter_elements(g, n, convert),
        "ScatterND" => scatter::scatter_nd(g, n, convert),
        "Split" => split(g, n, convert),
        "Squeeze" => squeeze(g, n, convert),
        "CumSum" => cumulative_sum(g, n),
        "Trilu" => triangle(g, n),
        "Dropout" if !n.wants_output(1) => convert(g, n),
        "Gemm" if operands.iter().skip(1).any(|&v| !g.axes(v).is_empty()) => Err(refused("Gemm")),
        op if !bounded || AS_THEY_ARE.binary_search(&op).is_ok() => convert(g, n),
        // a branch that is known is written out; its nodes are looked at one by one
        "If" if operands.iter().all(|&v| g.graph.constant(v).is_some() && g.axes(v).is_empty()) => convert(g, n),
        op => apart::convert(g, n, convert)?.ok_or_else(|| refused(op)),
    }
}

fn shape(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let extents = g.extents(n.input(0)?);
    let rank = extents.len() as i64;
    let clamp = |v: i64| (if v < 0 { v + rank } else { v }).clamp(0, rank) as usize;
    let (start, end) = (clamp(n.int("start", 0)), clamp(n.int("end", rank)));
    let part = if start < end { &extents[start..end] } else { &[] };
    Ok(vec![g.form_tensor(&[part.len() as i64], part, DType::I64)?])
}

fn size(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let extents = g.extents(n.input(0)?);
    let size = extents.into_iter().try_fold(fixed(1), product).ok_or_else(|| refused("the size"))?;
    Ok(vec![g.form_tensor(&[], &[size], DType::I64)?])
}

/// Parts along another dimension.
fn split(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    match g.bounded_axis(x, axis) {
        None => convert(g, n),
        Some(_) => Err(refused("Split")),
    }
}

/// Where no dimensions are named, one that grows is meant too while its size is 1.
fn squeeze(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let named = if n.opset < 13 { n.ints("axes").is_some() } else { n.optional(1).is_some() };
    for bounded in g.axes(x).into_iter().filter(|_| !named) {
        if g.equal(bounded.count, fixed(1))? {
            return Err(refused("Squeeze"));
        }
    }
    convert(g, n)
}

/// Sums from the front do not read what lies behind.
fn cumulative_sum(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (mut x, reverse) = (n.input(0)?, n.int("reverse", 0));
    let axis = g.known_integer(n.input(1)?, "axis")?;
    let axis = g.axis(axis, g.rank(x))?;
    if reverse != 0 {
        x = g.masked(x, axis, 0.0, 0)?;
    }
    let attributes = vec![axis as i64, n.int("exclusive", 0), reverse];
    let sums = g.emit_exact(Op::Opaque { function: "cumsum".into(), attributes }, &[x])?[0];
    let axes = g.axes(x).into_iter().map(|a| Axis { zero: a.zero && a.axis != axis, ..a }).collect();
    g.set_axes(sums, axes);
    Ok(vec![sums])
}

/// Where rows and columns grow, a place is on the same side of the diagonal whatever the count.
fn triangle(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank_of_two(x)?;
    let diagonal = match n.optional(1) {
        Some(k) => near(g.known_forms(k, "diagonal")?.first().copied().unwrap_or(fixed(0))),
        None => fixed(0),
    };
    let (rows, columns) = (g.shape(x)[rank - 2], g.shape(x)[rank - 1]);
    let (row, column) = (g.counting(rows, 0, 2)?, g.counting(columns, 1, 2)?);
    let diagonal = g.form_value(diagonal)?;
    let edge = g.add(row, diagonal)?;
    let side = if n.flag("upper", true) { CompareOp::Ge } else { CompareOp::Le };
    let kept = g.compare(side, column, edge)?;
    let zero = g.scalar_like(x, 0.0)?;
    let y = g.emit_exact(Op::Select, &[kept, x, zero])?[0];
    let axes = g.axes(x);
    g.set_axes(y, axes);
    Ok(vec![y])
}

/// A fixed number within the extents that tensors have, so that sums with places do not overflow.
fn near(form: Form) -> Form {
    if is_fixed(form) { fixed(form.offset.clamp(-FAR, FAR)) } else { form }
}

impl Importer<'_> {
    /// Places for a gather along a dimension of `extent` elements, counted from the front. A place outside gives `outside`,
    /// which the check of the gather refuses.
    pub(super) fn checked_places(&mut self, indices: ValueId, extent: Form, outside: i64) -> Result<ValueId> {
        if let Some(forms) = self.forms(indices) {
            let mut places = vec![];
            for form in forms {
                let place = if self.at_least(form, fixed(0))? { form } else { sum(form, extent, 1)? };
                if !self.at_least(place, fixed(0))? || self.at_least(place, extent)? {
                    let count = self.bounded.as_ref().map_or(0, |b| b.import_count);
                    let (index, extent) = (form.at(count), extent.at(count));
                    return Err(Error::Invalid(format!("index {index} is outside of a dimension of {extent}")));
                }
                places.push(place);
            }
            let shape = self.shape(indices).to_vec();
            return self.form_tensor(&shape, &places, DType::I64);
        }
        let dtype = self.ty(indices).dtype;
        if !matches!(dtype, DType::I64 | DType::I32) {
            return Err(Error::Invalid(format!("indices of type {dtype}")));
        }
        let indices = self.cast_to(indices, DType::I64)?;
        let size = self.form_value(extent)?;
        let zero = self.constant(Tensor::new(&[], &[0i64]));
        let outside = self.constant(Tensor::new(&[], &[outside]));
        let negative = self.compare(CompareOp::Lt, indices, zero)?;
        let wrapped = self.add(indices, size)?;
        let place = self.select(negative, wrapped, indices)?;
        let below = self.compare(CompareOp::Lt, place, size)?;
        let above = self.compare(CompareOp::Ge, place, zero)?;
        let inside = self.binary(BinaryOp::And, below, above)?;
        self.select(inside, place, outside)
    }

    /// `start`, `start + 1`, … as places along a dimension.
    pub(super) fn places_from(&mut self, start: Form, count: i64) -> Result<ValueId> {
        let steps = self.counting(count, 0, 1)?;
        if is_fixed(start) && start.offset == 0 {
            return Ok(steps);
        }
        let start = self.form_value(start)?;
        self.add(steps, start)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sorted() {
        assert!(super::AS_THEY_ARE.windows(2).all(|w| w[0] < w[1]));
    }
}
