//! Expressions as C.
//!
//! Sums, products and signs bind as in C; all other operands are in parentheses. What C has no operator for is one of
//! [`HELPERS`] or a function of `math.h`. Integers of 8 and 16 bits are cut after each operation, since C computes them
//! as `int`.

use crate::expr::narrow::constant_divisor;
use crate::expr::scalar::{Value, numbers_only};
use crate::expr::text::{self, affine};
use crate::expr::{Access, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::expr::{Affine, Var};
use crate::runtime::{DType, Error, Result};

/// The C type of elements, with which C computes.
pub fn type_of(dtype: DType) -> Result<&'static str> {
    if dtype.is_half() || dtype.is_storage() {
        return Err(Error::Unsupported(format!("{dtype} has no type in plain C")));
    }
    Ok(dtype.c_type())
}

/// Functions that the program defines for itself.
pub const HELPERS: &str = "\
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))
#define KEEP_MIN(total, x) ((total) <= (x) || (total) != (total) ? (total) : (x))
#define KEEP_MAX(total, x) ((total) >= (x) || (total) != (total) ? (total) : (x))
#define FLOOR_DIV(a, b) ((a) >= 0 ? (a) / (b) : -((-(a) + (b) - 1) / (b)))
#define SHIFT_LEFT(t, u, a, n) ((n) < 0 || (n) >= (int)(8 * sizeof(t)) ? (t)0 : (t)((u)(a) << (n)))
#define SHIFT_RIGHT(t, u, a, n) ((n) < 0 || (n) >= (int)(8 * sizeof(t)) ? (t)((a) < 0 ? -1 : 0) : (t)((a) >> (n)))
#define DIVIDE(t, u, a, b) ((b) == 0 ? (t)0 : (b) == (t)-1 ? (t)(0 - (u)(a)) : (t)((a) / (b)))
#define DIVIDE_UNSIGNED(t, a, b) ((b) == 0 ? (t)0 : (t)((a) / (b)))
#define MODULO_UNSIGNED(t, a, b) ((b) == 0 ? (t)0 : (t)((a) % (b)))
static inline int64_t modulo(int64_t a, int64_t b) {
    int64_t r = b == 0 || b == -1 ? 0 : a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}
";

/// Precedence of the outermost operator of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tightness {
    Other,
    Sum,
    Product,
    Sign,
    Word,
}

/// Names of arrays and loop variables at one place.
pub struct Names<'a> {
    pub arrays: &'a [String],
    pub dtypes: &'a [DType],
    pub vars: &'a [String],
    /// Strides of the arrays that are declared with one dimension; those past the end have their own.
    pub flat: &'a [Option<Vec<i64>>],
}

impl Names<'_> {
    pub fn affine(&self, a: &Affine) -> String {
        affine(a, |v: Var| self.vars[v.0 as usize].clone())
    }

    pub fn element(&self, array: BufferId, index: &[Index]) -> Result<String> {
        let name = &self.arrays[array.0 as usize];
        let subscript = |i: &Index| match i {
            Index::Affine(a) => Ok(self.affine(a)),
            Index::Value(e) => self.expression(e),
        };
        let subscripts = index.iter().map(subscript).collect::<Result<Vec<String>>>()?;
        let Some(Some(strides)) = self.flat.get(array.0 as usize) else {
            return Ok(name.clone() + &subscripts.iter().map(|s| format!("[{s}]")).collect::<String>());
        };
        let terms: Vec<String> = subscripts.iter().zip(strides).map(|(s, n)| format!("{n} * ({s})")).collect();
        Ok(format!("{name}[{}]", if terms.is_empty() { "0".into() } else { terms.join(" + ") }))
    }

    /// `A[i] = value;`, or the update of the element by a reduction.
    pub fn assignment(
        &self,
        array: BufferId,
        index: &[Index],
        reduce: Option<BinaryOp>,
        value: &Expr,
    ) -> Result<String> {
        let target = self.element(array, index)?;
        Ok(match (reduce, value) {
            (None, value) => format!("{target} = {};", self.expression(value)?),
            (Some(BinaryOp::Add), Expr::Unary(UnaryOp::Neg, value)) => {
                format!("{target} -= {};", self.expression(value)?)
            }
            (Some(BinaryOp::Add), value) => format!("{target} += {};", self.expression(value)?),
            (Some(BinaryOp::Mul), value) => format!("{target} *= {};", self.expression(value)?),
            (Some(op), value) => {
                let access = Access { buffer: array, index: index.to_vec(), guard: vec![], otherwise: None };
                let text = self.expression(&Expr::binary(op, Expr::Load(access), value.clone()))?;
                let float = matches!(op, BinaryOp::Min | BinaryOp::Max) && self.dtypes[array.0 as usize].is_float();
                let keeps = float && numbers_only(op, value).is_none();
                format!("{target} = {}{text};", if keeps { "KEEP_" } else { "" })
            }
        })
    }

    pub fn conditions(&self, conditions: &[Affine]) -> String {
        text::conditions(conditions, |c| self.affine(c))
    }

    /// The element type of an expression.
    pub fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b: BufferId| self.dtypes[b.0 as usize])
    }

    /// The text, without parentheses around it.
    pub fn expression(&self, e: &Expr) -> Result<String> {
        Ok(self.text(e)?.0)
    }

    /// The text, in parentheses unless it binds as tightly as `least`.
    fn operand(&self, e: &Expr, least: Tightness) -> Result<String> {
        let (text, tightness) = self.text(e)?;
        Ok(if tightness >= least { text } else { format!("({text})") })
    }

    fn text(&self, e: &Expr) -> Result<(String, Tightness)> {
        let dtype = self.dtype(e);
        let word = |e: &Expr| self.operand(e, Tightness::Word);
        let cut = |(text, tightness): (String, Tightness)| match dtype {
            DType::I16 => (format!("(int16_t)({text})"), Tightness::Sign),
            DType::I8 => (format!("(int8_t)({text})"), Tightness::Sign),
            DType::U16 => (format!("(uint16_t)({text})"), Tightness::Sign),
            DType::U8 => (format!("(uint8_t)({text})"), Tightness::Sign),
            _ => (text, tightness),
        };
        Ok(match e {
            Expr::Const(c) => {
                let text = constant(*c);
                let tightness = if text.starts_with('-') { Tightness::Sign } else { Tightness::Word };
                (text, tightness)
            }
            Expr::Index(a) => {
                let text = self.affine(a);
                let tightness = if text.contains([' ', '-', '*']) { Tightness::Other } else { Tightness::Word };
                (text, tightness)
            }
            Expr::Load(a) => (self.load(a)?, Tightness::Word),
            Expr::Unary(UnaryOp::Neg, a) => cut((format!("-{}", word(a)?), Tightness::Sign)),
            Expr::Unary(UnaryOp::Not, a) if dtype == DType::Bool => (format!("!{}", word(a)?), Tightness::Sign),
            Expr::Unary(UnaryOp::Not, a) => cut((format!("~{}", word(a)?), Tightness::Sign)),
            Expr::Unary(UnaryOp::Abs, a) if !dtype.is_float() => {
                let a = word(a)?;
                cut((format!("{a} < 0 ? -{a} : {a}"), Tightness::Other))
            }
            Expr::Unary(UnaryOp::CountOnes, a) => {
                let name = if dtype.bytes() == 8 { "__builtin_popcountll" } else { "__builtin_popcount" };
                let (ty, bits) = (type_of(dtype)?, type_of(unsigned(dtype))?);
                (format!("({ty}){name}(({bits}){})", word(a)?), Tightness::Sign)
            }
            Expr::Unary(op, a) => (function(unary_name(*op), dtype, &[self.expression(a)?]), Tightness::Word),
            Expr::Binary(op, a, b) => cut(self.binary(*op, dtype, a, b)?),
            Expr::Compare(op, a, b) => (format!("{} {} {}", word(a)?, comparison(*op), word(b)?), Tightness::Other),
            Expr::Select(c, a, b) => (format!("{} ? {} : {}", word(c)?, word(a)?, word(b)?), Tightness::Other),
            Expr::Cast(DType::Bool, a) => (format!("{} != 0", word(a)?), Tightness::Other),
            Expr::Cast(t, a) => (format!("({}){}", type_of(*t)?, word(a)?), Tightness::Sign),
            // integers of one width differ in their type alone
            Expr::Bitcast(t, a)
                if t.is_integer() && self.dtype(a).is_integer() && t.bytes() == self.dtype(a).bytes() =>
            {
                (format!("({}){}", type_of(*t)?, word(a)?), Tightness::Sign)
            }
            Expr::Bitcast(..) => return Err(Error::Unsupported("the bits of a number have no name in plain C".into())),
        })
    }

    fn binary(&self, op: BinaryOp, dtype: DType, a: &Expr, b: &Expr) -> Result<(String, Tightness)> {
        let bool = dtype == DType::Bool;
        let called = |name: &str| Ok(format!("{name}({}, {})", self.expression(a)?, self.expression(b)?));
        let joined = |symbol: &str, left: Tightness, right: Tightness| {
            Ok(format!("{} {symbol} {}", self.operand(a, left)?, self.operand(b, right)?))
        };
        let (text, tightness): (Result<String>, Tightness) = match op {
            BinaryOp::Add => (joined("+", Tightness::Sum, Tightness::Product), Tightness::Sum),
            BinaryOp::Sub => (joined("-", Tightness::Sum, Tightness::Product), Tightness::Sum),
            BinaryOp::Mul => (joined("*", Tightness::Product, Tightness::Sign), Tightness::Product),
            BinaryOp::Div if dtype.is_integer() && constant_divisor(op, b).is_none_or(|d| d == -1) => {
                let (ty, unsigned) = (type_of(dtype)?, type_of(unsigned(dtype))?);
                let call =
                    if ty == unsigned { format!("DIVIDE_UNSIGNED({ty}") } else { format!("DIVIDE({ty}, {unsigned}") };
                (Ok(format!("{call}, {}, {})", self.expression(a)?, self.expression(b)?)), Tightness::Word)
            }
            BinaryOp::Div => (joined("/", Tightness::Product, Tightness::Sign), Tightness::Product),
            BinaryOp::And if bool => (joined("&&", Tightness::Word, Tightness::Word), Tightness::Other),
            BinaryOp::And => (joined("&", Tightness::Word, Tightness::Word), Tightness::Other),
            BinaryOp::Or if bool => (joined("||", Tightness::Word, Tightness::Word), Tightness::Other),
            BinaryOp::Or => (joined("|", Tightness::Word, Tightness::Word), Tightness::Other),
            BinaryOp::Xor => (joined("^", Tightness::Word, Tightness::Word), Tightness::Other),
            BinaryOp::Min => (called("MIN"), Tightness::Word),
            BinaryOp::Max => (called("MAX"), Tightness::Word),
            BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
                let (unsigned, left) = (type_of(unsigned(dtype))?, op == BinaryOp::ShiftLeft);
                let name = if left { "SHIFT_LEFT" } else { "SHIFT_RIGHT" };
                let types = format!("{}, {unsigned}", type_of(dtype)?);
                let text = format!("{name}({types}, {}, {})", self.expression(a)?, self.expression(b)?);
                (Ok(text), Tightness::Word)
            }
            BinaryOp::Mod if dtype.is_integer() && unsigned(dtype) == dtype && constant_divisor(op, b).is_none() => {
                let ty = type_of(dtype)?;
                (
                    Ok(format!("MODULO_UNSIGNED({ty}, {}, {})", self.expression(a)?, self.expression(b)?)),
                    Tightness::Word,
                )
            }
            BinaryOp::Mod if unsigned(dtype) == dtype && !dtype.is_float() => {
                (joined("%", Tightness::Word, Tightness::Word), Tightness::Other)
            }
            BinaryOp::Mod if !dtype.is_float() => (called("modulo"), Tightness::Word),
            BinaryOp::Mod => (called(if dtype == DType::F32 { "fmodf" } else { "fmod" }), Tightness::Word),
            BinaryOp::Pow => (called(if dtype == DType::F32 { "powf" } else { "pow" }), Tightness::Word),
        };
        Ok((text?, tightness))
    }

    fn load(&self, a: &Access) -> Result<String> {
        let element = self.element(a.buffer, &a.index)?;
        Ok(match a.otherwise {
            Some(otherwise) if !a.guard.is_empty() => {
                format!("({} ? {element} : {})", self.conditions(&a.guard), constant(otherwise))
            }
            _ => element,
        })
    }
}

/// The unsigned type as wide as an integer type; other types are their own.
fn unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I64 => DType::U64,
        DType::I32 => DType::U32,
        DType::I16 => DType::U16,
        DType::I8 => DType::U8,
        other => other,
    }
}

fn unary_name(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Abs => "fabs",
        UnaryOp::Round => "rint",
        op => op.name(),
    }
}

fn comparison(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// A function of `math.h`.
fn function(name: &str, dtype: DType, operands: &[String]) -> String {
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    format!("{name}{suffix}({})", operands.join(", "))
}

fn constant(c: Scalar) -> String {
    let value = Value::from(c);
    let real = |text: String| match value.as_f64() {
        v if v.is_nan() => "NAN".to_string(),
        v if v.is_infinite() => {
            if v > 0.0 {
                "INFINITY".into()
            } else {
                "-INFINITY".into()
            }
        }
        _ => text,
    };
    match value {
        Value::F64(v) => real(format!("{v:?}")),
        Value::F32(v) => real(format!("{v:?}f")),
        Value::I64(i64::MIN) => "INT64_MIN".into(),
        Value::U64(v) => format!("{v}u"),
        _ => value.as_i64().to_string(),
    }
}
