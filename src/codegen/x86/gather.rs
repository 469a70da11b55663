//! Gathers and scatters: by instructions where offsets fit their index lanes, else lane by lane through memory.

use super::encode::{Encoding, Memory, Rm, Width};
use super::memory::{extension, width};
use super::opcode::{self, Op};
use crate::codegen::emit::{Gather, Scalars};
use crate::codegen::vcode::lanes::{Lanes, Widening};
use crate::codegen::vcode::{Addr, Gpr, Lane, VType};
use crate::codegen::x86::emitter::{AREA_2, Emitter, at, on_stack};
use crate::runtime::{DType, Result};
use dynasmrt::{DynasmApi, dynasm};

impl Gather for Emitter<'_> {
    fn gather(&mut self, l: &Lanes) -> Result<()> {
        if let Some(bytes) = l.in_place(self.arch.evex, true) {
            let (mask, m) = (self.mask(bytes), Rm::Memory(at(&l.addr, 0)?));
            let e = self.plain(opcode::LOAD_B, l.width(), l.register.number(), 0, m);
            self.vector(Encoding { mask, zeroing: true, ..e });
            return Ok(());
        }
        if let Some(words) = l.words() {
            self.gather(&words)?;
            self.op2(opcode::EXTEND_DQ, l.width(), l.register.number(), l.register.number());
            return Ok(());
        }
        if let Some(starts) = l.lane_blocks(self.arch.evex) {
            return self.gather_by_blocks(l, &starts);
        }
        if let Some(starts) = l.narrow_blocks() {
            return self.gather_by_shuffles(l, &starts);
        }
        if let Some(widening) = l.inserted() {
            return self.insert_elements(l, widening, |_, i| at(&l.addr, i as i64 * l.stride));
        }
        if !l.is_hardware_gather() {
            let (pointer, t) = self.area_temporaries();
            self.address(pointer, &l.addr, l.stride * l.first as i64)?;
            self.clear_area(l, t);
            let here = Addr { base: Gpr(u32::from(pointer)), index: None, disp: 0 };
            for i in l.range() {
                self.load_int(t, &here, l.mem)?;
                self.lane_to_area(t, l.mem, l.lane_bytes(), i, 0);
                if i + 1 < l.first + l.count {
                    self.add_large(pointer, l.stride);
                }
            }
            self.load(opcode::LOAD_PS, l.width(), l.register.number(), on_stack(0));
            return Ok(());
        }
        if l.is_reversed() {
            return self.load_reversed(l);
        }
        if self.gather_by_vectors(l)? || self.gather_by_insertions(l)? {
            return Ok(());
        }
        let (m, index) = (self.gather_base(&l.addr)?, self.temporaries.vector[0]);
        self.strided_index(index, l.ty, l.stride);
        let op = if l.lane_bytes() == 4 { opcode::GATHER_DPS } else { opcode::GATHER_DPD };
        self.gather_lanes(op, l.width(), l, l.register.number(), Memory { index: Some((index, 1)), ..m });
        Ok(())
    }

    fn gather_index(&mut self, l: &Lanes, index: u8, index_lane: Lane) -> Result<()> {
        let (d, lane, size) = (l.register.number(), l.lane_bytes(), index_lane.bytes());
        let widening = l.widening();
        if !l.is_same() || lane < 4 {
            let (pointer, t) = self.area_temporaries();
            self.store(opcode::STORE_PS, width(VType { lane: index_lane, ..l.ty }), index, on_stack(AREA_2));
            let inserted = widening.filter(|_| l.mem.bytes() <= 2 && l.mem != DType::Bool);
            if let Some(widening) = inserted {
                return self.insert_elements(l, widening, |e, i| e.indexed(l, i, index_lane));
            }
            self.clear_area(l, t);
            for i in l.range() {
                let from = AREA_2 + (i * size) as i32;
                if size == 4 {
                    dynasm!(self.asm ; .arch x64 ; movsxd Rq(pointer), DWORD [rsp + from]);
                } else {
                    dynasm!(self.asm ; .arch x64 ; mov Rq(pointer), [rsp + from]);
                }
                let index = Some((Gpr(u32::from(pointer)), l.mem.bytes() as u8));
                self.load_int(t, &Addr { index, ..l.addr }, l.mem)?;
                self.lane_to_area(t, l.mem, lane, i, 0);
            }
            self.load(opcode::LOAD_PS, l.width(), d, on_stack(0));
            return Ok(());
        }
        let w = Width::of(l.ty.lanes as usize * lane.max(size));
        let m = Memory { base: Some(l.addr.base.number()), index: Some((index, lane as u8)), displacement: 0 };
        let op = match (size, lane) {
            (4, 4) => opcode::GATHER_DPS,
            (4, _) => opcode::GATHER_DPD,
            (_, 4) => opcode::GATHER_QPS,
            (_, _) => opcode::GATHER_QPD,
        };
        let gathered = self.temporaries.vector[0];
        self.gather_lanes(op, w, l, gathered, m);
        self.copy_width(l.width(), d, gathered);
        Ok(())
    }

    fn scatter(&mut self, l: &Lanes) -> Result<()> {
        let (s, lane) = (l.register.number(), l.lane_bytes());
        if let Some(bytes) = l.in_place(self.arch.evex, false) {
            let (mask, m) = (self.mask(bytes), Rm::Memory(at(&l.addr, 0)?));
            self.vector(Encoding { mask, ..self.plain(opcode::STORE_B, l.width(), s, 0, m) });
            return Ok(());
        }
        if self.scatter_by_vectors(l)? {
            return Ok(());
        }
        if l.is_stored_reversed() {
            return self.store_reversed(l);
        }
        if self.arch.evex && l.is_hardware_gather() {
            let (m, index) = (self.gather_base(&l.addr)?, self.temporaries.vector[0]);
            self.strided_index(index, l.ty, l.stride);
            self.scratch_mask(l.mask());
            let op = if lane == 4 { opcode::SCATTER_DPS } else { opcode::SCATTER_DPD };
            let rm = Rm::Memory(Memory { index: Some((index, 1)), ..m });
            self.vector(Encoding { mask: 1, vector_index: true, ..self.plain(op, l.width(), s, 0, rm) });
            return Ok(());
        }
        if !self.arch.evex && l.is_reached() {
            return self.scatter_by_extractions(l);
        }
        let (pointer, t) = self.area_temporaries();
        self.store(opcode::STORE_PS, l.width(), s, on_stack(0));
        self.address(pointer, &l.addr, l.stride * l.first as i64)?;
        for i in l.range() {
            let from = (i * lane) as i32;
            match l.mem.bytes() {
                8 => dynasm!(self.asm ; .arch x64 ; mov Rq(t), [rsp + from] ; mov [Rq(pointer)], Rq(t)),
                4 => dynasm!(self.asm ; .arch x64 ; mov Rd(t), [rsp + from] ; mov [Rq(pointer)], Rd(t)),
                2 => dynasm!(self.asm ; .arch x64 ; mov Rd(t), [rsp + from] ; mov [Rq(pointer)], Rw(t)),
                _ => {
                    dynasm!(self.asm ; .arch x64 ; mov Rd(t), [rsp + from]);
                    if l.mem == DType::Bool {
                        dynasm!(self.asm ; .arch x64 ; and Rd(t), BYTE 1);
                    }
                    dynasm!(self.asm ; .arch x64 ; mov [Rq(pointer)], Rb(t));
                }
            }
            if i + 1 < l.first + l.count {
                self.add_large(pointer, l.stride);
            }
        }
        Ok(())
    }
}

impl Emitter<'_> {
    /// The element at an index in the second area.
    fn indexed(&mut self, l: &Lanes, i: usize, index_lane: Lane) -> Result<Memory> {
        let (pointer, from) = (self.temporaries.gpr[0], AREA_2 + (i * index_lane.bytes()) as i32);
        if index_lane.bytes() == 4 {
            dynasm!(self.asm ; .arch x64 ; movsxd Rq(pointer), DWORD [rsp + from]);
        } else {
            dynasm!(self.asm ; .arch x64 ; mov Rq(pointer), [rsp + from]);
        }
        Ok(Memory { index: Some((pointer, l.mem.bytes() as u8)), ..at(&l.addr, 0)? })
    }

    /// Bytes or halves, each with its place in memory: they are inserted where they belong, then all are widened.
    fn insert_elements(
        &mut self,
        l: &Lanes,
        widening: Widening,
        mut element: impl FnMut(&mut Self, usize) -> Result<Memory>,
    ) -> Result<()> {
        let (d, size) = (l.register.number(), l.mem.bytes());
        let (insert, room) = if size == 1 { (opcode::INSERT_B, 16) } else { (opcode::INSERT_W, 8) };
        self.zero(d);
        for part in (0..l.range().end).step_by(room) {
            let to = if part == 0 { d } else { self.temporaries.vector[0] };
            if part > 0 {
                self.zero(to);
            }
            for i in l.range().filter(|i| (part..part + room).contains(i)) {
                let m = element(self, i)?;
                let e = self.plain(insert, Width::X, to, to, Rm::Memory(m));
                self.vector(Encoding { immediate: Some((i - part) as u8), ..e });
            }
            if part > 0 {
                self.op3i(opcode::INSERT_128, Width::Y, d, d, to, 1);
            }
        }
        if widening != Widening::Same {
            self.op2(extension(widening, l.lane_bytes()), l.width(), d, d);
        }
        Ok(())
    }

    /// AVX2: a load for each lane, inserted where it belongs. `vgatherdps` takes 12 to 17 cycles on Zen 3, eight of these 5.
    /// Returns false where the lanes are not read so.
    fn gather_by_insertions(&mut self, l: &Lanes) -> Result<bool> {
        let (d, lane, upper) = (l.register.number(), l.lane_bytes(), self.temporaries.vector[0]);
        if self.arch.evex || !l.is_reached() {
            return Ok(false);
        }
        let address = |i: usize| at(&l.addr, i as i64 * l.stride);
        let (load, insert) =
            if lane == 4 { (opcode::LOAD_SS, opcode::INSERT_D) } else { (opcode::LOAD_SD, opcode::INSERT_Q) };
        let room = 16 / lane;
        for half in 0..(l.ty.lanes as usize).div_ceil(room) {
            let mut lanes = l.range().filter(|i| i / room == half).peekable();
            if half > 0 && lanes.peek().is_none() {
                continue;
            }
            let to = if half == 0 { d } else { upper };
            match lanes.next_if(|i| i % room == 0) {
                Some(first) => self.load(load, Width::X, to, address(first)?),
                None => self.zero(to),
            }
            for i in lanes {
                let e = self.plain(insert, Width::X, to, to, Rm::Memory(address(i)?));
                self.vector(Encoding { immediate: Some((i % room) as u8), ..e });
            }
            if half > 0 {
                self.op3i(opcode::INSERT_128, Width::Y, d, d, to, 1);
            }
        }
        Ok(true)
    }

    /// AVX2: a store for each lane, straight from the register.
    fn scatter_by_extractions(&mut self, l: &Lanes) -> Result<()> {
        let (s, lane) = (l.register.number(), l.lane_bytes());
        let room = 16 / lane;
        let (store, extract) =
            if lane == 4 { (opcode::STORE_SS, opcode::EXTRACT_D) } else { (opcode::STORE_SD, opcode::EXTRACT_Q) };
        for half in 0..(l.ty.lanes as usize).div_ceil(room) {
            let mut lanes = l.range().filter(|i| i / room == half).peekable();
            if lanes.peek().is_none() {
                continue;
            }
            let from = if half == 0 { s } else { self.temporaries.vector[0] };
            if half > 0 {
                self.op2i(opcode::EXTRACT_128, Width::Y, s, from, 1);
            }
            for i in lanes {
                let to = at(&l.addr, i as i64 * l.stride)?;
                match i % room {
                    0 => self.store(store, Width::X, from, to),
                    place => self.extract_to(extract, from, to, place as u8),
                }
            }
        }
        Ok(())
    }

    /// A pointer and a value, for lanes through memory.
    fn area_temporaries(&self) -> (u8, u8) {
        (self.temporaries.gpr[0], self.temporaries.gpr[1])
    }

    /// The address without an index register.
    fn gather_base(&mut self, addr: &Addr) -> Result<Memory> {
        if addr.index.is_none() {
            return at(addr, 0);
        }
        let base = self.temporaries.gpr[0];
        self.address(base, addr, 0)?;
        Ok(Memory { base: Some(base), index: None, displacement: 0 })
    }

    /// Byte offsets 0, stride, 2·stride … as 32-bit lanes.
    fn strided_index(&mut self, d: u8, ty: VType, stride: i64) {
        let w = Width::of(ty.lanes as usize * 4);
        let lanes = (w.bytes() / 4) as i64;
        let offsets =
            (0..lanes).flat_map(|i| if i < i64::from(ty.lanes) { (i * stride) as i32 } else { 0 }.to_le_bytes());
        self.op3_constant(opcode::LOAD_PS, w, d, 0, offsets.collect());
    }

    /// `d`, the index and the second temporary (AVX2: the mask) differ.
    fn gather_lanes(&mut self, op: Op, w: Width, l: &Lanes, d: u8, m: Memory) {
        self.zero(d);
        let e = Encoding { vector_index: true, ..self.plain(op, w, d, 0, Rm::Memory(m)) };
        match self.temporaries.vector.get(1) {
            None => {
                self.scratch_mask(l.mask());
                self.vector(Encoding { mask: 1, ..e });
            }
            Some(&mask) => {
                self.op3_constant(opcode::LOAD_PS, w, mask, 0, l.mask_bytes(w));
                self.vector(Encoding { second: mask, ..e });
            }
        }
    }

    /// Zero in the lanes of the first area that do not take part.
    fn clear_area(&mut self, l: &Lanes, t: u8) {
        let lanes = l.ty.lanes as usize;
        if (l.first, l.count) != (0, lanes) {
            self.immediate(t, 0);
            for i in (0..lanes).filter(|i| !l.range().contains(i)) {
                self.lane_to_area(t, DType::I64, l.lane_bytes(), i, 0);
            }
        }
    }

    /// Writes an integer register to a lane of an area.
    pub(super) fn lane_to_area(&mut self, t: u8, mem: DType, lane: usize, i: usize, area: i32) {
        let to = area + (i * lane) as i32;
        if mem == DType::Bool {
            dynasm!(self.asm ; .arch x64 ; neg Rq(t));
        }
        match lane {
            1 => dynasm!(self.asm ; .arch x64 ; mov [rsp + to], Rb(t)),
            2 => dynasm!(self.asm ; .arch x64 ; mov [rsp + to], Rw(t)),
            4 => dynasm!(self.asm ; .arch x64 ; mov [rsp + to], Rd(t)),
            _ => dynasm!(self.asm ; .arch x64 ; mov [rsp + to], Rq(t)),
        }
    }
}
