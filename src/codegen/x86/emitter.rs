//! The state of the x86-64 emitter: the frame, the masks in registers; operands of instructions.

use crate::codegen::emit;
use crate::codegen::vcode::Addr;
use crate::codegen::x86::constants::Constants;
use crate::codegen::x86::encode::{Memory, Width};
use crate::runtime::{Error, Result};
use dynasmrt::x64::X64Relocation;

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

pub struct X86 {
    pub(super) evex: bool,
    /// The instruction at hand.
    pub(super) bytes: Vec<u8>,
    /// Masks that live in mask registers through the function.
    pub(super) masks: Vec<(u64, u8)>,
    /// The comparison whose lanes mask register 1 has as well, right behind it.
    pub(super) compared: Option<Compared>,
    pub(super) constants: Constants,
    pub(super) frame: Frame,
}

/// A vector register with the lanes of a comparison, in bytes, and the place behind it: offset and loops and conditionals around.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Compared {
    pub(super) register: u8,
    pub(super) lane: usize,
    pub(super) place: (usize, usize),
}

pub type Emitter<'a> = emit::Emitter<'a, X64Relocation, X86>;

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
