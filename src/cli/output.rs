//! Results on standard output.

use serde::Serialize;
use std::io::Write;
use tilewright::internal::runtime::text::lines;
use tilewright::{Error, Result};

/// Writes results at once, where an error or a further result is still to follow.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(lines(text).as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Error::Io(format!("cannot write to standard output: {e}")))
}

/// A report as JSON.
pub fn json(report: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(report).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(text + "\n")
}
