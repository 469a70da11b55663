//! Constants among the floats in virtual registers, and registers without signalling NaNs.
//!
//! In: a function. Out: where the instructions for minima and maxima of AArch64 compute those of VCode, which take the second operand
//! where two numbers do not compare.

use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, Lane, VBinary, VUnary, Vreg};

/// Constants and quiet registers of a function.
pub(super) struct Numbers {
    /// The lane type and bits of registers that hold the same constant wherever they are read.
    constants: Vec<Option<(Lane, u64)>>,
    /// Registers that only hold numbers, and what arithmetic returns, which is never a signalling NaN.
    quiet: Vec<bool>,
}

impl Numbers {
    pub(super) fn of(function: &Function) -> Numbers {
        let constants = constants(function);
        let mut quiet = vec![true; function.vregs as usize];
        loop {
            let before = quiet.clone();
            for inst in &function.insts {
                let keeps = is_quiet(inst, &quiet);
                inst.registers(|class, access, r| {
                    if class == Class::Vector && access.writes() {
                        quiet[r as usize] &= keeps;
                    }
                });
            }
            if quiet == before {
                return Numbers { constants, quiet };
            }
        }
    }

    /// Returns true if a register holds a number that is not zero in lanes of floats.
    pub(super) fn is_nonzero(&self, r: Vreg) -> bool {
        self.number(r).is_some_and(|x| x != 0.0)
    }

    /// Returns true if no lane of a register is a signalling NaN.
    pub(super) fn is_quiet(&self, r: Vreg) -> bool {
        self.quiet[r.index()]
    }

    /// Returns true if a register holds a number that `op` returns where the other operand is a zero of either sign: AArch64 has -0 less
    /// than 0, VCode has them equal.
    pub(super) fn keeps_sign(&self, op: VBinary, r: Vreg) -> bool {
        let negative = op == VBinary::Min;
        self.number(r).is_some_and(|x| x != 0.0 || x.is_sign_negative() == negative)
    }

    /// The number in lanes of floats, where it is the same one wherever it is read.
    fn number(&self, r: Vreg) -> Option<f64> {
        let number = match self.constants[r.index()]? {
            (Lane::F32, bits) => f32::from_bits(bits as u32).into(),
            (Lane::F64, bits) => f64::from_bits(bits),
            _ => return None,
        };
        Some(number).filter(|x: &f64| !x.is_nan())
    }
}

/// Returns true if what an instruction writes has no signalling NaN, where `quiet` says so of what it reads.
fn is_quiet(inst: &Inst, quiet: &[bool]) -> bool {
    match *inst {
        Inst::VFma { ty, .. } => ty.lane.is_float(),
        Inst::VBinary { op: VBinary::Add | VBinary::Sub | VBinary::Mul | VBinary::Div, ty, .. } => ty.lane.is_float(),
        Inst::VBinary { op: VBinary::Min | VBinary::Max, ty, a, b, .. } => {
            ty.lane.is_float() && quiet[a.index()] && quiet[b.index()]
        }
        Inst::VUnary { op: VUnary::Sqrt, ty, .. } => ty.lane.is_float(),
        Inst::VConvert { to, from, .. } => to.lane.is_float() && from != to.lane,
        Inst::VConst { ty, bits, .. } => match ty.lane {
            Lane::F32 => !f32::from_bits(bits as u32).is_nan(),
            Lane::F64 => !f64::from_bits(bits).is_nan(),
            _ => false,
        },
        Inst::VCopy { src, .. } => quiet[src.index()],
        _ => false,
    }
}

fn constants(function: &Function) -> Vec<Option<(Lane, u64)>> {
    let mut values = vec![None; function.vregs as usize];
    let mut written = vec![false; function.vregs as usize];
    for inst in &function.insts {
        inst.registers(|class, access, r| {
            if class == Class::Vector && access.writes() {
                let constant = match inst {
                    Inst::VConst { ty, bits, .. } => Some((ty.lane, bits & ty.lane.all_ones())),
                    _ => None,
                };
                let first = !std::mem::replace(&mut written[r as usize], true);
                let same = first || values[r as usize] == constant;
                values[r as usize] = constant.filter(|_| same);
            }
        });
    }
    values
}
