//! The closed set of graph operators. ONNX's many spellings become these few on the way in (canonical forms), so that
//! rules stay few: `Relu` is `Max` with a constant 0, `Gemm` is `MatMul` and `Add`, `GlobalAveragePool` is `Reduce`.
//!
//! One table, a row an operator. A new operator is a row, a type ([`crate::graph::infer`]) and a tensor expression
//! ([`crate::graph::define`]); it does not compile without one of them.

mod attributes;
mod body;
mod format;

use crate::expr::scalar::Cost;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::tensor_type::TensorType;
use crate::graph::text::words::{Parsed, parts, tensor_type};
use crate::runtime::DType;
pub use attributes::{F32, Layout, PoolKind, ReduceOp, Window};
pub use body::{Body, Origins, add_new};
use format::{
    Attributes, Block, Dilations, ElementType, Flag, Format, Group, Key, KeyList, LayoutWord, List, Mnemonic,
    OutputPad, PoolKinds, Ranges, Reduction, Scientific, Sides, Update, Whole, Windows,
};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// Fusion kinds of operators (TVM's four kinds).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FusionKind {
    /// Every output element reads at most one element of each input, by an affine map.
    Injective,
    /// Reduces axes of its input.
    Reduction,
    /// Convolution, matrix product: injective operators may follow in the same kernel.
    ComplexOutFusable,
    /// A plain function of the runtime.
    Opaque,
}

/// Work of an operator that reads nothing but the elements at its own position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// The operator is not elementwise.
    NotElementwise,
    Cheap,
    /// Not worth doing twice.
    Expensive,
}

use Work::{Cheap, Expensive, NotElementwise};

impl Work {
    fn of(cost: Cost) -> Work {
        if cost.is_expensive() { Expensive } else { Cheap }
    }
}

/// No limit on the number of operands.
const MANY: usize = usize::MAX;

/// Makes the enum and what is derived from its rows. The columns: variant with attributes; mnemonic; least and greatest
/// number of operands; fusion kind; elementwise work; the text of the attributes in the order in which it is written, as
/// `attributes: format`; samples, one or more for each mnemonic, with the types of their operands. Columns see the
/// attributes by their names.
macro_rules! ops {
    ($(
        $(#[$doc:meta])*
        $variant:ident $(($single:ident: $type:ty))? $({ $($(#[$note:meta])* $field:ident: $kept:ty),* })? =
            $mnemonic:expr, $operands:expr, $kind:ident, $work:expr,
            [$($written:tt: $format:expr),*], $samples:expr;
    )*) => {
        /// An operator of a graph, with its attributes: the names are those of the text form.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs, reason = "the attributes of a row are explained by the line above it")]
        pub enum Op {
            $($(#[$doc])* $variant $(($type))? $({ $($(#[$note])* $field: $kept),* })?,)*
        }

        #[allow(unused_variables, unused_parens)]
        impl Op {
            /// The operator's name without its attributes.
            pub fn mnemonic(&self) -> &str {
                match self {
                    $(Op::$variant $(($single))? $({ $($field),* })? => $mnemonic,)*
                }
            }

            /// Least and greatest number of operands.
            pub fn arity(&self) -> RangeInclusive<usize> {
                match self {
                    $(Op::$variant { .. } => $operands,)*
                }
            }

            /// How the operator may be fused.
            pub fn kind(&self) -> FusionKind {
                match self {
                    $(Op::$variant { .. } => FusionKind::$kind,)*
                }
            }

            fn work(&self) -> Work {
                match self {
                    $(Op::$variant $(($single))? $({ $($field),* })? => $work,)*
                }
            }

            /// The words between the brackets.
            fn words(&self) -> Vec<String> {
                match self.clone() {
                    $(Op::$variant $(($single))? $({ $($field),* })? => {
                        let words: Vec<Option<String>> = vec![$(Format::print(&$format, &$written)),*];
                        words.into_iter().flatten().collect()
                    })*
                }
            }

            /// The operator of a mnemonic with these attributes.
            fn read(attributes: &Attributes) -> Parsed<Op> {
                $(if $samples.into_iter().any(|sample| sample_mnemonic(&sample) == attributes.mnemonic) {
                    $(let $written = Format::parse(&$format, attributes)?;)*
                    return Ok(Op::$variant $(($single))? $({ $($field),* })?);
                })*
                Err(format!("`{}` is not an operator", attributes.mnemonic))
            }

            fn sample_texts() -> Vec<String> {
                let mut texts = vec![];
                $(texts.extend($samples.into_iter().map(String::from));)*
                texts
            }
        }
    };
}

ops! {
    // ---- injective, by element (operands broadcast as in NumPy)
    Unary(op: UnaryOp) = op.name(), 1..=1, Injective, Work::of(op.cost()), [op: Mnemonic(format::unary)], unary_samples();
    Binary(op: BinaryOp) = op.name(), 2..=2, Injective, Work::of(op.cost()), [op: Mnemonic(format::binary)], binary_samples();
    Compare(op: CompareOp) = op.name(), 2..=2, Injective, Cheap, [op: Mnemonic(format::compare)], compare_samples();
    /// condition, then, else.
    Select = "select", 3..=3, Injective, Cheap, [], ["select(bool[3,1], f32[1,4], f32[])"];
    Cast(to: DType) = "cast", 1..=1, Injective, Cheap, [to: ElementType], ["cast[f32](i64[5])"];
    /// Elements of another type of the same width with unchanged bits.
    Bitcast(to: DType) = "bitcast", 1..=1, Injective, Cheap, [to: ElementType], ["bitcast[i32](f32[5])"];
    // recognised or imported elementwise functions of one f32 operand
    Sigmoid = "sigmoid", 1..=1, Injective, Expensive, [], ["sigmoid(f32[2,3])"];
    /// x · sigmoid(x).
    Silu = "silu", 1..=1, Injective, Expensive, [], ["silu(f32[2,3])"];
    /// max(0, min(1, alpha·x + beta)). The sample is the factor of the hard swish.
    HardSigmoid { alpha: F32, beta: F32 } = "hard_sigmoid", 1..=1, Injective, Cheap,
        [alpha: Key("alpha"), beta: Key("beta")], ["hard_sigmoid[alpha=0.16666667 beta=0.5](f32[7])"];
    /// x · HardSigmoid(1/6, 1/2)(x).
    HardSwish = "hard_swish", 1..=1, Injective, Cheap, [], ["hard_swish(f32[2,3])"];
    /// x/2 · (1 + erf(x/√2)).
    Gelu = "gelu", 1..=1, Injective, Expensive, [], ["gelu(f32[2,3])"];
    /// x > 0 ? scale·x : scale·alpha·(exp(x / divisor) - 1); Elu, Celu and Selu.
    Elu { alpha: F32, scale: F32, divisor: F32 } = "elu", 1..=1, Injective, Expensive,
        [alpha: Key("alpha"), scale: Key("scale"), divisor: Key("divisor")], ["elu[alpha=1 scale=1 divisor=1](f32[2,3])"];
    /// x > alpha ? x : 0.
    ThresholdedRelu { alpha: F32 } = "thresholded_relu", 1..=1, Injective, Cheap,
        [alpha: Key("alpha")], ["thresholded_relu[alpha=1](f32[2,3])"];
    /// x, slope: x ≥ 0 ? x : slope·x. LeakyRelu has a slope of one element.
    PRelu = "prelu", 2..=2, Injective, Cheap, [], ["prelu(f32[2,3,4], f32[3,1])"];

    // ---- injective, moving data
    /// Output dimension i is input dimension `perm[i]`.
    Transpose { perm: Vec<usize> } = "transpose", 1..=1, Injective, NotElementwise,
        [perm: List(",")], ["transpose[2,0,1](f32[2,3,4])"];
    /// Same elements in row-major order under another shape; never moves data.
    Reshape { shape: Vec<i64> } = "reshape", 1..=1, Injective, NotElementwise,
        [shape: List(",")], ["reshape[4,1,3,2](f32[2,2,6])"];
    /// Broadcast to `shape`.
    Expand { shape: Vec<i64> } = "expand", 1..=1, Injective, NotElementwise,
        [shape: List(",")], ["expand[2,3,4](f32[3,1])"];
    /// `starts`, `ends` (exclusive, already clamped) and `steps` (may be negative) of every dimension.
    Slice { starts: Vec<i64>, ends: Vec<i64>, steps: Vec<i64> } = "slice", 1..=1, Injective, NotElementwise,
        [(starts, ends, steps): Ranges], ["slice[4..-1 by -2, 1..6](f32[5,7])"];
    Concat { axis: usize } = "concat", 1..=MANY, Injective, NotElementwise,
        [axis: Key("axis")], ["concat[axis=1](f32[2,1,3], f32[2,4,3])"];
    /// Constant padding before and after each dimension; the value is a scalar's bits of the operand's type.
    Pad { before: Vec<i64>, after: Vec<i64>, value: u64 } = "pad", 1..=1, Injective, NotElementwise,
        [(before, after): Sides, value: Key("bits")], ["pad[0,2:1,0 bits=1065353216](f32[2,3])"];
    /// NCHW → N, ⌈C/b⌉, H, W, b (the last block filled with zeros) for dimension 1.
    Block { block: u32 } = "block", 1..=1, Injective, NotElementwise, [block: Whole], ["block[4](f32[1,6,2,3])"];
    /// The inverse of `Block`, with the number of channels.
    Unblock { channels: i64 } = "unblock", 1..=1, Injective, NotElementwise,
        [channels: Whole], ["unblock[6](f32[1,2,2,3,4])"];
    /// Integer upsampling by repetition (nearest), one factor for each dimension.
    Upsample { factors: Vec<i64> } = "upsample", 1..=1, Injective, NotElementwise,
        [factors: List("x")], ["upsample[1x1x2x3](f32[1,2,3,2])"];

    // ---- gathers: data, indices
    Gather { axis: usize } = "gather", 2..=2, Injective, NotElementwise,
        [axis: Key("axis")], ["gather[axis=1](f32[2,5,3], i64[2,2])"];
    GatherElements { axis: usize } = "gather_elements", 2..=2, Injective, NotElementwise,
        [axis: Key("axis")], ["gather_elements[axis=1](f32[2,5], i64[2,3])"];
    /// Rows of the data. A negative index lies outside of them, while the other gathers count it from the end.
    Lookup = "lookup", 2..=2, Injective, NotElementwise, [], ["lookup(f32[5,3], i64[2,2])"];
    /// Bytes of a table of 256, whose subscripts are numbers in u8. It stands in a kernel of its own, whose lanes have 8 bits.
    Table = "table", 2..=2, Injective, NotElementwise, [], ["table(u8[256], u8[3,70])", "table(i8[256], u8[5])"];
    GatherNd { batch_dims: usize } = "gather_nd", 2..=2, Injective, NotElementwise,
        [batch_dims: Key("batch_dims")], ["gather_nd[batch_dims=1](f32[2,5,4,3], i64[2,3,2])"];

    // ---- scatters: data, indices, updates. The result is the data with each update, in the order of the indices, in the
    // place of an element, or combined with it by the reduction: a sum, a product, a minimum or a maximum.
    /// Each update's place is its own, but along `axis` the index; indices of extent 1 are stretched.
    ScatterElements { axis: usize, reduction: Option<BinaryOp> } = "scatter_elements", 3..=3, Reduction, NotElementwise,
        [axis: Key("axis"), reduction: Update],
        ["scatter_elements[axis=1](f32[2,5], i64[2,3], f32[2,3])", "scatter_elements[axis=0 add](i32[4,2], i32[6,1], i32[6,2])"];
    /// The last dimension of the indices has the first subscripts of an element, or of a slice.
    ScatterNd { reduction: Option<BinaryOp> } = "scatter_nd", 3..=3, Reduction, NotElementwise,
        [reduction: Update], ["scatter_nd(f32[5,4,3], i64[7,2], f32[7,3])", "scatter_nd[max](f64[5], i64[4,2,1], f64[4,2])"];

    // ---- reductions
    /// `keep`: reduced dimensions stay with extent 1.
    Reduce { op: ReduceOp, axes: Vec<usize>, keep: bool } = op.mnemonic(), 1..=1, Reduction, NotElementwise,
        [op: Reduction, axes: KeyList("axes"), keep: Flag("keep")], reduce_samples();
    Softmax { axis: usize, log: bool } = if *log { "log_softmax" } else { "softmax" }, 1..=1, Reduction, NotElementwise,
        [log: Mnemonic(|word| Some(word == "log_softmax")), axis: Key("axis")],
        ["softmax[axis=1](f32[3,6])", "log_softmax[axis=1](f32[3,6])"];
    /// x, scale, bias (may be absent); over the last dimensions from `axis`.
    LayerNorm { axis: usize, epsilon: F32 } = "layer_norm", 2..=3, Reduction, NotElementwise,
        [axis: Key("axis"), epsilon: Scientific("epsilon")], ["layer_norm[axis=1 epsilon=1e-5](f32[3,8], f32[8], f32[8])"];
    /// `kind` over windows in `layout`.
    Pool { kind: PoolKind, window: Window, layout: Layout } =
        if *kind == PoolKind::Max { "max_pool" } else { "average_pool" }, 1..=1, Reduction, NotElementwise,
        [window: Windows, layout: LayoutWord, kind: PoolKinds],
        ["max_pool[2x2 stride=2x2 nchw](f32[1,3,6,4])", "average_pool[3x3 pad=1x1:0x1 nhwc count_padding](f32[1,6,4,3])"];

    // ---- complex, output fusable
    /// Batched as in NumPy; operands may be read transposed (last two dimensions swapped). Where the left operand is f32, the
    /// right one may be of 8 or 16 bits: its elements are widened as they are read. Integers of 8 bits, signed or not each, have
    /// products and sums in i32.
    MatMul { transpose_a: bool, transpose_b: bool } = "matmul", 2..=2, ComplexOutFusable, NotElementwise,
        [transpose_a: Flag("a^T"), transpose_b: Flag("b^T")],
        ["matmul(f32[2,1,3,4], f32[5,4,6])", "matmul[a^T b^T](f32[4,3], f32[6,4])", "matmul(f32[1,9], i8[9,40])",
         "matmul(u8[3,9], i8[9,4])"];
    /// Weights with a scale for each block of each column: x (rows, blocks, terms), weights (blocks, terms, columns), scales (blocks, columns).
    /// The sums of products in each block are multiplied with its scales, and added up. In each block of a row x may be rounded to whole
    /// numbers of `digits` times 8 bits (3: f32). Where x is i8, sums are in i32, and there are factors (rows, blocks), numbers (rows,
    /// blocks) that are added to each sum, and perhaps integers (blocks, columns) which these are multiplied with. `packed`: a byte has a
    /// term of the first half of a block in its lower four bits, and that of the second half in the others.
    BlockProduct { digits: i64, packed: bool } = "block_product", 3..=6, ComplexOutFusable, NotElementwise,
        [digits: Key("digits"), packed: Flag("packed")],
        ["block_product[digits=3](f32[2,3,8], i8[3,8,20], f32[3,20])",
         "block_product[digits=1](i8[2,3,8], u8[3,8,20], f32[3,20], f32[2,3], i32[2,3])",
         "block_product[digits=2 packed](i8[2,3,8], u8[3,4,20], f32[3,20], f32[2,3], i32[2,3], u8[3,20])"];
    /// x, weights (F, C/group, kernel…), and perhaps bias. Activations in `layout`; weights always in ONNX's order.
    Conv { window: Window, group: i64, layout: Layout } = "conv", 2..=3, ComplexOutFusable, NotElementwise,
        [window: Windows, layout: LayoutWord, group: Group],
        ["conv[3x3 stride=2x1 dilation=1x2 pad=1x1 nchw4c group=2](f32[1,2,5,6,4], f32[16,4,3,3], f32[16])",
         "conv[3x3 pad=1x0 nhwc](u8[1,5,6,3], i8[4,3,3,3], i32[4])"];
    /// x, weights (C, F/group, kernel…), and perhaps bias; `output_pad` after each spatial dimension.
    ConvTranspose { window: Window, group: i64, output_pad: Vec<i64>, layout: Layout } =
        "conv_transpose", 2..=3, ComplexOutFusable, NotElementwise,
        [window: Windows, layout: LayoutWord, group: Group, output_pad: OutputPad],
        ["conv_transpose[2x2 stride=2x2 nchw output_pad=1x0](f32[1,4,3,3], f32[4,6,2,2])"];

    // ---- minimal filtering: a tensor and the matrix of each spatial axis (rows: results, columns: operands)
    /// x (NHWC), the input's matrices: overlapping tiles, each `tile` after the other, `tiles` of them along each axis, as
    /// places.., N, tiles.., C. The elements of a tile are `dilation` apart: N has the images of all phases, `n·dilation..`.
    /// The last places have those of each group of channels, `place·group`; C are the channels of one.
    WinogradInput { tile: Vec<i64>, pad: Vec<i64>, tiles: Vec<i64>, dilation: Vec<i64>, group: i64 } =
        "winograd_input", 2..=4, Reduction, NotElementwise,
        [tile: KeyList("tile"), pad: KeyList("pad"), tiles: KeyList("tiles"), dilation: Dilations("tile"), group: Group],
        ["winograd_input[tile=2,2 pad=1,0 tiles=3,2](f32[2,5,6,3], f32[4,4], f32[4,4])",
         "winograd_input[tile=2,2 pad=2,3 tiles=2,1 dilation=2,3 group=2](f32[2,7,6,4], f32[4,4], f32[4,4])",
         "winograd_input[tile=1,3 pad=0,1 tiles=4,2](f32[1,4,6,5], f32[1,1], f32[5,5])"];
    /// Weights (F, C, taps..), the filter's matrices in f64: transformed in double precision and rounded once, as places, C,
    /// F, where the places of all axes are one dimension.
    WinogradWeights = "winograd_weights", 2..=4, Reduction, NotElementwise, [],
        ["winograd_weights(f32[3,2,3,3], f64[4,3], f64[6,3])", "winograd_weights(f32[2,3,1,3], f64[1,1], f64[4,3])"];
    /// Products (places.., N, tiles.., F), the output's matrices: the tiles side by side as NHWC, cut to `size`; with phases
    /// and groups as the input's transform has them.
    WinogradOutput { size: Vec<i64>, dilation: Vec<i64>, group: i64 } =
        "winograd_output", 2..=4, ComplexOutFusable, NotElementwise,
        [size: KeyList("size"), dilation: Dilations("size"), group: Group],
        ["winograd_output[size=5,4](f32[4,4,2,3,2,3], f32[2,4], f32[2,4])",
         "winograd_output[size=7,5 dilation=2,3 group=2](f32[4,8,12,2,1,3], f32[2,4], f32[2,4])",
         "winograd_output[size=4,6](f32[1,5,1,4,2,5], f32[1,1], f32[3,5])"];

    // ---- opaque: a function of the runtime, by its name there
    Opaque { function: String, attributes: Vec<i64> } = function, 0..=MANY, Opaque, NotElementwise,
        [function: Mnemonic(|word| Some(word.to_string())), attributes: List(",")],
        ["argmax[1,1,0](f32[2,3])", "argmin[1,0,1](f32[2,3])", "topk[2,1,1,1](f32[2,3])", "cumsum[1,0,0](f32[2,3])",
         "roi_align[2,2,0,1,1065353216](f32[4,2,5,6], f32[3,4], i64[3])", "max_roi_pool[2,2,1065353216](f32[4,2,5,6], f32[3,5])",
         "max_unpool[1,1,4](f32[1,1,2], i64[1,1,2])", "determinant[](f32[2,3,3])", "ngrams[0,1,2,1,3,2,0,2,3,2,0,1,4,5,6,7,0,0](i64[2,5])",
         "append[1](f32[2,5], f32[2,3], i64[])"];

    // ---- control flow: operators with a graph of their own
    /// `body` once for each of `trips` steps. Operands: the `carried` initial values, the scanned tensors, the captured values.
    /// The body's inputs: the carried values, a slice of each scanned tensor along its first dimension, the captured values.
    /// Its outputs: the next carried values, and slices. Results: the last carried values, and the stacked slices. `reverse`
    /// has a flag for each scanned operand and then for each stacked result: last slice first. Where `conditional`, the first
    /// carried value is a bool and the steps end before the first for which it is false; there are no stacked results then.
    Scan { trips: i64, carried: usize, reverse: Vec<bool>, conditional: bool, body: Body } =
        "scan", 0..=MANY, Opaque, NotElementwise,
        [trips: Key("trips"), carried: Key("carried"), reverse: KeyList("reverse"), conditional: Key("conditional"), body: Block("body")],
        scan_samples();
    /// condition (one bool), captured values: the results of one of two graphs of the captured values, with equal types.
    If { then: Body, otherwise: Body } = "if", 1..=MANY, Opaque, NotElementwise,
        [then: Block("then"), otherwise: Block("else")],
        [r#"if[then={ %0: f32[2] = input "i0"; %1: f32[2] = exp(%0); output %1 "o0" } else={ %0: f32[2] = input "i0"; %1: f32[2] = neg(%0); output %1 "o0" }](bool[], f32[2])"#];
}

fn scan_samples() -> [&'static str; 2] {
    [
        r#"scan[trips=3 carried=1 reverse=false,true conditional=false body={ %0: f32[2] = input "i0"; %1: f32[2] = input "i1"; %2: f32[2] = input "i2"; %3: f32[2] = add(%0, %1); %4: f32[2] = mul(%3, %2); output %4 "o0"; output %3 "o1" }](f32[2], f32[3,2], f32[2])"#,
        r#"scan[trips=4 carried=2 reverse= conditional=true body={ %0: bool[] = input "i0"; %1: f32[2] = input "i1"; %2: bool[2] = constant [true, false]; %3: f32[2] = exp(%1); %4: bool[] = not(%0); output %4 "o0"; output %3 "o1" }](bool[], f32[2])"#,
    ]
}

fn unary_samples() -> impl Iterator<Item = String> {
    let operand = |op| match op {
        UnaryOp::Not => "bool",
        UnaryOp::CountOnes => "i32",
        _ => "f32",
    };
    UnaryOp::ALL.iter().map(move |&op| format!("{}({}[2,3])", op.name(), operand(op)))
}

fn binary_samples() -> impl Iterator<Item = String> {
    let operand = |op| match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => "bool",
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => "i32",
        _ => "f32",
    };
    BinaryOp::ALL.iter().map(move |&op| format!("{}({1}[2,1], {1}[3])", op.name(), operand(op)))
}

fn compare_samples() -> impl Iterator<Item = String> {
    CompareOp::ALL.iter().map(|op| format!("{}(f32[2,1], f32[3])", op.name()))
}

fn reduce_samples() -> impl Iterator<Item = String> {
    ReduceOp::ALL.iter().map(|op| format!("{}[{} axes=0,2 keep](f32[2,3,4])", op.mnemonic(), op.name()))
}

fn sample_mnemonic(sample: &str) -> &str {
    sample.split(['[', '(']).next().unwrap_or_default()
}

/// An operator and the types of operands that it accepts.
pub type Sample = (Op, Vec<TensorType>);

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let sample = |text: &String| -> Parsed<Sample> {
        let operands = text.rfind('(').ok_or("no operands")?;
        let types = text[operands..].trim_matches(['(', ')']);
        Ok((Op::parse(&text[..operands])?, parts(types).into_iter().map(tensor_type).collect::<Parsed<_>>()?))
    };
    Op::sample_texts().iter().map(|text| sample(text).unwrap_or_else(|e| panic!("sample {text}: {e}"))).collect()
});

impl Op {
    /// The operator that `text` says, such as `conv[3x3 pad=1x1 nhwc]`: what `Display` writes.
    pub fn parse(text: &str) -> Parsed<Op> {
        let (mnemonic, attributes) = match text.split_once('[') {
            Some((mnemonic, rest)) => (
                mnemonic,
                rest.strip_suffix(']').ok_or_else(|| format!("expected `]` after the attributes of `{text}`"))?,
            ),
            None => (text, ""),
        };
        let op = Op::read(&Attributes { mnemonic: mnemonic.trim(), text: attributes.trim() })?;
        // Text that the operator does not print was not read.
        match op.to_string() == text.trim() {
            true => Ok(op),
            false => Err(format!("`{text}` is written `{op}`")),
        }
    }

    /// The samples of all rows: one or more of each mnemonic.
    pub fn samples() -> &'static [Sample] {
        &SAMPLES
    }

    /// The first sample of this mnemonic.
    pub fn named(mnemonic: &str) -> Option<&'static Op> {
        Op::samples().iter().map(|(op, _)| op).find(|op| op.mnemonic() == mnemonic)
    }

    /// Returns true if an operand of the operator has subscripts of the other.
    pub fn is_gather(&self) -> bool {
        matches!(self, Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } | Op::Lookup)
    }

    /// Returns true if the operator reads of each operand nothing but the element at its own position.
    pub fn is_elementwise(&self) -> bool {
        self.work() != NotElementwise
    }

    /// Returns true if the operator is elementwise and its work is not worth doing twice.
    pub fn is_expensive(&self) -> bool {
        self.work() == Expensive
    }
}

/// The mnemonic with the attributes in brackets: `conv[3x3 stride=2x2 pad=1x1 nhwc]`.
impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.mnemonic())?;
        match self.words() {
            words if words.is_empty() => Ok(()),
            words => write!(f, "[{}]", words.join(" ")),
        }
    }
}
