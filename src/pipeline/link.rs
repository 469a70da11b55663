//! Kernels to a module: buffers, lifetimes, weights, steps.
//!
//! In: the fused graph, its groups, and a compiled kernel for each group that needs one. Out: a [`Module`]. A reshape is
//! an alias of its operand. A value that is an output lives in the caller's tensor, any other computed value in the arena
//! from the step that writes it to the last that reads it; equal constants, packed alike, are stored once.

use crate::graph::fusion::group::Group;
use crate::graph::ir::{Graph, Source, ValueId};
use crate::graph::op::Op;
use crate::pipeline::kernel::CompiledKernel;
use crate::poly::lower::state::Argument;
use crate::poly::packing::Pack;
use crate::runtime::arena::{self, ALIGNMENT, Request};
use crate::runtime::check_indices::check_indices;
use crate::runtime::module::{
    Action, Buffer, BufferPlace, BufferRef, Kernel, ModuleParts, OutputSpec, Phase, Slot, Step, TensorSpec, Weights,
};
use crate::runtime::opaque::View;
use crate::runtime::threads;
use crate::{DType, Error, Result, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Run-time work of a group.
pub enum Work {
    /// Index into the compiled kernels.
    Kernel(usize),
    /// The only node of the group.
    Opaque(u32),
}

/// Links the groups into a module without name, target, dims and metadata; `threads` threads write the weights.
pub fn link(
    graph: &Graph,
    groups: &[Group],
    work: &[Work],
    kernels: &[Arc<CompiledKernel>],
    threads: usize,
) -> Result<ModuleParts> {
    let mut linker = Linker::new(graph);
    for kernel in kernels {
        add_code(&mut linker.module, kernel);
    }
    for (group, work) in groups.iter().zip(work) {
        match work {
            Work::Kernel(k) => linker.add_kernel_step(group, *k, &kernels[*k])?,
            Work::Opaque(node) => linker.add_opaque_step(group, *node)?,
        }
    }
    linker.finish(threads)
}

/// Adds a kernel with its machine code to a module.
pub fn add_code(module: &mut ModuleParts, compiled: &CompiledKernel) {
    let phases = compiled.assembled.phases.iter().map(|phase| {
        let at = module.code.len().next_multiple_of(64);
        module.code.resize(at, 0);
        module.code.extend_from_slice(&phase.code);
        Phase {
            offset: at as u64,
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

/// A constant's bytes in the weights.
enum Blob {
    Plain(Arc<Tensor>),
    Packed { source: Arc<Tensor>, shape: Vec<i64>, pack: Pack },
}

impl Blob {
    fn bytes(&self) -> usize {
        match self {
            Blob::Plain(t) => t.data.len(),
            Blob::Packed { pack, .. } => pack.bytes(),
        }
    }

    /// Writes the bytes over zeros.
    fn write(&self, out: &mut [u8]) {
        match self {
            Blob::Plain(t) => out.copy_from_slice(&t.data),
            // The kernel sees the constant under the shape that its Scop gave it.
            Blob::Packed { source, shape, pack } => pack.write(shape, &source.data, out),
        }
    }
}

struct Linker<'g> {
    graph: &'g Graph,
    /// For each value the one whose memory it shares.
    root: Vec<ValueId>,
    /// Of each root that is computed: the output that it is, if any.
    output_of: HashMap<ValueId, u32>,
    /// Requests for arena memory, and the buffer of each.
    requests: Vec<(Request, BufferRef)>,
    request_of: HashMap<ValueId, usize>,
    buffer_of: HashMap<ValueId, BufferRef>,
    blobs: Vec<Blob>,
    blob_at: Vec<u64>,
    weights_len: u64,
    plain: HashMap<*const Tensor, usize>,
    packed: HashMap<(*const Tensor, Pack), BufferRef>,
    checked: Vec<(ValueId, (u64, u64, i64, i64))>,
    module: ModuleParts,
}

impl<'g> Linker<'g> {
    fn new(graph: &'g Graph) -> Linker<'g> {
        let mut root: Vec<ValueId> = (0..graph.values.len() as u32).map(ValueId).collect();
        for node in &graph.nodes {
            if let Op::Reshape { .. } = node.op {
                root[node.outputs[0].0 as usize] = root[node.inputs[0].0 as usize];
            }
        }
        let mut output_of = HashMap::new();
        for (i, &v) in graph.outputs.iter().enumerate() {
            output_of.entry(root[v.0 as usize]).or_insert(i as u32);
        }
        let spec = |v: ValueId| {
            let value = graph.value(v);
            TensorSpec { name: value.name.clone(), dtype: value.ty.dtype, shape: value.ty.shape.clone() }
        };
        let module = ModuleParts {
            inputs: graph.inputs.iter().map(|&v| spec(v)).collect(),
            outputs: graph
                .outputs
                .iter()
                .map(|&v| OutputSpec { tensor: spec(v), source: BufferRef(u32::MAX) })
                .collect(),
            ..ModuleParts::default()
        };
        Linker {
            graph,
            root,
            output_of,
            requests: vec![],
            request_of: HashMap::new(),
            buffer_of: HashMap::new(),
            blobs: vec![],
            blob_at: vec![],
            weights_len: 0,
            plain: HashMap::new(),
            packed: HashMap::new(),
            checked: vec![],
            module,
        }
    }

    fn add_kernel_step(&mut self, group: &Group, index: usize, compiled: &CompiledKernel) -> Result<()> {
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
        for argument in &compiled.kernel.arguments {
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
                Argument::Packed(pack) => {
                    let value = values.get(pack.source.0 as usize).copied();
                    let Some(source) = value.and_then(|v| self.constant(v)) else {
                        return Err(Error::Internal(format!(
                            "kernel `{}` packs an operand that is not constant",
                            group.name
                        )));
                    };
                    let shape = compiled.scop.tensor(pack.source).shape.clone();
                    self.packed_buffer(source, shape, pack)?
                }
                Argument::Workspace { bytes } => {
                    let name = format!("{}.workspace", group.name);
                    let buffer = self.add_buffer(name, DType::U8, vec![*bytes as i64], BufferPlace::Arena(0))?;
                    let step = self.module.steps.len();
                    self.request(*bytes as u64, step, buffer);
                    buffer
                }
            });
        }
        self.touch(&values);
        self.module.steps.push(Step {
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
        self.touch(&node.inputs);
        self.touch(&node.outputs);
        self.module.steps.push(Step {
            name: group.name.clone(),
            flops: 0,
            action: Action::Opaque { function: function.clone(), attributes: attributes.clone(), inputs, outputs },
        });
        Ok(())
    }

    fn root(&self, v: ValueId) -> ValueId {
        self.root[v.0 as usize]
    }

    /// The constant that a value is, perhaps under another shape.
    fn constant(&self, v: ValueId) -> Option<Arc<Tensor>> {
        self.graph.constant(self.root(v)).cloned()
    }

    /// Subscripts that are constant are checked now, others by a step, once for each range.
    fn check(&mut self, value: ValueId, range: (u64, u64, i64, i64)) -> Result<()> {
        let (offset, stride, lower, upper) = range;
        let root = self.root(value);
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
        self.module.steps.push(Step {
            name: format!("check {}", self.graph.value(value).name),
            flops: 0,
            action: Action::CheckIndices { tensor, offset, stride, lower, upper },
        });
        Ok(())
    }

    /// Extends the lifetimes of values to the step that is about to be added.
    fn touch(&mut self, values: &[ValueId]) {
        let step = self.module.steps.len();
        for &v in values {
            if let Some(&r) = self.request_of.get(&self.root(v)) {
                self.requests[r].0.last = step;
            }
        }
    }

    fn request(&mut self, bytes: u64, step: usize, buffer: BufferRef) -> usize {
        self.requests.push((Request { bytes, first: step, last: step, alias: None }, buffer));
        self.requests.len() - 1
    }

    fn add_buffer(&mut self, name: String, dtype: DType, shape: Vec<i64>, place: BufferPlace) -> Result<BufferRef> {
        self.module.buffers.push(Buffer { name, dtype, shape, place });
        Ok(BufferRef(self.module.buffers.len() as u32 - 1))
    }

    /// The buffer of a value, made at its first use.
    fn buffer(&mut self, v: ValueId) -> Result<BufferRef> {
        if let Some(&buffer) = self.buffer_of.get(&v) {
            return Ok(buffer);
        }
        let root = self.root(v);
        let value = self.graph.value(v);
        let place = match &self.graph.value(root).source {
            Source::Input => {
                let index = self.graph.inputs.iter().position(|&i| i == root);
                let index = index.ok_or_else(|| {
                    Error::Internal(format!("value `{}` is an input that the graph does not list", value.name))
                })?;
                BufferPlace::Input(index as u32)
            }
            Source::Constant(tensor) => {
                let blob = match self.plain.get(&Arc::as_ptr(tensor)) {
                    Some(&blob) => blob,
                    None => {
                        let blob = self.add_blob(Blob::Plain(tensor.clone()));
                        self.plain.insert(Arc::as_ptr(tensor), blob);
                        blob
                    }
                };
                BufferPlace::Weights(self.blob_at[blob])
            }
            Source::Node(..) => match self.output_of.get(&root) {
                Some(&output) => BufferPlace::Output(output),
                None => BufferPlace::Arena(0),
            },
        };
        let buffer = self.add_buffer(value.name.clone(), value.ty.dtype, value.ty.shape.clone(), place)?;
        self.buffer_of.insert(v, buffer);
        if let BufferPlace::Arena(_) = place {
            // Every alias has a request of its own, tied to the first one's memory.
            let bytes = self.module.buffers[buffer.0 as usize].bytes()?;
            let step = self.module.steps.len();
            match self.request_of.get(&root) {
                None => {
                    let request = self.request(bytes, step, buffer);
                    self.request_of.insert(root, request);
                }
                Some(&first) => {
                    let request = self.request(bytes, step, buffer);
                    self.requests[request].0.alias = Some(first);
                }
            }
        }
        Ok(buffer)
    }

    fn packed_buffer(&mut self, source: Arc<Tensor>, shape: Vec<i64>, pack: &Pack) -> Result<BufferRef> {
        // Of equal keys the source's tensor is one, whatever number it has in its kernel.
        let mut key = pack.clone();
        key.source = crate::expr::BufferId(0);
        let key = (Arc::as_ptr(&source), key);
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
        self.weights_len = (self.weights_len + blob.bytes() as u64).next_multiple_of(ALIGNMENT);
        self.blobs.push(blob);
        self.blobs.len() - 1
    }

    fn finish(mut self, threads: usize) -> Result<ModuleParts> {
        for (i, &v) in self.graph.outputs.iter().enumerate() {
            self.module.outputs[i].source = self.buffer(v)?;
            self.touch(&[v]);
        }
        let requests: Vec<Request> = self.requests.iter().map(|r| r.0.clone()).collect();
        let plan = arena::plan(&requests);
        for ((_, buffer), offset) in self.requests.iter().zip(&plan.offsets) {
            self.module.buffers[buffer.0 as usize].place = BufferPlace::Arena(*offset);
        }
        self.module.arena_bytes = plan.bytes;
        self.module.weights = Weights::filled(self.weights_len as usize, |memory| self.fill(memory, threads))?;
        Ok(self.module)
    }

    /// Writes every constant to its place, in `threads` threads.
    fn fill(&self, memory: &mut [u8], threads: usize) {
        let count = threads.clamp(1, threads::MAX_THREADS);
        let mut parts: Vec<(usize, Vec<(&Blob, &mut [u8])>)> = (0..count).map(|_| (0, vec![])).collect();
        let (mut rest, mut at) = (memory, 0);
        for (blob, &start) in self.blobs.iter().zip(&self.blob_at) {
            let (_, from_start) = rest.split_at_mut(start as usize - at);
            let (bytes, after) = from_start.split_at_mut(blob.bytes());
            (rest, at) = (after, start as usize + blob.bytes());
            if let Some(least) = parts.iter_mut().min_by_key(|p| p.0) {
                least.0 += blob.bytes();
                least.1.push((blob, bytes));
            }
        }
        let parts = Mutex::new(parts);
        threads::together(count, || {
            loop {
                let part = parts.lock().unwrap_or_else(|e| e.into_inner()).pop();
                let Some((_, part)) = part else { return };
                part.into_iter().for_each(|(blob, bytes)| blob.write(bytes));
            }
        });
    }
}
