//! Tilewright compiles ONNX models and tensor expressions to machine code.

pub mod codegen;
pub mod graph;
pub mod model;
pub mod pipeline;
pub mod poly;
pub mod runtime;

pub use runtime::{DType, Error, Result, Tensor};
