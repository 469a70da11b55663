//! The table of instructions: the operands of each, which registers it reads and writes, and its text form.

use crate::codegen::vcode::{Addr, Gpr, Inst, Operand, Vreg};
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

/// The table of instructions. A row has the text form, where `{}` stands for the next operand, and every operand in
/// its order there. Registers, addresses and operands that may be immediate are of the role `read`, `write` or `update`
/// (read, then written); other operands are `data` or of a role that names their spelling (see `text.rs`).
macro_rules! insts {
    ($rows:ident!($($argument:tt)*)) => {
        $rows! { ($($argument)*)
            // ---- scalars and addresses
            Imm: "{} = {}", write(dst), data(value);
            Copy: "{} = {}", write(dst), read(src);
            Int: "{} = {} {}, {}", write(dst), data(op), read(a), read(b);
            LoadInt: "{} = load {} {}", write(dst), data(mem), read(addr);
            Argument: "{} = argument {}", write(dst), data(slot);
            Range: "{} = {}", write(dst), bound(which);
            Scratch: "{} = scratch", write(dst);
            // ---- control
            LoopStart: "loop {}{} {", read(count), at_least_once(at_least_once);
            LoopEnd: "}";
            IfStart: "if {} {}, {} {", data(op), read(a), read(b);
            IfEnd: "}";
            // ---- vectors
            VConst: "{} = const {} #{}", write(dst), data(ty), hexadecimal(bits);
            VCopy: "{} = copy {} {}", write(dst), data(ty), read(src);
            VLoad: "{} = load {} {} {}{}", write(dst), data(ty), data(mem), read(addr), data(part);
            VStore: "store {} {} {}, {}{}", data(ty), data(mem), read(src), read(addr), data(part);
            Prefetch: "prefetch {}", read(addr);
            VBroadcast: "{} = broadcast {} {} {}", write(dst), data(ty), data(mem), read(addr);
            VGather: "{} = gather {} {} {} stride {}{}",
                write(dst), data(ty), data(mem), read(addr), data(stride), data(part);
            VScatter: "scatter {} {} {}, {} stride {}{}",
                data(ty), data(mem), read(src), read(addr), data(stride), data(part);
            VGatherIndex: "{} = gather {} {} [{} + {} as {}]{}",
                write(dst), data(ty), data(mem), read(base), read(index), data(index_lane), data(part);
            VSplat: "{} = splat {} {}", write(dst), data(ty), read(src);
            VIota: "{} = iota {}", write(dst), data(ty);
            VUnary: "{} = {} {} {}", write(dst), data(op), data(ty), read(a);
            VBinary: "{} = {} {} {}, {}", write(dst), data(op), data(ty), read(a), read(b);
            VShift: "{} = shift {} {} {}, {}", write(dst), data(op), data(ty), read(a), data(amount);
            VFma: "{} {}= {} {} * {}", update(acc), sign(negate), data(ty), read(a), read(b);
            VCompare: "{} = {} {} {}, {}", write(dst), data(op), data(ty), read(a), read(b);
            VSelect: "{} = select {} {}, {}, {}", write(dst), data(ty), read(mask), read(a), read(b);
            VConvert: "{} = convert {} from {} {}", write(dst), data(to), data(from), read(src);
            VReduce: "{} = reduce {} {} {}", write(dst), data(op), data(ty), read(a);
        }
    };
}
pub(super) use insts;

/// An operand that consists of registers.
trait Registers {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32));
}

impl Registers for Gpr {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32)) {
        f(Class::Gpr, access, &mut self.0);
    }
}

impl Registers for Vreg {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32)) {
        f(Class::Vector, access, &mut self.0);
    }
}

impl Registers for Operand {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32)) {
        if let Operand::Reg(r) = self {
            r.visit(access, f);
        }
    }
}

impl Registers for Addr {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32)) {
        self.base.visit(access, f);
        if let Some((index, _)) = &mut self.index {
            index.visit(access, f);
        }
    }
}

/// Visits the registers of one row: those that are read, then those that are written.
macro_rules! visit {
    (($inst:expr, $f:expr) $($variant:ident: $text:literal $(, $role:ident($field:ident))*;)*) => {
        match $inst {
            $(Inst::$variant { $($field),* } => {
                $(visit!(@reads $role $field, $f);)*
                $(visit!(@writes $role $field, $f);)*
            })*
        }
    };
    (@reads read $field:ident, $f:expr) => { $field.visit(Access::Use, $f) };
    (@writes write $field:ident, $f:expr) => { $field.visit(Access::Def, $f) };
    (@writes update $field:ident, $f:expr) => { $field.visit(Access::UseDef, $f) };
    (@$pass:ident $role:ident $field:ident, $f:expr) => { let _ = &$field; };
}

impl Inst {
    /// Calls `f` on each register operand, those that are read first, then those that are written.
    pub fn registers_mut(&mut self, f: &mut impl FnMut(Class, Access, &mut u32)) {
        insts!(visit!(self, f))
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
