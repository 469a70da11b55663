//! Growth: dimensions whose sizes come out of data, and the counts that they follow.
//!
//! In: a node that the host has computed and its results. Out: the dimension of each result that data decided. Parts are
//! compiled for capacities of these dimensions, so that a new count need not compile again.

use crate::Tensor;
use crate::graph::proto::NodeProto;
use crate::runtime::bounds::Form;
use std::sync::Arc;

/// A count that data decided: where it comes from, and its value in this run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Count {
    pub origin: String,
    pub value: i64,
}

/// Dimensions of a tensor that follow one count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    pub count: Arc<Count>,
    /// Dimensions and their sizes.
    pub axes: Vec<(usize, Form)>,
}

impl Growth {
    /// One dimension that is as large as the count.
    pub(super) fn along(axis: usize, count: Arc<Count>) -> Growth {
        Growth { count, axes: vec![(axis, Form { factor: 1, offset: 0 })] }
    }
}

/// The growth of each result of a node that the host has computed: of results whose size data decided.
pub(super) fn of_results(node: &NodeProto, operand: Option<&Tensor>, results: &[&Tensor]) -> Vec<Option<Growth>> {
    let mut counts: Vec<Arc<Count>> = vec![];
    let mut of_result = |index: usize, result: &Tensor| {
        let axis = axis(node, operand, index, result)?;
        let value = *result.shape.get(axis)?;
        let count = counts.iter().find(|count| count.value == value).cloned();
        let count = count.unwrap_or_else(|| {
            let origin = node.output.get(index).cloned().unwrap_or_default();
            let count = Arc::new(Count { origin, value });
            counts.push(count.clone());
            count
        });
        Some(Growth::along(axis, count))
    };
    results.iter().enumerate().map(|(index, result)| of_result(index, result)).collect()
}

/// The dimension of a result that data decided.
fn axis(node: &NodeProto, operand: Option<&Tensor>, index: usize, result: &Tensor) -> Option<usize> {
    let attribute = node.attribute.iter().find(|a| a.name == "axis").map(|a| a.i);
    let rank = result.shape.len();
    let counted = |axis: i64| usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok();
    match node.op_type.as_str() {
        "NonZero" => Some(1),
        "NonMaxSuppression" | "Range" => Some(0),
        "Compress" => counted(attribute.unwrap_or(0)),
        // the third result is as large as the operand
        "Unique" if index == 2 => None,
        "Unique" if index == 0 => counted(attribute.unwrap_or(0)),
        "Unique" => Some(0),
        "TopK" => counted(attribute.unwrap_or(-1)),
        "ConstantOfShape" if rank == 1 => Some(0),
        "Expand" | "Slice" => changed(&operand?.shape, &result.shape),
        _ => None,
    }
}

/// The only dimension that differs between two shapes, of which the shorter one has ones in front.
fn changed(from: &[i64], to: &[i64]) -> Option<usize> {
    let added = to.len().checked_sub(from.len())?;
    let differs = |d: &usize| d.checked_sub(added).map_or(1, |d| from[d]) != to[*d];
    let mut axes = (0..to.len()).filter(differs);
    axes.next().filter(|_| axes.next().is_none())
}

/// The growth of what a loop carries, from the shapes before and after each of its steps.
#[derive(Default)]
pub(super) struct Carried {
    /// Dimensions of each value that have changed so far.
    changed: Vec<Vec<usize>>,
}

impl Carried {
    /// Notes the shapes of the values after a step, `None` of what is not a tensor; returns the growth of each.
    pub(super) fn step(&mut self, before: &[Option<Vec<i64>>], after: &[Option<Vec<i64>>]) -> Vec<Option<Growth>> {
        self.changed.resize(after.len(), vec![]);
        for ((changed, before), after) in self.changed.iter_mut().zip(before).zip(after) {
            match (before, after) {
                (Some(before), Some(after)) if before.len() == after.len() => {
                    let differs = |d: &usize| before[*d] != after[*d] && !changed.contains(d);
                    let more: Vec<usize> = (0..after.len()).filter(differs).collect();
                    changed.extend(more);
                    changed.sort_unstable();
                }
                _ => changed.clear(),
            }
        }
        let growth = |(changed, shape): (&Vec<usize>, &Option<Vec<i64>>)| {
            let shape = shape.as_ref()?;
            let value = shape[*changed.first()?];
            let count = Arc::new(Count { origin: "carried".into(), value });
            let axes = changed.iter().map(|&axis| (axis, Form { factor: 1, offset: 0 })).collect();
            // dimensions of two sizes have no one count
            changed.iter().all(|&axis| shape[axis] == value).then_some(Growth { count, axes })
        };
        self.changed.iter().zip(after).map(growth).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dimension_that_changed() {
        assert_eq!(changed(&[2, 3], &[2, 5]), Some(1));
        assert_eq!(changed(&[3], &[7, 3]), Some(0));
        assert_eq!(changed(&[2, 3], &[4, 5]), None);
        assert_eq!(changed(&[2, 3], &[2, 3]), None);
        assert_eq!(changed(&[2, 3], &[3]), None);
    }

    #[test]
    fn carried_dimensions_grow_once_they_have_changed() {
        let mut carried = Carried::default();
        let shape = |d: &[i64]| Some(d.to_vec());
        let growth = carried.step(&[shape(&[1, 4]), shape(&[8])], &[shape(&[2, 4]), shape(&[8])]);
        assert_eq!(growth[0].as_ref().map(|g| (g.axes[0].0, g.count.value)), Some((0, 2)));
        assert_eq!(growth[1], None);
        let again = carried.step(&[shape(&[2, 4]), None], &[shape(&[2, 4]), None]);
        assert_eq!(again[0], growth[0]);
        let both = carried.step(&[shape(&[2, 4]), None], &[shape(&[2, 5]), None]);
        assert_eq!(both[0], None);
    }
}
