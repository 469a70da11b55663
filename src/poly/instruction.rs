//! Tensor instructions that compute a statement: the rows of a target, and their matcher.
//!
//! In: an update statement and the iterator that becomes the vector. Out: the row, and the read that is each of its
//! operands, or the operand that does not match and the reason. The term of a row is unified with the statement's body (up
//! to the order of the factors), and its lanes with the iterator. Here are fused products and sums, rows with one term for each
//! lane, which code has instructions of its own for; rows that sum several terms at a time are matched in [`group`].

pub mod group;

use crate::codegen::instruction::{Form, InstructionName, Operand, Part, TensorInstruction, visit_parts};
use crate::expr::{Access, BinaryOp, Expr, Var};
use crate::poly::analysis::access::{Along, Reference, references};
use crate::poly::analysis::constant_factor;
use crate::poly::packing::Packing;
use crate::poly::scop::Scop;
use crate::poly::statement::{Statement, StatementId};
use crate::runtime::DType;

/// A statement that a row of fused products and sums computes.
#[derive(Clone, Debug)]
pub struct Match {
    pub row: InstructionName,
    /// The read of the statement that is each operand of the row, and the form in which the row reads it.
    pub operands: Vec<(Access, Form)>,
    /// The accumulator does not vary along the lanes, which are combined at the end.
    pub lanes_reduced: bool,
    /// Operands of 16 bits are widened before the row reads them.
    pub widened: bool,
}

/// Of the form `vfmadd231ps_by_lanes, whose lanes are summed` or `vfmadd231ps of widened halves`.
impl std::fmt::Display for Match {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.row)?;
        f.write_str(if self.widened { " of widened halves" } else { "" })?;
        f.write_str(if self.lanes_reduced { ", whose lanes are summed" } else { "" })
    }
}

/// Why an instruction does not compute a statement. Its text is a sentence without its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    pub part: MismatchPart,
    pub reason: String,
}

/// The part of a statement that does not match. Ordered: the later, the more of the statement fits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MismatchPart {
    /// The target has nothing of this kind.
    Table,
    /// The reduction operator.
    Reduction,
    Accumulator,
    Body,
    /// The statement is the instruction up to an operand.
    Operand,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

fn mismatch<T>(part: MismatchPart, reason: String) -> Result<T, Mismatch> {
    Err(Mismatch { part, reason })
}

/// Returns true if a row computes what fused products and sums do, which code has instructions of its own for.
pub fn is_fma(row: &TensorInstruction) -> bool {
    let Expr::Binary(BinaryOp::Mul, a, b) = &row.body else { return false };
    let takes_one_term = row.summed().next().is_none();
    let in_lanes = matches!(row.operands[0].dtype, DType::F32 | DType::F64);
    takes_one_term && in_lanes && matches!((&**a, &**b), (Expr::Load(_), Expr::Load(_)))
}

/// Unifies a row of fused products and sums with an update whose lane iterator is `lane`. Where both operands have an element
/// for each lane, the accumulator may have one for all, which their sum is added to.
///
/// # Errors
/// The part that does not match, and why.
fn match_lanes(row: &TensorInstruction, scop: &Scop, id: StatementId, lane: Var) -> Result<Match, Mismatch> {
    let s = scop.statement(id);
    let Some(reduce) = s.reduce else {
        return mismatch(MismatchPart::Reduction, format!("`{}` does not accumulate", s.name));
    };
    if reduce != BinaryOp::Add {
        let reason = format!("`{}` accumulates by {reduce:?}, not by Add", s.name);
        return mismatch(MismatchPart::Reduction, reason);
    }
    let references = references(scop, id);
    let pairing = Pairing { row, scop, id, references: &references };
    let varies = references.last().expect("the write").depends(lane);
    let (target, lane_name) = (scop.tensor(s.target), &s.iterator(lane).name);
    if target.dtype != row.operands[0].dtype {
        let reason = format!("accumulator `{}` is {}, not {}", target.name, target.dtype, row.operands[0].dtype);
        return mismatch(MismatchPart::Accumulator, reason);
    }
    let by_lanes = row.operands.iter().all(|o| o.form == Form::Vector);
    if !varies && !by_lanes {
        let reason = format!("accumulator `{}` does not vary with `{lane_name}`", target.name);
        return mismatch(MismatchPart::Accumulator, reason);
    }
    let factor = constant_factor::of_sum(scop, id);
    let written = factor.as_ref().map_or(&s.body, |f| &f.1);
    let body = &without_widening(scop, written);
    let accesses = pairing.operands(body, &|operand, part| pairing.fits_lanes(operand, part, lane))?;
    let operands = accesses.into_iter().cloned().zip(row.operands[1..].iter().map(|o| o.form)).collect();
    Ok(Match { row: row.name, operands, lanes_reduced: !varies, widened: body != written })
}

/// The factors of a product as they are stored, where they are halves that are widened to f32.
fn without_widening(scop: &Scop, body: &Expr) -> Expr {
    match body {
        Expr::Binary(BinaryOp::Mul, a, b) => {
            Expr::binary(BinaryOp::Mul, without_widening(scop, a), without_widening(scop, b))
        }
        Expr::Cast(DType::F32, e) if matches!(&**e, Expr::Load(a) if scop.tensor(a.buffer).dtype.is_half()) => {
            (**e).clone()
        }
        e => e.clone(),
    }
}

/// A statement whose reads may be the operands of a row. What is asked of them depends on the matcher: one with one term for each
/// lane takes reads as they are, one with several takes what can be stored in groups.
#[derive(Clone, Copy)]
struct Pairing<'a> {
    row: &'a TensorInstruction,
    scop: &'a Scop,
    id: StatementId,
    references: &'a [Reference],
}

/// Says of an operand and a read that they fit, or why not.
type Fits<'f> = &'f dyn Fn(usize, &Part) -> Result<(), String>;

impl<'a> Pairing<'a> {
    fn statement(&self) -> &'a Statement {
        self.scop.statement(self.id)
    }

    fn name(&self, v: Var) -> &'a str {
        &self.statement().iterator(v).name
    }

    /// The name of a read's tensor and its reference, where the part of its elements is one that the operand takes, or, with `widening`,
    /// halves of an operand of f32.
    fn read(&self, operand: &Operand, part: &Part, widening: bool) -> Result<(&'a str, &'a Reference), String> {
        let (tensor, access) = (self.scop.tensor(part.access.buffer), part.access);
        if tensor.dtype != operand.dtype && !(widening && operand.dtype == DType::F32 && tensor.dtype.is_half()) {
            return Err(format!("operand `{}` is {}, not {}", tensor.name, tensor.dtype, operand.dtype));
        }
        if let (Some((least, greatest)), false) = (operand.range, operand.is_part(part, tensor.dtype)) {
            return Err(format!("operand `{}` may have other numbers than {least} to {greatest}", tensor.name));
        }
        let reference = self.references.iter().find(|r| r.access.as_ref() == Some(access));
        Ok((&tensor.name, reference.expect("a read of the statement")))
    }

    /// That an operand is the same in all lanes.
    ///
    /// # Errors
    /// Why it is not.
    fn require_broadcast(&self, name: &str, reference: &Reference, lane: Var) -> Result<(), String> {
        match reference.depends(lane) {
            true => Err(format!("operand `{name}` varies with `{}` and cannot be broadcast", self.name(lane))),
            false => Ok(()),
        }
    }

    /// That a read can be an operand of a row of fused products and sums.
    ///
    /// # Errors
    /// Why it cannot.
    fn fits_lanes(&self, operand: usize, part: &Part, lane: Var) -> Result<(), String> {
        let o = &self.row.operands[operand];
        let (name, r) = self.read(o, part, true)?;
        let along = self.name(lane);
        match (o.form, r.along(lane)) {
            (Form::Broadcast, _) => self.require_broadcast(name, r, lane),
            (Form::Vector, Along::Invariant) => Err(format!("operand `{name}` does not vary with `{along}`")),
            (Form::Vector, Along::Gathered) => Err(format!("operand `{name}` is gathered along `{along}`")),
            (Form::Vector, Along::Strided(stride)) if !r.packable(self.statement()) => {
                Err(format!("operand `{name}` has stride {stride} along `{along}` and cannot be packed"))
            }
            (Form::Vector, Along::Unit | Along::Strided(_)) => Ok(()),
            (Form::Tile, _) => Err(format!("`{}` works on tiles", self.row.name)),
        }
    }

    /// The reads of a body that are the row's operands but the accumulator, where the term of the row is the body.
    fn operands<'e>(&self, body: &'e Expr, fits: Fits) -> Result<Vec<&'e Access>, Mismatch> {
        self.unified(body, fits, |fits| self.row.unify(body, fits))
    }

    /// The operands of each summand of a body, where the term of the row is every one of them.
    fn summands<'e>(&self, body: &'e Expr, fits: Fits) -> Result<Vec<Vec<Part<'e>>>, Mismatch> {
        self.unified(body, fits, |fits| self.row.unify_sum(body, fits))
    }

    /// The result of a unification with a body, which asks whether a read may be an operand; or why none is.
    fn unified<T>(
        &self,
        body: &Expr,
        fits: Fits,
        unify: impl FnOnce(&mut dyn FnMut(usize, &Part) -> bool) -> Option<T>,
    ) -> Result<T, Mismatch> {
        let mut last = None;
        let may_be = &mut |operand: usize, part: &Part| {
            let reason = fits(operand, part).err();
            let fit = reason.is_none();
            last = reason.or(last.take());
            fit
        };
        if let Some(found) = unify(may_be) {
            return Ok(found);
        }
        // A read that fits no operand says more than one that another order of factors put in the wrong place.
        let mut nowhere = None;
        visit_parts(body, &mut |part| {
            if nowhere.is_none() {
                // What keeps a read from an operand of its type says more than another type.
                let dtype = self.scop.tensor(part.access.buffer).dtype;
                let mut operands: Vec<usize> = (1..self.row.operands.len()).collect();
                operands.sort_by_key(|&operand| self.row.operands[operand].dtype != dtype);
                let mut reasons = operands.into_iter().map(|operand| fits(operand, part).err());
                nowhere = reasons
                    .try_fold(None, |first: Option<String>, reason| reason.map(|why| first.or(Some(why))))
                    .flatten();
            }
        });
        let (statement, row) = (&self.statement().name, self.row.name);
        match last.map(|last| nowhere.unwrap_or(last)) {
            None => mismatch(MismatchPart::Body, format!("the body of `{statement}` is not that of `{row}`")),
            Some(reason) => mismatch(MismatchPart::Operand, reason),
        }
    }
}

/// [`match_lanes`] for operands where the schedule leaves them: lanes of a vector must be neighbours in memory, or packed so.
///
/// # Errors
/// Those of [`match_lanes`].
pub fn match_stored(
    row: &TensorInstruction,
    scop: &Scop,
    packings: &[Packing],
    id: StatementId,
    lane: Var,
) -> Result<Match, Mismatch> {
    let matched = match_lanes(row, scop, id, lane)?;
    let references = references(scop, id);
    for (access, _) in matched.operands.iter().filter(|o| o.1 == Form::Vector) {
        let packed = packings.iter().any(|p| p.statement == id && p.access == *access);
        let innermost = scop.private(access.buffer).and_then(|p| p.layout.last()).is_some_and(|digit| {
            let index = digit.form.substitute(|d| access.index[d.0 as usize].affine().cloned().unwrap_or_default());
            digit.divisor == 1 && index.coefficient(lane) == 1
        });
        let along = references.iter().find(|r| r.access.as_ref() == Some(access)).map(|r| r.along(lane));
        if let Some(Along::Strided(stride)) = along
            && !packed
            && !innermost
        {
            let (name, lane) = (&scop.tensor(access.buffer).name, &scop.statement(id).iterator(lane).name);
            let reason = format!("operand `{name}` has stride {stride} along `{lane}`: use `cache_read` and `pack`");
            return mismatch(MismatchPart::Operand, reason);
        }
    }
    Ok(matched)
}

/// The first row of fused products and sums that matches, or the mismatch of the one that fits best.
///
/// # Errors
/// The part that does not match, and why.
pub fn select(rows: &[TensorInstruction], scop: &Scop, id: StatementId, lane: Var) -> Result<Match, Mismatch> {
    select_by(rows, scop, id, |row| match_lanes(row, scop, id, lane))
}

/// Variant of [`select`] with another matcher.
///
/// # Errors
/// Those of [`select`].
pub fn select_by(
    rows: &[TensorInstruction],
    scop: &Scop,
    id: StatementId,
    matched: impl Fn(&TensorInstruction) -> Result<Match, Mismatch>,
) -> Result<Match, Mismatch> {
    let dtype = scop.tensor(scop.statement(id).target).dtype;
    let mut why: Option<Mismatch> = None;
    for row in rows.iter().filter(|row| row.operands[0].dtype == dtype && is_fma(row)) {
        match matched(row) {
            Ok(m) => return Ok(m),
            // Of the other reasons the first row's is said: the rows are in the order in which they are wanted.
            Err(e) if why.as_ref().is_none_or(|w| w.part < e.part && e.part == MismatchPart::Operand) => why = Some(e),
            Err(_) => {}
        }
    }
    let reason = format!("no fused product and sum of {dtype} on this target");
    Err(why.unwrap_or(Mismatch { part: MismatchPart::Table, reason }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Target;
    use crate::poly::normalize::build;
    use crate::poly::samples;

    fn matched(p: &crate::poly::statement::Program, lane: &str) -> Result<Match, Mismatch> {
        let scop = build::build("t", p).unwrap();
        let id = scop.ids().find(|&s| scop.statement(s).reduce.is_some()).unwrap();
        let iterator = scop.statement(id).iterators.iter().position(|i| i.name == lane).unwrap();
        let target = samples::with_rows(Target::avx512());
        select(&target.instructions, &scop, id, Var(iterator as u32))
    }

    #[test]
    fn matrix_product_broadcasts_the_rows() {
        let m = matched(&samples::matmul(8, 32, 16), "n").unwrap();
        assert_eq!(m.to_string(), "vfmadd231ps");
        assert_eq!(m.operands.iter().map(|a| a.0.buffer.0).collect::<Vec<_>>(), [0, 1]);
        let m = matched(&samples::matmul(8, 32, 16), "m").unwrap();
        assert_eq!(m.operands.iter().map(|a| a.0.buffer.0).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn depthwise_multiplies_by_lanes() {
        assert_eq!(matched(&samples::depthwise(8, 16, 3, 1, 1), "c").unwrap().to_string(), "vfmadd231ps_by_lanes");
    }

    #[test]
    fn lanes_of_a_sum_are_summed() {
        let m = matched(&samples::matmul(8, 1, 16), "k").unwrap();
        assert_eq!((m.row.as_str(), m.lanes_reduced), ("vfmadd231ps_by_lanes", true));
    }

    #[test]
    fn a_failed_match_names_the_operand_and_the_reason() {
        let why = matched(&samples::depthwise(8, 16, 3, 1, 1), "s").unwrap_err();
        assert_eq!(why.part, MismatchPart::Operand);
        assert!(why.reason.contains("operand `X`") || why.reason.contains("operand `W`"), "{why}");
        let why = matched(&samples::softmax(2, 4, 8), "hi").unwrap_err();
        assert_eq!(why.part, MismatchPart::Reduction);
        assert!(why.reason.contains("accumulates by Max"), "{why}");
    }
}
