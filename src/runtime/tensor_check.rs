//! Checks of the tensors of a run against their declarations.

use crate::module::TensorSpec;
use crate::tensor::TensorView;
use crate::{Error, Result};

/// Type and shape for messages.
pub(crate) fn shown(spec: &TensorSpec) -> String {
    let dims: Vec<String> = spec.shape.iter().map(i64::to_string).collect();
    format!("{} {}", spec.dtype, if dims.is_empty() { "scalar".into() } else { dims.join("×") })
}

/// Refuses a tensor of another type, shape or number of bytes than its declaration; `role` is input or output.
pub(crate) fn check_tensor(role: &str, spec: &TensorSpec, tensor: &TensorView) -> Result<()> {
    if tensor.dtype != spec.dtype || tensor.shape != spec.shape {
        let actual = TensorSpec { name: String::new(), dtype: tensor.dtype, shape: tensor.shape.to_vec() };
        return Err(Error::Invalid(format!(
            "{role} `{}` is {}, but the compiled model wants {}",
            spec.name,
            shown(&actual),
            shown(spec)
        )));
    }
    if tensor.data.len() as u64 != spec.bytes()? {
        return Err(Error::Invalid(format!(
            "{role} `{}` of {} has {} bytes of data",
            spec.name,
            shown(spec),
            tensor.data.len()
        )));
    }
    Ok(())
}
