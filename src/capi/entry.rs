//! The functions of the C interface, but for runs (`run.rs`).

use crate::handle::{Options, Session};
use crate::options::{
    OPTIONS, set_accumulate, set_cache, set_dim, set_instructions, set_max_memory, set_precision, set_quotients,
    set_target, set_threads,
};
use crate::pointer::{check_result, elements, text, write};
use crate::session::{SESSIONS, add, compile, compile_bytes};
use crate::status::{Failure, Status, guard};
use crate::tensor::Tensor;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr;
use tilewright::Module;

/// Version of this interface: programs that were built for another one must not use the library.
pub const ABI_VERSION: u32 = 1;

/// The version of the interface that the library has; compare it with `TILEWRIGHT_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library, as text that stays.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Makes options with their defaults: the best target of this processor, a thread for each of its cores.
///
/// # Safety
/// `options` is null or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_create(options: *mut Options) -> Status {
    guard(|| {
        check_result(options)?;
        let id = OPTIONS.add(tilewright::Options::default())?;
        // SAFETY: as promised by the caller.
        unsafe { write(options, Options { id }) }
    })
}

/// Frees options. Sessions that were made with them stay.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_options_free(options: Options) -> Status {
    guard(|| OPTIONS.remove(options.id))
}

/// Sets the threads of a run; 0 counts as 1.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_options_set_threads(options: Options, threads: u32) -> Status {
    guard(|| set_threads(options.id, threads))
}

/// Sets the target by its name, one of `tilewright targets`.
///
/// # Safety
/// `name` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_target(options: Options, name: *const c_char) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_target(options.id, unsafe { text("the name of the target", name) }?))
}

/// Sets how quotients and square roots of f32 are computed: `exact`, the default, or `approximate`.
///
/// # Safety
/// `kind` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_quotients(options: Options, kind: *const c_char) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_quotients(options.id, unsafe { text("the kind of quotients", kind) }?))
}

/// Sets the type of the operands of products and convolutions that a network has in f32: `f32`, the default, `bf16` or `f16`.
///
/// # Safety
/// `name` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_precision(options: Options, name: *const c_char) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_precision(options.id, unsafe { text("the name of the precision", name) }?))
}

/// Sets the type in which a network sums products of f16: `f32`, the default, or `f16`, which a target without instructions for it
/// refuses when it compiles.
///
/// # Safety
/// `name` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_accumulate(options: Options, name: *const c_char) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_accumulate(options.id, unsafe { text("the name of the type of sums", name) }?))
}

/// Sets the size of a dynamic dimension or of a program's parameter. All must have sizes, but those that a set of sizes has.
///
/// # Safety
/// `name` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_dim(options: Options, name: *const c_char, size: i64) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_dim(options.id, unsafe { text("the name of the dimension", name) }?, size))
}

/// Sets a directory for compiled modules, which is made for this user alone, and their bytes.
///
/// # Safety
/// `directory` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_cache(
    options: Options,
    directory: *const c_char,
    max_bytes: u64,
) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_cache(options.id, unsafe { text("the path of the cache", directory) }?, max_bytes))
}

/// Sets the bytes that a tensor, all weights or a run may take.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_options_set_max_memory(options: Options, bytes: u64) -> Status {
    guard(|| set_max_memory(options.id, bytes))
}

/// Sets tensor instructions to use beside the built-in ones, declared by a text.
///
/// # Safety
/// `declarations` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_options_set_instructions(options: Options, declarations: *const c_char) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| set_instructions(options.id, unsafe { text("the text of instructions", declarations) }?))
}

/// Compiles an ONNX file, or the first program of a `.tile` file with its first set of sizes.
///
/// # Safety
/// `path` is null or a text with a zero byte behind it, `session` is null or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_compile(path: *const c_char, options: Options, session: *mut Session) -> Status {
    // SAFETY: as promised by the caller.
    unsafe { tilewright_compile_program(path, ptr::null(), ptr::null(), options, session) }
}

/// Compiles a program of a `.tile` file with a set of sizes; null stands for the first of either.
///
/// # Safety
/// `path`, `program` and `sizes` are null or texts with a zero byte behind them, `session` is null or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_compile_program(
    path: *const c_char,
    program: *const c_char,
    sizes: *const c_char,
    options: Options,
    session: *mut Session,
) -> Status {
    guard(|| {
        check_result(session)?;
        let name = |what, pointer: *const c_char| match pointer.is_null() {
            true => Ok(None),
            // SAFETY: as promised by the caller.
            false => unsafe { text(what, pointer) }.map(Some),
        };
        // SAFETY: as promised by the caller.
        let path = unsafe { text("the path of the model", path) }?;
        let (program, sizes) = (name("the name of the program", program)?, name("the name of the sizes", sizes)?);
        let id = compile(path, program, sizes, options.id)?;
        // SAFETY: as promised by the caller.
        unsafe { write(session, Session { id }) }
    })
}

/// Compiles the bytes of an ONNX file; external data is looked for in the current directory.
///
/// # Safety
/// `bytes` leads to `length` bytes, which do not change during the call; `session` is null or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_compile_onnx(
    bytes: *const c_void,
    length: usize,
    options: Options,
    session: *mut Session,
) -> Status {
    guard(|| {
        check_result(session)?;
        // SAFETY: as promised by the caller.
        let bytes = unsafe { elements("the model", bytes.cast::<u8>(), length) }?;
        let id = compile_bytes(bytes, options.id)?;
        // SAFETY: as promised by the caller.
        unsafe { write(session, Session { id }) }
    })
}

/// Reads a module that was saved, to run on so many threads. A module is a program: read only modules that you trust with an
/// executable. Its file must not change in place while it is in use.
///
/// # Safety
/// `path` is null or a text with a zero byte behind it, of a module whose code is right; `session` is null or leads to memory for
/// a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_load(path: *const c_char, threads: u32, session: *mut Session) -> Status {
    guard(|| {
        check_result(session)?;
        // SAFETY: as promised by the caller.
        let path = unsafe { text("the path of the module", path) }?;
        // SAFETY: the caller vouches for the file.
        let module = unsafe { Module::load(Path::new(path)) }?;
        let id = add(module, threads as usize)?;
        // SAFETY: as promised by the caller.
        unsafe { write(session, Session { id }) }
    })
}

/// Writes the module of a session to a file, which `tilewright_load` and the command line take. An old file is replaced in one step.
///
/// # Safety
/// `path` is null or a text with a zero byte behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_save(session: Session, path: *const c_char) -> Status {
    guard(|| {
        let session = SESSIONS.get(session.id)?;
        // SAFETY: as promised by the caller.
        let path = unsafe { text("the path of the module", path) }?;
        Ok(session.session.module().save(Path::new(path))?)
    })
}

/// Frees a session. Runs of it on other threads end as if it were not freed; the memory is given back after the last one.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_session_free(session: Session) -> Status {
    guard(|| SESSIONS.remove(session.id))
}

/// The number of inputs of a session.
///
/// # Safety
/// `count` is null or leads to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_input_count(session: Session, count: *mut usize) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| unsafe { write(count, SESSIONS.get(session.id)?.inputs.len()) })
}

/// The number of outputs of a session.
///
/// # Safety
/// `count` is null or leads to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_output_count(session: Session, count: *mut usize) -> Status {
    // SAFETY: as promised by the caller.
    guard(|| unsafe { write(count, SESSIONS.get(session.id)?.outputs.len()) })
}

/// Name, type and shape of an input. What its pointers lead to stays until the session is freed.
///
/// # Safety
/// `tensor` is null or leads to memory for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_input(session: Session, index: usize, tensor: *mut Tensor) -> Status {
    guard(|| {
        let session = SESSIONS.get(session.id)?;
        let description = session.inputs.get(index).ok_or_else(|| no_such("input", index, session.inputs.len()))?;
        // SAFETY: as promised by the caller.
        unsafe { write(tensor, description.tensor()) }
    })
}

/// Name, type and shape of an output, as [`tilewright_input`].
///
/// # Safety
/// `tensor` is null or leads to memory for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_output(session: Session, index: usize, tensor: *mut Tensor) -> Status {
    guard(|| {
        let session = SESSIONS.get(session.id)?;
        let description = session.outputs.get(index).ok_or_else(|| no_such("output", index, session.outputs.len()))?;
        // SAFETY: as promised by the caller.
        unsafe { write(tensor, description.tensor()) }
    })
}

fn no_such(role: &str, index: usize, count: usize) -> Failure {
    Failure::invalid(format!("there is no {role} {index}, the model has {count}"))
}
