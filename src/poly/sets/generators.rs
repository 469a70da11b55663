//! The generators of a rational polyhedron: its vertices, rays and lines.
//!
//! In: constraints. Out: rows `(x, t)` of the cone over the polyhedron, `t` last: with `t > 0` the vertex `x / t`, with
//! `t = 0` a direction; a line is two rows. No row is a combination of others. They are also the dual cone: a form is
//! nonnegative on the whole polyhedron exactly when it is on every generator (Farkas).
//!
//! After Motzkin, Raiffa, Thompson, Thrall, "The Double Description Method" (1953): constraints come one by one, each keeps
//! the generators on its side and joins adjacent ones across it. Two are adjacent when no third one lies on all constraints
//! that both lie on.

use crate::poly::sets::polyhedron::{Form, Polyhedron};
use crate::runtime::{Error, Result};

/// Generators at any time, at most: ten times those of any dependence in the programs of `datasets`.
const MAX_GENERATORS: usize = 1000;
/// Constraints, at most: a bit each.
const MAX_CONSTRAINTS: usize = 128;

/// The generators of `p`; none when it is empty. Refuses what takes more than the limits above.
pub fn generators(p: &Polyhedron) -> Result<Vec<Form>> {
    let mut cone = Cone::whole(p.dims + 1);
    // A cone: t is nonnegative itself.
    let mut height = vec![0; p.dims + 1];
    height[p.dims] = 1;
    for (form, equality) in
        p.equalities.iter().map(|e| (e, true)).chain(p.inequalities.iter().chain([&height]).map(|e| (e, false)))
    {
        cone.restrict(form, equality)?;
    }
    if cone.rays.iter().all(|r| r.form[p.dims] == 0) {
        return Ok(vec![]);
    }
    let small = |form: Vec<i128>| {
        form.into_iter().map(i64::try_from).collect::<std::result::Result<Form, _>>().map_err(|_| too_much())
    };
    let mut out = vec![];
    for line in cone.lines {
        out.push(small(line.iter().map(|x| -x).collect())?);
        out.push(small(line)?);
    }
    for ray in cone.rays {
        out.push(small(ray.form)?);
    }
    Ok(out)
}

fn too_much() -> Error {
    Error::Limit(format!("a polyhedron has more than {MAX_GENERATORS} vertices or too large ones"))
}

#[derive(Clone)]
struct Ray {
    form: Vec<i128>,
    /// The constraints so far that it lies on.
    on: u128,
}

struct Cone {
    lines: Vec<Vec<i128>>,
    rays: Vec<Ray>,
    constraints: usize,
}

impl Cone {
    fn whole(dims: usize) -> Cone {
        let unit = |i: usize| (0..dims).map(|j| i128::from(i == j)).collect();
        Cone { lines: (0..dims).map(unit).collect(), rays: vec![], constraints: 0 }
    }

    /// Keeps what is nonnegative in `form`, zero for an equality.
    fn restrict(&mut self, form: &[i64], equality: bool) -> Result<()> {
        if self.constraints == MAX_CONSTRAINTS {
            return Err(Error::Limit(format!("a polyhedron has more than {MAX_CONSTRAINTS} constraints")));
        }
        let bit = 1 << self.constraints;
        self.constraints += 1;
        if let Some(index) = self.lines.iter().position(|l| value(form, l) != 0) {
            let mut line = self.lines.remove(index);
            if value(form, &line) < 0 {
                line.iter_mut().for_each(|x| *x = -*x);
            }
            for other in &mut self.lines {
                *other = onto(form, other, &line)?;
            }
            for ray in &mut self.rays {
                *ray = Ray { form: onto(form, &ray.form, &line)?, on: ray.on | bit };
            }
            if !equality {
                // A line lies on all constraints before this one.
                self.rays.push(Ray { form: line, on: bit - 1 });
            }
            return Ok(());
        }
        let rays = std::mem::take(&mut self.rays);
        let sign: Vec<i128> = rays.iter().map(|r| value(form, &r.form).signum()).collect();
        let of = |s: i128| (0..rays.len()).filter(|&i| sign[i] == s).collect::<Vec<_>>();
        // two adjacent ones span a face of two dimensions beside the lines, which so many constraints fix at least
        let fixed = (form.len() - self.lines.len()).saturating_sub(2) as u32;
        for (a, b) in of(1).into_iter().flat_map(|a| of(-1).into_iter().map(move |b| (a, b))) {
            let common = rays[a].on & rays[b].on;
            if common.count_ones() < fixed {
                continue;
            }
            let between = (0..rays.len()).any(|c| c != a && c != b && rays[c].on & common == common);
            if !between {
                let form = onto(form, &rays[a].form, &rays[b].form.iter().map(|x| -x).collect::<Vec<_>>())?;
                self.rays.push(Ray { form, on: common | bit });
            }
        }
        for (mut ray, s) in rays.into_iter().zip(sign) {
            if s == 0 {
                ray.on |= bit;
            }
            if s == 0 || s > 0 && !equality {
                self.rays.push(ray);
            }
        }
        if self.rays.len() > MAX_GENERATORS { Err(too_much()) } else { Ok(()) }
    }
}

fn value(form: &[i64], x: &[i128]) -> i128 {
    form.iter().zip(x).map(|(&a, &b)| i128::from(a) * b).sum()
}

/// `form(along)·x − form(x)·along`, where `form(along) > 0`: on the constraint, in smallest integers.
fn onto(form: &[i64], x: &[i128], along: &[i128]) -> Result<Vec<i128>> {
    let (p, q) = (value(form, along), value(form, x));
    let combine = |(&a, &b): (&i128, &i128)| p.checked_mul(a)?.checked_sub(q.checked_mul(b)?);
    let mut out = x.iter().zip(along).map(combine).collect::<Option<Vec<i128>>>().ok_or_else(too_much)?;
    let g = out.iter().fold(0i128, |mut a, &b| {
        let mut b = b.abs();
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    });
    // Beyond 64 bits the next value could overflow.
    if out.iter().any(|x| x.abs() / g.max(1) > i128::from(i64::MAX)) {
        return Err(too_much());
    }
    out.iter_mut().for_each(|x| *x /= g.max(1));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::sets::polyhedron::unit;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn sorted(p: &Polyhedron) -> Vec<Form> {
        let mut rows = generators(p).unwrap();
        rows.sort();
        rows
    }

    #[test]
    fn vertices_rays_and_lines() {
        // 0 ≤ y ≤ x ≤ 3.
        let rows = vec![vec![1, 0, 0], vec![-1, 0, 3], vec![0, 1, 0], vec![1, -1, 0]];
        let mut p = Polyhedron::of_inequalities(2, rows);
        assert_eq!(sorted(&p), [[0, 0, 1], [3, 0, 1], [3, 3, 1]]);
        // On 2x = 3y the corner is not integral.
        p.equalities.push(vec![2, -3, 0]);
        assert_eq!(sorted(&p), [[0, 0, 1], [3, 2, 1]]);
        p.equalities.push(vec![0, 1, -9]);
        assert_eq!(sorted(&p), Vec::<Form>::new());
        // y ≥ 2, x + y ≥ 3 without upper bounds; z in no constraint.
        let rows = vec![vec![0, 1, 0, -2], vec![1, 1, 0, -3]];
        let p = Polyhedron::of_inequalities(3, rows);
        assert_eq!(sorted(&p), [[-1, 1, 0, 0], [0, 0, -1, 0], [0, 0, 1, 0], [1, 0, 0, 0], [1, 2, 0, 1]]);
    }

    #[test]
    fn vertices_agree_with_the_crossings_of_constraints() {
        // Random halfspaces through a box: a vertex is where three of them meet inside of all.
        let mut rng = StdRng::seed_from_u64(1);
        let mut random = |n: i64| rng.random_range(0..n);
        let (mut vertices, mut empty) = (0, 0);
        for _ in 0..200 {
            let mut p = Polyhedron::universe(3);
            for v in 0..3 {
                p.bound(&unit(3, v), 0, 5);
            }
            for _ in 0..4 {
                p.inequalities.push([5, 5, 5, 9].map(|n| random(n) - n / 2).to_vec());
            }
            let rows = &p.inequalities;
            let det = |m: [[i64; 3]; 3]| -> i64 {
                (0..3)
                    .map(|i| {
                        let [a, b, c] = [0, 1, 2].map(|j| m[j][(i + j) % 3]);
                        let [d, e, f] = [0, 1, 2].map(|j| m[j][(i + 3 - j) % 3]);
                        a * b * c - d * e * f
                    })
                    .sum()
            };
            let mut expected: Vec<Form> = vec![];
            for (i, a) in rows.iter().enumerate() {
                for (j, b) in rows.iter().enumerate().skip(i + 1) {
                    for c in &rows[j + 1..] {
                        let with = |at: usize| {
                            det([a, b, c].map(|r| std::array::from_fn(|v| if v == at { -r[3] } else { r[v] })))
                        };
                        let d = with(3);
                        if d == 0 {
                            continue;
                        }
                        let x: Form = (0..3).map(|v| with(v) * d.signum()).chain([d.abs()]).collect();
                        let g = crate::poly::sets::polyhedron::gcd(&x);
                        let x: Form = x.iter().map(|x| x / g).collect();
                        let inside = |r: &Form| r.iter().zip(&x).map(|(r, x)| r * x).sum::<i64>() >= 0;
                        if rows.iter().all(inside) && !expected.contains(&x) {
                            expected.push(x);
                        }
                    }
                }
            }
            expected.sort();
            assert_eq!(sorted(&p), expected, "{p:?}");
            vertices += expected.len();
            empty += usize::from(expected.is_empty());
        }
        assert!(vertices > 500 && empty > 5, "{vertices} {empty}");
    }
}
