//! Instruction selection: statements are expanded over their unrolled and vector loops into straight-line vector code.
//!
//! Every expression that does not depend on the vector variable is *uniform*: computed once, in every lane of a full
//! register, whether it stands inside of a vector loop or not. Value numbering within a block shares loads, broadcasts,
//! constants and common subexpressions, so the broadcast of a row is used by all vectors of the row and the vectors of a
//! column by all rows of a register tile. A local buffer whose elements are known at compile time lives in registers.

use crate::codegen::expr::{Affine, BinaryOp, BufferId, Expr, Index, Var};
use crate::codegen::interval::Facts;
use crate::codegen::loopnest::{Bound, BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::lower::access::{Address, Branch};
use crate::codegen::lower::hoist::hoist_invariants;
use crate::codegen::lower::tree::{Loop, Node, Pointer, Tree};
use crate::codegen::lower::value::{Val, lane_of};
use crate::codegen::operands::Class;
use crate::codegen::vcode::{Gpr, Inst, Lane, VBinary, VType, Vreg};
use crate::codegen::{DType, Error, Target};
use std::collections::{HashMap, HashSet};

/// The lane number, in affine forms over runtime variables.
pub const LANE: Var = Var(0);

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

pub type Step<T> = Result<T, Stop>;

/// Where a local buffer lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalMode {
    /// Vectors in registers. `blend`: a write of fewer lanes than are in use keeps the others.
    Registers { blend: bool },
    /// Scratch memory at this offset.
    Memory { offset: u32 },
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

/// A reduction over the lanes of the vector loop being expanded.
struct Reduction {
    stmt: *const Stmt,
    target: Address,
    op: BinaryOp,
    accumulators: Vec<Val>,
    next: usize,
}

/// Local vectors that a loop body writes, and those that it reads before.
#[derive(Default)]
struct Frame {
    written: HashSet<(BufferId, i64)>,
    exposed: HashSet<(BufferId, i64)>,
}

/// What an instruction computes: itself without its destination, and the versions of its operands.
pub type Key = (Inst, [u32; 3]);

/// Memory that a value was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub buffer: BufferId,
    /// Pointer, first byte and one past the last; `None` when any part of the buffer may be meant.
    pub bytes: Option<(Gpr, i64, i64)>,
}

/// A value in a register.
#[derive(Clone, Copy, Debug)]
struct Known {
    reg: Vreg,
    /// For loads, the memory.
    span: Option<Span>,
    /// Number of registers in use when the value was used last.
    used: u32,
}

/// What a block knows (see [`Selector::known_values`]).
pub struct Block {
    values: HashMap<Key, Known>,
    integers: Vec<(Node, Var, Option<Span>)>,
    branches: Vec<(Branch, Val)>,
}

pub struct Selector<'a> {
    pub nest: &'a LoopNest,
    pub target: &'a Target,
    /// Bytes of the widest lane type of each vector loop.
    widths: &'a HashMap<Var, usize>,
    pub locals: &'a [LocalMode],
    /// Each variable of the nest over runtime variables and [`LANE`].
    env: Vec<Affine>,
    pub facts: Facts,
    next_var: u32,
    pub tree: Tree,
    pointer_ids: HashMap<Pointer, Gpr>,
    versions: HashMap<Vreg, u32>,
    values: HashMap<Key, Known>,
    /// Integers in registers: the node that defines each, without its variable.
    integers: Vec<(Node, Var, Option<Span>)>,
    /// Reads behind branches.
    branches: Vec<(Branch, Val)>,
    pub out: Vec<Node>,
    pub chunk: Chunk,
    slots: HashMap<(BufferId, i64), Slot>,
    owners: HashMap<(BufferId, i64), i64>,
    frames: Vec<Frame>,
    reductions: Vec<Reduction>,
}

impl<'a> Selector<'a> {
    pub fn new(
        nest: &'a LoopNest,
        target: &'a Target,
        widths: &'a HashMap<Var, usize>,
        locals: &'a [LocalMode],
    ) -> Selector<'a> {
        Selector {
            nest,
            target,
            widths,
            locals,
            env: vec![Affine::constant(0); nest.vars.len()],
            facts: Facts::new(1),
            next_var: 1,
            tree: Tree::default(),
            pointer_ids: HashMap::new(),
            versions: HashMap::new(),
            values: HashMap::new(),
            integers: vec![],
            branches: vec![],
            out: vec![],
            chunk: Chunk { lanes: 1, first: 0, count: 1, widest: 4 },
            slots: HashMap::new(),
            owners: HashMap::new(),
            frames: vec![],
            reductions: vec![],
        }
    }

    /// The tree of one phase.
    pub fn phase(mut self, stmt: &Stmt) -> Step<Tree> {
        self.statement(stmt)?;
        self.tree.nodes = self.out;
        Ok(self.tree)
    }

    // ---- environment

    /// `a` over runtime variables and the lane number.
    pub fn resolve(&self, a: &Affine) -> Affine {
        a.substitute(|v| self.env[v.0 as usize].clone())
    }

    pub fn internal<T>(&self, what: &str) -> Step<T> {
        Err(Stop::Failed(Error::Internal(format!("{}: {what}", self.nest.name))))
    }

    pub fn fresh_var(&mut self) -> Var {
        self.next_var += 1;
        Var(self.next_var - 1)
    }

    pub fn fresh(&mut self) -> Vreg {
        self.tree.vregs += 1;
        Vreg(self.tree.vregs - 1)
    }

    /// The number of a pointer, as the base register of an address in the tree.
    pub fn pointer(&mut self, p: Pointer) -> Gpr {
        if let Some(&g) = self.pointer_ids.get(&p) {
            return g;
        }
        let g = Gpr(self.tree.pointers.len() as u32);
        self.tree.pointers.push(p.clone());
        self.pointer_ids.insert(p, g);
        g
    }

    // ---- value numbering

    /// What identifies the value of `inst`.
    pub fn key(&self, inst: Inst) -> Key {
        let (mut versions, mut n) = ([0; 3], 0);
        inst.registers(|class, access, register| {
            if class == Class::Vector && access.reads() {
                versions[n] = self.versions.get(&Vreg(register)).copied().unwrap_or(0);
                n += 1;
            }
        });
        (inst, versions)
    }

    /// The register that holds what `make(dst)` computes, computing it unless it is known. `span` for loads.
    pub fn emit_from(&mut self, span: Option<Span>, make: impl Fn(Vreg) -> Inst) -> Vreg {
        let key = self.key(make(Vreg(u32::MAX)));
        let now = self.tree.vregs;
        // a load that was used long ago is cheaper done again than kept in a register
        let far = (self.target.vector_registers * 5 / 8) as u32;
        if let Some(known) = self.values.get_mut(&key)
            && (known.span.is_none() || now - known.used < far)
        {
            known.used = now;
            return known.reg;
        }
        let dst = self.fresh();
        self.out.push(Node::Inst(make(dst)));
        self.remember(key, dst, span);
        dst
    }

    pub fn emit(&mut self, make: impl Fn(Vreg) -> Inst) -> Vreg {
        self.emit_from(None, make)
    }

    /// The register known to hold `key`, for values that more than one node computes.
    pub fn known(&self, key: &Key) -> Option<Vreg> {
        self.values.get(key).map(|v| v.reg)
    }

    pub fn remember(&mut self, key: Key, reg: Vreg, span: Option<Span>) {
        self.values.insert(key, Known { reg, span, used: self.tree.vregs });
    }

    /// `reg` has a new value.
    pub fn changed(&mut self, reg: Vreg) {
        *self.versions.entry(reg).or_insert(0) += 1;
    }

    /// An integer defined by `node(var)`, defined once in a block.
    pub fn integer_node(&mut self, range: (i64, i64), span: Option<Span>, node: impl Fn(Var) -> Node) -> Var {
        let key = node(LANE);
        if let Some((_, v, _)) = self.integers.iter().find(|i| i.0 == key) {
            return *v;
        }
        let var = self.fresh_var();
        self.facts.set_range(var, range);
        self.out.push(node(var));
        self.integers.push((key, var, span));
        var
    }

    /// Memory `span` is written: what was read from it is no longer known.
    pub fn written(&mut self, span: Span) {
        let slot = |b: BufferId| match self.nest.buffer(b).kind {
            BufferKind::Argument { slot, .. } => Some(slot),
            BufferKind::Local => None,
        };
        let overlaps = |other: &Span| {
            let same =
                other.buffer == span.buffer || slot(other.buffer).is_some() && slot(other.buffer) == slot(span.buffer);
            match (span.bytes, other.bytes) {
                (Some((p, a, b)), Some((q, c, d))) if p == q => same && a < d && c < b,
                _ => same,
            }
        };
        self.values.retain(|_, v| !v.span.as_ref().is_some_and(&overlaps));
        self.integers.retain(|(_, _, s)| !s.as_ref().is_some_and(&overlaps));
        self.branches.retain(|(b, _)| !overlaps(&Span { buffer: b.address.buffer, bytes: None }));
    }

    /// A new block begins in which nothing is known.
    fn forget(&mut self) {
        self.values.clear();
        self.integers.clear();
        self.branches.clear();
    }

    /// What is known now, to return to after a branch.
    pub fn known_values(&self) -> Block {
        Block { values: self.values.clone(), integers: self.integers.clone(), branches: self.branches.clone() }
    }

    /// After a branch: what was known before it, except memory that it wrote. Registers are told by their versions.
    pub fn forget_since(&mut self, known: Block) {
        let after = Block {
            values: std::mem::replace(&mut self.values, known.values),
            integers: std::mem::replace(&mut self.integers, known.integers),
            branches: std::mem::replace(&mut self.branches, known.branches),
        };
        self.values.retain(|k, v| v.span.is_none() || after.values.contains_key(k));
        self.integers.retain(|i| after.integers.contains(i));
        self.branches.retain(|b| after.branches.contains(b));
    }

    pub fn known_branch(&self, key: &Branch) -> Option<Val> {
        let found = self.branches.iter().find(|(b, v)| {
            let chunk = if v.uniform { b.chunk } else { key.chunk };
            *b == Branch { chunk, ..key.clone() }
        });
        found.filter(|_| key.address.gather.is_empty()).map(|b| b.1)
    }

    pub fn remember_branch(&mut self, key: Branch, v: Val) {
        self.branches.push((key, v));
    }

    /// Makes `dst` hold `src`: the instruction that has just computed `src` writes to `dst` instead, or a copy does.
    pub fn move_to(&mut self, dst: Vreg, src: Vreg, ty: VType) {
        if dst == src {
            return;
        }
        let moved = !self.versions.contains_key(&src) && redirect(&mut self.out, src, dst);
        if moved {
            self.values.retain(|_, v| v.reg != src);
            self.branches.retain(|b| b.1.reg != src);
        } else {
            self.out.push(Node::Inst(Inst::VCopy { dst, src, ty }));
        }
        self.changed(dst);
    }

    // ---- statements

    fn statements(&mut self, body: &[Stmt]) -> Step<()> {
        body.iter().try_for_each(|s| self.statement(s))
    }

    fn statement(&mut self, stmt: &Stmt) -> Step<()> {
        match stmt {
            Stmt::Loop { var, lower, upper, step, kind, body } => {
                let resolve = |b: &Bound| Bound { affine: self.resolve(&b.affine), divisor: b.divisor };
                let lower: Vec<Bound> = lower.iter().map(resolve).collect();
                let upper: Vec<Bound> = upper.iter().map(resolve).collect();
                let first = constant(&lower, true);
                let end = constant(&upper, false);
                match (kind, first, end) {
                    (LoopKind::Vector, _, Some(end)) => self.vector_loop(*var, end, body),
                    (LoopKind::Unroll, Some(first), Some(end)) => {
                        for value in (first..end).step_by(*step as usize) {
                            self.env[var.0 as usize] = Affine::constant(value);
                            self.statements(body)?;
                        }
                        Ok(())
                    }
                    (LoopKind::Unroll | LoopKind::Vector, _, _) => {
                        self.internal("an expanded loop without constant bounds")
                    }
                    (LoopKind::Serial, Some(first), Some(end)) if first + step >= end => {
                        self.env[var.0 as usize] = Affine::constant(first);
                        if first < end { self.statements(body) } else { Ok(()) }
                    }
                    _ => self.real_loop(*var, lower, upper, *step, kind.is_parallel(), body),
                }
            }
            Stmt::Let { var, value, divisor } => {
                let value = self.resolve(value);
                self.env[var.0 as usize] = if *divisor == 1 {
                    value
                } else if value.is_constant() {
                    Affine::constant(value.constant.div_euclid(*divisor))
                } else if value.uses(LANE) {
                    return self.internal("a division of the vector variable");
                } else {
                    let (lo, hi) = self.facts.bounds(&value);
                    let range = (lo.div_euclid(*divisor), hi.div_euclid(*divisor));
                    let v = self.integer_node(range, None, |var| Node::Let {
                        var,
                        value: value.clone(),
                        divisor: *divisor,
                    });
                    self.facts.bind(v, &value, *divisor);
                    Affine::var(v)
                };
                Ok(())
            }
            Stmt::If { conditions, body } => self.conditional(conditions, body),
            Stmt::Store { buffer, index, value, reduce } => self.store(stmt, *buffer, index, value, *reduce),
        }
    }

    fn real_loop(
        &mut self,
        var: Var,
        lower: Vec<Bound>,
        upper: Vec<Bound>,
        step: i64,
        parallel: bool,
        body: &[Stmt],
    ) -> Step<()> {
        if lower.iter().chain(&upper).any(|b| b.affine.uses(LANE)) {
            return self.internal("a loop bound over the vector variable");
        }
        let v = self.fresh_var();
        let facts = self.facts.clone();
        self.facts.enter_loop(v, &lower, &upper, step);
        let at_least_once = !parallel && self.runs(&facts, &lower, &upper);
        self.env[var.0 as usize] = Affine::var(v);
        let outer = std::mem::take(&mut self.out);
        self.forget();
        let before = self.slots.clone();
        self.frames.push(Frame::default());
        self.statements(body)?;
        let body = std::mem::replace(&mut self.out, outer);
        let frame = self.frames.pop().expect("pushed above");
        for (key, slot) in &before {
            if frame.exposed.contains(key) && self.slots[key].valid < slot.valid {
                return Err(Stop::Retry(key.0, LocalMode::Registers { blend: true }));
            }
        }
        if let (Some(outside), true) = (self.frames.last_mut(), at_least_once) {
            outside.written.extend(frame.written);
        }
        let node = Loop { var: v, lower, upper, step, parallel, at_least_once, body };
        let hoisted = hoist_invariants(node, self.target.vector_registers, &self.tree.pointers);
        self.out.extend(hoisted);
        self.forget();
        self.facts = facts;
        Ok(())
    }

    /// Whether the first iteration is certain.
    fn runs(&self, facts: &Facts, lower: &[Bound], upper: &[Bound]) -> bool {
        lower.iter().all(|l| {
            upper.iter().all(|u| {
                // ⌈l/d⌉ < ⌊u/e⌋ holds when (l + d - 1)·e < (u - e + 1)·d
                let left = l.affine.clone().offset(l.divisor - 1).scale(u.divisor);
                let right = u.affine.clone().offset(1 - u.divisor).scale(l.divisor);
                facts.decide(&right.add_scaled(&left, -1).offset(-1)) == Some(true)
            })
        })
    }

    fn vector_loop(&mut self, var: Var, extent: i64, body: &[Stmt]) -> Step<()> {
        let widest = self.widths.get(&var).copied().unwrap_or(8);
        let full = (self.target.vector_bytes / widest) as i64;
        let saved = self.chunk;
        let reduces = accumulates_over(body, var);
        let outer = std::mem::take(&mut self.reductions);
        let mut start = 0;
        while start < extent {
            let count = full.min(extent - start);
            let lanes = if reduces { full } else { (count as u64).next_power_of_two() as i64 };
            self.env[var.0 as usize] = Affine::var(LANE).offset(start);
            self.chunk = Chunk { lanes: lanes as u8, first: 0, count: count as u8, widest };
            self.facts.set_range(LANE, (0, count - 1));
            self.statements(body)?;
            start += full;
        }
        self.facts.set_range(LANE, (0, 0));
        self.chunk = Chunk { lanes: full as u8, first: 0, count: full as u8, widest };
        for r in std::mem::replace(&mut self.reductions, outer) {
            self.finish_reduction(r)?;
        }
        self.chunk = saved;
        Ok(())
    }

    fn conditional(&mut self, conditions: &[Affine], body: &[Stmt]) -> Step<()> {
        let mut dynamic = vec![];
        let (mut first, mut end) = (self.chunk.first as i64, (self.chunk.first + self.chunk.count) as i64);
        for c in conditions {
            let c = self.resolve(c);
            match self.facts.decide(&c) {
                Some(true) => {}
                Some(false) => return Ok(()),
                None if !c.uses(LANE) => dynamic.push(c),
                None => match lane_range(&c) {
                    Some((from, to)) => (first, end) = (first.max(from), end.min(to)),
                    None => return self.internal("a condition over the vector variable and others"),
                },
            }
        }
        if first >= end {
            return Ok(());
        }
        let (chunk, facts) = (self.chunk, self.facts.clone());
        self.chunk = Chunk { first: first as u8, count: (end - first) as u8, ..chunk };
        self.facts.set_range(LANE, (first, end - 1));
        if dynamic.is_empty() {
            self.statements(body)?;
        } else {
            dynamic.iter().for_each(|c| self.facts.assume(c.clone()));
            let outer = std::mem::take(&mut self.out);
            let (known, before) = (self.known_values(), self.slots.clone());
            self.frames.push(Frame::default());
            self.statements(body)?;
            let frame = self.frames.pop().expect("pushed above");
            if let Some(outside) = self.frames.last_mut() {
                outside.exposed.extend(frame.exposed.difference(&outside.written).copied().collect::<Vec<_>>());
            }
            let body = std::mem::replace(&mut self.out, outer);
            self.out.push(Node::If { conditions: dynamic, body });
            self.forget_since(known);
            for (key, slot) in before {
                if self.slots[&key].valid < slot.valid {
                    return Err(Stop::Retry(key.0, LocalMode::Registers { blend: true }));
                }
            }
        }
        (self.chunk, self.facts) = (chunk, facts);
        Ok(())
    }

    fn store(
        &mut self,
        stmt: &Stmt,
        buffer: BufferId,
        index: &[Index],
        value: &Expr,
        reduce: Option<BinaryOp>,
    ) -> Step<()> {
        let scalar = self.chunk.lanes == 1 && self.chunk.count == 1;
        let saved = self.chunk;
        if scalar {
            let widest = crate::codegen::lower::value::widest(self.nest, &self.facts_of_nest(), value);
            self.chunk.widest = widest.max(lane_of(self.nest.buffer(buffer).dtype).map_or(4, Lane::bytes));
        }
        let target = self.address(buffer, index)?;
        match reduce {
            Some(op) if !scalar && !target.varies() => self.accumulate_lanes(stmt, target, op, value)?,
            Some(op) => self.accumulate(target, op, value)?,
            None => {
                let v = self.value(value)?;
                self.store_value(&target, v)?;
            }
        }
        self.chunk = saved;
        Ok(())
    }

    /// Facts about the variables of the nest as far as they are single values or intervals here.
    fn facts_of_nest(&self) -> Facts {
        let mut facts = Facts::new(self.env.len());
        for (v, a) in self.env.iter().enumerate() {
            facts.set_range(Var(v as u32), self.facts.bounds(a));
        }
        facts
    }

    /// `target = op(target, value)`.
    fn accumulate(&mut self, target: Address, op: BinaryOp, value: &Expr) -> Step<()> {
        let dtype = self.nest.buffer(target.buffer).dtype;
        if let (Some(slot), BinaryOp::Add, Expr::Binary(BinaryOp::Mul, a, b), true) =
            (self.slot(&target)?, op, value, dtype.is_float())
        {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let whole = self.chunk.first == 0 && self.chunk.count >= slot.valid;
            if whole || slot.uniform || !self.blends(target.buffer) && self.chunk.first == 0 {
                self.read_slot(&target)?;
                let ty = self.ty(slot.lane, slot.uniform);
                self.out.push(Node::Inst(Inst::VFma { acc: slot.reg, ty, a: a.reg, b: b.reg, negate: false }));
                self.changed(slot.reg);
                self.wrote_slot(&target, false);
                return Ok(());
            }
        }
        let value = self.value(value)?;
        let old = self.load_address(&target)?;
        let new = self.combine(op, old, value)?;
        self.store_value(&target, new)
    }

    /// One chunk of `target = op over lanes`, into one of several accumulators.
    fn accumulate_lanes(&mut self, stmt: &Stmt, target: Address, op: BinaryOp, value: &Expr) -> Step<()> {
        const ACCUMULATORS: usize = 8;
        let found = self.reductions.iter().position(|r| std::ptr::eq(r.stmt, stmt) && r.target == target);
        let at = found.unwrap_or_else(|| {
            let r = Reduction { stmt, target, op, accumulators: vec![], next: 0 };
            self.reductions.push(r);
            self.reductions.len() - 1
        });
        let whole = self.chunk.first == 0 && self.chunk.count == self.chunk.lanes;
        let next = self.reductions[at].next;
        self.reductions[at].next = (next + 1) % ACCUMULATORS;
        if let (Expr::Binary(BinaryOp::Mul, a, b), true, BinaryOp::Add, Some(&acc)) =
            (value, whole, op, self.reductions[at].accumulators.get(next))
            && acc.dtype.is_float()
        {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let ty = self.ty(acc.lane, false);
            self.out.push(Node::Inst(Inst::VFma { acc: acc.reg, ty, a: a.reg, b: b.reg, negate: false }));
            self.changed(acc.reg);
            return Ok(());
        }
        let mut v = self.value(value)?;
        if !whole {
            let neutral = self.constant(crate::codegen::expr::Scalar::neutral(op, v.dtype)?)?;
            let mask = self.lane_mask(v.lane.bytes());
            let (neutral, lane) = (self.with_lane(neutral, v.lane)?, v.lane);
            let ty = self.ty(lane, false);
            let (a, b) = (v.reg, neutral.reg);
            v.reg = self.emit(|dst| Inst::VSelect { dst, ty, mask, a, b });
        }
        v.uniform = false;
        match self.reductions[at].accumulators.get(next).copied() {
            None => {
                let reg = self.fresh();
                let ty = self.ty(v.lane, false);
                self.move_to(reg, v.reg, ty);
                self.reductions[at].accumulators.push(Val { reg, ..v });
            }
            Some(acc) => {
                let new = self.combine(op, acc, v)?;
                let ty = self.ty(acc.lane, false);
                self.move_to(acc.reg, new.reg, ty);
            }
        }
        Ok(())
    }

    /// Accumulators are combined pairwise, then lanes, then with the old value of the target.
    fn finish_reduction(&mut self, r: Reduction) -> Step<()> {
        let mut values = r.accumulators;
        while values.len() > 1 {
            let half = values.len().div_ceil(2);
            for i in half..values.len() {
                values[i - half] = self.combine(r.op, values[i - half], values[i])?;
            }
            values.truncate(half);
        }
        let Some(v) = values.pop() else { return Ok(()) };
        let mask = v.dtype == DType::Bool;
        let op = match r.op {
            BinaryOp::Add => VBinary::Add,
            BinaryOp::Mul => VBinary::Mul,
            BinaryOp::Min => VBinary::Min,
            BinaryOp::Max => VBinary::Max,
            // a mask is 0 or -1
            BinaryOp::And if mask => VBinary::Max,
            BinaryOp::Or if mask => VBinary::Min,
            _ => return self.internal("a reduction over lanes that no instruction does"),
        };
        let op = match (mask, op) {
            (true, VBinary::Max) if r.op == BinaryOp::Max => VBinary::Min,
            (true, VBinary::Min) if r.op == BinaryOp::Min => VBinary::Max,
            _ => op,
        };
        let (ty, a) = (self.ty(v.lane, false), v.reg);
        let reg = self.emit(|dst| Inst::VReduce { op, dst, ty, a });
        let v = self.normalized(Val { reg, uniform: true, ..v })?;
        let old = self.load_address(&r.target)?;
        let new = self.combine(r.op, old, v)?;
        self.store_value(&r.target, new)
    }

    // ---- local buffers in registers

    fn blends(&self, b: BufferId) -> bool {
        self.locals[b.0 as usize] == LocalMode::Registers { blend: true }
    }

    pub fn in_registers(&self, b: BufferId) -> bool {
        self.nest.buffer(b).kind == BufferKind::Local
            && matches!(self.locals[b.0 as usize], LocalMode::Registers { .. })
    }

    /// The register of an element or vector of a local buffer; `None` when the buffer is in memory.
    pub fn slot(&mut self, a: &Address) -> Step<Option<Slot>> {
        if !self.in_registers(a.buffer) {
            return Ok(None);
        }
        let memory = Err(Stop::Retry(a.buffer, LocalMode::Memory { offset: 0 }));
        let (lane, start) = (a.linear.coefficient(LANE), a.linear.constant);
        let constant = a.linear.terms.iter().all(|t| t.0 == LANE) && a.gather.is_empty();
        let dtype = self.nest.buffer(a.buffer).dtype;
        if !constant || !(0..=1).contains(&lane) || dtype == DType::Bool {
            return memory;
        }
        let uniform = lane == 0;
        let kind = lane_of(dtype)?;
        let lanes = self.ty(kind, uniform).lanes;
        let covered = if uniform { 1 } else { self.chunk.lanes as i64 };
        for element in start..start + covered {
            let owner = *self.owners.entry((a.buffer, element)).or_insert(start);
            if owner != start && element < start + (self.chunk.first + self.chunk.count) as i64 {
                return memory;
            }
        }
        if let Some(slot) = self.slots.get_mut(&(a.buffer, start)) {
            if slot.uniform != uniform || uniform && slot.lanes < lanes {
                return memory;
            }
            slot.lanes = slot.lanes.max(lanes);
            return Ok(Some(*slot));
        }
        let slot = Slot { reg: self.fresh(), uniform, lane: kind, lanes, valid: 0 };
        self.slots.insert((a.buffer, start), slot);
        Ok(Some(slot))
    }

    /// The slot is read with the lanes at work.
    pub fn read_slot(&mut self, a: &Address) -> Step<()> {
        let key = (a.buffer, a.linear.constant);
        let slot = self.slots[&key];
        if !slot.uniform && self.chunk.first + self.chunk.count > slot.valid && slot.valid > 0 && !self.blends(a.buffer)
        {
            return Err(Stop::Retry(a.buffer, LocalMode::Registers { blend: true }));
        }
        for frame in self.frames.iter_mut().rev() {
            if frame.written.contains(&key) {
                break;
            }
            frame.exposed.insert(key);
        }
        Ok(())
    }

    /// The slot has been written with the lanes at work; `fresh` when its old value does not matter.
    pub fn wrote_slot(&mut self, a: &Address, fresh: bool) {
        let key = (a.buffer, a.linear.constant);
        let (blends, end) = (self.blends(a.buffer), self.chunk.first + self.chunk.count);
        if let Some(slot) = self.slots.get_mut(&key) {
            let end = if slot.uniform { slot.lanes } else { end };
            slot.valid = if blends { slot.valid.max(end) } else { end };
        }
        if let (true, Some(frame)) = (fresh, self.frames.last_mut()) {
            frame.written.insert(key);
        }
    }

    /// Writes `v` to a register of a local buffer.
    pub fn write_slot(&mut self, a: &Address, slot: Slot, v: Val) -> Step<()> {
        let v = self.with_lane(v, slot.lane)?;
        let partial = self.chunk.first > 0 || self.chunk.first + self.chunk.count < slot.valid;
        let keep = !slot.uniform && partial && slot.valid > 0;
        if keep && (self.chunk.first > 0 && !self.blends(a.buffer)) {
            return Err(Stop::Retry(a.buffer, LocalMode::Registers { blend: true }));
        }
        if keep && self.blends(a.buffer) {
            let mask = self.lane_mask(slot.lane.bytes());
            let ty = VType { lane: slot.lane, lanes: slot.lanes };
            let (new, old) = (v.reg, slot.reg);
            let blended = self.emit(|dst| Inst::VSelect { dst, ty, mask, a: new, b: old });
            self.move_to(slot.reg, blended, ty);
        } else {
            let ty =
                if slot.uniform { VType { lane: slot.lane, lanes: slot.lanes } } else { self.ty(slot.lane, false) };
            self.move_to(slot.reg, v.reg, ty);
        }
        self.wrote_slot(a, !keep);
        Ok(())
    }
}

/// Lets the last instruction (or copy and fused operation) of `out` write to `dst` if it has just defined `src`.
fn redirect(out: &mut [Node], src: Vreg, dst: Vreg) -> bool {
    let defines = |inst: &Inst| {
        let mut yes = false;
        inst.registers(|class, access, register| {
            yes |= class == Class::Vector && !access.reads() && register == src.0;
        });
        yes
    };
    let rename = |inst: &mut Inst| {
        inst.registers_mut(&mut |class, access, register| {
            if class == Class::Vector && access.writes() && *register == src.0 {
                *register = dst.0;
            }
        });
    };
    match out {
        [.., Node::Inst(copy @ Inst::VCopy { .. }), Node::Inst(fma)]
            if matches!(&*fma, Inst::VFma { acc, a, b, .. } if *acc == src && *a != dst && *b != dst)
                && defines(copy) =>
        {
            rename(copy);
            rename(fma);
            true
        }
        [.., Node::Inst(last)] if defines(last) => {
            rename(last);
            true
        }
        _ => false,
    }
}

/// The single constant value of the bounds.
fn constant(bounds: &[Bound], lower: bool) -> Option<i64> {
    let values = bounds.iter().map(|b| b.affine.is_constant().then_some((b.affine.constant, b.divisor)));
    let values: Option<Vec<(i64, i64)>> = values.collect();
    let values = values?.into_iter();
    if lower {
        values.map(|(a, d)| crate::codegen::interval::ceil_div(a, d)).max()
    } else {
        values.map(|(a, d)| a.div_euclid(d)).min()
    }
}

/// The lanes `from..to` where a condition over the lane number alone holds.
pub fn lane_range(c: &Affine) -> Option<(i64, i64)> {
    match c.terms[..] {
        [(LANE, k)] if k > 0 => Some((crate::codegen::interval::ceil_div(-c.constant, k), i64::MAX)),
        [(LANE, k)] => Some((i64::MIN, c.constant.div_euclid(-k) + 1)),
        _ => None,
    }
}

/// Whether some statement accumulates into an element that does not depend on `var`.
pub fn accumulates_over(body: &[Stmt], var: Var) -> bool {
    body.iter().any(|s| match s {
        Stmt::Loop { body, .. } | Stmt::If { body, .. } => accumulates_over(body, var),
        Stmt::Let { .. } => false,
        Stmt::Store { index, reduce, .. } => {
            reduce.is_some() && index.iter().all(|i| matches!(i, Index::Affine(a) if !a.uses(var)))
        }
    })
}
