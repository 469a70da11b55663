//! Reassociation of recurrences: of the operands of a sum, a minimum or a maximum that the statement itself computed in
//! earlier iterations, the latest comes last.
//!
//! In: a loop program. Out: the same program, where `(A[i][j-1] + A[i+1][j]) + B[i][j]` in loops over i and j is
//! `(A[i+1][j] + B[i][j]) + A[i][j-1]`: an iteration waits for the one before with its last operation alone (height reduction
//! of recurrences: Allan et al., "Software Pipelining", 1995). Floats are rounded in that order, by every stage that follows.
//!
//! Invariant: a sum that reads one element twice keeps its order, so that the compensation of rounding errors, as by Kahan,
//! stays what it is.

use crate::expr::{Access, Affine, BinaryOp, Expr, Index, UnaryOp};
use crate::poly::scop::Scop;
use crate::poly::statement::Statement;

/// Reorders the operands of each statement.
pub fn reassociate(scop: &Scop) -> Scop {
    let mut out = scop.clone();
    for s in &mut out.statements {
        if s.body.reads(s.target) && !s.is_scatter() {
            s.body = s.body.rewrite(&mut |e| match e {
                Expr::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => ordered(s, e, BinaryOp::Add),
                Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), ..) => ordered(s, e, op),
                e => e,
            });
        }
    }
    out
}

/// An operand of a chain, with its sign.
struct Term {
    negative: bool,
    value: Expr,
}

/// The chain of `op` at the root of `e` with its operands in order of age, or `e`.
fn ordered(s: &Statement, e: Expr, op: BinaryOp) -> Expr {
    let mut terms = vec![];
    flatten(&e, op, false, &mut terms);
    let ages: Vec<Age> = terms.iter().map(|t| age(s, &t.value)).collect();
    if terms.len() < 3 || ages.is_sorted() || reads_twice(&e) {
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

/// Returns true if some element is read in two places.
pub(super) fn reads_twice(e: &Expr) -> bool {
    let mut seen: Vec<&Access> = vec![];
    let mut twice = false;
    e.visit_accesses(&mut |a| {
        twice |= seen.contains(&a);
        seen.push(a);
    });
    twice
}

/// When a value was computed, the earliest first: by no iteration of these loops, or so many iterations of each loop ago.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Age {
    Before,
    Ago(std::cmp::Reverse<Vec<i64>>),
}

/// The age of the latest value that an expression reads.
fn age(s: &Statement, e: &Expr) -> Age {
    let mut latest = Age::Before;
    e.visit_accesses(&mut |a| {
        if a.buffer == s.target
            && let Some(distance) = distance(s, a)
            && distance.iter().find(|&&d| d != 0).is_some_and(|&d| d > 0)
        {
            latest = std::mem::replace(&mut latest, Age::Before).max(Age::Ago(std::cmp::Reverse(distance)));
        }
    });
    latest
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
            // a product of the sum is one of its operands
            (
                "A[i][j] = (A[i][j-1] + B[i] + B[j]) * B[0] + B[1] + B[2]",
                "((B[1] + B[2]) + (((B[i + 1] + B[j + 2]) + A[i + 1][j + 1]) * B[0]))",
            ),
        ] {
            assert_eq!(body(a, statement), expected, "{statement}");
        }
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
            // elements that later iterations write, and another tensor's
            ("A[i][j] = A[i][j+1] + B[i] + A[i+1][j-1]", "((A[i + 1][j + 3] + B[i + 1]) + A[i + 2][j + 1])"),
            // an element that the iteration chooses
            ("A[i][j] = A[i][i] + B[i] + B[j]", "((A[i + 1][i + 1] + B[i + 1]) + B[j + 2])"),
        ] {
            assert_eq!(body(a, statement), expected, "{statement}");
        }
    }
}
