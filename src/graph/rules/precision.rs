//! Precision: products and convolutions of f32 whose operands have 16 bits, with sums in f32.
//!
//! Products of what a file stores in 16 bits read it as it is, where the target sums such products: no number changes, and the order
//! of the sum alone does. Where a precision is asked for, a row replaces an operator by the same one of rounded operands: what
//! computes them may store them in 16 bits, and weights are so from their folding on. Sums stay in f32, and nothing rounds their
//! result. The rows run once between those that fold constants into weights and those that multiply layouts and algorithms: scales
//! are in the weights before these are rounded, and no transform sees rounded numbers. Convolutions of groups of channels, which fill
//! few lanes, and products where the target has none stand beside those of f32. Where a value is rounded for a convolution,
//! others may read it rounded: then it is stored once, in 16 bits.

use crate::expr::choice::choice;
use crate::expr::scalar::number::{f16_to_f32, f32_to_f16};
use crate::graph::egraph::network::Network;
use crate::graph::op::Op;
use crate::graph::rules::pattern::Keep::{Beside, Instead};
use crate::graph::rules::pattern::{Match, Rule, build};
use crate::runtime::DType;
use egg::Id;

/// The type of the operands of products and convolutions that a network has in f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Precision {
    /// The types of the network.
    #[default]
    F32,
    /// bf16: the range of f32, and 8 significant bits.
    Bf16,
    /// f16: 11 significant bits, and numbers up to 65,504; larger ones become infinite.
    F16,
}

impl Precision {
    /// The type that operands in f32 are rounded to; `None` where they stay.
    pub fn half(self) -> Option<DType> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        }
    }
}

choice!(Precision, "precision", [("f32", Precision::F32), ("bf16", Precision::Bf16), ("f16", Precision::F16)]);

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        build  (Instead, "conv-halves",             "(conv@c ...)",                      conv_of_halves),
        build  (Instead, "matmul-halves",           "(matmul@c ...)",                    of_multiplied_halves),
        build  (Beside,  "conv-narrow",             "(conv@c ...)",                      of_halves),
        build  (Beside,  "conv-transpose-narrow",   "(conv_transpose@c ...)",            of_halves),
        build  (Beside,  "matmul-narrow",           "(matmul@c ...)",                    of_halves),
        build  (Beside,  "conv-widened",            "(conv@c ...)",                      of_widened),
        build  (Beside,  "matmul-widened",          "(matmul@c ...)",                    of_widened),
        build  (Beside,  "elementwise-halves",      "{elementwise}",                     reads_halves),
        build  (Instead, "max-pool-halves",         "(cast@c (max_pool@p ...))",         narrowed_first),
        build  (Instead, "concat-halves",           "(cast@c (concat@p ...))",           narrowed_first),
        build  (Beside,  "conv-sum-halves",         "(add@s (conv@p ...) ?y)",           sum_of_rounded),
    ]
}

fn conv_of_halves(network: &mut Network, m: &Match) -> Option<Id> {
    if has_groups(m) { None } else { of_multiplied_halves(network, m) }
}

/// As [`of_halves`], where the target multiplies halves without widening them.
fn of_multiplied_halves(network: &mut Network, m: &Match) -> Option<Id> {
    let half = network.halves?;
    if network.half_products.contains(&half) { of_halves(network, m) } else { None }
}

/// Returns true for the convolution at the root whose groups have one channel each.
fn is_depthwise(network: &Network, m: &Match) -> bool {
    has_groups(m) && network.shape(m.root().1[1])[1] == 1
}

/// Returns true for a convolution at the root of groups of channels.
fn has_groups(m: &Match) -> bool {
    matches!(m.root(), (Op::Conv { group, .. }, _) if *group > 1)
}

/// The operator at the root with operands of 16 bits, where both are f32.
fn of_halves(network: &mut Network, m: &Match) -> Option<Id> {
    let half = network.halves?;
    let (op, operands) = m.root();
    if operands[..2].iter().any(|&id| network.ty(id).dtype != DType::F32) {
        return None;
    }
    let (mut x, w) = (rounded(network, operands[0], half)?, rounded(network, operands[1], half)?);
    // sums are f32 where both operands have one type
    if network.ty(x).dtype != network.ty(w).dtype || matches!(op, Op::ConvTranspose { .. }) {
        x = network.op(Op::Cast(DType::F32), &[x])?;
    }
    let operands: Vec<Id> = [x, w].into_iter().chain(operands[2..].iter().copied()).collect();
    network.op(op.clone(), &operands)
}

/// The operator at the root with operands as a file stores them, where these are halves that the target multiplies.
fn of_widened(network: &mut Network, m: &Match) -> Option<Id> {
    if network.halves.is_some() || is_depthwise(network, m) {
        return None;
    }
    let (op, operands) = m.root();
    let products = network.half_products.clone();
    let half =
        products.into_iter().find(|&half| operands[..2].iter().any(|&id| widened(network, id, half).is_some()))?;
    let stored = |network: &mut Network, id| match widened(network, id, half) {
        None if holds_halves(network, id, half) => network.op(Op::Cast(half), &[id]),
        stored => stored,
    };
    let (x, w) = (stored(network, operands[0])?, stored(network, operands[1])?);
    let operands: Vec<Id> = [x, w].into_iter().chain(operands[2..].iter().copied()).collect();
    network.op(op.clone(), &operands)
}

/// The class of halves that one of f32 was widened from.
fn widened(network: &Network, id: Id, half: DType) -> Option<Id> {
    network.converted_from(id, |from, to| (from, to) == (half, DType::F32))
}

/// Returns true for a constant that rounding to halves does not change.
fn holds_halves(network: &Network, id: Id, half: DType) -> bool {
    let exact = |bits: u32| match half {
        DType::BF16 => bits & 0xffff == 0,
        _ => f16_to_f32(f32_to_f16(f32::from_bits(bits))).to_bits() == bits,
    };
    network.value(id).is_some_and(|t| {
        t.dtype == DType::F32 && t.data.chunks_exact(4).all(|b| exact(u32::from_le_bytes([b[0], b[1], b[2], b[3]])))
    })
}

/// The operator at the root with operands that convolutions read rounded, where some do. Numbers that become whole or truth
/// values stay as they are, and so do the sums between the matrix products of transformers, whose errors add up from layer to
/// layer: with them rounded BERT's error is 1.5 times as large.
fn reads_halves(network: &mut Network, m: &Match) -> Option<Id> {
    let half = network.halves?;
    let (op, operands) = m.root();
    if matches!(op, Op::Cast(_)) || network.ty(m.class).dtype != DType::F32 {
        return None;
    }
    let mut changed = false;
    let mut operands = operands.to_vec();
    for x in &mut operands {
        let stored = network.ty(*x).dtype == DType::F32 && !network.is_constant(*x) && !network.becomes_whole(*x);
        let rounded = stored.then(|| network.known(Op::Cast(half), &[*x])).flatten();
        if let Some(rounded) = rounded.filter(|&id| network.is_read_by(id, |op| matches!(op, Op::Conv { .. }))) {
            *x = network.op(Op::Cast(DType::F32), &[rounded])?;
            changed = true;
        }
    }
    changed.then(|| network.op(op.clone(), &operands)).flatten()
}

/// An operator that moves numbers, or takes the largest, of rounded ones: rounding keeps their order.
fn narrowed_first(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('p');
    let &Op::Cast(half) = m.application('c').0 else { return None };
    let narrows =
        network.halves == Some(half) || half.is_half() && operands.iter().all(|&x| widened(network, x, half).is_some());
    if !narrows || operands.iter().any(|&x| network.ty(x).dtype != DType::F32) {
        return None;
    }
    let rounded: Option<Vec<Id>> = operands.iter().map(|&x| rounded(network, x, half)).collect();
    network.op(op.clone(), &rounded?)
}

/// A sum with the result of a convolution whose other operand is stored: rounded, that takes half the memory.
fn sum_of_rounded(network: &mut Network, m: &Match) -> Option<Id> {
    let half = network.halves?;
    let y = m.get('y');
    let stored =
        network.ty(y).dtype == DType::F32 && !network.is_constant(y) && network.shape(y) == network.shape(m.class);
    if !stored || network.converted_from(y, |from, _| from.is_half()).is_some() {
        return None;
    }
    let bits = network.op(Op::Cast(half), &[y])?;
    let y = network.op(Op::Cast(DType::F32), &[bits])?;
    let (op, operands) = m.application('s');
    let operands: Vec<Id> =
        operands.iter().map(|&x| if network.find(x) == network.find(m.get('y')) { y } else { x }).collect();
    network.op(op.clone(), &operands)
}

/// A class in 16 bits: what it was widened from, or its numbers rounded.
fn rounded(network: &mut Network, id: Id, half: DType) -> Option<Id> {
    network
        .converted_from(id, |from, to| from.is_half() && to == DType::F32)
        .or_else(|| network.op(Op::Cast(half), &[id]))
}

/// A class in f32: what its halves were rounded from, or else these widened.
pub fn unrounded(network: &mut Network, id: Id) -> Option<Id> {
    let half = network.ty(id).dtype;
    if !half.is_half() {
        return Some(id);
    }
    let source = |network: &Network, id: Id| network.converted_from(id, |from, to| (from, to) == (DType::F32, half));
    let turned = network.applications(id).find_map(|(op, c)| match op {
        Op::Transpose { perm } => Some((perm.clone(), source(network, c[0])?)),
        _ => None,
    });
    match (source(network, id), turned) {
        (Some(source), _) => Some(source),
        (None, Some((perm, source))) => network.transpose(source, &perm),
        (None, None) => network.op(Op::Cast(DType::F32), &[id]),
    }
}
