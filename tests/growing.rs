//! Dimensions that grow: what is imported with a capacity computes, for every count of its range, what is imported for that
//! size; whatever lies beyond the count.

#[path = "files/onnx.rs"]
mod onnx;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::internal::graph::fold::memo::Memo;
use tilewright::internal::graph::import::binding::BoundGraph;
use tilewright::internal::graph::import::model::{Binding, Growing, OnnxModel};
use tilewright::internal::graph::interpret;
use tilewright::internal::graph::ir::Graph;
use tilewright::internal::graph::proto::{AttributeProto, NodeProto, TensorProto};
use tilewright::internal::runtime::bounds::{at_capacity, exact_shape, resized};
use tilewright::{AsView, DType, Model, Options, Tensor};

const CAPACITY: i64 = 16;

/// One model a line: a name, its inputs, and its nodes; the last result is the output. Inputs are f32 but `i`, of indices.
/// `bad` and `far` are the input `x` with not-a-number and an infinity beyond the count. Constants stand in braces.
const CASES: &str = "
add_rows             | x:2,n,3          | y = Add(bad, {f:1;2;3})
add_two              | x:2,n,3 z:2,n,3  | a = Add(bad, z); y = Mul(a, x)
add_column           | x:2,n,3 z:2,1,3  | y = Sub(far, z)
where                | x:2,n,3 z:2,n,3  | c = Less(x, z); y = Where(c, bad, far)
extremes             | x:2,n,3          | a = Clip(bad, {s:1.2}, {s:1.7}); b = Max(a, x); y = Min(b, {s:1.5})
transposed           | x:2,n,3          | t = Transpose(bad) perm=[2,1,0]; y = Relu(t)
moved                | x:2,n,3          | u = Unsqueeze(bad, {1;4}); t = Transpose(u) perm=[3,1,2,0,4]; y = Squeeze(t, {1})
squeezed             | x:2,1,n          | y = Squeeze(bad)
cast                 | x:2,n,3          | c = Cast(x) to=6; y = Cast(c) to=1
reshape_by_shape     | x:2,n,6          | s = Shape(x); b = Gather(s, {0}); l = Gather(s, {1}); t = Concat(b, l, {3;2}) axis=0; y = Reshape(bad, t)
reshape_open_fixed   | x:2,n,6          | y = Reshape(bad, {0;0;2;-1})
reshape_open_grows   | x:2,n,6          | y = Reshape(bad, {0;-1;3;2})
reshape_before       | x:2,3,n,4        | s = Shape(x) start=2 end=3; t = Concat({6}, s, {4}) axis=0; y = Reshape(bad, t)
flatten              | x:2,n            | u = Unsqueeze(bad, {0}); y = Flatten(u) axis=2
softmax_along        | x:2,3,n          | y = Softmax(bad) axis=2
softmax_along_far    | x:2,n,3          | y = Softmax(far) axis=1
softmax_of_nothing   | x:2,n,3 z:2,n,3  | o = Sub(x, x); f = Log(o); p = Softmax(f) axis=1; c = Greater(x, {s:0.5}); w = Where(c, o, p); t = Transpose(z) perm=[0,2,1]; y = MatMul(t, w)
softmax_as_numbers   | x:2,n,3 z:2,n,3  | o = Sub(x, x); f = Log(o); p = Softmax(f) axis=1; c = Cast(p) to=9; d = Cast(c) to=1; t = Transpose(z) perm=[0,2,1]; y = MatMul(t, d)
softmax_by_matrix    | x:2,3,n z:2,n,3  | p = Softmax(x) axis=2; y = MatMul(p, z)
softmax_nan_matrix   | x:2,3,n z:2,n,3  | o = Sub(x, x); f = Log(o); p = Softmax(f) axis=2; y = MatMul(p, z)
softmax_backwards    | x:2,n            | o = Sub(x, x); f = Log(o); p = Softmax(f) axis=1; y = CumSum(p, {:1}) reverse=1 exclusive=1
softmax_beside       | x:2,n,3          | y = Softmax(bad) axis=2
log_softmax          | x:2,n,3          | y = LogSoftmax(far) axis=1
layer_norm           | x:2,n,4          | y = LayerNormalization(bad, {f:1;2;3;4}, {f:0;1;0;1}) axis=-1
sum                  | x:2,n,3          | y = ReduceSum(bad, {1})
sum_all              | x:2,n,3          | y = ReduceSum(bad)
sum_beside           | x:2,n,3          | y = ReduceSum(bad, {2}) keepdims=0
mean                 | x:2,n,3          | y = ReduceMean(bad) axes=[1]
mean_all             | x:2,n,3          | y = ReduceMean(far) axes=[0,1,2] keepdims=0
mean_beside          | x:2,n,3          | y = ReduceMean(far) axes=[0] keepdims=0
max                  | x:2,n,3          | y = ReduceMax(bad) axes=[1] keepdims=0
min                  | x:2,n,3          | y = ReduceMin(far) axes=[1]
product              | x:2,n,3          | y = ReduceProd(bad) axes=[1]
norms                | x:2,n,3          | a = ReduceL1(bad) axes=[1]; b = ReduceL2(far) axes=[1]; y = Add(a, b)
logarithms           | x:2,n,3          | a = ReduceLogSum(bad) axes=[1]; b = ReduceLogSumExp(far) axes=[1]; y = Add(a, b)
squares              | x:2,n,3          | y = ReduceSumSquare(bad) axes=[1]
rows_of_product      | x:2,n,3          | y = MatMul(bad, {m:3x2})
columns_of_product   | x:2,n,3          | t = Transpose(bad) perm=[0,2,1]; y = MatMul({m:2x3}, t)
inner_of_product     | x:2,n,3 z:2,n,3  | t = Transpose(bad) perm=[0,2,1]; y = MatMul(t, z)
inner_of_far_product | x:2,n,3 z:2,n,3  | t = Transpose(z) perm=[0,2,1]; f = Log(x); y = MatMul(t, f)
inner_of_zeros       | x:2,n,3 z:2,n,3  | t = Transpose(z) perm=[0,2,1]; y = MatMul(t, x)
batch_of_product     | x:n,2,3          | y = MatMul(bad, {m:3x2})
vectors              | x:n z:n          | y = MatMul(bad, z)
gemm                 | x:n,3            | y = Gemm(bad, {m:3x2}, {f:1;2}) alpha=2.0
table                | i:2,n x:2,n      | y = Gather({m:7x3}, i) axis=0
table_by_bad_indices | i:2,n x:2,n      | j = Sub(i, {1}); k = Add(j, {1}); y = Gather({m:7x3}, k) axis=0
indices_that_grow    | x:2,n i:n        | y = Gather(x, i) axis=1
last                 | x:2,n,3          | y = Gather(bad, {-1}) axis=1
first_of_all         | x:2,n,3          | y = Gather(bad, {:0}) axis=1
last_by_shape        | x:2,n,3          | s = Shape(x) start=1 end=2; l = Sub(s, {1}); y = Gather(bad, l) axis=1
gather_by_data       | x:3,n i:2        | t = Neg(i); j = Where({b:1}, t, i); y = Gather(bad, j) axis=1
last_rows            | x:2,n,3          | y = Slice(bad, {-1}, {9223372036854775807}, {1})
all_but_first        | x:2,n,3          | y = Slice(bad, {1}, {9223372036854775807}, {1})
all_but_last         | x:2,n,3          | y = Slice(bad, {0}, {-1}, {1})
first_three          | x:2,n,3          | y = Slice(bad, {0}, {3}, {1})
beside               | x:2,n,6          | y = Slice(bad, {5}, {0}, {2}, {-2})
prefix_of_table      | x:2,n            | s = Shape(x) start=1; y = Slice({m:40x3}, {0}, s, {0})
prefix_of_short      | x:2,n            | s = Shape(x) start=1; y = Slice({m:12x3}, {0}, s, {0})
middle_of_table      | x:2,n            | s = Shape(x) start=1; e = Add(s, {2}); y = Slice({m:40x3}, s, e, {0})
mask                 | x:2,n,n          | s = Shape(x) start=1 end=2; m = Slice({m:40x40}, {0;0}, t, {0;1}); y = Add(bad, m); t = Concat(s, s) axis=0
append               | x:2,n,3 z:2,2,3  | y = Concat(x, z) axis=1
append_to_bad        | x:2,n,3 z:2,1,3  | a = Concat(bad, z) axis=1; y = Softmax(a) axis=1
append_several       | x:2,n,3 z:2,1,3  | a = Concat(z, bad, z, z) axis=1; y = ReduceSum(a, {1})
put_before           | x:2,n,3 z:2,1,3  | y = Concat(z, far) axis=1
side_by_side         | x:2,n,3          | a = Concat(x, bad) axis=2; y = ReduceSum(a, {1})
range                | x:n              | s = Shape(x); l = Squeeze(s); r = Range({:0}, l, {:1}); c = Cast(r) to=1; y = Add(bad, c)
range_from           | x:n              | s = Shape(x); l = Squeeze(s); e = Add(l, {:3}); r = Range(l, e, {:1}); y = Cast(r) to=1
range_down           | x:n              | s = Shape(x); l = Squeeze(s); e = Sub(l, {:5}); r = Range(l, e, {:-2}); y = Cast(r) to=1
filled               | x:2,n            | s = Shape(x); o = ConstantOfShape(s); y = Add(bad, o)
expanded             | x:2,n z:3,1,1    | s = Shape(x); y = Expand(z, s)
expanded_heads       | x:2,n,6          | u = Unsqueeze(bad, {1}); s = Shape(u); a = Gather(s, {0}); b = Gather(s, {2;3}); t = Concat(a, {2}, b) axis=0; e = Expand(u, t); y = ReduceSum(e, {2})
running_sum          | x:2,n            | y = CumSum(x, {:1})
running_sum_of_bad   | x:2,n            | y = CumSum(bad, {:1}) reverse=1
running_sum_beside   | x:2,n            | y = CumSum(bad, {:0})
triangle             | x:2,n,n          | y = Trilu(bad)
triangle_by_shape    | x:2,n,5          | s = Shape(x) start=1 end=2; k = Sub({2}, s); y = Trilu(bad, k) upper=0
triangle_far         | x:2,n,n          | y = Trilu(bad, {9223372036854775807})
shape                | x:2,n,3          | s = Shape(x); y = Cast(s) to=1
size                 | x:2,n,3          | s = Size(x); y = Cast(s) to=1
arithmetic           | x:2,n,3          | s = Shape(x) start=1 end=2; a = Mul(s, {4}); b = Div(a, {2}); c = Sub(b, s); d = Max(c, {1}); e = Cast(d) to=6; f = Neg(e); g = Abs(f); y = Cast(g) to=1
choice               | x:2,n,3          | s = Shape(x) start=1 end=2; c = Greater(s, {4}); w = Where(c, s, {4}); m = Min(w, {9}); y = Cast(m) to=1
equal                | x:2,n,3          | s = Shape(x) start=1 end=2; c = Equal(s, {5}); y = Cast(c) to=1
split_beside         | x:2,n,4          | (a, b) = Split(bad) axis=2; y = Add(a, b)
divided              | x:2,n,3          | a = Div(x, {s:4}); b = Mul({s:2}, a); t = Transpose(x) perm=[0,2,1]; y = MatMul(t, b)
convolved            | x:2,3,n          | y = Conv(bad, {m:4x3x3}, {f:1;2;3;4}) pads=[1,1]
convolved_apart      | x:1,4,n          | y = Conv(far, {m:4x1x5}) pads=[0,8] dilations=[2] group=4
convolved_batch      | x:n,2,5          | y = Conv(bad, {m:3x2x2}) strides=[2]
places               | i:n x:n          | p = Unsqueeze(i, {1}); y = GatherND({m:7x3}, p)
bad_places           | i:n x:n          | j = Sub(i, {1}); k = Add(j, {1}); p = Unsqueeze(k, {1}); y = GatherND({m:7x3}, p)
pairs_of_places      | i:n x:n          | p = Unsqueeze(i, {1}); q = Concat(p, p) axis=1; y = GatherND({m:7x9}, q)
scatter_back         | i:n x:n,3        | p = Unsqueeze(i, {1}); y = ScatterND({m:7x3}, p, bad) reduction=add
scatter_pairs        | i:n x:n          | p = Unsqueeze(i, {1}); q = Concat(p, p) axis=1; y = ScatterND({m:7x8}, q, x) reduction=add
scatter_negative     | i:n x:n          | j = Add(i, {-7}); p = Unsqueeze(j, {1}); y = ScatterND({m:7}, p, far) reduction=mul
scatter_elements     | i:n x:n          | y = ScatterElements({m:7}, i, bad) reduction=add
scatter_columns      | i:2,n x:2,n      | y = ScatterElements({m:2x7}, i, bad) axis=1 reduction=add
scatter_into         | x:n i:4          | y = ScatterElements(bad, i, {f:1;2;3;4}) reduction=add
scatter_slices_into  | x:n,3 i:2        | j = Neg(i); p = Unsqueeze(j, {1}); y = ScatterND(bad, p, {m:2x3})
largest_beside       | x:2,n,3          | a = ArgMax(bad) axis=0 keepdims=0; b = ArgMin(far) axis=2; c = Sub(a, b); y = Cast(c) to=1
top_beside           | x:2,n,3          | (y, j) = TopK(bad, {2}) axis=2
one_hot              | i:2,n x:2,n      | y = OneHot(i, {:7}, {f:-1;2}) axis=1
regions              | x:n,4 i:n        | z = Mul(i, {:0}); y = RoiAlign({m:1x2x5x5}, bad, z) sampling_ratio=2 output_height=2 output_width=3
regions_adaptive     | x:n,4 i:n        | z = Mul(i, {:0}); y = RoiAlign({m:1x2x5x5}, bad, z) output_height=2
sampled              | x:1,n,3,2        | y = GridSample({m:1x2x5x5}, bad)
rounded              | x:2,n,3          | a = Sqrt(x); b = Tanh(a); c = Erf(b); t = Transpose(x) perm=[0,2,1]; y = MatMul(t, c)
";

/// Nodes that make of `$a` and `$b`, of shape `2,n,3`, another value `$r` of this shape.
const STEPS: &str = "
$r = Add($a, $b)
$r = Sub($a, $b)
$r = Mul($a, $b)
$r = Div($a, $b)
$r = Min($a, $b)
$r = Max($a, $b)
$r = Sqrt($a)
$r = Log($a)
$r = Tanh($a)
$r = Neg($a)
$r = Relu($a)
$r = Mul($a, {s:0.5})
$r = Div($a, {s:-3})
$rc = Less($a, $b); $r = Where($rc, $a, $b)
$rc = Cast($a) to=9; $r = Where($rc, $b, $a)
$rc = IsNaN($a); $r = Where($rc, $b, $a)
$rc = IsInf($a); $rd = Cast($rc) to=1; $r = Add($b, $rd)
$r = Softmax($a) axis=0
$r = Softmax($a) axis=1
$r = Softmax($a) axis=2
$r = LogSoftmax($a) axis=1
$r = LayerNormalization($a, {f:1;2;3}, {f:0;1;0}) axis=-1
$r = CumSum($a, {:1})
$r = CumSum($a, {:1}) reverse=1 exclusive=1
$r = CumSum($a, {:2}) exclusive=1
$r = MatMul($a, {m:3x3})
$rt = Transpose($a) perm=[0,2,1]; $rp = MatMul($rt, $b); $r = MatMul($a, $rp)
$rt = Transpose($b) perm=[0,2,1]; $rp = MatMul($a, $rt); $rq = Softmax($rp) axis=2; $r = MatMul($rq, $b)
$rt = Transpose($b) perm=[0,2,1]; $rp = MatMul($a, $rt); $rq = Trilu($rp) upper=0; $r = MatMul($rq, $b)
$rt = Transpose($b) perm=[0,2,1]; $rp = MatMul($a, $rt); $rm = ReduceMax($rp) axes=[2]; $r = Add($rm, $b)
$rt = Transpose($a) perm=[1,0,2]; $ru = Relu($rt); $rp = Mul($ru, $rt); $r = Transpose($rp) perm=[1,0,2]
$rm = ReduceSum($a, {1}); $r = Add($rm, $b)
$rm = ReduceMax($a) axes=[1]; $r = Sub($a, $rm)
$rm = ReduceMin($a) axes=[1,2]; $r = Mul($rm, $b)
$rm = ReduceMean($a) axes=[1]; $r = Sub($b, $rm)
$rm = ReduceProd($a) axes=[1]; $r = Min($b, $rm)
$rm = ReduceLogSumExp($a) axes=[1]; $r = Sub($b, $rm)
$rm = ReduceL2($a) axes=[1]; $r = Div($b, $rm)
$rm = ReduceMax($a) axes=[1]; $rs = Shape($b); $r = Expand($rm, $rs)
$rm = Slice($b, {0}, {1}, {1}); $rj = Concat($a, $rm) axis=1; $r = Slice($rj, {1}, {9223372036854775807}, {1})
$rm = Slice($b, {-1}, {9223372036854775807}, {1}); $rj = Concat($rm, $a, $rm) axis=1; $r = Slice($rj, {1}, {-1}, {1})
$rm = Slice($b, {-1}, {9223372036854775807}, {1}); $rj = Concat($rm, $a) axis=1; $r = Slice($rj, {0}, {-1}, {1})
$rs = Shape($a) start=1 end=2; $rl = Squeeze($rs); $rr = Range({:0}, $rl, {:1}); $r = Gather($a, $rr) axis=1
$rs = Shape($a) start=1 end=2; $rm = Slice({m:40x3}, {0}, $rs, {0}); $r = Add($a, $rm)
$rs = Shape($a) start=1 end=2; $rl = Squeeze($rs); $rr = Range($rl, {:0}, {:-1}); $rq = Cast($rr) to=1; $ru = Unsqueeze($rq, {1}); $r = Add($a, $ru)
$ru = Reshape($a, {0;0;3;1}); $rv = Relu($ru); $r = Reshape($rv, {2;-1;3})
$rs = Shape($a); $ro = ConstantOfShape($rs); $r = Max($a, $ro)
$rl = Gather($a, {-1}) axis=1; $r = Mul($b, $rl)
$rj = Concat($a, $b) axis=2; $r = MatMul($rj, {m:6x3})
($rp, $rq) = Split($a) axis=0; $r = Concat($rq, $rp) axis=0
";

/// Models without a graph at capacity.
const REFUSED: &str = "
merged               | x:2,n,6          | y = Reshape(x, {-1;6})
fixed_shape          | x:2,n,6          | y = Reshape(x, {2;5;6})
two_that_grow        | x:2,n,3          | y = Concat(x, x) axis=1
every_second         | x:2,n,3          | y = Slice(x, {0}, {9}, {1}, {2})
unlike               | x:2,n,3          | y = Add(x, {r:2x5x3})
arg                  | x:2,n,3          | a = ArgMax(x) axis=1; y = Cast(a) to=1
convolved_wider      | x:1,3,n          | y = Conv(x, {m:4x3x3})
convolved_steps      | x:1,3,n          | y = Conv(x, {m:4x3x3}) pads=[1,1] strides=[2]
convolved_channels   | x:1,n,8          | y = Conv(x, {m:4x5x3})
pooled               | x:1,2,n          | y = GlobalAveragePool(x)
top                  | x:2,n,3          | (y, i) = TopK(x, {1}) axis=1
product_of_shape     | x:n,n            | s = Size(x); y = Cast(s) to=1
plain_of_capacity    | x:n,16           | t = Transpose(x) perm=[1,0]; y = Add(x, t)
";

struct Case {
    name: String,
    inputs: Vec<(String, Vec<String>)>,
    model: OnnxModel,
    bytes: Vec<u8>,
}

/// A constant: `{1;2}` integers, `{:1}` a scalar, `{f:..}` floats, `{s:..}` a float scalar, `{b:1}` a bool, `{m:3x2}` a table.
fn constant(text: &str, name: &str) -> TensorProto {
    let body = text.trim_matches(['{', '}']);
    let (kind, rest) = body.split_once(':').unwrap_or(("i", body));
    let floats = || rest.split(';').map(|v| v.parse().unwrap()).collect::<Vec<f32>>();
    let whole = || rest.split(';').map(|v| v.parse().unwrap()).collect::<Vec<i64>>();
    match kind {
        "i" => onnx::integers(name, &[whole().len() as i64], &whole()),
        "" => onnx::integers(name, &[], &whole()),
        "f" => onnx::floats(name, &[floats().len() as i64], &floats()),
        "s" => onnx::floats(name, &[], &floats()),
        "b" => TensorProto { name: name.into(), data_type: onnx::BOOL, int32_data: vec![1], ..TensorProto::default() },
        _ => {
            let dims: Vec<i64> = rest.split('x').map(|d| d.parse().unwrap()).collect();
            let values: Vec<f32> = (0..dims.iter().product::<i64>()).map(|i| (i * 29 % 31) as f32 / 8.0).collect();
            onnx::floats(name, &dims, &values)
        }
    }
}

fn attribute(text: &str) -> AttributeProto {
    let (name, value) = text.split_once('=').unwrap();
    let name = name.to_string();
    if let Some(list) = value.strip_prefix('[') {
        let ints = list.trim_end_matches(']').split(',').map(|v| v.parse().unwrap()).collect();
        return AttributeProto { name, ints, r#type: 7, ..AttributeProto::default() };
    }
    match value.parse() {
        Ok(i) => AttributeProto { name, i, r#type: 2, ..AttributeProto::default() },
        Err(_) if value.starts_with(char::is_alphabetic) => {
            AttributeProto { name, s: value.into(), r#type: 3, ..AttributeProto::default() }
        }
        Err(_) => AttributeProto { name, f: value.parse().unwrap(), r#type: 1, ..AttributeProto::default() },
    }
}

fn node(text: &str, constants: &mut Vec<TensorProto>) -> NodeProto {
    let (results, call) = text.trim().split_once(" = ").unwrap();
    let (op, rest) = call.split_once('(').unwrap();
    let (operands, attributes) = rest.rsplit_once(')').unwrap();
    let mut inputs = vec![];
    for operand in operands.split(", ") {
        inputs.push(match operand.starts_with('{') {
            true => {
                constants.push(constant(operand, &format!("c{}", constants.len())));
                constants.last().unwrap().name.clone()
            }
            false => operand.to_string(),
        });
    }
    let results: Vec<&str> = results.trim_matches(['(', ')']).split(", ").collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let mut node = onnx::node(op, &inputs, &results);
    node.attribute = attributes.split_whitespace().map(attribute).collect();
    node
}

fn case(line: &str) -> Case {
    let [name, inputs, nodes] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { panic!("{line}") };
    let inputs: Vec<(String, Vec<String>)> = (inputs.split_whitespace().map(|input| input.split_once(':').unwrap()))
        .map(|(name, shape)| (name.to_string(), shape.split(',').map(str::to_string).collect()))
        .collect();
    let mut constants = vec![];
    let before = ["low = Sub(x, {s:0.5})", "bad = Sqrt(low)", "far = Log(x)"];
    let nodes: Vec<NodeProto> = before.into_iter().chain(nodes.split("; ")).map(|n| node(n, &mut constants)).collect();
    let value = |(name, shape): &(String, Vec<String>)| {
        let shape: Vec<&str> = shape.iter().map(String::as_str).collect();
        onnx::tensor(name, if name == "i" { onnx::INT64 } else { onnx::FLOAT }, Some(&shape))
    };
    let graph =
        onnx::graph(inputs.iter().map(value).collect(), constants, nodes, vec![onnx::tensor("y", onnx::FLOAT, None)]);
    let bytes = onnx::bytes(graph, 17);
    let model = OnnxModel::parse(&bytes, "nowhere".as_ref()).unwrap_or_else(|e| panic!("{name}: {e}"));
    Case { name: name.into(), inputs, model, bytes }
}

fn cases(text: &str) -> impl Iterator<Item = Case> {
    text.lines().filter(|line| !line.is_empty()).map(case)
}

impl Case {
    /// Values of at least 1, and indices of 0 or more.
    fn tensors(&self, n: i64) -> Vec<(String, Tensor)> {
        let tensor = |(number, (name, shape)): (usize, &(String, Vec<String>))| {
            let shape: Vec<i64> = shape.iter().map(|d| if d == "n" { n } else { d.parse().unwrap() }).collect();
            let count = shape.iter().product::<i64>();
            let place = |i: i64| (i * 37 + number as i64 * 11 + 5) % 101;
            let tensor = match name.as_str() {
                "i" => Tensor::new(&shape, &(0..count).map(|i| place(i) % n.clamp(1, 7)).collect::<Vec<i64>>()),
                _ => Tensor::new(&shape, &(0..count).map(|i| 1.0 + place(i) as f32 / 101.0).collect::<Vec<f32>>()),
            };
            (name.clone(), tensor)
        };
        self.inputs.iter().enumerate().map(tensor).collect()
    }

    fn exact(&self, n: i64) -> Result<Vec<Tensor>, String> {
        let graph = self.model.graph(&BTreeMap::from([("n".to_string(), n)])).map_err(|e| e.to_string())?;
        run(&graph, self.tensors(n))
    }

    fn bound(&self, n: i64) -> Result<BoundGraph, String> {
        let offsets = BTreeMap::from([("n".to_string(), 0)]);
        let growing = Growing { name: "n".into(), offsets, capacity: CAPACITY, counts: (n, n) };
        let binding = Binding { growing: Some(growing), ..Binding::default() };
        let bound = self.model.bind(&binding, &Memo::default()).map_err(|unbound| unbound.error.to_string())?;
        bound.graph.verify().unwrap_or_else(|e| panic!("{}: {e}\n{}", self.name, bound.graph));
        Ok(bound)
    }

    /// The outputs of a graph at capacity for inputs of exact sizes.
    fn at_capacity(&self, bound: &BoundGraph, n: i64) -> Result<Vec<Tensor>, String> {
        let (bounds, graph) = (bound.bounds.as_ref().unwrap(), &bound.graph);
        let specs: Vec<(&str, &[i64])> =
            graph.inputs.iter().map(|&v| (&*graph.value(v).name, &graph.value(v).ty.shape[..])).collect();
        let tensors = self.tensors(n);
        let views: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let padded = at_capacity(bounds, &specs, &views, n).map_err(|e| e.to_string())?;
        let outputs = run(graph, padded)?;
        let exact = outputs.iter().zip(&bounds.outputs);
        Ok(exact.map(|(t, axes)| resized(&t.view(), &exact_shape(&t.shape, axes, n))).collect())
    }
}

impl Case {
    /// The graph at capacity has the results of the one of exact sizes, or fails as it does.
    fn compare(&self, bound: &BoundGraph, n: i64) {
        let place = format!("{} of {n}", self.name);
        match (self.at_capacity(bound, n), self.exact(n)) {
            (Ok(found), Ok(expected)) => assert_equal(&found, &expected, &place),
            (Err(_), Err(_)) => {}
            (found, expected) => panic!("{place}: {found:?} instead of {expected:?}"),
        }
    }
}

/// The outputs of a graph by the reference interpreter.
fn run(graph: &Graph, inputs: Vec<(String, Tensor)>) -> Result<Vec<Tensor>, String> {
    let inputs: BTreeMap<String, Tensor> = inputs.into_iter().collect();
    let ordered: Vec<Tensor> = graph.inputs.iter().map(|&v| inputs[&graph.value(v).name].clone()).collect();
    interpret::run(graph, &ordered).map_err(|e| e.to_string())
}

fn assert_equal(found: &[Tensor], expected: &[Tensor], place: &str) {
    assert_eq!(found.len(), expected.len(), "{place}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape), "{place}");
        if found.dtype != DType::F32 {
            assert_eq!(found, expected, "{place}");
            continue;
        }
        for (a, b) in found.to_vec::<f32>().into_iter().zip(expected.to_vec::<f32>()) {
            let near = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-4 * b.abs().max(1.0);
            assert!(near, "{place}: {a} instead of {b}");
        }
    }
}

#[test]
fn a_capacity_changes_no_result() {
    let mut random = StdRng::seed_from_u64(7);
    for case in cases(CASES) {
        let mut ranges: Vec<(i64, i64)> = vec![];
        for n in [1, 2, 3, 4, 5, 7, CAPACITY - 1, random.random_range(6..CAPACITY)] {
            assert!(case.exact(n).is_ok(), "{} of {n}: {:?}", case.name, case.exact(n));
            let bound = match case.bound(n) {
                Ok(bound) => bound,
                // a few sizes may have a meaning of their own
                Err(_) if !(4..CAPACITY - 4).contains(&n) => continue,
                Err(e) => panic!("{} of {n}: {e}", case.name),
            };
            let bounds = bound.bounds.as_ref().unwrap();
            assert!((bounds.least..=bounds.most).contains(&n), "{} of {n}: {bounds:?}", case.name);
            if !ranges.contains(&(bounds.least, bounds.most)) {
                (bounds.least..=bounds.most).for_each(|n| case.compare(&bound, n));
                ranges.push((bounds.least, bounds.most));
            }
        }
        let counts: i64 = ranges.iter().map(|(least, most)| most - least + 1).sum();
        assert!(counts >= 8, "{} has graphs at capacity for {ranges:?}", case.name);
    }
}

/// A model of a few steps on values that steps before have made.
fn composed(random: &mut StdRng) -> Case {
    let steps: Vec<&str> = STEPS.lines().filter(|line| !line.is_empty()).collect();
    let mut values = ["x", "z", "bad", "far"].map(str::to_string).to_vec();
    let mut nodes = vec![];
    for number in 0..random.random_range(2..7) {
        let [a, b] = [(); 2].map(|()| values[random.random_range(0..values.len())].clone());
        let (step, result) = (steps[random.random_range(0..steps.len())], format!("v{number}"));
        nodes.push(step.replace("$a", &a).replace("$b", &b).replace("$r", &result));
        values.push(result);
    }
    let (last, text) = (&values[values.len() - 1], nodes.join("; "));
    case(&format!("{text} | x:2,n,3 z:2,n,3 | {text}; y = Identity({last})"))
}

#[test]
fn compositions_have_the_results_of_exact_sizes() {
    const COUNT: usize = 60;
    let (mut random, mut bound_models) = (StdRng::seed_from_u64(1), 0);
    for _ in 0..COUNT {
        let case = composed(&mut random);
        let Ok(bound) = case.bound(random.random_range(1..CAPACITY)) else { continue };
        let bounds = bound.bounds.as_ref().unwrap();
        (bounds.least..=bounds.most).for_each(|n| case.compare(&bound, n));
        bound_models += 1;
    }
    assert!(bound_models > COUNT * 3 / 4, "{bound_models} of {COUNT}");
}

#[test]
fn nothing_and_everything_are_counts() {
    for case in cases(CASES) {
        for n in [0, CAPACITY] {
            // what is refused has exact sizes
            let Ok(bound) = case.bound(n) else { continue };
            case.compare(&bound, n);
        }
    }
}

#[test]
fn what_no_rule_covers_is_refused() {
    for case in cases(REFUSED) {
        assert!(case.exact(5).is_ok() || case.exact(CAPACITY).is_ok(), "{}", case.name);
        for n in [5, CAPACITY - 2] {
            assert!(case.bound(n).is_err(), "{} of {n}", case.name);
        }
    }
}

/// Models that are not valid, or whose numbers are too large.
const INVALID: &str = "
one_operand          | x:2,n,3          | s = Shape(x); c = Equal(s); y = Cast(c) to=1
three_operands       | x:2,n,3          | s = Shape(x); c = Less(s, s, s); y = Cast(c) to=1
beyond_64_bits       | x:2,n,3          | y = Reshape(x, {1099511627776;0;1099511627776;-1})
far_range            | x:n              | s = Shape(x); l = Squeeze(s); e = Add(l, {:-9223372036854775808}); r = Range(l, e, {:-1}); y = Cast(r) to=1
";

#[test]
fn invalid_models_are_refused_with_a_capacity_too() {
    for case in cases(INVALID) {
        for n in [0, 5] {
            assert!(case.exact(n).is_err() && case.bound(n).is_err(), "{} of {n}", case.name);
        }
    }
}

#[test]
fn a_refused_model_runs_in_exact_sizes() {
    for case in cases(REFUSED).filter(|case| ["merged", "arg"].contains(&&*case.name)) {
        let model = Model::parse(&case.bytes, "nowhere").unwrap();
        let options = Options { growing: vec!["n".into()], threads: 1, ..Options::default() };
        let compiled = model.compile(&options).unwrap();
        for n in [5, 6, 5, 6] {
            let tensors = case.tensors(n);
            let named: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
            assert_equal(&compiled.run(&named).unwrap(), &case.exact(n).unwrap(), &case.name);
            assert!(compiled.session(&named).unwrap().module().bounds().is_none());
            let warnings = &compiled.report(&named).unwrap().warnings;
            assert!(warnings.iter().any(|w| w.contains("`n` has exact sizes") && w.contains("grows")), "{warnings:?}");
        }
        assert_eq!(compiled.compilations(), 2, "{}", case.name);
    }
}

#[test]
fn an_index_beyond_the_count_is_an_error() {
    let case = case("outside | x:3,n i:2 | y = Gather(x, i) axis=1");
    let bound = case.bound(7).unwrap();
    let graph = &bound.graph;
    let x = Tensor::zeros(DType::F32, &[3, CAPACITY]);
    for (index, inside) in [(6i64, true), (-7, true), (7, false), (-8, false), (15, false), (-16, false), (16, false)] {
        let i = Tensor::new(&[2], &[0, index]);
        let inputs = [("x", x.clone()), ("i", i), ("#n", Tensor::new(&[], &[7i64]))];
        let outputs = run(graph, inputs.into_iter().map(|(name, t)| (name.to_string(), t)).collect());
        assert_eq!(outputs.is_ok(), inside, "{index}");
    }
}

#[test]
fn a_second_dimension_keeps_its_distance() {
    let case = case("mask | x:2,n z:2,2 m:2,t | a = Concat(x, z) axis=1; b = Add(a, m); y = Softmax(b) axis=1");
    let options = |growing: &[&str]| Options {
        growing: growing.iter().map(|name| name.to_string()).collect(),
        threads: 1,
        ..Options::default()
    };
    let model = Model::parse(&case.bytes, "nowhere").unwrap();
    let (growing, exact) = (model.compile(&options(&["n", "t"])).unwrap(), model.compile(&options(&[])).unwrap());
    let alone = model.compile(&options(&["n"])).unwrap();
    for n in [3, 4, 9, 14, 15, 30] {
        let number =
            |count: i64| Tensor::new(&[2, count], &(0..2 * count).map(|i| i as f32 / 7.0).collect::<Vec<f32>>());
        let (x, z, m) = (number(n), number(2), number(n + 2));
        let inputs = [("x", &x), ("z", &z), ("m", &m)];
        let expected = exact.run(&inputs).unwrap();
        assert_equal(&growing.run(&inputs).unwrap(), &expected, &n.to_string());
        assert!(growing.session(&inputs).unwrap().module().bounds().is_some());
        // a size of its own is another size for each count
        assert_equal(&alone.run(&inputs).unwrap(), &expected, &n.to_string());
    }
    assert_eq!((growing.compilations(), exact.compilations()), (2, 6));
    // another distance is refused as it is of exact sizes
    let (x, z, m) =
        (Tensor::zeros(DType::F32, &[2, 3]), Tensor::zeros(DType::F32, &[2, 2]), Tensor::zeros(DType::F32, &[2, 9]));
    let inputs = [("x", &x), ("z", &z), ("m", &m)];
    assert_eq!(growing.run(&inputs).unwrap_err().to_string(), exact.run(&inputs).unwrap_err().to_string());
}

#[test]
fn a_small_input_that_decides_a_shape_is_no_count() {
    let case = case("frozen | x:2,n i:1 | y = Expand(x, i)");
    let offsets = BTreeMap::from([("n".to_string(), 0)]);
    let growing = Growing { name: "n".into(), offsets, capacity: CAPACITY, counts: (3, 3) };
    let values = BTreeMap::from([("i".to_string(), Arc::new(Tensor::new(&[1], &[1i64])))]);
    let bound = case.model.bind(&Binding { growing: Some(growing), values, ..Binding::default() }, &Memo::default());
    assert!(bound.is_ok_and(|bound| bound.values.contains_key("i") && bound.bounds.is_some()));
}
