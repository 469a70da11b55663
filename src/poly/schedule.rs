//! Schedule: a tree that says when each statement instance runs.
//!
//! The words are isl's (Verdoolaege et al., "Schedule Trees", IMPACT 2014): bands of rows, sequences of filters, marks.

use crate::codegen::expr::{Affine, Var};
use crate::poly::scop::{Scop, StatementId};
use serde::{Deserialize, Serialize};

/// A schedule of all statements of one Scop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    pub root: Node,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Node {
    /// Nested loops, outermost first, over all statements below.
    Band(Band, Box<Node>),
    /// The children run one after the other. Each names the statements below it.
    Sequence(Vec<(Vec<StatementId>, Node)>),
    Leaf,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Band {
    pub rows: Vec<Row>,
    /// The rows may be interchanged and tiled: every dependence is non-negative in each of them.
    pub permutable: bool,
}

/// One loop: statement instance `i` runs at time `⌊φ(i) / tile⌋`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The name of the loop variable.
    pub name: String,
    /// φ of each statement below, over its iterators.
    pub phi: Vec<(StatementId, Affine)>,
    /// 1 for a loop over φ itself; a tile loop has its tile size here, and φ returns in a row further in.
    pub tile: i64,
    /// No dependence is carried: iterations may run in parallel.
    pub coincident: bool,
    pub kind: RowKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RowKind {
    Serial,
    Parallel,
    Unroll,
    Vector,
}

impl Schedule {
    /// The original order: every statement completely before the next, each over its iterators in order.
    pub fn initial(scop: &Scop) -> Schedule {
        let mut children: Vec<(Vec<StatementId>, Node)> = scop
            .ids()
            .map(|id| {
                let rows = scop.statement(id).iterators.iter().enumerate().map(|(i, it)| Row {
                    name: it.name.clone(),
                    phi: vec![(id, Affine::var(Var(i as u32)))],
                    tile: 1,
                    coincident: false,
                    kind: RowKind::Serial,
                });
                let rows: Vec<Row> = rows.collect();
                let node = if rows.is_empty() {
                    Node::Leaf
                } else {
                    Node::Band(Band { rows, permutable: false }, Box::new(Node::Leaf))
                };
                (vec![id], node)
            })
            .collect();
        let root = if children.len() == 1 { children.remove(0).1 } else { Node::Sequence(children) };
        Schedule { root }
    }
}

impl Row {
    /// φ of `statement`; panics when the row does not cover it.
    pub fn of(&self, statement: StatementId) -> &Affine {
        &self.phi.iter().find(|p| p.0 == statement).expect("the row covers the statement").1
    }
}
