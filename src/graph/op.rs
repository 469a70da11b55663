//! The closed set of graph operators. ONNX's many spellings become these few on the way in (canonical forms), so that
//! rules stay few: `Relu` is `Max` with a constant 0, `Gemm` is `MatMul` and `Add`, `GlobalAveragePool` is `Reduce`.

use crate::graph::DType;
use crate::graph::expr::{BinaryOp, CompareOp, UnaryOp};

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
    pub fn new(v: f32) -> F32 {
        F32(v.to_bits())
    }
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
    pub kernel: Vec<i64>,
    pub stride: Vec<i64>,
    pub dilation: Vec<i64>,
    /// Padding before each spatial dimension, then after.
    pub pad_before: Vec<i64>,
    pub pad_after: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PoolKind {
    Max,
    /// Divides by the number of elements inside the input, or by the whole window.
    Average {
        count_padding: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Op {
    // ---- injective, by element (operands broadcast as in NumPy)
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compare(CompareOp),
    /// condition, then, else.
    Select,
    Cast(DType),
    // recognised or imported elementwise functions of one f32 operand
    Sigmoid,
    /// x · sigmoid(x).
    Silu,
    /// max(0, min(1, alpha·x + beta)).
    HardSigmoid {
        alpha: F32,
        beta: F32,
    },
    /// x · HardSigmoid(1/6, 1/2)(x).
    HardSwish,
    /// x/2 · (1 + erf(x/√2)).
    Gelu,

    // ---- injective, moving data
    /// Output dimension i is input dimension `perm[i]`.
    Transpose {
        perm: Vec<usize>,
    },
    /// Same elements in row-major order under another shape; never moves data.
    Reshape {
        shape: Vec<i64>,
    },
    /// Broadcast to `shape`.
    Expand {
        shape: Vec<i64>,
    },
    /// `starts`, `ends` (exclusive, already clamped) and `steps` (may be negative) of every dimension.
    Slice {
        starts: Vec<i64>,
        ends: Vec<i64>,
        steps: Vec<i64>,
    },
    Concat {
        axis: usize,
    },
    /// Constant padding before and after each dimension; the value is a scalar's bits of the operand's type.
    Pad {
        before: Vec<i64>,
        after: Vec<i64>,
        value: u64,
    },
    /// NCHW → N, ⌈C/b⌉, H, W, b (the last block filled with zeros) for dimension 1.
    Block {
        block: u32,
    },
    /// The inverse of `Block`, with the number of channels.
    Unblock {
        channels: i64,
    },
    /// Integer upsampling by repetition (nearest), one factor for each dimension.
    Upsample {
        factors: Vec<i64>,
    },

    // ---- gathers: data, indices
    Gather {
        axis: usize,
    },
    GatherElements {
        axis: usize,
    },
    GatherNd {
        batch_dims: usize,
    },

    // ---- reductions
    /// `keep`: reduced dimensions stay with extent 1.
    Reduce {
        op: ReduceOp,
        axes: Vec<usize>,
        keep: bool,
    },
    Softmax {
        axis: usize,
        log: bool,
    },
    /// x, scale, bias (may be absent); over the last dimensions from `axis`.
    LayerNorm {
        axis: usize,
        epsilon: F32,
    },
    /// `kind` over windows in `layout`.
    Pool {
        kind: PoolKind,
        window: Window,
        layout: Layout,
    },

    // ---- complex, output fusable
    /// Batched as in NumPy; operands may be read transposed (last two dimensions swapped).
    MatMul {
        transpose_a: bool,
        transpose_b: bool,
    },
    /// x, weights (F, C/group, kernel…), and perhaps bias. Activations in `layout`; weights always in ONNX's order.
    Conv {
        window: Window,
        group: i64,
        layout: Layout,
    },
    /// x, weights (C, F/group, kernel…), and perhaps bias; `output_pad` after each spatial dimension.
    ConvTranspose {
        window: Window,
        group: i64,
        output_pad: Vec<i64>,
        layout: Layout,
    },

    // ---- opaque: a function of the runtime, by its name there
    Opaque {
        function: String,
        attributes: Vec<i64>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    SumSquare,
    L1,
    L2,
    LogSum,
    LogSumExp,
}
