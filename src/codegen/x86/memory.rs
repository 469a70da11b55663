//! Vector loads, stores and broadcasts. Nothing outside of the lanes that take part is touched.

use super::encode::{Encoding, Memory, Rm, Width};
use super::opcode::{self, Op};
use crate::codegen::emit::LoadStore;
use crate::codegen::regalloc::allocation::Needs;
use crate::codegen::vcode::lanes::{Interleaved, Lanes, Widening};
use crate::codegen::vcode::{Addr, Inst, Lane, VType, Vreg};
use crate::codegen::x86::emitter::{Emitter, at, repeated};
use crate::runtime::{DType, Error, Result};
use std::ops::Range;

impl Lanes {
    /// The register of all lanes.
    pub(super) fn width(&self) -> Width {
        width(self.ty)
    }

    pub(super) fn mask(&self) -> u64 {
        u64::MAX.checked_shr(64 - self.count as u32).unwrap_or(0) << self.first
    }

    /// Returns true if all lanes that the register has take part.
    fn fills_register(&self) -> bool {
        (self.first, self.count) == (0, self.width().bytes() / self.lane_bytes())
    }

    /// Returns true if the elements are as wide as the lanes.
    pub(super) fn is_same(&self) -> bool {
        self.widening() == Some(Widening::Same)
    }

    /// Returns true if the first lane alone takes part, in elements of one or two bytes.
    fn is_first_alone(&self) -> bool {
        (self.first, self.count) == (0, 1) && self.mem.bytes() <= 2 && self.mem != DType::Bool
    }

    /// Returns true for one element of one or two bytes, which is copied to all lanes: a load under a mask waits for stores of the element.
    fn is_copied_to_all(&self) -> bool {
        let numbers = matches!(self.widening(), Some(Widening::Number | Widening::Rounded | Widening::Word) | None);
        !numbers && self.ty.lanes == 1 && self.count == 1 && self.mem.bytes() <= 2
    }

    /// Returns true if one plain instruction moves exactly these bytes, elements as wide as the lanes.
    fn is_plain(&self) -> bool {
        self.first == 0 && matches!(self.count * self.lane_bytes(), 4 | 8 | 16 | 32 | 64)
    }

    /// Elements far apart are reached by gather and scatter instructions when all offsets fit their index lanes.
    pub(super) fn is_hardware_gather(&self) -> bool {
        let farthest = self.stride.checked_mul(i64::from(self.ty.lanes));
        self.is_same() && self.lane_bytes() >= 4 && farthest.is_some_and(|f| i32::try_from(f).is_ok())
    }

    /// The gather of 32-bit lanes by an instruction that lanes of 64 bits are widened from.
    pub(super) fn words(&self) -> Option<Lanes> {
        let words = Lanes { ty: VType { lane: Lane::I32, ..self.ty }, ..*self };
        (self.widening() == Some(Widening::Word) && self.ty.lanes >= 4 && words.is_hardware_gather()).then_some(words)
    }

    /// Returns true if a displacement reaches each of the elements, which are as wide as the lanes, of 4 bytes or more.
    pub(super) fn is_reached(&self) -> bool {
        self.is_hardware_gather() && self.range().all(|i| at(&self.addr, i as i64 * self.stride).is_ok())
    }

    /// How bytes or halves are widened that displacements reach, so that each is inserted from memory; `None` for others.
    pub(super) fn inserted(&self) -> Option<Widening> {
        let lanes = usize::from(self.ty.lanes);
        let simple =
            |w: &Widening| !matches!(w, Widening::Number | Widening::Rounded | Widening::Bool | Widening::Word);
        let reached = || self.range().all(|i| at(&self.addr, i as i64 * self.stride).is_ok());
        self.widening().filter(simple).filter(|_| self.mem.bytes() <= 2 && lanes * self.mem.bytes() <= 32 && reached())
    }

    /// Returns true if a lane lies beyond the first 16 bytes of its register.
    fn is_in_upper_half(&self) -> bool {
        (self.first + self.count) * self.lane_bytes() > 16
    }

    /// Returns true if the elements are neighbours in memory, the last lane first, and fill a register.
    pub(super) fn is_reversed(&self) -> bool {
        let lane = self.lane_bytes();
        self.is_same() && lane >= 4 && self.stride == -(lane as i64) && self.ty.lanes as usize * lane >= 16
    }

    /// Returns true if all lanes take part.
    pub(super) fn is_whole(&self) -> bool {
        (self.first, self.count) == (0, self.ty.lanes as usize)
    }

    /// Returns true if a store of these lanes is a permutation and a store of all of them.
    pub(super) fn is_stored_reversed(&self) -> bool {
        self.is_reversed() && self.is_whole()
    }

    /// All ones in the lanes that take part, in a register of `width`.
    pub(super) fn mask_bytes(&self, width: Width) -> Vec<u8> {
        let lane = self.lane_bytes();
        let mut mask = repeated(0, lane, width);
        mask[self.first * lane..(self.first + self.count) * lane].fill(0xff);
        mask
    }
}

/// The narrowest register of a type.
pub(super) fn width(ty: VType) -> Width {
    Width::of(ty.bytes())
}

fn is_load(inst: &Inst) -> bool {
    matches!(inst, Inst::VGather { .. })
}

/// The masks that an instruction of AVX-512 would like to find loaded.
pub(super) fn masks_of(inst: &Inst) -> Vec<u64> {
    let Some(l) = inst.lanes() else { return vec![] };
    let l = if is_load(inst) { l.words().unwrap_or(l) } else { l };
    match inst {
        Inst::VStore { .. } if l.is_first_alone() => vec![],
        Inst::VLoad { .. } if l.is_copied_to_all() => vec![],
        Inst::VLoad { .. } | Inst::VStore { .. } => {
            let rounded = l.widening() == Some(Widening::Rounded);
            let plain = if l.is_same() { l.is_plain() } else { rounded || l.fills_register() };
            if plain { vec![] } else { vec![l.mask()] }
        }
        Inst::VBroadcast { .. } | Inst::VLoadWhere { .. } | Inst::VStoreWhere { .. } => vec![],
        Inst::VGather { .. } | Inst::VScatter { .. } if l.in_place(true, is_load(inst)).is_some() => {
            l.in_place(true, is_load(inst)).into_iter().collect()
        }
        Inst::VGather { .. } if l.lane_blocks(true).is_some() => {
            if l.ty.bytes() == 64 {
                vec![l.span_mask()]
            } else {
                vec![]
            }
        }
        Inst::VGather { .. } if l.is_gathered_by_vectors(true) || l.narrow_blocks().is_some() => vec![],
        Inst::VGather { .. } if l.inserted().is_some() => vec![],
        Inst::VScatter { .. } if l.is_stored_reversed() => vec![],
        Inst::VScatter { .. } => match l.spread(true) {
            Some(vectors) => vectors.into_iter().map(|v| v.1).collect(),
            None => vec![l.mask()],
        },
        _ => vec![l.mask()],
    }
}

/// Returns true if the lanes go through memory one by one.
pub(super) fn uses_area(inst: &Inst, l: &Lanes, evex: bool) -> bool {
    match inst {
        Inst::VGather { .. } if l.words().is_some() => false,
        Inst::VGather { .. } | Inst::VScatter { .. } if l.in_place(evex, is_load(inst)).is_some() => false,
        Inst::VScatter { .. } if l.is_stored_reversed() => false,
        Inst::VGather { .. } => !l.is_hardware_gather() && l.narrow_blocks().is_none() && l.inserted().is_none(),
        Inst::VScatter { .. } => !(if evex { l.is_hardware_gather() } else { l.is_reached() }),
        Inst::VGatherIndex { .. } => !l.is_same() || l.lane_bytes() < 4,
        _ => false,
    }
}

pub(super) fn needs(inst: &Inst, l: &Lanes, evex: bool) -> Needs {
    match inst {
        Inst::VGather { .. } if let Some(words) = l.words() => needs(inst, &words, evex),
        Inst::VGatherIndex { .. } if uses_area(inst, l, evex) => Needs { gpr: 2, vector: 1 },
        _ if uses_area(inst, l, evex) => Needs { gpr: 2, vector: 0 },
        Inst::VGather { .. } | Inst::VScatter { .. } if l.in_place(evex, is_load(inst)).is_some() => {
            Needs { gpr: 0, vector: 0 }
        }
        Inst::VGather { .. } if l.narrow_blocks().is_some() => Needs { gpr: 0, vector: 1 + l.has_narrow_parts() as u8 },
        Inst::VGather { .. } if l.inserted().is_some() => {
            // more elements than one insertion reaches
            Needs { gpr: 0, vector: (l.range().end * l.mem.bytes() > 16) as u8 }
        }
        Inst::VGather { .. } if l.is_gathered_by_vectors(evex) => {
            Needs { gpr: 0, vector: if l.count == l.ty.lanes as usize { 1 } else { 2 } }
        }
        Inst::VScatter { .. } if l.spread(evex).is_some() || l.is_stored_reversed() => Needs { gpr: 0, vector: 1 },
        Inst::VGather { .. } | Inst::VScatter { .. } if !evex && l.is_reached() => Needs { gpr: 0, vector: 1 },
        Inst::VGather { .. } | Inst::VScatter { .. } => {
            Needs { gpr: l.addr.index.is_some() as u8, vector: if evex { 1 } else { 2 } }
        }
        Inst::VGatherIndex { .. } => Needs { gpr: 0, vector: if evex { 1 } else { 2 } },
        Inst::VStore { .. } => {
            let vector = match (l.widening(), evex) {
                (Some(Widening::Same), false) => (!l.is_plain() && (l.lane_bytes() >= 4 || l.is_in_upper_half())) as u8,
                (Some(Widening::Bool | Widening::Rounded), true) => 1,
                (_, false) => 2,
                (_, true) => 0,
            };
            Needs { gpr: 0, vector }
        }
        Inst::VLoad { .. } if !evex && l.lane_bytes() < 4 && l.is_same() && !l.is_plain() => {
            Needs { gpr: 0, vector: l.is_in_upper_half() as u8 }
        }
        _ => Needs::default(),
    }
}

impl LoadStore for Emitter<'_> {
    fn store_interleaved(&mut self, group: &Interleaved) -> Result<()> {
        self.interleave(group)
    }

    fn load_lanes(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        let (d, lane, w) = (l.register.number(), l.lane_bytes(), l.width());
        if l.count == 0 {
            self.zero(d);
            return Ok(());
        }
        let natural = l.fills_register();
        match widening {
            _ if l.is_copied_to_all() => return self.broadcast(l, widening),
            Widening::Same => return self.load_same(l),
            Widening::Number => self.load(opcode::F16_TO_F32, w, d, at(&l.addr, 0)?),
            Widening::Word if self.arch.evex || natural => {
                self.load_masked(opcode::EXTEND_DQ, w, d, at(&l.addr, 0)?, (!natural).then(|| l.mask()));
            }
            Widening::Word => {
                self.load_same(&Lanes { ty: VType { lane: Lane::I32, ..l.ty }, ..*l })?;
                self.op2(opcode::EXTEND_DQ, w, d, d);
            }
            _ if self.arch.evex || (natural && w.bytes() / lane >= 4) => {
                let op = extension(widening, lane);
                self.load_masked(op, w, d, at(&l.addr, 0)?, (!natural).then(|| l.mask()));
            }
            _ if lane == 2 => {
                self.load_bytes(d, l.first..l.first + l.count, &l.addr)?;
                self.op2(extension(widening, lane), w, d, d);
            }
            _ => {
                let (four, insert, size) = match widening {
                    Widening::Half | Widening::SignedHalf => (opcode::LOAD_SD, opcode::INSERT_W, 2),
                    _ => (opcode::LOAD_SS, opcode::INSERT_B, 1),
                };
                let mut lanes = l.range();
                if l.first == 0 && l.count >= 4 {
                    self.load(four, Width::X, d, at(&l.addr, 0)?);
                    lanes.start = 4;
                } else {
                    self.zero(d);
                }
                for i in lanes {
                    let e = self.plain(insert, Width::X, d, d, Rm::Memory(at(&l.addr, (i * size) as i64)?));
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

    fn move_where(&mut self, l: &Lanes, mask: u8, stores: bool) -> Result<bool> {
        let (r, w, lane) = (l.register.number(), l.width(), l.lane_bytes());
        if !l.is_same() || lane < 4 || !l.fills_register() {
            return Ok(false);
        }
        let m = Rm::Memory(at(&l.addr, 0)?);
        let short = w != Width::Z && !stores && r.max(mask) < 16;
        if self.arch.evex && !short {
            let (mask_of, op) = match (lane, stores) {
                (4, false) => (opcode::D_TO_MASK, opcode::LOAD_PS),
                (4, true) => (opcode::D_TO_MASK, opcode::STORE_PS),
                (_, false) => (opcode::Q_TO_MASK, opcode::LOAD_PD),
                (_, true) => (opcode::Q_TO_MASK, opcode::STORE_PD),
            };
            if self.arch.compared != Some(self.compared_here(mask, lane)) {
                self.op2(mask_of, w, 1, mask);
            }
            self.vector(Encoding { mask: 1, zeroing: !stores, ..self.plain(op, w, r, 0, m) });
        } else {
            let op = match (lane, stores) {
                (4, false) => opcode::MASK_LOAD_PS,
                (4, true) => opcode::MASK_STORE_PS,
                (_, false) => opcode::MASK_LOAD_PD,
                (_, true) => opcode::MASK_STORE_PD,
            };
            self.vector(Encoding { evex: false, ..self.plain(op, w, r, mask, m) });
        }
        Ok(true)
    }

    fn store_lanes(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        match widening {
            _ if l.count == 0 => Ok(()),
            Widening::Same => self.store_same(l),
            Widening::Rounded if self.arch.evex => {
                let register = Vreg(u32::from(self.temporaries.vector[0]));
                self.op2(opcode::F32_TO_BF16, l.width(), register.number(), l.register.number());
                self.store_same(&Lanes { register, ty: VType { lane: Lane::I16, ..l.ty }, mem: DType::I16, ..*l })
            }
            Widening::Rounded => Err(Error::Internal(format!("{}: no instruction rounds to bf16", self.function.name))),
            _ if self.arch.evex && !l.is_first_alone() => self.store_narrow(l),
            Widening::Word => {
                let register = Vreg(u32::from(self.temporaries.vector[0]));
                self.low_words(l.width(), register.number(), l.register.number());
                self.store_same(&Lanes { register, ty: VType { lane: Lane::I32, ..l.ty }, ..*l })
            }
            _ => self.store_low(l),
        }
    }

    fn broadcast(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        let (d, lane, w) = (l.register.number(), l.lane_bytes(), l.width());
        let half = Width::of(w.bytes() / 2);
        let m = at(&l.addr, 0)?;
        match widening {
            Widening::Same if lane == 1 => self.load(opcode::BROADCAST_B, w, d, m),
            Widening::Same if lane == 2 => self.load(opcode::BROADCAST_W, w, d, m),
            Widening::Same if lane == 4 => self.load(opcode::BROADCAST_SS, w, d, m),
            Widening::Same => self.load(opcode::BROADCAST_Q, w, d, m),
            Widening::Word => {
                self.load(opcode::BROADCAST_D, half, d, m);
                self.op2(opcode::EXTEND_DQ, w, d, d);
            }
            _ => {
                self.broadcast_widened(l, widening)?;
                if widening == Widening::Bool {
                    self.bool_to_mask(w, d, lane);
                }
            }
        }
        Ok(())
    }
}

impl Emitter<'_> {
    /// Elements as wide as the lanes.
    pub(super) fn load_same(&mut self, l: &Lanes) -> Result<()> {
        let (d, lane, m) = (l.register.number(), l.lane_bytes(), at(&l.addr, 0)?);
        if l.is_plain() {
            match l.count * lane {
                4 => self.load(opcode::LOAD_SS, Width::X, d, m),
                8 => self.load(opcode::LOAD_SD, Width::X, d, m),
                bytes => self.load(opcode::LOAD_PS, Width::of(bytes), d, m),
            }
            return Ok(());
        }
        let w = Width::of((l.first + l.count) * lane);
        if self.arch.evex {
            let op = match lane {
                1 => opcode::LOAD_B,
                2 => opcode::LOAD_W,
                4 => opcode::LOAD_PS,
                _ => opcode::LOAD_PD,
            };
            self.load_masked(op, w, d, m, Some(l.mask()));
        } else if lane < 4 {
            self.load_bytes(d, l.first * lane..(l.first + l.count) * lane, &l.addr)?;
        } else {
            let mask = self.constant_register(w, d, l.mask_bytes(w));
            let op = if lane == 4 { opcode::MASK_LOAD_PS } else { opcode::MASK_LOAD_PD };
            self.vector(self.plain(op, w, d, mask, Rm::Memory(m)));
        }
        Ok(())
    }

    /// EVEX when there is a mask: lanes outside become zero.
    pub(super) fn load_masked(&mut self, op: Op, w: Width, d: u8, m: Memory, mask: Option<u64>) {
        let k = mask.map_or(0, |mask| self.mask(mask));
        self.vector(Encoding { mask: k, zeroing: k != 0, ..self.plain(op, w, d, 0, Rm::Memory(m)) });
    }

    /// Lanes of 0 or 1 become lanes of all zeros or all ones.
    fn bool_to_mask(&mut self, w: Width, d: u8, lane: usize) {
        if lane == 4 {
            self.shift_by(opcode::SHIFT_D, w, 6, d, d, 31);
            self.shift_by(opcode::SHIFT_D, w, 4, d, d, 31);
        } else {
            self.shift_by(opcode::SHIFT_Q, w, 6, d, d, 63);
            if self.arch.evex {
                self.shift_by(opcode::SHIFT_ARITHMETIC_Q, w, 4, d, d, 63);
            } else {
                // The high half of each lane, twice.
                self.shift_by(opcode::SHIFT_D, w, 4, d, d, 31);
                self.op2i(opcode::SHUFFLE_D, w, d, d, 0xf5);
            }
        }
    }

    pub(super) fn shift_by(&mut self, op: Op, w: Width, extension: u8, d: u8, a: u8, amount: u8) {
        self.op3i(op, w, extension, d, a, amount);
    }

    pub(super) fn store_same(&mut self, l: &Lanes) -> Result<()> {
        let (s, lane, m) = (l.register.number(), l.lane_bytes(), at(&l.addr, 0)?);
        if l.is_first_alone() && lane < 4 {
            self.extract_to(if lane == 1 { opcode::EXTRACT_B } else { opcode::EXTRACT_W }, s, m, 0);
            return Ok(());
        }
        if l.is_plain() {
            match l.count * lane {
                4 => self.store(opcode::STORE_SS, Width::X, s, m),
                8 => self.store(opcode::STORE_SD, Width::X, s, m),
                bytes => self.store(opcode::STORE_PS, Width::of(bytes), s, m),
            }
            return Ok(());
        }
        let (w, m) = (Width::of((l.first + l.count) * lane), Rm::Memory(m));
        if self.arch.evex {
            let op = match lane {
                1 => opcode::STORE_B,
                2 => opcode::STORE_W,
                4 => opcode::STORE_PS,
                _ => opcode::STORE_PD,
            };
            let mask = self.mask(l.mask());
            self.vector(Encoding { mask, ..self.plain(op, w, s, 0, m) });
        } else if lane < 4 {
            self.store_bytes(s, l.first * lane..(l.first + l.count) * lane, &l.addr)?;
        } else {
            // The last temporary: what is stored may lie in the first.
            let mask = *self.temporaries.vector.last().expect("declared");
            let mask = self.constant_register(w, mask, l.mask_bytes(w));
            let op = if lane == 4 { opcode::MASK_STORE_PS } else { opcode::MASK_STORE_PD };
            self.vector(self.plain(op, w, s, mask, m));
        }
        Ok(())
    }

    /// A byte or a half, widened, in every lane.
    fn broadcast_widened(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        let (d, lane, w) = (l.register.number(), l.lane_bytes(), l.width());
        let half = Width::of(w.bytes() / 2);
        let (op, from) = match l.mem.bytes() {
            2 => (opcode::BROADCAST_W, half),
            _ => (opcode::BROADCAST_B, if lane == 2 { half } else { Width::X }),
        };
        self.load(op, from, d, at(&l.addr, 0)?);
        self.op2(extension(widening, lane), w, d, d);
        Ok(())
    }

    /// AVX2: the bytes `range` of a register, from memory; the others become zero.
    fn load_bytes(&mut self, d: u8, range: Range<usize>, addr: &Addr) -> Result<()> {
        self.zero(d);
        for half in [0..16, 16..32] {
            let (start, end) = (range.start.max(half.start), range.end.min(half.end));
            if start >= end {
                continue;
            }
            let upper = half.start > 0;
            let to = if upper { self.temporaries.vector[0] } else { d };
            if (start, end) == (half.start, half.end) {
                self.load(opcode::LOAD_PS, Width::X, to, at(addr, start as i64)?);
            } else if upper {
                self.zero(to);
            }
            for (from, size) in pieces(start..end) {
                let op = match size {
                    8 => opcode::INSERT_Q,
                    4 => opcode::INSERT_D,
                    2 => opcode::INSERT_W,
                    1 => opcode::INSERT_B,
                    _ => continue,
                };
                let e = self.plain(op, Width::X, to, to, Rm::Memory(at(addr, from as i64)?));
                self.vector(Encoding { immediate: Some(((from - half.start) / size) as u8), ..e });
            }
            if upper {
                self.op3i(opcode::INSERT_128, Width::Y, d, d, to, 1);
            }
        }
        Ok(())
    }

    /// AVX2: the bytes `range` of a register, to memory.
    pub(super) fn store_bytes(&mut self, s: u8, range: Range<usize>, addr: &Addr) -> Result<()> {
        for half in [0..16, 16..32] {
            let (start, end) = (range.start.max(half.start), range.end.min(half.end));
            if start >= end {
                continue;
            }
            let from = if half.start > 0 { *self.temporaries.vector.last().expect("declared") } else { s };
            if half.start > 0 {
                self.op2i(opcode::EXTRACT_128, Width::Y, s, from, 1);
            }
            for (piece, size) in pieces(start..end) {
                let to = at(addr, piece as i64)?;
                let lane = ((piece - half.start) / size) as u8;
                match size {
                    16 => self.store(opcode::STORE_PS, Width::X, from, to),
                    8 => self.extract_to(opcode::EXTRACT_Q, from, to, lane),
                    4 => self.extract_to(opcode::EXTRACT_D, from, to, lane),
                    2 => self.extract_to(opcode::EXTRACT_W, from, to, lane),
                    _ => self.extract_to(opcode::EXTRACT_B, from, to, lane),
                }
            }
        }
        Ok(())
    }

    /// AVX-512: bytes or words from wider lanes.
    fn store_narrow(&mut self, l: &Lanes) -> Result<()> {
        let (mut s, lane, w) = (l.register.number(), l.lane_bytes(), l.width());
        if l.mem == DType::Bool {
            let positive = self.temporaries.vector[0];
            self.op2(if lane == 4 { opcode::ABS_D } else { opcode::ABS_Q }, w, positive, s);
            s = positive;
        }
        let op = match (lane, l.mem) {
            (2, _) => opcode::NARROW_WB,
            (4, DType::F16 | DType::BF16 | DType::I16 | DType::U16) => opcode::NARROW_DW,
            (4, _) => opcode::NARROW_DB,
            (_, DType::I32) => opcode::NARROW_QD,
            _ => opcode::NARROW_QB,
        };
        let mask = if l.fills_register() { 0 } else { self.mask(l.mask()) };
        let m = Rm::Memory(at(&l.addr, 0)?);
        self.vector(Encoding { mask, ..self.plain(op, w, s, 0, m) });
        Ok(())
    }

    /// AVX2: the low words of 64-bit lanes side by side in the low half.
    pub(super) fn low_words(&mut self, w: Width, d: u8, s: u8) {
        self.op2i(opcode::SHUFFLE_D, w, d, s, 0x08);
        if w == Width::Y {
            self.op2i(opcode::PERMUTE_Q, w, d, d, 0x08);
        }
    }

    /// The low bytes, or halves, of lanes; AVX-512 stores a first lane so, without a mask: what is loaded next may be it.
    fn store_low(&mut self, l: &Lanes) -> Result<()> {
        let (s, lane, size, w) = (l.register.number(), l.lane_bytes(), l.mem.bytes(), l.width());
        let extract = if size == 2 { opcode::EXTRACT_W } else { opcode::EXTRACT_B };
        if l.is_first_alone() {
            self.extract_to(extract, s, at(&l.addr, 0)?, 0);
            return Ok(());
        }
        let (t, u) = (self.temporaries.vector[0], self.temporaries.vector[1]);
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
        if l.mem == DType::Bool {
            self.op2(opcode::ABS_B, Width::X, t, t);
        }
        let mut lanes = l.range();
        if l.first == 0 {
            let width = [16, 8, 4, 2].into_iter().find(|&b| b <= l.count * size);
            match width {
                Some(16) => self.store(opcode::STORE_PS, Width::X, t, at(&l.addr, 0)?),
                Some(8) => self.store(opcode::STORE_SD, Width::X, t, at(&l.addr, 0)?),
                Some(4) => self.store(opcode::STORE_D, Width::X, t, at(&l.addr, 0)?),
                Some(_) => self.extract_to(opcode::EXTRACT_W, t, at(&l.addr, 0)?, 0),
                None => {}
            }
            lanes.start = width.unwrap_or(0) / size;
        }
        for i in lanes {
            self.extract_to(extract, t, at(&l.addr, (i * size) as i64)?, i as u8);
        }
        Ok(())
    }

    pub(super) fn extract_to(&mut self, op: Op, s: u8, to: Memory, lane: u8) {
        let e = self.plain(op, Width::X, s, 0, Rm::Memory(to));
        self.vector(Encoding { immediate: Some(lane), ..e });
    }
}

/// Bytes of a register in as few pieces as one access moves: the first byte and the size of each.
fn pieces(range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let mut from = range.start;
    std::iter::from_fn(move || {
        let fits = |size: &usize| from.is_multiple_of(*size) && from + size <= range.end;
        let size = [16, 8, 4, 2, 1].into_iter().find(fits)?;
        from += size;
        Some((from - size, size))
    })
}

/// The instruction that widens bytes, or halves, to lanes.
pub(super) fn extension(widening: Widening, lane: usize) -> Op {
    match (widening, lane) {
        (Widening::Half, _) => opcode::ZERO_EXTEND_WD,
        (Widening::SignedHalf, _) => opcode::EXTEND_WD,
        (Widening::SignedByte, 2) => opcode::EXTEND_BW,
        (_, 2) => opcode::ZERO_EXTEND_BW,
        (Widening::SignedByte, 4) => opcode::EXTEND_BD,
        (Widening::SignedByte, _) => opcode::EXTEND_BQ,
        (_, 4) => opcode::ZERO_EXTEND_BD,
        (_, _) => opcode::ZERO_EXTEND_BQ,
    }
}
