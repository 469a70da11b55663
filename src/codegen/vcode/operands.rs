//! The registers that an instruction reads and writes: one table for liveness, allocation, checking and printing.

use crate::codegen::vcode::{Gpr, Inst, Operand, Vreg};
use serde::{Deserialize, Serialize};

/// Register class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Class {
    Gpr,
    Vector,
}

/// The access of an instruction to a register.
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

/// Visits the operands of one row, in its order. Roles: a general-purpose register or vector that is used, defined or both,
/// an operand that may be immediate, an address.
macro_rules! operands {
    ($inst:expr, $f:expr, { $($variant:ident: $($role:ident($field:ident)),*;)* }) => {
        match $inst {
            $(Inst::$variant { $($field,)* .. } => { $(operands!(@$role $f, $field);)* })*
        }
    };
    (@use_gpr $f:expr, $r:ident) => { $f(Class::Gpr, Access::Use, &mut $r.0) };
    (@def_gpr $f:expr, $r:ident) => { $f(Class::Gpr, Access::Def, &mut $r.0) };
    (@use_vec $f:expr, $r:ident) => { $f(Class::Vector, Access::Use, &mut $r.0) };
    (@def_vec $f:expr, $r:ident) => { $f(Class::Vector, Access::Def, &mut $r.0) };
    (@acc_vec $f:expr, $r:ident) => { $f(Class::Vector, Access::UseDef, &mut $r.0) };
    (@use_any $f:expr, $r:ident) => {
        if let Operand::Reg(r) = $r {
            $f(Class::Gpr, Access::Use, &mut r.0);
        }
    };
    (@address $f:expr, $r:ident) => {
        $f(Class::Gpr, Access::Use, &mut $r.base.0);
        if let Some((index, _)) = &mut $r.index {
            $f(Class::Gpr, Access::Use, &mut index.0);
        }
    };
}

impl Inst {
    /// Calls `f` on each register operand, those that are read first, then those that are written.
    pub fn registers_mut(&mut self, f: &mut impl FnMut(Class, Access, &mut u32)) {
        operands!(self, f, {
            Imm: def_gpr(dst);
            Argument: def_gpr(dst);
            Range: def_gpr(dst);
            Scratch: def_gpr(dst);
            Copy: use_gpr(src), def_gpr(dst);
            Int: use_gpr(a), use_any(b), def_gpr(dst);
            LoadInt: address(addr), def_gpr(dst);
            Prefetch: address(addr);
            LoopStart: use_gpr(count);
            LoopEnd: ;
            IfStart: use_gpr(a), use_any(b);
            IfEnd: ;
            VConst: def_vec(dst);
            VIota: def_vec(dst);
            VCopy: use_vec(src), def_vec(dst);
            VConvert: use_vec(src), def_vec(dst);
            VLoad: address(addr), def_vec(dst);
            VBroadcast: address(addr), def_vec(dst);
            VGather: address(addr), def_vec(dst);
            VGatherIndex: use_gpr(base), use_vec(index), def_vec(dst);
            VStore: use_vec(src), address(addr);
            VScatter: use_vec(src), address(addr);
            VSplat: use_gpr(src), def_vec(dst);
            VUnary: use_vec(a), def_vec(dst);
            VShift: use_vec(a), def_vec(dst);
            VReduce: use_vec(a), def_vec(dst);
            VBinary: use_vec(a), use_vec(b), def_vec(dst);
            VCompare: use_vec(a), use_vec(b), def_vec(dst);
            VFma: use_vec(a), use_vec(b), acc_vec(acc);
            VSelect: use_vec(mask), use_vec(a), use_vec(b), def_vec(dst);
        })
    }

    /// Calls `f` on each register operand, those that are read first.
    pub fn registers(&self, mut f: impl FnMut(Class, Access, u32)) {
        self.clone().registers_mut(&mut |class, access, register| f(class, access, *register));
    }

    /// Returns true if the value written is the same wherever the instruction stands: it may be rematerialized.
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
