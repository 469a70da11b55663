//! The tree between LoopNest and VCode: loops over vector instructions whose addresses are still symbolic.
//!
//! Runtime integers are variables of affine forms: loop variables, floor divisions, loaded subscripts. In an instruction of
//! the tree the base register of an address is not a register but the number of a [`Pointer`]; `address.rs` turns pointers
//! into registers that are bumped once per iteration.

use crate::codegen::vcode::{Addr, GprOp, Inst, VType, Vreg};
use crate::expr::Bound;
use crate::expr::{Affine, Var};
use crate::runtime::DType;

/// The largest displacement that stays in an instruction; the rest goes into the pointer.
pub const MAX_DISPLACEMENT: i64 = 1 << 30;

#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    Inst(Inst),
    /// `value` in every lane.
    Splat {
        dst: Vreg,
        ty: VType,
        value: Affine,
    },
    Loop(Loop),
    /// `var = ⌊value / divisor⌋`.
    Let {
        var: Var,
        value: Affine,
        divisor: i64,
    },
    /// `var =` the integer of this type with the low bits of `value`.
    Wrap {
        var: Var,
        mem: DType,
        value: Affine,
    },
    /// `var = op(a, b)`.
    Integer {
        var: Var,
        op: GprOp,
        a: Affine,
        b: Affine,
    },
    /// `var = all conditions ≥ 0 ? yes : no`.
    Choose {
        var: Var,
        conditions: Vec<Affine>,
        yes: Affine,
        no: Affine,
    },
    /// `var =` the integer in memory.
    LoadInt {
        var: Var,
        addr: Addr,
        mem: DType,
    },
    /// `var =` the integer in the first lane.
    FirstLane {
        var: Var,
        ty: VType,
        src: Vreg,
    },
    /// `var = value`, brought into 0..extent; what lies outside is recorded as by [`Inst::Inside`].
    Inside {
        var: Var,
        value: Affine,
        extent: i64,
        mem: DType,
        extremes: [u32; 2],
    },
    If {
        conditions: Vec<Affine>,
        body: Vec<Node>,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    pub var: Var,
    pub lower: Vec<Bound>,
    pub upper: Vec<Bound>,
    pub step: i64,
    /// Runs over this thread's part of the iterations.
    pub parallel: bool,
    pub at_least_once: bool,
    /// Iterations that costs take it to have, where its bounds come from data.
    pub expected: Option<i64>,
    pub body: Vec<Node>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Root {
    /// The buffer in this slot of the argument table.
    Argument(u32),
    /// The thread's scratch memory.
    Scratch,
}

/// An address that many instructions use with their own displacements: `root + bytes`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pointer {
    pub root: Root,
    /// Bytes, over runtime variables.
    pub bytes: Affine,
}

/// The result of selection, for `address.rs`.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<Node>,
    /// Numbered by the base registers of the addresses in `nodes`.
    pub pointers: Vec<Pointer>,
    pub vregs: u32,
    pub scratch_bytes: u64,
    /// Forms of conditions that follow from data, with what costs take them to be.
    pub expected: Vec<(Affine, i64)>,
}

impl Node {
    /// The variable that the node defines for the nodes after it.
    pub fn defines(&self) -> Option<Var> {
        match self {
            Node::Let { var, .. }
            | Node::Wrap { var, .. }
            | Node::Integer { var, .. }
            | Node::Choose { var, .. }
            | Node::LoadInt { var, .. }
            | Node::FirstLane { var, .. }
            | Node::Inside { var, .. } => Some(*var),
            Node::Inst(_) | Node::Splat { .. } | Node::Loop(_) | Node::If { .. } => None,
        }
    }

    /// Returns true if the node keeps an extreme of a subscript in memory with this root.
    pub fn records_in(&self, root: Root) -> bool {
        matches!(self, Node::Inside { extremes, .. } if extremes.iter().any(|&slot| root == Root::Argument(slot)))
    }

    /// Calls `f` on each affine form whose value the node needs in a register, those of its body too.
    pub fn visit_values(&self, f: &mut impl FnMut(&Affine)) {
        match self {
            Node::Inst(_) | Node::LoadInt { .. } | Node::FirstLane { .. } => {}
            Node::Splat { value, .. }
            | Node::Let { value, .. }
            | Node::Wrap { value, .. }
            | Node::Inside { value, .. } => f(value),
            Node::Integer { a, b, .. } => {
                f(a);
                f(b);
            }
            Node::Choose { conditions, yes, no, .. } => {
                conditions.iter().for_each(&mut *f);
                f(yes);
                f(no);
            }
            Node::Loop(l) => {
                l.lower.iter().chain(&l.upper).for_each(|b| f(&b.affine));
                l.body.iter().for_each(|n| n.visit_values(f));
            }
            Node::If { conditions, body } => {
                conditions.iter().for_each(&mut *f);
                body.iter().for_each(|n| n.visit_values(f));
            }
        }
    }
}
