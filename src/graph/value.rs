//! Values that a run takes and gives: tensors, sequences, optionals.

use crate::runtime::{Error, Result, Tensor};
use std::sync::Arc;

/// A value of a model's input or output.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor.
    Tensor(Arc<Tensor>),
    /// Values of one kind, of any shapes. Copies share them.
    Sequence(Arc<Vec<Value>>),
    /// A value, or none.
    Optional(Option<Box<Value>>),
}

/// The kind of a value, without the types of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tensor.
    Tensor,
    /// A sequence of values of this kind.
    Sequence(Box<Kind>),
    /// A value of this kind, or none.
    Optional(Box<Kind>),
}

impl Value {
    /// The tensor that the value is, or that it holds as an optional.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is a sequence or absent.
    pub fn tensor(&self) -> Result<&Arc<Tensor>> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            Value::Optional(Some(value)) => value.tensor(),
            Value::Optional(None) => Err(Error::Invalid("an absent optional where a tensor is needed".into())),
            Value::Sequence(_) => Err(Error::Invalid("a sequence where a tensor is needed".into())),
        }
    }

    /// As [`Value::tensor`], without a copy where nothing else holds it.
    ///
    /// # Errors
    /// As [`Value::tensor`].
    pub fn into_tensor(self) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(Arc::unwrap_or_clone(tensor)),
            value => value.tensor().map(|tensor| Tensor::clone(tensor)),
        }
    }

    /// As [`Value::sequence`], without a copy where nothing else holds the values.
    ///
    /// # Errors
    /// As [`Value::sequence`].
    pub fn into_sequence(self) -> Result<Vec<Value>> {
        match self {
            Value::Sequence(values) => Ok(Arc::unwrap_or_clone(values)),
            value => value.sequence().map(<[Value]>::to_vec),
        }
    }

    /// The values of a sequence.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the value is not a sequence.
    pub fn sequence(&self) -> Result<&[Value]> {
        match self {
            Value::Sequence(values) => Ok(values),
            Value::Optional(Some(value)) => value.sequence(),
            _ => Err(Error::Invalid("a tensor or an absent optional where a sequence is needed".into())),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(Arc::new(tensor))
    }
}

impl From<Vec<Value>> for Value {
    fn from(values: Vec<Value>) -> Value {
        Value::Sequence(Arc::new(values))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Kind::Tensor => f.write_str("tensor"),
            Kind::Sequence(of) => write!(f, "sequence of {of}"),
            Kind::Optional(of) => write!(f, "optional {of}"),
        }
    }
}
