//! Loop programs that are hard to schedule: with the ILP's schedule each computes what it computes in its own order, on one
//! and two threads.

mod common;

use common::run_seeded;
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::poly::language;
use tilewright::{Model, Options, Tensor};

/// What makes it hard, program.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "a sum over a row that the same statement writes, beside a statement in a loop of its own",
        "loop p(N) {
            inout i64 A[N+8][N+8]
            inout i64 C[N+8]
            for t in 0..N for i in 0..N {
                S1: C[t+3] += C[i+4]
                for j in 0..N S2: A[j+7][j+6] = 1
            }
        }",
    ),
    (
        "a maximum over a range that depends on the loop outside, of what the loop does not change",
        "loop p(N) {
            inout i32 A[N+8][N+8]
            inout i32 B[N+8][N+8]
            for t in 0..N for i in t..N-2 S1: B[t+5][N-t+3] max= A[t+3][1] % 1000
        }",
    ),
];

fn outputs(model: Model, size: i64, threads: usize) -> Vec<Tensor> {
    let options = Options { dims: BTreeMap::from([("N".to_string(), size)]), ..Options::default() };
    let module = model.compile_module(&options).unwrap_or_else(|e| panic!("{e}")).0;
    run_seeded(Arc::new(module), threads, 2).unwrap()
}

#[test]
fn hard_programs_compute_what_they_compute_in_their_own_order() {
    for (what, text) in PROGRAMS {
        let file = language::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}"));
        let model = Model::from_program(file, None, None).unwrap();
        for (size, threads) in [(7, 1), (19, 1), (19, 2)] {
            let expected = outputs(model.clone().untransformed(), size, 1);
            assert!(outputs(model.clone(), size, threads) == expected, "{what}: N = {size}, {threads} threads");
        }
    }
}
