//! Tables of bytes that are looked up by permutations, in lanes of 8 bits (`expr/narrow.rs` says of what), and of 32 bits where the table is in registers.
//!
//! Where the target permutes the bytes of several registers, the table stays in four of them. Elsewhere an instruction looks up 16
//! bytes: a longer table is looked up in each 16 of its bytes by the lower four bits of the subscript, and its higher bits choose,
//! one after the other, from pairs of what was found.

use crate::codegen::select::access::memory_type;
use crate::codegen::select::state::{Address, Selected, Selector};
use crate::codegen::vcode::{Inst, Lane, Part, ShiftOp, VBinary, VType, Vreg};
use crate::expr::{Affine, BufferId, CompareOp};
use crate::runtime::DType;

/// Bytes that one shuffle looks up.
pub const SHUFFLED: i64 = 16;

/// A table and where to look it up.
struct Table {
    buffer: BufferId,
    /// A vector of lanes of 8 bits.
    ty: VType,
    /// The lower four bits of the subscript.
    index: Vreg,
    /// For each higher bit, the lowest first, the lanes in which it is zero.
    zeros: Vec<Vreg>,
}

impl Selector<'_> {
    /// Reads a table at a subscript in lanes of 8 bits.
    pub fn lookup(&mut self, a: &Address, masked: bool) -> Selected<Vreg> {
        let [(place, 1)] = &a.gather[..] else { return self.internal("a gather beside narrow lanes") };
        if masked || self.chunk.widest != 1 || a.linear != Affine::constant(0) || !self.nest.is_table(a.buffer) {
            return self.internal("a gather beside narrow lanes");
        }
        let index = self.value(place)?.reg;
        let ty = self.full(self.memory_lane(self.nest.buffer(a.buffer).dtype)?);
        let bytes = self.nest.buffer(a.buffer).span();
        match self.target.permutes_bytes() && bytes >= ty.bytes() as i64 {
            true => Ok(self.lookup_in_registers(a.buffer, ty, index, bytes)),
            false => Ok(self.lookup_by_shuffles(a.buffer, ty, index, bytes)),
        }
    }

    /// Reads a table of bytes at subscripts in lanes of 32 bits, which four registers hold: permutations of all bytes take a tenth of the time of a gather.
    /// The three upper bytes of a lane find what stands first.
    pub fn lookup_words(
        &mut self,
        buffer: BufferId,
        (index, ty): (Vreg, VType),
        base: &Affine,
        part: Part,
    ) -> Option<Vreg> {
        let (dtype, bytes) = (self.nest.buffer(buffer).dtype, self.nest.buffer(buffer).span());
        let words = ty.lane == Lane::I32 && ty.is_whole(self.target) && part.is_none() && *base == Affine::constant(0);
        if !words || !self.nest.is_table(buffer) || !self.target.permutes_bytes() || bytes < ty.bytes() as i64 {
            return None;
        }
        let all = VType { lane: Lane::U8, lanes: ty.bytes() as u8 };
        let found = self.lookup_in_registers(buffer, all, index, bytes);
        if dtype == DType::U8 {
            let low = self.bits(ty.lane, 0xff);
            return Some(self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: found, b: low }));
        }
        let up = self.emit(|dst| Inst::VShift { op: ShiftOp::Left, dst, ty, a: found, amount: 24 });
        Some(self.emit(|dst| Inst::VShift { op: ShiftOp::RightArithmetic, dst, ty, a: up, amount: 24 }))
    }

    /// The table is in four registers, which repeat it where it is shorter.
    fn lookup_in_registers(&mut self, buffer: BufferId, ty: VType, index: Vreg, bytes: i64) -> Vreg {
        let (mem, size) = (memory_type(self.nest.buffer(buffer).dtype), ty.bytes() as i64);
        let [a, b, c, d] = [0, 1, 2, 3].map(|part| {
            let (addr, span) = self.operand(buffer, &Affine::constant(part * size % bytes), size);
            self.emit_from(Some(span), |dst| Inst::VLoad { dst, ty, mem, addr, part: None })
        });
        self.emit(|dst| Inst::VLookup { dst, ty, index, a, b, c, d })
    }

    fn lookup_by_shuffles(&mut self, buffer: BufferId, ty: VType, index: Vreg, bytes: i64) -> Vreg {
        let mut bit = |b: i64| {
            let bit = self.bits(ty.lane, b as u64);
            let alone = self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: index, b: bit });
            let zero = self.bits(ty.lane, 0);
            self.emit(|dst| Inst::VCompare { op: CompareOp::Eq, dst, ty, a: alone, b: zero })
        };
        let higher = std::iter::successors(Some(SHUFFLED), |b| Some(2 * b));
        let zeros: Vec<Vreg> = higher.take_while(|&b| b < bytes).map(&mut bit).collect();
        let index = match zeros.is_empty() {
            true => index,
            false => {
                let low = self.bits(ty.lane, SHUFFLED as u64 - 1);
                self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: index, b: low })
            }
        };
        self.found(&Table { buffer, ty, index, zeros }, 0, bytes)
    }

    /// Finds the subscripts in `bytes` bytes of the table from `start` on.
    fn found(&mut self, table: &Table, start: i64, bytes: i64) -> Vreg {
        let &Table { buffer, ty, index, ref zeros } = table;
        if bytes <= SHUFFLED {
            let (addr, span) = self.operand(buffer, &Affine::constant(start), SHUFFLED);
            return self.emit_from(Some(span), |dst| Inst::VShuffle { dst, ty, index, addr });
        }
        let half = bytes / 2;
        let (a, b) = (self.found(table, start, half), self.found(table, start + half, half));
        let mask = zeros[(half / SHUFFLED).ilog2() as usize];
        self.emit(|dst| Inst::VSelect { dst, ty, mask, a, b })
    }
}
