//! Changes of the rules by which a caller is found.

use crate::Error;
use gimli::write::CallFrameInstruction;

/// The offset behind the instruction that makes the change, and the new rule.
pub type Change = (u32, CallFrameInstruction);

/// The error for code whose frame is not understood.
pub fn unknown_frame(offset: usize) -> Error {
    Error::Internal(format!("the stack frame at offset {offset} of the code is not understood"))
}
