//! Gathers and scatters whose places grow in number.
//!
//! In: places and updates of which a dimension is bounded, or data of which those are that places count. Out: the results for the
//! places that count. A place beyond the count reads the first element; an update beyond the count goes to a row that is cut off again.

use super::movement::{cut, window};
use super::operators::refused;
use super::state::Axis;
use crate::expr::{BinaryOp, CompareOp};
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::import::table::Converter;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Result, Tensor};

/// Slices at places: `batch_dims` dimensions go together with those of the data, which do not grow.
pub(super) fn gather_nd(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let (x, mut indices) = (n.input(0)?, n.input(1)?);
    let axes = g.axes(indices);
    let (batch, last) = (n.int("batch_dims", 0), g.rank(indices) as i64 - 1);
    let among_places = |a: &Axis| (batch..last).contains(&(a.axis as i64));
    if !g.axes(x).is_empty() || !axes.iter().all(among_places) || g.shape(x).contains(&0) {
        return Err(refused("a gather"));
    }
    for bounded in &axes {
        indices = g.masked(indices, bounded.axis, 0.0, 0)?;
    }
    let bounded = g.axes(indices);
    let plain = g.without_axes(indices)?;
    let results = n.converted(g, vec![Some(x), Some(plain)], convert)?;
    let axes = bounded.into_iter().map(|a| Axis { zero: false, ..a }).collect();
    g.set_axes(results[0], axes);
    Ok(results)
}

/// Slices of a copy that are replaced or updated.
pub(super) fn scatter_nd(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let (x, indices, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let last = g.rank(indices).saturating_sub(1);
    let depth = g.shape(indices).last().copied().unwrap_or(0);
    if depth < 1 || depth > g.rank(x) as i64 || g.axes(indices).iter().any(|a| a.axis >= last) {
        return Err(refused("a scatter"));
    }
    if g.axes(x).iter().any(|a| a.axis as i64 >= depth) {
        return Err(refused("a scatter"));
    }
    let mut beyond = vec![0; depth as usize];
    beyond[0] = g.shape(x)[0];
    let beyond = g.constant(Tensor::new(&[depth], &beyond));
    let extents = g.form_tensor(&[depth], &g.extents(x)[..depth as usize], DType::I64)?;
    scattered(g, n, convert, (x, indices, updates), 0, (extents, beyond))
}

/// Elements of a copy that are replaced or updated along one dimension, the one that grows.
pub(super) fn scatter_elements(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let (x, indices, updates) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    if g.axes(indices).iter().chain(&g.axes(x)).any(|a| a.axis != axis) {
        return Err(refused("a scatter"));
    }
    let beyond = g.constant(Tensor::new(&[], &[g.shape(x)[axis]]));
    let extent = g.form_value(g.extents(x)[axis])?;
    scattered(g, n, convert, (x, indices, updates), axis, (extent, beyond))
}

/// The scatter into data with one more row along `axis`; `extents` is what places must be within, `beyond` the place in that row.
fn scattered(
    g: &mut Importer,
    n: &Source,
    convert: Converter,
    (x, indices, updates): (ValueId, ValueId, ValueId),
    axis: usize,
    (extents, beyond): (ValueId, ValueId),
) -> Result<Vec<ValueId>> {
    let (of_indices, of_updates) = (g.axes(indices), g.axes(updates));
    let same = |a: &[Axis], b: &[Axis]| a.iter().map(|a| (a.axis, a.count)).eq(b.iter().map(|b| (b.axis, b.count)));
    if !same(&of_indices, &of_updates) {
        return Err(refused("a scatter"));
    }
    let rows = g.shape(x)[axis];
    let mut places = g.without_axes(indices)?;
    places = g.cast_to(places, DType::I64)?;
    let zero = g.constant(Tensor::new(&[], &[0i64]));
    let negative = g.compare(CompareOp::Lt, places, zero)?;
    let wrapped = g.add(places, extents)?;
    places = g.select(negative, wrapped, places)?;
    // a place outside must stay outside of the data with one more row
    let above = g.compare(CompareOp::Ge, places, zero)?;
    let below = g.compare(CompareOp::Lt, places, extents)?;
    let inside = g.binary(BinaryOp::And, above, below)?;
    let outside = g.constant(Tensor::new(&[], &[i64::MAX / 2]));
    places = g.select(inside, places, outside)?;
    for bounded in of_indices {
        let mask = g.mask(bounded.count)?;
        let mut shape = vec![1; g.rank(places) - bounded.axis];
        shape[0] = g.shape(places)[bounded.axis];
        let mask = g.reshape_to(mask, shape)?;
        places = g.select(mask, places, beyond)?;
    }
    let axes = g.axes(x);
    let wide = g.without_axes(x)?;
    let wide = window(g, wide, axis, 0, rows + 1)?;
    let updates = g.without_axes(updates)?;
    let operands = vec![Some(wide), Some(places), Some(updates)];
    let results = n.converted(g, operands, convert)?;
    let y = cut(g, results[0], axis, 0, rows)?;
    Ok(vec![g.with_axes(y, axes)?])
}

impl Importer<'_> {
    /// A value with the same elements that counts as a whole.
    pub(super) fn without_axes(&mut self, x: ValueId) -> Result<ValueId> {
        match self.axes(x).is_empty() {
            true => Ok(x),
            false => Ok(self.emit_exact(Op::Reshape { shape: self.shape(x).to_vec() }, &[x])?[0]),
        }
    }
}
