//! Instruction selection: statements are expanded over their unrolled and vector loops into straight-line vector code.
//!
//! Every expression that does not depend on the vector variable is *uniform*: computed once, in every lane of a full
//! register, whether it stands inside of a vector loop or not. Value numbering within a block (`numbering`) shares loads,
//! broadcasts, constants and common subexpressions, so the broadcast of a row is used by all vectors of the row and the
//! vectors of a column by all rows of a register tile. A local buffer whose elements are known at compile time lives in
//! registers (`slots`).

mod accumulate;
mod deferred;
mod slots;
mod value_numbering;

use crate::codegen::Target;
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::backward::is_backward;
use crate::codegen::select::hoist::hoist_invariants;
use crate::codegen::select::scalar_replacement::reuse::carried_registers;
use crate::codegen::select::state::{Chunk, LANE, LocalMode, Selected, Selector, Stop, lane_range};
use crate::codegen::select::state::{Frame, Reduction};
use crate::codegen::select::tree::{Loop, Node, Pointer, Root, Tree};
use crate::codegen::select::value::lane_of;
use crate::codegen::vcode::{Gpr, Lane, Vreg};
use crate::expr::Bound;
use crate::expr::interval::Facts;
use crate::expr::{Affine, Var};
use crate::expr::{BinaryOp, BufferId, Expr, Index};
use crate::runtime::Error;
use rustc_hash::FxHashMap;

pub use crate::codegen::select::state::Span;
pub use accumulate::accumulates_over;

impl<'a> Selector<'a> {
    pub fn new(
        nest: &'a LoopNest,
        target: &'a Target,
        widths: &'a FxHashMap<Var, usize>,
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
            pointer_ids: FxHashMap::default(),
            versions: FxHashMap::default(),
            values: FxHashMap::default(),
            integers: vec![],
            branches: vec![],
            out: vec![],
            chunk: Chunk { lanes: 1, first: 0, count: 1, widest: 4 },
            masked: vec![],
            slots: FxHashMap::default(),
            deferred: vec![],
            owners: FxHashMap::default(),
            frames: vec![],
            reductions: vec![],
            pair: None,
            view: None,
            tile: None,
            matrices: None,
            half_sums: None,
            innermost: None,
            expected: vec![],
        }
    }

    /// The tree of one phase.
    pub fn phase(mut self, stmt: &Stmt) -> Selected<Tree> {
        self.statement(stmt)?;
        self.tree.nodes = self.out;
        Ok(self.tree)
    }

    /// `a` over runtime variables and the lane number.
    pub fn resolve(&self, a: &Affine) -> Affine {
        a.compose(&self.env)
    }

    pub fn internal<T>(&self, what: &str) -> Selected<T> {
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

    pub fn statements(&mut self, body: &[Stmt]) -> Selected<()> {
        let mut remaining = body;
        while let [stmt, after @ ..] = remaining {
            remaining = match after {
                [next, after @ ..] if self.tiles(Some(stmt), next)? => after,
                _ => {
                    self.statement(stmt)?;
                    after
                }
            };
        }
        Ok(())
    }

    pub fn statement(&mut self, stmt: &Stmt) -> Selected<()> {
        if self.tiles(None, stmt)? || self.tile_block(stmt)? || self.matrices(stmt)? || self.half_sums(stmt)? {
            return Ok(());
        }
        match stmt {
            Stmt::Loop { var, lower, upper, step, kind, body } => {
                let resolve = |b: &Bound| Bound { affine: self.resolve(&b.affine), divisor: b.divisor };
                let lower: Vec<Bound> = lower.iter().map(resolve).collect();
                let upper: Vec<Bound> = upper.iter().map(resolve).collect();
                let first = constant(&lower, true);
                let end = constant(&upper, false);
                match (kind, first, end) {
                    (LoopKind::Vector, _, Some(end)) => self.vector_loop(*var, end, body),
                    (LoopKind::Unroll, Some(first), Some(end)) => self.unrolled_loop(*var, (first, end, *step), body),
                    (LoopKind::Instruction(name), Some(0), Some(end)) => self.instruction_loop(*name, *var, end, body),
                    (LoopKind::Unroll | LoopKind::Vector | LoopKind::Instruction(_), _, _) => {
                        self.internal("an expanded loop without constant bounds")
                    }
                    (LoopKind::Serial, Some(0), Some(end)) if *step == 1 && self.tile_steps(*var, end, body)? => Ok(()),
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
                    self.expect_quotient(Affine::var(v), &value, *divisor);
                    Affine::var(v)
                };
                Ok(())
            }
            Stmt::Read { var, value, range, checked, expected, recorded } => {
                self.env[var.0 as usize] = self.read(value, *range, *checked, expected, *recorded)?;
                Ok(())
            }
            Stmt::If { conditions, body } => self.conditional(conditions, body),
            Stmt::Store { buffer, index, value, reduce } => self.store(stmt, *buffer, index, value, *reduce),
        }
    }

    pub fn real_loop(
        &mut self,
        var: Var,
        lower: Vec<Bound>,
        upper: Vec<Bound>,
        step: i64,
        parallel: bool,
        body: &[Stmt],
    ) -> Selected<()> {
        if lower.iter().chain(&upper).any(|b| b.affine.uses(LANE)) {
            return self.internal("a loop bound over the vector variable");
        }
        let v = self.fresh_var();
        let facts = self.facts.clone();
        self.facts.enter_loop(v, &lower, &upper, step);
        let at_least_once = !parallel && self.runs(&facts, &lower, &upper);
        self.env[var.0 as usize] = Affine::var(v);
        self.settle_all();
        let outer = std::mem::take(&mut self.out);
        self.forget();
        let (before, own) = (self.slots.clone(), self.tree.vregs);
        self.frames.push(Frame::default());
        self.statements(body)?;
        self.settle_all();
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
        let expected = self.expected_iterations(&lower, &upper, step);
        let node = Loop { var: v, lower, upper, step, parallel, at_least_once, expected, body };
        let (pointers, vregs, inside) = (&self.tree.pointers, self.tree.vregs, &self.facts);
        let carried = |l: &Loop| carried_registers(l, pointers, vregs, inside);
        let is_inside = |p: &Pointer, offset: i64| {
            let Root::Argument(slot) = p.root else { return false };
            let kind = |b: &&Buffer| matches!(b.kind, BufferKind::Argument { slot: s, .. } if s == slot);
            let bytes = self.nest.buffers.iter().find(kind).map_or(0, |b| b.span() * b.dtype.bytes() as i64);
            let (low, high) = facts.bounds(&p.bytes.clone().offset(offset));
            low >= 0 && high < bytes
        };
        self.out.extend(hoist_invariants(node, own, self.target.vector_registers, pointers, carried, is_inside));
        self.forget();
        self.facts = facts;
        Ok(())
    }

    /// Returns true if the first iteration is certain to run.
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

    fn unrolled_loop(&mut self, var: Var, (first, end, step): (i64, i64, i64), body: &[Stmt]) -> Selected<()> {
        let pairs = step == 1 && end - first > 1 && self.adds_pairs(var, body);
        let mut value = first;
        while value < end {
            self.env[var.0 as usize] = Affine::constant(value);
            let is_pair = pairs && value + 1 < end;
            if is_pair {
                self.pair = Some(var);
            }
            self.statements(body)?;
            if is_pair {
                self.pair = None;
            }
            value += if is_pair { 2 } else { step };
        }
        Ok(())
    }

    fn vector_loop(&mut self, var: Var, extent: i64, body: &[Stmt]) -> Selected<()> {
        let widest = self.widths.get(&var).copied().unwrap_or(8);
        let full = (self.target.vector_bytes / widest) as i64;
        let saved = self.chunk;
        let reduces = accumulates_over(body, var);
        let backward = is_backward(self.nest, body, var);
        let outer = std::mem::take(&mut self.reductions);
        let mut start = 0;
        while start < extent {
            let count = full.min(extent - start);
            let lanes = if reduces { full } else { (count as u64).next_power_of_two() as i64 };
            self.env[var.0 as usize] = match backward {
                true => Affine::var(LANE).scale(-1).offset(start + count - 1),
                false => Affine::var(LANE).offset(start),
            };
            self.chunk = Chunk { lanes: lanes as u8, first: 0, count: count as u8, widest };
            self.facts.set_range(LANE, (0, count - 1));
            self.statements(body)?;
            start += full;
        }
        self.chunk = Chunk { lanes: full as u8, first: 0, count: full as u8, widest };
        self.finish_reductions(full as u8, outer)?;
        self.facts.set_range(LANE, (0, 0));
        self.chunk = saved;
        Ok(())
    }

    /// Finishes the reductions over lanes since those of `outer` were put aside.
    fn finish_reductions(&mut self, lanes: u8, outer: Vec<Reduction>) -> Selected<()> {
        let reductions = std::mem::replace(&mut self.reductions, outer);
        if reductions.is_empty() {
            return Ok(());
        }
        let (chunk, facts) = (self.chunk, self.facts.clone());
        self.chunk = Chunk { lanes, first: 0, count: lanes, ..chunk };
        self.facts.set_range(LANE, (0, 0));
        for r in reductions {
            self.finish_reduction(r)?;
        }
        (self.chunk, self.facts) = (chunk, facts);
        Ok(())
    }

    fn conditional(&mut self, conditions: &[Affine], body: &[Stmt]) -> Selected<()> {
        self.under(conditions, &mut |s| s.statements(body))
    }

    /// Selects `body` for where all conditions hold.
    pub fn under(&mut self, conditions: &[Affine], body: &mut dyn FnMut(&mut Self) -> Selected<()>) -> Selected<()> {
        let (mut dynamic, mut masked) = (vec![], vec![]);
        let (mut first, mut end) = (self.chunk.first as i64, (self.chunk.first + self.chunk.count) as i64);
        for c in conditions {
            let c = self.resolve(c);
            match self.facts.decide(&c) {
                Some(true) => {}
                Some(false) => return Ok(()),
                None if !c.uses(LANE) => dynamic.push(c),
                None => match lane_range(&c) {
                    Some((from, to)) => (first, end) = (first.max(from), end.min(to)),
                    None => masked.push(c),
                },
            }
        }
        if first >= end {
            return Ok(());
        }
        let (chunk, facts, before) = (self.chunk, self.facts.clone(), self.masked.len());
        self.masked.extend(masked);
        self.chunk = Chunk { first: first as u8, count: (end - first) as u8, ..chunk };
        self.facts.set_range(LANE, (first, end - 1));
        if dynamic.is_empty() {
            body(self)?;
        } else {
            dynamic.iter().for_each(|c| self.expect_condition(c));
            dynamic.iter().for_each(|c| self.facts.assume(c.clone()));
            self.settle_all();
            let outer = std::mem::take(&mut self.out);
            let (values, slots) = (self.known_values(), self.slots.clone());
            self.frames.push(Frame::default());
            let outer_reductions = std::mem::take(&mut self.reductions);
            body(self)?;
            // where the condition fails, its sums over lanes have no values
            self.finish_reductions(chunk.lanes, outer_reductions)?;
            self.settle_all();
            let frame = self.frames.pop().expect("pushed above");
            if let Some(outside) = self.frames.last_mut() {
                outside.exposed.extend(frame.exposed.difference(&outside.written).copied().collect::<Vec<_>>());
            }
            let body = std::mem::replace(&mut self.out, outer);
            self.out.push(Node::If { conditions: dynamic, body });
            self.forget_since(values);
            for (key, slot) in slots {
                if self.slots[&key].valid < slot.valid {
                    return Err(Stop::Retry(key.0, LocalMode::Registers { blend: true }));
                }
            }
        }
        self.masked.truncate(before);
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
    ) -> Selected<()> {
        let scalar = self.chunk.lanes == 1 && self.chunk.count == 1;
        let saved = self.chunk;
        if scalar {
            let widest = crate::codegen::select::value::widest(self.nest, &self.facts_of_nest(), &[], value);
            self.chunk.widest = widest.max(lane_of(self.nest.buffer(buffer).dtype).map_or(4, Lane::bytes)).max(4);
        }
        let target = self.address(buffer, index)?;
        if !self.masked.is_empty() && (self.in_registers(buffer) || !target.varies()) {
            return self.internal("a condition over the vector variable and others");
        }
        match reduce {
            Some(op) if !scalar && !target.varies() => self.accumulate_lanes(stmt, target, op, value)?,
            Some(op) => self.accumulate(target, op, value)?,
            None if self.defer_zero(&target, value)? => {}
            None if self.copy_bits(&target, value)? => {}
            None => {
                let v = self.value(value)?;
                self.store_value(&target, v)?;
            }
        }
        self.chunk = saved;
        Ok(())
    }

    /// Facts about the variables of the nest as far as they are single values or intervals here.
    pub(super) fn facts_of_nest(&self) -> Facts {
        let mut facts = Facts::new(self.env.len());
        for (v, a) in self.env.iter().enumerate() {
            facts.set_range(Var(v as u32), self.facts.bounds(a));
        }
        facts
    }
}

/// The single constant value of the bounds.
fn constant(bounds: &[Bound], lower: bool) -> Option<i64> {
    let values = bounds.iter().map(|b| b.affine.is_constant().then_some((b.affine.constant, b.divisor)));
    let values: Option<Vec<(i64, i64)>> = values.collect();
    let values = values?.into_iter();
    if lower {
        values.map(|(a, d)| crate::expr::interval::ceil_div(a, d)).max()
    } else {
        values.map(|(a, d)| a.div_euclid(d)).min()
    }
}
