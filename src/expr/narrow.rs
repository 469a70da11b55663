//! Narrow integers: expressions rewritten so that every operation works on integers of 8 or of 16 bits.
//!
//! In: an expression whose type is an integer of at most `width` bytes, or a bool. Out: an expression of the same type and
//! the same value in which no operation has more than `width` bytes, or `None` where that is not proven. Two facts prove it: of
//! a sum, a difference, a product and bitwise operations the low bits follow from the low bits of the operands (the demanded bits
//! of a conversion are the low ones), and an operation whose operands have intervals within a type can be done in that type.

use crate::expr::float_interval::FloatInterval;
use crate::expr::scalar::{Value, cast};
use crate::expr::{Access, Affine, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar, UnaryOp, Var};
use crate::runtime::DType;

/// The values of an integer type, least and greatest.
pub type Interval = (i64, i64);

/// Facts about the names in expressions.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The element type of a buffer.
    pub dtype: &'a dyn Fn(BufferId) -> DType,
    /// The values of an affine form.
    pub bounds: &'a dyn Fn(&Affine) -> Interval,
    /// Returns true for a table of integers of 8 bits that is looked up in lanes of 8 bits: a subscript in u8 is a lane of 8 bits.
    pub is_table: &'a dyn Fn(BufferId) -> bool,
}

/// Bytes of the lanes in which an integer or a bool is computed where all beside it is as narrow; `None` for other types.
pub fn narrow_bytes(dtype: DType) -> Option<usize> {
    match dtype {
        DType::I8 | DType::U8 | DType::Bool => Some(1),
        DType::I16 | DType::U16 => Some(2),
        _ => None,
    }
}

/// Returns true for a type and extents of integers of 8 bits that permutations look up: a power of two, up to all that a subscript
/// of 8 bits reaches.
pub fn is_table_of_bytes(dtype: DType, extents: &[i64]) -> bool {
    matches!(dtype, DType::I8 | DType::U8) && matches!(extents, [16 | 32 | 64 | 128 | 256])
}

/// The values of an integer type that an i64 holds.
pub fn dtype_range(dtype: DType) -> Option<Interval> {
    match dtype {
        DType::I64 => Some((i64::MIN, i64::MAX)),
        DType::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
        DType::I16 => Some((-32768, 32767)),
        DType::I8 => Some((-128, 127)),
        DType::U32 => Some((0, u32::MAX.into())),
        DType::U16 => Some((0, 65535)),
        DType::U8 => Some((0, 255)),
        DType::Bool => Some((0, 1)),
        _ => None,
    }
}

fn is_within(inner: Interval, outer: Interval) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

fn constant(e: &Expr) -> Option<i64> {
    match e {
        Expr::Const(s) if dtype_range(s.dtype).is_some() => Some(Value::from(*s).as_i64()),
        _ => None,
    }
}

fn constant_of(dtype: DType, v: i64) -> Expr {
    Expr::Const(Scalar::from(cast(dtype, Value::I64(v))))
}

/// The interval of numbers shifted by amounts, to the left or to the right with the sign; `None` where an amount is negative or 64 bits do
/// not hold what is shifted to the left.
pub fn shifted(left: bool, x: Interval, amounts: Interval) -> Option<Interval> {
    if amounts.0 < 0 || amounts.1 > 62 {
        return None;
    }
    let by = |v: i64, n: i64| if left { i128::from(v) << n } else { i128::from(v) >> n };
    let ends = [by(x.0, amounts.0), by(x.0, amounts.1), by(x.1, amounts.0), by(x.1, amounts.1)];
    Some((i64::try_from(*ends.iter().min()?).ok()?, i64::try_from(*ends.iter().max()?).ok()?))
}

/// The interval of the bits that numbers of two intervals share; none of them is negative. The bits before the first one that an interval leaves open are those
/// of its ends.
fn common_bits(x: Interval, y: Interval) -> Interval {
    let open = |(low, high): Interval| u64::MAX.checked_shr((low ^ high).leading_zeros()).unwrap_or(0) as i64;
    let least = (x.0 & !open(x)) & (y.0 & !open(y));
    let most = (x.1 | open(x)) & (y.1 | open(y));
    (least, most.min(x.1).min(y.1))
}

/// The divisor of a quotient or a remainder that takes no division: a constant but 0 that the type holds.
pub fn constant_divisor(op: BinaryOp, b: &Expr) -> Option<i64> {
    let divisor = constant(b).filter(|d| *d != 0 && *d != i64::MIN)?;
    matches!(op, BinaryOp::Div | BinaryOp::Mod).then_some(divisor)
}

/// The variable that stands for an element of the first buffer; those of the others follow.
const ELEMENTS: u32 = 1 << 30;

/// The interval of an integer expression in which `elements` bounds those of some buffers and `bounds` affine forms; `None` of floats, and of u64
/// where no number limits it.
pub fn range_over_elements(
    dtype: &dyn Fn(BufferId) -> DType,
    elements: &dyn Fn(BufferId) -> Option<Interval>,
    bounds: &dyn Fn(&Affine) -> Interval,
    e: &Expr,
) -> Option<Interval> {
    over_elements(dtype, elements, bounds, e, |names, e| names.range(e))
}

/// As [`range_over_elements`], of an expression of floating point.
pub fn float_range_over_elements(
    dtype: &dyn Fn(BufferId) -> DType,
    elements: &dyn Fn(BufferId) -> Option<Interval>,
    bounds: &dyn Fn(&Affine) -> Interval,
    e: &Expr,
) -> FloatInterval {
    over_elements(dtype, elements, bounds, e, |names, e| names.float_range(e))
}

fn over_elements<T>(
    dtype: &dyn Fn(BufferId) -> DType,
    elements: &dyn Fn(BufferId) -> Option<Interval>,
    bounds: &dyn Fn(&Affine) -> Interval,
    e: &Expr,
    range: impl Fn(Names, &Expr) -> T,
) -> T {
    // an element is a variable with the interval of its buffer
    let e = e.rewrite_loads(&mut |a| {
        if elements(a.buffer).is_none() {
            return Expr::Load(a);
        }
        let element = Expr::cast(dtype(a.buffer), Expr::Index(Affine::var(Var(ELEMENTS + a.buffer.0))));
        let outside = a.otherwise.filter(|_| !a.guard.is_empty()).map(Expr::Const);
        outside.map_or(element.clone(), |o| Expr::select(Expr::Const(Scalar::bool(true)), element, o))
    });
    let of_element = |a: &Affine| match a.terms[..] {
        [(v, 1)] if a.constant == 0 => v.0.checked_sub(ELEMENTS).and_then(|t| elements(BufferId(t))),
        _ => None,
    };
    let bounds = |a: &Affine| of_element(a).unwrap_or_else(|| bounds(a));
    range(Names { dtype, bounds: &bounds, is_table: &|_| false }, &e)
}

impl Names<'_> {
    fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&self.dtype)
    }

    /// The interval of the values of an integer expression; `None` of floats, and of u64 where no number limits it.
    pub fn range(&self, e: &Expr) -> Option<Interval> {
        if self.dtype(e) == DType::U64 {
            return self.range_of_unsigned(e);
        }
        let whole_type = dtype_range(self.dtype(e))?;
        let computed = match e {
            Expr::Const(s) => Some(Value::from(*s).as_i64()).map(|v| (v, v)),
            Expr::Index(a) => Some((self.bounds)(a)),
            Expr::Cast(_, a) if self.dtype(a).is_float() => Some(self.float_range(a).to_integers(whole_type)),
            Expr::Cast(_, a) => self.range(a),
            Expr::Select(_, a, b) => {
                let (a, b) = (self.range(a)?, self.range(b)?);
                Some((a.0.min(b.0), a.1.max(b.1)))
            }
            Expr::Unary(UnaryOp::CountOnes, a) => Some((0, 8 * self.dtype(a).bytes() as i64)),
            Expr::Unary(op, a) => {
                let (low, high) = self.range(a)?;
                match op {
                    UnaryOp::Neg => high.checked_neg().zip(low.checked_neg()),
                    UnaryOp::Not => Some((!high, !low)),
                    UnaryOp::Abs if low >= 0 => Some((low, high)),
                    UnaryOp::Abs => low.checked_neg().map(|negative| (0, negative.max(high))),
                    UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => Some((low, high)),
                    _ => None,
                }
            }
            Expr::Binary(op, a, b) => self.range_of_operation(*op, a, b),
            Expr::Load(_) | Expr::Compare(..) | Expr::Bitcast(..) => None,
        };
        Some(computed.filter(|c| is_within(*c, whole_type)).unwrap_or(whole_type))
    }

    /// The interval of an expression of floating point.
    pub fn float_range(&self, e: &Expr) -> FloatInterval {
        let dtype = self.dtype(e);
        match e {
            Expr::Const(s) => FloatInterval::constant(Value::from(*s).as_f64()),
            Expr::Select(_, a, b) => self.float_range(a).hull(self.float_range(b)),
            Expr::Unary(op, a) => self.float_range(a).unary(*op, dtype),
            Expr::Binary(op, a, b) => self.float_range(a).binary(*op, self.float_range(b), dtype),
            Expr::Cast(_, a) if self.dtype(a).is_float() => self.float_range(a).rounded_to(dtype),
            Expr::Cast(_, a) => self.range(a).map_or(FloatInterval::ANY, |r| FloatInterval::of_integers(r, dtype)),
            Expr::Index(_) | Expr::Load(_) | Expr::Compare(..) | Expr::Bitcast(..) => FloatInterval::ANY,
        }
    }

    /// The interval of an expression of type u64 that a number limits.
    fn range_of_unsigned(&self, e: &Expr) -> Option<Interval> {
        let most = match e {
            Expr::Const(s) => return i64::try_from(s.bits).ok().map(|v| (v, v)),
            Expr::Unary(UnaryOp::CountOnes, _) => 64,
            Expr::Binary(BinaryOp::Max, a, b) => {
                let (a, b) = (self.range(a)?, self.range(b)?);
                return Some((a.0.max(b.0), a.1.max(b.1)));
            }
            Expr::Binary(BinaryOp::Min | BinaryOp::And, a, b) => {
                let ends = [a, b].into_iter().filter_map(|e| self.range(e)).map(|(_, most)| most);
                ends.min()?
            }
            Expr::Binary(BinaryOp::Mod, _, divisor) => self.range(divisor).filter(|d| d.0 > 0)?.1 - 1,
            _ => return None,
        };
        Some((0, most))
    }

    /// The interval before it is brought into the type.
    fn range_of_operation(&self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<Interval> {
        let (x, y) = (self.range(a)?, self.range(b)?);
        match op {
            BinaryOp::Add => x.0.checked_add(y.0).zip(x.1.checked_add(y.1)),
            BinaryOp::Sub => {
                let low = x.0.checked_sub(y.1)?;
                Some(self.difference_of_part(a, b).map_or(low, |least| least.max(low))).zip(x.1.checked_sub(y.0))
            }
            BinaryOp::Mul => {
                let corners = [(x.0, y.0), (x.0, y.1), (x.1, y.0), (x.1, y.1)];
                let corners = corners.map(|(a, b)| a.checked_mul(b)).into_iter().collect::<Option<Vec<i64>>>()?;
                corners.iter().min().copied().zip(corners.iter().max().copied())
            }
            BinaryOp::Min => Some((x.0.min(y.0), x.1.min(y.1))),
            BinaryOp::Max => Some((x.0.max(y.0), x.1.max(y.1))),
            BinaryOp::And if x.0 >= 0 && y.0 >= 0 => Some(common_bits(x, y)),
            BinaryOp::And if x.0 >= 0 => Some((0, x.1)),
            BinaryOp::And if y.0 >= 0 => Some((0, y.1)),
            BinaryOp::Or | BinaryOp::Xor if x.0 >= 0 && y.0 >= 0 => {
                let zeros = x.1.max(y.1).leading_zeros();
                Some((0, if zeros == 64 { 0 } else { i64::MAX >> (zeros - 1) }))
            }
            BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
                // an amount beyond the bits of the type leaves none of them
                let bits = 8 * self.dtype(a).bytes() as i64;
                if y.1 < bits { shifted(op == BinaryOp::ShiftLeft, x, y) } else { None }
            }
            BinaryOp::Div if y.0 > 0 && x.0 >= 0 => Some((x.0 / y.1, x.1 / y.0)),
            // towards zero
            BinaryOp::Div if y.0 > 0 => {
                Some((x.0 / if x.0 < 0 { y.0 } else { y.1 }, x.1 / if x.1 < 0 { y.1 } else { y.0 }))
            }
            BinaryOp::Mod if y.0 > 0 && y.0 == y.1 && x.0.div_euclid(y.0) == x.1.div_euclid(y.0) => {
                Some((x.0.rem_euclid(y.0), x.1.rem_euclid(y.0)))
            }
            BinaryOp::Mod if y.0 > 0 && x.0 >= 0 => Some((0, x.1.min(y.1 - 1))),
            BinaryOp::Mod if y.0 > 0 => Some((0, y.1 - 1)),
            _ => None,
        }
    }

    /// A lower bound of a form less some bits, or a remainder, of another form that is not negative: these are at most the form.
    fn difference_of_part(&self, a: &Expr, b: &Expr) -> Option<i64> {
        let Expr::Index(a) = a else { return None };
        let part = match b {
            Expr::Binary(BinaryOp::And, part, of) | Expr::Binary(BinaryOp::And, of, part)
                if matches!(**part, Expr::Index(_)) && !matches!(**of, Expr::Index(_)) =>
            {
                part
            }
            Expr::Binary(BinaryOp::Mod, part, divisor) if self.range(divisor)?.0 > 0 => part,
            _ => return None,
        };
        let Expr::Index(part) = &**part else { return None };
        ((self.bounds)(part).0 >= 0).then(|| (self.bounds)(&a.add_scaled(part, -1)).0)
    }

    /// Bytes of the widest lane that evaluating a narrow expression needs, 1 or 2; `None` where it needs wider ones: for other
    /// types on the way, subscripts from data, reads under conditions that are open, and operations by way of floats.
    pub fn lane_bytes(&self, e: &Expr) -> Option<usize> {
        let type_bytes = narrow_bytes(self.dtype(e))?;
        let here = match e {
            Expr::Load(Access { buffer, index, guard, .. }) => {
                let plain = index.iter().all(|i| matches!(i, Index::Affine(_)));
                let reads = plain || self.looked_up(*buffer, index).is_some();
                return (reads && guard.iter().all(|g| (self.bounds)(g).0 >= 0)).then_some(type_bytes);
            }
            Expr::Binary(BinaryOp::Pow, ..) | Expr::Bitcast(..) | Expr::Index(_) => return None,
            Expr::Binary(op @ (BinaryOp::Div | BinaryOp::Mod), _, b) => {
                constant_divisor(*op, b)?;
                2
            }
            Expr::Unary(op, _) if !matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not) => return None,
            _ => type_bytes,
        };
        e.operands().try_fold(here, |most, e| Some(most.max(self.lane_bytes(e)?)))
    }

    /// The subscript of a read of a table, computed in lanes of 8 bits.
    fn looked_up<'e>(&self, buffer: BufferId, index: &'e [Index]) -> Option<&'e Expr> {
        let [Index::Value(place)] = index else { return None };
        let fits = (self.is_table)(buffer) && self.dtype(place) == DType::U8 && self.lane_bytes(place) == Some(1);
        fits.then_some(&**place)
    }

    /// Returns true for an expression that looks something up in a table.
    pub fn looks_up(&self, e: &Expr) -> bool {
        e.any(&mut |e| matches!(e, Expr::Load(a) if self.looked_up(a.buffer, &a.index).is_some()))
    }

    /// The expression in operations of at most `width` bytes, 1 or 2; in lanes of 16 bits nothing is looked up.
    pub fn narrowed(&self, e: &Expr, width: usize) -> Option<Expr> {
        let narrow = Narrow { names: *self, width };
        let fits =
            |e: &Expr| self.lane_bytes(e).is_some_and(|bytes| bytes <= width) && (width == 1 || !self.looks_up(e));
        narrow.fit(e).filter(fits)
    }

    /// The fewest bytes in which a value for elements of `target` can be computed; `None` for more than 2.
    pub fn narrowest(&self, target: DType, value: &Expr) -> Option<usize> {
        let least = narrow_bytes(target)?;
        (least..=2).find(|&width| self.narrowed(value, width).is_some())
    }
}

struct Narrow<'a> {
    names: Names<'a>,
    width: usize,
}

impl Narrow<'_> {
    fn is_narrow(&self, dtype: DType) -> bool {
        narrow_bytes(dtype).is_some_and(|bytes| bytes <= self.width)
    }

    /// The integers of `width` bytes: without and with a sign.
    fn words(&self) -> [DType; 2] {
        if self.width == 1 { [DType::U8, DType::I8] } else { [DType::U16, DType::I16] }
    }

    /// The first of the words that holds all values of the expressions.
    fn holding(&self, all: &[&Expr]) -> Option<DType> {
        self.words().into_iter().find(|t| all.iter().all(|e| self.fits(e, *t)))
    }

    fn fits(&self, e: &Expr, dtype: DType) -> bool {
        let (Some(values), Some(room)) = (self.names.range(e), dtype_range(dtype)) else { return false };
        is_within(values, room)
    }

    /// An expression of the same value, of a type that is narrow.
    fn fit(&self, e: &Expr) -> Option<Expr> {
        if !self.is_narrow(self.names.dtype(e)) {
            return None;
        }
        match e {
            Expr::Cast(to, a) => self.cast(*to, a),
            Expr::Compare(op, a, b) => self.compare(*op, a, b),
            Expr::Const(_) | Expr::Load(_) => Some(e.clone()),
            Expr::Index(_) | Expr::Bitcast(..) => None,
            _ => e.try_map_children(&mut |e| self.fit(e).ok_or(())).ok(),
        }
    }

    fn cast(&self, to: DType, a: &Expr) -> Option<Expr> {
        let from = self.names.dtype(a);
        if self.is_narrow(from) {
            return Some(Expr::cast(to, self.fit(a)?));
        }
        if to == DType::Bool {
            return Some(Expr::cast(to, self.exact(a, self.holding(&[a])?)?));
        }
        let word = self.words().into_iter().find(|w| *w == to).unwrap_or(self.words()[0]);
        Some(converted(to, word, self.low(a, word)?))
    }

    fn compare(&self, op: CompareOp, a: &Expr, b: &Expr) -> Option<Expr> {
        if self.is_narrow(self.names.dtype(a)) {
            return Some(Expr::compare(op, self.fit(a)?, self.fit(b)?));
        }
        let word = self.holding(&[a, b])?;
        Some(Expr::compare(op, self.exact(a, word)?, self.exact(b, word)?))
    }

    /// An expression of the same value in a word that holds it.
    fn exact(&self, e: &Expr, word: DType) -> Option<Expr> {
        if self.fits(e, word) { self.low(e, word) } else { None }
    }

    /// A value of the type `word` whose bits are the low ones of an integer.
    fn low(&self, e: &Expr, word: DType) -> Option<Expr> {
        let dtype = self.names.dtype(e);
        if self.is_narrow(dtype) {
            return Some(converted(word, dtype, self.fit(e)?));
        }
        dtype_range(dtype)?;
        let bits = 8 * self.width as i64;
        match e {
            Expr::Const(_) => constant(e).map(|v| constant_of(word, v)),
            Expr::Cast(_, a) => self.low(a, word),
            Expr::Unary(op @ (UnaryOp::Neg | UnaryOp::Not), a) => Some(Expr::unary(*op, self.low(a, word)?)),
            Expr::Unary(UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round, a) => self.low(a, word),
            Expr::Unary(UnaryOp::Abs, a) => self.magnitude(a, word),
            Expr::Select(c, a, b) => Some(Expr::select(self.fit(c)?, self.low(a, word)?, self.low(b, word)?)),
            Expr::Binary(op, a, b) => match op {
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                    Some(Expr::binary(*op, self.low(a, word)?, self.low(b, word)?))
                }
                BinaryOp::ShiftLeft => {
                    let amount = constant(b).filter(|n| (0..bits).contains(n))?;
                    Some(Expr::binary(*op, self.low(a, word)?, constant_of(word, amount)))
                }
                BinaryOp::ShiftRight => {
                    let amount = constant(b).filter(|n| (0..bits).contains(n))?;
                    let held = self.holding(&[a])?;
                    let shifted = Expr::binary(*op, self.exact(a, held)?, constant_of(held, amount));
                    Some(converted(word, held, shifted))
                }
                BinaryOp::Min | BinaryOp::Max => self.operation(*op, a, b, word),
                BinaryOp::Div | BinaryOp::Mod => {
                    constant_divisor(*op, b)?;
                    self.operation(*op, a, b, word)
                }
                BinaryOp::Pow => None,
            },
            _ => None,
        }
    }

    /// An operation whose operands a word holds.
    fn operation(&self, op: BinaryOp, a: &Expr, b: &Expr, word: DType) -> Option<Expr> {
        let held = self.holding(&[a, b])?;
        Some(converted(word, held, Expr::binary(op, self.exact(a, held)?, self.exact(b, held)?)))
    }

    /// The magnitude of an integer; of a difference that no word holds, the greater of its operands less the other.
    fn magnitude(&self, a: &Expr, word: DType) -> Option<Expr> {
        let signed = self.words()[1];
        if self.fits(a, signed) {
            return Some(converted(word, signed, Expr::unary(UnaryOp::Abs, self.low(a, signed)?)));
        }
        let Expr::Binary(BinaryOp::Sub, x, y) = a else { return None };
        // The difference of what a word holds does not wrap in a wider type with a sign. Both operands are used twice.
        dtype_range(self.names.dtype(a)).filter(|own| own.0 < 0)?;
        if a.any(&mut |e| matches!(e, Expr::Unary(UnaryOp::Abs, _))) {
            return None;
        }
        let held = self.holding(&[x, y])?;
        let (x, y) = (self.exact(x, held)?, self.exact(y, held)?);
        let greater = Expr::binary(BinaryOp::Max, x.clone(), y.clone());
        Some(converted(word, held, Expr::binary(BinaryOp::Sub, greater, Expr::binary(BinaryOp::Min, x, y))))
    }
}

/// `e`, of type `from`, in type `to`.
fn converted(to: DType, from: DType, e: Expr) -> Expr {
    if to == from { e } else { Expr::cast(to, e) }
}
