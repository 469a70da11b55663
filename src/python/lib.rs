//! The native part of the Python package `tilewright`: models with Python's arrays as inputs and outputs.
//!
//! In: sources and options as dictionaries, arrays by the buffer protocol. Out: NumPy arrays, texts, JSON. The package's Python
//! files, which are what users see, are in `tilewright/` beside this file. Invariants: work that takes time runs without the
//! interpreter's lock, and inside of `fork::enter`; contiguous arrays are read and written where they lie. Unsafe code is in
//! `memory.rs` alone.

mod arrays;
mod errors;
mod fork;
mod memory;
mod model;
mod options;
mod outputs;
mod schedules;
mod signature;
mod source;
mod values;

use pyo3::prelude::*;

/// The module `tilewright._native`.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::fork::{after_fork_in_child, after_fork_in_parent, before_end, before_fork};
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::schedules::{check_instructions, primitives, program_names, stages, targets};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("MAX_THREADS", tilewright::MAX_THREADS)
    }
}
