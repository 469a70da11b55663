//! Vector loads, stores, gathers and scatters. Nothing outside of the lanes that take part is touched.

use super::scalar::n;
use crate::codegen::aarch64::emitter::{Emitter, X16, X17};
use crate::codegen::vcode::{Addr, Inst, Lane, LaneRange, VType, Vreg};
use crate::runtime::{DType, Result};
use dynasmrt::DynasmApi;

/// Temporaries of an instruction.
pub(super) fn needs(inst: &Inst) -> u8 {
    match inst {
        Inst::VStore { ty, mem, .. } => (mem.bytes() != ty.lane.bytes() || *mem == DType::Bool) as u8,
        Inst::VScatter { mem: DType::Bool, .. } => 1,
        Inst::VGatherIndex { .. } => 1,
        _ => 0,
    }
}

/// Returns true if elements of this memory type can become these lanes.
fn is_known(mem: DType, lane: Lane) -> bool {
    let integer = matches!(lane, Lane::I32 | Lane::I64);
    match mem {
        DType::Bool => true,
        DType::I8 | DType::U8 => integer,
        DType::I32 if lane == Lane::I64 => true,
        DType::F16 | DType::BF16 => lane == Lane::I32,
        _ => mem.bytes() == lane.bytes(),
    }
}

fn span(ty: VType, part: Option<LaneRange>) -> (usize, usize) {
    part.map_or((0, ty.lanes as usize), |p| (p.first as usize, p.count as usize))
}

fn v(r: Vreg) -> u8 {
    r.0 as u8
}

impl Emitter<'_> {
    pub(super) fn memory_inst(&mut self, inst: &Inst, virtual_inst: &Inst, vectors: &[u8]) -> Result<()> {
        match inst {
            Inst::VLoad { ty, mem, .. }
            | Inst::VStore { ty, mem, .. }
            | Inst::VBroadcast { ty, mem, .. }
            | Inst::VGather { ty, mem, .. }
            | Inst::VScatter { ty, mem, .. }
            | Inst::VGatherIndex { ty, mem, .. }
                if !is_known(*mem, ty.lane) =>
            {
                return self.unsupported(inst);
            }
            Inst::VLoad { dst, ty, mem, addr, part } => {
                self.load_lanes(v(*dst), *ty, *mem, addr, span(*ty, *part))?;
            }
            Inst::VStore { src, ty, mem, addr, part } => {
                self.store_lanes(v(*src), *ty, *mem, addr, span(*ty, *part), vectors)?;
            }
            Inst::VBroadcast { dst, ty, mem, addr } => {
                let d = v(*dst);
                let scalar = match virtual_inst {
                    Inst::VBroadcast { dst, .. } => self.by_element.contains(*dst),
                    _ => false,
                };
                if scalar {
                    let (b, offset) = self.operand(addr, 0, mem.bytes() as i64)?;
                    self.load_scalar(d, b, offset, mem.bytes());
                } else {
                    self.broadcast(d, *ty, *mem, addr)?;
                }
            }
            Inst::VGather { dst, ty, mem, addr, stride, part } => {
                let (first, count) = span(*ty, *part);
                self.each_lane_loaded(v(*dst), *ty, *mem, addr, *stride, (first, count));
            }
            Inst::VScatter { src, ty, mem, addr, stride, part } => {
                let mut s = v(*src);
                if *mem == DType::Bool {
                    self.negate_lanes(vectors[0], s, ty.lane.bytes());
                    s = vectors[0];
                }
                self.each_lane_stored(s, ty.lane.bytes(), mem.bytes(), addr, *stride, span(*ty, *part));
            }
            Inst::VGatherIndex { dst, ty, mem, base, index, index_lane, part } => {
                let (t, index, base) = (vectors[0], v(*index), n(*base));
                let shift = mem.bytes().trailing_zeros();
                a64!(self ; movi V(t).b16, 0);
                let (first, count) = span(*ty, *part);
                for i in first..first + count {
                    match index_lane.bytes() {
                        4 => a64!(self ; smov x17, V(index).s[i as u32]),
                        _ => a64!(self ; umov x17, V(index).d[i as u32]),
                    }
                    a64!(self ; add x16, X(base), x17, lsl shift);
                    self.load_element(t, i * ty.lane.bytes() / mem.bytes(), mem.bytes(), X16, None);
                }
                self.widen_in_place(t, *mem, ty.lane.bytes());
                self.copy(v(*dst), t);
            }
            _ => return self.unsupported(inst),
        }
        Ok(())
    }

    /// The low `size` bytes of `d`, the rest zero.
    fn load_scalar(&mut self, d: u8, b: u8, offset: i32, size: usize) {
        let (scaled, o) = (offset >= 0 && offset % size as i32 == 0, offset as u32);
        match (size, scaled) {
            (16, true) => a64!(self ; ldr Q(d), [XSP(b), o]),
            (16, false) => a64!(self ; ldur Q(d), [XSP(b), offset]),
            (8, true) => a64!(self ; ldr D(d), [XSP(b), o]),
            (8, false) => a64!(self ; ldur D(d), [XSP(b), offset]),
            (4, true) => a64!(self ; ldr S(d), [XSP(b), o]),
            (4, false) => a64!(self ; ldur S(d), [XSP(b), offset]),
            (2, true) => a64!(self ; ldr H(d), [XSP(b), o]),
            (2, false) => a64!(self ; ldur H(d), [XSP(b), offset]),
            (_, true) => a64!(self ; ldr B(d), [XSP(b), o]),
            (_, false) => a64!(self ; ldur B(d), [XSP(b), offset]),
        }
    }

    fn store_scalar(&mut self, s: u8, b: u8, offset: i32, size: usize) {
        let (scaled, o) = (offset >= 0 && offset % size as i32 == 0, offset as u32);
        match (size, scaled) {
            (16, true) => a64!(self ; str Q(s), [XSP(b), o]),
            (16, false) => a64!(self ; stur Q(s), [XSP(b), offset]),
            (8, true) => a64!(self ; str D(s), [XSP(b), o]),
            (8, false) => a64!(self ; stur D(s), [XSP(b), offset]),
            (4, true) => a64!(self ; str S(s), [XSP(b), o]),
            (4, false) => a64!(self ; stur S(s), [XSP(b), offset]),
            (2, true) => a64!(self ; str H(s), [XSP(b), o]),
            (2, false) => a64!(self ; stur H(s), [XSP(b), offset]),
            (_, true) => a64!(self ; str B(s), [XSP(b), o]),
            (_, false) => a64!(self ; stur B(s), [XSP(b), offset]),
        }
    }

    fn load_lanes(&mut self, d: u8, ty: VType, mem: DType, addr: &Addr, (first, count): (usize, usize)) -> Result<()> {
        let (lane, size) = (ty.lane.bytes(), mem.bytes());
        let bytes = count * size;
        if first != 0 || !bytes.is_power_of_two() {
            self.each_lane_loaded(d, ty, mem, addr, size as i64, (first, count));
            return Ok(());
        }
        let (b, offset) = self.operand(addr, 0, bytes as i64)?;
        self.load_scalar(d, b, offset, bytes);
        if size == 1 {
            let signed = mem == DType::I8;
            match signed {
                true => a64!(self ; sxtl V(d).h8, V(d).b8 ; sxtl V(d).s4, V(d).h4),
                false => a64!(self ; uxtl V(d).h8, V(d).b8 ; uxtl V(d).s4, V(d).h4),
            }
            match (lane, signed) {
                (8, true) => a64!(self ; sxtl V(d).d2, V(d).s2),
                (8, false) => a64!(self ; uxtl V(d).d2, V(d).s2),
                _ => {}
            }
            if mem == DType::Bool {
                self.negate_lanes(d, d, lane);
            }
        } else if size == 2 {
            a64!(self ; uxtl V(d).s4, V(d).h4);
        } else if size < lane {
            a64!(self ; sxtl V(d).d2, V(d).s2);
        }
        Ok(())
    }

    pub(super) fn negate_lanes(&mut self, d: u8, s: u8, lane: usize) {
        match lane {
            4 => a64!(self ; neg V(d).s4, V(s).s4),
            _ => a64!(self ; neg V(d).d2, V(s).d2),
        }
    }

    /// Elements that lie in the low bytes of zeroed lanes become lanes.
    fn widen_in_place(&mut self, d: u8, mem: DType, lane: usize) {
        match (mem, lane) {
            (DType::Bool, _) => self.negate_lanes(d, d, lane),
            (DType::I8, 4) => a64!(self ; shl V(d).s4, V(d).s4, 24 ; sshr V(d).s4, V(d).s4, 24),
            (DType::I8, _) => a64!(self ; shl V(d).d2, V(d).d2, 56 ; sshr V(d).d2, V(d).d2, 56),
            (DType::I32, 8) => a64!(self ; shl V(d).d2, V(d).d2, 32 ; sshr V(d).d2, V(d).d2, 32),
            _ => {}
        }
    }

    /// Element `i` of `size` bytes of `d` from the address in `b`, which `stride` (a register) then moves.
    fn load_element(&mut self, d: u8, i: usize, size: usize, b: u8, stride: Option<u8>) {
        let i = i as u32;
        match (size, stride) {
            (8, None) => a64!(self ; ld1 {V(d).d * 1}[i], [XSP(b)]),
            (8, Some(s)) => a64!(self ; ld1 {V(d).d * 1}[i], [XSP(b)], X(s)),
            (4, None) => a64!(self ; ld1 {V(d).s * 1}[i], [XSP(b)]),
            (4, Some(s)) => a64!(self ; ld1 {V(d).s * 1}[i], [XSP(b)], X(s)),
            (2, None) => a64!(self ; ld1 {V(d).h * 1}[i], [XSP(b)]),
            (2, Some(s)) => a64!(self ; ld1 {V(d).h * 1}[i], [XSP(b)], X(s)),
            (_, None) => a64!(self ; ld1 {V(d).b * 1}[i], [XSP(b)]),
            (_, Some(s)) => a64!(self ; ld1 {V(d).b * 1}[i], [XSP(b)], X(s)),
        }
    }

    fn store_element(&mut self, s: u8, i: usize, size: usize, b: u8, stride: Option<u8>) {
        let i = i as u32;
        match (size, stride) {
            (8, None) => a64!(self ; st1 {V(s).d * 1}[i], [XSP(b)]),
            (8, Some(x)) => a64!(self ; st1 {V(s).d * 1}[i], [XSP(b)], X(x)),
            (4, None) => a64!(self ; st1 {V(s).s * 1}[i], [XSP(b)]),
            (4, Some(x)) => a64!(self ; st1 {V(s).s * 1}[i], [XSP(b)], X(x)),
            (2, None) => a64!(self ; st1 {V(s).h * 1}[i], [XSP(b)]),
            (2, Some(x)) => a64!(self ; st1 {V(s).h * 1}[i], [XSP(b)], X(x)),
            (_, None) => a64!(self ; st1 {V(s).b * 1}[i], [XSP(b)]),
            (_, Some(x)) => a64!(self ; st1 {V(s).b * 1}[i], [XSP(b)], X(x)),
        }
    }

    /// The first address in a base register, and the stride in x17 when more than one lane takes part.
    fn walk(&mut self, addr: &Addr, stride: i64, (first, count): (usize, usize)) -> (u8, Option<u8>) {
        let b = self.address(addr, stride * first as i64);
        if count <= 1 {
            return (b, None);
        }
        if b != X16 {
            a64!(self ; mov x16, X(b));
        }
        self.immediate(X17, stride);
        (X16, Some(X17))
    }

    /// Lanes from addresses `stride` bytes apart.
    fn each_lane_loaded(
        &mut self,
        d: u8,
        ty: VType,
        mem: DType,
        addr: &Addr,
        stride: i64,
        (first, count): (usize, usize),
    ) {
        a64!(self ; movi V(d).b16, 0);
        let (b, step) = self.walk(addr, stride, (first, count));
        for i in first..first + count {
            self.load_element(d, i * ty.lane.bytes() / mem.bytes(), mem.bytes(), b, step);
        }
        self.widen_in_place(d, mem, ty.lane.bytes());
    }

    /// The low `size` bytes of lanes to addresses `stride` bytes apart.
    fn each_lane_stored(
        &mut self,
        s: u8,
        lane: usize,
        size: usize,
        addr: &Addr,
        stride: i64,
        (first, count): (usize, usize),
    ) {
        let (b, step) = self.walk(addr, stride, (first, count));
        for i in first..first + count {
            self.store_element(s, i * lane / size, size, b, step);
        }
    }

    fn store_lanes(
        &mut self,
        s: u8,
        ty: VType,
        mem: DType,
        addr: &Addr,
        (first, count): (usize, usize),
        vectors: &[u8],
    ) -> Result<()> {
        let (lane, size) = (ty.lane.bytes(), mem.bytes());
        let bytes = count * size;
        let mut s = s;
        if mem == DType::Bool {
            self.negate_lanes(vectors[0], s, lane);
            s = vectors[0];
        }
        if first != 0 || !bytes.is_power_of_two() {
            self.each_lane_stored(s, lane, size, addr, size as i64, (first, count));
            return Ok(());
        }
        let mut from = s;
        if size < lane {
            let t = vectors[0];
            if lane == 8 {
                a64!(self ; xtn V(t).s2, V(from).d2);
                from = t;
            }
            if size <= 2 {
                a64!(self ; xtn V(t).h4, V(from).s4);
                from = t;
            }
            if size == 1 {
                a64!(self ; xtn V(t).b8, V(t).h8);
            }
        }
        let (b, offset) = self.operand(addr, 0, bytes as i64)?;
        self.store_scalar(from, b, offset, bytes);
        Ok(())
    }

    fn broadcast(&mut self, d: u8, ty: VType, mem: DType, addr: &Addr) -> Result<()> {
        let lane = ty.lane.bytes();
        if mem.bytes() == lane && mem != DType::Bool {
            let b = self.address(addr, 0);
            match lane {
                4 => a64!(self ; ld1r {V(d).s4 * 1}, [XSP(b)]),
                _ => a64!(self ; ld1r {V(d).d2 * 1}, [XSP(b)]),
            }
            return Ok(());
        }
        let (b, offset) = self.operand(addr, 0, mem.bytes() as i64)?;
        self.load_int(X16, b, offset, mem)?;
        if mem == DType::Bool {
            a64!(self ; neg x16, x16);
        }
        match lane {
            4 => a64!(self ; dup V(d).s4, w16),
            _ => a64!(self ; dup V(d).d2, x16),
        }
        Ok(())
    }
}
