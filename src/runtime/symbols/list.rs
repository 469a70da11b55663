//! The kernels of a module as pieces of code with names.

use crate::module::Module;
use crate::{Error, Result};

/// A piece of code with a name.
pub struct Symbol {
    pub name: String,
    /// First byte and length in the module's code.
    pub offset: usize,
    pub bytes: usize,
}

/// The phases of all kernels, by the names that they have in objects: `MODEL_kernel_NAME`, or `…_phase0` and so on.
pub fn symbols(module: &Module) -> Result<Vec<Symbol>> {
    let plain = |name: &str| {
        let words: Vec<&str> =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        words.join("_")
    };
    let mut symbols = vec![];
    for kernel in module.kernels() {
        for (i, phase) in kernel.phases.iter().enumerate() {
            let mut name = format!("{}_kernel_{}", plain(module.name()), plain(&kernel.name));
            if kernel.phases.len() > 1 {
                name += &format!("_phase{i}");
            }
            let (Ok(offset), Ok(bytes)) = (phase.offset.try_into(), phase.bytes.try_into()) else {
                return Err(Error::Limit(format!("the code of `{}` is larger than the memory", kernel.name)));
            };
            symbols.push(Symbol { name, offset, bytes });
        }
    }
    Ok(symbols)
}
