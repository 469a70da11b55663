//! Encodings as text: the opcode line of x86 manuals, and patterns of AArch64 words.

use super::syntax::{Code, Field};
use crate::codegen::instruction::{Encoding, Slot, X86Encoding};
use crate::expr::syntax::{Name, Span};
use crate::language::source::{Checked, Diagnostic};
use crate::runtime::error::unknown;

/// The encoding of `code`; `slot` finds the register that a name stands for.
pub fn encoding(code: &Code, slot: &impl Fn(&Name) -> Checked<Slot>) -> Checked<Encoding> {
    for (index, (name, _)) in code.fields.iter().enumerate() {
        if code.fields[..index].iter().any(|f| f.0 == *name) {
            return Err(Diagnostic::invalid(name.span, format!("the field `{name}` is already filled")));
        }
    }
    let line = Line { code, words: words(code) };
    match line.words.first() {
        Some((word, _)) if word.starts_with("EVEX") || word.starts_with("VEX") => line.x86(slot).map(Encoding::X86),
        Some((word, _)) if word.starts_with(['0', '1']) || word.contains(':') => line.aarch64(slot),
        first => {
            let span = first.map_or(code.line_span, |w| w.1);
            let message = "expected `EVEX` or `VEX`, as in `\"EVEX.512.66.0F38.W0 50 /r\"`, or a word of 32 bits, as in \
                           `\"0100 1110 100 m:5 100101 n:5 d:5\"`";
            Err(Diagnostic::invalid(span, message))
        }
    }
}

/// The words of a line, with their places.
fn words(code: &Code) -> Vec<(&str, Span)> {
    let first = code.line.as_ptr() as usize;
    let place = |word: &str| {
        let start = code.line_span.start + 1 + (word.as_ptr() as usize - first) as u32;
        Span { start, end: start + word.len() as u32 }
    };
    code.line.split_whitespace().map(|word| (word, place(word))).collect()
}

struct Line<'a> {
    code: &'a Code,
    words: Vec<(&'a str, Span)>,
}

impl Line<'_> {
    /// The register in `field`; fields that are not among `known` are an error of the text.
    fn register(&self, field: &str, slot: &impl Fn(&Name) -> Checked<Slot>) -> Checked<Option<Slot>> {
        match self.code.fields.iter().find(|f| f.0.text == field) {
            None => Ok(None),
            Some((_, Field::Register(name))) => slot(name).map(Some),
            Some((_, Field::Number(_, span))) => {
                Err(Diagnostic::invalid(*span, format!("`{field}` is a register, not a number")))
            }
        }
    }

    fn known(&self, fields: &[&str]) -> Checked<()> {
        match self.code.fields.iter().find(|f| !fields.contains(&&*f.0.text)) {
            Some((name, _)) => Err(Diagnostic::invalid(name.span, unknown("field", name, fields))),
            None => Ok(()),
        }
    }

    fn empty(&self, field: &str) -> Diagnostic {
        Diagnostic::invalid(self.code.line_span, format!("nothing fills the field `{field}`"))
    }

    /// `EVEX.512.66.0F38.W0 50 /r ib`.
    fn x86(&self, slot: &impl Fn(&Name) -> Checked<Slot>) -> Checked<X86Encoding> {
        let (prefix_word, prefix_span) = self.words[0];
        let head = prefixes(prefix_word, prefix_span)?;
        let end = Span { start: self.code.line_span.end - 1, end: self.code.line_span.end };
        let word = |n: usize| self.words.get(n).copied().unwrap_or(("", end));
        let (opcode, span) = word(1);
        let opcode = Some(opcode).filter(|o| o.len() == 2).and_then(|o| u8::from_str_radix(o, 16).ok());
        let opcode = opcode.ok_or_else(|| Diagnostic::invalid(span, "expected the opcode, two hexadecimal digits"))?;
        if word(2).0 != "/r" {
            let message = "expected `/r`: an operand stands in ModRM.reg and one in ModRM.rm";
            return Err(Diagnostic::invalid(word(2).1, message));
        }
        let has_immediate = match word(3) {
            ("", _) => false,
            ("ib", _) => true,
            (_, span) => return Err(Diagnostic::invalid(span, "expected `ib` or the end of the encoding")),
        };
        if let Some((_, span)) = self.words.get(4) {
            return Err(Diagnostic::invalid(*span, "expected the end of the encoding"));
        }
        self.known(if has_immediate { &["reg", "vvvv", "rm", "imm"] } else { &["reg", "vvvv", "rm"] })?;
        let immediate = match self.code.fields.iter().find(|f| &*f.0 == "imm") {
            None if has_immediate => return Err(self.empty("imm")),
            None => None,
            Some((_, Field::Number(v, _))) if (0..256).contains(v) => Some(*v as u8),
            Some((name, _)) => return Err(Diagnostic::invalid(name.span, "`imm` is a number from 0 to 255")),
        };
        let required = |field: &str| self.register(field, slot)?.ok_or_else(|| self.empty(field));
        let (reg, vvvv, rm) = (required("reg")?, self.register("vvvv", slot)?, required("rm")?);
        Ok(X86Encoding { opcode, reg, vvvv, rm, immediate, ..head })
    }

    /// `0100 1110 100 m:5 100101 n:5 d:5`; a field `m:4` has room for the lower 16 registers.
    fn aarch64(&self, slot: &impl Fn(&Name) -> Checked<Slot>) -> Checked<Encoding> {
        let (mut word, mut bits) = (0u32, 0usize);
        let mut fields: Vec<(&str, usize, usize)> = vec![];
        for &(text, span) in &self.words {
            let width = match text.split_once(':') {
                Some((name, width @ ("4" | "5"))) if !name.is_empty() => {
                    if fields.iter().any(|f| f.0 == name) {
                        return Err(Diagnostic::invalid(span, format!("the field `{name}` stands here twice")));
                    }
                    let width = usize::from(width.as_bytes()[0] - b'0');
                    fields.push((name, bits, width));
                    width
                }
                Some(_) => {
                    let message =
                        "a field has a name and 5 bits, the number of a register, as in `m:5`, or 4, as in `m:4`";
                    return Err(Diagnostic::invalid(span, message));
                }
                None if text.bytes().all(|b| b == b'0' || b == b'1') => text.len(),
                None => return Err(Diagnostic::invalid(span, "expected bits, or a field as in `m:5`")),
            };
            bits += width;
            if bits > 32 {
                return Err(Diagnostic::invalid(span, "a word has 32 bits"));
            }
            let value = if text.contains(':') { 0 } else { u32::from_str_radix(text, 2).unwrap_or(0) };
            word |= ((value as u64) << (32 - bits)) as u32;
        }
        if bits != 32 {
            return Err(Diagnostic::invalid(self.code.line_span, format!("a word has 32 bits, not {bits}")));
        }
        let names: Vec<&str> = fields.iter().map(|f| f.0).collect();
        self.known(&names)?;
        let (mut registers, mut low) = (vec![], vec![]);
        for (name, first, width) in fields {
            let register = self.register(name, slot)?.ok_or_else(|| self.empty(name))?;
            registers.push((register, (32 - first - width) as u8));
            low.extend((width == 4).then_some(register));
        }
        Ok(Encoding::Aarch64 { word, registers, low })
    }
}

/// `EVEX.512.66.0F38.W0`; operands and opcode are still to come.
fn prefixes(word: &str, span: Span) -> Checked<X86Encoding> {
    let mut start = span.start;
    let mut parts = word.split('.').map(|part| {
        let place = Span { start, end: start + part.len() as u32 };
        start = place.end + 1;
        (part, place)
    });
    let end = Span { start: span.end, end: span.end };
    let mut next = || parts.next().unwrap_or(("", end));
    let (family, place) = next();
    let evex = match family {
        "EVEX" => true,
        "VEX" => false,
        _ => return Err(Diagnostic::invalid(place, "expected `EVEX` or `VEX`")),
    };
    let vector_bits = match next() {
        ("128", _) => 128,
        ("256", _) => 256,
        ("512", _) if evex => 512,
        (_, place) => {
            let widths = if evex { "`128`, `256` or `512`" } else { "`128` or `256`" };
            return Err(Diagnostic::invalid(place, format!("expected the bits of the vectors: {widths}")));
        }
    };
    let mut part = next();
    let prefixes = [("NP", 0), ("66", 0x66), ("F3", 0xf3), ("F2", 0xf2)];
    let prefix = prefixes.iter().find(|p| p.0 == part.0).map(|p| p.1);
    if prefix.is_some() {
        part = next();
    }
    let maps = [("0F", 1), ("0F38", 2), ("0F3A", 3), ("MAP5", 5), ("MAP6", 6)];
    let map = maps.iter().find(|m| m.0 == part.0 && (m.1 < 5 || evex)).map(|m| m.1);
    let Some(map) = map else {
        let message = "expected a prefix (`NP`, `66`, `F3`, `F2`) and an opcode map (`0F`, `0F38`, `0F3A`, and `MAP5` or \
                       `MAP6` after `EVEX`)";
        return Err(Diagnostic::invalid(part.1, message));
    };
    let w = match next() {
        ("W0" | "WIG", _) => false,
        ("W1", _) => true,
        (_, place) => return Err(Diagnostic::invalid(place, "expected `W0`, `W1` or `WIG`")),
    };
    if let ("", _) = next() {
        let (reg, rm) = (Slot::Operand(0), Slot::Operand(0));
        let prefix = prefix.unwrap_or(0);
        return Ok(X86Encoding { evex, vector_bits, prefix, map, w, opcode: 0, reg, vvvv: None, rm, immediate: None });
    }
    Err(Diagnostic::invalid(span, "expected a space and the opcode after `W0`, `W1` or `WIG`"))
}
