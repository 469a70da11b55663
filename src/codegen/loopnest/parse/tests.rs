//! Tests of the text form of nests.

use crate::codegen::loopnest::{interpret, parse, print, verify};
use crate::runtime::{DType, Tensor};

const TEXT: &str = "kernel sample {
  X: f32[4][8] argument 0;
  I: i64[4] argument 1;
  Y: f32[4][8] strides [16][1] argument 2 written;
  P: f32[2][3] argument 3 = {1, 0, -1, 0.1, -0.0000001, 3000000000};
  D: f64[1][2] argument 4 = {-0, 0.1};
  acc: f32[8] local;
  parallel t in 0..4 {
    let h = floor((t + 1) / 2);
    let n = clamp(I[t], -3, 4) about floor((3*t + 1) / 2);
    for z in max(0, n - 1)..n {
      Y[t][z] add = f32(1.0);
    }
    vector i in 0..8 {
      acc[i] = f32(-0.5);
    }
    for r in max(0, ceil((-t + 1) / 2))..min(3, floor((t + 5) / 3)) step 2 {
      vector i#2 in 0..8 {
        acc[i#2] add = ((X[t + r - 1][i#2] if t + r - 1 >= 0 && -t - r + 4 >= 0 else f32(#7fc00000)) * f32(1e-7));
      }
    }
    if t - 2*h >= 0 {
      unroll i#3 in 0..8 {
        Y[t][i#3] = select(lt(X[@I[t]][i#3], f32(0.0)), max(acc[i#3], exp(f32(1.0))), cast f32(index(t + 3*i#3)));
      }
    }
  }
}
";

#[test]
fn text_survives_parsing_and_printing() {
    let nest = parse::nest(TEXT).unwrap();
    assert_eq!(print::nest(&nest), TEXT);
    assert_eq!(parse::nest(&print::nest(&nest)).unwrap(), nest);
    verify::verify(&nest).unwrap();
}

#[test]
fn wrong_text_is_refused_with_its_line() {
    for (from, to) in [("parallel", "parallell"), ("acc[i#2] add", "acc[i#2] plus"), ("X[t + r", "X[t + q"), ("};", "")]
    {
        if TEXT.contains(from) {
            let error = parse::nest(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains("line"), "{error}");
        }
    }
    for end in 0..TEXT.len() {
        assert!(parse::nest(&TEXT[..end]).is_err() || end + 1 == TEXT.len());
    }
}

#[test]
fn literals_are_as_many_finite_floats_as_elements() {
    for (text, reason) in [
        ("P: f32[2][3] argument 3 = {1, 0}", "literals"),
        ("P: f32[2][3] argument 3 = {1, 0, 1, 0, 1, 1e39}", "literals"),
        ("P: i32[2][1] argument 3 = {1, 0}", "literals"),
        ("P: f32[2][1] argument 3 written = {1, 0}", "literals"),
        ("P: f32[2][1] local = {1, 0}", "literals"),
        ("P: f32[2][1] argument 3 = {1 0}", "expected ,"),
        ("P: f32[2][1] argument 3 = {1, x}", "expected a number"),
    ] {
        let whole = format!("kernel k {{ {text}; }}");
        let error = parse::nest(&whole).and_then(|nest| verify::verify(&nest)).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_nest_with_a_subscript_outside_is_refused() {
    let wide = TEXT.replace("vector i in 0..8", "vector i in 0..9");
    let error = verify::verify(&parse::nest(&wide).unwrap()).unwrap_err();
    assert!(error.to_string().contains("0..=8, outside of 0..8"), "{error}");
    let twice = TEXT.replace("X[t + r - 1]", "X[t + r + 3]");
    let nest = parse::nest(&twice).unwrap();
    let mut arguments = [
        Tensor::zeros(DType::F32, &[4, 8]),
        Tensor::zeros(DType::I64, &[4]),
        Tensor::zeros(DType::F32, &[64]),
        Tensor::zeros(DType::F32, &[2, 3]),
        Tensor::zeros(DType::F64, &[1, 2]),
    ];
    let error = interpret::run(&nest, &mut arguments).unwrap_err();
    assert!(error.to_string().contains("subscript 0 of X is 4"), "{error}");
}

#[test]
fn the_interpreter_computes_a_matrix_product() {
    let text = "kernel gemm { A: f32[2][3] argument 0; B: f32[3][2] argument 1; C: f32[2][2] argument 2 written;
            parallel m in 0..2 { for n in 0..2 { C[m][n] = f32(0.0); for k in 0..3 {
                C[m][n] add = (A[m][k] * B[k][n]); } } } }";
    let a = Tensor::new(&[2, 3], &[1f32, 2., 3., 4., 5., 6.]);
    let b = Tensor::new(&[3, 2], &[1f32, 0., 0., 1., 1., 1.]);
    let mut arguments = [a, b, Tensor::zeros(DType::F32, &[2, 2])];
    interpret::run(&parse::nest(text).unwrap(), &mut arguments).unwrap();
    assert_eq!(arguments[2].to_vec::<f32>(), [4., 5., 10., 11.]);
}
