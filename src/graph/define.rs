//! The operator table: each operator as a tensor expression, its only definition.
//!
//! In: an operator and the types of its inputs. Out: a [`Program`] whose tensors are the inputs, the output, then
//! temporaries. Invariants: outer iterators stand in the order of the target's dimensions and are its subscripts wherever
//! that is possible; reduced iterators follow in the order of memory; padding is a condition or a guard, never a copy.
//! An opaque operator has no tensor expression.

mod movement;
mod reduction;
mod scatter;
pub mod space;
mod tiles;
mod window;

use crate::expr::{BinaryOp, CompareOp, Expr, UnaryOp};
use crate::graph::define::space::{Build, Space, constant, exp};
use crate::graph::infer::infer;
use crate::graph::op::{FusionKind, Op};
use crate::graph::tensor_type::TensorType;
use crate::poly::statement::Program;
use crate::runtime::{DType, Error, Result};

/// The tensor expression of `op` on inputs of these types.
pub fn define(op: &Op, inputs: &[TensorType]) -> Result<Program> {
    if op.kind() == FusionKind::Opaque {
        return Err(Error::Unsupported(format!("`{}` is opaque: it has no tensor expression", op.mnemonic())));
    }
    let output = infer(op, &inputs.iter().collect::<Vec<_>>())?.remove(0);
    let mut b = Build::new(op, inputs, output);
    match op {
        Op::Reduce { op, axes, keep } => reduction::reduce(&mut b, *op, axes, *keep),
        Op::Softmax { axis, log } => reduction::softmax(&mut b, *axis, *log),
        Op::LayerNorm { axis, epsilon } => reduction::layer_norm(&mut b, *axis, epsilon.get()),
        Op::MatMul { transpose_a, transpose_b } => reduction::matmul(&mut b, *transpose_a, *transpose_b),
        Op::BlockProduct { packed, .. } => reduction::block_product(&mut b, *packed),
        Op::Pool { kind, window, layout } => window::pool(&mut b, *kind, window, *layout),
        Op::Conv { window, group, layout } => window::conv(&mut b, window, *group, *layout),
        Op::ConvTranspose { window, group, layout, .. } => window::conv_transpose(&mut b, window, *group, *layout),
        Op::ScatterElements { axis, reduction } => scatter::elements(&mut b, *axis, *reduction),
        Op::ScatterNd { reduction } => scatter::slices(&mut b, *reduction),
        Op::WinogradInput { tile, pad, tiles, dilation, group } => {
            tiles::winograd_input(&mut b, [tile, pad, tiles], dilation, *group)
        }
        Op::WinogradWeights => tiles::winograd_weights(&mut b),
        Op::WinogradOutput { size, dilation, group } => tiles::winograd_output(&mut b, size, dilation, *group),
        _ if op.is_elementwise() => {
            let space = Space::over(&b.output.shape);
            let operands = (0..b.inputs.len()).map(|i| b.broadcast(i, &space)).collect();
            let body = scalar(op, b.inputs[0].dtype, operands)
                .ok_or_else(|| Error::Internal(format!("{op} has no definition")))?;
            b.assign(b.target(), space, body);
        }
        _ => movement::define(&mut b, op),
    }
    Ok(b.program)
}

/// The value of one element of an elementwise operator, from the elements of its operands; `dtype` is the first
/// operand's. `None` for operators that are not elementwise.
pub fn scalar(op: &Op, dtype: DType, operands: Vec<Expr>) -> Option<Expr> {
    let c = |v: f64| constant(dtype, v);
    let mut operands = operands.into_iter();
    let mut next = || operands.next();
    let x = next()?;
    let sigmoid = |x: Expr| c(1.0) / (c(1.0) + exp(-x));
    Some(match op {
        Op::Unary(op) => Expr::unary(*op, x),
        Op::Binary(op) => Expr::binary(*op, x, next()?),
        Op::Compare(op) => Expr::compare(*op, x, next()?),
        Op::Select => Expr::select(x, next()?, next()?),
        Op::Cast(to) => Expr::cast(*to, x),
        Op::Bitcast(to) => Expr::bitcast(*to, x),
        Op::Sigmoid => sigmoid(x),
        Op::Silu => x.clone() / (c(1.0) + exp(-x)),
        Op::HardSigmoid { alpha, beta } => clamp(x * c(alpha.get() as f64) + c(beta.get() as f64), c(0.0), c(1.0)),
        Op::HardSwish => x.clone() * clamp(x * c(1.0 / 6.0) + c(0.5), c(0.0), c(1.0)),
        Op::Gelu => {
            let erf = Expr::unary(UnaryOp::Erf, x.clone() * c(std::f64::consts::FRAC_1_SQRT_2));
            x * c(0.5) * (c(1.0) + erf)
        }
        Op::Elu { alpha, scale, divisor } => {
            let argument = if divisor.get() == 1.0 { x.clone() } else { x.clone() / c(divisor.get() as f64) };
            let factor = c((alpha.get() * scale.get()) as f64);
            let above = if scale.get() == 1.0 { x.clone() } else { x.clone() * c(scale.get() as f64) };
            Expr::select(Expr::compare(CompareOp::Gt, x, c(0.0)), above, (exp(argument) - c(1.0)) * factor)
        }
        Op::ThresholdedRelu { alpha } => {
            Expr::select(Expr::compare(CompareOp::Gt, x.clone(), c(alpha.get() as f64)), x, c(0.0))
        }
        Op::PRelu => Expr::select(Expr::compare(CompareOp::Ge, x.clone(), c(0.0)), x.clone(), x * next()?),
        Op::Transpose { .. }
        | Op::Reshape { .. }
        | Op::Expand { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Block { .. }
        | Op::Unblock { .. }
        | Op::Upsample { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::Lookup
        | Op::Table
        | Op::ScatterElements { .. }
        | Op::ScatterNd { .. }
        | Op::Reduce { .. }
        | Op::Softmax { .. }
        | Op::LayerNorm { .. }
        | Op::Pool { .. }
        | Op::MatMul { .. }
        | Op::BlockProduct { .. }
        | Op::Conv { .. }
        | Op::ConvTranspose { .. }
        | Op::WinogradInput { .. }
        | Op::WinogradWeights
        | Op::WinogradOutput { .. }
        | Op::Opaque { .. }
        | Op::Scan { .. }
        | Op::If { .. } => return None,
    })
}

fn clamp(x: Expr, low: Expr, high: Expr) -> Expr {
    Expr::binary(BinaryOp::Max, Expr::binary(BinaryOp::Min, x, high), low)
}

#[cfg(test)]
mod tests;
