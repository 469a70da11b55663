//! Targets are data: features, registers, ports, caches and peak rates. Any target compiles on any host.

use crate::runtime::{Features, Platform};
use serde::{Deserialize, Serialize};

/// Instruction-set family that code is emitted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Isa {
    /// AVX2 and FMA: 16 registers of 256 bits.
    Avx2,
    /// AVX-512 F, BW, DQ, VL: 32 registers of 512 bits, masks.
    Avx512,
    /// AArch64 Advanced SIMD: 32 registers of 128 bits.
    Neon,
}

/// Properties of a processor that the cost models and the code generator use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Name by which [`Target::by_name`] finds it, such as `x86-64-avx2`.
    pub name: String,
    /// Instruction set of the code.
    pub isa: Isa,
    /// Bytes of one vector register.
    pub vector_bytes: usize,
    /// Number of vector registers.
    pub vector_registers: usize,
    /// Vector FMA instructions started each cycle.
    pub fma_per_cycle: usize,
    /// Cycles from the start of an FMA until its result can be used.
    pub fma_latency: usize,
    /// Vector loads started each cycle.
    pub loads_per_cycle: usize,
    /// Data bytes of the caches of one core, L1 first; the last may be shared.
    pub cache_bytes: [usize; 3],
    /// Associativity of the L1 data cache.
    pub cache_ways_l1: usize,
    /// Bytes of one cache line.
    pub line_bytes: usize,
    /// Sustained clock under vector load, GHz.
    pub clock_ghz: f64,
    /// GB/s of one core from L1, L2, L3 and memory.
    pub bandwidth: [f64; 4],
    /// Cost of starting one parallel kernel, ns.
    pub launch_ns: f64,
}

impl Target {
    /// Lanes of a full vector of elements of `bytes` bytes.
    pub fn lanes(&self, bytes: usize) -> usize {
        self.vector_bytes / bytes
    }

    /// Peak of one core in GFLOP/s for elements of `bytes` bytes (an FMA counts two).
    pub fn peak_gflops(&self, bytes: usize) -> f64 {
        2.0 * (self.lanes(bytes) * self.fma_per_cycle) as f64 * self.clock_ghz
    }

    /// x86-64 with AVX-512 F, BW, DQ and VL.
    pub fn avx512() -> Target {
        Target {
            name: "x86-64-avx512".into(),
            isa: Isa::Avx512,
            vector_bytes: 64,
            vector_registers: 32,
            fma_per_cycle: 2,
            fma_latency: 4,
            loads_per_cycle: 2,
            cache_bytes: [48 << 10, 2 << 20, 32 << 20],
            cache_ways_l1: 12,
            line_bytes: 64,
            clock_ghz: 3.2,
            bandwidth: [400.0, 150.0, 30.0, 15.0],
            launch_ns: 1000.0,
        }
    }

    /// x86-64 with AVX2 and FMA.
    pub fn avx2() -> Target {
        Target {
            name: "x86-64-avx2".into(),
            isa: Isa::Avx2,
            vector_bytes: 32,
            vector_registers: 16,
            cache_bytes: [32 << 10, 1 << 20, 16 << 20],
            cache_ways_l1: 8,
            clock_ghz: 3.4,
            bandwidth: [200.0, 100.0, 30.0, 15.0],
            ..Target::avx512()
        }
    }

    /// AArch64 with Advanced SIMD.
    pub fn neon() -> Target {
        Target {
            name: "aarch64-neon".into(),
            isa: Isa::Neon,
            vector_bytes: 16,
            vector_registers: 32,
            cache_bytes: [64 << 10, 1 << 20, 16 << 20],
            cache_ways_l1: 4,
            clock_ghz: 2.6,
            bandwidth: [80.0, 60.0, 30.0, 20.0],
            ..Target::avx512()
        }
    }

    /// Every target, the widest of each architecture first.
    pub fn all() -> Vec<Target> {
        vec![Target::avx512(), Target::avx2(), Target::neon()]
    }

    /// The target called `name`; `None` where no target has this name.
    pub fn by_name(name: &str) -> Option<Target> {
        Target::all().into_iter().find(|t| t.name == name)
    }

    /// Requirements of code for the target.
    pub fn platform(&self) -> Platform {
        const AVX2: Features = Features::AVX2.with(Features::FMA);
        const AVX512: Features =
            AVX2.with(Features::AVX512F).with(Features::AVX512BW).with(Features::AVX512DQ).with(Features::AVX512VL);
        match self.isa {
            Isa::Avx2 => Platform::x86_64(AVX2),
            Isa::Avx512 => Platform::x86_64(AVX512),
            Isa::Neon => Platform::aarch64(Features::NEON),
        }
    }

    /// True when this process can run code for the target.
    pub fn runs_on_host(&self) -> bool {
        self.platform().check_host().is_ok()
    }

    /// The best target that this processor runs.
    pub fn host() -> Option<Target> {
        Target::all().into_iter().find(Target::runs_on_host)
    }
}
