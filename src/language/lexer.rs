//! Text to tokens, each with its place.

use super::hints;
use super::source::{Checked, Diagnostic};
use crate::expr::syntax::Span;
use crate::expr::syntax::{DTYPES, FUNCTIONS};

#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    /// Letters, digits and `_`; keywords too.
    Word(String),
    Integer(i64),
    /// From 2^63 on.
    Unsigned(u64),
    Real(f64),
    Symbol(&'static str),
    /// A text between quotation marks, without them.
    Quoted(String),
    End,
}

/// Longer ones before those that they begin with.
const SYMBOLS: [&str; 37] = [
    "min=!", "max=!", "min=", "max=", "+=!", "*=!", "->", "..", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "(", ")", "{", "}", "[", "]", ",", ";", "+", "-", "*", "/", "%", "<", ">", "=", "!", ":", ".",
];

/// Words that cannot be names.
const KEYWORDS: [&str; 19] = [
    "def", "loop", "schedule", "sizes", "init", "for", "in", "out", "inout", "temp", "if", "else", "step", "where",
    "true", "false", "inf", "nan", "by",
];

/// Returns the meaning of a reserved `word`; `None` if it can be a name.
pub fn reserved(word: &str) -> Option<&'static str> {
    if KEYWORDS.contains(&word) {
        Some("a keyword")
    } else if FUNCTIONS.iter().any(|f| f.0 == word) {
        Some("a function")
    } else if DTYPES.iter().any(|d| d.name() == word) {
        Some("an element type")
    } else {
        None
    }
}

fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens of `text`; the last one is [`Token::End`].
pub fn tokens(text: &str) -> Checked<Vec<(Token, Span)>> {
    let mut out = vec![];
    let mut offset = 0;
    while let Some(c) = text[offset..].chars().next() {
        let rest = &text[offset..];
        let span = |length: usize| Span { start: offset as u32, end: (offset + length) as u32 };
        let length_while = |f: fn(char) -> bool| rest.find(|c| !f(c)).unwrap_or(rest.len());
        // Of the symbols only `min=`, `max=` and theirs begin as words do.
        let symbol = if begins_word(c) && c != 'm' { None } else { symbol(rest) };
        if c.is_whitespace() {
            offset += length_while(char::is_whitespace);
        } else if c == '#' {
            offset += rest.find('\n').unwrap_or(rest.len());
        } else if c == '"' {
            let line = rest[1..].lines().next().unwrap_or("");
            let Some(length) = line.find('"') else {
                return Err(Diagnostic::invalid(span(1 + line.len()), "this text has no closing `\"` on its line"));
            };
            out.push((Token::Quoted(line[..length].into()), span(length + 2)));
            offset += length + 2;
        } else if c.is_ascii_digit() {
            let (token, length) = number(rest).map_err(|(m, length)| Diagnostic::invalid(span(length), m))?;
            out.push((token, span(length)));
            offset += length;
        } else if let Some((foreign, instead)) = hints::symbol(rest, symbol.map_or(0, str::len)) {
            return Err(Diagnostic::invalid(span(foreign.len()), format!("there is no `{foreign}`: {instead}")));
        } else if let Some(symbol) = symbol {
            out.push((Token::Symbol(symbol), span(symbol.len())));
            offset += symbol.len();
        } else if begins_word(c) {
            let length = length_while(in_word);
            out.push((Token::Word(rest[..length].into()), span(length)));
            offset += length;
        } else {
            let shown = if c.is_ascii() { format!("`{c}`") } else { format!("`{c}` (U+{:04X})", c as u32) };
            return Err(Diagnostic::invalid(span(c.len_utf8()), format!("the character {shown} has no meaning here")));
        }
    }
    out.push((Token::End, Span { start: offset as u32, end: offset as u32 }));
    Ok(out)
}

fn symbol(rest: &str) -> Option<&'static str> {
    // `min==3` compares a name that cannot be; `min=3` assigns.
    let first = rest.as_bytes()[0];
    SYMBOLS.into_iter().filter(|s| s.as_bytes()[0] == first).find(|s| {
        rest.strip_prefix(s).is_some_and(|after| !(s.starts_with('m') && s.ends_with('=') && after.starts_with('=')))
    })
}

/// An integer, or a real number with a point or an exponent. `0..4` begins with an integer.
fn number(rest: &str) -> Result<(Token, usize), (String, usize)> {
    let digits = |from: usize| from + rest[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - from);
    let followed = |from: usize| rest[from..].starts_with(|c: char| c.is_ascii_digit());
    let mut end = digits(0);
    let mut real = false;
    if rest[end..].starts_with('.') && followed(end + 1) {
        end = digits(end + 1);
        real = true;
    }
    if rest[end..].starts_with(['e', 'E']) {
        let sign = end + 1 + usize::from(rest[end + 1..].starts_with(['+', '-']));
        if followed(sign) {
            end = digits(sign);
            real = true;
        }
    }
    let text = &rest[..end];
    let ends_in_point = rest[end..].starts_with('.') && !rest[end + 1..].starts_with(|c| c == '.' || begins_word(c));
    if ends_in_point && !real {
        return Err((format!("`{0}.` is not how a number is written: write {0}.0", shortened(text)), end + 1));
    }
    let after = end + rest[end..].find(|c| !in_word(c)).unwrap_or(rest.len() - end);
    if let Some(instead) = Some(&rest[..after]).filter(|word| word.len() > end).and_then(hints::number) {
        return Err((
            format!("`{}` is not how a number is written: write {instead}", shortened(&rest[..after])),
            after,
        ));
    }
    if let Some(c) = rest[end..].chars().next().filter(|c| in_word(*c)) {
        return Err((format!("`{}{c}…` is neither a number nor a name", shortened(text)), end + c.len_utf8()));
    }
    let token = if real {
        text.parse().ok().filter(|v: &f64| v.is_finite()).map(Token::Real)
    } else {
        text.parse().map(Token::Integer).or_else(|_| text.parse().map(Token::Unsigned)).ok()
    };
    token.map(|t| (t, end)).ok_or_else(|| (format!("the number {} is too large", shortened(text)), end))
}

/// The beginning and the end of a long number.
fn shortened(digits: &str) -> String {
    match digits.len() {
        0..=40 => digits.to_string(),
        n => format!("{}…{} ({n} characters)", &digits[..16], &digits[n - 8..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Token> {
        tokens(text).unwrap().into_iter().map(|t| t.0).collect()
    }

    #[test]
    fn numbers_symbols_and_words_are_told_apart() {
        use Token::*;
        let word = |w: &str| Word(w.into());
        assert_eq!(of("0..N # and\n1.5e-3"), [Integer(0), Symbol(".."), word("N"), Real(1.5e-3), End]);
        assert_eq!(of("C max=!2"), [word("C"), Symbol("max=!"), Integer(2), End]);
        assert_eq!(of("max(min,a_1)").len(), 7);
        assert_eq!(of("a+=!b")[1], Symbol("+=!"));
        assert_eq!(of("2.x")[1], Symbol("."));
        assert_eq!(of("9223372036854775807 9223372036854775808"), [Integer(i64::MAX), Unsigned(1 << 63), End]);
        assert_eq!(of("a \"50 /r # 1\" b"), [word("a"), Quoted("50 /r # 1".into()), word("b"), End]);
        for (text, message) in [
            ("12ab", "`12a…` is neither a number nor a name"),
            ("99999999999999999999", "the number 99999999999999999999 is too large"),
            ("1e999", "the number 1e999 is too large"),
            ("a \"b\n\"", "this text has no closing `\"` on its line"),
            ("a $ b", "the character `$` has no meaning here"),
            ("a \u{200b} b", "the character `\u{200b}` (U+200B) has no meaning here"),
            (&"9".repeat(100_000), "the number 9999999999999999…99999999 (100000 characters) is too large"),
        ] {
            assert_eq!(tokens(text).unwrap_err().error.to_string(), format!("invalid: {message}"));
        }
    }
}
