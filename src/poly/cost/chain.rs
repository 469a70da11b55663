//! Latency of the longest cycle of dependences between the iterations of a loop.
//!
//! In: the stores of a loop without loops in it. Out: cycles for each iteration. A store waits for the loads of its value;
//! a load waits for the store of the same element in this iteration or in one of the few before.

use crate::codegen::Target;
use crate::codegen::loopnest::LoopNest;
use crate::expr::{BinaryOp, BufferId, Expr, Index, UnaryOp, Var};
use crate::poly::cost::block::{Placed, address_of, changes_along};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Cycles for each iteration of the loop over `var`, which advances by `step`.
pub(super) fn cycles(nest: &LoopNest, target: &Target, block: &[Placed], (var, step): (Var, i64)) -> f64 {
    let chains = Chains { nest, target, block, var, step };
    let edges: Vec<Edge> = (0..block.len()).flat_map(|sink| chains.edges_into(sink)).collect();
    let mut forward: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); block.len()];
    for e in edges.iter().filter(|e| e.distance == 0 && e.sink > e.source) {
        let latency = forward[e.source].entry(e.sink).or_insert(e.latency);
        *latency = latency.max(e.latency);
    }
    // the longest ways through this iteration from a store that waits so long for the one before, which many stores share
    let mut ways: FxHashMap<(usize, u64), Vec<Option<f64>>> = FxHashMap::default();
    let mut most = 0.0f64;
    for back in edges.iter().filter(|e| e.distance > 0) {
        let reach = ways.entry((back.sink, back.latency.to_bits()));
        let reach = reach.or_insert_with(|| longest_ways(&forward, back.sink, back.latency));
        if let Some(latency) = reach[back.source] {
            most = most.max(latency / back.distance as f64);
        }
    }
    most
}

/// The latency of the longest way from a store, where it is known, to each later one.
fn longest_ways(forward: &[BTreeMap<usize, f64>], first: usize, known: f64) -> Vec<Option<f64>> {
    let mut reach = vec![None; forward.len()];
    reach[first] = Some(known);
    for store in first..forward.len() {
        let Some(latency_here) = reach[store] else { continue };
        for (&sink, latency) in &forward[store] {
            let there = latency_here + latency;
            reach[sink] = Some(reach[sink].map_or(there, |r: f64| r.max(there)));
        }
    }
    reach
}

/// The store `sink` reads what the store `source` wrote `distance` iterations before.
struct Edge {
    source: usize,
    sink: usize,
    distance: i64,
    /// From the load until the result of the sink, in cycles.
    latency: f64,
}

/// Cycles from a value until a result that follows from it.
#[derive(Clone, Copy)]
struct Latency {
    cycles: f64,
    /// Cycles where nothing but sums of single elements lies between.
    sums: Option<f64>,
    /// Cycles in general-purpose registers, for integers of which there is one.
    words: Option<f64>,
}

impl Latency {
    /// After another operation, which is not a sum.
    fn and(self, cycles: f64) -> Latency {
        self.and_either(cycles, cycles)
    }

    /// After an operation that takes other cycles in general-purpose registers; it is not a sum of floats.
    fn and_either(self, cycles: f64, words: f64) -> Latency {
        Latency { cycles: self.cycles + cycles, sums: None, words: self.words.map(|w| w + words) }
    }

    fn total(self) -> f64 {
        let cycles = self.sums.unwrap_or(self.cycles);
        self.words.map_or(cycles, |words| words.min(cycles))
    }
}

struct Chains<'a> {
    nest: &'a LoopNest,
    target: &'a Target,
    block: &'a [Placed<'a>],
    var: Var,
    /// From one iteration to the next.
    step: i64,
}

impl Chains<'_> {
    fn edges_into(&self, sink: usize) -> Vec<Edge> {
        let store = &self.block[sink];
        let mut edges = vec![];
        let integers = self.nest.buffer(store.buffer).dtype.is_integer();
        let single = store.vector().is_none();
        let start = Latency { cycles: 0.0, sums: single.then_some(0.0), words: (single && integers).then_some(0.0) };
        let start = match store.reduce {
            // a product that is added is part of the sum
            Some(BinaryOp::Add) if !integers && matches!(store.value, Expr::Binary(BinaryOp::Mul, ..)) => {
                start.and(self.target.machine.fma_latency as f64)
            }
            Some(op) => self.after(start, op, integers),
            None => start,
        };
        let update_latency = start.total();
        if store.reduce.is_some() {
            let place = address_of(self.nest, store.buffer, store.index);
            match place {
                Some(a) if !a.uses(self.var) => {
                    edges.push(Edge { source: sink, sink, distance: 1, latency: update_latency });
                }
                Some(_) => {}
                // each element is as likely to be updated again at once as any other
                None => edges.push(Edge {
                    source: sink,
                    sink,
                    distance: 1,
                    latency: (update_latency + self.target.machine.forward_cycles) / self.places(store),
                }),
            }
        }
        self.walk(store.value, start, integers, &mut |buffer, index, latency| {
            for (source, other) in self.block.iter().enumerate().filter(|o| o.1.buffer == buffer) {
                if let Some((distance, forward)) = self.distance((source, other), sink, buffer, index) {
                    edges.push(Edge { source, sink, distance, latency: latency + forward });
                }
            }
        });
        edges
    }

    /// The number of places among which subscripts from data choose in each iteration; infinite where another subscript moves on with the loop.
    fn places(&self, store: &Placed) -> f64 {
        let of = |(index, &size): (&Index, &i64)| match index {
            Index::Affine(a) if a.uses(self.var) => f64::INFINITY,
            Index::Value(e) if changes_along(e, self.var) => size.max(1) as f64,
            _ => 1.0,
        };
        store.index.iter().zip(&self.nest.buffer(store.buffer).shape).map(of).product()
    }

    /// Iterations between a store and a load of the same element, and the cycles that it takes to get there.
    fn distance(
        &self,
        (source, store): (usize, &Placed),
        sink: usize,
        buffer: BufferId,
        index: &[Index],
    ) -> Option<(i64, f64)> {
        let (written, read) = (address_of(self.nest, buffer, store.index)?, address_of(self.nest, buffer, index)?);
        let machine = &self.target.machine;
        let apart = written.add_scaled(&read, -1);
        if !apart.is_constant() {
            return None;
        }
        let step = self.step * read.coefficient(self.var);
        let textual = i64::from(source >= sink);
        match (step, apart.constant) {
            (0, 0) => Some((textual, 0.0)),
            (0, _) => None,
            (step, apart) if apart % step != 0 => None,
            (step, apart) => match apart / step {
                0 if textual == 0 => Some((0, 0.0)),
                d if d <= 0 || d > machine.farthest_iterations => None,
                d => Some((d, if d <= machine.kept_iterations { 0.0 } else { machine.forward_cycles })),
            },
        }
    }

    /// Calls `f` on each load of `e`, a value of integers or of floats, with the latency from it until the result.
    fn walk(&self, e: &Expr, after: Latency, integers: bool, f: &mut impl FnMut(BufferId, &[Index], f64)) {
        let machine = &self.target.machine;
        let (fma, integer, word) = (machine.fma_latency as f64, machine.integer_latency, machine.word_latency);
        let product = |e: &Expr| matches!(e, Expr::Binary(BinaryOp::Mul, ..));
        let sums = matches!(e, Expr::Binary(BinaryOp::Add | BinaryOp::Sub, ..)) && !integers;
        let contracts = sums && e.operands().any(product);
        let here = match e {
            Expr::Load(a) => {
                f(a.buffer, &a.index, after.total());
                return;
            }
            Expr::Const(_) | Expr::Index(_) => return,
            Expr::Binary(..) if contracts => after.and(fma),
            Expr::Binary(op @ (BinaryOp::ShiftLeft | BinaryOp::ShiftRight), _, amount) => {
                let is_constant = matches!(**amount, Expr::Const(_));
                after.and_either(integer, if is_constant { word } else { self.word_latency(*op) })
            }
            Expr::Binary(op, ..) => self.after(after, *op, integers),
            Expr::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not, _) => after.and_either(integer, word),
            Expr::Unary(op, _) => after.and(2.0 * op.cost().cycles),
            Expr::Select(..) => after.and_either(integer + f64::from(!integers), word),
            Expr::Compare(..) if integers => after.and_either(integer, word),
            Expr::Compare(..) | Expr::Cast(..) | Expr::Bitcast(..) => after.and(fma),
        };
        for operand in e.operands() {
            // contracted: the product is part of the sum
            self.walk(operand, if contracts && product(operand) { after } else { here }, integers, f);
        }
    }

    /// The latency through `op` and what follows it.
    fn after(&self, after: Latency, op: BinaryOp, integers: bool) -> Latency {
        let is_sum = matches!(op, BinaryOp::Add | BinaryOp::Sub) && !integers;
        let sums = after.sums.filter(|_| is_sum).map(|sums| sums + self.target.machine.scalar_add_latency);
        let words = after.words.map(|words| words + self.word_latency(op));
        Latency { cycles: after.cycles + self.latency(op, integers), sums, words }
    }

    /// Cycles of an operation in general-purpose registers; extremes compare and choose.
    fn word_latency(&self, op: BinaryOp) -> f64 {
        let machine = &self.target.machine;
        match op {
            BinaryOp::Min | BinaryOp::Max => 2.0 * machine.word_latency,
            BinaryOp::Mul => machine.word_product_latency,
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => machine.word_latency,
            op => 1.5 * op.cost().cycles,
        }
    }

    fn latency(&self, op: BinaryOp, integers: bool) -> f64 {
        match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max if integers => {
                self.target.machine.integer_latency
            }
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => self.target.machine.integer_latency,
            BinaryOp::Add | BinaryOp::Sub => self.target.machine.add_latency,
            BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max => self.target.machine.fma_latency as f64,
            op => 1.5 * op.cost().cycles,
        }
    }
}
