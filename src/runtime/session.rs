//! Session: a module made ready to run on this processor, with its threads.
//!
//! In: named input tensors. Out: the outputs in the model's order. A session may be shared by many threads at once: each
//! run takes an arena and scratch memory of its own from a free list; a run that finds some there allocates nothing. Several
//! sessions may share a pool of threads. The bits of the results depend neither on the number of threads, nor on what else
//! runs, nor on the caller's floating-point mode.

mod counted;
mod memory;

use crate::check_indices::check_indices;
use crate::error::{guard, unknown};
use crate::executable::{Executable, PhaseFn};
use crate::module::{Action, BufferPlace, BufferRef, MAX_TRIPS, Step};
use crate::opaque::{self, MAX_OPERANDS, View, ViewMut};
use crate::pool::{Crew, Pool};
use crate::ready::{ReadyStep, ReadySteps, ReadyWork};
use crate::symbols::Symbols;
use crate::tensor::{AsView, AsViewMut, TensorView};
use crate::tensor_check::{check_tensor, shown};
use crate::{DType, Error, Result, Tensor};
use memory::Memory;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use crate::module::Module;

/// A module made ready to run. Many threads may run it at once; many sessions may share a [`Pool`](crate::Pool).
///
/// ```
/// use std::sync::Arc;
/// use tilewright_runtime::{Module, Pool, Session, TensorView, TensorViewMut};
/// # use tilewright_runtime::{DType, Platform, module::*};
/// # let spec = |name: &str| TensorSpec { name: name.into(), dtype: DType::F32, shape: vec![2] };
/// # let buffer = Buffer { name: "x".into(), dtype: DType::F32, shape: vec![2], place: BufferPlace::Input(0) };
/// # let parts = ModuleParts {
/// #     platform: Platform::host(),
/// #     inputs: vec![spec("x")],
/// #     outputs: vec![OutputSpec { tensor: spec("y"), source: BufferRef(0) }],
/// #     buffers: vec![buffer],
/// #     ..ModuleParts::default()
/// # };
/// # // SAFETY: there is no code.
/// # let module = unsafe { Module::new(parts) }?;
///
/// // `module` returns its input `x`, two f32 elements
/// let pool = Arc::new(Pool::new(2)?);
/// let session = Session::with_pool(Arc::new(module), pool.clone())?;
/// let (x, mut y) = ([1f32, 2.0], [0f32; 2]);
/// session.run_into(&[("x", TensorView::new(&[2], &x))], &mut [TensorViewMut::new(&[2], &mut y)])?;
/// assert_eq!(y, x);
/// # Ok::<(), tilewright_runtime::Error>(())
/// ```
pub struct Session {
    module: Arc<Module>,
    pool: Arc<Pool>,
    steps: ReadySteps,
    /// Scratch memory of one thread.
    scratch_bytes: usize,
    /// Bytes of the arena, in whole pages.
    arena_bytes: usize,
    /// Addresses for runs, each used by one at a time.
    free: Mutex<Vec<Memory>>,
    /// Sessions of the module's other bindings.
    others: Vec<Session>,
    /// Names of the code's parts; dropped before it.
    _symbols: Symbols,
    /// The code that `steps` points to.
    _code: Executable,
}

impl Session {
    /// Makes a module ready to run on `threads` threads (0 counts as 1). Refuses a module for another processor.
    /// Where the system has fewer threads to give, it runs on those; [`Session::threads`] says on how many.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the module is for another processor; [`Error::Limit`] for more than
    /// [`MAX_THREADS`](crate::MAX_THREADS) threads; [`Error::Invalid`] where the module is inconsistent; [`Error::Io`]
    /// where the system has no memory for code.
    pub fn new(module: Arc<Module>, threads: usize) -> Result<Session> {
        Session::with_pool(module, Arc::new(Pool::new(threads)?))
    }

    /// Makes a module ready to run on the threads of `pool`, which other sessions may use too. Of runs at the same time one
    /// has the pool's workers, the others run on their callers' threads alone.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_pool(module: Arc<Module>, pool: Arc<Pool>) -> Result<Session> {
        guard(|| Session::prepare(module, pool))
    }

    fn prepare(module: Arc<Module>, pool: Arc<Pool>) -> Result<Session> {
        module.verify()?;
        module.check_host()?;
        let code = Executable::new(module.code())?;
        let steps = ReadySteps::new(&module, &code)?;
        let symbols = Symbols::new(&module, &code)?;
        let scratch_bytes = page_multiple(module.scratch_bytes(), pool.threads())?;
        let arena_bytes = page_multiple(module.arena_bytes(), 1)?;
        if arena_bytes.checked_add(scratch_bytes * pool.threads()).is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::Limit(format!("a run needs {arena_bytes} bytes and {scratch_bytes} for each thread")));
        }
        let prepare = |other: &Arc<Module>| Session::prepare(other.clone(), pool.clone());
        let others = module.0.others.iter().map(prepare).collect::<Result<_>>()?;
        let free = Mutex::new(vec![]);
        Ok(Session { pool, steps, scratch_bytes, arena_bytes, others, free, _symbols: symbols, _code: code, module })
    }

    /// The module that runs here.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The threads, for another session.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Number of threads of one run.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The session of the module's binding that has the shapes of these inputs; of none, the first one.
    pub fn binding<I: AsView>(&self, inputs: &[(&str, I)]) -> &Session {
        let fits = |session: &&Session| {
            let input = |name: &str| inputs.iter().find(|input| input.0 == name);
            if session.module.bounds().is_some() {
                return session.takes(inputs);
            }
            session.module.inputs().iter().all(|i| input(&i.name).is_some_and(|g| g.1.view().shape == i.shape))
        };
        if self.others.is_empty() {
            return self;
        }
        std::iter::once(self).chain(&self.others).find(fits).unwrap_or(self)
    }

    /// Runs the model on inputs given by name, in any order. The outputs come in the model's order. A module with capacities
    /// ([`Module::bounds`]) takes and returns tensors of exact sizes here, unless the input that holds the count is given too.
    ///
    /// # Errors
    /// [`Error::Invalid`] where an input or output is missing, unknown, given twice or of another type or shape, or
    /// where a subscript from data lies outside of its tensor; [`Error::Limit`] where a loop does not end; [`Error::Io`] where
    /// the system has no memory for the run; [`Error::Internal`] at a panic.
    pub fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        let session = self.binding(inputs);
        if let Some(bounds) = session.module.bounds().filter(|b| !inputs.iter().any(|i| i.0 == b.input)) {
            return session.run_exact(bounds, inputs);
        }
        let mut outputs = session.outputs();
        session.run_into(inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// Tensors of the right types and shapes for [`Session::run_into`]; of several bindings those of the first one.
    pub fn outputs(&self) -> Vec<Tensor> {
        self.module.outputs().iter().map(|o| Tensor::zeros(o.tensor.dtype, &o.tensor.shape)).collect()
    }

    /// As [`Session::run`], into existing tensors of the outputs' types and shapes: owned ones, references or views. Kernels
    /// read and write the tensors' own memory, nothing is copied but outputs that no kernel computes.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into<I: AsView, O: AsViewMut>(&self, inputs: &[(&str, I)], outputs: &mut [O]) -> Result<()> {
        self.binding(inputs).execute(inputs, outputs, &[], |_| {})
    }

    /// As [`Session::run_into`]; returns the time it took, without that of the copies of what kernels update in place.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn time_into<I: AsView, O: AsViewMut>(&self, inputs: &[(&str, I)], outputs: &mut [O]) -> Result<Duration> {
        let session = self.binding(inputs);
        let start = Instant::now();
        let (mut copying, mut before) = (Duration::ZERO, start);
        let mut after_copy = false;
        session.execute(inputs, outputs, &[], |step| {
            let is_copy = session.steps.copies.get(step).is_some_and(|&copies| copies);
            if after_copy || is_copy {
                let now = Instant::now();
                if after_copy {
                    copying += now - before;
                }
                before = now;
            }
            after_copy = is_copy;
        })?;
        Ok(start.elapsed() - copying)
    }

    /// The values of those inputs that have initial values, in no particular order.
    ///
    /// # Errors
    /// As [`Session::new`] and [`Session::run`].
    pub fn initial_values(&self) -> Result<Vec<(String, Tensor)>> {
        let Some(initial) = self.module.initial() else { return Ok(vec![]) };
        let values = Session::with_pool(initial.clone(), self.pool.clone())?.run(&[])?;
        Ok(initial.outputs().iter().map(|o| o.tensor.name.clone()).zip(values).collect())
    }

    /// Runs the model and returns the time of each step of the module, in the order of
    /// [`Module::all_steps`](crate::Module::all_steps): of a step inside of a loop that of all its runs, and of a loop the time
    /// that its steps do not take.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Duration>> {
        let session = self.binding(inputs);
        session.profile_into(inputs, &mut session.outputs())
    }

    /// As [`Session::profile`], into outputs in the module's order.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile_into<I: AsView, O: AsViewMut>(
        &self,
        inputs: &[(&str, I)],
        outputs: &mut [O],
    ) -> Result<Vec<Duration>> {
        let session = self.binding(inputs);
        let mut times = vec![Duration::ZERO; session.steps.copies.len()];
        let mut before = None;
        session.execute(inputs, outputs, &[], |step| {
            let now = Instant::now();
            if let Some((running, before)) = before.replace((step, now)) {
                times[running] += now - before;
            }
        })?;
        Ok(times)
    }

    /// `shared` are inputs that have the memory of an output. `tick(i)` is called before step i of all steps, after each time of a
    /// loop with the loop's number, and once after the last one with the number of steps.
    fn execute<I: AsView, O: AsViewMut>(
        &self,
        inputs: &[(&str, I)],
        outputs: &mut [O],
        shared: &[(usize, usize)],
        tick: impl FnMut(usize),
    ) -> Result<()> {
        guard(|| self.perform_all(inputs, outputs, shared, tick))
    }

    fn perform_all<I: AsView, O: AsViewMut>(
        &self,
        inputs: &[(&str, I)],
        outputs: &mut [O],
        shared: &[(usize, usize)],
        mut tick: impl FnMut(usize),
    ) -> Result<()> {
        let mut pages = self.pool.memory.take(self.arena_bytes + self.scratch_bytes * self.pool.threads())?;
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut memory = free.unwrap_or_else(|| self.addresses());
        self.place(&mut memory, pages.as_mut_ptr());
        let mut result = self.bind(&mut memory, inputs, outputs, shared);
        if result.is_ok() {
            let mut crew = self.pool.enter();
            result = self.perform_steps(self.module.steps(), &self.steps.list, &mut memory, &mut crew, &mut tick);
            tick(self.steps.copies.len());
        }
        if result.is_ok() {
            self.copy_outputs(&memory, outputs);
        }
        self.free.lock().unwrap_or_else(|e| e.into_inner()).push(memory);
        self.pool.memory.give(pages);
        result
    }

    /// Refuses inputs that the model does not have.
    fn check_names<I>(&self, inputs: &[(&str, I)]) -> Result<()> {
        let specs = self.module.inputs();
        for (i, (name, _)) in inputs.iter().enumerate() {
            if !specs.iter().any(|s| s.name == *name) {
                let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
                return Err(Error::Invalid(unknown("input", name, &names)));
            }
            if inputs[..i].iter().any(|(other, _)| other == name) {
                return Err(Error::Invalid(format!("input `{name}` is given twice")));
            }
        }
        Ok(())
    }

    /// Adds the bindings that there are to the refusal of an input.
    fn with_bindings(&self, error: Error) -> Error {
        match error {
            Error::Invalid(reason) if !self.others.is_empty() => {
                Error::Invalid(format!("{reason}; the module has the bindings {}", self.module.binding_names()))
            }
            other => other,
        }
    }

    /// Refuses another value of an input that decided shapes.
    fn check_value(&self, name: &str, value: &TensorView) -> Result<()> {
        match self.module.values().get(name) {
            Some(bound) if bound.data[..] != *value.data => Err(Error::Invalid(format!(
                "input `{name}` decides shapes and has another value than the module was compiled for"
            ))),
            _ => Ok(()),
        }
    }

    /// Addresses for one more run at a time.
    fn addresses(&self) -> Memory {
        let constant =
            |offset: u64, bytes: u64| self.module.weights().get(offset, bytes).map(|w| w.as_ptr().cast_mut());
        let buffers = self.module.buffers().iter().map(|buffer| match buffer.place {
            BufferPlace::Weights(offset) => buffer.bytes().ok().and_then(|bytes| constant(offset, bytes)),
            _ => None,
        });
        Memory {
            buffers: buffers.map(|address| address.unwrap_or(std::ptr::null_mut())).collect(),
            inputs: vec![std::ptr::null(); self.module.inputs().len()],
            outputs: vec![std::ptr::null_mut(); self.module.outputs().len()],
            tables: vec![std::ptr::null_mut(); self.steps.table.len()],
            arena: std::ptr::null_mut(),
            scratch: std::ptr::null_mut(),
        }
    }

    /// Moves the arena and the scratch memory of a run to an address.
    fn place(&self, memory: &mut Memory, arena: *mut u8) {
        if memory.arena == arena {
            return;
        }
        (memory.arena, memory.scratch) = (arena, arena.wrapping_add(self.arena_bytes));
        for (buffer, address) in self.module.buffers().iter().zip(&mut memory.buffers) {
            if let BufferPlace::Arena(offset) = buffer.place {
                *address = arena.wrapping_add(offset as usize);
            }
        }
    }

    /// Sets the addresses of this run's inputs and outputs, which it checks.
    fn bind<I: AsView, O: AsViewMut>(
        &self,
        memory: &mut Memory,
        inputs: &[(&str, I)],
        outputs: &mut [O],
        shared: &[(usize, usize)],
    ) -> Result<()> {
        self.check_names(inputs)?;
        for (i, (spec, address)) in self.module.inputs().iter().zip(&mut memory.inputs).enumerate() {
            if shared.iter().any(|s| s.0 == i) {
                continue;
            }
            let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == spec.name) else {
                return Err(Error::Invalid(format!("input `{}` is missing ({})", spec.name, shown(spec))));
            };
            check_tensor("input", spec, &tensor.view()).map_err(|e| self.with_bindings(e))?;
            self.check_value(&spec.name, &tensor.view())?;
            self.check_count(&spec.name, &tensor.view())?;
            *address = tensor.view().data.as_ptr();
        }
        let specs = self.module.outputs();
        if outputs.len() != specs.len() {
            return Err(Error::Invalid(format!("{} outputs given, the model has {}", outputs.len(), specs.len())));
        }
        for ((spec, tensor), address) in specs.iter().zip(outputs).zip(&mut memory.outputs) {
            check_tensor("output", &spec.tensor, &tensor.view())?;
            *address = tensor.view_mut().data.as_mut_ptr();
        }
        for &(input, output) in shared {
            memory.inputs[input] = memory.outputs[output].cast_const();
        }
        for (buffer, address) in self.module.buffers().iter().zip(&mut memory.buffers) {
            match buffer.place {
                BufferPlace::Input(i) => *address = memory.inputs[i as usize].cast_mut(),
                BufferPlace::Output(i) => *address = memory.outputs[i as usize],
                BufferPlace::Arena(_) | BufferPlace::Weights(_) | BufferPlace::Window { .. } => {}
            }
        }
        for (entry, argument) in memory.tables.iter_mut().zip(&self.steps.table) {
            *entry = memory.buffers[argument.0 as usize];
        }
        Ok(())
    }

    fn perform_steps<T: FnMut(usize)>(
        &self,
        steps: &[Step],
        ready: &[ReadyStep],
        memory: &mut Memory,
        crew: &mut Crew,
        tick: &mut T,
    ) -> Result<()> {
        for (step, ready) in steps.iter().zip(ready) {
            tick(ready.number);
            match (&ready.work, &step.action) {
                (ReadyWork::Loop { .. }, _) => self.perform_loop(step, ready, memory, crew, tick)?,
                (ReadyWork::If { lists }, Action::If { condition, then, otherwise }) => {
                    let (steps, ready) =
                        if self.holds(*condition, memory) { (then, &lists[0]) } else { (otherwise, &lists[1]) };
                    self.perform_steps(steps, ready, memory, crew, tick)?;
                }
                (work, _) => self.perform(step, work, memory, crew)?,
            }
        }
        Ok(())
    }

    fn perform(&self, step: &Step, work: &ReadyWork, memory: &Memory, crew: &mut Crew) -> Result<()> {
        match (work, &step.action) {
            (ReadyWork::Kernel { phases, table }, Action::Kernel { .. }) => {
                let call = Call {
                    arguments: memory.tables[*table..].as_ptr(),
                    scratch: memory.scratch,
                    scratch_bytes: self.scratch_bytes,
                };
                for phase in phases {
                    match phase.parallel {
                        // SAFETY: the code was made by this compiler, in this process or for a file that its loader vouched
                        // for (`Module::load`), and keeps to its slots. The module is verified: each argument is as large as
                        // its slot says, what is written overlaps nothing else of the step, and lies in this run's arena or
                        // in the caller's output tensors, which are borrowed mutably for the run. Inputs and weights are
                        // only read; an input that has the memory of an output is not read once that is written
                        // (`Module::may_share`). Each thread has its own scratch.
                        None => unsafe { call.phase(phase.function, 0, 1, 0) },
                        Some(count) => {
                            let width = phase.wave.unwrap_or(count).max(1);
                            for start in (0..count).step_by(width as usize) {
                                // SAFETY: as above; iterations of one wave write nothing that another one of it touches.
                                crew.run(width.min(count - start), &|first, last, thread| unsafe {
                                    call.phase(phase.function, start + first, start + last, thread);
                                })?
                            }
                        }
                    }
                }
                Ok(())
            }
            (ReadyWork::Opaque { function }, Action::Opaque { attributes, inputs, outputs, .. }) => {
                let done = self.perform_opaque(*function, attributes, inputs, outputs, memory);
                done.map_err(|e| e.context(&format!("step `{}`", step.name)))
            }
            (ReadyWork::Copy, Action::Copy { from, to }) => {
                let bytes = self.module.buffers()[to.0 as usize].bytes()? as usize;
                memory.copy(from.0 as usize, to.0 as usize, bytes);
                Ok(())
            }
            (ReadyWork::CheckIndices, Action::CheckIndices { tensor, offset, stride, lower, upper }) => {
                let buffer = &self.module.buffers()[tensor.0 as usize];
                let elements = (*offset as usize, *stride as usize);
                check_indices(&buffer.name, &self.view(*tensor, memory), elements, (*lower, *upper), Some(crew))
            }
            _ => Err(Error::Internal(format!("step `{}` has changed since the session was made", step.name))),
        }
    }

    /// `step` is a loop.
    fn perform_loop<T: FnMut(usize)>(
        &self,
        step: &Step,
        ready: &ReadyStep,
        memory: &mut Memory,
        crew: &mut Crew,
        tick: &mut T,
    ) -> Result<()> {
        let (Action::Loop { trips, condition, body, .. }, ReadyWork::Loop { windows, carried, body: inside }) =
            (&step.action, &ready.work)
        else {
            return Err(Error::Internal(format!("step `{}` is not a loop", step.name)));
        };
        carried.iter().for_each(|value| memory.copy(value.initial, value.current, value.bytes));
        for time in 0..*trips as isize {
            if condition.is_some_and(|condition| !self.holds(condition, memory)) {
                return Ok(());
            }
            for window in windows {
                let address = memory.buffers[window.of].wrapping_offset(window.offset + time * window.stride);
                memory.buffers[window.buffer] = address;
                window.entries.iter().for_each(|&entry| memory.tables[entry] = address);
            }
            self.perform_steps(body, inside, memory, crew, tick)?;
            tick(ready.number);
            carried.iter().for_each(|value| memory.copy(value.next, value.current, value.bytes));
        }
        match condition {
            Some(condition) if *trips == MAX_TRIPS && self.holds(*condition, memory) => {
                Err(Error::Limit(format!("`{}` does not end after {MAX_TRIPS} times", step.name)))
            }
            _ => Ok(()),
        }
    }

    /// The value of a bool.
    fn holds(&self, condition: BufferRef, memory: &Memory) -> bool {
        self.view(condition, memory).data.first().is_some_and(|&b| b != 0)
    }

    fn perform_opaque(
        &self,
        function: opaque::Function,
        attributes: &[i64],
        inputs: &[BufferRef],
        outputs: &[BufferRef],
        memory: &Memory,
    ) -> Result<()> {
        let mut read = [View { dtype: DType::U8, shape: &[0], data: &[] }; MAX_OPERANDS];
        read.iter_mut().zip(inputs).for_each(|(view, &input)| *view = self.view(input, memory));
        let mut written: [ViewMut; MAX_OPERANDS] =
            std::array::from_fn(|_| ViewMut { dtype: DType::U8, shape: &[0], data: &mut [] });
        for (view, &output) in written.iter_mut().zip(outputs) {
            let buffer = &self.module.buffers()[output.0 as usize];
            let bytes = buffer.bytes()? as usize;
            // SAFETY: the buffer lies inside this run's arena or an output tensor that is borrowed mutably for the run,
            // and overlaps no other operand (`Module::verify`), so nothing else refers to these bytes now.
            let data = unsafe { std::slice::from_raw_parts_mut(memory.buffers[output.0 as usize], bytes) };
            *view = ViewMut { dtype: buffer.dtype, shape: &buffer.shape, data };
        }
        function(attributes, &read[..inputs.len()], &mut written[..outputs.len()])
    }

    fn view<'a>(&'a self, buffer: BufferRef, memory: &'a Memory) -> View<'a> {
        let b = &self.module.buffers()[buffer.0 as usize];
        let bytes = b.bytes().unwrap_or(0) as usize;
        // SAFETY: the buffer lies inside the arena, the weights or a tensor of the caller (`Module::verify`), and no step
        // writes it while this step reads it.
        let data = unsafe { std::slice::from_raw_parts(memory.buffers[buffer.0 as usize].cast_const(), bytes) };
        View { dtype: b.dtype, shape: &b.shape, data }
    }

    /// Copies outputs that no step has written in place: a constant, an input, a value that is two outputs.
    fn copy_outputs<O: AsViewMut>(&self, memory: &Memory, outputs: &mut [O]) {
        for i in 0..outputs.len() {
            let source = self.module.outputs()[i].source;
            match self.module.buffers()[source.0 as usize].place {
                BufferPlace::Output(o) if o as usize == i => {}
                BufferPlace::Output(o) => {
                    if let Ok([from, to]) = outputs.get_disjoint_mut([o as usize, i]) {
                        to.view_mut().data.copy_from_slice(from.view().data);
                    }
                }
                _ => {
                    let view = self.view(source, memory);
                    outputs[i].view_mut().data.copy_from_slice(view.data);
                }
            }
        }
    }
}

/// State that the threads of one phase share.
struct Call {
    arguments: *const *mut u8,
    scratch: *mut u8,
    scratch_bytes: usize,
}

// SAFETY: the table is only read, and each thread uses a part of the scratch memory of its own.
unsafe impl Sync for Call {}

/// `bytes` in whole pages, which so many threads can have each.
fn page_multiple(bytes: u64, threads: usize) -> Result<usize> {
    let pages = usize::try_from(bytes).ok().and_then(|n| n.checked_next_multiple_of(4096));
    let fits = |&each: &usize| each.checked_mul(threads).is_some_and(|bytes| bytes <= isize::MAX as usize);
    pages.filter(fits).ok_or_else(|| Error::Limit(format!("{threads} times {bytes} bytes of memory for a run")))
}

impl Call {
    /// Calls a phase as `thread`.
    ///
    /// # Safety
    /// `function` keeps to its declared slots and scratch bytes, and no other call uses the same `thread` now.
    unsafe fn phase(&self, function: PhaseFn, first: i64, last: i64, thread: usize) {
        let scratch = self.scratch.wrapping_add(thread * self.scratch_bytes);
        // SAFETY: as promised by the caller.
        unsafe { function(self.arguments, first, last, scratch) }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
