//! Runs of modules whose dimensions have capacities: on tensors of exact sizes, and on state in place.

use super::Session;
use crate::bounds::{Bounds, at_capacity, count_of, exact_shape, resized};
use crate::tensor::{AsView, AsViewMut, TensorView};
use crate::{Error, Result, Tensor};

impl Session {
    /// Runs a module with capacities on tensors of exact sizes; the outputs have exact sizes.
    pub(super) fn run_exact(&self, bounds: &Bounds, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        let shapes: Vec<(&str, &[i64])> = self.module.inputs().iter().map(|i| (&*i.name, &i.shape[..])).collect();
        let views: Vec<(&str, TensorView)> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
        let count = count_of(bounds, &shapes, &views)?;
        let inputs = at_capacity(bounds, &shapes, &views, count)?;
        let inputs: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut outputs = self.outputs();
        self.run_into(&inputs, &mut outputs)?;
        let axes = bounds.outputs.iter();
        let exact = outputs.into_iter().zip(axes).map(|(output, axes)| match axes.is_empty() {
            true => output,
            false => resized(&output.view(), &exact_shape(&output.shape, axes, count)),
        });
        Ok(exact.collect())
    }

    /// As [`Session::run_into`], with state in place: for each pair of an input and an output of `shared`, by their numbers, the
    /// output's tensor holds the input's value before the run, and the input is not given.
    ///
    /// # Errors
    /// As [`Session::run`]; [`Error::Invalid`] where a pair may not share memory ([`Module::may_share`](crate::Module::may_share)).
    pub fn run_in_place<I: AsView, O: AsViewMut>(
        &self,
        inputs: &[(&str, I)],
        outputs: &mut [O],
        shared: &[(usize, usize)],
    ) -> Result<()> {
        for (i, &(input, output)) in shared.iter().enumerate() {
            let again = shared[..i].iter().any(|s| s.0 == input || s.1 == output);
            let name = self.module.inputs().get(input).map(|spec| spec.name.as_str());
            if again || !self.module.may_share(input, output) || inputs.iter().any(|bound| Some(bound.0) == name) {
                let name = name.unwrap_or_default();
                return Err(Error::Invalid(format!("input `{name}` cannot have the memory of output {output}")));
            }
        }
        self.execute(inputs, outputs, shared, |_| {})
    }

    /// Returns true if inputs have the exact sizes of a count that the module has capacities for, or are at these capacities.
    pub(super) fn takes<I: AsView>(&self, inputs: &[(&str, I)]) -> bool {
        let Some(bounds) = self.module.bounds() else { return false };
        let shapes: Vec<(&str, &[i64])> = self.module.inputs().iter().map(|i| (&*i.name, &i.shape[..])).collect();
        let views: Vec<(&str, TensorView)> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
        let count = match views.iter().any(|view| view.0 == bounds.input) {
            true => None,
            false => count_of(bounds, &shapes, &views).ok().filter(|&count| bounds.check(count).is_ok()),
        };
        let fits = |(i, (name, shape)): (usize, &(&str, &[i64]))| {
            let exact = count.map_or(shape.to_vec(), |count| exact_shape(shape, &bounds.inputs[i], count));
            views.iter().any(|view| view.0 == *name && *view.1.shape == exact)
                || count.is_some() && *name == bounds.input
        };
        shapes.iter().enumerate().all(fits)
    }

    /// Refuses a count that the module's capacities are not for.
    pub(super) fn check_count(&self, name: &str, value: &TensorView) -> Result<()> {
        match self.module.bounds().filter(|bounds| bounds.input == name) {
            Some(bounds) => {
                let bytes = value.data.first_chunk::<8>();
                bounds.check(bytes.map_or(-1, |bytes| i64::from_le_bytes(*bytes)))
            }
            None => Ok(()),
        }
    }
}
