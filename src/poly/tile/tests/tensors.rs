//! Tensor instructions in the choice of blocks: what is matched is computed by them, in any size, and packed for them.

use super::{compile_stages, evaluate};
use crate::codegen::Target;
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::select::tests::run;
use crate::codegen::vcode::Inst;
use crate::expr::{BinaryOp, BufferId, Expr, Scalar, Var};
use crate::pipeline::kernel::CompiledKernel;
use crate::poly::lower::state::Argument;
use crate::poly::normalize::half_sums::with_half_sums;
use crate::poly::packing::PackedDim;
use crate::poly::samples::{define, mul, tensor, v};
use crate::poly::statement::{Program, Role};
use crate::poly::tile::report::PhaseReport;
use crate::runtime::{DType, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The target with VNNI and its built-in rows.
fn target() -> Target {
    Target::avx512_vnni().with_instructions(rows())
}

pub fn rows() -> &'static [TensorInstruction] {
    crate::language::instruction::built_in().expect("the built-in rows")
}

/// `C(m,n) += i32(A(m,k)) * i32(B(k,n))`, of 8-bit elements.
fn product(m: i64, n: i64, k: i64, types: [DType; 2], given: Role) -> Program {
    product_in(m, n, k, types, DType::I32, given)
}

/// The product with sums in `sum`.
fn product_in(m: i64, n: i64, k: i64, types: [DType; 2], sum: DType, given: Role) -> Program {
    let mut p = Program::default();
    let a = tensor(&mut p, Role::Input, "A", &[m, k]);
    let b = tensor(&mut p, given, "B", &[k, n]);
    let c = tensor(&mut p, Role::Output, "C", &[m, n]);
    for (id, dtype) in [(a, types[0]), (b, types[1]), (c, sum)] {
        p.tensors[id.0 as usize].dtype = dtype;
    }
    let wide = |e| Expr::cast(sum, e);
    let body = mul(wide(Expr::load(a, vec![v(0), v(2)])), wide(Expr::load(b, vec![v(2), v(1)])));
    define(&mut p, c, &format!("m {m}, n {n}, k {k}"), 2, Some(BinaryOp::Add), vec![], body);
    p
}

/// The product of m × k and constant k × n elements, with sums in `sum`.
pub fn compile_product([m, n, k]: [i64; 3], types: [DType; 2], sum: DType, target: &Target) -> CompiledKernel {
    compile_stages(&product_in(m, n, k, types, sum, Role::Constant), "product", target)
}

fn random(p: &Program, rng: &mut StdRng) -> Vec<Tensor> {
    let inputs = p.tensors.iter().filter(|t| matches!(t.role, Role::Input | Role::Constant));
    inputs
        .map(|t| {
            let mut values = Tensor::zeros(t.dtype, &t.shape);
            values.data.iter_mut().for_each(|byte| *byte = rng.random());
            values
        })
        .collect()
}

/// The output of a kernel by the interpreter of VCode.
fn output(compiled: &CompiledKernel, given: &[Tensor]) -> Tensor {
    let role = |a: &Argument| match a {
        Argument::Tensor(b) => Some(compiled.scop.tensor(*b).role),
        _ => None,
    };
    // The kernel may have merged dimensions.
    let shaped = |b: BufferId| Tensor { shape: compiled.scop.tensor(b).shape.clone(), ..given[b.0 as usize].clone() };
    let argument = |a: &Argument| match a {
        Argument::Tensor(b) if role(a) == Some(Role::Output) => {
            let t = compiled.scop.tensor(*b);
            Tensor::zeros(t.dtype, &t.shape)
        }
        Argument::Tensor(b) => shaped(*b),
        Argument::Packed(pack) => pack.apply(&shaped(pack.source)),
        Argument::Workspace { bytes } => Tensor::zeros(DType::U8, &[*bytes as i64]),
    };
    let mut arguments: Vec<Tensor> = compiled.kernel.arguments.iter().map(argument).collect();
    run(&compiled.vcode, &mut arguments);
    let at = compiled.kernel.arguments.iter().position(|a| role(a) == Some(Role::Output)).unwrap();
    arguments.swap_remove(at)
}

fn is_tensor(compiled: &CompiledKernel) -> bool {
    compiled.vcode.iter().flat_map(|f| &f.insts).any(|i| matches!(i, Inst::VTensor { .. }))
}

#[test]
fn products_of_bytes_are_exact_in_any_size() {
    let mut rng = StdRng::seed_from_u64(17);
    let mut tensors = 0;
    for round in 0..24 {
        let sizes = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 48, 65];
        let [m, n, k] = std::array::from_fn(|_| sizes[rng.random_range(0..sizes.len())]);
        let role = if round % 2 == 0 { Role::Constant } else { Role::Input };
        let p = product(m, n, k, [DType::U8, DType::I8], role);
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "product", &target());
        tensors += usize::from(is_tensor(&compiled));
        assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{m}x{n}x{k}, {role:?}");
    }
    assert!(tensors > 7, "{tensors} of 24 by tensor instructions");
}

#[test]
fn the_packed_order_follows_from_the_row() {
    let compiled = compile_stages(&product(32, 64, 256, [DType::U8, DType::I8], Role::Constant), "p", &target());
    assert!(is_tensor(&compiled), "{}", compiled.tiled.report);
    assert_eq!(compiled.tiled.report.phases[0].instruction.as_deref(), Some("vpdpbusd"));
    let [packing] = &compiled.tiled.packings[..] else { panic!("{:?}", compiled.tiled.packings) };
    assert_eq!(packing.dims.last().unwrap().1, PackedDim::Point(4), "terms of a lane are neighbours");
}

#[test]
fn what_no_row_computes_is_computed_without() {
    for types in [[DType::I8, DType::I8], [DType::U8, DType::U8]] {
        let p = product(20, 33, 40, types, Role::Constant);
        let mut rng = StdRng::seed_from_u64(3);
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "product", &target());
        assert!(!is_tensor(&compiled));
        assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{types:?}");
    }
    let p = product(20, 33, 40, [DType::U8, DType::I8], Role::Constant);
    assert!(!is_tensor(&compile_stages(&p, "product", &Target::avx512().with_instructions(rows()))));
}

/// A group is filled with zeros only where they add nothing to its sum.
#[test]
fn terms_that_are_not_zero_for_zeros_fill_whole_groups() {
    let one = || Expr::Const(Scalar { dtype: DType::I32, bits: 1 });
    let mut row = rows().iter().find(|row| row.name.as_str() == "vpdpbusd").unwrap().clone();
    row.body = Expr::binary(BinaryOp::Add, row.body, one());
    let target = Target::avx512_vnni().with_instructions([&row]);
    let mut rng = StdRng::seed_from_u64(9);
    for (k, matched) in [(64, true), (65, false)] {
        let mut p = product(16, 32, k, [DType::U8, DType::I8], Role::Constant);
        let definition = p.definitions.last_mut().unwrap();
        definition.body = Expr::binary(BinaryOp::Add, definition.body.clone(), one());
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "product", &target);
        assert_eq!(is_tensor(&compiled), matched, "{k} terms: {}", compiled.tiled.report);
        assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{k} terms");
    }
}

fn tiles(compiled: &CompiledKernel) -> usize {
    compiled.vcode.iter().flat_map(|f| &f.insts).filter(|i| matches!(i, Inst::TileTensor { .. })).count()
}

/// The rows of the first tile of sums, for each loading of shapes.
fn heights(compiled: &CompiledKernel) -> Vec<u8> {
    let shapes = |inst: &Inst| if let Inst::TileShapes { shapes } = inst { Some(shapes.0[0].0) } else { None };
    compiled.vcode.iter().flat_map(|f| &f.insts).filter_map(shapes).collect()
}

/// Rows, columns and groups of terms that fill no tile are left out of the shapes: nothing is read beside the operands.
#[test]
fn products_in_tiles_are_exact_in_any_size() {
    let target = Target::amx().with_instructions(rows());
    let mut rng = StdRng::seed_from_u64(23);
    let mut used = 0;
    let types = [DType::I8, DType::U8];
    for round in 0..24 {
        let sizes = [1, 2, 5, 13, 16, 17, 29, 32, 33, 49, 80];
        let [m, n] = std::array::from_fn(|_| sizes[rng.random_range(0..sizes.len())]);
        let k = 4 * [1, 3, 15, 16, 17, 20, 32, 35][rng.random_range(0..8)];
        let role = if round % 2 == 0 { Role::Constant } else { Role::Input };
        let p = product(m, n, k, [types[round / 2 % 2], types[round / 4 % 2]], role);
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "product", &target);
        used += usize::from(tiles(&compiled) > 0);
        assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{m}x{n}x{k}, {role:?}");
    }
    assert!(used > 7, "{used} of 24 in tiles");
}

/// `Y(y,x,f) += i32(X(y+r, x+s, c)) * i32(W(f,r,s,c))`: rows of two iterators have tiles of their own, or share them where one
/// tap reads neighbouring rows at one distance. The result of one tap has a border.
#[test]
fn convolutions_in_tiles_are_exact_in_any_size() {
    let target = Target::amx().with_instructions(rows());
    let mut rng = StdRng::seed_from_u64(29);
    let mut used = 0;
    let shapes = [
        (7, 64, 48, 3),
        (14, 32, 40, 3),
        (9, 12, 17, 3),
        (20, 80, 33, 3),
        (6, 68, 64, 3),
        (7, 128, 32, 1),
        (5, 36, 40, 1),
    ];
    for (size, channels, filters, taps) in shapes {
        let mut p = Program::default();
        let x = tensor(&mut p, Role::Input, "X", &[size + taps - 1, size + taps - 1, channels]);
        let w = tensor(&mut p, Role::Constant, "W", &[filters, taps, taps, channels]);
        let border = i64::from(taps == 1);
        let y = tensor(&mut p, Role::Output, "Y", &[size + 2 * border, size + 2 * border, filters]);
        for (id, dtype) in [(x, DType::U8), (w, DType::I8), (y, DType::I32)] {
            p.tensors[id.0 as usize].dtype = dtype;
        }
        let wide = |e| Expr::cast(DType::I32, e);
        let image = Expr::load(x, vec![v(0).plus(Var(3), 1), v(1).plus(Var(4), 1), v(5)]);
        let body = mul(wide(image), wide(Expr::load(w, vec![v(2), v(3), v(4), v(5)])));
        let domain = format!("y {size}, x {size}, f {filters}, r {taps}, s {taps}, c {channels}");
        define(&mut p, y, &domain, 3, Some(BinaryOp::Add), vec![], body);
        let write = &mut p.definitions.last_mut().unwrap().write;
        write[..2].iter_mut().for_each(|place| *place = std::mem::take(place).offset(border));
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "convolution", &target);
        used += usize::from(tiles(&compiled) > 0);
        let computed = output(&compiled, &given).data;
        assert!(computed == evaluate(&p, &given)[0].data, "{size} {channels} {filters} {taps}");
        if (size, taps) == (7, 1) {
            // 49 rows are four tiles of 13.
            assert_eq!(heights(&compiled), [13], "{}", compiled.tiled.report);
        }
    }
    assert!(used > 4, "{used} of 7 in tiles");
}

/// Tiles take whole groups of terms: others are left to the rows on vectors.
#[test]
fn terms_that_fill_no_group_are_not_summed_in_tiles() {
    let target = Target::amx().with_instructions(rows());
    let p = product(32, 32, 66, [DType::U8, DType::I8], Role::Constant);
    let compiled = compile_stages(&p, "product", &target);
    assert_eq!((tiles(&compiled), is_tensor(&compiled)), (0, true));
}

/// Whole numbers have exact sums in any order.
#[test]
fn products_of_halves_are_exact_in_any_size() {
    let mut rng = StdRng::seed_from_u64(37);
    for (name, row) in [("aarch64-neon+bf16", "bfmmla"), ("x86-64-avx512-vnni+avx512bf16", "vdpbf16ps")] {
        let target = Target::by_name(name).unwrap().with_instructions(rows());
        let mut used = 0;
        for round in 0..16 {
            let sizes = [2, 3, 4, 7, 9, 12, 13, 16, 33];
            let [m, n] = std::array::from_fn(|_| sizes[rng.random_range(0..sizes.len())]);
            let k = [4, 6, 8, 12, 36, 44][rng.random_range(0..6)];
            let role = if round % 2 == 0 { Role::Constant } else { Role::Input };
            let p = product_in(m, n, k, [DType::BF16; 2], DType::F32, role);
            let mut given = random(&p, &mut rng);
            for operand in &mut given {
                let number = |bytes: &mut [u8]| {
                    let number = f32::from(i16::from(bytes[0] % 17) - 8).to_bits().to_le_bytes();
                    bytes.copy_from_slice(&number[2..]);
                };
                operand.data.chunks_exact_mut(2).for_each(number);
            }
            let compiled = compile_stages(&p, "product", &target);
            let instruction = compiled.tiled.report.phases[0].instruction.as_deref();
            used += usize::from(instruction == Some(row));
            assert!(k % 4 == 0 || instruction != Some("bfmmla"), "{k} terms");
            assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{name}: {m}x{n}x{k}, {role:?}");
        }
        assert!(used > 5, "{used} of 16 by {row}");
    }
}

/// A row or column without a partner is its own; terms that fill no group are left to other rows.
#[test]
fn products_in_matrices_are_exact_in_any_size() {
    let target = Target::by_name("aarch64-neon+i8mm").unwrap().with_instructions(rows());
    let mut rng = StdRng::seed_from_u64(31);
    let mut used = 0;
    let matrix = |name: &str| name.contains("mmla");
    for round in 0..24 {
        let sizes = [1, 2, 3, 4, 6, 7, 9, 12, 13, 16, 17, 33];
        let [m, n] = std::array::from_fn(|_| sizes[rng.random_range(0..sizes.len())]);
        let k = 8 * [1, 2, 3, 9][rng.random_range(0..4)];
        let role = if round % 2 == 0 { Role::Constant } else { Role::Input };
        let types = [[DType::I8, DType::I8], [DType::U8, DType::U8], [DType::U8, DType::I8]][round % 3];
        let p = product(m, n, k, types, role);
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "product", &target);
        used += usize::from(compiled.tiled.report.phases[0].instruction.as_deref().is_some_and(matrix));
        assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{m}x{n}x{k}, {role:?}");
    }
    assert!(used > 7, "{used} of 24 in matrices");
    let p = product(32, 32, 66, [DType::U8, DType::I8], Role::Constant);
    let compiled = compile_stages(&p, "product", &target);
    assert_eq!(compiled.tiled.report.phases[0].instruction.as_deref(), Some("usdot"));
}

/// `C(m,n) += i32(A(m,k) & masks[0]) * i32(B(k,n) & masks[1])`, of which a mask may be absent.
fn product_of_parts([m, n, k]: [i64; 3], types: [DType; 2], masks: [Option<u8>; 2]) -> Program {
    let mut p = product(m, n, k, types, Role::Constant);
    let part = |b: usize, index: Vec<_>| {
        let read = Expr::load(BufferId(b as u32), index);
        let mask = |bits: u8| Expr::Const(Scalar { dtype: types[b], bits: bits.into() });
        Expr::cast(DType::I32, masks[b].map_or(read.clone(), |bits| Expr::binary(BinaryOp::And, read, mask(bits))))
    };
    p.definitions.last_mut().unwrap().body = mul(part(0, vec![v(0), v(2)]), part(1, vec![v(2), v(1)]));
    p
}

/// A row whose operand has a range takes reads that are proven to lie in it, in lanes or the same in all of them, and says so of others.
#[test]
fn numbers_of_few_bits_have_rows_of_their_own() {
    let mut rng = StdRng::seed_from_u64(4);
    let other = "operand `B` may have other numbers than 0 to 15";
    for target in [Target::avx512(), Target::avx2()] {
        let ranged = |r: &&TensorInstruction| r.operands[2].range.is_some() && target.misfit(r).is_none();
        let row = rows().iter().find(ranged).unwrap();
        let mut broadcast = row.clone();
        // The range of the operand that is the same in all lanes: 7 bits by 8.
        (broadcast.operands[1].dtype, broadcast.operands[1].range) = (DType::U8, Some((0, 127)));
        (broadcast.operands[2].dtype, broadcast.operands[2].range) = (DType::I8, None);
        for (types, masks, why) in [
            ([DType::I8, DType::U8], [None, Some(15)], ""),
            ([DType::I8, DType::U8], [None, Some(7)], ""),
            ([DType::I8, DType::U8], [Some(63), Some(15)], ""),
            ([DType::I8, DType::U8], [None, Some(31)], other),
            ([DType::I8, DType::U8], [None, None], other),
            ([DType::U8, DType::I8], [Some(127), None], ""),
            ([DType::U8, DType::I8], [None, None], "operand `A` may have other numbers than 0 to 127"),
        ] {
            let row = if types[0] == DType::U8 { &broadcast } else { row };
            let target = target.clone().with_instructions([row]);
            let sizes = [rng.random_range(1..9), rng.random_range(16..70), rng.random_range(16..90)];
            let p = product_of_parts(sizes, types, masks);
            let given = random(&p, &mut rng);
            let compiled = compile_stages(&p, "parts", &target);
            let report = compiled.tiled.report.to_string();
            assert_eq!(is_tensor(&compiled), why.is_empty(), "{}, {masks:?}: {report}", target.name);
            assert!(report.contains(why), "{report}");
            assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{sizes:?}, {masks:?}");
        }
    }
}

/// The summands of a step share the operand in lanes, which is packed once: others are computed without.
#[test]
fn summands_of_several_operands_in_lanes_are_computed_without() {
    let mut rng = StdRng::seed_from_u64(6);
    for shared in [true, false] {
        let mut p = Program::default();
        let names = ["A0", "A1", "B0", "B1"];
        let shapes = [[20, 40], [20, 40], [40, 33], [40, 33]];
        let ids: Vec<BufferId> = names.iter().zip(shapes).map(|(n, s)| tensor(&mut p, Role::Constant, n, &s)).collect();
        let c = tensor(&mut p, Role::Output, "C", &[20, 33]);
        for (id, dtype) in ids.iter().zip([DType::U8, DType::U8, DType::I8, DType::I8]) {
            p.tensors[id.0 as usize].dtype = dtype;
        }
        p.tensors[c.0 as usize].dtype = DType::I32;
        let wide = |b: usize, index| Expr::cast(DType::I32, Expr::load(ids[b], index));
        let term = |a: usize, b: usize| mul(wide(a, vec![v(0), v(2)]), wide(b, vec![v(2), v(1)]));
        let body = Expr::binary(BinaryOp::Add, term(0, 2), term(1, if shared { 2 } else { 3 }));
        define(&mut p, c, "m 20, n 33, k 40", 2, Some(BinaryOp::Add), vec![], body);
        let given = random(&p, &mut rng);
        let compiled = compile_stages(&p, "summands", &target());
        assert_eq!(is_tensor(&compiled), shared, "{}", compiled.tiled.report);
        assert!(output(&compiled, &given).data == evaluate(&p, &given)[0].data, "{shared}");
    }
}

/// A product of f16 with both operands given, summed in f16, and the phase of its sums.
fn product_in_halves(m: i64, n: i64, k: i64) -> (CompiledKernel, PhaseReport) {
    let target = Target::by_name("x86-64-avx512-vnni+avx512fp16").unwrap().with_instructions(rows());
    let p = product_in(m, n, k, [DType::F16; 2], DType::F32, Role::Input);
    let (halves, count) = with_half_sums(&p).unwrap();
    assert_eq!(count, 1);
    let compiled = compile_stages(&halves, "product", &target);
    let sums = compiled.tiled.report.phases.iter().find(|p| p.instruction.as_deref() == Some("vfmadd231ph"));
    let sums = sums.expect("a phase of its sums").clone();
    (compiled, sums)
}

/// The blocks of terms of sums in f16 have a loop inside of the block in registers: all of them are read before the next block.
#[test]
fn an_operand_whose_rows_lie_apart_is_packed_for_sums_in_halves() {
    let (compiled, sums) = product_in_halves(1024, 1024, 1024);
    let packed = compiled.tiled.packings.iter().map(|p| p.access.buffer).collect::<Vec<_>>();
    assert_eq!(packed, [BufferId(1)], "{}: {}", sums.block, compiled.tiled.report);
}

/// A product of few rows has a choice of blocks without any loop around them, which one thread would run alone.
#[test]
fn blocks_of_sums_in_halves_leave_loops_for_threads() {
    let (compiled, sums) = product_in_halves(49, 512, 4608);
    assert!(sums.parallel, "{}", compiled.tiled.report);
}

/// The types of the packed copies of a kernel.
fn copies(compiled: &CompiledKernel) -> Vec<DType> {
    compiled.kernel.nest.buffers.iter().filter(|b| b.name.ends_with("_packed")).map(|b| b.dtype).collect()
}

/// The elements of operands of 16 bits whose sums are in f32 are converted once, in the copies of both, not once for each block.
#[test]
fn operands_of_halves_are_converted_in_their_copies() {
    let product = |size, dtype| product_in(size, size, size, [dtype; 2], DType::F32, Role::Input);
    for dtype in [DType::F16, DType::BF16] {
        for target in [Target::avx512(), Target::avx2(), Target::neon()] {
            let compiled = compile_stages(&product(512, dtype), "product", &target);
            assert_eq!(copies(&compiled), [DType::F32; 2], "{dtype:?}: {}", compiled.kernel.nest);
        }
        let p = product(64, dtype);
        let compiled = compile_stages(&p, "product", &Target::avx2());
        assert_eq!(copies(&compiled), [DType::F32; 2], "{dtype:?}: {}", compiled.kernel.nest);
        let given = [0, 1].map(|n| Tensor::seeded(dtype, &[64, 64], 5, n, 2));
        let expected = evaluate(&p, &given).swap_remove(0).to_vec::<f32>();
        for (x, y) in output(&compiled, &given).to_vec::<f32>().iter().zip(expected) {
            assert!((x - y).abs() <= 1e-4, "{dtype:?}: {x} {y}");
        }
    }
}

/// Constants stay in 16 bits: their copies take no more memory than they do.
#[test]
fn constants_of_halves_stay_in_16_bits() {
    let p = product_in(512, 512, 512, [DType::F16; 2], DType::F32, Role::Constant);
    let compiled = compile_stages(&p, "product", &Target::avx512());
    let mut copies = copies(&compiled);
    copies.sort();
    assert_eq!(copies, [DType::F32, DType::F16], "{}", compiled.kernel.nest);
}

/// A tensor instruction takes the elements of 16 bits as they are.
#[test]
fn copies_for_tensor_instructions_are_not_converted() {
    let target = Target::by_name("aarch64-neon+bf16").unwrap().with_instructions(rows());
    let p = product_in(48, 80, 40, [DType::BF16; 2], DType::F32, Role::Input);
    let compiled = compile_stages(&p, "product", &target);
    assert!(is_tensor(&compiled), "{}", compiled.tiled.report);
    assert_eq!(copies(&compiled), [DType::BF16], "{}", compiled.kernel.nest);
}
