//! The time that the planner expects of a tensor expression, before any code is made of it.

use crate::codegen::Target;
use crate::poly::analysis::dependence;
use crate::poly::normalize::build;
use crate::poly::statement::Program;
use crate::poly::tile::cache::Constants;
use crate::poly::{ilp, tile};
use crate::runtime::Result;

/// Predicted time of `program` as one kernel on one thread, in ns: that of the tiles which the compilation of the same
/// program chooses, where its constants are in memory.
///
/// # Errors
/// Those of scheduling.
pub fn nanoseconds(program: &Program, target: &Target, constants: Constants) -> Result<f64> {
    let scop = build::build("prediction", program)?;
    let dependences = dependence::analyze(&scop)?;
    let (schedule, _) = ilp::schedule(&scop, &dependences)?;
    Ok(tile::tile_for(&scop, &schedule, target, constants)?.report.predicted_ns)
}
