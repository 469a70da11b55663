//! Graphs inside of nodes: `If`, `Loop` and `Scan` have bodies that read values of the graphs around them by name.
//!
//! In: a graph of the file, the values of its inputs, and the importer of the graph around it. Out: its nodes in that
//! graph (inlined), or a graph of its own with the values that it captures.

use super::provenance::Provenance;
use super::sparse;
use crate::graph::import::importer::Importer;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::{Body, Op};
use crate::graph::proto::{GraphProto, NodeProto};
use crate::graph::subgraph;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{Error, Result, Tensor};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Constants with more elements are captured: a body is text.
const MOST_WRITTEN: usize = 8;

/// The graphs inside of a node.
pub(super) fn graphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs))
}

/// The names that the graphs inside of a node read from the graph around it, sorted.
pub(super) fn captured_names(node: &NodeProto) -> BTreeSet<&str> {
    graphs(node).flat_map(free_names).collect()
}

/// The names that a graph reads and neither it nor a graph inside of it defines, sorted.
pub(super) fn free_names(graph: &GraphProto) -> BTreeSet<&str> {
    let inputs = graph.input.iter().map(|i| &i.name).chain(graph.initializer.iter().map(|t| &t.name));
    let defined = inputs.chain(sparse::names(graph)).chain(graph.node.iter().flat_map(|n| &n.output));
    let defined: HashSet<&str> = defined.map(String::as_str).collect();
    let read = graph.node.iter().flat_map(|n| n.input.iter().map(String::as_str).chain(captured_names(n)));
    let read = read.chain(graph.output.iter().map(|o| o.name.as_str()));
    read.filter(|name| !name.is_empty() && !defined.contains(name)).collect()
}

/// A graph inside of an operator, and the values that it captures: its last inputs.
pub(super) struct Inside {
    pub graph: Graph,
    pub captured: Vec<ValueId>,
}

/// Knowledge of an input of a graph inside.
pub(super) enum Given {
    Type(TensorType),
    Constant(Tensor),
}

/// Counts the nodes of a graph inside that is about to be converted.
fn count_nodes(g: &mut Importer, proto: &GraphProto) -> Result<()> {
    g.nodes_left = g.nodes_left.checked_sub(proto.node.len().max(1)).ok_or_else(|| {
        let most = g.limits.nodes;
        Error::Limit(format!("graphs inside of nodes have more than {most} nodes, loops written out (`Limits::nodes`)"))
    })?;
    Ok(())
}

/// Adds the nodes of a graph inside to the graph around it; its inputs are these values. Returns its outputs.
pub(super) fn inline(g: &mut Importer, proto: &GraphProto, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
    count_nodes(g, proto)?;
    let graph = std::mem::take(&mut g.graph);
    let bounded = g.bounded.take();
    let mut inner = Importer { graph, bounded, ..g.inside(proto) };
    let captured = free_names(proto).into_iter().filter_map(|name| Some((name, *g.values.get(name)?)));
    inner.values.extend(captured);
    inner.values.extend(proto.input.iter().zip(inputs).map(|(input, &id)| (input.name.as_str(), Some(id))));
    let outputs = inner.nodes(proto).and_then(|()| results(&inner, proto));
    g.needed.borrow_mut().append(&mut inner.needed.take());
    g.provenance.take_inlined(std::mem::take(&mut inner.provenance));
    (g.graph, g.budget, g.bounded) = (inner.graph, inner.budget, inner.bounded);
    (g.work_left, g.nodes_left) = (inner.work_left, inner.nodes_left);
    outputs
}

/// Imports a graph inside as a graph of its own. Constants around it are constants in it.
pub(super) fn import(g: &mut Importer, proto: &GraphProto, inputs: Vec<Given>) -> Result<Inside> {
    count_nodes(g, proto)?;
    let captures = |name: &str| g.values.get(name).copied().flatten().is_some_and(|id| !g.axes(id).is_empty());
    if free_names(proto).into_iter().any(captures) {
        return Err(Error::Unsupported("a graph inside reads a dimension that grows".into()));
    }
    let mut inner = g.inside(proto);
    for (input, value) in proto.input.iter().zip(inputs) {
        let id = match value {
            Given::Type(ty) => inner.add_input(ty),
            Given::Constant(tensor) => inner.constant(tensor),
        };
        inner.values.insert(&input.name, Some(id));
    }
    let mut captured = vec![];
    for name in free_names(proto) {
        let Some(&outer) = g.values.get(name) else { continue };
        let id = outer.map(|outer| match g.graph.constant(outer) {
            Some(tensor) => inner.named_constant(name.to_string(), tensor.clone()),
            None => {
                captured.push(outer);
                inner.add_input(g.ty(outer).clone())
            }
        });
        inner.values.insert(name, id);
    }
    let converted = inner.nodes(proto);
    (g.budget, g.work_left, g.nodes_left) = (inner.budget, inner.work_left, inner.nodes_left);
    converted?;
    let outputs = results(&inner, proto)?;
    g.provenance.add_closed(inner.provenance.close(&inner.graph));
    let (graph, constants) = inner.into_graph(&outputs);
    captured.extend(constants.into_iter().map(|tensor| g.named_constant("captured".into(), tensor)));
    Ok(Inside { graph, captured })
}

/// The values of the outputs of an imported graph.
fn results(inner: &Importer, proto: &GraphProto) -> Result<Vec<ValueId>> {
    let value = |name: &str| match inner.values.get(name) {
        Some(Some(id)) => Ok(*id),
        Some(None) => Err(Error::Unsupported(format!("the result `{name}` of a graph inside is not computed"))),
        None => Err(Error::Invalid(format!("nothing defines the result `{name}` of a graph inside"))),
    };
    proto.output.iter().map(|o| value(&o.name)).collect()
}

impl<'m> Importer<'m> {
    /// The importer of a graph inside of the node that is being converted, with a graph of its own.
    fn inside<'p>(&self, proto: &'p GraphProto) -> Importer<'p>
    where
        'm: 'p,
    {
        let (place, budget) = (self.place.clone(), self.budget);
        let (work_left, nodes_left) = (self.work_left, self.nodes_left);
        let provenance = Provenance::new(proto, self.provenance.current().cloned());
        let inner = Importer::of(self.model, proto, self.limits);
        Importer { place, provenance, budget, work_left, nodes_left, ..inner }
    }

    /// The body of an operator with inputs of these types, as `build` makes it.
    pub(super) fn body(
        &mut self,
        inputs: &[TensorType],
        build: impl FnOnce(&mut Importer, &[ValueId]) -> Result<Vec<ValueId>>,
    ) -> Result<Body> {
        let mut inner = self.inside(self.proto);
        let ids: Vec<ValueId> = inputs.iter().map(|ty| inner.add_input(ty.clone())).collect();
        let outputs = build(&mut inner, &ids)?;
        (self.budget, self.work_left) = (inner.budget, inner.work_left);
        match inner.into_graph(&outputs) {
            (graph, constants) if constants.is_empty() => subgraph::body(&graph),
            _ => Err(Error::Internal(format!("`{}` has a large constant inside", self.place))),
        }
    }

    /// The results of an operator. A scan of a single trip is its body, whose nodes take its place and name it beside those
    /// that they come from.
    pub(super) fn emit_scan(&mut self, op: Op, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let grows = operands.iter().any(|&v| !self.axes(v).is_empty());
        let (carried, reverse, body) = match &op {
            Op::Scan { trips: 1, carried, reverse, conditional: false, body } if !grows => (carried, reverse, body),
            _ => return self.emit_all(op, operands),
        };
        let body = subgraph::graph(body)?;
        let stacked = body.outputs.len() - carried;
        let scanned = reverse.len() - stacked;
        let mut values = HashMap::new();
        for (k, (&input, &operand)) in body.inputs.iter().zip(operands).enumerate() {
            let is_slice = (*carried..carried + scanned).contains(&k);
            let shape = &body.value(input).ty.shape;
            values.insert(input, if is_slice { self.reshape_to(operand, shape.clone())? } else { operand });
        }
        for (v, value) in body.values.iter().enumerate() {
            if let Source::Constant(tensor) = &value.source {
                values.insert(ValueId(v as u32), self.named_constant(value.name.clone(), tensor.clone()));
            }
        }
        for node in &body.nodes {
            let operands: Vec<ValueId> = node.inputs.iter().map(|v| values[v]).collect();
            let first = self.graph.nodes.len();
            let results = self.emit_scan(node.op.clone(), &operands)?;
            for emitted in &mut self.graph.nodes[first..] {
                let inside = node.origins.iter().filter(|origin| !emitted.origins.contains(origin)).cloned();
                let inside: Vec<_> = inside.collect();
                emitted.origins.extend(inside);
            }
            values.extend(node.outputs.iter().copied().zip(results));
        }
        let mut results = vec![];
        for (k, output) in body.outputs.iter().enumerate() {
            let (value, shape) = (values[output], &body.value(*output).ty.shape);
            results.push(if k < *carried { value } else { self.reshape_to(value, [&[1], &shape[..]].concat())? });
        }
        Ok(results)
    }

    fn add_input(&mut self, ty: TensorType) -> ValueId {
        let id = self.graph.add_value("input", ty, Source::Input);
        self.graph.inputs.push(id);
        id
    }

    /// The graph with these outputs. Its large constants become its last inputs.
    fn into_graph(mut self, outputs: &[ValueId]) -> (Graph, Vec<Arc<Tensor>>) {
        for &v in outputs {
            let v = self.own_output(v, "output");
            self.graph.outputs.push(v);
        }
        self.remove_unused();
        let mut constants = vec![];
        for (i, value) in self.graph.values.iter_mut().enumerate() {
            if let Source::Constant(tensor) = &value.source
                && tensor.len() > MOST_WRITTEN
            {
                constants.push(tensor.clone());
                value.source = Source::Input;
                self.graph.inputs.push(ValueId(i as u32));
            }
        }
        (self.graph, constants)
    }
}

/// Gives graphs the same captured inputs: the union of what they capture, in the order in which it is first named.
pub(super) fn unite(g: &Importer, graphs: &mut [Inside]) -> Vec<ValueId> {
    let mut captured: Vec<ValueId> = vec![];
    for &v in graphs.iter().flat_map(|i| &i.captured) {
        if !captured.contains(&v) {
            captured.push(v);
        }
    }
    for inside in graphs {
        let graph = &mut inside.graph;
        let own = graph.inputs.split_off(graph.inputs.len() - inside.captured.len());
        for &v in &captured {
            let existing = inside.captured.iter().position(|c| *c == v).map(|i| own[i]);
            let input = existing.unwrap_or_else(|| graph.add_value("input", g.ty(v).clone(), Source::Input));
            graph.inputs.push(input);
        }
    }
    captured
}
