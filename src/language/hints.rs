//! Texts of other languages, and what stands in their place in a `.tile` text.
//!
//! A table for each place: characters, words before other words, functions, element types. Messages that refuse such a text
//! end with the entry.

use crate::expr::syntax::DTYPES;
use crate::runtime::error::did_you_mean;

/// Characters without a meaning.
const SYMBOLS: [(&str, &str); 13] = [
    ("//", "a comment begins with `#`, and integers are divided by `/`"),
    ("/*", "a comment begins with `#` and ends with its line"),
    ("++", "write `+= 1`"),
    ("**", "write `pow(a, b)`"),
    ("<<", "write `shl(a, b)`"),
    (">>", "write `shr(a, b)`"),
    ("%=", "write `x = x % n`"),
    ("..=", "a range ends before its upper bound: write `a..b + 1`"),
    ("?", "write `select(condition, a, b)`"),
    ("&", "write `bit_and(a, b)`, and `&&` between conditions"),
    ("|", "write `bit_or(a, b)`, and `||` between conditions"),
    ("^", "write `bit_xor(a, b)`, and `pow(a, b)` for a power"),
    ("~", "write `bit_not(a)`"),
];

/// Words before another word, or alone.
const WORDS: [(&str, &str); 10] = [
    ("while", "a loop runs over a range that is known before, as in `for i in 0..N`; choose values with `select`"),
    ("let", "declare an array without subscripts, as in `temp f64 x`, and assign to it"),
    ("var", "declare an array without subscripts, as in `temp f64 x`, and assign to it"),
    ("const", "a number with a name is a size with a value, as in `loop p(K = 3)`"),
    ("return", "the outputs of a loop program are the arrays that it writes, of a `def` those after `->`"),
    ("break", "a loop runs over all of its range; choose values with `select`"),
    ("continue", "put what follows into an `if`, or choose values with `select`"),
    ("elif", "write `else if`"),
    ("and", "write `&&`"),
    ("or", "write `||`"),
];

/// Functions of C, NumPy or Python.
const FUNCTIONS: [(&str, &str); 13] = [
    ("range", "write `0..n`"),
    ("mod", "write `a % b`"),
    ("fmod", "write `a % b`, which has the sign of b"),
    ("clamp", "write `min(max(x, low), high)`"),
    ("clip", "write `min(max(x, low), high)`"),
    ("fabs", "write `abs(x)`"),
    ("fmin", "write `min(a, b)`"),
    ("fmax", "write `max(a, b)`"),
    ("rsqrt", "write `1.0 / sqrt(x)`"),
    ("popcnt", "write `popcount(x)`"),
    ("bit_count", "write `popcount(x)`"),
    ("__builtin_popcount", "write `popcount(x)`"),
    ("sum", "write `+=` in a loop, `+=!` in a `def`"),
];

/// Element types of C without a number of bits, and their names here.
const TYPES_OF_C: [(&str, &str); 7] = [
    ("float", "f32"),
    ("double", "f64"),
    ("half", "f16"),
    ("int", "i32"),
    ("long", "i64"),
    ("short", "i16"),
    ("char", "i8"),
];

fn entry(table: &[(&str, &'static str)], text: &str) -> Option<&'static str> {
    table.iter().find(|e| e.0 == text).map(|e| e.1)
}

/// Returns the characters at the beginning of `rest` that mean nothing, with what to write; `known` bytes there are a symbol.
pub fn symbol(rest: &str, known: usize) -> Option<(&'static str, &'static str)> {
    SYMBOLS.into_iter().find(|s| s.0.len() > known && rest.starts_with(s.0))
}

/// Returns what to write in place of a `word`.
pub fn word(word: &str) -> Option<&'static str> {
    entry(&WORDS, word)
}

/// Returns what to write in place of calls of a function that there is not.
pub fn function(name: &str) -> Option<&'static str> {
    entry(&FUNCTIONS, name)
}

/// Returns how to write a number of C, Rust or Python that has letters or `_` in it.
pub fn number(word: &str) -> Option<String> {
    let digits = word.replace('_', "");
    let bases = [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2), ("0o", 8)];
    let of_base = bases.into_iter().find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, base)));
    if let Some((digits, base)) = of_base {
        return i64::from_str_radix(digits, base).ok().map(|v| v.to_string());
    }
    let bare = digits.trim_end_matches(|c| "fFuUlL".contains(c));
    let integer = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit());
    let real = integer || bare.parse().is_ok_and(|v: f64| v.is_finite());
    let is_float = digits.ends_with(['f', 'F']);
    real.then(|| if integer && is_float { format!("{bare}.0") } else { bare.to_string() })
}

/// Returns the name of the element type that C or NumPy calls `word`.
pub fn foreign_type(word: &str) -> Option<&'static str> {
    let prefixes = [("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")];
    let of_numpy = || {
        let mut short = prefixes.into_iter().filter_map(|(long, short)| Some((word.strip_prefix(long)?, short)));
        short.find_map(|(bits, short)| {
            let name = format!("{short}{}", bits.trim_end_matches("_t"));
            DTYPES.map(|d| d.name()).into_iter().find(|t| *t == name)
        })
    };
    entry(&TYPES_OF_C, word).or_else(of_numpy)
}

/// Returns the end of a message about `word` where an element type should stand: the type that was meant, if one is near.
pub fn meant_type(word: &str) -> String {
    match foreign_type(word) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => did_you_mean(word, &DTYPES.map(|d| d.name())),
    }
}
