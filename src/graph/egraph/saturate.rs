//! Saturation: applies rules to an e-graph until none adds an e-node or a limit is reached.
//!
//! In: an e-graph and rules. Out: the e-graph with the results of the rules, and the number of additions by each. egg's
//! e-graph, but another matcher and schedule than egg's `Runner`, because rules here may replace what they match
//! ([`Keep`]), match modulo commutativity and associativity, and compute attributes from types. One pass goes through the
//! classes in topological order, so that what a rule finds at an operand is seen by the rules at its consumers in the same
//! pass. The limits are counts, never seconds, so the same graph gives the same result. Invariant after each pass: every
//! class keeps a current e-node that can be computed without the class itself.

use crate::graph::egraph::network::Network;
use crate::graph::egraph::support;
use crate::graph::rules::index::Index;
use crate::graph::rules::pattern::{Keep, Rule};
use egg::Id;
use serde::{Deserialize, Serialize};

/// Limits of saturation.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Passes over the e-graph.
    pub iterations: usize,
    /// E-nodes of the e-graph.
    pub nodes: usize,
    /// Rewrites, each a rule that found something new.
    pub rewrites: usize,
}

/// The reason why a saturation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stop {
    /// No rule finds anything new.
    Saturated,
    /// So many passes were made.
    Iterations(usize),
    /// The e-graph has more nodes than this.
    Nodes(usize),
    /// So many rewrites were made.
    Rewrites(usize),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Stop::Saturated => f.write_str("no rule finds anything new"),
            Stop::Iterations(n) => write!(f, "{n} iterations were made"),
            Stop::Nodes(n) => write!(f, "it has more than {n} nodes"),
            Stop::Rewrites(n) => write!(f, "{n} rewrites were made"),
        }
    }
}

/// Rules that fired in a saturation, and its end.
pub struct Growth {
    /// Rule and how often it found something new.
    pub fired: Vec<(&'static str, usize)>,
    pub iterations: usize,
    pub stop: Stop,
}

impl Growth {
    /// The number of rewrites.
    pub fn rewrites(&self) -> usize {
        self.fired.iter().map(|f| f.1).sum()
    }

    /// Adds the statistics of an earlier saturation.
    pub fn add(&mut self, before: Growth) {
        for (name, count) in before.fired {
            match self.fired.iter_mut().find(|(n, _)| *n == name) {
                Some(entry) => entry.1 += count,
                None => self.fired.push((name, count)),
            }
        }
        self.iterations += before.iterations;
        if !matches!(before.stop, Stop::Saturated) {
            self.stop = before.stop;
        }
    }
}

/// Applies the rules until nothing is new or the budget is spent.
pub fn saturate(network: &mut Network, rules: &[Rule], budget: Budget) -> Growth {
    let mut run = Run { rules, index: Index::new(rules), fired: vec![0; rules.len()], rewrites: 0, budget };
    let mut iterations = 0;
    let stop = loop {
        if iterations == budget.iterations {
            break Stop::Iterations(budget.iterations);
        }
        iterations += 1;
        let before = run.rewrites;
        let stop = run.pass(network);
        network.rebuild();
        support::restore(network);
        match stop {
            Some(reason) => break reason,
            None if run.rewrites == before => break Stop::Saturated,
            None => {}
        }
    };
    let fired = rules.iter().map(|r| r.name).zip(run.fired).filter(|(_, n)| *n > 0).collect();
    Growth { fired, iterations, stop }
}

struct Run<'a> {
    rules: &'a [Rule],
    index: Index<'a>,
    fired: Vec<usize>,
    rewrites: usize,
    budget: Budget,
}

impl Run<'_> {
    /// Applies the rules once to every e-node that the outputs need, and to those that this adds. Ends early, with the
    /// reason, when the budget is spent.
    fn pass(&mut self, network: &mut Network) -> Option<Stop> {
        let nodes = network.egraph.nodes().len();
        let reachable = network.reachable();
        for start in (0..nodes).map(Id::from) {
            let mut work = vec![start];
            if !reachable.contains(&network.find(start)) {
                continue;
            }
            while let Some(id) = work.pop() {
                let before = network.egraph.nodes().len();
                if !self.visit(network, id) {
                    return Some(Stop::Rewrites(self.rewrites));
                }
                let after = network.egraph.nodes().len();
                work.extend((before..after).rev().map(Id::from));
                if after > self.budget.nodes {
                    return Some(Stop::Nodes(self.budget.nodes));
                }
            }
        }
        None
    }

    /// Applies the rules to one e-node; returns false if no further rewrite is allowed.
    fn visit(&mut self, network: &mut Network, id: Id) -> bool {
        let term = network.canonical(network.egraph.id_to_node(id));
        let class = network.find(id);
        for &r in self.index.candidates(&term) {
            if network.is_replaced(&term) {
                // By this e-node, or by one that became congruent to it.
                network.replace(id);
                break;
            }
            if self.rewrites >= self.budget.rewrites {
                return false;
            }
            let rule = &self.rules[r];
            let sole = rule.keep == Keep::IfSole && network.is_sole_use(class, &term);
            let equal = rule.apply(network, class, &term);
            for &(a, b) in &equal {
                if network.find(a) != network.find(b) {
                    debug_assert_eq!(network.ty(a), network.ty(b), "rule {}", rule.name);
                    network.egraph.union(b, a);
                    self.fired[r] += 1;
                    self.rewrites += 1;
                }
            }
            let itself = |e: &(Id, Id)| network.canonical(network.egraph.id_to_node(e.1)) == term;
            if !equal.is_empty() && !equal.iter().any(itself) && (rule.keep == Keep::Instead || sole) {
                network.replace(id);
            }
        }
        true
    }
}
