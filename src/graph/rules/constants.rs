//! The constant expressions that rules build, folded once they are chosen.

use crate::expr::BinaryOp;
use crate::graph::fold::evaluate;
use crate::graph::fold::memo::Memo;
use crate::graph::fusion::Placement;
use crate::graph::infer::broadcast;
use crate::graph::ir::{Graph, Node, Source, Value, ValueId};
use crate::graph::op::{FusionKind, Op};
use crate::runtime::{DType, Result, Tensor, threads};
use std::cmp::Reverse;
use std::sync::Arc;

/// Computes every node whose operands are constants and which `memo` does not know, on `threads` threads, drops unused
/// nodes, and returns the placements of the others.
pub fn fold(graph: &Graph, placements: &[Placement], threads: usize, memo: &Memo) -> Result<(Graph, Vec<Placement>)> {
    let mut constants: Vec<Option<Arc<Tensor>>> = vec![None; graph.values.len()];
    let mut folded = vec![false; graph.nodes.len()];
    for (i, value) in graph.values.iter().enumerate() {
        if let Source::Constant(t) = &value.source {
            constants[i] = Some(t.clone());
        }
    }
    let levels = levels(graph);
    let kept = kept_until(graph, &levels);
    for (number, level) in levels.iter().enumerate() {
        for (n, results) in evaluate_all(graph, level, &constants, threads, memo)? {
            for (v, t) in graph.nodes[n].outputs.iter().zip(results) {
                constants[v.0 as usize] = Some(t);
            }
            folded[n] = true;
        }
        for (constant, _) in constants.iter_mut().zip(&kept).filter(|(_, last)| **last == number) {
            *constant = None;
        }
    }
    Ok(retain(graph, placements, &constants, &folded))
}

/// For each value that only nodes of `levels` read the last of these levels, after which nothing needs it;
/// `usize::MAX` for all others.
fn kept_until(graph: &Graph, levels: &[Vec<usize>]) -> Vec<usize> {
    let mut level_of = vec![usize::MAX; graph.nodes.len()];
    for (number, level) in levels.iter().enumerate() {
        level.iter().for_each(|&n| level_of[n] = number);
    }
    let mut last: Vec<Option<usize>> = vec![None; graph.values.len()];
    for (node, &level) in graph.nodes.iter().zip(&level_of) {
        for v in &node.inputs {
            let last = &mut last[v.0 as usize];
            *last = (*last).max(Some(level));
        }
    }
    for v in graph.inputs.iter().chain(&graph.outputs) {
        last[v.0 as usize] = None;
    }
    last.into_iter().map(|last| last.unwrap_or(usize::MAX)).collect()
}

/// For each node of a graph whether [`fold`] computes it.
pub fn foldable(graph: &Graph) -> Vec<bool> {
    let mut foldable = vec![false; graph.nodes.len()];
    levels(graph).into_iter().flatten().for_each(|n| foldable[n] = true);
    foldable
}

/// The nodes that have a constant value, in levels: the operands of each are constants or of an earlier level.
fn levels(graph: &Graph) -> Vec<Vec<usize>> {
    let constant = |value: &Value| matches!(value.source, Source::Constant(_)).then_some(0);
    let mut depth: Vec<Option<usize>> = graph.values.iter().map(constant).collect();
    let mut levels: Vec<Vec<usize>> = vec![];
    for (n, node) in graph.nodes.iter().enumerate() {
        let operands: Option<Vec<usize>> = node.inputs.iter().map(|v| depth[v.0 as usize]).collect();
        let Some(operands) = operands else { continue };
        if node.op.kind() == FusionKind::Opaque || node.outputs.iter().any(|v| graph.outputs.contains(v)) {
            continue;
        }
        let level = operands.into_iter().max().unwrap_or(0);
        node.outputs.iter().for_each(|v| depth[v.0 as usize] = Some(level + 1));
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels[level].push(n);
    }
    levels
}

/// The results of nodes that do not need each other, in the order of the nodes. Those with the most bytes begin first, so
/// that no thread is left alone with a large one at the end.
fn evaluate_all(
    graph: &Graph,
    nodes: &[usize],
    constants: &[Option<Arc<Tensor>>],
    threads: usize,
    memo: &Memo,
) -> Result<Vec<(usize, Vec<Arc<Tensor>>)>> {
    let bytes = |n: usize| graph.nodes[n].outputs.iter().map(|v| graph.value(*v).ty.bytes()).sum::<usize>();
    let mut order = nodes.to_vec();
    order.sort_by_key(|&n| Reverse(bytes(n)));
    let evaluate = |n: usize| {
        let node = &graph.nodes[n];
        let operands: Vec<Arc<Tensor>> = node.inputs.iter().filter_map(|v| constants[v.0 as usize].clone()).collect();
        let apply = || apply(&node.op, &operands.iter().map(|t| &**t).collect::<Vec<_>>());
        let result = memo.results(&node.op, &operands, apply);
        operands.iter().for_each(|operand| operand.data.release());
        (n, result)
    };
    let mut results = threads::map(order, threads, evaluate);
    results.sort_by_key(|r| r.0);
    results.into_iter().map(|(n, result)| Ok((n, result?))).collect()
}

/// The graph without folded and unused nodes, renumbered.
pub fn retain(
    graph: &Graph,
    placements: &[Placement],
    constants: &[Option<Arc<Tensor>>],
    folded: &[bool],
) -> (Graph, Vec<Placement>) {
    let live = graph.live_nodes(|n| folded[n]);
    let read = graph.nodes.iter().zip(&live).filter(|(_, live)| **live).flat_map(|(node, _)| &node.inputs);
    let mut used = vec![false; graph.values.len()];
    graph.outputs.iter().chain(read).for_each(|v| used[v.0 as usize] = true);
    let mut out = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut renamed: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    let mut push = |out: &mut Graph, v: usize, source: Source| {
        let Value { name, ty, .. } = &graph.values[v];
        renamed[v] = Some(out.add_value(&**name, ty.clone(), source));
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
        let (inputs, outputs) = (map(&node.inputs), map(&node.outputs));
        out.nodes.push(Node { inputs, outputs, ..node.clone() });
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
    let (va, vb) = (a.data.as_chunks::<4>().0, b.data.as_chunks::<4>().0);
    let mut out = Tensor::zeros(DType::F32, &shape);
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
    for piece in out.data.as_chunks_mut::<4>().0.chunks_exact_mut(run.max(1)) {
        let offset = |s: &[usize]| position.iter().zip(s).map(|(p, s)| p * s).sum::<usize>();
        let (va, vb) = (&va[offset(&sa)..], &vb[offset(&sb)..]);
        let value = |x: [u8; 4], y: [u8; 4]| f(f32::from_le_bytes(x), f32::from_le_bytes(y)).to_le_bytes();
        match (step_a, step_b) {
            (0, 0) => piece.fill(value(va[0], vb[0])),
            (0, _) => piece.iter_mut().zip(vb).for_each(|(z, y)| *z = value(va[0], *y)),
            (_, 0) => piece.iter_mut().zip(va).for_each(|(z, x)| *z = value(*x, vb[0])),
            _ => piece.iter_mut().zip(va).zip(vb).for_each(|((z, x), y)| *z = value(*x, *y)),
        }
        for d in (0..split).rev() {
            position[d] += 1;
            if position[d] < shape[d] as usize {
                break;
            }
            position[d] = 0;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::builder::GraphBuilder;
    use crate::graph::fold;

    /// Products of an input with weights that are scaled and transformed, one for each number of channels.
    fn network(channels: &[i64]) -> Graph {
        let mut b = GraphBuilder::new("weights");
        let g = b.constant(Tensor::seeded(DType::F64, &[6, 3], 7, 0, 2));
        for (i, &c) in channels.iter().enumerate() {
            let x = b.input(&format!("x{i}"), DType::F32, &[36, 5, c]);
            let w = b.constant(Tensor::seeded(DType::F32, &[24, c, 3, 3], i as u64, 0, 2));
            let scale = b.constant(Tensor::seeded(DType::F32, &[24, 1, 1, 1], i as u64, 1, 2));
            let scaled = b.binary(BinaryOp::Mul, w, scale).unwrap();
            let u = b.op(Op::WinogradWeights, &[scaled, g, g]).unwrap()[0];
            let y = b.matmul(x, u).unwrap();
            b.output(&format!("y{i}"), y).unwrap();
        }
        b.build().unwrap()
    }

    #[test]
    fn any_number_of_threads_folds_to_the_same_bits() {
        let graph = network(&[3, 40, 8, 17]);
        assert_eq!(levels(&graph), [[0, 3, 6, 9], [1, 4, 7, 10]]);
        let placements = vec![Placement::Own; graph.nodes.len()];
        let folded = |threads| {
            let (graph, placements) = super::fold(&graph, &placements, threads, &Memo::default()).unwrap();
            assert_eq!((graph.nodes.len(), placements.len()), (4, 4));
            graph.nodes.iter().map(|n| graph.constant(n.inputs[1]).unwrap().clone()).collect::<Vec<_>>()
        };
        let one = folded(1);
        assert!(one == folded(3) && one == folded(0));
        for (u, node) in one.iter().zip(graph.nodes.iter().skip(1).step_by(3)) {
            let scale = &graph.nodes[match graph.value(node.inputs[0]).source {
                Source::Node(n, _) => n as usize,
                _ => unreachable!("the weights are scaled"),
            }];
            let constant = |v: ValueId| &**graph.constant(v).unwrap();
            let scaled = fold::evaluate(&scale.op, &[constant(scale.inputs[0]), constant(scale.inputs[1])]).unwrap();
            let g = constant(node.inputs[1]);
            assert!(**u == fold::evaluate(&node.op, &[&scaled[0], g, g]).unwrap()[0]);
        }
    }

    #[test]
    fn constants_are_kept_until_their_last_reader_is_folded() {
        let graph = network(&[3]);
        let kept = kept_until(&graph, &levels(&graph));
        let node = |n: usize| &graph.nodes[n];
        let of = |v: ValueId| kept[v.0 as usize];
        let [w, scale] = node(0).inputs[..] else { panic!("a product") };
        assert_eq!([of(w), of(scale), of(node(0).outputs[0]), of(node(1).inputs[1])], [0, 0, 1, 1]);
        // The product with the input runs later and reads what was folded.
        assert_eq!([of(node(2).inputs[0]), of(node(2).inputs[1]), of(node(2).outputs[0])], [usize::MAX; 3]);
    }

    #[test]
    fn stretched_operands_are_folded_as_defined() {
        let shapes: [[&[i64]; 2]; 9] = [
            [&[3, 4], &[3, 4]],
            [&[3, 4], &[4]],
            [&[3, 4], &[3, 1]],
            [&[], &[3, 4]],
            [&[5, 1, 4], &[3, 1]],
            [&[1, 3, 4], &[5, 1, 1]],
            [&[1, 1], &[1]],
            [&[0, 3], &[3]],
            [&[2, 1, 3, 1], &[4, 1, 5]],
        ];
        for [a, b] in shapes {
            let (x, y) = (Tensor::seeded(DType::F32, a, 1, 0, 2), Tensor::seeded(DType::F32, b, 2, 0, 2));
            for (op, x, y) in [(BinaryOp::Mul, &x, &y), (BinaryOp::Add, &y, &x)] {
                let op = Op::Binary(op);
                assert!(apply(&op, &[x, y]).unwrap() == fold::evaluate(&op, &[x, y]).unwrap(), "{op} of {a:?}, {b:?}");
            }
        }
    }
}
