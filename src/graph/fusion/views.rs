//! Views: values that lie in one piece in the memory of another value.
//!
//! In: groups. Out: groups without those that only copy a piece of a value, or put pieces one after the other, where all
//! dimensions before the divided one are 1: the piece is part of the whole's memory, under a shape of its own. Kernels know
//! nothing of it, so that equal ones stay equal. A value that lies in an input, a constant or an output of the graph is copied.

use crate::graph::fusion::group::Group;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::Op;
use std::collections::{BTreeMap, BTreeSet};

/// A value that lies in another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    pub value: ValueId,
    pub of: ValueId,
    /// Bytes before it.
    pub offset: u64,
}

/// Takes away the groups that only make views.
pub fn leave_out_copies(graph: &Graph, groups: &mut Vec<Group>) {
    let copies = groups.iter().filter_map(|group| match group.nodes[..] {
        [n] if matches!(graph.nodes[n as usize].op, Op::Slice { .. } | Op::Concat { .. }) => Some(n),
        _ => None,
    });
    let mut memory = Memory::new(graph);
    let mut copies: Vec<u32> = copies.collect();
    copies.sort_unstable();
    let made: Vec<(u32, Vec<View>)> = copies.into_iter().filter_map(|n| Some((n, memory.add(n)?))).collect();
    // Memory of others, and values that callers see.
    let seen: BTreeSet<ValueId> = graph.outputs.iter().map(|&v| memory.root(v)).collect();
    let fixed = |v: ValueId| seen.contains(&v) || !matches!(graph.value(v).source, Source::Node(..));
    let movable = |views: &Vec<View>| views.iter().all(|w| !fixed(memory.root(w.value)));
    let left_out: BTreeSet<u32> = made.into_iter().filter(|(_, views)| movable(views)).map(|m| m.0).collect();
    groups.retain(|group| !matches!(group.nodes[..], [n] if left_out.contains(&n)));
}

/// The views of a graph with these groups: what copies and concatenations make that no group computes and none writes in
/// place.
pub fn views(graph: &Graph, groups: &[Group]) -> Vec<View> {
    let computed: BTreeSet<u32> = groups.iter().flat_map(|g| g.nodes.iter().copied()).collect();
    let in_place: BTreeSet<ValueId> = groups.iter().flat_map(|g| &g.slices).map(|slice| slice.whole).collect();
    let live = graph.live_nodes(|_| false);
    let mut memory = Memory::new(graph);
    let left_out = |&n: &u32| {
        let node = &graph.nodes[n as usize];
        let copies = matches!(node.op, Op::Slice { .. } | Op::Concat { .. }) && live[n as usize];
        copies && !computed.contains(&n) && !in_place.contains(&node.outputs[0])
    };
    (0..graph.nodes.len() as u32).filter(left_out).filter_map(|n| memory.add(n)).flatten().collect()
}

/// Values in the memory of others: reshapes, and views.
struct Memory<'g> {
    graph: &'g Graph,
    parent: BTreeMap<ValueId, ValueId>,
}

impl Memory<'_> {
    fn new(graph: &Graph) -> Memory<'_> {
        let reshapes = graph.nodes.iter().filter(|node| matches!(node.op, Op::Reshape { .. }));
        Memory { graph, parent: reshapes.map(|node| (node.outputs[0], node.inputs[0])).collect() }
    }

    fn root(&self, mut value: ValueId) -> ValueId {
        while let Some(&parent) = self.parent.get(&value) {
            value = parent;
        }
        value
    }

    /// The views that a copy or concatenation makes; `None` where its pieces are not in one piece, or lie elsewhere.
    fn add(&mut self, n: u32) -> Option<Vec<View>> {
        let Node { op, inputs, outputs, .. } = &self.graph.nodes[n as usize];
        let views = match op {
            Op::Slice { starts, ends, steps } => {
                let shape = &self.graph.value(inputs[0]).ty.shape;
                let cut = |d: &usize| (starts[*d], ends[*d]) != (0, shape[*d]) || steps[*d] != 1;
                let axis = (0..shape.len()).rev().find(cut)?;
                let first = (steps[axis] == 1 && shape[..axis].iter().all(|&e| e == 1)).then(|| starts[axis])?;
                vec![View { value: outputs[0], of: inputs[0], offset: self.bytes_before(inputs[0], axis, first) }]
            }
            Op::Concat { axis } => {
                if self.graph.value(outputs[0]).ty.shape[..*axis].iter().any(|&e| e != 1) {
                    return None;
                }
                let mut start = 0;
                let mut pieces = vec![];
                for (i, &value) in inputs.iter().enumerate() {
                    let made = matches!(self.graph.value(value).source, Source::Node(..));
                    if !made || self.parent.contains_key(&value) || inputs[..i].contains(&value) {
                        return None;
                    }
                    pieces.push(View { value, of: outputs[0], offset: self.bytes_before(outputs[0], *axis, start) });
                    start += self.graph.value(value).ty.shape[*axis];
                }
                pieces
            }
            _ => return None,
        };
        self.parent.extend(views.iter().map(|w| (w.value, w.of)));
        Some(views)
    }

    /// Bytes of the first `count` places of a dimension.
    fn bytes_before(&self, value: ValueId, axis: usize, count: i64) -> u64 {
        let ty = &self.graph.value(value).ty;
        (count * ty.shape[axis + 1..].iter().product::<i64>()) as u64 * ty.dtype.bytes() as u64
    }
}
