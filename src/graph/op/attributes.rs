//! Types of the attributes of graph operators.

use std::fmt::{Display, Formatter, Result};
use std::num::ParseFloatError;
use std::str::FromStr;

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

impl Display for F32 {
    fn fmt(&self, f: &mut Formatter) -> Result {
        self.get().fmt(f)
    }
}

impl FromStr for F32 {
    type Err = ParseFloatError;
    fn from_str(text: &str) -> std::result::Result<F32, ParseFloatError> {
        text.parse().map(F32::new)
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

impl Display for Layout {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match self {
            Layout::Nchw => f.write_str("nchw"),
            Layout::Nhwc => f.write_str("nhwc"),
            Layout::Blocked(b) => write!(f, "nchw{b}c"),
        }
    }
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
    /// Padding before each spatial dimension.
    pub pad_before: Vec<i64>,
    /// Padding after each spatial dimension.
    pub pad_after: Vec<i64>,
}

/// More phases of a transposed convolution than this are not definitions of their own.
const MAX_PHASES: i64 = 16;

impl Window {
    /// Returns true if the phases of a transposed convolution, the remainders of its outputs by the stride, are iterators of
    /// one definition instead of a definition each.
    pub fn iterates_phases(&self) -> bool {
        let phases = self.stride.iter().fold(1i64, |n, s| n.saturating_mul(*s));
        phases > MAX_PHASES && self.dilation.iter().all(|d| *d == 1)
    }
}

impl Display for Window {
    fn fmt(&self, f: &mut Formatter) -> Result {
        write!(f, "{}", joined(&self.kernel, "x"))?;
        if self.stride.iter().any(|&s| s != 1) {
            write!(f, " stride={}", joined(&self.stride, "x"))?;
        }
        if self.dilation.iter().any(|&d| d != 1) {
            write!(f, " dilation={}", joined(&self.dilation, "x"))?;
        }
        if self.pad_before.iter().chain(&self.pad_after).any(|&p| p != 0) {
            write!(f, " pad={}", joined(&self.pad_before, "x"))?;
            if self.pad_before != self.pad_after {
                write!(f, ":{}", joined(&self.pad_after, "x"))?;
            }
        }
        Ok(())
    }
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

    /// The mnemonic of the operator: the rare reductions share one.
    pub fn mnemonic(self) -> &'static str {
        match self {
            ReduceOp::Sum => "reduce_sum",
            ReduceOp::Mean => "reduce_mean",
            ReduceOp::Max => "reduce_max",
            ReduceOp::Min => "reduce_min",
            ReduceOp::Prod
            | ReduceOp::SumSquare
            | ReduceOp::L1
            | ReduceOp::L2
            | ReduceOp::LogSum
            | ReduceOp::LogSumExp => "reduce",
        }
    }
}

/// The items with a separator between them.
pub fn joined<T: Display>(items: &[T], separator: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}
