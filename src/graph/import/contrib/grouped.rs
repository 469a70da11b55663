//! Attention of groups of queries to a cache of keys and values that grows in place.
//!
//! Row `b` has `lengths[b] + 1` keys after the call; the new ones stand after those of the cache, whose rest is not read.

use crate::expr::{BinaryOp, CompareOp};
use crate::graph::import::attention::{Heads, Rotation, Scores};
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{Error, Result};

pub(in crate::graph::import) fn group_query(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (query, key, value, past) = (n.input(0)?, n.optional(1), n.optional(2), [n.optional(3), n.optional(4)]);
    let (lengths, total, tables) = (n.input(5)?, n.input(6)?, [n.optional(7), n.optional(8)]);
    let (places, added) = (n.optional(9), n.optional(10));
    let total = g.known_integer(total, "total_sequence_length")?;
    let [mut q, mut k, v] = heads_of(g, n, query, key, value)?;
    let (batch, rows, size) = (g.shape(q)[0], g.shape(q)[2], g.shape(q)[3]);
    // the place of each row's first new key: as many keys as are before it
    if total < 1 {
        return Err(Error::Invalid(format!("its total_sequence_length is {total}")));
    }
    let capacity = past[0].map_or(0, |past| g.shape(past).get(2).copied().unwrap_or(0));
    let lengths = g.up_to(lengths, capacity.max(total) - 1, "seqlens_k")?;
    let lengths = g.reshape_to(lengths, vec![batch, 1])?;
    let before = g.plus(lengths, (1 - rows) as f64)?;
    let nothing = g.scalar_like(before, 0.0)?;
    let before = g.binary(BinaryOp::Max, before, nothing)?;
    if n.flag("do_rotary", false) {
        let [Some(cos), Some(sin)] = tables else {
            return Err(Error::Invalid("the tables of rotary positions are missing".into()));
        };
        let places = match places {
            Some(places) => g.reshape_to(places, vec![batch, rows])?,
            None => {
                let step = g.counting(rows, 1, 2)?;
                g.add(before, step)?
            }
        };
        let turned = 2 * g.shape(cos).last().copied().unwrap_or(0);
        let how = Rotation { size: turned, interleaved: n.flag("rotary_interleaved", false) };
        let angles = g.angles_at(places, [cos, sin])?;
        (q, k) = (g.rotated(q, angles, &how)?, g.rotated(k, angles, &how)?);
    }
    let (k, v) = match past {
        [Some(keys), Some(values)] => (cached(g, keys, k, before, total)?, cached(g, values, v, before, total)?),
        [None, None] => (k, v),
        _ => return Err(Error::Invalid("past keys and values are given one without the other".into())),
    };
    let keys = g.shape(k)[2];
    let window = n.int("local_window_size", -1);
    let bias = bounds(g, [rows, keys], before, window, q)?;
    let bias = match added {
        Some(added) => g.add(bias, added)?,
        None => bias,
    };
    let scale = match n.float("scale", 0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => f64::from(scale),
    };
    let softcap = f64::from(n.float("softcap", 0.0));
    let done = g.attend(Heads { q, k, v }, &Scores { scale, softcap, bias: Some(bias), softmax_type: None })?;
    Ok(vec![g.merge_heads(done.y)?, k, v])
}

/// Queries, keys and values as heads, from three operands or one packed.
fn heads_of(
    g: &mut Importer,
    n: &Source,
    query: ValueId,
    key: Option<ValueId>,
    value: Option<ValueId>,
) -> Result<[ValueId; 3]> {
    let (queries, keys) = (n.int("num_heads", 0), n.int("kv_num_heads", 0));
    match (key, value) {
        (Some(key), Some(value)) => {
            Ok([g.split_heads(query, queries)?, g.split_heads(key, keys)?, g.split_heads(value, keys)?])
        }
        (None, None) => {
            let &[_, _, width] = g.shape(query) else {
                return Err(Error::Invalid(format!(
                    "a packed operand of shape {:?} does not have 3 dimensions",
                    g.shape(query)
                )));
            };
            let heads = queries + 2 * keys;
            if queries < 1 || keys < 1 || width % heads != 0 {
                return Err(Error::Invalid(format!("{heads} heads do not divide {width} elements")));
            }
            let joined_heads = g.split_heads(query, heads)?;
            let mut part = |from: i64, to: i64| g.slice(joined_heads, 1, from, to);
            Ok([part(0, queries)?, part(queries, queries + keys)?, part(queries + keys, heads)?])
        }
        _ => Err(Error::Invalid("keys and values are given one without the other".into())),
    }
}

/// The cache with the new elements in their places, `(batch, heads, length, size)`: a gather from both, one after the other.
fn cached(g: &mut Importer, past: ValueId, new: ValueId, before: ValueId, total: i64) -> Result<ValueId> {
    let (&[batch, heads, capacity, size], &[_, _, added, _]) = (g.shape(past), g.shape(new)) else {
        return Err(Error::Invalid(format!("a cache of shape {:?} does not have 4 dimensions", g.shape(past))));
    };
    let length = capacity.max(total);
    if length > capacity + added || g.shape(new)[1] != heads || g.shape(new)[3] != size {
        return Err(Error::Invalid(format!(
            "a cache of shape {:?} and {added} new keys do not fit {total} keys",
            g.shape(past)
        )));
    }
    let cache = g.joined(2, &[past, new])?;
    if capacity == 0 {
        return Ok(cache);
    }
    let place = g.counting(length, 1, 2)?;
    let behind = g.sub(place, before)?;
    let behind = g.plus(behind, capacity as f64)?;
    let last = g.scalar_like(behind, (capacity + added - 1) as f64)?;
    let behind = g.binary(BinaryOp::Min, behind, last)?;
    let kept = g.compare(CompareOp::Lt, place, before)?;
    let from = g.select(kept, place, behind)?;
    let from = g.expanded(from, &[batch, length])?;
    let from = g.unsqueezed(from, 2)?;
    let rows = g.permuted(cache, &[0, 2, 1, 3])?;
    let rows = g.emit(Op::GatherNd { batch_dims: 1 }, &[rows, from])?;
    g.permuted(rows, &[0, 2, 1, 3])
}

/// The bias that lets query `i` of a row attend the keys up to its own place, at most `window` of them.
fn bounds(g: &mut Importer, [rows, keys]: [i64; 2], before: ValueId, window: i64, like: ValueId) -> Result<ValueId> {
    let batch = g.shape(before)[0];
    let before = g.reshape_to(before, vec![batch, 1, 1, 1])?;
    let (i, j) = (g.counting(rows, 2, 4)?, g.counting(keys, 3, 4)?);
    let place = g.add(before, i)?;
    let mut allowed = g.compare(CompareOp::Le, j, place)?;
    if window > 0 {
        let first = g.plus(place, -window as f64)?;
        let near = g.compare(CompareOp::Gt, j, first)?;
        allowed = g.binary(BinaryOp::And, allowed, near)?;
    }
    g.mask_bias(allowed, like)
}
