//! Vector loads and stores: whole, of a part of the lanes, strided, by index, and narrow elements.

use super::scalar::n;
use super::{ADDRESS, DATA, Emitter};
use crate::codegen::vcode::{Addr, Inst, Lane, LaneRange, VType, Vreg};
use crate::codegen::{DType, Error, Result};
use dynasmrt::{DynasmApi, dynasm};

/// Vector temporaries of a load or store.
pub(super) fn temporaries(inst: &Inst) -> u8 {
    match inst {
        Inst::VStore { ty, mem, part: None, .. } if narrowing(*ty, *mem).is_some() => 1,
        Inst::VGatherIndex { .. } => 1,
        _ => 0,
    }
}

/// The steps that halve the width of each lane on the way to memory, where a whole vector can be stored at once.
fn narrowing(ty: VType, mem: DType) -> Option<u32> {
    let (lane, element) = (ty.lane.bytes(), mem.bytes());
    let stored = element * ty.lanes as usize;
    (lane > element && matches!(stored, 1 | 4 | 8)).then(|| (lane / element).trailing_zeros())
}

impl Emitter<'_> {
    pub(super) fn memory_inst(&mut self, inst: &Inst, temporaries: &[u8]) -> Result<()> {
        match inst {
            Inst::VLoad { dst, ty, mem, addr, part } => match part {
                None => self.load(v(*dst), *ty, *mem, addr),
                Some(part) => {
                    self.zero(v(*dst));
                    self.load_lanes(v(*dst), *ty, *mem, addr, mem.bytes() as i64, *part)
                }
            },
            Inst::VStore { src, ty, mem, addr, part } => match part {
                None => self.store(v(*src), *ty, *mem, addr, temporaries),
                Some(part) => self.store_lanes(v(*src), *ty, *mem, addr, mem.bytes() as i64, *part),
            },
            Inst::VBroadcast { dst, ty, mem, addr } => self.broadcast(v(*dst), *ty, *mem, addr),
            Inst::VGather { dst, ty, mem, addr, stride, part } => {
                if part.is_some() {
                    self.zero(v(*dst));
                }
                self.load_lanes(v(*dst), *ty, *mem, addr, *stride, part.unwrap_or(whole(*ty)))
            }
            Inst::VScatter { src, ty, mem, addr, stride, part } => {
                self.store_lanes(v(*src), *ty, *mem, addr, *stride, part.unwrap_or(whole(*ty)))
            }
            Inst::VGatherIndex { dst, ty, mem, base, index, index_lane, part } => {
                let &[t] = temporaries else { return self.unsupported(inst) };
                self.zero(t);
                let part = part.unwrap_or(whole(*ty));
                for lane in part.first..part.first + part.count {
                    self.lane_to_gpr(ADDRESS, v(*index), *index_lane, lane, true);
                    let shift = mem.bytes().trailing_zeros();
                    dynasm!(self.asm ; .arch aarch64 ; add X(ADDRESS), X(n(*base)), X(ADDRESS), lsl shift);
                    self.load_int(DATA, ADDRESS, 0, *mem)?;
                    self.gpr_to_lane(t, ty.lane, lane, DATA);
                }
                if *mem == DType::Bool {
                    self.test_nonzero(t, ty.lane);
                }
                self.move_vector(v(*dst), t);
                Ok(())
            }
            _ => self.unsupported(inst),
        }
    }

    fn load(&mut self, d: u8, ty: VType, mem: DType, addr: &Addr) -> Result<()> {
        let size = mem.bytes() as i64 * i64::from(ty.lanes);
        if !matches!(size, 1 | 4 | 8 | 16) {
            return self.load_lanes(d, ty, mem, addr, mem.bytes() as i64, whole(ty));
        }
        let (base, offset) = self.locate(addr, 0);
        self.load_vector(d, base, offset, size);
        self.widen(d, mem, ty.lane)?;
        if mem == DType::Bool {
            self.test_nonzero(d, ty.lane);
        }
        Ok(())
    }

    /// The low elements of `d`, of type `mem`, to lanes.
    fn widen(&mut self, d: u8, mem: DType, lane: Lane) -> Result<()> {
        let mut bytes = mem.bytes();
        if bytes != lane.bytes() && mem.is_float() {
            return Err(Error::Internal(format!("{}: {mem} in lanes {lane:?}", self.name)));
        }
        let signed = matches!(mem, DType::I8 | DType::I32);
        while bytes < lane.bytes() {
            match (bytes, signed) {
                (1, false) => dynasm!(self.asm ; .arch aarch64 ; ushll V(d).H8, V(d).B8, 0),
                (1, true) => dynasm!(self.asm ; .arch aarch64 ; sshll V(d).H8, V(d).B8, 0),
                (2, false) => dynasm!(self.asm ; .arch aarch64 ; ushll V(d).S4, V(d).H4, 0),
                (2, true) => dynasm!(self.asm ; .arch aarch64 ; sshll V(d).S4, V(d).H4, 0),
                (_, false) => dynasm!(self.asm ; .arch aarch64 ; ushll V(d).D2, V(d).S2, 0),
                (_, true) => dynasm!(self.asm ; .arch aarch64 ; sshll V(d).D2, V(d).S2, 0),
            }
            bytes *= 2;
        }
        Ok(())
    }

    fn store(&mut self, s: u8, ty: VType, mem: DType, addr: &Addr, temporaries: &[u8]) -> Result<()> {
        let size = mem.bytes() as i64 * i64::from(ty.lanes);
        if mem.bytes() == ty.lane.bytes() {
            let (base, offset) = self.locate(addr, 0);
            self.store_vector(s, base, offset, size);
            return Ok(());
        }
        let (Some(halvings), &[t]) = (narrowing(ty, mem), temporaries) else {
            return self.store_lanes(s, ty, mem, addr, mem.bytes() as i64, whole(ty));
        };
        let mut bytes = ty.lane.bytes();
        let mut from = s;
        for _ in 0..halvings {
            match bytes {
                8 => dynasm!(self.asm ; .arch aarch64 ; xtn V(t).S2, V(from).D2),
                4 => dynasm!(self.asm ; .arch aarch64 ; xtn V(t).H4, V(from).S4),
                _ => dynasm!(self.asm ; .arch aarch64 ; xtn V(t).B8, V(from).H8),
            }
            bytes /= 2;
            from = t;
        }
        if mem == DType::Bool {
            dynasm!(self.asm ; .arch aarch64 ; ushr V(t).B8, V(t).B8, 7);
        }
        let (base, offset) = self.locate(addr, 0);
        self.store_vector(t, base, offset, size);
        Ok(())
    }

    fn broadcast(&mut self, d: u8, ty: VType, mem: DType, addr: &Addr) -> Result<()> {
        let (base, offset) = self.locate(addr, 0);
        if mem.bytes() == ty.lane.bytes() {
            self.load_vector(d, base, offset, mem.bytes() as i64);
            match ty.lane.bytes() {
                4 => dynasm!(self.asm ; .arch aarch64 ; dup V(d).S4, V(d).S[0]),
                _ => dynasm!(self.asm ; .arch aarch64 ; dup V(d).D2, V(d).D[0]),
            }
            return Ok(());
        }
        self.load_int(DATA, base, offset, mem)?;
        self.splat(d, ty.lane, DATA);
        if mem == DType::Bool {
            self.test_nonzero(d, ty.lane);
        }
        Ok(())
    }

    /// Lanes of `part`, their elements `stride` bytes apart; the other lanes stay.
    fn load_lanes(&mut self, d: u8, ty: VType, mem: DType, addr: &Addr, stride: i64, part: LaneRange) -> Result<()> {
        self.address(addr, 0);
        let mut at = 0;
        for lane in part.first..part.first + part.count {
            let offset = stride * i64::from(lane);
            self.approach(&mut at, offset);
            self.load_int(DATA, ADDRESS, offset - at, mem)?;
            self.gpr_to_lane(d, ty.lane, lane, DATA);
        }
        if mem == DType::Bool {
            self.test_nonzero(d, ty.lane);
        }
        Ok(())
    }

    fn store_lanes(&mut self, s: u8, ty: VType, mem: DType, addr: &Addr, stride: i64, part: LaneRange) -> Result<()> {
        self.address(addr, 0);
        let mut at = 0;
        for lane in part.first..part.first + part.count {
            let offset = stride * i64::from(lane);
            self.approach(&mut at, offset);
            self.lane_to_gpr(DATA, s, ty.lane, lane, false);
            if mem == DType::Bool {
                dynasm!(self.asm ; .arch aarch64 ; and WSP(DATA), W(DATA), 1);
            }
            self.store_gpr(DATA, ADDRESS, offset - at, mem.bytes() as i64);
        }
        Ok(())
    }

    /// Moves the address scratch register from `at` so that `offset` is in reach of any access without a further one.
    fn approach(&mut self, at: &mut i64, offset: i64) {
        if !(-256..256).contains(&(offset - *at)) {
            self.add_constant(ADDRESS, ADDRESS, offset - *at);
            *at = offset;
        }
    }

    // ---- registers

    pub(super) fn load_vector(&mut self, r: u8, base: u8, offset: i64, size: i64) {
        let (b, o, scaled) = self.reach(base, offset, size);
        let (u, s) = (o as u32, o as i32);
        match (size, scaled) {
            (16, true) => dynasm!(self.asm ; .arch aarch64 ; ldr Q(r), [XSP(b), u]),
            (16, false) => dynasm!(self.asm ; .arch aarch64 ; ldur Q(r), [XSP(b), s]),
            (8, true) => dynasm!(self.asm ; .arch aarch64 ; ldr D(r), [XSP(b), u]),
            (8, false) => dynasm!(self.asm ; .arch aarch64 ; ldur D(r), [XSP(b), s]),
            (4, true) => dynasm!(self.asm ; .arch aarch64 ; ldr S(r), [XSP(b), u]),
            (4, false) => dynasm!(self.asm ; .arch aarch64 ; ldur S(r), [XSP(b), s]),
            (_, true) => dynasm!(self.asm ; .arch aarch64 ; ldr B(r), [XSP(b), u]),
            (_, false) => dynasm!(self.asm ; .arch aarch64 ; ldur B(r), [XSP(b), s]),
        }
    }

    pub(super) fn store_vector(&mut self, r: u8, base: u8, offset: i64, size: i64) {
        let (b, o, scaled) = self.reach(base, offset, size);
        let (u, s) = (o as u32, o as i32);
        match (size, scaled) {
            (16, true) => dynasm!(self.asm ; .arch aarch64 ; str Q(r), [XSP(b), u]),
            (16, false) => dynasm!(self.asm ; .arch aarch64 ; stur Q(r), [XSP(b), s]),
            (8, true) => dynasm!(self.asm ; .arch aarch64 ; str D(r), [XSP(b), u]),
            (8, false) => dynasm!(self.asm ; .arch aarch64 ; stur D(r), [XSP(b), s]),
            (4, true) => dynasm!(self.asm ; .arch aarch64 ; str S(r), [XSP(b), u]),
            (4, false) => dynasm!(self.asm ; .arch aarch64 ; stur S(r), [XSP(b), s]),
            (_, true) => dynasm!(self.asm ; .arch aarch64 ; str B(r), [XSP(b), u]),
            (_, false) => dynasm!(self.asm ; .arch aarch64 ; stur B(r), [XSP(b), s]),
        }
    }

    /// A lane in a general-purpose register; `extend` takes a narrow lane as signed.
    pub(super) fn lane_to_gpr(&mut self, d: u8, s: u8, lane: Lane, i: u8, extend: bool) {
        let i = u32::from(i);
        match (lane.bytes(), extend) {
            (4, true) => dynasm!(self.asm ; .arch aarch64 ; smov X(d), V(s).S[i]),
            (4, false) => dynasm!(self.asm ; .arch aarch64 ; umov W(d), V(s).S[i]),
            _ => dynasm!(self.asm ; .arch aarch64 ; umov X(d), V(s).D[i]),
        }
    }

    pub(super) fn gpr_to_lane(&mut self, d: u8, lane: Lane, i: u8, s: u8) {
        let i = u32::from(i);
        match lane.bytes() {
            4 => dynasm!(self.asm ; .arch aarch64 ; ins V(d).S[i], W(s)),
            _ => dynasm!(self.asm ; .arch aarch64 ; ins V(d).D[i], X(s)),
        }
    }
}

fn whole(ty: VType) -> LaneRange {
    LaneRange { first: 0, count: ty.lanes }
}

pub(super) fn v(r: Vreg) -> u8 {
    r.0 as u8
}
