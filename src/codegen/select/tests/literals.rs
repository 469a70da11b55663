//! Literals in unrolled, partly unrolled and rolled loops.

use super::{check, check_text, count};
use crate::codegen::loopnest::parse;
use crate::codegen::vcode::{Function, Inst, VBinary};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Products, sums and differences, copies, and broadcasts of one element: additions that fuse a product first.
fn arithmetic(f: &Function) -> [usize; 5] {
    let binary = |wanted: &[VBinary]| {
        count(f, |i| matches!(i, Inst::VBinary { op, .. } | Inst::VBinaryMemory { op, .. } if wanted.contains(op)))
    };
    [
        count(f, |i| matches!(i, Inst::VFma { .. } | Inst::VFmaMemory { .. } | Inst::VFmaSum { .. })),
        binary(&[VBinary::Mul]),
        binary(&[VBinary::Add, VBinary::Sub]),
        count(f, |i| matches!(i, Inst::VCopy { .. })),
        count(f, |i| matches!(i, Inst::VBroadcast { .. } | Inst::VFmaMemory { broadcast: true, .. })),
    ]
}

fn transform(matrix: &str, extent: usize, loops: [&str; 2]) -> String {
    let [rows, columns] = loops;
    format!(
        "kernel transform {{
          P: f32[{extent}][{extent}] argument 0{matrix}; X: f32[{extent}][64] argument 1; Y: f32[{extent}][64] argument 2 written;
          acc: f32[{extent}][16] local;
          parallel t in 0..4 {{
            unroll i in 0..{extent} {{ vector j in 0..16 {{ acc[i][j] = f32(0.0); }} }}
            {rows} i2 in 0..{extent} {{ {columns} k in 0..{extent} {{ vector j2 in 0..16 {{
              acc[i2][j2] add = (P[i2][k] * X[k][16*t + j2]); }} }} }}
            unroll i3 in 0..{extent} {{ vector j3 in 0..16 {{ Y[i3][16*t + j3] = acc[i3][j3]; }} }}
          }} }}"
    )
}

#[test]
fn zeros_and_ones_take_no_products() {
    // x0 - x2; x1 / 2; 0
    let matrix = " = {1, 0, -1, 0, 0.5, 0, 0, 0, 0}";
    let f = &check_text(&transform(matrix, 3, ["unroll", "unroll"]))[0];
    assert_eq!(arithmetic(f), [0, 1, 1, 0, 0], "{f}");
    assert_eq!(count(f, |i| i.address().is_some() && !matches!(i, Inst::VStore { .. })), 3, "{f}");
    // x0 + 2·x1; x2; 3·x0 - 2·x2
    let matrix = " = {1, 2, 0, 0, 0, 1, 3, 0, -2}";
    let f = &check_text(&transform(matrix, 3, ["unroll", "unroll"]))[0];
    assert_eq!(arithmetic(f), [2, 1, 0, 2, 0], "{f}");
    // the same matrix, unknown
    let f = &check_text(&transform("", 3, ["unroll", "unroll"]))[0];
    assert_eq!(arithmetic(f)[0], 9, "{f}");
}

/// The transform of the input in Winograd's convolution F(4, 3).
#[test]
fn the_transform_of_winograd_is_a_third_of_the_products() {
    let matrix = " = {4, 0, -5, 0, 1, 0, 0, -4, -4, 1, 1, 0, 0, 4, -4, -1, 1, 0, \
                     0, -2, -1, 2, 1, 0, 0, 2, -1, -2, 1, 0, 0, 4, 0, -5, 0, 1}";
    let before = &check_text(&transform("", 6, ["unroll", "unroll"]))[0];
    let after = &check_text(&transform(matrix, 6, ["unroll", "unroll"]))[0];
    assert_eq!(arithmetic(before), [36, 0, 0, 0, 36], "{before}");
    assert_eq!(arithmetic(after), [6, 6, 10, 0, 0], "{after}");
}

#[test]
fn rolled_loops_read_the_matrix() {
    let values: Vec<String> = (0..400).map(|i| (i % 3 - 1).to_string()).collect();
    let f = &check_text(&format!(
        "kernel rolled {{
          P: f32[4][100] argument 0 = {{{}}}; X: f32[100][16] argument 1; Y: f32[4][16] argument 2 written;
          acc: f32[4][16] local; parallel t in 0..1 {{
          unroll i in 0..4 {{ vector j in 0..16 {{ acc[i][j] = f32(0.0); }} }}
          for k in 0..100 {{ unroll i2 in 0..4 {{ vector j2 in 0..16 {{ acc[i2][j2] add = (P[i2][k] * X[k][j2]); }} }} }}
          unroll i3 in 0..4 {{ vector j3 in 0..16 {{ Y[i3][j3] = acc[i3][j3]; }} }} }} }}",
        values.join(", ")
    ))[0];
    let [products, _, sums, _, broadcasts] = arithmetic(f);
    assert!(products >= 4 && products == broadcasts && sums == 0, "{f}");
}

#[test]
fn literals_in_expressions() {
    let f = &check_text(
        "kernel e {
          P: f32[2][3] argument 0 = {1, 0, -1, 0.5, 3, -2}; X: f32[3][16] argument 1; Y: f32[8][16] argument 2 written;
          vector j in 0..16 {
            Y[0][j] = ((P[0][0] * X[0][j]) + (P[0][1] * X[1][j]));
            Y[1][j] = ((X[0][j] * P[0][1]) + (X[1][j] * P[0][2]));
            Y[2][j] = (X[2][j] - (P[0][1] * X[0][j]));
            Y[3][j] = (X[2][j] - (P[0][2] * X[0][j]));
            Y[4][j] = (X[2][j] + neg((P[1][0] * X[0][j])));
            Y[5][j] = P[1][1];
            Y[6][j] = ((X[0][j] * X[1][j]) + (P[0][1] * X[2][j]));
            Y[7][j] = ((P[0][0] * X[0][j]) + (X[1][j] * X[2][j]));
          } }",
    )[0];
    assert_eq!(arithmetic(f), [1, 2, 2, 0, 0], "{f}");
}

#[test]
fn equal_sums_of_products_are_computed_once() {
    let f = &check_text(
        "kernel s {
          P: f32[2][2] argument 0 = {1, 0, -1, 7}; X: f32[2][16] argument 1; Y: f32[4][16] argument 2 written;
          vector j in 0..16 {
            Y[0][j] = neg(((P[1][1] * X[0][j]) + (P[0][0] * X[1][j])));
            Y[1][j] = abs(((P[1][1] * X[0][j]) + (P[0][0] * X[1][j])));
            Y[2][j] = sqrt(abs((P[1][1] * X[0][j])));
            Y[3][j] = neg((P[1][1] * X[0][j]));
          } }",
    )[0];
    assert_eq!(arithmetic(f), [1, 1, 0, 0, 0], "{f}");
}

/// Matrices with and without literals, in loops of all kinds, over whole vectors and parts, into registers and memory.
#[test]
fn random_products_with_literals() {
    for seed in 0..60 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let ty = ["f32", "f64"][rng.random_range(0..2)];
        let (rows, sums, lanes) = (rng.random_range(1..5), rng.random_range(1..6), rng.random_range(1..20));
        let value = |rng: &mut StdRng| ["0", "1", "-1", "0.5", "-3"][rng.random_range(0..5)];
        let values: Vec<&str> = (0..rows * sums).map(|_| value(rng)).collect();
        let literals = if rng.random_bool(0.8) { format!(" = {{{}}}", values.join(", ")) } else { String::new() };
        let kind = |rng: &mut StdRng| ["unroll", "unroll", "for"][rng.random_range(0..3)];
        let [a, b, c, d] = [kind(rng), kind(rng), kind(rng), kind(rng)];
        let target = ["acc[i2][j2]", "Y[i2][j2]"][rng.random_range(0..2)];
        let [start, result] =
            if target.starts_with('a') { ["acc[i][j]", "acc[i3][j3]"] } else { ["Y[i][j]", "Y[i3][j3]"] };
        let zero = ["0.0", "0.0", "1.5"][rng.random_range(0..3)];
        let part = rng.random_range(1..=lanes);
        let body = [
            format!("{target} add = (P[i2][k] * X[k][j2]);"),
            format!("{target} add = neg((X[k][j2] * P[i2][k]));"),
            format!("{target} add = ((P[i2][k] * X[k][j2]) - (P[i2][0] * X[0][j2]));"),
            format!("if j2 - {} >= 0 {{ {target} add = (P[i2][k] * X[k][j2]); }}", lanes - part),
            format!("if t + k - 2 >= 0 {{ {target} add = (P[i2][k] * X[k][j2]); }}"),
            format!("{target} add = (P[i2][k] * X[k][j2]); {target} max = (X[0][j2] * P[i2][k]);"),
            format!("{target} add = (P[i2][k] * (X[k - 1][j2] if k - 1 >= 0 && t + k - 3 >= 0 else {ty}(0.5)));"),
        ];
        let body = &body[rng.random_range(0..body.len())];
        let text = format!(
            "kernel random {{ P: {ty}[{rows}][{sums}] argument 0{literals}; X: {ty}[{sums}][{lanes}] argument 1;
              Y: {ty}[{rows}][{lanes}] argument 2 written; acc: {ty}[{rows}][{lanes}] local; Z: {ty}[3][{rows}][{lanes}] argument 3 written;
              for t in 1..4 {{
              {a} i in 0..{rows} {{ vector j in 0..{lanes} {{ {start} = {ty}({zero}); }} }}
              {b} k in 0..{sums} {{ {c} i2 in 0..{rows} {{ vector j2 in 0..{part} {{ {body} }} }} }}
              {d} i3 in 0..{rows} {{ vector j3 in 0..{lanes} {{ Z[t - 1][i3][j3] = {result}; }} }} }} }}"
        );
        check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), seed);
    }
}

#[test]
fn sums_over_lanes_with_literals() {
    check_text(
        "kernel lanes {
          P: f64[2][3] argument 0 = {1, 0, -1, 0, 0, 2}; X: f64[3][21] argument 1; Y: f64[2] argument 2 written;
          unroll i in 0..2 { Y[i] = f64(0.0); unroll k in 0..3 { vector j in 0..21 { Y[i] add = (P[i][k] * X[k][j]); } } } }",
    );
}

/// Accumulators that start from zero around all that reads or writes them.
#[test]
fn first_values_reach_their_registers_in_time() {
    for body in [
        // the next iteration reads what this one accumulated
        "for k in 0..99 { vector j in 0..16 { Y[k][j] = a[j]; a[j] = f32(0.0); a[j] add = (P[0][0] * X[k][j]); } }",
        "for k in 0..99 { vector j in 0..16 { Y[k][j] = a[j]; a[j] = f32(0.0); } }",
        // written in a branch, read behind it; the other way round
        "if t - 2 >= 0 { vector j in 0..16 { a[j] = f32(0.0); a[j] add = (P[0][0] * X[1][j]); } }",
        "vector j in 0..16 { a[j] = f32(0.0); }
         if t - 2 >= 0 { vector k in 0..16 { Y[0][k] = a[k]; a[k] add = (P[0][0] * X[1][k]); } }",
        "vector j in 0..16 { a[j] = f32(0.0); a[j] add = (P[0][0] * X[1][j]);
           Y[0][j] = (a[j] if t - 2 >= 0 else f32(0.5)); }",
        // overwritten
        "vector j in 0..16 { a[j] = f32(0.0); a[j] = (X[1][j] * X[2][j]); }",
        "vector j in 0..16 { a[j] = f32(0.0); a[j] add = (P[0][0] * X[1][j]); a[j] = f32(0.0); }",
        // one element is the first value of two, one of which changes
        "vector j in 0..16 { a[j] = f32(0.0); a[j] add = (P[0][0] * X[1][j]); b[j] = X[1][j]; b[j] add = X[2][j]; }",
        "vector j in 0..16 { b[j] = X[1][j]; a[j] = f32(0.0); a[j] add = (P[0][0] * b[j]); b[j] add = X[2][j]; }",
        // fewer lanes, then all
        "vector j in 0..16 { a[j] = f32(0.0); } vector k in 0..5 { a[k] add = (P[0][0] * X[1][k]); }",
    ] {
        check_text(&format!(
            "kernel borders {{
              P: f32[1][2] argument 0 = {{1, 0}}; X: f32[99][16] argument 1; Y: f32[99][16] argument 2 written;
              Z: f32[97][2][16] argument 3 written; a: f32[16] local; b: f32[16] local;
              for t in 0..97 {{
                vector i in 0..16 {{ a[i] = X[4][i]; b[i] = X[5][i]; }}
                {body}
                vector l in 0..16 {{ Z[t][0][l] = a[l]; Z[t][1][l] = b[l]; }} }} }}"
        ));
    }
}
