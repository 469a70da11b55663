//! The argument `out`: arrays into which a run writes.

use crate::arrays;
use crate::errors::invalid;
use crate::memory::{Input, Output};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tilewright::AsView;
use tilewright::internal::runtime::error::unknown;
use tilewright::module::OutputSpec;

/// Arrays for some of the outputs, in the order of the model.
pub struct Given<'py>(Vec<Option<Bound<'py, PyAny>>>);

impl<'py> Given<'py> {
    /// Reads `out`: an array for a model of one output, a list or a tuple with an array or `None` for each, or a dictionary.
    pub fn new(py: Python<'py>, out: Option<&Bound<'py, PyAny>>, names: &[&str]) -> PyResult<Given<'py>> {
        let Some(out) = out.filter(|out| !out.is_none()) else { return Ok(Given(vec![])) };
        if let Ok(named) = out.cast::<PyDict>() {
            let mut given = vec![None; names.len()];
            for (name, array) in named.iter() {
                let name: String = name.extract()?;
                let Some(position) = names.iter().position(|n| *n == name) else {
                    return Err(invalid(py, unknown("output", &name, names)));
                };
                given[position] = Some(array).filter(|array| !array.is_none());
            }
            return Ok(Given(given));
        }
        let several = out.is_instance_of::<PyList>() || out.is_instance_of::<PyTuple>();
        let items = if several { out.try_iter()?.collect::<PyResult<Vec<_>>>()? } else { vec![out.clone()] };
        if items.len() != names.len() {
            let (found, wanted) = (items.len(), names.len());
            return Err(invalid(py, format!("`out` has {found} arrays, but the model has {wanted} outputs")));
        }
        Ok(Given(items.into_iter().map(|item| Some(item).filter(|array| !array.is_none())).collect()))
    }

    /// The array for the output of this number.
    pub fn get(&self, number: usize) -> Option<&Bound<'py, PyAny>> {
        self.0.get(number)?.as_ref()
    }

    /// Arrays and memory for all outputs of a run: those that are given, and new ones.
    pub fn arrays(&self, py: Python<'py>, specs: &[OutputSpec]) -> PyResult<(Vec<Bound<'py, PyAny>>, Vec<Output>)> {
        let (mut arrays, mut memory) = (Vec::with_capacity(specs.len()), Vec::with_capacity(specs.len()));
        for (number, spec) in specs.iter().enumerate() {
            let (array, output) = match self.get(number) {
                Some(array) => {
                    let output = arrays::output(array, &|| format!("`out` for `{}`", spec.tensor.name))?;
                    (array.clone(), output)
                }
                None => arrays::empty(py, spec.tensor.dtype, &spec.tensor.shape)?,
            };
            arrays.push(array);
            memory.push(output);
        }
        Ok((arrays, memory))
    }

    /// Copies results into the arrays that are given, which then take their places.
    pub fn fill(&self, py: Python<'py>, results: Vec<Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let fill = |(number, result): (usize, Bound<'py, PyAny>)| {
            let Some(array) = self.get(number) else { return Ok(result) };
            let what = || format!("`out` for output {number}");
            let (target, source) = (arrays::output(array, &what)?, arrays::input(&result, &what, true)?);
            let (to, from) = (target.view(), source.view());
            if (to.dtype, to.shape) != (from.dtype, from.shape) {
                let text = format!(
                    "{} is {} {:?}, but the output is {} {:?}",
                    what(),
                    to.dtype,
                    to.shape,
                    from.dtype,
                    from.shape
                );
                return Err(invalid(py, text));
            }
            py.import("numpy")?.call_method1("copyto", (array, result))?;
            Ok(array.clone())
        };
        results.into_iter().enumerate().map(fill).collect()
    }

    /// Refuses arrays for outputs that overlap an input or each other.
    pub fn check_overlaps(&self, py: Python, inputs: &[(&str, Input)], outputs: &[Output]) -> PyResult<()> {
        for (number, output) in outputs.iter().enumerate().filter(|(number, _)| self.get(*number).is_some()) {
            let here = output.addresses();
            let meets = |other: &std::ops::Range<usize>| other.start < here.end && here.start < other.end;
            if let Some((name, _)) = inputs.iter().find(|(_, input)| meets(&input.addresses())) {
                return Err(invalid(py, format!("`out` for output {number} has memory of input `{name}`")));
            }
            if let Some(other) = outputs[..number].iter().position(|other| meets(&other.addresses())) {
                return Err(invalid(py, format!("`out` for output {number} has memory of output {other}")));
            }
        }
        Ok(())
    }
}
