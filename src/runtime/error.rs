//! Errors: whose fault each one is, and the message.

use crate::refusal::Refusal;
use crate::text::lines;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Reason of a failure. Every message is one sentence that names the place.
#[derive(Clone, PartialEq, Debug)]
pub enum Error {
    /// The model, expression, schedule or input is wrong.
    Invalid(String),
    /// The request is meaningful, but not supported: what, where, why.
    Unsupported(String),
    /// A schedule was refused.
    Schedule(Box<Refusal>),
    /// A size or effort exceeds a limit.
    Limit(String),
    /// A file or the system refused: path and reason.
    Io(String),
    /// A defect of tilewright.
    Internal(String),
}

/// A value, or the error that prevented it.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes a refusal with a reason only; callers add the primitive, the tree and the place.
    pub fn refused(reason: impl Into<String>) -> Error {
        Error::Schedule(Refusal::new(reason))
    }

    /// Puts the place that the error concerns in front of its message.
    pub fn context(self, place: &str) -> Error {
        let prefixed = |m: String| format!("{place}: {m}");
        match self {
            Error::Invalid(m) => Error::Invalid(prefixed(m)),
            Error::Unsupported(m) => Error::Unsupported(prefixed(m)),
            Error::Schedule(r) => Error::Schedule(Box::new(Refusal { context: prefixed(r.context), ..*r })),
            Error::Limit(m) => Error::Limit(prefixed(m)),
            Error::Io(m) => Error::Io(prefixed(m)),
            Error::Internal(m) => Error::Internal(prefixed(m)),
        }
    }
}

impl std::fmt::Display for Error {
    /// Writes the message with all characters escaped that a terminal would act on.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Error::Invalid(m) => write!(f, "invalid: {}", lines(m)),
            Error::Unsupported(m) => write!(f, "unsupported: {}", lines(m)),
            Error::Schedule(refusal) => write!(f, "schedule refused: {}", lines(&refusal.to_string())),
            Error::Limit(m) => write!(f, "limit exceeded: {}", lines(m)),
            Error::Io(m) => f.write_str(&lines(m)),
            Error::Internal(m) => {
                write!(f, "internal error: {} (a defect of tilewright: please report it with the model)", lines(m))
            }
        }
    }
}

impl std::error::Error for Error {}

/// Writes the message for an unknown `name`: the names that exist, and the nearest of them if one is near.
pub fn unknown<S: AsRef<str>>(what: &str, name: &str, candidates: &[S]) -> String {
    let mut names: Vec<&str> = vec![];
    for candidate in candidates.iter().map(S::as_ref).filter(|n| !n.is_empty()) {
        if !names.contains(&candidate) {
            names.push(candidate);
        }
    }
    let list = if names.is_empty() { "none".into() } else { names.join(", ") };
    format!("there is no {what} `{name}`: there are {list}{}", did_you_mean(name, &names))
}

/// The end of a message that nothing is called `name`: the nearest of `candidates`, where one is near.
pub fn did_you_mean(name: &str, candidates: &[&str]) -> String {
    nearest(name, candidates).map_or(String::new(), |n| format!("; did you mean `{n}`?"))
}

/// The first of `candidates` that is fewest edits away from `name`, a third of its characters at most.
pub fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let distance = |c: &&&str| edits(name, c);
    let best = candidates.iter().min_by_key(distance)?;
    let length = name.chars().count().max(best.chars().count());
    (length > 1 && edits(name, best) <= (length / 3).max(1)).then_some(*best)
}

/// Insertions, deletions, replacements and exchanges of neighbours that make one name of the other, case ignored
/// (Damerau and Levenshtein's distance, where no part is edited twice).
fn edits(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|s| s.to_lowercase().chars().take(64).collect::<Vec<char>>());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                match i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    true => least.min(rows[i - 2][j - 2] + 1),
                    false => least,
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

/// Turns a panic, which is always a defect of ours, into an error.
pub fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
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

    #[test]
    fn an_unknown_name_is_answered_with_the_names_that_there_are() {
        let names = ["vectorize", "unroll", "vectorize", ""];
        assert_eq!(
            unknown("primitive", "vectorise", &names),
            "there is no primitive `vectorise`: there are vectorize, unroll; did you mean `vectorize`?"
        );
        assert_eq!(unknown("loop", "q", &["i", "j"]), "there is no loop `q`: there are i, j");
        assert_eq!(unknown::<&str>("loop", "q", &[]), "there is no loop `q`: there are none");
        assert_eq!(nearest("SMLAL", &["LARGE", "SMALL"]), Some("SMALL"));
        assert_eq!(nearest("conv", &["gemm"]), None);
    }
}
