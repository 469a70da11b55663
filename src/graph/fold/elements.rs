//! The elements of a strip, in the Rust type that they are computed in.

use crate::expr::scalar::Value;
use crate::expr::scalar::number::{f16_to_f32, f32_to_bf16, f32_to_f16, round_bf16, round_f16};
use crate::runtime::DType;

/// The elements of a strip, in the type that they are computed in (halves in f32, storage types as bytes).
#[derive(Clone, Debug)]
pub enum Lanes {
    F64(Vec<f64>),
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    I16(Vec<i16>),
    I8(Vec<i8>),
    U64(Vec<u64>),
    U32(Vec<u32>),
    U16(Vec<u16>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
}

/// Runs `$body` with the vector of whatever type it has.
macro_rules! with {
    ($lanes:expr, $v:ident => $body:expr) => {
        match $lanes {
            Lanes::F64($v) => $body,
            Lanes::F32($v) => $body,
            Lanes::I64($v) => $body,
            Lanes::I32($v) => $body,
            Lanes::I16($v) => $body,
            Lanes::I8($v) => $body,
            Lanes::U64($v) => $body,
            Lanes::U32($v) => $body,
            Lanes::U16($v) => $body,
            Lanes::U8($v) => $body,
            Lanes::Bool($v) => $body,
        }
    };
}

/// Runs `$body` with the vectors of two strips of one type.
macro_rules! with_both {
    ($a:expr, $b:expr, ($x:ident, $y:ident) => $body:expr) => {
        match ($a, $b) {
            (Lanes::F64($x), Lanes::F64($y)) => $body,
            (Lanes::F32($x), Lanes::F32($y)) => $body,
            (Lanes::I64($x), Lanes::I64($y)) => $body,
            (Lanes::I32($x), Lanes::I32($y)) => $body,
            (Lanes::I16($x), Lanes::I16($y)) => $body,
            (Lanes::I8($x), Lanes::I8($y)) => $body,
            (Lanes::U64($x), Lanes::U64($y)) => $body,
            (Lanes::U32($x), Lanes::U32($y)) => $body,
            (Lanes::U16($x), Lanes::U16($y)) => $body,
            (Lanes::U8($x), Lanes::U8($y)) => $body,
            (Lanes::Bool($x), Lanes::Bool($y)) => $body,
            _ => unreachable!("types are checked when an expression is compiled"),
        }
    };
}

/// Runs `$body` with the vectors of three strips of one type.
macro_rules! with_all {
    ($a:expr, $b:expr, $c:expr, ($x:ident, $y:ident, $z:ident) => $body:expr) => {
        match ($a, $b, $c) {
            (Lanes::F64($x), Lanes::F64($y), Lanes::F64($z)) => $body,
            (Lanes::F32($x), Lanes::F32($y), Lanes::F32($z)) => $body,
            (Lanes::I64($x), Lanes::I64($y), Lanes::I64($z)) => $body,
            (Lanes::I32($x), Lanes::I32($y), Lanes::I32($z)) => $body,
            (Lanes::I16($x), Lanes::I16($y), Lanes::I16($z)) => $body,
            (Lanes::I8($x), Lanes::I8($y), Lanes::I8($z)) => $body,
            (Lanes::U64($x), Lanes::U64($y), Lanes::U64($z)) => $body,
            (Lanes::U32($x), Lanes::U32($y), Lanes::U32($z)) => $body,
            (Lanes::U16($x), Lanes::U16($y), Lanes::U16($z)) => $body,
            (Lanes::U8($x), Lanes::U8($y), Lanes::U8($z)) => $body,
            (Lanes::Bool($x), Lanes::Bool($y), Lanes::Bool($z)) => $body,
            _ => unreachable!("types are checked when an expression is compiled"),
        }
    };
}
pub(in crate::graph::fold) use {with, with_all, with_both};

impl Lanes {
    pub fn of(dtype: DType) -> Lanes {
        match dtype {
            DType::F64 => Lanes::F64(vec![]),
            DType::F32 | DType::F16 | DType::BF16 => Lanes::F32(vec![]),
            DType::I64 => Lanes::I64(vec![]),
            DType::I32 => Lanes::I32(vec![]),
            DType::I16 => Lanes::I16(vec![]),
            DType::I8 => Lanes::I8(vec![]),
            DType::U64 => Lanes::U64(vec![]),
            DType::U32 => Lanes::U32(vec![]),
            DType::U16 => Lanes::U16(vec![]),
            DType::Bool => Lanes::Bool(vec![]),
            _ => Lanes::U8(vec![]),
        }
    }

    pub fn clear(&mut self) {
        with!(self, v => v.clear());
    }

    pub fn len(&self) -> usize {
        with!(self, v => v.len())
    }

    pub fn value(&self, i: usize) -> Value {
        match self {
            Lanes::F64(v) => Value::F64(v[i]),
            Lanes::F32(v) => Value::F32(v[i]),
            Lanes::I64(v) => Value::I64(v[i]),
            Lanes::I32(v) => Value::I32(v[i]),
            Lanes::I16(v) => Value::I16(v[i]),
            Lanes::I8(v) => Value::I8(v[i]),
            Lanes::U64(v) => Value::U64(v[i]),
            Lanes::U32(v) => Value::U32(v[i]),
            Lanes::U16(v) => Value::U16(v[i]),
            Lanes::U8(v) => Value::U8(v[i]),
            Lanes::Bool(v) => Value::Bool(v[i]),
        }
    }

    /// Appends lanes of `value` up to `len`.
    pub fn fill(&mut self, len: usize, value: Value) {
        match (self, value) {
            (Lanes::F64(v), Value::F64(x)) => v.resize(len, x),
            (Lanes::F32(v), Value::F32(x) | Value::F16(x) | Value::BF16(x)) => v.resize(len, x),
            (Lanes::I64(v), Value::I64(x)) => v.resize(len, x),
            (Lanes::I32(v), Value::I32(x)) => v.resize(len, x),
            (Lanes::I16(v), Value::I16(x)) => v.resize(len, x),
            (Lanes::I8(v), Value::I8(x)) => v.resize(len, x),
            (Lanes::U64(v), Value::U64(x)) => v.resize(len, x),
            (Lanes::U32(v), Value::U32(x)) => v.resize(len, x),
            (Lanes::U16(v), Value::U16(x)) => v.resize(len, x),
            (Lanes::U8(v), Value::U8(x) | Value::Stored(_, x)) => v.resize(len, x),
            (Lanes::Bool(v), Value::Bool(x)) => v.resize(len, x),
            _ => unreachable!("types are checked when an expression is compiled"),
        }
    }

    pub fn round(&mut self, dtype: DType) {
        if let Lanes::F32(v) = self {
            match dtype {
                DType::F16 => v.iter_mut().for_each(|x| *x = round_f16(*x)),
                DType::BF16 => v.iter_mut().for_each(|x| *x = round_bf16(*x)),
                _ => {}
            }
        }
    }

    /// Appends the elements `base, base + stride, …` of a tensor.
    pub fn load(&mut self, dtype: DType, data: &[u8], base: i64, stride: i64, count: usize) {
        match (self, dtype) {
            (Lanes::F64(v), _) => read(v, data, base, stride, count, f64::from_le_bytes),
            (Lanes::F32(v), DType::F16) => read(v, data, base, stride, count, |b| f16_to_f32(u16::from_le_bytes(b))),
            (Lanes::F32(v), DType::BF16) => {
                read(v, data, base, stride, count, |b| f32::from_bits((u16::from_le_bytes(b) as u32) << 16))
            }
            (Lanes::F32(v), _) => read(v, data, base, stride, count, f32::from_le_bytes),
            (Lanes::I64(v), _) => read(v, data, base, stride, count, i64::from_le_bytes),
            (Lanes::I32(v), _) => read(v, data, base, stride, count, i32::from_le_bytes),
            (Lanes::I16(v), _) => read(v, data, base, stride, count, i16::from_le_bytes),
            (Lanes::I8(v), _) => read(v, data, base, stride, count, i8::from_le_bytes),
            (Lanes::U64(v), _) => read(v, data, base, stride, count, u64::from_le_bytes),
            (Lanes::U32(v), _) => read(v, data, base, stride, count, u32::from_le_bytes),
            (Lanes::U16(v), _) => read(v, data, base, stride, count, u16::from_le_bytes),
            (Lanes::U8(v), _) => read(v, data, base, stride, count, u8::from_le_bytes),
            (Lanes::Bool(v), _) => read(v, data, base, stride, count, |b: [u8; 1]| b[0] != 0),
        }
    }

    /// Writes lane i to element `base + i·stride` of a tensor.
    pub fn store(&self, data: &mut [u8], base: i64, stride: i64, dtype: DType) {
        match (self, dtype) {
            (Lanes::F64(v), _) => write(v, data, base, stride, f64::to_le_bytes),
            (Lanes::F32(v), DType::F16) => write(v, data, base, stride, |x| f32_to_f16(x).to_le_bytes()),
            (Lanes::F32(v), DType::BF16) => write(v, data, base, stride, |x| f32_to_bf16(x).to_le_bytes()),
            (Lanes::F32(v), _) => write(v, data, base, stride, f32::to_le_bytes),
            (Lanes::I64(v), _) => write(v, data, base, stride, i64::to_le_bytes),
            (Lanes::I32(v), _) => write(v, data, base, stride, i32::to_le_bytes),
            (Lanes::I16(v), _) => write(v, data, base, stride, i16::to_le_bytes),
            (Lanes::I8(v), _) => write(v, data, base, stride, i8::to_le_bytes),
            (Lanes::U64(v), _) => write(v, data, base, stride, u64::to_le_bytes),
            (Lanes::U32(v), _) => write(v, data, base, stride, u32::to_le_bytes),
            (Lanes::U16(v), _) => write(v, data, base, stride, u16::to_le_bytes),
            (Lanes::U8(v), _) => write(v, data, base, stride, u8::to_le_bytes),
            (Lanes::Bool(v), _) => write(v, data, base, stride, |x| [x as u8]),
        }
    }
}

fn read<T: Clone, const N: usize>(
    out: &mut Vec<T>,
    data: &[u8],
    base: i64,
    stride: i64,
    count: usize,
    decode: impl Fn([u8; N]) -> T,
) {
    let elements = &data.as_chunks::<N>().0[base as usize..];
    match stride {
        0 => out.resize(out.len() + count, decode(elements[0])),
        1 => out.extend(elements[..count].iter().map(|&e| decode(e))),
        _ if stride > 0 => out.extend(elements.iter().step_by(stride as usize).take(count).map(|&e| decode(e))),
        _ => out.extend((0..count as i64).map(|i| decode(data.as_chunks::<N>().0[(base + i * stride) as usize]))),
    }
}

fn write<T: Copy, const N: usize>(lanes: &[T], data: &mut [u8], base: i64, stride: i64, encode: impl Fn(T) -> [u8; N]) {
    let elements = data.as_chunks_mut::<N>().0;
    for (i, &x) in lanes.iter().enumerate() {
        elements[(base + i as i64 * stride) as usize] = encode(x);
    }
}
