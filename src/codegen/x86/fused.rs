//! Fused products and sums: the form whose result overwrites an operand that is at hand, one operand in memory; rows of products and sums
//! with an element in memory.

use super::encode::{Encoding, Rm, Width};
use super::memory::width;
use super::opcode::{self, Op};
use crate::codegen::emit::operand::Source;
use crate::codegen::instruction::{self, Slot, TensorInstruction};
use crate::codegen::vcode::{Addr, Lane, VType};
use crate::codegen::x86::emitter::{Emitter, at};

/// Fused products by the operand that the result overwrites.
struct Fused {
    /// `d = a·b + d`.
    sum: Op,
    /// `d = a·d + b`.
    factor: Op,
    /// `d = d·b + a`.
    times: Op,
}

fn forms(lane: Lane, negate: bool) -> Option<Fused> {
    use opcode::*;
    let [sum, factor, times] = match (lane, negate) {
        (Lane::F32, false) => [FMA_PS, FMA_PLUS_PS, FMA_TIMES_PS],
        (Lane::F32, true) => [FNMA_PS, REST_PS, FNMA_TIMES_PS],
        (Lane::F64, false) => [FMA_PD, FMA_PLUS_PD, FMA_TIMES_PD],
        (Lane::F64, true) => [FNMA_PD, REST_PD, FNMA_TIMES_PD],
        _ => return None,
    };
    Some(Fused { sum, factor, times })
}

impl Emitter<'_> {
    /// The code of a row whose operand that is broadcast is at an address; false where the row has no such form.
    pub(super) fn row_in_memory(&mut self, row: &TensorInstruction, [acc, other]: [u8; 2], addr: &Addr) -> bool {
        let ([instruction::Encoding::X86(x)], Some(n), Ok(element)) =
            (&row.code[..], row.memory_operand(), at(addr, 0))
        else {
            return false;
        };
        let register = |slot: Slot| if slot == Slot::Operand(0) { acc } else { other };
        let op = Op::of_row(x, row.bytes(n));
        let registers = (register(x.reg), x.vvvv.map_or(0, register));
        let e = self.plain(op, Width::of(row.vector_bytes()), registers.0, registers.1, Rm::Memory(element));
        self.vector(Encoding { evex: true, broadcast: true, ..e });
        true
    }

    /// `d = sum ± product of the factors`, of which one may be in memory; false for other lanes.
    pub(super) fn fused(&mut self, d: u8, ty: VType, sum: Source, factors: [Source; 2], negate: bool) -> bool {
        use Source::{Memory, Register};
        let (Some(fused), w) = (forms(ty.lane, negate), width(ty)) else { return false };
        match (sum, factors) {
            (Register(c), [Register(a), Register(b)]) if d != c && (d == a || d == b) => {
                self.op3(fused.factor, w, d, if d == a { b } else { a }, c);
            }
            (Register(c), [Register(a), Register(b)]) => {
                self.copy_width(w, d, c);
                self.op3(fused.sum, w, d, a, b);
            }
            (Memory(c), [Register(a), Register(b)]) => {
                let other = if d == b { a } else { b };
                if d != b {
                    self.copy_width(w, d, a);
                }
                return self.op3_memory(fused.factor, ty, d, other, &c);
            }
            (Register(c), [Register(a), Memory(b)] | [Memory(b), Register(a)]) if d == a && d != c => {
                return self.op3_memory(fused.times, ty, d, c, &b);
            }
            (Register(c), [Register(a), Memory(b)] | [Memory(b), Register(a)]) => {
                self.copy_width(w, d, c);
                return self.op3_memory(fused.sum, ty, d, a, &b);
            }
            _ => return false,
        }
        true
    }
}
