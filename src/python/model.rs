//! The class `Model` of the native module: a model that runs on Python's arrays.

use crate::arrays;
use crate::errors::{OrRaise, invalid};
use crate::fork::detached;
use crate::memory::Input;
use crate::outputs::Given;
use crate::signature::{self, Declaration, Extent, declaration};
use crate::source::{Runnable, runnable};
use crate::values;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tilewright::internal::runtime::error::unknown;
use tilewright::{AsView, Compiled, InputSpec, Kind, Session, Stage, Tensor, TensorView};

/// A model that is open.
struct OpenModel {
    runnable: Runnable,
    inputs: Vec<InputSpec>,
    /// Names of the outputs; of a program as far as they are known.
    outputs: Vec<String>,
    /// Inputs and outputs are all tensors.
    plain: bool,
    /// The session of the last run, where shapes alone decide which one it is.
    recent: Mutex<Option<Arc<Session>>>,
}

/// A model that runs. Users make it with `tilewright.compile`, `tilewright.load` and `tilewright.program`.
#[pyclass(subclass, frozen, module = "tilewright._native")]
pub struct Model(Mutex<Option<Arc<OpenModel>>>);

#[pymethods]
impl Model {
    /// Reads and compiles a model.
    #[new]
    #[pyo3(signature = (source, options))]
    fn new(source: &Bound<'_, PyDict>, options: &Bound<'_, PyDict>) -> PyResult<Model> {
        let runnable = runnable(source, options)?;
        Ok(Model(Mutex::new(Some(Arc::new(OpenModel::new(runnable))))))
    }

    /// Runs the model on arrays in the order of its inputs, or by name.
    #[pyo3(signature = (*args, out=None, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        out: Option<&Bound<'py, PyAny>>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open(py)?;
        let mut inputs = open.positional(py, args)?;
        let names = named.map_or(Ok(vec![]), |named| open.named(named))?;
        inputs.extend(names);
        let (_, mut results) = open.run(py, inputs, out)?;
        match results.len() {
            1 => Ok(results.remove(0)),
            _ => Ok(PyTuple::new(py, results)?.into_any()),
        }
    }

    /// Runs the model on a dictionary of arrays; returns a dictionary of all outputs.
    #[pyo3(signature = (feed, out=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        feed: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let open = self.open(py)?;
        let given = open.named(feed)?;
        let (names, results) = open.run(py, given, out)?;
        let outputs = PyDict::new(py);
        names.iter().zip(results).try_for_each(|(name, result)| outputs.set_item(name, result))?;
        Ok(outputs)
    }

    /// Inputs in the model's order.
    fn _inputs(&self, py: Python) -> PyResult<Vec<Declaration>> {
        Ok(self.open(py)?.inputs.iter().map(declaration).collect())
    }

    /// Inputs that have a default.
    fn _defaults(&self, py: Python) -> PyResult<Vec<Declaration>> {
        match &self.open(py)?.runnable {
            Runnable::Compiled(compiled, _) => Ok(compiled.model().defaults().iter().map(declaration).collect()),
            Runnable::Loaded(_) => Ok(vec![]),
        }
    }

    /// Outputs in the model's order, as far as they are declared.
    fn _outputs(&self, py: Python) -> PyResult<Vec<Declaration>> {
        Ok(match &self.open(py)?.runnable {
            Runnable::Compiled(compiled, _) => {
                let outputs = compiled.model().outputs().into_iter();
                let row = |o: tilewright::OutputDeclaration| {
                    let shape = o.shape.map(|shape| shape.iter().map(Extent::from).collect());
                    (o.name, o.dtype.map(arrays::name), shape, o.kind.to_string())
                };
                outputs.map(row).collect()
            }
            Runnable::Loaded(session) => signature::outputs(session.module()),
        })
    }

    /// Key and value strings that the model's file carries.
    fn _metadata(&self, py: Python) -> PyResult<BTreeMap<String, String>> {
        Ok(match &self.open(py)?.runnable {
            Runnable::Compiled(compiled, _) => compiled.model().metadata(),
            Runnable::Loaded(session) => session.module().metadata().clone(),
        })
    }

    /// Names of the dynamic dimensions.
    fn _symbols(&self, py: Python) -> PyResult<Vec<String>> {
        Ok(match &self.open(py)?.runnable {
            Runnable::Compiled(compiled, _) => compiled.model().symbols(),
            Runnable::Loaded(session) => session.module().dims().keys().cloned().collect(),
        })
    }

    /// The number of bindings of the dynamic dimensions that have been compiled.
    fn _compilations(&self, py: Python) -> PyResult<usize> {
        Ok(match &self.open(py)?.runnable {
            Runnable::Compiled(compiled, _) => compiled.compilations(),
            Runnable::Loaded(_) => 0,
        })
    }

    /// Threads of one run.
    fn _threads(&self, py: Python) -> PyResult<usize> {
        Ok(self.open(py)?.runnable.threads())
    }

    /// Name of the target.
    fn _target(&self, py: Python) -> PyResult<String> {
        match &self.open(py)?.runnable {
            Runnable::Compiled(_, options) => options.target().or_raise(py).map(|target| target.name),
            Runnable::Loaded(session) => Ok(session.module().target().to_string()),
        }
    }

    /// The report of the compilation for these inputs, as JSON; of a model in parts, with the times of one run.
    fn _report<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        named: &Bound<'py, PyDict>,
    ) -> PyResult<(String, String)> {
        let open = self.open(py)?;
        let Runnable::Compiled(compiled, _) = &open.runnable else {
            return Err(invalid(py, "a module that was loaded has no report: it is made when a model is compiled"));
        };
        let mut given = open.positional(py, args)?;
        given.extend(open.named(named)?);
        let arrays = open.arrays(&given)?;
        let json = |value: serde_json::Result<String>| {
            value.map_err(|e| tilewright::Error::Internal(format!("a report cannot be written: {e}")))
        };
        let make = |inputs: &[(&str, &Tensor)]| {
            if compiled.find_session(inputs)?.is_some() {
                let report = compiled.report(inputs)?;
                return Ok((json(serde_json::to_string(&*report))?, report.to_string()));
            }
            let values: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, (*tensor).clone().into())).collect();
            let values: Vec<_> = values.iter().map(|(name, value)| (*name, value)).collect();
            let report = compiled.report_in_parts(&values)?;
            Ok((json(serde_json::to_string(&report))?, report.to_string()))
        };
        let views = views(&arrays);
        detached(py, || Tensor::with_views(&views, make)).or_raise(py)
    }

    /// The least time of so many runs on these arrays, in nanoseconds: that of the kernels and of what the session does around
    /// them, on outputs that are there already.
    fn _time(&self, py: Python, feed: &Bound<'_, PyDict>, runs: usize) -> PyResult<u64> {
        let open = self.open(py)?;
        let inputs = open.named(feed)?;
        open.check_names(py, &inputs)?;
        let inputs = open.arrays(&inputs)?;
        let session = open.session(py, &inputs)?;
        let session = session.ok_or_else(|| invalid(py, "a model in parts has no time of its own: see its report"))?;
        let views = views(&inputs);
        let run = || {
            let session = session.binding(&views);
            let (mut outputs, mut least) = (session.outputs(), u64::MAX);
            for _ in 0..runs.max(1) {
                let start = Instant::now();
                session.run_into(&views, &mut outputs)?;
                least = least.min(start.elapsed().as_nanos() as u64);
            }
            Ok(least)
        };
        detached(py, run).or_raise(py)
    }

    /// The text of a stage of the compilation.
    fn _explain(
        &self,
        py: Python,
        stage: &str,
        kernel: Option<String>,
        dims: BTreeMap<String, i64>,
    ) -> PyResult<String> {
        let open = self.open(py)?;
        let Runnable::Compiled(compiled, options) = &open.runnable else {
            return Err(invalid(py, "a module that was loaded has no stages: it was compiled elsewhere"));
        };
        let stage: Stage = stage.parse().or_raise(py)?;
        let mut options = options.clone();
        options.dims.extend(dims);
        detached(py, || compiled.model().explain(&options, stage, kernel.as_deref())).or_raise(py)
    }

    /// Writes a module to a file: for the sizes of each dictionary of `bindings`, or for those of the model.
    fn _save(&self, py: Python, path: PathBuf, bindings: Vec<BTreeMap<String, i64>>) -> PyResult<()> {
        let open = self.open(py)?;
        let (compiled, options) = match &open.runnable {
            Runnable::Loaded(session) => {
                return detached(py, || session.module().save(&path)).or_raise(py);
            }
            Runnable::Compiled(compiled, options) => (compiled, options),
        };
        let symbols = compiled.model().symbols();
        let is_open = |symbol: &&String| !options.dims.contains_key(*symbol);
        let save = || match (&bindings[..], symbols.iter().find(is_open)) {
            ([], Some(symbol)) => Err(tilewright::Error::Invalid(format!(
                "dimension `{symbol}` has no size: pass `dims` with a dictionary for each binding that the file shall have"
            ))),
            ([], None) => compiled.session(&[])?.module().save(&path),
            (bindings, _) => compiled.model().compile_bindings(options, bindings)?.0.save(&path),
        };
        detached(py, save).or_raise(py)
    }

    /// Frees the model: its memory as soon as runs of other threads have ended. Further calls are errors.
    fn close(&self, py: Python) {
        let open = self.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        detached(py, || drop(open));
    }

    /// True when the model was freed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).is_none()
    }
}

impl Model {
    fn open(&self, py: Python) -> PyResult<Arc<OpenModel>> {
        let open = self.0.lock().unwrap_or_else(|e| e.into_inner()).clone();
        open.ok_or_else(|| invalid(py, "the model is closed"))
    }
}

impl OpenModel {
    fn new(runnable: Runnable) -> OpenModel {
        let (inputs, outputs, plain) = match &runnable {
            Runnable::Compiled(compiled, _) => {
                let model = compiled.model();
                let (inputs, outputs) = (model.inputs().to_vec(), model.outputs());
                let plain =
                    inputs.iter().all(|i| i.kind == Kind::Tensor) && outputs.iter().all(|o| o.kind == Kind::Tensor);
                (inputs, outputs.into_iter().map(|o| o.name).collect(), plain)
            }
            Runnable::Loaded(session) => {
                let names = session.module().outputs().iter().map(|o| o.tensor.name.clone()).collect();
                (signature::inputs(session.module()), names, true)
            }
        };
        OpenModel { runnable, inputs, outputs, plain, recent: Mutex::default() }
    }

    /// Arrays in the order of the inputs.
    fn positional<'py>(&self, py: Python, args: &Bound<'py, PyTuple>) -> PyResult<Vec<(&str, Bound<'py, PyAny>)>> {
        if args.len() > self.inputs.len() {
            let text = format!("{} inputs given, but the model has {}", args.len(), self.inputs.len());
            return Err(invalid(py, text));
        }
        Ok(self.inputs.iter().map(|spec| spec.name.as_str()).zip(args.iter()).collect())
    }

    /// Arrays by the names of inputs.
    fn named<'py>(&self, feed: &Bound<'py, PyDict>) -> PyResult<Vec<(&str, Bound<'py, PyAny>)>> {
        let mut inputs = Vec::with_capacity(feed.len());
        for (name, array) in feed.iter() {
            let text = name.cast::<PyString>()?;
            let text = text.to_cow()?;
            let Some(spec) = self.inputs.iter().find(|spec| spec.name == text) else {
                let names: Vec<&str> = self.inputs.iter().map(|spec| spec.name.as_str()).collect();
                return Err(invalid(feed.py(), unknown("input", &text, &names)));
            };
            inputs.push((spec.name.as_str(), array));
        }
        Ok(inputs)
    }

    /// Refuses inputs that are missing or given twice.
    fn check_names(&self, py: Python, inputs: &[(&str, Bound<'_, PyAny>)]) -> PyResult<()> {
        let count = |name: &str| inputs.iter().filter(|(other, _)| *other == name).count();
        if inputs.len() == self.inputs.len() && self.inputs.iter().all(|spec| count(&spec.name) == 1) {
            return Ok(());
        }
        let twice =
            inputs.iter().find(|(name, _)| count(name) > 1).map(|(name, _)| format!("input `{name}` is given twice"));
        let missing = self.inputs.iter().find(|spec| count(&spec.name) == 0);
        let missing = missing.map(|spec| format!("input `{}` is missing", spec.name));
        twice.or(missing).map_or(Ok(()), |text| Err(invalid(py, text)))
    }

    /// The memory of the arrays that are given.
    fn arrays<'a>(&self, inputs: &[(&'a str, Bound<'_, PyAny>)]) -> PyResult<Vec<(&'a str, Input)>> {
        let array = |(name, value): &(&'a str, Bound<'_, PyAny>)| {
            Ok((*name, arrays::input(value, &|| format!("input `{name}`"), true)?))
        };
        inputs.iter().map(array).collect()
    }

    /// Runs the model; names and values of the outputs.
    fn run<'py>(
        &self,
        py: Python<'py>,
        given: Vec<(&str, Bound<'py, PyAny>)>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Vec<String>, Vec<Bound<'py, PyAny>>)> {
        self.check_names(py, &given)?;
        if !self.plain {
            return self.run_values(py, given, out);
        }
        let inputs = self.arrays(&given)?;
        let session = self.session(py, &inputs)?;
        let views = views(&inputs);
        match session.as_ref().map(|session| session.binding(&views)) {
            Some(session) if session.module().bounds().is_none() => run_in_place(py, session, &inputs, out),
            Some(session) => {
                let run = |tensors: &[(&str, &Tensor)]| session.run(tensors);
                let names = session.module().outputs().iter().map(|o| o.tensor.name.clone()).collect();
                let results = detached(py, || Tensor::with_views(&views, run)).or_raise(py)?;
                self.finish(py, names, results, out)
            }
            None => {
                let Runnable::Compiled(compiled, _) = &self.runnable else {
                    return Err(invalid(py, "the module has no binding for these inputs"));
                };
                let run = |tensors: &[(&str, &Tensor)]| compiled.run(tensors);
                let results = detached(py, || Tensor::with_views(&views, run)).or_raise(py)?;
                self.finish(py, self.outputs.clone(), results, out)
            }
        }
    }

    /// Arrays of tensors that a run made.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        names: Vec<String>,
        results: Vec<Tensor>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Vec<String>, Vec<Bound<'py, PyAny>>)> {
        let results = results.into_iter().map(|tensor| arrays::array(py, tensor)).collect::<PyResult<Vec<_>>>()?;
        let given = Given::new(py, out, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok((names, given.fill(py, results)?))
    }

    /// Runs a model with inputs or outputs that are not tensors.
    fn run_values<'py>(
        &self,
        py: Python<'py>,
        given: Vec<(&str, Bound<'py, PyAny>)>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Vec<String>, Vec<Bound<'py, PyAny>>)> {
        if out.is_some_and(|out| !out.is_none()) {
            return Err(invalid(py, "a model with sequences or optionals takes no `out`"));
        }
        let Runnable::Compiled(compiled, _) = &self.runnable else {
            return Err(invalid(py, "a saved module has no sequences or optionals"));
        };
        let mut inputs = Vec::with_capacity(given.len());
        for (name, value) in &given {
            let kind = self.inputs.iter().find(|spec| spec.name == *name).map_or(&Kind::Tensor, |spec| &spec.kind);
            inputs.push((*name, values::value(value, kind, &format!("input `{name}`"))?));
        }
        let inputs: Vec<_> = inputs.iter().map(|(name, value)| (*name, value)).collect();
        let results = detached(py, || compiled.run_values(&inputs)).or_raise(py)?;
        let results = results.into_iter().map(|value| values::object(py, value)).collect::<PyResult<_>>()?;
        Ok((self.outputs.clone(), results))
    }

    /// The session for these inputs; `None` where the model runs in parts.
    fn session(&self, py: Python, inputs: &[(&str, Input)]) -> PyResult<Option<Arc<Session>>> {
        let compiled = match &self.runnable {
            Runnable::Compiled(compiled, _) => compiled,
            Runnable::Loaded(session) => return Ok(Some(session.clone())),
        };
        let recent = self.recent.lock().unwrap_or_else(|e| e.into_inner()).clone();
        if let Some(session) = recent.filter(|session| fits(session, inputs)) {
            return Ok(Some(session));
        }
        let session = find_session(py, compiled, inputs)?;
        if let Some(session) = &session {
            *self.recent.lock().unwrap_or_else(|e| e.into_inner()) = Some(session.clone());
        }
        Ok(session)
    }
}

/// The session of a compiled model, compiled where it is new.
fn find_session(py: Python, compiled: &Compiled, inputs: &[(&str, Input)]) -> PyResult<Option<Arc<Session>>> {
    let views = views(inputs);
    let find = |tensors: &[(&str, &Tensor)]| compiled.find_session(tensors);
    detached(py, || Tensor::with_views(&views, find)).or_raise(py)
}

/// Returns true if the session is for inputs of these shapes, whatever their values.
fn fits(session: &Session, inputs: &[(&str, Input)]) -> bool {
    let module = session.module();
    let shape = |name: &str| inputs.iter().find(|input| input.0 == name).map(|input| input.1.view().shape);
    let fits = module.inputs().iter().all(|spec| shape(&spec.name) == Some(&spec.shape[..]));
    fits && module.bounds().is_none() && module.values().is_empty()
}

/// Runs a session on arrays where they lie.
fn run_in_place<'py>(
    py: Python<'py>,
    session: &Session,
    inputs: &[(&str, Input)],
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Vec<String>, Vec<Bound<'py, PyAny>>)> {
    let specs = session.module().outputs();
    let names: Vec<&str> = specs.iter().map(|spec| spec.tensor.name.as_str()).collect();
    let given = Given::new(py, out, &names)?;
    let (arrays, mut outputs) = given.arrays(py, specs)?;
    given.check_overlaps(py, inputs, &outputs)?;
    let views = views(inputs);
    detached(py, || session.run_into(&views, &mut outputs)).or_raise(py)?;
    Ok((names.into_iter().map(String::from).collect(), arrays))
}

fn views<'a>(inputs: &'a [(&'a str, Input)]) -> Vec<(&'a str, TensorView<'a>)> {
    inputs.iter().map(|(name, input)| (*name, input.view())).collect()
}
