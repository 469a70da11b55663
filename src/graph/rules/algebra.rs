//! Algebra: constants into weights, cancellation and composition of copies, merged products.
//!
//! What is computed from constants only is left as an expression; it costs nothing at run time and is folded when chosen.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::egraph::network::Network;
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp};
use crate::graph::rules::pattern::Keep::{Beside, IfSole, Instead};
use crate::graph::rules::pattern::{Match, Rule, build, equate, rewrite};
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::sync::Arc;

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        // ---- canonical arithmetic
        build  (Instead, "div-constant",            "(div ?x $c)",                      div_constant),
        build  (Instead, "sub-constant",            "(sub ?x $c)",                      sub_constant),
        rewrite(Instead, "pow-2",                   "(pow ?x 2)",                       "(mul ?x ?x)"),
        rewrite(Instead, "pow-half",                "(pow ?x 0.5)",                     "(sqrt ?x)"),
        build  (Instead, "mul-1",                   "(mul ?x 1)",                       operand),
        build  (Instead, "add-0",                   "(add ?x 0)",                       operand),
        build  (Instead, "mul-mul",                 "(mul (mul ?x $a) $b)",             mul_mul),
        build  (Instead, "add-add",                 "(add (add ?x $a) $b)",             add_add),
        build  (IfSole,  "distribute-scale",        "(mul (add ?x $a) $b)",             distribute_scale),
        // ---- scale and shift into weights
        build  (IfSole,  "conv-scale",              "(mul (conv@c ...) $s)",            conv_scale),
        build  (IfSole,  "conv-shift",              "(add (conv@c ...) $s)",            conv_shift),
        build  (IfSole,  "scale-conv",              "(conv@c ...)",                     scale_before_conv),
        build  (IfSole,  "shift-conv",              "(conv@c ...)",                     shift_before_conv),
        build  (IfSole,  "conv-transpose-scale",    "(mul (conv_transpose@c ...) $s)",  conv_scale),
        build  (IfSole,  "conv-transpose-shift",    "(add (conv_transpose@c ...) $s)",  conv_shift),
        build  (IfSole,  "matmul-scale",            "(mul (matmul@m ?x $w) $s)",        matmul_scale),
        build  (IfSole,  "scale-matmul",            "(matmul@m (mul ?x $s) $w)",        scale_before_matmul),
        build  (Instead, "pad-conv",                "(conv@c ...)",                     pad_before_conv),
        // ---- copies
        build  (Beside,  "transpose-transpose",     "(transpose@p (transpose@q ?x))",   transpose_transpose),
        build  (Instead, "transpose-units",         "(transpose@p ?x)",                 transpose_units),
        build  (Beside,  "reshape-reshape",         "(reshape@p (reshape@q ?x))",       reshape_reshape),
        build  (Instead, "reshape-same",            "(reshape ?x)",                     operand),
        build  (Instead, "expand-same",             "(expand ?x)",                      operand),
        build  (Instead, "cast-same",               "(cast ?x)",                        operand),
        build  (Instead, "slice-same",              "(slice@s ?x)",                     slice_same),
        build  (Instead, "concat-one",              "(concat ?x)",                      operand),
        build  (Instead, "slice-slice",             "(slice@a (slice@b ?x))",           slice_slice),
        build  (Instead, "slice-concat",            "(slice@a (concat@b ...))",         slice_concat),
        equate (         "copies-are-injective",    "{copy}",                           same_copy),
        build  (Beside,  "reshape-slice",           "(reshape@r (slice@s ?x))",         reshape_slice),
        build  (Instead, "gather-scalar",           "(gather@g ?x $i)",                 gather_scalar),
        build  (Instead, "expand-operand",          "{elementwise}",                    expand_operand),
        // ---- products and reductions
        build  (Beside,  "scalar-matmul-a",         "(matmul@m (mul ?x $s) ?w)",        scalar_out_of_product),
        build  (Beside,  "scalar-matmul-b",         "(matmul@m ?w (mul ?x $s))",        scalar_out_of_product),
        build  (Instead, "matmul-transposed-a",     "(matmul@m (transpose@p ?x) ?w)",   matmul_transposed_a),
        build  (Instead, "matmul-transposed-b",     "(matmul@m ?x (transpose@p ?w))",   matmul_transposed_b),
        build  (Beside,  "matmul-shared",           "(matmul@m ?x $w)",                 matmul_shared_input),
        build  (Beside,  "matmul-shared-bias",      "(add (matmul@m ?x $w) $b)",        matmul_shared_input_bias),
        build  (Instead, "max-pool-whole",          "(max_pool@p ?x)",                  whole_pool),
        build  (Instead, "average-pool-whole",      "(average_pool@p ?x)",              whole_pool),
    ]
}

/// The first operand itself; the row applies where it has the type of the result.
fn operand(network: &mut Network, m: &Match) -> Option<Id> {
    let x = m.get('x');
    (network.find(x) != network.find(m.class)).then_some(x)
}

/// `f(c)` when the constant has one element of f32, else an expression of `op`.
fn constant_map(
    network: &mut Network,
    c: Id,
    f: fn(f32) -> f32,
    op: impl Fn(&mut Network) -> Option<Id>,
) -> Option<Id> {
    match network.scalar(c) {
        Some(v) => {
            let shape = network.shape(c).to_vec();
            Some(network.constant(Arc::new(Tensor::new(&shape, &[f(v)]))))
        }
        None => op(network),
    }
}

fn div_constant(network: &mut Network, m: &Match) -> Option<Id> {
    let c = m.get('c');
    if network.ty(c).dtype != DType::F32 || network.is_constant(m.get('x')) {
        return None;
    }
    let inverse = constant_map(
        network,
        c,
        |v| 1.0 / v,
        |n| {
            let one = n.scalar_f32(1.0);
            n.binary(BinaryOp::Div, one, c)
        },
    )?;
    network.binary(BinaryOp::Mul, m.get('x'), inverse)
}

fn sub_constant(network: &mut Network, m: &Match) -> Option<Id> {
    let c = m.get('c');
    if network.ty(c).dtype != DType::F32 || network.is_constant(m.get('x')) {
        return None;
    }
    let negative = constant_map(network, c, |v| -v, |n| n.unary(UnaryOp::Neg, c))?;
    network.binary(BinaryOp::Add, m.get('x'), negative)
}

/// `a op b` of constants, at once when both have one element.
fn combine(network: &mut Network, op: BinaryOp, a: Id, b: Id) -> Option<Id> {
    match (network.scalar(a), network.scalar(b)) {
        (Some(x), Some(y)) if network.rank(a) == 0 && network.rank(b) == 0 => {
            Some(network.scalar_f32(if op == BinaryOp::Mul { x * y } else { x + y }))
        }
        _ => network.binary(op, a, b),
    }
}

fn is_real(network: &Network, id: Id) -> bool {
    network.ty(id).dtype == DType::F32
}

fn mul_mul(network: &mut Network, m: &Match) -> Option<Id> {
    if network.is_constant(m.get('x')) || !is_real(network, m.class) {
        return None;
    }
    let factor = combine(network, BinaryOp::Mul, m.get('a'), m.get('b'))?;
    network.binary(BinaryOp::Mul, m.get('x'), factor)
}

fn add_add(network: &mut Network, m: &Match) -> Option<Id> {
    if network.is_constant(m.get('x')) || !is_real(network, m.class) {
        return None;
    }
    let term = combine(network, BinaryOp::Add, m.get('a'), m.get('b'))?;
    network.binary(BinaryOp::Add, m.get('x'), term)
}

/// (x + a)·b = x·b + a·b where x is a product with weights that b can go into.
fn distribute_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let x = m.get('x');
    let weighted = network.applications(x).any(|(op, c)| {
        matches!(op, Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. }) && network.is_constant(c[1])
    });
    if !weighted || !is_real(network, m.class) {
        return None;
    }
    let scaled = network.binary(BinaryOp::Mul, x, m.get('b'))?;
    let shift = combine(network, BinaryOp::Mul, m.get('a'), m.get('b'))?;
    network.binary(BinaryOp::Add, scaled, shift)
}

/// A constant that varies at most along dimension `axis` of a tensor of rank `rank`, as a vector of `count` (or 1) elements.
fn along(network: &mut Network, c: Id, rank: usize, axis: usize, count: i64) -> Option<Id> {
    let shape = network.shape(c).to_vec();
    let offset = rank.checked_sub(shape.len())?;
    let flat = shape.iter().enumerate().all(|(d, &e)| e == 1 || (d + offset == axis && e == count));
    let extent: i64 = shape.iter().product();
    if flat { network.reshape(c, &[extent]) } else { None }
}

fn channel_axis(layout: Layout, rank: usize) -> Option<usize> {
    match layout {
        Layout::Nchw => Some(1),
        Layout::Nhwc => Some(rank - 1),
        Layout::Blocked(_) => None,
    }
}

/// Layout, groups and filters of a convolution of either kind, and its weights' shape.
struct Filters {
    layout: Layout,
    group: i64,
    filters: i64,
    weights: Vec<i64>,
    transposed: bool,
}

fn filters(network: &Network, op: &Op, operands: &[Id]) -> Option<Filters> {
    if !network.is_constant(operands[1]) || operands.get(2).is_some_and(|&b| !network.is_constant(b)) {
        return None;
    }
    let weights = network.shape(operands[1]).to_vec();
    match *op {
        Op::Conv { group, layout, .. } => {
            Some(Filters { layout, group, filters: weights[0], weights, transposed: false })
        }
        Op::ConvTranspose { group, layout, .. } => {
            Some(Filters { layout, group, filters: weights[1] * group, weights, transposed: true })
        }
        _ => None,
    }
}

fn conv_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Filters { layout, group, filters, weights, transposed } = filters(network, op, operands)?;
    let rank = network.rank(operands[0]);
    let s = along(network, m.get('s'), rank, channel_axis(layout, rank)?, filters)?;
    let (mut inner, mut factor) = (weights.clone(), vec![1; weights.len()]);
    if transposed {
        // (C, F/group, k…) as (group, C/group, F/group, k…).
        inner = [vec![group, weights[0] / group], weights[1..].to_vec()].concat();
        factor = vec![1; inner.len()];
        (factor[0], factor[2]) = (group, weights[1]);
    } else {
        factor[0] = filters;
    }
    let split = network.reshape(operands[1], &inner)?;
    let scale = spread(network, s, filters, &factor)?;
    let scaled = network.binary(BinaryOp::Mul, split, scale)?;
    let mut out = vec![operands[0], network.reshape(scaled, &weights)?];
    if let Some(&bias) = operands.get(2) {
        out.push(network.binary(BinaryOp::Mul, bias, s)?);
    }
    network.op(op.clone(), &out)
}

/// A vector of `count` elements (or of one) in the given shape.
fn spread(network: &mut Network, vector: Id, count: i64, shape: &[i64]) -> Option<Id> {
    let whole = if network.shape(vector) == [count] {
        vector
    } else {
        network.op(Op::Expand { shape: vec![count] }, &[vector])?
    };
    network.reshape(whole, shape)
}

fn conv_shift(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Filters { layout, filters, .. } = filters(network, op, operands)?;
    let rank = network.rank(operands[0]);
    let s = along(network, m.get('s'), rank, channel_axis(layout, rank)?, filters)?;
    let bias = match operands.get(2) {
        Some(&bias) => network.binary(BinaryOp::Add, bias, s)?,
        None => spread(network, s, filters, &[filters])?,
    };
    network.op(op.clone(), &[operands[0], operands[1], bias])
}

/// An operand of form `x op constant`: x and the constant.
fn with_constant(network: &Network, id: Id, wanted: BinaryOp) -> Option<(Id, Id)> {
    network.applications(id).find_map(|(op, c)| match op {
        Op::Binary(b) if *b == wanted && network.is_constant(c[1]) && !network.is_constant(c[0]) => Some((c[0], c[1])),
        Op::Binary(b) if *b == wanted && network.is_constant(c[0]) && !network.is_constant(c[1]) => Some((c[1], c[0])),
        _ => None,
    })
}

/// The factor of each weight that stands for a factor (or term) of each input channel: shape (F, C/group, 1…).
fn per_input_channel(network: &mut Network, s: Id, f: &Filters) -> Option<Id> {
    let [filters, per_group] = [f.weights[0], f.weights[1]];
    let ones = vec![1; f.weights.len() - 2];
    let by_group = spread(network, s, per_group * f.group, &[vec![f.group, 1, per_group], ones.clone()].concat())?;
    if f.group == 1 {
        return network.reshape(by_group, &[vec![1, per_group], ones].concat());
    }
    let shape = [vec![f.group, filters / f.group, per_group], ones.clone()].concat();
    let stretched = network.op(Op::Expand { shape }, &[by_group])?;
    network.reshape(stretched, &[vec![filters, per_group], ones].concat())
}

/// conv(x·s) with a factor for each channel: into the weights. Padding stays zero.
fn scale_before_conv(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let f = filters(network, op, operands)?;
    let (x, s) = with_constant(network, operands[0], BinaryOp::Mul)?;
    let rank = network.rank(operands[0]);
    if network.shape(x) != network.shape(operands[0]) {
        return None;
    }
    let s = along(network, s, rank, channel_axis(f.layout, rank)?, f.weights[1] * f.group)?;
    let factor = per_input_channel(network, s, &f)?;
    let weights = network.binary(BinaryOp::Mul, operands[1], factor)?;
    let mut out = operands.to_vec();
    (out[0], out[1]) = (x, weights);
    network.op(op.clone(), &out)
}

/// conv(x + s) without padding: the sum over the window goes into the bias.
fn shift_before_conv(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Op::Conv { window, .. } = op else { return None };
    if window.pad_before.iter().chain(&window.pad_after).any(|&p| p != 0) {
        return None;
    }
    let f = filters(network, op, operands)?;
    let (x, s) = with_constant(network, operands[0], BinaryOp::Add)?;
    let rank = network.rank(operands[0]);
    if network.shape(x) != network.shape(operands[0]) {
        return None;
    }
    let s = along(network, s, rank, channel_axis(f.layout, rank)?, f.weights[1] * f.group)?;
    let term = per_input_channel(network, s, &f)?;
    let products = network.binary(BinaryOp::Mul, operands[1], term)?;
    let axes = (1..f.weights.len()).collect();
    let mut bias = network.op(Op::Reduce { op: ReduceOp::Sum, axes, keep: false }, &[products])?;
    if let Some(&before) = operands.get(2) {
        bias = network.binary(BinaryOp::Add, before, bias)?;
    }
    network.op(op.clone(), &[x, operands[1], bias])
}

/// Zero padding of the image goes into the window.
fn pad_before_conv(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let Op::Conv { window, group, layout } = op else { return None };
    let found = network.applications(operands[0]).find_map(|(op, c)| match op {
        Op::Pad { before, after, value: 0 } => Some((before.clone(), after.clone(), c[0])),
        _ => None,
    });
    let (before, after, x) = found?;
    let rank = before.len();
    let spatial = match layout {
        Layout::Nchw => 2..rank,
        Layout::Nhwc => 1..rank - 1,
        Layout::Blocked(_) => return None,
    };
    if (0..rank).any(|d| !spatial.contains(&d) && before[d] + after[d] != 0) {
        return None;
    }
    let mut window = window.clone();
    for (i, d) in spatial.enumerate() {
        window.pad_before[i] += before[d];
        window.pad_after[i] += after[d];
    }
    let mut out = operands.to_vec();
    out[0] = x;
    network.op(Op::Conv { window, group: *group, layout: *layout }, &out)
}

fn transposes(op: &Op) -> (bool, bool) {
    match *op {
        Op::MatMul { transpose_a, transpose_b } => (transpose_a, transpose_b),
        _ => unreachable!("a matrix product"),
    }
}

fn matmul_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    if network.is_constant(m.get('x')) || network.rank(operands[1]) != 2 {
        return None;
    }
    let (_, transpose_b) = transposes(op);
    let rank = network.rank(m.class);
    let n = network.shape(m.class)[rank - 1];
    let s = along(network, m.get('s'), rank, rank - 1, n)?;
    let s = if transpose_b { spread(network, s, n, &[n, 1])? } else { s };
    let weights = network.binary(BinaryOp::Mul, operands[1], s)?;
    network.op(op.clone(), &[operands[0], weights])
}

fn scale_before_matmul(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let (transpose_a, transpose_b) = transposes(op);
    let x = m.get('x');
    let scaled = network.shape(operands[0]).to_vec();
    if network.is_constant(x) || transpose_a || network.rank(operands[1]) != 2 || network.shape(x) != scaled {
        return None;
    }
    let k = *scaled.last()?;
    let s = along(network, m.get('s'), scaled.len(), scaled.len() - 1, k)?;
    let s = if transpose_b { s } else { spread(network, s, k, &[k, 1])? };
    let weights = network.binary(BinaryOp::Mul, operands[1], s)?;
    network.op(op.clone(), &[x, weights])
}

/// (x·s)·w = (x·w)·s for a number s: after the product it is an epilogue.
fn scalar_out_of_product(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let (x, s) = (m.get('x'), m.get('s'));
    if network.shape(s).iter().any(|&e| e != 1) || [x, m.get('w')].iter().any(|&o| network.is_constant(o)) {
        return None;
    }
    let position = operands.iter().position(|&o| network.find(o) != network.find(m.get('w')))?;
    let mut operands = operands.to_vec();
    operands[position] = x;
    let product = network.op(op.clone(), &operands)?;
    let number = network.reshape(s, &[])?;
    network.binary(BinaryOp::Mul, product, number)
}

fn transpose_transpose(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Transpose { perm: p }, Op::Transpose { perm: q }) = (m.application('p').0, m.application('q').0) else {
        return None;
    };
    let composed: Vec<usize> = p.iter().map(|&i| q[i]).collect();
    network.transpose(m.get('x'), &composed)
}

/// A transposition that moves only dimensions of extent 1 is a reshape.
fn transpose_units(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let shape = network.shape(m.class).to_vec();
    let units = crate::graph::egraph::network::moves_only_units(network.shape(m.get('x')), perm);
    units.then(|| network.reshape(m.get('x'), &shape))?
}

fn reshape_reshape(network: &mut Network, m: &Match) -> Option<Id> {
    let shape = network.shape(m.class).to_vec();
    network.reshape(m.get('x'), &shape)
}

/// Operands of one type of which the same transposition or reshape is equal.
fn same_copy(network: &Network, m: &Match) -> Option<(Id, Id)> {
    let (op, operands) = m.root();
    let x = network.find(operands[0]);
    let other = |(o, c): (&Op, &[Id])| (o == op && network.find(c[0]) != x).then_some(c[0]);
    network.applications(m.class).filter_map(other).find(|&y| network.ty(y) == network.ty(x)).map(|y| (x, y))
}

/// A slice of the operand's shape that starts at the first element: one that runs backwards has the same shape too.
fn slice_same(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Slice { starts, steps, .. } = m.application('s').0 else { return None };
    if starts.iter().any(|&s| s != 0) || steps.iter().any(|&s| s != 1) {
        return None;
    }
    operand(network, m)
}

fn slice_slice(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Slice { starts: a, ends: e, steps: s }, Op::Slice { starts: b, steps: t, .. }) =
        (m.application('a').0, m.application('b').0)
    else {
        return None;
    };
    if s.iter().chain(t).any(|&step| step < 1) {
        return None;
    }
    let starts: Vec<i64> = (0..a.len()).map(|d| b[d] + a[d] * t[d]).collect();
    let steps: Vec<i64> = (0..a.len()).map(|d| s[d] * t[d]).collect();
    // One past the last element that is taken, so that the range stays inside the operand.
    let count = |d: usize| (e[d] - a[d] + s[d] - 1) / s[d];
    let ends = (0..a.len()).map(|d| if count(d) == 0 { starts[d] } else { starts[d] + (count(d) - 1) * steps[d] + 1 });
    let ends = ends.collect();
    network.op(Op::Slice { starts, ends, steps }, &[m.get('x')])
}

/// A slice that lies in one operand of a concatenation.
fn slice_concat(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Slice { starts, ends, steps } = m.application('a').0 else { return None };
    let (Op::Concat { axis }, pieces) = m.application('b') else { return None };
    let axis = *axis;
    if steps[axis] < 1 {
        return None;
    }
    let mut offset = 0;
    for &piece in pieces {
        let extent = network.shape(piece)[axis];
        if starts[axis] >= offset && ends[axis] <= offset + extent {
            let (mut starts, mut ends) = (starts.clone(), ends.clone());
            starts[axis] -= offset;
            ends[axis] -= offset;
            return network.op(Op::Slice { starts, ends, steps: steps.clone() }, &[piece]);
        }
        offset += extent;
    }
    None
}

/// Pairs of ranges of dimensions, of the old shape and the new, that hold the same elements.
pub fn factor_groups(from: &[i64], to: &[i64]) -> Option<Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>> {
    if from.contains(&0) || to.contains(&0) {
        return None;
    }
    let (mut i, mut j) = (0, 0);
    let mut groups = vec![];
    while i < from.len() || j < to.len() {
        let (start_i, start_j) = (i, j);
        let (mut a, mut b) = (1, 1);
        if i < from.len() {
            a = from[i];
            i += 1;
        }
        if j < to.len() && (a != 1 || i == from.len() || to[j] == 1) {
            b = to[j];
            j += 1;
        }
        while a != b {
            if a < b {
                a *= *from.get(i)?;
                i += 1;
            } else {
                b *= *to.get(j)?;
                j += 1;
            }
        }
        groups.push((start_i..i, start_j..j));
    }
    Some(groups)
}

/// reshape(slice(x)) = slice(reshape(x)) where the slice keeps whole rows of the dimensions that are split off.
fn reshape_slice(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Slice { starts, ends, steps } = m.application('s').0 else { return None };
    let x = m.get('x');
    let whole = network.shape(x).to_vec();
    let cut = network.shape(m.root().1[0]).to_vec();
    let result = network.shape(m.class).to_vec();
    let (mut shape, mut from, mut until) = (vec![], vec![], vec![]);
    // A dimension of which one place is left joins the dimensions after it.
    let mut groups: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> = vec![];
    for (old, new) in factor_groups(&cut, &result)? {
        match groups.last_mut() {
            Some((before, none)) if none.start == none.end && before.clone().any(|d| cut[d] != whole[d]) => {
                (before.end, *none) = (old.end, new);
            }
            _ => groups.push((old, new)),
        }
    }
    for (old, new) in groups {
        let untouched = old.clone().all(|d| cut[d] == whole[d] && steps[d] == 1);
        let sliced: Vec<usize> = old.clone().filter(|&d| cut[d] != whole[d] || steps[d] != 1).collect();
        if untouched {
            shape.extend(&result[new.clone()]);
            from.extend(new.clone().map(|_| 0));
            until.extend(&result[new]);
            continue;
        }
        // The slice is of the slowest dimension of the group; the new slowest dimension must divide it evenly.
        let [d] = sliced[..] else { return None };
        if steps[d] != 1 || old.clone().take_while(|&e| e != d).any(|e| cut[e] != 1) {
            return None;
        }
        let inner_old: i64 = old.clone().filter(|&e| e > d).map(|e| cut[e]).product();
        if new.is_empty() {
            return None;
        }
        let lead = new.clone().find(|&e| result[e] != 1).unwrap_or(new.start);
        let inner_new: i64 = new.clone().filter(|&e| e > lead).map(|e| result[e]).product();
        let scale = |v: i64| (v * inner_old % inner_new == 0).then_some(v * inner_old / inner_new);
        let (start, end, all) = (scale(starts[d])?, scale(ends[d])?, scale(whole[d])?);
        for e in new {
            let range = if e == lead { (start, end, all) } else { (0, result[e], result[e]) };
            from.push(range.0);
            until.push(range.1);
            shape.push(range.2);
        }
    }
    if shape == whole {
        return None;
    }
    let reshaped = network.reshape(x, &shape)?;
    let steps = vec![1; shape.len()];
    network.op(Op::Slice { starts: from, ends: until, steps }, &[reshaped])
}

/// A gather at one constant place is a slice.
fn gather_scalar(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Gather { axis } = *m.application('g').0 else { return None };
    let tensor = network.value(m.get('i'))?.clone();
    if tensor.len() != 1 {
        return None;
    }
    let index = match tensor.dtype {
        DType::I64 => tensor.to_vec::<i64>()[0],
        DType::I32 => tensor.to_vec::<i32>()[0] as i64,
        _ => return None,
    };
    let (shape, result) = (network.shape(m.get('x')).to_vec(), network.shape(m.class).to_vec());
    let place = if index < 0 { index + shape[axis] } else { index };
    if !(0..shape[axis]).contains(&place) {
        return None;
    }
    let (mut starts, mut ends) = (vec![0; shape.len()], shape.clone());
    (starts[axis], ends[axis]) = (place, place + 1);
    let slice = network.op(Op::Slice { starts, ends, steps: vec![1; shape.len()] }, &[m.get('x')])?;
    network.reshape(slice, &result)
}

/// An operand that is stretched first does not need to be: elementwise operators stretch their operands themselves.
fn expand_operand(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.root();
    let mut changed = false;
    let direct = |&c: &Id| {
        let inner = network.applications(c).find_map(|(op, o)| matches!(op, Op::Expand { .. }).then(|| o[0]));
        changed |= inner.is_some();
        inner.unwrap_or(c)
    };
    let operands: Vec<Id> = operands.iter().map(direct).collect();
    changed.then(|| network.op(op.clone(), &operands))?
}

/// A transposed operand is read transposed, when what remains of the permutation keeps rows contiguous.
fn untransposed(network: &mut Network, perm: &[usize], x: Id, constant: bool) -> Option<Id> {
    let mut rest = perm.to_vec();
    let r = rest.len();
    rest.swap(r - 2, r - 1);
    let improves = rest[r - 1] == r - 1 && perm[r - 1] != r - 1;
    (improves && !constant).then(|| network.transpose(x, &rest))?
}

fn matmul_transposed_a(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let (transpose_a, transpose_b) = transposes(m.application('m').0);
    let a = untransposed(network, perm, m.get('x'), network.is_constant(m.get('x')))?;
    network.op(Op::MatMul { transpose_a: !transpose_a, transpose_b }, &[a, m.get('w')])
}

fn matmul_transposed_b(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let (transpose_a, transpose_b) = transposes(m.application('m').0);
    let b = untransposed(network, perm, m.get('w'), network.is_constant(m.get('w')))?;
    network.op(Op::MatMul { transpose_a, transpose_b: !transpose_b }, &[m.get('x'), b])
}

/// Products of one operand with several constant matrices are one product with their concatenation, in slices.
fn matmul_shared_input(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let siblings = products_of(network, operands[0], op);
    let position = siblings.iter().position(|s| s.class == network.find(m.class))?;
    if siblings.iter().all(|s| s.bias.is_some()) {
        return None;
    }
    let whole = merged_product(network, op, operands[0], &siblings)?;
    columns(network, whole, &siblings, position)
}

/// The same with a bias for each product: the sum is sliced.
fn matmul_shared_input_bias(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let siblings = products_of(network, operands[0], op);
    let own = |s: &Product| s.bias.is_some_and(|(sum, _)| sum == network.find(m.class));
    let position = siblings.iter().position(own)?;
    let parts: Option<Vec<Id>> = siblings.iter().map(|s| s.bias.map(|b| b.1)).collect();
    let parts = parts?;
    let whole = merged_product(network, op, operands[0], &siblings)?;
    let bias = network.op(Op::Concat { axis: 0 }, &parts)?;
    let sum = network.binary(BinaryOp::Add, whole, bias)?;
    columns(network, sum, &siblings, position)
}

fn merged_product(network: &mut Network, op: &Op, x: Id, siblings: &[Product]) -> Option<Id> {
    if siblings.len() < 2 || network.is_constant(x) {
        return None;
    }
    let axis = if transposes(op).1 { 0 } else { 1 };
    let weights: Vec<Id> = siblings.iter().map(|s| s.weights).collect();
    let weights = network.op(Op::Concat { axis }, &weights)?;
    network.op(op.clone(), &[x, weights])
}

fn columns(network: &mut Network, whole: Id, siblings: &[Product], position: usize) -> Option<Id> {
    let mut ends = network.shape(whole).to_vec();
    let rank = ends.len();
    let mut starts = vec![0; rank];
    starts[rank - 1] = siblings[..position].iter().map(|s| s.columns).sum();
    ends[rank - 1] = starts[rank - 1] + siblings[position].columns;
    network.op(Op::Slice { starts, ends, steps: vec![1; rank] }, &[whole])
}

struct Product {
    class: Id,
    weights: Id,
    columns: i64,
    /// The class of the sum with a bias vector, and the vector.
    bias: Option<(Id, Id)>,
}

/// The products `op(x, constant)` in the order in which they were added, without those made of others.
fn products_of(network: &Network, x: Id, op: &Op) -> Vec<Product> {
    let x = network.find(x);
    let mut out: Vec<Product> = vec![];
    let mut parents: Vec<Id> = network.egraph[x].parents().collect();
    parents.sort_unstable();
    for parent in parents {
        let term = network.egraph.id_to_node(parent);
        let class = network.find(parent);
        let same = matches!(&term.head, crate::graph::egraph::network::Head::Op(o) if o == op);
        if !same || network.find(term.children[0]) != x || out.iter().any(|p| p.class == class) {
            continue;
        }
        let weights = network.find(term.children[1]);
        // Only matrices that the graph came with: merged ones are concatenations, scaled ones are products.
        if network.value(weights).is_none() || network.rank(weights) != 2 {
            continue;
        }
        let columns = *network.shape(class).last().expect("a matrix product has columns");
        let bias = network.egraph[class].parents().find_map(|p| {
            let term = network.egraph.id_to_node(p);
            let sum = matches!(term.head, crate::graph::egraph::network::Head::Op(Op::Binary(BinaryOp::Add)));
            let other = term.children.iter().map(|&c| network.find(c)).find(|&c| c != class)?;
            let vector = sum && network.is_constant(other) && network.shape(other) == [columns];
            vector.then_some((network.find(p), other))
        });
        out.push(Product { class, weights, columns, bias });
    }
    out
}

/// A window that covers the whole image once is a reduction.
fn whole_pool(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Pool { kind, window, layout } = m.application('p').0 else { return None };
    let shape = network.shape(m.get('x')).to_vec();
    let spatial = match layout {
        Layout::Nchw => 2..shape.len(),
        Layout::Nhwc => 1..shape.len() - 1,
        Layout::Blocked(_) => return None,
    };
    let axes: Vec<usize> = spatial.collect();
    let padded = window.pad_before.iter().chain(&window.pad_after).any(|&p| p != 0);
    let covers = axes.iter().enumerate().all(|(i, &d)| window.kernel[i] == shape[d] && window.dilation[i] == 1);
    if padded || !covers || !is_real(network, m.class) {
        return None;
    }
    let op = if *kind == PoolKind::Max { ReduceOp::Max } else { ReduceOp::Mean };
    network.op(Op::Reduce { op, axes, keep: true }, &[m.get('x')])
}
