//! The model against a simulation: every access of the loops in their order, in caches that forget the line used
//! longest ago: of its set in the second cache, of all lines in the others.

use super::*;
use crate::codegen::loopnest::LoopKind;
use crate::language;
use crate::language::lowered::Computation;
use crate::pipeline::kernel::{self, Statements};
use std::collections::{BTreeMap, HashMap};

/// Small caches, so that small programs leave them.
fn small() -> Target {
    with_ways(128)
}

/// The second of them has so many ways; of 128 lines.
fn with_ways(ways: usize) -> Target {
    let mut target = Target::avx512().with_caches([1 << 10, 8 << 10, 80 << 10]);
    target.machine.cache_ways_l2 = ways;
    target
}

/// Lines in the order of their last use.
#[derive(Default)]
struct Set {
    lines: usize,
    used: HashMap<(u32, i64), u64>,
    order: BTreeMap<u64, (u32, i64)>,
    now: u64,
    missed: u64,
}

struct Cache(Vec<Set>);

impl Cache {
    fn of_sets(sets: usize, lines: usize) -> Cache {
        Cache((0..sets).map(|_| Set { lines: lines / sets, ..Set::default() }).collect())
    }

    fn touch(&mut self, line: (u32, i64)) {
        let set = (line.1 + 3 * line.0 as i64).rem_euclid(self.0.len() as i64);
        self.0[set as usize].touch(line);
    }
}

impl Set {
    fn touch(&mut self, line: (u32, i64)) {
        self.now += 1;
        match self.used.insert(line, self.now) {
            Some(before) => _ = self.order.remove(&before),
            None => self.missed += 1,
        }
        self.order.insert(self.now, line);
        if self.order.len() > self.lines {
            let (_, oldest) = self.order.pop_first().unwrap();
            self.used.remove(&oldest);
        }
    }
}

struct Simulation<'a> {
    nest: &'a LoopNest,
    values: Vec<i64>,
    caches: [Cache; 3],
}

impl Simulation<'_> {
    fn of(nest: &LoopNest, target: &Target) -> [f64; 3] {
        let machine = &target.machine;
        let lines = machine.cache_bytes.map(|bytes| bytes / machine.line_bytes);
        let sets = [1, lines[1] / machine.cache_ways_l2, 1];
        let caches = [0, 1, 2].map(|level| Cache::of_sets(sets[level], lines[level]));
        let mut s = Simulation { nest, values: vec![0; nest.vars.len()], caches };
        s.body(&nest.body);
        s.caches.map(|c| (c.0.iter().map(|s| s.missed as usize).sum::<usize>() * machine.line_bytes) as f64)
    }

    fn value(&self, a: &Affine) -> i64 {
        a.evaluate(|v| self.values[v.0 as usize])
    }

    fn body(&mut self, body: &[Stmt]) {
        for statement in body {
            match statement {
                Stmt::Loop { var, lower, upper, step, body, .. } => {
                    let ceil = |b: &Bound| -(-self.value(&b.affine)).div_euclid(b.divisor);
                    let floor = |b: &Bound| self.value(&b.affine).div_euclid(b.divisor);
                    let (mut at, end) = (lower.iter().map(ceil).max().unwrap(), upper.iter().map(floor).min().unwrap());
                    while at < end {
                        self.values[var.0 as usize] = at;
                        self.body(body);
                        at += step;
                    }
                }
                Stmt::Let { var, value, divisor } => {
                    self.values[var.0 as usize] = self.value(value).div_euclid(*divisor);
                }
                Stmt::Read { var, expected, range, .. } => {
                    let value = self.value(&expected.affine).div_euclid(expected.divisor);
                    self.values[var.0 as usize] = value.clamp(range.0, range.1);
                }
                Stmt::If { conditions, body } => {
                    if conditions.iter().all(|c| self.value(c) >= 0) {
                        self.body(body);
                    }
                }
                Stmt::Store { buffer, index, value, .. } => {
                    let mut touched = vec![];
                    value.visit_accesses(&mut |a| touched.push((a.buffer, a.index.clone())));
                    touched.push((*buffer, index.clone()));
                    for (buffer, index) in touched {
                        let b = self.nest.buffer(buffer);
                        let at = |(i, s): (&Index, &i64)| self.value(i.affine().unwrap()) * s;
                        let element: i64 = index.iter().zip(&b.strides).map(at).sum();
                        let line = element * b.dtype.bytes() as i64 / 64;
                        self.caches.iter_mut().for_each(|c| c.touch((buffer.0, line)));
                    }
                }
            }
        }
    }
}

/// The loops of the first program of a text by its only schedule.
fn scheduled(text: &str) -> LoopNest {
    let file = language::parse("test", text).unwrap();
    let program = file.program(None).unwrap();
    let lowered = file.lower(program, &BTreeMap::new(), None).unwrap();
    let scheduled = file.schedule(&lowered, file.schedules_of(program)[0], &crate::codegen::Target::avx2()).unwrap();
    scheduled.lower(&crate::codegen::Target::avx2()).unwrap().1.nest
}

const PRODUCT: &str = "loop gemm(N = 64) { inout f64 C[N][N]  in f64 A[N][N], B[N][N]
    for i in 0..N for j in 0..N for k in 0..N C[i][j] += A[i][k] * B[k][j] }
    schedule s for gemm";
const HEAT: &str = "loop heat(T = 12, N = 250) { inout f64 A[N], B[N]
    for t in 0..T { for i in 1..N-1 S: B[i] = A[i-1] + A[i] + A[i+1]
                    for i in 1..N-1 U: A[i] = B[i-1] + B[i] + B[i+1] } }
    schedule s for heat";
const SEIDEL: &str = "loop seidel(T = 8, N = 60) { inout f64 A[N][N]
    for t in 0..T for i in 1..N-1 for j in 1..N-1 A[i][j] = A[i-1][j] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j] }
    schedule s for seidel";
const TRIANGLE: &str = "loop triangle(N = 80) { inout f64 C[N][N]  in f64 A[N][N]
    for i in 0..N for j in 0..i+1 for k in 0..N C[i][j] += A[i][k] * A[j][k] }
    schedule s for triangle";
const TRANSPOSED: &str = "loop transposed(N = 64) { out f32 B[N][N]  in f32 A[N][N]
    for i in 0..N for j in 0..N B[i][j] = A[j][i] }
    schedule s for transposed";

/// Columns of a line each, read again while they are in the second cache if they have sets enough of it.
const COLUMNS: &str = "loop columns(P) { inout f32 A[64][P]
    for c in 0..8 for r in 0..4 for i in 0..64 for j in 0..16 A[i][16 * c + j] += f32(r) }
    schedule s for columns";

#[test]
fn columns_of_rows_at_powers_of_two_lie_in_few_sets() {
    let at = |columns: i64| {
        let nest = scheduled(&format!("{} {{}}", COLUMNS.replace("(P)", &format!("(P = {columns})"))));
        let target = with_ways(16);
        let (model, simulated) = (traffic(&nest, &target), Simulation::of(&nest, &target));
        let ratio = model.fetched[1] / simulated[1];
        assert!((0.66..1.5).contains(&ratio), "{columns}: {ratio}, {nest}");
        model
    };
    let [few, many] = [at(128), at(144)];
    assert!(few.fetched[1] > 3.0 * many.fetched[1], "{few:?} {many:?}");
    // of the first cache as well, into which lines of one set come one after the other
    let real = |columns: &str| {
        let nest = scheduled(&format!("{} {{}}", COLUMNS.replace("(P)", columns)));
        traffic(&nest, &Target::avx512()).crowded
    };
    assert!(real("(P = 1024)") >= 8.0 * 4.0 * 64.0 / 4.0 && real("(P = 1040)") == 0.0);
}

/// Loops that copy many arrays at once: each is followed by itself.
#[test]
fn rows_of_many_arrays_start_once() {
    let arrays = |of: &dyn Fn(usize) -> String, by: &str| (0..12).map(of).collect::<Vec<_>>().join(by);
    let text = format!(
        "loop copies(N = 4096) {{ out f32 {} in f32 {} for i in 0..N {{ {} }} }} schedule s for copies {{}}",
        arrays(&|k| format!("b{k}[N]"), ", "),
        arrays(&|k| format!("a{k}[N]"), ", "),
        arrays(&|k| format!("b{k}[i] = a{k}[i]"), " ")
    );
    let starts = traffic(&scheduled(&text), &Target::avx2()).starts;
    assert_eq!(starts, [24.0; 3]);
}

/// Program, primitives.
const CASES: &[(&str, &str)] = &[
    (PRODUCT, ""),
    (PRODUCT, "reorder i, k, j"),
    (PRODUCT, "reorder k, j, i"),
    (PRODUCT, "tile C(i, j, k) by (8, 8, 8) -> io, jo, ko, ii, ji, ki"),
    (PRODUCT, "tile C(i, j) by (2, 8) -> io, jo, ii, ji  reorder C(jo, io, k, ii, ji)"),
    (PRODUCT, "tile C(i, j, k) by (20, 20, 20) -> io, jo, ko, ii, ji, ki"),
    (HEAT, ""),
    (SEIDEL, ""),
    (SEIDEL, "skew i by 1*t  skew j by 1*t  tile A(t, i, j) by (4, 16, 16) -> to, io, jo, ti, ii, ji"),
    (SEIDEL, "skew i by 1*t  skew j by 1*t  skew j by 1*i  reorder t, j, i"),
    (
        SEIDEL,
        "skew i by 1*t  skew j by 1*t  skew j by 1*i  tile A(i, j) by (16, 32) -> io, jo, ii, ji  reorder A(t, io, jo, ji, ii)",
    ),
    (TRIANGLE, ""),
    (TRIANGLE, "reorder i, k, j"),
    (TRANSPOSED, ""),
    (TRANSPOSED, "tile B(i, j) by (16, 16) -> io, jo, ii, ji"),
];

#[test]
fn the_model_agrees_with_a_simulation() {
    let mut wrong = vec![];
    for (program, primitives) in CASES {
        let nest = scheduled(&format!("{program} {{ {primitives} }}"));
        let (model, simulated) = (traffic(&nest, &small()), Simulation::of(&nest, &small()));
        for (level, (found, expected)) in model.fetched.into_iter().zip(simulated).enumerate() {
            let ratio = found / expected;
            if !(0.66..1.5).contains(&ratio) {
                let place = format!("{} {primitives:?}, cache {}", nest.name, level + 1);
                wrong.push(format!("{place}: {found} instead of {expected}, {ratio:.2}\n{nest}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_data_points_to_may_lie_anywhere() {
    let text = "def take(f32(M, 16) X, i64(N) at) -> (Y) { Y(i, j) = X(at(i), j) where i in 0..N, j in 0..16 }";
    let file = language::parse("test", text).unwrap();
    let sizes = [("M".to_string(), 4096), ("N".to_string(), 32)].into();
    let lowered = file.lower(file.program(None).unwrap(), &sizes, None).unwrap();
    let Computation::Def(program) = &lowered.computation else { panic!("an expression") };
    let statements = Statements::of_expression("take", program).unwrap();
    let nest = kernel::compile(statements, &small()).unwrap().kernel.nest;
    assert!(nest.body.iter().all(|s| !matches!(s, Stmt::Loop { kind: LoopKind::Waves { .. }, .. })));
    let t = traffic(&nest, &small());
    // 32 rows of a line each, read and written, and the 4 lines that say which.
    assert_eq!(t.fetched, [(32 + 32 + 4) as f64 * 64.0; 3]);
    assert_eq!(t.touched, t.fetched[2]);
}

/// Loops that threads share as one, and a tail.
const COLLAPSED: &str = "kernel gemm {
  A: f32[40][32] argument 0;
  B: f32[32][64] argument 1;
  C: f32[40][64] argument 2 written;
  parallel t in 0..12 {
    let t1 = floor(t / 4);
    let no = floor((t - 4*t1) / 1);
    if -t1 + 1 >= 0 {
      for m in 0..16 {
        for k in 0..32 {
          for n in 0..16 {
            C[16*t1 + m][16*no + n] add = (A[16*t1 + m][k] * B[k][16*no + n]);
          }
        }
      }
    }
    if t1 - 2 >= 0 {
      for m#2 in 0..8 {
        for k#2 in 0..32 {
          for n#2 in 0..16 {
            C[m#2 + 32][16*no + n#2] add = (A[m#2 + 32][k#2] * B[k#2][16*no + n#2]);
          }
        }
      }
    }
  }
}";

#[test]
fn loops_that_run_as_one_and_tails_are_understood() {
    let nest = crate::codegen::loopnest::parse::nest(COLLAPSED).unwrap();
    let (model, simulated) = (traffic(&nest, &small()), Simulation::of(&nest, &small()));
    for (level, (found, expected)) in model.fetched.into_iter().zip(simulated).enumerate() {
        assert!((0.66..1.5).contains(&(found / expected)), "cache {}: {found}, {expected}", level + 1);
    }
}
