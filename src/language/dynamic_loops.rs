//! Loops whose bounds come from data: `for k in p[i]..p[i + 1]`.
//!
//! In: a loop program. Out: a program in which all bounds are affine. Such a loop runs over its static range, and its body stands
//! under `k >= p[i] && k < p[i + 1]`. The static range are the values of the index that keep it inside of the arrays which it
//! subscripts alone, or what the bounds say themselves, as in `min(p[i + 1], N)`. A subscript counts where the conditions around it let it be outside:
//! affine ones, and those that compare the index with an element that bounds the loop. Where the bounds do not say the range, the elements of the arrays that bound
//! the loop must lie in it when the program runs: those of a lower bound not before it, those of an upper one not behind it. A run checks them before it begins;
//! bounds that the program computes are recorded where the loop begins ([`super::bound_checks`]). A loop does not write what its own bounds read. Source: J. Zhao, M. Kruse, A. Cohen, *A Polyhedral Compilation Framework for
//! Loops with Dynamic Data-Dependent Bounds*, CC 2018.

use super::bound_checks::BoundChecks;
use super::bound_parts::{
    Difference, Parts, around_remainders, at_steps, shifted, values_of, wide, with_limits, within_bounds,
};
use super::condition;
use super::remainders::{self, Interval};
use super::scope::plain;
use super::source::{Checked, Diagnostic};
use super::syntax::{Body, Program, Range, Statement, assignments};
use crate::expr::dynamic_bounds::swapped;
use crate::expr::interval::ceil_div;
use crate::expr::logic::Condition;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator, Style};
use crate::expr::{Affine, BinaryOp, CompareOp, Expr, Scalar, Var};
use crate::language::environment::Scope;
use crate::poly::analysis::index_range::{IndexRange, element_range};
use crate::poly::statement::TensorDecl;
use crate::runtime::DType;
use std::collections::{BTreeMap, BTreeSet};

/// A program with affine bounds, and the ranges in which elements of its arrays must lie.
pub struct Converted {
    pub program: Program,
    pub ranges: Vec<IndexRange>,
    /// Tensors of bounds that the program records, which follow its arrays.
    pub checks: Vec<TensorDecl>,
}

/// Converts the loops of a program; those with remainders in their bounds, as `1 + t % 2`, too.
///
/// # Errors
/// `Invalid` or `Unsupported` at a bound without a static range, from what the loop writes, or computed in a type of few bits.
pub fn convert(program: &Program, sizes: &BTreeMap<String, i64>, known: &[TensorDecl]) -> Checked<Converted> {
    let mut out = program.clone();
    let (mut ranges, mut checks) = (vec![], vec![]);
    if let Body::Loop { statements, .. } = &mut out.body {
        let written = assignments(statements).iter().map(|a| a.target.text.clone()).collect();
        let (indices, reach, limits) = (vec![], vec![], vec![]);
        let checks_of_bounds = BoundChecks::new(program.name.span);
        let mut conversion =
            Conversion { sizes, known, written, indices, reach, ranges: vec![], limits, checks: checks_of_bounds };
        conversion.block(statements)?;
        ranges = conversion.ranges;
        (*statements, checks) = conversion.checks.finish(std::mem::take(statements));
    }
    Ok(Converted { program: out, ranges, checks })
}

struct Conversion<'a> {
    sizes: &'a BTreeMap<String, i64>,
    known: &'a [TensorDecl],
    written: BTreeSet<String>,
    /// Indices of the loops around the statement.
    indices: Vec<String>,
    /// The least and the greatest value of each.
    reach: Vec<Interval>,
    ranges: Vec<IndexRange>,
    /// Limits that conditions of the loop at hand need of what the program computes: whether it is a lower one, the value, and the least, or the greatest.
    limits: Vec<(bool, Text, i64)>,
    checks: BoundChecks,
}

impl Conversion<'_> {
    fn block(&mut self, statements: &mut Vec<Statement>) -> Checked<()> {
        for mut s in std::mem::take(statements) {
            match &mut s {
                Statement::For { index, range, step, body } => {
                    let (lower, upper) =
                        (self.parts(&range.lower, BinaryOp::Max)?, self.parts(&range.upper, BinaryOp::Min)?);
                    if !lower.data.is_empty() || !upper.data.is_empty() {
                        if *step < 1 {
                            let message = format!(
                                "a step of {step} between bounds from data: these are walked upwards, as in `step {}`",
                                step.unsigned_abs()
                            );
                            return Err(Diagnostic::unsupported(range.lower.span, message));
                        }
                        let mut condition = within_bounds(index, &lower.conditions(), &upper.conditions());
                        if let Some(steps) = at_steps(index, range, *step) {
                            condition = condition.joined(Operator::And, steps);
                        }
                        *step = 1;
                        self.not_written_in([&lower.data, &upper.data], body)?;
                        self.guard(index, [&lower.data, &upper.data], body)?;
                        let whole = (lower.whole(BinaryOp::Max), upper.whole(BinaryOp::Min));
                        let (within, recorded) = self.static_range(index, range, lower, upper, body)?;
                        *range = within;
                        let limits = std::mem::take(&mut self.limits);
                        statements.extend(self.checks.record(index, &whole, recorded.into_iter().chain(limits)));
                        *body = vec![Statement::If { condition, body: std::mem::take(body), otherwise: vec![] }];
                    } else if let Some((condition, bounds)) = around_remainders(index, range, *step, &lower, &upper) {
                        (*range, *step) = (bounds, step.signum());
                        *body = vec![Statement::If { condition, body: std::mem::take(body), otherwise: vec![] }];
                    }
                    let reach = remainders::reach(&self.scope(), &self.reach, &range.lower, &range.upper)?;
                    self.indices.push(index.text.clone());
                    self.reach.push(reach.unwrap_or(ANYWHERE));
                    let done = self.block(body);
                    self.indices.pop();
                    self.reach.pop();
                    done?;
                }
                Statement::If { body, otherwise, .. } => {
                    self.block(body)?;
                    self.block(otherwise)?;
                }
                Statement::Assign(_) => {}
            }
            statements.push(s);
        }
        Ok(())
    }

    fn scope(&self) -> Scope<'_> {
        Scope::new(self.sizes, &self.indices, self.known, &plain, Style::Square)
    }

    fn parts(&self, e: &Text, op: BinaryOp) -> Checked<Parts> {
        let mut out = Parts::default();
        let mut open = vec![e];
        while let Some(e) = open.pop() {
            if let Kind::Call(Function::Binary(called), operands) = &e.kind
                && *called == op
            {
                open.extend(operands);
                continue;
            }
            let scope = self.scope();
            out.count += 1;
            match scope.affine(e)? {
                None if scope.reads_data(e) => {
                    let e = scope.widened(e)?;
                    if let Some(dtype) = scope.dtype(&e)?.filter(|d| d.is_float() || *d == DType::Bool) {
                        let message = format!("`{}` is {dtype}, which is not a type of bounds", scope.show(&e));
                        return Err(Diagnostic::invalid(e.span, message));
                    }
                    out.data.push(e)
                }
                None => {
                    out.divides = true;
                    if let Some(extreme) = remainders::extreme(&scope, &self.reach, e, op == BinaryOp::Min)? {
                        out.remainders.push(e.clone());
                        out.affine.push(extreme);
                        continue;
                    }
                    match remainders::around(&scope, &self.reach, e, op == BinaryOp::Min)? {
                        Some(around) => {
                            out.remainders.push(e.clone());
                            out.affine.extend(around);
                        }
                        None => out.affine.push(e.clone()),
                    }
                }
                Some(_) => out.affine.push(e.clone()),
            }
        }
        Ok(out)
    }

    /// Returns true if the program writes an array that `e` reads.
    fn is_written(&self, e: &Text) -> bool {
        name_among(e, &|name| self.written.contains(name)).is_some()
    }

    /// Returns true if `e` is an element whose subscript the program computes.
    fn is_at_computed_place(&self, e: &Text) -> bool {
        let mut is = false;
        e.visit(&mut |e| {
            if let Kind::Element(_, subscripts) = &e.kind {
                is |= subscripts.iter().any(|subscript| self.is_written(subscript));
            }
        });
        is
    }

    /// Refuses bounds from what the loop itself writes: a loop has the bounds that there are when it begins.
    fn not_written_in(&self, bounds: Bounds, body: &[Statement]) -> Checked<()> {
        let written: BTreeSet<&str> = assignments(body).iter().map(|a| &*a.target.text).collect();
        for bound in bounds.into_iter().flatten() {
            if let Some(name) = name_among(bound, &|name| written.contains(name)) {
                let message = format!(
                    "the bound `{}` is from `{name}`, which the loop writes: keep the bound in a temporary that is assigned before the loop",
                    self.scope().show(bound)
                );
                return Err(Diagnostic::unsupported(bound.span, message));
            }
        }
        Ok(())
    }

    /// The static range of a loop, in which its bounds from data must lie where they do not say it, and those that the program is to record: whether it is
    /// the lower one, its value, and its limit.
    fn static_range(
        &mut self,
        index: &Name,
        range: &Range,
        lower: Parts,
        upper: Parts,
        body: &[Statement],
    ) -> Checked<(Range, Vec<(bool, Text, i64)>)> {
        let inside = self.inside(index, body)?;
        let (mut elements, mut recorded): (Vec<Elements>, _) = (vec![], vec![]);
        let mut bound = |parts: Parts, at: &Text, op: BinaryOp| -> Checked<Text> {
            if let Some(joined) = parts.joined(op) {
                if parts.data.iter().any(|e| self.is_at_computed_place(e)) {
                    // nothing to check, but its subscripts are where the loop begins
                    recorded.push((op == BinaryOp::Max, parts.whole(op), if op == BinaryOp::Max { -FAR } else { FAR }));
                }
                return Ok(joined);
            }
            let Some(inside) = &inside else {
                let shown = at.show(Style::Square);
                let message = format!(
                    "the loop `{index}` has a bound from data, and no array is subscripted by `{index}` alone, whose extent would \
                     limit it: write the limit, as in `{}`",
                    if op == BinaryOp::Min { format!("min({shown}, N)") } else { format!("max({shown}, 0)") }
                );
                return Err(Diagnostic::invalid(at.span, message));
            };
            let is_lower = op == BinaryOp::Max;
            let limit = if is_lower { inside.first } else { inside.end };
            let of = |e: &Text| match self.is_written(e) {
                true => Ok(None),
                false => self.elements(e, is_lower, inside),
            };
            match parts.data.iter().map(of).collect::<Checked<Option<Vec<Elements>>>>()? {
                Some(checked) => elements.extend(checked),
                None => recorded.push((is_lower, parts.whole(op), limit)),
            }
            Ok(Text::integer(limit, at.span))
        };
        let lower = bound(lower, &range.lower, BinaryOp::Max)?;
        let upper = bound(upper, &range.upper, BinaryOp::Min)?;
        for bound in &elements {
            let other_side = |e: &Elements| e.is_lower != bound.is_lower && same_elements(e.within, bound.within);
            let both = bound.within.is_some() && elements.iter().any(other_side);
            self.ranges.extend(if both { bound.beyond } else { bound.within });
        }
        Ok((Range { lower, upper }, recorded))
    }

    /// The values of an index that keep it inside of the arrays that it subscripts alone; `None` where there are none of these.
    fn inside(&self, index: &Name, body: &[Statement]) -> Checked<Option<Inside>> {
        self.inside_of(index, |indices, accesses| self.collect(body, indices, &[], accesses))
    }

    /// As [`Self::inside`], of the arrays that `collect` finds for the indices around.
    fn inside_of(
        &self,
        index: &Name,
        collect: impl Fn(&mut Vec<String>, &mut Vec<Accessed>),
    ) -> Checked<Option<Inside>> {
        let mut indices = self.indices.clone();
        indices.push(index.text.clone());
        let var = Var(indices.len() as u32 - 1);
        let mut accesses = vec![];
        collect(&mut indices, &mut accesses);
        let scope = Scope::new(self.sizes, &indices, self.known, &plain, Style::Square);
        let (mut open, mut reach): ((Option<i64>, Option<i64>), Option<(i64, i64)>) = ((None, None), None);
        for Accessed { name, subscripts, facts } in &accesses {
            let Some(array) = self.known.iter().find(|a| a.name == *name) else { continue };
            for (e, &extent) in subscripts.iter().zip(&array.shape) {
                let Ok(Some(form)) = scope.affine(e) else { continue };
                let Affine { terms, constant } = form;
                let [(v, c)] = terms[..] else { continue };
                if v != var {
                    continue;
                }
                // 0 ≤ c·v + constant < extent
                let (low, high) =
                    if c > 0 { (-constant, extent - 1 - constant) } else { (constant + 1 - extent, constant) };
                let (first, end) = (ceil_div(low, c.abs()), high.div_euclid(c.abs()) + 1);
                let (a, b) = reach.unwrap_or((0, extent));
                reach = Some((a.min(first), b.max(end).max(extent)));
                let (from, to) = values_of(var, facts);
                if from < first {
                    open.0 = Some(open.0.map_or(first, |a| a.max(first)));
                }
                if to >= end {
                    open.1 = Some(open.1.map_or(end, |b| b.min(end)));
                }
            }
        }
        Ok(reach.map(|reach| {
            let first = open.0.unwrap_or(reach.0);
            Inside { first, end: open.1.unwrap_or(reach.1).max(first), reach }
        }))
    }

    /// The elements of a bound that lie in the range of a loop; `None` where they are not those of one array, with numbers added or multiplied.
    fn elements(&self, e: &Text, is_lower: bool, inside: &Inside) -> Checked<Option<Elements>> {
        let Inside { first, end, reach } = *inside;
        // where the loop is empty a bound may lie beyond the other end by what is added to an element of the range
        let added = shifted(e, 0).map_or(0, |(_, by)| by.clamp(-FAR, FAR));
        let (within, beyond) = if is_lower {
            ((first, reach.1.max(end).saturating_add(added.max(0))), (first, FAR))
        } else {
            ((reach.0.min(first).saturating_add(added.min(0)), end), (-FAR, end))
        };
        let value = self.scope().value(&e.clone().cast(DType::I64), DType::I64)?;
        let of = |(low, high): (i64, i64)| {
            let offset = Expr::Const(Scalar::i64(low));
            let value = if low == 0 { value.clone() } else { Expr::binary(BinaryOp::Sub, value.clone(), offset) };
            element_range(self.known, &[], &value, high - low + 1)
        };
        match (of(within), of(beyond)) {
            (Ok(within), Ok(beyond)) => Ok(Some(Elements { is_lower, within, beyond })),
            _ => match self.wraps(e) {
                Some(message) => Err(Diagnostic::unsupported(e.span, message)),
                None => Ok(None),
            },
        }
    }

    /// The message for a bound that is computed in a type of few bits, and may wrap around there; `None` for another one.
    fn wraps(&self, e: &Text) -> Option<String> {
        let scope = self.scope();
        let dtype = scope.dtype(e).ok()?.filter(|dtype| !matches!(dtype, DType::I32 | DType::I64))?;
        let shown = scope.show(e);
        let wide = wide(e).filter(|wide| !matches!(wide.kind, Kind::Cast(..)))?;
        Some(format!(
            "the bound `{shown}` is computed in {dtype}, where it may wrap around: write `{}`",
            scope.show(&wide)
        ))
    }

    /// Adds affine conditions to those, of statements and of selections, that compare an index with elements that bound its loop, as `k > p[i]` in a loop from `p[i]`: the values of the index that
    /// keep it inside below them. Elements with which others would count are refused by the run.
    fn guard(&mut self, index: &Name, bounds: Bounds, body: &mut [Statement]) -> Checked<()> {
        for s in body {
            match s {
                Statement::For { body, .. } => self.guard(index, bounds, body)?,
                Statement::If { condition, body, otherwise } => {
                    self.guard(index, bounds, body)?;
                    self.guard(index, bounds, otherwise)?;
                    let inside = |block: &[Statement]| {
                        self.inside_of(index, |indices, out| {
                            self.collect(block, indices, &[], out);
                            self.reads(condition, indices, &[], out);
                        })
                    };
                    let branches = [inside(body)?, inside(otherwise)?];
                    *condition = self.guarded(index, bounds, condition, branches);
                }
                Statement::Assign(a) => a.value = self.guarded_selections(index, bounds, &a.value)?,
            }
        }
        Ok(())
    }

    /// An expression of whose selections the conditions are [`Self::guarded`] for what they choose where they hold.
    fn guarded_selections(&mut self, index: &Name, bounds: Bounds, e: &Text) -> Checked<Text> {
        let mut of = |e: &Text| self.guarded_selections(index, bounds, e);
        let kind = match &e.kind {
            Kind::Call(function, operands) => {
                let mut operands = operands.iter().map(of).collect::<Checked<Vec<Text>>>()?;
                if let (Function::Select, [condition, yes, no]) = (function, &mut operands[..]) {
                    let inside = |branch: &Text| {
                        self.inside_of(index, |indices, out| {
                            self.reads(branch, indices, &[], out);
                            self.reads(condition, indices, &[], out);
                        })
                    };
                    let branches = [inside(yes)?, inside(no)?];
                    *condition = self.guarded(index, bounds, condition, branches);
                }
                Kind::Call(*function, operands)
            }
            Kind::Binary(operator, a, b) => Kind::Binary(*operator, Box::new(of(a)?), Box::new(of(b)?)),
            Kind::Cast(dtype, a) => Kind::Cast(*dtype, Box::new(of(a)?)),
            Kind::Negate(a) => Kind::Negate(Box::new(of(a)?)),
            Kind::Not(a) => Kind::Not(Box::new(of(a)?)),
            kind => kind.clone(),
        };
        Ok(Text { kind, span: e.span })
    }

    /// A condition with the values of an index that it leaves where all elements are good, for what it decides: for the branch in which it holds, or
    /// for the other one. The branches need the index in these ranges.
    fn guarded(&mut self, index: &Name, bounds: Bounds, condition: &Text, branches: [Option<Inside>; 2]) -> Text {
        for (truth, inside) in [true, false].into_iter().zip(branches) {
            let mut limits = vec![];
            if let Some(inside) = inside {
                for (part, holds) in condition.parts(truth) {
                    self.limits(index, bounds, part, holds, &mut limits);
                }
                let limits = limits.into_iter().filter_map(|limit| self.affine_limit(bounds, limit, &inside));
                let limits: Vec<(CompareOp, i64)> = limits.collect();
                if !limits.is_empty() {
                    return with_limits(index, condition, truth, &limits);
                }
            }
        }
        condition.clone()
    }

    /// The comparison of an index with a number that follows from one with an element where all elements are good; the run refuses the others. `None` where the
    /// index needs no limit there, or the element does not bound its loop.
    fn affine_limit(
        &mut self,
        bounds: Bounds,
        (is_lower, limit): (bool, Text),
        inside: &Inside,
    ) -> Option<(CompareOp, i64)> {
        let affine = match is_lower {
            true if inside.first > inside.reach.0 => (CompareOp::Ge, inside.first),
            false if inside.end < inside.reach.1 => (CompareOp::Lt, inside.end),
            _ => return None,
        };
        let known: Vec<&Text> = bounds.into_iter().flatten().flat_map(|e| self.elements_of(e)).collect();
        let read = self.elements_of(&limit);
        if read.is_empty() || !read.iter().all(|e| known.contains(e)) {
            return None;
        }
        let elements = if self.is_written(&limit) { None } else { self.elements(&limit, is_lower, inside).ok()? };
        match elements {
            Some(elements) => self.ranges.extend(elements.beyond),
            None => self.limits.push((is_lower, limit, affine.1)),
        }
        Some(affine)
    }

    /// The elements that an expression reads.
    fn elements_of<'e>(&self, e: &'e Text) -> Vec<&'e Text> {
        let mut out = vec![];
        e.visit(&mut |e| {
            let is_array = |name: &str| self.known.iter().any(|a| a.name == name);
            if matches!(&e.kind, Kind::Element(..)) || matches!(&e.kind, Kind::Name(name) if is_array(name)) {
                out.push(e);
            }
        });
        out
    }

    /// Adds the limits from data that a comparison states of an index where it holds, or where it does not, each with whether it is a lower one:
    /// `index ≥ limit`, or `index < limit`. An index that is another number than the first, or the last, lies behind it, or before it.
    fn limits(&self, index: &Name, bounds: Bounds, e: &Text, holds: bool, out: &mut Vec<(bool, Text)>) {
        let Kind::Binary(Operator::Compare(op), a, b) = &e.kind else { return };
        let op = if holds { *op } else { op.opposite() };
        let mut indices = self.indices.clone();
        indices.push(index.text.clone());
        let var = Var(indices.len() as u32 - 1);
        let scope = Scope::new(self.sizes, &indices, self.known, &plain, Style::Square);
        let mut difference = Difference::new(&scope);
        if difference.add(a, 1).and_then(|()| difference.add(b, -1)).is_none() {
            return;
        }
        let Some((sign, data)) = difference.data else { return };
        // an opposite is one of integers
        let is_integer = scope.dtype(data).is_ok_and(|dtype| dtype.is_some_and(|d| !d.is_float()));
        let form = difference.form;
        if form.terms != [(var, -sign)] || !scope.reads_data(data) || !is_integer {
            return;
        }
        // index + constant against the data
        let (op, constant) = if sign < 0 { (op, form.constant) } else { (swapped(op), -form.constant) };
        let sides: &[(bool, i64)] = match op {
            CompareOp::Ge => &[(true, 0)],
            CompareOp::Gt => &[(true, 1)],
            CompareOp::Lt => &[(false, 0)],
            CompareOp::Le => &[(false, 1)],
            CompareOp::Eq => &[(true, 0), (false, 1)],
            CompareOp::Ne => {
                let is = |bounds: &[Text], by: i64| {
                    let value = shifted(data, by - constant);
                    value.is_some() && bounds.iter().any(|bound| shifted(bound, 0) == value)
                };
                match (is(bounds[0], 0), is(bounds[1], 1)) {
                    (true, _) => &[(true, 1)],
                    (false, true) => &[(false, 0)],
                    (false, false) => &[],
                }
            }
        };
        let limit =
            |by: i64| data.clone().cast(DType::I64).joined(Operator::Add, Text::integer(by - constant, data.span));
        out.extend(sides.iter().map(|&(is_lower, beyond)| (is_lower, limit(beyond))));
    }

    /// The elements that statements read and write, with forms that are ≥ 0 where they count.
    fn collect(&self, body: &[Statement], indices: &mut Vec<String>, facts: &[Affine], out: &mut Vec<Accessed>) {
        for s in body {
            match s {
                Statement::Assign(a) => {
                    a.subscripts.iter().for_each(|e| self.reads(e, indices, facts, out));
                    self.reads(&a.value, indices, facts, out);
                    let (name, subscripts) = (a.target.text.clone(), a.subscripts.clone());
                    out.push(Accessed { name, subscripts, facts: facts.to_vec() });
                }
                Statement::If { condition, body, otherwise } => {
                    self.reads(condition, indices, facts, out);
                    let [holds, fails] = [true, false].map(|truth| self.under(condition, truth, indices, facts));
                    self.collect(body, indices, &holds, out);
                    self.collect(otherwise, indices, &fails, out);
                }
                Statement::For { index, range, body, .. } => {
                    [&range.lower, &range.upper].into_iter().for_each(|e| self.reads(e, indices, facts, out));
                    indices.push(index.text.clone());
                    self.collect(body, indices, facts, out);
                    indices.pop();
                }
            }
        }
    }

    /// The elements that an expression reads.
    fn reads(&self, e: &Text, indices: &[String], facts: &[Affine], out: &mut Vec<Accessed>) {
        let mut read = |e: &Text, facts: &[Affine]| self.reads(e, indices, facts, out);
        match &e.kind {
            Kind::Call(Function::Select, operands) if operands.len() == 3 => {
                read(&operands[0], facts);
                for (branch, truth) in [(&operands[1], true), (&operands[2], false)] {
                    read(branch, &self.under(&operands[0], truth, indices, facts));
                }
            }
            Kind::Binary(operator @ (Operator::And | Operator::Or), a, b) => {
                read(a, facts);
                read(b, &self.under(a, *operator == Operator::And, indices, facts));
            }
            Kind::Element(name, subscripts) => {
                subscripts.iter().for_each(|e| read(e, facts));
                out.push(Accessed { name: name.text.clone(), subscripts: subscripts.clone(), facts: facts.to_vec() });
            }
            Kind::Call(_, operands) => operands.iter().for_each(|e| read(e, facts)),
            Kind::Binary(_, a, b) => [a, b].into_iter().for_each(|e| read(e, facts)),
            Kind::Cast(_, a) | Kind::Negate(a) | Kind::Not(a) => read(a, facts),
            _ => {}
        }
    }

    fn under(&self, condition: &Text, truth: bool, indices: &[String], facts: &[Affine]) -> Vec<Affine> {
        let scope = Scope::new(self.sizes, indices, self.known, &plain, Style::Square);
        [facts, &condition::facts(&scope, condition, truth)].concat()
    }
}

/// A name in an expression of which `is` is true.
fn name_among<'e>(e: &'e Text, is: &dyn Fn(&str) -> bool) -> Option<&'e str> {
    let mut found = None;
    e.visit(&mut |e| {
        if let Kind::Element(Name { text: name, .. }, _) | Kind::Name(name) = &e.kind
            && is(name)
        {
            found = Some(&**name);
        }
    });
    found
}

/// The bounds from data of a loop: the lower ones and the upper ones.
type Bounds<'a> = [&'a [Text]; 2];

/// An element of an array that the body of a loop uses, and forms that are ≥ 0 where it does.
struct Accessed {
    name: String,
    subscripts: Vec<Text>,
    facts: Vec<Affine>,
}

/// The values of an index, from the first to one past the last.
#[derive(Clone, Copy)]
struct Inside {
    /// Those that keep it inside of all arrays where no condition does.
    first: i64,
    end: i64,
    /// Those that keep it inside of some array, and the places of the arrays.
    reach: (i64, i64),
}

/// The elements of a bound, as checks before a run.
struct Elements {
    is_lower: bool,
    /// Those that keep it among the values of the index, or beside them on the other side, where the loop is empty.
    within: Option<IndexRange>,
    /// Those that keep it on its side of the range.
    beyond: Option<IndexRange>,
}

/// Beyond all extents.
const FAR: i64 = 1 << 61;

/// The values of an index of which nothing is known.
const ANYWHERE: Interval = (-FAR, FAR);

fn same_elements(a: Option<IndexRange>, b: Option<IndexRange>) -> bool {
    let of = |range: Option<IndexRange>| range.map(|r| (r.tensor, r.offset, r.stride));
    of(a) == of(b)
}
