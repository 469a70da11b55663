//! Semantics of texts: tensor expressions against plain Rust, loop programs as the statements that they become.

use std::collections::BTreeMap;
use tilewright::DType;
use tilewright::Tensor;
use tilewright::internal::language::lowered::{Computation, LoweredProgram};
use tilewright::internal::language::parser::parse;
use tilewright::internal::poly::reference::evaluate;

fn meaning(text: &str, sizes: &[(&str, i64)]) -> LoweredProgram {
    let file = parse("t.tile", text).unwrap_or_else(|e| panic!("{e}"));
    let sizes: BTreeMap<String, i64> = sizes.iter().map(|s| (s.0.to_string(), s.1)).collect();
    file.lower(&file.programs[0], &sizes, None).unwrap_or_else(|e| panic!("{e}"))
}

/// The first output of a def on these inputs.
fn run(text: &str, sizes: &[(&str, i64)], inputs: &[Tensor]) -> Tensor {
    let Computation::Def(program) = meaning(text, sizes).computation else { panic!("a def") };
    evaluate(&program, &inputs.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn floats(shape: &[i64], f: impl Fn(usize) -> f32) -> Tensor {
    Tensor::new(shape, &(0..shape.iter().product::<i64>() as usize).map(f).collect::<Vec<f32>>())
}

#[test]
fn ranges_follow_from_shapes() {
    let gemm = "def gemm(f32(M,K) A, f32(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }";
    let (a, b) = (floats(&[2, 3], |i| i as f32), floats(&[3, 2], |i| 1.0 - i as f32));
    let c = run(gemm, &[("M", 2), ("N", 2), ("K", 3)], &[a, b]);
    assert_eq!((c.shape.clone(), c.to_vec::<f32>()), (vec![2, 2], vec![-7.0, -10.0, -16.0, -28.0]));

    // A stencil shrinks twice; a strided convolution has ⌊(8 − 3) / 2⌋ + 1 = 3 places.
    let blur = "def blur(f32(H,W) In) -> (Out) {
        Bx(y,x)  = (In(y,x) + In(y,x+1) + In(y,x+2)) / 3
        Out(y,x) = (Bx(y,x) + Bx(y+1,x) + Bx(y+2,x)) / 3
    }";
    let out = run(blur, &[("H", 5), ("W", 6)], &[floats(&[5, 6], |i| (i / 6) as f32 + 10.0 * (i % 6) as f32)]);
    assert_eq!(out.shape, [3, 4]);
    let wanted: Vec<f32> = (0..12).map(|i| (i / 4) as f32 + 1.0 + 10.0 * ((i % 4) as f32 + 1.0)).collect();
    assert!(out.to_vec::<f32>().iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5));
    let conv = "def conv(f32(W) X, f32(R) F) -> (Y) { Y(x) +=! X(2*x + r) * F(r) }";
    let y = run(conv, &[("W", 8), ("R", 3)], &[floats(&[8], |i| i as f32), floats(&[3], |_| 1.0)]);
    assert_eq!(y.to_vec::<f32>(), [3.0, 9.0, 15.0]);
    // One more read takes nothing back: x + r stays inside.
    for reads in ["X(x + r)", "X(x) * X(x + r)", "X(x + r) * X(x + 1)"] {
        let text = format!("def f(f32(W) X) -> (Y) {{ Y(x) +=! {reads} where r in 0..3 }}");
        assert_eq!(run(&text, &[("W", 8)], &[floats(&[8], |_| 1.0)]).to_vec::<f32>(), [3.0; 6], "{text}");
    }
}

#[test]
fn every_reduction_and_update() {
    let x = || floats(&[2, 3], |i| [3.0, 1.0, 2.0, -1.0, -5.0, 4.0][i]);
    for (assign, expected) in
        [("+=!", [6.0, -2.0]), ("*=!", [6.0, 20.0]), ("min=!", [1.0, -5.0]), ("max=!", [3.0, 4.0])]
    {
        let text = format!("def f(f32(M,N) X) -> (Y) {{ Y(i) {assign} X(i,j) }}");
        assert_eq!(run(&text, &[("M", 2), ("N", 3)], &[x()]).to_vec::<f32>(), expected, "{assign}");
    }
    for (assign, expected) in
        [("+=", [16.0, 8.0]), ("*=", [60.0, 200.0]), ("min=", [1.0, -5.0]), ("max=", [10.0, 10.0])]
    {
        let text = format!("def f(f32(M,N) X) -> (Y) {{ Y(i) = f32(10) where i in 0..M  Y(i) {assign} X(i,j) }}");
        assert_eq!(run(&text, &[("M", 2), ("N", 3)], &[x()]).to_vec::<f32>(), expected, "{assign}");
    }
    let scalar = "def f(f32(M,N) X) -> (Y) { S() +=! X(i,j)  Y(i,j) = X(i,j) / S() }";
    assert_eq!(run(scalar, &[("M", 2), ("N", 3)], &[x()]).to_vec::<f32>(), [0.75, 0.25, 0.5, -0.25, -1.25, 1.0]);
}

#[test]
fn reads_outside_of_a_given_range_are_zero() {
    let text = "def f(f32(W) X, f32(R) F) -> (Y) { Y(x) +=! X(x + r - 1) * F(r) where x in 0..W }";
    let y = run(text, &[("W", 4), ("R", 3)], &[floats(&[4], |i| i as f32 + 1.0), floats(&[3], |_| 1.0)]);
    assert_eq!(y.to_vec::<f32>(), [3.0, 6.0, 9.0, 7.0]);
    // A selection decides what is read.
    let text = "def f(f32(W) X) -> (Y) { Y(x) = select(x > 0, X(x - 1), -1) where x in 0..W }";
    let y = run(text, &[("W", 4)], &[floats(&[4], |i| i as f32 + 1.0)]);
    assert_eq!(y.to_vec::<f32>(), [-1.0, 1.0, 2.0, 3.0]);
}

#[test]
fn conditions_gathers_parts_and_types() {
    let text = "def f(f64(N,N) L, f64(N) x) -> (y) { y(i) +=! L(i,j) * x(j) where j in 0..i+1 }";
    let l = Tensor::new(&[3, 3], &[1f64; 9]);
    let y = run(text, &[("N", 3)], &[l, Tensor::new(&[3], &[1f64, 10.0, 100.0])]);
    assert_eq!(y.to_vec::<f64>(), [1.0, 11.0, 111.0]);
    let text = "def f(f32(N) X, i64(M) at) -> (Y) { Y(i) = X(at(i)) + f32(at(i) % 2) }";
    let y = run(text, &[("N", 3), ("M", 4)], &[floats(&[3], |i| i as f32), Tensor::new(&[4], &[2i64, 1, 0, 1])]);
    assert_eq!(y.to_vec::<f32>(), [2.0, 2.0, 0.0, 2.0]);
    let text = "def cat(f32(N) A, f32(M) B) -> (Y) { Y(i) = A(i)  Y(N + i) = -B(i) }";
    let y = run(text, &[("N", 2), ("M", 1)], &[floats(&[2], |i| i as f32), floats(&[1], |_| 5.0)]);
    assert_eq!(y.to_vec::<f32>(), [0.0, 1.0, -5.0]);
    let text = "def t(u8(N) A) -> (Y, Z) { Y(i) = !(A(i) < 3) && A(i) != 7 || false  Z(i) = i32(A(i)) / 2 - 1 }";
    let y = run(text, &[("N", 4)], &[Tensor::new(&[4], &[2u8, 3, 7, 9])]);
    assert_eq!((y.dtype, &y.data[..]), (DType::Bool, &[0, 1, 0, 1][..]));
}

#[test]
fn loops_become_statements_in_their_order() {
    let text = "loop f(N) {
        f64 A[N][N], x[N]
        temp f64 s
        for i in 1..N {
            s = 0
            for j in i..N step 2 s += A[i][j] * x[j]
            if i < N - 2 || i == N - 1 up: x[i] -= s / f64(N)
            for j in 0..i step -1 A[i][j] = select(j > 0, A[i][j-1], 0)
        }
    }";
    let Computation::Loop(scop) = meaning(text, &[("N", 9)]).computation else { panic!("a loop program") };
    let expected = "\
scop f {
  A: f64[9][9] inout;
  x: f64[9] inout;
  s: f64 temporary;
  s_1(i < 8): s = f64(0.0);
  s_2(i < 8, j < 4) if -i - 2*j + 7 >= 0: s add = (A[i + 1][i + 2*j + 1] * x[i + 2*j + 1]);
  up_1(i < 8) if -i + 5 >= 0: x[i + 1] add = neg((s / f64(9.0)));
  up_2(i < 8) if i - 6 >= 0 && i - 7 >= 0: x[i + 1] add = neg((s / f64(9.0)));
  A(i < 8, j < 8) if i - j >= 0: A[i + 1][j] = select(gt(index(j), i64(0)), (A[i + 1][j - 1] if j - 1 >= 0 else f64(0.0)), f64(0.0));
  order
    band
      i [serial] s_1(i), s_2(i), up_1(i), up_2(i), A(i)
      sequence
        {s_1}
          leaf
        {s_2}
          band
            j [serial] s_2(j)
            leaf
        {up_1}
          leaf
        {up_2}
          leaf
        {A}
          band
            j [serial] A(-j)
            leaf
}
";
    assert_eq!(scop.to_string(), expected);
}

#[test]
fn initial_values_are_equations() {
    let text = "loop f(N) {
        f64 A[N][N], b[N]
        init {
            L[i][j] = select(j <= i, f64(i + j), 0) where i in 0..N, j in 0..N
            A[i][j] +=! L[i][k] * L[j][k]
            b[i] = f64(i * i % 3) / N
        }
        for i in 0..N b[i] += A[i][i]
    }";
    let meaning = meaning(text, &[("N", 2)]);
    let program = meaning.initial.unwrap();
    let values = evaluate(&program, &[]).unwrap();
    let names: Vec<&str> = program.tensors[..2].iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["A", "b"]);
    assert_eq!(values[0].to_vec::<f64>(), [0.0, 0.0, 0.0, 5.0]);
    assert_eq!(values[1].to_vec::<f64>(), [0.0, 0.5]);
}
