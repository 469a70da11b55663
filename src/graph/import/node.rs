//! One ONNX node while it is converted: its operands and attributes by name.

use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use crate::runtime::{Error, Result};
use std::cell::Cell;

pub(super) struct Source<'a> {
    pub proto: &'a NodeProto,
    /// `None` where an optional operand is left out.
    inputs: Vec<Option<ValueId>>,
    pub opset: i64,
    /// Number of operands read so far.
    read: Cell<usize>,
    /// The name of an attribute that was read with a wrong type.
    mistyped: Cell<Option<&'a str>>,
}

/// Types of attributes, as files number them; files from before there were types have 0.
mod attribute_type {
    pub const FLOAT: i32 = 1;
    pub const INT: i32 = 2;
    pub const STRING: i32 = 3;
    pub const TENSOR: i32 = 4;
    pub const GRAPH: i32 = 5;
    pub const FLOATS: i32 = 6;
    pub const INTS: i32 = 7;
    pub const STRINGS: i32 = 8;
}

impl<'a> Source<'a> {
    pub fn new(proto: &'a NodeProto, inputs: Vec<Option<ValueId>>, opset: i64) -> Source<'a> {
        Source { proto, inputs, opset, read: Cell::new(0), mistyped: Cell::new(None) }
    }

    /// Converts the node with other operands in the place of its own.
    ///
    /// # Errors
    /// As the converter, and `Invalid` where that leaves one of them or reads an attribute with a wrong type.
    pub fn converted(
        &self,
        g: &mut Importer,
        inputs: Vec<Option<ValueId>>,
        convert: impl Fn(&mut Importer, &Source) -> Result<Vec<ValueId>>,
    ) -> Result<Vec<ValueId>> {
        let changed = Source::new(self.proto, inputs, self.opset);
        let results = convert(g, &changed)?;
        changed.all_operands_are_read()?;
        changed.attributes_have_their_types()?;
        Ok(results)
    }

    /// Checks that the conversion read every operand.
    ///
    /// # Errors
    /// `Invalid` where the node has more operands than its operator takes.
    pub fn all_operands_are_read(&self) -> Result<()> {
        match self.inputs.len() {
            count if count > self.read.get() => {
                Err(Error::Invalid(format!("it has {count} operands, but takes {} at most", self.read.get())))
            }
            _ => Ok(()),
        }
    }

    /// Checks the types of the attributes.
    ///
    /// # Errors
    /// `Invalid` where an attribute has another type than its operator says.
    pub fn attributes_have_their_types(&self) -> Result<()> {
        match self.mistyped.get() {
            Some(name) => Err(Error::Invalid(format!("its attribute `{name}` has the wrong type"))),
            None => Ok(()),
        }
    }

    /// Returns operand `i`.
    ///
    /// # Errors
    /// `Invalid` where it is missing.
    pub fn input(&self, i: usize) -> Result<ValueId> {
        self.optional(i).ok_or_else(|| Error::Invalid(format!("operand {i} is missing")))
    }

    pub fn optional(&self, i: usize) -> Option<ValueId> {
        self.read.set(self.read.get().max(i + 1));
        self.inputs.get(i).copied().flatten()
    }

    /// All operands, without a note that they are read.
    pub fn operands(&self) -> Vec<Option<ValueId>> {
        self.inputs.clone()
    }

    /// Every operand that is present.
    pub fn present(&self) -> Vec<ValueId> {
        self.read.set(self.inputs.len());
        self.inputs.iter().flatten().copied().collect()
    }

    /// Returns true if output `i` has a name.
    pub fn wants_output(&self, i: usize) -> bool {
        self.proto.output.get(i).is_some_and(|o| !o.is_empty())
    }

    pub fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.proto.attribute.iter().find(|a| a.name == name)
    }

    /// The attribute, which should be of this type.
    fn typed(&self, name: &str, ty: i32) -> Option<&'a AttributeProto> {
        let attribute = self.attribute(name)?;
        if ![0, ty].contains(&attribute.r#type) {
            self.mistyped.set(Some(&attribute.name));
        }
        Some(attribute)
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.typed(name, attribute_type::INT).map_or(default, |a| a.i)
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default as i64) != 0
    }

    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.typed(name, attribute_type::FLOAT).map_or(default, |a| a.f)
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.typed(name, attribute_type::INTS).map(|a| a.ints.clone())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        self.typed(name, attribute_type::FLOATS).map(|a| a.floats.clone())
    }

    pub fn strings(&self, name: &str) -> Option<Vec<String>> {
        let text = |s: &Vec<u8>| String::from_utf8_lossy(s).into_owned();
        self.typed(name, attribute_type::STRINGS).map(|a| a.strings.iter().map(text).collect())
    }

    /// The graph that the node has inside.
    ///
    /// # Errors
    /// `Invalid` where it is missing.
    pub fn graph(&self, name: &str) -> Result<&'a GraphProto> {
        let graph = self.typed(name, attribute_type::GRAPH).and_then(|a| a.g.as_ref());
        graph.ok_or_else(|| Error::Invalid(format!("its graph `{name}` is missing")))
    }

    pub fn tensor(&self, name: &str) -> Option<&'a TensorProto> {
        self.typed(name, attribute_type::TENSOR).and_then(|a| a.t.as_ref())
    }

    pub fn string(&self, name: &str, default: &str) -> String {
        let text = |a: &AttributeProto| String::from_utf8_lossy(&a.s).into_owned();
        self.typed(name, attribute_type::STRING).map_or(default.to_string(), text)
    }
}
