use super::*;
use crate::expr::BinaryOp;
use crate::graph::builder::GraphBuilder;
use crate::graph::egraph::{EgraphOptions, Optimized, optimize};
use crate::graph::fold::memo::Memo;
use crate::graph::fusion::views::views;
use crate::graph::fusion::{self, group::Group};
use crate::graph::interpret;
use crate::graph::ir::{Source, ValueId};
use crate::graph::op::{Layout, Op, Window};
use crate::graph::rules::algorithm::Algorithm;
use crate::runtime::{DType, Tensor};

/// A graph under construction with random numbers.
struct Net {
    builder: GraphBuilder,
    /// Tensors that were drawn.
    drawn: u64,
}

impl Net {
    fn new() -> Net {
        Net { builder: GraphBuilder::new("net"), drawn: 0 }
    }

    fn tensor(&mut self, shape: &[i64]) -> Tensor {
        self.drawn += 1;
        Tensor::seeded(DType::F32, shape, 1, self.drawn, 2)
    }

    fn input(&mut self, shape: &[i64]) -> ValueId {
        self.builder.input("x", DType::F32, shape)
    }

    fn constant(&mut self, shape: &[i64]) -> ValueId {
        let tensor = self.tensor(shape);
        self.builder.constant(tensor)
    }

    /// A convolution with 16 filters of this kernel and window.
    fn conv(&mut self, x: ValueId, channels: i64, window: Window, group: i64) -> ValueId {
        let shape = [&[16, channels / group], window.kernel.as_slice()].concat();
        let w = self.constant(&shape);
        self.builder.op(Op::Conv { window, group, layout: Layout::Nchw }, &[x, w]).unwrap()[0]
    }

    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.builder.binary(op, a, b).unwrap()
    }
}

/// A window of stride 1 that keeps extents.
fn same(kernel: &[i64], dilation: &[i64]) -> Window {
    let pad: Vec<i64> = kernel.iter().zip(dilation).map(|(taps, d)| d * (taps - 1) / 2).collect();
    Window {
        kernel: kernel.to_vec(),
        stride: vec![1; kernel.len()],
        dilation: dilation.to_vec(),
        pad_before: pad.clone(),
        pad_after: pad,
    }
}

/// The graph with its convolutions by minimal filtering, not divided.
fn whole(graph: &Graph) -> (Graph, Vec<Placement>) {
    let mut target = Target::avx512();
    target.machine.cache_bytes = [48 << 10, 1 << 40, 1 << 41];
    let (options, memo) = (EgraphOptions::default(), Memo::default());
    let Optimized { graph, placements, report, .. } =
        optimize(graph, &target, Algorithm::Winograd(2), 1.0, 2, &options, &memo).unwrap();
    assert!(report.row_blocks.is_empty());
    (graph, placements)
}

fn inputs(net: &mut Net, graph: &Graph) -> Vec<Tensor> {
    graph.inputs.iter().map(|&v| net.tensor(&graph.value(v).ty.shape)).collect()
}

/// The graph with every convolution in blocks of so many tile rows; the number of convolutions.
fn divided(graph: &Graph, placements: &[Placement], tile_rows: i64) -> (Graph, Vec<Group>, usize) {
    let chains = chain::find(graph, placements).unwrap();
    let mut emitter = Emitter::new(graph.clone(), placements.to_vec());
    chains.iter().for_each(|chain| emitter.divide(chain, tile_rows).unwrap());
    let (graph, placements) = emitter.finish().unwrap();
    graph.verify().unwrap();
    let groups = fusion::fuse(&graph, &placements).unwrap();
    (graph, groups, chains.len())
}

/// Divides the convolutions of what `build` makes into blocks of 1 row of tiles and of more, and compares all bits of the
/// results; returns the undivided graph.
fn compare(convolutions: usize, build: impl Fn(&mut Net)) -> Graph {
    let mut net = Net::new();
    build(&mut net);
    let source = std::mem::replace(&mut net.builder, GraphBuilder::new("")).build().unwrap();
    let (graph, placements) = whole(&source);
    let given = inputs(&mut net, &graph);
    let expected = interpret::run(&graph, &given).unwrap();
    for tile_rows in [1, 2, 5] {
        let (divided, _, found) = divided(&graph, &placements, tile_rows);
        assert_eq!(found, convolutions, "{graph}");
        for (a, b) in expected.iter().zip(interpret::run(&divided, &given).unwrap()) {
            assert!(a.shape == b.shape && a.to_vec::<f32>() == b.to_vec::<f32>(), "{tile_rows} rows: {divided}");
        }
    }
    graph
}

#[test]
fn blocks_have_the_values_of_the_whole() {
    // extents, channels, taps, dilations, groups
    let layers: [(&[i64], i64, &[i64], &[i64], i64); 8] = [
        (&[1, 17, 15], 16, &[3, 3], &[1, 1], 1),
        (&[2, 16, 9], 16, &[3, 3], &[1, 1], 1),
        (&[1, 22, 11], 16, &[5, 3], &[1, 1], 1),
        (&[1, 25, 13], 16, &[3, 3], &[2, 3], 1),
        (&[1, 19, 8], 32, &[3, 3], &[1, 1], 2),
        (&[1, 23, 12], 16, &[3, 1], &[1, 1], 1),
        (&[1, 33], 16, &[3], &[1], 1),
        (&[1, 14, 13], 16, &[3, 3], &[3, 1], 2),
    ];
    for (extents, channels, taps, dilation, group) in layers {
        compare(1, |net| {
            let x = net.input(&[&[extents[0], channels], &extents[1..]].concat());
            let y = net.conv(x, channels, same(taps, dilation), group);
            net.builder.output("y", y).unwrap();
        });
    }
}

#[test]
fn blocks_have_the_values_of_the_whole_beside_uneven_padding() {
    for (before, after) in [([0, 0], [0, 0]), ([2, 1], [0, 1]), ([0, 2], [2, 2]), ([2, 2], [2, 2])] {
        compare(1, |net| {
            let x = net.input(&[1, 16, 18, 12]);
            let window = Window { pad_before: before.to_vec(), pad_after: after.to_vec(), ..same(&[3, 3], &[1, 1]) };
            let y = net.conv(x, 16, window, 1);
            net.builder.output("y", y).unwrap();
        });
    }
}

#[test]
fn operators_after_a_convolution_are_divided_with_it() {
    // Bias, residual, a factor for each row and one for each column; the value before the last operator is read elsewhere.
    compare(3, |net| {
        let x = net.input(&[1, 16, 20, 14]);
        let y = net.conv(x, 16, same(&[3, 3], &[1, 1]), 1);
        let bias = net.constant(&[16, 1, 1]);
        let y = net.binary(BinaryOp::Add, y, bias);
        let z = net.conv(y, 16, same(&[3, 3], &[1, 1]), 1);
        let z = net.binary(BinaryOp::Add, z, x);
        let rows = net.constant(&[20, 1]);
        let z = net.binary(BinaryOp::Mul, z, rows);
        let columns = net.constant(&[1, 16, 1, 14]);
        let z = net.binary(BinaryOp::Max, z, columns);
        let sum = net.conv(z, 16, same(&[3, 3], &[1, 1]), 1);
        let sum = net.binary(BinaryOp::Add, sum, y);
        net.builder.output("z", z).unwrap();
        net.builder.output("sum", sum).unwrap();
    });
}

#[test]
fn a_concatenation_reads_the_blocks() {
    compare(2, |net| {
        let x = net.input(&[1, 16, 21, 14]);
        let y = net.conv(x, 16, same(&[3, 3], &[1, 1]), 1);
        let joined = net.builder.op(Op::Concat { axis: 1 }, &[x, y]).unwrap()[0];
        let z = net.conv(joined, 32, same(&[3, 3], &[1, 1]), 1);
        net.builder.output("z", z).unwrap();
    });
}

#[test]
fn rows_are_read_and_written_in_place() {
    let mut net = Net::new();
    let x = net.input(&[1, 16, 40, 14]);
    let y = (0..3).fold(x, |x, _| net.conv(x, 16, same(&[3, 3], &[1, 1]), 1));
    net.builder.output("y", y).unwrap();
    let (graph, placements) = whole(&net.builder.build().unwrap());
    let count = |groups: &[Group], name: &str| groups.iter().filter(|g| g.name.starts_with(name)).count();
    let (graph, groups, _) = divided(&graph, &placements, 5);
    // Of three convolutions in four blocks the maps between them are whole: twelve chains of three kernels, and no copies.
    for (name, expected) in
        [("winograd_input", 12), ("matmul", 12), ("winograd_output", 12), ("slice", 0), ("concat", 0)]
    {
        assert_eq!(count(&groups, name), expected, "{name}: {:?}", groups.iter().map(|g| &g.name).collect::<Vec<_>>());
    }
    let found = views(&graph, &groups);
    assert!(found.len() >= 16, "{found:?}");
    for view in found {
        let (part, of) = (&graph.value(view.value).ty, &graph.value(view.of).ty);
        assert!(view.offset as usize + part.bytes() <= of.bytes(), "{view:?}");
        assert!(matches!(graph.value(view.of).source, Source::Node(..)) && !graph.outputs.contains(&view.of));
    }
}

#[test]
fn convolutions_are_divided_where_that_is_predicted_to_be_faster() {
    let report = |machine: fn(&mut Machine)| {
        let mut net = Net::new();
        let x = net.input(&[1, 16, 40, 40]);
        let y = net.conv(x, 16, same(&[3, 3], &[1, 1]), 1);
        net.builder.output("y", y).unwrap();
        let mut target = Target::avx512();
        machine(&mut target.machine);
        let (options, memo) = (EgraphOptions::default(), Memo::default());
        let graph = net.builder.build().unwrap();
        optimize(&graph, &target, Algorithm::Winograd(2), 1.0, 2, &options, &memo).unwrap().report.row_blocks
    };
    assert_eq!(report(|_| {}), []);
    // Caches that hold a part of the transformed maps, and a slow memory.
    let small = |machine: &mut Machine| {
        machine.cache_bytes = [4 << 10, 32 << 10, 64 << 10];
        machine.bandwidth = [200.0, 100.0, 2.0, 1.0];
        machine.launch_ns = 1.0;
    };
    let found = report(small);
    let [RowBlocks { blocks, tile_rows, predicted_us, whole_us, .. }] = found[..] else { panic!("{found:?}") };
    assert!(blocks > 1 && blocks * tile_rows >= 20 && predicted_us < whole_us, "{found:?}");
    // Starting so many kernels takes longer than the memory.
    assert_eq!(report(|machine| (machine.cache_bytes, machine.launch_ns) = ([4 << 10, 32 << 10, 64 << 10], 1e6)), []);
}
