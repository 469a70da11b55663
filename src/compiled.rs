//! A compiled model that makes a module for each binding of its dynamic dimensions.
//!
//! In: a model, [`Options`] and the inputs of each run. Out: the outputs. Invariant: each binding is compiled once while it
//! is kept.

use crate::cache::{self, Subject};
use crate::graph::import::binding::{BoundGraph, MAX_BOUND_ELEMENTS, Unbound};
use crate::graph::import::bounded::state::LEAST_CAPACITY;
use crate::graph::import::model::{Binding, Dim, Growing};
use crate::graph::value::{Kind, Value};
use crate::model::Model;
use crate::pipeline::report::Report;
use crate::pipeline::sharing::Sharing;
use crate::pipeline::{self, Options};
use crate::runtime::error::guard;
use crate::runtime::module::Module;
use crate::runtime::pool::Pool;
use crate::runtime::session::Session;
use crate::staged::{Input, Staged, StagedReport, check_data};
use crate::{Error, Result, Tensor};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Bytes of bindings that are kept in any case, beside a quarter of the largest one.
const SMALL_BINDINGS: u64 = 16 << 20;
/// The largest capacity of a dimension that grows.
const MOST_CAPACITY: i64 = 1 << 24;

/// Sizes of the dynamic dimensions.
type Dims = BTreeMap<String, i64>;

/// A compiled model. It can be shared by many threads; each binding of its dynamic dimensions is compiled once, and all run
/// on one pool of threads. The values of inputs that decide shapes bind like dimensions.
///
/// ```
/// use tilewright::{DType, File, Model, Options, Tensor};
///
/// # fn main() -> tilewright::Result<()> {
/// let file = File::parse("sum.tile", "def sum(f32(N) x) -> (s) { s() +=! x(i) }")?;
/// let compiled = Model::from_program(file, None, None)?.compile(&Options::default())?;
/// for n in [3, 5] {
///     let x = Tensor::new(&[n], &vec![1f32; n as usize]);
///     assert_eq!(compiled.run(&[("x", &x)])?[0].to_vec::<f32>(), [n as f32]);
///     assert!(compiled.report(&[("x", &x)])?.code_bytes > 0);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Compiled {
    model: Model,
    options: Options,
    pool: Arc<Pool>,
    /// Constants of all bindings.
    sharing: Sharing,
    /// Least recently used first.
    bindings: Mutex<Vec<(Binding, Arc<Slot>)>>,
    /// A model without a static graph, which runs in parts.
    staged: OnceLock<Staged>,
    compilations: AtomicUsize,
}

type Compilation = (Arc<Session>, Arc<Report>);
type Slot = OnceLock<Result<Compilation>>;

/// The reason why sizes have no session with a capacity.
enum NoCapacity {
    /// Exact sizes are kept already, or the dimension has no size.
    NotNeeded,
    /// The model has no form for it.
    Refused(String),
    /// The form could not be compiled.
    Failed(Error),
}

impl Model {
    /// Compiles the model for this processor. Where dynamic dimensions are left open, each new binding is compiled when a
    /// run first needs it.
    ///
    /// # Errors
    /// As [`Model::compile_module`]; [`Error::Limit`] where `options` ask for more than
    /// [`MAX_THREADS`](crate::MAX_THREADS) threads.
    pub fn compile(&self, options: &Options) -> Result<Compiled> {
        if let Some(name) = options.dims.keys().find(|name| !self.symbols().contains(name)) {
            let dims = BTreeMap::from([(name.clone(), 1)]);
            self.check_dims(&dims)?;
        }
        self.check_growing(options)?;
        if let Some(name) = options.growing.iter().find(|name| options.dims.contains_key(*name)) {
            return Err(Error::Invalid(format!("dimension `{name}` grows: its size comes with each run")));
        }
        Compiled::new(self.clone(), options.clone())
    }
}

impl Compiled {
    /// Compiles a model where all dimensions are known, but for values of inputs that decide shapes: those come with a run.
    pub(crate) fn new(model: Model, options: Options) -> Result<Compiled> {
        let pool = match &options.pool {
            Some(pool) => pool.clone(),
            None => Arc::new(Pool::new(options.threads)?),
        };
        let fixed = model.symbols().iter().all(|s| options.dims.contains_key(s));
        // what one binding has folded and packed is kept where there may be another
        let sharing = if fixed { Sharing::default() } else { model.sharing() };
        let (bindings, staged, compilations) = (Mutex::default(), OnceLock::new(), AtomicUsize::new(0));
        let compiled = Compiled { model, options, pool, sharing, bindings, staged, compilations };
        let options = &compiled.options;
        if fixed {
            match compiled.binding(options.dims.clone(), &[]) {
                Err(unbound) if unbound.missing.is_empty() && !unbound.waits => return Err(unbound.error),
                _ => {}
            }
        }
        Ok(compiled)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns true if a dimension may have a capacity.
    pub(crate) fn grows(&self) -> bool {
        !self.options.growing.is_empty()
    }

    /// The number of bindings that have been compiled so far; of a model that runs in parts, of those.
    pub fn compilations(&self) -> usize {
        self.compilations.load(Ordering::Relaxed) + self.staged.get().map_or(0, Staged::compilations)
    }

    /// Runs the model on inputs given by name, in any order. The outputs come in the model's order.
    ///
    /// # Errors
    /// As [`Compiled::session`] and [`Session::run`]; of a model that depends on data those of compiling its parts as it runs,
    /// and [`Error::Unsupported`] where an output is not a tensor.
    pub fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        if let Some(session) = self.find_session(inputs)? {
            return session.run(inputs);
        }
        let inputs: Vec<_> = inputs.iter().map(|&(name, tensor)| (name, Input::Tensor(tensor))).collect();
        let outputs = self.in_parts(|staged| staged.run(&inputs))?;
        outputs.into_iter().map(Value::into_tensor).collect()
    }

    /// As [`Compiled::run`], for models whose inputs or outputs are sequences or optionals.
    ///
    /// # Errors
    /// As [`Compiled::run`].
    pub fn run_values(&self, inputs: &[(&str, &Value)]) -> Result<Vec<Value>> {
        let named = tensors(inputs);
        if let Some(session) = self.find_session(&named)?
            && named.len() == inputs.len()
        {
            return Ok(session.run(&named)?.into_iter().map(Value::from).collect());
        }
        self.in_parts(|staged| staged.run(&as_inputs(inputs)))
    }

    /// Runs a model that depends on data and reports on each of its parts, with the times of this run: parts that it needs
    /// first are compiled before. [`Compiled::report`] is for all other models.
    ///
    /// # Errors
    /// As [`Compiled::run_values`]; [`Error::Invalid`] where the model does not depend on data.
    pub fn report_in_parts(&self, inputs: &[(&str, &Value)]) -> Result<StagedReport> {
        let tensors = tensors(inputs);
        if tensors.len() == inputs.len() && self.find_session(&tensors)?.is_some() {
            return Err(Error::Invalid("the model does not depend on data: it has one report".into()));
        }
        self.in_parts(|staged| staged.report(&as_inputs(inputs)))
    }

    /// As [`Compiled::session`]; `None` where the model runs in parts.
    ///
    /// # Errors
    /// As [`Compiled::session`].
    pub fn find_session(&self, inputs: &[(&str, &Tensor)]) -> Result<Option<Arc<Session>>> {
        let dims = self.dims(inputs, &[])?;
        match self.staged.get() {
            Some(_) => Ok(None),
            None => self.session_for(dims, inputs),
        }
    }

    fn in_parts<T>(&self, run: impl FnOnce(&Staged) -> Result<T>) -> Result<T> {
        guard(|| {
            let Some(model) = self.model.onnx() else {
                return Err(Error::Internal("a model without a file depends on data".into()));
            };
            if self.model.has_schedules() {
                let why = "the model runs in parts, since it depends on data: its kernels take no schedules by hand";
                return Err(Error::Unsupported(why.into()));
            }
            let make = || Staged::new(model.clone(), self.options.clone(), self.pool.clone());
            run(self.staged.get_or_init(make))
        })
    }

    /// The session for the shapes of these inputs, and for the values of those that decide shapes.
    ///
    /// # Errors
    /// [`Error::Invalid`] where two inputs bind a dimension to different sizes or have another number of dimensions;
    /// where the binding is new, the errors of [`Model::compile_module`]. A model that depends on data has no session.
    pub fn session(&self, inputs: &[(&str, &Tensor)]) -> Result<Arc<Session>> {
        Ok(self.binding(self.dims(inputs, &[])?, inputs).map_err(|unbound| unbound.error)?.0)
    }

    /// The report of the compilation for the shapes of these inputs.
    ///
    /// # Errors
    /// As [`Compiled::session`].
    pub fn report(&self, inputs: &[(&str, &Tensor)]) -> Result<Arc<Report>> {
        Ok(self.binding(self.dims(inputs, &[])?, inputs).map_err(|unbound| unbound.error)?.1)
    }

    /// The sizes of the dynamic dimensions that these inputs have, and others of which the extents alone are given.
    pub(crate) fn dims(&self, inputs: &[(&str, &Tensor)], others: &[(&str, &[i64])]) -> Result<Dims> {
        inputs.iter().try_for_each(|(name, tensor)| check_data(name, tensor))?;
        let shapes = inputs.iter().map(|(name, tensor)| (*name, &tensor.shape[..])).chain(others.iter().copied());
        let mut dims = self.options.dims.clone();
        let mut bound_by: BTreeMap<&str, &str> = BTreeMap::new();
        for spec in self.model.inputs().iter().filter(|spec| spec.kind == Kind::Tensor && !spec.any_rank) {
            // The session reports inputs that are missing, unknown or of the wrong type.
            let Some((_, shape)) = shapes.clone().find(|(name, _)| *name == spec.name) else { continue };
            if shape.len() != spec.shape.len() {
                return Err(Error::Invalid(format!(
                    "input `{}` has shape {shape:?}, but the model wants {} dimensions",
                    spec.name,
                    spec.shape.len()
                )));
            }
            for (dim, &size) in spec.shape.iter().zip(shape) {
                let Dim::Symbol(symbol) = dim else { continue };
                match dims.get(symbol) {
                    Some(&bound) if bound != size => {
                        let by = match bound_by.get(symbol.as_str()) {
                            Some(other) => format!("input `{other}` makes it {bound}"),
                            None => format!("it was compiled for {bound}"),
                        };
                        return Err(Error::Invalid(format!(
                            "input `{}` makes dimension `{symbol}` {size}, but {by}",
                            spec.name
                        )));
                    }
                    Some(_) => {}
                    None => _ = dims.insert(symbol.clone(), size),
                }
                bound_by.entry(symbol).or_insert(&spec.name);
            }
        }
        Ok(dims)
    }

    /// The session of these sizes, with a capacity where a dimension grows; `None` where the model runs in parts.
    pub(crate) fn session_for(&self, dims: Dims, inputs: &[(&str, &Tensor)]) -> Result<Option<Arc<Session>>> {
        match self.binding(dims, inputs) {
            Ok((session, _)) => Ok(Some(session)),
            Err(unbound) if unbound.waits => Ok(None),
            Err(unbound) => Err(unbound.error),
        }
    }

    /// The session of these sizes and of the values that decide shapes, compiled at its first use.
    fn binding(&self, dims: Dims, inputs: &[(&str, &Tensor)]) -> std::result::Result<Compilation, Unbound> {
        match self.grown_binding(&dims, inputs) {
            Ok(compilation) => Ok(compilation),
            Err(NoCapacity::Failed(error)) => Err(error.into()),
            Err(NoCapacity::Refused(reason)) => self.exact_binding(dims, inputs, Some(reason)),
            Err(NoCapacity::NotNeeded) => self.exact_binding(dims, inputs, None),
        }
    }

    /// The session with a capacity for a dimension that grows.
    fn grown_binding(&self, dims: &Dims, inputs: &[(&str, &Tensor)]) -> std::result::Result<Compilation, NoCapacity> {
        let Some(name) = self.options.growing.first() else { return Err(NoCapacity::NotNeeded) };
        let mut others = dims.clone();
        let mut size = |name: &String| others.remove(name).filter(|size| *size >= 0);
        let sizes: Dims = self.options.growing.iter().filter_map(|name| Some((name.clone(), size(name)?))).collect();
        let count = *sizes.get(name).ok_or(NoCapacity::NotNeeded)?;
        let offsets: Dims = sizes.into_iter().map(|(name, size)| (name, size - count)).collect();
        let given = |name: &str| self.given(name, inputs);
        let fits = |kept: &Binding| {
            let values = kept.values.iter().all(|(n, v)| given(n) == Some(&**v));
            let grown = |g: &Growing| g.offsets == offsets && (g.counts.0..=g.counts.1).contains(&count);
            values && kept.dims == others && kept.growing.as_ref().is_some_and(grown)
        };
        let binding = kept(&mut self.bindings(), fits);
        let exact = |kept: &Binding| kept.growing.is_none() && kept.dims == *dims;
        if binding.is_none() && self.bindings().iter().any(|kept| exact(&kept.0)) {
            return Err(NoCapacity::NotNeeded);
        }
        if let Some(compiled) = binding.and_then(|(_, slot)| slot.get().cloned()) {
            return compiled.map_err(NoCapacity::Failed);
        }
        if count > MOST_CAPACITY {
            return Err(NoCapacity::Refused(format!("{count} is more than the largest capacity, {MOST_CAPACITY}")));
        }
        let mut growing = Growing { name: name.clone(), offsets, capacity: LEAST_CAPACITY, counts: (count, count) };
        growing.capacity = (growing.capacity.max(count) as u64).next_power_of_two() as i64;
        let values = self.small_values(inputs);
        loop {
            let (dims, values) = (others.clone(), values.clone());
            let wanted = Binding { dims, values, growing: Some(growing.clone()), ..self.options.binding() };
            let bound = match guard(|| Ok(self.model.bind(&wanted, &self.sharing))) {
                Ok(Ok(bound)) => bound,
                Ok(Err(unbound)) if unbound.full && growing.capacity < MOST_CAPACITY => {
                    growing.capacity *= 2;
                    continue;
                }
                Ok(Err(Unbound { error, .. })) | Err(error) => return Err(NoCapacity::Refused(error.to_string())),
            };
            let most = bound.bounds.as_ref().map_or(count, |b| b.most);
            let growing = Growing { counts: (bound.beyond_half.min(count), most), ..growing };
            let key = Binding { values: bound.values.clone(), growing: Some(growing), ..wanted };
            return self.compiled(&key, || self.find_or_compile(&key, &bound)).map_err(NoCapacity::Failed);
        }
    }

    /// The value of an input.
    fn given<'a>(&'a self, name: &str, inputs: &[(&str, &'a Tensor)]) -> Option<&'a Tensor> {
        match self.options.values.get(name) {
            Some(value) => Some(&**value),
            None => inputs.iter().find(|input| input.0 == name).map(|input| input.1),
        }
    }

    /// Values that may decide shapes.
    fn small_values(&self, inputs: &[(&str, &Tensor)]) -> BTreeMap<String, Arc<Tensor>> {
        let small = inputs.iter().filter(|input| input.1.len() as i64 <= MAX_BOUND_ELEMENTS);
        let mut values: BTreeMap<_, _> = small.map(|(n, v)| (n.to_string(), Arc::new((*v).clone()))).collect();
        values.extend(self.options.values.clone());
        values
    }

    /// The session of exact sizes; `refused` says why there is none with a capacity.
    fn exact_binding(
        &self,
        dims: Dims,
        inputs: &[(&str, &Tensor)],
        refused: Option<String>,
    ) -> std::result::Result<Compilation, Unbound> {
        let given = |name: &str| self.given(name, inputs);
        let fits = |kept: &Binding| {
            let values = kept.values.iter().all(|(n, v)| given(n) == Some(&**v));
            values && kept.dims == dims && kept.growing.is_none()
        };
        // one that is being compiled is bound here too, and then waited for
        let binding = kept(&mut self.bindings(), fits).and_then(|(_, slot)| slot.get().cloned());
        if let Some(compiled) = binding {
            return Ok(compiled?);
        }
        if self.model.is_program() {
            let key = Binding { dims, ..Binding::default() };
            return Ok(self.compiled(&key, || self.compile(&key, None))?);
        }
        let values = self.small_values(inputs);
        let options = Options { dims, values, growing: vec![], ..self.options.clone() };
        let warned = |(session, mut report): Compilation| {
            if let (Some(reason), Some(report)) = (refused, Arc::get_mut(&mut report)) {
                let names = self.options.growing.join("`, `");
                report.warnings.push(format!("`{names}` has exact sizes, each compiled on its own: {reason}"));
            }
            (session, report)
        };
        if let Some((module, report)) = guard(|| self.find(&options))? {
            let values = module.values().iter().map(|(n, v)| (n.clone(), Arc::new(v.clone()))).collect();
            let key = Binding { values, ..options.binding() };
            return Ok(self.compiled(&key, || self.session_of_found((module, report)).map(warned))?);
        }
        let binding = options.binding();
        let bound = guard(|| Ok(self.model.bind(&binding, &self.sharing)))??;
        let key = Binding { values: bound.values.clone(), ..binding };
        Ok(self.compiled(&key, || self.compile(&key, Some(&bound)).map(warned))?)
    }

    /// A binding as it was compiled, or as `make` does it now. Others may run meanwhile: nothing is locked.
    fn compiled(&self, key: &Binding, make: impl FnOnce() -> Result<Compilation>) -> Result<Compilation> {
        let slot = self.keep(key);
        let compiled = slot.get_or_init(make).clone();
        self.drop_bindings();
        compiled
    }

    /// A binding from the cache on disk, whichever was the first one of its process.
    fn find(&self, options: &Options) -> Result<Option<(Module, Report)>> {
        let alone = self.model.subject();
        match cache::find(&alone, options)? {
            None => cache::find(&Subject::Beside(&alone), options),
            found => Ok(found),
        }
    }

    /// The options of a binding, whose growing dimensions have the size of their capacity.
    fn options_of(&self, binding: &Binding) -> Options {
        let Binding { mut dims, values, growing, .. } = binding.clone();
        if let Some(Growing { offsets, capacity, .. }) = growing {
            dims.extend(offsets.into_keys().map(|name| (name, capacity)));
        }
        Options { dims, values, growing: vec![], ..self.options.clone() }
    }

    /// A binding to a capacity from the cache on disk, or compiled.
    fn find_or_compile(&self, binding: &Binding, bound: &BoundGraph) -> Result<Compilation> {
        let subject = self.model.subject();
        let subject = Subject::Bound(&subject, &bound.graph, &bound.bounds);
        match guard(|| cache::find(&subject, &self.options_of(binding)))? {
            Some(found) => self.session_of_found(found),
            None => self.compile(binding, Some(bound)),
        }
    }

    fn bindings(&self) -> MutexGuard<'_, Vec<(Binding, Arc<Slot>)>> {
        self.bindings.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The place of a binding among those that are kept; the least recently used one makes room.
    fn keep(&self, binding: &Binding) -> Arc<Slot> {
        let mut bindings = self.bindings();
        if let Some((_, slot)) = kept(&mut bindings, |other| other == binding) {
            return slot;
        }
        let slot = Arc::new(Slot::new());
        bindings.push((binding.clone(), slot.clone()));
        if bindings.len() > self.options.limits.bindings.max(1) {
            bindings.remove(0);
        }
        slot
    }

    /// Drops the least recently used bindings while all of them need more memory than is allowed.
    fn drop_bindings(&self) {
        let mut bindings = self.bindings();
        let memory = |slot: &Slot| Some(Memory::of(slot.get()?.as_ref().ok()?.0.module()));
        let mut kept: Vec<Option<Memory>> = bindings.iter().map(|(_, slot)| memory(slot)).collect();
        let largest = kept.iter().flatten().map(Memory::bytes).max().unwrap_or(0);
        let allowed = self.options.limits.binding_bytes.unwrap_or(largest + largest / 4 + SMALL_BINDINGS);
        while kept.len() > 1 && Memory::all(&kept).bytes() > allowed {
            kept.remove(0);
            bindings.remove(0);
        }
    }

    fn compile(&self, binding: &Binding, bound: Option<&BoundGraph>) -> Result<Compilation> {
        let earlier = self.compilations.fetch_add(1, Ordering::Relaxed);
        let options = self.options_of(binding);
        let (module, report) = match bound {
            None => self.model.compile_module(&options)?,
            Some(bound) => guard(|| {
                let mut compiled = self.model.compile_bound(bound, &options, &self.sharing)?;
                let alone = self.model.subject();
                // of others, even of some that began meanwhile, constants may have another order
                let first = earlier == 0 && self.compilations() == 1 && self.bindings().len() == 1;
                let subject = match &binding.growing {
                    Some(_) => Subject::Bound(&alone, &bound.graph, &bound.bounds),
                    None if first => self.model.subject(),
                    None => Subject::Beside(&alone),
                };
                cache::store(&subject, &options, &compiled.module, &mut compiled.report);
                Ok((compiled.module, compiled.report))
            })?,
        };
        self.session_of(module, report)
    }

    /// The session of a module from the cache, whose file has constants of other ones too.
    fn session_of_found(&self, (module, report): (Module, Report)) -> Result<Compilation> {
        let kept: Vec<Arc<Module>> = {
            let bindings = self.bindings();
            let module = |slot: &Slot| Some(slot.get()?.as_ref().ok()?.0.module().clone());
            bindings.iter().filter_map(|(_, slot)| module(slot)).collect()
        };
        self.session_of(module.with_constants_of(&kept)?, report)
    }

    fn session_of(&self, module: Module, report: Report) -> Result<Compilation> {
        pipeline::check_scratch(&module, self.pool.threads(), &self.options.limits)?;
        Ok((Arc::new(Session::with_pool(Arc::new(module), self.pool.clone())?), Arc::new(report)))
    }
}

/// Memory of modules.
#[derive(Default)]
struct Memory {
    /// Code and tables.
    own: u64,
    /// Address and length of what holds constants.
    constants: BTreeMap<usize, u64>,
}

impl Memory {
    fn of(module: &Module) -> Memory {
        Memory { own: module.table_bytes(), constants: module.weights().allocations().collect() }
    }

    /// That of several modules: they share constants.
    fn all(modules: &[Option<Memory>]) -> Memory {
        let mut all = Memory::default();
        for module in modules.iter().flatten() {
            all.own += module.own;
            all.constants.extend(&module.constants);
        }
        all
    }

    fn bytes(&self) -> u64 {
        self.own + self.constants.values().sum::<u64>()
    }
}

/// Those of the values that are tensors.
fn tensors<'a>(values: &[(&'a str, &'a Value)]) -> Vec<(&'a str, &'a Tensor)> {
    let tensor = |&(name, value): &(&'a str, &'a Value)| match value {
        Value::Tensor(tensor) => Some((name, &**tensor)),
        _ => None,
    };
    values.iter().filter_map(tensor).collect()
}

fn as_inputs<'a>(values: &[(&'a str, &'a Value)]) -> Vec<(&'a str, Input<'a>)> {
    values.iter().map(|&(name, value)| (name, Input::Value(value))).collect()
}

/// The binding that fits, which becomes the last to be dropped.
fn kept(bindings: &mut [(Binding, Arc<Slot>)], fits: impl Fn(&Binding) -> bool) -> Option<(Binding, Arc<Slot>)> {
    let position = bindings.iter().position(|b| fits(&b.0))?;
    bindings[position..].rotate_left(1);
    bindings.last().cloned()
}
