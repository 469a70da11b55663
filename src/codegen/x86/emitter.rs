//! The state of the x86-64 emitter: the code so far, the frame, the loops around.

use crate::codegen::constant_pool::Pool;
use crate::codegen::vcode::Addr;
use crate::codegen::x86::encode::{Memory, Width};
use crate::runtime::{Error, Result};
use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynamicLabel, VecAssembler};

pub(super) const RSP: u8 = 4;

/// Offset of the second lane area.
pub(super) const AREA_2: i32 = 64;

/// Offsets from the stack pointer.
#[derive(Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) vector_slots: i32,
    pub(super) gpr_slots: i32,
    pub(super) caller: i32,
    pub(super) size: i32,
    pub(super) aligned: bool,
    pub(super) slot_bytes: i32,
}

pub(super) struct Body {
    pub(super) head: DynamicLabel,
    pub(super) end: DynamicLabel,
}

pub(super) struct Emitter<'a> {
    pub(super) name: &'a str,
    pub(super) asm: VecAssembler<X64Relocation>,
    pub(super) evex: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) pool: Pool,
    /// Masks that live in mask registers through the function.
    pub(super) masks: Vec<(u64, u8)>,
    pub(super) frame: Frame,
    pub(super) bodies: Vec<Body>,
}

pub(super) fn on_stack(displacement: i32) -> Memory {
    Memory { base: Some(RSP), index: None, displacement }
}

/// The operand at `addr` plus `offset` bytes.
pub(super) fn at(addr: &Addr, offset: i64) -> Result<Memory> {
    let displacement = i32::try_from(i64::from(addr.disp) + offset)
        .map_err(|_| Error::Limit("an address displacement beyond 2 GiB".into()))?;
    let index = addr.index.map(|(r, scale)| (r.0 as u8, scale));
    Ok(Memory { base: Some(addr.base.0 as u8), index, displacement })
}

/// `bits` of `lane` bytes repeated over `width`.
pub(super) fn repeated(bits: u64, lane: usize, width: Width) -> Vec<u8> {
    bits.to_le_bytes()[..lane].repeat(width.bytes() / lane)
}
