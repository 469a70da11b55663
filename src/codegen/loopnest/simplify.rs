//! Simplification of LoopNest: conditions become loop bounds, loops are split where a guard changes (index-set splitting).
//!
//! In: a verified nest. Out: a nest of the same meaning in which
//! - conditions, guards and comparisons of iterators that intervals decide are gone (`conditions.rs`), and with them loops that never run;
//! - a condition on everything in a serial loop is one of its bounds, or stands outside of it; one on a part of an innermost loop, or in
//!   its values, that no iteration changes stands outside of two copies of the loop (`unswitch.rs`);
//! - a serial loop is split (`lo..a, a..b, b..hi`) where a condition over unrolled or vector variables changes between
//!   holding for all of their values, for some and for none, so that in each part every unrolled instance knows its guards
//!   (full and partial tiles are separated, as index-set splitting does), and an innermost loop where a condition on a part of it
//!   or in its values changes that is over its variable alone; over variables that are not loops to be split, the parts are branches;
//! - loops of one iteration are substituted; divisions that have one value or leave no remainder are folded, and the others
//!   stand outside of the loops that they do not depend on; operations on numbers are folded, and divisions by computed
//!   powers of two are shifts (`arithmetic.rs`).
//!
//! Splitting copies the body; the copies together are limited by [`COPIED_STORES`]. What is not split stays as it was.

pub(super) mod arithmetic;
mod bounds;
pub(in crate::codegen) mod conditions;
mod split;
mod unswitch;

use crate::codegen::loopnest::simplify::bounds::OldLoop;
use crate::codegen::loopnest::{Buffer, LoopKind, LoopNest, Stmt, is_kept};
use crate::expr::Bound;
use crate::expr::interval::Facts;
use crate::expr::narrow::Names;
use crate::expr::{Access, Expr, Index};
use crate::expr::{Affine, Var};
use rustc_hash::FxHashMap;

/// Unrolled vector statements that splitting may add to one phase: about 30 kB of machine code.
const COPIED_STORES: i64 = 3000;

/// Removes conditions from a nest without changing its meaning.
pub fn simplify(nest: &LoopNest) -> LoopNest {
    let mut s = Simplifier { buffers: &nest.buffers, names: &nest.vars, vars: vec![], budget: 0 };
    let mut body = vec![];
    let (mut env, mut facts) = (Env::default(), Facts::new(0));
    for stmt in &nest.body {
        s.budget = COPIED_STORES;
        // phases stay apart: a phase that became several statements is put into a loop of one iteration
        let mut phase = s.statements(std::slice::from_ref(stmt), &mut env, &mut facts);
        match phase.len() {
            0 => {}
            1 => body.append(&mut phase),
            _ => {
                let var = s.fresh("once");
                let (lower, upper) = (vec![Bound::constant(0)], vec![Bound::constant(1)]);
                body.push(Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Serial, body: phase });
            }
        }
    }
    LoopNest { name: nest.name.clone(), buffers: nest.buffers.clone(), vars: s.vars, body }
}

/// The substitution of each variable of the old nest in the new one.
type Env = FxHashMap<Var, Affine>;

struct Simplifier<'a> {
    buffers: &'a [Buffer],
    names: &'a [String],
    /// Names of the new nest's variables: each copy of a loop binds its own.
    vars: Vec<String>,
    budget: i64,
}

fn resolve(env: &Env, a: &Affine) -> Affine {
    a.substitute(|v| env.get(&v).cloned().unwrap_or_default())
}

impl Simplifier<'_> {
    fn fresh(&mut self, name: &str) -> Var {
        self.vars.push(name.to_string());
        Var(self.vars.len() as u32 - 1)
    }

    fn fresh_like(&mut self, old: Var) -> Var {
        let name = self.names[old.0 as usize].clone();
        self.fresh(&name)
    }

    fn statements(&mut self, body: &[Stmt], env: &mut Env, facts: &mut Facts) -> Vec<Stmt> {
        let mut out = vec![];
        for (i, stmt) in body.iter().enumerate() {
            match stmt {
                Stmt::Let { var, value, divisor } => {
                    let (value, divisor) = facts.quotient(&resolve(env, value), *divisor);
                    let (lo, hi) = facts.bounds(&value);
                    let (lo, hi) = (lo.div_euclid(divisor), hi.div_euclid(divisor));
                    let earlier = out.iter().find_map(|s| match s {
                        Stmt::Let { var, value: v, divisor: d } if (v, *d) == (&value, divisor) => Some(*var),
                        _ => None,
                    });
                    if divisor == 1 || lo == hi {
                        env.insert(*var, if divisor == 1 { value } else { Affine::constant(lo) });
                    } else if let Some(earlier) = earlier {
                        env.insert(*var, Affine::var(earlier));
                    } else {
                        let new = self.fresh_like(*var);
                        facts.bind(new, &value, divisor);
                        env.insert(*var, Affine::var(new));
                        out.push(Stmt::Let { var: new, value, divisor });
                    }
                    if let Some(versions) = self.versions(&body[i + 1..], env, facts) {
                        out.extend(versions);
                        return out;
                    }
                }
                Stmt::Read { var, value, range, checked, expected, recorded } => {
                    let (value, divisor) = (self.expr(value, env, facts), expected.divisor);
                    let expected = Bound { affine: resolve(env, &expected.affine), divisor };
                    let new = self.fresh_like(*var);
                    facts.set_range(new, *range);
                    env.insert(*var, Affine::var(new));
                    let (range, checked, recorded) = (*range, *checked, *recorded);
                    out.push(Stmt::Read { var: new, value, range, checked, expected, recorded });
                }
                Stmt::If { conditions, body } => out.extend(self.conditional(conditions, body, env, facts)),
                Stmt::Store { buffer, index, value, reduce } => {
                    let index: Vec<Index> = index.iter().map(|i| self.index(i, env, facts)).collect();
                    let (buffer, reduce, chosen) = (*buffer, *reduce, self.expr(value, env, facts));
                    let is_decided = matches!(value, Expr::Select(..)) && !matches!(chosen, Expr::Select(..));
                    if !is_decided || !is_kept(self.buffers, (buffer, &index), reduce, &chosen) {
                        out.push(Stmt::Store { buffer, index, value: chosen, reduce });
                    }
                }
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    let lower = lower.iter().map(|b| Bound { affine: resolve(env, &b.affine), divisor: b.divisor });
                    let upper = upper.iter().map(|b| Bound { affine: resolve(env, &b.affine), divisor: b.divisor });
                    let l = OldLoop {
                        var: *var,
                        lower: bounds::tightest(lower.collect(), facts, true),
                        upper: bounds::tightest(upper.collect(), facts, false),
                        step: *step,
                        kind: *kind,
                        body,
                    };
                    let parts = self.unswitched(&l, env, facts);
                    // Divisions that were taken out of the loop.
                    for part in &parts {
                        if let Stmt::Let { var, value, divisor } = part {
                            facts.bind(*var, value, *divisor);
                        }
                    }
                    out.extend(parts);
                }
            }
        }
        out
    }

    /// A body under the conditions that are not decided: itself where none is left, nothing where one never holds.
    fn conditional(&mut self, conditions: &[Affine], body: &[Stmt], env: &Env, facts: &Facts) -> Vec<Stmt> {
        let mut open = vec![];
        let mut inside = facts.clone();
        let mut never = false;
        for c in conditions {
            let c = resolve(env, c);
            match inside.decide(&c) {
                Some(true) => {}
                Some(false) => never = true,
                None if inside.contradicts(&c) => never = true,
                None => {
                    inside.assume(c.clone());
                    open.push(c);
                }
            }
        }
        if never {
            return vec![];
        }
        let body = self.statements(body, &mut env.clone(), &mut inside);
        match open.is_empty() || body.is_empty() {
            true => body,
            false => vec![Stmt::If { conditions: open, body }],
        }
    }

    /// The loop, in as many parts as its conditions ask for.
    fn loop_parts(&mut self, l: &OldLoop, env: &mut Env, facts: &Facts) -> Vec<Stmt> {
        let Some((first, end)) = l.constant_range() else {
            return self.loop_once(l, env, facts);
        };
        let regions = match l.kind {
            LoopKind::Serial => self.loop_regions(l, first, end, env, facts),
            _ => vec![(first, end)],
        };
        let part = |&(first, end): &(i64, i64)| OldLoop {
            lower: vec![Bound::constant(first)],
            upper: vec![Bound::constant(end)],
            ..l.clone()
        };
        regions.iter().flat_map(|r| self.loop_once(&part(r), env, facts)).collect()
    }

    /// One loop for the whole range of `l`, its conditions moved to where they cost least.
    fn loop_once(&mut self, l: &OldLoop, env: &mut Env, facts: &Facts) -> Vec<Stmt> {
        if let Some((first, end)) = l.constant_range() {
            if first >= end {
                return vec![];
            }
            let named = matches!(l.kind, LoopKind::Instruction(_));
            if first + l.step >= end && !l.kind.is_parallel() && !named {
                env.insert(l.var, Affine::constant(first));
                return self.statements(l.body, &mut env.clone(), &mut facts.clone());
            }
        }
        let var = self.fresh_like(l.var);
        let mut inside = facts.clone();
        inside.enter_loop(var, &l.lower, &l.upper, l.step);
        if inside.range(var).0 > inside.range(var).1 {
            return vec![];
        }
        let mut env = env.clone();
        env.insert(l.var, Affine::var(var));
        let versions = match l.kind {
            LoopKind::Parallel | LoopKind::Waves { .. } => self.versions(l.body, &mut env, &mut inside),
            _ => None,
        };
        let mut body = versions.unwrap_or_else(|| self.statements(l.body, &mut env, &mut inside));
        let mut out = if l.kind.is_parallel() { vec![] } else { take_divisions(var, &mut body) };
        out.extend(bounds::sink_conditions(var, l, body));
        out
    }

    fn index(&mut self, i: &Index, env: &Env, facts: &Facts) -> Index {
        match i {
            Index::Affine(a) => Index::Affine(resolve(env, a)),
            Index::Value(e) => Index::Value(Box::new(self.expr(e, env, facts))),
        }
    }

    fn expr(&mut self, e: &Expr, env: &Env, facts: &Facts) -> Expr {
        match e {
            Expr::Index(a) => Expr::Index(resolve(env, a)),
            Expr::Load(access) => self.access(access, env, facts),
            e => {
                let decided = conditions::decided(e.map_children(&mut |e| self.expr(e, env, facts)), facts);
                let names = Names {
                    dtype: &|b| self.buffers[b.0 as usize].dtype,
                    bounds: &|a| facts.bounds(a),
                    is_table: &|_| false,
                };
                arithmetic::simplified(decided, names)
            }
        }
    }

    fn access(&mut self, access: &Access, env: &Env, facts: &Facts) -> Expr {
        let mut guard = vec![];
        for g in &access.guard {
            let g = resolve(env, g);
            match facts.decide(&g) {
                Some(true) => {}
                Some(false) if access.otherwise.is_some() => {
                    return Expr::Const(access.otherwise.expect("just seen"));
                }
                _ => guard.push(g),
            }
        }
        let otherwise = if guard.is_empty() { None } else { access.otherwise };
        let index = access.index.iter().map(|i| self.index(i, env, facts)).collect();
        Expr::Load(Access { buffer: access.buffer, index, guard, otherwise })
    }
}

/// Takes the divisions that do not depend on the loop variable (nor on one that does) out of a body.
pub fn take_divisions(v: Var, body: &mut Vec<Stmt>) -> Vec<Stmt> {
    let mut inside = vec![v];
    let mut out = vec![];
    body.retain(|s| match s {
        Stmt::Let { var, value, .. } if inside.iter().any(|v| value.uses(*v)) => {
            inside.push(*var);
            true
        }
        Stmt::Let { .. } => {
            out.push(s.clone());
            false
        }
        Stmt::Read { var, .. } => {
            inside.push(*var);
            true
        }
        _ => true,
    });
    out
}

#[cfg(test)]
mod tests;
