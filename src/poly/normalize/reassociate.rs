//! Reassociation of recurrences: of the operands of a sum, a minimum or a maximum that follow from what the statement itself
//! computed in earlier iterations, the latest comes last.
//!
//! In: a loop program. Out: the same program, where `(A[i][j-1] + A[i+1][j]) + B[i][j]` in loops over i and j is
//! `(A[i+1][j] + B[i][j]) + A[i][j-1]`: an iteration waits for the one before with its last operation alone (height reduction
//! of recurrences: Allan et al., "Software Pipelining", 1995). An operand may follow from it through other statements of the
//! same loops, as `E[i][j]` does where a statement before computes it from `A[i][j-1]`. Floats are rounded in that order, by
//! every stage that follows. Of a minimum of floats to which something is added each operand gets its own addition, as in
//! `min(A[i][j-1] + c, B[j] + c)`, where that leaves the latest operand one addition and one minimum: rounding is monotonic, so
//! that the value is the same but for sums of opposite infinities. [`products`] leaves one fused operation of a product and a sum, and
//! [`linear`] of a body that is linear in what the iteration before computed.
//!
//! Where a condition chooses between such a value and its minimum with an earlier one, it chooses the earlier operand instead,
//! of integers: `min(A[i][j-1], select(c, B[j], greatest))` for `select(c, min(A[i][j-1], B[j]), A[i][j-1])`.
//!
//! Invariant: a sum of which two operands read the same element keeps its order, so that the compensation of rounding errors,
//! as by Kahan, stays what it is.

mod linear;
mod products;

use crate::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, Scalar, UnaryOp, Var};
use crate::poly::schedule::TimeDimension;
use crate::poly::scop::Scop;
use crate::poly::statement::{Statement, StatementId};
use crate::runtime::DType;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Reorders the operands of each statement.
pub fn reassociate(scop: &Scop) -> Scop {
    let mut out = scop.clone();
    let loops = loops_of(scop);
    let places = loops.iter().flat_map(|loops| (0..loops.ids.len()).map(move |place| (loops, place)));
    for (loops, place) in places {
        let (id, s) = (loops.ids[place], loops.body[place]);
        let recurrence = Recurrence { s, loops, place, through: OnceCell::new() };
        if !s.is_scatter() && recurrence.is_cyclic() {
            let dtype = |b: BufferId| scop.tensors[b.0 as usize].dtype;
            let body = s.body.rewrite(&mut |e| match e {
                Expr::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => {
                    let dtype = e.dtype(&dtype);
                    recurrence.latest_fused(ordered(&recurrence, e, BinaryOp::Add, false), dtype)
                }
                Expr::Binary(BinaryOp::Mul, ..) => {
                    let dtype = e.dtype(&dtype);
                    recurrence.distributed_product(e, dtype)
                }
                Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), ..) => {
                    let float = e.dtype(&dtype).is_float();
                    ordered(&recurrence, e, op, float)
                }
                Expr::Select(condition, value, kept) => {
                    let dtype = kept.dtype(&dtype);
                    recurrence.chosen_before(*condition, *value, *kept, dtype)
                }
                e => e,
            });
            let (reduce, body) = recurrence.linear(body, &dtype);
            let statement = &mut out.statements[id.0 as usize];
            (statement.reduce, statement.body) = (reduce, body);
        }
    }
    out
}

/// Statements that a value is followed through, at most.
const MOST_THROUGH: usize = 3;

/// A statement that reads what it wrote in earlier iterations.
struct Recurrence<'a> {
    s: &'a Statement,
    loops: &'a Loops<'a>,
    /// Its place in the body of the loops.
    place: usize,
    /// See [`Recurrence::through`].
    through: OnceCell<Vec<Vec<Option<Vec<i64>>>>>,
}

/// The statements of the same loops, where iterators mean the same.
struct Loops<'a> {
    /// In the order of the text.
    ids: Vec<StatementId>,
    body: Vec<&'a Statement>,
    /// -1 for each iterator that counts down in the order of the text, 1 for the others.
    signs: Vec<i64>,
    /// The writes that each statement reads, once one is asked for.
    reads: OnceCell<Vec<Vec<Write>>>,
}

/// A write of a statement of the loops: its place, and how many iterations of each loop before what reads it, at least.
type Write = (usize, Vec<i64>);

/// The statements of a program by their loops.
fn loops_of(scop: &Scop) -> Vec<Loops<'_>> {
    let paths: Vec<Vec<TimeDimension<'_>>> = scop.ids().map(|id| scop.order.path(id)).collect();
    let path = |id: StatementId| &paths[id.0 as usize][..];
    let position = |id: StatementId| match path(id).last() {
        Some(TimeDimension::Position(position)) => Some(*position),
        _ => None,
    };
    let around = |id: StatementId| &path(id)[..path(id).len() - usize::from(position(id).is_some())];
    let is_alike = |first: StatementId, other: StatementId| {
        let same = |d: &TimeDimension| match d {
            TimeDimension::Row(row) => row.of(first) == row.of(other),
            TimeDimension::Position(_) => true,
        };
        around(other) == around(first) && around(first).iter().all(same)
    };
    let mut groups: Vec<Vec<StatementId>> = vec![];
    for id in scop.ids() {
        match groups.iter_mut().find(|group| is_alike(group[0], id)) {
            Some(group) => group.push(id),
            None => groups.push(vec![id]),
        }
    }
    let loops = groups.into_iter().map(|mut ids| {
        ids.sort_by_key(|&id| position(id).unwrap_or(0));
        let (first, body) = (ids[0], ids.iter().map(|&id| scop.statement(id)).collect::<Vec<_>>());
        let down = |v: Var| {
            around(first).iter().any(|d| matches!(d, TimeDimension::Row(row) if row.of(first).coefficient(v) < 0))
        };
        let signs = body[0].vars().map(|v| if down(v) { -1 } else { 1 }).collect();
        Loops { ids, body, signs, reads: OnceCell::new() }
    });
    loops.collect()
}

impl Loops<'_> {
    /// The writes of the loops' statements that `e` reads, which is part of the statement at `reader`: the last one of each statement.
    fn reads_of(&self, e: &Expr, reader: usize) -> Vec<Write> {
        let mut latest: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        e.visit_accesses(&mut |read| {
            let writers = self.body.iter().enumerate().filter(|(_, s)| s.target == read.buffer && !s.is_scatter());
            for (writer, s) in writers {
                let Some(apart) = distance(s, read) else { continue };
                let between: Vec<i64> = apart.iter().zip(&self.signs).map(|(d, sign)| d * sign).collect();
                if is_earlier(&between) || writer < reader && between.iter().all(|&d| d == 0) {
                    let known = latest.entry(writer).or_insert_with(|| between.clone());
                    if between < *known {
                        *known = between;
                    }
                }
            }
        });
        latest.into_iter().collect()
    }

    fn reads(&self) -> &[Vec<Write>] {
        self.reads.get_or_init(|| self.body.iter().enumerate().map(|(r, s)| self.reads_of(&s.body, r)).collect())
    }
}

/// An operand of a chain, with its sign.
struct Term {
    negative: bool,
    value: Expr,
}

/// The chain of `op` at the root of `e` with its operands in order of age, or `e`; of minima and maxima `float` says that they are of floats.
fn ordered(recurrence: &Recurrence, e: Expr, op: BinaryOp, float: bool) -> Expr {
    let mut terms = vec![];
    flatten(&e, op, false, &mut terms);
    let count = terms.len();
    if op != BinaryOp::Add && float {
        terms = recurrence.distributed(terms, op);
    }
    let ages: Vec<Age> = terms.iter().map(|t| recurrence.age(&t.value)).collect();
    let compensated = || op == BinaryOp::Add && share_elements(terms.iter().map(|t| &t.value));
    // the latest operand alone may stand at the root
    let is_last = || match (&e, &ages[..]) {
        (Expr::Binary(_, _, b), [.., before, latest]) => before == latest || !is_chain(b, op),
        _ => true,
    };
    if terms.len() == count && (count < 3 || ages.is_sorted() && is_last()) || compensated() {
        return e;
    }
    let mut aged: Vec<(Age, Term)> = ages.into_iter().zip(terms).collect();
    aged.sort_by(|a, b| a.0.cmp(&b.0));
    let joined = aged.into_iter().map(|t| t.1).reduce(|a, b| join(op, a, b));
    match joined {
        Some(Term { negative: true, value }) => Expr::unary(UnaryOp::Neg, value),
        Some(Term { value, .. }) => value,
        None => e,
    }
}

/// Returns true if an expression is itself operands of a chain of `op`.
fn is_chain(e: &Expr, op: BinaryOp) -> bool {
    matches!(e, Expr::Binary(o, ..) if *o == op || op == BinaryOp::Add && *o == BinaryOp::Sub)
}

fn flatten(e: &Expr, op: BinaryOp, negative: bool, out: &mut Vec<Term>) {
    match e {
        Expr::Binary(o, a, b) if *o == op => {
            flatten(a, op, negative, out);
            flatten(b, op, negative, out);
        }
        Expr::Binary(BinaryOp::Sub, a, b) if op == BinaryOp::Add => {
            flatten(a, op, negative, out);
            flatten(b, op, !negative, out);
        }
        e => out.push(Term { negative, value: e.clone() }),
    }
}

fn join(op: BinaryOp, a: Term, b: Term) -> Term {
    match (a.negative, b.negative) {
        (false, true) => Term { negative: false, value: Expr::binary(BinaryOp::Sub, a.value, b.value) },
        (true, false) => Term { negative: false, value: Expr::binary(BinaryOp::Sub, b.value, a.value) },
        (negative, _) => Term { negative, value: Expr::binary(op, a.value, b.value) },
    }
}

/// Returns true if two of the expressions read the same element.
pub(super) fn share_elements<'a>(operands: impl IntoIterator<Item = &'a Expr>) -> bool {
    let mut seen: Vec<Access> = vec![];
    operands.into_iter().any(|e| {
        let mut elements: Vec<Access> = vec![];
        e.visit_accesses(&mut |a| elements.extend((!elements.contains(a)).then(|| a.clone())));
        let shared = elements.iter().any(|a| seen.contains(a));
        seen.extend(elements);
        shared
    })
}

/// When a value was computed, the earliest first: by no iteration of these loops, or so many iterations of each loop ago,
/// and so many statements on the way, the one that reads it included.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Age {
    Before,
    Ago(std::cmp::Reverse<Vec<i64>>, usize),
}

impl Recurrence<'_> {
    /// Returns true if the statement may follow from itself: it reads its target, or another statement of its loops does, and
    /// writes something that it reads.
    fn is_cyclic(&self) -> bool {
        let reads_others = |others: &[&Statement]| others.iter().any(|other| self.s.body.reads(other.target));
        self.s.body.reads(self.s.target) || self.loops.body.len() > 1 && reads_others(&self.loops.body)
    }

    /// The selection between `value` and `kept`. Where `value` is an extreme of `kept`, an integer, and of an operand that is
    /// known earlier, as is the condition, it is the extreme of `kept` and of what the condition chooses.
    fn chosen_before(&self, condition: Expr, value: Expr, kept: Expr, dtype: DType) -> Expr {
        let extreme = match &value {
            Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) if dtype.is_integer() => {
                let operand = if **a == kept { Some(b) } else { (**b == kept).then_some(a) };
                operand.and_then(|operand| {
                    let latest = self.age(&kept);
                    let is_earlier = self.age(operand) < latest && self.age(&condition) < latest;
                    let neutral = Scalar::neutral(*op, dtype).ok().filter(|_| is_earlier)?;
                    Some((*op, (**operand).clone(), neutral))
                })
            }
            _ => None,
        };
        match extreme {
            Some((op, operand, neutral)) => {
                Expr::binary(op, kept, Expr::select(condition, operand, Expr::Const(neutral)))
            }
            None => Expr::select(condition, value, kept),
        }
    }

    /// The operands of a minimum or maximum, where the latest, if it is the sum of such a chain and an earlier value, is in its
    /// place one sum for each operand of that chain.
    fn distributed(&self, terms: Vec<Term>, op: BinaryOp) -> Vec<Term> {
        let latest = terms.iter().map(|t| self.age(&t.value)).max();
        let apart = |t: &Term| match &t.value {
            Expr::Binary(BinaryOp::Add, a, b) => {
                let (chain, added) = if matches!(**a, Expr::Binary(o, ..) if o == op) { (a, b) } else { (b, a) };
                let mut operands = vec![];
                flatten(chain, op, false, &mut operands);
                let ages: Vec<Age> = operands.iter().map(|o| self.age(&o.value)).collect();
                let differ = ages.iter().any(|a| *a != ages[0]);
                let gains = ages.iter().max() == latest.as_ref() && Some(self.age(added)) < latest;
                let sum = |o: Term| Term { value: Expr::binary(BinaryOp::Add, o.value, (**added).clone()), ..o };
                (differ && gains).then(|| operands.into_iter().map(sum).collect::<Vec<Term>>())
            }
            _ => None,
        };
        terms.into_iter().flat_map(|t| apart(&t).unwrap_or_else(|| vec![t])).collect()
    }

    /// The age of the latest value of the recurrence that an expression of the statement follows from.
    fn age(&self, e: &Expr) -> Age {
        let reads = self.loops.reads_of(e, self.place);
        let mut latest = Age::Before;
        for (count, known) in std::iter::once(&self.itself()).chain(self.through()).enumerate() {
            if let Some(ago) = least_sum(&reads, known) {
                latest = latest.max(Age::Ago(std::cmp::Reverse(ago), count + 1));
            }
        }
        latest
    }

    /// How many iterations of each loop before a statement the recurrence has computed what it follows from: of the statement itself.
    fn itself(&self) -> Vec<Option<Vec<i64>>> {
        let zero = || vec![0; self.s.iterators.len()];
        (0..self.loops.body.len()).map(|other| (other == self.place).then(zero)).collect()
    }

    /// How many iterations of each loop before each other statement the recurrence has computed what that one follows from, at
    /// least: through so many statements, that one included, from 1 to [`MOST_THROUGH`]. A way round that comes back to a statement is longer
    /// than the one without it, so that the least one meets each statement once.
    fn through(&self) -> &[Vec<Option<Vec<i64>>>] {
        self.through.get_or_init(|| {
            let mut out: Vec<Vec<Option<Vec<i64>>>> = vec![];
            for count in 0..MOST_THROUGH {
                let itself = self.itself();
                let known = if count == 0 { &itself } else { &out[count - 1] };
                let of = |(other, reads): (usize, &Vec<Write>)| {
                    (other != self.place).then(|| least_sum(reads, known)).flatten()
                };
                let next = self.loops.reads().iter().enumerate().map(of).collect();
                out.push(next);
            }
            out
        })
    }
}

/// The least of the distances of writes, each with what is `known` of the statement that writes.
fn least_sum(reads: &[Write], known: &[Option<Vec<i64>>]) -> Option<Vec<i64>> {
    let sums = reads.iter().filter_map(|(writer, between)| Some(sum(between, known[*writer].as_ref()?)));
    sums.min()
}

fn sum(a: &[i64], b: &[i64]) -> Vec<i64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Returns true if an iteration that is so many iterations of each loop away runs before.
fn is_earlier(distance: &[i64]) -> bool {
    distance.iter().find(|&&d| d != 0).is_some_and(|&d| d > 0)
}

/// How many iterations of each loop before an iteration another one writes what it reads; 0 for the loops that do not choose
/// the element. `None` where that depends on the iteration.
pub(super) fn distance(s: &Statement, read: &Access) -> Option<Vec<i64>> {
    let mut distance = vec![0; s.iterators.len()];
    for (write, read) in s.write.iter().zip(&read.index) {
        let Index::Affine(read) = read else { return None };
        let between: Affine = write.add_scaled(read, -1);
        match write.terms[..] {
            _ if !between.is_constant() => return None,
            [] if between.constant != 0 => return None,
            [] => {}
            [(v, sign @ (1 | -1))] => distance[v.0 as usize] = sign * between.constant,
            _ => return None,
        }
    }
    Some(distance)
}

#[cfg(test)]
mod tests {
    use crate::language;
    use std::collections::BTreeMap;

    /// The body of the only statement of a loop program, as the ILP gets it.
    fn body(declared: &str, statement: &str) -> String {
        let text = format!("loop t(N = 9) {{\n{declared}\nfor i in 1..N for j in 2..N {statement}\n}}");
        let file = language::parse("t", &text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        let scop = lowered.normal().unwrap().to_string();
        let line =
            scop.lines().find(|line| line.contains("]: ") || line.contains("] = ") || line.contains("A(i")).unwrap();
        line.split_once(" = ").unwrap().1.trim_end_matches(';').to_string()
    }

    #[test]
    fn latest_operand_comes_last() {
        let a = "f32 A[N+1][N+1]\nf32 B[N+1]";
        for (statement, expected) in [
            // of the row above the nearest, then the element before
            (
                "A[i][j] = A[i][j-1] + A[i-1][j] + A[i-1][j-1] + A[i+1][j]",
                "(((A[i + 2][j + 2] + A[i][j + 1]) + A[i][j + 2]) + A[i + 1][j + 1])",
            ),
            // signs stay
            ("A[i][j] = B[j] - A[i][j-1] - A[i][j-2]", "((B[j + 2] - A[i + 1][j]) - A[i + 1][j + 1])"),
            ("A[i][j] = A[i][j-1] - B[j] - B[i]", "(A[i + 1][j + 1] - (B[j + 2] + B[i + 1]))"),
            ("A[i][j] = max(max(A[i][j-1], B[i]), B[j])", "max(max(B[i + 1], B[j + 2]), A[i + 1][j + 1])"),
            // last in order, and alone at the root
            ("A[i][j] = max(B[i], max(B[j], A[i][j-1]))", "max(max(B[i + 1], B[j + 2]), A[i + 1][j + 1])"),
            ("A[i][j] = max(A[i][j-1], max(B[j], B[i]))", "max(max(B[j + 2], B[i + 1]), A[i + 1][j + 1])"),
            // an addition for each operand
            (
                "A[i][j] = min(min(A[i-1][j], A[i][j-1]) + B[j], B[i])",
                "min(min(B[i + 1], (A[i][j + 2] + B[j + 2])), (A[i + 1][j + 1] + B[j + 2]))",
            ),
            (
                "A[i][j] = max(B[i], B[j] + max(A[i-1][j], A[i][j-1]))",
                "max(max(B[i + 1], (A[i][j + 2] + B[j + 2])), (A[i + 1][j + 1] + B[j + 2]))",
            ),
            // the operands are of one age, and what is added is the latest
            (
                "A[i][j] = min(min(A[i-1][j], A[i-1][j]) + B[j], A[i][j-1])",
                "min((min(A[i][j + 2], A[i][j + 2]) + B[j + 2]), A[i + 1][j + 1])",
            ),
            (
                "A[i][j] = min(min(B[i], A[i-1][j]) + A[i][j-1], B[j])",
                "min((min(B[i + 1], A[i][j + 2]) + A[i + 1][j + 1]), B[j + 2])",
            ),
            // an element twice in one operand
            (
                "A[i][j] = A[i][j-1] + B[j] * B[j] - B[i] * B[i]",
                "(((B[j + 2] * B[j + 2]) - (B[i + 1] * B[i + 1])) + A[i + 1][j + 1])",
            ),
            // a product of the sum is one of its operands
            (
                "A[i][j] = (A[i][j-1] + B[i] + B[j]) * B[0] + B[1] + B[2]",
                "((B[1] + B[2]) + (((B[i + 1] + B[j + 2]) + A[i + 1][j + 1]) * B[0]))",
            ),
        ] {
            assert_eq!(body(a, statement), expected, "{statement}");
        }
    }

    /// The body of the last statement of two loops that read and write three arrays.
    fn last_body(statements: &str) -> String {
        let scop = scop_of(statements);
        let bodies = scop.lines().take_while(|line| line.trim() != "order").filter_map(|line| line.split_once(" = "));
        bodies.last().unwrap().1.trim_end_matches(';').to_string()
    }

    /// Statements in loops over i and j, as the ILP gets them.
    fn scop_of(statements: &str) -> String {
        let text = format!(
            "loop t(N = 9) {{\nf32 A[N+1][N+1]\nf32 E[N+1][N+1]\nf32 F[N+1][N+1]\nf32 B[N+1]\nfor i in 1..N for j in 1..N {{\n{statements}\n}}}}"
        );
        let file = language::parse("t", &text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        lowered.normal().unwrap().to_string()
    }

    #[test]
    fn sums_of_integers_are_not_distributed() {
        let integers = body("i32 A[N+1][N+1]\ni32 B[N+1]", "A[i][j] = min(min(A[i-1][j], A[i][j-1]) + B[j], B[i])");
        assert_eq!(integers, "min((min(A[i][j + 2], A[i + 1][j + 1]) + B[j + 2]), B[i + 1])");
        // nor inside of a statement that writes floats
        let inside =
            body("f32 A[N+1][N+1]\ni32 B[N+1]", "A[i][j] = f32(min(min(i32(A[i-1][j]), i32(A[i][j-1])) + B[j], B[i]))");
        assert!(inside.contains("+ B[j + 2]), B[i + 1])") && inside.matches("+ B[j + 2]").count() == 1, "{inside}");
    }

    #[test]
    fn conditions_choose_the_operand_that_is_known_before() {
        let i = "i32 A[N+1][N+1]\ni32 B[N+1]";
        for (statement, expected) in [
            (
                "A[i][j] = select(B[i] > 0, min(A[i][j-1], B[j]), A[i][j-1])",
                "min(A[i + 1][j + 1], select(gt(B[i + 1], i32(0)), B[j + 2], i32(2147483647)))",
            ),
            // one condition in another, and a maximum
            (
                "A[i][j] = select(B[j] > 0, select(B[i] > 0, max(B[j], A[i][j-1]), A[i][j-1]), A[i][j-1])",
                "max(A[i + 1][j + 1], select(gt(B[j + 2], i32(0)), select(gt(B[i + 1], i32(0)), B[j + 2], i32(-2147483648)), i32(-2147483648)))",
            ),
            // the condition is as late, or the other operand is
            (
                "A[i][j] = select(A[i][j-1] > 0, min(A[i][j-1], B[j]), A[i][j-1])",
                "select(gt(A[i + 1][j + 1], i32(0)), min(A[i + 1][j + 1], B[j + 2]), A[i + 1][j + 1])",
            ),
            (
                "A[i][j] = select(B[i] > 0, min(A[i][j-1], A[i-1][j]), A[i-1][j])",
                "select(gt(B[i + 1], i32(0)), min(A[i + 1][j + 1], A[i][j + 2]), A[i][j + 2])",
            ),
        ] {
            assert_eq!(body(i, statement), expected, "{statement}");
        }
        // floats have no value that every minimum leaves as it is, not a number among them
        let f = body("f32 A[N+1][N+1]\nf32 B[N+1]", "A[i][j] = select(B[i] > 0, min(A[i][j-1], B[j]), A[i][j-1])");
        assert!(f.starts_with("select("), "{f}");
    }

    #[test]
    fn loops_that_count_down_have_the_element_after_last() {
        let text = "loop t(N = 9) {\nf32 A[N+1][N+1]\nf32 B[N+1]\n\
                    for i in 1..N step -1 for j in 1..N A[i][j] = A[i][j+1] + A[i+1][j] + B[j]\n}";
        let file = language::parse("t", text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        let scop = lowered.normal().unwrap().to_string();
        let expected = "= ((A[i + 1][j + 2] + B[j + 1]) + A[i + 2][j + 1]);";
        assert!(scop.contains(expected), "{scop}");
        let (up, down) =
            (text.replace("j in 1..N", "j in 1..N step -1"), "= ((B[j + 1] + A[i + 2][j + 1]) + A[i + 1][j + 2]);");
        let file = language::parse("t", &up).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        let scop = lowered.normal().unwrap().to_string();
        assert!(scop.contains(down), "{scop}");
    }

    #[test]
    fn operands_that_follow_from_the_recurrence_through_other_statements_come_last() {
        let before = "E[i][j] = max(E[i][j-1], A[i][j-1] - 2)\nF[i][j] = max(F[i-1][j], A[i-1][j] - 2)";
        for (statements, expected) in [
            // of the row above, then of the element before
            (
                format!("{before}\nA[i][j] = max(A[i-1][j-1] + B[j], max(E[i][j], F[i][j]))"),
                "max(max((A[i][j] + B[j + 1]), F[i + 1][j + 1]), E[i + 1][j + 1])",
            ),
            // later than the element itself, which takes no other statement
            (
                format!("{before}\nA[i][j] = max(E[i][j], max(A[i][j-1] + B[j], B[i]))"),
                "max(max(B[i + 1], (A[i + 1][j] + B[j + 1])), E[i + 1][j + 1])",
            ),
            // what no statement before has computed yet is as old as its array
            (
                format!("{before}\nA[i][j] = max(E[i][j+1], max(A[i-1][j], B[j]))"),
                "max(max(E[i + 1][j + 2], B[j + 1]), A[i][j + 1])",
            ),
            // through two others
            (
                "E[i][j] = A[i][j-1] * 2\nF[i][j] = E[i][j] * 3\nA[i][j] = max(F[i][j], max(A[i-1][j], B[j]))".into(),
                "max(max(B[j + 1], A[i][j + 1]), F[i + 1][j + 1])",
            ),
        ] {
            assert_eq!(last_body(&statements), expected, "{statements}");
        }
    }

    #[test]
    fn products_leave_one_operation_between_iterations() {
        let a = "f32 A[N+1][N+1]\nf32 B[N+1]";
        for (statement, expected) in [
            // the sum does not round the product of the element before
            ("A[i][j] = 0.25 * B[j] + 0.5 * A[i][j-1]", "((f32(0.5) * A[i + 1][j + 1]) + (f32(0.25) * B[j + 2]))"),
            ("A[i][j] = 0.25 * B[j] - 0.5 * A[i][j-1]", "((f32(0.25) * B[j + 2]) - (f32(0.5) * A[i + 1][j + 1]))"),
            ("A[i][j] = 0.5 * A[i][j-1] - 0.25 * B[j]", "((f32(0.5) * A[i + 1][j + 1]) + neg((f32(0.25) * B[j + 2])))"),
            // a product for each operand
            (
                "A[i][j] = 0.25 * (A[i][j-1] + A[i-1][j] + B[j])",
                "((f32(0.25) * A[i + 1][j + 1]) + (f32(0.25) * (B[j + 2] + A[i][j + 2])))",
            ),
            (
                "A[i][j] = B[i] + (B[j] - A[i][j-1]) * 0.25",
                "((B[i + 1] + (f32(0.25) * B[j + 2])) - (f32(0.25) * A[i + 1][j + 1]))",
            ),
            // of two constants one
            (
                "A[i][j] = 0.5 * (B[i] + 0.25 * (A[i][j-1] + A[i-1][j]))",
                "((f32(0.125) * A[i + 1][j + 1]) + (f32(0.5) * (B[i + 1] + (f32(0.25) * A[i][j + 2]))))",
            ),
            // the operands are of one age, or the latest is no element
            ("A[i][j] = 0.5 * (A[i-1][j] + B[j] * A[i-1][j])", "(f32(0.5) * (A[i][j + 2] + (B[j + 2] * A[i][j + 2])))"),
            ("A[i][j] = 0.5 * (B[j] + B[i] * A[i][j-1])", "(f32(0.5) * (B[j + 2] + (B[i + 1] * A[i + 1][j + 1])))"),
        ] {
            assert_eq!(body(a, statement), expected, "{statement}");
        }
        // integers
        let i = body("i32 A[N+1][N+1]\ni32 B[N+1]", "A[i][j] = 3 * (A[i][j-1] + B[j])");
        assert_eq!(i, "(i32(3) * (A[i + 1][j + 1] + B[j + 2]))");
    }

    #[test]
    fn statements_that_follow_from_themselves_through_a_later_one_are_ordered() {
        let statements = "E[i][j] = A[i][j-1] + B[j] + F[i][j]\nA[i][j] = E[i][j]";
        let scop = scop_of(statements);
        assert!(scop.contains("= ((B[j + 1] + F[i + 1][j + 1]) + A[i + 1][j]);"), "{scop}");
        // nothing goes round
        let statements = "E[i][j] = F[i][j-1] + B[j] + B[i]\nF[i][j] = A[i][j]";
        let scop = scop_of(statements);
        assert!(scop.contains("= ((F[i + 1][j] + B[j + 1]) + B[i + 1]);"), "{scop}");
    }

    #[test]
    fn other_sums_keep_their_order() {
        let a = "f32 A[N+1][N+1]\nf32 B[N+1]";
        for (statement, expected) in [
            // an element twice: compensated sums
            (
                "A[i][j] = (A[i][j-1] + B[j]) - A[i][j-1] - B[j]",
                "(((A[i + 1][j + 1] + B[j + 2]) - A[i + 1][j + 1]) - B[j + 2])",
            ),
            (
                "A[i][j] = (A[i][j-1] + B[j] * B[i]) - A[i][j-1] - B[j] * B[i]",
                "(((A[i + 1][j + 1] + cast f32((B[j + 2] * B[i + 1]))) - A[i + 1][j + 1]) - cast f32((B[j + 2] * B[i + 1])))",
            ),
            // elements that later iterations write, and another tensor's
            ("A[i][j] = A[i][j+1] + B[i] + A[i+1][j-1]", "((A[i + 1][j + 3] + B[i + 1]) + A[i + 2][j + 1])"),
            // an element that the iteration chooses
            ("A[i][j] = A[i][i] + B[i] + B[j]", "((A[i + 1][i + 1] + B[i + 1]) + B[j + 2])"),
        ] {
            assert_eq!(body(a, statement), expected, "{statement}");
        }
    }
}
