//! Choices among candidates, and that each is proven.

use super::*;
use crate::language;
use crate::language::lowered::Computation;
use crate::poly::normalize::{array_expansion, index_set_split};
use crate::poly::schedule::Node;
use crate::poly::statement::StatementId;
use crate::poly::{ilp, reference, samples};
use crate::runtime::Tensor;

/// The plan of a loop program for AVX-512 and its candidates.
fn planned(text: &str) -> (Scop, Tiled, Vec<Candidate>) {
    let file = language::parse("t.tile", text).unwrap();
    let meaning = file.lower(file.program(None).unwrap(), &Default::default(), None).unwrap();
    let Computation::Loop(scop) = meaning.computation else { panic!("a loop program") };
    let scop = array_expansion::expand(&index_set_split::split(&scop).unwrap()).unwrap();
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let (schedule, _) = ilp::schedule(&scop, &dependences).unwrap();
    let target = samples::with_rows(Target::avx512());
    let tiled = plan(&scop, &dependences, &schedule, &target, MOST_ENTRIES).unwrap().0;
    legality::check(&scop, &dependences, &tiled.schedule).unwrap();
    let default = tile::tile(&scop, &schedule, &target).unwrap();
    let found = candidates(&scop, &dependences, &schedule, default, &target, MOST_ENTRIES).unwrap();
    (scop, tiled, found)
}

#[test]
fn a_defect_of_a_candidate_is_an_error_and_a_refusal_is_not() {
    let scop = crate::poly::normalize::build::build("t", &samples::matmul(8, 32, 16)).unwrap();
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let (schedule, _) = ilp::schedule(&scop, &dependences).unwrap();
    let target = samples::with_rows(Target::avx512());
    let mut default = tile::tile(&scop, &schedule, &target).unwrap();
    assert!(
        candidates(&scop, &dependences, &schedule, default.clone(), &target, MOST_ENTRIES)
            .is_ok_and(|c| c[0].is_default())
    );
    let packing = default.packings.iter_mut().find(|p| p.dims.len() > 1).expect("an operand is packed");
    packing.dims.clear();
    let found = candidates(&scop, &dependences, &schedule, default, &target, MOST_ENTRIES);
    assert!(matches!(&found, Err(Error::Internal(why)) if why.contains("leaves out an iterator")));
    assert!(unless_refused::<()>(Err(Error::refused("not legal"))).is_ok_and(|part| part.is_none()));
}

const AVERAGE: &str = "loop average(T = 3000, C = 300) { in f32 X[T][C]  inout f32 Y[T][C]
    for c in 0..C for t in 1..T Y[t][c] = 0.9 * Y[t-1][c] + 0.1 * X[t][c] }";
const HAAR: &str = "loop haar(N = 1024) { in f32 X[2*N][2*N]  inout f32 W[2*N][2*N]  temp f32 H[2*N][2*N]
    for i in 0..2*N for j in 0..N {
        H[i][j] = 0.7 * (X[i][2*j] + X[i][2*j+1])
        H[i][j+N] = 0.7 * (X[i][2*j] - X[i][2*j+1])
    }
    for i in 0..N for j in 0..2*N {
        W[i][j] = 0.7 * (H[2*i][j] + H[2*i+1][j])
        W[i+N][j] = 0.7 * (H[2*i][j] - H[2*i+1][j])
    } }";

#[test]
fn a_recurrence_walks_rows_where_its_vectors_are_columns() {
    let (scop, tiled, _) = planned(AVERAGE);
    let names: Vec<_> = tiled.schedule.path(scop.ids().next().unwrap());
    let text = tiled.schedule.print(&scop);
    assert_eq!(names.len(), 3, "{text}");
    let at = |name: &str| text.find(name).unwrap();
    assert!(at("  t [") < at("co ["), "blocks of 64 bytes down the columns: {text}");
}

#[test]
fn long_programs_are_divided_into_strips_for_threads() {
    let strips = |times: i64| {
        let (scop, tiled, found) = planned(&format!(
            "loop average(T = {times}, C = 600) {{ in f32 X[T][C]  inout f32 Y[T][C]
               for c in 0..C for t in 1..T Y[t][c] = exp(-0.9 * Y[t-1][c]) * tanh(X[t][c]) * exp(X[t][c]) * log(X[t][c]) }}"
        ));
        assert!(found.iter().any(|c| c.style.strips));
        tiled.schedule.print(&scop).contains("ct [parallel coincident tile")
    };
    assert!(strips(30000));
}

#[test]
fn vectors_of_short_sums_leave_no_rest() {
    let vectors = |k: i64| -> Vec<i64> {
        let (_, _, found) = planned(&format!(
            "loop p(N = 400, K = {k}) {{ in f32 x[4*N + K], h[K]  out f32 y[N]
               for n in 0..N {{ y[n] = 0  for k in 0..K y[n] += h[k] * x[4*n + K-1 - k] }} }}"
        ));
        let text = found.iter().find(|c| c.style == STYLES[2]).unwrap().nest.to_string();
        let end =
            |l: &str| l.trim().strip_prefix("vector k")?.split_once("in 0..")?.1.trim_end_matches(" {").parse().ok();
        text.lines().filter_map(end).collect()
    };
    // in lanes of 16: as a whole, in equal parts, and with a rest where there are none
    assert_eq!([96, 93, 160, 176].map(vectors), [vec![96], vec![93], vec![80], vec![64, 48]]);
}

#[test]
fn a_sum_reads_what_its_loop_computes_in_the_same_loop() {
    let (scop, tiled, found) = planned(
        "loop horner(N = 400000) { in f64 x[N], c[13]  inout f64 p[N], d[N], total[1]
           for i in 0..N {
             p[i] = c[12]
             d[i] = 0
             for k in 1..13 {
               d[i] = d[i] * x[i] + p[i]
               p[i] = p[i] * x[i] + c[12-k]
             }
           }
           for i in 0..N total[0] += p[i] / (1 + d[i] * d[i]) }",
    );
    let chosen = found.iter().find(|c| c.tiled.schedule == tiled.schedule).unwrap();
    assert_eq!(chosen.order, Order::Fused, "{}", tiled.schedule.print(&scop));
    let (ids, text) = (scop.ids().collect::<Vec<_>>(), tiled.schedule.print(&scop));
    let Node::Band(band, _) = &tiled.schedule.root else { panic!("loops that follow each other: {text}") };
    assert_eq!(band.rows[0].phi.len(), ids.len(), "{text}");
    // what would run before it was computed stays apart
    let (scop, _, found) = planned(
        "loop mean(N = 10000) { in f32 x[N]  inout f32 total[1], y[N]
           for i in 0..N total[0] += x[i]
           for i in 0..N y[i] = x[i] - total[0] }",
    );
    assert!(scop.statements.len() == 2 && found.iter().all(|c| c.order != Order::Fused));
}

#[test]
fn sums_are_vectors_along_elements_a_few_apart() {
    let (scop, tiled, _) = planned(
        "loop complex(M = 700, N = 1000) { in f32 A[M][N][2]  in f32 x[N][2]  inout f32 y[M][2]
           for i in 0..M for j in 0..N {
             y[i][0] += A[i][j][0] * x[j][0] - A[i][j][1] * x[j][1]
             y[i][1] += A[i][j][0] * x[j][1] + A[i][j][1] * x[j][0]
           } }",
    );
    let text = tiled.schedule.print(&scop);
    assert!(text.contains("j [vector]"), "rows of A would be transposed: {text}");
}

#[test]
fn statements_that_read_the_same_elements_share_their_loops() {
    let (scop, tiled, _) = planned(HAAR);
    let Node::Sequence(nests) = &tiled.schedule.root else { panic!("{}", tiled.schedule.print(&scop)) };
    let statements: Vec<usize> = nests.iter().map(|(ids, _)| ids.len()).collect();
    assert_eq!(statements, [2, 2], "{}", tiled.schedule.print(&scop));
}

#[test]
fn a_nest_without_long_loops_inside_is_a_vector_as_a_whole() {
    let (scop, tiled, _) = planned(
        "loop nearest(N = 4000) { in f32 P[N][8]  in f32 C[16][8]  temp f32 dist[N][16]  inout f32 best[N]  inout i32 label[N]
           for i in 0..N for k in 0..16 {
             dist[i][k] = 0
             for d in 0..8 dist[i][k] += (P[i][d] - C[k][d]) * (P[i][d] - C[k][d])
           }
           for i in 0..N for k in 0..16 {
             label[i] = select(dist[i][k] < best[i], i32(k), label[i])
             best[i] min= dist[i][k]
           } }",
    );
    let text = tiled.schedule.print(&scop);
    let lanes = |row: &str| text.contains(&format!("{row} [vector"));
    assert!(lanes("i") && !lanes("k") && !lanes("d"), "{text}");
}

#[test]
fn sums_of_tensor_instructions_keep_their_register_blocks() {
    for n in [60, 256] {
        let (_, tiled, found) = planned(&format!(
            "loop gemm(N = {n}) {{ inout f64 C[N][N]  in f64 A[N][N], B[N][N]
               for i in 0..N for j in 0..N for k in 0..N C[i][j] += A[i][k] * B[k][j] }}"
        ));
        assert!(found[0].is_default(), "{}", found.len());
        assert!(tiled.report.tensorized);
        assert_eq!(found[0].tiled.schedule, tiled.schedule);
    }
}

#[test]
fn an_order_that_is_free_has_no_candidates() {
    let scop = crate::poly::normalize::build::build("product", &samples::matmul(8, 32, 16)).unwrap();
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let (schedule, _) = ilp::schedule(&scop, &dependences).unwrap();
    let target = Target::avx512();
    let tiled = plan(&scop, &dependences, &schedule, &target, MOST_ENTRIES).unwrap().0;
    assert_eq!(tiled, tile::tile(&scop, &schedule, &target).unwrap());
}

#[test]
fn a_candidate_that_is_not_proven_is_passed_over() {
    // of the statements that share a loop over `j` only the largest value is a sum
    let (scop, tiled, found) = planned(
        "loop alignment(N = 400) { in i32 a[N], b[N]  inout i32 H[N+1][N+1]  inout i32 best
           for i in 1..N+1 for j in 1..N+1 {
             H[i][j] = max(H[i-1][j-1] + select(a[i-1] == b[j-1], 3, 0-2), max(H[i-1][j], H[i][j-1]) - 4)
             best max= H[i][j]
           } }",
    );
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let best = found.iter().min_by(|a, b| a.rank().total_cmp(&b.rank())).unwrap();
    assert!(legality::check(&scop, &dependences, &best.tiled.schedule).is_err());
    assert_ne!(best.tiled.schedule, tiled.schedule);
}

#[test]
fn triangular_sums_are_predicted_from_their_loops() {
    let (_, tiled, _) = planned(
        "loop syrk(N = 200, M = 160) { in f64 A[N][M]  inout f64 C[N][N]
           for i in 0..N for k in 0..M for j in 0..i+1 C[i][j] += A[i][k] * A[j][k] }",
    );
    // twice the work at one operation a cycle: far more than vectors take
    let serial = 200.0 * 200.0 * 160.0 / Target::avx512().machine.clock_ghz;
    let vectors = tiled.report.phases.iter().any(|phase| phase.vector.is_some());
    assert!(vectors && tiled.report.predicted_ns < serial / 4.0, "{:?}", tiled.report);
}

#[test]
fn sums_of_dynamic_programs_walk_rows() {
    for text in [
        "loop chain(N = 300) { in f64 p[N+1]  inout f64 M[N][N]
           for i in 0..N step -1 for j in i+1..N for k in i..j M[i][j] min= M[i][k] + M[k+1][j] + p[i] * p[k+1] * p[j+1] }",
        "loop tree(N = 200) { inout f32 M[N+1][N+1]  in f32 W[N+1][N+1]
           for i in 0..N step -1 for j in i+1..N+1 {
             M[i][j] = 1000
             for k in i..j M[i][j] min= M[i][k] + M[k+1][j]
             M[i][j] += W[i][j]
           } }",
    ] {
        let (scop, tiled, found) = planned(text);
        let chosen = found.iter().find(|c| c.tiled.schedule == tiled.schedule).unwrap();
        assert_eq!(chosen.order, Order::Contiguous, "{}", tiled.schedule.print(&scop));
        let (default, cost) = (&found[0], &chosen.cost);
        assert!(default.is_default() && cost.nanoseconds() < 0.7 * default.cost.nanoseconds());
    }
}

#[test]
fn lanes_run_along_the_loop_by_which_all_statements_gain() {
    // sums over nine values that each cell has of its own: lanes along `q` would leave the other statements without any
    let (scop, tiled, _) = planned(
        "loop cells(T = 4, N = 180) {
           inout f32 f[9][N][N]  temp f32 g[9][N][N]  in f32 w[9], c[9]  temp f32 p[9]  temp f32 s, u, e
           for t in 0..T {
             for i in 1..N-1 for j in 1..N-1 {
               p[0] = f[0][i][j]  p[1] = f[1][i-1][j]  p[2] = f[2][i][j-1]  p[3] = f[3][i+1][j]  p[4] = f[4][i][j+1]
               p[5] = f[5][i-1][j-1]  p[6] = f[6][i+1][j-1]  p[7] = f[7][i+1][j+1]  p[8] = f[8][i-1][j+1]
               s = 0
               u = 0
               for q in 0..9 { s += p[q]  u += w[q] * p[q] }
               u = u / s
               for q in 0..9 {
                 e = 3 * c[q] * u
                 g[q][i][j] = p[q] + 0.5 * (w[q] * s * (e + 0.5 * e * e) - p[q])
               }
             }
             for q in 0..9 for i in 1..N-1 for j in 1..N-1 f[q][i][j] = g[q][i][j]
           } }",
    );
    let (mut lanes, text) = (vec![], tiled.schedule.print(&scop));
    tiled.schedule.for_each_band(&mut |band| {
        let vectors = band.rows.iter().filter(|r| r.kind == RowKind::Vector);
        lanes.extend(vectors.flat_map(|r| r.phi.iter().map(|p| (p.0, r.name.clone()))));
    });
    for id in scop.ids() {
        assert!(lanes.contains(&(id, "j".into())), "{} has no lanes along j: {text}", scop.statement(id).name);
    }
}

#[test]
fn contiguous_loops_that_are_innermost_need_no_other_order() {
    for text in [AVERAGE, HAAR] {
        let (_, _, found) = planned(text);
        assert!(found.iter().all(|c| c.order != Order::Contiguous));
    }
}

/// Returns the statements of the phase in which `name` runs.
fn phase_of(scop: &Scop, tiled: &Tiled, name: &str) -> Vec<String> {
    let Node::Sequence(phases) = &tiled.schedule.root else { panic!("phases") };
    let names = |ids: &[StatementId]| ids.iter().map(|&id| scop.statement(id).name.clone()).collect::<Vec<_>>();
    phases.iter().map(|p| names(&p.0)).find(|names| names.iter().any(|n| n == name)).unwrap()
}

#[test]
fn triangular_sums_are_products_apart_from_what_is_around_them() {
    let (scop, tiled, found) = planned(
        "loop covariance(M = 600, N = 700) { in f64 X[N][M]  out f64 C[M][M]
           for i in 0..M for j in i..M {
             C[i][j] = 0
             for k in 0..N C[i][j] += X[k][i] * X[k][j]
             C[i][j] /= N - 1
           } }",
    );
    let apart = found.iter().find(|c| c.order == Order::Apart).unwrap();
    assert_eq!(apart.tiled.schedule, tiled.schedule);
    assert_eq!(phase_of(&scop, &tiled, "C_2"), ["C_2"]);
    let report = tiled.report.phases.iter().find(|p| p.statement == "C_2").unwrap();
    assert_eq!((&*report.block, report.parallel), ("i 8 × j 24", true));
    assert!(apart.cost.nanoseconds() < 0.7 * found[0].cost.nanoseconds());
}

#[test]
fn sums_that_wait_for_what_is_around_them_stay_there() {
    let (scop, tiled, found) = planned(
        "loop solve(N = 400) { inout f64 A[N+1][N], C[N][N]  in f64 B[N][N]
           for i in 0..N {
             for j in i..N for k in 0..N C[i][j] += A[i][k] * B[k][j]
             for j in i..N A[i+1][j] = C[i][j]
           } }",
    );
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let apart = found.iter().find(|c| c.order == Order::Apart).unwrap();
    assert!(legality::check(&scop, &dependences, &apart.tiled.schedule).is_err());
    assert_ne!(apart.tiled.schedule, tiled.schedule);
}

#[test]
fn blocks_of_sums_leave_registers_for_what_they_read() {
    for (target, registers) in [(Target::avx512(), 32), (Target::avx2(), 16)] {
        let (scop, _, _) = planned(
            "loop syrk(N = 300, M = 200) { in f64 A[M][N]  inout f64 C[N][N]
               for i in 0..N for j in i..N for k in 0..M C[i][j] += A[k][i] * A[k][j] }",
        );
        let product = apart::product(&scop, StatementId(0), &target).unwrap();
        let vectors = product.block[1] / target.lanes(8) as i64;
        let sums = product.block[0] * vectors;
        assert!(sums > registers / 2 && sums + vectors < registers, "{product:?}");
    }
}

/// A program in place: each row reads the rows that are still to be updated.
const TRMM: &str = "loop trmm(M = 70, N = 90) { in f64 A[M][M]  inout f64 B[M][N]
    for i in 0..M for j in 0..N { for k in i+1..M B[i][j] += A[k][i] * B[k][j]  B[i][j] = 1.5 * B[i][j] } }";

/// A program in place whose rows read the rows that were updated before: its sums must not wait.
const SOLVE: &str = "loop solve(M = 70, N = 90) { in f64 A[M][M]  inout f64 B[M][N]
    for i in 0..M for j in 0..N { for k in 0..i B[i][j] -= A[i][k] * B[k][j]  B[i][j] = 0.5 * B[i][j] } }";

#[test]
fn updates_that_read_what_is_still_to_be_updated_are_products() {
    let (scop, tiled, found) = planned(TRMM);
    let apart = found.iter().find(|c| c.order == Order::Apart).unwrap();
    assert_eq!(apart.tiled.schedule, tiled.schedule);
    assert_eq!(phase_of(&scop, &tiled, "B_1"), ["B_1"]);
    let kernel = lower::lower(&scop, &tiled).unwrap();
    assert!(kernel.nest.to_string().contains("B_tile: f64[5][16] local"), "{}", kernel.nest);
}

#[test]
fn proven_candidates_compute_what_the_program_says() {
    let covariance = "loop covariance(M = 50, N = 40) { in f64 X[N][M]  out f64 C[M][M]
        for i in 0..M for j in i..M { C[i][j] = 0  for k in 0..N C[i][j] += X[k][i] * X[k][j]  C[i][j] /= N - 1 } }";
    let sparse = "loop sparse(N = 60, K = 5) { in f64 a[N][K], x[N+K]  inout f64 y[N]
        for i in 1..N { y[i] = 0.5 * y[i-1]  for k in 0..K y[i] += a[i][k] * x[i+k] } }";
    let mut count = 0;
    for text in [TRMM, SOLVE, covariance, sparse] {
        let (scop, _, found) = planned(text);
        let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
        let start: Vec<Tensor> = scop.tensors.iter().map(|t| values(&t.shape)).collect();
        let mut expected = start.clone();
        reference::run(&scop, &scop.order, &mut expected);
        for c in found.iter().filter(|c| legality::check(&scop, &dependences, &c.tiled.schedule).is_ok()) {
            let kernel = lower::lower(&scop, &c.tiled).unwrap();
            let mut got = start.clone();
            reference::run_kernel(&scop, &kernel, &mut got).unwrap();
            for (i, t) in scop.tensors.iter().enumerate().filter(|(_, t)| t.role.is_given()) {
                for (a, b) in got[i].to_vec::<f64>().into_iter().zip(expected[i].to_vec::<f64>()) {
                    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{}: {a} is not {b}\n{}", t.name, kernel.nest);
                }
            }
            count += 1;
        }
    }
    assert!(count >= 7, "{count} candidates");
}

/// Values between -0.5 and 0.5.
fn values(shape: &[i64]) -> Tensor {
    let n = shape.iter().product::<i64>();
    Tensor::new(shape, &(0..n).map(|i| (i * 7 % 23) as f64 / 23.0 - 0.5).collect::<Vec<f64>>())
}

#[test]
fn long_sweeps_in_place_run_in_waves_of_tiles_where_one_thread_loses_little() {
    let sweeps = |times: i64| {
        planned(&format!(
            "loop sweeps(T = {times}, N = 1000) {{ inout f64 A[N][N]
               for t in 0..T for i in 1..N-1 for j in 1..N-1
                 A[i][j] = 0.25 * (A[i-1][j] + A[i][j-1] + A[i][j+1] + A[i+1][j]) }}"
        ))
    };
    let (_, tiled, found) = sweeps(15);
    let waves = found.iter().find(|c| c.order == Order::Ilp && c.style.waves).unwrap();
    let others = found.iter().filter(|c| !c.style.waves).map(|c| c.cost.nanoseconds()).fold(f64::INFINITY, f64::min);
    assert!(waves.cost.nanoseconds() > others && waves.tiled.report.phases[0].parallel, "{:?}", waves.tiled.report);
    assert_eq!(waves.tiled.schedule, tiled.schedule);
    // a short program does not pay for them
    let (_, _, found) = planned(
        "loop warping(N = 700) { in f32 x[N], y[N]  inout f32 D[N+1][N+1]
           for i in 1..N+1 for j in 1..N+1
             D[i][j] = abs(x[i-1] - y[j-1]) + min(D[i-1][j], min(D[i][j-1], D[i-1][j-1])) }",
    );
    let waves = found.iter().find(|c| c.order == Order::Ilp && c.style.waves).unwrap();
    let others = found.iter().filter(|c| !c.style.waves).map(|c| c.cost.nanoseconds()).fold(f64::INFINITY, f64::min);
    let share = waves.cost.nanoseconds() / others;
    assert!((1.0..MOST_FOR_THREADS).contains(&share) && waves.rank() < GAIN * others, "{share}");
    assert!(!found[best(&found, SHARE_OF_THREADS, |_| Ok(true)).unwrap()].style.waves);
    // integers wait so little in the original order that waves would take longer on one thread
    let (_, tiled, found) = planned(
        "loop lcs(N = 1200) { in i32 a[N], b[N]  inout i32 L[N+1][N+1]
           for i in 1..N+1 for j in 1..N+1
             L[i][j] = select(a[i-1] == b[j-1], L[i-1][j-1] + 1, max(L[i-1][j], L[i][j-1])) }",
    );
    assert!(found.iter().any(|c| c.style.waves) && !tiled.report.phases[0].parallel);
    // and so do sums of single elements
    let (_, tiled, found) = planned(
        "loop table(M = 500, N = 1000) { in f32 X[M][N]  inout f32 S[M+1][N+1]
           for i in 1..M+1 for j in 1..N+1
             S[i][j] = X[i-1][j-1] - S[i-1][j-1] + S[i-1][j] + S[i][j-1] }",
    );
    assert!(found.iter().any(|c| c.style.waves) && !tiled.report.phases[0].parallel);
}

#[test]
fn blocks_of_short_sums_are_chosen_for_unrolled_code() {
    let product = |n: usize| {
        format!(
            "loop products(B = 4000) {{ in f32 X[B][{n}][{n}]  in f32 Y[B][{n}][{n}]  inout f32 Z[B][{n}][{n}]
                for b in 0..B for i in 0..{n} for j in 0..{n} for k in 0..{n} Z[b][i][j] += X[b][i][k] * Y[b][k][j] }}"
        )
    };
    // all rows of one product, whose columns are read where they lie
    let (_, _, mut found) = planned(&product(8));
    let target = samples::with_rows(Target::avx512());
    refine(&mut found, &target, Candidate::rank).unwrap();
    let unrolled = found.iter().find(|c| c.style.unrolled).unwrap();
    assert_eq!(unrolled.tiled.report.phases[0].block, "i 8 × j 16");
    assert!(unrolled.tiled.packings.is_empty(), "{:?}", unrolled.tiled.packings);
    assert!(found.iter().all(|c| unrolled.cost.nanoseconds() <= c.cost.nanoseconds()));
    // sums in loops have the blocks of tiles as before
    let (scop, tiled, _) = planned(&product(64));
    let (schedule, _) = ilp::schedule(&scop, &crate::poly::analysis::dependence::analyze(&scop).unwrap()).unwrap();
    let default = tile::tile(&scop, &schedule, &samples::with_rows(Target::avx512())).unwrap();
    assert_eq!(tiled.schedule, default.schedule);
}

/// A scan of flags along rows: a chain of additions and choices in each.
fn scans(rows: i64) -> String {
    format!(
        "loop scans(B = {rows}, N = 4000) {{ in f32 x[B][N]  in u8 flag[B][N]  inout f32 s[B][N]
           for b in 0..B for i in 1..N s[b][i] = x[b][i] + select(flag[b][i] == 1, 0, s[b][i-1]) }}"
    )
}

#[test]
fn chains_of_neighbouring_rows_run_beside_each_other() {
    let (scop, tiled, found) = planned(&scans(64));
    let chosen = found.iter().find(|c| c.tiled.schedule == tiled.schedule).unwrap();
    let text = tiled.schedule.print(&scop);
    assert!(chosen.style.jam == 4 && text.contains("b [unroll coincident]"), "{text}");
    let chains = |jam: i64| {
        let of = found.iter().filter(|c| c.style.jam == jam && c.style.vectors == Vectors::None);
        of.map(|c| c.cost.chains).fold(f64::INFINITY, f64::min)
    };
    assert!(3.0 * chains(4) < chains(1), "{} {}", chains(4), chains(1));
    // as many rows as leave no rest: three
    let (scop, tiled, _) = planned(&scans(6));
    let text = tiled.schedule.print(&scop);
    assert!(text.contains("tile 3]") && text.contains("b [unroll coincident]"), "{text}");
}

#[test]
fn points_of_a_block_are_summed_in_the_tile_of_their_block() {
    let (scop, tiled, _) = planned(
        "loop search(Q = 32, R = 5) { in u8 A[16][16*Q]  in u8 B[16][16*Q+R]  inout i32 S[Q][R]
           for q in 0..Q for r in 0..R for i in 0..16 for j in 0..16
             S[q][r] += abs(i32(A[i][16*q+j]) - i32(B[i][16*q+j+r])) }",
    );
    let jammed = tile_in(&scop, None, &scop.order, &Target::avx512(), Constants::Memory, STYLES[10]).unwrap();
    for tiled in [tiled, jammed] {
        let loops = lower::lower(&scop, &tiled).unwrap().nest.to_string();
        assert!(loops.contains("S_tile") && !loops.contains("S_tile_2"), "{loops}");
    }
}

#[test]
fn the_chosen_candidate_has_the_price_of_its_machine_code() {
    let text = "loop pool(C = 32, N = 56) { in f32 X[C][2*N+1][2*N+1]  inout f32 Y[C][N][N]
        for c in 0..C for i in 0..N for j in 0..N for r in 0..3 for s in 0..3 Y[c][i][j] max= X[c][2*i+r][2*j+s] }";
    let file = language::parse("t.tile", text).unwrap();
    let meaning = file.lower(file.program(None).unwrap(), &Default::default(), None).unwrap();
    let Computation::Loop(scop) = meaning.computation else { panic!("a loop program") };
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let (schedule, _) = ilp::schedule(&scop, &dependences).unwrap();
    let target = samples::with_rows(Target::avx512());
    let (_, found) = plan(&scop, &dependences, &schedule, &target, MOST_ENTRIES).unwrap();
    let of_loops = |c: &Candidate| priced(&c.nest, &target);
    let refined = |c: &Candidate| cost::refine(&of_loops(c), &c.nest, &target).unwrap();
    for c in &found {
        assert_eq!(c.cost, if c.refined { refined(c) } else { of_loops(c) });
        assert!(c.refined || found[0].rank() <= c.rank());
    }
    assert!(found[0].refined && found[0].cost != of_loops(&found[0]));
    let count = found.iter().filter(|c| c.refined).count();
    let near = found.iter().filter(|c| c.rank() <= NEAR * found[0].rank()).count();
    assert!(count >= REFINED.min(near) && count > 1 && !found.iter().all(|c| c.refined), "{count} {near}");
}

#[test]
fn loops_that_carry_something_over_more_lanes_than_a_vector_has_are_vectors() {
    let vector = |text: &str| planned(text).1.report.phases[0].vector.clone();
    let comb = |distance: i64| {
        vector(&format!(
            "loop comb(N = 100000) {{ in f32 x[N]  inout f32 y[N]
               for i in {distance}..N y[i] = x[i] + 0.7 * y[i-{distance}] }}"
        ))
    };
    assert_eq!([comb(61), comb(16), comb(15)], [Some("i".to_string()), Some("i".to_string()), None]);
    // an element that a later iteration overwrites is read first by all lanes
    let knapsack = vector(
        "loop knapsack(K = 50, W = 20000) { in f32 value[K]  inout f32 best[W]
           for k in 0..K for w in 2*k+3..W step -1 best[w] = max(best[w], best[w-2*k-3] + value[k]) }",
    );
    assert_eq!(knapsack.as_deref(), Some("w"));
    let shifted = vector("loop shifted(N = 100000) { inout f32 x[N]  for i in 0..N-1 x[i] = 0.5 * (x[i] + x[i+1]) }");
    assert_eq!(shifted.as_deref(), Some("i"));
}

#[test]
fn long_triangles_have_candidates() {
    let (_, _, found) = planned(
        "loop intervals(N = 200) { in i64 v[N]  inout i64 best[N][N]
           for len in 2..N for lo in 0..N-len for k in lo+1..lo+len
             best[lo][lo+len] max= best[lo][k] + best[k][lo+len] + v[lo] * v[k] * v[lo+len] }",
    );
    assert!(found.len() > 4);
}

#[test]
fn waves_of_the_default_that_one_thread_pays_for_give_way() {
    let (_, _, found) = planned(
        "loop sweeps(T = 15, N = 1000) { inout f64 A[N][N]
           for t in 0..T for i in 1..N-1 for j in 1..N-1
             A[i][j] = 0.25 * (A[i-1][j] + A[i][j-1] + A[i][j+1] + A[i+1][j]) }",
    );
    let waves = found.iter().find(|c| c.has_waves()).unwrap();
    let other = found.iter().find(|c| !c.has_waves() && !c.style.strips && c.style.jam == 1).unwrap();
    let chosen = |times: f64| {
        let cost = Cost { ports: times * other.cost.nanoseconds(), ..Cost::default() };
        let default = Candidate { cost, style: Style::default(), ..waves.clone() };
        best(&[default, other.clone()], 0.5, |_| Ok(true)).unwrap()
    };
    assert_eq!([chosen(0.9 * MOST_FOR_THREADS), chosen(1.1 * MOST_FOR_THREADS)], [0, 1]);
}

#[test]
fn what_takes_the_place_of_a_refused_default_keeps_the_limits_of_one_thread() {
    let (scop, _, found) = planned(
        "loop sweeps(T = 15, N = 1000) { inout f64 A[N][N]
           for t in 0..T for i in 1..N-1 for j in 1..N-1
             A[i][j] = 0.25 * (A[i-1][j] + A[i][j-1] + A[i][j+1] + A[i+1][j]) }",
    );
    let dependences = crate::poly::analysis::dependence::analyze(&scop).unwrap();
    let waves = found.iter().find(|c| c.is_divided()).unwrap();
    let other = found.iter().find(|c| c.is_for_one_thread()).unwrap();
    let of = |c: &Candidate| c.tiled.schedule.clone();
    let refused = found.iter().find(|c| of(c) != of(waves) && of(c) != of(other)).unwrap();
    let of_waves = |times: f64| {
        let cost = Cost { ports: times * other.cost.nanoseconds(), ..Cost::default() };
        let waves = Candidate { cost, refined: true, waiting: 0.0, ..waves.clone() };
        let other = Candidate { refined: true, ..other.clone() };
        assert!(rank(&waves, 0.5) < rank(&other, 0.5), "{times}");
        let mut left = vec![refused.clone(), waves, other];
        without_first(&scop, &dependences, &mut left, &Target::avx512()).unwrap();
        left[0].is_divided()
    };
    assert_eq!([of_waves(1.1), of_waves(MOST_FOR_THREADS + 0.03)], [true, false]);
}

#[test]
fn short_loops_around_gathers_are_unrolled_where_these_leave_a_loop() {
    let unrolled = |read: &str, shape: &str| {
        let (_, tiled, _) = planned(&format!(
            "loop near(Q = 256, N = 500, L = 10) {{ in u32 q{shape}, d[N][L]  out i32 best[Q]  temp u32 v  temp i32 s
             for i in 0..Q {{ best[i] = 10000  for j in 0..N {{ s = 0
                 for l in 0..L {{ v = bit_xor(q{read}, d[j][l])  v = v - bit_and(shr(v, 1), 1431655765)
                     v = bit_and(v, 858993459) + bit_and(shr(v, 2), 858993459)  v = bit_and(v + shr(v, 4), 252645135)
                     s += i32(shr(v * 16843009, 24)) }}
                 best[i] = min(best[i], s) }} }} }}"
        ));
        let mut rows = 0;
        let is = |r: &&crate::poly::schedule::Row| r.kind == RowKind::Unroll && r.name == "l";
        tiled.schedule.for_each_band(&mut |band| rows += band.rows.iter().filter(is).count());
        rows > 0
    };
    assert_eq!([unrolled("[i][l]", "[Q][L]"), unrolled("[l][i]", "[L][Q]")], [true, false]);
}
