//! The limits of this processor, measured with the project's own instructions: multiply-adds, clock, bandwidth.
//!
//! In: a target that runs here. Out: the peak rates of one core. A share of the limit says more of a kernel than its
//! time: GFLOP/s of the outer product that register kernels are made of (with operands in registers, and with operands
//! loaded from the first cache), GB/s read from each level of the memory. Data are random, because zeros let the clock run
//! higher.

pub mod calibrate;
mod chain;
mod divider;
pub mod kernel;
mod outer_product;
mod stream;
mod walk;

use crate::codegen::Target;
use crate::runtime::Result;
use serde::Serialize;

pub use outer_product::{PeakProbe, Rates, measure_rates};
pub use stream::Level;

/// Peak rates of one core of a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limits {
    pub target: String,
    /// GFLOP/s with 32-bit elements.
    pub f32: Rates,
    /// GFLOP/s with 64-bit elements.
    pub f64: Rates,
    /// GHz while integers are added one after the other.
    pub clock_ghz: f64,
    /// Reading from each cache that the target describes, and from memory.
    pub bandwidth: Vec<Level>,
}

/// Measures everything in about `seconds`.
pub fn measure(target: &Target, seconds: f64) -> Result<Limits> {
    let part = seconds / 8.0;
    Ok(Limits {
        target: target.name.clone(),
        f32: measure_rates::<f32>(target, 2.0 * part)?,
        f64: measure_rates::<f64>(target, 2.0 * part)?,
        clock_ghz: stream::measure_clock(target, part)?,
        bandwidth: stream::measure_bandwidth(target, part)?,
    })
}
