//! The reference interpreter: evaluates tensor expressions, and graphs through them. The oracle of every test.
//!
//! Sums of f32 are accumulated in f64 and rounded once at the end. Subscripts that an interval argument does not prove to
//! lie in their tensor are checked for every element.

use crate::graph::define::define;
use crate::graph::expr::{Access, Affine, BinaryOp, Expr, Index, Scalar, Var};
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Source, TensorType, ValueId};
use crate::graph::op::Op;
use crate::graph::scop::{Definition, Program, Role};
use crate::graph::{DType, Error, Result, Tensor, opaque, scalar};
use scalar::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The outputs of `program` for `inputs`: the tensors that are inputs or constants, in order.
pub fn evaluate(program: &Program, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let mut given = inputs.iter();
    let mut tensors: Vec<Cow<Tensor>> = vec![];
    for decl in &program.tensors {
        tensors.push(match decl.role {
            Role::Input | Role::Constant => {
                let t = given.next().ok_or_else(|| Error::Invalid(format!("nothing is given for {}", decl.name)))?;
                if t.dtype != decl.dtype || t.len() as i64 != decl.shape.iter().product::<i64>() {
                    return Err(Error::Invalid(format!(
                        "{} is {}{:?}, not {}{:?}",
                        decl.name, decl.dtype, decl.shape, t.dtype, t.shape
                    )));
                }
                Cow::Borrowed(*t)
            }
            Role::Output | Role::Temporary => Cow::Owned(Tensor::zeros(decl.dtype, &decl.shape)),
        });
    }
    for definition in &program.definitions {
        let target = definition.target.0 as usize;
        let mut out = std::mem::replace(&mut tensors[target], Cow::Owned(Tensor::zeros(DType::U8, &[0]))).into_owned();
        define_tensor(program, definition, &tensors, &mut out)?;
        tensors[target] = Cow::Owned(out);
    }
    let outputs = program.tensors.iter().zip(tensors).filter(|(d, _)| d.role == Role::Output);
    Ok(outputs.map(|(_, t)| t.into_owned()).collect())
}

/// The outputs of a graph, in its order.
pub fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if inputs.len() != graph.inputs.len() {
        return Err(Error::Invalid(format!("{} inputs are given, {} expected", inputs.len(), graph.inputs.len())));
    }
    let mut values: HashMap<ValueId, Arc<Tensor>> = HashMap::new();
    for (i, value) in graph.values.iter().enumerate() {
        if let Source::Constant(t) = &value.source {
            values.insert(ValueId(i as u32), t.clone());
        }
    }
    for (id, tensor) in graph.inputs.iter().zip(inputs) {
        values.insert(*id, Arc::new(tensor.clone()));
    }
    for node in &graph.nodes {
        let operands: Vec<&Tensor> = node
            .inputs
            .iter()
            .map(|i| values.get(i).map(|t| &**t))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Internal(format!("{} reads a value before it is defined", node.name)))?;
        let results = apply(&node.op, &operands)?;
        for (id, tensor) in node.outputs.iter().zip(results) {
            values.insert(*id, Arc::new(tensor));
        }
    }
    let output = |id| values.get(id).ok_or_else(|| Error::Internal("an output is not defined".into()));
    graph.outputs.iter().map(|id| output(id).map(|t| (**t).clone())).collect()
}

/// The results of one operator.
pub fn apply(op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    if let Op::Opaque { function, attributes } = op {
        let types = operand_types(inputs);
        let outputs = infer(op, &types.iter().collect::<Vec<_>>())?;
        let outputs: Vec<_> = outputs.into_iter().map(|t| (t.dtype, t.shape)).collect();
        return opaque::apply(function, attributes, inputs, &outputs);
    }
    if let Op::Reshape { shape } = op {
        return Ok(vec![Tensor { dtype: inputs[0].dtype, shape: shape.clone(), data: inputs[0].data.clone() }]);
    }
    evaluate(&define(op, &operand_types(inputs))?, inputs)
}

fn operand_types(inputs: &[&Tensor]) -> Vec<TensorType> {
    inputs.iter().map(|t| TensorType { dtype: t.dtype, shape: t.shape.clone() }).collect()
}

/// `offset + Σ stride·iterator` elements, when every subscript is affine and in bounds for the whole box.
struct Linear {
    offset: i64,
    strides: Vec<i64>,
}

struct Evaluation<'a> {
    program: &'a Program,
    tensors: &'a [Cow<'a, Tensor>],
    iterators: Vec<i64>,
    /// Of each access in the body, by address.
    linear: HashMap<*const Access, Linear>,
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The linear form of affine subscripts over the box of the iterators; `None` where a subscript may leave its dimension.
fn linear(index: &[&Affine], shape: &[i64], extents: &[i64]) -> Option<Linear> {
    let mut out = Linear { offset: 0, strides: vec![0; extents.len()] };
    for ((a, d), stride) in index.iter().zip(shape).zip(row_major(shape)) {
        let (low, high) = a.bounds(|v: Var| (0, extents[v.0 as usize] - 1));
        if low < 0 || high >= *d {
            return None;
        }
        out.offset += a.constant * stride;
        for (v, c) in &a.terms {
            out.strides[v.0 as usize] += c * stride;
        }
    }
    Some(out)
}

fn define_tensor(program: &Program, d: &Definition, tensors: &[Cow<Tensor>], out: &mut Tensor) -> Result<()> {
    let extents: Vec<i64> = d.iterators.iter().map(|i| i.extent).collect();
    if extents[..d.outer].contains(&0) {
        return Ok(());
    }
    let shape = &program.tensors[d.target.0 as usize].shape;
    let write: Vec<&Affine> = d.write.iter().collect();
    let place = linear(&write, shape, &extents)
        .ok_or_else(|| Error::Internal("a definition writes outside of its tensor".into()))?;
    if copy(program, d, &extents, &place, tensors, out) {
        return Ok(());
    }
    let mut e = Evaluation { program, tensors, iterators: vec![0; extents.len()], linear: HashMap::new() };
    d.body.visit_accesses(&mut |access| {
        let affine: Option<Vec<&Affine>> = access.index.iter().map(Index::affine).collect();
        let shape = &program.tensors[access.buffer.0 as usize].shape;
        let form = affine.filter(|_| access.guard.is_empty()).and_then(|a| linear(&a, shape, &extents));
        if let Some(form) = form {
            e.linear.insert(access, form);
        }
    });
    let dtype = out.dtype;
    let size = dtype.bytes();
    let wide = dtype == DType::F32 && d.reduce == Some(BinaryOp::Add);
    loop {
        let value = match d.reduce {
            None => e.value(&d.body)?,
            Some(op) => e.reduce(d, op, dtype, wide, &extents)?,
        };
        if value.dtype() != dtype {
            return Err(Error::Internal(format!("a body of {} defines a tensor of {dtype}", value.dtype())));
        }
        let at = e.at(&place) as usize * size;
        value.store(&mut out.data[at..at + size]);
        if !step(&mut e.iterators[..d.outer], &extents) {
            return Ok(());
        }
    }
}

/// The next point of the box, the last iterator fastest; false at the end, where all are 0 again.
fn step(iterators: &mut [i64], extents: &[i64]) -> bool {
    for (i, extent) in iterators.iter_mut().zip(extents).rev() {
        *i += 1;
        if *i < *extent {
            return true;
        }
        *i = 0;
    }
    false
}

/// A definition that only moves data runs at the speed of memory: rows of one stride each. False for any other.
fn copy(
    program: &Program,
    d: &Definition,
    extents: &[i64],
    place: &Linear,
    tensors: &[Cow<Tensor>],
    out: &mut Tensor,
) -> bool {
    let Expr::Load(access) = &d.body else { return false };
    let shape = &program.tensors[access.buffer.0 as usize].shape;
    let affine: Option<Vec<&Affine>> = access.index.iter().map(Index::affine).collect();
    let plain = d.reduce.is_none() && d.conditions.is_empty() && access.guard.is_empty();
    let Some(from) = affine.filter(|_| plain).and_then(|a| linear(&a, shape, extents)) else { return false };
    let source = &tensors[access.buffer.0 as usize];
    if source.dtype != out.dtype || d.outer != extents.len() {
        return false;
    }
    let size = out.dtype.bytes() as i64;
    let (count, by, to) = match extents.last() {
        None => (1, 0, 0),
        Some(&n) => (n, from.strides[extents.len() - 1], place.strides[extents.len() - 1]),
    };
    let mut outer = vec![0; extents.len().saturating_sub(1)];
    loop {
        let start = |l: &Linear| l.offset + outer.iter().zip(&l.strides).map(|(i, s): (&i64, &i64)| i * s).sum::<i64>();
        let (mut a, mut b) = (start(&from), start(place));
        if by == 1 && to == 1 {
            let (a, b, n) = ((a * size) as usize, (b * size) as usize, (count * size) as usize);
            out.data[b..b + n].copy_from_slice(&source.data[a..a + n]);
        } else {
            for _ in 0..count {
                let (x, y, n) = ((a * size) as usize, (b * size) as usize, size as usize);
                out.data[y..y + n].copy_from_slice(&source.data[x..x + n]);
                a += by;
                b += to;
            }
        }
        if !step(&mut outer, extents) {
            return true;
        }
    }
}

impl Evaluation<'_> {
    fn at(&self, form: &Linear) -> i64 {
        form.offset + self.iterators.iter().zip(&form.strides).map(|(i, s)| i * s).sum::<i64>()
    }

    fn affine(&self, a: &Affine) -> i64 {
        a.evaluate(|v: Var| self.iterators[v.0 as usize])
    }

    fn reduce(&mut self, d: &Definition, op: BinaryOp, dtype: DType, wide: bool, extents: &[i64]) -> Result<Value> {
        let mut sum = 0f64;
        let mut acc = Value::from(Scalar::neutral(op, dtype)?);
        if extents[d.outer..].contains(&0) {
            return Ok(acc);
        }
        loop {
            if d.conditions.iter().all(|c| self.affine(c) >= 0) {
                let value = self.value(&d.body)?;
                if wide {
                    sum += value.as_f64();
                } else {
                    acc = scalar::binary(op, acc, value)?;
                }
            }
            if !step(&mut self.iterators[d.outer..], &extents[d.outer..]) {
                return Ok(if wide { Value::F32(sum as f32) } else { acc });
            }
        }
    }

    fn load(&self, access: &Access) -> Result<Value> {
        let tensor = &self.tensors[access.buffer.0 as usize];
        let size = tensor.dtype.bytes();
        if let Some(form) = self.linear.get(&(access as *const Access)) {
            let at = self.at(form) as usize * size;
            return Ok(Value::load(tensor.dtype, &tensor.data[at..at + size]));
        }
        let decl = &self.program.tensors[access.buffer.0 as usize];
        if access.guard.iter().any(|g| self.affine(g) < 0) {
            return access
                .otherwise
                .map(Value::from)
                .ok_or_else(|| Error::Internal(format!("a guarded read of {} has no value for outside", decl.name)));
        }
        let mut offset = 0;
        for ((index, &d), stride) in access.index.iter().zip(&decl.shape).zip(row_major(&decl.shape)) {
            let i = match index {
                Index::Affine(a) => self.affine(a),
                Index::Value(e) => self.value(e)?.as_i64(),
            };
            if i < 0 || i >= d {
                return Err(Error::Invalid(format!("index {i} is outside of a dimension of {d} of {}", decl.name)));
            }
            offset += i * stride;
        }
        let at = offset as usize * size;
        Ok(Value::load(tensor.dtype, &tensor.data[at..at + size]))
    }

    fn value(&self, e: &Expr) -> Result<Value> {
        Ok(match e {
            Expr::Const(s) => Value::from(*s),
            Expr::Index(a) => Value::I64(self.affine(a)),
            Expr::Load(access) => self.load(access)?,
            Expr::Unary(op, a) => scalar::unary(*op, self.value(a)?)?,
            Expr::Binary(op, a, b) => scalar::binary(*op, self.value(a)?, self.value(b)?)?,
            Expr::Compare(op, a, b) => scalar::compare(*op, self.value(a)?, self.value(b)?)?,
            Expr::Select(c, a, b) if self.value(c)?.is_true() => self.value(a)?,
            Expr::Select(_, _, b) => self.value(b)?,
            Expr::Cast(to, a) => scalar::cast(*to, self.value(a)?),
        })
    }
}
