//! The registers that an instruction reads and writes: one table for liveness, allocation, checking and printing.

use crate::codegen::vcode::{Addr, Gpr, Inst, Operand, Vreg};
use serde::{Deserialize, Serialize};

/// Register class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Class {
    Gpr,
    Vector,
}

/// How an instruction touches a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Use,
    Def,
    /// Read and then written: the accumulator of an FMA.
    UseDef,
}

impl Access {
    pub fn reads(self) -> bool {
        self != Access::Def
    }
    pub fn writes(self) -> bool {
        self != Access::Use
    }
}

impl Inst {
    /// Calls `f` on each register operand, those that are read first, then those that are written.
    pub fn registers_mut(&mut self, f: &mut impl FnMut(Class, Access, &mut u32)) {
        use crate::codegen::vcode::operands::Access::{Def, Use, UseDef};
        macro_rules! gpr {
            ($a:expr, $r:expr) => {
                f(Class::Gpr, $a, &mut $r.0)
            };
        }
        macro_rules! vec {
            ($a:expr, $r:expr) => {
                f(Class::Vector, $a, &mut $r.0)
            };
        }
        macro_rules! addr {
            ($addr:expr) => {{
                let Addr { base, index, .. } = $addr;
                gpr!(Use, base);
                if let Some((i, _)) = index {
                    gpr!(Use, i);
                }
            }};
        }
        match self {
            Inst::Imm { dst, .. }
            | Inst::Argument { dst, .. }
            | Inst::Range { dst, .. }
            | Inst::Scratch { dst, .. } => {
                gpr!(Def, dst)
            }
            Inst::Copy { dst, src } => {
                gpr!(Use, src);
                gpr!(Def, dst);
            }
            Inst::Int { dst, a, b, .. } => {
                gpr!(Use, a);
                if let Operand::Reg(b) = b {
                    gpr!(Use, b);
                }
                gpr!(Def, dst);
            }
            Inst::LoadInt { dst, addr, .. } => {
                addr!(addr);
                gpr!(Def, dst);
            }
            Inst::Prefetch { addr } => addr!(addr),
            Inst::LoopStart { count, .. } => gpr!(Use, count),
            Inst::LoopEnd | Inst::IfEnd => {}
            Inst::IfStart { a, b, .. } => {
                gpr!(Use, a);
                if let Operand::Reg(b) = b {
                    gpr!(Use, b);
                }
            }
            Inst::VConst { dst, .. } | Inst::VIota { dst, .. } => vec![Def, dst],
            Inst::VCopy { dst, src, .. } | Inst::VConvert { dst, src, .. } => {
                vec![Use, src];
                vec![Def, dst];
            }
            Inst::VLoad { dst, addr, .. } | Inst::VBroadcast { dst, addr, .. } | Inst::VGather { dst, addr, .. } => {
                addr!(addr);
                vec![Def, dst];
            }
            Inst::VStore { src, addr, .. } | Inst::VScatter { src, addr, .. } => {
                vec![Use, src];
                addr!(addr);
            }
            Inst::VGatherIndex { dst, base, index, .. } => {
                gpr!(Use, base);
                vec![Use, index];
                vec![Def, dst];
            }
            Inst::VSplat { dst, src, .. } => {
                gpr!(Use, src);
                vec![Def, dst];
            }
            Inst::VUnary { dst, a, .. } | Inst::VShift { dst, a, .. } | Inst::VReduce { dst, a, .. } => {
                vec![Use, a];
                vec![Def, dst];
            }
            Inst::VBinary { dst, a, b, .. } | Inst::VCompare { dst, a, b, .. } => {
                vec![Use, a];
                vec![Use, b];
                vec![Def, dst];
            }
            Inst::VFma { acc, a, b, .. } => {
                vec![Use, a];
                vec![Use, b];
                vec![UseDef, acc];
            }
            Inst::VSelect { dst, mask, a, b, .. } => {
                vec![Use, mask];
                vec![Use, a];
                vec![Use, b];
                vec![Def, dst];
            }
        }
    }

    /// Calls `f` on each register operand, those that are read first.
    pub fn registers(&self, mut f: impl FnMut(Class, Access, u32)) {
        self.clone().registers_mut(&mut |class, access, register| f(class, access, *register));
    }

    /// Whether the value written is the same wherever the instruction stands: it may be computed again instead of kept.
    pub fn is_constant(&self) -> bool {
        matches!(self, Inst::Imm { .. } | Inst::VConst { .. } | Inst::VIota { .. })
    }
}

impl Gpr {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Vreg {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
