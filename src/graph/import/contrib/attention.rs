//! Attention with packed projections, and with masks that are lengths or integers.

use crate::expr::{BinaryOp, CompareOp};
use crate::graph::import::attention::{Heads, Rotation, Scores};
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Error, Result};

/// Extents that a mask has to fit.
#[derive(Clone, Copy)]
struct Extents {
    batch: i64,
    rows: i64,
    keys: i64,
}

/// A mask of integers as a bias: `filter` where it excludes. It is 1 where keys count, for all queries or for each, or the
/// lengths of the keys, or the first key after them and then the first one.
fn integer_mask(g: &mut Importer, mask: ValueId, e: Extents, like: ValueId, filter: f64) -> Result<ValueId> {
    let shape = g.shape(mask).to_vec();
    let place = g.counting(e.keys, 3, 4)?;
    let place = g.cast_to(place, g.ty(mask).dtype)?;
    let allowed = match shape[..] {
        [batch] if batch == e.batch => {
            let ends = g.reshape_to(mask, vec![batch, 1, 1, 1])?;
            g.compare(CompareOp::Lt, place, ends)?
        }
        [both] if both == 2 * e.batch => {
            let (ends, starts) = (g.slice(mask, 0, 0, e.batch)?, g.slice(mask, 0, e.batch, both)?);
            let ends = g.reshape_to(ends, vec![e.batch, 1, 1, 1])?;
            let starts = g.reshape_to(starts, vec![e.batch, 1, 1, 1])?;
            let (before, after) = (g.compare(CompareOp::Lt, place, ends)?, g.compare(CompareOp::Ge, place, starts)?);
            g.binary(BinaryOp::And, before, after)?
        }
        [batch, keys] if (batch, keys) == (e.batch, e.keys) => {
            let mask = g.reshape_to(mask, vec![batch, 1, 1, keys])?;
            let zero = g.scalar_like(mask, 0.0)?;
            g.compare(CompareOp::Gt, mask, zero)?
        }
        [batch, rows, keys] if (batch, rows, keys) == (e.batch, e.rows, e.keys) => {
            let mask = g.reshape_to(mask, vec![batch, 1, rows, keys])?;
            let zero = g.scalar_like(mask, 0.0)?;
            g.compare(CompareOp::Gt, mask, zero)?
        }
        _ => return Err(Error::Unsupported(format!("a mask of shape {shape:?}"))),
    };
    let (zero, filter) = (g.scalar_like(like, 0.0)?, g.scalar_like(like, filter)?);
    g.select(allowed, zero, filter)
}

/// The bias that lets query `i` attend the keys up to `past + i`.
fn causal(g: &mut Importer, e: Extents, past: i64, like: ValueId) -> Result<ValueId> {
    g.claim(&[e.rows, e.keys], DType::I64)?;
    let (i, j) = (g.counting(e.rows, 0, 2)?, g.counting(e.keys, 1, 2)?);
    let i = g.plus(i, past as f64)?;
    let allowed = g.compare(CompareOp::Le, j, i)?;
    g.mask_bias(allowed, like)
}

/// The sum of biases.
fn sum(g: &mut Importer, biases: &[Option<ValueId>]) -> Result<Option<ValueId>> {
    let mut total: Option<ValueId> = None;
    for &bias in biases.iter().flatten() {
        total = Some(match total {
            Some(total) => g.add(total, bias)?,
            None => bias,
        });
    }
    Ok(total)
}

/// Attention of split heads, common to both operators.
struct Masks {
    integers: Option<ValueId>,
    added: Option<ValueId>,
    past: i64,
}

fn masked_attention(g: &mut Importer, n: &Source, heads: Heads, masks: &Masks) -> Result<ValueId> {
    let (q, k) = (heads.q, heads.k);
    let (&[batch, _, rows, size], &[_, _, keys, _]) = (g.shape(q), g.shape(k)) else {
        return Err(Error::Invalid("queries or keys do not have 4 dimensions".into()));
    };
    let extents = Extents { batch, rows, keys };
    let filter = f64::from(n.float("mask_filter_value", -10000.0));
    let mask = masks.integers.map(|m| integer_mask(g, m, extents, q, filter)).transpose()?;
    let later = if n.flag("unidirectional", false) { Some(causal(g, extents, masks.past, q)?) } else { None };
    let bias = sum(g, &[mask, later, masks.added])?;
    let scale = match n.float("scale", 0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => f64::from(scale),
    };
    let done = g.attend(heads, &Scores { scale, softcap: 0.0, bias, softmax_type: None })?;
    g.merge_heads(done.y)
}

/// Widths of queries, keys and values in a packed projection.
fn widths(n: &Source, total: i64) -> Result<[i64; 3]> {
    let widths = match n.ints("qkv_hidden_sizes") {
        Some(sizes) => {
            <[i64; 3]>::try_from(sizes).map_err(|_| Error::Invalid("qkv_hidden_sizes has not 3 numbers".into()))?
        }
        None => [total / 3; 3],
    };
    let sum = widths.iter().try_fold(0i64, |sum, w| sum.checked_add(*w));
    let fits = widths.iter().all(|w| *w > 0) && sum == Some(total);
    if fits { Ok(widths) } else { Err(Error::Invalid(format!("widths {widths:?} of {total} columns"))) }
}

/// The three parts of a projection, as heads.
fn split_projection(g: &mut Importer, n: &Source, x: ValueId) -> Result<[ValueId; 3]> {
    let axis = g.axis(-1, g.rank(x))?;
    let [q, k, v] = widths(n, g.shape(x)[axis])?;
    let heads = n.int("num_heads", 0);
    let mut part = |from: i64, to: i64| -> Result<ValueId> {
        let part = g.slice(x, axis, from, to)?;
        g.split_heads(part, heads)
    };
    Ok([part(0, q)?, part(q, q + k)?, part(q + k, q + k + v)?])
}

/// Past keys and values, one after the other in `past`, before the new ones: both, and them together.
fn with_past(g: &mut Importer, past: Option<ValueId>, k: ValueId, v: ValueId) -> Result<([ValueId; 3], i64)> {
    let (mut k, mut v, mut length) = (k, v, 0);
    if let Some(past) = past {
        let shape = g.shape(past).to_vec();
        if shape.len() != 5 || shape[0] != 2 {
            return Err(Error::Invalid(format!(
                "past keys and values of shape {shape:?} do not have 5 dimensions, the first of 2"
            )));
        }
        length = shape[3];
        for (i, x) in [&mut k, &mut v].into_iter().enumerate() {
            let before = g.slice(past, 0, i as i64, i as i64 + 1)?;
            let before = g.reshape_to(before, shape[1..].to_vec())?;
            *x = g.joined(2, &[before, *x])?;
        }
    }
    let (first, second) = (g.unsqueezed(k, 0)?, g.unsqueezed(v, 0)?);
    let present = if g.shape(first) == g.shape(second) { g.joined(0, &[first, second])? } else { first };
    Ok(([k, v, present], length))
}

/// Attention of a tensor to itself, from one packed projection.
fn from_projection(
    g: &mut Importer,
    n: &Source,
    projection: ValueId,
    [mask, past, added]: [Option<ValueId>; 3],
) -> Result<Vec<ValueId>> {
    if n.flag("do_rotary", false) {
        return Err(Error::Unsupported("rotary positions (do_rotary)".into()));
    }
    let [q, k, v] = split_projection(g, n, projection)?;
    let ([k, v, present], before) = with_past(g, past, k, v)?;
    let masks = Masks { integers: mask, added, past: before };
    Ok(vec![masked_attention(g, n, Heads { q, k, v }, &masks)?, present])
}

pub(in crate::graph::import) fn attention(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (n.input(0)?, n.input(1)?, n.optional(2));
    let operands = [n.optional(3), n.optional(4), n.optional(5)];
    let mut projection = g.product(x, w)?;
    if let Some(bias) = bias {
        projection = g.add(projection, bias)?;
    }
    from_projection(g, n, projection, operands)
}

/// Attention whose projection is a product of quantised numbers.
pub(in crate::graph::import) fn quantised_attention(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let [x, w, bias, x_scale, w_scale] = [n.input(0)?, n.input(1)?, n.input(2)?, n.input(3)?, n.input(4)?];
    let (mask, zeros, past) = (n.optional(5), [n.optional(6), n.optional(7)], n.optional(8));
    let product = crate::graph::import::quantize::integer_product(g, [x, w], zeros)?;
    let product = g.cast_to(product, g.ty(bias).dtype)?;
    let columns = if g.shape(w_scale).iter().product::<i64>() == 1 { vec![] } else { g.shape(w_scale).to_vec() };
    let w_scale = g.reshape_to(w_scale, columns)?;
    let x_scale = g.reshape_to(x_scale, vec![])?;
    let scale = g.mul(x_scale, w_scale)?;
    let scaled = g.mul(product, scale)?;
    let projection = g.add(scaled, bias)?;
    from_projection(g, n, projection, [mask, past, None])
}

/// Queries, keys and values that may be packed: `(batch, length, heads, 3, size)`, or keys with values, `(…, heads, 2, size)`.
fn unpacked(g: &mut Importer, x: ValueId, parts: i64) -> Result<Vec<ValueId>> {
    let shape = g.shape(x).to_vec();
    if shape.len() != 5 || shape[3] != parts {
        return Err(Error::Unsupported(format!("an operand of shape {shape:?} without the others")));
    }
    (0..parts)
        .map(|i| {
            let part = g.slice(x, 3, i, i + 1)?;
            let part = g.reshape_to(part, vec![shape[0], shape[1], shape[2], shape[4]])?;
            g.permuted(part, &[0, 2, 1, 3])
        })
        .collect()
}

pub(in crate::graph::import) fn multi_head(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (query, key, value, bias) = (n.input(0)?, n.optional(1), n.optional(2), n.optional(3));
    let (mask, added, past) = (n.optional(4), n.optional(5), [n.optional(6), n.optional(7)]);
    let heads = n.int("num_heads", 0);
    let [mut q, mut k, mut v] = match (key, value) {
        (None, None) => {
            let parts = unpacked(g, query, 3)?;
            [parts[0], parts[1], parts[2]]
        }
        (Some(key), None) => {
            let parts = unpacked(g, key, 2)?;
            [g.split_heads(query, heads)?, parts[0], parts[1]]
        }
        (Some(key), Some(value)) => {
            // keys and values of a cache are heads already
            let mut split = |x: ValueId| if g.rank(x) == 4 { Ok(x) } else { g.split_heads(x, heads) };
            [split(query)?, split(key)?, split(value)?]
        }
        (None, Some(_)) => return Err(Error::Invalid("values without keys".into())),
    };
    if let Some(bias) = bias {
        let mut from = 0;
        for x in [&mut q, &mut k, &mut v] {
            let (count, size) = (g.shape(*x)[1], g.shape(*x)[3]);
            let part = g.slice(bias, 0, from, from + count * size)?;
            let part = g.reshape_to(part, vec![1, count, 1, size])?;
            *x = g.add(*x, part)?;
            from += count * size;
        }
    }
    let mut before = 0;
    if let [Some(keys), Some(values)] = past {
        before = g.shape(keys).get(2).copied().unwrap_or(0);
        k = g.joined(2, &[keys, k])?;
        v = g.joined(2, &[values, v])?;
    }
    let masks = Masks { integers: mask, added, past: before };
    Ok(vec![masked_attention(g, n, Heads { q, k, v }, &masks)?, k, v])
}

/// Rotary positions: `(batch, length, heads · size)` or `(batch, heads, length, size)`, and the first position or each.
pub(in crate::graph::import) fn rotary_embedding(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, places, cos, sin) = (n.input(0)?, n.input(1)?, n.input(2)?, n.input(3)?);
    let how = Rotation { size: n.int("rotary_embedding_dim", 0), interleaved: n.flag("interleaved", false) };
    let flat = g.rank(x) == 3;
    let heads = match n.int("num_heads", 0) {
        0 if flat => g.shape(x)[2] / (2 * g.shape(cos).last().copied().unwrap_or(1)).max(1),
        heads => heads,
    };
    let turned = if flat { g.split_heads(x, heads)? } else { x };
    let &[batch, _, length, _] = g.shape(turned) else {
        return Err(Error::Invalid(format!("an operand of shape {:?} does not have 3 or 4 dimensions", g.shape(x))));
    };
    let places = if g.shape(places) == [1] && (batch, length) != (1, 1) {
        let step = g.counting(length, 1, 2)?;
        let step = g.cast_to(step, g.ty(places).dtype)?;
        let places = g.reshape_to(places, vec![1, 1])?;
        g.add(places, step)?
    } else {
        g.reshape_to(places, vec![batch, length])?
    };
    let angles = g.angles_at(places, [cos, sin])?;
    let y = g.rotated(turned, angles, &how)?;
    Ok(vec![if flat { g.merge_heads(y)? } else { y }])
}

impl Importer<'_> {
    /// Rows of the tables of cosines and sines at `(batch, length)` places, for all heads.
    pub(super) fn angles_at(&mut self, places: ValueId, tables: [ValueId; 2]) -> Result<[ValueId; 2]> {
        let mut looked_up = |table: ValueId| -> Result<ValueId> {
            let rows = self.emit(Op::Lookup, &[table, places])?;
            self.unsqueezed(rows, 1)
        };
        Ok([looked_up(tables[0])?, looked_up(tables[1])?])
    }
}
