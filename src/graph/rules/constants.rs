//! The constant expressions that rules build, folded once they are chosen.

use crate::expr::BinaryOp;
use crate::graph::fold::evaluate;
use crate::graph::fusion::Placement;
use crate::graph::infer::broadcast;
use crate::graph::ir::{Graph, Node, Source, Value, ValueId};
use crate::graph::op::Op;
use crate::runtime::{DType, Result, Tensor};
use std::sync::Arc;

/// Computes every node whose operands are constants, drops unused nodes, and returns the placements of the others.
pub fn fold(graph: &Graph, placements: &[Placement]) -> Result<(Graph, Vec<Placement>)> {
    let mut constants: Vec<Option<Arc<Tensor>>> = vec![None; graph.values.len()];
    let mut folded = vec![false; graph.nodes.len()];
    for (i, value) in graph.values.iter().enumerate() {
        if let Source::Constant(t) = &value.source {
            constants[i] = Some(t.clone());
        }
    }
    for (n, node) in graph.nodes.iter().enumerate() {
        let operands: Option<Vec<&Tensor>> = node.inputs.iter().map(|v| constants[v.0 as usize].as_deref()).collect();
        let Some(operands) = operands else { continue };
        if matches!(node.op, Op::Opaque { .. }) || node.outputs.iter().any(|v| graph.outputs.contains(v)) {
            continue;
        }
        for (v, t) in node.outputs.iter().zip(apply(&node.op, &operands)?) {
            constants[v.0 as usize] = Some(Arc::new(t));
        }
        folded[n] = true;
    }
    Ok(retain(graph, placements, &constants, &folded))
}

/// The graph without folded and unused nodes, renumbered.
fn retain(
    graph: &Graph,
    placements: &[Placement],
    constants: &[Option<Arc<Tensor>>],
    folded: &[bool],
) -> (Graph, Vec<Placement>) {
    let mut used = vec![false; graph.values.len()];
    for v in graph.outputs.iter().chain(&graph.inputs) {
        used[v.0 as usize] = true;
    }
    let mut live = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate().rev() {
        live[n] = !folded[n] && node.outputs.iter().any(|v| used[v.0 as usize]);
        if live[n] {
            node.inputs.iter().for_each(|v| used[v.0 as usize] = true);
        }
    }
    let mut out = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut renamed: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    let mut push = |out: &mut Graph, v: usize, source: Source| {
        let Value { name, ty, .. } = &graph.values[v];
        out.values.push(Value { name: name.clone(), ty: ty.clone(), source });
        renamed[v] = Some(ValueId(out.values.len() as u32 - 1));
    };
    let before = |next: &mut u32, live: &bool| Some(std::mem::replace(next, *next + u32::from(*live)));
    let index: Vec<u32> = live.iter().scan(0, before).collect();
    for (v, value) in graph.values.iter().enumerate() {
        match (&value.source, &constants[v]) {
            (Source::Node(n, k), None) if live[*n as usize] => push(&mut out, v, Source::Node(index[*n as usize], *k)),
            (Source::Input, _) => push(&mut out, v, Source::Input),
            (_, Some(t)) if used[v] => push(&mut out, v, Source::Constant(t.clone())),
            _ => {}
        }
    }
    let map = |list: &[ValueId]| -> Vec<ValueId> { list.iter().filter_map(|v| renamed[v.0 as usize]).collect() };
    for (node, _) in graph.nodes.iter().zip(&live).filter(|(_, l)| **l) {
        let Node { name, op, inputs, outputs } = node;
        out.nodes.push(Node { name: name.clone(), op: op.clone(), inputs: map(inputs), outputs: map(outputs) });
    }
    out.inputs = map(&graph.inputs);
    out.outputs = map(&graph.outputs);
    let remaining = placements.iter().zip(&live).filter(|(_, l)| **l);
    let renumber = |place: &Placement| match place {
        Placement::With(n) => Placement::With(index[*n as usize]),
        other => *other,
    };
    (out, remaining.map(|(place, _)| renumber(place)).collect())
}

fn apply(op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    let real = operands.iter().all(|t| t.dtype == DType::F32);
    match op {
        Op::Binary(BinaryOp::Mul) if real => Ok(vec![elementwise(operands[0], operands[1], |a, b| a * b)?]),
        Op::Binary(BinaryOp::Add) if real => Ok(vec![elementwise(operands[0], operands[1], |a, b| a + b)?]),
        Op::Reshape { shape } => Ok(vec![Tensor { shape: shape.clone(), ..operands[0].clone() }]),
        op => evaluate(op, operands),
    }
}

/// `f` of two f32 tensors with stretched dimensions, for weights of millions of elements.
fn elementwise(a: &Tensor, b: &Tensor, f: impl Fn(f32, f32) -> f32) -> Result<Tensor> {
    let Some(shape) = broadcast([&a.shape[..], &b.shape[..]]) else {
        return Err(crate::runtime::Error::Internal("constant operands do not broadcast".into()));
    };
    let rank = shape.len();
    let strides = |t: &Tensor| -> Vec<usize> {
        let mut out = vec![0; rank];
        let mut stride = 1;
        for (d, &extent) in t.shape.iter().enumerate().rev() {
            out[d + rank - t.shape.len()] = if extent == 1 { 0 } else { stride };
            stride *= extent as usize;
        }
        out
    };
    let (sa, sb) = (strides(a), strides(b));
    let (va, vb) = (a.to_vec::<f32>(), b.to_vec::<f32>());
    let count: usize = shape.iter().product::<i64>() as usize;
    let mut out: Vec<u8> = Vec::with_capacity(count * 4);
    // The longest run of trailing dimensions in which each operand is contiguous or constant.
    let mut run = 1;
    let mut split = rank;
    let mut steps: Option<(usize, usize)> = None;
    while split > 0 {
        let d = split - 1;
        let step = |s: &[usize]| if s[d] == 0 { 0 } else { 1 };
        let now = (step(&sa), step(&sb));
        if shape[d] != 1 {
            if steps.is_some_and(|s| s != now) {
                break;
            }
            steps = Some(now);
        }
        run *= shape[d] as usize;
        split = d;
    }
    let (step_a, step_b) = steps.unwrap_or((0, 0));
    let mut position = vec![0usize; split];
    for _ in 0..count.checked_div(run).unwrap_or(0) {
        let at = |s: &[usize]| position.iter().zip(s).map(|(p, s)| p * s).sum::<usize>();
        let (ia, ib) = (at(&sa), at(&sb));
        out.extend((0..run).flat_map(|i| f(va[ia + i * step_a], vb[ib + i * step_b]).to_le_bytes()));
        for d in (0..split).rev() {
            position[d] += 1;
            if position[d] < shape[d] as usize {
                break;
            }
            position[d] = 0;
        }
    }
    Ok(Tensor { dtype: DType::F32, shape, data: out.into() })
}
