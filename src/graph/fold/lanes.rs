//! Strips of lanes: an expression compiled to a list of operations, each of which runs over a whole strip.

use crate::codegen::loopnest::row_major;
use crate::expr::Affine;
use crate::expr::scalar::number::Number;
use crate::expr::scalar::{Value, bitcast, cast};
use crate::expr::{Access, BinaryOp, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::graph::fold::elements::{Lanes, with, with_all, with_both};
use crate::runtime::{DType, Error, Result, Tensor};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// An affine form: its value at lane 0, and its distance from lane to lane.
pub(super) struct LaneForm {
    terms: Vec<(usize, i64)>,
    constant: i64,
    stride: i64,
}

impl LaneForm {
    pub(super) fn new(a: &Affine, strip: usize) -> LaneForm {
        let terms = a.terms.iter().map(|&(v, c)| (v.0 as usize, c));
        let stride = terms.clone().find(|t| t.0 == strip).map_or(0, |t| t.1);
        LaneForm { terms: terms.filter(|t| t.0 != strip).collect(), constant: a.constant, stride }
    }

    /// The value at lane 0; `point` holds the other iterators.
    pub(super) fn base(&self, point: &[i64]) -> i64 {
        self.terms.iter().fold(self.constant, |sum, &(i, c)| sum + c * point[i])
    }

    pub(super) fn stride(&self) -> i64 {
        self.stride
    }

    /// The lanes of `range` in which all forms are at least 0.
    pub(super) fn interval(forms: &[LaneForm], point: &[i64], range: (i64, i64)) -> (i64, i64) {
        forms.iter().fold(range, |(lo, hi), form| {
            let base = form.base(point);
            match form.stride {
                0 if base < 0 => (lo, lo),
                0 => (lo, hi),
                s if s > 0 => (lo.max(-base.div_euclid(s)), hi),
                s => (lo, hi.min(base.div_euclid(-s) + 1)),
            }
        })
    }
}

/// One operation; operands are earlier operations.
enum Kind {
    Const(Value),
    Index(LaneForm),
    Load(Load),
    Unary(UnaryOp, usize),
    Binary(BinaryOp, usize, usize),
    Compare(CompareOp, usize, usize),
    Select(usize, usize, usize),
    Cast(usize),
    Bitcast(usize),
}

struct Load {
    buffer: usize,
    index: Vec<Subscript>,
    guard: Vec<LaneForm>,
    otherwise: Option<Value>,
}

enum Subscript {
    Affine(LaneForm),
    Value(usize),
}

/// An expression as a list of operations without repetitions; the last one is its value.
pub(super) struct Code {
    strip: usize,
    operations: Vec<(Kind, DType)>,
    lanes: Vec<Lanes>,
}

fn mismatch<T>(what: &str, a: DType, b: DType) -> Result<T> {
    Err(Error::Invalid(format!("{what} of {a} and {b}")))
}

fn undefined<T>(what: &str, a: DType) -> Result<T> {
    Err(Error::Invalid(format!("{what} is not defined for {a}")))
}

impl Code {
    /// Compiles `body`, with lanes over iterator `strip`. Checks every type.
    pub(super) fn compile(body: &Expr, tensors: &[Cow<Tensor>], strip: usize) -> Result<Code> {
        let mut code = Code { strip, operations: vec![], lanes: vec![] };
        code.add(body, tensors, &mut FxHashMap::default())?;
        Ok(code)
    }

    pub(super) fn dtype(&self) -> DType {
        self.operations[self.operations.len() - 1].1
    }

    fn load<'a>(
        &mut self,
        access: &'a Access,
        tensors: &[Cow<Tensor>],
        known: &mut FxHashMap<&'a Expr, usize>,
    ) -> Result<(Kind, DType)> {
        let buffer = access.buffer.0 as usize;
        let dtype = tensors[buffer].dtype;
        let mut index = vec![];
        for i in &access.index {
            index.push(match i {
                Index::Affine(a) => Subscript::Affine(LaneForm::new(a, self.strip)),
                Index::Value(v) => {
                    let id = self.add(v, tensors, known)?;
                    if self.operations[id].1.is_float() {
                        return undefined("a subscript", self.operations[id].1);
                    }
                    Subscript::Value(id)
                }
            });
        }
        let otherwise = access.otherwise.map(Value::from);
        if let Some(o) = access.otherwise.filter(|o| o.dtype != dtype) {
            return mismatch("a guarded read", dtype, o.dtype);
        }
        let guard = access.guard.iter().map(|a| LaneForm::new(a, self.strip)).collect();
        Ok((Kind::Load(Load { buffer, index, guard, otherwise }), dtype))
    }

    fn add<'a>(
        &mut self,
        e: &'a Expr,
        tensors: &[Cow<Tensor>],
        known: &mut FxHashMap<&'a Expr, usize>,
    ) -> Result<usize> {
        if let Some(&id) = known.get(e) {
            return Ok(id);
        }
        let of = |code: &Code, id: usize| code.operations[id].1;
        let (kind, dtype) = match e {
            Expr::Const(s) => (Kind::Const(Value::from(*s)), s.dtype),
            Expr::Index(a) => (Kind::Index(LaneForm::new(a, self.strip)), DType::I64),
            Expr::Load(access) => self.load(access, tensors, known)?,
            Expr::Unary(op, a) => {
                let a = self.add(a, tensors, known)?;
                let dtype = of(self, a);
                if !with!(Lanes::of(dtype), v => unary_exists(*op, &v)) {
                    return undefined(op.name(), dtype);
                }
                (Kind::Unary(*op, a), dtype)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.add(a, tensors, known)?, self.add(b, tensors, known)?);
                let dtype = of(self, a);
                if dtype != of(self, b) {
                    return mismatch(op.name(), dtype, of(self, b));
                }
                if !with!(Lanes::of(dtype), v => binary_exists(*op, &v)) {
                    return undefined(op.name(), dtype);
                }
                (Kind::Binary(*op, a, b), dtype)
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.add(a, tensors, known)?, self.add(b, tensors, known)?);
                if of(self, a) != of(self, b) {
                    return mismatch(op.name(), of(self, a), of(self, b));
                }
                (Kind::Compare(*op, a, b), DType::Bool)
            }
            Expr::Select(c, a, b) => {
                let c = self.add(c, tensors, known)?;
                let (a, b) = (self.add(a, tensors, known)?, self.add(b, tensors, known)?);
                if of(self, c) != DType::Bool {
                    return undefined("a selection", of(self, c));
                }
                if of(self, a) != of(self, b) {
                    return mismatch("a selection", of(self, a), of(self, b));
                }
                (Kind::Select(c, a, b), of(self, a))
            }
            Expr::Cast(to, a) => (Kind::Cast(self.add(a, tensors, known)?), *to),
            Expr::Bitcast(to, a) => {
                let a = self.add(a, tensors, known)?;
                if of(self, a).bytes() != to.bytes() {
                    return mismatch("a view of bits", of(self, a), *to);
                }
                (Kind::Bitcast(a), *to)
            }
        };
        let id = self.operations.len();
        self.operations.push((kind, dtype));
        self.lanes.push(Lanes::of(dtype));
        known.insert(e, id);
        Ok(id)
    }

    /// The values of lanes `lo..hi`, with the other iterators at `point`.
    pub(super) fn evaluate(&mut self, tensors: &[Cow<Tensor>], point: &[i64], lo: i64, hi: i64) -> Result<&Lanes> {
        let len = (hi - lo) as usize;
        for (id, (kind, dtype)) in self.operations.iter().enumerate() {
            let (done, rest) = self.lanes.split_at_mut(id);
            let out = &mut rest[0];
            match kind {
                Kind::Const(value) => out.fill(len, *value),
                Kind::Index(place) => {
                    let (base, stride) = (place.base(point), place.stride);
                    if let Lanes::I64(v) = out {
                        v.clear();
                        v.extend((lo..hi).map(|t| base + t * stride));
                    }
                }
                Kind::Load(load) => load.evaluate(tensors, done, point, lo, hi, out)?,
                Kind::Unary(op, a) => {
                    with_both!(&done[*a], &mut *out, (a, o) => unary(*op, a, o));
                    out.round(*dtype);
                }
                Kind::Binary(op, a, b) => {
                    with_all!(&done[*a], &done[*b], &mut *out, (a, b, o) => binary(*op, a, b, o));
                    out.round(*dtype);
                }
                Kind::Compare(op, a, b) => {
                    let Lanes::Bool(out) = out else { unreachable!("comparisons are bool") };
                    with_both!(&done[*a], &done[*b], (a, b) => compare(*op, a, b, out));
                }
                Kind::Select(c, a, b) => {
                    let Lanes::Bool(c) = &done[*c] else { unreachable!("conditions are bool") };
                    out.clear();
                    with_all!(&done[*a], &done[*b], out, (a, b, o) => select(c, a, b, o));
                }
                Kind::Cast(a) => {
                    out.clear();
                    for i in 0..len {
                        out.fill(i + 1, cast(*dtype, done[*a].value(i)));
                    }
                }
                Kind::Bitcast(a) => {
                    let from = self.operations[*a].1;
                    out.clear();
                    for i in 0..len {
                        out.fill(i + 1, bitcast(*dtype, done[*a].value(i).held_as(from)));
                    }
                }
            }
        }
        Ok(&self.lanes[self.lanes.len() - 1])
    }
}

impl Load {
    fn evaluate(
        &self,
        tensors: &[Cow<Tensor>],
        done: &[Lanes],
        point: &[i64],
        lo: i64,
        hi: i64,
        out: &mut Lanes,
    ) -> Result<()> {
        let tensor = &tensors[self.buffer];
        out.clear();
        let (first, end) = LaneForm::interval(&self.guard, point, (lo, hi));
        let outside = |out: &mut Lanes, len: i64| match self.otherwise {
            _ if out.len() == len as usize => Ok(()),
            Some(value) => {
                out.fill(len as usize, value);
                Ok(())
            }
            None => Err(Error::Invalid("a guarded read does not say its value outside".into())),
        };
        if first >= end {
            return outside(out, hi - lo);
        }
        outside(out, first - lo)?;
        let beyond = |value: i64, d: usize| {
            Err(Error::Invalid(format!(
                "subscript {value} in dimension {d} of extent {} of tensor {}",
                tensor.shape[d], self.buffer
            )))
        };
        let (mut base, mut stride) = (0, 0);
        let step = row_major(&tensor.shape);
        for (d, subscript) in self.index.iter().enumerate() {
            let Subscript::Affine(place) = subscript else { continue };
            let start = place.base(point);
            for t in [first, end - 1] {
                let value = start + t * place.stride;
                if !(0..tensor.shape[d]).contains(&value) {
                    return beyond(value, d);
                }
            }
            base += start * step[d];
            stride += place.stride * step[d];
        }
        if self.index.iter().all(|s| matches!(s, Subscript::Affine(_))) {
            out.load(tensor.dtype, &tensor.data, base + first * stride, stride, (end - first) as usize);
        } else {
            for t in first..end {
                let mut offset = base + t * stride;
                for (d, subscript) in self.index.iter().enumerate() {
                    if let Subscript::Value(id) = subscript {
                        let value = done[*id].value((t - lo) as usize).as_i64();
                        if !(0..tensor.shape[d]).contains(&value) {
                            return beyond(value, d);
                        }
                        offset += value * step[d];
                    }
                }
                out.load(tensor.dtype, &tensor.data, offset, 0, 1);
            }
        }
        outside(out, hi - lo)
    }
}

fn unary_exists<T: Number>(op: UnaryOp, _: &[T]) -> bool {
    T::unary(op, T::ZERO).is_some()
}

fn binary_exists<T: Number>(op: BinaryOp, _: &[T]) -> bool {
    T::binary(op, T::ZERO, T::ZERO).is_some()
}

fn unary<T: Number>(op: UnaryOp, a: &[T], out: &mut Vec<T>) {
    out.clear();
    out.extend(a.iter().map(|&x| T::unary(op, x).unwrap_or(T::ZERO)));
}

/// The common operations get loops of their own, in which `op` is a constant.
fn binary<T: Number>(op: BinaryOp, a: &[T], b: &[T], out: &mut Vec<T>) {
    macro_rules! run {
        ($op:expr) => {
            out.extend(a.iter().zip(b).map(|(&x, &y)| T::binary($op, x, y).unwrap_or(T::ZERO)))
        };
    }
    out.clear();
    match op {
        BinaryOp::Add => run!(BinaryOp::Add),
        BinaryOp::Sub => run!(BinaryOp::Sub),
        BinaryOp::Mul => run!(BinaryOp::Mul),
        BinaryOp::Min => run!(BinaryOp::Min),
        BinaryOp::Max => run!(BinaryOp::Max),
        _ => run!(op),
    }
}

fn compare<T: Number>(op: CompareOp, a: &[T], b: &[T], out: &mut Vec<bool>) {
    out.clear();
    out.extend(a.iter().zip(b).map(|(x, y)| op.holds(x, y)));
}

fn select<T: Copy>(c: &[bool], a: &[T], b: &[T], out: &mut Vec<T>) {
    out.extend(c.iter().zip(a).zip(b).map(|((&c, &x), &y)| if c { x } else { y }));
}

/// The accumulators of a reduction, one for each lane or one for all.
pub(super) struct Sums {
    op: BinaryOp,
    neutral: Value,
    /// In f64 for sums and products of floats.
    lanes: Lanes,
    result: Lanes,
    dtype: DType,
}

impl Sums {
    pub(super) fn new(op: BinaryOp, dtype: DType) -> Result<Sums> {
        let wide = dtype.is_float() && matches!(op, BinaryOp::Add | BinaryOp::Mul);
        let own = if wide { DType::F64 } else { dtype };
        let neutral = Value::from(Scalar::neutral(op, own)?);
        Ok(Sums { op, neutral, lanes: Lanes::of(own), result: Lanes::of(dtype), dtype })
    }

    pub(super) fn restart(&mut self, count: usize) {
        self.lanes.clear();
        self.lanes.fill(count, self.neutral);
    }

    /// Combines lane i with accumulator `first + i`, or all lanes with the only one.
    pub(super) fn combine(&mut self, values: &Lanes, first: Option<usize>) {
        let op = self.op;
        match (&mut self.lanes, values) {
            (Lanes::F64(sums), Lanes::F32(v)) => accumulate(op, sums, v.iter().map(|&x| x as f64), first),
            (sums, v) => with_both!(sums, v, (s, v) => accumulate(op, s, v.iter().copied(), first)),
        }
    }

    /// The sums, rounded to the type of the target.
    pub(super) fn finish(&mut self) -> &Lanes {
        match (&self.lanes, &mut self.result) {
            (Lanes::F64(sums), Lanes::F32(out)) => {
                out.clear();
                out.extend(sums.iter().map(|&x| x as f32));
                self.result.round(self.dtype);
                &self.result
            }
            _ => &self.lanes,
        }
    }
}

/// Minima and maxima keep not-a-number, as [`crate::expr::scalar::accumulate`] does.
fn accumulate<T: Number>(op: BinaryOp, sums: &mut [T], values: impl Iterator<Item = T>, first: Option<usize>) {
    macro_rules! run {
        ($op:expr) => {{
            let keeps = matches!($op, BinaryOp::Min | BinaryOp::Max);
            let f = |a: T, b: T| {
                let combined = T::binary($op, a, b).unwrap_or(a);
                if keeps && CompareOp::Ne.holds(&b, &b) { b } else { combined }
            };
            match first {
                Some(first) => sums[first..].iter_mut().zip(values).for_each(|(s, v)| *s = f(*s, v)),
                None => sums[0] = values.fold(sums[0], f),
            }
        }};
    }
    match op {
        BinaryOp::Add => run!(BinaryOp::Add),
        BinaryOp::Max => run!(BinaryOp::Max),
        _ => run!(op),
    }
}
