//! Where a model comes from, out of a dictionary: a file, bytes, a program's text, or a saved module.

use crate::errors::{OrRaise, invalid};
use crate::fork::detached;
use crate::memory;
use crate::options::options;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::Arc;
use tilewright::{Compiled, File, Model, Options, Session};

/// A model that runs.
pub enum Runnable {
    /// Each binding of its dynamic dimensions is compiled when a run needs it.
    Compiled(Box<Compiled>, Box<Options>),
    /// A module that was saved.
    Loaded(Arc<Session>),
}

/// The value of a key, where it is there and not `None`.
fn given<'py, T: FromPyObjectOwned<'py>>(source: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<T>> {
    match source.get_item(key)?.filter(|value| !value.is_none()) {
        Some(value) => value.extract::<T>().map(Some).map_err(Into::into),
        None => Ok(None),
    }
}

/// Reads a model and makes it ready to run.
pub fn runnable(source: &Bound<'_, PyDict>, given_options: &Bound<'_, PyDict>) -> PyResult<Runnable> {
    let py = source.py();
    let options = options(given_options)?;
    if let Some(path) = given::<PathBuf>(source, "module")? {
        let module = memory::load(py, &path)?;
        let session = detached(py, move || Session::new(module.into(), options.threads)).or_raise(py)?;
        return Ok(Runnable::Loaded(Arc::new(session)));
    }
    let mut model = read(source)?;
    if let Some(names) = given::<Vec<String>>(source, "inputs")? {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        model = model.with_inputs(&names).or_raise(py)?;
    }
    if let Some(name) = given::<String>(source, "schedule")? {
        model = model.with_schedule(&name).or_raise(py)?;
    }
    if let Some(text) = given::<String>(source, "schedules")? {
        model = model.with_schedules(File::parse("schedules", &text).or_raise(py)?);
    }
    if given::<bool>(source, "untransformed")?.unwrap_or(false) {
        model = model.untransformed();
    }
    let compiled = detached(py, || model.compile(&options)).or_raise(py)?;
    Ok(Runnable::Compiled(Box::new(compiled), Box::new(options)))
}

/// The model of a source, as it is read.
fn read(source: &Bound<'_, PyDict>) -> PyResult<Model> {
    let py = source.py();
    let program: Option<String> = given(source, "program")?;
    let sizes: Option<String> = given(source, "sizes")?;
    if let Some(text) = given::<String>(source, "text")? {
        let name: String = given(source, "name")?.unwrap_or_else(|| "program".into());
        let file = File::parse(&name, &text).or_raise(py)?;
        return Model::from_program(file, program.as_deref(), sizes.as_deref()).or_raise(py);
    }
    if let Some(bytes) = source.get_item("bytes")? {
        let bytes = bytes.cast_into::<PyBytes>()?;
        let directory: PathBuf = given(source, "directory")?.unwrap_or_default();
        let bytes = bytes.as_bytes();
        return detached(py, || Model::parse(bytes, &directory)).or_raise(py);
    }
    let Some(path) = given::<PathBuf>(source, "path")? else {
        return Err(invalid(py, "a source has no path, bytes, text or module"));
    };
    if program.is_some() || sizes.is_some() {
        let file = detached(py, || File::load(&path)).or_raise(py)?;
        return Model::from_program(file, program.as_deref(), sizes.as_deref()).or_raise(py);
    }
    detached(py, || Model::load(&path)).or_raise(py)
}

impl Runnable {
    /// Threads of one run.
    pub fn threads(&self) -> usize {
        match self {
            Runnable::Compiled(_, options) => options.threads.max(1),
            Runnable::Loaded(session) => session.threads(),
        }
    }
}
