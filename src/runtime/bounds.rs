//! Bounds: dimensions of a module that have a capacity, and a count at run time.
//!
//! In: tensors of exact sizes. Out: tensors of the module's capacities with zeros beyond the count, and back. All sizes follow
//! from one count, which an input of the module holds.

use crate::error::unknown;
use crate::tensor::TensorView;
use crate::{Error, Result, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number that follows from the count: `factor · count + offset`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Form {
    /// The increase with each unit of the count.
    pub factor: i64,
    /// The number for a count of 0.
    pub offset: i64,
}

impl Form {
    /// The number for a count.
    pub fn at(self, count: i64) -> i64 {
        self.factor.saturating_mul(count).saturating_add(self.offset)
    }
}

/// A dimension of an input or an output whose extent is a capacity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BoundedAxis {
    /// Number of the dimension.
    pub axis: usize,
    /// Elements that count.
    pub count: Form,
    /// Zeros stand beyond the count: always in inputs. In other outputs anything may stand there.
    pub zero: bool,
}

/// Capacities of a module: it runs for each count from `least` to `most`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// Name of the input that holds the count, an i64.
    pub input: String,
    /// Dynamic dimensions that grow, and their sizes.
    pub dims: BTreeMap<String, Form>,
    /// Extent of every bounded dimension.
    pub capacity: i64,
    /// The smallest count.
    pub least: i64,
    /// The largest count.
    pub most: i64,
    /// Bounded dimensions of each input of the module.
    pub inputs: Vec<Vec<BoundedAxis>>,
    /// Bounded dimensions of each output of the module.
    pub outputs: Vec<Vec<BoundedAxis>>,
}

impl Bounds {
    /// Checks a count.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the module is not for this count.
    pub fn check(&self, count: i64) -> Result<()> {
        if (self.least..=self.most).contains(&count) {
            return Ok(());
        }
        let size = |(name, form): (&String, &Form)| {
            let [size, least, most] = [count, self.least, self.most].map(|count| form.at(count));
            format!("`{name}` is {size}, but the module is for {least} to {most}")
        };
        let sizes: Vec<String> = self.dims.iter().map(size).collect();
        Err(Error::Invalid(format!("{}: its capacity is {}", sizes.join(", "), self.capacity)))
    }

    /// The count for which the dimensions that grow have these sizes; `None` where none of them does.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the sizes need different counts, or one for which the module is not.
    pub fn count_of_dims(&self, sizes: &BTreeMap<String, i64>) -> Result<Option<i64>> {
        let mut common = None;
        for (name, form) in &self.dims {
            let Some(&size) = sizes.get(name) else { continue };
            let count = size.saturating_sub(form.offset);
            if form.factor != 1 || common.is_some_and(|other| other != count) {
                return Err(Error::Invalid(format!("`{name}` of size {size} fits no count of the module")));
            }
            self.check(count)?;
            common = Some(count);
        }
        Ok(common)
    }

    /// The count for which an input has these extents; `None` where none of them is bounded.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the extents need different counts.
    pub fn count(&self, input: usize, shape: &[i64]) -> Result<Option<i64>> {
        let mut common = None;
        for bounded in self.inputs.get(input).into_iter().flatten() {
            let Some(&extent) = shape.get(bounded.axis) else { continue };
            let Form { factor, offset } = bounded.count;
            let (length, factor) = (i128::from(extent) - i128::from(offset), i128::from(factor));
            let whole = factor != 0 && length % factor == 0;
            let count = if whole { i64::try_from(length / factor).ok() } else { None };
            if count.is_none() || common.is_some_and(|other| Some(other) != count) {
                return Err(Error::Invalid(format!("extent {extent} of dimension {} fits no count", bounded.axis)));
            }
            common = count;
        }
        Ok(common)
    }
}

/// The extents of a tensor whose bounded dimensions have the sizes for a count.
pub fn exact_shape(shape: &[i64], axes: &[BoundedAxis], count: i64) -> Vec<i64> {
    let mut exact = shape.to_vec();
    for bounded in axes {
        if let Some(extent) = exact.get_mut(bounded.axis) {
            *extent = bounded.count.at(count);
        }
    }
    exact
}

/// Copies the elements that two tensors of different extents have in common; the other elements of `to` stay.
fn copy_common(from: &[u8], from_shape: &[i64], to: &mut [u8], to_shape: &[i64], element: usize) {
    let rank = from_shape.len();
    let common: Vec<usize> = from_shape.iter().zip(to_shape).map(|(a, b)| (*a).min(*b).max(0) as usize).collect();
    if rank != to_shape.len() || common.contains(&0) {
        return;
    }
    // everything from `inner` on is contiguous in both
    let inner = (0..rank).rev().find(|&d| from_shape[d] != to_shape[d]).unwrap_or(0);
    let bytes = |shape: &[i64]| shape.iter().product::<i64>() as usize * element;
    let run = common[inner..].iter().product::<usize>() * element;
    let (from_row, to_row) = (bytes(&from_shape[inner..]), bytes(&to_shape[inner..]));
    let rows: usize = common[..inner].iter().product();
    for row in 0..rows {
        let (mut index, mut from_at, mut to_at) = (row, 0, 0);
        let (mut from_stride, mut to_stride) = (1, 1);
        for d in (0..inner).rev() {
            let place = index % common[d];
            index /= common[d];
            from_at += place * from_stride;
            to_at += place * to_stride;
            from_stride *= from_shape[d] as usize;
            to_stride *= to_shape[d] as usize;
        }
        let (from_at, to_at) = (from_at * from_row, to_at * to_row);
        to[to_at..to_at + run].copy_from_slice(&from[from_at..from_at + run]);
    }
}

/// The elements of a tensor in one of other extents: cut where it is smaller, zeros where it is larger.
pub fn resized(tensor: &TensorView, shape: &[i64]) -> Tensor {
    let mut resized = Tensor::zeros(tensor.dtype, shape);
    copy_common(tensor.data, tensor.shape, &mut resized.data, shape, tensor.dtype.bytes());
    resized
}

/// The count of inputs of exact sizes; `shapes` has name and extents of each input of the module.
///
/// # Errors
/// [`Error::Invalid`] where an input is unknown or given twice, and where the sizes do not fit.
pub fn count_of(bounds: &Bounds, shapes: &[(&str, &[i64])], inputs: &[(&str, TensorView)]) -> Result<i64> {
    let mut count = None;
    for (i, (name, tensor)) in inputs.iter().enumerate() {
        let Some(position) = shapes.iter().position(|s| s.0 == *name).filter(|_| *name != bounds.input) else {
            let names: Vec<&str> = shapes.iter().map(|s| s.0).filter(|n| *n != bounds.input).collect();
            return Err(Error::Invalid(unknown("input", name, &names)));
        };
        if inputs[..i].iter().any(|(other, _)| other == name) {
            return Err(Error::Invalid(format!("input `{name}` is given twice")));
        }
        let of_input = bounds.count(position, tensor.shape).map_err(|e| e.context(&format!("input `{name}`")))?;
        if let (Some(of_input), Some(other)) = (of_input, count)
            && of_input != other
        {
            return Err(Error::Invalid(format!(
                "input `{name}` is for a count of {of_input}, another one for {other}"
            )));
        }
        count = count.or(of_input);
    }
    let names: Vec<&str> = bounds.dims.keys().map(String::as_str).collect();
    count.ok_or_else(|| Error::Invalid(format!("no input has the dimension `{}`", names.join("`, `"))))
}

/// Inputs of exact sizes for a count, with zeros up to the capacities, and the count.
///
/// # Errors
/// [`Error::Invalid`] where the module is not for this count, or an input has not the size for it.
pub fn at_capacity(
    bounds: &Bounds,
    shapes: &[(&str, &[i64])],
    inputs: &[(&str, TensorView)],
    count: i64,
) -> Result<Vec<(String, Tensor)>> {
    bounds.check(count)?;
    let mut tensors = vec![(bounds.input.clone(), Tensor::new(&[], &[count]))];
    for (name, tensor) in inputs {
        let Some(position) = shapes.iter().position(|s| s.0 == *name) else {
            return Err(Error::Invalid(format!("the model has no input `{name}`")));
        };
        let shape = shapes[position].1;
        let wanted = exact_shape(shape, bounds.inputs.get(position).map_or(&[], |axes| axes), count);
        let elements = tensor.shape.iter().try_fold(tensor.dtype.bytes() as i64, |n, &d| n.checked_mul(d));
        if *tensor.shape != wanted[..] || elements != Some(tensor.data.len() as i64) {
            let actual = tensor.shape;
            return Err(Error::Invalid(format!("input `{name}` has shape {actual:?}, but the model wants {wanted:?}")));
        }
        tensors.push((name.to_string(), resized(tensor, shape)));
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_in_common_keep_their_places() {
        let x = Tensor::new(&[2, 2, 3], &(0..12).collect::<Vec<i32>>());
        let wide = resized(&crate::AsView::view(&x), &[2, 4, 3]);
        let expected = [0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0, 0, 0];
        assert_eq!(wide.to_vec::<i32>(), expected);
        assert_eq!(resized(&crate::AsView::view(&wide), &[2, 2, 3]), x);
        let corner = resized(&crate::AsView::view(&x), &[1, 2, 2]);
        assert_eq!(corner.to_vec::<i32>(), [0, 1, 3, 4]);
        assert_eq!(resized(&crate::AsView::view(&x), &[0, 2, 3]).len(), 0);
        let none = Tensor::zeros(crate::DType::I32, &[2, 0, 3]);
        assert_eq!(resized(&crate::AsView::view(&none), &[2, 1, 3]).to_vec::<i32>(), [0; 6]);
    }

    #[test]
    fn a_count_follows_from_extents() {
        let axes = vec![BoundedAxis { axis: 1, count: Form { factor: 1, offset: 2 }, zero: true }];
        let bounds = Bounds {
            input: "#n".into(),
            dims: BTreeMap::from([("n".into(), Form { factor: 1, offset: 0 })]),
            capacity: 8,
            least: 0,
            most: 6,
            inputs: vec![axes.clone()],
            outputs: vec![],
        };
        assert_eq!(bounds.count(0, &[4, 5]).unwrap(), Some(3));
        assert_eq!(bounds.count(1, &[4, 5]).unwrap(), None);
        let far = Form { factor: -1, offset: i64::MIN };
        let damaged = Bounds { inputs: vec![vec![BoundedAxis { axis: 0, count: far, zero: true }]], ..bounds.clone() };
        assert!(damaged.count(0, &[4]).is_err());
        assert_eq!(exact_shape(&[4, 8], &axes, 3), [4, 5]);
        assert!(bounds.check(6).is_ok());
        assert!(bounds.check(7).unwrap_err().to_string().contains("for 0 to 6"));
    }
}
