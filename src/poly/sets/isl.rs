//! The only file that touches isl (Verdoolaege, "isl: An Integer Set Library for the Polyhedral Model", ICMS 2010).
//!
//! In and out: plain constraint matrices ([`Polyhedron`]); no isl object leaves a function. [`Isl`] owns a context that
//! is made on first use, so that problems which need no solver pay nothing. It is neither Send nor Sync. All that one
//! [`Isl`] does is limited in isl's own count of operations: beyond it every question is answered with [`Error::Limit`].

use crate::poly::sets::answers::Answers;
use crate::poly::sets::polyhedron::{Form, Polyhedron, Reduced, minus, plus, unit};
use crate::runtime::{Error, Result};
use isl_rs::{BasicSet, Context, DimType, LibISLError, Mat, Options, Set, Space, Val};
use std::cell::OnceCell;
use std::marker::PhantomData;

/// Largest number of operations (pivots and allocations) of one [`Isl`]: forty times those of any program of `datasets`.
const MAX_OPERATIONS: u64 = 1 << 22;

/// A lazily made isl context.
pub struct Isl {
    context: OnceCell<Context>,
    operations: u64,
    answers: Answers,
    not_send: PhantomData<*mut ()>,
}

impl Default for Isl {
    fn default() -> Isl {
        Isl::with_operations(MAX_OPERATIONS)
    }
}

impl Isl {
    /// A solver that may do so many operations in all.
    pub fn with_operations(operations: u64) -> Isl {
        Isl { context: OnceCell::new(), operations, answers: Answers::default(), not_send: PhantomData }
    }

    /// A solver that gives, and keeps, these answers; they cost no operation.
    pub fn with_answers(answers: &Answers) -> Isl {
        Isl { answers: answers.clone(), ..Isl::default() }
    }

    fn failed(&self, e: LibISLError) -> Error {
        let context = self.context();
        let last = context.last_error();
        context.reset_error();
        // The kind of an error is private to the bindings, but its text begins with it.
        if last == isl_rs::Error::Quota || e.to_string().starts_with("[Quota]") {
            return Error::Limit(format!("the solver isl took more than {} operations", self.operations));
        }
        Error::Internal(format!("isl: {e}"))
    }

    fn context(&self) -> &Context {
        self.context.get_or_init(|| {
            let context = Context::alloc();
            // Errors come back as values; they are neither printed nor do they abort.
            let _ = Options::set_on_error(&context, 1);
            context.set_max_operations(self.operations);
            context
        })
    }

    /// Returns true if `p` has no integer point.
    pub fn is_empty(&self, p: &Polyhedron) -> Result<bool> {
        self.answers.is_empty(p, || self.is_empty_reduced(p, &Reduced::new(p)))
    }

    /// [`Isl::is_empty`] of a polyhedron whose reduced form there is already. isl decides what intervals and points near at
    /// hand do not.
    pub fn is_empty_reduced(&self, p: &Polyhedron, reduced: &Reduced) -> Result<bool> {
        if reduced.empty || reduced.point(p).is_some() {
            return Ok(reduced.empty);
        }
        self.set(p).and_then(|s| s.is_empty()).map_err(|e| self.failed(e))
    }

    /// The lexicographically least integer point of a bounded polyhedron.
    pub fn first_point(&self, p: &Polyhedron) -> Result<Option<Vec<i64>>> {
        least_point(p, |part| self.is_empty(part))
    }

    /// The lexicographically least integer point of a bounded polyhedron of which no point of `covers` is an extension: its
    /// variables are the first ones of each cover. Covers that come after nothing is left are not asked for.
    pub fn first_point_outside(
        &self,
        p: &Polyhedron,
        covers: impl Iterator<Item = Polyhedron>,
    ) -> Result<Option<Vec<i64>>> {
        let mut left = self.set(p).and_then(Set::from_basic_set).map_err(|e| self.failed(e))?;
        for cover in covers {
            let outside = || {
                let others = (cover.dims - p.dims) as u32;
                let projected = self.set(&cover)?.project_out(DimType::Set, p.dims as u32, others)?;
                left.copy()?.subtract(Set::from_basic_set(projected)?)
            };
            left = outside().map_err(|e| self.failed(e))?;
            if left.is_empty().map_err(|e| self.failed(e))? {
                return Ok(None);
            }
        }
        least_point(p, |part| {
            let inside = || left.copy()?.intersect(Set::from_basic_set(self.set(part)?)?)?.is_empty();
            inside().map_err(|e| self.failed(e))
        })
    }

    /// Projects `p` on its first `keep` variables: constraints that hold for every rational point, none redundant.
    pub fn project(&self, p: &Polyhedron, keep: usize) -> Result<Polyhedron> {
        self.answers.projection(p, keep, || self.projected(p, keep))
    }

    fn projected(&self, p: &Polyhedron, keep: usize) -> Result<Polyhedron> {
        let compute = |equalities: bool| {
            let set = self.set(p)?.eliminate(DimType::Set, keep as u32, (p.dims - keep) as u32)?.remove_divs()?;
            // to look for equalities takes isl most of the time, and there are hardly ever any
            let equalities = equalities && !self.constraints(&set, keep)?.spans();
            let set = if equalities { set.detect_equalities()? } else { set };
            self.constraints(&set.remove_redundancies()?, keep)
        };
        let shadow = compute(true).map_err(|e| self.failed(e))?;
        // Of some sets that have points isl finds an affine hull without any.
        if Reduced::new(&shadow).empty && !self.is_empty(p)? {
            return compute(false).map_err(|e| self.failed(e));
        }
        Ok(shadow)
    }

    /// The constraints of the `parts`, moved outwards until they hold for all of them.
    pub fn hull(&self, parts: &[Polyhedron]) -> Result<Polyhedron> {
        let Some((first, rest)) = parts.split_first() else {
            return Err(Error::Internal("the hull of nothing".into()));
        };
        if rest.iter().all(|p| p == first) {
            return Ok(first.clone());
        }
        let compute = || {
            let mut all = Set::from_basic_set(self.set(first)?)?;
            for p in rest {
                all = all.union(Set::from_basic_set(self.set(p)?)?)?;
            }
            self.constraints(&all.simple_hull()?.remove_redundancies()?, first.dims)
        };
        self.answers.hull(first, rest, || compute().map_err(|e| self.failed(e)))
    }

    /// Returns the constraints of `p` that `context` does not imply (isl: gist), some that contradict each other where the two have no
    /// point in common. All of `p` where isl finds none but there are some: it calls the affine hull of some sets empty.
    pub fn gist(&self, p: &Polyhedron, context: &Polyhedron) -> Result<Polyhedron> {
        if p.equalities.is_empty() && p.inequalities.is_empty() {
            return Ok(p.clone());
        }
        self.answers.gist(p, context, || self.gist_of(p, context))
    }

    fn gist_of(&self, p: &Polyhedron, context: &Polyhedron) -> Result<Polyhedron> {
        let compute = || {
            let context = self.set(context)?.remove_redundancies()?;
            self.constraints(&self.set(p)?.remove_redundancies()?.gist(context)?, p.dims)
        };
        let gist = compute().map_err(|e| self.failed(e))?;
        let with_context = |p: &Polyhedron| {
            let mut both = p.clone();
            both.intersect(context);
            both
        };
        let lost = Reduced::new(&with_context(&gist)).empty && !self.is_empty(&with_context(p))?;
        Ok(if lost { p.clone() } else { gist })
    }

    /// The constraints on the first `keep` variables; the others are in none.
    fn constraints(&self, set: &BasicSet, keep: usize) -> std::result::Result<Polyhedron, LibISLError> {
        let order = || [DimType::Set, DimType::Cst, DimType::Div, DimType::Param];
        let rows = |matrix: Mat| {
            let constant = set.dim(DimType::Set)?;
            let entry = |r: i32, c: i32| matrix.get_element_val(r, c)?.get_num_si();
            (0..matrix.rows()?)
                .map(|r| (0..keep as i32).chain([constant]).map(|c| entry(r, c)).collect())
                .collect::<std::result::Result<Vec<Form>, _>>()
        };
        let [a, b, c, d] = order();
        let equalities = rows(set.equalities_matrix(a, b, c, d)?)?;
        let [a, b, c, d] = order();
        let inequalities = rows(set.inequalities_matrix(a, b, c, d)?)?;
        Ok(Polyhedron { dims: keep, equalities, inequalities })
    }

    fn set(&self, p: &Polyhedron) -> std::result::Result<BasicSet, LibISLError> {
        let context = self.context();
        let matrix = |rows: &[Form]| {
            let mut m = Mat::alloc(context, rows.len() as u32, p.dims as u32 + 1)?;
            for (r, row) in rows.iter().enumerate() {
                for (c, &x) in row.iter().enumerate() {
                    m = match i32::try_from(x) {
                        Ok(x) => m.set_element_si(r as i32, c as i32, x)?,
                        Err(_) => m.set_element_val(r as i32, c as i32, Val::int_from_si(context, x)?)?,
                    };
                }
            }
            Ok(m)
        };
        let space = Space::set_alloc(context, 0, p.dims as u32)?;
        let (e, i) = (matrix(&p.equalities)?, matrix(&p.inequalities)?);
        BasicSet::from_constraint_matrices(space, e, i, DimType::Set, DimType::Div, DimType::Param, DimType::Cst)
    }
}

/// The lexicographically least integer point of those points of a bounded polyhedron that `is_empty` looks for, by bisection:
/// isl's `lexmin` has called a polyhedron with a point empty.
fn least_point(p: &Polyhedron, is_empty: impl Fn(&Polyhedron) -> Result<bool>) -> Result<Option<Vec<i64>>> {
    let mut p = p.clone();
    let mut point = vec![];
    if is_empty(&p)? {
        return Ok(None);
    }
    for v in 0..p.dims {
        let reduced = Reduced::new(&p);
        let (Some(mut lo), Some(mut hi)) = reduced.range(&reduced.forms[v]) else {
            return Err(Error::Internal("an unbounded polyhedron has no first point".into()));
        };
        let unit = unit(p.dims, v);
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            p.inequalities.push(minus(middle, &unit));
            if is_empty(&p)? {
                lo = middle + 1
            } else {
                hi = middle
            }
            p.inequalities.pop();
        }
        p.equalities.push(plus(&unit, -lo));
        point.push(lo);
    }
    if !p.contains(&point) {
        return Err(Error::Internal("isl calls an empty polyhedron non-empty".into()));
    }
    Ok(Some(point))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 ≤ x ≤ 3, 0 ≤ y ≤ x, 2·y = 3·x − 1 has the points (1, 1) and (3, 4): the second is outside.
    fn sample() -> Polyhedron {
        Polyhedron {
            dims: 2,
            equalities: vec![vec![3, -2, -1]],
            inequalities: vec![vec![1, 0, 0], vec![-1, 0, 3], vec![0, 1, 0], vec![1, -1, 0]],
        }
    }

    #[test]
    fn emptiness_and_first_point_are_over_the_integers() {
        let isl = Isl::default();
        let mut p = sample();
        assert_eq!(isl.first_point(&p).unwrap(), Some(vec![1, 1]));
        p.inequalities.push(vec![1, 0, -2]);
        assert_eq!(isl.first_point(&p).unwrap(), None);
        assert!(isl.is_empty(&p).unwrap());
    }

    #[test]
    fn first_point_where_lexmin_fails() {
        let p = Polyhedron {
            dims: 8,
            equalities: vec![
                vec![1, 0, 0, 0, 0, -2, 0, 0, 0],
                vec![0, 1, 0, -1, 0, 0, 0, 0, 0],
                vec![-1, 0, 0, 1, 0, 0, 0, 0, 0],
                vec![0, -1, 0, 0, 1, 0, 0, 0, 0],
            ],
            inequalities: vec![
                vec![-1, 0, 0, 0, 0, 0, 0, 0, 2],
                vec![0, 0, -1, 0, 0, 0, 0, 0, 1],
                vec![0, 0, 0, 0, 0, 1, 0, 0, 0],
                vec![0, 0, 1, 0, 0, 0, 0, 0, 0],
                vec![1, 0, 0, 0, 0, 0, 0, 0, 0],
                vec![0, 0, -1, 0, 0, 1, 0, 0, -1],
                vec![0, -1, -1, 0, 0, 0, 3, 0, 2],
                vec![0, 1, 1, 0, 0, 0, -3, 0, 0],
                vec![0, 0, 0, 0, -1, -1, 0, 3, 2],
                vec![0, 0, 0, 0, 1, 1, 0, -3, 0],
                vec![0, 0, 0, 0, 0, 0, -1, 1, -1],
            ],
        };
        assert_eq!(Isl::default().first_point(&p).unwrap(), Some(vec![2, 2, 0, 2, 2, 1, 0, 1]));
    }

    #[test]
    fn shadows_hulls_and_gists() {
        let isl = Isl::default();
        // 0 ≤ x ≤ 9, x ≤ y ≤ x + 3 on y; with 1 ≤ y ≤ 20 known only the upper bound is new.
        let rows = vec![vec![0, 1, 0], vec![0, -1, 9], vec![1, -1, 0], vec![-1, 1, 3]];
        let p = Polyhedron::of_inequalities(2, rows);
        let shadow = isl.project(&p, 1).unwrap();
        let interval = |lo: i64, hi: i64| Polyhedron::of_inequalities(1, vec![vec![1, -lo], vec![-1, hi]]);
        let sorted = |mut p: Polyhedron| {
            p.inequalities.sort_by_key(|r| std::cmp::Reverse(r[0]));
            p
        };
        assert_eq!(sorted(shadow.clone()), interval(0, 12));
        assert_eq!(isl.gist(&shadow, &interval(1, 20)).unwrap().inequalities, vec![vec![-1, 12]]);
        assert_eq!(sorted(isl.hull(&[interval(2, 4), interval(7, 9)]).unwrap()), interval(2, 9));
    }

    /// 2·y ≥ x − 3, 2·y ≤ x − 1 and y ≤ −1 have the points (0, −1) and (1, −1) where 0 ≤ x ≤ 2; isl's gist has none.
    #[test]
    fn gists_keep_the_points_of_the_context() {
        let p = Polyhedron::of_inequalities(2, vec![vec![-1, 2, 3], vec![1, -2, -1], vec![0, -1, -1]]);
        let context = Polyhedron::of_inequalities(2, vec![vec![1, 0, 0], vec![-1, 0, 2]]);
        let gist = Isl::default().gist(&p, &context).unwrap();
        for x in 0..=2 {
            for y in -4..=4 {
                assert_eq!(gist.contains(&[x, y]), p.contains(&[x, y]), "({x}, {y}) of {gist:?}");
            }
        }
    }

    /// Random sets with few points: emptiness, shadows and gists against enumeration.
    #[test]
    fn answers_agree_with_enumeration() {
        use rand::{Rng, SeedableRng};
        let rounds = std::env::var("TILEWRIGHT_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
        for seed in 0..rounds {
            let rng = &mut rand::rngs::StdRng::seed_from_u64(seed);
            let dims = rng.random_range(2..5);
            let mut form = |most: i64| -> Form {
                let c = (0..dims).map(|_| if rng.random_bool(0.4) { 0 } else { rng.random_range(-2..=2) });
                c.collect::<Vec<i64>>().into_iter().chain([rng.random_range(-most..=most)]).collect()
            };
            let mut context = Polyhedron::universe(dims);
            (0..dims).for_each(|v| context.bound(&unit(dims, v), -2, 2));
            context.inequalities.push(form(4));
            let mut p = Polyhedron::of_inequalities(dims, vec![form(3), form(3), form(3)]);
            if seed % 3 == 0 {
                p.equalities.push(form(2));
            }
            let mut both = context.clone();
            both.intersect(&p);
            let number = |k: i64| (0..dims as u32).map(|d| k / 5i64.pow(d) % 5 - 2).collect::<Vec<i64>>();
            let points: Vec<Vec<i64>> = (0..5i64.pow(dims as u32)).map(number).collect();
            let found: Vec<&Vec<i64>> = points.iter().filter(|x| context.contains(x) && p.contains(x)).collect();
            let isl = Isl::default();
            let why = format!("seed {seed}: {p:?} where {context:?}");
            assert_eq!(isl.is_empty(&both).unwrap(), found.is_empty(), "{why}");
            assert_eq!(isl.set(&both).unwrap().is_empty().unwrap(), found.is_empty(), "{why}");
            let shadow = isl.project(&both, dims - 1).unwrap();
            assert!(found.iter().all(|x| shadow.contains(&x[..dims - 1])), "{why}: the shadow {shadow:?}");
            if !found.is_empty() {
                let gist = isl.gist(&p, &context).unwrap();
                let same = |x: &&Vec<i64>| !context.contains(x) || gist.contains(x) == p.contains(x);
                assert!(points.iter().all(|x| same(&x)), "{why}: the gist {gist:?}");
                let hull = isl.hull(&[both.clone(), context.clone()]).unwrap();
                assert!(points.iter().all(|x| !context.contains(x) || hull.contains(x)), "{why}: the hull {hull:?}");
            }
        }
    }

    #[test]
    fn effort_is_limited() {
        // 29 is not a sum of sixes, tens and fifteens: the intervals prove nothing, and no point is near at hand.
        let mut hard = Polyhedron { dims: 3, equalities: vec![vec![6, 10, 15, -29]], ..Polyhedron::default() };
        for v in 0..3 {
            hard.bound(&unit(3, v), 0, 9);
        }
        let isl = Isl::with_operations(4);
        let refused = isl.is_empty(&hard).unwrap_err();
        assert!(matches!(&refused, Error::Limit(why) if why.contains("4 operations")), "{refused}");
        assert!(isl.first_point(&hard).is_err());
        assert!(Isl::default().is_empty(&hard).unwrap());
        // Where a point is near at hand isl is not asked.
        assert!(!isl.is_empty(&sample()).unwrap());
    }
}
