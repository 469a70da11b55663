//! Tiling: tiles, vectors, register blocks and packing from a cost model, without search on the machine.
//!
//! In: a Scop and a schedule of it. Out: the schedule with tile rows outside, point rows (unrolled and vector)
//! innermost, the operands to pack, and what the model expects. Each child of the root's sequence (or the root) becomes
//! one phase. In a phase the *dominant* statement, the one with most instances, decides: [`register_block`] chooses the
//! vector iterator and the block in registers, [`cache`] the order of the loops over blocks. The other statements
//! follow with the same tiles on the rows they share, and choose vectors of their own on rows further in.
//!
//! Invariant: only rows without dependences are tiled or moved; the result goes through the same legality check as any
//! schedule.

mod band;
mod by_hand;
pub mod cache;
mod candidates;
mod distribute;
mod nest;
mod operands;
mod phase;
pub mod plan;
pub mod register_block;
mod sums;
mod tensorized;

use crate::codegen::Target;
use crate::codegen::machine::Machine;
use crate::expr::Affine;
use crate::expr::interval::ceil_div;
use crate::poly::analysis::dependence::{self, Dependences};
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule, SchedulePart, steps_of};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;
use crate::poly::tile::band::context::Bands;
pub use crate::poly::tile::band::context::{Style, Vectors};
pub use crate::poly::tile::by_hand::{as_given, described};
use crate::poly::tile::cache::Constants;
use crate::poly::tile::plan::{Phase, Plan};
use crate::poly::tile::report::{Tiled, TilingReport, instances, work};
use crate::runtime::Result;

/// Chooses tiles for every phase of `schedule`, for constants in memory.
pub fn tile(scop: &Scop, schedule: &Schedule, target: &Target) -> Result<Tiled> {
    tile_for(scop, schedule, target, Constants::Memory)
}

/// Chooses tiles for every phase of `schedule`.
pub fn tile_for(scop: &Scop, schedule: &Schedule, target: &Target, constants: Constants) -> Result<Tiled> {
    tile_in(scop, None, schedule, target, constants, Style::default())
}

/// Chooses tiles for every phase of `schedule`, of those that `style` allows. With the dependences, loops that carry some may become vectors.
pub fn tile_in(
    scop: &Scop,
    dependences: Option<&Dependences>,
    schedule: &Schedule,
    target: &Target,
    constants: Constants,
    style: Style,
) -> Result<Tiled> {
    let all: Vec<StatementId> = scop.ids().collect();
    let phases: Vec<(Vec<StatementId>, &Node)> = match &schedule.root {
        Node::Sequence(children) => children.iter().map(|(s, n)| (s.clone(), n)).collect(),
        node => vec![(all.clone(), node)],
    };
    let mut packings = vec![];
    let mut planned = vec![];
    for (statements, node) in phases {
        if style.boxes && is_tensor_expression(scop, &statements, node) {
            let phase = Phase { scop, target, statements: &statements, held: &[], constants, unrolled: style.unrolled };
            planned.extend(phase.plan_apart(node, &mut packings));
        } else {
            let bands = Bands { scop, target, statements: &statements, dependences, isl: Isl::default(), style };
            let plan = bands.plan(node);
            planned.push((statements, plan));
        }
    }
    let total: f64 = planned.iter().map(|p| p.1.report.predicted_ns).sum();
    let mut report = TilingReport { predicted_ns: total, ..work(scop) };
    // Short kernels run as one phase on one thread: a barrier costs more than the threads save.
    let together = total < target.machine.serial_ns && planned.len() > 1;
    let mut nodes = vec![];
    for (statements, Plan { mut node, report: mut phase, free_rows }) in planned {
        if phase.predicted_ns >= target.machine.serial_ns && !together {
            phase.parallel = parallelize(scop, &mut node, free_rows, &target.machine)
                || in_waves(scop, &mut node)
                || in_steps(scop, &mut node, phase.predicted_ns, &target.machine);
        }
        report.phases.push(phase);
        nodes.push((statements, node));
    }
    let once = Band { rows: vec![Row::once(all)], permutable: true };
    let root = match nodes.len() {
        1 => match nodes.remove(0).1 {
            // One tile is the whole domain: without loops around its statements they are one phase none the less.
            Node::Sequence(parts) => Node::Band(once, Box::new(Node::Sequence(parts))),
            node => node,
        },
        _ if together => Node::Band(once, Box::new(Node::Sequence(nodes))),
        _ => Node::Sequence(nodes),
    };
    let tiled = Tiled { schedule: Schedule { root }.without_single_loops(scop), packings, report };
    let tensorized = crate::poly::tile::by_hand::is_tensorized(&tiled, scop, target);
    Ok(Tiled { report: TilingReport { tensorized, ..tiled.report }, ..tiled })
}

/// Returns true if a phase has the shape of a tensor expression: no scatters, boxes, loops over one iterator of each statement, and
/// innermost loops that carry only the sum of the one statement in them.
fn is_tensor_expression(scop: &Scop, statements: &[StatementId], node: &Node) -> bool {
    if statements.iter().any(|&s| scop.statement(s).is_scatter()) {
        return false;
    }
    if scop.order == Schedule::in_sequence(&scop.statements) {
        return true;
    }
    let mut plain = statements.iter().all(|&s| scop.statement(s).domain.is_empty());
    let mut coincident = false;
    node.for_each_band(&mut |band| {
        let single = |a: &Affine| a.constant == 0 && matches!(a.terms[..], [] | [(_, 1)]);
        plain &= band.rows.iter().all(|r| r.tile == 1 && r.phi.iter().all(|p| single(&p.1)));
        coincident |= band.rows.iter().any(|r| r.coincident);
    });
    let outer = matches!(node, Node::Band(band, _) if band.rows.iter().any(|r| r.coincident));
    plain && (outer || !coincident) && carries_sums(scop, node, statements)
}

/// Returns true if the innermost bands carry only the reduction of a single statement.
fn carries_sums(scop: &Scop, node: &Node, statements: &[StatementId]) -> bool {
    let Some((rows, permutable, _)) = phase::leaf_group(node) else {
        return match node {
            Node::Band(_, child) => carries_sums(scop, child, statements),
            Node::Sequence(children) => children.iter().all(|(ids, child)| carries_sums(scop, child, ids)),
            Node::Leaf => true,
        };
    };
    let (coincident, carried): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|r| r.coincident);
    let sums = |id: StatementId| {
        let s = scop.statement(id);
        let reduced =
            |r: &Row| s.reduce.is_some() && r.of(id).terms.iter().all(|t| s.write.iter().all(|w| !w.uses(t.0)));
        let fixed: Vec<Affine> = coincident.iter().map(|r| r.of(id).clone()).collect();
        carried.iter().all(reduced) && matches!(dependence::reads_sums(s, &fixed, &Isl::default()), Ok(false))
    };
    carried.is_empty() || permutable && matches!(statements, [id] if sums(*id))
}

/// Marks the outermost rows that carry no dependence, as many as it takes to balance threads; beyond the first `free` rows
/// only when there would be too few otherwise.
fn parallelize(scop: &Scop, node: &mut Node, free: usize, machine: &Machine) -> bool {
    let Node::Band(band, _) = node else { return false };
    let mut steps = 1;
    let mut tiled: Vec<(Vec<(StatementId, Affine)>, i64)> = vec![];
    for (i, row) in band.rows.iter_mut().enumerate() {
        if i >= free && steps >= machine.busy_steps {
            break;
        }
        if !row.coincident || row.kind != RowKind::Serial || steps >= machine.parallel_steps {
            break;
        }
        let outer = tiled.iter().filter(|t| t.0 == row.phi).map(|t| t.1).min().unwrap_or(i64::MAX);
        steps *= ceil_div(row.extent(scop).min(outer), row.tile);
        tiled.push((row.phi.clone(), row.tile));
        row.kind = RowKind::Parallel;
    }
    steps > 1
}

/// Marks the first two of several tile rows that carry dependences to run in waves.
fn in_waves(scop: &Scop, node: &mut Node) -> bool {
    let Node::Band(band, _) = node else { return false };
    let permutable = band.permutable;
    let [first, second, ..] = &mut band.rows[..] else { return false };
    let tiles = |r: &Row| r.tile > 1 && !r.coincident && r.extent(scop) > r.tile;
    // The updates of one element must not meet in one wave.
    let keeps_elements = |r: &Row| {
        r.phi.iter().all(|(id, phi)| {
            let s = scop.statement(*id);
            s.reduce.is_none() || phi.terms.iter().all(|t| s.is_subscript(t.0))
        })
    };
    let waves = permutable && tiles(first) && tiles(second) && (keeps_elements(first) || keeps_elements(second));
    if waves {
        first.kind = RowKind::Wavefront;
    }
    waves
}

/// Marks the outermost rows that carry no dependence inside of a serial outermost row, in those parts of its steps that take
/// long enough.
fn in_steps(scop: &Scop, node: &mut Node, ns: f64, machine: &Machine) -> bool {
    let Node::Band(band, child) = node else { return false };
    let Some(parts) = steps_of(band, child).filter(|parts| scop.private_to(parts)) else { return false };
    let work = |ids: &[StatementId]| -> f64 {
        let operations_of =
            |s: &StatementId| instances(scop, *s) * (crate::poly::analysis::access::operations(scop, *s) + 1.0);
        ids.iter().map(operations_of).sum()
    };
    let all =
        work(&parts.iter().flat_map(|p| p.statements.clone()).collect::<Vec<_>>()) * band.rows[0].extent(scop) as f64;
    let share = |p: &SchedulePart| {
        let worth = ns * work(&p.statements) / all >= machine.serial_ns;
        p.first().is_some_and(|r| worth && r.coincident && r.kind == RowKind::Serial && r.extent(scop) > r.tile)
    };
    let chosen: Vec<bool> = parts.iter().map(share).collect();
    let mark = |node: &mut Node| {
        if let Node::Band(band, _) = node {
            band.rows[0].kind = RowKind::Parallel;
        }
    };
    match &mut **child {
        _ if band.rows.len() > 1 && chosen[0] => band.rows[1].kind = RowKind::Parallel,
        Node::Sequence(children) if band.rows.len() == 1 => {
            children.iter_mut().zip(&chosen).filter(|c| *c.1).for_each(|c| mark(&mut c.0.1))
        }
        node if chosen[0] => mark(node),
        _ => {}
    }
    chosen.contains(&true)
}

pub mod report;
#[cfg(test)]
mod tests;
