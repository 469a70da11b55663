//! Graph: tensor operators in SSA form, every shape known.

use crate::graph::infer::MAX_ELEMENTS;
use crate::graph::op::Op;
use crate::graph::{DType, Error, Result, Tensor};
use std::sync::Arc;

/// A value of the graph; prints as `%7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<i64>,
}

impl TensorType {
    pub fn new(dtype: DType, shape: &[i64]) -> TensorType {
        TensorType { dtype, shape: shape.to_vec() }
    }

    pub fn of(tensor: &Tensor) -> TensorType {
        TensorType { dtype: tensor.dtype, shape: tensor.shape.clone() }
    }

    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> usize {
        self.elements() as usize * self.dtype.bytes()
    }

    /// Fails when an extent is negative or there are more elements than any real tensor has.
    pub fn check(&self) -> Result<()> {
        let count = self.shape.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(1)));
        if self.shape.iter().any(|&d| d < 0) {
            return Err(Error::Invalid(format!("{self} has a negative extent")));
        }
        if count.is_none_or(|n| n > MAX_ELEMENTS) {
            return Err(Error::Limit(format!("{self} has more than {MAX_ELEMENTS} elements")));
        }
        Ok(())
    }
}

/// `f32[1,3,224,224]`.
impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(i64::to_string).collect();
        write!(f, "{}[{}]", self.dtype, shape.join(","))
    }
}

#[derive(Clone, Debug)]
pub struct Value {
    pub name: String,
    pub ty: TensorType,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub enum Source {
    Input,
    Constant(Arc<Tensor>),
    /// Output `1` of node `0`.
    Node(u32, u32),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

/// Nodes stand in topological order: every input of a node is defined before it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub name: String,
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

impl Graph {
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    pub fn constant(&self, id: ValueId) -> Option<&Arc<Tensor>> {
        match &self.value(id).source {
            Source::Constant(t) => Some(t),
            _ => None,
        }
    }
}
