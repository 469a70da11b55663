//! f16 and bf16 in files: an operator that computes does so in f32, and its results are rounded once.
//!
//! In: the operands of a node. Out: the same with halves cast to f32; f32 results are cast back to the type of the first
//! operand of a float type. Sums, products and norms are thus made in f32. What only moves elements keeps their type, and
//! what names the types of its results makes them itself. Constant weights that a single row is multiplied with stay halves.

use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::runtime::{DType, Result};

/// Operators that take halves as they are, sorted by name.
#[rustfmt::skip]
const AS_THEY_ARE: &[&str] = &[
    "BitCast", "Cast", "CastLike", "Compress", "Concat", "ConcatFromSequence", "Constant", "ConstantOfShape",
    "DepthToSpace", "DequantizeLinear", "Expand", "EyeLike", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "If", "Loop", "OneHot", "Optional", "OptionalGetElement", "OptionalHasElement", "Pad", "QuantizeLinear",
    "Reshape", "ReverseSequence", "Scan", "Scatter", "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct",
    "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "Shape", "Size", "Slice", "SpaceToDepth",
    "Split", "SplitToSequence", "Squeeze", "TensorScatter", "Tile", "Transpose", "Unsqueeze", "Where",
];

impl Importer<'_> {
    /// Casts operands that are halves to f32. Returns the type of the results, where these are to be cast back.
    pub(super) fn widen_halves(&mut self, op_type: &str, inputs: &mut [Option<ValueId>]) -> Result<Option<DType>> {
        if AS_THEY_ARE.binary_search(&op_type).is_ok() {
            return Ok(None);
        }
        let first = inputs.iter().flatten().map(|&v| self.ty(v).dtype).find(|d| d.is_float());
        let read_once = self.reads_weights_once(op_type, inputs);
        let widened = if read_once { 1 } else { inputs.len() };
        for value in inputs[..widened].iter_mut().flatten() {
            if self.ty(*value).dtype.is_half() {
                *value = self.cast_to(*value, DType::F32)?;
            }
        }
        Ok(first.filter(|d| d.is_half()))
    }

    /// Returns true for the product of a single row with constant weights: it takes as long as these take to read, and widens
    /// them as it does.
    fn reads_weights_once(&self, op_type: &str, inputs: &[Option<ValueId>]) -> bool {
        let [Some(row), Some(weights)] = *inputs else { return false };
        op_type == "MatMul"
            && self.is_single_row(row)
            && self.rank(weights) >= 2
            && self.graph.constant(weights).is_some()
    }

    /// Casts results that are f32 to `dtype`, if any.
    pub(super) fn narrow_results(&mut self, outputs: Vec<ValueId>, dtype: Option<DType>) -> Result<Vec<ValueId>> {
        let Some(dtype) = dtype else { return Ok(outputs) };
        let narrow = |v: ValueId| if self.ty(v).dtype == DType::F32 { self.cast_to(v, dtype) } else { Ok(v) };
        outputs.into_iter().map(narrow).collect()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sorted() {
        assert!(super::AS_THEY_ARE.windows(2).all(|w| w[0] < w[1]));
    }
}
