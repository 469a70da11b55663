//! Checks of subscripts that are hoisted out of loops: a subscript that grows or falls evenly is compared with its limits at both ends of a loop, before it begins.
//!
//! In: a verified nest that keeps the least and the greatest value of a subscript in two buffers with limits, and brings the subscript into these limits wherever it is
//! used. Out: a nest of the same meaning in which an innermost loop has two versions where subscripts that it records are linear in its variables, as in `x[i + s]` and
//! `x[i * s]`, with s the same in all iterations: one for subscripts that lie inside, which has neither records nor clamps, and the loop as it was, which records what
//! makes a run fail (R. Gupta, "Optimizing array bound checks using flow analysis", ACM Letters on Programming Languages and Systems 2, 1993). `i + s` is an
//! affine subscript in the first one.

use crate::codegen::loopnest::clamps::{clamped, widened};
use crate::codegen::loopnest::innermost::is_innermost;
use crate::codegen::loopnest::invariant::written_in;
use crate::codegen::loopnest::linear::{FACTOR, FAR, Linear};
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::narrow::Interval;
use crate::expr::{Access, Affine, BinaryOp, Bound, BufferId, Expr, Index, Scalar, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// Greatest number that is compared with 0: sums of one that is far, and two products.
const SLACK: i64 = 1 << 40;

/// The fewest iterations that a comparison at both ends pays for. Unmeasured.
const ITERATIONS: i64 = 2;

/// Hoists the checks of the innermost loops. Returns the variables of those versions that keep them.
pub fn hoist(nest: &mut LoopNest) -> FxHashSet<Var> {
    let mut checked = FxHashSet::default();
    if nest.buffers.iter().any(|b| b.limits.is_some()) {
        nest.replace_statements(&mut |nest, stmt, facts| {
            let Stmt::Loop { var, lower, upper, step: 1, kind: kind @ (LoopKind::Serial | LoopKind::Vector), body } =
                stmt
            else {
                return None;
            };
            let l = Walk { var: *var, lower, upper, kind: *kind, body };
            let mut hoister =
                Hoister { nest, ends: vec![], before: vec![], read: vec![], conditions: vec![], checked: vec![*var] };
            let versions = hoister.versions(stmt, &l, facts)?;
            checked.extend(hoister.checked);
            Some(versions)
        });
    }
    checked
}

/// A serial loop with step 1, or a vector loop.
struct Walk<'a> {
    var: Var,
    lower: &'a [Bound],
    upper: &'a [Bound],
    kind: LoopKind,
    body: &'a [Stmt],
}

/// A record of a subscript that is linear.
struct Record<'a> {
    value: &'a Expr,
    linear: Linear,
    limits: Interval,
    /// Of values below the limits; otherwise of those above.
    least: bool,
}

/// A subscript that lies inside of limits.
struct Known<'a> {
    value: &'a Expr,
    limits: Interval,
    /// Facts: that it is not below them, and that it is not above.
    sides: (bool, bool),
    index: Index,
}

struct Hoister<'a> {
    nest: &'a mut LoopNest,
    /// Reads of the first and the last value of the loop variable.
    ends: Vec<Stmt>,
    /// Reads of what is the same in all iterations.
    before: Vec<Stmt>,
    /// Variables that have been read.
    read: Vec<(Expr, Var)>,
    /// Numbers that are not negative where all checked subscripts lie inside.
    conditions: Vec<Expr>,
    /// Variables of versions that keep the checks.
    checked: Vec<Var>,
}

impl Hoister<'_> {
    /// The two versions of a loop; `None` where it records nothing that is linear.
    fn versions(&mut self, stmt: &Stmt, l: &Walk, facts: &Facts) -> Option<Vec<Stmt>> {
        let mut inside = facts.clone();
        inside.enter_loop(l.var, l.lower, l.upper, 1);
        let (low, high) = inside.range(l.var);
        if !is_innermost(l.body) || low > high || high - low < ITERATIONS - 1 {
            return None;
        }
        let (mut own, mut records) = (vec![l.var], vec![]);
        self.records(l.body, &written_in(l.body), facts, &mut inside, &mut own, &mut records);
        if records.is_empty() {
            return None;
        }
        let first = self.end(l.lower, BinaryOp::Max, &mut inside, l.var);
        let last = self.end(l.upper, BinaryOp::Min, &mut inside, l.var).offset(-1);
        let mut places: FxHashMap<Var, (Var, Interval)> = FxHashMap::default();
        let mut known: Vec<Known> = vec![];
        for record in &records {
            let base = record.linear.rest.as_ref().map(|rest| self.variable(rest, FAR, &mut inside, "base"));
            let factors: Vec<(Affine, Var)> =
                record.linear.products.iter().map(|(i, f)| (i.clone(), self.factor(f, &mut inside))).collect();
            self.compare(record, base, &factors, (l.var, &first, &last), &inside);
            let mut affine = record.linear.affine.clone();
            if let Some(base) = base {
                let (least, most) = inside.bounds(&record.linear.affine);
                let place = places.entry(base).or_insert_with(|| (self.nest.new_var("base"), (-FAR, FAR)));
                if factors.is_empty() && (constant(l) || !record.linear.affine.uses(l.var)) {
                    place.1 = match record.least {
                        true => (place.1.0.max(record.limits.0 - least), place.1.1),
                        false => (place.1.0, place.1.1.min(record.limits.1 - most)),
                    };
                }
                affine = affine.plus(place.0, 1);
            }
            let product = |(i, f): &(Affine, Var)| {
                Expr::binary(BinaryOp::Mul, Expr::Index(i.clone()), Expr::Index(Affine::var(*f)))
            };
            let sum = |a, b| Expr::binary(BinaryOp::Add, a, b);
            let index = match factors.iter().map(product).reduce(sum) {
                None => Index::Affine(affine),
                Some(products) if affine == Affine::constant(0) => Index::Value(Box::new(products)),
                Some(products) => Index::Value(Box::new(sum(products, Expr::Index(affine)))),
            };
            match known.iter_mut().find(|k| widened(k.value) == widened(record.value) && k.limits == record.limits) {
                Some(k) if record.least => k.sides.0 = true,
                Some(k) => k.sides.1 = true,
                None => {
                    let sides = (record.least, !record.least);
                    known.push(Known { value: record.value, limits: record.limits, sides, index });
                }
            }
        }
        if places.values().any(|(_, (low, high))| low > high) {
            return None;
        }
        let many = last.add_scaled(&first, -1).offset(1 - ITERATIONS);
        Some(self.emit((stmt, l), &many, places, &known))
    }

    /// The versions, of which the one without checks has `many + ITERATIONS` iterations, where that is not negative.
    fn emit(
        &mut self,
        (stmt, l): (&Stmt, &Walk),
        many: &Affine,
        places: FxHashMap<Var, (Var, Interval)>,
        known: &[Known],
    ) -> Vec<Stmt> {
        let (inside, range) = (self.nest.new_var("inside"), (-SLACK, SLACK));
        // negative where one of them is
        let all = std::mem::take(&mut self.conditions).into_iter().reduce(|a, b| Expr::binary(BinaryOp::Or, a, b));
        let value = all.unwrap_or(Expr::Const(Scalar::i64(0)));
        let expected = Bound::constant(0);
        let mut out = std::mem::take(&mut self.before);
        out.push(Stmt::Read { var: inside, value, range, checked: true, expected, recorded: None });
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, (place, _))| *place);
        let mut version: Vec<Stmt> = vec![];
        for (base, (var, range)) in places {
            let (value, expected) = (Expr::Index(Affine::var(base)), Bound { affine: Affine::var(base), divisor: 1 });
            version.push(Stmt::Read { var, value, range, checked: true, expected, recorded: None });
        }
        let var = self.nest.new_var(self.nest.vars[l.var.0 as usize].clone());
        let body = self.without(l.body, known);
        let body = self.nest.copies(&body, &mut FxHashMap::from_iter([(l.var, Affine::var(var))]));
        if !body.is_empty() {
            let (lower, upper) = (l.lower.to_vec(), l.upper.to_vec());
            version.push(Stmt::Loop { var, lower, upper, step: 1, kind: l.kind, body });
        }
        let flag = Affine::var(inside);
        out.push(Stmt::If { conditions: vec![flag.clone()], body: version });
        out.push(Stmt::If { conditions: vec![flag.scale(-1).offset(-1)], body: vec![stmt.clone()] });
        let mut versions = std::mem::take(&mut self.ends);
        if many.is_constant() {
            return [versions, out].concat();
        }
        let var = self.nest.new_var(self.nest.vars[l.var.0 as usize].clone());
        self.checked.push(var);
        let (lower, upper) = (l.lower.to_vec(), l.upper.to_vec());
        let body = self.nest.copies(l.body, &mut FxHashMap::from_iter([(l.var, Affine::var(var))]));
        let short = Stmt::Loop { var, lower, upper, step: 1, kind: l.kind, body };
        versions.push(Stmt::If { conditions: vec![many.clone()], body: out });
        versions.push(Stmt::If { conditions: vec![many.scale(-1).offset(-1)], body: vec![short] });
        versions
    }

    /// The linear records of a body, and what it brings into limits that has a factor out of data. Those under a condition are compared as if they always ran: where they lie outside
    /// then, the loop stays as it was.
    fn records<'s>(
        &self,
        body: &'s [Stmt],
        written: &FxHashSet<BufferId>,
        before: &Facts,
        facts: &mut Facts,
        own: &mut Vec<Var>,
        out: &mut Vec<Record<'s>>,
    ) {
        for stmt in body {
            match stmt {
                Stmt::Store { buffer, value, reduce, index } => {
                    let limits = self.nest.buffer(*buffer).limits;
                    if let (Some(op @ (BinaryOp::Min | BinaryOp::Max)), Some(limits)) = (reduce, limits) {
                        out.extend(self.record(value, limits, *op == BinaryOp::Min, (written, before, own, facts)));
                    }
                    let mut clamps = vec![];
                    index.iter().filter_map(Index::value).for_each(|e| clamps.extend(clamped(e)));
                    stmt.expressions().for_each(|e| {
                        e.visit_accesses(&mut |a| {
                            clamps.extend(a.index.iter().filter_map(Index::value).filter_map(clamped))
                        });
                    });
                    for (value, low, high) in clamps {
                        for least in [true, false] {
                            let record = self.record(value, (low, high), least, (written, before, own, facts));
                            // others are divided where they meet a limit
                            out.extend(record.filter(|r| !r.linear.products.is_empty()));
                        }
                    }
                }
                Stmt::If { body, .. } => self.records(body, written, before, facts, own, out),
                Stmt::Loop { var, body, .. } => {
                    stmt.enter(facts);
                    own.push(*var);
                    self.records(body, written, before, facts, own, out);
                }
                _ => {}
            }
        }
    }

    /// The record of a value, where it is linear and may be compared before the loop.
    fn record<'s>(
        &self,
        value: &'s Expr,
        limits: Interval,
        least: bool,
        (written, before, own, facts): (&FxHashSet<BufferId>, &Facts, &[Var], &Facts),
    ) -> Option<Record<'s>> {
        let linear = Linear::new(self.nest, value, own, facts)?;
        let is_subscript = limits.0 >= 0 && limits.1 < i64::from(i32::MAX);
        let may = is_subscript && linear.may_read(self.nest, written, before) && linear.is_near(own[0], facts);
        may.then_some(Record { value, linear, limits, least })
    }

    /// The first value of a loop variable, or one past the last one.
    fn end(&mut self, bounds: &[Bound], op: BinaryOp, inside: &mut Facts, var: Var) -> Affine {
        if let [Bound { affine, divisor: 1 }] = bounds {
            return affine.clone();
        }
        let all = bounds.iter().map(|b| match b.divisor {
            1 => Expr::Index(b.affine.clone()),
            divisor => {
                let quotient = self.nest.new_var("end");
                let up = if op == BinaryOp::Max { divisor - 1 } else { 0 };
                self.ends.push(Stmt::Let { var: quotient, value: b.affine.clone().offset(up), divisor });
                Expr::Index(Affine::var(quotient))
            }
        });
        let value = all.reduce(|a, b| Expr::binary(op, a, b)).unwrap_or(Expr::Const(Scalar::i64(0)));
        let (low, high) = inside.range(var);
        // costs take the bound that was added last for the one that decides
        let expected = bounds.last().cloned().unwrap_or(Bound::constant(low));
        let end = self.nest.new_var("end");
        let range = (low, high + 1);
        inside.set_range(end, range);
        self.ends.push(Stmt::Read { var: end, value, range, checked: false, expected, recorded: None });
        Affine::var(end)
    }

    /// A variable with the value of an expression, brought into what is near.
    fn variable(&mut self, e: &Expr, far: i64, inside: &mut Facts, name: &str) -> Var {
        if let Some((_, var)) = self.read.iter().find(|(read, _)| read == e) {
            return *var;
        }
        let var = self.nest.new_var(name);
        let exact = self.nest.exact_range(e, inside).filter(|(low, high)| -far < *low && *high < far);
        let range = exact.unwrap_or((-far, far));
        let expected = Bound::constant(0.clamp(range.0, range.1));
        let checked = exact.is_some();
        inside.set_range(var, range);
        self.before.push(Stmt::Read { var, value: e.clone(), range, checked, expected, recorded: None });
        self.read.push((e.clone(), var));
        var
    }

    /// A variable with the value of a factor, which is compared with the limits of factors.
    fn factor(&mut self, e: &Expr, inside: &mut Facts) -> Var {
        let var = self.variable(e, FACTOR, inside, "factor");
        if self.nest.exact_range(e, inside).is_none_or(|(low, high)| low <= -FACTOR || high >= FACTOR) {
            self.holds(Expr::Index(Affine::var(var).offset(FACTOR - 1)), inside);
            self.holds(Expr::Index(Affine::var(var).scale(-1).offset(FACTOR - 1)), inside);
        }
        var
    }

    /// Adds a number that is not negative where a subscript lies inside.
    fn holds(&mut self, e: Expr, facts: &Facts) {
        if let Expr::Index(a) = &e
            && facts.decide(a) == Some(true)
        {
            return;
        }
        if !self.conditions.contains(&e) {
            self.conditions.push(e);
        }
    }

    /// Adds the conditions that a record asks for.
    fn compare(
        &mut self,
        record: &Record,
        base: Option<Var>,
        factors: &[(Affine, Var)],
        (var, first, last): (Var, &Affine, &Affine),
        inside: &Facts,
    ) {
        let scale = record.linear.affine.coefficient(var);
        let others = record.linear.affine.clone().plus(var, -scale);
        let (least, most) = inside.bounds(&others);
        let ends: &[&Affine] = match (factors.is_empty(), (scale >= 0) == record.least) {
            (false, _) => &[first, last],
            (true, true) => &[first],
            (true, false) => &[last],
        };
        for end in ends {
            let sign = if record.least { 1 } else { -1 };
            let shift = if record.least { least - record.limits.0 } else { record.limits.1 - most };
            let form = Affine::constant(0).add_scaled(end, scale);
            let form = base.map_or(form.clone(), |base| form.plus(base, 1)).scale(sign).offset(shift);
            let factor = |(i, f): &(Affine, Var)| (i.substitute(|_| (*end).clone()).scale(sign), *f);
            let (same, moving): (Vec<_>, Vec<_>) = factors.iter().map(factor).partition(|(i, _)| i.is_constant());
            let form = same.iter().fold(form, |form, (i, f)| form.plus(*f, i.constant));
            let product =
                |(i, f): (Affine, Var)| Expr::binary(BinaryOp::Mul, Expr::Index(i), Expr::Index(Affine::var(f)));
            let sum = |a, b| Expr::binary(BinaryOp::Add, a, b);
            self.holds(moving.into_iter().map(product).fold(Expr::Index(form), sum), inside);
        }
    }

    /// A body where subscripts are known to lie inside.
    fn without(&self, body: &[Stmt], known: &[Known]) -> Vec<Stmt> {
        let mut out = vec![];
        for stmt in body {
            match stmt {
                Stmt::Store { buffer, index, value, reduce } => {
                    let says = |k: &Known| {
                        let side = if *reduce == Some(BinaryOp::Min) { k.sides.0 } else { k.sides.1 };
                        side && k.value == value && Some(k.limits) == self.nest.buffer(*buffer).limits
                    };
                    let is_record = matches!(reduce, Some(BinaryOp::Min | BinaryOp::Max));
                    if is_record && known.iter().any(says) {
                        continue;
                    }
                    let index = index.iter().map(|i| place(i, known)).collect();
                    out.push(Stmt::Store { buffer: *buffer, index, value: placed(value, known), reduce: *reduce });
                }
                stmt => {
                    let stmt = stmt.clone().map_body(|body| self.without(&body, known));
                    if !stmt.body().is_empty() {
                        out.push(stmt);
                    }
                }
            }
        }
        out
    }
}

/// Returns true if the bounds of a loop are numbers.
fn constant(l: &Walk) -> bool {
    l.lower.iter().chain(l.upper).all(|b| b.affine.is_constant())
}

fn place(i: &Index, known: &[Known]) -> Index {
    let Index::Value(e) = i else { return i.clone() };
    let inside = || {
        let (value, low, high) = clamped(e)?;
        let says = |k: &&Known| {
            k.sides == (true, true) && low <= k.limits.0 && k.limits.1 <= high && widened(k.value) == value
        };
        known.iter().find(says).map(|k| k.index.clone())
    };
    inside().unwrap_or_else(|| Index::Value(Box::new(placed(e, known))))
}

fn placed(e: &Expr, known: &[Known]) -> Expr {
    match e {
        Expr::Load(access) => {
            let index = access.index.iter().map(|i| place(i, known)).collect();
            Expr::Load(Access { index, ..access.clone() })
        }
        e => e.map_children(&mut |e| placed(e, known)),
    }
}

#[cfg(test)]
mod tests {
    use super::hoist;
    use crate::codegen::loopnest::interpret::assert_same_results;
    use crate::codegen::loopnest::parse;
    use crate::codegen::loopnest::simplify::simplify;
    use crate::runtime::Tensor;

    /// The nest of a loop over rows, with its checks hoisted; run with shifts and factors that keep subscripts inside and that do not.
    fn hoisted(statements: &str) -> String {
        let text = format!(
            "kernel rows {{ S: i32[4] argument 0; L: i64[4] argument 1; X: f32[150] argument 2; Y: f32[4][150] argument 3 written;
             Z: f32[150] argument 4 written; least: i64 argument 5 written within 0 to 149; greatest: i64 argument 6 written within 0 to 149;
             parallel r in 0..4 {{ {statements} }} }}"
        );
        let before = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut after = before.clone();
        hoist(&mut after);
        let far = [[0, 1, 7, 16], [17, 50, 109, 110], [-1, -40, 33, 100], [151, 4000, i32::MIN, i32::MAX]];
        for shifts in far {
            for scale in [1, 3, -1, 1 << 30] {
                let numbers = |shape: &[i64]| {
                    let count = shape.iter().product::<i64>();
                    Tensor::new(shape, &(0..count).map(|k| (k * k % 23) as f32).collect::<Vec<f32>>())
                };
                let long: Vec<i64> = shifts.iter().map(|s| i64::from(*s).wrapping_mul(scale * scale)).collect();
                let [s, l] = [Tensor::new(&[4], &shifts), Tensor::new(&[4], &long)];
                let [least, greatest] = [0_i64, 149].map(|end| Tensor::new(&[], &[end]));
                let all = [s, l, numbers(&[150]), numbers(&[4, 150]), numbers(&[150]), least, greatest];
                assert_same_results(&before, &after, &all);
            }
        }
        // without the numbers of equal names
        let text = simplify(&after).to_string();
        let mut parts = text.split('#');
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit()))
    }

    fn recorded(e: &str) -> String {
        format!("least min = {e}; greatest max = {e};")
    }

    fn at(e: &str) -> String {
        format!("@min(max({e}, i64(0)), i64(149))")
    }

    #[test]
    fn shifted_subscripts_are_affine_where_both_ends_lie_inside() {
        let e = "(index(i) + cast i64(S[r]))";
        let text = hoisted(&format!("for i in 0..40 {{ {} Y[r][i] = X[{}]; }}", recorded(e), at(e)));
        assert!(text.contains("let inside = within(or(index(base)"), "{text}");
        assert!(text.contains("Y[r][i] = X[base + i];"), "{text}");
        assert_eq!(text.matches("least min").count(), 1, "{text}");
        let e = "(index(i) + cast i64(S[r]))";
        let text = hoisted(&format!("vector i in 0..40 {{ {} Y[r][i] = X[{}]; }}", recorded(e), at(e)));
        assert!(text.contains("Y[r][i] = X[base + i];"), "{text}");
        // falling, with bounds from data, in vectors, written
        let e = "((cast i64(S[r]) - index(i)) + index(2*r))";
        let text = hoisted(&format!(
            "let n = clamp(L[r], 0, 60) about 9; for i in r..min(60, n) {{ {} Z[{}] = X[i]; }}",
            recorded(e),
            at(e)
        ));
        assert!(text.contains("Z[base - i] = X[i];") && text.contains("if -r + end - 2 >= 0 {"), "{text}");
        let e = "(index(8*t + i) + cast i64(S[r]))";
        let text = hoisted(&format!(
            "for t in 0..5 {{ vector i in 0..8 {{ {} Y[r][8*t + i] = X[{}]; }} }}",
            recorded(e),
            at(e)
        ));
        assert!(text.contains("Y[r][8*t + i] = X[base + 8*t + i];"), "{text}");
    }

    #[test]
    fn factors_out_of_data_are_compared_with_limits() {
        let e = "((index(i) * L[r]) + index(3))";
        let text = hoisted(&format!("for i in 0..20 {{ {} Y[r][i] = X[{}]; }}", recorded(e), at(e)));
        assert!(text.contains("Y[r][i] = X[@((index(i) * index(factor)) + index(3))];"), "{text}");
        assert_eq!(text.matches("least min").count(), 1, "{text}");
    }

    #[test]
    fn records_under_a_condition_are_compared_as_well() {
        let e = "(index(i) + cast i64(S[r]))";
        let text =
            hoisted(&format!("for i in 0..20 {{ if i - 3 >= 0 {{ {} Y[r][i] = X[{}]; }} }}", recorded(e), at(e)));
        assert!(text.contains("Y[r][i] = X[base + i];"), "{text}");
        assert_eq!(text.matches("least min").count(), 1, "{text}");
    }

    #[test]
    fn clamps_of_products_are_hoisted_without_a_record() {
        let text = hoisted("for i in 0..40 { Z[@min(max((index(r + 1) * index(i + 2)), i64(0)), i64(149))] = X[i]; }");
        assert!(text.contains("Z[@((index(i) * index(factor)) + index(base))] = X[i];"), "{text}");
        assert_eq!(text.matches("Z[@min(max(").count(), 1, "{text}");
        // to a bound from data, kept under a condition
        let clamp = "@min(max((index(r + 2) * index(i + 2)), i64(0)), i64(149))";
        let text = hoisted(&format!(
            "let n = clamp((i64(149) / index(r + 2)), 2, 150) about 30; for i in r..min(148, n - 1) {{ Z[{clamp}] = select(gt(X[r], f32(2.0)), f32(1.0), Z[{clamp}]); }}"
        ));
        assert!(text.contains("inside >= 0"), "{text}");
    }

    #[test]
    fn integers_of_32_bits_that_may_wrap_around_stay() {
        let e = "cast i64((cast i32(index(i)) + S[r]))";
        let text = hoisted(&format!("for i in 0..20 {{ {} Y[r][i] = X[{}]; }}", recorded(e), at(e)));
        assert!(!text.contains("inside"), "{text}");
    }

    #[test]
    fn one_side_is_hoisted_alone() {
        let e = "(index(i) + cast i64(S[r]))";
        let text = hoisted(&format!(
            "for i in 0..20 {{ greatest max = {e}; Y[r][i] = X[@min(max({e}, i64(0)), i64(149))]; }}"
        ));
        assert_eq!(text.matches("greatest max").count(), 1, "{text}");
        assert_eq!(text.matches("X[@min(max(").count(), 2, "{text}");
    }

    #[test]
    fn other_loops_stay() {
        let shifted = "(index(i) + cast i64(S[r]))";
        let squared = "(index(i) * index(i))";
        // 2^72 times the index, which wraps around to 0
        let large = (0..4).fold(shifted.to_string(), |e, _| format!("({e} * i64(262144))"));
        let written = "(index(i) + cast i64(Z[0]))";
        for body in [
            format!("for i in 0..1 {{ {} Y[r][i] = X[{}]; }}", recorded(shifted), at(shifted)),
            format!("for i in 0..20 {{ {} Y[r][i] = X[{}]; }}", recorded(squared), at(squared)),
            format!("for i in 0..20 {{ {} Z[i] = X[{}]; }}", recorded(written), at(written)),
            format!("for i in 0..20 {{ {} Y[r][i] = X[{}]; }}", recorded(&large), at(&large)),
        ] {
            let text = hoisted(&body);
            assert!(!text.contains("inside"), "{text}");
        }
    }
}
