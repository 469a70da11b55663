//! The time that the planner expects of a tensor expression, before any code is made of it, and what follows from it.

use crate::codegen::Target;
use crate::codegen::target::Accumulate;
use crate::poly::analysis::dependence;
use crate::poly::normalize::build;
use crate::poly::normalize::half_sums::with_half_sums;
use crate::poly::statement::Program;
use crate::poly::tile::cache::Constants;
use crate::poly::tile::report::TilingReport;
use crate::poly::{ilp, tile};
use crate::runtime::Result;

/// Predicted time of `program` as one kernel on one thread, in ns: that of the tiles which the compilation of the same
/// program chooses, where its constants are in memory.
///
/// # Errors
/// Those of scheduling.
pub fn nanoseconds(program: &Program, target: &Target, constants: Constants) -> Result<f64> {
    Ok(tiles(program, target, constants)?.predicted_ns)
}

/// The program with sums in f16, where the target asks for them, instructions take them all, and they are predicted to be faster:
/// otherwise `None`.
///
/// # Errors
/// Those of scheduling.
pub fn in_half_sums(program: &Program, target: &Target, constants: Constants) -> Result<Option<Program>> {
    if target.accumulate == Accumulate::F32 {
        return Ok(None);
    }
    let Some((halves, count)) = with_half_sums(program) else { return Ok(None) };
    let report = tiles(&halves, target, constants)?;
    let sums = |name: &str| target.instructions.iter().any(|row| row.name.as_str() == name && row.sums_halves());
    let taken = report.phases.iter().filter(|p| p.instruction.as_deref().is_some_and(sums)).count();
    let faster = || Ok(report.predicted_ns < nanoseconds(program, target, constants)?);
    Ok(if taken == count && faster()? { Some(halves) } else { None })
}

fn tiles(program: &Program, target: &Target, constants: Constants) -> Result<TilingReport> {
    let scop = build::build("prediction", program)?;
    let dependences = dependence::analyze(&scop)?;
    let (schedule, _) = ilp::schedule(&scop, &dependences)?;
    Ok(tile::tile_for(&scop, &schedule, target, constants)?.report)
}
