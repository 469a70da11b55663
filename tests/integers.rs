//! Integers of all widths in programs: every operation, comparison, reduction and conversion on edges and random values,
//! held to the scalar definitions, on every target of this processor. Floats on their way to integers: quotients by constants,
//! and what is quantised and made a float again.

mod common;

use common::host_targets;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::internal::expr::scalar::{Value, binary, cast, compare, unary};
use tilewright::internal::expr::{BinaryOp, CompareOp, UnaryOp};
use tilewright::internal::language;
use tilewright::{DType, Model, Options, Session, Target, Tensor};

const INTEGERS: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];

fn tensor(dtype: DType, values: &[Value]) -> Tensor {
    let mut tensor = Tensor::zeros(dtype, &[values.len() as i64]);
    for (bytes, v) in tensor.data.chunks_exact_mut(dtype.bytes()).zip(values) {
        v.store(bytes);
    }
    tensor
}

fn values(tensor: &Tensor) -> Vec<Value> {
    tensor.data.chunks_exact(tensor.dtype.bytes()).map(|b| Value::load(tensor.dtype, b)).collect()
}

/// The outputs of a program on each target.
fn run(text: &str, inputs: &[(&str, &Tensor)]) -> Vec<Vec<Tensor>> {
    let model = Model::from_program(language::parse("integers.tile", text).unwrap(), None, None).unwrap();
    let dims = BTreeMap::from([("N".to_string(), inputs[0].1.shape[0])]);
    let compiled = host_targets().into_iter().chain(Target::host()).map(|target| {
        let options = Options { target: Some(target), dims: dims.clone(), ..Options::default() };
        let module = model.compile_module(&options).unwrap_or_else(|e| panic!("{text}\n{e}")).0;
        Session::new(Arc::new(module), 1).unwrap().run(inputs).unwrap()
    });
    compiled.collect()
}

/// Edges of the type and of those half as wide, small numbers, and others spread over all magnitudes.
fn samples(dtype: DType, seed: u64) -> Vec<Value> {
    let mut bits: Vec<i64> = (-3..=70).collect();
    for shift in [7, 8, 15, 16, 31, 32, 62, 63] {
        bits.extend((-2..=1).map(|d| (1i64 << shift).wrapping_add(d)));
    }
    let mut rng = StdRng::seed_from_u64(seed);
    bits.extend((0..331).map(|i| rng.random::<i64>() >> (i % 63)));
    // pairs of neighbours differ between two seeds
    let turn = seed as usize % bits.len();
    bits.rotate_left(turn);
    bits.into_iter().map(|v| Value::from_i64(dtype, v)).collect()
}

#[test]
fn operations_of_two_integers() {
    let functions = ["min", "max", "bit_and", "bit_or", "bit_xor", "shl", "shr"];
    let signs = ["+", "-", "*", "/", "%"];
    let comparisons = ["<", "<=", "==", "!="];
    for dtype in INTEGERS {
        let (x, y) = (samples(dtype, 1), samples(dtype, 77));
        let (tx, ty) = (tensor(dtype, &x), tensor(dtype, &y));
        let mut rows: Vec<(String, Box<dyn Fn(Value, Value) -> Value>)> = vec![];
        for (name, op) in functions.iter().zip([
            BinaryOp::Min,
            BinaryOp::Max,
            BinaryOp::And,
            BinaryOp::Or,
            BinaryOp::Xor,
            BinaryOp::ShiftLeft,
            BinaryOp::ShiftRight,
        ]) {
            rows.push((format!("{name}(X(i), Y(i))"), Box::new(move |a, b| binary(op, a, b).unwrap())));
        }
        let arithmetic = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Mod];
        for (sign, op) in signs.iter().zip(arithmetic) {
            rows.push((format!("X(i) {sign} Y(i)"), Box::new(move |a, b| binary(op, a, b).unwrap())));
        }
        for (sign, op) in comparisons.iter().zip([CompareOp::Lt, CompareOp::Le, CompareOp::Eq, CompareOp::Ne]) {
            let text = format!("select(X(i) {sign} Y(i), X(i), Y(i))");
            let f = move |a, b| if compare(op, a, b).unwrap().is_true() { a } else { b };
            rows.push((text, Box::new(f)));
        }
        for (text, op) in [
            ("-X(i)", UnaryOp::Neg),
            ("abs(X(i))", UnaryOp::Abs),
            ("bit_not(X(i))", UnaryOp::Not),
            ("popcount(X(i))", UnaryOp::CountOnes),
        ] {
            rows.push((text.into(), Box::new(move |a, _| unary(op, a).unwrap())));
        }
        for (text, wanted) in rows {
            let program = format!("def p({dtype}(N) X, {dtype}(N) Y) -> (Z) {{ Z(i) = {text} }}");
            for outputs in run(&program, &[("X", &tx), ("Y", &ty)]) {
                for ((&a, &b), got) in x.iter().zip(&y).zip(values(&outputs[0])) {
                    assert_eq!(got, wanted(a, b), "{dtype} {text} of {a:?} and {b:?}");
                }
            }
        }
    }
}

#[test]
fn conversions_of_integers_to_every_type() {
    for from in INTEGERS {
        let x = samples(from, 1);
        let tx = tensor(from, &x);
        for to in INTEGERS.into_iter().chain([DType::F64, DType::F32, DType::Bool]).filter(|to| *to != from) {
            let program = format!("def p({from}(N) X) -> (Z) {{ Z(i) = {to}(X(i)) }}");
            for outputs in run(&program, &[("X", &tx)]) {
                for (&a, got) in x.iter().zip(values(&outputs[0])) {
                    assert_eq!(got, cast(to, a), "{a:?} to {to}");
                }
            }
        }
    }
}

#[test]
fn conversions_of_floats_to_integers() {
    let mut numbers = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.99, -0.99, 1.5, -1.5];
    for shift in [7, 8, 15, 16, 24, 31, 32, 52, 62, 63, 64, 70] {
        let edge = 2f64.powi(shift);
        numbers.extend([edge, -edge, edge - 1.0, edge + 1.0, 1.0 - edge, edge * 0.75, edge * 1.25]);
    }
    for from in [DType::F64, DType::F32] {
        let x: Vec<Value> = numbers.iter().map(|&v| Value::from_f64(from, v)).collect();
        let tx = tensor(from, &x);
        for to in INTEGERS {
            let program = format!("def p({from}(N) X) -> (Z) {{ Z(i) = {to}(X(i)) }}");
            for outputs in run(&program, &[("X", &tx)]) {
                for (&a, got) in x.iter().zip(values(&outputs[0])) {
                    assert_eq!(got, cast(to, a), "{a:?} to {to}");
                }
            }
        }
    }
}

#[test]
fn reductions_of_integers() {
    for dtype in INTEGERS {
        let x = samples(dtype, 5);
        let tx = tensor(dtype, &x);
        for (update, op) in [("+=!", BinaryOp::Add), ("min=!", BinaryOp::Min), ("max=!", BinaryOp::Max)] {
            let program = format!("def p({dtype}(N) X) -> (Z) {{ Z() {update} X(i) }}");
            let wanted = x[1..].iter().fold(x[0], |a, &b| binary(op, a, b).unwrap());
            for outputs in run(&program, &[("X", &tx)]) {
                assert_eq!(values(&outputs[0])[0], wanted, "{dtype} {update}");
            }
        }
    }
}

/// Elements two and four apart, which are read as neighbours and separated.
#[test]
fn reductions_of_interleaved_integers() {
    for dtype in INTEGERS {
        for apart in [2, 4] {
            let mut x = samples(dtype, 5);
            x.truncate(x.len() / apart * apart);
            let mut tx = tensor(dtype, &x);
            tx.shape = vec![(x.len() / apart) as i64, apart as i64];
            for (update, op) in [("+=!", BinaryOp::Add), ("max=!", BinaryOp::Max)] {
                let program = format!("def p({dtype}(N, {apart}) X) -> (Z) {{ Z(i) {update} X(i, s) }}");
                for outputs in run(&program, &[("X", &tx)]) {
                    for (row, got) in x.chunks_exact(apart).zip(values(&outputs[0])) {
                        let wanted = row[1..].iter().fold(row[0], |a, &b| binary(op, a, b).unwrap());
                        assert_eq!(got, wanted, "{dtype} {update} of {apart}: {row:?}");
                    }
                }
            }
        }
    }
}

/// Numbers of all sizes, whole ones, halves, and those that are none.
fn floats() -> Vec<f32> {
    let mut all =
        vec![0.0, -0.0, f32::INFINITY, -f32::INFINITY, f32::NAN, -f32::NAN, 1e30, -1e30, 254.5, 255.5, -128.5, 127.5];
    all.extend((-70000..70000).step_by(37).map(|i| i as f32 / 2.0));
    all.extend((-3000..3000).map(|i| i as f32 * 0.1004));
    let mut rng = StdRng::seed_from_u64(7);
    // all mantissas, exponents in the middle
    all.extend((0..20_000).map(|i| f32::from_bits(rng.random::<u32>() & 0x807f_ffff | ((64 + i % 128) << 23))));
    all
}

/// Equal numbers, zeros of equal signs, or no numbers both.
fn same(a: f64, b: f64) -> bool {
    a == b && a.is_sign_negative() == b.is_sign_negative() || a.is_nan() && b.is_nan()
}

/// Subnormal numbers are zeros of their signs in kernels.
fn flushed(v: f64, least: f64) -> f64 {
    if v.abs() < least { 0f64.copysign(v) } else { v }
}

#[test]
fn quotients_by_constants_are_rounded_once() {
    let mut x = floats();
    x.extend([1e-45, -1e-45, f32::MIN_POSITIVE / 2.0, -f32::MIN_POSITIVE / 2.0, f32::MAX, -f32::MAX]);
    for divisor in [0.03f32, -0.03, 3.0, -7.1, 1.9999999, 1e-9, -1e-9, 12345.678, 8.0, -8.0, 1e17, -1e17, 1e25, 1e-30] {
        let text = format!("def p(f32(N) X) -> (Y) {{ Y(i) = X(i) / f32({divisor:e}) }}");
        for y in run(&text, &[("X", &Tensor::new(&[x.len() as i64], &x))]) {
            for (&x, y) in x.iter().zip(y[0].to_vec::<f32>()) {
                let least = f32::MIN_POSITIVE.into();
                let wanted = flushed((flushed(x.into(), least) as f32 / divisor).into(), least);
                assert!(same(y.into(), wanted), "{x:e} / {divisor:e} is {wanted:e}, not {y:e}");
            }
        }
    }
    let mut x: Vec<f64> = x.iter().map(|&v| f64::from(v) * 1.000000123456789).collect();
    x.extend([5e-324, -5e-324, f64::MIN_POSITIVE / 2.0, -f64::MIN_POSITIVE / 2.0, f64::MAX, -f64::MAX]);
    for divisor in [0.03, -0.03, 3.0, -7.1, 1.9999999999999998, 1e-90, -1e90] {
        let text = format!("def p(f64(N) X) -> (Y) {{ Y(i) = X(i) / {divisor:e} }}");
        for y in run(&text, &[("X", &Tensor::new(&[x.len() as i64], &x))]) {
            for (&x, y) in x.iter().zip(y[0].to_vec::<f64>()) {
                let wanted = flushed(flushed(x, f64::MIN_POSITIVE) / divisor, f64::MIN_POSITIVE);
                assert!(same(y, wanted), "{x:e} / {divisor:e} is {wanted:e}, not {y:e}");
            }
        }
    }
}

#[test]
fn floats_that_are_narrowed_and_widened() {
    let x = floats();
    for (dtype, low, high) in [("u8", 0, 255), ("i8", -128, 127), ("u16", 0, 65535), ("i16", -32768, 32767)] {
        let clamped = format!("min(max(round(x), {low}.0), {high}.0)");
        // clamped to another range, to that of the type, by the conversion alone
        for inner in [format!("min(max(round(x), {low}.0), 100.0)"), clamped, "round(x) + 3.0".into(), "x".into()] {
            let value = inner.replace('x', "X(i)").replace("maX(i)", "max");
            let text = format!("def p(f32(N) X) -> (Y, Z) {{ Y(i) = f32({dtype}({value}))  Z(i) = {dtype}({value}) }}");
            for outputs in run(&text, &[("X", &Tensor::new(&[x.len() as i64], &x))]) {
                let (y, z) = (outputs[0].to_vec::<f32>(), values(&outputs[1]));
                for (i, &x) in x.iter().enumerate() {
                    let rounded = x.round_ties_even();
                    let number = match inner.as_str() {
                        "x" => x,
                        "round(x) + 3.0" => rounded + 3.0,
                        other => {
                            let most = if other.ends_with("100.0)") { 100.0 } else { high as f32 };
                            // not-a-number stays what it is
                            if x.is_nan() { x } else { rounded.clamp(low as f32, most) }
                        }
                    };
                    let wanted =
                        (if number.is_nan() { 0.0 } else { number }).clamp(low as f32, high as f32).trunc() + 0.0;
                    assert_eq!(
                        y[i].to_bits(),
                        wanted.to_bits(),
                        "f32({dtype}({inner})) of {x:e}: {} not {wanted}",
                        y[i]
                    );
                    assert_eq!(z[i].as_f64(), f64::from(wanted), "{dtype}({inner}) of {x:e}");
                }
            }
        }
    }
}

#[test]
fn quotients_and_remainders_by_constants() {
    let divisors = [1, -1, 2, -64, 3, -9, 7, 100, 255, 32767, -32768, 65535, 1_000_003, i32::MAX as i64, 1 << 40];
    for dtype in INTEGERS {
        let x = samples(dtype, 9);
        let tx = tensor(dtype, &x);
        for divisor in divisors {
            let by = Value::from_i64(dtype, divisor);
            if by.as_i64() != divisor {
                continue;
            }
            let program = format!(
                "def p({dtype}(N) X) -> (Q, R, F) {{ Q(i) = X(i) / {divisor} R(i) = X(i) % {divisor} F(i) = f32(X(i) / {divisor}) }}"
            );
            for outputs in run(&program, &[("X", &tx)]) {
                for (&a, got) in x.iter().zip(values(&outputs[2])) {
                    let wanted = cast(DType::F32, binary(BinaryOp::Div, a, by).unwrap());
                    assert_eq!(got.as_f64(), wanted.as_f64(), "f32({dtype} {a:?} / {divisor})");
                }
                for (output, op) in outputs.iter().zip([BinaryOp::Div, BinaryOp::Mod]) {
                    for (&a, got) in x.iter().zip(values(output)) {
                        assert_eq!(got, binary(op, a, by).unwrap(), "{dtype} {a:?} {op:?} {divisor}");
                    }
                }
            }
        }
    }
}

/// Values that are computed in wider types and stored in narrow ones: lanes of 8 or 16 bits give the same, where they do.
#[test]
fn narrow_results_of_wide_operations() {
    type Meaning = fn(i64, i64) -> i64;
    let cases: [(&str, Meaning); 9] = [
        ("i32(X(i)) + i32(Y(i)) * 3", |a, b| a + b * 3),
        ("max(-100, min(100, i32(X(i)) - i32(Y(i))))", |a, b| (a - b).clamp(-100, 100)),
        ("shr(i32(X(i)) + i32(Y(i)) + 1, 1)", |a, b| (a + b + 1) >> 1),
        ("abs(i32(X(i)) - i32(Y(i)))", |a, b| (a - b).abs()),
        ("(i32(X(i)) + i32(Y(i)) + 5) / 9", |a, b| (a + b + 5) / 9),
        ("(i32(X(i)) - i32(Y(i))) % 10", |a, b| (a - b).rem_euclid(10)),
        ("select(i32(X(i)) * 2 < i32(Y(i)), i32(X(i)), i32(Y(i)) + 1)", |a, b| if a * 2 < b { a } else { b + 1 }),
        ("shr(i32(X(i)) * i32(Y(i)), 7)", |a, b| i64::from((a * b) as i32) >> 7),
        ("bit_and(bit_not(i32(X(i))), 60) - i32(Y(i))", |a, b| (!a & 60) - b),
    ];
    for dtype in [DType::U8, DType::I8, DType::U16, DType::I16] {
        let (x, y) = (samples(dtype, 1), samples(dtype, 77));
        let (tx, ty) = (tensor(dtype, &x), tensor(dtype, &y));
        for (text, meaning) in cases {
            for to in [DType::U8, DType::I8, DType::U16, DType::I16] {
                let program = format!("def p({dtype}(N) X, {dtype}(N) Y) -> (Z) {{ Z(i) = {to}({text}) }}");
                for outputs in run(&program, &[("X", &tx), ("Y", &ty)]) {
                    for ((&a, &b), got) in x.iter().zip(&y).zip(values(&outputs[0])) {
                        let wanted = meaning(a.as_i64(), b.as_i64()) as i32;
                        assert_eq!(got, Value::from_i64(to, wanted.into()), "{to}({text}) of {a:?} and {b:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn tables_of_bytes_beside_other_integers() {
    let places = samples(DType::U8, 5);
    let (x, w) = (tensor(DType::U8, &places), samples(DType::U16, 9));
    let (words, count) = (tensor(DType::U16, &w), places.len());
    for dtype in [DType::U8, DType::I8] {
        let table: Vec<Value> = (0..256).map(|k| Value::from_i64(dtype, k * k + 7 * k - 3)).collect();
        // in lanes of 8 bits, beside sums in lanes of 16, and beside floats
        let program = format!(
            "loop p(N) {{ in u8 X[N] in {dtype} T[256] in u16 W[N] out {dtype} A[N] out u16 B[N] out f32 C[N]
                for i in 0..N A[i] = T[X[i]]
                for i in 0..N B[i] = W[i] + u16(T[X[i]])
                for i in 0..N C[i] = f32(T[X[i]]) }}"
        );
        for outputs in run(&program, &[("X", &x), ("T", &tensor(dtype, &table)), ("W", &words)]) {
            let found = [0, 1, 2].map(|k| values(&outputs[k]));
            for i in 0..count {
                let element = table[places[i].as_i64() as usize];
                let total = binary(BinaryOp::Add, w[i], cast(DType::U16, element)).unwrap();
                let wanted = [element, total, cast(DType::F32, element)];
                assert_eq!([found[0][i], found[1][i], found[2][i]], wanted, "{dtype}, element {i}");
            }
        }
    }
}

#[test]
fn tables_of_fewer_bytes_at_parts_of_bytes() {
    let bytes = samples(DType::U8, 5);
    let (x, count) = (tensor(DType::U8, &bytes), bytes.len());
    for length in [16, 24, 32, 64, 128] {
        let table: Vec<Value> = (0..length).map(|k| Value::from_i64(DType::I8, 11 * k + k * k / 7 - 90)).collect();
        let (last, shift) = (length.min(1 << length.ilog2()) - 1, 8 - length.ilog2());
        let program = format!(
            "loop p(N) {{ in u8 X[N] in i8 T[{length}] out i8 A[N] out i8 B[N]
                for i in 0..N A[i] = T[bit_and(X[i], {last})]
                for i in 0..N B[i] = max(T[shr(X[i], {shift})], T[bit_and(X[i], {last})]) }}"
        );
        for outputs in run(&program, &[("X", &x), ("T", &tensor(DType::I8, &table))]) {
            let found = [0, 1].map(|k| values(&outputs[k]));
            for i in 0..count {
                let byte = bytes[i].as_i64();
                let (low, high) = (table[(byte & last) as usize], table[(byte >> shift) as usize]);
                let wanted = [low, binary(BinaryOp::Max, high, low).unwrap()];
                assert_eq!([found[0][i], found[1][i]], wanted, "{length} bytes, element {i}");
            }
        }
    }
}
