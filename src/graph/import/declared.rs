//! Declared types: the inputs of a file, and its outputs against the computed ones: another element type is an error, another shape a warning.

use super::{sparse, tensor};
use crate::graph::import::importer::Importer;
use crate::graph::import::model::{Dim, InputSpec, OnnxModel, OutputDeclaration};
use crate::graph::ir::{Graph, ValueId};
use crate::graph::proto::{DimensionProto, GraphProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};
use crate::graph::value::Kind;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

impl OnnxModel {
    /// The inputs with a default: an initializer of their name, which stands for them unless they are given.
    pub fn defaults(&self) -> &[InputSpec] {
        &self.defaults
    }

    /// The outputs in the file's order, as far as it declares them.
    pub fn outputs(&self) -> Vec<OutputDeclaration> {
        self.onnx_graph().output.iter().map(output_declaration).collect()
    }

    /// The model in which these inputs have no defaults: each run gives them.
    ///
    /// # Errors
    /// `Invalid` where the model has no such input.
    pub fn with_inputs(&self, names: &[&str]) -> Result<OnnxModel> {
        let is_named = |name: &String| names.contains(&name.as_str());
        let listed = || self.inputs.iter().chain(&self.defaults);
        if let Some(name) = names.iter().find(|name| !listed().any(|spec| spec.name == **name)) {
            let declared: Vec<&str> = listed().map(|spec| spec.name.as_str()).collect();
            return Err(Error::Invalid(unknown("input", name, &declared)));
        }
        let declared = self.onnx_graph().input.iter();
        let specs = declared.filter_map(|input| listed().find(|spec| spec.name == input.name));
        let (defaults, inputs) = specs.cloned().partition(|s| self.defaults.contains(s) && !is_named(&s.name));
        let weights: Vec<_> = self.weights.iter().filter(|weight| !is_named(&weight.0)).cloned().collect();
        Ok(OnnxModel { inputs, defaults, weights, content: OnceLock::new(), ..self.clone() })
    }

    /// A sentence for each output whose declared shape is not the computed one; `graph` is a graph of this model.
    pub fn warnings(&self, graph: &Graph) -> Vec<String> {
        let mut sizes: HashMap<&str, i64> = HashMap::new();
        for (spec, &id) in self.inputs.iter().zip(&graph.inputs) {
            for (dim, &size) in spec.shape.iter().zip(&graph.value(id).ty.shape) {
                if let Dim::Symbol(name) = dim {
                    sizes.insert(name, size);
                }
            }
        }
        let outputs = self.onnx_graph().output.iter().zip(&graph.outputs);
        outputs.filter_map(|(output, &id)| wrong_shape(output, &graph.value(id).ty.shape, &sizes)).collect()
    }
}

impl Importer<'_> {
    /// Fails when an output has another element type than the file declares.
    pub(super) fn check_declared_type(&self, output: &ValueInfoProto, id: ValueId) -> Result<()> {
        let declared = output.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).map_or(0, |t| t.elem_type);
        match (declared, self.ty(id).dtype) {
            (0, _) => Ok(()),
            (code, dtype) if tensor::dtype(code).is_ok_and(|d| d == dtype) => Ok(()),
            (code, dtype) => {
                let declared = tensor::dtype(code).map_or(format!("type {code}"), |d| d.to_string());
                Err(Error::Invalid(format!("output `{}` is declared {declared}, but it is {dtype}", output.name)))
            }
        }
    }
}

/// A sentence about an output whose declared shape is not `actual`. Dimensions that nothing binds may be anything.
fn wrong_shape(output: &ValueInfoProto, actual: &[i64], sizes: &HashMap<&str, i64>) -> Option<String> {
    let shape = output.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?;
    let size = |d: &DimensionProto| match &d.dim_param {
        Some(name) if !name.is_empty() => sizes.get(name.as_str()).copied(),
        _ => d.dim_value.filter(|v| *v >= 0),
    };
    let declared: Vec<Option<i64>> = shape.dim.iter().map(size).collect();
    let fits = declared.len() == actual.len() && declared.iter().zip(actual).all(|(d, a)| d.is_none_or(|d| d == *a));
    let text: Vec<String> = declared.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
    let text = text.join(", ");
    (!fits).then(|| format!("output `{}` is declared with shape [{text}], but it is {actual:?}", output.name))
}

/// The inputs that a caller provides, those without an initializer; and the others, whose initializers are their defaults.
pub(super) fn input_specs(graph: &GraphProto) -> Result<(Vec<InputSpec>, Vec<InputSpec>)> {
    let dense: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let sparse: HashSet<&str> = sparse::names(graph).map(String::as_str).collect();
    let has_default = |input: &&ValueInfoProto| dense.contains(input.name.as_str());
    let is_given = |input: &&ValueInfoProto| !has_default(input) && !sparse.contains(input.name.as_str());
    let inputs = graph.input.iter().filter(is_given).map(input_spec).collect::<Result<_>>()?;
    Ok((inputs, graph.input.iter().filter(has_default).filter_map(|input| input_spec(input).ok()).collect()))
}

fn input_spec(input: &ValueInfoProto) -> Result<InputSpec> {
    let name = &input.name;
    let unknown = || Error::Unsupported(format!("input `{name}` is not a tensor, sequence or optional"));
    let (kind, ty) = input.r#type.as_ref().and_then(kind).ok_or_else(unknown)?;
    let dtype = tensor::dtype(ty.elem_type).map_err(|e| e.context(&format!("input `{name}`")))?;
    let any_rank = kind == Kind::Tensor && ty.shape.is_none();
    let shape = ty.shape.as_ref().filter(|_| kind == Kind::Tensor).map_or(vec![], |shape| dims(name, shape));
    Ok(InputSpec { name: name.clone(), dtype, shape, kind, any_rank })
}

fn output_declaration(output: &ValueInfoProto) -> OutputDeclaration {
    let name = output.name.clone();
    let Some((kind, ty)) = output.r#type.as_ref().and_then(kind) else {
        return OutputDeclaration::undeclared(&name);
    };
    let shape = ty.shape.as_ref().filter(|_| kind == Kind::Tensor).map(|shape| dims(&name, shape));
    OutputDeclaration { dtype: tensor::dtype(ty.elem_type).ok(), shape, kind, name }
}

/// The declared dimensions of the value `name`; one that the file leaves open has a symbol of its own.
fn dims(name: &str, shape: &TensorShapeProto) -> Vec<Dim> {
    let dim = |(axis, d): (usize, &DimensionProto)| match (&d.dim_param, d.dim_value) {
        (Some(p), _) if !p.is_empty() && p != "?" => Dim::Symbol(p.clone()),
        (_, Some(v)) if v >= 0 => Dim::Fixed(v),
        _ => Dim::Symbol(format!("{name}_{axis}")),
    };
    shape.dim.iter().enumerate().map(dim).collect()
}

/// The kind of a declared type, and the type of its tensors.
fn kind(ty: &TypeProto) -> Option<(Kind, &TensorTypeProto)> {
    if let Some(tensor) = &ty.tensor_type {
        return Some((Kind::Tensor, tensor));
    }
    let (make, element): (fn(Box<Kind>) -> Kind, _) = match (&ty.sequence_type, &ty.optional_type) {
        (Some(of), _) => (Kind::Sequence, of),
        (_, Some(of)) => (Kind::Optional, of),
        (None, None) => return None,
    };
    let (kind, tensor) = kind(element.elem_type.as_ref()?)?;
    Some((make(Box::new(kind)), tensor))
}
