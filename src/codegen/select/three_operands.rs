//! Copies that a fused product adds to: one instruction whose result is a register of its own.
//!
//! In and out: a flat function for x86-64. A step of Horner's rule, `sum·x + c` with a constant `c`, is a copy of `c` to which
//! the product is added; x86-64 can overwrite a factor as well, and read `c` from memory, so that a step is one instruction.

use crate::codegen::Target;
use crate::codegen::select::memory_operand::runs;
use crate::codegen::select::uses::{remove, uses};
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst};
use std::collections::BTreeSet;

/// Joins copies and the fused products that add to them.
pub fn join(function: &mut Function, target: &Target) {
    if !matches!(target.isa, Isa::Avx2 | Isa::Avx512) {
        return;
    }
    let copied = |inst: &Inst| matches!(inst, Inst::VCopy { ty, .. } if ty.lane.is_float());
    if !function.insts.iter().any(copied) {
        return;
    }
    let vectors = uses(function, Class::Vector);
    let runs = runs(function);
    let mut joined = BTreeSet::new();
    for index in 0..function.insts.len() {
        let Inst::VCopy { dst, ty, src: c } = function.insts[index] else { continue };
        let after = |places: &[usize]| places.get(places.partition_point(|&p| p <= index)).copied();
        let (read, written) = (vectors.read(dst.index()), vectors.written(dst.index()));
        let Some(end) = after(read).filter(|&end| after(written) == Some(end)) else { continue };
        let Inst::VFma { acc, negate, ty: added, a, b } = function.insts[end] else { continue };
        let apart = a != dst && b != dst && acc == dst && c != dst;
        if ty == added
            && ty.lane.is_float()
            && apart
            && runs[index] == runs[end]
            && vectors.stays(c.index(), index, end)
        {
            function.insts[end] = Inst::VFmaSum { dst, ty, c, negate, a, b };
            joined.insert(index);
        }
    }
    remove(function, &joined);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text;

    fn joined(body: &str, target: &Target) -> String {
        let text = format!("function f (parallel 1, 2 gpr, 9 vector registers, 0 scratch bytes) {{\n{body}\n}}\n");
        let mut function = text::parse(&text).unwrap().remove(0);
        join(&mut function, target);
        let text = function.to_string();
        assert_eq!(text::parse(&text).unwrap()[0].insts, function.insts, "{text}");
        text
    }

    #[test]
    fn a_copy_that_a_fused_product_adds_to_is_its_operand() {
        let body = "v0 = copy f32x8 v1\n v0 -= f32x8 v2 * v3\n v4 = copy f32x8 v1\n v4 += f32x8 v0 * v3";
        for target in [Target::avx2(), Target::avx512()] {
            let text = joined(body, &target);
            assert!(text.contains("v0 = f32x8 v1 - v2 * v3") && text.contains("v4 = f32x8 v1 + v0 * v3"), "{text}");
            assert!(!text.contains("copy"), "{text}");
        }
        assert!(joined(body, &Target::neon()).contains("copy"));
    }

    #[test]
    fn a_copy_that_is_needed_stays() {
        for body in [
            "v0 = copy f32x8 v1\n v0 += f32x8 v0 * v2",
            "v0 = copy f32x8 v1\n v3 = add f32x8 v0, v2\n v0 += f32x8 v2 * v3",
            "v0 = copy f32x8 v1\n v1 = add f32x8 v2, v3\n v0 += f32x8 v2 * v3",
            "v0 = copy f32x8 v1\n loop r1 {\n v0 += f32x8 v2 * v3\n }",
            "v0 = copy i32x8 v1\n v0 += i32x8 v2 * v3",
        ] {
            assert!(joined(body, &Target::avx512()).contains("v0 = copy"), "{body}");
        }
    }
}
