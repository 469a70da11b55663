//! Reports for schedules by hand, which need no choices: the statements that became tensor instructions.
//!
//! In: a Scop and a schedule by hand. Out: the same schedule with a report of its rows. An update whose vector is one of
//! its iterators is a tensor instruction of the target where one matches, by `tensorize` or by other primitives.

use crate::codegen::Target;
use crate::poly::analysis::operation_count::flops_of_instance;
use crate::poly::instruction::group::closest;
use crate::poly::instruction::{match_stored, select_by};
use crate::poly::packing::Packing;
use crate::poly::schedule::{Row, RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::tile::report::{PhaseReport, Tiled, TilingReport, instances, work};

/// Keeps a schedule as it is, without loops over a single value.
pub fn as_given(scop: &Scop, schedule: &Schedule, packings: &[Packing]) -> Tiled {
    Tiled { schedule: schedule.without_single_loops(scop), packings: packings.to_vec(), report: work(scop) }
}

/// Adds a phase to the report for each statement that accumulates.
pub fn described(tiled: Tiled, scop: &Scop, target: &Target) -> Tiled {
    let phases = updates(scop).map(|id| phase(&tiled, scop, id, target)).collect();
    let tensorized = is_tensorized(&tiled, scop, target);
    Tiled { report: TilingReport { phases, tensorized, ..tiled.report }, ..tiled }
}

/// Returns true if the accumulating statement with most work matches an instruction of the target.
pub fn is_tensorized(tiled: &Tiled, scop: &Scop, target: &Target) -> bool {
    let weight = |id: &StatementId| instances(scop, *id) * flops_of_instance(scop.statement(*id));
    let dominant = updates(scop).max_by(|a, b| weight(a).total_cmp(&weight(b)));
    dominant.is_some_and(|id| phase(tiled, scop, id, target).instruction.is_some())
}

fn updates(scop: &Scop) -> impl Iterator<Item = StatementId> {
    scop.ids().filter(|id| scop.statement(*id).reduce.is_some() && !scop.statement(*id).is_scatter())
}

fn phase(tiled: &Tiled, scop: &Scop, id: StatementId, target: &Target) -> PhaseReport {
    let s = scop.statement(id);
    let path = tiled.schedule.path(id);
    let rows: Vec<&Row> =
        path.iter().filter_map(|step| if let TimeDimension::Row(r) = step { Some(*r) } else { None }).collect();
    let is_point = |r: &&&Row| matches!(r.kind, RowKind::Vector | RowKind::Unroll);
    let names = |rows: Vec<&&Row>| rows.iter().map(|r| r.name.as_str()).collect::<Vec<_>>().join(" ");
    let mut report = PhaseReport {
        statement: s.name.clone(),
        block: names(rows.iter().filter(is_point).collect()),
        tiles: names(rows.iter().filter(|r| !is_point(r)).collect()),
        parallel: rows.iter().any(|r| matches!(r.kind, RowKind::Parallel | RowKind::Wavefront)),
        ..PhaseReport::default()
    };
    let named = rows.iter().find_map(|r| if let RowKind::Instruction(name) = r.kind { Some(name) } else { None });
    let Some(row) = rows.iter().find(|r| r.kind == RowKind::Vector) else {
        return PhaseReport { mismatch: "no loop is vectorized".into(), ..report };
    };
    report.vector = Some(row.name.clone());
    if let Some(name) = named {
        return PhaseReport { instruction: Some(name.to_string()), ..report };
    }
    let [(lane, 1 | -1)] = row.of(id).terms[..] else {
        return PhaseReport { mismatch: format!("loop `{}` is over several iterators", row.name), ..report };
    };
    let matched = |i: &_| match_stored(i, scop, &tiled.packings, id, lane);
    match select_by(&target.instructions, scop, id, matched) {
        Ok(instruction) => PhaseReport { instruction: Some(instruction.to_string()), ..report },
        Err(why) => PhaseReport { mismatch: closest(why, &target.instructions, scop, id, lane).reason, ..report },
    }
}
