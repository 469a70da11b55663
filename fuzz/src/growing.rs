//! Networks with a dimension that grows: a graph at capacity has the results of the graph of exact sizes, or is refused.

use super::check::{Verdict, compare, verdict};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use tilewright::internal::graph::fold::memo::Memo;
use tilewright::internal::graph::import::binding::BoundGraph;
use tilewright::internal::graph::import::model::{Binding, Growing, OnnxModel};
use tilewright::internal::graph::interpret;
use tilewright::internal::graph::ir::Value;
use tilewright::internal::graph::proto::ModelProto;
use tilewright::internal::runtime::bounds::{Bounds, at_capacity, exact_shape, resized};
use tilewright::{AsView, Graph, Tensor};

/// Elements of all values of a graph that is run.
const MOST_ELEMENTS: i64 = 300_000;
/// Name of the dimension.
const NAME: &str = "n";

/// A file whose inputs get a dimension that grows, to the outputs at capacity.
pub fn network(bytes: &[u8]) -> Verdict {
    let Ok(mut proto) = ModelProto::decode(bytes) else { return Ok(false) };
    let Some(size) = name_extent(&mut proto, bytes.len()) else { return Ok(false) };
    let model = match OnnxModel::parse(&proto.encode_to_vec(), "nowhere".as_ref()) {
        Ok(model) => model,
        Err(error) => return verdict::<()>(Err(error)),
    };
    let capacity = (size as u64).next_power_of_two().max(16) as i64;
    let offsets = BTreeMap::from([(NAME.to_string(), 0)]);
    let growing = Growing { name: NAME.into(), offsets, capacity, counts: (size, size) };
    let binding = Binding { growing: Some(growing), ..Binding::default() };
    let bound = match model.bind(&binding, &Memo::default()) {
        Ok(bound) => bound,
        Err(unbound) => return verdict::<()>(Err(unbound.error)),
    };
    let elements: i64 = bound.graph.values.iter().map(|v| v.ty.elements()).sum();
    let Some(bounds) = bound.bounds.as_ref().filter(|_| elements <= MOST_ELEMENTS) else { return Ok(true) };
    BTreeSet::from([size, bounds.least, bounds.most]).into_iter().try_for_each(|count| {
        agree(&model, &bound, bounds, count).map_err(|complaint| format!("for {count} of {size}: {complaint}"))
    })?;
    Ok(true)
}

/// The graph at capacity against that of exact sizes, which fails where the other one does.
fn agree(model: &OnnxModel, bound: &BoundGraph, bounds: &Bounds, count: i64) -> Result<(), String> {
    let own = bound.graph.inputs.iter().map(|&v| bound.graph.value(v)).filter(|v| v.name != bounds.input);
    let seeded = |(i, value): (u64, &Value)| {
        let shape = exact_shape(&value.ty.shape, &bounds.inputs[i as usize], count);
        (value.name.clone(), Tensor::seeded(value.ty.dtype, &shape, 3, i, 2))
    };
    let inputs: Vec<(String, Tensor)> = (0..).zip(own).map(seeded).collect();
    let outputs = run(&bound.graph, bounds, &inputs, count);
    let tensors: Vec<Tensor> = inputs.into_iter().map(|(_, tensor)| tensor).collect();
    let exact = model.graph(&BTreeMap::from([(NAME.to_string(), count)]));
    let expected = exact.and_then(|graph| Ok((interpret::run(&graph, &tensors)?, graph)));
    match (expected, outputs) {
        (Ok((_, graph)), Ok(outputs)) => compare(&graph, &tensors, &outputs).map(|_| ()),
        (Ok(_), Err(error)) => Err(format!("an error at capacity alone: {error}")),
        (Err(error), Ok(_)) => Err(format!("refused of exact sizes alone: {error}")),
        (Err(_), Err(_)) => Ok(()),
    }
}

/// Gives one of the extents of the inputs a name wherever it stands; returns it.
fn name_extent(proto: &mut ModelProto, choice: usize) -> Option<i64> {
    let graph = proto.graph.as_mut()?;
    let given: Vec<String> = graph.initializer.iter().map(|t| t.name.clone()).collect();
    let inputs = graph.input.iter_mut().filter(|input| !given.contains(&input.name));
    let types = inputs.filter_map(|input| input.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut());
    let mut dims: Vec<_> = types.flat_map(|shape| &mut shape.dim).filter(|d| d.dim_value > Some(0)).collect();
    let size = dims.get(choice.checked_rem(dims.len())?)?.dim_value?;
    for dim in dims.iter_mut().filter(|dim| dim.dim_value == Some(size)) {
        (dim.dim_value, dim.dim_param) = (None, Some(NAME.into()));
    }
    (size <= 1 << 20).then_some(size)
}

/// The outputs at capacity, cut to their exact sizes.
fn run(graph: &Graph, bounds: &Bounds, inputs: &[(String, Tensor)], count: i64) -> tilewright::Result<Vec<Tensor>> {
    let specs: Vec<(&str, &[i64])> =
        graph.inputs.iter().map(|&v| (&*graph.value(v).name, &graph.value(v).ty.shape[..])).collect();
    let views: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    let mut padded: BTreeMap<String, Tensor> = at_capacity(bounds, &specs, &views, count)?.into_iter().collect();
    let ordered: Vec<Tensor> = specs.iter().filter_map(|(name, _)| padded.remove(*name)).collect();
    let outputs = interpret::run(graph, &ordered)?;
    let exact = outputs.iter().zip(&bounds.outputs);
    Ok(exact.map(|(t, axes)| resized(&t.view(), &exact_shape(&t.shape, axes, count))).collect())
}
