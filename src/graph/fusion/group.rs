//! Groups of nodes that become one kernel.

use crate::graph::ir::ValueId;

/// Nodes that become one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The operators, joined: `conv_add_max`.
    pub name: String,
    /// Indices into [`Graph::nodes`], in topological order.
    pub nodes: Vec<u32>,
    /// Values from outside; constants of one element are written into the expression instead.
    pub inputs: Vec<ValueId>,
    /// Values used outside.
    pub outputs: Vec<ValueId>,
    /// Values that lie in inputs or outputs.
    pub slices: Vec<Slice>,
}

/// A value that lies in another one of its rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    pub value: ValueId,
    pub whole: ValueId,
    /// Place of its first element in the other, in each dimension.
    pub first: Vec<i64>,
}
