//! Elementwise operators, constants and shapes.

use super::node::Source;
use super::tensor::checked_len;
use crate::expr::scalar::Value;
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{F32, Op};
use crate::runtime::{DType, Error, Result, Tensor};

/// Shorthand for building expressions node by node.
impl Importer<'_> {
    pub(super) fn unary(&mut self, op: UnaryOp, a: ValueId) -> Result<ValueId> {
        self.emit(Op::Unary(op), &[a])
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.emit(Op::Binary(op), &[a, b])
    }

    pub(super) fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.emit(Op::Compare(op), &[a, b])
    }

    pub(super) fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.emit(Op::Select, &[condition, a, b])
    }

    /// `Max` or `Min` of two values. The operation keeps not-a-number of its first operand, so a constant comes second and
    /// a second operand that may be one is asked.
    pub(super) fn extreme(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        let a_number = self.is_number(a);
        let (a, b, b_number) = if a_number { (b, a, true) } else { (a, b, self.is_number(b)) };
        let best = self.binary(op, a, b)?;
        if b_number {
            return Ok(best);
        }
        let broken = self.compare(CompareOp::Ne, b, b)?;
        self.select(broken, b, best)
    }

    /// Returns true if a value is known to hold no not-a-number.
    fn is_number(&self, value: ValueId) -> bool {
        match (self.ty(value).dtype, self.graph.constant(value)) {
            (DType::F32, Some(t)) => !t.to_vec::<f32>().iter().any(|v| v.is_nan()),
            (DType::F64, Some(t)) => !t.to_vec::<f64>().iter().any(|v| v.is_nan()),
            (dtype, _) => !dtype.is_float(),
        }
    }

    /// A constant with no dimensions, of the element type of `like`.
    pub(super) fn scalar_like(&mut self, like: ValueId, value: f64) -> Result<ValueId> {
        Ok(self.scalar_of(self.ty(like).dtype, value))
    }

    /// A constant with no dimensions.
    pub(super) fn scalar_of(&mut self, dtype: DType, value: f64) -> ValueId {
        self.constant(scalar(dtype, value))
    }

    /// `value` cast to the element type of `like`.
    pub(super) fn cast_to(&mut self, value: ValueId, to: DType) -> Result<ValueId> {
        if self.ty(value).dtype == to { Ok(value) } else { self.emit(Op::Cast(to), &[value]) }
    }

    pub(super) fn require_float(&self, value: ValueId) -> Result<()> {
        match self.ty(value).dtype {
            DType::F32 | DType::F64 => Ok(()),
            other => Err(Error::Unsupported(format!("elements of type {other}"))),
        }
    }
}

fn scalar(dtype: DType, v: f64) -> Tensor {
    let mut data = vec![0; dtype.bytes()];
    Value::from_f64(dtype, v).store(&mut data);
    Tensor { dtype, shape: vec![], data: data.into() }
}

pub(super) fn elementwise(g: &mut Importer, n: &Source, op: Op) -> Result<Vec<ValueId>> {
    let inputs = n.present();
    Ok(vec![g.emit(op, &inputs)?])
}

pub(super) fn sum(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let mut sum = n.input(0)?;
    for &next in &n.present()[1..] {
        sum = g.binary(BinaryOp::Add, sum, next)?;
    }
    Ok(vec![sum])
}

/// `Max` and `Min` of any number of operands. Not-a-number in any of them is the result.
pub(super) fn extreme(g: &mut Importer, n: &Source, op: BinaryOp) -> Result<Vec<ValueId>> {
    let mut best = n.input(0)?;
    for &next in &n.present()[1..] {
        best = g.extreme(op, best, next)?;
    }
    Ok(vec![best])
}

pub(super) fn mean(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let sum = sum(g, n)?[0];
    let scale = g.scalar_like(sum, 1.0 / n.present().len() as f64)?;
    Ok(vec![g.binary(BinaryOp::Mul, sum, scale)?])
}

pub(super) fn identity(_: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    Ok(vec![n.input(0)?])
}

/// Inference: the operand, and the mask of what stays. The ratio does not matter then.
pub(super) fn dropout(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, _ratio, training) = (n.input(0)?, n.optional(1), n.optional(2));
    match training.map(|t| g.graph.constant(t)) {
        None => {}
        Some(Some(flag)) if flag.data.iter().all(|b| *b == 0) => {}
        Some(_) => return Err(Error::Unsupported("training mode".into())),
    }
    if !n.wants_output(1) {
        return Ok(vec![x]);
    }
    // nothing is dropped; the mask has the operand's type before operator set 10
    let shape = g.shape(x).to_vec();
    let kept = g.constant(Tensor { dtype: DType::Bool, shape: vec![], data: vec![1].into() });
    let mask = g.expanded(kept, &shape)?;
    let mask = g.cast_to(mask, if n.opset < 10 { g.ty(x).dtype } else { DType::Bool })?;
    Ok(vec![x, mask])
}

pub(super) fn relu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let zero = g.scalar_like(x, 0.0)?;
    Ok(vec![g.binary(BinaryOp::Max, x, zero)?])
}

/// Bounds are attributes before opset 11 and operands after. A bound that is not a number bounds nothing.
pub(super) fn clip(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    let (low, high) = if n.opset < 11 {
        let mut bound = |name: &str| n.attribute(name).map(|a| g.scalar_like(x, a.f as f64)).transpose();
        (bound("min")?, bound("max")?)
    } else {
        (n.optional(1), n.optional(2))
    };
    if let Some(bound) = [low, high].into_iter().flatten().find(|&bound| g.shape(bound).iter().any(|&d| d != 1)) {
        return Err(Error::Invalid(format!("a bound of shape {:?} is not one number", g.shape(bound))));
    }
    if let Some(low) = low {
        x = g.binary(BinaryOp::Max, x, low)?;
    }
    if let Some(high) = high {
        x = g.binary(BinaryOp::Min, x, high)?;
    }
    Ok(vec![x])
}

pub(super) fn reciprocal(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let one = g.scalar_like(x, 1.0)?;
    Ok(vec![g.binary(BinaryOp::Div, one, x)?])
}

/// Small constant exponents become products and roots.
pub(super) fn pow(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    if !g.ty(x).dtype.is_float() {
        return Ok(vec![integer_power(g, x, y)?]);
    }
    let y = g.cast_to(y, g.ty(x).dtype)?;
    let exponent = g.graph.constant(y).filter(|t| t.len() == 1 && t.shape.len() <= g.rank(x)).map(|t| match t.dtype {
        DType::F32 => t.to_vec::<f32>()[0] as f64,
        DType::F64 => t.to_vec::<f64>()[0],
        _ => f64::NAN,
    });
    Ok(vec![match exponent {
        Some(1.0) => x,
        Some(2.0) => g.binary(BinaryOp::Mul, x, x)?,
        Some(3.0) => {
            let square = g.binary(BinaryOp::Mul, x, x)?;
            g.binary(BinaryOp::Mul, square, x)?
        }
        Some(0.5) => g.unary(UnaryOp::Sqrt, x)?,
        Some(-1.0) => {
            let one = g.scalar_like(x, 1.0)?;
            g.binary(BinaryOp::Div, one, x)?
        }
        _ => g.binary(BinaryOp::Pow, x, y)?,
    }])
}

/// Exact for a small constant exponent; otherwise by f64, rounded when the exponent is an integer and cut when it is not.
fn integer_power(g: &mut Importer, x: ValueId, y: ValueId) -> Result<ValueId> {
    let exponent = g.graph.constant(y).filter(|t| t.len() == 1 && t.shape.len() <= g.rank(x)).is_some();
    let exponent = if exponent && !g.ty(y).dtype.is_float() { g.integers(y, "exponent")?[0] } else { 0 };
    if !(1..=64).contains(&exponent) {
        let (base, exponent) = (g.cast_to(x, DType::F64)?, g.cast_to(y, DType::F64)?);
        let mut power = g.binary(BinaryOp::Pow, base, exponent)?;
        if !g.ty(y).dtype.is_float() {
            power = g.unary(UnaryOp::Round, power)?;
        }
        return g.cast_to(power, g.ty(x).dtype);
    }
    let (mut power, mut square) = (None, x);
    let mut remaining = exponent;
    loop {
        if remaining % 2 == 1 {
            power = Some(match power {
                None => square,
                Some(p) => g.binary(BinaryOp::Mul, p, square)?,
            });
        }
        remaining /= 2;
        match power {
            Some(power) if remaining == 0 => return Ok(power),
            _ => square = g.binary(BinaryOp::Mul, square, square)?,
        }
    }
}

pub(super) fn divide(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    elementwise(g, n, Op::Binary(BinaryOp::Div))
}

/// With `fmod = 0` the sign is the divisor's, with 1 the dividend's: `a - b·trunc(a/b)`.
pub(super) fn modulo(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    if n.flag("fmod", false) && !g.ty(a).dtype.is_float() {
        let quotient = g.binary(BinaryOp::Div, a, b)?;
        let product = g.binary(BinaryOp::Mul, quotient, b)?;
        return Ok(vec![g.binary(BinaryOp::Sub, a, product)?]);
    }
    let remainder = g.binary(BinaryOp::Mod, a, b)?;
    if n.flag("fmod", false) || !g.ty(a).dtype.is_float() {
        return Ok(vec![remainder]);
    }
    // of floats the operation has the sign of the dividend; a rest of 0 takes the divisor's sign too
    let (below, reversed) = (g.compared(CompareOp::Lt, remainder, 0.0)?, g.compared(CompareOp::Lt, b, 0.0)?);
    let opposite = g.binary(BinaryOp::Xor, below, reversed)?;
    let moved = g.binary(BinaryOp::Add, remainder, b)?;
    let signed = g.select(opposite, moved, remainder)?;
    let (zero, negative) = (g.scalar_like(b, 0.0)?, g.scalar_like(b, -0.0)?);
    let zero = g.select(reversed, negative, zero)?;
    let none = g.compared(CompareOp::Eq, remainder, 0.0)?;
    Ok(vec![g.select(none, zero, signed)?])
}

pub(super) fn hard_sigmoid(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let op = Op::HardSigmoid { alpha: F32::new(n.float("alpha", 0.2)), beta: F32::new(n.float("beta", 0.5)) };
    elementwise(g, n, op)
}

pub(super) fn leaky_relu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let slope = g.scalar_like(x, n.float("alpha", 0.01) as f64)?;
    Ok(vec![g.emit(Op::PRelu, &[x, slope])?])
}

pub(super) fn prelu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, slope) = (n.input(0)?, n.input(1)?);
    let shape = g.shape(x);
    if super::movement::broadcast(shape, g.shape(slope))? != shape {
        return Err(Error::Invalid(format!("its slope of shape {:?} does not broadcast to {shape:?}", g.shape(slope))));
    }
    Ok(vec![g.emit(Op::PRelu, &[x, slope])?])
}

pub(super) fn exponential(g: &mut Importer, x: ValueId, alpha: f32, divisor: f32, scale: f32) -> Result<Vec<ValueId>> {
    let [alpha, divisor, scale] = [alpha, divisor, scale].map(F32::new);
    Ok(vec![g.emit(Op::Elu { alpha, scale, divisor }, &[x])?])
}

pub(super) fn elu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    exponential(g, n.input(0)?, n.float("alpha", 1.0), 1.0, 1.0)
}

pub(super) fn celu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let alpha = n.float("alpha", 1.0);
    exponential(g, n.input(0)?, alpha, alpha, 1.0)
}

pub(super) fn selu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (alpha, gamma) = (n.float("alpha", 1.673_263_2), n.float("gamma", 1.050_701));
    exponential(g, n.input(0)?, alpha, 1.0, gamma)
}

/// `max(x, 0) + log(1 + exp(-|x|))`, which does not overflow.
pub(super) fn softplus_of(g: &mut Importer, x: ValueId) -> Result<ValueId> {
    g.require_float(x)?;
    let zero = g.scalar_like(x, 0.0)?;
    let one = g.scalar_like(x, 1.0)?;
    let magnitude = g.unary(UnaryOp::Abs, x)?;
    let negative = g.unary(UnaryOp::Neg, magnitude)?;
    let exp = g.unary(UnaryOp::Exp, negative)?;
    let sum = g.binary(BinaryOp::Add, one, exp)?;
    let log = g.unary(UnaryOp::Log, sum)?;
    let positive = g.binary(BinaryOp::Max, x, zero)?;
    g.binary(BinaryOp::Add, positive, log)
}

pub(super) fn softplus(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![softplus_of(g, x)?])
}

pub(super) fn mish(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let softplus = softplus_of(g, x)?;
    let tanh = g.unary(UnaryOp::Tanh, softplus)?;
    Ok(vec![g.binary(BinaryOp::Mul, x, tanh)?])
}

pub(super) fn softsign(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![softsign_of(g, x)?])
}

pub(super) fn softsign_of(g: &mut Importer, x: ValueId) -> Result<ValueId> {
    let one = g.scalar_like(x, 1.0)?;
    let magnitude = g.unary(UnaryOp::Abs, x)?;
    let below = g.binary(BinaryOp::Add, one, magnitude)?;
    g.binary(BinaryOp::Div, x, below)
}

pub(super) fn swish(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let alpha = n.float("alpha", 1.0);
    if alpha == 1.0 {
        return Ok(vec![g.emit(Op::Silu, &[x])?]);
    }
    let factor = g.scalar_like(x, alpha as f64)?;
    let scaled = g.binary(BinaryOp::Mul, x, factor)?;
    let gate = g.emit(Op::Sigmoid, &[scaled])?;
    Ok(vec![g.binary(BinaryOp::Mul, x, gate)?])
}

pub(super) fn gelu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    if n.string("approximate", "none") == "none" {
        return Ok(vec![g.emit(Op::Gelu, &[x])?]);
    }
    Ok(vec![g.gelu_by_tanh(x)?])
}

impl Importer<'_> {
    /// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    pub(super) fn gelu_by_tanh(&mut self, x: ValueId) -> Result<ValueId> {
        let g = self;
        let cubic = g.scalar_like(x, 0.044715)?;
        let root = g.scalar_like(x, (2.0 / std::f64::consts::PI).sqrt())?;
        let half = g.scalar_like(x, 0.5)?;
        let one = g.scalar_like(x, 1.0)?;
        let square = g.binary(BinaryOp::Mul, x, x)?;
        let inner = g.binary(BinaryOp::Mul, square, cubic)?;
        let inner = g.binary(BinaryOp::Add, inner, one)?;
        let inner = g.binary(BinaryOp::Mul, inner, x)?;
        let inner = g.binary(BinaryOp::Mul, inner, root)?;
        let tanh = g.unary(UnaryOp::Tanh, inner)?;
        let sum = g.binary(BinaryOp::Add, tanh, one)?;
        let halved = g.binary(BinaryOp::Mul, x, half)?;
        g.binary(BinaryOp::Mul, halved, sum)
    }
}

pub(super) fn sign(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let zero = g.scalar_like(x, 0.0)?;
    let one = g.scalar_like(x, 1.0)?;
    let minus = g.scalar_like(x, -1.0)?;
    let positive = g.compare(CompareOp::Gt, x, zero)?;
    let negative = g.compare(CompareOp::Lt, x, zero)?;
    // zero and not-a-number are their own signs
    let below = g.select(negative, minus, x)?;
    Ok(vec![g.select(positive, one, below)?])
}

pub(super) fn thresholded_relu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    elementwise(g, n, Op::ThresholdedRelu { alpha: F32::new(n.float("alpha", 1.0)) })
}

pub(super) fn is_nan(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![g.compare(CompareOp::Ne, x, x)?])
}

pub(super) fn is_inf(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let signs = (n.flag("detect_positive", true), n.flag("detect_negative", true));
    let (operand, infinity) = match signs {
        (true, true) => (g.unary(UnaryOp::Abs, x)?, f64::INFINITY),
        (true, false) => (x, f64::INFINITY),
        (false, true) => (x, f64::NEG_INFINITY),
        (false, false) => return Err(Error::Unsupported("it detects neither sign".into())),
    };
    let infinity = g.scalar_like(x, infinity)?;
    Ok(vec![g.compare(CompareOp::Eq, operand, infinity)?])
}

pub(super) fn constant(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let taken = |name: &String| g.model.weights().iter().find(|weight| weight.0 == *name);
    let tensor = if let Some(t) = n.tensor("value") {
        g.read_tensor(t)?
    } else if let Some((name, tensor)) = n.proto.output.first().and_then(taken) {
        // The model took it from the node when it was loaded.
        let value = g.values.get(name.as_str()).copied().flatten();
        return Ok(vec![value.unwrap_or_else(|| g.named_constant(name.clone(), tensor.clone()))]);
    } else if let Some(a) = n.attribute("value_float") {
        Tensor::new(&[], &[a.f])
    } else if let Some(a) = n.attribute("value_int") {
        Tensor::new(&[], &[a.i])
    } else if let Some(a) = n.attribute("value_floats") {
        Tensor::new(&[a.floats.len() as i64], &a.floats)
    } else if let Some(a) = n.attribute("value_ints") {
        Tensor::new(&[a.ints.len() as i64], &a.ints)
    } else {
        return Err(Error::Unsupported("a constant that is a string or sparse".into()));
    };
    Ok(vec![g.constant(tensor)])
}

/// The element that `ConstantOfShape` repeats: 0 in f32 where the node has none.
pub(super) fn fill_value(g: &mut Importer, n: &Source) -> Result<Tensor> {
    let value = match n.tensor("value") {
        Some(t) => g.read_tensor(t)?,
        None => Tensor::new(&[1], &[0f32]),
    };
    if value.len() != 1 {
        return Err(Error::Invalid("its value must have one element".into()));
    }
    Ok(value)
}

pub(super) fn constant_of_shape(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let shape = g.integers(n.input(0)?, "shape")?;
    let value = fill_value(g, n)?;
    let len = checked_len(&shape, value.dtype, "the constant")?;
    g.claim(&shape, value.dtype)?;
    let data = value.data.repeat(len);
    Ok(vec![g.constant(Tensor { dtype: value.dtype, shape, data: data.into() })])
}

pub(super) fn shape(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let shape = g.shape(n.input(0)?).to_vec();
    let rank = shape.len() as i64;
    let clamp = |v: i64| (if v < 0 { v + rank } else { v }).clamp(0, rank) as usize;
    let (start, end) = (clamp(n.int("start", 0)), clamp(n.int("end", rank)));
    let part = if start < end { &shape[start..end] } else { &[] };
    Ok(vec![g.constant(Tensor::new(&[part.len() as i64], part))])
}

pub(super) fn size(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let size: i64 = g.shape(n.input(0)?).iter().product();
    Ok(vec![g.constant(Tensor::new(&[], &[size]))])
}

/// Steps of `delta` that begin before `difference`.
pub(super) fn steps_between(difference: i128, delta: i64) -> Result<i64> {
    if delta == 0 {
        return Err(Error::Invalid("its delta is 0".into()));
    }
    let (far, delta) = (difference * i128::from(delta.signum()), i128::from(delta.unsigned_abs()));
    let steps = far.div_euclid(delta) + i128::from(far.rem_euclid(delta) != 0);
    // more than any tensor has is more than the limit of any import
    Ok(steps.clamp(0, i64::MAX.into()) as i64)
}

/// A list of numbers by their positions; of each number the lowest bytes, as many as the type has.
fn counted<const N: usize>(dtype: DType, count: i64, number: impl Fn(i64) -> [u8; N]) -> Tensor {
    let mut list = Tensor::zeros(dtype, &[count]);
    let places = (0..).zip(list.data.chunks_exact_mut(dtype.bytes()));
    places.for_each(|(i, place)| place.copy_from_slice(&number(i)[..place.len()]));
    list
}

pub(super) fn range(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (start, limit, delta) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let ty = g.ty(start).dtype;
    if [limit, delta].iter().any(|&v| g.ty(v).dtype != ty) {
        let types = [start, limit, delta].map(|v| g.ty(v).dtype.to_string()).join(", ");
        return Err(Error::Invalid(format!("its start, limit and delta have different types: {types}")));
    }
    let tensor = if ty.is_float() {
        let number = |v, what| g.known_number(v, what);
        let (a, b, d) = (number(start, "start")?, number(limit, "limit")?, number(delta, "delta")?);
        let (double, single) = (ty == DType::F64, DType::F32);
        let distance = if double { b - a } else { f64::from(b as f32 - a as f32) };
        let count = (distance / d).ceil();
        if !count.is_finite() {
            let why = if d == 0.0 { "its delta is 0" } else { "its start, limit or delta is not finite" };
            return Err(Error::Invalid(why.into()));
        }
        let count = count.max(0.0) as i64;
        g.claim(&[count], if double { ty } else { single })?;
        match double {
            true => counted(ty, count, |i| (a + i as f64 * d).to_le_bytes()),
            false => counted(single, count, |i| (a as f32 + i as f32 * d as f32).to_le_bytes()),
        }
    } else {
        let one = |v, what| match ty {
            DType::I16 => match g.known(v, what)?.to_vec::<i16>()[..] {
                [one] => Ok(one.into()),
                _ => Err(Error::Invalid(format!("its {what} is not one number"))),
            },
            _ => g.known_integer(v, what),
        };
        let (a, b, d) = (one(start, "start")?, one(limit, "limit")?, one(delta, "delta")?);
        let count = steps_between(i128::from(b) - i128::from(a), d)?;
        g.claim(&[count], ty)?;
        counted(ty, count, |i| a.wrapping_add(i.wrapping_mul(d)).to_le_bytes())
    };
    let value = g.constant(tensor);
    Ok(vec![g.cast_to(value, ty)?])
}

/// `indices == 0..depth` along a new axis, then `on` or `off`.
pub(super) fn one_hot(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (indices, values) = (n.input(0)?, n.input(2)?);
    let depth = n.input(1)?;
    let depth = match g.ty(depth).dtype.is_float() {
        true => g.floats(depth, "depth")?.first().map_or(0, |d| *d as i64),
        false => g.integers(depth, "depth")?.first().copied().unwrap_or(0),
    };
    if !(0..=1 << 24).contains(&depth) {
        return Err(Error::Invalid(format!("its depth is {depth}")));
    }
    let rank = g.rank(indices);
    let axis = g.axis(n.int("axis", -1), rank + 1)?;
    let index_type = g.ty(indices).dtype;
    let mut shape = g.shape(indices).to_vec();
    shape.insert(axis, 1);
    let indices = g.emit(Op::Reshape { shape }, &[indices])?;
    let zero = g.scalar_like(indices, 0.0)?;
    let size = g.scalar_like(indices, depth as f64)?;
    let negative = g.compare(CompareOp::Lt, indices, zero)?;
    let wrapped = g.binary(BinaryOp::Add, indices, size)?;
    let indices = g.select(negative, wrapped, indices)?;
    let counting = g.counting(depth, axis, rank + 1)?;
    let counting = g.cast_to(counting, index_type)?;
    let equal = g.compare(CompareOp::Eq, indices, counting)?;
    let mut part = |i: i64| {
        let slice = Op::Slice { starts: vec![i], ends: vec![i + 1], steps: vec![1] };
        let element = g.emit(slice, &[values])?;
        g.emit(Op::Reshape { shape: vec![] }, &[element])
    };
    let (off, on) = (part(0)?, part(1)?);
    Ok(vec![g.select(equal, on, off)?])
}

pub(super) fn trilu(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = g.rank_of_two(x)?;
    let k = match n.optional(1) {
        Some(k) => g.integers(k, "diagonal")?.first().copied().unwrap_or(0),
        None => 0,
    };
    let upper = n.flag("upper", true);
    let (rows, columns) = (g.shape(x)[rank - 2], g.shape(x)[rank - 1]);
    g.claim(&[rows, columns], DType::Bool)?;
    let keep =
        (0..rows).flat_map(|r| (0..columns).map(move |c| if upper { c - r >= k } else { c - r <= k }).map(|b| b as u8));
    let mask = Tensor { dtype: DType::Bool, shape: vec![rows, columns], data: keep.collect() };
    let mask = g.constant(mask);
    let zero = g.scalar_like(x, 0.0)?;
    Ok(vec![g.select(mask, x, zero)?])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_length_of_a_range_is_exact() {
        let steps = |difference, delta| super::steps_between(difference, delta).unwrap();
        assert_eq!([(5, 2), (4, 2), (-5, 2), (0, 2)].map(|(d, by)| steps(d, by)), [3, 2, 0, 0]);
        assert_eq!([(-5, -2), (-4, -2), (5, -2), (1, -2)].map(|(d, by)| steps(d, by)), [3, 2, 0, 0]);
        let far = i128::from(i64::MAX) - i128::from(i64::MIN);
        assert_eq!((steps((1 << 60) + 3, 1), steps(far, 1), steps(far, i64::MAX)), ((1 << 60) + 3, i64::MAX, 3));
        assert!(super::steps_between(3, 0).is_err());
    }
}
