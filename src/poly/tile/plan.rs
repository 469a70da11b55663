//! The plan of a phase: its tree, its report, and what the dominant statement decided for the others.

use crate::codegen::Target;
use crate::expr::{BufferId, Var};
use crate::poly::schedule::{Node, Row};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::tile::cache::{Constants, TileLoop};
use crate::poly::tile::register_block::Block;
use crate::poly::tile::report::PhaseReport;

pub struct Phase<'a> {
    pub scop: &'a Scop,
    pub target: &'a Target,
    pub statements: &'a [StatementId],
    /// Temporaries of which the second cache holds what an iteration of the loops around the phase needs.
    pub held: &'a [BufferId],
    pub constants: Constants,
    /// See [`Style::unrolled`](crate::poly::tile::Style::unrolled).
    pub unrolled: bool,
}

pub struct Plan {
    /// The tree with tile rows and point rows.
    pub node: Node,
    pub report: PhaseReport,
    /// Leading rows of the outer band that may be parallel at no cost.
    pub free_rows: usize,
}

/// Decisions of the dominant statement for the outer rows.
pub(super) struct Shared {
    /// Rows of the outer band that became blocks: position and points.
    pub(super) blocked: Vec<(usize, i64)>,
    /// The vector row among them.
    pub(super) vector: Option<usize>,
    pub dominant: StatementId,
    pub block: Block,
    /// Loops over parts of the dominant statement's reductions.
    pub(super) parts: Vec<TileLoop>,
}

impl Shared {
    /// The length of the parts that the reduction along `v` is cut into.
    pub fn part(&self, v: Var, statement: StatementId) -> Option<i64> {
        self.parts.iter().find(|p| p.iterator == v && statement == self.dominant).map(|p| p.tile)
    }
}

/// The iterator that is φ of the statement, up to a shift.
pub(super) fn unit(row: &Row, id: StatementId) -> Option<Var> {
    match row.phi.iter().find(|p| p.0 == id)?.1.terms[..] {
        [(v, 1)] => Some(v),
        _ => None,
    }
}
