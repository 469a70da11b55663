//! Candidates for a class, and the ways in which two of them share a kernel.

use crate::graph::fusion::Join;
use crate::graph::op::Op;

/// A class and the position of a candidate in it.
pub type Site = (usize, usize);

/// An e-node that may be chosen for its class.
pub struct Candidate<'a> {
    /// Position of the e-node in its class.
    pub position: usize,
    /// `None` for inputs and for one output of several.
    pub op: Option<&'a Op>,
    /// Cost as a separate kernel, without writing the result, in ns.
    pub cost: f64,
    /// The part of the cost that is the start of its kernel.
    pub start: f64,
    /// Cost of writing the result, in ns.
    pub write: f64,
    /// Another form of a value that there is already: a transposition, a reshape.
    pub converts: bool,
    /// Operand classes that are not constant, without repetition.
    pub children: Vec<usize>,
    /// Saving, apart from writing, when all its readers read through it, in ns; `None` when they cannot.
    pub through: Option<f64>,
}

/// The e-nodes that may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terms {
    /// All that no rule replaced.
    Current,
    /// The e-nodes of the source graph: one for each class, without a cycle.
    Source,
}

/// A way to put the two candidates at the ends of an edge into one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub join: Join,
    pub producer: Site,
    pub reader: Site,
    /// In ns, apart from not writing the value.
    pub saved: f64,
}

impl Candidate<'_> {
    /// Its operand under another shape.
    pub fn is_alias(&self) -> bool {
        matches!(self.op, Some(Op::Reshape { .. }))
    }
}
