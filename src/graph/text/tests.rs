use crate::Model;
use crate::graph::op::Op;
use crate::graph::text::{parse, print};
use std::collections::BTreeMap;
use std::fs;

const LAYER: &str = r#"graph layer {
    %x: f32[1,3,8,8] = input "x"
    %w: f32[4,3,3,3] = constant seeded(1)
    %z: f32[] = constant [0]
    %y = conv[3x3 pad=1x1 nchw](%x, %w)  # first
    %r = max(%y, %z)
    output %r "y"
}
"#;

#[test]
fn a_graph_by_hand_parses() {
    let graph = parse(LAYER).unwrap();
    assert_eq!(graph.nodes.len(), 2);
    assert_eq!(graph.value(graph.outputs[0]).ty.to_string(), "f32[1,4,8,8]");
    assert_eq!(graph.nodes[0].name, "first");
    assert_eq!(print(&parse(&print(&graph)).unwrap()), print(&graph));
}

/// Names are on one line, whatever is in them.
#[test]
fn any_name_is_read_as_printed() {
    for name in ["a b", "\u{7f}", "\"\\", "\u{1b}[2J\n", "größe", "\u{202e}"] {
        let mut graph = parse(LAYER).unwrap();
        let (input, output) = (graph.inputs[0], graph.outputs[0]);
        graph.values[input.0 as usize].name = name.into();
        graph.values[output.0 as usize].name = name.into();
        let again = parse(&print(&graph)).unwrap_or_else(|e| panic!("{name:?}: {e}"));
        assert_eq!((again.value(input).name.as_str(), again.value(output).name.as_str()), (name, name));
        assert!(!print(&graph).contains(['\u{7f}', '\u{1b}', '\u{202e}']));
    }
}

/// Parse after print is the identity on all graphs of the operator fixtures.
#[test]
fn what_is_printed_parses_to_the_same() {
    let mut graphs = 0;
    for entry in fs::read_dir("tests/fixtures/operators").unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "onnx") {
            continue;
        }
        let Ok(graph) = Model::load(&path).and_then(|model| model.graph(&BTreeMap::new())) else { continue };
        let text = print(&graph);
        let parsed = parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{graph}", path.display()));
        assert_eq!(print(&parsed), text, "{}", path.display());
        graphs += 1;
    }
    assert!(graphs > 100, "only {graphs} graphs");
}

#[test]
fn errors_name_the_line() {
    let wrong = [
        ("max(%y, %z)", "max(%y, %q)", "line 6: value %q is not defined"),
        ("max(%y, %z)", "maxi(%y, %z)", "line 6: `maxi` is not an operator"),
        ("%r = max", "%y = max", "line 6: value %y is already defined"),
        ("conv[3x3 pad=1x1 nchw]", "conv[3x3 nchw pad=1x1]", "line 5: `conv[3x3 nchw pad=1x1]` is written"),
        ("constant [0]", "constant [0, 1]", "line 4: 2 elements for f32[]"),
        ("%z: f32[] = constant [0]", "%z: i64[536870912] = constant [0]", "line 4: 1 elements for i64[536870912]"),
        ("f32[4,3,3,3] = constant", "f32[4,3,3,9000000] = constant", "line 3: f32[4,3,3,9000000] has more than the"),
        ("constant [0]", "constant [0, …]", "line 4: the elements are elided"),
        ("%r = max", "%r: f32[2] = max", "line 6: %r is declared as f32[2], but `max` gives f32[1,4,8,8]"),
        ("input \"x\"", "input x", "line 2: expected a name in quotes, found `x`"),
        ("}\n", "", "not closed"),
    ];
    for (from, to, message) in wrong {
        let text = LAYER.replacen(from, to, 1);
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(message), "`{to}` gives: {error}");
    }
}

/// Each row of the operator table reads what it writes, with its own mnemonic.
#[test]
fn samples_of_operators_parse_to_themselves() {
    for (op, _) in Op::samples() {
        assert_eq!(Op::parse(&op.to_string()).as_ref(), Ok(op));
        assert_eq!(Op::named(op.mnemonic()).map(Op::mnemonic), Some(op.mnemonic()));
    }
    let empty = [Op::Reshape { shape: vec![] }, Op::Transpose { perm: vec![] }];
    for op in empty {
        assert_eq!(Op::parse(&op.to_string()), Ok(op));
    }
    for text in
        ["conv[3x3]", "pad[0,1 bits=0]", "softmax", "reduce_foo[sum axes=0]", "cast[f33]", "gelu[1]", "slice[0-3]"]
    {
        assert!(Op::parse(text).is_err(), "{text}");
    }
}
