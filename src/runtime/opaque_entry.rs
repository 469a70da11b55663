//! The entry to opaque functions for drivers in C: what `model.c` calls, in `libtilewright_runtime.a`.
//!
//! In: a function's name, its attributes and the operands as addresses with shapes. Out: 0, or the kind of the failure. No panic
//! crosses. The number in the symbol's name changes with its meaning, so that a driver of another version does not link.

use crate::error::guard;
use crate::opaque::{MAX_OPERANDS, View, ViewMut, lookup};
use crate::{DType, Error, Result};
use std::ffi::{CStr, c_char};
use std::slice;

/// An operand: dense, row-major, at any address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OpaqueView {
    /// The first element.
    pub data: *mut u8,
    /// Extents, outermost first.
    pub shape: *const i64,
    /// Number of extents.
    pub rank: u32,
    /// Number of the element type in the order of [`DType`].
    pub dtype: u32,
}

impl OpaqueView {
    /// Type, extents and bytes.
    ///
    /// # Safety
    /// `shape` points to `rank` numbers.
    unsafe fn parts<'a>(&self) -> Result<(DType, &'a [i64], usize)> {
        let invalid = || Error::Invalid(format!("an operand of type {} and {} dimensions", self.dtype, self.rank));
        let dtype = DType::all().nth(self.dtype as usize).ok_or_else(invalid)?;
        let shape = match self.rank {
            0 => &[],
            // SAFETY: as promised by the caller.
            rank => unsafe { slice::from_raw_parts(self.shape, rank as usize) },
        };
        let extents = shape.iter().map(|&extent| usize::try_from(extent).ok());
        let bytes = extents.clone().try_fold(dtype.bytes(), |product, extent| product.checked_mul(extent?));
        // an empty tensor may have extents whose product has no number
        let bytes = if shape.contains(&0) { Some(0) } else { bytes };
        Ok((dtype, shape, bytes.filter(|&n| n <= isize::MAX as usize).ok_or_else(invalid)?))
    }
}

/// Runs an opaque function; returns 0, or 1 where it refuses its operands, 2 where there is no such function, 3 for a defect.
///
/// # Safety
/// `function` is a string that ends with a zero byte; the other pointers lead to as many elements as the count behind each
/// says, the views' `data` to all of their elements. What is written overlaps no other operand, and nobody else uses it during
/// the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_opaque_1(
    function: *const c_char,
    attributes: *const i64,
    attribute_count: usize,
    inputs: *const OpaqueView,
    input_count: usize,
    outputs: *const OpaqueView,
    output_count: usize,
) -> i32 {
    let run = || {
        if input_count > MAX_OPERANDS || output_count > MAX_OPERANDS {
            return Err(Error::Invalid("too many operands".into()));
        }
        // SAFETY: as promised by the caller; the views are checked before their elements are looked at.
        unsafe {
            let function = lookup(&CStr::from_ptr(function).to_string_lossy());
            let function = function.ok_or_else(|| Error::Unsupported("no such function".into()))?;
            let mut read = [View { dtype: DType::U8, shape: &[0], data: &[] }; MAX_OPERANDS];
            for (view, value) in read.iter_mut().zip(elements(inputs, input_count)) {
                let (dtype, shape, bytes) = value.parts()?;
                *view = View { dtype, shape, data: elements(value.data, bytes) };
            }
            let mut written: [ViewMut; MAX_OPERANDS] =
                std::array::from_fn(|_| ViewMut { dtype: DType::U8, shape: &[0], data: &mut [] });
            for (view, value) in written.iter_mut().zip(elements(outputs, output_count)) {
                let (dtype, shape, bytes) = value.parts()?;
                let data: &mut [u8] = if bytes == 0 { &mut [] } else { slice::from_raw_parts_mut(value.data, bytes) };
                *view = ViewMut { dtype, shape, data };
            }
            function(elements(attributes, attribute_count), &read[..input_count], &mut written[..output_count])
        }
    };
    match guard(run) {
        Ok(()) => 0,
        Err(Error::Unsupported(_)) => 2,
        Err(Error::Internal(_)) => 3,
        Err(_) => 1,
    }
}

/// So many elements from an address on, which may be anything where there are none.
///
/// # Safety
/// As `slice::from_raw_parts`, but for an address of no elements.
unsafe fn elements<'a, T>(address: *const T, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: as promised by the caller.
        _ => unsafe { slice::from_raw_parts(address, count) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(data: *mut u8, shape: &[i64], dtype: DType) -> OpaqueView {
        OpaqueView { data, shape: shape.as_ptr(), rank: shape.len() as u32, dtype: dtype as u32 }
    }

    #[test]
    fn a_function_runs_on_addresses_and_refuses_what_is_wrong() {
        let (x, mut y) = ([3f32, 9.0, 1.0, 9.0], [-1i64; 1]);
        let run = |name: &CStr, attributes: &[i64], input: OpaqueView, output: OpaqueView| {
            // SAFETY: all pointers lead to the arrays of this test.
            unsafe { tilewright_opaque_1(name.as_ptr(), attributes.as_ptr(), attributes.len(), &input, 1, &output, 1) }
        };
        let input = view(x.as_ptr().cast_mut().cast(), &[4], DType::F32);
        let output = view(y.as_mut_ptr().cast(), &[1], DType::I64);
        assert_eq!(run(c"argmax", &[0, 0, 1], input, output), 0);
        assert_eq!(y, [3]);
        assert_eq!(run(c"argmax", &[7, 0, 0], input, output), 1);
        assert_eq!(run(c"nothing", &[], input, output), 2);
        assert_eq!(run(c"argmax", &[0, 0, 1], OpaqueView { dtype: 99, ..input }, output), 1);
        assert_eq!(run(c"argmax", &[0, 0, 1], view(input.data, &[-4], DType::F32), output), 1);
        assert_eq!(y, [3]);
    }
}
