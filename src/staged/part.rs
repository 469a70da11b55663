//! Compiled parts: which values they are for, and their runs.
//!
//! In: the values that are known. Out: those that the part computes. A part with capacities takes tensors of exact sizes,
//! with zeros up to the capacities, and cuts its results.

use super::environment::{Entry, Environment};
use super::growth::{Count, Growth};
use super::memory::{self, Memory};
use super::profile::{PartCounts, Profile};
use crate::graph::import::stage::{Part, Sizes};
use crate::graph::value::Value;
use crate::pipeline::report::Report;
use crate::runtime::bounds::{BoundedAxis, Form, exact_shape, resized};
use crate::runtime::module::{Module, TensorSpec};
use crate::runtime::session::Session;
use crate::{AsView, DType, Error, Result, Tensor};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// The part that a graph of the file goes on with: which of its nodes are done, and the types of what is known.
#[derive(PartialEq)]
pub(super) struct Key {
    pub graph: usize,
    pub done: Vec<bool>,
    pub mode: ModeKind,
    pub types: Vec<Type>,
}

/// Sizes that a part is for, as its key has them.
#[derive(Clone, PartialEq)]
pub(super) enum Mode {
    Exact,
    /// Without what follows a count.
    Ahead,
    /// With capacities for what follows this count.
    Growing(Arc<Count>),
}

/// [`Mode`] without the count.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ModeKind {
    Exact,
    Ahead,
    Growing,
}

impl Mode {
    pub(super) fn kind(&self) -> ModeKind {
        match self {
            Mode::Exact => ModeKind::Exact,
            Mode::Ahead => ModeKind::Ahead,
            Mode::Growing(_) => ModeKind::Growing,
        }
    }

    /// The sizes that a part is imported with.
    pub(super) fn sizes(&self) -> Sizes {
        match self {
            Mode::Exact => Sizes::Exact,
            Mode::Ahead => Sizes::Ahead,
            Mode::Growing(count) => Sizes::Growing(count.value),
        }
    }

    /// Returns true if the part may read a value.
    pub(super) fn reads(&self, entry: &Entry) -> bool {
        match (self, entry.growth()) {
            (Mode::Exact, _) | (_, None) => true,
            (Mode::Ahead, Some(_)) => false,
            (Mode::Growing(count), Some(growth)) => growth.count == *count,
        }
    }
}

#[derive(PartialEq)]
pub(super) enum Type {
    Unknown,
    Other,
    Tensor(DType, Vec<i64>),
    /// Dimensions that follow the part's count are 0.
    Growing(DType, Vec<i64>, Vec<(usize, Form)>),
    /// The address of a constant, which the part keeps.
    Constant(usize),
}

pub(super) struct CompiledPart {
    pub part: Part,
    pub report: Arc<Report>,
    /// `None` where everything followed from constants.
    pub session: Option<Session>,
    pub outputs: Vec<String>,
    /// Constants that the key names by their addresses.
    pub _constants: Vec<Arc<Tensor>>,
}

impl CompiledPart {
    /// Returns true if the part is for the count and for the values that it has as constants.
    pub(super) fn fits(&self, environment: &Environment, mode: &Mode) -> bool {
        let counts = match (mode, &self.part.bounds) {
            (Mode::Growing(count), Some(bounds)) => (bounds.least..=bounds.most).contains(&count.value),
            _ => true,
        };
        let known = |name: &str| environment.get(name).and_then(Entry::tensor);
        let follows = |(name, forms): (&String, &Vec<Form>)| match (known(name), mode) {
            (Some(tensor), Mode::Growing(count)) => is_at(tensor, forms, count.value),
            _ => false,
        };
        counts
            && self.part.followed.iter().all(follows)
            && self.part.frozen.iter().all(|(name, tensor)| known(name).is_some_and(|known| *known == **tensor))
    }

    fn counts(&self) -> Option<PartCounts> {
        let bounds = self.part.bounds.as_ref()?;
        Some(PartCounts { least: bounds.least, most: bounds.most, capacity: bounds.capacity })
    }

    /// Computes the part's values into the environment, and notes the times of its steps.
    pub(super) fn run(
        &self,
        environment: &mut Environment,
        mode: &Mode,
        memory: &Memory,
        profile: Option<&RefCell<Profile>>,
    ) -> Result<()> {
        for (name, tensor) in &self.part.constants {
            environment.insert_constant(name, tensor);
        }
        let note = |module: Option<&Arc<Module>>, times: &[Duration]| {
            if let Some(profile) = profile {
                profile.borrow_mut().add_part(self.counts(), &self.report, module, times);
            }
        };
        let Some(session) = &self.session else {
            note(None, &[]);
            return Ok(());
        };
        let bytes = self.run_bytes(session.module(), environment, mode)?;
        memory.reserve_part(std::ptr::from_ref(self).addr(), bytes, session.module().arena_bytes())?;
        let inputs = self.inputs(session, environment, mode)?;
        let views: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (*name, &**tensor)).collect();
        let mut outputs = session.outputs();
        match profile {
            None => session.run_into(&views, &mut outputs)?,
            Some(_) => note(Some(session.module()), &session.profile_into(&views, &mut outputs)?),
        }
        drop(inputs);
        for (i, (name, tensor)) in self.outputs.iter().zip(outputs).enumerate() {
            let (tensor, growth) = self.cut(i, tensor, mode);
            let tensor = Arc::new(tensor);
            memory.add(&tensor);
            environment.insert_growing(name, Value::Tensor(tensor), growth);
        }
        Ok(())
    }

    /// The output at this position, in its exact size, and the dimensions that follow the count.
    fn cut(&self, output: usize, tensor: Tensor, mode: &Mode) -> (Tensor, Option<Growth>) {
        let axes = self.part.bounds.as_ref().and_then(|bounds| bounds.outputs.get(output)).filter(|a| !a.is_empty());
        let (Some(axes), Mode::Growing(count)) = (axes, mode) else { return (tensor, None) };
        let growth = Growth { count: count.clone(), axes: axes.iter().map(|a| (a.axis, a.count)).collect() };
        let shape = exact_shape(&tensor.shape, axes, count.value);
        let exact = if shape == tensor.shape { tensor } else { resized(&tensor.view(), &shape) };
        (exact, Some(growth))
    }

    /// Bytes that a run makes beside the intermediate tensors: outputs at their capacities, and the inputs at theirs or,
    /// afterwards, the largest output in its exact size.
    fn run_bytes(&self, module: &Module, environment: &Environment, mode: &Mode) -> Result<u64> {
        let mut padded = 0u64;
        for name in &self.part.inputs {
            let wanted = module.inputs().iter().find(|input| input.name == *name);
            let tensor = environment.get(name).and_then(Entry::tensor);
            if let Some((wanted, _)) = wanted.zip(tensor).filter(|(wanted, tensor)| wanted.shape != tensor.shape) {
                padded = padded.saturating_add(memory::tensor_bytes(wanted.bytes()?));
            }
        }
        let (mut outputs, mut largest) = (0u64, 0);
        for (i, output) in module.outputs().iter().enumerate() {
            outputs = outputs.saturating_add(memory::tensor_bytes(output.tensor.bytes()?));
            let axes = self.part.bounds.as_ref().and_then(|bounds| bounds.outputs.get(i)).filter(|a| !a.is_empty());
            if let (Some(axes), Mode::Growing(count)) = (axes, mode) {
                let shape = exact_shape(&output.tensor.shape, axes, count.value);
                if shape != output.tensor.shape {
                    largest = largest.max(TensorSpec { shape, ..output.tensor.clone() }.bytes()?);
                }
            }
        }
        Ok(outputs.saturating_add(padded.max(largest)))
    }

    /// The inputs of the module, at its capacities.
    fn inputs<'a>(
        &'a self,
        session: &'a Session,
        environment: &'a Environment,
        mode: &Mode,
    ) -> Result<Vec<(&'a str, Cow<'a, Tensor>)>> {
        let mut inputs = vec![];
        for (i, name) in self.part.inputs.iter().enumerate() {
            let tensor = environment.get(name).and_then(Entry::tensor);
            let tensor = tensor.ok_or_else(|| Error::Internal(format!("`{name}` is not known when its part runs")))?;
            let axes: &[BoundedAxis] = self.part.bounds.as_ref().map_or(&[], |bounds| &bounds.inputs[i]);
            let wanted = session.module().inputs().iter().find(|input| input.name == *name);
            inputs.push(match wanted.filter(|wanted| !axes.is_empty() && wanted.shape != tensor.shape) {
                Some(wanted) => (name.as_str(), Cow::Owned(resized(&tensor.view(), &wanted.shape))),
                None => (name.as_str(), Cow::Borrowed(tensor)),
            });
        }
        if let (Some(bounds), Mode::Growing(count)) = (&self.part.bounds, mode) {
            inputs.push((bounds.input.as_str(), Cow::Owned(Tensor::new(&[], &[count.value]))));
        }
        Ok(inputs)
    }
}

/// Returns true if the elements of a tensor of integers are these forms of a count.
fn is_at(tensor: &Tensor, forms: &[Form], count: i64) -> bool {
    let expected = forms.iter().map(|form| form.at(count));
    match tensor.dtype {
        DType::I64 => tensor.to_vec::<i64>().into_iter().eq(expected),
        DType::I32 => tensor.to_vec::<i32>().into_iter().map(i64::from).eq(expected),
        _ => false,
    }
}
