//! VCode: machine instructions over virtual registers, the same for every architecture.
//!
//! A function is a flat list with structured loops and conditionals. Registers are not in SSA form: an accumulator is
//! written before a loop and updated in it. A vector value is `lanes` elements of one lane type; where `lanes` is less than
//! a full register the upper lanes are unspecified. Calling convention of the emitted code:
//!
//! `extern "sysv64" fn(arguments: *const *mut u8, first: i64, last: i64, scratch: *mut u8)`
//!
//! `first..last` is this thread's part of the parallel loop (0..1 for a serial phase); `scratch` points to
//! `scratch_bytes` bytes, 64-byte aligned, of the thread's own. Subnormal floats count as zero in arithmetic (each operation
//! on one would take a hundred cycles); the caller's floating-point mode is restored.

pub mod arithmetic;
pub mod execute;
pub mod lanes;
pub mod operands;
pub mod text;

use crate::codegen::instruction::{InstructionName, TILES, TensorInstruction};
use crate::codegen::target::{Isa, Target};
use crate::expr::CompareOp;
use crate::runtime::{DType, Error, Result};
use operands::{Access, Class, Group, PerClass, Registers, define, insts};
use serde::{Deserialize, Serialize};

/// A virtual general-purpose register (64 bits), printed `r7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Gpr(pub u32);

/// A virtual vector register, printed `v7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Vreg(pub u32);

/// A tile register, printed `t3`: a physical one, which selection chooses. None is ever spilled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Tile(pub u8);

/// Rows of each tile register and bytes of a row, printed `16x64 16x64 0x0 …`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Shapes(pub [(u8, u8); TILES]);

/// Lane type in a register. Narrower memory types are widened by loads and narrowed by stores. Whether integers of 8 and 16
/// bits have a sign counts for comparisons, extremes and upper halves of products.
/// A boolean in a register is a lane mask: all ones or all zeros, in lanes as wide as the data that it goes with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Lane {
    F32,
    F64,
    I32,
    I64,
    I16,
    U16,
    I8,
    U8,
}

impl Lane {
    pub const ALL: [Lane; 8] = [Lane::F32, Lane::F64, Lane::I32, Lane::I64, Lane::I16, Lane::U16, Lane::I8, Lane::U8];

    pub fn bytes(self) -> usize {
        match self {
            Lane::I8 | Lane::U8 => 1,
            Lane::I16 | Lane::U16 => 2,
            Lane::F32 | Lane::I32 => 4,
            Lane::F64 | Lane::I64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Lane::F32 | Lane::F64)
    }

    /// Operations of a product in such lanes, as Fog's tables (Instruction tables, 2022) have them for Intel's cores.
    pub fn product_operations(self) -> f64 {
        match self {
            Lane::I32 => 2.0,
            Lane::I64 => 3.0,
            _ => 1.0,
        }
    }

    /// Returns true if comparisons and extremes take the lanes as numbers without a sign.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Lane::U16 | Lane::U8)
    }

    /// The signed integers of `bytes` bytes, the lanes of masks that go with lanes as wide.
    pub fn integer(bytes: usize) -> Lane {
        match bytes {
            1 => Lane::I8,
            2 => Lane::I16,
            4 => Lane::I32,
            _ => Lane::I64,
        }
    }

    /// All bits of a lane.
    pub fn all_ones(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// `lanes` lanes: a power of two from 1 to a full register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct VType {
    pub lane: Lane,
    pub lanes: u8,
}

impl VType {
    /// Bytes of all lanes.
    pub fn bytes(self) -> usize {
        self.lanes as usize * self.lane.bytes()
    }

    /// Returns true if the lanes fill a register.
    pub fn is_whole(self, target: &Target) -> bool {
        self.bytes() == target.vector_bytes
    }

    /// Returns true if a comparison writes a mask register: one of whole registers of AVX-512.
    pub fn compares_to_mask(self, target: &Target) -> bool {
        target.isa == Isa::Avx512 && self.is_whole(target)
    }
}

/// `base + index·scale + disp` bytes; scale is 1, 2, 4 or 8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Addr {
    pub base: Gpr,
    pub index: Option<(Gpr, u8)>,
    pub disp: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Operand {
    Reg(Gpr),
    Imm(i64),
}

/// Lanes `first..first+count` take part; the others are not read or written in memory (a masked load gives zero there).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LaneRange {
    pub first: u8,
    pub count: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GprOp {
    Add,
    Sub,
    Mul,
    Min,
    Max,
    /// Floor division; the second operand is a positive immediate.
    DivFloor,
    And,
    Or,
    Xor,
    /// The amount is the second operand, of which the low 6 bits count. Of 64 bits alone.
    ShiftLeft,
    /// As [`GprOp::ShiftLeft`], to the right with the sign.
    ShiftRight,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum VUnary {
    Abs,
    Neg,
    Sqrt,
    Floor,
    Ceil,
    /// Nearest, ties to even.
    Round,
    /// As [`VUnary::Sqrt`] of f32, without the divider. AVX-512.
    Root,
    /// The inverse, correctly rounded, for [`Inst::VQuotient`]; not-a-number where it or the number is not normal. AVX-512.
    Inverse,
    /// The inverse of an f32 within two units in the last place, but 0 where it is subnormal: an estimate and steps. AVX-512 and NEON.
    InverseApproximate,
    /// The square root of an f32 within two units in the last place. AVX-512.
    RootApproximate,
    /// The inverse of the square root of an f32 within two units in the last place. AVX-512.
    InverseRootApproximate,
    /// Every bit inverted.
    Not,
    /// The number of bits that are one; integers of 32 and 64 bits with `avx512vpopcntdq`, all with NEON.
    CountOnes,
    /// In words: the f32 that the f16 in the low half is. Subnormal halves are numbers; another not-a-number may result.
    WidenHalf,
    /// In words: the bits of the f16 nearest to an f32, ties to even, zero above; any not-a-number for one.
    NarrowHalf,
    /// In words: the f32 nearest to an f32 that an f16 can hold.
    RoundHalf,
    /// In words: the bits of the bf16 nearest to an f32, ties to even, zero above; x86-64 with `avx512bf16` alone.
    NarrowBf16,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum VBinary {
    Add,
    Sub,
    Mul,
    /// The upper half of a product; integers of 16 bits only.
    MulHigh,
    /// The product of the signed lower halves plus that of the signed upper halves; integers of 32 bits only.
    MulPairs,
    /// Floats only.
    Div,
    /// `a·2^⌊b⌋` of floats, `b` not infinite. AVX-512.
    Scale,
    /// Floats: where either operand is NaN the second operand is the result (x86's rule; AArch64 selects to match).
    Min,
    Max,
    And,
    Or,
    Xor,
    /// `!a & b`.
    AndNot,
    /// `a` shifted by `b`, a number without a sign; 0 where that is the number of bits of a lane or more. Integers of 32 and 64
    /// bits; x86-64.
    ShiftLeft,
    /// As `ShiftLeft`, to the right.
    ShiftRight,
    /// As `ShiftRight`, filled with the sign; integers of 64 bits with AVX-512.
    ShiftRightSigned,
}

impl VBinary {
    /// Returns true for the operations by which [`Inst::VReduceFour`] combines lanes of a type.
    pub fn combines_four(self, ty: VType) -> bool {
        let combines = matches!(self, VBinary::Add | VBinary::Mul | VBinary::Min | VBinary::Max);
        combines && ty.lane.bytes() == 4 && ty.lanes >= 4
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ShiftOp {
    Left,
    RightLogical,
    RightArithmetic,
}

/// The lanes of two registers `a` and `b` in another order; of registers of at least 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Zip {
    /// `a0 b0 a1 b1 …`, of the lower halves.
    Low,
    /// As `Low`, of the upper halves.
    High,
    /// `a0 a2 … b0 b2 …`.
    Even,
    /// `a1 a3 … b1 b3 …`.
    Odd,
}

impl Zip {
    /// The source of lane `i` of `lanes`: a lane of `a`, or `lanes` more for one of `b`.
    pub fn source(self, i: usize, lanes: usize) -> usize {
        match self {
            Zip::Low => i / 2 + i % 2 * lanes,
            Zip::High => lanes / 2 + i / 2 + i % 2 * lanes,
            Zip::Even => 2 * i,
            Zip::Odd => 2 * i + 1,
        }
    }
}

/// Lanes of a memory access; all of them without a range.
pub type Part = Option<LaneRange>;

insts!(define!());

impl Inst {
    /// Calls `f` on each register operand, those that are read first.
    pub fn registers(&self, mut f: impl FnMut(Class, Access, u32)) {
        self.clone().registers_mut(&mut |class, access, register| f(class, access, *register));
    }

    /// The address operand.
    pub fn address(&self) -> Option<Addr> {
        self.clone().address_mut().copied()
    }

    /// Returns true at the start and the end of loops and conditionals.
    pub fn is_control(&self) -> bool {
        matches!(self, Inst::LoopStart { .. } | Inst::LoopEnd | Inst::IfStart { .. } | Inst::IfEnd)
    }

    /// Returns true for instructions on tile registers, which passes over vectors leave alone.
    pub fn is_tile(&self) -> bool {
        self.group() == Group::Tile
    }

    /// Returns true for instructions that write memory.
    pub fn writes_memory(&self) -> bool {
        self.group() == Group::Store || matches!(self, Inst::TileStore { .. })
    }

    /// Returns true if the instruction does nothing but give its registers what follows from others, and from memory at its address
    /// alone. Not a copy, which costs less than a register that keeps its value.
    pub fn only_computes(&self) -> bool {
        let mut updates = false;
        self.registers(|_, access, _| updates |= access.reads() && access.writes());
        let elsewhere = matches!(self, Inst::VGatherIndex { .. } | Inst::VLoadWhere { .. });
        !(updates
            || elsewhere
            || self.is_tile()
            || self.writes_memory()
            || matches!(self, Inst::VCopy { .. } | Inst::Expect { .. }))
    }

    /// Returns true if the value written is the same wherever the instruction stands: it may be rematerialized.
    pub fn is_constant(&self) -> bool {
        matches!(self, Inst::Imm { .. } | Inst::VConst { .. } | Inst::VIota { .. })
    }

    /// Returns true for a constant of a vector that has some of its bits set and others not: AArch64 loads it.
    pub fn is_loaded_constant(&self) -> bool {
        let Inst::VConst { ty, bits, .. } = self else { return false };
        let all = ty.lane.all_ones();
        ![0, all].contains(&(bits & all))
    }
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

/// A virtual vector register that an instruction may lack, printed `, v7`.
pub type OptionalVreg = Option<Vreg>;

impl Registers for OptionalVreg {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32)) {
        if let Some(r) = self {
            r.visit(access, f);
        }
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

impl Gpr {
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The physical register, after allocation.
    pub fn number(self) -> u8 {
        self.0 as u8
    }
}

impl Vreg {
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The physical register, after allocation.
    pub fn number(self) -> u8 {
        self.0 as u8
    }
}

/// One phase of a kernel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    pub insts: Vec<Inst>,
    /// Number of virtual registers of each class.
    pub gprs: u32,
    pub vregs: u32,
    /// Bytes used behind the scratch pointer.
    pub scratch_bytes: u64,
    /// Iterations of the parallel loop; `None` for a serial phase.
    pub parallel: Option<i64>,
    /// Iterations between two barriers of the parallel loop; `None` when it needs none.
    pub wave: Option<i64>,
    /// The rows that its tensor instructions name.
    pub instructions: Vec<TensorInstruction>,
}

impl Function {
    /// The row that a tensor instruction names.
    ///
    /// # Errors
    /// [`Error::Internal`] where the function has no such row.
    pub fn row(&self, name: InstructionName) -> Result<&TensorInstruction> {
        let row = self.instructions.iter().find(|r| r.name == name);
        row.ok_or_else(|| Error::Internal(format!("{}: `{name}` is not a tensor instruction of the target", self.name)))
    }

    /// Numbers of virtual registers.
    pub fn registers(&self) -> PerClass<u32> {
        PerClass { gpr: self.gprs, vector: self.vregs }
    }
}
