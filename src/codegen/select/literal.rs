//! Elements of constant buffers whose values are known: constants instead of loads, and products that take no arithmetic.
//!
//! Where the subscripts of a buffer with literals are constants, once loops are expanded, its element is a constant `l`.
//! A product `l·x` in a sum then is nothing for 0, an addition or subtraction for 1 and -1, which round as the fused
//! operation does, and takes `l` from a register of its own otherwise.
//!
//! Assumption, as in graph compilers: what a literal 0 is multiplied with is finite. `0·x` is 0, also where `x` is infinite
//! or not a number; and the sign of a sum that is zero may be another than that of all its products.

use crate::codegen::loopnest::row_major;
use crate::codegen::select::state::{Selected, Selector, Val};
use crate::codegen::select::value::{dtype_of, product};
use crate::codegen::vcode::{VBinary, VUnary};
use crate::expr::scalar::Value;
use crate::expr::{Access, BinaryOp, Expr, Scalar};

/// `factor · operand`, where the factor is a literal.
#[derive(Clone, Copy)]
pub struct Scaled<'e> {
    pub factor: f64,
    pub operand: &'e Expr,
}

impl Selector<'_> {
    /// Returns the value of a read, where it is known.
    pub fn literal(&self, access: &Access) -> Option<Scalar> {
        let buffer = self.nest.buffer(access.buffer);
        let literals = buffer.literals.as_ref()?;
        for guard in &access.guard {
            if !self.facts.decide(&self.resolve(guard))? {
                return access.otherwise;
            }
        }
        let mut offset = 0;
        for (index, stride) in access.index.iter().zip(row_major(&buffer.shape)) {
            let index = self.resolve(index.affine()?);
            offset += index.is_constant().then_some(index.constant)? * stride;
        }
        literals.values().get(usize::try_from(offset).ok()?).copied()
    }

    /// The product of `a` and `b` where one of them is a literal.
    pub fn scaled<'e>(&self, a: &'e Expr, b: &'e Expr, negate: bool) -> Option<Scaled<'e>> {
        let factor = |e: &Expr| match e {
            Expr::Load(access) => self.literal(access).map(|s| Value::from(s).as_f64()),
            _ => None,
        };
        let scaled = factor(a).map(|factor| (factor, b)).or_else(|| factor(b).map(|factor| (factor, a)));
        scaled.map(|(factor, operand)| Scaled { factor: if negate { -factor } else { factor }, operand })
    }

    /// `factor · x`, where the factor is not 0.
    pub fn scale(&mut self, factor: f64, x: Val) -> Val {
        if factor == 1.0 {
            return x;
        }
        if factor == -1.0 {
            return self.vector_unary(VUnary::Neg, x);
        }
        let factor = self.number(x, factor);
        self.vector_binary(VBinary::Mul, factor, x)
    }

    /// `c + factor · x`, rounded once, where the factor is not 0.
    pub fn plus_scaled(&mut self, c: Val, factor: f64, x: Val) -> Val {
        if factor.abs() == 1.0 {
            return self.vector_binary(if factor > 0.0 { VBinary::Add } else { VBinary::Sub }, c, x);
        }
        let size = self.number(x, factor.abs());
        self.fused(size, x, c, factor < 0.0)
    }

    /// A product, sum or difference in which a literal saves arithmetic; `None` when there is none.
    pub fn literal_binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Selected<Option<Val>> {
        let zero = |s: &Self, e: &Expr| {
            product(e).and_then(|(x, y, _)| s.scaled(x, y, false)).is_some_and(|p| p.factor == 0.0)
        };
        Ok(match op {
            BinaryOp::Mul => match self.scaled(a, b, false) {
                None => None,
                Some(Scaled { factor, operand }) => {
                    if factor == 0.0 {
                        return Ok(Some(self.constant(Scalar { dtype: dtype_of(self.nest, operand), bits: 0 })?));
                    }
                    let x = self.value(operand)?;
                    Some(self.scale(factor, x))
                }
            },
            BinaryOp::Add | BinaryOp::Sub if zero(self, b) => Some(self.value(a)?),
            BinaryOp::Add if zero(self, a) => Some(self.value(b)?),
            _ => None,
        })
    }
}
