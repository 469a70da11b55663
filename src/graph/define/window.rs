//! Convolution, its transpose and pooling: a window slides over an image in any layout.
//!
//! Where the window leaves the image a condition fails and nothing is combined. Weights stand in ONNX's order in every
//! layout. A group is an iterator of its own; with one channel in each group (depthwise) no channel is reduced.

use crate::expr::Affine;
use crate::expr::interval::{ceil_div, gcd};
use crate::expr::{Access, BinaryOp, Expr, Index, Scalar};
use crate::graph::define::space::{Build, Space, constant};
use crate::graph::infer::Image;
use crate::graph::op::{Layout, PoolKind, Window};
use crate::runtime::DType;

const SPATIAL: [[&str; 3]; 3] = [["w", "", ""], ["h", "w", ""], ["d", "h", "w"]];
const KERNEL: [[&str; 3]; 3] = [["s", "", ""], ["r", "s", ""], ["q", "r", "s"]];

/// A channel: its number, and its place in the layout (block and place inside the block, when blocked).
#[derive(Clone, Default)]
struct Channel {
    number: Affine,
    outer: Affine,
    inner: Option<Affine>,
}

/// Subscripts of an image in `layout`.
fn subscripts(layout: Layout, n: &Affine, channel: &Channel, spatial: &[Affine]) -> Vec<Affine> {
    match layout {
        Layout::Nhwc => [std::slice::from_ref(n), spatial, std::slice::from_ref(&channel.outer)].concat(),
        _ => [&[n.clone(), channel.outer.clone()], spatial, channel.inner.as_slice()].concat(),
    }
}

/// Iterators over the `extent` channels of a group: `begin` creates the one over channels or blocks, `finish` the one
/// inside a block, since others stand between.
struct Channels {
    group: Option<Affine>,
    extent: i64,
    block: i64,
    blocked: bool,
    outer: Option<Affine>,
    inner: Option<Affine>,
}

impl Channels {
    fn new(layout: Layout, extent: i64, group: Option<Affine>) -> Channels {
        let block = if let Layout::Blocked(b) = layout { b as i64 } else { 1 };
        Channels { group, extent, block, blocked: matches!(layout, Layout::Blocked(_)), outer: None, inner: None }
    }

    fn begin(&mut self, space: &mut Space, name: &str) {
        // One channel in each group needs no iterator: the group is the channel.
        if self.group.is_none() || self.extent > 1 {
            let extent = ceil_div(self.extent, self.block);
            self.outer = Some(space.iterator(if self.blocked { format!("{name}o") } else { name.into() }, extent));
        }
    }

    fn finish(&mut self, space: &mut Space, name: &str) {
        if self.blocked {
            self.inner = Some(space.iterator(format!("{name}i"), self.block));
        }
    }

    /// The channel inside its group, and in the image.
    fn channel(&self) -> (Affine, Channel) {
        let outer = self.outer.clone().unwrap_or_default();
        let inside = outer.scale(self.block).add_scaled(&self.inner.clone().unwrap_or_default(), 1);
        let group = self.group.clone().unwrap_or_default();
        let channel = Channel {
            number: group.scale(self.extent).add_scaled(&inside, 1),
            outer: group.scale(self.extent / self.block).add_scaled(&outer, 1),
            inner: self.inner.clone(),
        };
        (inside, channel)
    }
}

/// The iterators of a convolution or its transpose.
struct Iterators {
    space: Space,
    n: Affine,
    /// Output positions, or the steps of one phase of them.
    position: Vec<Affine>,
    /// Phase along each axis, where that is an iterator.
    phase: Vec<Affine>,
    /// Output channel.
    filter: Channel,
    /// Output channel inside its group.
    filter_in_group: Affine,
    /// Input channel.
    channel: Channel,
    /// Input channel inside its group.
    channel_in_group: Affine,
    taps: Vec<Affine>,
}

struct Extents<'a> {
    batch: i64,
    group: i64,
    channels: i64,
    filters: i64,
    position: &'a [i64],
    /// Phases along each axis, when they are iterators.
    phases: &'a [i64],
    taps: &'a [i64],
}

fn iterators(layout: Layout, e: &Extents) -> Iterators {
    let dims = e.position.len();
    let mut space = Space::new();
    let n = space.iterator("n", e.batch);
    // A depthwise convolution over blocks is one over all channels in which each filter reads its own channel.
    let depthwise_blocks =
        matches!(layout, Layout::Blocked(_)) && e.group > 1 && e.filters == e.group && e.channels == e.group;
    let group = if depthwise_blocks { 1 } else { e.group };
    let (per_group_f, per_group_c) = (e.filters / group, e.channels / group);
    let positions = |space: &mut Space| -> (Vec<Affine>, Vec<Affine>) {
        let (mut position, mut phase) = (vec![], vec![]);
        for (d, name) in SPATIAL[dims - 1][..dims].iter().enumerate() {
            position.push(space.iterator(*name, e.position[d]));
            phase.extend(e.phases.get(d).map(|&phases| space.iterator(format!("{name}p"), phases)));
        }
        (position, phase)
    };
    let (mut position, mut phase) = (vec![], vec![]);
    if layout == Layout::Nhwc {
        (position, phase) = positions(&mut space);
    }
    let g = (group > 1).then(|| space.iterator(if per_group_f == 1 { "f" } else { "g" }, group));
    let mut f = Channels::new(layout, per_group_f, g.clone());
    f.begin(&mut space, "f");
    if layout != Layout::Nhwc {
        (position, phase) = positions(&mut space);
    }
    f.finish(&mut space, "f");
    space.reduced();
    let taps = |space: &mut Space| -> Vec<Affine> {
        (0..dims).map(|d| space.iterator(KERNEL[dims - 1][d], e.taps[d])).collect()
    };
    let (filter_in_group, filter) = f.channel();
    if depthwise_blocks {
        let taps = taps(&mut space);
        let channel = filter.clone();
        let channel_in_group = Affine::constant(0);
        let filter_in_group = Affine::constant(0);
        return Iterators { space, n, position, phase, filter, filter_in_group, channel, channel_in_group, taps };
    }
    let mut c = Channels::new(layout, per_group_c, g);
    let mut of_taps = vec![];
    if layout == Layout::Nhwc {
        of_taps = taps(&mut space);
    }
    c.begin(&mut space, "c");
    if layout != Layout::Nhwc {
        of_taps = taps(&mut space);
    }
    c.finish(&mut space, "c");
    let (channel_in_group, channel) = c.channel();
    Iterators { space, n, position, phase, filter, filter_in_group, channel, channel_in_group, taps: of_taps }
}

/// A read that gives zero where a subscript lies beyond its dimension (channels that only fill a block).
fn load_or_zero(b: &Build, i: usize, space: &Space, index: Vec<Affine>) -> Expr {
    let guard: Vec<Affine> =
        index.iter().zip(&b.inputs[i].shape).flat_map(|(a, &extent)| space.inside(a, extent)).collect();
    let otherwise = (!guard.is_empty()).then(|| Scalar::of(b.inputs[i].dtype, 0.0));
    let index = index.into_iter().map(Index::Affine).collect();
    Expr::Load(Access { buffer: b.input(i), index, guard, otherwise })
}

/// `y = sums + bias` along the channels.
fn add_bias(b: &mut Build, sums: crate::expr::BufferId, layout: Layout) {
    let space = Space::over(&b.output.shape);
    let last = space.outer() - 1;
    let channel = match layout {
        Layout::Nchw => space.var(1),
        Layout::Nhwc => space.var(last),
        Layout::Blocked(block) => space.var(1).scale(block as i64).add_scaled(&space.var(last), 1),
    };
    let bias = load_or_zero(b, 2, &space, vec![channel]);
    let sum = Expr::load(sums, space.subscripts());
    b.assign(b.target(), space, sum + bias);
}

/// Returns the target of the sums: the output, or a temporary to which the bias is added.
fn sums(b: &mut Build) -> crate::expr::BufferId {
    if b.inputs.len() == 3 { b.temporary("s", &b.output.shape.clone()) } else { b.target() }
}

pub(super) fn conv(b: &mut Build, window: &Window, group: i64, layout: Layout) {
    let (image, output) = images(b, layout);
    let weights = b.inputs[1].shape.clone();
    let axes = iterators(
        layout,
        &Extents {
            batch: image.batch,
            group,
            channels: weights[1] * group,
            filters: weights[0],
            position: &output.spatial,
            phases: &[],
            taps: &window.kernel,
        },
    );
    let pixel: Vec<Affine> =
        (0..image.spatial.len()).map(|d| reach(window, d, &axes.position[d], &axes.taps[d])).collect();
    let conditions = pixel.iter().zip(&image.spatial).flat_map(|(a, &extent)| axes.space.inside(a, extent)).collect();
    let x = Expr::load(b.input(0), subscripts(layout, &axes.n, &axes.channel, &pixel));
    let w = [&[axes.filter.number.clone(), axes.channel_in_group.clone()], &axes.taps[..]].concat();
    let body = b.widened(0, x) * b.widened(1, load_or_zero(b, 1, &axes.space, w));
    let write = subscripts(layout, &axes.n, &axes.filter, &axes.position);
    let target = sums(b);
    b.define(target, axes.space, write, Some(BinaryOp::Add), conditions, body);
    if b.inputs.len() == 3 {
        add_bias(b, target, layout);
    }
}

/// Extents of input and output; `infer` has checked them.
fn images(b: &Build, layout: Layout) -> (Image, Image) {
    let of = |shape: &[i64]| Image::of(layout, shape).expect("inferred types are images");
    (of(&b.inputs[0].shape), of(&b.output.shape))
}

/// The input position that tap `k` reads for output position `o`.
fn reach(window: &Window, d: usize, o: &Affine, k: &Affine) -> Affine {
    o.scale(window.stride[d]).add_scaled(k, window.dilation[d]).offset(-window.pad_before[d])
}

/// A transposed convolution by phases: the outputs with one remainder by the stride read the same taps.
pub(super) fn conv_transpose(b: &mut Build, window: &Window, group: i64, layout: Layout) {
    if window.iterates_phases() {
        by_iterated_phase(b, window, group, layout);
    } else {
        by_phase(b, window, group, layout);
    }
}

/// One definition whose phase is an iterator: output `stride·t + phase - pad` sums, over u, tap `phase + stride·u` times
/// input `t - u`. Outputs that padding takes away are computed too, and left behind.
fn by_iterated_phase(b: &mut Build, window: &Window, group: i64, layout: Layout) {
    let (image, output) = images(b, layout);
    let weights = b.inputs[1].shape.clone();
    let dims = image.spatial.len();
    let steps = |size: i64, d: usize| (size + window.stride[d] - 1) / window.stride[d];
    let position: Vec<i64> = (0..dims).map(|d| steps(output.spatial[d] + window.pad_before[d], d)).collect();
    let taps: Vec<i64> = (0..dims).map(|d| steps(window.kernel[d], d)).collect();
    let extents = Extents {
        batch: image.batch,
        group,
        channels: weights[0],
        filters: weights[1] * group,
        position: &position,
        phases: &window.stride,
        taps: &taps,
    };
    let axes = iterators(layout, &extents);
    let first = if layout == Layout::Nhwc { 1 } else { 2 };
    let mut shape = b.output.shape.clone();
    (0..dims).for_each(|d| shape[first + d] = position[d] * window.stride[d]);
    let uncut = b.temporary("uncut", &shape);
    let to: Vec<Affine> =
        (0..dims).map(|d| axes.position[d].scale(window.stride[d]).add_scaled(&axes.phase[d], 1)).collect();
    let write = subscripts(layout, &axes.n, &axes.filter, &to);
    let pixel: Vec<Affine> = (0..dims).map(|d| axes.position[d].add_scaled(&axes.taps[d], -1)).collect();
    let kernel: Vec<Affine> =
        (0..dims).map(|d| axes.taps[d].scale(window.stride[d]).add_scaled(&axes.phase[d], 1)).collect();
    let inside = |pixel: &[Affine], extents: &[i64]| -> Vec<Affine> {
        pixel.iter().zip(extents).flat_map(|(a, &extent)| axes.space.inside(a, extent)).collect()
    };
    let conditions = [inside(&pixel, &image.spatial), inside(&kernel, &window.kernel)].concat();
    let x = Expr::load(b.input(0), subscripts(layout, &axes.n, &axes.channel, &pixel));
    let w = [&[axes.channel.number.clone(), axes.filter_in_group.clone()], &kernel[..]].concat();
    let body = x * b.widened(1, load_or_zero(b, 1, &axes.space, w));
    b.define(uncut, axes.space, write, Some(BinaryOp::Add), conditions, body);
    let target = sums(b);
    let space = Space::over(&b.output.shape);
    let mut from = space.subscripts();
    (0..dims).for_each(|d| from[first + d] = from[first + d].clone().offset(window.pad_before[d]));
    b.assign(target, space, Expr::load(uncut, from));
    if b.inputs.len() == 3 {
        add_bias(b, target, layout);
    }
}

/// One definition for each phase.
fn by_phase(b: &mut Build, window: &Window, group: i64, layout: Layout) {
    let (image, output) = images(b, layout);
    let weights = b.inputs[1].shape.clone();
    let dims = image.spatial.len();
    let target = sums(b);
    for phase in 0..window.stride.iter().product() {
        let mut quotient = phase;
        let per_axis: Vec<Phase> = (0..dims)
            .rev()
            .map(|d| {
                let remainder = quotient % window.stride[d];
                quotient /= window.stride[d];
                Phase::of(window, d, remainder, output.spatial[d])
            })
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        if per_axis.iter().any(|p| p.outputs == 0) {
            continue;
        }
        let position: Vec<i64> = per_axis.iter().map(|p| p.outputs).collect();
        let taps: Vec<i64> = per_axis.iter().map(|p| p.taps.max(1)).collect();
        let (channels, filters) = (weights[0], weights[1] * group);
        let batch = image.batch;
        let extents = Extents { batch, group, channels, filters, position: &position, phases: &[], taps: &taps };
        let mut axes = iterators(layout, &extents);
        let to: Vec<Affine> =
            (0..dims).map(|d| axes.position[d].scale(window.stride[d]).offset(per_axis[d].remainder)).collect();
        let write = subscripts(layout, &axes.n, &axes.filter, &to);
        if per_axis.iter().any(|p| p.taps == 0) {
            axes.space.iterators.truncate(axes.space.outer());
            let zero = constant(b.output.dtype, 0.0);
            b.define(target, axes.space, write, None, vec![], zero);
            continue;
        }
        let pixel: Vec<Affine> = (0..dims)
            .map(|d| axes.position[d].clone().offset(per_axis[d].first).add_scaled(&axes.taps[d], -per_axis[d].step))
            .collect();
        let conditions =
            pixel.iter().zip(&image.spatial).flat_map(|(a, &extent)| axes.space.inside(a, extent)).collect();
        let x = Expr::load(b.input(0), subscripts(layout, &axes.n, &axes.channel, &pixel));
        let kernel = (0..dims).map(|d| axes.taps[d].scale(per_axis[d].tap_step).offset(per_axis[d].first_tap));
        let w: Vec<Affine> =
            [axes.channel.number.clone(), axes.filter_in_group.clone()].into_iter().chain(kernel).collect();
        let body = x * b.widened(1, load_or_zero(b, 1, &axes.space, w));
        b.define(target, axes.space, write, Some(BinaryOp::Add), conditions, body);
    }
    if b.inputs.len() == 3 {
        add_bias(b, target, layout);
    }
}

/// One axis of a phase of a transposed convolution: output `stride·t + remainder` sums, over u, tap
/// `first_tap + tap_step·u` times input `t + first - step·u`.
struct Phase {
    remainder: i64,
    /// Values of t.
    outputs: i64,
    /// Values of u.
    taps: i64,
    first_tap: i64,
    tap_step: i64,
    first: i64,
    step: i64,
}

impl Phase {
    fn of(window: &Window, d: usize, remainder: i64, extent: i64) -> Phase {
        let (stride, dilation) = (window.stride[d], window.dilation[d]);
        // Input i and tap k meet at output i·stride + k·dilation - pad: k must solve a congruence.
        let tap_step = stride / gcd(stride, dilation);
        let shifted = remainder + window.pad_before[d];
        let first_tap = (0..tap_step).find(|k| (shifted - k * dilation).rem_euclid(stride) == 0);
        let first_tap = first_tap.filter(|&k| k < window.kernel[d]);
        let taps = first_tap.map_or(0, |k| (window.kernel[d] - k - 1) / tap_step + 1);
        let first_tap = first_tap.unwrap_or(0);
        Phase {
            remainder,
            outputs: (extent - remainder + stride - 1).div_euclid(stride).max(0),
            taps,
            first_tap,
            tap_step,
            first: (shifted - first_tap * dilation).div_euclid(stride),
            step: tap_step * dilation / stride,
        }
    }
}

pub(super) fn pool(b: &mut Build, kind: PoolKind, window: &Window, layout: Layout) {
    let (image, output) = images(b, layout);
    let dims = image.spatial.len();
    let mut space = Space::over(&b.output.shape);
    let first = if layout == Layout::Nhwc { 1 } else { 2 };
    space.reduced();
    let write = space.subscripts();
    let mut index = write.clone();
    let mut conditions = vec![];
    for d in 0..dims {
        let tap = space.iterator(KERNEL[dims - 1][d], window.kernel[d]);
        index[first + d] = reach(window, d, &write[first + d], &tap);
        conditions.extend(space.inside(&index[first + d], image.spatial[d]));
    }
    let x = Expr::load(b.input(0), index);
    let PoolKind::Average { count_padding } = kind else {
        return b.define(b.target(), space, write, Some(BinaryOp::Max), conditions, x);
    };
    let dtype = b.output.dtype;
    let s = b.temporary("s", &b.output.shape.clone());
    let mut counts: Vec<Expr> = vec![];
    let mut whole = 1;
    for d in 0..dims {
        let position = space.var(first + d);
        match inside_count(window, d, &position, image.spatial[d], output.spatial[d]).filter(|_| !count_padding) {
            Some(count) => counts.push(count),
            None => whole *= window.kernel[d],
        }
    }
    b.define(s, space, write.clone(), Some(BinaryOp::Add), conditions, x);
    let sum = Expr::load(s, write);
    let body = match counts.into_iter().reduce(|a, c| a * c) {
        None => sum * constant(dtype, 1.0 / whole as f64),
        Some(count) => sum / Expr::cast(dtype, count * Expr::Const(Scalar::i64(whole))),
    };
    b.assign(b.target(), Space::over(&b.output.shape), body);
}

/// Counts the taps of one axis that lie inside the image at output position `o`, as i64; `None` when all do everywhere.
fn inside_count(window: &Window, d: usize, o: &Affine, extent: i64, outputs: i64) -> Option<Expr> {
    let (kernel, stride, dilation) = (window.kernel[d], window.stride[d], window.dilation[d]);
    let first = o.scale(stride).offset(-window.pad_before[d]);
    let last = (outputs - 1) * stride - window.pad_before[d] + (kernel - 1) * dilation;
    if window.pad_before[d] == 0 && last < extent {
        return None;
    }
    let c = |v: i64| Expr::Const(Scalar::i64(v));
    if dilation == 1 {
        let end = Expr::binary(BinaryOp::Min, Expr::Index(first.clone().offset(kernel)), c(extent));
        return Some(end - Expr::binary(BinaryOp::Max, Expr::Index(first), c(0)));
    }
    let inside = |k: i64| {
        let row = Expr::Index(first.clone().offset(k * dilation));
        let low = Expr::compare(crate::expr::CompareOp::Ge, row.clone(), c(0));
        let high = Expr::compare(crate::expr::CompareOp::Lt, row, c(extent));
        Expr::cast(DType::I64, Expr::binary(BinaryOp::And, low, high))
    };
    (0..kernel).map(inside).reduce(|a, b| a + b)
}
