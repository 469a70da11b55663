//! The table of instructions: their fields, the registers that each reads and writes, and their text form.

use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

/// Register class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Class {
    Gpr,
    Vector,
}

impl Class {
    pub const ALL: [Class; 2] = [Class::Gpr, Class::Vector];
}

/// A value for each register class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PerClass<T> {
    pub gpr: T,
    pub vector: T,
}

impl<T> Index<Class> for PerClass<T> {
    type Output = T;
    fn index(&self, class: Class) -> &T {
        match class {
            Class::Gpr => &self.gpr,
            Class::Vector => &self.vector,
        }
    }
}

impl<T> IndexMut<Class> for PerClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Gpr => &mut self.gpr,
            Class::Vector => &mut self.vector,
        }
    }
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

/// The part of an emitter that encodes an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Integers, addresses and control flow.
    Scalar,
    /// Lanes from memory to registers.
    Load,
    /// Lanes from registers to memory.
    Store,
    /// Lanes in registers.
    Vector,
    /// Tile registers.
    Tile,
}

/// A field of an instruction that names registers.
pub trait Registers {
    fn visit(&mut self, access: Access, f: &mut impl FnMut(Class, Access, &mut u32));
}

/// The table of instructions, passed to a macro behind its argument. A row is a name, its [`Group`], its text, where `{}` stands
/// for the next field, and its fields in that order: each field that names registers with its [`Access`], each that is not
/// spelled as its type is with its spelling in brackets.
macro_rules! insts {
    ($rows:ident!($($argument:tt)*)) => {
        $rows! { ($($argument)*)
            // ---- scalars and addresses
            /// `dst = value`.
            Imm Scalar "{} = {}" { dst: Gpr (Def), value: i64 }
            Copy Scalar "{} = {}" { dst: Gpr (Def), src: Gpr (Use) }
            /// `dst = op(a, b)`.
            Int Scalar "{} = {} {}, {}" { dst: Gpr (Def), op: GprOp, a: Gpr (Use), b: Operand (Use) }
            /// As Int of the lower 32 bits, zero above; no DivFloor.
            Word Scalar "{} = word {} {}, {}" { dst: Gpr (Def), op: GprOp, a: Gpr (Use), b: Operand (Use) }
            /// `dst = a` shifted by fewer bits than the integers of type `lane` have; of i32 the lower 32 bits, zero above.
            Shift Scalar "{} = shift {} {} {}, {}" { dst: Gpr (Def), op: ShiftOp, lane: Lane, a: Gpr (Use), amount: u8 }
            /// The low bits of `src`, an integer of type `mem`, sign- or zero-extended.
            Extend Scalar "{} = extend {} {}" { dst: Gpr (Def), mem: DType, src: Gpr (Use) }
            /// `dst = op(a, b) ? yes : no`; of i32 the comparison is that of the lower 32 bits.
            Choose Scalar "{} = choose {} {} {}, {}, {}, {}" {
                dst: Gpr (Def), op: CompareOp, lane: Lane, a: Gpr (Use), b: Operand (Use), yes: Gpr (Use), no: Gpr (Use)
            }
            /// `dst = src`, brought into 0..extent. A value below is kept in the first element of argument `least` if it is less than what is there, one above
            /// in that of `greatest` if it is greater; these are of type `mem`.
            Inside Scalar "{} = inside {} below {} else {} {} {}" {
                dst: Gpr (Def), src: Gpr (Use), extent: i64, mem: DType, least: u32, greatest: u32
            }
            /// A sign- or zero-extended integer of type `mem` (i64, i32, i8, u8, bool).
            LoadInt Scalar "{} = load {} {}" { dst: Gpr (Def), mem: DType, addr: Addr (Use) }
            /// The low bytes of `src` to an element of type `mem`.
            StoreInt Store "store {} {}, {}" { mem: DType, src: Gpr (Use), addr: Addr (Use) }
            /// The pointer in slot `slot` of the argument table.
            Argument Scalar "{} = argument {}" { dst: Gpr (Def), slot: u32 }
            /// `first` (0) and `last` (1) of the calling convention.
            Range Scalar "{} = {}" { dst: Gpr (Def), which: u8 [bound] }
            /// The scratch pointer.
            Scratch Scalar "{} = scratch" { dst: Gpr (Def) }
            /// Asks for the line at `addr` to be brought into the second cache. Any address may be given; nothing is read.
            Prefetch Scalar "prefetch {}" { addr: Addr (Use) }

            // ---- control
            /// Does nothing; `count`, which a loop or a conditional that follows reads, is expected to be so many.
            Expect Scalar "expect {}, {}" { count: Gpr (Use), iterations: i64 }
            /// Runs the body `count` times (count is a copy that the loop owns and counts down); not at all when `count ≤ 0`.
            /// `at_least_once` says that the check at the head can be left out.
            LoopStart Scalar "loop {}{} {" { count: Gpr (Use), at_least_once: bool [at_least_once] }
            LoopEnd Scalar "}"
            /// The body up to the matching `IfEnd` runs when `op(a, b)` holds.
            IfStart Scalar "if {} {}, {} {" { op: CompareOp, a: Gpr (Use), b: Operand (Use) }
            IfEnd Scalar "}"

            // ---- lanes in memory
            /// Consecutive elements of memory type `mem`, widened to the lane type (integers and bool; the bits of f16 and bf16
            /// in I32 lanes, or an f16 in F32 lanes where all of at least four are loaded; other floats as they are).
            VLoad Load "{} = load {} {} {}{}" {
                dst: Vreg (Def), ty: VType, mem: DType, addr: Addr (Use), part: Part
            }
            /// As VLoad of elements of 4 or 8 bytes in lanes of the same size, 16 bytes or more in all, where the lane of `mask`
            /// is all ones; zero where it is all zeros. Not on NEON.
            VLoadWhere Load "{} = load {} {} {} where {}" {
                dst: Vreg (Def), ty: VType, mem: DType, addr: Addr (Use), mask: Vreg (Use)
            }
            VStore Store "store {} {} {}, {}{}" {
                ty: VType, mem: DType, src: Vreg (Use), addr: Addr (Use), part: Part
            }
            /// As VStore of elements of 4 or 8 bytes from lanes of the same size, 16 bytes or more in all, where the lane of `mask`
            /// is all ones; memory stays as it is where it is all zeros. Not on NEON.
            VStoreWhere Store "store {} {} {}, {} where {}" {
                ty: VType, mem: DType, src: Vreg (Use), addr: Addr (Use), mask: Vreg (Use)
            }
            /// One element in every lane.
            VBroadcast Load "{} = broadcast {} {} {}" { dst: Vreg (Def), ty: VType, mem: DType, addr: Addr (Use) }
            /// Elements `stride` bytes apart.
            VGather Load "{} = gather {} {} {} stride {}{}" {
                dst: Vreg (Def), ty: VType, mem: DType, addr: Addr (Use), stride: i64, part: Part
            }
            VScatter Store "scatter {} {} {}, {} stride {}{}" {
                ty: VType, mem: DType, src: Vreg (Use), addr: Addr (Use), stride: i64, part: Part
            }
            /// Lane `i` of each of two to four members, one after the other, `i` times as many elements behind `addr`: see [`Interleaved`](crate::codegen::vcode::lanes::Interleaved).
            VStoreInterleaved Store "store interleaved {} {} {}, {}, {}{}{}" {
                ty: VType, mem: DType, addr: Addr (Use), a: Vreg (Use), b: Vreg (Use), c: OptionalVreg (Use), d: OptionalVreg (Use)
            }
            /// Element `base + lane_value·bytes(mem)` for each lane of `index` (I32 or I64 lanes).
            VGatherIndex Load "{} = gather {} {} [{} + {} as {}]{}" {
                dst: Vreg (Def), ty: VType, mem: DType, base: Gpr (Use), index: Vreg (Use), index_lane: Lane, part: Part
            }

            // ---- lanes in registers
            /// Every lane holds the low bits of `bits`.
            VConst Vector "{} = const {} #{}" { dst: Vreg (Def), ty: VType, bits: u64 [hexadecimal] }
            VCopy Vector "{} = copy {} {}" { dst: Vreg (Def), ty: VType, src: Vreg (Use) }
            /// An integer register in every lane.
            VSplat Vector "{} = splat {} {}" { dst: Vreg (Def), ty: VType, src: Gpr (Use) }
            /// The first lane, an integer of 32 or 64 bits, sign-extended.
            FirstLane Vector "{} = lane {} {}" { dst: Gpr (Def), ty: VType, src: Vreg (Use) }
            /// 0, 1, 2 … as integers.
            VIota Vector "{} = iota {}" { dst: Vreg (Def), ty: VType }
            VUnary Vector "{} = {} {} {}" { dst: Vreg (Def), op: VUnary, ty: VType, a: Vreg (Use) }
            VBinary Vector "{} = {} {} {}, {}" {
                dst: Vreg (Def), op: VBinary, ty: VType, a: Vreg (Use), b: Vreg (Use)
            }
            VShift Vector "{} = shift {} {} {}, {}" {
                dst: Vreg (Def), op: ShiftOp, ty: VType, a: Vreg (Use), amount: u8
            }
            /// Lanes of `a` and `b`, interleaved or every other one.
            VZip Vector "{} = {} {} {}, {}" { dst: Vreg (Def), op: Zip, ty: VType, a: Vreg (Use), b: Vreg (Use) }
            /// `a / b` by the inverse of `b`: the correctly rounded quotient, but off by at most a unit in the last place where
            /// the rest of the division is not normal. AVX-512.
            VQuotient Vector "{} = quotient {} {}, {}, {}" {
                dst: Vreg (Def), ty: VType, a: Vreg (Use), b: Vreg (Use), inverse: Vreg (Use)
            }
            /// `acc = a·b + acc`, or `acc - a·b`, rounded once.
            VFma Vector "{} {}= {} {} * {}" {
                acc: Vreg (UseDef), negate: bool [sign], ty: VType, a: Vreg (Use), b: Vreg (Use)
            }
            /// `dst = c + a·b`, or `c - a·b`, rounded once. Floats only; x86-64.
            VFmaSum Vector "{} = {} {} {} {} * {}" {
                dst: Vreg (Def), ty: VType, c: Vreg (Use), negate: bool [sign], a: Vreg (Use), b: Vreg (Use)
            }
            /// As VFma of floats, `b` in memory: as many elements as there are lanes, 16 bytes or more, or one element that is broadcast.
            VFmaMemory Vector "{} {}= {} {} * {}{}" {
                acc: Vreg (UseDef), negate: bool [sign], ty: VType, a: Vreg (Use), broadcast: bool [broadcast], addr: Addr (Use)
            }
            /// As VBinary of floats, `b` in memory as in VFmaMemory.
            VBinaryMemory Vector "{} = {} {} {}, {}{}" {
                dst: Vreg (Def), op: VBinary, ty: VType, a: Vreg (Use), broadcast: bool [broadcast], addr: Addr (Use)
            }
            /// `acc = row(acc, a, b)`: a tensor instruction of `temporaries` registers more. `ty` is the type of `acc`. A row with a
            /// constant reads it in a register.
            VTensor Vector "{} = tensor {} {} {}, {}{} ({} temporaries)" {
                acc: Vreg (UseDef), row: InstructionName, ty: VType, a: Vreg (Use), b: Vreg (Use), constant: OptionalVreg (Use), temporaries: u8
            }
            /// As VTensor, the operand that is broadcast at an address: [`TensorInstruction::memory_operand`](crate::codegen::instruction::TensorInstruction::memory_operand).
            VTensorMemory Vector "{} = tensor_memory {} {} {}, {}" {
                acc: Vreg (UseDef), row: InstructionName, ty: VType, other: Vreg (Use), addr: Addr (Use)
            }
            /// A lane mask. Floats: ordered comparisons, `Ne` is unordered.
            VCompare Vector "{} = {} {} {}, {}" {
                dst: Vreg (Def), op: CompareOp, ty: VType, a: Vreg (Use), b: Vreg (Use)
            }
            /// `mask ? a : b`, by lane.
            VSelect Vector "{} = select {} {}, {}, {}" {
                dst: Vreg (Def), ty: VType, mask: Vreg (Use), a: Vreg (Use), b: Vreg (Use)
            }
            /// `op(a, b) ? yes : no`, by lane: a comparison whose mask nothing else reads. AVX-512, whole registers.
            VChoose Vector "{} = choose {} {} {}, {}, {}, {}" {
                dst: Vreg (Def), op: CompareOp, ty: VType, a: Vreg (Use), b: Vreg (Use), yes: Vreg (Use), no: Vreg (Use)
            }
            /// Byte `index` of a table of 256 bytes in the registers `a` to `d`, by lane. Lanes of 8 bits, whole registers; AVX-512 with VBMI.
            VLookup Vector "{} = lookup {} {}, {}, {}, {}, {}" {
                dst: Vreg (Def), ty: VType, index: Vreg (Use), a: Vreg (Use), b: Vreg (Use), c: Vreg (Use), d: Vreg (Use)
            }
            /// Byte `index` of the 16 bytes at `addr`, by lane; any number where `index` is 16 or more. Lanes of 8 bits, whole registers.
            VShuffle Vector "{} = shuffle {} {} of {}" { dst: Vreg (Def), ty: VType, index: Vreg (Use), addr: Addr (Use) }
            /// Between lane types with the same number of lanes. Float to integer truncates (saturation unspecified).
            VConvert Vector "{} = convert {} from {} {}" { dst: Vreg (Def), to: VType, from: Lane, src: Vreg (Use) }
            /// All lanes of `a` combined, in every lane of `dst`: a fixed tree (halves first), so that the result is
            /// the same on every run. Add, Mul, Min, Max. `first`: in the first lane alone.
            VReduce Vector "{} = reduce {} {} {}{}" {
                dst: Vreg (Def), op: VBinary, ty: VType, a: Vreg (Use), first: bool [first]
            }
            /// As VReduce, of four registers: the results are in the first four lanes. Lanes of 32 bits, four or more; Add, Mul, Min, Max.
            VReduceFour Vector "{} = reducefour {} {} {}, {}, {}, {}" {
                dst: Vreg (Def), op: VBinary, ty: VType, a: Vreg (Use), b: Vreg (Use), c: Vreg (Use), d: Vreg (Use)
            }

            // ---- tiles
            /// Gives each tile register its shape; all become zero. Before it, none may be used.
            TileShapes Tile "shapes {}" { shapes: Shapes }
            /// Gives the tile registers up.
            TileRelease Tile "release tiles"
            TileZero Tile "{} = zero" { tile: Tile }
            /// The rows of a tile, `stride` bytes apart. `streamed`: a hint that the first cache need not keep them.
            TileLoad Tile "{} = load {} stride {}{}" { tile: Tile, addr: Addr (Use), stride: i64, streamed: bool [streamed] }
            TileStore Tile "store {}, {} stride {}" { tile: Tile, addr: Addr (Use), stride: i64 }
            /// `acc = row(acc, a, b)`: a tensor instruction, whose operands have as many points as the shapes leave them.
            TileTensor Tile "{} = tensor {} {}, {}" { acc: Tile, row: InstructionName, a: Tile, b: Tile }
        }
    };
}
pub(super) use insts;

/// Defines `Inst` and what follows from the table.
macro_rules! define {
    (@Addr Addr $field:ident) => { return Some($field) };
    (@VType VType $field:ident) => { return Some(*$field) };
    (@$wanted:ident $type:ident $field:ident) => {};
    (() $($(#[$doc:meta])* $name:ident $group:ident $text:literal
        $({ $($field:ident : $type:ident $(($access:ident))? $([$spelling:ident])?),* })?)*) => {
        #[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum Inst {
            $($(#[$doc])* $name $({ $($field: $type),* })?,)*
        }

        #[allow(unused_variables, unreachable_code)]
        impl Inst {
            pub fn group(&self) -> Group {
                match self {
                    $(Inst::$name { .. } => Group::$group,)*
                }
            }

            /// The name in the table.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Inst::$name { .. } => stringify!($name),)*
                }
            }

            /// The names of all instructions.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Calls `f` on each register operand, those that are read first, then those that are written.
            pub fn registers_mut(&mut self, f: &mut impl FnMut(Class, Access, &mut u32)) {
                match self {
                    $(Inst::$name { $($($field),*)? } => {
                        $($($(if !Access::$access.writes() { $field.visit(Access::$access, f) })?)*)?
                        $($($(if Access::$access.writes() { $field.visit(Access::$access, f) })?)*)?
                    })*
                }
            }

            /// The address operand.
            pub fn address_mut(&mut self) -> Option<&mut Addr> {
                match self {
                    $(Inst::$name { $($($field),*)? } => { $($(define!(@Addr $type $field);)*)? })*
                }
                None
            }

            /// The type of the lanes in registers; of a conversion, of those that it writes.
            pub fn ty(&self) -> Option<VType> {
                match self {
                    $(Inst::$name { $($($field),*)? } => { $($(define!(@VType $type $field);)*)? })*
                }
                None
            }
        }
    };
}
pub(super) use define;
