//! The attributes that the standard gives each operator.
//!
//! In: a node of a known operator. Out: nothing, or an error that names an attribute that its operator does not have in
//! this operator set. An operator without a row has no attributes.

use crate::graph::proto::NodeProto;
use crate::runtime::error::unknown;

/// Fails when a node has an attribute that the standard does not know, or has it twice.
pub(super) fn check(node: &NodeProto, opset: i64) -> std::result::Result<(), String> {
    let table = if node.domain == "com.microsoft" { CONTRIB } else { TABLE };
    let row = table.binary_search_by_key(&node.op_type.as_str(), |row| row.0);
    let row = row.map_or("", |i| table[i].1);
    for (i, attribute) in node.attribute.iter().enumerate() {
        let name = &attribute.name;
        let entry = row.split(' ').find(|e| !e.is_empty() && e.split(':').next() == Some(name));
        let Some(entry) = entry else {
            return Err(unknown("attribute", name, &listed(row, opset)));
        };
        let (first, last) = opsets(entry);
        if !(first..=last).contains(&opset) {
            return Err(format!(
                "the attribute `{name}` {}",
                if opset < first {
                    format!("exists from opset {first} on")
                } else {
                    format!("exists up to opset {last}")
                }
            ));
        }
        if node.attribute[..i].iter().any(|a| a.name == *name) {
            return Err(format!("the attribute `{name}` is given twice"));
        }
    }
    Ok(())
}

/// The attributes of an operator in any operator set.
pub(super) fn of(domain: &str, name: &str) -> Vec<&'static str> {
    let table = if domain.is_empty() { TABLE } else { CONTRIB };
    let row = table.binary_search_by_key(&name, |row| row.0).map_or("", |i| table[i].1);
    row.split(' ').filter_map(|entry| entry.split(':').next()).filter(|name| !name.is_empty()).collect()
}

/// The operator sets of `name:first..last`, where each part after the name may be left out.
fn opsets(entry: &str) -> (i64, i64) {
    let range = entry.split_once(':').and_then(|(_, range)| range.split_once(".."));
    let (first, last) = range.unwrap_or_default();
    (first.parse().unwrap_or(0), last.parse().unwrap_or(i64::MAX))
}

fn listed(row: &str, opset: i64) -> Vec<&str> {
    let entries = row.split(' ').filter(|e| !e.is_empty() && (opsets(e).0..=opsets(e).1).contains(&opset));
    entries.filter_map(|e| e.split(':').next()).collect()
}

/// Sorted by operator: its attributes in all operator sets. `name:first..last` is one of these sets only.
#[rustfmt::skip]
const TABLE: &[(&str, &str)] = &[
    ("Abs",                     "consumed_inputs:..5"),
    ("Add",                     "axis:..6 broadcast:..6 consumed_inputs:..5"),
    ("AffineGrid",              "align_corners"),
    ("And",                     "axis:..6 broadcast:..6"),
    ("ArgMax",                  "axis keepdims select_last_index:12.."),
    ("ArgMin",                  "axis keepdims select_last_index:12.."),
    ("Attention",               "is_causal kv_num_heads left_window_size:25.. q_num_heads qk_matmul_output_mode right_window_size:25.. scale softcap softmax_precision"),
    ("AveragePool",             "auto_pad ceil_mode:10.. count_include_pad:7.. dilations:19.. kernel_shape pads strides"),
    ("BatchNormalization",      "consumed_inputs:..5 epsilon is_test:..6 momentum spatial:..8 training_mode:14.."),
    ("Bernoulli",               "dtype seed"),
    ("BitCast",                 "to"),
    ("BitShift",                "direction"),
    ("BlackmanWindow",          "output_datatype periodic"),
    ("Cast",                    "round_mode:24.. saturate:19.. to"),
    ("CastLike",                "round_mode:24.. saturate:19.."),
    ("CausalConvWithState",     "activation"),
    ("Ceil",                    "consumed_inputs:..5"),
    ("Celu",                    "alpha"),
    ("CenterCropPad",           "axes"),
    ("Clip",                    "consumed_inputs:..5 max:..10 min:..10"),
    ("Col2Im",                  "dilations pads strides"),
    ("Compress",                "axis"),
    ("Concat",                  "axis"),
    ("ConcatFromSequence",      "axis new_axis"),
    ("Constant",                "sparse_value:11.. value value_float:12.. value_floats:12.. value_int:12.. value_ints:12.. value_string:12.. value_strings:12.."),
    ("ConstantOfShape",         "value"),
    ("Conv",                    "auto_pad dilations group kernel_shape pads strides"),
    ("ConvInteger",             "auto_pad dilations group kernel_shape pads strides"),
    ("ConvTranspose",           "auto_pad dilations group kernel_shape output_padding output_shape pads strides"),
    ("CumProd",                 "exclusive reverse"),
    ("CumSum",                  "exclusive reverse"),
    ("DFT",                     "axis:..19 inverse onesided"),
    ("DeformConv",              "dilations group kernel_shape offset_group pads strides"),
    ("DepthToSpace",            "blocksize mode:11.."),
    ("DequantizeLinear",        "axis:13.. block_size:21.. output_dtype:23.."),
    ("Div",                     "axis:..6 broadcast:..6 consumed_inputs:..5"),
    ("Dropout",                 "consumed_inputs:..5 is_test:..6 ratio:..11 seed:12.."),
    ("Einsum",                  "equation"),
    ("Elu",                     "alpha consumed_inputs:..5"),
    ("Equal",                   "axis:..6 broadcast:..6"),
    ("Exp",                     "consumed_inputs:..5"),
    ("EyeLike",                 "dtype k"),
    ("Flatten",                 "axis"),
    ("Floor",                   "consumed_inputs:..5"),
    ("GRU",                     "activation_alpha activation_beta activations clip direction hidden_size layout:14.. linear_before_reset:3.. output_sequence:..6"),
    ("Gather",                  "axis"),
    ("GatherElements",          "axis"),
    ("GatherND",                "batch_dims:12.."),
    ("Gelu",                    "approximate"),
    ("Gemm",                    "alpha beta broadcast:..6 transA transB"),
    ("GlobalLpPool",            "p"),
    ("Greater",                 "axis:..6 broadcast:..6"),
    ("GridSample",              "align_corners mode padding_mode"),
    ("GroupNormalization",      "epsilon num_groups stash_type:21.."),
    ("HammingWindow",           "output_datatype periodic"),
    ("HannWindow",              "output_datatype periodic"),
    ("HardSigmoid",             "alpha beta consumed_inputs:..5"),
    ("Hardmax",                 "axis"),
    ("If",                      "else_branch then_branch"),
    ("InstanceNormalization",   "consumed_inputs:..5 epsilon"),
    ("IsInf",                   "detect_negative detect_positive"),
    ("LRN",                     "alpha beta bias size"),
    ("LSTM",                    "activation_alpha activation_beta activations clip direction hidden_size input_forget layout:14.. output_sequence:..6"),
    ("LayerNormalization",      "axis epsilon stash_type"),
    ("LeakyRelu",               "alpha consumed_inputs:..5"),
    ("Less",                    "axis:..6 broadcast:..6"),
    ("LinearAttention",         "chunk_size kv_num_heads q_num_heads scale update_rule"),
    ("Log",                     "consumed_inputs:..5"),
    ("LogSoftmax",              "axis"),
    ("Loop",                    "body"),
    ("LpNormalization",         "axis p"),
    ("LpPool",                  "auto_pad ceil_mode:18.. dilations:18.. kernel_shape p pads strides"),
    ("Max",                     "consumed_inputs:..5"),
    ("MaxPool",                 "auto_pad ceil_mode:10.. dilations:10.. kernel_shape pads storage_order:8.. strides"),
    ("MaxRoiPool",              "pooled_shape spatial_scale"),
    ("MaxUnpool",               "kernel_shape pads strides"),
    ("Mean",                    "consumed_inputs:..5"),
    ("MeanVarianceNormalization", "axes"),
    ("MelWeightMatrix",         "output_datatype"),
    ("Min",                     "consumed_inputs:..5"),
    ("Mod",                     "fmod"),
    ("Mul",                     "axis:..6 broadcast:..6 consumed_inputs:..5"),
    ("Multinomial",             "dtype sample_size seed"),
    ("Neg",                     "consumed_inputs:..5"),
    ("NegativeLogLikelihoodLoss", "ignore_index reduction"),
    ("NonMaxSuppression",       "center_point_box"),
    ("OneHot",                  "axis"),
    ("Optional",                "type"),
    ("Or",                      "axis:..6 broadcast:..6"),
    ("PRelu",                   "consumed_inputs:..5"),
    ("Pad",                     "mode paddings:..1 pads:2..10 value:..10"),
    ("Pow",                     "axis:..6 broadcast:..6"),
    ("QLinearConv",             "auto_pad dilations group kernel_shape pads strides"),
    ("QuantizeLinear",          "axis:13.. block_size:21.. output_dtype:21.. precision:23.. saturate:19.."),
    ("RMSNormalization",        "axis epsilon stash_type"),
    ("RNN",                     "activation_alpha activation_beta activations clip direction hidden_size layout:14.. output_sequence:..6"),
    ("RandomNormal",            "dtype mean scale seed shape"),
    ("RandomNormalLike",        "dtype mean scale seed"),
    ("RandomUniform",           "dtype high low seed shape"),
    ("RandomUniformLike",       "dtype high low seed"),
    ("Range",                   "stash_type:27.."),
    ("Reciprocal",              "consumed_inputs:..5"),
    ("ReduceL1",                "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceL2",                "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceLogSum",            "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceLogSumExp",         "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceMax",               "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceMean",              "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceMin",               "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceProd",              "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("ReduceSum",               "axes:..12 keepdims noop_with_empty_axes:13.."),
    ("ReduceSumSquare",         "axes:..17 keepdims noop_with_empty_axes:18.."),
    ("Relu",                    "consumed_inputs:..5"),
    ("Reshape",                 "allowzero:14.. consumed_inputs:..4 shape:..4"),
    ("Resize",                  "antialias:18.. axes:18.. coordinate_transformation_mode:11.. cubic_coeff_a:11.. exclude_outside:11.. extrapolation_value:11.. keep_aspect_ratio_policy:18.. mode nearest_mode:11.."),
    ("ReverseSequence",         "batch_axis time_axis"),
    ("RoiAlign",                "coordinate_transformation_mode:16.. mode output_height output_width sampling_ratio spatial_scale"),
    ("RotaryEmbedding",         "interleaved num_heads rotary_embedding_dim"),
    ("STFT",                    "onesided"),
    ("Scan",                    "body directions:..8 num_scan_inputs scan_input_axes:9.. scan_input_directions:9.. scan_output_axes:9.. scan_output_directions:9.."),
    ("Scatter",                 "axis"),
    ("ScatterElements",         "axis reduction:16.."),
    ("ScatterND",               "reduction:16.."),
    ("Selu",                    "alpha consumed_inputs:..5 gamma"),
    ("SequenceEmpty",           "dtype"),
    ("SequenceMap",             "body"),
    ("Shape",                   "end:15.. start:15.."),
    ("Shrink",                  "bias lambd"),
    ("Sigmoid",                 "consumed_inputs:..5"),
    ("SimplifiedLayerNormalization", "axis epsilon stash_type"),
    ("Slice",                   "axes:..9 ends:..9 starts:..9"),
    ("Softmax",                 "axis"),
    ("SoftmaxCrossEntropyLoss", "ignore_index reduction"),
    ("SpaceToDepth",            "blocksize mode:28.."),
    ("Split",                   "axis num_outputs:18.. split:..12"),
    ("SplitToSequence",         "axis keepdims"),
    ("Sqrt",                    "consumed_inputs:..5"),
    ("Squeeze",                 "axes:..12"),
    ("Sub",                     "axis:..6 broadcast:..6 consumed_inputs:..5"),
    ("Sum",                     "consumed_inputs:..5"),
    ("SwiGLU",                  "alpha"),
    ("Swish",                   "alpha"),
    ("Tanh",                    "consumed_inputs:..5"),
    ("TensorScatter",           "axis mode"),
    ("TfIdfVectorizer",         "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s pool_strings weights"),
    ("ThresholdedRelu",         "alpha"),
    ("TopK",                    "axis k:..9 largest:11.. sorted:11.."),
    ("Transpose",               "perm"),
    ("Trilu",                   "upper"),
    ("Unique",                  "axis sorted"),
    ("Unsqueeze",               "axes:..12"),
    ("Upsample",                "height_scale:..6 mode scales:7..8 width_scale:..6"),
    ("Xor",                     "axis:..6 broadcast:..6"),
];

/// As [`TABLE`], for the operators of the domain `com.microsoft`.
#[rustfmt::skip]
const CONTRIB: &[(&str, &str)] = &[
    ("Attention",                        "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes rotary_embedding_dim scale unidirectional"),
    ("DequantizeLinear",                 "axis block_size"),
    ("DynamicQuantizeLSTM",              "activation_alpha activation_beta activations clip direction hidden_size input_forget"),
    ("EmbedLayerNormalization",          "epsilon mask_index_type"),
    ("FusedConv",                        "activation activation_params auto_pad dilations group kernel_shape pads strides"),
    ("FusedGemm",                        "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"),
    ("FusedMatMul",                      "alpha transA transB transBatchA transBatchB"),
    ("GroupQueryAttention",              "do_rotary kv_num_heads local_window_size num_heads rotary_interleaved scale softcap"),
    ("MatMulNBits",                      "K N accuracy_level bits block_size"),
    ("MultiHeadAttention",               "mask_filter_value num_heads scale unidirectional"),
    ("NhwcConv",                         "activation activation_params auto_pad dilations group kernel_shape pads strides"),
    ("NhwcFusedConv",                    "activation activation_params auto_pad dilations group kernel_shape pads strides"),
    ("QAttention",                       "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"),
    ("QGemm",                            "alpha transA transB"),
    ("QLinearAveragePool",               "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides"),
    ("QLinearConcat",                    "axis"),
    ("QLinearGlobalAveragePool",         "channels_last"),
    ("QLinearLeakyRelu",                 "alpha"),
    ("QLinearSoftmax",                   "axis opset"),
    ("QuantizeLinear",                   "axis block_size"),
    ("QuickGelu",                        "alpha"),
    ("RotaryEmbedding",                  "interleaved is_packed_batching num_heads rotary_embedding_dim scale"),
    ("SimplifiedLayerNormalization",     "axis epsilon stash_type"),
    ("SkipLayerNormalization",           "epsilon"),
    ("SkipSimplifiedLayerNormalization", "epsilon"),
    ("TransposeMatMul",                  "alpha transA transB transBatchA transBatchB"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import::table;
    use crate::graph::proto::AttributeProto;

    fn node(op: &str, attributes: &[&str]) -> NodeProto {
        let attribute =
            attributes.iter().map(|a| AttributeProto { name: a.to_string(), ..Default::default() }).collect();
        NodeProto { op_type: op.into(), attribute, ..Default::default() }
    }

    #[test]
    fn the_table_is_sorted_and_all_its_operators_are_known() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
        for (name, _) in TABLE {
            assert!(table::lookup(&node(name, &[]), 28).is_ok(), "{name}");
        }
        assert!(CONTRIB.windows(2).all(|w| w[0].0 < w[1].0));
        for (name, _) in CONTRIB {
            let contributed = NodeProto { domain: table::CONTRIBUTED.into(), ..node(name, &[]) };
            assert!(table::lookup(&contributed, 28).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_attribute_belongs_to_its_operator_sets() {
        assert_eq!(check(&node("Conv", &["pads", "group"]), 11), Ok(()));
        assert_eq!(check(&node("ReduceMax", &["axes"]), 17), Ok(()));
        assert!(check(&node("ReduceMax", &["axes"]), 18).unwrap_err().contains("up to opset 17"));
        assert!(check(&node("ReduceMax", &["noop_with_empty_axes"]), 17).unwrap_err().contains("from opset 18"));
        assert!(
            check(&node("Softmax", &["axis", "axes"]), 13)
                .unwrap_err()
                .ends_with("`axes`: there are axis; did you mean `axis`?")
        );
        assert!(check(&node("Relu", &["alpha"]), 14).unwrap_err().ends_with("`alpha`: there are none"));
        assert!(check(&node("Conv", &["pads", "pads"]), 11).unwrap_err().contains("twice"));
    }
}
