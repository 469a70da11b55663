//! Options of a compilation.

use crate::handle::Table;
use crate::status::Failure;
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::{CacheOptions, Limits, MAX_THREADS, Options, Target};

/// The options of a program.
pub static OPTIONS: Table<Options> = Table::new(1, "options");

/// The options of a handle; zero are the defaults.
///
/// # Errors
/// `NoHandle` where there are none.
pub fn options(handle: u64) -> Result<Options, Failure> {
    match handle {
        0 => Ok(Options::default()),
        _ => OPTIONS.get(handle).map(|options| Options::clone(&options)),
    }
}

/// Sets the threads of a run.
///
/// # Errors
/// `Limit` for more than there may be, `NoHandle`.
pub fn set_threads(handle: u64, threads: u32) -> Result<(), Failure> {
    let threads = threads as usize;
    if threads > MAX_THREADS {
        return Err(Failure::limit(format!("{threads} threads, {MAX_THREADS} are allowed")));
    }
    OPTIONS.change(handle, |options| Options { threads, ..options.clone() })
}

/// Sets the target.
///
/// # Errors
/// `Invalid` where there is no such target, `NoHandle`.
pub fn set_target(handle: u64, name: &str) -> Result<(), Failure> {
    let target = Target::by_name(name)?;
    OPTIONS.change(handle, |options| Options { target: Some(target), ..options.clone() })
}

/// Sets the type of the operands of products, by its name.
///
/// # Errors
/// `Invalid` where there is no such precision, `NoHandle`.
pub fn set_precision(handle: u64, name: &str) -> Result<(), Failure> {
    let precision = name.parse()?;
    OPTIONS.change(handle, |options| Options { precision, ..options.clone() })
}

/// Sets the type of the sums of products of f16, by its name.
///
/// # Errors
/// `Invalid` where there is no such type, `NoHandle`.
pub fn set_accumulate(handle: u64, name: &str) -> Result<(), Failure> {
    let accumulate = name.parse()?;
    OPTIONS.change(handle, |options| Options { accumulate, ..options.clone() })
}

/// Sets how quotients and square roots of f32 are computed, by the name of the kind.
///
/// # Errors
/// `Invalid` where there is no such kind, `NoHandle`.
pub fn set_quotients(handle: u64, kind: &str) -> Result<(), Failure> {
    let quotients = kind.parse()?;
    OPTIONS.change(handle, |options| Options { quotients, ..options.clone() })
}

/// Sets the size of a dynamic dimension.
///
/// # Errors
/// `NoHandle`.
pub fn set_dim(handle: u64, name: &str, size: i64) -> Result<(), Failure> {
    OPTIONS.change(handle, |options| {
        let more = BTreeMap::from([(name.to_string(), size)]);
        Options { dims: options.dims.clone().into_iter().chain(more).collect(), ..options.clone() }
    })
}

/// Sets the directory of compiled modules.
///
/// # Errors
/// `NoHandle`.
pub fn set_cache(handle: u64, directory: &str, max_bytes: u64) -> Result<(), Failure> {
    let cache = CacheOptions { max_bytes, ..CacheOptions::new(directory) };
    OPTIONS.change(handle, |options| Options { cache: Some(cache), ..options.clone() })
}

/// Sets the memory that compiling and running may take.
///
/// # Errors
/// `NoHandle`.
pub fn set_max_memory(handle: u64, bytes: u64) -> Result<(), Failure> {
    OPTIONS.change(handle, |options| Options { limits: Limits::within(bytes), ..options.clone() })
}

/// Adds tensor instructions to use beside the built-in ones.
///
/// # Errors
/// `Invalid` where the text declares none, `NoHandle`.
pub fn set_instructions(handle: u64, text: &str) -> Result<(), Failure> {
    let rows = tilewright::instructions::parse("the text of instructions", text)?;
    OPTIONS.change(handle, |options| Options { instructions: Arc::from(rows), ..options.clone() })
}
