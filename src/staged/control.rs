//! Branches and loops that the host runs, since their conditions, numbers of steps or types depend on data.

use crate::graph::import::{stage, walk};
use crate::graph::proto::{GraphProto, NodeProto};
use crate::graph::value::Value;
use crate::runtime::Bytes;
use crate::staged::environment::{Entry, Environment};
use crate::staged::growth::{Carried, Growth};
use crate::staged::{Frame, Staged, address};
use crate::{DType, Error, Result, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of steps that a loop is compiled for; the host runs it for others.
const MOST_TRIPS: usize = 8;
/// Graphs inside of graphs that the host runs.
const MAX_DEPTH: usize = 16;

impl Staged {
    /// The results of a node with graphs inside, which are in `frame`; `None` for other nodes. A branch may change the values
    /// of `last`, by their names, that it reads last.
    pub(super) fn control(
        &self,
        node: &NodeProto,
        (operands, last): (&mut [Option<Value>], Vec<(String, Value)>),
        environment: &Environment,
        frame: &Frame,
    ) -> Result<Option<Vec<Value>>> {
        let inside = |name: &str| {
            walk::graph_inside(node, name).ok_or_else(|| Error::Invalid(format!("the attribute `{name}` is missing")))
        };
        if frame.depth >= MAX_DEPTH {
            return Err(Error::Limit(format!("graphs are nested more than {MAX_DEPTH} deep")));
        }
        match node.op_type.as_str() {
            "If" => {
                let condition = operands.first().and_then(Option::as_ref);
                let condition = condition.ok_or_else(|| Error::Invalid("the condition is missing".into()))?;
                let branch = if truth(condition)? { "then_branch" } else { "else_branch" };
                self.call(inside(branch)?, (vec![], vec![]), (environment, last), frame).map(Some)
            }
            "Loop" => self.run_loop(inside("body")?, operands, environment, frame).map(Some),
            "SequenceMap" => self.map(inside("body")?, operands, environment, frame).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns true for a loop that the next part may compute: its operands are known, and it has not had many numbers of
    /// steps before, for each of which a part is compiled.
    pub(super) fn may_compile(&self, node: &NodeProto, environment: &Environment) -> bool {
        if node.op_type != "Loop" {
            return false;
        }
        let most = node.input.first().and_then(|name| environment.get(name)).and_then(Entry::tensor);
        let trips = match most {
            Some(most) if most.dtype == DType::I64 && most.len() == 1 => most.to_vec::<i64>()[0],
            _ => i64::MAX,
        };
        let mut trip_counts = self.trips.lock().unwrap_or_else(|e| e.into_inner());
        let trip_counts = trip_counts.entry(address(node)).or_default();
        if !trip_counts.contains(&trips) && trip_counts.len() < MOST_TRIPS {
            trip_counts.push(trips);
        }
        trip_counts.contains(&trips)
    }

    /// Runs a graph inside of another one on these inputs. `last` has values that it captures and nothing else reads.
    fn call(
        &self,
        graph: &GraphProto,
        (inputs, growth): (Vec<Value>, Vec<Option<Growth>>),
        (environment, last): (&Environment, Vec<(String, Value)>),
        frame: &Frame,
    ) -> Result<Vec<Value>> {
        if graph.input.len() != inputs.len() {
            let (has, given) = (graph.input.len(), inputs.len());
            return Err(Error::Invalid(format!("the graph inside has {has} inputs, but {given} are given")));
        }
        let mut inner = Environment { outside: Some(environment), values: HashMap::new() };
        last.into_iter().for_each(|(name, value)| inner.insert(&name, value));
        let growth = growth.into_iter().chain(std::iter::repeat(None));
        for ((input, value), growth) in graph.input.iter().zip(inputs).zip(growth) {
            inner.insert_growing(&input.name, value, growth);
        }
        let around = frame.around.clone();
        self.graph(graph, &mut inner, &Frame { depth: frame.depth + 1, around, ..*frame })
    }

    /// Operands: the greatest number of steps, the condition, the carried values, which are taken.
    fn run_loop(
        &self,
        body: &GraphProto,
        operands: &mut [Option<Value>],
        environment: &Environment,
        frame: &Frame,
    ) -> Result<Vec<Value>> {
        let given = |i: usize| operands.get(i).and_then(Option::as_ref);
        let trips = match given(0) {
            None => i64::MAX,
            Some(value) => match value.tensor()? {
                tensor if tensor.dtype == DType::I64 && tensor.len() == 1 => tensor.to_vec::<i64>()[0],
                _ => return Err(Error::Invalid("the number of steps is not one i64".into())),
            },
        };
        let mut going = given(1).map_or(Ok(true), truth)?;
        let missing = || Error::Invalid("a carried value is missing".into());
        let carried = operands.iter_mut().skip(2).map(|v| v.take().ok_or_else(missing));
        let mut carried = carried.collect::<Result<Vec<Value>>>()?;
        let count = carried.len();
        if body.output.len() <= count {
            return Err(Error::Invalid("the body has fewer results than carried values".into()));
        }
        let mut slices: Vec<Vec<Arc<Tensor>>> = vec![vec![]; body.output.len() - 1 - count];
        let (mut growth, mut changes) = (vec![], Carried::default());
        let mut step = 0;
        let most = self.options.limits.steps;
        // of a condition that stays as it is the end is known before the first step
        let endless = trips > most && keeps_condition(body);
        while going && step < trips {
            if endless || step == most {
                let how = "`Limits::steps`";
                return Err(Error::Limit(format!("a loop that depends on data has more than {most} steps ({how})")));
            }
            let head = [Tensor::new(&[], &[step]).into(), bool_value(going)];
            let before = shapes(&carried);
            let growth_of_inputs = [None, None].into_iter().chain(growth).collect();
            let inputs = head.into_iter().chain(carried).collect();
            let results = self.call(body, (inputs, growth_of_inputs), (environment, vec![]), frame)?;
            let mut results = results.into_iter();
            going = results.next().map_or(Ok(false), |value| truth(&value))?;
            carried = results.by_ref().take(count).collect();
            growth = changes.step(&before, &shapes(&carried));
            for (stack, value) in slices.iter_mut().zip(results) {
                stack.push(value.tensor()?.clone());
            }
            step += 1;
        }
        let declared = body.output.iter().skip(1 + count);
        for (stack, output) in slices.iter().zip(declared) {
            carried.push(match stack.is_empty() {
                true => stage::empty_stack(output)?.into(),
                false => {
                    let bytes = stack.iter().map(|s| s.data.len() as u64).fold(0, u64::saturating_add);
                    frame.memory.reserve(bytes, || "what a loop stacks".into())?;
                    let tensor = Arc::new(stacked(stack)?);
                    frame.memory.add(&tensor);
                    Value::Tensor(tensor)
                }
            });
        }
        Ok(carried)
    }

    /// The body on each element of the first operand and of the other sequences; other operands are passed whole.
    fn map(
        &self,
        body: &GraphProto,
        operands: &[Option<Value>],
        environment: &Environment,
        frame: &Frame,
    ) -> Result<Vec<Value>> {
        let missing = || Error::Invalid("an operand is missing".into());
        let operands = operands.iter().map(|v| v.as_ref().ok_or_else(missing)).collect::<Result<Vec<_>>>()?;
        let count = operands.first().ok_or_else(missing)?.sequence()?.len();
        let other = |value: &&Value| matches!(value, Value::Sequence(values) if values.len() != count);
        if operands.iter().any(other) {
            return Err(Error::Invalid("sequences of different lengths".into()));
        }
        let mut results: Vec<Vec<Value>> = vec![vec![]; body.output.len()];
        for i in 0..count {
            let element = |value: &&Value| match value {
                Value::Sequence(values) => values[i].clone(),
                value => (*value).clone(),
            };
            let inputs = operands.iter().map(element).collect();
            for (all, value) in
                results.iter_mut().zip(self.call(body, (inputs, vec![]), (environment, vec![]), frame)?)
            {
                all.push(value);
            }
        }
        Ok(results.into_iter().map(Value::from).collect())
    }
}

/// Returns true for the body of a loop whose condition is the one that it was given.
fn keeps_condition(body: &GraphProto) -> bool {
    let (Some(given), Some(result)) = (body.input.get(1), body.output.first()) else { return false };
    let producer = |name: &str| body.node.iter().find(|node| node.output.iter().any(|output| output == name));
    let mut name = result.name.as_str();
    for _ in 0..=body.node.len() {
        if name == given.name {
            return true;
        }
        match producer(name) {
            Some(NodeProto { op_type, input, .. }) if op_type == "Identity" && input.len() == 1 => name = &input[0],
            _ => return false,
        }
    }
    false
}

/// The shapes of values that are tensors.
fn shapes(values: &[Value]) -> Vec<Option<Vec<i64>>> {
    values.iter().map(|value| value.tensor().ok().map(|tensor| tensor.shape.clone())).collect()
}

/// A condition: one bool.
fn truth(value: &Value) -> Result<bool> {
    match value.tensor()? {
        tensor if tensor.dtype == DType::Bool && tensor.len() == 1 => Ok(tensor.data[0] != 0),
        tensor => Err(Error::Invalid(format!("a condition of type {} and shape {:?}", tensor.dtype, tensor.shape))),
    }
}

fn bool_value(value: bool) -> Value {
    Tensor { dtype: DType::Bool, shape: vec![], data: vec![value as u8].into() }.into()
}

/// Tensors of one type, one after the other along a new first dimension.
fn stacked(slices: &[Arc<Tensor>]) -> Result<Tensor> {
    let first = &slices[0];
    if slices.iter().any(|s| s.dtype != first.dtype || s.shape != first.shape) {
        return Err(Error::Invalid("a result of a loop has another shape in each step".into()));
    }
    let shape = [&[slices.len() as i64], &first.shape[..]].concat();
    let bytes = first.data.len();
    let mut data = Bytes::zeros(slices.len() * bytes);
    data.chunks_exact_mut(bytes.max(1)).zip(slices).for_each(|(to, slice)| to.copy_from_slice(&slice.data));
    Ok(Tensor { dtype: first.dtype, shape, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::proto::ValueInfoProto;

    fn body(operator: &str) -> GraphProto {
        let value = |name: &str| ValueInfoProto { name: name.into(), ..Default::default() };
        let node = |op_type: &str, from: &str, to: &str| NodeProto {
            op_type: op_type.into(),
            input: vec![from.into()],
            output: vec![to.into()],
            ..Default::default()
        };
        GraphProto {
            input: vec![value("i"), value("go")],
            output: vec![value("on")],
            node: vec![node(operator, "go", "same"), node("Identity", "same", "on")],
            ..Default::default()
        }
    }

    #[test]
    fn a_condition_that_is_passed_on_stays() {
        assert!(keeps_condition(&body("Identity")));
        assert!(!keeps_condition(&body("Not")));
        let mut circle = body("Identity");
        circle.node[0].input[0] = "on".into();
        assert!(!keeps_condition(&circle));
    }
}
