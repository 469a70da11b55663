//! Schedules by hand: what each primitive accepts computes what the program computes in any order, what it refuses has two
//! instances or a reason, and the tree with the place marked.

use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::poly::language::{self, syntax::File};
use tilewright::{Model, Options, Session, Tensor};

const PROGRAMS: &str = "
def gemm(f32(M,K) A, f32(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
loop scale(M, N) {
    inout f64 A[M][N]
    in f64 x[M]
    for i in 0..M for j in 0..N A[i][j] = 2 * A[i][j] + x[i]
}
loop blur(N) {
    in f32 X[N]
    temp f32 P[N]
    out f32 Q[N]
    for i in 0..N P[i] = X[i] * X[i]
    for i in 1..N-1 Q[i] = P[i-1] + P[i] + P[i+1]
    Q[0] = 0
    Q[N-1] = 0
}
loop both(N) {
    inout f64 A[N], B[N]
    for i in 0..N {
        S: A[i] = A[i] + 1
        T: B[i] = B[i] * A[i]
        U: B[i] = B[i] - 3
    }
}
loop heat(T, N) {
    inout f64 A[N]
    for t in 0..T for i in 1..N-1 A[i] = (A[i-1] + A[i] + A[i+1]) / 3
}
loop wave(M, N) {
    inout f64 A[M][N]
    for i in 1..M for j in 0..N-1 A[i][j] = A[i-1][j+1] + A[i][j]
}
";

fn dims() -> BTreeMap<String, i64> {
    [("M", 13), ("N", 21), ("K", 17), ("T", 5)].map(|(n, v)| (n.to_string(), v)).into()
}

fn file(program: &str, primitives: &str) -> File {
    let text = format!("{PROGRAMS}schedule s for {program} {{ {primitives} }}");
    language::parse("t.tile", &text).unwrap_or_else(|e| panic!("{e}"))
}

fn outputs(model: Model, dims: &BTreeMap<String, i64>, threads: usize) -> tilewright::Result<Vec<Tensor>> {
    let options = Options { dims: dims.clone(), ..Options::default() };
    let module = Arc::new(model.compile_module(&options)?.0);
    let seeded = |(i, s): (usize, &tilewright::runtime::module::TensorSpec)| {
        (s.name.clone(), Tensor::seeded(s.dtype, &s.shape, 1, i as u64, 2))
    };
    let inputs: Vec<(String, Tensor)> = module.inputs.iter().enumerate().map(seeded).collect();
    let inputs: Vec<_> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    Session::new(module, threads)?.run(&inputs)
}

fn reals(t: &Tensor) -> Vec<f64> {
    if t.dtype == tilewright::DType::F64 { t.to_vec() } else { t.to_vec::<f32>().into_iter().map(f64::from).collect() }
}

/// Program, primitives: legal, and the result is that of the ILP's schedule.
const ACCEPTED: &[(&str, &str)] = &[
    ("scale", "split i by 4 -> io, ii"),
    ("scale", "split i by 4 -> io, ii  split ii by 2 -> im, ii2  split io by 2 -> iq, ir"),
    ("scale", "reorder j, i"),
    ("scale", "tile A(i, j) by (4, 8) -> io, jo, ii, ji"),
    ("scale", "tile A(i, j) by (4, 8) -> io, jo, ii, ji; unroll ii; vectorize ji; parallel io"),
    ("scale", "skew j by 2*i"),
    ("scale", "skew j by -1*i  reorder j, i"),
    ("scale", "shift i by 3"),
    ("scale", "reverse i  reverse j"),
    ("scale", "unroll j by 4"),
    ("scale", "unroll_and_jam i by 4"),
    ("scale", "vectorize j by 8"),
    ("scale", "vectorize j"),
    ("scale", "parallel i"),
    ("scale", "split i by 4 -> io, ii  peel ii"),
    ("wave", "reverse j"),
    ("wave", "skew j by 1*i  tile A(i, j) by (4, 4) -> io, jo, ii, ji  wavefront io"),
    ("scale", "split i by 4 -> io, ii  shift ii by 1"),
    ("scale", "cache_read x"),
    ("scale", "split i by 4 -> io, ii  cache_read x  pack x as (i / 4, i % 4)"),
    ("both", "normalize  divide  expand  distribute S, T, U at i  serial"),
    ("both", "distribute S, U at i  sequence S, U  vectorize U(i) by 4"),
    ("gemm", "normalize  merge C_init, C_update, C at n  parallel C(m)"),
    ("wave", "skew j by 1*i  reorder j, i"),
    ("heat", "skew i by 2*t  tile A(t, i) by (2, 8) -> to, io, ti, ii"),
    ("heat", "skew i by 2*t  reorder i, t"),
    ("blur", "shift Q_1(i) by 1  merge P, Q_1 at i"),
    ("blur", "shift Q_1(i) by 1  merge P, Q_1 at i  split P(i) by 4 -> io, ii"),
    ("both", "distribute S, T at i"),
    ("both", "distribute S, T, U at i  merge T, U at i  vectorize S(i) by 4"),
    ("gemm", "reorder m, n"),
    ("gemm", "tile C(m, n) by (4, 16) -> mo, no, mi, ni; parallel mo"),
    ("gemm", "distribute C_init, C at m  reorder C(k, n)"),
    (
        "gemm",
        "distribute C_init, C at m
         tile C(m, n) by (4, 16) -> mo, no, mi, ni; split C(k) by 8 -> ko, ki
         reorder C(mo, no, ko, ki, mi, ni); unroll C(mi); vectorize C(ni); parallel mo",
    ),
];

#[test]
fn accepted_schedules_compute_what_the_program_computes() {
    let mut wrong = vec![];
    for (program, primitives) in ACCEPTED {
        let model = Model::from_program(file(program, primitives), Some(program), None).unwrap();
        let dims: BTreeMap<String, i64> = dims().into_iter().filter(|d| model.symbols().contains(&d.0)).collect();
        let expected = outputs(model.clone(), &dims, 1).unwrap();
        let scheduled = model.with_schedule("s").unwrap();
        for threads in [1, 2] {
            match outputs(scheduled.clone(), &dims, threads) {
                Err(e) => wrong.push(format!("{program}: {primitives}: {e}")),
                Ok(found) => {
                    let close = |(a, b): (&Tensor, &Tensor)| {
                        reals(a).iter().zip(reals(b)).all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs().max(1.0))
                    };
                    if !found.iter().zip(&expected).all(close) {
                        wrong.push(format!("{program}: {primitives}: a wrong result"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Program, primitives, what the refusal says.
const REFUSED: &[(&str, &str, &[&str])] = &[
    ("scale", "split k by 4 -> a, b", &["no loop `k`", "i, j"]),
    ("scale", "split i by 4 -> j, b", &["loop `j` already"]),
    ("scale", "parallel i  split i by 4 -> a, b", &["marked already"]),
    ("heat", "split i by 4 -> io, ii  reorder io, t", &["would run before", "io [", "<--"]),
    ("heat", "reorder i, t", &["iteration t=1,i=1 of A would run before t=0,i=2", "reads A(1)", "<--"]),
    ("both", "reorder i, j", &["no loop `j`"]),
    ("gemm", "reorder k, m", &["`k`", "not directly inside"]),
    ("heat", "tile A(t, i) by (2, 8) -> to, io, ti, ii", &["would run before"]),
    ("wave", "reorder j, i", &["iteration i=2,j=0 of A would run before i=1,j=1", "writes A(1,1) that it reads"]),
    ("wave", "skew j by -1*i  reorder j, i", &["would run before"]),
    ("wave", "skew i by 1*k", &["no loop `k` has all statements of `i`"]),
    ("wave", "skew i by 1*j", &["would run before"]),
    ("both", "normalize  shift i by 1  divide", &["comes before what changes its order"]),
    ("both", "sequence S, V", &["no statement `V`"]),
    ("both", "sequence T, S, U", &["which writes A("]),
    ("heat", "wavefront i", &["not the outermost loop"]),
    ("scale", "reorder j, i  wavefront i", &["not the outermost loop"]),
    ("heat", "wavefront t", &["in parallel with or before"]),
    ("both", "wavefront i", &["no loop directly inside"]),
    ("scale", "cache_read y", &["no array `y`: there are A, x"]),
    ("scale", "cache_read A", &["written by the program"]),
    ("scale", "pack x as (i / 4, i % 4)", &["`cache_read x` makes one"]),
    ("scale", "cache_read x  pack x as (i / 4, i)", &["no read of `x` has the loops of this layout"]),
    ("scale", "cache_read x  pack x as (i / 4, i % 4)", &["read across tiles of 4"]),
    ("scale", "split i by 4 -> io, ii  skew j by 1*io", &["loop over tiles"]),
    ("both", "shift T(i) by -1", &["which writes A("]),
    ("heat", "reverse i", &["would run before"]),
    ("heat", "reverse t", &["would run before", "t [", "<--"]),
    ("both", "distribute S, T at i  reverse T(i)  merge S, T at i", &["which writes A("]),
    ("blur", "merge P, Q_1 at i", &["of Q_1 would run before", "which writes P("]),
    ("both", "merge S, T at i", &["not every one of these statements has loops down to `i`"]),
    ("heat", "distribute S, T at i", &["no statement `S`"]),
    ("both", "distribute S at i", &["are one"]),
    ("heat", "unroll_and_jam t by 2", &["would run"]),
    ("heat", "vectorize i by 4", &["in one vector with", "i_4 [", "<--"]),
    ("scale", "split i by 4 -> io, ii  unroll io", &["loop over tiles"]),
    ("heat", "parallel t", &["in parallel with", "t [", "<--"]),
    ("scale", "parallel j", &["inside of `i`"]),
    ("scale", "peel i", &["nothing to peel"]),
    ("gemm", "distribute C_init, C at m  reorder C(k, n)  parallel C(k)", &["inside of `m`"]),
    ("gemm", "pad n to 16", &["not done by hand yet"]),
];

#[test]
fn refused_schedules_say_why_and_where() {
    for (program, primitives, words) in REFUSED {
        let model = Model::from_program(file(program, primitives), Some(program), None).unwrap();
        let dims: BTreeMap<String, i64> = dims().into_iter().filter(|d| model.symbols().contains(&d.0)).collect();
        let error = match outputs(model.with_schedule("s").unwrap(), &dims, 1) {
            Ok(_) => panic!("{program}: {primitives}: accepted"),
            Err(e) => e.to_string(),
        };
        for word in *words {
            assert!(error.contains(word), "{program}: {primitives}: {word:?} is not in: {error}");
        }
        assert!(error.contains("t.tile:") && error.contains('^'), "{error}");
    }
}
