//! The activation functions of recurrent layers, by their names.

use super::convert::{exponential, softplus_of, softsign_of};
use super::node::Source;
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{F32, Op};
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};

/// A function with its constants.
#[derive(Clone, Debug)]
pub(super) struct Activation {
    name: &'static str,
    alpha: f32,
    beta: f32,
}

/// Name, defaults of alpha and beta; `None` where the function has none.
const FUNCTIONS: [(&str, Option<f32>, Option<f32>); 11] = [
    ("Affine", Some(1.0), Some(0.0)),
    ("Elu", Some(1.0), None),
    ("HardSigmoid", Some(0.2), Some(0.5)),
    ("LeakyRelu", Some(0.01), None),
    ("Relu", None, None),
    ("ScaledTanh", Some(1.0), Some(1.0)),
    ("Sigmoid", None, None),
    ("Softplus", None, None),
    ("Softsign", None, None),
    ("Tanh", None, None),
    ("ThresholdedRelu", Some(1.0), None),
];

impl Activation {
    /// The functions of all directions. Constants are taken in order by the functions that have them.
    pub(super) fn list(n: &Source, defaults: &[&str], directions: usize) -> Result<Vec<Activation>> {
        let names = n.strings("activations").filter(|names| !names.is_empty());
        let default_names = || defaults.repeat(directions).iter().map(|s| s.to_string()).collect();
        let names: Vec<String> = names.unwrap_or_else(default_names);
        if names.len() != defaults.len() * directions {
            return Err(Error::Invalid(format!(
                "it has {} activations instead of {}",
                names.len(),
                defaults.len() * directions
            )));
        }
        let mut alphas = n.floats("activation_alpha").unwrap_or_default().into_iter();
        let mut betas = n.floats("activation_beta").unwrap_or_default().into_iter();
        let activation = |name: &String| {
            let row = FUNCTIONS.iter().find(|row| row.0.eq_ignore_ascii_case(name));
            let &(name, alpha, beta) =
                row.ok_or_else(|| Error::Invalid(unknown("activation", name, &FUNCTIONS.map(|row| row.0))))?;
            let alpha = alpha.map_or(0.0, |default| alphas.next().unwrap_or(default));
            let beta = beta.map_or(0.0, |default| betas.next().unwrap_or(default));
            Ok(Activation { name, alpha, beta })
        };
        names.iter().map(activation).collect()
    }

    /// The function of `x`.
    pub(super) fn apply(&self, g: &mut Importer, x: ValueId) -> Result<ValueId> {
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name {
            "Affine" => {
                let (scale, shift) = (g.scalar_like(x, alpha as f64)?, g.scalar_like(x, beta as f64)?);
                let scaled = g.binary(BinaryOp::Mul, x, scale)?;
                g.binary(BinaryOp::Add, scaled, shift)
            }
            "Elu" => Ok(exponential(g, x, alpha, 1.0, 1.0)?[0]),
            "HardSigmoid" => g.emit(Op::HardSigmoid { alpha: F32::new(alpha), beta: F32::new(beta) }, &[x]),
            "LeakyRelu" => {
                let slope = g.scalar_like(x, alpha as f64)?;
                g.emit(Op::PRelu, &[x, slope])
            }
            "Relu" => {
                let zero = g.scalar_like(x, 0.0)?;
                g.binary(BinaryOp::Max, x, zero)
            }
            "ScaledTanh" => {
                let (outer, inner) = (g.scalar_like(x, alpha as f64)?, g.scalar_like(x, beta as f64)?);
                let scaled = g.binary(BinaryOp::Mul, x, inner)?;
                let tanh = g.unary(UnaryOp::Tanh, scaled)?;
                g.binary(BinaryOp::Mul, tanh, outer)
            }
            "Sigmoid" => g.emit(Op::Sigmoid, &[x]),
            "Softplus" => softplus_of(g, x),
            "Softsign" => softsign_of(g, x),
            "Tanh" => g.unary(UnaryOp::Tanh, x),
            "ThresholdedRelu" => g.emit(Op::ThresholdedRelu { alpha: F32::new(alpha) }, &[x]),
            other => Err(Error::Internal(format!("the activation `{other}` has no definition"))),
        }
    }
}

/// `x` between `-bound` and `bound`.
pub(super) fn clipped(g: &mut Importer, x: ValueId, bound: Option<f32>) -> Result<ValueId> {
    let Some(bound) = bound else { return Ok(x) };
    let (low, high) = (g.scalar_like(x, -bound as f64)?, g.scalar_like(x, bound as f64)?);
    let x = g.binary(BinaryOp::Max, x, low)?;
    g.binary(BinaryOp::Min, x, high)
}
