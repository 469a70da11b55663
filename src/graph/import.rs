//! ONNX to [`Graph`]: a file in, a static graph in canonical form out.
//!
//! [`OnnxModel::load`] reads the file and checks every node against the table of operators before it reports.
//! [`OnnxModel::graph`] binds the dynamic dimensions and converts node by node; nodes of constants are folded at once,
//! so that no shape arithmetic is left.

mod activation;
mod arithmetic;
mod attention;
mod attributes;
pub mod binding;
mod bits;
pub mod bounded;
mod budget;
pub mod catalogue;
mod columns;
mod content;
mod contrib;
mod control;
mod convert;
mod convolution;
mod data_dependent;
mod declared;
mod einsum;
mod external;
mod functions;
mod halves;
pub mod importer;
mod legacy;
pub mod limits;
mod linear_attention;
mod loss;
pub mod model;
mod movement;
mod nested;
mod node;
mod pooling;
pub mod provenance;
mod quantize;
mod random;
mod rearrange;
mod recurrent;
mod reduction;
mod resize;
mod sample;
mod scatter;
pub mod sequence;
mod signal;
mod sparse;
pub mod stage;
mod storage;
mod table;
mod tensor;
pub mod value_file;
pub mod walk;

use crate::graph::fold;
use crate::graph::fold::memo::Memo;
use crate::graph::import::importer::{Converted, Importer};
use crate::graph::import::limits::ImportLimits;
use crate::graph::import::model::{Binding, Dim, InputSpec, OnnxModel};
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, ValueId};
use crate::graph::op::Op;
use crate::graph::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use crate::graph::subgraph::{self, MAX_DEPTH};
use crate::graph::tensor_type::TensorType;
use crate::graph::value::Kind;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result, Tensor};
use external::Folder;
use prost::Message;
use provenance::Provenance;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use walk::{describe, describe_in, prefix, read_names, unsupported};

/// The largest file, in bytes: as large as a message can be. Weights beyond that are external data.
const MAX_FILE_BYTES: u64 = 1 << 31;

impl OnnxModel {
    /// Reads and checks a file. One error lists every node that is not supported.
    pub fn load(path: impl AsRef<Path>) -> Result<OnnxModel> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let fail = |e: std::io::Error| Error::Io(format!("{name}: {e}"));
        let meta = std::fs::metadata(path).map_err(fail)?;
        if meta.is_dir() {
            return Err(Error::Io(format!("{name}: this is a directory")));
        }
        if !meta.is_file() {
            return Err(Error::Invalid(format!("{name} is not a regular file")));
        }
        if meta.len() > MAX_FILE_BYTES {
            return Err(Error::Limit(format!("{name} has {} bytes; an ONNX file has at most 2 GiB", meta.len())));
        }
        let mut folder = Folder::of_file(path);
        let bytes = folder.open(path).map_err(fail)?;
        OnnxModel::decode(bytes, folder).map_err(|e| prefix(&name, e))
    }

    /// Reads and checks the bytes of a file; `directory` holds its external data.
    pub fn parse(bytes: &[u8], directory: &Path) -> Result<OnnxModel> {
        OnnxModel::decode(bytes.to_vec().into(), Folder::new(directory))
    }

    /// The model of a file's bytes, in which its large tensors stay.
    fn decode(bytes: prost::bytes::Bytes, folder: Folder) -> Result<OnnxModel> {
        let mut proto = ModelProto::decode(bytes.clone()).map_err(|e| {
            Error::Invalid(format!("this is neither a readable ONNX file ({e}) nor a text with the extension .tile"))
        })?;
        walk::shorten_domains(&mut proto);
        let opsets = functions::inline(&mut proto)?;
        let Some(graph) = &proto.graph else {
            return Err(Error::Invalid("this ONNX file has no graph".into()));
        };
        let opset = functions::declared_opset(&proto, graph, &opsets)?;
        if graph.output.is_empty() {
            return Err(Error::Invalid("the graph has no outputs".into()));
        }
        let opset_of = |node: &NodeProto| model::opset_of(node, &opsets, opset);
        check_nodes(graph, &opset_of, &HashSet::new(), 0)?;
        let (inputs, defaults) = declared::input_specs(graph)?;
        let (weights, external) = take_weights(&mut proto, &folder)?;
        folder.release();
        let (bytes, content) = (folder.own(bytes), OnceLock::new());
        let (folder, proto) = (Arc::new(folder), Arc::new(proto));
        Ok(OnnxModel { folder, opset, opsets, inputs, defaults, proto, weights, external, bytes, content })
    }

    /// The inputs that a caller provides: those without an initializer.
    pub fn inputs(&self) -> &[InputSpec] {
        &self.inputs
    }

    /// Names of the dynamic dimensions, in the order in which the inputs use them.
    pub fn symbols(&self) -> Vec<String> {
        let mut out: Vec<String> = vec![];
        for dim in self.inputs.iter().flat_map(|i| &i.shape) {
            if let Dim::Symbol(s) = dim
                && !out.contains(s)
            {
                out.push(s.clone());
            }
        }
        out
    }

    /// The file's metadata, such as the character list of a text recogniser.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.proto.metadata_props.iter().map(|e| (e.key.clone(), e.value.clone())).collect()
    }

    /// The static graph for a binding of the dynamic dimensions; those not named are 1.
    pub fn graph(&self, dims: &BTreeMap<String, i64>) -> Result<Graph> {
        let binding = Binding { dims: dims.clone(), ..Binding::default() };
        self.bind(&binding, &Memo::default()).map(|bound| bound.graph).map_err(|unbound| unbound.error)
    }

    /// Checks the names and sizes of dynamic dimensions.
    fn check_dims(&self, dims: &BTreeMap<String, i64>) -> Result<()> {
        let symbols = self.symbols();
        for (name, &size) in dims {
            if !symbols.contains(name) {
                return Err(Error::Invalid(unknown("dynamic dimension", name, &symbols)));
            }
            if size < 0 {
                return Err(Error::Invalid(format!("dimension `{name}` is {size}, which is negative")));
            }
        }
        Ok(())
    }

    /// The graph of the file.
    pub fn onnx_graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("checked by parse")
    }
}

/// Operators against the table, names against each other; in the graphs inside of nodes too, which read the names around
/// them.
fn check_nodes<'a>(
    graph: &'a GraphProto,
    opset_of: &dyn Fn(&NodeProto) -> i64,
    around: &HashSet<&'a str>,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::Limit(format!("graphs are nested more than {MAX_DEPTH} deep")));
    }
    let mut problems = vec![];
    let stored = || graph.initializer.iter().map(|t| &t.name).chain(sparse::names(graph)).map(String::as_str);
    let initializers: HashSet<&str> = stored().collect();
    let mut defined: HashSet<&str> = around.union(&initializers).copied().collect();
    let mut seen = HashSet::new();
    let mut named = HashSet::new();
    if let Some(twice) = stored().find(|name| !named.insert(*name)) {
        return Err(Error::Invalid(format!("two initializers are named `{twice}`")));
    }
    for input in &graph.input {
        if !seen.insert(input.name.as_str()) {
            return Err(Error::Invalid(format!("two inputs are named `{}`", input.name)));
        }
        defined.insert(&input.name);
    }
    for node in &graph.node {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if initializers.contains(output.as_str()) || !seen.insert(output) {
                return Err(Error::Invalid(format!("the value `{output}` is defined twice")));
            }
            defined.insert(output);
        }
    }
    let live = walk::live_nodes(graph)?;
    // a graph inside may never run: its operators are looked up where it does
    for node in live.iter().filter(|_| depth == 0) {
        let opset = opset_of(node);
        if let Err(reason) = table::lookup(node, opset) {
            problems.push(format!("{}: {reason}", describe_in(node, opset)));
        }
    }
    if !problems.is_empty() {
        return Err(unsupported(problems));
    }
    for node in live {
        let opset = opset_of(node);
        let place = || describe_in(node, opset);
        let supported = depth == 0 || table::lookup(node, opset).is_ok();
        let checked = if supported { attributes::check(node, opset) } else { Ok(()) };
        checked.map_err(|reason| Error::Invalid(format!("{}: {reason}", place())))?;
        if let Some(missing) = node.input.iter().find(|i| !i.is_empty() && !defined.contains(i.as_str())) {
            return Err(Error::Invalid(format!("{} reads `{missing}`, which nothing defines", describe(node))));
        }
        for inside in nested::graphs(node) {
            check_nodes(inside, opset_of, &defined, depth + 1).map_err(|e| prefix(&place(), e))?;
        }
    }
    match graph.output.iter().find(|o| !defined.contains(o.name.as_str())) {
        Some(o) => Err(Error::Invalid(format!("nothing defines the output `{}`", o.name))),
        None => Ok(()),
    }
}

/// The initializers and constant tensors that a needed node or an output reads, and those of them that are external. They leave the
/// message, so that weights are in memory once.
fn take_weights(proto: &mut ModelProto, folder: &Folder) -> Result<(Vec<(String, Arc<Tensor>)>, Vec<Arc<Tensor>>)> {
    let Some(graph) = &mut proto.graph else { return Ok((vec![], vec![])) };
    let mut initializers = std::mem::take(&mut graph.initializer);
    initializers.extend(graph.node.iter_mut().filter_map(take_constant));
    let live = walk::live_nodes(graph)?.into_iter().flat_map(read_names);
    let read: HashSet<&str> = live.chain(graph.output.iter().map(|o| o.name.as_str())).collect();
    let (mut weights, mut external) = (vec![], vec![]);
    for proto in initializers.into_iter().filter(|t| read.contains(t.name.as_str())) {
        let (name, is_external) = (proto.name.clone(), content::is_external(&proto));
        let tensor = Arc::new(tensor::read(proto, folder)?);
        external.extend(is_external.then(|| tensor.clone()));
        weights.push((name, tensor));
    }
    Ok((weights, external))
}

/// The tensor of a `Constant` node as an initializer; the node keeps none.
fn take_constant(node: &mut NodeProto) -> Option<TensorProto> {
    if node.op_type != "Constant" || !node.domain.is_empty() {
        return None;
    }
    let value = node.attribute.iter_mut().find(|a| a.name == "value")?.t.take()?;
    Some(TensorProto { name: node.output.first()?.clone(), ..value })
}

impl<'m> Importer<'m> {
    fn new(model: &'m OnnxModel, limits: ImportLimits, memo: &'m Memo) -> Importer<'m> {
        Importer { memo: Some(memo), ..Importer::of(model, model.onnx_graph(), limits) }
    }

    /// Converts nodes of `proto`, a graph of the file.
    fn of(model: &'m OnnxModel, proto: &'m GraphProto, limits: ImportLimits) -> Importer<'m> {
        let (values, place, graph) = (HashMap::new(), String::new(), Graph::default());
        let (needed, waits) = (Default::default(), Default::default());
        let (budget, work_left, nodes_left) = (limits.constant_bytes, limits.constant_work, limits.nodes);
        let (provenance, memo, bounded) = (Provenance::new(proto, None), None, None);
        Importer {
            model,
            proto,
            graph,
            values,
            place,
            provenance,
            limits,
            budget,
            work_left,
            nodes_left,
            needed,
            waits,
            memo,
            bounded,
        }
    }

    /// Converts all nodes; inputs with a value become constants. Dimensions that grow have a capacity, and the graph bounds.
    /// Returns the nodes that are none of the graph's, too.
    fn run(&mut self, binding: &Binding, values: &BTreeMap<String, Arc<Tensor>>) -> Result<Converted> {
        let (graph, dims) = (self.proto, &binding.dims);
        self.graph.name = graph.name.clone();
        if let Some(growing) = &binding.growing {
            self.grow(growing)?;
        }
        for spec in &self.model.inputs {
            if spec.kind != Kind::Tensor || spec.any_rank {
                let kind = if spec.any_rank { "tensor of any rank".to_string() } else { spec.kind.to_string() };
                return Err(self.wait(&format!("input `{}` is a {kind}, which no static graph has", spec.name)));
            }
            let size = |d: &Dim| match d {
                Dim::Fixed(v) => *v,
                Dim::Symbol(s) | Dim::Derived(s) => match &binding.growing {
                    Some(growing) if growing.offsets.contains_key(s) => growing.capacity,
                    _ => dims.get(s).copied().unwrap_or(1),
                },
            };
            let shape: Vec<i64> = spec.shape.iter().map(size).collect();
            tensor::checked_len(&shape, spec.dtype, &format!("input `{}`", spec.name))?;
            let ty = TensorType { dtype: spec.dtype, shape };
            let mut id = self.graph.add_value(spec.name.clone(), ty, crate::graph::ir::Source::Input);
            self.graph.inputs.push(id);
            self.grow_input(id, spec, values.contains_key(&spec.name))?;
            if let Some(value) = values.get(&spec.name) {
                id = self.named_constant(spec.name.clone(), value.clone());
            }
            self.values.insert(&spec.name, Some(id));
        }
        for (name, tensor) in &self.model.weights {
            self.budget += 4 * tensor.data.len() as u64;
            let id = self.named_constant(name.clone(), tensor.clone());
            self.values.insert(name, Some(id));
        }
        self.nodes(graph)?;
        for output in &graph.output {
            let id = self.values.get(output.name.as_str()).copied().flatten().ok_or_else(|| {
                Error::Unsupported(format!("output `{}` is an optional result that is not computed", output.name))
            })?;
            self.check_declared_type(output, id)?;
            let id = self.own_output(id, &output.name);
            self.graph.outputs.push(id);
        }
        let converted = self.provenance.close(&self.graph);
        let bounds = self.bounds();
        self.remove_unused();
        let graph = std::mem::take(&mut self.graph);
        let absent = provenance::absent(&graph, converted);
        Ok(Converted { graph, absent, bounds })
    }

    /// Converts the nodes of a graph. One error lists those that are not supported.
    pub(super) fn nodes(&mut self, graph: &'m GraphProto) -> Result<()> {
        for initializer in &graph.initializer {
            let tensor = self.read_tensor(initializer)?;
            let id = self.named_constant(initializer.name.clone(), Arc::new(tensor));
            self.values.insert(&initializer.name, Some(id));
        }
        for sparse in &graph.sparse_initializer {
            let folder = &self.model.folder;
            let (name, tensor) = sparse::read(sparse, folder, |shape, dtype| self.claim(shape, dtype))?;
            let id = self.named_constant(name, Arc::new(tensor));
            self.values.extend(sparse.values.iter().map(|values| (values.name.as_str(), Some(id))));
        }
        let mut problems = vec![];
        for node in walk::live_nodes(graph)? {
            self.enter(node);
            match self.convert(node) {
                Ok(outputs) => {
                    self.provenance.leave(&outputs);
                    for (name, id) in node.output.iter().zip(outputs).filter(|o| !o.0.is_empty()) {
                        self.values.insert(name, id);
                    }
                }
                Err(Error::Unsupported(reason)) => {
                    if walk::may_wait(node) {
                        self.waits.set(true);
                    }
                    problems.push(format!("{}: {reason}", describe_in(node, self.model.opset_of(node))));
                    self.values.extend(node.output.iter().map(|o| (o.as_str(), None)));
                }
                Err(error) => return Err(prefix(&describe(node), error)),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(unsupported(problems)) }
    }

    /// The outputs of a node, `None` where nothing is computed.
    fn convert(&mut self, node: &'m NodeProto) -> Result<Vec<Option<ValueId>>> {
        let mut inputs = vec![];
        if nested::captured_names(node).iter().any(|name| self.values.get(name) == Some(&None)) {
            return Ok(vec![None; node.output.len()]);
        }
        self.check_captured(node)?;
        for name in &node.input {
            inputs.push(match self.values.get(name.as_str()) {
                _ if name.is_empty() => None,
                Some(Some(id)) => Some(*id),
                // a node that reads the result of an unsupported one is not reported again
                Some(None) => return Ok(vec![None; node.output.len()]),
                None => return Err(Error::Invalid(format!("reads `{name}`, which nothing defines"))),
            });
        }
        let opset = self.model.opset_of(node);
        let converter = table::lookup(node, opset).map_err(Error::Unsupported)?;
        let mut inputs = legacy::aligned(self, node, opset, inputs)?;
        let narrow = self.widen_halves(&node.op_type, &mut inputs)?;
        let source = node::Source::new(node, inputs, opset);
        let outputs = match self.bounded.is_some() {
            true => bounded::convert(self, &source, converter),
            false => converter(self, &source),
        };
        // an attribute of the wrong type is the cause of what a conversion finds
        let outputs = outputs.or_else(|error| source.attributes_have_their_types().and(Err(error)))?;
        source.all_operands_are_read()?;
        source.attributes_have_their_types()?;
        if let Some(i) = (outputs.len()..node.output.len()).find(|&i| source.wants_output(i) && self.is_read(node, i)) {
            return Err(Error::Unsupported(format!("its output {i} (`{}`) is not computed", node.output[i])));
        }
        Ok(self.narrow_results(outputs, narrow)?.into_iter().map(Some).collect())
    }

    fn is_read(&self, node: &NodeProto, output: usize) -> bool {
        let name = &node.output[output];
        let graph = self.proto;
        graph.node.iter().any(|n| read_names(n).any(|read| read == name))
            || graph.output.iter().any(|o| &o.name == name)
    }

    /// Appends a node, or folds it when every operand is constant and its work is bounded.
    pub(super) fn emit_all(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        match inputs.iter().any(|&v| !self.axes(v).is_empty()) {
            true => self.emit_bounded(op, inputs),
            false => self.emit_exact(op, inputs),
        }
    }

    /// As [`Importer::emit_all`], for operands whose bounded dimensions the caller looks after.
    fn emit_exact(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let types = {
            let operands: Vec<&TensorType> = inputs.iter().map(|&i| self.ty(i)).collect();
            infer(&op, &operands)?
        };
        for ty in &types {
            tensor::checked_len(&ty.shape, ty.dtype, "a result")?;
        }
        let constants: Option<Vec<Arc<Tensor>>> = inputs.iter().map(|&i| self.graph.constant(i).cloned()).collect();
        if let Some(constants) = constants.filter(|_| subgraph::may_fold(&op)) {
            let operands: Vec<TensorType> = constants.iter().map(|t| TensorType::of(t)).collect();
            types.iter().try_for_each(|ty| self.claim(&ty.shape, ty.dtype))?;
            self.claim_work(&op, &operands)?;
            let evaluate = || fold::evaluate(&op, &constants.iter().map(|t| &**t).collect::<Vec<_>>());
            let folded = match self.memo {
                Some(memo) => memo.results(&op, &constants, evaluate)?,
                None => evaluate()?.into_iter().map(Arc::new).collect(),
            };
            constants.iter().for_each(|constant| constant.data.release());
            let name = format!("{}.constant", self.place);
            return Ok(folded.into_iter().map(|t| self.named_constant(name.clone(), t)).collect());
        }
        Ok(self.append(op, inputs, types))
    }

    /// A node of these operands.
    fn append(&mut self, op: Op, inputs: &[ValueId], types: Vec<TensorType>) -> Vec<ValueId> {
        let index = self.graph.nodes.len() as u32;
        let mut outputs = vec![];
        for (i, ty) in types.into_iter().enumerate() {
            let name = if i == 0 { self.place.clone() } else { format!("{}.{i}", self.place) };
            outputs.push(self.graph.add_value(name, ty, crate::graph::ir::Source::Node(index, i as u32)));
        }
        let origins = self.provenance.current().cloned().into_iter().collect();
        let node = Node { name: self.place.clone(), origins, op, inputs: inputs.to_vec(), outputs: outputs.clone() };
        self.graph.nodes.push(node);
        outputs
    }

    /// As [`Importer::emit_all`], for operators with one result.
    pub(super) fn emit(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        Ok(self.emit_all(op, inputs)?[0])
    }

    pub(super) fn constant(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("{}.constant", self.place);
        self.named_constant(name, Arc::new(tensor))
    }

    pub(super) fn named_constant(&mut self, name: String, tensor: Arc<Tensor>) -> ValueId {
        let ty = TensorType { dtype: tensor.dtype, shape: tensor.shape.clone() };
        self.graph.add_value(name, ty, crate::graph::ir::Source::Constant(tensor))
    }

    pub(super) fn ty(&self, id: ValueId) -> &TensorType {
        &self.graph.value(id).ty
    }

    pub(super) fn shape(&self, id: ValueId) -> &[i64] {
        &self.ty(id).shape
    }

    pub(super) fn rank(&self, id: ValueId) -> usize {
        self.shape(id).len()
    }

    /// A tensor of the file. The larger the weights, the more may be computed from them.
    pub(super) fn read_tensor(&mut self, proto: &TensorProto) -> Result<Tensor> {
        let tensor = tensor::read(proto.clone(), &self.model.folder)?;
        self.budget += 4 * tensor.data.len() as u64;
        Ok(tensor)
    }

    /// `axis` counted from the front; negative counts from the back.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        importer::axis(axis, rank)
    }

    /// Axes counted from the front; an axis may be named once.
    pub(super) fn distinct_axes(&self, axes: Vec<i64>, rank: usize) -> Result<Vec<usize>> {
        let axes = axes.into_iter().map(|a| self.axis(a, rank)).collect::<Result<Vec<usize>>>()?;
        match axes.iter().enumerate().find(|(i, a)| axes[..*i].contains(a)) {
            Some((_, axis)) => Err(Error::Invalid(format!("axis {axis} is named twice"))),
            None => Ok(axes),
        }
    }

    /// Gives an output its own value and name: an input, a constant or a value that is an output already is copied by a
    /// reshape to the same shape, which moves nothing.
    fn own_output(&mut self, id: ValueId, name: &str) -> ValueId {
        let is_node = matches!(self.graph.value(id).source, crate::graph::ir::Source::Node(..));
        if is_node && !self.graph.outputs.contains(&id) {
            self.graph.values[id.0 as usize].name = name.to_string();
            return id;
        }
        let ty = self.ty(id).clone();
        let index = self.graph.nodes.len() as u32;
        let op = Op::Reshape { shape: ty.shape.clone() };
        let out = self.graph.add_value(name.to_string(), ty, crate::graph::ir::Source::Node(index, 0));
        self.set_axes(out, self.axes(id));
        let origins = self.graph.producer(id).map_or(vec![], |(node, _)| node.origins.clone());
        self.graph.nodes.push(Node { name: name.to_string(), origins, op, inputs: vec![id], outputs: vec![out] });
        out
    }

    /// Drops nodes and constants that no output needs.
    fn remove_unused(&mut self) {
        let mut live: HashSet<ValueId> = self.graph.outputs.iter().copied().collect();
        let mut nodes: Vec<Node> = vec![];
        for node in std::mem::take(&mut self.graph.nodes).into_iter().rev() {
            if node.outputs.iter().any(|o| live.contains(o)) {
                live.extend(&node.inputs);
                live.extend(&node.outputs);
                nodes.push(node);
            }
        }
        nodes.reverse();
        live.extend(&self.graph.inputs);
        let mut renumbered = HashMap::new();
        let mut values = vec![];
        for (i, value) in std::mem::take(&mut self.graph.values).into_iter().enumerate() {
            if live.contains(&ValueId(i as u32)) {
                renumbered.insert(ValueId(i as u32), ValueId(values.len() as u32));
                values.push(value);
            }
        }
        for (n, node) in nodes.iter_mut().enumerate() {
            for id in node.inputs.iter_mut().chain(&mut node.outputs) {
                *id = renumbered[id];
            }
            for (o, id) in node.outputs.iter().enumerate() {
                values[id.0 as usize].source = crate::graph::ir::Source::Node(n as u32, o as u32);
            }
        }
        for id in self.graph.inputs.iter_mut().chain(&mut self.graph.outputs) {
            *id = renumbered[id];
        }
        self.graph.values = values;
        self.graph.nodes = nodes;
    }
}
