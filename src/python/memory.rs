//! Memory that Python and the library share: buffers of Python as tensors, tensors as buffers of Python. All unsafe code of this
//! package is here.

use crate::errors::{OrRaise, invalid};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::ops::Range;
use std::path::Path;
use tilewright::{AsView, AsViewMut, Bytes, DType, Module, Tensor, TensorView, TensorViewMut};

/// A contiguous buffer of Python, as a tensor that is read.
pub struct Input {
    buffer: PyUntypedBuffer,
    dtype: DType,
    shape: Vec<i64>,
}

impl Input {
    /// The elements of a buffer as a tensor of this type and shape; `None` where they are not contiguous in row-major order, or
    /// are not as many bytes.
    pub fn new(buffer: PyUntypedBuffer, dtype: DType, shape: Vec<i64>) -> Option<Input> {
        let bytes = shape.iter().try_fold(dtype.bytes() as i64, |bytes, &extent| bytes.checked_mul(extent));
        let fits = bytes == i64::try_from(buffer.len_bytes()).ok();
        (fits && buffer.is_c_contiguous()).then_some(Input { buffer, dtype, shape })
    }

    /// The addresses of its bytes.
    pub fn addresses(&self) -> Range<usize> {
        let first = self.buffer.buf_ptr().addr();
        first..first + self.buffer.len_bytes()
    }

    /// A copy.
    pub fn to_tensor(&self) -> Tensor {
        let view = self.view();
        Tensor { dtype: self.dtype, shape: self.shape.clone(), data: Bytes::from(view.data) }
    }
}

impl AsView for Input {
    fn view(&self) -> TensorView<'_> {
        let (first, length) = (self.buffer.buf_ptr().cast::<u8>().cast_const(), self.buffer.len_bytes());
        let data = match length {
            0 => &[],
            // SAFETY: the buffer is contiguous (`Input::new`), and its exporter keeps its bytes where they are while the buffer
            // is held, as long as `self`. That no other thread writes them during a run is what the documentation of the
            // package asks of its users, as NumPy does for its functions that run without the interpreter's lock.
            _ => unsafe { std::slice::from_raw_parts(first, length) },
        };
        TensorView { dtype: self.dtype, shape: &self.shape, data }
    }
}

/// A contiguous buffer of Python, as a tensor that is written.
pub struct Output(Input);

impl Output {
    /// A tensor that is written where it lies; `None` where the buffer is read-only.
    pub fn new(input: Input) -> Option<Output> {
        (!input.buffer.readonly()).then_some(Output(input))
    }

    /// The addresses of its bytes.
    pub fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }
}

impl AsView for Output {
    fn view(&self) -> TensorView<'_> {
        self.0.view()
    }
}

impl AsViewMut for Output {
    fn view_mut(&mut self) -> TensorViewMut<'_> {
        let (first, length) = (self.0.buffer.buf_ptr().cast::<u8>(), self.0.buffer.len_bytes());
        let data = match length {
            0 => &mut [],
            // SAFETY: as in `Input::view`; the buffer may be written (`Output::new`). Callers check that outputs overlap neither
            // each other nor an input, and `self` is borrowed mutably.
            _ => unsafe { std::slice::from_raw_parts_mut(first, length) },
        };
        TensorViewMut { dtype: self.0.dtype, shape: &self.0.shape, data }
    }
}

/// Elements that the library made, which arrays of Python have as their memory.
#[pyclass(frozen, module = "tilewright._native")]
pub struct Memory {
    first: *mut u8,
    length: usize,
    /// Owner of the bytes at `first`; not used otherwise.
    _bytes: Bytes,
}

// SAFETY: the bytes belong to this value alone, which does not touch them; who reads and writes them is up to Python, where
// arrays are shared by threads as NumPy says.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The elements of a tensor; memory that others hold too is copied.
    pub fn new(mut bytes: Bytes) -> Memory {
        // Where they lie does not change when the owner moves: they are on the heap, or pages of their own.
        let (first, length) = (bytes.as_mut_ptr(), bytes.len());
        Memory { first, length, _bytes: bytes }
    }
}

#[pymethods]
impl Memory {
    /// Lends the bytes.
    ///
    /// # Safety
    /// Python calls this with a buffer to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        // SAFETY: `view` is a buffer to fill. The bytes live as long as `slf`, to which the buffer gets a reference.
        let done = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.first.cast(), memory.length as ffi::Py_ssize_t, 0, flags)
        };
        if done == -1 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

/// Loads a saved module.
pub fn load(py: Python, path: &Path) -> PyResult<Module> {
    if path.as_os_str().is_empty() {
        return Err(invalid(py, "the path of a module is empty"));
    }
    let load = || {
        // SAFETY: `tilewright.load` says that the file is trusted as a program is, and must not change while it is in use; who
        // calls it vouches for the file.
        unsafe { Module::load(path) }
    };
    crate::fork::detached(py, load).or_raise(py)
}
