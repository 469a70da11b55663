//! Roofline: the peak rates of the processor, and the time that an amount of work takes at least.

use serde::Serialize;
use tilewright::Target;
use tilewright::internal::codegen::probe;
use tilewright::{DType, Result};

/// Limits of all threads together: those of one core, measured in this run, times the threads.
#[derive(Serialize)]
pub struct Machine {
    pub threads: usize,
    /// GFLOP/s of multiply-adds with operands from the first cache.
    pub peak_f32: f64,
    pub peak_f64: f64,
    /// Of one core.
    pub clock_ghz: f64,
    /// The caches and then memory.
    pub levels: Vec<Level>,
}

#[derive(Serialize, Clone)]
pub struct Level {
    pub name: &'static str,
    /// Data that fit; of memory, nothing.
    pub holds: Option<usize>,
    pub gb_per_second: f64,
}

const SECONDS: f64 = 1.0;

impl Machine {
    /// Measures the limits of this machine for `target`.
    ///
    /// # Errors
    /// Those of the probes: `Unsupported` where the processor does not run the target.
    pub fn measure(target: &Target, threads: usize) -> Result<Machine> {
        let limits = probe::measure(target, SECONDS)?;
        let together = threads as f64;
        let level = |(i, l): (usize, &probe::Level)| Level {
            name: l.name,
            holds: target.machine.cache_bytes.get(i).copied(),
            gb_per_second: l.gb_per_second * together,
        };
        Ok(Machine {
            threads,
            peak_f32: limits.f32.from_l1 * together,
            peak_f64: limits.f64.from_l1 * together,
            clock_ghz: limits.clock_ghz,
            levels: limits.bandwidth.iter().enumerate().map(level).collect(),
        })
    }

    /// GFLOP/s in the arithmetic of a type; nothing is known of integers and half precision.
    pub fn peak(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.peak_f32),
            DType::F64 => Some(self.peak_f64),
            _ => None,
        }
    }

    /// The number of the first level that holds so many bytes.
    pub fn home(&self, bytes: u64) -> usize {
        self.levels.iter().position(|l| l.holds.is_none_or(|h| bytes <= h as u64)).unwrap_or(self.levels.len() - 1)
    }
}

/// The work of one run, and the least time that it can take.
#[derive(Serialize, Clone)]
pub struct Work {
    /// Type of the arithmetic: that of the outputs.
    pub dtype: String,
    /// Floating-point operations of the untransformed program.
    pub flops: f64,
    /// Bytes of all inputs and outputs: the least that a run moves.
    pub bytes: u64,
    /// The level that holds them between two runs.
    pub home: &'static str,
    /// Operations over the peak; `null` where no peak is known.
    pub compute_bound_ms: Option<f64>,
    /// Bytes over the bandwidth of their level.
    pub bandwidth_bound_ms: f64,
    pub peak_gflops: Option<f64>,
}

impl Work {
    pub fn new(machine: &Machine, dtype: DType, flops: f64, bytes: u64) -> Work {
        let level = &machine.levels[machine.home(bytes)];
        let peak_gflops = machine.peak(dtype);
        Work {
            dtype: dtype.to_string(),
            flops,
            bytes,
            home: level.name,
            compute_bound_ms: peak_gflops.map(|peak| flops / peak / 1e6),
            bandwidth_bound_ms: bytes as f64 / level.gb_per_second / 1e6,
            peak_gflops,
        }
    }
}
