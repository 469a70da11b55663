//! Parts of a graph that can be compiled before the rest is known.
//!
//! In: a graph of the file, which of its nodes are done, and the values that are known by now. Out: a static graph of all
//! other nodes that can be converted: those whose operands come from known values, and whose shapes follow from shapes and
//! from small integers. The others wait for their operands.

use super::bounded::state::{Axis, Bounded, LEAST_CAPACITY, fixed};
use super::provenance::{self, Absent, Origin, Provenance};
use super::{sparse, walk};
use crate::graph::import::importer::Importer;
use crate::graph::import::limits::ImportLimits;
use crate::graph::import::model::OnnxModel;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::proto::{GraphProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto};
use crate::graph::tensor_type::TensorType;
use crate::runtime::bounds::{Bounds, Form};
use crate::runtime::{DType, Error, Result, Tensor, threads};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A value that a part may read.
pub enum Known<'a> {
    /// The tensor of this run; the part is compiled for its type.
    Tensor(&'a Tensor),
    /// As `Tensor`; the part has capacities for these dimensions, whose sizes follow from its count.
    Growing(&'a Tensor, Vec<(usize, Form)>),
    /// A weight: the same in each run.
    Constant(Arc<Tensor>),
    /// A sequence or an optional, which only the host reads.
    Other,
}

/// The most that a capacity is larger than the power of two that holds the count.
const MOST_DOUBLED: i64 = 4;

/// The most elements of a tensor that may follow the count.
const MOST_FOLLOWED: usize = 16;

/// Sizes that a part is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// Those of this run; values that decide sizes become constants.
    Exact,
    /// Those of this run; the nodes that the host can compute once such values are known wait.
    Ahead,
    /// Capacities that hold this count, which comes with each run; nodes wait as in `Ahead`.
    Growing(i64),
}

impl Sizes {
    /// The elements of a small tensor of integers as forms of the count; `None` where none of them is the count.
    fn forms(self, tensor: &Tensor) -> Option<Vec<Form>> {
        let Sizes::Growing(count) = self else { return None };
        let small = tensor.len() <= MOST_FOLLOWED && matches!(tensor.dtype, DType::I64 | DType::I32);
        let values = super::tensor::integers(tensor).filter(|values| small && count > 1 && values.contains(&count))?;
        let form = |value| if value == count { Form { factor: 1, offset: 0 } } else { fixed(value) };
        Some(values.into_iter().map(form).collect())
    }
}

/// The nodes of a graph that are left.
pub struct Rest<'a> {
    /// The node that the graph is inside of.
    pub around: Option<&'a Origin>,
    /// Nodes, each after those that it reads.
    pub order: &'a [usize],
    /// Nodes that are done, by position.
    pub done: &'a [bool],
}

/// The part of a graph that can be compiled now.
pub struct Part {
    /// Outputs are called as in the file.
    pub graph: Graph,
    /// The names of the graph's inputs in the file.
    pub inputs: Vec<String>,
    /// Values that are constants of the graph: it is right for them only.
    pub frozen: BTreeMap<String, Arc<Tensor>>,
    /// Integers that the graph computes from the count instead of reading them: it is right where they follow it so.
    pub followed: BTreeMap<String, Vec<Form>>,
    /// Values that others need and that follow from constants.
    pub constants: Vec<(String, Arc<Tensor>)>,
    /// The nodes that it computes.
    pub done: Vec<usize>,
    /// Why nodes whose operands are tensors that are known could not be converted.
    pub waiting: Vec<(usize, String)>,
    /// Nodes that it computes and that no node of the graph comes from.
    pub absent: Vec<Absent>,
    /// Capacities; their count is the graph's last input. The range begins where a smaller capacity ends.
    pub bounds: Option<Bounds>,
}

/// The values that are known, by name.
pub type Lookup<'a, 'k> = &'a dyn Fn(&str) -> Option<Known<'k>>;

impl OnnxModel {
    /// The weights of the file, by name.
    pub fn weights(&self) -> &[(String, Arc<Tensor>)] {
        &self.weights
    }

    /// Makes the weights that the file has as recipes, each once, on all cores.
    pub fn make_weights(&self) {
        threads::map(&self.weights, threads::cores(), |(_, weight)| _ = weight.data.first());
    }

    /// Lets weights leave memory that can be read from their file again.
    pub fn release(&self) {
        self.folder.release();
    }

    /// The initializers of a graph inside of a node, and those of the file's graph that are sparse.
    ///
    /// # Errors
    /// `Invalid` where one is damaged; `Unsupported` where its element type is not known; `Limit` where sparse ones have too many
    /// elements.
    pub fn initializers(&self, graph: &GraphProto, limits: ImportLimits) -> Result<Vec<(String, Arc<Tensor>)>> {
        let read = |t: &TensorProto| Ok((t.name.clone(), Arc::new(super::tensor::read(t.clone(), &self.folder)?)));
        let mut budget = Importer::of(self, graph, limits);
        let dense = |t: &SparseTensorProto| {
            let (name, tensor) = sparse::read(t, &self.folder, |shape, dtype| budget.claim(shape, dtype))?;
            Ok((name, Arc::new(tensor)))
        };
        graph.initializer.iter().map(read).chain(graph.sparse_initializer.iter().map(dense)).collect()
    }

    /// The part of `graph` that can be compiled, of the nodes that are left.
    ///
    /// # Errors
    /// `Invalid` where a node is wrong; `Limit` where it is too large.
    pub fn part(
        &self,
        graph: &GraphProto,
        rest: &Rest,
        sizes: Sizes,
        known: Lookup,
        limits: ImportLimits,
    ) -> Result<Part> {
        let (mut frozen, mut followed) = (BTreeMap::new(), BTreeMap::new());
        let mut doubled = 1;
        let taken = |name: &str| known(name).is_some() || graph.node.iter().any(|n| n.output.iter().any(|o| o == name));
        let mut input = "#count".to_string();
        while taken(&input) {
            input.push('#');
        }
        loop {
            let provenance = Provenance::new(graph, rest.around.cloned());
            let importer = Importer { provenance, ..Importer::of(self, graph, limits) };
            let mut stage = Stage { importer, known, frozen: &frozen, followed: &followed, inputs: vec![], sizes };
            if let Sizes::Growing(count) = sizes {
                stage.importer.grow_part(count, doubled * least_capacity(count), input.clone());
            }
            let part = stage.import(rest.order, rest.done)?;
            if stage.importer.bounded.as_ref().is_some_and(Bounded::is_full) && doubled < MOST_DOUBLED {
                doubled *= 2;
                continue;
            }
            let needed = stage.importer.needed.take();
            let before = frozen.len() + followed.len();
            for name in needed {
                let Some(Known::Tensor(tensor)) = known(&name).filter(|_| !followed.contains_key(&name)) else {
                    continue;
                };
                match sizes.forms(tensor) {
                    Some(forms) => _ = followed.insert(name, forms),
                    None => _ = frozen.entry(name).or_insert_with(|| Arc::new(tensor.clone())),
                }
            }
            if frozen.len() + followed.len() == before {
                return Ok(Part { frozen, followed, ..part });
            }
        }
    }

    /// The outputs of one node for these operands, as constant folding computes them.
    ///
    /// # Errors
    /// Those of the conversion; `Unsupported` where the node is not of the kind that depends on data.
    pub fn fold_node(
        &self,
        graph: &GraphProto,
        node: usize,
        operands: &[Option<Arc<Tensor>>],
        limits: ImportLimits,
    ) -> Result<Vec<Arc<Tensor>>> {
        let mut importer = Importer::of(self, graph, limits);
        let node = &graph.node[node];
        for (name, operand) in node.input.iter().zip(operands) {
            if let Some(tensor) = operand {
                let id = importer.named_constant(name.clone(), tensor.clone());
                importer.values.insert(name, Some(id));
            }
        }
        importer.enter(node);
        let outputs = importer.convert(node).map_err(|e| walk::prefix(&walk::describe(node), e))?;
        let constant = |id: Option<ValueId>| id.and_then(|id| importer.graph.constant(id).cloned());
        let outputs: Option<Vec<_>> = outputs.into_iter().map(constant).collect();
        outputs.ok_or_else(|| Error::Unsupported(format!("{} cannot be computed ahead", walk::describe(node))))
    }
}

/// The state of the import of a part.
struct Stage<'m, 'a, 'k> {
    importer: Importer<'m>,
    known: Lookup<'a, 'k>,
    frozen: &'a BTreeMap<String, Arc<Tensor>>,
    followed: &'a BTreeMap<String, Vec<Form>>,
    inputs: Vec<String>,
    sizes: Sizes,
}

/// The power of two that holds a count.
fn least_capacity(count: i64) -> i64 {
    (count.clamp(LEAST_CAPACITY, 1 << 40) as u64).next_power_of_two() as i64
}

impl<'m> Stage<'m, '_, '_> {
    fn import(&mut self, order: &[usize], done: &[bool]) -> Result<Part> {
        let proto = self.importer.proto;
        self.importer.graph.name = proto.name.clone();
        let (mut finished, mut waiting) = (vec![], vec![]);
        for &index in order.iter().filter(|&&n| !done[n]) {
            let node = &proto.node[index];
            match self.node(node)? {
                Verdict::Done => finished.push(index),
                Verdict::Waits(reason) => {
                    waiting.extend(reason.map(|reason| (index, reason)));
                    self.importer.values.extend(node.output.iter().map(|o| (o.as_str(), None)));
                }
            }
        }
        let constants = self.outputs(proto, order, done, &finished);
        let converted = self.importer.provenance.close(&self.importer.graph);
        let bounds = self.importer.bounds().map(|(bounds, half)| match self.sizes {
            Sizes::Growing(count) => Bounds { least: half.min(count), ..bounds },
            _ => bounds,
        });
        self.importer.remove_unused();
        let graph = std::mem::take(&mut self.importer.graph);
        let absent = provenance::absent(&graph, converted);
        let inputs = std::mem::take(&mut self.inputs);
        Ok(Part {
            graph,
            inputs,
            frozen: BTreeMap::new(),
            followed: BTreeMap::new(),
            constants,
            done: finished,
            waiting,
            absent,
            bounds,
        })
    }

    /// Converts one node where all of its operands are there.
    fn node(&mut self, node: &'m NodeProto) -> Result<Verdict> {
        let names: Vec<&'m str> = walk::read_names(node).filter(|name| !name.is_empty()).collect();
        for &name in &names {
            if !self.importer.values.contains_key(name) {
                let value = self.value(name);
                self.importer.values.insert(name, value);
            }
        }
        if names.iter().any(|name| self.importer.values[name].is_none()) {
            return Ok(Verdict::Waits(None));
        }
        self.importer.enter(node);
        let needed = self.importer.needed.take();
        let converted = self.importer.convert(node);
        if self.sizes == Sizes::Exact || !walk::is_sized_by_values(node) {
            needed.into_iter().for_each(|name| _ = self.importer.needed.get_mut().insert(name));
        } else {
            self.importer.needed.replace(needed);
        }
        match converted {
            Ok(outputs) => {
                self.importer.provenance.leave(&outputs);
                for (name, id) in node.output.iter().zip(outputs).filter(|o| !o.0.is_empty()) {
                    self.importer.values.insert(name, id);
                }
                Ok(Verdict::Done)
            }
            Err(Error::Unsupported(reason)) => Ok(Verdict::Waits(Some(reason))),
            Err(error) if matches!(self.sizes, Sizes::Growing(_)) => Ok(Verdict::Waits(Some(error.to_string()))),
            // too large when it is written out: the host runs it
            Err(Error::Limit(reason)) if walk::may_wait(node) => Ok(Verdict::Waits(Some(reason))),
            Err(error) => Err(walk::prefix(&walk::describe(node), error)),
        }
    }

    /// A value of the environment as an input or a constant of the graph.
    fn value(&mut self, name: &str) -> Option<ValueId> {
        let importer = &mut self.importer;
        match (self.known)(name)? {
            Known::Other => None,
            Known::Constant(tensor) => {
                importer.budget += 4 * tensor.data.len() as u64;
                Some(importer.named_constant(name.to_string(), tensor))
            }
            Known::Tensor(tensor) => {
                if let Some(forms) = self.followed.get(name) {
                    return importer.form_tensor(&tensor.shape, forms, tensor.dtype).ok();
                }
                if let Some(tensor) = self.frozen.get(name) {
                    return Some(importer.named_constant(name.to_string(), tensor.clone()));
                }
                let id = importer.graph.add_value(name.to_string(), TensorType::of(tensor), Source::Input);
                importer.graph.inputs.push(id);
                self.inputs.push(name.to_string());
                Some(id)
            }
            Known::Growing(tensor, axes) => {
                let bounded = importer.bounded.as_ref()?;
                let mut ty = TensorType::of(tensor);
                for &(axis, count) in &axes {
                    bounded.fit(count).ok()?;
                    *ty.shape.get_mut(axis)? = bounded.capacity;
                }
                let id = importer.graph.add_value(name.to_string(), ty, Source::Input);
                importer.graph.inputs.push(id);
                importer.set_axes(id, axes.into_iter().map(|(axis, count)| Axis { axis, count, zero: true }).collect());
                self.inputs.push(name.to_string());
                Some(id)
            }
        }
    }

    /// Declares as outputs what the nodes that are left, or the outputs of the file's graph, read of the finished nodes.
    fn outputs(
        &mut self,
        proto: &'m GraphProto,
        order: &[usize],
        done: &[bool],
        finished: &[usize],
    ) -> Vec<(String, Arc<Tensor>)> {
        let staged: HashSet<usize> = finished.iter().copied().collect();
        let left = order.iter().filter(|&&n| !done[n] && !staged.contains(&n));
        let mut read: HashSet<&str> = left.flat_map(|&n| walk::read_names(&proto.node[n])).collect();
        read.extend(proto.output.iter().map(|o| o.name.as_str()));
        let mut constants = vec![];
        for name in finished.iter().flat_map(|&n| &proto.node[n].output).filter(|name| read.contains(name.as_str())) {
            let Some(Some(id)) = self.importer.values.get(name.as_str()).copied() else { continue };
            match self.importer.graph.constant(id).filter(|_| self.importer.axes(id).is_empty()) {
                Some(tensor) => constants.push((name.clone(), tensor.clone())),
                None => {
                    let id = self.importer.own_output(id, name);
                    self.importer.graph.outputs.push(id);
                }
            }
        }
        constants
    }
}

enum Verdict {
    Done,
    /// The reason, where the operands are there.
    Waits(Option<String>),
}

/// The stack of the slices of a loop without steps, by the declared type of a slice; dimensions that are not declared are 0.
///
/// # Errors
/// `Unsupported` where the file does not declare the type.
pub fn empty_stack(output: &ValueInfoProto) -> Result<Tensor> {
    let ty = output.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let ty = ty.ok_or_else(|| Error::Unsupported(format!("a loop without steps: `{}` has no type", output.name)))?;
    let dims = ty.shape.iter().flat_map(|shape| &shape.dim).map(|d| d.dim_value.unwrap_or(0).max(0));
    let shape: Vec<i64> = std::iter::once(0).chain(dims).collect();
    Ok(Tensor::zeros(super::tensor::dtype(ty.elem_type)?, &shape))
}
