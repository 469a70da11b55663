//! A model file to a session that is ready to run, and the tensors to run it on.

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
use tilewright::internal::pipeline::check_scratch;
use tilewright::internal::runtime::bounds;
use tilewright::internal::runtime::error::unknown;
use tilewright::module::{Module, TensorSpec};
use tilewright::{Compiled, Dim, InputSpec, Kind, Value};
use tilewright::{DEFAULT_MAX_ERROR, Error, Model, Options, Result, Tensor};

/// Input tensors by name.
#[derive(clap::Args)]
pub struct InputArguments {
    /// Read an input from a .npy file or from a .pb file (ONNX's TensorProto); other inputs have the program's initial
    /// values, or values from the seed. Values that decide shapes become constants
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = parse_input)]
    inputs: Vec<(String, PathBuf)>,
}

impl InputArguments {
    /// The value given for an input.
    fn value(&self, spec: &InputSpec) -> Result<Option<Value>> {
        let Some((_, path)) = self.inputs.iter().find(|(name, _)| *name == spec.name) else { return Ok(None) };
        match path.extension().is_some_and(|e| e == "pb") {
            true => tilewright::onnx::read_value(path, &spec.kind).map(Some),
            false => Ok(Some(Tensor::read_npy(path)?.into())),
        }
    }

    /// The tensors given by name.
    pub fn given(&self) -> Result<BTreeMap<String, Tensor>> {
        let mut given = BTreeMap::new();
        for (name, path) in &self.inputs {
            let tensor = match path.extension().is_some_and(|e| e == "pb") {
                true => tilewright::onnx::read_tensor(path)?,
                false => Tensor::read_npy(path)?,
            };
            if given.insert(name.clone(), tensor).is_some() {
                return Err(Error::Invalid(format!("input `{name}` is given twice")));
            }
        }
        Ok(given)
    }
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
        self.threads_or(std::thread::available_parallelism().map_or(1, usize::from))
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
    pub fn prepare(
        &self,
        model: &ModelArguments,
        cache: Option<CacheOptions>,
        progress: &Progress,
    ) -> Result<Prepared> {
        self.prepare_on(self.threads(), model, cache, progress)
    }

    /// Loads, compiles and binds for this many threads.
    pub fn prepare_on(
        &self,
        threads: usize,
        model: &ModelArguments,
        cache: Option<CacheOptions>,
        progress: &Progress,
    ) -> Result<Prepared> {
        let given = self.given()?;
        let start = Instant::now();
        let (module, report) = if is_module(&model.model)? {
            if cache.is_some() {
                let name = model.model.display();
                return Err(Error::Invalid(format!("{name} is already machine code: do not pass `--cache`")));
            }
            (load_module(model, &given, progress)?, None)
        } else {
            let (module, report) = compile(model, &given, cache, progress)?;
            (module, Some(report))
        };
        let compile_ms = start.elapsed().as_secs_f64() * 1e3;
        check_names(&given, module.inputs().iter().map(|i| i.name.as_str()))?;
        let start = Instant::now();
        check_scratch(&module, threads, &model.limits.limits())?;
        let session = Session::new(Arc::new(module), threads)?;
        let session_ms = start.elapsed().as_secs_f64() * 1e3;
        progress.stage("filling the inputs");
        let inputs = self.fill(&session, given)?;
        Ok(Prepared { session, inputs, compile_ms, session_ms, report })
    }

    /// The tensors given by name.
    pub fn given(&self) -> Result<BTreeMap<String, Tensor>> {
        self.inputs.given()
    }

    /// A network that depends on data and the values of its inputs, in its order; `None` for others.
    pub fn prepare_parts(
        &self,
        arguments: &ModelArguments,
        cache: Option<CacheOptions>,
        progress: &Progress,
    ) -> Result<Option<(Compiled, Vec<(String, Value)>)>> {
        let (model, options) = load(arguments, &BTreeMap::new(), progress)?;
        let known = || model.inputs().iter().map(|i| i.name.as_str());
        if let Some((name, _)) = self.inputs.inputs.iter().find(|(name, _)| !known().any(|k| k == name)) {
            return Err(Error::Invalid(unknown("input", name, &known().collect::<Vec<_>>())));
        }
        let (mut values, mut tensors) = (vec![], BTreeMap::new());
        for (position, spec) in (0..).zip(model.inputs()) {
            let value = match self.inputs.value(spec)? {
                Some(value) => value,
                None if spec.kind == Kind::Tensor && !spec.any_rank => {
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
                    Tensor::seeded(spec.dtype, &shape, self.seed.unwrap_or_default(), position, 2).into()
                }
                None => return Err(Error::Invalid(format!("input `{}` is missing: {}", spec.name, spec.kind))),
            };
            if let Value::Tensor(tensor) = &value {
                tensors.insert(spec.name.clone(), tensor.clone());
            }
            values.push((spec.name.clone(), value));
        }
        let options = Options { values: tensors, ..options };
        if !model.depends_on_data(&options) {
            return Ok(None);
        }
        let options = Options { values: BTreeMap::new(), threads: self.threads(), cache, ..options };
        Ok(Some((model.compile(&options)?, values)))
    }

    /// Given inputs, else the program's initial values, else values from the seed.
    /// Dimensions that grow have the size that given inputs have, or the largest one.
    pub fn fill(&self, session: &Session, mut given: BTreeMap<String, Tensor>) -> Result<Vec<(String, Tensor)>> {
        let module = session.module();
        let grown = module.bounds().filter(|bounds| !given.contains_key(&bounds.input));
        let sizes =
            |(i, spec): (usize, &TensorSpec)| given.get(&spec.name).and_then(|t| grown?.count(i, &t.shape).ok()?);
        let count = grown.map(|bounds| module.inputs().iter().enumerate().find_map(sizes).unwrap_or(bounds.most));
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

/// Returns true if the file is a program of the text language; only a program can be chosen by name, size and schedule.
pub fn is_program(arguments: &ModelArguments) -> Result<bool> {
    let program = arguments.model.extension().is_some_and(|e| e == "tile");
    match (&arguments.program, &arguments.size, &arguments.schedule) {
        (Some(_), _, _) | (_, Some(_), _) | (_, _, Some(_)) if !program => {
            let name = arguments.model.display();
            Err(Error::Invalid(format!(
                "{name} is not a .tile file: do not pass `--program`, `--size` or `--schedule`"
            )))
        }
        _ => Ok(program),
    }
}

/// The first option given that only networks have.
fn network_option(arguments: &ModelArguments) -> Option<&'static str> {
    let given = [
        ("--stop-after", arguments.stop_after.is_some()),
        ("--max-error", arguments.max_error.is_some()),
        ("--algorithm", arguments.algorithm.is_some()),
    ];
    given.into_iter().find(|option| option.1).map(|option| option.0)
}

fn load_module(arguments: &ModelArguments, given: &BTreeMap<String, Tensor>, progress: &Progress) -> Result<Module> {
    is_program(arguments)?;
    if let Some(option) = network_option(arguments) {
        let name = arguments.model.display();
        return Err(Error::Invalid(format!("{name} is already machine code: do not pass `{option}`")));
    }
    progress.stage(format!("loading {}", arguments.model.display()));
    // SAFETY: whoever names a module on the command line runs it as a program (README); a file that is changed under this
    // process by other means than `compile` is theirs to answer for too.
    let module = unsafe { Module::load(&arguments.model) }?;
    if arguments.target.is_some() && arguments.target()?.name != module.target() {
        return Err(Error::Invalid(format!("{} is compiled for {}", arguments.model.display(), module.target())));
    }
    let wanted = arguments.dims()?;
    if let Some(name) = wanted.keys().find(|name| !module.dims().contains_key(*name)) {
        let names: Vec<&str> = module.dims().keys().map(String::as_str).collect();
        return Err(Error::Invalid(unknown("dynamic dimension of the module", name, &names)));
    }
    let given_shapes = |module: &&Module| {
        let shape = |spec: &TensorSpec| given.get(&spec.name).is_none_or(|tensor| tensor.shape == spec.shape);
        module.inputs().iter().all(shape)
    };
    let has = |module: &&Module| wanted.iter().all(|(name, size)| module.dims().get(name) == Some(size));
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

/// Loads and compiles a model or program, its dynamic dimensions bound by the arguments and the given inputs.
pub fn compile(
    arguments: &ModelArguments,
    given: &BTreeMap<String, Tensor>,
    cache: Option<CacheOptions>,
    progress: &Progress,
) -> Result<(Module, Report)> {
    let (model, options) = load(arguments, given, progress)?;
    let options = Options { cache, ..options };
    progress.stage(format!("compiling {}", arguments.model.display()));
    let (module, report) = model.compile_module(&options)?;
    for warning in &report.warnings {
        progress.warn(warning);
    }
    Ok((module, report))
}

/// Loads and compiles a model or program for every combination of the sizes given; a report for each.
pub fn compile_bindings(
    arguments: &ModelArguments,
    given: &BTreeMap<String, Tensor>,
    cache: Option<CacheOptions>,
    progress: &Progress,
) -> Result<(Module, Vec<Report>)> {
    let bindings = arguments.bindings()?;
    if bindings.len() == 1 {
        return compile(arguments, given, cache, progress).map(|(module, report)| (module, vec![report]));
    }
    if cache.is_some() {
        return Err(Error::Invalid(
            "the cache holds one binding each: do not pass `--cache` with several sizes".into(),
        ));
    }
    let (model, options) = load_for(arguments, given, bindings[0].clone(), progress)?;
    progress.stage(format!("compiling {} for {} bindings", arguments.model.display(), bindings.len()));
    let (module, reports) = model.compile_bindings(&options, &bindings)?;
    reports.iter().flat_map(|report| &report.warnings).for_each(|warning| progress.warn(warning));
    Ok((module, reports))
}

/// Loads a model or program; the options bind its dynamic dimensions.
pub fn load(
    arguments: &ModelArguments,
    given: &BTreeMap<String, Tensor>,
    progress: &Progress,
) -> Result<(Model, Options)> {
    load_for(arguments, given, arguments.dims()?, progress)
}

fn load_for(
    arguments: &ModelArguments,
    given: &BTreeMap<String, Tensor>,
    dims: BTreeMap<String, i64>,
    progress: &Progress,
) -> Result<(Model, Options)> {
    let target = arguments.target()?;
    progress.stage(format!("loading {}", arguments.model.display()));
    let program = is_program(arguments)?;
    if let Some(option) = network_option(arguments).filter(|_| program) {
        let name = arguments.model.display();
        return Err(Error::Invalid(format!("{name} is not a network: do not pass `{option}`")));
    }
    let mut model = match program {
        true => Model::from_program(
            tilewright::File::load(&arguments.model)?,
            arguments.program.as_deref(),
            arguments.size.as_deref(),
        )?,
        false => Model::load(&arguments.model)?,
    };
    if let Some(name) = &arguments.schedule {
        model = model.with_schedule(name)?;
    }
    check_names(given, model.inputs().iter().map(|i| i.name.as_str()))?;
    let dims = bind(model.inputs(), given, dims)?;
    let egraph = EgraphOptions { stop_after: arguments.stop_after, ..EgraphOptions::default() };
    let max_error = arguments.max_error.unwrap_or(DEFAULT_MAX_ERROR);
    let algorithm = arguments.algorithm.unwrap_or_default();
    let values = given.iter().map(|(name, tensor)| (name.clone(), Arc::new(tensor.clone()))).collect();
    let (target, limits, growing) = (Some(target), arguments.limits.limits(), arguments.grow.clone());
    let options = Options { target, dims, values, growing, egraph, algorithm, max_error, limits, ..Options::default() };
    Ok((model, options))
}

pub fn check_names<'a>(given: &BTreeMap<String, Tensor>, known: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    match given.keys().find(|name| !known.clone().any(|k| k == name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<_> = known.collect();
            Err(Error::Invalid(unknown("input", name, &names)))
        }
    }
}

/// Adds the dimensions that given inputs bind.
fn bind(
    specs: &[InputSpec],
    given: &BTreeMap<String, Tensor>,
    mut dims: BTreeMap<String, i64>,
) -> Result<BTreeMap<String, i64>> {
    for spec in specs {
        let Some(tensor) = given.get(&spec.name) else { continue };
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
