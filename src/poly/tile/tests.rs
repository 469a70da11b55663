//! Programs through tiling and lowering, against the equations evaluated one by one.

use crate::codegen::Target;
use crate::codegen::loopnest::{interpret, verify};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, UnaryOp};
use crate::expr::{Affine, Var};
use crate::language;
use crate::language::lowered::Computation;
use crate::pipeline::kernel::{self, CompiledKernel, Statements};
use crate::poly::analysis::dependence;
use crate::poly::ilp;
use crate::poly::lower::state::Argument;
use crate::poly::lower::{Kernel, lower};
use crate::poly::normalize::array_expansion::expand;
use crate::poly::normalize::build;
use crate::poly::reference;
use crate::poly::samples::{self, Conv, define, tensor, v, vars};
use crate::poly::schedule::{Band, Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::{Program, Role, StatementId};
use crate::poly::tile::report::Tiled;
use crate::poly::tile::tile;
use crate::runtime::{DType, Tensor};
use std::collections::BTreeMap;

/// Band over the first `outer` iterators of every statement, then each statement with a band of its own.
fn fused(scop: &Scop, outer: usize) -> Schedule {
    let band = |ids: &[StatementId], from: usize, to: usize| {
        let rows = (from..to).map(|i| {
            let iterator = &scop.statement(ids[0]).iterators[i];
            let written = scop.statement(ids[0]).write.iter().any(|w| w.uses(Var(i as u32)));
            let phi = ids.iter().map(|&s| (s, Affine::var(Var(i as u32)))).collect();
            Row { coincident: written, ..Row::serial(&*iterator.name, phi) }
        });
        Band { rows: rows.collect(), permutable: true }
    };
    let all: Vec<StatementId> = scop.ids().collect();
    let each = |&s: &StatementId| {
        let n = scop.statement(s).iterators.len();
        let node = if n > outer { Node::Band(band(&[s], outer, n), Box::new(Node::Leaf)) } else { Node::Leaf };
        (vec![s], node)
    };
    let mut children: Vec<_> = all.iter().map(each).collect();
    let inside = if children.len() == 1 { children.remove(0).1 } else { Node::Sequence(children) };
    let root = if outer == 0 { inside } else { Node::Band(band(&all, 0, outer), Box::new(inside)) };
    Schedule { root }
}

/// All stages of a program, with tiles.
fn compile_stages(p: &Program, name: &str, target: &Target) -> CompiledKernel {
    let statements = Statements::of_expression(name, p).unwrap_or_else(|e| panic!("{e}"));
    let compiled = kernel::compile(statements, &samples::with_rows(target.clone())).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(compiled.fallback(), None);
    compiled
}

fn evaluate(p: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    reference::evaluate(p, &inputs.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{e}"))
}

fn inputs(p: &Program) -> Vec<Tensor> {
    let external = p.tensors.iter().filter(|t| matches!(t.role, Role::Input | Role::Constant));
    (0..)
        .zip(external)
        .map(|(position, t)| {
            let n: i64 = t.shape.iter().product();
            match t.dtype {
                DType::F32 if t.literals.is_some() => {
                    let literals = t.literals.as_ref().expect("checked");
                    let values = literals.values().iter().map(|s| f32::from_bits(s.bits as u32));
                    Tensor::new(&t.shape, &values.collect::<Vec<f32>>())
                }
                DType::F32 => Tensor::seeded(t.dtype, &t.shape, 1, position, 2),
                DType::I64 => Tensor::new(&t.shape, &(0..n).map(|i| (i * 7) % 5).collect::<Vec<i64>>()),
                _ => Tensor::zeros(t.dtype, &t.shape),
            }
        })
        .collect()
}

/// Runs a kernel in the interpreter of nests.
fn run(kernel: &Kernel, scop: &Scop, inputs: &[Tensor]) -> Vec<Tensor> {
    let external = |b: &BufferId| {
        let t = scop.tensor(*b);
        match t.role {
            Role::Output => Tensor::zeros(t.dtype, &t.shape),
            _ => {
                let input = &inputs[b.0 as usize];
                Tensor { shape: t.shape.clone(), ..input.clone() }
            }
        }
    };
    let mut arguments: Vec<Tensor> = kernel
        .arguments
        .iter()
        .map(|a| match a {
            Argument::Tensor(b) => external(b),
            Argument::Packed(pack) => pack.apply(&external(&pack.source)),
            Argument::Workspace { bytes } => {
                Tensor { dtype: DType::U8, shape: vec![*bytes as i64], data: vec![0xff; *bytes].into() }
            }
        })
        .collect();
    interpret::run(&kernel.nest, &mut arguments).unwrap();
    let results = kernel.arguments.iter().zip(arguments);
    results
        .filter(|(a, _)| matches!(a, Argument::Tensor(b) if scop.tensor(*b).role == Role::Output))
        .map(|(_, t)| t)
        .collect()
}

fn compile(p: &Program, outer: usize, target: &Target) -> (Scop, Kernel) {
    let scop = build::build("t", p).unwrap();
    let schedule = fused(&scop, outer);
    let tiled = tile(&scop, &schedule, target).unwrap();
    let kernel = lower(&scop, &tiled).unwrap();
    verify::verify(&kernel.nest).unwrap_or_else(|e| panic!("{e}\n{}", kernel.nest));
    (scop, kernel)
}

/// The nest computes what the equations say, for every target: with the schedule of the ILP and with a fused one.
fn check(p: &Program, outer: usize) -> Kernel {
    check_schedules(p, outer, &[false, true])
}

/// Checks the program with the hand-made schedule (`false`) and that of the ILP (`true`).
fn check_schedules(p: &Program, outer: usize, kinds: &[bool]) -> Kernel {
    let inputs = inputs(p);
    let expected = evaluate(p, &inputs);
    let mut last = None;
    for (target, ilp) in Target::all().into_iter().flat_map(|t| kinds.iter().map(move |k| (t.clone(), *k))) {
        let (scop, kernel) = if ilp {
            let c = compile_stages(p, "t", &target);
            (c.scop, c.kernel)
        } else {
            compile(p, outer, &target)
        };
        let actual = run(&kernel, &scop, &inputs);
        assert_eq!(actual.len(), expected.len());
        for (a, e) in actual.iter().zip(&expected) {
            assert_eq!(a.dtype, e.dtype);
            if a.dtype != DType::F32 {
                assert_eq!(a.data, e.data);
                continue;
            }
            for (i, (a, e)) in a.to_vec::<f32>().iter().zip(e.to_vec::<f32>()).enumerate() {
                let close = (a - e).abs() <= 1e-4 * e.abs().max(1.0);
                assert!(close, "{}: element {i} is {a}, not {e}\n{}", target.name, kernel.nest);
            }
        }
        last.get_or_insert(kernel);
    }
    last.unwrap()
}

#[test]
fn matrix_products() {
    for (m, n, k) in [(1, 1, 1), (14, 32, 8), (31, 50, 17), (3, 200, 5), (65, 7, 3), (49, 24, 9)] {
        let outer = (m > 1) as usize + (n > 1) as usize;
        check(&samples::matmul(m, n, k), outer);
    }
}

#[test]
fn convolutions() {
    for g in [
        Conv { size: 9, channels: 5, filters: 40, kernel: 3, stride: 1, pad: 1 },
        Conv { size: 14, channels: 3, filters: 16, kernel: 7, stride: 2, pad: 3 },
        Conv { size: 5, channels: 16, filters: 33, kernel: 3, stride: 2, pad: 1 },
    ] {
        check(&samples::conv(g), 3);
    }
    check(&samples::conv(Conv { size: 7, channels: 12, filters: 20, kernel: 1, stride: 1, pad: 0 }), 2);
}

#[test]
fn windows_by_lanes() {
    check(&samples::depthwise(12, 40, 3, 1, 1), 3);
    check(&samples::depthwise(9, 20, 5, 2, 2), 3);
    check(&samples::maxpool(10, 24, 3, 2, 1), 3);
}

#[test]
fn rows_with_reductions() {
    check(&samples::softmax(2, 5, 37), 1);
    check(&samples::softmax(1, 1, 100), 0);
    check(&samples::layernorm(6, 50), 1);
}

#[test]
fn elementwise_programs() {
    check(&samples::elementwise([1, 9, 11, 13]), 1);
    check(&samples::elementwise([1, 70, 100, 3]), 1);
}

/// `Y[i][j] = X[j][i]`.
#[test]
fn transposes() {
    for (m, n) in [(5, 3), (40, 50), (3, 130)] {
        let mut p = Program::default();
        let x = tensor(&mut p, Role::Input, "X", &[n, m]);
        let y = tensor(&mut p, Role::Output, "Y", &[m, n]);
        define(&mut p, y, &format!("i {m}, j {n}"), 2, None, vec![], Expr::load(x, vec![v(1), v(0)]));
        check(&p, 2);
    }
}

/// Two operands side by side: several statements write one tensor, in one band or one after the other.
#[test]
fn concatenation() {
    let mut p = Program::default();
    let a = tensor(&mut p, Role::Input, "A", &[6, 20]);
    let b = tensor(&mut p, Role::Input, "B", &[6, 33]);
    let y = tensor(&mut p, Role::Output, "Y", &[6, 53]);
    define(&mut p, y, "i 6, j 20", 2, None, vec![], Expr::load(a, vars(2)));
    define(&mut p, y, "i 6, j 33", 2, None, vec![], Expr::load(b, vars(2)));
    p.definitions[1].write[1] = v(1).offset(20);
    for outer in 0..=2 {
        check_schedules(&p, outer, &[false]);
    }
}

/// A matrix product with both operands known only at run time, the second transposed: it is packed by a phase.
#[test]
fn product_with_transposed_operand() {
    let mut p = Program::default();
    let a = tensor(&mut p, Role::Input, "Q", &[2, 40, 24]);
    let b = tensor(&mut p, Role::Input, "K", &[2, 50, 24]);
    let y = tensor(&mut p, Role::Output, "S", &[2, 40, 50]);
    let body = samples::mul(Expr::load(a, vec![v(0), v(1), v(3)]), Expr::load(b, vec![v(0), v(2), v(3)]));
    define(&mut p, y, "h 2, i 40, j 50, d 24", 3, Some(BinaryOp::Add), vec![], body);
    let kernel = check(&p, 3);
    assert!(kernel.arguments.iter().any(|a| matches!(a, Argument::Workspace { .. })), "{}", kernel.nest);
}

/// Sums of rows, of columns, and of everything.
#[test]
fn plain_reductions() {
    for (shape, outer, kept) in [("i 6, k 70", 1, 0), ("i 40, k 6", 1, 1), ("k 300", 0, 0)] {
        let extents: Vec<i64> = shape.split(", ").map(|p| p[2..].parse().unwrap()).collect();
        let mut p = Program::default();
        let mut dims = extents.clone();
        let mut index = vars(extents.len() as u32);
        if kept == 1 {
            dims.reverse();
            index.reverse();
        }
        let x = tensor(&mut p, Role::Input, "X", &dims);
        let y = tensor(&mut p, Role::Output, "Y", &extents[..outer]);
        define(&mut p, y, shape, outer as u32, Some(BinaryOp::Add), vec![], Expr::load(x, index));
        check(&p, outer);
    }
}

/// Rows of a table chosen by ids.
#[test]
fn gathers() {
    let mut p = Program::default();
    let t = tensor(&mut p, Role::Input, "T", &[5, 40]);
    let ids = tensor(&mut p, Role::Input, "ids", &[7]);
    p.tensors[1].dtype = DType::I64;
    let y = tensor(&mut p, Role::Output, "Y", &[7, 40]);
    let body = Expr::Load(Access {
        buffer: t,
        index: vec![Index::Value(Box::new(Expr::load(ids, vec![v(0)]))), Index::Affine(v(1))],
        guard: vec![],
        otherwise: None,
    });
    define(&mut p, y, "i 7, j 40", 2, None, vec![], body);
    check(&p, 2);
}

#[test]
fn original_order_is_a_schedule() {
    for p in [samples::matmul(5, 7, 3), samples::softmax(2, 3, 4), samples::depthwise(5, 6, 3, 1, 1)] {
        let scop = build::build("t", &p).unwrap();
        let tiled = tile(&scop, &scop.order, &Target::avx2()).unwrap();
        let kernel = lower(&scop, &tiled).unwrap();
        let inputs = inputs(&p);
        let expected = evaluate(&p, &inputs)[0].to_vec::<f32>();
        for (a, e) in run(&kernel, &scop, &inputs)[0].to_vec::<f32>().iter().zip(expected) {
            assert!((a - e).abs() < 1e-4, "{a} {e}\n{}", kernel.nest);
        }
    }
}

/// Nests that the code generator must make fast, as the model leaves them.
#[test]
fn goldens() {
    let conv = Conv { size: 28, channels: 128, filters: 128, kernel: 3, stride: 1, pad: 1 };
    for (name, p) in [
        ("conv", samples::conv(conv)),
        ("depthwise", samples::depthwise(28, 64, 3, 1, 1)),
        ("softmax", samples::softmax(12, 128, 128)),
        ("elementwise", samples::elementwise([1, 56, 56, 64])),
        ("matmul", samples::matmul(1024, 1024, 1024)),
    ] {
        let c = compile_stages(&p, name, &Target::avx512());
        let text = format!("{}{}\n{}", c.tiled.schedule.print(&c.scop), c.tiled.report, c.kernel.nest);
        let file = format!("{}/src/poly/tile/goldens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text, expected, "{file}; TILEWRIGHT_BLESS=1 writes it again");
    }
}

/// The loops of the longest phase, as the model orders them.
fn tiles(p: &Program) -> String {
    compile_stages(p, "t", &Target::avx512()).tiled.report.phases[0].tiles.clone()
}

/// Constants come from memory: the loop over their panels is outside of one that uses a panel again.
#[test]
fn panels_of_constants_are_used_again() {
    assert_eq!(tiles(&samples::matmul(196, 256, 1024)), "no/48 mo/9");
}

/// Blocks along the channels inside use the whole of each row.
#[test]
fn strided_windows_use_whole_rows() {
    assert_eq!(tiles(&samples::depthwise(112, 96, 3, 2, 1)), "h wo/14 co/16");
}

/// Sums that the next statement reads along the channels are not turned for vectors along the rows.
#[test]
fn vectors_run_along_the_dimension_in_which_sums_are_stored() {
    for size in [28, 38, 40] {
        let conv = samples::conv(samples::Conv { size, channels: 1, filters: 8, kernel: 7, stride: 1, pad: 0 });
        let phase = compile_stages(&conv, "t", &Target::avx512()).tiled.report.phases[0].clone();
        assert_eq!(phase.vector.as_deref(), Some("f"), "{size}: {}", phase.block);
    }
}

/// Operands given at run time are copied once when that saves more than it costs, and rows far apart are read one after the
/// other.
#[test]
fn operands_given_at_run_time_are_packed_where_it_pays() {
    let product = |m, n, k| {
        let mut p = samples::matmul(m, n, k);
        p.tensors[1].role = Role::Input;
        p
    };
    let copies = |p: &Program| compile_stages(p, "t", &Target::avx512()).tiled.packings.len();
    assert_eq!(copies(&product(1024, 1024, 1024)), 1);
    assert_eq!(copies(&product(256, 256, 256)), 0);
    let tiles = tiles(&product(1, 4096, 4096));
    assert!(tiles.starts_with("nb/") && tiles.contains("ko/16"), "{tiles}");
}

/// The tiles of a product of f64 matrices that is written as loops.
fn product(m: i64, n: i64, k: i64, factor: &str) -> Tiled {
    let text = format!(
        "loop p() {{
            inout f64 C[{m}][{n}]
            in f64 A[{m}][{k}], B[{k}][{n}]
            for i in 0..{m} for k in 0..{k} for j in 0..{n} C[i][j] += {factor} * A[i][k] * B[k][j]
        }}"
    );
    loop_program(&text)
}

/// The tiles of a loop program.
fn loop_program(text: &str) -> Tiled {
    let file = language::parse("p", text).unwrap();
    let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
    let Computation::Loop(scop) = lowered.computation else { panic!("a loop program") };
    let scop = expand(&scop).unwrap();
    let (schedule, _) = ilp::schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
    tile(&scop, &schedule, &samples::with_rows(Target::avx512())).unwrap()
}

/// Operands read in short pieces from thousands of pages are packed, and sums that are strided along the vector do not
/// go to memory for each part of a reduction.
#[test]
fn large_products_are_packed_along_their_rows() {
    for (m, n, k) in [(1008, 2208, 1200), (2000, 2300, 2600), (2048, 2048, 2048)] {
        let tiled = product(m, n, k, "1.5");
        let report = &tiled.report.phases[0];
        assert_eq!((tiled.packings.len(), report.vector.as_deref()), (1, Some("j")), "{m} {n} {k}: {}", tiled.report);
    }
}

/// A constant factor of a sum takes part in no step of it.
#[test]
fn factors_of_sums_cost_nothing() {
    let [scaled, plain] = ["1.5", "1.0"].map(|factor| product(1000, 1100, 1200, factor).report);
    assert!((scaled.predicted_ns / plain.predicted_ns - 1.0).abs() < 0.01, "{scaled}{plain}");
    assert!(scaled.tensorized, "{scaled}");
}

/// A prediction counts the packing of operands that are given at run time: they are read, their places fetched and written.
#[test]
fn predictions_count_packing() {
    let (n, target) = (1024, Target::avx512());
    let [given, constant] = [Role::Input, Role::Constant].map(|role| {
        let mut p = samples::matmul(n, n, n);
        p.tensors[1].role = role;
        compile_stages(&p, "t", &target).tiled
    });
    assert_eq!((given.packings.len(), constant.packings.len()), (1, 1));
    let copying = target.machine.launch_ns + 3.0 * (4 * n * n) as f64 / target.machine.bandwidth[2];
    let more = given.report.predicted_ns - constant.report.predicted_ns;
    assert!((0.9..1.1).contains(&(more / copying)), "{more} {copying}\n{}{}", given.report, constant.report);
}

/// A prediction counts `exp` at its cost in the statements beside the one with most instances, and in loop programs.
#[test]
fn predictions_count_costly_operations_in_all_statements() {
    let target = Target::avx512();
    let (m, n) = (64, 64);
    let of = |op: UnaryOp, value: &str| {
        let mut p = samples::matmul(m, n, 32);
        let [product, output] = [tensor(&mut p, Role::Temporary, "P", &[m, n]), p.definitions[0].target];
        p.definitions[0].target = product;
        let body = Expr::unary(op, Expr::load(product, vec![v(0), v(1)]));
        define(&mut p, output, &format!("m {m}, n {n}"), 2, None, vec![], body);
        let body = format!("x[i] = {value} y[i] = x[i] + y[i-1]");
        let text = format!("loop p() {{ inout f64 x[4097], y[4097] for i in 1..4097 {{ {body} }} }}");
        [compile_stages(&p, "t", &target).tiled.report.predicted_ns, loop_program(&text).report.predicted_ns]
    };
    let (costly, cheap) = (of(UnaryOp::Exp, "exp(x[i-1])"), of(UnaryOp::Neg, "x[i-1]"));
    let [exp, neg] = [UnaryOp::Exp, UnaryOp::Neg].map(|op| op.cost().cycles);
    let rates = [(exp - neg) / target.lanes(4) as f64, exp];
    for ((more, less), rate) in costly.into_iter().zip(cheap).zip(rates) {
        let expected = (m * n) as f64 * rate / target.machine.clock_ghz;
        assert!(((more - less) / expected - 1.0).abs() < 1e-3, "{more} {less} {expected}");
    }
}

/// A reduction whose panel exceeds the caches is cut, and the parts of a block meet in memory.
#[test]
fn long_reductions_are_cut() {
    let target = Target::avx512().with_caches([8 << 10, 64 << 10, 128 << 10]);
    let p = samples::matmul(40, 400, 600);
    let c = compile_stages(&p, "t", &target);
    let tiles = &c.tiled.report.phases[0].tiles;
    assert!(tiles.contains("ko/"), "{tiles}");
    let inputs = inputs(&p);
    let expected = evaluate(&p, &inputs)[0].to_vec::<f32>();
    for (a, e) in run(&c.kernel, &c.scop, &inputs)[0].to_vec::<f32>().iter().zip(expected) {
        assert!((a - e).abs() < 1e-4 * e.abs().max(1.0), "{a} {e}\n{}", c.kernel.nest);
    }
}

mod literals;
mod phases;
mod tensors;
mod tile_memory;
