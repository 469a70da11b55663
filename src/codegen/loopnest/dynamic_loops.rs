//! Dynamic counted loops: loops whose bodies change nothing unless their index lies between bounds from data.
//!
//! In: a verified nest in which a body is a sum of `select(k >= p[i] && k < p[i + 1], e, 0)`, or has other targets that keep their
//! values where the condition fails; what is copied to registers and back is kept ([`copies`]). Out: a nest of the same meaning in which the loop over k runs from `p[i]` to `p[i + 1]`, both
//! read before it, where it does not write them, and brought into its static range, so that no data lead out of an array; where a check before the run says that they lie there,
//! they are read as they are. Where k is the number of a tile
//! the loop runs over those tiles that have some of the range. A tile in lanes begins at the first element of the range, and its lanes
//! stand under the condition that they are before the end; a tile that is unrolled is followed by single elements.
//!
//! Source: J. Zhao, M. Kruse, A. Cohen, *A Polyhedral Compilation Framework for Loops with Dynamic Data-Dependent Bounds*, CC 2018.

mod blocks;
mod checked;
mod copies;
mod elements;
mod expectation;
mod tiles;

use crate::codegen::loopnest::dynamic_loops::blocks::{are_apart, unrolled_over, with_width};
pub use crate::codegen::loopnest::dynamic_loops::checked::CheckedElements;
use crate::codegen::loopnest::dynamic_loops::checked::is_checked;
use crate::codegen::loopnest::dynamic_loops::copies::copies;
use crate::codegen::loopnest::dynamic_loops::elements::of_elements;
pub use crate::codegen::loopnest::dynamic_loops::elements::{substituted, vector_of};
use crate::codegen::loopnest::dynamic_loops::expectation::expected;
pub use crate::codegen::loopnest::dynamic_loops::tiles::{Tile, by_widths};
use crate::codegen::loopnest::invariant::{may_read_before, written_in};
use crate::codegen::loopnest::{Accesses, LoopKind, LoopNest, Stmt, accesses};
use crate::expr::dynamic_bounds::{DynamicBound, Target};
use crate::expr::interval::Facts;
use crate::expr::{Affine, BinaryOp, Bound, BufferId, Expr, Index, Var};
use crate::runtime::DType;
use rustc_hash::FxHashSet;

/// Narrows the loops of a nest. `checks` are of elements that are only read.
pub fn narrow(nest: &mut LoopNest, checks: &[CheckedElements]) {
    if !has_bounds(nest) {
        return;
    }
    let phases = std::mem::take(&mut nest.body);
    let uses = &accesses(&phases);
    let facts = Facts::new(nest.vars.len());
    // a phase stays one statement
    nest.body = phases.into_iter().map(|phase| Narrower { nest, uses, checks }.inside(phase, &facts)).collect();
}

/// Returns true if a store has bounds from data.
fn has_bounds(nest: &LoopNest) -> bool {
    let mut found = false;
    nest.body.iter().for_each(|statement| {
        statement.visit(&mut |s| {
            if let Stmt::Store { buffer, index, value, reduce } = s {
                let target = Target { buffer: *buffer, index, reduce: *reduce, dtype: nest.buffer(*buffer).dtype };
                found |= !target.bounds(value).is_empty();
            }
        });
    });
    found
}

struct Narrower<'a> {
    nest: &'a mut LoopNest,
    /// Accesses of the whole nest, before any loop is narrowed.
    uses: &'a Accesses,
    checks: &'a [CheckedElements],
}

/// A bound that holds for all stores of a body: `scale · index + outer + inner ≥ limit`, or `<`.
#[derive(Clone)]
struct Common {
    lower: bool,
    limit: Expr,
    scale: i64,
    /// Over variables from outside of the loop.
    outer: Affine,
    /// The least and the greatest value of the rest: of variables inside, and of the constant.
    inner: (i64, i64),
    /// The values of the form.
    range: (i64, i64),
}

impl Common {
    fn is_exact(&self) -> bool {
        self.inner.0 == self.inner.1
    }

    fn covers(&self, other: &Common) -> bool {
        (self.lower, self.scale) == (other.lower, other.scale) && self.limit == other.limit && self.outer == other.outer
    }

    fn join(&mut self, other: &Common) {
        self.inner = (self.inner.0.min(other.inner.0), self.inner.1.max(other.inner.1));
        self.range = (self.range.0.min(other.range.0), self.range.1.max(other.range.1));
    }
}

/// A serial loop with step 1.
struct Serial<'a> {
    var: Var,
    lower: &'a [Bound],
    upper: &'a [Bound],
    body: &'a [Stmt],
    /// Stores that change nothing where the others do not.
    copies: Vec<&'a Stmt>,
    /// The buffers that the body stores to.
    written: FxHashSet<BufferId>,
}

impl Narrower<'_> {
    fn statements(&mut self, body: Vec<Stmt>, facts: &mut Facts) -> Vec<Stmt> {
        let (mut out, mut rest) = (vec![], body.into_iter().peekable());
        while let Some(stmt) = rest.next() {
            if let Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Serial, body } = &stmt {
                let copies = copies(self.nest, body, self.uses);
                let l = Serial { var: *var, lower, upper, body, copies, written: written_in(body) };
                if let Some(common) = self.common(&l, facts) {
                    if let Some((parts, takes_next)) = self.in_lanes(&l, &common, rest.peek(), facts) {
                        out.extend(parts);
                        takes_next.then(|| rest.next());
                        continue;
                    }
                    if let Some(parts) = self.in_blocks(&l, &common, facts) {
                        out.extend(parts);
                        continue;
                    }
                    let (reads, narrowed) = self.narrowed(&l, &common, facts);
                    out.extend(reads);
                    out.push(self.inside(narrowed, facts));
                    continue;
                }
            }
            stmt.bind(facts);
            out.push(self.inside(stmt, facts));
        }
        out
    }

    /// A statement with narrowed loops inside of it.
    fn inside(&mut self, stmt: Stmt, facts: &Facts) -> Stmt {
        let mut inside = facts.clone();
        stmt.enter(&mut inside);
        stmt.map_body(|body| self.statements(body, &mut inside))
    }

    /// The bounds of the index that all stores of a loop have; `None` where there are none.
    fn common(&self, l: &Serial, facts: &Facts) -> Option<Vec<Common>> {
        let mut inside = facts.clone();
        inside.enter_loop(l.var, l.lower, l.upper, 1);
        let mut all = None;
        self.collect(l, l.body, &mut inside, &mut vec![], facts, &mut all);
        all.filter(|all| !all.is_empty())
    }

    /// Keeps those of `all` that the stores of a body have too. `own` are the variables that the loop's body binds.
    fn collect(
        &self,
        l: &Serial,
        body: &[Stmt],
        facts: &mut Facts,
        own: &mut Vec<Var>,
        outside: &Facts,
        all: &mut Option<Vec<Common>>,
    ) {
        for stmt in body {
            match stmt {
                Stmt::Let { var, value, divisor } => {
                    facts.bind(*var, value, *divisor);
                    own.push(*var);
                }
                Stmt::Read { var, range, .. } => {
                    facts.set_range(*var, *range);
                    own.push(*var);
                }
                Stmt::If { conditions, body } => {
                    let mut inside = facts.clone();
                    conditions.iter().for_each(|c| inside.assume(c.clone()));
                    self.collect(l, body, &mut inside, own, outside, all);
                }
                Stmt::Loop { var, lower, upper, step, body, .. } => {
                    let mut inside = facts.clone();
                    inside.enter_loop(*var, lower, upper, *step);
                    own.push(*var);
                    self.collect(l, body, &mut inside, own, outside, all);
                }
                Stmt::Store { .. } if l.copies.iter().any(|copy| std::ptr::eq(*copy, stmt)) => {}
                Stmt::Store { buffer, index, value, reduce } => {
                    let bounds = self.target(*buffer, index, *reduce).bounds(value);
                    let bounds = bounds.into_iter().filter_map(|b| self.bound(l, &b, facts, own, outside));
                    let bounds: Vec<Common> = bounds.collect();
                    *all = Some(match all.take() {
                        None => bounds,
                        Some(mut all) => {
                            all.retain_mut(|c| match bounds.iter().find(|b| c.covers(b)) {
                                Some(other) => {
                                    c.join(other);
                                    true
                                }
                                None => false,
                            });
                            all
                        }
                    });
                }
            }
        }
    }

    fn target<'t>(&self, buffer: BufferId, index: &'t [Index], reduce: Option<BinaryOp>) -> Target<'t> {
        Target { buffer, index, reduce, dtype: self.nest.buffer(buffer).dtype }
    }

    /// A bound of the loop's index; `None` where its limit may not be read before the loop.
    fn bound(&self, l: &Serial, bound: &DynamicBound, facts: &Facts, own: &[Var], outside: &Facts) -> Option<Common> {
        let scale = bound.form.coefficient(l.var);
        let of_loop = |v: &Var| *v == l.var || own.contains(v);
        let dtype = bound.limit.dtype(&|b| self.nest.buffer(b).dtype);
        if scale == 0
            || dtype != DType::I64
            || bound.variables().iter().any(of_loop)
            || !may_read_before(self.nest, bound.limit, outside, Some(&l.written))
        {
            return None;
        }
        let rest = bound.form.clone().plus(l.var, -scale);
        let (inner, outer): (Vec<_>, Vec<_>) = rest.terms.iter().partition(|t| own.contains(&t.0));
        let inner = Affine { terms: inner, constant: rest.constant };
        let outer = Affine { terms: outer, constant: 0 };
        let (range, limit) = (facts.bounds(&bound.form), bound.limit.clone());
        let inner = facts.bounds(&inner);
        let far = |(low, high): (i64, i64)| low > high || low < -(1 << 50) || high > 1 << 50;
        (!far(range) && !far(inner)).then_some(Common { lower: bound.lower, limit, scale, outer, inner, range })
    }

    /// Reads a limit into a new variable.
    fn read(&mut self, name: &str, c: &Common, facts: &mut Facts) -> (Stmt, Var) {
        let var = self.nest.new_var(name);
        let range = (c.range.0, c.range.1 + 1);
        let expected = expected(self.nest, (&c.limit, c.lower), range);
        facts.set_range(var, range);
        let checked = is_checked(self.nest, self.checks, &c.limit, range);
        (Stmt::Read { var, value: c.limit.clone(), range, checked, expected, recorded: None }, var)
    }

    /// The loop within its bounds from data, and what is read before it.
    fn narrowed(&mut self, l: &Serial, common: &[Common], facts: &mut Facts) -> (Vec<Stmt>, Stmt) {
        let (mut reads, mut lower, mut upper) = (vec![], l.lower.to_vec(), l.upper.to_vec());
        let name = self.nest.vars[l.var.0 as usize].clone();
        for c in common {
            let (rises, scale) = (c.scale > 0, c.scale.abs());
            let end = if c.lower == rises { "first" } else { "end" };
            let (read, limit) = self.read(&format!("{name}_{end}"), c, facts);
            reads.push(read);
            let form = Affine::var(limit).add_scaled(&c.outer, -1);
            // of the rest the value that leaves most iterations; |scale| · index ≥ or ≤ what the form says
            let (bounds, affine) = match (c.lower, rises) {
                (true, true) => (&mut lower, form.offset(-c.inner.1)),
                (false, true) => (&mut upper, form.offset(scale - 1 - c.inner.0)),
                (true, false) => (&mut upper, form.scale(-1).offset(scale + c.inner.1)),
                (false, false) => (&mut lower, form.scale(-1).offset(c.inner.0 + 1)),
            };
            bounds.push(Bound { affine, divisor: scale });
        }
        let body = self.without(l, common);
        (reads, Stmt::Loop { var: l.var, lower, upper, step: 1, kind: LoopKind::Serial, body })
    }

    /// The body without the conditions that the bounds say.
    fn without(&self, l: &Serial, common: &[Common]) -> Vec<Stmt> {
        let said = |e: &Expr| {
            DynamicBound::of(e).is_some_and(|b| {
                common
                    .iter()
                    .any(|c| c.is_exact() && c.lower == b.lower && c.limit == *b.limit && is_form(c, l.var, &b.form))
            })
        };
        self.where_holds(l.body, &said)
    }

    fn where_holds(&self, body: &[Stmt], holds: &dyn Fn(&Expr) -> bool) -> Vec<Stmt> {
        let each = body.iter().map(|stmt| match stmt {
            Stmt::Store { buffer, index, value, reduce } => {
                let value = self.target(*buffer, index, *reduce).without(value, holds);
                Stmt::Store { buffer: *buffer, index: index.clone(), value, reduce: *reduce }
            }
            other => other.with_body(self.where_holds(other.body(), holds)),
        });
        each.collect()
    }

    /// The loop over tiles of lanes, `for t { vector k { … } }` over `lanes · t + k`, as one over the elements of the range, and
    /// whether `next`, the rest of the elements, is part of it.
    fn in_lanes(
        &mut self,
        l: &Serial,
        common: &[Common],
        next: Option<&Stmt>,
        facts: &mut Facts,
    ) -> Option<(Vec<Stmt>, bool)> {
        let [Stmt::Loop { var: lane, lower: from, upper: to, step: 1, kind: LoopKind::Vector, body }] = l.body else {
            return None;
        };
        let ([from], [to], [first], [end]) = (&from[..], &to[..], l.lower, l.upper) else { return None };
        let constants = [from, to, first, end].iter().all(|b| b.affine.is_constant() && b.divisor == 1);
        let (lanes, tiles) = (to.affine.constant, end.affine.constant);
        let is_tile = |c: &&Common| c.scale == lanes && c.inner.1 - c.inner.0 == lanes - 1;
        let low = common.iter().filter(is_tile).find(|c| c.lower)?;
        let high = common.iter().filter(is_tile).find(|c| !c.lower)?;
        let plain = body.iter().all(|s| matches!(s, Stmt::Store { .. }));
        if !constants || first.affine.constant != 0 || !plain || low.outer != high.outer || low.inner != high.inner {
            return None;
        }
        // form = lanes · index + outer + inner.0 + lane
        let base = low.outer.clone().offset(low.inner.0);
        let is_range = |e: &Expr| {
            let form = base.clone().plus(l.var, lanes).plus(*lane, 1);
            DynamicBound::of(e).is_some_and(|b| {
                b.form == form && [low, high].iter().any(|c| c.lower == b.lower && c.limit == *b.limit)
            })
        };
        let whole = self.where_holds(body, &is_range);
        let rest = next.and_then(|next| self.rest_of(next, (l.var, tiles), *lane, body));
        let (mut low, mut high) = (low.clone(), high.clone());
        for c in [&mut low, &mut high] {
            c.range.1 += rest.unwrap_or(0);
        }
        // the index of the first lane's element, less `base`, takes the place of the index of the tile
        let moved = of_elements(&whole, l.var, lanes, &base)?;
        let name = self.nest.vars[l.var.0 as usize].clone();
        let (read_first, first) = self.read(&format!("{name}_first"), &low, facts);
        let (read_end, end) = self.read(&format!("{name}_end"), &high, facts);
        let mut out = vec![read_first, read_end];
        let (var, stop) = (l.var, Affine::var(end));
        let inside = stop.clone().offset(-1).plus(var, -1).plus(*lane, -1);
        let body = vec![vector_of(*lane, lanes, vec![Stmt::If { conditions: vec![inside], body: moved }])];
        let start = Bound { affine: Affine::var(first), divisor: 1 };
        let upper = vec![Bound { affine: stop, divisor: 1 }];
        out.push(Stmt::Loop { var, lower: vec![start], upper, step: lanes, kind: LoopKind::Serial, body });
        Some((out, rest.is_some()))
    }

    /// The loop over blocks of elements, each of which is unrolled in all loops of the body, as one over the elements of the range.
    fn in_blocks(&mut self, l: &Serial, common: &[Common], facts: &mut Facts) -> Option<Vec<Stmt>> {
        let ([first], [end]) = (l.lower, l.upper) else { return None };
        let constants = [first, end].iter().all(|b| b.affine.is_constant() && b.divisor == 1);
        let is_block = |c: &&Common| c.scale > 1 && c.inner.1 - c.inner.0 == c.scale - 1;
        let low = common.iter().filter(is_block).find(|c| c.lower)?.clone();
        let high = common.iter().filter(is_block).find(|c| !c.lower)?.clone();
        let same = (low.scale, &low.outer, low.inner) == (high.scale, &high.outer, high.inner);
        if !constants || first.affine.constant != 0 || !same || !are_apart(l.body, l.var, low.scale, self.uses) {
            return None;
        }
        let (width, base) = (low.scale, low.outer.clone().offset(low.inner.0));
        let elements = unrolled_over(l.body, width);
        let is_range = |e: &Expr| {
            DynamicBound::of(e).is_some_and(|b| {
                let form = |k: &Var| base.clone().plus(l.var, width).plus(*k, 1) == b.form;
                elements.iter().any(form) && [&low, &high].iter().any(|c| c.lower == b.lower && c.limit == *b.limit)
            })
        };
        let moved = of_elements(&self.where_holds(l.body, &is_range), l.var, width, &base)?;
        let name = self.nest.vars[l.var.0 as usize].clone();
        let (read_first, first) = self.read(&format!("{name}_first"), &low, facts);
        let (read_end, end) = self.read(&format!("{name}_end"), &high, facts);
        let mut out = vec![read_first, read_end];
        let tile = Tile { var: l.var, width, first, stop: Affine::var(end) };
        by_widths(self.nest, tile, facts, &mut out, &mut |nest, tile, n| match n {
            n if n == width => moved.clone(),
            n => moved.iter().map(|s| with_width(nest, s, (l.var, tile), (width, n))).collect(),
        });
        Some(out)
    }

    /// The elements of `next` where it does what one more tile does with its first lanes.
    fn rest_of(&self, next: &Stmt, (tile, tiles): (Var, i64), lane: Var, body: &[Stmt]) -> Option<i64> {
        let (of_lane, elements, rest) = match next {
            Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Vector | LoopKind::Serial, body } => {
                let ([lower], [upper]) = (&lower[..], &upper[..]) else { return None };
                let constant = lower.affine == Affine::constant(0) && upper.affine.is_constant() && upper.divisor == 1;
                constant.then_some((Affine::var(*var), upper.affine.constant, &body[..]))?
            }
            stmt => (Affine::constant(0), 1, std::slice::from_ref(stmt)),
        };
        let mut at = |v: Var| match v {
            v if v == tile => Affine::constant(tiles),
            v if v == lane => of_lane.clone(),
            v => Affine::var(v),
        };
        let expected: Vec<Stmt> = body.iter().map(|s| substituted(s, &mut at)).collect();
        (expected == rest).then_some(elements)
    }
}

/// Returns true if the form is the one that a bound is of.
fn is_form(c: &Common, var: Var, form: &Affine) -> bool {
    c.is_exact() && *form == c.outer.clone().offset(c.inner.0).plus(var, c.scale)
}

#[cfg(test)]
mod tests {
    use super::narrow;
    use crate::codegen::loopnest::interpret::assert_same_results;
    use crate::codegen::loopnest::simplify::simplify;
    use crate::codegen::loopnest::{LoopNest, parse};
    use crate::runtime::Tensor;

    /// `select(index lies between P[i] and P[i + 1], yes, no)`.
    fn chosen(index: &str, yes: &str, no: &str) -> String {
        let from = format!("ge(index({index}), cast i64(P[i]))");
        format!("select(and({from}, lt(index({index}), cast i64(P[i + 1]))), {yes}, {no})")
    }

    /// The loop nest of statements in a loop over rows, narrowed and simplified; both are run with rows in any order, and with bounds
    /// that lead out of `V`.
    fn narrowed(statements: &str) -> LoopNest {
        let text = format!(
            "kernel rows {{ P: i32[5] argument 0; V: f32[23] argument 1; Y: f32[4] argument 2 written; W: f32[23] argument 3 written;
             acc: f32[1] local; s: f32[4] local; parallel i in 0..4 {{ acc[0] = Y[i]; {statements} Y[i] = acc[0]; }} }}"
        );
        let before = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut after = before.clone();
        narrow(&mut after, &[]);
        for rows in [[0, 5, 5, 9, 23], [3, 1, 30, -4, 12], [-9, 100, 2, 2, 40], [0, 16, 17, 23, i32::MIN]] {
            let values: Vec<f32> = (0..23).map(|k| (k * k % 7) as f32).collect();
            let zeros = |n: i64| Tensor::new(&[n], &vec![0f32; n as usize]);
            let all = [Tensor::new(&[5], &rows), Tensor::new(&[23], &values), zeros(4), zeros(23)];
            assert_same_results(&before, &after, &all);
        }
        simplify(&after)
    }

    fn has(nest: &LoopNest, parts: &[&str]) {
        let text = nest.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        parts.iter().for_each(|part| assert!(lines.contains(part), "{part}\n{text}"));
    }

    #[test]
    fn a_sum_runs_from_bound_to_bound() {
        let nest = narrowed(&format!("for k in 0..23 {{ acc[0] add = {}; }}", chosen("k", "V[k]", "f32(0.0)")));
        has(
            &nest,
            &[
                "let k_first = clamp(cast i64(P[i]), 0, 23) about floor(23*i / 4);",
                "let k_end = clamp(cast i64(P[i + 1]), 0, 23) about floor((23*i + 23) / 4);",
                "for k in k_first..k_end {",
                "acc[0] add = V[k];",
            ],
        );
    }

    #[test]
    fn a_loop_that_runs_backwards_does_as_well() {
        let nest = narrowed(&format!("for k in -22..1 {{ acc[0] add = {}; }}", chosen("-k", "V[-k]", "f32(0.0)")));
        has(&nest, &["for k in -k_first + 1..-k_end + 1 {", "acc[0] add = V[-k];"]);
        let two = chosen("-2*k + i", "V[-2*k + i]", "f32(0.0)");
        let nest = narrowed(&format!("for k in -9..1 {{ acc[0] add = {two}; }}"));
        has(
            &nest,
            &[
                "for k in max(-9, ceil((i - k_first + 1) / 2))..min(1, floor((i - k_end + 2) / 2)) {",
                "acc[0] add = V[i - 2*k];",
            ],
        );
    }

    #[test]
    fn lanes_begin_at_the_first_element() {
        let body = |index: &str, target: &str, no: &str| {
            format!(
                "{} = {};",
                target.replace('k', index),
                chosen(index, &format!("V[{index}]"), &no.replace('k', index))
            )
        };
        let tiles = |target: &str, no: &str| {
            let (tile, rest) = (body("8*t + k", target, no), body("r + 16", target, no));
            narrowed(&format!("for t in 0..2 {{ vector k in 0..8 {{ {tile} }} }} vector r in 0..7 {{ {rest} }}"))
        };
        let sum = tiles("acc[0] add", "f32(0.0)");
        has(&sum, &["for t in t_first..t_end step 8 {", "if t_end - t - k - 1 >= 0 {", "acc[0] add = V[t + k];"]);
        assert!(!sum.to_string().contains("vector r"), "the rest is part of the loop\n{sum}");
        let copy = tiles("W[k]", "W[k]");
        has(&copy, &["for t in t_first..t_end step 8 {", "if t_end - t - k - 1 >= 0 {", "W[t + k] = V[t + k];"]);
    }

    #[test]
    fn blocks_begin_at_the_first_element() {
        let block = |back: &str| {
            let sum = chosen("4*t + k", "(V[4*t + k] * V[j])", "f32(-0.0)");
            narrowed(&format!(
                "for t in 0..5 {{ unroll a in 0..4 {{ s[a] = W[4*t + a]; }}
                 for j in 0..3 {{ unroll k in 0..4 {{ s[k] add = {sum}; }} }} unroll b in 0..4 {{ W[4*t + b] = s[{back}]; }} }}"
            ))
        };
        let nest = block("b");
        has(&nest, &["for t in t_first..t_end - 3 step 4 {", "s[k] add = (V[t + k] * V[j]);", "W[t#2] = s[0];"]);
        // where one element reads the register of another the blocks stay
        assert!(!block("-b + 3").to_string().contains("step 4"));
    }

    #[test]
    fn tiles_that_have_nothing_of_the_range_are_left_out() {
        let inner = chosen("8*t + k", "V[8*t + k]", "f32(0.0)");
        let nest = narrowed(&format!("for t in 0..3 {{ for k in 0..min(8, -8*t + 23) {{ acc[0] add = {inner}; }} }}"));
        has(&nest, &["for t in ceil((t_first - 7) / 8)..floor((t_end + 7) / 8) {", "acc[0] add = V[8*t + k];"]);
    }

    #[test]
    fn sums_pass_through_registers() {
        let sum =
            |target: &str| format!("for j in 0..3 {{ {target} add = {}; }}", chosen("k", "V[k + j]", "f32(-0.0)"));
        let sums = |inside: &str| format!("for k in 0..21 {{ {inside} }}");
        let one = narrowed(&sums(&format!("s[0] = W[k]; {} W[k] = s[0];", sum("s[0]"))));
        has(&one, &["for k in k_first..k_end {", "s[0] = W[k];", "s[0] add = V[k + j];", "W[k] = s[0];"]);
        let several = "for a in 0..4 { s[a] = W[4*a]; }";
        let back = "for b in 0..4 { W[4*b] = s[b]; }";
        has(&narrowed(&sums(&format!("{several} {} {back}", sum("s[1]")))), &["for k in k_first..k_end {"]);
        for other in [
            // brought to another element, one register for several, and a register that is used behind the loop
            format!("{} Y[0] = Y[0];", sums(&format!("s[0] = W[k]; {} W[k + 1] = s[0];", sum("s[0]")))),
            sums(&format!("for a in 0..4 {{ s[0] = W[a]; }} {} for b in 0..4 {{ W[b] = s[0]; }}", sum("s[0]"))),
            format!("{} Y[i] = s[0];", sums(&format!("s[0] = W[k]; {} W[k] = s[0];", sum("s[0]")))),
        ] {
            let text = narrowed(&other).to_string();
            assert!(!text.contains("clamp"), "{text}");
        }
    }

    #[test]
    fn other_loops_stay() {
        let same = |statements: &str| {
            let text = narrowed(statements).to_string();
            assert!(!text.contains("clamp"), "{text}");
        };
        // 1 is not neutral, the limit changes in the loop, and a statement beside it has no bounds
        same(&format!("for k in 0..23 {{ acc[0] add = {}; }}", chosen("k", "V[k]", "f32(1.0)")));
        same("for k in 0..3 { acc[0] add = select(ge(index(k), cast i64(P[k])), V[k], f32(0.0)); }");
        let sum = chosen("k", "V[k]", "f32(0.0)");
        same(&format!("for k in 0..23 {{ acc[0] add = {sum}; W[k] add = f32(1.0); }}"));
    }
}
