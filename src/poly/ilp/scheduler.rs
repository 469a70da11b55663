//! The state of the scheduler: the rows so far, costs of coefficients, generators of dependences.

use crate::expr::Var;
use crate::poly::analysis::dependence::Dependence;
use crate::poly::analysis::legality::Unsatisfied;
use crate::poly::ilp::integer_program::{Effort, Solutions};
use crate::poly::ilp::report::SchedulingReport;
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Form, Polyhedron};
use crate::poly::statement::StatementId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(super) type LiveDependences<'a> = Vec<(&'a Dependence, Unsatisfied)>;

pub(super) struct Scheduler<'a> {
    pub(super) scop: &'a Scop,
    pub(super) isl: Isl,
    /// θ of the rows above each statement.
    pub(super) above: BTreeMap<StatementId, Vec<Vec<i64>>>,
    /// -1 for iterators that the original order walks backwards: unknowns stand for coefficients in its direction.
    pub(super) direction: BTreeMap<StatementId, Vec<i64>>,
    /// [`unit_stride_bytes`] of each statement, and the cost of each coefficient that follows from them.
    pub(super) stride: BTreeMap<StatementId, Vec<i64>>,
    pub(super) weights: BTreeMap<StatementId, Vec<i64>>,
    /// Iterators that only the last row of their statement may use.
    pub(super) innermost: BTreeMap<StatementId, Var>,
    /// Tile rows are above already.
    pub(super) tiled: bool,
    /// Of the dependences so far.
    pub(super) generators: FxHashMap<Polyhedron, Rc<Vec<Form>>>,
    pub(super) solutions: Solutions,
    pub(super) effort: Effort,
    pub(super) limit: Effort,
    /// Statements in their original order, with the reasons.
    pub(super) kept: Vec<String>,
    pub(super) report: SchedulingReport,
}
