//! A linear program over variables that are 0 or 1, and its parts.
//!
//! In: costs and rows. Out: the cheapest values, with a bound that no values are below. The relaxation is nearly always
//! integral. Its fractional variables fall into pieces that no row joins; each is solved by branch and bound, the rest
//! fixed. The bound of the pieces is Lagrange's (Geoffrion 1974): each row outside them has its price from the dual of the
//! relaxation, so they and the other variables are minimised apart. It holds for any prices, however they were computed.

use crate::graph::disjoint_sets::DisjointSets;
use good_lp::solvers::microlp::MicroLpProblem;
use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, microlp, variable};
use microlp::SolveOptions;
use std::collections::BTreeMap;

/// Relative gap of the cost at which the search for a better answer ends.
pub const GAP: f64 = 1e-6;
/// Largest number of open variables of a piece that branch and bound solves. Unmeasured.
const MAX_OPEN: usize = 40;
/// Largest number of variables of a piece after growing beyond the open ones. Unmeasured.
const MAX_PIECE: usize = 500;
/// Number of times that a piece grows by the variables that share a row with it. Unmeasured.
const MAX_RINGS: usize = 6;

/// The work of solving programs, and its bound: for each relaxation, and for each node of branch and bound, the product of
/// variables and rows.
#[derive(Clone, Copy, Default)]
pub struct Work {
    pub done: usize,
    pub most: usize,
}

impl Work {
    /// Counts a relaxation of a program; an error when there is no work left for it.
    pub fn claim(&mut self, program: &BinaryProgram) -> Result<(), String> {
        let done = self.done.saturating_add(program.size());
        if done > self.most {
            return Err("the programs before it took all of the effort".into());
        }
        self.done = done;
        Ok(())
    }

    fn left(&self) -> usize {
        self.most.saturating_sub(self.done)
    }
}

/// `Σ coefficient·variable ≥ least`, or `=`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constraint {
    pub terms: Vec<(usize, i32)>,
    pub least: i32,
    pub equal: bool,
}

impl Constraint {
    pub fn holds(&self, values: &[bool]) -> bool {
        let sum: i32 = self.terms.iter().filter(|t| values[t.0]).map(|t| t.1).sum();
        if self.equal { sum == self.least } else { sum >= self.least }
    }
}

/// Minimise the costs of the variables that are 1, so that the rows hold.
#[derive(Clone, Debug, Default)]
pub struct BinaryProgram {
    pub cost: Vec<f64>,
    pub rows: Vec<Constraint>,
}

/// The cheapest values that were found.
#[derive(Clone)]
pub struct Solved {
    pub values: Vec<bool>,
    /// No values cost less.
    pub bound: f64,
    pub how: SolutionMethod,
}

/// How the values were found.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum SolutionMethod {
    /// They are the start: the relaxation is not below it.
    Start,
    /// The relaxation is integral.
    Relaxation,
    /// Branch and bound on this many pieces.
    Pieces(usize),
    /// They are the start, for the reason given.
    GivenUp(String),
}

impl SolutionMethod {
    /// Combines two parts: the worse of both, and the pieces of both.
    pub fn and(&self, other: &SolutionMethod) -> SolutionMethod {
        match (self, other) {
            (SolutionMethod::GivenUp(why), _) | (_, SolutionMethod::GivenUp(why)) => {
                SolutionMethod::GivenUp(why.clone())
            }
            (SolutionMethod::Pieces(a), SolutionMethod::Pieces(b)) => SolutionMethod::Pieces(a + b),
            (SolutionMethod::Pieces(n), _) | (_, SolutionMethod::Pieces(n)) => SolutionMethod::Pieces(*n),
            (SolutionMethod::Relaxation, _) | (_, SolutionMethod::Relaxation) => SolutionMethod::Relaxation,
            (SolutionMethod::Start, SolutionMethod::Start) => SolutionMethod::Start,
        }
    }
}

impl std::fmt::Display for SolutionMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            SolutionMethod::Start => f.write_str("no answer is below the relaxation"),
            SolutionMethod::Relaxation => f.write_str("the relaxation is integral"),
            SolutionMethod::Pieces(1) => f.write_str("branch and bound on what the relaxation left open"),
            SolutionMethod::Pieces(n) => write!(f, "branch and bound on {n} pieces that the relaxation left open"),
            SolutionMethod::GivenUp(why) => write!(f, "greedy in a part, because {why}"),
        }
    }
}

impl BinaryProgram {
    pub fn total(&self, values: &[bool]) -> f64 {
        self.cost.iter().zip(values).filter(|(_, v)| **v).map(|(c, _)| c).sum()
    }

    pub fn holds(&self, values: &[bool]) -> bool {
        self.rows.iter().all(|row| row.holds(values))
    }

    fn size(&self) -> usize {
        self.cost.len().saturating_mul(self.rows.len())
    }

    /// The cheapest values, from those of the relaxation. The start must satisfy the rows; so do the values.
    pub fn solve(&self, relaxed: &[f64], start: &[bool], work: &mut Work) -> Result<Solved, String> {
        let bound = self.cost.iter().zip(relaxed).map(|(c, v)| c * v).sum::<f64>().min(self.total(start));
        let mut best = Solved { values: start.to_vec(), bound, how: SolutionMethod::Start };
        if self.is_optimal(&best) {
            return Ok(best);
        }
        let mut free: Vec<bool> = relaxed.iter().map(|v| is_open(*v)).collect();
        if !free.contains(&true) {
            let values = self.fill(&[], relaxed, start, work)?;
            return Ok(Solved { values, bound, how: SolutionMethod::Relaxation });
        }
        let mut prices = None;
        for ring in 0..=MAX_RINGS {
            let pieces = self.components(&free);
            if ring > 0 && pieces.iter().any(|p| p.len() > MAX_PIECE) {
                break;
            }
            match self.fill(&pieces, relaxed, start, work) {
                Ok(values) => {
                    best.how = SolutionMethod::Pieces(pieces.len());
                    if self.total(&values) < self.total(&best.values) {
                        best.values = values;
                    }
                    // The prices take a program as large as the relaxation: only where that is not as high already.
                    if !self.is_optimal(&best) {
                        let none = |_| vec![0.0; self.rows.len()];
                        let prices = prices.get_or_insert_with(|| self.prices(work).unwrap_or_else(none));
                        let proven = self.bound(&pieces, prices, work).unwrap_or(best.bound);
                        best.bound = best.bound.max(proven).min(self.total(&best.values));
                    }
                    if self.is_optimal(&best) {
                        break;
                    }
                }
                Err(why) if best.how == SolutionMethod::Start => best.how = SolutionMethod::GivenUp(why),
                Err(_) => {}
            }
            let mut near = free.clone();
            for row in self.rows.iter().filter(|row| row.terms.iter().any(|t| free[t.0])) {
                row.terms.iter().for_each(|t| near[t.0] = true);
            }
            free = near;
        }
        Ok(best)
    }

    fn is_optimal(&self, solved: &Solved) -> bool {
        let total = self.total(&solved.values);
        total - solved.bound <= GAP * total.abs()
    }

    /// The values of a relaxation, with those in the pieces by branch and bound.
    fn fill(
        &self,
        pieces: &[Vec<usize>],
        relaxed: &[f64],
        start: &[bool],
        work: &mut Work,
    ) -> Result<Vec<bool>, String> {
        let mut values: Vec<bool> = relaxed.iter().map(|v| *v > 0.5).collect();
        for piece in pieces {
            let part = self.part(piece, &values).ok_or("nothing fits what the relaxation chose round a piece")?;
            let before: Vec<bool> = piece.iter().map(|&i| start[i]).collect();
            part.branch(Some(&before), work)?.into_iter().zip(piece).for_each(|(v, &i)| values[i] = v);
        }
        if self.holds(&values) { Ok(values) } else { Err("a rounded answer breaks a row".into()) }
    }

    /// The program over the `free` variables, numbered in that order, with the others held; `None` when a row is broken
    /// whatever they are.
    pub fn part(&self, free: &[usize], held: &[bool]) -> Option<BinaryProgram> {
        self.part_of_rows(free, held, 0..self.rows.len())
    }

    /// As [`BinaryProgram::part`], where `rows` are at least those that a free variable is in, in their order.
    pub fn part_of_rows(
        &self,
        free: &[usize],
        held: &[bool],
        rows: impl IntoIterator<Item = usize>,
    ) -> Option<BinaryProgram> {
        let mut index = vec![None; self.cost.len()];
        free.iter().enumerate().for_each(|(i, &v)| index[v] = Some(i));
        let mut out = BinaryProgram { cost: free.iter().map(|&v| self.cost[v]).collect(), rows: vec![] };
        for row in rows.into_iter().map(|r| &self.rows[r]) {
            let terms: Vec<(usize, i32)> = row.terms.iter().filter_map(|&(v, k)| index[v].map(|i| (i, k))).collect();
            if terms.is_empty() {
                continue;
            }
            let outside = row.terms.iter().filter(|t| index[t.0].is_none() && held[t.0]);
            let least = row.least - outside.map(|t| t.1).sum::<i32>();
            let most: i32 = terms.iter().map(|t| t.1.max(0)).sum();
            if most < least {
                return None;
            }
            out.rows.push(Constraint { terms, least, equal: row.equal });
        }
        Some(out)
    }

    /// The rows that each variable is in.
    pub fn rows_of_variables(&self) -> Vec<Vec<usize>> {
        let mut rows = vec![vec![]; self.cost.len()];
        for (r, row) in self.rows.iter().enumerate() {
            row.terms.iter().for_each(|t| rows[t.0].push(r));
        }
        rows
    }

    /// Values by branch and bound, from a start if it fits, when there is not too much to branch on.
    fn branch(&self, start: Option<&[bool]>, work: &mut Work) -> Result<Vec<bool>, String> {
        work.claim(self)?;
        let relaxed = self.model(false).solve().map_err(|e| e.to_string())?.into_inner();
        let open = relaxed.iter().filter(|(_, v)| is_open(*v)).count();
        if open == 0 {
            return Ok(relaxed.iter().map(|(_, v)| v > 0.5).collect());
        }
        if open > MAX_OPEN {
            return Err(format!("the relaxation of a piece leaves {open} variables open"));
        }
        let start = start.filter(|start| self.holds(start));
        let variables = relaxed.iter().map(|(variable, _)| variable);
        let start = start.map(|s| variables.zip(s).map(|(v, &s)| (v, f64::from(u8::from(s)))).collect());
        self.search(start, work)
    }

    /// The cheapest values by branch and bound; an error where what is left of the work does not suffice to prove it.
    fn search(&self, start: Option<Vec<(microlp::Variable, f64)>>, work: &mut Work) -> Result<Vec<bool>, String> {
        let size = self.size().max(1);
        let mut options = SolveOptions::default();
        options.node_limit = Some((work.left() / size) as u64);
        options.warm_start = start;
        let outcome = self.model(true).as_inner().solve_with(options).map_err(|e| e.to_string())?;
        work.done = work.done.saturating_add(size.saturating_mul(outcome.stats().nodes_solved as usize));
        match outcome.solution().filter(|_| outcome.is_optimal()) {
            Some(solution) => Ok(solution.iter().map(|(_, v)| v > 0.5).collect()),
            None => Err("branch and bound took all of the effort".into()),
        }
    }

    /// The connected components of some variables; a row joins its own.
    pub fn components(&self, among: &[bool]) -> Vec<Vec<usize>> {
        let mut sets = DisjointSets::new(among.len());
        for row in &self.rows {
            let mut inside = row.terms.iter().map(|t| t.0).filter(|&v| among[v]);
            let Some(first) = inside.next() else { continue };
            inside.for_each(|v| sets.join(first, v));
        }
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for v in (0..among.len()).filter(|&v| among[v]) {
            parts.entry(sets.least(v)).or_default().push(v);
        }
        parts.into_values().collect()
    }

    /// Returns Lagrange's lower bound: rows that do not lie in one piece are priced instead.
    fn bound(&self, pieces: &[Vec<usize>], prices: &[f64], work: &mut Work) -> Result<f64, String> {
        let mut piece_of: Vec<Option<usize>> = vec![None; self.cost.len()];
        for (i, piece) in pieces.iter().enumerate() {
            piece.iter().for_each(|&v| piece_of[v] = Some(i));
        }
        let mut inside: Vec<Vec<Constraint>> = vec![vec![]; pieces.len()];
        let mut reduced = self.cost.clone();
        let mut bound = 0.0;
        for (row, &price) in self.rows.iter().zip(prices) {
            let piece = row.terms.first().and_then(|t| piece_of[t.0]);
            match piece.filter(|_| row.terms.iter().all(|t| piece_of[t.0] == piece)) {
                Some(p) => inside[p].push(row.clone()),
                None => {
                    let price = if row.equal { price } else { price.max(0.0) };
                    bound += price * f64::from(row.least);
                    row.terms.iter().for_each(|&(v, k)| reduced[v] -= price * f64::from(k));
                }
            }
        }
        bound += reduced.iter().zip(&piece_of).filter(|(_, p)| p.is_none()).map(|(c, _)| c.min(0.0)).sum::<f64>();
        for (piece, rows) in pieces.iter().zip(inside) {
            let whole = BinaryProgram { cost: reduced.clone(), rows };
            let part = whole.part(piece, &[]).ok_or("a piece has no values")?;
            bound += part.total(&part.branch(None, work)?);
        }
        Ok(bound)
    }

    /// Returns the prices of the rows: a solution of the dual of the relaxation.
    fn prices(&self, work: &mut Work) -> Result<Vec<f64>, String> {
        work.claim(self)?;
        let mut variables = ProblemVariables::new();
        // Variables without limits make the simplex wander for minutes.
        let most = self.cost.iter().map(|c| c.abs()).fold(1.0, f64::max) * 16.0;
        let price = |row: &Constraint| variable().min(if row.equal { -most } else { 0.0 }).max(most);
        let prices: Vec<Variable> = self.rows.iter().map(|row| variables.add(price(row))).collect();
        let capped: Vec<Variable> = self.cost.iter().map(|_| variables.add(variable().min(0))).collect();
        let mut columns: Vec<Expression> = capped.iter().map(|&u| -1.0 * u).collect();
        let mut worth: Expression = columns.iter().cloned().sum();
        for (row, &y) in self.rows.iter().zip(&prices) {
            worth += f64::from(row.least) * y;
            row.terms.iter().for_each(|&(v, k)| columns[v] += f64::from(k) * y);
        }
        let mut model = variables.maximise(worth).using(microlp);
        for (column, &cost) in columns.into_iter().zip(&self.cost) {
            model = model.with(column.leq(cost));
        }
        let solution = model.solve().map_err(|e| e.to_string())?;
        Ok(prices.iter().map(|&y| solution.value(y)).collect())
    }

    /// The program for the solver, over 0 and 1 or over all numbers between; its variables are in their order.
    pub fn model(&self, integral: bool) -> MicroLpProblem {
        let mut variables = ProblemVariables::new();
        let kind = || if integral { variable().binary() } else { variable().min(0).max(1) };
        let columns: Vec<Variable> = self.cost.iter().map(|_| variables.add(kind())).collect();
        let objective: Expression = columns.iter().zip(&self.cost).map(|(&v, &c)| c * v).sum();
        let mut model = variables.minimise(objective).using(microlp);
        for row in &self.rows {
            let sum: Expression = row.terms.iter().map(|&(v, k)| f64::from(k) * columns[v]).sum();
            model = model.with(if row.equal { sum.eq(row.least) } else { sum.geq(row.least) });
        }
        model
    }
}

fn is_open(value: f64) -> bool {
    value > 1e-6 && value < 1.0 - 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::extract::relaxation::Relaxation;

    /// Pentagons of which each edge needs one of its ends: the relaxation takes half of each variable.
    fn pentagons(count: usize) -> BinaryProgram {
        let edge = |i: usize, j: usize| Constraint { terms: vec![(i, 1), (j, 1)], least: 1, equal: false };
        let rows = (0..5 * count).map(|i| edge(i, i / 5 * 5 + (i + 1) % 5)).collect();
        BinaryProgram { cost: vec![1.0; 5 * count], rows }
    }

    /// Prices of all rows prove what the relaxation takes, with equations of either sign too.
    #[test]
    fn the_prices_of_the_rows_are_as_high_as_the_relaxation() {
        let one_of_two = Constraint { terms: vec![(0, 1), (1, 1)], least: 1, equal: true };
        let earning = BinaryProgram { cost: vec![-3.0, -2.0], rows: vec![one_of_two] };
        for (program, relaxed) in [(pentagons(1), 2.5), (pentagons(3), 7.5), (earning, -3.0)] {
            let mut work = Work { done: 0, most: usize::MAX };
            let prices = program.prices(&mut work).unwrap();
            let bound = program.bound(&[], &prices, &mut work).unwrap();
            assert!((bound - relaxed).abs() < 1e-6, "{bound} {relaxed}");
        }
    }

    #[test]
    fn branch_and_bound_keeps_within_the_work() {
        let (program, start) = (pentagons(3), [true; 15]);
        let relaxed = Relaxation::new(&program).unwrap().values();
        let within = |most: usize| {
            let mut work = Work { done: 0, most };
            let solved = program.solve(&relaxed, &start, &mut work).unwrap();
            assert!(work.done <= most && program.holds(&solved.values) && solved.bound <= 9.0 + 1e-6);
            (program.total(&solved.values), solved.how, work.done)
        };
        let (total, how, done) = within(usize::MAX);
        assert_eq!((total, how), (9.0, SolutionMethod::Pieces(3)));
        // more than the relaxations, those of the bounds and the prices
        assert!(done > 3 * 25 * 2 + 225, "{done}");
        assert_eq!(within(done).0, 9.0);
        (0..done).step_by(7).for_each(|most| _ = within(most));
        let (total, how, done) = within(25);
        assert!(total == 15.0 && done == 25 && matches!(how, SolutionMethod::GivenUp(_)), "{done}");
    }
}
