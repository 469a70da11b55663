//! Statements whose sums a declared tensor instruction takes, several terms at a time.
//!
//! In: a statement, an iterator for the lanes and a reduced one for the terms within a lane. Out: the row that computes
//! the points of both, or the operand that does not fit and the reason. The row's iterators are unified with parts of the two
//! iterators, its term with the statement's body. Where the extent of the reduced iterator is not a multiple of the row's, the
//! last terms are zeros: the neutral element of the sum. A body of several summands is as many steps of the row, one after the other;
//! the operand in lanes may be a part of the bits of what is read, such as a number of 4 bits.

use crate::codegen::instruction::{Form, InstructionName, MATRIX_SIDE, Operand, Part, TILE_ROWS, TensorInstruction};
use crate::expr::{Access, BinaryOp, Index, Var};
use crate::poly::analysis::access::{Along, Reference, references};
use crate::poly::instruction::{Mismatch, MismatchPart, Pairing, is_fma, mismatch};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::runtime::DType;

/// A row that computes a part of a statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Grouped {
    pub row: InstructionName,
    /// The iterator of which a part is in the lanes.
    pub lane: Var,
    /// The reduced iterator of which a part is within a lane, and the terms of that part.
    pub group: Var,
    pub terms: i64,
    /// The read of the operand that differs from lane to lane (position among the references).
    pub vector: usize,
    /// Products of a group of terms that are added to a sum in a step: the summands of the statement's body.
    pub products: usize,
    /// The form of the sums in a register.
    pub sums: Sums,
}

/// Sums of a statement in a register of the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sums {
    /// One for each lane.
    Vector,
    /// Rows and columns in a tile register; the columns are the lanes, the rows a part of a parallel iterator of the other operand.
    Tile,
    /// Rows and columns in a vector register, as in a tile.
    Matrix,
}

/// Matches a row with a statement.
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
    let name = |v: Var| &s.iterator(v).name;
    if s.reduce != Some(BinaryOp::Add) || s.is_scatter() {
        return mismatch(MismatchPart::Reduction, format!("`{}` is not a sum", s.name));
    }
    let target = scop.tensor(s.target);
    if target.dtype != row.operands[0].dtype {
        let reason = format!("accumulator `{}` is {}, not {}", target.name, target.dtype, row.operands[0].dtype);
        return mismatch(MismatchPart::Accumulator, reason);
    }
    // Selection has lanes of 32 bits for u32 only where all that is done with its elements wraps, and then they are those of i32.
    if target.dtype == DType::U32 {
        let reason = format!("accumulator `{}` is u32, whose lanes no instruction sums", target.name);
        return mismatch(MismatchPart::Accumulator, reason);
    }
    if !sums_in_lanes(row) && !sums_in_tiles(row) && !sums_in_matrices(row) {
        let reason = format!("`{}` does not sum two operands, each for a lane or for all lanes", row.name);
        return mismatch(MismatchPart::Table, reason);
    }
    if !s.writes_along(lane) || s.writes_along(group) {
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
    let extent = s.extent(group);
    let terms = row.terms_in_lane();
    let whole = row.is_tile() || row.is_matrix();
    if extent % terms != 0 && (whole || !adds_nothing_for_zeros(row)) {
        let why = match whole {
            true if row.is_tile() => "tiles have no part of a lane",
            true => "matrices have no part of a group",
            false => "zeros add something",
        };
        let reason = format!("{extent} terms along `{}` are not a multiple of {terms}, and {why}", name(group));
        return mismatch(MismatchPart::Body, reason);
    }
    let pairing = Pairing { row, scop, id, references };
    let summands = pairing.summands(&s.body, &|operand, part| pairing.fits_group(operand, part, [lane, group]))?;
    let vector = one_vector(&summands, &|access| {
        let position = references.iter().position(|r| r.access.as_ref() == Some(access))?;
        Some((position, references[position].depends(lane)))
    });
    let Some(vector) = vector else {
        let reason = format!("one operand must vary with `{}`, and the other one not", name(lane));
        return mismatch(MismatchPart::Operand, reason);
    };
    if (whole || row.sums_halves()) && !is_plain(&summands) {
        let reason = format!("`{}` has several terms, or parts of elements", s.name);
        return mismatch(MismatchPart::Body, reason);
    }
    Ok(Grouped {
        row: row.name,
        lane,
        group,
        terms,
        vector,
        products: summands.len(),
        sums: match (row.is_tile(), row.is_matrix()) {
            (true, _) => Sums::Tile,
            (_, true) => Sums::Matrix,
            _ => Sums::Vector,
        },
    })
}

/// The mismatch of a statement with rows of fused products and sums, `why`, or where the target has none for its type, that of the row that fits
/// a sum best: of rows whose types it reads, or else of others.
pub fn closest(why: Mismatch, rows: &[TensorInstruction], scop: &Scop, id: StatementId, lane: Var) -> Mismatch {
    let s = scop.statement(id);
    if why.part != MismatchPart::Table || s.reduce != Some(BinaryOp::Add) {
        return why;
    }
    let references = references(scop, id);
    let reads = || references.iter().filter_map(|r| r.access.as_ref());
    let read = |o: &Operand| reads().any(|a| scop.tensor(a.buffer).dtype == o.dtype);
    let dtype = scop.tensor(s.target).dtype;
    let summed = || (0..s.iterators.len() as u32).map(Var).filter(|&v| !s.writes_along(v));
    let mut best: Option<(bool, Mismatch)> = None;
    for row in rows.iter().filter(|row| row.operands[0].dtype == dtype && !is_fma(row)) {
        let types = row.operands[1..].iter().all(read);
        for group in summed() {
            let Err(e) = match_grouped(row, scop, id, &references, [lane, group]) else {
                let reason = format!("`{}` computes it and is not chosen", row.name);
                return Mismatch { part: MismatchPart::Operand, reason };
            };
            if best.as_ref().is_none_or(|b| (b.0, b.1.part) < (types, e.part)) {
                let named = e.reason.contains(row.name.as_str());
                let reason = if named { e.reason } else { format!("{}, for `{}`", e.reason, row.name) };
                best = Some((types, Mismatch { reason, ..e }));
            }
        }
    }
    best.map_or(why, |b| b.1)
}

/// Returns true for one term of whole elements.
fn is_plain(summands: &[Vec<Part>]) -> bool {
    summands.len() == 1 && summands[0].iter().all(Part::is_whole)
}

/// The read that differs from lane to lane, the same one in each summand, where the other operand of each is the same in all lanes.
/// `varies` gives the position of a read and whether it differs.
fn one_vector(summands: &[Vec<Part>], varies: &dyn Fn(&Access) -> Option<(usize, bool)>) -> Option<usize> {
    let of_summand = |parts: &Vec<Part>| {
        let [a, b] = &parts[..] else { return None };
        match (varies(a.access)?, varies(b.access)?) {
            ((vector, true), (_, false)) | ((_, false), (vector, true)) => Some(vector),
            _ => None,
        }
    };
    let mut vectors = summands.iter().map(of_summand);
    let first = vectors.next()??;
    vectors.all(|v| v == Some(first)).then_some(first)
}

/// Returns true if a row has the form `C(j) += f(A(j, q), B(j, q))`, where an operand may lack `j`, and all may lack `q`, in lanes
/// as wide as the elements of `C`, which have lanes of their own in vectors.
fn sums_in_lanes(row: &TensorInstruction) -> bool {
    let [acc, a, b] = &row.operands[..] else { return false };
    let ([lane], summed) = (&acc.indices[..], row.summed().collect::<Vec<Var>>()) else { return false };
    let in_lanes = [&[*lane], &summed[..]].concat();
    let fits = |o: &Operand| match o.form {
        Form::Broadcast => o.indices == summed,
        Form::Vector => o.indices == in_lanes,
        Form::Tile => false,
    };
    let wide = |o: &Operand| row.terms() as usize * o.dtype.bytes() == acc.dtype.bytes();
    let lanes =
        matches!(acc.dtype, DType::I32 | DType::I64 | DType::U64 | DType::F32 | DType::F64) || row.sums_halves();
    summed.len() <= 1 && lanes && fits(a) && fits(b) && wide(a) && wide(b)
}

/// Returns true if a row has the form `C(i, j) += f(A(i, p, q), B(p, j, q))` in tiles, with the terms of `q` in a lane as wide as an
/// element of `C`, of 4 bytes.
fn sums_in_tiles(row: &TensorInstruction) -> bool {
    let ([acc, a, b], true) = (&row.operands[..], row.is_tile()) else { return false };
    let summed: Vec<Var> = row.summed().collect();
    let (&[i, j], &[p, q]) = (&acc.indices[..], &summed[..]) else { return false };
    let lanes = |o: &Operand| row.extent(q) as usize * o.dtype.bytes() == acc.dtype.bytes();
    let full = [i, j, p].iter().all(|&v| row.extent(v) == TILE_ROWS as i64);
    a.indices == [i, p, q] && b.indices == [p, j, q] && full && acc.dtype.bytes() == 4 && lanes(a) && lanes(b)
}

/// Returns true if a row has the form `C(i, j) += f(A(i, q), B(j, q))` in vectors, with two rows and columns of sums and the terms
/// of `q` (or of several iterators) in 8 bytes.
fn sums_in_matrices(row: &TensorInstruction) -> bool {
    let ([acc, a, b], true) = (&row.operands[..], row.is_matrix()) else { return false };
    let summed: Vec<Var> = row.summed().collect();
    let &[i, j] = &acc.indices[..] else { return false };
    let terms = |v: Var| [&[v], &summed[..]].concat();
    let sides = [i, j].iter().all(|&v| row.extent(v) == MATRIX_SIDE);
    let lanes = matches!(acc.dtype, DType::I32 | DType::F32);
    let half = |o: &Operand| row.terms() as usize * o.dtype.bytes() == 8;
    let vectors = [a, b].iter().all(|o| o.form == Form::Vector && half(o));
    a.indices == terms(i) && b.indices == terms(j) && sides && lanes && vectors
}

/// Returns true if operands of zeros leave the accumulator as it is, so that a group may be filled with them.
fn adds_nothing_for_zeros(row: &TensorInstruction) -> bool {
    let zeros = vec![0; row.register_bytes()];
    let mut total = zeros.clone();
    row.evaluate(&mut total, &[&zeros, &zeros]).is_ok() && total == zeros
}

impl Grouped {
    /// Returns true if the row works on tiles.
    pub fn is_tile(&self) -> bool {
        self.sums == Sums::Tile
    }
}

impl Pairing<'_> {
    /// That a read can be an operand of a row that sums several terms in a lane.
    ///
    /// # Errors
    /// Why it cannot.
    fn fits_group(&self, operand: usize, part: &Part, [lane, group]: [Var; 2]) -> Result<(), String> {
        let (row, s, o) = (self.row, self.statement(), &self.row.operands[operand]);
        let ((tensor, r), access) = (self.read(o, part, false)?, part.access);
        let (lane_name, group_name) = (self.name(lane), self.name(group));
        if access.buffer == s.target {
            return Err(format!("operand `{tensor}` is the accumulator"));
        }
        if (row.is_tile() || row.is_matrix()) && !access.guard.is_empty() {
            return Err(format!("operand `{tensor}` is not read everywhere, and `{}` reads whole rows", row.name));
        }
        if row.sums_halves() && access.guard.iter().any(|g| g.uses(lane)) {
            return Err(format!("operand `{tensor}` is not read for every `{lane_name}`"));
        }
        if access.guard.iter().any(|g| g.uses(group)) || access.index.iter().any(|i| matches!(i, Index::Value(_))) {
            return Err(format!("the terms of operand `{tensor}` along `{group_name}` are not read together"));
        }
        let together = row.terms_in_lane() > 1;
        let form = match row.operands[0].indices.get(1) {
            Some(columns) if o.indices.contains(columns) => Form::Vector,
            Some(_) => Form::Broadcast,
            None => o.form,
        };
        if form == Form::Broadcast {
            self.require_broadcast(tensor, r, lane)?;
        }
        match (form, r.depends(lane)) {
            (_, false) if together && r.along(group) != Along::Unit => {
                Err(format!("operand `{tensor}` is not contiguous along `{group_name}`"))
            }
            (Form::Vector, true) if together && !r.depends(group) => {
                Err(format!("operand `{tensor}` does not vary with `{group_name}`"))
            }
            (Form::Vector, true) if (together || r.along(lane) != Along::Unit) && !r.packable(s) => {
                Err(format!("operand `{tensor}` cannot be packed in groups of `{group_name}`"))
            }
            _ => Ok(()),
        }
    }
}
