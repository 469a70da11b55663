//! Schedules by hand: each primitive maps a program and its order to a program and its order.
//!
//! In: a Scop in its original order, primitives. Out: the tree after them, proven legal, or a refusal with two
//! instances that would run in the wrong order and the tree with the place marked. A loop is named by its row, `i`, or
//! `S(i)` where loops of several statements have one name. The names are Halide's and TVM's.

pub mod argument;
mod cache;
mod compute;
mod fuse;
mod inline;
mod insert;
mod layout;
mod loops;
mod pack;
mod phase_order;
pub mod primitive;
mod program;
mod rfactor;
pub mod state;
mod statements;
mod tensorize;
pub mod to_primitives;
mod tree_edit;
mod value;

use crate::expr::syntax::Name;
use crate::poly::analysis::dependence;
use crate::poly::analysis::legality;
use crate::poly::print::Line;
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::transform::primitive::{Placed, Primitive};
use crate::poly::transform::state::{Proven, SourceProgram, Transformed};
use crate::runtime::refusal::Refusal;
use crate::runtime::{Error, Result};

/// Applies all `primitives` to a program in its original order and proves the result; trees in between may be illegal where
/// later primitives mend them.
///
/// # Errors
/// The number of the refused primitive, with `Schedule`.
pub fn apply_all(original: &SourceProgram, primitives: &[Placed]) -> std::result::Result<Proven, (usize, Error)> {
    let order = storage_first(primitives);
    let primitives: Vec<Placed> = order.iter().map(|&i| primitives[i].clone()).collect();
    apply_in_order(original, &primitives).map_err(|(i, e)| (order.get(i).copied().unwrap_or(i), e))
}

/// The numbers of the primitives in the order in which they are applied: where a value is stored is said before where in
/// there it is computed.
fn storage_first(primitives: &[Placed]) -> Vec<usize> {
    let mut order: Vec<usize> = vec![];
    for (i, p) in primitives.iter().enumerate() {
        let computes = |j: &usize| match (&p.primitive, &primitives[*j].primitive) {
            (Primitive::StoreAt { tensor, .. }, Primitive::ComputeAt { tensor: other, .. }) => tensor == other,
            _ => false,
        };
        order.insert(order.iter().position(computes).unwrap_or(order.len()), i);
    }
    order
}

fn apply_in_order(original: &SourceProgram, primitives: &[Placed]) -> std::result::Result<Proven, (usize, Error)> {
    let mut states = vec![Transformed::new(original.written.clone())];
    let mut first = 0;
    let part = |states: Vec<Transformed>, first: usize, end: usize| {
        let tree = states[0].clone();
        prove(states, &primitives[first..end]).map_err(|(index, e)| match first.checked_sub(1) {
            // The tree that the last primitive that changes programs made.
            Some(last) if index == 0 => match illegal(&tree) {
                Some(own) => (last, shown(own, &tree, &primitives[last].primitive)),
                None if first == end => (last, shown(e, &tree, &primitives[last].primitive)),
                None => (first, e),
            },
            _ => (first + index, e),
        })
    };
    for (i, p) in primitives.iter().enumerate() {
        let next = apply(original, &states[states.len() - 1], &p.primitive).map_err(|e| (i, e))?;
        if next.scop != states[0].scop {
            let before = std::mem::take(&mut states);
            let as_written = before[0].is_as_given();
            if first < i || !as_written {
                part(before, first, i)?;
            }
            first = i + 1;
        }
        states.push(next);
    }
    part(states, first, primitives.len())
}

/// Why an order is not legal.
fn illegal(t: &Transformed) -> Option<Error> {
    dependence::analyze(&t.scop).and_then(|d| legality::check(&t.scop, &d, &t.schedule)).err()
}

/// The last of `states`, proven; or the refusal of the primitive from which on no state is legal. `states[i]` is what
/// `primitives[..i]` make of the first.
fn prove(mut states: Vec<Transformed>, primitives: &[Placed]) -> std::result::Result<Proven, (usize, Error)> {
    let mut last = states.pop().expect("a first state");
    let dependences = dependence::analyze(&last.scop).map_err(|e| (0, e))?;
    let mut refusal = match Proven::new(last.clone(), &dependences) {
        Ok(proven) => return check_loops(proven, &last, primitives),
        Err(e) if primitives.is_empty() => return Err((0, e)),
        Err(e) => e,
    };
    loop {
        let index = states.len() - 1;
        let before = states.pop().expect("the first state is legal");
        match legality::check(&before.scop, &dependences, &before.schedule) {
            Err(e) if index > 0 => (last, refusal) = (before, e),
            _ => return Err((index, shown(refusal, &last, &primitives[index].primitive))),
        }
    }
}

/// Refuses a legal order whose loops cannot be built: parallel loops inside of each other, copies that have no place.
/// `tree` is the order with the flags that it was written with.
fn check_loops(
    mut proven: Proven,
    tree: &Transformed,
    primitives: &[Placed],
) -> std::result::Result<Proven, (usize, Error)> {
    let end = primitives.len().saturating_sub(1);
    let refused = |index: usize, tree: &Transformed, e: Error| match primitives.get(index) {
        Some(p) => (index, shown(e, tree, &p.primitive)),
        None => (index, e),
    };
    loops::check_outermost(&tree.schedule.root, None, false).map_err(|e| refused(end, tree, e))?;
    if !tree.packings.is_empty() || !tree.scop.privates.is_empty() {
        let packs = |p: &Placed| {
            matches!(p.primitive, Primitive::CacheRead { .. } | Primitive::Pack { .. } | Primitive::PackRead { .. })
        };
        let index = primitives.iter().rposition(packs).unwrap_or(end);
        proven.try_loops().map_err(|e| refused(index, proven.state(), e))?;
    }
    Ok(proven)
}

/// Applies one primitive without proving the order. A program without statements stays as it is.
///
/// # Errors
/// `Schedule` when the primitive does not fit.
pub fn apply(original: &SourceProgram, before: &Transformed, primitive: &Primitive) -> Result<Transformed> {
    if before.scop.statements.is_empty() {
        return Ok(before.clone());
    }
    if let Some(name) = scattered(&before.scop, primitive) {
        let why = format!("`{name}` is written at subscripts from data: what one iteration writes is not known");
        return Err(shown(Error::refused(why), before, primitive));
    }
    primitive.carry_out(before, original).map_err(|e| shown(e, before, primitive))
}

/// The tensor that a primitive copies or moves, where a scatter writes it.
fn scattered<'p>(scop: &Scop, primitive: &'p Primitive) -> Option<&'p Name> {
    let tensor = match primitive {
        Primitive::ComputeAt { tensor, .. }
        | Primitive::ComputeInline { tensor }
        | Primitive::StoreAt { tensor, .. }
        | Primitive::CacheRead { tensor, .. }
        | Primitive::CacheWrite { tensor, .. }
        | Primitive::Pack { tensor, .. } => tensor,
        Primitive::PackRead { read, .. } => &read.tensor,
        _ => return None,
    };
    let writes = |s: &crate::poly::statement::Statement| s.is_scatter() && scop.tensor(s.target).name == tensor.text;
    scop.statements.iter().any(writes).then_some(tensor)
}

/// The refusal of a primitive with the tree that it is about.
fn shown(e: Error, tree: &Transformed, primitive: &Primitive) -> Error {
    match e {
        Error::Schedule(refusal) => {
            let tree = Some(picture(&tree.scop, &tree.schedule, primitive));
            Error::Schedule(Box::new(Refusal { primitive: Some(primitive.to_string()), tree, ..*refusal }))
        }
        e => e,
    }
}

/// The tree with an arrow at the loops that a primitive is about. Where it is about statements alone, at the parts of a
/// sequence that have some of them, or all where no part has less.
fn picture(scop: &Scop, schedule: &Schedule, primitive: &Primitive) -> String {
    let (marks, mut statements) = (primitive.loops(), primitive.statements());
    if !marks.is_empty() {
        statements = &[];
    }
    let is_called =
        |id: &StatementId, name: &str| crate::poly::transform::tree_edit::is_called(&scop.statement(*id).name, name);
    let count = |ids: &[StatementId]| statements.iter().filter(|name| ids.iter().any(|id| is_called(id, name))).count();
    let mut has_less = false;
    schedule.for_each_part(&mut |ids| has_less |= (1..statements.len()).contains(&count(ids)));
    let marked = |line: Line| match line {
        Line::Row(row) => marks.iter().any(|(statement, name)| {
            let covers = |s: &Name| row.phi.iter().any(|(id, _)| is_called(id, s));
            row.name == name.text && statement.is_none_or(covers)
        }),
        Line::Part(ids) => count(ids) > 0 && (count(ids) < statements.len() || !has_less),
    };
    let text = schedule.print_marked(scop, &marked);
    text.lines().map(|line| format!("  {line}\n")).collect::<String>().trim_end().to_string()
}
