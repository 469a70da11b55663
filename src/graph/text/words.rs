//! Tokens and lists of the text form.

use crate::graph::tensor_type::TensorType;
use crate::runtime::DType;

/// A part of the text, or why it is wrong.
pub type Parsed<T> = std::result::Result<T, String>;

/// The parts between commas.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The element type of this name.
pub fn dtype_named(name: &str) -> Parsed<DType> {
    DType::named(name).ok_or_else(|| format!("`{name}` is not an element type"))
}

/// The parts of `%1: f32[2,3], %2: i64[4]`: commas inside brackets do not divide.
pub fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (vec![], 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// `f32[1,3,224,224]`.
pub fn tensor_type(text: &str) -> Parsed<TensorType> {
    let (dtype, shape) = text.trim().split_once('[').ok_or("expected `type[shape]`")?;
    let shape = shape.strip_suffix(']').ok_or("expected `]` after the shape")?;
    let shape = list(shape).map(|d| d.parse().map_err(|_| format!("`{d}` is not an extent")));
    let shape = shape.collect::<Parsed<Vec<i64>>>()?;
    Ok(TensorType { dtype: dtype_named(dtype.trim())?, shape })
}
