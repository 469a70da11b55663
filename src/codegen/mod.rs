//! Code generation: from LoopNest over VCode to machine code.

pub mod aarch64;
pub mod assemble;
pub mod calibration;
mod constant_pool;
pub mod disassemble;
mod emit;
pub mod instruction;
pub mod loopnest;
pub mod machine;
pub mod probe;
pub mod regalloc;
pub mod select;
pub mod target;
pub mod vcode;
pub mod x86;

pub use assemble::Assembled;
pub use target::{Isa, Target};

#[cfg(test)]
mod tests;
