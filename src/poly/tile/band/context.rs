//! The statements and the target that bands are tiled for.

use crate::codegen::Target;
use crate::expr::Var;
use crate::poly::schedule::Row;
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;

/// Tile sizes that are tried, in values of φ.
pub(super) const SIZES: [i64; 8] = [4, 8, 16, 32, 64, 128, 256, 512];

pub struct Bands<'a> {
    pub scop: &'a Scop,
    pub target: &'a Target,
    pub statements: &'a [StatementId],
    pub isl: Isl,
}

/// Returns the change of the iterators when one row makes a step and the others do not; `None` if it is not an integer
/// vector.
pub(super) fn direction(all: &[&Row], row: &Row, id: StatementId, n: usize) -> Option<Vec<i64>> {
    let theta = |r: &Row| -> Vec<i64> { (0..n as u32).map(|v| r.of(id).coefficient(Var(v))).collect() };
    let others: Vec<Vec<i64>> = all.iter().filter(|r| **r != row).map(|r| theta(r)).collect();
    let free = crate::poly::sets::polyhedron::orthogonal_complement(&others, n);
    let own = theta(row);
    let step = |d: &[i64]| -> i64 { d.iter().zip(&own).map(|(a, b)| a * b).sum() };
    let d = free.into_iter().find(|d| step(d) != 0)?;
    match step(&d) {
        1 => Some(d),
        -1 => Some(d.iter().map(|c| -c).collect()),
        _ => None,
    }
}
