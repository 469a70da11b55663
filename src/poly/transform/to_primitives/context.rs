//! State of the translation: the loops around each statement, and the primitives so far.

use crate::expr::Affine;
use crate::poly::schedule::RowKind;
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::transform::primitive::{Loop, Primitive};
use std::collections::BTreeMap;

pub(super) struct Emitter<'a> {
    pub(in crate::poly::transform) scop: &'a Scop,
    pub(in crate::poly::transform) primitives: Vec<Primitive>,
    /// The parts of the root run one after the other with barriers between.
    pub(in crate::poly::transform) phases: bool,
    /// The loops around each statement, outermost first, as they are called by now.
    pub(in crate::poly::transform) links: BTreeMap<StatementId, Vec<Link>>,
}

/// Returns the primitive that gives a loop its kind; `None` for a serial loop.
pub(super) fn kind(kind: RowKind, which: Loop) -> Option<Primitive> {
    match kind {
        RowKind::Serial | RowKind::Instruction(_) => None,
        RowKind::Parallel => Some(Primitive::Parallel { which }),
        RowKind::Wavefront => Some(Primitive::Wavefront { which }),
        RowKind::Unroll => Some(Primitive::Unroll { which, by: None }),
        RowKind::Vector => Some(Primitive::Vectorize { which, by: None }),
    }
}

/// A loop of one statement.
#[derive(Clone)]
pub(super) struct Link {
    pub name: String,
    pub(in crate::poly::transform) phi: Affine,
}
