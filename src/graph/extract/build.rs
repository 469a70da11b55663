//! Construction of the extraction problem from an e-graph.
//!
//! In: an e-graph and its root classes. Out: a [`Problem`].

use crate::codegen::Target;
use crate::graph::cost::{self, Operand};
use crate::graph::disjoint_sets::DisjointSets;
use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::extract::bounds::{Bounds, MAX_INPUTS};
use crate::graph::extract::candidate::{Candidate, Edge, Site, Terms};
use crate::graph::extract::constants::choose_constants;
use crate::graph::extract::conversions;
use crate::graph::extract::problem::Problem;
use crate::graph::extract::required::Required;
use crate::graph::fusion::{affine_reshape, is_view, joins};
use crate::graph::op::Op;
use crate::graph::price::Prices;
use crate::runtime::{Error, Result};
use egg::Id;
use std::collections::BTreeMap;

impl<'a> Problem<'a> {
    pub fn new(network: &'a Network, roots: &[Id], prices: &Prices, terms: Terms) -> Result<Problem<'a>> {
        let target = prices.target();
        let constants = choose_constants(network);
        let source = if terms == Terms::Source { network.source_terms() } else { BTreeMap::new() };
        let allowed = |id: Id, term: &Term| match terms {
            Terms::Current => network.is_current(term),
            Terms::Source => source.get(&id).is_some_and(|s| *s == network.canonical(term)),
        };
        let ids = needed_classes(network, roots, &constants, &allowed);
        let index: BTreeMap<Id, usize> = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let class_of = |id: Id| index.get(&network.find(id)).copied();
        let mut classes = vec![];
        for (class, &id) in ids.iter().enumerate() {
            let mut list: Vec<Candidate> = vec![];
            for (position, term) in network.terms(id).iter().enumerate() {
                let mut children: Vec<usize> = term.children.iter().filter_map(|&c| class_of(c)).collect();
                children.sort_unstable();
                children.dedup();
                if allowed(id, term) && !children.contains(&class) {
                    list.push(candidate(network, id, position, term, children, prices));
                }
            }
            if list.is_empty() {
                return Err(Error::Internal("a class of the e-graph needs itself".into()));
            }
            classes.push(list);
        }
        let mut roots: Vec<usize> = roots.iter().filter_map(|&r| class_of(r)).collect();
        roots.sort_unstable();
        roots.dedup();
        let value = united(&classes, |k| k.converts);
        if terms == Terms::Current {
            let bytes: Vec<usize> =
                ids.iter().map(|&id| network.facts(id).types.first().map_or(0, |ty| ty.bytes())).collect();
            conversions::remove_inner(&mut classes, &value, &roots, &bytes);
        }
        let mut readers = vec![vec![]; ids.len()];
        for (c, list) in classes.iter().enumerate() {
            for &d in list.iter().flat_map(|k| &k.children) {
                if readers[d].last() != Some(&c) {
                    readers[d].push(c);
                }
            }
        }
        let storage = united(&classes, |k| k.is_alias());
        let mut forms = vec![0; classes.len()];
        value.iter().for_each(|&v| forms[v] += 1);
        let required = Required::new(&classes, &value, None);
        let (edges, index) = (vec![], index);
        let mut problem =
            Problem { network, ids, index, classes, roots, edges, readers, value, forms, storage, required, constants };
        problem.add_edges(target);
        problem.add_views(target);
        Ok(problem)
    }

    fn add_edges(&mut self, target: &Target) {
        let through_kernels = Required::new(&self.classes, &self.value, Some(&self.required));
        let mut bounds = Bounds::new(self.classes.len());
        let mut edges: Vec<Edge> = vec![];
        for (c, list) in self.classes.iter().enumerate() {
            for (k, op) in list.iter().enumerate().filter_map(|(k, candidate)| Some((k, candidate.op?))) {
                let first = edges.len();
                let operands = self.operands((c, k));
                if self.candidate((c, k)).children.len() > MAX_INPUTS {
                    continue;
                }
                for (position, &d) in operands.iter().enumerate() {
                    let Some(d) = d else { continue };
                    // Another operand is computed from this one by another kernel, which then would be a part of a cycle.
                    let v = self.value[d];
                    let others = operands.iter().flatten().map(|&o| self.value[o]).filter(|&o| o != v);
                    if others.into_iter().any(|o| through_kernels.has(o, v)) {
                        continue;
                    }
                    for (j, producer) in self.classes[d].iter().enumerate() {
                        let Some(made) = producer.op else { continue };
                        for join in joins(made, self.ty(d), op, position, self.ty(c)) {
                            let edge = Edge { join, producer: (d, j), reader: (c, k), saved: 0.0 };
                            let again = if join.repeats { self.repeated_work(&edge) } else { 0.0 };
                            let start = producer.start.max(self.classes[c][k].start);
                            let saved = start + cost::traffic(self.ty(d).bytes(), target) - again;
                            let same = |e: &Edge| (e.producer, e.join.way) == (edge.producer, join.way);
                            if saved > 0.0 && !edges[first..].iter().any(same) {
                                edges.push(Edge { saved, ..edge });
                            }
                        }
                    }
                }
                bounds.limit(self, (c, k), &mut edges, first);
            }
            bounds.close(c);
        }
        self.edges = edges;
    }

    /// Cost of recomputing a producer for each element of its reader, beyond the first time, in ns.
    fn repeated_work(&self, edge: &Edge) -> f64 {
        let (few, many) = (self.ty(edge.producer.0).elements(), self.ty(edge.reader.0).elements());
        let producer = self.candidate(edge.producer);
        (producer.cost - producer.start).max(0.0) * (many as f64 / few.max(1) as f64 - 1.0)
    }

    /// Marks the views that every reader can read through, if these are chosen.
    fn add_views(&mut self, target: &Target) {
        // Readers stand after what they read, nearly always: a second round finds the rest.
        for _ in 0..2 {
            for class in (0..self.classes.len()).rev().filter(|c| !self.roots.contains(c)) {
                for k in 0..self.classes[class].len() {
                    let saved = self.view_saves((class, k), target);
                    self.classes[class][k].through = saved;
                }
            }
        }
    }

    fn view_saves(&self, site: Site, target: &Target) -> Option<f64> {
        let candidate = self.candidate(site);
        let (op, [operand]) = (candidate.op?, &candidate.children[..]) else { return None };
        let saved = match op {
            Op::Transpose { .. } => cost::view(op, self.ty(*operand), self.ty(site.0), target),
            op if is_view(op) => candidate.cost,
            Op::Reshape { shape } => affine_reshape(&self.ty(*operand).shape, shape).map(|_| 0.0)?,
            _ => return None,
        };
        let readable = |&c: &usize| {
            (0..self.classes[c].len()).any(|k| {
                self.candidate((c, k)).children.contains(&site.0)
                    && (self.is_read_through(site, (c, k)) || self.candidate((c, k)).through.is_some())
            })
        };
        self.readers[site.0].iter().any(readable).then_some(saved.min(candidate.cost))
    }
}

/// Classes in depth-first post-order: operands mostly before what uses them.
fn needed_classes(
    network: &Network,
    roots: &[Id],
    constants: &BTreeMap<Id, usize>,
    allowed: &dyn Fn(Id, &Term) -> bool,
) -> Vec<Id> {
    let mut ids = vec![];
    let mut seen = std::collections::BTreeSet::new();
    let mut stack: Vec<(Id, bool)> = roots.iter().rev().map(|&r| (network.find(r), false)).collect();
    while let Some((id, done)) = stack.pop() {
        if done {
            ids.push(id);
            continue;
        }
        if constants.contains_key(&id) || !seen.insert(id) {
            continue;
        }
        stack.push((id, true));
        let operands = network.terms(id).iter().filter(|t| allowed(id, t)).flat_map(|t| &t.children);
        stack.extend(operands.rev().map(|&c| (network.find(c), false)));
    }
    ids
}

fn candidate<'a>(
    network: &'a Network,
    class: Id,
    position: usize,
    term: &'a Term,
    children: Vec<usize>,
    prices: &Prices,
) -> Candidate<'a> {
    let target = prices.target();
    let op = match &term.head {
        Head::Op(op) => Some(op),
        _ => None,
    };
    let result = network.facts(class).types.first();
    let operands: Vec<Operand> = term.children.iter().map(|&c| network.operand(c)).collect();
    let mut start = target.machine.launch_ns;
    let (cost, write) = match (op, result) {
        // Between equal costs the smaller graph: an alias is not quite free.
        (Some(Op::Reshape { .. }), _) => (1.0, 0.0),
        (Some(op), Some(result)) => {
            let write = cost::traffic(result.bytes(), target);
            let cost = match prices.price(op, &operands, result) {
                // A prediction includes the writing of the result.
                Some(predicted) => {
                    start = target.machine.start_ns(predicted);
                    start + (predicted - write).max(0.0)
                }
                None => cost::node(op, &operands, result, target),
            };
            (cost + 1.0, write)
        }
        _ => (0.0, 0.0),
    };
    let converts =
        matches!(op, Some(Op::Transpose { .. } | Op::Reshape { .. } | Op::Block { .. } | Op::Unblock { .. }));
    Candidate { position, op, cost, start, write, converts, children, through: None }
}

/// Each class's least among those that are joined by candidates with `link`.
fn united(classes: &[Vec<Candidate>], link: impl Fn(&Candidate) -> bool) -> Vec<usize> {
    let mut sets = DisjointSets::new(classes.len());
    for (c, list) in classes.iter().enumerate() {
        for &d in list.iter().filter(|k| link(k)).flat_map(|k| &k.children) {
            sets.join(c, d);
        }
    }
    (0..classes.len()).map(|c| sets.least(c)).collect()
}
