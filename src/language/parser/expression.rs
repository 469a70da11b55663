//! Expressions, by precedence climbing.

use super::{OPERATIONS, Parser, Style};
use crate::expr::syntax::{COMPARISON, Expr, FUNCTIONS, Kind, OPERATORS};
use crate::language::hints::{self, meant_type};
use crate::language::lexer::{Token, reserved};
use crate::language::source::{Checked, Diagnostic};
use crate::runtime::error::did_you_mean;

impl Parser {
    pub(in crate::language) fn expression(&mut self) -> Checked<Expr> {
        let outer = std::mem::take(&mut self.operations);
        let result = self.deeper(|p| p.operators(0));
        self.operations += outer;
        result
    }

    /// Operators that bind tighter than `least`, left to right.
    fn operators(&mut self, least: u8) -> Checked<Expr> {
        let mut left = self.prefix()?;
        while let Some((_, operator, binds)) = OPERATORS.into_iter().find(|o| self.is(o.0) && o.2 > least) {
            self.operations += 1;
            if self.operations > OPERATIONS {
                let message = format!("an expression of more than {OPERATIONS} operations");
                return Err(Diagnostic::invalid(self.span(), message));
            }
            self.step();
            let right = self.operators(binds)?;
            let span = left.span.to(right.span);
            left = Expr { kind: Kind::Binary(operator, Box::new(left), Box::new(right)), span };
            if binds == COMPARISON && OPERATORS.iter().any(|o| o.2 == COMPARISON && self.is(o.0)) {
                return Err(Diagnostic::invalid(self.span(), "comparisons do not chain: join them with `&&`"));
            }
        }
        Ok(left)
    }

    fn prefix(&mut self) -> Checked<Expr> {
        let start = self.span();
        let minus = self.is("-");
        if !minus && !self.is("!") {
            return self.operand();
        }
        self.step();
        let inner = self.deeper(|p| p.prefix())?;
        let span = start.to(inner.span);
        let kind = match inner.kind {
            Kind::Integer(v) if minus && v >= 0 => Kind::Integer(-v),
            Kind::Unsigned(v) if minus && v == 1 << 63 => Kind::Integer(i64::MIN),
            Kind::Real(v) if minus && v >= 0.0 => Kind::Real(-v),
            _ if minus => Kind::Negate(Box::new(inner)),
            _ => Kind::Not(Box::new(inner)),
        };
        Ok(Expr { kind, span })
    }

    pub(in crate::language) fn operand(&mut self) -> Checked<Expr> {
        let start = self.span();
        let token = self.peek().clone();
        let kind = match token {
            Token::Integer(v) => {
                self.step();
                Kind::Integer(v)
            }
            Token::Real(v) => {
                self.step();
                Kind::Real(v)
            }
            Token::Unsigned(v) => {
                self.step();
                Kind::Unsigned(v)
            }
            Token::Symbol("(") => {
                self.step();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(Expr { span: start.to(self.last()), ..inner });
            }
            Token::Word(word) => self.word(&word)?,
            _ => return self.fail("an expression"),
        };
        Ok(Expr { kind, span: start.to(self.last()) })
    }

    fn word(&mut self, word: &str) -> Checked<Kind> {
        let constants = [
            ("true", Kind::Bool(true)),
            ("false", Kind::Bool(false)),
            ("inf", Kind::Real(f64::INFINITY)),
            ("nan", Kind::Real(f64::NAN)),
        ];
        if let Some((_, kind)) = constants.into_iter().find(|c| c.0 == word) {
            self.step();
            return Ok(kind);
        }
        if let Some(dtype) = self.dtype() {
            self.expect("(")?;
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(Kind::Cast(dtype, Box::new(inner)));
        }
        if let Some((_, function)) = FUNCTIONS.into_iter().find(|f| f.0 == word) {
            self.step();
            self.expect("(")?;
            let operands = self.list(")", |p| p.expression())?;
            if operands.len() != function.operands() {
                let (has, given) = (function.operands(), operands.len());
                return Err(Diagnostic::invalid(self.last(), format!("`{word}` has {has} operands, not {given}")));
            }
            return Ok(Kind::Call(function, operands));
        }
        if reserved(word).is_some() {
            return self.fail("an expression");
        }
        let name = self.name("a name")?;
        match self.style {
            Style::Round if self.is("(") => {
                self.step();
                Ok(Kind::Element(name, self.list(")", |p| p.expression())?))
            }
            Style::Square if self.is("[") => Ok(Kind::Element(name, self.square()?)),
            Style::Round if self.is("[") => self.fail("`(`: a `def` writes elements as A(i,j)"),
            Style::Square if self.is("(") => {
                let near = match (hints::function(&name.text), did_you_mean(&name.text, &FUNCTIONS.map(|f| f.0))) {
                    (Some(instead), _) => format!(": {instead}"),
                    (None, none) if none.is_empty() => meant_type(&name.text),
                    (None, near) => near,
                };
                let message = format!("there is no function `{name}`, and a `loop` writes elements as A[i][j]{near}");
                Err(Diagnostic::invalid(name.span, message))
            }
            _ => Ok(Kind::Name(name.text)),
        }
    }
}
