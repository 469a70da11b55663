//! Search for the sizes of several tile rows.
//!
//! In: the sizes that each row may have, ascending, and the cost of a choice of all; a choice that does not fit has
//! none. Out: the best choice. Few choices are all tried. Of many, each pair of rows in turn takes its best sizes while
//! the others keep theirs (block coordinate descent; a pair, because what one row gains of a full cache another one has
//! to give), from starts with one size for all and with one row longer than the others, until nothing gains or
//! [`MOST_TRIES`] costs were asked for.

/// Largest number of choices that are all tried: nine sizes of four rows. Unmeasured.
const ALL_TRIED: usize = 6561;
/// Largest number of costs that are computed where there are more choices. Unmeasured.
const MOST_TRIES: usize = 1 << 14;

/// The sizes with the least cost; of equal ones the first in lexicographic order where all are tried.
pub fn best_sizes(choices: &[Vec<i64>], cost: &mut dyn FnMut(&[i64]) -> Option<f64>) -> Option<Vec<i64>> {
    let count = choices.iter().try_fold(1usize, |n, c| n.checked_mul(c.len()));
    let (sizes, _) = match count {
        Some(n) if n <= ALL_TRIED => try_all(choices, cost),
        _ => descend_from_all(choices, cost),
    }?;
    Some(sizes)
}

type Best = Option<(Vec<i64>, f64)>;

fn try_all(choices: &[Vec<i64>], cost: &mut dyn FnMut(&[i64]) -> Option<f64>) -> Best {
    let mut best: Best = None;
    let mut positions = vec![0; choices.len()];
    loop {
        let sizes: Vec<i64> = positions.iter().zip(choices).map(|(&i, c)| c[i]).collect();
        if let Some(cost) = cost(&sizes)
            && best.as_ref().is_none_or(|b| cost < b.1)
        {
            best = Some((sizes, cost));
        }
        let next = (0..choices.len()).rev().find(|&i| positions[i] + 1 < choices[i].len());
        let Some(i) = next else { return best };
        positions[i] += 1;
        positions[i + 1..].fill(0);
    }
}

fn descend_from_all(choices: &[Vec<i64>], cost: &mut dyn FnMut(&[i64]) -> Option<f64>) -> Best {
    let (mut best, mut left): (Best, usize) = (None, MOST_TRIES);
    let longest = choices.iter().map(Vec::len).max().unwrap_or(0);
    let uniform = (0..longest).map(|i| choices.iter().map(|c| c[i.min(c.len() - 1)]).collect::<Vec<i64>>());
    let single = (0..choices.len()).flat_map(|row| {
        choices[row].iter().rev().map(move |&size| {
            let smallest = choices.iter().map(|c| c[0]);
            smallest.enumerate().map(|(other, least)| if other == row { size } else { least }).collect()
        })
    });
    for sizes in single.chain(uniform) {
        if let Some((sizes, cost)) = descend(choices, sizes, cost, &mut left)
            && best.as_ref().is_none_or(|b| cost < b.1)
        {
            best = Some((sizes, cost));
        }
    }
    best
}

fn descend(
    choices: &[Vec<i64>],
    mut sizes: Vec<i64>,
    cost: &mut dyn FnMut(&[i64]) -> Option<f64>,
    left: &mut usize,
) -> Best {
    let mut ask = |sizes: &[i64]| {
        *left = left.checked_sub(1)?;
        cost(sizes)
    };
    let mut least = ask(&sizes)?;
    let rows = choices.len();
    let pairs: Vec<(usize, usize)> = (0..rows).flat_map(|a| (a + 1..rows).map(move |b| (a, b))).collect();
    loop {
        let before = least;
        for (a, b) in pairs.iter().copied() {
            for &first in &choices[a] {
                for &second in &choices[b] {
                    let old = (sizes[a], sizes[b]);
                    (sizes[a], sizes[b]) = (first, second);
                    match ask(&sizes) {
                        Some(cost) if cost < least => least = cost,
                        _ => (sizes[a], sizes[b]) = old,
                    }
                }
            }
        }
        if least >= before {
            return Some((sizes, least));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::interval::ceil_div;

    /// Tiles of a nest whose tensors have one or two of its loops as subscripts, as the caller prices them.
    fn priced(extents: &[i64], sizes: &[i64], cache: f64) -> Option<f64> {
        let footprint: f64 = (0..sizes.len()).map(|i| (sizes[i] * sizes[(i + 1) % sizes.len()]) as f64 * 8.0).sum();
        let tiles: f64 = extents.iter().zip(sizes).map(|(&e, &s)| ceil_div(e, s) as f64).product();
        let points: f64 = extents.iter().map(|&e| e as f64).product();
        (footprint <= cache).then(|| tiles * footprint / 30.0 + points / *sizes.last().unwrap() as f64 * 30.0)
    }

    fn choices(extents: &[i64]) -> Vec<Vec<i64>> {
        let sizes = [4, 8, 16, 32, 64, 128, 256, 512];
        extents.iter().map(|&n| sizes.into_iter().filter(|&s| s < n).chain([n]).collect()).collect()
    }

    #[test]
    fn six_rows_take_a_bounded_number_of_tries() {
        let extents = [600; 6];
        let mut tries = 0;
        let sizes = best_sizes(&choices(&extents), &mut |sizes| {
            tries += 1;
            priced(&extents, sizes, 700e3)
        });
        assert!(sizes.is_some() && tries <= MOST_TRIES, "{tries} tries, {sizes:?}");
    }

    #[test]
    fn descent_comes_near_to_the_best_of_all() {
        for extents in [vec![600, 600, 600], vec![2000, 40, 700], vec![100, 900, 30, 600], vec![2600, 2600]] {
            for cache in [20e3, 300e3, 700e3] {
                let choices = choices(&extents);
                let all = try_all(&choices, &mut |sizes| priced(&extents, sizes, cache)).unwrap().1;
                let near = descend_from_all(&choices, &mut |sizes| priced(&extents, sizes, cache)).unwrap().1;
                assert!(near <= 1.1 * all, "{extents:?} in {cache}: {near} instead of {all}");
            }
        }
    }
}
