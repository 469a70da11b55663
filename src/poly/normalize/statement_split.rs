//! Statement splitting: of a recurrence along the innermost loop, what does not wait for it becomes a statement before it
//! (node splitting: Padua and Wolfe, "Advanced Compiler Optimizations for Supercomputers", CACM 1986).
//!
//! In: a Scop in its original order, whose sums are reassociated. Out: the same values but for rounding, where
//! `for k: A[i][k] = B[i][k] + (A[i+1][k] + A[i][k-1]) * 0.5` is `for k: R[k] = B[i][k] + A[i+1][k] * 0.5`, which may run in
//! vectors, and `for k: A[i][k] = R[k] + A[i][k-1] * 0.5`, one fused operation for each iteration. Products of a sum with a
//! constant are distributed over it.
//!
//! Invariants: what is computed before reads no element that an earlier iteration of the innermost loop writes; an element
//! that it reads and the recurrence overwrites belongs to a later iteration or to its own. A body of which two summands read the
//! same element stays whole, as compensated sums do, unless one operand of it waits and the other does not.

use crate::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, UnaryOp, Var};
use crate::poly::normalize::reassociate::{distance, share_elements};
use crate::poly::schedule::{Band, Node, Row};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, Statement, StatementId, TensorDecl};
use crate::runtime::Result;

/// Fewest operations that are worth a pass over memory of their own. Unmeasured.
const LEAST_OPERATIONS: usize = 2;

/// Splits each statement that is a recurrence along its innermost loop.
pub fn split(scop: &Scop) -> Result<Scop> {
    let mut out = scop.clone();
    for id in scop.ids() {
        let Some(v) = innermost(&scop.order.root, id) else { continue };
        let Some((rest, recurrence)) = parts(scop, id, v) else { continue };
        let (s, tensor) = (scop.statement(id), BufferId(out.tensors.len() as u32));
        let dtype = scop.tensor(s.target).dtype;
        let subscript = Affine::var(v);
        let extent = s.extent(v);
        // statements have names of their own, and may share a target
        let name = format!("{}_before", s.name);
        out.tensors.push(TensorDecl::new(name.clone(), dtype, vec![extent], Role::Temporary));
        let before = StatementId(out.statements.len() as u32);
        out.statements.push(Statement {
            name,
            target: tensor,
            write: vec![subscript.clone()],
            body: rest,
            ..s.clone()
        });
        let rest = Expr::load(tensor, vec![subscript]);
        out.statements[id.0 as usize].body = recurrence
            .into_iter()
            .fold(rest, |sum, t| Expr::binary(if t.negative { BinaryOp::Sub } else { BinaryOp::Add }, sum, t.value));
        out.order.root = with_before(&out.order.root, before, id);
    }
    Ok(out)
}

/// The iterator of the innermost loop of a statement that has it for itself.
fn innermost(node: &Node, id: StatementId) -> Option<Var> {
    match node {
        Node::Leaf => None,
        Node::Sequence(children) => innermost(&children.iter().find(|c| c.0.contains(&id))?.1, id),
        Node::Band(band, child) => match (&**child, band.rows.last()) {
            (Node::Leaf, Some(row)) => match (&row.phi[..], row.tile) {
                ([(only, phi)], 1) if *only == id => match phi.terms[..] {
                    [(v, 1)] => Some(v),
                    _ => None,
                },
                _ => None,
            },
            (child, _) => innermost(child, id),
        },
    }
}

/// A copy of the tree where `before` has the loops of `id`, and the innermost one for itself.
fn with_before(node: &Node, before: StatementId, id: StatementId) -> Node {
    let added = |row: &Row| {
        let mut row = row.clone();
        let phi = row.phi.iter().find(|p| p.0 == id).map(|p| (before, p.1.clone()));
        row.phi.extend(phi);
        row
    };
    match node {
        Node::Leaf => Node::Leaf,
        Node::Sequence(children) => Node::Sequence(
            children
                .iter()
                .map(|(ids, child)| match ids.contains(&id) {
                    true => ([&ids[..], &[before]].concat(), with_before(child, before, id)),
                    false => (ids.clone(), child.clone()),
                })
                .collect(),
        ),
        Node::Band(band, child) => {
            let of = |rows: Vec<Row>| Band { rows, permutable: band.permutable };
            let Some((inner, outer)) = band.rows.split_last().filter(|_| **child == Node::Leaf) else {
                return Node::Band(of(band.rows.iter().map(added).collect()), Box::new(with_before(child, before, id)));
            };
            let leaf = |id: StatementId, phi: Affine| {
                let row = Row { phi: vec![(id, phi)], ..inner.clone() };
                (vec![id], Node::Band(of(vec![row]), Box::new(Node::Leaf)))
            };
            let phi = &inner.phi[0].1;
            let both = Node::Sequence(vec![leaf(before, phi.clone()), leaf(id, phi.clone())]);
            match outer {
                [] => both,
                outer => Node::Band(of(outer.iter().map(added).collect()), Box::new(both)),
            }
        }
    }
}

/// A summand, with its sign.
struct Term {
    negative: bool,
    value: Expr,
}

/// The part of a statement's body that does not wait for its recurrence along `v`, and the summands that do; `None`
/// where there is no recurrence, or nothing to split from it.
fn parts(scop: &Scop, id: StatementId, v: Var) -> Option<(Expr, Vec<Term>)> {
    let s = scop.statement(id);
    let dtype = scop.tensor(s.target).dtype;
    let is_float = dtype.is_float() && s.body.dtype(&|b| scop.tensor(b).dtype) == dtype;
    // a loop that does not choose the element overwrites it in each iteration: then every read of it waits
    let chooses = s.writes_along(v);
    if s.reduce.is_some() || s.is_scatter() || !is_float || !chooses || !s.body.reads(s.target) {
        return None;
    }
    let split = Splitter { s, v };
    let mut waiting = vec![];
    let rest = split.linear(&s.body, false, None, &mut waiting)?;
    let is_operand = matches!(&s.body, Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) if [a, b].iter().any(|e| ***e == rest.value));
    let mut summands = vec![];
    flatten(&s.body, &mut summands);
    if !is_operand && share_elements(summands) {
        return None;
    }
    let operations = |e: &Expr| {
        let mut count = 0;
        e.visit(&mut |e| count += usize::from(matches!(e, Expr::Binary(..) | Expr::Unary(..))));
        count
    };
    let varies = rest.value.any(&mut |e| matches!(e, Expr::Load(a) if a.affine_forms().any(|i| i.uses(v))));
    if waiting.is_empty() || operations(&rest.value) < LEAST_OPERATIONS || !varies {
        return None;
    }
    let rest = if rest.negative { Expr::unary(UnaryOp::Neg, rest.value) } else { rest.value };
    Some((rest, waiting))
}

/// Adds the summands of `e`, of sums times constants as well.
fn flatten<'a>(e: &'a Expr, out: &mut Vec<&'a Expr>) {
    match e {
        Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => [a, b].iter().for_each(|e| flatten(e, out)),
        Expr::Binary(BinaryOp::Mul, a, b) if matches!(**a, Expr::Const(_)) => flatten(b, out),
        Expr::Binary(BinaryOp::Mul, a, b) if matches!(**b, Expr::Const(_)) => flatten(a, out),
        e => out.push(e),
    }
}

struct Splitter<'a> {
    s: &'a Statement,
    v: Var,
}

impl Splitter<'_> {
    /// Adds the summands of `e`, times `factor`, that wait for the recurrence to `waiting`; the sum of the others.
    fn linear(&self, e: &Expr, negative: bool, factor: Option<&Expr>, waiting: &mut Vec<Term>) -> Option<Term> {
        let scaled = |e: &Expr| match factor {
            Some(factor) => Expr::binary(BinaryOp::Mul, factor.clone(), e.clone()),
            None => e.clone(),
        };
        if !self.waits(e) {
            return Some(Term { negative, value: scaled(e) });
        }
        match e {
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let flipped = negative != (*op == BinaryOp::Sub);
                let a = self.linear(a, negative, factor, waiting);
                let b = self.linear(b, flipped, factor, waiting);
                match (a, b) {
                    (Some(a), Some(b)) => Some(sum(a, b)),
                    (a, b) => a.or(b),
                }
            }
            Expr::Binary(BinaryOp::Mul, a, b) if factor.is_none() && matches!(**a, Expr::Const(_)) => {
                self.linear(b, negative, Some(a), waiting)
            }
            Expr::Binary(BinaryOp::Mul, a, b) if factor.is_none() && matches!(**b, Expr::Const(_)) => {
                self.linear(a, negative, Some(b), waiting)
            }
            e => {
                waiting.push(Term { negative, value: scaled(e) });
                None
            }
        }
    }

    /// Returns true if `e` reads what an earlier iteration of the innermost loop may write.
    fn waits(&self, e: &Expr) -> bool {
        let mut waits = false;
        e.visit_accesses(&mut |a| waits |= a.buffer == self.s.target && self.is_carried(a));
        waits
    }

    fn is_carried(&self, read: &Access) -> bool {
        let affine = read.index.iter().all(|i| matches!(i, Index::Affine(_)));
        let Some(distance) = distance(self.s, read).filter(|_| affine) else { return true };
        let outer = (0..distance.len()).filter(|&d| d != self.v.0 as usize).all(|d| distance[d] == 0);
        outer && distance[self.v.0 as usize] > 0
    }
}

fn sum(a: Term, b: Term) -> Term {
    let binary = |op, a: Term, b: Term| Expr::binary(op, a.value, b.value);
    match (a.negative, b.negative) {
        (false, true) => Term { negative: false, value: binary(BinaryOp::Sub, a, b) },
        (true, false) => Term { negative: false, value: binary(BinaryOp::Sub, b, a) },
        (negative, _) => Term { negative, value: binary(BinaryOp::Add, a, b) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;
    use crate::poly::reference;
    use crate::runtime::Tensor;
    use std::collections::BTreeMap;

    fn loops(body: &str) -> Scop {
        let text = format!("loop t(T = 2, N = 9) {{\ninout f64 A[N][N]\nin f64 B[N][N]\n{body}\n}}");
        let file = language::parse("t", &text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        lowered.normal().unwrap()
    }

    /// The bodies of the statements.
    fn bodies(scop: &Scop) -> Vec<String> {
        let text = scop.to_string();
        let lines = text.lines().take_while(|line| line.trim() != "order");
        lines.filter_map(|line| line.split_once(" = ")).map(|(_, body)| body.trim_end_matches(';').into()).collect()
    }

    fn values(scop: &Scop) -> Vec<f64> {
        let data: Vec<f64> = (0..81).map(|i| f64::from(i * 29 % 23) / 8.0 - 1.0).collect();
        let other: Vec<f64> = (0..81).map(|i| f64::from(i * 17 % 13) / 4.0).collect();
        let mut tensors = vec![Tensor::new(&[9, 9], &data), Tensor::new(&[9, 9], &other)];
        let rest = scop.tensors[2..].iter().map(|t| Tensor::zeros(t.dtype, &t.shape));
        tensors.extend(rest);
        reference::run(scop, &scop.order, &mut tensors);
        tensors[0].to_vec::<f64>()
    }

    #[test]
    fn what_does_not_wait_comes_before() {
        let nest = "for t in 0..T for i in 1..N-1 for j in 2..N-1";
        for (statement, expected) in [
            // one that the iteration overwrites, one that a later one does, and products with a constant
            (
                "A[i][j] = 0.25 * (A[i][j-1] + A[i-1][j] + A[i][j+1] - B[i][j]) + A[i][j]",
                [
                    "(A[i + 1][j + 2] + (f64(0.25) * ((A[i + 1][j + 3] - B[i + 1][j + 2]) + A[i][j + 2])))",
                    "(A_before[j] + (f64(0.25) * A[i + 1][j + 1]))",
                ],
            ),
            // signs
            (
                "A[i][j] = B[i][j] * B[i][j-1] - 0.5 * A[i][j-2] - (B[j][i] - A[i][j-1] * 0.25)",
                [
                    "((B[i + 1][j + 2] * B[i + 1][j + 1]) - B[j + 2][i + 1])",
                    "((A_before[j] - (f64(0.5) * A[i + 1][j])) + (f64(0.25) * A[i + 1][j + 1]))",
                ],
            ),
            // an element twice in one summand
            (
                "A[i][j] = A[i][j-1] + B[i][j] * B[i][j] - B[j][i] * B[j][i]",
                [
                    "((B[i + 1][j + 2] * B[i + 1][j + 2]) - (B[j + 2][i + 1] * B[j + 2][i + 1]))",
                    "(A_before[j] + A[i + 1][j + 1])",
                ],
            ),
            // an element twice in the operand that does not wait
            (
                "A[i][j] += 1.5 * ((A[i][j+1] + A[i][j-1]) / 2 - A[i][j])",
                [
                    "(A[i + 1][j + 2] + (f64(1.5) * ((A[i + 1][j + 3] / f64(2.0)) - A[i + 1][j + 2])))",
                    "(A_before[j] + (f64(0.75) * A[i + 1][j + 1]))",
                ],
            ),
            // what is not a sum waits as a whole
            (
                "A[i][j] = max(A[i][j-1], B[i][j]) + B[i][j-1] * B[j][i] + B[j][j]",
                [
                    "((B[i + 1][j + 1] * B[j + 2][i + 1]) + B[j + 2][j + 2])",
                    "(A_before[j] + max(A[i + 1][j + 1], B[i + 1][j + 2]))",
                ],
            ),
        ] {
            let before = loops(&format!("{nest} {statement}"));
            let after = split(&before).unwrap();
            after.verify().unwrap();
            let found = bodies(&after);
            assert_eq!([&found[1], &found[0]], expected, "{after}");
            for (a, b) in values(&before).iter().zip(values(&after)) {
                assert!((a - b).abs() <= 1e-12 * a.abs().max(1.0), "{a} {b}\n{after}");
            }
        }
    }

    #[test]
    fn other_statements_stay_whole() {
        for body in [
            // no recurrence along the innermost loop
            "for i in 1..N for j in 1..N A[i][j] = A[i-1][j] + B[i][j] * B[j][i]",
            // an element that the iteration chooses
            "for i in 1..N for j in 1..N A[i][j] = A[i][j-1] + A[i][N-1-j] * A[j][i]",
            // nothing to split
            "for i in 1..N for j in 1..N A[i][j] = A[i][j-1] * B[i][j] + B[i][j]",
            // the innermost loop overwrites one element
            "for i in 1..N for j in 1..N A[i][1] = 0.5 * A[i][1] + B[i][j] * B[j][i] + A[N-i][1]",
            // an element twice: compensated sums
            "for i in 1..N for j in 1..N A[i][j] = (A[i][j-1] + B[i][j] * B[j][i]) - A[i][j-1] - B[i][j] * B[j][i]",
            "for i in 1..N for j in 1..N A[i][j] = 0.5 * ((A[i][j-1] + B[i][j] * B[j][i]) - A[i][j-1] - B[i][j] * B[j][i])",
            // not alone in its loop
            "for i in 1..N for j in 1..N { A[i][j] = A[i][j-1] + B[i][j] * B[j][i]  A[j][i] = 1 }",
        ] {
            let scop = loops(body);
            assert_eq!(split(&scop).unwrap(), scop, "{body}");
        }
    }
}
