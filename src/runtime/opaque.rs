//! Opaque operators: those without an affine expression, as plain functions over bytes.
//!
//! In: attributes and read-only views of the inputs. Out: the outputs, written in place; their shapes are known ahead.
//! One table, a row for each function. Every use is counted and named in reports. A second table has the functions whose
//! outputs are as large as the data make them: these return tensors of their own.

mod append;
mod arg_extreme;
mod cumulative_sum;
mod determinant;
mod element;
mod key;
mod ngrams;
mod non_max_suppression;
mod region;
mod selection;
mod top_k;
mod unique;

pub use crate::tensor::{TensorView as View, TensorViewMut as ViewMut};
use crate::{DType, Error, Result, Tensor};
use append::{append, write_rows};
use arg_extreme::{arg_max, arg_min};
use cumulative_sum::cumulative_sum;
use determinant::determinant;
use ngrams::ngrams;
use non_max_suppression::{non_max_suppression, non_max_suppression_bytes};
use region::{max_roi_pool, max_unpool, roi_align};
use selection::{compress, compress_bytes, non_zero, non_zero_bytes};
use top_k::top_k;
use unique::{unique, unique_bytes};

/// More operands than any row has.
pub const MAX_OPERANDS: usize = 8;

/// Attributes, inputs, outputs.
pub type Function = fn(&[i64], &[View], &mut [ViewMut]) -> Result<()>;

/// Name, function.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("argmax", arg_max),
    ("argmin", arg_min),
    ("topk", top_k),
    ("cumsum", cumulative_sum),
    ("roi_align", roi_align),
    ("max_roi_pool", max_roi_pool),
    ("max_unpool", max_unpool),
    ("determinant", determinant),
    ("ngrams", ngrams),
    ("append", append),
];

/// The function that an `append` becomes behind a copy of its first operand; its output has these elements before. No operator of
/// a graph has it.
pub const WRITE_ROWS: &str = "write_rows";

/// Attributes, inputs; returns the outputs.
pub type DataDependent = fn(&[i64], &[View]) -> Result<Vec<Tensor>>;

/// Inputs; returns the bytes that the outputs and the work on them may take.
pub type MemoryBound = fn(&[View]) -> u64;

/// Name, function, bound of its memory; the outputs have shapes that depend on the elements of the inputs.
pub const DATA_DEPENDENT: &[(&str, DataDependent, MemoryBound)] = &[
    ("nonzero", non_zero, non_zero_bytes),
    ("compress", compress, compress_bytes),
    ("unique", unique, unique_bytes),
    ("nms", non_max_suppression, non_max_suppression_bytes),
];

/// The data-dependent function of this name, and the bound of its memory.
pub fn data_dependent(name: &str) -> Option<(DataDependent, MemoryBound)> {
    DATA_DEPENDENT.iter().find(|row| row.0 == name).map(|row| (row.1, row.2))
}

/// The function of this name.
pub fn lookup(name: &str) -> Option<Function> {
    let step: (&str, Function) = (WRITE_ROWS, write_rows);
    FUNCTIONS.iter().chain([&step]).find(|row| row.0 == name).map(|row| row.1)
}

/// Runs a function on tensors; `outputs` gives type and shape of each output.
pub fn apply(name: &str, attributes: &[i64], inputs: &[&Tensor], outputs: &[(DType, Vec<i64>)]) -> Result<Vec<Tensor>> {
    let function = lookup(name).ok_or_else(|| Error::Unsupported(format!("opaque function `{name}`")))?;
    let inputs: Vec<View> = inputs.iter().map(|t| View { dtype: t.dtype, shape: &t.shape, data: &t.data }).collect();
    let mut results: Vec<Tensor> = outputs.iter().map(|(dtype, shape)| Tensor::zeros(*dtype, shape)).collect();
    let mut views: Vec<ViewMut> =
        results.iter_mut().map(|t| ViewMut { dtype: t.dtype, shape: &t.shape, data: &mut t.data }).collect();
    function(attributes, &inputs, &mut views)?;
    Ok(results)
}

#[cfg(test)]
mod data_dependent_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arg_max_takes_the_first_or_the_last_of_equals() {
        let x = Tensor::new(&[2, 3], &[1.0f32, 5.0, 5.0, 7.0, 2.0, 7.0]);
        let out = [(DType::I64, vec![2])];
        assert_eq!(apply("argmax", &[1, 0, 0], &[&x], &out).unwrap()[0].to_vec::<i64>(), [1, 0]);
        assert_eq!(apply("argmax", &[1, 0, 1], &[&x], &out).unwrap()[0].to_vec::<i64>(), [2, 2]);
        assert_eq!(apply("argmin", &[1, 0, 0], &[&x], &out).unwrap()[0].to_vec::<i64>(), [0, 1]);
        let down = [(DType::I64, vec![3])];
        assert_eq!(apply("argmax", &[0, 0, 0], &[&x], &down).unwrap()[0].to_vec::<i64>(), [1, 0, 1]);
    }

    #[test]
    fn top_k_is_sorted_and_stable() {
        let x = Tensor::new(&[5], &[3i32, 9, 1, 9, 4]);
        let out = [(DType::I32, vec![3]), (DType::I64, vec![3])];
        let largest = apply("topk", &[3, 0, 1, 1], &[&x], &out).unwrap();
        assert_eq!((largest[0].to_vec::<i32>(), largest[1].to_vec::<i64>()), (vec![9, 9, 4], vec![1, 3, 4]));
        let smallest = apply("topk", &[3, 0, 0, 1], &[&x], &out).unwrap();
        assert_eq!((smallest[0].to_vec::<i32>(), smallest[1].to_vec::<i64>()), (vec![1, 3, 4], vec![2, 0, 4]));
    }

    #[test]
    fn top_k_orders_what_is_no_number() {
        let x: Vec<f32> = (0..100).map(|i| if i % 3 == 0 { f32::NAN } else { (i * 37 % 100) as f32 }).collect();
        let x = Tensor::new(&[100], &x);
        let out = [(DType::F32, vec![40]), (DType::I64, vec![40])];
        let largest = apply("topk", &[40, 0, 1, 1], &[&x], &out).unwrap();
        let indices = largest[1].to_vec::<i64>();
        assert!((0..34).all(|i| indices[i as usize] == 3 * i));
        let mut numbers: Vec<f32> = x.to_vec::<f32>().into_iter().filter(|v| !v.is_nan()).collect();
        numbers.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(largest[0].to_vec::<f32>()[34..], numbers[..6]);
        let smallest = apply("topk", &[40, 0, 0, 1], &[&x], &out).unwrap();
        assert!(smallest[0].to_vec::<f32>().is_sorted());
    }

    #[test]
    fn cumulative_sums() {
        let x = Tensor::new(&[2, 2], &[1.5f32, 2.0, 3.0, 4.0]);
        let sum = |attributes: &[i64]| {
            apply("cumsum", attributes, &[&x], &[(DType::F32, vec![2, 2])]).unwrap()[0].to_vec::<f32>()
        };
        assert_eq!(sum(&[1, 0, 0]), [1.5, 3.5, 3.0, 7.0]);
        assert_eq!(sum(&[0, 0, 1]), [4.5, 6.0, 3.0, 4.0]);
        assert_eq!(sum(&[1, 1, 0]), [0.0, 1.5, 0.0, 3.0]);
        assert_eq!(sum(&[0, 1, 1]), [3.0, 4.0, 0.0, 0.0]);
    }

    /// Numbers with many equals among them.
    fn numbers(shape: &[i64], seed: u64) -> Tensor {
        let count = shape.iter().product::<i64>() as usize;
        let wide = Tensor::seeded(DType::I64, &[count as i64], seed, 0, 23).to_vec::<i64>();
        Tensor::new(shape, &wide.iter().map(|v| *v as f32 - 9.5).collect::<Vec<f32>>())
    }

    #[test]
    fn every_axis_agrees_with_the_plain_definition() {
        for (case, shape) in [[3i64, 70, 1], [2, 5, 700], [1, 33, 3], [40, 1, 7], [2, 64, 2]].iter().enumerate() {
            let x = numbers(shape, case as u64);
            let v = x.to_vec::<f32>();
            let [outer, extent, inner] = shape.map(|d| d as usize);
            let column = |o: usize, i: usize| (0..extent).map(|k| v[(o * extent + k) * inner + i]).collect::<Vec<_>>();
            let k = (extent / 2).max(1);
            let flat = [(DType::I64, vec![shape[0], shape[2]])];
            let kept = vec![shape[0], k as i64, shape[2]];
            let chosen = [(DType::F32, kept.clone()), (DType::I64, kept)];
            let whole = [(DType::F32, shape.to_vec())];
            for flag in [0i64, 1] {
                let most = apply("argmax", &[1, 0, flag], &[&x], &flat).unwrap()[0].to_vec::<i64>();
                let least = apply("argmin", &[1, 0, flag], &[&x], &flat).unwrap()[0].to_vec::<i64>();
                let top = apply("topk", &[k as i64, 1, flag, 1], &[&x], &chosen).unwrap();
                let (values, places) = (top[0].to_vec::<f32>(), top[1].to_vec::<i64>());
                let sums =
                    |exclusive| apply("cumsum", &[1, exclusive, flag], &[&x], &whole).unwrap()[0].to_vec::<f32>();
                let (sums, sums_before) = (sums(0), sums(1));
                for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
                    let c = column(o, i);
                    let place = |best: f32| {
                        let is = |v: &f32| *v == best;
                        if flag == 1 { c.iter().rposition(is) } else { c.iter().position(is) }.unwrap() as i64
                    };
                    let (low, high) = (c.iter().copied().fold(c[0], f32::min), c.iter().copied().fold(c[0], f32::max));
                    assert_eq!((most[o * inner + i], least[o * inner + i]), (place(high), place(low)), "{shape:?}");
                    let mut order: Vec<usize> = (0..extent).collect();
                    order.sort_by(|&a, &b| if flag == 1 { c[b].total_cmp(&c[a]) } else { c[a].total_cmp(&c[b]) });
                    let mut sum = 0.0;
                    for step in 0..extent {
                        let source = if flag == 1 { extent - 1 - step } else { step };
                        let to = (o * extent + source) * inner + i;
                        assert_eq!(sums_before[to], sum, "{shape:?}");
                        sum += c[source];
                        assert_eq!(sums[to], sum, "{shape:?}");
                    }
                    for (rank, &source) in order[..k].iter().enumerate() {
                        let to = (o * k + rank) * inner + i;
                        assert_eq!((values[to], places[to]), (c[source], source as i64), "{shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_appended_at_a_place() {
        let whole = Tensor::new(&[2, 4, 1], &[1i32, 2, 0, 0, 3, 4, 0, 0]);
        let rows = Tensor::new(&[2, 2, 1], &[5i32, 6, 7, 8]);
        let out = [(DType::I32, vec![2, 4, 1])];
        let appended = |place: i64| apply("append", &[1], &[&whole, &rows, &Tensor::new(&[], &[place])], &out);
        assert_eq!(appended(2).unwrap()[0].to_vec::<i32>(), [1, 2, 5, 6, 3, 4, 7, 8]);
        assert_eq!(appended(0).unwrap()[0].to_vec::<i32>(), [5, 6, 0, 0, 7, 8, 0, 0]);
        for outside in [-1, 3, i64::MAX, i64::MIN] {
            assert!(appended(outside).unwrap_err().to_string().contains("do not fit"), "{outside}");
        }
    }

    #[test]
    fn wrong_operands_are_an_error() {
        let x = Tensor::new(&[2], &[1.0f32, 2.0]);
        assert!(apply("argmax", &[7, 0, 0], &[&x], &[(DType::I64, vec![1])]).is_err());
        assert!(apply("argmax", &[0, 0, 0], &[&x], &[(DType::F32, vec![1])]).is_err());
        assert!(apply("topk", &[3, 0, 1, 1], &[&x], &[(DType::F32, vec![3]), (DType::I64, vec![3])]).is_err());
        assert!(apply("nothing", &[], &[], &[]).is_err());
        let (whole, place) = (Tensor::zeros(DType::F32, &[2, 4]), Tensor::new(&[], &[0i64]));
        for rows in
            [Tensor::zeros(DType::F32, &[3, 1]), Tensor::zeros(DType::I32, &[2, 1]), Tensor::zeros(DType::F32, &[2])]
        {
            assert!(apply("append", &[1], &[&whole, &rows, &place], &[(DType::F32, vec![2, 4])]).is_err());
        }
    }
}
