//! Fused products and sums: the forms in which the FMA instructions of a target compute a statement, and their matcher.
//!
//! In: an update statement and the iterator that becomes the vector. Out: the role of each operand, or the operand that
//! does not match and the reason. A form is data: its semantics are unified with the statement's body (up
//! to the order of the factors), its iterators with the statement's iterators. `i` and `k` stand for any number of
//! iterators of the statement, the lane iterator for exactly one. Declared tensor instructions, which sum several terms
//! at a time, are matched in [`group`].

pub mod group;

use crate::codegen::Isa;
use crate::expr::Var;
use crate::expr::{Access, BinaryOp, Expr};
use crate::poly::analysis::access::{Along, Reference, references};
use crate::poly::analysis::constant_factor;
use crate::poly::packing::Packing;
use crate::poly::scop::Scop;
use crate::poly::statement::{Statement, StatementId};
use crate::runtime::DType;

/// The way in which an operand of an instruction varies with the lane iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// One element in every lane.
    Broadcast,
    /// One element for each lane, neighbours in memory or packed so.
    Vector,
}

/// One form: `accumulator = reduce(accumulator, body)`.
#[derive(Clone, Debug)]
pub struct FmaForm {
    pub name: String,
    /// The semantics as a person writes them; the fields below say the same.
    pub semantics: String,
    pub isa: Isa,
    pub dtype: DType,
    pub reduce: BinaryOp,
    /// Over operands: `Expr::Load` of buffer `n` is operand n.
    pub body: Expr,
    pub operands: Vec<Role>,
    /// The lanes are combined at the end: the accumulator does not vary with the lane iterator.
    pub lanes_reduced: bool,
}

/// A statement that an instruction computes.
#[derive(Clone, Debug)]
pub struct Match {
    pub instruction: String,
    /// The read of the statement that is each operand of the instruction.
    pub operands: Vec<Access>,
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

/// The forms that are always known.
pub fn table() -> Vec<FmaForm> {
    let operand = |n: u32| Expr::load(crate::expr::BufferId(n), vec![]);
    let product = Expr::binary(BinaryOp::Mul, operand(0), operand(1));
    let mut rows = vec![];
    for (isa, fma) in [(Isa::Avx512, "vfmadd231"), (Isa::Avx2, "vfmadd231"), (Isa::Neon, "fmla")] {
        for dtype in [DType::F32, DType::F64] {
            let suffix = match (isa, dtype) {
                (Isa::Neon, DType::F32) => ".4s",
                (Isa::Neon, _) => ".2d",
                (_, DType::F32) => "ps",
                _ => "pd",
            };
            for (kind, semantics, operands, lanes_reduced) in [
                ("outer product", "C(i,j) += A(i,k) * B(k,j)", [Role::Broadcast, Role::Vector], false),
                ("by lanes", "C(i,j) += A(i,k,j) * B(k,j)", [Role::Vector, Role::Vector], false),
                ("dot", "C(i) += A(i,j) * B(j)", [Role::Vector, Role::Vector], true),
            ] {
                rows.push(FmaForm {
                    name: format!("{fma}{suffix} {kind}"),
                    semantics: semantics.into(),
                    isa,
                    dtype,
                    reduce: BinaryOp::Add,
                    body: product.clone(),
                    operands: operands.to_vec(),
                    lanes_reduced,
                });
            }
        }
    }
    rows
}

/// Unifies `instruction` with an update whose lane iterator is `lane`. The error names the operand and the reason.
pub fn match_instruction(instruction: &FmaForm, scop: &Scop, id: StatementId, lane: Var) -> Result<Match, Mismatch> {
    let s = scop.statement(id);
    let Some(reduce) = s.reduce else {
        return mismatch(MismatchPart::Reduction, format!("`{}` does not accumulate", s.name));
    };
    if reduce != instruction.reduce {
        let reason = format!("`{}` accumulates by {reduce:?}, not by {:?}", s.name, instruction.reduce);
        return mismatch(MismatchPart::Reduction, reason);
    }
    let references = references(scop, id);
    let target = references.last().expect("the write");
    let dtype = scop.tensor(s.target).dtype;
    if dtype != instruction.dtype {
        let reason = format!("accumulator `{}` is {dtype}, not {}", scop.tensor(s.target).name, instruction.dtype);
        return mismatch(MismatchPart::Accumulator, reason);
    }
    if target.depends(lane) == instruction.lanes_reduced {
        let how = if instruction.lanes_reduced { "varies" } else { "does not vary" };
        let (name, lane) = (&scop.tensor(s.target).name, &s.iterators[lane.0 as usize].name);
        return mismatch(MismatchPart::Accumulator, format!("accumulator `{name}` {how} with `{lane}`"));
    }
    let factor = constant_factor::of_sum(scop, id);
    let body = factor.as_ref().map_or(&s.body, |f| &f.1);
    let operands = vec![None; instruction.operands.len()];
    let reason = String::new();
    let mut unifier = Unifier { scop, statement: s, instruction, references: &references, lane, operands, reason };
    if unifier.unify(&instruction.body, body) {
        let operands = unifier.operands.into_iter().flatten().collect();
        return Ok(Match { instruction: instruction.name.clone(), operands });
    }
    let reason = unifier.reason;
    match reason.is_empty() {
        true => mismatch(MismatchPart::Body, format!("the body of `{}` is not `{}`", s.name, instruction.semantics)),
        false => mismatch(MismatchPart::Operand, reason),
    }
}

/// A match on its way: the operands that are known, and why the last pair of expressions did not match.
struct Unifier<'a> {
    scop: &'a Scop,
    statement: &'a Statement,
    instruction: &'a FmaForm,
    references: &'a [Reference],
    lane: Var,
    operands: Vec<Option<Access>>,
    reason: String,
}

impl Unifier<'_> {
    /// Unifies two pairs, or leaves the operands as they were.
    fn unify_both(&mut self, patterns: [&Expr; 2], bodies: [&Expr; 2]) -> bool {
        let saved = self.operands.clone();
        let all = patterns.into_iter().zip(bodies).all(|(pattern, body)| self.unify(pattern, body));
        if !all {
            self.operands = saved;
        }
        all
    }

    fn unify(&mut self, pattern: &Expr, body: &Expr) -> bool {
        match (pattern, body) {
            (Expr::Load(p), Expr::Load(a)) => {
                let n = p.buffer.0 as usize;
                let name = &self.scop.tensor(a.buffer).name;
                if let Some(known) = &self.operands[n] {
                    return known == a;
                }
                let dtype = self.scop.tensor(a.buffer).dtype;
                if dtype != self.instruction.dtype {
                    self.reason = format!("operand {name} is {dtype}, not {}", self.instruction.dtype);
                    return false;
                }
                let r = self.references.iter().find(|r| r.access.as_ref() == Some(a)).expect("a read of the statement");
                let lane_name = &self.statement.iterators[self.lane.0 as usize].name;
                let fits = match (self.instruction.operands[n], r.along(self.lane)) {
                    (Role::Broadcast, Along::Invariant) => true,
                    (Role::Broadcast, _) => {
                        self.reason = format!("operand `{name}` varies with `{lane_name}` and cannot be broadcast");
                        false
                    }
                    (Role::Vector, Along::Invariant) => {
                        self.reason = format!("operand `{name}` does not vary with `{lane_name}`");
                        false
                    }
                    (Role::Vector, Along::Gathered) => {
                        self.reason = format!("operand `{name}` is gathered along `{lane_name}`");
                        false
                    }
                    (Role::Vector, Along::Unit) => true,
                    (Role::Vector, Along::Strided(stride)) => {
                        if !r.packable(self.statement) {
                            self.reason = format!(
                                "operand `{name}` has stride {stride} along `{lane_name}` and cannot be packed"
                            );
                        }
                        r.packable(self.statement)
                    }
                };
                if fits {
                    self.operands[n] = Some(a.clone());
                }
                fits
            }
            (Expr::Const(x), Expr::Const(y)) => x == y,
            (Expr::Unary(o, x), Expr::Unary(p, y)) => o == p && self.unify(x, y),
            (Expr::Cast(o, x), Expr::Cast(p, y)) => o == p && self.unify(x, y),
            (Expr::Bitcast(o, x), Expr::Bitcast(p, y)) => o == p && self.unify(x, y),
            (Expr::Binary(o, x1, x2), Expr::Binary(p, y1, y2)) if o == p => {
                let commutes = matches!(o, BinaryOp::Add | BinaryOp::Mul);
                self.unify_both([x1, x2], [y1, y2]) || commutes && self.unify_both([x1, x2], [y2, y1])
            }
            _ => false,
        }
    }
}

/// [`match_instruction`] for operands where the schedule leaves them: lanes of a vector must be neighbours in memory,
/// or packed so.
pub fn match_stored(
    instruction: &FmaForm,
    scop: &Scop,
    packings: &[Packing],
    id: StatementId,
    lane: Var,
) -> Result<Match, Mismatch> {
    let matched = match_instruction(instruction, scop, id, lane)?;
    let references = references(scop, id);
    for (access, _) in matched.operands.iter().zip(&instruction.operands).filter(|o| *o.1 == Role::Vector) {
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
            let (name, lane) = (&scop.tensor(access.buffer).name, &scop.statement(id).iterators[lane.0 as usize].name);
            let reason = format!("operand `{name}` has stride {stride} along `{lane}`: use `cache_read` and `pack`");
            return mismatch(MismatchPart::Operand, reason);
        }
    }
    Ok(matched)
}

/// The first row of `table` for this ISA that matches, or the mismatch of the row that fits best.
pub fn select(table: &[FmaForm], isa: Isa, scop: &Scop, id: StatementId, lane: Var) -> Result<Match, Mismatch> {
    select_by(table, isa, scop, id, |row| match_instruction(row, scop, id, lane))
}

/// Variant of [`select`] with another matcher.
pub fn select_by(
    table: &[FmaForm],
    isa: Isa,
    scop: &Scop,
    id: StatementId,
    matched: impl Fn(&FmaForm) -> Result<Match, Mismatch>,
) -> Result<Match, Mismatch> {
    let dtype = scop.tensor(scop.statement(id).target).dtype;
    let mut why: Option<Mismatch> = None;
    for row in table.iter().filter(|r| r.isa == isa && r.dtype == dtype) {
        match matched(row) {
            Ok(m) => return Ok(m),
            // Of the other reasons the first row's is said: the rows are in the order in which they are wanted.
            Err(e) if why.as_ref().is_none_or(|w| w.part < e.part && e.part == MismatchPart::Operand) => why = Some(e),
            Err(_) => {}
        }
    }
    let reason = format!("no instruction accumulates {dtype} on this target");
    Err(why.unwrap_or(Mismatch { part: MismatchPart::Table, reason }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::normalize::build;
    use crate::poly::samples;

    fn matched(p: &crate::poly::statement::Program, lane: &str) -> Result<Match, Mismatch> {
        let scop = build::build("t", p).unwrap();
        let id = scop.ids().find(|&s| scop.statement(s).reduce.is_some()).unwrap();
        let at = scop.statement(id).iterators.iter().position(|i| i.name == lane).unwrap();
        select(&table(), Isa::Avx512, &scop, id, Var(at as u32))
    }

    #[test]
    fn matrix_product_broadcasts_the_rows() {
        let m = matched(&samples::matmul(8, 32, 16), "n").unwrap();
        assert_eq!(m.instruction, "vfmadd231ps outer product");
        assert_eq!(m.operands.iter().map(|a| a.buffer.0).collect::<Vec<_>>(), [0, 1]);
        let m = matched(&samples::matmul(8, 32, 16), "m").unwrap();
        assert_eq!(m.operands.iter().map(|a| a.buffer.0).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn depthwise_multiplies_by_lanes() {
        assert_eq!(matched(&samples::depthwise(8, 16, 3, 1, 1), "c").unwrap().instruction, "vfmadd231ps by lanes");
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

    #[test]
    fn a_row_of_ones_own_is_matched() {
        let operand = |n: u32| Expr::load(crate::expr::BufferId(n), vec![]);
        let mut row = table().remove(0);
        row.name = "own max".into();
        row.reduce = BinaryOp::Max;
        row.body = operand(0);
        row.operands = vec![Role::Vector];
        let scop = build::build("t", &samples::softmax(2, 4, 8)).unwrap();
        let id = scop.ids().find(|&s| scop.statement(s).reduce == Some(BinaryOp::Max)).unwrap();
        let lane = Var(0);
        assert_eq!(match_instruction(&row, &scop, id, lane).unwrap().instruction, "own max");
    }
}
