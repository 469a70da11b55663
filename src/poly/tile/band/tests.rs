//! Loop programs from text to loops, against their instances one by one.

use crate::codegen::Target;
use crate::language;
use crate::language::lowered::Computation;
use crate::poly::analysis::{dependence, legality};
use crate::poly::lower::{Kernel, lower};
use crate::poly::normalize::array_expansion::expand;
use crate::poly::samples;
use crate::poly::schedule::{RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::tile::tile;
use crate::poly::{ilp, reference};
use crate::runtime::{DType, Tensor};
use std::collections::BTreeMap;

/// Small caches, so that small programs need tiles.
fn small() -> Target {
    samples::with_rows(Target::avx512()).with_caches([1 << 10, 16 << 10, 1 << 20])
}

struct Outcome {
    scop: Scop,
    schedule: Schedule,
    tiled: Schedule,
    kernel: Kernel,
}

impl Outcome {
    fn count(&self, of: impl Fn(&crate::poly::schedule::Row) -> bool) -> usize {
        let mut n = 0;
        self.tiled.for_each_band(&mut |band| n += band.rows.iter().filter(|r| of(r)).count());
        n
    }

    fn vectors(&self) -> usize {
        self.count(|r| r.kind == RowKind::Vector)
    }

    /// Tile rows that are not strips of a vector.
    fn tiles(&self) -> usize {
        self.count(|r| r.tile > 1 && !r.coincident && r.phi.iter().any(|p| p.1.terms.len() > 1))
    }
}

/// Schedules, tiles and lowers a program and compares what its loops compute with its instances in the original order.
fn compiled(text: &str) -> Outcome {
    let file = language::parse("test", text).unwrap();
    let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
    let Computation::Loop(scop) = lowered.computation else { panic!("a loop program") };
    let scop = expand(&scop).unwrap();
    let dependences = dependence::analyze(&scop).unwrap();
    let (schedule, report) = ilp::schedule(&scop, &dependences).unwrap();
    assert_eq!(report.fallback, None, "{scop}");
    let tiled = tile(&scop, &schedule, &small()).unwrap();
    let shown = tiled.schedule.print(&scop);
    legality::check(&scop, &dependences, &tiled.schedule).unwrap_or_else(|e| panic!("{e}\n{shown}"));
    let kernel = lower(&scop, &tiled).unwrap();
    crate::codegen::loopnest::verify::verify(&kernel.nest).unwrap_or_else(|e| panic!("{e}\n{shown}\n{}", kernel.nest));
    let start: Vec<Tensor> = scop
        .tensors
        .iter()
        .map(|t| {
            assert_eq!(t.dtype, DType::F64);
            let n = t.shape.iter().product::<i64>();
            let diagonal = |i: i64| t.shape.len() == 2 && i / t.shape[1] == i % t.shape[1];
            let value = |i| (i * 7 % 23) as f64 / 23.0 + if diagonal(i) { 40.0 } else { 0.0 };
            Tensor::new(&t.shape, &(0..n).map(value).collect::<Vec<f64>>())
        })
        .collect();
    let (mut expected, mut got) = (start.clone(), start);
    reference::run(&scop, &scop.order, &mut expected);
    reference::run_kernel(&scop, &kernel, &mut got).unwrap();
    for (i, t) in scop.tensors.iter().enumerate().filter(|(_, t)| t.role.is_given()) {
        for (a, b) in got[i].to_vec::<f64>().into_iter().zip(expected[i].to_vec::<f64>()) {
            assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{}: {a} is not {b}\n{shown}\n{}", t.name, kernel.nest);
        }
    }
    Outcome { scop, schedule, tiled: tiled.schedule, kernel }
}

#[test]
fn stencils_are_tiled_in_time_and_space() {
    let jacobi = compiled(
        "loop jacobi(T = 9, N = 37) { f64 A[N][N], B[N][N]
           for t in 0..T {
             for i in 1..N-1 for j in 1..N-1 B[i][j] = 0.2 * (A[i][j] + A[i][j-1] + A[i][j+1] + A[i+1][j] + A[i-1][j])
             for i in 1..N-1 for j in 1..N-1 A[i][j] = 0.2 * (B[i][j] + B[i][j-1] + B[i][j+1] + B[i+1][j] + B[i-1][j])
           } }",
    );
    assert!(
        jacobi.schedule.print(&jacobi.scop).starts_with(
            "band permutable
  t [serial tile 32] B(t), A(t)
  i [serial tile 32] B(2*t + i), A(2*t + i + 1)
  j [serial tile 32] B(2*t + j), A(2*t + j + 1)
  band permutable
    t [serial] B(t), A(t)
    sequence
"
        ),
        "{}",
        jacobi.schedule.print(&jacobi.scop)
    );
    assert!(jacobi.tiles() > 0 && jacobi.vectors() == 2, "{}", jacobi.tiled.print(&jacobi.scop));
    let fdtd = compiled(
        "loop fdtd(T = 7, N = 33) { f64 ex[N][N], ey[N][N], hz[N][N], fict[T]
           for t in 0..T {
             for j in 0..N ey[0][j] = fict[t]
             for i in 1..N for j in 0..N ey[i][j] = ey[i][j] - 0.5 * (hz[i][j] - hz[i-1][j])
             for i in 0..N for j in 1..N ex[i][j] = ex[i][j] - 0.5 * (hz[i][j] - hz[i][j-1])
             for i in 0..N-1 for j in 0..N-1 hz[i][j] = hz[i][j] - 0.7 * (ex[i][j+1] - ex[i][j] + ey[i+1][j] - ey[i][j])
           } }",
    );
    assert!(fdtd.tiles() > 0 && fdtd.vectors() == 4, "{}", fdtd.tiled.print(&fdtd.scop));
}

/// Sums over lanes share what they read in blocks of rows, whole ones and those at the edge of a triangle.
#[test]
fn sums_over_lanes_are_blocks() {
    for bound in ["i + 1", "N - i"] {
        let syr2k = compiled(&format!(
            "loop p(N = 37, M = 29) {{ f64 C[N][N], A[N][M], B[N][M]
               for i in 0..N {{ for j in 0..{bound} C[i][j] *= 1.2
                               for k in 0..M for j in 0..{bound} C[i][j] += A[j][k] * B[i][k] + B[j][k] * A[i][k] }} }}"
        ));
        let shown = syr2k.tiled.print(&syr2k.scop);
        assert!(syr2k.count(|r| r.kind == RowKind::Unroll) == 4 && syr2k.vectors() == 1, "{shown}");
        assert_eq!(syr2k.count(|r| r.coincident && r.tile > 4), 2, "tiles for the second cache: {shown}");
    }
}

#[test]
fn triangular_programs_have_vectors() {
    let text = |body: &str| format!("loop p(N = 41) {{ f64 A[N][N], B[N][N], x[N]\n{body} }}");
    let lu = compiled(&text(
        "for i in 0..N {
           for j in 0..i { for k in 0..j A[i][j] -= A[i][k] * A[k][j]
                           A[i][j] /= A[j][j] }
           for j in i..N for k in 0..i A[i][j] -= A[i][k] * A[k][j]
         }",
    ));
    assert!(lu.vectors() >= 2, "{}", lu.tiled.print(&lu.scop));
    let cholesky = compiled(&text(
        "for i in 0..N {
           for j in 0..i { for k in 0..j A[i][j] -= A[i][k] * A[j][k]
                           A[i][j] /= A[j][j] }
           for k in 0..i A[i][i] -= A[i][k] * A[i][k]
           A[i][i] = sqrt(A[i][i])
         }",
    ));
    assert!(cholesky.vectors() >= 2, "{}", cholesky.tiled.print(&cholesky.scop));
    let trmm = compiled(&text(
        "for i in 0..N for j in 0..N { for k in i+1..N B[i][j] += A[k][i] * B[k][j]
                                       B[i][j] = 1.5 * B[i][j] }",
    ));
    assert!(trmm.vectors() == 2, "{}", trmm.tiled.print(&trmm.scop));
    let syrk = compiled(&text(
        "for i in 0..N { for j in 0..i+1 A[i][j] *= 1.2
                         for k in 0..N for j in 0..i+1 A[i][j] += 1.5 * B[i][k] * B[j][k] }",
    ));
    assert!(syrk.vectors() > 0, "{}", syrk.tiled.print(&syrk.scop));
    let trisolv = compiled(&text("for i in 0..N { for j in 0..i x[i] -= A[i][j] * x[j]\n x[i] = x[i] / A[i][i] }"));
    assert!(trisolv.vectors() == 1, "{}", trisolv.tiled.print(&trisolv.scop));
}

#[test]
fn backward_loops_keep_their_direction() {
    let backward = compiled(
        "loop p(N = 30) { f64 A[N][N]
           for i in 0..N-1 step -1 for j in 1..N {
             A[i][j] = 0.5 * (A[i+1][j] + A[i][j])
             for k in 0..j A[i][j] += A[i][k] * 0.01
           } }",
    );
    let shown = backward.schedule.print(&backward.scop);
    assert!(shown.contains("(-i)"), "{shown}");
    assert!(!backward.kernel.nest.body.is_empty());
}

#[test]
fn in_place_updates_that_read_their_own_sums_are_not_kept_in_registers() {
    // A row reads what earlier sums of the same row have written.
    let text = "loop p(N = 20) { f64 A[N][N], B[N][N]\n for i in 0..N for j in 1..N for k in 0..j A[i][k] += A[i][k+1] * B[j][k] }";
    compiled(text);
}

#[test]
fn products_that_share_a_matrix_have_vectors_of_their_own() {
    let o = compiled(
        "loop p(N = 40) { f64 A[N][N], x[N], y[N], z[N]
           for i in 0..N for j in 0..N x[i] += A[i][j] * y[j]
           for i in 0..N for j in 0..N z[i] += A[j][i] * y[j] }",
    );
    assert_eq!(o.vectors(), 2, "{}", o.tiled.print(&o.scop));
}

#[test]
fn statements_beside_recurrences_along_rows_have_lanes_of_their_own() {
    let o = compiled(
        "loop p(N = 200) { f64 a[N][N], y[N][N], z[N][N]
           for i in 0..N {
             y[i][0] = a[i][0]
             for j in 1..N y[i][j] = 0.5 * y[i][j-1] + a[i][j]
             for j in 0..N z[i][j] = y[i][j] + a[i][j] } }",
    );
    let shown = o.tiled.print(&o.scop);
    assert!(shown.contains("i [vector coincident] y_2(i)") && shown.contains("j [vector coincident] z(j)"), "{shown}");
    assert!(shown.contains("io [parallel coincident tile 8] y_1(i), y_2(i), z(i)"), "{shown}");
}

#[test]
fn sums_run_backwards_along_memory() {
    let o = compiled(
        "loop p(N = 60) { f64 y[N]\n temp f64 sum
           for k in 1..N { sum = 0  for i in 0..k sum += y[k-i-1] * y[i]  y[k] = sum / 100 } }",
    );
    assert!(o.vectors() >= 1, "{}", o.tiled.print(&o.scop));
}

#[test]
fn rows_in_a_temporary_are_products() {
    let o = compiled(
        "loop p(Q = 9, R = 5, P = 24) { f64 A[R][Q][P], B[P][P]\n temp f64 row[P]
           for r in 0..R for q in 0..Q {
             for p in 0..P { row[p] = 0  for s in 0..P row[p] += A[r][q][s] * B[s][p] }
             for p in 0..P A[r][q][p] = row[p] } }",
    );
    let phase = &o.kernel.report.phases[0];
    assert_eq!(phase.vector.as_deref(), Some("p"), "{}", o.tiled.print(&o.scop));
    assert!(phase.instruction.is_some() && o.kernel.nest.to_string().contains("local"), "{}", o.kernel.nest);
}

#[test]
fn sums_that_stay_in_memory_are_written_in_whole_lines() {
    let o = compiled(
        "loop p(M = 40, N = 48, K = 44) { f64 A[M][K], B[K][N], D[M][M], E[N][M]\n temp f64 t[M][N]
           for i in 0..M for j in 0..N { t[i][j] = 0  for k in 0..K t[i][j] += A[i][k] * B[k][j] }
           for i in 0..M for j in 0..M for k in 0..N D[i][j] += t[i][k] * E[k][j] }",
    );
    for phase in &o.kernel.report.phases {
        assert_eq!(phase.vector.as_deref(), Some("j"), "{}", o.tiled.print(&o.scop));
    }
}

#[test]
fn parallel_loops_inside_of_a_serial_one_run_in_waves() {
    // Each step needs all of the step before, so that no tiles in time are legal.
    let o = compiled(
        "loop p(T = 4, N = 150) { f64 A[N][N], x[N]\n temp f64 s
           for t in 0..T {
             s = 0
             for i in 0..N s += A[i][t] * x[i]
             for i in 0..N for j in 0..N A[i][j] = 0.5 * A[i][j] + 0.01 * s * x[j]
             for j in t+1..N for i in 0..N A[i][j] = A[i][j] * (1 + A[i][t])
           } }",
    );
    let shown = o.tiled.print(&o.scop);
    assert!(o.count(|r| r.kind == RowKind::Parallel) >= 1 && shown.contains("t [serial]"), "{shown}");
    assert!(o.kernel.nest.to_string().contains("waves"), "{}", o.kernel.nest);
    assert!(o.kernel.report.phases.iter().any(|p| p.parallel));
}

#[test]
fn long_loops_of_one_dimension_have_long_strips() {
    let tile = |n: i64| {
        let o = compiled(&format!(
            "loop heat(T = 2, N = {n}) {{ f64 A[N], B[N]
               for t in 0..T {{
                 for i in 1..N-1 B[i] = 0.25 * A[i-1] + 0.5 * A[i] + 0.25 * A[i+1]
                 for i in 1..N-1 A[i] = B[i]
               }} }}"
        ));
        let mut tiles = vec![];
        o.tiled.for_each_band(&mut |band| {
            tiles.extend(band.rows.iter().filter(|r| r.coincident).map(|r| r.tile));
        });
        tiles.into_iter().max()
    };
    // 64 strips at least, of whole vectors of 8
    assert_eq!([tile(300), tile(3000)], [Some(8), Some(32)]);
}

#[test]
fn short_innermost_loops_are_unrolled() {
    let unrolled = |k: i64| {
        let o = compiled(&format!(
            "loop filter(N = 60, K = {k}) {{ in f64 X[N+K], w[K]  inout f64 Y[N]
               for i in 1..N {{ Y[i] = 0.5 * Y[i-1]  for k in 0..K Y[i] += w[k] * X[i+k] }} }}"
        ));
        o.count(|r| r.kind == RowKind::Unroll && r.name == "k")
    };
    assert_eq!([unrolled(5), unrolled(200)], [1, 0]);
}
