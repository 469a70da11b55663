//! Affine forms and scalars as text.

use crate::expr::Literals;
use crate::expr::Scalar;
use crate::expr::scalar::Value;
use crate::expr::{Affine, Var};
use std::fmt::Write;

/// `2*i - j + 3`, variables by `name`.
pub fn affine(a: &Affine, name: impl Fn(Var) -> String) -> String {
    let mut out = String::new();
    for &(v, c) in &a.terms {
        let sign = match (out.is_empty(), c < 0) {
            (true, true) => "-",
            (true, false) => "",
            (false, true) => " - ",
            (false, false) => " + ",
        };
        out.push_str(sign);
        if c.unsigned_abs() != 1 {
            let _ = write!(out, "{}*", c.unsigned_abs());
        }
        out.push_str(&name(v));
    }
    match (out.is_empty(), a.constant) {
        (true, c) => out = c.to_string(),
        (false, 0) => {}
        (false, c) if c < 0 => {
            let _ = write!(out, " - {}", c.unsigned_abs());
        }
        (false, c) => {
            let _ = write!(out, " + {c}");
        }
    }
    out
}

/// `i - 1 >= 0 && -i + 7 >= 0`, with affine forms as `text` writes them.
pub fn conditions(conditions: &[Affine], text: impl Fn(&Affine) -> String) -> String {
    conditions.iter().map(|c| format!("{} >= 0", text(c))).collect::<Vec<_>>().join(" && ")
}

/// ` = {1, 0, -0.5}`; nothing without literals.
pub fn literals(values: Option<&Literals>) -> String {
    let Some(values) = values else { return String::new() };
    let decimals = values.values().iter().map(|&s| match Value::from(s) {
        Value::F32(v) => v.to_string(),
        v => v.as_f64().to_string(),
    });
    format!(" = {{{}}}", decimals.collect::<Vec<_>>().join(", "))
}

/// `f32(1.5)`; by its bits, `f32(#7fc00000)`, where decimals would not read back.
pub fn scalar(s: Scalar) -> String {
    let decimal = match Value::from(s) {
        Value::F64(v) if v.is_finite() => format!("{v:?}"),
        Value::F32(v) if v.is_finite() => format!("{v:?}"),
        Value::I64(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::U8(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        _ => format!("#{:x}", s.bits),
    };
    format!("{}({decimal})", s.dtype)
}
