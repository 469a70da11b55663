//! AArch64 Advanced SIMD code.

use crate::codegen::allocation::{Allocation, Needs, RegisterFile};
use crate::codegen::vcode::Function;
use crate::codegen::{Error, Result};

/// The registers that may be allocated.
pub fn register_file() -> RegisterFile {
    RegisterFile {
        gprs: &[0, 1, 2, 3, 4, 5, 6, 7],
        vectors: &[0, 1, 2, 3],
        incoming: [0, 1, 2, 3],
        needs: |_| Needs::default(),
    }
}

/// The machine code of a function.
pub fn emit(function: &Function, _allocation: &Allocation) -> Result<Vec<u8>> {
    Err(Error::Unsupported(format!("{}: AArch64 code", function.name)))
}
