//! The closed set of graph operators. ONNX's many spellings become these few on the way in (canonical forms), so that
//! rules stay few: `Relu` is `Max` with a constant 0, `Gemm` is `MatMul` and `Add`, `GlobalAveragePool` is `Reduce`.

use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::runtime::DType;

/// How an operator may be fused (TVM's four kinds).
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

/// f32 attribute with total equality by bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct F32(pub u32);

impl F32 {
    /// The bits of `v`.
    pub fn new(v: f32) -> F32 {
        F32(v.to_bits())
    }
    /// The number.
    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

/// Order of the dimensions of an image tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Layout {
    /// N, C, spatial… : ONNX's own.
    Nchw,
    /// N, spatial…, C.
    Nhwc,
    /// N, C/b, spatial…, b.
    Blocked(u32),
}

/// Window of a convolution or pooling over the spatial dimensions (1, 2 or 3 of them).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Window {
    /// Extent of each spatial dimension.
    pub kernel: Vec<i64>,
    /// Step of each spatial dimension.
    pub stride: Vec<i64>,
    /// Distance of neighbouring elements of the window in each spatial dimension.
    pub dilation: Vec<i64>,
    /// Padding before each spatial dimension, then after.
    pub pad_before: Vec<i64>,
    /// Padding after each spatial dimension.
    pub pad_after: Vec<i64>,
}

/// Reduction of a pooling.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PoolKind {
    /// The largest element.
    Max,
    /// Divides by the number of elements inside the input, or by the whole window.
    Average {
        /// Count padding as elements.
        count_padding: bool,
    },
}

/// An operator of a graph, with its attributes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Op {
    // ---- injective, by element (operands broadcast as in NumPy)
    /// An operation of one operand.
    Unary(UnaryOp),
    /// An operation of two operands.
    Binary(BinaryOp),
    /// A comparison; the result is a bool.
    Compare(CompareOp),
    /// condition, then, else.
    Select,
    /// Conversion to an element type.
    Cast(DType),
    // recognised or imported elementwise functions of one f32 operand
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x · sigmoid(x).
    Silu,
    /// max(0, min(1, alpha·x + beta)).
    HardSigmoid {
        /// Slope.
        alpha: F32,
        /// Offset.
        beta: F32,
    },
    /// x · HardSigmoid(1/6, 1/2)(x).
    HardSwish,
    /// x/2 · (1 + erf(x/√2)).
    Gelu,
    /// x > 0 ? scale·x : scale·alpha·(exp(x / divisor) - 1); Elu, Celu and Selu.
    Elu {
        /// Factor of the negative part.
        alpha: F32,
        /// Factor of the whole.
        scale: F32,
        /// Divisor of x in the exponent.
        divisor: F32,
    },
    /// x > alpha ? x : 0.
    ThresholdedRelu {
        /// Threshold.
        alpha: F32,
    },
    /// x, slope: x ≥ 0 ? x : slope·x. LeakyRelu has a slope of one element.
    PRelu,

    // ---- injective, moving data
    /// Output dimension i is input dimension `perm[i]`.
    Transpose {
        /// Source dimension of each output dimension.
        perm: Vec<usize>,
    },
    /// Same elements in row-major order under another shape; never moves data.
    Reshape {
        /// Shape of the result.
        shape: Vec<i64>,
    },
    /// Broadcast to `shape`.
    Expand {
        /// Shape of the result.
        shape: Vec<i64>,
    },
    /// `starts`, `ends` (exclusive, already clamped) and `steps` (may be negative) of every dimension.
    Slice {
        /// First index of each dimension.
        starts: Vec<i64>,
        /// End of each dimension, exclusive.
        ends: Vec<i64>,
        /// Step of each dimension.
        steps: Vec<i64>,
    },
    /// Concatenation of all operands along one dimension.
    Concat {
        /// Dimension along which they are joined.
        axis: usize,
    },
    /// Constant padding before and after each dimension; the value is a scalar's bits of the operand's type.
    Pad {
        /// Elements before each dimension.
        before: Vec<i64>,
        /// Elements after each dimension.
        after: Vec<i64>,
        /// Bits of the padding.
        value: u64,
    },
    /// NCHW → N, ⌈C/b⌉, H, W, b (the last block filled with zeros) for dimension 1.
    Block {
        /// Channels of one block.
        block: u32,
    },
    /// The inverse of `Block`, with the number of channels.
    Unblock {
        /// Channels of the result.
        channels: i64,
    },
    /// Integer upsampling by repetition (nearest), one factor for each dimension.
    Upsample {
        /// Factor of each dimension.
        factors: Vec<i64>,
    },

    // ---- gathers: data, indices
    /// Slices of the data along one dimension, chosen by indices of any shape.
    Gather {
        /// Dimension of the data that the indices select from.
        axis: usize,
    },
    /// Elements of the data, chosen by indices of the result's shape.
    GatherElements {
        /// Dimension of the data that the indices select from.
        axis: usize,
    },
    /// Slices of the data, chosen by tuples of indices in the last dimension of the indices.
    GatherNd {
        /// Number of leading dimensions that data and indices share.
        batch_dims: usize,
    },

    // ---- reductions
    /// `keep`: reduced dimensions stay with extent 1.
    Reduce {
        /// Reduction.
        op: ReduceOp,
        /// Reduced dimensions, ascending.
        axes: Vec<usize>,
        /// Keep reduced dimensions with extent 1.
        keep: bool,
    },
    /// exp(x) / sum(exp(x)) over one dimension, or its logarithm.
    Softmax {
        /// Dimension of the sum.
        axis: usize,
        /// Take the logarithm of the result.
        log: bool,
    },
    /// x, scale, bias (may be absent); over the last dimensions from `axis`.
    LayerNorm {
        /// First normalised dimension.
        axis: usize,
        /// Addend of the variance.
        epsilon: F32,
    },
    /// `kind` over windows in `layout`.
    Pool {
        /// Reduction of a window.
        kind: PoolKind,
        /// Extents, steps and padding of the window.
        window: Window,
        /// Order of the dimensions of input and result.
        layout: Layout,
    },

    // ---- complex, output fusable
    /// Batched as in NumPy; operands may be read transposed (last two dimensions swapped).
    MatMul {
        /// Swap the last two dimensions of the first operand.
        transpose_a: bool,
        /// Swap the last two dimensions of the second operand.
        transpose_b: bool,
    },
    /// x, weights (F, C/group, kernel…), and perhaps bias. Activations in `layout`; weights always in ONNX's order.
    Conv {
        /// Extents, steps and padding of the window.
        window: Window,
        /// Number of groups of channels.
        group: i64,
        /// Order of the dimensions of activations and result.
        layout: Layout,
    },
    /// x, weights (C, F/group, kernel…), and perhaps bias; `output_pad` after each spatial dimension.
    ConvTranspose {
        /// Extents, steps and padding of the window.
        window: Window,
        /// Number of groups of channels.
        group: i64,
        /// Rows added after each spatial dimension of the result.
        output_pad: Vec<i64>,
        /// Order of the dimensions of activations and result.
        layout: Layout,
    },

    // ---- opaque: a function of the runtime, by its name there
    /// A call of a function of the runtime.
    Opaque {
        /// Name of the function.
        function: String,
        /// Attributes, in the function's order.
        attributes: Vec<i64>,
    },
}

/// Reductions over dimensions of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ReduceOp {
    /// Sum of the elements.
    Sum,
    /// Sum divided by the number of elements.
    Mean,
    /// Largest element.
    Max,
    /// Smallest element.
    Min,
    /// Product of the elements.
    Prod,
    /// Sum of the squares.
    SumSquare,
    /// Sum of the absolute values.
    L1,
    /// Square root of the sum of the squares.
    L2,
    /// Logarithm of the sum.
    LogSum,
    /// Logarithm of the sum of the exponentials.
    LogSumExp,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: &'static [ReduceOp] = &[
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Prod,
        ReduceOp::SumSquare,
        ReduceOp::L1,
        ReduceOp::L2,
        ReduceOp::LogSum,
        ReduceOp::LogSumExp,
    ];

    /// Name in the text of a graph.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::SumSquare => "sum_square",
            ReduceOp::L1 => "l1",
            ReduceOp::L2 => "l2",
            ReduceOp::LogSum => "log_sum",
            ReduceOp::LogSumExp => "log_sum_exp",
        }
    }
}

impl Op {
    /// The operator's name without its attributes.
    pub fn mnemonic(&self) -> &str {
        match self {
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Compare(op) => op.name(),
            Op::Select => "select",
            Op::Cast(_) => "cast",
            Op::Sigmoid => "sigmoid",
            Op::Silu => "silu",
            Op::HardSigmoid { .. } => "hard_sigmoid",
            Op::HardSwish => "hard_swish",
            Op::Gelu => "gelu",
            Op::Elu { .. } => "elu",
            Op::ThresholdedRelu { .. } => "thresholded_relu",
            Op::PRelu => "prelu",
            Op::Transpose { .. } => "transpose",
            Op::Reshape { .. } => "reshape",
            Op::Expand { .. } => "expand",
            Op::Slice { .. } => "slice",
            Op::Concat { .. } => "concat",
            Op::Pad { .. } => "pad",
            Op::Block { .. } => "block",
            Op::Unblock { .. } => "unblock",
            Op::Upsample { .. } => "upsample",
            Op::Gather { .. } => "gather",
            Op::GatherElements { .. } => "gather_elements",
            Op::GatherNd { .. } => "gather_nd",
            Op::Reduce { op: ReduceOp::Sum, .. } => "reduce_sum",
            Op::Reduce { op: ReduceOp::Mean, .. } => "reduce_mean",
            Op::Reduce { op: ReduceOp::Max, .. } => "reduce_max",
            Op::Reduce { op: ReduceOp::Min, .. } => "reduce_min",
            Op::Reduce { .. } => "reduce",
            Op::Softmax { log: false, .. } => "softmax",
            Op::Softmax { log: true, .. } => "log_softmax",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Pool { kind: PoolKind::Max, .. } => "max_pool",
            Op::Pool { kind: PoolKind::Average { .. }, .. } => "average_pool",
            Op::MatMul { .. } => "matmul",
            Op::Conv { .. } => "conv",
            Op::ConvTranspose { .. } => "conv_transpose",
            Op::Opaque { function, .. } => function,
        }
    }
}

fn list<T: std::fmt::Display>(items: &[T], separator: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Layout::Nchw => f.write_str("nchw"),
            Layout::Nhwc => f.write_str("nhwc"),
            Layout::Blocked(b) => write!(f, "nchw{b}c"),
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", list(&self.kernel, "x"))?;
        if self.stride.iter().any(|&s| s != 1) {
            write!(f, " stride={}", list(&self.stride, "x"))?;
        }
        if self.dilation.iter().any(|&d| d != 1) {
            write!(f, " dilation={}", list(&self.dilation, "x"))?;
        }
        if self.pad_before.iter().chain(&self.pad_after).any(|&p| p != 0) {
            write!(f, " pad={}", list(&self.pad_before, "x"))?;
            if self.pad_before != self.pad_after {
                write!(f, ":{}", list(&self.pad_after, "x"))?;
            }
        }
        Ok(())
    }
}

/// The mnemonic with the attributes in brackets: `conv[3x3 stride=2x2 pad=1x1 nhwc]`.
impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.mnemonic())?;
        let group = |g: i64| if g == 1 { String::new() } else { format!(" group={g}") };
        match self {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Sigmoid
            | Op::Silu
            | Op::HardSwish
            | Op::Gelu
            | Op::PRelu => Ok(()),
            Op::Elu { alpha, scale, divisor } => {
                write!(f, "[alpha={} scale={} divisor={}]", alpha.get(), scale.get(), divisor.get())
            }
            Op::ThresholdedRelu { alpha } => write!(f, "[alpha={}]", alpha.get()),
            Op::Cast(to) => write!(f, "[{to}]"),
            Op::HardSigmoid { alpha, beta } => write!(f, "[alpha={} beta={}]", alpha.get(), beta.get()),
            Op::Transpose { perm } => write!(f, "[{}]", list(perm, ",")),
            Op::Reshape { shape } | Op::Expand { shape } => write!(f, "[{}]", list(shape, ",")),
            Op::Slice { starts, ends, steps } => {
                let ranges: Vec<String> = (0..starts.len())
                    .map(|d| match steps[d] {
                        1 => format!("{}..{}", starts[d], ends[d]),
                        s => format!("{}..{} by {s}", starts[d], ends[d]),
                    })
                    .collect();
                write!(f, "[{}]", list(&ranges, ", "))
            }
            Op::Concat { axis } | Op::Gather { axis } | Op::GatherElements { axis } | Op::Softmax { axis, .. } => {
                write!(f, "[axis={axis}]")
            }
            Op::Pad { before, after, value } => {
                write!(f, "[{}:{} bits={value}]", list(before, ","), list(after, ","))
            }
            Op::Block { block } => write!(f, "[{block}]"),
            Op::Unblock { channels } => write!(f, "[{channels}]"),
            Op::Upsample { factors } => write!(f, "[{}]", list(factors, "x")),
            Op::GatherNd { batch_dims } => write!(f, "[batch_dims={batch_dims}]"),
            Op::Reduce { op, axes, keep } => {
                write!(f, "[{} axes={}{}]", op.name(), list(axes, ","), if *keep { " keep" } else { "" })
            }
            Op::LayerNorm { axis, epsilon } => write!(f, "[axis={axis} epsilon={:e}]", epsilon.get()),
            Op::Pool { kind, window, layout } => {
                let padding = if *kind == (PoolKind::Average { count_padding: true }) { " count_padding" } else { "" };
                write!(f, "[{window} {layout}{padding}]")
            }
            Op::MatMul { transpose_a, transpose_b } => match (transpose_a, transpose_b) {
                (false, false) => Ok(()),
                (true, false) => f.write_str("[a^T]"),
                (false, true) => f.write_str("[b^T]"),
                (true, true) => f.write_str("[a^T b^T]"),
            },
            Op::Conv { window, group: g, layout } => write!(f, "[{window} {layout}{}]", group(*g)),
            Op::ConvTranspose { window, group: g, output_pad, layout } => {
                write!(f, "[{window} {layout}{}", group(*g))?;
                if output_pad.iter().any(|&p| p != 0) {
                    write!(f, " output_pad={}", list(output_pad, "x"))?;
                }
                f.write_str("]")
            }
            Op::Opaque { attributes, .. } => write!(f, "[{}]", list(attributes, ",")),
        }
    }
}
