//! Temporaries of one element in vector loops: which get lanes, and that results stay.

use crate::codegen::loopnest::{Stmt, parse};
use crate::codegen::select::scalar_expansion::expanded;
use crate::codegen::select::tests::check;
use crate::codegen::vcode::{Function, Inst};

/// Stores of single elements in a kernel over `X: f32[8][100]` and `Y: f32[8][100]` with this vector loop.
fn single_stores(locals: &str, body: &str) -> (usize, Vec<Function>) {
    let text = format!(
        "kernel k {{ X: f32[8][100] argument 0; Y: f32[8][100] argument 1 written; {locals}
           parallel t in 0..8 {{ {body} }} }}"
    );
    let functions = check(&parse::nest(&text).unwrap(), 1);
    let single = |i: &&Inst| matches!(i, Inst::VStore { ty, .. } if ty.lanes == 1);
    (functions[0].insts.iter().filter(single).count(), functions)
}

#[test]
fn a_temporary_that_is_set_first_gets_lanes() {
    let (single, f) = single_stores(
        "a: f32[1][1] local; b: f32[1] local;",
        "vector j in 0..98 {
           a[0][0] = max(X[t][j], X[t][j + 1]);
           b[0] = (a[0][0] * X[t][j + 2]);
           Y[t][j] = (a[0][0] + (b[0] * b[0]));
         }",
    );
    assert_eq!((single, f[0].scratch_bytes), (0, 0), "{}", f[0]);
}

#[test]
fn a_temporary_of_two_loops_gets_lanes_in_each() {
    let set = |from: i64, count: i64, v: &str| {
        let at = format!("{v} + {from}");
        format!("vector {v} in 0..{count} {{ a[0] = (X[t][{at}] * X[t][{v}]); Y[t][{at}] = (a[0] + a[0]); }}")
    };
    let (single, f) = single_stores("a: f32[1] local;", &format!("{} {}", set(0, 80, "j"), set(80, 16, "k")));
    assert_eq!((single, f[0].scratch_bytes), (0, 0), "{}", f[0]);
}

#[test]
fn a_sum_within_an_iteration_gets_lanes() {
    let (single, f) = single_stores(
        "s: f32[1] local;",
        "vector j in 0..96 {
           s[0] = f32(0.0);
           unroll k in 0..3 { s[0] add = X[t][j + k]; }
           Y[t][j] = (s[0] * f32(0.5));
         }",
    );
    assert_eq!((single, f[0].scratch_bytes), (0, 0), "{}", f[0]);
}

#[test]
fn elements_are_told_apart_by_constant_subscripts() {
    let (single, _) = single_stores(
        "p: f32[2] local;",
        "vector j in 0..100 {
           p[0] = (X[t][j] + f32(1.0));
           p[1] = (X[t][j] * p[0]);
           Y[t][j] = (p[0] - p[1]);
         }",
    );
    assert_eq!(single, 0);
}

/// Locals, vector loop, of temporaries that stay as they are.
const KEPT: [(&str, &str); 5] = [
    // the value of the iteration before is read
    ("a: f32[1] local;", "a[0] = f32(1.0); vector j in 0..100 { Y[t][j] = (a[0] + X[t][j]); a[0] = X[t][j]; }"),
    // the last value is read after the loop
    ("a: f32[1] local;", "vector j in 0..100 { a[0] = X[t][j]; Y[t][j] = a[0]; } Y[t][0] = a[0];"),
    // the last value is read by another loop
    (
        "a: f32[1] local;",
        "vector j in 0..80 { a[0] = X[t][j]; Y[t][j] = a[0]; } vector k in 0..16 { Y[t][k + 80] = (a[0] + X[t][k]); }",
    ),
    // set under a condition
    (
        "a: f32[1] local;",
        "a[0] = f32(1.0);
         vector j in 0..100 { if t + j - 50 >= 0 { a[0] = X[t][j]; } Y[t][j] = a[0]; }",
    ),
    // another element is read than the one that is set
    ("a: f32[2] local;", "a[0] = f32(1.0); a[1] = f32(2.0); vector j in 0..100 { a[0] = X[t][j]; Y[t][j] = a[1]; }"),
];

#[test]
fn a_temporary_that_carries_something_keeps_its_element() {
    for (locals, body) in KEPT {
        single_stores(locals, body);
    }
}

#[test]
fn a_temporary_that_is_read_first_keeps_its_element() {
    for (body, lanes) in [
        ("a[0] = X[j]; Y[j] = a[0];", true),
        ("Y[j] = a[0]; a[0] = X[j];", false),
        ("a[0] add = X[j]; Y[j] = a[0];", false),
        ("a[0] = X[j]; Y[j] = (a[0] + a[1]); a[1] = X[j];", false),
        ("unroll k in 0..2 { a[k] = X[j]; } Y[j] = a[0];", false),
    ] {
        let text = format!(
            "kernel k {{ X: f32[64] argument 0; Y: f32[64] argument 1 written; a: f32[2] local;
               parallel t in 0..1 {{ vector j in 0..64 {{ {body} }} }} }}"
        );
        let mut nest = parse::nest(&text).unwrap();
        let Stmt::Loop { var, body: inside, .. } = nest.body[0].body()[0].clone() else { panic!("a loop") };
        assert_eq!(expanded(&mut nest, var, 64, &inside).is_some(), lanes, "{body}");
    }
}
