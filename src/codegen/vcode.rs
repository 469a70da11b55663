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

pub mod execute;
pub mod operands;
pub mod text;

use crate::expr::CompareOp;
use crate::runtime::DType;
use serde::{Deserialize, Serialize};

/// A virtual general-purpose register (64 bits), printed `r7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Gpr(pub u32);

/// A virtual vector register, printed `v7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Vreg(pub u32);

/// Lane type in a register. Narrower memory types are widened by loads and narrowed by stores.
/// A boolean in a register is a lane mask: all ones or all zeros, in lanes as wide as the data that it goes with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Lane {
    F32,
    F64,
    I32,
    I64,
}

impl Lane {
    pub fn bytes(self) -> usize {
        match self {
            Lane::F32 | Lane::I32 => 4,
            Lane::F64 | Lane::I64 => 8,
        }
    }
}

/// `lanes` lanes: a power of two from 1 to a full register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct VType {
    pub lane: Lane,
    pub lanes: u8,
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
    /// Every bit inverted.
    Not,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum VBinary {
    Add,
    Sub,
    Mul,
    /// Floats only.
    Div,
    /// Floats: where either operand is NaN the second operand is the result (x86's rule; AArch64 selects to match).
    Min,
    Max,
    And,
    Or,
    Xor,
    /// `!a & b`.
    AndNot,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ShiftOp {
    Left,
    RightLogical,
    RightArithmetic,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Inst {
    // ---- scalars and addresses
    /// `dst = value`.
    Imm {
        dst: Gpr,
        value: i64,
    },
    Copy {
        dst: Gpr,
        src: Gpr,
    },
    /// `dst = op(a, b)`.
    Int {
        op: GprOp,
        dst: Gpr,
        a: Gpr,
        b: Operand,
    },
    /// A sign- or zero-extended integer of type `mem` (i64, i32, i8, u8, bool).
    LoadInt {
        dst: Gpr,
        addr: Addr,
        mem: DType,
    },
    /// The pointer in slot `slot` of the argument table.
    Argument {
        dst: Gpr,
        slot: u32,
    },
    /// `first` (0) and `last` (1) of the calling convention.
    Range {
        dst: Gpr,
        which: u8,
    },
    /// The scratch pointer.
    Scratch {
        dst: Gpr,
    },

    // ---- control
    /// Runs the body `count` times (count is a copy that the loop owns and counts down); not at all when `count ≤ 0`.
    /// `at_least_once` says that the check at the head can be left out.
    LoopStart {
        count: Gpr,
        at_least_once: bool,
    },
    LoopEnd,
    /// The body up to the matching `IfEnd` runs when `op(a, b)` holds.
    IfStart {
        op: CompareOp,
        a: Gpr,
        b: Operand,
    },
    IfEnd,

    // ---- vectors
    /// Every lane holds the low bits of `bits`.
    VConst {
        dst: Vreg,
        ty: VType,
        bits: u64,
    },
    VCopy {
        dst: Vreg,
        src: Vreg,
        ty: VType,
    },
    /// Consecutive elements of memory type `mem`, widened to the lane type (integers and bool; the bits of f16 and bf16
    /// in I32 lanes; other floats as they are).
    VLoad {
        dst: Vreg,
        ty: VType,
        mem: DType,
        addr: Addr,
        part: Option<LaneRange>,
    },
    VStore {
        src: Vreg,
        ty: VType,
        mem: DType,
        addr: Addr,
        part: Option<LaneRange>,
    },
    /// Asks for the line at `addr` to be brought into the second cache. Any address may be given; nothing is read.
    Prefetch {
        addr: Addr,
    },
    /// One element in every lane.
    VBroadcast {
        dst: Vreg,
        ty: VType,
        mem: DType,
        addr: Addr,
    },
    /// Elements `stride` bytes apart.
    VGather {
        dst: Vreg,
        ty: VType,
        mem: DType,
        addr: Addr,
        stride: i64,
        part: Option<LaneRange>,
    },
    VScatter {
        src: Vreg,
        ty: VType,
        mem: DType,
        addr: Addr,
        stride: i64,
        part: Option<LaneRange>,
    },
    /// Element `base + lane_value·bytes(mem)` for each lane of `index` (I32 or I64 lanes).
    VGatherIndex {
        dst: Vreg,
        ty: VType,
        mem: DType,
        base: Gpr,
        index: Vreg,
        index_lane: Lane,
        part: Option<LaneRange>,
    },
    /// An integer register in every lane.
    VSplat {
        dst: Vreg,
        ty: VType,
        src: Gpr,
    },
    /// 0, 1, 2 … as integers.
    VIota {
        dst: Vreg,
        ty: VType,
    },
    VUnary {
        op: VUnary,
        dst: Vreg,
        ty: VType,
        a: Vreg,
    },
    VBinary {
        op: VBinary,
        dst: Vreg,
        ty: VType,
        a: Vreg,
        b: Vreg,
    },
    VShift {
        op: ShiftOp,
        dst: Vreg,
        ty: VType,
        a: Vreg,
        amount: u8,
    },
    /// `acc = a·b + acc`, or `acc - a·b`, rounded once.
    VFma {
        acc: Vreg,
        ty: VType,
        a: Vreg,
        b: Vreg,
        negate: bool,
    },
    /// A lane mask. Floats: ordered comparisons, `Ne` is unordered.
    VCompare {
        op: CompareOp,
        dst: Vreg,
        ty: VType,
        a: Vreg,
        b: Vreg,
    },
    /// `mask ? a : b`, by lane.
    VSelect {
        dst: Vreg,
        ty: VType,
        mask: Vreg,
        a: Vreg,
        b: Vreg,
    },
    /// Between lane types with the same number of lanes. Float to integer truncates (saturation unspecified).
    VConvert {
        dst: Vreg,
        to: VType,
        src: Vreg,
        from: Lane,
    },
    /// All lanes of `a` combined, in every lane of `dst`: a fixed tree (halves first), so that the result is
    /// the same on every run. Add, Mul, Min, Max.
    VReduce {
        op: VBinary,
        dst: Vreg,
        ty: VType,
        a: Vreg,
    },
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
}
