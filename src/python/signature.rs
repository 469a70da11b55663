//! Names, types and shapes of inputs and outputs.

use crate::arrays;
use pyo3::prelude::*;
use tilewright::module::OutputSpec;
use tilewright::{DType, Dim, InputSpec, Kind, Module};

/// Name, element type, extents and kind of an input or an output, as Python's files take them.
pub type Declaration = (String, Option<&'static str>, Option<Vec<Extent>>, String);

/// Extent of a dimension: a number, or a name.
#[derive(IntoPyObject, Clone)]
pub enum Extent {
    Number(i64),
    Name(String),
}

impl From<&Dim> for Extent {
    fn from(dim: &Dim) -> Extent {
        match dim {
            Dim::Fixed(extent) => Extent::Number(*extent),
            Dim::Symbol(name) | Dim::Derived(name) => Extent::Name(name.clone()),
        }
    }
}

/// The declaration of an input.
pub fn declaration(spec: &InputSpec) -> Declaration {
    let shape = (!spec.any_rank).then(|| spec.shape.iter().map(Extent::from).collect());
    (spec.name.clone(), Some(arrays::name(spec.dtype)), shape, spec.kind.to_string())
}

/// The inputs of a module, without the one that holds a count; what differs between its bindings has a name.
pub fn inputs(module: &Module) -> Vec<InputSpec> {
    let bounds = module.bounds();
    let counted = |name: &str| bounds.is_some_and(|bounds| bounds.input == name);
    let mut specs = vec![];
    for (i, input) in module.inputs().iter().enumerate().filter(|(_, input)| !counted(&input.name)) {
        let grows = |axis: usize| bounds.is_some_and(|b| b.inputs[i].iter().any(|bounded| bounded.axis == axis));
        let differs = |axis: usize| {
            let extent =
                |m: &Module| m.inputs().iter().find(|o| o.name == input.name).map(|o| o.shape.get(axis).copied());
            module.bindings().any(|other| extent(other) != extent(module))
        };
        let dim = |(axis, extent): (usize, &i64)| match grows(axis) || differs(axis) {
            true => Dim::Symbol(format!("{}_{axis}", input.name)),
            false => Dim::Fixed(*extent),
        };
        let shape = input.shape.iter().enumerate().map(dim).collect();
        specs.push(InputSpec::tensor(input.name.clone(), input.dtype, shape));
    }
    specs
}

/// The outputs of a module; what differs between its bindings has a name.
pub fn outputs(module: &Module) -> Vec<Declaration> {
    let row = |(i, output): (usize, &OutputSpec)| {
        let (name, dtype): (&str, DType) = (&output.tensor.name, output.tensor.dtype);
        let grows = |axis: usize| module.bounds().is_some_and(|b| b.outputs[i].iter().any(|o| o.axis == axis));
        let differs = |axis: usize| {
            let extent = |m: &Module| m.outputs().get(i).map(|o| o.tensor.shape.get(axis).copied());
            module.bindings().any(|other| extent(other) != extent(module))
        };
        let dim = |(axis, extent): (usize, &i64)| match grows(axis) || differs(axis) {
            true => Extent::Name(format!("{name}_{axis}")),
            false => Extent::Number(*extent),
        };
        let shape = output.tensor.shape.iter().enumerate().map(dim).collect();
        (name.to_string(), Some(arrays::name(dtype)), Some(shape), Kind::Tensor.to_string())
    };
    module.outputs().iter().enumerate().map(row).collect()
}
