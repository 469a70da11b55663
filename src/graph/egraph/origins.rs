//! The nodes of the model file that the nodes of a rewritten graph come from.
//!
//! In: the original graph in its e-graph, and the rewritten graph. Out: origins of each node of the rewritten graph. A class
//! is a value, so a node of the original graph is computed where a node of the rewritten graph has its class; where none has,
//! by those that have its value in another layout; and where its value is nowhere, by those that compute what reads it.
//! A node of the rewritten graph without a counterpart is part of the computation of what reads it. Invariant: every node of
//! the original graph that an output needs is an origin of some node, or its value is constant, or that of an input.

use crate::graph::disjoint_sets::DisjointSets;
use crate::graph::egraph::convert::Loaded;
use crate::graph::egraph::network::{Head, Network};
use crate::graph::ir::{Graph, Source};
use crate::graph::op::{Op, add_new};
use crate::graph::rules::constants;
use crate::graph::subgraph;
use egg::Id;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Gives the nodes of `rewritten` their origins; `nodes` has the node of each class that was chosen.
pub(super) fn trace(original: &Graph, loaded: &Loaded, rewritten: &mut Graph, nodes: &BTreeMap<Id, u32>) {
    let network = &loaded.network;
    let made = |class: Id| nodes.get(&network.find(class)).copied().filter(|_| !network.is_constant(class));
    let exact: Vec<Vec<u32>> = (original.nodes.iter().zip(&loaded.nodes))
        .map(|(node, &whole)| {
            let results = node.outputs.iter().map(|v| loaded.class[v.0 as usize]);
            let nodes: BTreeSet<u32> = std::iter::once(whole).chain(results).filter_map(made).collect();
            nodes.into_iter().collect()
        })
        .collect();
    let mut origins: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); rewritten.nodes.len()];
    for (n, places) in (0..).zip(&exact) {
        places.iter().for_each(|&r| _ = origins[r as usize].insert(n));
    }
    let copies = copies(network, loaded, &exact, &mut origins, nodes);
    let places = carriers(original, loaded, exact, copies);
    for (n, places) in (0..).zip(&places) {
        places.iter().for_each(|&r| _ = origins[r as usize].insert(n));
    }
    inherit(rewritten, &constants::foldable(rewritten), &mut origins);
    for (node, origins) in rewritten.nodes.iter_mut().zip(origins) {
        let originals = || origins.iter().map(|&n| &original.nodes[n as usize]);
        add_new(&mut node.origins, originals().flat_map(|original| &original.origins));
        for original in originals() {
            if original.op == node.op {
                let mine = subgraph::bodies_mut(&mut node.op).into_iter();
                mine.zip(subgraph::bodies(&original.op)).for_each(|(mine, other)| mine.merge_origins(other));
            }
        }
    }
}

/// The origins of nodes whose values are constants of the e-graph.
pub(super) fn folded(original: &Graph, loaded: &Loaded) -> Vec<Arc<str>> {
    let constant = original.nodes.iter().zip(&loaded.nodes).filter(|(_, class)| loaded.network.is_constant(**class));
    let mut origins = vec![];
    constant.for_each(|(node, _)| origins.extend_from_slice(&node.origins));
    origins
}

/// For each node of the original graph without a place the nodes of the rewritten graph that have its value in another
/// layout. A node of the rewritten graph that stands for no value of the original graph gets those of its value in any
/// layout, first those without a place.
fn copies(
    network: &Network,
    loaded: &Loaded,
    exact: &[Vec<u32>],
    own: &mut [BTreeSet<u32>],
    nodes: &BTreeMap<Id, u32>,
) -> Vec<Vec<u32>> {
    let mut layouts = Layouts::new(network);
    let mut originals: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
    for (n, &class) in (0..).zip(&loaded.nodes) {
        originals.entry(layouts.value(network.find(class))).or_default().push(n);
    }
    let mut copies = vec![vec![]; exact.len()];
    for (&class, &r) in nodes {
        if !own[r as usize].is_empty() || network.is_constant(class) {
            continue;
        }
        let sources = originals.get(&layouts.value(class)).map_or(&[][..], |list| list);
        let lost: Vec<u32> = sources.iter().copied().filter(|&n| exact[n as usize].is_empty()).collect();
        lost.iter().for_each(|&n| copies[n as usize].push(r));
        own[r as usize].extend(if lost.is_empty() { sources } else { &lost });
    }
    copies
}

/// The nodes of the rewritten graph that compute each node of the original one, alone or together with others.
fn carriers(original: &Graph, loaded: &Loaded, exact: Vec<Vec<u32>>, copies: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let mut readers: Vec<Vec<u32>> = vec![vec![]; original.nodes.len()];
    for (n, node) in (0..).zip(&original.nodes) {
        for v in &node.inputs {
            if let Source::Node(producer, _) = original.value(*v).source {
                readers[producer as usize].push(n);
            }
        }
    }
    let mut places = exact;
    for n in (0..places.len()).rev() {
        if !places[n].is_empty() || loaded.network.is_constant(loaded.nodes[n]) {
            continue;
        }
        let copied = match copies[n].is_empty() {
            true => readers[n].iter().flat_map(|&reader| places[reader as usize].iter().copied()).collect(),
            false => BTreeSet::from_iter(copies[n].iter().copied()),
        };
        places[n] = copied.into_iter().collect();
    }
    places
}

/// Gives nodes without origins those of the nodes that read them, unless they are `foldable`: nothing is left of these.
fn inherit(rewritten: &Graph, foldable: &[bool], origins: &mut [BTreeSet<u32>]) {
    let mut read_for: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); origins.len()];
    for (n, node) in rewritten.nodes.iter().enumerate().rev().filter(|(n, _)| !foldable[*n]) {
        if origins[n].is_empty() {
            origins[n] = std::mem::take(&mut read_for[n]);
        }
        for v in &node.inputs {
            if let Source::Node(producer, _) = rewritten.value(*v).source
                && origins[producer as usize].is_empty()
                && !foldable[producer as usize]
            {
                read_for[producer as usize].extend(&origins[n]);
            }
        }
    }
}

/// Classes with the same elements in another order or shape.
struct Layouts(DisjointSets);

impl Layouts {
    fn new(network: &Network) -> Layouts {
        let mut layouts = Layouts(DisjointSets::new(network.egraph.nodes().len()));
        for class in network.egraph.classes() {
            for term in &class.nodes {
                let Head::Op(op) = &term.head else { continue };
                if let Op::Transpose { .. } | Op::Reshape { .. } | Op::Block { .. } | Op::Unblock { .. } = op {
                    layouts.0.join(class.id.into(), network.find(term.children[0]).into());
                }
            }
        }
        layouts
    }

    /// The least of the classes that have the elements of this one.
    fn value(&mut self, class: Id) -> usize {
        self.0.least(class.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Target;
    use crate::graph::builder::GraphBuilder;
    use crate::graph::egraph::convert::{load, store};
    use crate::graph::egraph::saturate::{Budget, saturate};
    use crate::graph::price::{Prices, Resident};
    use crate::graph::{extract, rules};
    use crate::runtime::{DType, Tensor};

    /// `x + 0 + 1 + 2 + …`, each addition of its own name.
    fn chain(additions: usize) -> Graph {
        let mut b = GraphBuilder::new("chain");
        let mut value = b.input("x", DType::F32, &[4]);
        for i in 0..additions {
            let constant = b.constant(Tensor::seeded(DType::F32, &[4], i as u64, 0, 2));
            value = b.add(value, constant).unwrap();
        }
        b.output("y", value).unwrap();
        let mut graph = b.build().unwrap();
        (0..).zip(&mut graph.nodes).for_each(|(n, node)| node.origins = vec![format!("add{n}").into()]);
        graph
    }

    /// The rewritten graph with the constant expressions that rules built.
    fn unfolded(graph: &Graph) -> Graph {
        let mut loaded = load(graph).unwrap();
        loaded.network.max_error = 1e-4;
        let budget = Budget { iterations: 8, nodes: 16 * graph.nodes.len(), rewrites: usize::MAX };
        saturate(&mut loaded.network, &rules::clean(), budget);
        let target = Target::avx512();
        let resident = Resident::of(graph, &target);
        let prices = Prices::new(
            &target,
            extract::applications(&loaded.network),
            |weights, moved| resident.place(weights, moved),
            1,
        );
        let roots: Vec<Id> = graph.outputs.iter().map(|v| loaded.class[v.0 as usize]).collect();
        let (chosen, _) = extract::extract(&loaded.network, &roots, &prices, 5000).unwrap();
        let mut unfolded = store(graph, &loaded, &chosen).unwrap();
        trace(graph, &loaded, &mut unfolded.graph, &unfolded.nodes);
        unfolded.graph
    }

    /// A name of each addition in each constant of a chain would be a square of its length.
    #[test]
    fn constants_of_a_chain_have_no_origins() {
        for additions in [20, 200] {
            let graph = unfolded(&chain(additions));
            let (folded, left): (Vec<_>, Vec<_>) =
                graph.nodes.iter().zip(constants::foldable(&graph)).partition(|(_, foldable)| *foldable);
            assert!(folded.len() >= additions - 1, "{}", folded.len());
            assert!(folded.iter().all(|(node, _)| node.origins.is_empty()));
            let [(node, _)] = left[..] else { panic!("{} additions are left", left.len()) };
            let names: BTreeSet<&str> = node.origins.iter().map(|origin| &**origin).collect();
            assert_eq!((names.len(), node.origins.len()), (additions, additions));
        }
    }
}
