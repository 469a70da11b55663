//! Operators that move data, and gathers.

use super::node::Source;
use crate::expr::interval::ceil_div;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Error, Result, Tensor};

impl Importer<'_> {
    pub(super) fn reshape_to(&mut self, x: ValueId, shape: Vec<i64>) -> Result<ValueId> {
        if self.shape(x) == shape { Ok(x) } else { self.emit(Op::Reshape { shape }, &[x]) }
    }

    /// `x` as a matrix: the dimensions before `axis`, and those from it on.
    pub(super) fn flattened(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let shape = self.shape(x);
        let matrix = vec![shape[..axis].iter().product(), shape[axis..].iter().product()];
        self.reshape_to(x, matrix)
    }

    /// `axes` from an attribute or an operand, counted from the front, sorted.
    pub(super) fn axes_of(
        &self,
        n: &Source,
        operand: usize,
        attribute_before: i64,
        rank: usize,
    ) -> Result<Option<Vec<usize>>> {
        let axes = if n.opset < attribute_before {
            n.ints("axes")
        } else {
            n.optional(operand).map(|a| self.integers(a, "axes")).transpose()?
        };
        let Some(axes) = axes else { return Ok(None) };
        let mut axes = self.distinct_axes(axes, rank)?;
        axes.sort_unstable();
        Ok(Some(axes))
    }

    /// The rank of an operand that has two dimensions or more, or an error.
    pub(super) fn rank_of_two(&self, id: ValueId) -> Result<usize> {
        match self.rank(id) {
            0 | 1 => Err(Error::Invalid("its operand has fewer than 2 dimensions".into())),
            rank => Ok(rank),
        }
    }
}

pub(super) fn reshape(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let wanted = if n.opset < 5 {
        n.ints("shape").ok_or_else(|| Error::Invalid("`shape` is missing".into()))?
    } else {
        g.integers(n.input(1)?, "shape")?
    };
    let current = g.shape(x).to_vec();
    let zero_means_zero = n.flag("allowzero", false);
    let mut shape = vec![];
    for (i, &d) in wanted.iter().enumerate() {
        shape.push(match d {
            0 if !zero_means_zero => *current
                .get(i)
                .ok_or_else(|| Error::Invalid(format!("dimension {i} of the new shape copies one that is missing")))?,
            d if d < -1 => return Err(Error::Invalid(format!("the new shape contains {d}"))),
            d => d,
        });
    }
    let mismatch = || Error::Invalid(format!("{current:?} cannot be reshaped to {wanted:?}"));
    let total: i64 = current.iter().product();
    let unknown: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] == -1).collect();
    if unknown.len() > 1 {
        return Err(mismatch());
    }
    let elements = shape.iter().filter(|d| **d != -1).try_fold(1i64, |a, &d| a.checked_mul(d)).ok_or_else(mismatch)?;
    if let [i] = unknown[..] {
        if elements == 0 || total % elements != 0 {
            return Err(mismatch());
        }
        shape[i] = total / elements;
    } else if elements != total {
        return Err(mismatch());
    }
    Ok(vec![g.reshape_to(x, shape)?])
}

pub(super) fn flatten(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank(x) as i64;
    let axis = n.int("axis", 1);
    if axis < -rank || axis > rank {
        return Err(Error::Invalid(format!("axis {axis} is outside of the {rank} dimensions")));
    }
    let axis = if axis < 0 { axis + rank } else { axis } as usize;
    Ok(vec![g.flattened(x, axis)?])
}

pub(super) fn squeeze(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let shape = g.shape(x).to_vec();
    let axes = g
        .axes_of(n, 1, 13, shape.len())?
        .unwrap_or_else(|| (0..shape.len()).filter(|&i| shape[i] == 1).collect::<Vec<_>>());
    if let Some(a) = axes.iter().find(|&&a| shape[a] != 1) {
        return Err(Error::Invalid(format!("dimension {a} of {shape:?} is not 1")));
    }
    let remaining = (0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i]).collect();
    Ok(vec![g.reshape_to(x, remaining)?])
}

pub(super) fn unsqueeze(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let listed = if n.opset < 13 {
        n.ints("axes").unwrap_or_default()
    } else {
        let axes = n.input(1)?;
        g.integers(axes, "axes")?
    };
    let rank = g.rank(x) + listed.len();
    let axes = g.distinct_axes(listed, rank)?;
    let mut old = g.shape(x).to_vec().into_iter();
    let shape = (0..rank).map(|i| if axes.contains(&i) { 1 } else { old.next().unwrap_or(1) }).collect();
    Ok(vec![g.reshape_to(x, shape)?])
}

pub(super) fn transpose(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank(x);
    let perm = match n.ints("perm") {
        Some(p) => g.distinct_axes(p, rank.max(1))?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(Error::Invalid(format!("{perm:?} is not a permutation of {rank} dimensions")));
    }
    if perm.iter().enumerate().all(|(i, &p)| i == p) {
        return Ok(vec![x]);
    }
    Ok(vec![g.emit(Op::Transpose { perm }, &[x])?])
}

/// NumPy's rule: the shape that both broadcast to.
pub(super) fn broadcast(a: &[i64], b: &[i64]) -> Result<Vec<i64>> {
    let rank = a.len().max(b.len());
    let aligned = |s: &[i64], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
    (0..rank)
        .map(|i| match (aligned(a, i), aligned(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::Invalid(format!("shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

pub(super) fn expand(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let wanted = g.integers(n.input(1)?, "shape")?;
    if let Some(d) = wanted.iter().find(|d| **d < 0) {
        return Err(Error::Invalid(format!("the new shape contains {d}")));
    }
    let shape = broadcast(g.shape(x), &wanted)?;
    if shape == g.shape(x) {
        return Ok(vec![x]);
    }
    Ok(vec![g.emit(Op::Expand { shape }, &[x])?])
}

/// A tile is an expansion of dimensions of extent 1 between reshapes.
pub(super) fn tile(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    if n.opset < 6 {
        return super::legacy::tile(g, n);
    }
    let x = n.input(0)?;
    let repeats = g.integers(n.input(1)?, "repeats")?;
    let shape = g.shape(x).to_vec();
    if repeats.len() != shape.len() || repeats.iter().any(|r| *r < 0) {
        return Err(Error::Invalid(format!("repeats {repeats:?} do not fit the shape {shape:?}")));
    }
    let split: Vec<i64> = shape.iter().flat_map(|&d| [1, d]).collect();
    let expanded: Vec<i64> = shape.iter().zip(&repeats).flat_map(|(&d, &r)| [r, d]).collect();
    let merged = shape
        .iter()
        .zip(&repeats)
        .map(|(d, r)| d.checked_mul(*r).ok_or_else(|| Error::Limit("the result is too large".into())))
        .collect::<Result<Vec<i64>>>()?;
    let x = g.reshape_to(x, split)?;
    let x = if g.shape(x) == expanded { x } else { g.emit(Op::Expand { shape: expanded }, &[x])? };
    Ok(vec![g.reshape_to(x, merged)?])
}

/// Values that one concatenation joins.
const MAX_PARTS: usize = 128;

pub(super) fn concat(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let inputs = n.present();
    let first = n.input(0)?;
    let axis = g.axis(n.int("axis", 1), g.rank(first))?;
    let beside = |v: ValueId| -> (&[i64], &[i64]) { (&g.shape(v)[..axis], &g.shape(v)[axis + 1..]) };
    if let Some(&other) = inputs.iter().find(|&&v| g.rank(v) != g.rank(first) || beside(v) != beside(first)) {
        let (a, b) = (g.shape(first), g.shape(other));
        return Err(Error::Invalid(format!("shapes {a:?} and {b:?} differ outside of dimension {axis}")));
    }
    let filled: Vec<ValueId> = inputs.iter().copied().filter(|&v| g.shape(v)[axis] != 0).collect();
    match filled[..] {
        [] => Ok(vec![first]),
        [one] => Ok(vec![one]),
        _ => Ok(vec![concat_all(g, axis, filled)?]),
    }
}

/// Concatenations of at most [`MAX_PARTS`] values: a kernel has a statement for each part.
fn concat_all(g: &mut Importer, axis: usize, mut parts: Vec<ValueId>) -> Result<ValueId> {
    while parts.len() > MAX_PARTS {
        let join = |part: &[ValueId]| match *part {
            [one] => Ok(one),
            _ => g.emit(Op::Concat { axis }, part),
        };
        parts = parts.chunks(MAX_PARTS).map(join).collect::<Result<_>>()?;
    }
    g.emit(Op::Concat { axis }, &parts)
}

pub(super) fn split(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    let extent = g.shape(x)[axis];
    let lengths = if n.opset < 13 { n.ints("split") } else { None };
    let lengths = match (lengths, n.optional(1)) {
        (None, Some(s)) => Some(g.integers(s, "split")?),
        (lengths, _) => lengths,
    };
    let outputs = n.proto.output.len() as i64;
    let count = n.int("num_outputs", outputs);
    if count != outputs || outputs == 0 {
        return Err(Error::Invalid(format!("num_outputs is {count}, but the node has {outputs} outputs")));
    }
    let sizes = lengths.unwrap_or_else(|| {
        let chunk = ceil_div(extent, count);
        (0..count).map(|i| chunk.min(extent - (i * chunk).min(extent))).collect()
    });
    let total = sizes.iter().try_fold(0i64, |sum, s| sum.checked_add(*s));
    if sizes.iter().any(|s| *s < 0) || total != Some(extent) {
        return Err(Error::Invalid(format!("parts {sizes:?} do not add up to {extent}")));
    }
    if sizes.len() as i64 != count {
        return Err(Error::Invalid(format!("{} parts are asked for in {count} outputs", sizes.len())));
    }
    let mut start = 0;
    let mut outputs = vec![];
    for size in sizes {
        outputs.push(g.slice(x, axis, start, start + size)?);
        start += size;
    }
    Ok(outputs)
}

/// Axis, start, end and step of each part of a slice: all axes in their order and steps of 1 where the node names none.
pub(super) fn parts_of_slice<T>(
    g: &Importer,
    rank: usize,
    [from, to]: [Vec<T>; 2],
    axes: Option<Vec<i64>>,
    by: Option<Vec<i64>>,
) -> Result<Vec<(usize, T, T, i64)>> {
    let axes = axes.unwrap_or_else(|| (0..from.len() as i64).collect());
    let by = by.unwrap_or_else(|| vec![1; from.len()]);
    if to.len() != from.len() || axes.len() != from.len() || by.len() != from.len() {
        return Err(Error::Invalid("starts, ends, axes and steps differ in length".into()));
    }
    let axes = g.distinct_axes(axes, rank)?;
    let parts = axes.into_iter().zip(from).zip(to).zip(by);
    Ok(parts.map(|(((axis, from), to), by)| (axis, from, to, by)).collect())
}

pub(super) fn slice(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let shape = g.shape(x).to_vec();
    let rank = shape.len();
    let (from, to, axes, by) = if n.opset < 10 {
        let need = |name: &str| n.ints(name).ok_or_else(|| Error::Invalid(format!("`{name}` is missing")));
        (need("starts")?, need("ends")?, n.ints("axes"), None)
    } else {
        let read = |i: usize, what: &str| n.optional(i).map(|v| g.integers(v, what)).transpose();
        let missing = || Error::Invalid("its starts or ends are missing".into());
        let (from, to) = (read(1, "starts")?.ok_or_else(missing)?, read(2, "ends")?.ok_or_else(missing)?);
        (from, to, read(3, "axes")?, read(4, "steps")?)
    };
    let (mut starts, mut ends, mut steps) = (vec![0; rank], shape.clone(), vec![1; rank]);
    for (axis, from, to, by) in parts_of_slice(g, rank, [from, to], axes, by)? {
        let d = shape[axis];
        let wrap = |v: i64| if v < 0 { v.saturating_add(d) } else { v };
        match by {
            0 => return Err(Error::Invalid("a step is 0".into())),
            1.. => {
                starts[axis] = wrap(from).clamp(0, d);
                ends[axis] = wrap(to).clamp(starts[axis], d);
            }
            _ => {
                starts[axis] = wrap(from).clamp(0.min(d - 1), d - 1);
                ends[axis] = wrap(to).clamp(-1, starts[axis]);
            }
        }
        steps[axis] = by.clamp(-d.max(1), d.max(1));
    }
    if (0..rank).all(|i| starts[i] == 0 && ends[i] == shape[i] && steps[i] == 1) {
        return Ok(vec![x]);
    }
    Ok(vec![g.emit(Op::Slice { starts, ends, steps }, &[x])?])
}

pub(super) fn gather(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, indices) = (n.input(0)?, n.input(1)?);
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    let extent = g.shape(x)[axis];
    if g.graph.constant(indices).is_some() {
        g.check_indices(indices, &[(axis, extent)])?;
        let values = g.integers(indices, "indices")?;
        // neighbours in order are a slice
        let wrapped: Vec<i64> = values.iter().map(|v| if *v < 0 { v + extent } else { *v }).collect();
        if g.graph.constant(x).is_none() && !wrapped.is_empty() && wrapped.windows(2).all(|w| w[1] == w[0] + 1) {
            let part = g.slice(x, axis, wrapped[0], wrapped[0] + wrapped.len() as i64)?;
            let mut shape = g.shape(x).to_vec();
            shape.splice(axis..=axis, g.shape(indices).to_vec());
            return Ok(vec![g.reshape_to(part, shape)?]);
        }
    }
    Ok(vec![g.emit(Op::Gather { axis }, &[x, indices])?])
}

pub(super) fn gather_elements(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, indices) = (n.input(0)?, n.input(1)?);
    let axis = g.axis(n.int("axis", 0), g.rank(x))?;
    g.check_indices(indices, &[(axis, g.shape(x)[axis])])?;
    Ok(vec![g.emit(Op::GatherElements { axis }, &[x, indices])?])
}

pub(super) fn gather_nd(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, indices) = (n.input(0)?, n.input(1)?);
    let batch_dims = n.int("batch_dims", 0);
    if batch_dims < 0 || batch_dims as usize >= g.rank(indices).max(1) {
        return Err(Error::Invalid(format!("batch_dims {batch_dims} does not fit its operands")));
    }
    g.check_tuples(x, indices, batch_dims as usize)?;
    Ok(vec![g.emit(Op::GatherNd { batch_dims: batch_dims as usize }, &[x, indices])?])
}

impl Importer<'_> {
    /// Checks constant indices, which follow each other in these dimensions with their extents. Others are checked in each run.
    ///
    /// # Errors
    /// `Invalid` where an index lies outside of its dimension.
    pub(super) fn check_indices(&self, indices: ValueId, dims: &[(usize, i64)]) -> Result<()> {
        if self.graph.constant(indices).is_none() {
            return Ok(());
        }
        let values = self.integers(indices, "indices")?;
        let outside = |(v, (_, extent)): &(&i64, &(usize, i64))| !(-extent..*extent).contains(v);
        match values.iter().zip(dims.iter().cycle()).find(outside) {
            Some((v, (dim, extent))) => {
                Err(Error::Invalid(format!("index {v} is outside of dimension {dim} of extent {extent}")))
            }
            None => Ok(()),
        }
    }

    /// As [`Importer::check_indices`], where the last dimension of the indices has a tuple for the dimensions of `x` from
    /// `first` on.
    pub(super) fn check_tuples(&self, x: ValueId, indices: ValueId, first: usize) -> Result<()> {
        let width = self.shape(indices).last().map_or(0, |&n| n as usize);
        let dims: Vec<(usize, i64)> = self.shape(x).iter().copied().enumerate().skip(first).take(width).collect();
        if dims.len() == width { self.check_indices(indices, &dims) } else { Ok(()) }
    }

    /// `position(0)`, `position(1)`, … for [`Importer::take`], within the limit on constants.
    pub(super) fn positions(&mut self, count: i64, position: impl FnMut(i64) -> Result<i64>) -> Result<Vec<i64>> {
        self.claim(&[count], DType::I64)?;
        (0..count).map(position).collect()
    }

    /// Element `positions[i]` of `axis` at place `i`.
    pub(super) fn take(&mut self, x: ValueId, axis: usize, positions: &[i64]) -> Result<ValueId> {
        let indices = self.constant(Tensor::new(&[positions.len() as i64], positions));
        self.emit(Op::Gather { axis }, &[x, indices])
    }
}

pub(super) fn pad(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank(x);
    let (pads, axes, value) = if n.opset < 11 {
        (n.ints(if n.opset < 2 { "paddings" } else { "pads" }).unwrap_or_default(), None, None)
    } else {
        let axes = n.optional(3).map(|a| g.integers(a, "axes")).transpose()?;
        (g.integers(n.input(1)?, "pads")?, axes, n.optional(2))
    };
    let axes = axes.unwrap_or_else(|| (0..rank as i64).collect());
    if pads.len() != 2 * axes.len() {
        return Err(Error::Invalid(format!("{} pads are given for {} dimensions", pads.len(), axes.len())));
    }
    let axes = g.distinct_axes(axes, rank)?;
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (i, &axis) in axes.iter().enumerate() {
        (before[axis], after[axis]) = (pads[i], pads[i + axes.len()]);
    }
    if before.iter().chain(&after).any(|p| p.unsigned_abs() > 1 << 30) {
        return Err(Error::Limit("a pad is larger than 2³⁰".into()));
    }
    let x = crop(g, x, &mut before, &mut after)?;
    match n.string("mode", "constant").as_str() {
        "constant" => {}
        mode @ ("reflect" | "edge" | "wrap") => return pad_by_position(g, x, mode, &before, &after),
        other => return Err(Error::Unsupported(format!("mode `{other}`"))),
    }
    let bits = match value {
        None => {
            let fill = g.scalar_like(x, n.float("value", 0.0) as f64);
            fill.map_or(0, |v| first_bits(g.graph.constant(v)))
        }
        Some(v) if g.graph.constant(v).is_some() => first_bits(g.graph.constant(v)),
        Some(v) => return pad_with(g, x, v, before, after),
    };
    if before.iter().chain(&after).all(|p| *p == 0) {
        return Ok(vec![x]);
    }
    Ok(vec![g.emit(Op::Pad { before, after, value: bits }, &[x])?])
}

/// Pads with a value that is computed at run time: a constant mask says where it stands.
fn pad_with(g: &mut Importer, x: ValueId, value: ValueId, before: Vec<i64>, after: Vec<i64>) -> Result<Vec<ValueId>> {
    let shape = g.shape(x).to_vec();
    let inside = Tensor { dtype: DType::Bool, data: vec![1u8; shape.iter().product::<i64>() as usize].into(), shape };
    let inside = g.constant(inside);
    let mask = g.emit(Op::Pad { before: before.clone(), after: after.clone(), value: 0 }, &[inside])?;
    let padded = g.emit(Op::Pad { before, after, value: 0 }, &[x])?;
    let value = g.reshape_to(value, vec![])?;
    Ok(vec![g.select(mask, padded, value)?])
}

/// Crops by the negative pads and sets them to 0.
fn crop(g: &mut Importer, x: ValueId, before: &mut [i64], after: &mut [i64]) -> Result<ValueId> {
    if before.iter().chain(&*after).all(|p| *p >= 0) {
        return Ok(x);
    }
    let starts: Vec<i64> = before.iter().map(|p| (-p).max(0)).collect();
    let ends: Vec<i64> = g.shape(x).iter().zip(&*after).map(|(d, p)| d + p.min(&0)).collect();
    if starts.iter().zip(&ends).any(|(s, e)| s > e) {
        return Err(Error::Invalid("negative pads remove more than there is".into()));
    }
    before.iter_mut().chain(after).for_each(|p| *p = (*p).max(0));
    let steps = vec![1; starts.len()];
    g.emit(Op::Slice { starts, ends, steps }, &[x])
}

fn first_bits(tensor: Option<&std::sync::Arc<Tensor>>) -> u64 {
    let mut bytes = [0; 8];
    if let Some(t) = tensor.filter(|t| !t.is_empty()) {
        let size = t.dtype.bytes();
        bytes[..size].copy_from_slice(&t.data[..size]);
    }
    u64::from_le_bytes(bytes)
}

fn pad_by_position(
    g: &mut Importer,
    mut x: ValueId,
    mode: &str,
    before: &[i64],
    after: &[i64],
) -> Result<Vec<ValueId>> {
    for axis in 0..before.len() {
        let d = g.shape(x)[axis];
        if before[axis] == 0 && after[axis] == 0 {
            continue;
        }
        if d == 0 || mode == "reflect" && before[axis].max(after[axis]) >= d.max(2) {
            return Err(Error::Invalid(format!("dimension {axis} of extent {d} is too small for its padding")));
        }
        let position = |i: i64| match mode {
            "edge" => i.clamp(0, d - 1),
            "wrap" => i.rem_euclid(d),
            _ if d == 1 => 0,
            _ => {
                let period = 2 * (d - 1);
                let r = i.rem_euclid(period);
                if r < d { r } else { period - r }
            }
        };
        let positions = g.positions(before[axis] + d + after[axis], |i| Ok(position(i - before[axis])))?;
        x = g.take(x, axis, &positions)?;
    }
    Ok(vec![x])
}

/// Splits channels into `block × block` neighbours (`DCR`: the block varies slowest).
pub(super) fn depth_to_space(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let b = n.int("blocksize", 0);
    let [batch, c, h, w] = four(g, x)?;
    let area = area(b)?;
    if c % area != 0 {
        return Err(Error::Invalid(format!("blocksize {b} does not divide {c} channels")));
    }
    let d = c / area;
    let (split, perm) = match n.string("mode", "DCR").as_str() {
        "DCR" => (vec![batch, b, b, d, h, w], vec![0, 3, 4, 1, 5, 2]),
        "CRD" => (vec![batch, d, b, b, h, w], vec![0, 1, 4, 2, 5, 3]),
        other => return Err(Error::Invalid(format!("mode `{other}` is not known"))),
    };
    let x = g.reshape_to(x, split)?;
    let x = g.emit(Op::Transpose { perm }, &[x])?;
    Ok(vec![g.reshape_to(x, vec![batch, d, h * b, w * b])?])
}

pub(super) fn space_to_depth(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let b = n.int("blocksize", 0);
    let [batch, c, h, w] = four(g, x)?;
    let area = area(b)?;
    if h % b != 0 || w % b != 0 {
        return Err(Error::Invalid(format!("blocksize {b} does not divide {h}×{w}")));
    }
    let perm = match n.string("mode", "DCR").as_str() {
        "DCR" => vec![0, 3, 5, 1, 2, 4],
        "CRD" => vec![0, 1, 3, 5, 2, 4],
        other => return Err(Error::Invalid(format!("mode `{other}` is not known"))),
    };
    let x = g.reshape_to(x, vec![batch, c, h / b, b, w / b, b])?;
    let x = g.emit(Op::Transpose { perm }, &[x])?;
    Ok(vec![g.reshape_to(x, vec![batch, c * area, h / b, w / b])?])
}

/// Positions in a block of this size.
fn area(blocksize: i64) -> Result<i64> {
    match blocksize {
        1..=65536 => Ok(blocksize * blocksize),
        _ => Err(Error::Invalid(format!("blocksize {blocksize} is not within 1 to 65536"))),
    }
}

fn four(g: &Importer, x: ValueId) -> Result<[i64; 4]> {
    g.shape(x).try_into().map_err(|_| Error::Invalid("its operand does not have 4 dimensions".into()))
}
