//! One ONNX node while it is converted: its operands and attributes by name.

use crate::graph::ir::ValueId;
use crate::graph::proto::{AttributeProto, NodeProto, TensorProto};
use crate::graph::{Error, Result};
use std::cell::Cell;

pub(super) struct Source<'a> {
    pub proto: &'a NodeProto,
    /// `None` where an optional operand is left out.
    inputs: Vec<Option<ValueId>>,
    pub opset: i64,
    /// How many operands have been asked for.
    read: Cell<usize>,
}

impl<'a> Source<'a> {
    pub fn new(proto: &'a NodeProto, inputs: Vec<Option<ValueId>>, opset: i64) -> Source<'a> {
        Source { proto, inputs, opset, read: Cell::new(0) }
    }

    /// Fails when the node has an operand that its conversion never asked for.
    pub fn all_operands_are_read(&self) -> Result<()> {
        match self.inputs.len() {
            count if count > self.read.get() => {
                Err(Error::Invalid(format!("it has {count} operands, but takes {} at most", self.read.get())))
            }
            _ => Ok(()),
        }
    }

    pub fn input(&self, i: usize) -> Result<ValueId> {
        self.optional(i).ok_or_else(|| Error::Invalid(format!("operand {i} is missing")))
    }

    pub fn optional(&self, i: usize) -> Option<ValueId> {
        self.read.set(self.read.get().max(i + 1));
        self.inputs.get(i).copied().flatten()
    }

    /// Every operand that is present.
    pub fn present(&self) -> Vec<ValueId> {
        self.read.set(self.inputs.len());
        self.inputs.iter().flatten().copied().collect()
    }

    /// Whether output `i` has a name.
    pub fn wants_output(&self, i: usize) -> bool {
        self.proto.output.get(i).is_some_and(|o| !o.is_empty())
    }

    pub fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.proto.attribute.iter().find(|a| a.name == name)
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |a| a.i)
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default as i64) != 0
    }

    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).map_or(default, |a| a.f)
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|a| a.ints.clone())
    }

    pub fn tensor(&self, name: &str) -> Option<&'a TensorProto> {
        self.attribute(name).and_then(|a| a.t.as_ref())
    }

    pub fn string(&self, name: &str, default: &str) -> String {
        self.attribute(name).map_or(default.to_string(), |a| String::from_utf8_lossy(&a.s).into_owned())
    }
}
