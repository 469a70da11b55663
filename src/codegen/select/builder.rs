//! The selector as a builder of mathematical functions: their operations become vector instructions.

use crate::codegen::select::math;
use crate::codegen::select::state::{Selector, Val};
use crate::codegen::select::tree::Node;
use crate::codegen::target::Isa;
use crate::codegen::vcode::{Inst, Lane, ShiftOp, VBinary, VUnary};
use crate::expr::CompareOp;

impl Selector<'_> {
    /// `x·y + c`, or `c - x·y`, rounded once.
    pub fn fused(&mut self, x: Val, y: Val, c: Val, negate: bool) -> Val {
        let uniform = x.uniform && y.uniform && c.uniform;
        let ty = self.ty(c.lane, uniform);
        // the operation on a fresh accumulator is a function of its three operands: known by that key
        let key_inst = Inst::VFma { acc: c.reg, ty, a: x.reg, b: y.reg, negate };
        let key = self.key(key_inst);
        if let Some(reg) = self.known(&key) {
            return Val { reg, uniform, ..c };
        }
        let reg = self.fresh();
        self.out.push(Node::Inst(Inst::VCopy { dst: reg, src: c.reg, ty }));
        self.out.push(Node::Inst(Inst::VFma { acc: reg, ty, a: x.reg, b: y.reg, negate }));
        self.remember(key, reg, None);
        Val { reg, uniform, ..c }
    }
}

impl math::Builder for Selector<'_> {
    type V = Val;

    fn double(&self, like: Val) -> bool {
        like.lane == Lane::F64
    }
    fn float(&mut self, like: Val, v: f64) -> Val {
        self.number(like, v)
    }
    fn pattern(&mut self, like: Val, bits: u64) -> Val {
        Val { reg: self.bits(like.lane, bits), uniform: true, ..like }
    }
    fn add(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::Add, a, b)
    }
    fn sub(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::Sub, a, b)
    }
    fn mul(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::Mul, a, b)
    }
    fn div(&mut self, a: Val, b: Val) -> Val {
        self.float_quotient(a, b)
    }
    fn scales(&self) -> bool {
        self.target.isa == Isa::Avx512
    }
    fn scale(&mut self, a: Val, n: Val) -> Val {
        self.vector_binary(VBinary::Scale, a, n)
    }
    fn min(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::Min, a, b)
    }
    fn max(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::Max, a, b)
    }
    fn and(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::And, a, b)
    }
    fn or(&mut self, a: Val, b: Val) -> Val {
        self.vector_binary(VBinary::Or, a, b)
    }
    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        self.fused(a, b, c, false)
    }
    fn abs(&mut self, a: Val) -> Val {
        self.vector_unary(VUnary::Abs, a)
    }
    fn sqrt(&mut self, a: Val) -> Val {
        self.vector_unary(VUnary::Sqrt, a)
    }
    fn floor(&mut self, a: Val) -> Val {
        self.vector_unary(VUnary::Floor, a)
    }
    fn int_add(&mut self, a: Val, b: Val) -> Val {
        let int = |v: Val| Val { lane: if v.lane.bytes() == 8 { Lane::I64 } else { Lane::I32 }, ..v };
        Val { lane: a.lane, ..self.vector_binary(VBinary::Add, int(a), int(b)) }
    }
    fn int_sub(&mut self, a: Val, b: Val) -> Val {
        let int = |v: Val| Val { lane: if v.lane.bytes() == 8 { Lane::I64 } else { Lane::I32 }, ..v };
        Val { lane: a.lane, ..self.vector_binary(VBinary::Sub, int(a), int(b)) }
    }
    fn shift_left(&mut self, a: Val, amount: u8) -> Val {
        let int = Val { lane: if a.lane.bytes() == 8 { Lane::I64 } else { Lane::I32 }, ..a };
        Val { lane: a.lane, ..self.shift(ShiftOp::Left, int, amount) }
    }
    fn shift_right(&mut self, a: Val, amount: u8) -> Val {
        let int = Val { lane: if a.lane.bytes() == 8 { Lane::I64 } else { Lane::I32 }, ..a };
        Val { lane: a.lane, ..self.shift(ShiftOp::RightArithmetic, int, amount) }
    }
    fn less(&mut self, a: Val, b: Val) -> Val {
        self.vector_compare(CompareOp::Lt, a, b)
    }
    fn less_equal(&mut self, a: Val, b: Val) -> Val {
        self.vector_compare(CompareOp::Le, a, b)
    }
    fn equal(&mut self, a: Val, b: Val) -> Val {
        self.vector_compare(CompareOp::Eq, a, b)
    }
    fn select(&mut self, mask: Val, a: Val, b: Val) -> Val {
        self.vector_select(mask, a, b)
    }
}
