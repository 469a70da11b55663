//! The meaning of a tensor instruction, on the bytes of registers.

use crate::codegen::instruction::{Form, SumOrder, TensorInstruction};
use crate::expr::scalar::number::round_f16;
use crate::expr::scalar::{self, Point, Value};
use crate::expr::{Access, Affine, BinaryOp, Expr, Index, Var};
use crate::runtime::{DType, Error, Result};

/// The operands in registers, and the values of the iterators.
struct Registers<'a> {
    row: &'a TensorInstruction,
    registers: &'a [&'a [u8]],
    values: Vec<i64>,
}

impl Registers<'_> {
    fn element(&self, operand: usize, index: &[i64]) -> Result<Value> {
        let o = &self.row.operands[operand];
        let mut offset = 0;
        for (&v, &i) in o.indices.iter().zip(index) {
            let extent = self.row.extent(v);
            if i < 0 || i >= extent {
                let text = format!("{}: subscript {i} of {} is outside of 0..{extent}", self.row.name, o.name);
                return Err(Error::Internal(text));
            }
            offset = offset * extent + i;
        }
        Ok(Value::load(o.dtype, &self.registers[operand][offset as usize * o.dtype.bytes()..]))
    }
}

impl Point for Registers<'_> {
    fn affine(&self, a: &Affine) -> i64 {
        a.evaluate(|v: Var| self.values[v.0 as usize])
    }

    fn load(&self, access: &Access) -> Result<Value> {
        let index: Vec<i64> = access.index.iter().filter_map(Index::affine).map(|a| self.affine(a)).collect();
        self.element(access.buffer.0 as usize, &index)
    }
}

impl TensorInstruction {
    /// Runs the instruction: `accumulator` and `operands` (those that are read, in order) are the bytes of registers.
    /// Bytes of the accumulator beyond its elements stay as they are.
    ///
    /// # Errors
    /// [`Error::Internal`] where the row's semantics do not fit its operands.
    pub fn evaluate(&self, accumulator: &mut [u8], operands: &[&[u8]]) -> Result<()> {
        let first = accumulator.to_vec();
        let first = first.as_slice();
        let registers: Vec<&[u8]> = std::iter::once(first).chain(operands.iter().copied()).collect();
        let target = &self.operands[0];
        let mut point = Registers { row: self, registers: &registers, values: vec![0; self.iterators.len()] };
        let summed: Vec<Var> = self.summed().collect();
        for element in 0..self.elements(0) {
            let mut rest = element;
            for &v in target.indices.iter().rev() {
                point.values[v.0 as usize] = rest % self.extent(v);
                rest /= self.extent(v);
            }
            let start = element as usize * target.dtype.bytes();
            let before = Value::load(target.dtype, &first[start..]);
            let terms = summed.iter().map(|&v| self.extent(v)).product();
            let mut sum = |total: Value, mut terms: &mut dyn std::iter::Iterator<Item = i64>| {
                std::iter::Iterator::try_fold(&mut terms, total, |total, term| {
                    let mut rest = term;
                    for &v in summed.iter().rev() {
                        point.values[v.0 as usize] = rest % self.extent(v);
                        rest /= self.extent(v);
                    }
                    add_term(total, &self.body, &point)
                })
            };
            let zero = Value::from_f64(target.dtype, 0.0);
            let last = summed.last().map_or(1, |&v| self.extent(v));
            let total = match self.order {
                SumOrder::Ascending => sum(before, &mut (0..terms))?,
                SumOrder::Descending => sum(before, &mut (0..terms).rev())?,
                SumOrder::Grouped => {
                    let mut starts = (0..terms).step_by(last as usize);
                    std::iter::Iterator::try_fold(&mut starts, before, |total, first| {
                        scalar::binary(BinaryOp::Add, total, sum(zero, &mut (first..first + last))?)
                    })?
                }
                SumOrder::Apart => {
                    let parts = (0..last).map(|first| sum(zero, &mut (first..terms).step_by(last as usize)));
                    let total = parts.reduce(|a, b| scalar::binary(BinaryOp::Add, a?, b?));
                    scalar::binary(BinaryOp::Add, before, total.unwrap_or(Ok(zero))?)?
                }
            };
            total.store(&mut accumulator[start..]);
        }
        Ok(())
    }

    /// Calls `f` with the element of the accumulator and the value of each term, in no order that matters.
    ///
    /// # Errors
    /// [`Error::Internal`] where the row's semantics do not fit its operands.
    pub fn for_each_term(&self, accumulator: &[u8], operands: &[&[u8]], mut f: impl FnMut(usize, Value)) -> Result<()> {
        let registers: Vec<&[u8]> = std::iter::once(accumulator).chain(operands.iter().copied()).collect();
        let mut point = Registers { row: self, registers: &registers, values: vec![0; self.iterators.len()] };
        let order: Vec<Var> = self.operands[0].indices.iter().copied().chain(self.summed()).collect();
        let terms: i64 = self.summed().map(|v| self.extent(v)).product();
        for step in 0..self.elements(0) * terms {
            let mut rest = step;
            for &v in order.iter().rev() {
                point.values[v.0 as usize] = rest % self.extent(v);
                rest /= self.extent(v);
            }
            f((step / terms) as usize, point.value(&self.body)?);
        }
        Ok(())
    }

    /// The bytes of a register that holds the elements of a read operand: repeated where it is broadcast, zeros above them
    /// otherwise.
    pub fn register(&self, operand: usize, elements: &[u8], bytes: usize) -> Vec<u8> {
        let mut register = vec![0; bytes];
        match self.operands[operand].form {
            Form::Vector | Form::Tile => register[..elements.len()].copy_from_slice(elements),
            Form::Broadcast => register.iter_mut().zip(elements.iter().cycle()).for_each(|(r, e)| *r = *e),
        }
        register
    }
}

/// `total + body`: a product of floats is rounded once, with the sum.
fn add_term(total: Value, body: &Expr, point: &impl Point) -> Result<Value> {
    if let (Expr::Binary(BinaryOp::Mul, a, b), DType::F32 | DType::F64 | DType::F16) = (body, total.dtype()) {
        let (a, b) = (point.value(a)?, point.value(b)?);
        return Ok(match (a, b, total) {
            (Value::F32(a), Value::F32(b), Value::F32(c)) => Value::F32(a.mul_add(b, c)),
            (Value::F64(a), Value::F64(b), Value::F64(c)) => Value::F64(a.mul_add(b, c)),
            (Value::F16(a), Value::F16(b), Value::F16(c)) => Value::F16(fused_half(a, b, c)),
            _ => scalar::binary(BinaryOp::Add, total, scalar::binary(BinaryOp::Mul, a, b)?)?,
        });
    }
    scalar::binary(BinaryOp::Add, total, point.value(body)?)
}

/// `a · b + c` of numbers that f16 can hold, rounded once to f16. The product is exact in f64. Where the sum is not, one of the two
/// is less than half a unit of the other, and which side of a half the sum is on does not change. The way from f64 goes through an
/// f32 that is rounded to odd, which the second rounding keeps right.
fn fused_half(a: f32, b: f32, c: f32) -> f32 {
    let sum = f64::from(a) * f64::from(b) + f64::from(c);
    let near = sum as f32;
    if f64::from(near) == sum || !near.is_finite() {
        return round_f16(near);
    }
    let below = if f64::from(near).abs() > sum.abs() { near.to_bits() - 1 } else { near.to_bits() };
    round_f16(f32::from_bits(below | 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_and_its_sum_are_rounded_once() {
        let ulp = f32::powi(2.0, -10);
        // 1 + half a unit, and a little that f32 cannot hold beside it: up, while two roundings give the even neighbour.
        let [a, b] = [1.0 + ulp, f32::powi(2.0, -11) - f32::powi(2.0, -21)];
        assert_eq!(f64::from(a) * f64::from(b), f64::from(ulp) / 2.0 - f64::powi(2.0, -31));
        assert_eq!(fused_half(a, b, 1.0), 1.0);
        assert_eq!(fused_half(1.0 + ulp, ulp / 2.0, 1.0), 1.0 + ulp);
        assert_eq!(round_f16(a.mul_add(b, 1.0)), 1.0);
        // Subnormal numbers, the largest number, and what is beyond it.
        let least = f32::powi(2.0, -24);
        assert_eq!(fused_half(least, 1.0, least), 2.0 * least);
        assert_eq!(fused_half(255.0, 257.0, -31.0), 65504.0);
        assert_eq!(fused_half(256.0, 256.0, 0.0), f32::INFINITY);
        assert!(fused_half(f32::INFINITY, 0.0, 1.0).is_nan());
    }
}
