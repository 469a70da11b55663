//! Tensor expressions through scheduler, loops and machine code of every target, against the reference interpreter: on this
//! processor where it can, AArch64 under emulation.

mod emulator;

use tilewright::instructions::TensorInstruction;
use tilewright::internal::codegen::vcode::{Inst, execute};
use tilewright::internal::codegen::{Assembled, Isa, Target};
use tilewright::internal::expr::expression;
use tilewright::internal::expr::scalar::number::{f16_to_f32, f32_to_bf16, f32_to_f16};
use tilewright::internal::graph::define::define;
use tilewright::internal::graph::op::{F32, Layout, Op, PoolKind, ReduceOp, Window};
use tilewright::internal::graph::tensor_type::TensorType;
use tilewright::internal::language::{self, lowered::Computation};
use tilewright::internal::pipeline::kernel::{self, CompiledKernel, Statements};
use tilewright::internal::poly::lower::Kernel;
use tilewright::internal::poly::lower::state::Argument;
use tilewright::internal::poly::reference;
use tilewright::internal::poly::scop::Scop;
use tilewright::internal::poly::statement::{Definition, Iterator, Program, Role, TensorDecl};
use tilewright::internal::runtime::executable::Executable;
use tilewright::{DType, Tensor};

struct Case {
    name: &'static str,
    program: Program,
    inputs: Vec<Tensor>,
    /// The definition fixes every bit of the results.
    exact: bool,
}

fn window(kernel: i64, stride: i64, pad: i64) -> Window {
    let both = |v: i64| vec![v; 2];
    Window {
        kernel: both(kernel),
        stride: both(stride),
        dilation: both(1),
        pad_before: both(pad),
        pad_after: both(pad),
    }
}

/// Of the operator's inputs those from `constants` on are known at compile time.
fn operator(name: &'static str, op: Op, shapes: &[&[i64]], constants: usize) -> Case {
    let types: Vec<TensorType> = shapes.iter().map(|s| TensorType::new(DType::F32, s)).collect();
    let mut program = define(&op, &types).unwrap();
    for tensor in program.tensors.iter_mut().take(shapes.len()).skip(constants) {
        tensor.role = Role::Constant;
    }
    with_data(name, program)
}

/// Inputs between -2 and 2.
fn with_data(name: &'static str, program: Program) -> Case {
    let doubled = |t: Tensor| Tensor::new(&t.shape, &t.to_vec::<f32>().iter().map(|v| 2.0 * v).collect::<Vec<f32>>());
    let given = program.tensors.iter().filter(|t| matches!(t.role, Role::Input | Role::Constant));
    let inputs = (0..).zip(given).map(|(i, t)| doubled(Tensor::seeded(DType::F32, &t.shape, 1, i, 2))).collect();
    Case { name, program, inputs, exact: false }
}

/// `tanh(x·y + 0.5) · max(x, 0) / (1 + exp(-y))`, a row of `y` for each row of `x`.
fn elementwise_chain(rows: i64, columns: i64) -> Case {
    use tilewright::internal::expr::{Affine, Var};
    use tilewright::internal::expr::{BinaryOp, BufferId, Expr, UnaryOp};
    let decl = |name: &str, shape: &[i64], role| TensorDecl::new(name, DType::F32, shape, role);
    let (i, j) = (Affine::var(Var(0)), Affine::var(Var(1)));
    let x = || Expr::load(BufferId(0), vec![i.clone(), j.clone()]);
    let y = || Expr::load(BufferId(1), vec![j.clone()]);
    let product = Expr::binary(BinaryOp::Mul, x(), y());
    let tanh = Expr::unary(UnaryOp::Tanh, Expr::binary(BinaryOp::Add, product, Expr::f32(0.5)));
    let relu = Expr::binary(BinaryOp::Max, x(), Expr::f32(0.0));
    let exp = Expr::unary(UnaryOp::Exp, Expr::unary(UnaryOp::Neg, y()));
    let denominator = Expr::binary(BinaryOp::Add, Expr::f32(1.0), exp);
    let body = Expr::binary(BinaryOp::Div, Expr::binary(BinaryOp::Mul, tanh, relu), denominator);
    let definition = Definition {
        target: BufferId(2),
        iterators: vec![Iterator::new("i", rows), Iterator::new("j", columns)],
        outer: 2,
        write: vec![i, j],
        computed: vec![],
        reduce: None,
        conditions: vec![],
        body,
    };
    let tensors = vec![
        decl("x", &[rows, columns], Role::Input),
        decl("y", &[columns], Role::Input),
        decl("z", &[rows, columns], Role::Output),
    ];
    with_data("elementwise chain", Program { tensors, definitions: vec![definition] })
}

fn cases() -> Vec<Case> {
    let conv = |kernel, stride, pad, group, layout| Op::Conv { window: window(kernel, stride, pad), group, layout };
    let product = |transpose_b| Op::MatMul { transpose_a: false, transpose_b };
    vec![
        operator("matrix product", product(false), &[&[37, 29], &[29, 50]], 1),
        operator("matrix product of inputs", product(true), &[&[2, 9, 40], &[2, 19, 40]], 2),
        operator("convolution", conv(3, 1, 1, 1, Layout::Nhwc), &[&[1, 9, 11, 13], &[20, 13, 3, 3], &[20]], 1),
        operator("strided convolution", conv(3, 2, 1, 1, Layout::Nchw), &[&[1, 3, 15, 16], &[18, 3, 3, 3]], 1),
        operator("depthwise", conv(3, 1, 1, 21, Layout::Nhwc), &[&[1, 8, 10, 21], &[21, 1, 3, 3]], 1),
        operator("softmax", Op::Softmax { axis: 1, log: false }, &[&[7, 45]], 1),
        operator("layer norm", Op::LayerNorm { axis: 1, epsilon: F32::new(1e-5) }, &[&[6, 53], &[53], &[53]], 1),
        operator(
            "pooling",
            Op::Pool { kind: PoolKind::Max, window: window(3, 2, 1), layout: Layout::Nhwc },
            &[&[1, 9, 9, 19]],
            1,
        ),
        operator("mean", Op::Reduce { op: ReduceOp::Mean, axes: vec![1, 2], keep: false }, &[&[2, 5, 7, 23]], 1),
        operator("transpose", Op::Transpose { perm: vec![0, 2, 1] }, &[&[2, 17, 23]], 1),
        elementwise_chain(5, 43),
    ]
    .into_iter()
    .chain(with_not_a_number())
    .chain(exact())
    .chain([table_of_bytes()])
    .collect()
}

/// Bytes looked up in a table of 256, whose elements differ from their neighbours.
fn table_of_bytes() -> Case {
    let shapes = [&[256][..], &[9, 45]];
    let program = define(&Op::Table, &shapes.map(|shape| TensorType::new(DType::U8, shape))).unwrap();
    let inputs = shapes.map(|shape| whole_numbers(DType::U8, shape, shape.len())).to_vec();
    Case { name: "table of bytes", program, inputs, exact: true }
}

/// Operators that move elements or round once, on zeros of both signs, infinities and what is not a number.
fn exact() -> Vec<Case> {
    use tilewright::internal::expr::{BinaryOp, UnaryOp};
    const SPECIAL: [f32; 5] = [-0.0, 0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let binary = |name, op| operator(name, Op::Binary(op), &[&[9, 45], &[9, 45]], 2);
    let unary = |name, op| operator(name, Op::Unary(op), &[&[9, 45]], 1);
    let one_value = 1f32.to_bits().into();
    let mut cases = vec![
        binary("exact sum", BinaryOp::Add),
        binary("exact difference", BinaryOp::Sub),
        binary("exact product", BinaryOp::Mul),
        binary("exact quotient", BinaryOp::Div),
        binary("exact minimum", BinaryOp::Min),
        binary("exact maximum", BinaryOp::Max),
        operator("exact maximum with a number", Op::Binary(BinaryOp::Max), &[&[9, 45], &[]], 2),
        unary("exact negative", UnaryOp::Neg),
        unary("exact absolute value", UnaryOp::Abs),
        unary("exact square root", UnaryOp::Sqrt),
        unary("exact floor", UnaryOp::Floor),
        unary("exact ceiling", UnaryOp::Ceil),
        unary("exact rounding", UnaryOp::Round),
        operator("exact transpose", Op::Transpose { perm: vec![2, 0, 1] }, &[&[5, 17, 23]], 1),
        operator("exact concatenation", Op::Concat { axis: 1 }, &[&[5, 17], &[5, 9]], 2),
        operator("exact padding", Op::Pad { before: vec![1, 3], after: vec![0, 20], value: one_value }, &[&[5, 17]], 1),
        operator("exact upsampling", Op::Upsample { factors: vec![2, 3] }, &[&[5, 17]], 1),
    ];
    for case in &mut cases {
        case.exact = true;
        for (k, x) in case.inputs.iter_mut().enumerate() {
            let elements = (0..).zip(x.to_vec::<f32>());
            // Periods that meet in each pair of values.
            let chosen = |i: usize, v| if i.is_multiple_of(3) { SPECIAL[(i / 3 / [1, 5][k]) % 5] } else { v };
            *x = Tensor::new(&x.shape, &elements.map(|(i, v)| chosen(i, v)).collect::<Vec<f32>>());
        }
    }
    cases
}

/// Reductions over lanes, over rows and over windows, where every 29th element of the operand is not a number.
fn with_not_a_number() -> Vec<Case> {
    let reduce = |op, axes: &[usize]| Op::Reduce { op, axes: axes.to_vec(), keep: false };
    let pool = |layout| Op::Pool { kind: PoolKind::Max, window: window(3, 2, 1), layout };
    let mut cases = vec![
        operator("NaN in a maximum over lanes", reduce(ReduceOp::Max, &[1]), &[&[9, 45]], 1),
        operator("NaN in a maximum over a long row", reduce(ReduceOp::Max, &[1]), &[&[4, 1000]], 1),
        operator("NaN in a maximum over a short row", reduce(ReduceOp::Max, &[1]), &[&[31, 5]], 1),
        operator("NaN in a minimum over lanes", reduce(ReduceOp::Min, &[1]), &[&[9, 45]], 1),
        operator("NaN in a maximum over rows", reduce(ReduceOp::Max, &[0]), &[&[9, 45]], 1),
        operator("NaN in a minimum over all", reduce(ReduceOp::Min, &[0, 1]), &[&[9, 45]], 1),
        operator("NaN in pooling of channels", pool(Layout::Nhwc), &[&[1, 9, 9, 19]], 1),
        operator("NaN in pooling of planes", pool(Layout::Nchw), &[&[1, 3, 11, 13]], 1),
        operator("NaN in softmax", Op::Softmax { axis: 1, log: false }, &[&[9, 45]], 1),
        operator("NaN in log-softmax", Op::Softmax { axis: 0, log: true }, &[&[9, 45]], 1),
        operator("NaN in LogSumExp", reduce(ReduceOp::LogSumExp, &[1]), &[&[9, 45]], 1),
    ];
    for case in &mut cases {
        let x = &mut case.inputs[0];
        let elements = (0..).zip(x.to_vec::<f32>());
        let elements: Vec<f32> = elements.map(|(i, v)| if i % 29 == 11 { f32::NAN } else { v }).collect();
        *x = Tensor::new(&x.shape, &elements);
    }
    cases
}

#[test]
fn a_reduction_is_not_a_number_exactly_where_an_operand_is_not() {
    let x = Tensor::new(&[3, 2], &[1.0, f32::NAN, f32::NAN, 2.0, 3.0, 4.0f32]);
    for (op, rows) in [(ReduceOp::Max, 4.0), (ReduceOp::Min, 3.0)] {
        let case = operator("", Op::Reduce { op, axes: vec![1], keep: false }, &[&[3, 2]], 1);
        let y = reference::evaluate(&case.program, &[&x]).unwrap()[0].to_vec::<f32>();
        assert!(y[0].is_nan() && y[1].is_nan() && y[2] == rows, "{op:?}: {y:?}");
    }
}

/// The argument table of a kernel as bytes, and the slot of each output.
fn arguments(case: &Case, scop: &Scop, kernel: &Kernel) -> (Vec<Vec<u8>>, Vec<usize>) {
    let given: Vec<usize> = (0..case.program.tensors.len())
        .filter(|&i| matches!(case.program.tensors[i].role, Role::Input | Role::Constant))
        .collect();
    let source = |id: expression::BufferId| given.iter().position(|&i| i == id.0 as usize).map(|k| &case.inputs[k]);
    let mut outputs = vec![];
    let table = kernel
        .arguments
        .iter()
        .enumerate()
        .map(|(slot, argument)| match argument {
            Argument::Tensor(id) => match source(*id) {
                Some(tensor) => tensor.data.to_vec(),
                None => {
                    outputs.push(slot);
                    let decl = &case.program.tensors[id.0 as usize];
                    vec![0xff; decl.shape.iter().product::<i64>() as usize * decl.dtype.bytes()]
                }
            },
            Argument::Packed(pack) => {
                let shape = scop.tensor(pack.source).shape.clone();
                pack.apply(&Tensor { shape, ..source(pack.source).expect("a constant").clone() }).data.into()
            }
            Argument::Workspace { bytes } => vec![0xff; *bytes],
        })
        .collect();
    (table, outputs)
}

/// Calls in order: each parallel phase in two parts.
fn steps(assembled: &Assembled) -> Vec<(Vec<u8>, i64, i64)> {
    let parts = |n: i64| if n > 1 { vec![(0, n / 2), (n / 2, n)] } else { vec![(0, n)] };
    let ranges = |p: Option<i64>| p.map_or(vec![(0, 1)], parts);
    assembled.phases.iter().flat_map(|p| ranges(p.parallel).into_iter().map(|(a, b)| (p.code.clone(), a, b))).collect()
}

fn run_native(assembled: &Assembled, table: &mut [Vec<u8>]) {
    let scratch_bytes = assembled.phases.iter().map(|p| p.scratch_bytes).max().unwrap_or(0) as usize;
    let mut scratch = vec![0u8; scratch_bytes + 128];
    let aligned = scratch.as_mut_ptr().map_addr(|a| a.next_multiple_of(64));
    for (code, first, last) in steps(assembled) {
        let executable = Executable::new(&code).unwrap();
        let pointers: Vec<*mut u8> = table.iter_mut().map(|b| b.as_mut_ptr()).collect();
        // SAFETY: the code comes from the assembler for this processor; every buffer has the size that the kernel asks for.
        unsafe { executable.phase(0)(pointers.as_ptr(), first, last, aligned) };
    }
}

/// Greatest difference relative to the greatest value; infinite where one of both is not a number, or infinite, and for any
/// other bits of an exact result and of integers.
fn difference(expected: &Tensor, found: &[u8], exact: bool) -> f64 {
    if expected.dtype != DType::F32 {
        return if expected.data[..] == *found { 0.0 } else { f64::INFINITY };
    }
    let found = Tensor { data: found.into(), ..expected.clone() }.to_vec::<f32>();
    let expected = expected.to_vec::<f32>();
    let scale = expected.iter().filter(|v| v.is_finite()).fold(1e-30f64, |m, v| m.max(f64::from(v.abs())));
    let apart = |(e, f): (&f32, f32)| match e.to_bits() == f.to_bits() || e.is_nan() && f.is_nan() {
        true => 0.0,
        false if exact || !e.is_finite() || !f.is_finite() => f64::INFINITY,
        false => f64::from((e - f).abs()) / scale,
    };
    expected.iter().zip(found).map(apart).fold(0.0, f64::max)
}

/// A tensor of small whole numbers, whose products have exact sums.
fn whole_numbers(dtype: DType, shape: &[i64], seed: usize) -> Tensor {
    let mut tensor = Tensor::zeros(dtype, shape);
    let number = |at: usize| ((at + seed) * 151 + (at + seed) / 13) as u8;
    for (at, element) in tensor.data.chunks_exact_mut(dtype.bytes()).enumerate() {
        match dtype {
            DType::BF16 => element.copy_from_slice(&f32_to_bf16(f32::from(number(at) as i8)).to_le_bytes()),
            _ => element[0] = number(at),
        }
    }
    tensor
}

/// Exact products with the rest of a group and of a vector; operands given at run time or constant.
fn tensor_products(types: [DType; 2]) -> Vec<Case> {
    let sizes = [[5, 37, 23], [14, 64, 32], [1, 9, 70], [33, 3, 17], [7, 24, 18], [12, 40, 33]];
    let case = |(i, [m, k, n]): (usize, [i64; 3])| {
        let shapes = [vec![m, k], vec![k, n]];
        let of = |t: usize| TensorType::new(types[t], &shapes[t]);
        let mut program = define(&Op::MatMul { transpose_a: false, transpose_b: false }, &[of(0), of(1)]).unwrap();
        program.tensors[1].role = if i % 2 == 0 { Role::Constant } else { Role::Input };
        let tensor = |t: usize| whole_numbers(types[t], &shapes[t], 7 * t);
        Case { name: "tensor product", program, inputs: vec![tensor(0), tensor(1)], exact: true }
    };
    sizes.into_iter().enumerate().map(case).collect()
}

/// Targets whose features have tensor instructions of bytes or of halves, with the types that these multiply.
#[test]
fn tensor_instructions_agree_with_the_interpreter_on_every_target() {
    let rows = tilewright::instructions::built_in().unwrap();
    let bytes = [[DType::U8, DType::I8], [DType::I8, DType::U8], [DType::I8, DType::I8], [DType::U8, DType::U8]];
    let halves = [[DType::BF16; 2]];
    let named = [
        ("x86-64-avx512-vnni", &bytes[..]),
        ("x86-64-avx2+avxvnni", &bytes),
        ("aarch64-neon+dotprod", &bytes),
        ("aarch64-neon+i8mm", &bytes),
        ("aarch64-neon+dotprod+i8mm", &bytes),
        ("x86-64-avx512-vnni+avx512bf16", &halves),
        ("aarch64-neon+bf16", &halves),
    ];
    let (mut jobs, mut expected) = (vec![], vec![]);
    for (name, types) in named {
        let target = Target::by_name(name).unwrap().with_instructions(rows);
        let native = target.runs_on_host();
        if !native && target.isa != Isa::Neon {
            emulator::skip::no_hardware(&format!("this processor does not run {name}"));
            continue;
        }
        // Types of operands, in this order, that a row with matrices of sums multiplies.
        let multiplies = |types: &[DType; 2]| {
            let matrices = target.instructions.iter().filter(|row| row.is_matrix());
            let of = |row: &TensorInstruction| row.operands[1..].iter().map(|o| o.dtype).eq(*types);
            matrices.filter(|row| of(row)).count() > 0
        };
        let of_matrices = types.iter().filter(|t| multiplies(t)).count();
        let (mut used, mut in_matrices) = (0, 0);
        for case in types.iter().flat_map(|&t| tensor_products(t)) {
            let inputs: Vec<&Tensor> = case.inputs.iter().collect();
            let right = reference::evaluate(&case.program, &inputs).unwrap().remove(0);
            let statements = Statements::of_expression(case.name, &case.program).unwrap();
            let CompiledKernel { scop, kernel, assembled, vcode, .. } = kernel::compile(statements, &target).unwrap();
            let instructions = || vcode.iter().flat_map(|f| &f.instructions);
            used += usize::from(instructions().next().is_some());
            in_matrices += usize::from(instructions().any(TensorInstruction::is_matrix));
            let (mut table, outputs) = arguments(&case, &scop, &kernel);
            if native {
                run_native(&assembled, &mut table);
                assert!(table[outputs[0]] == right.data.to_vec(), "{name}, {:?}", right.shape);
                continue;
            }
            let scratch_bytes = assembled.phases.iter().map(|p| p.scratch_bytes).max().unwrap_or(0);
            jobs.push(emulator::Job { name: name.into(), steps: steps(&assembled), scratch_bytes, buffers: table });
            expected.push((name, outputs[0], right));
        }
        assert!(used >= types.len(), "{used} kernels by tensor instructions on {name}");
        assert!(in_matrices >= 2 * of_matrices, "{in_matrices} kernels by matrices on {name}");
    }
    for ((name, slot, right), results) in
        expected.iter().zip(emulator::run("tensor_instructions", &jobs).into_iter().flatten())
    {
        assert!(results.iter().all(|r| r[*slot] == right.data.to_vec()), "{name}, {:?}", right.shape);
    }
}

/// Sums of random products of bf16 are those of exact arithmetic but for the roundings of a sum in f32, each of at most a unit in the
/// last place: instructions of AArch64 round to odd.
#[test]
fn products_of_halves_stay_within_their_bound() {
    let rows = tilewright::instructions::built_in().unwrap();
    let (mut jobs, mut expected, mut names) = (vec![], vec![], vec![]);
    for name in ["x86-64-avx512-vnni+avx512bf16", "aarch64-neon+bf16"] {
        let target = Target::by_name(name).unwrap().with_instructions(rows);
        let native = target.runs_on_host();
        if !native && target.isa != Isa::Neon {
            emulator::skip::no_hardware(&format!("this processor does not run {name}"));
            continue;
        }
        for [m, k, n] in [[7, 24, 18], [13, 36, 21], [12, 62, 33], [9, 35, 16], [16, 128, 40]] {
            let types = [[m, k], [k, n]].map(|shape| TensorType::new(DType::BF16, &shape));
            let program = define(&Op::MatMul { transpose_a: false, transpose_b: false }, &types).unwrap();
            let [a, b] = [(m * k, 3), (k * n, 4)].map(|(count, seed)| -> Vec<u16> {
                let words = Tensor::seeded(DType::U64, &[count], 11, seed, u64::MAX).to_vec::<u64>();
                words.iter().map(|&w| f32_to_bf16((w >> 40) as f32 / (1 << 22) as f32 - 2.0)).collect()
            });
            let tensor = |shape: &[i64], bits: &[u16]| Tensor {
                data: bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<u8>>().into(),
                ..Tensor::zeros(DType::BF16, shape)
            };
            let inputs = vec![tensor(&[m, k], &a), tensor(&[k, n], &b)];
            let case = Case { name: "halves", program, inputs, exact: false };
            let statements = Statements::of_expression(case.name, &case.program).unwrap();
            let CompiledKernel { scop, kernel, assembled, vcode, .. } = kernel::compile(statements, &target).unwrap();
            names.extend(vcode.iter().flat_map(|f| &f.instructions).map(|row| row.name.to_string()));
            let (mut table, outputs) = arguments(&case, &scop, &kernel);
            let value = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
            let sums = (0..m * n).map(|at| {
                let term = |q: i64| value(a[(at / n * k + q) as usize]) * value(b[(q * n + at % n) as usize]);
                let unit = f64::from(f32::EPSILON) * (k + 1) as f64;
                ((0..k).map(term).sum::<f64>(), (0..k).map(|q| term(q).abs()).sum::<f64>() * unit)
            });
            let right: Vec<(f64, f64)> = sums.collect();
            if native {
                run_native(&assembled, &mut table);
                assert_within(&table[outputs[0]], &right, name);
                continue;
            }
            let scratch_bytes = assembled.phases.iter().map(|p| p.scratch_bytes).max().unwrap_or(0);
            jobs.push(emulator::Job { name: name.into(), steps: steps(&assembled), scratch_bytes, buffers: table });
            expected.push((outputs[0], right));
        }
    }
    assert!(["bfmmla", "bfdot"].iter().all(|row| names.iter().any(|n| n == row)), "{names:?}");
    for ((slot, right), results) in expected.iter().zip(emulator::run("halves", &jobs).into_iter().flatten()) {
        results.iter().for_each(|r| assert_within(&r[*slot], right, "aarch64-neon+bf16"));
    }
}

/// Asserts that each f32 is a value but for its bound.
fn assert_within(found: &[u8], right: &[(f64, f64)], name: &str) {
    let found: Vec<f32> = found.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(found.len(), right.len());
    for (&found, &(value, bound)) in found.iter().zip(right) {
        assert!((f64::from(found) - value).abs() <= bound, "{name}: {found}, not {value} ± {bound}");
    }
}

/// The f16 of small whole numbers, whose products have exact sums, or of numbers between -2 and 2.
fn halves(shape: &[i64], seed: u64, whole: bool) -> Tensor {
    let words = Tensor::seeded(DType::U64, &[shape.iter().product()], 12, seed, u64::MAX).to_vec::<u64>();
    let number = |w: u64| match whole {
        true => (w >> 40) as f32 % 7.0 - 3.0,
        false => (w >> 40) as f32 / (1 << 22) as f32 - 2.0,
    };
    let bits = words.into_iter().flat_map(|w| f32_to_f16(number(w)).to_le_bytes());
    Tensor { data: bits.collect::<Vec<u8>>().into(), ..Tensor::zeros(DType::F16, shape) }
}

/// Programs with sums in f16, and how many terms these have: products of any size, a window with padding, results that lie in other
/// orders, or that are in f32.
const SUMS_IN_F16: [(&str, i64); 7] = [
    ("def p(f16(9,40) A, f16(40,37) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", 40),
    ("def p(f16(1,100) A, f16(100,35) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", 100),
    ("def p(f16(40,33) A, f16(64,33) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }", 33),
    ("def p(f16(39,24) A, f16(24,72) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }", 24),
    (
        "def p(f16(9,11,6) X, f16(3,3,6,20) W) -> (Y) { Y(y,x,f) +=! X(y + r - 1, x + s - 1, c) * W(r,s,c,f) where y in 0..9, x in 0..11 }",
        54,
    ),
    ("def p(f16(7,2,48) A, f16(2,48,33) B) -> (C) { P(q,m,n) +=! A(m,q,k) * B(q,k,n)  C(m,n) +=! f32(P(q,m,n)) }", 48),
    ("def p(f16(14,32) A, f16(32,40) B) -> (C) { P(m,n) +=! A(m,k) * B(k,n)  C(m,n) = max(f32(P(m,n)) + 1.5, 0) }", 32),
];

/// Results of a program in exact arithmetic, and how far a sum in f16 may be from them: half a unit for each term and its rounding.
fn bounds_of_halves(program: &Program, inputs: &[Tensor], terms: i64) -> Vec<(f64, f64)> {
    let values = |f: &dyn Fn(u16) -> u16| -> Vec<f64> {
        let changed = |t: &Tensor| {
            let bits = t.data.chunks_exact(2).flat_map(|b| f(u16::from_le_bytes([b[0], b[1]])).to_le_bytes());
            Tensor { data: bits.collect::<Vec<u8>>().into(), ..t.clone() }
        };
        let changed: Vec<Tensor> = inputs.iter().map(changed).collect();
        numbers(&reference::evaluate(program, &changed.iter().collect::<Vec<_>>()).unwrap()[0])
    };
    let (sums, magnitudes) = (values(&|bits| bits), values(&|bits| bits & 0x7fff));
    let allowed = |magnitude: f64| magnitude * (terms + 2) as f64 / 2048.0;
    sums.into_iter().zip(magnitudes.into_iter().map(allowed)).collect()
}

/// The elements of a tensor of f16 or f32.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let element = |bytes: &[u8]| match *bytes {
        [a, b] => f64::from(f16_to_f32(u16::from_le_bytes([a, b]))),
        _ => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
    };
    tensor.data.chunks_exact(tensor.dtype.bytes()).map(element).collect()
}

/// Sums in f16 are exact for whole numbers, and otherwise within the bound of as many roundings: on an emulated processor, and by the
/// meaning of each machine instruction.
#[test]
fn sums_in_f16_are_those_of_instructions() {
    let rows = tilewright::instructions::built_in().unwrap();
    let (mut jobs, mut expected) = (vec![], vec![]);
    let check = |found: Vec<u8>, program: &Program, right: &[(f64, f64)], exact: bool, what: &str| {
        let output = program.tensors.iter().find(|t| t.role == Role::Output).unwrap();
        let found = numbers(&Tensor { data: found.into(), ..Tensor::zeros(output.dtype, &output.shape) });
        assert_eq!(found.len(), right.len());
        for (found, &(value, bound)) in found.iter().zip(right) {
            assert!((found - value).abs() <= if exact { 0.0 } else { bound }, "{what}: {found}, not {value} ± {bound}");
        }
    };
    for (name, row) in [("aarch64-neon+fp16", "fmla_8h"), ("x86-64-avx512-vnni+avx512fp16", "vfmadd231ph")] {
        let target = Target::by_name(name).unwrap().with_instructions(rows);
        for ((text, terms), exact) in SUMS_IN_F16.iter().flat_map(|case| [(case, true), (case, false)]) {
            let file = language::parse("halves.tile", text).unwrap();
            let lowered = file.lower(&file.programs[0], &[].into(), None).unwrap();
            let Computation::Def(program) = lowered.computation else { panic!("{text}") };
            let given: Vec<Vec<i64>> =
                program.tensors.iter().filter(|t| t.role == Role::Input).map(|t| t.shape.to_vec()).collect();
            let inputs: Vec<Tensor> = given.iter().zip(1..).map(|(shape, seed)| halves(shape, seed, exact)).collect();
            let right = bounds_of_halves(&program, &inputs, *terms);
            let statements = Statements::of_expression("halves", &program).unwrap();
            let compiled = kernel::compile(statements, &target).unwrap();
            let used = compiled.vcode.iter().flat_map(|f| &f.instructions).any(|i| i.name.as_str() == row);
            assert!(used, "{text} on {name} without {row}");
            // on x86-64 a broadcast of 16 bits in a register of its own takes a port that multiplies: it saves a load at least
            let count =
                |kind: fn(&Inst) -> bool| compiled.vcode.iter().flat_map(|f| &f.insts).filter(|i| kind(i)).count();
            let apart = count(|inst| matches!(inst, Inst::VBroadcast { ty, .. } if ty.lane.bytes() == 2));
            let products = count(|inst| matches!(inst, Inst::VTensor { .. } | Inst::VTensorMemory { .. }));
            assert!(
                target.isa == Isa::Neon || 2 * apart <= products,
                "{text} on {name}: {apart} elements in registers"
            );
            let case = Case { name: "halves", program, inputs, exact };
            let (mut table, outputs) = arguments(&case, &compiled.scop, &compiled.kernel);
            if target.isa == Isa::Neon {
                let scratch_bytes = compiled.assembled.phases.iter().map(|p| p.scratch_bytes).max().unwrap_or(0);
                let steps = steps(&compiled.assembled);
                jobs.push(emulator::Job { name: "halves".into(), steps, scratch_bytes, buffers: table.clone() });
                expected.push((*text, outputs[0], case.program.clone(), right.clone(), exact));
            }
            for (function, phase) in compiled.vcode.iter().zip(&compiled.assembled.phases) {
                execute::run(function, &mut table, 0, phase.parallel.unwrap_or(1)).unwrap();
            }
            check(table.swap_remove(outputs[0]), &case.program, &right, exact, text);
        }
    }
    for ((text, slot, program, right, exact), results) in
        expected.iter().zip(emulator::run("f16", &jobs).into_iter().flatten())
    {
        results.iter().for_each(|r| check(r[*slot].clone(), program, right, *exact, text));
    }
}

#[test]
fn kernels_agree_with_the_interpreter_on_every_target() {
    let mut wrong = vec![];
    for target in Target::all() {
        let native = target.runs_on_host();
        if !native && target.isa != Isa::Neon {
            emulator::skip::no_hardware(&format!("this processor does not run {}", target.name));
            continue;
        }
        let (mut jobs, mut emulated) = (vec![], vec![]);
        for case in cases() {
            let inputs: Vec<&Tensor> = case.inputs.iter().collect();
            let expected = reference::evaluate(&case.program, &inputs).unwrap();
            let compiled = Statements::of_expression(case.name, &case.program)
                .and_then(|statements| kernel::compile(statements, &target))
                .unwrap_or_else(|e| panic!("{}, {}: {e}", case.name, target.name));
            assert_eq!(compiled.fallback(), None, "{}, {}", case.name, target.name);
            let CompiledKernel { scop, kernel, assembled, .. } = compiled;
            let (mut table, outputs) = arguments(&case, &scop, &kernel);
            let mut compare = |table: &[Vec<u8>]| {
                for (expected, &slot) in expected.iter().zip(&outputs) {
                    let d = difference(expected, &table[slot], case.exact);
                    if d > 1e-5 {
                        wrong.push(format!("{}, {}: differs by {d:e}", case.name, target.name));
                    }
                }
            };
            if native {
                run_native(&assembled, &mut table);
                compare(&table);
            } else {
                jobs.push(emulator::Job {
                    name: case.name.into(),
                    steps: steps(&assembled),
                    scratch_bytes: assembled.phases.iter().map(|p| p.scratch_bytes).max().unwrap_or(0),
                    buffers: table,
                });
                emulated.push((case.name, expected, outputs, case.exact));
            }
        }
        for ((name, expected, outputs, exact), results) in
            emulated.iter().zip(emulator::run("kernels", &jobs).into_iter().flatten())
        {
            for (expected, &slot) in expected.iter().zip(outputs) {
                let worst = results.iter().map(|r| difference(expected, &r[slot], *exact)).fold(0.0, f64::max);
                if worst > 1e-5 {
                    wrong.push(format!("{name}, {}: differs by {worst:e}", target.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
