//! The state of a lowering: buffers, classes, and where temporaries are placed.

use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::expr::Affine;
use crate::expr::{BufferId, Expr, Scalar};
use crate::poly::lower::contraction::Contraction;
use crate::poly::packing::Pack;
use crate::poly::scop::Scop;
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

/// φ of some statements, known to be `base + 0..extent`.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(in crate::poly::lower) phi: Vec<(StatementId, Affine)>,
    pub(in crate::poly::lower) base: Affine,
    pub(in crate::poly::lower) extent: i64,
}

/// Facts about one place of the tree.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(in crate::poly::lower) classes: Vec<Class>,
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

impl Default for State {
    fn default() -> State {
        State { classes: vec![], coincident: true, loops: 0, placed: vec![], mode: Mode::Body, factor: None }
    }
}

pub(super) struct Lowering<'a> {
    pub(in crate::poly::lower) scop: &'a Scop,
    pub(in crate::poly::lower) tiled: &'a Tiled,
    pub(in crate::poly::lower) nest: LoopNest,
    pub(in crate::poly::lower) arguments: Vec<Argument>,
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
    /// Subscripts in memory of elements of buffers that have a layout.
    pub(in crate::poly::lower) laid: Vec<(BufferId, Vec<Affine>, Vec<Affine>)>,
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
