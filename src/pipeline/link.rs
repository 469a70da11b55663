//! Kernels to a module: buffers, lifetimes, weights, steps.
//!
//! In: the fused graph, its groups, and a compiled kernel for each group that needs one. Out: a [`Module`]. A reshape is
//! an alias of its operand. A value that is an output lives in the caller's tensor, any other computed value in the arena
//! from the step that writes it to the last that reads it; equal constants, packed alike, are stored once. Graphs inside of
//! operators become steps inside of a step (`nested`); their arena is part of the outer one's.

mod nested;

use crate::graph::fusion::group::Group;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::Op;
use crate::pipeline::linkable::{Argument, LinkableKernel};
use crate::pipeline::sharing::{Blob, Sharing};
use crate::pipeline::unit::{Unit, Work};
use crate::poly::packing::Pack;
use crate::runtime::arena::{self, Request};
use crate::runtime::check_indices::check_indices;
use crate::runtime::module::{
    Action, Buffer, BufferPlace, BufferRef, Kernel, ModuleParts, OutputSpec, Phase, Slot, Step, TensorSpec,
    WEIGHTS_ALIGNMENT,
};
use crate::runtime::opaque::{View, WRITE_ROWS};
use crate::runtime::threads;
use crate::{DType, Error, Result, Tensor};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Links the groups into a module without name, target, dims and metadata; `threads` threads write the weights that are
/// new in `sharing`. Constants that only this unit has are freed as soon as they are written.
pub fn link(unit: Unit, kernels: &[LinkableKernel], threads: usize, sharing: &Sharing) -> Result<ModuleParts> {
    let graph = &unit.graph;
    let mut shared = Shared::default();
    for kernel in kernels {
        add_code(&mut shared.module, kernel);
    }
    let spec = |v: ValueId| {
        let value = graph.value(v);
        TensorSpec { name: value.name.clone(), dtype: value.ty.dtype, shape: value.ty.shape.clone() }
    };
    shared.module.inputs = graph.inputs.iter().map(|&v| spec(v)).collect();
    let inputs = (0..graph.inputs.len() as u32).map(|i| Home::Place(BufferPlace::Input(i)));
    let outputs = (0..graph.outputs.len() as u32).map(|i| Some(Home::Place(BufferPlace::Output(i))));
    let mut linker = Linker::new(&unit, inputs.collect(), outputs.collect(), &mut shared);
    linker.add_steps(&unit, kernels)?;
    let sources = linker.sources()?;
    let (plan, steps) = linker.finish();
    plan.place(&mut shared.module, 0);
    shared.module.steps = steps;
    let outputs = graph.outputs.iter().zip(sources);
    shared.module.outputs = outputs.map(|(&v, source)| OutputSpec { tensor: spec(v), source }).collect();
    drop(unit);
    shared.finish(plan.bytes, threads, sharing)
}

/// Adds a kernel with its machine code to a module.
pub fn add_code(module: &mut ModuleParts, compiled: &LinkableKernel) {
    let phases = compiled.assembled.phases.iter().map(|phase| {
        let start = module.code.len().next_multiple_of(64);
        module.code.resize(start, 0);
        module.code.extend_from_slice(&phase.code);
        Phase {
            offset: start as u64,
            bytes: phase.code.len() as u64,
            parallel: phase.parallel,
            wave: phase.wave,
            scratch_bytes: phase.scratch_bytes,
        }
    });
    let phases = phases.collect();
    module.kernels.push(Kernel {
        name: compiled.name.clone(),
        phases,
        slots: compiled.slots.iter().map(|&(bytes, written)| Slot { bytes, written }).collect(),
        vectorized: compiled.vectorized(),
        tensorized: compiled.tensorized(),
    });
}

/// The module so far, and what all its graphs share.
#[derive(Default)]
struct Shared {
    module: ModuleParts,
    blobs: Vec<Blob>,
    blob_at: Vec<u64>,
    weights_len: u64,
    plain: HashMap<*const Tensor, usize>,
    packed: HashMap<(*const Tensor, Vec<i64>, Pack), BufferRef>,
    /// Buffers that have the place of an earlier one.
    aliases: Vec<(BufferRef, BufferRef)>,
    loops: u32,
}

/// Where an input or output of a graph lies.
#[derive(Clone, Copy)]
enum Home {
    Place(BufferPlace),
    /// The memory of this buffer, which may have another shape.
    Buffer(BufferRef),
}

/// Arena memory of a graph: its size, and the offset of each buffer.
struct Planned {
    bytes: u64,
    offsets: Vec<(BufferRef, u64)>,
}

impl Planned {
    /// Places the buffers from `start` on.
    fn place(&self, module: &mut ModuleParts, start: u64) {
        for (buffer, offset) in &self.offsets {
            module.buffers[buffer.0 as usize].place = BufferPlace::Arena(start + offset);
        }
    }
}

struct Linker<'g> {
    graph: &'g Graph,
    shared: &'g mut Shared,
    inputs: Vec<Home>,
    /// `None`: in the arena.
    outputs: Vec<Option<Home>>,
    /// For each value the one whose memory it shares, and its first byte there.
    root: Vec<(ValueId, u64)>,
    /// Of each root that is computed: the output that it is, if any.
    output_of: HashMap<ValueId, usize>,
    /// Requests for arena memory, and the buffers in each, by their offsets.
    requests: Vec<(Request, Vec<(BufferRef, u64)>)>,
    request_of: HashMap<ValueId, usize>,
    buffer_of: HashMap<ValueId, BufferRef>,
    checked: Vec<((ValueId, u64), (u64, u64, i64, i64))>,
    steps: Vec<Step>,
}

impl<'g> Linker<'g> {
    fn new(unit: &'g Unit, inputs: Vec<Home>, outputs: Vec<Option<Home>>, shared: &'g mut Shared) -> Linker<'g> {
        let graph = &unit.graph;
        let root = roots(unit);
        let mut output_of = HashMap::new();
        // A value that is an output twice is computed in a place of its own where it has one.
        let placed = |i: &usize| outputs[*i].is_some();
        for i in (0..graph.outputs.len()).filter(placed) {
            output_of.entry(root[graph.outputs[i].0 as usize].0).or_insert(i);
        }
        Linker {
            graph,
            shared,
            inputs,
            outputs,
            root,
            output_of,
            requests: vec![],
            request_of: HashMap::new(),
            buffer_of: HashMap::new(),
            checked: vec![],
            steps: vec![],
        }
    }

    fn add_steps(&mut self, unit: &Unit, kernels: &[LinkableKernel]) -> Result<()> {
        for (group, work) in unit.groups.iter().zip(&unit.work) {
            match work {
                Work::Kernel(k) => self.add_kernel_step(group, *k, &kernels[*k])?,
                Work::Opaque(node) => self.add_opaque_step(group, *node)?,
                Work::Nested(node, inside) => self.add_nested_step(*node, inside, kernels)?,
            }
        }
        Ok(())
    }

    fn add_kernel_step(&mut self, group: &Group, index: usize, compiled: &LinkableKernel) -> Result<()> {
        for range in &compiled.index_ranges {
            let Some(&value) = group.inputs.get(range.tensor.0 as usize) else {
                return Err(Error::Internal(format!(
                    "kernel `{}` takes subscripts from a tensor that is not an input",
                    group.name
                )));
            };
            self.check(value, (range.offset, range.stride, range.lower, range.upper))?;
        }
        let values: Vec<ValueId> = group.inputs.iter().chain(&group.outputs).copied().collect();
        let mut arguments = vec![];
        for argument in &compiled.arguments {
            arguments.push(match argument {
                Argument::Tensor(id) => match values.get(id.0 as usize) {
                    Some(&v) => self.buffer(v)?,
                    None => {
                        return Err(Error::Internal(format!(
                            "kernel `{}` takes a temporary tensor as an argument",
                            group.name
                        )));
                    }
                },
                Argument::Packed { pack, shape } => {
                    let value = values.get(pack.source.0 as usize).copied();
                    let Some(source) = value.and_then(|v| self.constant(v)) else {
                        return Err(Error::Internal(format!(
                            "kernel `{}` packs an operand that is not constant",
                            group.name
                        )));
                    };
                    self.shared.packed_buffer(source, shape.clone(), pack)?
                }
                Argument::Workspace { bytes } => {
                    let name = format!("{}.workspace", group.name);
                    let buffer = self.add_buffer(name, DType::U8, vec![*bytes as i64], BufferPlace::Arena(0))?;
                    self.request(*bytes as u64, vec![(buffer, 0)]);
                    buffer
                }
            });
        }
        self.touch(&values);
        self.steps.push(Step {
            name: compiled.name.clone(),
            flops: compiled.flops,
            action: Action::Kernel { kernel: index as u32, arguments },
        });
        Ok(())
    }

    fn add_opaque_step(&mut self, group: &Group, node: u32) -> Result<()> {
        let node = &self.graph.nodes[node as usize];
        let Op::Opaque { function, attributes } = &node.op else {
            return Err(Error::Internal(format!("group `{}` is not opaque", group.name)));
        };
        let buffers = |linker: &mut Self, values: &[ValueId]| -> Result<Vec<BufferRef>> {
            values.iter().map(|&v| linker.buffer(v)).collect()
        };
        let inputs = buffers(self, &node.inputs)?;
        let outputs = buffers(self, &node.outputs)?;
        let (mut function, mut inputs) = (function.as_str(), inputs);
        if function == "append" {
            // the copy does nothing where the result has the memory of the first operand
            let (from, to) = (inputs.remove(0), outputs[0]);
            self.touch(&[node.inputs[0], node.outputs[0]]);
            let name = format!("copy {}", self.graph.value(node.inputs[0]).name);
            self.steps.push(Step { name, flops: 0, action: Action::Copy { from, to } });
            function = WRITE_ROWS;
        }
        self.touch(&node.inputs);
        self.touch(&node.outputs);
        let action = Action::Opaque { function: function.into(), attributes: attributes.clone(), inputs, outputs };
        self.steps.push(Step { name: group.name.clone(), flops: 0, action });
        Ok(())
    }

    fn root(&self, v: ValueId) -> ValueId {
        self.root[v.0 as usize].0
    }

    /// The constant that a value is, perhaps under another shape.
    fn constant(&self, v: ValueId) -> Option<Arc<Tensor>> {
        self.graph.constant(self.root(v)).cloned()
    }

    /// Subscripts that are constant are checked now, others by a step, once for each range.
    fn check(&mut self, value: ValueId, range: (u64, u64, i64, i64)) -> Result<()> {
        let (offset, stride, lower, upper) = range;
        // Two views of a value have elements of their own.
        let root = self.root[value.0 as usize];
        if let Some(tensor) = self.constant(value) {
            let view = View { dtype: tensor.dtype, shape: &tensor.shape, data: &tensor.data };
            let elements = (offset as usize, stride as usize);
            return check_indices(&self.graph.value(value).name, &view, elements, (lower, upper), None);
        }
        if self.checked.contains(&(root, range)) {
            return Ok(());
        }
        self.checked.push((root, range));
        let tensor = self.buffer(value)?;
        self.touch(&[value]);
        self.steps.push(Step {
            name: format!("check {}", self.graph.value(value).name),
            flops: 0,
            action: Action::CheckIndices { tensor, offset, stride, lower, upper },
        });
        Ok(())
    }

    /// Extends the lifetimes of values to the step that is about to be added.
    fn touch(&mut self, values: &[ValueId]) {
        let step = self.steps.len();
        for &v in values {
            if let Some(&r) = self.request_of.get(&self.root(v)) {
                self.requests[r].0.last = step;
            }
        }
    }

    /// Requests arena memory for the step that is about to be added.
    fn request(&mut self, bytes: u64, buffers: Vec<(BufferRef, u64)>) -> usize {
        let step = self.steps.len();
        self.requests.push((Request { bytes, first: step, last: step, alias: None }, buffers));
        self.requests.len() - 1
    }

    fn add_buffer(&mut self, name: String, dtype: DType, shape: Vec<i64>, place: BufferPlace) -> Result<BufferRef> {
        self.shared.add_buffer(name, dtype, shape, place)
    }

    /// The buffer of a value, made at its first use.
    fn buffer(&mut self, v: ValueId) -> Result<BufferRef> {
        if let Some(&buffer) = self.buffer_of.get(&v) {
            return Ok(buffer);
        }
        let root = self.root(v);
        let value = self.graph.value(v);
        let home = match &self.graph.value(root).source {
            Source::Input => {
                let index = self.graph.inputs.iter().position(|&i| i == root);
                index.and_then(|i| self.inputs.get(i)).copied().ok_or_else(|| {
                    Error::Internal(format!("value `{}` is an input that the graph does not list", value.name))
                })?
            }
            Source::Constant(tensor) => Home::Place(BufferPlace::Weights(self.shared.plain_blob(tensor))),
            Source::Node(..) => {
                let output = self.output_of.get(&root).and_then(|&o| self.outputs[o]);
                output.unwrap_or(Home::Place(BufferPlace::Arena(0)))
            }
        };
        let (name, ty) = (value.name.clone(), &value.ty);
        let (buffer, place) = match home {
            Home::Place(place) => (self.shared.add_buffer(name, ty.dtype, ty.shape.clone(), place)?, place),
            Home::Buffer(other) => {
                let whole = &self.shared.module.buffers[other.0 as usize];
                let place = BufferPlace::Input(u32::MAX);
                if (whole.dtype, &whole.shape) == (ty.dtype, &ty.shape) {
                    (other, place)
                } else {
                    let buffer = self.shared.add_buffer(name, ty.dtype, ty.shape.clone(), place)?;
                    self.shared.aliases.push((buffer, other));
                    (buffer, place)
                }
            }
        };
        self.buffer_of.insert(v, buffer);
        if let BufferPlace::Arena(_) = place {
            // Every alias has a request of its own, tied to the first one's memory.
            let bytes = self.shared.module.buffers[buffer.0 as usize].bytes()?;
            let offset = self.root[v.0 as usize].1;
            let request = self.request(offset + bytes, vec![(buffer, offset)]);
            let first = *self.request_of.entry(root).or_insert(request);
            if first != request {
                self.requests[request].0.alias = Some(first);
            }
        }
        Ok(buffer)
    }

    /// The buffers of the outputs, whose memory lives to the end.
    fn sources(&mut self) -> Result<Vec<BufferRef>> {
        let outputs = &self.graph.outputs;
        let sources = outputs.iter().map(|&v| self.buffer(v)).collect();
        self.touch(outputs);
        sources
    }

    /// Plans the memory of all requests.
    fn finish(self) -> (Planned, Vec<Step>) {
        let requests: Vec<Request> = self.requests.iter().map(|r| r.0.clone()).collect();
        let plan = arena::plan(&requests);
        let buffers = self.requests.iter().zip(&plan.offsets);
        let offsets =
            buffers.flat_map(|((_, buffers), start)| buffers.iter().map(move |(b, offset)| (*b, start + offset)));
        (Planned { bytes: plan.bytes, offsets: offsets.collect() }, self.steps)
    }
}

/// For each value the one whose memory it shares, and its first byte there: of a reshape its operand, of a view the whole.
fn roots(unit: &Unit) -> Vec<(ValueId, u64)> {
    let graph = &unit.graph;
    let mut parent: Vec<Option<(ValueId, u64)>> = vec![None; graph.values.len()];
    for node in graph.nodes.iter().filter(|node| matches!(node.op, Op::Reshape { .. })) {
        parent[node.outputs[0].0 as usize] = Some((node.inputs[0], 0));
    }
    unit.views.iter().for_each(|w| parent[w.value.0 as usize] = Some((w.of, w.offset)));
    let root = |value: u32| {
        let (mut value, mut offset) = (ValueId(value), 0);
        while let Some((of, inside)) = parent[value.0 as usize] {
            (value, offset) = (of, offset + inside);
        }
        (value, offset)
    };
    (0..graph.values.len() as u32).map(root).collect()
}

impl Shared {
    fn add_buffer(&mut self, name: String, dtype: DType, shape: Vec<i64>, place: BufferPlace) -> Result<BufferRef> {
        self.module.buffers.push(Buffer { name, dtype, shape, place });
        Ok(BufferRef(self.module.buffers.len() as u32 - 1))
    }

    /// The place in the weights of a constant.
    fn plain_blob(&mut self, tensor: &Arc<Tensor>) -> u64 {
        let blob = match self.plain.get(&Arc::as_ptr(tensor)) {
            Some(&blob) => blob,
            None => {
                let blob = self.add_blob(Blob::Plain(tensor.clone()));
                self.plain.insert(Arc::as_ptr(tensor), blob);
                blob
            }
        };
        self.blob_at[blob]
    }

    fn packed_buffer(&mut self, source: Arc<Tensor>, shape: Vec<i64>, pack: &Pack) -> Result<BufferRef> {
        let key = (Arc::as_ptr(&source), shape.clone(), pack.canonical());
        if let Some(&buffer) = self.packed.get(&key) {
            return Ok(buffer);
        }
        let blob = self.add_blob(Blob::Packed { source, shape, pack: pack.clone() });
        let place = BufferPlace::Weights(self.blob_at[blob]);
        let buffer = self.add_buffer("packed".into(), pack.dtype, pack.shape.clone(), place)?;
        self.packed.insert(key, buffer);
        Ok(buffer)
    }

    fn add_blob(&mut self, blob: Blob) -> usize {
        self.blob_at.push(self.weights_len);
        self.weights_len = (self.weights_len + blob.bytes() as u64).next_multiple_of(WEIGHTS_ALIGNMENT as u64);
        self.blobs.push(blob);
        self.blobs.len() - 1
    }

    /// The module of an arena of so many bytes.
    fn finish(mut self, arena_bytes: u64, threads: usize, sharing: &Sharing) -> Result<ModuleParts> {
        for (buffer, original) in std::mem::take(&mut self.aliases) {
            self.module.buffers[buffer.0 as usize].place = self.module.buffers[original.0 as usize].place;
        }
        self.module.arena_bytes = arena_bytes;
        let places = sharing.place(self.blobs, |blobs, memory| fill(blobs, memory, threads))?;
        for (place, offset) in places.into_iter().zip(self.blob_at) {
            if place.is_some_and(|place| self.module.weights.push(place) != offset) {
                return Err(Error::Internal("a constant has another place than its kernels read".into()));
            }
        }
        Ok(self.module)
    }
}

/// Writes constants to their places in zeros, in `threads` threads.
fn fill(blobs: Vec<(usize, Blob)>, memory: &mut [u8], threads: usize) {
    let (mut parts, mut unfilled, mut position) = (vec![], memory, 0);
    for (start, blob) in blobs {
        let (_, from_start) = unfilled.split_at_mut(start - position);
        let (bytes, after) = from_start.split_at_mut(blob.bytes());
        (unfilled, position) = (after, start + blob.bytes());
        parts.push((blob, bytes));
    }
    // no thread is left alone with a large one at the end
    parts.sort_by_key(|(_, bytes)| Reverse(bytes.len()));
    threads::map(parts, threads, |(blob, bytes)| blob.write(bytes));
}
