//! State in place: an input and an output of a module that may be one memory.
//!
//! A step copies the input to the output, and steps after it write parts of the output. Where both are one memory the copy does
//! nothing. That is right where no step after it reads the input, and none before it touches the output.

use super::{Action, BufferPlace, BufferRef, Module, Step};

impl Module {
    /// Returns true if an input and an output may lie in one memory: the input's value before the run, the output's after it.
    pub fn may_share(&self, input: usize, output: usize) -> bool {
        let (Some(given), Some(made)) = (self.inputs().get(input), self.outputs().get(output)) else { return false };
        if (given.dtype, &given.shape) != (made.tensor.dtype, &made.tensor.shape) {
            return false;
        }
        let (from_place, to_place) = (BufferPlace::Input(input as u32), BufferPlace::Output(output as u32));
        let place = |buffer: BufferRef| self.place(buffer);
        let is_copy = |step: &Step| match step.action {
            Action::Copy { from, to } => {
                let whole = self.buffers()[to.0 as usize].bytes().ok() == made.tensor.bytes().ok();
                whole && place(from) == from_place && place(to) == to_place
            }
            _ => false,
        };
        let Some(copy) = self.steps().iter().position(is_copy) else { return false };
        let before = self.steps()[..copy].iter().any(|step| self.touches(step, to_place));
        let after = self.steps()[copy + 1..].iter().any(|step| self.touches(step, from_place));
        let is_source = self.outputs().iter().any(|o| place(o.source) == from_place);
        !before && !after && !is_source && place(made.source) == to_place
    }

    /// The place of a buffer, or of the whole that it is a window of.
    fn place(&self, mut buffer: BufferRef) -> BufferPlace {
        loop {
            match self.buffers()[buffer.0 as usize].place {
                BufferPlace::Window { of, .. } if of.0 < buffer.0 => buffer = of,
                place => return place,
            }
        }
    }

    /// Returns true if a step, or one inside of it, reads or writes a buffer in this place.
    fn touches(&self, step: &Step, place: BufferPlace) -> bool {
        let is = |buffer: &BufferRef| self.place(*buffer) == place;
        let own = match &step.action {
            Action::Kernel { arguments, .. } => arguments.iter().any(is),
            Action::Opaque { inputs, outputs, .. } => inputs.iter().chain(outputs).any(is),
            Action::Copy { from, to } => is(from) || is(to),
            Action::CheckIndices { tensor, .. } => is(tensor),
            Action::Loop { condition, carried, .. } => {
                condition.iter().any(is) || carried.iter().any(|c| [c.initial, c.current, c.next].iter().any(is))
            }
            Action::If { condition, .. } => is(condition),
        };
        own || step.action.inside().any(|(steps, _)| steps.iter().any(|step| self.touches(step, place)))
    }
}
