//! Tilewright compiles ONNX models and tensor expressions to machine code: an e-graph chooses what to compute, polyhedra
//! and an integer linear program choose when and where, and the machine code is written directly.
//!
//! ```
//! use tilewright::{DType, Model, Options, Tensor};
//!
//! # fn main() -> tilewright::Result<()> {
//! let compiled = Model::load("tests/fixtures/operators/conv_batch_norm_relu.onnx")?.compile(&Options::default())?;
//! let image = Tensor::zeros(DType::F32, &[1, 6, 7, 7]);
//! let outputs = compiled.run(&[("x", &image)])?;
//! println!("{:?}", outputs[0].shape);
//! # Ok(())
//! # }
//! ```
//!
//! What most programs need is re-exported here: [`Model`], [`Options`], [`Compiled`], [`Tensor`], [`Target`], and for saved
//! modules [`Module`] and [`Session`]. The folders are the stages, each knowing only those after it: [`graph`], [`poly`],
//! [`codegen`], [`runtime`]; [`pipeline`] strings them together.

pub mod codegen;
pub mod expr;
pub mod graph;
pub mod language;
pub mod model;
pub mod pipeline;
pub mod poly;

pub use tilewright_runtime as runtime;

pub use codegen::Target;
pub use model::{Compiled, Model, Options};
pub use pipeline::Limits;
pub use pipeline::report::Report;
pub use runtime::module::Module;
pub use runtime::pool::Pool;
pub use runtime::session::Session;
pub use runtime::{DType, Error, Result, Tensor, TensorView, TensorViewMut};
