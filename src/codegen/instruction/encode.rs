//! Machine code of a tensor instruction whose operands stand in registers.

use crate::codegen::instruction::{Encoding, Slot, TensorInstruction, X86Encoding};

impl TensorInstruction {
    /// The code, with operand `n` in vector register `operands[n]`, the constant behind them, temporary `n` in `temporaries[n]`.
    /// Registers have numbers below 32, below 16 where the row is encoded by VEX.
    pub fn bytes_of(&self, operands: &[u8], temporaries: &[u8]) -> Vec<u8> {
        bytes_of(&self.code, operands, temporaries)
    }

    /// Variant of [`TensorInstruction::bytes_of`] where the operand that is broadcast stands in the lowest lane alone.
    pub fn bytes_by_element(&self, operands: &[u8], temporaries: &[u8]) -> Vec<u8> {
        bytes_of(&self.element, operands, temporaries)
    }
}

fn bytes_of(code: &[Encoding], operands: &[u8], temporaries: &[u8]) -> Vec<u8> {
    let register = |slot: Slot| match slot {
        Slot::Operand(n) => operands[n as usize],
        Slot::Constant => operands[operands.len() - 1],
        Slot::Temporary(n) => temporaries[n as usize],
    };
    let mut bytes = vec![];
    code.iter().for_each(|encoding| encoding.write(register, &mut bytes));
    bytes
}

impl Encoding {
    /// Appends the code, with each slot in the vector register that `register` gives.
    pub fn write(&self, register: impl Fn(Slot) -> u8, bytes: &mut Vec<u8>) {
        match self {
            Encoding::X86(x) => x86(x, register, bytes),
            Encoding::Aarch64 { word, registers, .. } => {
                let fields = registers.iter().map(|&(slot, bit)| (register(slot) as u32) << bit);
                bytes.extend(fields.fold(*word, |word, field| word | field).to_le_bytes());
            }
        }
    }
}

/// An EVEX instruction in the first registers, with the element at the address in `rax` in place of r/m.
pub(super) fn with_broadcast(x: &X86Encoding) -> Vec<u8> {
    let mut bytes = vec![];
    x86(x, |_| 0, &mut bytes);
    let broadcast = 1 << 4;
    let modes = bytes.len() - 1;
    bytes[3] |= broadcast;
    bytes[modes] &= 0x3f;
    bytes
}

/// One VEX or EVEX instruction, in registers. Layouts are those of volume 2 of Intel's manual, section 2.3 and 2.7.
fn x86(x: &X86Encoding, register: impl Fn(Slot) -> u8, bytes: &mut Vec<u8>) {
    let (reg, rm) = (register(x.reg), register(x.rm));
    let vvvv = x.vvvv.map_or(0, &register);
    // Bits of register numbers are stored inverted.
    let inverted = |number: u8, bit: u8| 1 - ((number >> bit) & 1);
    let prefix = [0, 0x66, 0xf3, 0xf2].iter().position(|&p| p == x.prefix).unwrap_or(0) as u8;
    let length = u8::from(x.vector_bits >= 256) + u8::from(x.vector_bits >= 512);
    let wide = u8::from(x.w) << 7;
    let third = (!vvvv & 15) << 3;
    let r = inverted(reg, 3) << 7;
    let b = inverted(rm, 3) << 5;
    if x.evex {
        let x_bit = inverted(rm, 4) << 6;
        let r_high = inverted(reg, 4) << 4;
        bytes.extend([0x62, r | x_bit | b | r_high | x.map, wide | third | 4 | prefix]);
        bytes.push(length << 5 | inverted(vvvv, 4) << 3);
    } else {
        bytes.extend([0xc4, r | 1 << 6 | b | x.map, wide | third | length << 2 | prefix]);
    }
    bytes.extend([x.opcode, 0xc0 | (reg & 7) << 3 | rm & 7]);
    bytes.extend(x.immediate);
}
