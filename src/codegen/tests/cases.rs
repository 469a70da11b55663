//! Every instruction with every lane type, number of lanes, memory type and partial range.

use super::integers::{self, INTEGERS, INTEGERS_IN_MEMORY, SHIFTS};
use super::program::{Buffer, Builder, Case, at, data};
use crate::codegen::vcode::{Addr, GprOp, Inst, Lane, LaneRange, Operand, ShiftOp, VBinary, VType, VUnary, Vreg, Zip};
use crate::expr::CompareOp;
use crate::runtime::DType;

const COMPARISONS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

pub fn dtype(lane: Lane) -> DType {
    match lane {
        Lane::F32 => DType::F32,
        Lane::F64 => DType::F64,
        Lane::I32 => DType::I32,
        Lane::I64 => DType::I64,
        Lane::I16 => DType::I16,
        Lane::U16 => DType::U16,
        Lane::I8 => DType::I8,
        Lane::U8 => DType::U8,
    }
}

/// All vector types of registers of `bytes` bytes.
pub fn types(bytes: usize) -> Vec<VType> {
    let mut all = vec![];
    for lane in Lane::ALL {
        let mut lanes = 1;
        while lanes * lane.bytes() <= bytes {
            all.push(VType { lane, lanes: lanes as u8 });
            lanes *= 2;
        }
    }
    all
}

/// Memory types that become lanes of `lane`.
fn memory_types(lane: Lane) -> Vec<DType> {
    match lane {
        Lane::F32 | Lane::F64 => vec![dtype(lane), DType::Bool],
        Lane::I32 => {
            vec![DType::I32, DType::I16, DType::U16, DType::I8, DType::U8, DType::F16, DType::BF16, DType::Bool]
        }
        Lane::I64 => vec![DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool],
        Lane::I16 | Lane::U16 => vec![dtype(lane), DType::I8, DType::U8],
        Lane::I8 | Lane::U8 => vec![dtype(lane)],
    }
}

/// Whole vectors and every partial range, of many lanes every few.
fn parts(ty: VType) -> Vec<Option<LaneRange>> {
    let mut all = vec![None];
    let (from, to) = (1 + ty.lanes as usize / 16, 1 + ty.lanes as usize / 20);
    for first in (0..ty.lanes).step_by(from) {
        for count in (1..=ty.lanes - first).step_by(to) {
            all.push(Some(LaneRange { first, count }));
        }
    }
    all
}

/// A few of them.
fn some_parts(ty: VType) -> Vec<Option<LaneRange>> {
    let all = parts(ty);
    let step = all.len() / 5 + 1;
    all.into_iter().step_by(step).collect()
}

/// `body` between loads of `inputs` and a store of the register it returns.
pub fn compute(
    name: String,
    inputs: &[VType],
    tame: bool,
    output: VType,
    body: impl FnOnce(&mut Builder, &[Vreg]) -> Vreg,
) -> Case {
    let mut b = Builder::new(name);
    let mut buffers = vec![];
    let mut registers = vec![];
    for (slot, &ty) in inputs.iter().enumerate() {
        let base = b.argument(slot as u32);
        let dst = b.vreg();
        b.push(Inst::VLoad { dst, ty, mem: dtype(ty.lane), addr: at(base, 0), part: None });
        buffers.push(data(dtype(ty.lane), ty.lanes as usize, 100 + slot as u64 + ty.lanes as u64, tame));
        registers.push(dst);
    }
    let result = body(&mut b, &registers);
    let base = b.argument(inputs.len() as u32);
    b.push(Inst::VStore { src: result, ty: output, mem: dtype(output.lane), addr: at(base, 0), part: None });
    buffers.push(data(dtype(output.lane), output.lanes as usize, 7, true));
    Case { function: b.function, buffers, range: (0, 1) }
}

/// Minima and maxima of a constant, on either side, and of what is in memory or the result of arithmetic.
fn extremes_with_constants(ty: VType, out: &mut Vec<Case>) {
    let sign = 1u64 << (8 * ty.lane.bytes() - 1);
    let number = if ty.lane == Lane::F32 { 1.5f32.to_bits().into() } else { 1.5f64.to_bits() };
    for (n, bits) in [0, sign, number, number | sign, !sign].into_iter().enumerate() {
        for (op, way) in [VBinary::Min, VBinary::Max].into_iter().flat_map(|op| (0..4).map(move |way| (op, way))) {
            out.push(compute(format!("{op:?} {ty:?} with constant {n}, {way}"), &[ty, ty], false, ty, |b, r| {
                let (mut x, constant, dst) = (r[0], b.vreg(), b.vreg());
                if way >= 2 {
                    x = b.vreg();
                    b.push(Inst::VBinary { op: VBinary::Sub, dst: x, ty, a: r[0], b: r[1] });
                }
                b.push(Inst::VConst { dst: constant, ty, bits });
                let [a, second] = if way % 2 == 0 { [x, constant] } else { [constant, x] };
                b.push(Inst::VBinary { op, dst, ty, a, b: second });
                dst
            }));
        }
    }
}

fn arithmetic(ty: VType, out: &mut Vec<Case>) {
    let float = ty.lane.is_float();
    let integer = VType { lane: Lane::integer(ty.lane.bytes()), ..ty };
    for bits in [0, u64::MAX, 0x3ff8_0000_3fc0_0000] {
        out.push(compute(format!("const {ty:?} {bits:x}"), &[], false, integer, |b, _| {
            let dst = b.vreg();
            b.push(Inst::VConst { dst, ty, bits });
            dst
        }));
    }
    let mut unary = vec![VUnary::Abs, VUnary::Neg, VUnary::Not];
    if float {
        unary.extend([VUnary::Sqrt, VUnary::Floor, VUnary::Ceil, VUnary::Round]);
    }
    if ty.lane == Lane::F32 {
        unary.extend([VUnary::NarrowHalf, VUnary::RoundHalf]);
        out.push(compute(format!("{:?} {ty:?}", VUnary::WidenHalf), &[integer], false, ty, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VUnary { op: VUnary::WidenHalf, dst, ty, a: r[0] });
            dst
        }));
    }
    for op in unary {
        out.push(compute(format!("{op:?} {ty:?}"), &[ty], false, ty, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VUnary { op, dst, ty, a: r[0] });
            dst
        }));
    }
    if ty.bytes() >= 16 {
        for (op, same) in [Zip::Low, Zip::High, Zip::Even, Zip::Odd].into_iter().flat_map(|op| [(op, 0), (op, 1)]) {
            out.push(compute(format!("{op:?} {ty:?} {same}"), &[ty, ty], false, ty, |b, r| {
                let dst = b.vreg();
                b.push(Inst::VZip { op, dst, ty, a: r[0], b: r[1 - same] });
                dst
            }));
        }
    }
    use VBinary::*;
    let mut binary = vec![Add, Sub, Mul, Min, Max, And, Or, Xor, AndNot];
    if float {
        binary.push(Div);
    }
    if ty.lane.bytes() == 2 {
        binary.push(MulHigh);
    }
    if ty.lane == Lane::I32 {
        binary.push(MulPairs);
    }
    for op in binary {
        out.push(compute(format!("{op:?} {ty:?}"), &[ty, ty], false, ty, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VBinary { op, dst, ty, a: r[0], b: r[1] });
            dst
        }));
        // Operands that stay alive, and one register for everything.
        out.push(compute(format!("{op:?} {ty:?} chained"), &[ty, ty], false, ty, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VBinary { op, dst, ty, a: r[1], b: r[0] });
            b.push(Inst::VBinary { op, dst, ty, a: dst, b: r[0] });
            b.push(Inst::VBinary { op, dst, ty, a: r[1], b: dst });
            b.push(Inst::VBinary { op, dst, ty, a: dst, b: dst });
            dst
        }));
    }
    if float {
        extremes_with_constants(ty, out);
    }
    for op in [ShiftOp::Left, ShiftOp::RightLogical, ShiftOp::RightArithmetic] {
        for amount in [0, 1, 23, 8 * ty.lane.bytes() as u8 - 1] {
            out.push(compute(format!("{op:?} {amount} {ty:?}"), &[integer], false, integer, |b, r| {
                let dst = b.vreg();
                b.push(Inst::VShift { op, dst, ty: integer, a: r[0], amount });
                b.push(Inst::VShift { op, dst, ty: integer, a: dst, amount: amount / 2 });
                dst
            }));
        }
    }
    for negate in [false, true] {
        out.push(compute(format!("fma {ty:?} {negate}"), &[ty, ty, ty], true, ty, |b, r| {
            b.push(Inst::VFma { acc: r[0], ty, a: r[1], b: r[2], negate });
            b.push(Inst::VFma { acc: r[0], ty, a: r[0], b: r[2], negate });
            r[0]
        }));
    }
    for op in COMPARISONS {
        out.push(compute(format!("{op:?} {ty:?}"), &[ty, ty], false, integer, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VCompare { op, dst, ty, a: r[0], b: r[1] });
            dst
        }));
    }
    // The destination is new, or takes the place of one of the operands.
    for keep in 0..4u32 {
        out.push(compute(format!("select {ty:?} {keep}"), &[ty, ty], false, ty, |b, r| {
            let (mask, mut dst) = (b.vreg(), b.vreg());
            b.push(Inst::VCompare { op: CompareOp::Lt, dst: mask, ty, a: r[0], b: r[1] });
            if keep > 0 {
                dst = [mask, r[0], r[1]][keep as usize - 1];
            }
            b.push(Inst::VSelect { dst, ty, mask, a: r[0], b: r[1] });
            // The others are read again, so that nothing is shared by luck.
            let sum = b.vreg();
            b.push(Inst::VBinary { op: VBinary::Xor, dst: sum, ty, a: dst, b: r[0] });
            b.push(Inst::VBinary { op: VBinary::Xor, dst: sum, ty, a: sum, b: r[1] });
            b.push(Inst::VBinary { op: VBinary::Xor, dst: sum, ty, a: sum, b: mask });
            sum
        }));
    }
    // Whole registers of AVX-512, the only ones that have it; the destination is new, or one of the operands.
    if ty.bytes() == 64 {
        for (op, keep) in COMPARISONS.into_iter().flat_map(|op| (0..3).map(move |keep| (op, keep))) {
            out.push(compute(format!("choose {op:?} {ty:?} {keep}"), &[ty, ty, ty], false, ty, |b, r| {
                let dst = if keep == 0 { b.vreg() } else { r[keep - 1] };
                b.push(Inst::VChoose { dst, op, ty, a: r[0], b: r[1], yes: r[2], no: r[0] });
                dst
            }));
        }
    }
    for (op, first) in [(Add, false), (Mul, false), (Min, false), (Max, false), (Add, true), (Max, true)] {
        let all = VType { lanes: if first { 1 } else { ty.lanes }, ..ty };
        out.push(compute(format!("reduce {op:?} {ty:?} {first}"), &[ty], op != Min, all, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VReduce { op, dst, ty, a: r[0], first });
            dst
        }));
    }
    let four = VType { lanes: 4, ..ty };
    for op in [Add, Mul, Min, Max].into_iter().filter(|op| op.combines_four(ty)) {
        out.push(compute(format!("reduce four {op:?} {ty:?}"), &[ty; 4], op != Min, four, |b, r| {
            let dst = if op == Add { b.vreg() } else { r[1] };
            b.push(Inst::VReduceFour { op, dst, ty, a: r[0], b: r[1], c: r[2], d: r[3] });
            dst
        }));
    }
    out.push(compute(format!("copy {ty:?}"), &[ty], false, ty, |b, r| {
        let dst = b.vreg();
        b.push(Inst::VCopy { dst, src: r[0], ty });
        b.push(Inst::VBinary { op: VBinary::Xor, dst, ty, a: dst, b: r[0] });
        dst
    }));
    if !float {
        out.push(compute(format!("iota {ty:?}"), &[], false, ty, |b, _| {
            let dst = b.vreg();
            b.push(Inst::VIota { dst, ty });
            dst
        }));
        out.push(compute(format!("splat {ty:?}"), &[], false, ty, |b, _| {
            let (src, dst) = (b.imm(-123_456_789_012), b.vreg());
            b.push(Inst::VSplat { dst, ty, src });
            dst
        }));
    }
}

fn conversions(bytes: usize, out: &mut Vec<Case>) {
    for ty in types(bytes) {
        for lane in Lane::ALL {
            let narrow = lane.bytes().min(ty.lane.bytes()) < 4 && (lane.bytes() != ty.lane.bytes());
            if narrow || ty.lanes as usize * lane.bytes() > bytes {
                continue;
            }
            let to = VType { lane, lanes: ty.lanes };
            let to_integer = matches!(lane, Lane::I32 | Lane::I64) && matches!(ty.lane, Lane::F32 | Lane::F64);
            out.push(compute(format!("convert {ty:?} to {lane:?}"), &[ty], to_integer, to, |b, r| {
                let dst = b.vreg();
                b.push(Inst::VConvert { dst, to, src: r[0], from: ty.lane });
                dst
            }));
        }
    }
}

/// `inst(lanes register, address)` on a buffer of exactly the bytes that may be touched.
fn access(
    name: String,
    ty: VType,
    mem: DType,
    bytes: std::ops::Range<i64>,
    load: bool,
    inst: impl Fn(Vreg, Addr) -> Inst,
) -> Vec<Case> {
    let register = VType { lane: Lane::integer(ty.lane.bytes()), ..ty };
    let count = (bytes.end - bytes.start) as usize / mem.bytes();
    let mut cases = vec![];
    // Plain base, base and displacement, base and index.
    for form in 0..3 {
        let mut b = Builder::new(format!("{name} {form}"));
        let (memory, vector) = (b.argument(0), b.argument(1));
        let addr = match form {
            0 => at(memory, -bytes.start as i32),
            1 => {
                let base = b.gpr();
                b.push(Inst::Int { op: GprOp::Add, dst: base, a: memory, b: Operand::Imm(-bytes.start - 100_000) });
                at(base, 100_000)
            }
            _ => {
                let index = b.imm(-bytes.start + 40);
                let scaled = b.gpr();
                b.push(Inst::Int { op: GprOp::DivFloor, dst: scaled, a: index, b: Operand::Imm(4) });
                let rest = (-bytes.start + 40).rem_euclid(4) as i32;
                Addr { base: memory, index: Some((scaled, 4)), disp: rest - 40 }
            }
        };
        let r = b.vreg();
        let whole = |load: bool| match load {
            true => Inst::VLoad { dst: r, ty: register, mem: dtype(register.lane), addr: at(vector, 0), part: None },
            false => Inst::VStore { src: r, ty: register, mem: dtype(register.lane), addr: at(vector, 0), part: None },
        };
        if load {
            b.push(inst(r, addr));
            b.push(whole(false));
        } else {
            b.push(whole(true));
            b.push(inst(r, addr));
        }
        let memory = data(mem, count, 3, false);
        let mut vector = data(dtype(register.lane), ty.lanes as usize, 5, false);
        if mem == DType::Bool && !load {
            // Lane masks.
            vector.bytes.chunks_mut(ty.lane.bytes()).for_each(|c| c.fill((c[0] & 1).wrapping_neg()));
        }
        cases.push(Case { function: b.function, buffers: vec![memory, vector], range: (0, 1) });
    }
    cases
}

fn memory(ty: VType, out: &mut Vec<Case>) {
    for mem in memory_types(ty.lane) {
        let size = mem.bytes() as i64;
        let span = |part: Option<LaneRange>, stride: i64| {
            let (first, count) = part.map_or((0, ty.lanes), |p| (p.first, p.count));
            let (a, b) = (i64::from(first) * stride, i64::from(first + count - 1) * stride);
            a.min(b)..a.max(b) + size
        };
        for part in parts(ty) {
            let bytes = span(part, size);
            out.extend(access(format!("load {ty:?} {mem} {part:?}"), ty, mem, bytes.clone(), true, |dst, addr| {
                Inst::VLoad { dst, ty, mem, addr, part }
            }));
            out.extend(access(format!("store {ty:?} {mem} {part:?}"), ty, mem, bytes, false, |src, addr| {
                Inst::VStore { src, ty, mem, addr, part }
            }));
        }
        out.extend(access(format!("broadcast {ty:?} {mem}"), ty, mem, 0..size, true, |dst, addr| Inst::VBroadcast {
            dst,
            ty,
            mem,
            addr,
        }));
        for part in some_parts(ty) {
            for stride in [1, 2, 3, 4, -1, -2, 40].map(|elements| elements * size) {
                let bytes = span(part, stride);
                let name = format!("{ty:?} {mem} {part:?} {stride}");
                out.extend(access(format!("gather {name}"), ty, mem, bytes.clone(), true, |dst, addr| Inst::VGather {
                    dst,
                    ty,
                    mem,
                    addr,
                    stride,
                    part,
                }));
                out.extend(access(format!("scatter {name}"), ty, mem, bytes, false, |src, addr| Inst::VScatter {
                    src,
                    ty,
                    mem,
                    addr,
                    stride,
                    part,
                }));
            }
        }
    }
}

/// Loads that widen f16 to f32, which have neither parts nor a stride.
fn halves(bytes: usize, out: &mut Vec<Case>) {
    let floats = types(bytes).into_iter().filter(|ty| ty.lane == Lane::F32 && ty.lanes >= 4);
    out.extend(floats.flat_map(|ty| [0, 6, 100].map(|disp| moved(ty, (DType::F16, disp), (DType::F32, 0)))));
}

/// A load of f32 lanes from one type, and a store as another, each at a distance from its buffer.
fn moved(ty: VType, from: (DType, i32), to: (DType, i32)) -> Case {
    let mut b = Builder::new(format!("{ty:?} from {from:?} to {to:?}"));
    let (memory, result, r) = (b.argument(0), b.argument(1), b.vreg());
    b.push(Inst::VLoad { dst: r, ty, mem: from.0, addr: at(memory, from.1), part: None });
    b.push(Inst::VStore { src: r, ty, mem: to.0, addr: at(result, to.1), part: None });
    let buffer =
        |(mem, disp): (DType, i32), seed| data(mem, disp as usize / mem.bytes() + ty.lanes as usize, seed, false);
    Case { function: b.function, buffers: vec![buffer(from, 11), buffer(to, 5)], range: (0, 1) }
}

/// Roundings of f32 to bf16 by an instruction.
pub fn bf16() -> Vec<Case> {
    let rounding = |ty: VType| {
        compute(format!("to bf16 {ty:?}"), &[ty], false, ty, |b, r| {
            let dst = b.vreg();
            b.push(Inst::VUnary { op: VUnary::NarrowBf16, dst, ty, a: r[0] });
            dst
        })
    };
    let stored = |ty: VType| (ty.lanes >= 4).then(|| moved(ty, (DType::F32, 0), (DType::BF16, 6)));
    let floats = types(64).into_iter().filter(|ty| ty.lane == Lane::F32);
    floats.flat_map(|ty| [Some(rounding(ty)), stored(ty)]).flatten().collect()
}

fn gather_index(bytes: usize, out: &mut Vec<Case>) {
    for ty in types(bytes) {
        for index_lane in [Lane::I32, Lane::I64] {
            if ty.lanes as usize * index_lane.bytes() > bytes {
                continue;
            }
            for mem in memory_types(ty.lane) {
                for part in some_parts(ty) {
                    let register = VType { lane: Lane::integer(ty.lane.bytes()), ..ty };
                    let mut b = Builder::new(format!("gather {ty:?} {mem} by {index_lane:?} {part:?}"));
                    let (memory, indices, output) = (b.argument(0), b.argument(1), b.argument(2));
                    let (index, base) = (b.vreg(), b.gpr());
                    b.push(Inst::VLoad {
                        dst: index,
                        ty: VType { lane: index_lane, lanes: ty.lanes },
                        mem: dtype(index_lane),
                        addr: at(indices, 0),
                        part: None,
                    });
                    // Indices lie in -3..7; lanes that do not take part point anywhere.
                    let shift = Operand::Imm(3 * mem.bytes() as i64);
                    b.push(Inst::Int { op: GprOp::Add, dst: base, a: memory, b: shift });
                    let dst = index;
                    b.push(Inst::VGatherIndex { dst, ty, mem, base, index, index_lane, part });
                    b.push(Inst::VStore {
                        src: dst,
                        ty: register,
                        mem: dtype(register.lane),
                        addr: at(output, 0),
                        part: None,
                    });
                    let (first, count) = part.map_or((0, ty.lanes as usize), |p| (p.first as usize, p.count as usize));
                    let index_bytes = (0..ty.lanes as usize)
                        .flat_map(|i| {
                            let inside = (first..first + count).contains(&i);
                            let value = if inside { (i as i64 * 7) % 10 - 3 } else { 0x7000_0000 };
                            value.to_le_bytes()[..index_lane.bytes()].to_vec()
                        })
                        .collect();
                    let buffers = vec![
                        data(mem, 10, 3, false),
                        Buffer { dtype: dtype(index_lane), bytes: index_bytes },
                        data(dtype(register.lane), ty.lanes as usize, 5, false),
                    ];
                    out.push(Case { function: b.function, buffers, range: (0, 1) });
                }
            }
        }
    }
}

fn scalars(out: &mut Vec<Case>) {
    let values = [0i64, 1, -1, 7, -8, 127, -129, 40_000, i64::from(i32::MAX), i64::MIN / 3, 1 << 40, -(1 << 33) - 5];
    let mut ops = vec![];
    for op in INTEGERS.into_iter().chain(SHIFTS) {
        for v in [0, 1, -1, 8, 100, -4096, 1 << 20, 1 << 40, -(1 << 50) + 3] {
            ops.push((op, Operand::Imm(v)));
        }
    }
    for v in [1, 2, 3, 7, 64, 1000, (1 << 35) + 1] {
        ops.push((GprOp::DivFloor, Operand::Imm(v)));
    }
    // Results go through memory, one vector lane each.
    let ty = VType { lane: Lane::I64, lanes: 1 };
    for (k, (op, operand)) in ops.into_iter().enumerate() {
        for in_place in [false, true] {
            let mut b = Builder::new(format!("{op:?} {operand:?} {in_place}"));
            let output = b.argument(0);
            for (i, &value) in values.iter().enumerate() {
                let a = b.imm(value);
                let dst = if in_place { a } else { b.gpr() };
                b.push(Inst::Int { op, dst, a, b: operand });
                let v = b.vreg();
                b.push(Inst::VSplat { dst: v, ty, src: dst });
                b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8 * i as i32), part: None });
            }
            out.push(Case {
                function: b.function,
                buffers: vec![data(DType::I64, values.len(), k as u64, true)],
                range: (0, 1),
            });
        }
    }
    for op in INTEGERS.into_iter().chain(SHIFTS) {
        for form in 0..4 {
            let mut b = Builder::new(format!("{op:?} registers {form}"));
            let output = b.argument(0);
            for (i, &value) in values.iter().enumerate() {
                let (x, y) = (b.imm(value), b.imm(values[(5 * i + 3) % values.len()]));
                let (dst, a, c) = match form {
                    0 => (b.gpr(), x, y),
                    1 => (x, x, y),
                    2 => (y, x, y),
                    _ => (x, x, x),
                };
                b.push(Inst::Int { op, dst, a, b: Operand::Reg(c) });
                b.push(Inst::Int { op: GprOp::Add, dst, a: dst, b: Operand::Reg(y) });
                let v = b.vreg();
                b.push(Inst::VSplat { dst: v, ty, src: dst });
                b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8 * i as i32), part: None });
            }
            out.push(Case {
                function: b.function,
                buffers: vec![data(DType::I64, values.len(), 1, true)],
                range: (0, 1),
            });
        }
    }
    for mem in INTEGERS_IN_MEMORY {
        let mut b = Builder::new(format!("integer from {mem}"));
        let (input, output) = (b.argument(0), b.argument(1));
        for i in 0..6 {
            let (dst, index) = (b.gpr(), b.imm(i));
            let addr = Addr { base: input, index: Some((index, mem.bytes() as u8)), disp: 0 };
            b.push(Inst::LoadInt { dst, addr, mem });
            let v = b.vreg();
            b.push(Inst::VSplat { dst: v, ty, src: dst });
            b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8 * i as i32), part: None });
        }
        out.push(Case {
            function: b.function,
            buffers: vec![data(mem, 6, 2, false), data(DType::I64, 6, 2, true)],
            range: (0, 1),
        });
    }
    {
        // A prefetch may ask for any address and changes nothing.
        let mut b = Builder::new("prefetch");
        let (input, output) = (b.argument(0), b.argument(1));
        for (i, disp) in [(0, 0), (1, 64), (2, -72), (3, 1 << 20), (5, 3)] {
            let index = b.imm(i);
            b.push(Inst::Prefetch { addr: at(input, disp) });
            for scale in [1, 2, 4, 8] {
                b.push(Inst::Prefetch { addr: Addr { base: input, index: Some((index, scale)), disp } });
            }
            let v = b.vreg();
            b.push(Inst::Expect { count: index, iterations: 7 });
            b.push(Inst::VSplat { dst: v, ty, src: index });
            b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8 * i as i32), part: None });
        }
        out.push(Case {
            function: b.function,
            buffers: vec![data(DType::I64, 6, 2, false), data(DType::I64, 6, 2, true)],
            range: (0, 1),
        });
    }
    for op in COMPARISONS {
        for by_register in [false, true] {
            let mut b = Builder::new(format!("if {op:?} {by_register}"));
            let output = b.argument(0);
            for (i, (x, y)) in
                [(0, 1), (1, 1), (-5, 3), (1 << 40, 1 << 40), (7, -(1 << 41)), (300, 5)].into_iter().enumerate()
            {
                let (a, v) = (b.imm(x), b.vreg());
                b.push(Inst::VConst { dst: v, ty, bits: 1 });
                let operand = if by_register { Operand::Reg(b.imm(y)) } else { Operand::Imm(y) };
                b.push(Inst::IfStart { op, a, b: operand });
                b.push(Inst::VConst { dst: v, ty, bits: 2 });
                b.push(Inst::IfEnd);
                b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8 * i as i32), part: None });
            }
            out.push(Case { function: b.function, buffers: vec![data(DType::I64, 6, 2, true)], range: (0, 1) });
        }
    }
}

/// The table: all cases for vector registers of `bytes` bytes.
pub fn all(bytes: usize) -> Vec<Case> {
    let mut out = integers::all();
    scalars(&mut out);
    for ty in types(bytes) {
        arithmetic(ty, &mut out);
        memory(ty, &mut out);
    }
    conversions(bytes, &mut out);
    gather_index(bytes, &mut out);
    halves(bytes, &mut out);
    out
}
