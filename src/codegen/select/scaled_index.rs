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
    let defined_once = |r: Gpr| uses.written(r.index()).len() == 1;
    for product in 0..function.insts.len() {
        let Inst::Int { op: GprOp::Mul, dst, a: index, b: Operand::Imm(scale @ (2 | 4 | 8)) } = function.insts[product]
        else {
            continue;
        };
        let sums = uses.read(dst.index());
        let mut left = sums.len();
        for &place in sums.iter().filter(|_| defined_once(dst)) {
            let Some((pointer, base)) = pointer(&function.insts[place], dst) else { continue };
            let readers = uses.read(pointer.index());
            let Some(end) = readers.last().and_then(|&last| end_of_uses(&function.insts, product, last)) else {
                continue;
            };
            let stays = uses.stays(base.index(), place, end + 1) && uses.stays(index.index(), product, end + 1);
            if place > product
                && defined_once(pointer)
                && stays
                && readers.iter().all(|&u| is_address(&function.insts[u], pointer))
            {
                for &u in readers {
                    if let Some(a) = function.insts[u].address_mut() {
                        *a = Addr { base, index: Some((index, scale as u8)), disp: a.disp };
                    }
                }
                folded.insert(place);
                left -= 1;
            }
        }
        if left == 0 && !sums.is_empty() {
            folded.insert(product);
        }
    }
    remove(function, &folded);
}

/// The pointer that a sum with a product computes, and the other operand.
fn pointer(sum: &Inst, product: Gpr) -> Option<(Gpr, Gpr)> {
    match *sum {
        Inst::Int { op: GprOp::Add, dst, a: base, b: Operand::Reg(b) } if b == product && base != product => {
            Some((dst, base))
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
    fn pointers_share_a_product() {
        let body = "r5 = add r1, r3\n v0 = load f32x1 f32 [r4 + 8]\n if ge r2, 0 {\n store f32x1 f32 v0, [r5]\n }";
        let text = folded(&format!("{GATHERED} {body}"));
        assert!(text.contains("[r0 + 4*r2 + 8]") && text.contains("[r1 + 4*r2]") && !text.contains("mul"), "{text}");
        // the product stays for the pointer that stays
        let text = folded(&format!("{GATHERED} {body}\n r6 = add r5, 1\n store f32x1 f32 v0, [r6]"));
        assert!(text.contains("[r0 + 4*r2 + 8]") && text.contains("r5 = add r1, r3") && text.contains("mul"), "{text}");
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
