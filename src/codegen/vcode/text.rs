//! The text form of VCode: an instruction a line, indented by loops and conditionals.
//!
//! In: text as `Display` of [`Function`] writes it, or written by hand. Out: functions, not yet verified (register
//! allocation refuses malformed ones). Invariant: the text of a function parses to the same function. The printer and the
//! parser follow the rows of the table of instructions in `operands.rs`.

use crate::codegen::instruction::{InstructionName, TILE_ROW_BYTES, TILE_ROWS, TILES};
use crate::codegen::vcode::operands::insts;
use crate::codegen::vcode::{
    Addr, Function, Gpr, GprOp, Inst, Lane, LaneRange, Operand, OptionalVreg, Shapes, ShiftOp, Tile, VBinary, VType,
    VUnary, Vreg, Zip,
};
use crate::expr::CompareOp;
use crate::runtime::{DType, Error, Result};
use std::fmt::Write;
use std::str::FromStr;

/// The rest of a line.
struct Cursor<'a> {
    rest: &'a str,
    /// The shortest rest at which something was expected: where a wrong line is wrong.
    furthest: &'a str,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Cursor<'a> {
        Cursor { rest: text, furthest: text }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
        if self.rest.len() < self.furthest.len() {
            self.furthest = self.rest;
        }
    }

    /// The text without regard to blanks around it; a word ends where the text does.
    fn literal(&mut self, text: &str) -> Option<()> {
        self.skip_blanks();
        let text = text.trim();
        let remainder = self.rest.strip_prefix(text)?;
        if text.ends_with(char::is_alphanumeric) && remainder.starts_with(char::is_alphanumeric) {
            return None;
        }
        self.rest = remainder;
        Some(())
    }

    fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let end = self.rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(self.rest.len());
        let (word, remainder) = self.rest.split_at(end);
        self.rest = remainder;
        word
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        let sign = if self.literal("-").is_some() { "-" } else { "" };
        format!("{sign}{}", self.word()).parse().ok()
    }

    /// `r7` or `v7`.
    fn register(&mut self, class: char) -> Option<u32> {
        self.word().strip_prefix(class)?.parse().ok()
    }

    fn choice<T: Copy>(&mut self, words: &[(T, &str)]) -> Option<T> {
        words.iter().find(|w| self.literal(w.1).is_some()).map(|w| w.0)
    }
}

/// An operand as text.
trait Text: Sized {
    fn print(&self, out: &mut String);
    fn parse(text: &mut Cursor) -> Option<Self>;
}

impl Text for Gpr {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "r{}", self.0);
    }
    fn parse(text: &mut Cursor) -> Option<Gpr> {
        text.register('r').map(Gpr)
    }
}

impl Text for Vreg {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "v{}", self.0);
    }
    fn parse(text: &mut Cursor) -> Option<Vreg> {
        text.register('v').map(Vreg)
    }
}

impl Text for OptionalVreg {
    fn print(&self, out: &mut String) {
        if let Some(r) = self {
            out.push_str(", ");
            r.print(out);
        }
    }
    fn parse(text: &mut Cursor) -> Option<OptionalVreg> {
        match text.literal(", ") {
            Some(()) => Vreg::parse(text).map(Some),
            None => Some(None),
        }
    }
}

impl Text for Tile {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "t{}", self.0);
    }
    fn parse(text: &mut Cursor) -> Option<Tile> {
        text.register('t').filter(|&t| (t as usize) < TILES).map(|t| Tile(t as u8))
    }
}

impl Text for Shapes {
    fn print(&self, out: &mut String) {
        let shapes: Vec<String> = self.0.iter().map(|(rows, bytes)| format!("{rows}x{bytes}")).collect();
        out.push_str(&shapes.join(" "));
    }
    fn parse(text: &mut Cursor) -> Option<Shapes> {
        let mut shapes = [(0, 0); TILES];
        for shape in &mut shapes {
            let (rows, bytes) = text.word().split_once('x')?;
            *shape = (rows.parse().ok()?, bytes.parse().ok()?);
            if usize::from(shape.0) > TILE_ROWS || usize::from(shape.1) > TILE_ROW_BYTES {
                return None;
            }
        }
        Some(Shapes(shapes))
    }
}

impl Text for Operand {
    fn print(&self, out: &mut String) {
        match self {
            Operand::Reg(r) => r.print(out),
            Operand::Imm(i) => i.print(out),
        }
    }
    fn parse(text: &mut Cursor) -> Option<Operand> {
        text.skip_blanks();
        match text.rest.starts_with('r') {
            true => Gpr::parse(text).map(Operand::Reg),
            false => text.number().map(Operand::Imm),
        }
    }
}

impl Text for Addr {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "[r{}", self.base.0);
        if let Some((index, scale)) = self.index {
            let _ = write!(out, " + {scale}*r{}", index.0);
        }
        let sign = if self.disp < 0 { '-' } else { '+' };
        if self.disp != 0 {
            let _ = write!(out, " {sign} {}", self.disp.unsigned_abs());
        }
        out.push(']');
    }
    fn parse(text: &mut Cursor) -> Option<Addr> {
        text.literal("[")?;
        let mut addr = Addr { base: Gpr::parse(text)?, index: None, disp: 0 };
        while text.literal("]").is_none() {
            let sign = text.choice(&[(1, "+"), (-1, "-")])?;
            let number: i64 = text.number()?;
            match text.literal("*") {
                Some(()) if sign == 1 && addr.index.is_none() => {
                    addr.index = Some((Gpr::parse(text)?, u8::try_from(number).ok()?));
                }
                Some(()) => return None,
                None => addr.disp = i32::try_from(sign * number).ok()?,
            }
        }
        Some(addr)
    }
}

impl Text for VType {
    fn print(&self, out: &mut String) {
        self.lane.print(out);
        let _ = write!(out, "x{}", self.lanes);
    }
    fn parse(text: &mut Cursor) -> Option<VType> {
        let (lane, lanes) = text.word().split_once('x')?;
        Some(VType { lane: Lane::parse(&mut Cursor::new(lane))?, lanes: lanes.parse().ok()? })
    }
}

impl Text for Option<LaneRange> {
    fn print(&self, out: &mut String) {
        if let Some(LaneRange { first, count }) = self {
            let _ = write!(out, " lanes {first}..{}", first + count);
        }
    }
    fn parse(text: &mut Cursor) -> Option<Option<LaneRange>> {
        if text.literal("lanes").is_none() {
            return Some(None);
        }
        let first: u8 = text.number()?;
        text.literal("..")?;
        let count = text.number::<u8>()?.checked_sub(first)?;
        Some(Some(LaneRange { first, count }))
    }
}

macro_rules! numbers {
    ($($type:ident)*) => {
        $(impl Text for $type {
            fn print(&self, out: &mut String) {
                let _ = write!(out, "{self}");
            }
            fn parse(text: &mut Cursor) -> Option<$type> {
                text.number()
            }
        })*
    };
}
numbers!(i64 u32 u8);

/// Names of the values of a type.
macro_rules! names {
    ($($type:ident { $($variant:ident = $name:literal),* })*) => {
        $(impl Text for $type {
            fn print(&self, out: &mut String) {
                out.push_str(match self { $($type::$variant => $name),* });
            }
            fn parse(text: &mut Cursor) -> Option<$type> {
                match text.word() { $($name => Some($type::$variant),)* _ => None }
            }
        })*
    };
}
names! {
    Lane { F32 = "f32", F64 = "f64", I32 = "i32", I64 = "i64", I16 = "i16", U16 = "u16", I8 = "i8", U8 = "u8" }
    GprOp { Add = "add", Sub = "sub", Mul = "mul", Min = "min", Max = "max", DivFloor = "divfloor", And = "and", Or = "or", Xor = "xor", ShiftLeft = "shl", ShiftRight = "shr" }
    VUnary {
        Abs = "abs", Neg = "neg", Sqrt = "sqrt", Root = "root", Floor = "floor", Ceil = "ceil", Round = "round", Not = "not", CountOnes = "popcount",
        WidenHalf = "widenhalf", NarrowHalf = "narrowhalf", RoundHalf = "roundhalf",
        NarrowBf16 = "narrowbf16", Inverse = "inverse", InverseApproximate = "inverseapproximate",
        RootApproximate = "rootapproximate", InverseRootApproximate = "inverserootapproximate"
    }
    VBinary {
        Add = "add", Sub = "sub", Mul = "mul", MulHigh = "mulhigh", MulPairs = "mulpairs", Div = "div", Scale = "scale", Min = "min", Max = "max",
        And = "and", Or = "or", Xor = "xor", AndNot = "andnot",
        ShiftLeft = "shiftleft", ShiftRight = "shiftright", ShiftRightSigned = "shiftrightsigned"
    }
    ShiftOp { Left = "left", RightLogical = "rightlogical", RightArithmetic = "rightarithmetic" }
    Zip { Low = "ziplow", High = "ziphigh", Even = "even", Odd = "odd" }
}

impl Text for InstructionName {
    fn print(&self, out: &mut String) {
        out.push_str(self.as_str());
    }
    fn parse(text: &mut Cursor) -> Option<InstructionName> {
        text.skip_blanks();
        let end = text.rest.find(char::is_whitespace).unwrap_or(text.rest.len());
        let (name, remainder) = text.rest.split_at(end);
        text.rest = remainder;
        InstructionName::new(name)
    }
}

impl Text for CompareOp {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }
    fn parse(text: &mut Cursor) -> Option<CompareOp> {
        let name = text.word();
        CompareOp::ALL.iter().copied().find(|op| op.name() == name)
    }
}

impl Text for DType {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }
    fn parse(text: &mut Cursor) -> Option<DType> {
        DType::named(text.word())
    }
}

const SIGN: [(bool, &str); 2] = [(true, "-"), (false, "+")];
const AT_LEAST_ONCE: [(bool, &str); 2] = [(true, " (at least once)"), (false, "")];
const BROADCAST: [(bool, &str); 2] = [(true, "broadcast "), (false, "")];
const FIRST: [(bool, &str); 2] = [(true, " (first lane)"), (false, "")];
const STREAMED: [(bool, &str); 2] = [(true, " once"), (false, "")];
const BOUND: [(u8, &str); 2] = [(0, "first"), (1, "last")];

fn print_choice<T: PartialEq>(words: &[(T, &str)], value: &T, out: &mut String) {
    out.push_str(words.iter().find(|w| w.0 == *value).map_or("?", |w| w.1));
}

/// One instruction of the table as text.
macro_rules! print_rows {
    (($inst:expr, $out:expr) $($(#[$doc:meta])* $name:ident $group:ident $text:literal
        $({ $($field:ident : $type:ident $(($access:ident))? $([$spelling:ident])?),* })?)*) => {
        match $inst {
            $(Inst::$name { $($($field),*)? } => {
                let mut literals = $text.split("{}");
                $out.push_str(literals.next().unwrap_or_default());
                $($(
                    print_rows!(@ $($spelling)? $field, $out);
                    $out.push_str(literals.next().unwrap_or_default());
                )*)?
            })*
        }
    };
    (@ hexadecimal $field:ident, $out:expr) => { { let _ = write!($out, "{:x}", $field); } };
    (@ sign $field:ident, $out:expr) => { print_choice(&SIGN, $field, $out) };
    (@ at_least_once $field:ident, $out:expr) => { print_choice(&AT_LEAST_ONCE, $field, $out) };
    (@ broadcast $field:ident, $out:expr) => { print_choice(&BROADCAST, $field, $out) };
    (@ first $field:ident, $out:expr) => { print_choice(&FIRST, $field, $out) };
    (@ streamed $field:ident, $out:expr) => { print_choice(&STREAMED, $field, $out) };
    (@ bound $field:ident, $out:expr) => { print_choice(&BOUND, $field, $out) };
    (@ $field:ident, $out:expr) => { $field.print($out) };
}

/// The parser of each row of the table.
macro_rules! parse_rows {
    (() $($(#[$doc:meta])* $name:ident $group:ident $text:literal
        $({ $($field:ident : $type:ident $(($access:ident))? $([$spelling:ident])?),* })?)*) => {
        [$(|text| {
            let mut literals = $text.split("{}");
            text.literal(literals.next()?)?;
            $($(
                let $field = parse_rows!(@ $($spelling)? text)?;
                text.literal(literals.next()?)?;
            )*)?
            Some(Inst::$name { $($($field),*)? })
        }),*]
    };
    (@ hexadecimal $text:ident) => { u64::from_str_radix($text.word(), 16).ok() };
    (@ sign $text:ident) => { $text.choice(&SIGN) };
    (@ at_least_once $text:ident) => { $text.choice(&AT_LEAST_ONCE) };
    (@ broadcast $text:ident) => { $text.choice(&BROADCAST) };
    (@ first $text:ident) => { $text.choice(&FIRST) };
    (@ streamed $text:ident) => { $text.choice(&STREAMED) };
    (@ bound $text:ident) => { $text.choice(&BOUND) };
    (@ $text:ident) => { Text::parse($text) };
}

const PARSERS: &[fn(&mut Cursor) -> Option<Inst>] = &insts!(parse_rows!());

impl std::fmt::Display for Inst {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let mut out = String::new();
        insts!(print_rows!(self, &mut out));
        f.write_str(&out)
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Function { name, gprs, vregs, scratch_bytes, .. } = self;
        let parallel = self.parallel.map_or("serial".into(), |n| format!("parallel {n}"));
        let wave = self.wave.map_or(String::new(), |n| format!(" in waves of {n}"));
        let registers = format!("{gprs} gpr, {vregs} vector registers");
        writeln!(f, "function {name} ({parallel}{wave}, {registers}, {scratch_bytes} scratch bytes) {{")?;
        let mut depth = 1;
        for inst in &self.insts {
            depth -= usize::from(matches!(inst, Inst::LoopEnd | Inst::IfEnd));
            writeln!(f, "{}{inst}", "  ".repeat(depth))?;
            depth += usize::from(matches!(inst, Inst::LoopStart { .. } | Inst::IfStart { .. }));
        }
        f.write_str("}\n")
    }
}

/// Reads functions, one after another.
///
/// # Errors
/// [`Error::Invalid`] with the number of the line that is wrong.
pub fn parse(text: &str) -> Result<Vec<Function>> {
    let mut functions: Vec<Function> = vec![];
    // The ends of the open bodies: the function's own is `None`.
    let mut open: Vec<Option<Inst>> = vec![];
    for (n, line) in text.lines().enumerate() {
        let fail = |text: &str| Err(Error::Invalid(format!("VCode text, line {}: `{text}` is not expected", n + 1)));
        match (line.trim(), functions.last_mut()) {
            ("", _) => {}
            ("}", Some(function)) if !open.is_empty() => function.insts.extend(open.pop().flatten()),
            (line, Some(function)) if !open.is_empty() => {
                let inst = match instruction(line) {
                    Ok(inst) => inst,
                    Err(text) => return fail(text),
                };
                match inst {
                    Inst::LoopStart { .. } => open.push(Some(Inst::LoopEnd)),
                    Inst::IfStart { .. } => open.push(Some(Inst::IfEnd)),
                    _ => {}
                }
                function.insts.push(inst);
            }
            (line, _) => match header(line) {
                Some(function) => {
                    functions.push(function);
                    open.push(None);
                }
                None => return fail(line),
            },
        }
    }
    match open.is_empty() {
        true => Ok(functions),
        false => Err(Error::Invalid("VCode text: a body is not closed with `}`".into())),
    }
}

/// The instruction, or where the line is wrong.
fn instruction(line: &str) -> std::result::Result<Inst, &str> {
    let mut text = Cursor::new(line);
    for parser in PARSERS {
        text.rest = line;
        if let Some(inst) = parser(&mut text) {
            text.skip_blanks();
            if text.rest.is_empty() {
                return Ok(inst);
            }
        }
    }
    Err(if text.furthest.is_empty() { line } else { text.furthest })
}

fn header(line: &str) -> Option<Function> {
    let (name, arguments) = line.strip_prefix("function ")?.rsplit_once(" (")?;
    let mut text = Cursor::new(arguments);
    let (mut parallel, mut wave) = (None, None);
    if text.literal("serial").is_none() {
        text.literal("parallel")?;
        parallel = Some(text.number()?);
        if text.literal("in waves of").is_some() {
            wave = Some(text.number()?);
        }
    }
    text.literal(",")?;
    let gprs = text.number()?;
    text.literal("gpr,")?;
    let vregs = text.number()?;
    text.literal("vector registers,")?;
    let scratch_bytes = text.number()?;
    text.literal("scratch bytes) {")?;
    Some(Function {
        name: name.into(),
        insts: vec![],
        gprs,
        vregs,
        scratch_bytes,
        parallel,
        wave,
        instructions: vec![],
    })
}
