//! The table of ONNX operators: name, first operator set, and the function that converts a node to canonical form.

use super::node::Source;
use super::{bits, convert, convolution, movement, quantize, reduction, resize, storage};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::proto::NodeProto;
use crate::runtime::Result;

pub(super) type Converter = fn(&mut Importer, &Source) -> Result<Vec<ValueId>>;

/// Returns the converter of a node, or the reason why it is not supported.
pub(super) fn lookup(node: &NodeProto, opset: i64) -> std::result::Result<Converter, String> {
    if !node.domain.is_empty() && node.domain != "ai.onnx" {
        return Err(format!("the domain `{}` is not known", node.domain));
    }
    match TABLE.binary_search_by_key(&node.op_type.as_str(), |row| row.0) {
        Err(_) => Err("the operator is not known".into()),
        Ok(i) if TABLE[i].1 > opset => Err(format!("the operator exists from opset {} on", TABLE[i].1)),
        Ok(i) => Ok(TABLE[i].2),
    }
}

macro_rules! unary {
    ($op:ident) => {
        |g, n| convert::elementwise(g, n, Op::Unary(UnaryOp::$op))
    };
}
macro_rules! binary {
    ($op:ident) => {
        |g, n| convert::elementwise(g, n, Op::Binary(BinaryOp::$op))
    };
}
macro_rules! compare {
    ($op:ident) => {
        |g, n| convert::elementwise(g, n, Op::Compare(CompareOp::$op))
    };
}
macro_rules! extreme {
    ($op:ident) => {
        |g, n| convert::extreme(g, n, BinaryOp::$op)
    };
}
macro_rules! reduce {
    ($op:ident, $input_axes_since:literal) => {
        |g, n| reduction::reduce(g, n, ReduceOp::$op, $input_axes_since)
    };
}

/// Sorted by name.
#[rustfmt::skip]
const TABLE: &[(&str, i64, Converter)] = &[
    ("Abs",                     1, unary!(Abs)),
    ("Acos",                    7, unary!(Acos)),
    ("Acosh",                   9, unary!(Acosh)),
    ("Add",                     7, binary!(Add)),
    ("And",                     7, binary!(And)),
    ("ArgMax",                  1, |g, n| reduction::arg_extreme(g, n, "argmax")),
    ("ArgMin",                  1, |g, n| reduction::arg_extreme(g, n, "argmin")),
    ("Asin",                    7, unary!(Asin)),
    ("Asinh",                   9, unary!(Asinh)),
    ("Atan",                    7, unary!(Atan)),
    ("Atanh",                   9, unary!(Atanh)),
    ("AveragePool",             7, convolution::average_pool),
    ("BatchNormalization",      7, convolution::batch_normalization),
    ("BitCast",                26, bits::bitcast),
    ("BitShift",               11, bits::shift),
    ("BitwiseAnd",             18, |g, n| bits::bitwise(g, n, BinaryOp::And)),
    ("BitwiseNot",             18, bits::bitwise_not),
    ("BitwiseOr",              18, |g, n| bits::bitwise(g, n, BinaryOp::Or)),
    ("BitwiseXor",             18, |g, n| bits::bitwise(g, n, BinaryOp::Xor)),
    ("Cast",                    6, storage::cast),
    ("CastLike",               15, storage::cast_like),
    ("Ceil",                    6, unary!(Ceil)),
    ("Celu",                   12, convert::celu),
    ("Clip",                    6, convert::clip),
    ("Concat",                  4, movement::concat),
    ("Constant",                1, convert::constant),
    ("ConstantOfShape",         9, convert::constant_of_shape),
    ("Conv",                    1, convolution::conv),
    ("ConvInteger",            10, quantize::conv_integer),
    ("ConvTranspose",           1, convolution::conv_transpose),
    ("Cos",                     7, unary!(Cos)),
    ("Cosh",                    9, unary!(Cosh)),
    ("CumSum",                 11, reduction::cumulative_sum),
    ("DepthToSpace",            1, movement::depth_to_space),
    ("DequantizeLinear",       10, quantize::dequantize_linear),
    ("Div",                     7, convert::divide),
    ("Dropout",                 7, convert::dropout),
    ("DynamicQuantizeLinear",  11, quantize::dynamic_quantize_linear),
    ("Elu",                     6, convert::elu),
    ("Equal",                   7, compare!(Eq)),
    ("Erf",                     9, unary!(Erf)),
    ("Exp",                     6, unary!(Exp)),
    ("Expand",                  8, movement::expand),
    ("Flatten",                 1, movement::flatten),
    ("Floor",                   6, unary!(Floor)),
    ("Gather",                  1, movement::gather),
    ("GatherElements",         11, movement::gather_elements),
    ("GatherND",               11, movement::gather_nd),
    ("Gelu",                   20, convert::gelu),
    ("Gemm",                    7, reduction::gemm),
    ("GlobalAveragePool",       1, |g, n| reduction::global_pool(g, n, ReduceOp::Mean)),
    ("GlobalMaxPool",           1, |g, n| reduction::global_pool(g, n, ReduceOp::Max)),
    ("Greater",                 7, compare!(Gt)),
    ("GreaterOrEqual",         12, compare!(Ge)),
    ("GroupNormalization",     18, reduction::group_normalization),
    ("HardSigmoid",             6, convert::hard_sigmoid),
    ("HardSwish",              14, |g, n| convert::elementwise(g, n, Op::HardSwish)),
    ("Identity",                1, convert::identity),
    ("InstanceNormalization",   6, reduction::instance_normalization),
    ("IsInf",                  10, convert::is_inf),
    ("IsNaN",                   9, convert::is_nan),
    ("LRN",                     1, convolution::local_response_normalization),
    ("LayerNormalization",     17, reduction::layer_normalization),
    ("LeakyRelu",               6, convert::leaky_relu),
    ("Less",                    7, compare!(Lt)),
    ("LessOrEqual",            12, compare!(Le)),
    ("Log",                     6, unary!(Log)),
    ("LogSoftmax",              1, |g, n| reduction::softmax(g, n, true)),
    ("LpNormalization",         1, reduction::lp_normalization),
    ("MatMul",                  1, reduction::matmul),
    ("MatMulInteger",          10, quantize::matmul_integer),
    ("Max",                     6, extreme!(Max)),
    ("MaxPool",                 1, convolution::max_pool),
    ("Mean",                    6, convert::mean),
    ("Min",                     6, extreme!(Min)),
    ("Mish",                   18, convert::mish),
    ("Mod",                    10, convert::modulo),
    ("Mul",                     7, binary!(Mul)),
    ("Neg",                     6, unary!(Neg)),
    ("Not",                     1, unary!(Not)),
    ("OneHot",                  9, convert::one_hot),
    ("Or",                      7, binary!(Or)),
    ("PRelu",                   7, convert::prelu),
    ("Pad",                     2, movement::pad),
    ("Pow",                     7, convert::pow),
    ("QLinearConv",            10, quantize::quantized_conv),
    ("QLinearMatMul",          10, quantize::quantized_matmul),
    ("QuantizeLinear",         10, quantize::quantize_linear),
    ("RMSNormalization",       23, reduction::rms_normalization),
    ("Range",                  11, convert::range),
    ("Reciprocal",              6, convert::reciprocal),
    ("ReduceL1",                1, reduce!(L1, 18)),
    ("ReduceL2",                1, reduce!(L2, 18)),
    ("ReduceLogSum",            1, reduce!(LogSum, 18)),
    ("ReduceLogSumExp",         1, reduce!(LogSumExp, 18)),
    ("ReduceMax",               1, reduce!(Max, 18)),
    ("ReduceMean",              1, reduce!(Mean, 18)),
    ("ReduceMin",               1, reduce!(Min, 18)),
    ("ReduceProd",              1, reduce!(Prod, 18)),
    ("ReduceSum",               1, reduce!(Sum, 13)),
    ("ReduceSumSquare",         1, reduce!(SumSquare, 18)),
    ("Relu",                    6, convert::relu),
    ("Reshape",                 5, movement::reshape),
    ("Resize",                 10, resize::resize),
    ("Round",                  11, unary!(Round)),
    ("Selu",                    6, convert::selu),
    ("Shape",                   1, convert::shape),
    ("Sigmoid",                 6, |g, n| convert::elementwise(g, n, Op::Sigmoid)),
    ("Sign",                    9, convert::sign),
    ("Sin",                     7, unary!(Sin)),
    ("Sinh",                    9, unary!(Sinh)),
    ("Size",                    1, convert::size),
    ("Slice",                   1, movement::slice),
    ("Softmax",                 1, |g, n| reduction::softmax(g, n, false)),
    ("Softplus",                1, convert::softplus),
    ("Softsign",                1, convert::softsign),
    ("SpaceToDepth",            1, movement::space_to_depth),
    ("Split",                   2, movement::split),
    ("Sqrt",                    6, unary!(Sqrt)),
    ("Squeeze",                 1, movement::squeeze),
    ("Sub",                     7, binary!(Sub)),
    ("Sum",                     6, convert::sum),
    ("Swish",                  24, convert::swish),
    ("Tan",                     7, unary!(Tan)),
    ("Tanh",                    6, unary!(Tanh)),
    ("ThresholdedRelu",        10, convert::thresholded_relu),
    ("Tile",                    6, movement::tile),
    ("TopK",                   10, reduction::top_k),
    ("Transpose",               1, movement::transpose),
    ("Trilu",                  14, convert::trilu),
    ("Unsqueeze",               1, movement::unsqueeze),
    ("Upsample",                7, resize::upsample),
    ("Where",                   9, |g, n| convert::elementwise(g, n, Op::Select)),
    ("Xor",                     7, binary!(Xor)),
];

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
