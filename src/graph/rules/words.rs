//! The words of patterns: the operators' mnemonics.

use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::fusion::is_elementwise;
use crate::graph::op::{F32, Layout, Op, PoolKind, ReduceOp, Window};
use crate::runtime::DType;

/// Whether an operator has this mnemonic.
pub fn is_word(word: &str) -> bool {
    std::iter::successors(Some(FIRST), next).any(|op| op.mnemonic() == word)
}

/// The elementwise operator that has this mnemonic; of the hard sigmoids that of the hard swish.
pub fn simple_op(word: &str) -> Option<Op> {
    std::iter::successors(Some(FIRST), next).find(|op| is_elementwise(op) && op.mnemonic() == word)
}

const FIRST: Op = Op::Unary(UnaryOp::Neg);

/// The operator after this one in a list with one of each mnemonic. The match has no default arm: a new operator does not
/// compile until it stands in the list.
#[rustfmt::skip]
fn next(op: &Op) -> Option<Op> {
    use {BinaryOp as B, CompareOp as C, ReduceOp as R, UnaryOp as U};
    let window = || Window { kernel: vec![], stride: vec![], dilation: vec![], pad_before: vec![], pad_after: vec![] };
    let reduce = |op| Op::Reduce { op, axes: vec![], keep: true };
    let layout = Layout::Nchw;
    Some(match op {
        Op::Unary(U::Neg) => Op::Unary(U::Abs),
        Op::Unary(U::Abs) => Op::Unary(U::Sqrt),
        Op::Unary(U::Sqrt) => Op::Unary(U::Exp),
        Op::Unary(U::Exp) => Op::Unary(U::Log),
        Op::Unary(U::Log) => Op::Unary(U::Tanh),
        Op::Unary(U::Tanh) => Op::Unary(U::Erf),
        Op::Unary(U::Erf) => Op::Unary(U::Floor),
        Op::Unary(U::Floor) => Op::Unary(U::Ceil),
        Op::Unary(U::Ceil) => Op::Unary(U::Round),
        Op::Unary(U::Round) => Op::Unary(U::Not),
        Op::Unary(U::Not) => Op::Binary(B::Add),
        Op::Binary(B::Add) => Op::Binary(B::Sub),
        Op::Binary(B::Sub) => Op::Binary(B::Mul),
        Op::Binary(B::Mul) => Op::Binary(B::Div),
        Op::Binary(B::Div) => Op::Binary(B::Mod),
        Op::Binary(B::Mod) => Op::Binary(B::Min),
        Op::Binary(B::Min) => Op::Binary(B::Max),
        Op::Binary(B::Max) => Op::Binary(B::Pow),
        Op::Binary(B::Pow) => Op::Binary(B::And),
        Op::Binary(B::And) => Op::Binary(B::Or),
        Op::Binary(B::Or) => Op::Binary(B::Xor),
        Op::Binary(B::Xor) => Op::Compare(C::Eq),
        Op::Compare(C::Eq) => Op::Compare(C::Ne),
        Op::Compare(C::Ne) => Op::Compare(C::Lt),
        Op::Compare(C::Lt) => Op::Compare(C::Le),
        Op::Compare(C::Le) => Op::Compare(C::Gt),
        Op::Compare(C::Gt) => Op::Compare(C::Ge),
        Op::Compare(C::Ge) => Op::Select,
        Op::Select => Op::Cast(DType::F32),
        Op::Cast(_) => Op::Sigmoid,
        Op::Sigmoid => Op::Silu,
        Op::Silu => Op::HardSigmoid { alpha: F32::new(1.0 / 6.0), beta: F32::new(0.5) },
        Op::HardSigmoid { .. } => Op::HardSwish,
        Op::HardSwish => Op::Gelu,
        Op::Gelu => Op::Elu { alpha: F32::new(1.0), scale: F32::new(1.0), divisor: F32::new(1.0) },
        Op::Elu { .. } => Op::ThresholdedRelu { alpha: F32::new(1.0) },
        Op::ThresholdedRelu { .. } => Op::PRelu,
        Op::PRelu => Op::Transpose { perm: vec![] },
        Op::Transpose { .. } => Op::Reshape { shape: vec![] },
        Op::Reshape { .. } => Op::Expand { shape: vec![] },
        Op::Expand { .. } => Op::Slice { starts: vec![], ends: vec![], steps: vec![] },
        Op::Slice { .. } => Op::Concat { axis: 0 },
        Op::Concat { .. } => Op::Pad { before: vec![], after: vec![], value: 0 },
        Op::Pad { .. } => Op::Block { block: 1 },
        Op::Block { .. } => Op::Unblock { channels: 1 },
        Op::Unblock { .. } => Op::Upsample { factors: vec![] },
        Op::Upsample { .. } => Op::Gather { axis: 0 },
        Op::Gather { .. } => Op::GatherElements { axis: 0 },
        Op::GatherElements { .. } => Op::GatherNd { batch_dims: 0 },
        Op::GatherNd { .. } => reduce(R::Sum),
        Op::Reduce { op: R::Sum, .. } => reduce(R::Mean),
        Op::Reduce { op: R::Mean, .. } => reduce(R::Max),
        Op::Reduce { op: R::Max, .. } => reduce(R::Min),
        Op::Reduce { op: R::Min, .. } => reduce(R::Prod),
        // The others share one mnemonic.
        Op::Reduce { op: R::Prod | R::SumSquare | R::L1 | R::L2 | R::LogSum | R::LogSumExp, .. } => {
            Op::Softmax { axis: 0, log: false }
        }
        Op::Softmax { log: false, .. } => Op::Softmax { axis: 0, log: true },
        Op::Softmax { log: true, .. } => Op::LayerNorm { axis: 0, epsilon: F32::new(0.0) },
        Op::LayerNorm { .. } => Op::Pool { kind: PoolKind::Max, window: window(), layout },
        Op::Pool { kind: PoolKind::Max, .. } => {
            Op::Pool { kind: PoolKind::Average { count_padding: false }, window: window(), layout }
        }
        Op::Pool { kind: PoolKind::Average { .. }, .. } => Op::MatMul { transpose_a: false, transpose_b: false },
        Op::MatMul { .. } => Op::Conv { window: window(), group: 1, layout },
        Op::Conv { .. } => Op::ConvTranspose { window: window(), group: 1, output_pad: vec![], layout },
        // An opaque function has its own name for a mnemonic.
        Op::ConvTranspose { .. } | Op::Opaque { .. } => return None,
    })
}
