//! Sessions that run in turn, and what their times and results are.

use crate::output::numbers;
use serde::Serialize;
use std::time::{Duration, Instant};
use tilewright::{DType, Result, Tensor};

/// Quartiles of so many runs, in milliseconds.
#[derive(Serialize, Clone)]
pub struct Times {
    pub min: f64,
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub runs: usize,
}

impl Times {
    pub fn of(mut ms: Vec<f64>) -> Times {
        ms.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let position = share * (ms.len() - 1) as f64;
            let (low, high) = (ms[position as usize], ms[position.ceil() as usize]);
            low + (high - low) * position.fract()
        };
        Times { min: ms[0], q1: quantile(0.25), median: quantile(0.5), q3: quantile(0.75), runs: ms.len() }
    }
}

/// Turns that each contestant has.
const ROUNDS: u32 = 12;
/// Runs of each contestant at least, however long they take.
const LEAST_RUNS: usize = 3;

/// Calls each of `contestants` in turn, for about `seconds` each, until all have run often enough. A contestant runs once
/// and returns what it has measured.
pub fn rounds<T>(contestants: &mut [Box<dyn FnMut() -> Result<T> + '_>], seconds: f64) -> Result<Vec<Vec<T>>> {
    let budget = Duration::from_secs_f64(seconds);
    let mut spent = vec![Duration::ZERO; contestants.len()];
    let mut samples: Vec<Vec<T>> = contestants.iter().map(|_| vec![]).collect();
    for round in 1.. {
        let mut ran = false;
        for (i, contestant) in contestants.iter_mut().enumerate() {
            let share = budget * round.min(ROUNDS) / ROUNDS;
            if spent[i] >= share && samples[i].len() >= LEAST_RUNS {
                continue;
            }
            loop {
                let start = Instant::now();
                samples[i].push(contestant()?);
                spent[i] += start.elapsed();
                if spent[i] >= share {
                    break;
                }
            }
            ran = true;
        }
        if round >= ROUNDS && !ran {
            break;
        }
    }
    Ok(samples)
}

/// Returns the largest difference allowed between results of a type, relative to the largest value: sums are added up
/// in another order.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 1e-4,
        DType::F16 => 1e-2,
        DType::BF16 => 5e-2,
        _ => 0.0,
    }
}

/// The largest difference of an output, and whether each is within its tolerance.
pub struct Agreement {
    /// Relative to the largest value of the output.
    pub difference: f64,
    /// The first output that differs by more than the tolerance, and the difference.
    pub complaint: Option<String>,
}

/// Compares outputs, whose names are given, with those that are right.
pub fn agreement(names: &[String], found: &[Tensor], expected: &[Tensor]) -> Agreement {
    let mut all = Agreement { difference: 0.0, complaint: None };
    for ((name, found), expected) in names.iter().zip(found).zip(expected) {
        let (difference, element) = distance(found, expected);
        all.difference = all.difference.max(difference);
        if difference > tolerance(expected.dtype) && all.complaint.is_none() {
            let share = match expected.dtype.is_float() {
                true => format!("by {difference:.1e} of the largest value"),
                false => "where integers must be equal".into(),
            };
            all.complaint = Some(format!("element {element} of {name} differs {share}"));
        }
    }
    all
}

/// The largest difference over the largest value, and at which element it is; infinite where integers differ, or numbers and
/// what is not a number.
fn distance(result: &Tensor, expected: &Tensor) -> (f64, usize) {
    if !expected.dtype.is_float() {
        let size = expected.dtype.bytes();
        let mut pairs = result.data.chunks(size).zip(expected.data.chunks(size));
        return pairs.position(|(a, b)| a != b).map_or((0.0, 0), |element| (f64::INFINITY, element));
    }
    let values = |tensor: &Tensor| numbers(tensor.dtype, &tensor.data).collect::<Vec<f64>>();
    let (result, expected) = (values(result), values(expected));
    let largest = expected.iter().filter(|v| v.is_finite()).fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let mut worst = (0.0, 0);
    for (element, (a, b)) in result.into_iter().zip(expected).enumerate() {
        let same = a == b || a.is_nan() && b.is_nan();
        let apart = if same { 0.0 } else { ((a - b).abs() / largest).min(f64::MAX) };
        let apart = if apart.is_nan() { f64::INFINITY } else { apart };
        if apart > worst.0 {
            worst = (apart, element);
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_runs() {
        let t = Times::of(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!((t.min, t.q1, t.median, t.q3, t.runs), (1.0, 1.75, 2.5, 3.25, 4));
        assert_eq!(Times::of(vec![7.0]).q3, 7.0);
    }

    #[test]
    fn contestants_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let contestant = |c: char| -> Box<dyn FnMut() -> Result<()> + '_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(c);
                std::thread::sleep(Duration::from_millis(4));
                Ok(())
            })
        };
        let found = rounds(&mut [contestant('a'), contestant('b')], 0.001).unwrap();
        assert!(found.iter().all(|f| f.len() == LEAST_RUNS));
        assert_eq!(*order.borrow(), "ababab");
    }

    #[test]
    fn integers_must_be_equal_and_sums_nearly() {
        let names = ["C".to_string()];
        let one = |t: Tensor, u: Tensor| agreement(&names, &[t], &[u]);
        let wrong = one(Tensor::new(&[2], &[1i64, 3]), Tensor::new(&[2], &[1i64, 2])).complaint.unwrap();
        assert_eq!(wrong, "element 1 of C differs where integers must be equal");
        let close = one(Tensor::new(&[2], &[1f32, 100.001]), Tensor::new(&[2], &[1f32, 100.0]));
        assert!(close.complaint.is_none() && close.difference > 1e-6);
        assert!(one(Tensor::new(&[2], &[1f64, 100.001]), Tensor::new(&[2], &[1f64, 100.0])).complaint.is_some());
        let nan = || Tensor::new(&[1], &[f64::NAN]);
        assert!(one(nan(), nan()).complaint.is_none());
        assert!(one(nan(), Tensor::new(&[1], &[0f64])).complaint.is_some());
    }
}
