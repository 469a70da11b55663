//! Scalar replacement: reuses a value that an earlier access of a loop has in a register instead of loading it again.
//!
//! After Callahan, Carr and Kennedy (1990) and Carr and Kennedy (1994), on the tree of vector instructions, where
//! unrolled and vector loops are expanded and every address is an affine form in bytes.
//!
//! In: the tree of a phase. Out: the same with fewer loads and stores. In an innermost loop the load of an address (the
//! *consumer*) is replaced where a load or store (the *generator*) that runs in every iteration had the same address
//! `d` iterations before, `0 ≤ d ≤ MAX_DISTANCE`, and no write between the two may touch it. The body of a conditional without
//! loops is a loop of one iteration. Loads of other columns of the rows that a store writes stand before it (`early_loads`). The value moves through
//! `d` registers: copies at the end of each iteration rotate them, loads before the loop fill them for the first `d`
//! iterations. A load whose address does not move and that nothing in the loop writes stands before the loop; a store to
//! an address that does not move and that nothing else in the loop touches stands after it, under the loop's condition where it may not run.
//! Accesses before a loop and after it take an element from a register as well (`across_loops`).
//!
//! Invariants: distinct roots are distinct memory (distinct arguments overlap only where both are read); a write that is not
//! proven to be elsewhere ends the reuse; a load before the loop runs only where the iteration that needs it runs.

mod accesses;
mod across_loops;
mod early_loads;
mod edits;
mod promotion;
mod registers;
pub mod reuse;

use crate::codegen::Target;
use crate::codegen::select::register_pressure::RegisterPressure;
use crate::codegen::select::tree::{Loop, MAX_DISPLACEMENT, Node, Pointer, Tree};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, VType, Vreg};
use crate::expr::interval::{Facts, constant_range};
use crate::expr::{Affine, Bound, Var};
use accesses::{Accesses, Reference, Shape, is_apart};
use edits::{Edits, FirstLoad};
use promotion::Around;
use registers::{Registers, instructions};
use reuse::{LoopBody, MAX_DISTANCE, longest};
use rustc_hash::FxHashSet;

/// The variable of nodes that run once: no address has it.
const NO_VARIABLE: Var = Var(u32::MAX);

/// Removes loads of values that are in registers.
pub fn replace_scalars(mut tree: Tree, target: &Target) -> Tree {
    let mut registers = Registers::of(&tree.nodes, tree.vregs);
    registers.next_var = next_var(&tree);
    let mut pass =
        Pass { pointers: tree.pointers, registers, target, unknown: FxHashSet::default(), several_threads: false };
    tree.nodes = pass.body(tree.nodes, &mut Facts::new(1));
    tree.pointers = pass.pointers;
    tree.vregs = pass.registers.count;
    tree
}

/// The first variable that the tree does not use.
fn next_var(tree: &Tree) -> u32 {
    fn greatest(nodes: &[Node]) -> u32 {
        let inner = nodes.iter().map(|n| match n {
            Node::Loop(l) => l.var.0.max(greatest(&l.body)),
            Node::If { body, .. } => greatest(body),
            n => n.defines().map_or(0, |v| v.0),
        });
        inner.max().unwrap_or(0)
    }
    let pointers = tree.pointers.iter().flat_map(|p| &p.bytes.terms).map(|t| t.0.0).max().unwrap_or(0);
    greatest(&tree.nodes).max(pointers) + 1
}

struct Pass<'a> {
    pointers: Vec<Pointer>,
    registers: Registers,
    target: &'a Target,
    /// Variables without a useful range.
    unknown: FxHashSet<Var>,
    /// Threads may run the iterations of a loop around.
    several_threads: bool,
}

/// Returns true for a loop with one iteration at most.
fn runs_once(l: &Loop) -> bool {
    constant_range(&l.lower, &l.upper).is_some_and(|(first, end)| end - first <= 1)
}

/// Far from overflow when scaled by strides.
const UNKNOWN: (i64, i64) = (-(1 << 31), 1 << 31);

impl Pass<'_> {
    fn body(&mut self, nodes: Vec<Node>, facts: &mut Facts) -> Vec<Node> {
        let mut out = vec![];
        for node in nodes {
            match node {
                Node::Loop(mut l) => {
                    let around = self.several_threads;
                    self.several_threads |= l.parallel && !runs_once(&l);
                    let mut inside = facts.clone();
                    inside.enter_loop(l.var, &l.lower, &l.upper, l.step);
                    let innermost = !l.body.iter().any(has_loop);
                    let mut tiles = false;
                    instructions(&l.body, &mut |inst| tiles |= inst.is_tile());
                    if tiles && innermost {
                        out.push(Node::Loop(l));
                    } else if !innermost {
                        l.body = self.body(l.body, &mut inside);
                        out.push(Node::Loop(l));
                    } else {
                        out.extend(self.innermost(l, facts, inside));
                    }
                    self.several_threads = around;
                }
                Node::If { conditions, body } => {
                    let mut inside = facts.clone();
                    conditions.iter().for_each(|c| inside.assume(c.clone()));
                    let body = match body.iter().any(has_loop) {
                        true => self.body(body, &mut inside),
                        false => self.once(body, inside),
                    };
                    out.push(Node::If { conditions, body });
                }
                other => {
                    self.learn(&other, facts);
                    out.push(other);
                }
            }
        }
        across_loops::carry(out, &self.pointers, &self.registers)
    }

    fn learn(&mut self, node: &Node, facts: &mut Facts) {
        match node {
            Node::Let { var, value, divisor } => facts.bind(*var, value, *divisor),
            node => {
                if let Some(v) = node.defines() {
                    facts.set_range(v, UNKNOWN);
                    self.unknown.insert(v);
                }
            }
        }
    }

    /// An innermost loop, with the loads before it.
    fn innermost(&mut self, mut l: Loop, outside: &Facts, mut facts: Facts) -> Vec<Node> {
        let mut defined = FxHashSet::default();
        for node in &l.body {
            self.learn(node, &mut facts);
            defined.extend(node.defines());
        }
        let mut promoted = self.promoted(&mut l, &defined);
        l.body = self.branches(l.body, &facts);
        let accesses = Accesses::of(&l.body, &self.pointers, &self.registers);
        let mut edits = self.edits(&l, &accesses, &facts, &defined, MAX_DISTANCE);
        self.dead_stores(&l, &accesses, &mut edits, &facts);
        let (mut out, mut after) = self.stores_after(&l, &accesses, &mut edits, &facts, &defined);
        after.append(&mut promoted.stores);
        let guarded = !(l.at_least_once || after.is_empty() && promoted.loads.is_empty());
        if guarded || !edits.first.is_empty() {
            let mut outside = outside.clone();
            let mut first = vec![];
            let start = self.start(&l, &mut first);
            first.iter().for_each(|node| self.learn(node, &mut outside));
            out.extend(first);
            out.extend(self.loads_before(&l, &start, &edits, &outside));
            let conditions = if guarded { runs(&l, &start, &outside) } else { vec![] };
            if !conditions.is_empty() {
                let none = |&(dst, ty)| Node::Inst(Inst::VConst { dst, ty, bits: 0 });
                out.extend(promoted.registers.iter().map(none));
                let branch = |body| Node::If { conditions: conditions.clone(), body };
                [promoted.loads, after] =
                    [promoted.loads, after].map(|body| if body.is_empty() { body } else { vec![branch(body)] });
            }
        }
        let body = edits.apply(std::mem::take(&mut l.body), &mut self.registers);
        l.body = self.early_loads(body, l.var, &facts);
        out.extend(promoted.loads);
        out.push(Node::Loop(l));
        out.extend(after);
        out
    }

    /// Nodes around a loop whose branches keep elements in registers.
    fn promoted(&mut self, l: &mut Loop, defined: &FxHashSet<Var>) -> Around {
        if l.parallel || self.several_threads || !l.body.iter().any(|n| matches!(n, Node::If { .. })) {
            return Around::default();
        }
        let registers = self.target.vector_registers - 1;
        let room = registers.saturating_sub(RegisterPressure::of(&l.body).greatest());
        promotion::promote(l, &self.pointers, defined, &mut self.registers, room)
    }

    /// The branches of a body without loops, each as a loop of one iteration.
    fn branches(&mut self, nodes: Vec<Node>, outside: &Facts) -> Vec<Node> {
        let branch = |node| match node {
            Node::If { conditions, body } => {
                let mut facts = outside.clone();
                conditions.iter().for_each(|c| facts.assume(c.clone()));
                Node::If { conditions, body: self.once(body, facts) }
            }
            node => node,
        };
        nodes.into_iter().map(branch).collect()
    }

    /// Nodes without loops that run one after the other.
    fn once(&mut self, nodes: Vec<Node>, mut facts: Facts) -> Vec<Node> {
        let mut tiles = false;
        instructions(&nodes, &mut |inst| tiles |= inst.is_tile());
        if tiles {
            return nodes;
        }
        let mut defined = FxHashSet::default();
        for node in &nodes {
            self.learn(node, &mut facts);
            defined.extend(node.defines());
        }
        let body = self.branches(nodes, &facts);
        let (lower, upper) = (vec![Bound::constant(0)], vec![Bound::constant(1)]);
        let mut l =
            Loop { var: NO_VARIABLE, lower, upper, step: 1, parallel: true, at_least_once: true, expected: None, body };
        let accesses = Accesses::of(&l.body, &self.pointers, &self.registers);
        let mut edits = self.edits(&l, &accesses, &facts, &defined, 0);
        self.dead_stores(&l, &accesses, &mut edits, &facts);
        let body = edits.apply(std::mem::take(&mut l.body), &mut self.registers);
        self.early_loads(body, NO_VARIABLE, &facts)
    }

    /// The loads of a body that read what accesses at most `farthest` iterations before have in registers.
    fn edits(
        &mut self,
        l: &Loop,
        accesses: &Accesses,
        facts: &Facts,
        defined: &FxHashSet<Var>,
        farthest: i64,
    ) -> Edits {
        let body = LoopBody { l, accesses, registers: &self.registers, facts, defined, unknown: &self.unknown };
        let mut chains = body.chains(farthest);
        let registers = self.target.vector_registers - 1;
        let mut pressure = RegisterPressure::of(&l.body);
        let mut edits = Edits::default();
        let mut generators: Vec<usize> = chains.keys().copied().collect();
        // Stored values first: their loads wait for the store.
        generators.sort_by_key(|&g| (!accesses.all[g].store, g));
        for g in generators {
            let consumers = chains.remove(&g).unwrap_or_default();
            let consumers = kept(l, &accesses.all, g, consumers, registers, &mut pressure);
            if !consumers.is_empty() {
                self.replace(l, &accesses.all, g, &consumers, &mut edits);
            }
        }
        edits
    }

    /// Removes the stores that a later one of the same iteration overwrites before anything reads them.
    fn dead_stores(&self, l: &Loop, accesses: &Accesses, edits: &mut Edits, facts: &Facts) {
        let references = &accesses.all;
        // every byte from the first to the last
        let whole = |shape: Shape, r: &Reference| match shape {
            Shape::Lanes { ty, stride, part, .. } => {
                stride * part.map_or(ty.lanes, |p| p.count) as i64 == r.span.1 - r.span.0
            }
            Shape::Element { .. } => true,
        };
        for store in references.iter().filter(|r| r.store && !accesses.read_anywhere.contains(&r.root)) {
            let Some((_, shape, _)) = store.value else { continue };
            let writes = |r: &Reference| {
                r.value.is_some_and(|(_, later, _)| later == shape || whole(later, r) && whole(shape, store))
            };
            let same = |r: &&Reference| r.root == store.root && r.bytes == store.bytes && r.span == store.span;
            let mut later = references.iter().filter(|r| r.store && r.at > store.at && writes(r));
            let Some(end) = later.find(same).map(|r| r.at) else { continue };
            let unread = |r: &Reference| {
                let gone = edits.removed.contains(&r.at) || edits.copied.contains_key(&r.at);
                let between = !r.store && r.at > store.at && r.at < end;
                !between || gone || r.root != store.root || is_apart(store, 0, l.var, r, facts, &self.unknown)
            };
            if references.iter().all(unread) {
                edits.removed.insert(store.at);
            }
        }
    }

    /// Removes the stores to an address that does not move and that nothing else in the loop reads or writes; returns those that take their
    /// place after the loop, where it runs, and before them what stands before the loop: zeros of their registers, if it may not run.
    fn stores_after(
        &mut self,
        l: &Loop,
        accesses: &Accesses,
        edits: &mut Edits,
        facts: &Facts,
        defined: &FxHashSet<Var>,
    ) -> (Vec<Node>, Vec<Node>) {
        let references = &accesses.all;
        let (mut before, mut after) = (vec![], vec![]);
        if l.parallel {
            return (before, after);
        }
        for (w, store) in references.iter().enumerate().filter(|(_, r)| r.store) {
            let Some((value, shape, lanes)) = store.value else { continue };
            let moves = store.bytes.terms.iter().any(|t| t.0 == l.var || defined.contains(&t.0));
            let changed = l.body[store.at + 1..].iter().any(|n| defines(n, value));
            let alone = !accesses.clobbered.iter().any(|(_, root)| *root == store.root)
                && !accesses.read_anywhere.contains(&store.root)
                && references.iter().enumerate().all(|(other, r)| {
                    let gone = edits.removed.contains(&r.at) || edits.copied.contains_key(&r.at);
                    other == w || r.root != store.root || gone || is_apart(store, 0, l.var, r, facts, &self.unknown)
                });
            if moves || changed || !alone {
                continue;
            }
            let mut node = l.body[store.at].clone();
            let ty = shape.ty(lanes);
            match edits.carrying(value, store.at) {
                Some(carried) if !l.at_least_once => edits::read_instead(&mut node, value, carried),
                _ if !l.at_least_once || edits.is_carried(value) => {
                    // after the loop its register has the value that a next iteration would take, or none
                    let copy = self.registers.fresh();
                    edits.after.push((store.at, Node::Inst(Inst::VCopy { dst: copy, src: value, ty })));
                    edits::read_instead(&mut node, value, copy);
                    if !l.at_least_once {
                        before.push(Node::Inst(Inst::VConst { dst: copy, ty, bits: 0 }));
                    }
                }
                _ => edits.rename(&mut node),
            }
            edits.removed.insert(store.at);
            after.push(node);
        }
        (before, after)
    }

    /// Replaces the loads `consumers` (with their distances) by the value of access `g`.
    fn replace(&mut self, l: &Loop, references: &[Reference], g: usize, consumers: &[(usize, i64)], edits: &mut Edits) {
        let Some((mut value, shape, lanes)) = references[g].value else { return };
        let ty = shape.ty(lanes);
        let changed = l.body[references[g].at + 1..].iter().any(|n| defines(n, value));
        if changed || !self.registers.is_single(value) {
            let copy = self.registers.fresh();
            edits.after.push((references[g].at, Node::Inst(Inst::VCopy { dst: copy, src: value, ty })));
            value = copy;
        }
        let carried: Vec<Vreg> = (0..longest(consumers)).map(|_| self.registers.fresh()).collect();
        for &(c, distance) in consumers {
            let Some((dst, ..)) = references[c].value else { continue };
            let src = if distance == 0 { value } else { carried[distance as usize - 1] };
            if let Node::LoadInt { var, .. } = l.body[references[c].at] {
                edits.integers.insert(references[c].at, Node::FirstLane { var, ty: VType { lanes: 1, ..ty }, src });
                continue;
            }
            if self.registers.is_single(dst) {
                edits.removed.insert(references[c].at);
                edits.renamed.insert(dst, src);
            } else {
                edits.copied.insert(references[c].at, Inst::VCopy { dst, src, ty });
            }
        }
        for k in (0..carried.len()).rev() {
            let src = if k == 0 { value } else { carried[k - 1] };
            edits.end.push((carried[k], src, ty));
        }
        for (k, &dst) in (1..).zip(&carried) {
            // The first iteration that reads this register, and a load of its address there.
            let first = consumers.iter().filter(|c| c.1 >= k).min_by_key(|c| c.1 - k);
            let Some(&(c, distance)) = first else { continue };
            let load = match &l.body[references[c].at] {
                Node::Inst(load) => load.clone(),
                &Node::LoadInt { addr, mem, .. } => {
                    Inst::VLoad { dst, ty: VType { lanes: 1, ..ty }, mem, addr, part: None }
                }
                _ => continue,
            };
            edits.first.push(FirstLoad { dst, load, iteration: distance - k, ty });
        }
    }

    /// The loads of the values that the first iterations get from before the loop, whose variable is `start` at first.
    fn loads_before(&mut self, l: &Loop, start: &Affine, edits: &Edits, facts: &Facts) -> Vec<Node> {
        let mut out = vec![];
        let mut guarded: Vec<(i64, Vec<Affine>, Vec<Node>)> = vec![];
        for f in &edits.first {
            let iteration = start.clone().offset(f.iteration * l.step);
            let (mut load, dst) = (f.load.clone(), f.dst);
            if let Some(addr) = load.address_mut() {
                *addr = self.moved(addr, l.var, &iteration);
            }
            load.registers_mut(&mut |class, access, r| {
                if class == Class::Vector && access.writes() {
                    *r = dst.0;
                }
            });
            let conditions = runs(l, &iteration, facts);
            if l.at_least_once && f.iteration == 0 || conditions.is_empty() {
                out.push(Node::Inst(load));
                continue;
            }
            out.push(Node::Inst(Inst::VConst { dst, ty: f.ty, bits: 0 }));
            match guarded.iter_mut().find(|g| g.0 == f.iteration) {
                Some(group) => group.2.push(Node::Inst(load)),
                None => guarded.push((f.iteration, conditions, vec![Node::Inst(load)])),
            }
        }
        out.extend(guarded.into_iter().map(|(_, conditions, body)| Node::If { conditions, body }));
        out
    }

    /// The first value of the loop's variable; integers that it takes go to `out`.
    fn start(&mut self, l: &Loop, out: &mut Vec<Node>) -> Affine {
        let mut start: Option<Affine> = None;
        for bound in &l.lower {
            let mut value = bound.affine.clone();
            if bound.divisor != 1 {
                let rounded = value.offset(bound.divisor - 1);
                value = if rounded.is_constant() {
                    Affine::constant(rounded.constant.div_euclid(bound.divisor))
                } else {
                    let var = self.fresh_var();
                    out.push(Node::Let { var, value: rounded, divisor: bound.divisor });
                    Affine::var(var)
                };
            }
            start = Some(match start {
                None => value,
                Some(a) if a.is_constant() && value.is_constant() => Affine::constant(a.constant.max(value.constant)),
                Some(a) => {
                    let var = self.fresh_var();
                    let (a, b) = if a.is_constant() { (value, a) } else { (a, value) };
                    out.push(Node::Integer { var, op: GprOp::Max, a, b });
                    Affine::var(var)
                }
            });
        }
        start.unwrap_or_default()
    }

    fn fresh_var(&mut self) -> Var {
        self.registers.next_var += 1;
        Var(self.registers.next_var - 1)
    }

    /// The address where `var` is `value`.
    fn moved(&mut self, addr: &Addr, var: Var, value: &Affine) -> Addr {
        let pointer = &self.pointers[addr.base.0 as usize];
        let map = |v: Var| if v == var { value.clone() } else { Affine::var(v) };
        let bytes = pointer.bytes.substitute(map).offset(addr.disp as i64);
        let disp = if bytes.constant.abs() < MAX_DISPLACEMENT { bytes.constant } else { 0 };
        let pointer = Pointer { root: pointer.root, bytes: bytes.offset(-disp) };
        let position = self.pointers.iter().position(|p| *p == pointer);
        let base = position.unwrap_or_else(|| {
            self.pointers.push(pointer);
            self.pointers.len() - 1
        });
        Addr { base: Gpr(base as u32), index: None, disp: disp as i32 }
    }
}

/// The loads (with their distances) that take the value of access `g`, while registers last: a register more than there are
/// is spilled, which costs a store beside the load.
fn kept(
    l: &Loop,
    all: &[Reference],
    g: usize,
    consumers: Vec<(usize, i64)>,
    registers: usize,
    pressure: &mut RegisterPressure,
) -> Vec<(usize, i64)> {
    let longest = longest(&consumers);
    let cheap = all[g].store || consumers.len() as i64 >= longest;
    let carried = longest > 0 && cheap && !l.parallel && pressure.greatest() + longest as usize <= registers;
    if carried {
        pressure.carry(longest as usize);
        return consumers;
    }
    let mut consumers: Vec<(usize, i64)> = consumers.into_iter().filter(|c| c.1 == 0).collect();
    consumers.sort_by_key(|c| all[c.0].at);
    consumers.retain(|c| match (all[g].value, all[c.0].value) {
        (Some((value, ..)), Some((load, ..))) => {
            // A value that the loop changes is copied where it is read or stored.
            let changed = l.body[all[g].at + 1..].iter().any(|n| defines(n, value));
            let value = if changed { Vreg(u32::MAX - g as u32) } else { value };
            pressure.extend(value, all[g].at, load, all[c.0].at, registers)
        }
        _ => false,
    });
    consumers
}

/// The conditions under which the iteration of a loop runs that a value of its variable is, beyond what is known.
fn runs(l: &Loop, iteration: &Affine, facts: &Facts) -> Vec<Affine> {
    let inside = |b: &Bound| b.affine.add_scaled(iteration, -b.divisor).offset(-b.divisor);
    l.upper.iter().map(inside).filter(|c| facts.decide(c) != Some(true)).collect()
}

fn has_loop(node: &Node) -> bool {
    match node {
        Node::Loop(_) => true,
        Node::If { body, .. } => body.iter().any(has_loop),
        _ => false,
    }
}

/// Returns true if the node, or one inside of it, writes `register`.
fn defines(node: &Node, register: Vreg) -> bool {
    let mut yes = false;
    instructions(std::slice::from_ref(node), &mut |inst| {
        inst.registers(|class, access, r| yes |= class == Class::Vector && access.writes() && r == register.0);
    });
    yes
}

#[cfg(test)]
mod tests;
