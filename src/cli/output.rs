//! Results on standard output.

use serde::Serialize;
use std::io::Write;
use tilewright::internal::expr::scalar::Value;
use tilewright::internal::runtime::text::lines;
use tilewright::{DType, Error, Result};

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

/// The elements in `bytes` as numbers.
pub fn numbers(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(dtype.bytes()).map(move |element| Value::load(dtype, element).as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_small_floats_are_numbers() {
        let of = |dtype, bytes: &[u8]| numbers(dtype, bytes).collect::<Vec<f64>>();
        let halves = [0x3c00u16, 0xc000, 0x0001, 0x7bff].map(u16::to_le_bytes).concat();
        assert_eq!(of(DType::F16, &halves), [1.0, -2.0, 2f64.powi(-24), 65504.0]);
        assert_eq!(of(DType::BF16, &[0x80, 0x3f]), [1.0]);
        assert_eq!(of(DType::F8E5M2, &[0x3c, 0x38]), [1.0, 0.5]);
        assert_eq!(of(DType::Bool, &[1, 0]), [1.0, 0.0]);
    }
}
