//! Element types and dense row-major tensors.

use crate::Bytes;
use serde::{Deserialize, Serialize};

/// Element type of a tensor. The discriminant order is stable: it is part of the saved module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1.
    Bool,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Storage: signed, 4 bits, in a byte with their sign.
    I4,
    /// Storage: unsigned, 4 bits, in a byte.
    U4,
    /// Storage: signed, 2 bits, in a byte with their sign.
    I2,
    /// Storage: unsigned, 2 bits, in a byte.
    U2,
    /// Storage: 4 bits of exponent, 3 of fraction, no infinities.
    F8E4M3Fn,
    /// Storage: as `F8E4M3Fn` with a bias of 8, one zero and one not-a-number.
    F8E4M3FnUz,
    /// Storage: 5 bits of exponent, 2 of fraction.
    F8E5M2,
    /// Storage: as `F8E5M2` with a bias of 16, no infinities, one zero and one not-a-number.
    F8E5M2FnUz,
    /// Storage: a power of two.
    F8E8M0,
    /// Storage: 2 bits of exponent, 1 of fraction, in a byte.
    F4E2M1,
}

/// Every type, with its name, the type of its elements in C and its size in bytes.
const TYPES: [(DType, &str, &str, usize); 23] = [
    (DType::F64, "f64", "double", 8),
    (DType::F32, "f32", "float", 4),
    (DType::F16, "f16", "uint16_t", 2),
    (DType::BF16, "bf16", "uint16_t", 2),
    (DType::I64, "i64", "int64_t", 8),
    (DType::I32, "i32", "int32_t", 4),
    (DType::I8, "i8", "int8_t", 1),
    (DType::U8, "u8", "uint8_t", 1),
    (DType::Bool, "bool", "uint8_t", 1),
    (DType::I16, "i16", "int16_t", 2),
    (DType::U16, "u16", "uint16_t", 2),
    (DType::U32, "u32", "uint32_t", 4),
    (DType::U64, "u64", "uint64_t", 8),
    (DType::I4, "i4", "int8_t", 1),
    (DType::U4, "u4", "uint8_t", 1),
    (DType::I2, "i2", "int8_t", 1),
    (DType::U2, "u2", "uint8_t", 1),
    (DType::F8E4M3Fn, "f8e4m3fn", "uint8_t", 1),
    (DType::F8E4M3FnUz, "f8e4m3fnuz", "uint8_t", 1),
    (DType::F8E5M2, "f8e5m2", "uint8_t", 1),
    (DType::F8E5M2FnUz, "f8e5m2fnuz", "uint8_t", 1),
    (DType::F8E8M0, "f8e8m0", "uint8_t", 1),
    (DType::F4E2M1, "f4e2m1", "uint8_t", 1),
];

impl DType {
    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        TYPES[self as usize].3
    }

    /// True for types with a fraction that can be computed with.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// True for floats of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// True for whole numbers that can be computed with.
    pub fn is_integer(self) -> bool {
        use DType::*;
        matches!(self, I64 | I32 | I16 | I8 | U64 | U32 | U16 | U8)
    }

    /// True for types that are moved and converted, but have no arithmetic: those of fewer than 8 bits, and floats of 8.
    pub fn is_storage(self) -> bool {
        self > DType::U64
    }

    /// Every type.
    pub fn all() -> impl Iterator<Item = DType> {
        TYPES.iter().map(|t| t.0)
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<DType> {
        TYPES.iter().find(|t| t.1 == name).map(|t| t.0)
    }

    /// The name in the text language: `f32`, `i64`, `bool` …
    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// The type of an element in C; what C has no type for is an integer of its size, with the bits of the element.
    #[doc(hidden)]
    pub fn c_type(self) -> &'static str {
        TYPES[self as usize].2
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A dense row-major tensor: element type, extents, little-endian bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Elements in row-major order, little-endian.
    pub data: Bytes,
}

/// A tensor in somebody else's memory: dense, row-major, little-endian, at any address.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: &'a [i64],
    /// Elements in row-major order, little-endian.
    pub data: &'a [u8],
}

/// A tensor in somebody else's memory, to be written.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: &'a [i64],
    /// Elements in row-major order, little-endian.
    pub data: &'a mut [u8],
}

impl<'a> TensorView<'a> {
    /// `values` where they lie, row-major, as a tensor of `shape`.
    pub fn new<T: Element>(shape: &'a [i64], values: &'a [T]) -> TensorView<'a> {
        // SAFETY: elements are numbers without padding (`Element` is sealed); bytes have no alignment and live as long.
        let data = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        TensorView { dtype: T::DTYPE, shape, data }
    }
}

impl<'a> TensorViewMut<'a> {
    /// `values` where they lie, row-major, as a tensor of `shape`.
    pub fn new<T: Element>(shape: &'a [i64], values: &'a mut [T]) -> TensorViewMut<'a> {
        // SAFETY: as for `TensorView::new`; every pattern of bits is a number, and the borrow is exclusive.
        let data = unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) };
        TensorViewMut { dtype: T::DTYPE, shape, data }
    }
}

/// Read as a tensor: an owned one, a reference, a view.
pub trait AsView {
    /// The tensor's type, shape and elements.
    fn view(&self) -> TensorView<'_>;
}

/// Written as a tensor: an owned one, a reference, a view.
pub trait AsViewMut: AsView {
    /// The tensor's type, shape and elements, to be written.
    fn view_mut(&mut self) -> TensorViewMut<'_>;
}

impl AsView for Tensor {
    fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, shape: &self.shape, data: &self.data }
    }
}

impl AsViewMut for Tensor {
    fn view_mut(&mut self) -> TensorViewMut<'_> {
        TensorViewMut { dtype: self.dtype, shape: &self.shape, data: &mut self.data }
    }
}

impl AsView for TensorView<'_> {
    fn view(&self) -> TensorView<'_> {
        *self
    }
}

impl AsView for TensorViewMut<'_> {
    fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, shape: self.shape, data: self.data }
    }
}

impl AsViewMut for TensorViewMut<'_> {
    fn view_mut(&mut self) -> TensorViewMut<'_> {
        TensorViewMut { dtype: self.dtype, shape: self.shape, data: self.data }
    }
}

impl<T: AsView> AsView for &T {
    fn view(&self) -> TensorView<'_> {
        (**self).view()
    }
}

impl<T: AsView> AsView for &mut T {
    fn view(&self) -> TensorView<'_> {
        (**self).view()
    }
}

impl<T: AsViewMut> AsViewMut for &mut T {
    fn view_mut(&mut self) -> TensorViewMut<'_> {
        (**self).view_mut()
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is stored as a [`DType`], on a little-endian processor in the same bytes.
pub trait Element: Copy + sealed::Sealed {
    /// Element type of tensors of these values.
    const DTYPE: DType;
    /// The bytes of the value, little-endian, then zeros.
    fn to_le(self) -> [u8; 8];
    /// The value of [`DType::bytes`] bytes. Panics at another length.
    fn from_le(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn to_le(self) -> [u8; 8] {
                let mut out = [0; 8];
                let bytes = self.to_le_bytes();
                out[..bytes.len()].copy_from_slice(&bytes);
                out
            }
            fn from_le(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("one element"))
            }
        }
    )*};
}
element!(f64 => F64, f32 => F32, i64 => I64, i32 => I32, i16 => I16, i8 => I8);
element!(u64 => U64, u32 => U32, u16 => U16, u8 => U8);

impl Tensor {
    /// A tensor of `shape` from row-major `values`. Panics when the counts differ.
    pub fn new<T: Element>(shape: &[i64], values: &[T]) -> Tensor {
        assert_eq!(shape.iter().product::<i64>() as usize, values.len(), "shape {shape:?}");
        let size = T::DTYPE.bytes();
        let data = values.iter().flat_map(|v| v.to_le().into_iter().take(size)).collect();
        Tensor { dtype: T::DTYPE, shape: shape.to_vec(), data }
    }

    /// Calls `work` with tensors that have the memory of the views: nothing is copied, but what `work` clones.
    ///
    /// ```
    /// use tilewright_runtime::{Tensor, TensorView};
    ///
    /// let values = [1f32, 2.0];
    /// let kept = Tensor::with_views(&[("x", TensorView::new(&[2], &values))], |inputs| {
    ///     assert_eq!(inputs[0].1.data.as_ptr(), values.as_ptr().cast());
    ///     inputs[0].1.clone()
    /// });
    /// assert_eq!(kept.to_vec::<f32>(), values);
    /// ```
    pub fn with_views<R>(views: &[(&str, TensorView)], work: impl FnOnce(&[(&str, &Tensor)]) -> R) -> R {
        let tensor = |(_, view): &(&str, TensorView)| {
            // SAFETY: the tensors are dropped before this function returns, while the views are borrowed; `work` has
            // references alone, and a clone is a copy.
            let data = unsafe { Bytes::borrowed(view.data) };
            Tensor { dtype: view.dtype, shape: view.shape.to_vec(), data }
        };
        let tensors: Vec<Tensor> = views.iter().map(tensor).collect();
        let named: Vec<(&str, &Tensor)> = views.iter().map(|(name, _)| *name).zip(&tensors).collect();
        work(&named)
    }

    /// A tensor of zeros.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        Tensor { dtype, shape: shape.to_vec(), data: Bytes::zeros(count as usize * dtype.bytes()) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// True when some extent is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in row-major order. Panics when `T` is not the stored type.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype);
        self.data.chunks_exact(self.dtype.bytes()).map(T::from_le).collect()
    }
}
