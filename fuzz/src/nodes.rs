//! Nodes of every operator that the importer knows: operands of kinds that its operator takes, most of the time.

use super::choices::Choices;
use super::network::Network;
use super::operands::{attribute, integers, tensor};
use tilewright::internal::graph::import::catalogue::{self, Operator};
use tilewright::internal::graph::proto::NodeProto;

/// Kinds of the operands of operators, and the number of results where it is not 1. Operators that are not listed take up to
/// three values of any type.
///
/// `f` a value, `=` one that broadcasts to the first, `l` and `c` vectors as long as the last and the second dimension of the
/// first, `w` weights of a convolution of it, `m` a matrix that it is multiplied with, `a` axes, `p` pads, `s` a shape, `k` a
/// small integer, `v` a vector of one, `i` subscripts, `b` bools, `1` a number. `?`: it may be left out.
#[rustfmt::skip]
const KINDS: &[(&str, &str, usize)] = &[
    ("Add", "f=", 1), ("And", "bb", 1), ("BatchNormalization", "fcccc", 1), ("BitwiseAnd", "f=", 1), ("BitwiseOr", "f=", 1),
    ("BitwiseXor", "f=", 1), ("BitShift", "f=", 1), ("CenterCropPad", "fs", 1), ("Clip", "f1?1?", 1), ("Compress", "fb", 1),
    ("Concat", "f==", 1), ("ConstantOfShape", "s", 1), ("Conv", "fw", 1), ("ConvTranspose", "fw", 1), ("CumSum", "fk", 1),
    ("CumProd", "fk", 1), ("DFT", "fk?k?", 1), ("Div", "f=", 1), ("Equal", "f=", 1), ("Expand", "fs", 1), ("Gather", "fi", 1),
    ("GatherElements", "fi", 1), ("GatherND", "fi", 1), ("Gemm", "fml?", 1), ("Greater", "f=", 1), ("GreaterOrEqual", "f=", 1),
    ("GroupNormalization", "fcc", 1), ("InstanceNormalization", "fcc", 1), ("LayerNormalization", "fll?", 1), ("Less", "f=", 1),
    ("LessOrEqual", "f=", 1), ("LSTM", "fff", 2), ("MatMul", "fm", 1), ("Max", "f=", 1), ("Mean", "f=", 1), ("Min", "f=", 1),
    ("Mod", "f=", 1), ("Mul", "f=", 1), ("OneHot", "ikl", 1), ("Or", "bb", 1), ("PRelu", "f=", 1), ("Pad", "fp1?a?", 1),
    ("Pow", "f=", 1), ("QuantizeLinear", "f11?", 1), ("DequantizeLinear", "f11?", 1), ("RMSNormalization", "fl", 1),
    ("Range", "kkk", 1), ("ReduceL1", "fa?", 1), ("ReduceL2", "fa?", 1), ("ReduceLogSum", "fa?", 1),
    ("ReduceLogSumExp", "fa?", 1), ("ReduceMax", "fa?", 1), ("ReduceMean", "fa?", 1), ("ReduceMin", "fa?", 1),
    ("ReduceProd", "fa?", 1), ("ReduceSum", "fa?", 1), ("ReduceSumSquare", "fa?", 1), ("Reshape", "fs", 1),
    ("Resize", "f??s", 1), ("Scatter", "fi=", 1), ("ScatterElements", "fi=", 1), ("ScatterND", "fi=", 1), ("Slice", "faa?a?", 1),
    ("Split", "f", 2), ("Squeeze", "fa?", 1), ("Sub", "f=", 1), ("Sum", "f==", 1), ("SwiGLU", "f=", 1), ("Tile", "fs", 1),
    ("TopK", "fv", 2), ("Trilu", "fk?", 1), ("Unsqueeze", "fa", 1), ("Where", "bf=", 1), ("Xor", "bb", 1),
    ("BiasGelu", "fl", 1), ("FusedMatMul", "fm", 1), ("FusedConv", "fw", 1), ("FusedGemm", "fml?", 1),
    ("SkipLayerNormalization", "f=ll?l?", 1), ("SkipSimplifiedLayerNormalization", "f=ll?", 1),
    ("SimplifiedLayerNormalization", "fl", 1), ("QuickGelu", "f", 1), ("FastGelu", "fl?", 1), ("TransposeMatMul", "fm", 1),
    ("SequenceConstruct", "f=", 1), ("SequenceAt", "fk", 1), ("SequenceInsert", "ffk?", 1), ("SequenceErase", "fk?", 1),
    ("SplitToSequence", "fk?", 1), ("Unique", "f", 4), ("NonZero", "f", 1), ("SequenceEmpty", "", 1), ("Constant", "", 1),
    ("RandomNormal", "", 1), ("RandomUniform", "", 1), ("MaxPool", "f", 1), ("ReverseSequence", "fi", 1),
    ("HannWindow", "k", 1), ("HammingWindow", "k", 1), ("BlackmanWindow", "k", 1), ("CastLike", "f=", 1), ("Det", "f", 1),
];

/// Attributes without which an operator means nothing.
const NEEDED: [&str; 20] = [
    "to",
    "kernel_shape",
    "axis",
    "perm",
    "blocksize",
    "equation",
    "mode",
    "num_groups",
    "value",
    "num_outputs",
    "pooled_shape",
    "direction",
    "size",
    "shape",
    "num_heads",
    "p",
    "block_size",
    "starts",
    "ends",
    "dtype",
];

/// The operators without a graph inside.
fn plain() -> Vec<Operator> {
    let nested = ["If", "Loop", "Scan", "SequenceMap"];
    catalogue::operators().into_iter().filter(|o| !nested.contains(&o.name)).collect()
}

/// A node of any operator on values of the network; its constants become initializers.
pub fn node(c: &mut Choices, network: &mut Network) -> NodeProto {
    let operators = plain();
    let operator = &operators[c.below(operators.len())];
    let kinds = KINDS.iter().find(|row| row.0 == operator.name);
    let any = ["f", "f=", "f==", "f"][c.below(4)];
    let (_, mut kinds, results) = kinds.copied().unwrap_or((operator.name, any, 1));
    if c.chance(4) {
        kinds = any;
    }
    let first = network.value(c);
    let shape = network.shape(&first);
    let mut node = NodeProto { op_type: operator.name.into(), domain: operator.domain.into(), ..NodeProto::default() };
    let letters: Vec<char> = kinds.chars().collect();
    for (i, &letter) in letters.iter().enumerate().filter(|(_, k)| **k != '?') {
        let optional = letters.get(i + 1) == Some(&'?');
        if optional && c.chance(40) {
            node.input.push(String::new());
        } else {
            let name = operand(c, network, letter, &first, &shape);
            node.input.push(name);
        }
    }
    while node.input.last().is_some_and(String::is_empty) {
        node.input.pop();
    }
    node.output = (0..results).map(|_| network.name()).collect();
    for name in &operator.attributes {
        if c.chance(if NEEDED.contains(name) { 75 } else { 20 }) {
            node.attribute.push(attribute(c, name, shape.len() as i64));
        }
    }
    node
}

/// An operand of one of the kinds of [`KINDS`].
fn operand(c: &mut Choices, network: &mut Network, kind: char, first: &str, shape: &[i64]) -> String {
    let rank = shape.len();
    let code = network.code(first);
    let last = shape.last().copied().unwrap_or(1);
    let name = network.name();
    let list =
        |c: &mut Choices, count: usize, low, high| -> Vec<i64> { (0..count).map(|_| c.between(low, high)).collect() };
    let made = match kind {
        'f' if c.chance(90) => return first.to_string(),
        'f' => return network.value(c),
        '=' | 'b' if c.chance(50) => match network.like(c, first, kind == 'b') {
            Some(other) => return other,
            None => tensor(c, &name, if kind == 'b' { 9 } else { code }, shape),
        },
        'b' => tensor(c, &name, 9, shape),
        '=' => {
            let keep = c.below(rank + 1);
            let mut dims: Vec<i64> = shape[keep..].to_vec();
            dims.iter_mut().for_each(|d| *d = if c.chance(25) { 1 } else { *d });
            tensor(c, &name, code, &dims)
        }
        'l' => tensor(c, &name, code, &[last]),
        'c' => tensor(c, &name, code, &[shape.get(1).copied().unwrap_or(1)]),
        'w' => {
            let channels = shape.get(1).copied().unwrap_or(1);
            let mut dims = vec![c.between(1, 6), channels];
            dims.extend(list(c, rank.saturating_sub(2), 1, 3));
            tensor(c, &name, code, &dims)
        }
        'm' => {
            let columns = c.between(1, 9);
            tensor(c, &name, code, &[last, columns])
        }
        '1' => tensor(c, &name, code, &[]),
        'a' => {
            let mut axes: Vec<i64> = (0..rank as i64).collect();
            axes.retain(|_| c.chance(50));
            integers(&name, &[axes.len() as i64], &axes)
        }
        'p' => {
            let pads = list(c, 2 * rank, -1, 2);
            integers(&name, &[pads.len() as i64], &pads)
        }
        's' => {
            let mut dims = shape.to_vec();
            match c.below(4) {
                0 => dims = list(c, rank.max(1), 1, 4),
                1 => dims = vec![-1],
                2 if rank > 0 => dims[c.below(rank)] = -1,
                _ => dims.reverse(),
            }
            integers(&name, &[dims.len() as i64], &dims)
        }
        'k' => integers(&name, &[], &[c.between(-1, 4)]),
        'v' => integers(&name, &[1], &[c.between(1, 3)]),
        _ => {
            let dims = c.pick(&[vec![], vec![1], vec![3], vec![2, 2], shape.to_vec()]);
            let values = list(c, dims.iter().product::<i64>().max(0) as usize, -1, 1);
            integers(&name, &dims, &values)
        }
    };
    network.constant(made);
    name
}
