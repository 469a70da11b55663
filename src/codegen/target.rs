//! Targets are data: features, registers and costs. Any target compiles on any host.

use crate::codegen::machine::Machine;
use crate::runtime::{Features, Platform};
use serde::{Deserialize, Serialize};

/// Instruction-set family that code is emitted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Isa {
    /// AVX2, FMA and F16C: 16 registers of 256 bits.
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
    /// Its costs.
    pub machine: Machine,
}

impl Target {
    /// Lanes of a full vector of elements of `bytes` bytes.
    pub fn lanes(&self, bytes: usize) -> usize {
        self.vector_bytes / bytes
    }

    /// Peak of one core in GFLOP/s for elements of `bytes` bytes (an FMA counts two).
    pub fn peak_gflops(&self, bytes: usize) -> f64 {
        2.0 * (self.lanes(bytes) * self.machine.fma_per_cycle) as f64 * self.machine.clock_ghz
    }

    /// x86-64 with AVX-512 F, BW, DQ and VL.
    pub fn avx512() -> Target {
        let name = "x86-64-avx512".into();
        Target { name, isa: Isa::Avx512, vector_bytes: 64, vector_registers: 32, machine: Machine::AVX512 }
    }

    /// x86-64 with AVX2, FMA and F16C.
    pub fn avx2() -> Target {
        let name = "x86-64-avx2".into();
        Target { name, isa: Isa::Avx2, vector_bytes: 32, vector_registers: 16, machine: Machine::AVX2 }
    }

    /// AArch64 with Advanced SIMD.
    pub fn neon() -> Target {
        let name = "aarch64-neon".into();
        Target { name, isa: Isa::Neon, vector_bytes: 16, vector_registers: 32, machine: Machine::NEON }
    }

    /// The target with caches of other sizes.
    pub fn with_caches(mut self, cache_bytes: [usize; 3]) -> Target {
        self.machine.cache_bytes = cache_bytes;
        self
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
        const AVX2: Features = Features::AVX2.with(Features::FMA).with(Features::F16C);
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
