//! The text language of `.tile` files: tensor expressions, loop programs, schedules.
//!
//! In: text, or a tree that was built in Rust ([`builder`]), and a value for each size. Out: a `poly::scop::Program` for a
//! `def`, a `Scop` for a `loop`, and the schedules as trees of primitives. Invariants: `parse(print(x)) == x`; what is
//! wrong with a text is one message with file, line, column and caret; no access is out of bounds in what comes out.
//!
//! ```text
//! file      = { program | schedule }
//! program   = "def" NAME "(" [ input { "," input } ] ")" "->" "(" [ output { "," output } ] ")"
//!                 "{" { sizes } [ init ] { equation } "}"
//!           | "loop" NAME "(" [ size { "," size } ] ")" "{" { sizes } { arrays } [ init ] { statement } "}"
//! input     = DTYPE [ "(" expr { "," expr } ")" ] NAME
//! output    = NAME | input
//! size      = NAME [ "=" INTEGER ]
//! sizes     = "sizes" NAME "{" NAME "=" INTEGER { "," NAME "=" INTEGER } "}"
//! arrays    = [ "in" | "out" | "inout" | "temp" ] DTYPE NAME { "[" expr "]" } { "," NAME { "[" expr "]" } } [ ";" ]
//! init      = "init" "{" { equation } "}"
//! equation  = element assign expr [ "where" condition { "," condition } ] [ ";" ]
//! condition = NAME "in" expr ".." expr | expr
//! statement = "for" NAME "in" expr ".." expr [ "step" INTEGER ] block
//!           | "if" expr block [ "else" block ]
//!           | [ NAME ":" ] element update expr [ ";" ]
//! block     = statement | "{" { statement } "}"
//! assign    = "=" | "+=" | "*=" | "min=" | "max=" | "+=!" | "*=!" | "min=!" | "max=!"
//! update    = "=" | "+=" | "-=" | "*=" | "/=" | "min=" | "max="
//! element   = NAME "(" [ expr { "," expr } ] ")"          in a def
//!           | NAME { "[" expr "]" }                       in a loop
//! expr      = operands joined by  ||  &&  == != <= >= < >  + -  * / %   (loosest first; comparisons do not chain)
//! operand   = [ "-" | "!" ] operand | INTEGER | REAL | "true" | "false" | "inf" | "nan" | NAME | element
//!           | DTYPE "(" expr ")" | FUNCTION "(" expr { "," expr } ")" | "(" expr ")"
//! schedule  = "schedule" NAME "for" NAME "{" { primitive [ ";" ] } "}"        primitives: see `primitive.rs`
//! ```
//! A comment goes from `#` to the end of its line. DTYPE is one of `f64 f32 f16 bf16 i64 i32 i8 u8 bool`, FUNCTION one of
//! `exp log sqrt tanh erf abs floor ceil round min max pow select`.
//!
//! What it means:
//! - **Types.** Operands have one type; `f32(x)` converts. Numbers and sizes take the type that is asked of them. An index
//!   is an i64. Integers divide towards zero and `%` has the sign of the divisor: -7 / 2 is -3, -7 % 2 is 1.
//! - **def.** The indices of an equation that stand on the left name the element, the others are reduced. Their ranges
//!   follow from the shapes: the largest from 0 for which every read is inside; `where` says them where they do not
//!   follow, and then a read outside of its tensor gives zero. An index on the left without a range of its own stays
//!   inside also with those that have one. `+=!` starts from the neutral element, `+=` from the value that an earlier
//!   equation gave. A subscript may be an element of an integer tensor.
//! - **loop.** Statements run in their order. `for i in a..b` runs to b - 1; a negative step walks the same interval down
//!   from b - 1. Bounds and conditions are affine in the indices (`min` in an upper and `max` in a lower bound as well);
//!   what depends on data is chosen by `select`. Updates such as `+=` of one element may be reordered.
//! - **Sizes** are known when a program is compiled: from the command line, else from the chosen `sizes`, else from the
//!   parameter's own value.
//! - **init** gives the values of arrays that are not given, as equations whose ranges follow from the arrays' shapes.

pub mod builder;
pub mod c;
pub mod condition;
pub mod def;
pub mod environment;
pub mod file;
pub mod lexer;
pub mod loops;
pub mod meaning;
pub mod parser;
pub mod print;
pub mod range;
pub mod scope;
pub mod size;
pub mod source;
pub mod syntax;

pub use parser::parse;
