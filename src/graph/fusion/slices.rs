//! Concatenations and padding without copies: each operand is written to its place in the whole.
//!
//! In: groups. Out: groups without those that only concatenate what other kernels write and read element by element; the
//! writers and readers of an operand have the whole as input or output instead, and a [`Slice`] that says where it lies. A
//! group that only pads such a value writes the elements around it alone.

use crate::graph::fusion::group::Group;
use crate::graph::fusion::group::Slice;
use crate::graph::fusion::views::views;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::{FusionKind, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Writes concatenations in place where every operand allows it.
pub fn write_in_place(graph: &Graph, groups: &mut Vec<Group>, users: &[Vec<usize>]) {
    let mut slices: BTreeMap<ValueId, Slice> = BTreeMap::new();
    // A kernel that writes one part and reads another, or the same one, would read the whole before it is complete.
    let read = |g: &Group| g.nodes.iter().flat_map(|&n| graph.nodes[n as usize].inputs.clone()).collect();
    let touched: Vec<(Vec<ValueId>, Vec<ValueId>)> = groups.iter().map(|g| (read(g), g.outputs.clone())).collect();
    let mut near: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (i, (read, written)) in touched.iter().enumerate() {
        read.iter().chain(written).for_each(|&v| near.entry(v).or_default().push(i));
    }
    let mut wholes: BTreeSet<ValueId> = BTreeSet::new();
    let viewed: BTreeSet<ValueId> = views(graph, groups).iter().flat_map(|w| [w.value, w.of]).collect();
    groups.retain_mut(|group| {
        let [n] = group.nodes[..] else { return true };
        let node = &graph.nodes[n as usize];
        let Some(places) = places(graph, node) else { return true };
        let whole = node.outputs[0];
        let mut placed: BTreeMap<ValueId, Slice> = BTreeMap::new();
        for (&value, first) in node.inputs.iter().zip(places) {
            let nested = slices.contains_key(&value) || wholes.contains(&value) || viewed.contains(&value);
            if nested || !is_movable(graph, value, users) || placed.contains_key(&value) {
                return true;
            }
            placed.insert(value, Slice { value, whole, first });
        }
        let has = |values: &[ValueId]| values.iter().any(|v| placed.contains_key(v));
        let mut touching = placed.keys().flat_map(|v| &near[v]).map(|&i| &touched[i]);
        if touching.any(|(read, written)| has(read) && has(written)) {
            return true;
        }
        wholes.insert(whole);
        let pads = matches!(node.op, Op::Pad { .. });
        if pads {
            group.inputs.clear();
            group.slices = placed.values().cloned().collect();
        }
        slices.extend(placed);
        pads
    });
    for group in groups {
        for values in [&mut group.inputs, &mut group.outputs] {
            let mut placed: Vec<ValueId> = vec![];
            for v in values.drain(..) {
                let slice = slices.get(&v);
                group.slices.extend(slice.filter(|s| !group.slices.contains(s)).cloned());
                let place = slice.map_or(v, |s| s.whole);
                if !placed.contains(&place) {
                    placed.push(place);
                }
            }
            *values = placed;
        }
    }
}

/// The place of each operand in the result of a concatenation or of padding.
fn places(graph: &Graph, node: &Node) -> Option<Vec<Vec<i64>>> {
    match &node.op {
        Op::Concat { axis } => {
            let mut first = vec![0; graph.value(node.outputs[0]).ty.shape.len()];
            let mut place = |&value: &ValueId| {
                let position = first.clone();
                first[*axis] += graph.value(value).ty.shape[*axis];
                position
            };
            Some(node.inputs.iter().map(&mut place).collect())
        }
        Op::Pad { before, .. } => Some(vec![before.clone()]),
        _ => None,
    }
}

/// Returns true if a value may be stored with a larger distance between rows: a kernel writes it, kernels read it by
/// affine subscripts, and it has no other name.
fn is_movable(graph: &Graph, value: ValueId, users: &[Vec<usize>]) -> bool {
    let fits = |op: &Op| {
        let scatters = matches!(op, Op::ScatterElements { .. } | Op::ScatterNd { .. });
        op.kind() != FusionKind::Opaque && !op.is_gather() && !scatters && !matches!(op, Op::Reshape { .. })
    };
    let written = matches!(graph.value(value).source, Source::Node(n, _) if fits(&graph.nodes[n as usize].op));
    let mut readers = users[value.0 as usize].iter().map(|&n| &graph.nodes[n]);
    written && !graph.outputs.contains(&value) && readers.all(|node| fits(&node.op))
}
