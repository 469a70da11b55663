//! Arguments of the calling convention whose places are those of one another, as no allocation of the linear scan has them: the
//! moves at the entry form cycles.

use super::program::{Builder, Case, at, data};
use crate::codegen::regalloc::allocation::{Allocation, Place, RegisterFile, Step};
use crate::codegen::regalloc::checker;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Inst, Lane, VType};
use crate::codegen::{Target, regalloc};
use crate::runtime::DType;

/// Stores the first and the last iteration, and what was stored in the scratch memory.
fn case() -> Case {
    let mut b = Builder::new("arguments");
    let ty = VType { lane: Lane::I64, lanes: 1 };
    let (scratch, first, last) = (b.gpr(), b.gpr(), b.gpr());
    let output = b.argument(0);
    b.push(Inst::Scratch { dst: scratch });
    b.push(Inst::Range { dst: first, which: 0 });
    b.push(Inst::Range { dst: last, which: 1 });
    for (i, src) in [first, last].into_iter().enumerate() {
        let v = b.vreg();
        b.push(Inst::VSplat { dst: v, ty, src });
        b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(output, 8 * i as i32), part: None });
        b.push(Inst::VStore { src: v, ty, mem: DType::I64, addr: at(scratch, 0), part: None });
    }
    let kept = b.vreg();
    b.push(Inst::VLoad { dst: kept, ty, mem: DType::I64, addr: at(scratch, 0), part: None });
    b.push(Inst::VStore { src: kept, ty, mem: DType::I64, addr: at(output, 16), part: None });
    b.function.scratch_bytes = 64;
    Case { function: b.function, buffers: vec![data(DType::I64, 3, 0, true)], range: (3, 8) }
}

/// The allocation with other general-purpose registers.
fn renamed(mut allocation: Allocation, name: impl Fn(u8) -> u8) -> Allocation {
    let place = |place: &mut Option<Place>| {
        if let Some(Place::Register(r)) = place {
            *r = name(*r);
        }
    };
    allocation.entry.iter_mut().for_each(place);
    for step in &mut allocation.steps {
        match step {
            Step::Inst { inst, hidden, temporaries, .. } => {
                place(hidden);
                temporaries.gpr.iter_mut().for_each(|r| *r = name(*r));
                inst.registers_mut(&mut |class, _, r| {
                    *r = if class == Class::Gpr { name(*r as u8).into() } else { *r }
                });
            }
            Step::Again { inst, .. } => {
                inst.registers_mut(&mut |class, _, r| {
                    *r = if class == Class::Gpr { name(*r as u8).into() } else { *r }
                });
            }
            Step::Store { class: Class::Gpr, register, .. } | Step::Load { class: Class::Gpr, register, .. } => {
                *register = name(*register);
            }
            Step::Store { .. } | Step::Load { .. } => {}
        }
    }
    allocation
}

/// The case, and its allocation with the arguments in each order of the registers in which they come.
pub fn exchanged(target: &Target) -> (Case, Vec<Allocation>) {
    let incoming = RegisterFile::of(target.isa).incoming;
    let case = case();
    let allocation = regalloc::allocate(&case.function, target).unwrap();
    let register = |place: &Option<Place>| match place {
        Some(Place::Register(r)) => *r,
        place => panic!("an argument is in {place:?}"),
    };
    let own: Vec<u8> = allocation.entry.iter().map(register).collect();
    // What else stands in a register of an incoming argument goes where an argument stood.
    let displaced = incoming.into_iter().filter(|r| !own.contains(r));
    let places: Vec<u8> = own.iter().copied().chain(displaced).collect();
    let in_order = |order: usize| {
        let (mut left, mut rest) = (incoming.to_vec(), order);
        let mut names = vec![];
        for n in (1..=4).rev() {
            names.push(left.remove(rest % n));
            rest /= n;
        }
        names.extend(own.iter().filter(|r| !incoming.contains(r)));
        renamed(allocation.clone(), |r| places.iter().position(|p| *p == r).map_or(r, |i| names[i]))
    };
    let all = (0..24).map(in_order).collect();
    (case, all)
}

/// Two arguments that enter the function in one place.
#[test]
fn arguments_that_share_a_place_are_refused() {
    let function = case().function;
    for target in [Target::avx2(), Target::neon()] {
        let mut wrong = regalloc::allocate(&function, &target).unwrap();
        wrong.entry[2] = wrong.entry[1];
        let message = checker::check(&function, &wrong, &target).unwrap_err().to_string();
        let end = format!(
            "instruction 0, {:?}: two arguments of the calling convention share a place",
            Some(&function.insts[0])
        );
        assert!(message.contains(&end), "{message}");
    }
}
