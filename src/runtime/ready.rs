//! The steps of a module with all that can be resolved before a run.
//!
//! In: a verified module and its code. Out: for each step what a session calls, the entries of all argument tables, and for each
//! loop the buffers that move with it.

use crate::executable::{Executable, PhaseFn};
use crate::module::{Action, BufferPlace, BufferRef, Module, Step};
use crate::opaque;
use crate::{Error, Result};

/// All steps of a module.
pub struct ReadySteps {
    pub list: Vec<ReadyStep>,
    /// The buffer of each entry of the argument tables, those of all kernel steps one after the other.
    pub table: Vec<BufferRef>,
    /// Of each step, in the order of [`Module::all_steps`]: true where it copies what kernels update in place.
    pub copies: Vec<bool>,
}

/// One step.
pub struct ReadyStep {
    /// Its place in the order of [`Module::all_steps`].
    pub number: usize,
    pub work: ReadyWork,
}

/// Work of a step.
pub enum ReadyWork {
    Kernel { phases: Vec<ReadyPhase>, table: usize },
    Opaque { function: opaque::Function },
    Copy,
    CheckIndices,
    Loop { windows: Vec<ReadyWindow>, carried: Vec<ReadyCarried>, body: Vec<ReadyStep> },
    If { lists: [Vec<ReadyStep>; 2] },
}

/// A phase of a kernel.
pub struct ReadyPhase {
    pub function: PhaseFn,
    pub parallel: Option<i64>,
    pub wave: Option<i64>,
}

/// Buffers of a carried value, and its bytes.
pub struct ReadyCarried {
    pub initial: usize,
    pub current: usize,
    pub next: usize,
    pub bytes: usize,
}

/// A buffer that moves with a loop.
pub struct ReadyWindow {
    pub buffer: usize,
    /// The buffer that it is a part of.
    pub of: usize,
    /// Bytes from the start of that buffer at the first time.
    pub offset: isize,
    /// Bytes from one time to the next.
    pub stride: isize,
    /// Entries of the argument tables that are this buffer.
    pub entries: Vec<usize>,
}

impl ReadySteps {
    /// Resolves the steps of a module.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a step calls a function that this runtime does not have.
    pub fn new(module: &Module, code: &Executable) -> Result<ReadySteps> {
        let mut steps = ReadySteps { list: vec![], table: vec![], copies: vec![] };
        steps.list = steps.resolve(module.steps(), module, code, true)?;
        Ok(steps)
    }

    /// `outermost`: the steps stand in no other step.
    fn resolve(
        &mut self,
        steps: &[Step],
        module: &Module,
        code: &Executable,
        outermost: bool,
    ) -> Result<Vec<ReadyStep>> {
        let mut ready = vec![];
        for step in steps {
            let number = self.copies.len();
            self.copies.push(outermost && matches!(step.action, Action::Copy { .. }));
            let work = match &step.action {
                Action::Kernel { kernel, arguments } => {
                    let phases = module.kernels()[*kernel as usize].phases.iter().map(|p| ReadyPhase {
                        function: code.phase(p.offset as usize),
                        parallel: p.parallel,
                        wave: p.wave,
                    });
                    let table = self.table.len();
                    self.table.extend(arguments);
                    ReadyWork::Kernel { phases: phases.collect(), table }
                }
                Action::Opaque { function, .. } => match opaque::lookup(function) {
                    Some(function) => ReadyWork::Opaque { function },
                    None => return Err(Error::Unsupported(format!("opaque function `{function}`"))),
                },
                Action::Copy { .. } => ReadyWork::Copy,
                Action::CheckIndices { .. } => ReadyWork::CheckIndices,
                Action::Loop { number, carried, body, .. } => {
                    let start = self.table.len();
                    let body = self.resolve(body, module, code, false)?;
                    let carried = carried.iter().map(|value| {
                        let [initial, current, next] = [value.initial, value.current, value.next].map(|b| b.0 as usize);
                        let bytes = module.buffers()[current].bytes()? as usize;
                        Ok(ReadyCarried { initial, current, next, bytes })
                    });
                    let carried = carried.collect::<Result<_>>()?;
                    ReadyWork::Loop { windows: self.windows(module, *number, start), carried, body }
                }
                Action::If { then, otherwise, .. } => {
                    let then = self.resolve(then, module, code, false)?;
                    ReadyWork::If { lists: [then, self.resolve(otherwise, module, code, false)?] }
                }
            };
            ready.push(ReadyStep { number, work });
        }
        Ok(ready)
    }

    /// The windows of a loop, in their order: each is part of an earlier buffer. `start` is the first entry of its body.
    fn windows(&self, module: &Module, loop_number: u32, start: usize) -> Vec<ReadyWindow> {
        let windows = module.buffers().iter().enumerate().filter_map(|(buffer, b)| match b.place {
            BufferPlace::Window { of, offset, stride, number } if number == loop_number => {
                let is_it = |entry: &usize| self.table[*entry].0 as usize == buffer;
                let entries = (start..self.table.len()).filter(is_it).collect();
                let (offset, stride) = (offset as isize, stride as isize);
                Some(ReadyWindow { buffer, of: of.0 as usize, offset, stride, entries })
            }
            _ => None,
        });
        windows.collect()
    }
}
