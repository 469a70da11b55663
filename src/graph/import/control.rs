//! `If`, `Loop` and `Scan`.
//!
//! In: a node with graphs inside. Out: its results. What is decided when the model is imported leaves no control flow: a branch
//! by a known condition is inlined. A loop with a known number of times is a scan; where its values change their types from one
//! time to the next, its body is inlined once for each time.

use super::nested::{self, Given, Inside};
use super::node::Source;
use crate::expr::{BinaryOp, CompareOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::{self, Graph, Node, ValueId};
use crate::graph::op::Op;
use crate::graph::proto::GraphProto;
use crate::graph::subgraph;
use crate::graph::tensor_type::TensorType;
use crate::runtime::module::MAX_TRIPS;
use crate::runtime::{DType, Error, Result, Tensor};
use std::sync::Arc;

/// The most times that the body of a loop is inlined.
const MOST_INLINED: i64 = 256;
/// Times of a loop that only a condition ends, and the most of others.
const ENDLESS: i64 = MAX_TRIPS as i64;
/// The most times of a loop whose numbers are a constant.
const MOST_NUMBERED: i64 = 1 << 20;

pub(super) fn branch(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let condition = n.input(0)?;
    let (then, otherwise) = (n.graph("then_branch")?, n.graph("else_branch")?);
    check_inputs(then, 0)?;
    check_inputs(otherwise, 0)?;
    if let Some(chosen) = known_bool(g, condition)? {
        return nested::inline(g, if chosen { then } else { otherwise }, &[]);
    }
    let mut import = |branch| {
        nested::import(g, branch, vec![]).inspect_err(|_| {
            // With the condition's value a branch that never runs is not looked at: it is noted as needed.
            let _ = g.known(condition, "condition");
        })
    };
    let mut branches = [import(then)?, import(otherwise)?];
    let captured = nested::unite(g, &mut branches);
    let [then, otherwise] = &branches;
    let types = |inside: &Inside| -> Vec<TensorType> {
        inside.graph.outputs.iter().map(|&v| inside.graph.value(v).ty.clone()).collect()
    };
    let (then_types, other_types) = (types(then), types(otherwise));
    if let Some((a, b)) = then_types.iter().zip(&other_types).find(|(a, b)| a != b) {
        return Err(Error::Unsupported(format!(
            "its branches give {a} and {b}, by a condition that depends on inputs"
        )));
    }
    if then_types.len() != other_types.len() {
        return Err(Error::Invalid("its branches have different numbers of results".into()));
    }
    let op = Op::If { then: subgraph::body(&then.graph)?, otherwise: subgraph::body(&otherwise.graph)? };
    g.emit_all(op, &[&[condition], &captured[..]].concat())
}

/// The value of a constant of one bool; `None` where it is not constant.
fn known_bool(g: &Importer, v: ValueId) -> Result<Option<bool>> {
    let ty = g.ty(v);
    if ty.dtype != DType::Bool || ty.elements() != 1 {
        return Err(Error::Invalid(format!("its condition is {ty} and not one bool")));
    }
    Ok(g.graph.constant(v).map(|t| t.data[0] != 0))
}

fn check_inputs(graph: &GraphProto, count: usize) -> Result<()> {
    match graph.input.len() {
        n if n == count => Ok(()),
        n => Err(Error::Invalid(format!("the graph inside has {n} inputs instead of {count}"))),
    }
}

pub(super) fn repeat(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let body = n.graph("body")?;
    let present = n.present();
    let (most, condition) = (n.optional(0), n.optional(1));
    let leading = [most, condition].iter().flatten().count();
    let initial = present[leading..].to_vec();
    check_inputs(body, 2 + initial.len())?;
    if body.output.len() < 1 + initial.len() {
        return Err(Error::Invalid("the graph inside has fewer results than it carries values".into()));
    }
    if let Some(ty) = most.map(|most| g.ty(most)).filter(|ty| ty.elements() != 1 || ty.dtype != DType::I64) {
        return Err(Error::Invalid(format!("its number of times is {ty} and not one i64")));
    }
    let scans = body.output.len() - 1 - initial.len();
    // A number that is given at run time may end a loop whose results have the same shapes whatever it is.
    let bound = most.filter(|&most| scans == 0 && g.graph.constant(most).is_none());
    let trips = match most {
        Some(most) if bound.is_none() => g.integers(most, "number of times")?[0].clamp(0, ENDLESS),
        _ => ENDLESS,
    };
    let start = match condition {
        Some(condition) => known_bool(g, condition)?,
        None => Some(true),
    };
    let trips = if start == Some(false) { 0 } else { trips };
    let types: Vec<TensorType> = initial.iter().map(|&v| g.ty(v).clone()).collect();
    let inside = match start {
        Some(_) if bound.is_none() => counted(g, body, &types)?,
        _ => None,
    };
    match inside {
        Some(inside) if trips < ENDLESS => return count_loop(g, inside, trips, &initial),
        Some(_) => {
            return Err(Error::Limit(format!("its condition is always true, and it runs {ENDLESS} times or more")));
        }
        None => {}
    }
    let why_not = match scans {
        0 => match conditional_loop(g, body, trips, [condition, bound], &initial, &types) {
            Err(Error::Unsupported(reason)) => reason,
            done => return done,
        },
        _ => "results of a number of times that depends on inputs".into(),
    };
    match start {
        Some(_) if trips <= MOST_INLINED => inlined(g, body, trips, initial, scans),
        _ => Err(Error::Unsupported(why_not)),
    }
}

/// The body of a loop that runs all its times, with the number of the time as a first input; `None` where its condition
/// may become false, or its values change their types.
fn counted(g: &mut Importer, body: &GraphProto, types: &[TensorType]) -> Result<Option<Inside>> {
    let number = Given::Type(TensorType::new(DType::I64, &shape_of_input(body, 0)));
    let go = Given::Constant(one_bool(body));
    let carried = types.iter().cloned().map(Given::Type);
    let inside = match nested::import(g, body, [number, go].into_iter().chain(carried).collect()) {
        Ok(inside) => inside,
        // Its shapes may depend on the time.
        Err(Error::Unsupported(_) | Error::Invalid(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let graph = &inside.graph;
    let goes_on = root_constant(graph, graph.outputs[0]).is_some_and(|t| t.data.iter().all(|&b| b != 0));
    let results = graph.outputs[1..].iter().map(|&v| &graph.value(v).ty);
    let keeps_types = results.zip(types).all(|(a, b)| a == b);
    Ok((goes_on && keeps_types).then_some(inside))
}

/// The constant that a value is, perhaps by a reshape.
fn root_constant(graph: &Graph, v: ValueId) -> Option<&Tensor> {
    match graph.producer(v) {
        Some((node, _)) if matches!(node.op, Op::Reshape { .. }) => root_constant(graph, node.inputs[0]),
        Some(_) => None,
        None => graph.constant(v).map(|t| &**t),
    }
}

/// The declared shape of an input that has one element: a scalar or one of one dimension.
fn shape_of_input(graph: &GraphProto, input: usize) -> Vec<i64> {
    let ty = graph.input.get(input).and_then(|i| i.r#type.as_ref()).and_then(|t| t.tensor_type.as_ref());
    vec![1; ty.and_then(|t| t.shape.as_ref()).map_or(0, |s| s.dim.len().min(1))]
}

fn one_bool(body: &GraphProto) -> Tensor {
    Tensor { dtype: DType::Bool, shape: shape_of_input(body, 1), data: vec![1].into() }
}

/// Captures the carried values that the body returns as they are; they are inputs from `first` on, and results after the
/// condition. Returns the positions of the others.
fn capture_invariant(inside: &mut Inside, first: usize, initial: &[ValueId]) -> Vec<usize> {
    let graph = &mut inside.graph;
    let mut changed = vec![];
    let (inputs, outputs) = (graph.inputs.clone(), graph.outputs.clone());
    for (k, &value) in initial.iter().enumerate() {
        let (input, output) = (inputs[first + k], outputs[1 + k]);
        if root(graph, output) != input {
            changed.push(k);
            continue;
        }
        graph.inputs.retain(|&v| v != input);
        graph.inputs.push(input);
        inside.captured.push(value);
    }
    let kept = |k: usize| k == 0 || k > initial.len() || changed.contains(&(k - 1));
    graph.outputs = outputs.into_iter().enumerate().filter(|&(k, _)| kept(k)).map(|(_, v)| v).collect();
    changed
}

/// The value of which a value is a copy by reshapes, of the same shape.
fn root(graph: &Graph, v: ValueId) -> ValueId {
    match graph.producer(v) {
        Some((node, _)) if matches!(node.op, Op::Reshape { .. }) => {
            let operand = root(graph, node.inputs[0]);
            if graph.value(operand).ty == graph.value(v).ty { operand } else { v }
        }
        _ => v,
    }
}

/// A loop with a known number of times.
fn count_loop(g: &mut Importer, mut inside: Inside, trips: i64, initial: &[ValueId]) -> Result<Vec<ValueId>> {
    let changed = capture_invariant(&mut inside, 1, initial);
    let starts: Vec<ValueId> = changed.iter().map(|&k| initial[k]).collect();
    let mut results = count_changed(g, inside, trips, &starts)?;
    let stacked = results.split_off(changed.len());
    let mut carried = initial.to_vec();
    changed.iter().zip(results).for_each(|(&k, result)| carried[k] = result);
    Ok([carried, stacked].concat())
}

/// A loop with a known number of times, all of whose carried values change.
fn count_changed(g: &mut Importer, mut inside: Inside, trips: i64, initial: &[ValueId]) -> Result<Vec<ValueId>> {
    let graph = &mut inside.graph;
    // The condition is not a result any more; the number of the time comes after the carried values.
    graph.outputs.remove(0);
    let number = graph.inputs.remove(0);
    let number_type = graph.value(number).ty.clone();
    let mut operands = initial.to_vec();
    let (mut carried, mut scanned) = (initial.len(), 0);
    if trips <= MOST_NUMBERED {
        scanned = 1;
        let shape = [&[trips], &number_type.shape[..]].concat();
        operands.push(g.constant(Tensor::new(&shape, &(0..trips).collect::<Vec<i64>>())));
    } else {
        let next = add_one(graph, number);
        graph.outputs.insert(carried, next);
        carried += 1;
        operands.push(g.constant(Tensor::zeros(DType::I64, &number_type.shape)));
    }
    graph.inputs.insert(initial.len(), number);
    let stacked = graph.outputs.len() - carried;
    let body = subgraph::body(graph)?;
    operands.extend(inside.captured);
    let reverse = vec![false; scanned + stacked];
    let mut results = g.emit_scan(Op::Scan { trips, carried, reverse, conditional: false, body }, &operands)?;
    results.drain(initial.len()..carried);
    Ok(results)
}

/// Adds `number + 1` to a graph.
fn add_one(graph: &mut Graph, number: ValueId) -> ValueId {
    let ty = graph.value(number).ty.clone();
    let one = Tensor::new(&[], &[1i64]);
    let one = graph.add_value("one", TensorType::of(&one), ir::Source::Constant(Arc::new(one)));
    append(graph, Op::Binary(BinaryOp::Add), vec![number, one], ty)
}

/// Adds an operator with one result of this type to a graph.
fn append(graph: &mut Graph, op: Op, inputs: Vec<ValueId>, ty: TensorType) -> ValueId {
    let source = ir::Source::Node(graph.nodes.len() as u32, 0);
    let result = graph.add_value(op.mnemonic(), ty, source);
    graph.nodes.push(Node { name: op.mnemonic().into(), origins: vec![], op, inputs, outputs: vec![result] });
    result
}

/// The times of a loop one after the other, until its condition is false.
fn inlined(
    g: &mut Importer,
    body: &GraphProto,
    trips: i64,
    initial: Vec<ValueId>,
    scans: usize,
) -> Result<Vec<ValueId>> {
    let (mut values, mut stacks) = (initial, vec![vec![]; scans]);
    let (number, mut go) = (shape_of_input(body, 0), g.constant(one_bool(body)));
    for time in 0..trips {
        match known_bool(g, go)? {
            Some(true) => {}
            Some(false) => break,
            None => return Err(Error::Unsupported("a number of times that depends on inputs".into())),
        }
        let time = g.constant(Tensor::new(&number, &[time]));
        let mut results = nested::inline(g, body, &[&[time, go], &values[..]].concat())?;
        for (stack, slice) in stacks.iter_mut().zip(results.split_off(1 + values.len())) {
            let shape = [&[1], g.shape(slice)].concat();
            stack.push(g.reshape_to(slice, shape)?);
        }
        values = results.split_off(1);
        go = results[0];
    }
    for stack in stacks {
        values.push(match stack[..] {
            [] => return Err(Error::Unsupported("stacked results of no times".into())),
            [one] => one,
            _ => g.emit(Op::Concat { axis: 0 }, &stack)?,
        });
    }
    Ok(values)
}

/// A loop that ends when its condition becomes false, or after so many times as a value says.
fn conditional_loop(
    g: &mut Importer,
    body: &GraphProto,
    trips: i64,
    [condition, bound]: [Option<ValueId>; 2],
    initial: &[ValueId],
    types: &[TensorType],
) -> Result<Vec<ValueId>> {
    let number = TensorType::new(DType::I64, &shape_of_input(body, 0));
    let go = TensorType::new(DType::Bool, &shape_of_input(body, 1));
    let first = [number.clone(), go.clone()].into_iter().chain(types.iter().cloned());
    let mut inside = nested::import(g, body, first.map(Given::Type).collect())?;
    let graph = &mut inside.graph;
    let results = graph.outputs[1..].iter().map(|&v| &graph.value(v).ty);
    if let Some((a, b)) = results.zip(types).find(|(a, b)| a != b) {
        return Err(Error::Unsupported(format!("a carried value that becomes {a} from {b}")));
    }
    if graph.value(graph.outputs[0]).ty.elements() != 1 {
        return Err(Error::Invalid("its condition is not one bool".into()));
    }
    let changed = capture_invariant(&mut inside, 2, initial);
    let graph = &mut inside.graph;
    // Carried first: the condition and the number of the time.
    graph.inputs.swap(0, 1);
    let next = add_one(graph, graph.inputs[1]);
    graph.outputs.insert(1, next);
    graph.outputs[0] = append(graph, Op::Reshape { shape: go.shape.clone() }, vec![graph.outputs[0]], go.clone());
    let mut start = match condition {
        Some(condition) => g.reshape_to(condition, go.shape.clone())?,
        None => g.constant(one_bool(body)),
    };
    let zero = g.constant(Tensor::zeros(DType::I64, &number.shape));
    if let Some(bound) = bound {
        let bound = g.reshape_to(bound, number.shape.clone())?;
        let captured = graph.add_value("bound", number.clone(), ir::Source::Input);
        graph.inputs.push(captured);
        inside.captured.push(bound);
        let bool_of_number = TensorType::new(DType::Bool, &number.shape);
        let below = append(graph, Op::Compare(CompareOp::Lt), vec![next, captured], bool_of_number);
        let below = append(graph, Op::Reshape { shape: go.shape.clone() }, vec![below], go.clone());
        graph.outputs[0] = append(graph, Op::Binary(BinaryOp::And), vec![graph.outputs[0], below], go.clone());
        let below = g.compare(CompareOp::Lt, zero, bound)?;
        let below = g.reshape_to(below, go.shape.clone())?;
        start = g.binary(BinaryOp::And, start, below)?;
    }
    let starts: Vec<ValueId> = changed.iter().map(|&k| initial[k]).collect();
    let operands = [&[start, zero], &starts[..], &inside.captured[..]].concat();
    let body = subgraph::body(&inside.graph)?;
    let op = Op::Scan { trips, carried: 2 + changed.len(), reverse: vec![], conditional: true, body };
    let (results, mut carried) = (g.emit_all(op, &operands)?.split_off(2), initial.to_vec());
    changed.iter().zip(results).for_each(|(&k, result)| carried[k] = result);
    Ok(carried)
}

pub(super) fn scan(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let body = n.graph("body")?;
    let scanned = usize::try_from(n.int("num_scan_inputs", 0)).unwrap_or(0);
    let batched = n.opset < 9;
    let mut operands = n.present();
    let lengths = n.optional(0).filter(|_| batched);
    if lengths.is_some() {
        operands.remove(0);
    }
    let Some(carried) = operands.len().checked_sub(scanned).filter(|_| scanned > 0) else {
        return Err(Error::Invalid("it scans no operand, or more than it has".into()));
    };
    check_inputs(body, operands.len())?;
    let Some(stacked) = body.output.len().checked_sub(carried) else {
        return Err(Error::Invalid("the graph inside has fewer results than it carries values".into()));
    };
    // With a batch, which is the first dimension of all operands and results, each sequence is a scan.
    let slice_shape = |g: &Importer, v: ValueId| -> Result<Vec<i64>> {
        match g.shape(v) {
            [_, slice_shape @ ..] if batched => Ok(slice_shape.to_vec()),
            [] if batched => Err(Error::Invalid("an operand has no batch".into())),
            shape => Ok(shape.to_vec()),
        }
    };
    let mut prepared = operands[..carried].to_vec();
    for (k, &v) in operands[carried..].iter().enumerate() {
        let rank = slice_shape(g, v)?.len();
        let axis = g.axis(listed(n, "scan_input_axes", k, scanned)?, rank)? + batched as usize;
        prepared.push(move_axis(g, v, axis, batched as usize)?);
    }
    let mut types = vec![];
    for (k, &v) in prepared.iter().enumerate() {
        let shape = slice_shape(g, v)?;
        types.push(TensorType { dtype: g.ty(v).dtype, shape: shape[(k >= carried) as usize..].to_vec() });
    }
    let trips = slice_shape(g, prepared[carried])?[0];
    if let Some(lengths) = lengths
        && g.integers(lengths, "sequence lengths")?.iter().any(|&length| length != trips)
    {
        return Err(Error::Unsupported("sequences of different lengths".into()));
    }
    let inside = nested::import(g, body, types.into_iter().map(Given::Type).collect())?;
    let directions = if batched { "directions" } else { "scan_input_directions" };
    let mut reverse = vec![];
    for k in 0..scanned {
        reverse.push(listed(n, directions, k, scanned)? != 0);
    }
    for k in 0..stacked {
        reverse.push(listed(n, "scan_output_directions", k, stacked)? != 0);
    }
    let op = Op::Scan { trips, carried, reverse, conditional: false, body: subgraph::body(&inside.graph)? };
    let mut results = match batched {
        false => g.emit_scan(op, &[&prepared[..], &inside.captured[..]].concat())?,
        true => over_batch(g, op, &prepared, &inside.captured)?,
    };
    for (k, result) in results[carried..].iter_mut().enumerate() {
        let rank = g.rank(*result) - batched as usize;
        let axis = g.axis(listed(n, "scan_output_axes", k, stacked)?, rank)? + batched as usize;
        *result = move_axis(g, *result, batched as usize, axis)?;
    }
    Ok(results)
}

/// Element `k` of an attribute with one number for each of `count` values; 0 where it is absent.
fn listed(n: &Source, name: &str, k: usize, count: usize) -> Result<i64> {
    match n.ints(name) {
        None => Ok(0),
        Some(list) if list.len() == count => Ok(list[k]),
        Some(list) => Err(Error::Invalid(format!("its `{name}` has {} numbers instead of {count}", list.len()))),
    }
}

/// The dimension `from` becomes dimension `to`; the others keep their order.
fn move_axis(g: &mut Importer, x: ValueId, from: usize, to: usize) -> Result<ValueId> {
    let mut perm: Vec<usize> = (0..g.rank(x)).collect();
    let axis = perm.remove(from);
    perm.insert(to, axis);
    if from == to { Ok(x) } else { g.emit(Op::Transpose { perm }, &[x]) }
}

/// A scan of each part along the first dimension of `operands`.
fn over_batch(g: &mut Importer, op: Op, operands: &[ValueId], captured: &[ValueId]) -> Result<Vec<ValueId>> {
    let batch = g.shape(operands[0])[0];
    let mut types: Vec<TensorType> = vec![];
    for (k, &v) in operands.iter().chain(captured).enumerate() {
        let shape = &g.shape(v)[(k < operands.len()) as usize..];
        types.push(TensorType { dtype: g.ty(v).dtype, shape: shape.to_vec() });
    }
    let body = g.body(&types, |b, values| b.emit_scan(op, values))?;
    let reverse = vec![false; operands.len() + body.outputs().len()];
    let op = Op::Scan { trips: batch, carried: 0, reverse, conditional: false, body };
    g.emit_scan(op, &[operands, captured].concat())
}
