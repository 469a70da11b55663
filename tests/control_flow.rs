//! Scans and ifs: compiled code against the interpreter, saved modules, damaged modules.

mod common;

use common::{difference, host_targets, root};
use prost::Message;
use std::sync::Arc;
use tilewright::internal::graph::interpret;
use tilewright::internal::graph::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
use tilewright::internal::runtime::module::{Action, BufferPlace};
use tilewright::{Error, Graph, Model, Module, Options, Session, Tensor, graph_text};

/// The difference that sums in another order may make, of the largest absolute value.
const TOLERANCE: f64 = 1e-5;

const TEXTS: &[&str] = &[
    // A recurrence with a captured constant matrix, backwards in its second result.
    r#"graph recurrence {
        %x: f32[7,3,5] = input "x"
        %h: f32[3,5] = input "h"
        %w: f32[5,5] = constant seeded(3)
        %last, %all, %reversed = scan[trips=7 carried=1 reverse=false,false,true conditional=false body={ %0: f32[3,5] = input "i0"; %1: f32[3,5] = input "i1"; %2: f32[5,5] = input "i2"; %3: f32[3,5] = matmul(%0, %2); %4: f32[3,5] = add(%3, %1); %5: f32[3,5] = tanh(%4); output %5 "o0"; output %5 "o1"; output %4 "o2" }](%h, %x, %w)
        %sum = add(%all, %reversed)
        output %last "last"
        output %sum "sum"
    }"#,
    // Carried values change places; a slice is passed on unchanged; a constant is a result.
    r#"graph exchange {
        %x: f32[5,4] = input "x"
        %a: f32[4] = input "a"
        %b: f32[4] = input "b"
        %la, %lb, %lc, %s, %k = scan[trips=5 carried=3 reverse=true,true,false conditional=false body={ %0: f32[4] = input "i0"; %1: f32[4] = input "i1"; %2: f32[4] = input "i2"; %3: f32[4] = input "i3"; %4: f32[4] = constant [1, 2, 3, 4]; %5: f32[4] = add(%1, %3); %6: f32[4] = reshape[4](%0); %7: f32[4] = reshape[4](%5); %8: f32[4] = reshape[4](%3); %9: f32[4] = reshape[4](%8); %10: f32[4] = mul(%4, %2); output %7 "o0"; output %6 "o1"; output %8 "o2"; output %9 "o3"; output %10 "o4" }](%a, %b, %b, %x)
        output %la "la"
        output %lb "lb"
        output %lc "lc"
        output %s "s"
        output %k "k"
    }"#,
    // A loop inside of a loop, on windows of windows.
    r#"graph nested {
        %x: f32[3,4,6] = input "x"
        %h: f32[6] = input "h"
        %last, %all = scan[trips=3 carried=1 reverse=true,false conditional=false body={ %0: f32[6] = input "i0"; %1: f32[4,6] = input "i1"; %2: f32[6] = input "i2"; %3: f32[6], %4: f32[4,6] = scan[trips=4 carried=1 reverse=false,true conditional=false body={ %0: f32[6] = input "i0"; %1: f32[6] = input "i1"; %2: f32[6] = input "i2"; %3: f32[6] = sub(%1, %0); %4: f32[6] = mul(%3, %2); output %4 "o0"; output %3 "o1" }](%0, %1, %2); %5: f32[6] = exp(%3); output %5 "o0"; output %4 "o1" }](%h, %x, %h)
        output %last "last"
        output %all "all"
    }"#,
    // An if with both kinds of branch results; no slices and no steps.
    r#"graph branches {
        %c: bool[] = input "c"
        %x: f32[4,3] = input "x"
        %w: f32[3,3] = constant seeded(5)
        %y, %z = if[then={ %0: f32[4,3] = input "i0"; %1: f32[3,3] = input "i1"; %2: f32[4,3] = matmul(%0, %1); %3: f32[4,3] = exp(%2); output %3 "o0"; output %2 "o1" } else={ %0: f32[4,3] = input "i0"; %1: f32[3,3] = input "i1"; %2: f32[4,3] = constant seeded(9); %3: f32[4,3] = reshape[4,3](%0); output %3 "o0"; output %2 "o1" }](%c, %x, %w)
        %none = scan[trips=0 carried=1 reverse= conditional=false body={ %0: f32[4,3] = input "i0"; %1: f32[4,3] = exp(%0); output %1 "o0" }](%x)
        %s = add(%y, %z)
        output %s "s"
        output %none "none"
    }"#,
    // The steps end when the value is large.
    r#"graph until {
        %x: f32[1] = input "x"
        %go: bool[1] = constant [true]
        %end, %last = scan[trips=100 carried=2 reverse= conditional=true body={ %0: bool[1] = input "i0"; %1: f32[1] = input "i1"; %2: f32[] = constant [2]; %3: f32[] = constant [50]; %4: f32[1] = mul(%1, %2); %5: f32[1] = add(%4, %2); %6: bool[1] = lt(%5, %3); output %6 "o0"; output %5 "o1" }](%go, %x)
        output %last "last"
    }"#,
];

fn inputs(graph: &Graph, seed: u64) -> Vec<Tensor> {
    let inputs = graph.inputs.iter().enumerate();
    inputs
        .map(|(i, &v)| Tensor::seeded(graph.value(v).ty.dtype, &graph.value(v).ty.shape, seed + i as u64, 0, 2))
        .collect()
}

fn bits(outputs: &[Tensor]) -> Vec<Vec<u8>> {
    outputs.iter().map(|t| t.data.to_vec()).collect()
}

#[test]
fn compiled_code_gives_what_the_interpreter_gives() {
    for text in TEXTS {
        let graph = graph_text::parse(text).unwrap();
        let printed = graph_text::print(&graph);
        assert_eq!(graph_text::print(&graph_text::parse(&printed).unwrap()), printed);
        for target in host_targets() {
            let options = Options { target: Some(target.clone()), ..Options::default() };
            let (module, report) = Model::from_graph(graph.clone()).compile_module(&options).unwrap();
            assert_eq!(report.fallbacks(), []);
            // SAFETY: the compiler made this module.
            let loaded = unsafe { Module::from_bytes(&module.to_bytes().unwrap()) }.unwrap();
            assert_eq!(loaded, module);
            let names: Vec<String> = module.inputs().iter().map(|i| i.name.clone()).collect();
            let sessions: Vec<Session> =
                [1, 2].map(|threads| Session::new(Arc::new(loaded.clone()), threads).unwrap()).into();
            for seed in 0..4 {
                let inputs = inputs(&graph, seed);
                let expected = interpret::run(&graph, &inputs).unwrap();
                let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(&inputs).collect();
                let one = sessions[0].run(&named).unwrap();
                for (i, (a, b)) in one.iter().zip(&expected).enumerate() {
                    assert_eq!(difference(a, b, TOLERANCE), None, "{} on {}: output {i}", graph.name, target.name);
                }
                assert_eq!(bits(&one), bits(&sessions[1].run(&named).unwrap()), "{}", graph.name);
                let times = sessions[0].profile(&named).unwrap();
                assert_eq!(times.len(), module.all_steps().len());
            }
        }
    }
}

#[test]
fn kernels_inside_of_a_loop_are_reported_with_their_times() {
    let graph = graph_text::parse(TEXTS[0]).unwrap();
    let (module, report) = Model::from_graph(graph).compile_module(&Options::default()).unwrap();
    let work = module.all_steps().into_iter().filter(|(step, _)| step.action.is_work());
    let work: Vec<(String, u64)> = work.map(|(step, runs)| (step.name.clone(), runs)).collect();
    let reported: Vec<(String, u64)> = report.kernels.iter().map(|k| (k.name.clone(), k.runs)).collect();
    assert_eq!(work, reported);
    assert!(work.iter().any(|(_, runs)| *runs == 7), "{work:?}");
    assert!(module.buffers().iter().any(|b| matches!(b.place, BufferPlace::Weights(_))));
    assert!(module.buffers().iter().any(|b| matches!(b.place, BufferPlace::Window { stride, .. } if stride < 0)));
    assert!(module.steps().iter().any(|s| matches!(s.action, Action::Loop { trips: 7, .. })));
}

/// A fixture after a change of its graph.
fn changed(name: &str, change: impl FnOnce(&mut GraphProto)) -> Result<Model, Error> {
    let bytes = std::fs::read(root().join(format!("tests/fixtures/operators/{name}.onnx"))).unwrap();
    let mut proto = ModelProto::decode(&bytes[..]).unwrap();
    change(proto.graph.as_mut().unwrap());
    Model::parse(&proto.encode_to_vec(), "nowhere")
}

fn node<'a>(graph: &'a mut GraphProto, op: &str) -> &'a mut NodeProto {
    graph.node.iter_mut().find(|n| n.op_type == op).unwrap()
}

fn attribute<'a>(graph: &'a mut GraphProto, op: &str, name: &str) -> &'a mut AttributeProto {
    node(graph, op).attribute.iter_mut().find(|a| a.name == name).unwrap()
}

fn inside<'a>(graph: &'a mut GraphProto, op: &str, name: &str) -> &'a mut GraphProto {
    attribute(graph, op, name).g.as_mut().unwrap()
}

type Change = fn(&mut GraphProto);

#[test]
fn models_with_wrong_graphs_inside_are_refused() {
    let cases: &[(&str, Change, &str)] = &[
        ("if_run_time_true", |g| attribute(g, "If", "then_branch").g = None, "graph `then_branch` is missing"),
        ("if_run_time_true", |g| inside(g, "If", "else_branch").node[0].input[1] = "u".into(), "cycle through"),
        (
            "if_run_time_true",
            |g| inside(g, "If", "else_branch").node[0].input[1] = "none".into(),
            "`none`, which nothing",
        ),
        ("if_run_time_true", |g| inside(g, "If", "else_branch").node[1].output[0] = "other".into(), "the output `e`"),
        ("if_run_time_true", |g| inside(g, "If", "else_branch").node[1].op_type = "Nothing".into(), "Nothing"),
        ("if_run_time_true", |g| inside(g, "If", "else_branch").node[1].op_type = "Less".into(), "its branches give"),
        ("if_run_time_true", |g| inside(g, "If", "then_branch").node[0].input[0] = "y".into(), "cycle through"),
        ("if_run_time_true", |g| node(g, "If").input[0] = "a".into(), "not one bool"),
        ("if_run_time_true", |g| inside(g, "If", "then_branch").output.clear(), "different numbers of results"),
        ("loop_counted", |g| inside(g, "Loop", "body").input.push(Default::default()), "has 4 inputs instead of 3"),
        ("loop_counted", |g| inside(g, "Loop", "body").output.truncate(1), "fewer results"),
        ("loop_counted", |g| node(g, "Loop").input[0] = "x".into(), "its number of times is"),
        ("loop_counted", |g| node(g, "Loop").input[0] = String::new(), "its condition is always true"),
        ("loop_counted", |g| inside(g, "Loop", "body").node[0].output[0] = "go".into(), "defined twice"),
        ("scan_sum", |g| attribute(g, "Scan", "num_scan_inputs").i = 4, "more than it has"),
        ("scan_sum", |g| attribute(g, "Scan", "num_scan_inputs").i = -1, "it scans no operand"),
        ("scan_axes", |g| attribute(g, "Scan", "scan_input_axes").ints = vec![0], "`scan_input_axes` has 1 numbers"),
        ("scan_axes", |g| attribute(g, "Scan", "scan_input_axes").ints = vec![2, 0], "axis 2"),
        ("scan_axes", |g| attribute(g, "Scan", "scan_input_axes").ints = vec![0, 0], "do not broadcast"),
        ("lstm_forward", |g| attribute(g, "LSTM", "hidden_size").i = 5, "hidden size"),
        ("lstm_forward", |g| node(g, "LSTM").input[2] = "w".into(), "its weights have"),
        ("lstm_forward", |g| node(g, "LSTM").input[3] = "w".into(), "its bias"),
        ("lstm_reverse", |g| attribute(g, "LSTM", "direction").s = b"backward".to_vec(), "direction `backward`"),
        ("lstm_activations", |g| attribute(g, "LSTM", "activations").strings[1] = b"Tan".to_vec(), "did you mean"),
        ("lstm_activations", |g| attribute(g, "LSTM", "activations").strings.truncate(2), "2 activations instead of 3"),
    ];
    for (name, change, reason) in cases {
        let graph = changed(name, change).and_then(|model| model.graph(&Default::default()));
        match graph {
            Err(Error::Internal(message)) => panic!("{name}: {message}"),
            Err(error) => assert!(error.to_string().contains(reason), "{name}: {error}"),
            Ok(graph) => panic!("{name} is not refused: {reason}: {graph}"),
        }
    }
}

/// A scan over one step has no loop, and products with a state of zeros are constants.
#[test]
fn a_single_step_is_no_loop() {
    let graph = |name: &str| changed(name, |_| {}).unwrap().graph(&Default::default()).unwrap();
    let count = |graph: &Graph, op: &str| graph.nodes.iter().filter(|node| node.op.mnemonic().starts_with(op)).count();
    for name in ["scan_one_step", "rnn_one_step", "gru_one_step", "lstm_one_step", "lstm_one_step_both"] {
        assert_eq!(count(&graph(name), "scan"), 0, "{name}");
    }
    assert_eq!(count(&graph("scan_axes"), "scan"), 1);
    // the reset gate of a GRU stands between its state and its second product
    for (name, products) in [("rnn_one_step", 1), ("gru_one_step", 3), ("lstm_one_step", 1)] {
        assert_eq!(count(&graph(name), "matmul"), products, "{name}: {}", graph(name));
    }
}

/// Loops inside of loops, all of them inlined because their values grow.
#[test]
fn loops_that_grow_beyond_measure_are_refused() {
    let nested = |depth: usize, times: i64| {
        changed("loop_growing", |g| {
            for constant in g.initializer.iter_mut().filter(|t| t.dims.is_empty()) {
                if constant.data_type == 7 {
                    constant.raw_data = times.to_le_bytes().to_vec().into();
                }
            }
            for level in 0..depth {
                let loops = node(g, "Loop").clone();
                let body = inside(g, "Loop", "body");
                let names = [format!("y{level}"), format!("s{level}")];
                body.node.push(NodeProto { output: names.to_vec(), ..loops });
                // the condition needs what the loop inside makes
                let [size, same, go] = ["size", "same", "go"].map(|name| format!("{name}{level}"));
                let made = |op: &str, input: [&str; 2], output: &String| NodeProto {
                    op_type: op.into(),
                    input: input.iter().filter(|i| !i.is_empty()).map(|i| i.to_string()).collect(),
                    output: vec![output.clone()],
                    ..NodeProto::default()
                };
                body.node.push(made("Size", [&names[0], ""], &size));
                body.node.push(made("Equal", [&size, &size], &same));
                body.node.push(made("And", [&body.output[0].name, &same], &go));
                body.output[0].name = go;
            }
        })
    };
    let graph = |depth, times| nested(depth, times).and_then(|model| model.graph(&Default::default()));
    assert!(graph(0, 3).is_ok());
    assert!(graph(1, 3).is_ok());
    let start = std::time::Instant::now();
    assert!(matches!(graph(3, 200), Err(Error::Limit(_))));
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn graphs_that_are_nested_too_deeply_are_refused() {
    for (depth, accepted) in [(2, true), (5, true), (7, false), (60, false)] {
        let model = changed("if_run_time_true", |g| {
            for _ in 0..depth {
                let inner = node(g, "If").clone();
                let branch = inside(g, "If", "then_branch");
                let mut outer = branch.clone();
                outer.output[0].name = "deep".into();
                outer.node = vec![NodeProto { output: vec!["deep".into()], ..inner }];
                *branch = outer;
            }
        });
        let compiled = model.and_then(|model| model.compile_module(&Options::default()));
        match compiled {
            Ok(_) => assert!(accepted, "{depth}"),
            Err(Error::Limit(message)) => assert!(!accepted && message.contains("nested"), "{depth}: {message}"),
            Err(Error::Invalid(message)) => assert!(depth == 60 && message.contains("ONNX"), "{depth}: {message}"),
            Err(error) => panic!("{depth}: {error}"),
        }
    }
}
