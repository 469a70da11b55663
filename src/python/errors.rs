//! Errors of the library as exceptions of `tilewright.errors`, one class for each kind.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tilewright::{Error, Instance, Refusal};

/// The exception for an error. It has the message without the kind, which the class says.
pub fn exception(py: Python, error: Error) -> PyErr {
    make(py, error).unwrap_or_else(|failure| failure)
}

fn make(py: Python, error: Error) -> PyResult<PyErr> {
    let text = error.to_string();
    let (class, prefix) = match &error {
        Error::Invalid(_) => ("InvalidError", "invalid: "),
        Error::Unsupported(_) => ("UnsupportedError", "unsupported: "),
        Error::Schedule(_) => ("ScheduleError", "schedule refused: "),
        Error::Limit(_) => ("LimitError", "limit exceeded: "),
        Error::Io(_) => ("FileError", ""),
        Error::Internal(_) => ("InternalError", "internal error: "),
    };
    let message = text.strip_prefix(prefix).unwrap_or(&text);
    let value = py.import("tilewright.errors")?.getattr(class)?.call1((message,))?;
    if let Error::Schedule(refusal) = &error {
        describe(&value, refusal)?;
    }
    Ok(PyErr::from_value(value))
}

/// Sets the attributes of a refusal.
fn describe(value: &Bound<'_, PyAny>, refusal: &Refusal) -> PyResult<()> {
    let py = value.py();
    value.setattr("reason", &refusal.reason)?;
    value.setattr("primitive", &refusal.primitive)?;
    value.setattr("place", refusal.context.trim_end_matches(": "))?;
    value.setattr("tree", &refusal.tree)?;
    value.setattr("excerpt", &refusal.excerpt)?;
    match &refusal.instances {
        Some([early, needed]) => value.setattr("instances", (instance(py, early)?, instance(py, needed)?)),
        None => value.setattr("instances", py.None()),
    }
}

/// A statement's name and the trip numbers of its loops.
fn instance<'py>(py: Python<'py>, instance: &Instance) -> PyResult<(String, Bound<'py, PyTuple>)> {
    Ok((instance.statement.clone(), PyTuple::new(py, &instance.trips)?))
}

/// A result of the library as one of Python.
pub trait OrRaise<T> {
    /// Makes the error an exception.
    fn or_raise(self, py: Python) -> PyResult<T>;
}

impl<T> OrRaise<T> for tilewright::Result<T> {
    fn or_raise(self, py: Python) -> PyResult<T> {
        self.map_err(|error| exception(py, error))
    }
}

/// The exception for a wrong argument.
pub fn invalid(py: Python, message: impl Into<String>) -> PyErr {
    exception(py, Error::Invalid(message.into()))
}
