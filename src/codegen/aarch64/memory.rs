//! Vector loads, stores, gathers and scatters. Nothing outside of the lanes that take part is touched.

use crate::codegen::aarch64::emitter::{Emitter, X16, X17};
use crate::codegen::emit::{Gather, LoadStore, Scalars, Vectors};
use crate::codegen::vcode::lanes::{Interleaved, Lanes, Widening};
use crate::codegen::vcode::{Inst, Lane};
use crate::runtime::{DType, Error, Result};
use dynasmrt::DynasmApi;

/// Temporaries of an instruction.
pub(super) fn needs(inst: &Inst) -> u8 {
    match inst {
        Inst::VStore { ty, mem, .. } => (mem.bytes() != ty.lane.bytes() || *mem == DType::Bool) as u8,
        Inst::VScatter { mem: DType::Bool, .. } => 1,
        Inst::VGatherIndex { .. } => 1,
        Inst::VStoreInterleaved { mem, .. } => 1 + (mem.bytes() <= 2) as u8,
        _ => 0,
    }
}

/// The low `size` bytes of a register; loading clears the rest.
macro_rules! move_scalar {
    ($name:ident $scaled:ident $unscaled:ident) => {
        pub(super) fn $name(&mut self, r: u8, b: u8, offset: i32, size: usize) {
            let (scaled, o) = (offset >= 0 && offset % size as i32 == 0, offset as u32);
            match (size, scaled) {
                (16, true) => a64!(self ; $scaled Q(r), [XSP(b), o]),
                (16, false) => a64!(self ; $unscaled Q(r), [XSP(b), offset]),
                (8, true) => a64!(self ; $scaled D(r), [XSP(b), o]),
                (8, false) => a64!(self ; $unscaled D(r), [XSP(b), offset]),
                (4, true) => a64!(self ; $scaled S(r), [XSP(b), o]),
                (4, false) => a64!(self ; $unscaled S(r), [XSP(b), offset]),
                (2, true) => a64!(self ; $scaled H(r), [XSP(b), o]),
                (2, false) => a64!(self ; $unscaled H(r), [XSP(b), offset]),
                (_, true) => a64!(self ; $scaled B(r), [XSP(b), o]),
                (_, false) => a64!(self ; $unscaled B(r), [XSP(b), offset]),
            }
        }
    };
}

/// Element `i` of `size` bytes of a register and the address in `b`, which `stride` (a register) then moves.
macro_rules! move_element {
    ($name:ident $op:ident) => {
        fn $name(&mut self, r: u8, i: usize, size: usize, b: u8, stride: Option<u8>) {
            let i = i as u32;
            match (size, stride) {
                (8, None) => a64!(self ; $op {V(r).d * 1}[i], [XSP(b)]),
                (8, Some(s)) => a64!(self ; $op {V(r).d * 1}[i], [XSP(b)], X(s)),
                (4, None) => a64!(self ; $op {V(r).s * 1}[i], [XSP(b)]),
                (4, Some(s)) => a64!(self ; $op {V(r).s * 1}[i], [XSP(b)], X(s)),
                (2, None) => a64!(self ; $op {V(r).h * 1}[i], [XSP(b)]),
                (2, Some(s)) => a64!(self ; $op {V(r).h * 1}[i], [XSP(b)], X(s)),
                (_, None) => a64!(self ; $op {V(r).b * 1}[i], [XSP(b)]),
                (_, Some(s)) => a64!(self ; $op {V(r).b * 1}[i], [XSP(b)], X(s)),
            }
        }
    };
}

impl LoadStore for Emitter<'_> {
    fn store_interleaved(&mut self, group: &Interleaved) -> Result<()> {
        self.interleave(group)
    }

    fn load_lanes(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        let (d, lane, mem, size) = (l.register.number(), l.lane_bytes(), l.mem, l.mem.bytes());
        let bytes = l.count * size;
        if l.first != 0 || !bytes.is_power_of_two() {
            return self.gather(l);
        }
        let (b, offset) = self.operand(&l.addr, bytes as i64);
        self.load_scalar(d, b, offset, bytes);
        if size == 1 && lane > 1 {
            let signed = mem == DType::I8;
            match signed {
                true => a64!(self ; sxtl V(d).h8, V(d).b8),
                false => a64!(self ; uxtl V(d).h8, V(d).b8),
            }
            match (lane > 2, signed) {
                (true, true) => a64!(self ; sxtl V(d).s4, V(d).h4),
                (true, false) => a64!(self ; uxtl V(d).s4, V(d).h4),
                _ => {}
            }
            match (lane, signed) {
                (8, true) => a64!(self ; sxtl V(d).d2, V(d).s2),
                (8, false) => a64!(self ; uxtl V(d).d2, V(d).s2),
                _ => {}
            }
            if mem == DType::Bool {
                self.negate_lanes(d, d, lane);
            }
        } else if widening == Widening::Number {
            a64!(self ; fcvtl V(d).s4, V(d).h4);
        } else if widening == Widening::SignedHalf {
            a64!(self ; sxtl V(d).s4, V(d).h4);
        } else if size == 2 && lane > 2 {
            a64!(self ; uxtl V(d).s4, V(d).h4);
        } else if size == 4 && size < lane {
            a64!(self ; sxtl V(d).d2, V(d).s2);
        }
        Ok(())
    }

    fn store_lanes(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        if widening == Widening::Rounded {
            return Err(Error::Internal(format!("{}: no instruction rounds to bf16", self.function.name)));
        }
        let (lane, size) = (l.lane_bytes(), l.mem.bytes());
        let bytes = l.count * size;
        if l.first != 0 || !bytes.is_power_of_two() {
            return self.scatter(l);
        }
        let mut from = self.stored(l);
        if size < lane {
            let t = self.temporaries.vector[0];
            if lane == 8 {
                a64!(self ; xtn V(t).s2, V(from).d2);
                from = t;
            }
            if size <= 2 && lane > 2 {
                a64!(self ; xtn V(t).h4, V(from).s4);
                from = t;
            }
            if size == 1 {
                a64!(self ; xtn V(t).b8, V(from).h8);
                from = t;
            }
        }
        let (b, offset) = self.operand(&l.addr, bytes as i64);
        self.store_scalar(from, b, offset, bytes);
        Ok(())
    }

    // `ldp` of vectors is left alone: the pairs of `ldr` start as fast, and Cortex-A55 takes three times as long for it
    fn store_pair(&mut self, low: &Lanes, high: &Lanes) -> bool {
        let (a, b, base) = (low.register.number(), high.register.number(), low.addr.base.number());
        let (bytes, offset) = (low.count * low.mem.bytes(), low.addr.disp);
        if bytes != 16 || offset % 16 != 0 || !(-1024..=1008).contains(&offset) {
            return false;
        }
        a64!(self ; stp Q(a), Q(b), [XSP(base), offset]);
        true
    }

    fn broadcast(&mut self, l: &Lanes, widening: Widening) -> Result<()> {
        let (d, lane) = (l.register.number(), l.lane_bytes());
        match self.function.insts[self.origin] {
            Inst::VBroadcast { dst, .. } if self.arch.by_element.contains(dst) => {
                let (b, offset) = self.operand(&l.addr, l.mem.bytes() as i64);
                self.load_scalar(d, b, offset, l.mem.bytes());
            }
            _ if widening == Widening::Same => {
                let b = self.address(&l.addr, 0);
                match lane {
                    1 => a64!(self ; ld1r {V(d).b16 * 1}, [XSP(b)]),
                    2 => a64!(self ; ld1r {V(d).h8 * 1}, [XSP(b)]),
                    4 => a64!(self ; ld1r {V(d).s4 * 1}, [XSP(b)]),
                    _ => a64!(self ; ld1r {V(d).d2 * 1}, [XSP(b)]),
                }
            }
            _ => {
                self.load_int(X16, &l.addr, l.mem)?;
                if l.mem == DType::Bool {
                    a64!(self ; neg x16, x16);
                }
                self.splat(d, X16, l.ty);
            }
        }
        Ok(())
    }
}

impl Gather for Emitter<'_> {
    fn gather(&mut self, l: &Lanes) -> Result<()> {
        let (d, lane, size) = (l.register.number(), l.lane_bytes(), l.mem.bytes());
        a64!(self ; movi V(d).b16, 0);
        let (b, step) = self.walk(l);
        for i in l.range() {
            self.load_element(d, i * lane / size, size, b, step);
        }
        self.widen_in_place(d, l.mem, lane);
        Ok(())
    }

    fn scatter(&mut self, l: &Lanes) -> Result<()> {
        let (s, size) = (self.stored(l), l.mem.bytes());
        let (b, step) = self.walk(l);
        for i in l.range() {
            self.store_element(s, i * l.lane_bytes() / size, size, b, step);
        }
        Ok(())
    }

    fn gather_index(&mut self, l: &Lanes, index: u8, index_lane: Lane) -> Result<()> {
        let (t, base, lane, size) = (self.temporaries.vector[0], l.addr.base.number(), l.lane_bytes(), l.mem.bytes());
        a64!(self ; movi V(t).b16, 0);
        for i in l.range() {
            match index_lane.bytes() {
                4 => a64!(self ; smov x17, V(index).s[i as u32]),
                _ => a64!(self ; umov x17, V(index).d[i as u32]),
            }
            a64!(self ; add x16, X(base), x17, lsl size.trailing_zeros());
            self.load_element(t, i * lane / size, size, X16, None);
        }
        self.widen_in_place(t, l.mem, lane);
        self.copy(l.register.number(), t, l.ty);
        Ok(())
    }
}

impl Emitter<'_> {
    /// The lanes that are stored: 0 and 1 for booleans.
    fn stored(&mut self, l: &Lanes) -> u8 {
        let s = l.register.number();
        if l.mem != DType::Bool {
            return s;
        }
        let negated = self.temporaries.vector[0];
        self.negate_lanes(negated, s, l.lane_bytes());
        negated
    }

    move_scalar!(load_scalar ldr ldur);
    move_scalar!(store_scalar str stur);

    pub(super) fn negate_lanes(&mut self, d: u8, s: u8, lane: usize) {
        match lane {
            1 => a64!(self ; neg V(d).b16, V(s).b16),
            2 => a64!(self ; neg V(d).h8, V(s).h8),
            4 => a64!(self ; neg V(d).s4, V(s).s4),
            _ => a64!(self ; neg V(d).d2, V(s).d2),
        }
    }

    /// Elements that lie in the low bytes of zeroed lanes become lanes.
    fn widen_in_place(&mut self, d: u8, mem: DType, lane: usize) {
        match (mem, lane) {
            (DType::Bool, _) => self.negate_lanes(d, d, lane),
            (DType::I8, 1) => {}
            (DType::I8, 2) => a64!(self ; shl V(d).h8, V(d).h8, 8 ; sshr V(d).h8, V(d).h8, 8),
            (DType::I16, 4) => a64!(self ; shl V(d).s4, V(d).s4, 16 ; sshr V(d).s4, V(d).s4, 16),
            (DType::I8, 4) => a64!(self ; shl V(d).s4, V(d).s4, 24 ; sshr V(d).s4, V(d).s4, 24),
            (DType::I8, _) => a64!(self ; shl V(d).d2, V(d).d2, 56 ; sshr V(d).d2, V(d).d2, 56),
            (DType::I32, 8) => a64!(self ; shl V(d).d2, V(d).d2, 32 ; sshr V(d).d2, V(d).d2, 32),
            _ => {}
        }
    }

    move_element!(load_element ld1);
    move_element!(store_element st1);

    /// The first address in a base register, and the stride in x17 when more than one lane takes part.
    fn walk(&mut self, l: &Lanes) -> (u8, Option<u8>) {
        let b = self.address(&l.addr, l.stride * l.first as i64);
        if l.count <= 1 {
            return (b, None);
        }
        if b != X16 {
            a64!(self ; mov x16, X(b));
        }
        self.immediate(X17, l.stride);
        (X16, Some(X17))
    }
}
