//! Cost model: the time of a node on a target, in nanoseconds.
//!
//! In: an operator, the types of its operands and results, a target. Out: the time of the operator as a kernel of its own on
//! one core. The model: multiply-adds over the peak times the share that the layout lets us reach, other arithmetic in
//! vector cycles, bytes over the bandwidth of the cache they fit in, and one launch for each kernel. It need not be exact;
//! it must order layouts, algorithms and fusions rightly.

use crate::codegen::Target;
use crate::codegen::target::Accumulate;
use crate::expr::interval::ceil_div;
use crate::graph::ir::{Node, ValueId};
use crate::graph::op::{Body, Layout, Op, Window};
use crate::graph::subgraph;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Tensor};

/// Rows of a product of floats up to which its weights of 8 bits or fewer stay so: with more rows they are widened too often. Unmeasured.
pub const FEW_ROWS: i64 = 16;

/// An operand as the model sees it.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    pub ty: &'a TensorType,
    pub constant: bool,
    /// Its elements, where they are known before constants are folded.
    pub value: Option<&'a Tensor>,
}

/// The time of an operator as one kernel, without writing its result.
pub fn node(op: &Op, operands: &[Operand], result: &TensorType, target: &Target) -> f64 {
    if matches!(op, Op::Reshape { .. }) {
        return 0.0;
    }
    let moved: f64 =
        operands.iter().filter(|o| !o.constant).map(|o| traffic(read_bytes(op, o.ty, result), target)).sum();
    let weights: usize = operands.iter().filter(|o| o.constant).map(|o| o.ty.bytes()).sum();
    let machine = &target.machine;
    machine.launch_ns
        + moved
        + weights as f64 / machine.bandwidth[machine.weights_level]
        + arithmetic(op, operands, result, target)
}

/// Cost of a view as a kernel beyond its arithmetic and its result, in ns: the launch and reading `operand`.
pub fn view(op: &Op, operand: &TensorType, result: &TensorType, target: &Target) -> f64 {
    target.machine.launch_ns + traffic(read_bytes(op, operand, result), target)
}

/// Time to read or write `bytes` that were touched recently.
pub fn traffic(bytes: usize, target: &Target) -> f64 {
    let machine = &target.machine;
    let exceeds = |cache: &&usize| bytes as f64 > **cache as f64 * machine.resident_share;
    bytes as f64 / machine.bandwidth[machine.cache_bytes.iter().skip(1).take_while(exceeds).count() + 1]
}

/// Bytes of an operand that are read.
fn read_bytes(op: &Op, operand: &TensorType, result: &TensorType) -> usize {
    match op {
        op if op.is_gather() || matches!(op, Op::Slice { .. }) => operand.bytes().min(result.bytes()),
        _ => operand.bytes(),
    }
}

/// Multiply-adds of a convolution or matrix product; 0 for others. Filters that fill a block of channels do not count.
pub fn multiply_adds(op: &Op, operands: &[&TensorType], result: &TensorType) -> u64 {
    let count = |factors: &[i64]| factors.iter().fold(1u64, |n, &f| n.saturating_mul(f.max(0) as u64));
    match op {
        Op::Conv { layout, .. } => count(&operands[1].shape) * convolution_size(result, *layout) as u64,
        Op::ConvTranspose { layout, .. } => count(&operands[1].shape) * convolution_size(operands[0], *layout) as u64,
        Op::MatMul { transpose_a, .. } => {
            let a = &operands[0].shape;
            count(&result.shape) * count(&a[a.len() - if *transpose_a { 2 } else { 1 }..][..1])
        }
        Op::BlockProduct { .. } => count(&operands[0].shape) * count(&result.shape[1..]),
        _ => 0,
    }
}

/// The type of the first operand of the products of bytes that the target has instructions for; the second one is i8.
pub fn byte_products(target: &Target) -> Option<DType> {
    [DType::U8, DType::I8].into_iter().find(|&first| target.sums_products([first, DType::I8], DType::I32))
}

/// Instructions for the products of a group of numbers of 4 bits and of i8, where the target has them.
pub fn four_bit_instructions(target: &Target) -> Option<usize> {
    let rows = target.instructions.iter().filter(|row| row.sums_products_of_four_bits());
    rows.map(|row| row.code.len()).min()
}

/// Returns true for a target whose instructions sum products of i16 in i32.
pub fn word_products(target: &Target) -> bool {
    target.sums_products([DType::I16, DType::I16], DType::I32)
}

/// The types of 16 bits whose products the target sums as they are: in f32, or in f16 where that is asked for.
pub fn half_products(target: &Target) -> Vec<DType> {
    let sums = |&half: &DType| {
        target.sums_products([half; 2], DType::F32) || half == DType::F16 && target.accumulate == Accumulate::F16
    };
    [DType::BF16, DType::F16].into_iter().filter(sums).collect()
}

/// The types of operands whose products the target sums in tiles.
pub fn tile_products(target: &Target) -> Vec<DType> {
    let tiles = target.instructions.iter().filter(|row| row.is_tile());
    tiles.flat_map(|row| row.operands[1..].iter().map(|o| o.dtype)).collect()
}

/// Terms of a sum that an instruction on integers of this type takes at once: those that fill 32 bits.
pub fn group(dtype: DType) -> i64 {
    4 / dtype.bytes().clamp(1, 4) as i64
}

/// Time of a term that is put into a group of its own, in steps of the product. Unmeasured.
const SINGLE_TERM: f64 = 0.75;

/// Terms that a step of a product of bytes takes, on average, where so many of a sum are neighbours. From 1 on the product takes no
/// longer than that of f32.
pub fn terms_in_step(neighbours: i64, group: i64) -> f64 {
    let (whole, rest) = (neighbours / group, neighbours % group);
    let steps = whole as f64 + if rest > 0 { 1.0 + SINGLE_TERM * rest as f64 } else { 0.0 };
    neighbours as f64 / steps.max(1.0)
}

/// Terms of a product's sum that are neighbours in memory in one of the operands, and so may be a group: the channels of a channels-last image, or the
/// columns of one that is read without padding; 1 where none are.
fn neighbours(op: &Op, operands: &[Operand]) -> i64 {
    let (x, w) = (&operands[0].ty.shape, &operands[1].ty.shape);
    match op {
        Op::Conv { window, group, layout } => {
            let last = window.kernel.len() - 1;
            let whole = window.pad_before[last] == 0 && window.pad_after[last] == 0 && window.dilation[last] == 1;
            let pointwise = window.kernel.iter().all(|&k| k == 1);
            match layout {
                _ if pointwise => w[1],
                Layout::Nhwc if w[1] > 1 => w[1],
                Layout::Blocked(b) if w[1] > 1 => w[1].min(*b as i64),
                Layout::Nchw | Layout::Nhwc if whole && *group == 1 => window.kernel[last],
                _ => 1,
            }
        }
        Op::MatMul { transpose_a, .. } => x[x.len() - if *transpose_a { 2 } else { 1 }],
        Op::BlockProduct { .. } => x[2],
        _ => 1,
    }
}

/// Peak of a product of these operands in GFLOP/s: integers by instructions that sum a [`group`] of products in each lane of 32
/// bits, as far as neighbours fill it, or else by products of i32, which take several times as long as those of f32; bf16 likewise, or
/// else widened.
fn peak(op: &Op, operands: &[Operand], target: &Target) -> f64 {
    let dtype = operands[0].ty.dtype;
    // Numbers of 4 bits may have a row where those of 8 bits have none.
    let four_bits = match op {
        Op::BlockProduct { packed: true, .. } if byte_products(target).is_none() => four_bit_instructions(target),
        _ => None,
    };
    let has_row = match dtype {
        DType::I8 | DType::U8 if four_bits.is_some() => true,
        DType::I8 | DType::U8 => byte_products(target).is_some(),
        DType::I16 => word_products(target),
        DType::I32 => false,
        DType::BF16 | DType::F16 => false,
        _ => return target.peak_gflops(4),
    };
    let depthwise = matches!(op, Op::Conv { group, .. } if *group > 1 && operands[1].ty.shape[1] == 1);
    if dtype == DType::F16 && target.accumulate == Accumulate::F16 && !depthwise {
        return target.peak_gflops(2);
    }
    let factor = match neighbours(op, operands) {
        terms if has_row && terms > 1 => terms_in_step(terms, group(dtype)) / four_bits.unwrap_or(1) as f64,
        terms if dtype.is_float() => products_of_halves(dtype, terms, target).max(target.machine.widened_halves_share),
        _ if has_row && depthwise => target.machine.widened_bytes_share,
        _ => 0.25,
    };
    factor * target.peak_gflops(4)
}

/// Products of 16 bits with sums in f32 that the best instruction takes in the time of one fused product, where so many terms are
/// neighbours; 0 without an instruction.
fn products_of_halves(dtype: DType, terms: i64, target: &Target) -> f64 {
    let rows = target.instructions.iter().filter(|row| row.sums_products([dtype; 2], DType::F32));
    rows.map(|row| terms_in_step(terms, group(dtype)) / target.row_factor(row)).fold(0.0, f64::max)
}

fn arithmetic(op: &Op, operands: &[Operand], result: &TensorType, target: &Target) -> f64 {
    let (machine, lanes) = (&target.machine, target.lanes(4) as f64);
    let vector_ns = |elements: i64, cycles: f64| elements as f64 / lanes * cycles / machine.clock_ghz;
    let input = operands.first().map_or(0, |o| o.ty.elements());
    match op {
        Op::Conv { window, group, layout } => {
            let w = &operands[1].ty.shape;
            let macs =
                convolution_size(result, *layout) * w[1..].iter().product::<i64>() as f64 * layout.stored(w[0]) as f64;
            2.0 * macs / (peak(op, operands, target) * image_share(window, *group, w, result, *layout, target))
        }
        Op::ConvTranspose { window, group, layout, .. } => {
            let w = &operands[1].ty.shape;
            let macs = convolution_size(operands[0].ty, *layout) * w.iter().product::<i64>() as f64;
            let share = transposed_share(window, *group, w, result, *layout, target) * machine.transposed_factor;
            // The outputs of one phase along a row are not neighbours.
            let apart = *layout == Layout::Nchw && window.stride.last() != Some(&1) && !window.iterates_phases();
            let stores = if apart { machine.scatter_ns * result.elements() as f64 } else { 0.0 };
            2.0 * macs / (target.peak_gflops(4) * share) + stores
        }
        Op::MatMul { transpose_a, transpose_b } => {
            let rank = result.shape.len();
            let (m, n) = (result.shape[rank - 2], result.shape[rank - 1]);
            let a = &operands[0].ty.shape;
            let k = a[a.len() - if *transpose_a { 2 } else { 1 }];
            let batch: i64 = result.shape[..rank - 2].iter().product();
            let flops = 2.0 * (batch * m * n * k) as f64;
            // rows of a block that share a weight of fewer bits, which two instructions widen
            let widened = matches!((operands[0].ty.dtype, operands[1].ty.dtype), (DType::F32, w) if w != DType::F32);
            let rows = m.clamp(1, machine.product_rows) as f64;
            let share = if widened { rows / (rows + 2.0) } else { 1.0 };
            let pack = if operands[1].constant { 0.0 } else { traffic(operands[1].ty.bytes(), target) };
            let turn = if *transpose_b && !operands[1].constant { pack } else { 0.0 };
            flops / (peak(op, operands, target) * share * machine.blocked_share * tail(n, lanes as i64)) + pack + turn
        }
        Op::BlockProduct { .. } => {
            let (x, columns) = (operands[0].ty, result.shape[1]);
            let (sums, products) = (x.shape[0] * x.shape[1] * columns, 2.0 * (x.elements() * columns) as f64);
            // conversion, factor and scale of a sum
            let scaled = vector_ns(sums, if x.dtype == DType::F32 { 1.0 } else { 3.0 });
            products / (peak(op, operands, target) * machine.blocked_share * tail(columns, lanes as i64)) + scaled
        }
        Op::Pool { window, layout, .. } => {
            let taps: i64 = window.kernel.iter().product();
            let turned = match (layout, window.stride.last()) {
                (Layout::Nchw, Some(1)) => 2.0,
                (Layout::Nchw, _) => 6.0,
                (Layout::Nhwc, _) => 1.0 / tail(*result.shape.last().unwrap_or(&1), lanes as i64),
                (Layout::Blocked(_), _) => 1.0,
            };
            vector_ns(result.elements() * taps, turned)
        }
        Op::Transpose { perm } => {
            let rows = perm.last() == Some(&(perm.len() - 1));
            if rows { 0.0 } else { machine.transpose_ns * result.elements() as f64 }
        }
        Op::Block { .. } | Op::Unblock { .. } => machine.scatter_ns * result.elements() as f64,
        Op::Reduce { .. } => vector_ns(input, 1.0),
        Op::Softmax { axis, .. } => {
            let along = if *axis + 1 == result.shape.len() { 1.0 } else { 4.0 };
            vector_ns(input, 25.0 * along)
        }
        Op::LayerNorm { .. } => vector_ns(input, 6.0),
        Op::Gather { .. } | Op::GatherNd { .. } | Op::GatherElements { .. } | Op::Lookup => {
            2.0 * vector_ns(result.elements(), 1.0)
        }
        Op::Table => vector_ns(result.elements(), machine.lookup_cycles[usize::from(target.permutes_bytes())]),
        Op::ScatterElements { .. } | Op::ScatterNd { .. } => {
            let updates = operands.get(2).map_or(0, |o| o.ty.elements());
            vector_ns(input, 1.0) + machine.scatter_ns * updates as f64
        }
        Op::Opaque { .. } => machine.opaque_ns * (input + result.elements()) as f64,
        Op::Scan { trips, body, .. } => *trips as f64 * whole(body, target),
        Op::If { then, otherwise } => whole(then, target).max(whole(otherwise, target)),
        op => vector_ns(result.elements(), elementwise_cycles(op)),
    }
}

/// The time of the operators of a body, each as a kernel of its own. A body that cannot be read costs nothing: nothing else
/// computes what it computes.
fn whole(body: &Body, target: &Target) -> f64 {
    let Ok(graph) = subgraph::graph(body) else { return 0.0 };
    let operand = |&v: &ValueId| Operand { ty: &graph.value(v).ty, constant: graph.constant(v).is_some(), value: None };
    let time = |n: &Node| {
        let operands: Vec<Operand> = n.inputs.iter().map(operand).collect();
        n.outputs.first().map_or(0.0, |v| node(&n.op, &operands, &graph.value(*v).ty, target))
    };
    graph.nodes.iter().map(time).sum()
}

/// Cycles for one vector; of recognised operators unmeasured.
fn elementwise_cycles(op: &Op) -> f64 {
    match op {
        Op::Unary(op) => op.cost().cycles,
        Op::Binary(op) => op.cost().cycles,
        Op::Gelu => 19.0,
        Op::Sigmoid | Op::Silu => 14.0,
        Op::HardSigmoid { .. } => 2.0,
        Op::HardSwish => 2.5,
        Op::Elu { .. } => 13.0,
        Op::PRelu => 3.0,
        Op::ThresholdedRelu { .. } => 2.0,
        Op::Concat { .. } | Op::Slice { .. } | Op::Expand { .. } | Op::Upsample { .. } | Op::Pad { .. } => 1.5,
        _ => 1.0,
    }
}

/// The share of vector lanes in use when `extent` elements are dealt to vectors.
fn tail(extent: i64, lanes: i64) -> f64 {
    let vectors = ceil_div(extent, lanes);
    (extent as f64 / (vectors * lanes).max(1) as f64).max(1.0 / lanes as f64)
}

/// Positions of an image (batch and space).
fn convolution_size(image: &TensorType, layout: Layout) -> f64 {
    let shape = &image.shape;
    let channels = match layout {
        Layout::Nchw => shape[1],
        Layout::Nhwc => shape[shape.len() - 1],
        Layout::Blocked(b) => shape[1] * b as i64,
    };
    image.elements() as f64 / channels.max(1) as f64
}

/// The share of peak that a convolution reaches in a layout.
fn image_share(
    window: &Window,
    group: i64,
    weights: &[i64],
    result: &TensorType,
    layout: Layout,
    target: &Target,
) -> f64 {
    let (machine, lanes) = (&target.machine, target.lanes(4) as i64);
    let depthwise = weights[1] == 1 && group > 1;
    match layout {
        Layout::Nhwc => {
            let vector = if depthwise { weights[0] } else { weights[0] / group };
            tail(vector, lanes) * if depthwise { machine.depthwise_share } else { machine.blocked_share }
        }
        // The filters beyond the last were counted already.
        Layout::Blocked(_) if depthwise => machine.depthwise_share,
        Layout::Blocked(_) => machine.channel_blocks_share,
        Layout::Nchw => {
            let row = *result.shape.last().unwrap_or(&1);
            let pointwise = window.kernel.iter().chain(&window.stride).all(|&e| e == 1);
            let unit = window.stride.last() == Some(&1);
            let (vector, share) = match (pointwise, unit) {
                (true, _) => (result.shape[2..].iter().product(), machine.rows_share * machine.pointwise_factor),
                (_, true) => (row, machine.rows_share),
                _ => (row, machine.strided_share),
            };
            tail(vector, lanes) * share * if depthwise { machine.depthwise_share } else { 1.0 }
        }
    }
}

/// The share of peak that a transposed convolution reaches in a layout: that of each phase, a convolution without strides
/// whose filters are the second dimension of the weights. Phases that are iterators may be the vector.
fn transposed_share(
    window: &Window,
    group: i64,
    weights: &[i64],
    result: &TensorType,
    layout: Layout,
    target: &Target,
) -> f64 {
    let machine = &target.machine;
    let phase = Window { stride: vec![1; window.stride.len()], ..window.clone() };
    let mut outputs = result.clone();
    if layout == Layout::Nchw {
        let before = |d: usize| if window.iterates_phases() { window.pad_before[d] } else { 0 };
        for (d, &stride) in window.stride.iter().enumerate() {
            outputs.shape[2 + d] = ceil_div(outputs.shape[2 + d] + before(d), stride);
        }
    }
    let filters = [weights[1] * group, weights[0] / group];
    let along = if layout == Layout::Nchw { machine.transposed_rows_factor } else { 1.0 };
    let share = image_share(&phase, group, &filters, &outputs, layout, target) * along;
    match window.stride.last() {
        Some(&phases) if window.iterates_phases() => {
            let full = if layout == Layout::Nchw { machine.rows_share } else { machine.blocked_share };
            share.max(tail(phases, target.lanes(4) as i64) * full)
        }
        _ => share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::infer::infer;
    use crate::graph::op::FusionKind;
    use crate::poly::samples::with_rows;

    /// Operators whose products an operator beside them computes have none of their own.
    #[test]
    fn products_are_counted() {
        for (op, operands) in Op::samples().iter().filter(|(op, _)| op.kind() == FusionKind::ComplexOutFusable) {
            let operands: Vec<&TensorType> = operands.iter().collect();
            let result = infer(op, &operands).unwrap().remove(0);
            let transform = matches!(op, Op::WinogradOutput { .. });
            assert_eq!(multiply_adds(op, &operands, &result) == 0, transform, "{op}");
        }
    }

    #[test]
    fn one_product_with_merged_weights_is_cheaper_than_three() {
        let target = Target::avx512();
        let op = Op::MatMul { transpose_a: false, transpose_b: false };
        let x = TensorType::new(DType::F32, &[64, 384]);
        let cost = |columns: i64| {
            let (w, y) = (TensorType::new(DType::F32, &[384, columns]), TensorType::new(DType::F32, &[64, columns]));
            let operand = |ty, constant| Operand { ty, constant, value: None };
            let operands = [operand(&x, false), operand(&w, true)];
            node(&op, &operands, &y, &target) + traffic(y.bytes(), &target)
        };
        assert!(cost(3 * 384) < 3.0 * cost(384) - target.machine.launch_ns);
    }

    /// The time of a transposed convolution of one image in each layout: over NCHW, and over NHWC.
    fn transposed(channels: i64, filters: i64, size: i64, kernel: i64, stride: i64) -> [f64; 2] {
        let target = Target::avx512();
        let pad = (kernel - stride) / 2;
        let window = Window {
            kernel: vec![kernel; 2],
            stride: vec![stride; 2],
            dilation: vec![1; 2],
            pad_before: vec![pad; 2],
            pad_after: vec![pad; 2],
        };
        let f32 = |shape: &[i64]| TensorType::new(DType::F32, shape);
        let w = f32(&[channels, filters, kernel, kernel]);
        [Layout::Nchw, Layout::Nhwc].map(|layout| {
            let image = |c: i64, size: i64| match layout {
                Layout::Nchw => f32(&[1, c, size, size]),
                _ => f32(&[1, size, size, c]),
            };
            let (x, y) = (image(channels, size), image(filters, size * stride));
            let operand = |ty, constant| Operand { ty, constant, value: None };
            let op = Op::ConvTranspose { window: window.clone(), group: 1, output_pad: vec![0; 2], layout };
            node(&op, &[operand(&x, false), operand(&w, true)], &y, &target)
        })
    }

    #[test]
    fn transposed_convolutions_of_few_filters_run_along_rows() {
        for (filters, rows) in [(1, true), (3, true), (16, false), (64, false)] {
            let [first, last] = transposed(16, filters, 64, 4, 2);
            assert_eq!(first < last, rows, "{filters} filters: {first} and {last} ns");
        }
        // Channels that are summed over do not fill the vectors.
        let [few, many] = [4, 64].map(|channels| transposed(channels, 1, 64, 4, 2)[1]);
        assert!(many > 10.0 * few, "{few} and {many} ns");
    }

    #[test]
    fn phases_that_are_iterators_fill_vectors_in_any_layout() {
        let [first, last] = transposed(64, 1, 16, 16, 8);
        assert!(last < first, "{first} and {last} ns");
    }

    #[test]
    fn products_of_small_numbers_follow_from_the_rows_of_a_target() {
        let products = |name: &str| {
            let target = with_rows(Target::by_name(name).unwrap());
            let halves = target.sums_products([DType::BF16, DType::BF16], DType::F32);
            (byte_products(&target), word_products(&target), halves)
        };
        assert_eq!(products("x86-64-avx512-vnni+avx512bf16"), (Some(DType::U8), true, true));
        assert_eq!(products("x86-64-avx512"), (None, true, false));
        assert_eq!(products("x86-64-avx2+avxvnni"), (Some(DType::U8), true, false));
        // rows of 256 bits are not those of a target of 512
        assert_eq!(products("x86-64-avx512+avxvnni"), (None, true, false));
        assert_eq!(products("aarch64-neon"), (None, false, false));
        assert_eq!(products("aarch64-neon+dotprod"), (Some(DType::I8), false, false));
        assert_eq!(products("aarch64-neon+dotprod+i8mm"), (Some(DType::U8), false, false));
        assert_eq!(byte_products(&Target::avx512_vnni()), None, "a target without rows");
        let four_bits = |name: &str| four_bit_instructions(&with_rows(Target::by_name(name).unwrap()));
        assert_eq!(["x86-64-avx2", "x86-64-avx512", "aarch64-neon"].map(four_bits), [Some(3), Some(3), None]);
        assert_eq!(four_bits("x86-64-avx512-vnni"), Some(1), "those of all bytes");
    }

    /// A core may take longer for a sum of pairs than for as many fused products: bf16 is then widened.
    #[test]
    fn halves_cost_what_their_instruction_takes() {
        let time = |dtype, bf16_product_factor| {
            let mut target = with_rows(Target::by_name("x86-64-avx512-vnni+avx512bf16").unwrap());
            target.machine.bf16_product_factor = bf16_product_factor;
            let (x, w) = (TensorType::new(dtype, &[64, 384]), TensorType::new(dtype, &[384, 256]));
            let y = TensorType::new(DType::F32, &[64, 256]);
            let operands = [&x, &w].map(|ty| Operand { ty, constant: false, value: None });
            node(&Op::MatMul { transpose_a: false, transpose_b: false }, &operands, &y, &target)
        };
        assert!(1.5 * time(DType::BF16, 1.0) < time(DType::F32, 1.0));
        assert!(time(DType::BF16, 4.0) > time(DType::F32, 4.0));
    }

    /// Times of a product of three channels by a filter of 7x7 in bytes, where the channels are neighbours, and where a row of the filter
    /// has them all; and in f32.
    #[test]
    fn groups_that_neighbours_fill_are_cheap() {
        let target = with_rows(Target::avx512_vnni());
        let time = |dtype, channels: i64, width: i64, kernel: i64| {
            let window = Window {
                kernel: vec![7, kernel],
                stride: vec![2, 2 * width / 230],
                dilation: vec![1; 2],
                pad_before: vec![0; 2],
                pad_after: vec![0; 2],
            };
            let weights = if dtype == DType::U8 { DType::I8 } else { dtype };
            let sums = if dtype == DType::U8 { DType::I32 } else { dtype };
            let (x, w) = (
                TensorType::new(dtype, &[1, 230, width, channels]),
                TensorType::new(weights, &[64, channels, 7, kernel]),
            );
            let y = TensorType::new(sums, &[1, 112, 112, 64]);
            let operands = [&x, &w].map(|ty| Operand { ty, constant: std::ptr::eq(ty, &w), value: None });
            node(&Op::Conv { window, group: 1, layout: Layout::Nhwc }, &operands, &y, &target)
        };
        let (apart, joined) = (time(DType::U8, 3, 230, 7), time(DType::U8, 1, 690, 21));
        let f32 = time(DType::F32, 3, 230, 7);
        assert!(2.0 * joined < f32 && 2.0 * joined < apart, "{joined}, {apart} and {f32} ns");
    }
}
