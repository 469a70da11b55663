//! Remainders in the bounds of loops, as in `1 + t % 2`: their least and greatest values.
//!
//! In: a bound. Out: one without remainders that is never above it, or never below it, so that the loop between such bounds has all
//! iterations of the one that is written.

use super::source::Checked;
use crate::expr::syntax::{Expr as Text, Kind, Operator};
use crate::language::environment::Scope;

/// `e` with the greatest remainder in the place of each, or the least.
pub fn without_remainders(scope: &Scope, e: &Text, greatest: bool) -> Checked<Text> {
    let of = |e: &Text, greatest| without_remainders(scope, e, greatest).map(Box::new);
    let positive = |e: &Text| -> Checked<Option<i64>> {
        Ok(scope.affine(e)?.filter(|c| c.is_constant() && c.constant > 0).map(|c| c.constant))
    };
    let kind = match &e.kind {
        Kind::Binary(Operator::Mod, _, divisor) => match positive(divisor)? {
            Some(divisor) if scope.affine(e)?.is_none() => Kind::Integer(if greatest { divisor - 1 } else { 0 }),
            _ => return Ok(e.clone()),
        },
        Kind::Binary(Operator::Add, a, b) => Kind::Binary(Operator::Add, of(a, greatest)?, of(b, greatest)?),
        Kind::Binary(Operator::Sub, a, b) => Kind::Binary(Operator::Sub, of(a, greatest)?, of(b, !greatest)?),
        Kind::Binary(Operator::Mul, a, b) if positive(a)?.is_some() => {
            Kind::Binary(Operator::Mul, a.clone(), of(b, greatest)?)
        }
        Kind::Binary(Operator::Mul, a, b) if positive(b)?.is_some() => {
            Kind::Binary(Operator::Mul, of(a, greatest)?, b.clone())
        }
        kind => kind.clone(),
    };
    Ok(Text { kind, span: e.span })
}
