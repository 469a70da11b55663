//! Constant folding: applies an operator to tensors, many elements at a time.
//!
//! Operators that only move data run at the speed of memory ([`strips`] performs pure copies as such), so that the time to
//! transpose or split large weights is negligible; weights of minimal filtering are transformed in registers
//! ([`filters`]). Tests hold the results to the definition, `poly::reference`.

mod elements;
mod filters;
mod lanes;
pub mod memo;
mod strips;

use crate::graph::define::define;
use crate::graph::infer::infer;
use crate::graph::op::Op;
use crate::graph::subgraph;
use crate::graph::tensor_type::TensorType;
use crate::poly::reference;
use crate::runtime::{Result, Tensor, opaque};

/// The outputs of `op` on these tensors.
pub fn evaluate(op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let types: Vec<TensorType> = inputs.iter().map(|t| TensorType::of(t)).collect();
    let outputs = || infer(op, &types.iter().collect::<Vec<_>>());
    match op {
        Op::Reshape { .. } => {
            let shape = outputs()?.remove(0).shape;
            Ok(vec![Tensor { dtype: inputs[0].dtype, shape, data: inputs[0].data.clone() }])
        }
        Op::WinogradWeights => {
            let shape = outputs()?.remove(0).shape;
            Ok(vec![filters::transform(inputs[0], &inputs[1..], &shape)])
        }
        Op::Opaque { function, attributes } => {
            let outputs: Vec<_> = outputs()?.into_iter().map(|t| (t.dtype, t.shape)).collect();
            opaque::apply(function, attributes, inputs, &outputs)
        }
        Op::Scan { .. } | Op::If { .. } => subgraph::evaluate(op, inputs, &outputs()?, &evaluate),
        Op::ScatterElements { .. } | Op::ScatterNd { .. } => reference::evaluate(&define(op, &types)?, inputs),
        _ => strips::evaluate(&define(op, &types)?, inputs),
    }
}
