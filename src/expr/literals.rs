//! Literals: the values of a small constant tensor that are known while its kernel is compiled.
//!
//! Invariant: all values have the element type of the tensor; they are in row-major order.

use crate::expr::Scalar;
use crate::expr::scalar::Value;
use crate::runtime::DType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The elements of a constant tensor, in row-major order.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Literals(Arc<[Scalar]>);

impl Literals {
    pub fn new(values: impl IntoIterator<Item = Scalar>) -> Literals {
        Literals(values.into_iter().collect())
    }

    pub fn values(&self) -> &[Scalar] {
        &self.0
    }

    /// Returns true if each element of a tensor of this type and shape has a finite float.
    pub fn fit(&self, dtype: DType, shape: &[i64]) -> bool {
        let float = |s: &Scalar| s.dtype == dtype && Value::from(*s).as_f64().is_finite();
        matches!(dtype, DType::F32 | DType::F64)
            && self.0.len() as i64 == shape.iter().product::<i64>()
            && self.0.iter().all(float)
    }

    /// Returns the share of the elements that are not zero; 1 for no elements.
    pub fn nonzero_share(&self) -> f64 {
        let nonzero = self.0.iter().filter(|s| Value::from(**s).as_f64() != 0.0).count();
        if self.0.is_empty() { 1.0 } else { nonzero as f64 / self.0.len() as f64 }
    }
}
