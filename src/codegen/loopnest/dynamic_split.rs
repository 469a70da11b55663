//! Index-set splitting at points from data: loops whose subscripts meet a limit that is known when the loop begins.
//!
//! In: a verified nest with elements, or vectors of them, at `max(i - s, 0)`, where s is no affine form but the same in all iterations: a power of
//! two, or an element of an array. Out: a nest of the same meaning in which the loop over i runs in up to three parts: one in which the
//! first operand is the greater one in all lanes of an iteration, one in which the second is, and one between them, with the expression
//! as it was. What was a gather is a vector of neighbours in the first part. Comparisons of the same two operands are decided as well, and a part whose
//! statements leave their elements as they are is none.
//! A vector that is longer than [`CHUNK`] bytes becomes a loop over chunks of so many before it is divided.
//!
//! The point is read before the loop and brought into the range in which it divides the loop.

use crate::codegen::loopnest::innermost::is_innermost;
use crate::codegen::loopnest::invariant::{may_read_before, written_in};
use crate::codegen::loopnest::simplify::arithmetic::folded;
use crate::codegen::loopnest::simplify::conditions::decided;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt, is_kept};
use crate::expr::interval::Facts;
use crate::expr::narrow::dtype_range;
use crate::expr::scalar::{Value, cast};
use crate::expr::{Access, Affine, BinaryOp, Bound, CompareOp, Expr, Index, Scalar, Var};
use crate::runtime::DType;
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes that an iteration over chunks of a vector writes: four registers of AVX2. Unmeasured.
const CHUNK: i64 = 128;

/// Most parts of one loop.
const PARTS: usize = 9;

/// The share of a loop in which costs take a first operand for the limit: 1 / this. Unmeasured.
const LIMITED: i64 = 8;

/// Greatest value of a form, far from the limits of 64 bits.
const FAR: i64 = 1 << 50;

/// Divides the loops of a nest, but those of the variables `whole`.
pub fn divide(nest: &mut LoopNest, whole: &FxHashSet<Var>) {
    nest.replace_statements(&mut |nest, stmt, facts| match stmt {
        Stmt::Loop { var, .. } if whole.contains(var) => Some(vec![stmt.clone()]),
        stmt => Divider { nest }.parts(stmt, facts),
    });
}

struct Divider<'a> {
    nest: &'a mut LoopNest,
}

/// `affine + rest ≥ 0`, the affine form growing with the lane.
#[derive(Clone, PartialEq)]
struct Condition {
    affine: Affine,
    rest: Expr,
    /// Lanes differ where it holds; otherwise where it does not.
    varies: bool,
}

/// Conditions that differ by lanes and numbers alone: `scale · index + outer + inner + rest ≥ 0`.
struct Group {
    scale: i64,
    /// Over variables from outside of the loop.
    outer: Affine,
    rest: Expr,
    /// Lanes differ where the conditions hold; otherwise where they do not.
    varies: bool,
    /// The least and the greatest value of what varies inside of an iteration, and of the constant.
    inner: (i64, i64),
    /// The values of the affine form.
    range: (i64, i64),
}

/// A serial loop with step 1 without others in it.
#[derive(Clone)]
struct Serial {
    var: Var,
    lower: Vec<Bound>,
    upper: Vec<Bound>,
    body: Vec<Stmt>,
}

impl Divider<'_> {
    /// The parts of a loop; `None` where it is not divided.
    fn parts(&mut self, stmt: &Stmt, facts: &Facts) -> Option<Vec<Stmt>> {
        let (l, rest) = match stmt {
            Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Serial, body } if is_innermost(body) => {
                (Serial { var: *var, lower: lower.clone(), upper: upper.clone(), body: body.clone() }, None)
            }
            stmt => self.in_chunks(stmt, facts)?,
        };
        let mut budget = PARTS;
        let mut parts = self.divided(&l, &mut facts.clone(), &mut budget)?;
        parts.extend(rest);
        Some(parts)
    }

    /// A long vector as a loop over chunks, and the vector of what they leave.
    fn in_chunks(&mut self, stmt: &Stmt, facts: &Facts) -> Option<(Serial, Option<Stmt>)> {
        let Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Vector, body } = stmt else { return None };
        let ([lower], [upper]) = (&lower[..], &upper[..]) else { return None };
        let extent = Some(upper.affine.constant).filter(|_| upper.affine.is_constant() && upper.divisor == 1)?;
        if *lower != Bound::constant(0) || !is_innermost(body) {
            return None;
        }
        let mut inside = facts.clone();
        stmt.enter(&mut inside);
        let (mut bytes, mut in_registers, mut found) = (1, false, false);
        body.iter().for_each(|s| {
            s.visit(&mut |s| {
                let Stmt::Store { buffer, .. } = s else { return };
                bytes = bytes.max(self.nest.buffer(*buffer).dtype.bytes() as i64);
                in_registers |= self.nest.buffer(*buffer).kind == BufferKind::Local;
                found |= s.expressions().any(|e| e.any(&mut |e| self.condition(e, &inside, &[*var]).is_some()));
            });
        });
        let chunk = CHUNK / bytes;
        if !found || in_registers || extent < 2 * chunk {
            return None;
        }
        let chunks = self.nest.new_var(format!("{}c", self.nest.vars[var.0 as usize]));
        let vector = |me: &mut Self, extent: i64, base: Affine| {
            let lane = me.nest.new_var(me.nest.vars[var.0 as usize].clone());
            let mut map = FxHashMap::from_iter([(*var, base.plus(lane, 1))]);
            let body = me.nest.copies(body, &mut map);
            let (lower, upper) = (vec![Bound::constant(0)], vec![Bound::constant(extent)]);
            Stmt::Loop { var: lane, lower, upper, step: 1, kind: LoopKind::Vector, body }
        };
        let inner = vector(self, chunk, Affine::constant(0).plus(chunks, chunk));
        let (count, rest) = (extent / chunk, extent % chunk);
        let rest = (rest > 0).then(|| vector(self, rest, Affine::constant(count * chunk)));
        let (lower, upper) = (vec![Bound::constant(0)], vec![Bound::constant(count)]);
        Some((Serial { var: chunks, lower, upper, body: vec![inner] }, rest))
    }

    /// The loop in parts; `None` where no subscript asks for them.
    fn divided(&mut self, l: &Serial, facts: &mut Facts, budget: &mut usize) -> Option<Vec<Stmt>> {
        let group = self.group(l, facts).filter(|_| *budget >= 3)?;
        *budget -= 2;
        let limit = self.nest.new_var(format!("{}_point", self.nest.vars[l.var.0 as usize]));
        let range = (-group.range.1 - 1, -group.range.0);
        facts.set_range(limit, range);
        let share = (group.range.1 - group.range.0) / LIMITED;
        let expected = Bound::constant(if group.varies { -group.range.0 - share } else { share - group.range.1 });
        let value = group.rest.clone();
        let mut out = vec![Stmt::Read { var: limit, value, range, checked: false, expected, recorded: None }];
        // scale · index ≥ -outer - inner - limit
        let from = |inner: i64| group.outer.scale(-1).plus(limit, -1).offset(-inner);
        let first = |inner: i64| Bound { affine: from(inner), divisor: group.scale };
        let end = |inner: i64| Bound { affine: from(inner).offset(group.scale - 1), divisor: group.scale };
        let (all, some) = (group.inner.0, group.inner.1);
        let parts = [
            (None, Some(end(some)), Some(false)),
            (Some(first(some)), Some(end(all)), None),
            (Some(first(all)), None, Some(true)),
        ];
        for (lower, upper, truth) in parts {
            if truth.is_none() && all == some {
                continue;
            }
            let var = self.nest.new_var(self.nest.vars[l.var.0 as usize].clone());
            let body = self.nest.copies(&l.body, &mut FxHashMap::from_iter([(l.var, Affine::var(var))]));
            let (mut l, old) = (Serial { var, body, ..l.clone() }, l.var);
            l.lower.extend(lower);
            l.upper.extend(upper);
            if let Some(truth) = truth {
                let mut inside = facts.clone();
                inside.enter_loop(var, &l.lower, &l.upper, 1);
                debug_assert!(!group.outer.uses(old));
                l.body = self.decided(l.body.clone(), &group, var, truth, &inside);
                if let Some(parts) = self.divided(&l, &mut facts.clone(), budget) {
                    out.extend(parts);
                    continue;
                }
            }
            let Serial { var, lower, upper, body } = l;
            if body.is_empty() {
                continue;
            }
            out.push(Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Serial, body });
        }
        Some(out)
    }

    /// The conditions that divide a loop: those of the first subscript that lanes take from data, and those like it.
    fn group(&self, l: &Serial, facts: &Facts) -> Option<Group> {
        let mut inside = facts.clone();
        inside.enter_loop(l.var, &l.lower, &l.upper, 1);
        let mut group: Option<Group> = None;
        for subscripts in [true, false] {
            self.each(&l.body, &mut inside.clone(), &mut vec![l.var], &mut |e, facts, lanes, in_subscript| {
                if subscripts && (!in_subscript || group.is_some()) {
                    return;
                }
                let Some((condition, _)) = self.condition(e, facts, lanes) else { return };
                let Some(new) = self.group_of(&condition, l, facts, lanes) else { return };
                match &mut group {
                    None if subscripts => group = Some(new),
                    Some(group) if group.is_near(&new) => group.join(&new),
                    _ => {}
                }
            });
        }
        group
    }

    fn group_of(&self, c: &Condition, l: &Serial, facts: &Facts, own: &[Var]) -> Option<Group> {
        let scale = c.affine.coefficient(l.var);
        let of_loop = |a: &Affine| a.uses(l.var) || own.iter().any(|v| a.uses(*v));
        let invariant = !c.rest.any(&mut |e| match e {
            Expr::Index(a) => of_loop(a),
            Expr::Load(access) => access.affine_forms().any(of_loop),
            _ => false,
        });
        if scale < 1 || !invariant || !may_read_before(self.nest, &c.rest, facts, Some(&written_in(&l.body))) {
            return None;
        }
        let others = c.affine.clone().plus(l.var, -scale);
        let (inner, outer): (Vec<_>, Vec<_>) = others.terms.iter().partition(|t| own.contains(&t.0));
        let inner = facts.bounds(&Affine { terms: inner, constant: others.constant });
        let (range, outer) = (facts.bounds(&c.affine), Affine { terms: outer, constant: 0 });
        let near = |(low, high): (i64, i64)| -FAR < low && low <= high && high < FAR;
        let rest = c.rest.clone();
        (near(range) && near(inner) && self.nest.exact_range(&rest, facts).is_some()).then_some(Group {
            scale,
            outer,
            rest,
            varies: c.varies,
            inner,
            range,
        })
    }

    /// Calls `f` on every expression of a body, with the facts there, the variables that the body binds, and whether it is part of a
    /// subscript.
    fn each<'e>(
        &self,
        body: &'e [Stmt],
        facts: &mut Facts,
        own: &mut Vec<Var>,
        f: &mut impl FnMut(&'e Expr, &Facts, &[Var], bool),
    ) {
        for stmt in body {
            let mut inside = facts.clone();
            stmt.enter(&mut inside);
            if let Stmt::Loop { var, .. } = stmt {
                own.push(*var);
            }
            if let Stmt::Store { index, value, .. } = stmt {
                each_in(value, false, &mut |e, subscript| f(e, facts, own, subscript));
                index.iter().filter_map(Index::value).for_each(|e| {
                    each_in(e, true, &mut |e, subscript| f(e, facts, own, subscript));
                });
            }
            self.each(stmt.body(), &mut inside, own, f);
            if let Stmt::Loop { .. } = stmt {
                own.pop();
            }
        }
    }

    /// The condition that decides a minimum, a maximum or a comparison of 64-bit integers, one of which is not affine, and that
    /// grows with the last of the variables; and what it is when the condition holds: the first operand, or true. `None` where
    /// one decides an operand.
    fn condition(&self, e: &Expr, facts: &Facts, lanes: &[Var]) -> Option<(Condition, bool)> {
        let condition = self.own_condition(e, facts, lanes)?;
        // of conditions in each other the innermost has none inside
        let inside = |e: &Expr| e.any(&mut |e| self.own_condition(e, facts, lanes).is_some());
        (!e.operands().any(inside)).then_some(condition)
    }

    /// [`Self::condition`], whatever decides the operands.
    fn own_condition(&self, e: &Expr, facts: &Facts, lanes: &[Var]) -> Option<(Condition, bool)> {
        let lane = *lanes.last()?;
        // first - second ≥ least holds for the first one, or for true
        let (a, b, least, yes) = match e {
            Expr::Binary(BinaryOp::Max, a, b) => (a, b, 0, true),
            Expr::Binary(BinaryOp::Min, a, b) => (a, b, 0, false),
            Expr::Compare(CompareOp::Ge, a, b) => (a, b, 0, true),
            Expr::Compare(CompareOp::Gt, a, b) => (a, b, 1, true),
            Expr::Compare(CompareOp::Lt, a, b) => (a, b, 0, false),
            Expr::Compare(CompareOp::Le, a, b) => (a, b, 1, false),
            _ => return None,
        };
        let (a, b) = (self.widened(a, facts)?, self.widened(b, facts)?);
        // what they compare has not wrapped
        self.nest.exact_range(&a, facts).and(self.nest.exact_range(&b, facts))?;
        let (affine, rest) = Expr::binary(BinaryOp::Sub, a.clone(), b.clone()).affine_terms();
        if affine.coefficient(lane) > 0 {
            // the operand with the greater coefficient is the one that holds
            let varies = !matches!(e, Expr::Binary(BinaryOp::Min, ..));
            return Some((Condition { affine: affine.offset(-least), rest: rest?, varies }, yes));
        }
        // second - first ≥ 1 - least where it does not hold
        let (affine, rest) = Expr::binary(BinaryOp::Sub, b, a).affine_terms();
        let varies = !matches!(e, Expr::Binary(BinaryOp::Min, ..));
        let grows = affine.coefficient(lane) > 0;
        grows.then_some((Condition { affine: affine.offset(least - 1), rest: rest?, varies }, !yes))
    }

    /// An integer of 64 bits with the same value; `None` where operations may have wrapped.
    fn widened(&self, e: &Expr, facts: &Facts) -> Option<Expr> {
        let dtype = e.dtype(&|b| self.nest.buffer(b).dtype);
        match e {
            _ if dtype == DType::I64 => Some(e.clone()),
            Expr::Const(s) if !dtype.is_float() => Some(Expr::Const(Scalar::i64(Value::from(*s).as_i64()))),
            Expr::Cast(_, a) => match &**a {
                Expr::Index(affine) => {
                    let ((low, high), (least, most)) = (facts.bounds(affine), dtype_range(dtype)?);
                    (least <= low && high <= most).then(|| Expr::Index(affine.clone()))
                }
                _ => None,
            },
            Expr::Load(_) => dtype_range(dtype).map(|_| Expr::cast(DType::I64, e.clone())),
            _ => None,
        }
    }

    /// A body in which the conditions of a group are known.
    fn decided(&self, body: Vec<Stmt>, group: &Group, var: Var, truth: bool, facts: &Facts) -> Vec<Stmt> {
        self.decided_in(body, &mut vec![var], facts, &|c, facts, own| {
            let l = Serial { var, lower: vec![], upper: vec![], body: vec![] };
            self.group_of(c, &l, facts, own).filter(|new| group.has(new)).map(|_| truth)
        })
    }

    fn decided_in(
        &self,
        body: Vec<Stmt>,
        own: &mut Vec<Var>,
        facts: &Facts,
        known: &dyn Fn(&Condition, &Facts, &[Var]) -> Option<bool>,
    ) -> Vec<Stmt> {
        let mut out = vec![];
        for stmt in body {
            let mut inside = facts.clone();
            stmt.enter(&mut inside);
            if let Stmt::Store { buffer, index, value, reduce } = stmt {
                let value = self.expression(&value, own, facts, known);
                let index: Vec<Index> = index.iter().map(|i| self.subscript(i, own, facts, known)).collect();
                let records_nothing = || {
                    let limits = self.nest.buffer(buffer).limits;
                    let side = limits.zip(reduce).and_then(|(limits, op)| match op {
                        BinaryOp::Min => Some((CompareOp::Ge, limits.0)),
                        BinaryOp::Max => Some((CompareOp::Le, limits.1)),
                        _ => None,
                    });
                    side.is_some_and(|side| self.lies(&value, side, own, facts, known))
                };
                if !records_nothing() && !is_kept(&self.nest.buffers, (buffer, &index), reduce, &value) {
                    out.push(Stmt::Store { buffer, index, value, reduce });
                }
                continue;
            }
            let count = own.len();
            if let Stmt::Loop { var, .. } = &stmt {
                own.push(*var);
            }
            let stmt = stmt.map_body(|body| self.decided_in(body, own, &inside, known));
            own.truncate(count);
            if !stmt.body().is_empty() {
                out.push(stmt);
            }
        }
        out
    }

    /// Returns true if a value lies on the side of a limit that is not recorded.
    fn lies(
        &self,
        value: &Expr,
        (op, limit): (CompareOp, i64),
        own: &[Var],
        facts: &Facts,
        known: &dyn Fn(&Condition, &Facts, &[Var]) -> Option<bool>,
    ) -> bool {
        match value {
            Expr::Select(_, a, b) => [a, b].into_iter().all(|e| self.lies(e, (op, limit), own, facts, known)),
            Expr::Const(s) => op.holds(&Value::from(*s).as_i64(), &limit),
            value => {
                let dtype = value.dtype(&|b| self.nest.buffer(b).dtype);
                let number = Expr::Const(Scalar::from(cast(dtype, Value::I64(limit))));
                // what is less than a number is at most as great
                let strict = if op == CompareOp::Le { CompareOp::Lt } else { op };
                [op, strict].into_iter().any(|op| {
                    let e = Expr::compare(op, value.clone(), number.clone());
                    self.expression(&e, own, facts, known) == Expr::Const(Scalar::bool(true))
                })
            }
        }
    }

    fn subscript(
        &self,
        index: &Index,
        own: &[Var],
        facts: &Facts,
        known: &dyn Fn(&Condition, &Facts, &[Var]) -> Option<bool>,
    ) -> Index {
        let Index::Value(e) = index else { return index.clone() };
        let e = self.expression(e, own, facts, known);
        match e.affine_terms() {
            (affine, None) => Index::Affine(affine),
            _ => Index::Value(Box::new(e)),
        }
    }

    fn expression(
        &self,
        e: &Expr,
        own: &[Var],
        facts: &Facts,
        known: &dyn Fn(&Condition, &Facts, &[Var]) -> Option<bool>,
    ) -> Expr {
        let truth = self.condition(e, facts, own).and_then(|(c, yes)| Some(known(&c, facts, own)? == yes));
        match (e, truth) {
            (Expr::Compare(..), Some(truth)) => Expr::Const(Scalar::bool(truth)),
            (Expr::Binary(_, a, b), Some(first)) => (if first { a } else { b }).as_ref().clone(),
            (Expr::Load(access), _) => {
                let index = access.index.iter().map(|i| self.subscript(i, own, facts, known)).collect();
                Expr::Load(Access { index, ..access.clone() })
            }
            _ => {
                let e = decided(e.map_children(&mut |e| self.expression(e, own, facts, known)), facts);
                folded(&e).unwrap_or(e)
            }
        }
    }
}

impl Group {
    fn covers(&self, other: &Group) -> bool {
        (self.scale, &self.outer, &self.rest) == (other.scale, &other.outer, &other.rest)
    }

    /// Returns true for conditions that change within two iterations of those of the group.
    fn is_near(&self, other: &Group) -> bool {
        let length = self.inner.0.max(other.inner.0) - self.inner.0.min(other.inner.0);
        self.covers(other) && length <= 2 * self.scale
    }

    /// Returns true for conditions whose lanes are among those of the group.
    fn has(&self, other: &Group) -> bool {
        self.covers(other) && self.inner.0 <= other.inner.0 && other.inner.1 <= self.inner.1
    }

    fn join(&mut self, other: &Group) {
        self.inner = (self.inner.0.min(other.inner.0), self.inner.1.max(other.inner.1));
        self.range = (self.range.0.min(other.range.0), self.range.1.max(other.range.1));
    }
}

/// Calls `f` on an expression and all in it, with whether they are part of a subscript.
fn each_in<'e>(e: &'e Expr, subscript: bool, f: &mut impl FnMut(&'e Expr, bool)) {
    f(e, subscript);
    e.operands().for_each(|e| each_in(e, subscript, f));
    if let Expr::Load(access) = e {
        access.index.iter().filter_map(Index::value).for_each(|e| each_in(e, true, f));
    }
}

#[cfg(test)]
mod tests {
    use super::divide;
    use crate::codegen::loopnest::interpret::assert_same_results;
    use crate::codegen::loopnest::parse;
    use crate::codegen::loopnest::simplify::simplify;
    use crate::runtime::Tensor;
    use rustc_hash::FxHashSet;

    /// The nest of a loop over rows, divided and simplified; run with points inside and outside of the loops.
    fn divided(statements: &str) -> String {
        let text = format!(
            "kernel rows {{ S: i32[4] argument 0; X: f32[150] argument 1; Y: f32[4][150] argument 2 written; W: f32[150] argument 3 written;
             acc: f32[150] local; least: i64 argument 4 written within 0 to 149; parallel r in 0..4 {{ {statements} }} }}"
        );
        let before = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut after = before.clone();
        divide(&mut after, &FxHashSet::default());
        for points in [[0, 1, 7, 16], [17, 64, 149, 150], [-1, -40, 33, 100], [151, 4000, i32::MIN, i32::MAX]] {
            let numbers = |shape: &[i64]| {
                let count = shape.iter().product::<i64>();
                Tensor::new(shape, &(0..count).map(|k| (k * k % 23) as f32).collect::<Vec<f32>>())
            };
            let least = Tensor::new(&[], &[0_i64]);
            let all = [Tensor::new(&[4], &points), numbers(&[150]), numbers(&[4, 150]), numbers(&[150]), least];
            assert_same_results(&before, &after, &all);
        }
        // without the numbers of equal names
        let text = simplify(&after).to_string();
        let mut parts = text.split('#');
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit()))
    }

    fn has(text: &str, lines: &[&str]) {
        let all: Vec<&str> = text.lines().map(str::trim).collect();
        lines.iter().for_each(|line| assert!(all.contains(line), "{line}\n{text}"));
    }

    #[test]
    fn vectors_of_tiles_are_divided_where_a_subscript_meets_its_limit() {
        let text = divided(
            "for t in 0..18 { vector i in 0..8 {
                Y[r][8*t + i] = select(ge(index(8*t + i), cast i64(S[r])), X[@max(min((index(8*t + i) - cast i64(S[r])), i64(149)), i64(0))], f32(2.0)); } }",
        );
        has(&text, &["Y[r][8*t + i] = X[@(index(8*t + i) - cast i64(S[r]))];", "Y[r][8*t + i] = f32(2.0);"]);
        // a vector that is not of tiles
        let long =
            divided("vector i in 0..150 { Y[r][i] = X[@min(max((index(i) - cast i64(S[r])), i64(0)), i64(149))]; }");
        has(&long, &["Y[r][32*ic + i] = X[@(index(32*ic + i) - cast i64(S[r]))];", "Y[r][32*ic + i] = X[0];"]);
        has(&long, &["Y[r][i + 128] = X[@min(max((index(i + 128) - cast i64(S[r])), i64(0)), i64(149))];"]);
    }

    #[test]
    fn conditions_that_differ_by_a_number_have_common_parts() {
        let text = divided(
            "for t in 0..18 { vector i in 0..8 {
                Y[r][8*t + i] = X[@min(max((index(8*t + i) - cast i64(S[r])), i64(0)), i64(149))];
                W[8*t + i] = X[@min(max((index(8*t + i - 2) - cast i64(S[r])), i64(0)), i64(149))]; } }",
        );
        has(&text, &["W[8*t + i] = X[@(index(8*t + i - 2) - cast i64(S[r]))];"]);
        assert_eq!(text.matches("X[@(index(8*t + i) - cast").count(), 1, "{text}");
    }

    #[test]
    fn comparisons_of_narrow_integers_are_the_same_conditions() {
        let text = divided(
            "for t in 0..18 { vector i in 0..8 {
                Y[r][8*t + i] = select(lt(cast i32(index(8*t + i)), S[r]), f32(1.0), X[@max((index(8*t + i) - max(cast i64(S[r]), i64(0))), i64(0))]);
                W[8*t + i] = select(lt(cast i32(index(8*t + i)), S[r]), f32(1.0), X[@min(max((index(8*t + i) - cast i64(S[r])), i64(0)), i64(149))]); } }",
        );
        has(&text, &["W[8*t + i] = f32(1.0);", "W[8*t + i] = X[@(index(8*t + i) - cast i64(S[r]))];"]);
    }

    #[test]
    fn parts_that_leave_their_elements_are_none() {
        let inside =
            "and(ge((index(8*t + i) - cast i64(S[r])), i64(0)), lt((index(8*t + i) - cast i64(S[r])), i64(150)))";
        let value = "X[@min(max((index(8*t + i) - cast i64(S[r])), i64(0)), i64(149))]";
        for (store, kept) in [("Y[r][8*t + i] add =", "f32(-0.0)"), ("Y[r][8*t + i] =", "Y[r][8*t + i]")] {
            let text = divided(&format!(
                "for t in 0..18 {{ vector i in 0..8 {{ {store} select({inside}, {value}, {kept}); }} }}"
            ));
            // below, across the limit, inside, across the other one, beyond
            assert_eq!(text.matches("for t in").count(), 3, "{text}");
            has(&text, &[&format!("{store} X[@(index(8*t + i) - cast i64(S[r]))];")]);
            assert_eq!(text.matches(kept).count(), if kept.starts_with('Y') { 5 } else { 2 }, "{text}");
        }
        // 0.0 is no neutral element: it leaves -0.0 as it is not
        let text = divided(&format!(
            "for t in 0..18 {{ vector i in 0..8 {{ Y[r][8*t + i] add = select({inside}, {value}, f32(0.0)); }} }}"
        ));
        assert_eq!(text.matches("for t in").count(), 5, "{text}");
    }

    #[test]
    fn records_of_a_part_that_lies_inside_are_none() {
        let value = "(index(8*t + i) - cast i64(S[r]))";
        let text = divided(&format!(
            "for t in 0..18 {{ vector i in 0..8 {{ least min = select(gt(X[i], f32(0.0)), {value}, i64(9223372036854775807));
             Y[r][8*t + i] = X[@min(max({value}, i64(0)), i64(149))]; }} }}"
        ));
        assert!(text.matches("least min").count() < text.matches("for t in").count(), "{text}");
        has(&text, &["Y[r][8*t + i] = X[@(index(8*t + i) - cast i64(S[r]))];"]);
    }

    #[test]
    fn other_loops_stay() {
        for statements in [
            // another point in each iteration; one that the loop writes; none in a subscript; a vector in registers
            "for t in 0..4 { vector i in 0..8 { Y[r][8*t + i] = X[@min(max((index(8*t + i) - cast i64(S[t])), i64(0)), i64(149))]; } }",
            "for t in 0..18 { vector i in 0..8 { W[8*t + i] = X[@min(max((index(8*t + i) - cast i64(W[r])), i64(0)), i64(149))]; } }",
            "for t in 0..18 { vector i in 0..8 { Y[r][8*t + i] = select(ge(index(8*t + i), cast i64(S[r])), X[8*t + i], f32(2.0)); } }",
            "vector i in 0..150 { acc[i] = X[@min(max((index(i) - cast i64(S[r])), i64(0)), i64(149))]; }",
            "vector i in 0..40 { Y[r][i] = X[@min(max((index(i) - cast i64(S[r])), i64(0)), i64(149))]; }",
        ] {
            let text = divided(statements);
            assert!(!text.contains("_point"), "{text}");
        }
    }
}
