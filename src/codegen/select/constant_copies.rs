//! Copies of constants become loads, where loads are what an innermost loop has fewest of.
//!
//! In and out: a flat function for AArch64. A fused product overwrites what it adds to, so that a step of Horner's rule, `sum·x + c` with a
//! constant `c`, is a copy of `c` to which the product is added. The copy takes a vector unit, as the product does, and a register for `c`
//! throughout the loop. A load of the constant takes neither.

use crate::codegen::Target;
use crate::codegen::select::list_scheduling::blocks;
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, VType};

/// Loads constants instead of copying them, while the units for loads are less busy than those for vectors.
pub fn load(function: &mut Function, target: &Target) {
    if target.isa != Isa::Neon {
        return;
    }
    let constants = constants(function);
    for block in blocks(&function.insts) {
        let insts = &mut function.insts[block];
        let loads = insts.iter().filter(|inst| is_load(inst)).count();
        let vectors = insts.iter().filter(|inst| inst.ty().is_some() && !is_load(inst)).count();
        let (mut loads, mut vectors) = (loads + 1, vectors.saturating_sub(1));
        for inst in insts {
            let Inst::VCopy { dst, ty, src } = *inst else { continue };
            let Some((_, bits)) = constants[src.index()].filter(|constant| constant.0 == ty) else { continue };
            let constant = Inst::VConst { dst, ty, bits };
            if loads * target.machine.fma_per_cycle > vectors * target.machine.loads_per_cycle {
                break;
            }
            if constant.is_loaded_constant() {
                *inst = constant;
                (loads, vectors) = (loads + 1, vectors.saturating_sub(1));
            }
        }
    }
}

/// Returns true for instructions that load or store.
fn is_load(inst: &Inst) -> bool {
    inst.lanes().is_some() || inst.writes_memory() || inst.is_loaded_constant()
}

/// The constant in each register, where all that writes it is this constant.
fn constants(function: &Function) -> Vec<Option<(VType, u64)>> {
    let mut values: Vec<Option<Option<(VType, u64)>>> = vec![None; function.vregs as usize];
    for inst in &function.insts {
        let constant = match *inst {
            Inst::VConst { ty, bits, .. } => Some((ty, bits)),
            _ => None,
        };
        inst.registers(|class, access, r| {
            if class == Class::Vector && access.writes() {
                let value = &mut values[r as usize];
                *value = Some(constant.filter(|_| value.is_none_or(|value| value == constant)));
            }
        });
    }
    values.into_iter().map(Option::flatten).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text;

    fn loaded(head: &str, body: &str, target: &Target) -> String {
        let text = format!(
            "function f (parallel 1, 2 gpr, 40 vector registers, 0 scratch bytes) {{\n r0 = argument 0\n r1 = 8\n {head}\n loop r1 {{\n \
             {body}\n }}\n}}\n"
        );
        let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
        load(&mut function, target);
        let text = function.to_string();
        text[text.find("loop").unwrap()..].to_string()
    }

    const HORNER: &str = "v1 = load f32x4 f32 [r0]\n v2 = copy f32x4 v0\n v2 += f32x4 v1 * v1\n v3 = mul f32x4 v2, v1\n \
                          v4 = mul f32x4 v3, v1\n store f32x4 f32 v4, [r0]";

    #[test]
    fn a_copy_of_a_constant_is_a_load() {
        let text = loaded("v0 = const f32x4 #3ab6baf5", HORNER, &Target::neon());
        assert!(text.contains("v2 = const f32x4 #3ab6baf5") && !text.contains("copy"), "{text}");
        for target in [Target::avx2(), Target::avx512()] {
            assert!(loaded("v0 = const f32x4 #3ab6baf5", HORNER, &target).contains("copy"));
        }
    }

    /// Zeros take no load; a register with two constants, or one that is added to, is none.
    #[test]
    fn other_copies_stay() {
        for head in [
            "v0 = const f32x4 #0",
            "v0 = const i32x4 #ffffffff",
            "v0 = const f32x4 #3ab6baf5\n v0 = const f32x4 #3c091f11",
            "v0 = const f32x4 #3ab6baf5\n v0 += f32x4 v0 * v0",
        ] {
            assert!(loaded(head, HORNER, &Target::neon()).contains("copy"), "{head}");
        }
    }

    #[test]
    fn copies_stay_where_loads_are_as_many() {
        let loads: String = (5..20).map(|i| format!("v{i} = load f32x4 f32 [r0 + {}]\n ", 16 * i)).collect();
        let text = loaded("v0 = const f32x4 #3ab6baf5", &format!("{loads}{HORNER}"), &Target::neon());
        assert!(text.contains("copy"), "{text}");
    }
}
