//! Tile registers (AMX): their shapes, and their rows between registers and memory.
//!
//! Shapes are loaded from a constant; the stride of rows waits in a temporary, as the index of the address.

use super::encode::{Encoding, Memory, Rm, Width};
use super::opcode::{self, Op};
use super::{Emitter, RELATIVE};
use crate::codegen::emit::{Scalars as _, Tiles};
use crate::codegen::instruction::tile_shapes;
use crate::codegen::vcode::{Addr, Shapes, Tile};
use crate::codegen::x86::emitter::at;
use crate::runtime::Result;
use dynasmrt::dynasm;

impl Tiles for Emitter<'_> {
    fn configure(&mut self, shapes: &Shapes) -> bool {
        let bytes = tile_shapes(&shapes.0.map(|(rows, bytes)| (rows.into(), bytes.into())));
        let label = self.pool_label(bytes.to_vec());
        self.vector_relative(self.tile(opcode::TILE_CONFIGURE, 0, RELATIVE), label);
        true
    }

    fn release(&mut self) -> bool {
        dynasm!(self.asm ; .arch x64 ; .bytes [0xc4u8, 0xe2, 0x78, 0x49, 0xc0].iter());
        true
    }

    fn zero_tile(&mut self, d: Tile) -> bool {
        self.vector(self.tile(opcode::TILE_ZERO, d.0, Rm::Register(0)));
        true
    }

    fn load_tile(&mut self, t: Tile, addr: &Addr, stride: i64, streamed: bool) -> Result<bool> {
        self.move_tile(if streamed { opcode::TILE_LOAD_ONCE } else { opcode::TILE_LOAD }, t, addr, stride)
    }

    fn store_tile(&mut self, t: Tile, addr: &Addr, stride: i64) -> Result<bool> {
        self.move_tile(opcode::TILE_STORE, t, addr, stride)
    }
}

impl Emitter<'_> {
    fn move_tile(&mut self, op: Op, t: Tile, addr: &Addr, stride: i64) -> Result<bool> {
        let index = self.temporaries.gpr[0];
        self.immediate(index, stride);
        let memory = Memory { index: Some((index, 1)), ..at(addr, 0)? };
        self.vector(self.tile(op, t.0, Rm::Memory(memory)));
        Ok(true)
    }

    fn tile(&self, op: Op, reg: u8, rm: Rm) -> Encoding {
        Encoding { evex: false, ..self.plain(op, Width::X, reg, 0, rm) }
    }
}
