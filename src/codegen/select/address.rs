//! Addresses by strength reduction: the tree of symbolic addresses becomes a flat function.
//!
//! A pointer `root + Σ c·v` gets a register where its innermost variable is defined: at the entry of that loop (the pointer
//! without the variable, plus `c` times the first value, and `c·step` more at the end of each iteration) or after the
//! definition of an integer. So the body of a loop holds one addition for each pointer and no other address arithmetic.
//! The value of a variable itself is kept in a register only where a condition, bound or subscript needs it.

use crate::codegen::select::floor_division::{Intervals, inverse};
use crate::codegen::select::invariant_integers::Writer;
use crate::codegen::select::state::FIRST;
use crate::codegen::select::tree::{Loop, Node, Pointer, Root, Tree};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Gpr, GprOp, Inst, Lane, Operand, VType, Vreg};
use crate::expr::Bound;
use crate::expr::CompareOp;
use crate::expr::interval::ceil_div;
use crate::expr::narrow::{Interval, dtype_range};
use crate::expr::{Affine, Var};
use crate::runtime::{Error, Result};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Assigns registers to pointers and integers and flattens the tree.
pub fn flatten(tree: Tree, name: String, parallel: Option<i64>) -> Result<Function> {
    let mut out = Flattener {
        pointers: &tree.pointers,
        writer: Writer::new(Function {
            name,
            insts: vec![],
            gprs: 0,
            vregs: tree.vregs,
            scratch_bytes: tree.scratch_bytes,
            parallel,
            wave: None,
            instructions: vec![],
        }),
        registers: FxHashMap::default(),
        values: FxHashMap::default(),
        intervals: Intervals::default(),
        expected: &tree.expected,
        range: None,
    };
    for pointer in free_pointers(&tree.nodes, &tree.pointers) {
        let dst = out.writer.register();
        match pointer.root {
            Root::Argument(slot) => out.push(Inst::Argument { dst, slot }),
            Root::Scratch => out.push(Inst::Scratch { dst }),
        }
        out.add(dst, pointer.bytes.constant);
        out.registers.insert(pointer, dst);
    }
    let mut first = false;
    tree.nodes.iter().for_each(|n| n.visit_values(&mut |a| first |= a.uses(FIRST)));
    if first {
        let (first, _) = out.range();
        out.values.insert(FIRST, first);
        out.intervals.set(FIRST, parallel.map(|n| (0, n.max(1) - 1)));
    }
    out.body(&tree.nodes)?;
    let mut function = out.writer.function;
    define_all(&mut function);
    Ok(function)
}

/// Gives a value at the entry to each vector register that some path reads before it writes: what is read so does not
/// matter (elements outside of what was written), but every read has a definition.
fn define_all(f: &mut Function) {
    let mut defined = vec![false; f.vregs as usize];
    let mut missing = BTreeSet::new();
    let mut open = vec![];
    for inst in &f.insts {
        match inst {
            Inst::LoopStart { at_least_once, .. } => open.push((!at_least_once).then(|| defined.clone())),
            Inst::IfStart { .. } => open.push(Some(defined.clone())),
            Inst::LoopEnd | Inst::IfEnd => {
                if let Some(Some(before)) = open.pop() {
                    defined = before;
                }
            }
            _ => inst.registers(|class, access, r| {
                if class == Class::Vector {
                    if access.reads() && !defined[r as usize] {
                        missing.insert(r);
                    }
                    defined[r as usize] |= access.writes();
                }
            }),
        }
    }
    let ty = VType { lane: Lane::F32, lanes: 1 };
    let start = missing.into_iter().map(|r| Inst::VConst { dst: Vreg(r), ty, bits: 0 });
    f.insts.splice(0..0, start.collect::<Vec<_>>());
}

/// The pointers that must be in registers before `nodes`.
fn free_pointers(nodes: &[Node], pointers: &[Pointer]) -> BTreeSet<Pointer> {
    free_pointers_where(nodes, pointers, &|_| true)
}

/// Those of them over `v`.
fn free_pointers_over(v: Var, nodes: &[Node], pointers: &[Pointer]) -> BTreeSet<Pointer> {
    let mut free = free_pointers_where(nodes, pointers, &|p| p.bytes.uses(v));
    free.retain(|p| p.bytes.uses(v));
    free
}

/// Those of them that follow from pointers of which `counts` is true.
fn free_pointers_where(nodes: &[Node], pointers: &[Pointer], counts: &dyn Fn(&Pointer) -> bool) -> BTreeSet<Pointer> {
    let mut free = BTreeSet::new();
    for node in nodes.iter().rev() {
        if let Some(v) = node.defines() {
            free = without(free, v);
        }
        let base = match node {
            Node::Inst(Inst::VGatherIndex { base, .. }) => Some(*base),
            Node::Inst(inst) => inst.address().map(|a| a.base),
            Node::LoadInt { addr, .. } => Some(addr.base),
            Node::Loop(l) => {
                free.extend(without(free_pointers_where(&l.body, pointers, counts), l.var));
                None
            }
            Node::If { body, .. } => {
                free.extend(free_pointers_where(body, pointers, counts));
                None
            }
            Node::Splat { .. }
            | Node::Let { .. }
            | Node::Wrap { .. }
            | Node::Inside { .. }
            | Node::Integer { .. }
            | Node::Choose { .. }
            | Node::FirstLane { .. } => None,
        };
        let base = base.map(|base| &pointers[base.0 as usize]).filter(|p| counts(p) && !free.contains(*p));
        free.extend(base.cloned());
    }
    free
}

/// The set with each pointer over `v` replaced by the pointer that it is computed from.
fn without(mut set: BTreeSet<Pointer>, v: Var) -> BTreeSet<Pointer> {
    let over: Vec<Pointer> = set.iter().filter(|p| p.bytes.uses(v)).cloned().collect();
    for p in over {
        set.remove(&p);
        set.insert(parent(&p, v));
    }
    set
}

fn parent(p: &Pointer, v: Var) -> Pointer {
    Pointer { root: p.root, bytes: p.bytes.clone().plus(v, -p.bytes.coefficient(v)) }
}

struct Flattener<'a> {
    pointers: &'a [Pointer],
    writer: Writer,
    registers: FxHashMap<Pointer, Gpr>,
    values: FxHashMap<Var, Gpr>,
    intervals: Intervals,
    /// Forms of conditions, with what they are expected to be.
    expected: &'a [(Affine, i64)],
    /// The first iteration of the call and the one behind its last.
    range: Option<(Gpr, Gpr)>,
}

impl Flattener<'_> {
    /// The iterations of the call, which are read once.
    fn range(&mut self) -> (Gpr, Gpr) {
        if let Some(range) = self.range {
            return range;
        }
        let (first, last) = (self.writer.register(), self.writer.register());
        self.push(Inst::Range { dst: first, which: 0 });
        self.push(Inst::Range { dst: last, which: 1 });
        self.range = Some((first, last));
        (first, last)
    }

    fn push(&mut self, inst: Inst) {
        self.writer.push(inst);
    }

    fn int(&mut self, op: GprOp, a: Gpr, b: Operand) -> Gpr {
        self.writer.int(op, a, b)
    }

    /// `⌊value / divisor⌋`, the value within `interval`.
    fn quotient(&mut self, value: Gpr, interval: Option<Interval>, divisor: i64) -> Gpr {
        let by_product = interval.filter(|_| !divisor.unsigned_abs().is_power_of_two());
        match by_product.and_then(|interval| inverse(divisor, interval)) {
            Some(by) => {
                let mut product = self.int(GprOp::Mul, value, Operand::Imm(by.factor));
                if by.summand != 0 {
                    product = self.int(GprOp::Add, product, Operand::Imm(by.summand));
                }
                self.int(GprOp::DivFloor, product, Operand::Imm(1 << by.shift))
            }
            None => self.int(GprOp::DivFloor, value, Operand::Imm(divisor)),
        }
    }

    /// `reg += value`.
    fn add(&mut self, reg: Gpr, value: i64) {
        if value != 0 {
            self.push(Inst::Int { op: GprOp::Add, dst: reg, a: reg, b: Operand::Imm(value) });
        }
    }

    fn pointer(&self, p: &Pointer) -> Result<Gpr> {
        self.registers.get(p).copied().ok_or_else(|| Error::Internal(format!("{:?} has no register", p)))
    }

    fn value(&self, v: Var) -> Result<Gpr> {
        self.values.get(&v).copied().ok_or_else(|| Error::Internal(format!("integer {} has no register", v.0)))
    }

    /// The value of `a` in a register that the caller does not change.
    fn affine(&mut self, a: &Affine) -> Result<Gpr> {
        let terms = a.terms.iter().map(|&(v, c)| Ok((self.value(v)?, c))).collect::<Result<Vec<_>>>()?;
        let sum = self.writer.sum(terms);
        Ok(match sum {
            None => {
                let dst = self.writer.register();
                self.push(Inst::Imm { dst, value: a.constant });
                dst
            }
            Some(s) if a.constant == 0 => s,
            Some(s) => self.int(GprOp::Add, s, Operand::Imm(a.constant)),
        })
    }

    /// The value of `a`, as an immediate where it is constant.
    fn operand(&mut self, a: &Affine) -> Result<Operand> {
        if a.is_constant() { Ok(Operand::Imm(a.constant)) } else { Ok(Operand::Reg(self.affine(a)?)) }
    }

    /// Opens an `If` for each condition; returns how many.
    fn conditions(&mut self, conditions: &[Affine]) -> Result<usize> {
        for c in conditions {
            // Σ + constant ≥ 0, written as Σ ≥ -constant
            let linear = c.clone().offset(-c.constant);
            let opposite = linear.clone().scale(-1);
            let expected = |form: &Affine| self.expected.iter().find(|(known, _)| known == form).map(|known| known.1);
            let (of, of_opposite) = (expected(&linear), expected(&opposite));
            let (op, a, b) = match linear.terms[..] {
                [(v, -1)] => (CompareOp::Le, self.value(v)?, c.constant),
                _ if of_opposite.is_some() => (CompareOp::Le, self.affine(&opposite)?, c.constant),
                _ => (CompareOp::Ge, self.affine(&linear)?, -c.constant),
            };
            let iterations = if op == CompareOp::Le { of_opposite } else { of };
            if let Some(iterations) = iterations {
                self.push(Inst::Expect { count: a, iterations });
            }
            self.writer.start_if(op, a, Operand::Imm(b));
        }
        Ok(conditions.len())
    }

    fn body(&mut self, nodes: &[Node]) -> Result<()> {
        let (registers, values) = (self.registers.clone(), self.values.clone());
        for (i, node) in nodes.iter().enumerate() {
            match node {
                Node::Inst(inst) => {
                    let mut inst = inst.clone();
                    if let Inst::VGatherIndex { base, .. } = &mut inst {
                        *base = self.pointer(&self.pointers[base.0 as usize])?;
                    } else if let Some(a) = inst.address_mut() {
                        a.base = self.pointer(&self.pointers[a.base.0 as usize])?;
                    }
                    self.push(inst);
                }
                Node::Splat { dst, ty, value } => {
                    let src = self.affine(value)?;
                    self.push(Inst::VSplat { dst: *dst, ty: *ty, src });
                }
                Node::Loop(l) => self.emit_loop(l)?,
                Node::Let { var, value, divisor } => {
                    let interval = self.intervals.of(value);
                    let value = self.affine(value)?;
                    let quotient = match divisor {
                        1 => value,
                        d => self.quotient(value, interval, *d),
                    };
                    let of_quotient = interval.map(|(low, high)| (low.div_euclid(*divisor), high.div_euclid(*divisor)));
                    self.intervals.set(*var, of_quotient);
                    self.define(*var, quotient, &nodes[i + 1..])?;
                }
                Node::Wrap { var, mem, value } => {
                    self.intervals.set(*var, dtype_range(*mem));
                    let (dst, src) = (self.writer.register(), self.affine(value)?);
                    self.push(Inst::Extend { dst, mem: *mem, src });
                    self.define(*var, dst, &nodes[i + 1..])?;
                }
                Node::Integer { var, op, a, b } => {
                    self.intervals.set(*var, None);
                    let (a, b) = (self.affine(a)?, self.operand(b)?);
                    let value = self.int(*op, a, b);
                    self.define(*var, value, &nodes[i + 1..])?;
                }
                Node::Choose { var, conditions, yes, no } => {
                    let either = self.intervals.of(yes).zip(self.intervals.of(no));
                    self.intervals.set(*var, either.map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))));
                    let (dst, no, yes) = (self.writer.register(), self.affine(no)?, self.affine(yes)?);
                    self.push(Inst::Copy { dst, src: no });
                    let opened = self.conditions(conditions)?;
                    self.push(Inst::Copy { dst, src: yes });
                    (0..opened).for_each(|_| self.writer.end_if());
                    self.define(*var, dst, &nodes[i + 1..])?;
                }
                Node::LoadInt { var, addr, mem } => {
                    self.intervals.set(*var, dtype_range(*mem));
                    let dst = self.writer.register();
                    let base = self.pointer(&self.pointers[addr.base.0 as usize])?;
                    self.push(Inst::LoadInt { dst, addr: crate::codegen::vcode::Addr { base, ..*addr }, mem: *mem });
                    self.define(*var, dst, &nodes[i + 1..])?;
                }
                Node::FirstLane { var, ty, src } => {
                    self.intervals.set(*var, (ty.lane == Lane::I32).then_some((i32::MIN.into(), i32::MAX.into())));
                    let dst = self.writer.register();
                    self.push(Inst::FirstLane { dst, ty: *ty, src: *src });
                    self.define(*var, dst, &nodes[i + 1..])?;
                }
                &Node::Inside { var, ref value, extent, mem, extremes: [least, greatest] } => {
                    self.intervals.set(var, Some((0, extent - 1)));
                    let (dst, src) = (self.writer.register(), self.affine(value)?);
                    self.push(Inst::Inside { dst, src, extent, mem, least, greatest });
                    self.define(var, dst, &nodes[i + 1..])?;
                }
                Node::If { conditions, body } => {
                    let opened = self.conditions(conditions)?;
                    self.body(body)?;
                    (0..opened).for_each(|_| self.writer.end_if());
                }
            }
        }
        (self.registers, self.values) = (registers, values);
        Ok(())
    }

    /// `v` has its value in `register` from here on; computes the pointers over it that `following` needs.
    fn define(&mut self, v: Var, register: Gpr, following: &[Node]) -> Result<()> {
        self.values.insert(v, register);
        for p in free_pointers_over(v, following, self.pointers) {
            let base = self.pointer(&parent(&p, v))?;
            let c = p.bytes.coefficient(v);
            let scaled = if c == 1 { register } else { self.int(GprOp::Mul, register, Operand::Imm(c)) };
            let dst = self.int(GprOp::Add, base, Operand::Reg(scaled));
            self.registers.insert(p, dst);
        }
        Ok(())
    }

    /// The greatest (`Max`) or least (`Min`) of the bounds.
    fn bound(&mut self, bounds: &[Bound], op: GprOp) -> Result<Operand> {
        let mut best: Option<Operand> = None;
        // constants last: they fit into the second operand
        let (constant, varying): (Vec<&Bound>, Vec<&Bound>) = bounds.iter().partition(|b| b.affine.is_constant());
        for b in varying.into_iter().chain(constant) {
            let rounded = if op == GprOp::Max { b.affine.clone().offset(b.divisor - 1) } else { b.affine.clone() };
            let value = match self.operand(&rounded)? {
                Operand::Imm(c) => Operand::Imm(c.div_euclid(b.divisor)),
                Operand::Reg(r) if b.divisor == 1 => Operand::Reg(r),
                Operand::Reg(r) => Operand::Reg(self.quotient(r, self.intervals.of(&rounded), b.divisor)),
            };
            best = Some(match (best, value) {
                (None, value) => value,
                (Some(Operand::Reg(a)), value) => Operand::Reg(self.int(op, a, value)),
                (Some(Operand::Imm(a)), Operand::Imm(b)) => {
                    Operand::Imm(if op == GprOp::Max { a.max(b) } else { a.min(b) })
                }
                (Some(imm), Operand::Reg(r)) => Operand::Reg(self.int(op, r, imm)),
            });
        }
        best.ok_or_else(|| Error::Internal("a loop without bounds".into()))
    }

    /// The values of the greatest (`Max`) or least (`Min`) of the bounds.
    fn bound_interval(&self, bounds: &[Bound], op: GprOp) -> Option<Interval> {
        let mut best: Option<Interval> = None;
        for b in bounds {
            let (low, high) = self.intervals.of(&b.affine)?;
            let both = |f: fn(i64, i64) -> i64| (f(low, b.divisor), f(high, b.divisor));
            best = Some(match (best, op) {
                (None, GprOp::Max) => both(ceil_div),
                (None, _) => both(i64::div_euclid),
                (Some(a), GprOp::Max) => (a.0.max(both(ceil_div).0), a.1.max(both(ceil_div).1)),
                (Some(a), _) => (a.0.min(both(i64::div_euclid).0), a.1.min(both(i64::div_euclid).1)),
            });
        }
        best
    }

    fn emit_loop(&mut self, l: &Loop) -> Result<()> {
        let pointers: Vec<Pointer> = free_pointers_over(l.var, &l.body, self.pointers).into_iter().collect();
        let mut needed = false;
        l.body.iter().for_each(|n| n.visit_values(&mut |a| needed |= a.uses(l.var)));

        let values = self.bound_interval(&l.lower, GprOp::Max).zip(self.bound_interval(&l.upper, GprOp::Min));
        let (lower, count) = if l.parallel {
            let (first, last) = self.range();
            let count = self.int(GprOp::Sub, last, Operand::Reg(first));
            let mut lower = first;
            if l.step != 1 {
                lower = self.int(GprOp::Mul, lower, Operand::Imm(l.step));
            }
            match self.bound(&l.lower, GprOp::Max)? {
                Operand::Imm(0) => {}
                offset => lower = self.int(GprOp::Add, lower, offset),
            }
            (Operand::Reg(lower), count)
        } else {
            let lower = self.bound(&l.lower, GprOp::Max)?;
            let count = match one_by_one(l) {
                Some(extent) => {
                    let rounded = self.affine(&extent.offset(l.step - 1))?;
                    self.steps(rounded, l.step, values)
                }
                None => {
                    let upper = self.bound(&l.upper, GprOp::Min)?;
                    self.count(lower, upper, l.step, values)
                }
            };
            (lower, count)
        };
        // a loop that is empty has no values, and any interval
        self.intervals.set(l.var, values.map(|(lower, upper)| (lower.0, lower.0.max(upper.1.saturating_sub(1)))));
        let mut bumps = vec![];
        for p in pointers {
            let base = self.pointer(&parent(&p, l.var))?;
            let c = p.bytes.coefficient(l.var);
            let dst = self.writer.register_of_next_loop();
            let offset = match lower {
                Operand::Imm(first) => Operand::Imm(c * first),
                Operand::Reg(first) if c == 1 => Operand::Reg(first),
                Operand::Reg(first) => Operand::Reg(self.int(GprOp::Mul, first, Operand::Imm(c))),
            };
            self.push(match offset {
                Operand::Imm(0) => Inst::Copy { dst, src: base },
                offset => Inst::Int { op: GprOp::Add, dst, a: base, b: offset },
            });
            bumps.push((dst, c * l.step));
            self.registers.insert(p, dst);
        }
        if needed {
            let dst = self.writer.register_of_next_loop();
            self.push(match lower {
                Operand::Imm(value) => Inst::Imm { dst, value },
                Operand::Reg(src) => Inst::Copy { dst, src },
            });
            bumps.push((dst, l.step));
            self.values.insert(l.var, dst);
        }
        self.writer.start_loop(count, l.at_least_once, l.expected);
        self.body(&l.body)?;
        for (reg, by) in bumps {
            self.add(reg, by);
        }
        self.writer.end_loop();
        Ok(())
    }

    /// `⌈(upper - lower) / step⌉`, the intervals of both bounds where they are known.
    fn count(&mut self, lower: Operand, upper: Operand, step: i64, values: Option<(Interval, Interval)>) -> Gpr {
        let extent = match (upper, lower) {
            (Operand::Imm(u), Operand::Imm(l)) => {
                let dst = self.writer.register();
                self.push(Inst::Imm { dst, value: (u - l + step - 1).div_euclid(step).max(0) });
                return dst;
            }
            (Operand::Reg(u), Operand::Imm(0)) => u,
            (Operand::Reg(u), l) => self.int(GprOp::Sub, u, l),
            (Operand::Imm(u), l) => {
                let dst = self.writer.register();
                self.push(Inst::Imm { dst, value: u });
                self.int(GprOp::Sub, dst, l)
            }
        };
        let rounded = if step == 1 { extent } else { self.int(GprOp::Add, extent, Operand::Imm(step - 1)) };
        self.steps(rounded, step, values)
    }

    /// `⌊rounded / step⌋`, of an extent with `step - 1` more.
    fn steps(&mut self, rounded: Gpr, step: i64, values: Option<(Interval, Interval)>) -> Gpr {
        if step == 1 {
            return rounded;
        }
        let interval = values.and_then(|(lower, upper)| {
            let ends = (upper.0.checked_sub(lower.1)?, upper.1.checked_sub(lower.0)?);
            Some((ends.0.checked_add(step - 1)?, ends.1.checked_add(step - 1)?))
        });
        self.quotient(rounded, interval, step)
    }
}

/// The elements from one bound to the other, where both are variables with constants: the difference of the variables may be there.
fn one_by_one(l: &Loop) -> Option<Affine> {
    let ([first], [end]) = (&l.lower[..], &l.upper[..]) else { return None };
    let is_variable = |b: &Bound| b.divisor == 1 && matches!(b.affine.terms[..], [(_, 1)]);
    (l.step > 1 && is_variable(first) && is_variable(end)).then(|| end.affine.add_scaled(&first.affine, -1))
}
