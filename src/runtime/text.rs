//! Text from models and files on its way to a terminal, a log or a page.
//!
//! In: text that somebody else may have chosen, such as the name of a tensor. Out: text that moves no cursor, changes no
//! colour and does not reorder what stands beside it. An escape has the form `\u001b`, which JSON strings understand too.

use std::borrow::Cow;

/// Control characters, and those that change the direction of the text around them (CVE-2021-42574).
fn is_active(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_active(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_active(c) && !keep(c) {
            true => out.push_str(&format!("\\u{:04x}", c as u32)),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A name on one line.
pub fn name(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Lines; line ends and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Names with commas: the first ones and the number of the others, where they are many.
pub fn list(names: &[String]) -> String {
    const MOST: usize = 8;
    let shown = names[..names.len().min(MOST)].join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Names in backquotes, with commas.
pub fn quoted(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|n| format!("`{}`", n.as_ref())).collect::<Vec<_>>().join(", ")
}

/// A size in the unit that fits: `7.3 MiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..0x10_0000 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1048576.0),
    }
}

/// A number of things that `noun` names one of: `1 kernel`, `2 kernels`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {}", plural(n, noun))
}

/// A noun for so many things, without their number: `kernel`, `kernels`.
pub fn plural(n: usize, noun: &str) -> String {
    format!("{noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!([0, 1, 2].map(|n| count(n, "kernel")), ["0 kernels", "1 kernel", "2 kernels"]);
    }

    #[test]
    fn active_characters_are_escaped_and_others_stay() {
        assert!(matches!(name("größe×2 輸入"), Cow::Borrowed(_)));
        assert_eq!(name("a\u{1b}[31m\r\nb\u{7f}\u{9b}\u{202e}"), "a\\u001b[31m\\u000d\\u000ab\\u007f\\u009b\\u202e");
        assert_eq!(lines("a\n\tb\u{1b}\u{0}"), "a\n\tb\\u001b\\u0000");
    }
}
