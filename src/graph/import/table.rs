//! The table of ONNX operators: name, first operator set, and the function that converts a node to canonical form.

use super::node::Source;
use super::{
    attention, bits, columns, contrib, control, convert, convolution, data_dependent, einsum, linear_attention, loss,
    movement, pooling, quantize, random, rearrange, recurrent, reduction, resize, sample, scatter, sequence, signal,
    storage,
};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::proto::NodeProto;
use crate::runtime::Result;

pub(super) type Converter = fn(&mut Importer, &Source) -> Result<Vec<ValueId>>;

/// Returns the converter of a node, or the reason why it is not supported.
pub(super) fn lookup(node: &NodeProto, opset: i64) -> std::result::Result<Converter, String> {
    match node.domain.as_str() {
        "" => {}
        CONTRIBUTED => {
            let row = CONTRIB.binary_search_by_key(&node.op_type.as_str(), |row| row.0);
            return row.map(|i| CONTRIB[i].1).map_err(|_| "the operator is not known".into());
        }
        "ai.onnx.ml" => return Err("operators of classical machine learning are not supported".into()),
        "ai.onnx.training" | "ai.onnx.preview.training" => return Err("operators of training are not supported".into()),
        other => return Err(format!("the domain `{other}` is not known")),
    }
    if let Some((_, what)) = REFUSED.iter().find(|row| row.0 == node.op_type) {
        return Err(format!("{what} are not supported"));
    }
    match TABLE.binary_search_by_key(&node.op_type.as_str(), |row| row.0) {
        Err(_) => Err("the operator is not known".into()),
        Ok(i) if TABLE[i].1 > opset => Err(format!("the operator exists from opset {} on", TABLE[i].1)),
        Ok(i) => Ok(TABLE[i].2),
    }
}

/// Operators of ONNX's own domain that are left out on purpose, and what they compute.
const REFUSED: [(&str, &str); 5] = [
    ("ImageDecoder", "encoded images"),
    ("RegexFullMatch", "operators on strings"),
    ("StringConcat", "operators on strings"),
    ("StringNormalizer", "operators on strings"),
    ("StringSplit", "operators on strings"),
];

/// Domain, name and first operator set of each row.
pub(super) fn rows() -> impl Iterator<Item = (&'static str, &'static str, i64)> {
    let contributed = CONTRIB.iter().map(|row| (CONTRIBUTED, row.0, 1));
    TABLE.iter().map(|row| ("", row.0, row.1)).chain(contributed)
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
    ("Add",                     1, binary!(Add)),
    ("AffineGrid",             20, sample::affine_grid),
    ("And",                     1, binary!(And)),
    ("ArgMax",                  1, |g, n| reduction::arg_extreme(g, n, "argmax")),
    ("ArgMin",                  1, |g, n| reduction::arg_extreme(g, n, "argmin")),
    ("Asin",                    7, unary!(Asin)),
    ("Asinh",                   9, unary!(Asinh)),
    ("Atan",                    7, unary!(Atan)),
    ("Atanh",                   9, unary!(Atanh)),
    ("Attention",              23, attention::attention),
    ("AveragePool",             1, pooling::average_pool),
    ("BatchNormalization",      1, convolution::batch_normalization),
    ("Bernoulli",              15, random::bernoulli),
    ("BitCast",                26, bits::bitcast),
    ("BitShift",               11, bits::shift),
    ("BitwiseAnd",             18, |g, n| bits::bitwise(g, n, BinaryOp::And)),
    ("BitwiseNot",             18, bits::bitwise_not),
    ("BitwiseOr",              18, |g, n| bits::bitwise(g, n, BinaryOp::Or)),
    ("BitwiseXor",             18, |g, n| bits::bitwise(g, n, BinaryOp::Xor)),
    ("BlackmanWindow",         17, |g, n| signal::window(g, n, &[0.42, -0.5, 0.08])),
    ("Cast",                    1, storage::cast),
    ("CastLike",               15, storage::cast_like),
    ("CausalConvWithState",    27, attention::causal_conv_with_state),
    ("Ceil",                    1, unary!(Ceil)),
    ("Celu",                   12, convert::celu),
    ("CenterCropPad",          18, rearrange::center_crop_pad),
    ("Clip",                    1, convert::clip),
    ("Col2Im",                 18, rearrange::col2im),
    ("Compress",                9, data_dependent::compress),
    ("Concat",                  1, movement::concat),
    ("ConcatFromSequence",      11, sequence::by_host),
    ("Constant",                1, convert::constant),
    ("ConstantOfShape",         9, convert::constant_of_shape),
    ("Conv",                    1, convolution::conv),
    ("ConvInteger",            10, quantize::conv_integer),
    ("ConvTranspose",           1, convolution::conv_transpose),
    ("Cos",                     7, unary!(Cos)),
    ("Cosh",                    9, unary!(Cosh)),
    ("CumProd",                26, columns::cumulative_product),
    ("CumSum",                 11, reduction::cumulative_sum),
    ("DFT",                    17, signal::dft),
    ("DeformConv",             19, sample::deform_conv),
    ("DepthToSpace",            1, movement::depth_to_space),
    ("DequantizeLinear",       10, quantize::dequantize_linear),
    ("Det",                    11, columns::determinant),
    ("Div",                     1, convert::divide),
    ("Dropout",                 1, convert::dropout),
    ("DynamicQuantizeLinear",  11, quantize::dynamic_quantize_linear),
    ("Einsum",                 12, einsum::einsum),
    ("Elu",                     1, convert::elu),
    ("Equal",                   1, compare!(Eq)),
    ("Erf",                     9, unary!(Erf)),
    ("Exp",                     1, unary!(Exp)),
    ("Expand",                  8, movement::expand),
    ("EyeLike",                 9, rearrange::eye_like),
    ("Flatten",                 1, movement::flatten),
    ("Floor",                   1, unary!(Floor)),
    ("GRU",                     1, recurrent::gru),
    ("Gather",                  1, movement::gather),
    ("GatherElements",         11, movement::gather_elements),
    ("GatherND",               11, movement::gather_nd),
    ("Gelu",                   20, convert::gelu),
    ("Gemm",                    1, reduction::gemm),
    ("GlobalAveragePool",       1, |g, n| reduction::global_pool(g, n, ReduceOp::Mean)),
    ("GlobalLpPool",            1, pooling::global_lp_pool),
    ("GlobalMaxPool",           1, |g, n| reduction::global_pool(g, n, ReduceOp::Max)),
    ("Greater",                 1, compare!(Gt)),
    ("GreaterOrEqual",         12, compare!(Ge)),
    ("GridSample",             16, sample::grid_sample),
    ("GroupNormalization",     18, reduction::group_normalization),
    ("HammingWindow",          17, |g, n| signal::window(g, n, &[25.0 / 46.0, -21.0 / 46.0])),
    ("HannWindow",             17, |g, n| signal::window(g, n, &[0.5, -0.5])),
    ("HardSigmoid",             1, convert::hard_sigmoid),
    ("HardSwish",              14, |g, n| convert::elementwise(g, n, Op::HardSwish)),
    ("Hardmax",                 1, columns::hardmax),
    ("Identity",                1, convert::identity),
    ("If",                      1, control::branch),
    ("InstanceNormalization",   1, reduction::instance_normalization),
    ("IsInf",                  10, convert::is_inf),
    ("IsNaN",                   9, convert::is_nan),
    ("LRN",                     1, convolution::local_response_normalization),
    ("LSTM",                    1, recurrent::lstm),
    // ONNX Runtime has it in all operator sets, and its optimiser writes it into older models
    ("LayerNormalization",      1, reduction::layer_normalization),
    ("LeakyRelu",               1, convert::leaky_relu),
    ("Less",                    1, compare!(Lt)),
    ("LessOrEqual",            12, compare!(Le)),
    ("LinearAttention",        27, linear_attention::linear_attention),
    ("Log",                     1, unary!(Log)),
    ("LogSoftmax",              1, |g, n| reduction::softmax(g, n, true)),
    ("Loop",                    1, control::repeat),
    ("LpNormalization",         1, reduction::lp_normalization),
    ("LpPool",                  1, pooling::lp_pool),
    ("MatMul",                  1, reduction::matmul),
    ("MatMulInteger",          10, quantize::matmul_integer),
    ("Max",                     1, extreme!(Max)),
    ("MaxPool",                 1, pooling::max_pool),
    ("MaxRoiPool",              1, sample::max_roi_pool),
    ("MaxUnpool",               9, pooling::max_unpool),
    ("Mean",                    1, convert::mean),
    ("MeanVarianceNormalization",   9, columns::mean_variance_normalization),
    ("MelWeightMatrix",        17, signal::mel_weight_matrix),
    ("Min",                     1, extreme!(Min)),
    ("Mish",                   18, convert::mish),
    ("Mod",                    10, convert::modulo),
    ("Mul",                     1, binary!(Mul)),
    ("Multinomial",             7, random::multinomial),
    ("Neg",                     1, unary!(Neg)),
    ("NegativeLogLikelihoodLoss",  12, loss::negative_log_likelihood),
    ("NonMaxSuppression",      10, data_dependent::non_max_suppression),
    ("NonZero",                 9, data_dependent::non_zero),
    ("Not",                     1, unary!(Not)),
    ("OneHot",                  9, convert::one_hot),
    ("Optional",                15, sequence::by_host),
    ("OptionalGetElement",      15, sequence::by_host),
    ("OptionalHasElement",      15, sequence::by_host),
    ("Or",                      1, binary!(Or)),
    ("PRelu",                   1, convert::prelu),
    ("Pad",                     1, movement::pad),
    ("Pow",                     1, convert::pow),
    ("QLinearConv",            10, quantize::quantized_conv),
    ("QLinearMatMul",          10, quantize::quantized_matmul),
    ("QuantizeLinear",         10, quantize::quantize_linear),
    ("RMSNormalization",       23, reduction::rms_normalization),
    ("RNN",                     1, recurrent::rnn),
    ("RandomNormal",            1, |g, n| random::normal(g, n, false)),
    ("RandomNormalLike",        1, |g, n| random::normal(g, n, true)),
    ("RandomUniform",           1, |g, n| random::uniform(g, n, false)),
    ("RandomUniformLike",       1, |g, n| random::uniform(g, n, true)),
    ("Range",                  11, convert::range),
    ("Reciprocal",              1, convert::reciprocal),
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
    ("Relu",                    1, convert::relu),
    ("Reshape",                 1, movement::reshape),
    ("Resize",                 10, resize::resize),
    ("ReverseSequence",        10, rearrange::reverse_sequence),
    ("RoiAlign",               10, sample::roi_align),
    ("RotaryEmbedding",        23, attention::rotary_embedding),
    ("Round",                  11, unary!(Round)),
    ("STFT",                   17, signal::stft),
    ("Scan",                    8, control::scan),
    ("Scatter",                 9, scatter::scatter_elements),
    ("ScatterElements",        11, scatter::scatter_elements),
    ("ScatterND",              11, scatter::scatter_nd),
    ("Selu",                    1, convert::selu),
    ("SequenceAt",              11, sequence::by_host),
    ("SequenceConstruct",       11, sequence::by_host),
    ("SequenceEmpty",           11, sequence::by_host),
    ("SequenceErase",           11, sequence::by_host),
    ("SequenceInsert",          11, sequence::by_host),
    ("SequenceLength",          11, sequence::by_host),
    ("SequenceMap",             17, sequence::by_host),
    ("Shape",                   1, convert::shape),
    ("Shrink",                  9, columns::shrink),
    ("Sigmoid",                 1, |g, n| convert::elementwise(g, n, Op::Sigmoid)),
    ("Sign",                    9, convert::sign),
    ("SimplifiedLayerNormalization",   1, contrib::normalization::simplified_layer),
    ("Sin",                     7, unary!(Sin)),
    ("Sinh",                    9, unary!(Sinh)),
    ("Size",                    1, convert::size),
    ("Slice",                   1, movement::slice),
    ("Softmax",                 1, |g, n| reduction::softmax(g, n, false)),
    ("SoftmaxCrossEntropyLoss",  12, loss::softmax_cross_entropy),
    ("Softplus",                1, convert::softplus),
    ("Softsign",                1, convert::softsign),
    ("SpaceToDepth",            1, movement::space_to_depth),
    ("Split",                   1, movement::split),
    ("SplitToSequence",         11, sequence::by_host),
    ("Sqrt",                    1, unary!(Sqrt)),
    ("Squeeze",                 1, movement::squeeze),
    ("Sub",                     1, binary!(Sub)),
    ("Sum",                     1, convert::sum),
    ("SwiGLU",                 28, columns::swiglu),
    ("Swish",                  24, convert::swish),
    ("Tan",                     7, unary!(Tan)),
    ("Tanh",                    1, unary!(Tanh)),
    ("TensorScatter",          24, scatter::tensor_scatter),
    ("TfIdfVectorizer",         9, data_dependent::ngrams),
    ("ThresholdedRelu",        10, convert::thresholded_relu),
    ("Tile",                    1, movement::tile),
    ("TopK",                    1, reduction::top_k),
    ("Transpose",               1, movement::transpose),
    ("Trilu",                  14, convert::trilu),
    ("Unique",                 11, data_dependent::unique),
    ("Unsqueeze",               1, movement::unsqueeze),
    ("Upsample",                1, resize::upsample),
    ("Where",                   9, |g, n| convert::elementwise(g, n, Op::Select)),
    ("Xor",                     1, binary!(Xor)),
];

/// The domain of the operators of ONNX Runtime.
pub(super) const CONTRIBUTED: &str = "com.microsoft";

/// The operators of [`CONTRIBUTED`], sorted by name.
#[rustfmt::skip]
const CONTRIB: &[(&str, Converter)] = &[
    ("Attention",                        contrib::attention::attention),
    ("BiasGelu",                         contrib::fused::bias_gelu),
    ("DequantizeLinear",                 quantize::dequantize_linear),
    ("DynamicQuantizeLSTM",              recurrent::quantised_lstm),
    ("DynamicQuantizeMatMul",            contrib::quantized::dynamic_matmul),
    ("EmbedLayerNormalization",          contrib::normalization::embed_layer),
    ("FastGelu",                         contrib::fused::fast_gelu),
    ("FusedConv",                        contrib::fused::conv),
    ("FusedGemm",                        contrib::fused::gemm),
    ("FusedMatMul",                      contrib::fused::matmul),
    ("Gelu",                             contrib::fused::bias_gelu),
    ("GroupQueryAttention",              contrib::grouped::group_query),
    ("MatMulIntegerToFloat",             contrib::quantized::matmul_to_float),
    ("MatMulNBits",                      contrib::fused::matmul_n_bits),
    ("MultiHeadAttention",               contrib::attention::multi_head),
    ("NhwcConv",                         contrib::fused::nhwc_conv),
    ("NhwcFusedConv",                    contrib::fused::nhwc_conv),
    ("QAttention",                       contrib::attention::quantised_attention),
    ("QGemm",                            contrib::quantized::gemm),
    ("QLinearAdd",                       |g, n| contrib::quantized::binary(g, n, BinaryOp::Add)),
    ("QLinearAveragePool",               contrib::quantized::average_pool),
    ("QLinearConcat",                    contrib::quantized::concat),
    ("QLinearGlobalAveragePool",         contrib::quantized::global_average_pool),
    ("QLinearLeakyRelu",                 contrib::quantized::leaky_relu),
    ("QLinearMul",                       |g, n| contrib::quantized::binary(g, n, BinaryOp::Mul)),
    ("QLinearSigmoid",                   contrib::quantized::sigmoid),
    ("QLinearSoftmax",                   contrib::quantized::softmax),
    ("QuantizeLinear",                   quantize::quantize_linear),
    ("QuickGelu",                        contrib::fused::quick_gelu),
    ("RotaryEmbedding",                  contrib::attention::rotary_embedding),
    ("SimplifiedLayerNormalization",     contrib::normalization::simplified_layer),
    ("SkipLayerNormalization",           contrib::normalization::skip_layer),
    ("SkipSimplifiedLayerNormalization", contrib::normalization::skip_simplified),
    ("TransposeMatMul",                  contrib::fused::matmul),
];

#[cfg(test)]
mod tests {
    use super::{CONTRIB, TABLE, lookup};
    use crate::graph::proto::NodeProto;

    #[test]
    fn an_operator_exists_from_its_first_operator_set_on() {
        let known = |op: &str, opset| lookup(&NodeProto { op_type: op.into(), ..NodeProto::default() }, opset).is_ok();
        assert!(known("Attention", 23) && !known("Attention", 22));
        // models that ONNX Runtime has optimised have it in older sets than the standard
        assert!(known("LayerNormalization", 13));
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(CONTRIB.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
