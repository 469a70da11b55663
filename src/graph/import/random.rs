//! Random numbers with known shapes: constants, drawn when the model is imported.
//!
//! Number `i` of a node is a function of its seed and `i` alone (a counter-based generator: SplitMix64, Steele, Lea and
//! Flood, 2014). The same seed gives the same bits, on every machine and in every run. A node without a seed has the one of
//! its name.

use super::node::Source;
use super::tensor::dtype;
use crate::expr::CompareOp;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Error, Result, Tensor, random};
use std::f64::consts::TAU;

struct Generator {
    seed: u64,
}

impl Generator {
    fn of(g: &Importer, n: &Source) -> Generator {
        let seed = match n.attribute("seed") {
            Some(_) => u64::from(n.float("seed", 0.0).to_bits()),
            None => g
                .place
                .bytes()
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
        };
        Generator { seed: random::mix(seed) }
    }

    /// Number `i`, equally distributed over `0 ≤ u < 1`.
    fn uniform(&self, i: u64) -> f64 {
        (random::number(self.seed, i) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Number `i` of the standard normal distribution (Box and Muller).
    fn normal(&self, i: u64) -> f64 {
        let (u, v) = (self.uniform(2 * i), self.uniform(2 * i + 1));
        (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
    }
}

/// The shape of an operand or of an attribute, and the type of the numbers.
fn wanted(g: &Importer, n: &Source, like: bool) -> Result<(Vec<i64>, DType)> {
    let code = n.int("dtype", 0);
    if like {
        let x = n.input(0)?;
        let ty = if code == 0 { g.ty(x).dtype } else { dtype(code as i32)? };
        return Ok((g.shape(x).to_vec(), ty));
    }
    let shape = n.ints("shape").ok_or_else(|| Error::Invalid("`shape` is missing".into()))?;
    Ok((shape, if code == 0 { DType::F32 } else { dtype(code as i32)? }))
}

fn drawn(g: &mut Importer, shape: &[i64], ty: DType, draw: impl Fn(u64) -> f64) -> Result<ValueId> {
    let count = super::tensor::checked_len(shape, DType::F64, "the numbers")?;
    g.claim(shape, DType::F64)?;
    let values: Vec<f64> = (0..count as u64).map(draw).collect();
    let numbers = g.constant(Tensor::new(shape, &values));
    g.cast_to(numbers, ty)
}

pub(super) fn normal(g: &mut Importer, n: &Source, like: bool) -> Result<Vec<ValueId>> {
    let (shape, ty) = wanted(g, n, like)?;
    let (mean, scale) = (f64::from(n.float("mean", 0.0)), f64::from(n.float("scale", 1.0)));
    let generator = Generator::of(g, n);
    Ok(vec![drawn(g, &shape, ty, |i| mean + scale * generator.normal(i))?])
}

pub(super) fn uniform(g: &mut Importer, n: &Source, like: bool) -> Result<Vec<ValueId>> {
    let (shape, ty) = wanted(g, n, like)?;
    let (low, high) = (f64::from(n.float("low", 0.0)), f64::from(n.float("high", 1.0)));
    let generator = Generator::of(g, n);
    Ok(vec![drawn(g, &shape, ty, |i| low + (high - low) * generator.uniform(i))?])
}

/// 1 with the probability that each element is.
pub(super) fn bernoulli(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (shape, ty) = wanted(g, n, true)?;
    let generator = Generator::of(g, n);
    let draws = drawn(g, &shape, g.ty(x).dtype, |i| generator.uniform(i))?;
    let chosen = g.compare(CompareOp::Lt, draws, x)?;
    Ok(vec![g.cast_to(chosen, ty)?])
}

/// Classes drawn with the probabilities of their logarithms: the largest of each logarithm plus a Gumbel number.
pub(super) fn multinomial(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let &[batch, classes] = g.shape(x) else {
        return Err(Error::Invalid(format!(
            "logarithms of probabilities of shape {:?} do not have 2 dimensions",
            g.shape(x)
        )));
    };
    let samples = n.int("sample_size", 1);
    let ty = match n.int("dtype", 6) {
        6 => DType::I32,
        7 => DType::I64,
        other => return Err(Error::Invalid(format!("indices of type {other}"))),
    };
    if !(0..=1 << 30).contains(&samples) || classes < 1 {
        return Err(Error::Invalid(format!("{samples} samples of {classes} classes are not possible")));
    }
    let generator = Generator::of(g, n);
    let gumbel = |i: u64| -(-(1.0 - generator.uniform(i)).ln()).ln();
    let noise = drawn(g, &[batch, samples, classes], g.ty(x).dtype, gumbel)?;
    let x = g.unsqueezed(x, 1)?;
    let sum = g.add(x, noise)?;
    let best = g.emit(Op::Opaque { function: "argmax".into(), attributes: vec![2, 0, 0] }, &[sum])?;
    Ok(vec![g.cast_to(best, ty)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_functions_of_seed_and_place() {
        let generator = Generator { seed: random::mix(7) };
        assert_eq!(generator.uniform(3).to_bits(), Generator { seed: random::mix(7) }.uniform(3).to_bits());
        assert_ne!(generator.uniform(3), Generator { seed: random::mix(8) }.uniform(3));
        let count = 20_000;
        let mean = |draw: &dyn Fn(u64) -> f64| (0..count).map(draw).sum::<f64>() / count as f64;
        assert!((mean(&|i| generator.uniform(i)) - 0.5).abs() < 0.01);
        assert!(mean(&|i| generator.normal(i)).abs() < 0.03);
        assert!((mean(&|i| generator.normal(i).powi(2)) - 1.0).abs() < 0.03);
    }
}
