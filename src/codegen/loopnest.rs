//! LoopNest: explicit loops over buffers. A scheduled Scop is lowered to it, and machine code is selected from it.
//!
//! Loop bounds, subscripts and guards are affine in the enclosing loop variables. Every variable is bound once in the
//! whole nest. The interpreter in `interpret.rs` defines what a nest means; loop kinds do not change the meaning.

pub mod affine_subscripts;
pub mod check_hoisting;
pub mod clamps;
pub mod dynamic_distance;
pub mod dynamic_loops;
pub mod dynamic_split;
pub mod fused_parts;
pub mod innermost;
pub mod interpret;
pub(in crate::codegen) mod invariant;
mod linear;
pub mod parse;
pub mod print;
pub mod simplify;
pub mod verify;

use crate::codegen::instruction::InstructionName;
use crate::expr::Bound;
use crate::expr::interval::Facts;
use crate::expr::narrow::{Interval, is_table_of_bytes, range_over_elements};
use crate::expr::{Affine, Var};
use crate::expr::{BinaryOp, Index};
use crate::expr::{BufferId, Expr, Literals, Scalar};
use crate::runtime::DType;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// One kernel. Each top-level statement is a phase: phases run one after the other with a barrier between, and a
/// top-level [`LoopKind::Parallel`] loop is divided over the threads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoopNest {
    pub name: String,
    pub buffers: Vec<Buffer>,
    /// Names of the loop variables, indexed by [`Var`].
    pub vars: Vec<String>,
    pub body: Vec<Stmt>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Buffer {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// Elements between neighbours along each dimension; row-major when nothing asks for padding.
    pub strides: Vec<i64>,
    pub kind: BufferKind,
    /// The contents, where they are known at compile time. They lie in memory as well.
    pub literals: Option<Literals>,
    /// The interval in which its elements lie, as is checked before the kernel runs.
    pub elements: Option<Interval>,
    /// The interval in which its element must lie when a run ends, of the least or the greatest subscript of a dimension: the element begins at
    /// one of the ends and has extremes accumulated, so that numbers inside do not change it.
    pub limits: Option<Interval>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BufferKind {
    /// Entry `slot` of the kernel's argument table. Distinct arguments never overlap, unless both are only read.
    Argument { slot: u32, written: bool },
    /// Private to one iteration of the parallel loop, contents undefined at its start. Becomes registers when every
    /// subscript is constant once `Unroll` and `Vector` loops are expanded, else memory of the thread's own.
    Local,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LoopKind {
    Serial,
    /// Iterations are independent; only the outermost loop of a phase. The runtime divides it over threads.
    Parallel,
    /// Like `Parallel`, in waves: only `width` consecutive iterations, from a multiple of `width` on, are independent. The
    /// runtime divides one wave after the other.
    Waves {
        width: i64,
    },
    /// Expanded completely. Bounds are constants.
    Unroll,
    /// Expanded to vector instructions, several registers when longer than one. Bounds are constants, starting at 0.
    /// The body may also be an accumulation whose target does not depend on the variable: a reduction over lanes.
    Vector,
    /// The sum of a tensor instruction, innermost below a vector loop: the body is one accumulation, whose operands are those
    /// of the row with this name. Bounds are constants, starting at 0; fewer terms than the row's leave zeros for the others.
    Instruction(InstructionName),
}

impl LoopKind {
    /// Returns true if the runtime divides the loop over threads.
    pub fn is_parallel(self) -> bool {
        matches!(self, LoopKind::Parallel | LoopKind::Waves { .. })
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Stmt {
    Loop {
        var: Var,
        /// The greatest of these is the first value.
        lower: Vec<Bound>,
        /// The least of these is one past the last value.
        upper: Vec<Bound>,
        step: i64,
        kind: LoopKind,
        body: Vec<Stmt>,
    },
    /// `var = ⌊value / divisor⌋`, visible in the rest of the enclosing body.
    Let { var: Var, value: Affine, divisor: i64 },
    /// `var = value`, an integer of 64 bits, brought into the closed interval `range`; visible in the rest of the enclosing body.
    /// Where it is `checked`, what runs the kernel has refused data with which the value lies outside. Costs take it for
    /// ⌊expected.affine / expected.divisor⌋. The least value below the interval and the greatest above it are `recorded` in the elements of two buffers.
    Read { var: Var, value: Expr, range: (i64, i64), checked: bool, expected: Bound, recorded: Option<[BufferId; 2]> },
    /// `body` where every condition is `affine ≥ 0`.
    If { conditions: Vec<Affine>, body: Vec<Stmt> },
    /// `buffer[index] = value`, or `buffer[index] = reduce(buffer[index], value)`.
    Store { buffer: BufferId, index: Vec<Index>, value: Expr, reduce: Option<BinaryOp> },
}

impl Stmt {
    /// Returns true for loops of vectors and of tensor instructions.
    pub fn is_vector_loop(&self) -> bool {
        matches!(self, Stmt::Loop { kind: LoopKind::Vector | LoopKind::Instruction(_), .. })
    }

    /// The statements of a loop or a condition; none of others.
    pub fn body(&self) -> &[Stmt] {
        match self {
            Stmt::Loop { body, .. } | Stmt::If { body, .. } => body,
            Stmt::Let { .. } | Stmt::Read { .. } | Stmt::Store { .. } => &[],
        }
    }

    /// Variant of [`Stmt::body`] for edits.
    fn body_mut(&mut self) -> &mut [Stmt] {
        match self {
            Stmt::Loop { body, .. } | Stmt::If { body, .. } => body,
            Stmt::Let { .. } | Stmt::Read { .. } | Stmt::Store { .. } => &mut [],
        }
    }

    /// A copy of this loop or condition with the body that `f` returns; other statements stay.
    pub fn map_body(mut self, f: impl FnOnce(Vec<Stmt>) -> Vec<Stmt>) -> Stmt {
        if let Stmt::Loop { body, .. } | Stmt::If { body, .. } = &mut self {
            *body = f(std::mem::take(body));
        }
        self
    }

    /// A copy of this loop or condition with another body; other statements stay.
    pub fn with_body(&self, body: Vec<Stmt>) -> Stmt {
        match self {
            Stmt::Loop { var, lower, upper, step, kind, .. } => {
                let (lower, upper) = (lower.clone(), upper.clone());
                Stmt::Loop { var: *var, lower, upper, step: *step, kind: *kind, body }
            }
            Stmt::If { conditions, .. } => Stmt::If { conditions: conditions.clone(), body },
            other => other.clone(),
        }
    }

    /// Adds what holds in the body of this loop or condition to `facts`.
    pub fn enter(&self, facts: &mut Facts) {
        match self {
            Stmt::Loop { var, lower, upper, step, .. } => facts.enter_loop(*var, lower, upper, *step),
            Stmt::If { conditions, .. } => conditions.iter().for_each(|c| facts.assume(c.clone())),
            _ => {}
        }
    }

    /// Adds what holds behind this statement to `facts`.
    pub fn bind(&self, facts: &mut Facts) {
        match self {
            Stmt::Let { var, value, divisor } => facts.bind(*var, value, *divisor),
            Stmt::Read { var, range, .. } => facts.set_range(*var, *range),
            _ => {}
        }
    }

    /// Calls `f` on the statement and all in its body, outer ones first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Stmt)) {
        f(self);
        self.body().iter().for_each(|s| s.visit(f));
    }

    /// Variant of [`Stmt::visit`] for edits.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Stmt)) {
        f(self);
        self.body_mut().iter_mut().for_each(|s| s.visit_mut(f));
    }

    /// Returns true if the statement, or one in it, names a variable that it does not define.
    pub fn names(&self, var: Var) -> bool {
        let in_bounds = |bounds: &[Bound]| bounds.iter().any(|b| b.affine.uses(var));
        let here = match self {
            Stmt::Loop { lower, upper, .. } => in_bounds(lower) || in_bounds(upper),
            Stmt::If { conditions, .. } => conditions.iter().any(|c| c.uses(var)),
            Stmt::Let { value, .. } => value.uses(var),
            Stmt::Read { expected, .. } => expected.affine.uses(var),
            Stmt::Store { index, .. } => index.iter().any(|i| i.affine().is_some_and(|a| a.uses(var))),
        };
        here || self.expressions().any(|e| e.depends_on(var)) || self.body().iter().any(|s| s.names(var))
    }

    /// The expressions of a store, the value and then the computed subscripts, or of a read.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (index, value): (&[Index], _) = match self {
            Stmt::Store { index, value, .. } => (index, Some(value)),
            Stmt::Read { value, .. } => (&[], Some(value)),
            _ => (&[], None),
        };
        value.into_iter().chain(index.iter().filter_map(Index::value))
    }
}

impl LoopNest {
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// Replaces statements inside of the phases, outer ones first, by what `f` makes of them, where it makes something; it gets what holds there.
    /// A phase stays one statement, and what `f` has made is not looked at again.
    pub fn replace_statements(&mut self, f: &mut impl FnMut(&mut LoopNest, &Stmt, &Facts) -> Option<Vec<Stmt>>) {
        let facts = Facts::new(self.vars.len());
        let phases = std::mem::take(&mut self.body);
        self.body = phases.into_iter().map(|phase| self.replaced_inside(phase, &facts, f)).collect();
    }

    fn replaced_inside(
        &mut self,
        stmt: Stmt,
        facts: &Facts,
        f: &mut impl FnMut(&mut LoopNest, &Stmt, &Facts) -> Option<Vec<Stmt>>,
    ) -> Stmt {
        let mut inside = facts.clone();
        stmt.enter(&mut inside);
        stmt.map_body(|body| {
            let mut out = vec![];
            for stmt in body {
                stmt.bind(&mut inside);
                match f(self, &stmt, &inside) {
                    Some(parts) => out.extend(parts),
                    None => out.push(self.replaced_inside(stmt, &inside, f)),
                }
            }
            out
        })
    }

    /// The interval of an integer expression; `None` where it may have wrapped around, and of floats and u64.
    pub fn exact_range(&self, e: &Expr, facts: &Facts) -> Option<Interval> {
        let (dtype, elements) = (|b: BufferId| self.buffer(b).dtype, |b: BufferId| self.buffer(b).elements);
        let range = range_over_elements(&dtype, &elements, &|a| facts.bounds(a), e);
        range.filter(|range| *range != (i64::MIN, i64::MAX))
    }

    /// Returns true for a table of bytes in memory.
    pub fn is_table(&self, id: BufferId) -> bool {
        let buffer = self.buffer(id);
        matches!(buffer.kind, BufferKind::Argument { .. }) && is_table_of_bytes(buffer.dtype, &buffer.shape)
    }

    pub fn new_var(&mut self, name: impl Into<String>) -> Var {
        self.vars.push(name.into());
        Var(self.vars.len() as u32 - 1)
    }
}

/// The number of accesses to each buffer.
pub type Accesses = FxHashMap<BufferId, usize>;

/// Counts the accesses of statements: each assignment or update, and each load.
pub fn accesses(body: &[Stmt]) -> Accesses {
    let mut out = Accesses::default();
    for stmt in body {
        stmt.visit(&mut |s| {
            if let Stmt::Store { buffer, .. } = s {
                *out.entry(*buffer).or_default() += 1;
            }
            s.expressions().for_each(|e| e.visit_accesses(&mut |a| *out.entry(a.buffer).or_default() += 1));
        });
    }
    out
}

/// Returns true if an element keeps all bits of its value where it is assigned `value`, or combined with it.
pub fn is_kept(
    buffers: &[Buffer],
    (buffer, index): (BufferId, &[Index]),
    reduce: Option<BinaryOp>,
    value: &Expr,
) -> bool {
    match (reduce, value) {
        (Some(op), Expr::Const(c)) => unchanged(op, buffers[buffer.0 as usize].dtype) == Some(*c),
        (None, Expr::Load(a)) => a.buffer == buffer && a.index == index && a.guard.is_empty(),
        _ => false,
    }
}

/// The operand that leaves an element as it is.
fn unchanged(op: BinaryOp, dtype: DType) -> Option<Scalar> {
    let negative = op == BinaryOp::Add && dtype.is_float();
    if negative { Some(Scalar::of(dtype, -0.0)) } else { Scalar::neutral(op, dtype).ok() }
}

impl Buffer {
    /// A buffer with row-major strides.
    pub fn dense(name: impl Into<String>, dtype: DType, shape: &[i64], kind: BufferKind) -> Buffer {
        Buffer {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            strides: row_major(shape),
            kind,
            literals: None,
            elements: None,
            limits: None,
        }
    }

    /// Elements from the first to one past the last, gaps included; 0 when some extent is 0.
    pub fn span(&self) -> i64 {
        if self.shape.contains(&0) {
            return 0;
        }
        1 + self.shape.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s).sum::<i64>()
    }

    /// The place of an element in memory, in elements; `None` where a subscript is computed.
    pub fn place(&self, index: &[Index]) -> Option<Affine> {
        let mut place = Affine::constant(0);
        for (i, &stride) in index.iter().zip(&self.strides) {
            place = place.add_scaled(i.affine()?, stride);
        }
        Some(place)
    }

    /// Bytes of the span; `None` when they are more than can be addressed.
    pub fn bytes(&self) -> Option<i64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let last = self
            .shape
            .iter()
            .zip(&self.strides)
            .try_fold(0i64, |sum, (n, s)| sum.checked_add((n - 1).checked_mul(*s)?));
        last?.checked_add(1)?.checked_mul(self.dtype.bytes() as i64)
    }
}

/// Row-major strides of `shape`, in elements.
pub fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * shape[i + 1];
    }
    strides
}
