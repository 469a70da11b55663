//! VEX and EVEX encoding (Intel SDM volume 2, chapter 2).

use crate::codegen::x86::opcode::Op;

/// Vector length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Width {
    X,
    Y,
    Z,
}

impl Width {
    /// The narrowest register that holds `bytes` bytes.
    pub fn of(bytes: usize) -> Width {
        match bytes {
            0..=16 => Width::X,
            17..=32 => Width::Y,
            _ => Width::Z,
        }
    }

    pub fn bytes(self) -> usize {
        16 << self as usize
    }
}

/// A memory operand with physical registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// `None`: relative to the end of the instruction, the displacement is filled in by the caller.
    pub base: Option<u8>,
    /// Register and scale; a vector register for gathers.
    pub index: Option<(u8, u8)>,
    pub displacement: i32,
}

/// The operand in ModRM's r/m field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rm {
    Register(u8),
    Memory(Memory),
}

/// One vector instruction.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    pub op: Op,
    pub evex: bool,
    pub width: Width,
    /// ModRM's reg field: a register, or an extension of the opcode.
    pub reg: u8,
    /// The register in the prefix; 0 when there is none.
    pub second: u8,
    pub rm: Rm,
    /// EVEX: mask register, 0 for none.
    pub mask: u8,
    /// EVEX: masked lanes become zero.
    pub zeroing: bool,
    /// EVEX: rounded towards zero, whatever the mode; whole registers without a memory operand.
    pub towards_zero: bool,
    /// EVEX: the element at the address in `rm` is repeated throughout the operand.
    pub broadcast: bool,
    pub immediate: Option<u8>,
    /// The index register in `rm` is a vector register (its highest bit has a place of its own).
    pub vector_index: bool,
}

/// Appends the bytes of an instruction; returns the offset of a 32-bit displacement relative to the start, if any.
pub fn encode(e: &Encoding, out: &mut Vec<u8>) -> Option<usize> {
    let start = out.len();
    let (base, index) = match e.rm {
        Rm::Register(r) => (r, r >> 1 & 8), // bit 4 of a register in r/m goes where bit 3 of an index would
        Rm::Memory(m) => (m.base.unwrap_or(0), m.index.map_or(0, |i| i.0)),
    };
    let inverted = |bit: u8, place: u8| (!bit & 1) << place;
    let length = e.width as u8;
    if e.evex {
        let rounding = if e.towards_zero { 0x70 } else { length << 5 };
        let highest = if e.vector_index { index >> 4 } else { e.second >> 4 };
        out.extend([
            0x62,
            inverted(e.reg >> 3, 7)
                | inverted(index >> 3, 6)
                | inverted(base >> 3, 5)
                | inverted(e.reg >> 4, 4)
                | e.op.map,
            (e.op.evex_w as u8) << 7 | (!e.second & 15) << 3 | 4 | e.op.prefix,
            (e.zeroing as u8) << 7 | rounding | (e.broadcast as u8) << 4 | inverted(highest, 3) | e.mask,
        ]);
    } else {
        debug_assert!(e.reg < 16 && e.second < 16 && base < 16 && index < 16 && length < 2 && e.mask == 0);
        let low = (!e.second & 15) << 3 | length << 2 | e.op.prefix;
        if e.op.map == 1 && !e.op.vex_w && base < 8 && index < 8 {
            out.extend([0xc5, inverted(e.reg >> 3, 7) | low]);
        } else {
            out.extend([
                0xc4,
                inverted(e.reg >> 3, 7) | inverted(index >> 3, 6) | inverted(base >> 3, 5) | e.op.map,
                (e.op.vex_w as u8) << 7 | low,
            ]);
        }
    }
    out.push(e.op.opcode);
    let mut relative = None;
    let reg = (e.reg & 7) << 3;
    match e.rm {
        Rm::Register(r) => out.push(0xc0 | reg | r & 7),
        Rm::Memory(Memory { base: None, .. }) => {
            out.push(reg | 5);
            relative = Some(out.len() - start);
            out.extend([0; 4]);
        }
        Rm::Memory(Memory { base: Some(b), index, displacement }) => {
            let unit = match e.evex {
                // of maps 5 and 6 are instructions on f16
                true if e.broadcast && e.op.map > 3 => 2,
                true if e.broadcast => 4 << e.op.evex_w as u8,
                true => e.op.unit(e.width.bytes()),
                false => 1,
            };
            let short = (displacement % unit == 0).then(|| i8::try_from(displacement / unit).ok()).flatten();
            // rbp and r13 as base without a displacement mean something else.
            let mode = match short {
                Some(0) if b & 7 != 5 => 0,
                Some(_) => 0x40,
                None => 0x80,
            };
            match index {
                Some((i, scale)) => {
                    let scale = scale.trailing_zeros() as u8;
                    out.extend([mode | reg | 4, scale << 6 | (i & 7) << 3 | b & 7]);
                }
                // rsp and r12 as base need the second byte.
                None if b & 7 == 4 => out.extend([mode | reg | 4, 0x24]),
                None => out.push(mode | reg | b & 7),
            }
            match (mode, short) {
                (0x40, Some(d)) => out.push(d as u8),
                (0x80, _) => out.extend(displacement.to_le_bytes()),
                _ => {}
            }
        }
    }
    out.extend(e.immediate);
    relative
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::x86::opcode::{self, ALL, Forms};
    use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};

    /// Positions of the operands of a row, in the order of the assembly language.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Shape {
        /// reg, second, r/m.
        Three,
        /// reg, r/m.
        Two,
        /// r/m, reg.
        Store,
        /// r/m, second, reg.
        MaskedStore,
        /// second, r/m; reg extends the opcode.
        Shift(u8),
        /// reg, [base + vector], second (VEX).
        Gather,
        /// [base + vector], reg.
        Scatter,
    }

    #[rustfmt::skip]
    fn shape(op: Op) -> Shape {
        use opcode::*;
        let two = [
            LOAD_PS, LOAD_PD, LOAD_B, LOAD_W, LOAD_SS, LOAD_SD, MOVE, FROM_GPR32, FROM_GPR64, BROADCAST_SS, BROADCAST_B, BROADCAST_W, BROADCAST_D,
            BROADCAST_Q, BROADCAST_128, SPLAT_B, SPLAT_W, SPLAT_D, SPLAT_Q, SHUFFLE_D, PERMUTE_Q, SQRT_PS, SQRT_PD, INVERSE_PS, INVERSE_PD, INVERSE_ROOT_PS, CLASS_PS, CLASS_PD, ROUND_PS, ROUND_PD, ABS_B, ABS_W, ABS_D, ABS_Q, COUNT_ONES_D, COUNT_ONES_Q,
            MASK_TO_B, MASK_TO_W, MASK_TO_D, MASK_TO_Q, EXTEND_BW, EXTEND_WD, ZERO_EXTEND_BW, EXTEND_BD, EXTEND_BQ, EXTEND_DQ, ZERO_EXTEND_BD, ZERO_EXTEND_WD, ZERO_EXTEND_BQ, I32_TO_F32, I32_TO_F64,
            I64_TO_F32, I64_TO_F64, F32_TO_F64, F64_TO_F32, F32_TO_I32, F64_TO_I32, F32_TO_I64, F64_TO_I64, F16_TO_F32, F32_TO_BF16,
            SCALAR_F32_TO_I64, SCALAR_F64_TO_I64, MASK_LOAD, B_TO_MASK, D_TO_MASK, Q_TO_MASK,
        ];
        let store = [
            STORE_PS, STORE_PD, STORE_B, STORE_W, STORE_SS, STORE_SD, STORE_D, TO_GPR64, EXTRACT_128, EXTRACT_256, EXTRACT_B, EXTRACT_W, EXTRACT_D, EXTRACT_Q, NARROW_WB, NARROW_DB,
            NARROW_DW, NARROW_QB, NARROW_QD, F32_TO_F16,
        ];
        match op {
            _ if two.contains(&op) => Shape::Two,
            _ if store.contains(&op) => Shape::Store,
            MASK_STORE_PS | MASK_STORE_PD => Shape::MaskedStore,
            SHIFT_W | SHIFT_D | SHIFT_Q => Shape::Shift(6),
            SHIFT_ARITHMETIC_Q => Shape::Shift(4),
            GATHER_DPS | GATHER_DPD | GATHER_QPS | GATHER_QPD => Shape::Gather,
            SCATTER_DPS | SCATTER_DPD => Shape::Scatter,
            _ => Shape::Three,
        }
    }

    /// Returns two flags: r/m may be a register, r/m may be memory.
    fn operand_kinds(op: Op, evex: bool) -> (bool, bool) {
        use opcode::*;
        match op {
            LOAD_SS | LOAD_SD | STORE_SS | STORE_SD | BROADCAST_128 | MASK_LOAD_PS | MASK_LOAD_PD | MASK_STORE_PS
            | MASK_STORE_PD => (false, true),
            MASK_TO_B | MASK_TO_W | MASK_TO_D | MASK_TO_Q | B_TO_MASK | D_TO_MASK | Q_TO_MASK | SPLAT_B | SPLAT_W
            | SPLAT_D | SPLAT_Q => (true, false),
            _ => match shape(op) {
                Shape::Gather | Shape::Scatter => (false, true),
                Shape::Shift(_) => (true, evex),
                _ => (true, true),
            },
        }
    }

    fn widths(op: Op, evex: bool) -> Vec<Width> {
        use opcode::*;
        let all: &[Width] = match op {
            LOAD_SS | LOAD_SD | STORE_SS | STORE_SD | FROM_GPR32 | FROM_GPR64 | STORE_D | TO_GPR64 | INSERT_B
            | INSERT_W | INSERT_D | INSERT_Q | EXTRACT_B | EXTRACT_W | EXTRACT_D | EXTRACT_Q | SCALAR_I64_TO_F32
            | SCALAR_F32_TO_I64 | SCALAR_F64_TO_I64 | MASK_LOAD => &[Width::X],
            PERMUTE_128 => &[Width::Y],
            EXTRACT_128 | INSERT_128 | BROADCAST_128 | SHUFFLE_128 | PERMUTE_PS | PERMUTE_Q => &[Width::Y, Width::Z],
            EXTRACT_256 => &[Width::Z],
            _ => &[Width::X, Width::Y, Width::Z],
        };
        all.iter().copied().filter(|w| evex || *w != Width::Z).collect()
    }

    fn mnemonic(op: Op, evex: bool) -> &'static str {
        match (op.name, evex) {
            ("vpand", true) => "vpandd",
            ("vpandn", true) => "vpandnd",
            ("vpor", true) => "vpord",
            ("vpxor", true) => "vpxord",
            ("vextractf128", true) => "vextractf32x4",
            ("vinsertf128", true) => "vinsertf32x4",
            ("vbroadcasti128", true) => "vbroadcasti32x4",
            ("vroundps", true) => "vrndscaleps",
            ("vroundpd", true) => "vrndscalepd",
            (name, _) => name,
        }
    }

    /// Register numbers cut to what exists: 8 mask registers, 16 general-purpose registers.
    fn existing(op: Op, evex: bool, [reg, second, third]: [u8; 3]) -> [u8; 3] {
        use opcode::*;
        match op {
            FROM_GPR32 | FROM_GPR64 | SPLAT_B | SPLAT_W | SPLAT_D | SPLAT_Q | INSERT_B | INSERT_W | INSERT_D
            | INSERT_Q | EXTRACT_B | EXTRACT_W | EXTRACT_D | EXTRACT_Q | STORE_D | TO_GPR64 | SCALAR_I64_TO_F32 => {
                [reg, second, third % 16]
            }
            SCALAR_F32_TO_I64 | SCALAR_F64_TO_I64 => [reg % 16, second, third],
            MASK_TO_B | MASK_TO_W | MASK_TO_D | MASK_TO_Q => [reg, second, third % 8],
            COMPARE_PS | COMPARE_PD | COMPARE_B | COMPARE_UB | COMPARE_W | COMPARE_UW | COMPARE_D | COMPARE_UD
            | COMPARE_Q
                if evex =>
            {
                [reg % 8, second, third]
            }
            B_TO_MASK | D_TO_MASK | Q_TO_MASK | CLASS_PS | CLASS_PD => [reg % 8, second, third],
            MASK_LOAD => [reg % 8, second, third % 8],
            _ => [reg, second, third],
        }
    }

    /// Encodes, decodes, compares the name and every operand.
    fn check(op: Op, evex: bool, width: Width, [reg, second, third]: [u8; 3], memory: Option<Memory>) {
        let shape = shape(op);
        let immediate = matches!(shape, Shape::Shift(_))
            || op.map == 3
            || [opcode::SHUFFLE_D, opcode::SHUFFLE_PS, opcode::COMPARE_PS, opcode::COMPARE_PD, opcode::INSERT_W]
                .contains(&op);
        let vector_index = matches!(shape, Shape::Gather | Shape::Scatter);
        let has_second = match shape {
            Shape::Three | Shape::Shift(_) | Shape::MaskedStore => true,
            Shape::Gather => !evex,
            _ => false,
        };
        let e = Encoding {
            op,
            evex,
            width,
            reg: if let Shape::Shift(extension) = shape { extension } else { reg },
            second: if has_second { second } else { 0 },
            rm: memory.map_or(Rm::Register(third), Rm::Memory),
            mask: (evex && vector_index) as u8,
            zeroing: false,
            towards_zero: false,
            broadcast: false,
            immediate: immediate.then_some(1),
            vector_index,
        };
        let mut bytes = vec![];
        encode(&e, &mut bytes);
        let decoded: Instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
        let what = format!("{e:x?} -> {bytes:02x?} -> {decoded}");
        assert!(!decoded.is_invalid(), "{what}");
        assert_eq!(decoded.len(), bytes.len(), "{what}");
        assert_eq!(format!("{:?}", decoded.mnemonic()).to_lowercase(), mnemonic(op, evex), "{what}");
        let operands = match shape {
            Shape::Three => vec![reg, second, third],
            Shape::Two => vec![reg, third],
            Shape::Store => vec![third, reg],
            Shape::MaskedStore => vec![third, second, reg],
            Shape::Shift(_) => vec![second, third],
            Shape::Gather => vec![reg, third, second],
            Shape::Scatter => vec![third, reg],
        };
        let mut in_memory = false;
        for i in 0..decoded.op_count() {
            match decoded.op_kind(i) {
                OpKind::Register => {
                    // The fourth register of a blend is in the immediate.
                    let expected = operands.get(i as usize).map_or(0, |&r| r as usize);
                    assert_eq!(decoded.op_register(i).number(), expected, "{what}");
                }
                OpKind::Memory => {
                    in_memory = true;
                    let m = memory.expect("asked for");
                    assert_eq!(decoded.memory_base().number(), m.base.expect("not relative") as usize, "{what}");
                    assert_eq!(decoded.memory_displacement64() as i64, i64::from(m.displacement), "{what}");
                    match m.index {
                        None => assert_eq!(decoded.memory_index(), Register::None, "{what}"),
                        Some((r, scale)) => {
                            assert_eq!(decoded.memory_index().number(), r as usize, "{what}");
                            assert_eq!(decoded.memory_index_scale(), u32::from(scale), "{what}");
                        }
                    }
                }
                _ => {}
            }
        }
        assert_eq!(in_memory, memory.is_some(), "{what}");
    }

    #[test]
    fn an_element_in_memory_is_broadcast() {
        for (op, name) in [(opcode::FMA_PS, "dword bcst"), (opcode::ADD_PD, "qword bcst")] {
            for (width, displacement) in [(Width::X, 0), (Width::Y, 508), (Width::Z, -1024), (Width::Z, 4)] {
                let rm = Rm::Memory(Memory { base: Some(13), index: Some((9, 4)), displacement });
                let e = Encoding {
                    op,
                    evex: true,
                    width,
                    reg: 17,
                    second: 30,
                    rm,
                    mask: 0,
                    zeroing: false,
                    towards_zero: false,
                    broadcast: true,
                    immediate: None,
                    vector_index: false,
                };
                let mut bytes = vec![];
                encode(&e, &mut bytes);
                let decoded: Instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
                assert!(decoded.is_broadcast() && decoded.len() == bytes.len(), "{decoded} for {name}");
                assert_eq!(decoded.memory_displacement64() as i64, i64::from(displacement), "{decoded}");
                assert_eq!([decoded.op0_register().number(), decoded.op1_register().number()], [17, 30], "{decoded}");
                // a displacement in units of the element takes a byte
                let unit = 4 << op.evex_w as i32;
                let short = displacement % unit == 0 && (-128 * unit..128 * unit).contains(&displacement);
                assert_eq!(bytes.len(), if short { 8 } else { 11 }, "{decoded}");
            }
        }
    }

    #[test]
    fn encoding_is_disassembly() {
        let mut count = 0;
        for &op in ALL {
            let prefixes: &[bool] = match op.forms {
                Forms::Vex => &[false],
                Forms::Evex => &[true],
                Forms::Both => &[false, true],
            };
            for &evex in prefixes {
                for width in widths(op, evex) {
                    let high = if evex { 16 } else { 0 };
                    let vectors = [[1, 2, 3], [9, 10, 11], [high + 4, high + 13, high + 7], [high + 15, 5, high + 12]];
                    let (register, memory) = operand_kinds(op, evex);
                    for registers in vectors.map(|r| existing(op, evex, r)) {
                        if register {
                            check(op, evex, width, registers, None);
                            count += 1;
                        }
                        let unit = op.unit(width.bytes());
                        for base in [0, 4, 5, 12, 13] {
                            for displacement in [0, 1, unit, -128 * unit, 127 * unit, 128 * unit, 100_001] {
                                for scale in [1, 2, 8] {
                                    let index = match shape(op) {
                                        Shape::Gather | Shape::Scatter => Some((high + 8, scale)),
                                        _ if scale == 1 => None,
                                        _ => Some((4 + scale + 1, scale)),
                                    };
                                    if memory {
                                        let m = Memory { base: Some(base), index, displacement };
                                        check(op, evex, width, registers, Some(m));
                                        count += 1;
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        println!("{} opcodes, {count} encodings", ALL.len());
        assert!(count > 40_000, "{count}");
    }
}
