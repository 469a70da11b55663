//! Gathers and scatters: by instructions where offsets fit their index lanes, else lane by lane through memory.

use super::encode::{Encoding, Memory, Rm, Width};
use super::memory::{bits, is_reversed, lane_mask, span, uses_area, v};
use super::opcode::{self, Op};
use super::scalar::n;
use crate::codegen::vcode::{Addr, Inst, Lane, VType};
use crate::codegen::x86::emitter::{AREA_2, Emitter, at, on_stack};
use crate::runtime::{DType, Result};
use dynasmrt::{DynasmApi, dynasm};

impl Emitter<'_> {
    pub(super) fn gather_inst(&mut self, inst: &Inst, gprs: &[u8], vectors: &[u8]) -> Result<()> {
        let Inst::VGather { dst, ty, mem, addr, stride, part } = inst else { return self.unsupported(inst) };
        if uses_area(inst, self.evex) {
            return self.gather_through_area(v(*dst), *ty, *mem, addr, *stride, span(*ty, *part), gprs);
        }
        if is_reversed(*mem, *ty, *stride) {
            return self.load_reversed(v(*dst), *ty, addr, span(*ty, *part), vectors[0]);
        }
        let lane = ty.lane.bytes();
        let m = self.gather_base(addr, gprs)?;
        let index = vectors[0];
        self.strided_index(index, *ty, *stride);
        let w = Width::of(ty.lanes as usize * lane);
        let op = if lane == 4 { opcode::GATHER_DPS } else { opcode::GATHER_DPD };
        self.gather(op, w, lane, v(*dst), Memory { index: Some((index, 1)), ..m }, span(*ty, *part), vectors.get(1));
        Ok(())
    }

    pub(super) fn gather_index_inst(&mut self, inst: &Inst, gprs: &[u8], vectors: &[u8]) -> Result<()> {
        let Inst::VGatherIndex { dst, ty, mem, base, index, index_lane, part } = inst else {
            return self.unsupported(inst);
        };
        if uses_area(inst, self.evex) {
            let from = (n(*base), v(*index), *index_lane);
            return self.gather_index_through_area(v(*dst), *ty, *mem, from, span(*ty, *part), gprs);
        }
        let (lane, wide) = (ty.lane.bytes(), index_lane.bytes() == 8);
        let w = Width::of(ty.lanes as usize * lane.max(index_lane.bytes()));
        let m = Memory { base: Some(n(*base)), index: Some((v(*index), lane as u8)), displacement: 0 };
        let op = match (wide, lane) {
            (false, 4) => opcode::GATHER_DPS,
            (false, _) => opcode::GATHER_DPD,
            (true, 4) => opcode::GATHER_QPS,
            (true, _) => opcode::GATHER_QPD,
        };
        self.gather(op, w, lane, vectors[0], m, span(*ty, *part), vectors.get(1));
        self.copy(Width::of(ty.lanes as usize * lane), v(*dst), vectors[0]);
        Ok(())
    }

    pub(super) fn scatter_inst(&mut self, inst: &Inst, gprs: &[u8], vectors: &[u8]) -> Result<()> {
        let Inst::VScatter { src, ty, mem, addr, stride, part } = inst else { return self.unsupported(inst) };
        if uses_area(inst, self.evex) {
            return self.scatter_through_area(v(*src), *ty, *mem, addr, *stride, span(*ty, *part), gprs);
        }
        let lane = ty.lane.bytes();
        let m = self.gather_base(addr, gprs)?;
        self.strided_index(vectors[0], *ty, *stride);
        let (first, count) = span(*ty, *part);
        self.scratch_mask(bits(first, count));
        let op = if lane == 4 { opcode::SCATTER_DPS } else { opcode::SCATTER_DPD };
        let rm = Rm::Memory(Memory { index: Some((vectors[0], 1)), ..m });
        let w = Width::of(ty.lanes as usize * lane);
        self.vector(Encoding { mask: 1, vector_index: true, ..self.plain(op, w, v(*src), 0, rm) });
        Ok(())
    }

    /// The address without an index register.
    fn gather_base(&mut self, addr: &Addr, gprs: &[u8]) -> Result<Memory> {
        if addr.index.is_none() {
            return at(addr, 0);
        }
        self.address(gprs[0], addr, 0)?;
        Ok(Memory { base: Some(gprs[0]), index: None, displacement: 0 })
    }

    /// Byte offsets 0, stride, 2·stride … as 32-bit lanes.
    fn strided_index(&mut self, d: u8, ty: VType, stride: i64) {
        let w = Width::of(ty.lanes as usize * 4);
        let lanes = (w.bytes() / 4) as i64;
        let offsets =
            (0..lanes).flat_map(|i| if i < i64::from(ty.lanes) { (i * stride) as i32 } else { 0 }.to_le_bytes());
        self.op3_constant(opcode::LOAD_PS, w, d, 0, offsets.collect());
    }

    /// `d`, the index and `mask_register` (AVX2) differ.
    #[allow(clippy::too_many_arguments)]
    fn gather(
        &mut self,
        op: Op,
        w: Width,
        lane: usize,
        d: u8,
        m: Memory,
        (first, count): (usize, usize),
        mask_register: Option<&u8>,
    ) {
        self.zero(d);
        let e = Encoding { vector_index: true, ..self.plain(op, w, d, 0, Rm::Memory(m)) };
        match mask_register {
            None => {
                self.scratch_mask(bits(first, count));
                self.vector(Encoding { mask: 1, ..e });
            }
            Some(&mask) => {
                self.op3_constant(opcode::LOAD_PS, w, mask, 0, lane_mask(lane, w, first, count));
                self.vector(Encoding { second: mask, ..e });
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn gather_through_area(
        &mut self,
        d: u8,
        ty: VType,
        mem: DType,
        addr: &Addr,
        stride: i64,
        (first, count): (usize, usize),
        gprs: &[u8],
    ) -> Result<()> {
        let (pointer, t) = (gprs[0], gprs[1]);
        self.address(pointer, addr, stride * first as i64)?;
        self.clear_area(ty, (first, count), t);
        let here = Addr { base: crate::codegen::vcode::Gpr(u32::from(pointer)), index: None, disp: 0 };
        for i in first..first + count {
            self.load_int(t, &here, 0, mem)?;
            self.lane_to_area(t, mem, ty.lane.bytes(), i, 0);
            if i + 1 < first + count {
                self.add_large(pointer, stride);
            }
        }
        let w = Width::of(ty.lanes as usize * ty.lane.bytes());
        self.load(opcode::LOAD_PS, w, d, on_stack(0));
        Ok(())
    }

    fn gather_index_through_area(
        &mut self,
        d: u8,
        ty: VType,
        mem: DType,
        (base, index, index_lane): (u8, u8, Lane),
        (first, count): (usize, usize),
        gprs: &[u8],
    ) -> Result<()> {
        let (pointer, t) = (gprs[0], gprs[1]);
        let index_bytes = index_lane.bytes();
        let iw = Width::of(ty.lanes as usize * index_bytes);
        self.store(opcode::STORE_PS, iw, index, on_stack(AREA_2));
        self.clear_area(ty, (first, count), t);
        for i in first..first + count {
            let from = AREA_2 + (i * index_bytes) as i32;
            if index_bytes == 4 {
                dynasm!(self.asm ; .arch x64 ; movsxd Rq(pointer), DWORD [rsp + from]);
            } else {
                dynasm!(self.asm ; .arch x64 ; mov Rq(pointer), [rsp + from]);
            }
            let gpr = |r: u8| crate::codegen::vcode::Gpr(u32::from(r));
            let addr = Addr { base: gpr(base), index: Some((gpr(pointer), mem.bytes() as u8)), disp: 0 };
            self.load_int(t, &addr, 0, mem)?;
            self.lane_to_area(t, mem, ty.lane.bytes(), i, 0);
        }
        let w = Width::of(ty.lanes as usize * ty.lane.bytes());
        self.load(opcode::LOAD_PS, w, d, on_stack(0));
        Ok(())
    }

    /// Zero in the lanes of the first area that do not take part.
    fn clear_area(&mut self, ty: VType, (first, count): (usize, usize), t: u8) {
        let lanes = ty.lanes as usize;
        if (first, count) != (0, lanes) {
            self.immediate(t, 0);
            for i in (0..lanes).filter(|i| !(first..first + count).contains(i)) {
                self.lane_to_area(t, DType::I64, ty.lane.bytes(), i, 0);
            }
        }
    }

    /// Writes an integer register to a lane of an area.
    pub(super) fn lane_to_area(&mut self, t: u8, mem: DType, lane: usize, i: usize, area: i32) {
        let to = area + (i * lane) as i32;
        if mem == DType::Bool {
            dynasm!(self.asm ; .arch x64 ; neg Rq(t));
        }
        if lane == 4 {
            dynasm!(self.asm ; .arch x64 ; mov [rsp + to], Rd(t));
        } else {
            dynasm!(self.asm ; .arch x64 ; mov [rsp + to], Rq(t));
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn scatter_through_area(
        &mut self,
        s: u8,
        ty: VType,
        mem: DType,
        addr: &Addr,
        stride: i64,
        (first, count): (usize, usize),
        gprs: &[u8],
    ) -> Result<()> {
        let (pointer, t) = (gprs[0], gprs[1]);
        let lane = ty.lane.bytes();
        let w = Width::of(ty.lanes as usize * lane);
        self.store(opcode::STORE_PS, w, s, on_stack(0));
        self.address(pointer, addr, stride * first as i64)?;
        for i in first..first + count {
            let from = (i * lane) as i32;
            match mem.bytes() {
                8 => dynasm!(self.asm ; .arch x64 ; mov Rq(t), [rsp + from] ; mov [Rq(pointer)], Rq(t)),
                4 => dynasm!(self.asm ; .arch x64 ; mov Rd(t), [rsp + from] ; mov [Rq(pointer)], Rd(t)),
                2 => dynasm!(self.asm ; .arch x64 ; mov Rd(t), [rsp + from] ; mov [Rq(pointer)], Rw(t)),
                _ => {
                    dynasm!(self.asm ; .arch x64 ; mov Rd(t), [rsp + from]);
                    if mem == DType::Bool {
                        dynasm!(self.asm ; .arch x64 ; and Rd(t), BYTE 1);
                    }
                    dynasm!(self.asm ; .arch x64 ; mov [Rq(pointer)], Rb(t));
                }
            }
            if i + 1 < first + count {
                self.add_large(pointer, stride);
            }
        }
        Ok(())
    }
}
