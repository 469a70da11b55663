//! Multiply-adds: the amount of work that no rewriting may increase.
//!
//! In: an e-graph and its roots, or the chosen candidates. Out: the multiply-adds of convolutions and matrix products that
//! the roots need and that do not depend on constants only, each counted once.

use crate::graph::cost::{group, multiply_adds};
use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::extract::problem::Problem;
use crate::graph::op::Op;
use crate::runtime::DType;
use egg::Id;
use std::collections::BTreeSet;

/// The multiply-adds of the source graph, equal nodes counted once.
pub fn of_source(network: &Network, roots: &[Id]) -> u64 {
    let source = network.source_terms();
    let mut seen = BTreeSet::new();
    let mut open: Vec<Id> = roots.iter().map(|&r| network.find(r)).collect();
    let mut sum = 0u64;
    while let Some(id) = open.pop() {
        if network.is_constant(id) || !seen.insert(id) {
            continue;
        }
        let Some(term) = source.get(&id) else { continue };
        sum = sum.saturating_add(of_term(network, id, term));
        open.extend(term.children.iter().map(|&c| network.find(c)));
    }
    sum
}

/// The multiply-adds of the chosen candidates that the roots need.
pub fn of(problem: &Problem, chosen: &[Option<usize>]) -> u64 {
    let mut seen = vec![false; chosen.len()];
    let mut open = problem.roots.clone();
    let mut sum = 0u64;
    while let Some(class) = open.pop() {
        let Some(k) = chosen[class].filter(|_| !std::mem::replace(&mut seen[class], true)) else { continue };
        sum = sum.saturating_add(of_term(problem.network, problem.ids[class], problem.term((class, k))));
        open.extend(&problem.classes[class][k].children);
    }
    sum
}

/// The multiply-adds of one e-node. Those of bytes count as one for each group that a lane sums, where the target has products of bytes.
pub fn of_term(network: &Network, class: Id, term: &Term) -> u64 {
    let Head::Op(op) = &term.head else { return 0 };
    let Some(result) = network.facts(class).types.first() else { return 0 };
    let operands: Vec<_> = term.children.iter().map(|&c| network.ty(c)).collect();
    let bytes = network.byte_products.is_some()
        && operands.len() > 1
        && operands[..2].iter().all(|t| matches!(t.dtype, DType::I8 | DType::U8));
    let operations = multiply_adds(op, &operands, result) / if bytes { group(DType::U8) as u64 } else { 1 };
    match term.children.get(1).and_then(|&w| padded(network, w)) {
        Some((filled, elements)) if operations > 0 => operations / elements.max(1) * filled,
        _ => operations,
    }
}

/// Elements of constant weights without the zeros that pad them, and all; `None` where none do.
fn padded(network: &Network, weights: Id) -> Option<(u64, u64)> {
    let elements = |id: Id| network.shape(id).iter().product::<i64>().unsigned_abs();
    let mut id = weights;
    for _ in 0..2 {
        let inside = network.applications(id).find_map(|(op, c)| match op {
            Op::Pad { value: 0, .. } => Some((true, c[0])),
            Op::Reshape { .. } => Some((false, c[0])),
            _ => None,
        });
        match inside.filter(|_| network.is_constant(weights))? {
            (true, filled) => return Some((elements(filled), elements(id))),
            (false, reshaped) => id = reshaped,
        }
    }
    None
}
