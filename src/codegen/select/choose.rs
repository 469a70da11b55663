//! Comparisons that one selection reads: one instruction, whose mask is in a mask register.
//!
//! In and out: a flat function for AVX-512. A comparison of whole registers writes a mask register; spread over the lanes of
//! a vector it takes one instruction more, and the selection reads a vector where a blend reads the mask register.
//! Shorter registers compare into lanes at once and stay as they are.

use crate::codegen::Target;
use crate::codegen::select::uses::{remove, uses};
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst};
use std::collections::BTreeSet;

/// Joins comparisons and selections.
pub fn join(function: &mut Function, target: &Target) {
    if target.isa != Isa::Avx512 {
        return;
    }
    let uses = uses(function, Class::Vector);
    let mut joined = BTreeSet::new();
    for index in 0..function.insts.len() {
        let Inst::VCompare { op, dst: mask, ty, a, b } = function.insts[index] else { continue };
        let (&[_], &[end]) = (uses.written(mask.index()), uses.read(mask.index())) else { continue };
        let Inst::VSelect { dst, ty: selected, mask: by, a: yes, b: no } = function.insts[end] else { continue };
        let same = (selected.lanes, selected.lane.bytes()) == (ty.lanes, ty.lane.bytes());
        let straight = end > index && !function.insts[index..end].iter().any(Inst::is_control);
        if by == mask
            && ty.compares_to_mask(target)
            && same
            && straight
            && uses.stays(a.index(), index, end)
            && uses.stays(b.index(), index, end)
        {
            function.insts[end] = Inst::VChoose { dst, op, ty, a, b, yes, no };
            joined.insert(index);
        }
    }
    remove(function, &joined);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text;

    fn joined(body: &str) -> String {
        let text = format!("function f (parallel 1, 2 gpr, 6 vector registers, 0 scratch bytes) {{\n{body}\n}}\n");
        let mut function = text::parse(&text).unwrap().remove(0);
        join(&mut function, &Target::avx512());
        function.to_string()
    }

    const COMPARED: &str =
        "r0 = argument 0\n v0 = load f32x16 f32 [r0]\n v1 = load f32x16 f32 [r0 + 64]\n v2 = lt f32x16 v0, v1\n";

    #[test]
    fn a_mask_that_one_selection_reads_is_in_a_mask_register() {
        let text = joined(&format!("{COMPARED} v3 = select f32x16 v2, v0, v1\n store f32x16 f32 v3, [r0]"));
        assert!(text.contains("v3 = choose lt f32x16 v0, v1, v0, v1") && !text.contains("v2"), "{text}");
    }

    #[test]
    fn a_mask_that_others_read_or_whose_operands_change_stays() {
        let select = "v3 = select f32x16 v2, v0, v1\n store f32x16 f32 v3, [r0]";
        let again = "v4 = and f32x16 v2, v0\n store f32x16 f32 v4, [r0]";
        let changed = "v1 = load f32x16 f32 [r0 + 128]";
        for body in [format!("{select}\n {again}"), format!("{changed}\n {select}")] {
            assert!(!joined(&format!("{COMPARED} {body}")).contains("choose"), "{body}");
        }
        let short = COMPARED.replace("f32x16", "f32x8");
        assert!(!joined(&format!("{short} {}", select.replace("f32x16", "f32x8"))).contains("choose"));
    }
}
