//! Common subexpressions of the code around innermost loops.
//!
//! Iterations of an unrolled loop read the same invariant vectors, each by instructions of its own, which leave the inner loop one by
//! one (`hoist`). Here the later ones are left out, so that the registers hold other values. Inside of innermost loops
//! `scalar_replacement` finds loads of the same address.
//!
//! In and out: the tree of a phase. Local value numbering (Aho, Lam, Sethi and Ullman, Compilers, 8.5) over the nodes of one body;
//! registers that are written more than once are left alone. Invariant: every read finds the value that it found before.

use crate::codegen::select::tree::{Loop, Node, Pointer, Root, Tree};
use crate::codegen::vcode::operands::{Class, Group};
use crate::codegen::vcode::{Inst, VType};
use crate::expr::Affine;
use rustc_hash::{FxHashMap, FxHashSet};

/// Leaves out what was computed before in the same body.
pub fn share(mut tree: Tree) -> Tree {
    let mut definitions = vec![0u32; tree.vregs as usize];
    count_definitions(&tree.nodes, &mut definitions);
    let mut pass = Pass { pointers: &tree.pointers, definitions, shared: FxHashMap::default() };
    pass.body(&mut tree.nodes);
    tree
}

fn count_definitions(nodes: &[Node], definitions: &mut [u32]) {
    for node in nodes {
        match node {
            Node::Inst(inst) => inst.registers(|class, access, r| {
                if class == Class::Vector && access.writes() {
                    definitions[r as usize] += 1;
                }
            }),
            Node::Splat { dst, .. } => definitions[dst.index()] += 1,
            Node::Loop(Loop { body, .. }) | Node::If { body, .. } => count_definitions(body, definitions),
            _ => {}
        }
    }
}

/// A computation without its result.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Inst(Inst),
    Splat(VType, Affine),
}

struct Pass<'a> {
    pointers: &'a [Pointer],
    /// The number of instructions that write each register.
    definitions: Vec<u32>,
    /// Registers left out, with those that have their values.
    shared: FxHashMap<u32, u32>,
}

impl Pass<'_> {
    fn body(&mut self, nodes: &mut Vec<Node>) {
        let around = nodes.iter().any(|n| matches!(n, Node::Loop(_)));
        let mut known: FxHashMap<Key, u32> = FxHashMap::default();
        nodes.retain_mut(|node| {
            match node {
                Node::Loop(Loop { body, .. }) | Node::If { body, .. } => self.body(body),
                Node::Inst(inst) => self.rename(inst),
                Node::FirstLane { src, .. } => src.0 = *self.shared.get(&src.0).unwrap_or(&src.0),
                _ => {}
            }
            if !around {
                return true;
            }
            if let Some((key, dst)) = self.key(node) {
                match known.get(&key) {
                    Some(&first) => {
                        self.shared.insert(dst, first);
                        return false;
                    }
                    None => drop(known.insert(key, dst)),
                }
            }
            let mut written = FxHashSet::default();
            roots_written(node, self.pointers, &mut written);
            if !written.is_empty() {
                known.retain(|key, _| match key {
                    Key::Inst(inst) => inst.address().is_none_or(|a| !written.contains(&self.root(a.base.index()))),
                    Key::Splat(..) => true,
                });
            }
            true
        });
    }

    fn root(&self, pointer: usize) -> Root {
        self.pointers[pointer].root
    }

    /// Reads what is shared.
    fn rename(&self, inst: &mut Inst) {
        if !self.shared.is_empty() {
            inst.registers_mut(&mut |class, access, r| {
                if class == Class::Vector && access.reads() && !access.writes() {
                    *r = *self.shared.get(r).unwrap_or(r);
                }
            });
        }
    }

    /// The computation of a node, and the register that it alone writes; `None` where the result follows from more than memory and
    /// registers that are written once.
    fn key(&self, node: &Node) -> Option<(Key, u32)> {
        let (key, dst) = match node {
            Node::Splat { dst, ty, value } => (Key::Splat(*ty, value.clone()), dst.0),
            Node::Inst(inst) => {
                let known = match inst {
                    Inst::VLoad { .. } | Inst::VBroadcast { .. } | Inst::VGather { .. } => true,
                    inst => inst.group() == Group::Vector && inst.address().is_none(),
                };
                let (mut inst, mut dst, mut once) = (inst.clone(), None, known && inst.only_computes());
                inst.registers_mut(&mut |class, access, r| {
                    if class == Class::Vector {
                        once &= self.definitions[*r as usize] == 1;
                        if access.writes() {
                            dst = Some(*r);
                            *r = 0;
                        }
                    }
                });
                (Key::Inst(inst), dst.filter(|_| once)?)
            }
            _ => return None,
        };
        (self.definitions[dst as usize] == 1).then_some((key, dst))
    }
}

/// The memory that a node writes.
fn roots_written(node: &Node, pointers: &[Pointer], roots: &mut FxHashSet<Root>) {
    match node {
        Node::Inst(inst) if inst.writes_memory() => {
            roots.extend(inst.address().map(|a| pointers[a.base.index()].root));
        }
        Node::Loop(Loop { body, .. }) | Node::If { body, .. } => {
            body.iter().for_each(|n| roots_written(n, pointers, roots));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::{Addr, Gpr, Lane, VBinary, Vreg};
    use crate::expr::Var;
    use crate::runtime::DType;

    const TY: VType = VType { lane: Lane::F32, lanes: 8 };

    fn load(dst: u32, base: u32, disp: i32) -> Node {
        let addr = Addr { base: Gpr(base), index: None, disp };
        Node::Inst(Inst::VLoad { dst: Vreg(dst), ty: TY, mem: DType::F32, addr, part: None })
    }

    fn store(src: u32, base: u32) -> Node {
        let addr = Addr { base: Gpr(base), index: None, disp: 0 };
        Node::Inst(Inst::VStore { src: Vreg(src), ty: TY, mem: DType::F32, addr, part: None })
    }

    fn add(dst: u32, a: u32, b: u32) -> Node {
        Node::Inst(Inst::VBinary { op: VBinary::Add, dst: Vreg(dst), ty: TY, a: Vreg(a), b: Vreg(b) })
    }

    fn innermost(body: Vec<Node>) -> Node {
        let (lower, upper) = (vec![], vec![]);
        Node::Loop(Loop {
            var: Var(7),
            lower,
            upper,
            step: 1,
            parallel: false,
            at_least_once: true,
            expected: None,
            body,
        })
    }

    fn shared(nodes: Vec<Node>) -> Vec<Node> {
        let root = |slot| Pointer { root: Root::Argument(slot), bytes: Affine::constant(0) };
        share(Tree { nodes, pointers: vec![root(0), root(1)], vregs: 10, ..Tree::default() }).nodes
    }

    #[test]
    fn what_was_computed_before_is_read() {
        let nodes = vec![
            load(0, 0, 0),
            load(1, 0, 4),
            add(2, 0, 1),
            load(3, 0, 0),
            add(4, 3, 1),
            innermost(vec![add(5, 2, 4), store(5, 1)]),
            load(6, 0, 0),
            store(6, 1),
        ];
        let expected =
            vec![load(0, 0, 0), load(1, 0, 4), add(2, 0, 1), innermost(vec![add(5, 2, 2), store(5, 1)]), store(0, 1)];
        assert_eq!(shared(nodes), expected);
    }

    #[test]
    fn stores_and_second_definitions_end_it() {
        let written = vec![load(0, 0, 0), innermost(vec![store(0, 0)]), load(1, 0, 0), store(1, 1)];
        assert_eq!(shared(written.clone()), written);
        let twice = vec![load(0, 0, 0), load(1, 0, 0), innermost(vec![add(1, 1, 0)]), store(1, 1)];
        assert_eq!(shared(twice.clone()), twice);
        let source = vec![load(0, 0, 0), add(1, 0, 0), load(0, 0, 4), add(2, 0, 0), innermost(vec![]), store(2, 1)];
        assert_eq!(shared(source.clone()), source);
    }

    #[test]
    fn innermost_bodies_stay() {
        let body = innermost(vec![load(0, 0, 0), load(1, 0, 0), add(2, 0, 1), store(2, 1)]);
        assert_eq!(shared(vec![body.clone()]), vec![body]);
    }
}
