//! The choices of an extraction and their costs.
//!
//! The classes that can be needed with their candidates (e-nodes), and for each pair of candidates the ways to put them into
//! one kernel, with what each saves in ns. `build.rs` makes it of an e-graph.

use crate::graph::egraph::network::{Network, Term};
use crate::graph::extract::candidate::{Candidate, Edge, Site};
use crate::graph::extract::required::Required;
use crate::graph::fusion::{Way, reads_through};
use crate::graph::op::FusionKind;
use crate::graph::tensor_type::TensorType;
use egg::Id;
use std::collections::BTreeMap;

pub struct Problem<'a> {
    pub network: &'a Network,
    pub ids: Vec<Id>,
    pub index: BTreeMap<Id, usize>,
    pub classes: Vec<Vec<Candidate<'a>>>,
    pub roots: Vec<usize>,
    pub edges: Vec<Edge>,
    /// For each class those that have a candidate which reads it.
    pub readers: Vec<Vec<usize>>,
    /// The value that each class is a form of, by its least class, and the number of forms of each value.
    pub value: Vec<usize>,
    pub forms: Vec<usize>,
    /// The tensor in memory that each class is, by its least class: a reshape is its operand under another shape.
    pub storage: Vec<usize>,
    /// For each value those that every way to compute it computes as well, itself among them.
    pub required: Required,
    /// Choices in classes that are computed from constants only.
    pub constants: BTreeMap<Id, usize>,
}

impl<'a> Problem<'a> {
    pub fn candidate(&self, site: Site) -> &Candidate<'a> {
        &self.classes[site.0][site.1]
    }

    pub fn ty(&self, class: usize) -> &TensorType {
        self.network.ty(self.ids[class])
    }

    pub fn term(&self, site: Site) -> &Term {
        &self.network.terms(self.ids[site.0])[self.candidate(site).position]
    }

    /// The classes of a candidate's operands by position; `None` for constants.
    pub fn operands(&self, site: Site) -> Vec<Option<usize>> {
        self.term(site).children.iter().map(|&id| self.class_of(id)).collect()
    }

    /// The class of an operand; `None` when it is constant.
    pub fn class_of(&self, id: Id) -> Option<usize> {
        self.index.get(&self.network.find(id)).copied()
    }

    /// Returns true if a candidate that has a kernel may read its operand through a view.
    pub fn is_read_through(&self, view: Site, reader: Site) -> bool {
        let (Some(view_op), Some(op)) = (self.candidate(view).op, self.candidate(reader).op) else { return false };
        let operands = self.operands(reader);
        let mut positions = (0..operands.len()).filter(|&p| operands[p] == Some(view.0)).peekable();
        positions.peek().is_some() && positions.all(|p| reads_through(view_op, self.ty(view.0), op, p))
    }

    pub fn is_expensive(&self, site: Site) -> bool {
        self.candidate(site).op.is_some_and(|op| op.is_expensive())
    }

    /// Edges into the kernel of whose reader the producer goes, when that reader is not injective.
    pub fn leads_reduction(&self, edge: &Edge) -> bool {
        edge.join.way == Way::Before
            && self.candidate(edge.reader).op.is_some_and(|op| op.kind() != FusionKind::Injective)
    }
}
