//! The definition of graphs: one operator after the other, each by its tensor expressions, one scalar at a time. The oracle
//! that tests compare with.

use crate::graph::define::define;
use crate::graph::fold;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::poly::reference;
use crate::runtime::{Error, Result, Tensor};
use std::sync::Arc;

/// Evaluates a graph: every value by its operator's definition, opaque operators by the runtime's functions.
///
/// # Errors
/// `Invalid` for inputs that are not those of the graph, and of an operator that its operands do not suit.
pub fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if inputs.len() != graph.inputs.len() {
        return Err(Error::Invalid(format!("{} inputs given, the graph has {}", inputs.len(), graph.inputs.len())));
    }
    let mut values: Vec<Option<Arc<Tensor>>> = vec![None; graph.values.len()];
    for (&id, tensor) in graph.inputs.iter().zip(inputs) {
        let value = graph.value(id);
        if TensorType::of(tensor) != value.ty {
            let got = TensorType::of(tensor);
            return Err(Error::Invalid(format!("input {} is {got} instead of {}", value.name, value.ty)));
        }
        values[id.0 as usize] = Some(Arc::new(tensor.clone()));
    }
    for (slot, value) in values.iter_mut().zip(&graph.values) {
        if let Source::Constant(t) = &value.source {
            *slot = Some(t.clone());
        }
    }
    let mut last_use = vec![usize::MAX; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|v| last_use[v.0 as usize] = i);
    }
    graph.outputs.iter().for_each(|v| last_use[v.0 as usize] = usize::MAX);
    let get = |values: &[Option<Arc<Tensor>>], id: ValueId| {
        let missing = || Error::Internal(format!("value {} is used before it is computed", graph.value(id).name));
        values[id.0 as usize].clone().ok_or_else(missing)
    };
    for (i, node) in graph.nodes.iter().enumerate() {
        let operands: Vec<Arc<Tensor>> = node.inputs.iter().map(|&v| get(&values, v)).collect::<Result<_>>()?;
        let references: Vec<&Tensor> = operands.iter().map(|t| &**t).collect();
        let results = apply(&node.op, &references).map_err(|e| e.context(&format!("{} ({})", node.name, node.op)))?;
        for (&id, tensor) in node.outputs.iter().zip(results) {
            values[id.0 as usize] = Some(Arc::new(tensor));
        }
        for &v in &node.inputs {
            if last_use[v.0 as usize] == i {
                values[v.0 as usize] = None;
            }
        }
    }
    graph.outputs.iter().map(|&v| get(&values, v).map(|t| (*t).clone())).collect()
}

/// The outputs of one operator. What has no tensor expression is one function for the oracle and the folding.
fn apply(op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    if let Op::Opaque { .. } | Op::Reshape { .. } = op {
        return fold::evaluate(op, operands);
    }
    let types: Vec<TensorType> = operands.iter().map(|t| TensorType::of(t)).collect();
    reference::evaluate(&define(op, &types)?, operands)
}
