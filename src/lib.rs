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
//! | to | use |
//! |---|---|
//! | compile and run a model | [`Model`], [`Options`], [`Compiled`] |
//! | decode with a state | [`Stateful`], [`Options::growing`] |
//! | build a network in Rust | [`GraphBuilder`], [`operators`], [`graph_text`] |
//! | use a machine instruction of your own | [`instructions`], [`Options::instructions`] |
//! | write a program and its schedule | [`File`], [`builder`], [`syntax`] |
//! | compile ahead of time | [`Model::compile_module`], [`Target`], [`Module`], [`Session`] |
//! | link a model into a C program | [`ObjectFiles`], [`ObjectOptions`] |
//! | read what a compilation did | [`Report`], [`Stage`] |
//!
//! This file is the list of what is public. A program that only runs saved modules needs no compiler: the package
//! `tilewright-runtime` has [`Module`], [`Session`], [`Pool`] and the tensors alone.
#![cfg_attr(doc, warn(missing_docs))]

mod cache;
mod codegen;
mod compiled;
mod expr;
mod graph;
mod language;
mod model;
mod object;
mod pipeline;
mod poly;
mod staged;
mod stateful;

use tilewright_runtime::internal as runtime;

pub use codegen::calibration::Calibration;
pub use codegen::machine::Machine;
pub use codegen::target::{Isa, Target};
pub use compiled::Compiled;
pub use graph::builder::GraphBuilder;
pub use graph::egraph::OptimizationReport;
pub use graph::extract::{AlgorithmReport, ExtractionReport, LayerReport, TimedAlgorithm};
pub use graph::import::model::{Dim, InputSpec, OutputDeclaration};
pub use graph::ir::{Graph, ValueId};
pub use graph::row_blocks::RowBlocks;
pub use graph::value::{Kind, Value};
pub use language::syntax::File;
pub use model::Model;
pub use object::{ObjectFiles, ObjectOptions};
pub use pipeline::report::{ControlReport, KernelReport, Report, Sort, Vectorization};
pub use pipeline::{
    Accumulate, Algorithm, CacheOptions, DEFAULT_MAX_ERROR, EgraphOptions, Limits, Options, Precision, Quotients, Stage,
};
pub use poly::tile::report::{BlockReport, CandidateReport, PhaseReport};
pub use staged::{HostReport, PartCounts, PartReport, StagedReport};
pub use stateful::Stateful;
pub use tilewright_runtime::{
    AsView, AsViewMut, Bytes, DType, Element, Error, Features, Instance, MAX_THREADS, Module, Platform, Pool, Refusal,
    Result, Session, Tensor, TensorView, TensorViewMut, module,
};

/// The operators of a [`Graph`], and its nodes and values.
pub mod operators {
    pub use crate::expr::{BinaryOp, CompareOp, UnaryOp};
    pub use crate::graph::ir::{Node, Source, Value};
    pub use crate::graph::op::{Body, F32, Layout, Op, PoolKind, ReduceOp, Window};
    pub use crate::graph::tensor_type::TensorType;
}

/// The text form of a [`Graph`].
pub mod graph_text {
    pub use crate::graph::text::{parse, print};
}

/// ONNX's files of single values (`TensorProto`), which carry element types that `.npy` does not have.
pub mod onnx {
    pub use crate::graph::import::value_file::{read_tensor, read_value, write_tensor, write_value};
}

pub use language::builder;

/// Tensor instructions: machine instructions that a text declares, with their semantics and their code.
///
/// [`parse`](instructions::parse) reads a file of them, for [`Options::instructions`].
pub mod instructions {
    pub use crate::codegen::instruction::TensorInstruction;
    pub use crate::language::instruction::{built_in, parse};
}

/// The text language of `.tile` files as a syntax tree: programs, expressions and schedules.
///
#[doc = include_str!("language/grammar.md")]
pub mod syntax {
    pub use crate::expr::syntax::{Expr, Function, Kind, Name, Operator, Span, Style};
    pub use crate::language::source::Source;
    pub use crate::language::syntax::{
        Access, Array, Assign, Assignment, Body, Combine, Condition, Equation, Output, Parameter, Program, Range,
        Sizes, Statement,
    };
    pub use crate::poly::transform::primitive::{
        ArgumentForm, FORMS, Loop, Loops, Placed, Primitive, PrimitiveForm, Read, Schedule,
    };
}

/// The Rust of README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The Rust of the book's page.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
mod rust_page {}

/// The stages, for this package's own tests, benchmarks and command line. No part of the public interface: it changes
/// without notice.
#[cfg(not(doc))]
#[doc(hidden)]
pub mod internal {
    pub mod codegen {
        pub use crate::codegen::*;
    }
    pub mod expr {
        pub use crate::expr::*;
    }
    pub mod graph {
        pub use crate::graph::*;
    }
    pub mod language {
        pub use crate::language::*;
    }
    pub mod pipeline {
        pub use crate::pipeline::*;
    }
    pub mod poly {
        pub use crate::poly::*;
    }
    pub use tilewright_runtime::internal as runtime;
}
