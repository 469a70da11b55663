//! Equality saturation: builds all graphs that the rules reach and extracts the cheapest.
//!
//! egg's e-graph with another matcher and schedule of rules (`saturate.rs` gives the reasons) and an extraction by an
//! integer linear program (`extract.rs`). There is no general commutativity or associativity: rules are directed and
//! patterns match modulo both. `network` knows none of the other files,
//! `optimize` all of them.

pub mod convert;
pub mod network;
pub mod optimize;
mod origins;
pub mod saturate;
pub mod support;

pub use optimize::{EgraphOptions, OptimizationReport, Optimized, optimize};
