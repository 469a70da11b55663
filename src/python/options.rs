//! Options of compiling out of a dictionary, whose keys are the arguments of `tilewright.compile`.

use crate::arrays;
use crate::errors::{OrRaise, invalid};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tilewright::internal::runtime::error::unknown;
use tilewright::{CacheOptions, Limits, Options, Target, instructions};

/// The names of all options.
const NAMES: [&str; 15] = [
    "accumulate",
    "algorithm",
    "cache",
    "cache_bytes",
    "compile_threads",
    "dims",
    "growing",
    "instructions",
    "max_error",
    "max_memory",
    "precision",
    "quotients",
    "target",
    "threads",
    "values",
];

/// The options of a dictionary; what it does not name, or names with `None`, is the library's default.
pub fn options(dictionary: &Bound<'_, PyDict>) -> PyResult<Options> {
    let py = dictionary.py();
    let mut options = Options::default();
    let (mut cache, mut cache_bytes) = (None, None);
    for (key, value) in dictionary.iter() {
        let key: String = key.extract()?;
        if !NAMES.contains(&key.as_str()) {
            return Err(invalid(py, unknown("option", &key, &NAMES)));
        }
        if value.is_none() {
            continue;
        }
        set(&mut options, &mut cache, &mut cache_bytes, &key, &value).map_err(|error| named(py, &key, error))?;
    }
    let bounded = |directory| CacheOptions { directory, max_bytes: cache_bytes.unwrap_or(10 << 30) };
    options.cache = cache.map(bounded);
    Ok(options)
}

/// A value of another type or size as an error that names its option; other errors as they are.
fn named(py: Python, key: &str, error: PyErr) -> PyErr {
    let is_wrong = error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyOverflowError>(py);
    if is_wrong { invalid(py, format!("option `{key}`: {}", error.value(py))) } else { error }
}

/// Sets the option of this name.
fn set(
    options: &mut Options,
    cache: &mut Option<PathBuf>,
    cache_bytes: &mut Option<u64>,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = value.py();
    match key {
        "accumulate" => options.accumulate = value.extract::<String>()?.parse().or_raise(py)?,
        "algorithm" => options.algorithm = value.extract::<String>()?.parse().or_raise(py)?,
        "cache" => *cache = Some(value.extract::<PathBuf>()?),
        "cache_bytes" => *cache_bytes = Some(value.extract::<u64>()?),
        "compile_threads" => options.compile_threads = value.extract()?,
        "dims" => options.dims = value.extract::<BTreeMap<String, i64>>()?,
        "growing" => options.growing = value.extract()?,
        "instructions" => {
            options.instructions = instructions::parse("instructions", value.extract()?).or_raise(py)?.into();
        }
        "max_error" => options.max_error = value.extract()?,
        "max_memory" => options.limits = Limits::within(value.extract()?),
        "precision" => options.precision = value.extract::<String>()?.parse().or_raise(py)?,
        "quotients" => options.quotients = value.extract::<String>()?.parse().or_raise(py)?,
        "target" => options.target = Some(target(py, &value.extract::<String>()?)?),
        "threads" => options.threads = value.extract()?,
        _ => {
            for (name, array) in value.cast::<PyDict>()?.iter() {
                let name: String = name.extract()?;
                let tensor = arrays::input(&array, &|| format!("value `{name}`"), true)?.to_tensor();
                options.values.insert(name, Arc::new(tensor));
            }
        }
    }
    Ok(())
}

/// The target of this name.
pub fn target(py: Python, name: &str) -> PyResult<Target> {
    Target::by_name(name).or_raise(py)
}
