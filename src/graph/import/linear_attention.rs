//! Attention without a softmax: a state of `(keys, values)` for each head that every step decays, corrects and adds to.
//!
//! Steps `s` before step `t` reach it through the product of the decays between them, `D[t, s] = exp(G[t] - G[s])` with `G`
//! the sum of the decays' logarithms. The results of all steps are then products of matrices. With a correction the values
//! that are written solve a triangular system, by the inverse of its blocks.

use super::node::Source;
use crate::expr::UnaryOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Error, Result, Tensor};

/// Operands as `(batch, heads, steps, size)`.
struct Steps {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    /// The state before the first step, `(batch, heads, size of keys, size of values)`.
    state: ValueId,
    /// Sums of the logarithms of the decays up to each step; their last dimension may be 1.
    decay: Option<ValueId>,
    beta: Option<ValueId>,
}

/// Steps whose every pair is computed.
const MAX_STEPS: i64 = 4096;

pub(super) fn linear_attention(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (q, k, v) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (past, decay, beta) = (n.optional(3), n.optional(4), n.optional(5));
    let rule = n.string("update_rule", "gated_delta");
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(Error::Invalid(format!("update_rule `{other}` is not known"))),
    };
    if gated != decay.is_some() || delta != beta.is_some() {
        return Err(Error::Invalid(format!("decay or beta do not fit update_rule `{rule}`")));
    }
    let dtype = g.ty(q).dtype;
    let (queries, heads) = (n.int("q_num_heads", 0), n.int("kv_num_heads", 0));
    let mut split = |x: ValueId, heads: i64| -> Result<ValueId> {
        let x = g.split_heads(x, heads)?;
        g.cast_to(x, DType::F32)
    };
    let (q, k, v) = (split(q, queries)?, split(k, heads)?, split(v, heads)?);
    let (shape, size) = (g.shape(k).to_vec(), g.shape(v)[3]);
    let (batch, steps, width) = (shape[0], shape[2], shape[3]);
    let fits = queries % heads == 0 && g.shape(q) == [batch, queries, steps, width] && g.shape(v)[..3] == shape[..3];
    if !fits || !(1..=MAX_STEPS).contains(&steps) {
        return Err(Error::Invalid(format!(
            "queries of shape {:?} do not fit keys of shape {shape:?}, or there are more than {MAX_STEPS} steps",
            g.shape(q)
        )));
    }
    let kept = past.map_or(dtype, |p| g.ty(p).dtype);
    let state = match past {
        Some(past) if g.shape(past) == [batch, heads, width, size] => g.cast_to(past, DType::F32)?,
        Some(past) => {
            return Err(Error::Invalid(format!("a state of shape {:?} does not fit keys and values", g.shape(past))));
        }
        None => {
            let zero = g.constant(Tensor::new(&[], &[0f32]));
            g.expanded(zero, &[batch, heads, width, size])?
        }
    };
    let decay = decay.map(|d| g.split_heads(d, heads).and_then(|d| g.summed_decay(d))).transpose()?;
    let beta = match beta {
        Some(b) => {
            let count = g.shape(b).last().copied().unwrap_or(0);
            let b = g.split_heads(b, count)?;
            Some(g.cast_to(b, DType::F32)?)
        }
        None => None,
    };
    let scale = match n.float("scale", 0.0) {
        0.0 => 1.0 / (width as f64).sqrt(),
        scale => f64::from(scale),
    };
    let q = g.times(q, scale)?;
    let (y, state) = recur(g, &Steps { q, k, v, state, decay, beta })?;
    let y = g.merge_heads(y)?;
    Ok(vec![g.cast_to(y, dtype)?, g.cast_to(state, kept)?])
}

impl Importer<'_> {
    /// Sums of the elements up to each step, as a product with a triangle of ones.
    fn summed_decay(&mut self, decay: ValueId) -> Result<ValueId> {
        let decay = self.cast_to(decay, DType::F32)?;
        let triangle = self.triangle(self.shape(decay)[2], true)?;
        self.matmul(triangle, decay, false)
    }

    /// Ones at and below the diagonal, or below it alone.
    fn triangle(&mut self, steps: i64, diagonal: bool) -> Result<ValueId> {
        self.claim(&[steps, steps], DType::F32)?;
        let mask = |t: i64, s: i64| f32::from(u8::from(s < t || diagonal && s == t));
        let values: Vec<f32> = (0..steps).flat_map(|t| (0..steps).map(move |s| mask(t, s))).collect();
        Ok(self.constant(Tensor::new(&[steps, steps], &values)))
    }
}

/// `Σ_d a[t, d] · exp(G[t, d] - G[s, d]) · k[s, d]` for steps `s` up to `t`, or before it.
fn decayed_products(
    g: &mut Importer,
    a: ValueId,
    k: ValueId,
    decay: Option<ValueId>,
    diagonal: bool,
) -> Result<ValueId> {
    let steps = g.shape(k)[2];
    let triangle = g.triangle(steps, diagonal)?;
    let Some(decay) = decay else {
        let products = g.matmul(a, k, true)?;
        return g.mul(products, triangle);
    };
    // later steps would grow without bound: they have no part in the triangle, and their exponent is 0
    let (to, from) = (g.unsqueezed(decay, 3)?, g.unsqueezed(decay, 2)?);
    let between = g.sub(to, from)?;
    let mask = g.reshape_to(triangle, vec![1, 1, steps, steps, 1])?;
    let between = g.mul(between, mask)?;
    let factor = g.unary(UnaryOp::Exp, between)?;
    if g.shape(decay)[3] == 1 {
        let shape = g.shape(factor)[..4].to_vec();
        let factor = g.reshape_to(factor, shape)?;
        let factor = g.mul(factor, triangle)?;
        let products = g.matmul(a, k, true)?;
        return g.mul(products, factor);
    }
    let factor = g.mul(factor, mask)?;
    let (a, k) = (g.unsqueezed(a, 3)?, g.unsqueezed(k, 2)?);
    let product = g.mul(a, k)?;
    let product = g.mul(product, factor)?;
    g.sum_over(product, &[4])
}

/// The rows decayed from the beginning up to their step.
fn decayed(g: &mut Importer, x: ValueId, decay: Option<ValueId>) -> Result<ValueId> {
    match decay {
        Some(decay) => {
            let factor = g.unary(UnaryOp::Exp, decay)?;
            g.mul(x, factor)
        }
        None => Ok(x),
    }
}

/// The results of all steps, and the state after them.
fn recur(g: &mut Importer, s: &Steps) -> Result<(ValueId, ValueId)> {
    let [batch, heads, steps, width] = [0, 1, 2, 3].map(|d| g.shape(s.k)[d]);
    let size = g.shape(s.v)[3];
    let written = match s.beta {
        Some(beta) => corrected(g, s, beta)?,
        None => s.v,
    };
    // queries that share a state stand beside each other: (batch, heads, group, steps, width) by group
    let group = g.shape(s.q)[1] / heads;
    let q = g.reshape_to(s.q, vec![batch, heads, group, steps, width])?;
    let mut parts = vec![];
    for i in 0..group {
        let q = g.slice(q, 2, i, i + 1)?;
        let q = g.reshape_to(q, vec![batch, heads, steps, width])?;
        let products = decayed_products(g, q, s.k, s.decay, true)?;
        let new = g.matmul(products, written, false)?;
        let old = decayed(g, q, s.decay)?;
        let old = g.matmul(old, s.state, false)?;
        let y = g.add(new, old)?;
        parts.push(g.unsqueezed(y, 2)?);
    }
    let y = g.joined(2, &parts)?;
    let y = g.reshape_to(y, vec![batch, heads * group, steps, size])?;
    // what each step wrote, decayed up to the end
    let (mut k, mut state) = (s.k, s.state);
    if let Some(decay) = s.decay {
        let last = g.slice(decay, 2, steps - 1, steps)?;
        let rest = g.sub(last, decay)?;
        let rest = g.unary(UnaryOp::Exp, rest)?;
        k = g.mul(k, rest)?;
        let whole = g.unary(UnaryOp::Exp, last)?;
        let whole = g.permuted(whole, &[0, 1, 3, 2])?;
        state = g.mul(state, whole)?;
    }
    let k = g.permuted(k, &[0, 1, 3, 2])?;
    let new = g.matmul(k, written, false)?;
    Ok((y, g.add(state, new)?))
}

/// The values that are written where each step first takes off what the state has for its key: `u = β(v - Sᵀk)`.
fn corrected(g: &mut Importer, s: &Steps, beta: ValueId) -> Result<ValueId> {
    let products = decayed_products(g, s.k, s.k, s.decay, false)?;
    let products = g.mul(products, beta)?;
    let old = decayed(g, s.k, s.decay)?;
    let old = g.matmul(old, s.state, false)?;
    let missing = g.sub(s.v, old)?;
    let written = g.mul(missing, beta)?;
    let inverse = inverse_of_unit_triangle(g, products)?;
    g.matmul(inverse, written, false)
}

/// The inverse of `1 + A` for strictly lower `A`, `(batch, heads, steps, steps)`: that of blocks on the diagonal, twice as
/// large in each step. Of two neighbours with a block `C` between them it has `-P⁻¹ C Q⁻¹` there.
fn inverse_of_unit_triangle(g: &mut Importer, a: ValueId) -> Result<ValueId> {
    let [batch, heads, steps] = [0, 1, 2].map(|d| g.shape(a)[d]);
    let whole = (steps as u64).next_power_of_two() as i64;
    let after = vec![0, 0, whole - steps, whole - steps];
    let a = if whole > steps { g.emit(Op::Pad { before: vec![0; 4], after, value: 0 }, &[a])? } else { a };
    let one = g.scalar_like(a, 1.0)?;
    let mut inverse = g.expanded(one, &[batch, heads, whole, 1, 1])?;
    let mut size = 1;
    while size < whole {
        let pairs = whole / (2 * size);
        // the blocks on the diagonal of twice the size, and in each of them what is below its own diagonal
        let blocks = g.reshape_to(a, vec![batch, heads, pairs, 2 * size, pairs, 2 * size])?;
        let blocks = g.permuted(blocks, &[0, 1, 2, 4, 3, 5])?;
        let blocks = g.reshape_to(blocks, vec![batch, heads, pairs * pairs, 2 * size, 2 * size])?;
        let blocks = g.strided_slice(blocks, 2, 0, pairs * pairs, pairs + 1)?;
        let between = g.slice(blocks, 3, size, 2 * size)?;
        let between = g.slice(between, 4, 0, size)?;
        let both = g.reshape_to(inverse, vec![batch, heads, pairs, 2, size, size])?;
        let mut half = |i: i64| -> Result<ValueId> {
            let half = g.slice(both, 3, i, i + 1)?;
            g.reshape_to(half, vec![batch, heads, pairs, size, size])
        };
        let (first, second) = (half(0)?, half(1)?);
        let below = g.matmul(between, first, false)?;
        let below = g.matmul(second, below, false)?;
        let below = g.neg(below)?;
        let zero = g.scalar_like(below, 0.0)?;
        let nothing = g.expanded(zero, &[batch, heads, pairs, size, size])?;
        let (upper, lower) = (g.joined(4, &[first, nothing])?, g.joined(4, &[below, second])?);
        inverse = g.joined(3, &[upper, lower])?;
        size *= 2;
    }
    let inverse = g.reshape_to(inverse, vec![batch, heads, whole, whole])?;
    let inverse = g.slice(inverse, 2, 0, steps)?;
    g.slice(inverse, 3, 0, steps)
}
