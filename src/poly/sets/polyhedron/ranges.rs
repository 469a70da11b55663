//! Ranges of the variables of a polyhedron: narrowed by its constraints, and points within them.
//!
//! A constraint is a row of coefficients and a constant, ≥ 0.

/// An interval; `None` is unbounded.
pub type Range = (Option<i64>, Option<i64>);

/// A number in the middle of a range, at the end of one with one end.
pub fn middle(range: &Range) -> Option<i64> {
    Some(match *range {
        (Some(lo), Some(hi)) => lo + (hi - lo) / 2,
        (Some(end), None) | (None, Some(end)) => end,
        (None, None) => 0,
    })
}

/// A point within ranges, each variable from `first` on as chosen from what those before it leave of its range; `None` where nothing is
/// left. Constraints hold at it as far as intervals tell.
pub fn completed(
    constraints: &[Vec<i64>],
    mut ranges: Vec<Range>,
    first: usize,
    choose: &dyn Fn(&Range) -> Option<i64>,
) -> Option<Vec<i64>> {
    for v in first..ranges.len() {
        let value = choose(&ranges[v])?;
        if ranges[v] != (Some(value), Some(value)) {
            ranges[v] = (Some(value), Some(value));
            if !narrow(constraints, &mut ranges) {
                return None;
            }
        }
    }
    ranges.iter().map(|r| r.0).collect()
}

/// Narrows ranges by constraints; returns false where one has nothing left.
pub fn narrow(constraints: &[Vec<i64>], ranges: &mut [Range]) -> bool {
    for _ in 0..8 {
        let mut changed = false;
        for e in constraints {
            // what a variable gains does not change the greatest value: it is of the other end of its range
            let (most, unbounded) = greatest(e, ranges);
            for (range, &c) in ranges.iter_mut().zip(e).filter(|(_, c)| **c != 0) {
                let end = if c > 0 { range.1 } else { range.0 };
                let most = match (end, unbounded) {
                    (Some(end), 0) => most - c * end,
                    (None, 1) => most,
                    _ => continue,
                };
                // c·v ≥ −most
                if c > 0 {
                    let lo = -most.div_euclid(c);
                    if range.0.is_none_or(|old| old < lo) {
                        range.0 = Some(lo);
                        changed = true;
                    }
                } else {
                    let hi = most.div_euclid(-c);
                    if range.1.is_none_or(|old| old > hi) {
                        range.1 = Some(hi);
                        changed = true;
                    }
                }
            }
        }
        if ranges.iter().any(|r| matches!(r, (Some(lo), Some(hi)) if lo > hi)) {
            return false;
        }
        if !changed {
            break;
        }
    }
    constraints.iter().all(|e| !matches!(range_of(e, ranges).1, Some(hi) if hi < 0))
}

/// The greatest sum of the terms of a form that have one, with its constant, and the number of the others.
pub fn greatest(form: &[i64], ranges: &[Range]) -> (i64, usize) {
    form.iter().zip(ranges).fold((form[form.len() - 1], 0), |(most, unbounded), (&c, &(low, high))| match c {
        0 => (most, unbounded),
        _ => match if c > 0 { high } else { low } {
            Some(end) => (most + c * end, unbounded),
            None => (most, unbounded + 1),
        },
    })
}

pub fn range_of(form: &[i64], ranges: &[Range]) -> Range {
    let constant = form[form.len() - 1];
    form.iter().zip(ranges).fold((Some(constant), Some(constant)), |(lo, hi), (&c, &(a, b))| match c {
        0 => (lo, hi),
        _ => {
            let (low, high) = if c > 0 { (a, b) } else { (b, a) };
            (lo.zip(low).map(|(x, y)| x + c * y), hi.zip(high).map(|(x, y)| x + c * y))
        }
    })
}
