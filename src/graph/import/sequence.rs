//! Operators that make or read sequences and optionals: run by the host, between parts that are compiled.
//!
//! In: a node and the values of its operands. Out: its results. Sequences share their elements, nothing is copied but by
//! splits and concatenations.

use super::node::Source;
use super::tensor;
use crate::graph::fold;
use crate::graph::import::importer::{self, Importer};
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::graph::proto::NodeProto;
use crate::graph::value::Value;
use crate::runtime::{DType, Error, Result, Tensor};
use std::sync::Arc;

type Operands<'a> = &'a [Option<Value>];

/// The row of these operators in the table of converters: they are no part of a static graph.
pub(super) fn by_host(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    n.present();
    Err(g.wait("it makes or reads a sequence or an optional, which no static graph has"))
}

/// The results of an operator on sequences or optionals; `None` for other operators.
///
/// # Errors
/// `Invalid` where an operand is missing, of another kind, or a position lies outside of a sequence.
pub fn apply(node: &NodeProto, operands: Operands, opset: i64) -> Result<Option<Vec<Value>>> {
    let n = Source::new(node, vec![], opset);
    let one = |value: Value| Ok(Some(vec![value]));
    match node.op_type.as_str() {
        "Identity" => one(operand(operands, 0)?.clone()),
        "SequenceEmpty" => one(Value::Sequence(vec![])),
        "SequenceConstruct" => one(Value::Sequence(operands.iter().flatten().cloned().collect())),
        "SequenceLength" => one(scalar(operand(operands, 0)?.sequence()?.len() as i64)),
        "SequenceAt" => {
            let values = operand(operands, 0)?.sequence()?;
            one(values[position(operands, 1, values.len(), false)?].clone())
        }
        "SequenceInsert" => {
            let mut values = operand(operands, 0)?.sequence()?.to_vec();
            let at = position(operands, 2, values.len(), true)?;
            values.insert(at, operand(operands, 1)?.clone());
            one(Value::Sequence(values))
        }
        "SequenceErase" => {
            let mut values = operand(operands, 0)?.sequence()?.to_vec();
            let at = position(operands, 1, values.len(), false)?;
            values.remove(at);
            one(Value::Sequence(values))
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

fn scalar(value: i64) -> Value {
    Tensor::new(&[], &[value]).into()
}

/// The elements of a tensor of positions or sizes.
fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    tensor::integers(tensor).ok_or_else(|| Error::Invalid(format!("a position or size of type {}", tensor.dtype)))
}

/// The position that operand `i` says in a sequence of `len` values, negative from the back; without the operand: its last,
/// or its end where a value may be put there.
fn position(operands: Operands, i: usize, len: usize, end: bool) -> Result<usize> {
    let most = len as i64 + end as i64;
    let at = match operands.get(i) {
        None | Some(None) => most - 1,
        Some(Some(value)) => match integers(value.tensor()?)?[..] {
            [at] if at < 0 => at + len as i64,
            [at] => at,
            _ => return Err(Error::Invalid("the position is not one number".into())),
        },
    };
    if !(0..most).contains(&at) {
        return Err(Error::Invalid(format!("position {at} in a sequence of {len}")));
    }
    Ok(at as usize)
}

fn split(n: &Source, operands: Operands) -> Result<Value> {
    let x = operand(operands, 0)?.tensor()?;
    let axis = importer::axis(n.int("axis", 0), x.shape.len())?;
    let extent = x.shape[axis];
    let keep = n.flag("keepdims", true) || operands.get(1).is_some_and(Option::is_some);
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
        return Err(Error::Invalid(format!("parts of {sizes:?} of {extent} elements")));
    }
    let mut start = 0;
    let part = |size: i64| -> Result<Value> {
        let (mut starts, mut ends, steps) = (vec![0; x.shape.len()], x.shape.clone(), vec![1; x.shape.len()]);
        (starts[axis], ends[axis]) = (start, start + size);
        start += size;
        let mut part = fold::evaluate(&Op::Slice { starts, ends, steps }, &[x])?.remove(0);
        if !keep {
            part.shape.remove(axis);
        }
        Ok(part.into())
    };
    sizes.into_iter().map(part).collect::<Result<_>>().map(Value::Sequence)
}

fn concat(n: &Source, values: &[Value]) -> Result<Value> {
    let tensors = values.iter().map(Value::tensor).collect::<Result<Vec<_>>>()?;
    let Some(first) = tensors.first() else { return Err(Error::Invalid("a sequence without elements".into())) };
    let added = n.flag("new_axis", false);
    let axis = importer::axis(n.int("axis", 0), first.shape.len() + added as usize)?;
    let with_axis = |tensor: &&Arc<Tensor>| {
        let mut tensor = Tensor::clone(tensor);
        if added {
            tensor.shape.insert(axis.min(tensor.shape.len()), 1);
        }
        tensor
    };
    let tensors: Vec<Tensor> = tensors.iter().map(with_axis).collect();
    let operands: Vec<&Tensor> = tensors.iter().collect();
    Ok(fold::evaluate(&Op::Concat { axis }, &operands)?.remove(0).into())
}
