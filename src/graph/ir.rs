//! Graph: tensor operators in SSA form, every shape known.

use crate::graph::infer::infer;
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{Error, Result, Tensor};
use std::sync::Arc;

/// A value of the graph; prints as `%7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

/// A tensor of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name in the model file; inputs and outputs are given by it.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Origin of the contents.
    pub source: Source,
}

/// Origin of a value.
#[derive(Clone, Debug)]
pub enum Source {
    /// An input of the graph.
    Input,
    /// Contents that are known when the graph is compiled.
    Constant(Arc<Tensor>),
    /// Output `1` of node `0`.
    Node(u32, u32),
}

/// One application of an operator.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name in the model file, for messages.
    pub name: String,
    /// The nodes of the model file whose values it computes, alone or together with others; none where the graph is of no
    /// file. Of nodes without a name the operator and the first result, `Add(sum)`; of nodes inside of another one both,
    /// `loop/Add(sum)`.
    pub origins: Vec<Arc<str>>,
    /// Operator with its attributes.
    pub op: Op,
    /// Operands in the operator's order.
    pub inputs: Vec<ValueId>,
    /// Results in the operator's order.
    pub outputs: Vec<ValueId>,
}

/// Nodes stand in topological order: every input of a node is defined before it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name of the model.
    pub name: String,
    /// All values; a [`ValueId`] is an index here.
    pub values: Vec<Value>,
    /// All nodes, in topological order.
    pub nodes: Vec<Node>,
    /// Inputs in the model's order.
    pub inputs: Vec<ValueId>,
    /// Outputs in the model's order.
    pub outputs: Vec<ValueId>,
}

impl Graph {
    /// The value of this number. Panics when there is none.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// Adds a value; returns its number.
    pub(crate) fn add_value(&mut self, name: impl Into<String>, ty: TensorType, source: Source) -> ValueId {
        self.values.push(Value { name: name.into(), ty, source });
        ValueId(self.values.len() as u32 - 1)
    }

    /// The contents of a constant; `None` for another value.
    pub fn constant(&self, id: ValueId) -> Option<&Arc<Tensor>> {
        match &self.value(id).source {
            Source::Constant(t) => Some(t),
            _ => None,
        }
    }

    /// The node that makes a value, and which of its outputs it is.
    pub fn producer(&self, id: ValueId) -> Option<(&Node, u32)> {
        match self.value(id).source {
            Source::Node(n, o) => Some((&self.nodes[n as usize], o)),
            _ => None,
        }
    }

    /// The nodes that read each value, each as often as it reads it.
    pub(crate) fn users(&self) -> Vec<Vec<usize>> {
        let mut users = vec![vec![]; self.values.len()];
        for (n, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|v| users[v.0 as usize].push(n));
        }
        users
    }

    /// Returns, for each node, true if an output of the graph needs it, apart from those that are removed and what they alone
    /// need.
    pub(crate) fn live_nodes(&self, removed: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut used = vec![false; self.values.len()];
        self.outputs.iter().for_each(|v| used[v.0 as usize] = true);
        let mut live = vec![false; self.nodes.len()];
        for (n, node) in self.nodes.iter().enumerate().rev() {
            live[n] = !removed(n) && node.outputs.iter().any(|v| used[v.0 as usize]);
            if live[n] {
                node.inputs.iter().for_each(|v| used[v.0 as usize] = true);
            }
        }
        live
    }

    /// Checks ids, sources, the order of nodes, and every type against what its operator infers.
    ///
    /// # Errors
    /// [`Error::Internal`] at the first inconsistency; [`Error::Invalid`] where an operator refuses the types of its
    /// operands.
    pub fn verify(&self) -> Result<()> {
        let fail = |what: String| Err(Error::Internal(format!("graph {}: {what}", self.name)));
        let ids =
            self.nodes.iter().flat_map(|n| n.inputs.iter().chain(&n.outputs)).chain(&self.inputs).chain(&self.outputs);
        if let Some(id) = ids.into_iter().find(|id| id.0 as usize >= self.values.len()) {
            return fail(format!("value {id} does not exist"));
        }
        let mut defined = vec![false; self.values.len()];
        for (i, value) in self.values.iter().enumerate() {
            let id = ValueId(i as u32);
            match &value.source {
                Source::Input if !self.inputs.contains(&id) => {
                    return fail(format!("{id} is not an input of the graph"));
                }
                Source::Constant(t) if TensorType::of(t) != value.ty => {
                    return fail(format!("constant {id} is {}, not {}", TensorType::of(t), value.ty));
                }
                Source::Constant(t) if t.data.len() != value.ty.bytes() => {
                    return fail(format!("constant {id} has {} bytes", t.data.len()));
                }
                Source::Node(n, o) => {
                    let made = self.nodes.get(*n as usize).and_then(|n| n.outputs.get(*o as usize));
                    if made != Some(&id) {
                        return fail(format!("{id} does not come from output {o} of node {n}"));
                    }
                }
                _ => {}
            }
            defined[i] = !matches!(value.source, Source::Node(..));
        }
        for &id in &self.inputs {
            if !matches!(self.value(id).source, Source::Input) {
                return fail(format!("input {id} has another source"));
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let place = format!("node {n} ({} {})", node.op, node.name);
            if let Some(id) = node.inputs.iter().find(|id| !defined[id.0 as usize]) {
                return fail(format!("{place} reads {id} before it is defined"));
            }
            let operands: Vec<&TensorType> = node.inputs.iter().map(|&id| &self.value(id).ty).collect();
            let types = infer(&node.op, &operands)?;
            if types.len() != node.outputs.len() {
                return fail(format!("{place} has {} outputs instead of {}", node.outputs.len(), types.len()));
            }
            for (o, (&id, ty)) in node.outputs.iter().zip(&types).enumerate() {
                if !matches!(self.value(id).source, Source::Node(m, p) if (m, p) == (n as u32, o as u32)) {
                    return fail(format!("output {o} of {place} is {id}, which has another source"));
                }
                if &self.value(id).ty != ty {
                    return fail(format!("{id} is {}, but {place} gives {ty}", self.value(id).ty));
                }
                defined[id.0 as usize] = true;
            }
        }
        match self.outputs.iter().find(|id| !defined[id.0 as usize]) {
            Some(id) => fail(format!("output {id} is not defined")),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for ValueId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "%{}", self.0)
    }
}
