//! What exists when a compiled model runs: tensors, executable memory, the thread pool, modules and sessions.
//!
//! The lowest of the four folders: it knows nothing of graphs, polyhedra or instruction selection.

pub mod affinity;
pub mod arena;
pub mod bytes;
pub mod check_indices;
pub mod error;
pub mod executable;
pub mod file;
pub mod module;
pub mod npy;
pub mod opaque;
pub mod platform;
pub mod pool;
pub mod random;
pub mod refusal;
pub mod session;
pub mod tensor;
pub mod text;
pub mod threads;

pub use bytes::Bytes;
pub use error::{Error, Result};
pub use platform::{Features, Platform};
pub use tensor::{DType, Tensor, TensorView, TensorViewMut};
