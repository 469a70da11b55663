//! Schedules: a primitive begins with its keyword.

use super::{Parser, defined_twice};
use crate::expr::syntax::Name;
use crate::language::lexer::Token;
use crate::language::source::{Checked, Problem};
use crate::poly::transform::primitive::{KEYWORDS, Loop, Loops, Placed, Primitive, Schedule};
use crate::runtime::error::unknown;

impl Parser {
    /// After `schedule`.
    pub(super) fn schedule(&mut self) -> Checked<Schedule> {
        // Layouts of packed copies are written in terms of plain names.
        self.style = super::Style::Round;
        let name = self.name("the name of the schedule")?;
        self.expect_word("for")?;
        let program = self.name("the program that it is for")?;
        self.expect("{")?;
        let mut primitives = vec![];
        while !self.accept("}") {
            let start = self.span();
            let primitive = self.primitive()?;
            primitives.push(Placed { primitive, span: start.to(self.last()) });
            self.accept(";");
        }
        Ok(Schedule { name, program, primitives })
    }

    fn primitive(&mut self) -> Checked<Primitive> {
        let keyword = match self.peek() {
            Token::Word(word) => KEYWORDS.into_iter().find(|k| k == word),
            _ => None,
        };
        let Some(keyword) = keyword else {
            return match self.peek() {
                Token::Word(word) => Err(Problem::invalid(self.span(), unknown("primitive", word, &KEYWORDS))),
                _ => self.fail(&format!("a primitive ({}) or `}}`", KEYWORDS.join(", "))),
            };
        };
        self.step();
        Ok(match keyword {
            "split" => {
                let which = self.one_loop()?;
                self.expect_word("by")?;
                let by = self.count()?;
                self.expect("->")?;
                Primitive::Split { which, by, into: self.exactly()? }
            }
            "fuse" => {
                let which = self.loops()?;
                self.expect("->")?;
                Primitive::Fuse { which, into: self.name("the name of the new loop")? }
            }
            "reorder" => Primitive::Reorder { which: self.loops()? },
            "tile" => self.tile()?,
            "skew" => {
                let which = self.one_loop()?;
                self.expect_word("by")?;
                let sign = if self.accept("-") { -1 } else { 1 };
                let factor = match *self.peek() {
                    Token::Integer(v) => {
                        self.step();
                        self.expect("*")?;
                        v
                    }
                    _ => 1,
                };
                Primitive::Skew { which, factor: sign * factor, by: self.name("an outer loop")? }
            }
            "shift" => {
                let which = self.one_loop()?;
                self.expect_word("by")?;
                Primitive::Shift { which, by: self.integer("a number of iterations")? }
            }
            "reverse" => Primitive::Reverse { which: self.one_loop()? },
            "merge" | "distribute" => {
                let statements = self.statements()?;
                self.expect_word("at")?;
                let at = self.name("a loop")?;
                if keyword == "merge" {
                    Primitive::Merge { statements, at }
                } else {
                    Primitive::Distribute { statements, at }
                }
            }
            "sequence" => Primitive::Sequence { statements: self.statements()? },
            "wavefront" => Primitive::Wavefront { which: self.one_loop()? },
            "serial" => Primitive::Serial,
            "normalize" => Primitive::Normalize,
            "divide" => Primitive::Divide,
            "expand" => Primitive::Expand,
            "unroll" => Primitive::Unroll { which: self.one_loop()?, by: self.optional_count()? },
            "unroll_and_jam" => {
                let which = self.one_loop()?;
                self.expect_word("by")?;
                Primitive::UnrollAndJam { which, by: self.count()? }
            }
            "vectorize" => Primitive::Vectorize { which: self.one_loop()?, by: self.optional_count()? },
            "parallel" => Primitive::Parallel { which: self.one_loop()? },
            "compute_at" => {
                let (tensor, at) = self.tensor_at()?;
                Primitive::ComputeAt { tensor, at }
            }
            "compute_inline" => Primitive::ComputeInline { tensor: self.name("a tensor")? },
            "store_at" => {
                let (tensor, at) = self.tensor_at()?;
                Primitive::StoreAt { tensor, at }
            }
            "cache_read" => {
                let tensor = self.name("a tensor")?;
                let at = if self.accept_word("at") { Some(self.one_loop()?) } else { None };
                Primitive::CacheRead { tensor, at }
            }
            "cache_write" => {
                let (tensor, at) = self.tensor_at()?;
                Primitive::CacheWrite { tensor, at }
            }
            "pack" => {
                let tensor = self.name("a tensor")?;
                self.expect_word("as")?;
                self.expect("(")?;
                Primitive::Pack { tensor, layout: self.list(")", |p| p.expression())? }
            }
            "rfactor" => {
                let tensor = self.name("a tensor")?;
                self.expect_word("over")?;
                let over = self.one_loop()?;
                self.expect("->")?;
                Primitive::Rfactor { tensor, over, into: self.name("the name of the partial results")? }
            }
            "tensorize" => {
                let which = self.loops()?;
                let with = if self.accept_word("with") { Some(self.name("a tensor instruction")?) } else { None };
                Primitive::Tensorize { which, with }
            }
            "peel" => Primitive::Peel { which: self.one_loop()? },
            _ => {
                let which = self.one_loop()?;
                self.expect_word("to")?;
                Primitive::Pad { which, to: self.count()? }
            }
        })
    }

    fn statements(&mut self) -> Checked<Vec<Name>> {
        let mut out = vec![self.name("a statement")?];
        while self.accept(",") {
            out.push(self.name("a statement")?);
        }
        Ok(out)
    }

    fn tile(&mut self) -> Checked<Primitive> {
        let which = self.loops()?;
        self.expect_word("by")?;
        self.expect("(")?;
        let by = self.list(")", |p| p.count())?;
        let end = self.last();
        self.expect("->")?;
        let into = self.names("a new loop")?;
        let n = which.names.len();
        if by.len() != n {
            return Err(Problem::invalid(end, format!("{n} loops, but {} tile sizes", by.len())));
        }
        if into.len() != 2 * n {
            let message = format!("{n} tiled loops become {} loops, not {}", 2 * n, into.len());
            return Err(Problem::invalid(self.last(), message));
        }
        Ok(Primitive::Tile { which, by, into })
    }

    fn tensor_at(&mut self) -> Checked<(Name, Loop)> {
        let tensor = self.name("a tensor")?;
        self.expect_word("at")?;
        Ok((tensor, self.one_loop()?))
    }

    fn count(&mut self) -> Checked<i64> {
        match (self.span(), self.integer("a positive number")?) {
            (_, n) if n > 0 => Ok(n),
            (span, n) => Err(Problem::invalid(span, format!("expected a positive number, found {n}"))),
        }
    }

    fn optional_count(&mut self) -> Checked<Option<i64>> {
        if self.accept_word("by") { self.count().map(Some) } else { Ok(None) }
    }

    fn names(&mut self, what: &str) -> Checked<Vec<Name>> {
        let mut out: Vec<Name> = vec![self.name(what)?];
        while self.accept(",") {
            let name = self.name(what)?;
            if out.contains(&name) {
                return Err(defined_twice("loop", &name));
            }
            out.push(name);
        }
        Ok(out)
    }

    fn exactly(&mut self) -> Checked<[Name; 2]> {
        let names = self.names("a new loop")?;
        let n = names.len();
        let wrong = |_| Problem::invalid(self.last(), format!("a split loop becomes 2 loops, not {n}"));
        names.try_into().map_err(wrong)
    }

    /// `m, n` or `C(m, n)`.
    fn loops(&mut self) -> Checked<Loops> {
        if !self.is_after("(") {
            return Ok(Loops { statement: None, names: self.names("a loop")? });
        }
        let statement = Some(self.name("a statement")?);
        self.step();
        let names = self.list(")", |p| p.name("a loop"))?;
        if names.is_empty() {
            return Err(Problem::invalid(self.last(), "expected a loop, found none"));
        }
        Ok(Loops { statement, names })
    }

    /// `m` or `C(m)`.
    fn one_loop(&mut self) -> Checked<Loop> {
        let first = self.name("a loop")?;
        if !self.accept("(") {
            return Ok(Loop { statement: None, name: first });
        }
        let name = self.name("a loop")?;
        self.expect(")")?;
        Ok(Loop { statement: Some(first), name })
    }
}
