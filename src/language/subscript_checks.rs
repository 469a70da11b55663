//! Subscripts from data that no check before a run proves inside: kept inside of their dimension, and recorded for a check at the end.
//!
//! In: a statement. Out: the statement, of which subscripts that read arrays which the program writes, or whose values are not a function of one element,
//! are brought into their dimension unless their operations keep them there already, or what the program assigns; and what is to run just before it, two
//! statements for each that keep the least and the greatest value of the subscript in tensors of [`Role::Check`]. In a branch of a selection, and of
//! a target that keeps its value where a condition fails, only what the condition chooses counts; the element that is kept is read where it is written. Where the condition bounds an index by the
//! element that is part of the subscript, an interval of the element says the same, which a run checks before it begins; so does one where the condition is on
//! the element that is the subscript, as in `if q[i] >= 0 y[q[i]] = x[i]`, and a negative one leads nowhere. A run ends with an error where a subscript
//! has been outside. Where the conditions around keep a subscript inside, as in `if x >= 0 && x < N - 1 y = a[x + 1]`, nothing is recorded, nor is the extreme of
//! a side on which they do. A subscript that a statement before it in the same iteration has, or one before the loop whose body leaves it as it is, is recorded once, where no array
//! between has changed and the dimension is no shorter. Invariant: no data lead out of an array.

use super::bound_checks::checked_bound;
use crate::expr::dynamic_bounds::{DynamicBound, Target};
use crate::expr::logic::Condition as _;
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, BufferId, Expr, Index, Scalar, UnaryOp};
use crate::poly::analysis::conditional_range::{Elements, conditional_range, elements_under};
use crate::poly::analysis::element_function::type_range;
use crate::poly::analysis::guarded_range::{Instances, guarded_range};
use crate::poly::analysis::index_range::{IndexRange, element_range, is_inside};
use crate::poly::schedule::{Node, SequencePart};
use crate::poly::statement::{ElementRange, Iterator, Role, Statement, StatementId, TensorDecl};
use crate::runtime::DType;
use std::collections::BTreeSet;

/// A subscript: its value over iterators, the conditions under which it is used, and the tensors of its least and greatest values, with whether it may lie
/// beyond the first and the last element.
struct Record {
    value: Expr,
    conditions: Vec<Condition>,
    extremes: [(BufferId, bool); 2],
}

/// Records before a block.
pub(super) struct Recorded(Vec<Known>);

/// A subscript that has been recorded for a dimension of this extent.
#[derive(Clone)]
struct Known {
    value: Expr,
    conditions: Vec<Condition>,
    extent: i64,
}

impl Known {
    fn reads(&self, array: BufferId) -> bool {
        let of = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Load(a) if a.buffer == array));
        of(&self.value) || self.conditions.iter().any(|(condition, _)| of(condition))
    }
}

/// A condition, and whether it holds.
pub(super) type Condition = (Expr, bool);

/// A dimension of an array.
type Dimension = (BufferId, usize);

/// The checks of one program.
pub(super) struct SubscriptChecks<'a> {
    arrays: &'a [TensorDecl],
    /// Dimensions, each with the first of the two tensors of its least and greatest subscripts.
    dimensions: Vec<(Dimension, BufferId)>,
    /// Follow the arrays.
    tensors: Vec<TensorDecl>,
    /// Intervals of elements that a run checks before it begins.
    ranges: Vec<IndexRange>,
    /// Subscripts recorded by statements before in the same iteration of the loops around, which have the same value still.
    known: Vec<Known>,
    /// Arrays that more than one statement assigns.
    changing: BTreeSet<BufferId>,
    /// Values of temporaries from their assignment to the end of the block.
    values: Vec<(BufferId, Expr)>,
}

/// The largest difference of two subscripts of which one says something of the other.
const NEAR: u64 = 1 << 20;

/// The words for the two tensors of a dimension.
const EXTREMES: [&str; 2] = ["least", "greatest"];

/// The name of the tensor that keeps an extreme of the subscripts of a dimension; underscores follow where an array has it.
fn name_of(extreme: &str, array: &TensorDecl, dimension: usize) -> String {
    let number = if array.shape.len() > 1 { format!("_{dimension}") } else { String::new() };
    format!("{extreme}_subscript{number}_of_{}", array.name)
}

/// The dimension of an array of which a tensor of [`Role::Check`] keeps the subscripts, in words for its user: `y, dimension 0`; of a bound `lower bound of k`.
pub fn checked_dimension(tensors: &[TensorDecl], check: &TensorDecl) -> String {
    if let Some(bound) = checked_bound(&check.name) {
        return bound;
    }
    let arrays = tensors.iter().filter(|array| array.role != Role::Check);
    let is_of = |array: &TensorDecl, d: usize| {
        let of = |extreme: &&str| check.name.strip_prefix(&name_of(extreme, array, d));
        EXTREMES.iter().filter_map(of).any(|rest| rest.chars().all(|c| c == '_'))
    };
    let dimensions = arrays.flat_map(|array| (0..array.shape.len()).map(move |d| (array, d)));
    let found = dimensions.filter(|(array, d)| is_of(array, *d)).max_by_key(|(array, _)| array.name.len());
    found.map_or(check.name.clone(), |(array, d)| format!("{}, dimension {d}", array.name))
}

/// The additions of the checks to a program.
pub(super) struct Checked {
    /// The tensors that follow the arrays.
    pub tensors: Vec<TensorDecl>,
    /// The statements that give these their first value, 0 or the last subscript, with their place in the order.
    pub first_values: (Vec<Statement>, Vec<SequencePart>),
    /// Intervals in which elements of the arrays must lie.
    pub ranges: Vec<IndexRange>,
}

impl<'a> SubscriptChecks<'a> {
    /// The checks of a program in which several statements assign the arrays of `changing`.
    pub fn new(arrays: &'a [TensorDecl], changing: BTreeSet<BufferId>) -> SubscriptChecks<'a> {
        let (dimensions, tensors, ranges, known, values) = Default::default();
        SubscriptChecks { arrays, dimensions, tensors, ranges, known, changing, values }
    }

    /// The number of temporaries whose values are known where a block begins, for its end.
    pub fn values(&self) -> usize {
        self.values.len()
    }

    /// Ends a block: of its temporaries nothing is known any more.
    pub fn forget(&mut self, values: usize) {
        self.values.truncate(values);
    }

    /// Begins a block whose statements may run again, or not at all, and which write these arrays: what has been recorded of others stays known in it, and behind it, to which
    /// [`Self::leave`] comes with the result.
    pub fn enter(&mut self, written: &[BufferId]) -> Recorded {
        self.known.retain(|known| !written.iter().any(|array| known.reads(*array)));
        Recorded(self.known.clone())
    }

    /// Ends a block.
    pub fn leave(&mut self, Recorded(before): Recorded) {
        self.known = before;
    }

    /// Brings the subscripts of a statement into their dimensions; returns the statements that record them.
    pub fn keep_inside(&mut self, s: &mut Statement) -> Vec<Statement> {
        let (dtype, index) = (self.arrays[s.target.0 as usize].dtype, s.subscripts());
        let target = Target { buffer: s.target, index: &index, reduce: s.reduce, dtype };
        let mut walk = Walk { checks: self, iterators: &s.iterators, domain: &s.domain, records: vec![] };
        let of_target = walk.target_conditions(&target, &s.body);
        let body = walk.assigned(&s.body, &[], &target, &of_target);
        let mut computed = vec![];
        for (d, e) in &s.computed {
            let e = walk.expression(e, &of_target);
            computed.push((*d, walk.subscript((s.target, *d), e, &of_target)));
        }
        let records = walk.records;
        (s.body, s.computed) = (body, computed);
        self.known.retain(|known| !known.reads(s.target));
        let value = lasting_value(self.arrays, s).filter(|(temporary, _)| !self.changing.contains(temporary));
        let statement = |target, op, record: &Record| {
            let dtype = self.dtype(&record.value);
            // what does not count is neutral
            let nothing = || Expr::Const(Scalar::neutral(op, dtype).expect("an extreme of integers"));
            let body = record.conditions.iter().rev().fold(record.value.clone(), |value, (condition, holds)| {
                let (yes, no) = if *holds { (value, nothing()) } else { (nothing(), value) };
                Expr::select(condition.clone(), yes, no)
            });
            let (iterators, domain) = (s.iterators.clone(), s.domain.clone());
            Statement { iterators, domain, ..of_check(target, Some(op), body) }
        };
        let both = records.iter().flat_map(|record| {
            let extremes = record.extremes.into_iter().zip([BinaryOp::Min, BinaryOp::Max]);
            let open = extremes.filter(|((_, may_be_beyond), _)| *may_be_beyond);
            open.map(|((extreme, _), op)| statement(extreme, op, record)).collect::<Vec<_>>()
        });
        let both = both.collect();
        self.values.extend(value);
        both
    }

    fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b| self.arrays[b.0 as usize].dtype)
    }

    /// Returns true for a subscript that neither its operations nor a check of an array before the run keep inside. The latter asks for all
    /// values of the iterators: where they do not all count, a subscript that takes some of them is open.
    fn is_open(&self, iterators: &[Iterator], all_count: bool, value: &Expr, extent: i64) -> bool {
        let reads = |e: &Expr| matches!(e, Expr::Load(_));
        let written = |e: &Expr| matches!(e, Expr::Load(a) if self.arrays[a.buffer.0 as usize].role.is_written());
        let of_check = if all_count { iterators } else { &[] };
        value.any(&mut |e| reads(e))
            && !is_inside(self.arrays, iterators, value, extent)
            && (value.any(&mut |e| written(e)) || element_range(self.arrays, of_check, value, extent).is_err())
    }

    /// The elements that a check before the run allows for a subscript that is not open, under conditions.
    fn checked_under(&self, iterators: &[Iterator], conditions: &[Condition], value: &Expr, extent: i64) -> Elements {
        let is_data = |e: &Expr| matches!(e, Expr::Load(_));
        if conditions.is_empty() || !value.any(&mut |e| is_data(e)) || is_inside(self.arrays, iterators, value, extent)
        {
            return Elements::Inside;
        }
        match element_range(self.arrays, &[], value, extent) {
            Ok(Some(range)) => elements_under(self.arrays, conditions, value, range),
            _ => Elements::Inside,
        }
    }

    /// Returns true if checks of dimensions that are no longer have the subscript, wherever it counts, or numbers that differ from it by constants: `u` lies in `0..n` where `u` is not negative
    /// and `u + 1` lies in `0..n + 1`, as of rows from `row[u]` to `row[u + 1]`.
    fn is_recorded(&self, value: &Expr, conditions: &[Condition], extent: i64) -> bool {
        let (base, offset) = without_constant(value);
        let is_wide = matches!(self.dtype(value), DType::I32 | DType::I64);
        let differences = self.known.iter().filter_map(|known| {
            let (of, more) = without_constant(&known.value);
            let counts = || known.conditions.iter().all(|c| conditions.contains(c));
            // sums of small numbers in such types do not come back into a dimension from the other end
            let is_near = |d: &i64| *d == 0 || is_wide && d.unsigned_abs() <= NEAR;
            let difference = more.checked_sub(offset).filter(|d| of == base && is_near(d) && counts());
            difference.map(|d| (d, known.extent))
        });
        let (mut least, mut greatest) = (false, false);
        for (difference, known) in differences {
            // `0 ≤ value + difference < known`
            least |= difference <= 0;
            greatest |= known.checked_sub(difference).is_some_and(|end| end <= extent);
        }
        least && greatest
    }

    /// The tensors of the least and the greatest subscript of a dimension.
    fn extremes(&mut self, dimension: Dimension, dtype: DType, extent: i64) -> [BufferId; 2] {
        let of = |b: BufferId| self.tensors[b.0 as usize - self.arrays.len()].dtype;
        let known = self.dimensions.iter().find(|(own, first)| *own == dimension && of(*first) == dtype);
        if let Some((_, first)) = known {
            return [*first, BufferId(first.0 + 1)];
        }
        let first = BufferId((self.arrays.len() + self.tensors.len()) as u32);
        self.dimensions.push((dimension, first));
        for word in EXTREMES {
            let array = &self.arrays[dimension.0.0 as usize];
            let mut name = name_of(word, array, dimension.1);
            while self.arrays.iter().chain(&self.tensors).any(|t| t.name == name) {
                name.push('_');
            }
            let most = type_range(dtype).map_or(i128::MAX, |range| range.1);
            let upper = (i128::from(extent) - 1).min(most) as i64;
            let ranges = vec![ElementRange { offset: 0, stride: 1, lower: 0, upper }];
            self.tensors.push(TensorDecl { ranges, ..TensorDecl::new(name, dtype, [], Role::Check) });
        }
        [first, BufferId(first.0 + 1)]
    }

    /// The additions to a program, which has as many statements so far as `first`.
    pub fn finish(self, first: u32) -> Checked {
        let statements: Vec<Statement> = (self.tensors)
            .iter()
            .zip(self.arrays.len() as u32..)
            .zip(EXTREMES.into_iter().cycle())
            .map(|((t, target), extreme)| {
                // an end of the interval, so that only subscripts outside of it change the element
                let (lower, upper) = t.limits().unwrap_or_default();
                let first = Scalar::of(t.dtype, if extreme == EXTREMES[0] { lower } else { upper } as f64);
                Statement { name: t.name.clone(), ..of_check(BufferId(target), None, Expr::Const(first)) }
            })
            .collect();
        let order = (first..).map(StatementId).take(statements.len()).map(|id| (vec![id], Node::Leaf)).collect();
        Checked { tensors: self.tensors, first_values: (statements, order), ranges: self.ranges }
    }
}

/// The subscripts of one statement.
struct Walk<'a, 'b> {
    checks: &'a mut SubscriptChecks<'b>,
    iterators: &'a [Iterator],
    /// Conditions, each ≥ 0; where there are none, its instances are all points of the iterators' box.
    domain: &'a [Affine],
    records: Vec<Record>,
}

impl Walk<'_, '_> {
    /// The conditions without which a statement leaves its target as it is, with subscripts that stay inside.
    fn target_conditions(&mut self, target: &Target, value: &Expr) -> Vec<Condition> {
        let (conditions, value) = conditions_of(target, value);
        let mut out = vec![];
        for (condition, holds) in conditions {
            let condition = self.expression(condition, &out);
            out.push((condition, holds));
        }
        if let Change::Where(condition) = self.change(value, target, &out) {
            out.push((condition, true));
        }
        out
    }

    fn change(&mut self, e: &Expr, target: &Target, conditions: &[Condition]) -> Change {
        match e {
            Expr::Select(condition, yes, no) => {
                let condition = self.expression(condition, conditions);
                let [yes, no] = [(yes, true), (no, false)].map(|(e, holds)| {
                    let under = [conditions, &[(condition.clone(), holds)]].concat();
                    self.change(e, target, &under)
                });
                Change::of_select(condition, yes, no)
            }
            e if target.is_kept_by(e) => Change::Never,
            _ => Change::Always,
        }
    }

    /// The value `e` that a statement assigns. The element that it keeps has the subscripts of the target, which count where the statement changes it.
    fn assigned(&mut self, e: &Expr, conditions: &[Condition], target: &Target, of_target: &[Condition]) -> Expr {
        match e {
            Expr::Select(condition, yes, no) => {
                let condition = self.expression(condition, conditions);
                let under = |holds| [conditions, &[(condition.clone(), holds)]].concat();
                let branches = [(yes, true), (no, false)];
                let [yes, no] = branches.map(|(e, holds)| self.assigned(e, &under(holds), target, of_target));
                Expr::select(condition, yes, no)
            }
            e if target.is_kept_by(e) => self.expression(e, of_target),
            e => self.expression(e, conditions),
        }
    }

    /// `e`, which is used under conditions, with subscripts that stay inside.
    fn expression(&mut self, e: &Expr, conditions: &[Condition]) -> Expr {
        match e {
            Expr::Select(condition, yes, no) => {
                let condition = self.expression(condition, conditions);
                let under = |holds| [conditions, &[(condition.clone(), holds)]].concat();
                let [yes, no] = [(yes, true), (no, false)].map(|(e, holds)| self.expression(e, &under(holds)));
                Expr::select(condition, yes, no)
            }
            // what the first operand decides does not depend on the second
            Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) if self.checks.dtype(a) == DType::Bool => {
                let a = self.expression(a, conditions);
                let under = [conditions, &[(a.clone(), *op == BinaryOp::And)]].concat();
                let b = self.expression(b, &under);
                Expr::binary(*op, a, b)
            }
            Expr::Load(access) => {
                let mut access = access.clone();
                for (d, index) in access.index.iter_mut().enumerate() {
                    if let Index::Value(value) = index {
                        let value = self.expression(value, conditions);
                        *index = Index::Value(Box::new(self.subscript((access.buffer, d), value, conditions)));
                    }
                }
                Expr::Load(access)
            }
            e => e.map_children(&mut |e| self.expression(e, conditions)),
        }
    }

    /// The subscript of a dimension, brought into it where it may be outside.
    fn subscript(&mut self, (buffer, d): Dimension, value: Expr, conditions: &[Condition]) -> Expr {
        let extent = self.checks.arrays[buffer.0 as usize].shape[d];
        let dtype = self.checks.dtype(&value);
        let Some(limits) = limits(dtype, extent) else { return value };
        let all_count = self.domain.is_empty() && conditions.iter().all(|(c, holds)| *holds && leaves_all(c, &value));
        let inside = brought_within(&value, limits);
        if !value.any(&mut |e| matches!(e, Expr::Load(_))) {
            let is_guarded = !is_inside(self.checks.arrays, self.iterators, &value, extent)
                && self.may_be_beyond(conditions, &value, extent) == [false; 2];
            return if is_guarded { inside } else { value };
        }
        if !self.checks.is_open(self.iterators, all_count, &value, extent) {
            match self.checks.checked_under(self.iterators, conditions, &value, extent) {
                Elements::Inside => return value,
                Elements::Range(range) => {
                    self.checks.ranges.push(range);
                    return inside;
                }
                Elements::Several => {}
            }
        }
        let may_be_beyond = self.may_be_beyond(conditions, &value, extent);
        if may_be_beyond == [false; 2] {
            return inside;
        }
        let arrays = self.checks.arrays;
        let under = || conditional_range(arrays, self.iterators, conditions, &value, extent);
        if let Some(range) = (self.domain.is_empty() && !conditions.is_empty()).then(under).flatten() {
            self.checks.ranges.push(range);
            return inside;
        }
        if !self.checks.is_recorded(&value, conditions, extent) {
            let [least, greatest] = self.checks.extremes((buffer, d), dtype, extent);
            // where bounds of loops are all that is said, code compares both at once
            let parts = conditions.iter().flat_map(|(condition, holds)| condition.parts(*holds));
            let of_loops = parts.into_iter().all(|(part, holds)| DynamicBound::of_part(part, holds).is_some());
            let open = |side: usize| may_be_beyond[side] || of_loops;
            let extremes = [(least, open(0)), (greatest, open(1))];
            let conditions = conditions.to_vec();
            self.checks.known.push(Known { value: value.clone(), conditions: conditions.clone(), extent });
            self.records.push(Record { value, conditions, extremes });
        }
        inside
    }

    /// Returns whether a subscript may lie below 0 and beyond the last element where the conditions are as said; whatever its operations say of it without
    /// conditions, both where there are none.
    fn may_be_beyond(&self, conditions: &[Condition], value: &Expr, extent: i64) -> [bool; 2] {
        if conditions.is_empty() && self.domain.is_empty() {
            return [true; 2];
        }
        let (checks, domain) = (&self.checks, self.domain);
        let conditions: Vec<Condition> =
            conditions.iter().map(|(e, holds)| (with_values(e, &checks.values), *holds)).collect();
        let instances = Instances { iterators: self.iterators, domain, conditions: &conditions };
        let range = guarded_range(checks.arrays, &instances, &with_values(value, &checks.values));
        range.map_or([true; 2], |(low, high)| [low < 0, extent <= high])
    }
}

/// A value without the number that is added to it last, and this.
fn without_constant(e: &Expr) -> (&Expr, i64) {
    match e {
        Expr::Binary(BinaryOp::Add, a, b) => match **b {
            Expr::Const(c) if !c.dtype.is_float() => (&**a, Value::from(c).as_i64()),
            _ => (e, 0),
        },
        e => (e, 0),
    }
}

/// Returns true for bounds of loops from data that say nothing of the iterators that are added to a subscript, nor of what it reads: where there is
/// an iteration at all, these have all their values.
fn leaves_all(condition: &Expr, value: &Expr) -> bool {
    let (form, rest) = value.affine_terms();
    let read = |array: BufferId| rest.iter().any(|e| e.any(&mut |e| matches!(e, Expr::Load(a) if a.buffer == array)));
    condition.parts(true).into_iter().all(|(part, holds)| {
        DynamicBound::of_part(part, holds).is_some_and(|bound| {
            let of_form = bound.form.terms.iter().map(|t| t.0);
            !of_form.chain(bound.variables()).any(|v| form.uses(v))
                && !bound.limit.any(&mut |e| matches!(e, Expr::Load(a) if read(a.buffer)))
        })
    })
}

/// The conditions without each of which `value` keeps the target, and the value where they are as said.
pub(super) fn conditions_of<'e>(target: &Target, mut value: &'e Expr) -> (Vec<(&'e Expr, bool)>, &'e Expr) {
    let mut out = vec![];
    while let Expr::Select(condition, yes, no) = value {
        let holds = match (target.is_kept_by(yes), target.is_kept_by(no)) {
            (false, true) => true,
            (true, false) => false,
            _ => break,
        };
        out.push((&**condition, holds));
        value = if holds { yes } else { no };
    }
    (out, value)
}

/// Where a value changes the target of its statement.
enum Change {
    Never,
    Always,
    Where(Expr),
}

impl Change {
    /// Of a selection whose branches change it so.
    fn of_select(condition: Expr, yes: Change, no: Change) -> Change {
        use Change::{Always, Never, Where};
        let not = |e: &Expr| Expr::unary(UnaryOp::Not, e.clone());
        let and = |a, b| Expr::binary(BinaryOp::And, a, b);
        let or = |a, b| Expr::binary(BinaryOp::Or, a, b);
        Where(match (yes, no) {
            (Never, Never) => return Never,
            (Always, Always) => return Always,
            (Always, Never) => condition,
            (Never, Always) => not(&condition),
            (Always, Where(no)) => or(condition, no),
            (Where(yes), Always) => or(not(&condition), yes),
            (Never, Where(no)) => and(not(&condition), no),
            (Where(yes), Never) => and(condition, yes),
            (Where(yes), Where(no)) => or(and(condition.clone(), yes), and(not(&condition), no)),
        })
    }
}

fn of_check(target: BufferId, reduce: Option<BinaryOp>, body: Expr) -> Statement {
    Statement {
        name: "check".into(),
        iterators: vec![],
        domain: vec![],
        target,
        write: vec![],
        computed: vec![],
        reduce,
        body,
    }
}

/// The temporary without dimensions and the value that a statement gives it, which reads nothing that a program writes.
pub(super) fn lasting_value(arrays: &[TensorDecl], s: &Statement) -> Option<(BufferId, Expr)> {
    let array = |b: BufferId| &arrays[b.0 as usize];
    let temporary = array(s.target);
    let is_number = temporary.role == Role::Temporary && temporary.shape.is_empty() && temporary.dtype.is_integer();
    let changes = |e: &Expr| matches!(e, Expr::Load(a) if array(a.buffer).role != Role::Input);
    let lasts = is_number && s.reduce.is_none() && !s.body.any(&mut |e| changes(e));
    (lasts && s.body.dtype(&|b| array(b).dtype) == temporary.dtype).then(|| (s.target, s.body.clone()))
}

/// `e` with the values of temporaries in their place.
pub(super) fn with_values(e: &Expr, values: &[(BufferId, Expr)]) -> Expr {
    if values.is_empty() {
        return e.clone();
    }
    e.rewrite_loads(&mut |access| {
        let value = values.iter().find(|(temporary, _)| *temporary == access.buffer);
        value.map_or_else(|| Expr::Load(access), |(_, value)| value.clone())
    })
}

/// A subscript that is brought between two limits.
pub(super) fn brought_within(value: &Expr, limits: [Scalar; 2]) -> Expr {
    let [least, greatest] = limits.map(Expr::Const);
    Expr::binary(BinaryOp::Min, Expr::binary(BinaryOp::Max, value.clone(), least), greatest)
}

/// The least and the greatest subscript of a dimension, in a type; `None` for types that have no subscripts.
pub(super) fn limits(dtype: DType, extent: i64) -> Option<[Scalar; 2]> {
    let (_, most) = type_range(dtype)?;
    Some([0, most.min(i128::from(extent - 1))].map(|limit| Scalar::of(dtype, limit as f64)))
}
