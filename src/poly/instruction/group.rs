//! Statements whose sums a declared tensor instruction takes, several terms at a time.
//!
//! In: a statement, an iterator for the lanes and a reduced one for the terms within a lane. Out: the row that computes
//! the points of both, or the operand that does not fit and the reason. The row's iterators are unified with parts of the two
//! iterators, its term with the statement's body. Where the extent of the reduced iterator is no multiple of the row's, the
//! last terms are zeros: the neutral element of the sum.

use crate::codegen::instruction::{Form, InstructionName, TensorInstruction};
use crate::expr::{Access, BinaryOp, Index, Var};
use crate::poly::analysis::access::{Along, Reference};
use crate::poly::instruction::{Mismatch, MismatchPart, mismatch};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;

/// A row that computes a part of a statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Grouped {
    pub row: InstructionName,
    /// The iterator of which a part is in the lanes.
    pub lane: Var,
    /// The reduced iterator of which a part is within a lane, and the terms of that part.
    pub group: Var,
    pub terms: i64,
    /// The reads of the operand that differs from lane to lane and of the one that is broadcast (positions among the
    /// references).
    pub vector: usize,
    pub broadcast: usize,
}

/// Matches a row of `lanes` lanes with a statement.
///
/// # Errors
/// The part that does not match, and why.
pub fn match_grouped(
    row: &TensorInstruction,
    scop: &Scop,
    id: StatementId,
    references: &[Reference],
    [lane, group]: [Var; 2],
) -> Result<Grouped, Mismatch> {
    let s = scop.statement(id);
    let name = |v: Var| &s.iterators[v.0 as usize].name;
    if s.reduce != Some(BinaryOp::Add) || s.is_scatter() {
        return mismatch(MismatchPart::Reduction, format!("`{}` is no sum", s.name));
    }
    let target = scop.tensor(s.target);
    if target.dtype != row.operands[0].dtype {
        let reason = format!("accumulator `{}` is {}, not {}", target.name, target.dtype, row.operands[0].dtype);
        return mismatch(MismatchPart::Accumulator, reason);
    }
    let Some([broadcast, vector]) = forms(row) else {
        let reason = format!("`{}` does not have one broadcast operand and one in lanes", row.name);
        return mismatch(MismatchPart::Table, reason);
    };
    let uses = |v: Var| s.write.iter().any(|w| w.uses(v));
    if !uses(lane) || uses(group) {
        let reason = format!(
            "accumulator `{}` is not one for each `{}`, summed over `{}`",
            target.name,
            name(lane),
            name(group)
        );
        return mismatch(MismatchPart::Accumulator, reason);
    }
    if s.domain.iter().any(|c| c.uses(group)) {
        let reason = format!("the terms along `{}` have conditions of their own", name(group));
        return mismatch(MismatchPart::Body, reason);
    }
    let mut reason = String::new();
    let fits = &mut |operand: usize, access: &Access| {
        let why = misfit(row, scop, id, references, operand, access, [lane, group]);
        reason = why.clone().unwrap_or_default();
        why.is_none()
    };
    let Some(found) = row.unify(&s.body, fits) else {
        return match reason.is_empty() {
            true => mismatch(MismatchPart::Body, format!("the body of `{}` is not that of `{}`", s.name, row.name)),
            false => mismatch(MismatchPart::Operand, reason),
        };
    };
    let position = |operand: usize| references.iter().position(|r| r.access.as_ref() == Some(found[operand - 1]));
    let (Some(vector), Some(broadcast)) = (position(vector), position(broadcast)) else {
        return mismatch(MismatchPart::Operand, "an operand is no read of the statement".into());
    };
    let terms = row.group(broadcast_operand(row));
    Ok(Grouped { row: row.name, lane, group, terms, vector, broadcast })
}

/// The positions of the broadcast operand and of the one in lanes, where the row has one of each: `C(j) += A(q) · B(j, q)`.
fn forms(row: &TensorInstruction) -> Option<[usize; 2]> {
    let [_, _, _] = &row.operands[..] else { return None };
    let [lane] = row.operands[0].indices[..] else { return None };
    let summed: Vec<Var> = row.summed().collect();
    let [group] = summed[..] else { return None };
    let is = |n: usize, form: Form, indices: &[Var]| row.operands[n].form == form && row.operands[n].indices == indices;
    let pair = |a: usize, b: usize| is(a, Form::Broadcast, &[group]) && is(b, Form::Vector, &[lane, group]);
    [[1, 2], [2, 1]].into_iter().find(|&[a, b]| pair(a, b))
}

fn broadcast_operand(row: &TensorInstruction) -> usize {
    forms(row).map_or(1, |f| f[0])
}

/// Why a read cannot be an operand of the row.
fn misfit(
    row: &TensorInstruction,
    scop: &Scop,
    id: StatementId,
    references: &[Reference],
    operand: usize,
    access: &Access,
    [lane, group]: [Var; 2],
) -> Option<String> {
    let (s, o) = (scop.statement(id), &row.operands[operand]);
    let tensor = scop.tensor(access.buffer);
    let name = |v: Var| &s.iterators[v.0 as usize].name;
    if tensor.dtype != o.dtype {
        return Some(format!("operand `{}` is {}, not {}", tensor.name, tensor.dtype, o.dtype));
    }
    if access.buffer == s.target {
        return Some(format!("operand `{}` is the accumulator", tensor.name));
    }
    let r = references.iter().find(|r| r.access.as_ref() == Some(access))?;
    if access.guard.iter().any(|g| g.uses(group)) || access.index.iter().any(|i| matches!(i, Index::Value(_))) {
        return Some(format!("the terms of operand `{}` along `{}` are not read together", tensor.name, name(group)));
    }
    match o.form {
        Form::Broadcast if r.along(lane) != Along::Invariant => {
            Some(format!("operand `{}` varies with `{}` and cannot be broadcast", tensor.name, name(lane)))
        }
        Form::Broadcast if r.along(group) != Along::Unit => {
            Some(format!("operand `{}` is not contiguous along `{}`", tensor.name, name(group)))
        }
        Form::Vector if !r.depends(lane) || !r.depends(group) => {
            Some(format!("operand `{}` does not vary with `{}` and `{}`", tensor.name, name(lane), name(group)))
        }
        Form::Vector if !r.packable(s) => {
            Some(format!("operand `{}` cannot be packed in groups of `{}`", tensor.name, name(group)))
        }
        _ => None,
    }
}
