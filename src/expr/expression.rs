//! Affine forms and scalar expressions: the one language for the bodies of statements, in a Scop (over iterators) and in
//! a LoopNest (over loop variables).

use crate::expr::logic::{Condition, Logic};
use crate::expr::{Affine, Var};
use crate::runtime::DType;
use serde::{Deserialize, Serialize};

/// A buffer of a LoopNest, or a tensor of a Scop: an index into the owner's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// A typed scalar constant; `bits` are the low bits of its little-endian representation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Scalar {
    pub dtype: DType,
    pub bits: u64,
}

impl Scalar {
    pub fn f32(v: f32) -> Scalar {
        Scalar { dtype: DType::F32, bits: v.to_bits() as u64 }
    }
    pub fn f64(v: f64) -> Scalar {
        Scalar { dtype: DType::F64, bits: v.to_bits() }
    }
    pub fn i64(v: i64) -> Scalar {
        Scalar { dtype: DType::I64, bits: v as u64 }
    }
    pub fn bool(v: bool) -> Scalar {
        Scalar { dtype: DType::Bool, bits: v as u64 }
    }
}

/// Operations of one operand, element by element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum UnaryOp {
    /// The negative.
    Neg,
    /// The absolute value.
    Abs,
    /// The square root.
    Sqrt,
    /// e to the power of the operand.
    Exp,
    /// The natural logarithm.
    Log,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// The next integer below.
    Floor,
    /// The next integer above.
    Ceil,
    /// To the nearest integer, ties to even.
    Round,
    /// Boolean negation; of integers every bit inverted.
    Not,
    /// The number of bits of an integer that are one.
    CountOnes,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// The tangent.
    Tan,
    /// The inverse of the sine.
    Asin,
    /// The inverse of the cosine.
    Acos,
    /// The inverse of the tangent.
    Atan,
    /// The hyperbolic sine.
    Sinh,
    /// The hyperbolic cosine.
    Cosh,
    /// The inverse of the hyperbolic sine.
    Asinh,
    /// The inverse of the hyperbolic cosine.
    Acosh,
    /// The inverse of the hyperbolic tangent.
    Atanh,
}

/// Operations of two operands of one type, element by element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum BinaryOp {
    /// Sum; integers wrap.
    Add,
    /// Difference; integers wrap.
    Sub,
    /// Product; integers wrap.
    Mul,
    /// Floats: IEEE division. Integers: truncation towards zero (ONNX, C).
    Div,
    /// Integers: remainder with the sign of the divisor (ONNX Mod, fmod = 0). Floats: C `fmod`.
    Mod,
    /// The smaller operand.
    Min,
    /// The larger operand.
    Max,
    /// The first operand to the power of the second.
    Pow,
    /// Boolean and; of integers bit by bit.
    And,
    /// Boolean or; of integers bit by bit.
    Or,
    /// Boolean exclusive or; of integers bit by bit.
    Xor,
    /// Integers: the first operand times 2 to the power of the second, wrapped.
    ShiftLeft,
    /// Integers: the first operand divided by 2 to the power of the second, rounded down.
    ShiftRight,
}

/// Comparisons of two operands of one type; the result is a bool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum CompareOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less than.
    Lt,
    /// Less than or equal.
    Le,
    /// Greater than.
    Gt,
    /// Greater than or equal.
    Ge,
}

impl CompareOp {
    /// Returns true if the comparison holds; of numbers that are NaN only `Ne` does.
    pub fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        }
    }

    /// The comparison of integers that holds where this one does not.
    pub fn opposite(self) -> CompareOp {
        match self {
            CompareOp::Eq => CompareOp::Ne,
            CompareOp::Ne => CompareOp::Eq,
            CompareOp::Lt => CompareOp::Ge,
            CompareOp::Ge => CompareOp::Lt,
            CompareOp::Le => CompareOp::Gt,
            CompareOp::Gt => CompareOp::Le,
        }
    }
}

/// One dimension of a subscript.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Index {
    Affine(Affine),
    /// The value of an integer expression, usually a read of an index tensor (gather). It must lie in the dimension.
    Value(Box<Expr>),
}

impl Index {
    pub fn affine(&self) -> Option<&Affine> {
        match self {
            Index::Affine(a) => Some(a),
            Index::Value(_) => None,
        }
    }

    /// The expression of a computed subscript.
    pub fn value(&self) -> Option<&Expr> {
        match self {
            Index::Affine(_) => None,
            Index::Value(e) => Some(e),
        }
    }

    /// Replaces every variable.
    pub fn substitute(&self, map: &mut impl FnMut(Var) -> Affine) -> Index {
        match self {
            Index::Affine(a) => Index::Affine(a.substitute(map)),
            Index::Value(e) => Index::Value(Box::new(e.substitute(map))),
        }
    }
}

/// A read. Where some `guard` is negative nothing is read and the value is `otherwise`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Access {
    pub buffer: BufferId,
    pub index: Vec<Index>,
    /// Each is `affine ≥ 0`; the read takes place where all hold.
    pub guard: Vec<Affine>,
    /// The value outside the guard (zero padding has 0). Its type is the buffer's.
    pub otherwise: Option<Scalar>,
}

/// A scalar expression. Operands of one operation have one type; there are no implicit conversions.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Expr {
    Const(Scalar),
    /// The value of an affine form, as i64.
    Index(Affine),
    Load(Access),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Of type bool.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(DType, Box<Expr>),
    /// Reinterpretation of the bits as another type of equal width.
    Bitcast(DType, Box<Expr>),
}

impl Expr {
    pub fn f32(v: f32) -> Expr {
        Expr::Const(Scalar::f32(v))
    }
    pub fn unary(op: UnaryOp, a: Expr) -> Expr {
        Expr::Unary(op, Box::new(a))
    }
    pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(b))
    }
    pub fn compare(op: CompareOp, a: Expr, b: Expr) -> Expr {
        Expr::Compare(op, Box::new(a), Box::new(b))
    }
    pub fn select(c: Expr, a: Expr, b: Expr) -> Expr {
        Expr::Select(Box::new(c), Box::new(a), Box::new(b))
    }
    pub fn cast(to: DType, a: Expr) -> Expr {
        Expr::Cast(to, Box::new(a))
    }
    pub fn bitcast(to: DType, a: Expr) -> Expr {
        Expr::Bitcast(to, Box::new(a))
    }
    /// An unguarded read with affine subscripts.
    pub fn load(buffer: BufferId, index: Vec<Affine>) -> Expr {
        Expr::Load(Access {
            buffer,
            index: index.into_iter().map(Index::Affine).collect(),
            guard: vec![],
            otherwise: None,
        })
    }

    /// The terms of a sum of 64-bit integers that are affine, and what remains of it, if anything does.
    pub fn affine_terms(&self) -> (Affine, Option<Expr>) {
        match self {
            Expr::Index(a) => (a.clone(), None),
            Expr::Const(s) if s.dtype == DType::I64 => (Affine::constant(s.bits as i64), None),
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let ((a, first), (b, second)) = (a.affine_terms(), b.affine_terms());
                let affine = a.add_scaled(&b, if *op == BinaryOp::Add { 1 } else { -1 });
                let zero = || Expr::Const(Scalar { dtype: DType::I64, bits: 0 });
                let rest = match (first, second) {
                    (first, None) => first,
                    (None, Some(second)) if *op == BinaryOp::Add => Some(second),
                    (first, Some(second)) => Some(Expr::binary(*op, first.unwrap_or_else(zero), second)),
                };
                (affine, rest)
            }
            other => (Affine::constant(0), Some(other.clone())),
        }
    }

    /// The operands, in order; a read has none.
    pub fn operands(&self) -> impl Iterator<Item = &Expr> {
        let operands: [Option<&Expr>; 3] = match self {
            Expr::Const(_) | Expr::Index(_) | Expr::Load(_) => [None; 3],
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Bitcast(_, a) => [Some(a), None, None],
            Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => [Some(a), Some(b), None],
            Expr::Select(c, a, b) => [Some(c), Some(a), Some(b)],
        };
        operands.into_iter().flatten()
    }

    /// The operands, and the computed subscripts of a read, in order.
    pub fn children(&self) -> impl Iterator<Item = &Expr> {
        let index: &[Index] = if let Expr::Load(access) = self { &access.index } else { &[] };
        self.operands().chain(index.iter().filter_map(Index::value))
    }

    /// A copy of this node whose children are the results of `f`, called in order.
    ///
    /// # Errors
    /// The first of `f`.
    pub fn try_map_children<E>(&self, f: &mut impl FnMut(&Expr) -> Result<Expr, E>) -> Result<Expr, E> {
        Ok(match self {
            Expr::Const(_) | Expr::Index(_) => self.clone(),
            Expr::Load(access) => {
                let index = access.index.iter().map(|i| match i {
                    Index::Affine(a) => Ok(Index::Affine(a.clone())),
                    Index::Value(e) => Ok(Index::Value(Box::new(f(e)?))),
                });
                let Access { buffer, otherwise, .. } = *access;
                Expr::Load(Access {
                    buffer,
                    index: index.collect::<Result<_, E>>()?,
                    guard: access.guard.clone(),
                    otherwise,
                })
            }
            Expr::Unary(op, a) => Expr::unary(*op, f(a)?),
            Expr::Binary(op, a, b) => Expr::binary(*op, f(a)?, f(b)?),
            Expr::Compare(op, a, b) => Expr::compare(*op, f(a)?, f(b)?),
            Expr::Select(c, a, b) => Expr::select(f(c)?, f(a)?, f(b)?),
            Expr::Cast(t, a) => Expr::cast(*t, f(a)?),
            Expr::Bitcast(t, a) => Expr::bitcast(*t, f(a)?),
        })
    }

    /// A copy of this node whose children are the results of `f`, called in order.
    pub fn map_children(&self, f: &mut impl FnMut(&Expr) -> Expr) -> Expr {
        let Ok(mapped) = self.try_map_children(&mut |e| Ok::<_, std::convert::Infallible>(f(e)));
        mapped
    }

    /// Calls `f` on every node, those inside index expressions too, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        self.children().for_each(|e| e.visit(f));
    }

    /// Returns true if `f` holds for some node, those inside index expressions too.
    pub fn any(&self, f: &mut impl FnMut(&Expr) -> bool) -> bool {
        f(self) || self.children().any(|e| e.any(f))
    }

    /// Calls `f` on every access, those inside index expressions too, outermost first.
    pub fn visit_accesses<'a>(&'a self, f: &mut impl FnMut(&'a Access)) {
        self.visit(&mut |e| {
            if let Expr::Load(access) = e {
                f(access)
            }
        });
    }

    /// Returns true if the value may differ from one value of `var` to another.
    pub fn depends_on(&self, var: Var) -> bool {
        self.any(&mut |e| match e {
            Expr::Index(a) => a.uses(var),
            Expr::Load(access) => access.affine_forms().any(|a| a.uses(var)),
            _ => false,
        })
    }

    /// The conjunction of conditions, each of which holds or does not; `None` of none.
    pub fn all<'e>(parts: impl IntoIterator<Item = (&'e Expr, bool)>) -> Option<Expr> {
        let said = |(e, holds): (&Expr, bool)| if holds { e.clone() } else { Expr::unary(UnaryOp::Not, e.clone()) };
        parts.into_iter().map(said).reduce(|a, b| Expr::binary(BinaryOp::And, a, b))
    }

    /// Returns true if some access reads the buffer.
    pub fn reads(&self, buffer: BufferId) -> bool {
        self.any(&mut |e| matches!(e, Expr::Load(access) if access.buffer == buffer))
    }

    /// Rewrites bottom-up: children first, then `f` on the rebuilt node. Index expressions are rewritten as well.
    pub fn rewrite(&self, f: &mut impl FnMut(Expr) -> Expr) -> Expr {
        let rebuilt = self.map_children(&mut |e| e.rewrite(f));
        f(rebuilt)
    }

    /// Rewrites every read, those inside index expressions first.
    pub fn rewrite_loads(&self, f: &mut impl FnMut(Access) -> Expr) -> Expr {
        self.rewrite(&mut |e| if let Expr::Load(access) = e { f(access) } else { e })
    }

    /// Rewrites every read of one buffer, those inside index expressions first.
    pub fn rewrite_reads(&self, buffer: BufferId, f: &mut impl FnMut(Access) -> Expr) -> Expr {
        self.rewrite_loads(&mut |access| if access.buffer == buffer { f(access) } else { Expr::Load(access) })
    }

    /// Replaces every variable, in subscripts, guards and index values.
    pub fn substitute(&self, map: &mut impl FnMut(Var) -> Affine) -> Expr {
        match self {
            Expr::Index(a) => Expr::Index(a.substitute(map)),
            Expr::Load(access) => Expr::Load(access.substitute(map)),
            e => e.map_children(&mut |e| e.substitute(map)),
        }
    }

    /// The type of the value, where `of` is the element type of each buffer.
    pub fn dtype(&self, of: &impl Fn(BufferId) -> DType) -> DType {
        match self {
            Expr::Const(s) => s.dtype,
            Expr::Index(_) => DType::I64,
            Expr::Load(access) => of(access.buffer),
            Expr::Unary(_, a) | Expr::Binary(_, a, _) | Expr::Select(_, a, _) => a.dtype(of),
            Expr::Compare(..) => DType::Bool,
            Expr::Cast(to, _) | Expr::Bitcast(to, _) => *to,
        }
    }
}

impl Condition for Expr {
    fn logic(&self) -> Logic<'_, Expr> {
        match self {
            Expr::Unary(UnaryOp::Not, a) => Logic::Not(a),
            Expr::Binary(BinaryOp::And, a, b) => Logic::And(a, b),
            Expr::Binary(BinaryOp::Or, a, b) => Logic::Or(a, b),
            _ => Logic::Part,
        }
    }
}

impl Access {
    /// The affine forms of the guard and of the subscripts.
    pub fn affine_forms(&self) -> impl Iterator<Item = &Affine> {
        self.guard.iter().chain(self.index.iter().filter_map(Index::affine))
    }

    pub fn substitute(&self, map: &mut impl FnMut(Var) -> Affine) -> Access {
        let index = self.index.iter().map(|i| i.substitute(map)).collect();
        let guard = self.guard.iter().map(|g| g.substitute(&mut *map)).collect();
        Access { buffer: self.buffer, index, guard, otherwise: self.otherwise }
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl std::ops::$trait for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                Expr::binary(BinaryOp::$op, self, other)
            }
        }
    )*};
}
operator!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl std::ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Expr::unary(UnaryOp::Neg, self)
    }
}
