//! The definition of graphs: one operator after the other, each by its tensor expressions, one scalar at a time. The oracle
//! that tests compare with.

use crate::graph::define::define;
use crate::graph::fold;
use crate::graph::infer::infer;
use crate::graph::ir::Graph;
use crate::graph::op::Op;
use crate::graph::subgraph;
use crate::graph::tensor_type::TensorType;
use crate::poly::reference;
use crate::runtime::{Result, Tensor};

/// Evaluates a graph: every value by its operator's definition, opaque operators by the runtime's functions.
///
/// # Errors
/// `Invalid` for inputs that are not those of the graph, and of an operator that its operands do not suit.
pub fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    subgraph::run(graph, &inputs.iter().collect::<Vec<_>>(), &apply)
}

/// The outputs of one operator. What has no tensor expression is one function for the oracle and the folding.
///
/// # Errors
/// `Invalid` where the operands do not suit the operator.
pub fn apply(op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    if let Op::Opaque { .. } | Op::Reshape { .. } = op {
        return fold::evaluate(op, operands);
    }
    if !subgraph::bodies(op).is_empty() {
        let types: Vec<TensorType> = operands.iter().map(|t| TensorType::of(t)).collect();
        let results = infer(op, &types.iter().collect::<Vec<_>>())?;
        return subgraph::evaluate(op, operands, &results, &apply);
    }
    let types: Vec<TensorType> = operands.iter().map(|t| TensorType::of(t)).collect();
    reference::evaluate(&define(op, &types)?, operands)
}
