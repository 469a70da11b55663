//! The C interface: handles, error kinds and messages, runs on the caller's memory. `tilewright.h` is generated from these files.
//!
//! In: pointers and handles of a C program. Out: a status, and results behind pointers. Invariant: no panic crosses, and a handle
//! that was freed, or never was one, is a status: handles are numbers that are looked up, not addresses. The tables of handles
//! and the gate of forks are the only global state of tilewright. Unsafe code is in `entry.rs`, `run.rs`, `pointer.rs` and `fork.rs`.

mod entry;
mod fork;
mod handle;
mod options;
mod pointer;
mod run;
mod session;
mod status;
mod tensor;

pub use entry::*;
pub use handle::{Options, Session};
pub use run::{Buffer, tilewright_run};
pub use status::{Status, tilewright_last_error};
pub use tensor::{Tensor, Type};
