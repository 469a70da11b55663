//! Verifier of LoopNest; runs after each stage that makes or changes a nest.
//!
//! Each variable is bound once and used only below its binding; `Unroll` and `Vector` loops have constant bounds (`Vector`
//! from 0, step 1) and `Parallel` loops are outermost; operands of an operation have one type; subscripts lie inside of
//! their buffer wherever intervals decide it; only arguments marked as written are stored to; literals are as many
//! finite floats as a buffer has elements.

use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::{Access, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::runtime::{DType, Error, Result};

/// `Internal` with the place and the rule that is broken.
pub fn verify(nest: &LoopNest) -> Result<()> {
    for b in &nest.buffers {
        if b.strides.len() != b.shape.len() || b.shape.iter().any(|&n| n < 0) {
            return Err(Error::Internal(format!("{}: buffer {} has a wrong shape", nest.name, b.name)));
        }
        if !has_right_literals(b) {
            return Err(Error::Internal(format!("{}: the literals of {} do not fit it", nest.name, b.name)));
        }
    }
    let mut checker = Checker { nest, bound: vec![false; nest.vars.len()], visible: vec![false; nest.vars.len()] };
    checker.statements(&nest.body, &mut Facts::new(nest.vars.len()), 0)
}

/// Returns true if a buffer has no literals, or is only read and has one for each element.
fn has_right_literals(b: &Buffer) -> bool {
    let only_read = matches!(b.kind, BufferKind::Argument { written: false, .. });
    b.literals.as_ref().is_none_or(|l| only_read && l.fit(b.dtype, &b.shape))
}

struct Checker<'a> {
    nest: &'a LoopNest,
    bound: Vec<bool>,
    visible: Vec<bool>,
}

impl Checker<'_> {
    fn fail<T>(&self, what: String) -> Result<T> {
        Err(Error::Internal(format!("{}: {what}", self.nest.name)))
    }

    fn bind(&mut self, v: Var) -> Result<()> {
        match self.bound.get_mut(v.0 as usize) {
            None => self.fail(format!("variable {} does not exist", v.0)),
            Some(true) => self.fail(format!("variable {} is bound twice", self.nest.vars[v.0 as usize])),
            Some(b) => {
                *b = true;
                self.visible[v.0 as usize] = true;
                Ok(())
            }
        }
    }

    fn affine(&self, a: &Affine) -> Result<()> {
        match a.terms.iter().find(|t| !self.visible.get(t.0.0 as usize).copied().unwrap_or(false)) {
            None => Ok(()),
            Some((v, _)) => {
                let name = self.nest.vars.get(v.0 as usize).map_or("?", |n| n.as_str());
                self.fail(format!("variable {name} ({}) is used outside of its loop", v.0))
            }
        }
    }

    fn statements(&mut self, body: &[Stmt], facts: &mut Facts, depth: usize) -> Result<()> {
        let visible = self.visible.clone();
        for stmt in body {
            match stmt {
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    let name = self.nest.vars.get(var.0 as usize).cloned().unwrap_or_default();
                    if lower.is_empty() || upper.is_empty() || *step < 1 {
                        return self.fail(format!("loop {name} lacks a bound or has step {step}"));
                    }
                    let mut constant = true;
                    for b in lower.iter().chain(upper) {
                        self.affine(&b.affine)?;
                        constant &= b.affine.is_constant();
                        if b.divisor < 1 {
                            return self.fail(format!("a bound of loop {name} is divided by {}", b.divisor));
                        }
                    }
                    let from_zero = lower.iter().all(|b| b.affine.constant == 0) && *step == 1;
                    match kind {
                        LoopKind::Unroll | LoopKind::Vector | LoopKind::Instruction(_) if !constant => {
                            return self.fail(format!("loop {name} is expanded but its bounds are not constant"));
                        }
                        LoopKind::Vector | LoopKind::Instruction(_) if !from_zero => {
                            return self.fail(format!("vector loop {name} does not count 0, 1, 2"));
                        }
                        LoopKind::Parallel | LoopKind::Waves { .. } if depth > 0 => {
                            return self.fail(format!("parallel loop {name} is not outermost"));
                        }
                        LoopKind::Waves { width } if !from_zero || !constant || *width < 1 => {
                            return self.fail(format!("loop `{name}` is not a sequence of waves"));
                        }
                        _ => {}
                    }
                    self.bind(*var)?;
                    let mut inside = facts.clone();
                    inside.enter_loop(*var, lower, upper, *step);
                    self.statements(body, &mut inside, depth + 1)?;
                    self.visible[var.0 as usize] = false;
                }
                Stmt::Let { var, value, divisor } => {
                    self.affine(value)?;
                    if *divisor < 1 {
                        return self.fail(format!("division by {divisor}"));
                    }
                    self.bind(*var)?;
                    facts.bind(*var, value, *divisor);
                }
                Stmt::Read { .. } => self.read(stmt, facts)?,
                Stmt::If { conditions, body } => {
                    let mut inside = facts.clone();
                    let mut is_reached = true;
                    for c in conditions {
                        self.affine(c)?;
                        is_reached &= !inside.contradicts(c);
                        inside.assume(c.clone());
                    }
                    if is_reached {
                        self.statements(body, &mut inside, depth + 1)?;
                    }
                }
                Stmt::Store { buffer, index, value, .. } => {
                    let to = self.subscripts(*buffer, index, facts)?;
                    if let BufferKind::Argument { written: false, .. } = self.nest.buffer(*buffer).kind {
                        return self.fail(format!("{} is only read", self.nest.buffer(*buffer).name));
                    }
                    let dtype = self.expr(value, facts)?;
                    if dtype != to {
                        let name = &self.nest.buffer(*buffer).name;
                        return self.fail(format!("a value of type {dtype} is stored to {name} of type {to}"));
                    }
                }
            }
        }
        self.visible = visible;
        Ok(())
    }

    /// A read of an integer, whose variable lies in its range from here on.
    fn read(&mut self, stmt: &Stmt, facts: &mut Facts) -> Result<()> {
        let Stmt::Read { var, value, range, expected, recorded, .. } = stmt else { return Ok(()) };
        let dtype = self.expr(value, facts)?;
        if dtype != DType::I64 || range.0 > range.1 || expected.divisor < 1 {
            return self.fail(format!("a read of {dtype} within {}..={}", range.0, range.1));
        }
        self.affine(&expected.affine)?;
        self.recorded(*range, *recorded)?;
        self.bind(*var)?;
        facts.set_range(*var, *range);
        Ok(())
    }

    /// Values outside of a range are recorded in the elements of arguments with this range as limits.
    fn recorded(&self, range: (i64, i64), recorded: Option<[BufferId; 2]>) -> Result<()> {
        let keeps = |b: &BufferId| {
            let written = |b: &Buffer| matches!(b.kind, BufferKind::Argument { written: true, .. });
            self.nest.buffers.get(b.0 as usize).is_some_and(|b| b.limits == Some(range) && written(b))
        };
        match recorded.iter().flatten().all(keeps) {
            true => Ok(()),
            false => self.fail(format!("a read within {}..={} is recorded elsewhere", range.0, range.1)),
        }
    }

    fn subscripts(&self, buffer: BufferId, index: &[Index], facts: &Facts) -> Result<DType> {
        let Some(b) = self.nest.buffers.get(buffer.0 as usize) else {
            return self.fail(format!("buffer {} does not exist", buffer.0));
        };
        if index.len() != b.shape.len() {
            return self.fail(format!("{} has {} dimensions and {} subscripts", b.name, b.shape.len(), index.len()));
        }
        for (d, i) in index.iter().enumerate() {
            match i {
                Index::Affine(a) => {
                    self.affine(a)?;
                    let (lo, hi) = facts.bounds(a);
                    let outside = lo < 0 || hi >= b.shape[d];
                    let never = || facts.is_contradictory();
                    if outside && lo <= hi && (facts.is_box(a) || hi < 0 || lo >= b.shape[d]) && !never() {
                        let extent = b.shape[d];
                        return self
                            .fail(format!("subscript {d} of {} is {lo}..={hi}, outside of 0..{extent}", b.name));
                    }
                }
                Index::Value(e) => {
                    let dtype = self.expr(e, facts)?;
                    if dtype.is_float() || dtype == DType::Bool {
                        return self.fail(format!("subscript {d} of {} has type {dtype}", b.name));
                    }
                }
            }
        }
        Ok(b.dtype)
    }

    fn access(&self, access: &Access, facts: &Facts) -> Result<DType> {
        if access.guard.is_empty() {
            return self.subscripts(access.buffer, &access.index, facts);
        }
        let mut inside = facts.clone();
        for g in &access.guard {
            self.affine(g)?;
            inside.assume(g.clone());
        }
        let dtype = self.subscripts(access.buffer, &access.index, &inside)?;
        match access.otherwise {
            Some(s) if s.dtype == dtype => Ok(dtype),
            _ => self.fail(format!("a guarded read of {dtype} has no value for outside")),
        }
    }

    fn expr(&self, e: &Expr, facts: &Facts) -> Result<DType> {
        let same = |a: DType, b: DType| {
            if a == b { Ok(a) } else { self.fail(format!("operands of types {a} and {b}")) }
        };
        match e {
            Expr::Const(s) => Ok(s.dtype),
            Expr::Index(a) => self.affine(a).map(|_| DType::I64),
            Expr::Load(access) => self.access(access, facts),
            Expr::Unary(_, a) => self.expr(a, facts),
            Expr::Binary(_, a, b) => same(self.expr(a, facts)?, self.expr(b, facts)?),
            Expr::Compare(_, a, b) => same(self.expr(a, facts)?, self.expr(b, facts)?).map(|_| DType::Bool),
            Expr::Select(c, a, b) => {
                same(self.expr(c, facts)?, DType::Bool)?;
                same(self.expr(a, facts)?, self.expr(b, facts)?)
            }
            Expr::Cast(to, a) => self.expr(a, facts).map(|_| *to),
            Expr::Bitcast(to, a) => match self.expr(a, facts)? {
                from if from.bytes() == to.bytes() => Ok(*to),
                from => self.fail(format!("the bits of {from} as {to}")),
            },
        }
    }
}
