//! The attributes that the standard gives each operator.
//!
//! In: a node of a known operator. Out: nothing, or an error that names an attribute that its operator does not have in
//! this operator set. An operator without a row has no attributes.

use crate::graph::proto::NodeProto;
use crate::runtime::error::unknown;

/// Fails when a node has an attribute that the standard does not know, or has it twice.
pub(super) fn check(node: &NodeProto, opset: i64) -> std::result::Result<(), String> {
    let row = TABLE.binary_search_by_key(&node.op_type.as_str(), |row| row.0);
    let row = row.map_or("", |i| TABLE[i].1);
    for (i, attribute) in node.attribute.iter().enumerate() {
        let name = &attribute.name;
        let entry = row.split(' ').find(|e| !e.is_empty() && e.split(':').next() == Some(name));
        let Some(entry) = entry else {
            return Err(unknown("attribute of the operator", name, &listed(row, opset)));
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

/// Sorted by operator: its attributes in operator sets 7 to 25. `name:first..last` is one of these sets only.
#[rustfmt::skip]
const TABLE: &[(&str, &str)] = &[
    ("ArgMax",                  "axis keepdims select_last_index:12.."),
    ("ArgMin",                  "axis keepdims select_last_index:12.."),
    ("AveragePool",             "auto_pad ceil_mode:10.. count_include_pad dilations:19.. kernel_shape pads strides"),
    ("BatchNormalization",      "epsilon momentum spatial:..8 training_mode:14.."),
    ("BitCast",                 "to"),
    ("BitShift",                "direction"),
    ("Cast",                    "round_mode:24.. saturate:19.. to"),
    ("CastLike",                "round_mode:24.. saturate:19.."),
    ("Celu",                    "alpha"),
    ("Clip",                    "max:..10 min:..10"),
    ("Concat",                  "axis"),
    ("Constant",                "sparse_value:11.. value value_float:12.. value_floats:12.. value_int:12.. value_ints:12.. value_string:12.. value_strings:12.."),
    ("ConstantOfShape",         "value"),
    ("Conv",                    "auto_pad dilations group kernel_shape pads strides"),
    ("ConvInteger",             "auto_pad dilations group kernel_shape pads strides"),
    ("ConvTranspose",           "auto_pad dilations group kernel_shape output_padding output_shape pads strides"),
    ("CumSum",                  "exclusive reverse"),
    ("DepthToSpace",            "blocksize mode:11.."),
    ("DequantizeLinear",        "axis:13.. block_size:21.. output_dtype:23.."),
    ("Dropout",                 "ratio:..11 seed:12.."),
    ("Elu",                     "alpha"),
    ("Flatten",                 "axis"),
    ("Gather",                  "axis"),
    ("GatherElements",          "axis"),
    ("GatherND",                "batch_dims:12.."),
    ("Gelu",                    "approximate"),
    ("Gemm",                    "alpha beta transA transB"),
    ("GroupNormalization",      "epsilon num_groups stash_type:21.."),
    ("HardSigmoid",             "alpha beta"),
    ("InstanceNormalization",   "epsilon"),
    ("IsInf",                   "detect_negative detect_positive"),
    ("LRN",                     "alpha beta bias size"),
    ("LayerNormalization",      "axis epsilon stash_type"),
    ("LeakyRelu",               "alpha"),
    ("LogSoftmax",              "axis"),
    ("LpNormalization",         "axis p"),
    ("MaxPool",                 "auto_pad ceil_mode:10.. dilations:10.. kernel_shape pads storage_order:8.. strides"),
    ("Mod",                     "fmod"),
    ("OneHot",                  "axis"),
    ("Pad",                     "mode pads:..10 value:..10"),
    ("QLinearConv",             "auto_pad dilations group kernel_shape pads strides"),
    ("QuantizeLinear",          "axis:13.. block_size:21.. output_dtype:21.. precision:23.. saturate:19.."),
    ("RMSNormalization",        "axis epsilon stash_type"),
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
    ("Reshape",                 "allowzero:14.."),
    ("Resize",                  "antialias:18.. axes:18.. coordinate_transformation_mode:11.. cubic_coeff_a:11.. exclude_outside:11.. extrapolation_value:11.. keep_aspect_ratio_policy:18.. mode nearest_mode:11.."),
    ("Selu",                    "alpha gamma"),
    ("Shape",                   "end:15.. start:15.."),
    ("Slice",                   "axes:..9 ends:..9 starts:..9"),
    ("Softmax",                 "axis"),
    ("SpaceToDepth",            "blocksize"),
    ("Split",                   "axis num_outputs:18.. split:..12"),
    ("Squeeze",                 "axes:..12"),
    ("Swish",                   "alpha"),
    ("ThresholdedRelu",         "alpha"),
    ("TopK",                    "axis k:..9 largest:11.. sorted:11.."),
    ("Transpose",               "perm"),
    ("Trilu",                   "upper"),
    ("Unsqueeze",               "axes:..12"),
    ("Upsample",                "mode scales:..8"),
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
            assert!(table::lookup(&node(name, &[]), i64::MAX).is_ok(), "{name}");
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
