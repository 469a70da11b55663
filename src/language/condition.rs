//! Conditions on indices: disjoint pieces, each a conjunction of `affine ≥ 0`.

use super::source::{Checked, Diagnostic};
use crate::expr::Affine;
use crate::expr::CompareOp;
use crate::expr::syntax::{Expr, Kind, Operator};
use crate::language::environment::Scope;

/// All of these hold.
pub type Conjunction = Vec<Affine>;

/// Most pieces of one condition.
const PIECES: usize = 64;

/// Divides the condition `e` = `truth` into pieces: exactly one holds where it is true, none elsewhere.
pub fn pieces(scope: &Scope, e: &Expr, truth: bool) -> Checked<Vec<Conjunction>> {
    let conjunctions = match &e.kind {
        Kind::Bool(v) if *v == truth => vec![vec![]],
        Kind::Bool(_) => vec![],
        Kind::Not(a) => pieces(scope, a, !truth)?,
        Kind::Binary(operator @ (Operator::And | Operator::Or), a, b) => {
            if (*operator == Operator::And) == truth {
                product(pieces(scope, a, truth)?, pieces(scope, b, truth)?)
            } else {
                let mut out = pieces(scope, a, truth)?;
                out.extend(product(pieces(scope, a, !truth)?, pieces(scope, b, truth)?));
                out
            }
        }
        Kind::Binary(Operator::Compare(op), a, b) => {
            let (Some(a), Some(b)) = (scope.affine(a)?, scope.affine(b)?) else {
                return Err(not_affine(scope, e));
            };
            let difference = a.add_scaled(&b, -1);
            let at_least = |k: i64, c: i64| vec![difference.scale(k).offset(c)];
            let op = if truth { *op } else { (*op).opposite() };
            match op {
                CompareOp::Ge => vec![at_least(1, 0)],
                CompareOp::Gt => vec![at_least(1, -1)],
                CompareOp::Le => vec![at_least(-1, 0)],
                CompareOp::Lt => vec![at_least(-1, -1)],
                CompareOp::Eq => vec![[at_least(1, 0), at_least(-1, 0)].concat()],
                CompareOp::Ne => vec![at_least(-1, -1), at_least(1, -1)],
            }
        }
        _ => return Err(not_affine(scope, e)),
    };
    if conjunctions.len() > PIECES {
        return Err(Diagnostic::unsupported(e.span, format!("a condition of more than {PIECES} cases")));
    }
    Ok(conjunctions)
}

/// Returns true if `e` joins comparisons of affine forms: [`pieces`] divides no other condition.
pub fn is_affine(scope: &Scope, e: &Expr) -> Checked<bool> {
    Ok(match &e.kind {
        Kind::Bool(_) => true,
        Kind::Not(a) => is_affine(scope, a)?,
        Kind::Binary(Operator::And | Operator::Or, a, b) => is_affine(scope, a)? && is_affine(scope, b)?,
        Kind::Binary(Operator::Compare(_), a, b) => scope.affine(a)?.is_some() && scope.affine(b)?.is_some(),
        _ => false,
    })
}

/// Forms that are ≥ 0 wherever `e` = `truth`: those of its parts that compare affine forms. A part from data, or one that is
/// a disjunction, gives none.
pub fn facts(scope: &Scope, e: &Expr, truth: bool) -> Vec<Affine> {
    if let Ok(mut pieces) = pieces(scope, e, truth)
        && pieces.len() == 1
    {
        return pieces.remove(0);
    }
    match &e.kind {
        Kind::Not(a) => facts(scope, a, !truth),
        Kind::Binary(operator @ (Operator::And | Operator::Or), a, b) if (*operator == Operator::And) == truth => {
            [facts(scope, a, truth), facts(scope, b, truth)].concat()
        }
        _ => vec![],
    }
}

fn product(a: Vec<Conjunction>, b: Vec<Conjunction>) -> Vec<Conjunction> {
    a.iter().flat_map(|a| b.iter().map(move |b| [a.clone(), b.clone()].concat())).collect()
}

fn not_affine(scope: &Scope, e: &Expr) -> Diagnostic {
    let why = if scope.reads_data(e) {
        "depends on data: choose between values with `select(condition, a, b)`"
    } else {
        "does not compare sums of indices times numbers"
    };
    Diagnostic::invalid(e.span, format!("the condition `{}` {why}", scope.show(e)))
}

#[cfg(test)]
mod tests {
    use crate::language;

    fn lowers(value: &str) -> bool {
        let text = format!("loop p(N = 30) {{ in u8 a[N]  in f32 x[N]  out f32 y[N]  for i in 0..N y[i] = {value} }}");
        let file = language::parse("p.tile", &text).unwrap_or_else(|e| panic!("{e}"));
        file.lower(file.program(None).unwrap(), &Default::default(), None).is_ok()
    }

    #[test]
    fn affine_parts_of_a_condition_guard_what_it_decides() {
        assert!(lowers("select(i > 1 && a[i] == 1, x[i - 2], 0)"));
        assert!(lowers("select(i < 2 || a[i] > 0, 0, x[i - 2])"));
        assert!(lowers("select(!(i < 2 || a[i] > 0), x[i - 2], 0)"));
        // the right operand, where the left one does not decide
        assert!(lowers("select(i > 0 && a[i] == a[i - 1], 1, 0)"));
        assert!(lowers("select(i < 1 || a[i] == a[i - 1], 1, 0)"));
        // the other branch, the other operator, the left operand
        assert!(!lowers("select(i > 1 && a[i] == 1, 0, x[i - 2])"));
        assert!(!lowers("select(i > 1 || a[i] == 1, x[i - 2], 0)"));
        assert!(!lowers("select(a[i] == a[i - 1] && i > 0, 1, 0)"));
        assert!(!lowers("select(i > 0 || a[i] == a[i - 1], 1, 0)"));
    }
}
