//! Quotients and square roots of floats by an inverse, in AVX-512: a third to two thirds of the time of the instructions that divide.
//!
//! The inverse comes from an estimate of 14 bits by Newton's iteration. The step before the last is rounded towards zero: what is
//! missing is `y·e` with `e ≥ 0`, and `y` with one added to its significand makes it large enough where the sum is half way
//! between two numbers (divisors whose significand is all ones), so that the last step rounds the inverse as it should be. The
//! product with it is within a unit of the quotient, and a correction by the exact rest gives the correctly rounded
//! quotient (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Where there is no
//! inverse that is normal, where the product is infinite, and where it is a negative zero, whose sign the correction loses,
//! the lanes are divided behind a branch. Square roots of f32 come from an estimate of the inverse root in the same way, with the
//! instruction where the rest may be subnormal; they are those of the instruction for all 2^32 numbers. Approximations of f32 are an
//! estimate and one step. Invariant: a lane does not depend on the others.

use super::encode::{Encoding, Rm};
use super::memory::width;
use super::opcode;
use crate::codegen::vcode::{Lane, VType};
use crate::codegen::x86::emitter::{Emitter, repeated};
use dynasmrt::{DynasmLabelApi, dynasm};

/// Classes of `vfpclass`: not-a-number (quiet and signalling), negative zero, both infinities.
const DIVIDED: u8 = 0x01 | 0x80 | 0x04 | 0x08 | 0x10;

/// The table of `vfixupimm`: a zero becomes not-a-number, others stay.
const NO_ZERO: u64 = 0x300;

/// The table of `vfixupimm`: of a zero and of infinity the root is the number itself, others stay.
const ZERO_AND_INFINITY: u64 = 0x10_0100;

/// The bits of 2^-100: rests of the roots of lesser numbers may be subnormal.
const LEAST_FOR_ROOTS: u64 = (127 - 100) << 23;

/// The table of `vfixupimm`: what is not a number is left as it was before the last step, others are taken.
const NUMBERS: u64 = 0x1111_1100;

impl Emitter<'_> {
    /// `d = 1 / b` of f32, by an estimate and one step: `y + y·(1 - b·y)`. Where the estimate is zero or infinite, it is the inverse.
    pub(super) fn inverse_approximate(&mut self, ty: VType, d: u8, b: u8) {
        let w = width(ty);
        let (y, rest) = (self.temporaries.vector[0], self.temporaries.vector[1]);
        self.op2(opcode::INVERSE_PS, w, y, b);
        self.copy_width(w, rest, y);
        self.op3_constant(opcode::REST_PS, w, rest, b, repeated(1f32.to_bits().into(), 4, w));
        self.op3(opcode::FMA_PLUS_PS, w, rest, y, y);
        self.op3i_constant(opcode::FIXUP_PS, w, y, rest, repeated(NUMBERS, 4, w), 0);
        self.copy_width(w, d, y);
    }

    /// `d = √a` of f32, by an estimate of the inverse root and one step; for `inverse` `d = 1 / √a`.
    pub(super) fn root_approximate(&mut self, ty: VType, d: u8, a: u8, inverse: bool) {
        let w = width(ty);
        let temporaries = &self.temporaries.vector;
        let (y, root, rest) = (temporaries[0], temporaries[1], temporaries[2]);
        let half = || repeated(0.5f32.to_bits().into(), 4, w);
        self.op2(opcode::INVERSE_ROOT_PS, w, y, a);
        self.op3(opcode::MUL_PS, w, root, a, y);
        // what is missing, for a part of the number: ½ - ½·y·root
        self.op3_constant(opcode::MUL_PS, w, rest, y, half());
        self.op3_constant(opcode::REST_PS, w, rest, root, half());
        let result = if inverse { y } else { root };
        self.op3(opcode::FMA_PLUS_PS, w, rest, result, result);
        if inverse {
            self.op3i_constant(opcode::FIXUP_PS, w, y, rest, repeated(NUMBERS, 4, w), 0);
            self.copy_width(w, d, y);
        } else {
            self.op3i_constant(opcode::FIXUP_PS, w, rest, a, repeated(ZERO_AND_INFINITY, 4, w), 0);
            self.copy_width(w, d, rest);
        }
    }

    /// `d = √a` of f32.
    pub(super) fn root_by_inverse(&mut self, ty: VType, d: u8, a: u8) {
        let w = width(ty);
        let temporaries = &self.temporaries.vector;
        let (h, root, rest) = (temporaries[0], temporaries[1], temporaries[2]);
        let half = || repeated(0.5f32.to_bits().into(), 4, w);
        let end = self.asm.new_dynamic_label();
        self.op2(opcode::INVERSE_ROOT_PS, w, h, a);
        self.op3(opcode::MUL_PS, w, root, a, h);
        self.op3_constant(opcode::MUL_PS, w, h, h, half());
        self.copy_width(w, rest, root);
        self.op3_constant(opcode::REST_PS, w, rest, h, half());
        self.op3(opcode::FMA_PS, w, root, rest, root);
        self.op3(opcode::FMA_PS, w, h, h, rest);
        self.copy_width(w, rest, root);
        self.op3(opcode::REST_PS, w, rest, root, a);
        self.op3(opcode::FMA_PS, w, root, rest, h);
        self.op3i_constant(opcode::FIXUP_PS, w, root, a, repeated(ZERO_AND_INFINITY, 4, w), 0);
        // zero becomes the largest number without a sign
        self.op3_constant(opcode::ADD_D, w, rest, a, repeated(u32::MAX.into(), 4, w));
        self.op3i_constant(opcode::COMPARE_UD, w, 1, rest, repeated(LEAST_FOR_ROOTS - 1, 4, w), 1);
        // kortestw k1, k1
        self.asm.extend([0xc5, 0xf8, 0x98, 0xc9].iter());
        dynasm!(self.asm ; .arch x64 ; jz =>end);
        self.vector(Encoding { mask: 1, ..self.plain(opcode::SQRT_PS, w, root, 0, Rm::Register(a)) });
        self.asm.dynamic_label(end);
        self.copy_width(w, d, root);
    }

    /// `d = 1 / b`, or not-a-number.
    pub(super) fn inverse(&mut self, ty: VType, d: u8, b: u8) {
        let (w, lane) = (width(ty), ty.lane.bytes());
        let (y, rest) = (self.temporaries.vector[0], self.temporaries.vector[1]);
        let double = ty.lane == Lane::F64;
        let (estimate, fnma, fma, fixup, one, steps) = match double {
            true => (opcode::INVERSE_PD, opcode::REST_PD, opcode::FMA_PD, opcode::FIXUP_PD, 1f64.to_bits(), 3),
            false => (opcode::INVERSE_PS, opcode::REST_PS, opcode::FMA_PS, opcode::FIXUP_PS, 1f32.to_bits().into(), 2),
        };
        self.op2(estimate, w, y, b);
        for left in (0..steps).rev() {
            self.copy_width(w, rest, y);
            self.op3_constant(fnma, w, rest, b, repeated(one, lane, w));
            let step = self.plain(fma, w, y, y, Rm::Register(rest));
            match left {
                1 => self.vector(Encoding { towards_zero: true, ..step }),
                0 => {
                    self.op3_constant(
                        if double { opcode::ADD_Q } else { opcode::ADD_D },
                        w,
                        d,
                        y,
                        repeated(1, lane, w),
                    );
                    self.op3(fma, w, y, d, rest);
                }
                _ => self.vector(step),
            }
        }
        self.op3i_constant(fixup, w, y, y, repeated(NO_ZERO, lane, w), 0);
        self.copy_width(w, d, y);
    }

    /// `d = a / b`, of the operands a, b and the inverse of b.
    pub(super) fn quotient_by_inverse(&mut self, ty: VType, d: u8, [a, b, inverse]: [u8; 3]) {
        let w = width(ty);
        let (q, rest) = (self.temporaries.vector[0], self.temporaries.vector[1]);
        let (multiply, fnma, class, fma, divide) = match ty.lane {
            Lane::F64 => (opcode::MUL_PD, opcode::REST_PD, opcode::CLASS_PD, opcode::FMA_PD, opcode::DIV_PD),
            _ => (opcode::MUL_PS, opcode::REST_PS, opcode::CLASS_PS, opcode::FMA_PS, opcode::DIV_PS),
        };
        let end = self.asm.new_dynamic_label();
        self.op3(multiply, w, q, a, inverse);
        self.copy_width(w, rest, q);
        self.op3(fnma, w, rest, b, a);
        self.op2i(class, w, 1, q, DIVIDED);
        self.op3(fma, w, q, rest, inverse);
        // kortestw k1, k1
        self.asm.extend([0xc5, 0xf8, 0x98, 0xc9].iter());
        dynasm!(self.asm ; .arch x64 ; jz =>end);
        self.vector(Encoding { mask: 1, ..self.plain(divide, w, q, a, Rm::Register(b)) });
        self.asm.dynamic_label(end);
        self.copy_width(w, d, q);
    }
}
