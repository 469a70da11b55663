//! Opaque operators: what no affine expression can say, as plain functions over bytes.
//!
//! In: attributes and read-only views of the inputs. Out: the outputs, written in place; their shapes are known ahead.
//! One table, a row for each function. Every use is counted and named in reports.

use crate::runtime::{DType, Error, Result, Tensor};

/// More operands than any row has.
pub const MAX_OPERANDS: usize = 8;

/// A tensor in somebody else's memory.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub dtype: DType,
    pub shape: &'a [i64],
    pub data: &'a [u8],
}

/// A tensor in somebody else's memory, to be written.
#[derive(Debug)]
pub struct ViewMut<'a> {
    pub dtype: DType,
    pub shape: &'a [i64],
    pub data: &'a mut [u8],
}

/// Attributes, inputs, outputs.
pub type Function = fn(&[i64], &[View], &mut [ViewMut]) -> Result<()>;

/// Name, function.
pub const FUNCTIONS: &[(&str, Function)] =
    &[("argmax", arg_max), ("argmin", arg_min), ("topk", top_k), ("cumsum", cumulative_sum)];

/// The function of this name.
pub fn lookup(name: &str) -> Option<Function> {
    FUNCTIONS.iter().find(|row| row.0 == name).map(|row| row.1)
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

/// Attributes: axis, 1 to keep the axis with extent 1, 1 to take the last of equal elements. Output: i64.
fn arg_max(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    arg_best(attributes, inputs, outputs, |a, b| a > b)
}

/// As `arg_max`, with the least element.
fn arg_min(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    arg_best(attributes, inputs, outputs, |a, b| a < b)
}

fn arg_best(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut], better: fn(Key, Key) -> bool) -> Result<()> {
    let ([axis, _keep, last], [input], [output]) = (attributes, inputs, outputs) else { return Err(misuse("argmax")) };
    let (outer, extent, inner) = around(input, *axis)?;
    if output.dtype != DType::I64 || output.data.len() != outer * inner * 8 || (extent == 0 && outer * inner > 0) {
        return Err(misuse("argmax"));
    }
    for o in 0..outer {
        for i in 0..inner {
            let at = |k: usize| key(input, (o * extent + k) * inner + i);
            let mut best = 0;
            for k in 1..extent {
                if better(at(k), at(best)) || (*last == 1 && at(k) == at(best)) {
                    best = k;
                }
            }
            let to = (o * inner + i) * 8;
            output.data[to..to + 8].copy_from_slice(&(best as i64).to_le_bytes());
        }
    }
    Ok(())
}

/// Attributes: k, axis, 1 for the largest (0: the smallest), 1 for sorted (we always sort). Outputs: values, i64 indices.
fn top_k(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([k, axis, largest, _sorted], [input, ..], [values, indices]) = (attributes, inputs, outputs) else {
        return Err(misuse("topk"));
    };
    let (outer, extent, inner) = around(input, *axis)?;
    let k = usize::try_from(*k).map_err(|_| misuse("topk"))?;
    let size = input.dtype.bytes();
    let fits = values.dtype == input.dtype
        && indices.dtype == DType::I64
        && values.data.len() == outer * k * inner * size
        && indices.data.len() == outer * k * inner * 8
        && k <= extent;
    if !fits {
        return Err(misuse("topk"));
    }
    let mut order: Vec<usize> = Vec::with_capacity(extent);
    for o in 0..outer {
        for i in 0..inner {
            let at = |j: usize| (o * extent + j) * inner + i;
            order.clear();
            order.extend(0..extent);
            order.sort_by(|&a, &b| {
                let (x, y) = (key(input, at(a)), key(input, at(b)));
                if *largest == 1 { y.compare(x) } else { x.compare(y) }
            });
            for (rank, &j) in order[..k].iter().enumerate() {
                let (from, to) = (at(j) * size, (o * k + rank) * inner + i);
                values.data[to * size..][..size].copy_from_slice(&input.data[from..from + size]);
                indices.data[to * 8..][..8].copy_from_slice(&(j as i64).to_le_bytes());
            }
        }
    }
    Ok(())
}

/// Attributes: axis, 1 to leave the element itself out, 1 to sum from the end. Output: the input's type and shape.
fn cumulative_sum(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([axis, exclusive, reverse], [input, ..], [output]) = (attributes, inputs, outputs) else {
        return Err(misuse("cumsum"));
    };
    let (outer, extent, inner) = around(input, *axis)?;
    let size = input.dtype.bytes();
    if output.dtype != input.dtype || output.data.len() != input.data.len() {
        return Err(misuse("cumsum"));
    }
    for o in 0..outer {
        for i in 0..inner {
            let mut sum = Sum::of(input.dtype)?;
            for step in 0..extent {
                let k = if *reverse == 1 { extent - 1 - step } else { step };
                let at = (o * extent + k) * inner + i;
                let before = sum;
                sum.add(key(input, at));
                let bytes = if *exclusive == 1 { before } else { sum }.bytes();
                output.data[at * size..][..size].copy_from_slice(&bytes[..size]);
            }
        }
    }
    Ok(())
}

/// A running sum that rounds as its type does.
#[derive(Clone, Copy)]
enum Sum {
    F64(f64),
    F32(f32),
    Integer(i64),
}

impl Sum {
    fn of(dtype: DType) -> Result<Sum> {
        match dtype {
            DType::F64 => Ok(Sum::F64(0.0)),
            DType::F32 => Ok(Sum::F32(0.0)),
            DType::I64 | DType::I32 => Ok(Sum::Integer(0)),
            _ => Err(Error::Unsupported(format!("cumulative sum of {dtype}"))),
        }
    }

    fn add(&mut self, element: Key) {
        match (self, element) {
            (Sum::F64(s), Key::Float(v)) => *s += v,
            (Sum::F32(s), Key::Float(v)) => *s += v as f32,
            (Sum::Integer(s), Key::Integer(v)) => *s = s.wrapping_add(v),
            _ => {}
        }
    }

    fn bytes(self) -> [u8; 8] {
        match self {
            Sum::F64(s) => s.to_le_bytes(),
            Sum::F32(s) => (s.to_bits() as u64).to_le_bytes(),
            Sum::Integer(s) => s.to_le_bytes(),
        }
    }
}

/// An element, comparable: floats and integers of any width.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Key {
    Float(f64),
    Integer(i64),
}

impl Key {
    /// Not-a-number is greater than everything, as in NumPy.
    fn compare(self, other: Key) -> std::cmp::Ordering {
        let broken = |k: Key| matches!(k, Key::Float(v) if v.is_nan());
        self.partial_cmp(&other).unwrap_or_else(|| broken(self).cmp(&broken(other)))
    }
}

fn key(view: &View, element: usize) -> Key {
    let size = view.dtype.bytes();
    let bytes = &view.data[element * size..][..size];
    let mut word = [0u8; 8];
    word[..size].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match view.dtype {
        DType::F64 => Key::Float(f64::from_bits(bits)),
        DType::F32 => Key::Float(f32::from_bits(bits as u32) as f64),
        DType::BF16 => Key::Float(f32::from_bits((bits as u32) << 16) as f64),
        DType::F16 => Key::Float(half_to_f64(bits as u16)),
        DType::I64 => Key::Integer(bits as i64),
        DType::I32 => Key::Integer(bits as i32 as i64),
        DType::I8 => Key::Integer(bits as i8 as i64),
        DType::U8 | DType::Bool => Key::Integer(bits as i64),
    }
}

fn half_to_f64(bits: u16) -> f64 {
    let (exponent, fraction) = ((bits >> 10 & 31) as i32, (bits & 1023) as f64);
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// Numbers of elements before, along and after `axis`.
fn around(view: &View, axis: i64) -> Result<(usize, usize, usize)> {
    let axis = usize::try_from(axis).ok().filter(|&a| a < view.shape.len());
    let axis = axis.ok_or_else(|| Error::Invalid(format!("no such axis in shape {:?}", view.shape)))?;
    let product = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    Ok((product(&view.shape[..axis]), view.shape[axis] as usize, product(&view.shape[axis + 1..])))
}

fn misuse(name: &str) -> Error {
    Error::Internal(format!("opaque function `{name}` got operands that do not fit it"))
}

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

    #[test]
    fn wrong_operands_are_an_error() {
        let x = Tensor::new(&[2], &[1.0f32, 2.0]);
        assert!(apply("argmax", &[7, 0, 0], &[&x], &[(DType::I64, vec![1])]).is_err());
        assert!(apply("argmax", &[0, 0, 0], &[&x], &[(DType::F32, vec![1])]).is_err());
        assert!(apply("topk", &[3, 0, 1, 1], &[&x], &[(DType::F32, vec![3]), (DType::I64, vec![3])]).is_err());
        assert!(apply("nothing", &[], &[], &[]).is_err());
    }

    #[test]
    fn half_precision_values() {
        assert_eq!(half_to_f64(0x3c00), 1.0);
        assert_eq!(half_to_f64(0xc000), -2.0);
        assert_eq!(half_to_f64(0x0001), 2f64.powi(-24));
    }
}
