//! Conversions between element types, and integers brought back into their range.
//!
//! In: a value in lanes. Out: the value of another type, in the lanes of that type (an i64 may stay in lanes of 32 bits).
//! Integers of 8 and 16 bits are held in wider lanes extended by their sign or by zeros; u32 in lanes of 64, u64 in lanes
//! of i64. Elements of storage types are their bytes: they have no conversions but [`Expr::Bitcast`](crate::expr::Expr).

use crate::codegen::select::state::{Selected, Selector, Val};
use crate::codegen::select::value::{dtype_of, dtype_range, is_float};
use crate::codegen::vcode::{Lane, ShiftOp, VBinary, VUnary};
use crate::expr::scalar::{Value, cast};
use crate::expr::{BinaryOp, CompareOp, Expr, UnaryOp};
use crate::runtime::DType;

/// The range of an integer type of up to 16 bits.
fn small_range(dtype: DType) -> Option<(i64, i64)> {
    dtype_range(dtype).filter(|_| matches!(dtype, DType::U8 | DType::I8 | DType::U16 | DType::I16))
}

/// Returns true if all finite values of a float expression are whole numbers.
fn is_whole(e: &Expr) -> bool {
    match e {
        Expr::Const(s) => Value::from(*s).as_f64().fract() == 0.0,
        Expr::Unary(UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil, _) => true,
        Expr::Unary(UnaryOp::Neg | UnaryOp::Abs, a) => is_whole(a),
        Expr::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max, a, b) => is_whole(a) && is_whole(b),
        _ => false,
    }
}

impl Selector<'_> {
    /// Lanes brought back into the range of the type that they hold, halves rounded.
    pub fn normalized(&mut self, v: Val) -> Selected<Val> {
        Ok(match v.dtype {
            DType::I16 => self.low_bits(v, 16, true),
            DType::I8 => self.low_bits(v, 8, true),
            DType::U32 => self.low_bits(v, 32, false),
            DType::U16 => self.low_bits(v, 16, false),
            DType::U8 => self.low_bits(v, 8, false),
            dtype if dtype.is_half() => self.half_rounded(v),
            _ => v,
        })
    }

    /// Returns true if `e`, an f32, is a value that the half `to` can hold: halves widened, or chosen among.
    pub fn fits_half(&self, to: DType, e: &Expr) -> bool {
        to.is_half() && dtype_of(self.nest, e) == DType::F32 && self.holds_halves(to, e)
    }

    fn holds_halves(&self, to: DType, e: &Expr) -> bool {
        match e {
            Expr::Const(s) => cast(DType::F32, cast(to, Value::from(*s))) == Value::from(*s),
            Expr::Cast(DType::F32, a) => dtype_of(self.nest, a) == to,
            Expr::Unary(UnaryOp::Neg | UnaryOp::Abs, a) => self.holds_halves(to, a),
            Expr::Binary(BinaryOp::Min | BinaryOp::Max, a, b) | Expr::Select(_, a, b) => {
                self.holds_halves(to, a) && self.holds_halves(to, b)
            }
            _ => false,
        }
    }

    /// The low `bits` of each lane, the rest filled with their sign or with zeros.
    fn low_bits(&mut self, v: Val, bits: u8, signed: bool) -> Val {
        if usize::from(bits) == 8 * v.lane.bytes() {
            return v;
        }
        if signed {
            let unused = (v.lane.bytes() * 8) as u8 - bits;
            let high = self.shift(ShiftOp::Left, v, unused);
            return self.shift(ShiftOp::RightArithmetic, high, unused);
        }
        let mask = self.number(v, ((1u64 << bits) - 1) as f64);
        self.vector_binary(VBinary::And, v, mask)
    }

    /// The value of elements as they come from memory: bits of halves, integers of less than a lane.
    pub fn from_memory(&mut self, v: Val) -> Selected<Val> {
        match v.dtype {
            dtype if dtype.is_half() => Ok(self.half_to_value(v)),
            DType::U32 => self.normalized(v),
            _ => Ok(v),
        }
    }

    /// Reinterpretation of the bits as another type of equal width.
    pub fn bitcast(&mut self, to: DType, v: Val) -> Selected<Val> {
        if v.dtype.bytes() != to.bytes() || DType::Bool == to || v.dtype == DType::Bool {
            return self.undefined("a view of the bits as another type", v.dtype);
        }
        // the bits in lanes of integers
        let lane = if to.bytes() == 8 { Lane::I64 } else { Lane::I32 };
        let bits = match v.lane {
            _ if v.dtype.is_half() => self.value_to_half(v),
            Lane::F32 | Lane::F64 => Val { lane, ..v },
            _ => self.converted(v, lane),
        };
        let bits = Val { dtype: to, ..bits };
        match to {
            DType::F32 => Ok(Val { lane: Lane::F32, ..bits }),
            DType::F64 => Ok(Val { lane: Lane::F64, ..bits }),
            DType::F16 | DType::BF16 => {
                let bits = self.low_bits(bits, 16, false);
                Ok(self.half_to_value(bits))
            }
            DType::U32 => {
                let wide = self.converted(bits, Lane::I64);
                self.normalized(wide)
            }
            dtype if dtype.is_storage() => Ok(self.low_bits(bits, 8, false)),
            _ => self.normalized(bits),
        }
    }

    /// A float within a range; not-a-number becomes 0.
    fn clamped(&mut self, v: Val, (lo, hi): (i64, i64)) -> Val {
        let (low, high) = (self.number(v, lo as f64), self.number(v, hi as f64));
        let mut v = v;
        if lo != 0 {
            let zero = self.number(v, 0.0);
            let ordered = self.vector_compare(CompareOp::Eq, v, v);
            v = self.vector_select(ordered, v, zero);
        }
        // the second operand where the first is not a number
        let v = self.vector_binary(VBinary::Max, v, low);
        self.vector_binary(VBinary::Min, v, high)
    }

    /// The operand of a clamp to the range of an integer type of up to 16 bits, to which the conversion clamps anyway.
    pub fn unclamped<'e>(&self, to: DType, e: &'e Expr) -> &'e Expr {
        let is = |bound: &Expr, v: i64| matches!(bound, Expr::Const(s) if Value::from(*s).as_f64() == v as f64);
        match (e, small_range(to)) {
            (Expr::Binary(BinaryOp::Min, inner, high), Some((lo, hi))) if is(high, hi) => match &**inner {
                Expr::Binary(BinaryOp::Max, x, low) if is(low, lo) && dtype_of(self.nest, x).is_float() => x,
                _ => e,
            },
            _ => e,
        }
    }

    /// The f32 that `e` narrows to an integer of up to 16 bits, and the range of these.
    pub fn narrowed<'e>(&self, e: &'e Expr) -> Option<(&'e Expr, (i64, i64))> {
        let Expr::Cast(to, x) = e else { return None };
        (dtype_of(self.nest, x) == DType::F32).then_some((&**x, small_range(*to)?))
    }

    /// The value of an expression that is [narrowed](Selector::narrowed), as the f32 that it was: whole, and in range.
    pub fn whole_part(&mut self, e: &Expr) -> Selected<Val> {
        let (Expr::Cast(to, _), Some((x, range))) = (e, self.narrowed(e)) else {
            return self.internal("a whole part of what is not narrowed");
        };
        let inner = self.unclamped(*to, x);
        let v = self.value(inner)?;
        let v = self.clamped(v, range);
        if !is_whole(x) {
            let whole = self.converted(v, Lane::I32);
            return Ok(self.converted(whole, Lane::F32));
        }
        if range.0 == 0 {
            return Ok(v);
        }
        // no negative zero
        let zero = self.number(v, 0.0);
        Ok(self.vector_binary(VBinary::Add, v, zero))
    }

    pub fn cast(&mut self, to: DType, v: Val) -> Selected<Val> {
        if v.dtype == to {
            return Ok(v);
        }
        let lane = self.lane(to)?;
        if to.is_storage() || v.dtype.is_storage() {
            return self.undefined("a conversion", if to.is_storage() { to } else { v.dtype });
        }
        if to == DType::Bool {
            let zero = self.number(v, 0.0);
            return Ok(self.vector_compare(CompareOp::Ne, v, zero));
        }
        if v.dtype == DType::Bool {
            let one = Val { reg: self.bits(v.lane, 1), uniform: true, ..v };
            let v = Val { dtype: to, ..self.vector_binary(VBinary::And, v, one) };
            let stays = to == DType::I64 && v.lane == Lane::I32;
            return Ok(if stays { v } else { self.converted(v, lane) });
        }
        if !is_float(v.lane) {
            let typed = Val { dtype: to, ..v };
            if is_float(lane) {
                let v = if v.dtype == DType::U64 {
                    self.unsigned_to_float(typed, lane)
                } else {
                    self.converted(typed, lane)
                };
                return self.normalized(v);
            }
            // an i64 in narrow lanes stays there
            let narrow = to == DType::I64 || v.lane == Lane::I32 && lane == Lane::I32;
            let v = if narrow { typed } else { self.converted(typed, lane) };
            return self.normalized(v);
        }
        if is_float(lane) {
            let v = Val { dtype: to, ..self.converted(v, lane) };
            return self.normalized(v);
        }
        self.float_to_int(to, lane, v)
    }

    /// Truncation that saturates; not-a-number becomes 0.
    fn float_to_int(&mut self, to: DType, lane: Lane, v: Val) -> Selected<Val> {
        match to {
            DType::U64 => return Ok(self.float_to_unsigned(v)),
            DType::U32 => {
                let wide = self.float_to_int(DType::I64, Lane::I64, v)?;
                let (least, most) = (self.number(wide, 0.0), self.number(wide, u32::MAX.into()));
                let wide = self.vector_binary(VBinary::Max, wide, least);
                return Ok(Val { dtype: to, ..self.vector_binary(VBinary::Min, wide, most) });
            }
            _ => {}
        }
        if let Some(range) = dtype_range(to).filter(|_| to != DType::I32) {
            let v = self.clamped(v, range);
            return Ok(Val { dtype: to, ..self.converted(v, Lane::I32) });
        }
        let (limit, most) =
            if lane == Lane::I32 { (2147483648.0, i32::MAX as u64) } else { (9223372036854775808.0, i64::MAX as u64) };
        let limit = self.number(v, limit);
        let least = self.vector_unary(VUnary::Neg, limit);
        let ordered = self.vector_compare(CompareOp::Eq, v, v);
        let above = self.vector_compare(CompareOp::Ge, v, limit);
        let clamped = self.vector_binary(VBinary::Max, least, v);
        let int = Val { dtype: to, ..self.converted(clamped, lane) };
        let most = Val { reg: self.bits(lane, most), uniform: true, ..int };
        let zero = self.number(int, 0.0);
        let int = self.vector_select(above, most, int);
        Ok(self.vector_select(ordered, int, zero))
    }
}
