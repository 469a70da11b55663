//! The list of operators that are known, for documentation.

use super::{attributes, table};

/// An ONNX operator that is known.
pub struct Operator {
    /// Its domain; empty for ONNX's own.
    pub domain: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The first operator set that has it.
    pub since: i64,
    /// Its attributes.
    pub attributes: Vec<&'static str>,
}

/// All operators that are known, by domain and name.
pub fn operators() -> Vec<Operator> {
    let row = |(domain, name, since): (&'static str, &'static str, i64)| {
        let attributes = attributes::of(domain, name);
        Operator { domain, name, since, attributes }
    };
    table::rows().map(row).collect()
}
