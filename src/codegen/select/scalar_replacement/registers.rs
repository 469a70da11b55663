//! The vector registers of a phase or a loop: definitions, lanes that are written and read.

use crate::codegen::select::single_lane::lanes_read;
use crate::codegen::select::tree::{Loop, Node, Pointer, Root};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Gpr, Inst, Vreg};
use rustc_hash::{FxHashMap, FxHashSet};

/// The vector registers of a phase or a loop.
pub struct Registers {
    pub count: u32,
    pub next_var: u32,
    /// Definitions of each register; lanes that each definition writes, at least; lanes that are read, at most.
    pub definitions: FxHashMap<Vreg, usize>,
    pub written: FxHashMap<Vreg, u8>,
    pub read: Vec<u8>,
}

impl Registers {
    pub fn of(nodes: &[Node], vregs: u32) -> Registers {
        let mut insts = vec![];
        instructions(nodes, &mut |inst| insts.push(inst.clone()));
        let (mut definitions, mut written) = (FxHashMap::default(), FxHashMap::default());
        for inst in &insts {
            inst.registers(|class, access, r| {
                if class == Class::Vector && access.writes() {
                    *definitions.entry(Vreg(r)).or_insert(0) += 1;
                    let lanes = inst.ty().map_or(0, |ty| ty.lanes);
                    let least = written.entry(Vreg(r)).or_insert(lanes);
                    *least = lanes.min(*least);
                }
            });
        }
        let read = lanes_read(&insts, vregs);
        Registers { count: vregs, next_var: 0, definitions, written, read }
    }

    pub fn fresh(&mut self) -> Vreg {
        self.count += 1;
        Vreg(self.count - 1)
    }

    /// Returns true if the selection did not have the register.
    pub fn is_new(&self, r: Vreg) -> bool {
        r.index() >= self.read.len()
    }

    pub fn is_single(&self, r: Vreg) -> bool {
        self.definitions.get(&r) == Some(&1)
    }

    pub fn lanes_read(&self, r: Vreg) -> u8 {
        self.read.get(r.index()).copied().unwrap_or(u8::MAX)
    }
}

/// Calls `f` on each vector instruction of the tree, with splats as instructions.
pub fn instructions(nodes: &[Node], f: &mut impl FnMut(&Inst)) {
    for node in nodes {
        match node {
            Node::Inst(inst) => f(inst),
            Node::Splat { dst, ty, .. } => f(&Inst::VSplat { dst: *dst, ty: *ty, src: Gpr(0) }),
            Node::FirstLane { ty, src, .. } => f(&Inst::FirstLane { dst: Gpr(0), ty: *ty, src: *src }),
            Node::Loop(Loop { body, .. }) | Node::If { body, .. } => instructions(body, f),
            Node::Let { .. }
            | Node::Wrap { .. }
            | Node::Inside { .. }
            | Node::Integer { .. }
            | Node::Choose { .. }
            | Node::LoadInt { .. } => {}
        }
    }
}

/// The roots of which any byte may be read: by subscripts from data, or as an integer.
pub fn read_anywhere(body: &[Node], pointers: &[Pointer]) -> FxHashSet<Root> {
    let mut out = FxHashSet::default();
    for node in body {
        let base = match node {
            Node::If { body, .. } => {
                out.extend(read_anywhere(body, pointers));
                continue;
            }
            Node::LoadInt { addr, .. } => addr.base,
            Node::Inst(Inst::VGatherIndex { base, .. }) => *base,
            Node::Inst(inst) => match inst.address() {
                Some(a) if a.index.is_some() => a.base,
                _ => continue,
            },
            _ => continue,
        };
        out.insert(pointers[base.0 as usize].root);
    }
    out
}
