//! State in place: an input and an output of a module that may be one memory.
//!
//! A step copies the input to the output, and steps after it write parts of the output. Where both are one memory the copy does
//! nothing. That is right where no step after it reads the input, and none before it touches the output.

use super::{Action, BufferPlace, BufferRef, Module, Step};

impl Module {
    /// Returns true if an input and an output may lie in one memory: the input's value before the run, the output's after it.
    pub fn may_share(&self, input: usize, output: usize) -> bool {
        let (Some(read), Some(made)) = (self.inputs().get(input), self.outputs().get(output)) else { return false };
        if (read.dtype, &read.shape) != (made.tensor.dtype, &made.tensor.shape) {
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
        let direct = match &step.action {
            Action::Kernel { arguments, .. } => arguments.iter().any(is),
            Action::Opaque { inputs, outputs, .. } => inputs.iter().chain(outputs).any(is),
            Action::Copy { from, to } => is(from) || is(to),
            Action::CheckIndices { tensor, .. } => is(tensor),
            Action::Loop { condition, carried, .. } => {
                condition.iter().any(is) || carried.iter().any(|c| [c.initial, c.current, c.next].iter().any(is))
            }
            Action::If { condition, .. } => is(condition),
        };
        direct || step.action.inside().any(|(steps, _)| steps.iter().any(|step| self.touches(step, place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::{Buffer, ModuleParts, OutputSpec, TensorSpec};
    use crate::{DType, Session, Tensor};

    /// Two inputs, of which the first is copied to the output and then gets rows from the second at place 1.
    fn module(more_before: &[Action], more_after: &[Action]) -> Module {
        let buffer =
            |name: &str, dtype, shape: &[i64], place| Buffer { name: name.into(), dtype, shape: shape.into(), place };
        let spec = |name: &str, dtype, shape: &[i64]| TensorSpec { name: name.into(), dtype, shape: shape.into() };
        let copy = Action::Copy { from: BufferRef(0), to: BufferRef(3) };
        let write = Action::Opaque {
            function: crate::opaque::WRITE_ROWS.into(),
            attributes: vec![0],
            inputs: vec![BufferRef(1), BufferRef(2)],
            outputs: vec![BufferRef(3)],
        };
        let actions = more_before.iter().chain([&copy, &write]).chain(more_after);
        let step = |action: &Action| Step { name: "step".into(), flops: 0, action: action.clone() };
        let module = Module(ModuleParts {
            inputs: vec![spec("x", DType::F32, &[4]), spec("rows", DType::F32, &[2]), spec("place", DType::I64, &[])],
            outputs: vec![OutputSpec { tensor: spec("y", DType::F32, &[4]), source: BufferRef(3) }],
            buffers: vec![
                buffer("x", DType::F32, &[4], BufferPlace::Input(0)),
                buffer("rows", DType::F32, &[2], BufferPlace::Input(1)),
                buffer("place", DType::I64, &[], BufferPlace::Input(2)),
                buffer("y", DType::F32, &[4], BufferPlace::Output(0)),
                buffer("other", DType::F32, &[4], BufferPlace::Arena(0)),
            ],
            arena_bytes: 64,
            steps: actions.map(step).collect(),
            platform: crate::Platform::host(),
            ..ModuleParts::default()
        });
        module.verify().unwrap();
        module
    }

    #[test]
    fn a_state_that_nothing_else_reads_is_written_in_place() {
        let read = Action::Copy { from: BufferRef(0), to: BufferRef(4) };
        let write = Action::Copy { from: BufferRef(4), to: BufferRef(3) };
        assert!(module(&[], &[]).may_share(0, 0));
        assert!(module(std::slice::from_ref(&read), &[]).may_share(0, 0), "it may be read before");
        assert!(!module(&[], &[read]).may_share(0, 0), "read behind the copy");
        assert!(!module(&[write], &[]).may_share(0, 0), "written before the copy");
        for (input, output) in [(1, 0), (2, 0), (0, 1), (7, 0)] {
            assert!(!module(&[], &[]).may_share(input, output));
        }
    }

    #[test]
    fn one_memory_gives_the_results_of_two() {
        let session = Session::new(module(&[], &[]).into(), 1).unwrap();
        let (x, rows) = (Tensor::new(&[4], &[1f32, 2.0, 3.0, 4.0]), Tensor::new(&[2], &[8f32, 9.0]));
        let place = |place: i64| Tensor::new(&[], &[place]);
        let first = place(1);
        let expected = session.run(&[("x", &x), ("rows", &rows), ("place", &first)]).unwrap();
        assert_eq!(expected[0].to_vec::<f32>(), [1.0, 8.0, 9.0, 4.0]);
        let mut state = [x.clone()];
        session.run_in_place(&[("rows", &rows), ("place", &first)], &mut state, &[(0, 0)]).unwrap();
        assert_eq!(state[0], expected[0]);
        session.run_in_place(&[("rows", &rows), ("place", &place(2))], &mut state, &[(0, 0)]).unwrap();
        assert_eq!(state[0].to_vec::<f32>(), [1.0, 8.0, 8.0, 9.0]);
        let inputs = [("x", &x), ("rows", &rows), ("place", &first)];
        let wrong = session.run_in_place(&inputs, &mut state, &[(0, 0)]).unwrap_err().to_string();
        assert!(wrong.contains("input `x` cannot have the memory of output 0"), "{wrong}");
        assert!(session.run_in_place(&inputs[1..], &mut state, &[(0, 0), (0, 0)]).is_err());
        assert!(session.run_in_place(&inputs[..1], &mut state, &[(1, 0), (2, 0)]).is_err());
        let outside = session.run_in_place(&[("rows", &rows), ("place", &place(3))], &mut state, &[(0, 0)]);
        assert!(outside.unwrap_err().to_string().contains("do not fit"));
    }
}
