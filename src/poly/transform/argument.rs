//! Kinds of arguments that primitives have.
//!
//! A kind is the name of a type here. It stands in two more lists: `view`, how it is printed and which loops it names,
//! and `read` of the language's parser. A type that is new has its own line in the builder of schedules too.

use crate::expr::syntax::{Expr, Name, Style, list};
use std::fmt::{Display, Formatter, Result};

/// Loops by their names, `m, n`; of one statement where others have loops of the same names, `C(m, n)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Loops {
    /// Statement that has the loops; `None` where the names alone say it.
    pub statement: Option<Name>,
    /// Names, outermost first.
    pub names: Vec<Name>,
}

/// One loop: `m`, or `C(m)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// Statement that has the loop; `None` where the name is unique.
    pub statement: Option<Name>,
    /// Name of the loop.
    pub name: Name,
}

/// Reads of an array: `B`, or those of one statement, `S(B)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Read {
    /// Statement that reads; `None` for all.
    pub statement: Option<Name>,
    /// The array.
    pub tensor: Name,
}

/// A loop without a statement: `m`.
pub type LoopName = Name;
/// A loop around the one that is named before.
pub type OuterLoop = Name;
/// The name of a loop that the primitive makes.
pub type NewLoop = Name;
/// Names of the loop over tiles and the one inside a tile: `io, ii`.
pub type NewPair = [Name; 2];
/// Names of the loops over tiles, then of those inside a tile, of as many loops as are tiled: `io, jo, ii, ji`.
pub type NewTiles = Vec<Name>;
/// Statements, `A, B`.
pub type Statements = Vec<Name>;
/// An array of the program.
pub type Tensor = Name;
/// The name of an array that the primitive makes.
pub type NewTensor = Name;
/// A part of the name of a tensor instruction, `outer_product`.
pub type Instruction = Name;
/// A positive number.
pub type Count = i64;
/// A number of iterations, negative for earlier ones.
pub type Iterations = i64;
/// `2*` before a loop; 1 where nothing is written.
pub type Factor = i64;
/// A positive number for each loop that is tiled: `(8, 16)`.
pub type TileSizes = Vec<i64>;
/// Subscripts in parentheses: `(n / 16, k, n % 16)`.
pub type Layout = Vec<Expr>;

/// An argument of any kind.
pub enum Argument<'a> {
    Loop(&'a Loop),
    Loops(&'a Loops),
    Read(&'a Read),
    /// Loops of the statement that loops before them name.
    LoopNames(&'a [Name]),
    Statements(&'a [Name]),
    /// Anything else that has a name.
    Name(&'a Name),
    Integer(i64),
    Factor(i64),
    Integers(&'a [i64]),
    Layout(&'a [Expr]),
}

/// An argument of a kind.
macro_rules! view {
    (Loop $value:expr) => {
        Argument::Loop($value)
    };
    (Loops $value:expr) => {
        Argument::Loops($value)
    };
    (Read $value:expr) => {
        Argument::Read($value)
    };
    (LoopName $value:expr) => {
        Argument::LoopNames(std::slice::from_ref($value))
    };
    (OuterLoop $value:expr) => {
        Argument::Name($value)
    };
    (NewLoop $value:expr) => {
        Argument::LoopNames(std::slice::from_ref($value))
    };
    (NewPair $value:expr) => {
        Argument::LoopNames($value)
    };
    (NewTiles $value:expr) => {
        Argument::LoopNames($value)
    };
    (Statements $value:expr) => {
        Argument::Statements($value)
    };
    (Tensor $value:expr) => {
        Argument::Name($value)
    };
    (NewTensor $value:expr) => {
        Argument::Name($value)
    };
    (Instruction $value:expr) => {
        Argument::Name($value)
    };
    (Count $value:expr) => {
        Argument::Integer(*$value)
    };
    (Iterations $value:expr) => {
        Argument::Integer(*$value)
    };
    (Factor $value:expr) => {
        Argument::Factor(*$value)
    };
    (TileSizes $value:expr) => {
        Argument::Integers($value)
    };
    (Layout $value:expr) => {
        Argument::Layout($value)
    };
}
pub(super) use view;

/// Passes an argument to a function: numbers by value, all else by reference.
pub(super) trait Pass {
    type As<'a>
    where
        Self: 'a;
    fn pass(&self) -> Self::As<'_>;
}

impl Pass for i64 {
    type As<'a> = i64;
    fn pass(&self) -> i64 {
        *self
    }
}

impl<T: Pass> Pass for Option<T> {
    type As<'a>
        = Option<T::As<'a>>
    where
        T: 'a;
    fn pass(&self) -> Option<T::As<'_>> {
        self.as_ref().map(T::pass)
    }
}

macro_rules! by_reference {
    ($($type:ty)*) => {$(
        impl Pass for $type {
            type As<'a> = &'a $type;
            fn pass(&self) -> &$type {
                self
            }
        }
    )*};
}
by_reference!(Loop Loops Read Name [Name; 2] Vec<Name> Vec<i64> Vec<Expr>);

impl Display for Loops {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let names = list(&self.names, Name::to_string);
        match &self.statement {
            Some(s) => write!(f, "{s}({names})"),
            None => f.write_str(&names),
        }
    }
}

impl Display for Loop {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match &self.statement {
            Some(s) => write!(f, "{s}({})", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl Display for Read {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match &self.statement {
            Some(s) => write!(f, "{s}({})", self.tensor),
            None => write!(f, "{}", self.tensor),
        }
    }
}

impl Display for Argument<'_> {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match self {
            Argument::Loop(l) => write!(f, "{l}"),
            Argument::Loops(l) => write!(f, "{l}"),
            Argument::Read(r) => write!(f, "{r}"),
            Argument::Name(name) => write!(f, "{name}"),
            Argument::LoopNames(names) | Argument::Statements(names) => f.write_str(&list(names, Name::to_string)),
            Argument::Integer(n) => write!(f, "{n}"),
            Argument::Factor(n) => write!(f, "{n}*"),
            Argument::Integers(numbers) => write!(f, "({})", list(numbers, i64::to_string)),
            Argument::Layout(layout) => write!(f, "({})", list(layout, |e| e.text(Style::Round, 0))),
        }
    }
}
