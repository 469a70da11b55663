//! Primitive `tensorize`: maps loops to one tensor instruction.

use super::loops::reorder;
use crate::codegen::instruction::TensorInstruction;
use crate::expr::Var;
use crate::expr::syntax::Name;
use crate::poly::analysis::access::{Along, references};
use crate::poly::instruction::group::match_grouped;
use crate::poly::instruction::{Mismatch, is_fma, match_stored};
use crate::poly::packing::PackedDim;
use crate::poly::schedule::{Node, Row, RowKind, Schedule};
use crate::poly::statement::StatementId;
use crate::poly::transform::argument::{Loop, Loops};
use crate::poly::transform::state::{SourceProgram, Transformed};
use crate::poly::transform::tree_edit::{apart, find, refuse, rows, single, together};
use crate::runtime::Result;
use crate::runtime::error::unknown;

/// `tensorize C(mi, ni, ki) with fma`: the loops are a tensor instruction ([`crate::poly::instruction`]), repeated in registers:
/// loops of the reduction outside, one iterator in the lanes, the others unrolled. The word after `with` is a part of the name
/// of a row of fused products and sums; without it, and with `fma`, any of the target will do. Others are called by their
/// names; the last loop runs over the terms in a lane.
///
/// ```text
/// for mi for ni for ki         for ki
///   C(m, n) += A(m,k)*B(k,n)     C(mi.., ni..) += A(mi.., k) broadcast * B(k, ni..) in vectors
/// ```
pub fn tensorize(
    before: &Transformed,
    original: &SourceProgram,
    which: &Loops,
    with: Option<&Name>,
) -> Result<Transformed> {
    let (scop, schedule, target) = (&before.scop, &before.schedule, original.target);
    let row_of = |name: &Name| find(scop, schedule, &Loop { statement: which.statement.clone(), name: name.clone() });
    let named: Vec<Row> = which.names.iter().map(row_of).collect::<Result<_>>()?;
    let ids: Vec<StatementId> = named[0].phi.iter().map(|p| p.0).collect();
    let [id] = ids[..] else {
        return refuse(format!("loop `{}` contains several statements: an instruction computes one", named[0].name));
    };
    if let Some(row) = named.iter().find(|r| r.tile != 1 || r.kind != RowKind::Serial) {
        return refuse(format!("loop `{}` runs over tiles or is already marked", row.name));
    }
    let innermost: Vec<&Row> = rows(schedule).into_iter().filter(|r| r.phi.iter().any(|p| p.0 == id)).collect();
    let last = &innermost[innermost.len().saturating_sub(named.len())..];
    if let Some(row) = last.iter().find(|r| !named.contains(r)) {
        return refuse(format!("loop `{}` is inside of these: an instruction takes the innermost loops", row.name));
    }
    if scop.statement(id).is_scatter() {
        return refuse("no tensor instruction writes at subscripts from data");
    }
    let grouped = |w: &Name| target.instructions.iter().find(|row| row.name.as_str() == w.text && !is_fma(row));
    if let Some(row) = with.and_then(grouped) {
        return declared(before, row, which, id, &named);
    }
    let dtype = scop.tensor(scop.statement(id).target).dtype;
    let words = with.map_or("fma", |w| &w.text);
    let sums = |row: &&TensorInstruction| row.operands[0].dtype == dtype;
    let on_target: Vec<&TensorInstruction> = target.instructions.iter().filter(sums).collect();
    if on_target.is_empty() {
        return refuse(format!("no tensor instruction of this target accumulates {dtype}"));
    }
    let fits = |row: &&TensorInstruction| is_fma(row) && (words == "fma" || row.name.as_str().contains(words));
    let instructions: Vec<&TensorInstruction> = on_target.iter().copied().filter(fits).collect();
    if instructions.is_empty() {
        let names: Vec<&str> = on_target.iter().map(|row| row.name.as_str()).collect();
        return refuse(unknown(&format!("tensor instruction on {dtype} of this target"), words, &names));
    }
    let Some(lane) = lane(before, id, &named, &instructions)? else {
        return refuse("none of these loops runs over a single iterator, as the lanes of an instruction must");
    };
    let write = &scop.statement(id).write;
    let reduces = |r: &Row| !r.of(id).terms.iter().any(|t| write.iter().any(|w| w.uses(t.0)));
    let name = |r: &Row| Name::from(r.name.as_str());
    let (sums, points): (Vec<&Row>, Vec<&Row>) = named.iter().filter(|r| **r != lane).partition(|r| reduces(r));
    let order = sums.into_iter().chain(points).chain([&lane]).map(name).collect();
    let schedule = reorder(scop, schedule, &Loops { statement: which.statement.clone(), names: order })?;
    let kind = |r: &Row| match r {
        r if *r == lane => RowKind::Vector,
        r if reduces(r) => RowKind::Serial,
        _ => RowKind::Unroll,
    };
    let schedule = Schedule { root: together(mark(apart(&schedule.root), &named, &kind)) };
    Ok(Transformed { schedule, ..before.clone() })
}

/// `tensorize C(mi, ni, ki) with vpdpbusd`: a declared instruction. The last loop runs over the terms that it sums, the loop
/// outside of it over its lanes; where only the last one is named, the vector loop around it has the lanes.
fn declared(
    before: &Transformed,
    instruction: &TensorInstruction,
    which: &Loops,
    id: StatementId,
    named: &[Row],
) -> Result<Transformed> {
    let (scop, schedule) = (&before.scop, &before.schedule);
    let around: Vec<&Row> = rows(schedule).into_iter().filter(|r| r.phi.iter().any(|p| p.0 == id)).collect();
    let [.., lane, terms] = around[..] else {
        return refuse(format!("`{}` takes a loop over its lanes and one over the terms in a lane", instruction.name));
    };
    if named.len() == 1 && lane.kind != RowKind::Vector {
        return refuse(format!("loop `{}` around the terms of `{}` is not a vector", lane.name, instruction.name));
    }
    let ([(lane_iterator, 1)], [(group, 1)]) = (&lane.of(id).terms[..], &terms.of(id).terms[..]) else {
        return refuse(format!("loops `{}` and `{}` are not over one iterator each", lane.name, terms.name));
    };
    let references = references(scop, id);
    let matched = match match_grouped(instruction, scop, id, &references, [*lane_iterator, *group]) {
        Ok(matched) => matched,
        Err(why) => return refuse(format!("`{}` does not compute this: {why}", instruction.name)),
    };
    let groups = around.iter().rev().skip(1).find(|r| r.of(id) == terms.of(id));
    let few = terms.extent(scop) <= matched.terms;
    if !groups.map_or(few, |r| r.tile == matched.terms) {
        let (name, terms) = (&terms.name, matched.terms);
        return refuse(format!("loop `{name}` is not the inner one of a split by the {terms} terms of a lane"));
    }
    let access = references[matched.vector].access.as_ref().expect("a read");
    let packing = before.packings.iter().find(|p| p.statement == id && p.access == *access);
    let ends = |dims: &[(Var, PackedDim)]| {
        let [.., (v, PackedDim::Point(_) | PackedDim::Whole), (g, PackedDim::Point(t))] = dims[..] else {
            return false;
        };
        v == *lane_iterator && g == *group && t == matched.terms
    };
    // A term alone is an element, which may stay where it is.
    let in_place = matched.terms == 1 && references[matched.vector].along(*lane_iterator) == Along::Unit;
    if packing.map_or(!in_place, |p| !ends(&p.dims)) {
        let iterators = &scop.statement(id).iterators;
        let [lane, group] = [lane_iterator, group].map(|v| &iterators[v.0 as usize].name);
        let (tensor, terms) = (&scop.tensor(access.buffer).name, matched.terms);
        return refuse(format!(
            "operand `{tensor}` is not packed for `{}`: its layout must end with `{lane} % …, {group} % {terms}`",
            instruction.name
        ));
    }
    let write = &scop.statement(id).write;
    let reduces = |r: &Row| !r.of(id).terms.iter().any(|t| write.iter().any(|w| w.uses(t.0)));
    let points = named.len().saturating_sub(2);
    let (sums, rows): (Vec<&Row>, Vec<&Row>) = named[..points].iter().partition(|r| reduces(r));
    let order = sums.into_iter().chain(rows).chain(&named[points..]).map(|r| Name::from(r.name.as_str())).collect();
    let schedule = reorder(scop, schedule, &Loops { statement: which.statement.clone(), names: order })?;
    let kind = |r: &Row| match r {
        r if r == terms => RowKind::Instruction(instruction.name),
        r if r == lane => RowKind::Vector,
        r if reduces(r) => RowKind::Serial,
        _ => RowKind::Unroll,
    };
    let schedule = Schedule { root: together(mark(apart(&schedule.root), named, &kind)) };
    Ok(Transformed { schedule, ..before.clone() })
}

/// The last of the rows that can be in the lanes of an instruction; otherwise the refusal of the closest instruction.
fn lane(before: &Transformed, id: StatementId, named: &[Row], table: &[&TensorInstruction]) -> Result<Option<Row>> {
    let mut why: Option<Mismatch> = None;
    for row in named.iter().rev() {
        let [(v, 1 | -1)] = row.of(id).terms[..] else { continue };
        for instruction in table {
            match match_stored(instruction, &before.scop, &before.packings, id, v) {
                Ok(_) => return Ok(Some(row.clone())),
                Err(e) if why.as_ref().is_none_or(|w| w.part < e.part) => why = Some(e),
                Err(_) => {}
            }
        }
    }
    why.map_or(Ok(None), |why| refuse(format!("no tensor instruction: {why}")))
}

fn mark(node: Node, named: &[Row], kind: &dyn Fn(&Row) -> RowKind) -> Node {
    match node {
        Node::Leaf | Node::Sequence(_) => node.map_children(&mut |child| mark(child, named, kind)),
        Node::Band(mut band, child) => {
            let row = band.rows.remove(0);
            let row = if named.contains(&row) { Row { kind: kind(&row), ..row } } else { row };
            single(row, mark(*child, named, kind))
        }
    }
}
