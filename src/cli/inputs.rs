//! A model file to a session that is ready to run, and the tensors to run it on.

use super::instructions;
use super::progress::Progress;
use crate::model_arguments::ModelArguments;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tilewright::AsView;
use tilewright::CacheOptions;
use tilewright::EgraphOptions;
use tilewright::Report;
use tilewright::Session;
use tilewright::internal::pipeline::check_memory;
use tilewright::internal::runtime::bounds;
use tilewright::internal::runtime::error::unknown;
use tilewright::internal::runtime::threads;
use tilewright::module::{Module, TensorSpec};
use tilewright::{Compiled, Dim, InputSpec, Kind, Value};
use tilewright::{DEFAULT_MAX_ERROR, Error, Limits, Model, Options, Result, Tensor};

/// Input tensors by name.
#[derive(clap::Args)]
pub struct InputArguments {
    /// Read an input from a .npy file or from a .pb file (ONNX's TensorProto); other inputs have the program's initial
    /// values, or values from the seed. Values that decide shapes become constants
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = parse_input)]
    inputs: Vec<(String, PathBuf)>,
}

impl InputArguments {
    /// The values given by name; `kind` has the kind of each input of the model.
    pub fn given(&self, kind: impl Fn(&str) -> Option<Kind>) -> Result<BTreeMap<String, Value>> {
        let mut values = BTreeMap::new();
        for (name, path) in &self.inputs {
            let value = match path.extension().is_some_and(|e| e == "pb") {
                true => tilewright::onnx::read_value(path, &kind(name).unwrap_or(Kind::Tensor))?,
                false => Tensor::read_npy(path)?.into(),
            };
            if values.insert(name.clone(), value).is_some() {
                return Err(Error::Invalid(format!("input `{name}` is given twice")));
            }
        }
        Ok(values)
    }

    /// Returns true if no input is given.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The model in which the given inputs have no defaults, and their values.
    pub fn of(&self, model: Model) -> Result<(Model, BTreeMap<String, Value>)> {
        let has_default = |name: &&str| model.defaults().iter().any(|spec| spec.name == *name);
        let names: Vec<&str> = self.inputs.iter().map(|input| input.0.as_str()).filter(has_default).collect();
        let model = if names.is_empty() { model } else { model.clone().with_inputs(&names)? };
        let spec = |name: &str| model.inputs().iter().find(|spec| spec.name == name);
        let values = self.given(|name| spec(name).map(|spec| spec.kind.clone()))?;
        check_names(values.keys(), model.inputs().iter().chain(model.defaults()).map(|i| i.name.as_str()))?;
        Ok((model, values))
    }

    /// The tensors given by name, for what has no other inputs.
    pub fn tensors(&self) -> Result<BTreeMap<String, Tensor>> {
        tensors(self.given(|_| None)?)
    }
}

/// Values that are tensors.
fn tensors(values: BTreeMap<String, Value>) -> Result<BTreeMap<String, Tensor>> {
    let tensor = |(name, value)| match value {
        Value::Tensor(tensor) => Ok((name, Arc::unwrap_or_clone(tensor))),
        _ => Err(Error::Invalid(format!("input `{name}` is not a tensor"))),
    };
    values.into_iter().map(tensor).collect()
}

/// Input tensors by name, the seed of the others, and the number of threads.
#[derive(clap::Args)]
pub struct RunArguments {
    #[command(flatten)]
    inputs: InputArguments,
    /// Seed of inputs without values: floating point in -1..1, integers 0 or 1 [default: 0]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Threads of one run [default: one for each core; 1 for `explain`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// A session and its inputs.
pub struct Prepared {
    pub session: Session,
    /// In the model's order.
    pub inputs: Vec<(String, Tensor)>,
    /// Time to load and compile.
    pub compile_ms: f64,
    /// Time to start the threads and to place the memory.
    pub session_ms: f64,
    /// `None` for a module that was compiled before.
    pub report: Option<Report>,
}

/// A network that depends on data, which runs in parts, and its inputs.
pub struct PreparedParts {
    pub compiled: Compiled,
    /// In the model's order.
    pub inputs: Vec<(String, Value)>,
    /// Time to load.
    pub load_ms: f64,
}

impl PreparedParts {
    pub fn inputs(&self) -> Vec<(&str, &Value)> {
        self.inputs.iter().map(|(name, value)| (name.as_str(), value)).collect()
    }
}

/// A model that is ready to run.
pub enum Ready {
    Whole(Box<Prepared>),
    /// With the reason why it has no session.
    Parts(Box<PreparedParts>, Error),
}

impl Ready {
    /// The model as a whole.
    pub fn whole(self) -> Result<Prepared> {
        match self {
            Ready::Whole(prepared) => Ok(*prepared),
            Ready::Parts(_, reason) => Err(reason),
        }
    }
}

/// A model or program with what the arguments say of it.
pub struct Loaded {
    pub model: Model,
    /// Bind the dynamic dimensions.
    pub options: Options,
    given: BTreeMap<String, Value>,
}

impl Loaded {
    /// The tensors given by name.
    pub fn tensors(self) -> Result<BTreeMap<String, Tensor>> {
        drop(self.options);
        tensors(self.given)
    }

    /// Compiles a module.
    pub fn compile(&self, name: &Path, progress: &Progress) -> Result<(Module, Report)> {
        progress.stage(format!("compiling {}", name.display()));
        let (module, report) = self.model.compile_module(&self.options)?;
        for warning in &report.warnings {
            progress.warn(warning);
        }
        Ok((module, report))
    }
}

impl Prepared {
    pub fn inputs(&self) -> Vec<(&str, &Tensor)> {
        self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
    }

    /// With the inputs of a module whose dimensions grow at its capacities, and the count.
    pub fn at_capacity(mut self) -> Result<Prepared> {
        let module = self.session.module();
        if let Some(bounds) = module.bounds().filter(|b| !self.inputs.iter().any(|i| i.0 == b.input)) {
            let shapes: Vec<(&str, &[i64])> = module.inputs().iter().map(|i| (&*i.name, &i.shape[..])).collect();
            let views: Vec<_> = self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
            let count = bounds::count_of(bounds, &shapes, &views)?;
            self.inputs = bounds::at_capacity(bounds, &shapes, &views, count)?;
        }
        Ok(self)
    }
}

impl RunArguments {
    pub fn threads(&self) -> usize {
        self.threads_or(threads::cores())
    }

    /// The number of threads asked for, or `default`.
    pub fn threads_or(&self, default: usize) -> usize {
        self.threads.map_or(default, |n| n as usize)
    }

    /// The seed of inputs without values.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_default()
    }

    /// Refuses `--threads` and `--seed` for commands that run nothing.
    pub fn refuse_for(&self, why: &str) -> Result<()> {
        match (self.threads, self.seed) {
            (None, None) => Ok(()),
            _ => Err(Error::Invalid(format!("{why}: do not pass `--threads` or `--seed`"))),
        }
    }

    /// Loads, compiles and binds.
    pub fn prepare(&self, model: &ModelArguments, cache: Option<CacheOptions>, progress: &Progress) -> Result<Ready> {
        self.prepare_on(self.threads(), model, cache, progress)
    }

    /// Loads, compiles and binds for this many threads.
    pub fn prepare_on(
        &self,
        threads: usize,
        model: &ModelArguments,
        cache: Option<CacheOptions>,
        progress: &Progress,
    ) -> Result<Ready> {
        let start = Instant::now();
        let (module, report, given) = if is_module(&model.model)? {
            if cache.is_some() {
                let name = model.model.display();
                return Err(Error::Invalid(format!("{name} is already machine code: do not pass `--cache`")));
            }
            let given = self.inputs.tensors()?;
            (load_module(model, &given, progress)?, None, given)
        } else {
            let mut loaded = self.load(model, progress)?;
            loaded.options.cache = cache;
            match loaded.compile(&model.model, progress) {
                Ok((module, report)) => (module, Some(report), loaded.tensors()?),
                Err(reason) => return self.parts(threads, loaded, reason, milliseconds(start)),
            }
        };
        let compile_ms = milliseconds(start);
        progress.stage("filling the inputs");
        self.whole(threads, (module, report), given, compile_ms, &model.dims()?, &model.limits.limits())
    }

    /// A module with the values of its inputs.
    fn whole(
        &self,
        threads: usize,
        (module, report): (Module, Option<Report>),
        given: BTreeMap<String, Tensor>,
        compile_ms: f64,
        dims: &BTreeMap<String, i64>,
        limits: &Limits,
    ) -> Result<Ready> {
        check_names(given.keys(), module.inputs().iter().map(|i| i.name.as_str()))?;
        let start = Instant::now();
        check_memory(&module, threads, limits)?;
        let session = Session::new(Arc::new(module), threads)?;
        let session_ms = milliseconds(start);
        let inputs = self.fill(&session, given, dims)?;
        Ok(Ready::Whole(Box::new(Prepared { session, inputs, compile_ms, session_ms, report })))
    }

    /// Loads a model or program.
    pub fn load(&self, model: &ModelArguments, progress: &Progress) -> Result<Loaded> {
        load(model, &self.inputs, progress)
    }

    /// The tensors given by name, for what has no other inputs.
    pub fn tensors(&self) -> Result<BTreeMap<String, Tensor>> {
        self.inputs.tensors()
    }

    /// A network that depends on data with the values of its inputs; `reason` where it is another model.
    fn parts(&self, threads: usize, loaded: Loaded, reason: Error, load_ms: f64) -> Result<Ready> {
        if !matches!(reason, Error::Unsupported(_)) {
            return Err(reason);
        }
        let Loaded { model, options, mut given } = loaded;
        let (mut inputs, mut tensors) = (vec![], BTreeMap::new());
        for (position, spec) in (0..).zip(model.inputs()) {
            let value = match given.remove(&spec.name) {
                Some(value) => value,
                None if spec.kind == Kind::Tensor && !spec.any_rank => self.seeded(spec, position, &options)?,
                None => return Err(Error::Invalid(format!("input `{}` is missing: {}", spec.name, spec.kind))),
            };
            if let Value::Tensor(tensor) = &value {
                tensors.insert(spec.name.clone(), tensor.clone());
            }
            inputs.push((spec.name.clone(), value));
        }
        let options = Options { values: tensors, ..options };
        if !model.depends_on_data(&options) {
            // values from the seed that decide shapes may be wrong ones: the reason says which are missing
            let Ok((module, report)) = model.compile_module(&options) else { return Err(reason) };
            return self.whole(
                threads,
                (module, Some(report)),
                self::tensors(inputs.into_iter().collect())?,
                load_ms,
                &options.dims,
                &options.limits,
            );
        }
        let options = Options { values: BTreeMap::new(), threads, ..options };
        let parts = PreparedParts { compiled: model.compile(&options)?, inputs, load_ms };
        Ok(Ready::Parts(Box::new(parts), reason))
    }

    /// The value of an input from the seed.
    fn seeded(&self, spec: &InputSpec, position: u64, options: &Options) -> Result<Value> {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Symbol(name) | Dim::Derived(name) => options.dims.get(name).copied().unwrap_or(1),
        };
        let shape: Vec<i64> = spec.shape.iter().map(extent).collect();
        let extents = shape.iter().filter(|_| !shape.contains(&0));
        let bytes = extents.copied().try_fold(spec.dtype.bytes() as i64, |n, d| n.checked_mul(d.max(0)));
        if bytes.is_none_or(|bytes| bytes as u64 > options.limits.tensor_bytes) {
            return Err(Error::Limit(format!("input `{}` of shape {shape:?} is too large", spec.name)));
        }
        Ok(Tensor::seeded(spec.dtype, &shape, self.seed.unwrap_or_default(), position, 2).into())
    }

    /// Given inputs, else the program's initial values, else values from the seed.
    /// Dimensions that grow have their size in `dims`, or that of given inputs, or the largest one.
    pub fn fill(
        &self,
        session: &Session,
        mut given: BTreeMap<String, Tensor>,
        dims: &BTreeMap<String, i64>,
    ) -> Result<Vec<(String, Tensor)>> {
        let module = session.module();
        let grown = module.bounds().filter(|bounds| !given.contains_key(&bounds.input));
        let sizes =
            |(i, spec): (usize, &TensorSpec)| given.get(&spec.name).and_then(|t| grown?.count(i, &t.shape).ok()?);
        let chosen = grown.map(|bounds| bounds.count_of_dims(dims)).transpose()?.flatten();
        let from_shapes = || module.inputs().iter().enumerate().find_map(sizes);
        let count = grown.map(|bounds| chosen.or_else(from_shapes).unwrap_or(bounds.most));
        for (name, tensor) in session.initial_values()? {
            given.entry(name).or_insert(tensor);
        }
        let fill = |(position, spec): (usize, &TensorSpec)| {
            let tensor = given.remove(&spec.name);
            let seed = self.seed.unwrap_or_default();
            let shape = match (grown, count) {
                (Some(bounds), Some(count)) => bounds::exact_shape(&spec.shape, &bounds.inputs[position], count),
                _ => spec.shape.clone(),
            };
            let seeded = || Tensor::seeded(spec.dtype, &shape, seed, position as u64, 2);
            (spec.name.clone(), tensor.unwrap_or_else(seeded))
        };
        let inputs = module.inputs().iter().enumerate();
        Ok(inputs.filter(|(_, spec)| grown.is_none_or(|bounds| bounds.input != spec.name)).map(fill).collect())
    }
}

/// Bytes of the inputs and outputs of a run.
pub fn outside_bytes(module: &Module) -> Result<u64> {
    let specs = module.inputs().iter().chain(module.outputs().iter().map(|o| &o.tensor));
    specs.map(TensorSpec::bytes).try_fold(0u64, |sum, bytes| Ok(sum.saturating_add(bytes?)))
}

/// Returns true if the file is a module made by `compile`.
pub fn is_module(path: &Path) -> Result<bool> {
    let io = |e: std::io::Error| Error::Io(format!("cannot read {}: {e}", path.display()));
    let mut start = vec![];
    // Reading a pipe would block; the reader refuses what is not a regular file.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Ok(path.extension().is_some_and(|e| e == "tw"));
    }
    std::fs::File::open(path).map_err(io)?.take(8).read_to_end(&mut start).map_err(io)?;
    Ok(Module::is_magic(&start) || path.extension().is_some_and(|e| e == "tw"))
}

/// Refuses a module where what it was made of is needed.
pub fn refuse_module(path: &Path) -> Result<()> {
    if is_module(path)? {
        let name = path.display();
        return Err(Error::Invalid(format!(
            "{name} is already machine code: pass the model or program that it was made of"
        )));
    }
    Ok(())
}

/// Returns true if the file is a program of the text language; only a program can be chosen by name, size and
/// schedule; a file of schedules goes with networks too.
pub fn is_program(arguments: &ModelArguments) -> Result<bool> {
    let program = arguments.model.extension().is_some_and(|e| e == "tile");
    let by_name = arguments.schedule.is_some() && arguments.schedule_file().is_none();
    match (&arguments.program, &arguments.size, by_name) {
        (Some(_), _, _) | (_, Some(_), _) | (_, _, true) if !program => {
            let name = arguments.model.display();
            Err(Error::Invalid(format!(
                "{name} is not a .tile file: do not pass `--program`, `--size` or the name of a `--schedule`"
            )))
        }
        _ => Ok(program),
    }
}

/// The first option given that only networks have.
fn network_option(arguments: &ModelArguments) -> Option<&'static str> {
    let options = [
        ("--stop-after", arguments.stop_after.is_some()),
        ("--max-error", arguments.max_error.is_some()),
        ("--algorithm", arguments.algorithm.is_some()),
        ("--precision", arguments.precision.is_some()),
        ("--accumulate", arguments.accumulate.is_some()),
    ];
    options.into_iter().find(|option| option.1).map(|option| option.0)
}

fn load_module(arguments: &ModelArguments, inputs: &BTreeMap<String, Tensor>, progress: &Progress) -> Result<Module> {
    is_program(arguments)?;
    let compiles = [
        ("--schedule", arguments.schedule.is_some()),
        ("--machine", arguments.machine.is_some()),
        ("--quotients", arguments.quotients.is_some()),
        ("--instructions", arguments.instructions.is_some()),
    ];
    let compiles = compiles.into_iter().find(|option| option.1).map(|option| option.0);
    if let Some(option) = network_option(arguments).or(compiles) {
        let name = arguments.model.display();
        return Err(Error::Invalid(format!("{name} is already machine code: do not pass `{option}`")));
    }
    progress.stage(format!("loading {}", arguments.model.display()));
    // SAFETY: whoever names a module on the command line runs it as a program (docs/trust.md); a file that is changed under this
    // process by other means than `compile` is theirs to answer for too.
    let module = unsafe { Module::load(&arguments.model) }?;
    if arguments.target.is_some() && arguments.target()?.name != module.target() {
        return Err(Error::Invalid(format!("{} is compiled for {}", arguments.model.display(), module.target())));
    }
    let wanted = arguments.dims()?;
    if let Some(name) = wanted.keys().find(|name| !module.dims().contains_key(*name)) {
        let names: Vec<&str> = module.dims().keys().map(String::as_str).collect();
        return Err(Error::Invalid(unknown("dynamic dimension", name, &names)));
    }
    let given_shapes = |module: &&Module| {
        let shape = |spec: &TensorSpec| inputs.get(&spec.name).is_none_or(|tensor| tensor.shape == spec.shape);
        module.inputs().iter().all(shape)
    };
    // the sizes of dimensions that grow are counts, which `fill` checks
    let grows = |module: &Module, name: &String| module.bounds().is_some_and(|bounds| bounds.dims.contains_key(name));
    let has = |module: &&Module| {
        wanted.iter().all(|(name, size)| grows(module, name) || module.dims().get(name) == Some(size))
    };
    match module.bindings().filter(has).find(given_shapes).or_else(|| module.bindings().find(has)) {
        Some(binding) => Ok(binding.clone()),
        None => {
            let wanted: Vec<String> = wanted.iter().map(|(name, size)| format!("{name}={size}")).collect();
            Err(Error::Invalid(format!(
                "the module has the bindings {}, not {}: compile the model again",
                module.binding_names(),
                wanted.join(", ")
            )))
        }
    }
}

/// Loads and compiles a model or program for every combination of the sizes given; a report for each.
pub fn compile_bindings(
    arguments: &ModelArguments,
    inputs: &InputArguments,
    cache: Option<CacheOptions>,
    progress: &Progress,
) -> Result<(Module, Vec<Report>)> {
    let bindings = arguments.bindings()?;
    if cache.is_some() && bindings.len() > 1 {
        return Err(Error::Invalid(
            "the cache holds one binding each: do not pass `--cache` with several sizes".into(),
        ));
    }
    let mut loaded = load_for(arguments, inputs, bindings[0].clone(), progress)?;
    loaded.options.cache = cache;
    if bindings.len() == 1 {
        return loaded.compile(&arguments.model, progress).map(|(module, report)| (module, vec![report]));
    }
    progress.stage(format!("compiling {} for {} bindings", arguments.model.display(), bindings.len()));
    let (module, reports) = loaded.model.compile_bindings(&loaded.options, &bindings)?;
    reports.iter().flat_map(|report| &report.warnings).for_each(|warning| progress.warn(warning));
    Ok((module, reports))
}

/// Loads a model or program; the options bind its dynamic dimensions by the arguments and the given inputs.
pub fn load(arguments: &ModelArguments, inputs: &InputArguments, progress: &Progress) -> Result<Loaded> {
    load_for(arguments, inputs, arguments.dims()?, progress)
}

fn load_for(
    arguments: &ModelArguments,
    inputs: &InputArguments,
    dims: BTreeMap<String, i64>,
    progress: &Progress,
) -> Result<Loaded> {
    let target = arguments.target()?;
    progress.stage(format!("loading {}", arguments.model.display()));
    let program = is_program(arguments)?;
    if let Some(option) = network_option(arguments).filter(|_| program) {
        let name = arguments.model.display();
        return Err(Error::Invalid(format!("{name} is not a network: do not pass `{option}`")));
    }
    let model = match program {
        true => Model::from_program(
            tilewright::File::load(&arguments.model)?,
            arguments.program.as_deref(),
            arguments.size.as_deref(),
        )?,
        false => Model::load(&arguments.model)?,
    };
    let (model, given) = inputs.of(arguments.scheduled(model)?)?;
    let dims = bind(model.inputs(), &given, dims)?;
    let egraph = EgraphOptions { stop_after: arguments.stop_after, ..EgraphOptions::default() };
    let max_error = arguments.max_error.unwrap_or(DEFAULT_MAX_ERROR);
    let algorithm = arguments.algorithm.unwrap_or_default();
    let values = values(&given);
    let (limits, growing) = (arguments.limits.limits(), arguments.grow.clone());
    let instructions = instructions::checked(arguments.instructions.as_deref(), progress)?;
    let machine = arguments.machine()?;
    let chosen = arguments.target.is_none() && machine.is_none();
    let target = Some(if chosen { target.with_host_features_of(&instructions) } else { target });
    let options = Options {
        prices: arguments.prices,
        target,
        machine,
        instructions,
        dims,
        values,
        growing,
        egraph,
        algorithm,
        max_error,
        precision: arguments.precision.unwrap_or_default(),
        accumulate: arguments.accumulate.unwrap_or_default(),
        quotients: arguments.quotients.unwrap_or_default(),
        limits,
        ..Options::default()
    };
    Ok(Loaded { model, options, given })
}

pub fn check_names<'a>(
    mut given: impl Iterator<Item = &'a String>,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<()> {
    match given.find(|name| !known.clone().any(|k| k == name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<_> = known.collect();
            Err(Error::Invalid(unknown("input", name, &names)))
        }
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Those of the values given by name that are tensors: they may decide shapes.
pub fn values(inputs: &BTreeMap<String, Value>) -> BTreeMap<String, Arc<Tensor>> {
    let tensor = |(name, value): (&String, &Value)| match value {
        Value::Tensor(tensor) => Some((name.clone(), tensor.clone())),
        _ => None,
    };
    inputs.iter().filter_map(tensor).collect()
}

/// Adds the dimensions that given inputs bind.
pub fn bind(
    specs: &[InputSpec],
    given: &BTreeMap<String, Value>,
    mut dims: BTreeMap<String, i64>,
) -> Result<BTreeMap<String, i64>> {
    for spec in specs.iter().filter(|spec| spec.kind == Kind::Tensor && !spec.any_rank) {
        let Some(Value::Tensor(tensor)) = given.get(&spec.name) else { continue };
        if tensor.shape.len() != spec.shape.len() {
            let dims: Vec<String> = spec.shape.iter().map(Dim::to_string).collect();
            return Err(Error::Invalid(format!(
                "input `{}` has shape {:?}, but the model expects [{}]",
                spec.name,
                tensor.shape,
                dims.join(", ")
            )));
        }
        for (dim, &size) in spec.shape.iter().zip(&tensor.shape) {
            let Dim::Symbol(symbol) = dim else { continue };
            let bound = *dims.entry(symbol.clone()).or_insert(size);
            if bound != size {
                let name = &spec.name;
                return Err(Error::Invalid(format!(
                    "dimension `{symbol}` is bound twice: to {bound}, and to {size} by input `{name}`"
                )));
            }
        }
    }
    Ok(dims)
}

fn parse_input(text: &str) -> std::result::Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_string(), file.into())),
        _ => Err("expected NAME=FILE.npy or NAME=FILE.pb".into()),
    }
}
