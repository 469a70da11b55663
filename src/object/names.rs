//! Names and numbers in C: identifiers, comments and string literals made of names that a model's author chose.

use std::collections::BTreeSet;

/// Words of C and C++ that are not names, and macros that compilers define.
const RESERVED: &str = "NULL alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const const_cast \
     consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit export extern \
     false float for friend goto if inline int int16_t int32_t int64_t int8_t linux long madvise main memcpy mmap mutable namespace new \
     noexcept not not_eq nullptr offsetof operator or or_eq private protected public register reinterpret_cast requires restrict \
     return short signed size_t sizeof static static_assert static_cast struct switch template this thread_local throw \
     true try typedef typeid typename typeof uint16_t uint32_t uint64_t uint8_t uintptr_t union unix unsigned using \
     virtual void volatile wchar_t while xor xor_eq";

/// The identifier of a name: what C does not allow becomes `_`, and `tw_` stands in front of names that do not begin with a letter.
pub fn identifier(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match plain.chars().next() {
        Some(first) if first.is_ascii_alphabetic() && !is_reserved(&plain) => plain,
        Some(_) if is_reserved(&plain) => format!("{plain}_"),
        _ => format!("tw_{}", plain.trim_start_matches('_')),
    }
}

/// Returns true for a word of C or C++, or a macro that compilers define.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.split_whitespace().any(|reserved| reserved == word)
}

/// Identifiers of one scope, each once.
#[derive(Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// A scope in which these are taken.
    pub fn with(taken: &[&str]) -> Names {
        Names(taken.iter().map(|name| name.to_string()).collect())
    }

    /// The identifier of a name, with a number behind it where that is taken.
    pub fn unique(&mut self, name: &str) -> String {
        let plain = identifier(name);
        let numbered = (2..).map(|n| format!("{plain}_{n}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(plain);
        self.0.insert(name.clone());
        name
    }
}

/// Text for the inside of a comment: it ends no comment and begins none.
pub fn comment(text: &str) -> String {
    let keep = |c: char| c.is_ascii_graphic() && !['\\', '?'].contains(&c) || c == ' ';
    let plain: String = text.chars().map(|c| if keep(c) { c } else { '_' }).collect();
    plain.replace("*/", "* /").replace("/*", "/ *").replace("//", "/ /")
}

/// A string literal of these bytes.
pub fn literal(text: &str) -> String {
    format!("\"{}\"", escaped(text.as_bytes()))
}

/// Bytes inside of a string literal.
pub fn escaped(bytes: &[u8]) -> String {
    let escape = |&byte: &u8| match byte {
        b'"' | b'\\' | b'?' => format!("\\{}", byte as char),
        b' '..=b'~' => (byte as char).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    bytes.iter().map(escape).collect()
}

/// A number of 64 bits; the least one has no literal.
pub fn number(value: i64) -> String {
    match value {
        i64::MIN => format!("(-INT64_C({}) - 1)", i64::MAX),
        _ => format!("INT64_C({value})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_an_identifier() {
        let pairs = [
            ("gemm", "gemm"),
            ("2mm", "tw_2mm"),
            ("seidel-2d", "seidel_2d"),
            ("double", "double_"),
            ("_x", "tw_x"),
            ("", "tw_"),
            ("größe", "gr__e"),
            ("a/b:0", "a_b_0"),
        ];
        for (name, expected) in pairs {
            assert_eq!(identifier(name), expected);
        }
        let mut names = Names::with(&["x"]);
        assert_eq!(["x", "x", "x_2", "y"].map(|n| names.unique(n)), ["x_2", "x_3", "x_2_2", "y"]);
    }

    #[test]
    fn names_end_no_comment_and_no_string() {
        assert_eq!(comment("a*/ int x; /*\n//\\"), "a* / int x; / *_/ /_");
        assert!(!comment("/*/ *//*").contains("*/") && !comment("/*/").contains("/*"));
        assert_eq!(literal("a\"b\\n\n??/ß"), "\"a\\\"b\\\\n\\012\\?\\?/\\303\\237\"");
    }
}
