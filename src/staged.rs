//! Models that are not known as a whole before they run: what depends on data waits, the rest is compiled in parts.
//!
//! In: an ONNX model and the values of its inputs. Out: the values of its outputs. A part is compiled for the types of the
//! values that it reads, and for the values of those that decide shapes; it is kept and found again when these are the same.
//! Between the parts the host runs what is not a tensor expression of known size: sequences, optionals, functions whose results
//! are as large as the data make them, branches, and loops whose number of steps depends on data.

mod control;
mod environment;
mod growth;
mod memory;
mod part;
mod profile;

use crate::cache::{self, Kernels, Subject};
use crate::graph::import::limits::ImportLimits;
use crate::graph::import::model::OnnxModel;
use crate::graph::import::provenance::{self, Origin};
use crate::graph::import::sequence::{self, Made};
use crate::graph::import::stage::{Known, Part, Rest};
use crate::graph::import::walk;
use crate::graph::proto::{GraphProto, NodeProto};
use crate::graph::value::Value;
use crate::pipeline::linkable::KernelStore;
use crate::pipeline::report::Report;
use crate::pipeline::sharing::Sharing;
use crate::pipeline::{self, Options};
use crate::runtime::error::unknown;
use crate::runtime::pool::Pool;
use crate::runtime::session::Session;
use crate::runtime::text;
use crate::{Error, Result, Tensor};
use environment::{Entry, Environment, check};
use growth::Count;
use memory::{Memory, TENSOR_BYTES};
use part::{CompiledPart, Key, Mode, Type};
use profile::Profile;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use environment::check_data;
pub use profile::{HostReport, PartCounts, PartReport, StagedReport};

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
    compilations: AtomicUsize,
}

/// A graph of the file as all its runs find it.
struct Scope {
    /// Of its nodes.
    origins: Vec<Origin>,
    /// The nodes that its outputs need, each after those that it reads.
    order: Vec<usize>,
    /// The names that these nodes and the outputs read.
    names: Vec<String>,
    /// The nodes that read each of these names.
    readers: Vec<Vec<usize>>,
    /// For each node that is needed the positions of the names that it and the graphs inside of it read.
    reads: Vec<Vec<usize>>,
    /// For each name: it is an output.
    is_output: Vec<bool>,
    initializers: Vec<(String, Arc<Tensor>)>,
}

impl Scope {
    /// The values that a node reads, once for each time it reads them; `None` where one is not known.
    fn operands<'a>(
        &'a self,
        node: usize,
        environment: &'a Environment,
    ) -> impl Iterator<Item = Option<&'a Entry<'a>>> {
        self.reads[node].iter().map(|&name| environment.get(&self.names[name]))
    }

    /// Returns true if all that a node reads is known.
    fn is_ready(&self, node: usize, environment: &Environment) -> bool {
        self.operands(node, environment).all(|entry| entry.is_some())
    }

    /// The nodes that are not done and whose operands are known.
    fn waiting<'a>(&'a self, done: &'a [bool], environment: &'a Environment) -> impl Iterator<Item = usize> + 'a {
        self.order.iter().copied().filter(|&n| !done[n] && self.is_ready(n, environment))
    }

    /// Takes the sequences that a node reads once, and nothing reads later, out of the environment, of those that are `of` it.
    fn take_last(
        &self,
        node: usize,
        done: &[bool],
        environment: &mut Environment,
        of: impl Fn(&String) -> bool,
    ) -> Vec<(String, Value)> {
        let reads = &self.reads[node];
        let is_last = |&&name: &&usize| {
            of(&self.names[name])
                && !self.is_output[name]
                && reads.iter().filter(|&&other| other == name).count() == 1
                && self.readers[name].iter().all(|&reader| reader == node || done[reader])
        };
        let taken = reads.iter().filter(is_last).filter_map(|&name| environment.take_sequence(&self.names[name]));
        taken.collect()
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
        let (parts, scopes, trips) = (Mutex::default(), Mutex::default(), Mutex::default());
        Staged { model, options, pool, parts, scopes, trips, compilations: AtomicUsize::new(0) }
    }

    /// The number of parts that have been compiled so far.
    pub fn compilations(&self) -> usize {
        self.compilations.load(Ordering::Relaxed)
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
            let (went_on, uncovered) = self.go_on(graph, &scope, &mut done, environment, frame)?;
            if went_on {
                continue;
            }
            let tried: HashSet<usize> = scope.waiting(&done, environment).collect();
            let part = self.part(graph, &scope, (&done, &Mode::Exact), environment, frame, &uncovered)?;
            if !part.part.done.is_empty() {
                part.run(environment, &Mode::Exact, frame.memory, frame.profile)?;
            }
            part.part.done.iter().for_each(|&n| done[n] = true);
            let refused = HashSet::new();
            let by_host = self.host(graph, &scope, (&mut done, &tried, &refused), environment, frame)?;
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

    /// Runs a part that reads nothing which follows a count, or a part with a capacity for one count, and what the host can run.
    /// Returns true if there was something, and why nodes could not be converted with a capacity.
    fn go_on(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        done: &mut [bool],
        environment: &mut Environment,
        frame: &Frame,
    ) -> Result<(bool, Vec<String>)> {
        let (mut tried, mut refused, mut any) = (HashSet::new(), HashSet::new(), false);
        let mut uncovered = vec![];
        for (mode, nodes) in modes(scope, done, environment) {
            let part = self.part(graph, scope, (done, &mode), environment, frame, &[])?;
            tried.extend(nodes);
            refused.extend(part.part.waiting.iter().map(|w| w.0));
            part.part.done.iter().for_each(|&n| done[n] = true);
            if !part.part.done.is_empty() {
                part.run(environment, &mode, frame.memory, frame.profile)?;
                any = true;
                break;
            }
            if matches!(mode, Mode::Growing(_)) {
                let reason = |(n, why): &(usize, String)| format!("{}: {why}", walk::describe(&graph.node[*n]));
                uncovered.extend(part.part.waiting.iter().map(reason));
            }
        }
        let by_host = self.host(graph, scope, (done, &tried, &refused), environment, frame)?;
        Ok((by_host || any, uncovered))
    }

    /// Runs the waiting nodes that the host can run now. Returns true if there was one. A loop whose operands became known
    /// after the last part was made waits for the next one, unless that part was made for many numbers of steps already; the
    /// last part could have computed the nodes of `tried`, and refused those of `refused`.
    fn host(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        (done, tried, refused): (&mut [bool], &HashSet<usize>, &HashSet<usize>),
        environment: &mut Environment,
        frame: &Frame,
    ) -> Result<bool> {
        let mut any = false;
        for &index in &scope.order {
            let node = &graph.node[index];
            if done[index]
                || !scope.is_ready(index, environment)
                || !tried.contains(&index) && self.may_compile(node, environment)
                || walk::is_sized_by_values(node) && !refused.contains(&index)
            {
                continue;
            }
            let origin = &scope.origins[index];
            let step = || self.step(graph, scope, (index, done), environment, frame);
            let results = frame.timed(node, origin, step)?;
            let Some(results) = results else { continue };
            let growth = growth_of(node, environment, &results);
            for ((name, value), growth) in node.output.iter().zip(results).zip(growth).filter(|r| !r.0.0.is_empty()) {
                environment.insert_growing(name, value, growth);
            }
            (done[index], any) = (true, true);
        }
        Ok(any)
    }

    /// The results of a node whose operands are known; `None` where only a part can compute it.
    fn step(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        (index, done): (usize, &[bool]),
        environment: &mut Environment,
        frame: &Frame,
    ) -> Result<Option<Vec<Value>>> {
        let node = &graph.node[index];
        let place = |e: Error| e.context(&walk::describe(node));
        if !walk::may_wait(node) && !walk::is_sized_by_values(node) && !sequence::applies(node) {
            return Ok(None);
        }
        let memory = frame.memory;
        for entry in node.input.iter().filter_map(|name| environment.get(name)) {
            if let Entry::Given(tensor, copy) = entry
                && copy.get().is_none()
            {
                memory.reserve(tensor.data.len() as u64, || "a copy of an input".into()).map_err(place)?;
                entry.value().tensor().into_iter().for_each(|tensor| memory.add(tensor));
            }
        }
        let mut operands: Vec<Option<Value>> =
            node.input.iter().map(|name| environment.get(name).map(Entry::value)).collect();
        let last = match node.op_type.as_str() {
            "If" => scope.take_last(index, done, environment, |_| true),
            // their operands alone hold what they may change; what the body of a loop captures it reads in each step
            "Identity" | "Loop" | "SequenceErase" | "SequenceInsert" => {
                scope.take_last(index, done, environment, |name| node.input.contains(name));
                vec![]
            }
            _ => vec![],
        };
        let inner = Frame { around: Some(scope.origins[index].clone()), ..*frame };
        if let Some(results) = self.control(node, (&mut operands, last), environment, &inner).map_err(place)? {
            return Ok(Some(results));
        }
        let made = Made::of(node, &operands, self.model.opset_of(node)).map_err(place)?;
        let tensors = made.tensors.saturating_mul(TENSOR_BYTES).saturating_add(made.bytes);
        let places = (made.places as u64).saturating_mul(size_of::<Value>() as u64);
        if tensors > 0 || places > 0 {
            let held = if places > 0 { environment.places_bytes() } else { 0 };
            let bytes = tensors.saturating_add(places).saturating_add(held);
            memory.reserve(bytes, || "the results".into()).map_err(place)?;
        }
        if let Some(results) = sequence::apply(node, &mut operands, self.model.opset_of(node)).map_err(place)? {
            results.iter().filter(|_| made.tensors > 0).for_each(|value| memory.add_value(value));
            return Ok(Some(results));
        }
        self.fold(graph, index, &operands, memory)
    }

    /// The results of a node whose size follows from data or from values, as constant folding computes them; `None` for others.
    fn fold(
        &self,
        graph: &GraphProto,
        index: usize,
        operands: &[Option<Value>],
        memory: &Memory,
    ) -> Result<Option<Vec<Value>>> {
        let node = &graph.node[index];
        let sized_by_values = walk::is_sized_by_values(node);
        if !walk::depends_on_data(node) && !sized_by_values {
            return Ok(None);
        }
        let tensor = |value: &Option<Value>| value.as_ref().map(|v| v.tensor().cloned()).transpose();
        let tensors = operands.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let limits = match sized_by_values {
            true => memory.import_limits(),
            // their memory is counted before
            false => ImportLimits { constant_bytes: u64::MAX, ..self.options.limits.import() },
        };
        let folded = match self.model.fold_node(graph, index, &tensors, limits) {
            Err(Error::Unsupported(_)) if sized_by_values => return Ok(None),
            Err(Error::Limit(_)) if sized_by_values => {
                let (node, left) = (walk::describe(node), text::bytes(limits.constant_bytes));
                let how = "`--max-memory`, `Limits::run_bytes`";
                return Err(Error::Limit(format!(
                    "{node}: its results do not fit into the {left} that are left ({how})"
                )));
            }
            folded => folded?,
        };
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
        let position = |name: &str| names.binary_search_by(|other| other.as_str().cmp(name)).ok();
        let (mut readers, mut reads) = (vec![vec![]; names.len()], vec![vec![]; graph.node.len()]);
        for &index in &order {
            for name in walk::read_names(&graph.node[index]).filter_map(position) {
                readers[name].push(index);
                reads[index].push(name);
            }
        }
        let mut is_output = vec![false; names.len()];
        graph.output.iter().filter_map(|output| position(&output.name)).for_each(|name| is_output[name] = true);
        let initializers = self.model.initializers(graph, self.options.limits.import())?;
        let origins = provenance::origins(graph, frame.around.as_ref());
        let scope = Arc::new(Scope { origins, order, names, readers, reads, is_output, initializers });
        scopes.insert(address(graph), scope.clone());
        Ok(scope)
    }

    /// The next part, compiled at its first use; `uncovered` says why it has exact sizes.
    fn part(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        (done, mode): (&[bool], &Mode),
        environment: &Environment,
        frame: &Frame,
        uncovered: &[String],
    ) -> Result<Arc<CompiledPart>> {
        let mut constants = vec![];
        let read = |name: &str| environment.get(name).filter(|entry| mode.reads(entry));
        let left = |readers: &[usize]| readers.iter().any(|&n| !done[n]);
        let names = scope.names.iter().zip(&scope.readers);
        let types = names.map(|(name, readers)| match read(name).filter(|_| left(readers)) {
            None => Type::Unknown,
            Some(Entry::Growing(tensor, growth)) if *mode != Mode::Exact => {
                let mut shape = tensor.shape.clone();
                growth.axes.iter().for_each(|&(axis, _)| shape[axis] = 0);
                Type::Growing(tensor.dtype, shape, growth.axes.clone())
            }
            Some(Entry::Constant(tensor)) => {
                constants.push(tensor.clone());
                Type::Constant(Arc::as_ptr(tensor).addr())
            }
            Some(entry) => {
                entry.tensor().map_or(Type::Other, |tensor| Type::Tensor(tensor.dtype, tensor.shape.clone()))
            }
        });
        let types = types.collect();
        let key = Key { graph: address(graph), done: done.to_vec(), mode: mode.kind(), types };
        let fits = |(other, part): &(Key, Arc<CompiledPart>)| *other == key && part.fits(environment, mode);
        let known =
            self.parts.lock().unwrap_or_else(|e| e.into_inner()).iter().rev().find(|p| fits(p)).map(|p| p.1.clone());
        if let Some(part) = known {
            return Ok(part);
        }
        let lookup = |name: &str| {
            Some(match read(name)? {
                Entry::Constant(tensor) => Known::Constant(tensor.clone()),
                Entry::Growing(tensor, growth) if *mode != Mode::Exact => Known::Growing(tensor, growth.axes.clone()),
                entry => entry.tensor().map_or(Known::Other, Known::Tensor),
            })
        };
        let limits = self.options.limits.import();
        let rest = Rest { around: frame.around.as_ref(), order: &scope.order, done };
        let part = self.model.part(graph, &rest, mode.sizes(), &lookup, limits)?;
        let compiled = Arc::new(self.compile(part, constants, uncovered)?);
        let mut parts = self.parts.lock().unwrap_or_else(|e| e.into_inner());
        parts.push((key, compiled.clone()));
        if parts.len() > self.options.limits.bindings.max(1) * PARTS_FOR_EACH_BINDING {
            parts.remove(0);
        }
        Ok(compiled)
    }

    fn compile(&self, part: Part, constants: Vec<Arc<Tensor>>, uncovered: &[String]) -> Result<CompiledPart> {
        let outputs = part.graph.outputs.iter().map(|&v| part.graph.value(v).name.clone()).collect();
        let mut report =
            Report { model: part.graph.name.clone(), target: self.options.target()?.name, ..Report::default() };
        let mut session = None;
        if !part.graph.outputs.is_empty() {
            self.compilations.fetch_add(1, Ordering::Relaxed);
            let compile = || {
                let (kernels, sharing) = (Kernels::open(&self.options), Sharing::default());
                let store = kernels.as_ref().map(|kernels| kernels as &dyn KernelStore);
                let order = pipeline::Order::Ilp;
                let compiled = pipeline::compile_sharing(&part.graph, order, &self.options, &sharing, store)?;
                Ok((compiled.module, compiled.report))
            };
            let (module, found) = cache::compiled(&Subject::Part(&part.graph), &self.options, compile)?;
            pipeline::check_scratch(&module, self.pool.threads(), &self.options.limits)?;
            report = found;
            session = Some(Session::with_pool(Arc::new(module), self.pool.clone())?);
        }
        report.add_absent(&part.absent);
        if let Some(first) = uncovered.first() {
            report.warnings.push(format!("sizes out of data are exact sizes, each compiled on its own: {first}"));
        }
        Ok(CompiledPart { part, report: Arc::new(report), session, outputs, _constants: constants })
    }
}

/// The parts to try next: each with the nodes that it begins with, those whose operands follow the same count.
fn modes(scope: &Scope, done: &[bool], environment: &Environment) -> Vec<(Mode, Vec<usize>)> {
    let mut modes: Vec<(Mode, Vec<usize>)> = vec![];
    for index in scope.waiting(done, environment) {
        let mut counts: Vec<&Arc<Count>> = vec![];
        for growth in scope.operands(index, environment).flatten().filter_map(Entry::growth) {
            if !counts.contains(&&growth.count) {
                counts.push(&growth.count);
            }
        }
        let mode = match counts[..] {
            [] => Mode::Ahead,
            [count] => Mode::Growing(count.clone()),
            // two counts need exact sizes
            _ => continue,
        };
        match modes.iter_mut().find(|known| known.0 == mode) {
            Some((_, nodes)) => nodes.push(index),
            None => modes.push((mode, vec![index])),
        }
    }
    modes
}

/// The dimensions of a node's results that follow a count.
fn growth_of(node: &NodeProto, environment: &Environment, results: &[Value]) -> Vec<Option<growth::Growth>> {
    if let ("Identity", Some(name)) = (node.op_type.as_str(), node.input.first()) {
        return vec![environment.get(name).and_then(Entry::growth).cloned()];
    }
    let tensors: Option<Vec<&Tensor>> = results.iter().map(|value| value.tensor().ok().map(|t| &**t)).collect();
    match tensors.filter(|_| walk::depends_on_data(node) || walk::is_sized_by_values(node)) {
        Some(tensors) => {
            let first = node.input.first().and_then(|name| environment.get(name)).and_then(Entry::tensor);
            growth::of_results(node, first, &tensors)
        }
        None => vec![None; results.len()],
    }
}

/// The error where neither a part nor the host can go on.
fn stuck(graph: &GraphProto, scope: &Scope, done: &[bool], part: &Part) -> Error {
    let reason = |n: usize| part.waiting.iter().find(|w| w.0 == n).map(|w| w.1.as_str());
    let problems = scope.order.iter().filter(|&&n| !done[n]).filter_map(|&n| Some((n, reason(n)?)));
    let problems: Vec<String> =
        problems.map(|(n, reason)| format!("{}: {reason}", walk::describe(&graph.node[n]))).collect();
    walk::unsupported(problems)
}
