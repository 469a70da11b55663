//! Bytes of tables that are looked up by permutations.

use super::encode::{Encoding, Rm, Width};
use super::opcode;
use crate::codegen::vcode::Addr;
use crate::codegen::x86::emitter::{Emitter, at};
use crate::runtime::Result;

impl Emitter<'_> {
    /// Bytes `index` of a table of 256 in four registers of 64.
    pub(super) fn lookup_in_registers(&mut self, d: u8, index: u8, table: [u8; 4]) {
        let w = Width::Z;
        // each half of the table by the lower seven bits, then one of both by the highest
        let halves = [self.temporaries.vector[0], self.temporaries.vector[1]];
        for (half, of_table) in halves.into_iter().zip(table.chunks_exact(2)) {
            self.copy_width(w, half, index);
            self.op3(opcode::PERMUTE_BY_B, w, half, of_table[0], of_table[1]);
        }
        self.op2(opcode::B_TO_MASK, w, 1, index);
        let [low, high] = halves;
        self.vector(Encoding { mask: 1, ..self.plain(opcode::BLEND_MASK_B, w, d, low, Rm::Register(high)) });
    }

    /// Bytes `index` of 16 in memory, which are repeated along a register.
    pub(super) fn shuffle_of_memory(&mut self, w: Width, d: u8, index: u8, table: &Addr) -> Result<()> {
        let repeated = self.temporaries.vector[0];
        self.load(opcode::BROADCAST_128, w, repeated, at(table, 0)?);
        self.op3(opcode::SHUFFLE_B, w, d, repeated, index);
        Ok(())
    }
}
