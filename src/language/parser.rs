//! Tokens to the syntax tree of a file: programs and statements. Expressions are in [`expression`], schedules in
//! [`schedule`].

mod expression;
mod schedule;

use super::hints::{self, foreign_type, meant_type};
use super::lexer::{Token, reserved, tokens};
use super::source::{Checked, Diagnostic, Source};
use super::syntax::*;
use crate::expr::syntax::Span;
use crate::expr::syntax::Style;
use crate::expr::syntax::{DTYPES, Expr, Name};
use crate::runtime::error::{nearest, unknown};
use crate::runtime::{DType, Result};

/// Statements and expressions may be nested this deep.
const DEPTH: usize = 64;
/// An expression may have this many operations.
const OPERATIONS: usize = 1000;

/// Parses a file; messages contain `name`. A byte order mark at the beginning is skipped.
pub fn parse(name: &str, text: &str) -> Result<File> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let source = Source { name: name.into(), text: text.into() };
    let parsed = tokens(text).and_then(|tokens| Parser::new(tokens).file());
    match parsed {
        Ok((programs, schedules)) => Ok(File { source, programs, schedules }),
        Err(problem) => Err(source.error(problem)),
    }
}

/// Words that begin a statement of a loop program.
const STATEMENTS: [&str; 2] = ["for", "if"];

/// The rest of a text.
pub(in crate::language) struct Parser {
    tokens: Vec<(Token, Span)>,
    position: usize,
    style: Style,
    depth: usize,
    operations: usize,
}

impl Parser {
    pub(in crate::language) fn new(tokens: Vec<(Token, Span)>) -> Parser {
        Parser { tokens, position: 0, style: Style::Round, depth: 0, operations: 0 }
    }

    pub(in crate::language) fn peek(&self) -> &Token {
        &self.tokens[self.position].0
    }

    pub(in crate::language) fn span(&self) -> Span {
        self.tokens[self.position].1
    }

    /// The place of the token before.
    pub(in crate::language) fn last(&self) -> Span {
        self.tokens[self.position.saturating_sub(1)].1
    }

    pub(in crate::language) fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(s) if *s == symbol)
    }

    fn is_after(&self, symbol: &str) -> bool {
        matches!(self.tokens.get(self.position + 1), Some((Token::Symbol(s), _)) if *s == symbol)
    }

    /// The token after this one.
    pub(in crate::language) fn following(&self) -> &Token {
        &self.tokens[(self.position + 1).min(self.tokens.len() - 1)].0
    }

    /// Returns true if this token touches the next one.
    fn is_joined(&self) -> bool {
        self.tokens.get(self.position + 1).is_some_and(|(_, next)| next.start == self.span().end)
    }

    pub(in crate::language) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    pub(in crate::language) fn step(&mut self) {
        self.position = (self.position + 1).min(self.tokens.len() - 1);
    }

    pub(in crate::language) fn accept(&mut self, symbol: &str) -> bool {
        let yes = self.is(symbol);
        if yes {
            self.step();
        }
        yes
    }

    pub(in crate::language) fn accept_word(&mut self, word: &str) -> bool {
        let yes = self.is_word(word);
        if yes {
            self.step();
        }
        yes
    }

    pub(in crate::language) fn expect(&mut self, symbol: &str) -> Checked<()> {
        if self.accept(symbol) { Ok(()) } else { self.fail(&format!("`{symbol}`")) }
    }

    pub(in crate::language) fn expect_word(&mut self, word: &str) -> Checked<()> {
        if self.accept_word(word) { Ok(()) } else { self.fail(&format!("`{word}`")) }
    }

    pub(in crate::language) fn fail<T>(&self, wanted: &str) -> Checked<T> {
        Err(Diagnostic::invalid(self.span(), format!("expected {wanted}, found {}", self.found())))
    }

    /// The next token, as messages show it.
    fn found(&self) -> String {
        match self.peek() {
            Token::Word(w) => match reserved(w) {
                Some(kind) => format!("`{w}`, which is {kind}"),
                None => format!("`{w}`"),
            },
            Token::Unsigned(v) => format!("{v}"),
            Token::Integer(v) => format!("{v}"),
            Token::Real(v) => format!("{v:?}"),
            Token::Symbol(s) => format!("`{s}`"),
            Token::Quoted(text) => format!("`\"{text}\"`"),
            Token::End => "the end of the text".into(),
        }
    }

    pub(in crate::language) fn name(&mut self, what: &str) -> Checked<Name> {
        match self.peek() {
            Token::Word(w) if reserved(w).is_none() => {
                let name = Name { text: w.clone(), span: self.span() };
                self.step();
                Ok(name)
            }
            _ => self.fail(what),
        }
    }

    pub(in crate::language) fn integer(&mut self, what: &str) -> Checked<i64> {
        let sign = if self.accept("-") { -1 } else { 1 };
        match *self.peek() {
            Token::Integer(v) => {
                self.step();
                Ok(sign * v)
            }
            _ => self.fail(what),
        }
    }

    pub(in crate::language) fn dtype(&mut self) -> Option<DType> {
        let dtype = DTYPES.into_iter().find(|d| self.is_word(d.name()));
        if dtype.is_some() {
            self.step();
        }
        dtype
    }

    /// As [`Parser::dtype`]; where no type stands here, the message asks for what is `wanted` and names the type that was
    /// meant.
    pub(in crate::language) fn element_type(&mut self, wanted: &str) -> Checked<DType> {
        match (self.dtype(), self.peek()) {
            (Some(dtype), _) => Ok(dtype),
            (None, Token::Word(word)) => {
                let message = format!("expected {wanted}, found {}{}", self.found(), meant_type(word));
                Err(Diagnostic::invalid(self.span(), message))
            }
            (None, _) => self.fail(wanted),
        }
    }

    /// `item, item, …` up to `close`, which is taken.
    pub(in crate::language) fn list<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Checked<T>,
    ) -> Checked<Vec<T>> {
        let mut out = vec![];
        while !self.accept(close) {
            if !out.is_empty() && !self.accept(",") {
                return self.fail(&format!("`,` or `{close}`"));
            }
            out.push(item(self)?);
        }
        Ok(out)
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Diagnostic::invalid(self.span(), format!("this is nested more than {DEPTH} deep")));
        }
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn file(&mut self) -> Checked<(Vec<Program>, Vec<crate::poly::transform::primitive::Schedule>)> {
        let (mut programs, mut schedules): (Vec<Program>, Vec<crate::poly::transform::primitive::Schedule>) =
            (vec![], vec![]);
        while *self.peek() != Token::End {
            let def = self.is_word("def");
            if def || self.is_word("loop") {
                self.step();
                let program = if def { self.def()? } else { self.loop_program()? };
                if programs.iter().any(|p| p.name == program.name) {
                    return Err(defined_twice("program", &program.name));
                }
                programs.push(program);
            } else if self.accept_word("schedule") {
                let schedule = self.schedule()?;
                if schedules.iter().any(|s| s.name == schedule.name && s.program == schedule.program) {
                    return Err(defined_twice("schedule", &schedule.name));
                }
                schedules.push(schedule);
            } else if self.is_word("instruction") {
                let message = "a program cannot bring instructions along: put them in a file of their own, and pass it with \
                               `--instructions`";
                return Err(Diagnostic::invalid(self.span(), message));
            } else {
                return self.fail("`def`, `loop` or `schedule`");
            }
        }
        Ok((programs, schedules))
    }

    /// After `def`.
    fn def(&mut self) -> Checked<Program> {
        self.style = Style::Round;
        let name = self.name("the name of the definition")?;
        self.expect("(")?;
        let inputs = self.list(")", |p| {
            let dtype = p.element_type("an element type, as in `f32(M,N) A`")?;
            let shape = p.round_shape()?;
            Ok(Array { access: None, dtype, name: p.name("the name of the input")?, shape })
        })?;
        self.expect("->")?;
        self.expect("(")?;
        let outputs = self.list(")", |p| {
            let declared = match p.dtype() {
                Some(dtype) => Some((dtype, p.round_shape()?)),
                // Only a type has a shape behind it.
                None if p.is_after("(") => Some((p.element_type("an element type, as in `f32(M,N) A`")?, vec![])),
                None => None,
            };
            Ok(Output { name: p.name("the name of an output")?, declared })
        })?;
        self.expect("{")?;
        let sizes = self.sizes()?;
        let initial = self.initial()?;
        let mut equations = vec![];
        while !self.accept("}") {
            if !matches!(self.peek(), Token::Word(_)) {
                return self.fail("an equation or `}`");
            }
            equations.push(self.equation()?);
        }
        Ok(Program { name, sizes, initial, body: Body::Def { inputs, outputs, equations } })
    }

    /// `(M, N)`, or nothing for a scalar.
    fn round_shape(&mut self) -> Checked<Vec<Expr>> {
        if self.accept("(") { self.list(")", |p| p.expression()) } else { Ok(vec![]) }
    }

    /// After `loop`.
    fn loop_program(&mut self) -> Checked<Program> {
        self.style = Style::Square;
        let name = self.name("the name of the loop program")?;
        self.expect("(")?;
        let parameters = self.list(")", |p| {
            let name = p.name("the name of a size")?;
            let value = if p.accept("=") { Some(p.integer("the value of the size")?) } else { None };
            Ok(Parameter { name, value })
        })?;
        self.expect("{")?;
        let sizes = self.sizes()?;
        let mut arrays = vec![];
        while let Some(declared) = self.arrays()? {
            arrays.extend(declared);
        }
        let initial = self.initial()?;
        let mut statements = vec![];
        while !self.accept("}") {
            statements.push(self.statement()?);
        }
        Ok(Program { name, sizes, initial, body: Body::Loop { parameters, arrays, statements } })
    }

    /// `sizes NAME { N = 1, M = 2 }`, any number of them.
    fn sizes(&mut self) -> Checked<Vec<Sizes>> {
        let mut out: Vec<Sizes> = vec![];
        while self.accept_word("sizes") {
            let name = self.name("the name of these sizes")?;
            if out.iter().any(|s| s.name == name) {
                return Err(defined_twice("set of sizes", &name));
            }
            self.expect("{")?;
            let values = self.list("}", |p| {
                let name = p.name("a size")?;
                p.expect("=")?;
                Ok((name, p.integer("the value of the size")?))
            })?;
            out.push(Sizes { name, values });
        }
        Ok(out)
    }

    /// `temp f64 A[N][M], s;`, if one begins here.
    fn arrays(&mut self) -> Checked<Option<Vec<Array>>> {
        let words = [("in", Access::In), ("out", Access::Out), ("inout", Access::InOut), ("temp", Access::Temporary)];
        let access = words.into_iter().find(|w| self.accept_word(w.0)).map(|w| w.1);
        let dtype = match access {
            Some(_) => self.element_type("an element type")?,
            None => match self.dtype() {
                Some(dtype) => dtype,
                None => return Ok(None),
            },
        };
        let mut out = vec![];
        loop {
            let name = self.name("the name of the array")?;
            out.push(Array { access, dtype, name, shape: self.square()? });
            if self.is("=") {
                return self.fail("the end of the declaration: a value is assigned in a statement");
            }
            if !self.accept(",") {
                break;
            }
        }
        self.accept(";");
        Ok(Some(out))
    }

    /// `[e][e]…`.
    fn square(&mut self) -> Checked<Vec<Expr>> {
        let mut out = vec![];
        while self.accept("[") {
            out.push(self.expression()?);
            if self.is(",") {
                return self.fail("`]`, since a `loop` writes elements as A[i][j]");
            }
            self.expect("]")?;
        }
        Ok(out)
    }

    /// `init { … }`.
    fn initial(&mut self) -> Checked<Vec<Equation>> {
        let mut out = vec![];
        if self.accept_word("init") {
            self.expect("{")?;
            while !self.accept("}") {
                out.push(self.equation()?);
            }
        }
        Ok(out)
    }

    fn equation(&mut self) -> Checked<Equation> {
        let start = self.span();
        let (target, subscripts) = self.target()?;
        let assign = self.assignment("`=`, or an update such as `+=`, `max=` or `+=!`")?;
        let value = self.expression()?;
        let mut conditions = vec![];
        if self.accept_word("where") {
            conditions.push(self.condition()?);
            while self.accept(",") {
                conditions.push(self.condition()?);
            }
        }
        let span = start.to(self.last());
        self.accept(";");
        Ok(Equation { target, subscripts, assign, value, conditions, span })
    }

    /// `k in 0..4`, or `k <= i`.
    fn condition(&mut self) -> Checked<Condition> {
        if let (Token::Word(_), Some((Token::Word(next), _))) = (self.peek(), self.tokens.get(self.position + 1))
            && next == "in"
        {
            let name = self.name("an index")?;
            self.step();
            return Ok(Condition::Range(name, self.range()?));
        }
        self.expression().map(Condition::Holds)
    }

    fn range(&mut self) -> Checked<Range> {
        let lower = self.expression()?;
        self.expect("..")?;
        Ok(Range { lower, upper: self.expression()? })
    }

    /// Parses the target of an assignment.
    fn target(&mut self) -> Checked<(Name, Vec<Expr>)> {
        self.refuse_foreign_word()?;
        self.refuse_unknown_word()?;
        let name = self.name("the name of a tensor")?;
        let subscripts = match self.style {
            Style::Round => {
                self.expect("(")?;
                self.list(")", |p| p.expression())?
            }
            Style::Square => self.square()?,
        };
        Ok((name, subscripts))
    }

    /// Refuses a word of another language that stands alone or before another word.
    fn refuse_foreign_word(&self) -> Checked<()> {
        let alone = matches!(self.following(), Token::Word(_) | Token::Symbol(";" | "}") | Token::End);
        match self.peek() {
            Token::Word(word) if alone => match hints::word(word) {
                Some(instead) => Err(Diagnostic::invalid(self.span(), format!("there is no `{word}`: {instead}"))),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Refuses a word before another one where a loop program has an equation or a statement: it is meant as a keyword, or as
    /// the type or the kind of an array.
    fn refuse_unknown_word(&self) -> Checked<()> {
        let after = |n: usize| match self.tokens.get(self.position + n) {
            Some((Token::Word(next), _)) => Some(next.as_str()),
            _ => None,
        };
        let (Token::Word(word), Some(next)) = (self.peek(), after(1)) else { return Ok(()) };
        if self.style != Style::Square || reserved(word).is_some() {
            return Ok(());
        }
        let types = DTYPES.map(|d| d.name());
        let message = match foreign_type(word) {
            _ if types.contains(&next) && after(2).is_some() => {
                unknown("kind of array", word, &["in", "out", "inout", "temp"])
            }
            _ if reserved(next).is_some() => return Ok(()),
            Some(meant) => format!("there is no element type `{word}`; did you mean `{meant}`?"),
            None if nearest(word, &types).is_none() && nearest(word, &STATEMENTS).is_some() => {
                unknown("statement", word, &STATEMENTS)
            }
            None => unknown("element type", word, &types),
        };
        Err(Diagnostic::invalid(self.span(), message))
    }

    fn assignment(&mut self, wanted: &str) -> Checked<Assign> {
        match ASSIGNMENTS.into_iter().find(|a| self.is(a.0)) {
            Some((_, Assign::Update(Combine::Sub | Combine::Div))) if self.is_after("!") && self.is_joined() => {
                let message = "only `+=!`, `*=!`, `min=!` and `max=!` start from a neutral element";
                let start = self.span();
                self.step();
                Err(Diagnostic::invalid(start.to(self.span()), message))
            }
            Some((_, assign)) => {
                self.step();
                Ok(assign)
            }
            None if self.is("-") && self.is_after("-") && self.is_joined() => {
                Err(Diagnostic::invalid(self.span(), "there is no `--`: write `-= 1`"))
            }
            None => self.fail(wanted),
        }
    }

    fn statement(&mut self) -> Checked<Statement> {
        if self.accept_word("for") {
            if self.is("(") {
                return self.fail("the name of the loop's index, as in `for i in 0..N`");
            }
            let index = self.name("the name of the loop's index")?;
            self.expect_word("in")?;
            let range = self.range()?;
            let step = if self.accept_word("step") {
                match (
                    self.span(),
                    self.integer(
                        "an integer, as every step is (steps of an index `i` are products `i * t` of another one)",
                    )?,
                ) {
                    (span, 0) => return Err(Diagnostic::invalid(span, "a step of 0 never ends")),
                    (_, step) => step,
                }
            } else {
                1
            };
            return Ok(Statement::For { index, range, step, body: self.block()? });
        }
        if self.accept_word("if") {
            let condition = self.expression()?;
            let body = self.block()?;
            let otherwise = if self.accept_word("else") { self.block()? } else { vec![] };
            return Ok(Statement::If { condition, body, otherwise });
        }
        self.refuse_late_declaration()?;
        if !matches!(self.peek(), Token::Word(w) if reserved(w).is_none()) {
            return self.fail("`for`, `if`, an assignment or `}`");
        }
        let start = self.span();
        let label = if self.is_after(":") { Some(self.name("a label")?) } else { None };
        if label.is_some() {
            self.step();
        }
        let (target, subscripts) = self.target()?;
        let assign = self.assignment("`=`, or an update such as `+=` or `max=`")?;
        if let Assign::Reduce(_) = assign {
            let message = "a loop program initialises in a statement of its own, as in `s = 0` before `s += x[i]`";
            return Err(Diagnostic::invalid(self.last(), message));
        }
        let value = self.expression()?;
        let span = start.to(self.last());
        self.accept(";");
        Ok(Statement::Assign(Assignment { label, target, subscripts, assign, value, span }))
    }

    /// Refuses a declaration or initial values where a statement stands.
    fn refuse_late_declaration(&self) -> Checked<()> {
        let Token::Word(word) = self.peek() else { return Ok(()) };
        let message = match &word[..] {
            "init" | "sizes" => format!("`{word}` stands before the statements"),
            "in" | "out" | "inout" | "temp" => "arrays are declared before the statements".into(),
            _ if DTYPES.iter().any(|d| d.name() == word) => {
                format!("arrays are declared before the statements, a variable as in `temp {word} s`")
            }
            _ => return Ok(()),
        };
        Err(Diagnostic::invalid(self.span(), message))
    }

    /// One statement, or several in braces.
    fn block(&mut self) -> Checked<Vec<Statement>> {
        self.deeper(|p| {
            if !p.accept("{") {
                return Ok(vec![p.statement()?]);
            }
            let mut out = vec![];
            while !p.accept("}") {
                out.push(p.statement()?);
            }
            Ok(out)
        })
    }
}

fn defined_twice(what: &str, name: &Name) -> Diagnostic {
    Diagnostic::invalid(name.span, format!("the {what} `{name}` is already defined"))
}
