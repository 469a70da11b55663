//! From explicit loops to machine code: LoopNest, VCode, bytes.

pub mod aarch64;
pub mod allocation;
pub mod assemble;
pub mod checker;
pub mod disassemble;
pub mod expr;
pub mod interpret;
pub mod interval;
pub mod liveness;
pub mod loopnest;
pub mod lower;
pub mod math;
pub mod operands;
pub mod parse;
mod pool;
pub mod print;
pub mod probe;
pub mod regalloc;
pub mod scalar;
pub mod simplify;
pub mod target;
pub mod vcode;
pub mod vcode_interpret;
pub mod verify;
pub mod x86;

pub use crate::runtime::{DType, Error, Result, Tensor, opaque};
pub use assemble::{Assembled, assemble};
pub use target::{Isa, Target};

#[cfg(test)]
mod tests;
