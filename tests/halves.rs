//! f16 and bf16 in programs: every bit pattern widened, rounding to nearest even, arithmetic that is rounded after each
//! operation, neighbours, strides and subscripts from data, on every target of this processor.

mod common;

use common::host_targets;
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::DType;
use tilewright::internal::expr::scalar::number::{f16_to_f32, f32_to_bf16, f32_to_f16};
use tilewright::internal::language;
use tilewright::{Model, Options, Session, Tensor};

/// One of the two types, by its conversions.
#[derive(Clone, Copy)]
struct Half {
    dtype: DType,
    widen: fn(u16) -> f32,
    narrow: fn(f32) -> u16,
}

const HALVES: [Half; 2] = [
    Half { dtype: DType::F16, widen: f16_to_f32, narrow: f32_to_f16 },
    Half { dtype: DType::BF16, widen: |bits| f32::from_bits(u32::from(bits) << 16), narrow: f32_to_bf16 },
];

impl Half {
    fn tensor(self, bits: &[u16]) -> Tensor {
        let data: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        Tensor { dtype: self.dtype, shape: vec![bits.len() as i64], data: data.into() }
    }

    fn rounded(self, v: f32) -> f32 {
        (self.widen)((self.narrow)(v))
    }
}

fn bits(tensor: &Tensor) -> Vec<u16> {
    tensor.data.chunks(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect()
}

/// The output of a program on each target, with one thread and with two; `HALF` stands for the type.
fn run(half: Half, program: &str, inputs: &[(&str, &Tensor)]) -> Vec<Tensor> {
    let text = program.replace("HALF", half.dtype.name());
    let model = Model::from_program(language::parse("halves.tile", &text).unwrap(), None, None).unwrap();
    let dims = BTreeMap::from([("N".to_string(), inputs[0].1.shape[0])]);
    let mut outputs = vec![];
    for target in host_targets() {
        let options = Options { target: Some(target), dims: dims.clone(), ..Options::default() };
        let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{text}\n{e}")).0);
        for threads in [1, 2] {
            outputs.push(Session::new(module.clone(), threads).unwrap().run(inputs).unwrap().remove(0));
        }
    }
    outputs
}

/// Subnormal f32 count as zero in kernels.
fn flushed(v: f32) -> f32 {
    if v.is_subnormal() { 0.0f32.copysign(v) } else { v }
}

#[test]
fn every_pattern_is_widened() {
    for half in HALVES {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let x = half.tensor(&all);
        for y in run(half, "def p(HALF(N) X) -> (Y) { Y(i) = f32(X(i)) * 1.0 }", &[("X", &x)]) {
            for (bits, y) in all.iter().zip(y.to_vec::<f32>()) {
                let wanted = flushed((half.widen)(*bits));
                let same = y.to_bits() == wanted.to_bits() || y.is_nan() && wanted.is_nan();
                assert!(same, "{} {bits:#x}: {y}, not {wanted}", half.dtype);
            }
        }
    }
}

#[test]
fn conversions_round_to_nearest_even() {
    let mut values: Vec<f32> =
        vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 65504.0, 65519.9, 65520.0, -65536.0, 1e30];
    for i in 0..1u32 << 15 {
        values.push(f32::from_bits((i << 16) | 0x8000));
        values.push(f32::from_bits((i << 16) | i.wrapping_mul(2654435761) >> 16));
        values.push(f16_to_f32(i as u16) + f16_to_f32(i as u16) / 2048.0);
        values.push(-1.0 / 16777216.0 * i as f32 / 16.0);
    }
    values.retain(|v| !v.is_subnormal() && !v.is_nan());
    for half in HALVES {
        let x = Tensor::new(&[values.len() as i64], &values);
        for y in run(half, "def p(f32(N) X) -> (Y) { Y(i) = HALF(X(i)) }", &[("X", &x)]) {
            for (x, y) in values.iter().zip(bits(&y)) {
                let wanted = (half.narrow)(*x);
                assert_eq!(y, wanted, "{} {x:e}: {y:#x}, not {wanted:#x}", half.dtype);
            }
        }
    }
}

#[test]
fn each_operation_is_rounded() {
    for half in HALVES {
        for n in [1i64, 7, 16, 37, 1000] {
            let number = |i: i64, k: i64| half.rounded(((i * k) % 211 - 105) as f32 / 16.0);
            let x: Vec<f32> = (0..n).map(|i| number(i, 31)).collect();
            let y: Vec<f32> = (0..n).map(|i| number(i, 57)).collect();
            let tensor = |v: &[f32]| half.tensor(&v.iter().map(|&v| (half.narrow)(v)).collect::<Vec<u16>>());
            let program =
                "def p(HALF(N) X, HALF(N) Y) -> (Z) { Z(i) = max(X(i) * Y(N - 1 - i) + Y(i), sqrt(abs(X(i)))) }";
            let r = |v: f32| half.rounded(v);
            for z in run(half, program, &[("X", &tensor(&x)), ("Y", &tensor(&y))]) {
                for (i, z) in bits(&z).into_iter().enumerate() {
                    let sum = r(r(x[i] * y[y.len() - 1 - i]) + y[i]);
                    assert_eq!((half.widen)(z), sum.max(r(x[i].abs().sqrt())), "{} element {i} of {n}", half.dtype);
                }
            }
        }
    }
}

#[test]
fn strides_subscripts_from_data_and_sums() {
    for half in HALVES {
        let n = 45i64;
        let x: Vec<f32> = (0..n * n).map(|i| ((i * 7) % 61 - 30) as f32 / 8.0).collect();
        let index: Vec<i64> = (0..n).map(|i| (i * 13) % n).collect();
        let data: Vec<u8> = x.iter().flat_map(|&v| (half.narrow)(v).to_le_bytes()).collect();
        let x_half = Tensor { dtype: half.dtype, shape: vec![n, n], data: data.into() };
        let at = Tensor::new(&[n], &index);
        let at_x = |i: i64, j: i64| x[(i * n + j) as usize];
        let transposed = "def p(HALF(N, N) X, i64(N) I) -> (Y) { Y(i, j) = X(j, i) + X(I(i), j) }";
        for y in run(half, transposed, &[("X", &x_half), ("I", &at)]) {
            for (k, y) in (0..).zip(bits(&y)) {
                let (i, j) = (k / n, k % n);
                assert_eq!(y, (half.narrow)(at_x(j, i) + at_x(index[i as usize], j)), "{i} {j}");
            }
        }
        let product = "def p(HALF(N, N) X, i64(N) I) -> (Y) { Y(i, j) +=! f32(X(i, k)) * f32(X(k, I(j))) }";
        for y in run(half, product, &[("X", &x_half), ("I", &at)]) {
            for (k, y) in (0..).zip(y.to_vec::<f32>()) {
                let (i, j) = (k / n, k % n);
                let wanted: f32 = (0..n).map(|k| at_x(i, k) * at_x(k, index[j as usize])).sum();
                assert_eq!(y, wanted, "{i} {j}");
            }
        }
        let total = "loop p(N) { in HALF X[N][N]  in i64 I[N]  out HALF S
            S = HALF(0)
            for i in 0..N  S += X[i][i] }";
        for y in run(half, total, &[("X", &x_half), ("I", &at)]) {
            let wanted = (0..n).fold(0.0, |s, i| half.rounded(s + at_x(i, i)));
            let unit = if half.dtype == DType::F16 { 1024.0 } else { 128.0 };
            let bound = (0..n).map(|i| at_x(i, i).abs()).sum::<f32>() / unit;
            assert!(((half.widen)(bits(&y)[0]) - wanted).abs() <= bound, "{} {}", (half.widen)(bits(&y)[0]), wanted);
        }
    }
}
