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
pub const FUNCTIONS: &[(&str, Function)] = &[("arg_max", arg_max), ("arg_min", arg_min), ("top_k", top_k)];

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

/// Attributes: axis, 1 to take the last of equal elements. Output: i64, the axis reduced or kept with extent 1.
fn arg_max(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    arg_best(attributes, inputs, outputs, |a, b| a > b)
}

/// As `arg_max`, with the least element.
fn arg_min(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    arg_best(attributes, inputs, outputs, |a, b| a < b)
}

fn arg_best(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut], better: fn(Key, Key) -> bool) -> Result<()> {
    let ([axis, last], [input], [output]) = (attributes, inputs, outputs) else { return Err(misuse("arg_max")) };
    let (outer, extent, inner) = around(input, *axis)?;
    if output.dtype != DType::I64 || output.data.len() != outer * inner * 8 || (extent == 0 && outer * inner > 0) {
        return Err(misuse("arg_max"));
    }
    for o in 0..outer {
        for i in 0..inner {
            let at = |k: usize| key(input, (o * extent + k) * inner + i);
            let mut best = 0;
            for k in 1..extent {
                if better(at(k), at(best)) || (*last == 1 && !better(at(best), at(k))) {
                    best = k;
                }
            }
            let to = (o * inner + i) * 8;
            output.data[to..to + 8].copy_from_slice(&(best as i64).to_le_bytes());
        }
    }
    Ok(())
}

/// Attributes: axis, 1 for the largest (0: the smallest). Outputs: values, i64 indices, sorted; k is the outputs' extent.
fn top_k(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([axis, largest], [input, ..], [values, indices]) = (attributes, inputs, outputs) else {
        return Err(misuse("top_k"));
    };
    let (outer, extent, inner) = around(input, *axis)?;
    let k = values.shape.get(*axis as usize).map_or(0, |&k| k as usize);
    let size = input.dtype.bytes();
    let fits = values.dtype == input.dtype
        && indices.dtype == DType::I64
        && values.data.len() == outer * k * inner * size
        && indices.data.len() == outer * k * inner * 8
        && k <= extent;
    if !fits {
        return Err(misuse("top_k"));
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

/// An element, comparable: floats and integers of any width.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Key {
    Float(f64),
    Integer(i64),
}

impl Key {
    fn compare(self, other: Key) -> std::cmp::Ordering {
        self.partial_cmp(&other).unwrap_or(std::cmp::Ordering::Equal)
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
        assert_eq!(apply("arg_max", &[1, 0], &[&x], &out).unwrap()[0].to_vec::<i64>(), [1, 0]);
        assert_eq!(apply("arg_max", &[1, 1], &[&x], &out).unwrap()[0].to_vec::<i64>(), [2, 2]);
        assert_eq!(apply("arg_min", &[1, 0], &[&x], &out).unwrap()[0].to_vec::<i64>(), [0, 1]);
        let down = [(DType::I64, vec![3])];
        assert_eq!(apply("arg_max", &[0, 0], &[&x], &down).unwrap()[0].to_vec::<i64>(), [1, 0, 1]);
    }

    #[test]
    fn top_k_is_sorted_and_stable() {
        let x = Tensor::new(&[5], &[3i32, 9, 1, 9, 4]);
        let out = [(DType::I32, vec![3]), (DType::I64, vec![3])];
        let largest = apply("top_k", &[0, 1], &[&x], &out).unwrap();
        assert_eq!((largest[0].to_vec::<i32>(), largest[1].to_vec::<i64>()), (vec![9, 9, 4], vec![1, 3, 4]));
        let smallest = apply("top_k", &[0, 0], &[&x], &out).unwrap();
        assert_eq!((smallest[0].to_vec::<i32>(), smallest[1].to_vec::<i64>()), (vec![1, 3, 4], vec![2, 0, 4]));
    }

    #[test]
    fn wrong_operands_are_an_error() {
        let x = Tensor::new(&[2], &[1.0f32, 2.0]);
        assert!(apply("arg_max", &[7, 0], &[&x], &[(DType::I64, vec![1])]).is_err());
        assert!(apply("arg_max", &[0, 0], &[&x], &[(DType::F32, vec![1])]).is_err());
        assert!(apply("top_k", &[0, 1], &[&x], &[(DType::F32, vec![3]), (DType::I64, vec![3])]).is_err());
        assert!(apply("nothing", &[], &[], &[]).is_err());
    }

    #[test]
    fn half_precision_values() {
        assert_eq!(half_to_f64(0x3c00), 1.0);
        assert_eq!(half_to_f64(0xc000), -2.0);
        assert_eq!(half_to_f64(0x0001), 2f64.powi(-24));
    }
}
