//! Runs modules that tilewright compiled: tensors, executable memory, the thread pool, modules and sessions.
//!
//! The lowest of the layers: it knows nothing of graphs, polyhedra or instruction selection. This file is the list of what
//! is public.
#![cfg_attr(doc, warn(missing_docs))]

mod affinity;
mod arena;
mod bounds;
mod bytes;
mod check_indices;
mod error;
mod executable;
mod file;
mod fork;
mod free_memory;
mod mapped;
pub mod module;
mod npy;
mod opaque;
mod opaque_entry;
mod platform;
mod pool;
mod random;
mod ready;
mod refusal;
mod session;
mod symbols;
mod tensor;
mod tensor_check;
mod text;
mod threads;

pub use bounds::{BoundedAxis, Bounds, Form};
pub use bytes::Bytes;
pub use error::{Error, Result};
pub use module::Module;
pub use opaque_entry::{OpaqueView, tilewright_opaque_1};
pub use platform::{Features, Platform, ProcessorId};
pub use pool::Pool;
pub use refusal::{Instance, Refusal};
pub use session::Session;
pub use tensor::{AsView, AsViewMut, DType, Element, Tensor, TensorView, TensorViewMut};
pub use threads::MAX_THREADS;

/// The modules, for the compiler and the tests. No part of the public interface: it changes without notice.
#[cfg(not(doc))]
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        Bytes, DType, Error, Features, Platform, ProcessorId, Result, Tensor, TensorView, TensorViewMut, module,
    };

    macro_rules! modules {
        ($($name:ident)*) => {$(
            pub mod $name {
                pub use crate::$name::*;
            }
        )*};
    }
    modules!(arena bounds bytes check_indices error executable file fork mapped npy opaque platform pool random refusal session tensor text threads);
}
