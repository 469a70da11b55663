//! Values that pass from the nodes before an innermost loop into it, and from it to the nodes behind it, in registers.
//!
//! In: a body around loops whose own loads were replaced: a load before each loop fills the register that carries an element around it.
//! Out: the same, in which such a load, and a load behind the loop, is a copy where a register has the element. A loop leaves
//! the element in the register to which it brings what its iterations store last. Where it may not run, that register had the
//! element before. The stores stay. Invariant: every read finds the value that it found before.

use crate::codegen::select::scalar_replacement::accesses::{Accesses, Reference};
use crate::codegen::select::scalar_replacement::registers::{Registers, instructions};
use crate::codegen::select::tree::{Loop, Node, Pointer, Root};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Inst, Vreg};
use rustc_hash::{FxHashMap, FxHashSet};

/// `nodes` with copies in place of loads. `registers` are those of the phase.
pub fn carry(nodes: Vec<Node>, pointers: &[Pointer], registers: &Registers) -> Vec<Node> {
    let is_loop = |n: &Node| matches!(n, Node::Loop(_));
    let is_load = |n: &Node| matches!(n, Node::Inst(Inst::VLoad { .. } | Inst::VBroadcast { .. }) | Node::If { .. });
    if !nodes.iter().any(is_loop) || !nodes.iter().any(is_load) {
        return nodes;
    }
    let own = Registers::of(&nodes, registers.count);
    let accesses = Accesses::of(&nodes, pointers, &own);
    let references: FxHashMap<usize, Reference> = accesses.all.into_iter().map(|r| (r.at, r)).collect();
    let mut pass = Pass { pointers, registers, own, held: vec![], out: vec![] };
    for (at, node) in nodes.into_iter().enumerate() {
        match node {
            Node::Inst(inst) => pass.inst(inst, references.get(&at)),
            Node::Loop(l) => pass.innermost(l),
            node => {
                let copies = if let Node::If { body, .. } = &node { pass.copies(body) } else { None };
                match copies {
                    Some(copies) => copies.into_iter().for_each(|copy| pass.first(copy)),
                    None => {
                        pass.forget(std::slice::from_ref(&node));
                        pass.out.push(node);
                    }
                }
            }
        }
    }
    pass.out
}

/// An element in memory, and the registers that have it, each with the number of its lanes that do.
struct Held {
    element: Reference,
    registers: Vec<(Vreg, u8)>,
}

struct Pass<'a> {
    pointers: &'a [Pointer],
    /// Those of the phase, and those of the body.
    registers: &'a Registers,
    own: Registers,
    held: Vec<Held>,
    out: Vec<Node>,
}

impl Pass<'_> {
    fn inst(&mut self, inst: Inst, reference: Option<&Reference>) {
        let load = reference.filter(|r| !r.store);
        let inst = load.and_then(|r| self.copy_of(r)).unwrap_or(inst);
        let copied = match inst {
            Inst::VCopy { dst, src, ty } => Some((dst, src, ty.lanes)),
            _ => None,
        };
        let node = Node::Inst(inst);
        self.forget(std::slice::from_ref(&node));
        self.out.push(node);
        if let Some((dst, src, lanes)) = copied {
            for held in &mut self.held {
                let of_src = held.registers.iter().find(|(r, _)| *r == src).map(|(_, n)| lanes.min(*n));
                held.registers.extend(of_src.map(|n| (dst, n)));
            }
            return;
        }
        if let Some(r) = reference
            && let Some((register, _, lanes)) = r.value.filter(|_| !r.integer)
        {
            self.held.push(Held { element: r.clone(), registers: vec![(register, lanes)] });
        }
    }

    /// A copy in place of a load, where a register has the element in as many lanes as are read.
    fn copy_of(&self, load: &Reference) -> Option<Inst> {
        let (dst, shape, lanes) = load.value.filter(|_| !load.integer)?;
        let ty = shape.ty(lanes);
        let enough = self.registers.lanes_read(dst).min(ty.lanes);
        let held = self.held.iter().find(|h| is_same(&h.element, load))?;
        let src = held.registers.iter().find(|(r, n)| *r != dst && *n >= enough)?.0;
        Some(Inst::VCopy { dst, src, ty })
    }

    /// The copies that take the place of a conditional that fills registers of scalar replacement alone.
    fn copies(&self, body: &[Node]) -> Option<Vec<Inst>> {
        let accesses = Accesses::of(body, self.pointers, &self.own);
        let copy = |(at, node): (usize, &Node)| match node {
            Node::Inst(Inst::VLoad { dst, .. } | Inst::VBroadcast { dst, .. }) if self.registers.is_new(*dst) => {
                self.copy_of(accesses.all.iter().find(|r| r.at == at)?)
            }
            _ => None,
        };
        body.iter().enumerate().map(copy).collect()
    }

    /// A copy of what a register has, in place of what would fill it under a condition.
    fn first(&mut self, copy: Inst) {
        if let Inst::VCopy { dst, .. } = copy {
            let is_other = |n: &Node| matches!(n, Node::Inst(Inst::VConst { dst: other, .. }) if *other == dst);
            let position = self.out.iter().rposition(is_other);
            position.map(|p| self.out.remove(p));
        }
        self.inst(copy, None);
    }

    fn innermost(&mut self, l: Loop) {
        let accesses = Accesses::of(&l.body, self.pointers, &self.own);
        let mut left = vec![];
        for held in &self.held {
            let is_stored = |r: &&Reference| r.store && r.root == held.element.root;
            let Some(last) = accesses.all.iter().filter(is_stored).max_by_key(|r| r.at) else { continue };
            let later = |n: &Node| !written(std::slice::from_ref(n), self.pointers).contains(&last.root);
            if !is_same(&held.element, last) || !l.body[last.at + 1..].iter().all(later) {
                continue;
            }
            let before = |r: &Vreg| l.at_least_once || held.registers.iter().any(|(known, _)| known == r);
            let mut registers = holders(&l.body[last.at + 1..], last);
            registers.retain(|(r, _)| before(r));
            left.push(Held { element: held.element.clone(), registers });
        }
        let node = Node::Loop(l);
        self.forget(std::slice::from_ref(&node));
        self.out.push(node);
        self.held.extend(left);
    }

    /// Forgets what nodes overwrite.
    fn forget(&mut self, nodes: &[Node]) {
        let roots = written(nodes, self.pointers);
        let mut changed = FxHashSet::default();
        instructions(nodes, &mut |inst| {
            inst.registers(|class, access, r| {
                if class == Class::Vector && access.writes() {
                    changed.insert(Vreg(r));
                }
            })
        });
        for held in &mut self.held {
            held.registers.retain(|(r, _)| !changed.contains(r));
        }
        self.held.retain(|h| !h.registers.is_empty() && !roots.contains(&h.element.root));
    }
}

/// Returns true if two accesses are of the same bytes in the same form.
fn is_same(a: &Reference, b: &Reference) -> bool {
    let shape = |r: &Reference| r.value.map(|(_, shape, _)| shape);
    a.root == b.root && a.bytes == b.bytes && a.span == b.span && shape(a).is_some() && shape(a) == shape(b)
}

/// The registers that have, behind `nodes`, what `store` has written before them.
fn holders(nodes: &[Node], store: &Reference) -> Vec<(Vreg, u8)> {
    let mut all: Vec<(Vreg, u8)> = store.value.map(|(r, _, lanes)| (r, lanes)).into_iter().collect();
    for node in nodes {
        let copied = match node {
            Node::Inst(Inst::VCopy { dst, src, ty }) => {
                all.iter().find(|(r, _)| r == src).map(|(_, lanes)| (*dst, ty.lanes.min(*lanes)))
            }
            _ => None,
        };
        instructions(std::slice::from_ref(node), &mut |inst| {
            inst.registers(|class, access, r| {
                if class == Class::Vector && access.writes() {
                    all.retain(|(known, _)| known.0 != r);
                }
            })
        });
        all.extend(copied);
    }
    all
}

/// The memory that nodes write.
fn written(nodes: &[Node], pointers: &[Pointer]) -> FxHashSet<Root> {
    let mut out = FxHashSet::default();
    instructions(nodes, &mut |inst| {
        if inst.writes_memory() {
            out.extend(inst.address().map(|a| pointers[a.base.0 as usize].root));
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::{Inst, Lane};

    /// Loads of f64 and conditionals of rows from data, each of which `update` adds to.
    fn counts(update: &str) -> [usize; 2] {
        let text = format!(
            "kernel rows {{
               P: i64[9] argument 0; C: i64[40] argument 1; V: f64[40] argument 2; B: f64[8] argument 3; X: f64[8] argument 4 written;
               parallel once in 0..1 {{ for i in 0..8 {{
                 X[i] = B[i];
                 let a = clamp(P[i], 0, 40) about 5*i; let b = clamp((P[i] + P[i + 1]), 0, 40) about 5*i + 5;
                 for k in a..b {{ {update} }}
                 X[i] mul = f64(0.5); }} }} }}"
        );
        let functions = check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1);
        let insts: Vec<&Inst> = functions.iter().flat_map(|f| &f.insts).collect();
        let count = |f: fn(&Inst) -> bool| insts.iter().filter(|i| f(i)).count();
        let load = |i: &Inst| matches!(i, Inst::VLoad { ty, .. } | Inst::VBroadcast { ty, .. } if ty.lane == Lane::F64);
        [count(load), count(|i| matches!(i, Inst::IfStart { .. }))]
    }

    #[test]
    fn an_element_passes_through_a_loop_in_a_register() {
        // B[i], V[k] and the element at a subscript from data, which may be X[i]
        assert_eq!(counts("X[i] add = (V[k] * X[@and(C[k], i64(7))]);"), [3, 0]);
    }

    #[test]
    fn an_element_that_a_later_store_may_change_is_loaded() {
        let [loads, _] = counts("X[i] add = V[k]; X[@and(C[k], i64(7))] = V[k];");
        assert!(loads > 3);
    }
}
