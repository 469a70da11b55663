//! Sizes that come out of data: parts have capacities for them, so that new sizes compile little.

use crate::onnx::{FLOAT, INT64, bytes, floats, graph, integers, node, tensor, with_graph, with_int};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::internal::graph::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use tilewright::{Compiled, DType, Dim, Model, Options, PartReport, Tensor, Value};

const ROWS: i64 = 40;
const CAPACITY: i64 = 16;

fn compile(graph: GraphProto) -> Compiled {
    let options = Options { threads: 1, ..Options::default() };
    Model::parse(&bytes(graph, 16), "nowhere").unwrap().compile(&options).unwrap()
}

fn with_reduction(mut node: NodeProto, name: &str) -> NodeProto {
    let (attribute, s) = ("reduction".to_string(), name.into());
    node.attribute.push(AttributeProto { name: attribute, s, r#type: 3, ..AttributeProto::default() });
    node
}

/// With a pad of one element at each end.
fn padded(mut node: NodeProto) -> NodeProto {
    let (name, ints) = ("pads".to_string(), vec![1, 1]);
    node.attribute.push(AttributeProto { name, ints, r#type: 7, ..AttributeProto::default() });
    node
}

/// Consumers of the rows that data chose, `kept`, and of their numbers, `rows`. `x` has all rows.
fn consumers() -> Vec<(&'static str, Vec<NodeProto>)> {
    let scatter = |reduction: &str| {
        let scatter = with_reduction(node("ScatterND", &["x", "places", "kept"], &["y"]), reduction);
        vec![node("Unsqueeze", &["rows", "one"], &["places"]), scatter]
    };
    vec![
        ("elementwise", vec![node("Tanh", &["kept"], &["t"]), node("Add", &["t", "kept"], &["y"])]),
        ("rows of a product", vec![node("MatMul", &["kept", "w"], &["y"])]),
        ("inner dimension", vec![node("Transpose", &["kept"], &["t"]), node("MatMul", &["t", "kept"], &["y"])]),
        ("sum", vec![with_int(node("ReduceSum", &["kept", "zero"], &["y"]), "keepdims", 0)]),
        ("largest", vec![with_int(node("ReduceMax", &["kept"], &["y"]), "keepdims", 0)]),
        ("concatenation", vec![with_int(node("Concat", &["pair", "kept", "pair"], &["y"]), "axis", 0)]),
        (
            "last",
            vec![
                with_int(node("Gather", &["kept", "minus_one"], &["last"]), "axis", 0),
                node("Sub", &["kept", "last"], &["y"]),
            ],
        ),
        ("softmax", vec![with_int(node("Softmax", &["kept"], &["y"]), "axis", 0)]),
        ("scatter", scatter("none")),
        ("sums of a scatter", scatter("add")),
        (
            "image",
            vec![
                node("Transpose", &["kept"], &["t"]),
                node("Unsqueeze", &["t", "zero"], &["image"]),
                padded(node("Conv", &["image", "kernel"], &["y"])),
            ],
        ),
        // no rule covers it
        (
            "refused",
            vec![
                with_int(node("ArgMax", &["kept"], &["a"]), "axis", 0),
                with_int(node("Cast", &["a"], &["y"]), "to", 1),
            ],
        ),
    ]
}

fn constants() -> Vec<TensorProto> {
    let numbers = |n: i64| (0..n).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect::<Vec<f32>>();
    vec![
        integers("zero", &[1], &[0]),
        integers("one", &[1], &[1]),
        integers("first", &[], &[0]),
        integers("minus_one", &[], &[-1]),
        floats("w", &[4, 3], &numbers(12)),
        floats("pair", &[2, 4], &numbers(8)),
        floats("kernel", &[2, 4, 3], &numbers(24)),
    ]
}

/// The consumers of rows whose first element is positive.
fn chosen(consumer: Vec<NodeProto>) -> GraphProto {
    let mut nodes = vec![
        with_int(node("Gather", &["x", "first"], &["head"]), "axis", 1),
        node("Relu", &["head"], &["positive"]),
        node("NonZero", &["positive"], &["found"]),
        node("Squeeze", &["found", "zero"], &["rows"]),
        node("Gather", &["x", "rows"], &["kept"]),
    ];
    nodes.extend(consumer);
    graph(vec![tensor("x", FLOAT, Some(&["r", "4"]))], constants(), nodes, vec![tensor("y", FLOAT, None)])
}

/// The consumers of rows that are given.
fn given(consumer: Vec<NodeProto>) -> GraphProto {
    let inputs = vec![
        tensor("x", FLOAT, Some(&["r", "4"])),
        tensor("rows", INT64, Some(&["n"])),
        tensor("kept", FLOAT, Some(&["n", "4"])),
    ];
    graph(inputs, constants(), consumer, vec![tensor("y", FLOAT, None)])
}

/// All rows, of which `count` begin with a positive number, and those.
fn rows(count: i64) -> (Tensor, Tensor, Tensor) {
    let place = |i: i64| i * 7 % ROWS;
    let mut chosen: Vec<i64> = (0..count).map(place).collect();
    chosen.sort_unstable();
    let element = |row: i64, column: i64| match column {
        0 if chosen.contains(&row) => 1.0 + row as f32 / 8.0,
        0 => -1.0,
        _ => ((row * 13 + column * 5) % 17) as f32 / 8.0 - 1.0,
    };
    let row = |row: i64| (0..4).map(move |column| element(row, column));
    let kept: Vec<f32> = chosen.iter().flat_map(|&r| row(r)).collect();
    let all: Vec<f32> = (0..ROWS).flat_map(row).collect();
    (Tensor::new(&[ROWS, 4], &all), Tensor::new(&[count], &chosen), Tensor::new(&[count, 4], &kept))
}

fn assert_near(found: &Tensor, expected: &Tensor, place: &str) {
    assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape), "{place}");
    if found.dtype != DType::F32 {
        return assert_eq!(found, expected, "{place}");
    }
    for (a, b) in found.to_vec::<f32>().into_iter().zip(expected.to_vec::<f32>()) {
        assert!(a == b || (a - b).abs() <= 1e-5 * b.abs().max(1.0), "{place}: {a} instead of {b}");
    }
}

#[test]
fn a_size_out_of_data_has_a_capacity() {
    for (name, consumer) in consumers() {
        let (parts, exact) = (compile(chosen(consumer.clone())), compile(given(consumer)));
        for count in [CAPACITY, 0, 1, CAPACITY - 1, CAPACITY + 1, 2, ROWS] {
            let place = format!("{name} of {count}");
            let (x, rows, kept) = rows(count);
            let inputs: Vec<(&str, &Tensor)> = vec![("x", &x), ("rows", &rows), ("kept", &kept)];
            let read: Vec<&str> = exact.model().inputs().iter().map(|spec| spec.name.as_str()).collect();
            let inputs: Vec<_> = inputs.into_iter().filter(|input| read.contains(&input.0)).collect();
            match (parts.run(&[("x", &x)]), exact.run(&inputs)) {
                (Ok(found), Ok(expected)) => assert_near(&found[0], &expected[0], &place),
                (Err(_), Err(_)) => {}
                (found, expected) => panic!("{place}: {found:?} instead of {expected:?}"),
            }
        }
    }
}

#[test]
fn a_part_without_a_rule_has_exact_sizes_and_says_so() {
    let consumer = |name: &str| consumers().into_iter().find(|c| c.0 == name).unwrap().1;
    let (x, ..) = rows(5);
    let x = Value::from(x);
    for (name, exact) in [("refused", true), ("softmax", false)] {
        let report = compile(chosen(consumer(name))).report_in_parts(&[("x", &x)]).unwrap();
        let says =
            |part: &PartReport| part.report.warnings.iter().any(|w| w.contains("exact sizes") && w.contains("ArgMax"));
        assert_eq!(report.parts.iter().any(says), exact, "{name}: {report}");
        let capacity =
            report.parts.iter().filter_map(|part| part.counts.as_ref()).map(|c| (c.least, c.most, c.capacity));
        assert!(capacity.eq([(i64::from(!exact), CAPACITY, CAPACITY)]), "{name}: {report}");
        assert!(report.to_string().contains("capacity 16"), "{report}");
    }
}

#[test]
fn a_hundred_sizes_compile_each_part_a_few_times() {
    let mut random = StdRng::seed_from_u64(3);
    for (name, consumer) in consumers().into_iter().filter(|(name, _)| *name != "refused") {
        let compiled = compile(chosen(consumer));
        for _ in 0..100 {
            let (x, ..) = rows(random.random_range(0..=ROWS));
            // nothing has no largest element
            let _ = compiled.run(&[("x", &x)]);
        }
        // the rows that are chosen, and what is done with them for 16, 32 and 64, and for none
        assert!(compiled.compilations() <= 10, "{name}: {}", compiled.compilations());
    }
}

/// Experts that each work on the rows of their own, and add to all.
fn experts(count: i64) -> GraphProto {
    let mut nodes = vec![node("Sub", &["x", "x"], &["sum0"])];
    let mut constants = constants();
    constants.push(floats("m", &[4, 4], &[0.5; 16]));
    for e in 0..count {
        let name = |of: &str| format!("{of}{e}");
        let [column, head, positive, found, rows, kept, product, places] =
            ["column", "head", "positive", "found", "rows", "kept", "product", "places"].map(name);
        constants.push(integers(&column, &[], &[e]));
        let scatter = node("ScatterND", &[&format!("sum{e}"), &places, &product], &[&format!("sum{}", e + 1)]);
        nodes.extend([
            with_int(node("Gather", &["x", &column], &[&head]), "axis", 1),
            node("Relu", &[&head], &[&positive]),
            node("NonZero", &[&positive], &[&found]),
            node("Squeeze", &[&found, "zero"], &[&rows]),
            node("Gather", &["x", &rows], &[&kept]),
            node("MatMul", &[&kept, "m"], &[&product]),
            node("Unsqueeze", &[&rows, "one"], &[&places]),
            with_reduction(scatter, "add"),
        ]);
    }
    let output = vec![tensor(&format!("sum{count}"), FLOAT, None)];
    graph(vec![tensor("x", FLOAT, Some(&["r", "4"]))], constants, nodes, output)
}

#[test]
fn what_nothing_reads_any_more_compiles_nothing() {
    let mut graph = chosen(vec![node("MatMul", &["kept", "w"], &["y"]), node("Identity", &["found"], &["same"])]);
    graph.node.push(with_int(node("Gather", &["same", "first"], &["again"]), "axis", 0));
    graph.output.extend([tensor("found", INT64, None), tensor("same", INT64, None), tensor("again", INT64, None)]);
    let compiled = compile(graph);
    for count in (2..=CAPACITY).rev() {
        let (x, rows, _) = rows(count);
        let outputs = compiled.run(&[("x", &x)]).unwrap();
        assert_eq!((&outputs[3], &outputs[1]), (&rows, &outputs[2]));
    }
    assert_eq!(compiled.compilations(), 2);
}

#[test]
fn counts_of_their_own_do_not_multiply() {
    let compiled = compile(experts(4));
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..100 {
        let values: Vec<f32> = (0..4 * ROWS).map(|_| random.random_range(-1.0..1.0)).collect();
        let x = Tensor::new(&[ROWS, 4], &values);
        let found = compiled.run(&[("x", &x)]).unwrap();
        let mut expected = vec![0f32; 4 * ROWS as usize];
        for (row, sums) in values.chunks(4).zip(expected.chunks_mut(4)) {
            let positive = row.iter().filter(|v| **v > 0.0).count() as f32;
            sums.fill(positive * 0.5 * row.iter().sum::<f32>());
        }
        assert_near(&found[0], &Tensor::new(&[ROWS, 4], &expected), "experts");
    }
    assert!(compiled.compilations() <= 1 + 4 * 3, "{}", compiled.compilations());
}

#[test]
fn what_a_loop_appends_to_has_a_capacity() {
    let body = graph(
        vec![tensor("i", INT64, Some(&[])), tensor("go", 9, Some(&[])), tensor("v", FLOAT, Some(&["n"]))],
        vec![integers("axis", &[1], &[0])],
        vec![
            with_int(node("ReduceMean", &["v"], &["mean"]), "keepdims", 0),
            node("Sub", &["mean", "limit"], &["rest"]),
            node("Unsqueeze", &["rest", "axis"], &["row"]),
            with_int(node("Concat", &["v", "row"], &["next"]), "axis", 0),
            node("Abs", &["rest"], &["size"]),
            node("Less", &["size", "far"], &["again"]),
        ],
        vec![tensor("again", 9, None), tensor("next", FLOAT, None)],
    );
    let compiled = compile(graph(
        vec![tensor("x", FLOAT, Some(&["2"])), tensor("limit", FLOAT, Some(&[])), tensor("go", 9, Some(&[]))],
        vec![integers("steps", &[], &[60]), floats("far", &[], &[1e9])],
        vec![with_graph(node("Loop", &["steps", "go", "x"], &["y"]), "body", body)],
        vec![tensor("y", FLOAT, None)],
    ));
    let (x, limit) = (Tensor::new(&[2], &[1f32, 2.0]), Tensor::new(&[], &[0.25f32]));
    let go = Tensor { dtype: DType::Bool, shape: vec![], data: vec![1].into() };
    let found = compiled.run(&[("x", &x), ("limit", &limit), ("go", &go)]).unwrap();
    let mut expected = vec![1f32, 2.0];
    for _ in 0..60 {
        let mean = expected.iter().sum::<f32>() / expected.len() as f32;
        expected.push(mean - 0.25);
    }
    assert_near(&found[0], &Tensor::new(&[62], &expected), "appended");
    assert!(compiled.compilations() <= 10, "{}", compiled.compilations());
}

/// A size that equals the count in one run follows it only while it does.
#[test]
fn a_value_that_no_longer_is_the_count_is_looked_at_again() {
    let file = graph(
        vec![tensor("x", FLOAT, Some(&["n"])), tensor("z", FLOAT, Some(&["n"]))],
        constants(),
        vec![
            node("NonZero", &["x"], &["places"]),
            node("Squeeze", &["places", "zero"], &["rows"]),
            node("Gather", &["x", "rows"], &["kept"]),
            with_int(node("ReduceSum", &["z"], &["sum"]), "keepdims", 0),
            with_int(node("Cast", &["sum"], &["size"]), "to", 7),
            node("Unsqueeze", &["size", "zero"], &["shape"]),
            with_int(node("Concat", &["shape", "one"], &["column"]), "axis", 0),
            node("Reshape", &["kept", "column"], &["same"]),
            node("Neg", &["same"], &["y"]),
        ],
        vec![tensor("y", FLOAT, None)],
    );
    let compiled = compile(file);
    let ones = |count: i64| {
        let values: Vec<f32> = (0..ROWS).map(|i| if i < count { 1.0 } else { 0.0 }).collect();
        Tensor::new(&[ROWS], &values)
    };
    for (count, size) in [(5, 5), (7, 7), (6, 3), (6, 6), (7, 5), (5, 5)] {
        let outputs = compiled.run(&[("x", &ones(count)), ("z", &ones(size))]);
        match count == size {
            true => assert_near(&outputs.unwrap()[0], &Tensor::new(&[count, 1], &vec![-1f32; count as usize]), "equal"),
            false => assert!(outputs.is_err(), "{count} elements became {size}"),
        }
    }
}

#[test]
fn sizes_that_values_decide_have_capacities_too() {
    let sized = |nodes: Vec<NodeProto>| {
        let mut all = vec![
            node("Tanh", &["x"], &["small"]),
            node("Relu", &["small"], &["positive"]),
            node("Ceil", &["positive"], &["ones"]),
            with_int(node("ReduceSum", &["ones"], &["sum"]), "keepdims", 0),
            with_int(node("Cast", &["sum"], &["size"]), "to", 7),
            node("Unsqueeze", &["size", "zero"], &["shape"]),
        ];
        all.extend(nodes);
        all.push(with_int(node("Cast", &["part"], &["number"]), "to", 1));
        all.push(node("Exp", &["number"], &["e"]));
        all.push(with_int(node("Softmax", &["e"], &["y"]), "axis", 0));
        let mut constants = constants();
        constants.push(integers("step", &[], &[1]));
        graph(vec![tensor("x", FLOAT, Some(&["n"]))], constants, all, vec![tensor("y", FLOAT, None)])
    };
    for (name, nodes) in [
        ("range", vec![node("Range", &["first", "size", "step"], &["part"])]),
        (
            // the size is read as a value, too
            "reshaped range",
            vec![
                node("Range", &["first", "size", "step"], &["range"]),
                with_int(node("Concat", &["shape", "one"], &["column"]), "axis", 0),
                node("Reshape", &["range", "column"], &["rows"]),
                node("Squeeze", &["rows", "one"], &["part"]),
            ],
        ),
        ("slice", vec![node("Slice", &["x", "zero", "shape"], &["part"])]),
        ("expand", vec![node("Expand", &["one", "shape"], &["part"])]),
        ("filled", vec![node("ConstantOfShape", &["shape"], &["part"])]),
        ("largest", vec![with_int(node("TopK", &["x", "shape"], &["part", "places"]), "axis", 0)]),
    ] {
        let compiled = compile(sized(nodes));
        for count in (1..=ROWS).chain((1..ROWS).rev()) {
            let x: Vec<f32> = (0..ROWS).map(|i| if i < count { 0.5 } else { -0.5 }).collect();
            let y = &compiled.run(&[("x", &Tensor::new(&[ROWS], &x))]).unwrap()[0];
            let mut values: Vec<f32> = match name {
                "range" | "reshaped range" => (0..count).map(|i| (i as f32).exp()).collect(),
                "slice" | "largest" => vec![0.5f32.exp(); count as usize],
                "expand" => vec![1f32.exp(); count as usize],
                _ => vec![1.0; count as usize],
            };
            let most = values.iter().copied().fold(0.0, f32::max);
            values.iter_mut().for_each(|v| *v = (*v - most).exp());
            let sum: f32 = values.iter().sum();
            values.iter_mut().for_each(|v| *v /= sum);
            assert_near(y, &Tensor::new(&[count], &values), &format!("{name} of {count}"));
        }
        assert!(compiled.compilations() <= 10, "{name}: {}", compiled.compilations());
    }
}

/// A range as long as the sum of what `from` computes from `x`.
fn summed(elem_type: i32, extent: &str, from: Vec<NodeProto>) -> Model {
    let mut nodes = from;
    nodes.push(with_int(node("ReduceSum", &["v"], &["sum"]), "keepdims", 0));
    nodes.push(with_int(node("Cast", &["sum"], &["size"]), "to", 7));
    nodes.push(node("Range", &["first", "size", "step"], &["part"]));
    nodes.push(with_int(node("Cast", &["part"], &["y"]), "to", 1));
    let mut constants = constants();
    constants.push(integers("step", &[], &[1]));
    constants.push(floats("table", &[2, 20], &[0.25; 40]));
    let inputs = vec![tensor("x", elem_type, Some(&[extent]))];
    Model::parse(&bytes(graph(inputs, constants, nodes, vec![tensor("y", FLOAT, None)]), 16), "nowhere").unwrap()
}

#[test]
fn what_a_model_computes_is_data_even_of_small_inputs() {
    let identity = || vec![node("Identity", &["x"], &["v"])];
    let looked_up = vec![node("Gather", &["table", "x"], &["v"])];
    // four integers are sizes; many, floats, and what stands behind a table are data
    for (model, of, data) in [
        (summed(INT64, "4", identity()), DType::I64, false),
        (summed(INT64, "12", identity()), DType::I64, true),
        (summed(FLOAT, "4", identity()), DType::F32, true),
        (summed(INT64, "4", looked_up), DType::I64, true),
    ] {
        let options = Options { threads: 1, ..Options::default() };
        assert_eq!((model.depends_on_data(&options), model.depends_on_values(&options)), (data, !data));
        let compiled = model.compile(&options).unwrap();
        let Dim::Fixed(extent) = model.inputs()[0].shape[0] else { panic!("{:?}", model.inputs()) };
        let mut compilations = vec![];
        for one in 0..extent {
            let x: Vec<i64> = (0..extent).map(|i| i64::from(i <= one)).collect();
            let x = match of {
                DType::I64 => Tensor::new(&[extent], &x),
                _ => Tensor::new(&[extent], &x.iter().map(|&v| v as f32).collect::<Vec<f32>>()),
            };
            let y = &compiled.run(&[("x", &x)]).unwrap()[0];
            let found = y.to_vec::<f32>();
            assert!(found.iter().enumerate().all(|(i, v)| *v == i as f32) && !found.is_empty(), "{found:?}");
            compilations.push(compiled.compilations());
        }
        // a value that is a size binds it, one that is data fills a capacity; a range of 20 needs the next one
        let last = compilations.last().copied().unwrap();
        assert!(if data { last <= 5 } else { last == extent as usize }, "{compilations:?}");
    }
}
