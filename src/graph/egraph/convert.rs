//! Graph to e-graph and back.
//!
//! In: a graph; or an e-graph and the chosen e-nodes. Out: the e-graph of its nodes and the class of each value; or the
//! graph of the chosen e-nodes, with the inputs, outputs and names of the original. Invariant: an operator keeps its
//! type.

use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::extract::Extraction;
use crate::graph::fusion::Placement;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{Error, Result};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// A graph in its e-graph.
pub struct Loaded {
    pub network: Network,
    /// The class of each value of the graph.
    pub class: Vec<Id>,
    /// The class of each node: of several results, all of them together.
    pub nodes: Vec<Id>,
}

/// Adds every node of the graph to a new e-graph.
pub fn load(graph: &Graph) -> Result<Loaded> {
    let mut network = Network::default();
    let mut class: Vec<Option<Id>> = vec![None; graph.values.len()];
    network.egraph.analysis.inputs = graph.inputs.iter().map(|&v| graph.value(v).ty.clone()).collect();
    for (i, &v) in graph.inputs.iter().enumerate() {
        class[v.0 as usize] = Some(network.egraph.add(Term { head: Head::Input(i as u32), children: vec![] }));
    }
    for (i, value) in graph.values.iter().enumerate() {
        if let Source::Constant(t) = &value.source {
            class[i] = Some(network.constant(t.clone()));
        }
    }
    let mut nodes = vec![];
    for node in &graph.nodes {
        let children: Option<Vec<Id>> = node.inputs.iter().map(|v| class[v.0 as usize]).collect();
        let Some(children) = children else {
            return Err(Error::Internal(format!("node {} reads a value that is not defined yet", node.name)));
        };
        let whole = network.egraph.add(Term { head: Head::Op(node.op.clone()), children });
        nodes.push(whole);
        for (k, &v) in node.outputs.iter().enumerate() {
            let id = match node.outputs.len() {
                1 => whole,
                _ => network.egraph.add(Term { head: Head::Output(k as u32), children: vec![whole] }),
            };
            if network.facts(id).types.first() != Some(&graph.value(v).ty) {
                return Err(Error::Internal(format!("node {} has another type than its value", node.name)));
            }
            class[v.0 as usize] = Some(id);
        }
    }
    let undefined = || Error::Internal("a value is not defined".into());
    let class = class.into_iter().map(|c| c.ok_or_else(undefined)).collect::<Result<Vec<Id>>>()?;
    network.loaded = network.egraph.nodes().len();
    network.rebuild();
    network.outputs = graph.outputs.iter().map(|v| class[v.0 as usize]).collect();
    Ok(Loaded { network, class, nodes })
}

/// The first node of the graph whose value is in each class.
pub fn first_nodes(graph: &Graph, loaded: &Loaded) -> BTreeMap<Id, u32> {
    let mut nodes = BTreeMap::new();
    for (value, &class) in graph.values.iter().zip(&loaded.class) {
        if let Source::Node(n, _) = value.source {
            nodes.entry(loaded.network.find(class)).or_insert(n);
        }
    }
    for (n, &whole) in (0..).zip(&loaded.nodes) {
        nodes.entry(loaded.network.find(whole)).or_insert(n);
    }
    nodes
}

/// A graph of chosen e-nodes, where its nodes run, and the node of each class.
pub struct Stored {
    pub graph: Graph,
    pub placements: Vec<Placement>,
    pub nodes: BTreeMap<Id, u32>,
}

/// The graph of the chosen e-nodes, with the inputs, outputs and names of `original`.
pub fn store(original: &Graph, loaded: &Loaded, chosen: &Extraction) -> Result<Stored> {
    let network = &loaded.network;
    let mut out = Graph { name: original.name.clone(), ..Graph::default() };
    let sources = first_nodes(original, loaded);
    let mut values: BTreeMap<Id, Vec<ValueId>> = BTreeMap::new();
    let mut nodes: BTreeMap<Id, u32> = BTreeMap::new();
    for &v in &original.inputs {
        let id = out.add_value(original.value(v).name.clone(), original.value(v).ty.clone(), Source::Input);
        out.inputs.push(id);
        values.insert(network.find(loaded.class[v.0 as usize]), vec![id]);
    }
    for &v in &original.outputs {
        let root = network.find(loaded.class[v.0 as usize]);
        // Depth first with an explicit stack; a class on the path that is met again would be a cycle.
        let mut open: BTreeSet<Id> = BTreeSet::new();
        let mut stack = vec![(root, false)];
        while let Some((id, children_done)) = stack.pop() {
            if values.contains_key(&id) {
                continue;
            }
            let term = chosen.choice.get(&id).and_then(|&k| network.terms(id).get(k));
            let Some(term) = term else {
                return Err(Error::Internal("the extraction chose nothing for a value".into()));
            };
            let children: Vec<Id> = term.children.iter().map(|&c| network.find(c)).collect();
            if !children_done {
                if !open.insert(id) {
                    return Err(Error::Internal("the extraction chose a cycle".into()));
                }
                stack.push((id, true));
                stack.extend(children.iter().rev().filter(|c| !values.contains_key(c)).map(|&c| (c, false)));
                continue;
            }
            let name = sources.get(&id).map(|&n| original.nodes[n as usize].name.as_str());
            let produced = match &term.head {
                Head::Input(_) => return Err(Error::Internal("an input was not defined".into())),
                Head::Constant(i) => {
                    let t = network.egraph.analysis.constants[*i as usize].clone();
                    let ty = TensorType { dtype: t.dtype, shape: t.shape.clone() };
                    vec![out.add_value(format!("constant_{i}"), ty, Source::Constant(t))]
                }
                Head::Output(k) => vec![values[&children[0]][*k as usize]],
                Head::Op(op) => {
                    let inputs = children.iter().map(|c| values[c][0]).collect();
                    nodes.insert(id, out.nodes.len() as u32);
                    out.push_node(name, op.clone(), inputs, &network.facts(id).types)
                }
            };
            values.insert(id, produced);
        }
        out.push_output(values[&root][0], &original.value(v).name)?;
    }
    let mut placements = vec![Placement::Own; out.nodes.len()];
    for (id, other) in &chosen.with {
        placements[nodes[id] as usize] = Placement::With(nodes[other]);
    }
    chosen.through.iter().for_each(|id| placements[nodes[id] as usize] = Placement::Through);
    Ok(Stored { graph: out, placements, nodes })
}

impl Graph {
    fn push_node(&mut self, name: Option<&str>, op: Op, inputs: Vec<ValueId>, types: &[TensorType]) -> Vec<ValueId> {
        let n = self.nodes.len() as u32;
        let name = match name {
            Some(name) => name.to_string(),
            None => format!("{}_{n}", op.mnemonic()),
        };
        let outputs: Vec<ValueId> = types
            .iter()
            .enumerate()
            .map(|(k, ty)| self.add_value(format!("{name}:{k}"), ty.clone(), Source::Node(n, k as u32)))
            .collect();
        self.nodes.push(crate::graph::ir::Node { name, origins: vec![], op, inputs, outputs: outputs.clone() });
        outputs
    }

    /// Makes `v` the next output under `name`; a value that is an output or no node's result already gets an alias.
    fn push_output(&mut self, v: ValueId, name: &str) -> Result<()> {
        let alias = self.outputs.contains(&v) || !matches!(self.value(v).source, Source::Node(..));
        let v = if alias {
            let ty = self.value(v).ty.clone();
            let op = Op::Reshape { shape: ty.shape.clone() };
            self.push_node(Some(name), op, vec![v], std::slice::from_ref(&ty))[0]
        } else {
            v
        };
        self.values[v.0 as usize].name = name.to_string();
        self.outputs.push(v);
        Ok(())
    }
}
