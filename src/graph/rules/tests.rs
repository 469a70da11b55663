//! Rules on their cases (`cases.rs`) and on whole graphs: both sides compute the same.

mod cases;
mod graphs;
mod support;

use crate::codegen::Target;
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::egraph::convert::{Loaded, load};
use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::fold::memo::Memo;
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp, Window};
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A small graph under construction with numbers that depend on nothing but their order.
#[derive(Default)]
struct Sample {
    graph: Graph,
    seed: u64,
    /// Tensors and numbers that were drawn.
    drawn: u64,
    /// Values that are equal though the graph does not show it: their classes are united from the start.
    equal: Vec<(ValueId, ValueId)>,
    /// The target has products of i16 and none of bytes, not the other way round.
    words: bool,
    /// No product of f32 is rounded, only what is stored in 16 bits is multiplied so.
    stored: bool,
    /// Small products may be computed by halves.
    halved: bool,
}

impl Sample {
    fn random(&mut self) -> f32 {
        self.tensor(&[1]).to_vec::<f32>()[0]
    }
    fn tensor(&mut self, shape: &[i64]) -> Tensor {
        self.drawn += 1;
        Tensor::seeded(DType::F32, shape, self.seed, self.drawn, 2)
    }
    fn value(&mut self, ty: TensorType, source: Source) -> ValueId {
        self.graph.add_value(format!("v{}", self.graph.values.len()), ty, source)
    }
    fn x(&mut self, shape: &[i64]) -> ValueId {
        let v = self.value(TensorType::new(DType::F32, shape), Source::Input);
        self.graph.inputs.push(v);
        v
    }
    fn constant(&mut self, t: Tensor) -> ValueId {
        self.value(TensorType::of(&t), Source::Constant(Arc::new(t)))
    }
    fn c(&mut self, shape: &[i64]) -> ValueId {
        let t = self.tensor(shape);
        self.constant(t)
    }
    fn n(&mut self, v: f32) -> ValueId {
        self.constant(Tensor::new(&[], &[v]))
    }
    fn op(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let types: Vec<&TensorType> = inputs.iter().map(|&v| &self.graph.value(v).ty).collect();
        let ty = infer(&op, &types).unwrap_or_else(|e| panic!("{op}: {e}")).remove(0);
        let n = self.graph.nodes.len() as u32;
        let v = self.value(ty, Source::Node(n, 0));
        self.graph.nodes.push(Node {
            name: format!("n{n}"),
            origins: vec![],
            op,
            inputs: inputs.to_vec(),
            outputs: vec![v],
        });
        v
    }
    /// The e-graph of the values so far, of which `root` is the output, and the class of each value.
    fn network(&mut self, root: ValueId) -> (Network, Vec<Id>) {
        self.graph.outputs = vec![root];
        let Loaded { mut network, class, .. } = load(&self.graph).unwrap();
        network.max_error = 1e-4;
        (network.byte_products, network.word_products) = (Some(DType::U8).filter(|_| !self.words), self.words);
        network.least_halved = self.halved.then_some(0);
        network.halves = Some(DType::BF16).filter(|_| !self.stored);
        network.half_products = vec![DType::BF16];
        network.tile_products = vec![DType::BF16];
        for (a, b) in &self.equal {
            network.egraph.union(class[a.0 as usize], class[b.0 as usize]);
        }
        network.rebuild();
        (network, class)
    }
    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary(op), &[a, b])
    }
    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Add, a, b)
    }
    fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(BinaryOp::Mul, a, b)
    }
    fn unary(&mut self, op: UnaryOp, a: ValueId) -> ValueId {
        self.op(Op::Unary(op), &[a])
    }
    fn transpose(&mut self, x: ValueId, perm: &[usize]) -> ValueId {
        self.op(Op::Transpose { perm: perm.to_vec() }, &[x])
    }
    fn reshape(&mut self, x: ValueId, shape: &[i64]) -> ValueId {
        self.op(Op::Reshape { shape: shape.to_vec() }, &[x])
    }
    fn reduce(&mut self, op: ReduceOp, x: ValueId, axes: &[usize], keep: bool) -> ValueId {
        self.op(Op::Reduce { op, axes: axes.to_vec(), keep }, &[x])
    }
    fn matmul(&mut self, a: ValueId, b: ValueId, transpose_a: bool, transpose_b: bool) -> ValueId {
        self.op(Op::MatMul { transpose_a, transpose_b }, &[a, b])
    }
    fn clip(&mut self, x: ValueId, low: f32, high: f32, low_first: bool) -> ValueId {
        let (low, high) = (self.n(low), self.n(high));
        if low_first {
            let a = self.binary(BinaryOp::Max, x, low);
            self.binary(BinaryOp::Min, a, high)
        } else {
            let a = self.binary(BinaryOp::Min, x, high);
            self.binary(BinaryOp::Max, a, low)
        }
    }
}

fn window(kernel: &[i64], stride: i64, pad: i64) -> Window {
    let n = kernel.len();
    Window {
        kernel: kernel.to_vec(),
        stride: vec![stride; n],
        dilation: vec![1; n],
        pad_before: vec![pad; n],
        pad_after: vec![pad; n],
    }
}

fn pool(s: &mut Sample, x: ValueId, kind: PoolKind, kernel: i64, stride: i64, pad: i64) -> ValueId {
    s.op(Op::Pool { kind, window: window(&[kernel, kernel], stride, pad), layout: Layout::Nchw }, &[x])
}

const NHWC_TO_NCHW: [usize; 4] = [0, 3, 1, 2];

/// An image that came from channels-last: 1×4×5×3 over a 1×5×3×4 input.
fn turned(s: &mut Sample) -> ValueId {
    let x = s.x(&[1, 5, 3, 4]);
    s.transpose(x, &NHWC_TO_NCHW)
}

fn spelled_norm(s: &mut Sample, reciprocal: bool) -> ValueId {
    let x = s.x(&[2, 3, 8]);
    let mean = s.reduce(ReduceOp::Mean, x, &[2], true);
    let d = s.binary(BinaryOp::Sub, x, mean);
    let square = s.mul(d, d);
    let variance = s.reduce(ReduceOp::Mean, square, &[2], true);
    let epsilon = s.n(1e-5);
    let sum = s.add(variance, epsilon);
    let root = s.unary(UnaryOp::Sqrt, sum);
    if reciprocal {
        let one = s.n(1.0);
        let r = s.binary(BinaryOp::Div, one, root);
        s.mul(d, r)
    } else {
        s.binary(BinaryOp::Div, d, root)
    }
}

/// The expression of an e-node as a graph.
fn graph_of(network: &Network, graph: &Graph, id: Id) -> Graph {
    let mut out = Graph { values: graph.values.clone(), inputs: graph.inputs.clone(), ..Graph::default() };
    let mut values: BTreeMap<Id, ValueId> = BTreeMap::new();
    fn visit(network: &Network, out: &mut Graph, values: &mut BTreeMap<Id, ValueId>, id: Id) -> ValueId {
        if let Some(&v) = values.get(&id) {
            return v;
        }
        let Term { head, children } = network.egraph.id_to_node(id);
        let inputs: Vec<ValueId> = children.iter().map(|&c| visit(network, out, values, c)).collect();
        let ty = network.ty(id).clone();
        let source = match head {
            Head::Input(i) => return out.inputs[*i as usize],
            Head::Constant(i) => Source::Constant(network.egraph.analysis.constants[*i as usize].clone()),
            Head::Output(_) => unreachable!("samples have no operators of several outputs"),
            Head::Op(_) => Source::Node(out.nodes.len() as u32, 0),
        };
        let v = out.add_value("", ty, source);
        if let Head::Op(op) = head {
            out.nodes.push(Node { name: String::new(), origins: vec![], op: op.clone(), inputs, outputs: vec![v] });
        }
        values.insert(id, v);
        v
    }
    let v = visit(network, &mut out, &mut values, id);
    out.outputs = vec![v];
    out
}

fn assert_close(a: &[Tensor], b: &[Tensor], what: &str) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape), "{what}");
        if a.dtype != DType::F32 {
            assert_eq!(a.data, b.data, "{what}");
            continue;
        }
        let (a, b) = (a.to_vec::<f32>(), b.to_vec::<f32>());
        let largest = a.iter().filter(|v| v.is_finite()).fold(1e-3f32, |m, v| m.max(v.abs()));
        for (x, y) in a.iter().zip(&b) {
            assert!((x - y).abs() <= 1e-5 * largest, "{what}: {x} and {y}");
        }
    }
}

fn inputs(s: &mut Sample) -> Vec<Tensor> {
    let shapes: Vec<Vec<i64>> = s.graph.inputs.iter().map(|&v| s.graph.value(v).ty.shape.clone()).collect();
    // Larger than one, so that clips and normalisations do something.
    let grow =
        |t: Tensor| Tensor::new(&t.shape.clone(), &t.to_vec::<f32>().iter().map(|v| v * 4.0).collect::<Vec<_>>());
    shapes.iter().map(|shape| grow(s.tensor(shape))).collect()
}

#[test]
fn the_optimized_graph_computes_the_same() {
    for case in cases::all().iter().filter(|case| case.applies()) {
        let (mut s, name) = (Sample::default(), &case.rule);
        let root = case.build(&mut s);
        s.graph.outputs = vec![root];
        let given = inputs(&mut s);
        let Optimized { graph: out, report, .. } = optimize(
            &s.graph,
            &Target::avx512(),
            Default::default(),
            1e-4,
            2,
            &EgraphOptions { byte_products: Some(true), ..EgraphOptions::default() },
            &Memo::default(),
        )
        .unwrap();
        assert!(report.stop == crate::graph::egraph::saturate::Stop::Saturated, "{name}: {report}");
        assert_close(
            &crate::graph::interpret::run(&s.graph, &given).unwrap(),
            &crate::graph::interpret::run(&out, &given).unwrap(),
            name,
        );
    }
}
