//! Schedules by hand: what each primitive accepts computes what the program computes in any order, what it refuses has two
//! instances or a reason, and the tree with the place marked.

mod common;

use common::{DEFS, run_seeded};
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::internal::language;
use tilewright::internal::language::syntax::File;
use tilewright::{Model, Options, Target, Tensor};

const PROGRAMS: &str = "
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
loop power(T, N) {
    in f64 A[N][N]
    inout f64 x[N]
    temp f64 y[N], top
    for t in 0..T {
        for i in 0..N S: y[i] = A[i][0] * x[0] + A[i][N-1] * x[N-1]
        top = 1
        for i in 0..N M: top += y[i] * y[i]
        for i in 0..N T: x[i] = y[i] / top
    }
}
loop chain(N) {
    inout f64 A[N]
    temp f64 t[N], u[N]
    out f64 C[N], D[N]
    for i in 0..N t[i] = 2 * A[i]
    for i in 0..N A[i] = 1
    for i in 0..N C[i] = t[i]
    for i in 0..N-1 u[i] = f64(i)
    for i in 0..N D[i] = select(i < N-1, u[i], 0)
}
loop strides(N) {
    inout f64 A[N]
    for i in 0..N-3 step 3 P: A[i] = A[i+3] + A[i+1]
    for i in 2..N step -2 Q: A[i] += A[i-1]
}
loop moved(N) {
    inout f64 A[N]
    temp f64 t[N]
    out f64 C[N]
    for i in 3..N t[i] = 2 * A[i]
    for i in 3..N step 2 A[i] = 1
    for i in 3..N C[i] = t[i]
}
loop scattered(N) {
    in i64 x[N]  inout f64 A[N]  temp f64 t[N]  out f64 C[N]
    for i in 1..N t[i] = 2 * A[i]  for i in 0..N U: A[x[i]] = 1
    for i in 1..N C[i] = t[i]
}
loop nothing(N) {
    inout f64 A[N]
    for i in N..N A[i] = 1
}
loop diagonal() {
    inout f64 A[12][12]
    for i in 3..9 A[i][i+1] = 0.5 * A[0][11-i]
}
loop transposed() {
    in f64 V[12][12]
    temp f64 P[12][12]
    out f64 A[12][12]
    for i in 0..12 for j in 0..12 { P[i][j] = 0  for k in 0..12 S: P[i][j] += V[i][k] * V[k][j] }
    for i in 0..12 for j in 0..12 T: A[i][j] = P[j][i]
}
loop total(N) {
    in f64 X[N]
    out f64 s
    s = 0
    for i in 0..N s += X[i] * X[i]
}
loop prefix(N) {
    in f64 X[N]
    inout f64 s[N]
    for i in 1..N for j in 0..i s[i] += s[j] * X[i]
}
def edges(f32(5,6) X) -> (Y) { Y(w) +=! X(c, w + s - 1) where w in 0..6, c in 0..5, s in 0..3 }
def shorter(f64(M, K) X) -> (P, Q) {
    P(m) = X(m, 0) * 2 where m in 0..13
    Q(m) +=! X(m, k) where m in 0..5
}
def strided(f32(M,K) A, f32(M,K) B) -> (C) { C(m) +=! A(m,k) + B(m,k) }
loop wave(M, N) {
    inout f64 A[M][N]
    for i in 1..M for j in 0..N-1 A[i][j] = A[i-1][j+1] + A[i][j]
}
loop table(N) {
    in i32 ix[N]
    in f64 V[N]
    out f64 A[N]
    for i in 0..N A[i] = V[ix[i]]
}
def corner(f64(9,9) X, f64(9,9) W) -> (Q) { Q(m,n) +=! X(m,k) * W(k,n) where m in 0..7, n in 0..6 }
";

fn dims() -> BTreeMap<String, i64> {
    [("M", 13), ("N", 21), ("K", 17), ("T", 5)].map(|(n, v)| (n.to_string(), v)).into()
}

fn file(program: &str, primitives: &str) -> File {
    let text = format!("{DEFS}{PROGRAMS}schedule s for {program} {{ {primitives} }}");
    language::parse("t.tile", &text).unwrap_or_else(|e| panic!("{e}"))
}

fn outputs(model: Model, dims: &BTreeMap<String, i64>, threads: usize) -> tilewright::Result<Vec<Tensor>> {
    let options = Options { dims: dims.clone(), ..Options::default() };
    run_seeded(Arc::new(model.compile_module(&options)?.0), threads, 2)
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
    ("scale", "parallel j"),
    ("power", "parallel T(i)"),
    ("power", "split S(i) by 4 -> io, ii  parallel S(io)  parallel T(i)"),
    ("scale", "split i by 4 -> io, ii  peel ii"),
    ("scale", "split i by 4 -> io, ii  shift ii by 1"),
    ("wave", "reverse j"),
    ("wave", "skew j by 1*i  tile A(i, j) by (4, 4) -> io, jo, ii, ji  wavefront io"),
    ("scale", "split i by 4 -> io, ii  shift ii by 1"),
    ("scale", "cache_read x"),
    ("scale", "split i by 4 -> io, ii  cache_read x  pack x as (i / 4, i % 4)"),
    ("edges", "distribute Y_init, Y at w  cache_read X at Y(s)"),
    ("shorter", "merge P, Q_init, Q at m  split Q_init(m) by 2 -> a, b"),
    ("scale", "split j by 2 -> a, b  pad a to 4  split b by 3 -> c, d  reorder c, a"),
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
    ("nothing", "normalize; parallel i; vectorize A(i) by 8; serial"),
    ("blur2", "compute_inline Bx"),
    ("blur2", "compute_inline Bx; vectorize x by 8; parallel y"),
    ("blur2", "compute_at Bx at Out(y)"),
    ("blur2", "tile Out(y, x) by (4, 8) -> yo, xo, yi, xi; compute_at Bx at xo; vectorize xi; parallel yo"),
    (
        "blur2",
        "tile Out(y, x) by (4, 8) -> yo, xo, yi, xi; compute_at Bx at xo; vectorize xi; vectorize Bx(x) by 8; parallel yo",
    ),
    ("blur2", "split Out(y) by 4 -> yo, yi; store_at Bx at yo; compute_at Bx at yi; parallel yo"),
    ("blur2", "split Out(y) by 4 -> yo, yi; compute_at Bx at yi; store_at Bx at yo; vectorize Out(x) by 8; vectorize Bx(x) by 8"),
    ("blur2", "split Out(y) by 4 -> yo, yi; store_at Bx at yo; vectorize Out(x) by 8"),
    ("blur", "compute_inline P"),
    ("blur", "compute_at P at Q_1(i)"),
    ("softmax", "compute_at top at e(m)"),
    ("softmax", "merge total, Y at m; compute_at e at Y(m); compute_at top at Y(m); vectorize e(n) by 8"),
    ("softmax", "merge total, Y at m; compute_inline e; compute_at top at Y(m); parallel Y(m)"),
    ("softmax", "compute_at total at Y(m); compute_at e at Y(m); compute_at top at Y(m); parallel Y(m); vectorize Y(n) by 8"),
    ("gemm", "fuse m, n -> f"),
    ("gemm", "fuse m, n -> f  parallel f"),
    ("gemm", "fuse m, n -> f  split f by 10 -> fo, fi  parallel fo"),
    ("scale", "fuse i, j -> f  vectorize f by 8"),
    ("gemm", "tile m, n by (4, 16) -> mo, no, mi, ni; fuse mo, no -> f; parallel f; vectorize ni"),
    (
        "gemm",
        "distribute C_init, C at m; tile C(m, n) by (4, 16) -> mo, no, mi, ni; reorder C(mo, no, k, mi, ni)
         unroll C(mi); vectorize C(ni); fuse C(mo, no) -> f; parallel f; cache_read B at f; pack B as (k, n)",
    ),
    ("scale", "pad j to 8"),
    ("scale", "pad j to 16; vectorize j by 16"),
    ("scale", "split j by 16 -> jo, ji; pad ji to 16; vectorize ji; parallel i"),
    ("scale", "pad i to 4; split i by 2 -> io, ii; unroll ii; parallel io"),
    ("blur", "pad Q_1(i) to 8; vectorize Q_1(i)"),
    ("gemm", "distribute C_init, C at m; tile C(m, n) by (4, 16) -> mo, no, mi, ni; pad C(mi) to 4; pad C(ni) to 16; reorder C(k, mi, ni); unroll C(mi); vectorize C(ni)"),
    ("gemm", "rfactor C over k -> P"),
    ("gemm", "split k by 4 -> ko, ki  rfactor C over ki -> P"),
    ("gemm", "split k by 4 -> ko, ki  rfactor C over ko -> P; vectorize P_init(ko) by 4"),
    ("gemm", "distribute C_init, C at m; split C(k) by 5 -> ko, ki; reorder C(ko, m, n, ki); rfactor C over ko -> P; parallel P(ko)"),
    ("total", "split i by 4 -> io, ii  rfactor s over io -> P  parallel P(io)"),
    ("total", "split i by 8 -> io, ii  rfactor s over ii -> P  vectorize P(ii)"),
    ("softmax", "split total(n) by 8 -> no, ni  rfactor total over ni -> P"),
    ("gemm", "distribute C_init, C at m; tile C(m, n) by (4, 16) -> mo, no, mi, ni; tensorize C(mi, ni, k)"),
    (
        "gemm",
        "distribute C_init, C at m; tile C(m, n) by (4, 16) -> mo, no, mi, ni; split C(k) by 8 -> ko, ki
         reorder C(mo, no, ko, mi, ni, ki); tensorize C(mi, ni, ki) with fma; parallel mo",
    ),
    ("scale", "cache_read x at i"),
    ("scale", "split i by 4 -> io, ii  cache_read x at io  parallel io"),
    ("blur", "cache_read X at P(i)"),
    // The last block of n goes beyond the copy of W, which is as wide as n and not as W.
    ("corner", "unroll_and_jam Q(n) by 4  vectorize Q(n_4)  pad Q(m) to 4  split Q(k) by 2 -> ko, ki  cache_read W"),
    ("corner", "unroll_and_jam Q(n) by 4  pad Q(m) to 4  cache_read W  pack W as (n / 4, k, n % 4)"),
    // What is computed of Bx is used in the same iteration of x.
    ("blur2", "store_at Bx at Out(y)  compute_at Bx at Out(x)  reorder Out(x, y)"),
    ("blur2", "store_at Bx at Out(y)  compute_at Bx at Out(x)  split Out(y) by 4 -> yo, yi  split Out(x) by 8 -> xo, xi"),
    // A block of S has more elements than the memory of P.
    ("transposed", "unroll_and_jam S(j) by 2  store_at P at T(j)"),
    ("wave", "cache_write A at i"),
    ("heat", "cache_write A at t"),
    ("both", "cache_write B at i; parallel i"),
    ("scale", "tile A(i, j) by (4, 8) -> io, jo, ii, ji; cache_write A at jo; vectorize A(ji); vectorize A_back(j) by 8"),
    ("gemm", "split n by 8 -> no, ni  cache_write C at no  parallel m"),
    (
        "gemm",
        "distribute C_init, C at m
         tile C(m, n) by (4, 16) -> mo, no, mi, ni; split C(k) by 8 -> ko, ki
         reorder C(mo, ko, no, ki, mi, ni); unroll C(mi); vectorize C(ni); parallel mo
         cache_read A at C(ko); pack A as (m / 4, k, m % 4)
         cache_read B at C(no); pack B as (n / 16, k, n % 16); vectorize B_cache(n) by 16",
    ),
    (
        "gemm",
        "distribute C_init, C at m
         tile C(m, n) by (4, 16) -> mo, no, mi, ni; split C(k) by 8 -> ko, ki
         reorder C(mo, no, ko, ki, mi, ni); cache_write C at C(no); cache_read B at C(ko); pack B as (n, k); unroll C(mi)",
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
    ("scale", "split i by 4 -> j, b", &["loop `j` is already defined"]),
    ("scale", "parallel i  split i by 4 -> a, b", &["already marked"]),
    ("heat", "split i by 4 -> io, ii  reorder io, t", &["would run before", "io [", "<--"]),
    ("heat", "reorder i, t", &["iteration t=1,i=1 of A would run before t=0,i=2", "writes A(2) that it reads", "<--"]),
    ("both", "reorder i, j", &["no loop `j`"]),
    ("gemm", "reorder k, m", &["`k`", "not directly inside"]),
    ("heat", "tile A(t, i) by (2, 8) -> to, io, ti, ii", &["would run before"]),
    ("wave", "reorder j, i", &["iteration i=2,j=0 of A would run before i=1,j=1", "writes A(1,1) that it reads"]),
    ("wave", "skew j by -1*i  reorder j, i", &["would run before"]),
    ("wave", "skew i by 1*k", &["no loop `k` has all statements of `i`"]),
    ("wave", "skew i by 1*j", &["would run before"]),
    ("both", "normalize  shift i by 1  divide", &["before those that change its order"]),
    ("wave", "reverse i  reverse j  wavefront i", &["iteration i=2,j=0 of A would run before i=1,j=1"]),
    ("both", "sequence T, S, U", &["which writes A(", "{T}   <--", "{U}   <--"]),
    ("both", "sequence S, V", &["no statement `V`", "{S}   <--"]),
    ("softmax", "merge total, Y at m  sequence Y, total, e", &["share a loop", "{e}   <--"]),
    ("strides", "sequence Q, P", &["iteration i=6 of Q would run before i=3 of P, which reads A(6)"]),
    ("strides", "normalize  sequence Q, P", &["iteration i=6 of Q would run before i=3 of P, which reads A(6)"]),
    ("heat", "wavefront i", &["not the outermost loop"]),
    ("scale", "reorder j, i  wavefront i", &["not the outermost loop"]),
    (
        "moved",
        "compute_inline t",
        &["iteration i=3 of A overwrites A, which iteration i=3 of t reads, before iteration i=3 of C uses the result"],
    ),
    ("moved", "compute_at t at C(i)", &["iteration i=3 of A overwrites A, which iteration i=3 of t reads"]),
    ("scattered", "compute_inline t", &["iteration i=0 of U overwrites A, which iteration i=1 of t reads"]),
    ("scattered", "compute_at t at C(i)", &["iteration i=0 of U overwrites A, which iteration i=1 of t reads"]),
    ("heat", "wavefront t", &["in the waves of"]),
    ("both", "wavefront i", &["no loop directly inside"]),
    ("scale", "cache_read y", &["no array `y`: there are A, x"]),
    ("scale", "cache_read A", &["written by the program"]),
    ("scale", "pack x as (i / 4, i % 4)", &["add `cache_read x` first"]),
    ("scale", "cache_read x  pack x as (i / 4, i)", &["no read of `x` has the loops of this layout"]),
    ("scale", "cache_read x  pack x as (i / 4, i % 4)", &["read across tiles of 4"]),
    ("scale", "split i by 4 -> io, ii  skew j by 1*io", &["loop over tiles"]),
    ("both", "shift T(i) by -1", &["which writes A("]),
    ("heat", "reverse i", &["would run before"]),
    ("heat", "reverse t", &["would run before", "t [", "<--"]),
    ("both", "distribute S, T at i  reverse T(i)  merge S, T at i", &["which writes A("]),
    ("blur", "merge P, Q_1 at i", &["of Q_1 would run before", "which writes P("]),
    ("both", "merge S, T at i", &["not all of these statements have loops down to `i`"]),
    ("heat", "distribute S, T at i", &["no statement `S`"]),
    ("both", "distribute S at i", &["or are the same statement"]),
    ("heat", "unroll_and_jam t by 2", &["would run"]),
    ("heat", "vectorize i by 4", &["in one vector with", "i_4 [", "<--"]),
    ("scale", "split i by 4 -> io, ii  unroll io", &["loop over tiles"]),
    ("heat", "parallel t", &["in parallel with", "t [", "<--"]),
    ("gemm", "distribute C_init, C at m  parallel C(k)", &["inside of `m`"]),
    ("blur", "parallel P(i)  serial", &["`i` is parallel inside of `once`"]),
    ("gemm", "distribute C_init, C at m; unroll C(m); unroll C(n); unroll C(k)", &["4641 copies of `C`"]),
    ("scale", "peel i", &["nothing to peel"]),
    ("gemm", "distribute C_init, C at m  reorder C(k, n)  parallel C(k)", &["in parallel with"]),
    ("blur", "compute_inline Q", &["`Q` is not a temporary"]),
    ("softmax", "compute_inline top", &["`top` is computed by 2 statements"]),
    ("softmax", "compute_inline x", &["no array `x`"]),
    ("chain", "compute_inline t", &["iteration i=0 of A overwrites A", "before", "uses the result"]),
    ("softmax", "compute_at top at e(m); compute_inline e", &["`e` is computed from `top`, which is private to loop"]),
    (
        "softmax",
        "merge total, Y at m; compute_at top at e(m); compute_at e at Y(m)",
        &["shares loops with the statements that compute `e`"],
    ),
    (
        "softmax",
        "merge total, Y at m; compute_at top at e(m); store_at e at Y(m)",
        &["shares loops with the statements that compute `e`"],
    ),
    ("both", "cache_write B at i  divide", &["before copies and private values"]),
    ("gemm", "cache_read B  expand", &["before copies and private values"]),
    ("blur", "compute_inline P  normalize", &["starts from the program as written"]),
    (
        "gemm",
        "distribute C_init, C at m; wavefront C(m); cache_read A at C(m)",
        &["has no waves", "`cache_read A at C(m)`"],
    ),
    ("blur", "parallel P(i); store_at P at Q_1(i)", &["belongs to no thread"]),
    ("chain", "compute_at t at C(i)", &["overwrites A"]),
    ("chain", "compute_at u at D(i)", &["reads u(20), which no assignment gives"]),
    ("blur2", "compute_at Bx at Bx(y)", &["`Bx` is already in loop `Bx(y)`"]),
    ("softmax", "compute_at top at Y(m)", &["`e` reads `top` and is not in loop `Y(m)`"]),
    ("blur2", "split Out(y) by 4 -> yo, yi; store_at Bx at yi; compute_at Bx at yo", &["yo", "<--"]),
    ("gemm", "fuse m, k -> f", &["`k` is not directly inside of `m`"]),
    ("heat", "fuse t, i -> f  parallel f", &["in parallel with", "f ["]),
    ("gemm", "fuse n, m -> f", &["`m` is not directly inside of `n`"]),
    ("gemm", "rfactor C over m -> P", &["not a loop of the reduction"]),
    ("scale", "rfactor A over j -> P", &["0 updates of `A`"]),
    ("gemm", "rfactor C over k -> A", &["`A` is already defined"]),
    ("prefix", "rfactor s over j -> P", &["reads `s` itself"]),
    ("gemm", "distribute C_init, C at m; tensorize C(m, k)", &["loop `n`"]),
    ("gemm", "distribute C_init, C at m; tensorize C(m, n, k) with by_lanes", &["operand `B` has stride 21 along `k`"]),
    (
        "gemm",
        "distribute C_init, C at m; tensorize C(m, n, k) with magic",
        &["no tensor instruction on f32 of this target `magic`", "by_lanes"],
    ),
    ("strided", "distribute C_init, C at m; tensorize C(m, k)", &["no tensor instruction: the body of `C` is not"]),
    (
        "softmax",
        "store_at top at e(m); compute_at top at e(n); reorder e(n, m)",
        &[
            "in another iteration of loop n than",
            "the memory of `top` is for one iteration of loop `m` inside of loop `n`",
        ],
    ),
    (
        "softmax",
        "store_at top at e(m); compute_at top at e(n); fuse e(m, n) -> f",
        &["in another iteration of loop f than"],
    ),
    ("softmax", "compute_at e at Y(m)", &["`total` reads `e` and is not in loop `Y(m)`"]),
    ("scale", "cache_read A at i", &["`A` in loop `i` writes `A`", "i [", "<--"]),
    ("scale", "cache_read y at i", &["no array `y`", "A, x"]),
    ("both", "cache_read B at i", &["writes `B`"]),
    ("gemm", "cache_read A at k  distribute A_cache, C at k", &["`A_cache` is private to loop `k`"]),
    ("scale", "cache_write x at i", &["nothing in loop `i` writes `x`"]),
    ("wave", "cache_write A at i  parallel i", &["in parallel with", "A_fill"]),
    ("gemm", "vectorize n by 8  cache_read B at n_8", &["loop `n_8` is vectorized or unrolled"]),
    ("gemm", "cache_read B at C(m)  pack B as (n / 16, k)", &["elements (0,0) and (0,1)", "share one location"]),
    ("gemm", "cache_read B at C(m)  pack B as (n / 16, q)", &["no dimension of the copy `q`", "k, n"]),
    ("gemm", "pack B as (n, k)", &["B"]),
    ("table", "cache_read V at i  pack V as (d0)", &["`A` reads `V_cache` at computed subscripts"]),
    ("gemm", "cache_read B; cache_read B at C(m)", &["already read from a copy"]),
    (
        "gemm",
        "split n by 12 -> no, ni  pad ni to 8",
        &["`ni` has 12 iterations in each tile, which is not a multiple of 8"],
    ),
    ("scale", "pad j to 16; split j by 6 -> jo, ji", &["padded to 16, which is not a multiple of 6"]),
    ("heat", "pad i to 16; vectorize i by 8", &["in one vector with", "pad 8"]),
    (
        "diagonal",
        "parallel i  cache_write A at i  unroll A_fill(d1)",
        &["`cache_write A at i`:", "in parallel with", "<--"],
    ),
    ("scale", "pad j to 9223372036854775807", &["too large", "at most 65536"]),
];

#[test]
fn refused_schedules_say_why_and_where() {
    let mut wrong = vec![];
    for (program, primitives, words) in REFUSED {
        let model = Model::from_program(file(program, primitives), Some(program), None).unwrap();
        let dims: BTreeMap<String, i64> = dims().into_iter().filter(|d| model.symbols().contains(&d.0)).collect();
        let error = match outputs(model.with_schedule("s").unwrap(), &dims, 1) {
            Ok(_) => "it was accepted".to_string(),
            Err(e) => e.to_string(),
        };
        for word in words.iter().chain(&["t.tile:", "^"]) {
            if !error.contains(word) {
                wrong.push(format!("{program}: {primitives}: {word:?} is not in: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn instructions_of_other_targets_are_refused() {
    for (target, own, others) in [
        (Target::avx512(), "vfmadd231ps", "fmla"),
        (Target::avx2(), "vfmadd231ps", "fmla"),
        (Target::neon(), "fmla", "vfmadd231ps"),
    ] {
        let compiled = |with: &str| {
            let tiles = "distribute C_init, C at m; tile C(m, n) by (4, 16) -> mo, no, mi, ni";
            let model = Model::from_program(
                file("gemm", &format!("{tiles}; tensorize C(mi, ni, k) with {with}")),
                Some("gemm"),
                None,
            );
            let model = model.unwrap().with_schedule("s").unwrap();
            let dims = dims().into_iter().filter(|d| model.symbols().contains(&d.0)).collect();
            model.compile_module(&Options { dims, target: Some(target.clone()), ..Options::default() })
        };
        let report = compiled(own).unwrap_or_else(|e| panic!("{}: {e}", target.name)).1;
        assert!(report.kernels[0].tensorized, "{}: {report}", target.name);
        let error = compiled(others).map(|_| ()).unwrap_err().to_string();
        let words = format!("no tensor instruction on f32 of this target `{others}`");
        assert!(error.contains(&words), "{}: {error}", target.name);
    }
}

/// The text of a product with sums in matrices, with the schedule that takes `instruction` by hand; `changes` are made to it.
fn matrices([a, b, sum]: [&str; 3], terms: i64, instruction: &str, changes: &[(&str, &str)]) -> String {
    let text = format!(
        "def product({a}(M, K) A, {b}(K, N) B) -> (C) {{ C(m, n) +=! {sum}(A(m, k)) * {sum}(B(k, n)) }}
        schedule s for product {{
            distribute C_init, C at m; tile C(m, n) by (4, 12) -> mo, no, mi, ni
            split C(k) by {terms} -> ko, ki; reorder C(mo, no, ko, mi, ni, ki)
            pack_read B as (n / 12, k / {terms}, n % 12, k % {terms})
            tensorize C(mi, ni, ki) with {instruction}
        }}"
    );
    changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}: {text}");
        text.replace(from, to)
    })
}

/// Compiles the product for AArch64 with matrix instructions: the report, or the refusal.
fn compiled_matrices(text: &str, terms: i64) -> Result<String, String> {
    let model = Model::from_program(language::parse("t.tile", text).unwrap(), Some("product"), None).unwrap();
    let dims = [("M", 7), ("N", 18), ("K", terms)].map(|(n, v)| (n.to_string(), v)).into();
    let target = Target::by_name("aarch64-neon+dotprod+i8mm+bf16").unwrap();
    let options = Options { dims, target: Some(target), ..Options::default() };
    let compiled = model.with_schedule("s").unwrap().compile_module(&options);
    compiled.map(|(_, report)| report.kernels[0].phases[0].instruction_text()).map_err(|e| e.to_string())
}

#[test]
fn matrix_instructions_are_taken_by_hand_or_refused_with_the_operand() {
    let (bytes, halves) = (["i8", "i8", "i32"], ["bf16", "bf16", "f32"]);
    let parts = ("tensorize C(mi", "unroll C(mi); vectorize C(ni); tensorize C(ki) with smmla #");
    for (types, terms, name, changes) in [
        (bytes, 8, "smmla", &[][..]),
        (["u8", "u8", "i32"], 8, "ummla_i32", &[]),
        (["u8", "i8", "i32"], 8, "usmmla", &[]),
        (halves, 4, "bfmmla", &[]),
        (bytes, 8, "smmla", &[parts]),
        // One row of sums, and an odd number of rows and columns.
        (halves, 4, "bfmmla", &[("by (4, 12)", "by (1, 12)")]),
        (halves, 4, "bfmmla", &[("by (4, 12)", "by (3, 5)"), ("n / 12", "n / 5"), ("n % 12", "n % 5")]),
    ] {
        let text = matrices(types, terms, name, changes);
        assert_eq!(compiled_matrices(&text, 6 * terms).as_deref(), Ok(name), "{text}");
    }
    let layout = "its layout must end with `n % …, k % ";
    for (types, terms, name, changes, reasons) in [
        (["u8", "i8", "i32"], 8, "smmla", &[][..], ["`smmla` does not compute this", "operand `A` is u8, not i8"]),
        (["i8", "u8", "i32"], 8, "smmla", &[], ["`smmla` does not compute this", "operand `B` is u8, not i8"]),
        (["f16", "f16", "f32"], 4, "bfmmla", &[], ["`bfmmla` does not compute this", "is f16, not bf16"]),
        (bytes, 8, "bfmmla", &[], ["`bfmmla` does not compute this", "accumulator `C` is i32, not f32"]),
        (
            bytes,
            8,
            "smmla",
            &[("k % 8)", "k % 4)"), ("k / 8", "k / 4")],
            ["operand `B` is not packed for `smmla`", layout],
        ),
        (
            halves,
            4,
            "bfmmla",
            &[("n % 12, k % 4", "k % 4, n % 12")],
            ["operand `B` is not packed for `bfmmla`", layout],
        ),
        (
            halves,
            4,
            "bfmmla",
            &[("C(k) by 4", "C(k) by 2")],
            ["loop `ki` is not the inner one", "the 4 terms of a lane"],
        ),
        (bytes, 8, "smmla", &[("mi, ni, ki", "ni, mi, ki")], ["operand `B` is not contiguous along `k`", "`smmla`"]),
        (
            ["u8", "u8", "u32"],
            8,
            "ummla",
            &[],
            ["`ummla` does not compute this", "accumulator `C` is u32, whose lanes"],
        ),
        (bytes, 8, "sm", &[], ["no tensor instruction on i32 of this target `sm`", "smmla"]),
    ] {
        let text = matrices(types, terms, name, changes);
        let error = compiled_matrices(&text, 6 * terms).unwrap_err();
        assert!(reasons.iter().chain(&["t.tile:", "^"]).all(|word| error.contains(word)), "{reasons:?}: {error}");
    }
    for (types, name, terms) in [(bytes, "smmla", 8), (halves, "bfmmla", 4)] {
        let error = compiled_matrices(&matrices(types, terms, name, &[]), 5 * terms + 2).unwrap_err();
        let reason = format!("terms along `k` are not a multiple of {terms}, and matrices have no part of a group");
        assert!(error.contains(&reason), "{error}");
    }
}

#[test]
fn a_report_names_the_tensor_instruction_or_the_operand_that_is_none() {
    let report = |primitives: &str| {
        let model = Model::from_program(file("gemm", primitives), Some("gemm"), None).unwrap();
        let dims = dims().into_iter().filter(|d| model.symbols().contains(&d.0)).collect();
        let options = Options { dims, ..Options::default() };
        model.with_schedule("s").unwrap().compile_module(&options).unwrap().1.kernels[0].clone()
    };
    let tiled = "distribute C_init, C at m; tile C(m, n) by (4, 16) -> mo, no, mi, ni; tensorize C(mi, ni, k)";
    let kernel = report(tiled);
    assert!(kernel.tensorized && kernel.phases[0].instruction_text().contains("ps"), "{:?}", kernel.phases);
    assert_eq!((kernel.phases[0].vector.as_deref(), kernel.phases[0].statement.as_str()), (Some("ni"), "C"));
    let kernel = report("distribute C_init, C at m; reorder C(n, k, m); vectorize C(m) by 8");
    assert!(!kernel.tensorized, "{:?}", kernel.phases);
    assert!(kernel.phases[0].instruction_text().contains("operand `A` has stride"), "{:?}", kernel.phases);
}

#[test]
fn a_fused_loop_is_one_loop() {
    for (primitives, divisions) in [("fuse i, j -> f", 1), ("fuse i, j -> f; split f by 4 -> fo, fi", 1)] {
        let model = Model::from_program(file("scale", primitives), Some("scale"), None).unwrap();
        let dims = [("M", 6), ("N", 8)].map(|(name, size)| (name.to_string(), size)).into();
        let options = Options { dims, ..Options::default() };
        let stage = tilewright::Stage::Loops;
        let text = model.with_schedule("s").unwrap().explain(&options, stage, None).unwrap();
        assert_eq!((text.matches("for i in").count(), text.matches("if ").count()), (0, 0), "{text}");
        assert_eq!(text.matches("floor").count(), divisions, "{text}");
    }
}
