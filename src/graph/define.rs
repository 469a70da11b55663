//! The operator table: each operator as a tensor expression, its only definition.
//!
//! In: an operator and the types of its inputs. Out: a [`Program`] whose tensors are the inputs, the output, then
//! temporaries. Invariants: outer iterators stand in the order of the target's dimensions and are its subscripts wherever
//! that is possible; reduced iterators follow in the order of memory; padding is a condition or a guard, never a copy.
//! An opaque operator has no tensor expression.

mod movement;
mod reduction;
mod window;

use crate::graph::expr::{Affine, BinaryOp, BufferId, CompareOp, Expr, Scalar, UnaryOp, Var};
use crate::graph::infer::infer;
use crate::graph::ir::TensorType;
use crate::graph::op::{FusionKind, Op};
use crate::graph::scop::{Definition, Iterator, Program, Role, TensorDecl};
use crate::graph::{DType, Error, Result};

/// The tensor expression of `op` on inputs of these types.
pub fn define(op: &Op, inputs: &[TensorType]) -> Result<Program> {
    if let Op::Opaque { function, .. } = op {
        return Err(Error::Unsupported(format!("`{function}` is opaque: it has no tensor expression")));
    }
    let output = infer(op, &inputs.iter().collect::<Vec<_>>())?.remove(0);
    let mut b = Build::new(op, inputs, output);
    match op {
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
        | Op::GatherNd { .. } => movement::define(&mut b, op),
        Op::Reduce { op, axes, keep } => reduction::reduce(&mut b, *op, axes, *keep),
        Op::Softmax { axis, log } => reduction::softmax(&mut b, *axis, *log),
        Op::LayerNorm { axis, epsilon } => reduction::layer_norm(&mut b, *axis, epsilon.get()),
        Op::MatMul { transpose_a, transpose_b } => reduction::matmul(&mut b, *transpose_a, *transpose_b),
        Op::Pool { kind, window, layout } => window::pool(&mut b, *kind, window, *layout),
        Op::Conv { window, group, layout } => window::conv(&mut b, window, *group, *layout),
        Op::ConvTranspose { window, group, layout, .. } => window::conv_transpose(&mut b, window, *group, *layout),
        _ => {
            let space = Space::over(&b.output.shape);
            let operands = (0..b.inputs.len()).map(|i| b.broadcast(i, &space)).collect();
            let body = scalar(op, b.inputs[0].dtype, operands)
                .ok_or_else(|| Error::Internal(format!("{op} has no definition")))?;
            b.assign(b.target(), space, body);
        }
    }
    Ok(b.program)
}

/// How an operator may be fused.
pub fn kind(op: &Op) -> FusionKind {
    match op {
        Op::Reduce { .. } | Op::Softmax { .. } | Op::LayerNorm { .. } | Op::Pool { .. } => FusionKind::Reduction,
        Op::MatMul { .. } | Op::Conv { .. } | Op::ConvTranspose { .. } => FusionKind::ComplexOutFusable,
        Op::Opaque { .. } => FusionKind::Opaque,
        _ => FusionKind::Injective,
    }
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
        _ => return None,
    })
}

fn exp(x: Expr) -> Expr {
    Expr::unary(UnaryOp::Exp, x)
}

fn clamp(x: Expr, low: Expr, high: Expr) -> Expr {
    Expr::binary(BinaryOp::Max, Expr::binary(BinaryOp::Min, x, high), low)
}

/// `v` as a constant of `dtype`.
fn constant(dtype: DType, v: f64) -> Expr {
    Expr::Const(Scalar::of(dtype, v))
}

/// The iteration space of a definition under construction.
#[derive(Clone, Default)]
struct Space {
    iterators: Vec<Iterator>,
    /// Where the reduced iterators begin, once that is said.
    outer: Option<usize>,
}

impl Space {
    fn new() -> Space {
        Space::default()
    }

    /// One iterator `i0, i1, …` for each dimension of `shape`.
    fn over(shape: &[i64]) -> Space {
        let mut space = Space::new();
        for (d, &extent) in shape.iter().enumerate() {
            space.iterator(format!("i{d}"), extent);
        }
        space
    }

    fn iterator(&mut self, name: impl Into<String>, extent: i64) -> Affine {
        self.iterators.push(Iterator::new(name, extent));
        Affine::var(Var(self.iterators.len() as u32 - 1))
    }

    /// The iterators that follow are reduced.
    fn reduced(&mut self) {
        self.outer = Some(self.iterators.len());
    }

    fn outer(&self) -> usize {
        self.outer.unwrap_or(self.iterators.len())
    }

    fn var(&self, i: usize) -> Affine {
        Affine::var(Var(i as u32))
    }

    /// All outer iterators as subscripts.
    fn subscripts(&self) -> Vec<Affine> {
        (0..self.outer()).map(|i| self.var(i)).collect()
    }

    /// Least and greatest value of `a`.
    fn bounds(&self, a: &Affine) -> (i64, i64) {
        a.bounds(|v| (0, self.iterators[v.0 as usize].extent - 1))
    }

    /// The conditions under which `index` lies in `0..extent`; those that always hold are left out.
    fn inside(&self, index: &Affine, extent: i64) -> Vec<Affine> {
        let (low, high) = self.bounds(index);
        let mut out = vec![];
        if low < 0 {
            out.push(index.clone());
        }
        if high >= extent {
            out.push(Affine::constant(extent - 1).add_scaled(index, -1));
        }
        out
    }
}

/// A program under construction.
struct Build {
    program: Program,
    inputs: Vec<TensorType>,
    output: TensorType,
}

impl Build {
    fn new(op: &Op, inputs: &[TensorType], output: TensorType) -> Build {
        let names: &[&str] = match op {
            Op::Conv { .. } | Op::ConvTranspose { .. } => &["x", "w", "b"],
            Op::LayerNorm { .. } => &["x", "scale", "bias"],
            Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } => &["x", "index"],
            _ if inputs.len() == 1 => &["x"],
            _ => &["a", "b", "c"],
        };
        let declare =
            |name: String, t: &TensorType, role| TensorDecl { name, dtype: t.dtype, shape: t.shape.clone(), role };
        let name = |i: usize| names.get(i).map_or_else(|| format!("x{i}"), |n| n.to_string());
        let mut tensors: Vec<TensorDecl> =
            inputs.iter().enumerate().map(|(i, t)| declare(name(i), t, Role::Input)).collect();
        tensors.push(declare("y".into(), &output, Role::Output));
        Build { program: Program { tensors, definitions: vec![] }, inputs: inputs.to_vec(), output }
    }

    fn input(&self, i: usize) -> BufferId {
        BufferId(i as u32)
    }

    fn target(&self) -> BufferId {
        BufferId(self.inputs.len() as u32)
    }

    fn temporary(&mut self, name: &str, shape: &[i64]) -> BufferId {
        let role = Role::Temporary;
        let dtype = self.output.dtype;
        self.program.tensors.push(TensorDecl { name: name.into(), dtype, shape: shape.to_vec(), role });
        BufferId(self.program.tensors.len() as u32 - 1)
    }

    /// Operand `i`, stretched over the outer iterators of `space` as in NumPy.
    fn broadcast(&self, i: usize, space: &Space) -> Expr {
        let shape = &self.inputs[i].shape;
        let skip = space.outer() - shape.len();
        let subscript = |(d, &extent): (usize, &i64)| {
            let stretched = extent == 1 && space.iterators[d + skip].extent != 1;
            if stretched { Affine::constant(0) } else { space.var(d + skip) }
        };
        Expr::load(self.input(i), shape.iter().enumerate().map(subscript).collect())
    }

    /// `target(iterators) = body`.
    fn assign(&mut self, target: BufferId, space: Space, body: Expr) {
        let write = space.subscripts();
        self.define(target, space, write, None, vec![], body);
    }

    /// `target(write) = reduce of body` where the conditions hold.
    fn define(
        &mut self,
        target: BufferId,
        space: Space,
        write: Vec<Affine>,
        reduce: Option<BinaryOp>,
        conditions: Vec<Affine>,
        body: Expr,
    ) {
        let outer = space.outer();
        let reduce = reduce.filter(|_| outer < space.iterators.len() || !conditions.is_empty());
        let iterators = space.iterators;
        self.program.definitions.push(Definition { target, iterators, outer, write, reduce, conditions, body });
    }
}

#[cfg(test)]
mod tests;
