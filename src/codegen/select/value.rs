//! Expressions to vector instructions.
//!
//! `a·b + c` of floats is contracted to one fused operation wherever the product stands directly in the sum, on every
//! target alike: how often a value is rounded follows from its expression alone. A cast of the product to its own type
//! keeps it rounded; the polyhedral side sets it where a value is read more than once (its module `rounding`). Integers
//! of 8 and 16 bits have lanes of 32, u32 has lanes of 64: they are kept in range after each operation. An i64 whose interval fits is computed in lanes of 32 bits.

use crate::codegen::loopnest::LoopNest;
use crate::codegen::select::constant_division::is_divided_in_lanes;
use crate::codegen::select::division::quick_divisor;
use crate::codegen::select::math::{self, hyperbolic, trigonometric};
use crate::codegen::select::state::{Selected, Selector, Stop, Val, View};
use crate::codegen::vcode::{Inst, Lane, ShiftOp, VBinary, VType, VUnary, Vreg};
use crate::expr::Affine;
use crate::expr::Var;
use crate::expr::interval::Facts;
use crate::expr::narrow::{self, Names, constant_divisor, narrow_bytes};
use crate::expr::scalar::Value;
use crate::expr::{BinaryOp, BufferId, CompareOp, Expr, Scalar, UnaryOp};
use crate::runtime::{DType, Error, Result};

/// The lane type that holds `dtype` beside lanes of 32 bits or more.
pub fn lane_of(dtype: DType) -> Result<Lane> {
    match dtype {
        DType::F64 => Ok(Lane::F64),
        DType::F32 | DType::F16 | DType::BF16 => Ok(Lane::F32),
        DType::I64 | DType::U64 | DType::U32 => Ok(Lane::I64),
        _ => Ok(Lane::I32),
    }
}

pub fn is_float(lane: Lane) -> bool {
    matches!(lane, Lane::F32 | Lane::F64)
}

/// Returns true if a product in a sum is not rounded by itself.
pub fn contracts(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// The factors of a product that a sum takes without rounding it, and whether the sum subtracts it.
pub fn product(e: &Expr) -> Option<(&Expr, &Expr, bool)> {
    match e {
        Expr::Binary(BinaryOp::Mul, a, b) => Some((a, b, false)),
        Expr::Unary(UnaryOp::Neg, e) => match &**e {
            Expr::Binary(BinaryOp::Mul, a, b) => Some((a, b, true)),
            _ => None,
        },
        _ => None,
    }
}

fn fits_i32(range: (i64, i64)) -> bool {
    range.0 >= i32::MIN as i64 && range.1 <= i32::MAX as i64
}

/// The interval of an integer expression, where it is known without reading memory.
fn int_range(nest: &LoopNest, facts: &Facts, resolve: &dyn Fn(&Affine) -> Affine, e: &Expr) -> Option<(i64, i64)> {
    let range = |e: &Expr| int_range(nest, facts, resolve, e);
    match e {
        Expr::Const(s) if !s.dtype.is_float() => {
            let v = Value::from(*s).as_i64();
            Some((v, v))
        }
        Expr::Index(a) => Some(facts.bounds(&resolve(a))),
        Expr::Load(a) => dtype_range(nest.buffer(a.buffer).dtype),
        Expr::Cast(to, a) => {
            let from = dtype_of(nest, a);
            if from.is_float() || from == DType::Bool {
                return dtype_range(if from == DType::Bool { DType::Bool } else { *to });
            }
            let (have, room) = (range(a), dtype_range(*to));
            match (have, room) {
                (Some(h), None) => Some(h),
                (Some(h), Some(r)) if h.0 >= r.0 && h.1 <= r.1 => Some(h),
                (_, room) => room,
            }
        }
        Expr::Binary(..) if matches!(dtype_of(nest, e), DType::U32 | DType::U64) => None,
        Expr::Binary(op, a, b) => {
            let ((la, ha), (lb, hb)) = (range(a)?, range(b)?);
            let limit = 1u64 << 31;
            if [la, ha, lb, hb].iter().any(|v| v.unsigned_abs() > limit) {
                return None;
            }
            match op {
                BinaryOp::Add => Some((la + lb, ha + hb)),
                BinaryOp::Sub => Some((la - hb, ha - lb)),
                BinaryOp::Mul => {
                    let corners = [la * lb, la * hb, ha * lb, ha * hb];
                    Some((*corners.iter().min()?, *corners.iter().max()?))
                }
                BinaryOp::Min => Some((la.min(lb), ha.min(hb))),
                BinaryOp::Max => Some((la.max(lb), ha.max(hb))),
                BinaryOp::Div => {
                    let m = la.abs().max(ha.abs());
                    Some((-m, m))
                }
                BinaryOp::Mod => {
                    let m = lb.abs().max(hb.abs());
                    Some((-m, m))
                }
                _ => None,
            }
        }
        Expr::Select(_, a, b) => {
            let ((la, ha), (lb, hb)) = (range(a)?, range(b)?);
            Some((la.min(lb), ha.max(hb)))
        }
        _ => None,
    }
}

/// The values of an integer type of up to 32 bits.
pub fn dtype_range(dtype: DType) -> Option<(i64, i64)> {
    narrow::dtype_range(dtype).filter(|_| dtype != DType::I64)
}

/// The amount of a shift of integers by a constant that leaves some bits.
fn constant_shift(op: BinaryOp, amount: &Expr, dtype: DType) -> Option<u8> {
    let Expr::Const(amount) = amount else { return None };
    let amount = Value::from(*amount).as_i64();
    let shifts = matches!(op, BinaryOp::ShiftLeft | BinaryOp::ShiftRight) && !dtype.is_float();
    (shifts && (0..8 * dtype.bytes() as i64).contains(&amount)).then_some(amount as u8)
}

/// The element type of an expression.
pub fn dtype_of(nest: &LoopNest, e: &Expr) -> DType {
    e.dtype(&|b: BufferId| nest.buffer(b).dtype)
}

/// Bytes of the widest lane that evaluating `e` needs, given the ranges of the nest's variables.
pub fn widest(nest: &LoopNest, facts: &Facts, vectors: &[Var], e: &Expr) -> usize {
    let is_table = |b: BufferId| nest.is_table(b);
    let names = Names { dtype: &|b| nest.buffer(b).dtype, bounds: &|a| facts.bounds(a), is_table: &is_table };
    names.lane_bytes(e).unwrap_or_else(|| widest_inside(nest, facts, vectors, names, e))
}

/// As [`widest`], of a part of an expression that lanes of 16 bits are too narrow for: no part of it is in such lanes.
fn widest_inside(nest: &LoopNest, facts: &Facts, vectors: &[Var], names: Names, e: &Expr) -> usize {
    let resolve = |a: &Affine| a.clone();
    let dtype = dtype_of(nest, e);
    let result = match (dtype, e) {
        (DType::I64, Expr::Load(_)) => 8,
        (DType::I64, _) if int_range(nest, facts, &resolve, e).is_some_and(fits_i32) => 4,
        (DType::F64 | DType::I64 | DType::U64 | DType::U32, _) => 8,
        _ => 4,
    };
    let operand = match e {
        Expr::Load(access) => {
            let large = nest.buffer(access.buffer).span() * dtype.bytes() as i64 > i32::MAX as i64;
            let wide = large && (!access.guard.is_empty() || access.index.iter().any(|i| i.affine().is_none()));
            let guards = access.guard.iter().map(|g| if fits_i32(facts.bounds(g)) { 4 } else { 8 });
            guards.max().unwrap_or(4).max(if wide { 8 } else { 4 })
        }
        Expr::Binary(op, a, b) => {
            let through_f64 = match op {
                BinaryOp::Div | BinaryOp::Mod if !dtype.is_float() => {
                    !constant_divisor(*op, b).is_some_and(|d| is_divided_in_lanes(dtype, names.range(a), d))
                }
                BinaryOp::Mod => true,
                BinaryOp::Pow => math::simple_power(b).is_none(),
                _ => false,
            };
            if through_f64 { 8 } else { 4 }
        }
        _ => 4,
    };
    // a subscript that is the same for all lanes is an integer in a register of its own
    let in_lanes = |c: &&Expr| !matches!(e, Expr::Load(_)) || vectors.is_empty() || varies_along(c, vectors);
    let inside = e.children().filter(in_lanes).map(|e| widest_inside(nest, facts, vectors, names, e));
    inside.fold(result.max(operand), usize::max)
}

/// Returns true if a value may differ between iterations of the loops over `vars`.
fn varies_along(e: &Expr, vars: &[Var]) -> bool {
    let uses = |a: &Affine| vars.iter().any(|v| a.uses(*v));
    e.any(&mut |e| match e {
        Expr::Index(a) => uses(a),
        Expr::Load(access) => access.affine_forms().any(uses),
        _ => false,
    })
}

/// Bytes of the widest element of a buffer in registers.
pub fn buffer_width(nest: &LoopNest, b: BufferId) -> usize {
    let dtype = nest.buffer(b).dtype;
    narrow_bytes(dtype).unwrap_or_else(|| lane_of(dtype).map_or(4, Lane::bytes))
}

impl Selector<'_> {
    /// The type of a value: all lanes that fit beside the widest for uniform values, else the lanes at work.
    pub fn ty(&self, lane: Lane, uniform: bool) -> VType {
        let lanes = self.target.vector_bytes / self.chunk.widest.max(lane.bytes());
        VType { lane, lanes: if uniform { lanes as u8 } else { self.chunk.lanes } }
    }

    /// The lane type that holds `dtype` beside the lanes at work: where these have 8 or 16 bits, all integers have as many.
    pub fn lane(&self, dtype: DType) -> Result<Lane> {
        match (self.chunk.widest, dtype) {
            (1, DType::U8) => Ok(Lane::U8),
            (1, DType::I8 | DType::Bool) => Ok(Lane::I8),
            (2, DType::U16) => Ok(Lane::U16),
            (2, DType::I16 | DType::I8 | DType::U8 | DType::Bool) => Ok(Lane::I16),
            (1 | 2, _) => Err(Error::Internal(format!("{}: {dtype} in narrow lanes", self.nest.name))),
            _ => lane_of(dtype),
        }
    }

    /// A whole register.
    pub fn full(&self, lane: Lane) -> VType {
        VType { lane, lanes: (self.target.vector_bytes / lane.bytes()) as u8 }
    }

    /// A constant in every lane.
    pub fn bits(&mut self, lane: Lane, bits: u64) -> Vreg {
        let ty = self.full(lane);
        let bits = bits & lane.all_ones();
        self.emit(|dst| Inst::VConst { dst, ty, bits })
    }

    pub fn constant(&mut self, s: Scalar) -> Selected<Val> {
        let lane = self.lane(s.dtype)?;
        let (lane, bits) = match Value::from(s) {
            Value::F64(v) => (lane, v.to_bits()),
            Value::F32(v) | Value::F16(v) | Value::BF16(v) => (lane, v.to_bits() as u64),
            Value::Bool(v) => (lane, if v { u64::MAX } else { 0 }),
            Value::Stored(_, byte) => (lane, byte.into()),
            other => {
                let v = other.as_i64();
                let narrow = fits_i32((v, v)) && lane.bytes() >= 4 && !matches!(s.dtype, DType::U32 | DType::U64);
                (if narrow { Lane::I32 } else { lane }, v as u64)
            }
        };
        Ok(Val { reg: self.bits(lane, bits), lane, dtype: s.dtype, uniform: true })
    }

    /// `v` with integer (or mask) lanes of `lane`'s width.
    pub fn with_lane(&mut self, v: Val, lane: Lane) -> Selected<Val> {
        if v.dtype == DType::Bool {
            let lane = Lane::integer(lane.bytes());
            return Ok(Val { reg: self.mask_as(v.reg, v.lane, lane, v.uniform), lane, ..v });
        }
        if v.lane == lane {
            return Ok(v);
        }
        if is_float(v.lane) || is_float(lane) {
            return self.internal("a change between floats and integers that is not a cast");
        }
        Ok(self.converted(v, lane))
    }

    pub fn converted(&mut self, v: Val, lane: Lane) -> Val {
        if v.lane == lane || v.lane.bytes() < 4 && v.lane.bytes() == lane.bytes() {
            return Val { lane, ..v };
        }
        let to = self.ty(lane, v.uniform);
        Val { reg: self.emit(|dst| Inst::VConvert { dst, to, src: v.reg, from: v.lane }), lane, ..v }
    }

    /// A mask in lanes of another width.
    pub fn mask_as(&mut self, mask: Vreg, from: Lane, to: Lane, uniform: bool) -> Vreg {
        if from.bytes() == to.bytes() {
            return mask;
        }
        let (from, to) = (Lane::integer(from.bytes()), self.ty(Lane::integer(to.bytes()), uniform));
        self.emit(|dst| Inst::VConvert { dst, to, src: mask, from })
    }

    /// The mask of the lanes `from..to`.
    pub fn range_mask(&mut self, bytes: usize, from: i64, to: i64) -> Vreg {
        let lane = Lane::integer(bytes);
        let ty = self.full(lane);
        let iota = self.emit(|dst| Inst::VIota { dst, ty });
        let end = self.bits(lane, to as u64);
        let below = self.emit(|dst| Inst::VCompare { op: CompareOp::Lt, dst, ty, a: iota, b: end });
        if from == 0 {
            return below;
        }
        let start = self.bits(lane, from as u64);
        let above = self.emit(|dst| Inst::VCompare { op: CompareOp::Ge, dst, ty, a: iota, b: start });
        self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: above, b: below })
    }

    /// The mask of the lanes at work.
    pub fn lane_mask(&mut self, bytes: usize) -> Vreg {
        let (first, count) = (self.chunk.first as i64, self.chunk.count as i64);
        self.range_mask(bytes, first, first + count)
    }

    pub fn vector_binary(&mut self, op: VBinary, a: Val, b: Val) -> Val {
        let uniform = a.uniform && b.uniform;
        let ty = self.ty(a.lane, uniform);
        Val { reg: self.emit(|dst| Inst::VBinary { op, dst, ty, a: a.reg, b: b.reg }), uniform, ..a }
    }

    pub fn vector_unary(&mut self, op: VUnary, a: Val) -> Val {
        let ty = self.ty(a.lane, a.uniform);
        Val { reg: self.emit(|dst| Inst::VUnary { op, dst, ty, a: a.reg }), ..a }
    }

    pub fn shift(&mut self, op: ShiftOp, a: Val, amount: u8) -> Val {
        let ty = self.ty(a.lane, a.uniform);
        Val { reg: self.emit(|dst| Inst::VShift { op, dst, ty, a: a.reg, amount }), ..a }
    }

    /// A mask.
    pub fn vector_compare(&mut self, op: CompareOp, a: Val, b: Val) -> Val {
        let uniform = a.uniform && b.uniform;
        let ty = self.ty(a.lane, uniform);
        let reg = self.emit(|dst| Inst::VCompare { op, dst, ty, a: a.reg, b: b.reg });
        let lane = Lane::integer(a.lane.bytes());
        Val { reg, lane, dtype: DType::Bool, uniform }
    }

    pub fn vector_select(&mut self, mask: Val, a: Val, b: Val) -> Val {
        let uniform = mask.uniform && a.uniform && b.uniform;
        let ty = self.ty(a.lane, uniform);
        let mask = self.mask_as(mask.reg, mask.lane, a.lane, mask.uniform);
        Val { reg: self.emit(|dst| Inst::VSelect { dst, ty, mask, a: a.reg, b: b.reg }), uniform, ..a }
    }

    pub fn number(&mut self, like: Val, v: f64) -> Val {
        let bits = match like.lane {
            Lane::F32 => (v as f32).to_bits() as u64,
            Lane::F64 => v.to_bits(),
            _ => v as i64 as u64,
        };
        Val { reg: self.bits(like.lane, bits), uniform: true, ..like }
    }

    pub fn value(&mut self, e: &Expr) -> Selected<Val> {
        match e {
            Expr::Const(s) => self.constant(*s),
            Expr::Index(a) => {
                let a = self.resolve(a);
                let lane = if fits_i32(self.facts.bounds(&a)) { Lane::I32 } else { Lane::I64 };
                let uniform = !a.uses(crate::codegen::select::state::LANE);
                Ok(Val { reg: self.lane_value(&a, lane), lane, dtype: DType::I64, uniform })
            }
            Expr::Load(access) => self.load(access),
            Expr::Unary(op, a) => {
                let a = self.value(a)?;
                self.unary(*op, a)
            }
            Expr::Binary(op, a, b) => self.binary(*op, a, b, e),
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.compare(*op, a, b)
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.value(c)?, self.value(a)?, self.value(b)?);
                let (a, b) = self.same_lanes(a, b)?;
                Ok(self.vector_select(c, a, b))
            }
            Expr::Cast(DType::F32, a) if self.narrowed(a).is_some() => self.whole_part(a),
            Expr::Cast(to, a) => {
                let v = self.value(self.unclamped(*to, a))?;
                if self.fits_half(*to, a) {
                    return Ok(Val { dtype: *to, ..v });
                }
                if self.is_held(*to, a) && v.lane.bytes() < 8 {
                    let lane = self.lane(*to)?;
                    let lane = if *to == DType::I64 { v.lane } else { lane };
                    return Ok(Val { dtype: *to, ..self.converted(v, lane) });
                }
                self.cast(*to, v)
            }
            Expr::Bitcast(to, a) => {
                if let Some(access) = self.bits_in_memory(*to, a) {
                    return self.viewed(View { dtype: *to, group: 1 }, access);
                }
                let v = self.value(a)?;
                self.bitcast(*to, v)
            }
        }
    }

    /// Both operands in the wider lane type.
    fn same_lanes(&mut self, a: Val, b: Val) -> Selected<(Val, Val)> {
        if a.lane == b.lane {
            return Ok((a, b));
        }
        let lane = if a.lane.bytes() > b.lane.bytes() { a.lane } else { b.lane };
        Ok((self.with_lane(a, lane)?, self.with_lane(b, lane)?))
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, whole: &Expr) -> Selected<Val> {
        let dtype = dtype_of(self.nest, whole);
        if is_float(lane_of(dtype)?) {
            if contracts(dtype)
                && let Some(v) = self.literal_binary(op, a, b)?
            {
                return Ok(v);
            }
            let sum = match op {
                _ if !contracts(dtype) => None,
                BinaryOp::Add => product(a).map(|p| (p, b)).or_else(|| product(b).map(|p| (p, a))),
                BinaryOp::Sub => product(b).map(|(x, y, negative)| ((x, y, !negative), a)),
                _ => None,
            };
            if let Some(((x, y, negate), c)) = sum {
                if let Some(scaled) = self.scaled(x, y, negate) {
                    let (x, c) = (self.value(scaled.operand)?, self.value(c)?);
                    return Ok(self.plus_scaled(c, scaled.factor, x));
                }
                let (x, y, c) = (self.value(x)?, self.value(y)?, self.value(c)?);
                return Ok(self.fused(x, y, c, negate));
            }
            if op == BinaryOp::Div
                && let Some(divisor) = quick_divisor(b)
            {
                let a = self.value(a)?;
                let v = self.quotient_by(a, divisor);
                return self.normalized(v);
            }
            if op == BinaryOp::Div
                && let Some(v) = self.quotient_by_root(a, b)?
            {
                return Ok(v);
            }
            if op == BinaryOp::Pow
                && let Some(power) = math::simple_power(b)
            {
                let a = self.value(a)?;
                let v = math::power_by(self, a, power);
                return self.normalized(v);
            }
        }
        if let Some(amount) = constant_shift(op, b, dtype) {
            let a = self.value(a)?;
            let lane = self.lane(dtype)?;
            let a = self.with_lane(a, lane)?;
            let left = op == BinaryOp::ShiftLeft;
            let v = self.shifted_by(left, a, amount);
            return if left { self.normalized(v) } else { Ok(v) };
        }
        let shifted = match op {
            BinaryOp::And => self.logical_shift(a, b)?,
            BinaryOp::Or => self.logical_shift_by_value(a, b)?,
            _ => None,
        };
        if let Some(v) = shifted {
            return Ok(v);
        }
        if op == BinaryOp::Mul
            && matches!(dtype, DType::I32 | DType::I16 | DType::I8 | DType::U8)
            && let Some(v) = self.short_product(a, b)?
        {
            return Ok(v);
        }
        if let Some(divisor) = constant_divisor(op, b)
            && let Some(v) = self.divided_by_constant(op, a, divisor)?
        {
            return Ok(v);
        }
        let (va, vb) = (self.value(a)?, self.value(b)?);
        if dtype == DType::I64 {
            let resolve = |a: &Affine| self.resolve(a);
            let small = int_range(self.nest, &self.facts, &resolve, whole).is_some_and(fits_i32);
            if !small {
                let (va, vb) = (self.with_lane(va, Lane::I64)?, self.with_lane(vb, Lane::I64)?);
                return self.combine(op, va, vb);
            }
        }
        self.combine(op, va, vb)
    }

    /// `a op b` of one type.
    pub fn combine(&mut self, op: BinaryOp, a: Val, b: Val) -> Selected<Val> {
        let (a, b) = self.same_lanes(a, b)?;
        let v = if a.dtype == DType::Bool {
            let op = match op {
                BinaryOp::And | BinaryOp::Min | BinaryOp::Mul => VBinary::And,
                BinaryOp::Or | BinaryOp::Max => VBinary::Or,
                BinaryOp::Xor => VBinary::Xor,
                _ => return self.undefined(op.name(), a.dtype),
            };
            return Ok(self.vector_binary(op, a, b));
        } else {
            match op {
                BinaryOp::Min | BinaryOp::Max | BinaryOp::Div | BinaryOp::Mod if a.dtype == DType::U64 => {
                    self.wide_unsigned(op, a, b)?
                }
                BinaryOp::ShiftLeft | BinaryOp::ShiftRight if !is_float(a.lane) => {
                    self.shifted(op == BinaryOp::ShiftLeft, a, b)
                }
                BinaryOp::Add => self.vector_binary(VBinary::Add, a, b),
                BinaryOp::Sub => self.vector_binary(VBinary::Sub, a, b),
                BinaryOp::Mul => self.vector_binary(VBinary::Mul, a, b),
                // the instructions keep the second operand when neither is less
                BinaryOp::Min => self.vector_binary(VBinary::Min, b, a),
                BinaryOp::Max => self.vector_binary(VBinary::Max, b, a),
                BinaryOp::And if !is_float(a.lane) => self.vector_binary(VBinary::And, a, b),
                BinaryOp::Or if !is_float(a.lane) => self.vector_binary(VBinary::Or, a, b),
                BinaryOp::Xor if !is_float(a.lane) => self.vector_binary(VBinary::Xor, a, b),
                BinaryOp::Div if is_float(a.lane) => self.program_quotient(a, b),
                BinaryOp::Mod if is_float(a.lane) => self.float_remainder(a, b)?,
                BinaryOp::Pow if is_float(a.lane) => self.power(a, b)?,
                BinaryOp::Div => self.int_divide(a, b)?.0,
                BinaryOp::Mod => self.int_modulo(a, b)?,
                _ => return self.undefined(op.name(), a.dtype),
            }
        };
        // the lesser of two halves is a half, and bits of two numbers of a type are bits of one
        let is_closed = match op {
            BinaryOp::Min | BinaryOp::Max => true,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !is_float(v.lane),
            _ => false,
        };
        if is_closed { Ok(v) } else { self.normalized(v) }
    }

    pub fn undefined<T>(&self, name: &str, dtype: DType) -> Selected<T> {
        Err(Stop::Failed(Error::Unsupported(format!("{name} of {dtype} in machine code (kernel {})", self.nest.name))))
    }

    fn unary(&mut self, op: UnaryOp, a: Val) -> Selected<Val> {
        let float = is_float(a.lane);
        let v = match op {
            UnaryOp::Not => self.vector_unary(VUnary::Not, a),
            UnaryOp::CountOnes if a.dtype.is_integer() => self.count_ones(a)?,
            _ if a.dtype == DType::Bool => return self.undefined(op.name(), a.dtype),
            UnaryOp::Neg if float => self.vector_unary(VUnary::Neg, a),
            UnaryOp::Abs if float => self.vector_unary(VUnary::Abs, a),
            UnaryOp::Sqrt if float => self.program_root(a),
            UnaryOp::Floor if float => self.vector_unary(VUnary::Floor, a),
            UnaryOp::Ceil if float => self.vector_unary(VUnary::Ceil, a),
            UnaryOp::Round if float => self.vector_unary(VUnary::Round, a),
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => a,
            UnaryOp::Abs if matches!(a.dtype, DType::U64 | DType::U32 | DType::U16 | DType::U8) => a,
            UnaryOp::Abs if a.dtype != DType::I64 => self.vector_unary(VUnary::Abs, a),
            UnaryOp::Neg | UnaryOp::Abs => {
                // the least i64 in 32-bit lanes has no negative there
                let a = if a.dtype == DType::I64 { self.with_lane(a, Lane::I64)? } else { a };
                let zero = self.number(a, 0.0);
                let negative = self.vector_binary(VBinary::Sub, zero, a);
                if op == UnaryOp::Neg { negative } else { self.vector_binary(VBinary::Max, a, negative) }
            }
            UnaryOp::Exp if float => math::exp(self, a),
            UnaryOp::Log if float => math::log(self, a),
            UnaryOp::Tanh if float => math::tanh(self, a),
            UnaryOp::Erf if float => math::erf(self, a),
            UnaryOp::Sin if float => trigonometric::sin(self, a),
            UnaryOp::Cos if float => trigonometric::cos(self, a),
            UnaryOp::Tan if float => trigonometric::tan(self, a),
            UnaryOp::Asin if float => trigonometric::asin(self, a),
            UnaryOp::Acos if float => trigonometric::acos(self, a),
            UnaryOp::Atan if float => trigonometric::atan(self, a),
            UnaryOp::Sinh if float => hyperbolic::sinh(self, a),
            UnaryOp::Cosh if float => hyperbolic::cosh(self, a),
            UnaryOp::Asinh if float => hyperbolic::asinh(self, a),
            UnaryOp::Acosh if float => hyperbolic::acosh(self, a),
            UnaryOp::Atanh if float => hyperbolic::atanh(self, a),
            _ => return self.undefined(op.name(), a.dtype),
        };
        self.normalized(v)
    }

    fn compare(&mut self, op: CompareOp, a: Val, b: Val) -> Selected<Val> {
        let (mut a, mut b) = self.same_lanes(a, b)?;
        if a.dtype != DType::Bool {
            if a.dtype == DType::U64 {
                (a, b) = (self.flipped(a), self.flipped(b));
            }
            return Ok(self.vector_compare(op, a, b));
        }
        Ok(match op {
            CompareOp::Ne => self.vector_binary(VBinary::Xor, a, b),
            CompareOp::Eq => {
                let x = self.vector_binary(VBinary::Xor, a, b);
                self.vector_unary(VUnary::Not, x)
            }
            CompareOp::Lt => self.vector_binary(VBinary::AndNot, a, b),
            CompareOp::Gt => self.vector_binary(VBinary::AndNot, b, a),
            CompareOp::Le => {
                let not = self.vector_unary(VUnary::Not, a);
                self.vector_binary(VBinary::Or, not, b)
            }
            CompareOp::Ge => {
                let not = self.vector_unary(VUnary::Not, b);
                self.vector_binary(VBinary::Or, a, not)
            }
        })
    }

    fn power(&mut self, a: Val, b: Val) -> Selected<Val> {
        let (dtype, lane) = (a.dtype, a.lane);
        let (x, y) = (self.converted(a, Lane::F64), self.converted(b, Lane::F64));
        let r = math::pow(self, x, y);
        Ok(Val { dtype, ..self.converted(r, lane) })
    }
}
