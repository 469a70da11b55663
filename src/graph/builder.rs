//! Graphs from Rust.
//!
//! In: calls, one for each value. Out: a verified [`Graph`]. Invariant: every value has a type that its operator gives it.

use crate::expr::BinaryOp;
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::{Layout, Op, ReduceOp, Window};
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Error, Result, Tensor};
use std::sync::Arc;

/// Builds a [`Graph`] value by value; each method checks the types of its operands.
///
/// ```
/// use tilewright::GraphBuilder;
/// use tilewright::{DType, Model, Options, Tensor};
///
/// # fn main() -> tilewright::Result<()> {
/// let mut b = GraphBuilder::new("layer");
/// let x = b.input("x", DType::F32, &[2, 3]);
/// let w = b.constant(Tensor::new(&[3, 2], &[1f32, 0.0, 0.0, 1.0, -1.0, 1.0]));
/// let product = b.matmul(x, w)?;
/// let y = b.relu(product)?;
/// b.output("y", y)?;
/// let compiled = Model::from_graph(b.build()?).compile(&Options::default())?;
/// let input = Tensor::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(compiled.run(&[("x", &input)])?[0].to_vec::<f32>(), [0.0, 5.0, 0.0, 11.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct GraphBuilder {
    graph: Graph,
}

impl GraphBuilder {
    /// A graph called `name`, without values.
    pub fn new(name: &str) -> GraphBuilder {
        GraphBuilder { graph: Graph { name: name.into(), ..Graph::default() } }
    }

    /// An input of the graph.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[i64]) -> ValueId {
        let ty = TensorType { dtype, shape: shape.to_vec() };
        let id = self.graph.add_value(name, ty, Source::Input);
        self.graph.inputs.push(id);
        id
    }

    /// A value that is known when the graph is compiled.
    pub fn constant(&mut self, tensor: Tensor) -> ValueId {
        let ty = TensorType { dtype: tensor.dtype, shape: tensor.shape.clone() };
        let name = format!("constant_{}", self.graph.values.len());
        self.graph.add_value(name, ty, Source::Constant(Arc::new(tensor)))
    }

    /// Any operator; its results in order.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn op(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let types = {
            let operands: Vec<&TensorType> = inputs.iter().map(|&i| &self.graph.value(i).ty).collect();
            infer(&op, &operands)?
        };
        let index = self.graph.nodes.len() as u32;
        let name = format!("{}_{index}", op.mnemonic());
        let outputs: Vec<ValueId> = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| self.graph.add_value(format!("{name}.{i}"), ty, Source::Node(index, i as u32)))
            .collect();
        let origins = vec![name.as_str().into()];
        self.graph.nodes.push(Node { name, origins, op, inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    fn one(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        Ok(self.op(op, inputs)?[0])
    }

    /// An elementwise operation of two operands, which broadcast as in NumPy.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.one(Op::Binary(op), &[a, b])
    }

    /// The sum, element by element; operands broadcast as in NumPy.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryOp::Add, a, b)
    }

    /// The product, element by element; operands broadcast as in NumPy.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `max(x, 0)` of an f32 value.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn relu(&mut self, x: ValueId) -> Result<ValueId> {
        let zero = self.constant(Tensor::new(&[], &[0f32]));
        self.binary(BinaryOp::Max, x, zero)
    }

    /// The matrix product over the last two dimensions.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.one(Op::MatMul { transpose_a: false, transpose_b: false }, &[a, b])
    }

    /// A convolution of an N, C, H, W image with F, C, R, S weights; `padding` on all four sides.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn conv2d(&mut self, x: ValueId, weights: ValueId, stride: i64, padding: i64) -> Result<ValueId> {
        let shape = &self.graph.value(weights).ty.shape;
        let &[_, _, rows, columns] = &shape[..] else {
            return Err(Error::Invalid(format!("weights of shape {shape:?} do not have 4 dimensions")));
        };
        let window = Window {
            kernel: vec![rows, columns],
            stride: vec![stride; 2],
            dilation: vec![1; 2],
            pad_before: vec![padding; 2],
            pad_after: vec![padding; 2],
        };
        self.one(Op::Conv { window, group: 1, layout: Layout::Nchw }, &[x, weights])
    }

    /// Same elements under another shape.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn reshape(&mut self, x: ValueId, shape: &[i64]) -> Result<ValueId> {
        self.one(Op::Reshape { shape: shape.to_vec() }, &[x])
    }

    /// Output dimension i is input dimension `perm[i]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId> {
        self.one(Op::Transpose { perm: perm.to_vec() }, &[x])
    }

    /// The softmax over the dimension `axis`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn softmax(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        self.one(Op::Softmax { axis, log: false }, &[x])
    }

    /// Reduced dimensions stay with extent 1 when `keep`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the types or shapes of the operands do not fit the operator.
    pub fn reduce(&mut self, op: ReduceOp, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
        self.one(Op::Reduce { op, axes: axes.to_vec(), keep }, &[x])
    }

    /// Makes the result of an operator an output of the graph, under a name.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the value is an input, a constant or an output already.
    pub fn output(&mut self, name: &str, value: ValueId) -> Result<()> {
        if !matches!(self.graph.value(value).source, Source::Node(..)) || self.graph.outputs.contains(&value) {
            return Err(Error::Invalid(format!("output `{name}` is already an input, a constant or an output")));
        }
        self.graph.values[value.0 as usize].name = name.into();
        self.graph.outputs.push(value);
        Ok(())
    }

    /// The finished graph; `Invalid` when it has no outputs.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the graph has no outputs.
    pub fn build(self) -> Result<Graph> {
        if self.graph.outputs.is_empty() {
            return Err(Error::Invalid("the graph has no outputs".into()));
        }
        self.graph.verify()?;
        Ok(self.graph)
    }
}
