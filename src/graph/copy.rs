//! Strided copies: pure data movement at the speed of memory.
//!
//! In: bytes of two row-major tensors and, for each loop, its extent and the distance of neighbours in either. Loops are
//! sorted and merged; the rest is whole rows, or square tiles when the two orders differ.

/// One loop of a copy: extent, distance in elements in the source and in the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loop {
    pub extent: usize,
    pub from: isize,
    pub to: isize,
}

/// Side of a tile in elements.
const TILE: usize = 32;

/// Copies elements of `size` bytes. Panics when an element lies outside of its slice.
pub fn copy(size: usize, from: &[u8], from_start: usize, to: &mut [u8], to_start: usize, loops: &[Loop]) {
    if loops.iter().any(|l| l.extent == 0) {
        return;
    }
    let loops = merge(loops);
    match size {
        1 => copy_elements::<1>(from, from_start, to, to_start, &loops),
        2 => copy_elements::<2>(from, from_start, to, to_start, &loops),
        4 => copy_elements::<4>(from, from_start, to, to_start, &loops),
        _ => copy_elements::<8>(from, from_start, to, to_start, &loops),
    }
}

/// Sorts loops so that the target's rows are innermost and joins neighbours that both sides walk as one.
fn merge(loops: &[Loop]) -> Vec<Loop> {
    let mut sorted: Vec<Loop> = loops.iter().copied().filter(|l| l.extent > 1).collect();
    sorted.sort_by_key(|l| std::cmp::Reverse((l.to.unsigned_abs(), l.from.unsigned_abs())));
    let mut out: Vec<Loop> = vec![];
    for l in sorted {
        match out.last_mut() {
            Some(o) if o.from == l.from * l.extent as isize && o.to == l.to * l.extent as isize => {
                *o = Loop { extent: o.extent * l.extent, from: l.from, to: l.to };
            }
            _ => out.push(l),
        }
    }
    out
}

fn copy_elements<const N: usize>(from: &[u8], from_start: usize, to: &mut [u8], to_start: usize, loops: &[Loop]) {
    let (from, _) = from.as_chunks::<N>();
    let (to, _) = to.as_chunks_mut::<N>();
    let Some((&inner, outer)) = loops.split_last() else {
        to[to_start] = from[from_start];
        return;
    };
    // Where rows of the target are not rows of the source, the loop along the source's rows joins the tile.
    let across = (inner.from != 1 && inner.from != 0)
        .then(|| outer.iter().enumerate().min_by_key(|(_, l)| l.from.unsigned_abs()))
        .flatten()
        .filter(|(_, l)| l.from.unsigned_abs() < inner.from.unsigned_abs())
        .map(|(i, _)| i);
    let around: Vec<Loop> = outer.iter().enumerate().filter(|(i, _)| Some(*i) != across).map(|(_, l)| *l).collect();
    let mut counters = vec![0usize; around.len()];
    let (mut f, mut t) = (from_start as isize, to_start as isize);
    loop {
        match across {
            Some(i) => tile(from, f, to, t, outer[i], inner),
            None => row(from, f, to, t, inner),
        }
        let mut d = around.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            counters[d] += 1;
            f += around[d].from;
            t += around[d].to;
            if counters[d] < around[d].extent {
                break;
            }
            f -= around[d].from * counters[d] as isize;
            t -= around[d].to * counters[d] as isize;
            counters[d] = 0;
        }
    }
}

fn row<const N: usize>(from: &[[u8; N]], f: isize, to: &mut [[u8; N]], t: isize, l: Loop) {
    let n = l.extent;
    if l.to == 1 && l.from == 1 {
        to[t as usize..t as usize + n].copy_from_slice(&from[f as usize..f as usize + n]);
    } else if l.to == 1 && l.from == 0 {
        to[t as usize..t as usize + n].fill(from[f as usize]);
    } else {
        for i in 0..n as isize {
            to[(t + i * l.to) as usize] = from[(f + i * l.from) as usize];
        }
    }
}

fn tile<const N: usize>(from: &[[u8; N]], f: isize, to: &mut [[u8; N]], t: isize, rows: Loop, columns: Loop) {
    for r0 in (0..rows.extent).step_by(TILE) {
        for c0 in (0..columns.extent).step_by(TILE) {
            for r in r0..(r0 + TILE).min(rows.extent) {
                let (f, t) = (f + r as isize * rows.from, t + r as isize * rows.to);
                for c in c0..(c0 + TILE).min(columns.extent) {
                    to[(t + c as isize * columns.to) as usize] = from[(f + c as isize * columns.from) as usize];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_flips_and_repeats() {
        let from: Vec<u8> = (0..70 * 40u32).flat_map(|i| i.to_le_bytes()).collect();
        let at = |bytes: &[u8], i: usize| u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        let mut to = vec![0; from.len()];
        let l = |extent, from, to| Loop { extent, from, to };
        copy(4, &from, 0, &mut to, 0, &[l(40, 1, 70), l(70, 40, 1)]);
        assert!((0..40).all(|c| (0..70).all(|r| at(&to, c * 70 + r) == (r * 40 + c) as u32)));
        copy(4, &from, 39, &mut to, 0, &[l(70, 40, 40), l(40, -1, 1)]);
        assert!((0..70).all(|r| (0..40).all(|c| at(&to, r * 40 + c) == (r * 40 + 39 - c) as u32)));
        copy(4, &from, 5, &mut to, 0, &[l(70, 0, 40), l(40, 0, 1)]);
        assert!((0..2800).all(|i| at(&to, i) == 5));
    }

    #[test]
    fn loops_that_both_sides_walk_as_one_merge() {
        let l = |extent, from, to| Loop { extent, from, to };
        assert_eq!(merge(&[l(2, 12, 12), l(3, 4, 4), l(4, 1, 1)]), [l(24, 1, 1)]);
        assert_eq!(merge(&[l(2, 24, 12), l(3, 4, 4), l(1, 9, 9), l(4, 1, 1)]), [l(2, 24, 12), l(12, 1, 1)]);
    }
}
