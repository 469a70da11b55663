//! The state of an import: the graph so far, and the values of ONNX names.

use super::provenance::{self, Absent, Provenance};
use crate::graph::fold::memo::Memo;
use crate::graph::import::bounded::state::Bounded;
use crate::graph::import::limits::ImportLimits;
use crate::graph::import::model::OnnxModel;
use crate::graph::ir::{Graph, ValueId};
use crate::graph::proto::{GraphProto, NodeProto};
use crate::runtime::bounds::Bounds;
use crate::runtime::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

/// Builds a graph; operators of constants are folded and never become nodes.
pub(super) struct Importer<'m> {
    pub(super) model: &'m OnnxModel,
    /// The graph of the file whose nodes are converted.
    pub(super) proto: &'m GraphProto,
    pub(in crate::graph) graph: Graph,
    /// `None`: the node that makes the value was not supported.
    pub(super) values: HashMap<&'m str, Option<ValueId>>,
    /// The name of the node that is being converted.
    pub(super) place: String,
    pub(super) provenance: Provenance<'m>,
    pub(super) limits: ImportLimits,
    /// Bytes that computed constants may still take.
    pub(super) budget: u64,
    /// Operations that computing constants may still take.
    pub(super) work_left: u64,
    /// Inputs whose values decided the shape of something before they were known.
    pub(super) needed: RefCell<BTreeSet<String>>,
    /// Something depends on data: no static graph has it.
    pub(super) waits: Cell<bool>,
    /// Nodes of graphs inside that may still be converted, some of them several times.
    pub(super) nodes_left: usize,
    /// Constants that other compilations of the model have folded.
    pub(super) memo: Option<&'m Memo>,
    /// Dimensions that have a capacity.
    pub(super) bounded: Option<Bounded>,
}

/// `axis` of `rank` dimensions counted from the front; negative counts from the back.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let rank = rank as i64;
    if !(-rank..rank).contains(&axis) {
        return Err(Error::Invalid(format!("axis {axis} is outside of the {rank} dimensions")));
    }
    Ok(axis.rem_euclid(rank) as usize)
}

impl Importer<'_> {
    /// Begins with a node: messages and the nodes that are emitted name it.
    pub(super) fn enter(&mut self, node: &NodeProto) {
        self.place = provenance::place(node);
        self.provenance.enter(node);
    }
}

/// The result of an import.
pub(super) struct Converted {
    pub(super) graph: Graph,
    /// Nodes of the file that no node of the graph comes from.
    pub(super) absent: Vec<Absent>,
    /// Capacities, and the smallest count that half of them do not hold.
    pub(super) bounds: Option<(Bounds, i64)>,
}
