//! Tensor instructions: machine instructions that compute a small tensor expression, as declarations give them.
//!
//! A row says what an instruction computes (iterators with fixed extents, operands that its iterators index, the term that
//! is added to the accumulator for each point, the order of the sum), where its operands stand in registers, the processor
//! features that it needs, and its code. The matcher of `poly` unifies the semantics with a statement, the register block
//! and the packed order of operands follow from the extents, the interpreter of VCode calls
//! [`TensorInstruction::evaluate`], and the emitters write [`TensorInstruction::code`].

mod decode;
mod encode;
mod evaluate;
mod native;
mod unify;

use crate::expr::interval::ceil_div;
use crate::expr::{BinaryOp, Expr, Var};
use crate::runtime::{DType, Features};
use serde::{Deserialize, Serialize};
use std::fmt;

pub use decode::CodeProblem;
pub use native::tile_shapes;
pub use unify::{Part, visit_parts};

/// The name of a row, such as `vpdpbusd`: up to 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstructionName([u8; InstructionName::LONGEST]);

impl InstructionName {
    /// Bytes of the longest name.
    pub const LONGEST: usize = 24;

    /// The name with this text; `None` where it is too long.
    pub fn new(text: &str) -> Option<InstructionName> {
        let mut bytes = [0; InstructionName::LONGEST];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(InstructionName(bytes))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or("?")
    }
}

impl fmt::Display for InstructionName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for InstructionName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// One row. Operand 0 is the accumulator: `operand 0 (indices) += body`, summed over the iterators that it does not have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TensorInstruction {
    /// Unique among the rows of one target.
    pub name: InstructionName,
    /// Processor features that the code needs, all of one architecture.
    pub features: Features,
    /// Iterators of the semantics; variable `n` is the n-th. Those of the accumulator come first, then those that are summed over.
    pub iterators: Vec<Iterator>,
    /// The accumulator, then the operands that are read.
    pub operands: Vec<Operand>,
    /// A number that the code reads in each lane of a register, and does not change.
    pub constant: Option<Constant>,
    /// The term of one point: a load of buffer `n` is an element of operand `n`, indexed by the operand's iterators.
    pub body: Expr,
    /// The order in which terms are added.
    pub order: SumOrder,
    /// The machine code: usually one instruction, several where they stand for one, in the order in which they run.
    pub code: Vec<Encoding>,
    /// The machine code where the only operand that is broadcast stands in the lowest lane alone; empty where there is none.
    pub element: Vec<Encoding>,
}

/// An iterator of the semantics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Iterator {
    pub name: String,
    /// Points, from 0.
    pub extent: i64,
}

/// An operand and its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operand {
    pub name: String,
    pub dtype: DType,
    /// Iterators that index it, outermost first: elements lie in the register in row-major order, the first in the lowest bits.
    pub indices: Vec<Var>,
    pub form: Form,
    /// The least and the greatest number of an operand of integers that may not have all numbers of its type: for others the code
    /// does something else than the semantics say.
    pub range: Option<(i64, i64)>,
}

/// A number in each lane of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Constant {
    pub dtype: DType,
    pub value: i64,
}

/// The form of an operand in a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Form {
    /// The elements fill the register, or its lower part.
    Vector,
    /// The elements fill a tile register: rows of 64 bytes, the first iterator of the operand counts them.
    Tile,
    /// The elements, 2, 4 or 8 bytes of them, are repeated throughout the register.
    Broadcast,
}

/// The order of a sum. Sums of integers wrap, and are equal in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SumOrder {
    /// Term by term, the summed iterator upwards; a product that is added to a float is rounded once, with the sum.
    Ascending,
    /// Term by term, the summed iterator downwards.
    Descending,
    /// The terms of each point of the last summed iterator in a sum of their own, which begins with 0; then these sums are
    /// added to each other, and the total to the accumulator.
    Apart,
    /// The terms of the last summed iterator in a sum of their own for each point of the others; these sums are added to the
    /// accumulator one after the other, upwards.
    Grouped,
}

/// A register that an encoding names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Slot {
    /// An operand of the row, by its position.
    Operand(u8),
    /// The constant of the row.
    Constant,
    /// A register for what one instruction of the row leaves for the next, by its number.
    Temporary(u8),
}

/// The code of one machine instruction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Encoding {
    /// A VEX or EVEX instruction of x86-64, in the terms of the opcode line of the manual.
    X86(X86Encoding),
    /// A word of AArch64: the pattern with zeros where registers stand, and the lowest bit of each register field. A field has 5 bits, or 4
    /// where its slot is among `low`.
    Aarch64 { word: u32, registers: Vec<(Slot, u8)>, low: Vec<Slot> },
}

/// `VEX|EVEX.bits.prefix.map.W opcode /r`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct X86Encoding {
    pub evex: bool,
    /// 128, 256 or 512.
    pub vector_bits: u16,
    /// The mandatory prefix: 0 (none), 0x66, 0xf3 or 0xf2.
    pub prefix: u8,
    /// The opcode map: 1 is 0F, 2 is 0F38, 3 is 0F3A, 5 and 6 are MAP5 and MAP6.
    pub map: u8,
    pub w: bool,
    pub opcode: u8,
    /// Registers in ModRM.reg, in vvvv (none for instructions of two operands), and in ModRM.rm.
    pub reg: Slot,
    pub vvvv: Option<Slot>,
    pub rm: Slot,
    pub immediate: Option<u8>,
}

impl SumOrder {
    /// The word in declarations.
    pub fn word(self) -> &'static str {
        match self {
            SumOrder::Ascending => "ascending",
            SumOrder::Descending => "descending",
            SumOrder::Apart => "apart",
            SumOrder::Grouped => "grouped",
        }
    }

    /// Every order.
    pub const ALL: [SumOrder; 4] = [SumOrder::Ascending, SumOrder::Descending, SumOrder::Apart, SumOrder::Grouped];
}

/// Rows of a tile register.
pub const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile register.
pub const TILE_ROW_BYTES: usize = 64;
/// Tile registers.
pub const TILES: usize = 8;

/// Rows and columns of sums in a vector register that holds a matrix.
pub const MATRIX_SIDE: i64 = 2;

/// Columns of a vector of sums, of which two rows are two matrices.
pub const MATRIX_COLUMNS: i64 = 2 * MATRIX_SIDE;

/// `extent` rows or columns in tiles of at most `most`: the points of a tile and how many tiles have them. All have as many where
/// they can; otherwise a smaller one is the last.
pub fn tile_extents(extent: i64, most: i64) -> impl std::iter::Iterator<Item = (i64, i64)> {
    let count = ceil_div(extent, most);
    let size = if extent % count == 0 { extent / count } else { most };
    [(size, extent / size), (extent % size, 1)].into_iter().filter(|tiles| tiles.0 > 0)
}

/// `extent` rows in as few tiles as hold them: the rows of a tile, and how many there are. The last one may share rows with the
/// one before it, of which both have the same sums.
pub fn tile_rows(extent: i64) -> (i64, i64) {
    let count = ceil_div(extent, TILE_ROWS as i64);
    (ceil_div(extent, count), count)
}

impl TensorInstruction {
    /// The iterators that are summed over, outermost first: those that the accumulator lacks and the term uses. An iterator that
    /// the term does not use is a dimension of an operand that it reads at constants.
    pub fn summed(&self) -> impl std::iter::Iterator<Item = Var> {
        let kept = &self.operands[0].indices;
        let mut used = vec![];
        self.body.visit_accesses(&mut |access| used.extend(access.affine_forms()));
        let summed = move |v: &Var| !kept.contains(v) && used.iter().any(|form| form.uses(*v));
        (0..self.iterators.len() as u32).map(Var).filter(summed)
    }

    /// Terms that are summed for an element of the accumulator.
    pub fn terms(&self) -> i64 {
        self.summed().map(|v| self.extent(v)).product()
    }

    /// Terms of a lane of the operands that are read: of a row on tiles the points of the last iterator of the sum, of others all.
    pub fn terms_in_lane(&self) -> i64 {
        match self.is_tile() {
            true => self.summed().last().map_or(1, |v| self.extent(v)),
            false => self.terms(),
        }
    }

    /// Returns true for a row that adds products of two operands of types `a` and `b`, in either order, to numbers of type `sum`,
    /// several for each of these.
    pub fn sums_products(&self, [a, b]: [DType; 2], sum: DType) -> bool {
        let types: Vec<DType> = self.operands.iter().map(|o| o.dtype).collect();
        let product = matches!(self.body, Expr::Binary(BinaryOp::Mul, ..));
        let all = self.operands.iter().all(|o| o.range.is_none());
        product && all && self.terms() > 1 && (types == [sum, a, b] || types == [sum, b, a])
    }

    /// Returns true for a row that adds products of an i8 and a u8 that differs from lane to lane and has 4 bits, or all, to numbers of i32.
    pub fn sums_products_of_four_bits(&self) -> bool {
        let [acc, a, b] = &self.operands[..] else { return false };
        let product = matches!(self.body, Expr::Binary(BinaryOp::Mul, ..)) && self.terms() > 1;
        let types = [acc, a, b].map(|o| o.dtype) == [DType::I32, DType::I8, DType::U8];
        product && types && a.range.is_none() && b.takes((0, 15)) && b.form == Form::Vector && !self.is_tile()
    }

    /// The row whose operand that is broadcast stands in the lowest lane alone, where it has such code.
    pub fn by_element(&self) -> Option<TensorInstruction> {
        let lowest = |o: &Operand| match o.form {
            Form::Broadcast => Operand { form: Form::Vector, ..o.clone() },
            _ => o.clone(),
        };
        let operands = self.operands.iter().map(lowest).collect();
        let row = TensorInstruction { code: self.element.clone(), element: vec![], operands, ..self.clone() };
        (!self.element.is_empty()).then_some(row)
    }

    /// Points of an iterator.
    pub fn extent(&self, v: Var) -> i64 {
        self.iterators[v.0 as usize].extent
    }

    /// Elements of an operand.
    pub fn elements(&self, operand: usize) -> i64 {
        self.operands[operand].indices.iter().map(|&v| self.extent(v)).product()
    }

    /// Elements of an operand for each element of the accumulator, or for all of them: those that are summed over.
    pub fn group(&self, operand: usize) -> i64 {
        let kept = &self.operands[0].indices;
        self.operands[operand].indices.iter().filter(|v| !kept.contains(v)).map(|&v| self.extent(v)).product()
    }

    /// Bytes of an operand's elements, each once.
    pub fn bytes(&self, operand: usize) -> usize {
        self.elements(operand) as usize * self.operands[operand].dtype.bytes()
    }

    /// Returns true if the operands stand in tile registers.
    pub fn is_tile(&self) -> bool {
        self.operands[0].form == Form::Tile
    }

    /// Returns true if a vector register holds a matrix of sums: the accumulator has rows and columns.
    pub fn is_matrix(&self) -> bool {
        self.operands[0].form == Form::Vector && self.operands[0].indices.len() == 2
    }

    /// Returns true if the row adds one product to each of a vector of f16.
    pub fn sums_halves(&self) -> bool {
        let sums = &self.operands[0];
        sums.dtype == DType::F16 && sums.form == Form::Vector && !self.is_matrix() && self.terms() == 1
    }

    /// Registers that the code reads or changes for the row: those of its operands, and then that of its constant.
    pub fn registers(&self) -> usize {
        self.operands.len() + usize::from(self.constant.is_some())
    }

    /// The bits of the constant, in each of its lanes.
    pub fn constant_bits(&self) -> Option<(DType, u64)> {
        self.constant.map(|c| (c.dtype, c.value as u64 & (u64::MAX >> (64 - 8 * c.dtype.bytes()))))
    }

    /// Bytes of the registers that the operands stand in: tile registers, or the widest vectors of the code.
    pub fn register_bytes(&self) -> usize {
        if self.is_tile() { TILE_ROWS * TILE_ROW_BYTES } else { self.vector_bytes() }
    }

    /// Bytes of the vectors that the code works on: the widest of its instructions.
    pub fn vector_bytes(&self) -> usize {
        let bytes = |e: &Encoding| match e {
            Encoding::X86(x) => x.vector_bits as usize / 8,
            Encoding::Aarch64 { .. } => 16,
        };
        self.code.iter().map(bytes).max().unwrap_or(0)
    }

    /// Registers that the code needs beside its operands and its constant.
    pub fn temporaries(&self) -> usize {
        let number = |s: Slot| if let Slot::Temporary(n) = s { n as usize + 1 } else { 0 };
        self.code.iter().chain(&self.element).flat_map(Encoding::registers).map(number).max().unwrap_or(0)
    }
}

impl Operand {
    /// Returns true if the operand may have every number of a range.
    pub fn takes(&self, (least, greatest): (i64, i64)) -> bool {
        self.range.is_none_or(|(low, high)| low <= least && greatest <= high)
    }
}

impl Encoding {
    /// The registers that the encoding names, in the order of its fields.
    pub fn registers(&self) -> Vec<Slot> {
        match self {
            Encoding::X86(x) => [Some(x.reg), x.vvvv, Some(x.rm)].into_iter().flatten().collect(),
            Encoding::Aarch64 { registers, .. } => registers.iter().map(|r| r.0).collect(),
        }
    }

    /// Returns true if the encoding can name only the lower 16 registers for a slot.
    pub fn is_low(&self, slot: Slot) -> bool {
        match self {
            Encoding::X86(x) => !x.evex && self.registers().contains(&slot),
            Encoding::Aarch64 { low, .. } => low.contains(&slot),
        }
    }
}

#[cfg(test)]
mod tests;
