//! Folding: temporaries of which memory holds the elements of a few values of one subscript at a time.
//!
//! In: a Scop and a schedule. Out: for a temporary that would be in memory as a whole, a dimension and a period: element x lies at x modulo the
//! period (Lefebvre and Feautrier, "Automatic storage management for parallel programs", 1998). It is right where each access to an element runs before
//! those to elements a period or more behind it, of which one writes: array expansion gives each iteration of a loop over time an
//! array of its own, and tiles of several iterations need one or two of them.

use crate::expr::{Affine, BufferId, Index, Var};
use crate::poly::analysis::dependence::of_shared_memory;
use crate::poly::analysis::legality::keeps;
use crate::poly::schedule::{Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::storage::Digit;
use crate::runtime::Result;

/// Periods that are tried, the first that is right counts.
const PERIODS: [i64; 3] = [1, 2, 4];

/// A temporary in folded memory.
pub(super) struct Fold {
    pub tensor: BufferId,
    /// The subscripts in memory, over those of the element.
    pub layout: Vec<Digit>,
}

/// How memory of a temporary is folded; `None` where all of its elements must have memory of their own.
///
/// # Errors
/// Those of the proofs.
pub(super) fn fold(scop: &Scop, schedule: &Schedule, tensor: BufferId, answers: &Answers) -> Result<Option<Fold>> {
    let shape = &scop.tensor(tensor).shape;
    for (dimension, &extent) in shape.iter().enumerate() {
        let divides = is_outside(scop, schedule, tensor, dimension);
        let tried = || PERIODS.iter().filter(|&&p| p < extent && (p == 1 || divides));
        // the longest period is right where a shorter one is
        for sign in [1, -1] {
            let right = |period: i64| is_right(scop, schedule, tensor, dimension, sign * period, answers);
            let Some(&longest) = tried().next_back() else { break };
            if !right(longest)? {
                continue;
            }
            for &period in tried() {
                if period == longest || right(period)? {
                    let digit = |d: usize| Digit {
                        form: Affine::var(Var(d as u32)),
                        divisor: 1,
                        modulo: (d == dimension).then_some(period),
                    };
                    return Ok(Some(Fold { tensor, layout: (0..shape.len()).map(digit).collect() }));
                }
            }
        }
    }
    Ok(None)
}

/// Returns true if elements whose subscripts are `period` or more apart may share memory.
fn is_right(
    scop: &Scop,
    schedule: &Schedule,
    tensor: BufferId,
    dimension: usize,
    period: i64,
    answers: &Answers,
) -> Result<bool> {
    let Some(orders) = of_shared_memory(scop, tensor, dimension, period) else { return Ok(false) };
    for dependence in &orders {
        if !keeps(scop, schedule, dependence, answers)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if innermost loops leave the subscripts of a dimension as they are, so that these are divided outside of them.
fn is_outside(scop: &Scop, schedule: &Schedule, tensor: BufferId, dimension: usize) -> bool {
    scop.users(tensor).into_iter().all(|id| {
        let s = scop.statement(id);
        let path = schedule.path(id);
        let innermost = path.iter().rev().find_map(|d| match d {
            TimeDimension::Row(row) if row.tile == 1 && !row.of(id).is_constant() => Some(row.of(id)),
            _ => None,
        });
        let invariant = |index: &[Index]| {
            let subscript = index[dimension].affine();
            innermost.is_none_or(|phi| subscript.is_some_and(|a| phi.terms.iter().all(|t| !a.uses(t.0))))
        };
        let mut all = s.target != tensor || invariant(&s.subscripts());
        s.visit_accesses(&mut |a| all &= a.buffer != tensor || invariant(&a.index));
        all
    })
}
