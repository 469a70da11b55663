use super::*;
use crate::codegen::Target;
use crate::expr::{Affine, Var};
use crate::expr::{BinaryOp, BufferId, Expr, Index, UnaryOp};
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::fold::memo::Memo;
use crate::graph::fusion::group::Group;
use crate::graph::infer::infer;
use crate::graph::ir::Node;
use crate::graph::op::Layout;
use crate::graph::op::{F32, Window};
use crate::graph::rules;
use crate::graph::tensor_type::TensorType;
use crate::poly::statement::Role;
use crate::runtime::{DType, Tensor};
use std::sync::Arc;

/// A graph under construction: values are found by what the methods return.
#[derive(Default)]
struct Net(Graph);

impl Net {
    fn value(&mut self, ty: TensorType, source: Source) -> ValueId {
        self.0.add_value(format!("v{}", self.0.values.len()), ty, source)
    }
    fn input(&mut self, shape: &[i64]) -> ValueId {
        let v = self.value(TensorType::new(DType::F32, shape), Source::Input);
        self.0.inputs.push(v);
        v
    }
    fn constant(&mut self, shape: &[i64]) -> ValueId {
        let count: i64 = shape.iter().product();
        // Different ones, or equal operators would be one.
        let first = self.0.values.len() as f32;
        let values: Vec<f32> = (0..count).map(|i| i as f32 * 0.25 - first).collect();
        let t = Tensor::new(shape, &values);
        self.value(TensorType::of(&t), Source::Constant(Arc::new(t)))
    }
    fn node(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let types: Vec<&TensorType> = inputs.iter().map(|&v| &self.0.value(v).ty).collect();
        let ty = infer(&op, &types).unwrap().remove(0);
        let n = self.0.nodes.len() as u32;
        let v = self.value(ty, Source::Node(n, 0));
        self.0.nodes.push(Node {
            name: format!("n{n}"),
            origins: vec![],
            op,
            inputs: inputs.to_vec(),
            outputs: vec![v],
        });
        v
    }
    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.node(Op::Binary(BinaryOp::Add), &[a, b])
    }
    fn relu(&mut self, a: ValueId) -> ValueId {
        let zero = self.constant_scalar(0.0);
        self.node(Op::Binary(BinaryOp::Max), &[a, zero])
    }
    fn constant_scalar(&mut self, v: f32) -> ValueId {
        let t = Tensor::new(&[], &[v]);
        self.value(TensorType::of(&t), Source::Constant(Arc::new(t)))
    }
    fn conv(&mut self, x: ValueId, filters: i64) -> ValueId {
        let c = self.0.value(x).ty.shape[1];
        let w = self.constant(&[filters, c, 1, 1]);
        let window = Window {
            kernel: vec![1, 1],
            stride: vec![1, 1],
            dilation: vec![1, 1],
            pad_before: vec![0, 0],
            pad_after: vec![0, 0],
        };
        self.node(Op::Conv { window, group: 1, layout: Layout::Nchw }, &[x, w])
    }
    /// Builds the graph with the groups that the extraction chooses, checked.
    fn chosen(&mut self, outputs: &[ValueId]) -> (Graph, Vec<Group>) {
        self.0.outputs = outputs.to_vec();
        let without = rules::all(Some(4)).iter().map(|r| r.name.to_string()).collect();
        let options = EgraphOptions { without, ..EgraphOptions::default() };
        let Optimized { graph, placements, report, .. } =
            optimize(&self.0, &Target::avx512(), Default::default(), 1e-4, 2, &options, &Memo::default()).unwrap();
        assert!(report.extraction.summary().starts_with("optimal"), "{report}");
        let groups = fuse(&graph, &placements).unwrap();
        check(&graph, &groups);
        (graph, groups)
    }
    /// Groups as lists of the numbers of their nodes.
    fn fuse(&mut self, outputs: &[ValueId]) -> Vec<Vec<u32>> {
        let (graph, groups) = self.chosen(outputs);
        let number = |n: &u32| graph.nodes[*n as usize].name[1..].parse().unwrap();
        let sorted = |g: &Group| {
            let mut list: Vec<u32> = g.nodes.iter().map(number).collect();
            list.sort_unstable();
            list
        };
        groups.iter().map(sorted).collect()
    }
}

/// Every value is complete before it is read, and every group has a well-formed program.
fn check(graph: &Graph, groups: &[Group]) {
    let mut ready: Vec<bool> = graph.values.iter().map(|v| !matches!(v.source, Source::Node(..))).collect();
    let in_place: Vec<ValueId> = views::views(graph, groups).iter().flat_map(|w| [w.value, w.of]).collect();
    let aliases = |ready: &mut Vec<bool>| {
        for Node { op, inputs, outputs, .. } in &graph.nodes {
            let alias = match op {
                Op::Reshape { .. } => true,
                Op::Slice { .. } | Op::Concat { .. } => in_place.contains(&outputs[0]),
                _ => false,
            };
            ready[outputs[0].0 as usize] |= alias && inputs.iter().all(|v| ready[v.0 as usize]);
        }
    };
    for group in groups {
        aliases(&mut ready);
        assert!(group.inputs.iter().all(|v| ready[v.0 as usize]), "{} reads what is not there yet", group.name);
        let program = program(graph, group).unwrap();
        let (i, o) = (group.inputs.len(), group.outputs.len());
        for (k, tensor) in program.tensors.iter().enumerate() {
            let role = match k {
                k if k < i && graph.constant(group.inputs[k]).is_some() => Role::Constant,
                k if k < i => Role::Input,
                k if k < i + o => Role::Output,
                _ => Role::Temporary,
            };
            assert_eq!(tensor.role, role, "{} tensor {k}", group.name);
        }
        let mut written = vec![false; program.tensors.len()];
        written[..i].fill(true);
        for definition in &program.definitions {
            definition.body.visit_accesses(&mut |a| {
                assert!(written[a.buffer.0 as usize] || a.buffer == definition.target, "{} order", group.name)
            });
            written[definition.target.0 as usize] = true;
        }
        assert!(written.iter().all(|w| *w), "{} leaves a tensor undefined", group.name);
        group.outputs.iter().for_each(|v| ready[v.0 as usize] = true);
    }
    aliases(&mut ready);
    assert!(graph.outputs.iter().all(|v| ready[v.0 as usize]));
}

#[test]
fn a_long_chain_fills_its_kernels() {
    let mut net = Net::default();
    let x = net.input(&[4, 4]);
    let y = (0..400).fold(x, |x, _| net.node(Op::Unary(UnaryOp::Tanh), &[x]));
    net.0.outputs = vec![y];
    let Optimized { graph, placements, report, .. } =
        optimize(&net.0, &Target::avx512(), Default::default(), 1e-4, 2, &EgraphOptions::default(), &Memo::default())
            .unwrap();
    let groups = fuse(&graph, &placements).unwrap();
    check(&graph, &groups);
    assert!(groups.len() <= 4, "{} kernels: {report}", groups.len());
    assert!(report.extraction.cuts <= 16, "{} cuts", report.extraction.cuts);
}

#[test]
fn a_convolution_takes_bias_residual_and_activation() {
    let mut net = Net::default();
    let x = net.input(&[1, 4, 5, 5]);
    let c = net.conv(x, 4);
    let bias = net.constant(&[4, 1, 1]);
    let biased = net.add(c, bias);
    let sum = net.add(biased, x);
    let y = net.relu(sum);
    assert_eq!(net.fuse(&[y]), [[0, 1, 2, 3]]);
}

#[test]
fn no_cycle_runs_through_a_residual_block() {
    let mut net = Net::default();
    let x = net.input(&[1, 4, 5, 5]);
    let a = net.conv(x, 4);
    let r = net.relu(a);
    let b = net.conv(r, 4);
    let sum = net.add(b, r);
    let y = net.relu(sum);
    assert_eq!(net.fuse(&[y]), [vec![0, 1], vec![2, 3, 4]]);
}

#[test]
fn the_later_convolution_of_a_shortcut_waits_for_the_other() {
    let mut net = Net::default();
    let x = net.input(&[1, 4, 5, 5]);
    let a = net.conv(x, 6);
    let b = net.conv(x, 6);
    let sum = net.add(a, b);
    assert_eq!(net.fuse(&[sum]), [vec![1], vec![0, 2]]);
}

#[test]
fn a_value_used_elsewhere_becomes_an_output() {
    let mut net = Net::default();
    let (x, y) = (net.input(&[8, 16]), net.input(&[8, 16]));
    let (scale, bias) = (net.constant(&[16]), net.constant(&[16]));
    let sum = net.add(x, y);
    let norm = net.node(Op::LayerNorm { axis: 1, epsilon: F32::new(1e-5) }, &[sum, scale, bias]);
    let w = net.constant(&[16, 16]);
    let product = net.node(Op::MatMul { transpose_a: false, transpose_b: false }, &[norm, w]);
    let out = net.add(product, sum);
    assert_eq!(net.fuse(&[out]), [vec![0, 1], vec![2, 3]]);
    assert_eq!(net.chosen(&[out]).1[0].outputs.len(), 2);
}

#[test]
fn attention_reads_heads_in_place() {
    let mut net = Net::default();
    let x = net.input(&[6, 24]);
    let split = net.node(Op::Reshape { shape: vec![6, 3, 8] }, &[x]);
    let heads = net.node(Op::Transpose { perm: vec![1, 0, 2] }, &[split]);
    let scores = net.node(Op::MatMul { transpose_a: false, transpose_b: true }, &[heads, heads]);
    let scale = net.constant_scalar(0.5);
    let scaled = net.node(Op::Binary(BinaryOp::Mul), &[scores, scale]);
    let soft = net.node(Op::Softmax { axis: 2, log: false }, &[scaled]);
    let mixed = net.node(Op::MatMul { transpose_a: false, transpose_b: false }, &[soft, heads]);
    let back = net.node(Op::Transpose { perm: vec![1, 0, 2] }, &[mixed]);
    let joined = net.node(Op::Reshape { shape: vec![6, 24] }, &[back]);
    // The transposition stands in both products; the reshapes in none.
    assert_eq!(net.fuse(&[joined]), [vec![1, 2, 3], vec![4], vec![1, 5, 6]]);
}

/// Heads that lie in columns are transposed, then taken apart: the product reads both in place, the reshape by its subscripts.
#[test]
fn a_product_reads_through_a_transposition_and_a_reshape() {
    let mut net = Net::default();
    let x = net.input(&[6, 24]);
    let turned = net.node(Op::Transpose { perm: vec![1, 0] }, &[x]);
    let heads = net.node(Op::Reshape { shape: vec![3, 8, 6] }, &[turned]);
    let w = net.constant(&[6, 16]);
    let y = net.node(Op::MatMul { transpose_a: false, transpose_b: false }, &[heads, w]);
    let (graph, groups) = net.chosen(&[y]);
    assert_eq!(groups.len(), 1, "{graph}");
    let nodes = |op: fn(&Op) -> bool| groups[0].nodes.iter().filter(|&&n| op(&graph.nodes[n as usize].op)).count();
    assert_eq!((nodes(|op| matches!(op, Op::Reshape { .. })), groups[0].nodes.len()), (1, 3), "{graph}");
    let mut taken_apart = false;
    for d in &program(&graph, &groups[0]).unwrap().definitions {
        let digit = |index: &Index| index.affine().is_some_and(|a| *a == Affine::var(Var(1)).plus(Var(0), 8));
        d.body.visit_accesses(&mut |a| taken_apart |= a.index.iter().any(digit));
    }
    assert!(taken_apart);
}

#[test]
fn elementwise_chains_are_one_kernel_and_broadcasts_do_not_repeat_work() {
    let mut net = Net::default();
    let (x, row) = (net.input(&[32, 16]), net.input(&[16]));
    let gate = net.node(Op::Sigmoid, &[row]);
    let a = net.node(Op::Binary(BinaryOp::Mul), &[x, gate]);
    let b = net.node(Op::Unary(UnaryOp::Tanh), &[a]);
    let c = net.add(b, x);
    assert_eq!(net.fuse(&[c]), [vec![0], vec![1, 2, 3]]);
}

#[test]
fn a_concatenation_takes_its_elementwise_producers() {
    let mut net = Net::default();
    let (x, y) = (net.input(&[2, 3]), net.input(&[2, 5]));
    let (a, b) = (net.relu(x), net.relu(y));
    let joined = net.node(Op::Concat { axis: 1 }, &[a, b]);
    assert_eq!(net.fuse(&[joined]), [[0, 1, 2]]);
}

#[test]
fn scalars_are_written_into_the_expression() {
    let mut net = Net::default();
    let x = net.input(&[4]);
    let y = net.relu(x);
    let (graph, groups) = net.chosen(&[y]);
    let p = program(&graph, &groups[0]).unwrap();
    assert_eq!(p.tensors.len(), 2);
    let load = Expr::load(BufferId(0), vec![Affine::var(Var(0))]);
    assert_eq!(p.definitions[0].body, Expr::binary(BinaryOp::Max, load, Expr::f32(0.0)));
}

#[test]
fn reshapes_that_split_are_affine_and_those_that_merge_are_not() {
    let split = affine_reshape(&[6, 24], &[6, 3, 8]).unwrap();
    assert_eq!(split[1], Affine::default().plus(Var(1), 8).plus(Var(2), 1));
    assert!(affine_reshape(&[6, 3, 8], &[6, 24]).is_none());
    assert_eq!(affine_reshape(&[1, 5, 1], &[5]).unwrap()[1], Affine::var(Var(0)));
}

#[test]
fn what_follows_a_concatenation_is_computed_part_by_part() {
    let mut net = Net::default();
    let (a, b) = (net.input(&[1, 5, 8]), net.input(&[1, 5, 24]));
    let both = net.node(Op::Concat { axis: 2 }, &[a, b]);
    let scale = net.constant(&[32]);
    let scaled = net.node(Op::Binary(BinaryOp::Mul), &[both, scale]);
    let gate = net.node(Op::Sigmoid, &[scaled]);
    let out = net.node(Op::Binary(BinaryOp::Mul), &[scaled, gate]);
    assert_eq!(net.fuse(&[out]), [vec![0, 1, 2, 3]]);
    let (graph, groups) = net.chosen(&[out]);
    let p = program(&graph, &groups[0]).unwrap();
    assert!(p.definitions.iter().all(|d| d.iterators[2].extent < 32), "{p:?}");
    // The second part reads its own channels of the constant.
    let mut places = vec![];
    p.definitions.iter().for_each(|d| {
        d.body.visit_accesses(&mut |x| {
            let one = x.index.len() == 1 || p.tensors[x.buffer.0 as usize].role == Role::Constant;
            places.extend(x.index.last().and_then(|i| i.affine()).filter(|_| one).map(|i| i.constant));
        });
    });
    assert_eq!(places, [0, 8]);
}

#[test]
fn what_is_concatenated_is_written_to_its_place() {
    let mut net = Net::default();
    let x = net.input(&[2, 4, 5, 5]);
    let (a, b) = (net.conv(x, 8), net.conv(x, 3));
    let a = net.relu(a);
    let joined = net.node(Op::Concat { axis: 1 }, &[a, b]);
    let out = net.conv(joined, 4);
    let again = net.conv(b, 4);
    assert_eq!(net.fuse(&[out, again]), [vec![0, 2], vec![1], vec![4], vec![5]]);
    let (graph, groups) = net.chosen(&[out, again]);
    let programs: Vec<_> = groups.iter().map(|g| program(&graph, g).unwrap()).collect();
    let written = |p: &crate::poly::statement::Program| {
        p.tensors.iter().find(|t| t.role == Role::Output).map(|t| t.shape.clone())
    };
    let whole = Some(vec![2, 11, 5, 5]);
    assert_eq!((written(&programs[0]), written(&programs[1])), (whole.clone(), whole.clone()));
    assert_eq!(programs[1].definitions[0].write[1].constant, 8);
    // The other reader of the second operand reads it there.
    assert_eq!(Some(programs[3].tensors[0].shape.clone()), whole);
    let mut least = i64::MAX;
    programs[3].definitions[0].body.visit_accesses(&mut |x| {
        if x.buffer == BufferId(0) {
            least = least.min(x.index[1].affine().unwrap().constant);
        }
    });
    assert_eq!(least, 8);
    // An output of the graph is not a slice of another value.
    let groups = net.chosen(&[out, b]).1;
    assert!(groups.iter().any(|g| g.name == "concat") && groups.iter().all(|g| g.slices.is_empty()));
}

#[test]
fn what_is_padded_is_written_to_its_place() {
    let mut net = Net::default();
    let x = net.input(&[1, 2, 5, 4]);
    let y = net.conv(x, 3);
    let pad = |after: i64| Op::Pad { before: vec![0, 0, 2, 1], after: vec![0, 1, 0, after], value: 0 };
    let padded = net.node(pad(3), &[y]);
    let out = net.conv(padded, 5);
    let again = net.conv(y, 4);
    let (graph, groups) = net.chosen(&[out, again]);
    let named = |name: &str| groups.iter().find(|g| g.name == name).unwrap();
    let border = program(&graph, named("pad")).unwrap();
    assert_eq!(named("pad").inputs, []);
    // Each element is written once, by the convolution or around it.
    let written = |p: &crate::poly::statement::Program| -> i64 {
        let definitions = p.definitions.iter().filter(|d| p.tensors[d.target.0 as usize].shape == [1, 4, 7, 8]);
        definitions.map(|d| d.iterators[..d.outer].iter().map(|i| i.extent).product::<i64>()).sum()
    };
    let all = groups.iter().map(|g| written(&program(&graph, g).unwrap()));
    assert_eq!((written(&border), all.sum::<i64>()), (4 * 7 * 8 - 3 * 5 * 4, 4 * 7 * 8));
    // Padding of an input of the graph is a copy.
    let input = net.node(pad(3), &[x]);
    let groups = net.chosen(&[input]).1;
    assert!(groups.iter().all(|g| g.slices.is_empty()));
}

/// The views of a graph: their values' shapes, and the bytes before them.
fn views_of(graph: &Graph, groups: &[Group]) -> Vec<(Vec<i64>, u64)> {
    views::views(graph, groups).iter().map(|w| (graph.value(w.value).ty.shape.clone(), w.offset)).collect()
}

#[test]
fn pieces_of_memory_are_not_copied() {
    let mut net = Net::default();
    let x = net.input(&[1, 4, 5, 5]);
    let (a, b) = (net.conv(x, 8), net.conv(x, 3));
    let joined = net.node(Op::Concat { axis: 1 }, &[a, b]);
    let rows = |starts: &[i64], ends: &[i64], steps: &[i64]| Op::Slice {
        starts: starts.to_vec(),
        ends: ends.to_vec(),
        steps: steps.to_vec(),
    };
    // Channels 2 to 10 with rows 1 to 4 of channel 5 in them, neither of which has memory of its own.
    let slice = net.node(rows(&[0, 2, 0, 0], &[1, 10, 5, 5], &[1; 4]), &[joined]);
    let one = net.node(rows(&[0, 3, 0, 0], &[1, 4, 5, 5], &[1; 4]), &[slice]);
    let inner = net.node(rows(&[0, 0, 1, 0], &[1, 1, 4, 5], &[1; 4]), &[one]);
    let outputs = [net.conv(slice, 2), net.conv(inner, 2)];
    net.0.outputs = outputs.to_vec();
    let placements = vec![Placement::Own; net.0.nodes.len()];
    let groups = fuse(&net.0, &placements).unwrap();
    check(&net.0, &groups);
    assert_eq!(groups.iter().map(|g| &g.nodes[..]).collect::<Vec<_>>(), [[0], [1], [6], [7]]);
    let expected = [(vec![1, 8, 5, 5], 0), (vec![1, 3, 5, 5], 800), (vec![1, 8, 5, 5], 200), (vec![1, 1, 5, 5], 300)];
    assert_eq!(views_of(&net.0, &groups), [&expected[..], &[(vec![1, 1, 3, 5], 20)]].concat());
}

#[test]
fn pieces_that_lie_apart_or_in_memory_of_others_are_copied() {
    let mut net = Net::default();
    let x = net.input(&[1, 4, 5, 5]);
    let a = net.conv(x, 8);
    let slice = |starts: [i64; 4], ends: [i64; 4], step: i64| Op::Slice {
        starts: starts.to_vec(),
        ends: ends.to_vec(),
        steps: vec![1, step, 1, 1],
    };
    let of_input = net.node(slice([0, 1, 0, 0], [1, 3, 5, 5], 1), &[x]);
    let columns = net.node(slice([0, 0, 0, 1], [1, 8, 5, 4], 1), &[a]);
    let every_other = net.node(slice([0, 0, 0, 0], [1, 8, 5, 5], 2), &[a]);
    let twice = net.node(Op::Concat { axis: 1 }, &[a, a]);
    let last = net.node(Op::Concat { axis: 3 }, &[a, a]);
    let seen = net.conv(x, 2);
    let of_output = net.node(slice([0, 1, 0, 0], [1, 2, 5, 5], 1), &[seen]);
    let read = [of_input, columns, every_other, twice, last, of_output].map(|v| net.conv(v, 2));
    net.0.outputs = [&[seen], &read[..]].concat();
    let placements = vec![Placement::Own; net.0.nodes.len()];
    let groups = fuse(&net.0, &placements).unwrap();
    check(&net.0, &groups);
    assert_eq!(views_of(&net.0, &groups), []);
}

/// The program of `x · w` with these weights.
fn product_with<T: crate::runtime::tensor::Element>(shape: &[i64], values: &[T]) -> crate::poly::statement::Program {
    let mut net = Net::default();
    let w = Tensor::new(shape, values);
    let x = net.value(TensorType::new(w.dtype, &[7, shape[0]]), Source::Input);
    net.0.inputs.push(x);
    let w = net.value(TensorType::of(&w), Source::Constant(Arc::new(w)));
    let y = net.node(Op::MatMul { transpose_a: false, transpose_b: false }, &[x, w]);
    let (graph, groups) = net.chosen(&[y]);
    program(&graph, groups.last().unwrap()).unwrap()
}

fn literals_of(program: &crate::poly::statement::Program) -> Option<Vec<f64>> {
    use crate::expr::scalar::Value;
    let literals = program.tensors.iter().find_map(|t| t.literals.as_ref())?;
    Some(literals.values().iter().map(|s| Value::from(*s).as_f64()).collect())
}

#[test]
fn small_matrices_of_zeros_and_ones_are_literals() {
    let quarter = [1.0, -1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    assert_eq!(literals_of(&product_with(&[2, 4], &quarter)), Some(quarter.to_vec()));
    assert_eq!(literals_of(&product_with(&[2, 4], &quarter.map(|v| v as f32))), Some(quarter.to_vec()));
    let eye = |n: usize| (0..n * n).map(|i| f32::from(i % (n + 1) == 0)).collect::<Vec<f32>>();
    assert_eq!(literals_of(&product_with(&[8, 8], &eye(8))).map(|l| l.len()), Some(64));
    // too many elements, too few of them trivial, not finite, integers
    assert_eq!(literals_of(&product_with(&[9, 9], &eye(9))), None);
    assert_eq!(literals_of(&product_with(&[2, 4], &[1.0f32, 8.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])), None);
    assert_eq!(literals_of(&product_with(&[2, 2], &[1.0f32, 0.0, 0.0, f32::INFINITY])), None);
}

#[test]
fn kernels_that_differ_in_literals_are_different() {
    let [a, b, c, d] = [[1.0f32, 0.0, 2.0, 1.0], [1.0, 0.0, 3.0, 1.0], [5.0, 6.0, 7.0, 8.0], [5.0, 6.0, 7.0, 9.0]]
        .map(|values| product_with(&[2, 2], &values));
    assert!(a != b && a.tensors.iter().zip(&b.tensors).all(|(a, b)| a.shape == b.shape && a.role == b.role));
    assert_eq!(c, d);
}
