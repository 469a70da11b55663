//! Primitive `tensorize`: maps loops to one tensor instruction.

use super::loops::reorder;
use crate::expr::syntax::Name;
use crate::poly::instruction::{Mismatch, TensorInstruction, match_stored, table};
use crate::poly::schedule::{Node, Row, RowKind, Schedule};
use crate::poly::statement::StatementId;
use crate::poly::transform::argument::{Loop, Loops};
use crate::poly::transform::state::{SourceProgram, Transformed};
use crate::poly::transform::tree_edit::{apart, find, refuse, rows, single, together};
use crate::runtime::Result;
use crate::runtime::error::unknown;

/// `tensorize C(mi, ni, ki) with outer_product`: the loops are a tensor instruction ([`crate::poly::instruction`]), repeated
/// in registers: loops of the reduction outside, one iterator in the lanes, the others unrolled. The words after `with` are
/// part of its name; without them, and with `fma`, any instruction of the target will do.
///
/// ```text
/// for mi for ni for ki         for ki
///   C(m, n) += A(m,k)*B(k,n)     C(mi.., ni..) += outer product of A(mi.., k) and B(k, ni..)
/// ```
pub fn tensorize(
    before: &Transformed,
    original: &SourceProgram,
    which: &Loops,
    with: Option<&Name>,
) -> Result<Transformed> {
    let (scop, schedule, isa) = (&before.scop, &before.schedule, original.isa);
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
    let dtype = scop.tensor(scop.statement(id).target).dtype;
    let words = with.map_or(String::new(), |w| w.text.replace('_', " "));
    let on_target: Vec<TensorInstruction> = table().into_iter().filter(|i| i.isa == isa && i.dtype == dtype).collect();
    if on_target.is_empty() {
        return refuse(format!("no tensor instruction of this target accumulates {dtype}"));
    }
    let fits = |i: &&TensorInstruction| words == "fma" || i.name.contains(&words);
    let instructions: Vec<TensorInstruction> = on_target.iter().filter(fits).cloned().collect();
    if instructions.is_empty() {
        let names: Vec<&str> = on_target.iter().map(|i| i.name.as_str()).collect();
        return refuse(unknown(&format!("tensor instruction on {dtype} of this target"), &words, &names));
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

/// The last of the rows that can be in the lanes of an instruction; otherwise the refusal of the closest instruction.
fn lane(before: &Transformed, id: StatementId, named: &[Row], table: &[TensorInstruction]) -> Result<Option<Row>> {
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
