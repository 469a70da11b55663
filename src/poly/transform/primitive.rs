//! Schedules written by hand, as a file says them: one variant for each primitive.

use crate::expr::syntax::{Expr, Name, Span, Style, list};
use std::fmt::{Display, Formatter, Result};

/// `schedule NAME for PROGRAM { … }`: primitives, applied in order to the program's original order.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Name of the schedule.
    pub name: Name,
    /// Name of the program that it is for.
    pub program: Name,
    /// Primitives in the order in which they apply.
    pub primitives: Vec<Placed>,
}

/// A primitive and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The primitive.
    pub primitive: Primitive,
    /// Place in the text.
    pub span: Span,
}

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
    /// Statement that has the loop; `None` where the name alone says it.
    pub statement: Option<Name>,
    /// Name of the loop.
    pub name: Name,
}

/// One step of a schedule. Each variant shows its text; its fields are the names and numbers of that text.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "each variant shows its text, which has the fields in their order")]
pub enum Primitive {
    /// `split i by 8 -> io, ii`: one loop becomes two.
    Split { which: Loop, by: i64, into: [Name; 2] },
    /// `fuse i, j -> f`: two neighbouring loops become one over both.
    Fuse { which: Loops, into: Name },
    /// `reorder j, i`: the loops in this order, at the places that they had.
    Reorder { which: Loops },
    /// `tile C(i, j) by (8, 16) -> io, jo, ii, ji`: splits and reorders at once.
    Tile { which: Loops, by: Vec<i64>, into: Vec<Name> },
    /// `skew j by 2*i`: j runs as j + 2·i.
    Skew { which: Loop, factor: i64, by: Name },
    /// `shift S(i) by 2`: the statement runs 2 iterations later.
    Shift { which: Loop, by: i64 },
    /// `reverse i`: from the last iteration to the first.
    Reverse { which: Loop },
    /// `merge A, B at i`: statements share their loops down to i.
    Merge { statements: Vec<Name>, at: Name },
    /// `distribute A, B at i`: statements have loops of their own from i inwards.
    Distribute { statements: Vec<Name>, at: Name },
    /// `sequence B, A`: statements in this order, at the places that they had.
    Sequence { statements: Vec<Name> },
    /// `unroll i`, `unroll i by 4`.
    Unroll { which: Loop, by: Option<i64> },
    /// `unroll_and_jam i by 4`: unrolled, the copies inside the inner loops.
    UnrollAndJam { which: Loop, by: i64 },
    /// `vectorize i`, `vectorize i by 8`.
    Vectorize { which: Loop, by: Option<i64> },
    /// `parallel i`.
    Parallel { which: Loop },
    /// `wavefront i`: this loop and the next one in waves.
    Wavefront { which: Loop },
    /// `serial`: all on one thread, without barriers.
    Serial,
    /// `compute_at Bx at y`: computed where y's iteration needs it.
    ComputeAt { tensor: Name, at: Loop },
    /// `compute_inline Bx`: computed again at each use.
    ComputeInline { tensor: Name },
    /// `store_at Bx at y`: its memory lives for one iteration of y.
    StoreAt { tensor: Name, at: Loop },
    /// `cache_read B at ko`: a copy of what one iteration of ko reads; `cache_read B`: a copy that is made before the loops.
    CacheRead { tensor: Name, at: Option<Loop> },
    /// `cache_write C at no`: a local tile that is written back after one iteration of no.
    CacheWrite { tensor: Name, at: Loop },
    /// `pack B as (n / 16, k, n % 16)`: the layout of the copy that `cache_read` made, over the loops that read B.
    Pack { tensor: Name, layout: Vec<Expr> },
    /// `rfactor C over ki -> P`: partial results for each ki, combined afterwards.
    Rfactor { tensor: Name, over: Loop, into: Name },
    /// `tensorize C(mi, ni, ki) with fma`: the loops become one tensor instruction.
    Tensorize { which: Loops, with: Option<Name> },
    /// `peel i`: what does not fill the inner loop of a split runs in a copy of its own.
    Peel { which: Loop },
    /// `pad i to 16`: as if the loop had a multiple of 16 iterations; those too many do nothing.
    Pad { which: Loop, to: i64 },
    /// `normalize`: temporaries inlined, sums in accumulators, loops from 0 on.
    Normalize,
    /// `divide`: loops apart where a read meets what they write.
    Divide,
    /// `expand`: a copy of scalar temporaries for each iteration.
    Expand,
}

/// The words that begin a primitive.
pub const KEYWORDS: [&str; 29] = [
    "split",
    "fuse",
    "reorder",
    "tile",
    "skew",
    "shift",
    "reverse",
    "merge",
    "distribute",
    "sequence",
    "unroll",
    "unroll_and_jam",
    "vectorize",
    "parallel",
    "wavefront",
    "serial",
    "compute_at",
    "compute_inline",
    "store_at",
    "cache_read",
    "cache_write",
    "pack",
    "rfactor",
    "tensorize",
    "peel",
    "pad",
    "normalize",
    "divide",
    "expand",
];

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

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter) -> Result {
        writeln!(f, "schedule {} for {} {{", self.name, self.program)?;
        self.primitives.iter().try_for_each(|p| writeln!(f, "    {}", p.primitive))?;
        f.write_str("}\n")
    }
}

impl Display for Primitive {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let names = |names: &[Name]| list(names, Name::to_string);
        let by = |by: &Option<i64>| by.map_or(String::new(), |n| format!(" by {n}"));
        match self {
            Primitive::Split { which, by, into } => write!(f, "split {which} by {by} -> {}", names(into)),
            Primitive::Fuse { which, into } => write!(f, "fuse {which} -> {into}"),
            Primitive::Reorder { which } => write!(f, "reorder {which}"),
            Primitive::Tile { which, by, into } => {
                write!(f, "tile {which} by ({}) -> {}", list(by, i64::to_string), names(into))
            }
            Primitive::Skew { which, factor, by } => write!(f, "skew {which} by {factor}*{by}"),
            Primitive::Shift { which, by } => write!(f, "shift {which} by {by}"),
            Primitive::Reverse { which } => write!(f, "reverse {which}"),
            Primitive::Merge { statements, at } => write!(f, "merge {} at {at}", names(statements)),
            Primitive::Distribute { statements, at } => write!(f, "distribute {} at {at}", names(statements)),
            Primitive::Sequence { statements } => write!(f, "sequence {}", names(statements)),
            Primitive::Unroll { which, by: n } => write!(f, "unroll {which}{}", by(n)),
            Primitive::UnrollAndJam { which, by } => write!(f, "unroll_and_jam {which} by {by}"),
            Primitive::Vectorize { which, by: n } => write!(f, "vectorize {which}{}", by(n)),
            Primitive::Parallel { which } => write!(f, "parallel {which}"),
            Primitive::Wavefront { which } => write!(f, "wavefront {which}"),
            Primitive::Serial => f.write_str("serial"),
            Primitive::Normalize => f.write_str("normalize"),
            Primitive::Divide => f.write_str("divide"),
            Primitive::Expand => f.write_str("expand"),
            Primitive::ComputeAt { tensor, at } => write!(f, "compute_at {tensor} at {at}"),
            Primitive::ComputeInline { tensor } => write!(f, "compute_inline {tensor}"),
            Primitive::StoreAt { tensor, at } => write!(f, "store_at {tensor} at {at}"),
            Primitive::CacheRead { tensor, at: Some(at) } => write!(f, "cache_read {tensor} at {at}"),
            Primitive::CacheRead { tensor, at: None } => write!(f, "cache_read {tensor}"),
            Primitive::CacheWrite { tensor, at } => write!(f, "cache_write {tensor} at {at}"),
            Primitive::Pack { tensor, layout } => {
                write!(f, "pack {tensor} as ({})", list(layout, |e| e.text(Style::Round, 0)))
            }
            Primitive::Rfactor { tensor, over, into } => write!(f, "rfactor {tensor} over {over} -> {into}"),
            Primitive::Tensorize { which, with } => {
                write!(f, "tensorize {which}{}", with.as_ref().map_or(String::new(), |w| format!(" with {w}")))
            }
            Primitive::Peel { which } => write!(f, "peel {which}"),
            Primitive::Pad { which, to } => write!(f, "pad {which} to {to}"),
        }
    }
}
