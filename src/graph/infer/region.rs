//! Types of pooling over regions of interest, and of what undoes a pooling.

use super::check::{Checked, defined, ensure, index_type, shaped};
use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

/// Attributes begin with the cells of a region.
pub(super) fn pool(function: &str, attributes: &[i64], inputs: &[&TensorType]) -> Checked<Vec<TensorType>> {
    let aligned = function == "roi_align";
    let fits = inputs.len() == if aligned { 3 } else { 2 } && attributes.len() == if aligned { 5 } else { 3 };
    ensure(fits, || "operands or attributes are missing".into())?;
    let (x, regions) = (inputs[0], inputs[1]);
    defined(x, x.dtype == DType::F32 && regions.dtype == DType::F32)?;
    let (&[_, channels, height, width], &[count, corners]) = (&x.shape[..], &regions.shape[..]) else {
        return Err("not images and regions".into());
    };
    ensure(corners == if aligned { 4 } else { 5 } && height > 0 && width > 0, || "not images and regions".into())?;
    if aligned {
        index_type(inputs[2])?;
        ensure(inputs[2].shape == [count], || "one image for each region".into())?;
    }
    let cells = &attributes[..2];
    ensure(cells.iter().all(|c| (1..=1 << 16).contains(c)), || "no cells".into())?;
    shaped(x, vec![count, channels, cells[0], cells[1]]).map(|t| vec![t])
}

/// Attributes are the shape of the result.
pub(super) fn max_unpool(attributes: &[i64], inputs: &[&TensorType]) -> Checked<Vec<TensorType>> {
    let &[x, positions] = inputs else { return Err("elements and positions are needed".into()) };
    let fits = positions.shape == x.shape && attributes.len() == x.shape.len() && attributes.iter().all(|&d| d >= 0);
    ensure(fits, || "positions and shape do not fit".into())?;
    index_type(positions)?;
    shaped(x, attributes.to_vec()).map(|t| vec![t])
}
