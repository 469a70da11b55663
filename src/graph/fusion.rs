//! Fusion: divides the nodes of a graph into groups, one kernel each.
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

pub mod group;
mod join;
mod parts;
mod program;
mod slices;
pub mod views;

use crate::graph::fusion::group::Group;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::{FusionKind, Op};
use crate::runtime::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::graph::fusion::group::Slice;
pub use join::{Join, Stored, Way, affine_reshape, before_reduction, is_view, joins, reads_through};
pub use program::{literals, program, scalar_constant};

/// Placement of a node: its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// In a kernel of its own, which others may join.
    #[default]
    Own,
    /// In the kernel of another node.
    With(u32),
    /// In no kernel: its readers read its operand instead.
    Through,
}

/// Forms the groups of a graph; `placements` has the kernel of each node.
pub fn fuse(graph: &Graph, placements: &[Placement]) -> Result<Vec<Group>> {
    let n = graph.nodes.len();
    if placements.len() != n {
        return Err(Error::Internal(format!("{} placements for {n} nodes", placements.len())));
    }
    let live = graph.live_nodes(|_| false);
    let producer = |v: ValueId| match graph.value(v).source {
        Source::Node(n, _) => Some(n as usize),
        _ => None,
    };
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for i in (0..n).filter(|&i| live[i] && placements[i] != Placement::Through) {
        members.entry(kernel_of(i, placements)?).or_default().push(i);
    }
    for nodes in members.values_mut() {
        // Nodes that are read through belong to the kernels of their readers.
        let mut open = nodes.clone();
        while let Some(i) = open.pop() {
            let operands = graph.nodes[i].inputs.iter().filter_map(|&v| producer(v));
            for p in operands.filter(|&p| placements[p] == Placement::Through) {
                if !nodes.contains(&p) {
                    nodes.push(p);
                    open.push(p);
                }
            }
        }
        nodes.sort_unstable();
    }
    let is_alias = |nodes: &[usize]| nodes.iter().all(|&m| matches!(graph.nodes[m].op, Op::Reshape { .. }));
    let ordered = order(graph, members.into_values().collect(), placements)?;
    let kernels = ordered.iter().filter(|nodes| !is_alias(nodes));
    let users = graph.users();
    let mut groups = kernels.map(|nodes| group(graph, nodes, placements, &users)).collect();
    views::leave_out_copies(graph, &mut groups);
    slices::write_in_place(graph, &mut groups, &users);
    Ok(groups)
}

/// The node in whose kernel a node runs.
pub fn kernel_of(node: usize, placements: &[Placement]) -> Result<usize> {
    let mut current = node;
    for _ in 0..placements.len() {
        match placements[current] {
            Placement::Own => return Ok(current),
            Placement::With(other) => current = other as usize,
            Placement::Through => break,
        }
    }
    Err(Error::Internal(format!("node {node} runs in no kernel")))
}

/// The kernels in an executable order, the one with the earliest node first among those that are ready.
fn order(graph: &Graph, mut kernels: Vec<Vec<usize>>, placements: &[Placement]) -> Result<Vec<Vec<usize>>> {
    let first = |nodes: &[usize]| nodes.iter().copied().find(|&m| placements[m] != Placement::Through);
    kernels.sort_by_key(|nodes| first(nodes));
    // The kernel that writes each value, the kernels that read it, and how many values each kernel waits for.
    let mut waits = vec![0; kernels.len()];
    let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (k, nodes) in kernels.iter().enumerate() {
        let inside: BTreeSet<ValueId> = nodes.iter().flat_map(|&m| graph.nodes[m].outputs.iter().copied()).collect();
        let read: BTreeSet<ValueId> = nodes.iter().flat_map(|&m| graph.nodes[m].inputs.iter().copied()).collect();
        for &v in read.difference(&inside).filter(|v| matches!(graph.value(**v).source, Source::Node(..))) {
            waits[k] += 1;
            readers.entry(v).or_default().push(k);
        }
    }
    let mut ready: BTreeSet<usize> = (0..kernels.len()).filter(|&k| waits[k] == 0).collect();
    let mut ordered = vec![];
    while let Some(k) = ready.pop_first() {
        let nodes = std::mem::take(&mut kernels[k]);
        for &m in nodes.iter().filter(|&&m| placements[m] != Placement::Through) {
            for reader in graph.nodes[m].outputs.iter().flat_map(|v| readers.remove(v).unwrap_or_default()) {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.insert(reader);
                }
            }
        }
        ordered.push(nodes);
    }
    if ordered.len() < kernels.len() {
        return Err(Error::Internal("a cycle through fused groups".into()));
    }
    Ok(ordered)
}

fn group(graph: &Graph, nodes: &[usize], placements: &[Placement], users: &[Vec<usize>]) -> Group {
    let members: BTreeSet<usize> = nodes.iter().copied().collect();
    let made: BTreeSet<ValueId> = nodes.iter().flat_map(|&m| graph.nodes[m].outputs.iter().copied()).collect();
    let used_outside =
        |v: ValueId| graph.outputs.contains(&v) || users[v.0 as usize].iter().any(|user| !members.contains(user));
    let mut inputs: Vec<ValueId> = vec![];
    let mut listed: BTreeSet<ValueId> = BTreeSet::new();
    let mut outputs = vec![];
    for &m in nodes {
        let opaque = graph.nodes[m].op.kind() == FusionKind::Opaque;
        for &v in &graph.nodes[m].inputs {
            let written = scalar_constant(graph, v).is_some() && !opaque;
            if !made.contains(&v) && !written && listed.insert(v) {
                inputs.push(v);
            }
        }
        if placements[m] != Placement::Through {
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
