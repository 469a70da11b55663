//! Stores of the low bits: what changes only bits that no store writes is left out.
//!
//! Integers of 8 and 16 bits are brought back into their range after each operation. Where the result is stored alone, the store
//! itself drops the upper bits: a mask of the lower ones, or a shift there and back, before it is superfluous. A value
//! that was rounded to bf16 before is not rounded again, and a store of a whole register rounds to bf16 itself.
//!
//! In and out: a function. Invariant: memory gets the same bytes.

use crate::codegen::select::uses::{Uses, remove, uses};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, Lane, ShiftOp, VBinary, VUnary, Vreg};
use crate::runtime::DType;
use std::collections::BTreeSet;

/// Lets stores take their operands from before operations that leave the bits that are stored.
pub fn store_low_bits(function: &mut Function) {
    let uses = uses(function, Class::Vector);
    let mut dropped = BTreeSet::new();
    for store in 0..function.insts.len() {
        let (Inst::VStore { ty, mem, .. } | Inst::VScatter { ty, mem, .. } | Inst::VStoreInterleaved { ty, mem, .. }) =
            function.insts[store]
        else {
            continue;
        };
        if mem.bytes() >= ty.lane.bytes() || ty.lane.is_float() {
            continue;
        }
        let mut stored = function.insts[store].clone();
        for src in sources(&mut stored) {
            let Some((source, between)) = before(function, &uses, *src, 8 * mem.bytes() as u32) else { continue };
            // The source still holds the value at the store: its only definition stands before what is left out.
            if between.iter().all(|&index| index < store && uses.written(source.index())[0] < index) {
                dropped.extend(between);
                *src = source;
            }
        }
        function.insts[store] = stored;
    }
    remove(function, &dropped);
    if !dropped.is_empty() {
        drop_unread_constants(function);
    }
    round_at_stores(function);
}

/// The registers whose low bits a store of narrow elements writes.
fn sources(store: &mut Inst) -> Vec<&mut Vreg> {
    match store {
        Inst::VStore { src, .. } | Inst::VScatter { src, .. } => vec![src],
        Inst::VStoreInterleaved { a, b, c, d, .. } => [a, b].into_iter().chain(c).chain(d).collect(),
        _ => vec![],
    }
}

/// Lets stores of whole registers round f32 to bf16.
fn round_at_stores(function: &mut Function) {
    let uses = uses(function, Class::Vector);
    let mut dropped = BTreeSet::new();
    for store in 0..function.insts.len() {
        let Inst::VStore { src, ty, mem: DType::BF16, part: None, .. } = function.insts[store] else { continue };
        let ([index], [_]) = (uses.written(src.index()), uses.read(src.index())) else { continue };
        let Inst::VUnary { op: VUnary::NarrowBf16, a, .. } = function.insts[*index] else { continue };
        if ty.lanes < 4 || *index > store || !holds(&uses, a, *index) {
            continue;
        }
        if let Inst::VStore { src, ty, .. } = &mut function.insts[store] {
            (*src, ty.lane) = (a, Lane::F32);
            dropped.insert(*index);
        }
    }
    remove(function, &dropped);
}

/// Returns true if a register has one value, from before an instruction on.
fn holds(uses: &Uses, r: Vreg, index: usize) -> bool {
    matches!(uses.written(r.index()), [first] if *first < index)
}

fn drop_unread_constants(function: &mut Function) {
    let uses = uses(function, Class::Vector);
    function.insts.retain(|inst| !matches!(inst, Inst::VConst { dst, .. } if uses.read(dst.index()).is_empty()));
}

/// The register whose low `bits` are those of `r`, and the instructions between, which nothing else needs.
fn before(function: &Function, uses: &Uses, r: Vreg, bits: u32) -> Option<(Vreg, Vec<usize>)> {
    let single = |r: Vreg| match uses.written(r.index()) {
        [at] => Some(*at),
        _ => None,
    };
    let alone = |r: Vreg| single(r).filter(|_| uses.read(r.index()).len() == 1);
    let index = alone(r)?;
    let (source, between) = match function.insts[index] {
        Inst::VUnary { op: VUnary::NarrowBf16, a, .. } => {
            let Inst::VShift { op: ShiftOp::Left, a: source, amount: 16, .. } = function.insts[single(a)?] else {
                return None;
            };
            let rounded = matches!(function.insts[single(source)?], Inst::VUnary { op: VUnary::NarrowBf16, .. });
            (if rounded { source } else { return None }, alone(a).into_iter().chain([index]).collect())
        }
        Inst::VBinary { op: VBinary::And, ty, a, b, .. } => {
            let low = ty.lane.all_ones() >> (8 * ty.lane.bytes() as u32 - bits);
            let kept = |c: Vreg| {
                let constant = single(c).map(|index| &function.insts[index]);
                matches!(constant, Some(Inst::VConst { bits: mask, .. }) if mask & low == low)
            };
            (
                if kept(b) {
                    a
                } else if kept(a) {
                    b
                } else {
                    return None;
                },
                vec![index],
            )
        }
        Inst::VShift { op: ShiftOp::RightArithmetic | ShiftOp::RightLogical, ty, a, amount: back, .. } => {
            let first = alone(a)?;
            let Inst::VShift { op: ShiftOp::Left, a: source, amount, .. } = function.insts[first] else { return None };
            let fits = amount == back && u32::from(amount) + bits <= 8 * ty.lane.bytes() as u32;
            (if fits { source } else { return None }, vec![first, index])
        }
        _ => return None,
    };
    single(source)?;
    Some((source, between))
}
