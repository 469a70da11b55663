//! Every operator of the importer has an oracle: a stored case with the outputs of ONNX Runtime, or, where it lacks the operator, the
//! definition in plain Rust here.

mod common;
#[path = "files/onnx.rs"]
mod onnx;

use common::{fixtures, root};
use onnx::{FLOAT, graph, node, tensor};
use std::collections::BTreeSet;
use tilewright::internal::graph::import::catalogue;
use tilewright::internal::graph::proto::{AttributeProto, NodeProto};
use tilewright::{DType, Model, Options, Tensor};

/// Operators that are computed here.
const HERE: [&str; 8] = [
    "BitCast",
    "BitwiseOr",
    "QLinearSoftmax",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "SwiGLU",
    "Swish",
    "TransposeMatMul",
];

/// Operators whose results cannot be stored: random numbers, sequences and optionals, which have tests of their own and those of
/// ONNX's backend suite; and one that is converted as `NhwcConv`.
const ELSEWHERE: [&str; 19] = [
    "Bernoulli",
    "ConcatFromSequence",
    "Multinomial",
    "NhwcFusedConv",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SequenceMap",
    "SplitToSequence",
];

/// The operators of the nodes of all stored models: field 4 of a node, with its length.
fn stored() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in ["operators", "models"].iter().flat_map(|folder| fixtures(folder, "onnx")) {
        let data = std::fs::read(root().join(path)).unwrap();
        for (at, _) in data.iter().enumerate().filter(|(_, byte)| **byte == 4 << 3 | 2) {
            let Some(&length) = data.get(at + 1) else { continue };
            let name = data.get(at + 2..at + 2 + length as usize).unwrap_or_default();
            if !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric) {
                found.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    found
}

#[test]
fn every_operator_has_an_oracle() {
    let stored = stored();
    let lists: Vec<&str> = HERE.into_iter().chain(ELSEWHERE).collect();
    let known: BTreeSet<&str> = catalogue::operators().iter().map(|operator| operator.name).collect();
    let without: Vec<_> = known.iter().filter(|name| !stored.contains(**name) && !lists.contains(name)).collect();
    assert!(without.is_empty(), "without a case in tests/fixtures/cases.py: {without:?}");
    let idle: Vec<_> = lists.iter().filter(|name| stored.contains(**name) || !known.contains(*name)).collect();
    assert!(idle.is_empty(), "listed, but stored or unknown: {idle:?}");
}

/// The type of an element as ONNX numbers it.
fn number(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => FLOAT,
        DType::U8 => 2,
        DType::I32 => 6,
        other => panic!("no test has {other}"),
    }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f, r#type: 1, ..AttributeProto::default() }
}

fn integer(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: 2, ..AttributeProto::default() }
}

/// The result, in `dtype`, of one node of this operator set.
fn result(
    (op, domain, opset): (&str, &str, i64),
    attribute: Vec<AttributeProto>,
    inputs: &[&Tensor],
    dtype: DType,
) -> Tensor {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let specs = names.iter().zip(inputs).map(|(name, t)| {
        let shape: Vec<String> = t.shape.iter().map(i64::to_string).collect();
        let shape: Vec<&str> = shape.iter().map(String::as_str).collect();
        tensor(name, number(t.dtype), Some(&shape))
    });
    let made = NodeProto { domain: domain.into(), attribute, ..node(op, &names, &["y"]) };
    let file = graph(specs.collect(), vec![], vec![made], vec![tensor("y", number(dtype), None)]);
    let given: Vec<(&str, &Tensor)> = names.iter().copied().zip(inputs.iter().copied()).collect();
    let model = Model::parse(&onnx::bytes(file, opset), "nowhere");
    let outputs = model.and_then(|model| model.compile(&Options::default())?.run(&given));
    outputs.unwrap_or_else(|e| panic!("{op}: {e}")).remove(0)
}

fn agrees(op: &str, found: &Tensor, expected: &[f64]) {
    let found = found.to_vec::<f32>();
    assert_eq!(found.len(), expected.len(), "{op}");
    for (f, e) in found.iter().zip(expected) {
        assert!((f64::from(*f) - e).abs() <= 1e-5 * e.abs().max(1.0), "{op}: {f}, not {e}");
    }
}

/// Elements as f64.
fn reals(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f32>().into_iter().map(f64::from).collect()
}

fn swish(alpha: f64) -> impl Fn(f64) -> f64 {
    move |x| x / (1.0 + (-alpha * x).exp())
}

#[test]
fn gates_are_products_with_sigmoids() {
    let [a, b] = [0, 1].map(|i| Tensor::seeded(DType::F32, &[3, 37], 5, i, 4));
    for alpha in [1.0, 0.5, 1.5] {
        let expected: Vec<f64> = reals(&a).into_iter().map(swish(alpha.into())).collect();
        agrees("Swish", &result(("Swish", "", 24), vec![float("alpha", alpha)], &[&a], DType::F32), &expected);
        let expected: Vec<f64> = expected.iter().zip(reals(&b)).map(|(x, y)| x * y).collect();
        agrees("SwiGLU", &result(("SwiGLU", "", 28), vec![float("alpha", alpha)], &[&a, &b], DType::F32), &expected);
    }
}

#[test]
fn norms_divide_by_the_root_of_the_mean_square() {
    let (x, scale) = (Tensor::seeded(DType::F32, &[5, 29], 7, 0, 2), Tensor::seeded(DType::F32, &[29], 7, 1, 2));
    let scales = reals(&scale);
    let normalized = |row: &[f64]| -> Vec<f64> {
        let root = (row.iter().map(|v| v * v).sum::<f64>() / 29.0 + 0.01).sqrt();
        row.iter().zip(&scales).map(|(v, s)| v / root * s).collect()
    };
    let expected: Vec<f64> = reals(&x).chunks(29).flat_map(normalized).collect();
    for (op, domain, opset) in [
        ("RMSNormalization", "", 23),
        ("SimplifiedLayerNormalization", "", 17),
        ("SimplifiedLayerNormalization", "com.microsoft", 17),
    ] {
        let found = result((op, domain, opset), vec![float("epsilon", 0.01)], &[&x, &scale], DType::F32);
        agrees(op, &found, &expected);
    }
}

#[test]
fn integers_keep_their_bits() {
    let [a, b] = [[-7, 12, 1 << 30, 0], [5, -16, 3, -1]].map(|v: [i32; 4]| Tensor::new(&[4], &v));
    let either = result(("BitwiseOr", "", 18), vec![], &[&a, &b], DType::I32);
    assert_eq!(either.to_vec::<i32>(), [-7 | 5, 12 | -16, 1 << 30 | 3, -1]);
    let bits = Tensor::new(&[2], &[0x3fc0_0000i32, i32::MIN]);
    let floats = result(("BitCast", "", 26), vec![integer("to", 1)], &[&bits], DType::F32).to_vec::<f32>();
    assert_eq!(floats.iter().map(|v| v.to_bits()).collect::<Vec<u32>>(), [0x3fc0_0000, 1 << 31]);
}

#[test]
fn a_product_of_a_turned_operand_is_scaled() {
    let (a, b) = (Tensor::seeded(DType::F32, &[6, 5], 9, 0, 2), Tensor::seeded(DType::F32, &[6, 7], 9, 1, 2));
    let (x, y) = (reals(&a), reals(&b));
    let element = |m: usize, n: usize| (0..6).map(|k| x[5 * k + m] * y[7 * k + n]).sum::<f64>() * 0.5;
    let expected: Vec<f64> = (0..35).map(|i| element(i / 7, i % 7)).collect();
    let attributes = vec![integer("transA", 1), float("alpha", 0.5)];
    let found = result(("TransposeMatMul", "com.microsoft", 17), attributes, &[&a, &b], DType::F32);
    agrees("TransposeMatMul", &found, &expected);
}

#[test]
fn a_quantised_softmax_is_that_of_the_numbers() {
    let codes: Vec<u8> = (0..24).map(|i| (i * 37 % 256) as u8).collect();
    let [zero, none] = [100u8, 0].map(|code| Tensor::new(&[], &[code]));
    let [scale, unit] = [0.05f32, 1.0 / 256.0].map(|scale| Tensor::new(&[], &[scale]));
    let inputs = [&Tensor::new(&[2, 12], &codes), &scale, &zero, &unit, &none];
    let attributes = vec![integer("axis", 1), integer("opset", 13)];
    let found = result(("QLinearSoftmax", "com.microsoft", 17), attributes, &inputs, DType::U8).to_vec::<u8>();
    for (row, found) in codes.chunks(12).zip(found.chunks(12)) {
        let powers: Vec<f64> = row.iter().map(|&c| ((f64::from(c) - 100.0) * 0.05).exp()).collect();
        let sum: f64 = powers.iter().sum();
        for (p, &code) in powers.iter().zip(found) {
            assert!((p / sum * 256.0 - f64::from(code)).abs() <= 0.51, "{} is {code}", p / sum * 256.0);
        }
    }
}
