//! Words and lists of the text form.

use crate::runtime::DType;

/// A part of the text, or why it is wrong.
pub type Parsed<T> = std::result::Result<T, String>;

/// The parts between commas.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The element type of this name.
pub fn dtype_named(name: &str) -> Parsed<DType> {
    use DType::*;
    let all = [F64, F32, F16, BF16, I64, I32, I8, U8, Bool];
    all.into_iter().find(|d| d.name() == name).ok_or_else(|| format!("`{name}` is not an element type"))
}
