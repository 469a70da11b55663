//! Vector loads, stores, gathers and scatters. Nothing outside of the lanes that take part is touched.

use super::encode::{Encoding, Memory, Rm, Width};
use super::opcode::{self, Op};
use crate::codegen::regalloc::allocation::Needs;
use crate::codegen::vcode::{Addr, Inst, Lane, LaneRange, VType, Vreg};
use crate::codegen::x86::emitter::{Emitter, at, repeated};
use crate::runtime::{DType, Result};

/// The conversion of memory elements to lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Widening {
    Same,
    SignedByte,
    UnsignedByte,
    /// The bits of f16 or bf16.
    Half,
    /// 0 or 1 to a lane mask.
    Bool,
    /// I32 in memory, I64 in lanes.
    Word,
}

pub(super) fn widening(mem: DType, lane: Lane) -> Option<Widening> {
    let integer = matches!(lane, Lane::I32 | Lane::I64);
    match mem {
        DType::Bool => Some(Widening::Bool),
        DType::I8 if integer => Some(Widening::SignedByte),
        DType::U8 if integer => Some(Widening::UnsignedByte),
        DType::F16 | DType::BF16 if lane == Lane::I32 => Some(Widening::Half),
        DType::I32 if lane == Lane::I64 => Some(Widening::Word),
        DType::F32 | DType::I32 if lane.bytes() == 4 => Some(Widening::Same),
        DType::F64 | DType::I64 if lane.bytes() == 8 => Some(Widening::Same),
        _ => None,
    }
}

/// Lanes that take part: first, count.
pub(super) fn span(ty: VType, part: Option<LaneRange>) -> (usize, usize) {
    part.map_or((0, ty.lanes as usize), |p| (p.first as usize, p.count as usize))
}

pub(super) fn bits(first: usize, count: usize) -> u64 {
    ((1u64 << count) - 1) << first
}

/// Returns true if one plain instruction moves exactly these bytes.
fn is_plain(first: usize, count: usize, lane: usize) -> bool {
    first == 0 && matches!(count * lane, 4 | 8 | 16 | 32 | 64)
}

/// Elements far apart are reached by gather and scatter instructions when all offsets fit their index lanes.
fn is_hardware_gather(mem: DType, lane: Lane, stride: i64, lanes: u8) -> bool {
    let farthest = stride.checked_mul(i64::from(lanes));
    widening(mem, lane) == Some(Widening::Same) && farthest.is_some_and(|f| i32::try_from(f).is_ok())
}

/// Whether the elements are neighbours in memory, the last lane first, and fill a register.
pub(super) fn is_reversed(mem: DType, ty: VType, stride: i64) -> bool {
    let lane = ty.lane.bytes();
    widening(mem, ty.lane) == Some(Widening::Same) && stride == -(lane as i64) && ty.lanes as usize * lane >= 16
}

/// The mask register that an instruction would like to find loaded.
pub(super) fn mask_of(inst: &Inst) -> Option<u64> {
    match inst {
        Inst::VLoad { ty, mem, part, .. } | Inst::VStore { ty, mem, part, .. } => {
            let (first, count) = span(*ty, *part);
            let (lane, natural) = (ty.lane.bytes(), natural_lanes(*ty));
            let plain = match widening(*mem, ty.lane) {
                Some(Widening::Same) => is_plain(first, count, lane),
                _ => (first, count) == (0, natural),
            };
            (!plain).then(|| bits(first, count))
        }
        Inst::VGather { ty, part, .. } | Inst::VScatter { ty, part, .. } | Inst::VGatherIndex { ty, part, .. } => {
            let (first, count) = span(*ty, *part);
            Some(bits(first, count))
        }
        _ => None,
    }
}

fn natural_lanes(ty: VType) -> usize {
    Width::of(ty.lanes as usize * ty.lane.bytes()).bytes() / ty.lane.bytes()
}

pub(super) fn uses_area(inst: &Inst, evex: bool) -> bool {
    match inst {
        Inst::VGather { ty, mem, stride, .. } => !is_hardware_gather(*mem, ty.lane, *stride, ty.lanes),
        Inst::VScatter { ty, mem, stride, .. } => !evex || !is_hardware_gather(*mem, ty.lane, *stride, ty.lanes),
        Inst::VGatherIndex { ty, mem, .. } => widening(*mem, ty.lane) != Some(Widening::Same),
        _ => false,
    }
}

pub(super) fn needs(inst: &Inst, evex: bool) -> Needs {
    let none = Needs::default();
    match inst {
        _ if uses_area(inst, evex) => Needs { gprs: 2, vectors: 0 },
        Inst::VGather { addr, .. } | Inst::VScatter { addr, .. } => {
            Needs { gprs: addr.index.is_some() as u8, vectors: if evex { 1 } else { 2 } }
        }
        Inst::VGatherIndex { .. } => Needs { gprs: 0, vectors: if evex { 1 } else { 2 } },
        Inst::VStore { ty, mem, part, .. } => {
            let (first, count) = span(*ty, *part);
            let vectors = match (widening(*mem, ty.lane), evex) {
                (Some(Widening::Same), false) => !is_plain(first, count, ty.lane.bytes()) as u8,
                (Some(Widening::Bool), true) => 1,
                (_, false) => 2,
                (_, true) => 0,
            };
            Needs { gprs: 0, vectors }
        }
        _ => none,
    }
}

impl Emitter<'_> {
    pub(super) fn memory_inst(&mut self, inst: &Inst, gprs: &[u8], vectors: &[u8]) -> Result<()> {
        match inst {
            Inst::VLoad { dst, ty, mem, addr, part } => {
                let Some(widening) = widening(*mem, ty.lane) else { return self.unsupported(inst) };
                self.load_lanes(v(*dst), *ty, widening, addr, span(*ty, *part))
            }
            Inst::VStore { .. } => self.store_inst(inst, vectors),
            Inst::VBroadcast { .. } => self.broadcast_inst(inst),
            Inst::VGather { .. } => self.gather_inst(inst, gprs, vectors),
            Inst::VGatherIndex { .. } => self.gather_index_inst(inst, gprs, vectors),
            Inst::VScatter { .. } => self.scatter_inst(inst, gprs, vectors),
            _ => self.unsupported(inst),
        }
    }

    fn store_inst(&mut self, inst: &Inst, vectors: &[u8]) -> Result<()> {
        let Inst::VStore { src, ty, mem, addr, part } = inst else { return self.unsupported(inst) };
        let (first, count) = span(*ty, *part);
        match (widening(*mem, ty.lane), *mem, ty.lane) {
            _ if count == 0 => Ok(()),
            (Some(Widening::Same), ..) => self.store_same(v(*src), ty.lane.bytes(), addr, (first, count), vectors),
            (Some(_), ..) if self.evex => self.store_narrow(v(*src), *ty, *mem, addr, (first, count), vectors),
            (Some(_), DType::I32, _) => self.store_words(v(*src), *ty, addr, (first, count), vectors),
            (Some(_), ..) => self.store_low(v(*src), *ty, *mem, addr, (first, count), vectors),
            (None, ..) => self.unsupported(inst),
        }
    }

    fn broadcast_inst(&mut self, inst: &Inst) -> Result<()> {
        let Inst::VBroadcast { dst, ty, mem, addr } = inst else { return self.unsupported(inst) };
        let Some(widening) = widening(*mem, ty.lane) else { return self.unsupported(inst) };
        let (d, lane) = (v(*dst), ty.lane.bytes());
        let w = Width::of(ty.lanes as usize * lane);
        let m = at(addr, 0)?;
        match widening {
            Widening::Same if lane == 4 => self.load(opcode::BROADCAST_SS, w, d, m),
            Widening::Same => self.load(opcode::BROADCAST_Q, w, d, m),
            Widening::Word => {
                self.load(opcode::BROADCAST_D, Width::of(w.bytes() / 2), d, m);
                self.op2(opcode::EXTEND_DQ, w, d, d);
            }
            Widening::Half => {
                self.load(opcode::BROADCAST_W, Width::of(w.bytes() / 2), d, m);
                self.op2(opcode::ZERO_EXTEND_WD, w, d, d);
            }
            _ => {
                self.load(opcode::BROADCAST_B, Width::X, d, m);
                self.op2(extension(widening, lane), w, d, d);
                if widening == Widening::Bool {
                    self.bool_to_mask(w, d, lane);
                }
            }
        }
        Ok(())
    }

    // ---- loads

    fn load_lanes(
        &mut self,
        d: u8,
        ty: VType,
        widening: Widening,
        addr: &Addr,
        (first, count): (usize, usize),
    ) -> Result<()> {
        let lane = ty.lane.bytes();
        let w = Width::of(ty.lanes as usize * lane);
        if count == 0 {
            self.zero(d);
            return Ok(());
        }
        let natural = (first, count) == (0, w.bytes() / lane);
        match widening {
            Widening::Same => return self.load_same(d, lane, addr, (first, count)),
            Widening::Word if self.evex || natural => {
                let m = at(addr, 0)?;
                self.load_masked(opcode::EXTEND_DQ, w, d, m, (!natural).then(|| bits(first, count)));
            }
            Widening::Word => {
                self.load_same(d, 4, addr, (first, count))?;
                self.op2(opcode::EXTEND_DQ, w, d, d);
            }
            _ if self.evex || (natural && w.bytes() / lane >= 4) => {
                let m = at(addr, 0)?;
                let op = extension(widening, lane);
                self.load_masked(op, w, d, m, (!natural).then(|| bits(first, count)));
            }
            _ => {
                let (four, insert, size) = match widening {
                    Widening::Half => (opcode::LOAD_SD, opcode::INSERT_W, 2),
                    _ => (opcode::LOAD_SS, opcode::INSERT_B, 1),
                };
                let mut lanes = first..first + count;
                if first == 0 && count >= 4 {
                    self.load(four, Width::X, d, at(addr, 0)?);
                    lanes.start = 4;
                } else {
                    self.zero(d);
                }
                for i in lanes {
                    let e = self.plain(insert, Width::X, d, d, Rm::Memory(at(addr, (i * size) as i64)?));
                    self.vector(Encoding { immediate: Some(i as u8), ..e });
                }
                self.op2(extension(widening, lane), w, d, d);
            }
        }
        if widening == Widening::Bool {
            self.bool_to_mask(w, d, lane);
        }
        Ok(())
    }

    /// Elements as wide as the lanes.
    fn load_same(&mut self, d: u8, lane: usize, addr: &Addr, (first, count): (usize, usize)) -> Result<()> {
        if is_plain(first, count, lane) {
            let bytes = count * lane;
            let m = at(addr, 0)?;
            match bytes {
                4 => self.load(opcode::LOAD_SS, Width::X, d, m),
                8 => self.load(opcode::LOAD_SD, Width::X, d, m),
                _ => self.load(opcode::LOAD_PS, Width::of(bytes), d, m),
            }
            return Ok(());
        }
        let w = Width::of((first + count) * lane);
        let m = at(addr, 0)?;
        if self.evex {
            let op = if lane == 4 { opcode::LOAD_PS } else { opcode::LOAD_PD };
            self.load_masked(op, w, d, m, Some(bits(first, count)));
        } else {
            self.op3_constant(opcode::LOAD_PS, w, d, 0, lane_mask(lane, w, first, count));
            let op = if lane == 4 { opcode::MASK_LOAD_PS } else { opcode::MASK_LOAD_PD };
            self.vector(self.plain(op, w, d, d, Rm::Memory(m)));
        }
        Ok(())
    }

    /// Lane 0 at `addr`, the others before it: a load and a permutation.
    pub(super) fn load_reversed(
        &mut self,
        d: u8,
        ty: VType,
        addr: &Addr,
        (first, count): (usize, usize),
        index: u8,
    ) -> Result<()> {
        let (lane, lanes) = (ty.lane.bytes(), ty.lanes as usize);
        let w = Width::of(lanes * lane);
        let start = Addr { disp: addr.disp - ((lanes - 1) * lane) as i32, ..*addr };
        if (first, count) != (0, lanes) {
            self.zero(d);
        }
        self.load_same(d, lane, &start, (lanes - first - count, count))?;
        let words = lane / 4;
        if w == Width::X {
            self.op2i(opcode::SHUFFLE_D, w, d, d, if words == 1 { 0x1b } else { 0x4e });
            return Ok(());
        }
        let from = (0..lanes * words).map(|i| (lanes - 1 - i / words) * words + i % words);
        self.op3_constant(opcode::LOAD_PS, w, index, 0, from.flat_map(|i| (i as u32).to_le_bytes()).collect());
        self.op3(opcode::PERMUTE_PS, w, d, index, d);
        Ok(())
    }

    /// EVEX when there is a mask: lanes outside become zero.
    fn load_masked(&mut self, op: Op, w: Width, d: u8, m: Memory, mask: Option<u64>) {
        let k = mask.map_or(0, |mask| self.mask(mask));
        self.vector(Encoding { mask: k, zeroing: k != 0, ..self.plain(op, w, d, 0, Rm::Memory(m)) });
    }

    /// Lanes of 0 or 1 become lanes of all zeros or all ones.
    fn bool_to_mask(&mut self, w: Width, d: u8, lane: usize) {
        if lane == 4 {
            self.shift(opcode::SHIFT_D, w, 6, d, d, 31);
            self.shift(opcode::SHIFT_D, w, 4, d, d, 31);
        } else {
            self.shift(opcode::SHIFT_Q, w, 6, d, d, 63);
            if self.evex {
                self.shift(opcode::SHIFT_ARITHMETIC_Q, w, 4, d, d, 63);
            } else {
                // The high half of each lane, twice.
                self.shift(opcode::SHIFT_D, w, 4, d, d, 31);
                self.op2i(opcode::SHUFFLE_D, w, d, d, 0xf5);
            }
        }
    }

    pub(super) fn shift(&mut self, op: Op, w: Width, extension: u8, d: u8, a: u8, amount: u8) {
        self.op3i(op, w, extension, d, a, amount);
    }

    // ---- stores

    fn store_same(
        &mut self,
        s: u8,
        lane: usize,
        addr: &Addr,
        (first, count): (usize, usize),
        vectors: &[u8],
    ) -> Result<()> {
        if is_plain(first, count, lane) {
            let bytes = count * lane;
            let m = at(addr, 0)?;
            match bytes {
                4 => self.store(opcode::STORE_SS, Width::X, s, m),
                8 => self.store(opcode::STORE_SD, Width::X, s, m),
                _ => self.store(opcode::STORE_PS, Width::of(bytes), s, m),
            }
            return Ok(());
        }
        let w = Width::of((first + count) * lane);
        let m = Rm::Memory(at(addr, 0)?);
        if self.evex {
            let op = if lane == 4 { opcode::STORE_PS } else { opcode::STORE_PD };
            let mask = self.mask(bits(first, count));
            self.vector(Encoding { mask, ..self.plain(op, w, s, 0, m) });
        } else {
            self.op3_constant(opcode::LOAD_PS, w, vectors[0], 0, lane_mask(lane, w, first, count));
            let op = if lane == 4 { opcode::MASK_STORE_PS } else { opcode::MASK_STORE_PD };
            self.vector(self.plain(op, w, s, vectors[0], m));
        }
        Ok(())
    }

    /// AVX-512: bytes or words from wider lanes.
    fn store_narrow(
        &mut self,
        s: u8,
        ty: VType,
        mem: DType,
        addr: &Addr,
        (first, count): (usize, usize),
        vectors: &[u8],
    ) -> Result<()> {
        let lane = ty.lane.bytes();
        let w = Width::of(ty.lanes as usize * lane);
        let mut s = s;
        if mem == DType::Bool {
            self.op2(if lane == 4 { opcode::ABS_D } else { opcode::ABS_Q }, w, vectors[0], s);
            s = vectors[0];
        }
        let op = match (lane, mem) {
            (4, DType::F16 | DType::BF16) => opcode::NARROW_DW,
            (4, _) => opcode::NARROW_DB,
            (_, DType::I32) => opcode::NARROW_QD,
            _ => opcode::NARROW_QB,
        };
        let natural = (first, count) == (0, w.bytes() / lane);
        let mask = if natural { 0 } else { self.mask(bits(first, count)) };
        let m = Rm::Memory(at(addr, 0)?);
        self.vector(Encoding { mask, ..self.plain(op, w, s, 0, m) });
        Ok(())
    }

    /// AVX2: the low words of 64-bit lanes.
    fn store_words(&mut self, s: u8, ty: VType, addr: &Addr, range: (usize, usize), vectors: &[u8]) -> Result<()> {
        let w = Width::of(ty.lanes as usize * 8);
        self.low_words(w, vectors[0], s);
        self.store_same(vectors[0], 4, addr, range, &vectors[1..])
    }

    /// AVX2: the low words of 64-bit lanes side by side in the low half.
    pub(super) fn low_words(&mut self, w: Width, d: u8, s: u8) {
        self.op2i(opcode::SHUFFLE_D, w, d, s, 0x08);
        if w == Width::Y {
            self.op2i(opcode::PERMUTE_Q, w, d, d, 0x08);
        }
    }

    /// AVX2: the low bytes, or halves, of lanes.
    fn store_low(
        &mut self,
        s: u8,
        ty: VType,
        mem: DType,
        addr: &Addr,
        (first, count): (usize, usize),
        vectors: &[u8],
    ) -> Result<()> {
        let (lane, size) = (ty.lane.bytes(), mem.bytes());
        let w = Width::of(ty.lanes as usize * lane);
        let (t, u) = (vectors[0], vectors[1]);
        let used = 16 / lane * size;
        let half: Vec<u8> = (0..16).map(|i| if i < used { (i / size * lane + i % size) as u8 } else { 0x80 }).collect();
        self.op3_constant(opcode::SHUFFLE_B, w, t, s, half.repeat(w.bytes() / 16));
        if w == Width::Y {
            self.op2i(opcode::EXTRACT_128, w, t, u, 1);
            let unpack = match used {
                8 => opcode::UNPACK_LOW_Q,
                4 => opcode::UNPACK_LOW_D,
                _ => opcode::UNPACK_LOW_W,
            };
            self.op3(unpack, Width::X, t, t, u);
        }
        if mem == DType::Bool {
            self.op2(opcode::ABS_B, Width::X, t, t);
        }
        let mut lanes = first..first + count;
        if first == 0 {
            let width = [16, 8, 4, 2].into_iter().find(|&b| b <= count * size);
            match width {
                Some(16) => self.store(opcode::STORE_PS, Width::X, t, at(addr, 0)?),
                Some(8) => self.store(opcode::STORE_SD, Width::X, t, at(addr, 0)?),
                Some(4) => self.store(opcode::STORE_D, Width::X, t, at(addr, 0)?),
                Some(_) => self.extract_to(opcode::EXTRACT_W, t, at(addr, 0)?, 0),
                None => {}
            }
            lanes.start = width.unwrap_or(0) / size;
        }
        let extract = if size == 2 { opcode::EXTRACT_W } else { opcode::EXTRACT_B };
        for i in lanes {
            self.extract_to(extract, t, at(addr, (i * size) as i64)?, i as u8);
        }
        Ok(())
    }

    fn extract_to(&mut self, op: Op, s: u8, to: Memory, lane: u8) {
        let e = self.plain(op, Width::X, s, 0, Rm::Memory(to));
        self.vector(Encoding { immediate: Some(lane), ..e });
    }
}

/// The instruction that widens bytes, or halves, to lanes.
fn extension(widening: Widening, lane: usize) -> Op {
    match (widening, lane) {
        (Widening::Half, _) => opcode::ZERO_EXTEND_WD,
        (Widening::SignedByte, 4) => opcode::EXTEND_BD,
        (Widening::SignedByte, _) => opcode::EXTEND_BQ,
        (_, 4) => opcode::ZERO_EXTEND_BD,
        (_, _) => opcode::ZERO_EXTEND_BQ,
    }
}

/// All ones in the lanes that take part.
pub(super) fn lane_mask(lane: usize, w: Width, first: usize, count: usize) -> Vec<u8> {
    let mut mask = repeated(0, lane, w);
    mask[first * lane..(first + count) * lane].fill(0xff);
    mask
}

pub(super) fn v(r: Vreg) -> u8 {
    r.0 as u8
}
