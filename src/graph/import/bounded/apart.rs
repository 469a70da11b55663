//! Operators that compute each place along a dimension that grows on its own.
//!
//! In: a node whose results along the bounded dimensions of its operands follow from the elements at the same place alone. Out:
//! its results for all places of the capacity, of zeros beyond the count.

use super::operators::refused;
use super::state::Axis;
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::import::table::Converter;
use crate::graph::ir::ValueId;
use crate::runtime::Result;

/// The results of a node; `None` for nodes that are not known to be of this kind.
pub(super) fn convert(g: &mut Importer, n: &Source, convert: Converter) -> Result<Option<Vec<ValueId>>> {
    let operands = n.operands();
    let rank = operands.first().copied().flatten().map_or(0, |v| g.rank(v));
    let along = |default: i64, rank: usize| g.axis(n.int("axis", default), rank);
    // the dimension of the results that a dimension of an operand becomes
    let place = |operand: usize, axis: usize| -> Result<Option<usize>> {
        Ok(match (n.proto.op_type.as_str(), operand) {
            ("ArgMax" | "ArgMin", 0) => {
                let along = along(0, rank)?;
                let gone = usize::from(!n.flag("keepdims", true) && axis > along);
                (axis != along).then_some(axis - gone)
            }
            ("TopK", 0) => (axis != along(-1, rank)?).then_some(axis),
            ("OneHot", 0) => Some(axis + usize::from(axis >= along(-1, rank + 1)?)),
            ("RoiAlign", 1 | 2) => (axis == 0).then_some(0),
            // as many dimensions as the image has
            ("GridSample", 1) => (1..rank.saturating_sub(1)).contains(&axis).then_some(axis + 1),
            _ => None,
        })
    };
    let (mut axes, mut bounded) = (Vec::<Axis>::new(), vec![]);
    for (i, &operand) in operands.iter().enumerate() {
        for growing in operand.map_or(vec![], |v| g.axes(v)) {
            let Some(axis) = place(i, growing.axis)? else { return Ok(None) };
            match axes.iter().find(|earlier| earlier.axis == axis) {
                Some(earlier) if earlier.count != growing.count => return Err(refused("another size")),
                Some(_) => {}
                None => axes.push(Axis { axis, zero: false, ..growing }),
            }
            bounded.push((i, growing.axis));
        }
    }
    axes.sort_by_key(|a| a.axis);
    let mut inputs = operands;
    for (i, axis) in bounded {
        inputs[i] = inputs[i].map(|v| g.masked(v, axis, 0.0, 0)).transpose()?;
    }
    for input in inputs.iter_mut().flatten() {
        *input = g.without_axes(*input)?;
    }
    n.present();
    let results = n.converted(g, inputs, convert)?;
    results.iter().for_each(|&result| g.set_axes(result, axes.clone()));
    Ok(Some(results))
}
