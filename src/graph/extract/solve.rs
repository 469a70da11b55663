//! Solution of the integer program by relaxation, cuts and repair.
//!
//! In: a [`Problem`], its rows and the greedy answer. Out: the best answer and its gap. An answer counts only
//! after every row was checked in integers and no cut was needed; cuts are added and the program is solved again. An answer
//! that needs cuts is repaired: its cycles are removed and its kernels made legal. When the rounds run out, the result is
//! the cheapest of the greedy answer and the repaired ones.

use crate::graph::extract::apart::{self, Memo};
use crate::graph::extract::constraint_set::Constraints;
use crate::graph::extract::greedy::{Greedy, mend};
use crate::graph::extract::kernels::{Answer, cuts};
use crate::graph::extract::problem::Problem;
use crate::graph::extract::report::{ExtractionReport, Outcome};

/// Largest number of solutions that are cut off before the search gives up. Unmeasured.
const MAX_ROUNDS: usize = 12;

/// Largest number of rounds of cuts of repaired answers, times the classes of the problem. Unmeasured.
const MAX_REPAIRS: usize = 2_000_000;

/// Bounds of the search.
pub struct Effort {
    /// Largest number of variables of one program.
    pub variables: usize,
    /// Largest number of answers that are cut off.
    pub rounds: usize,
}

/// Returns the better of the greedy answer and the solver's; no program has more variables than `limit`.
pub fn solve(
    problem: &Problem,
    rows: &mut Constraints,
    greedy: &Greedy,
    start: Vec<bool>,
    limit: usize,
    report: &mut ExtractionReport,
) -> Vec<bool> {
    let mut memo = Memo::default();
    let effort = Effort { variables: limit, rounds: MAX_ROUNDS };
    let best = improve(problem, rows, greedy, start, &effort, report, &mut memo);
    (report.variables, report.rows) = (rows.program.cost.len(), rows.program.rows.len());
    #[cfg(test)]
    {
        report.solved = memo.work();
    }
    best
}

/// Returns the cheapest answer within an `effort`, which is `best` or cheaper.
pub fn improve(
    problem: &Problem,
    rows: &mut Constraints,
    greedy: &Greedy,
    mut best: Vec<bool>,
    effort: &Effort,
    report: &mut ExtractionReport,
    memo: &mut Memo,
) -> Vec<bool> {
    if effort.variables == 0 {
        return best;
    }
    let position = positions(problem, rows);
    let mut mended = false;
    let mut repairs = MAX_REPAIRS / problem.classes.len().max(1);
    for _ in 0..effort.rounds {
        let solved = apart::solve(&rows.program, &best, &position, effort.variables, memo);
        report.bound_ns = match (report.bound_ns, solved.bound) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let answer = Answer::new(problem, rows, &solved.values);
        let new = cuts(problem, rows, &solved.values, &answer);
        if new.is_empty() {
            report.outcome = match solved.windows {
                (_, 0) => Outcome::Solved(solved.how),
                (solved, of) => Outcome::Windows { solved, of },
            };
            return solved.values;
        }
        report.cuts += new.len();
        rows.program.rows.extend(new);
        let other = mend(problem, rows, greedy, &answer, &solved.values, &mut repairs);
        if let Some(other) = other.filter(|v| rows.program.total(v) < rows.program.total(&best)) {
            (best, mended) = (other, true);
        }
    }
    report.outcome = Outcome::Interrupted { rounds: effort.rounds, mended };
    best
}

/// The order of the variables: that of the classes they belong to.
fn positions(problem: &Problem, rows: &Constraints) -> Vec<usize> {
    let mut class = vec![0; rows.program.cost.len()];
    rows.x.iter().enumerate().for_each(|(c, list)| list.iter().for_each(|&x| class[x] = c));
    rows.f.iter().zip(&problem.edges).for_each(|(&f, e)| class[f] = e.reader.0);
    rows.a.iter().for_each(|(site, &a)| class[a] = site.0);
    rows.w.iter().for_each(|(&s, &w)| class[w] = s);
    class
}
