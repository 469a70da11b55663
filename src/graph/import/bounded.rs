//! Dimensions that grow: an import where such a dimension has a capacity, and its size comes at run time.
//!
//! In: a model, a capacity and the size that the dimension has now. Out: a static graph with one more input, the count, that is
//! right for a range of counts; bounded dimensions of its inputs and outputs. Sizes of shapes are forms of the count. What lies
//! beyond the count of a value is never read into what lies within: operators that would read it see neutral elements
//! (`operators`). What no rule covers is refused, and the model has exact sizes.

mod apart;
mod forms;
mod movement;
mod nodes;
mod operators;
mod scatter;
mod slice;
pub mod state;

use crate::graph::import::importer::Importer;
use crate::graph::import::model::{Dim, Growing, InputSpec};
use crate::graph::import::nested::captured_names;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::proto::NodeProto;
use crate::graph::tensor_type::TensorType;
use crate::runtime::bounds::{BoundedAxis, Bounds, Form};
use crate::runtime::{DType, Error, Result};
use state::{Axis, Bounded};
use std::collections::BTreeMap;

pub(super) use nodes::convert;

impl Importer<'_> {
    /// Begins an import with a capacity: adds the input that holds the count.
    pub(super) fn grow(&mut self, growing: &Growing) -> Result<()> {
        let input = format!("#{}", growing.name);
        if self.model.inputs().iter().any(|spec| spec.name == input) {
            return Err(Error::Unsupported(format!("the model has an input `{input}`")));
        }
        let ty = TensorType { dtype: DType::I64, shape: vec![] };
        let count = self.graph.add_value(input.clone(), ty, Source::Input);
        let dims = growing.offsets.iter().map(|(name, &offset)| (name.clone(), Form { factor: 1, offset })).collect();
        let mut bounded = Bounded::new(growing.capacity, growing.counts.0, dims, count, input);
        bounded.forms.insert(count, vec![Form { factor: 1, offset: 0 }]);
        self.bounded = Some(bounded);
        Ok(())
    }

    /// Begins the import of a part with a capacity, whose inputs bring their bounded dimensions; `input` will hold the count.
    pub(super) fn grow_part(&mut self, count: i64, capacity: i64, input: String) {
        let id = self.graph.add_value(input.clone(), TensorType { dtype: DType::I64, shape: vec![] }, Source::Input);
        let mut bounded = Bounded::new(capacity, count, BTreeMap::new(), id, input);
        bounded.forms.insert(id, vec![Form { factor: 1, offset: 0 }]);
        self.bounded = Some(bounded);
    }

    /// Records the bounded dimensions of an input, which cannot be a constant then.
    pub(super) fn grow_input(&mut self, id: ValueId, spec: &InputSpec, frozen: bool) -> Result<()> {
        let Some(bounded) = &self.bounded else { return Ok(()) };
        let mut axes = vec![];
        for (axis, dim) in spec.shape.iter().enumerate() {
            let Dim::Symbol(name) = dim else { continue };
            let Some(&count) = bounded.dims.get(name) else { continue };
            bounded.fit(count)?;
            axes.push(Axis { axis, count, zero: true });
        }
        if frozen && !axes.is_empty() {
            return Err(operators::refused("the value"));
        }
        self.set_axes(id, axes);
        Ok(())
    }

    /// Refuses a node with graphs inside that read values with bounded dimensions, but a branch that is known.
    pub(super) fn check_captured(&self, node: &NodeProto) -> Result<()> {
        if self.bounded.is_none() || node.op_type == "If" {
            return Ok(());
        }
        let read = |name: &str| self.values.get(name).copied().flatten();
        match captured_names(node).into_iter().filter_map(read).any(|id| !self.axes(id).is_empty()) {
            true => Err(operators::refused(&node.op_type)),
            false => Ok(()),
        }
    }

    /// Ends an import with a capacity: adds the count to the inputs. Returns the bounds of the graph, whose inputs and outputs
    /// are complete, and the smallest count that half the capacity does not hold.
    pub(super) fn bounds(&mut self) -> Option<(Bounds, i64)> {
        let count = self.bounded.as_ref()?.count;
        self.graph.inputs.push(count);
        let graph: &Graph = &self.graph;
        let bounded = |ids: &[ValueId]| -> Vec<Vec<BoundedAxis>> {
            let axis = |a: Axis| BoundedAxis { axis: a.axis, count: a.count, zero: a.zero };
            ids.iter().map(|&id| self.axes(id).into_iter().map(axis).collect()).collect()
        };
        let (inputs, outputs) = (bounded(&graph.inputs), bounded(&graph.outputs));
        let state = self.bounded.as_ref()?;
        let (least, most) = state.range();
        let (input, dims, capacity) = (state.input.clone(), state.dims.clone(), state.capacity);
        let half = state.beyond_half();
        Some((Bounds { input, dims, capacity, least, most, inputs, outputs }, half))
    }
}
