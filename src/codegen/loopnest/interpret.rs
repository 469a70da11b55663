//! Interpreter of LoopNest: the definition of its meaning.
//!
//! Statements run in their written order; loop kinds do not matter. Every subscript is checked. Local buffers are filled
//! with ones (not-a-number for floats) where a parallel iteration begins, so that a read before a write shows.

use crate::codegen::loopnest::{BufferKind, LoopNest, Stmt};
use crate::expr::Affine;
use crate::expr::Bound;
use crate::expr::Var;
use crate::expr::interval::ceil_div;
use crate::expr::scalar;
use crate::expr::scalar::{Point, Value};
use crate::expr::{Access, Index};
use crate::expr::{BinaryOp, BufferId};
use crate::runtime::{Error, Result, Tensor};

/// Runs `nest` on the tensors of its argument table, in slot order. Their bytes are addressed by the strides of the nest's
/// buffers. `Internal` when a subscript leaves its buffer or a buffer that is only read would be written.
pub fn run(nest: &LoopNest, arguments: &mut [Tensor]) -> Result<()> {
    let locals = nest.buffers.iter().map(|b| match b.kind {
        BufferKind::Local => vec![0xff; b.span() as usize * b.dtype.bytes()],
        BufferKind::Argument { .. } => vec![],
    });
    let mut machine =
        Machine { nest, locals: locals.collect(), arguments, vars: vec![0; nest.vars.len()], parallel: false };
    machine.statements(&nest.body)
}

struct Machine<'a> {
    nest: &'a LoopNest,
    arguments: &'a mut [Tensor],
    locals: Vec<Vec<u8>>,
    vars: Vec<i64>,
    /// Inside a parallel loop.
    parallel: bool,
}

impl Machine<'_> {
    fn statements(&mut self, body: &[Stmt]) -> Result<()> {
        for stmt in body {
            match stmt {
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    let bound = |b: &Bound| (self.affine(&b.affine), b.divisor);
                    let first = lower.iter().map(bound).map(|(a, d)| ceil_div(a, d)).max().unwrap_or(0);
                    let end = upper.iter().map(bound).map(|(a, d)| a.div_euclid(d)).min().unwrap_or(0);
                    let outermost = kind.is_parallel() && !self.parallel;
                    let mut value = first;
                    while value < end {
                        if outermost {
                            self.parallel = true;
                            self.locals.iter_mut().for_each(|l| l.fill(0xff));
                        }
                        self.vars[var.0 as usize] = value;
                        self.statements(body)?;
                        value += step;
                    }
                    self.parallel &= !outermost;
                }
                Stmt::Let { var, value, divisor } => {
                    self.vars[var.0 as usize] = self.affine(value).div_euclid(*divisor);
                }
                Stmt::Read { var, value, range, checked, recorded, .. } => {
                    let value = self.value(value)?.as_i64();
                    let inside = value.clamp(range.0, range.1);
                    if *checked && inside != value {
                        return Err(Error::Internal(format!("{value} lies outside of {}..={}", range.0, range.1)));
                    }
                    if let Some([least, greatest]) = *recorded
                        && inside != value
                    {
                        let (buffer, op) =
                            if value < range.0 { (least, BinaryOp::Min) } else { (greatest, BinaryOp::Max) };
                        let value = Value::from_i64(self.nest.buffer(buffer).dtype, value);
                        let value = scalar::accumulate(op, self.read(buffer, 0)?, value)?;
                        self.write(buffer, 0, value)?;
                    }
                    self.vars[var.0 as usize] = inside;
                }
                Stmt::If { conditions, body } => {
                    if conditions.iter().all(|c| self.affine(c) >= 0) {
                        self.statements(body)?;
                    }
                }
                Stmt::Store { buffer, index, value, reduce } => {
                    let mut value = self.value(value)?;
                    let offset = self.offset(*buffer, index)?;
                    if let Some(op) = reduce {
                        value = scalar::accumulate(*op, self.read(*buffer, offset)?, value)?;
                    }
                    self.write(*buffer, offset, value)?;
                }
            }
        }
        Ok(())
    }

    /// The element offset of `buffer[index]`.
    fn offset(&self, buffer: BufferId, index: &[Index]) -> Result<i64> {
        let b = self.nest.buffer(buffer);
        if index.len() != b.shape.len() {
            return Err(Error::Internal(format!("{}: {} subscripts for {:?}", b.name, index.len(), b.shape)));
        }
        let mut offset = 0;
        for (d, i) in index.iter().enumerate() {
            let i = self.subscript(i)?;
            if i < 0 || i >= b.shape[d] {
                let iterators: Vec<String> =
                    self.nest.vars.iter().zip(&self.vars).map(|(n, v)| format!("{n}={v}")).collect();
                return Err(Error::Internal(format!(
                    "{}: subscript {d} of {} is {i}, outside of 0..{} (at {})",
                    self.nest.name,
                    b.name,
                    b.shape[d],
                    iterators.join(" ")
                )));
            }
            offset += i * b.strides[d];
        }
        Ok(offset)
    }

    fn bytes(&self, buffer: BufferId, offset: i64) -> Result<std::ops::Range<usize>> {
        let b = self.nest.buffer(buffer);
        let size = b.dtype.bytes();
        let have = match b.kind {
            BufferKind::Local => self.locals[buffer.0 as usize].len(),
            BufferKind::Argument { slot, .. } => self.arguments.get(slot as usize).map_or(0, |t| t.data.len()),
        };
        let start = offset as usize * size;
        if start + size > have {
            return Err(Error::Internal(format!("{}: {} has no element {offset}", self.nest.name, b.name)));
        }
        Ok(start..start + size)
    }

    fn read(&self, buffer: BufferId, offset: i64) -> Result<Value> {
        let range = self.bytes(buffer, offset)?;
        let b = self.nest.buffer(buffer);
        let bytes = match b.kind {
            BufferKind::Local => &self.locals[buffer.0 as usize][range],
            BufferKind::Argument { slot, .. } => &self.arguments[slot as usize].data[range],
        };
        Ok(Value::load(b.dtype, bytes))
    }

    fn write(&mut self, buffer: BufferId, offset: i64, value: Value) -> Result<()> {
        let range = self.bytes(buffer, offset)?;
        let b = self.nest.buffer(buffer);
        if value.dtype() != b.dtype {
            return Err(Error::Internal(format!("{}: {} is stored to {}", self.nest.name, value.dtype(), b.name)));
        }
        let bytes = match b.kind {
            BufferKind::Local => &mut self.locals[buffer.0 as usize][range],
            BufferKind::Argument { slot, written: true } => &mut self.arguments[slot as usize].data[range],
            BufferKind::Argument { .. } => {
                return Err(Error::Internal(format!("{}: {} is only read", self.nest.name, b.name)));
            }
        };
        value.store(bytes);
        Ok(())
    }
}

impl Point for Machine<'_> {
    fn affine(&self, a: &Affine) -> i64 {
        a.evaluate(|v: Var| self.vars[v.0 as usize])
    }

    fn load(&self, access: &Access) -> Result<Value> {
        if access.guard.iter().all(|g| self.affine(g) >= 0) {
            return self.read(access.buffer, self.offset(access.buffer, &access.index)?);
        }
        let dtype = self.nest.buffer(access.buffer).dtype;
        match access.otherwise {
            Some(s) if s.dtype == dtype => Ok(Value::from(s)),
            _ => Err(Error::Internal(format!("{}: a guarded read has no {dtype} for outside", self.nest.name))),
        }
    }
}

/// Fails unless a nest, the one that a pass has made of it, and the latter simplified leave the same in all tensors.
#[cfg(test)]
#[track_caller]
pub fn assert_same_results(before: &LoopNest, after: &LoopNest, tensors: &[Tensor]) {
    let results = |nest: &LoopNest| {
        super::verify::verify(nest).unwrap_or_else(|e| panic!("{e}\n{nest}"));
        let mut all = tensors.to_vec();
        run(nest, &mut all).unwrap_or_else(|e| panic!("{e}\n{nest}"));
        all
    };
    let expected = results(before);
    for nest in [after.clone(), super::simplify::simplify(after)] {
        assert!(results(&nest) == expected, "{before}\n{nest}");
    }
}
