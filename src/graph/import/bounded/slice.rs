//! Slices whose bounds follow from the count, and slices of dimensions that grow.

use super::movement::{cut, window};
use super::operators::refused;
use super::state::{Axis, FAR, fixed, is_fixed, sum};
use crate::graph::import::importer::Importer;
use crate::graph::import::movement::parts_of_slice;
use crate::graph::import::node::Source;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::bounds::Form;
use crate::runtime::{Error, Result};

/// Part of one dimension.
struct Part {
    axis: usize,
    start: Form,
    end: Form,
    step: i64,
}

pub(super) fn slice(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    for part in parts(g, n, x)? {
        x = apply(g, x, part)?;
    }
    Ok(vec![x])
}

fn parts(g: &mut Importer, n: &Source, x: ValueId) -> Result<Vec<Part>> {
    let rank = g.rank(x);
    let (from, to, axes, by) = if n.opset < 10 {
        let fixed_ints = |name: &str| n.ints(name).map(|v| v.into_iter().map(fixed).collect::<Vec<Form>>());
        let need = |name: &str| fixed_ints(name).ok_or_else(|| Error::Invalid(format!("`{name}` is missing")));
        (need("starts")?, need("ends")?, n.ints("axes"), None)
    } else {
        let read = |i: usize, what: &str| n.optional(i).map(|v| g.integers(v, what)).transpose();
        let (axes, by) = (read(3, "axes")?, read(4, "steps")?);
        (g.known_forms(n.input(1)?, "starts")?, g.known_forms(n.input(2)?, "ends")?, axes, by)
    };
    let parts = parts_of_slice(g, rank, [from, to], axes, by)?.into_iter();
    Ok(parts.map(|(axis, start, end, step)| Part { axis, start, end, step }).collect())
}

/// A bound counted from the front, within `0..=extent`.
fn clamped(g: &Importer, bound: Form, extent: Form) -> Result<Form> {
    if is_fixed(bound) && bound.offset.abs() > FAR {
        return Ok(if bound.offset < 0 { fixed(0) } else { extent });
    }
    let bound = if g.at_least(bound, fixed(0))? { bound } else { sum(bound, extent, 1)? };
    let bound = if g.at_least(bound, fixed(0))? { bound } else { fixed(0) };
    Ok(if g.at_least(bound, extent)? { extent } else { bound })
}

fn apply(g: &mut Importer, x: ValueId, part: Part) -> Result<ValueId> {
    let Part { axis, step, .. } = part;
    let extent = g.extents(x)[axis];
    if step != 1 {
        return strided(g, x, &part, extent);
    }
    let start = clamped(g, part.start, extent)?;
    let end = clamped(g, part.end, extent)?;
    let end = if g.at_least(end, start)? { end } else { start };
    if start == fixed(0) && end == extent {
        return Ok(x);
    }
    let size = sum(end, start, -1)?;
    let bounded = g.bounded_axis(x, axis);
    let mut axes: Vec<Axis> = g.axes(x).into_iter().filter(|a| a.axis != axis).collect();
    let y = match (is_fixed(start), is_fixed(size)) {
        (true, true) => cut(g, x, axis, start.offset, start.offset + size.offset)?,
        (false, true) => {
            let places = g.places_from(start, size.offset)?;
            g.emit_exact(Op::Gather { axis }, &[x, places])?[0]
        }
        (true, false) => {
            let capacity = g.at_capacity(size)?;
            // a part up to the end has behind it what the whole has
            let zero = bounded.is_some_and(|a| a.zero && a.count == end);
            axes.push(Axis { axis, count: size, zero });
            window(g, x, axis, start.offset, capacity)?
        }
        (false, false) => return Err(refused("a part that moves")),
    };
    g.with_axes(y, axes)
}

/// Every few elements, of a dimension that does not grow.
fn strided(g: &mut Importer, x: ValueId, part: &Part, extent: Form) -> Result<ValueId> {
    let Part { axis, start, end, step } = *part;
    if !is_fixed(extent) || !is_fixed(start) || !is_fixed(end) || step == 0 {
        return Err(refused("every few elements"));
    }
    let d = extent.offset;
    let wrap = |v: i64| if v < 0 { v.saturating_add(d) } else { v };
    let (first, last) = match step {
        1.. => {
            let first = wrap(start.offset).clamp(0, d);
            (first, wrap(end.offset).clamp(first, d))
        }
        _ => {
            let first = wrap(start.offset).clamp(0.min(d - 1), d - 1);
            (first, wrap(end.offset).clamp(-1, first))
        }
    };
    // `strided_slice` takes the bounds as they are
    g.strided_slice(x, axis, first, last, step.clamp(-d.max(1), d.max(1)))
}
