//! Normalizations of a sum of operands, and of embeddings.

use crate::expr::UnaryOp;
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::ir::ValueId;
use crate::graph::op::{F32, Op, ReduceOp};
use crate::runtime::{DType, Error, Result};

/// The inverse deviation over the last dimension; `mean` is absent where it is not subtracted.
fn inverse_deviation(g: &mut Importer, x: ValueId, mean: Option<ValueId>, epsilon: f32) -> Result<ValueId> {
    let last = g.axis(-1, g.rank(x))?;
    let centred = match mean {
        Some(mean) => g.sub(x, mean)?,
        None => x,
    };
    let square = g.mul(centred, centred)?;
    let variance = g.reduce_kept(ReduceOp::Mean, square, &[last])?;
    let shifted = g.plus(variance, f64::from(epsilon))?;
    let deviation = g.unary(UnaryOp::Sqrt, shifted)?;
    let one = g.scalar_like(deviation, 1.0)?;
    g.div(one, deviation)
}

/// `input + skip + bias`, normalized: the result, mean, inverse deviation, and the sum.
pub(in crate::graph::import) fn skip_layer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, skip, scale, beta, bias) = (n.input(0)?, n.input(1)?, n.input(2)?, n.optional(3), n.optional(4));
    let epsilon = n.float("epsilon", 1e-12);
    let sum = summed(g, x, skip, bias)?;
    let last = g.axis(-1, g.rank(sum))?;
    let operands: Vec<ValueId> = [Some(sum), Some(scale), beta].into_iter().flatten().collect();
    let y = g.emit(Op::LayerNorm { axis: last, epsilon: F32::new(epsilon) }, &operands)?;
    let mean = g.reduce_kept(ReduceOp::Mean, sum, &[last])?;
    let inverse = inverse_deviation(g, sum, Some(mean), epsilon)?;
    Ok(vec![y, mean, inverse, sum])
}

fn summed(g: &mut Importer, x: ValueId, skip: ValueId, bias: Option<ValueId>) -> Result<ValueId> {
    if g.rank(x) == 0 {
        return Err(Error::Invalid("its operand has no dimensions".into()));
    }
    let x = match bias {
        Some(bias) => g.add(x, bias)?,
        None => x,
    };
    g.add(x, skip)
}

/// As [`skip_layer`], divided by the root of the mean square alone.
pub(in crate::graph::import) fn skip_simplified(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, skip, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?, n.optional(3));
    let sum = summed(g, x, skip, bias)?;
    let inverse = inverse_deviation(g, sum, None, n.float("epsilon", 1e-12))?;
    let y = g.mul(sum, inverse)?;
    // the second result is a mean, which is not taken
    let none = g.times(inverse, 0.0)?;
    Ok(vec![g.mul(y, scale)?, none, inverse, sum])
}

/// `x / √(mean(x²) + ε) · scale` over the last dimensions, and the factor of each row.
pub(in crate::graph::import) fn simplified_layer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let axis = g.axis(n.int("axis", -1), g.rank(x))?;
    let axes: Vec<usize> = (axis..g.rank(x)).collect();
    let square = g.mul(x, x)?;
    let mean = g.reduce_kept(ReduceOp::Mean, square, &axes)?;
    let shifted = g.plus(mean, f64::from(n.float("epsilon", 1e-5)))?;
    let deviation = g.unary(UnaryOp::Sqrt, shifted)?;
    let y = g.div(x, deviation)?;
    let y = g.mul(y, scale)?;
    let one = g.scalar_like(deviation, 1.0)?;
    Ok(vec![y, g.div(one, deviation)?])
}

/// The sum of the embeddings of words, positions and segments, normalized; the lengths of the masks; the sum.
pub(in crate::graph::import) fn embed_layer(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (words, segments, of_words, of_places) = (n.input(0)?, n.optional(1), n.input(2)?, n.input(3)?);
    let (of_segments, scale, beta) = (n.optional(4), n.input(5)?, n.input(6)?);
    let (mask, places) = (n.optional(7), n.optional(8));
    let &[batch, length] = g.shape(words) else {
        return Err(Error::Invalid(format!("words of shape {:?} do not have 2 dimensions", g.shape(words))));
    };
    let row = |g: &mut Importer, table, indices| g.emit(Op::Lookup, &[table, indices]);
    let mut sum = row(g, of_words, words)?;
    let places = match places {
        Some(places) => row(g, of_places, places)?,
        None if g.shape(of_places)[0] < length => {
            return Err(Error::Invalid(format!(
                "{length} words are more than the positions, of shape {:?}",
                g.shape(of_places)
            )));
        }
        None => g.slice(of_places, 0, 0, length)?,
    };
    sum = g.add(sum, places)?;
    if let (Some(segments), Some(table)) = (segments, of_segments) {
        let segment = row(g, table, segments)?;
        sum = g.add(sum, segment)?;
    }
    let y = g.emit(Op::LayerNorm { axis: 2, epsilon: F32::new(n.float("epsilon", 1e-12)) }, &[sum, scale, beta])?;
    let lengths = match mask {
        Some(mask) => {
            let mask = g.cast_to(mask, DType::I32)?;
            g.sum_over(mask, &[1])?
        }
        None => {
            let zero = g.counting(1, 0, 1)?;
            let zero = g.cast_to(zero, DType::I32)?;
            g.expanded(zero, &[batch])?
        }
    };
    Ok(vec![y, lengths, sum])
}
