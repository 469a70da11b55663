//! Addresses farther from their base than an instruction of AArch64 reaches, in innermost loops.
//!
//! In and out: a flat function. The code of such an access adds to the base before it, and waits for that. Here one addition in front of
//! the first access to a stretch makes a base for all accesses to it, and the list scheduling puts it where there is time.

use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Gpr, GprOp, Inst, Operand};
use std::ops::Range;

/// Offsets that a load or store takes, in units of its size.
const OFFSETS: i64 = 4096;

/// A register that holds a base and a multiple of the reach of an access.
struct Stretch {
    base: Gpr,
    start: i64,
    reach: i64,
    register: Gpr,
}

/// Gives accesses to far stretches a base of their own.
pub fn shorten(function: &mut Function, blocks: &[Range<usize>]) {
    for block in blocks.iter().rev() {
        let mut stretches: Vec<Stretch> = vec![];
        let mut out = Vec::with_capacity(block.len());
        for inst in &function.insts[block.clone()] {
            let mut inst = inst.clone();
            let bytes = inst.lanes().map(|l| (l.count * l.mem.bytes()) as i64);
            if let Some(bytes) = bytes.filter(|bytes| (1..=16).contains(bytes))
                && let Some(addr) = inst.address_mut()
                && addr.index.is_none()
                && i64::from(addr.disp) >= OFFSETS * bytes
            {
                let reach = OFFSETS * bytes;
                let start = i64::from(addr.disp) / reach * reach;
                let same = |s: &&Stretch| (s.base, s.start, s.reach) == (addr.base, start, reach);
                let register = stretches.iter().find(same).map(|s| s.register).unwrap_or_else(|| {
                    let register = Gpr(function.gprs);
                    function.gprs += 1;
                    out.push(Inst::Int { dst: register, op: GprOp::Add, a: addr.base, b: Operand::Imm(start) });
                    stretches.push(Stretch { base: addr.base, start, reach, register });
                    register
                });
                (addr.base, addr.disp) = (register, (i64::from(addr.disp) - start) as i32);
            }
            inst.registers(|class, access, r| {
                if class == Class::Gpr && access.writes() {
                    stretches.retain(|s| s.base != Gpr(r));
                }
            });
            out.push(inst);
        }
        function.insts.splice(block.clone(), out);
    }
}
