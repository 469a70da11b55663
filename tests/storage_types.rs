//! Conversions of storage types in machine code: every byte read, and numbers of all magnitudes written, on every target of
//! this processor, compared with a search for the nearest number.

mod common;

use common::host_targets;
use prost::Message;
use std::sync::Arc;
use tilewright::internal::expr::scalar::storage::{Fields, Special, canonical, decode, encode, integer};
use tilewright::internal::graph::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use tilewright::{DType, Model, Options, Session, Tensor};

/// The storage types, by ONNX's codes.
const TYPES: [(i64, DType); 10] = [
    (17, DType::F8E4M3Fn),
    (18, DType::F8E4M3FnUz),
    (19, DType::F8E5M2),
    (20, DType::F8E5M2FnUz),
    (21, DType::U4),
    (22, DType::I4),
    (23, DType::F4E2M1),
    (24, DType::F8E8M0),
    (25, DType::U2),
    (26, DType::I2),
];

/// A cast of `count` elements as a model.
fn model(from: i64, to: i64, count: i64, saturate: bool, mode: &str) -> Model {
    let value = |name: &str, code: i64| ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: code as i32,
                shape: Some(TensorShapeProto { dim: vec![DimensionProto { dim_value: Some(count), dim_param: None }] }),
            }),
            ..TypeProto::default()
        }),
    };
    let number = |name: &str, i: i64| AttributeProto { name: name.into(), i, r#type: 2, ..AttributeProto::default() };
    let mut node = NodeProto { op_type: "Cast".into(), ..NodeProto::default() };
    node.input = vec!["x".into()];
    node.output = vec!["y".into()];
    let text = AttributeProto { name: "round_mode".into(), s: mode.into(), r#type: 3, ..AttributeProto::default() };
    node.attribute = vec![number("to", to), number("saturate", saturate.into()), text];
    let graph = GraphProto {
        node: vec![node],
        input: vec![value("x", from)],
        output: vec![value("y", to)],
        ..GraphProto::default()
    };
    let proto = ModelProto {
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 25 }],
        ..ModelProto::default()
    };
    Model::parse(&proto.encode_to_vec(), "nowhere").unwrap()
}

/// The result on each target.
fn run(model: &Model, x: &Tensor) -> Vec<Tensor> {
    let results = host_targets().into_iter().map(|target| {
        let options = Options { target: Some(target), ..Options::default() };
        let module = Arc::new(model.compile_module(&options).unwrap().0);
        Session::new(module, 1).unwrap().run(&[("x", x)]).unwrap().remove(0)
    });
    results.collect()
}

#[test]
fn every_byte_is_read() {
    for (code, dtype) in TYPES {
        let bytes: Vec<u8> = (0..=255u8).map(|b| canonical(dtype, b)).collect();
        let x = Tensor { dtype, shape: vec![256], data: bytes.clone().into() };
        for y in run(&model(code, 1, 256, true, "up"), &x) {
            for (&byte, got) in bytes.iter().zip(y.to_vec::<f32>()) {
                let wanted = decode(dtype, byte) as f32;
                assert!(
                    got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(),
                    "{dtype} {byte:#x}: {got}"
                );
            }
        }
    }
}

/// The numbers of a type, what lies in the middle between them, their neighbours in f32, and numbers of all magnitudes.
fn samples(dtype: DType) -> Vec<f32> {
    let mut numbers: Vec<f32> = (0..=255).map(|b| decode(dtype, b) as f32).filter(|v| v.is_finite()).collect();
    numbers.sort_by(f32::total_cmp);
    numbers.dedup();
    let middles: Vec<f32> = numbers.windows(2).map(|w| ((f64::from(w[0]) + f64::from(w[1])) / 2.0) as f32).collect();
    let edge = numbers[numbers.len() - 1];
    numbers.extend(middles);
    numbers.extend([1.01f32, 1.0625, 1.07, 1.125, 1.25, 1.3, 1.5, 2.0, 100.0].map(|f| f * edge));
    let near = |v: &f32| [f32::from_bits(v.to_bits().wrapping_sub(1)), *v, f32::from_bits(v.to_bits() + 1)];
    let mut all: Vec<f32> = numbers.iter().flat_map(near).flat_map(|v| [v, -v]).collect();
    all.extend((0..4000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))));
    all.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0]);
    // subnormal numbers are zero in kernels
    all.retain(|v| !v.is_subnormal());
    all
}

/// The byte of a number that is not saturated: half a unit beyond the largest number begins what has no number.
fn unsaturated(fields: Fields, dtype: DType, v: f64) -> u8 {
    let largest = fields.largest();
    let (top, below) = (decode(dtype, largest), decode(dtype, largest - 1));
    let limit = top + (top - below) / 2.0;
    let beyond = v.abs() > limit || v.abs() == limit && largest & 1 == 1;
    match (beyond, fields.special) {
        (true, Special::Ieee) => (largest + 1) | if v < 0.0 { 0x80 } else { 0 },
        (true, Special::AllOnes | Special::NegativeZero) => fields.nan().unwrap(),
        _ => encode(dtype, v),
    }
}

#[test]
fn floats_are_rounded_to_the_nearest_number() {
    for (code, dtype) in TYPES.into_iter().filter(|t| t.1 != DType::F8E8M0) {
        let Some(fields) = Fields::of(dtype) else { continue };
        let values = samples(dtype);
        let x = Tensor::new(&[values.len() as i64], &values);
        for saturate in [true, false] {
            for y in run(&model(1, code, values.len() as i64, saturate, "up"), &x) {
                for (&v, &got) in values.iter().zip(&y.data[..]) {
                    let v = f64::from(v);
                    let wanted = if saturate { encode(dtype, v) } else { unsaturated(fields, dtype, v) };
                    let none = decode(dtype, got).is_nan() && decode(dtype, wanted).is_nan();
                    assert!(got == wanted || none, "{dtype} {saturate}: {v} is {got:#x}, not {wanted:#x}");
                }
            }
        }
    }
}

#[test]
fn powers_of_two_are_rounded_as_asked() {
    let values: Vec<f32> = samples(DType::F8E8M0).into_iter().filter(|v| *v != 0.0).collect();
    let x = Tensor::new(&[values.len() as i64], &values);
    for (mode, saturate) in [("up", true), ("up", false), ("down", true), ("nearest", true), ("nearest", false)] {
        for y in run(&model(1, 24, values.len() as i64, saturate, mode), &x) {
            for (&v, &got) in values.iter().zip(&y.data[..]) {
                if !v.is_finite() {
                    assert_eq!(got, 255, "{v}");
                    continue;
                }
                let a = f64::from(v.abs());
                let below = a.log2().floor() as i32;
                let below = if 2f64.powi(below) > a { below - 1 } else { below };
                let (low, high) = (2f64.powi(below), 2f64.powi(below + 1));
                let up = match mode {
                    "up" => a > low,
                    "nearest" => a - low >= high - a,
                    _ => false,
                };
                let most = if saturate { 254 } else { 255 };
                assert_eq!(i32::from(got), (below + 127 + i32::from(up)).min(most), "{mode} {saturate}: {v}");
            }
        }
    }
}

#[test]
fn small_integers_keep_their_low_bits() {
    let values: Vec<i32> = (-40..=40).chain([i32::MIN, i32::MAX, 1 << 20]).collect();
    let x = Tensor::new(&[values.len() as i64], &values);
    for (code, dtype) in TYPES.into_iter().filter(|t| integer(t.1).is_some()) {
        for y in run(&model(6, code, values.len() as i64, true, "up"), &x) {
            for (&v, &got) in values.iter().zip(&y.data[..]) {
                assert_eq!(got, canonical(dtype, v as u8), "{dtype} {v}");
            }
        }
    }
}
