//! Linear recurrences: one fused operation between an iteration of the innermost loop and the next.
//!
//! In: the body of a statement of floats, in order. Out: where it is linear in the element that the iteration before computed, through
//! sums, and products and quotients of constants, the body without that element plus the element times one constant:
//! `(u[i] + 1.2*((u[i+1] + b[i])/6 - u[i])) + 0.2*u[i-1]` for `u[i] + 1.2*((u[i+1] + b[i] + u[i-1])/6 - u[i])`, where an iteration
//! waits for one operation instead of a sum, a quotient, a difference and a sum. A statement that accumulates such a body takes its target into
//! the sum.
//!
//! Invariant: a sum in which terms cancel each other keeps its order, as rounding errors are taken out by such sums.

use super::{Age, Recurrence};
use crate::codegen::select::value::contracts;
use crate::expr::scalar::Value;
use crate::expr::{Access, BinaryOp, BufferId, Expr, Scalar, UnaryOp};
use crate::runtime::DType;

/// Operations between an element and the value from which on they become one.
const LEAST_OPERATIONS: usize = 2;

/// Sums of coefficients below this share of their sizes are zero.
const CANCELS: f64 = 1e-6;

/// A value that is `rest + coefficient * latest`.
struct Linear<'a> {
    rest: Option<Expr>,
    coefficient: f64,
    latest: &'a Access,
    /// Operations between the element and the value.
    operations: usize,
}

impl Recurrence<'_> {
    /// The operator and the body of the statement, whose body in order is `body`, with one operation after the latest element.
    pub(super) fn linear(&self, body: Expr, dtype: &impl Fn(BufferId) -> DType) -> (Option<BinaryOp>, Expr) {
        let (s, of) = (self.s, body.dtype(dtype));
        let is_alone = s.vars().next_back().is_some_and(|innermost| s.writes_along(innermost));
        let whole = match s.reduce {
            None => body.clone(),
            Some(BinaryOp::Add) if is_alone => {
                Expr::binary(BinaryOp::Add, Expr::load(s.target, s.write.clone()), body.clone())
            }
            Some(_) => return (s.reduce, body),
        };
        match self.apart(&whole, of).filter(|_| contracts(of) && of == dtype(s.target)) {
            Some(apart) => (None, apart),
            None => (s.reduce, body),
        }
    }

    /// The value with one operation after its latest element, where it has several and no terms of it cancel each other.
    fn apart(&self, e: &Expr, dtype: DType) -> Option<Expr> {
        let linear = self.split(e)?;
        let (rest, latest) = (linear.rest?, linear.latest);
        let mut occurrences = 0;
        e.visit_accesses(&mut |a| occurrences += usize::from(a == latest));
        let mut terms = vec![];
        collect(e, 1.0, &mut terms);
        if linear.operations < LEAST_OPERATIONS || occurrences != 1 || cancels(&terms) {
            return None;
        }
        let element = Expr::Load(latest.clone());
        let joined = match linear.coefficient {
            1.0 => Expr::binary(BinaryOp::Add, rest, element),
            -1.0 => Expr::binary(BinaryOp::Sub, rest, element),
            c => {
                let scaled = Expr::binary(BinaryOp::Mul, Expr::Const(Scalar::of(dtype, c)), element);
                Expr::binary(BinaryOp::Add, rest, scaled)
            }
        };
        Some(self.latest_fused(joined, dtype))
    }

    /// The parts of `e` as a linear form of its latest element, if an earlier iteration of the innermost loop alone computed it.
    fn split<'a>(&self, e: &'a Expr) -> Option<Linear<'a>> {
        match e {
            Expr::Load(latest) if self.is_of_innermost(e) => {
                Some(Linear { rest: None, coefficient: 1.0, latest, operations: 0 })
            }
            Expr::Unary(UnaryOp::Neg, a) => {
                let of = self.split(a)?;
                Some(Linear { rest: of.rest.map(|e| Expr::unary(UnaryOp::Neg, e)), coefficient: -of.coefficient, ..of })
            }
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let (first, second) = (self.age(a), self.age(b));
                let (latest, other) = if first > second { (a, b) } else { (b, a) };
                let of = self.split(latest).filter(|_| first != second)?;
                let is_negative = *op == BinaryOp::Sub && first < second;
                let rest = match of.rest {
                    Some(rest) if first > second => Expr::binary(*op, rest, (**other).clone()),
                    Some(rest) => Expr::binary(*op, (**other).clone(), rest),
                    None if *op == BinaryOp::Sub && first > second => Expr::unary(UnaryOp::Neg, (**other).clone()),
                    None => (**other).clone(),
                };
                // a sum takes a product with it
                let operations = of.operations + usize::from(!matches!(**latest, Expr::Binary(BinaryOp::Mul, ..)));
                let coefficient = if is_negative { -of.coefficient } else { of.coefficient };
                Some(Linear { rest: Some(rest), coefficient, operations, ..of })
            }
            Expr::Binary(op, a, b) => {
                let (of, factor) = match (op, &**a, &**b) {
                    (BinaryOp::Mul, Expr::Const(c), of) | (BinaryOp::Mul, of, Expr::Const(c)) => (of, number(*c)),
                    (BinaryOp::Div, of, Expr::Const(c)) => (of, 1.0 / number(*c)),
                    _ => return None,
                };
                let parts = self.split(of).filter(|_| factor.is_normal())?;
                let with = |rest| match std::ptr::eq(of, &**a) {
                    true => Expr::binary(*op, rest, (**b).clone()),
                    false => Expr::binary(*op, (**a).clone(), rest),
                };
                Some(Linear {
                    rest: parts.rest.map(with),
                    coefficient: parts.coefficient * factor,
                    operations: parts.operations + 1,
                    ..parts
                })
            }
            _ => None,
        }
    }

    /// Returns true if the latest value that an expression follows from is one of an earlier iteration of the innermost loop alone.
    fn is_of_innermost(&self, e: &Expr) -> bool {
        match self.age(e) {
            Age::Ago(std::cmp::Reverse(distance), 1) => distance[..distance.len().max(1) - 1].iter().all(|&d| d == 0),
            _ => false,
        }
    }
}

fn number(c: Scalar) -> f64 {
    Value::from(c).as_f64()
}

/// Adds the terms of a sum with their coefficients.
fn collect<'a>(e: &'a Expr, coefficient: f64, out: &mut Vec<(&'a Expr, f64)>) {
    match e {
        Expr::Unary(UnaryOp::Neg, a) => collect(a, -coefficient, out),
        Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
            collect(a, coefficient, out);
            collect(b, if *op == BinaryOp::Add { coefficient } else { -coefficient }, out);
        }
        Expr::Binary(op, a, b) => match (op, &**a, &**b) {
            (BinaryOp::Mul, Expr::Const(c), of) | (BinaryOp::Mul, of, Expr::Const(c)) => {
                collect(of, coefficient * number(*c), out);
            }
            (BinaryOp::Div, of, Expr::Const(c)) => collect(of, coefficient / number(*c), out),
            _ => out.push((e, coefficient)),
        },
        e => out.push((e, coefficient)),
    }
}

/// Returns true if terms cancel each other: several of one value, or several constants, whose sum is none.
fn cancels(terms: &[(&Expr, f64)]) -> bool {
    let is_constant = |e: &Expr| matches!(e, Expr::Const(_));
    terms.iter().enumerate().any(|(k, (e, _))| {
        let alike = terms.iter().filter(|(other, _)| other == e || is_constant(other) && is_constant(e));
        let (mut count, mut sum, mut size) = (0, 0.0, 0.0);
        for (_, c) in alike {
            count += 1;
            sum += c;
            size += c.abs();
        }
        let first = terms[..k].iter().all(|(other, _)| other != e);
        first && count > 1 && (is_constant(e) || f64::abs(sum) <= CANCELS * size)
    })
}

#[cfg(test)]
mod tests {
    use crate::language;
    use std::collections::BTreeMap;

    /// The only statement of loops over i and j, as the ILP gets it: what it does to its target.
    fn statement(statement: &str) -> String {
        let declared = "f32 A[N+1][N+1]\nf32 B[N+1]\ni32 I[N+1][N+1]";
        let text = format!("loop t(N = 9) {{\n{declared}\nfor i in 1..N for j in 2..N {statement}\n}}");
        let file = language::parse("t", &text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        let scop = lowered.normal().unwrap().to_string();
        let line = scop.lines().find(|line| line.contains("= ") && line.trim_end().ends_with(';')).unwrap();
        line.split_once("] ").unwrap().1.trim_end_matches(';').to_string()
    }

    #[test]
    fn iterations_wait_for_one_operation() {
        for (text, expected) in [
            // relaxation, with the target accumulated and read
            (
                "A[i][j] += 1.5 * ((A[i][j+1] + A[i][j-1]) / 2 - A[i][j])",
                "= ((A[i + 1][j + 2] + (f32(1.5) * ((A[i + 1][j + 3] / f32(2.0)) - A[i + 1][j + 2]))) + (f32(0.75) * A[i + 1][j + 1]))",
            ),
            // a sum and a quotient alone
            (
                "A[i][j] = (A[i-1][j] + A[i][j-1] + B[j]) / 4",
                "= (((B[j + 2] + A[i][j + 2]) / f32(4.0)) + (f32(0.25) * A[i + 1][j + 1]))",
            ),
            // a coefficient of one, and differences
            (
                "A[i][j] = 2 * (B[j] + (A[i][j-1] + B[i]) / 2)",
                "= ((f32(2.0) * (B[j + 2] + (B[i + 1] / f32(2.0)))) + A[i + 1][j + 1])",
            ),
            (
                "A[i][j] = B[j] - 2 * (B[i] + (B[0] - A[i][j-1]) / 4)",
                "= ((B[j + 2] - (f32(2.0) * (B[i + 1] + (B[0] / f32(4.0))))) + (f32(0.5) * A[i + 1][j + 1]))",
            ),
        ] {
            assert_eq!(statement(text), expected, "{text}");
        }
    }

    #[test]
    fn other_bodies_keep_their_operations() {
        for (text, expected) in [
            // terms that cancel: of one value, and constants
            (
                "A[i][j] += (A[i][j-1] + B[j]) / 2 - A[i][j]",
                "add = (((A[i + 1][j + 1] + B[j + 2]) / f32(2.0)) - A[i + 1][j + 2])",
            ),
            ("A[i][j] = ((A[i][j-1] + 9) / 2 - 9) * 3", "/ f32(2.0)) - f32(9.0)) * f32(3.0))"),
            // the element twice, and under a function
            ("A[i][j] = (A[i][j-1] + B[j] + A[i][j-1] * B[i]) / 3", "/ f32(3.0))"),
            ("A[i][j] = (sqrt(A[i][j-1]) + B[j]) / 3", "= ((sqrt(A[i + 1][j + 1]) + B[j + 2]) / f32(3.0))"),
            // of the row above, of a sum over the innermost loop, and integers
            ("A[i][j] = (A[i-1][j] + B[j]) / 3", "= ((A[i][j + 2] + B[j + 2]) / f32(3.0))"),
            ("B[i] += (B[i-1] + A[i][j]) / 3", "add = ((B[i] + A[i + 1][j + 2]) / f32(3.0))"),
            ("I[i][j] = (I[i][j-1] + I[i-1][j]) / 3", "= ((I[i + 1][j + 1] + I[i][j + 2]) / i32(3))"),
        ] {
            let body = statement(text);
            assert!(body.ends_with(expected), "{text}: {body}");
        }
    }
}
