//! Loop programs whose subscripts or bounds divide an index, as an image that is enlarged does, against the definition of their statements: on
//! every target, AArch64 under emulation, on one and two threads, with sizes that the divisors do not divide.

#![allow(clippy::duplicate_mod, reason = "both modules record what is skipped")]

mod common;
mod emulator;

use common::{host_targets, scop};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tilewright::internal::codegen::{Isa, Target};
use tilewright::internal::language;
use tilewright::internal::pipeline::kernel::{self, CompiledKernel, Statements};
use tilewright::internal::poly::lower::state::Argument;
use tilewright::internal::poly::reference;
use tilewright::internal::poly::scop::Scop;
use tilewright::internal::poly::statement::{Role, TensorDecl};
use tilewright::{DType, Model, Options, Session, Stage, Tensor};

/// Inputs of small whole numbers, so that sums and products are exact in any order, and zeros for the rest.
fn tensors(scop: &Scop) -> Vec<Tensor> {
    let of = |(seed, t): (i64, &TensorDecl)| {
        let numbers = 0..t.shape.iter().product::<i64>();
        let numbers: Vec<i64> = numbers.map(|k| (k * 7919 + k / 11 + seed) % 9).collect();
        match t.dtype {
            _ if t.role != Role::Input => Tensor::zeros(t.dtype, &t.shape),
            DType::F32 => Tensor::new(&t.shape, &numbers.iter().map(|&v| v as f32).collect::<Vec<_>>()),
            DType::F64 => Tensor::new(&t.shape, &numbers.iter().map(|&v| v as f64).collect::<Vec<_>>()),
            DType::U8 => Tensor::new(&t.shape, &numbers.iter().map(|&v| 28 * v as u8).collect::<Vec<_>>()),
            DType::I8 => Tensor::new(&t.shape, &numbers.iter().map(|&v| v as i8 - 4).collect::<Vec<_>>()),
            DType::I32 => Tensor::new(&t.shape, &numbers.iter().map(|&v| v as i32 - 4).collect::<Vec<_>>()),
            dtype => panic!("no numbers of {dtype}"),
        }
    };
    (0..).zip(&scop.tensors).map(of).collect()
}

/// The output of the definition.
fn expected(scop: &Scop) -> Tensor {
    let mut tensors = tensors(scop);
    reference::run(scop, &scop.order, &mut tensors);
    tensors[output(scop)].clone()
}

fn output(scop: &Scop) -> usize {
    scop.tensors.iter().position(|t| t.role == Role::Output).unwrap()
}

/// Runs a program with one output on all targets of this processor.
fn check(text: &str) {
    let scop = scop(text);
    let (given, expected) = (tensors(&scop), expected(&scop));
    let inputs = scop.tensors.iter().zip(&given).filter(|(t, _)| t.role == Role::Input);
    let inputs: Vec<(&str, &Tensor)> = inputs.map(|(t, value)| (t.name.as_str(), value)).collect();
    let file = language::parse("p.tile", text).unwrap();
    let model = Model::from_program(file, None, None).unwrap();
    for target in host_targets() {
        let name = target.name.clone();
        let options = Options { target: Some(target), ..Options::default() };
        let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{e}\n{text}")).0);
        for threads in [1, 2] {
            let found = Session::new(module.clone(), threads).unwrap().run(&inputs).unwrap();
            assert!(found[0].data == expected.data, "{name}, {threads} threads\n{text}");
        }
    }
}

fn compiled(scop: &Scop, target: &Target) -> CompiledKernel {
    kernel::compile(Statements::of_loops(scop).unwrap(), target).unwrap()
}

/// Programs that read halves, thirds, … of their indices, with an offset, beside remainders of them.
fn random_program(random: &mut StdRng) -> String {
    let divisor = *[2, 2, 3, 4, 5, 32].choose(random).unwrap();
    let (height, width) = (random.random_range(1..9), random.random_range(1..140));
    let part = |random: &mut StdRng, of: &str| {
        let offset = random.random_range(0..divisor + 2);
        match random.random_range(0..5) {
            0 => format!("({of} + {offset}) / {divisor}"),
            1 => format!("({divisor} * i + {of} + {offset}) / {divisor}"),
            2 => format!("(3 * {of} + {offset}) / {divisor}"),
            3 => format!("{of} / {divisor} + ({of} + {offset}) % {divisor}"),
            _ => format!("{of} / {divisor}"),
        }
    };
    let (a, b, c, d) = (part(random, "j"), part(random, "j"), part(random, "i"), part(random, "j"));
    let dtype = ["f32", "f64", "u8", "i32"].choose(random).unwrap();
    let value = match random.random_range(0..5) {
        0 => format!("x[{c}][{a}]"),
        1 => format!("x[{c}][{a}] + x[i][{b}] * {dtype}(j % {divisor})"),
        2 => format!("select(j % {divisor} == 0, x[i][{a}], x[{c}][{b}] + {dtype}(1))"),
        3 => format!("shrunk[{a}] + x[{d}][i]"),
        _ => format!("x[i][{a}] + x[{c}][{b}] - shrunk[j]"),
    };
    let size = "S = 500";
    let statement = match random.random_range(0..4) {
        0 => format!("{{ y[i][0] = {dtype}(3) for j in 0..W y[i][0] += {value} }}"),
        1 => format!("for j in 0..W {{ y[i][j] = {value}  y[i][j] += shrunk[{d}] }}"),
        _ => format!("for j in 0..W y[i][j] = {value}"),
    };
    format!(
        "loop p(H = {height}, W = {width}, {size}) {{ in {dtype} x[S][S], shrunk[S]\n out {dtype} y[H][W]
         for i in 0..H for j in 0..W y[i][j] = 0
         for i in 0..H {statement} }}"
    )
}

#[test]
fn random_programs_do_what_their_statements_say() {
    let random = &mut StdRng::seed_from_u64(23);
    for _ in 0..60 {
        check(&random_program(random));
    }
}

/// Images that are enlarged, chroma of pixels that share it, numbers of four bits, scales of groups.
const PROGRAMS: [&str; 6] = [
    "loop twice(H = 5, W = 37) { in f32 x[H][W]\n out f32 y[2 * H][2 * W + 1]
     for i in 0..2 * H for j in 0..2 * W + 1 y[i][j] = x[i / 2][min(j / 2, W - 1)] }",
    "loop thrice(H = 3, W = 35) { in f32 x[H][W]\n out f32 y[3 * H][3 * W]
     for i in 0..3 * H for j in 0..3 * W y[i][j] = x[i / 3][j / 3] }",
    "loop between(H = 4, W = 33) { in f32 x[H + 1][W + 1]\n out f32 y[2 * H][2 * W]
     for i in 0..2 * H for j in 0..2 * W
       y[i][j] = x[i / 2][j / 2] + x[(i + 1) / 2][j / 2] + x[i / 2][(j + 1) / 2] + x[(i + 1) / 2][(j + 1) / 2] }",
    "loop chroma(H = 3, W = 70) { in u8 luma[2 * H][2 * W], u[H][W]\n out u8 y[2 * H][2 * W]
     for i in 0..2 * H for j in 0..2 * W
       y[i][j] = u8(min(255, max(0, shr(298 * i32(luma[i][j]) + 409 * i32(u[i / 2][j / 2]) - 57000, 8)))) }",
    "loop nibbles(N = 3, K = 150) { in u8 w[N][K / 2]\n in f32 s[N]\n out f32 y[N][K]
     for i in 0..N for j in 0..K y[i][j] = s[i] * f32(i32(bit_and(shr(w[i][j / 2], u8(4 * (j % 2))), 15)) - 8) }",
    "loop groups(N = 3, G = 5) { in i8 w[N][32 * G]\n in f32 s[N][G]\n out f32 y[N][32 * G]
     for i in 0..N for j in 0..32 * G y[i][j] = s[i][j / 32] * f32(w[i][j]) }",
];

#[test]
fn programs_compute_what_they_say() {
    PROGRAMS.iter().for_each(|text| check(text));
}

/// Lanes that read one element twice are two loads of neighbours, whose results are stored between each other.
#[test]
fn divided_loops_have_no_gathers() {
    for program in &PROGRAMS[1..3] {
        let program = program.replace("H = 3, W = 35", "H = 64, W = 64").replace("H = 4, W = 33", "H = 64, W = 64");
        let code = compiled(&scop(&program), &Target::avx512()).text(Stage::Vcode, Isa::Avx512).unwrap();
        assert!(code.contains("f32x16") && !code.contains("gather"), "{code}");
    }
}

#[test]
fn programs_on_an_emulated_processor() {
    let target = Target::all().into_iter().find(|t| t.isa == Isa::Neon).unwrap();
    let random = &mut StdRng::seed_from_u64(29);
    let more = (0..14).map(|_| random_program(random));
    let texts: Vec<String> = PROGRAMS.iter().map(|text| text.to_string()).chain(more).collect();
    let (mut jobs, mut outputs) = (vec![], vec![]);
    for text in &texts {
        let scop = scop(text);
        let (compiled, given) = (compiled(&scop, &target), tensors(&scop));
        let arguments = || compiled.kernel.arguments.iter();
        let buffers = arguments().zip(&compiled.slots).map(|(argument, slot)| match argument {
            Argument::Tensor(id) => given[id.0 as usize].data.to_vec(),
            _ => vec![0; slot.0 as usize],
        });
        let written = |a: &Argument| matches!(a, Argument::Tensor(id) if id.0 as usize == output(&scop));
        let phases = compiled.assembled.phases.iter();
        jobs.push(emulator::Job {
            name: text.clone(),
            steps: phases.clone().map(|p| (p.code.clone(), 0, p.parallel.unwrap_or(1))).collect(),
            scratch_bytes: phases.map(|p| p.scratch_bytes).max().unwrap_or(0),
            buffers: buffers.collect(),
        });
        outputs.push((arguments().position(written).unwrap(), expected(&scop)));
    }
    for ((slot, expected), (job, results)) in
        outputs.iter().zip(jobs.iter().zip(emulator::run("divided", &jobs).into_iter().flatten()))
    {
        results.iter().for_each(|r| assert!(r[*slot] == expected.data[..], "{}", job.name));
    }
}

/// Bounds of sums, differences and products of minima, maxima, quotients and remainders: the iterations that plain loops have.
#[test]
fn bounds_are_what_their_operations_say() {
    type Bounds = fn(i64) -> (i64, i64);
    let programs: [(&str, i64, Bounds); 25] = [
        ("0..min(N, i + 3) + 1", 1, |i| (0, 20.min(i + 3) + 1)),
        ("2 * max(i, 5) - 4..N - max(0, i - 9)", 1, |i| (2 * i.max(5) - 4, 20 - 0.max(i - 9))),
        ("0..i / 2", 1, |i| (0, i / 2)),
        ("i / 3..N", 1, |i| (i / 3, 20)),
        ("(2 * i + 1) / 3 + 1..min(N, (i + 40) / 4 / 2 + i)", 1, |i| ((2 * i + 1) / 3 + 1, 20.min((i + 40) / 8 + i))),
        ("max(i / 2, 4)..N - 1", 2, |i| ((i / 2).max(4), 19)),
        ("max(i, 4)..N", 3, |i| (i.max(4), 20)),
        ("i / 2..min(i, 12) + 1", -2, |i| (i / 2, i.min(12) + 1)),
        ("1 + i % 2..N", 1, |i| (1 + i % 2, 20)),
        ("1 + i % 2..N", 2, |i| (1 + i % 2, 20)),
        ("0..N - 3 * (i % 4)", 1, |i| (0, 20 - 3 * (i % 4))),
        ("0..N - 3 * (i % 4)", 3, |i| (0, 20 - 3 * (i % 4))),
        ("0..1 + i % 4", 1, |i| (0, 1 + i % 4)),
        ("N - 2 * (i % 5)..N", 1, |i| (20 - 2 * (i % 5), 20)),
        ("0..N - i / 2", 1, |i| (0, 20 - i / 2)),
        ("i / 2..i", 3, |i| (i / 2, i)),
        ("i - i % 4..i", 1, |i| (i - i % 4, i)),
        ("0..2 * (i / 2)", 1, |i| (0, 2 * (i / 2))),
        ("4 * (i / 4)..N", 1, |i| (4 * (i / 4), 20)),
        ("0..i / 2 + i / 3", 1, |i| (0, i / 2 + i / 3)),
        ("max(i - i % 4, 2)..min((i / 2) / 3 + i % 4, 12)", 1, |i| ((i - i % 4).max(2), 12.min(i / 6 + i % 4))),
        ("0..8 - (i - 8) % 4", 1, |i| (0, 8 - (i - 8).rem_euclid(4))),
        ("i % 3..N", -1, |i| (i % 3, 20)),
        ("0..i / 2", -2, |i| (0, i / 2)),
        ("1 + i % 2..N - i % 3", -3, |i| (1 + i % 2, 20 - i % 3)),
    ];
    for (bounds, step, of) in programs {
        let text = format!(
            "loop p(N = 20) {{ inout i32 y[N][3 * N]
             for i in 0..N for j in {bounds} step {step} y[i][j] = 2 * y[i][j] + i32(j) }}"
        );
        let file = language::parse("p.tile", &text).unwrap();
        let start: Vec<i32> = (0..1200).map(|k| k % 17).collect();
        let mut y = start.clone();
        for i in 0..20 {
            let (first, end) = of(i);
            let steps = (0..end - first).step_by(step.unsigned_abs() as usize);
            steps.map(|distance| if step > 0 { first + distance } else { end - 1 - distance }).for_each(|j| {
                let place = (60 * i + j) as usize;
                y[place] = 2 * y[place] + j as i32;
            });
        }
        let model = Model::from_program(file, None, None).unwrap();
        for target in host_targets() {
            let options = Options { target: Some(target), ..Options::default() };
            let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{e}\n{text}")).0);
            for threads in [1, 2] {
                let given = Tensor::new(&[20, 60], &start);
                let result = Session::new(module.clone(), threads).unwrap().run(&[("y", &given)]);
                assert_eq!(result.unwrap_or_else(|e| panic!("{e}\n{text}"))[0].to_vec::<i32>(), y, "{text}");
            }
        }
    }
}

/// The language divides towards zero: a quotient that may be negative bounds no loop.
#[test]
fn bounds_of_negative_quotients_are_refused() {
    for bounds in ["(i - 8) / 2 + i / 3..N", "0..2 * ((i - 9) / 2)", "0..i / (2 - 3)"] {
        let text = format!("loop p(N = 20) {{ inout i32 y[N]\n for i in 0..N for j in {bounds} y[i] += 1 }}");
        let file = language::parse("p.tile", &text).unwrap();
        let error = file.lower(file.program(None).unwrap(), &Default::default(), None).expect_err("refused");
        assert!(error.to_string().contains("quotients that are not negative"), "{error}");
    }
}

/// Loops over remainders of each other: what they compute is what plain loops compute, and the planner's work is limited however many there are.
#[test]
fn loops_over_remainders_of_each_other_compile() {
    let names = ["i", "j", "k", "l", "m", "n"];
    let divisors = [4, 3, 2, 5, 7];
    for depth in [3, 6] {
        let loops: String = (1..depth)
            .map(|d| {
                let (outer, by) = (names[d - 1], divisors[d - 1]);
                format!(" for {} in {outer} - {outer} % {by}..{outer} - {outer} % {by} + {by}", names[d])
            })
            .collect();
        let (last, before) = (names[depth - 1], names[depth - 2]);
        let text = format!(
            "loop p() {{ inout i32 a[60][60], b[60][60]\n for i in 0..11{loops} a[i][j] += b[{before}][{last}] }}"
        );
        let start: Vec<i32> = (0..3600).map(|k| k % 17).collect();
        let (mut a, mut points) = (start.clone(), (0..11).map(|i| vec![i]).collect::<Vec<Vec<usize>>>());
        for by in &divisors[..depth - 1] {
            let inside = |point: Vec<usize>| {
                let outer = point[point.len() - 1];
                let first = outer - outer % by;
                (first..first + by).map(move |next| [&point[..], &[next]].concat())
            };
            points = points.into_iter().flat_map(inside).collect();
        }
        for point in &points {
            a[60 * point[0] + point[1]] += start[60 * point[depth - 2] + point[depth - 1]];
        }
        let model = Model::from_program(language::parse("p.tile", &text).unwrap(), None, None).unwrap();
        let module = model.compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}")).0;
        let given = Tensor::new(&[60, 60], &start);
        let results = Session::new(Arc::new(module), 1).unwrap().run(&[("a", &given), ("b", &given)]).unwrap();
        assert_eq!(results[0].to_vec::<i32>(), a, "{text}");
    }
}

/// The index of a loop whose bound is a sum of a minimum bounds another one.
#[test]
fn indices_of_loops_with_sums_of_minima_bound_loops_over_remainders() {
    let text = "loop p() { inout i32 x[20], y[20]\n
        for t in 0..5 for i in 0..min(5, t) + 1 for j in i - i % 4..16 y[i] += x[j] }";
    let start: Vec<i32> = (0..20).map(|k| k % 7 + 1).collect();
    let mut y = start.clone();
    for (t, i) in (0..5).flat_map(|t| (0..6).map(move |i| (t, i))) {
        if i <= 5.min(t) {
            y[i] += start[i - i % 4..16].iter().sum::<i32>();
        }
    }
    let model = Model::from_program(language::parse("p.tile", text).unwrap(), None, None).unwrap();
    let module = model.compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}")).0;
    let given = Tensor::new(&[20], &start);
    let results = Session::new(Arc::new(module), 1).unwrap().run(&[("x", &given), ("y", &given)]).unwrap();
    assert_eq!(results[1].to_vec::<i32>(), y);
}
