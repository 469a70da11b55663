//! Superwords: statements that do the same to neighbouring elements, on short vectors or single elements, become one on a long vector.
//!
//! An unrolled loop around a short vector loop, as over the four colours of a pixel, leaves copies of the same operations on a few
//! lanes each. Where their stores are neighbours, what they store is computed in one register (Larsen and Amarasinghe, "Exploiting
//! Superword Level Parallelism with Multimedia Instruction Sets", PLDI 2000): the stores are the seeds, operands follow as long as
//! all copies compute them in the same way, down to loads of neighbours or of every other group of neighbours, or to totals of the
//! lanes of four registers, which are combined together.
//!
//! In and out: the tree of a phase. Invariants: every read finds the value that it found before; no byte is read or written that
//! was not; no more instructions than before.

mod copies;
mod registers;

use crate::codegen::Target;
use crate::codegen::select::tree::{Loop, Node, Pointer, Tree};
use crate::codegen::vcode::{Inst, VType};
use crate::runtime::DType;
use copies::{Copies, SHORTEST, definitions};
use registers::{Edit, Registers, Seed};
use rustc_hash::FxHashSet;
use std::cell::LazyCell;
use std::collections::BTreeMap;

/// Joins copies of statements in every body.
pub fn join(mut tree: Tree, target: &Target) -> Tree {
    let mut nodes = std::mem::take(&mut tree.nodes);
    if seeds_below(&nodes, target) {
        let mut registers = Registers::of(&nodes, tree.vregs);
        join_in(&mut nodes, &tree.pointers, &mut registers, target);
        tree.vregs = registers.uses.len() as u32;
    }
    tree.nodes = nodes;
    tree
}

/// Groups of stores that are alike but for where they lie: their type, pointer, and places in order.
type Seeds = BTreeMap<(u32, VType, DType), Vec<Seed>>;

/// The stores of short vectors of a run of nodes.
fn seeds(nodes: &[Node], range: std::ops::Range<usize>, target: &Target) -> Seeds {
    let mut out = Seeds::new();
    for at in range {
        if let Node::Inst(Inst::VStore { ty, mem, addr, part: None, .. }) = nodes[at]
            && addr.index.is_none()
            && 2 * ty.bytes() <= target.vector_bytes
            && mem != DType::Bool
        {
            out.entry((addr.base.0, ty, mem)).or_default().push(Seed { at, disp: addr.disp });
        }
    }
    out.retain(|_, seeds| seeds.len() > 1);
    out
}

fn seeds_below(nodes: &[Node], target: &Target) -> bool {
    let below = |n: &Node| match n {
        Node::Loop(Loop { body, .. }) | Node::If { body, .. } => seeds_below(body, target),
        _ => false,
    };
    nodes.iter().any(below) || !seeds(nodes, 0..nodes.len(), target).is_empty()
}

/// Joins copies in a body and those inside of it.
fn join_in(body: &mut Vec<Node>, pointers: &[Pointer], registers: &mut Registers, target: &Target) {
    for node in body.iter_mut() {
        if let Node::Loop(Loop { body, .. }) | Node::If { body, .. } = node {
            join_in(body, pointers, registers, target);
        }
    }
    let mut refused: FxHashSet<(u32, i32, usize)> = FxHashSet::default();
    while let Some(edit) = next(body, pointers, registers, target, &mut refused) {
        edit.apply(body, registers);
    }
}

/// Nodes without loops and conditionals that follow each other.
fn runs(body: &[Node]) -> Vec<std::ops::Range<usize>> {
    let mut out = vec![];
    let mut start = 0;
    for (at, node) in body.iter().enumerate() {
        if matches!(node, Node::Loop(_) | Node::If { .. }) {
            out.push(start..at);
            start = at + 1;
        }
    }
    out.push(start..body.len());
    out
}

/// The next group of stores that pays.
fn next(
    body: &[Node],
    pointers: &[Pointer],
    registers: &mut Registers,
    target: &Target,
    refused: &mut FxHashSet<(u32, i32, usize)>,
) -> Option<Edit> {
    for run in runs(body) {
        let definitions = LazyCell::new(|| definitions(body, &run));
        for ((base, ty, mem), mut seeds) in seeds(body, run.clone(), target) {
            seeds.sort_by_key(|s| (s.disp, s.at));
            let step = (usize::from(ty.lanes) * mem.bytes()) as i32;
            let mut rest = &seeds[..];
            while let Some(first) = rest.first() {
                let follows = |(k, s): &(usize, &Seed)| s.disp == first.disp + *k as i32 * step;
                let count = rest.iter().enumerate().take_while(follows).count();
                let mut copies = target.vector_bytes / ty.bytes();
                while copies > count {
                    copies /= 2;
                }
                while copies > 1 && copies * ty.bytes() >= SHORTEST {
                    if refused.insert((base, first.disp, copies))
                        && let Some(edit) = Copies::new(body, (&run, &definitions), pointers, registers, target)
                            .joined(&rest[..copies], ty)
                    {
                        return Some(edit);
                    }
                    copies /= 2;
                }
                rest = &rest[1..];
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
