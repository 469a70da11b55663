//! Polyhedral scheduling: from tensor expressions over Scop, dependences, Schedule and tiles to explicit loops.

pub mod analysis;
#[cfg(test)]
pub mod brute_tests;
pub mod cost;
pub mod domain;
pub mod ilp;
pub mod instruction;
pub mod lower;
pub mod normalize;
pub mod packing;
pub mod parse;
pub mod plan;
pub mod predict;
pub mod print;
pub mod reference;
#[cfg(test)]
pub mod samples;
pub mod schedule;
pub mod scop;
pub mod sets;
pub mod statement;
pub mod storage;
pub mod tile;
pub mod transform;
pub mod verify;
