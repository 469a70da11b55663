//! `loop` programs to Scops.
//!
//! Each assignment becomes a statement for each case of the conditions around it; its iterators are the loops around
//! it, a loop's iterator being its index minus its least value, so that boxes begin at 0. The original order is the
//! tree of loops and sequences as written; statements that never run are not in it, and it may have none. Every access
//! is proven inside of its array for all iterations, or refused with the first iteration that leaves it. Temporaries are
//! one for each of their live ranges, unless the program is refused so: messages are about the program as it is written.

use super::condition;
use super::def;
use super::dynamic_loops::{self, Converted};
use super::element_ranges;
use super::forwarding;
use super::if_conversion;
use super::live_ranges;
use super::scope::plain;
use super::source::{Checked, Diagnostic};
use super::subscript_checks::{self, SubscriptChecks};
use super::syntax::{Access as Use, Assign, Assignment, Body, Combine, Program, Range, Statement, assignments};
use crate::expr::dynamic_bounds::negative;
use crate::expr::narrow::Interval;
use crate::expr::syntax::Span;
use crate::expr::syntax::Style;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, Scalar};
use crate::expr::{Affine, Var};
use crate::language::environment::{Reader, Scope};
use crate::poly::analysis::index_range::unbounded_subscript;
use crate::poly::analysis::legality::instance_name;
use crate::poly::analysis::unwritten::{UnwrittenRead, unwritten_read};
use crate::poly::analysis::value_range::ValueRanges;
use crate::poly::normalize::rounding;
use crate::poly::schedule::{Band, Node, Row, Schedule, SequencePart, in_sequence};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, Reduced};
use crate::poly::statement::{ElementRange, Iterator, Role, StatementId, TensorDecl, number, ranges};
use std::collections::{BTreeMap, BTreeSet};

/// Most statements of one program.
const STATEMENTS: usize = 200;

/// The Scop of a loop program, its arrays in their order.
pub fn lower(program: &Program, sizes: &BTreeMap<String, i64>) -> Checked<Scop> {
    match live_ranges::renamed(program).map(|renamed| lower_proven(&renamed, sizes)) {
        Some(Ok(scop)) => Ok(scop),
        _ => lower_proven(program, sizes),
    }
}

/// The Scop, of which every access is proven inside and every read comes after an assignment.
fn lower_proven(program: &Program, sizes: &BTreeMap<String, i64>) -> Checked<Scop> {
    let (scop, spans) = lower_from(program, sizes, i64::MAX)?;
    if let Some((statement, error)) = unbounded_subscript(&scop.as_definitions()) {
        return Err(Diagnostic { span: spans[statement], error });
    }
    let read = unwritten_read(&scop).map_err(|error| Diagnostic { span: program.name.span, error })?;
    match read {
        Some(read) => Err(unwritten(&scop, &read, &spans)),
        None => Ok(scop),
    }
}

/// Lowers a loop program with each iterator equal to its index as written, where that is never negative: the Scop that
/// schedules by hand start from.
pub fn lower_over_indices(program: &Program, sizes: &BTreeMap<String, i64>) -> Checked<Scop> {
    let renamed = live_ranges::renamed(program).filter(|renamed| lower_proven(renamed, sizes).is_ok());
    Ok(lower_from(renamed.as_ref().unwrap_or(program), sizes, 0)?.0)
}

/// The Scop, and where each of its statements is in the text. Iterators begin at the least value of their index, or at `origin`
/// where that is smaller.
fn lower_from(program: &Program, sizes: &BTreeMap<String, i64>, origin: i64) -> Checked<(Scop, Vec<Span>)> {
    let (scop, spans) = lower_with(program, sizes, origin, &[])?;
    if scop.tensors.iter().all(|t| t.role != Role::Check) {
        return Ok((scop, spans));
    }
    let values = ValueRanges::new(&scop).map_err(|error| Diagnostic { span: program.name.span, error })?;
    match &values.bounded()[..] {
        [] => Ok((scop, spans)),
        bounded => lower_with(program, sizes, origin, bounded),
    }
}

/// As [`lower_from`], where the assignments keep the elements of some arrays in an interval.
fn lower_with(
    program: &Program,
    sizes: &BTreeMap<String, i64>,
    origin: i64,
    bounded: &[(BufferId, Interval)],
) -> Checked<(Scop, Vec<Span>)> {
    let known = arrays(program, sizes)?;
    let Converted { program, ranges, checks: of_bounds } =
        dynamic_loops::convert(&forwarding::forward(program), sizes, &known)?;
    let known = [known, of_bounds.clone()].concat();
    let program = &if_conversion::convert(&program, sizes, &known)?;
    let Body::Loop { statements, .. } = &program.body else {
        return Err(Diagnostic::invalid(program.name.span, format!("`{}` is not a loop program", program.name)));
    };
    let mut arrays = arrays(program, sizes)?;
    element_ranges::declare(&mut arrays, &ranges);
    arrays.extend(of_bounds);
    for (array, (lower, upper)) in bounded {
        // of a tensor of a check the interval is what a run checks
        if let Some(array) = arrays.get_mut(array.0 as usize).filter(|array| array.role != Role::Check) {
            array.ranges.push(ElementRange { offset: 0, stride: 1, lower: *lower, upper: *upper });
        }
    }
    let isl = Isl::default();
    let assigned = assignments(statements);
    let times = |array: &TensorDecl| assigned.iter().filter(|a| a.target.text == array.name).count();
    let changing = (0..).map(BufferId).zip(&arrays).filter(|(_, array)| times(array) > 1).map(|(b, _)| b).collect();
    let checks = SubscriptChecks::new(&arrays, changing);
    let mut walk = Walk { sizes, origin, arrays: &arrays, checks, isl, statements: vec![], spans: vec![] };
    let order = walk.block(statements, &Nest::default())?;
    let (mut statements, mut spans) = (walk.statements, walk.spans);
    let subscript_checks::Checked { tensors, first_values: (first_values, mut children), ranges } =
        walk.checks.finish(statements.len() as u32);
    element_ranges::declare(&mut arrays, &ranges);
    spans.extend(first_values.iter().map(|_| program.name.span));
    statements.extend(first_values);
    children.extend(order);
    let root = in_sequence(flat(children)).map_or(Node::Sequence(vec![]), |(_, root)| root);
    arrays.extend(tensors);
    number(&mut statements);
    let order = Schedule { root };
    let scop = Scop { name: program.name.text.clone(), tensors: arrays, statements, order, ..Scop::default() };
    scop.verify().map_err(|error| Diagnostic { span: program.name.span, error })?;
    Ok((scop, spans))
}

/// The arrays with their shapes and roles.
pub fn arrays(program: &Program, sizes: &BTreeMap<String, i64>) -> Checked<Vec<TensorDecl>> {
    let Body::Loop { arrays, statements, .. } = &program.body else { return Ok(vec![]) };
    let scope = Scope::new(sizes, &[], &[], &plain, Style::Square);
    let assigned = assignments(statements);
    let mut out: Vec<TensorDecl> = vec![];
    for array in arrays {
        let name = &array.name;
        if sizes.contains_key(&name.text) || out.iter().any(|a| a.name == name.text) {
            return Err(Diagnostic::invalid(name.span, format!("`{name}` is already the name of a size or an array")));
        }
        let written = assigned.iter().find(|a| a.target == *name).map(|a| a.target.span);
        let role = match (array.access, written) {
            (Some(Use::In) | None, None) => Role::Input,
            (Some(Use::In), Some(span)) => {
                return Err(Diagnostic::invalid(span, format!("`{name}` is an `in` array and cannot be written")));
            }
            (None | Some(Use::InOut), _) => Role::InOut,
            (Some(Use::Out), Some(_)) => Role::Output,
            (Some(Use::Temporary), Some(_)) => Role::Temporary,
            (Some(Use::Out | Use::Temporary), None) => {
                return Err(Diagnostic::invalid(name.span, format!("nothing writes `{name}`")));
            }
        };
        let shape = def::shape(&scope, array)?;
        out.push(TensorDecl::new(&name.text, array.dtype, shape, role));
    }
    Ok(out)
}

/// The loops and conditions around a place.
#[derive(Clone, Default)]
struct Nest {
    indices: Vec<String>,
    /// Each index over the iterators.
    values: Vec<Affine>,
    iterators: Vec<Iterator>,
    /// Conditions, each ≥ 0, that the box does not imply.
    domain: Vec<Affine>,
    /// Iterations run from the last to the first.
    backwards: Vec<bool>,
}

impl Nest {
    fn over_iterators(&self, a: &Affine) -> Affine {
        a.compose(&self.values)
    }

    fn bounds(&self, a: &Affine) -> (i64, i64) {
        a.bounds(ranges(&self.iterators))
    }

    /// Adds a condition unless the box implies it.
    fn restrict(&mut self, a: Affine) {
        if self.bounds(&a).0 < 0 {
            self.domain.push(a);
        }
    }

    fn polyhedron(&self) -> Polyhedron {
        Polyhedron::domain(&crate::poly::statement::Statement {
            name: String::new(),
            iterators: self.iterators.clone(),
            domain: self.domain.clone(),
            target: BufferId(0),
            write: vec![],
            computed: vec![],
            reduce: None,
            body: Expr::Const(Scalar::bool(false)),
        })
    }
}

/// The factors of a bound, at most: products of them with loop bounds stay inside of 64 bits.
const LARGEST_FACTOR: u64 = 1 << 16;

/// `⌊form / divisor⌋`.
#[derive(Clone)]
struct Quotient {
    form: Affine,
    divisor: i64,
}

impl Quotient {
    fn offset(&self, by: i64) -> Quotient {
        Quotient { form: self.form.clone().offset(by * self.divisor), ..*self }
    }

    /// The product with a number; `None` where that is no quotient.
    fn scale(&self, by: i64) -> Option<Quotient> {
        match (self.divisor, by) {
            (1, _) => Some(Quotient { form: self.form.scale(by), divisor: 1 }),
            // -⌊a / d⌋ = ⌊(d - 1 - a) / d⌋
            (divisor, -1) => Some(Quotient { form: self.form.scale(-1).offset(divisor - 1), divisor }),
            (_, 1) => Some(self.clone()),
            _ => None,
        }
    }

    /// The sum of two of which one is whole; `None` for others.
    fn plus(&self, other: &Quotient) -> Option<Quotient> {
        match (self.divisor, other.divisor) {
            (divisor, 1) => Some(Quotient { form: self.form.add_scaled(&other.form, divisor), divisor }),
            (1, divisor) => Some(Quotient { form: other.form.add_scaled(&self.form, divisor), divisor }),
            _ => None,
        }
    }
}

/// Statements below a place and their order.
type Ordered = Option<SequencePart>;

struct Walk<'a> {
    sizes: &'a BTreeMap<String, i64>,
    origin: i64,
    arrays: &'a [TensorDecl],
    checks: SubscriptChecks<'a>,
    isl: Isl,
    statements: Vec<crate::poly::statement::Statement>,
    /// The text of each statement.
    spans: Vec<Span>,
}

impl Walk<'_> {
    fn block(&mut self, statements: &[Statement], nest: &Nest) -> Checked<Ordered> {
        let (mut children, values) = (vec![], self.checks.values());
        for s in statements {
            children.extend(self.statement(s, nest)?);
        }
        self.checks.forget(values);
        Ok(in_sequence(children))
    }

    fn statement(&mut self, s: &Statement, nest: &Nest) -> Checked<Vec<SequencePart>> {
        match s {
            Statement::For { index, range, step, body } => {
                let Some(inner) = self.enter(index, range, *step, nest)? else {
                    return Ok(vec![]);
                };
                let recorded = self.checks.enter(&self.written(body));
                let block = self.block(body, &inner)?;
                self.checks.leave(recorded);
                let Some((ids, child)) = block else { return Ok(vec![]) };
                let depth = nest.iterators.len();
                let sign = if inner.backwards[depth] { -1 } else { 1 };
                let time = Affine::var(Var(depth as u32)).scale(sign);
                let row = Row::serial(&*index.text, ids.iter().map(|&id| (id, time.clone())).collect());
                Ok(vec![(ids, Node::Band(Band { rows: vec![row], permutable: false }, Box::new(child)))])
            }
            Statement::If { condition, body, otherwise } => {
                let mut children = vec![];
                for (block, truth) in [(body, true), (otherwise, false)] {
                    if block.is_empty() {
                        continue;
                    }
                    let scope = self.scope(&nest.indices, &plain);
                    for piece in condition::pieces(&scope, condition, truth)? {
                        let mut inner = nest.clone();
                        piece.iter().for_each(|c| inner.restrict(nest.over_iterators(c)));
                        let recorded = self.checks.enter(&self.written(block));
                        children.extend(self.block(block, &inner)?);
                        self.checks.leave(recorded);
                    }
                }
                Ok(children)
            }
            Statement::Assign(a) => {
                if self.is_empty(&nest.polyhedron(), a.span)? {
                    return Ok(vec![]);
                }
                let name = a.label.as_ref().unwrap_or(&a.target).text.clone();
                let mut assigned = crate::poly::statement::Statement { name, ..self.assign(a, nest)? };
                let mut children = vec![];
                let records = self.checks.keep_inside(&mut assigned);
                for s in records.into_iter().chain([assigned]) {
                    if self.statements.len() == STATEMENTS {
                        let message = format!("a program of more than {STATEMENTS} statements");
                        return Err(Diagnostic::unsupported(a.span, message));
                    }
                    children.push((vec![StatementId(self.statements.len() as u32)], Node::Leaf));
                    self.statements.push(s);
                    self.spans.push(a.span);
                }
                Ok(children)
            }
        }
    }

    /// The arrays that statements assign to.
    fn written(&self, statements: &[Statement]) -> Vec<BufferId> {
        let assigned: BTreeSet<&str> = assignments(statements).iter().map(|a| &*a.target.text).collect();
        let all = (0..).map(BufferId).zip(self.arrays);
        all.filter(|(_, array)| assigned.contains(&*array.name)).map(|(id, _)| id).collect()
    }

    fn scope<'s>(&'s self, indices: &'s [String], read: &'s Reader<'s>) -> Scope<'s> {
        Scope::new(self.sizes, indices, self.arrays, read, Style::Square)
    }

    /// Inside of a loop; `None` when it has no iterations.
    fn enter(&self, index: &Name, range: &Range, step: i64, nest: &Nest) -> Checked<Option<Nest>> {
        let taken = self.sizes.contains_key(&index.text) || nest.indices.contains(&index.text);
        if taken || self.arrays.iter().any(|a| a.name == index.text) {
            let message = format!("`{index}` is already the name of a size, an array or an index");
            return Err(Diagnostic::invalid(index.span, message));
        }
        let lower = self.bounds(&range.lower, BinaryOp::Max, nest)?;
        let upper = self.bounds(&range.upper, BinaryOp::Min, nest)?;
        // the last iteration: one before the upper bound
        let last: Vec<Quotient> = upper.iter().map(|b| b.offset(-1)).collect();
        let least = lower.iter().map(|b| nest.bounds(&b.form).0.div_euclid(b.divisor)).max().unwrap_or(0);
        let most = last.iter().map(|b| nest.bounds(&b.form).1.div_euclid(b.divisor)).min().unwrap_or(-1);
        let depth = nest.iterators.len() as u32;
        let iterator = Affine::var(Var(depth));
        let (anchor, what) = if step > 0 { (&lower, "lower") } else { (&last, "upper") };
        let (value, span) = match (step, &anchor[..]) {
            (1 | -1, _) => {
                let first = least.min(self.origin);
                (iterator.clone().offset(first), if most < least { -1 } else { most - first })
            }
            (_, [Quotient { form: start, divisor: 1 }]) => {
                let (lo, hi) = nest.bounds(start);
                let span = if step > 0 { most - lo } else { hi - least };
                (start.add_scaled(&iterator, step), span.div_euclid(step.abs()))
            }
            _ => {
                let bound = if step > 0 { &range.lower } else { &range.upper };
                let message = format!("a step of {step} from one of several {what} bounds");
                return Err(Diagnostic::unsupported(bound.span, message));
            }
        };
        if span < 0 {
            return Ok(None);
        }
        if span >= 1 << 40 {
            return Err(Diagnostic::invalid(index.span, format!("the loop `{index}` has {span} iterations")));
        }
        let mut inner = nest.clone();
        let index_of = Some(&value).filter(|value| **value != iterator).cloned();
        inner.iterators.push(Iterator { index: index_of, ..Iterator::new(&index.text, span + 1) });
        inner.indices.push(index.text.clone());
        inner.backwards.push(step == -1);
        for b in &lower {
            inner.restrict(value.scale(b.divisor).add_scaled(&b.form, -1).offset(b.divisor - 1));
        }
        for b in &last {
            inner.restrict(b.form.add_scaled(&value, -b.divisor));
        }
        inner.values.push(value);
        Ok(Some(inner))
    }

    /// A bound as quotients of forms over iterators, of which it is the greatest (`Max`) or the least (`Min`).
    fn bounds(&self, e: &Text, op: BinaryOp, nest: &Nest) -> Checked<Vec<Quotient>> {
        if let Some(bounds) = self.quotients(e, op, nest)? {
            return Ok(bounds);
        }
        let scope = self.scope(&nest.indices, &plain);
        let (bound, joined) = (scope.show(e), op.name());
        if scope.reads_data(e) {
            let message = format!("the bound `{bound}` depends on data, and must be affine");
            return Err(Diagnostic::invalid(e.span, message));
        }
        let compared = if op == BinaryOp::Max { ">=" } else { "<" };
        let message = format!(
            "the bound `{bound}` is not affine, nor the {joined} of affine forms and of quotients that are not negative: write bounds \
             that hold it, and a condition in the loop, as in `if k {compared} {bound}`"
        );
        Err(Diagnostic::invalid(e.span, message))
    }

    /// [`Self::bounds`]; `None` for a value of another form.
    fn quotients(&self, e: &Text, op: BinaryOp, nest: &Nest) -> Checked<Option<Vec<Quotient>>> {
        let scope = self.scope(&nest.indices, &plain);
        if let Some(a) = scope.affine(e)? {
            return Ok(Some(vec![Quotient { form: nest.over_iterators(&a), divisor: 1 }]));
        }
        let other = if op == BinaryOp::Max { BinaryOp::Min } else { BinaryOp::Max };
        let number =
            |e: &Text| -> Checked<Option<i64>> { Ok(scope.affine(e)?.filter(Affine::is_constant).map(|c| c.constant)) };
        let scaled = |e: &Text, by: i64| -> Checked<Option<Vec<Quotient>>> {
            let bounds = self.quotients(e, if by < 0 { other } else { op }, nest)?;
            Ok(bounds.and_then(|bounds| bounds.iter().map(|b| b.scale(by)).collect()))
        };
        let (a, b) = match &e.kind {
            Kind::Call(Function::Binary(called), operands) if *called == op => {
                let (a, b) = (self.quotients(&operands[0], op, nest)?, self.quotients(&operands[1], op, nest)?);
                return Ok(a.zip(b).map(|(a, b)| [a, b].concat()));
            }
            Kind::Negate(a) => return scaled(a, -1),
            Kind::Binary(Operator::Mul, a, b) => {
                return match (number(a)?, number(b)?) {
                    (Some(by), _) if by.unsigned_abs() <= LARGEST_FACTOR => scaled(b, by),
                    (_, Some(by)) if by.unsigned_abs() <= LARGEST_FACTOR => scaled(a, by),
                    _ => Ok(None),
                };
            }
            Kind::Binary(Operator::Div, a, b) => {
                let Some(by) = number(b)?.filter(|by| *by > 0) else { return Ok(None) };
                // the language divides towards zero
                let is_small =
                    |b: &Quotient| b.divisor.unsigned_abs().saturating_mul(by.unsigned_abs()) <= LARGEST_FACTOR;
                let floor = |b: &Quotient| nest.bounds(&b.form).0 >= 0 && is_small(b);
                let bounds = self.quotients(a, op, nest)?.filter(|bounds| bounds.iter().all(floor));
                let divided = |b: Quotient| Quotient { divisor: b.divisor * by, ..b };
                return Ok(bounds.map(|bounds| bounds.into_iter().map(divided).collect()));
            }
            Kind::Binary(Operator::Add, a, b) => (self.quotients(a, op, nest)?, self.quotients(b, op, nest)?),
            Kind::Binary(Operator::Sub, a, b) => (self.quotients(a, op, nest)?, scaled(b, -1)?),
            _ => return Ok(None),
        };
        let Some((a, b)) = a.zip(b) else { return Ok(None) };
        let sums = a.iter().flat_map(|a| b.iter().map(move |b| a.plus(b)));
        Ok(sums.collect())
    }

    fn assign(&self, a: &Assignment, nest: &Nest) -> Checked<crate::poly::statement::Statement> {
        let read = |span, access, facts: &[Affine]| self.inside(span, access, facts, nest);
        let scope = self.scope(&nest.indices, &read);
        scope.expect_declared(&a.target, a.subscripts.len(), &a.value)?;
        let target = scope.resolve(a.target.span, &a.target, a.subscripts.len())?;
        let dtype = self.arrays[target.0 as usize].dtype;
        let index = a.subscripts.iter().map(|e| scope.subscript(e)).collect::<Checked<Vec<Index>>>()?;
        let element = Access { buffer: target, index, guard: vec![], otherwise: None };
        self.inside(a.target.span, element.clone(), &[], nest)?;
        let value = scope.value(&a.value, dtype)?;
        let target_read = || Expr::Load(element.clone());
        let (reduce, value) = match a.assign {
            Assign::Set | Assign::Reduce(_) => match value {
                // `x = max(x, e)` is `x max= e`.
                Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), x, e) if *x == target_read() => (Some(op), *e),
                Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), e, x) if *x == target_read() => (Some(op), *e),
                value => (None, value),
            },
            Assign::Update(Combine::Div) => (None, target_read() / value),
            Assign::Update(Combine::Sub) => (Some(def::reduction(Combine::Add, dtype, a.span)?), negative(value)),
            Assign::Update(combine) => (Some(def::reduction(combine, dtype, a.span)?), value),
        };
        let write = element.index.iter().map(|i| i.affine().map_or(Affine::constant(0), |a| nest.over_iterators(a)));
        let over_iterators = |e: &Expr| e.substitute(&mut |v| nest.values[v.0 as usize].clone());
        let computed = element.index.iter().enumerate().filter_map(|(d, i)| Some((d, over_iterators(i.value()?))));
        Ok(crate::poly::statement::Statement {
            name: String::new(),
            iterators: nest.iterators.clone(),
            domain: nest.domain.clone(),
            target,
            write: write.collect(),
            computed: computed.collect(),
            reduce,
            body: rounding::round_repeated_in(
                &value.substitute(&mut |v| nest.values[v.0 as usize].clone()),
                reduce,
                self.arrays,
            ),
        })
    }

    /// A read or write that stays inside of its array, guarded by `facts` where it needs them.
    fn inside(&self, span: Span, mut access: Access, facts: &[Affine], nest: &Nest) -> Checked<Access> {
        let decl = &self.arrays[access.buffer.0 as usize];
        let mut guarded = false;
        for (d, index) in access.index.iter().enumerate() {
            let Index::Affine(form) = index else { continue };
            let below = Affine::constant(decl.shape[d] - 1).add_scaled(form, -1);
            for inside in [form, &below] {
                if self.leaves(span, inside, &[], nest)?.is_none() {
                    continue;
                }
                guarded = true;
                if let Some(point) = self.leaves(span, inside, facts, nest)? {
                    return Err(outside(span, decl, d, form, nest, &point));
                }
            }
        }
        if guarded {
            access.guard = facts.to_vec();
            access.otherwise = Some(Scalar::of(decl.dtype, 0.0));
        }
        Ok(access)
    }

    /// The first iteration at which `form` is negative though all of `facts` are not.
    fn leaves(&self, span: Span, form: &Affine, facts: &[Affine], nest: &Nest) -> Checked<Option<Vec<i64>>> {
        let form = nest.over_iterators(form);
        if nest.bounds(&form).0 >= 0 {
            return Ok(None);
        }
        let mut outside = nest.polyhedron();
        for a in facts.iter().map(|f| nest.over_iterators(f)).chain([form.scale(-1).offset(-1)]) {
            outside.inequalities.push(outside.form(&a, 0));
        }
        if Reduced::new(&outside).empty {
            return Ok(None);
        }
        self.isl.first_point(&outside).map_err(|error| Diagnostic { span, error })
    }

    fn is_empty(&self, p: &Polyhedron, span: Span) -> Checked<bool> {
        if Reduced::new(p).empty {
            return Ok(true);
        }
        self.isl.is_empty(p).map_err(|error| Diagnostic { span, error })
    }
}

/// The parts of a sequence, of which none is a sequence.
fn flat(parts: Vec<SequencePart>) -> Vec<SequencePart> {
    let of = |part: SequencePart| match part {
        (_, Node::Sequence(children)) => children,
        part => vec![part],
    };
    parts.into_iter().flat_map(of).collect()
}

/// The error of a read before an assignment; where nothing assigns to the array, at the first update of it.
fn unwritten(scop: &Scop, read: &UnwrittenRead, spans: &[Span]) -> Diagnostic {
    let (name, s) = (&scop.tensor(read.tensor).name, scop.statement(read.statement));
    let mut writers = scop.ids().filter(|&id| scop.statement(id).target == read.tensor);
    if let Some(update) = writers.next().filter(|&id| scop.statement(id).reduce.is_some())
        && writers.all(|id| scop.statement(id).reduce.is_some())
    {
        let message =
            format!("nothing assigns to `{name}` before this updates it: begin with an assignment, as in `{name} = 0`");
        return Diagnostic::invalid(spans[update.0 as usize], message);
    }
    let span = spans[read.statement.0 as usize];
    let element: String = read.element.iter().map(|i| format!("[{i}]")).collect();
    let place = match s.iterators.is_empty() {
        true => String::new(),
        false => format!(" at {}", instance_name(s, &read.point).replace(',', ", ")),
    };
    Diagnostic::invalid(span, format!("`{name}{element}` is read{place}, where nothing has been assigned to it"))
}

fn outside(span: Span, decl: &TensorDecl, d: usize, form: &Affine, nest: &Nest, point: &[i64]) -> Diagnostic {
    let value = |a: &Affine| a.evaluate(|v| point[v.0 as usize]);
    let values: Vec<String> = nest.indices.iter().zip(&nest.values).map(|(i, a)| format!("{i}={}", value(a))).collect();
    let place = if values.is_empty() { String::new() } else { format!(" at {}", values.join(", ")) };
    let (is, extent) = (value(&nest.over_iterators(form)), decl.shape[d]);
    Diagnostic::invalid(span, format!("subscript {d} of `{}` is {is}{place}, outside of 0..{extent}", decl.name))
}
