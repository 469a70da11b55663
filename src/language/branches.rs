//! Branches of a condition: which of their assignments are one, and in which order they may stand behind each other.
//!
//! In: two branches whose own conditions are converted. Out: the assignments of both that replace or update the same elements, or the statements in an order in
//! which what changes the condition comes last, where nothing between depends on it. What comes last needs no copy of the condition.

use super::live_ranges::occurrences;
use super::syntax::{Assign, Assignment, Combine, Statement, assignments};
use crate::expr::syntax::{Expr as Text, Kind, Operator};
use crate::poly::analysis::element_function::type_range;
use crate::poly::statement::TensorDecl;

/// The assignments of two branches that replace the same elements in the same order, or of which each is the only one and updates the same element; the
/// values of the latter are those of one update.
pub fn paired([a, b]: [&[Statement]; 2], arrays: &[TensorDecl]) -> Option<Vec<(Assignment, Assignment)>> {
    let single = a.len() == 1;
    let pair = |(a, b): (&Statement, &Statement)| match (a, b) {
        (Statement::Assign(a), Statement::Assign(b)) if is_same(a, b) => match (a.assign, b.assign) {
            (Assign::Set, Assign::Set) => Some((a.clone(), b.clone())),
            _ if single => same_update(a, b, arrays),
            _ => None,
        },
        _ => None,
    };
    (a.len() == b.len()).then(|| a.iter().zip(b).map(pair).collect()).flatten()
}

/// Takes the assignments to the same elements out of both branches, of which nothing else there depends, and which leave the condition as it is. A value that is assigned in
/// the one and updated in the other is assigned in both, where `fits` says that it has the type of its target.
pub fn taken_out(
    condition: &Text,
    [body, otherwise]: [&mut Vec<Statement>; 2],
    (fits, arrays): (&dyn Fn(&Assignment) -> bool, &[TensorDecl]),
) -> Vec<(Assignment, Assignment)> {
    let is_free = |block: &[Statement], n: usize| {
        (0..block.len()).all(|m| m == n || !depend(&block[n], &block[m])) && !writes_of(&block[n..=n], condition)
    };
    let (mut out, mut n) = (vec![], 0);
    while n < body.len() {
        let pair = (0..otherwise.len()).find_map(|m| {
            let (Statement::Assign(a), Statement::Assign(b)) = (&body[n], &otherwise[m]) else { return None };
            let free = is_same(a, b) && is_free(body, n) && is_free(otherwise, m);
            let both = || {
                same_update(a, b, arrays).or_else(|| (fits(a) && fits(b)).then(|| as_set(a).zip(as_set(b))).flatten())
            };
            Some((m, free.then(both)??))
        });
        match pair {
            Some((m, pair)) => {
                out.push(pair);
                body.remove(n);
                otherwise.remove(m);
            }
            None => n += 1,
        }
    }
    out
}

fn is_same(a: &Assignment, b: &Assignment) -> bool {
    a.target == b.target && a.subscripts == b.subscripts
}

/// Two updates as ones of the same operation.
fn same_update(a: &Assignment, b: &Assignment, arrays: &[TensorDecl]) -> Option<(Assignment, Assignment)> {
    let (Assign::Update(x), Assign::Update(y)) = (a.assign, b.assign) else { return None };
    let is_sum = |c: Combine| matches!(c, Combine::Add | Combine::Sub);
    // unsigned types have no negative numbers
    let is_signed = || {
        arrays.iter().any(|known| {
            known.name == a.target.text && (known.dtype.is_float() || type_range(known.dtype).is_some_and(|r| r.0 < 0))
        })
    };
    match x == y {
        _ if x == Combine::Div => None,
        true => Some((a.clone(), b.clone())),
        false => (is_sum(x) && is_sum(y) && is_signed()).then(|| (as_added(a), as_added(b))),
    }
}

/// A sum, a difference or a product as an assignment of its result.
fn as_set(a: &Assignment) -> Option<Assignment> {
    let operator = match a.assign {
        Assign::Set => return Some(a.clone()),
        Assign::Update(Combine::Add) => Operator::Add,
        Assign::Update(Combine::Sub) => Operator::Sub,
        Assign::Update(Combine::Mul) => Operator::Mul,
        _ => return None,
    };
    let kind = match a.subscripts.is_empty() {
        true => Kind::Name(a.target.text.clone()),
        false => Kind::Element(a.target.clone(), a.subscripts.clone()),
    };
    let element = Text { kind, span: a.target.span };
    let value = element.joined(operator, a.value.clone());
    Some(Assignment { assign: Assign::Set, value, ..a.clone() })
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
