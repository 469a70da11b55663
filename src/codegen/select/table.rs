//! Tables of 256 bytes that are looked up in registers, in lanes of 8 bits (`expr/narrow.rs` says of what).

use crate::codegen::select::access::memory_type;
use crate::codegen::select::state::{Address, Selected, Selector};
use crate::codegen::vcode::{Inst, Vreg};
use crate::expr::Affine;

impl Selector<'_> {
    /// Reads a table of 256 bytes, which stays in registers, at a subscript in lanes of 8 bits.
    pub fn lookup(&mut self, a: &Address, masked: bool) -> Selected<Vreg> {
        let [(place, 1)] = &a.gather[..] else { return self.internal("a gather beside narrow lanes") };
        if masked
            || self.chunk.widest != 1
            || a.linear != Affine::constant(0)
            || !self.nest.is_table(a.buffer, self.target)
        {
            return self.internal("a gather beside narrow lanes");
        }
        let index = self.value(place)?.reg;
        let dtype = self.nest.buffer(a.buffer).dtype;
        let ty = self.full(self.memory_lane(dtype)?);
        let mem = memory_type(dtype);
        let bytes = ty.bytes() as i64;
        let table: Vec<Vreg> = (0..4)
            .map(|part| {
                let (addr, span) = self.operand(a.buffer, &Affine::constant(part * bytes), bytes);
                self.emit_from(Some(span), |dst| Inst::VLoad { dst, ty, mem, addr, part: None })
            })
            .collect();
        let [a, b, c, d] = [0, 1, 2, 3].map(|part| table[part]);
        Ok(self.emit(|dst| Inst::VLookup { dst, ty, index, a, b, c, d }))
    }
}
