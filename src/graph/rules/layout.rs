//! Layouts: convolution and pooling over channels-last images.
//!
//! Each row replaces an operator over NCHW by a transposition of the same operator over NHWC of transposed operands. The
//! other rows move transpositions from operands to results, towards the outputs, and there is no row back: that way the
//! e-graph stays linear in the network, and every value that can be had in the new layout is there.

use crate::graph::egraph::network::{Network, inverse, moves_only_units};
use crate::graph::op::{Layout, Op};
use crate::graph::rules::algebra::copies::factor_groups;
use crate::graph::rules::pattern::Keep::Beside;
use crate::graph::rules::pattern::{Match, Rule, build};
use egg::Id;

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        build  (Beside,  "conv-nhwc",               "(conv@c ...)",                      to_channels_last),
        build  (Beside,  "conv-transpose-nhwc",     "(conv_transpose@c ...)",            to_channels_last),
        build  (Beside,  "max-pool-nhwc",           "(max_pool@c ...)",                  to_channels_last),
        build  (Beside,  "average-pool-nhwc",       "(average_pool@c ...)",              to_channels_last),
        build  (Beside,  "elementwise-transpose",   "{elementwise}",                     elementwise_transpose),
        build  (Beside,  "concat-transpose",        "(concat@c ...)",                    concat_transpose),
        build  (Beside,  "slice-transpose",         "(slice@c (transpose@p ?x))",        moved_attributes),
        build  (Beside,  "pad-transpose",           "(pad@c (transpose@p ?x))",          moved_attributes),
        build  (Beside,  "upsample-transpose",      "(upsample@c (transpose@p ?x))",     moved_attributes),
        build  (Beside,  "softmax-transpose",       "(softmax@c (transpose@p ?x))",      moved_attributes),
        build  (Beside,  "sum-transpose",           "(reduce_sum@c (transpose@p ?x))",   reduce_transpose),
        build  (Beside,  "mean-transpose",          "(reduce_mean@c (transpose@p ?x))",  reduce_transpose),
        build  (Beside,  "max-transpose",           "(reduce_max@c (transpose@p ?x))",   reduce_transpose),
        build  (Beside,  "min-transpose",           "(reduce_min@c (transpose@p ?x))",   reduce_transpose),
        build  (Beside,  "reshape-transpose",       "(reshape@c (transpose@p ?x))",      reshape_transpose),
    ]
}

/// N, spatial…, C from N, C, spatial….
pub fn channels_last(rank: usize) -> Vec<usize> {
    std::iter::once(0).chain(2..rank).chain([1]).collect()
}

/// N, C, spatial… from N, spatial…, C.
pub fn channels_first(rank: usize) -> Vec<usize> {
    inverse(&channels_last(rank))
}

fn in_channels_last(op: &Op) -> Option<Op> {
    let mut op = op.clone();
    match &mut op {
        Op::Conv { layout, .. } | Op::ConvTranspose { layout, .. } | Op::Pool { layout, .. }
            if *layout == Layout::Nchw =>
        {
            *layout = Layout::Nhwc;
            Some(op)
        }
        _ => None,
    }
}

fn to_channels_last(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let op = in_channels_last(op)?;
    let rank = network.rank(operands[0]);
    let mut operands = operands.to_vec();
    operands[0] = network.transpose(operands[0], &channels_last(rank))?;
    let result = network.op(op, &operands)?;
    network.transpose(result, &channels_first(rank))
}

/// The operand of a transposition by `perm` in the class, or of a reshape that is one.
fn under(network: &Network, id: Id, perm: &[usize]) -> Option<Id> {
    network.applications(id).find_map(|(op, c)| match op {
        Op::Transpose { perm: p } if p == perm => Some(c[0]),
        Op::Reshape { shape } => {
            let before = network.shape(c[0]);
            let same = before.len() == perm.len() && perm.iter().zip(shape).all(|(&p, &e)| before[p] == e);
            (same && moves_only_units(before, perm) && before != shape).then_some(c[0])
        }
        _ => None,
    })
}

/// `id` before a transposition by `perm`, for an operator over tensors of that rank. Constants and small operands are
/// transposed back; of others at most as many as `misses` allows.
fn before(network: &mut Network, id: Id, perm: &[usize], misses: &mut usize) -> Option<Id> {
    let rank = perm.len();
    if network.rank(id) == rank
        && let Some(inner) = under(network, id, perm)
    {
        return Some(inner);
    }
    let shape = network.shape(id).to_vec();
    if shape.iter().all(|&e| e == 1) {
        return Some(id);
    }
    let full: Vec<i64> = std::iter::repeat_n(1, rank - shape.len()).chain(shape).collect();
    if !network.is_constant(id) && full.iter().filter(|&&e| e != 1).count() > 1 {
        *misses = misses.checked_sub(1)?;
    }
    let aligned = network.reshape(id, &full)?;
    network.transpose(aligned, &inverse(perm))
}

/// The transposition that the operands share, and the operands before it.
fn common(network: &mut Network, operands: &[Id], rank: usize) -> Option<(Vec<usize>, Vec<Id>)> {
    let image = channels_first(rank.max(2));
    let mut perms = vec![];
    for &c in operands {
        if network.rank(c) == rank && !network.is_constant(c) {
            perms.extend(network.applications(c).filter_map(|(op, _)| match op {
                Op::Transpose { perm } => Some(perm.clone()),
                _ => None,
            }));
        }
    }
    perms.sort_by_key(|p| *p != image);
    let by_units =
        rank >= 3 && operands.iter().any(|&c| network.rank(c) == rank && under(network, c, &image).is_some());
    let perm = perms.into_iter().next().or(by_units.then(|| image.clone()))?;
    let mut misses = if perm == image { 1 } else { 0 };
    let inner: Option<Vec<Id>> = operands.iter().map(|&c| before(network, c, &perm, &mut misses)).collect();
    Some((perm, inner?))
}

fn elementwise_transpose(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.root();
    let rank = network.rank(m.class);
    let (perm, inner) = common(network, operands, rank)?;
    let result = network.op(op.clone(), &inner)?;
    network.transpose(result, &perm)
}

fn concat_transpose(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Concat { axis }, operands) = m.application('c') else { return None };
    let rank = network.rank(m.class);
    let (perm, inner) = common(network, operands, rank)?;
    let result = network.op(Op::Concat { axis: perm[*axis] }, &inner)?;
    network.transpose(result, &perm)
}

/// Operators with one attribute for each dimension, and those over one axis.
fn moved_attributes(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    fn back<T: Clone>(list: &[T], perm: &[usize]) -> Vec<T> {
        inverse(perm).iter().map(|&i| list[i].clone()).collect()
    }
    let op = match m.application('c').0 {
        Op::Slice { starts, ends, steps } => {
            Op::Slice { starts: back(starts, perm), ends: back(ends, perm), steps: back(steps, perm) }
        }
        Op::Pad { before, after, value } => {
            Op::Pad { before: back(before, perm), after: back(after, perm), value: *value }
        }
        Op::Upsample { factors } => Op::Upsample { factors: back(factors, perm) },
        // Rows of the last dimension are the cheap ones.
        Op::Softmax { axis, log } if perm[*axis] == perm.len() - 1 => Op::Softmax { axis: perm[*axis], log: *log },
        _ => return None,
    };
    let result = network.op(op, &[m.get('x')])?;
    network.transpose(result, perm)
}

fn reduce_transpose(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let Op::Reduce { op, axes, keep } = m.application('c').0 else { return None };
    let mut inner: Vec<usize> = axes.iter().map(|&a| perm[a]).collect();
    inner.sort_unstable();
    let outer: Vec<usize> = if *keep {
        perm.clone()
    } else {
        let left: Vec<usize> = (0..perm.len()).filter(|d| !inner.contains(d)).collect();
        let remaining = (0..perm.len()).filter(|i| !axes.contains(i));
        remaining.map(|i| left.iter().position(|&d| d == perm[i]).expect("a kept dimension")).collect()
    };
    let result = network.op(Op::Reduce { op: *op, axes: inner, keep: *keep }, &[m.get('x')])?;
    network.transpose(result, &outer)
}

/// A reshape that merges or splits dimensions which lie together before the transposition as well.
fn reshape_transpose(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let x = m.get('x');
    let (before, after) = (network.shape(x).to_vec(), network.shape(m.class).to_vec());
    let between: Vec<i64> = perm.iter().map(|&p| before[p]).collect();
    let groups = factor_groups(&between, &after)?;
    // Where each group lies in the operand: its dimensions other than units must be neighbours in the same order.
    let mut placed = vec![];
    for (old, new) in groups {
        let dims: Vec<usize> = old.map(|i| perm[i]).filter(|&d| before[d] != 1).collect();
        let together = dims.windows(2).all(|w| w[0] < w[1] && (w[0] + 1..w[1]).all(|d| before[d] == 1));
        if !together {
            return None;
        }
        placed.push((dims.first().copied(), new));
    }
    // Groups of units only may stand anywhere: first.
    let mut order: Vec<usize> = (0..placed.len()).collect();
    order.sort_by_key(|&g| placed[g].0.map_or(0, |d| d + 1));
    let shape: Vec<i64> = order.iter().flat_map(|&g| after[placed[g].1.clone()].to_vec()).collect();
    let sources: Vec<usize> = order.iter().flat_map(|&g| placed[g].1.clone()).collect();
    let reshaped = network.reshape(x, &shape)?;
    network.transpose(reshaped, &inverse(&sources))
}
