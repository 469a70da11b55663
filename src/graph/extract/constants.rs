//! Extraction of constant expressions, which are computed once, when the model is compiled.
//!
//! In: an e-graph. Out: for each class of constants the e-node of the cheapest expression. Costs are in bytes written; only
//! their order matters.

use crate::graph::egraph::network::{Head, Network};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use egg::Id;
use std::collections::BTreeMap;

/// Cost of a reshape, which moves no data: ranks fewer reshapes first. Unmeasured.
const RESHAPE: f64 = 1.0;
/// Cost of an operator beyond the bytes that it writes: more than a few reshapes. Unmeasured.
const OPERATOR: f64 = 10.0;

/// Chooses for each class of constants the e-node with the least to compute, by its position.
pub fn choose_constants(network: &Network) -> BTreeMap<Id, usize> {
    let mut best: BTreeMap<Id, (f64, usize)> = BTreeMap::new();
    let mut ids: Vec<Id> = network.egraph.classes().filter(|c| c.data.constant).map(|c| c.id).collect();
    ids.sort_unstable();
    let mut changed = true;
    while changed {
        changed = false;
        for &id in &ids {
            for (position, term) in network.terms(id).iter().enumerate() {
                let cost = match &term.head {
                    Head::Constant(_) => 0.0,
                    Head::Op(Op::Reshape { .. }) => RESHAPE,
                    _ => OPERATOR + network.facts(id).types.iter().map(TensorType::bytes).sum::<usize>() as f64,
                };
                let operands: Option<f64> =
                    term.children.iter().map(|&c| best.get(&network.find(c)).map(|b| b.0)).sum();
                let Some(operands) = operands else { continue };
                if best.get(&id).is_none_or(|b| cost + operands < b.0) {
                    best.insert(id, (cost + operands, position));
                    changed = true;
                }
            }
        }
    }
    best.into_iter().map(|(id, (_, position))| (id, position)).collect()
}
