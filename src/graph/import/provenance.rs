//! The nodes of the file that the nodes of a graph come from, and those that leave nothing to compute at run time.
//!
//! In: the nodes of the file as they are converted. Out: the origins of each node of the graph, and a list of the nodes of
//! the file that no node of the graph comes from.

use crate::graph::ir::{Graph, ValueId};
use crate::graph::proto::{GraphProto, NodeProto};
use crate::graph::subgraph;
use std::collections::HashSet;
use std::sync::Arc;

/// A node of the file, as [`Node::origins`](crate::graph::ir::Node::origins) name it.
pub type Origin = Arc<str>;

/// A node of the file that no node of the graph comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent {
    pub origin: Origin,
    /// Its results are constants. Others move nothing, or no output needs them.
    pub folded: bool,
}

/// The origins of the nodes of one graph of the file.
#[derive(Default)]
pub(super) struct Provenance<'m> {
    /// Of the node that the graph is inside of.
    around: Option<Origin>,
    /// Of the node that is being converted.
    current: Option<Origin>,
    /// Names that more than one node has.
    repeated: HashSet<&'m str>,
    /// The nodes so far, with their results.
    converted: Vec<(Origin, Vec<ValueId>)>,
    /// The nodes of graphs that are done, present ones too.
    done: Vec<Absent>,
}

impl<'m> Provenance<'m> {
    /// That of the nodes of a graph inside of the node with the origin `around`.
    pub(super) fn new(proto: &'m GraphProto, around: Option<Origin>) -> Provenance<'m> {
        let (mut seen, mut repeated) = (HashSet::new(), HashSet::new());
        for node in &proto.node {
            if !seen.insert(node.name.as_str()) {
                repeated.insert(node.name.as_str());
            }
        }
        Provenance { current: around.clone(), around, repeated, ..Provenance::default() }
    }

    /// The origin of the nodes that are emitted now.
    pub(super) fn current(&self) -> Option<&Origin> {
        self.current.as_ref()
    }

    /// Begins with a node.
    pub(super) fn enter(&mut self, node: &NodeProto) {
        self.current = Some(self.origin(node));
    }

    fn origin(&self, node: &NodeProto) -> Origin {
        let name = match self.repeated.contains(node.name.as_str()) || node.name.is_empty() {
            true => by_result(node),
            false => node.name.clone(),
        };
        match &self.around {
            Some(around) => format!("{around}/{name}").into(),
            None => name.into(),
        }
    }

    /// Notes the results of the node that was entered last.
    pub(super) fn leave(&mut self, results: &[Option<ValueId>]) {
        self.converted.extend(self.current.clone().map(|origin| (origin, results.iter().flatten().copied().collect())));
    }

    /// Closes the list of converted nodes of `graph` while the numbers of their results hold.
    pub(super) fn close(&mut self, graph: &Graph) -> Vec<Absent> {
        let constant = |results: &[ValueId]| results.iter().all(|&v| graph.constant(v).is_some());
        let closed = self.converted.drain(..).map(|(origin, results)| Absent { origin, folded: constant(&results) });
        self.done.extend(closed);
        std::mem::take(&mut self.done)
    }

    /// Adds the nodes of a graph inside that has a graph of its own.
    pub(super) fn add_closed(&mut self, closed: Vec<Absent>) {
        self.done.extend(closed);
    }

    /// Takes over the nodes of a graph inside whose nodes are in the same graph.
    pub(super) fn take_inlined(&mut self, inner: Provenance) {
        self.converted.extend(inner.converted);
        self.done.extend(inner.done);
    }
}

/// The origins of the nodes of a graph inside of the node `around`, in the order of the file.
pub fn origins(proto: &GraphProto, around: Option<&Origin>) -> Vec<Origin> {
    let provenance = Provenance::new(proto, around.cloned());
    proto.node.iter().map(|node| provenance.origin(node)).collect()
}

/// The name of a node, or of its first result.
pub(super) fn place(node: &NodeProto) -> String {
    if node.name.is_empty() { node.output.first().cloned().unwrap_or_default() } else { node.name.clone() }
}

/// A node by its operator and its first result: `Add(sum)`.
fn by_result(node: &NodeProto) -> String {
    let result = node.output.iter().find(|o| !o.is_empty());
    format!("{}({})", node.op_type, result.map_or("", |o| o))
}

/// Those of the converted nodes that no node of the graph comes from, each once.
pub(super) fn absent(graph: &Graph, converted: Vec<Absent>) -> Vec<Absent> {
    let mut present: HashSet<Origin> = subgraph::origins(graph).into_iter().collect();
    converted.into_iter().filter(|node| present.insert(node.origin.clone())).collect()
}
