//! Graph: tensor operators in SSA form, every shape known.

use crate::graph::op::Op;
use crate::graph::{DType, Tensor};
use std::sync::Arc;

/// A value of the graph; prints as `%7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<i64>,
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
