//! Scatters: elements of a copy that are replaced or updated at places from data.

use super::node::Source;
use crate::expr::BinaryOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{Error, Result, Tensor};

pub(super) fn scatter_elements(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let operands = [n.input(0)?, n.input(1)?, n.input(2)?];
    let (axis, reduction) = (g.axis(n.int("axis", 0), g.rank(operands[0]))?, reduction(n)?);
    if g.shape(operands[1]) != g.shape(operands[2]) {
        let [indices, updates] = [1, 2].map(|i| g.shape(operands[i]).to_vec());
        return Err(Error::Invalid(format!("indices of shape {indices:?} do not fit updates of shape {updates:?}")));
    }
    g.check_indices(operands[1], &[(axis, g.shape(operands[0])[axis])])?;
    Ok(vec![g.emit(Op::ScatterElements { axis, reduction }, &operands)?])
}

pub(super) fn scatter_nd(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let operands = [n.input(0)?, n.input(1)?, n.input(2)?];
    g.check_tuples(operands[0], operands[1], 0)?;
    Ok(vec![g.emit(Op::ScatterNd { reduction: reduction(n)? }, &operands)?])
}

fn reduction(n: &Source) -> Result<Option<BinaryOp>> {
    let name = n.string("reduction", "none");
    let (since, op) = match &*name {
        "none" => (1, None),
        "add" => (16, Some(BinaryOp::Add)),
        "mul" => (16, Some(BinaryOp::Mul)),
        "min" => (18, Some(BinaryOp::Min)),
        "max" => (18, Some(BinaryOp::Max)),
        _ => return Err(Error::Invalid(format!("its reduction `{name}` is none of none, add, mul, min and max"))),
    };
    match n.opset < since {
        true => Err(Error::Invalid(format!("its reduction `{name}` exists from opset {since} on"))),
        false => Ok(op),
    }
}

/// A cache with new elements along an axis, from a place on that each batch has for itself.
pub(super) fn tensor_scatter(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (cache, update) = (n.input(0)?, n.input(1)?);
    let (shape, new) = (g.shape(cache).to_vec(), g.shape(update).to_vec());
    let axis = g.axis(n.int("axis", -2), shape.len())?;
    let fits = new.len() == shape.len() && (0..shape.len()).all(|d| new[d] == shape[d] || d == axis);
    if axis == 0 || !fits || new[axis] > shape[axis] {
        return Err(Error::Invalid(format!(
            "an update of shape {new:?} does not fit a cache of shape {shape:?} along axis {axis}"
        )));
    }
    let along = |count: i64, d: usize| -> Vec<i64> { (0..new.len()).map(|i| if i == d { count } else { 1 }).collect() };
    let steps = g.positions(new[axis], Ok)?;
    let mut index = g.constant(Tensor::new(&along(new[axis], axis), &steps));
    if let Some(first) = n.optional(2) {
        if g.shape(first) != [shape[0]] {
            return Err(Error::Invalid(format!("write_indices of shape {:?}, not [{}]", g.shape(first), shape[0])));
        }
        let first = g.reshape_to(first, along(shape[0], 0))?;
        index = g.binary(BinaryOp::Add, first, index)?;
    }
    match &*n.string("mode", "linear") {
        "linear" => {}
        "circular" => {
            let extent = g.constant(Tensor::new(&[], &[shape[axis].max(1)]));
            index = g.binary(BinaryOp::Mod, index, extent)?;
        }
        mode => return Err(Error::Invalid(format!("its mode `{mode}` is neither linear nor circular"))),
    }
    Ok(vec![g.emit(Op::ScatterElements { axis, reduction: None }, &[cache, index, update])?])
}
