//! Attention: products of queries and keys, a bias that masks, a softmax, products with values; rotary positions.
//!
//! Queries that share a head of keys are rows of one product: `(batch, heads, group · length, size)`. Keys and values
//! are never repeated.

use super::node::Source;
use super::tensor::dtype;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Layout, Op, ReduceOp, Window};
use crate::runtime::{DType, Error, Result, Tensor};

/// Queries, keys and values as `(batch, heads, length, size)`.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub q: ValueId,
    pub k: ValueId,
    pub v: ValueId,
}

/// How the products become probabilities.
pub(super) struct Scores {
    pub scale: f64,
    /// 0: none.
    pub softcap: f64,
    /// Added to the products; broadcasts to `(batch, heads, queries, keys)`.
    pub bias: Option<ValueId>,
    pub softmax_type: Option<DType>,
}

/// The result as `(batch, heads, queries, size)`, and what the stages before it made.
pub(super) struct Attended {
    pub y: ValueId,
    pub products: ValueId,
    pub capped: ValueId,
    pub biased: ValueId,
    pub probabilities: ValueId,
}

impl Importer<'_> {
    /// `(batch, length, heads · size)` as `(batch, heads, length, size)`.
    pub(super) fn split_heads(&mut self, x: ValueId, heads: i64) -> Result<ValueId> {
        let (batch, length, hidden) = match *self.shape(x) {
            [batch, length, hidden] => (batch, length, hidden),
            ref other => {
                return Err(Error::Invalid(format!("an operand of shape {other:?} does not have 3 dimensions")));
            }
        };
        if heads < 1 || hidden % heads != 0 {
            return Err(Error::Invalid(format!("{heads} heads do not divide {hidden} elements")));
        }
        let x = self.reshape_to(x, vec![batch, length, heads, hidden / heads])?;
        self.permuted(x, &[0, 2, 1, 3])
    }

    /// The inverse of [`Importer::split_heads`].
    pub(super) fn merge_heads(&mut self, x: ValueId) -> Result<ValueId> {
        let x = self.permuted(x, &[0, 2, 1, 3])?;
        let shape = self.shape(x).to_vec();
        self.reshape_to(x, vec![shape[0], shape[1], shape[2] * shape[3]])
    }

    /// 0 where a condition holds, -∞ elsewhere.
    pub(super) fn mask_bias(&mut self, allowed: ValueId, like: ValueId) -> Result<ValueId> {
        let zero = self.scalar_like(like, 0.0)?;
        let nothing = self.scalar_like(like, f64::NEG_INFINITY)?;
        self.select(allowed, zero, nothing)
    }

    /// Softmax over the last dimension; 0 in rows whose bias excludes every key.
    fn masked_softmax(&mut self, x: ValueId, bias: Option<ValueId>) -> Result<ValueId> {
        let axis = self.rank(x) - 1;
        let y = self.emit(Op::Softmax { axis, log: false }, &[x])?;
        let Some(bias) = bias else { return Ok(y) };
        let best = self.reduce_kept(ReduceOp::Max, bias, &[self.axis(-1, self.rank(bias))?])?;
        let nothing = self.scalar_like(best, f64::NEG_INFINITY)?;
        let excluded = self.compare(CompareOp::Eq, best, nothing)?;
        if self.graph.constant(excluded).is_some_and(|t| t.data.iter().all(|b| *b == 0)) {
            return Ok(y);
        }
        let zero = self.scalar_like(y, 0.0)?;
        self.select(excluded, zero, y)
    }

    /// Attention of each head.
    pub(super) fn attend(&mut self, Heads { q, k, v }: Heads, scores: &Scores) -> Result<Attended> {
        let four = |shape: &[i64]| -> Result<[i64; 4]> {
            let fits = <[i64; 4]>::try_from(shape);
            fits.map_err(|_| Error::Invalid(format!("an operand of shape {shape:?} does not have 4 dimensions")))
        };
        let [batch, heads, rows, size] = four(self.shape(q))?;
        let [k_batch, groups, length, k_size] = four(self.shape(k))?;
        let [v_batch, v_groups, v_length, v_size] = four(self.shape(v))?;
        let fits = batch == k_batch && batch == v_batch && size == k_size && groups == v_groups && length == v_length;
        if !fits || groups < 1 || heads % groups != 0 {
            let shapes = [q, k, v].map(|t| self.shape(t).to_vec());
            return Err(Error::Invalid(format!("queries, keys and values of shapes {shapes:?} do not fit")));
        }
        let shared = heads / groups * rows;
        let q = self.times(q, scores.scale)?;
        let q = self.reshape_to(q, vec![batch, groups, shared, size])?;
        let products = self.matmul(q, k, true)?;
        let products = self.reshape_to(products, vec![batch, heads, rows, length])?;
        let capped = if scores.softcap > 0.0 {
            let x = self.times(products, 1.0 / scores.softcap)?;
            let x = self.unary(UnaryOp::Tanh, x)?;
            self.times(x, scores.softcap)?
        } else {
            products
        };
        let biased = match scores.bias {
            Some(bias) => self.add(capped, bias)?,
            None => capped,
        };
        if self.shape(biased) != [batch, heads, rows, length] {
            return Err(Error::Invalid(format!("its mask makes products of shape {:?}", self.shape(biased))));
        }
        let wide = self.cast_to(biased, scores.softmax_type.unwrap_or(self.ty(q).dtype))?;
        let probabilities = self.masked_softmax(wide, scores.bias)?;
        let probabilities = self.cast_to(probabilities, self.ty(v).dtype)?;
        let rows_of_groups = self.reshape_to(probabilities, vec![batch, groups, shared, length])?;
        let y = self.matmul(rows_of_groups, v, false)?;
        let y = self.reshape_to(y, vec![batch, heads, rows, v_size])?;
        Ok(Attended { y, products, capped, biased, probabilities })
    }
}

/// The keys that each query may attend by their positions: no later ones, and those of a window.
struct Band {
    causal: bool,
    /// Keys before and after the query's own position; -1: all.
    window: (i64, i64),
}

impl Band {
    /// The condition, as `(queries, keys)` or `(batch, 1, queries, keys)`; `None`: always. Query `i` stands at `offset + i`.
    fn condition(&self, g: &mut Importer, rows: i64, length: i64, offset: ValueId) -> Result<Option<ValueId>> {
        if !self.causal && self.window == (-1, -1) {
            return Ok(None);
        }
        g.claim(&[rows, length], DType::I64)?;
        let (i, j) = (g.counting(rows, 0, 2)?, g.counting(length, 1, 2)?);
        let ahead = g.sub(i, j)?;
        let ahead = g.add(ahead, offset)?;
        let mut allowed: Option<ValueId> = None;
        let mut require = |g: &mut Importer, op: CompareOp, bound: i64| -> Result<()> {
            let bound = g.scalar_like(ahead, bound as f64)?;
            let condition = g.compare(op, ahead, bound)?;
            allowed = Some(match allowed {
                Some(allowed) => g.binary(BinaryOp::And, allowed, condition)?,
                None => condition,
            });
            Ok(())
        };
        if self.causal {
            require(g, CompareOp::Ge, 0)?;
        }
        if self.window.0 >= 0 {
            require(g, CompareOp::Le, self.window.0)?;
        }
        if self.window.1 >= 0 {
            require(g, CompareOp::Ge, -self.window.1)?;
        }
        Ok(allowed)
    }
}

/// A mask as a bias over `length` keys; keys that it does not name are excluded.
fn mask_as_bias(g: &mut Importer, mask: ValueId, length: i64, like: ValueId) -> Result<ValueId> {
    let bias = if g.ty(mask).dtype == DType::Bool { g.mask_bias(mask, like)? } else { mask };
    let shape = g.shape(bias).to_vec();
    let Some((&last, outer)) = shape.split_last() else {
        return Err(Error::Invalid("its mask has no dimensions".into()));
    };
    if last >= length {
        return Ok(bias);
    }
    let nothing = g.scalar_like(bias, f64::NEG_INFINITY)?;
    let padding = g.expanded(nothing, &[outer, &[length - last]].concat())?;
    g.joined(shape.len() - 1, &[bias, padding])
}

/// The sum of two biases that may be absent.
fn both(g: &mut Importer, a: Option<ValueId>, b: Option<ValueId>) -> Result<Option<ValueId>> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(g.add(a, b)?)),
        (one, other) => Ok(one.or(other)),
    }
}

pub(super) fn attention(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let operands = [n.input(0)?, n.input(1)?, n.input(2)?];
    let (mask, past) = (n.optional(3), [n.optional(4), n.optional(5)]);
    let filled = if n.opset >= 24 { n.optional(6) } else { None };
    let flat = g.rank(operands[0]) == 3;
    let [q, k, v] = if flat {
        let (queries, keys) = (n.int("q_num_heads", 0), n.int("kv_num_heads", 0));
        let [q, k, v] = operands;
        [g.split_heads(q, queries)?, g.split_heads(k, keys)?, g.split_heads(v, keys)?]
    } else {
        operands
    };
    if let Some(x) = [q, k, v].into_iter().find(|&x| g.rank(x) != 4) {
        return Err(Error::Invalid(format!("an operand of shape {:?} does not have 3 or 4 dimensions", g.shape(x))));
    }
    let before = past[0].map_or(0, |p| g.shape(p).get(2).copied().unwrap_or(0));
    let (k, v) = match past {
        [Some(keys), Some(values)] => (g.joined(2, &[keys, k])?, g.joined(2, &[values, v])?),
        [None, None] => (k, v),
        _ => return Err(Error::Invalid("past keys and values are given one without the other".into())),
    };
    let (rows, size, length) = (g.shape(q)[2], g.shape(q)[3], g.shape(k)[2]);
    let filled = match filled {
        Some(lengths) => Some(g.reshape_to(lengths, vec![g.shape(q)[0], 1, 1, 1])?),
        None => None,
    };
    let offset = match filled {
        Some(lengths) => g.plus(lengths, -rows as f64)?,
        None => g.constant(Tensor::new(&[], &[before])),
    };
    let band = Band {
        causal: n.flag("is_causal", false),
        window: (n.int("left_window_size", -1), n.int("right_window_size", -1)),
    };
    let mut bias = mask.map(|mask| mask_as_bias(g, mask, length, q)).transpose()?;
    if let Some(allowed) = band.condition(g, rows, length, offset)? {
        let causal = g.mask_bias(allowed, q)?;
        bias = both(g, bias, Some(causal))?;
    }
    if let Some(lengths) = filled {
        let position = g.counting(length, 3, 4)?;
        let inside = g.compare(CompareOp::Lt, position, lengths)?;
        let inside = g.mask_bias(inside, q)?;
        bias = both(g, bias, Some(inside))?;
    }
    let scale = n.attribute("scale").map_or(1.0 / (size as f64).sqrt(), |_| f64::from(n.float("scale", 0.0)));
    let softmax_type = match n.int("softmax_precision", 0) {
        0 => None,
        kind => Some(dtype(kind as i32)?),
    };
    let scores = Scores { scale, softcap: f64::from(n.float("softcap", 0.0)), bias, softmax_type };
    let done = g.attend(Heads { q, k, v }, &scores)?;
    let y = if flat { g.merge_heads(done.y)? } else { done.y };
    let shown = match n.int("qk_matmul_output_mode", 0) {
        0 => done.products,
        1 => done.capped,
        2 => done.biased,
        3 => done.probabilities,
        mode => return Err(Error::Invalid(format!("qk_matmul_output_mode {mode} is not known"))),
    };
    Ok(vec![y, k, v, shown])
}

/// Where the rotated elements of a head stand.
pub(super) struct Rotation {
    /// Elements that turn; the rest stays.
    pub size: i64,
    /// Pairs are neighbours, not halves.
    pub interleaved: bool,
}

impl Importer<'_> {
    /// Turns pairs of elements of `(batch, heads, length, size)` by angles whose `cos` and `sin` broadcast to
    /// `(batch, heads, length, size / 2)`.
    pub(super) fn rotated(&mut self, x: ValueId, [cos, sin]: [ValueId; 2], how: &Rotation) -> Result<ValueId> {
        let size = self.shape(x)[3];
        let turned = if how.size == 0 { size } else { how.size };
        if !(2..=size).contains(&turned) || turned % 2 != 0 {
            return Err(Error::Invalid(format!("{turned} of {size} elements cannot be turned in pairs")));
        }
        let (a, b) = if how.interleaved {
            (self.strided_slice(x, 3, 0, turned, 2)?, self.strided_slice(x, 3, 1, turned, 2)?)
        } else {
            (self.slice(x, 3, 0, turned / 2)?, self.slice(x, 3, turned / 2, turned)?)
        };
        let (ac, bs) = (self.mul(a, cos)?, self.mul(b, sin)?);
        let (as_, bc) = (self.mul(a, sin)?, self.mul(b, cos)?);
        let (real, imaginary) = (self.sub(ac, bs)?, self.add(as_, bc)?);
        let mut y = if how.interleaved {
            let (real, imaginary) = (self.unsqueezed(real, 4)?, self.unsqueezed(imaginary, 4)?);
            let pairs = self.joined(4, &[real, imaginary])?;
            let shape = [&self.shape(x)[..3], &[turned]].concat();
            self.reshape_to(pairs, shape)?
        } else {
            self.joined(3, &[real, imaginary])?
        };
        if turned < size {
            let unturned = self.slice(x, 3, turned, size)?;
            y = self.joined(3, &[y, unturned])?;
        }
        Ok(y)
    }
}

pub(super) fn rotary_embedding(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, cos, sin, positions) = (n.input(0)?, n.input(1)?, n.input(2)?, n.optional(3));
    let flat = g.rank(x) == 3;
    let heads = if flat { g.split_heads(x, n.int("num_heads", 0))? } else { x };
    if g.rank(heads) != 4 {
        return Err(Error::Invalid(format!("an operand of shape {:?} does not have 3 or 4 dimensions", g.shape(x))));
    }
    let mut angles = |cache: ValueId| -> Result<ValueId> {
        let cache = match positions {
            Some(positions) => g.emit(Op::Lookup, &[cache, positions])?,
            None => cache,
        };
        if g.rank(cache) != 3 {
            return Err(Error::Invalid(format!("angles of shape {:?} do not have 3 dimensions", g.shape(cache))));
        }
        g.unsqueezed(cache, 1)
    };
    let angles = [angles(cos)?, angles(sin)?];
    let how = Rotation { size: n.int("rotary_embedding_dim", 0), interleaved: n.flag("interleaved", false) };
    let y = g.rotated(heads, angles, &how)?;
    Ok(vec![if flat { g.merge_heads(y)? } else { y }])
}

/// A depthwise convolution over the past elements and its operand: the result, and the elements for the next call.
pub(super) fn causal_conv_with_state(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w, bias, past) = (n.input(0)?, n.input(1)?, n.optional(2), n.optional(3));
    let (&[batch, channels, _], &[_, 1, kernel]) = (g.shape(x), g.shape(w)) else {
        return Err(Error::Invalid(format!(
            "an operand of shape {:?} does not fit weights of shape {:?}, which are of 3 dimensions, the second of 1",
            g.shape(x),
            g.shape(w)
        )));
    };
    let past = match past {
        Some(past) => past,
        None => {
            let zero = g.scalar_like(x, 0.0)?;
            g.expanded(zero, &[batch, channels, kernel - 1])?
        }
    };
    let padded = g.joined(2, &[past, x])?;
    let window =
        Window { kernel: vec![kernel], stride: vec![1], dilation: vec![1], pad_before: vec![0], pad_after: vec![0] };
    let operands: Vec<ValueId> = [Some(padded), Some(w), bias].into_iter().flatten().collect();
    let op = Op::Conv { window, group: channels, layout: Layout::Nchw };
    let mut y = g.emit(op, &operands)?;
    match n.string("activation", "none").as_str() {
        "none" => {}
        "silu" | "swish" => y = g.emit(Op::Silu, &[y])?,
        other => return Err(Error::Invalid(format!("activation `{other}` is not known"))),
    }
    let length = g.shape(padded)[2];
    let state = g.slice(padded, 2, length - (kernel - 1), length)?;
    Ok(vec![y, state])
}
