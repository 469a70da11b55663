//! Constraints of the loops that are scanned: those of one loop, the lanes of a vector.

use crate::poly::sets::polyhedron::{Form, Polyhedron, Reduced};

/// The constraints that bound the last variable.
pub(super) fn within_loop(p: &Polyhedron) -> Polyhedron {
    let inequalities = p.as_inequalities().into_iter().filter(|f| f[p.dims - 1] != 0).collect();
    Polyhedron::of_inequalities(p.dims, inequalities)
}

/// The values `first..end` of the last variable when its bounds are constants.
fn constant_range(p: &Polyhedron) -> Option<(i64, i64)> {
    let alone = p.as_inequalities().iter().all(|f| f[..p.dims - 1].iter().all(|&c| c == 0));
    let r = Reduced::new(p);
    let (lo, hi) = r.range(r.forms.get(p.dims - 1)?);
    (alone && !r.empty).then_some((lo?, hi? + 1))
}

/// The first value of the last variable, over the others, and how many it has, where that is a constant.
pub(super) fn lanes(p: &Polyhedron) -> Option<(Form, i64)> {
    let last = p.dims - 1;
    if let Some((first, end)) = constant_range(p) {
        let mut form = vec![0; p.dims + 1];
        form[p.dims] = first;
        return Some((form, end - first));
    }
    let bounds = p.as_inequalities();
    let bound = |sign| bounds.iter().find(|f| f[last] == sign);
    let (Some(a), Some(b), 2) = (bound(1), bound(-1), bounds.len()) else { return None };
    let extent = a[p.dims] + b[p.dims] + 1;
    let parallel = (0..last).all(|v| a[v] + b[v] == 0);
    let mut first: Form = a.iter().map(|c| -c).collect();
    first[last] = 0;
    (parallel && extent > 0).then_some((first, extent))
}

/// Returns the constraints with more variables after the others.
pub(super) fn lift(p: &Polyhedron, dims: usize) -> Polyhedron {
    let mut out = p.clone();
    out.add_variables(dims.saturating_sub(p.dims));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_may_begin_at_a_multiple_of_an_outer_variable() {
        let between = |lower: Form, upper: Form| lanes(&Polyhedron::of_inequalities(2, vec![lower, upper]));
        // 16·o ≤ v ≤ 16·o + 15, 3 ≤ v ≤ 9, and o ≤ v ≤ 20
        assert_eq!(between(vec![-16, 1, 0], vec![16, -1, 15]), Some((vec![16, 0, 0], 16)));
        assert_eq!(between(vec![0, 1, -3], vec![0, -1, 9]), Some((vec![0, 0, 3], 7)));
        assert_eq!(between(vec![-1, 1, 0], vec![0, -1, 20]), None);
    }
}
