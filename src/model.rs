//! The way in for users: load a model, compile it, run it.
//!
//! In: a file, a graph or a program, and [`Options`]. Out: a [`Module`], or a [`Compiled`] that makes one for each binding
//! of the dynamic dimensions.

use crate::cache::{self, Kernels, Subject};
use crate::expr::syntax::{Expr, Kind};
use crate::graph::import::binding::{BoundGraph, Unbound};
use crate::graph::import::model::{Binding, Dim, Growing, InputSpec, OnnxModel, OutputDeclaration};
use crate::graph::ir::{Graph, ValueId};
use crate::language::lowered::LoweredProgram;
use crate::language::syntax::{Array, File, Program};
use crate::pipeline::linkable::KernelStore;
use crate::pipeline::report::Report;
use crate::pipeline::sharing::Sharing;
use crate::pipeline::{self, Compilation, Options, Stage, program};
use crate::poly::transform::primitive::Schedule;
use crate::runtime::error::{guard, unknown};
use crate::runtime::module::Module;
use crate::staged::check_data;
use crate::{Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A model that can be compiled: an ONNX file, a graph or a program of the text language.
///
/// ```
/// use tilewright::{DType, Model, Options, Tensor};
///
/// # fn main() -> tilewright::Result<()> {
/// // dynamic dimensions are bound by the inputs of each run
/// let model = Model::load("tests/fixtures/operators/dynamic_sequence_positions.onnx")?;
/// assert_eq!(model.symbols(), ["batch", "length"]);
/// let compiled = model.compile(&Options::default())?;
/// for length in [7, 20] {
///     let inputs: Vec<Tensor> = model.inputs().iter().map(|i| Tensor::zeros(i.dtype, &[2, length])).collect();
///     let named: Vec<_> = model.inputs().iter().map(|i| i.name.as_str()).zip(&inputs).collect();
///     let outputs = compiled.run(&named)?;
///     assert_eq!(outputs[0].shape[..2], [2, length]);
/// }
/// // or once, for a module that can be saved
/// let options = Options { dims: [("length".to_string(), 5)].into(), ..Options::default() };
/// let (module, report) = model.compile_module(&options)?;
/// println!("{report}{} bytes of code", module.code().len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Model {
    source: Source,
    inputs: Vec<InputSpec>,
    order: Order,
}

/// The order in which a model runs.
#[derive(Clone, PartialEq)]
enum Order {
    /// The schedule of the ILP.
    Ilp,
    Untransformed,
    /// The schedule of this name.
    Named(String),
    /// The schedules of this file.
    File(Arc<File>),
}

#[derive(Clone)]
enum Source {
    Onnx(Arc<OnnxModel>),
    Graph(Arc<Graph>),
    Program(Arc<Programs>),
}

/// A file of the text language, one program of it, and which of its sets of sizes is used.
struct Programs {
    file: File,
    program: Option<String>,
    sizes: Option<String>,
}

impl Programs {
    fn program(&self) -> Result<&Program> {
        self.file.program(self.program.as_deref())
    }

    fn lowered(&self, dims: &BTreeMap<String, i64>) -> Result<LoweredProgram> {
        self.file.lower(self.program()?, dims, self.sizes.as_deref())
    }

    /// The program of known sizes in `order`.
    fn source<'a>(&'a self, lowered: &'a LoweredProgram, order: &'a Order) -> Result<program::ProgramSource<'a>> {
        let order = match order {
            Order::Ilp => pipeline::Order::Ilp,
            Order::Untransformed => pipeline::Order::Untransformed,
            Order::Named(name) => pipeline::Order::ByHand(self.schedule(&self.file, Some(name))?, &self.file.source),
            Order::File(file) => pipeline::Order::ByHand(self.schedule(file, None)?, &file.source),
        };
        Ok(program::ProgramSource { file: &self.file, lowered, order })
    }

    /// The schedule of this name in `file`, or the only one for the program.
    fn schedule<'f>(&self, file: &'f File, name: Option<&str>) -> Result<&'f Schedule> {
        let program = self.program()?;
        let schedules = file.schedules_of(program);
        let names = || schedules.iter().map(|s| &*s.name).collect::<Vec<&str>>();
        match (name, &schedules[..]) {
            (None, [one]) => Ok(one),
            (None, []) => {
                let programs: Vec<&str> = file.schedules.iter().map(|s| &*s.program).collect();
                let message = unknown("schedule for the program", &program.name, &programs);
                Err(Error::Invalid(format!("{}: {message}", file.source.name)))
            }
            (None, _) => {
                let (file, program, names) = (&file.source.name, &program.name, names().join(", "));
                Err(Error::Invalid(format!("{file} has several schedules for `{program}`: {names}")))
            }
            (Some(name), _) => {
                schedules.iter().find(|s| *s.name == *name).copied().ok_or_else(|| {
                    Error::Invalid(format!("`{}`: {}", program.name, unknown("schedule", name, &names())))
                })
            }
        }
    }
}

impl Model {
    /// Reads an ONNX file, or the first program of a `.tile` file. One error lists every ONNX node that is not supported.
    ///
    /// A file of 1 MiB or more and external data of that size are mapped into memory, as long as the model lives. They must
    /// not be written to meanwhile: weights would be those of the new contents, and a file that is cut off ends the process
    /// (SIGBUS) when they are read. A file that is replaced by another of its name stays what it was.
    ///
    /// # Errors
    /// [`Error::Io`] where the file or its external data cannot be read; [`Error::Invalid`] where it is damaged or
    /// wrong; [`Error::Unsupported`] with every node that is not supported; [`Error::Limit`] where a tensor is too
    /// large.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        let path = path.as_ref();
        if path.extension().is_some_and(|e| e == "tile") {
            return Model::from_program(File::load(path)?, None, None);
        }
        guard(|| Ok(Model::from_onnx(OnnxModel::load(path)?)))
    }

    /// A model from a program of the text language: the one of this name, or the first; with the sizes of the set of this
    /// name, where they are not given otherwise.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `file` has no program of this name.
    pub fn from_program(file: File, program: Option<&str>, sizes: Option<&str>) -> Result<Model> {
        let declared = file.program(program)?;
        let dim = |e: &Expr| match &e.kind {
            Kind::Integer(n) => Dim::Fixed(*n),
            Kind::Name(name) => Dim::Symbol(name.clone()),
            _ => Dim::Derived(e.show(declared.style())),
        };
        let input = |a: &Array| InputSpec::tensor(a.name.to_string(), a.dtype, a.shape.iter().map(dim).collect());
        let inputs = declared.inputs().into_iter().map(input).collect();
        let source = Programs { file, program: program.map(str::to_string), sizes: sizes.map(str::to_string) };
        Ok(Model { inputs, source: Source::Program(Arc::new(source)), order: Order::Ilp })
    }

    /// Takes the schedule of this name in the program's file instead of the one that the ILP finds.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the model is not a program of the text language. An unknown name is an error of the
    /// compilation.
    pub fn with_schedule(self, name: &str) -> Result<Model> {
        match self.source {
            Source::Program(_) => Ok(Model { order: Order::Named(name.into()), ..self }),
            _ => Err(Error::Invalid(format!("only programs of the text language have schedules, such as `{name}`"))),
        }
    }

    /// Takes the schedules of `file` instead of those that the ILP finds: in a network, each for the kernel that it names, the
    /// other kernels stay as they are; in a program, the only one that is for it. A text of schedules alone is a [`File`] too.
    /// [`Model::explain`] prints such a text at [`Stage::Schedule`].
    ///
    /// ```
    /// use tilewright::{File, Model, Options, Stage};
    ///
    /// # fn main() -> tilewright::Result<()> {
    /// let (model, options) = (Model::load("tests/fixtures/operators/conv_batch_norm_relu.onnx")?, Options::default());
    /// let words = model.explain(&options, Stage::Schedule, None)?;
    /// let by_hand = model.clone().with_schedules(File::parse("words.tile", &words)?);
    /// assert_eq!(by_hand.compile_module(&options)?.0.code(), model.compile_module(&options)?.0.code());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A schedule that is not legal, one for a kernel that there is not and a second one for a kernel are errors of the
    /// compilation.
    pub fn with_schedules(self, file: File) -> Model {
        Model { order: Order::File(Arc::new(file)), ..self }
    }

    /// Keeps the original order, without tiles and vectors: a program in the order of its text, a network with every
    /// kernel's statements one after the other. Schedules are compared with it.
    pub fn untransformed(self) -> Model {
        Model { order: Order::Untransformed, ..self }
    }

    /// Reads the bytes of an ONNX file; `directory` holds its external data.
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn parse(bytes: &[u8], directory: impl AsRef<Path>) -> Result<Model> {
        guard(|| Ok(Model::from_onnx(OnnxModel::parse(bytes, directory.as_ref())?)))
    }

    fn from_onnx(model: OnnxModel) -> Model {
        Model { inputs: model.inputs().to_vec(), source: Source::Onnx(Arc::new(model)), order: Order::Ilp }
    }

    /// A model from a graph, as [`GraphBuilder`](crate::graph::builder::GraphBuilder) makes it.
    pub fn from_graph(graph: Graph) -> Model {
        let input = |v: &crate::graph::ir::ValueId| {
            let value = graph.value(*v);
            let shape = value.ty.shape.iter().map(|&d| Dim::Fixed(d)).collect();
            InputSpec::tensor(value.name.clone(), value.ty.dtype, shape)
        };
        Model {
            inputs: graph.inputs.iter().map(input).collect(),
            source: Source::Graph(Arc::new(graph)),
            order: Order::Ilp,
        }
    }

    /// The inputs, with the names of dynamic dimensions.
    pub fn inputs(&self) -> &[InputSpec] {
        &self.inputs
    }

    /// The outputs in their order, as far as the source declares them. Of programs of the text language names alone are known
    /// before sizes are bound.
    ///
    /// ```
    /// use tilewright::{DType, Dim, Model};
    ///
    /// let model = Model::load("tests/fixtures/operators/conv_batch_norm_relu.onnx")?;
    /// let output = &model.outputs()[0];
    /// assert_eq!((&*output.name, output.dtype), ("y", Some(DType::F32)));
    /// assert_eq!(output.shape.as_ref().unwrap()[0], Dim::Fixed(1));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn outputs(&self) -> Vec<OutputDeclaration> {
        match &self.source {
            Source::Onnx(model) => model.outputs(),
            Source::Graph(graph) => {
                let output = |id: &ValueId| {
                    let value = graph.value(*id);
                    let shape = value.ty.shape.iter().map(|&d| Dim::Fixed(d)).collect();
                    let declared = OutputDeclaration::undeclared(&value.name);
                    OutputDeclaration { dtype: Some(value.ty.dtype), shape: Some(shape), ..declared }
                };
                graph.outputs.iter().map(output).collect()
            }
            Source::Program(source) => {
                let names = source.program().map_or(vec![], Program::outputs);
                names.into_iter().map(OutputDeclaration::undeclared).collect()
            }
        }
    }

    /// The inputs of an ONNX file that have a default, an initializer of their name: they are constants unless
    /// [`Model::with_inputs`] makes them inputs.
    pub fn defaults(&self) -> &[InputSpec] {
        self.onnx().map_or(&[], |model| model.defaults())
    }

    /// The model in which these inputs have no default: each run gives them, as the other [`inputs`](Model::inputs).
    ///
    /// # Errors
    /// [`Error::Invalid`] where the model has no such input.
    pub fn with_inputs(self, names: &[&str]) -> Result<Model> {
        match &self.source {
            Source::Onnx(model) => {
                Ok(Model { order: self.order.clone(), ..Model::from_onnx(model.with_inputs(names)?) })
            }
            _ => match names.iter().find(|name| !self.inputs.iter().any(|spec| spec.name == **name)) {
                Some(name) => Err(Error::Invalid(format!("no input `{name}`"))),
                None => Ok(self),
            },
        }
    }

    /// The names of the outputs of an ONNX file, in its order.
    #[doc(hidden)]
    pub fn output_names(&self) -> Vec<String> {
        let names = self.onnx().map(|model| model.onnx_graph().output.iter().map(|o| o.name.clone()).collect());
        names.unwrap_or_default()
    }

    /// The names of dimensions that an ONNX file declares for an output.
    #[doc(hidden)]
    pub fn output_symbols(&self, name: &str) -> Vec<&str> {
        let output = self.onnx().and_then(|model| model.onnx_graph().output.iter().find(|o| o.name == name));
        let ty = output.and_then(|o| o.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref());
        ty.iter().flat_map(|shape| &shape.dim).filter_map(|dim| dim.dim_param.as_deref()).collect()
    }

    /// The names of the dynamic dimensions, in the order of the inputs.
    pub fn symbols(&self) -> Vec<String> {
        if let Source::Program(source) = &self.source {
            return source.program().map(|p| p.sizes()).unwrap_or_default();
        }
        let mut names: Vec<String> = vec![];
        for dim in self.inputs.iter().flat_map(|i| &i.shape) {
            if let Dim::Symbol(name) = dim
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        names
    }

    /// Key and value strings that the model file carries.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        match &self.source {
            Source::Onnx(model) => model.metadata(),
            Source::Graph(_) | Source::Program(_) => BTreeMap::new(),
        }
    }

    /// The static graph for a binding of the dynamic dimensions; those not named are 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `dims` name a dimension that the model does not have, where the sizes do not fit, or
    /// where the model is a program; [`Error::Unsupported`] where an operator is not supported; [`Error::Limit`] where
    /// a tensor is too large.
    pub fn graph(&self, dims: &BTreeMap<String, i64>) -> Result<Graph> {
        guard(|| match &self.source {
            Source::Onnx(model) => model.graph(dims),
            Source::Graph(graph) => match dims.keys().next() {
                None => Ok((**graph).clone()),
                Some(name) => {
                    Err(Error::Invalid(format!("no dynamic dimension `{name}`: the model's shapes are fixed")))
                }
            },
            Source::Program(source) => Err(Error::Invalid(format!(
                "`{}` is a program and no network: it has no graph",
                source.program()?.name
            ))),
        })
    }

    /// As [`Model::graph`], within the limits of `options`.
    ///
    /// # Errors
    /// As [`Model::graph`].
    #[doc(hidden)]
    pub fn graph_within(&self, options: &Options) -> Result<Graph> {
        let graph = guard(|| {
            let bound = self.bind(&options.binding(), &Sharing::default());
            Ok(bound.map_err(|unbound| unbound.error)?.graph)
        })?;
        pipeline::check_graph(&graph, &options.limits)?;
        Ok(graph)
    }

    /// Compiles a module for one binding of the dynamic dimensions; those not named are 1. The module may be for another
    /// processor than this one.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `options` name a dimension that the model does not have, sizes that do not fit, or a cache
    /// that others may write to; [`Error::Unsupported`] where an operator or this processor is not supported;
    /// [`Error::Schedule`] where the schedule that was asked for is refused; [`Error::Limit`] beyond [`Options::limits`];
    /// [`Error::Io`] where the system has no memory; [`Error::Internal`] at a defect of the compiler.
    pub fn compile_module(&self, options: &Options) -> Result<(Module, Report)> {
        let compile = || self.compile_stages(options).map(|compiled| (compiled.module, compiled.report));
        guard(|| cache::compiled(&self.subject(), options, compile))
    }

    /// The model as the cache of modules sees it.
    pub(crate) fn subject(&self) -> Subject<'_> {
        let order = match &self.order {
            Order::Ilp => cache::Order::Ilp,
            Order::Untransformed => cache::Order::Untransformed,
            Order::Named(name) => cache::Order::Named(name),
            Order::File(file) => cache::Order::File(file),
        };
        match &self.source {
            Source::Onnx(model) => Subject::Onnx(model, order),
            Source::Graph(graph) => Subject::Graph(graph, order),
            Source::Program(source) => {
                let (program, sizes) = (source.program.as_deref(), source.sizes.as_deref());
                Subject::Program { file: &source.file, program, sizes, order }
            }
        }
    }

    /// Compiles one module for several bindings of the dynamic dimensions, each as [`Model::compile_module`] takes it. They share
    /// constants; a session runs the one that fits its inputs. The reports are in the order of the bindings. All are compiled:
    /// [`Options::cache`] has modules of one binding.
    ///
    /// # Errors
    /// As [`Model::compile_module`]; [`Error::Invalid`] where no binding is given or two are equal; [`Error::Unsupported`] for several
    /// bindings of a program that declares initial values.
    pub fn compile_bindings(
        &self,
        options: &Options,
        bindings: &[BTreeMap<String, i64>],
    ) -> Result<(Module, Vec<Report>)> {
        let sharing = self.sharing();
        let compile = |dims: &BTreeMap<String, i64>| {
            let dims = options.dims.clone().into_iter().chain(dims.clone()).collect();
            let compiled = self.compile_with(&Options { dims, ..options.clone() }, &sharing)?;
            Ok((Arc::new(compiled.module), compiled.report))
        };
        let compiled = bindings.iter().map(compile).collect::<Result<Vec<_>>>()?;
        let (mut modules, reports): (Vec<_>, Vec<_>) = compiled.into_iter().unzip();
        if modules.is_empty() {
            return Err(Error::Invalid("no binding of the dynamic dimensions is given".into()));
        }
        let first = Arc::unwrap_or_clone(modules.remove(0));
        if first.initial().is_some() && !modules.is_empty() {
            let name = first.name();
            return Err(Error::Unsupported(format!("`{name}` declares initial values, which are those of one size")));
        }
        Ok((first.with_bindings(modules)?, reports))
    }

    /// As [`Model::compile_module`], with the stages that each kernel went through.
    #[doc(hidden)]
    pub fn compile_stages(&self, options: &Options) -> Result<Compilation> {
        self.compile_with(options, &Sharing::default())
    }

    fn compile_with(&self, options: &Options, sharing: &Sharing) -> Result<Compilation> {
        guard(|| {
            self.check_growing(options)?;
            if let Source::Program(source) = &self.source {
                let lowered = source.lowered(&options.dims)?;
                return program::compile(&source.source(&lowered, &self.order)?, options);
            }
            let binding = Binding { growing: self.growing_ahead(options)?, ..options.binding() };
            self.compile_bound(&self.bind(&binding, sharing).map_err(|unbound| unbound.error)?, options, sharing)
        })
    }

    /// The capacity of a module that is compiled ahead: the size of the first dimension that grows. The other ones have this size,
    /// or a size of their own that keeps its distance.
    fn growing_ahead(&self, options: &Options) -> Result<Option<Growing>> {
        let Some(name) = options.growing.first() else { return Ok(None) };
        let size = |name: &String| options.dims.get(name).copied();
        let capacity = size(name).ok_or_else(|| {
            Error::Invalid(format!("dimension `{name}` grows: its size, which is the capacity, must be given"))
        })?;
        let offset = |other: &String| (other.clone(), size(other).map_or(0, |size| size.saturating_sub(capacity)));
        let offsets: BTreeMap<String, i64> = options.growing.iter().map(offset).collect();
        let (farthest, room) =
            offsets.iter().map(|(name, o)| (name, o.saturating_abs())).max_by_key(|o| o.1).unwrap_or((name, 0));
        if room > capacity {
            return Err(Error::Invalid(format!(
                "dimension `{name}` grows with a capacity of {capacity}, but `{farthest}` is {room} away from it"
            )));
        }
        // whatever is decided holds in the middle, and for a range around it
        let middle = (capacity / 2).max(room).min(capacity.saturating_sub(room));
        Ok(Some(Growing { name: name.clone(), offsets, capacity, counts: (middle, middle) }))
    }

    /// Checks the names of the dimensions that grow.
    pub(crate) fn check_growing(&self, options: &Options) -> Result<()> {
        let symbols = self.symbols();
        match options.growing.iter().find(|name| !symbols.contains(name)) {
            Some(name) => Err(Error::Invalid(unknown("dynamic dimension", name, &symbols))),
            None if self.onnx().is_none() && !options.growing.is_empty() => {
                Err(Error::Unsupported("the sizes of a program do not grow".into()))
            }
            None => Ok(()),
        }
    }

    /// Compiles the static graph of a network.
    pub(crate) fn compile_bound(
        &self,
        bound: &BoundGraph,
        options: &Options,
        sharing: &Sharing,
    ) -> Result<Compilation> {
        let graph = &bound.graph;
        self.onnx().into_iter().for_each(|model| model.make_weights());
        let kernels = Kernels::open(options);
        let store = kernels.as_ref().map(|kernels| kernels as &dyn KernelStore);
        let mut compiled = pipeline::compile_sharing(graph, self.network_order(), options, sharing, store)?;
        self.onnx().into_iter().for_each(|model| model.release());
        let symbols = self.symbols().into_iter();
        let dims = symbols.map(|s| (s.clone(), options.dims.get(&s).copied().unwrap_or(1))).collect();
        let values = bound.values.iter().map(|(name, value)| (name.clone(), Tensor::clone(value))).collect();
        compiled.module = compiled.module.with_dims(dims).with_values(values).with_metadata(self.metadata());
        compiled.module = compiled.module.with_bounds(bound.bounds.clone())?;
        compiled.report.add_absent(&bound.absent);
        if let (Source::Onnx(model), None) = (&self.source, &bound.bounds) {
            compiled.report.warnings.extend(model.warnings(graph));
        }
        Ok(compiled)
    }

    /// Constants for the bindings of a network to share.
    pub(crate) fn sharing(&self) -> Sharing {
        match &self.source {
            Source::Onnx(model) => Sharing::new(model.weights().iter().map(|(_, tensor)| tensor)),
            _ => Sharing::default(),
        }
    }

    /// The static graph of a network for a binding.
    pub(crate) fn bind(&self, binding: &Binding, sharing: &Sharing) -> std::result::Result<BoundGraph, Unbound> {
        binding.values.iter().try_for_each(|(name, value)| check_data(name, value))?;
        match &self.source {
            Source::Onnx(model) => model.bind(binding, sharing.folded()),
            _ => {
                let (graph, values, absent) = (self.graph(&binding.dims)?, BTreeMap::new(), vec![]);
                Ok(BoundGraph { graph, values, absent, bounds: None, beyond_half: 0 })
            }
        }
    }

    /// The file of the model; `None` for graphs and programs.
    pub(crate) fn onnx(&self) -> Option<&Arc<OnnxModel>> {
        match &self.source {
            Source::Onnx(model) => Some(model),
            _ => None,
        }
    }

    /// Returns true if the model has no static graph, even where all sizes are bound: sizes or branches follow from data, or
    /// values are sequences. [`Compiled::run`](crate::Compiled::run) runs it in parts; it has
    /// no module.
    pub fn depends_on_data(&self, options: &Options) -> bool {
        let binding = options.binding();
        guard(|| Ok(self.bind(&binding, &Sharing::default()).is_err_and(|unbound| unbound.waits))).unwrap_or(false)
    }

    /// Returns true if the model has a static graph only for values of inputs that decide shapes, which `options` do not give.
    /// [`Compiled`](crate::Compiled) takes them from each run.
    pub fn depends_on_values(&self, options: &Options) -> bool {
        let missing = |unbound: Unbound| !unbound.waits && !unbound.missing.is_empty();
        let bind = || Ok(self.bind(&options.binding(), &Sharing::default()).err().is_some_and(missing));
        guard(bind).unwrap_or(false)
    }

    /// Refuses a dimension that the model does not have.
    pub(crate) fn check_dims(&self, dims: &BTreeMap<String, i64>) -> Result<()> {
        match &self.source {
            Source::Program(source) => source.lowered(dims).map(|_| ()),
            _ => self.graph(dims).map(|_| ()),
        }
    }

    /// Returns true if the model is a program of the text language.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self.source, Source::Program(_))
    }

    /// Returns true if kernels have schedules by hand.
    pub(crate) fn has_schedules(&self) -> bool {
        matches!(self.order, Order::File(_))
    }

    /// The order of a network.
    fn network_order(&self) -> pipeline::Order<'_> {
        match &self.order {
            Order::Untransformed => pipeline::Order::Untransformed,
            Order::File(file) => pipeline::Order::Kernels(file),
            Order::Ilp | Order::Named(_) => pipeline::Order::Ilp,
        }
    }

    /// The text of one stage of the compilation, of all kernels or of those whose name contains `kernel`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no kernel is called so or the model has no such stage; otherwise as
    /// [`Model::compile_module`].
    pub fn explain(&self, options: &Options, stage: Stage, kernel: Option<&str>) -> Result<String> {
        guard(|| match &self.source {
            Source::Program(source) => {
                let lowered = source.lowered(&options.dims)?;
                let name = &lowered.name;
                if let Some(wanted) = kernel.filter(|wanted| !name.contains(*wanted)) {
                    return Err(Error::Invalid(unknown("kernel", wanted, &[name])));
                }
                program::explain(&source.source(&lowered, &self.order)?, options, stage)
            }
            _ => {
                let binding = options.binding();
                let bound = self.bind(&binding, &Sharing::default()).map_err(|unbound| unbound.error)?;
                pipeline::explain(&bound.graph, self.network_order(), options, stage, kernel)
            }
        })
    }
}
