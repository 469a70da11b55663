//! Dead code: instructions that do nothing but compute what nothing reads, as the remainder of a quotient.
//!
//! In and out: a flat function. Invariant: memory gets the same bytes.

use crate::codegen::select::uses::remove;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst};
use std::collections::BTreeSet;

/// Removes instructions on registers and loads of which nothing reads the result.
pub fn remove_unread(function: &mut Function) {
    let mut reads = [vec![0usize; function.gprs as usize], vec![0; function.vregs as usize]];
    let of = |class: Class| usize::from(class == Class::Vector);
    for inst in &function.insts {
        inst.registers(|class, access, r| reads[of(class)][r as usize] += usize::from(access.reads()));
    }
    let mut dead = BTreeSet::new();
    loop {
        let before = dead.len();
        for (at, inst) in function.insts.iter().enumerate().rev() {
            if dead.contains(&at) || !computes(inst) {
                continue;
            }
            let (mut writes, mut unread) = (false, true);
            inst.registers(|class, access, r| {
                writes |= access.writes();
                unread &= !access.writes() || reads[of(class)][r as usize] == 0;
            });
            if writes && unread {
                dead.insert(at);
                inst.registers(|class, access, r| reads[of(class)][r as usize] -= usize::from(access.reads()));
            }
        }
        if dead.len() == before {
            break;
        }
    }
    if !dead.is_empty() {
        remove(function, &dead);
    }
}

fn computes(inst: &Inst) -> bool {
    let is_copy = matches!(inst, Inst::VCopy { .. } | Inst::VGatherIndex { .. } | Inst::VLoadWhere { .. });
    let has_effect = inst.is_control() || matches!(inst, Inst::Prefetch { .. } | Inst::Inside { .. });
    let is_entry = matches!(inst, Inst::Argument { .. } | Inst::Range { .. } | Inst::Scratch { .. });
    !has_effect && !is_entry && (is_copy || inst.only_computes())
}

#[cfg(test)]
mod tests {
    use super::remove_unread;
    use crate::codegen::vcode::text;

    #[test]
    fn what_nothing_reads_leaves() {
        let text = "function p (parallel 1, 5 gpr, 6 vector registers, 0 scratch bytes) {
            r0 = argument 0
            r1 = 9
            loop r1 {
            v0 = load i32x1 i32 [r0]
            v1 = const i32x1 #3
            v2 = mul i32x1 v0, v1
            v3 = sub i32x1 v0, v2
            r2 = inside r1 below 3 else i32 1 2
            v4 = add i32x1 v4, v0
            store i32x1 i32 v0, [r0]
            }
            }\n";
        let mut function = text::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))[0].clone();
        remove_unread(&mut function);
        let left = function.to_string();
        assert!(!left.contains("v1") && !left.contains("v2") && !left.contains("v3 ="), "{left}");
        assert!(left.contains("inside") && left.contains("v0 = load"), "{left}");
    }
}
