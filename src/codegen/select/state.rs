//! State of instruction selection, shared by the selection of loops, expressions, accesses and reductions.
//!
//! Invariant: a register that a table of [`Selector`] names holds the value in the table until the table is cleared.

use crate::codegen::Target;
use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::codegen::select::tile_pass::Pass;
use crate::codegen::select::tree::{Node, Pointer, Tree};
use crate::codegen::vcode::{Gpr, Inst, Lane, VType, Vreg};
use crate::expr::interval::Facts;
use crate::expr::{Affine, Bound, Var};
use crate::expr::{BinaryOp, BufferId, Expr, Scalar};
use crate::runtime::{DType, Error};
use rustc_hash::{FxHashMap, FxHashSet};

/// The lane number, in affine forms over runtime variables.
pub const LANE: Var = Var(0);

/// The first iteration of the call, in affine forms of a tree before its parallel loop.
pub const FIRST: Var = Var(u32::MAX);

/// Why a selection ends early: an error, or a local buffer that must live otherwise.
pub enum Stop {
    Failed(Error),
    Retry(BufferId, LocalMode),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

pub type Selected<T> = Result<T, Stop>;

/// The storage of a local buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalMode {
    /// Vectors in registers. `blend`: a write of fewer lanes than are in use keeps the others.
    Registers { blend: bool },
    /// Scratch memory at this offset.
    Memory { offset: i64 },
}

/// The lanes that are computed now: `lanes` lanes of which `first..first+count` take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub lanes: u8,
    pub first: u8,
    pub count: u8,
    /// Bytes of the widest lane type at work.
    pub widest: usize,
}

/// The type as which elements are loaded: `group` neighbours together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    pub dtype: DType,
    pub group: i64,
}

pub struct Selector<'a> {
    pub nest: &'a LoopNest,
    pub target: &'a Target,
    /// Bytes of the widest lane type of each vector loop.
    pub widths: &'a FxHashMap<Var, usize>,
    pub locals: &'a [LocalMode],
    /// Each variable of the nest over runtime variables and [`LANE`].
    pub env: Vec<Affine>,
    pub facts: Facts,
    pub next_var: u32,
    pub tree: Tree,
    pub pointer_ids: FxHashMap<Pointer, Gpr>,
    pub versions: FxHashMap<Vreg, u32>,
    pub values: FxHashMap<Key, Known>,
    /// Integers in registers: the node that defines each, without its variable.
    pub integers: Vec<(Node, Var, Option<Span>)>,
    /// Reads behind branches.
    pub branches: Vec<(Branch, Val)>,
    pub out: Vec<Node>,
    pub chunk: Chunk,
    /// Conditions that differ from lane to lane: lanes are stored to memory where all of them hold.
    pub masked: Vec<Affine>,
    pub slots: FxHashMap<(BufferId, i64), Slot>,
    pub deferred: Vec<Deferred>,
    pub owners: FxHashMap<(BufferId, i64), i64>,
    pub frames: Vec<Frame>,
    pub reductions: Vec<Reduction>,
    /// The unrolled loop of which two iterations are done at once.
    pub pair: Option<Var>,
    /// Loads take groups of elements.
    pub view: Option<View>,
    /// The sums in tile registers.
    pub tile: Option<Pass>,
    /// The sums in matrices.
    pub matrices: Option<Vec<Vreg>>,
    /// The vectors of sums of f16.
    pub half_sums: Option<Vec<Vreg>>,
    /// The loop of whose iterations an instruction on tiles takes several.
    pub innermost: Option<Var>,
    /// Integers that were read for bounds of loops, and what costs take them for.
    pub expected: Vec<(Affine, Bound)>,
}

/// The lanes `from..to` where a condition over the lane number alone holds.
pub fn lane_range(c: &Affine) -> Option<(i64, i64)> {
    match c.terms[..] {
        [(LANE, k)] if k > 0 => Some((crate::expr::interval::ceil_div(-c.constant, k), i64::MAX)),
        [(LANE, k)] => Some((i64::MIN, c.constant.div_euclid(-k) + 1)),
        _ => None,
    }
}

/// Position of an element: `linear` elements from the start of the buffer, plus lane values times strides.
#[derive(Clone, PartialEq, Debug)]
pub struct Address {
    pub buffer: BufferId,
    pub linear: Affine,
    pub gather: Vec<(Expr, i64)>,
}

impl Address {
    /// Returns true if lanes have different elements.
    pub fn varies(&self) -> bool {
        self.linear.uses(LANE) || !self.gather.is_empty()
    }
}

/// A read behind a branch, and its dependences.
#[derive(Clone, PartialEq, Debug)]
pub struct Branch {
    pub address: Address,
    pub guards: Vec<Affine>,
    /// Guards that differ from lane to lane.
    pub masked: Vec<Affine>,
    /// First lane that is read, and one past the last; `None` for all.
    pub lanes: Option<(i64, i64)>,
    pub otherwise: Scalar,
    pub chunk: Chunk,
}

/// A value in a vector register. A bool is a mask in integer lanes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Val {
    pub reg: Vreg,
    pub lane: Lane,
    pub dtype: DType,
    /// True if all lanes of the whole register are equal.
    pub uniform: bool,
}

/// A reduction over the lanes of the vector loop being expanded.
pub struct Reduction {
    pub stmt: *const Stmt,
    pub target: Address,
    pub op: BinaryOp,
    /// Not-a-number among the values makes the result one.
    pub keeps: bool,
    pub accumulators: Vec<Val>,
    pub next: usize,
}

/// Most vector registers that an instruction reads.
pub const MOST_READS: usize = 5;

/// The key of a computation in value numbering: the instruction without its destination, and the versions of its
/// operands.
pub type Key = (Inst, [u32; MOST_READS]);

/// Memory that a value was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub buffer: BufferId,
    /// Pointer, first byte and one past the last; `None` when any part of the buffer may be meant.
    pub bytes: Option<(Gpr, i64, i64)>,
}

/// A value in a register.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub reg: Vreg,
    /// For loads, the memory.
    pub span: Option<Span>,
    /// Number of registers in use when the value was used last.
    pub used: u32,
}

/// One vector of a local buffer.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub reg: Vreg,
    pub uniform: bool,
    pub lane: Lane,
    /// Lanes that may be in use, and lanes written last.
    pub lanes: u8,
    pub valid: u8,
}

/// The value of a slot that is not in its register.
#[derive(Clone, Debug)]
pub struct Deferred {
    pub slot: (BufferId, i64),
    /// The lanes that were at work.
    pub chunk: Chunk,
    pub ty: VType,
    /// `None`: zero.
    pub value: Option<Val>,
}

/// Local vectors that a loop body writes, and those that it reads before.
#[derive(Default)]
pub struct Frame {
    pub written: FxHashSet<(BufferId, i64)>,
    pub exposed: FxHashSet<(BufferId, i64)>,
}
