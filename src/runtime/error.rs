//! Errors: whose fault it is, and what to do about it.

use crate::runtime::text::lines;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What went wrong. Every message is one sentence that names the place.
#[derive(Clone, PartialEq, Debug)]
pub enum Error {
    /// The model, expression, schedule or input is wrong.
    Invalid(String),
    /// What is asked for is meaningful, but not done here: what, where, why.
    Unsupported(String),
    /// A schedule was refused: primitive, reason, and the tree with the place marked.
    Schedule(String),
    /// A size or effort beyond what is allowed.
    Limit(String),
    /// A file or the system refused: path and reason.
    Io(String),
    /// A defect of tilewright.
    Internal(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The same error with the place it concerns in front of the message.
    pub fn context(self, place: &str) -> Error {
        let prefixed = |m: String| format!("{place}: {m}");
        match self {
            Error::Invalid(m) => Error::Invalid(prefixed(m)),
            Error::Unsupported(m) => Error::Unsupported(prefixed(m)),
            Error::Schedule(m) => Error::Schedule(prefixed(m)),
            Error::Limit(m) => Error::Limit(prefixed(m)),
            Error::Io(m) => Error::Io(prefixed(m)),
            Error::Internal(m) => Error::Internal(prefixed(m)),
        }
    }
}

impl std::fmt::Display for Error {
    /// Names in the message may hold anything: what a terminal would act on is escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Error::Invalid(m) => write!(f, "invalid: {}", lines(m)),
            Error::Unsupported(m) => write!(f, "unsupported: {}", lines(m)),
            Error::Schedule(m) => write!(f, "schedule refused: {}", lines(m)),
            Error::Limit(m) => write!(f, "limit exceeded: {}", lines(m)),
            Error::Io(m) => f.write_str(&lines(m)),
            Error::Internal(m) => {
                write!(f, "internal error: {} (a defect of tilewright: please report it with the model)", lines(m))
            }
        }
    }
}

impl std::error::Error for Error {}

/// Turns a panic, which is always a defect of ours, into an error.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Error::Internal(format!("panic: {text}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let error = guard::<()>(|| panic!("at {}", 5)).unwrap_err();
        assert_eq!(error, Error::Internal("panic: at 5".into()));
        assert_eq!(guard(|| Ok(3)), Ok(3));
    }

    #[test]
    fn a_message_changes_no_terminal() {
        let error = Error::Invalid("no input `\u{1b}[2J`\n  at".into());
        assert_eq!(error.to_string(), "invalid: no input `\\u001b[2J`\n  at");
    }
}
