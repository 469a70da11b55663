//! Recognition of functions that exporters decompose: activations, normalization, softmax.

use crate::graph::egraph::network::Network;
use crate::graph::op::{F32, Op, ReduceOp};
use crate::graph::rules::pattern::Keep::{IfSole, Instead};
use crate::graph::rules::pattern::{Match, Rule, build, is_rounded, rewrite};
use crate::runtime::DType;
use egg::Id;

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        rewrite(Instead, "sigmoid",                 "(div 1 (add 1 (exp (neg ?x))))",                                "(sigmoid ?x)"),
        rewrite(Instead, "silu",                    "(mul ?x (sigmoid ?x))",                                         "(silu ?x)"),
        build  (Instead, "hard-sigmoid",            "(min (max (add (mul ?x $a) $b) 0) 1)",                          hard_sigmoid),
        build  (Instead, "hard-sigmoid-max",        "(max (min (add (mul ?x $a) $b) 1) 0)",                          hard_sigmoid),
        rewrite(Instead, "hard-sigmoid-6",          "(mul (min (max (add ?x 3) 0) 6) ~0.16666667)",                   "(hard_sigmoid ?x)"),
        rewrite(Instead, "hard-sigmoid-6-max",      "(mul (max (min (add ?x 3) 6) 0) ~0.16666667)",                   "(hard_sigmoid ?x)"),
        build  (Instead, "hard-swish",              "(mul ?x (hard_sigmoid@h ?x))",                                  hard_swish),
        rewrite(Instead, "hard-swish-6",            "(mul ?x (min (max (add ?x 3) 0) 6) ~0.16666667)",                "(hard_swish ?x)"),
        rewrite(Instead, "hard-swish-6-max",        "(mul ?x (max (min (add ?x 3) 6) 0) ~0.16666667)",                "(hard_swish ?x)"),
        rewrite(Instead, "gelu",                    "(mul ?x 0.5 (add 1 (erf (mul ?x ~0.70710678))))",                "(gelu ?x)"),
        rewrite(Instead, "gelu-half-sum",           "(mul ?x (add 0.5 (mul 0.5 (erf (mul ?x ~0.70710678)))))",        "(gelu ?x)"),
        build  (Instead, "prelu-ge",                "(select (ge ?x 0) ?x (mul ?x $s))",                             prelu),
        build  (Instead, "prelu-gt",                "(select (gt ?x 0) ?x (mul ?x $s))",                             prelu),
        build  (Instead, "prelu-lt",                "(select (lt ?x 0) (mul ?x $s) ?x)",                             prelu),
        build  (Instead, "prelu-le",                "(select (le ?x 0) (mul ?x $s) ?x)",                             prelu),
        build  (Instead, "elu",                     "(select (gt ?x 0) ?x (add (exp ?x) -1))",                       elu),
        build  (Instead, "elu-alpha",               "(select (gt ?x 0) ?x (mul (add (exp ?x) -1) $a))",              elu_alpha),
        build  (Instead, "layer-norm",              "(div ?d (sqrt (add (reduce_mean@m (mul ?d ?d)) $e)))",          layer_norm),
        build  (Instead, "layer-norm-rsqrt",        "(mul ?d (div 1 (sqrt (add (reduce_mean@m (mul ?d ?d)) $e))))",  layer_norm),
        build  (IfSole,  "layer-norm-scale",        "(mul (layer_norm@l ...) $s)",                                   layer_norm_scale),
        build  (IfSole,  "layer-norm-bias",         "(add (layer_norm@l ...) $b)",                                   layer_norm_bias),
        build  (Instead, "softmax",                 "(div ?e (reduce_sum@s ?e))",                                    softmax),
    ]
}

fn hard_sigmoid(network: &mut Network, m: &Match) -> Option<Id> {
    let (alpha, beta) = (network.scalar(m.get('a'))?, network.scalar(m.get('b'))?);
    network.op(Op::HardSigmoid { alpha: F32::new(alpha), beta: F32::new(beta) }, &[m.get('x')])
}

fn hard_swish(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::HardSigmoid { alpha, beta } = *m.application('h').0 else { return None };
    let fits = is_rounded(alpha.get(), 1.0 / 6.0) && beta.get() == 0.5;
    fits.then(|| network.op(Op::HardSwish, &[m.get('x')]))?
}

/// At zero the comparisons differ, but not the results of a finite slope.
fn prelu(network: &mut Network, m: &Match) -> Option<Id> {
    let slope = m.get('s');
    let finite = network.ty(slope).dtype == DType::F32
        && network.value(slope).is_some_and(|t| t.to_vec::<f32>().iter().all(|v| v.is_finite()));
    finite.then(|| network.op(Op::PRelu, &[m.get('x'), slope]))?
}

fn elu(network: &mut Network, m: &Match) -> Option<Id> {
    let one = F32::new(1.0);
    network.op(Op::Elu { alpha: one, scale: one, divisor: one }, &[m.get('x')])
}

fn elu_alpha(network: &mut Network, m: &Match) -> Option<Id> {
    let (alpha, one) = (network.scalar(m.get('a'))?, F32::new(1.0));
    network.op(Op::Elu { alpha: F32::new(alpha), scale: one, divisor: one }, &[m.get('x')])
}

/// The operand of which `d` is the difference to its own mean over the same axes as `m`.
fn centred(network: &Network, d: Id, mean: &Op) -> Option<Id> {
    network.applications(d).find_map(|(op, c)| {
        if !matches!(op, Op::Binary(crate::expr::BinaryOp::Sub)) {
            return None;
        }
        let x = network.find(c[0]);
        network.applications(c[1]).any(|(op, o)| op == mean && network.find(o[0]) == x).then_some(x)
    })
}

fn layer_norm(network: &mut Network, m: &Match) -> Option<Id> {
    let mean = m.application('m').0.clone();
    let epsilon = network.scalar(m.get('e'))?;
    let x = centred(network, m.get('d'), &mean)?;
    let Op::Reduce { op: ReduceOp::Mean, axes, keep: true } = mean else { return None };
    let shape = network.shape(x).to_vec();
    let axis = *axes.iter().min()?;
    let last_axes: Vec<usize> = (axis..shape.len()).collect();
    let mut sorted = axes;
    sorted.sort_unstable();
    if sorted != last_axes || network.ty(x).dtype != DType::F32 {
        return None;
    }
    // One number: the operator stretches its scale.
    let one = network.scalar_f32(1.0);
    network.op(Op::LayerNorm { axis, epsilon: F32::new(epsilon) }, &[x, one])
}

/// A constant operand as a tensor over the normalised dimensions, or as one number.
fn over_normalised(network: &mut Network, c: Id, shape: &[i64], axis: usize) -> Option<Id> {
    let over = &shape[axis..];
    let operand = network.shape(c).to_vec();
    let count: i64 = operand.iter().product();
    if count == 1 {
        return network.reshape(c, &[]);
    }
    let trailing = operand.len().min(over.len());
    (count == over.iter().product::<i64>() && operand[operand.len() - trailing..] == over[over.len() - trailing..])
        .then(|| network.reshape(c, over))?
}

fn layer_norm_scale(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('l');
    let (Op::LayerNorm { axis, .. }, [x, scale]) = (op, operands) else { return None };
    let shape = network.shape(*x).to_vec();
    let factor = over_normalised(network, m.get('s'), &shape, *axis)?;
    let scale = network.binary(crate::expr::BinaryOp::Mul, *scale, factor)?;
    network.op(op.clone(), &[*x, scale])
}

fn layer_norm_bias(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('l');
    let Op::LayerNorm { axis, .. } = op else { return None };
    let shape = network.shape(operands[0]).to_vec();
    let mut bias = over_normalised(network, m.get('b'), &shape, *axis)?;
    if let Some(&before) = operands.get(2) {
        bias = network.binary(crate::expr::BinaryOp::Add, before, bias)?;
    }
    network.op(op.clone(), &[operands[0], operands[1], bias])
}

fn softmax(network: &mut Network, m: &Match) -> Option<Id> {
    use crate::expr::{BinaryOp, UnaryOp};
    let Op::Reduce { op: ReduceOp::Sum, axes, keep: true } = m.application('s').0 else { return None };
    let [axis] = axes[..] else { return None };
    let y = network.applications(m.get('e')).find_map(|(op, c)| (*op == Op::Unary(UnaryOp::Exp)).then(|| c[0]))?;
    // Subtracting the row's maximum first changes nothing; the operator does it anyway.
    let shifted = network.applications(y).find_map(|(op, c)| {
        let row = |i: Id| {
            network.applications(i).any(|(op, o)| {
                matches!(op, Op::Reduce { op: ReduceOp::Max, axes, keep: true } if axes[..] == [axis])
                    && network.find(o[0]) == network.find(c[0])
            })
        };
        (*op == Op::Binary(BinaryOp::Sub) && row(c[1])).then(|| c[0])
    });
    network.op(Op::Softmax { axis, log: false }, &[shifted.unwrap_or(y)])
}
