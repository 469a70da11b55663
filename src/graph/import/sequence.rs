//! Operators that make or read sequences and optionals: run by the host, between parts that are compiled.
//!
//! In: a node and the values of its operands. Out: its results. Sequences share their elements, nothing is copied but by
//! splits and concatenations. A sequence that nothing else holds is changed in place, so that a loop which appends to one takes
//! time for its steps alone.

use super::data_dependent::memory_bound;
use super::node::Source;
use super::{tensor, walk};
use crate::graph::import::importer::{self, Importer};
use crate::graph::ir::ValueId;
use crate::graph::proto::NodeProto;
use crate::graph::value::Value;
use crate::runtime::{Bytes, DType, Error, Result, Tensor, text};
use std::sync::Arc;

type Operands<'a> = &'a [Option<Value>];

/// The row of these operators in the table of converters: they are not part of a static graph.
pub(super) fn by_host(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    n.present();
    Err(g.wait("it makes or reads a sequence or an optional, which no static graph has"))
}

/// Returns true for operators on sequences or optionals, and for `Identity`, which takes them too.
pub fn applies(node: &NodeProto) -> bool {
    let operator = &node.op_type;
    operator.contains("Sequence") || operator.starts_with("Optional") || operator == "Identity"
}

/// The results of an operator on sequences or optionals; `None` for other operators. A sequence that changes is taken out of
/// the operands.
///
/// # Errors
/// `Invalid` where an operand is missing, of another kind, or a position lies outside of a sequence.
pub fn apply(node: &NodeProto, operands: &mut [Option<Value>], opset: i64) -> Result<Option<Vec<Value>>> {
    let n = Source::new(node, vec![], opset);
    let one = |value: Value| Ok(Some(vec![value]));
    match node.op_type.as_str() {
        "Identity" => one(operand(operands, 0)?.clone()),
        "SequenceEmpty" => one(Value::from(vec![])),
        "SequenceConstruct" => one(Value::from(operands.iter().flatten().cloned().collect::<Vec<Value>>())),
        "SequenceLength" => one(scalar(operand(operands, 0)?.sequence()?.len() as i64)),
        "SequenceAt" => {
            let values = operand(operands, 0)?.sequence()?;
            one(values[position(operands, 1, values.len(), false)?].clone())
        }
        "SequenceInsert" => {
            let position = position(operands, 2, operand(operands, 0)?.sequence()?.len(), true)?;
            let value = operand(operands, 1)?.clone();
            let mut values = take(operands, 0)?.into_sequence()?;
            values.insert(position, value);
            one(values.into())
        }
        "SequenceErase" => {
            let position = position(operands, 1, operand(operands, 0)?.sequence()?.len(), false)?;
            let mut values = take(operands, 0)?.into_sequence()?;
            values.remove(position);
            one(values.into())
        }
        "SplitToSequence" => one(split(&n, operands)?),
        "ConcatFromSequence" => one(concat(&n, operand(operands, 0)?.sequence()?)?),
        "Optional" => one(Value::Optional(operands.first().cloned().flatten().map(Box::new))),
        "OptionalHasElement" => {
            let there = !matches!(operands.first(), None | Some(None | Some(Value::Optional(None))));
            one(Tensor { dtype: DType::Bool, shape: vec![], data: vec![there as u8].into() }.into())
        }
        "OptionalGetElement" => match operand(operands, 0)? {
            Value::Optional(Some(value)) => one((**value).clone()),
            Value::Optional(None) => Err(Error::Invalid("the optional is absent".into())),
            value => one(value.clone()),
        },
        _ => Ok(None),
    }
}

fn operand<'a>(operands: Operands<'a>, i: usize) -> Result<&'a Value> {
    operands.get(i).and_then(Option::as_ref).ok_or_else(|| Error::Invalid(format!("operand {i} is missing")))
}

fn take(operands: &mut [Option<Value>], i: usize) -> Result<Value> {
    operands.get_mut(i).and_then(Option::take).ok_or_else(|| Error::Invalid(format!("operand {i} is missing")))
}

fn scalar(value: i64) -> Value {
    Tensor::new(&[], &[value]).into()
}

/// The elements of a tensor of positions or sizes.
fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    tensor::integers(tensor)
        .ok_or_else(|| Error::Invalid(format!("a position or size is not an integer but {}", tensor.dtype)))
}

/// The position that operand `i` says in a sequence of `len` values, negative from the back; without the operand: its last,
/// or its end where a value may be put there.
fn position(operands: Operands, i: usize, len: usize, end: bool) -> Result<usize> {
    let most = len as i64 + end as i64;
    let position = match operands.get(i) {
        None | Some(None) => most - 1,
        Some(Some(value)) => match integers(value.tensor()?)?[..] {
            [position] if position < 0 => position + len as i64,
            [position] => position,
            _ => return Err(Error::Invalid("the position is not one number".into())),
        },
    };
    if !(0..most).contains(&position) {
        return Err(Error::Invalid(format!("position {position} is outside of a sequence of {len}")));
    }
    Ok(position as usize)
}

/// Tensors and places that a node of the host makes, beside what its operands hold.
#[derive(Default)]
pub struct Made {
    pub tensors: u64,
    /// Of their elements, and of what computing them takes.
    pub bytes: u64,
    /// Places of values in new memory: of the sequences among the results, and of a sequence that has to be copied or moved
    /// before it can change.
    pub places: usize,
}

impl Made {
    /// For a node with these operands, before it runs.
    ///
    /// # Errors
    /// `Invalid` where an operand is missing or of another kind.
    pub fn of(node: &NodeProto, operands: Operands, opset: i64) -> Result<Made> {
        let n = Source::new(node, vec![], opset);
        let length = |i: usize| operand(operands, i).and_then(|value| Ok(value.sequence()?.len()));
        Ok(match node.op_type.as_str() {
            "SplitToSequence" => {
                let (x, _, sizes) = split_sizes(&n, operands)?;
                let rows = x.data.len() as u64;
                Made { tensors: sizes.len() as u64, bytes: rows, places: sizes.len() }
            }
            "ConcatFromSequence" => {
                let values = operand(operands, 0)?.sequence()?;
                let tensors = values.iter().map(|value| Ok(value.tensor()?.data.len() as u64));
                let bytes = tensors.collect::<Result<Vec<_>>>()?.into_iter().fold(0, u64::saturating_add);
                Made { tensors: 1, bytes, places: 0 }
            }
            "SequenceConstruct" => Made { places: operands.len(), ..Made::default() },
            // of a copy and, where memory grows, of twice as many
            "SequenceInsert" if alone(operands).is_none_or(|values| values.len() == values.capacity()) => {
                Made { places: 3 * (length(0)? + 1), ..Made::default() }
            }
            "SequenceErase" if alone(operands).is_none() => Made { places: length(0)?, ..Made::default() },
            _ if walk::depends_on_data(node) => {
                let tensors = operands.iter().flatten().map(|value| Ok(&**value.tensor()?));
                let bytes = memory_bound(&node.op_type, &tensors.collect::<Result<Vec<_>>>()?);
                Made { tensors: 1, bytes, places: 0 }
            }
            _ => Made::default(),
        })
    }
}

/// The first operand, where it is a sequence that nothing else holds.
fn alone<'a>(operands: Operands<'a>) -> Option<&'a Vec<Value>> {
    match operands.first() {
        Some(Some(Value::Sequence(values))) if Arc::strong_count(values) == 1 => Some(values),
        _ => None,
    }
}

/// The tensor to split, the axis, and the extents of the parts along it.
fn split_sizes<'a>(n: &Source, operands: Operands<'a>) -> Result<(&'a Tensor, usize, Vec<i64>)> {
    let x = operand(operands, 0)?.tensor()?;
    let axis = importer::axis(n.int("axis", 0), x.shape.len())?;
    let extent = x.shape[axis];
    let sizes = match operands.get(1).and_then(Option::as_ref) {
        None => vec![1; extent as usize],
        Some(sizes) => {
            let tensor = sizes.tensor()?;
            let sizes = integers(tensor)?;
            match sizes[..] {
                [size] if tensor.shape.is_empty() && size > 0 => {
                    let starts = (0..extent).step_by(size as usize);
                    starts.map(|start| size.min(extent - start)).collect()
                }
                _ => sizes,
            }
        }
    };
    if sizes.iter().any(|&s| s < 0) || sizes.iter().try_fold(0i64, |n, &s| n.checked_add(s)) != Some(extent) {
        let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
        return Err(Error::Invalid(format!("parts of [{}] of {extent} elements", text::list(&sizes))));
    }
    Ok((x, axis, sizes))
}

/// The bytes of one step along an axis, for one place of the dimensions before it.
fn row_bytes(tensor: &Tensor, axis: usize) -> usize {
    tensor.shape[axis + 1..].iter().product::<i64>() as usize * tensor.dtype.bytes()
}

fn split(n: &Source, operands: Operands) -> Result<Value> {
    let (x, axis, sizes) = split_sizes(n, operands)?;
    let keep = n.flag("keepdims", true) || operands.get(1).is_some_and(Option::is_some);
    let (row, extent) = (row_bytes(x, axis), x.shape[axis] as usize);
    let mut start = 0;
    let part = |size: i64| -> Value {
        let size = size as usize;
        let mut data = Vec::with_capacity(x.data.len() / extent.max(1) * size);
        let blocks = x.data.chunks_exact((extent * row).max(1));
        blocks.for_each(|block| data.extend_from_slice(&block[start * row..][..size * row]));
        start += size;
        let mut shape = x.shape.clone();
        match keep {
            true => shape[axis] = size as i64,
            false => _ = shape.remove(axis),
        }
        Tensor { dtype: x.dtype, shape, data: Bytes::from(data) }.into()
    };
    Ok(sizes.into_iter().map(part).collect::<Vec<Value>>().into())
}

fn concat(n: &Source, values: &[Value]) -> Result<Value> {
    let tensors = values.iter().map(Value::tensor).collect::<Result<Vec<_>>>()?;
    let Some(first) = tensors.first() else { return Err(Error::Invalid("a sequence without elements".into())) };
    let added = n.flag("new_axis", false);
    let axis = importer::axis(n.int("axis", 0), first.shape.len() + added as usize)?;
    let around = |t: &Tensor| match added {
        true => (t.shape.clone(), t.dtype),
        false => (t.shape.iter().enumerate().map(|(d, &e)| if d == axis { 0 } else { e }).collect(), t.dtype),
    };
    if let Some(other) = tensors.iter().find(|t| around(t) != around(first)) {
        let [a, b] = [first, other].map(|t| format!("{} {:?}", t.dtype, t.shape));
        return Err(Error::Invalid(format!("elements of the types {a} and {b} do not fit along axis {axis}")));
    }
    let mut shape = first.shape.clone();
    match added {
        true => shape.insert(axis, tensors.len() as i64),
        false => shape[axis] = tensors.iter().map(|t| t.shape[axis]).sum(),
    }
    let blocks: usize = shape[..axis].iter().product::<i64>() as usize;
    let mut data = Bytes::zeros(tensors.iter().map(|t| t.data.len()).sum());
    let mut unfilled = &mut data[..];
    for block in 0..blocks {
        for tensor in &tensors {
            let bytes = tensor.data.len() / blocks;
            let (to, behind) = unfilled.split_at_mut(bytes);
            to.copy_from_slice(&tensor.data[block * bytes..][..bytes]);
            unfilled = behind;
        }
    }
    Ok(Tensor { dtype: first.dtype, shape, data }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of an operator on a sequence, with the tensor that an insertion takes.
    fn changed(op: &str, sequence: Value, places: usize) -> Value {
        let node = NodeProto { op_type: op.into(), ..NodeProto::default() };
        let element = Value::from(Tensor::new(&[], &[7f32]));
        let mut operands = [Some(sequence), Some(element).filter(|_| op == "SequenceInsert")];
        assert_eq!(Made::of(&node, &operands, 17).unwrap().places, places, "{op}");
        apply(&node, &mut operands, 17).unwrap().unwrap().remove(0)
    }

    #[test]
    fn a_sequence_that_nothing_else_holds_changes_in_place() {
        let mut values = Vec::with_capacity(4);
        values.push(Value::from(Tensor::new(&[], &[1f32])));
        let place = values.as_ptr();
        let mut sequence = Value::from(values);
        for (op, len) in [("SequenceInsert", 2), ("SequenceErase", 1)] {
            sequence = changed(op, sequence, 0);
            let values = sequence.sequence().unwrap();
            assert_eq!((values.as_ptr(), values.len()), (place, len), "{op}");
        }
        for (op, places, len) in [("SequenceInsert", 6, 2), ("SequenceErase", 1, 0)] {
            assert_eq!(changed(op, sequence.clone(), places).sequence().unwrap().len(), len, "{op}");
            assert_eq!(sequence.sequence().unwrap().len(), 1, "{op}");
        }
    }
}
