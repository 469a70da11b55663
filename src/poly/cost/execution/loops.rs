//! Starts, bounds and ends of serial loops.

use super::{Execution, Pricer};
use crate::codegen::loopnest::Stmt;
use crate::codegen::select::columns;
use crate::expr::{Bound, Var};

/// Returns true if a loop with these bounds always has the same number of iterations.
fn fixed(lower: &[Bound], upper: &[Bound]) -> bool {
    match (lower, upper) {
        ([first], [end]) => {
            first.divisor == 1 && end.divisor == 1 && end.affine.add_scaled(&first.affine, -1).is_constant()
        }
        _ => false,
    }
}

/// The terms that are summed and compared for the bounds of a loop, in each iteration of the one around: those that move in it.
fn terms(lower: &[Bound], upper: &[Bound], moving: &[Var]) -> f64 {
    let of = |bounds: &[Bound]| {
        let terms = |b: &Bound| b.affine.terms.iter().filter(|t| moving.contains(&t.0)).count();
        let varying = bounds.iter().filter(|b| terms(b) > 0).count();
        bounds.iter().map(terms).sum::<usize>() + varying.min(bounds.len() - 1)
    };
    (of(lower) + of(upper)) as f64
}

impl<'a> Pricer<'a> {
    /// Adds a serial loop that starts `times`.
    pub(super) fn repeat(&mut self, stmt: &'a Stmt, times: f64, total: &mut Execution) {
        let Stmt::Loop { var, body, lower, upper, step, .. } = stmt else { return };
        let trips = self.counts.trips[var.0 as usize];
        let bounds = self.target.machine.bound_cycles * terms(lower, upper, &self.moving);
        let columns = columns::iterations(self.nest, self.target, stmt).map(|n| (*var, n));
        let outside = (std::mem::replace(&mut self.columns, columns), std::mem::replace(&mut self.moving, vec![*var]));
        self.steps.insert(*var, *step);
        let (iteration, innermost) = self.body(body, Some(*var));
        (self.columns, self.moving) = outside;
        total.add(iteration, times * trips);
        total.loops += times * (self.turns(trips, innermost, fixed(lower, upper)) + bounds);
    }

    /// Cycles to start a loop, count its iterations and leave it; the end of a short loop with a fixed number of iterations
    /// is predicted.
    fn turns(&self, trips: f64, innermost: bool, fixed: bool) -> f64 {
        let machine = &self.target.machine;
        let leave = match innermost {
            true if fixed && trips <= machine.predicted_iterations as f64 => machine.short_loop_cycles,
            true => machine.loop_exit_cycles,
            false => 0.0,
        };
        trips * machine.loop_cycles + leave
    }
}
