//! Small integer programs: fixed and equal unknowns eliminated, the rest solved by branch and bound over microlp's
//! linear relaxations with a bound on their number and size, the answer checked exactly. Unknowns that are the positive
//! parts of others are integers by themselves: they are not divided at, and are left out while it is asked whether
//! there is any point.

use crate::poly::sets::polyhedron::gcd;
use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of linear relaxations solved for one program, apart from the first. Unmeasured.
const MAX_NODES: usize = 60;
/// Largest number of entries (rows times unknowns) of these relaxations together. Unmeasured.
const MAX_ENTRIES: usize = 2_000_000;
/// Effort of a relaxation over that of one that starts from the solution of another. Unmeasured.
const PART: usize = 8;

/// The integer programs that were solved, each with its solution and the effort that it took: a group of statements asks for the same rows as
/// tiles, as points and where it is joined.
#[derive(Default)]
pub struct Solutions(FxHashMap<IntegerProgram, (Outcome, usize)>);

/// The answer to an integer program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A solution, every row verified in integers; not the optimum when that takes more effort than allowed.
    Point(Vec<i64>),
    /// Rows and bounds contradict each other: no program that has them has a solution, whatever rows follow.
    Contradiction,
    /// There is no solution, or none was found.
    Unknown,
}

impl Outcome {
    /// The solution.
    pub fn point(self) -> Option<Vec<i64>> {
        match self {
            Outcome::Point(point) => Some(point),
            Outcome::Contradiction | Outcome::Unknown => None,
        }
    }
}

impl Solutions {
    /// [`IntegerProgram::solve`]; a program that was solved before spends as much again.
    pub fn solve(&mut self, program: IntegerProgram, effort: &mut Effort) -> Outcome {
        if let Some((solution, spent)) = self.0.get(&program)
            && *spent < effort.left
        {
            effort.left -= spent;
            return solution.clone();
        }
        let before = effort.left;
        let solution = program.solve(effort);
        if effort.left > 0 {
            self.0.insert(program, (solution.clone(), before - effort.left));
        }
        solution
    }
}

/// Remaining effort for integer programs: a linear relaxation costs its rows times its unknowns, an [eighth](PART) of
/// them when it starts from the solution of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    pub left: usize,
}

impl Effort {
    /// Takes the cost of one more relaxation; returns false, and leaves nothing, if not enough is left.
    fn spend(&mut self, relaxation: usize) -> bool {
        let enough = relaxation <= self.left;
        self.left = if enough { self.left - relaxation } else { 0 };
        enough
    }
}

/// `constant + Σ coefficient·unknown`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Linear {
    /// Unknowns in their order, with coefficients other than 0.
    pub terms: Vec<(usize, i64)>,
    pub constant: i64,
}

impl Linear {
    /// Adds `k·unknown`.
    pub fn add(&mut self, unknown: usize, k: i64) {
        match self.terms.binary_search_by_key(&unknown, |t| t.0) {
            Ok(at) => {
                self.terms[at].1 += k;
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                }
            }
            Err(at) if k != 0 => self.terms.insert(at, (unknown, k)),
            Err(_) => {}
        }
    }

    /// Adds `k·other`.
    pub fn add_scaled(&mut self, other: &Linear, k: i64) {
        self.constant += k * other.constant;
        other.terms.iter().for_each(|&(u, c)| self.add(u, k * c));
    }

    fn evaluate(&self, values: &[i64]) -> i64 {
        self.terms.iter().map(|&(u, c)| c * values[u]).sum::<i64>() + self.constant
    }

    /// The strongest of the forms that are nonnegative at the same integers and parallel to this one.
    fn tight(mut self) -> Linear {
        let g = self.divisor().max(1);
        self.terms.iter_mut().for_each(|t| t.1 /= g);
        self.constant = self.constant.div_euclid(g);
        self
    }

    /// The greatest common divisor of the coefficients.
    fn divisor(&self) -> i64 {
        gcd(&self.terms.iter().map(|t| t.1).collect::<Vec<_>>())
    }

    /// Returns true for an equation that elimination takes whatever the others are: one of no, of one or of two equal unknowns.
    fn is_eliminated(&self) -> bool {
        match self.terms[..] {
            [] => self.constant == 0,
            [_] => true,
            [(_, c), (_, d)] => c == -d && self.constant == 0,
            _ => false,
        }
    }

    /// The least value between bounds; the greatest when they are swapped.
    fn least(&self, low: &[i64], high: &[i64]) -> i64 {
        self.terms.iter().map(|&(u, c)| c * if c > 0 { low[u] } else { high[u] }).sum::<i64>() + self.constant
    }
}

/// Minimise `Σ cost·unknown` over integers between bounds, subject to rows that are ≥ 0 or = 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct IntegerProgram {
    pub low: Vec<i64>,
    pub high: Vec<i64>,
    pub cost: Vec<i64>,
    at_least: Vec<Linear>,
    equal: Vec<Linear>,
    /// The unknowns that are max(0, form) wherever that is cheapest, so integers where the others are.
    positive: BTreeMap<Linear, usize>,
}

impl IntegerProgram {
    /// A new unknown in `low ..= high`.
    pub fn unknown(&mut self, low: i64, high: i64, cost: i64) -> usize {
        self.low.push(low);
        self.high.push(high);
        self.cost.push(cost);
        self.low.len() - 1
    }

    pub fn at_least_zero(&mut self, row: Linear) {
        self.at_least.push(row);
    }

    pub fn equal_zero(&mut self, row: Linear) {
        self.equal.push(row);
    }

    /// Requires rows that [`IntegerProgram::equal_zero`] has required before: those that elimination leaves count for the effort again.
    pub fn equal_zero_again(&mut self, rows: &[Linear]) {
        self.equal.extend(rows.iter().filter(|row| !row.is_eliminated()).cloned());
    }

    /// Adds `k` to the cost of each unknown, times its coefficient.
    pub fn charge(&mut self, linear: &Linear, k: i64) {
        linear.terms.iter().for_each(|&(u, c)| self.cost[u] += k * c);
    }

    /// Adds `k·max(0, linear)` to the cost, for a form without a constant and `k ≥ 0`. Forms that are multiples of each
    /// other, of any sign, share an unknown: max(0, −x) = max(0, x) − x.
    pub fn charge_positive(&mut self, linear: &Linear, k: i64) {
        let g = linear.divisor();
        let Some(sign) = linear.terms.first().map(|t| t.1.signum()) else { return };
        let mut form = Linear::default();
        linear.terms.iter().for_each(|&(u, c)| form.add(u, sign * c / g));
        let k = k * g;
        if sign < 0 {
            self.charge(&form, -k);
        }
        if form.least(&self.low, &self.high) >= 0 {
            return self.charge(&form, k);
        }
        let computed = self.positive.get(&form).copied();
        let part = computed.unwrap_or_else(|| {
            let part = self.unknown(0, form.least(&self.high, &self.low).max(0), 0);
            let mut row = Linear::default();
            row.add(part, 1);
            row.add_scaled(&form, -1);
            self.at_least_zero(row);
            self.positive.insert(form, part);
            part
        });
        self.cost[part] += k;
    }

    pub fn unknowns(&self) -> usize {
        self.low.len()
    }

    pub fn rows(&self) -> usize {
        self.at_least.len() + self.equal.len()
    }

    /// An optimal solution if it takes no more effort than allowed.
    pub fn solve(&self, effort: &mut Effort) -> Outcome {
        let Some(reduced) = self.eliminate() else { return Outcome::Contradiction };
        self.solve_reduced(reduced, effort).map_or(Outcome::Unknown, Outcome::Point)
    }

    /// The program without equal and fixed unknowns; `None` where these leave a row no value.
    fn eliminate(&self) -> Option<Reduced> {
        let n = self.unknowns();
        let (mut low, mut high) = (self.low.clone(), self.high.clone());
        let mut root: Vec<usize> = (0..n).collect();
        let mut equal = self.equal.clone();
        loop {
            let mut changed = false;
            let mut remaining = vec![];
            for row in &equal {
                let row = substitute(row, &root, &low, &high);
                match row.terms[..] {
                    [] if row.constant == 0 => changed = true,
                    [] => return None,
                    [(u, c)] => {
                        let value = -row.constant / c;
                        if value * c + row.constant != 0 || value < low[u] || value > high[u] {
                            return None;
                        }
                        (low[u], high[u]) = (value, value);
                        changed = true;
                    }
                    [(u, c), (v, d)] if c == -d && row.constant == 0 => {
                        (low[u], high[u]) = (low[u].max(low[v]), high[u].min(high[v]));
                        if low[u] > high[u] {
                            return None;
                        }
                        root.iter_mut().filter(|r| **r == v).for_each(|r| *r = u);
                        changed = true;
                    }
                    _ => remaining.push(row),
                }
            }
            equal = remaining;
            if !changed {
                break;
            }
        }
        let mut at_least = vec![];
        for row in &self.at_least {
            let row = substitute(row, &root, &low, &high);
            if row.least(&high, &low) < 0 {
                return None;
            }
            if row.least(&low, &high) < 0 {
                at_least.push(row.tight());
            }
        }
        // Of rows that differ in their constants the least says all.
        at_least.sort();
        at_least.dedup_by(|later, first| later.terms == first.terms);
        Some(Reduced { low, high, root, at_least, equal })
    }

    fn solve_reduced(&self, reduced: Reduced, effort: &mut Effort) -> Option<Vec<i64>> {
        let Reduced { low, high, root, at_least, equal } = reduced;
        let n = self.unknowns();
        let mut cost = vec![0; n];
        (0..n).for_each(|u| cost[root[u]] += self.cost[u]);
        let open: Vec<usize> = (0..n).filter(|&u| root[u] == u && low[u] < high[u]).collect();
        let follows: BTreeSet<usize> = self.positive.values().copied().collect();
        let (followers, others): (Vec<usize>, Vec<usize>) = open.iter().partition(|u| follows.contains(u));
        if followers.len() > others.len() {
            let restricts = |row: &&Linear| row.terms.iter().all(|(u, _)| !follows.contains(u));
            let at_least: Vec<Linear> = at_least.iter().filter(restricts).cloned().collect();
            let rows = Rows { open: &others, follows: &follows, at_least: &at_least, equal: &equal, cost: &vec![0; n] };
            if !effort.spend(rows.entries()) || rows.relax(&low, &high).is_none() {
                return None;
            }
        }
        let rows = Rows { open: &open, follows: &follows, at_least: &at_least, equal: &equal, cost: &cost };
        let place = |u: usize| open.iter().position(|&o| o == u);
        let solution = rows.branch_and_bound(&low, &high, effort, |values| {
            let value: Vec<i64> = (0..n).map(|u| place(root[u]).map_or(low[root[u]], |k| values[k])).collect();
            let within = (0..n).all(|u| self.low[u] <= value[u] && value[u] <= self.high[u]);
            let valid = within
                && self.at_least.iter().all(|r| r.evaluate(&value) >= 0)
                && self.equal.iter().all(|r| r.evaluate(&value) == 0);
            valid.then_some(value)
        });
        solution.map(|(_, value)| value)
    }
}

/// A program in which equal unknowns are represented by the first of them, its root, and fixed ones by their value.
struct Reduced {
    low: Vec<i64>,
    high: Vec<i64>,
    root: Vec<usize>,
    at_least: Vec<Linear>,
    equal: Vec<Linear>,
}

/// A relaxation and the bound that one unknown has in addition.
type Branch = (Solution, Variable, ComparisonOp, f64);

/// The reduced program: rows over the open unknowns.
struct Rows<'a> {
    open: &'a [usize],
    /// Integers where the others are.
    follows: &'a BTreeSet<usize>,
    at_least: &'a [Linear],
    equal: &'a [Linear],
    cost: &'a [i64],
}

impl Rows<'_> {
    /// Of one linear relaxation.
    fn entries(&self) -> usize {
        self.open.len() * (self.at_least.len() + self.equal.len()).max(1)
    }

    /// The cheapest integer point that `accept` takes, and its cost: linear relaxations, divided at unknowns that are no
    /// integers, at most [`MAX_NODES`] of them and as many as `effort` allows. Beyond that, the best point so far.
    fn branch_and_bound(
        &self,
        low: &[i64],
        high: &[i64],
        effort: &mut Effort,
        accept: impl Fn(&[i64]) -> Option<Vec<i64>>,
    ) -> Option<(i64, Vec<i64>)> {
        if self.open.is_empty() {
            return accept(&[]).map(|value| (0, value));
        }
        let free = (0..self.open.len()).filter(|&k| !self.follows.contains(&self.open[k]));
        let mut nodes: Vec<Option<Branch>> = vec![None];
        let mut best: Option<(i64, Vec<i64>)> = None;
        let relaxation = self.entries();
        for _ in 0..MAX_NODES.min(MAX_ENTRIES / relaxation * PART).max(1) {
            let Some(node) = nodes.pop() else { break };
            let solution = match node {
                None if effort.spend(relaxation) => self.relax(low, high),
                Some((parent, x, side, bound)) if effort.spend(relaxation.div_ceil(PART)) => {
                    parent.add_constraint([(x, 1.0)], side, bound).ok().and_then(|s| s.into_solution().ok())
                }
                _ => break,
            };
            let Some(solution) = solution else { continue };
            let (unknowns, point): (Vec<Variable>, Vec<f64>) = solution.iter().unzip();
            let cost: f64 = self.open.iter().zip(&point).map(|(&u, x)| self.cost[u] as f64 * x).sum();
            if best.as_ref().is_some_and(|b| cost > b.0 as f64 - 0.5) {
                continue;
            }
            let distance = |x: f64| (x - x.round()).abs();
            let worst = free.clone().max_by(|&a, &b| distance(point[a]).total_cmp(&distance(point[b])));
            match worst.filter(|&k| distance(point[k]) > 1e-6) {
                None => {
                    let values: Vec<i64> = point.iter().map(|x| x.round() as i64).collect();
                    let cost = self.open.iter().zip(&values).map(|(&u, x)| self.cost[u] * x).sum();
                    if let Some(value) = accept(&values)
                        && best.as_ref().is_none_or(|b| cost < b.0)
                    {
                        best = Some((cost, value));
                    }
                }
                Some(k) => {
                    let below = point[k].floor();
                    let up = Some((solution.clone(), unknowns[k], ComparisonOp::Ge, below + 1.0));
                    let down = Some((solution, unknowns[k], ComparisonOp::Le, below));
                    nodes.extend(if point[k] - below > 0.5 { [down, up] } else { [up, down] });
                }
            }
        }
        best
    }

    /// The cheapest rational point between bounds.
    fn relax(&self, low: &[i64], high: &[i64]) -> Option<Solution> {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let unknowns: Vec<Variable> =
            self.open.iter().map(|&u| problem.add_var(self.cost[u] as f64, (low[u] as f64, high[u] as f64))).collect();
        let rows = self.at_least.iter().map(|r| (r, ComparisonOp::Ge));
        for (row, side) in rows.chain(self.equal.iter().map(|r| (r, ComparisonOp::Eq))) {
            let place = |u: &usize| unknowns[self.open.binary_search(u).expect("open")];
            let terms = row.terms.iter().map(|(u, c)| (place(u), *c as f64));
            problem.add_constraint(terms, side, -row.constant as f64);
        }
        problem.solve().ok()?.into_solution().ok()
    }
}

/// The row over the representatives that are not fixed.
fn substitute(row: &Linear, root: &[usize], low: &[i64], high: &[i64]) -> Linear {
    let mut out = Linear { constant: row.constant, ..Linear::default() };
    for &(u, c) in &row.terms {
        let r = root[u];
        if low[r] == high[r] {
            out.constant += c * low[r];
        } else {
            out.add(r, c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn row(terms: &[(usize, i64)], constant: i64) -> Linear {
        Linear { terms: terms.to_vec(), constant }
    }

    #[test]
    fn presolve_and_solver_agree_with_enumeration() {
        // Random programs in three unknowns against all 6³ points.
        let mut rng = StdRng::seed_from_u64(1);
        let mut random = |n: i64| rng.random_range(0..n);
        let (mut feasible, mut infeasible) = (0, 0);
        for _ in 0..300 {
            let mut p = IntegerProgram::default();
            for _ in 0..3 {
                let cost = random(5);
                p.unknown(-1, 4, cost);
            }
            for k in 0..3 {
                let r = row(&[(0, random(5) - 2), (1, random(5) - 2), (2, random(5) - 2)], random(7) - 3);
                let r = Linear { terms: r.terms.into_iter().filter(|t| t.1 != 0).collect(), ..r };
                if k == 0 { p.equal_zero(r) } else { p.at_least_zero(r) }
            }
            let best = (0..216)
                .map(|c| [c % 6 - 1, c / 6 % 6 - 1, c / 36 - 1])
                .filter(|v| p.at_least.iter().all(|r| r.evaluate(v) >= 0) && p.equal.iter().all(|r| r.evaluate(v) == 0))
                .map(|v| (0..3).map(|u| p.cost[u] * v[u]).sum::<i64>())
                .min();
            let found =
                p.solve(&mut Effort { left: 1 << 20 }).point().map(|v| (0..3).map(|u| p.cost[u] * v[u]).sum::<i64>());
            assert_eq!(found, best, "{p:?}");
            if best.is_some() { feasible += 1 } else { infeasible += 1 }
        }
        assert!(feasible > 50 && infeasible > 20, "{feasible} {infeasible}");
    }

    #[test]
    fn positive_parts_cost_what_they_are() {
        // max(0, y − x), max(0, 2x − 2y) and max(0, −x) against all points with x + 2y ≥ c.
        for (c, k) in (-3..9).flat_map(|c| [[1, 1, 1], [3, 1, 5], [1, 4, 2]].map(|k| (c, k))) {
            let mut p = IntegerProgram::default();
            let (x, y) = (p.unknown(-3, 4, 1), p.unknown(0, 4, -1));
            let forms = [row(&[(x, -1), (y, 1)], 0), row(&[(x, 2), (y, -2)], 0), row(&[(x, -1)], 0)];
            forms.iter().zip(k).for_each(|(form, k)| p.charge_positive(form, k));
            assert_eq!(p.unknowns(), 4);
            let rest = row(&[(x, 1), (y, 2)], -c);
            p.at_least_zero(rest.clone());
            let cost =
                |v: &[i64]| v[0] - v[1] + forms.iter().zip(k).map(|(f, k)| k * f.evaluate(v).max(0)).sum::<i64>();
            let points = (0..40).map(|n| [n % 8 - 3, n / 8]);
            let best = points.filter(|v| rest.evaluate(v) >= 0).map(|v| cost(&v)).min();
            let found = p.solve(&mut Effort { left: 1 << 20 }).point().map(|v| cost(&v));
            assert_eq!(found, best, "{c} {k:?}");
        }
    }

    #[test]
    fn a_program_that_was_solved_before_spends_as_much_again() {
        let mut p = IntegerProgram::default();
        (0..3).for_each(|_| assert!(p.unknown(0, 9, 1) < 3));
        p.at_least_zero(row(&[(0, 2), (1, 3), (2, -2)], -1));
        let (mut known, mut effort) = (Solutions::default(), Effort { left: 1000 });
        let first = known.solve(p.clone(), &mut effort);
        let spent = 1000 - effort.left;
        assert_eq!(known.solve(p.clone(), &mut effort), first);
        assert_eq!(effort, Effort { left: 1000 - 2 * spent });
        // what is not left is not spent
        let mut little = Effort { left: spent - 1 };
        assert_eq!(known.solve(p.clone(), &mut little), p.solve(&mut Effort { left: spent - 1 }));
        assert_eq!(little, Effort { left: 0 });
    }

    #[test]
    fn effort_ends() {
        let mut p = IntegerProgram::default();
        (0..3).for_each(|_| assert!(p.unknown(0, 9, 1) < 3));
        p.at_least_zero(row(&[(0, 2), (1, 3), (2, -2)], -1));
        // The first relaxation has no integer solution.
        let mut effort = Effort { left: 3 };
        assert_eq!(p.solve(&mut effort), Outcome::Unknown);
        assert_eq!(effort, Effort { left: 0 });
        let mut effort = Effort { left: 1000 };
        assert_eq!(p.solve(&mut effort).point().unwrap().iter().sum::<i64>(), 1);
        assert!(effort.left > 900 && effort.left < 1000 - 3, "{effort:?}");
    }
}
