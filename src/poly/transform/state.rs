//! State of a program between primitives.

use crate::codegen::Target;
use crate::poly::analysis::dependence::{self, Dependences};
use crate::poly::analysis::{flags, legality, operation_count};
use crate::poly::lower::{self, Kernel};
use crate::poly::packing::Packing;
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::tile::report::Tiled;
use crate::poly::tile::{as_given, described};
use crate::runtime::Result;

/// A program after some primitives of a schedule by hand.
#[derive(Clone, PartialEq, Debug)]
pub struct Transformed {
    pub scop: Scop,
    pub schedule: Schedule,
    /// Operands that are read from packed copies.
    pub packings: Vec<Packing>,
    /// Floating-point operations of the original program: copies and recomputation are not counted.
    pub flops: f64,
}

impl Transformed {
    /// Starts from a program in its original order.
    pub fn new(scop: Scop) -> Transformed {
        Transformed { schedule: scop.order.clone(), flops: operation_count::flops(&scop), scop, packings: vec![] }
    }

    /// Returns true if this is a program in its original order, so that there is nothing to prove.
    pub fn is_as_given(&self) -> bool {
        self.schedule == self.scop.order && self.packings.is_empty() && self.scop.privates.is_empty()
    }
}

/// A program before its schedule by hand.
pub struct SourceProgram<'a> {
    /// The program as written, from which the primitives start.
    pub written: Scop,
    /// Makes the Scop from which the ILP starts.
    pub normal: &'a dyn Fn() -> Result<Scop>,
    /// The target whose instructions `tensorize` chooses from.
    pub target: &'a Target,
}

/// A program in an order that keeps all of its dependences. Only a passed [`legality::check`] makes one, so that it is
/// not proven again.
#[derive(Clone, Debug)]
pub struct Proven {
    state: Transformed,
    /// The loops, where they have been asked for already.
    loops: Option<Kernel>,
}

impl Proven {
    /// Proves the original order of a program.
    ///
    /// # Errors
    /// `Schedule` with two instances when the order breaks a dependence.
    pub fn in_original_order(scop: Scop) -> Result<Proven> {
        let dependences = dependence::analyze(&scop)?;
        let state = Transformed::new(scop);
        legality::check(&state.scop, &dependences, &state.schedule)?;
        Ok(Proven { state, loops: None })
    }

    /// Proves the order of `state`, whose dependences these are, and makes its flags exact.
    pub(super) fn new(state: Transformed, dependences: &Dependences) -> Result<Proven> {
        legality::check(&state.scop, dependences, &state.schedule)?;
        let schedule = flags::flag(&state.scop, dependences, &state.schedule)?;
        Ok(Proven { state: Transformed { schedule, ..state }, loops: None })
    }

    pub fn state(&self) -> &Transformed {
        &self.state
    }

    pub fn into_state(self) -> Transformed {
        self.state
    }

    /// Lowers the program once, and keeps the loops for [`Proven::lower`].
    pub(super) fn try_loops(&mut self) -> Result<()> {
        self.loops = Some(lower::lower(&self.state.scop, &self.tree())?);
        Ok(())
    }

    /// The loops for `target`, and the tree that they follow: the proven one without loops over a single value, which order
    /// nothing.
    pub fn lower(&self, target: &Target) -> Result<(Tiled, Kernel)> {
        let tiled = described(self.tree(), &self.state.scop, target);
        let kernel = match &self.loops {
            Some(kernel) => Kernel { report: tiled.report.clone(), ..kernel.clone() },
            None => lower::lower(&self.state.scop, &tiled)?,
        };
        Ok((tiled, kernel))
    }

    fn tree(&self) -> Tiled {
        as_given(&self.state.scop, &self.state.schedule, &self.state.packings)
    }
}
