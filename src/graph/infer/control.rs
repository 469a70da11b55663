//! Types of the operators with a graph of their own.

use crate::graph::infer::check::{Checked, ensure};
use crate::graph::op::{Body, Op};
use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

/// The types of the results of a scan or an if.
pub(super) fn types(op: &Op, inputs: &[&TensorType]) -> Checked<Vec<TensorType>> {
    match op {
        Op::Scan { trips, carried, reverse, conditional, body } => {
            ensure(!conditional || (*carried > 0 && is_condition(inputs[0])), || {
                "the first value is not a condition".into()
            })?;
            scan(*trips, *carried, reverse, *conditional, body, inputs)
        }
        Op::If { then, otherwise } => {
            ensure(is_condition(inputs[0]), || "the condition is not one bool".into())?;
            let captured = || inputs[1..].iter().copied();
            let fits = |body: &Body| body.inputs().iter().eq(captured());
            ensure(fits(then) && fits(otherwise), || "the graphs have other inputs".into())?;
            ensure(then.outputs() == otherwise.outputs(), || "the results of the graphs have different types".into())?;
            Ok(then.outputs().to_vec())
        }
        _ => Err("no graph inside".into()),
    }
}

fn is_condition(ty: &TensorType) -> bool {
    ty.dtype == DType::Bool && ty.shape.iter().all(|&d| d == 1)
}

fn scan(
    trips: i64,
    carried: usize,
    reverse: &[bool],
    conditional: bool,
    body: &Body,
    inputs: &[&TensorType],
) -> Checked<Vec<TensorType>> {
    ensure(trips >= 0, || "a negative number of steps".into())?;
    let stacked = body.outputs().len().checked_sub(carried).ok_or("the body carries fewer values")?;
    let scanned = reverse.len().checked_sub(stacked).ok_or("a direction is missing")?;
    ensure(inputs.len() == body.inputs().len() && carried + scanned <= inputs.len(), || {
        "the body has another number of inputs".into()
    })?;
    ensure(!conditional || stacked == 0, || "stacked results of an unknown number of steps".into())?;
    for (i, (&operand, input)) in inputs.iter().zip(body.inputs()).enumerate() {
        let fits = if (carried..carried + scanned).contains(&i) {
            operand.dtype == input.dtype
                && operand.shape.first() == Some(&trips)
                && operand.shape[1..] == input.shape[..]
        } else {
            operand == input
        };
        ensure(fits, || format!("operand {i} does not fit the body's input {input}"))?;
    }
    for (i, (input, output)) in body.inputs().iter().zip(body.outputs()).take(carried).enumerate() {
        ensure(input == output, || format!("carried value {i} is {input} before a step and {output} after"))?;
    }
    let stack = |t: &TensorType| TensorType { dtype: t.dtype, shape: [&[trips], &t.shape[..]].concat() };
    let (last, slices) = body.outputs().split_at(carried);
    Ok(last.iter().cloned().chain(slices.iter().map(stack)).collect())
}
