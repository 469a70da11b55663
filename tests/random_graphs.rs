//! Random graphs: what is compiled, on every target of this processor and for 1 and 2 threads, computes what the reference
//! interpreter says of the graph before any rewrite. Every other graph has its convolutions over blocks of channels.
//!
//! A second or two in a plain run; `TILEWRIGHT_FUZZ_SECONDS=600` for longer, `TILEWRIGHT_SEED=n` for one graph again, both
//! for others from that seed on. A graph that fails is printed cut down to the first value that is wrong.

mod common;

use common::{difference, host_targets};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tilewright::internal::expr::{BinaryOp, UnaryOp};
use tilewright::internal::graph::infer::infer;
use tilewright::internal::graph::ir::{Graph, Node, Source, Value, ValueId};
use tilewright::internal::graph::op::{F32, Layout, Op, PoolKind, ReduceOp, Window};
use tilewright::internal::graph::tensor_type::TensorType;
use tilewright::{DType, Model, Options, Report, Session, Tensor};

/// Of the largest absolute value of an output.
const TOLERANCE: f64 = 1e-3;
/// Elements of the largest tensor.
const LARGEST: i64 = 20_000;
/// Extents that meet vectors, tiles and their remainders.
const EXTENTS: [i64; 16] = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 20, 31, 32, 33, 48];

/// Channels that are whole blocks on every target.
const BLOCKS: [i64; 2] = [16, 32];

/// Returns true if the graph of this seed is compiled with convolutions over blocks of channels in place of channels-last.
fn over_blocks(seed: u64) -> bool {
    seed % 2 == 1
}

/// A graph that grows, and a source of chance.
struct Maker {
    graph: Graph,
    random: StdRng,
}

impl Maker {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn add(&mut self, ty: TensorType, source: Source) -> ValueId {
        let id = ValueId(self.graph.values.len() as u32);
        self.graph.values.push(Value { name: format!("v{}", id.0), ty, source });
        id
    }

    fn input(&mut self, shape: &[i64]) -> ValueId {
        let id = self.add(TensorType::new(DType::F32, shape), Source::Input);
        self.graph.inputs.push(id);
        id
    }

    /// Random values with this largest absolute value.
    fn constant(&mut self, shape: &[i64], scale: f32) -> ValueId {
        let count: i64 = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| self.random.random_range(-scale..scale)).collect();
        let tensor = Tensor::new(shape, &values);
        self.add(TensorType::of(&tensor), Source::Constant(Arc::new(tensor)))
    }

    fn shape(&self, id: ValueId) -> Vec<i64> {
        self.graph.value(id).ty.shape.clone()
    }

    /// Applies an operator, if its operands fit and the result is small.
    fn apply(&mut self, op: Op, inputs: &[ValueId]) -> Option<ValueId> {
        let types: Vec<&TensorType> = inputs.iter().map(|&i| &self.graph.value(i).ty).collect();
        let ty = infer(&op, &types).ok()?.pop()?;
        if ty.elements() > LARGEST || ty.elements() == 0 {
            return None;
        }
        let node = self.graph.nodes.len() as u32;
        let output = self.add(ty, Source::Node(node, 0));
        let name = format!("n{node}");
        self.graph.nodes.push(Node { name, origins: vec![], op, inputs: inputs.to_vec(), outputs: vec![output] });
        Some(output)
    }

    /// A value of the graph, the later ones more often.
    fn operand(&mut self) -> ValueId {
        let computed: Vec<ValueId> = (0..self.graph.values.len() as u32).map(ValueId).collect();
        let live: Vec<ValueId> = computed
            .into_iter()
            .filter(|&v| {
                let value = self.graph.value(v);
                value.ty.dtype == DType::F32 && !matches!(value.source, Source::Constant(_))
            })
            .collect();
        let from = if self.chance(60) { live.len().saturating_sub(2) } else { 0 };
        self.pick(&live[from..])
    }

    /// One more operator of this kind on some value; `None` when it does not fit there.
    fn grow(&mut self, kind: &str) -> Option<ValueId> {
        let x = self.operand();
        match kind {
            "unary" | "activation" | "relu" | "binary" | "constant operand" => self.elementwise(kind, x),
            "reduce" | "softmax" | "layer norm" | "matmul" | "product" | "conv" | "pool" => self.summed(kind, x),
            "gather" | "scatter" => self.indexed(kind, x),
            _ => self.moved(kind, x),
        }
    }

    /// An elementwise operator on `x`.
    fn elementwise(&mut self, kind: &str, x: ValueId) -> Option<ValueId> {
        let shape = self.shape(x);
        let rank = shape.len();
        match kind {
            "unary" => {
                use UnaryOp::*;
                let functions = [Tanh, Erf, Abs, Neg, Sin, Cos, Atan, Asinh];
                let op = Op::Unary(self.pick(&functions));
                self.apply(op, &[x])
            }
            "activation" => {
                let half = Op::HardSigmoid { alpha: F32::new(0.2), beta: F32::new(0.5) };
                let op = [Op::Sigmoid, Op::Silu, Op::HardSwish, Op::Gelu, half][self.random.random_range(0..5)].clone();
                self.apply(op, &[x])
            }
            "relu" => {
                let zero = Tensor::new(&[], &[0f32]);
                let zero = self.add(TensorType::of(&zero), Source::Constant(Arc::new(zero)));
                self.apply(Op::Binary(BinaryOp::Max), &[x, zero])
            }
            "binary" => {
                let op = self.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max]);
                let y = self.operand();
                let operands = if self.chance(50) { [x, y] } else { [y, x] };
                self.apply(Op::Binary(op), &operands)
            }
            "constant operand" => {
                let op = self.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]);
                let keep = self.random.random_range(0..=rank);
                let like: Vec<i64> = shape[keep..].iter().map(|&d| if self.chance(30) { 1 } else { d }).collect();
                let c = self.constant(&like, 1.5);
                let operands = if self.chance(70) { [x, c] } else { [c, x] };
                self.apply(Op::Binary(op), &operands)
            }
            _ => unreachable!("{kind} is not listed"),
        }
    }

    /// The elements of `x` elsewhere.
    fn moved(&mut self, kind: &str, x: ValueId) -> Option<ValueId> {
        let shape = self.shape(x);
        let rank = shape.len();
        match kind {
            "transpose" => {
                let mut perm: Vec<usize> = (0..rank).collect();
                for i in (1..rank).rev() {
                    perm.swap(i, self.random.random_range(0..=i));
                }
                self.apply(Op::Transpose { perm }, &[x])
            }
            "reshape" => {
                let mut shape = shape;
                if self.chance(50) && rank > 1 {
                    let at = self.random.random_range(0..rank - 1);
                    let merged = shape.remove(at);
                    shape[at] *= merged;
                } else if rank > 0 && rank < 5 {
                    let at = self.random.random_range(0..rank);
                    let factor = (2..=8).find(|f| shape[at] % f == 0)?;
                    shape[at] /= factor;
                    shape.insert(at + usize::from(self.chance(50)), factor);
                }
                self.apply(Op::Reshape { shape }, &[x])
            }
            "slice" => {
                let (mut starts, mut ends, mut steps) = (vec![], vec![], vec![]);
                for &d in &shape {
                    let (start, step) = (self.random.random_range(0..d), self.random.random_range(1..=2));
                    let whole = self.chance(50);
                    if self.chance(15) {
                        starts.push(d - 1);
                        ends.push(-1);
                        steps.push(-step);
                    } else {
                        starts.push(if whole { 0 } else { start });
                        ends.push(if whole { d } else { self.random.random_range(start + 1..=d) });
                        steps.push(if whole { 1 } else { step });
                    }
                }
                self.apply(Op::Slice { starts, ends, steps }, &[x])
            }
            "pad" => {
                let mut amounts = || shape.iter().map(|_| self.random.random_range(0..=2)).collect::<Vec<i64>>();
                let (before, after) = (amounts(), amounts());
                let value = u64::from(self.pick(&[0f32, 0.5]).to_bits());
                self.apply(Op::Pad { before, after, value }, &[x])
            }
            "concat" => {
                let axis = self.random.random_range(0..rank.max(1));
                let y = self.operand();
                let mut like = shape.clone();
                *like.get_mut(axis)? = self.pick(&EXTENTS);
                let c = self.constant(&like, 1.0);
                self.apply(Op::Concat { axis }, &[x, y]).or_else(|| self.apply(Op::Concat { axis }, &[x, c]))
            }
            "upsample" => {
                let factors = shape.iter().map(|_| self.pick(&[1, 1, 2, 3])).collect();
                self.apply(Op::Upsample { factors }, &[x])
            }
            _ => unreachable!("{kind} is not listed"),
        }
    }

    /// Elements of `x` read or written at places out of a tensor.
    fn indexed(&mut self, kind: &str, x: ValueId) -> Option<ValueId> {
        let shape = self.shape(x);
        let rank = shape.len();
        match kind {
            "gather" => {
                let axis = self.random.random_range(0..rank.max(1));
                let extent = *shape.get(axis)?;
                let count = self.random.random_range(1..=6);
                let at: Vec<i64> = (0..count).map(|_| self.random.random_range(-extent..extent)).collect();
                let at = Tensor::new(&[count], &at);
                let at = self.add(TensorType::of(&at), Source::Constant(Arc::new(at)));
                self.apply(Op::Gather { axis }, &[x, at])
            }
            "scatter" => {
                let axis = self.random.random_range(0..rank.max(1));
                let extent = *shape.get(axis)?;
                let reduction = self.pick(&[None, None, Some(BinaryOp::Max), Some(BinaryOp::Add)]);
                let mut places = shape.clone();
                places[axis] = self.random.random_range(1..=6);
                let count = places.iter().product::<i64>();
                let at: Vec<i64> = (0..count).map(|_| self.random.random_range(-extent..extent)).collect();
                let at = Tensor::new(&places, &at);
                let at = self.add(TensorType::of(&at), Source::Constant(Arc::new(at)));
                let updates = self.constant(&places, 1.0);
                self.apply(Op::ScatterElements { axis, reduction }, &[x, at, updates])
            }
            _ => unreachable!("{kind} is not listed"),
        }
    }

    /// Sums, products and windows over `x`.
    fn summed(&mut self, kind: &str, x: ValueId) -> Option<ValueId> {
        let shape = self.shape(x);
        let rank = shape.len();
        match kind {
            "reduce" => {
                let op = self.pick(&[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::L1]);
                let axes: Vec<usize> = (0..rank).filter(|_| self.chance(50)).collect();
                let keep = self.chance(50);
                if axes.is_empty() { None } else { self.apply(Op::Reduce { op, axes, keep }, &[x]) }
            }
            "softmax" => {
                let axis = self.random.random_range(0..rank.max(1));
                self.apply(Op::Softmax { axis, log: false }, &[x])
            }
            "layer norm" => {
                let axis = rank.checked_sub(1)?;
                if shape[axis] < 4 {
                    return None;
                }
                let (scale, bias) = (self.constant(&shape[axis..], 1.0), self.constant(&shape[axis..], 1.0));
                self.apply(Op::LayerNorm { axis, epsilon: F32::new(1e-2) }, &[x, scale, bias])
            }
            "matmul" => {
                let inner = *shape.last()?;
                let (columns, transpose_b) = (self.pick(&EXTENTS), self.chance(30));
                let w = self.constant(&if transpose_b { [columns, inner] } else { [inner, columns] }, 0.4);
                self.apply(Op::MatMul { transpose_a: false, transpose_b }, &[x, w])
            }
            "product" => {
                let y = self.operand();
                let (transpose_a, transpose_b) = (self.chance(20), self.chance(50));
                self.apply(Op::MatMul { transpose_a, transpose_b }, &[x, y])
            }
            "conv" => {
                let [_, channels, ..] = shape[..] else { return None };
                if rank != 4 {
                    return None;
                }
                let group = match self.random.random_range(0..4) {
                    0 => channels,
                    1 => (2..=4).find(|g| channels % g == 0).unwrap_or(1),
                    _ => 1,
                };
                let filters = if channels % 16 == 0 && group == 1 {
                    self.pick(&BLOCKS)
                } else if group == 1 {
                    self.pick(&EXTENTS)
                } else {
                    group * self.pick(&[channels / group, 1, 2])
                };
                let window = self.window(&[1, 3, 3, 5, 2]);
                let w = self.constant(&[filters, channels / group, window.kernel[0], window.kernel[1]], 0.4);
                let op = Op::Conv { window, group, layout: Layout::Nchw };
                if self.chance(50) {
                    let b = self.constant(&[filters], 1.0);
                    return self.apply(op, &[x, w, b]);
                }
                self.apply(op, &[x, w])
            }
            "pool" => {
                if rank != 4 {
                    return None;
                }
                let count_padding = self.chance(50);
                let kind = if self.chance(50) { PoolKind::Max } else { PoolKind::Average { count_padding } };
                let window = self.window(&[2, 3]);
                self.apply(Op::Pool { kind, window, layout: Layout::Nchw }, &[x])
            }
            _ => unreachable!("{kind} is not listed"),
        }
    }

    fn window(&mut self, kernels: &[i64]) -> Window {
        let mut two = |from: &[i64]| vec![self.pick(from), self.pick(from)];
        let (kernel, stride, dilation) = (two(kernels), two(&[1, 1, 2]), two(&[1, 1, 1, 2]));
        let mut pad = || kernel.iter().map(|&k| self.random.random_range(0..k)).collect::<Vec<i64>>();
        let (pad_before, pad_after) = (pad(), pad());
        Window { kernel, stride, dilation, pad_before, pad_after }
    }
}

/// Kinds of operators, those of networks more than once.
const KINDS: [&str; 23] = [
    "unary",
    "activation",
    "relu",
    "relu",
    "binary",
    "binary",
    "constant operand",
    "constant operand",
    "transpose",
    "reshape",
    "slice",
    "pad",
    "concat",
    "gather",
    "scatter",
    "upsample",
    "reduce",
    "softmax",
    "layer norm",
    "matmul",
    "product",
    "conv",
    "pool",
];

fn make(seed: u64, counts: &mut BTreeMap<&'static str, usize>) -> Graph {
    let mut m =
        Maker { graph: Graph { name: format!("seed{seed}"), ..Graph::default() }, random: StdRng::seed_from_u64(seed) };
    let shape = match m.random.random_range(0..4) {
        // Images of whole blocks of channels, where these are to be chosen.
        _ if over_blocks(seed) => vec![1, m.pick(&BLOCKS), m.pick(&[7, 8]), m.pick(&[9, 14])],
        0 => vec![m.pick(&EXTENTS), m.pick(&EXTENTS)],
        1 => vec![m.pick(&[1, 2]), m.pick(&EXTENTS), m.pick(&EXTENTS)],
        _ => vec![m.pick(&[1, 1, 2]), m.pick(&EXTENTS), m.pick(&[5, 7, 8, 14]), m.pick(&[4, 7, 9, 16])],
    };
    m.input(&shape);
    if m.chance(30) {
        m.input(&shape);
    }
    let wanted = m.random.random_range(1..=9);
    for _ in 0..60 {
        if m.graph.nodes.len() == wanted {
            break;
        }
        let kind = if over_blocks(seed) && m.chance(30) { m.pick(&["conv", "conv", "pool"]) } else { m.pick(&KINDS) };
        if m.grow(kind).is_some() {
            *counts.entry(kind).or_default() += 1;
        }
    }
    let read: Vec<ValueId> = m.graph.nodes.iter().flat_map(|n| n.inputs.clone()).collect();
    m.graph.outputs = m.graph.nodes.iter().flat_map(|n| n.outputs.clone()).filter(|v| !read.contains(v)).collect();
    m.graph
}

/// Compilations that had channel-blocked layouts to choose from.
#[derive(Default, Debug)]
struct Blocked {
    compiled: usize,
    /// Of these, those in which a rule put an operator over blocks.
    considered: usize,
    /// Of these, those whose module has an operator over blocks.
    chosen: usize,
}

impl Blocked {
    fn count(&mut self, report: &Report) {
        let rules = report.rewriting.iter().flat_map(|r| &r.rules);
        let operators = report.kernels.iter().flat_map(|k| &k.operators);
        self.compiled += 1;
        self.considered += usize::from(rules.clone().any(|(name, _)| name.ends_with("-blocked")));
        // Inputs and outputs are not in blocks: what computes over blocks stands behind a change of layout.
        self.chosen += usize::from(operators.clone().any(|o| o == "block"));
    }
}

/// Compiles a graph, compares its outputs with the interpreter, and returns the first error.
fn check(graph: &Graph, seed: u64, blocked: &mut Blocked) -> Option<String> {
    let inputs: Vec<Tensor> = (graph.inputs.iter().enumerate())
        .map(|(i, &v)| Tensor::seeded(DType::F32, &graph.value(v).ty.shape, seed, i as u64, 2))
        .collect();
    let expected = tilewright::internal::graph::interpret::run(graph, &inputs)
        .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
    let names: Vec<String> = graph.inputs.iter().map(|&v| graph.value(v).name.clone()).collect();
    let named: Vec<_> = names.iter().map(String::as_str).zip(&inputs).collect();
    for target in host_targets() {
        let mut options = Options { target: Some(target.clone()), ..Options::default() };
        if over_blocks(seed) {
            options.egraph.blocked = true;
            options.egraph.without = ["conv-nhwc", "max-pool-nhwc", "average-pool-nhwc"].map(String::from).into();
        }
        let module = match Model::from_graph(graph.clone()).compile_module(&options) {
            Ok((module, report)) => {
                if options.egraph.blocked {
                    blocked.count(&report);
                }
                Arc::new(module)
            }
            Err(error) => return Some(format!("{}: {error}", target.name)),
        };
        let run = |threads| Session::new(module.clone(), threads).and_then(|s| s.run(&named));
        let (one, two) = match (run(1), run(2)) {
            (Ok(one), Ok(two)) => (one, two),
            (Err(error), _) | (_, Err(error)) => return Some(format!("{}: {error}", target.name)),
        };
        if one.iter().zip(&two).any(|(a, b)| a.data != b.data) {
            return Some(format!("{}: other bits with two threads", target.name));
        }
        for ((actual, expected), id) in one.iter().zip(&expected).zip(&graph.outputs) {
            if let Some(why) = difference(&with_unit(actual), &with_unit(expected), TOLERANCE) {
                return Some(format!("{}: {id}: {why}", target.name));
            }
        }
    }
    None
}

/// One more element, 1e-3: differences below 1e-6 are rounding, as where a value is taken from itself.
fn with_unit(tensor: &Tensor) -> Tensor {
    let mut values = tensor.to_vec::<f32>();
    values.push(1e-3);
    Tensor::new(&[values.len() as i64], &values)
}

/// The part of a graph that one value needs.
fn cut(graph: &Graph, id: ValueId) -> Graph {
    let mut needed = vec![false; graph.values.len()];
    needed[id.0 as usize] = true;
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().any(|v| needed[v.0 as usize]) {
            node.inputs.iter().for_each(|v| needed[v.0 as usize] = true);
        }
    }
    // Ids and nodes stay; what is not needed is left out, so values are numbered anew.
    let kept: Vec<u32> = (0..graph.values.len() as u32).filter(|&v| needed[v as usize]).collect();
    let renamed = |v: &ValueId| ValueId(kept.binary_search(&v.0).expect("a needed value") as u32);
    let nodes: Vec<&Node> = graph.nodes.iter().filter(|n| needed[n.outputs[0].0 as usize]).collect();
    let mut part = Graph { name: graph.name.clone(), ..Graph::default() };
    for &v in &kept {
        let mut value = graph.value(ValueId(v)).clone();
        if let Source::Node(..) = value.source {
            let node = nodes.iter().position(|n| n.outputs[0].0 == v).expect("the node of a needed value");
            value.source = Source::Node(node as u32, 0);
        }
        part.values.push(value);
    }
    for node in nodes {
        let inputs = node.inputs.iter().map(renamed).collect();
        let outputs = node.outputs.iter().map(renamed).collect();
        part.nodes.push(Node { inputs, outputs, ..node.clone() });
    }
    part.inputs = graph.inputs.iter().filter(|v| needed[v.0 as usize]).map(renamed).collect();
    part.outputs = vec![renamed(&id)];
    part
}

#[test]
fn random_graphs_compute_what_the_interpreter_says() {
    let variable = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    let budget = Duration::from_secs(variable("TILEWRIGHT_FUZZ_SECONDS").unwrap_or(2));
    let (seed, longer) = (variable("TILEWRIGHT_SEED"), variable("TILEWRIGHT_FUZZ_SECONDS").is_some());
    let (first, only) = (seed.unwrap_or(1), seed.is_some() && !longer);
    let (mut counts, mut failures, start) = (BTreeMap::new(), vec![], Instant::now());
    let (mut graphs, mut blocked) = (0, Blocked::default());
    // A number of graphs rather than a time, so that a plain run checks the same graphs on every machine.
    while if only { graphs < 1 } else { graphs < 150 || (budget.as_secs() > 2 && start.elapsed() < budget) } {
        let seed = first + graphs;
        graphs += 1;
        let graph = make(seed, &mut counts);
        let Some(why) = check(&graph, seed, &mut blocked) else { continue };
        let parts = graph.nodes.iter().map(|n| cut(&graph, n.outputs[0]));
        let (part, why) = parts
            .filter_map(|p| check(&p, seed, &mut Blocked::default()).map(|why| (p, why)))
            .next()
            .unwrap_or((graph, why));
        failures.push(format!("seed {seed}: {why}\n{part}"));
    }
    println!("{graphs} graphs, operators: {counts:?}, {blocked:?}");
    assert!(failures.is_empty(), "{} of {graphs} graphs failed:\n{}", failures.len(), failures.join("\n"));
    assert!(only || KINDS.iter().all(|kind| counts.contains_key(kind)), "not every operator was met: {counts:?}");
    assert!(only || blocked.chosen > 0, "no operator over blocks of channels was compiled: {blocked:?}");
}
