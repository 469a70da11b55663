//! Runs that leave a state to the next one: outputs that are inputs again, such as the keys and values of a decoder.
//!
//! In: pairs of an input and an output, and the other inputs of each run. Out: the outputs that are not state. Where a dimension
//! of the state grows ([`Options::growing`](crate::Options::growing)), the state lies at its capacity, zeros beyond what counts,
//! and a run writes its new rows in place; else the outputs of one run are the inputs of the next. Invariant: a run that fails
//! leaves the state as it was.

use crate::compiled::Compiled;
use crate::graph::import::model::{Dim, InputSpec};
use crate::graph::value::Kind;
use crate::runtime::bounds::{Bounds, at_capacity, exact_shape, resized};
use crate::runtime::session::Session;
use crate::runtime::tensor::{AsView, TensorView};
use crate::staged::check_data;
use crate::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;

/// A compiled model with a state. [`Compiled::stateful`] makes it.
///
/// ```
/// use tilewright::{DType, Model, Options, Tensor};
///
/// # fn main() -> tilewright::Result<()> {
/// let model = Model::load("tests/fixtures/models/decoder.onnx")?;
/// let options = Options { growing: vec!["past".into()], ..Options::default() };
/// let compiled = model.compile(&options)?;
/// let pairs = [
///     ("past.0.key", "present.0.key"),
///     ("past.0.value", "present.0.value"),
///     ("past.1.key", "present.1.key"),
///     ("past.1.value", "present.1.value"),
/// ];
/// let mut decoder = compiled.stateful(&pairs)?;
/// for length in [5, 1, 1] {
///     let ids = Tensor::zeros(DType::I64, &[1, length]);
///     let logits = decoder.run(&[("input_ids", &ids)])?;
///     assert_eq!(logits[0].shape[..2], [1, length]);
/// }
/// assert_eq!(decoder.state("past.0.key")?.shape[2], 7);
/// assert_eq!(compiled.compilations(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Stateful<'c> {
    compiled: &'c Compiled,
    state: Vec<Held>,
}

/// One tensor of the state.
struct Held {
    input: String,
    output: String,
    /// Extents of the state; `None` before the first run, where nothing has set it.
    exact: Option<Vec<i64>>,
    /// The state, perhaps in larger extents with zeros beyond its own.
    tensor: Tensor,
    /// Memory of the output of a run that cannot have the input's.
    spare: Option<Tensor>,
}

impl Held {
    /// The name and the extents of the state; `None` where there is none yet.
    fn shape(&self) -> Option<(&str, &[i64])> {
        Some((&self.input, self.exact.as_deref()?))
    }

    /// The state without what lies beyond it.
    fn exact(&self) -> Option<Tensor> {
        let exact = self.exact.as_ref()?;
        Some(match self.tensor.shape == *exact {
            true => self.tensor.clone(),
            false => resized(&self.tensor.view(), exact),
        })
    }

    /// Gives the state these extents, with zeros beyond its own.
    fn resize(&mut self, shape: &[i64]) {
        if self.tensor.shape != shape {
            self.tensor = resized(&self.tensor.view(), shape);
        }
    }

    /// Writes zeros beyond the state.
    fn clear_beyond(&mut self) {
        if let Some(exact) = self.exact() {
            self.tensor = resized(&exact.view(), &self.tensor.shape);
        }
    }
}

impl Compiled {
    /// Runs with a state: of each pair the output of a run is the input of the next. A dimension that only inputs of the state
    /// have begins with size 0; other beginnings are set by [`Stateful::set`].
    ///
    /// # Errors
    /// [`Error::Invalid`] where the model has no such input or output, one is named twice, or the input is not a tensor.
    pub fn stateful(&self, pairs: &[(&str, &str)]) -> Result<Stateful<'_>> {
        let (inputs, outputs) = (self.model().inputs(), self.model().output_names());
        let mut state = vec![];
        for (i, (input, output)) in pairs.iter().enumerate() {
            let Some(spec) = inputs.iter().find(|spec| spec.name == *input) else {
                return Err(Error::Invalid(format!("the model has no input `{input}`")));
            };
            if !outputs.iter().any(|name| name == output) {
                return Err(Error::Invalid(format!("the model has no output `{output}`")));
            }
            if pairs[..i].iter().any(|pair| pair.0 == *input || pair.1 == *output) {
                return Err(Error::Invalid(format!("`{input}` or `{output}` is state twice")));
            }
            if spec.kind != Kind::Tensor {
                return Err(Error::Invalid(format!("input `{input}` is a {}, not a tensor", spec.kind)));
            }
            let tensor = Tensor::zeros(spec.dtype, &[0]);
            state.push(Held { input: input.to_string(), output: output.to_string(), exact: None, tensor, spare: None });
        }
        Ok(Stateful { compiled: self, state })
    }
}

impl Stateful<'_> {
    /// Runs the model on the inputs that are not state. Returns the outputs that are not state, in the model's order.
    ///
    /// # Errors
    /// As [`Compiled::run`]; [`Error::Invalid`] where an input is state, where an output does not fit the input that it is next, and
    /// where a dimension of the state has no size: then [`Stateful::set`] gives the state of the beginning.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        if let Some((name, _)) = inputs.iter().find(|(name, _)| self.state.iter().any(|held| held.input == *name)) {
            return Err(Error::Invalid(format!("input `{name}` is state")));
        }
        let new: Vec<usize> = (0..self.state.len()).filter(|&i| self.state[i].exact.is_none()).collect();
        let result = self.begin(inputs).and_then(|()| self.go_on(inputs));
        if result.is_err() {
            new.into_iter().for_each(|i| self.state[i].exact = None);
        }
        result
    }

    /// A run on state that has begun.
    fn go_on(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        let dims = self.dims(inputs)?;
        let session = match self.compiled.grows() {
            true => self.compiled.session_for(dims.clone(), inputs).ok().flatten(),
            false => None,
        };
        match session.as_ref().and_then(|session| Some((session, session.module().bounds()?))) {
            Some((session, bounds)) => self.run_at_capacity(session, bounds, &dims, inputs),
            None => self.run_exact(inputs),
        }
    }

    /// The sizes of the dynamic dimensions, by the inputs and the state that there is.
    fn dims(&self, inputs: &[(&str, &Tensor)]) -> Result<BTreeMap<String, i64>> {
        self.compiled.dims(inputs, &self.state.iter().filter_map(Held::shape).collect::<Vec<_>>())
    }

    /// An exact copy of the state of an input.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the input is not a state, or has none yet.
    pub fn state(&self, input: &str) -> Result<Tensor> {
        let held = self.state.iter().find(|held| held.input == input);
        let held = held.ok_or_else(|| Error::Invalid(format!("input `{input}` is not a state")))?;
        held.exact().ok_or_else(|| Error::Invalid(format!("input `{input}` has no state before the first run")))
    }

    /// Sets the state of an input.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the input is not a state or of another element type or rank.
    pub fn set(&mut self, input: &str, tensor: &Tensor) -> Result<()> {
        let spec = self.compiled.model().inputs().iter().find(|spec| spec.name == input);
        let held = self.state.iter_mut().find(|held| held.input == input);
        let (Some(spec), Some(held)) = (spec, held) else {
            return Err(Error::Invalid(format!("input `{input}` is not a state")));
        };
        check_data(input, tensor)?;
        if tensor.dtype != spec.dtype || !spec.any_rank && tensor.shape.len() != spec.shape.len() {
            let (rank, found) = (spec.shape.len(), &tensor.shape);
            return Err(Error::Invalid(format!(
                "state `{input}` of shape {found:?} is not {} of {rank} dimensions",
                spec.dtype
            )));
        }
        (held.exact, held.tensor, held.spare) = (Some(tensor.shape.clone()), tensor.clone(), None);
        Ok(())
    }

    /// Drops the state: the next run begins anew.
    pub fn reset(&mut self) {
        for held in &mut self.state {
            (held.exact, held.tensor, held.spare) = (None, Tensor::zeros(DType::U8, &[0]), None);
        }
    }

    /// Makes the state of the first run: zeros, in a dimension that nothing binds none.
    fn begin(&mut self, inputs: &[(&str, &Tensor)]) -> Result<()> {
        if self.state.iter().all(|held| held.exact.is_some()) {
            return Ok(());
        }
        let dims = self.dims(inputs)?;
        let is_state = |name: &str| self.state.iter().any(|held| held.input == name);
        let specs = self.compiled.model().inputs();
        let elsewhere = |symbol: &str| {
            let has = |spec: &&InputSpec| spec.shape.iter().any(|d| matches!(d, Dim::Symbol(s) if s == symbol));
            specs.iter().filter(has).any(|spec| !is_state(&spec.name))
        };
        let mut shapes = BTreeMap::new();
        for spec in specs.iter().filter(|spec| is_state(&spec.name)) {
            if spec.any_rank {
                continue;
            }
            let size = |dim: &Dim| match dim {
                Dim::Fixed(size) => Ok(*size),
                Dim::Symbol(symbol) | Dim::Derived(symbol) => match dims.get(symbol) {
                    Some(size) => Ok(*size),
                    None if elsewhere(symbol) => Err(Error::Invalid(format!(
                        "dimension `{symbol}` of the state `{}` has no size: an input of the run is missing",
                        spec.name
                    ))),
                    None => Ok(0),
                },
            };
            shapes.insert(spec.name.clone(), (spec.dtype, spec.shape.iter().map(size).collect::<Result<Vec<i64>>>()?));
        }
        for held in self.state.iter_mut().filter(|held| held.exact.is_none()) {
            let Some((dtype, shape)) = shapes.remove(&held.input) else {
                return Err(Error::Invalid(format!("state `{}` has no shape in the model: set it first", held.input)));
            };
            held.tensor = Tensor::zeros(dtype, &shape);
            held.exact = Some(shape);
        }
        Ok(())
    }

    /// A run on state of its own extents.
    fn run_exact(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        for held in &mut self.state {
            if let Some(exact) = held.exact.clone() {
                held.resize(&exact);
            }
        }
        let mut all: Vec<(&str, &Tensor)> = inputs.to_vec();
        all.extend(self.state.iter().map(|held| (held.input.as_str(), &held.tensor)));
        let outputs = self.compiled.run(&all)?;
        let (mut left, mut next) = (vec![], BTreeMap::new());
        for (name, output) in self.compiled.model().output_names().into_iter().zip(outputs) {
            match self.state.iter().position(|held| held.output == name) {
                Some(held) => {
                    check_next(&self.state[held], (output.dtype, &output.shape), self.state[held].tensor.dtype)?;
                    next.insert(held, output);
                }
                None => left.push(output),
            }
        }
        for (held, tensor) in next {
            let held = &mut self.state[held];
            (held.exact, held.tensor) = (Some(tensor.shape.clone()), tensor);
        }
        Ok(left)
    }

    /// A run on state at capacity, in place where the module allows it.
    fn run_at_capacity(
        &mut self,
        session: &Session,
        bounds: &Bounds,
        dims: &BTreeMap<String, i64>,
        inputs: &[(&str, &Tensor)],
    ) -> Result<Vec<Tensor>> {
        let module = session.module();
        let size = bounds.dims.iter().find_map(|(name, form)| Some((dims.get(name)?, form)));
        let count = size.map(|(size, form)| (size - form.offset) / form.factor.max(1));
        let count = count.ok_or_else(|| Error::Internal("a dimension that grows has no size".into()))?;
        let shapes: Vec<(&str, &[i64])> = module.inputs().iter().map(|i| (&*i.name, &i.shape[..])).collect();
        let views: Vec<(&str, TensorView)> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
        let padded = at_capacity(bounds, &shapes, &views, count)?;
        let numbers = self.numbers(session, bounds, count)?;
        let mut outputs = self.outputs(session, &numbers);
        let shared: Vec<(usize, usize)> = numbers.iter().filter(|n| module.may_share(n.0, n.1)).copied().collect();
        let mut given: Vec<(&str, &Tensor)> = padded.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let read = self.state.iter().zip(&numbers).filter(|(_, number)| !shared.contains(number));
        given.extend(read.map(|(held, _)| (held.input.as_str(), &held.tensor)));
        let result = session.run_in_place(&given, &mut outputs, &shared);
        for (held, number) in self.state.iter_mut().zip(&numbers) {
            let output = std::mem::replace(&mut outputs[number.1], Tensor::zeros(DType::U8, &[0]));
            match (shared.contains(number), &result) {
                (true, Ok(())) => held.tensor = output,
                // a run that fails may have written rows
                (true, Err(_)) => {
                    held.tensor = output;
                    held.clear_beyond();
                }
                (false, Ok(())) => held.spare = Some(std::mem::replace(&mut held.tensor, output)),
                (false, Err(_)) => held.spare = Some(output),
            }
            if result.is_ok() {
                let axes = &bounds.outputs[number.1];
                held.exact = Some(exact_shape(&held.tensor.shape, axes, count));
                if axes.iter().any(|a| !a.zero) {
                    held.clear_beyond();
                }
            }
        }
        result?;
        let is_state = |o: usize| numbers.iter().any(|number| number.1 == o);
        let left = outputs.into_iter().enumerate().filter(|(o, _)| !is_state(*o));
        let exact = left.map(|(o, output)| match &bounds.outputs[o][..] {
            [] => output,
            axes => resized(&output.view(), &exact_shape(&output.shape, axes, count)),
        });
        Ok(exact.collect())
    }

    /// The numbers of the input and the output of each tensor of the state, which gets the extents of the input.
    fn numbers(&mut self, session: &Session, bounds: &Bounds, count: i64) -> Result<Vec<(usize, usize)>> {
        let module = session.module();
        let mut numbers = vec![];
        for held in &mut self.state {
            let input = module.inputs().iter().position(|spec| spec.name == held.input);
            let output = module.outputs().iter().position(|spec| spec.tensor.name == held.output);
            let (Some(input), Some(output)) = (input, output) else {
                return Err(Error::Internal(format!("the module has no `{}` or `{}`", held.input, held.output)));
            };
            let (spec, next) = (&module.inputs()[input], &module.outputs()[output].tensor);
            check_next(held, (next.dtype, &next.shape), spec.dtype)?;
            let wanted = exact_shape(&spec.shape, &bounds.inputs[input], count);
            if let Some(exact) = held.exact.as_ref().filter(|exact| **exact != wanted) {
                let name = &held.input;
                return Err(Error::Invalid(format!(
                    "state `{name}` has shape {exact:?}, but the model wants {wanted:?}"
                )));
            }
            held.resize(&spec.shape);
            numbers.push((input, output));
        }
        Ok(numbers)
    }

    /// Memory for the outputs: the state's own where the module allows it.
    fn outputs(&mut self, session: &Session, numbers: &[(usize, usize)]) -> Vec<Tensor> {
        let module = session.module();
        let mut outputs = vec![];
        for (o, spec) in module.outputs().iter().enumerate() {
            let (dtype, shape) = (spec.tensor.dtype, &spec.tensor.shape);
            let held = numbers.iter().position(|number| number.1 == o);
            let memory = held.and_then(|held| match module.may_share(numbers[held].0, o) {
                true => Some(std::mem::replace(&mut self.state[held].tensor, Tensor::zeros(DType::U8, &[0]))),
                false => self.state[held].spare.take(),
            });
            let fits = |tensor: &Tensor| tensor.dtype == dtype && tensor.shape == *shape;
            outputs.push(memory.filter(fits).unwrap_or_else(|| Tensor::zeros(dtype, shape)));
        }
        outputs
    }
}

/// Refuses an output of another element type or rank than the input that it is next.
fn check_next(held: &Held, (dtype, shape): (DType, &[i64]), wanted: DType) -> Result<()> {
    let rank = held.exact.as_ref().map_or(shape.len(), Vec::len);
    if (dtype, shape.len()) == (wanted, rank) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "output `{}` is {dtype} of {} dimensions, but input `{}`, which it is next, {wanted} of {rank}",
        held.output,
        shape.len(),
        held.input
    )))
}
