//! Schedules: a primitive is a keyword and its arguments, as in the table of primitives.

use super::{Parser, defined_twice};
use crate::expr::syntax::{Expr, Name};
use crate::language::lexer::Token;
use crate::language::source::{Checked, Diagnostic};
use crate::poly::transform::primitive::{
    KEYWORDS, Loop, Loops, Placed, Primitive, Read, Schedule, keyword, primitives,
};
use crate::runtime::error::unknown;

/// Reads an argument of a kind; in brackets the argument that has as many elements.
macro_rules! read {
    ($parser:tt Loop) => {
        $parser.one_loop()
    };
    ($parser:tt Loops) => {
        $parser.loops()
    };
    ($parser:tt Read) => {
        $parser.read()
    };
    ($parser:tt LoopName) => {
        $parser.name("a loop")
    };
    ($parser:tt OuterLoop) => {
        $parser.name("an outer loop")
    };
    ($parser:tt NewLoop) => {
        $parser.name("the name of the new loop")
    };
    ($parser:tt NewPair) => {
        $parser.new_pair()
    };
    ($parser:tt NewTiles[$tiled:ident]) => {
        $parser.new_tiles(&$tiled)
    };
    ($parser:tt Statements) => {
        $parser.statements()
    };
    ($parser:tt Tensor) => {
        $parser.name("a tensor")
    };
    ($parser:tt NewTensor) => {
        $parser.name("the name of the partial results")
    };
    ($parser:tt Instruction) => {
        $parser.name("a tensor instruction")
    };
    ($parser:tt Count) => {
        $parser.count()
    };
    ($parser:tt Iterations) => {
        $parser.integer("a number of iterations")
    };
    ($parser:tt Factor) => {
        $parser.factor()
    };
    ($parser:tt TileSizes[$tiled:ident]) => {
        $parser.tile_sizes(&$tiled)
    };
    ($parser:tt Layout) => {
        $parser.layout()
    };
}

/// Reads the arguments of each row of the table.
macro_rules! rows {
    ($(
        #[$doc:meta]
        $variant:ident: $keyword:ident $(| $alias:ident)* $((
            $($($word:literal)? $field:ident: $kind:ident $(($of:ident))?),*
        ) $(or $longer:ident ($more_word:literal $more:ident: $more_kind:ident))?)? => $takes:ident $function:path;
    )*) => {
        fn arguments(&mut self, keyword: &str) -> Checked<Primitive> {
            $(if keyword == stringify!($keyword) {
                $(
                    $($(self.fixed($word)?;)? let $field = read!(self $kind$([$of])?)?;)*
                    $(let $more = if self.accept_word($more_word) { Some(read!(self $more_kind)?) } else { None };)?
                )?
                return Ok(Primitive::$variant $({ $($field,)* $($more,)? })?);
            })*
            self.fail("a primitive")
        }
    };
}

impl Parser {
    primitives!(rows);

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
        let Token::Word(word) = self.peek() else {
            return self.fail(&format!("a primitive ({}) or `}}`", KEYWORDS.join(", ")));
        };
        let Some(keyword) = keyword(word) else {
            return Err(Diagnostic::invalid(self.span(), unknown("primitive", word, &KEYWORDS)));
        };
        self.step();
        self.arguments(keyword)
    }

    /// The word or the sign before an argument.
    fn fixed(&mut self, word: &str) -> Checked<()> {
        if word.starts_with(char::is_alphabetic) { self.expect_word(word) } else { self.expect(word) }
    }

    fn statements(&mut self) -> Checked<Vec<Name>> {
        let mut out = vec![self.name("a statement")?];
        while self.accept(",") {
            out.push(self.name("a statement")?);
        }
        Ok(out)
    }

    /// A factor and its `*`; 1 where there is no number.
    fn factor(&mut self) -> Checked<i64> {
        let sign = if self.accept("-") { -1 } else { 1 };
        let Token::Integer(factor) = *self.peek() else { return Ok(sign) };
        self.step();
        self.expect("*")?;
        Ok(sign * factor)
    }

    fn tile_sizes(&mut self, tiled: &Loops) -> Checked<Vec<i64>> {
        self.expect("(")?;
        let sizes = self.list(")", |p| p.count())?;
        let n = tiled.names.len();
        match sizes.len() {
            sizes if sizes != n => Err(Diagnostic::invalid(self.last(), format!("{n} loops, but {sizes} tile sizes"))),
            _ => Ok(sizes),
        }
    }

    fn new_tiles(&mut self, tiled: &Loops) -> Checked<Vec<Name>> {
        let names = self.names("a new loop")?;
        let n = tiled.names.len();
        if names.len() != 2 * n {
            let message = format!("{n} tiled loops become {} loops, not {}", 2 * n, names.len());
            return Err(Diagnostic::invalid(self.last(), message));
        }
        Ok(names)
    }

    fn layout(&mut self) -> Checked<Vec<Expr>> {
        self.expect("(")?;
        self.list(")", |p| p.expression())
    }

    fn count(&mut self) -> Checked<i64> {
        match (self.span(), self.integer("a positive number")?) {
            (_, n) if n > 0 => Ok(n),
            (span, n) => Err(Diagnostic::invalid(span, format!("expected a positive number, found {n}"))),
        }
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

    fn new_pair(&mut self) -> Checked<[Name; 2]> {
        let names = self.names("a new loop")?;
        let n = names.len();
        let wrong = |_| Diagnostic::invalid(self.last(), format!("a split loop becomes 2 loops, not {n}"));
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
            return Err(Diagnostic::invalid(self.last(), "expected a loop, found none"));
        }
        Ok(Loops { statement, names })
    }

    /// `B` or `S(B)`.
    fn read(&mut self) -> Checked<Read> {
        let first = self.name("a tensor")?;
        if !self.accept("(") {
            return Ok(Read { statement: None, tensor: first });
        }
        let tensor = self.name("a tensor")?;
        self.expect(")")?;
        Ok(Read { statement: Some(first), tensor })
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
