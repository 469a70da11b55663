//! Registers and memory that emitted x86 instructions read and write according to a decoder, against the operands of
//! their steps.
//!
//! The allocation checker proves that each step has its values in its operands. These tests check the rest: the code of
//! a step writes only its results and temporaries, and reads nothing but its operands, what it has written itself, and the
//! constants of the function, in registers that the prologue alone writes.

use super::program::{Builder, Case, at};
use super::{
    approximations, cases, floor_divisions, interleaved, masked, quotients, random, registers, shifts, tables,
};
use crate::codegen::disassemble::disassemble;
use crate::codegen::regalloc::allocation::{Allocation, Place, Step};
use crate::codegen::regalloc::checker;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{GprOp, Inst, Lane, LaneRange, VBinary, VType};
use crate::codegen::{Isa, Target, assemble, regalloc};
use crate::expr::CompareOp;
use crate::runtime::DType;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use std::collections::{BTreeSet, HashSet};

type Registers = BTreeSet<(Class, u8)>;

/// The registers of a step: those that it reads, and those that it may write.
fn operands(step: &Step) -> (Registers, Registers) {
    let (mut reads, mut writes) = (Registers::new(), Registers::new());
    match step {
        Step::Inst { inst, .. } | Step::Again { inst, .. } => inst.registers(|class, access, r| {
            if access.reads() {
                reads.insert((class, r as u8));
            }
            if access.writes() {
                writes.insert((class, r as u8));
            }
        }),
        Step::Store { class, register, .. } => drop(reads.insert((*class, *register))),
        Step::Load { class, register, .. } => drop(writes.insert((*class, *register))),
    }
    if let Step::Inst { inst, hidden, temporaries, .. } = step {
        if let Some(Place::Register(r)) = hidden {
            if !matches!(inst, Inst::LoopStart { .. }) {
                reads.insert((Class::Gpr, *r));
            }
            if matches!(inst, Inst::LoopStart { .. } | Inst::LoopEnd) {
                writes.insert((Class::Gpr, *r));
            }
        }
        writes.extend(Class::ALL.iter().flat_map(|&c| temporaries[c].iter().map(move |&r| (c, r))));
    }
    (reads, writes)
}

/// The vector registers that the code of a prologue writes: those of constants.
fn of_constants(prologue: &[u8]) -> Registers {
    let mut factory = InstructionInfoFactory::new();
    let mut out = Registers::new();
    for instruction in &mut Decoder::new(64, prologue, DecoderOptions::NONE) {
        let used = factory.info(&instruction).used_registers().iter();
        let written = used.filter(|u| access(u.access()).1).filter_map(|u| number(u.register()));
        out.extend(written.filter(|r| r.0 == Class::Vector));
    }
    out
}

/// An instruction of one step that touches what it must not.
fn violations(step: &Step, constants: &Registers, code: &[u8], start: usize) -> Vec<String> {
    let (reads, mut writes) = operands(step);
    let mut ready: Registers = reads.union(constants).copied().collect();
    let mut pushed: Vec<(Class, u8)> = vec![];
    // divisions and shifts by a register need registers of their own
    let saves = |op: &GprOp| matches!(op, GprOp::DivFloor | GprOp::ShiftLeft | GprOp::ShiftRight);
    let saves = matches!(step, Step::Inst { inst: Inst::Int { op, .. }, .. } if saves(op));
    let mut factory = InstructionInfoFactory::new();
    let mut out = vec![];
    for instruction in &mut Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            out.push("bytes that are not an instruction".into());
            break;
        }
        let own = number(instruction.op0_register());
        let mut written = vec![];
        for used in factory.info(&instruction).used_registers() {
            let (read, write) = access(used.access());
            let register = used.register().full_register();
            if register == Register::RSP {
                if write && !saves {
                    out.push(format!("{instruction} moves the stack pointer"));
                }
            } else if register.is_k() {
                // k1 is free in every step, the others hold the masks of the function
                if write && register != Register::K1 {
                    out.push(format!("{instruction} writes {register:?}"));
                }
            } else if let Some(register) = number(register) {
                // a push keeps what is read; a destination that is merged into, or cleared by itself, may hold anything
                let merged = own == Some(register) && write && writes.contains(&register);
                let idiom = own.is_some_and(|own| own == register && clears(&instruction));
                if read && !ready.contains(&register) && instruction.mnemonic() != Mnemonic::Push && !merged && !idiom {
                    out.push(format!("{instruction} reads {register:?}"));
                }
                if write && !writes.contains(&register) && instruction.mnemonic() != Mnemonic::Pop {
                    out.push(format!("{instruction} writes {register:?}"));
                }
                written.extend(write.then_some(register));
            }
        }
        match (instruction.mnemonic(), own) {
            (Mnemonic::Push, Some(r)) => {
                pushed.push(r);
                writes.insert(r);
            }
            (Mnemonic::Pop, Some(r)) => match pushed.pop() {
                Some(last) if last == r => {}
                _ => out.push(format!("{instruction} has no push")),
            },
            _ => {}
        }
        ready.extend(written);
    }
    // the code of a division to rax drops the copy of rax
    let dropped = saves && pushed.len() == 1 && operands(step).1.contains(&pushed[0]);
    if !pushed.is_empty() && !dropped {
        out.push(format!("{pushed:?} stay on the stack"));
    }
    out
}

/// An operation on one register alone, whose result does not depend on it.
fn clears(i: &Instruction) -> bool {
    let last = i.op_register(i.op_count() - 1 - u32::from(i.op_kind(i.op_count() - 1) == iced_x86::OpKind::Immediate8));
    last == i.op0_register()
}

fn access(access: OpAccess) -> (bool, bool) {
    let read = matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    let write = matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    (read, write)
}

fn number(register: Register) -> Option<(Class, u8)> {
    let register = register.full_register();
    match register {
        r if r.is_gpr() => Some((Class::Gpr, r.number() as u8)),
        r if r.is_zmm() => Some((Class::Vector, r.number() as u8)),
        _ => None,
    }
}

/// All violations in a function that is emitted with `emitted` and judged by `judged`, and the number of its steps.
fn examine(case: &Case, target: &Target, change: impl Fn(&mut Allocation)) -> (Vec<String>, usize) {
    let mut allocation = regalloc::allocate(&case.function, target).unwrap();
    checker::check(&case.function, &allocation, target).unwrap();
    let (code, starts) = assemble::emit_steps(&case.function, &allocation, target.isa).unwrap();
    let constants = of_constants(&code[..starts[0]]);
    let written = allocation.written().vector;
    assert!(constants.iter().all(|r| written >> r.1 & 1 == 0), "{}: {constants:?}", case.function.name);
    change(&mut allocation);
    let steps = allocation.steps.iter().zip(starts.windows(2));
    let found = steps.flat_map(|(step, at)| {
        let found = violations(step, &constants, &code[at[0]..at[1]], at[0]);
        found.into_iter().map(move |what| format!("{}: {step:?}: {what}", case.function.name))
    });
    (found.collect(), allocation.steps.len())
}

/// Every kind of function for a target.
fn functions(target: &Target) -> Vec<Case> {
    let mut all = cases::all(target.vector_bytes);
    all.extend(random::programs(target));
    if target.isa == Isa::Avx512 {
        all.extend(quotients::cases());
        all.extend(floor_divisions::all());
        all.extend(approximations::cases());
        all.extend(tables::lookups());
    }
    if target.isa != Isa::Neon {
        all.extend(masked::loads(target.vector_bytes));
        all.extend(masked::stores(target.vector_bytes));
        all.extend(interleaved::stores(target.vector_bytes));
        all.extend(shifts::cases(target));
        all.extend(tables::shuffles(target.vector_bytes));
    }
    let blocks = registers::blocks().into_iter().filter(|b| b.0.isa == target.isa);
    all.extend(blocks.flat_map(|(t, mr, nv)| [0, 30].map(|outer| registers::product_block(&t, mr, nv, 7, outer))));
    all
}

#[test]
fn every_instruction_has_a_case() {
    let cases = functions(&Target::avx512());
    let found: HashSet<&str> = cases.iter().flat_map(|case| &case.function.insts).map(Inst::name).collect();
    // tests/instructions.rs runs the rows of tensor instructions, and what moves their tiles
    let elsewhere = |name: &str| name.starts_with("VTensor") || name.starts_with("Tile");
    let missing: Vec<_> = Inst::NAMES.iter().filter(|name| !found.contains(*name) && !elsewhere(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn instructions_touch_the_operands_of_their_steps_only() {
    for target in [Target::avx2(), Target::avx512()] {
        assert_ne!(target.isa, Isa::Neon);
        let (mut wrong, mut steps) = (vec![], 0);
        for case in functions(&target) {
            let (found, n) = examine(&case, &target, |_| {});
            wrong.extend(found);
            steps += n;
        }
        println!("{}: {steps} steps", target.name);
        let shown: Vec<_> = wrong.iter().take(20).collect();
        assert!(wrong.is_empty(), "{}: {} of {steps} steps: {shown:#?}", target.name, wrong.len());
    }
}

/// A temporary that is not declared, and an operand that is another register, are seen.
#[test]
fn undeclared_registers_are_seen() {
    for target in [Target::avx2(), Target::avx512()] {
        let (mut temporaries, mut missed) = (0, 0);
        for case in functions(&target) {
            let declared = |a: &Allocation| {
                let with = a.steps.iter().filter(
                    |s| matches!(s, Step::Inst { temporaries: t, .. } if !t.gpr.is_empty() || !t.vector.is_empty()),
                );
                with.count()
            };
            let count = declared(&regalloc::allocate(&case.function, &target).unwrap());
            let (found, _) = examine(&case, &target, |allocation| {
                for step in &mut allocation.steps {
                    if let Step::Inst { temporaries, .. } = step {
                        *temporaries = Default::default();
                    }
                }
            });
            temporaries += usize::from(count > 0);
            missed += usize::from(count > 0 && found.is_empty());
        }
        assert!(temporaries > 100, "{temporaries} functions have temporaries");
        // some branches of an emitter take fewer than the instruction may need
        assert!(missed * 4 < temporaries, "{}: {missed} of {temporaries} are not seen", target.name);
    }
}

/// A whole register, and lanes from the first that fill a shorter one, are moved without masks.
#[test]
fn whole_registers_are_moved_by_plain_instructions() {
    for target in [Target::avx2(), Target::avx512()] {
        let lanes = target.lanes(4) as u8;
        for (first, count, plain) in [(0, lanes, true), (0, 4, true), (0, 2, true), (0, 3, false), (1, 4, false)] {
            let mut b = Builder::new("moves");
            let (p, dst) = (b.argument(0), b.vreg());
            let (ty, mem) = (VType { lane: Lane::F32, lanes }, DType::F32);
            let part = (count < lanes).then_some(LaneRange { first, count });
            b.push(Inst::VLoad { dst, ty, mem, addr: at(p, 0), part });
            b.push(Inst::VStore { src: dst, ty, mem, addr: at(p, 64), part });
            let allocation = regalloc::allocate(&b.function, &target).unwrap();
            let text = disassemble(&assemble::emit(&b.function, &allocation, target.isa).unwrap(), target.isa).unwrap();
            let masked = text.contains("{k") || text.contains("vmaskmov");
            assert_eq!(masked, !plain, "{first} {count}: {text}");
            let moves = text.lines().filter(|l| l.contains(" vmov") && l.contains("[r")).count();
            assert!(!plain || moves == 2, "{first} {count}: {text}");
        }
    }
}

/// One element of one or two bytes is taken out of its register; several of them are stored under a mask, which AVX2 does not have
/// for such lanes.
#[test]
fn single_bytes_and_halves_are_stored_without_masks() {
    for (target, mem, lane) in [
        (Target::avx2(), DType::I8, Lane::I8),
        (Target::avx2(), DType::U16, Lane::I16),
        (Target::avx512(), DType::I8, Lane::I8),
        (Target::avx512(), DType::U16, Lane::I16),
        (Target::avx512(), DType::U8, Lane::I32),
    ] {
        for (count, alone) in [(1, true), (3, false)] {
            let mut b = Builder::new("elements");
            let (p, dst) = (b.argument(0), b.vreg());
            let ty = VType { lane, lanes: (target.vector_bytes / lane.bytes()) as u8 };
            b.push(Inst::VConst { dst, ty, bits: 1 });
            b.push(Inst::VStore { src: dst, ty, mem, addr: at(p, 0), part: Some(LaneRange { first: 0, count }) });
            let allocation = regalloc::allocate(&b.function, &target).unwrap();
            let text = disassemble(&assemble::emit(&b.function, &allocation, target.isa).unwrap(), target.isa).unwrap();
            let extracted = text.lines().filter(|l| l.contains(" vpextr") && l.contains("[r")).count();
            assert_eq!(extracted == 1 && !text.contains("{k"), alone, "{}, {mem}: {text}", target.name);
        }
    }
}

/// One element of one or two bytes is read as such: a masked load of more bytes waits for a store of the element.
#[test]
fn single_bytes_and_halves_are_loaded_without_masks() {
    for mem in [DType::U8, DType::I8, DType::U16, DType::I16, DType::Bool] {
        for target in [Target::avx2(), Target::avx512()] {
            let mut b = Builder::new("element");
            let (p, dst) = (b.argument(0), b.vreg());
            let ty = VType { lane: Lane::I32, lanes: 1 };
            b.push(Inst::VLoad { dst, ty, mem, addr: at(p, 0), part: None });
            b.push(Inst::VStore { src: dst, ty, mem: DType::I32, addr: at(p, 64), part: None });
            let allocation = regalloc::allocate(&b.function, &target).unwrap();
            let text = disassemble(&assemble::emit(&b.function, &allocation, target.isa).unwrap(), target.isa).unwrap();
            let copied = text.lines().filter(|l| l.contains("vpbroadcast") && l.contains("[r")).count();
            assert!(copied == 1 && !text.contains("{k"), "{}, {mem}: {text}", target.name);
        }
    }
}

#[test]
fn bytes_a_few_apart_are_shuffled() {
    // four lanes within 16 bytes: all are shuffled at once; else each block that is read
    for (target, mem, lane, distance, shuffles, blocks) in [
        (Target::avx2(), DType::U8, Lane::I32, 3, 1, 2),
        (Target::avx2(), DType::I16, Lane::I32, 2, 1, 2),
        (Target::avx2(), DType::I8, Lane::I32, 8, 4, 4),
        (Target::avx512(), DType::U8, Lane::I32, 3, 1, 1),
        (Target::avx512(), DType::I16, Lane::I16, 3, 6, 6),
    ] {
        let mut b = Builder::new("strided");
        let (p, dst) = (b.argument(0), b.vreg());
        let (ty, stride) = (VType { lane, lanes: target.lanes(4) as u8 }, distance * mem.bytes() as i64);
        b.push(Inst::VGather { dst, ty, mem, addr: at(p, 0), stride, part: None });
        b.push(Inst::VStore { src: dst, ty, mem: cases::dtype(lane), addr: at(p, 4096), part: None });
        let allocation = regalloc::allocate(&b.function, &target).unwrap();
        let text = disassemble(&assemble::emit(&b.function, &allocation, target.isa).unwrap(), target.isa).unwrap();
        assert_eq!(text.matches("vpshufb").count(), shuffles, "{text}");
        let reads = text.lines().filter(|l| l.contains(", [rax")).count();
        assert_eq!(reads, blocks, "{text}");
    }
}

/// Elements two to four apart are read by whole vectors and, with masks, written by them.
#[test]
fn close_elements_are_moved_by_whole_vectors() {
    for (target, scatters) in [(Target::avx2(), false), (Target::avx512(), true)] {
        for distance in 2..=4 {
            let mut b = Builder::new("strided");
            let (p, dst) = (b.argument(0), b.vreg());
            let (ty, mem) = (VType { lane: Lane::F32, lanes: target.lanes(4) as u8 }, DType::F32);
            b.push(Inst::VGather { dst, ty, mem, addr: at(p, 0), stride: 4 * distance, part: None });
            b.push(Inst::VScatter { src: dst, ty, mem, addr: at(p, 4096), stride: 4 * distance, part: None });
            let allocation = regalloc::allocate(&b.function, &target).unwrap();
            let text = disassemble(&assemble::emit(&b.function, &allocation, target.isa).unwrap(), target.isa).unwrap();
            assert!(!text.contains("gather") && !text.contains("scatter"), "{text}");
            let reads = text.lines().filter(|l| l.contains(" v") && l.contains(", [rax")).count();
            assert_eq!(reads, distance as usize, "{text}");
            let stores = text.lines().filter(|l| l.contains("vmovups [rax+") && l.contains("{k")).count();
            assert_eq!(stores, if scatters { distance as usize } else { 0 }, "{text}");
        }
    }
}

/// A comparison leaves its mask in the mask register that a load or store right behind it takes; shorter registers are masks themselves.
#[test]
fn a_mask_that_was_compared_is_not_moved_back() {
    let target = Target::avx512();
    for (lanes, again, moves) in [(16, false, 0), (16, true, 1), (8, false, 0)] {
        let mut b = Builder::new("masked");
        let (p, least, most, mask, dst) = (b.argument(0), b.vreg(), b.vreg(), b.vreg(), b.vreg());
        let (ty, integer) = (VType { lane: Lane::F32, lanes }, VType { lane: Lane::I32, lanes });
        b.push(Inst::VLoad { dst: least, ty: integer, mem: DType::I32, addr: at(p, 0), part: None });
        b.push(Inst::VLoad { dst: most, ty: integer, mem: DType::I32, addr: at(p, 64), part: None });
        b.push(Inst::VCompare { op: CompareOp::Gt, dst: mask, ty: integer, a: most, b: least });
        if again {
            b.push(Inst::VBinary { op: VBinary::And, dst: mask, ty: integer, a: mask, b: least });
        }
        b.push(Inst::VLoadWhere { dst, ty, mem: DType::F32, addr: at(p, 128), mask });
        b.push(Inst::VStore { src: dst, ty, mem: DType::F32, addr: at(p, 192), part: None });
        let allocation = regalloc::allocate(&b.function, &target).unwrap();
        let text = disassemble(&assemble::emit(&b.function, &allocation, target.isa).unwrap(), target.isa).unwrap();
        assert_eq!(text.matches("vpmovd2m").count(), moves, "{text}");
    }
}

/// Where registers are spare, a loop finds its constants in them; where all are taken it loads them.
#[test]
fn constants_of_loops_stay_in_spare_registers() {
    for target in [Target::avx2(), Target::avx512()] {
        let registers = if target.isa == Isa::Avx512 { 32 } else { 16 };
        for taken in [4, registers] {
            let mut b = Builder::new("loop");
            let (p, n) = (b.argument(0), b.imm(9));
            let (ty, mem) = (VType { lane: Lane::F32, lanes: target.lanes(4) as u8 }, DType::F32);
            let kept: Vec<_> = (0..taken - 2).map(|_| b.vreg()).collect();
            for (i, &dst) in kept.iter().enumerate() {
                b.push(Inst::VLoad { dst, ty, mem, addr: at(p, 64 * i as i32), part: None });
            }
            b.push(Inst::LoopStart { count: n, at_least_once: true });
            let dst = b.vreg();
            b.push(Inst::VGather { dst, ty, mem, addr: at(p, 8192), stride: 12, part: None });
            b.push(Inst::VStore { src: dst, ty, mem, addr: at(p, 4096), part: None });
            b.push(Inst::LoopEnd);
            for (i, &src) in kept.iter().enumerate() {
                b.push(Inst::VStore { src, ty, mem, addr: at(p, 64 * i as i32), part: None });
            }
            let allocation = regalloc::allocate(&b.function, &target).unwrap();
            let (code, starts) = assemble::emit_steps(&b.function, &allocation, target.isa).unwrap();
            let first =
                allocation.steps.iter().position(|s| matches!(s, Step::Inst { inst: Inst::LoopStart { .. }, .. }));
            let (from, to) = (starts[first.unwrap()], starts[starts.len() - 1]);
            let body = Decoder::with_ip(64, &code[from..to], from as u64, DecoderOptions::NONE);
            let loaded = body.into_iter().filter(|i| i.is_ip_rel_memory_operand()).count();
            assert_eq!(loaded == 0, taken < registers, "{}: {taken} registers, {loaded} constants", target.name);
        }
    }
}

/// A prefetch on AArch64, which changes no result, has the base and the offset of the load behind it.
#[test]
fn a_prefetch_of_neon_names_its_address() {
    let text = "function f (parallel 1, 3 gpr, 0 vector registers, 0 scratch bytes) {
        r0 = argument 1
        r1 = argument 0
        prefetch [r0 + 64]
        r2 = load i64 [r0 + 64]
        store i64 r2, [r1]
    }";
    let function = crate::codegen::vcode::text::parse(text).unwrap().remove(0);
    let target = Target::neon();
    let allocation = regalloc::allocate(&function, &target).unwrap();
    let code = assemble::emit(&function, &allocation, target.isa).unwrap();
    let words: Vec<u32> = code.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
    let find = |mask: u32, bits: u32| words.iter().find(|&&w| w & mask == bits).copied().unwrap();
    // prfm pldl2keep, [base, 64] and ldr x, [base, 64]
    let (prefetch, load) = (find(0xffc0_001f, 0xf980_0002), find(0xffff_fc00, 0xf940_2000));
    assert_eq!(prefetch & 0x003f_ffe0, load & 0x003f_ffe0, "{prefetch:#x} {load:#x}");
    assert!(prefetch >> 5 & 31 != 0, "a base whose number shows: {prefetch:#x}");
}
