//! Edits of a loop body by scalar replacement.
//!
//! In: a body, the loads that are removed, the registers that take their place. Out: the body, with the copies that carry
//! values into the next iteration at its end. These are parallel copies, put into an order that has their effect.

use crate::codegen::select::scalar_replacement::registers::Registers;
use crate::codegen::select::tree::{Loop, Node};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Inst, VType, Vreg};
use rustc_hash::{FxHashMap, FxHashSet};

/// A load before the loop.
pub struct FirstLoad {
    pub dst: Vreg,
    /// The load that it stands for, and the iteration that needs it.
    pub load: Inst,
    pub iteration: i64,
    pub ty: VType,
}

/// Changes of a loop body.
#[derive(Default)]
pub struct Edits {
    pub removed: FxHashSet<usize>,
    pub copied: FxHashMap<usize, Inst>,
    /// Nodes in the place of loads into general-purpose registers.
    pub integers: FxHashMap<usize, Node>,
    pub renamed: FxHashMap<Vreg, Vreg>,
    pub after: Vec<(usize, Node)>,
    /// Copies at the end, all at once: destination, source.
    pub end: Vec<(Vreg, Vreg, VType)>,
    pub first: Vec<FirstLoad>,
}

impl Edits {
    /// The body with the changes; `registers` gives new ones.
    pub fn apply(mut self, body: Vec<Node>, registers: &mut Registers) -> Vec<Node> {
        let mut out = vec![];
        for (index, mut node) in body.into_iter().enumerate() {
            if let Some(copy) = self.copied.remove(&index) {
                node = Node::Inst(copy);
            }
            if let Some(integer) = self.integers.remove(&index) {
                node = integer;
            }
            if !self.removed.contains(&index) {
                self.rename(&mut node);
                out.push(node);
            }
            for (_, node) in self.after.iter().filter(|a| a.0 == index) {
                let mut node = node.clone();
                self.rename(&mut node);
                out.push(node);
            }
        }
        let moves = self.end.iter().map(|&(dst, src, ty)| (dst, self.resolve(src), ty)).collect();
        out.extend(in_sequence(moves, registers).into_iter().map(Node::Inst));
        out
    }

    /// The register that took the place of `r`.
    fn resolve(&self, mut r: Vreg) -> Vreg {
        while let Some(&new) = self.renamed.get(&r) {
            r = new;
        }
        r
    }

    /// Returns true if the register that took the place of `r` gets another value at the end of an iteration.
    pub fn is_carried(&self, r: Vreg) -> bool {
        let r = self.resolve(r);
        self.end.iter().any(|m| m.0 == r)
    }

    /// The register that has after the loop what is in `r` behind the node `at`, and something where the loop did not run.
    pub fn carrying(&self, r: Vreg, at: usize) -> Option<Vreg> {
        let copies =
            |to: Vreg, node: &Node| matches!(*node, Node::Inst(Inst::VCopy { dst, src, .. }) if (dst, src) == (to, r));
        let same = |m: Vreg| {
            self.resolve(m) == self.resolve(r) || self.after.iter().any(|(place, n)| *place == at && copies(m, n))
        };
        self.end.iter().find(|m| same(m.1)).map(|m| m.0)
    }

    /// Reads the registers that took the place of others.
    pub fn rename(&self, node: &mut Node) {
        match node {
            Node::Inst(inst) => inst.registers_mut(&mut |class, access, r| {
                if class == Class::Vector && access.reads() {
                    *r = self.resolve(Vreg(*r)).0;
                }
            }),
            Node::If { body, .. } | Node::Loop(Loop { body, .. }) => body.iter_mut().for_each(|n| self.rename(n)),
            Node::FirstLane { src, .. } => *src = self.resolve(*src),
            _ => {}
        }
    }
}

/// Makes an instruction read `new` where it reads `old`.
pub fn read_instead(node: &mut Node, old: Vreg, new: Vreg) {
    if let Node::Inst(inst) = node {
        inst.registers_mut(&mut |class, access, r| {
            if class == Class::Vector && access.reads() && *r == old.0 {
                *r = new.0;
            }
        });
    }
}

/// Copies with the effect of doing `moves` at once.
fn in_sequence(mut moves: Vec<(Vreg, Vreg, VType)>, registers: &mut Registers) -> Vec<Inst> {
    let mut out = vec![];
    moves.retain(|m| m.0 != m.1);
    while !moves.is_empty() {
        match moves.iter().position(|m| moves.iter().all(|other| other.1 != m.0)) {
            Some(free) => {
                let (dst, src, ty) = moves.remove(free);
                out.push(Inst::VCopy { dst, src, ty });
            }
            None => {
                // a cycle: the first source is read before it is written
                let (_, src, ty) = moves[0];
                let copy = registers.fresh();
                out.push(Inst::VCopy { dst: copy, src, ty });
                moves[0].1 = copy;
            }
        }
    }
    out
}
