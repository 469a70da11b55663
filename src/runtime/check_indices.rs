//! Checks subscripts that come from data against the range that kernels rely on.
//!
//! In: an integer tensor, which of its elements are subscripts, the range. Out: nothing, or an error that names the first
//! element outside. Blocks are scanned without branches, in vectors of 256 bits of the type where the processor has them
//! and the elements are neighbours, and divided among the threads of the run; only where a block may hold an element
//! outside, the first one is looked for in order. Invariant: the error does not depend on the number of threads.

use crate::opaque::View;
use crate::pool::Crew;
use crate::{DType, Error, Result};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

/// Subscripts that a thread scans at a time.
const BLOCK: usize = 1 << 14;

/// Checks that elements `offset, offset + stride, …` lie in `lower..=upper`, on the threads of `crew` where there is one.
pub fn check_indices(
    name: &str,
    view: &View,
    (offset, stride): (usize, usize),
    (lower, upper): (i64, i64),
    crew: Option<&mut Crew>,
) -> Result<()> {
    let outside = match view.dtype {
        DType::I64 => first_outside::<i64, 8>(view.data, offset, stride, lower..=upper, crew)?,
        DType::I32 => first_outside::<i32, 4>(view.data, offset, stride, lower..=upper, crew)?,
        DType::I8 => first_outside::<i8, 1>(view.data, offset, stride, lower..=upper, crew)?,
        DType::I16 => first_outside::<i16, 2>(view.data, offset, stride, lower..=upper, crew)?,
        DType::U32 => first_outside::<u32, 4>(view.data, offset, stride, lower..=upper, crew)?,
        DType::U16 => first_outside::<u16, 2>(view.data, offset, stride, lower..=upper, crew)?,
        // beyond i64 a subscript is negative, and outside
        DType::U64 => first_outside::<i64, 8>(view.data, offset, stride, lower..=upper, crew)?,
        _ => first_outside::<u8, 1>(view.data, offset, stride, lower..=upper, crew)?,
    };
    match outside {
        None => Ok(()),
        Some((element, value)) => {
            let place = match view.shape {
                [] => String::new(),
                shape => format!(" at {:?}", position(element, shape)),
            };
            let side = wrong_side(view.dtype, (lower, upper));
            Err(Error::Invalid(format!("index {value}{place} of tensor `{name}` lies {side}")))
        }
    }
}

/// Where an element is that does not lie in `lower..=upper`: `outside of 0..=8`, or `above 8` where no number of a signed type is too small.
pub fn wrong_side(dtype: DType, (lower, upper): (i64, i64)) -> String {
    // beyond the extents of all arrays
    const FAR: i64 = 1 << 60;
    let (least, most) = match dtype {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (-FAR, FAR),
    };
    match (lower <= least, upper >= most) {
        (true, false) if upper > least => format!("above {upper}"),
        (false, true) if lower < most => format!("below {lower}"),
        _ => format!("outside of {lower}..={upper}"),
    }
}

/// The position in `shape` of an element in row-major order.
fn position(element: usize, shape: &[i64]) -> Vec<usize> {
    let mut rest = element;
    let mut out: Vec<usize> =
        shape.iter().rev().map(|&n| (rest % n.max(1) as usize, rest /= n.max(1) as usize).0).collect();
    out.reverse();
    out
}

/// An element type of subscripts, `N` bytes long.
trait Subscript<const N: usize>: Copy + Into<i64> {
    /// The signed type that holds all values, in which ranges are compared.
    type Wide: Copy + Sync + From<Self> + TryFrom<i64> + Into<i64>;
    const LEAST: Self::Wide;
    const GREATEST: Self::Wide;
    /// All values of the type itself.
    #[cfg(target_arch = "x86_64")]
    const RANGE: (i64, i64);
    fn read(bytes: [u8; N]) -> Self;
    /// Is negative where `value` is outside. Where a range has more than half of all values, it may be negative inside.
    fn excess(value: Self::Wide, lower: Self::Wide, upper: Self::Wide) -> Self::Wide;
    fn either(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

macro_rules! subscript {
    ($($t:ty, $wide:ty, $bytes:literal;)*) => {$(
        impl Subscript<$bytes> for $t {
            type Wide = $wide;
            const LEAST: $wide = <$wide>::MIN;
            const GREATEST: $wide = <$wide>::MAX;
            #[cfg(target_arch = "x86_64")]
            const RANGE: (i64, i64) = (<$t>::MIN as i64, <$t>::MAX as i64);
            #[inline(always)]
            fn read(bytes: [u8; $bytes]) -> $t {
                <$t>::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn excess(value: $wide, lower: $wide, upper: $wide) -> $wide {
                value.wrapping_sub(lower) | upper.wrapping_sub(value)
            }
            #[inline(always)]
            fn either(a: $wide, b: $wide) -> $wide {
                a | b
            }
        }
    )*};
}
subscript! {
    i64, i64, 8;
    i32, i32, 4;
    i16, i32, 2;
    i8, i32, 1;
    u32, i64, 4;
    u16, i32, 2;
    u8, i32, 1;
}

fn first_outside<T: Subscript<N>, const N: usize>(
    data: &[u8],
    offset: usize,
    stride: usize,
    range: RangeInclusive<i64>,
    crew: Option<&mut Crew>,
) -> Result<Option<(usize, i64)>> {
    let elements = data.as_chunks::<N>().0.get(offset..).unwrap_or(&[]);
    let stride = stride.max(1);
    let (count, blocks) = (elements.len().div_ceil(stride), elements.len().div_ceil(stride).div_ceil(BLOCK));
    // No value of the type is outside of a bound that the type cannot hold.
    let clamp = |bound: i64| T::Wide::try_from(bound.clamp(T::LEAST.into(), T::GREATEST.into())).ok();
    let bounds = clamp(*range.start()).zip(clamp(*range.end()));
    let reaches = *range.start() <= T::GREATEST.into() && *range.end() >= T::LEAST.into();
    let suspect = |first: usize, last: usize| match bounds {
        Some((lower, upper)) if reaches => {
            let part = &elements[first * BLOCK * stride..(last * BLOCK * stride).min(elements.len())];
            may_leave::<T, N>(part, stride, lower, upper)
        }
        _ => true,
    };
    let suspected = match crew {
        Some(crew) if blocks > 1 => {
            let seen = AtomicBool::new(false);
            crew.run(blocks as i64, &|first, last, _| {
                if suspect(first as usize, last as usize) {
                    seen.store(true, Ordering::Relaxed);
                }
            })?;
            seen.into_inner()
        }
        _ => count > 0 && suspect(0, blocks),
    };
    let mut values = (offset..).step_by(stride).zip(elements.iter().step_by(stride).map(|&e| T::read(e).into()));
    Ok(if suspected { values.find(|(_, value)| !range.contains(value)) } else { None })
}

/// Returns true if an element of each `stride` may be outside; exact but for ranges of more than half of all values.
fn may_leave<T: Subscript<N>, const N: usize>(
    elements: &[[u8; N]],
    stride: usize,
    lower: T::Wide,
    upper: T::Wide,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    let elements = match wide::may_leave::<N>(elements, stride, (lower.into(), upper.into()), T::RANGE) {
        Some((true, _)) => return true,
        Some((false, rest)) => rest,
        None => elements,
    };
    let start = T::excess(lower, lower, lower);
    let add = |sum: T::Wide, e: &[u8; N]| T::either(sum, T::excess(T::Wide::from(T::read(*e)), lower, upper));
    let sum: i64 = match stride {
        1 => elements.iter().fold(start, add).into(),
        _ => elements.iter().step_by(stride).fold(start, add).into(),
    };
    sum < 0
}

/// Scans of neighbours in vectors of 256 bits.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    /// Bytes of a step of the scan: four vectors.
    const STEP: usize = 128;

    /// Scans whole steps: true if an element may be outside, and the elements behind them. None where these are not
    /// neighbours, or the processor has no such vectors. The elements have a type with the values `range`.
    pub fn may_leave<const N: usize>(
        elements: &[[u8; N]],
        stride: usize,
        (lower, upper): (i64, i64),
        range: (i64, i64),
    ) -> Option<(bool, &[[u8; N]])> {
        if stride != 1 || !is_x86_feature_detected!("avx2") {
            return None;
        }
        let (steps, _) = elements.as_flattened().as_chunks::<STEP>();
        let rest = &elements[steps.len() * (STEP / N)..];
        if lower > range.1 || upper < range.0 {
            return Some((true, rest));
        }
        let (lower, upper) = (lower.max(range.0), upper.min(range.1));
        // SAFETY: the processor has AVX2. The bounds are values of the type.
        let outside = unsafe {
            match (N, range.0 < 0) {
                (1, true) => of_i8(steps, lower as i8, upper as i8),
                (1, false) => of_u8(steps, lower as i8, upper as i8),
                (2, true) => of_i16(steps, lower as i16, upper as i16),
                (2, false) => of_u16(steps, lower as i16, upper as i16),
                (4, true) => of_i32(steps, lower as i32, upper as i32),
                (4, false) => of_u32(steps, lower as i32, upper as i32),
                _ => of_i64(steps, lower, upper),
            }
        };
        Some((outside, rest))
    }

    macro_rules! scan {
        ($($name:ident, $t:ty, $set:ident, $min:ident, $max:ident, $equal:ident;)*) => {$(
            /// Returns true if the least value is below `lower` or the greatest one above `upper`; `$t` holds the bits of
            /// the bounds, and the order is that of `$min` and `$max`.
            #[target_feature(enable = "avx2")]
            fn $name(steps: &[[u8; STEP]], lower: $t, upper: $t) -> bool {
                let (lower, upper) = ($set(lower), $set(upper));
                let (mut least, mut greatest) = ([lower; STEP / 32], [upper; STEP / 32]);
                for step in steps {
                    for (i, part) in step.as_chunks::<32>().0.iter().enumerate() {
                        // SAFETY: a part has 32 bytes.
                        let value = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
                        least[i] = $min(least[i], value);
                        greatest[i] = $max(greatest[i], value);
                    }
                }
                let inside = |part: (&__m256i, &__m256i)| {
                    _mm256_and_si256($equal(*part.0, lower), $equal(*part.1, upper))
                };
                !least.iter().zip(&greatest).all(|part| _mm256_movemask_epi8(inside(part)) == -1)
            }
        )*};
    }
    scan! {
        of_i8, i8, _mm256_set1_epi8, _mm256_min_epi8, _mm256_max_epi8, _mm256_cmpeq_epi8;
        of_u8, i8, _mm256_set1_epi8, _mm256_min_epu8, _mm256_max_epu8, _mm256_cmpeq_epi8;
        of_i16, i16, _mm256_set1_epi16, _mm256_min_epi16, _mm256_max_epi16, _mm256_cmpeq_epi16;
        of_u16, i16, _mm256_set1_epi16, _mm256_min_epu16, _mm256_max_epu16, _mm256_cmpeq_epi16;
        of_i32, i32, _mm256_set1_epi32, _mm256_min_epi32, _mm256_max_epi32, _mm256_cmpeq_epi32;
        of_u32, i32, _mm256_set1_epi32, _mm256_min_epu32, _mm256_max_epu32, _mm256_cmpeq_epi32;
    }

    /// Returns true if one of `value - lower` and `upper - value` is negative, for which there is no minimum of 64 bits.
    #[target_feature(enable = "avx2")]
    fn of_i64(steps: &[[u8; STEP]], lower: i64, upper: i64) -> bool {
        let (lower, upper) = (_mm256_set1_epi64x(lower), _mm256_set1_epi64x(upper));
        let mut sums = [_mm256_setzero_si256(); STEP / 32];
        for step in steps {
            for (sum, part) in sums.iter_mut().zip(step.as_chunks::<32>().0) {
                // SAFETY: a part has 32 bytes.
                let value = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
                let excess = _mm256_or_si256(_mm256_sub_epi64(value, lower), _mm256_sub_epi64(upper, value));
                *sum = _mm256_or_si256(*sum, excess);
            }
        }
        let [a, b, c, d] = sums;
        let sum = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
        _mm256_movemask_pd(_mm256_castsi256_pd(sum)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    fn first(dtype: DType, data: &[u8], elements: (usize, usize), range: (i64, i64), threads: usize) -> Option<String> {
        let shape = [(data.len() / dtype.bytes()) as i64];
        let view = View { dtype, shape: &shape, data };
        let pool = Pool::new(threads).unwrap();
        let checked = check_indices("x", &view, elements, range, Some(&mut pool.enter())).err().map(|e| e.to_string());
        assert_eq!(checked, check_indices("x", &view, elements, range, None).err().map(|e| e.to_string()));
        checked
    }

    #[test]
    fn the_first_element_outside_is_named_whatever_the_threads() {
        let n = 5 * BLOCK + 77;
        let bytes = |values: &[i64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let mut values: Vec<i64> = (0..n as i64).collect();
        for threads in [1, 3] {
            assert_eq!(first(DType::I64, &bytes(&values), (0, 1), (0, n as i64 - 1), threads), None);
        }
        (values[4 * BLOCK], values[2 * BLOCK + 9], values[n - 1]) = (-7, -8, -9);
        let message = |v: i64, at: usize| {
            Some(format!("invalid: index {v} at [{at}] of tensor `x` lies outside of 0..={}", n - 1))
        };
        for threads in [1, 3] {
            let check =
                |offset, stride| first(DType::I64, &bytes(&values), (offset, stride), (0, n as i64 - 1), threads);
            assert_eq!(check(0, 1), message(-8, 2 * BLOCK + 9));
            assert_eq!(check(0, 2), message(-7, 4 * BLOCK));
            assert_eq!(check(n - 1, 5), message(-9, n - 1));
            assert_eq!(check(n, 1), None);
        }
    }

    #[test]
    fn an_element_outside_is_found_at_each_place_of_a_vector() {
        let cases = [
            (DType::I8, 1, -1i64),
            (DType::I8, 1, 7),
            (DType::U8, 1, 200),
            (DType::U8, 1, 7),
            (DType::I16, 2, -1),
            (DType::I16, 2, 300),
            (DType::U16, 2, 7),
            (DType::U16, 2, 60000),
            (DType::I32, 4, -1),
            (DType::I32, 4, 1 << 20),
            (DType::U32, 4, 7),
            (DType::U32, 4, 3 << 30),
            (DType::I64, 8, -1),
            (DType::I64, 8, 1 << 40),
        ];
        for (dtype, bytes, wrong) in cases {
            for position in 0..2 * 128 / bytes + 3 {
                let mut data = vec![0u8; (2 * 128 / bytes + 3) * bytes];
                assert_eq!(first(dtype, &data, (0, 1), (0, 6), 1), None);
                data[position * bytes..][..bytes].copy_from_slice(&wrong.to_le_bytes()[..bytes]);
                let text = first(dtype, &data, (0, 1), (0, 6), 1).unwrap();
                let said = format!("invalid: index {wrong} at [{position}] of tensor `x` lies outside of 0..=6");
                assert_eq!(text, said);
            }
        }
    }

    #[test]
    fn a_range_that_the_type_ends_has_one_side() {
        for (dtype, range, words) in [
            (DType::I32, (i32::MIN.into(), 8), "above 8"),
            (DType::I64, (-1 << 61, -9), "above -9"),
            (DType::I16, (3, i16::MAX.into()), "below 3"),
            (DType::I64, (1, 1 << 61), "below 1"),
            (DType::I8, (-127, 8), "outside of -127..=8"),
            (DType::U8, (0, 6), "outside of 0..=6"),
            (DType::I32, (0, -1), "outside of 0..=-1"),
        ] {
            assert_eq!(wrong_side(dtype, range), words, "{dtype}");
        }
    }

    #[test]
    fn every_value_of_every_type_is_compared_exactly() {
        let ranges = [
            (0, 0),
            (-3, 5),
            (1, 10),
            (-10, -1),
            (-128, 127),
            (0, 255),
            (200, 300),
            (-400, -300),
            (i64::MIN, i64::MAX),
            (i64::MIN, -2),
            (2, i64::MAX),
            (5, 4),
        ];
        let edges = [i64::MIN, i64::MIN + 1, -129, -128, -11, -1, 0, 1, 5, 10, 127, 128, 255, i64::MAX - 1, i64::MAX];
        for range in ranges {
            for v in edges {
                let outside = |v: i64| (v < range.0 || v > range.1).then_some(v);
                let checked = |dtype, data: &[u8]| {
                    let text = first(dtype, data, (0, 1), range, 1)?;
                    text.split_whitespace().nth(2).and_then(|word| word.parse::<i64>().ok())
                };
                let all = v.to_le_bytes();
                let cases = [
                    (DType::I64, v),
                    (DType::I32, (v as i32).into()),
                    (DType::U32, (v as u32).into()),
                    (DType::I16, (v as i16).into()),
                    (DType::U16, (v as u16).into()),
                    (DType::I8, (v as i8).into()),
                    (DType::U8, (v as u8).into()),
                ];
                for (dtype, value) in cases {
                    let bytes = &all[..dtype.bytes()];
                    assert_eq!(checked(dtype, bytes), outside(value), "{value} in {range:?}");
                    // a step of vectors, and one element behind it
                    let many = bytes.repeat(128 / bytes.len() + 1);
                    assert_eq!(checked(dtype, &many), outside(value), "many of {value} in {range:?}");
                }
            }
        }
    }
}
