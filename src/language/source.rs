//! Positions in a text, and messages that show the place.

use crate::expr::syntax::Span;
use crate::runtime::Error;
use crate::runtime::refusal::Refusal;

/// The name and the text of a file. Programs that were built in Rust have an empty one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// Name of the file, for messages.
    pub name: String,
    /// Contents of the file.
    pub text: String,
}

/// An error in a text: the message and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub span: Span,
    pub error: Error,
}

/// The result of a step of the language, or the error in the text.
pub type Checked<T> = std::result::Result<T, Diagnostic>;

impl Diagnostic {
    /// The text is wrong.
    pub fn invalid(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { span, error: Error::Invalid(message.into()) }
    }

    /// The text makes sense, but this is not done here.
    pub fn unsupported(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { span, error: Error::Unsupported(message.into()) }
    }
}

impl Source {
    /// The error of `problem`, with file, line, column, the line's text and a caret.
    #[doc(hidden)]
    pub fn error(&self, problem: Diagnostic) -> Error {
        let Diagnostic { span, error } = problem;
        if self.text.is_empty() {
            return error;
        }
        let start = (span.start as usize).min(self.text.len());
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("").trim_end();
        let number = self.text[..start].matches('\n').count() + 1;
        let before = &self.text[line_start..start];
        let column = before.chars().count() + 1;
        let here = &self.text[start..(span.end as usize).clamp(start, line_start + line.len().max(before.len()))];
        // Of a long line only the part around the place.
        let left: String = tail(before, SHOWN);
        let marked = here.chars().count().clamp(1, SHOWN);
        let right: String = line.get(before.len()..).unwrap_or("").chars().take(marked + SHOWN).collect();
        let margin: String = left.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(marked);
        let (place, excerpt) =
            (format!("{}:{number}:{column}: ", self.name), format!("    {left}{right}\n    {margin}{carets}"));
        let show = |m: String| format!("{place}{m}\n{excerpt}");
        match error {
            Error::Invalid(m) => Error::Invalid(show(m)),
            Error::Unsupported(m) => Error::Unsupported(show(m)),
            Error::Schedule(r) => {
                let context = format!("{place}{}", r.context);
                let span = Some(start..(span.end as usize).clamp(start, self.text.len()));
                Error::Schedule(Box::new(Refusal { context, excerpt: Some(excerpt), span, ..*r }))
            }
            Error::Limit(m) => Error::Limit(show(m)),
            other => other,
        }
    }
}

/// Characters of a line that are shown on each side of the place.
const SHOWN: usize = 80;

/// The last `count` characters.
fn tail(text: &str, count: usize) -> String {
    let all = text.chars().count();
    text.chars().skip(all.saturating_sub(count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_line_and_column() {
        let source = Source { name: "a.tile".into(), text: "def x\n\tY(é, i] = 1\n".into() };
        let start = source.text.find(']').unwrap() as u32;
        let problem = Diagnostic::invalid(Span { start, end: start + 1 }, "expected `)`");
        let text = source.error(problem).to_string();
        assert_eq!(text, "invalid: a.tile:2:8: expected `)`\n    \tY(é, i] = 1\n    \t      ^");
        let refused = Diagnostic { span: Span { start, end: start + 1 }, error: Error::refused("no") };
        let Error::Schedule(refusal) = source.error(refused) else { panic!("a refusal") };
        assert_eq!(refusal.span.map(|bytes| &source.text[bytes]), Some("]"));
        let end = source.text.len() as u32;
        let text = source.error(Diagnostic::invalid(Span { start: end, end }, "expected `}`")).to_string();
        assert_eq!(text, "invalid: a.tile:3:1: expected `}`\n    \n    ^");
    }
}
