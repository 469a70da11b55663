//! Tokens to the syntax tree of a file of instructions.

use super::syntax::{Code, Constant, Field, Instruction, InstructionFile, Operand, Order, Semantics};
use crate::codegen::instruction::{Form, SumOrder};
use crate::expr::syntax::{Kind, Name};
use crate::language::lexer::{Token, tokens};
use crate::language::parser::Parser;
use crate::language::source::{Checked, Diagnostic, Source};
use crate::runtime::error::did_you_mean;
use crate::runtime::{DType, Result};

/// Parses a file; messages contain `name`. A byte order mark at the beginning is skipped.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) with file, line, column and a caret where the text is wrong.
pub fn parse(name: &str, text: &str) -> Result<InstructionFile> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let source = Source { name: name.into(), text: text.into() };
    match tokens(text).and_then(|tokens| instructions(&mut Parser::new(tokens))) {
        Ok(instructions) => Ok(InstructionFile { source, instructions }),
        Err(problem) => Err(source.error(problem)),
    }
}

fn instructions(p: &mut Parser) -> Checked<Vec<Instruction>> {
    let mut out: Vec<Instruction> = vec![];
    while *p.peek() != Token::End {
        if ["def", "loop", "schedule"].iter().any(|word| p.is_word(word)) {
            let message = "a file of instructions holds only instructions: put programs in a file of their own";
            return Err(Diagnostic::invalid(p.span(), message));
        }
        p.expect_word("instruction")?;
        let next = instruction(p)?;
        if out.iter().any(|i| i.name == next.name) {
            let message = format!("the instruction `{}` is already defined", next.name);
            return Err(Diagnostic::invalid(next.name.span, message));
        }
        out.push(next);
    }
    Ok(out)
}

/// The items of a declaration, as far as they are read.
#[derive(Default)]
struct Items {
    accumulator: Option<Operand>,
    reads: Vec<Operand>,
    constant: Option<Constant>,
    temporaries: Vec<Name>,
    semantics: Option<Semantics>,
    code: Vec<Code>,
}

/// A word of a processor feature, such as `avx512f` or `amx-bf16`; `bf16` is one of AArch64.
fn feature(p: &mut Parser) -> Checked<Name> {
    let mut feature = match p.peek().clone() {
        Token::Word(text) if text == DType::BF16.name() => {
            let span = p.span();
            p.step();
            Name { text, span }
        }
        _ => p.name("a processor feature, such as `avx512f` or `neon`")?,
    };
    while p.accept("-") {
        let (span, Token::Word(part)) = (p.span(), p.peek().clone()) else {
            return p.fail("the rest of the word of a processor feature");
        };
        p.step();
        feature = Name { text: format!("{feature}-{part}"), span: feature.span.to(span) };
    }
    Ok(feature)
}

/// After `instruction`.
fn instruction(p: &mut Parser) -> Checked<Instruction> {
    let name = p.name("the name of the instruction")?;
    p.expect_word("needs")?;
    let mut features = vec![];
    while features.is_empty() || !p.is("{") {
        features.push(feature(p)?);
        p.accept(",");
    }
    p.expect("{")?;
    let mut items = Items::default();
    while !p.accept("}") {
        item(p, &mut items)?;
        p.accept(";");
    }
    let missing = |what: &str| Diagnostic::invalid(name.span, format!("`{name}` has no {what}"));
    let accumulator = items.accumulator.ok_or_else(|| missing("accumulator, as in `acc i32(16) C in vector`"))?;
    let semantics = items.semantics.ok_or_else(|| missing("semantics, as in `C(j) += i32(A(q)) * i32(B(j,q))`"))?;
    if items.code.first().is_none_or(|code| code.by_element) {
        return Err(missing("encoding, as in `encode \"EVEX.512.66.0F38.W0 50 /r\" reg = C, vvvv = A, rm = B`"));
    }
    let Items { reads, constant, temporaries, code, .. } = items;
    Ok(Instruction { name, features, accumulator, reads, constant, temporaries, semantics, code })
}

/// Words that begin an item.
const ITEMS: [&str; 5] = ["acc", "read", "constant", "temporary", "encode"];

fn item(p: &mut Parser, items: &mut Items) -> Checked<()> {
    let start = p.span();
    // An operand may be called `read`: its equation goes on with a parenthesis.
    let declares = matches!(p.following(), Token::Word(_) | Token::Quoted(_));
    if declares && p.accept_word("acc") {
        if items.accumulator.is_some() {
            return Err(Diagnostic::invalid(start, "an instruction has one accumulator"));
        }
        let operand = operand(p)?;
        if operand.form == Form::Broadcast {
            return Err(Diagnostic::invalid(operand.span, "an accumulator stands `in vector` or `in tile`"));
        }
        if operand.range.is_some() {
            return Err(Diagnostic::invalid(operand.span, "an accumulator has all numbers of its type"));
        }
        items.accumulator = Some(operand);
    } else if declares && p.accept_word("read") {
        items.reads.push(operand(p)?);
    } else if declares && p.accept_word("constant") {
        if items.constant.is_some() {
            return Err(Diagnostic::invalid(start, "an instruction has one constant at most"));
        }
        items.constant = Some(constant(p)?);
    } else if declares && p.accept_word("temporary") {
        items.temporaries.push(p.name("the name of the temporary")?);
        while p.accept(",") {
            items.temporaries.push(p.name("the name of the temporary")?);
        }
    } else if declares && p.accept_word("encode") {
        let code = code(p)?;
        if !code.by_element && items.code.iter().any(|before| before.by_element) {
            return Err(Diagnostic::invalid(start, "encodings `by element` stand behind all others"));
        }
        items.code.push(code);
    } else if let (true, Token::Word(word)) = (declares, p.peek()) {
        let near = did_you_mean(word, &ITEMS);
        let message = format!(
            "`{word}` is not an item of an instruction: there are {}, and the semantics as in \
                               `C(j) += i32(A(q)) * i32(B(j,q))`{near}",
            ITEMS.join(", ")
        );
        return Err(Diagnostic::invalid(start, message));
    } else if items.semantics.is_some() && matches!(p.peek(), Token::Word(_)) {
        return Err(Diagnostic::invalid(start, "an instruction has one equation"));
    } else if matches!(p.peek(), Token::Word(_)) {
        items.semantics = Some(semantics(p)?);
    } else {
        return p.fail("`acc`, `read`, `constant`, `temporary`, `encode`, the semantics or `}`");
    }
    Ok(())
}

/// After `acc` or `read`: type, shape, name, form.
fn operand(p: &mut Parser) -> Checked<Operand> {
    let start = p.span();
    let dtype = p.element_type("an element type, as in `i32(16) C in vector`")?;
    let mut shape = vec![];
    if p.accept("(") {
        shape = p.list(")", |p| match (p.span(), p.integer("a number of elements")?) {
            (_, extent) if (1..=512).contains(&extent) => Ok(extent),
            (span, extent) => Err(Diagnostic::invalid(span, format!("{extent} elements do not stand in a register"))),
        })?;
    }
    let name = p.name("the name of the operand")?;
    let form = if p.accept_word("broadcast") {
        Form::Broadcast
    } else if p.accept_word("in") {
        if p.accept_word("tile") {
            Form::Tile
        } else {
            p.expect_word("vector")?;
            Form::Vector
        }
    } else {
        return p.fail("`in vector`, `in tile` or `broadcast`");
    };
    let range = match p.accept_word("from") {
        true => {
            let least = p.integer("the least number")?;
            p.expect_word("to")?;
            Some((least, p.integer("the greatest number")?))
        }
        false => None,
    };
    Ok(Operand { dtype, shape, name, form, range, span: start.to(p.last()) })
}

/// After `constant`: type, name, value.
fn constant(p: &mut Parser) -> Checked<Constant> {
    let start = p.span();
    let dtype = p.element_type("an integer type, as in `constant i16 ones = 1`")?;
    let name = p.name("the name of the constant")?;
    p.expect("=")?;
    let value = p.integer("the number in each lane")?;
    Ok(Constant { dtype, name, value, span: start.to(p.last()) })
}

fn semantics(p: &mut Parser) -> Checked<Semantics> {
    let start = p.span();
    let element = p.operand()?;
    let (target, subscripts) = match element.kind {
        Kind::Element(name, subscripts) => (name, subscripts),
        Kind::Name(text) => (Name { text, span: element.span }, vec![]),
        _ => return Err(Diagnostic::invalid(element.span, "expected an element of the accumulator, as in `C(j)`")),
    };
    if !p.is("+=") {
        return p.fail("`+=`: an instruction adds to its accumulator");
    }
    p.step();
    let value = p.expression()?;
    let mut order = None;
    if p.accept_word("summed") {
        p.expect_word("over")?;
        let mut iterators = vec![p.name("the iterator of the sum")?];
        while p.accept(",") {
            iterators.push(p.name("the iterator of the sum")?);
        }
        let Some(word) = SumOrder::ALL.into_iter().find(|order| p.accept_word(order.word())) else {
            return p.fail("`ascending`, `descending`, `apart` or `grouped`");
        };
        order = Some(Order { iterators, order: word });
    }
    Ok(Semantics { target, subscripts, value, order, span: start.to(p.last()) })
}

/// After `encode`.
fn code(p: &mut Parser) -> Checked<Code> {
    let by_element = p.accept_word("by");
    if by_element {
        p.expect_word("element")?;
    }
    let line_span = p.span();
    let Token::Quoted(line) = p.peek().clone() else {
        return p.fail("an encoding between quotation marks, as in `\"EVEX.512.66.0F38.W0 50 /r\"`");
    };
    p.step();
    let mut fields = vec![];
    loop {
        let field = p.name("a field of the encoding, as in `reg = C`")?;
        p.expect("=")?;
        let span = p.span();
        let contents = match p.peek() {
            Token::Integer(_) => Field::Number(p.integer("a number")?, span),
            _ => Field::Register(p.name("an operand, a temporary or a number")?),
        };
        fields.push((field, contents));
        if !p.accept(",") {
            return Ok(Code { by_element, line, line_span, fields });
        }
    }
}
