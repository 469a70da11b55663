//! From tensor expressions to explicit loops: Scop, dependences, Schedule, tiles, tensor instructions.

#[cfg(test)]
mod brute_tests;
pub mod build;
pub mod dependence;
pub mod ilp;
pub mod instruction;
pub mod integer_program;
pub mod isl;
pub mod legality;
pub mod lower;
pub mod merge;
pub mod pack;
pub mod parse;
pub mod polyhedron;
pub mod print;
#[cfg(test)]
pub mod samples;
pub mod schedule;
pub mod scop;
pub mod subscript;
pub mod tile;

pub use crate::codegen::expr;
pub use crate::codegen::{DType, Error, Isa, Result, Target, Tensor};
