//! Loop programs that are hard to schedule: with the ILP's schedule each computes what it computes in its own order, on one
//! and two threads.

mod common;

use common::{difference, root, run_seeded};
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::internal::language;
use tilewright::internal::language::syntax::Body;
use tilewright::internal::pipeline::kernel::Stage;
use tilewright::module::TensorSpec;
use tilewright::{Model, Options, Session, Tensor};

/// Difficulty, program.
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
    (
        "vectors that begin at a power of two, and at elements of an array, inside of theirs and added to an index that stays inside",
        "loop p(N) {
            inout f32 x[8][300+N], a[300+N], b[700+N], y[6][300+N], z[6][300+N]  in i64 s[6]
            for l in 0..7 for i in 0..300+N x[l+1][i] = x[l][i] + select(i >= shl(1, l), x[l][max(i - shl(1, l), 0)], 0)
            for r in 0..6 for i in 0..300+N y[r][i] = a[min(max(i - min(max(s[r], -400), 400), 0), 299+N)]
            for r in 0..6 for i in 0..300+N z[r][i] = b[i + s[r]]
        }",
    ),
    (
        "a temporary that nothing reads",
        "loop p(N) {
            out f64 y[N]
            temp f64 t, u[N]
            for i in 0..N y[i] = 1
            t = 2
            for i in 0..N u[i] += y[i]
        }",
    ),
    (
        "a temporary that two parts of a step use, each on any thread, with a part between them that threads divide",
        "loop p(N) {
            in i32 A[300][300]
            inout i32 x[300], z[N]
            temp i32 y[300], first, largest
            for t in 0..N {
                first = x[1]
                for i in 0..300 {
                    y[i] = 0
                    for j in 0..300 y[i] += A[i][j] * x[j]
                }
                largest = 1
                for i in 0..300 largest max= y[i]
                z[t] = first + largest
                for i in 0..300 x[i] = (y[i] + z[t]) % 97
            }
        }",
    ),
    (
        "rows that advance by two, whose quotient a loop and a statement after it share: below the loop it is not negative",
        "loop p(N) {
            inout i32 A[12][12], B[12][12], x[12], y[12]
            for i in 2..10 {
                for j in 2..9 for k in j + 1..10 S3: B[j - 1][j] += B[j][k]
                for j in 2..10 {
                    for k in 3..j S5: B[k - 1][i + 1] = (y[0] + B[j][k]) / 2
                    S6: B[i][j] += x[11 - i]
                }
                S7: B[5][i - 1] = (A[i - 1][i - 2] + x[i - 2]) / 2
            }
        }",
    ),
];

/// Outputs at subscripts from data: what they are, program.
const SCATTERS: &[(&str, &str)] = &[
    ("a histogram", "loop p(N) { in u8 x[40*N]\n inout i64 h[16]\n for i in 0..40*N h[x[i]] += 1 }"),
    (
        "sums of rows, then all of them",
        "loop p(N) {
            in i64 at[N], v[N][N+30]
            out i64 h[4][N+30], all[N+30]
            for k in 0..N+30 { all[k] = 0  for m in 0..4 h[m][k] = k }
            for i in 0..N for k in 0..N+30 h[at[i]][k] += v[i][k]
            for m in 0..4 for k in 0..N+30 all[k] += h[m][k] * h[m][k]
        }",
    ),
    (
        "the last value of each bin, in a loop that walks down",
        "loop p(N) {
            in i32 at[N][N], v[N][N]
            inout i32 h[N][3]
            for i in 0..N for j in 0..N step -1 h[i][at[i][j]] = v[i][j] + i32(i)
        }",
    ),
    (
        "a bin that is read where others are written",
        "loop p(N) {
            in i64 at[N]
            inout i64 h[N+2], g[N]
            for i in 0..N { g[i] = h[at[i]] + h[i]  h[at[i] + 1] = g[i] * 3  h[at[i]] max= g[0] % 5 }
        }",
    ),
    (
        "a temporary of each iteration",
        "loop p(N) {
            in i64 at[N][20]
            temp i64 t[2]
            out i64 y[N]
            for i in 0..N { t[0] = i  t[1] = 7  for j in 0..20 t[at[i][j]] += j * i  y[i] = t[0] - 2 * t[1] }
        }",
    ),
];

/// Reason why the ILP finds no rows, program.
const TOO_HARD: &[(&str, &str)] = &[
    (
        "a triangular loop of two statements under conditions on all loops, one of which reads through an index",
        "loop p(N) {
            inout f32 A[N+8][N+8]
            in i64 ix[N+8]
            for t in 2..N step 2 {
                for i in t..t+1 {
                    if i > 1 {
                        S1: A[t+6][t+5] max= A[ix[t]][N-t+4]
                    } else {
                        if i == t {
                            if i != 2 {
                                S2: A[i+1][t+5] = 0.3 * A[i+4][i+3] + 0.1
                            }
                        } else {
                            if i >= 1 && t <= N-2 {
                                S3: A[i+3][t+1] += 0.05 * A[t+4][t+7]
                            } else {
                                S4: A[N-i+4][i+6] += 0.05 * A[ix[i]][i+3]
                            }
                        }
                    }
                }
            }
            for t in 1..N {
                for i in 1..N-2 {
                    for j in i..N {
                        if j == t {
                            S5: A[j+3][N-i+3] -= 0.05 * A[t+2][N-t+3]
                        } else {
                            if j >= 1 && t <= N-2 {
                                S6: A[N-t+2][i+7] = 0.3 * (0.4 * (A[i+1][i+1] + select(A[i+5][t+5] < A[ix[i]][j+1], A[t+6][i+5], A[i+5][t+5]))) + 0.1
                            }
                        }
                    }
                }
            }
        }",
    ),
    (
        "ten statements in loops of their own under one loop, all of which reach each other",
        "loop p(N) {
            inout f64 A[N+8][N+8]
            inout f64 B[N+8][N+8]
            in i64 ix[N+8]
            for t in 0..N-2 {
                for i in t+1..min(t+3, N) {
                    for j in t..N {
                        S1: B[i+4][j+3] = 0.3 * (B[t+6][t+6] + (0.4 * 0.25)) + 0.1
                    }
                    for j in 0..i+1 {
                        S2: B[N-j+4][N-j+5] -= 0.05 * A[j+6][N-i+3]
                    }
                    for j in t+1..N-2 {
                        S3: A[2][i+2] = 0.3 * B[i+7][i+2] + 0.1
                    }
                }
                for i in 0..N-1 step 2 {
                    for j in 0..i {
                        if t < j+1 {
                            if j >= 1 && t <= N-2 {
                                S4: B[t+5][j+1] min= ((0.25 + (A[j+1][t+3] + B[0][j+7])) + (0.4 * (0.4 * A[3][t+1])))
                            }
                        }
                    }
                }
                for i in 0..min(t+3, N) {
                    for j in 0..i+1 {
                        if j > 1 {
                            if j + t < N {
                                S5: A[j+1][j+1] += 0.05 * (0.25 - -0.75)
                            } else {
                                S6: A[3][t+6] += 0.05 * -0.75
                            }
                        }
                        if j == t {
                            S7: B[j+7][i+3] += 0.05 * ((0.4 * B[N-j+4][j+5]) - (A[i+2][j+7] - A[N-j+4][N-i+4]))
                        } else {
                            S8: B[N-t+3][i+4] = 0.3 * (A[6][t+1] + (A[ix[i]][i+7] + A[t+5][j+1])) + 0.1
                        }
                    }
                    if i == t {
                        S9: A[t+6][i+2] -= 0.05 * B[5][i+4]
                    }
                    for j in 0..N {
                        if t < j+1 {
                            if t < j+1 {
                                S10: A[t+5][t+7] min= (A[j+5][1] - max(B[t+4][t+7], (B[4][5] - B[N-i+3][i+3])))
                            }
                        }
                    }
                }
            }
        }",
    ),
];

/// Subscripts and conditions that are not affine, program. Sizes are not multiples of the divisors.
const QUASI_AFFINE: &[(&str, &str)] = &[
    (
        "a periodic stencil in two buffers that take turns",
        "loop p(N) {
            inout i32 g[2][N][N+3]
            temp i32 n
            for t in 0..5 for y in 0..N for x in 0..N+3 {
                n = g[t % 2][(y + N - 1) % N][(x + N + 2) % (N + 3)] + g[t % 2][y][(x + 1) % (N + 3)] + g[t % 2][(y + 1) % N][x]
                g[(t + 1) % 2][y][x] = n % 1000 - g[t % 2][y][x]
            }
        }",
    ),
    (
        "red and black cells, whose parity is that of both indices",
        "loop p(N) {
            inout i32 u[N+2][N+4]
            in i32 f[N+2][N+4]
            for t in 0..3 for c in 0..2 for i in 1..N+1 for j in 1..N+3
                if (i + j) % 2 == c
                    u[i][j] = (u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1] - f[i][j]) % 1000
        }",
    ),
    (
        "three levels of time, and a loop that counts down",
        "loop p(N) {
            inout i32 u[3][N+2]
            inout i32 v[N+2]
            for t in 2..9 {
                for i in 1..N+1 u[t % 3][i] = (u[(t + 2) % 3][i - 1] + u[(t + 2) % 3][i + 1] - u[(t + 1) % 3][i]) % 1000
                for i in 1..N+1 step -1 v[i] += u[t % 3][i] * v[(i + 1) % (N + 2)] % 7
            }
        }",
    ),
    (
        "a window of a filter that is kept inside, a mirrored border, and an image of half the size",
        "loop p(N) {
            in i32 a[N+1][N+2], k[3][3]
            out i32 o[N+1][N+2], m[N+1]
            inout i32 h[(N+1) / 2 + 1][N+2]
            temp i32 s
            for y in 0..N+1 for x in 0..N+2 {
                s = 0
                for i in 0..3 for j in 0..3
                    s += k[i][j] * a[min(max(y + i - 1, 0), N)][min(max(x + j - 1, 0), N + 1)]
                o[y][x] = s
            }
            for y in 0..N+1 m[y] = a[abs(y - 1)][min(y + 2, N + 1)]
            for y in 0..N+1 for x in 0..N+2 h[y / 2][x] += a[y][x]
        }",
    ),
    (
        "sums by the remainder of an index, and of a quotient that is divided again",
        "loop p(N) {
            in i32 x[12 * N + 5]
            inout i32 h[16], q[3], z[2]
            for i in 0..12*N+5 h[i % 16] += x[i]
            for i in 0..12*N+5 if i / 2 % 3 != 1 q[(i / 2) % 3] += x[i]
            for i in 0..N if !(i % 3 == 0 || i % 2 == 1) z[i % 2] += x[i] else z[1] -= x[i + 1]
        }",
    ),
    (
        "triangles and conditions on both sides of a diagonal",
        "loop p(N) {
            inout i32 A[N+1][N+1]
            for t in 0..2 for i in 0..N+1 for j in i..N+1
                if (j - i) % 4 == 2 A[i][j] += A[j % (N / 2 + 1)][i] else A[min(i, j)][max(i - j, 0)] -= 1
        }",
    ),
];

#[test]
fn subscripts_with_remainders_minima_and_maxima_compute_what_they_compute_in_their_own_order() {
    for (what, text) in QUASI_AFFINE {
        let model = model(text);
        for size in [1, 2, 7, 19, 70] {
            let expected = outputs(model.clone().untransformed(), size, 1);
            for threads in [1, 2] {
                assert!(outputs(model.clone(), size, threads) == expected, "{what}: N = {size}, {threads} threads");
            }
        }
    }
}

/// No statement of these ever runs for N = 1, or for any.
const IDLE: &[&str] = &[
    "loop p(N) { inout f64 A[N][N]\n for i in 0..N for j in 0..i S: A[i][j] += A[j][i] }",
    "loop p(N) { inout f32 x[N], y[N+2]\n for i in 1..N { S: x[i] = x[i-1]\n for j in i..N T: y[j] += x[i] } }",
    "loop p(N) { inout i64 A[N+3]\n for t in 0..0 for i in 0..N A[i] += 1 }",
    "loop p(N) { inout f64 A[N]\n for i in 0..N if i > N + 3 A[i] = 1 }",
];

fn outputs(model: Model, size: i64, threads: usize) -> Vec<Tensor> {
    let options = Options { dims: BTreeMap::from([("N".to_string(), size)]), ..Options::default() };
    let module = model.compile_module(&options).unwrap_or_else(|e| panic!("{e}")).0;
    run_seeded(Arc::new(module), threads, 2).unwrap()
}

#[test]
fn hard_programs_compute_what_they_compute_in_their_own_order() {
    for (what, text) in PROGRAMS {
        let model = model(text);
        for (size, threads) in [(7, 1), (19, 1), (19, 2)] {
            let expected = outputs(model.clone().untransformed(), size, 1);
            assert!(outputs(model.clone(), size, threads) == expected, "{what}: N = {size}, {threads} threads");
        }
    }
}

#[test]
fn scatters_compute_what_they_compute_in_their_own_order() {
    for (what, text) in SCATTERS {
        let model = model(text);
        for size in [1, 7, 19, 130] {
            let expected = outputs(model.clone().untransformed(), size, 1);
            for threads in [1, 2] {
                assert!(outputs(model.clone(), size, threads) == expected, "{what}: N = {size}, {threads} threads");
            }
        }
    }
}

/// Partial results of a fixed number of parts, on any number of threads.
#[test]
fn a_scatter_is_divided_in_parts_by_rfactor() {
    let text = "loop p(N = 1000) { in u8 x[N]\n in f32 v[N]\n inout f32 h[7]\n for i in 0..N h[x[i]] += v[i] }
        schedule parts for p { split i by 125 -> io, ii  rfactor h over io -> P  parallel P(io) }
        schedule wrong for p { split i by 125 -> io, ii  parallel io }
        schedule copied for p { cache_write h at i }";
    let file = || language::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}"));
    let compiled = |schedule: &str| {
        let model = Model::from_program(file(), None, None)?.with_schedule(schedule)?;
        model.compile_module(&Options::default())
    };
    let module = Arc::new(compiled("parts").unwrap_or_else(|e| panic!("{e}")).0);
    let run = |threads| run_seeded(module.clone(), threads, 2).unwrap();
    assert!(run(1) == run(2));
    let serial = outputs(Model::from_program(file(), None, None).unwrap(), 1000, 1);
    assert_eq!(difference(&run(1)[0], &serial[0], 1e-5), None);
    for (schedule, why) in [
        ("wrong", "iteration i=125 of h would run in parallel with i=0, which updates h(?) too"),
        ("copied", "`h` is written at subscripts from data"),
    ] {
        let refused = compiled(schedule).err().map_or(String::new(), |e| e.to_string());
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn subscripts_of_writes_are_checked() {
    let module = |text: &str| Arc::new(model(text).compile_module(&Options::default()).unwrap().0);
    let scatter = module("loop p(N = 6) { in i64 x[N]\n inout i64 h[4]\n for i in 0..N h[x[i] - 2] += 1 }");
    let run = |x: [i64; 6]| {
        let (x, h) = (Tensor::new(&[6], &x), Tensor::new(&[4], &[0i64; 4]));
        Session::new(scatter.clone(), 1)?.run(&[("x", &x), ("h", &h)])
    };
    assert_eq!(run([2, 5, 3, 5, 2, 2]).unwrap()[0].to_vec::<i64>(), [3, 1, 0, 2]);
    for wrong in [1, 6, -1, i64::MIN, i64::MAX] {
        let message = run([2, 3, wrong, 2, 2, 2]).err().map(|e| e.to_string());
        assert_eq!(message, Some(format!("invalid: index {wrong} at [2] of tensor `x` lies outside of 2..=5")));
    }
    let error = |text: &str| match language::parse("p.tile", text).and_then(|f| Model::from_program(f, None, None)) {
        Ok(model) => model.compile_module(&Options::default()).err().map(|e| e.to_string()).unwrap_or_default(),
        Err(e) => e.to_string(),
    };
    let of_float = "loop p(N = 6) { in f32 x[N]\n inout i64 h[4]\n for i in 0..N h[x[i]] += 1 }";
    assert!(error(of_float).contains("`x[i]` is f32, which is not a type of subscripts"), "{}", error(of_float));
}

/// Quotients, remainders, minima and products of indices are subscripts where their operations keep them inside.
#[test]
fn integer_expressions_of_indices_are_subscripts() {
    let n = 37;
    let y: Vec<i64> = (0..n).map(|i| i * i % 23 - 5).collect();
    let at = |i: i64| y[i as usize];
    let wrapped = |i: i64| i.rem_euclid(n) as usize;
    let halves: Vec<i64> = (0..n).map(|i| at(i / 2) + 3 * at(i % 4)).collect();
    let periodic: Vec<i64> = (0..n).map(|i| y[wrapped(i + 1)] - y[wrapped(i - 1)]).collect();
    let clamped: Vec<i64> = (0..n).map(|i| at((i + 3).min(n - 1)) + at((i - 3).max(0))).collect();
    let mut sums = vec![0; n as usize];
    (0..n).for_each(|i| sums[i as usize / 3] += at(i));
    let mut in_place = y.clone();
    (0..n as usize).for_each(|i| in_place[i] += in_place[wrapped(i as i64 + 5)]);
    let products: Vec<i64> = (0..n).map(|i| (0..6).map(|j| at((i % 6) * j)).sum()).collect();
    let numbers: Vec<i64> = (0..n).map(|i| i.wrapping_mul(6364136223846793005).wrapping_add(at(i))).collect();
    // by powers of two: dividends of both signs, and a power that 64 bits do not hold
    let powers: Vec<i64> =
        (0..n).map(|i| (0..6).map(|s| at((i >> s) * 2 % n) - (i - 20).rem_euclid(4 << s)).sum()).collect();
    let mut reversed = y.clone();
    (0..4).for_each(|s| (0..16).for_each(|k: usize| reversed[(k >> s << s) + (15 - k) % (1 << s)] += k as i64));
    let far: Vec<i64> = (0..n).map(|i| (0..3).map(|s| i % (1i64 << (60 + s)) + s).sum()).collect();
    for (body, expected) in [
        ("for i in 0..N x[i] = y[i / 2] + 3 * y[i % 4]", halves),
        ("for i in 0..N x[i] = y[(i + 1) % N] - y[(i - 1) % N]", periodic),
        ("for i in 0..N x[i] = y[min(i + 3, N - 1)] + y[max(i - 3, 0)]", clamped),
        ("for i in 0..N x[i] = 0 for i in 0..N x[i / 3] += y[i]", sums),
        ("for i in 0..N x[i] = y[i] for i in 0..N x[i] += x[(i + 5) % N]", in_place),
        ("for i in 0..N { x[i] = 0 for j in 0..6 x[i] += y[i % 6 * j] }", products),
        ("for i in 0..N x[i] = i * 6364136223846793005 + y[i]", numbers),
        ("for i in 0..N { x[i] = 0 for s in 0..6 x[i] += y[i / shl(1, s) * 2 % N] - (i - 20) % shl(4, s) }", powers),
        (
            "for i in 0..N x[i] = y[i] for s in 0..4 for k in 0..16 x[(k / shl(1, s) * shl(1, s) + (15 - k) % shl(1, s)) % N] += k",
            reversed,
        ),
        ("for i in 0..N { x[i] = 0 for s in 0..3 x[i] += i % shl(1, s + 60) + s }", far),
    ] {
        let program = model(&format!("loop p(N = {n}) {{ in i64 y[N]\n out i64 x[N]\n {body} }}"));
        let module = Arc::new(program.compile_module(&Options::default()).unwrap().0);
        for threads in [1, 2] {
            let given = Tensor::new(&[n], &y);
            let found = Session::new(module.clone(), threads).unwrap().run(&[("y", &given)]).unwrap();
            assert_eq!(found[0].to_vec::<i64>(), expected, "{body}");
        }
    }
    let def = model(
        "def p(f32(M, N) X) -> (Y) { sizes S { M = 5, N = 8 } Y(i, j) = X(i, j / 2) + X(4 - i, (j + 3) % N) where j in 0..N }",
    );
    let x: Vec<f32> = (0..40).map(|v| v as f32).collect();
    let module = Arc::new(def.compile_module(&Options::default()).unwrap().0);
    let found = Session::new(module, 1).unwrap().run(&[("X", &Tensor::new(&[5, 8], &x))]).unwrap();
    let value = |i: usize, j: usize| x[i * 8 + j / 2] + x[(4 - i) * 8 + (j + 3) % 8];
    let expected: Vec<f32> = (0..40).map(|k| value(k / 8, k % 8)).collect();
    assert_eq!(found[0].to_vec::<f32>(), expected);
}

/// Branches on data, as plain Rust runs them.
#[test]
fn conditions_on_data_choose_values() {
    let n = 61;
    let y: Vec<i64> = (0..n).map(|i| i * i % 23 - 9).collect();
    let kinds: Vec<i64> = y
        .iter()
        .map(|&v| {
            if v > 3 {
                v
            } else if v < -3 {
                -v
            } else {
                100
            }
        })
        .collect();
    let counts = vec![y.iter().filter(|&&v| v > 0).count() as i64, y.iter().filter(|&&v| v > 0 && v % 2 == 0).sum()];
    let (mut best, mut at, mut found) = (y[0], 0, vec![]);
    for i in 0..n {
        if y[i as usize] >= best {
            (best, at) = (y[i as usize], i);
        } else {
            at -= 1;
        }
        found.push(best * 1000 + at);
    }
    let mut bubbles = y.clone();
    for i in (0..3).flat_map(|_| 0..n as usize - 1) {
        if bubbles[i] > bubbles[i + 1] {
            bubbles.swap(i, i + 1);
        }
    }
    let alternating: Vec<i64> = (0..n).map(|i| if i % 2 == 1 && i > 5 { y[i as usize - 6] } else { 7 }).collect();
    let mut bins = vec![0; 5];
    y.iter().filter(|v| **v >= 0).for_each(|v| bins[*v as usize % 5] += 1);
    for (body, expected) in [
        ("for i in 0..N if y[i] > 3 x[i] = y[i] else if y[i] < -3 x[i] = -y[i] else x[i] = 100", kinds),
        ("x[0] = 0 x[1] = 0 for i in 0..N if y[i] > 0 { x[0] += 1  if y[i] % 2 == 0 x[1] += y[i] }", counts),
        (
            "best = y[0] at = 0 for i in 0..N { if y[i] >= best { best = y[i] at = i } else { at -= 1 } x[i] = 1000 * best + at }",
            found,
        ),
        ("for i in 0..N if i % 2 == 1 && i > 5 x[i] = y[i - 6] else x[i] = 7", alternating),
        ("for k in 0..5 x[k] = 0 for i in 0..N if y[i] >= 0 x[y[i] % 5] += 1", bins.clone()),
        ("for k in 0..5 x[k] = 0 for i in 0..N if y[i] >= 0 { place = y[i] % 5 x[place] += 1 }", bins),
        // branches of several statements and a loop, under a condition that they change
        (
            "for i in 0..N x[i] = y[i] for t in 0..3 for i in 0..N-1 if x[i] > x[i + 1] { best = x[i] x[i] = x[i + 1] for j in i+1..i+2 x[j] = best }",
            bubbles,
        ),
    ] {
        let place = if body.contains("place") { ", place" } else { "" };
        let text = format!(
            "loop p(N = {n}) {{ in i64 y[N]\n inout i64 x[N]\n temp i64 best, at{place}\n best = 0 at = 0 {body} }}"
        );
        let program = model(&text);
        let module = Arc::new(program.compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}")).0);
        for threads in [1, 2] {
            let given = [Tensor::new(&[n], &y), Tensor::new(&[n], &vec![0i64; n as usize])];
            let run = [("y", &given[0]), ("x", &given[1])];
            let found = Session::new(module.clone(), threads).unwrap().run(&run).unwrap();
            assert_eq!(found[0].to_vec::<i64>()[..expected.len()], expected, "{body}");
        }
    }
}

fn model(text: &str) -> Model {
    let file = language::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}"));
    Model::from_program(file, None, None).unwrap()
}

#[test]
fn programs_without_rows_keep_their_order_and_say_so() {
    for (what, text) in TOO_HARD {
        let options = Options { dims: BTreeMap::from([("N".to_string(), 19)]), ..Options::default() };
        let (module, report) = model(text).compile_module(&options).unwrap_or_else(|e| panic!("{what}: {e}"));
        let why = report.kernels.iter().find_map(|k| k.fallback.clone()).unwrap_or_default();
        let said = why.contains("original order of") && why.contains("no row was found for");
        assert!(said, "{what}: {why}");
        let expected = outputs(model(text).untransformed(), 19, 1);
        let module = Arc::new(module);
        for threads in [1, 2] {
            for (found, expected) in run_seeded(module.clone(), threads, 2).unwrap().iter().zip(&expected) {
                assert_eq!(difference(found, expected, 1e-4), None, "{what}, {threads} threads");
            }
        }
    }
}

/// One array element is written again in each of 40 loops: pairs of instances have 80 dimensions.
#[test]
fn forty_loops_of_two_iterations_compile() {
    let loops: String = (0..40).map(|i| format!("for q{i} in 0..N ")).collect();
    let text = format!("loop p(N) {{ inout f32 A[N] {loops} A[q0] = A[q0] + 1 }}");
    let model = model(&text);
    let options = Options { dims: BTreeMap::from([("N".to_string(), 2)]), ..Options::default() };
    let schedule = model.explain(&options, Stage::Schedule, None).unwrap();
    assert!(schedule.contains("original order") && !schedule.contains("operations"), "{schedule}");
}

#[test]
fn what_never_runs_leaves_its_arrays_as_they_are() {
    let options = Options { dims: BTreeMap::from([("N".to_string(), 1)]), ..Options::default() };
    for text in IDLE {
        let model = model(text);
        let module = model.compile_module(&options).unwrap_or_else(|e| panic!("{text}: {e}")).0;
        let module = Arc::new(module);
        let seeded = |(i, s): (u64, &TensorSpec)| Tensor::seeded(s.dtype, &s.shape, 1, i, 2);
        let given: Vec<Tensor> = (0..).zip(module.inputs()).map(seeded).collect();
        for threads in [1, 2] {
            assert!(run_seeded(module.clone(), threads, 2).unwrap() == given, "{text}");
        }
        assert!(outputs(model.clone().untransformed(), 1, 1) == given, "{text}");
        for &stage in Stage::ALL.iter().filter(|s| !matches!(s, Stage::Graph | Stage::Rewritten)) {
            model.explain(&options, stage, None).unwrap_or_else(|e| panic!("{stage} of {text}: {e}"));
        }
    }
}

#[test]
fn every_kernel_of_polybench_runs_with_sizes_of_one() {
    let mut idle = 0;
    for entry in std::fs::read_dir(root().join("datasets/polybench")).unwrap() {
        let file = tilewright::File::load(entry.unwrap().path()).unwrap();
        let Body::Loop { parameters, .. } = &file.programs[0].body else { panic!("a loop program") };
        let dims = parameters.iter().map(|p| (p.name.text.clone(), 1)).collect();
        let (name, options) = (file.programs[0].name.text.clone(), Options { dims, ..Options::default() });
        let model = Model::from_program(file, None, None).unwrap();
        let run = |model: Model, threads| {
            let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{name}: {e}")).0);
            run_seeded(module, threads, 2).unwrap()
        };
        let expected = run(model.clone().untransformed(), 1);
        for threads in [1, 2] {
            for (found, expected) in run(model.clone(), threads).iter().zip(&expected) {
                assert_eq!(difference(found, expected, 1e-12), None, "{name}");
            }
        }
        idle += usize::from(!model.explain(&options, Stage::Scop, None).unwrap().contains("order"));
    }
    assert!(idle > 3, "{idle}");
}
