//! Scaled indices in addresses: `base + scale·index` is computed by the load or store itself.
//!
//! In and out: a flat function. A pointer over a subscript from data is a product and a sum in registers; where the factor is
//! one that an address can have and the pointer serves loads and stores alone, both instructions go.

use crate::codegen::select::uses::{remove, uses};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Function, Gpr, GprOp, Inst, Operand};
use std::collections::BTreeSet;

/// Replaces pointers by scaled indices.
pub fn fold(function: &mut Function) {
    let uses = uses(function, Class::Gpr);
    let mut folded = BTreeSet::new();
    for place in 1..function.insts.len() {
        let Some((pointer, address)) = scaled(&function.insts[place - 1], &function.insts[place]) else { continue };
        let Some((index, _)) = address.index else { continue };
        let Inst::Int { dst: product, .. } = &function.insts[place - 1] else { continue };
        let readers = uses.read(pointer.index());
        let defined_once = |r: Gpr| uses.written(r.index()).len() == 1;
        let once = defined_once(*product) && uses.read(product.index()).len() == 1 && defined_once(pointer);
        let Some(end) = readers.last().and_then(|&last| end_of_uses(&function.insts, place, last)) else { continue };
        let changes = |r: Gpr| !uses.stays(r.index(), place, end + 1);
        if once
            && !changes(address.base)
            && !changes(index)
            && readers.iter().all(|&u| is_address(&function.insts[u], pointer))
        {
            for &u in readers {
                if let Some(a) = function.insts[u].address_mut() {
                    *a = Addr { disp: a.disp, ..address };
                }
            }
            folded.extend([place - 1, place]);
        }
    }
    remove(function, &folded);
}

/// The pointer that a product and a sum compute, and the address that says the same.
fn scaled(product: &Inst, sum: &Inst) -> Option<(Gpr, Addr)> {
    let Inst::Int { op: GprOp::Mul, dst, a: index, b: Operand::Imm(scale @ (2 | 4 | 8)) } = *product else {
        return None;
    };
    match *sum {
        Inst::Int { op: GprOp::Add, dst: pointer, a: base, b: Operand::Reg(b) } if b == dst && base != dst => {
            Some((pointer, Addr { base, index: Some((index, scale as u8)), disp: 0 }))
        }
        _ => None,
    }
}

/// Returns true if an instruction reads a pointer as the base of its address and for nothing else.
fn is_address(inst: &Inst, pointer: Gpr) -> bool {
    let plain =
        matches!(inst, Inst::VLoad { .. } | Inst::VStore { .. } | Inst::VBroadcast { .. } | Inst::LoadInt { .. });
    plain && inst.address().is_some_and(|a| a.base == pointer && a.index.is_none())
}

/// The last instruction until which what the uses up to `last` read may not change: the end of the outermost loop around
/// `last` that starts after `from`. `None` if a loop around `from` ends before `last`.
fn end_of_uses(insts: &[Inst], from: usize, last: usize) -> Option<usize> {
    let mut open = 0;
    for inst in &insts[from..=last] {
        match inst {
            Inst::LoopStart { .. } => open += 1,
            Inst::LoopEnd => open -= 1,
            _ => {}
        }
        if open < 0 {
            return None;
        }
    }
    let mut end = last;
    while open > 0 {
        end += 1;
        match insts[end] {
            Inst::LoopStart { .. } => open += 1,
            Inst::LoopEnd => open -= 1,
            _ => {}
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text;

    /// The function with scaled indices, as text.
    fn folded(body: &str) -> String {
        let text = format!("function f (parallel 1, 8 gpr, 2 vector registers, 0 scratch bytes) {{\n{body}\n}}\n");
        let mut function = text::parse(&text).unwrap().remove(0);
        fold(&mut function);
        function.to_string()
    }

    const GATHERED: &str =
        "r0 = argument 0\n r1 = argument 1\n r2 = load i32 [r1]\n r3 = mul r2, 4\n r4 = add r0, r3\n";

    #[test]
    fn a_pointer_over_a_subscript_is_in_the_address() {
        let text = folded(&format!("{GATHERED} v0 = load f32x1 f32 [r4 + 8]\n store f32x1 f32 v0, [r1]"));
        assert!(text.contains("[r0 + 4*r2 + 8]") && !text.contains("mul") && !text.contains("add"), "{text}");
    }

    #[test]
    fn a_pointer_stays_where_its_parts_change() {
        for change in ["r0 = add r0, 4", "r2 = add r2, 1"] {
            let text = folded(&format!("{GATHERED} {change}\n v0 = load f32x1 f32 [r4]\n store f32x1 f32 v0, [r1]"));
            assert!(text.contains("r4 = add r0, r3"), "{text}");
        }
        // after the use, but before the next iteration of the loop around it
        let around = "r5 = 3\n loop r5 {\n v0 = load f32x1 f32 [r4]\n store f32x1 f32 v0, [r1]\n r0 = add r0, 4\n }";
        assert!(folded(&format!("{GATHERED} {around}")).contains("r4 = add r0, r3"));
    }

    #[test]
    fn a_pointer_stays_where_it_is_more_than_an_address() {
        let text = folded(&format!("{GATHERED} r5 = add r4, 4\n v0 = load f32x1 f32 [r5]\n store f32x1 f32 v0, [r4]"));
        assert!(text.contains("r4 = add r0, r3"), "{text}");
    }
}
