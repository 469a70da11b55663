//! Schedules by hand: each primitive is a function from a schedule to a schedule.
//!
//! In: a Scop, a legal tree, a primitive. Out: the tree after it, proven legal, or a refusal with two instances that would
//! run in the wrong order and the tree with the place marked. A loop is named by its row, `i`, or `S(i)` where loops of
//! several statements have one name. The words are Halide's and TVM's.

mod edit;
mod loops;
mod statements;

use crate::poly::dependence::{self, Dependences};
use crate::poly::language::primitive::{Loop, Placed, Primitive};
use crate::poly::legality;
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::{Error, Result};

pub use loops::{parallel, peel, reorder, reverse, shift, skew, split, tile, unroll, unroll_and_jam, vectorize};
pub use statements::{distribute, merge};

/// The schedule after all `primitives`, from the original order, and the first that is refused, by its number.
pub fn apply_all(scop: &Scop, primitives: &[Placed]) -> std::result::Result<Schedule, (usize, Error)> {
    let dependences = match primitives.is_empty() {
        true => Dependences::default(),
        false => dependence::analyze(scop).map_err(|e| (0, e))?,
    };
    let mut schedule = scop.order.clone();
    for (i, p) in primitives.iter().enumerate() {
        schedule = apply(scop, &dependences, &schedule, &p.primitive).map_err(|e| (i, e))?;
    }
    Ok(schedule)
}

/// The schedule after one primitive. `Schedule` when it is refused, `Unsupported` for what is not done by hand yet.
pub fn apply(scop: &Scop, dependences: &Dependences, schedule: &Schedule, primitive: &Primitive) -> Result<Schedule> {
    let transformed = match primitive {
        Primitive::Split { which, by, into } => split(scop, schedule, which, *by, into),
        Primitive::Reorder { which } => reorder(scop, schedule, which),
        Primitive::Tile { which, by, into } => tile(scop, schedule, which, by, into),
        Primitive::Skew { which, factor, by } => skew(scop, schedule, which, *factor, by),
        Primitive::Shift { which, by } => shift(scop, schedule, which, *by),
        Primitive::Reverse { which } => reverse(scop, schedule, which),
        Primitive::Merge { statements, at } => merge(scop, schedule, statements, at),
        Primitive::Distribute { statements, at } => distribute(scop, schedule, statements, at),
        Primitive::Unroll { which, by } => unroll(scop, schedule, which, *by),
        Primitive::UnrollAndJam { which, by } => unroll_and_jam(scop, schedule, which, *by),
        Primitive::Vectorize { which, by } => vectorize(scop, schedule, which, *by),
        Primitive::Parallel { which } => parallel(scop, schedule, which),
        Primitive::Peel { which } => peel(scop, schedule, which),
        Primitive::Fuse { .. }
        | Primitive::ComputeAt { .. }
        | Primitive::ComputeInline { .. }
        | Primitive::StoreAt { .. }
        | Primitive::CacheRead { .. }
        | Primitive::CacheWrite { .. }
        | Primitive::Pack { .. }
        | Primitive::Rfactor { .. }
        | Primitive::Tensorize { .. }
        | Primitive::Pad { .. } => {
            return Err(Error::Unsupported(format!("`{primitive}`: this primitive is not done by hand yet")));
        }
    };
    let shown = |e: Error, tree: &Schedule, marked: &[&str]| match e {
        Error::Schedule(why) => Error::Schedule(format!("`{primitive}`: {why}\n{}", picture(scop, tree, marked))),
        e => e,
    };
    let transformed = transformed.map_err(|e| shown(e, schedule, &marks(primitive)))?;
    legality::check(scop, dependences, &transformed).map_err(|e| shown(e, &transformed, &marks(primitive)))?;
    Ok(transformed)
}

/// The loops that a primitive is about.
fn marks(primitive: &Primitive) -> Vec<&str> {
    fn one(l: &Loop) -> Vec<&str> {
        vec![&l.name]
    }
    match primitive {
        Primitive::Split { which, into, .. } => [one(which), into.iter().map(|n| &**n).collect()].concat(),
        Primitive::Tile { which, into, .. } => which.names.iter().chain(into).map(|n| &**n).collect(),
        Primitive::Reorder { which } => which.names.iter().map(|n| &**n).collect(),
        Primitive::Skew { which, .. }
        | Primitive::Shift { which, .. }
        | Primitive::Reverse { which }
        | Primitive::Unroll { which, .. }
        | Primitive::UnrollAndJam { which, .. }
        | Primitive::Vectorize { which, .. }
        | Primitive::Parallel { which }
        | Primitive::Peel { which } => one(which),
        Primitive::Merge { at, .. } | Primitive::Distribute { at, .. } => vec![at],
        _ => vec![],
    }
}

/// The tree with an arrow at the rows of these names.
fn picture(scop: &Scop, schedule: &Schedule, marked: &[&str]) -> String {
    let mut out = String::new();
    for line in schedule.print(scop).lines() {
        let row = line.trim_start().split_once(" [").map(|(name, _)| name);
        let arrow = if row.is_some_and(|name| marked.contains(&name)) { "   <--" } else { "" };
        out.push_str(&format!("  {line}{arrow}\n"));
    }
    out.trim_end().to_string()
}
