//! Runs cases on this processor, with their buffers beside pages that may not be touched.

use super::program::{Buffer, Builder, at};
use super::{
    arguments, cases, floor_divisions, interleaved, masked, program::Case, quotients, random, registers, shifts, tables,
};
use crate::codegen::regalloc::allocation::Allocation;
use crate::codegen::regalloc::checker;
use crate::codegen::vcode::{Inst, Lane, VBinary, VType};
use crate::codegen::{Target, assemble, regalloc};
use crate::runtime::DType;
use crate::runtime::executable::Executable;

const PAGE: usize = 4096;

/// Memory between two inaccessible pages; the bytes end right before the second, or start right behind the first.
struct Guarded {
    start: *mut u8,
    length: usize,
    data: *mut u8,
    bytes: usize,
}

impl Guarded {
    fn new(bytes: &[u8], at_end: bool) -> Guarded {
        let room = bytes.len().next_multiple_of(PAGE).max(PAGE);
        let length = room + 2 * PAGE;
        // SAFETY: an anonymous mapping of fresh pages; the middle is made accessible, the outer pages stay without
        // access, and the copy goes to the middle.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
            assert_ne!(start.cast(), libc::MAP_FAILED);
            let middle = start.add(PAGE);
            assert_eq!(libc::mprotect(middle.cast(), room, libc::PROT_READ | libc::PROT_WRITE), 0);
            let data = if at_end { middle.add(room - bytes.len()) } else { middle };
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
            Guarded { start, length, data, bytes: bytes.len() }
        }
    }

    fn contents(&self) -> Vec<u8> {
        // SAFETY: `data` points to `bytes` accessible bytes of this mapping.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes).to_vec() }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, made in `new`, is given back once.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// Runs the code at `offset`, with buffers at either end of their pages, and lists the differences from the
/// interpreter.
pub fn differences(case: &Case, executable: &Executable, offset: usize) -> Vec<String> {
    let expected = case.expected();
    let mut wrong = vec![];
    for at_end in [false, true] {
        let guarded: Vec<Guarded> = case.buffers.iter().map(|b| Guarded::new(&b.bytes, at_end)).collect();
        let table: Vec<*mut u8> = guarded.iter().map(|g| g.data).collect();
        let mut scratch = vec![0u64; case.function.scratch_bytes as usize / 8 + 16];
        let aligned = scratch.as_mut_ptr().cast::<u8>().map_addr(|a| a.next_multiple_of(64));
        // SAFETY: the code was made by the emitter, with an allocation that the checker has accepted, from a function whose
        // accesses the interpreter has found to stay inside of the buffers; what it touches beside them has no access and
        // ends the test.
        unsafe { executable.phase(offset)(table.as_ptr(), case.range.0, case.range.1, aligned) };
        let found: Vec<Vec<u8>> = guarded.iter().map(Guarded::contents).collect();
        wrong.extend(case.difference(&expected, &found));
    }
    wrong
}

/// Compiles all cases into one blob and runs each; panics with all differences.
fn run(target: &Target, cases: &[Case]) {
    let allocate = |function| regalloc::allocate(function, target).unwrap_or_else(|e| panic!("{e}"));
    run_allocated(target, &cases.iter().map(|case| (case, allocate(&case.function))).collect::<Vec<_>>());
}

/// As [`run`], with registers that are chosen.
fn run_allocated(target: &Target, cases: &[(&Case, Allocation)]) {
    if !target.runs_on_host() {
        super::emulator::skip::no_hardware(&format!("this processor does not run {}", target.name));
        return;
    }
    let mut code = vec![];
    let mut offsets = vec![];
    for (case, allocation) in cases {
        checker::check(&case.function, allocation, target).unwrap_or_else(|e| panic!("{e}"));
        let bytes = assemble::emit(&case.function, allocation, target.isa).unwrap_or_else(|e| panic!("{e}"));
        code.resize(code.len().next_multiple_of(64), 0xcc);
        offsets.push(code.len());
        code.extend(bytes);
    }
    let executable = Executable::new(&code).unwrap();
    let mut wrong = vec![];
    for ((case, _), offset) in cases.iter().zip(offsets) {
        wrong.extend(differences(case, &executable, offset));
    }
    let shown: Vec<_> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{}: {} of {} cases are wrong: {shown:#?}", target.name, wrong.len(), cases.len());
}

#[test]
fn every_instruction_on_avx2() {
    run(&Target::avx2(), &cases::all(32));
    run(&Target::avx2(), &masked::loads(32));
    run(&Target::avx2(), &masked::stores(32));
    run(&Target::avx2(), &interleaved::stores(32));
    run(&Target::avx2(), &floor_divisions::all());
    run(&Target::avx2(), &shifts::cases(&Target::avx2()));
}

#[test]
fn every_instruction_on_avx512() {
    run(&Target::avx512(), &cases::all(64));
    run(&Target::avx512(), &masked::loads(64));
    run(&Target::avx512(), &masked::stores(64));
    run(&Target::avx512(), &interleaved::stores(64));
    run(&Target::avx512(), &quotients::cases());
    run(&Target::avx512(), &shifts::cases(&Target::avx512()));
}

#[test]
fn arguments_change_places() {
    for target in [Target::avx2(), Target::avx512()] {
        let (case, allocations) = arguments::exchanged(&target);
        run_allocated(&target, &allocations.into_iter().map(|allocation| (&case, allocation)).collect::<Vec<_>>());
    }
}

#[test]
fn roundings_to_bf16() {
    run(&Target::avx512().with_feature("avx512bf16").unwrap(), &cases::bf16());
}

#[test]
fn counts_of_ones() {
    run(&Target::avx512().with_feature("avx512vpopcntdq").unwrap(), &shifts::counts_of_ones(64, 4));
}

#[test]
fn lookups_in_tables() {
    run(&Target::avx512().with_feature("avx512vbmi").unwrap(), &tables::lookups());
    run(&Target::avx2(), &tables::shuffles(32));
    run(&Target::avx512(), &tables::shuffles(64));
}

#[test]
fn random_programs() {
    for target in [Target::avx2(), Target::avx512()] {
        let programs = random::programs(&target);
        run(&target, &programs);
        println!("{}: {}", target.name, random::coverage(&programs, &target));
    }
}

#[test]
fn register_blocks() {
    for (target, mr, nv) in registers::blocks() {
        let cases: Vec<_> = [0, 12, 30].map(|outer| registers::product_block(&target, mr, nv, 7, outer)).into();
        if target.isa != crate::codegen::Isa::Neon {
            run(&target, &cases);
        }
    }
}

/// One product of two floats.
fn product(x: f32, y: f32) -> Case {
    let mut b = Builder::new("product");
    let (input, output) = (b.argument(0), b.argument(1));
    let ty = VType { lane: Lane::F32, lanes: 1 };
    let [a, c, dst] = [b.vreg(), b.vreg(), b.vreg()];
    b.push(Inst::VLoad { dst: a, ty, mem: DType::F32, addr: at(input, 0), part: None });
    b.push(Inst::VLoad { dst: c, ty, mem: DType::F32, addr: at(input, 4), part: None });
    b.push(Inst::VBinary { op: VBinary::Mul, dst, ty, a, b: c });
    b.push(Inst::VStore { src: dst, ty, mem: DType::F32, addr: at(output, 0), part: None });
    let floats = |v: &[f32]| Buffer { dtype: DType::F32, bytes: v.iter().flat_map(|x| x.to_le_bytes()).collect() };
    Case { function: b.function, buffers: vec![floats(&[x, y]), floats(&[7.0])], range: (0, 1) }
}

#[test]
fn subnormal_numbers_are_zero_inside_and_only_inside() {
    for target in [Target::avx2(), Target::avx512()].iter().filter(|t| t.runs_on_host()) {
        for (x, y) in [(1e-39, 4.0), (1e-30, 1e-10), (1.5, 2.0)] {
            let case = product(x, y);
            let allocation = regalloc::allocate(&case.function, target).unwrap();
            let code = assemble::emit(&case.function, &allocation, target.isa).unwrap();
            let mut buffers: Vec<Vec<u8>> = case.buffers.iter().map(|b| b.bytes.clone()).collect();
            let table: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
            let executable = Executable::new(&code).unwrap();
            // SAFETY: the function reads two floats of the first buffer and writes one of the second.
            unsafe { executable.phase(0)(table.as_ptr(), 0, 1, std::ptr::null_mut()) };
            let found = f32::from_le_bytes(buffers[1][..].try_into().unwrap());
            assert_eq!(found, if x < 1.0 { 0.0 } else { 3.0 }, "{x} · {y} on {}", target.name);
            assert_ne!(std::hint::black_box(1e-39f32) * std::hint::black_box(4.0), 0.0, "the caller's mode");
        }
    }
}
