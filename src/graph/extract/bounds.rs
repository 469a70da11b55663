//! Upper bounds on the content of one kernel, and the cuts of long expressions ahead of the integer program.
//!
//! In: the edges into a candidate, class by class in their order. Out: the edges without those that would let one element
//! take a larger expression, or a kernel more inputs, than is allowed, were every edge taken. The rows need not forbid such
//! kernels then: a forbidden kernel of hundreds of edges leaves all of them open in the relaxation. The counts are upper
//! bounds, so `kernels.rs` still checks each answer.

use crate::graph::extract::candidate::{Edge, Site};
use crate::graph::extract::problem::Problem;
use crate::graph::op::FusionKind;
use egg::Id;

/// Largest number of expression nodes of one output element when the kernel's temporaries are substituted. Unmeasured.
pub const MAX_EXPRESSION: usize = 160;
/// Largest number of tensors that one kernel reads. Unmeasured.
pub const MAX_INPUTS: usize = 64;

/// Upper bounds for a class where its readers substitute it.
#[derive(Clone, Default)]
struct Bound {
    size: usize,
    inputs: Vec<Id>,
}

impl Bound {
    fn read(&mut self, input: Id) {
        if let Err(place) = self.inputs.binary_search(&input) {
            self.inputs.insert(place, input);
        }
    }

    fn substitute(&mut self, operand: &Bound) {
        self.size += operand.size;
        operand.inputs.iter().for_each(|&i| self.read(i));
    }

    fn exceeds(&self) -> bool {
        self.size > MAX_EXPRESSION || self.inputs.len() > MAX_INPUTS
    }
}

pub struct Bounds {
    classes: Vec<Bound>,
    /// Of the candidate of the current class that takes most.
    largest: Bound,
}

impl Bounds {
    pub fn new(classes: usize) -> Bounds {
        Bounds { classes: vec![Bound::default(); classes], largest: Bound::default() }
    }

    /// Removes edges into a candidate, those from `first` on, until it keeps within the bounds: those from the operand that
    /// takes most.
    pub fn limit(&mut self, problem: &Problem, site: Site, edges: &mut Vec<Edge>, first: usize) {
        let op = problem.candidate(site).op;
        let substituted = op.is_some_and(|op| op.kind() == FusionKind::Injective);
        let bound = loop {
            let mut bound = Bound { size: 1, inputs: vec![] };
            for &id in &problem.term(site).children {
                let joined = |d: usize| edges[first..].iter().any(|e| e.producer.0 == d);
                match problem.class_of(id).filter(|&d| joined(d)) {
                    Some(d) => bound.substitute(&self.classes[d]),
                    None if problem.network.is_constant(id) && problem.network.ty(id).elements() == 1 => {}
                    None => bound.read(problem.network.find(id)),
                }
            }
            let takes = |d: usize| (self.classes[d].size, self.classes[d].inputs.len());
            let most = edges[first..].iter().map(|e| e.producer.0).max_by_key(|&d| (takes(d), d));
            let Some(most) = most.filter(|_| bound.exceeds()) else { break bound };
            let mut into = edges.split_off(first);
            into.retain(|e| e.producer.0 != most);
            edges.append(&mut into);
        };
        let bound = if substituted { bound } else { Bound { size: 1, ..bound } };
        if (bound.size, bound.inputs.len()) > (self.largest.size, self.largest.inputs.len()) {
            self.largest = bound;
        }
    }

    /// Ends the current class.
    pub fn close(&mut self, class: usize) {
        self.classes[class] = std::mem::take(&mut self.largest);
    }
}
