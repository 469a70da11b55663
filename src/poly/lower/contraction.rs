//! Array contraction for the scan of polyhedra: the temporaries of which memory need not hold all elements at once.
//!
//! In: a Scop and a schedule. Out: for each such temporary the outermost loops around all of its uses of which every iteration
//! has elements of its own. Where two accesses touch one element they lie in one iteration of these loops, so no value survives an
//! iteration, and memory for what one of them touches is enough (Lefebvre and Feautrier 1998, with boxes instead of moduli). The
//! subscripts show that: the value of a loop follows from those of an element in the same way for all accesses.

use crate::expr::{Affine, BufferId, Index, Var};
use crate::poly::schedule::{Row, RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId};
use crate::poly::storage::{Private, adds_up};

/// A temporary of which each iteration of some loops has elements of its own.
pub struct Contraction {
    pub private: Private,
    /// Threads divide a loop further in: they share the memory.
    pub shared: bool,
}

/// The temporaries that can be contracted, with as many loops as possible.
pub fn contractions(scop: &Scop, schedule: &Schedule) -> Vec<Contraction> {
    let temporaries = scop.tensors.iter().enumerate().filter(|(_, t)| t.role == Role::Temporary);
    let all = temporaries.map(|(t, _)| BufferId(t as u32)).filter(|&t| scop.private(t).is_none());
    all.filter_map(|t| contraction(scop, schedule, t)).collect()
}

fn contraction(scop: &Scop, schedule: &Schedule, tensor: BufferId) -> Option<Contraction> {
    let (users, own) = own_rows(scop, schedule, tensor)?;
    let mut rows: Vec<Row> = own.into_iter().take_while(|r| !expands(r)).cloned().collect();
    // Waves have the values of two rows at once.
    let waves = rows.iter().filter(|r| r.kind == RowKind::Wavefront).count();
    if waves == 1 {
        let outer = rows.iter().position(|r| r.kind == RowKind::Wavefront)?;
        rows.truncate(if rows.len() > outer + 1 { rows.len() } else { outer });
    }
    if rows.is_empty() {
        return None;
    }
    let shared = users
        .iter()
        .any(|&id| schedule.path(id).iter().filter_map(row_of).skip(rows.len()).any(|r| r.kind.is_shared()));
    Some(Contraction { private: Private { tensor, source: None, rows, layout: vec![] }, shared })
}

/// The number of outermost loops around all uses of a temporary of which every iteration has elements of its own.
pub fn own_loops(scop: &Scop, schedule: &Schedule, tensor: BufferId) -> usize {
    own_rows(scop, schedule, tensor).map_or(0, |own| own.1.len())
}

/// The statements that use a temporary, and the outermost rows around them of which every iteration has elements of its own.
fn own_rows<'a>(scop: &Scop, schedule: &'a Schedule, tensor: BufferId) -> Option<(Vec<StatementId>, Vec<&'a Row>)> {
    let users = scop.users(tensor);
    let paths: Vec<Vec<TimeDimension>> = users.iter().map(|&id| schedule.path(id)).collect();
    let (first, others) = paths.split_first()?;
    let common = (0..first.len()).take_while(|&k| others.iter().all(|p| p.get(k) == Some(&first[k]))).count();
    let accesses = accesses(scop, &users, tensor);
    let own = first[..common].iter().filter_map(row_of).take_while(|row| is_fixed(row, &accesses)).collect();
    Some((users, own))
}

fn row_of<'a>(dimension: &TimeDimension<'a>) -> Option<&'a Row> {
    if let TimeDimension::Row(row) = dimension { Some(row) } else { None }
}

/// Returns true if the points of a row are lanes or copies of code: memory of their own would be a register for each.
pub fn expands(row: &Row) -> bool {
    row.tile == 1 && matches!(row.kind, RowKind::Unroll | RowKind::Vector | RowKind::Instruction(_))
}

/// The subscripts of all accesses.
fn accesses(scop: &Scop, users: &[StatementId], tensor: BufferId) -> Vec<(StatementId, Vec<Index>)> {
    let mut out = vec![];
    for &id in users {
        let s = scop.statement(id);
        if s.target == tensor {
            out.push((id, s.subscripts()));
        }
        s.visit_accesses(&mut |a| {
            if a.buffer == tensor {
                out.push((id, a.index.clone()));
            }
        });
    }
    out
}

/// Returns true if the value of a row follows from the subscripts of an element.
fn is_fixed(row: &Row, accesses: &[(StatementId, Vec<Index>)]) -> bool {
    let rank = accesses.first().map_or(0, |a| a.1.len());
    let forms = accesses.iter().flat_map(|a| a.1.iter().filter_map(Index::affine)).chain(row.phi.iter().map(|p| &p.1));
    let last = forms.flat_map(|f| &f.terms).map(|t| t.0.0 as usize + 1).max().unwrap_or(0);
    let part = |f: &Affine| (0..last).map(|v| f.coefficient(Var(v as u32))).chain([f.constant]).collect::<Vec<_>>();
    let dimension = |d: usize| -> Option<Vec<i64>> {
        let parts: Option<Vec<Vec<i64>>> = accesses.iter().map(|a| Some(part(a.1.get(d)?.affine()?))).collect();
        Some(parts?.concat())
    };
    let subscripts: Vec<Vec<i64>> = (0..rank).filter_map(dimension).collect();
    let wanted: Vec<i64> = accesses.iter().flat_map(|a| part(row.of(a.0))).collect();
    adds_up(&subscripts, &wanted, last + 1)
}
