//! Operation counts for reports: statement instances and the operations in them.
//!
//! Each operation counts one, an `exp` as well as an addition: this is the numerator of GFLOP/s. The costs of
//! operations are in [`crate::expr::scalar`].
//!
//! In: a statement over an affine domain. Out: the number of its points. Iterators that no constraint joins are counted
//! apart and multiplied; of those that one joins, the innermost is counted in closed form, and those around it one by
//! one, or at the middles of [`STRATA`] equal parts where they have more values (the midpoint rule: exact for triangles
//! but for rounding, and within a few thousandths elsewhere).

use crate::expr::Expr;
use crate::expr::{Affine, Var};
use crate::poly::analysis::dynamic_loops::share;
use crate::poly::scop::Scop;
use crate::poly::statement::Statement;

/// Number of values of an iterator at which the points further in are counted. Exact where it has no more values.
const STRATA: i64 = 64;

/// Floating-point operations of a program.
pub fn flops(scop: &Scop) -> f64 {
    let of = |id| instances(scop.statement(id)) * share(scop, id) * flops_of_instance(scop.statement(id));
    scop.ids().map(of).fold(0.0, |a, b| a + b)
}

/// Floating-point operations of one instance.
pub fn flops_of_instance(s: &Statement) -> f64 {
    fn count(e: &Expr) -> f64 {
        let of_root = match e {
            Expr::Const(_) | Expr::Index(_) | Expr::Load(_) | Expr::Cast(..) | Expr::Bitcast(..) => 0.0,
            Expr::Unary(..) | Expr::Binary(..) | Expr::Compare(..) | Expr::Select(..) => 1.0,
        };
        e.operands().map(count).fold(of_root, |a, b| a + b)
    }
    count(&s.body) + if s.reduce.is_some() { 1.0 } else { 0.0 }
}

/// Points of a statement's domain.
pub fn instances(s: &Statement) -> f64 {
    let mut left: Vec<usize> = (0..s.iterators.len()).collect();
    let mut product = 1.0;
    while let Some(first) = left.first() {
        let mut joined = vec![*first];
        let mut seen = 0;
        while seen < joined.len() {
            let with = s.domain.iter().filter(|c| c.uses(Var(joined[seen] as u32)));
            let others: Vec<usize> = with.flat_map(|c| c.terms.iter().map(|t| t.0.0 as usize)).collect();
            for other in others {
                if !joined.contains(&other) {
                    joined.push(other);
                }
            }
            seen += 1;
        }
        joined.sort_unstable();
        left.retain(|i| !joined.contains(i));
        let constraints = s.domain.iter().filter(|c| joined.iter().any(|&i| c.uses(Var(i as u32)))).collect();
        let extents: Vec<(usize, i64)> = joined.iter().map(|&i| (i, s.iterators[i].extent)).collect();
        product *= Component { constraints }.points(&extents, &mut vec![0; s.iterators.len()]);
    }
    let nothing = s.domain.iter().any(|c| c.terms.is_empty() && c.constant < 0);
    if nothing { 0.0 } else { product }
}

/// Iterators that constraints join.
struct Component<'a> {
    constraints: Vec<&'a Affine>,
}

impl Component<'_> {
    /// Points over these iterators, (number, extent), where those before them have the values of `point`.
    fn points(&self, iterators: &[(usize, i64)], point: &mut Vec<i64>) -> f64 {
        let [(first, extent), inside @ ..] = iterators else { return 1.0 };
        let (low, high) = self.range(*first, *extent, inside, point);
        let values = high - low + 1;
        if values <= 0 {
            return 0.0;
        }
        if inside.is_empty() {
            return values as f64;
        }
        let parts = values.min(STRATA);
        let mut sum = 0.0;
        for part in 0..parts {
            point[*first] = low + (2 * part + 1) * values / (2 * parts);
            sum += self.points(inside, point);
        }
        sum * values as f64 / parts as f64
    }

    /// The least and the largest value of an iterator that the constraints allow for some values of those inside of it.
    fn range(&self, first: usize, extent: i64, inside: &[(usize, i64)], point: &[i64]) -> (i64, i64) {
        let (mut low, mut high) = (0, extent - 1);
        for c in &self.constraints {
            let (mut own, mut most) = (0, c.constant);
            for &(Var(v), k) in &c.terms {
                let v = v as usize;
                match inside.iter().find(|i| i.0 == v) {
                    _ if v == first => own = k,
                    Some((_, extent)) => most += (k * (extent - 1)).max(0),
                    None => most += k * point[v],
                }
            }
            // own · value + most ≥ 0
            match own {
                0 if most < 0 => return (0, -1),
                0 => {}
                k if k > 0 => low = low.max((-most).div_euclid(k) + ((-most).rem_euclid(k) != 0) as i64),
                k => high = high.min(most.div_euclid(-k)),
            }
        }
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;
    use crate::language::lowered::Computation;
    use crate::poly::normalize::build;
    use crate::poly::samples;
    use std::collections::BTreeMap;

    /// Instances of the only statement of a program.
    fn counted(loops: &str, n: i64) -> f64 {
        let text = format!("loop p(N) {{ f64 A[8 * N][8 * N][8 * N]\n {loops} A[i][j][k] = 1 }}");
        let file = language::parse("test", &text).unwrap();
        let lowered = file.lower(&file.programs[0], &BTreeMap::from([("N".into(), n)]), None).unwrap();
        let Computation::Loop(scop) = &lowered.computation else { panic!("{loops} has no loops") };
        scop.statements.iter().map(instances).sum()
    }

    /// Loops, and how often they run.
    type Row = (&'static str, fn(f64) -> f64);

    const ROWS: [Row; 7] = [
        ("for i in 0..N for j in 0..N for k in 0..N", |n| n * n * n),
        ("for i in 0..N for j in 0..i for k in 0..N", |n| n * n * (n - 1.0) / 2.0),
        ("for i in 0..N for j in i..N for k in 0..1", |n| n * (n + 1.0) / 2.0),
        ("for i in 0..N for j in 0..i for k in 0..j", |n| n * (n - 1.0) * (n - 2.0) / 6.0),
        ("for i in 0..N for j in max(0, i - 2)..min(N, i + 3) for k in 0..N", |n| n * (5.0 * n - 6.0)),
        ("for i in 0..N for j in 0..N - i for k in i..i + 3", |n| 3.0 * n * (n + 1.0) / 2.0),
        ("for i in 0..N for j in 5 * i..i for k in 0..N", |_| 0.0),
    ];

    #[test]
    fn few_values_are_counted_exactly_and_many_within_a_few_thousandths() {
        for (loops, points) in ROWS {
            for n in [3, 17, 60] {
                assert_eq!(counted(loops, n), points(n as f64), "{loops}, N = {n}");
            }
            for n in [500, 1999] {
                let (found, exact) = (counted(loops, n), points(n as f64));
                assert!((found - exact).abs() <= 3e-3 * exact, "{loops}, N = {n}: {found} instead of {exact}");
            }
        }
    }

    #[test]
    fn operations_count_each_combination() {
        let scop = build::build("product", &samples::matmul(3, 5, 4)).unwrap();
        assert_eq!(flops(&scop), 2.0 * 3.0 * 4.0 * 5.0);
    }
}
