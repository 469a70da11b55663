//! The check of a row's code by decoders: iced-x86 for x86-64, disarm64 for AArch64.
//!
//! Each encoding is decoded at two assignments of registers. It must be one known instruction whose operands are the registers
//! that the row names, all of them and no others; operands that are read must stay as they are, temporaries must be written
//! before they are read, and the row must need the features that its instructions need.

use crate::codegen::instruction::encode::with_broadcast;
use crate::codegen::instruction::{Encoding, Form, Slot, TensorInstruction, X86Encoding};
use crate::runtime::Features;
use disarm64_defn::defn::{InsnOpcode, InsnOperand};
use disarm64_defn::{InsnFeatureSet, InsnOperandClass};
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Formatter, Instruction, InstructionInfoFactory, IntelFormatter, OpAccess,
    OpKind, Register,
};

/// The reason why the code of a row is not what the row declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeProblem {
    /// The encoding, by its position; `None` where the features of the row are wrong.
    pub encoding: Option<usize>,
    pub message: String,
}

/// A machine instruction as a decoder reads it.
struct Decoded {
    /// The instruction in the assembler's words.
    text: String,
    /// Number and bytes of each operand, all of them vector or tile registers.
    registers: Vec<(u8, usize)>,
    read: Vec<u8>,
    written: Vec<u8>,
    features: Features,
}

/// Numbers of registers for operands and temporaries, in two orders. Those of VEX are below 16; no number is 0, which a field that
/// an encoding leaves out has.
const NUMBERS: [[u8; 12]; 2] = [[3, 14, 9, 12, 6, 1, 10, 5, 15, 2, 11, 7], [13, 4, 8, 2, 15, 11, 7, 1, 5, 14, 9, 10]];

/// Numbers of tile registers.
const TILE_NUMBERS: [[u8; 7]; 2] = [[3, 6, 1, 5, 2, 7, 4], [5, 4, 7, 2, 6, 1, 3]];

/// Features that every target with one of `features` has: a row need not name them, and may.
fn implied(features: Features) -> Features {
    let names = features.names();
    let avx512 = names.iter().any(|name| name.starts_with("avx512"));
    let x86 = !features.without(Features::of_architecture("aarch64")).is_empty();
    let base = if x86 { Features::AVX2 } else { Features::NEON };
    if names.iter().any(|name| name.starts_with("amx")) {
        return base.with(Features::AMX_TILE);
    }
    if avx512 { base.with(Features::AVX512F) } else { base }
}

impl TensorInstruction {
    /// Decodes the code and compares it with the row; that by element counts on behind the other.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_code(&self) -> Result<(), CodeProblem> {
        self.check_one_code()?;
        let behind = |p: CodeProblem| CodeProblem { encoding: p.encoding.map(|n| n + self.code.len()), ..p };
        self.by_element().map_or(Ok(()), |row| row.check_one_code().map_err(behind))
    }

    fn check_one_code(&self) -> Result<(), CodeProblem> {
        let fail = |encoding, message| Err(CodeProblem { encoding, message });
        let numbers = match self.is_tile() {
            true => TILE_NUMBERS.each_ref().map(|n| &n[..]),
            false => NUMBERS.each_ref().map(|n| &n[..]),
        };
        if self.registers() + self.temporaries() > numbers[0].len() {
            let message = format!("more than {} operands and temporaries", numbers[0].len());
            return fail(None, message);
        }
        let (mut needed, mut written) = (Features::default(), vec![]);
        for (n, encoding) in self.code.iter().enumerate() {
            for (round, numbers) in numbers.iter().enumerate() {
                // The upper half of the registers takes part in the second round where it can be named.
                let high = if round == 1 && !self.has_vex() { 16 } else { 0 };
                let number = |slot: Slot| {
                    let number = match slot {
                        Slot::Operand(n) => numbers[n as usize],
                        Slot::Constant => numbers[self.operands.len()],
                        Slot::Temporary(n) => numbers[self.registers() + n as usize],
                    };
                    if self.code.iter().any(|e| e.is_low(slot)) { number } else { number + high }
                };
                let decoded = decode(encoding, number);
                let decoded = decoded.map_err(|message| CodeProblem { encoding: Some(n), message })?;
                let mut before = written.clone();
                let checked = self.compare(encoding, number, &decoded, &mut before);
                checked.map_err(|message| CodeProblem { encoding: Some(n), message })?;
                let missing = decoded.features.without(self.features.with(implied(self.features)));
                if !missing.is_empty() {
                    let names = missing.names().join(" ");
                    return fail(Some(n), format!("`{}` needs {names}, which the row does not name", decoded.text));
                }
                needed = needed.with(decoded.features);
                if round == 1 {
                    written = before;
                }
            }
        }
        if !written.contains(&Slot::Operand(0)) {
            return fail(None, format!("no encoding writes the accumulator `{}`", self.operands[0].name));
        }
        let idle = self.features.without(needed.with(implied(self.features)));
        if !idle.is_empty() {
            return fail(None, format!("no encoding needs {}", idle.names().join(" ")));
        }
        Ok(())
    }

    /// Returns true if some of the code can name only the lower 16 registers.
    pub fn has_vex(&self) -> bool {
        self.code.iter().any(|e| matches!(e, Encoding::X86(x) if !x.evex))
    }

    fn slot_name(&self, slot: Slot) -> String {
        match slot {
            Slot::Operand(n) => format!("`{}`", self.operands[n as usize].name),
            Slot::Constant => "the constant".into(),
            Slot::Temporary(n) => format!("temporary {n}"),
        }
    }

    /// Compares an instruction with the encoding that it was decoded from; `written` are the slots that have been written.
    fn compare(
        &self,
        encoding: &Encoding,
        number: impl Fn(Slot) -> u8,
        decoded: &Decoded,
        written: &mut Vec<Slot>,
    ) -> Result<(), String> {
        let slots = encoding.registers();
        let (mut declared, mut found): (Vec<u8>, Vec<u8>) =
            (slots.iter().map(|&s| number(s)).collect(), decoded.registers.iter().map(|r| r.0).collect());
        declared.sort_unstable();
        found.sort_unstable();
        if declared != found {
            let list = |numbers: &[u8]| numbers.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "`{}` has the registers {}, but the row puts {} into its fields",
                decoded.text,
                list(&found),
                list(&declared)
            ));
        }
        for &slot in &slots {
            let bytes = decoded.registers.iter().filter(|r| r.0 == number(slot)).map(|r| r.1).max().unwrap_or(0);
            if let Slot::Operand(n) = slot
                && self.bytes(n as usize) > bytes
            {
                let (name, all) = (self.slot_name(slot), self.bytes(n as usize));
                return Err(format!("{name} has {all} bytes, but its register in `{}` has {bytes}", decoded.text));
            }
            if matches!(slot, Slot::Operand(1..) | Slot::Constant) && decoded.written.contains(&number(slot)) {
                return Err(format!("`{}` writes {}, which is only read", decoded.text, self.slot_name(slot)));
            }
            if matches!(slot, Slot::Temporary(_)) && decoded.read.contains(&number(slot)) && !written.contains(&slot) {
                let name = self.slot_name(slot);
                return Err(format!("`{}` reads {name}, which nothing has written", decoded.text));
            }
        }
        written.extend(slots.iter().filter(|s| decoded.written.contains(&number(**s))));
        Ok(())
    }
}

impl TensorInstruction {
    /// The operand that is broadcast, where the code takes the element at an address in its place: one instruction by EVEX with the
    /// operand in r/m, which has such a form for elements of this size.
    pub fn memory_operand(&self) -> Option<usize> {
        let [Encoding::X86(x @ X86Encoding { evex: true, rm: Slot::Operand(n), immediate: None, .. })] = &self.code[..]
        else {
            return None;
        };
        let n = *n as usize;
        let fits =
            self.operands.len() == 3 && n > 0 && self.operands[n].form == Form::Broadcast && self.constant.is_none();
        (fits && broadcasts(x, self.bytes(n))).then_some(n)
    }
}

/// Returns true if an instruction by EVEX reads an element of so many bytes at the address in r/m into all lanes.
fn broadcasts(x: &X86Encoding, bytes: usize) -> bool {
    let instruction = Decoder::new(64, &with_broadcast(x), DecoderOptions::NONE).decode();
    !instruction.is_invalid() && instruction.is_broadcast() && instruction.memory_size().size() == bytes
}

fn decode(encoding: &Encoding, number: impl Fn(Slot) -> u8) -> Result<Decoded, String> {
    let mut bytes = vec![];
    encoding.write(&number, &mut bytes);
    match encoding {
        Encoding::X86(_) => decode_x86(&bytes),
        Encoding::Aarch64 { .. } => decode_aarch64(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
    }
}

fn decode_x86(bytes: &[u8]) -> Result<Decoded, String> {
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    if instruction.is_invalid() || instruction.len() != bytes.len() {
        return Err(format!("the bytes {} are not an instruction", hex.join(" ")));
    }
    let mut text = String::new();
    IntelFormatter::new().format(&instruction, &mut text);
    let mut registers = vec![];
    for n in 0..instruction.op_count() {
        let register = instruction.op_register(n);
        match instruction.op_kind(n) {
            OpKind::Register if is_operand(register) => {
                registers.push((register.number() as u8, register.size()));
            }
            OpKind::Immediate8 => {}
            _ => return Err(format!("`{text}` has an operand that is not a vector or tile register")),
        }
    }
    let (read, written) = accesses_x86(&instruction, &text)?;
    let mut features = Features::default();
    for feature in instruction.cpuid_features() {
        let known = X86_FEATURES.iter().find(|f| f.0 == *feature);
        let known = known.ok_or_else(|| format!("`{text}` needs {feature:?}, which is not a feature of any target"))?;
        features = features.with(known.1);
    }
    Ok(Decoded { text, registers, read, written, features })
}

/// Returns true for registers that operands of rows stand in.
fn is_operand(register: Register) -> bool {
    register.is_vector_register() || register.is_tmm()
}

/// The vector or tile registers that an instruction reads and writes; an error where it uses anything else.
fn accesses_x86(instruction: &Instruction, text: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let (mut read, mut written) = (vec![], vec![]);
    for used in info.used_registers() {
        if !is_operand(used.register()) {
            return Err(format!("`{text}` uses {:?}, which is not a vector or tile register", used.register()));
        }
        let number = used.register().number() as u8;
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        if matches!(used.access(), Read | CondRead | ReadWrite | ReadCondWrite) {
            read.push(number);
        }
        if matches!(used.access(), Write | CondWrite | ReadWrite | ReadCondWrite) {
            written.push(number);
        }
    }
    if !info.used_memory().is_empty() || instruction.rflags_modified() != 0 {
        return Err(format!("`{text}` uses more than its registers"));
    }
    Ok((read, written))
}

/// Features of iced-x86. Every target of x86-64 has AVX.
const X86_FEATURES: [(CpuidFeature, Features); 20] = [
    (CpuidFeature::AVX, Features::AVX2),
    (CpuidFeature::AVX2, Features::AVX2),
    (CpuidFeature::FMA, Features::FMA),
    (CpuidFeature::F16C, Features::F16C),
    (CpuidFeature::AVX512F, Features::AVX512F),
    (CpuidFeature::AVX512BW, Features::AVX512BW),
    (CpuidFeature::AVX512DQ, Features::AVX512DQ),
    (CpuidFeature::AVX512VL, Features::AVX512VL),
    (CpuidFeature::AVX512_VNNI, Features::AVX512VNNI),
    (CpuidFeature::AVX_VNNI, Features::AVX_VNNI),
    (CpuidFeature::AVX512_BF16, Features::AVX512BF16),
    (CpuidFeature::AVX512_FP16, Features::AVX512FP16),
    (CpuidFeature::AVX512_IFMA, Features::AVX512IFMA),
    (CpuidFeature::AVX512_VBMI, Features::AVX512VBMI),
    (CpuidFeature::AVX512_VBMI2, Features::AVX512VBMI2),
    (CpuidFeature::AVX512_BITALG, Features::AVX512BITALG),
    (CpuidFeature::AVX512_VPOPCNTDQ, Features::AVX512VPOPCNTDQ),
    (CpuidFeature::AMX_TILE, Features::AMX_TILE),
    (CpuidFeature::AMX_BF16, Features::AMX_BF16),
    (CpuidFeature::AMX_INT8, Features::AMX_INT8),
];

fn decode_aarch64(word: u32) -> Result<Decoded, String> {
    let unknown = || format!("the word {word:#010x} is not an instruction");
    let opcode = disarm64::decoder::decode(word).ok_or_else(unknown)?;
    let text = opcode.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let (mnemonic, operands) = text.split_once(' ').ok_or_else(unknown)?;
    if mnemonic == "udf" || mnemonic == ".inst" {
        return Err(unknown());
    }
    let operands = in_full(operands, opcode.definition().operands, word);
    let text = format!("{mnemonic} {operands}");
    let register = |operand: &str| {
        vector_register(operand).ok_or_else(|| format!("`{text}` has an operand that is not a vector register"))
    };
    let registers = operands.split(", ").filter(|o| !o.starts_with('#')).map(register);
    let registers: Vec<(u8, usize)> = registers.collect::<Result<_, _>>()?;
    let known = AARCH64_FEATURES.iter().find(|f| f.0 == opcode.definition().feature_set);
    let features = known.map(|f| f.1).ok_or_else(|| {
        format!("`{text}` needs {:?}, which is not a feature of any target", opcode.definition().feature_set)
    })?;
    // The first operand is the destination; that it is read as well, as by `sdot`, the check of the semantics shows.
    let written: Vec<u8> = registers.iter().take(1).map(|r| r.0).collect();
    let read = registers.iter().skip(1).map(|r| r.0).collect();
    Ok(Decoded { text, registers, read, written, features })
}

/// The operands of a word, with those that the formatter has no words for taken from their definitions: a vector register whose
/// arrangement is the only one stands in its field; of a group of bytes or halves by element the formatter leaves out the upper bit
/// of the register. What has another form stays as it is.
fn in_full(operands: &str, defined: &[InsnOperand], word: u32) -> String {
    let texts: Vec<&str> = operands.split(", ").collect();
    if texts.len() != defined.len() {
        return operands.to_string();
    }
    let texts = texts.iter().zip(defined).map(|(&text, operand)| match text {
        "<undefined>" => fixed_register(operand, word).unwrap_or_else(|| text.to_string()),
        text => group_register(text, word).unwrap_or_else(|| text.to_string()),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// `v3.16b` of a word, where the operand is a vector register with one arrangement.
fn fixed_register(operand: &InsnOperand, word: u32) -> Option<String> {
    let ([arrangement], [field]) = (operand.qualifiers, operand.bit_fields) else { return None };
    let arrangement = format!("{arrangement:?}").strip_prefix("V_")?.to_lowercase();
    let number = word >> field.lsb & 31;
    let whole = operand.class == InsnOperandClass::SIMD_REG && field.width == 5;
    whole.then(|| format!("v{number}.{arrangement}"))
}

/// `v20.4b[1]` of a word, whose register stands in M:Rm (Arm Architecture Reference Manual, SDOT and BFDOT by element).
fn group_register(text: &str, word: u32) -> Option<String> {
    let (_, element) = text.split_once('.').filter(|(_, e)| e.starts_with("4b[") || e.starts_with("2h["))?;
    Some(format!("v{}.{element}", word >> 16 & 31))
}

/// Number and bytes of `v3.16b`; a single element as `v3.s[1]` or `v3.4b[1]` stands in the whole register.
fn vector_register(operand: &str) -> Option<(u8, usize)> {
    let (number, arrangement) = operand.strip_prefix('v')?.split_once('.')?;
    let number = number.parse().ok()?;
    if arrangement.ends_with(']') {
        return Some((number, 16));
    }
    let bytes = match arrangement.chars().last()? {
        'b' => 1,
        'h' => 2,
        's' => 4,
        'd' => 8,
        _ => return None,
    };
    let lanes: usize = arrangement[..arrangement.len() - 1].parse().ok()?;
    Some((number, lanes * bytes))
}

/// Features of disarm64.
const AARCH64_FEATURES: [(InsnFeatureSet, Features); 5] = [
    (InsnFeatureSet::SIMD, Features::NEON),
    (InsnFeatureSet::SIMD_F16, Features::FP16),
    (InsnFeatureSet::DOTPROD, Features::DOTPROD),
    (InsnFeatureSet::I8MM, Features::I8MM),
    (InsnFeatureSet::BFLOAT16, Features::BF16),
];
