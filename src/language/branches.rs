//! Branches of a condition: which of their assignments are one, and in which order they may stand behind each other.
//!
//! In: two branches whose own conditions are converted. Out: the assignments of both that replace or update the same elements, or the statements in an order in
//! which what changes the condition comes last, where nothing between depends on it. What comes last needs no copy of the condition.

use super::live_ranges::occurrences;
use super::syntax::{Assign, Assignment, Combine, Statement, assignments};
use crate::expr::syntax::{Expr as Text, Kind};

/// The assignments of two branches that replace the same elements in the same order, or of which each is the only one and updates the same element; the
/// values of the latter are those of the first one's update.
pub fn paired(a: &[Statement], b: &[Statement]) -> Option<Vec<(Assignment, Assignment)>> {
    let single = a.len() == 1;
    let pair = |(a, b): (&Statement, &Statement)| match (a, b) {
        (Statement::Assign(a), Statement::Assign(b)) if a.target == b.target && a.subscripts == b.subscripts => {
            match (a.assign, b.assign) {
                (Assign::Set, Assign::Set) => Some((a.clone(), b.clone())),
                (Assign::Update(x), Assign::Update(y)) if single && x != Combine::Div => {
                    let is_sum = |c: Combine| matches!(c, Combine::Add | Combine::Sub);
                    match x == y {
                        true => Some((a.clone(), b.clone())),
                        false if is_sum(x) && is_sum(y) => Some((as_added(a), as_added(b))),
                        false => None,
                    }
                }
                _ => None,
            }
        }
        _ => None,
    };
    (a.len() == b.len()).then(|| a.iter().zip(b).map(pair).collect()).flatten()
}

/// A subtraction as an addition.
fn as_added(a: &Assignment) -> Assignment {
    if a.assign != Assign::Update(Combine::Sub) {
        return a.clone();
    }
    Assignment { assign: Assign::Update(Combine::Add), value: negated(&a.value), ..a.clone() }
}

/// `-e`, of a number that number.
fn negated(e: &Text) -> Text {
    let kind = match &e.kind {
        Kind::Real(value) => Kind::Real(-value),
        Kind::Negate(a) => return (**a).clone(),
        _ => Kind::Negate(Box::new(e.clone())),
    };
    Text { kind, span: e.span }
}

/// Puts the statement that changes what `condition` reads behind all others of its branch. Returns the branch that comes last, of which the other one sees nothing, as one
/// of them alone runs; `None` where it is not one assignment, or others of its branch depend on it: the condition is needed once more when it has changed.
pub fn put_last(condition: &Text, branches: [&mut Vec<Statement>; 2]) -> Option<usize> {
    let changes = |s: &Statement| writes_of(std::slice::from_ref(s), condition);
    let [of_body, of_otherwise] =
        branches.each_ref().map(|b| (0..b.len()).filter(|&n| changes(&b[n])).collect::<Vec<_>>());
    let (last, n) = match (&of_body[..], &of_otherwise[..]) {
        ([], []) => return Some(1),
        ([n], []) => (0, *n),
        ([], [n]) => (1, *n),
        _ => return None,
    };
    let block = branches.into_iter().nth(last)?;
    let is_free = |s: &Statement| !depend(&block[n], s);
    if !matches!(block[n], Statement::Assign(_)) || !block[n + 1..].iter().all(is_free) {
        return None;
    }
    block[n..].rotate_left(1);
    Some(last)
}

/// Returns true if one of two statements writes an array that the other one names.
fn depend(a: &Statement, b: &Statement) -> bool {
    let [a, b] = [a, b].map(std::slice::from_ref);
    let writes_named = |writer: &[Statement], other: &[Statement]| {
        let names = occurrences(other);
        assignments(writer).iter().any(|w| names.contains_key(&w.target.text))
    };
    writes_named(a, b) || writes_named(b, a)
}

/// Returns true if `statements` write an array that `e` reads.
pub fn writes_of(statements: &[Statement], e: &Text) -> bool {
    let written = assignments(statements);
    let mut reads = false;
    e.visit(&mut |e| {
        reads |= match &e.kind {
            Kind::Element(name, _) => written.iter().any(|a| a.target == *name),
            Kind::Name(name) => written.iter().any(|a| a.target.text == *name),
            _ => false,
        }
    });
    reads
}
