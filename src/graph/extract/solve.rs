//! Solving the integer program.
//!
//! In: a [`Problem`], its rows and the greedy answer. Out: the best answer known and how good it is. First the relaxation: it
//! bounds every answer from below and is nearly always integral. What it leaves open goes to branch and bound, with the best
//! answer so far as start. An answer counts only after every row was checked in integers and no cut was needed; cuts are
//! added and the program is solved again.

use crate::graph::extract::kernels::{Answer, cuts};
use crate::graph::extract::problem::Problem;
use crate::graph::extract::rows::Rows;
use crate::graph::extract::{Outcome, Report};
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, WithInitialSolution, microlp,
    variable,
};

/// Share of the cost below which a better answer is not looked for.
const GAP: f64 = 1e-6;
/// Choices that branch and bound may have to make: it has no guarantee of time.
const MAX_OPEN: usize = 60;
/// Solutions of the ILP that may be cut off before giving up.
const MAX_ROUNDS: usize = 12;

/// The best of the greedy answer and what the solver finds.
pub fn solve(problem: &Problem, rows: &mut Rows, greedy: Vec<bool>, report: &mut Report) -> Vec<bool> {
    let mut best = greedy;
    report.variables = rows.cost.len();
    for _ in 0..MAX_ROUNDS {
        report.rows = rows.rows.len();
        let upper = rows.total(&best);
        let relaxed = match relax(rows, None) {
            Ok(values) => values,
            Err(e) => return stop(best, report, Outcome::Failed(e.to_string())),
        };
        let bound: f64 = rows.cost.iter().zip(&relaxed).map(|(c, v)| c * v).sum();
        report.bound_ns = Some(bound.min(upper));
        if upper - bound <= GAP * upper {
            return stop(best, report, Outcome::Optimal("no answer is below the relaxation"));
        }
        let open = relaxed.iter().filter(|v| v.fract().abs() > 1e-6 && v.fract().abs() < 1.0 - 1e-6).count();
        report.open = open;
        let solved = match open {
            0 => Ok(relaxed),
            _ if open > MAX_OPEN => return stop(best, report, Outcome::Open(open)),
            _ => relax(rows, Some(&best)),
        };
        let values: Vec<bool> = match solved {
            Ok(values) => values.iter().map(|v| *v > 0.5).collect(),
            Err(e) => return stop(best, report, Outcome::Failed(e.to_string())),
        };
        if rows.rows.iter().any(|row| !row.holds(&values)) {
            return stop(best, report, Outcome::Failed("a rounded answer breaks a row".into()));
        }
        let new = cuts(problem, rows, &values, &Answer::new(problem, rows, &values));
        if new.is_empty() {
            report.bound_ns = Some(rows.total(&values).min(upper));
            if rows.total(&values) < upper {
                best = values;
            }
            let how = if open == 0 { "the relaxation is integral" } else { "branch and bound" };
            return stop(best, report, Outcome::Optimal(how));
        }
        report.cuts += new.len();
        rows.rows.extend(new);
    }
    stop(best, report, Outcome::Failed(format!("after {MAX_ROUNDS} rounds answers still needed cuts")))
}

fn stop(best: Vec<bool>, report: &mut Report, outcome: Outcome) -> Vec<bool> {
    report.outcome = outcome;
    best
}

/// Minimises over numbers between 0 and 1, or over 0 and 1 from a start.
fn relax(rows: &Rows, start: Option<&[bool]>) -> Result<Vec<f64>, ResolutionError> {
    let mut variables = ProblemVariables::new();
    let kind = || if start.is_some() { variable().binary() } else { variable().min(0).max(1) };
    let all: Vec<Variable> = rows.cost.iter().map(|_| variables.add(kind())).collect();
    let objective: Expression = all.iter().zip(&rows.cost).map(|(&v, &c)| c * v).sum();
    let mut model = variables.minimise(objective).using(microlp);
    for row in &rows.rows {
        let sum: Expression = row.terms.iter().map(|&(v, k)| f64::from(k) * all[v]).sum();
        model = model.with(if row.equal { sum.eq(row.least) } else { sum.geq(row.least) });
    }
    if let Some(start) = start {
        model = model.with_initial_solution(all.iter().zip(start).map(|(&v, &s)| (v, f64::from(u8::from(s)))));
    }
    let solution = model.solve()?;
    Ok(all.iter().map(|&v| solution.value(v)).collect())
}
