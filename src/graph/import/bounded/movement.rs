//! Operators that move elements of dimensions that grow, and those that make such dimensions.

use super::operators::refused;
use super::state::{Axis, fixed, is_fixed, sum};
use crate::graph::import::convert::{fill_value, steps_between};
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::import::table::Converter;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::bounds::Form;
use crate::runtime::{DType, Error, Result, Tensor};

impl Importer<'_> {
    /// The extent of a dimension at capacity.
    pub(super) fn at_capacity(&self, extent: Form) -> Result<i64> {
        match &self.bounded {
            Some(bounded) if !is_fixed(extent) => bounded.fit(extent).map(|()| bounded.capacity),
            _ => Ok(extent.offset),
        }
    }
}

/// The new shape has the same bounded dimensions in the same order, and the same numbers of elements between them.
pub(super) fn reshape(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let old = g.extents(x);
    let wanted = match n.opset {
        ..5 => n.ints("shape").unwrap_or_default().into_iter().map(fixed).collect(),
        _ => g.known_forms(n.input(1)?, "shape")?,
    };
    let keeps_zero = n.flag("allowzero", false);
    let mut new = vec![];
    let mut open = None;
    for (i, &size) in wanted.iter().enumerate() {
        new.push(match size {
            Form { factor: 0, offset: 0 } if !keeps_zero => *old.get(i).ok_or_else(|| refused("a reshape"))?,
            Form { factor: 0, offset: -1 } if open.is_none() => {
                open = Some(i);
                fixed(1)
            }
            size if is_fixed(size) && size.offset < 0 => {
                return Err(Error::Invalid(format!("the new shape contains {}", size.offset)));
            }
            // of a size that is not there the dimension in its place is meant
            size if !keeps_zero && old.get(i) != Some(&size) && !g.at_least(size, fixed(1))? => {
                return Err(refused("a reshape"));
            }
            size => size,
        });
    }
    let growing = |shape: &[Form]| shape.iter().copied().filter(|&d| !is_fixed(d)).collect::<Vec<Form>>();
    if let Some(open) = open {
        let (before, sizes) = (growing(&new[..open]).len(), growing(&old));
        // of no elements an open size is not known
        for &size in &sizes {
            g.at_least(size, fixed(1))?.then_some(()).ok_or_else(|| refused("a reshape"))?;
        }
        if growing(&new).len() < sizes.len() {
            new[open] = sizes[before];
        } else {
            let have = segments(&old)?.get(before).copied().unwrap_or(0);
            let fixed_size = segments(&new)?[before];
            if fixed_size == 0 || have % fixed_size != 0 {
                return Err(refused("a reshape"));
            }
            new[open] = fixed(have / fixed_size);
        }
    }
    if growing(&new) != growing(&old) || segments(&new)? != segments(&old)? {
        return Err(refused("a reshape"));
    }
    let extents = new.iter().map(|&d| g.at_capacity(d)).collect::<Result<Vec<i64>>>()?;
    let zeros: Vec<Axis> = g.axes(x);
    let places = new.iter().enumerate().filter(|(_, d)| !is_fixed(**d)).map(|(axis, _)| axis);
    let axes = places.zip(&zeros).map(|(axis, a)| Axis { axis, ..*a }).collect();
    if g.shape(x) == extents {
        return Ok(vec![x]);
    }
    let y = g.emit_exact(Op::Reshape { shape: extents }, &[x])?[0];
    g.set_axes(y, axes);
    Ok(vec![y])
}

/// Numbers of elements before, between and behind the dimensions that grow.
fn segments(shape: &[Form]) -> Result<Vec<i64>> {
    let elements = |part: &[Form]| part.iter().try_fold(1i64, |n, d| n.checked_mul(d.offset));
    let segments: Option<Vec<i64>> = shape.split(|&d| !is_fixed(d)).map(elements).collect();
    segments.ok_or_else(|| refused("a reshape"))
}

pub(super) fn expand(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let wanted = g.known_forms(n.input(1)?, "shape")?;
    let old = g.extents(x);
    let rank = old.len().max(wanted.len());
    let aligned = |shape: &[Form], d: usize| (d + shape.len()).checked_sub(rank).map_or(fixed(1), |i| shape[i]);
    let (mut axes, mut extents) = (vec![], vec![]);
    for d in 0..rank {
        let (have, want) = (aligned(&old, d), aligned(&wanted, d));
        let size = match (have, want) {
            (have, want) if have == want || want == fixed(1) => have,
            (have, want) if have == fixed(1) => want,
            _ => return Err(refused("an expansion")),
        };
        let bounded = (d + old.len()).checked_sub(rank).and_then(|d| g.bounded_axis(x, d));
        if !is_fixed(size) {
            axes.push(Axis { axis: d, count: size, zero: bounded.is_some_and(|a| a.zero) });
        }
        extents.push(g.at_capacity(size)?);
    }
    if g.shape(x) == extents {
        return Ok(vec![x]);
    }
    let y = g.emit_exact(Op::Expand { shape: extents }, &[x])?[0];
    Ok(vec![g.with_axes(y, axes)?])
}

pub(super) fn constant_of_shape(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let sizes = g.known_forms(n.input(0)?, "shape")?;
    let value = fill_value(g, n)?;
    let zero = value.data.iter().all(|b| *b == 0);
    let mut extents = vec![];
    for &size in &sizes {
        extents.push(g.at_capacity(size)?);
    }
    let value = g.constant(Tensor { shape: vec![], ..value });
    let y = g.emit_exact(Op::Expand { shape: extents }, &[value])?[0];
    let growing = sizes.into_iter().enumerate().filter(|(_, size)| !is_fixed(*size));
    let axes = growing.map(|(axis, count)| Axis { axis, count, zero }).collect();
    Ok(vec![g.with_axes(y, axes)?])
}

/// Integers from a start on: as many as the difference says.
pub(super) fn range(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (start, limit, delta) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let dtype = g.ty(start).dtype;
    let single = |v: ValueId, what: &str| match g.known_forms(v, what)?[..] {
        [form] => Ok(form),
        _ => Err(Error::Invalid(format!("its {what} is not one number"))),
    };
    let (start, limit, delta) = (single(start, "start")?, single(limit, "limit")?, single(delta, "delta")?);
    let difference = sum(limit, start, -1)?;
    if !is_fixed(delta) || delta.offset == 0 || !is_fixed(difference) && delta.offset != 1 {
        return Err(refused("a range"));
    }
    let delta = delta.offset;
    let count = match is_fixed(difference) {
        true => fixed(steps_between(difference.offset.into(), delta)?),
        false if g.at_least(difference, fixed(0))? => difference,
        false => fixed(0),
    };
    let extent = g.at_capacity(count)?;
    let steps = g.counting(extent, 0, 1)?;
    let delta = g.constant(Tensor::new(&[], &[delta]));
    let steps = g.mul(steps, delta)?;
    let start = g.form_value(start)?;
    let values = g.add(steps, start)?;
    let values = g.cast_to(values, dtype)?;
    if is_fixed(count) {
        return Ok(vec![values]);
    }
    Ok(vec![g.with_axes(values, vec![Axis { axis: 0, count, zero: false }])?])
}

/// Along a dimension that grows: parts of fixed sizes before and behind one that is bounded.
pub(super) fn concat(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let parts = n.operands().into_iter().flatten().collect::<Vec<_>>();
    let first = n.input(0)?;
    let axis = g.axis(n.int("axis", 1), g.rank(first))?;
    if parts.iter().any(|&v| g.rank(v) <= axis) {
        return Err(Error::Invalid("operands of different ranks".into()));
    }
    let Some(place) = parts.iter().position(|&v| g.bounded_axis(v, axis).is_some()) else {
        // also of parts without elements, which converting leaves out
        let axes = |v: ValueId| g.axes(v).into_iter().map(|a| (a.axis, a.count)).collect::<Vec<_>>();
        let first = axes(first);
        return if parts.iter().all(|&v| axes(v) == first) { convert(g, n) } else { Err(refused("a concatenation")) };
    };
    n.present();
    let (before, following) = parts.split_at(place);
    let (x, behind) = (following[0], &following[1..]);
    if behind.iter().any(|&v| g.bounded_axis(v, axis).is_some()) {
        return Err(refused("a concatenation of parts"));
    }
    let y = if before.is_empty() { x } else { put_before(g, x, before, axis)? };
    Ok(vec![if behind.is_empty() { y } else { put_behind(g, y, behind, axis)? }])
}

/// The other dimensions of two parts, which have to agree.
fn beside(g: &Importer, x: ValueId, part: ValueId, axis: usize) -> Result<Vec<Axis>> {
    let (a, b) = (g.extents(x), g.extents(part));
    if g.rank(part) != a.len() || (0..a.len()).any(|d| d != axis && a[d] != b[d]) {
        return Err(refused("a concatenation"));
    }
    let zero = |d: usize| g.bounded_axis(part, d).is_some_and(|a| a.zero);
    Ok(g.axes(x).into_iter().map(|a| Axis { zero: a.zero && (a.axis == axis || zero(a.axis)), ..a }).collect())
}

fn longer(g: &Importer, mut axes: Vec<Axis>, axis: usize, by: i64) -> Result<(Form, Vec<Axis>)> {
    let mut before = fixed(0);
    for a in axes.iter_mut().filter(|a| a.axis == axis) {
        before = a.count;
        a.count = sum(a.count, fixed(by), 1)?;
        g.at_capacity(a.count)?;
    }
    Ok((before, axes))
}

fn put_before(g: &mut Importer, x: ValueId, parts: &[ValueId], axis: usize) -> Result<ValueId> {
    let part = g.joined(axis, parts)?;
    let axes = beside(g, x, part, axis)?;
    let (by, extent) = (g.shape(part)[axis], g.shape(x)[axis]);
    let (_, axes) = longer(g, axes, axis, by)?;
    if by == 0 {
        return Ok(x);
    }
    let kept = cut(g, x, axis, 0, extent - by)?;
    let y = g.emit_exact(Op::Concat { axis }, &[part, kept])?[0];
    g.set_axes(y, axes);
    Ok(y)
}

fn put_behind(g: &mut Importer, x: ValueId, parts: &[ValueId], axis: usize) -> Result<ValueId> {
    let part = g.joined(axis, parts)?;
    let axes = beside(g, x, part, axis)?;
    let by = g.shape(part)[axis];
    let (place, axes) = longer(g, axes, axis, by)?;
    if by == 0 {
        return Ok(x);
    }
    let place = g.form_value(place)?;
    let op = Op::Opaque { function: "append".into(), attributes: vec![axis as i64] };
    let y = g.emit_exact(op, &[x, part, place])?[0];
    g.set_axes(y, axes);
    Ok(y)
}

/// Part `start..end` of one dimension at capacity. The caller says what is bounded.
pub(super) fn cut(g: &mut Importer, x: ValueId, axis: usize, start: i64, end: i64) -> Result<ValueId> {
    let mut ends = g.shape(x).to_vec();
    let (mut starts, steps) = (vec![0; ends.len()], vec![1; ends.len()]);
    (starts[axis], ends[axis]) = (start, end);
    Ok(g.emit_exact(Op::Slice { starts, ends, steps }, &[x])?[0])
}

pub(super) fn gather(g: &mut Importer, n: &Source, convert: Converter) -> Result<Vec<ValueId>> {
    let (x, mut indices) = (n.input(0)?, n.input(1)?);
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    // beyond a count there may be any index: the first element is read there instead
    let of_indices = g.axes(indices);
    if !of_indices.is_empty() && !g.at_least(g.extents(x)[axis], fixed(1))? {
        return Err(refused("a gather"));
    }
    for bounded in &of_indices {
        indices = g.masked(indices, bounded.axis, 0.0, 0)?;
    }
    let Some(grown) = g.bounded_axis(x, axis) else {
        let inputs = vec![Some(x), Some(indices)];
        return n.converted(g, inputs, convert);
    };
    let outside = g.shape(x)[axis];
    let indices = g.checked_places(indices, grown.count, outside)?;
    let rank = g.rank(indices);
    let moved = |a: Axis| Axis { axis: if a.axis > axis { a.axis + rank - 1 } else { a.axis }, ..a };
    let kept = g.axes(x).into_iter().filter(|a| a.axis != axis).map(moved);
    let chosen = of_indices.into_iter().map(|a| Axis { axis: a.axis + axis, zero: false, ..a });
    let mut axes: Vec<Axis> = kept.chain(chosen).collect();
    axes.sort_by_key(|a| a.axis);
    let y = g.emit_exact(Op::Gather { axis }, &[x, indices])?[0];
    g.set_axes(y, axes);
    Ok(vec![y])
}

/// Elements of one dimension from `start` on, of which `size` count, at capacity.
pub(super) fn window(g: &mut Importer, x: ValueId, axis: usize, start: i64, extent: i64) -> Result<ValueId> {
    let have = g.shape(x)[axis];
    let end = have.min(start + extent);
    let part = if (start, end) == (0, have) { x } else { cut(g, x, axis, start, end)? };
    let missing = extent - (end - start);
    if missing == 0 {
        return Ok(part);
    }
    let rank = g.rank(x);
    let (before, mut after) = (vec![0; rank], vec![0; rank]);
    after[axis] = missing;
    match g.ty(x).dtype {
        DType::Bool => {}
        dtype if dtype.is_float() || dtype.is_integer() => {}
        _ => return Err(refused("a part")),
    }
    Ok(g.emit_exact(Op::Pad { before, after, value: 0 }, &[part])?[0])
}
