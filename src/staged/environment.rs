//! The values that are known in a run, by name.

use super::growth::Growth;
use super::memory;
use crate::graph::import::model::{Dim, InputSpec};
use crate::graph::value::{Kind, Value};
use crate::runtime::module::TensorSpec;
use crate::{Error, Result, Tensor};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

/// A value that is known.
pub(super) enum Entry<'a> {
    /// Equal in each run.
    Constant(Arc<Tensor>),
    Value(Value),
    /// A tensor of which dimensions follow a count.
    Growing(Arc<Tensor>, Growth),
    /// An input of the model, which is the caller's, and its copy where a value has it.
    Given(&'a Tensor, OnceCell<Arc<Tensor>>),
}

impl Entry<'_> {
    pub(super) fn tensor(&self) -> Option<&Tensor> {
        match self {
            Entry::Constant(tensor) | Entry::Value(Value::Tensor(tensor)) | Entry::Growing(tensor, _) => Some(tensor),
            Entry::Given(tensor, _) => Some(tensor),
            Entry::Value(_) => None,
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Entry::Constant(tensor) | Entry::Growing(tensor, _) => Value::Tensor(tensor.clone()),
            Entry::Value(value) => value.clone(),
            Entry::Given(tensor, copy) => Value::Tensor(copy.get_or_init(|| Arc::new((*tensor).clone())).clone()),
        }
    }

    pub(super) fn growth(&self) -> Option<&Growth> {
        match self {
            Entry::Growing(_, growth) => Some(growth),
            _ => None,
        }
    }
}

/// The values that are known, by name; those of the graphs around are outside.
pub(super) struct Environment<'a> {
    pub outside: Option<&'a Environment<'a>>,
    pub values: HashMap<String, Entry<'a>>,
}

impl Environment<'_> {
    pub(super) fn get(&self, name: &str) -> Option<&Entry<'_>> {
        self.values.get(name).or_else(|| self.outside?.get(name))
    }

    pub(super) fn insert(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_string(), Entry::Value(value));
    }

    /// Inserts a value of which dimensions may follow a count.
    pub(super) fn insert_growing(&mut self, name: &str, value: Value, growth: Option<Growth>) {
        match (value, growth) {
            (Value::Tensor(tensor), Some(growth)) => {
                self.values.insert(name.to_string(), Entry::Growing(tensor, growth));
            }
            (value, _) => self.insert(name, value),
        }
    }

    /// Takes out a sequence, with its name, that is not of a graph around.
    pub(super) fn take_sequence(&mut self, name: &str) -> Option<(String, Value)> {
        match self.values.get(name) {
            Some(Entry::Value(Value::Sequence(_))) => {}
            _ => return None,
        }
        match self.values.remove_entry(name) {
            Some((name, Entry::Value(value))) => Some((name, value)),
            _ => None,
        }
    }

    /// Bytes of the places of all sequences.
    pub(super) fn places_bytes(&self) -> u64 {
        let here = self.values.values().map(|entry| match entry {
            Entry::Value(value) => memory::places_bytes(value),
            _ => 0,
        });
        here.fold(self.outside.map_or(0, Environment::places_bytes), u64::saturating_add)
    }

    pub(super) fn insert_constant(&mut self, name: &str, tensor: &Arc<Tensor>) {
        self.values.insert(name.to_string(), Entry::Constant(tensor.clone()));
    }
}

/// Refuses a tensor whose extents are not those of its bytes.
pub(crate) fn check_data(name: &str, tensor: &Tensor) -> Result<()> {
    let spec = TensorSpec { name: name.into(), dtype: tensor.dtype, shape: tensor.shape.clone() };
    if spec.bytes()? == tensor.data.len() as u64 {
        return Ok(());
    }
    let (dtype, shape, bytes) = (tensor.dtype, &tensor.shape, tensor.data.len());
    Err(Error::Invalid(format!("tensor `{name}` of {dtype} {shape:?} has {bytes} bytes of data")))
}

/// As [`check_data`], for all tensors of a value.
fn check_value(name: &str, value: &Value) -> Result<()> {
    match value {
        Value::Tensor(tensor) => check_data(name, tensor),
        Value::Sequence(values) => values.iter().try_for_each(|value| check_value(name, value)),
        Value::Optional(value) => value.as_deref().map_or(Ok(()), |value| check_value(name, value)),
    }
}

/// Refuses a value of another kind, element type or fixed extent than the file declares.
pub(super) fn check(spec: &InputSpec, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Value(value) => check_value(&spec.name, value)?,
        Entry::Constant(_) | Entry::Growing(..) | Entry::Given(..) => {
            entry.tensor().map_or(Ok(()), |tensor| check_data(&spec.name, tensor))?;
        }
    }
    let tensor = match (&spec.kind, entry, entry.tensor()) {
        (Kind::Tensor, _, Some(tensor)) => tensor,
        (Kind::Sequence(_), Entry::Value(Value::Sequence(_)), _) | (Kind::Optional(_), ..) => return Ok(()),
        _ => {
            return Err(Error::Invalid(format!("input `{}` is not the {} that the model takes", spec.name, spec.kind)));
        }
    };
    let fits = |(dim, size): (&Dim, &i64)| !matches!(dim, Dim::Fixed(fixed) if fixed != size);
    let same_rank = tensor.shape.len() == spec.shape.len() && spec.shape.iter().zip(&tensor.shape).all(fits);
    if tensor.dtype != spec.dtype || !(spec.any_rank || same_rank) {
        let (dims, shape): (Vec<String>, _) = (spec.shape.iter().map(Dim::to_string).collect(), &tensor.shape);
        return Err(Error::Invalid(format!(
            "input `{}` is {} {shape:?}, but the model wants {} [{}]",
            spec.name,
            tensor.dtype,
            spec.dtype,
            dims.join(", ")
        )));
    }
    Ok(())
}
