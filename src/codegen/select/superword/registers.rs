//! Registers of a phase, and edits of its nodes that keep count of them.

use crate::codegen::select::tree::{Loop, Node};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Inst, VType, Vreg};
use rustc_hash::{FxHashMap, FxHashSet};

/// Definitions and uses of the registers of a phase.
pub struct Registers {
    /// The number of nodes that read each register.
    pub uses: Vec<u32>,
    /// The number of nodes that write each register.
    pub definitions: Vec<u32>,
    /// The one value that stands in all lanes of a register, and the number of these.
    pub uniform: FxHashMap<Vreg, (Option<Inst>, VType)>,
}

impl Registers {
    /// Those of all nodes.
    pub fn of(nodes: &[Node], vregs: u32) -> Registers {
        let mut registers = Registers {
            uses: vec![0; vregs as usize],
            definitions: vec![0; vregs as usize],
            uniform: FxHashMap::default(),
        };
        let mut written = FxHashSet::default();
        registers.note(nodes, &mut written);
        registers
    }

    fn note(&mut self, nodes: &[Node], seen: &mut FxHashSet<u32>) {
        for node in nodes {
            written(node).into_iter().for_each(|(r, _)| self.definitions[r as usize] += 1);
            match node {
                Node::Loop(Loop { body, .. }) | Node::If { body, .. } => self.note(body, seen),
                Node::Splat { dst, ty, .. } => self.note_uniform(*dst, None, *ty, seen),
                Node::FirstLane { src, .. } => self.uses[src.index()] += 1,
                Node::Inst(inst) => {
                    inst.registers(|class, access, r| {
                        if class == Class::Vector && access.reads() {
                            self.uses[r as usize] += 1;
                        }
                    });
                    match inst {
                        Inst::VConst { dst, ty, .. } => self.note_uniform(*dst, Some(inst.clone()), *ty, seen),
                        Inst::VBroadcast { dst, ty, .. } | Inst::VSplat { dst, ty, .. } => {
                            self.note_uniform(*dst, None, *ty, seen);
                        }
                        _ => inst.registers(|class, access, r| {
                            if class == Class::Vector && access.writes() {
                                seen.insert(r);
                                self.uniform.remove(&Vreg(r));
                            }
                        }),
                    }
                }
                _ => {}
            }
        }
    }

    fn note_uniform(&mut self, dst: Vreg, inst: Option<Inst>, ty: VType, seen: &mut FxHashSet<u32>) {
        match seen.insert(dst.0) {
            true => drop(self.uniform.insert(dst, (inst, ty))),
            false => drop(self.uniform.remove(&dst)),
        }
    }

    /// A register that nothing reads or writes yet.
    pub fn fresh(&mut self) -> Vreg {
        self.uses.push(0);
        self.definitions.push(0);
        Vreg(self.uses.len() as u32 - 1)
    }
}

/// A store of a few elements.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    pub at: usize,
    pub disp: i32,
}

/// New nodes in the place of a store, and the nodes that go.
pub struct Edit {
    pub last: usize,
    pub nodes: Vec<Node>,
    pub dead: FxHashSet<usize>,
}

impl Edit {
    /// Puts the new nodes in their place.
    pub fn apply(self, body: &mut Vec<Node>, registers: &mut Registers) {
        let mut count = |node: &Node, more: bool| {
            for (r, _) in written(node) {
                let n = &mut registers.definitions[r as usize];
                *n = if more { *n + 1 } else { *n - 1 };
            }
            if let Node::Inst(inst) = node {
                inst.registers(|class, access, r| {
                    if class == Class::Vector && access.reads() {
                        let n = &mut registers.uses[r as usize];
                        *n = if more { *n + 1 } else { *n - 1 };
                    }
                });
            }
        };
        self.nodes.iter().for_each(|n| count(n, true));
        self.dead.iter().for_each(|&at| count(&body[at], false));
        let Edit { last, mut nodes, dead } = self;
        let place = |(at, node): (usize, Node)| match at {
            _ if at == last => std::mem::take(&mut nodes),
            _ if dead.contains(&at) => vec![],
            _ => vec![node],
        };
        *body = std::mem::take(body).into_iter().enumerate().flat_map(place).collect();
    }
}

/// The vector registers that an instruction reads, in order.
pub fn read(inst: &Inst) -> Vec<Vreg> {
    let mut out = vec![];
    inst.registers(|class, access, r| {
        if class == Class::Vector && access.reads() {
            out.push(Vreg(r));
        }
    });
    out
}

/// The vector registers that a node writes, and whether it reads them too.
pub fn written(node: &Node) -> Vec<(u32, bool)> {
    let mut out = vec![];
    match node {
        Node::Splat { dst, .. } => out.push((dst.0, false)),
        Node::Inst(inst) => inst.registers(|class, access, r| {
            if class == Class::Vector && access.writes() {
                out.push((r, access.reads()));
            }
        }),
        _ => {}
    }
    out
}
