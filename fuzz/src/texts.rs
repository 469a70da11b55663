//! Mutations of texts, token by token, so that most of them are still near to the grammar.

use super::choices::Choices;
use super::{bytes, corpus};

/// Words, numbers, and characters by themselves; white space goes with the token before it.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = vec![];
    let (mut last, mut spaced) = (None, false);
    for c in text.chars() {
        let class = if c.is_alphanumeric() || c == '_' || c == '.' { 'w' } else { ' ' };
        match tokens.last_mut() {
            Some(token) if c.is_whitespace() => {
                token.push(c);
                spaced = true;
                continue;
            }
            Some(token) if class == 'w' && last == Some('w') && !spaced => token.push(c),
            _ => tokens.push(c.to_string()),
        }
        (last, spaced) = (Some(class), false);
    }
    tokens
}

const WORDS: [&str; 40] = [
    "0",
    "1",
    "2",
    "-",
    "64",
    "9223372036854775807",
    "1e40",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "+",
    "*",
    "/",
    "%",
    "+=!",
    "max=!",
    "=",
    "N",
    "i",
    "j",
    "f32",
    "f64",
    "i64",
    "u8",
    "bool",
    "exp",
    "min",
    "sqrt",
    "select",
    "where",
    "for",
    "in",
    "..",
    ",",
    "<",
    "if",
    "\u{e9}",
];

fn mutate(c: &mut Choices, text: &str, others: &[String]) -> String {
    let mut tokens = tokens(text);
    for _ in 0..c.pick(&[1, 1, 1, 2, 4]) {
        if tokens.len() < 2 {
            break;
        }
        let (at, other) = (c.below(tokens.len()), c.below(tokens.len()));
        match c.below(8) {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[other].clone()),
            2 => tokens[at] = tokens[other].clone(),
            3 => tokens.swap(at, other),
            4 => tokens[at] = format!("{} ", c.pick(&WORDS)),
            5 => {
                // a run of tokens twice, or not at all
                let end = (at + 1 + c.below(12)).min(tokens.len());
                let run = tokens[at..end].to_vec();
                match c.chance(50) {
                    true => drop(tokens.splice(at..at, run)),
                    false => drop(tokens.drain(at..end)),
                }
            }
            6 => {
                let from = self::tokens(&others[c.below(others.len())]);
                let start = c.below(from.len());
                let end = (start + 1 + c.below(20)).min(from.len());
                drop(tokens.splice(at..at, from[start..end].iter().cloned()));
            }
            _ => {
                let numbers: Vec<usize> = (0..tokens.len()).filter(|&i| number(&tokens[i]).is_some()).collect();
                if let Some(&at) = numbers.get(c.below(numbers.len().max(1))) {
                    tokens[at] = format!("{} ", c.integer());
                }
            }
        }
    }
    tokens.concat()
}

fn number(token: &str) -> Option<i64> {
    token.trim().parse().ok()
}

fn changed(c: &mut Choices, corpus: &[String]) -> Vec<u8> {
    let text = &corpus[c.below(corpus.len())];
    if c.chance(20) {
        let mut bytes = text.clone().into_bytes();
        bytes::mutate(c, &mut bytes, &[text.clone().into_bytes()]);
        return bytes;
    }
    mutate(c, text, corpus).into_bytes()
}

/// A program of the data sets with a few tokens or bytes changed.
pub fn tile(c: &mut Choices) -> Vec<u8> {
    changed(c, corpus::tile())
}

/// As [`tile`], of small programs, with numbers that no run takes long for.
pub fn small_tile(c: &mut Choices) -> Vec<u8> {
    let corpus = corpus::tile();
    let mut text = &corpus[c.below(corpus.len())];
    while text.len() > 3000 {
        text = &corpus[c.below(corpus.len())];
    }
    let tokens = tokens(&mutate(c, text, corpus));
    let small = |token: String| match number(&token) {
        Some(n) if n > 12 => format!("{}{}", n % 12 + 1, &token[token.trim_end().len()..]),
        _ => token,
    };
    tokens.into_iter().map(small).collect::<String>().into_bytes()
}

/// A graph of the fixtures with a few tokens or bytes changed.
pub fn graph(c: &mut Choices) -> Vec<u8> {
    changed(c, corpus::graphs())
}
