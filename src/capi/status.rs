//! Statuses and messages of failures.

use crate::fork;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tilewright::Error;

/// The result of a function. `tilewright_last_error` has the message of a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// The model, an argument or a buffer is wrong.
    Invalid = 1,
    /// The request is meaningful, but not supported.
    Unsupported = 2,
    /// A schedule was refused.
    Schedule = 3,
    /// A size or effort exceeds a limit.
    Limit = 4,
    /// A file or the system refused.
    Io = 5,
    /// A defect of tilewright.
    Internal = 6,
    /// A handle is zero, was freed, or is that of another kind of object.
    NoHandle = 7,
}

/// A status that is not success, and its message.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    message: String,
}

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure { status: Status::Invalid, message: message.into() }
    }

    pub fn limit(message: impl Into<String>) -> Failure {
        Failure { status: Status::Limit, message: message.into() }
    }

    pub fn io(message: impl Into<String>) -> Failure {
        Failure { status: Status::Io, message: message.into() }
    }

    pub fn no_handle(message: impl Into<String>) -> Failure {
        Failure { status: Status::NoHandle, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error {
            Error::Invalid(_) => Status::Invalid,
            Error::Unsupported(_) => Status::Unsupported,
            Error::Schedule(_) => Status::Schedule,
            Error::Limit(_) => Status::Limit,
            Error::Io(_) => Status::Io,
            Error::Internal(_) => Status::Internal,
        };
        Failure { status, message: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the work of a function; a failure leaves its message, a panic is an internal failure.
pub fn guard(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let call = || {
        let _call =
            fork::enter().ok_or_else(|| Failure::io("the system has no memory for the functions around a fork"))?;
        work()
    };
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Failure { status: Status::Internal, message: format!("panic: {text}") })
    });
    match result {
        Ok(()) => Status::Ok,
        Err(failure) => {
            let bytes: Vec<u8> = failure.message.into_bytes().into_iter().filter(|b| *b != 0).collect();
            // A thread that ends has no place for messages any more.
            let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(bytes).unwrap_or_default());
            failure.status
        }
    }
}

/// The message of the last failure on this thread; empty where there was none. It stays until the next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
