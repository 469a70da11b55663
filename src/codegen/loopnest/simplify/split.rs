//! Split points of a loop: the values at which conditions over unrolled variables change, and in a loop without others in it those at
//! which guards and comparisons in values change that are over the loop alone.

use super::conditions::{everywhere, is_straight, of_values};
use super::{Env, Simplifier, resolve};
use crate::codegen::loopnest::simplify::bounds::OldLoop;
use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Bound;
use crate::expr::interval::{Facts, ceil_div, gcd};
use crate::expr::{Access, Expr};
use crate::expr::{Affine, Var};
use std::collections::BTreeSet;

/// The most parts of one loop.
const PARTS: usize = 9;

/// An undecided condition below some place, over the variables known there and over those bound further in.
struct OpenCondition {
    /// The part over variables known there.
    known: Affine,
    /// Least and greatest value of the rest, constant included.
    rest: (i64, i64),
}

impl Simplifier<'_> {
    /// The parts of a serial loop with constant range.
    pub fn loop_regions(&mut self, l: &OldLoop, first: i64, end: i64, env: &Env, facts: &Facts) -> Vec<(i64, i64)> {
        let whole = vec![(first, end)];
        if end - first <= l.step {
            return whole;
        }
        // a variable that stands for the loop while its body is looked at
        let var = Var(self.vars.len() as u32);
        let (mut env, mut inside) = (env.clone(), facts.clone());
        env.insert(l.var, Affine::var(var));
        inside.enter_loop(var, &l.lower, &l.upper, l.step);
        let axis = is_straight(l.body).then(|| (var, everywhere(l.body)));
        let mut search = Search { next: var.0 + 1, expanded: vec![], axis, known: var.0 + 1, open: vec![] };
        search.statements(l.body, &mut env, &mut inside);
        let conditions: Vec<(i64, (i64, i64))> = search
            .open
            .iter()
            .filter_map(|o| {
                let k = o.known.coefficient(var);
                let others = inside.bounds(&o.known.clone().plus(var, -k));
                (k != 0).then_some((k, (o.rest.0 + others.0, o.rest.1 + others.1)))
            })
            .collect();
        let size = expanded_size(l.body);
        self.regions(&conditions, first, end, l.step, size).unwrap_or(whole)
    }

    /// Makes a version of the rest of a body for each part of an axis that is not a loop: a parallel variable or a
    /// quotient. `None` when no condition asks for it.
    pub fn versions(&mut self, stmts: &[Stmt], env: &mut Env, facts: &mut Facts) -> Option<Vec<Stmt>> {
        let known = self.vars.len() as u32;
        let mut search = Search { next: known, expanded: vec![], axis: None, known, open: vec![] };
        search.statements(stmts, &mut env.clone(), &mut facts.clone());
        let axis = normal(&search.open.first()?.known).0;
        let conditions: Vec<(i64, (i64, i64))> = search
            .open
            .iter()
            .filter_map(|o| {
                let (a, k) = normal(&o.known);
                (a == axis && k != 0).then_some((k, o.rest))
            })
            .collect();
        let (lo, hi) = facts.bounds(&axis);
        let regions = self.regions(&conditions, lo, hi + 1, 1, expanded_size(stmts))?;
        if regions.len() < 2 {
            return None;
        }
        let mut out = vec![];
        for &(a, b) in &regions {
            let mut conditions = vec![];
            if a > lo {
                conditions.push(axis.clone().offset(-a));
            }
            if b <= hi {
                conditions.push(axis.scale(-1).offset(b - 1));
            }
            let mut inside = facts.clone();
            conditions.iter().for_each(|c| inside.assume(c.clone()));
            if inside.is_empty() {
                continue;
            }
            let body = self.statements(stmts, &mut env.clone(), &mut inside);
            if !body.is_empty() {
                out.push(Stmt::If { conditions, body });
            }
        }
        Some(out)
    }

    /// Parts of `first..end` (values `first + i·step`) in which each condition `k·v + rest ≥ 0` holds for all values of the
    /// rest, for none, or for some and `v` has one value. `None` when there is nothing to split, or too much.
    fn regions(
        &mut self,
        conditions: &[(i64, (i64, i64))],
        first: i64,
        end: i64,
        step: i64,
        size: i64,
    ) -> Option<Vec<(i64, i64)>> {
        // values in which some condition is mixed become parts of their own, as long as they are few
        for singles in [true, false] {
            let mut points = BTreeSet::new();
            for &(k, (lo, hi)) in conditions {
                // the condition holds for all values of the rest from `everywhere` on (k > 0) or before it, for some from `some` on
                let (everywhere, some) = match k {
                    1.. => (ceil_div(-lo, k), ceil_div(-hi, k)),
                    _ => (lo.div_euclid(-k) + 1, hi.div_euclid(-k) + 1),
                };
                points.extend([everywhere, some]);
                let (from, to) = (everywhere.min(some).max(first), everywhere.max(some).min(end));
                if singles && to - from <= PARTS as i64 * step {
                    points.extend(from..to);
                }
            }
            let on_grid = |p: i64| first + ceil_div(p - first, step) * step;
            let inner: BTreeSet<i64> = points.into_iter().map(on_grid).filter(|&p| p > first && p < end).collect();
            let copies = inner.len() as i64;
            if copies == 0 {
                return None;
            }
            if inner.len() < PARTS && copies * size <= self.budget {
                self.budget -= copies * size;
                let starts: Vec<i64> = std::iter::once(first).chain(inner).collect();
                let ends = starts[1..].iter().copied().chain([end]);
                return Some(starts.iter().copied().zip(ends).collect());
            }
        }
        None
    }
}

/// `a` as `k·axis`, the axis with coprime coefficients of which the first is positive; constants are dropped.
fn normal(a: &Affine) -> (Affine, i64) {
    let Some(first) = a.terms.first() else { return (Affine::constant(0), 0) };
    let k = a.terms.iter().fold(0, |g, t| gcd(g, t.1.abs())) * first.1.signum();
    (Affine { terms: a.terms.iter().map(|t| (t.0, t.1 / k)).collect(), constant: 0 }, k)
}

/// Vector statements that the body is expanded to, with vectors of 16 elements.
pub(super) fn expanded_size(body: &[Stmt]) -> i64 {
    body.iter()
        .map(|s| match s {
            Stmt::Store { .. } => 1,
            Stmt::Let { .. } | Stmt::Read { .. } => 0,
            Stmt::If { body, .. } => expanded_size(body),
            Stmt::Loop { lower, upper, kind, body, .. } => {
                let extent = match (&lower[..], &upper[..]) {
                    ([l], [u]) => u.affine.constant - l.affine.constant,
                    _ => 1,
                };
                match kind {
                    LoopKind::Unroll => extent * expanded_size(body),
                    LoopKind::Vector => ceil_div(extent, 16) * expanded_size(body),
                    LoopKind::Serial | LoopKind::Parallel | LoopKind::Waves { .. } | LoopKind::Instruction(_) => {
                        expanded_size(body)
                    }
                }
            }
        })
        .sum()
}

/// Collects the conditions of a body that its place does not decide and in which an expanded variable stands, or in values the axis alone.
struct Search {
    /// The next variable to bind for a loop of the body.
    next: u32,
    expanded: Vec<Var>,
    /// The variable of a loop without others in it, and the conditions on everything in it.
    axis: Option<(Var, Vec<Affine>)>,
    /// Variables before this one are known at the place, the loop in question included; the others are bound further in.
    known: u32,
    open: Vec<OpenCondition>,
}

impl Search {
    fn condition(&mut self, c: Affine, facts: &Facts) {
        if self.expanded.iter().any(|v| c.uses(*v)) {
            self.add(c, facts);
        }
    }

    /// A condition that may be over the axis alone. One on everything in a loop becomes a bound.
    fn on_axis(&mut self, c: &Affine, env: &Env, facts: &Facts) {
        let Some((axis, everywhere)) = &self.axis else { return };
        let resolved = resolve(env, c);
        if matches!(resolved.terms[..], [(v, _)] if v == *axis) && !everywhere.contains(c) {
            self.add(resolved, facts);
        }
    }

    fn add(&mut self, c: Affine, facts: &Facts) {
        if facts.decide(&c).is_some() {
            return;
        }
        let known = |t: &&(Var, i64)| t.0.0 < self.known;
        let known = Affine { terms: c.terms.iter().filter(known).copied().collect(), constant: 0 };
        let rest = c.add_scaled(&known, -1);
        if !known.is_constant() {
            self.open.push(OpenCondition { known, rest: facts.bounds(&rest) });
        }
    }

    fn statements(&mut self, body: &[Stmt], env: &mut Env, facts: &mut Facts) {
        for stmt in body {
            match stmt {
                Stmt::Let { var, value, divisor } => {
                    let (value, divisor) = facts.quotient(&resolve(env, value), *divisor);
                    if divisor == 1 {
                        env.insert(*var, value);
                        continue;
                    }
                    let new = self.bind();
                    facts.bind(new, &value, divisor);
                    env.insert(*var, Affine::var(new));
                }
                Stmt::Read { var, value, range, .. } => {
                    self.expr(value, env, facts);
                    let new = self.bind();
                    facts.set_range(new, *range);
                    env.insert(*var, Affine::var(new));
                }
                Stmt::If { conditions, body } => {
                    let mut inside = facts.clone();
                    for c in conditions {
                        self.condition(resolve(env, c), &inside);
                        self.on_axis(c, env, &inside);
                    }
                    conditions.iter().for_each(|c| inside.assume(resolve(env, c)));
                    if !inside.is_empty() {
                        self.statements(body, &mut env.clone(), &mut inside);
                    }
                }
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    let resolved = |b: &Bound| Bound { affine: resolve(env, &b.affine), divisor: b.divisor };
                    let (lower, upper): (Vec<Bound>, Vec<Bound>) =
                        (lower.iter().map(resolved).collect(), upper.iter().map(resolved).collect());
                    let new = self.bind();
                    let mut inside = facts.clone();
                    inside.enter_loop(new, &lower, &upper, *step);
                    if matches!(kind, LoopKind::Unroll | LoopKind::Vector | LoopKind::Instruction(_)) {
                        self.expanded.push(new);
                    }
                    let mut env = env.clone();
                    env.insert(*var, Affine::var(new));
                    self.statements(body, &mut env, &mut inside);
                }
                Stmt::Store { .. } => stmt.expressions().for_each(|e| self.expr(e, env, facts)),
            }
        }
    }

    fn bind(&mut self) -> Var {
        self.next += 1;
        Var(self.next - 1)
    }

    fn expr(&mut self, e: &Expr, env: &Env, facts: &Facts) {
        let mut accesses: Vec<&Access> = vec![];
        e.visit_accesses(&mut |a| accesses.push(a));
        for access in accesses {
            access.guard.iter().for_each(|g| self.condition(resolve(env, g), facts));
        }
        if self.axis.is_some() {
            of_values(e).iter().for_each(|c| self.on_axis(c, env, facts));
        }
    }
}
