//! Decomposition of an integer program into independent components.
//!
//! In: a program and values that satisfy its rows. Out: values that are not dearer, with a bound. Variables that the rows
//! leave no choice are fixed by propagation; the others fall into components that no row joins, and the cost of the program
//! is the sum of theirs. Equal components, such as the layers of a network, are solved once. A component of more variables
//! than are allowed is solved window by window with the rest held, and has no bound.

use crate::graph::extract::program::{BinaryProgram, Constraint, SolutionMethod, Solved, Work};
use crate::graph::extract::relaxation::Relaxation;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Bound of the work of all programs together, in products of variables and rows. 5,000 variables and 9,500 rows took 6 seconds;
/// the largest relaxations of a network of the data sets have 33,000,000.
const MAX_WORK: usize = 100_000_000;
/// Least number of variables of a window. Unmeasured.
const LEAST_WINDOW: usize = 200;

/// Solutions by program and start.
pub struct Memo {
    solved: HashMap<(Vec<u64>, Vec<Constraint>, Vec<bool>), Rc<Result<Solved, String>>>,
    /// The last relaxation of each program by its costs: the next one has the cuts of a round more.
    relaxed: HashMap<Vec<u64>, Relaxation>,
    work: Work,
}

impl Default for Memo {
    fn default() -> Memo {
        Memo { solved: HashMap::new(), relaxed: HashMap::new(), work: Work { done: 0, most: MAX_WORK } }
    }
}

impl Memo {
    fn solve(&mut self, program: &BinaryProgram, start: &[bool]) -> Rc<Result<Solved, String>> {
        let cost: Vec<u64> = program.cost.iter().map(|c| c.to_bits()).collect();
        let key = (cost, program.rows.clone(), start.to_vec());
        if let Some(solution) = self.solved.get(&key) {
            return solution.clone();
        }
        let solved = self.work.claim(program).and_then(|()| {
            let relaxed = self.relax(program, &key.0)?;
            program.solve(&relaxed, start, &mut self.work)
        });
        let solved = Rc::new(solved);
        self.solved.insert(key, solved.clone());
        solved
    }

    /// The values of the relaxation of a program with these costs.
    fn relax(&mut self, program: &BinaryProgram, cost: &[u64]) -> Result<Vec<f64>, String> {
        let before = self.relaxed.remove(cost);
        let relaxation = match before.and_then(|before| before.extended(program)) {
            Some(extended) => extended,
            None => Relaxation::new(program)?,
        };
        let values = relaxation.values();
        self.relaxed.insert(cost.to_vec(), relaxation);
        Ok(values)
    }

    /// Variables and rows of all programs that were solved: the measure of the work.
    #[cfg(test)]
    pub fn work(&self) -> (usize, usize) {
        let sizes = self.solved.keys().map(|(cost, rows, _)| (cost.len(), rows.len()));
        sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }
}

/// The values of all parts.
pub struct Together {
    pub values: Vec<bool>,
    /// No values cost less; `None` when a part has no bound.
    pub bound: Option<f64>,
    pub how: SolutionMethod,
    /// Windows that were solved, and all of them; none when each component fits.
    pub windows: (usize, usize),
}

/// Solves `program` from `start`; no part has more than `limit` variables. Windows follow the `position` of variables.
pub fn solve(program: &BinaryProgram, start: &[bool], position: &[usize], limit: usize, memo: &mut Memo) -> Together {
    let fixed = fixed(program);
    let open: Vec<bool> = fixed.iter().map(Option::is_none).collect();
    let pieces = program.components(&open);
    let held = (0..start.len()).filter(|&v| !open[v] && start[v]).map(|v| program.cost[v]).sum::<f64>();
    let mut out = Together { values: start.to_vec(), bound: Some(held), how: SolutionMethod::Start, windows: (0, 0) };
    for (piece, part) in pieces.iter().zip(split(program, &pieces, start)) {
        let before: Vec<bool> = piece.iter().map(|&v| start[v]).collect();
        if piece.len() > limit {
            let position: Vec<usize> = piece.iter().map(|&v| position[v]).collect();
            // windows have about two rows for a variable, and each variable is in two of them
            let limit = limit.min((MAX_WORK / piece.len() / 4).max(LEAST_WINDOW));
            let values = by_windows(&part, before, &position, limit, memo, &mut out);
            values.into_iter().zip(piece).for_each(|(value, &v)| out.values[v] = value);
            out.bound = None;
            continue;
        }
        match &*memo.solve(&part, &before) {
            Ok(Solved { values, bound, how }) => {
                values.iter().zip(piece).for_each(|(&value, &v)| out.values[v] = value);
                out.bound = out.bound.map(|b| b + bound);
                out.how = out.how.and(how);
            }
            Err(why) => {
                // The start stays; the part cannot cost less than its negative costs.
                let least: f64 = part.cost.iter().map(|c| c.min(0.0)).sum();
                out.bound = out.bound.map(|b| b + least);
                out.how = out.how.and(&SolutionMethod::GivenUp(why.clone()));
            }
        }
    }
    out
}

/// Overlapping windows in the order of `position`, each with the rest held.
fn by_windows(
    program: &BinaryProgram,
    mut values: Vec<bool>,
    position: &[usize],
    limit: usize,
    memo: &mut Memo,
    out: &mut Together,
) -> Vec<bool> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|&v| (position[v], v));
    let step = limit.div_ceil(2).max(1);
    // A window sees its own rows alone: all rows for each window would be work that grows with the square of the program.
    let rows_of = program.rows_of_variables();
    for first in (0..order.len().saturating_sub(step)).step_by(step).filter(|_| limit > 0) {
        let free = &order[first..order.len().min(first + limit)];
        out.windows.1 += 1;
        let rows: BTreeSet<usize> = free.iter().flat_map(|&v| &rows_of[v]).copied().collect();
        let Some(part) = program.part_of_rows(free, &values, rows) else { continue };
        let start: Vec<bool> = free.iter().map(|&v| values[v]).collect();
        match &*memo.solve(&part, &start) {
            Ok(solved) => {
                out.windows.0 += 1;
                solved.values.iter().zip(free).for_each(|(&value, &v)| values[v] = value);
            }
            Err(why) => out.how = out.how.and(&SolutionMethod::GivenUp(why.clone())),
        }
    }
    values
}

/// The programs of the pieces, numbered in their order; the variables outside have the values of `held`.
fn split(program: &BinaryProgram, pieces: &[Vec<usize>], held: &[bool]) -> Vec<BinaryProgram> {
    let mut place: Vec<Option<(usize, usize)>> = vec![None; held.len()];
    let mut parts: Vec<BinaryProgram> = vec![];
    for (p, piece) in pieces.iter().enumerate() {
        piece.iter().enumerate().for_each(|(i, &v)| place[v] = Some((p, i)));
        parts.push(BinaryProgram { cost: piece.iter().map(|&v| program.cost[v]).collect(), rows: vec![] });
    }
    for row in &program.rows {
        let Some((p, _)) = row.terms.iter().find_map(|t| place[t.0]) else { continue };
        let terms: Vec<(usize, i32)> = row.terms.iter().filter_map(|t| Some((place[t.0]?.1, t.1))).collect();
        let outside = row.terms.iter().filter(|t| place[t.0].is_none() && held[t.0]).map(|t| t.1).sum::<i32>();
        let least = row.least - outside;
        // What holds whatever the variables are is not a row.
        let lowest: i32 = terms.iter().map(|t| t.1.min(0)).sum();
        if row.equal || lowest < least {
            parts[p].rows.push(Constraint { terms, least, equal: row.equal });
        }
    }
    parts
}

/// Fixes variables by propagation over single rows; `None` for those that stay free.
pub fn fixed(program: &BinaryProgram) -> Vec<Option<bool>> {
    let mut rows_of: Vec<Vec<(usize, i32)>> = vec![vec![]; program.cost.len()];
    for (r, row) in program.rows.iter().enumerate() {
        row.terms.iter().for_each(|&(v, k)| rows_of[v].push((r, k)));
    }
    // The least and the greatest that the terms of a row can come to.
    let range =
        |row: &Constraint| (row.terms.iter().map(|t| t.1.min(0)).sum(), row.terms.iter().map(|t| t.1.max(0)).sum());
    let mut ranges: Vec<(i32, i32)> = program.rows.iter().map(range).collect();
    let largest = |row: &Constraint| row.terms.iter().map(|t| t.1.abs()).max().unwrap_or(0);
    let steps: Vec<i32> = program.rows.iter().map(largest).collect();
    let mut fixed: Vec<Option<bool>> = vec![None; program.cost.len()];
    let mut open: Vec<usize> = (0..program.rows.len()).rev().collect();
    while let Some(r) = open.pop() {
        let row = &program.rows[r];
        let tight = |(low, high): (i32, i32)| high - steps[r] < row.least || (row.equal && low + steps[r] > row.least);
        if !tight(ranges[r]) {
            continue;
        }
        for &(v, k) in &row.terms {
            let (low, high) = ranges[r];
            // Where the range ends when the variable is set against what the row wants.
            let above = high - k.abs() < row.least;
            let below = row.equal && low + k.abs() > row.least;
            let value = match (above, below) {
                _ if fixed[v].is_some() || k == 0 => continue,
                (true, _) => k > 0,
                (_, true) => k < 0,
                _ => continue,
            };
            fixed[v] = Some(value);
            for &(other, k) in &rows_of[v] {
                let (low, high) = &mut ranges[other];
                match (value, k > 0) {
                    (true, true) => *low += k,
                    (true, false) => *high += k,
                    (false, true) => *high -= k,
                    (false, false) => *low -= k,
                }
                if other != r {
                    open.push(other);
                }
            }
        }
    }
    fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a window is taken, and the next window holds it.
    #[test]
    fn windows_improve_the_values() {
        let rows = (0..4).map(|i| Constraint { terms: vec![(i, 1), (i + 1, 1)], least: 1, equal: false }).collect();
        let program = BinaryProgram { cost: vec![3.0, 2.0, 3.0, 2.0, 3.0], rows };
        let mut out = Together { values: vec![], bound: None, how: SolutionMethod::Start, windows: (0, 0) };
        let position = [0, 1, 2, 3, 4];
        let values = by_windows(&program, vec![true; 5], &position, 3, &mut Memo::default(), &mut out);
        assert!(program.holds(&values) && out.windows == (2, 2), "{:?}", out.windows);
        assert_eq!(program.total(&values), 4.0);
    }

    #[test]
    fn the_work_of_all_programs_together_is_bounded() {
        let row = Constraint { terms: vec![(0, 1), (1, 1)], least: 1, equal: false };
        let program = BinaryProgram { cost: vec![3.0, 2.0], rows: vec![row] };
        let mut memo = Memo { work: Work { done: MAX_WORK - 2, most: MAX_WORK }, ..Memo::default() };
        assert_eq!(memo.solve(&program, &[true, false]).as_ref().as_ref().unwrap().values, [false, true]);
        let other = BinaryProgram { cost: vec![2.0, 3.0], ..program.clone() };
        assert!(memo.solve(&other, &[false, true]).is_err());
        // what was solved before takes no effort
        assert!(memo.solve(&program, &[true, false]).is_ok());
    }
}
