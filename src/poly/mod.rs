//! From tensor expressions to explicit loops: Scop, dependences, Schedule, tiles, tensor instructions.

#[cfg(test)]
pub mod brute_tests;
pub mod build;
#[cfg(test)]
mod build_tests;
pub mod dependence;
pub mod digits;
pub mod expand;
pub mod factor;
pub mod generators;
pub mod ilp;
pub mod instruction;
pub mod integer_program;
pub mod isl;
pub mod language;
pub mod legality;
pub mod lower;
pub mod merge;
pub mod original;
pub mod pack;
pub mod parse;
pub mod polyhedron;
pub mod print;
pub mod private;
#[cfg(test)]
pub mod reference;
pub mod residue;
pub mod rounding;
#[cfg(test)]
pub mod samples;
pub mod schedule;
pub mod scop;
pub mod split;
pub mod subscript;
pub mod tile;
pub mod traffic;
pub mod transform;
pub mod work;

pub use crate::codegen::{DType, Error, Isa, Result, Target, Tensor};
pub use crate::codegen::{expr, opaque, scalar};

/// A compiled group with the stages it went through.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub scop: scop::Scop,
    /// By the ILP, before tiling.
    pub schedule: schedule::Schedule,
    pub ilp: ilp::Report,
    pub tiled: tile::Tiled,
    pub kernel: lower::Kernel,
}

/// From a tensor expression to explicit loops: build, dependences, ILP, tiles, loops. The schedule is checked before and
/// after tiling.
pub fn compile(program: &scop::Program, name: &str, target: &Target) -> Result<lower::Kernel> {
    Ok(compile_stages(program, name, target)?.kernel)
}

/// The same with every stage, for `explain`.
pub fn compile_stages(program: &scop::Program, name: &str, target: &Target) -> Result<Compiled> {
    let scop = build::build(name, program)?;
    let dependences = dependence::analyze(&scop)?;
    let (schedule, ilp) = ilp::schedule(&scop, &dependences)?;
    let tiled = tile::tile(&scop, &schedule, target)?;
    legality::check(&scop, &dependences, &tiled.schedule)?;
    let kernel = lower::lower(&scop, &tiled)?;
    Ok(Compiled { scop, schedule, ilp, tiled, kernel })
}
