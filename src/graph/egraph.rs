//! Equality saturation: all graphs that the rules reach, and the cheapest of them.
//!
//! egg's e-graph, with an own matcher and an own schedule of the rules (`saturate.rs` says why) and an extraction by an
//! integer linear program (`extract.rs`). There is no general commutativity or associativity: rules are directed and
//! patterns match modulo both. Each file knows those before it in this list.

pub mod convert;
pub mod network;
pub mod optimize;
pub mod saturate;
pub mod support;
#[cfg(test)]
mod tests;

pub use optimize::{Optimized, Options, Report, optimize};
