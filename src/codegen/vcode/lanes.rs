//! Lanes in memory: what the instructions between memory and vector registers have in common.

use crate::codegen::vcode::{Addr, Inst, Lane, VType, Vreg};
use crate::runtime::DType;
use std::ops::Range;

/// Lanes between a register and memory: lane `i` of `first..first + count` is the element `i·stride` bytes behind `addr`
/// (VGatherIndex adds the value of its index lane instead).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lanes {
    pub register: Vreg,
    pub ty: VType,
    pub mem: DType,
    pub addr: Addr,
    pub stride: i64,
    pub first: usize,
    pub count: usize,
}

/// Lanes of several registers, the members, that are stored side by side: lane `i` of member `k` of `n` is the element `i·n + k`.
/// The members have at least 16 bytes. Elements of one or two bytes are the low bytes of lanes of four bytes or less; wider ones fill
/// their lanes, three members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interleaved {
    pub members: Vec<Vreg>,
    pub ty: VType,
    pub mem: DType,
    pub addr: Addr,
}

impl Interleaved {
    /// Returns true if so many members of a type can be stored as elements of type `mem`.
    pub fn fits(members: usize, ty: VType, mem: DType) -> bool {
        let (lane, size) = (ty.lane.bytes(), mem.bytes());
        let narrow = size <= 2 && size <= lane && lane <= 4 && !ty.lane.is_float();
        let wide = size >= 4 && size == lane && members == 3;
        (2..=4).contains(&members) && ty.bytes() >= 16 && mem != DType::Bool && (narrow || wide)
    }

    /// Bytes that are stored.
    pub fn bytes(&self) -> usize {
        self.members.len() * usize::from(self.ty.lanes) * self.mem.bytes()
    }

    /// The member and the byte of its register from which a byte of what is stored comes.
    pub fn source(&self, byte: usize) -> (usize, usize) {
        let (element, n) = (byte / self.mem.bytes(), self.members.len());
        (element % n, element / n * self.ty.lane.bytes() + byte % self.mem.bytes())
    }
}

/// The conversion of memory elements to lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widening {
    Same,
    SignedByte,
    UnsignedByte,
    /// I16 in memory, in wider lanes.
    SignedHalf,
    /// The bits of u16, f16 or bf16, in wider lanes.
    Half,
    /// An f16 to the f32 that it is. Loads of four lanes or more, all of them, alone.
    Number,
    /// An f32 to the bf16 nearest. Stores of four lanes or more, all of them, alone; x86-64 with `avx512bf16` alone.
    Rounded,
    /// 0 or 1 to a lane mask.
    Bool,
    /// I32 in memory, I64 in lanes.
    Word,
}

impl Inst {
    /// The lanes that the instruction moves between memory and a register.
    pub fn lanes(&self) -> Option<Lanes> {
        let (register, ty, mem, addr, stride, part) = match *self {
            Inst::VLoad { dst: r, ty, mem, addr, part } | Inst::VStore { src: r, ty, mem, addr, part } => {
                (r, ty, mem, addr, mem.bytes() as i64, part)
            }
            Inst::VLoadWhere { dst: r, ty, mem, addr, .. } | Inst::VStoreWhere { src: r, ty, mem, addr, .. } => {
                (r, ty, mem, addr, mem.bytes() as i64, None)
            }
            Inst::VBroadcast { dst, ty, mem, addr } => (dst, ty, mem, addr, 0, None),
            Inst::VGather { dst: r, ty, mem, addr, stride, part }
            | Inst::VScatter { src: r, ty, mem, addr, stride, part } => (r, ty, mem, addr, stride, part),
            Inst::VGatherIndex { dst, ty, mem, base, part, .. } => {
                (dst, ty, mem, Addr { base, index: None, disp: 0 }, 0, part)
            }
            // neighbours, as if they were lanes of one register
            Inst::VStoreInterleaved { a: r, ty, mem, addr, .. } => (r, ty, mem, addr, mem.bytes() as i64, None),
            _ => return None,
        };
        let (first, count) = part.map_or((0, ty.lanes), |p| (p.first, p.count));
        let count = self.interleaved().map_or(count as usize, |group| group.bytes() / mem.bytes());
        Some(Lanes { register, ty, mem, addr, stride, first: first as usize, count })
    }

    /// The lanes that a store of interleaved elements moves.
    pub fn interleaved(&self) -> Option<Interleaved> {
        let Inst::VStoreInterleaved { a, b, c, d, ty, mem, addr } = *self else { return None };
        let members = [Some(a), Some(b), c, d].into_iter().flatten().collect();
        Some(Interleaved { members, ty, mem, addr })
    }
}

impl Lanes {
    /// Returns true if no byte is in both: from one pointer, they end before each other, or each lies between the lanes of the other.
    pub fn is_apart(&self, other: &Lanes) -> bool {
        if self.addr.base != other.addr.base || self.addr.index.is_some() || other.addr.index.is_some() {
            return false;
        }
        let ends = |l: &Lanes| {
            let (a, b) = (l.stride * l.first as i64, l.stride * (l.first + l.count) as i64 - l.stride);
            let start = i64::from(l.addr.disp);
            (start + a.min(b), start + a.max(b) + l.mem.bytes() as i64)
        };
        let (a, b) = (ends(self), ends(other));
        let stride = self.stride.abs();
        let between = || {
            let distance = i64::from(other.addr.disp - self.addr.disp).rem_euclid(stride);
            distance >= self.mem.bytes() as i64 && distance + other.mem.bytes() as i64 <= stride
        };
        a.1 <= b.0 || b.1 <= a.0 || stride > 0 && stride == other.stride.abs() && between()
    }

    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Bytes of a lane in the register.
    pub fn lane_bytes(&self) -> usize {
        self.ty.lane.bytes()
    }

    /// `None` where elements of this memory type cannot become these lanes.
    pub fn widening(&self) -> Option<Widening> {
        let lane = self.ty.lane;
        let all_numbers = lane == Lane::F32 && self.ty.lanes >= 4 && self.count == self.ty.lanes as usize;
        let integer = !lane.is_float() && lane.bytes() >= 2;
        match self.mem {
            DType::Bool if lane.bytes() >= 4 => Some(Widening::Bool),
            DType::I8 | DType::U8 if lane.bytes() == 1 => Some(Widening::Same),
            DType::I16 | DType::U16 if lane.bytes() == 2 => Some(Widening::Same),
            DType::I8 if integer => Some(Widening::SignedByte),
            DType::U8 if integer => Some(Widening::UnsignedByte),
            DType::I16 if lane == Lane::I32 => Some(Widening::SignedHalf),
            DType::U16 | DType::F16 | DType::BF16 if lane == Lane::I32 => Some(Widening::Half),
            DType::F16 if all_numbers => Some(Widening::Number),
            DType::BF16 if all_numbers => Some(Widening::Rounded),
            DType::I32 if lane == Lane::I64 => Some(Widening::Word),
            DType::F32 | DType::I32 if lane.bytes() == 4 => Some(Widening::Same),
            DType::F64 | DType::I64 if lane.bytes() == 8 => Some(Widening::Same),
            _ => None,
        }
    }
}
