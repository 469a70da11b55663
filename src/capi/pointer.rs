//! Pointers of a C program.

use crate::status::Failure;
use std::ffi::{CStr, c_char};
use std::slice;

/// The text behind a pointer.
///
/// # Errors
/// `Invalid` where the pointer is null or the text is not UTF-8.
///
/// # Safety
/// A pointer that is not null leads to bytes that end with a zero and do not change while the text is used.
pub unsafe fn text<'a>(what: &str, pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    // SAFETY: as promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// The elements behind a pointer.
///
/// # Errors
/// `Invalid` where the pointer is null, or not aligned, and there are elements.
///
/// # Safety
/// A pointer that is not null leads to so many elements, which do not change while they are used.
pub unsafe fn elements<'a, T>(what: &str, pointer: *const T, count: usize) -> Result<&'a [T], Failure> {
    match count {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(Failure::invalid(format!("{what} is null"))),
        _ if !pointer.is_aligned() => Err(Failure::invalid(format!("{what} is not aligned"))),
        _ if count > isize::MAX as usize / size_of::<T>().max(1) => {
            Err(Failure::invalid(format!("{what} has {count} elements, more than any memory")))
        }
        // SAFETY: as promised by the caller; there are elements.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, count) }),
    }
}

/// Refuses a null pointer for a result.
///
/// # Errors
/// `Invalid` where the pointer is null or not aligned.
pub fn check_result<T>(pointer: *mut T) -> Result<(), Failure> {
    match !pointer.is_null() && pointer.is_aligned() {
        true => Ok(()),
        false => Err(Failure::invalid("the pointer for the result is null or not aligned")),
    }
}

/// Writes a result.
///
/// # Errors
/// `Invalid` where the pointer is null or not aligned.
///
/// # Safety
/// A pointer that is not null leads to memory for the result that nobody else uses.
pub unsafe fn write<T>(pointer: *mut T, result: T) -> Result<(), Failure> {
    check_result(pointer)?;
    // SAFETY: as promised by the caller.
    unsafe { pointer.write(result) };
    Ok(())
}
