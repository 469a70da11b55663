//! Messages of tensors, types and attributes with chosen contents.

use super::choices::Choices;
use tilewright::internal::graph::proto::*;

/// Codes of element types, the usual ones more than once.
pub const TYPES: [i32; 24] = [1, 1, 1, 1, 1, 1, 7, 7, 6, 9, 9, 2, 3, 4, 5, 10, 11, 12, 13, 16, 17, 21, 22, 25];

/// An extent: small, at times 0.
pub fn extent(c: &mut Choices) -> i64 {
    c.pick(&[1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 0])
}

/// A shape of at most a few thousand elements.
pub fn shape(c: &mut Choices) -> Vec<i64> {
    let rank = c.pick(&[0, 1, 2, 2, 3, 3, 4, 4, 4, 5]);
    let mut shape: Vec<i64> = (0..rank).map(|_| extent(c)).collect();
    while shape.iter().map(|&d| d.max(1)).product::<i64>() > 2000 {
        let at = c.below(rank);
        shape[at] = 1;
    }
    shape
}

fn bytes_of(code: i32) -> usize {
    match code {
        7 | 11 | 13 => 8,
        1 | 6 | 12 => 4,
        4 | 5 | 10 | 16 => 2,
        _ => 1,
    }
}

/// A tensor with elements of this type: mostly near 0, finite.
pub fn tensor(c: &mut Choices, name: &str, code: i32, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>().max(0) as usize;
    let mut tensor = TensorProto { name: name.into(), data_type: code, dims: dims.to_vec(), ..TensorProto::default() };
    let mut bytes: Vec<u8> = vec![];
    for _ in 0..count {
        let v = c.between(-8, 8);
        match code {
            1 => bytes.extend((v as f32 / 8.0 + 0.01).to_le_bytes()),
            11 => bytes.extend((v as f64 / 8.0 + 0.01).to_le_bytes()),
            // halves: 1.xxx with either sign, or 0
            10 => bytes.extend((0x3800u16 + (v.unsigned_abs() as u16) * 37).to_le_bytes()),
            16 => bytes.extend((0x3f00u16 + v.unsigned_abs() as u16 * 5).to_le_bytes()),
            9 => bytes.push((v > 0) as u8),
            2 | 4 | 12 | 13 => bytes.extend(&v.unsigned_abs().to_le_bytes()[..bytes_of(code)]),
            21..=23 => bytes.extend((bytes.len() * 2 < count).then_some(v as u8)),
            25 | 26 => bytes.extend((bytes.len() * 4 < count).then_some(v as u8)),
            _ => bytes.extend(&v.to_le_bytes()[..bytes_of(code)]),
        }
    }
    tensor.raw_data = bytes.into();
    tensor
}

/// A vector of integers.
pub fn integers(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    let raw_data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    TensorProto { name: name.into(), data_type: 7, dims: dims.to_vec(), raw_data, ..TensorProto::default() }
}

/// The declaration of a value; `None` leaves its type open.
pub fn declared(name: &str, ty: Option<(i32, &[i64])>) -> ValueInfoProto {
    let tensor_type = ty.map(|(elem_type, shape)| {
        let dim = shape.iter().map(|&d| DimensionProto { dim_value: Some(d), dim_param: None }).collect();
        TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) }
    });
    let r#type = tensor_type.map(|t| TypeProto { tensor_type: Some(t), ..TypeProto::default() });
    ValueInfoProto { name: name.into(), r#type }
}

fn string(name: &str, value: &str) -> AttributeProto {
    AttributeProto { name: name.into(), s: value.into(), r#type: 3, ..AttributeProto::default() }
}

fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i: value, r#type: 2, ..AttributeProto::default() }
}

fn vector(name: &str, value: Vec<i64>) -> AttributeProto {
    AttributeProto { name: name.into(), ints: value, r#type: 7, ..AttributeProto::default() }
}

const MODES: [&str; 22] = [
    "linear",
    "nearest",
    "cubic",
    "constant",
    "reflect",
    "edge",
    "wrap",
    "DCR",
    "CRD",
    "avg",
    "max",
    "bilinear",
    "zeros",
    "border",
    "reflection",
    "none",
    "add",
    "mul",
    "min",
    "mean",
    "sum",
    "circular",
];

/// A value for the attribute of this name, near to what operands of `rank` dimensions make sense of.
pub fn attribute(c: &mut Choices, name: &str, rank: i64) -> AttributeProto {
    let spatial = (rank - 2).max(1) as usize;
    if c.chance(3) {
        return integer(name, c.integer());
    }
    let few = |c: &mut Choices, count: usize, low, high| (0..count).map(|_| c.between(low, high)).collect();
    match name {
        "axis" | "batch_axis" | "time_axis" | "batch_dims" | "start" | "end" => integer(name, c.between(-rank, rank)),
        "perm" => {
            let mut perm: Vec<i64> = (0..rank).collect();
            (1..rank as usize).rev().for_each(|i| perm.swap(i, c.below(i + 1)));
            vector(name, perm)
        }
        "axes" => {
            let mut axes: Vec<i64> = (0..rank).collect();
            axes.retain(|_| c.chance(50));
            vector(name, axes)
        }
        "kernel_shape" | "strides" | "dilations" | "output_shape" | "pooled_shape" => {
            vector(name, few(c, spatial, 1, 3))
        }
        "pads" if rank > 2 => vector(name, few(c, 2 * spatial, 0, 1)),
        "output_padding" => vector(name, few(c, spatial, 0, 1)),
        "shape" | "split" | "starts" | "ends" | "hidden_size" => {
            let count = c.below(4);
            vector(name, few(c, count, 0, 5))
        }
        "to" | "dtype" | "output_dtype" | "output_datatype" | "stash_type" => integer(name, c.pick(&TYPES).into()),
        "group" | "num_groups" | "num_outputs" | "blocksize" | "block_size" | "p" | "size" | "num_heads" => {
            integer(name, c.between(1, 4))
        }
        "alpha"
        | "beta"
        | "gamma"
        | "epsilon"
        | "bias"
        | "lambd"
        | "mean"
        | "scale"
        | "high"
        | "low"
        | "min"
        | "max"
        | "spatial_scale"
        | "extrapolation_value"
        | "cubic_coeff_a"
        | "softcap"
        | "ratio"
        | "momentum"
        | "clip" => {
            let f = c.pick(&[0.5, 1.0, 0.1, 2.0, -0.5, 0.0, 1e-5]);
            AttributeProto { name: name.into(), f, r#type: 1, ..AttributeProto::default() }
        }
        "mode" | "padding_mode" | "reduction" => string(name, c.pick(&MODES)),
        "auto_pad" => string(name, c.pick(&["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])),
        "direction" => string(name, c.pick(&["LEFT", "RIGHT", "forward", "reverse", "bidirectional"])),
        "approximate" => string(name, c.pick(&["none", "tanh"])),
        "nearest_mode" => string(name, c.pick(&["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])),
        "coordinate_transformation_mode" => string(
            name,
            c.pick(&["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]),
        ),
        "equation" => {
            string(name, c.pick(&["ij->ji", "ij,jk->ik", "...ij->...ji", "ii->i", "i,j->ij", "bij,bjk->bik"]))
        }
        "value" => {
            let code = c.pick(&TYPES);
            let t = Some(tensor(c, "", code, &[1]));
            AttributeProto { name: name.into(), t, r#type: 4, ..AttributeProto::default() }
        }
        _ => integer(name, c.between(0, 1)),
    }
}
