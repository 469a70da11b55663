//! Reports name the nodes of the model file that each kernel computes.

mod common;

use common::root;
use std::collections::BTreeMap;
use tilewright::{Algorithm, DType, File, GraphBuilder, Model, Options, Report, Sort, Target, Tensor};

fn report(name: &str) -> Report {
    let model = Model::load(root().join(format!("tests/fixtures/operators/{name}.onnx"))).unwrap();
    model.compile_module(&Options::default()).unwrap().1
}

/// The nodes of each kernel, loop and branch.
fn nodes(report: &Report) -> Vec<String> {
    let kernels = report.kernels.iter().map(|kernel| kernel.nodes.join(" "));
    kernels.chain(report.control.iter().map(|control| control.nodes.join(" "))).collect()
}

#[test]
fn a_fused_kernel_names_all_nodes_that_it_computes() {
    let report = report("network_detector_13");
    let first = &report.kernels[0].nodes;
    assert_eq!(first[..], ["Conv(t0_1_0)", "BatchNormalization(t1_5_0)", "Sigmoid(t2_5_0)", "Mul(t3_5_0)"]);
    // parts of a concatenation are written in place, and so it has no kernel
    let writers = report.kernels.iter().filter(|kernel| kernel.nodes.iter().any(|n| n == "Concat(t24_26_0)"));
    assert_eq!(writers.count(), 2, "{report}");
}

#[test]
fn kernels_of_graphs_inside_name_the_nodes_inside() {
    let report = report("if_inside_if");
    let nodes = nodes(&report);
    for expected in
        ["If(y)/If(r)/Neg(t)", "If(y)/If(r)/MatMul(u) If(y)/If(r)/Add(e)", "If(y)/Neg(p)", "If(y)", "If(y)/If(r)"]
    {
        assert!(nodes.iter().any(|n| n == expected), "{expected}: {nodes:?}");
    }
    assert_eq!(report.aliases, ["If(y)/Identity(i)"]);
}

#[test]
fn kernels_that_a_recurrent_layer_becomes_name_the_layer() {
    let report = report("lstm_one_step");
    assert!(report.kernels.len() > 1 && nodes(&report).iter().all(|n| n == "LSTM(y)"), "{report}");
}

#[test]
fn equal_nodes_are_computed_by_one_kernel_that_names_both() {
    let mut b = GraphBuilder::new("twice");
    let x = b.input("x", DType::F32, &[4, 8]);
    let (first, second) = (b.softmax(x, 1).unwrap(), b.softmax(x, 1).unwrap());
    b.output("y", first).unwrap();
    b.output("z", second).unwrap();
    let report = Model::from_graph(b.build().unwrap()).compile_module(&Options::default()).unwrap().1;
    assert_eq!(nodes(&report), ["softmax_0 softmax_1"], "{report}");
}

#[test]
fn all_kernels_of_a_fast_convolution_name_it() {
    let mut b = GraphBuilder::new("winograd");
    let x = b.input("x", DType::F32, &[1, 16, 12, 12]);
    let weights = b.constant(Tensor::seeded(DType::F32, &[16, 16, 3, 3], 0, 1, 2));
    let y = b.conv2d(x, weights, 1, 1).unwrap();
    let y = b.relu(y).unwrap();
    b.output("y", y).unwrap();
    let options = Options { algorithm: Algorithm::Winograd(4), max_error: 1.0, ..Options::default() };
    let report = Model::from_graph(b.build().unwrap()).compile_module(&options).unwrap().1;
    let nodes = nodes(&report);
    // the layout of the image, its transform, the products, the transform of the results, and their layout
    assert_eq!(nodes, ["conv_0", "conv_0", "conv_0", "conv_0 max_1", "max_1"], "{report}");
}

#[test]
fn long_lists_of_nodes_without_kernels_are_cut() {
    let mut report = report("constant_value_ints");
    report.folded = (0..500).map(|n| format!("Constant(c{n})")).collect();
    let text = report.to_string();
    let line = text.lines().find(|l| l.starts_with("computed when compiled")).unwrap();
    assert!(line.contains("Constant(c11), and 488 more") && !line.contains("c12"), "{line}");
}

#[test]
fn constants_and_aliases_are_listed_apart() {
    let report = report("constant_value_ints");
    assert!(report.folded.iter().any(|n| n.starts_with("Constant(")), "{report}");
    assert_eq!(report.aliases, ["Reshape(y)"], "{report}");
    let text = report.to_string();
    assert!(
        text.contains("computed when compiled: Constant(") && text.contains("nothing to compute: Reshape(y)"),
        "{text}"
    );
}

#[test]
fn kernels_are_listed_by_time_or_as_they_run() {
    let mut report = report("network_detector_13");
    let run: Vec<String> = report.kernels.iter().map(|k| k.name.clone()).collect();
    report.sort(Sort::Run);
    assert_eq!(report.kernels.iter().map(|k| k.name.clone()).collect::<Vec<_>>(), run);
    report.sort(Sort::Time);
    let times: Vec<f64> = report.kernels.iter().map(|k| k.predicted_us).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let count = |names: &[String]| {
        names.iter().fold(BTreeMap::new(), |mut all: BTreeMap<String, usize>, n| {
            *all.entry(n.clone()).or_default() += 1;
            all
        })
    };
    assert_eq!(count(&run), count(&report.kernels.iter().map(|k| k.name.clone()).collect::<Vec<_>>()));
}

/// Loop programs are planned with the constants of the processor's core, networks with those of the target.
#[test]
fn loop_programs_have_constants_of_their_own() {
    let text = "loop p(N = 4000) { f32 x[N], y[N]  for i in 0..N y[i] += x[i] * 2 }";
    let program = Model::from_program(File::parse("p.tile", text).unwrap(), None, None).unwrap();
    let network = Model::load(root().join("tests/fixtures/operators/conv_batch_norm_relu.onnx")).unwrap();
    let predicted = |model: &Model, target: &Target| {
        let options = Options { target: Some(target.clone()), ..Options::default() };
        model.compile_module(&options).unwrap().1.kernels.iter().map(|k| k.predicted_us).sum::<f64>()
    };
    let target = Target::avx2();
    let (mut slow_loops, mut slow_networks) = (target.clone(), target.clone());
    slow_loops.loop_machine.clock_ghz /= 4.0;
    slow_networks.machine.clock_ghz /= 4.0;
    for (model, slow, same) in [(&program, &slow_loops, &slow_networks), (&network, &slow_networks, &slow_loops)] {
        let time = predicted(model, &target);
        assert_eq!(predicted(model, same), time);
        assert!(predicted(model, slow) > time, "{} {time}", predicted(model, slow));
    }
}
