//! Listings of machine code.

use crate::codegen::Isa;
use crate::runtime::Result;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, Mnemonic};

/// One line an instruction; constants behind the code as bytes. AArch64 is listed as words.
pub fn disassemble(code: &[u8], isa: Isa) -> Result<String> {
    let mut out = String::new();
    match isa {
        Isa::Avx2 | Isa::Avx512 => {
            for line in instructions(code) {
                out += &format!("{:6x}  {}\n", line.0, line.1);
            }
        }
        Isa::Neon => {
            for (i, word) in code.chunks_exact(4).enumerate() {
                out += &format!(
                    "{:6x}  .word {:#010x}\n",
                    4 * i,
                    u32::from_le_bytes([word[0], word[1], word[2], word[3]])
                );
            }
        }
    }
    Ok(out)
}

/// Offset and text of each x86 instruction up to the return and what is jumped to behind it, then the constants eight bytes a line.
pub fn instructions(code: &[u8]) -> Vec<(usize, String)> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_rip_relative_addresses(false);
    let mut lines = vec![];
    let (mut instruction, mut furthest) = (Instruction::default(), 0);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        lines.push((instruction.ip() as usize, text));
        if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() {
            furthest = furthest.max(instruction.near_branch_target());
        }
        let ends = matches!(instruction.mnemonic(), Mnemonic::Ret | Mnemonic::Jmp);
        if ends && furthest < instruction.next_ip() {
            break;
        }
    }
    let mut offset = decoder.position().next_multiple_of(8);
    while offset < code.len() {
        let bytes: Vec<String> = code[offset..code.len().min(offset + 8)].iter().map(|b| format!("{b:02x}")).collect();
        lines.push((offset, format!(".byte {}", bytes.join(" "))));
        offset += 8;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::instructions;

    #[test]
    fn what_is_jumped_to_behind_the_return_is_code() {
        // jae 3; ret; jmp 2, and a constant
        let code = [0x73, 0x01, 0xc3, 0xeb, 0xfd, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8];
        let lines: Vec<String> = instructions(&code).into_iter().map(|l| l.1).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[2].starts_with("jmp") && lines[3] == ".byte 01 02 03 04 05 06 07 08", "{lines:?}");
    }
}
