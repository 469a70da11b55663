//! Integer polyhedra as constraint matrices, and the questions about them that need no solver.
//!
//! A form over `n` variables is a row of `n` coefficients and a constant. [`Reduced`] eliminates the equalities with a
//! unit coefficient and propagates intervals: all that is needed for boxes joined by subscripts such as `h + r - 1`.
//! Its answers are one-sided: `empty`, the ranges and a [`Reduced::point`] are proofs; where they prove nothing, [`super::isl`]
//! decides exactly.

mod ranges;

use crate::expr::{Affine, interval};
pub use ranges::Range;
use ranges::{completed, middle, narrow, range_of};

/// Coefficients, then the constant.
pub type Form = Vec<i64>;

/// The integer points where every equality is 0 and every inequality is ≥ 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Polyhedron {
    pub dims: usize,
    pub equalities: Vec<Form>,
    pub inequalities: Vec<Form>,
}

impl Polyhedron {
    /// All points of `dims` variables.
    pub fn universe(dims: usize) -> Polyhedron {
        Polyhedron::of_inequalities(dims, vec![])
    }

    /// The points of `dims` variables where every one of `inequalities` is ≥ 0.
    pub fn of_inequalities(dims: usize, inequalities: Vec<Form>) -> Polyhedron {
        Polyhedron { dims, equalities: vec![], inequalities }
    }

    /// An affine form whose variable 0 is variable `first` here.
    pub fn form(&self, a: &Affine, first: usize) -> Form {
        let mut form = vec![0; self.dims + 1];
        for &(v, c) in &a.terms {
            form[first + v.0 as usize] = c;
        }
        form[self.dims] = a.constant;
        form
    }

    /// Adds a variable after the others; returns its number.
    pub fn add_variable(&mut self) -> usize {
        self.add_variables(1).start
    }

    /// Adds variables after the others; returns their numbers.
    pub fn add_variables(&mut self, count: usize) -> std::ops::Range<usize> {
        let added = self.dims..self.dims + count;
        for row in self.equalities.iter_mut().chain(&mut self.inequalities) {
            row.splice(added.start..added.start, std::iter::repeat_n(0, count));
        }
        self.dims = added.end;
        added
    }

    /// `form` with zeros for the variables added since it was made.
    pub fn widen(&self, mut form: Form) -> Form {
        let constant = form.pop().expect("a constant");
        form.resize(self.dims, 0);
        form.push(constant);
        form
    }

    /// ⌊form / tile⌋ as a form, which takes one more variable unless `tile` is 1.
    pub fn quotient(&mut self, form: Form, tile: i64) -> Form {
        if tile == 1 {
            return form;
        }
        let q = self.add_variable();
        self.divide(&self.widen(form), q, tile);
        unit(self.dims, q)
    }

    /// Requires that ⌊a / tile⌋ is ⌊b / tile⌋.
    pub fn same_tile(&mut self, a: Form, b: Form, tile: i64) {
        let (a, b) = (self.quotient(a, tile), self.quotient(b, tile));
        self.equalities.push(difference(&self.widen(a), &self.widen(b)));
    }

    /// Requires that variable `q` is ⌊form / tile⌋.
    pub fn divide(&mut self, form: &[i64], q: usize, tile: i64) {
        let mut rest = form.to_vec();
        rest[q] -= tile;
        self.bound(&rest, 0, tile - 1);
    }

    /// Requires that `form` is in `least..=most`.
    pub fn bound(&mut self, form: &[i64], least: i64, most: i64) {
        self.inequalities.extend([minus(most, form), plus(form, -least)]);
    }

    /// All constraints as inequalities, of which an equality is two.
    pub fn as_inequalities(&self) -> Vec<Form> {
        let equal = self.equalities.iter().flat_map(|e| [e.clone(), minus(0, e)]);
        equal.chain(self.inequalities.iter().cloned()).collect()
    }

    /// Requires `other`, over the same variables, as well.
    pub fn intersect(&mut self, other: &Polyhedron) {
        self.equalities.extend(other.equalities.iter().cloned());
        self.inequalities.extend(other.inequalities.iter().cloned());
    }

    /// Requires `other` as well: its variable v is variable `variables[v]` here, those beyond are added.
    pub fn conjoin(&mut self, other: &Polyhedron, variables: &[usize]) {
        let mut variables = variables.to_vec();
        variables.extend(self.add_variables(other.dims.saturating_sub(variables.len())));
        let moved = |form: &Form| {
            let mut out = vec![0; self.dims + 1];
            variables.iter().zip(form).for_each(|(&v, c)| out[v] += c);
            out[self.dims] = form[other.dims];
            out
        };
        let equalities: Vec<Form> = other.equalities.iter().map(moved).collect();
        let inequalities: Vec<Form> = other.inequalities.iter().map(moved).collect();
        self.equalities.extend(equalities);
        self.inequalities.extend(inequalities);
    }

    /// Returns true if it is proven that the integer points have no affine form in common beside the equalities: there is one of which a neighbour
    /// along each variable that the equalities leave free is a point as well.
    pub fn spans(&self) -> bool {
        let reduced = Reduced::new(self);
        reduced.free + self.equalities.len() == self.dims && reduced.equalities.is_empty() && reduced.has_room()
    }

    /// Returns true if the point satisfies every constraint.
    pub fn contains(&self, point: &[i64]) -> bool {
        self.equalities.iter().all(|e| evaluate(e, point) == 0)
            && self.inequalities.iter().all(|e| evaluate(e, point) >= 0)
    }
}

/// Variable `v` of `dims` as a form.
pub fn unit(dims: usize, v: usize) -> Form {
    (0..=dims).map(|i| i64::from(i == v)).collect()
}

/// The value of a form at a point.
pub fn evaluate(form: &[i64], point: &[i64]) -> i64 {
    form.iter().zip(point).map(|(a, b)| a * b).sum::<i64>() + form[form.len() - 1]
}

/// `a − b`.
pub fn difference(a: &[i64], b: &[i64]) -> Form {
    a.iter().zip(b).map(|(x, y)| x - y).collect()
}

/// `k − a`.
pub fn minus(k: i64, a: &[i64]) -> Form {
    let mut out: Form = a.iter().map(|x| -x).collect();
    *out.last_mut().expect("a constant") += k;
    out
}

/// `a + k`.
pub fn plus(a: &[i64], k: i64) -> Form {
    let mut out = a.to_vec();
    *out.last_mut().expect("a constant") += k;
    out
}

/// A polyhedron in as few variables as unit equalities allow.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduced {
    /// Each variable of the polyhedron as a form over the free ones.
    pub forms: Vec<Form>,
    pub free: usize,
    /// The remaining equalities, over the free variables, each with at least two of them.
    pub equalities: Vec<Form>,
    pub inequalities: Vec<Form>,
    /// Proven ranges of the free variables.
    pub ranges: Vec<Range>,
    /// Proven to have no integer point.
    pub empty: bool,
}

/// The equalities, those that mix variables like digits taken apart: `4a + b = 4c + d` with b and d in 0..4 says `a = c` and
/// `b = d`. The terms that a number g divides add up to a multiple of g; where the others can reach only one such
/// multiple, both sums are fixed.
fn split_digits(p: &Polyhedron) -> Vec<Form> {
    let n = p.dims;
    let mut ranges: Vec<Range> = vec![(None, None); n];
    for e in &p.inequalities {
        let mut used = (0..n).filter(|&v| e[v] != 0);
        if let (Some(v), None) = (used.next(), used.next()) {
            let (c, k) = (e[v], e[n]);
            let range = &mut ranges[v];
            if c > 0 {
                let lo = -k.div_euclid(c);
                range.0 = Some(range.0.map_or(lo, |old| old.max(lo)));
            } else {
                let hi = k.div_euclid(-c);
                range.1 = Some(range.1.map_or(hi, |old| old.min(hi)));
            }
        }
    }
    let mut open = p.equalities.clone();
    let mut out = vec![];
    while let Some(e) = open.pop() {
        let split = e[..n].iter().map(|c| c.abs()).filter(|&g| g > 1).find_map(|g| {
            let high: Form = e.iter().enumerate().map(|(v, &c)| if v < n && c % g == 0 { c } else { 0 }).collect();
            let low: Form = e.iter().zip(&high).map(|(a, b)| a - b).collect();
            if low[..n].iter().all(|&c| c == 0) {
                return None;
            }
            let (lo, hi) = (range_of(&low, &ranges).0?, range_of(&low, &ranges).1?);
            let multiple = hi.div_euclid(g) * g;
            (multiple >= lo && multiple - g < lo).then_some((high, low, multiple))
        });
        match split {
            None => out.push(e),
            Some((mut high, mut low, multiple)) => {
                high[n] += multiple;
                low[n] -= multiple;
                for mut part in [high, low] {
                    let g = gcd(&part[..n]);
                    if g > 1 && part[n] % g == 0 {
                        part.iter_mut().for_each(|c| *c /= g);
                    }
                    open.push(part);
                }
            }
        }
    }
    out.reverse();
    out
}

impl Reduced {
    pub fn new(p: &Polyhedron) -> Reduced {
        let n = p.dims;
        let mut equalities = split_digits(p);
        let mut inequalities = p.inequalities.clone();
        let mut replaced: Vec<Option<Form>> = vec![None; n];
        // Solves one equality after the other for a variable with coefficient ±1.
        while let Some((row, v)) = equalities
            .iter()
            .enumerate()
            .find_map(|(row, e)| e[..n].iter().position(|c| c.abs() == 1).map(|v| (row, v)))
        {
            let e = equalities.remove(row);
            let value: Form = e.iter().enumerate().map(|(i, c)| if i == v { 0 } else { -e[v] * c }).collect();
            let replace = |form: &mut Form| {
                let k = std::mem::take(&mut form[v]);
                if k != 0 {
                    form.iter_mut().zip(&value).for_each(|(a, b)| *a += k * b);
                }
            };
            equalities.iter_mut().chain(&mut inequalities).chain(replaced.iter_mut().flatten()).for_each(replace);
            replaced[v] = Some(value);
        }
        let free: Vec<usize> = (0..n).filter(|&v| replaced[v].is_none()).collect();
        let select = |form: &Form| -> Form { free.iter().map(|&v| form[v]).chain([form[n]]).collect() };
        let forms = (0..n)
            .map(|v| match &replaced[v] {
                Some(form) => select(form),
                None => free.iter().map(|&f| i64::from(f == v)).chain([0]).collect(),
            })
            .collect();
        let mut out = Reduced {
            forms,
            free: free.len(),
            equalities: equalities.iter().map(select).collect(),
            inequalities: inequalities.iter().map(select).collect(),
            ranges: vec![(None, None); free.len()],
            empty: false,
        };
        out.normalize();
        out.propagate();
        out
    }

    /// Divides by common factors, moves constraints on one variable into the ranges, drops duplicates.
    fn normalize(&mut self) {
        let free = self.free;
        let mut equalities = std::mem::take(&mut self.equalities);
        equalities.retain_mut(|e| {
            let g = gcd(&e[..free]);
            if g == 0 {
                self.empty |= e[free] != 0;
                return false;
            }
            self.empty |= e[free] % g != 0;
            e.iter_mut().for_each(|c| *c /= g);
            true
        });
        let mut inequalities = std::mem::take(&mut self.inequalities);
        inequalities.retain_mut(|e| {
            let g = gcd(&e[..free]);
            if g == 0 {
                self.empty |= e[free] < 0;
                return false;
            }
            e[..free].iter_mut().for_each(|c| *c /= g);
            e[free] = e[free].div_euclid(g);
            let mut used = (0..free).filter(|&v| e[v] != 0);
            match (used.next(), used.next()) {
                (Some(v), None) => {
                    let range = &mut self.ranges[v];
                    if e[v] > 0 {
                        range.0 = Some(range.0.map_or(-e[free], |lo| lo.max(-e[free])));
                    } else {
                        range.1 = Some(range.1.map_or(e[free], |hi| hi.min(e[free])));
                    }
                    false
                }
                _ => true,
            }
        });
        inequalities.sort();
        inequalities.dedup();
        (self.equalities, self.inequalities) = (equalities, inequalities);
    }

    /// Narrows the ranges by the constraints on several variables.
    fn propagate(&mut self) {
        self.empty |= !narrow(&self.constraints(), &mut self.ranges);
    }

    /// The constraints on several variables as inequalities.
    fn constraints(&self) -> Vec<Form> {
        let equal = self.equalities.iter().cloned().chain(self.equalities.iter().map(|e| minus(0, e)));
        self.inequalities.iter().cloned().chain(equal).collect()
    }

    /// A point of `p`, the polyhedron that this was made of, where one is near at hand: with all free variables at their least
    /// or greatest values, or each at its least after what those before it leave.
    pub fn point(&self, p: &Polyhedron) -> Option<Vec<i64>> {
        let inside = |free: Vec<i64>| {
            let point: Vec<i64> = self.forms.iter().map(|f| evaluate(f, &free)).collect();
            p.contains(&point).then_some(point)
        };
        let ends = |ranges: &[Range], end: fn(&Range) -> Option<i64>| ranges.iter().map(end).collect::<Option<_>>();
        let least = |r: &Range| r.0.or(r.1);
        if let Some(point) = ends(&self.ranges, least).and_then(inside) {
            return Some(point);
        }
        if let Some(point) = ends(&self.ranges, |r| r.1.or(r.0)).and_then(inside) {
            return Some(point);
        }
        let constraints = self.constraints();
        let searched = |choose: &dyn Fn(&Range) -> Option<i64>| completed(&constraints, self.ranges.clone(), 0, choose);
        searched(&least).and_then(inside).or_else(|| searched(&middle).and_then(inside))
    }

    /// Returns true if for each variable two points are found that differ in it and are the same in those before it: these differences
    /// span all directions.
    fn has_room(&self) -> bool {
        let constraints = self.constraints();
        let is_inside = |point: Vec<i64>| constraints.iter().all(|e| evaluate(e, &point) >= 0);
        let mut ranges = self.ranges.clone();
        for v in 0..self.free {
            let Some(value) = middle(&ranges[v]) else { return false };
            let with = |value: i64| {
                let mut fixed = ranges.clone();
                fixed[v] = (Some(value), Some(value));
                narrow(&constraints, &mut fixed).then_some(fixed)
            };
            let ends = [ranges[v].0, ranges[v].1].into_iter().flatten();
            let others = [value + 1, value - 1].into_iter().chain(ends).filter(|other| *other != value);
            let allowed = |other: &i64| {
                let (lo, hi) = ranges[v];
                lo.is_none_or(|lo| lo <= *other) && hi.is_none_or(|hi| *other <= hi)
            };
            let reaches = |other: i64| {
                with(other).and_then(|fixed| completed(&constraints, fixed, v + 1, &middle)).is_some_and(is_inside)
            };
            if !others.filter(allowed).any(reaches) {
                return false;
            }
            let Some(fixed) = with(value) else { return false };
            ranges = fixed;
        }
        !self.empty && is_inside(ranges.iter().map(|r| r.0.unwrap_or(0)).collect())
    }

    /// The form over the variables of the polyhedron, over the free variables.
    pub fn pull(&self, form: &[i64]) -> Form {
        let mut out = vec![0; self.free + 1];
        for (c, f) in form.iter().zip(&self.forms) {
            if *c != 0 {
                out.iter_mut().zip(f).for_each(|(a, b)| *a += c * b);
            }
        }
        out[self.free] += form[form.len() - 1];
        out
    }

    /// Bounds of a form over the free variables; exact on a box.
    pub fn range(&self, form: &[i64]) -> Range {
        range_of(form, &self.ranges)
    }
}

/// The greatest common divisor, 0 of zeros.
pub fn gcd(values: &[i64]) -> i64 {
    values.iter().fold(0, |a, b| interval::gcd(a, b.abs()))
}

/// A basis, in small integers, of the vectors orthogonal to all `rows`; unit vectors where possible.
pub fn orthogonal_complement(rows: &[Vec<i64>], dims: usize) -> Vec<Vec<i64>> {
    // Reduced row echelon form over the integers.
    let mut matrix: Vec<Vec<i64>> = rows.to_vec();
    let mut pivots = vec![];
    let mut rank = 0;
    for column in 0..dims {
        let Some(nonzero) = (rank..matrix.len()).find(|&r| matrix[r][column] != 0) else { continue };
        matrix.swap(rank, nonzero);
        let pivot = matrix[rank].clone();
        for (r, row) in matrix.iter_mut().enumerate() {
            let k = row[column];
            if r != rank && k != 0 {
                row.iter_mut().zip(&pivot).for_each(|(a, b)| *a = *a * pivot[column] - k * b);
                let g = gcd(row).max(1);
                row.iter_mut().for_each(|a| *a /= g);
            }
        }
        pivots.push(column);
        rank += 1;
    }
    (0..dims)
        .filter(|c| !pivots.contains(c))
        .map(|free| {
            let scale = pivots.iter().enumerate().fold(1i64, |s, (r, &p)| {
                let d = matrix[r][p].abs();
                s / gcd(&[s, d]) * d
            });
            let mut v = vec![0; dims];
            v[free] = scale;
            for (r, &p) in pivots.iter().enumerate() {
                v[p] = -matrix[r][free] * (scale / matrix[r][p]);
            }
            let g = gcd(&v).max(1);
            v.iter().map(|x| x / g).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_solves_unit_equalities_and_propagates() {
        // x = y + r − 1, 0 ≤ x, y ≤ 9, 0 ≤ r ≤ 2, y ≥ x + 2 is impossible: x ≥ y − 1.
        let mut p = Polyhedron::universe(3);
        p.equalities.push(vec![1, -1, -1, 1]);
        for (v, hi) in [(0, 9), (1, 9), (2, 2)] {
            p.bound(&unit(3, v), 0, hi);
        }
        let r = Reduced::new(&p);
        assert!(!r.empty);
        assert_eq!(r.range(&r.pull(&[1, -1, 0, 0])), (Some(-1), Some(1)));
        p.inequalities.push(vec![-1, 1, 0, -2]);
        assert!(Reduced::new(&p).empty);
    }

    #[test]
    fn points_span_where_one_has_neighbours() {
        // of 0 ≤ x, y ≤ 9
        let spans = |inequalities: &[[i64; 3]], equalities: &[[i64; 3]]| {
            let rows = |rows: &[[i64; 3]]| rows.iter().map(|r| r.to_vec()).collect();
            let mut p = Polyhedron { dims: 2, equalities: rows(equalities), inequalities: rows(inequalities) };
            (0..2).for_each(|v| p.bound(&unit(2, v), 0, 9));
            p.spans()
        };
        assert!(spans(&[], &[]) && spans(&[[1, -1, 0]], &[]) && spans(&[], &[[1, -1, 0]]));
        // two columns, and a strip along 4·x = 3·y, of whose points none is beside another
        assert!(spans(&[[1, 0, -3], [-1, 0, 4]], &[]) && spans(&[[-4, 3, 0], [4, -3, 3]], &[]));
        // one column, a line between two inequalities, no points, and 2·x = 4·y + 1
        assert!(!spans(&[[1, 0, -3], [-1, 0, 3]], &[]));
        assert!(!spans(&[[1, -1, 0], [-1, 1, 0]], &[]));
        assert!(!spans(&[[1, 1, -30]], &[]));
        assert!(!spans(&[], &[[2, -4, -1]]) && !spans(&[], &[[3, -4, -2]]));
    }

    #[test]
    fn constraints_are_those_that_were_required() {
        // −1 ≤ x ≤ 2; with it x = y and y ≥ 1.
        let mut strip = Polyhedron::universe(2);
        strip.bound(&unit(2, 0), -1, 2);
        let mut both = strip.clone();
        both.intersect(&Polyhedron { dims: 2, equalities: vec![vec![1, -1, 0]], inequalities: vec![vec![0, 1, -1]] });
        let split = Polyhedron::of_inequalities(2, both.as_inequalities());
        for (x, y) in (-3..=3).flat_map(|x| (-3..=3).map(move |y| (x, y))) {
            assert_eq!(strip.contains(&[x, y]), (-1..=2).contains(&x));
            let inside = x == y && (1..=2).contains(&y);
            assert_eq!([both.contains(&[x, y]), split.contains(&[x, y])], [inside; 2], "({x}, {y})");
        }
    }

    #[test]
    fn a_point_near_at_hand_is_inside() {
        // 0 ≤ x, y, z ≤ 9 and: x < y; x + y = 9, where the ends of the ranges fail; 2x = 2y + 1, where nothing is near.
        let mut p = Polyhedron::universe(3);
        for v in 0..3 {
            p.bound(&unit(3, v), 0, 9);
        }
        let point = |p: &Polyhedron| Reduced::new(p).point(p);
        assert_eq!(point(&p), Some(vec![0, 0, 0]));
        p.inequalities.push(vec![-1, 1, 0, -1]);
        assert_eq!(point(&p), Some(vec![0, 1, 0]));
        p.inequalities.extend([vec![2, 3, 1, -30], vec![-2, -3, -1, 32]]);
        let found = point(&p).unwrap();
        assert!(p.contains(&found), "{found:?}");
        p.equalities.push(vec![2, -2, 0, -1]);
        assert_eq!(point(&p), None);
    }

    #[test]
    fn digits_are_taken_apart() {
        // 4a + b = 4c + d + k, 0 ≤ a, c ≤ 9, 0 ≤ b, d ≤ 3.
        let digits = |k: i64, most: i64| {
            let mut p = Polyhedron::universe(4);
            p.equalities.push(vec![4, 1, -4, -1, -k]);
            for (v, hi) in [(0, 9), (1, most), (2, 9), (3, most)] {
                p.bound(&unit(4, v), 0, hi);
            }
            Reduced::new(&p)
        };
        let r = digits(0, 3);
        assert_eq!((r.free, r.equalities.len()), (2, 0));
        assert_eq!(r.pull(&[1, 0, -1, 0, 0]), vec![0; 3]);
        assert_eq!(r.pull(&[0, 1, 0, -1, 0]), vec![0; 3]);
        // With a carry, or digits that are too large, there are several ways.
        assert_eq!(digits(1, 3).free, 3);
        assert_eq!(digits(0, 4).free, 3);
        // 3 is 4 − 1 where digits are 0 or 1.
        let r = digits(3, 1);
        assert_eq!(r.pull(&[1, 0, -1, 0, 0]), vec![0, 0, 1]);
        assert_eq!(r.pull(&[0, 1, 0, -1, 0]), vec![0, 0, -1]);
    }

    #[test]
    fn complement_is_orthogonal_and_complete() {
        let rows = vec![vec![1, 1, 0], vec![0, 2, 1]];
        let c = orthogonal_complement(&rows, 3);
        assert_eq!(c.len(), 1);
        assert!(rows.iter().all(|r| r.iter().zip(&c[0]).map(|(a, b)| a * b).sum::<i64>() == 0));
        assert_eq!(orthogonal_complement(&[vec![0, 1, 0]], 3), vec![vec![1, 0, 0], vec![0, 0, 1]]);
    }
}
