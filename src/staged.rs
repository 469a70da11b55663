//! Models that are not known as a whole before they run: what depends on data waits, the rest is compiled in parts.
//!
//! In: an ONNX model and the values of its inputs. Out: the values of its outputs. A part is compiled for the types of the
//! values that it reads, and for the values of those that decide shapes; it is kept and found again when these are the same.
//! Between the parts the host runs what is no tensor expression of known size: sequences, optionals, functions whose results
//! are as large as the data make them, branches, and loops whose number of steps depends on data.

mod control;

use crate::graph::import::model::{Dim, InputSpec, OnnxModel};
use crate::graph::import::sequence;
use crate::graph::import::stage::{Known, Part};
use crate::graph::import::walk;
use crate::graph::proto::GraphProto;
use crate::graph::value::{Kind, Value};
use crate::pipeline::{self, Options};
use crate::runtime::error::unknown;
use crate::runtime::pool::Pool;
use crate::runtime::session::Session;
use crate::{DType, Error, Result, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

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
}

/// What is known of a graph of the file ahead.
struct Scope {
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
    /// `None` where everything followed from constants.
    session: Option<Session>,
    outputs: Vec<String>,
    /// Constants that the key names by their addresses.
    _constants: Vec<Arc<Tensor>>,
}

#[derive(Clone)]
struct Entry {
    value: Value,
    /// The value is the same in each run.
    constant: bool,
}

/// The values that are known, by name; those of the graphs around are outside.
struct Environment<'a> {
    outside: Option<&'a Environment<'a>>,
    values: HashMap<String, Entry>,
}

impl Environment<'_> {
    fn get(&self, name: &str) -> Option<&Entry> {
        self.values.get(name).or_else(|| self.outside?.get(name))
    }

    fn insert(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_string(), Entry { value, constant: false });
    }
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

impl Staged {
    pub fn new(model: Arc<OnnxModel>, options: Options, pool: Arc<Pool>) -> Staged {
        Staged { model, options, pool, parts: Mutex::default(), scopes: Mutex::default() }
    }

    /// Runs the model on its inputs, by name. The outputs come in the model's order.
    ///
    /// # Errors
    /// `Invalid` where an input is missing or does not fit; `Unsupported` where nothing can go on; those of compiling a part
    /// and of running it.
    pub fn run(&self, inputs: &[(&str, &Value)]) -> Result<Vec<Value>> {
        let mut environment = Environment { outside: None, values: HashMap::new() };
        for (name, tensor) in self.model.weights() {
            let entry = Entry { value: Value::Tensor(tensor.clone()), constant: true };
            environment.values.insert(name.clone(), entry);
        }
        let specs = self.model.inputs();
        if let Some((name, _)) = inputs.iter().find(|(name, _)| !specs.iter().any(|s| s.name == *name)) {
            let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
            return Err(Error::Invalid(unknown("input", name, &names)));
        }
        for spec in specs {
            let Some((_, value)) = inputs.iter().find(|(name, _)| *name == spec.name) else {
                return Err(Error::Invalid(format!("input `{}` is missing", spec.name)));
            };
            check(spec, value)?;
            environment.insert(&spec.name, (*value).clone());
        }
        self.graph(self.model.onnx_graph(), &mut environment, 0)
    }

    /// Runs a graph of the file; `environment` has the values of its inputs. `depth`: graphs around it.
    fn graph(&self, graph: &GraphProto, environment: &mut Environment, depth: usize) -> Result<Vec<Value>> {
        let scope = self.scope(graph)?;
        for (name, tensor) in &scope.initializers {
            let entry = Entry { value: Value::Tensor(tensor.clone()), constant: true };
            environment.values.insert(name.clone(), entry);
        }
        let mut done = vec![false; graph.node.len()];
        while scope.order.iter().any(|&n| !done[n]) {
            let part = self.part(graph, &scope, &done, environment)?;
            part.run(environment)?;
            part.part.done.iter().for_each(|&n| done[n] = true);
            let by_host = self.host(graph, &scope, &mut done, environment, depth)?;
            if part.part.done.is_empty() && !by_host {
                return Err(stuck(graph, &scope, &done, &part.part));
            }
        }
        let value = |name: &str| environment.get(name).map(|entry| entry.value.clone());
        let output = |name: &String| {
            value(name).ok_or_else(|| {
                Error::Unsupported(format!("output `{name}` is an optional result that is not computed"))
            })
        };
        graph.output.iter().map(|o| output(&o.name)).collect()
    }

    /// Runs the waiting nodes that the host can run now. Returns true if there was one.
    fn host(
        &self,
        graph: &GraphProto,
        scope: &Scope,
        done: &mut [bool],
        environment: &mut Environment,
        depth: usize,
    ) -> Result<bool> {
        let mut any = false;
        for &index in &scope.order {
            let node = &graph.node[index];
            let there = |name: &str| name.is_empty() || environment.get(name).is_some();
            if done[index] || !walk::read_names(node).all(there) {
                continue;
            }
            let value = |name: &String| environment.get(name).map(|entry| entry.value.clone());
            let operands: Vec<Option<Value>> = node.input.iter().map(value).collect();
            let place = |e: Error| e.context(&walk::describe(node));
            let mut results = self.control(node, &operands, environment, depth).map_err(place)?;
            if results.is_none() {
                results = sequence::apply(node, &operands, self.model.opset_of(node)).map_err(place)?;
            }
            if results.is_none() && walk::depends_on_data(node) {
                let tensor = |value: &Option<Value>| value.as_ref().map(|v| v.tensor().cloned()).transpose();
                let tensors = operands.iter().map(tensor).collect::<Result<Vec<_>>>()?;
                let folded = self.model.fold_node(graph, index, &tensors)?;
                results = Some(folded.into_iter().map(Value::Tensor).collect());
            }
            let Some(results) = results else { continue };
            for (name, value) in node.output.iter().zip(results).filter(|(name, _)| !name.is_empty()) {
                environment.insert(name, value);
            }
            (done[index], any) = (true, true);
        }
        Ok(any)
    }

    fn scope(&self, graph: &GraphProto) -> Result<Arc<Scope>> {
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
        let initializers = self.model.initializers(graph)?;
        let scope = Arc::new(Scope { order, names, initializers });
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
    ) -> Result<Arc<CompiledPart>> {
        let mut constants = vec![];
        let types = scope.names.iter().map(|name| match environment.get(name) {
            None => Type::Unknown,
            Some(Entry { value: Value::Tensor(tensor), constant: true }) => {
                constants.push(tensor.clone());
                Type::Constant(Arc::as_ptr(tensor).addr())
            }
            Some(Entry { value: Value::Tensor(tensor), .. }) => Type::Tensor(tensor.dtype, tensor.shape.clone()),
            Some(_) => Type::Other,
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
                Entry { value: Value::Tensor(tensor), constant: true } => Known::Constant(tensor.clone()),
                Entry { value: Value::Tensor(tensor), .. } => Known::Tensor(tensor.clone()),
                _ => Known::Other,
            })
        };
        let part = self.model.part(graph, &scope.order, done, &lookup)?;
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
        let session = match part.graph.outputs.is_empty() {
            true => None,
            false => {
                let compiled = pipeline::compile(&part.graph, pipeline::Order::Ilp, &self.options)?;
                pipeline::check_scratch(&compiled.module, self.pool.threads(), &self.options.limits)?;
                Some(Session::with_pool(Arc::new(compiled.module), self.pool.clone())?)
            }
        };
        Ok(CompiledPart { part, session, outputs, _constants: constants })
    }
}

impl CompiledPart {
    /// Returns true if the values that the part has as constants are those of this run.
    fn fits(&self, environment: &Environment) -> bool {
        self.part.frozen.iter().all(|(name, tensor)| {
            environment.get(name).is_some_and(|entry| matches!(&entry.value, Value::Tensor(t) if t == tensor))
        })
    }

    /// Computes the part's values into the environment.
    fn run(&self, environment: &mut Environment) -> Result<()> {
        for (name, tensor) in &self.part.constants {
            let entry = Entry { value: Value::Tensor(tensor.clone()), constant: true };
            environment.values.insert(name.clone(), entry);
        }
        let Some(session) = &self.session else { return Ok(()) };
        let tensor = |name: &String| match environment.get(name) {
            Some(Entry { value: Value::Tensor(tensor), .. }) => Ok((name.clone(), tensor.clone())),
            _ => Err(Error::Internal(format!("`{name}` is not known when its part runs"))),
        };
        let inputs = self.part.inputs.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let inputs: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), &**tensor)).collect();
        let outputs = session.run(&inputs)?;
        for (name, tensor) in self.outputs.iter().zip(outputs) {
            environment.insert(name, tensor.into());
        }
        Ok(())
    }
}

/// Refuses a value of another kind, element type or fixed extent than the file declares.
fn check(spec: &InputSpec, value: &Value) -> Result<()> {
    let tensor = match (&spec.kind, value) {
        (Kind::Tensor, Value::Tensor(tensor)) => tensor,
        (Kind::Sequence(_), Value::Sequence(_)) | (Kind::Optional(_), _) => return Ok(()),
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

/// The error where neither a part nor the host can go on.
fn stuck(graph: &GraphProto, scope: &Scope, done: &[bool], part: &Part) -> Error {
    let reason = |n: usize| part.waiting.iter().find(|w| w.0 == n).map(|w| w.1.as_str());
    let problems = scope.order.iter().filter(|&&n| !done[n]).filter_map(|&n| Some((n, reason(n)?)));
    let problems: Vec<String> =
        problems.map(|(n, reason)| format!("{}: {reason}", walk::describe(&graph.node[n]))).collect();
    walk::unsupported(problems)
}
