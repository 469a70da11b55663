//! Parallel loops in waves.

use super::check_text;
use crate::codegen::vcode::{GprOp, Inst};

#[test]
fn waves_are_one_parallel_loop_with_barriers() {
    let f = check_text(
        "kernel w {
          A: f32[5][12] argument 0 written;
          waves 12 t in 0..48 {
            let w = floor(t / 12);
            let i = floor((t - 12*w) / 1);
            A[w + 1][i] = (A[w][i] + f32(1.0));
          } }",
    );
    assert_eq!((f[0].parallel, f[0].wave), (Some(48), Some(12)));
}

#[test]
fn what_a_wave_shares_is_computed_once_for_each_call() {
    let f = check_text(
        "kernel w {
          A: f32[5][12] argument 0 written;
          B: f32[5][12] argument 1 written;
          waves 12 t in 0..96 {
            let wave = floor(t / 12);
            let u = floor((t - 12*wave) / 1);
            let step = floor(wave / 2);
            let part = floor((wave - 2*step) / 1);
            if part >= 0 && -part >= 0 {
              B[step + 1][u] = (A[step][u] + f32(1.0));
            }
            if part - 1 >= 0 && -part + 1 >= 0 {
              if -u + 6 >= 0 {
                A[step + 1][u] = (B[step + 1][u] * f32(2.0));
              }
            }
          } }",
    );
    // a loop for each part, without a division
    let (mut depth, mut loops) = (0, 0);
    for inst in &f[0].insts {
        match inst {
            Inst::LoopStart { .. } => (depth, loops) = (depth + 1, loops + 1),
            Inst::LoopEnd => depth -= 1,
            Inst::Int { op: GprOp::DivFloor, .. } => assert_eq!(depth, 0, "{}", f[0]),
            _ => {}
        }
    }
    assert_eq!(loops, 2, "{}", f[0]);
    // what one part of an iteration keeps for the other stays in one loop
    check_text(
        "kernel k {
          A: f32[12] argument 0 written;
          v: f32[1] local;
          waves 12 t in 0..48 {
            let wave = floor(t / 12);
            let u = floor((t - 12*wave) / 1);
            v[0] = f32(0.0);
            if wave - 1 >= 0 { v[0] = A[u]; }
            if wave - 2 >= 0 { A[u] = (v[0] + f32(1.0)); }
          } }",
    );
}
