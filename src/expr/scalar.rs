//! Semantics of the scalar operations: the one definition that both reference interpreters use and machine code is held
//! to.
//!
//! A [`Value`] is one element. The trait [`Number`] has the same meaning for a known Rust type, so that an interpreter can
//! run over whole rows.
//!
//! Integers wrap; division and remainder by zero give 0. `f16` and `bf16` compute in f32 and round each result.
//! Functions of f32 are evaluated in f64 and rounded once. `Min` and `Max` return the first operand when neither is
//! less: `x` bounded by a constant stays not-a-number. A reduction by `Min` or `Max` keeps not-a-number in whatever
//! order it runs ([`accumulate`]); one of `max(-inf, x)` leaves it out. A cast from float to integer truncates towards
//! zero and saturates; not-a-number becomes 0. A cast between integers keeps the low bits; a cast to bool asks whether
//! the value differs from 0. A shift by a negative amount or by all bits leaves 0, or -1 of a negative number shifted to
//! the right. Storage types have no operations; what their bytes mean says [`storage`].

pub mod number;
pub mod storage;

use crate::expr::scalar::number::{Number, f16_to_f32, f32_to_bf16, f32_to_f16, round_bf16, round_f16};
use crate::expr::{Access, Affine, BinaryOp, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::runtime::{DType, Error, Result};

/// One element of a tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    F64(f64),
    F32(f32),
    /// Held as the f32 of the same value.
    F16(f32),
    /// Held as the f32 of the same value.
    BF16(f32),
    I64(i64),
    I32(i32),
    I16(i16),
    I8(i8),
    U64(u64),
    U32(u32),
    U16(u16),
    U8(u8),
    Bool(bool),
    /// An element of a storage type, as its byte.
    Stored(DType, u8),
}

/// Cost of one operation on one vector of f32, in the machine code that this project emits for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Instructions: how much code grows where loops are expanded.
    pub instructions: i64,
    /// Throughput, in cycles: used by models of time.
    pub cycles: f64,
}

const fn cost(instructions: i64, cycles: f64) -> Cost {
    Cost { instructions, cycles }
}

impl UnaryOp {
    /// The cost of the operation; the functions are polynomials.
    pub const fn cost(self) -> Cost {
        match self {
            UnaryOp::Exp => cost(18, 14.0),
            UnaryOp::Log => cost(25, 22.0),
            UnaryOp::Tanh => cost(18, 22.0),
            UnaryOp::Erf => cost(36, 28.0),
            UnaryOp::Sin | UnaryOp::Cos => cost(24, 14.0),
            UnaryOp::Tan => cost(28, 20.0),
            UnaryOp::Atan => cost(30, 20.0),
            UnaryOp::Asin | UnaryOp::Acos => cost(38, 32.0),
            UnaryOp::Sinh | UnaryOp::Cosh => cost(30, 24.0),
            UnaryOp::Asinh | UnaryOp::Acosh | UnaryOp::Atanh => cost(50, 50.0),
            UnaryOp::Sqrt => cost(4, 8.0),
            UnaryOp::CountOnes => cost(10, 6.0),
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Not => {
                cost(1, 1.0)
            }
        }
    }
}

impl BinaryOp {
    /// The cost of the operation.
    pub const fn cost(self) -> Cost {
        match self {
            BinaryOp::Pow => cost(60, 50.0),
            BinaryOp::Div => cost(3, 8.0),
            BinaryOp::Mod => cost(12, 8.0),
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max => cost(1, 1.0),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => cost(1, 1.0),
            BinaryOp::ShiftLeft | BinaryOp::ShiftRight => cost(20, 12.0),
        }
    }
}

/// Cycles to store a vector and load it again. Unmeasured.
pub const ROUND_TRIP: f64 = 4.0;

impl Cost {
    /// Returns true if the operation costs more than storing its result and loading it again.
    pub const fn is_expensive(self) -> bool {
        self.cycles > ROUND_TRIP
    }
}

impl Value {
    pub fn dtype(self) -> DType {
        match self {
            Value::F64(_) => DType::F64,
            Value::F32(_) => DType::F32,
            Value::F16(_) => DType::F16,
            Value::BF16(_) => DType::BF16,
            Value::I64(_) => DType::I64,
            Value::I32(_) => DType::I32,
            Value::I16(_) => DType::I16,
            Value::I8(_) => DType::I8,
            Value::U64(_) => DType::U64,
            Value::U32(_) => DType::U32,
            Value::U16(_) => DType::U16,
            Value::U8(_) => DType::U8,
            Value::Bool(_) => DType::Bool,
            Value::Stored(dtype, _) => dtype,
        }
    }

    /// `v` as an element of `dtype`, rounded once.
    pub fn from_f64(dtype: DType, v: f64) -> Value {
        match dtype {
            DType::F64 => Value::F64(v),
            DType::F32 => Value::F32(v as f32),
            DType::F16 => Value::F16(round_f16(v as f32)),
            DType::BF16 => Value::BF16(round_bf16(v as f32)),
            DType::I64 => Value::I64(v as i64),
            DType::I32 => Value::I32(v as i32),
            DType::I16 => Value::I16(v as i16),
            DType::I8 => Value::I8(v as i8),
            DType::U64 => Value::U64(v as u64),
            DType::U32 => Value::U32(v as u32),
            DType::U16 => Value::U16(v as u16),
            DType::U8 => Value::U8(v as u8),
            DType::Bool => Value::Bool(v != 0.0),
            _ => Value::Stored(dtype, storage::encode(dtype, v)),
        }
    }

    /// `v` as an element of `dtype`; integers keep their low bits.
    pub fn from_i64(dtype: DType, v: i64) -> Value {
        match dtype {
            DType::I64 => Value::I64(v),
            DType::I32 => Value::I32(v as i32),
            DType::I16 => Value::I16(v as i16),
            DType::I8 => Value::I8(v as i8),
            DType::U64 => Value::U64(v as u64),
            DType::U32 => Value::U32(v as u32),
            DType::U16 => Value::U16(v as u16),
            DType::U8 => Value::U8(v as u8),
            DType::Bool => Value::Bool(v != 0),
            DType::F32 => Value::F32(v as f32),
            _ => Value::from_f64(dtype, v as f64),
        }
    }

    pub fn as_f64(self) -> f64 {
        match self {
            Value::F64(v) => v,
            Value::F32(v) | Value::F16(v) | Value::BF16(v) => v as f64,
            Value::I64(v) => v as f64,
            Value::I32(v) => v as f64,
            Value::I16(v) => v as f64,
            Value::I8(v) => v as f64,
            Value::U64(v) => v as f64,
            Value::U32(v) => v as f64,
            Value::U16(v) => v as f64,
            Value::U8(v) => v as f64,
            Value::Bool(v) => v as u8 as f64,
            Value::Stored(dtype, v) => storage::decode(dtype, v),
        }
    }

    /// The value as i64, by the rules of `Cast`.
    pub fn as_i64(self) -> i64 {
        match self {
            Value::F64(v) => v as i64,
            Value::F32(v) | Value::F16(v) | Value::BF16(v) => v as i64,
            Value::I64(v) => v,
            Value::I32(v) => v as i64,
            Value::I16(v) => v as i64,
            Value::I8(v) => v as i64,
            Value::U64(v) => v as i64,
            Value::U32(v) => v as i64,
            Value::U16(v) => v as i64,
            Value::U8(v) => v as i64,
            Value::Bool(v) => v as i64,
            Value::Stored(..) => self.as_f64() as i64,
        }
    }

    pub fn is_true(self) -> bool {
        self.as_f64() != 0.0
    }

    /// A value that is held in the type in which it is computed, as one of its own type: a half held as f32, an element of
    /// a storage type as its byte.
    pub fn held_as(self, dtype: DType) -> Value {
        match (self, dtype) {
            (Value::F32(v), DType::F16) => Value::F16(v),
            (Value::F32(v), DType::BF16) => Value::BF16(v),
            (Value::U8(v), dtype) if dtype.is_storage() => Value::Stored(dtype, v),
            (v, _) => v,
        }
    }

    /// Reads one element from its little-endian bytes.
    pub fn load(dtype: DType, bytes: &[u8]) -> Value {
        let mut low = [0; 8];
        low[..dtype.bytes()].copy_from_slice(&bytes[..dtype.bytes()]);
        Value::from(Scalar { dtype, bits: u64::from_le_bytes(low) })
    }

    /// Writes the element to its little-endian bytes.
    pub fn store(self, bytes: &mut [u8]) {
        let size = self.dtype().bytes();
        bytes[..size].copy_from_slice(&Scalar::from(self).bits.to_le_bytes()[..size]);
    }
}

impl From<Scalar> for Value {
    fn from(s: Scalar) -> Value {
        match s.dtype {
            DType::F64 => Value::F64(f64::from_bits(s.bits)),
            DType::F32 => Value::F32(f32::from_bits(s.bits as u32)),
            DType::F16 => Value::F16(f16_to_f32(s.bits as u16)),
            DType::BF16 => Value::BF16(f32::from_bits((s.bits as u32) << 16)),
            DType::I64 => Value::I64(s.bits as i64),
            DType::I32 => Value::I32(s.bits as i32),
            DType::I16 => Value::I16(s.bits as i16),
            DType::I8 => Value::I8(s.bits as i8),
            DType::U64 => Value::U64(s.bits),
            DType::U32 => Value::U32(s.bits as u32),
            DType::U16 => Value::U16(s.bits as u16),
            DType::U8 => Value::U8(s.bits as u8),
            DType::Bool => Value::Bool(s.bits & 0xff != 0),
            dtype => Value::Stored(dtype, s.bits as u8),
        }
    }
}

impl From<Value> for Scalar {
    fn from(v: Value) -> Scalar {
        let bits = match v {
            Value::F64(v) => v.to_bits(),
            Value::F32(v) => v.to_bits() as u64,
            Value::F16(v) => f32_to_f16(v) as u64,
            Value::BF16(v) => f32_to_bf16(v) as u64,
            Value::I64(v) => v as u64,
            Value::I32(v) => v as u32 as u64,
            Value::I16(v) => v as u16 as u64,
            Value::I8(v) => v as u8 as u64,
            Value::U64(v) => v,
            Value::U32(v) => v as u64,
            Value::U16(v) => v as u64,
            Value::U8(v) => v as u64,
            Value::Bool(v) => v as u64,
            Value::Stored(_, v) => v as u64,
        };
        Scalar { dtype: v.dtype(), bits }
    }
}

impl Scalar {
    /// `v` as a constant of `dtype`, rounded once.
    pub fn of(dtype: DType, v: f64) -> Scalar {
        Value::from_f64(dtype, v).into()
    }

    /// The element of `dtype` from which a reduction with `op` starts.
    pub fn neutral(op: BinaryOp, dtype: DType) -> Result<Scalar> {
        let float = dtype.is_float();
        let extreme = |lowest: bool| match dtype {
            DType::I64 => Value::I64(if lowest { i64::MIN } else { i64::MAX }),
            DType::I32 => Value::I32(if lowest { i32::MIN } else { i32::MAX }),
            DType::I16 => Value::I16(if lowest { i16::MIN } else { i16::MAX }),
            DType::I8 => Value::I8(if lowest { i8::MIN } else { i8::MAX }),
            DType::U64 => Value::U64(if lowest { u64::MIN } else { u64::MAX }),
            DType::U32 => Value::U32(if lowest { u32::MIN } else { u32::MAX }),
            DType::U16 => Value::U16(if lowest { u16::MIN } else { u16::MAX }),
            DType::U8 => Value::U8(if lowest { u8::MIN } else { u8::MAX }),
            _ => Value::Bool(!lowest),
        };
        Ok(match op {
            BinaryOp::Add => Scalar::of(dtype, 0.0),
            BinaryOp::Mul => Scalar::of(dtype, 1.0),
            BinaryOp::Max if float => Scalar::of(dtype, f64::NEG_INFINITY),
            BinaryOp::Min if float => Scalar::of(dtype, f64::INFINITY),
            BinaryOp::Max => extreme(true).into(),
            BinaryOp::Min => extreme(false).into(),
            BinaryOp::And if dtype == DType::Bool => Scalar::bool(true),
            BinaryOp::Or | BinaryOp::Xor if dtype == DType::Bool => Scalar::bool(false),
            _ => return Err(Error::Internal(format!("{} of {dtype} has no neutral element", op.name()))),
        })
    }
}

/// A point at which expressions have values: of variables, and of what is read from memory.
pub trait Point {
    /// The value of an affine form.
    fn affine(&self, a: &Affine) -> i64;

    /// The value of a read.
    ///
    /// # Errors
    /// `Internal` when the read leaves its buffer, `Unsupported` as [`Point::value`].
    fn load(&self, access: &Access) -> Result<Value>;

    /// The value of a subscript.
    ///
    /// # Errors
    /// Those of [`Point::value`].
    fn subscript(&self, index: &Index) -> Result<i64> {
        match index {
            Index::Affine(a) => Ok(self.affine(a)),
            Index::Value(e) => Ok(self.value(e)?.as_i64()),
        }
    }

    /// The value of an expression. Only the chosen side of a selection is evaluated.
    ///
    /// # Errors
    /// Those of [`Point::load`], and of operations that have no meaning for their type.
    fn value(&self, e: &Expr) -> Result<Value> {
        Ok(match e {
            Expr::Const(s) => Value::from(*s),
            Expr::Index(a) => Value::I64(self.affine(a)),
            Expr::Load(access) => self.load(access)?,
            Expr::Unary(op, a) => unary(*op, self.value(a)?)?,
            Expr::Binary(op, a, b) => binary(*op, self.value(a)?, self.value(b)?)?,
            Expr::Compare(op, a, b) => compare(*op, self.value(a)?, self.value(b)?)?,
            Expr::Select(c, a, b) => self.value(if self.value(c)?.is_true() { a } else { b })?,
            Expr::Cast(to, a) => cast(*to, self.value(a)?),
            Expr::Bitcast(to, a) => bitcast(*to, self.value(a)?),
        })
    }
}

fn undefined(name: &str, dtype: DType) -> Error {
    Error::Internal(format!("{name} is not defined for {dtype}"))
}

/// The value of `op a`.
pub fn unary(op: UnaryOp, a: Value) -> Result<Value> {
    let result = match a {
        Value::F64(a) => Number::unary(op, a).map(Value::F64),
        Value::F32(a) => Number::unary(op, a).map(Value::F32),
        Value::F16(a) => Number::unary(op, a).map(|v| Value::F16(round_f16(v))),
        Value::BF16(a) => Number::unary(op, a).map(|v| Value::BF16(round_bf16(v))),
        Value::I64(a) => Number::unary(op, a).map(Value::I64),
        Value::I32(a) => Number::unary(op, a).map(Value::I32),
        Value::I16(a) => Number::unary(op, a).map(Value::I16),
        Value::I8(a) => Number::unary(op, a).map(Value::I8),
        Value::U64(a) => Number::unary(op, a).map(Value::U64),
        Value::U32(a) => Number::unary(op, a).map(Value::U32),
        Value::U16(a) => Number::unary(op, a).map(Value::U16),
        Value::U8(a) => Number::unary(op, a).map(Value::U8),
        Value::Bool(a) => Number::unary(op, a).map(Value::Bool),
        Value::Stored(..) => None,
    };
    result.ok_or_else(|| undefined(op.name(), a.dtype()))
}

/// The value of `a op b`; the operands must have one type.
pub fn binary(op: BinaryOp, a: Value, b: Value) -> Result<Value> {
    let result = match (a, b) {
        (Value::F64(a), Value::F64(b)) => Number::binary(op, a, b).map(Value::F64),
        (Value::F32(a), Value::F32(b)) => Number::binary(op, a, b).map(Value::F32),
        (Value::F16(a), Value::F16(b)) => Number::binary(op, a, b).map(|v| Value::F16(round_f16(v))),
        (Value::BF16(a), Value::BF16(b)) => Number::binary(op, a, b).map(|v| Value::BF16(round_bf16(v))),
        (Value::I64(a), Value::I64(b)) => Number::binary(op, a, b).map(Value::I64),
        (Value::I32(a), Value::I32(b)) => Number::binary(op, a, b).map(Value::I32),
        (Value::I16(a), Value::I16(b)) => Number::binary(op, a, b).map(Value::I16),
        (Value::I8(a), Value::I8(b)) => Number::binary(op, a, b).map(Value::I8),
        (Value::U64(a), Value::U64(b)) => Number::binary(op, a, b).map(Value::U64),
        (Value::U32(a), Value::U32(b)) => Number::binary(op, a, b).map(Value::U32),
        (Value::U16(a), Value::U16(b)) => Number::binary(op, a, b).map(Value::U16),
        (Value::U8(a), Value::U8(b)) => Number::binary(op, a, b).map(Value::U8),
        (Value::Bool(a), Value::Bool(b)) => Number::binary(op, a, b).map(Value::Bool),
        _ => return Err(Error::Internal(format!("{} of {} and {}", op.name(), a.dtype(), b.dtype()))),
    };
    result.ok_or_else(|| undefined(op.name(), a.dtype()))
}

/// One step of a reduction with `op`: `total op value`, where not-a-number is kept. Sums and products keep it anyway.
pub fn accumulate(op: BinaryOp, total: Value, value: Value) -> Result<Value> {
    let broken = match value {
        Value::F64(v) => v.is_nan(),
        Value::F32(v) | Value::F16(v) | Value::BF16(v) => v.is_nan(),
        _ => false,
    };
    let combined = binary(op, total, value)?;
    Ok(if broken && matches!(op, BinaryOp::Min | BinaryOp::Max) { value } else { combined })
}

/// Returns `x` if `body` is `op(neutral, x)` of floats, which is never not-a-number: a reduction with `op` then leaves
/// not-a-number out, and `total op x` is one step of it.
pub fn numbers_only(op: BinaryOp, body: &Expr) -> Option<&Expr> {
    let Expr::Binary(inner, first, x) = body else { return None };
    let Expr::Const(first) = **first else { return None };
    let extreme = matches!(op, BinaryOp::Min | BinaryOp::Max) && *inner == op && first.dtype.is_float();
    (extreme && Scalar::neutral(op, first.dtype).is_ok_and(|neutral| neutral == first)).then_some(&**x)
}

/// The value of `a op b`, a bool; the operands must have one type.
pub fn compare(op: CompareOp, a: Value, b: Value) -> Result<Value> {
    Ok(Value::Bool(match (a, b) {
        (Value::F64(a), Value::F64(b)) => op.holds(&a, &b),
        (Value::F32(a), Value::F32(b)) | (Value::F16(a), Value::F16(b)) | (Value::BF16(a), Value::BF16(b)) => {
            op.holds(&a, &b)
        }
        (Value::I64(a), Value::I64(b)) => op.holds(&a, &b),
        (Value::I32(a), Value::I32(b)) => op.holds(&a, &b),
        (Value::I16(a), Value::I16(b)) => op.holds(&a, &b),
        (Value::I8(a), Value::I8(b)) => op.holds(&a, &b),
        (Value::U64(a), Value::U64(b)) => op.holds(&a, &b),
        (Value::U32(a), Value::U32(b)) => op.holds(&a, &b),
        (Value::U16(a), Value::U16(b)) => op.holds(&a, &b),
        (Value::U8(a), Value::U8(b)) => op.holds(&a, &b),
        (Value::Bool(a), Value::Bool(b)) => op.holds(&a, &b),
        _ => return Err(Error::Internal(format!("{} of {} and {}", op.name(), a.dtype(), b.dtype()))),
    }))
}

/// The bits of `a` as an element of `to`, which has as many.
pub fn bitcast(to: DType, a: Value) -> Value {
    Value::from(Scalar { dtype: to, ..Scalar::from(a) })
}

/// `a` converted to `to`.
pub fn cast(to: DType, a: Value) -> Value {
    match a {
        Value::F64(v) => Value::from_f64(to, v),
        Value::F32(v) | Value::F16(v) | Value::BF16(v) => Value::from_f64(to, v as f64),
        Value::U64(v) if to == DType::F32 => Value::F32(v as f32),
        Value::U64(v) if to.is_float() => Value::from_f64(to, v as f64),
        Value::Stored(..) => Value::from_f64(to, a.as_f64()),
        _ => Value::from_i64(to, a.as_i64()),
    }
}

macro_rules! names {
    ($t:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $t {
            /// Every operation.
            pub const ALL: &'static [$t] = &[$($t::$variant),*];
            /// The name in the text language.
            pub fn name(self) -> &'static str {
                match self { $($t::$variant => $name),* }
            }
        }
    };
}
names!(UnaryOp {
    Neg = "neg", Abs = "abs", Sqrt = "sqrt", Exp = "exp", Log = "log", Tanh = "tanh", Erf = "erf", Floor = "floor",
    Ceil = "ceil", Round = "round", Not = "not", CountOnes = "popcount", Sin = "sin", Cos = "cos", Tan = "tan", Asin = "asin", Acos = "acos",
    Atan = "atan", Sinh = "sinh", Cosh = "cosh", Asinh = "asinh", Acosh = "acosh", Atanh = "atanh",
});
names!(BinaryOp {
    Add = "add", Sub = "sub", Mul = "mul", Div = "div", Mod = "mod", Min = "min", Max = "max", Pow = "pow", And = "and",
    Or = "or", Xor = "xor", ShiftLeft = "shl", ShiftRight = "shr",
});
names!(CompareOp { Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge" });

#[cfg(test)]
mod tests;
