//! Names, element types and shapes of inputs and outputs.

use std::ffi::{CString, c_char};
use tilewright::module::TensorSpec;
use tilewright::{DType, Result};

/// Element types, with the numbers of the library's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// IEEE binary64.
    F64 = 0,
    /// IEEE binary32.
    F32 = 1,
    /// IEEE binary16.
    F16 = 2,
    /// The upper half of a binary32.
    Bf16 = 3,
    /// Signed, 64 bits.
    I64 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// Signed, 8 bits.
    I8 = 6,
    /// Unsigned, 8 bits.
    U8 = 7,
    /// One byte, 0 or 1.
    Bool = 8,
    /// Signed, 16 bits.
    I16 = 9,
    /// Unsigned, 16 bits.
    U16 = 10,
    /// Unsigned, 32 bits.
    U32 = 11,
    /// Unsigned, 64 bits.
    U64 = 12,
    /// Signed, 4 bits in a byte.
    I4 = 13,
    /// Unsigned, 4 bits in a byte.
    U4 = 14,
    /// Signed, 2 bits in a byte.
    I2 = 15,
    /// Unsigned, 2 bits in a byte.
    U2 = 16,
    /// 4 bits of exponent, 3 of fraction, no infinities.
    F8e4m3fn = 17,
    /// As `F8e4m3fn` with a bias of 8, one zero and one not-a-number.
    F8e4m3fnuz = 18,
    /// 5 bits of exponent, 2 of fraction.
    F8e5m2 = 19,
    /// As `F8e5m2` with a bias of 16, no infinities, one zero and one not-a-number.
    F8e5m2fnuz = 20,
    /// A power of two.
    F8e8m0 = 21,
    /// 2 bits of exponent, 1 of fraction, in a byte.
    F4e2m1 = 22,
}

/// Type, name.
const TYPES: [(Type, &str); 23] = [
    (Type::F64, "f64"),
    (Type::F32, "f32"),
    (Type::F16, "f16"),
    (Type::Bf16, "bf16"),
    (Type::I64, "i64"),
    (Type::I32, "i32"),
    (Type::I8, "i8"),
    (Type::U8, "u8"),
    (Type::Bool, "bool"),
    (Type::I16, "i16"),
    (Type::U16, "u16"),
    (Type::U32, "u32"),
    (Type::U64, "u64"),
    (Type::I4, "i4"),
    (Type::U4, "u4"),
    (Type::I2, "i2"),
    (Type::U2, "u2"),
    (Type::F8e4m3fn, "f8e4m3fn"),
    (Type::F8e4m3fnuz, "f8e4m3fnuz"),
    (Type::F8e5m2, "f8e5m2"),
    (Type::F8e5m2fnuz, "f8e5m2fnuz"),
    (Type::F8e8m0, "f8e8m0"),
    (Type::F4e2m1, "f4e2m1"),
];

/// An input or an output. The pointers lead into the session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Name, in UTF-8, with a zero byte behind it. A zero byte inside of the name is left out.
    pub name: *const c_char,
    /// Element type.
    pub element: Type,
    /// Number of extents.
    pub rank: usize,
    /// Extents, outermost first.
    pub shape: *const i64,
    /// Bytes of all elements, row-major.
    pub bytes: usize,
}

/// An input or an output, in the session's memory.
pub struct Description {
    name: CString,
    pub dtype: DType,
    element: Type,
    pub shape: Vec<i64>,
    pub bytes: usize,
}

impl Description {
    /// The description of a declaration.
    ///
    /// # Errors
    /// `Invalid` where the size has no number.
    pub fn new(spec: &TensorSpec) -> Result<Description> {
        let name: Vec<u8> = spec.name.bytes().filter(|b| *b != 0).collect();
        let element = TYPES[spec.dtype as usize].0;
        let (shape, bytes) = (spec.shape.clone(), spec.bytes()? as usize);
        Ok(Description { name: CString::new(name).unwrap_or_default(), dtype: spec.dtype, element, shape, bytes })
    }

    /// The description as a C program sees it.
    pub fn tensor(&self) -> Tensor {
        let (name, shape) = (self.name.as_ptr(), self.shape.as_ptr());
        Tensor { name, element: self.element, rank: self.shape.len(), shape, bytes: self.bytes }
    }

    /// The name, for messages.
    pub fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_numbers_of_the_library() {
        let all: Vec<(usize, &str)> = DType::all().map(|t| (t as usize, t.name())).collect();
        let types: Vec<(usize, &str)> = TYPES.iter().map(|(t, name)| (*t as usize, *name)).collect();
        assert_eq!(all, types);
    }
}
