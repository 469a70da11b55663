//! The definition of tensor expressions and Scops: one instance after the other, one scalar at a time. The oracle that tests
//! compare with.
//!
//! Expressions are computed in their type with the operations of [`crate::expr::scalar`]. In a tensor expression, sums and
//! products of floats accumulate in f64 and are rounded once; a Scop stores each step of a reduction.

use crate::expr::scalar::{self, Point, Value};
use crate::expr::{Access, Affine, BinaryOp, Scalar};
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::statement::{Definition, Iterator, Program, Role, StatementId};
use crate::runtime::{DType, Error, Result, Tensor};

/// Evaluates `program`; the inputs are its tensors that are given, in order. Returns those of role `Output`.
///
/// # Errors
/// `Invalid` for inputs that are not those of the program, bodies of another type than their target, and subscripts outside
/// of a tensor.
pub fn evaluate(program: &Program, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let mut tensors: Vec<Tensor> = program.tensors.iter().map(|t| Tensor::zeros(t.dtype, &t.shape)).collect();
    let sources: Vec<usize> = (0..tensors.len()).filter(|&i| program.tensors[i].role.is_given()).collect();
    let fits = |(&i, t): (&usize, &&Tensor)| (t.dtype, &t.shape) == (tensors[i].dtype, &tensors[i].shape);
    if sources.len() != inputs.len() || !sources.iter().zip(inputs).all(fits) {
        return Err(Error::Invalid("the inputs are not those of the program".into()));
    }
    sources.into_iter().zip(inputs).for_each(|(i, input)| tensors[i] = (*input).clone());
    for d in &program.definitions {
        define(d, &mut tensors)?;
    }
    let outputs = tensors.into_iter().zip(&program.tensors).filter(|(_, t)| t.role == Role::Output);
    Ok(outputs.map(|(t, _)| t).collect())
}

fn define(d: &Definition, tensors: &mut [Tensor]) -> Result<()> {
    if d.is_scatter() {
        return scatter(d, tensors);
    }
    let dtype = tensors[d.target.0 as usize].dtype;
    let wide = dtype.is_float() && matches!(d.reduce, Some(BinaryOp::Add | BinaryOp::Mul));
    let sum_dtype = if wide { DType::F64 } else { dtype };
    for_each_point(&d.iterators[..d.outer], &mut |outer| {
        let mut total = d.reduce.map(|op| Scalar::neutral(op, sum_dtype)).transpose()?.map(Value::from);
        let mut point = outer.to_vec();
        for_each_point(&d.iterators[d.outer..], &mut |inner| {
            point.truncate(d.outer);
            point.extend(inner);
            let instance = Instance { point: &point, tensors };
            if d.conditions.iter().any(|c| instance.affine(c) < 0) {
                return Ok(());
            }
            let x = instance.value(&d.body)?;
            if x.dtype() != dtype {
                return Err(Error::Invalid(format!("a body of type {} for a target of {dtype}", x.dtype())));
            }
            total = Some(match (d.reduce, total) {
                (Some(op), Some(sum)) => {
                    scalar::accumulate(op, sum, if wide { scalar::cast(sum_dtype, x) } else { x })?
                }
                _ => x,
            });
            Ok(())
        })?;
        let Some(total) = total else { return Ok(()) };
        let offset = {
            let instance = Instance { point: outer, tensors };
            let target = &tensors[d.target.0 as usize];
            offset(target, d.write.iter().map(|w| Ok(instance.affine(w))))?
        };
        scalar::cast(dtype, total).store(&mut tensors[d.target.0 as usize].data[offset..offset + dtype.bytes()]);
        Ok(())
    })
}

/// Replaces or updates an element for each point, in their order.
fn scatter(d: &Definition, tensors: &mut [Tensor]) -> Result<()> {
    let subscripts = d.subscripts();
    for_each_point(&d.iterators, &mut |point| {
        let instance = Instance { point, tensors };
        if d.conditions.iter().all(|c| instance.affine(c) >= 0) {
            let x = instance.value(&d.body)?;
            let to = offset(&tensors[d.target.0 as usize], subscripts.iter().map(|i| instance.subscript(i)))?;
            update(&mut tensors[d.target.0 as usize], to, d.reduce, x)?;
        }
        Ok(())
    })
}

/// Stores a value to the element that begins at byte `to`, or what `reduce` makes of it and the value there.
fn update(t: &mut Tensor, to: usize, reduce: Option<BinaryOp>, mut x: Value) -> Result<()> {
    if x.dtype() != t.dtype {
        return Err(Error::Invalid(format!("a body of type {} for a target of {}", x.dtype(), t.dtype)));
    }
    let data = &mut t.data[to..to + t.dtype.bytes()];
    if let Some(op) = reduce {
        x = scalar::accumulate(op, Value::load(t.dtype, data), x)?;
    }
    x.store(data);
    Ok(())
}

/// Calls `f` on every point of a box, in lexicographic order.
fn for_each_point(iterators: &[Iterator], f: &mut dyn FnMut(&[i64]) -> Result<()>) -> Result<()> {
    if iterators.iter().any(|it| it.extent == 0) {
        return Ok(());
    }
    let mut point = vec![0; iterators.len()];
    'next: loop {
        f(&point)?;
        for (x, it) in point.iter_mut().zip(iterators).rev() {
            *x += 1;
            if *x < it.extent {
                continue 'next;
            }
            *x = 0;
        }
        return Ok(());
    }
}

/// Every instance of the statements with its time, sorted.
pub fn instances(scop: &Scop, schedule: &Schedule) -> Vec<(Vec<i64>, StatementId, Vec<i64>)> {
    let mut out = vec![];
    for id in scop.ids() {
        let s = scop.statement(id);
        let mut add = |point: &[i64]| {
            if s.domain.iter().all(|c| c.evaluate(|v| point[v.0 as usize]) >= 0) {
                out.push((schedule.time(id, point), id, point.to_vec()));
            }
            Ok(())
        };
        for_each_point(&s.iterators, &mut add).expect("points are only listed");
    }
    out.sort();
    out
}

/// Runs `scop` on `tensors`, one for each of its tensors; panics where an access leaves its tensor.
pub fn run(scop: &Scop, schedule: &Schedule, tensors: &mut [Tensor]) {
    for (_, id, point) in instances(scop, schedule) {
        let s = scop.statement(id);
        let instance = Instance { point: &point, tensors };
        let x = instance.value(&s.body).unwrap();
        let subscripts = s.subscripts();
        let values = subscripts.iter().map(|i| instance.subscript(i));
        let to = offset(&tensors[s.target.0 as usize], values).unwrap();
        update(&mut tensors[s.target.0 as usize], to, s.reduce, x).unwrap();
    }
}

/// The first byte of an element.
fn offset(t: &Tensor, index: impl std::iter::Iterator<Item = Result<i64>>) -> Result<usize> {
    let mut flat = 0;
    for (i, n) in index.zip(&t.shape) {
        let i = i?;
        if !(0..*n).contains(&i) {
            return Err(Error::Invalid(format!("the subscript {i} in a tensor of shape {:?}", t.shape)));
        }
        flat = flat * n + i;
    }
    Ok(flat as usize * t.dtype.bytes())
}

/// The values of iterators, and what tensors hold.
struct Instance<'a> {
    point: &'a [i64],
    tensors: &'a [Tensor],
}

impl Point for Instance<'_> {
    fn affine(&self, a: &Affine) -> i64 {
        a.evaluate(|v| self.point[v.0 as usize])
    }

    fn load(&self, access: &Access) -> Result<Value> {
        if access.guard.iter().any(|g| self.affine(g) < 0) {
            let missing = || Error::Invalid("a guarded read without a value outside".into());
            return access.otherwise.map(Value::from).ok_or_else(missing);
        }
        let t = &self.tensors[access.buffer.0 as usize];
        let offset = offset(t, access.index.iter().map(|i| self.subscript(i)))?;
        Ok(Value::load(t.dtype, &t.data[offset..offset + t.dtype.bytes()]))
    }
}

/// Runs a kernel on the external tensors of its Scop with the interpreter of nests.
#[cfg(test)]
pub fn run_kernel(scop: &Scop, kernel: &crate::poly::lower::Kernel, tensors: &mut [Tensor]) -> Result<()> {
    use crate::codegen::loopnest::interpret;
    use crate::poly::lower::state::Argument;
    let mut arguments: Vec<Tensor> = kernel
        .arguments
        .iter()
        .map(|a| match a {
            Argument::Tensor(b) => tensors[b.0 as usize].clone(),
            Argument::Packed(pack) => pack.apply(&tensors[pack.source.0 as usize]),
            Argument::Workspace { bytes } => {
                Tensor { dtype: DType::U8, shape: vec![*bytes as i64], data: vec![0xff; *bytes].into() }
            }
        })
        .collect();
    interpret::run(&kernel.nest, &mut arguments)?;
    for (a, t) in kernel.arguments.iter().zip(arguments) {
        if let Argument::Tensor(b) = a
            && scop.tensor(*b).role != Role::Input
        {
            tensors[b.0 as usize] = t;
        }
    }
    Ok(())
}
