//! The text language of `.tile` files: tensor expressions, loop programs, schedules.
//!
//! In: text, or a tree that was built in Rust ([`builder`]), and a value for each size. Out: a `poly::scop::Program` for a
//! `def`, a `Scop` for a `loop`, and the schedules as trees of primitives. Invariants: `parse(print(x)) == x`; what is
//! wrong with a text is one message with file, line, column and caret; no access is out of bounds in what comes out.
//!
//! ```text
//! file      = { program | schedule }
//! program   = "def" NAME "(" [ input { "," input } ] ")" "->" "(" [ output { "," output } ] ")"
//!                 "{" { sizes } [ init ] { equation } "}"
//!           | "loop" NAME "(" [ size { "," size } ] ")" "{" { sizes } { arrays } [ init ] { statement } "}"
//! input     = DTYPE [ "(" expr { "," expr } ")" ] NAME
//! output    = NAME | input
//! size      = NAME [ "=" INTEGER ]
//! sizes     = "sizes" NAME "{" NAME "=" INTEGER { "," NAME "=" INTEGER } "}"
//! arrays    = [ "in" | "out" | "inout" | "temp" ] DTYPE NAME { "[" expr "]" } { "," NAME { "[" expr "]" } } [ ";" ]
//! init      = "init" "{" { equation } "}"
//! equation  = element assign expr [ "where" condition { "," condition } ] [ ";" ]
//! condition = NAME "in" expr ".." expr | expr
//! statement = "for" NAME "in" expr ".." expr [ "step" INTEGER ] block
//!           | "if" expr block [ "else" block ]
//!           | [ NAME ":" ] element update expr [ ";" ]
//! block     = statement | "{" { statement } "}"
//! assign    = "=" | "+=" | "*=" | "min=" | "max=" | "+=!" | "*=!" | "min=!" | "max=!"
//! update    = "=" | "+=" | "-=" | "*=" | "/=" | "min=" | "max="
//! element   = NAME "(" [ expr { "," expr } ] ")"          in a def
//!           | NAME { "[" expr "]" }                       in a loop
//! expr      = operands joined by  ||  &&  == != <= >= < >  + -  * / %   (loosest first; comparisons do not chain)
//! operand   = [ "-" | "!" ] operand | INTEGER | REAL | "true" | "false" | "inf" | "nan" | NAME | element
//!           | DTYPE "(" expr ")" | FUNCTION "(" expr { "," expr } ")" | "(" expr ")"
//! schedule  = "schedule" NAME "for" NAME "{" { primitive [ ";" ] } "}"        primitives: see `primitive.rs`
//! ```
//! A comment goes from `#` to the end of its line. DTYPE is one of `f64 f32 f16 bf16 i64 i32 i8 u8 bool`, FUNCTION one of
//! `exp log sqrt tanh erf abs floor ceil round min max pow select`.
//!
//! What it means:
//! - **Types.** Operands have one type; `f32(x)` converts. Numbers and sizes take the type that is asked of them. An index
//!   is an i64. Integers divide towards zero and `%` has the sign of the divisor: -7 / 2 is -3, -7 % 2 is 1.
//! - **def.** The indices of an equation that stand on the left name the element, the others are reduced. Their ranges
//!   follow from the shapes: the largest from 0 for which every read is inside; `where` says them where they do not
//!   follow, and then a read outside of its tensor gives zero. An index on the left without a range of its own stays
//!   inside also with those that have one. `+=!` starts from the neutral element, `+=` from the value that an earlier
//!   equation gave. A subscript may be an element of an integer tensor.
//! - **loop.** Statements run in their order. `for i in a..b` runs to b - 1; a negative step walks the same interval down
//!   from b - 1. Bounds and conditions are affine in the indices (`min` in an upper and `max` in a lower bound as well);
//!   what depends on data is chosen by `select`. Updates such as `+=` of one element may be reordered.
//! - **Sizes** are known when a program is compiled: from the command line, else from the chosen `sizes`, else from the
//!   parameter's own value.
//! - **init** gives the values of arrays that are not given, as equations whose ranges follow from the arrays' shapes.

pub mod builder;
pub mod c;
pub mod condition;
pub mod def;
pub mod lexer;
pub mod loops;
pub mod parser;
pub mod primitive;
pub mod print;
pub mod range;
pub mod scope;
pub mod size;
pub mod source;
pub mod syntax;

pub use parser::parse;

use crate::poly::scop::{self, Role, Scop};
use crate::poly::subscript::{self, IndexRange};
use crate::poly::transform::{self, Original, Transformed};
use crate::poly::{Error, Isa, Result, build, original};
use crate::runtime::error::unknown;
use print::Style;
use source::Problem;
use std::collections::BTreeMap;
use std::path::Path;
use syntax::{Access, Array, Body, File, Program};

/// What a program computes for known sizes.
#[derive(Clone, Debug)]
pub struct Meaning {
    pub name: String,
    pub sizes: BTreeMap<String, i64>,
    pub computation: Computation,
    /// The computation in an order that was written by hand and is proven; `None` where the ILP is to find one.
    pub schedule: Option<Transformed>,
    /// The initial values of arrays that are not given: its outputs have their names. `None` when none are declared.
    pub initial: Option<scop::Program>,
}

#[derive(Clone, Debug)]
pub enum Computation {
    Def(scop::Program),
    Loop(Scop),
}

impl Meaning {
    /// The arrays that the program knows: inputs, outputs, temporaries.
    pub fn arrays(&self) -> &[scop::TensorDecl] {
        match &self.computation {
            Computation::Def(program) => &program.tensors,
            Computation::Loop(scop) => &scop.tensors,
        }
    }

    /// What the ILP begins with.
    pub fn normal(&self) -> Result<Scop> {
        match &self.computation {
            Computation::Def(program) => build::build(&self.name, program),
            Computation::Loop(scop) => Ok(scop.clone()),
        }
    }
}

impl Computation {
    /// What subscripts from data must satisfy.
    pub fn index_ranges(&self) -> Result<Vec<IndexRange>> {
        match self {
            Computation::Def(program) => subscript::index_ranges(program),
            Computation::Loop(scop) => subscript::index_ranges(&scop.as_definitions()),
        }
    }
}

/// Reads and parses a file.
pub fn load(path: &Path) -> Result<File> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot read {}: {e}", path.display()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::Invalid(format!("{} is no regular file", path.display())));
    }
    let length = metadata.len();
    if length > LONGEST {
        return Err(Error::Limit(format!("{} has {length} bytes, which is no program text", path.display())));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::Invalid(format!("{} is no text: it is not UTF-8", path.display())))?;
    let file = parse(&path.display().to_string(), &text)?;
    file.verify()?;
    Ok(file)
}

/// Bytes of a file.
const LONGEST: u64 = 1 << 20;

impl Program {
    /// The arrays that have values before the program runs.
    pub fn inputs(&self) -> Vec<&Array> {
        match &self.body {
            Body::Def { inputs, .. } => inputs.iter().collect(),
            Body::Loop { arrays, .. } => {
                let given = |a: &&Array| !matches!(a.access, Some(Access::Out | Access::Temporary));
                arrays.iter().filter(given).collect()
            }
        }
    }

    /// How this program writes expressions.
    pub fn style(&self) -> Style {
        match self.body {
            Body::Def { .. } => Style::Round,
            Body::Loop { .. } => Style::Square,
        }
    }
}

impl File {
    /// Refuses schedules for programs that the file does not have.
    pub fn verify(&self) -> Result<()> {
        let has = |s: &&primitive::Schedule| self.programs.iter().any(|p| p.name == s.program);
        match self.schedules.iter().find(|s| !has(s)) {
            Some(s) => {
                let names: Vec<&str> = self.programs.iter().map(|p| &*p.name).collect();
                let message = format!("`{}`: {}", s.name, unknown("program", &s.program, &names));
                Err(self.source.error(Problem::invalid(s.program.span, message)))
            }
            None => Ok(()),
        }
    }

    /// The program called `name`, or the only or first one.
    pub fn program(&self, name: Option<&str>) -> Result<&Program> {
        let found = match name {
            None => self.programs.first(),
            Some(name) => self.programs.iter().find(|p| &*p.name == name),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.programs.iter().map(|p| &*p.name).collect();
            Error::Invalid(match (name, &names[..]) {
                (_, []) => format!("{} has no program", self.source.name),
                (name, _) => format!("{}: {}", self.source.name, unknown("program", name.unwrap_or(""), &names)),
            })
        })
    }

    /// What `program` of this file computes, with sizes as they are given, or of the set called `chosen`.
    pub fn lower(&self, program: &Program, given: &BTreeMap<String, i64>, chosen: Option<&str>) -> Result<Meaning> {
        let lower = || {
            let sizes = program.bind(given, chosen)?;
            let computation = match &program.body {
                Body::Def { .. } => Computation::Def(def::lower(program, &sizes)?),
                Body::Loop { .. } => Computation::Loop(loops::lower(program, &sizes)?),
            };
            let mut meaning =
                Meaning { name: program.name.text.clone(), sizes, computation, schedule: None, initial: None };
            if !program.initial.is_empty() {
                for e in &program.initial {
                    if let Some(a) = meaning.arrays().iter().find(|a| a.name == *e.target)
                        && !a.role.is_given()
                    {
                        let message = format!("`{}` has no initial values: the program computes it", e.target);
                        return Err(Problem::invalid(e.target.span, message));
                    }
                }
                let given = |a: &&scop::TensorDecl| a.role.is_given() && a.role != Role::Constant;
                let arrays: Vec<scop::TensorDecl> = meaning.arrays().iter().filter(given).cloned().collect();
                meaning.initial = Some(def::lower_initial(&program.initial, &arrays, &meaning.sizes, program.style())?);
            }
            Ok(meaning)
        };
        lower().map_err(|problem| self.source.error(problem))
    }

    /// The schedules for `program`.
    pub fn schedules_of<'f>(&'f self, program: &Program) -> Vec<&'f primitive::Schedule> {
        self.schedules.iter().filter(|s| s.program == program.name).collect()
    }

    /// What `meaning` computes in the order that `schedule` says, with tensor instructions of `isa`. `Schedule` when one of
    /// its primitives is refused.
    pub fn schedule(&self, meaning: &Meaning, schedule: &primitive::Schedule, isa: Isa) -> Result<Meaning> {
        let normal = || meaning.normal();
        let original = Original { written: self.written(meaning)?, normal: &normal, isa };
        let transformed = transform::apply_all(&original, &schedule.primitives).map_err(|(at, error)| {
            let span = schedule.primitives.get(at).map_or(schedule.name.span, |p| p.span);
            self.source.error(Problem { span, error })
        })?;
        Ok(Meaning { schedule: Some(transformed), ..meaning.clone() })
    }

    /// What `meaning` computes in its own order.
    pub fn untransformed(&self, meaning: &Meaning) -> Result<Meaning> {
        Ok(Meaning { schedule: Some(Transformed::new(self.written(meaning)?)), ..meaning.clone() })
    }

    /// The loops of `meaning` as they are written: what schedules by hand begin with.
    pub fn written(&self, meaning: &Meaning) -> Result<Scop> {
        match &meaning.computation {
            Computation::Loop(_) => loops::lower_over_indices(self.program(Some(&meaning.name))?, &meaning.sizes)
                .map_err(|problem| self.source.error(problem)),
            Computation::Def(program) => original::in_loops(&meaning.name, program),
        }
    }
}
