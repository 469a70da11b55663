//! Targets are data: features, registers and costs. Any target compiles on any host.

use crate::codegen::instruction::{InstructionName, TensorInstruction};
use crate::codegen::machine::{Core, Machine};
use crate::expr::choice::choice;
use crate::runtime::error::unknown;
use crate::runtime::{DType, Error, Features, Platform, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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

/// How quotients and square roots of f32 are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Quotients {
    /// Rounded correctly, as IEEE 754 defines them.
    #[default]
    Exact,
    /// Of vectors within three units in the last place, by estimates of the processor and one or two steps of Newton's iteration.
    Approximate,
}

choice!(Quotients, "kind of quotients", [("exact", Quotients::Exact), ("approximate", Quotients::Approximate)]);

/// The type of the sums of products of f16 in a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Accumulate {
    /// f32.
    #[default]
    F32,
    /// f16, in blocks of at most 512 terms that are added in f32, where the target has an instruction for it and that is faster.
    F16,
}

choice!(Accumulate, "type of sums", [("f32", Accumulate::F32), ("f16", Accumulate::F16)]);

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
    /// Processor features that code may use.
    pub features: Features,
    /// Tensor instructions that the features allow.
    pub instructions: Arc<[TensorInstruction]>,
    /// Its costs.
    pub machine: Machine,
    /// Its costs for loop programs: of this processor's core in the target of [`Target::host`], where they are known, otherwise
    /// the same. The shares by which operators of networks are priced were fitted with the table; of the core they have the time of tensor
    /// instructions.
    pub loop_machine: Machine,
    /// How it divides.
    pub quotients: Quotients,
    /// The type in which kernels of networks sum products of f16.
    pub accumulate: Accumulate,
}

const AVX2: Features = Features::AVX2.with(Features::FMA).with(Features::F16C);
const AVX512: Features =
    AVX2.with(Features::AVX512F).with(Features::AVX512BW).with(Features::AVX512DQ).with(Features::AVX512VL);

impl Target {
    /// Lanes of a full vector of elements of `bytes` bytes.
    pub fn lanes(&self, bytes: usize) -> usize {
        self.vector_bytes / bytes
    }

    /// Returns true for a target that permutes the bytes of several registers: a table of 256 stays in four.
    pub fn permutes_bytes(&self) -> bool {
        self.isa == Isa::Avx512 && self.features.contains(Features::AVX512VBMI)
    }

    /// Returns true if an instruction rounds f32 to bf16.
    pub fn narrows_to_bf16(&self) -> bool {
        self.isa == Isa::Avx512 && self.features.contains(Features::AVX512BF16)
    }

    /// Instructions that move a vector of `lanes` elements of `bytes` bytes each, neighbours `distance` elements apart, by whole
    /// vectors and permutations; `None` where each lane is moved on its own.
    pub fn close_moves(&self, distance: i64, bytes: usize, lanes: usize, store: bool) -> Option<i64> {
        let whole = match self.isa {
            Isa::Avx512 => true,
            Isa::Avx2 => !store && (distance, bytes) != (3, 8),
            Isa::Neon => false,
        };
        if self.isa == Isa::Avx512 && bytes <= 2 && store && distance > 1 {
            // the bytes of the lanes lie as far apart as the elements
            return (distance * (bytes * lanes) as i64 == self.vector_bytes as i64).then_some(1);
        }
        if self.isa != Isa::Neon && bytes <= 2 && !store && distance > 1 {
            let in_block = distance * 3 * bytes as i64 + bytes as i64 <= 16;
            let near = distance * bytes as i64 * (lanes as i64 - 1) < 64 && distance * (bytes as i64) < 4;
            if in_block && near && 4 * lanes == self.vector_bytes {
                // one load or two, a permutation or none, and a shuffle of the bytes of four lanes each
                return Some(3);
            }
            // blocks of 16 bytes are loaded, shuffled and merged, for each 16 bytes of elements
            let (part, parts) = (lanes.min(16 / bytes) as i64, (lanes * bytes).div_ceil(16) as i64);
            let blocks = (distance * bytes as i64 * (part - 1) + bytes as i64 + 15) / 16;
            return (2..=4).contains(&blocks).then_some(3 * blocks * parts + parts - 1);
        }
        (whole && (2..=4).contains(&distance) && matches!(bytes, 4 | 8)).then_some(2 * distance - 1)
    }

    /// Instructions that put `members` vectors of `lanes` elements of `bytes` bytes side by side, and stores of what these make: zips of
    /// two or four vectors whose elements fill their lanes, else `VStoreInterleaved`.
    pub fn interleaved_moves(&self, members: i64, bytes: usize, lanes: usize) -> (f64, f64) {
        let (n, stores) = (members as f64, (members as usize * bytes * lanes).div_ceil(self.vector_bytes) as f64);
        let joined = match members {
            2 | 4 if bytes >= 4 => n * n.log2(),
            // a permutation of each member, two blends for each vector
            _ if bytes >= 4 => 3.0 * n,
            // a shuffle of each member and a disjunction for each vector, then blocks are put side by side
            _ => stores * 2.0 * n,
        };
        (joined, stores)
    }

    /// Returns true if a tensor instruction of the target sums products of operands of types `factors` in type `sum`, several at
    /// a time, in less time than fused products take of as many that are widened first.
    pub fn sums_products(&self, factors: [DType; 2], sum: DType) -> bool {
        let fast = |row: &TensorInstruction| {
            row.terms_in_lane() as f64 >= self.row_factor(row) * self.machine.widened_halves_share
        };
        self.instructions.iter().any(|row| row.sums_products(factors, sum) && fast(row))
    }

    /// Time of a tensor instruction on vectors, in fused products.
    pub fn row_factor(&self, row: &TensorInstruction) -> f64 {
        match row.sums_products([DType::BF16; 2], DType::F32) && !row.is_tile() {
            true => self.machine.bf16_product_factor,
            false => 1.0,
        }
    }

    /// [`Target::row_factor`] of the row of this name.
    pub fn factor_of(&self, name: InstructionName) -> f64 {
        self.instructions.iter().find(|row| row.name == name).map_or(1.0, |row| self.row_factor(row))
    }

    /// Returns true if a tensor instruction of the target adds products of f16 to sums in f16.
    pub fn sums_halves(&self) -> bool {
        self.instructions.iter().any(TensorInstruction::sums_halves)
    }

    /// Returns true if the tensor instruction of this name works on tile registers.
    pub fn is_tile_row(&self, name: InstructionName) -> bool {
        self.instructions.iter().any(|row| row.name == name && row.is_tile())
    }

    /// Returns true if the sums of the tensor instruction of this name are loaded before the loops over their terms and stored
    /// behind them: those of several rows in a register, and those of f16.
    pub fn sums_throughout_loops(&self, name: InstructionName) -> bool {
        let special = |row: &TensorInstruction| row.is_tile() || row.is_matrix() || row.sums_halves();
        self.instructions.iter().any(|row| row.name == name && special(row))
    }

    /// Peak of one core in GFLOP/s for elements of `bytes` bytes (an FMA counts two).
    pub fn peak_gflops(&self, bytes: usize) -> f64 {
        2.0 * (self.lanes(bytes) * self.machine.fma_per_cycle) as f64 * self.machine.clock_ghz
    }

    fn new(name: &str, isa: Isa, [vector_bytes, vector_registers]: [usize; 2], features: Features) -> Target {
        let machine = match isa {
            Isa::Avx512 => Machine::AVX512,
            Isa::Avx2 => Machine::AVX2,
            Isa::Neon => Machine::NEON,
        };
        let (name, instructions) = (name.into(), Arc::new([]));
        let quotients = Quotients::Exact;
        Target {
            name,
            isa,
            vector_bytes,
            vector_registers,
            features,
            instructions,
            machine,
            loop_machine: machine,
            quotients,
            accumulate: Accumulate::F32,
        }
    }

    /// x86-64 with AVX-512 F, BW, DQ and VL.
    pub fn avx512() -> Target {
        Target::new("x86-64-avx512", Isa::Avx512, [64, 32], AVX512)
    }

    /// x86-64 with AVX-512 as [`Target::avx512`] and its dot products of bytes and words (VNNI).
    pub fn avx512_vnni() -> Target {
        Target::new("x86-64-avx512-vnni", Isa::Avx512, [64, 32], AVX512.with(Features::AVX512VNNI))
    }

    /// x86-64 with AVX-512, VNNI and bf16 as [`Target::avx512_vnni`], and products of tiles (AMX).
    pub fn amx() -> Target {
        let vectors = AVX512.with(Features::AVX512VNNI).with(Features::AVX512BF16);
        let tiles = Features::AMX_TILE.with(Features::AMX_BF16).with(Features::AMX_INT8);
        Target::new("x86-64-amx", Isa::Avx512, [64, 32], vectors.with(tiles))
    }

    /// x86-64 with AVX2, FMA and F16C.
    pub fn avx2() -> Target {
        Target::new("x86-64-avx2", Isa::Avx2, [32, 16], AVX2)
    }

    /// AArch64 with Advanced SIMD.
    pub fn neon() -> Target {
        Target::new("aarch64-neon", Isa::Neon, [16, 32], Features::NEON)
    }

    /// The target with those of `rows` in place of its tensor instructions that it can run.
    pub fn with_instructions<'a>(mut self, rows: impl IntoIterator<Item = &'a TensorInstruction>) -> Target {
        self.instructions = rows.into_iter().filter(|row| self.misfit(row).is_none()).cloned().collect();
        self
    }

    /// Why the target does not run a row: it lacks its features, or, unless the row works on tile registers, its vector registers are not as wide
    /// as those of the row, or not all of them can be named by the row's code.
    pub fn misfit(&self, row: &TensorInstruction) -> Option<String> {
        let (name, missing) = (row.name, row.features.without(self.features));
        if !missing.is_empty() {
            return Some(format!("`{name}` needs {}, which {} lacks", missing.names().join(" "), self.name));
        }
        if row.is_tile() {
            return None;
        }
        let (bits, own) = (8 * row.vector_bytes(), 8 * self.vector_bytes);
        if bits != own {
            return Some(format!("`{name}` works on vectors of {bits} bits, and {} has those of {own}", self.name));
        }
        let named = self.vector_bytes < 64 || !row.has_vex();
        (!named).then(|| {
            format!("the code of `{name}` can name 16 registers, and {} has {}", self.name, self.vector_registers)
        })
    }

    /// The target with the features of those of `rows` that this processor has.
    pub fn with_host_features_of(self, rows: &[TensorInstruction]) -> Target {
        let host = Features::host();
        let more = rows.iter().map(|row| row.features).filter(|&f| host.contains(f));
        let words: Vec<&str> = more.flat_map(|f| f.without(self.features).names()).collect();
        words.into_iter().fold(self, |target, word| {
            let known = Features::by_name(word).is_some_and(|f| target.features.contains(f));
            if known { target } else { target.clone().with_feature(word).unwrap_or(target) }
        })
    }

    /// The target with a processor feature more, by its word.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the word names no feature, or one of another architecture.
    pub fn with_feature(mut self, word: &str) -> Result<Target> {
        let more = Features::try_from(vec![word.to_string()]).map_err(Error::Invalid)?;
        if more.architecture() != self.features.architecture() {
            return Err(Error::Invalid(format!("`{word}` is not a feature of the processors of {}", self.name)));
        }
        self.features = self.features.with(more);
        self.name = format!("{}+{word}", self.name);
        Ok(self)
    }

    /// The target for loop programs.
    pub fn for_loops(self) -> Target {
        Target { machine: self.loop_machine, ..self }
    }

    /// The target on a processor core: loop programs have its constants, and networks the time of its tensor instructions, where they are for
    /// vectors of the target's width.
    fn on_core(self, core: Option<Core>) -> Target {
        match core.filter(|core| core.vector_bytes == self.vector_bytes) {
            Some(core) => {
                let bf16_product_factor = core.machine.bf16_product_factor;
                Target { machine: Machine { bf16_product_factor, ..self.machine }, loop_machine: core.machine, ..self }
            }
            None => self,
        }
    }

    /// The target with caches of other sizes.
    pub fn with_caches(mut self, cache_bytes: [usize; 3]) -> Target {
        self.machine.cache_bytes = cache_bytes;
        self.loop_machine.cache_bytes = cache_bytes;
        self
    }

    /// Every target, the richest of each architecture first.
    pub fn all() -> Vec<Target> {
        vec![Target::amx(), Target::avx512_vnni(), Target::avx512(), Target::avx2(), Target::neon()]
    }

    /// The target called `name`, with features after its name where it has some, as `x86-64-avx512-vnni+avx512bf16`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no target has this name, or the processors of the target no such feature; the message names
    /// those that exist.
    pub fn by_name(name: &str) -> Result<Target> {
        let (first, features) = name.split_once('+').map_or((name, None), |(first, rest)| (first, Some(rest)));
        let all = Target::all();
        let Some(target) = all.iter().find(|t| t.name == first) else {
            let names: Vec<&str> = all.iter().map(|t| t.name.as_str()).collect();
            return Err(Error::Invalid(unknown("target", first, &names)));
        };
        features.iter().flat_map(|words| words.split('+')).try_fold(target.clone(), Target::with_feature)
    }

    /// Requirements of code for the target.
    pub fn platform(&self) -> Platform {
        match self.isa {
            Isa::Avx2 | Isa::Avx512 => Platform::x86_64(self.features),
            Isa::Neon => Platform::aarch64(self.features),
        }
    }

    /// True when this process can run code for the target.
    pub fn runs_on_host(&self) -> bool {
        self.platform().check_host().is_ok()
    }

    /// The best target that this process can run code for, with the products that it has: of bytes, on AVX-512 and AArch64 of bf16
    /// and f16; and for loop programs with the constants of this processor's core, where they are known.
    pub fn host() -> Option<Target> {
        let target = Target::all().into_iter().find(Target::runs_on_host)?;
        let more: &[&str] = match target.isa {
            Isa::Avx512 => &["avx512bf16", "avx512fp16", "avx512vbmi", "avx512vpopcntdq"],
            Isa::Avx2 => &["avxvnni"],
            Isa::Neon => &["dotprod", "i8mm", "bf16", "fp16"],
        };
        let target = target.on_core(Core::host());
        Some(more.iter().fold(target, |target, word| {
            if Features::by_name(word).is_some_and(|feature| target.features.contains(feature)) {
                return target;
            }
            target.clone().with_feature(word).ok().filter(Target::runs_on_host).unwrap_or(target)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_part_of_a_name_is_the_one_that_is_said() {
        let refusal = |name: &str| Target::by_name(name).unwrap_err().to_string();
        assert!(refusal("x86-64-avx3").contains("there is no target `x86-64-avx3`: there are x86-64-amx,"));
        assert!(refusal("x86-64-avx2+avxvni").contains("there is no processor feature `avxvni`"));
        assert!(refusal("x86-64-avx2+avxvni").ends_with("did you mean `avxvnni`?"));
        assert!(refusal("x86-64-avx2+dotprod").contains("`dotprod` is not a feature of the processors of x86-64-avx2"));
        assert_eq!(Target::by_name("x86-64-avx2+avxvnni").unwrap().name, "x86-64-avx2+avxvnni");
    }

    #[test]
    fn constants_of_a_core_are_for_loop_programs_in_its_vectors() {
        let core = || Core::ALL.into_iter().find(|core| core.name == "znver5");
        let generic = Target::avx512();
        let target = generic.clone().on_core(core());
        assert_ne!(target.loop_machine, generic.machine);
        assert_eq!((target.machine, target.clone().for_loops().machine), (generic.machine, core().unwrap().machine));
        let intel = generic.clone().on_core(Core::ALL.into_iter().find(|core| core.name == "sapphirerapids"));
        assert!(intel.machine.bf16_product_factor > 2.0 * generic.machine.bf16_product_factor);
        let bf16_product_factor = generic.machine.bf16_product_factor;
        assert_eq!(Machine { bf16_product_factor, ..intel.machine }, generic.machine);
        for other in [Target::avx2(), Target::neon()] {
            assert_eq!(other.clone().on_core(core()), other);
        }
        assert_eq!(generic.clone().on_core(None), generic);
    }
}
