//! Losses of classification: the negative log likelihood and the cross entropy after a softmax.

use super::arithmetic::count;
use super::node::Source;
use crate::expr::CompareOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::runtime::{Error, Result};

pub(super) fn negative_log_likelihood(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![likelihood(g, n, x)?])
}

/// The loss, and the logarithms of the probabilities.
pub(super) fn softmax_cross_entropy(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    g.rank_of_two(x)?;
    let log = g.emit(Op::Softmax { axis: 1, log: true }, &[x])?;
    Ok(vec![likelihood(g, n, log)?, log])
}

/// `-x[n, target[n, …], …]` times the weight of the class, where an ignored target weighs nothing; summed, divided by
/// the sum of the weights, or left as it is.
fn likelihood(g: &mut Importer, n: &Source, x: ValueId) -> Result<ValueId> {
    let (target, weights) = (n.input(1)?, n.optional(2));
    let shape = g.shape(x).to_vec();
    let fits = shape.len() >= 2 && g.rank(target) + 1 == shape.len();
    if !fits || g.shape(target)[0] != shape[0] || g.shape(target)[1..] != shape[2..] {
        return Err(Error::Invalid(format!("targets of shape {:?} do not fit classes {shape:?}", g.shape(target))));
    }
    let reduction = n.string("reduction", "mean");
    let places = g.shape(target).to_vec();
    let ignored = n.attribute("ignore_index").is_some().then(|| n.int("ignore_index", 0));
    let ignored = match ignored {
        Some(index) => {
            let index = g.scalar_like(target, index as f64)?;
            Some(g.compare(CompareOp::Eq, target, index)?)
        }
        None => None,
    };
    let class = match ignored {
        Some(ignored) => {
            let zero = g.scalar_like(target, 0.0)?;
            g.select(ignored, zero, target)?
        }
        None => target,
    };
    let picked = g.unsqueezed(class, 1)?;
    let picked = g.emit(Op::GatherElements { axis: 1 }, &[x, picked])?;
    let picked = g.reshape_to(picked, places.clone())?;
    let mut loss = g.neg(picked)?;
    let mut weight = match weights {
        Some(w) if g.shape(w) != [shape[1]] => {
            return Err(Error::Invalid(format!("weights of shape {:?} do not fit {} classes", g.shape(w), shape[1])));
        }
        Some(w) => Some(g.emit(Op::Gather { axis: 0 }, &[w, class])?),
        None => None,
    };
    if let Some(ignored) = ignored {
        let (zero, one) = (g.scalar_like(x, 0.0)?, g.scalar_like(x, 1.0)?);
        weight = Some(g.select(ignored, zero, weight.unwrap_or(one))?);
        loss = g.select(ignored, zero, loss)?;
    }
    if let Some(weight) = weight {
        loss = g.mul(loss, weight)?;
    }
    let axes: Vec<usize> = (0..places.len()).collect();
    match reduction.as_str() {
        "none" => Ok(loss),
        "sum" => g.sum_over(loss, &axes),
        "mean" => match weight {
            Some(weight) => {
                let (sum, weights) = (g.sum_over(loss, &axes)?, g.sum_over(weight, &axes)?);
                g.div(sum, weights)
            }
            None if count(&places) == 0 => Err(Error::Invalid("the mean of no losses".into())),
            None => g.emit(Op::Reduce { op: ReduceOp::Mean, axes, keep: false }, &[loss]),
        },
        other => Err(Error::Invalid(format!("reduction `{other}` is not known"))),
    }
}
