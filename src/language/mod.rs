//! The text language of `.tile` files: tensor expressions, loop programs, schedules.
//!
//! In: text, or a tree that was built in Rust ([`builder`]), and a value for each size. Out: a `poly::scop::Program` for a
//! `def`, a `Scop` for a `loop`, and the schedules as trees of primitives. Invariants: `parse(print(x)) == x`; an
//! error in a text is one message with file, line, column and caret; no access of the result is out of bounds.
//!
#![doc = include_str!("grammar.md")]

pub mod bound_checks;
pub mod bound_parts;
pub mod branches;
pub mod builder;
pub mod c;
pub mod condition;
pub mod def;
pub mod dynamic_loops;
pub mod element_ranges;
pub mod environment;
pub mod file;
pub mod forwarding;
pub mod hints;
pub mod if_conversion;
pub mod instruction;
mod kept_inside;
pub mod lexer;
pub mod live_ranges;
pub mod loops;
pub mod lowered;
pub mod parser;
pub mod print;
pub mod range;
pub mod remainders;
pub mod scope;
pub mod size;
pub mod source;
pub mod subscript_checks;
pub mod syntax;

pub use parser::parse;
