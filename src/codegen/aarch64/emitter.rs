//! The state of the AArch64 emitter: the code so far, the frame, the loops around.

use crate::codegen::constant_pool::Pool;
use crate::codegen::vcode::operands::Class;
use dynasmrt::aarch64::Aarch64Relocation;
use dynasmrt::{DynamicLabel, VecAssembler};

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

pub(super) struct Body {
    pub(super) head: DynamicLabel,
    pub(super) end: DynamicLabel,
}

pub(super) struct Emitter<'a> {
    pub(super) name: &'a str,
    pub(super) asm: VecAssembler<Aarch64Relocation>,
    pub(super) pool: Pool,
    pub(super) frame: Frame,
    pub(super) bodies: Vec<Body>,
    pub(super) by_element: ByElement,
}

/// Virtual registers that hold one broadcast element and are only ever multiplied: the element is loaded as a scalar.
pub(super) struct ByElement(pub(super) Vec<bool>);
