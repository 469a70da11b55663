//! Graphs inside of operators: between [`Graph`] and the text that an operator keeps, and their evaluation.
//!
//! In: an operator with bodies, and its operands. Out: its results, given how a graph's operators are evaluated.

use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::{Body, Op, Origins};
use crate::graph::tensor_type::TensorType;
use crate::graph::text;
use crate::runtime::module::MAX_TRIPS;
use crate::runtime::{Bytes, Error, Result, Tensor};
use std::collections::HashSet;
use std::sync::Arc;

/// Graphs within graphs that are compiled or evaluated.
pub const MAX_DEPTH: usize = 6;

/// The body that is this graph. Values lose their names and nodes theirs, but not their origins.
///
/// # Errors
/// `Internal` where the graph's text cannot be read.
pub fn body(graph: &Graph) -> Result<Body> {
    let mut named = graph.clone();
    for (i, &v) in graph.inputs.iter().enumerate() {
        named.values[v.0 as usize].name = format!("i{i}");
    }
    for (i, &v) in graph.outputs.iter().enumerate() {
        named.values[v.0 as usize].name = format!("o{i}");
    }
    named.name = "body".into();
    named.nodes.iter_mut().for_each(|n| n.name.clear());
    let text = text::print(&named);
    let inside = text.lines().filter(|l| *l != "}").skip(1).map(str::trim);
    let statements: Vec<&str> = inside.map(|l| l.strip_suffix("  #").unwrap_or(l)).collect();
    let body = Body::parse(&format!("{{ {} }}", statements.join("; ")));
    let body = body.map_err(|e| Error::Internal(format!("a body: {e}")))?;
    let inside = |op: &Op| bodies(op).into_iter().map(|body| body.origins().clone()).collect();
    let origins = graph.nodes.iter().map(|n| Origins { own: n.origins.clone(), inside: inside(&n.op) });
    Ok(body.with_origins(origins.collect()))
}

/// The graph of a body, verified.
///
/// # Errors
/// `Invalid` where a statement is wrong, or bodies are nested more deeply than [`MAX_DEPTH`].
pub fn graph(body: &Body) -> Result<Graph> {
    let mut graph = text::parse(&format!("graph body {{\n{}\n}}", body.statements().join("\n")))?;
    for (node, origins) in graph.nodes.iter_mut().zip(&body.origins()[..]) {
        node.origins = origins.own.clone();
        for (body, origins) in bodies_mut(&mut node.op).into_iter().zip(&origins.inside) {
            *body = body.clone().with_origins(origins.clone());
        }
    }
    Ok(graph)
}

/// The bodies of an operator.
pub fn bodies(op: &Op) -> Vec<&Body> {
    match op {
        Op::Scan { body, .. } => vec![body],
        Op::If { then, otherwise } => vec![then, otherwise],
        _ => vec![],
    }
}

/// The bodies of an operator, to change.
pub fn bodies_mut(op: &mut Op) -> Vec<&mut Body> {
    match op {
        Op::Scan { body, .. } => vec![body],
        Op::If { then, otherwise } => vec![then, otherwise],
        _ => vec![],
    }
}

/// The origins of all nodes of a graph and of the bodies inside of them, each once.
pub fn origins(graph: &Graph) -> Vec<Arc<str>> {
    fn add_inside(origins: &Origins, all: &mut Vec<Arc<str>>) {
        all.extend_from_slice(&origins.own);
        origins.inside.iter().flat_map(|body| &body[..]).for_each(|node| add_inside(node, all));
    }
    let mut all = vec![];
    for node in &graph.nodes {
        all.extend_from_slice(&node.origins);
        bodies(&node.op).into_iter().flat_map(|body| &body.origins()[..]).for_each(|node| add_inside(node, &mut all));
    }
    let mut seen = HashSet::new();
    all.retain(|origin| seen.insert(origin.clone()));
    all
}

/// Elements that the bodies of an operator may compute while constants are folded.
const MOST_FOLDED: i64 = 1 << 22;

/// Returns true if an operator of constants may be evaluated when the model is compiled: it has no body, or one that is sure
/// to end soon.
pub fn may_fold(op: &Op) -> bool {
    let trips = if let Op::Scan { trips, .. } = op { *trips } else { 1 };
    bodies(op).into_iter().all(|body| work(body, 0).is_some_and(|n| n.saturating_mul(trips) <= MOST_FOLDED))
}

/// Elements of all values that one evaluation of a body computes; `None` where it cannot be read.
fn work(body: &Body, depth: usize) -> Option<i64> {
    if depth > MAX_DEPTH {
        return None;
    }
    let graph = graph(body).ok()?;
    graph.nodes.iter().try_fold(1i64, |sum, node| {
        let trips = if let Op::Scan { trips, .. } = node.op { trips } else { 1 };
        let inside = bodies(&node.op).into_iter().map(|b| work(b, depth + 1)).try_fold(0i64, |n, w| Some(n.max(w?)))?;
        let operands = node.inputs.iter().chain(&node.outputs).map(|&v| graph.value(v).ty.elements());
        let elements = operands.fold(1, i64::saturating_add);
        Some(sum.saturating_add(elements).saturating_add(inside.saturating_mul(trips)))
    })
}

/// Makes inputs of a graph constants where `constants` has a tensor, and removes them from its inputs. Returns the positions
/// of the others.
pub fn bind(graph: &mut Graph, constants: &[Option<Arc<Tensor>>]) -> Vec<usize> {
    let inputs = std::mem::take(&mut graph.inputs);
    let mut free = vec![];
    for (i, v) in inputs.into_iter().enumerate() {
        match constants.get(i).cloned().flatten() {
            Some(tensor) => graph.values[v.0 as usize].source = Source::Constant(tensor),
            None => {
                graph.inputs.push(v);
                free.push(i);
            }
        }
    }
    free
}

/// How one operator is evaluated.
pub type Apply<'a> = &'a dyn Fn(&Op, &[&Tensor]) -> Result<Vec<Tensor>>;

/// Evaluates a graph, operator by operator. Values are dropped after their last use.
///
/// # Errors
/// `Invalid` for inputs that are not those of the graph, and as `apply`.
pub fn run(graph: &Graph, inputs: &[&Tensor], apply: Apply) -> Result<Vec<Tensor>> {
    if inputs.len() != graph.inputs.len() {
        return Err(Error::Invalid(format!("{} inputs given, the graph has {}", inputs.len(), graph.inputs.len())));
    }
    let mut values: Vec<Option<Arc<Tensor>>> = vec![None; graph.values.len()];
    for (&id, &tensor) in graph.inputs.iter().zip(inputs) {
        let value = graph.value(id);
        if TensorType::of(tensor) != value.ty {
            let got = TensorType::of(tensor);
            return Err(Error::Invalid(format!("input {} is {got} instead of {}", value.name, value.ty)));
        }
        values[id.0 as usize] = Some(Arc::new(tensor.clone()));
    }
    for (slot, value) in values.iter_mut().zip(&graph.values) {
        if let Source::Constant(t) = &value.source {
            *slot = Some(t.clone());
        }
    }
    let mut last_use = vec![usize::MAX; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|v| last_use[v.0 as usize] = i);
    }
    graph.outputs.iter().for_each(|v| last_use[v.0 as usize] = usize::MAX);
    let get = |values: &[Option<Arc<Tensor>>], id: ValueId| {
        let missing = || Error::Internal(format!("value {} is used before it is computed", graph.value(id).name));
        values[id.0 as usize].clone().ok_or_else(missing)
    };
    for (i, node) in graph.nodes.iter().enumerate() {
        let operands: Vec<Arc<Tensor>> = node.inputs.iter().map(|&v| get(&values, v)).collect::<Result<_>>()?;
        let references: Vec<&Tensor> = operands.iter().map(|t| &**t).collect();
        let results = apply(&node.op, &references).map_err(|e| e.context(&format!("{} ({})", node.name, node.op)))?;
        for (&id, tensor) in node.outputs.iter().zip(results) {
            values[id.0 as usize] = Some(Arc::new(tensor));
        }
        for &v in &node.inputs {
            if last_use[v.0 as usize] == i {
                values[v.0 as usize] = None;
            }
        }
    }
    graph.outputs.iter().map(|&v| get(&values, v).map(|t| (*t).clone())).collect()
}

/// The results of a scan or an if, whose body's operators `apply` evaluates.
///
/// # Errors
/// As [`run`]; `Internal` for another operator.
pub fn evaluate(op: &Op, operands: &[&Tensor], results: &[TensorType], apply: Apply) -> Result<Vec<Tensor>> {
    match op {
        Op::If { then, otherwise } => {
            let holds = operands[0].data.iter().any(|&b| b != 0);
            run(&graph(if holds { then } else { otherwise })?, &operands[1..], apply)
        }
        Op::Scan { trips, carried, reverse, conditional, body } => {
            let (body, trips) = (graph(body)?, *trips as usize);
            let scanned = reverse.len() - (results.len() - carried);
            let mut last: Vec<Tensor> = operands[..*carried].iter().map(|&t| t.clone()).collect();
            let stacks = results[*carried..].iter();
            let mut stacks: Vec<Tensor> = stacks.map(|t| Tensor::zeros(t.dtype, &t.shape)).collect();
            for step in 0..trips {
                if *conditional && last[0].data.iter().all(|&b| b == 0) {
                    break;
                }
                let place = |k: usize| if reverse[k] { trips - 1 - step } else { step };
                let slices = operands[*carried..][..scanned].iter().enumerate();
                let slices: Vec<Tensor> = slices.map(|(k, t)| slice(t, trips, place(k))).collect();
                let inputs = last.iter().chain(&slices).chain(operands[carried + scanned..].iter().copied());
                let mut next = run(&body, &inputs.collect::<Vec<_>>(), apply)?;
                for (k, made) in next.split_off(*carried).into_iter().enumerate() {
                    let size = made.data.len();
                    stacks[k].data[place(scanned + k) * size..][..size].copy_from_slice(&made.data);
                }
                last = next;
            }
            if *conditional && trips as u64 == MAX_TRIPS && last[0].data.iter().any(|&b| b != 0) {
                return Err(Error::Limit(format!("a loop does not end after {MAX_TRIPS} times")));
            }
            Ok(last.into_iter().chain(stacks).collect())
        }
        _ => Err(Error::Internal(format!("{} has no graph inside", op.mnemonic()))),
    }
}

/// Slice `place` of `count` along the first dimension.
fn slice(tensor: &Tensor, count: usize, place: usize) -> Tensor {
    let size = tensor.data.len() / count;
    let data: Bytes = tensor.data[place * size..][..size].to_vec().into();
    Tensor { dtype: tensor.dtype, shape: tensor.shape[1..].to_vec(), data }
}
