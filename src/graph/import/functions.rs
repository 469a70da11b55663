//! Functions that a model file defines: each call is replaced by the nodes of the function's body.
//!
//! In: the messages of a file. Out: a graph without calls. Names of the body get the call's place in front; attributes that
//! refer to the call's take their values. The number of nodes is limited, since functions may call each other.

use super::model::opset_of;
use super::nested;
use super::walk::describe;
use crate::graph::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};
use std::collections::{HashMap, HashSet};

/// The most nodes of a file with all calls replaced.
const MAX_NODES: usize = 1 << 17;
/// The most calls inside of each other.
const MAX_DEPTH: usize = 64;

/// The newest operator set whose meaning is known.
const NEWEST_OPSET: i64 = 28;
/// The oldest.
const OLDEST_OPSET: i64 = 1;

/// Domain, name and overload of a function.
type Key = (String, String, String);

/// The set of ONNX's own operators that a model uses. One that uses none of them need not say which; `opsets` has those of
/// nodes from functions, by their first result.
pub(super) fn declared_opset(model: &ModelProto, graph: &GraphProto, opsets: &HashMap<String, i64>) -> Result<i64> {
    let mut declared = model.opset_import.iter().filter(|o| o.domain.is_empty()).map(|o| o.version);
    let first = declared.next();
    if let (Some(first), Some(other)) = (first, declared.find(|other| Some(*other) != first)) {
        return Err(Error::Invalid(format!(
            "the file imports the operator sets {first} and {other} of ONNX's own operators"
        )));
    }
    match first {
        Some(opset) if (OLDEST_OPSET..=NEWEST_OPSET).contains(&opset) => Ok(opset),
        Some(opset) => Err(Error::Unsupported(format!(
            "operator set {opset}: this importer knows {OLDEST_OPSET} to {NEWEST_OPSET}"
        ))),
        None => match node_of_own_domain(graph, opsets) {
            Some(node) => Err(Error::Invalid(format!(
                "the file does not import a set of ONNX's own operators, of which {} is one",
                describe(node)
            ))),
            None => Ok(NEWEST_OPSET),
        },
    }
}

/// A node of ONNX's own domain, also in graphs inside, whose operator set `opsets` does not have.
fn node_of_own_domain<'a>(graph: &'a GraphProto, opsets: &HashMap<String, i64>) -> Option<&'a NodeProto> {
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        for node in &graph.node {
            if node.domain.is_empty() && opset_of(node, opsets, 0) == 0 {
                return Some(node);
            }
            graphs.extend(nested::graphs(node));
        }
    }
    None
}

/// Replaces all calls in the graph of a file. Returns the operator sets of nodes that have another one than the file, by
/// their first result.
///
/// # Errors
/// `Invalid` where two functions have one name, a function calls itself or a call does not fit; `Limit` where there are too
/// many nodes.
pub(super) fn inline(model: &mut ModelProto) -> Result<HashMap<String, i64>> {
    let functions = std::mem::take(&mut model.functions);
    let mut inliner = Inliner { functions: HashMap::new(), opsets: HashMap::new(), nodes: 0, calls: 0 };
    for function in &functions {
        check_names(function)?;
        let key = (function.domain.clone(), function.name.clone(), function.overload.clone());
        // A file that was joined from others may have the same function of each.
        if inliner.functions.insert(key, function).is_some_and(|other| other != function) {
            return Err(Error::Invalid(format!("the file has two different functions {}", title(function))));
        }
    }
    if let (Some(graph), false) = (&mut model.graph, functions.is_empty()) {
        inliner.graph(graph, 0, None)?;
    }
    Ok(inliner.opsets)
}

/// A function with its domain and overload.
fn title(function: &FunctionProto) -> String {
    let FunctionProto { domain, name, overload, .. } = function;
    let domain = if domain.is_empty() { String::new() } else { format!("{domain}::") };
    let overload = if overload.is_empty() { String::new() } else { format!(" (overload `{overload}`)") };
    format!("`{domain}{name}`{overload}")
}

/// Refuses a function of which two operands, two results or two attributes have one name.
fn check_names(function: &FunctionProto) -> Result<()> {
    let defaults = function.attribute_proto.iter().map(|a| &a.name);
    let attributes: Vec<&String> = function.attribute.iter().chain(defaults).collect();
    for (what, names) in [
        ("inputs", function.input.iter().collect()),
        ("outputs", function.output.iter().collect()),
        ("attributes", attributes),
    ] {
        let mut seen = HashSet::new();
        if let Some(name) = names.into_iter().find(|name| !name.is_empty() && !seen.insert(*name)) {
            let function = title(function);
            return Err(Error::Invalid(format!("the function {function} has two {what} with the name `{name}`")));
        }
    }
    Ok(())
}

struct Inliner<'f> {
    functions: HashMap<Key, &'f FunctionProto>,
    opsets: HashMap<String, i64>,
    nodes: usize,
    calls: usize,
}

/// The names and attributes of one call.
struct Call<'c> {
    /// Names of the body: the call's operands and results, or new ones.
    names: HashMap<String, String>,
    prefix: String,
    attributes: HashMap<&'c str, &'c AttributeProto>,
}

impl Call<'_> {
    fn name(&self, name: &str) -> String {
        match self.names.get(name) {
            _ if name.is_empty() => String::new(),
            Some(name) => name.clone(),
            None => format!("{}{name}", self.prefix),
        }
    }

    /// A node of the body as a node of the graph that calls.
    fn node(&self, mut node: NodeProto) -> NodeProto {
        for name in node.input.iter_mut().chain(&mut node.output) {
            *name = self.name(name);
        }
        if !node.name.is_empty() {
            node.name = format!("{}{}", self.prefix, node.name);
        }
        node.attribute.retain_mut(|attribute| self.attribute(attribute));
        node
    }

    /// Gives an attribute its value; false where the call leaves it out.
    fn attribute(&self, attribute: &mut AttributeProto) -> bool {
        if !attribute.ref_attr_name.is_empty() {
            let Some(&value) = self.attributes.get(attribute.ref_attr_name.as_str()) else { return false };
            let name = std::mem::take(&mut attribute.name);
            *attribute = AttributeProto { name, ..value.clone() };
            return true;
        }
        attribute.g.iter_mut().chain(&mut attribute.graphs).for_each(|graph| self.graph(graph));
        true
    }

    fn graph(&self, graph: &mut GraphProto) {
        let declared = graph.input.iter_mut().chain(&mut graph.output).map(|i| &mut i.name);
        let sparse = graph.sparse_initializer.iter_mut().flat_map(|sparse| &mut sparse.values);
        let stored = graph.initializer.iter_mut().chain(sparse).map(|t| &mut t.name);
        declared.chain(stored).for_each(|name| *name = self.name(name));
        for node in &mut graph.node {
            *node = self.node(std::mem::take(node));
        }
    }
}

impl Inliner<'_> {
    /// Replaces the calls of a graph; `opset`: that of its nodes, where it is not the file's.
    fn graph(&mut self, graph: &mut GraphProto, depth: usize, opset: Option<i64>) -> Result<()> {
        let mut nodes = Vec::with_capacity(graph.node.len());
        for node in std::mem::take(&mut graph.node) {
            self.node(node, depth, opset, &mut nodes)?;
        }
        graph.node = nodes;
        Ok(())
    }

    fn node(
        &mut self,
        mut node: NodeProto,
        depth: usize,
        opset: Option<i64>,
        nodes: &mut Vec<NodeProto>,
    ) -> Result<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Error::Limit(format!("the functions of the file make more than {MAX_NODES} nodes")));
        }
        let key = (node.domain.clone(), node.op_type.clone(), node.overload.clone());
        let Some(&function) = self.functions.get(&key) else {
            for inside in node.attribute.iter_mut().flat_map(|a| a.g.iter_mut().chain(&mut a.graphs)) {
                self.graph(inside, depth, opset)?;
            }
            if let (Some(opset), Some(first)) = (opset, node.output.iter().find(|o| !o.is_empty())) {
                self.opsets.insert(first.clone(), opset);
            }
            nodes.push(node);
            return Ok(());
        };
        if depth >= MAX_DEPTH {
            return Err(Error::Invalid(format!("calls of the function `{}` are nested too deep", function.name)));
        }
        if node.input.len() > function.input.len() || node.output.len() > function.output.len() {
            return Err(Error::Invalid(format!("a call of `{}` has more operands or results than it", function.name)));
        }
        check_attributes(function, &node)?;
        self.calls += 1;
        let call = call(function, &node, self.calls);
        let imported = function.opset_import.iter().find(|o| o.domain.is_empty()).map(|o| o.version);
        let copies = copies(function, &node, &call);
        for inner in function.node.iter().map(|inner| call.node(inner.clone())).chain(copies) {
            self.node(inner, depth + 1, imported.or(opset), nodes)?;
        }
        Ok(())
    }
}

/// Refuses a call that has an attribute twice, or one that its function neither declares nor reads.
fn check_attributes(function: &FunctionProto, node: &NodeProto) -> Result<()> {
    let defaults = function.attribute_proto.iter().map(|a| &a.name);
    let declared: Vec<&String> = function.attribute.iter().chain(defaults).collect();
    for (i, AttributeProto { name, .. }) in node.attribute.iter().enumerate() {
        let problem = if !declared.contains(&name) && !reads(&function.node, name) {
            unknown("attribute", name, &declared)
        } else if node.attribute[..i].iter().any(|a| a.name == *name) {
            format!("the attribute `{name}` is given twice")
        } else {
            continue;
        };
        return Err(Error::Invalid(format!("{}: {problem}", describe(node))));
    }
    Ok(())
}

/// Returns true if an attribute of these nodes, or of those of a graph inside, takes the value of the function's attribute `name`.
fn reads(nodes: &[NodeProto], name: &str) -> bool {
    let inside = |node: &NodeProto| nested::graphs(node).any(|graph| reads(&graph.node, name));
    nodes.iter().any(|node| node.attribute.iter().any(|a| a.ref_attr_name == name) || inside(node))
}

/// A node for each result of a call that its function takes from an operand as it is.
fn copies(function: &FunctionProto, node: &NodeProto, call: &Call) -> Vec<NodeProto> {
    let results = function.output.iter().zip(&node.output);
    let copied = results.filter(|(name, to)| function.input.contains(name) && !to.is_empty());
    let copy = |(name, to): (&String, &String)| NodeProto {
        op_type: "Identity".into(),
        input: vec![call.name(name)],
        output: vec![to.clone()],
        ..NodeProto::default()
    };
    copied.map(copy).collect()
}

fn call<'c>(function: &'c FunctionProto, node: &'c NodeProto, number: usize) -> Call<'c> {
    let operands = function.input.iter().enumerate();
    let operands = operands.map(|(i, name)| (name.clone(), node.input.get(i).cloned().unwrap_or_default()));
    let results = function.output.iter().zip(&node.output);
    let results = results.filter(|(name, to)| !to.is_empty() && !function.input.contains(name));
    let names = operands.chain(results.map(|(name, to)| (name.clone(), to.clone()))).collect();
    let defaults = function.attribute_proto.iter().chain(&node.attribute);
    let attributes = defaults.map(|a| (a.name.as_str(), a)).collect();
    Call { names, prefix: format!("{}.{number}/", function.name), attributes }
}
