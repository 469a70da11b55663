//! Fusion: which nodes end in one kernel.
//!
//! In: a graph, and where each of its nodes runs as the extraction chose it. Out: groups of nodes in an order that can be
//! executed, each node but the reshapes in one of them (a copy that is read through may stand in several), and for each
//! group one tensor expression. Invariant: no cycle runs through a group.
//!
//! A group is one of: an opaque node alone; a convolution or matrix product with copies before and injective operators
//! after; a reduction with elementwise operators before and after; injective operators. This is the classification of TVM
//! (Chen et al., OSDI 2018), with outputs allowed in the middle of a group; `join.rs` has the ways that two operators may
//! stand in one kernel. Reshapes never move data: they are aliases between groups, and inside a group only where the old
//! subscripts are affine in the new.

mod join;
mod parts;
mod program;
mod slices;

use crate::graph::define::kind;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::{FusionKind, Op};
use crate::graph::{Error, Result};
use std::collections::BTreeMap;

pub use join::{
    Join, Stored, Way, affine_reshape, before_reduction, is_elementwise, is_expensive, is_view, joins, reads_through,
};
pub use program::{program, scalar_constant};
pub use slices::Slice;

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

/// Where a node runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// In a kernel that is its own, others may stand in it.
    #[default]
    Own,
    /// In the kernel of another node.
    With(u32),
    /// In none: those who read its result read its operand instead.
    Through,
}

/// The groups of a graph whose nodes run at `places`.
pub fn fuse(graph: &Graph, places: &[Place]) -> Result<Vec<Group>> {
    let n = graph.nodes.len();
    if places.len() != n {
        return Err(Error::Internal(format!("{} places for {n} nodes", places.len())));
    }
    let live = live_nodes(graph);
    let producer = |v: ValueId| match graph.value(v).source {
        Source::Node(n, _) => Some(n as usize),
        _ => None,
    };
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for i in (0..n).filter(|&i| live[i] && places[i] != Place::Through) {
        members.entry(kernel_of(i, places)?).or_default().push(i);
    }
    for nodes in members.values_mut() {
        // What is read through stands in the kernels of its readers.
        let mut open = nodes.clone();
        while let Some(i) = open.pop() {
            let operands = graph.nodes[i].inputs.iter().filter_map(|&v| producer(v));
            for p in operands.filter(|&p| places[p] == Place::Through) {
                if !nodes.contains(&p) {
                    nodes.push(p);
                    open.push(p);
                }
            }
        }
        nodes.sort_unstable();
    }
    let is_alias = |nodes: &[usize]| nodes.iter().all(|&m| matches!(graph.nodes[m].op, Op::Reshape { .. }));
    let ordered = order(graph, members.into_values().collect(), places)?;
    let kernels = ordered.iter().filter(|nodes| !is_alias(nodes));
    let mut groups = kernels.map(|nodes| group(graph, nodes, places)).collect();
    slices::write_in_place(graph, &mut groups);
    Ok(groups)
}

/// The node in whose kernel a node runs.
fn kernel_of(node: usize, places: &[Place]) -> Result<usize> {
    let mut at = node;
    for _ in 0..places.len() {
        match places[at] {
            Place::Own => return Ok(at),
            Place::With(other) => at = other as usize,
            Place::Through => break,
        }
    }
    Err(Error::Internal(format!("node {node} runs in no kernel")))
}

/// Whether an output of the graph needs the node.
fn live_nodes(graph: &Graph) -> Vec<bool> {
    let mut used = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|v| used[v.0 as usize] = true);
    let mut live = vec![false; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        live[i] = node.outputs.iter().any(|v| used[v.0 as usize]);
        if live[i] {
            node.inputs.iter().for_each(|v| used[v.0 as usize] = true);
        }
    }
    live
}

/// The kernels in an executable order, the one with the earliest node first among those that are ready.
fn order(graph: &Graph, mut waiting: Vec<Vec<usize>>, places: &[Place]) -> Result<Vec<Vec<usize>>> {
    let mut done: Vec<bool> = graph.values.iter().map(|v| !matches!(v.source, Source::Node(..))).collect();
    let first = |nodes: &[usize]| nodes.iter().copied().find(|&m| places[m] != Place::Through);
    waiting.sort_by_key(|nodes| first(nodes));
    let mut ordered = vec![];
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|nodes| {
            let inside = |v: &ValueId| nodes.iter().any(|&m| graph.nodes[m].outputs.contains(v));
            nodes.iter().flat_map(|&m| &graph.nodes[m].inputs).all(|v| done[v.0 as usize] || inside(v))
        });
        let Some(position) = ready else {
            return Err(Error::Internal("a cycle through fused groups".into()));
        };
        let nodes = waiting.remove(position);
        for &m in nodes.iter().filter(|&&m| places[m] != Place::Through) {
            graph.nodes[m].outputs.iter().for_each(|v| done[v.0 as usize] = true);
        }
        ordered.push(nodes);
    }
    Ok(ordered)
}

fn group(graph: &Graph, nodes: &[usize], places: &[Place]) -> Group {
    let inside = |v: ValueId| nodes.iter().any(|&m| graph.nodes[m].outputs.contains(&v));
    let used_outside = |v: ValueId| {
        let elsewhere = |(i, node): (usize, &Node)| !nodes.contains(&i) && node.inputs.contains(&v);
        graph.outputs.contains(&v) || graph.nodes.iter().enumerate().any(elsewhere)
    };
    let mut inputs: Vec<ValueId> = vec![];
    let mut outputs = vec![];
    for &m in nodes {
        let opaque = kind(&graph.nodes[m].op) == FusionKind::Opaque;
        for &v in &graph.nodes[m].inputs {
            let written = scalar_constant(graph, v).is_some() && !opaque;
            if !inside(v) && !written && !inputs.contains(&v) {
                inputs.push(v);
            }
        }
        if places[m] != Place::Through {
            outputs.extend(graph.nodes[m].outputs.iter().filter(|&&v| opaque || used_outside(v)));
        }
    }
    let words: Vec<&str> = nodes.iter().map(|&m| graph.nodes[m].op.mnemonic()).collect();
    let name = match words.len() {
        0..=6 => words.join("_"),
        n => format!("{}_{}_more", words[..5].join("_"), n - 5),
    };
    Group { name, nodes: nodes.iter().map(|&m| m as u32).collect(), inputs, outputs, slices: vec![] }
}

/// One line for each group: its operators, inputs and outputs.
pub fn describe(graph: &Graph, groups: &[Group]) -> String {
    let mut text = String::new();
    let shape = |v: &ValueId| {
        let ty = &graph.value(*v).ty;
        let extents: Vec<String> = ty.shape.iter().map(i64::to_string).collect();
        format!("%{} {}[{}]", v.0, ty.dtype, extents.join(","))
    };
    for (i, group) in groups.iter().enumerate() {
        let list = |values: &[ValueId]| values.iter().map(shape).collect::<Vec<_>>().join(", ");
        let (inputs, outputs) = (list(&group.inputs), list(&group.outputs));
        text += &format!("{i:4} {} ({inputs}) -> {outputs}\n", group.name);
    }
    text
}

#[cfg(test)]
mod tests;
