//! Solving the integer program.
//!
//! In: a [`Problem`], its rows and the greedy answer. Out: the best answer known and how good it is. An answer counts only
//! after every row was checked in integers and no cut was needed; cuts are added and the program is solved again. A program
//! of more variables than are allowed is solved window by window, in the order of its classes, with the rest held.

use crate::graph::extract::kernels::{Answer, cuts};
use crate::graph::extract::problem::Problem;
use crate::graph::extract::program::{How, Solved};
use crate::graph::extract::report::{Outcome, Report};
use crate::graph::extract::rows::Rows;

/// Solutions of one program that may be cut off before giving up.
const MAX_ROUNDS: usize = 12;

/// The best of the greedy answer and what the solver finds; no program has more variables than `limit`.
pub fn solve(problem: &Problem, rows: &mut Rows, greedy: Vec<bool>, limit: usize, report: &mut Report) -> Vec<bool> {
    let mut best = greedy;
    let windows = windows(problem, rows, limit);
    let mut solved = 0;
    for window in &windows {
        match improve(problem, rows, &mut best, window, report) {
            Ok((how, bound)) if windows.len() == 1 => {
                report.bound_ns = Some(bound);
                report.outcome = Outcome::Solved(how);
            }
            Ok(_) => {
                solved += 1;
                report.outcome = Outcome::Windows { solved, of: windows.len() };
            }
            Err(why) if solved == 0 => report.outcome = Outcome::Greedy(why),
            Err(_) => {}
        }
    }
    (report.variables, report.rows) = (rows.program.cost.len(), rows.program.rows.len());
    best
}

/// The variables of overlapping parts of the problem, each of `limit` at most.
fn windows(problem: &Problem, rows: &Rows, limit: usize) -> Vec<Vec<usize>> {
    let mut class = vec![0; rows.program.cost.len()];
    rows.x.iter().enumerate().for_each(|(c, list)| list.iter().for_each(|&x| class[x] = c));
    rows.f.iter().zip(&problem.edges).for_each(|(&f, e)| class[f] = e.reader.0);
    rows.a.iter().for_each(|(site, &a)| class[a] = site.0);
    rows.w.iter().for_each(|(&s, &w)| class[w] = s);
    let mut order: Vec<usize> = (0..class.len()).collect();
    order.sort_by_key(|&v| class[v]);
    if order.len() <= limit {
        return vec![order];
    }
    let step = limit.div_ceil(2).max(1);
    let starts = (0..order.len().saturating_sub(step)).step_by(step).filter(|_| limit > 0);
    starts.map(|i| order[i..order.len().min(i + limit)].to_vec()).collect()
}

/// Replaces `best` by what is best when only the `free` variables may change. Adds the cuts that were needed.
fn improve(
    problem: &Problem,
    rows: &mut Rows,
    best: &mut Vec<bool>,
    free: &[usize],
    report: &mut Report,
) -> Result<(How, f64), String> {
    for _ in 0..MAX_ROUNDS {
        let part = rows.program.part(free, best).ok_or("the greedy answer breaks a row")?;
        let start: Vec<bool> = free.iter().map(|&v| best[v]).collect();
        let Solved { values, bound, how } = part.solve(&start)?;
        let mut all = best.clone();
        values.into_iter().zip(free).for_each(|(value, &v)| all[v] = value);
        let new = cuts(problem, rows, &all, &Answer::new(problem, rows, &all));
        if new.is_empty() {
            *best = all;
            return Ok((how, bound));
        }
        report.cuts += new.len();
        rows.program.rows.extend(new);
    }
    Err(format!("answers still needed cuts after {MAX_ROUNDS} rounds"))
}
