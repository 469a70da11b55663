//! Channel-blocked layouts: N, C/b, H, W, b with blocks of as many channels as a vector has lanes.
//!
//! Each of the first rows replaces an operator over NCHW by the same operator over blocks, between a change of layout and
//! one back; the others move the change back from operands to results. As for channels-last there is no row the other way.
//! Only images whose channels are whole blocks are considered: nothing is padded, and every element keeps its meaning.

use crate::graph::egraph::network::Network;
use crate::graph::op::{Layout, Op};
use crate::graph::rules::pattern::Keep::Beside;
use crate::graph::rules::pattern::{Match, Rule, build};
use egg::Id;

/// The rows for blocks of `lanes` channels; none for other numbers than 4, 8 and 16.
#[rustfmt::skip]
pub fn rules(lanes: usize) -> Vec<Rule> {
    let to_blocks = match lanes {
        4 => to_blocks::<4>,
        8 => to_blocks::<8>,
        16 => to_blocks::<16>,
        _ => return vec![],
    };
    vec![
        build  (Beside,  "conv-blocked",            "(conv@c ...)",                      to_blocks),
        build  (Beside,  "max-pool-blocked",        "(max_pool@c ...)",                  to_blocks),
        build  (Beside,  "average-pool-blocked",    "(average_pool@c ...)",              to_blocks),
        build  (Beside,  "block-unblock",           "(block (unblock ?x))",              block_unblock),
        build  (Beside,  "elementwise-unblock",     "{elementwise}",                     elementwise_unblock),
        build  (Beside,  "concat-unblock",          "(concat@c ...)",                    concat_unblock),
        build  (Beside,  "sum-unblock",             "(reduce_sum@c (unblock ?x))",       reduce_unblock),
        build  (Beside,  "mean-unblock",            "(reduce_mean@c (unblock ?x))",      reduce_unblock),
        build  (Beside,  "max-unblock",             "(reduce_max@c (unblock ?x))",       reduce_unblock),
    ]
}

/// The image in blocks of `b` channels, where it is not in them already.
fn block(network: &mut Network, id: Id, b: i64) -> Option<Id> {
    let shape = network.shape(id);
    if shape.len() != 4 || shape[1] % b != 0 {
        return None;
    }
    match under(network, id).filter(|&inner| width(network, inner) == b) {
        Some(inner) => Some(inner),
        None => network.op(Op::Block { block: b as u32 }, &[id]),
    }
}

/// The image of whole blocks of which the class is the unblocked one.
fn under(network: &Network, id: Id) -> Option<Id> {
    network.applications(id).find_map(|(op, c)| match op {
        Op::Unblock { channels } if channels % width(network, c[0]) == 0 => Some(c[0]),
        _ => None,
    })
}

/// Channels of one block.
fn width(network: &Network, blocked: Id) -> i64 {
    *network.shape(blocked).last().unwrap_or(&1)
}

fn to_blocks<const B: i64>(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let mut op = op.clone();
    let channels = network.shape(m.class).get(1).copied().filter(|c| c % B == 0)?;
    match &mut op {
        Op::Conv { layout, .. } | Op::Pool { layout, .. } if *layout == Layout::Nchw => {
            *layout = Layout::Blocked(B as u32);
        }
        _ => return None,
    }
    let mut operands = operands.to_vec();
    operands[0] = block(network, operands[0], B)?;
    let result = network.op(op, &operands)?;
    network.op(Op::Unblock { channels }, &[result])
}

fn block_unblock(_: &mut Network, m: &Match) -> Option<Id> {
    // The types agree, or the row does not apply: blocks of another width have another shape.
    Some(m.get('x'))
}

fn elementwise_unblock(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.root();
    let channels = *network.shape(m.class).get(1)?;
    let b = operands.iter().find_map(|&c| under(network, c)).map(|inner| width(network, inner))?;
    let mut misses = 1;
    let inner: Option<Vec<Id>> = operands.iter().map(|&c| before(network, c, b, &mut misses)).collect();
    let result = network.op(op.clone(), &inner?)?;
    network.op(Op::Unblock { channels }, &[result])
}

/// An operand of an elementwise operator over images, for the same operator over blocks of `b` channels. Values that are
/// no whole images are free to change; of the others at most as many as `misses` allows.
fn before(network: &mut Network, id: Id, b: i64, misses: &mut usize) -> Option<Id> {
    let shape = network.shape(id).to_vec();
    if shape.iter().all(|&e| e == 1) {
        return Some(id);
    }
    let full: Vec<i64> = std::iter::repeat_n(1, 4usize.checked_sub(shape.len())?).chain(shape).collect();
    let [n, c, h, w] = full[..] else { return None };
    if c == 1 {
        return network.reshape(id, &[n, 1, h, w, 1]);
    }
    if c % b != 0 {
        return None;
    }
    if h == 1 && w == 1 {
        return network.reshape(id, &[n, c / b, 1, 1, b]);
    }
    if !network.is_constant(id) && under(network, id).is_none() {
        *misses = misses.checked_sub(1)?;
    }
    let aligned = network.reshape(id, &full)?;
    block(network, aligned, b)
}

fn concat_unblock(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('c');
    let channels = *network.shape(m.class).get(1)?;
    let inner: Option<Vec<Id>> = operands.iter().map(|&c| under(network, c)).collect();
    let result = network.op(op.clone(), &inner?)?;
    network.op(Op::Unblock { channels }, &[result])
}

/// Reductions over the whole of each channel.
fn reduce_unblock(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, _) = m.application('c');
    let Op::Reduce { axes, .. } = op else { return None };
    if axes[..] != [2, 3] {
        return None;
    }
    let result = network.op(op.clone(), &[m.get('x')])?;
    let shape = network.shape(m.class).to_vec();
    network.reshape(result, &shape)
}
