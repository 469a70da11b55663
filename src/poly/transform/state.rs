//! A program in the state that the primitives so far have made of it.

use crate::codegen::Isa;
use crate::poly::analysis::operation_count;
use crate::poly::packing::Packing;
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::runtime::Result;

/// What a schedule by hand has made of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Transformed {
    pub scop: Scop,
    pub schedule: Schedule,
    /// Operands that are read from packed copies.
    pub packings: Vec<Packing>,
    /// Floating-point operations of the program that it began with: what is copied or computed again is not counted.
    pub flops: f64,
}

impl Transformed {
    /// A program in its own order.
    pub fn new(scop: Scop) -> Transformed {
        Transformed { schedule: scop.order.clone(), flops: operation_count::flops(&scop), scop, packings: vec![] }
    }

    /// Whether this is a program in its own order, so that there is nothing to prove.
    pub fn is_as_given(&self) -> bool {
        self.schedule == self.scop.order && self.packings.is_empty() && self.scop.privates.is_empty()
    }
}

/// A program that schedules by hand are for.
pub struct Original<'a> {
    /// As it was written: what primitives begin with.
    pub written: Scop,
    /// What the ILP begins with.
    pub normal: &'a dyn Fn() -> Result<Scop>,
    /// The instruction set that `tensorize` chooses from.
    pub isa: Isa,
}
