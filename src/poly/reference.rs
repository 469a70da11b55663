//! Reference interpreter of Scops: runs instances one by one in the order of a schedule. The oracle of this folder's
//! tests.

use crate::codegen::loopnest::interpret;
use crate::expr::Affine;
use crate::expr::scalar;
use crate::expr::scalar::{Point, Value};
use crate::expr::{Access, Expr};
use crate::poly::lower::Kernel;
use crate::poly::lower::state::Argument;
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId};
use crate::runtime::{DType, Result, Tensor};

/// Every instance of the statements with its time, sorted.
pub fn instances(scop: &Scop, schedule: &Schedule) -> Vec<(Vec<i64>, StatementId, Vec<i64>)> {
    let mut out = vec![];
    for id in scop.ids() {
        let s = scop.statement(id);
        let mut point = vec![0; s.iterators.len()];
        'next: loop {
            if s.domain.iter().all(|c| c.evaluate(|v| point[v.0 as usize]) >= 0) {
                out.push((schedule.time(id, &point), id, point.clone()));
            }
            for (x, it) in point.iter_mut().zip(&s.iterators).rev() {
                *x += 1;
                if *x < it.extent {
                    continue 'next;
                }
                *x = 0;
            }
            break;
        }
    }
    out.sort();
    out
}

/// Runs `scop` on `tensors`, one for each of its tensors.
pub fn run(scop: &Scop, schedule: &Schedule, tensors: &mut [Tensor]) {
    for (_, id, point) in instances(scop, schedule) {
        let s = scop.statement(id);
        let mut x = value(&s.body, &point, tensors);
        let index: Vec<i64> = s.write.iter().map(|w| w.evaluate(|v| point[v.0 as usize])).collect();
        let t = &mut tensors[s.target.0 as usize];
        let (dtype, at) = (t.dtype, offset(t, &index));
        let data = &mut t.data[at..at + dtype.bytes()];
        if let Some(op) = s.reduce {
            x = scalar::accumulate(op, Value::load(dtype, data), x).unwrap();
        }
        x.store(data);
    }
}

/// The first byte of an element; panics outside of the tensor.
pub fn offset(t: &Tensor, index: &[i64]) -> usize {
    let flat = index.iter().zip(&t.shape).fold(0, |o, (i, n)| {
        assert!((0..*n).contains(i), "{index:?} in {:?}", t.shape);
        o * n + i
    });
    flat as usize * t.dtype.bytes()
}

/// An expression at one point of its iterators.
pub fn value(e: &Expr, at: &[i64], tensors: &[Tensor]) -> Value {
    Instance { at, tensors }.value(e).unwrap()
}

/// The values of iterators, and what tensors hold.
struct Instance<'a> {
    at: &'a [i64],
    tensors: &'a [Tensor],
}

impl Point for Instance<'_> {
    fn affine(&self, a: &Affine) -> i64 {
        a.evaluate(|v| self.at[v.0 as usize])
    }

    fn load(&self, access: &Access) -> Result<Value> {
        if access.guard.iter().any(|g| self.affine(g) < 0) {
            return Ok(Value::from(access.otherwise.expect("a value outside")));
        }
        let t = &self.tensors[access.buffer.0 as usize];
        let index = access.index.iter().map(|i| self.subscript(i)).collect::<Result<Vec<i64>>>()?;
        Ok(Value::load(t.dtype, &t.data[offset(t, &index)..][..t.dtype.bytes()]))
    }
}

/// Runs a kernel on the external tensors of its Scop with the interpreter of nests.
pub fn run_kernel(scop: &Scop, kernel: &Kernel, tensors: &mut [Tensor]) -> Result<()> {
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
