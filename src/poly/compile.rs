//! From a tensor expression to explicit loops: build, dependences, ILP, tiles, loops.

use crate::codegen::Target;
use crate::poly::analysis::{dependence, legality};
use crate::poly::normalize::build;
use crate::poly::{ilp, lower, schedule, scop, tile};
use crate::runtime::Result;

/// A compiled group with the stages it went through.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub scop: scop::Scop,
    /// By the ILP, before tiling.
    pub schedule: schedule::Schedule,
    pub ilp: crate::poly::ilp::report::Report,
    pub tiled: crate::poly::tile::report::Tiled,
    pub kernel: lower::Kernel,
}

/// From a tensor expression to explicit loops: build, dependences, ILP, tiles, loops. The schedule is checked before and
/// after tiling.
pub fn compile(program: &crate::poly::statement::Program, name: &str, target: &Target) -> Result<lower::Kernel> {
    Ok(compile_stages(program, name, target)?.kernel)
}

/// The same with every stage, for `explain`.
pub fn compile_stages(program: &crate::poly::statement::Program, name: &str, target: &Target) -> Result<Compiled> {
    let scop = build::build(name, program)?;
    let dependences = dependence::analyze(&scop)?;
    let (schedule, ilp) = ilp::schedule(&scop, &dependences)?;
    let tiled = tile::tile(&scop, &schedule, target)?;
    legality::check(&scop, &dependences, &tiled.schedule)?;
    let kernel = lower::lower(&scop, &tiled)?;
    Ok(Compiled { scop, schedule, ilp, tiled, kernel })
}
