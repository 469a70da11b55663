//! The nodes of a file: how they are named, what they read, the order in which they run.

use super::nested;
use crate::graph::proto::{GraphProto, ModelProto, NodeProto};
use crate::runtime::{Error, Result};
use std::collections::{HashMap, HashSet};

pub(super) fn prefix(place: &str, error: Error) -> Error {
    match error {
        Error::Invalid(m) => Error::Invalid(format!("{place}: {m}")),
        Error::Unsupported(m) => Error::Unsupported(format!("{place}: {m}")),
        Error::Limit(m) => Error::Limit(format!("{place}: {m}")),
        other => other,
    }
}

pub fn describe(node: &NodeProto) -> String {
    let name = if node.name.is_empty() {
        format!("producing `{}`", node.output.iter().find(|o| !o.is_empty()).map_or("", |o| o))
    } else {
        format!("`{}`", node.name)
    };
    let domain = if node.domain.is_empty() { String::new() } else { format!("{}::", node.domain) };
    format!("{domain}{} {name}", node.op_type)
}

/// As [`describe`], with the operator set of ONNX's own domain.
pub fn describe_in(node: &NodeProto, opset: i64) -> String {
    let description = describe(node);
    if node.domain.is_empty() { format!("{description} (opset {opset})") } else { description }
}

pub fn unsupported(problems: Vec<String>) -> Error {
    let count = problems.len();
    let plural = if count == 1 { "node is" } else { "nodes are" };
    Error::Unsupported(format!("{count} {plural} not supported: {}", problems.join("; ")))
}

/// Gives ONNX's own domain its short name, the empty one, wherever a model has the long one.
pub(super) fn shorten_domains(model: &mut ModelProto) {
    fn shorten(name: &mut String) {
        if name == "ai.onnx" {
            name.clear();
        }
    }
    fn shorten_all(nodes: &mut [NodeProto]) {
        for node in nodes {
            shorten(&mut node.domain);
            let inside = node.attribute.iter_mut().flat_map(|a| a.g.iter_mut().chain(&mut a.graphs));
            inside.for_each(|graph| shorten_all(&mut graph.node));
        }
    }
    let functions = &mut model.functions;
    let opsets = functions.iter_mut().flat_map(|f| &mut f.opset_import).chain(&mut model.opset_import);
    opsets.for_each(|opset| shorten(&mut opset.domain));
    for function in functions {
        shorten(&mut function.domain);
        shorten_all(&mut function.node);
    }
    model.graph.iter_mut().for_each(|graph| shorten_all(&mut graph.node));
}

/// The names that a node reads: its operands, and what the graphs inside of it capture.
pub fn read_names(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.input.iter().map(String::as_str).chain(nested::captured_names(node))
}

/// The nodes in an order in which every operand is defined first; an error names a cycle.
pub(super) fn topological(graph: &GraphProto) -> Result<Vec<&NodeProto>> {
    let producer: HashMap<&str, usize> =
        graph.node.iter().enumerate().flat_map(|(i, n)| n.output.iter().map(move |o| (o.as_str(), i))).collect();
    let operands: Vec<Vec<&str>> = graph.node.iter().map(|n| read_names(n).collect()).collect();
    let mut order = Vec::with_capacity(graph.node.len());
    // 0 = not seen, 1 = on the stack, 2 = done
    let mut state = vec![0u8; graph.node.len()];
    for root in 0..graph.node.len() {
        let mut stack = vec![(root, 0)];
        while let Some((n, next)) = stack.pop() {
            if state[n] == 2 {
                continue;
            }
            state[n] = 1;
            match operands[n].get(next) {
                None => {
                    state[n] = 2;
                    order.push(&graph.node[n]);
                }
                Some(name) => {
                    stack.push((n, next + 1));
                    if let Some(&p) = producer.get(name).filter(|_| !name.is_empty()) {
                        match state[p] {
                            0 => stack.push((p, 0)),
                            1 => {
                                let node = describe(&graph.node[n]);
                                return Err(Error::Invalid(format!("the graph has a cycle through {node}")));
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
    }
    Ok(order)
}

/// The nodes that the outputs need, in an order in which every operand is defined first.
///
/// # Errors
/// `Invalid` where the graph has a cycle.
pub(super) fn live_nodes(graph: &GraphProto) -> Result<Vec<&NodeProto>> {
    let mut needed: HashSet<&str> = graph.output.iter().map(|o| o.name.as_str()).collect();
    let mut live = vec![];
    for node in topological(graph)?.into_iter().rev() {
        if node.output.iter().any(|o| !o.is_empty() && needed.contains(o.as_str())) {
            needed.extend(read_names(node));
            live.push(node);
        }
    }
    live.reverse();
    Ok(live)
}

/// As [`live_nodes`], their positions in the file.
///
/// # Errors
/// `Invalid` where the graph has a cycle.
pub fn needed_order(graph: &GraphProto) -> Result<Vec<usize>> {
    let numbered = graph.node.iter().enumerate();
    let position: HashMap<*const NodeProto, usize> = numbered.map(|(i, n)| (std::ptr::from_ref(n), i)).collect();
    Ok(live_nodes(graph)?.into_iter().map(|n| position[&std::ptr::from_ref(n)]).collect())
}

/// The graph inside of a node that its attribute `name` holds.
pub fn graph_inside<'a>(node: &'a NodeProto, name: &str) -> Option<&'a GraphProto> {
    node.attribute.iter().find(|a| a.name == name).and_then(|a| a.g.as_ref())
}

/// Returns true if a node that no static graph has may run between compiled parts, once its operands are known.
pub fn may_wait(node: &NodeProto) -> bool {
    depends_on_data(node) || nested::graphs(node).next().is_some()
}

/// The operators whose results are as large as the data make them.
const DATA_DEPENDENT: [&str; 4] = ["Compress", "NonMaxSuppression", "NonZero", "Unique"];

/// Returns true if the node's results are as large as the data make them: `OnnxModel::fold_node` computes them.
pub fn depends_on_data(node: &NodeProto) -> bool {
    node.domain.is_empty() && DATA_DEPENDENT.contains(&node.op_type.as_str())
}

/// Operators that move or repeat elements, and whose results are as large as the values of some operands say.
const SIZED_BY_VALUES: [&str; 5] = ["ConstantOfShape", "Expand", "Range", "Slice", "TopK"];

/// Returns true if the node's results are as large as values of its operands say, and `OnnxModel::fold_node` may compute them
/// where these follow from data.
pub fn is_sized_by_values(node: &NodeProto) -> bool {
    node.domain.is_empty() && SIZED_BY_VALUES.contains(&node.op_type.as_str())
}
