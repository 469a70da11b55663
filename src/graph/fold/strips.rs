//! Tensor expressions on tensors, a strip of elements at a time.
//!
//! In: a [`Program`] and tensors. Out: the outputs, as `poly::reference` defines them. One iterator of each definition is
//! evaluated a strip of lanes at a time, the others one value after the other. Every subscript is checked in each
//! dimension; an access out of bounds is an error that names it.

use crate::codegen::loopnest::row_major;
use crate::expr::{Affine, Var};
use crate::expr::{Expr, Index};
use crate::graph::copy::{self, Loop};
use crate::graph::fold::lanes::{Code, LaneForm, Sums};
use crate::graph::tensor_type::TensorType;
use crate::poly::statement::{Definition, Program, Role, TensorDecl, ranges};
use crate::runtime::{Error, Result, Tensor};
use std::borrow::Cow;

/// Evaluates `program`; the inputs are its tensors of role `Input` or `Constant`, in order. Returns those of role `Output`.
pub fn evaluate(program: &Program, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    for t in &program.tensors {
        TensorType::new(t.dtype, &t.shape).check()?;
    }
    program.verify()?;
    let mut given = inputs.iter();
    let mut tensors: Vec<Cow<Tensor>> = vec![];
    for t in &program.tensors {
        tensors.push(match t.role {
            Role::Input | Role::Constant | Role::InOut => {
                let tensor = given.next().ok_or_else(|| Error::Invalid(format!("input {} is missing", t.name)))?;
                if tensor.dtype != t.dtype || tensor.shape != t.shape || tensor.data.len() != bytes(t) {
                    let (got, wanted) = (TensorType::of(tensor), TensorType::new(t.dtype, &t.shape));
                    return Err(Error::Invalid(format!("input {} is {got} instead of {wanted}", t.name)));
                }
                Cow::Borrowed(*tensor)
            }
            Role::Output | Role::Temporary | Role::Check => Cow::Owned(Tensor::zeros(t.dtype, &t.shape)),
        });
    }
    if given.next().is_some() {
        return Err(Error::Invalid("there are more inputs than the program has".into()));
    }
    for definition in &program.definitions {
        let id = definition.target.0 as usize;
        let mut target = std::mem::take(&mut tensors[id].to_mut().data);
        let result = define(program, definition, &tensors, &mut target);
        tensors[id].to_mut().data = target;
        result.map_err(|e| e.context(&format!("definition of {}", program.tensors[id].name)))?;
    }
    let outputs = tensors.into_iter().zip(&program.tensors).filter(|(_, t)| t.role == Role::Output);
    Ok(outputs.map(|(t, _)| t.into_owned()).collect())
}

fn bytes(t: &TensorDecl) -> usize {
    t.shape.iter().product::<i64>() as usize * t.dtype.bytes()
}

fn define(program: &Program, d: &Definition, tensors: &[Cow<Tensor>], target: &mut [u8]) -> Result<()> {
    if d.iterators[..d.outer].iter().any(|i| i.extent == 0) || copied(program, d, tensors, target) {
        return Ok(());
    }
    let decl = &program.tensors[d.target.0 as usize];
    let strip = strip_iterator(d);
    let extents: Vec<i64> = d.iterators.iter().map(|i| i.extent).collect();
    let mut code = Code::compile(&d.body, tensors, strip)?;
    if code.dtype() != decl.dtype {
        return Err(Error::Invalid(format!("a body of type {} for a target of {}", code.dtype(), decl.dtype)));
    }
    let conditions: Vec<LaneForm> = d.conditions.iter().map(|a| LaneForm::new(a, strip)).collect();
    let write: Vec<LaneForm> = d.write.iter().map(|a| LaneForm::new(a, strip)).collect();
    let step = row_major(&decl.shape);
    let store_at = |point: &[i64], lo: i64, hi: i64| -> Result<(i64, i64)> {
        let mut offset = (0, 0);
        for (k, p) in write.iter().enumerate() {
            let (base, stride) = (p.base(point), p.stride());
            for t in [lo, hi - 1] {
                if !(0..decl.shape[k]).contains(&(base + t * stride)) {
                    return Err(Error::Invalid(format!("write of {} in dimension {k}", base + t * stride)));
                }
            }
            offset = (offset.0 + base * step[k], offset.1 + stride * step[k]);
        }
        Ok(offset)
    };
    let mut outer = Odometer::new(&extents, (0..d.outer).filter(|&i| i != strip), (strip < d.outer).then_some(strip));
    let Some(op) = d.reduce else {
        return outer.try_for_each(|point, range| {
            let (lo, hi) = LaneForm::interval(&conditions, point, range);
            if lo < hi {
                let (offset, stride) = store_at(point, lo, hi)?;
                code.evaluate(tensors, point, lo, hi)?.store(target, offset + lo * stride, stride, decl.dtype);
            }
            Ok(())
        });
    };
    let all_lanes = strip < d.outer;
    let mut inner = if all_lanes {
        Odometer::new(&extents, d.outer..extents.len(), None)
    } else {
        let strip = (strip < extents.len()).then_some(strip);
        Odometer::new(&extents, (d.outer..extents.len()).filter(|&i| Some(i) != strip), strip)
    };
    let mut sums = Sums::new(op, decl.dtype)?;
    let mut point = vec![0; extents.len()];
    outer.try_for_each(|fixed, range| {
        sums.restart(if all_lanes { (range.1 - range.0) as usize } else { 1 });
        point.copy_from_slice(fixed);
        inner.restart();
        inner.try_for_each(|reduced, piece| {
            point[d.outer..].copy_from_slice(&reduced[d.outer..]);
            let (lo, hi) = LaneForm::interval(&conditions, &point, if all_lanes { range } else { piece });
            if lo < hi {
                let values = code.evaluate(tensors, &point, lo, hi)?;
                sums.combine(values, all_lanes.then_some((lo - range.0) as usize));
            }
            Ok(())
        })?;
        let (lo, hi) = if all_lanes { range } else { (0, 1) };
        let (offset, stride) = store_at(fixed, lo, hi)?;
        sums.finish().store(target, offset + lo * stride, stride, decl.dtype);
        Ok(())
    })
}

/// The iterator that lanes run over: the last long outer one, else the longest of all.
fn strip_iterator(d: &Definition) -> usize {
    let longest = |r: std::ops::Range<usize>| r.max_by_key(|&i| (d.iterators[i].extent, i));
    match (longest(0..d.outer), longest(d.outer..d.iterators.len())) {
        (None, None) => usize::MAX,
        (Some(o), Some(r)) if d.iterators[o].extent < 16.min(d.iterators[r].extent) => r,
        (Some(o), _) => {
            let last = d.outer - 1;
            if d.iterators[last].extent >= 32 { last } else { o }
        }
        (None, Some(r)) => r,
    }
}

/// Performs `d` as a strided copy if it is one.
fn copied(program: &Program, d: &Definition, tensors: &[Cow<Tensor>], target: &mut [u8]) -> bool {
    let Expr::Load(access) = &d.body else { return false };
    if d.reduce.is_some() || !d.conditions.is_empty() || !access.guard.is_empty() {
        return false;
    }
    let source = &tensors[access.buffer.0 as usize];
    let decl = &program.tensors[d.target.0 as usize];
    let read: Option<Vec<&Affine>> = access.index.iter().map(Index::affine).collect();
    let Some(read) = read else { return false };
    let last = ranges(&d.iterators);
    let fits = |a: &Affine, extent: i64| {
        let (low, high) = a.bounds(last);
        low >= 0 && high < extent
    };
    if source.dtype != decl.dtype
        || !read.iter().zip(&source.shape).all(|(a, &e)| fits(a, e))
        || !d.write.iter().zip(&decl.shape).all(|(a, &e)| fits(a, e))
    {
        return false;
    }
    let linear = |index: &mut dyn std::iter::Iterator<Item = &Affine>, shape: &[i64]| {
        index.zip(row_major(shape)).fold(Affine::constant(0), |sum, (a, s)| sum.add_scaled(a, s))
    };
    let from = linear(&mut read.into_iter(), &source.shape);
    let to = linear(&mut d.write.iter(), &decl.shape);
    let loops: Vec<Loop> = (0..d.iterators.len())
        .map(|i| {
            let v = Var(i as u32);
            let extent = d.iterators[i].extent as usize;
            Loop { extent, from: from.coefficient(v) as isize, to: to.coefficient(v) as isize }
        })
        .collect();
    copy::copy(decl.dtype.bytes(), &source.data, from.constant as usize, target, to.constant as usize, &loops);
    true
}

/// Longest strip.
const STRIP: i64 = 1024;

/// Counts through some iterators and, last, through pieces of the strip iterator.
struct Odometer {
    values: Vec<i64>,
    loops: Vec<(usize, i64)>,
    strip: Option<i64>,
}

impl Odometer {
    fn new(extents: &[i64], loops: impl std::iter::Iterator<Item = usize>, strip: Option<usize>) -> Odometer {
        let loops = loops.map(|i| (i, extents[i])).collect();
        Odometer { values: vec![0; extents.len()], loops, strip: strip.map(|s| extents[s]) }
    }

    fn restart(&mut self) {
        self.values.fill(0);
    }

    /// Calls `f` with the values of the iterators (0 for the strip's) and the piece of the strip, `0..1` without one.
    fn try_for_each(&mut self, mut f: impl FnMut(&[i64], (i64, i64)) -> Result<()>) -> Result<()> {
        if self.loops.iter().any(|l| l.1 == 0) {
            return Ok(());
        }
        let extent = self.strip.unwrap_or(1);
        loop {
            let mut lo = 0;
            while lo < extent {
                let hi = (lo + STRIP).min(extent);
                f(&self.values, (lo, hi))?;
                lo = hi;
            }
            let mut d = self.loops.len();
            loop {
                if d == 0 {
                    return Ok(());
                }
                d -= 1;
                let (i, extent) = self.loops[d];
                self.values[i] += 1;
                if self.values[i] < extent {
                    break;
                }
                self.values[i] = 0;
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
