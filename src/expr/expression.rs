//! Affine forms and scalar expressions: the one language for the bodies of statements, in a Scop (over iterators) and in
//! a LoopNest (over loop variables).

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
    /// Boolean negation.
    Not,
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
    /// Boolean and.
    And,
    /// Boolean or.
    Or,
    /// Boolean exclusive or.
    Xor,
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
    /// An unguarded read with affine subscripts.
    pub fn load(buffer: BufferId, index: Vec<Affine>) -> Expr {
        Expr::Load(Access {
            buffer,
            index: index.into_iter().map(Index::Affine).collect(),
            guard: vec![],
            otherwise: None,
        })
    }

    /// Calls `f` on every node, those inside index expressions too, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Const(_) | Expr::Index(_) => {}
            Expr::Load(access) => {
                for index in &access.index {
                    if let Index::Value(e) = index {
                        e.visit(f);
                    }
                }
            }
            Expr::Unary(_, a) | Expr::Cast(_, a) => a.visit(f),
            Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Expr::Select(c, a, b) => {
                c.visit(f);
                a.visit(f);
                b.visit(f);
            }
        }
    }

    /// Calls `f` on every access, those inside index expressions too, outermost first.
    pub fn visit_accesses<'a>(&'a self, f: &mut impl FnMut(&'a Access)) {
        match self {
            Expr::Const(_) | Expr::Index(_) => {}
            Expr::Load(access) => {
                f(access);
                for index in &access.index {
                    if let Index::Value(e) = index {
                        e.visit_accesses(f);
                    }
                }
            }
            Expr::Unary(_, a) | Expr::Cast(_, a) => a.visit_accesses(f),
            Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => {
                a.visit_accesses(f);
                b.visit_accesses(f);
            }
            Expr::Select(c, a, b) => {
                c.visit_accesses(f);
                a.visit_accesses(f);
                b.visit_accesses(f);
            }
        }
    }

    /// Rewrites bottom-up: children first, then `f` on the rebuilt node. Index expressions are rewritten as well.
    pub fn rewrite(&self, f: &mut impl FnMut(Expr) -> Expr) -> Expr {
        let rebuilt = match self {
            Expr::Const(_) | Expr::Index(_) => self.clone(),
            Expr::Load(access) => {
                let index = access
                    .index
                    .iter()
                    .map(|i| match i {
                        Index::Affine(a) => Index::Affine(a.clone()),
                        Index::Value(e) => Index::Value(Box::new(e.rewrite(f))),
                    })
                    .collect();
                Expr::Load(Access { index, ..access.clone() })
            }
            Expr::Unary(op, a) => Expr::unary(*op, a.rewrite(f)),
            Expr::Binary(op, a, b) => Expr::binary(*op, a.rewrite(f), b.rewrite(f)),
            Expr::Compare(op, a, b) => Expr::compare(*op, a.rewrite(f), b.rewrite(f)),
            Expr::Select(c, a, b) => Expr::select(c.rewrite(f), a.rewrite(f), b.rewrite(f)),
            Expr::Cast(t, a) => Expr::cast(*t, a.rewrite(f)),
        };
        f(rebuilt)
    }

    /// Replaces every variable, in subscripts, guards and index values.
    pub fn substitute(&self, map: &mut impl FnMut(Var) -> Affine) -> Expr {
        match self {
            Expr::Const(_) => self.clone(),
            Expr::Index(a) => Expr::Index(a.substitute(&mut *map)),
            Expr::Load(access) => Expr::Load(access.substitute(map)),
            Expr::Unary(op, a) => Expr::unary(*op, a.substitute(map)),
            Expr::Binary(op, a, b) => Expr::binary(*op, a.substitute(map), b.substitute(map)),
            Expr::Compare(op, a, b) => Expr::compare(*op, a.substitute(map), b.substitute(map)),
            Expr::Select(c, a, b) => Expr::select(c.substitute(map), a.substitute(map), b.substitute(map)),
            Expr::Cast(t, a) => Expr::cast(*t, a.substitute(map)),
        }
    }
}

impl Access {
    pub fn substitute(&self, map: &mut impl FnMut(Var) -> Affine) -> Access {
        Access {
            buffer: self.buffer,
            index: self
                .index
                .iter()
                .map(|i| match i {
                    Index::Affine(a) => Index::Affine(a.substitute(&mut *map)),
                    Index::Value(e) => Index::Value(Box::new(e.substitute(map))),
                })
                .collect(),
            guard: self.guard.iter().map(|g| g.substitute(&mut *map)).collect(),
            otherwise: self.otherwise,
        }
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
