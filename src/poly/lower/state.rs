//! The state of a lowering: buffers, values of rows, and where temporaries are placed.

use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::expr::{Affine, BufferId, Expr, Scalar, Var};
use crate::poly::lower::contraction::Contraction;
use crate::poly::lower::folding::Fold;
use crate::poly::packing::Pack;
use crate::poly::schedule::{Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Form, Polyhedron};
use crate::poly::statement::StatementId;
use crate::poly::tile::report::Tiled;

#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A tensor of the Scop, which has the external tensors of the Program in the same order. Its buffer is marked as
    /// written when the tensor is an output or updated in place; it is one argument either way.
    Tensor(BufferId),
    /// A constant, packed at compile time.
    Packed(Pack),
    /// Memory that the kernel needs while it runs; contents undefined.
    Workspace { bytes: usize },
}

/// The values of a row at one place: φ of some statements is `base + 0..extent`.
#[derive(Clone, Debug)]
pub(super) struct RowValues {
    pub(in crate::poly::lower) phi: Vec<(StatementId, Affine)>,
    /// Affine in the variables in scope, and a multiple of the extent where loops are scanned.
    pub(in crate::poly::lower) base: Affine,
    pub(in crate::poly::lower) extent: i64,
}

impl RowValues {
    /// Returns true if the row is this one, or one of points in these tiles.
    pub(in crate::poly::lower) fn covers(&self, row: &Row) -> bool {
        row.phi.iter().all(|p| self.phi.contains(p))
    }

    /// A row that has one value here.
    pub(in crate::poly::lower) fn row(&self) -> Row {
        Row { tile: self.extent, ..Row::serial("", self.phi.clone()) }
    }

    /// φ of a statement and its value, where the row fixes it.
    pub(in crate::poly::lower) fn equation(&self, id: StatementId) -> Option<(Affine, Affine)> {
        let (_, phi) = self.phi.iter().find(|p| p.0 == id)?;
        Some((quotient(phi, self.extent)?, quotient(&self.base, self.extent)?))
    }
}

/// A form divided by what divides each of its coefficients.
pub(super) fn quotient(a: &Affine, by: i64) -> Option<Affine> {
    let whole = a.constant % by == 0 && a.terms.iter().all(|t| t.1 % by == 0);
    whole.then(|| a.terms.iter().fold(Affine::constant(a.constant / by), |sum, t| sum.plus(t.0, t.1 / by)))
}

/// The rest of a schedule tree at one place: rows of a band, what is below them, and the statements there.
#[derive(Clone, Copy)]
pub(super) struct Subtree<'t> {
    pub(in crate::poly::lower) rows: &'t [Row],
    pub(in crate::poly::lower) child: &'t Node,
    pub(in crate::poly::lower) statements: &'t [StatementId],
}

impl<'t> Subtree<'t> {
    /// The rest after some rows.
    pub(in crate::poly::lower) fn after(self, count: usize) -> Subtree<'t> {
        Subtree { rows: &self.rows[count..], ..self }
    }

    /// The rows down to the leaf of a statement.
    pub(in crate::poly::lower) fn rows_of(self, id: StatementId) -> Vec<&'t Row> {
        self.rows.iter().chain(self.child.bands_to(&[id]).into_iter().flat_map(|(band, _)| &band.rows)).collect()
    }
}

/// Facts about one place of the tree.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The variables in scope of exact bounds, which are the variables of `context`; those of boxes have intervals only.
    pub(in crate::poly::lower) vars: Vec<Var>,
    pub(in crate::poly::lower) context: Polyhedron,
    pub(in crate::poly::lower) rows: Vec<RowValues>,
    /// The loops from here on are over boxes.
    pub(in crate::poly::lower) boxes: bool,
    /// No loop is around yet, so that one may be parallel.
    pub(in crate::poly::lower) outermost: bool,
    /// Every row so far is coincident.
    pub(in crate::poly::lower) coincident: bool,
    /// The number of rows so far.
    pub(in crate::poly::lower) loops: usize,
    /// Temporaries that live in a local buffer here: element `x` is at `x - origin`.
    pub(in crate::poly::lower) placed: Vec<Placed>,
    /// The store of an update is replaced by a copy between its target and the local tile that stands for it.
    pub(in crate::poly::lower) mode: Mode,
    /// The sum in the local tile is this constant times smaller than what the update adds, and sums this instead.
    pub(in crate::poly::lower) factor: Option<(Scalar, Expr)>,
}

impl Site {
    pub(in crate::poly::lower) fn form(&self, a: &Affine, dims: usize) -> Form {
        let mut form = vec![0; dims + 1];
        for &(v, c) in &a.terms {
            form[self.vars.iter().position(|w| *w == v).expect("in scope")] += c;
        }
        form[dims] = a.constant;
        form
    }

    /// A form over the variables in scope and, from there on, `more`.
    pub(in crate::poly::lower) fn affine(&self, form: &[i64]) -> Affine {
        let terms = self.vars.iter().zip(form).filter(|(_, c)| **c != 0);
        terms.fold(Affine::constant(form[form.len() - 1]), |a, (&v, &c)| a.plus(v, c))
    }

    pub(in crate::poly::lower) fn with(&self, v: Var) -> Site {
        let mut out = self.clone();
        out.vars.push(v);
        out.outermost = false;
        out.context.add_variable();
        out
    }

    pub(in crate::poly::lower) fn require(&mut self, more: &Polyhedron) {
        self.context.intersect(more);
    }

    /// The row of tiles that a row of points lies in.
    pub(in crate::poly::lower) fn tile_of(&self, row: &Row) -> Option<&RowValues> {
        self.rows.iter().rev().find(|d| d.extent > 1 && d.covers(row))
    }

    /// Notes that the row has one value from here on.
    pub(in crate::poly::lower) fn fix(&mut self, row: &Row, value: Affine) {
        self.rows.push(RowValues { phi: row.phi.clone(), base: value.scale(row.tile), extent: row.tile });
    }
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(in crate::poly::lower) tensor: BufferId,
    pub(in crate::poly::lower) buffer: BufferId,
    pub(in crate::poly::lower) origin: Vec<Affine>,
    /// For the target of an update only; its body does not read it.
    pub(in crate::poly::lower) sums: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Mode {
    Body,
    /// Local tile = target.
    Fill,
    /// Target = local tile.
    Spill,
}

impl Default for Site {
    fn default() -> Site {
        let (vars, context, rows) = (vec![], Polyhedron::universe(0), vec![]);
        let (placed, mode) = (vec![], Mode::Body);
        let (boxes, outermost) = (false, false);
        Site { vars, context, rows, boxes, outermost, coincident: true, loops: 0, placed, mode, factor: None }
    }
}

pub(super) struct Lowering<'a> {
    pub(in crate::poly::lower) scop: &'a Scop,
    pub(in crate::poly::lower) tiled: &'a Tiled,
    /// The schedule with its waves, for which memory is planned.
    pub(in crate::poly::lower) storage: &'a Schedule,
    pub(in crate::poly::lower) nest: LoopNest,
    pub(in crate::poly::lower) arguments: Vec<Argument>,
    /// The statements that read or write each tensor of the Scop.
    pub(in crate::poly::lower) users: Vec<Vec<StatementId>>,
    /// The argument or workspace of each tensor of the Scop.
    pub(in crate::poly::lower) tensors: Vec<Option<BufferId>>,
    /// The buffer of each packing.
    pub(in crate::poly::lower) packed: Vec<BufferId>,
    /// Local buffers, shared by the copies of a tile.
    pub(in crate::poly::lower) locals: Vec<(Local, BufferId)>,
    /// Closed interval of each loop variable, as far as the place that is being written is concerned.
    pub(in crate::poly::lower) ranges: Vec<(i64, i64)>,
    /// Stores written so far by the scan of polyhedra.
    pub(in crate::poly::lower) stores: usize,
    /// Temporaries of which the scan of polyhedra keeps what one iteration of some loops needs.
    pub(in crate::poly::lower) contractions: Vec<Contraction>,
    /// Temporaries in folded memory.
    pub(in crate::poly::lower) folds: Vec<Fold>,
    /// Subscripts in memory of elements of buffers that have a layout.
    pub(in crate::poly::lower) laid: Vec<(BufferId, Vec<Affine>, Vec<Affine>)>,
    /// Answers that the solvers of all phases share.
    pub(in crate::poly::lower) answers: &'a Answers,
    /// The solver of the phase.
    pub(in crate::poly::lower) isl: Isl,
}

/// The iterators of a statement at one place.
pub(super) struct Solution {
    /// Affine in loop variables.
    pub iterators: Vec<Affine>,
    /// Conditions for the instance to exist that the loops do not imply.
    pub conditions: Vec<Affine>,
    /// Divisions that the iterators use.
    pub lets: Vec<Stmt>,
    /// The rows give each iterator once and without a division, so that all values of the loops are instances.
    pub is_exact: bool,
}

/// The meaning of a local buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Local {
    Temporary(BufferId),
    /// As `Temporary`, in memory that all threads share.
    Workspace(BufferId),
    /// The part of its target that an update accumulates in registers.
    Tile(StatementId),
    /// One such part of several, of loops that are divided in full and partial tiles.
    TileOf(StatementId, u32),
}
