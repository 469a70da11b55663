//! Values of inputs that decide shapes: axes, sizes, numbers of repetitions. They bind like dimensions.
//!
//! In: a model and a [`Binding`]. Out: the static graph, and which of the values became constants of it. The inputs that
//! matter are found by importing: an operand that must be known leads back to the inputs that it is computed from.

use crate::graph::fold::memo::Memo;
use crate::graph::import::bounded::state::Bounded;
use crate::graph::import::importer::{Converted, Importer};
use crate::graph::import::model::{Binding, OnnxModel};
use crate::graph::import::provenance::Absent;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::runtime::bounds::Bounds;
use crate::runtime::{DType, Error, Result, Tensor, text};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most elements of an input whose value may decide a shape.
pub const MAX_BOUND_ELEMENTS: i64 = 1024;

/// The most integers of an input whose sum, or a similar result, may decide a shape.
const MOST_SUMMED: i64 = 8;

/// A static graph and the inputs whose values are constants of it.
pub struct BoundGraph {
    pub graph: Graph,
    /// The graph is right for these values only.
    pub values: BTreeMap<String, Arc<Tensor>>,
    /// Nodes of the file that no node of the graph comes from.
    pub absent: Vec<Absent>,
    /// The graph has capacities for dimensions that grow.
    pub bounds: Option<Bounds>,
    /// The smallest count that half the capacity does not hold.
    pub beyond_half: i64,
}

/// The reason why a model has no static graph for a binding.
pub struct Unbound {
    pub error: Error,
    /// Inputs whose values would have helped.
    pub missing: BTreeSet<String>,
    /// Something depends on data: the model has no static graph, but it can run in parts.
    pub waits: bool,
    /// A larger capacity may help.
    pub full: bool,
}

impl From<Error> for Unbound {
    fn from(error: Error) -> Unbound {
        Unbound { error, missing: BTreeSet::new(), waits: false, full: false }
    }
}

impl OnnxModel {
    /// The static graph for a binding; dimensions that are not named are 1. `memo` has the constants that earlier bindings
    /// have folded.
    ///
    /// # Errors
    /// Those of [`OnnxModel::graph`]; the missing values of inputs where giving them would help.
    pub fn bind(&self, binding: &Binding, memo: &Memo) -> std::result::Result<BoundGraph, Unbound> {
        self.check_dims(&binding.dims)?;
        self.check_values(binding)?;
        let mut values = BTreeMap::new();
        loop {
            let mut importer = Importer::new(self, binding.limits, memo);
            let error = match importer.run(binding, &values) {
                Ok(Converted { graph, absent, bounds }) => {
                    let (bounds, beyond_half) = bounds.map_or((None, 0), |b| (Some(b.0), b.1));
                    return Ok(BoundGraph { graph, values, absent, bounds, beyond_half });
                }
                Err(error) => error,
            };
            let needed = importer.needed.take();
            let matching: Vec<_> =
                needed.iter().filter_map(|n| Some((n.clone(), binding.values.get(n)?.clone()))).collect();
            let missing: BTreeSet<String> = needed.into_iter().filter(|n| !binding.values.contains_key(n)).collect();
            if matching.is_empty() || !missing.is_empty() {
                let waits = importer.waits.get() && matches!(error, Error::Unsupported(_));
                let full = importer.bounded.as_ref().is_some_and(Bounded::is_full);
                return Err(Unbound { error, missing, waits, full });
            }
            values.extend(matching);
        }
    }

    /// Checks the types and shapes of values against the inputs.
    fn check_values(&self, binding: &Binding) -> Result<()> {
        for (name, tensor) in &binding.values {
            let spec = self.inputs().iter().find(|spec| spec.name == *name);
            let Some(spec) = spec else { continue };
            if spec.dtype != tensor.dtype {
                let (bound, wanted) = (tensor.dtype, spec.dtype);
                return Err(Error::Invalid(format!("input `{name}` is {bound}, but the model wants {wanted}")));
            }
        }
        Ok(())
    }
}

impl Importer<'_> {
    /// The contents of an operand that must be known. Where it is computed from inputs alone that are small, they are noted
    /// as needed.
    ///
    /// # Errors
    /// `Unsupported` where it depends on the values of inputs.
    pub(super) fn known(&self, id: ValueId, what: &str) -> Result<Arc<Tensor>> {
        if !self.axes(id).is_empty() {
            return Err(Error::Unsupported(format!("its {what} follows a dimension that grows")));
        }
        if let Some(tensor) = self.graph.constant(id) {
            return Ok(tensor.clone());
        }
        let Origins { inputs, computed } = self.origins(id);
        let names: Vec<String> = inputs.iter().map(|&i| self.graph.value(i).name.clone()).collect();
        let large = inputs.iter().find(|&&i| !may_be_frozen(self.ty(i))).map(|&i| &self.graph.value(i).name);
        if large.is_some() || names.is_empty() || computed {
            let of = large.map_or(String::new(), |name| format!(" of the input `{name}`"));
            return Err(self.wait(&format!("its {what} depends on the data{of}")));
        }
        self.needed.borrow_mut().extend(names.iter().cloned());
        let (noun, listed) = (text::plural(names.len(), "input"), text::quoted(&names));
        Err(Error::Unsupported(format!(
            "its {what} depends on the values of the {noun} {listed}, which must be given when the model is compiled \
             (`--input {}=FILE`, `Options::values`)",
            names[0]
        )))
    }

    /// The error of a node that no static graph can have, since it depends on data: it waits until its operands are known.
    pub(super) fn wait(&self, reason: &str) -> Error {
        self.waits.set(true);
        Error::Unsupported(reason.to_string())
    }

    /// The inputs of the graph that a value is computed from.
    fn origins(&self, id: ValueId) -> Origins {
        let (mut seen, mut stack, mut computed, mut sums) = (BTreeSet::new(), vec![id], false, false);
        while let Some(next) = stack.pop() {
            if seen.insert(next)
                && let Some((node, _)) = self.graph.producer(next)
            {
                computed |= !may_be_frozen(self.ty(next));
                sums |= !node.op.is_elementwise() && !is_movement(&node.op);
                stack.extend(&node.inputs);
            }
        }
        let is_input = |v: &ValueId| matches!(self.graph.value(*v).source, Source::Input);
        let inputs: Vec<ValueId> = seen.into_iter().filter(is_input).collect();
        let is_data = |&v: &ValueId| self.ty(v).dtype.is_float() || self.ty(v).elements() > MOST_SUMMED;
        let computed = computed || sums && inputs.iter().any(is_data);
        Origins { inputs, computed }
    }

    /// An operand that must be known, as integers: a shape, axes, positions.
    pub(super) fn integers(&self, id: ValueId, what: &str) -> Result<Vec<i64>> {
        let tensor = self.known(id, what)?;
        let wrong = || Error::Invalid(format!("its {what} is of type {}, not an integer", tensor.dtype));
        super::tensor::integers(&tensor).ok_or_else(wrong)
    }

    /// An operand that must be known, as f32.
    pub(super) fn floats(&self, id: ValueId, what: &str) -> Result<Vec<f32>> {
        Ok(self.doubles(id, what)?.into_iter().map(|v| v as f32).collect())
    }

    /// An operand of floats that must be known, as f64.
    pub(super) fn doubles(&self, id: ValueId, what: &str) -> Result<Vec<f64>> {
        let tensor = self.known(id, what)?;
        match tensor.dtype {
            DType::F32 => Ok(tensor.to_vec::<f32>().into_iter().map(f64::from).collect()),
            DType::F64 => Ok(tensor.to_vec::<f64>()),
            other => Err(Error::Invalid(format!("its {what} is of type {other}, not a float"))),
        }
    }
}

/// Where a value that must be known comes from.
struct Origins {
    inputs: Vec<ValueId>,
    /// It takes more than arithmetic of sizes: large values stand between, or floats or many integers are summed. A constant would
    /// fold what the model computes.
    computed: bool,
}

/// Returns true if an operator moves elements as they are.
fn is_movement(op: &Op) -> bool {
    let moves = matches!(op, Op::Transpose { .. } | Op::Reshape { .. } | Op::Expand { .. } | Op::Slice { .. });
    moves || matches!(op, Op::Pad { .. } | Op::Concat { .. } | Op::Gather { .. })
}

/// Returns true if a tensor of this type may become a constant of what is compiled.
fn may_be_frozen(ty: &TensorType) -> bool {
    ty.elements() <= if ty.dtype.is_float() { 16 } else { MAX_BOUND_ELEMENTS }
}
