//! Support: every class keeps a current e-node that can be computed without the class itself.
//!
//! In: an e-graph after [`Network::rebuild`], some of whose e-nodes are replaced. Out: the same with some of them current
//! again. Two rules that replace and are each other's inverse replace both forms of a value: `matmul(x, w)` by
//! `matmul^T(transpose(x), w)` and back. What is left of the class then is nothing, or only what reads the class. Such
//! classes get back all replaced forms whose operands are supported, and the extraction chooses. Linear in the e-graph.

use crate::graph::egraph::network::{Network, Term};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

struct Node<'a> {
    class: usize,
    term: &'a Term,
    /// Operands that are not supported yet.
    waiting: usize,
    current: bool,
}

/// The least fixpoint of "supported": constants, and classes with a current e-node of supported operands.
struct Support<'a> {
    nodes: Vec<Node<'a>>,
    /// By class: the e-nodes of it, and those that read it, once for each operand.
    members: Vec<Vec<usize>>,
    readers: Vec<Vec<usize>>,
    supported: Vec<bool>,
    /// Classes that became supported and whose readers do not know it yet.
    news: Vec<usize>,
    /// Replaced e-nodes of supported operands, the first found first.
    replaced: VecDeque<usize>,
}

impl<'a> Support<'a> {
    fn new(network: &'a Network) -> Support<'a> {
        let count = network.egraph.nodes().len();
        let mut out = Support {
            nodes: vec![],
            members: vec![vec![]; count],
            readers: vec![vec![]; count],
            supported: vec![false; count],
            news: vec![],
            replaced: VecDeque::new(),
        };
        let mut classes: Vec<_> = network.egraph.classes().collect();
        classes.sort_unstable_by_key(|c| c.id);
        for class in classes {
            let id = usize::from(class.id);
            for term in &class.nodes {
                let n = out.nodes.len();
                out.members[id].push(n);
                term.children.iter().for_each(|&c| out.readers[usize::from(network.find(c))].push(n));
                let (waiting, current) = (term.children.len(), !network.is_replaced(term));
                out.nodes.push(Node { class: id, term, waiting, current });
            }
            // The extraction finds an expression for every constant, replaced or not.
            if class.data.constant {
                out.support(id);
            }
        }
        for n in 0..out.nodes.len() {
            out.look_at(n);
        }
        out
    }

    fn support(&mut self, class: usize) {
        if !std::mem::replace(&mut self.supported[class], true) {
            self.news.push(class);
        }
    }

    /// Takes note of an e-node all of whose operands are supported.
    fn look_at(&mut self, n: usize) {
        let Node { class, waiting, current, .. } = self.nodes[n];
        match current {
            _ if waiting > 0 => {}
            true => self.support(class),
            false => self.replaced.push_back(n),
        }
    }

    fn propagate(&mut self) {
        while let Some(class) = self.news.pop() {
            for n in std::mem::take(&mut self.readers[class]) {
                self.nodes[n].waiting -= 1;
                self.look_at(n);
            }
        }
    }

    /// The replaced e-nodes that have to be current so that every class is supported.
    fn missing(mut self) -> Vec<&'a Term> {
        let mut out = vec![];
        loop {
            self.propagate();
            let Some(first) = self.replaced.pop_front() else { return out };
            let class = self.nodes[first].class;
            if !self.supported[class] {
                let forms = self.members[class].iter().map(|&n| &self.nodes[n]).filter(|n| n.waiting == 0);
                out.extend(forms.map(|n| n.term));
                self.support(class);
            }
        }
    }
}

/// Makes replaced e-nodes current again where a class is not supported without them.
pub fn restore(network: &mut Network) {
    if network.has_replaced() {
        let missing: FxHashSet<Term> = Support::new(network).missing().into_iter().cloned().collect();
        if !missing.is_empty() {
            network.restore(&missing);
        }
    }
}

/// Returns true if every class that the outputs need has a current e-node that can be computed without the class
/// itself.
#[cfg(test)]
pub fn is_complete(network: &Network) -> bool {
    let mut support = Support::new(network);
    support.propagate();
    network.reachable().iter().all(|&id| support.supported[usize::from(network.find(id))])
}
