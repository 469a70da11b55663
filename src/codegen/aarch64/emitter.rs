//! The state of the AArch64 emitter: the frame, broadcasts that are multiplied by element.

use crate::codegen::aarch64::by_element::ByElement;
use crate::codegen::aarch64::numbers::Numbers;
use crate::codegen::emit;
use crate::codegen::vcode::operands::Class;
use dynasmrt::aarch64::Aarch64Relocation;

/// Scratch registers.
pub(super) const X16: u8 = 16;

pub(super) const X17: u8 = 17;

/// Offsets from the stack pointer.
#[derive(Clone, Default)]
pub(super) struct Frame {
    pub(super) gpr_slots: u32,
    /// Registers that the caller expects back, and where they are.
    pub(super) saved: Vec<(Class, u8)>,
    pub(super) saved_at: u32,
    pub(super) size: u32,
}

pub struct Aarch64 {
    pub(super) frame: Frame,
    pub(super) by_element: ByElement,
    pub(super) numbers: Numbers,
}

pub type Emitter<'a> = emit::Emitter<'a, Aarch64Relocation, Aarch64>;
