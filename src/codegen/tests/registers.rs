//! Register allocation: values that must stay in registers, and broken allocations that the checker must refuse.

use super::program::{Builder, Case, at, data};
use super::{native, random};
use crate::codegen::regalloc::allocation::{Allocation, Place, RegisterFile, Step};
use crate::codegen::regalloc::checker;
use crate::codegen::vcode::operands::{Class, PerClass};
use crate::codegen::vcode::{Gpr, GprOp, Inst, Lane, Operand, VBinary, VType, text};
use crate::codegen::{Target, assemble, regalloc};
use crate::runtime::DType;
use crate::runtime::executable::Executable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// `C[m][n] += A[m][k]·B[k][n]` for one block of `mr` rows and `nv` vectors, inside of two outer loops that keep
/// `outer` more integers alive; bias vectors are read before and used after.
pub fn product_block(target: &Target, mr: usize, nv: usize, depth: i64, outer: usize) -> Case {
    let lanes = target.lanes(4);
    let ty = VType { lane: Lane::F32, lanes: lanes as u8 };
    let mem = DType::F32;
    let (width, bytes) = (nv * lanes, 4 * lanes as i32);
    let mut b = Builder::new(format!("block {mr}x{width} depth {depth}, {outer} values outside"));
    let (a0, b0, c0) = (b.argument(0), b.argument(1), b.argument(2));
    let kept: Vec<_> = (0..outer).map(|i| b.imm(8 + i as i64)).collect();
    let bias: Vec<_> = (0..2).map(|_| b.vreg()).collect();
    for (i, &dst) in bias.iter().enumerate() {
        b.push(Inst::VLoad { dst, ty, mem, addr: at(b0, i as i32 * bytes), part: None });
    }
    let (two, three) = (b.imm(2), b.imm(3));
    let (c1, zero) = (b.gpr(), b.imm(0));
    b.push(Inst::Copy { dst: c1, src: c0 });
    b.push(Inst::LoopStart { count: two, at_least_once: true });
    b.push(Inst::LoopStart { count: three, at_least_once: true });
    let acc: Vec<_> = (0..mr * nv).map(|_| b.vreg()).collect();
    for &dst in &acc {
        b.push(Inst::VConst { dst, ty, bits: 0 });
    }
    let (pa, pb, count) = (b.gpr(), b.gpr(), b.imm(depth));
    b.push(Inst::Copy { dst: pa, src: a0 });
    b.push(Inst::Int { op: GprOp::Add, dst: pb, a: b0, b: Operand::Reg(zero) });
    b.push(Inst::LoopStart { count, at_least_once: true });
    let rows: Vec<_> = (0..nv).map(|_| b.vreg()).collect();
    for (j, &dst) in rows.iter().enumerate() {
        b.push(Inst::VLoad { dst, ty, mem, addr: at(pb, j as i32 * bytes), part: None });
    }
    for i in 0..mr {
        let a = b.vreg();
        b.push(Inst::VBroadcast { dst: a, ty, mem, addr: at(pa, (i as i64 * depth * 4) as i32) });
        for j in 0..nv {
            b.push(Inst::VFma { acc: acc[i * nv + j], ty, a, b: rows[j], negate: false });
        }
    }
    b.push(Inst::Int { op: GprOp::Add, dst: pa, a: pa, b: Operand::Imm(4) });
    b.push(Inst::Int { op: GprOp::Add, dst: pb, a: pb, b: Operand::Imm((width * 4) as i64) });
    b.push(Inst::LoopEnd);
    for (i, &a) in acc.iter().enumerate() {
        b.push(Inst::VBinary { op: VBinary::Add, dst: a, ty, a, b: bias[i % 2] });
        b.push(Inst::VStore { src: a, ty, mem, addr: at(c1, i as i32 * bytes), part: None });
    }
    // The values kept outside are used here: a sum that is always zero moves the output.
    for (i, &k) in kept.iter().enumerate() {
        b.push(Inst::Int { op: GprOp::Add, dst: c1, a: c1, b: Operand::Reg(k) });
        b.push(Inst::Int { op: GprOp::Add, dst: c1, a: c1, b: Operand::Imm(-8 - i as i64) });
    }
    b.push(Inst::LoopEnd);
    b.push(Inst::LoopEnd);
    let buffers = vec![
        data(mem, mr * depth as usize, 1, true),
        data(mem, width.max(2 * lanes) * depth as usize, 2, true),
        data(mem, mr * width, 3, true),
    ];
    Case { function: b.function, buffers, range: (0, 1) }
}

/// Full register blocks of each instruction set, and whether the innermost loop is free of moves.
pub fn blocks() -> Vec<(Target, usize, usize)> {
    vec![
        (Target::avx512(), 14, 2),
        (Target::avx512(), 9, 3),
        (Target::avx2(), 6, 2),
        (Target::avx2(), 4, 3),
        (Target::neon(), 8, 3),
    ]
}

#[test]
fn full_register_blocks_have_no_moves_inside() {
    for (target, mr, nv) in blocks() {
        for outer in [0, 10, 30] {
            let case = product_block(&target, mr, nv, 5, outer);
            let allocation = regalloc::allocate(&case.function, &target).unwrap();
            checker::check(&case.function, &allocation, &target).unwrap();
            let name = &case.function.name;
            assert_eq!(
                allocation.spills(3),
                PerClass::default(),
                "{}: {name}: moves in the innermost loop",
                target.name
            );
            let copies = allocation.steps.iter().filter(|s| match s {
                Step::Inst { inst: Inst::Copy { dst, src }, .. } => dst == src,
                _ => false,
            });
            assert!(copies.count() <= 2);
        }
    }
}

#[test]
fn values_unused_in_a_hot_loop_wait_outside_of_it() {
    let target = Target::avx512();
    let case = product_block(&target, 14, 2, 5, 4);
    let allocation = regalloc::allocate(&case.function, &target).unwrap();
    // 28 accumulators, 2 rows and 1 broadcast leave one register: one of the two bias vectors waits.
    let vectors = allocation.spills(0).vector;
    assert!((1..=4).contains(&vectors), "{vectors} vector moves");
    assert_eq!(allocation.spills(3), PerClass::default());
}

/// Every way to break one step; each must be refused, except where the result is right by chance.
fn broken(allocation: &Allocation, rng: &mut StdRng) -> Option<Allocation> {
    let mut out = allocation.clone();
    let i = rng.random_range(0..out.steps.len());
    match &mut out.steps[i] {
        Step::Store { register, slot, .. } | Step::Load { register, slot, .. } => match rng.random_range(0..3) {
            0 => drop(out.steps.remove(i)),
            1 => *register = (*register + 1 + (*register == 3) as u8) % 16,
            _ => *slot += 1,
        },
        Step::Again { .. } => drop(out.steps.remove(i)),
        Step::Inst { inst, hidden, .. } => match hidden {
            Some(Place::Register(r)) if rng.random() => *r = if *r == 0 { 1 } else { 0 },
            _ => {
                // A read from elsewhere.
                let mut reads = 0;
                inst.registers(|_, access, _| reads += access.reads() as u32);
                if reads == 0 {
                    return None;
                }
                let which = rng.random_range(0..reads);
                let mut k = 0;
                inst.registers_mut(&mut |class, access, r| {
                    if access.reads() {
                        if k == which {
                            *r = (*r + 1) % 16;
                            if class == Class::Gpr && *r == 4 {
                                *r = 5;
                            }
                        }
                        k += 1;
                    }
                });
            }
        },
    }
    Some(out)
}

#[test]
fn broken_allocations_are_refused_or_do_no_harm() {
    let mut rng = StdRng::seed_from_u64(1);
    let (mut tried, mut passed, mut executed, mut harmful) = (0, 0, 0, vec![]);
    for target in [Target::avx2(), Target::avx512()] {
        for case in random::programs(&target).iter().take(60) {
            let allocation = regalloc::allocate(&case.function, &target).unwrap();
            for _ in 0..20 {
                let Some(wrong) = broken(&allocation, &mut rng) else { continue };
                tried += 1;
                if checker::check(&case.function, &wrong, &target).is_err() {
                    continue;
                }
                // A changed register may hold the same value, a missing store or move nothing that is read: the program does what
                // it did.
                passed += 1;
                if target.runs_on_host() {
                    let code = assemble::emit(&case.function, &wrong, target.isa).unwrap();
                    harmful.extend(native::differences(case, &Executable::new(&code).unwrap(), 0));
                    executed += 1;
                }
            }
        }
    }
    assert!(tried > 1000, "{tried}");
    println!("{tried} broken allocations, {passed} not refused, {executed} of them executed");
    assert!(harmful.is_empty(), "broken allocations pass: {harmful:#?}");
    assert!(passed * 50 < tried, "{passed} of {tried} broken allocations pass");
}

/// A temporary in the register of another or of an operand.
#[test]
fn temporaries_that_share_a_register_are_refused() {
    let mut tried = [0, 0];
    for target in [Target::avx2(), Target::neon()] {
        for case in random::programs(&target).iter().take(60) {
            let allocation = regalloc::allocate(&case.function, &target).unwrap();
            for i in 0..allocation.steps.len() {
                let mut shared = allocation.clone();
                let mut beside = allocation.clone();
                if let Step::Inst { temporaries, .. } = &mut shared.steps[i]
                    && let [first, second, ..] = &mut temporaries.vector[..]
                {
                    *second = *first;
                    refused(&case.function, &shared, &target, "is not its own");
                    tried[0] += 1;
                }
                if let Step::Inst { inst, temporaries, .. } = &mut beside.steps[i]
                    && let Some(temporary) = temporaries.vector.first_mut()
                {
                    let mut operand = None;
                    inst.registers(|class, _, r| operand = operand.or((class == Class::Vector).then_some(r as u8)));
                    if let Some(operand) = operand {
                        *temporary = operand;
                        refused(&case.function, &beside, &target, "is not its own");
                        tried[1] += 1;
                    }
                }
            }
        }
    }
    assert!(tried.iter().all(|t| *t > 20), "{tried:?}");
}

fn refused(function: &crate::codegen::vcode::Function, wrong: &Allocation, target: &Target, words: &str) {
    let message = checker::check(function, wrong, target).expect_err(words).to_string();
    assert!(message.contains(words), "{message}");
}

fn store_of_a_constant() -> crate::codegen::vcode::Function {
    let text = "function f (parallel 1, 2 gpr, 0 vector registers, 0 scratch bytes) {
        r0 = argument 0
        r1 = 5
        store i64 r1, [r0]
    }";
    text::parse(text).unwrap().remove(0)
}

/// A constant may be left out, and what follows it may not.
#[test]
fn instructions_that_are_missing_at_the_end_are_refused() {
    let function = store_of_a_constant();
    for target in [Target::avx2(), Target::neon()] {
        let mut allocation = regalloc::allocate(&function, &target).unwrap();
        checker::check(&function, &allocation, &target).unwrap();
        let first = |step: &Step| matches!(step, Step::Inst { origin: 0, .. });
        let kept = allocation.steps.iter().position(first).unwrap() + 1;
        allocation.steps.truncate(kept);
        refused(&function, &allocation, &target, "it is missing");
    }
}

/// An instruction that stands twice does not make up for one that is missing.
#[test]
fn instructions_out_of_order_are_refused() {
    let function = store_of_a_constant();
    for target in [Target::avx2(), Target::neon()] {
        let mut allocation = regalloc::allocate(&function, &target).unwrap();
        let place = |allocation: &Allocation, number: u32| {
            allocation.steps.iter().position(|s| matches!(s, Step::Inst { origin, .. } if *origin == number)).unwrap()
        };
        allocation.steps.remove(place(&allocation, 2));
        let constant = place(&allocation, 1);
        allocation.steps.insert(constant, allocation.steps[constant].clone());
        refused(&function, &allocation, &target, "it is out of order");
    }
}

/// The stack pointer and others that the emitter keeps for itself.
#[test]
fn registers_that_may_not_be_allocated_are_refused() {
    let mut tried = [0, 0];
    for target in [Target::avx2(), Target::neon()] {
        let allocatable = RegisterFile::of(target.isa).registers;
        let reserved = (0..).find(|r| !allocatable.gpr.contains(r)).unwrap();
        for case in random::programs(&target).iter().take(60) {
            let allocation = regalloc::allocate(&case.function, &target).unwrap();
            for i in 0..allocation.steps.len() {
                let mut wrong = allocation.clone();
                match &mut wrong.steps[i] {
                    Step::Inst { inst, .. } => {
                        let mut of_inst = 0;
                        inst.registers_mut(&mut |class, _, r| {
                            if class == Class::Gpr {
                                *r = reserved.into();
                                of_inst += 1;
                            }
                        });
                        if of_inst > 0 {
                            refused(&case.function, &wrong, &target, "may not be used");
                            tried[0] += 1;
                        }
                    }
                    Step::Store { class: Class::Gpr, register, .. }
                    | Step::Load { class: Class::Gpr, register, .. } => {
                        *register = reserved;
                        refused(&case.function, &wrong, &target, "names a place that does not exist");
                        tried[1] += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(tried.iter().all(|t| *t > 20), "{tried:?}");
}

/// A temporary in the register of a value that the next instruction reads.
#[test]
fn temporaries_that_overwrite_a_value_are_refused() {
    let mut tried = 0;
    for target in [Target::avx2(), Target::neon()] {
        for case in random::programs(&target).iter().take(60) {
            let allocation = regalloc::allocate(&case.function, &target).unwrap();
            for i in 1..allocation.steps.len() {
                let Step::Inst { inst: next, .. } = &allocation.steps[i] else { continue };
                let mut wrong = allocation.clone();
                let Step::Inst { inst, temporaries, .. } = &mut wrong.steps[i - 1] else { continue };
                let mut taken = temporaries.vector.clone();
                inst.registers(|class, _, r| taken.extend((class == Class::Vector).then_some(r as u8)));
                let mut read = None;
                next.registers(|class, access, r| {
                    let value = class == Class::Vector && access.reads() && !taken.contains(&(r as u8));
                    read = read.or(value.then_some(r as u8));
                });
                if let (Some(temporary), Some(value)) = (temporaries.vector.first_mut(), read) {
                    *temporary = value;
                    refused(&case.function, &wrong, &target, "which holds nothing certain");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

/// A value that the second iteration of a loop, or of the one around it, finds overwritten.
#[test]
fn values_that_a_loop_overwrites_are_refused() {
    for nested in [false, true] {
        let mut b = Builder::new("overwritten");
        let (a0, count) = (b.argument(0), b.imm(3));
        let [v, w, x] = std::array::from_fn(|_| b.gpr());
        let add = |dst, a, value| Inst::Int { op: GprOp::Add, dst, a, b: Operand::Imm(value) };
        b.push(add(v, a0, 8));
        b.push(Inst::LoopStart { count, at_least_once: true });
        if nested {
            b.push(Inst::LoopStart { count, at_least_once: true });
        }
        b.push(add(x, v, 1));
        if nested {
            b.push(Inst::LoopEnd);
        }
        let overwritten = b.function.insts.len() as u32;
        b.push(add(w, a0, 2));
        b.push(Inst::LoopEnd);
        let target = Target::avx2();
        let right = regalloc::allocate(&b.function, &target).unwrap();
        checker::check(&b.function, &right, &target).unwrap();
        let place = |origin: u32| {
            right.steps.iter().find_map(|s| match s {
                Step::Inst { origin: o, inst: Inst::Int { dst, .. }, .. } if *o == origin => Some(*dst),
                _ => None,
            })
        };
        let (kept, mut wrong) = (place(2).unwrap(), right.clone());
        for step in &mut wrong.steps {
            if let Step::Inst { origin, inst: Inst::Int { dst, .. }, .. } = step
                && *origin == overwritten
            {
                *dst = kept;
            }
        }
        let message = checker::check(&b.function, &wrong, &target).expect_err("nested: {nested}").to_string();
        assert!(message.contains("which holds nothing certain"), "{message}");
        // The register of another value.
        let mut wrong = right.clone();
        for step in &mut wrong.steps {
            if let Step::Inst { origin, inst: Inst::Int { a, .. }, .. } = step
                && *origin == overwritten
            {
                *a = kept;
            }
        }
        let message = checker::check(&b.function, &wrong, &target).unwrap_err().to_string();
        assert!(message.contains("which holds") && !message.contains("nothing certain"), "{message}");
        // The first slot that does not exist.
        let mut wrong = right.clone();
        wrong.entry[0] = Some(Place::Slot(right.slots.gpr));
        let message = checker::check(&b.function, &wrong, &target).unwrap_err().to_string();
        assert!(message.contains("does not exist"), "{message}");
    }
}

/// A register that has the value only where a loop ran, which may run zero times.
#[test]
fn values_that_only_a_skipped_loop_writes_are_refused() {
    let mut b = Builder::new("skipped");
    let (a0, count) = (b.argument(0), b.imm(3));
    let [x, y] = std::array::from_fn(|_| b.gpr());
    let add = |dst, a, value| Inst::Int { op: GprOp::Add, dst, a, b: Operand::Imm(value) };
    b.push(add(x, a0, 8));
    b.push(Inst::LoopStart { count, at_least_once: false });
    let inside = b.function.insts.len() as u32;
    b.push(add(x, a0, 1));
    b.push(Inst::LoopEnd);
    let behind = b.function.insts.len() as u32;
    b.push(add(y, x, 1));
    let target = Target::avx2();
    let right = regalloc::allocate(&b.function, &target).unwrap();
    checker::check(&b.function, &right, &target).unwrap();
    let mut used = vec![];
    for step in &right.steps {
        if let Step::Inst { inst, .. } = step {
            inst.registers(|class, _, r| used.extend((class == Class::Gpr).then_some(r)));
        }
    }
    let registers = RegisterFile::of(target.isa).registers;
    let free = registers.gpr.iter().map(|&r| u32::from(r)).find(|r| !used.contains(r)).unwrap();
    let mut wrong = right;
    for step in &mut wrong.steps {
        if let Step::Inst { origin, inst: Inst::Int { dst, a, .. }, .. } = step {
            match *origin {
                o if o == inside => *dst = Gpr(free),
                o if o == behind => *a = Gpr(free),
                _ => {}
            }
        }
    }
    refused(&b.function, &wrong, &target, "which holds nothing certain");
}

/// Another constant, where it is written first and where it is computed again, and another operation.
#[test]
fn instructions_that_became_others_are_refused() {
    let mut tried = [0, 0, 0];
    for target in [Target::avx2(), Target::neon()] {
        let blocks = blocks().into_iter().filter(|b| b.0.name == target.name);
        let blocks = blocks.map(|(target, mr, nv)| product_block(&target, mr, nv, 3, 12));
        for case in random::programs(&target).into_iter().take(60).chain(blocks) {
            let allocation = regalloc::allocate(&case.function, &target).unwrap();
            for i in 0..allocation.steps.len() {
                let mut wrong = allocation.clone();
                let kind = match &mut wrong.steps[i] {
                    Step::Inst { inst: Inst::Int { op, .. }, .. } => {
                        *op = if *op == GprOp::Add { GprOp::Sub } else { GprOp::Add };
                        0
                    }
                    Step::Inst { inst: Inst::VConst { bits, .. }, .. } => {
                        *bits ^= 1;
                        1
                    }
                    Step::Again { inst: Inst::VConst { bits, .. }, .. } => {
                        *bits ^= 1;
                        2
                    }
                    Step::Again { inst: Inst::Imm { value, .. }, .. } => {
                        *value += 1;
                        2
                    }
                    _ => continue,
                };
                refused(&case.function, &wrong, &target, "it became another instruction");
                tried[kind] += 1;
            }
        }
    }
    assert!(tried.iter().all(|t| *t > 5), "{tried:?}");
}
