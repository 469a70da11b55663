//! Element type and shape of a value.

use crate::runtime::{DType, Error, Result, Tensor};

/// Element type and shape of a value.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
}

impl TensorType {
    /// The type of tensors of `shape` with elements of `dtype`.
    pub fn new(dtype: DType, shape: &[i64]) -> TensorType {
        TensorType { dtype, shape: shape.to_vec() }
    }

    /// The type of `tensor`.
    pub fn of(tensor: &Tensor) -> TensorType {
        TensorType { dtype: tensor.dtype, shape: tensor.shape.clone() }
    }

    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() as usize * self.dtype.bytes()
    }

    /// Fails when an extent is negative or there are more elements than any real tensor has.
    ///
    /// # Errors
    /// [`Error::Invalid`] where an extent is negative; [`Error::Limit`] where there are more elements than any real
    /// tensor has.
    pub fn check(&self) -> Result<()> {
        let count = self.shape.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(1)));
        if self.shape.iter().any(|&d| d < 0) {
            return Err(Error::Invalid(format!("{self} has a negative extent")));
        }
        let most = if self.shape.contains(&0) { MAX_EMPTY } else { MAX_ELEMENTS };
        if count.is_none_or(|n| n > most) {
            return Err(Error::Limit(format!(
                "{self} has more than {MAX_ELEMENTS} elements, the most that a tensor can have: no limit of memory raises it"
            )));
        }
        Ok(())
    }
}

/// `f32[1,3,224,224]`.
impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(i64::to_string).collect();
        write!(f, "{}[{}]", self.dtype, shape.join(","))
    }
}

/// The largest product of the extents of an empty tensor, other than 0.
pub const MAX_EMPTY: i64 = 1 << 62;

/// No tensor has more elements: subscripts and sums of products of extents stay far from the ends of 64 bits.
const MAX_ELEMENTS: i64 = 1 << 29;
