//! Intervals of the integers at hand, and what they save: conversions that keep every value, products of short numbers.

use crate::codegen::Isa;
use crate::codegen::select::state::{Selected, Selector, Val};
use crate::codegen::select::value::dtype_of;
use crate::codegen::vcode::{Lane, VBinary};
use crate::expr::narrow::{self, Names};
use crate::expr::{Affine, Expr};
use crate::runtime::DType;

impl Selector<'_> {
    /// The interval of an integer expression, where it is known without reading memory.
    pub fn range(&self, e: &Expr) -> Option<(i64, i64)> {
        let bounds = |a: &Affine| self.facts.bounds(&self.resolve(a));
        Names { dtype: &|b| self.nest.buffer(b).dtype, bounds: &bounds, is_table: &|_| false }.range(e)
    }

    /// Returns true if `e` is an integer whose values the integer type `to` holds.
    pub fn is_held(&self, to: DType, e: &Expr) -> bool {
        let from = dtype_of(self.nest, e);
        let integers = from != DType::Bool && to != DType::Bool && narrow::dtype_range(from).is_some();
        match (self.range(e), narrow::dtype_range(to)) {
            (Some(values), Some(room)) => integers && room.0 <= values.0 && values.1 <= room.1,
            _ => false,
        }
    }

    /// A product of numbers of 16 bits in lanes of 32, by the instruction that multiplies halves: one with two products of less
    /// latency than the one of words. The upper half of one factor is zero.
    pub fn short_product(&mut self, a: &Expr, b: &Expr) -> Selected<Option<Val>> {
        let (Some(x), Some(y)) = (self.range(a), self.range(b)) else { return Ok(None) };
        let short = |r: (i64, i64)| -32768 <= r.0 && r.1 <= 32767;
        if self.target.isa == Isa::Neon || !short(x) || !short(y) {
            return Ok(None);
        }
        let (mut a, mut b) = (self.value(a)?, self.value(b)?);
        if a.lane != Lane::I32 || b.lane != Lane::I32 {
            return Ok(None);
        }
        if x.0 < 0 && y.0 < 0 {
            if a.uniform {
                std::mem::swap(&mut a, &mut b);
            }
            let half = self.number(b, 65535.0);
            b = self.vector_binary(VBinary::And, b, half);
        }
        let product = self.vector_binary(VBinary::MulPairs, a, b);
        self.normalized(product).map(Some)
    }
}
