//! Runs on the caller's memory.

use crate::handle::Session;
use crate::pointer::elements;
use crate::session::{ReadySession, SESSIONS};
use crate::status::{Failure, Status, guard};
use crate::tensor::Description;
use std::ffi::c_void;
use std::ops::Range;
use std::slice;
use tilewright::{TensorView, TensorViewMut};

/// Memory of one input or output: dense, row-major.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// The first element, at a multiple of the element's size.
    pub data: *mut c_void,
    /// Bytes of all elements.
    pub bytes: usize,
}

/// Runs a session: reads the inputs and writes the outputs where they lie, both in the model's order. No output may overlap another buffer.
/// Any number of threads may run one session at the same time, on outputs of their own; the results have the same bits.
///
/// # Safety
/// `inputs` and `outputs` lead to as many buffers as the counts say, and each buffer to as many bytes as it says. Nobody writes
/// the inputs or uses the outputs during the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_run(
    session: Session,
    inputs: *const Buffer,
    input_count: usize,
    outputs: *const Buffer,
    output_count: usize,
) -> Status {
    guard(|| {
        let session = SESSIONS.get(session.id)?;
        // SAFETY: as promised by the caller.
        let inputs = unsafe { elements("the array of inputs", inputs, input_count) }?;
        // SAFETY: as promised by the caller.
        let outputs = unsafe { elements("the array of outputs", outputs, output_count) }?;
        check(&session, inputs, outputs)?;
        // SAFETY: each buffer has the bytes that the session wants, and outputs overlap nothing (`check`); the rest is promised
        // by the caller.
        unsafe { run(&session, inputs, outputs) }
    })
}

/// Refuses buffers that a session cannot run on.
fn check(session: &ReadySession, inputs: &[Buffer], outputs: &[Buffer]) -> Result<(), Failure> {
    let sides = [("input", &session.inputs, inputs), ("output", &session.outputs, outputs)];
    for (role, wanted, given) in sides {
        if given.len() != wanted.len() {
            return Err(Failure::invalid(format!("{} {role}s given, the model has {}", given.len(), wanted.len())));
        }
        wanted.iter().zip(given).try_for_each(|(wanted, given)| check_buffer(role, wanted, given))?;
    }
    let range = |buffer: &Buffer| -> Range<usize> { buffer.data.addr()..buffer.data.addr() + buffer.bytes };
    let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
    for (i, output) in outputs.iter().enumerate() {
        let others = inputs.iter().chain(&outputs[..i]);
        if others.map(range).any(|other| meet(&other, &range(output))) {
            let name = session.outputs[i].name();
            return Err(Failure::invalid(format!("output `{name}` overlaps another buffer")));
        }
    }
    Ok(())
}

/// Refuses a buffer of the wrong size or at the wrong address.
fn check_buffer(role: &str, wanted: &Description, given: &Buffer) -> Result<(), Failure> {
    let name = wanted.name();
    if given.bytes != wanted.bytes {
        return Err(Failure::invalid(format!(
            "{role} `{name}` has {} bytes, the model wants {} ({} {:?})",
            given.bytes, wanted.bytes, wanted.dtype, wanted.shape
        )));
    }
    if given.bytes > 0 && given.data.is_null() {
        return Err(Failure::invalid(format!("{role} `{name}` is null")));
    }
    let end = given.data.addr().checked_add(given.bytes);
    if !given.data.addr().is_multiple_of(wanted.dtype.bytes()) || end.is_none() {
        return Err(Failure::invalid(format!("{role} `{name}` is not at a multiple of the size of {}", wanted.dtype)));
    }
    Ok(())
}

/// Runs on buffers that are checked.
///
/// # Safety
/// The buffers lead to as many bytes as they say; nobody writes inputs or uses outputs during the run, and outputs overlap nothing.
unsafe fn run(session: &ReadySession, inputs: &[Buffer], outputs: &[Buffer]) -> Result<(), Failure> {
    let module = session.session.module();
    let read = |(i, buffer): (usize, &Buffer)| {
        let Description { dtype, shape, .. } = &session.inputs[i];
        let data = match buffer.bytes {
            0 => &[],
            // SAFETY: as promised by the caller.
            bytes => unsafe { slice::from_raw_parts(buffer.data.cast_const().cast::<u8>(), bytes) },
        };
        (module.inputs()[i].name.as_str(), TensorView { dtype: *dtype, shape, data })
    };
    let written = |(i, buffer): (usize, &Buffer)| {
        let Description { dtype, shape, .. } = &session.outputs[i];
        let data: &mut [u8] = match buffer.bytes {
            0 => &mut [],
            // SAFETY: as promised by the caller.
            bytes => unsafe { slice::from_raw_parts_mut(buffer.data.cast::<u8>(), bytes) },
        };
        TensorViewMut { dtype: *dtype, shape, data }
    };
    let inputs: Vec<(&str, TensorView)> = inputs.iter().enumerate().map(read).collect();
    let mut outputs: Vec<TensorViewMut> = outputs.iter().enumerate().map(written).collect();
    session.session.run_into(&inputs, &mut outputs).map_err(Failure::from)
}
