//! Checks of a module: indices, offsets, lengths, and that no step writes over what it reads.

use super::{
    Action, BufferPlace, BufferRef, Carried, MAX_DEPTH, Module, ModuleParts, OutputSpec, Phase, Step, TensorSpec,
};
use crate::bounds::{BoundedAxis, Form};
use crate::{DType, Error, Result, opaque};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

impl Module {
    /// Checks that every index, offset and length lies where it must.
    ///
    /// # Errors
    /// [`Error::Invalid`] at the first index, offset or length that does not.
    pub fn verify(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", self.0.name)));
        if self.0.arena_bytes > isize::MAX as u64 {
            return wrong(format!("an arena of {} bytes", self.0.arena_bytes));
        }
        if self.scratch_bytes() > isize::MAX as u64 {
            return wrong(format!("scratch memory of {} bytes", self.scratch_bytes()));
        }
        for kernel in &self.0.kernels {
            let inside = |p: &Phase| p.offset.checked_add(p.bytes).is_some_and(|end| end <= self.0.code.len() as u64);
            if !kernel.phases.iter().all(|p| p.bytes > 0 && inside(p)) {
                return wrong(format!("kernel `{}` lies outside of the code", kernel.name));
            }
            if kernel.phases.iter().any(|p| p.parallel.is_some_and(|n| n < 0)) {
                return wrong(format!("kernel `{}` has a negative number of iterations", kernel.name));
            }
            if kernel.phases.iter().any(|p| p.wave.is_some_and(|n| n < 1)) {
                return wrong(format!("kernel `{}` has waves of no iterations", kernel.name));
            }
        }
        let mut names = BTreeSet::new();
        for spec in &self.0.inputs {
            spec.bytes()?;
            if !names.insert(&spec.name) {
                return wrong(format!("two inputs `{}`", spec.name));
            }
        }
        let mut loops = BTreeMap::new();
        self.number_loops(&self.0.steps, 0, &mut loops)?;
        let mut extents: Vec<Extent> = vec![];
        for buffer in &self.0.buffers {
            let bytes = buffer.bytes()?;
            let fits = match buffer.place {
                BufferPlace::Input(i) => {
                    self.0.inputs.get(i as usize).is_some_and(|s| s.bytes().is_ok_and(|b| bytes <= b))
                }
                BufferPlace::Output(i) => {
                    self.0.outputs.get(i as usize).is_some_and(|s| s.tensor.bytes().is_ok_and(|b| bytes <= b))
                }
                BufferPlace::Arena(offset) => offset.checked_add(bytes).is_some_and(|end| end <= self.0.arena_bytes),
                BufferPlace::Weights(offset) => self.0.weights.get(offset, bytes).is_some(),
                BufferPlace::Window { .. } => true,
            };
            let extent = if fits { Extent::new(buffer.place, bytes, &extents, &loops) } else { None };
            let Some(extent) = extent else {
                return wrong(format!("buffer `{}` lies outside of {:?}", buffer.name, buffer.place));
            };
            extents.push(extent);
        }
        let checker = Checker { parts: &self.0, extents };
        for output in &self.0.outputs {
            let bytes = output.tensor.bytes()?;
            if checker.extent(output.source, &[])?.bytes != bytes {
                return wrong(format!("output `{}` has no value of its size", output.tensor.name));
            }
        }
        if let Some(initial) = &self.0.initial {
            let input = |o: &OutputSpec| self.0.inputs.contains(&o.tensor);
            if !initial.inputs().is_empty() || initial.initial().is_some() || !initial.outputs().iter().all(input) {
                return wrong("initial values of something else than its inputs".into());
            }
            initial.verify()?;
        }
        self.verify_bounds()?;
        checker.steps(&self.0.steps, &mut vec![])?;
        self.verify_bindings()
    }

    /// Checks the modules for other sizes of the dynamic dimensions.
    fn verify_bindings(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", self.0.name)));
        let names = |module: &Module| module.inputs().iter().map(|i| (i.name.clone(), i.dtype)).collect::<Vec<_>>();
        let outputs = |module: &Module| {
            let specs = module.outputs().iter().map(|o| &o.tensor);
            specs.map(|spec| (spec.name.clone(), spec.dtype)).collect::<Vec<_>>()
        };
        let mut dims = BTreeSet::from([self.dims()]);
        for other in &self.0.others {
            let alike = names(other) == names(self) && outputs(other) == outputs(self);
            if !alike || other.0.target != self.0.target || other.0.platform != self.0.platform {
                return wrong("bindings of different models");
            }
            if !other.0.others.is_empty() || other.0.initial.is_some() || self.0.initial.is_some() {
                return wrong("bindings with initial values or with bindings of their own");
            }
            if !dims.insert(other.dims()) {
                return wrong("two bindings of equal sizes");
            }
            other.verify()?;
        }
        Ok(())
    }

    /// Checks that capacities fit the inputs and outputs, and hold each count.
    fn verify_bounds(&self) -> Result<()> {
        let Some(bounds) = &self.0.bounds else { return Ok(()) };
        let outputs = self.0.outputs.iter().map(|o| &o.tensor);
        let specs: Vec<_> = self.0.inputs.iter().chain(outputs).collect();
        let axes: Vec<_> = bounds.inputs.iter().chain(&bounds.outputs).collect();
        let holds = |count: Form| {
            let ends = [bounds.least, bounds.most].map(|n| (0..=bounds.capacity).contains(&count.at(n)));
            count.factor != 0 && ends == [true; 2]
        };
        let fits = |(spec, axes): (&&TensorSpec, &&Vec<BoundedAxis>)| {
            axes.iter().all(|a| spec.shape.get(a.axis) == Some(&bounds.capacity) && holds(a.count))
        };
        let count = self.0.inputs.iter().find(|spec| spec.name == bounds.input);
        let has_count = count.is_some_and(|spec| spec.dtype == DType::I64 && spec.shape.is_empty());
        let numbers = (bounds.inputs.len(), bounds.outputs.len()) == (self.0.inputs.len(), self.0.outputs.len());
        if has_count && numbers && (0..=bounds.most).contains(&bounds.least) && specs.iter().zip(&axes).all(fits) {
            return Ok(());
        }
        Err(Error::Invalid(format!("inconsistent module `{}`: its capacities do not fit", self.0.name)))
    }

    /// The times of each loop, by its number.
    fn number_loops(&self, steps: &[Step], depth: usize, loops: &mut BTreeMap<u32, u64>) -> Result<()> {
        let wrong = |what: &str| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", self.0.name)));
        if depth > MAX_DEPTH {
            return wrong("steps are nested too deeply");
        }
        for step in steps {
            if let Action::Loop { number, trips, .. } = step.action
                && (trips == 0 || trips > i64::MAX as u64 || loops.insert(number, trips).is_some())
            {
                return wrong("a loop without a number or times of its own");
            }
            step.action.inside().try_for_each(|(steps, _)| self.number_loops(steps, depth + 1, loops))?;
        }
        Ok(())
    }
}

/// Checks steps of a module whose buffers were checked.
struct Checker<'m> {
    parts: &'m ModuleParts,
    /// Of each buffer.
    extents: Vec<Extent>,
}

impl Checker<'_> {
    /// `open` are the loops around the steps.
    fn steps(&self, steps: &[Step], open: &mut Vec<u32>) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step, open))
    }

    fn step(&self, step: &Step, open: &mut Vec<u32>) -> Result<()> {
        let wrong = |what: &str| Err(Error::Invalid(format!("inconsistent module `{}`: {what}", step.name)));
        match &step.action {
            Action::Kernel { kernel, arguments } => {
                let Some(kernel) = self.parts.kernels.get(*kernel as usize) else { return wrong("no such kernel") };
                if kernel.slots.len() != arguments.len() {
                    return wrong("arguments and slots differ in number");
                }
                let extents = arguments.iter().map(|&a| self.extent(a, open)).collect::<Result<Vec<_>>>()?;
                if extents.iter().zip(&kernel.slots).any(|(e, s)| e.bytes < s.bytes) {
                    return wrong("an argument is smaller than its slot");
                }
                disjoint(step, extents.iter().zip(&kernel.slots).map(|(e, s)| (*e, s.written)))
            }
            Action::Opaque { function, attributes: _, inputs, outputs } => {
                if opaque::lookup(function).is_none() {
                    return wrong(&format!("no opaque function `{function}`"));
                }
                if inputs.len() > opaque::MAX_OPERANDS || outputs.len() > opaque::MAX_OPERANDS {
                    return wrong("too many operands");
                }
                let inputs = inputs.iter().map(|&a| self.extent(a, open)).collect::<Result<Vec<_>>>()?;
                let outputs = outputs.iter().map(|&a| self.extent(a, open)).collect::<Result<Vec<_>>>()?;
                disjoint(step, inputs.iter().map(|e| (*e, false)).chain(outputs.iter().map(|e| (*e, true))))
            }
            Action::Copy { from, to } => {
                let (from, to) = (self.extent(*from, open)?, self.extent(*to, open)?);
                if from.bytes != to.bytes {
                    return wrong("a copy between buffers of different sizes");
                }
                disjoint(step, [(from, false), (to, true)].into_iter())
            }
            Action::CheckIndices { tensor, stride, .. } => {
                self.extent(*tensor, open)?;
                match self.parts.buffers[tensor.0 as usize].dtype {
                    _ if *stride == 0 => wrong("a stride of 0"),
                    dtype if dtype.is_integer() || dtype == DType::Bool => Ok(()),
                    _ => wrong("subscripts that are not integers"),
                }
            }
            Action::Loop { number, trips: _, condition, carried, body } => {
                condition.iter().try_for_each(|&c| self.condition(c, open))?;
                open.push(*number);
                self.carried(step, carried, open)?;
                self.steps(body, open)?;
                open.pop();
                Ok(())
            }
            Action::If { condition, then, otherwise } => {
                self.condition(*condition, open)?;
                self.steps(then, open)?;
                self.steps(otherwise, open)
            }
        }
    }

    /// The extent of a buffer for a step inside of the loops `open`.
    fn extent(&self, buffer: BufferRef, open: &[u32]) -> Result<&Extent> {
        let name = &self.parts.name;
        let Some(extent) = self.extents.get(buffer.0 as usize) else {
            return Err(Error::Invalid(format!("inconsistent module `{name}`: no buffer {}", buffer.0)));
        };
        if extent.moves.iter().any(|number| !open.contains(number)) {
            return Err(Error::Invalid(format!("inconsistent module `{name}`: a window outside of its loop")));
        }
        Ok(extent)
    }

    /// Checks that a buffer holds one bool.
    fn condition(&self, buffer: BufferRef, open: &[u32]) -> Result<()> {
        let extent = self.extent(buffer, open)?;
        if extent.bytes == 0 || self.parts.buffers[buffer.0 as usize].dtype != DType::Bool {
            return Err(Error::Invalid(format!(
                "inconsistent module `{}`: a condition that is not a bool",
                self.parts.name
            )));
        }
        Ok(())
    }

    /// Checks the values that a loop carries: no copy writes over what another one reads.
    fn carried(&self, step: &Step, carried: &[Carried], open: &[u32]) -> Result<()> {
        let mut extents: Vec<(&Extent, bool)> = vec![];
        for value in carried {
            // Only the next value may move with this loop.
            let outside = &open[..open.len() - 1];
            let (initial, current) = (self.extent(value.initial, outside)?, self.extent(value.current, outside)?);
            let next = self.extent(value.next, open)?;
            if initial.bytes != current.bytes || next.bytes != current.bytes {
                return Err(Error::Invalid(format!(
                    "inconsistent module `{}`: a carried value changes its size",
                    step.name
                )));
            }
            extents.extend([(initial, false), (current, true), (next, false)]);
        }
        disjoint(step, extents.into_iter())
    }
}

/// Memory that buffers are parts of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Region {
    Input(u32),
    Output(u32),
    Arena,
    Weights,
}

/// Where a buffer lies.
struct Extent {
    region: Region,
    /// Bytes of the region that it touches at any time.
    range: Range<u64>,
    /// Size of the buffer.
    bytes: u64,
    /// Of a window: the buffer, the loop and the stride; and its bytes at the first step.
    window: Option<(BufferRef, u32, i64, Range<u64>)>,
    /// The loops that move it.
    moves: Vec<u32>,
}

impl Extent {
    /// The extent of a buffer of so many bytes; `None` for a window that leaves its buffer or belongs to no loop.
    fn new(place: BufferPlace, bytes: u64, earlier: &[Extent], loops: &BTreeMap<u32, u64>) -> Option<Extent> {
        let still = |region, start: u64| {
            Some(Extent { region, range: start..start.checked_add(bytes)?, bytes, window: None, moves: vec![] })
        };
        let (of, offset, stride, number) = match place {
            BufferPlace::Input(i) => return still(Region::Input(i), 0),
            BufferPlace::Output(i) => return still(Region::Output(i), 0),
            BufferPlace::Arena(start) => return still(Region::Arena, start),
            BufferPlace::Weights(start) => return still(Region::Weights, start),
            BufferPlace::Window { of, offset, stride, number } => (of, offset, stride, number),
        };
        let whole = earlier.get(of.0 as usize)?;
        let last = offset as i128 + stride as i128 * (*loops.get(&number)? as i128 - 1);
        let (low, high) = (last.min(offset as i128), last.max(offset as i128) + bytes as i128);
        if low < 0 || high > whole.bytes as i128 {
            return None;
        }
        let (low, high) = (low as u64, high as u64);
        Some(Extent {
            region: whole.region,
            range: whole.range.start + low..whole.range.end - (whole.bytes - high),
            bytes,
            window: Some((of, number, stride, offset..offset + bytes)),
            moves: [&whole.moves[..], &[number]].concat(),
        })
    }

    /// Returns true if the two may share a byte at one time.
    fn overlaps(&self, other: &Extent) -> bool {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        if self.bytes == 0 || other.bytes == 0 || self.region != other.region || !meet(&self.range, &other.range) {
            return false;
        }
        match (&self.window, &other.window) {
            // Windows that move together keep their distance.
            (Some((of, number, stride, range)), Some((of2, number2, stride2, range2))) => {
                (of, number, stride) != (of2, number2, stride2) || meet(range, range2)
            }
            _ => true,
        }
    }
}

/// Checks that buffers that a step writes are writable and overlap no other buffer of the step.
fn disjoint<'a>(step: &Step, extents: impl Iterator<Item = (&'a Extent, bool)>) -> Result<()> {
    let extents: Vec<(&Extent, bool)> = extents.collect();
    for (i, (a, written)) in extents.iter().enumerate().filter(|(_, e)| e.1) {
        let readable_only = matches!(a.region, Region::Input(_) | Region::Weights);
        if *written && (readable_only || extents.iter().enumerate().any(|(j, (b, _))| i != j && a.overlaps(b))) {
            return Err(Error::Invalid(format!("inconsistent module: step `{}` writes over what it reads", step.name)));
        }
    }
    Ok(())
}
