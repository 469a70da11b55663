//! Models that are not known as a whole before they run: what depends on data waits, the rest is compiled in parts.
//!
//! In: an ONNX model and the values of its inputs. Out: the values of its outputs. A part is compiled for the types of the
//! values that it reads, and for the values of those that decide shapes; it is kept and found again when these are the same.
//! Between the parts the host runs what is no tensor expression of known size: sequences, optionals, functions whose results
//! are as large as the data make them, branches, and loops whose number of steps depends on data.

mod control;
mod memory;
mod profile;

use crate::cache::{self, Subject};
use crate::graph::import::limits::ImportLimits;
use crate::graph::import::model::{Dim, InputSpec, OnnxModel};
use crate::graph::import::provenance::{self, Origin};
use crate::graph::import::sequence::{self, Made};
use crate::graph::import::stage::{Known, Part};
use crate::graph::import::walk;
use crate::graph::proto::{GraphProto, NodeProto};
use crate::graph::value::{Kind, Value};
use crate::pipeline::report::Report;
use crate::pipeline::{self, Options};
use crate::runtime::error::unknown;
use crate::runtime::module::{Module, TensorSpec};
use crate::runtime::pool::Pool;
use crate::runtime::session::Session;
use crate::{DType, Error, Result, Tensor};
use memory::{Memory, TENSOR_BYTES};
use profile::Profile;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use profile::{HostReport, PartReport, StagedReport};

/// An input of a run.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    Tensor(&'a Tensor),
    Value(&'a Value),
}

/// Compiled parts that are kept for each binding that a model may keep.
const PARTS_FOR_EACH_BINDING: usize = 64;

/// A model that runs in parts.
pub struct Staged {
    model: Arc<OnnxModel>,
    options: Options,
    pool: Arc<Pool>,
    /// Oldest first.
    parts: Mutex<Vec<(Key, Arc<CompiledPart>)>>,
    scopes: Mutex<HashMap<usize, Arc<Scope>>>,
    /// The numbers of steps that loops had, by the addresses of their nodes: of those that parts may compute.
    trips: Mutex<HashMap<usize, Vec<i64>>>,
}

/// A graph of the file as all its runs find it.
struct Scope {
    /// Of its nodes.
    origins: Vec<Origin>,
    /// The nodes that its outputs need, each after those that it reads.
    order: Vec<usize>,
    /// The names that these nodes and the outputs read.
    names: Vec<String>,
    initializers: Vec<(String, Arc<Tensor>)>,
}

/// The part that a graph of the file goes on with: which of its nodes are done, and the types of what is known.
#[derive(PartialEq)]
struct Key {
    graph: usize,
    done: Vec<bool>,
    types: Vec<Type>,
}

#[derive(PartialEq)]
enum Type {
    Unknown,
    Other,
    Tensor(DType, Vec<i64>),
    /// The address of a constant, which the part keeps.
    Constant(usize),
}

struct CompiledPart {
    part: Part,
    report: Arc<Report>,
    /// `None` where everything followed from constants.
    session: Option<Session>,
    outputs: Vec<String>,
    /// Constants that the key names by their addresses.
    _constants: Vec<Arc<Tensor>>,
}

/// A value that is known.
enum Entry<'a> {
    /// Equal in each run.
    Constant(Arc<Tensor>),
    Value(Value),
    /// An input of the model, which is the caller's, and its copy where a value has it.
    Given(&'a Tensor, OnceCell<Arc<Tensor>>),
}

impl Entry<'_> {
    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Entry::Constant(tensor) | Entry::Value(Value::Tensor(tensor)) => Some(tensor),
            Entry::Given(tensor, _) => Some(tensor),
            Entry::Value(_) => None,
        }
    }

    fn value(&self) -> Value {
        match self {
            Entry::Constant(tensor) => Value::Tensor(tensor.clone()),
            Entry::Value(value) => value.clone(),
            Entry::Given(tensor, copy) => Value::Tensor(copy.get_or_init(|| Arc::new((*tensor).clone())).clone()),
        }
    }
}

/// The values that are known, by name; those of the graphs around are outside.
struct Environment<'a> {
    outside: Option<&'a Environment<'a>>,
    values: HashMap<String, Entry<'a>>,
}

impl Environment<'_> {
    fn get(&self, name: &str) -> Option<&Entry<'_>> {
        self.values.get(name).or_else(|| self.outside?.get(name))
    }

    fn insert(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_string(), Entry::Value(value));
    }

    /// Bytes of the places of all sequences.
    fn places_bytes(&self) -> u64 {
        let here = self.values.values().map(|entry| match entry {
            Entry::Value(value) => memory::places_bytes(value),
            _ => 0,
        });
        here.fold(self.outside.map_or(0, Environment::places_bytes), u64::saturating_add)
    }

    fn insert_constant(&mut self, name: &str, tensor: &Arc<Tensor>) {
        self.values.insert(name.to_string(), Entry::Constant(tensor.clone()));
    }
}

/// The place of a graph in a run.
struct Frame<'a> {
    /// Graphs around it.
    depth: usize,
    /// The node that it is inside of.
    around: Option<Origin>,
    /// Where times are noted, if they are.
    profile: Option<&'a RefCell<Profile>>,
    memory: &'a Memory<'a>,
}

impl Frame<'_> {
    /// Runs a step of the host for `node` and notes its time.
    fn timed<T>(
        &self,
        node: &NodeProto,
        origin: &Origin,
        step: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let begun = self.profile.map(|profile| profile.borrow().begin());
        let result = step()?;
        if let (Some(profile), Some(begun), true) = (self.profile, begun, result.is_some()) {
            profile.borrow_mut().add_step(origin, &node.op_type, begun);
        }
        Ok(result)
    }
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

impl Staged {
    pub fn new(model: Arc<OnnxModel>, options: Options, pool: Arc<Pool>) -> Staged {
        Staged { model, options, pool, parts: Mutex::default(), scopes: Mutex::default(), trips: Mutex::default() }
    }

    /// Runs the model on its inputs, by name. The outputs come in the model's order.
    ///
    /// # Errors
    /// `Invalid` where an input is missing or does not fit; `Unsupported` where nothing can go on; those of compiling a part
    /// and of running it.
    pub fn run(&self, inputs: &[(&str, Input)]) -> Result<Vec<Value>> {
        self.execute(inputs, None)
    }

    /// Runs the model and reports on its parts and on what the host does between them.
    ///
    /// # Errors
    /// As [`Staged::run`].
    pub fn report(&self, inputs: &[(&str, Input)]) -> Result<StagedReport> {
        let profile = RefCell::default();
        self.execute(inputs, Some(&profile))?;
        let (model, target) = (&self.model.onnx_graph().name, self.options.target()?.name);
        Ok(profile.into_inner().finish(model, &target, self.pool.threads()))
    }

    fn execute(&self, inputs: &[(&str, Input)], profile: Option<&RefCell<Profile>>) -> Result<Vec<Value>> {
        let mut environment = Environment { outside: None, values: HashMap::new() };
        for (name, tensor) in self.model.weights() {
            environment.insert_constant(name, tensor);
        }
        let specs = self.model.inputs();
        if let Some((name, _)) = inputs.iter().find(|(name, _)| !specs.iter().any(|s| s.name == *name)) {
            let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
            return Err(Error::Invalid(unknown("input", name, &names)));
        }
        let mut given = 0u64;
        for spec in specs {
            let Some((_, input)) = inputs.iter().find(|(name, _)| *name == spec.name) else {
                return Err(Error::Invalid(format!("input `{}` is missing", spec.name)));
            };
            let entry = match *input {
                Input::Tensor(tensor) => Entry::Given(tensor, OnceCell::new()),
                Input::Value(value) => Entry::Value(value.clone()),
            };
            check(spec, &entry)?;
            given = given.saturating_add(match *input {
                Input::Tensor(tensor) => memory::tensor_bytes(tensor.data.len() as u64),
                Input::Value(value) => memory::value_bytes(value),
            });
            environment.values.insert(spec.name.clone(), entry);
        }
        let memory = Memory::new(&self.options.limits, given);
        memory.reserve(0, || "their places".into())?;
        let frame = Frame { depth: 0, around: None, profile, memory: &memory };
        self.graph(self.model.onnx_graph(), &mut environment, &frame)
    }

    /// Runs a graph of the file; `environment` has the values of its inputs.
    fn graph(&self, graph: &GraphProto, environment: &mut Environment, frame: &Frame) -> Result<Vec<Value>> {
        let scope = self.scope(graph, frame)?;
        for (name, tensor) in &scope.initializers {
            environment.insert_constant(name, tensor);
        }
        let mut done = vec![false; graph.node.len()];
        while scope.order.iter().any(|&n| !done[n]) {
            let tried: HashSet<usize> = waiting(graph, &scope, &done, environment).collect();
            let part = self.part(graph, &scope, &done, environment, frame)?;
            part.run(environment, frame)?;
            part.part.done.iter().for_each(|&n| done[n] = true);
            let by_host = self.host(graph, &scope, (&mut done, &tried), environment, frame)?;
            if part.part.done.is_empty() && !by_host {
                return Err(stuck(graph, &scope, &done, &part.part));
            }
        }
        let value = |name: &str| environment.get(name).map(Entry::value);
        let output = |name: &String| {
            value(name).ok_or_else(|| {
                Error::Unsupported(format!("output `{name}` is an optional result that is not computed"))
            })
        };
        graph.output.iter().map(|o| output(&o.name)).collect()
    }

    /// Runs the waiting nodes that the host can run now. Returns true if there was one. A loop whose operands became known
    /// after the last part was made waits for the next one, unless that part was made for many numbers of steps already; the
    /// last part could have computed the nodes of `tried`.
    fn host(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        (done, tried): (&mut [bool], &HashSet<usize>),
        environment: &mut Environment,
        frame: &Frame,
    ) -> Result<bool> {
        let mut any = false;
        for &index in &scope.order {
            let node = &graph.node[index];
            if done[index]
                || !is_ready(node, environment)
                || !tried.contains(&index) && self.may_compile(node, environment)
            {
                continue;
            }
            let origin = &scope.origins[index];
            let results = frame.timed(node, origin, || self.step(graph, index, origin, environment, frame))?;
            let Some(results) = results else { continue };
            for (name, value) in node.output.iter().zip(results).filter(|(name, _)| !name.is_empty()) {
                environment.insert(name, value);
            }
            (done[index], any) = (true, true);
        }
        Ok(any)
    }

    /// The results of a node whose operands are known; `None` where only a part can compute it.
    fn step(
        &self,
        graph: &GraphProto,
        index: usize,
        origin: &Origin,
        environment: &Environment,
        frame: &Frame,
    ) -> Result<Option<Vec<Value>>> {
        let node = &graph.node[index];
        let place = |e: Error| e.context(&walk::describe(node));
        let memory = frame.memory;
        for entry in node.input.iter().filter_map(|name| environment.get(name)) {
            if let Entry::Given(tensor, copy) = entry
                && copy.get().is_none()
            {
                memory.reserve(tensor.data.len() as u64, || "a copy of an input".into()).map_err(place)?;
                entry.value().tensor().into_iter().for_each(|tensor| memory.add(tensor));
            }
        }
        let operands: Vec<Option<Value>> =
            node.input.iter().map(|name| environment.get(name).map(Entry::value)).collect();
        let inner = Frame { around: Some(origin.clone()), ..*frame };
        if let Some(results) = self.control(node, &operands, environment, &inner).map_err(place)? {
            return Ok(Some(results));
        }
        let made = Made::of(node, &operands, self.model.opset_of(node)).map_err(place)?;
        let tensors = made.tensors.saturating_mul(TENSOR_BYTES).saturating_add(made.bytes);
        // the places of sequences are copied: those of the result, and of its first operand meanwhile
        let places = (made.places as u64).saturating_mul(2 * size_of::<Value>() as u64);
        if tensors > 0 || places > 0 {
            let held = if places > 0 { environment.places_bytes() } else { 0 };
            let bytes = tensors.saturating_add(places).saturating_add(held);
            memory.reserve(bytes, || "the results".into()).map_err(place)?;
        }
        if let Some(results) = sequence::apply(node, &operands, self.model.opset_of(node)).map_err(place)? {
            results.iter().filter(|_| made.tensors > 0).for_each(|value| memory.add_value(value));
            return Ok(Some(results));
        }
        if !walk::depends_on_data(node) {
            return Ok(None);
        }
        let tensor = |value: &Option<Value>| value.as_ref().map(|v| v.tensor().cloned()).transpose();
        let tensors = operands.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        // their memory is counted here
        let limits = ImportLimits { constant_bytes: u64::MAX, ..self.options.limits.import() };
        let folded = self.model.fold_node(graph, index, &tensors, limits)?;
        folded.iter().for_each(|tensor| memory.add(tensor));
        Ok(Some(folded.into_iter().map(Value::Tensor).collect()))
    }

    fn scope(&self, graph: &GraphProto, frame: &Frame) -> Result<Arc<Scope>> {
        let mut scopes = self.scopes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(scope) = scopes.get(&address(graph)) {
            return Ok(scope.clone());
        }
        let order = walk::needed_order(graph)?;
        let read = order.iter().flat_map(|&n| walk::read_names(&graph.node[n]));
        let read = read.chain(graph.output.iter().map(|o| o.name.as_str())).filter(|name| !name.is_empty());
        let mut names: Vec<String> = read.map(str::to_string).collect();
        names.sort_unstable();
        names.dedup();
        let initializers = self.model.initializers(graph, self.options.limits.import())?;
        let origins = provenance::origins(graph, frame.around.as_ref());
        let scope = Arc::new(Scope { origins, order, names, initializers });
        scopes.insert(address(graph), scope.clone());
        Ok(scope)
    }

    /// The next part, compiled at its first use.
    fn part(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        done: &[bool],
        environment: &Environment,
        frame: &Frame,
    ) -> Result<Arc<CompiledPart>> {
        let mut constants = vec![];
        let types = scope.names.iter().map(|name| match environment.get(name) {
            None => Type::Unknown,
            Some(Entry::Constant(tensor)) => {
                constants.push(tensor.clone());
                Type::Constant(Arc::as_ptr(tensor).addr())
            }
            Some(entry) => {
                entry.tensor().map_or(Type::Other, |tensor| Type::Tensor(tensor.dtype, tensor.shape.clone()))
            }
        });
        let key = Key { graph: address(graph), done: done.to_vec(), types: types.collect() };
        let fits = |(other, part): &(Key, Arc<CompiledPart>)| *other == key && part.fits(environment);
        let known =
            self.parts.lock().unwrap_or_else(|e| e.into_inner()).iter().rev().find(|p| fits(p)).map(|p| p.1.clone());
        if let Some(part) = known {
            return Ok(part);
        }
        let lookup = |name: &str| {
            Some(match environment.get(name)? {
                Entry::Constant(tensor) => Known::Constant(tensor.clone()),
                entry => entry.tensor().map_or(Known::Other, Known::Tensor),
            })
        };
        let limits = self.options.limits.import();
        let part = self.model.part(graph, frame.around.as_ref(), &scope.order, done, &lookup, limits)?;
        let compiled = Arc::new(self.compile(part, constants)?);
        let mut parts = self.parts.lock().unwrap_or_else(|e| e.into_inner());
        parts.push((key, compiled.clone()));
        if parts.len() > self.options.limits.bindings.max(1) * PARTS_FOR_EACH_BINDING {
            parts.remove(0);
        }
        Ok(compiled)
    }

    fn compile(&self, part: Part, constants: Vec<Arc<Tensor>>) -> Result<CompiledPart> {
        let outputs = part.graph.outputs.iter().map(|&v| part.graph.value(v).name.clone()).collect();
        let mut report =
            Report { model: part.graph.name.clone(), target: self.options.target()?.name, ..Report::default() };
        let mut session = None;
        if !part.graph.outputs.is_empty() {
            let compile = || {
                let compiled = pipeline::compile(&part.graph, pipeline::Order::Ilp, &self.options)?;
                Ok((compiled.module, compiled.report))
            };
            let (module, found) = cache::compiled(&Subject::Part(&part.graph), &self.options, compile)?;
            pipeline::check_scratch(&module, self.pool.threads(), &self.options.limits)?;
            report = found;
            session = Some(Session::with_pool(Arc::new(module), self.pool.clone())?);
        }
        report.add_absent(&part.absent);
        Ok(CompiledPart { part, report: Arc::new(report), session, outputs, _constants: constants })
    }
}

impl CompiledPart {
    /// Returns true if the values that the part has as constants are those of this run.
    fn fits(&self, environment: &Environment) -> bool {
        self.part
            .frozen
            .iter()
            .all(|(name, tensor)| environment.get(name).and_then(Entry::tensor).is_some_and(|known| *known == **tensor))
    }

    /// Computes the part's values into the environment, and notes the times of its steps.
    fn run(&self, environment: &mut Environment, frame: &Frame) -> Result<()> {
        for (name, tensor) in &self.part.constants {
            environment.insert_constant(name, tensor);
        }
        let note = |module: Option<&Arc<Module>>, times: &[Duration]| {
            if let Some(profile) = frame.profile {
                profile.borrow_mut().add_part(&self.report, module, times);
            }
        };
        let Some(session) = &self.session else {
            note(None, &[]);
            return Ok(());
        };
        let tensor = |name: &'_ String| {
            let known = environment.get(name).and_then(Entry::tensor);
            known.ok_or_else(|| Error::Internal(format!("`{name}` is not known when its part runs")))
        };
        let inputs = self.part.inputs.iter().map(|name| Ok((name.as_str(), tensor(name)?)));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let module = session.module();
        let outputs = module.outputs().iter().map(|o| Ok(memory::tensor_bytes(o.tensor.bytes()?)));
        let outputs = outputs.collect::<Result<Vec<u64>>>()?.into_iter().fold(0, u64::saturating_add);
        frame.memory.reserve_part(address(self), outputs, module.arena_bytes())?;
        let mut outputs = session.outputs();
        match frame.profile {
            None => session.run_into(&inputs, &mut outputs)?,
            Some(_) => note(Some(session.module()), &session.profile_into(&inputs, &mut outputs)?),
        }
        for (name, tensor) in self.outputs.iter().zip(outputs) {
            let tensor = Arc::new(tensor);
            frame.memory.add(&tensor);
            environment.insert(name, Value::Tensor(tensor));
        }
        Ok(())
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
fn check(spec: &InputSpec, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Value(value) => check_value(&spec.name, value)?,
        Entry::Constant(_) | Entry::Given(..) => {
            entry.tensor().map_or(Ok(()), |tensor| check_data(&spec.name, tensor))?;
        }
    }
    let tensor = match (&spec.kind, entry, entry.tensor()) {
        (Kind::Tensor, _, Some(tensor)) => tensor,
        (Kind::Sequence(_), Entry::Value(Value::Sequence(_)), _) | (Kind::Optional(_), ..) => return Ok(()),
        _ => return Err(Error::Invalid(format!("input `{}` is no {}", spec.name, spec.kind))),
    };
    let fits = |(dim, size): (&Dim, &i64)| !matches!(dim, Dim::Fixed(fixed) if fixed != size);
    let same_rank = tensor.shape.len() == spec.shape.len() && spec.shape.iter().zip(&tensor.shape).all(fits);
    if tensor.dtype != spec.dtype || !(spec.any_rank || same_rank) {
        let (dims, found): (Vec<String>, _) = (spec.shape.iter().map(Dim::to_string).collect(), &tensor.shape);
        return Err(Error::Invalid(format!(
            "input `{}` is {} {found:?}, but the model wants {} [{}]",
            spec.name,
            tensor.dtype,
            spec.dtype,
            dims.join(", ")
        )));
    }
    Ok(())
}

/// Returns true if all that a node reads is known.
fn is_ready(node: &NodeProto, environment: &Environment) -> bool {
    walk::read_names(node).all(|name| name.is_empty() || environment.get(name).is_some())
}

/// The nodes that are not done and whose operands are known.
fn waiting<'a>(
    graph: &'a GraphProto,
    scope: &'a Scope,
    done: &'a [bool],
    environment: &'a Environment,
) -> impl Iterator<Item = usize> + 'a {
    scope.order.iter().copied().filter(|&n| !done[n] && is_ready(&graph.node[n], environment))
}

/// The error where neither a part nor the host can go on.
fn stuck(graph: &GraphProto, scope: &Scope, done: &[bool], part: &Part) -> Error {
    let reason = |n: usize| part.waiting.iter().find(|w| w.0 == n).map(|w| w.1.as_str());
    let problems = scope.order.iter().filter(|&&n| !done[n]).filter_map(|&n| Some((n, reason(n)?)));
    let problems: Vec<String> =
        problems.map(|(n, reason)| format!("{}: {reason}", walk::describe(&graph.node[n]))).collect();
    walk::unsupported(problems)
}
