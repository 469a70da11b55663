//! Iteration spaces and definitions: the parts of the operators' tensor expressions.

use crate::expr::{Affine, Var};
use crate::expr::{BinaryOp, BufferId, Expr, Index, Scalar, UnaryOp};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::poly::statement::{Definition, Iterator, Program, Role, TensorDecl, ranges, write_and_computed};
use crate::runtime::DType;

pub(super) fn exp(x: Expr) -> Expr {
    Expr::unary(UnaryOp::Exp, x)
}

/// `v` as a constant of `dtype`.
pub(super) fn constant(dtype: DType, v: f64) -> Expr {
    Expr::Const(Scalar::of(dtype, v))
}

/// The iteration space of a definition under construction.
#[derive(Clone, Default)]
pub(super) struct Space {
    pub(super) iterators: Vec<Iterator>,
    /// Number of outer iterators, once the reduced ones have begun.
    pub(super) outer: Option<usize>,
}

impl Space {
    pub(super) fn new() -> Space {
        Space::default()
    }

    /// One iterator `i0, i1, …` for each dimension of `shape`.
    pub(super) fn over(shape: &[i64]) -> Space {
        let mut space = Space::new();
        for (d, &extent) in shape.iter().enumerate() {
            space.iterator(format!("i{d}"), extent);
        }
        space
    }

    pub(super) fn iterator(&mut self, name: impl Into<String>, extent: i64) -> Affine {
        self.iterators.push(Iterator::new(name, extent));
        Affine::var(Var(self.iterators.len() as u32 - 1))
    }

    /// The iterators that follow are reduced.
    pub(super) fn reduced(&mut self) {
        self.outer = Some(self.iterators.len());
    }

    pub(super) fn outer(&self) -> usize {
        self.outer.unwrap_or(self.iterators.len())
    }

    pub(super) fn var(&self, i: usize) -> Affine {
        Affine::var(Var(i as u32))
    }

    /// All outer iterators as subscripts.
    pub(super) fn subscripts(&self) -> Vec<Affine> {
        (0..self.outer()).map(|i| self.var(i)).collect()
    }

    /// Least and greatest value of `a`.
    pub(super) fn bounds(&self, a: &Affine) -> (i64, i64) {
        a.bounds(ranges(&self.iterators))
    }

    /// The conditions under which `index` lies in `0..extent`; those that always hold are left out.
    pub(super) fn inside(&self, index: &Affine, extent: i64) -> Vec<Affine> {
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
pub(super) struct Build {
    pub(super) program: Program,
    pub(super) inputs: Vec<TensorType>,
    pub(super) output: TensorType,
}

impl Build {
    pub(super) fn new(op: &Op, inputs: &[TensorType], output: TensorType) -> Build {
        let names: &[&str] = match op {
            Op::Conv { .. } | Op::ConvTranspose { .. } => &["x", "w", "b"],
            Op::WinogradInput { .. } | Op::WinogradOutput { .. } => &["x", "p", "q", "r"],
            Op::WinogradWeights => &["w", "p", "q", "r"],
            Op::LayerNorm { .. } => &["x", "scale", "bias"],
            Op::BlockProduct { .. } => &["x", "w", "scale", "factor", "offset", "zero"],
            op if op.is_gather() => &["x", "index"],
            Op::ScatterElements { .. } | Op::ScatterNd { .. } => &["x", "index", "updates"],
            _ if inputs.len() == 1 => &["x"],
            _ => &["a", "b", "c"],
        };
        let declare = |name: String, t: &TensorType, role| TensorDecl::new(name, t.dtype, &t.shape[..], role);
        let name = |i: usize| names.get(i).map_or_else(|| format!("x{i}"), |n| n.to_string());
        let mut tensors: Vec<TensorDecl> =
            inputs.iter().enumerate().map(|(i, t)| declare(name(i), t, Role::Input)).collect();
        tensors.push(declare("y".into(), &output, Role::Output));
        Build { program: Program { tensors, definitions: vec![] }, inputs: inputs.to_vec(), output }
    }

    pub(super) fn input(&self, i: usize) -> BufferId {
        BufferId(i as u32)
    }

    pub(super) fn target(&self) -> BufferId {
        BufferId(self.inputs.len() as u32)
    }

    pub(super) fn temporary(&mut self, name: &str, shape: &[i64]) -> BufferId {
        self.temporary_of(self.output.dtype, name, shape)
    }

    pub(super) fn temporary_of(&mut self, dtype: DType, name: &str, shape: &[i64]) -> BufferId {
        let role = Role::Temporary;
        self.program.tensors.push(TensorDecl::new(name, dtype, shape, role));
        BufferId(self.program.tensors.len() as u32 - 1)
    }

    /// Operand `i`, stretched over the outer iterators of `space` as in NumPy.
    pub(super) fn broadcast(&self, i: usize, space: &Space) -> Expr {
        let shape = &self.inputs[i].shape;
        let skip = space.outer() - shape.len();
        let subscript = |(d, &extent): (usize, &i64)| {
            let stretched = extent == 1 && space.iterators[d + skip].extent != 1;
            if stretched { Affine::constant(0) } else { space.var(d + skip) }
        };
        Expr::load(self.input(i), shape.iter().enumerate().map(subscript).collect())
    }

    /// An element of operand `i` in the type of the result.
    pub(super) fn widened(&self, i: usize, element: Expr) -> Expr {
        if self.inputs[i].dtype == self.output.dtype { element } else { Expr::cast(self.output.dtype, element) }
    }

    /// `target(iterators) = body`.
    pub(super) fn assign(&mut self, target: BufferId, space: Space, body: Expr) {
        let write = space.subscripts();
        self.define(target, space, write, None, vec![], body);
    }

    /// `target(write) = reduce of body` where the conditions hold.
    pub(super) fn define(
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
        let (iterators, computed) = (space.iterators, vec![]);
        let definition = Definition { target, iterators, outer, write, computed, reduce, conditions, body };
        self.program.definitions.push(definition);
    }

    /// `target(index) = body`, or `reduce(target(index), body)`, for each point of `space` in its order; some subscripts
    /// are data.
    pub(super) fn scatter(
        &mut self,
        target: BufferId,
        space: Space,
        index: Vec<Index>,
        reduce: Option<BinaryOp>,
        body: Expr,
    ) {
        let (write, computed) = write_and_computed(index);
        let (outer, iterators) = (space.outer(), space.iterators);
        let conditions = vec![];
        let definition = Definition { target, iterators, outer, write, computed, reduce, conditions, body };
        self.program.definitions.push(definition);
    }
}
