//! The stack frame of AArch64 code.

use crate::Result;
use crate::object::unwind::change::{Change, unknown_frame};
use gimli::AArch64;
use gimli::Register;
use gimli::write::CallFrameInstruction;
use std::collections::BTreeMap;

/// Fields of the instructions that make frames (Arm Architecture Reference Manual, C6.2).
const RET: u32 = 0xd65f_03c0;
const STACK: u32 = 31;
const SCRATCH: u32 = 16;

/// The state at an instruction.
#[derive(Default)]
struct Frame {
    /// Bytes between the stack pointer and the caller's.
    size: i64,
    /// The value of x16, if it is known.
    constant: Option<i64>,
    /// x16 is so far above the stack pointer.
    address: Option<i64>,
    /// Registers of the caller: the offset from its stack pointer at which each waits.
    saved: BTreeMap<u16, i64>,
}

/// The rules of a phase.
pub fn changes(code: &[u8]) -> Result<Vec<Change>> {
    let (mut frame, mut changes) = (Frame::default(), vec![]);
    for (i, word) in code.as_chunks::<4>().0.iter().enumerate() {
        let (word, end) = (u32::from_le_bytes(*word), 4 * i as u32 + 4);
        if word == RET {
            let is_whole = frame.size == 0 && frame.saved.is_empty();
            return if is_whole { Ok(changes) } else { Err(unknown_frame(4 * i)) };
        }
        let before = frame.size;
        if let Some(change) = frame.step(word).ok_or_else(|| unknown_frame(4 * i))? {
            changes.push((end, change));
        }
        if frame.size != before {
            changes.push((end, CallFrameInstruction::CfaOffset(frame.size as i32)));
        }
    }
    Err(unknown_frame(code.len()))
}

impl Frame {
    /// Goes over an instruction; returns the new rule of a register. `None` where the frame is no longer known.
    fn step(&mut self, word: u32) -> Option<Option<CallFrameInstruction>> {
        let (to, from, immediate) = (word & 31, word >> 5 & 31, i64::from(word >> 10 & 0xfff));
        let shifted = if word >> 22 & 1 == 1 { immediate << 12 } else { immediate };
        match word {
            // sub and add (immediate) of the stack pointer
            _ if word & 0xff80_03ff == 0xd100_03ff => self.size += shifted,
            _ if word & 0xff80_03ff == 0x9100_03ff => self.size -= shifted,
            // sub and add (extended register) of x16
            0xcb30_63ff => self.size += self.constant?,
            0x8b30_63ff => self.size -= self.constant?,
            // add x16, sp, x16
            0x8b30_63f0 => (self.address, self.constant) = (self.constant, None),
            // movz, movk, movn of x16
            _ if word & 0x1f80_001f == 0x1280_0010 && word >> 31 == 1 => self.constant = self.moved(word),
            // str and ldr (unsigned offset) of x registers and d registers
            _ if matches!(word & 0xffc0_0000, 0xf900_0000 | 0xfd00_0000 | 0xf940_0000 | 0xfd40_0000) => {
                let offset = match from {
                    STACK => Some(8 * immediate),
                    SCRATCH => self.address.map(|address| address + 8 * immediate),
                    _ => None,
                };
                let (is_vector, is_load) = (word >> 26 & 1 == 1, word >> 22 & 1 == 1);
                let change = offset.and_then(|offset| self.access(to, is_vector, is_load, offset - self.size));
                if is_load && !is_vector && to == SCRATCH {
                    (self.constant, self.address) = (None, None);
                }
                return Some(change);
            }
            // anything else that may write x16
            _ if to == SCRATCH => (self.constant, self.address) = (None, None),
            _ => {}
        }
        Some(None)
    }

    /// The value of x16 behind a move of 16 bits to it.
    fn moved(&self, word: u32) -> Option<i64> {
        let (part, shift) = (i64::from(word >> 5 & 0xffff), 16 * (word >> 21 & 3));
        match word >> 29 & 3 {
            0b10 => Some(part << shift),
            0b00 => Some(!(part << shift)),
            0b11 => Some(self.constant? & !(0xffff << shift) | part << shift),
            _ => None,
        }
    }

    /// The new rule where a register that belongs to the caller is stored for the first time, or loaded from there. `offset` is from
    /// the caller's stack pointer.
    fn access(&mut self, register: u32, is_vector: bool, is_load: bool, offset: i64) -> Option<CallFrameInstruction> {
        let number = match is_vector {
            true if (8..16).contains(&register) => AArch64::V0.0 + register as u16,
            false if (19..29).contains(&register) => register as u16,
            _ => return None,
        };
        match (is_load, self.saved.get(&number).copied()) {
            (false, None) => {
                self.saved.insert(number, offset);
                Some(CallFrameInstruction::Offset(Register(number), offset as i32))
            }
            (true, Some(saved)) if saved == offset => {
                self.saved.remove(&number);
                Some(CallFrameInstruction::Restore(Register(number)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallFrameInstruction::{CfaOffset, Offset, Restore};

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A frame of 0x9000 bytes, in which a register waits beyond the reach of an offset.
    const LARGE: &[u32] = &[
        0xd100_43ff, // sub sp, sp, 16
        0xd53b_4410, // mrs x16, fpcr
        0xf900_03f0, // str x16, [sp]
        0xd292_0010, // movz x16, 0x9000
        0xcb30_63ff, // sub sp, sp, x16
        0xd291_f010, // movz x16, 0x8f80
        0x8b30_63f0, // add x16, sp, x16
        0xf900_0213, // str x19, [x16]
        0xfd00_13e8, // str d8, [sp, 32]
        0xf900_07f3, // str x19, [sp, 8]
        0xd503_201f, // nop
        0xf940_07f3, // ldr x19, [sp, 8]
        0xd291_f010, // movz x16, 0x8f80
        0x8b30_63f0, // add x16, sp, x16
        0xf940_0213, // ldr x19, [x16]
        0xfd40_13e8, // ldr d8, [sp, 32]
        0xd292_0010, // movz x16, 0x9000
        0x8b30_63ff, // add sp, sp, x16
        0xf940_03f0, // ldr x16, [sp]
        0xd51b_4410, // msr fpcr, x16
        0x9100_43ff, // add sp, sp, 16
        RET,
    ];

    #[test]
    fn the_rules_follow_the_stack() {
        let (x19, d8) = (Register(19), Register(72));
        let expected = [
            (4, CfaOffset(16)),
            (20, CfaOffset(0x9010)),
            (32, Offset(x19, 0x8f80 - 0x9010)),
            (36, Offset(d8, 32 - 0x9010)),
            (60, Restore(x19)),
            (64, Restore(d8)),
            (72, CfaOffset(16)),
            (84, CfaOffset(0)),
        ];
        assert_eq!(changes(&code(LARGE)).unwrap(), expected);
    }

    #[test]
    fn a_frame_that_is_not_understood_is_refused() {
        for missing in [0, 3, 4, 14, 15, 16, 17, 20, 21] {
            let words: Vec<u32> = (0..LARGE.len()).filter(|i| *i != missing).map(|i| LARGE[i]).collect();
            assert!(changes(&code(&words)).is_err(), "without word {missing}");
        }
    }
}
