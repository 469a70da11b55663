//! The platform that machine code needs: architecture, processor features, calling convention, kind of system.
//!
//! In: a compiled module's requirements. Out: what this processor lacks of them. The table of features stands here once: the
//! code generator names features by its constants, the module format by their words, detection by both.

use crate::error::unknown;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// A set of processor features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<&'static str>")]
pub struct Features(u32);

/// Asks this processor for a feature: by Rust's detection, or for tile registers by [`tiles`], since Rust's is unstable there.
macro_rules! detected {
    (tiles, $word:tt) => {
        tiles::has($word)
    };
    ($detect:ident, $word:tt) => {
        std::arch::$detect!($word)
    };
}

/// One row for each feature: constant, word of Rust's feature detection.
macro_rules! features {
    ($($(#[$doc:meta])* $constant:ident = $bit:literal, $arch:literal, $detect:ident, $word:tt;)*) => {
        impl Features {
            $(#[doc = concat!("`", $word, "`, in the words of Rust's feature detection.")] $(#[$doc])* pub const $constant: Features = Features(1 << $bit);)*

            /// Word, set and architecture of each feature.
            const ALL: &[(&'static str, Features, &'static str)] = &[$(($word, Features::$constant, $arch)),*];

            /// The features of this processor.
            pub fn host() -> Features {
                let mut set = Features::default();
                $(
                    #[cfg(target_arch = $arch)]
                    if detected!($detect, $word) {
                        set = set.with(Features::$constant);
                    }
                )*
                set
            }
        }
    };
}

features! {
    AVX2 = 0, "x86_64", is_x86_feature_detected, "avx2";
    FMA = 1, "x86_64", is_x86_feature_detected, "fma";
    F16C = 2, "x86_64", is_x86_feature_detected, "f16c";
    AVX512F = 3, "x86_64", is_x86_feature_detected, "avx512f";
    AVX512BW = 4, "x86_64", is_x86_feature_detected, "avx512bw";
    AVX512DQ = 5, "x86_64", is_x86_feature_detected, "avx512dq";
    AVX512VL = 6, "x86_64", is_x86_feature_detected, "avx512vl";
    AVX512VNNI = 7, "x86_64", is_x86_feature_detected, "avx512vnni";
    AVX_VNNI = 8, "x86_64", is_x86_feature_detected, "avxvnni";
    AVX512BF16 = 9, "x86_64", is_x86_feature_detected, "avx512bf16";
    AVX512FP16 = 10, "x86_64", is_x86_feature_detected, "avx512fp16";
    NEON = 11, "aarch64", is_aarch64_feature_detected, "neon";
    DOTPROD = 12, "aarch64", is_aarch64_feature_detected, "dotprod";
    I8MM = 13, "aarch64", is_aarch64_feature_detected, "i8mm";
    BF16 = 14, "aarch64", is_aarch64_feature_detected, "bf16";
    FP16 = 15, "aarch64", is_aarch64_feature_detected, "fp16";
    AVX512IFMA = 16, "x86_64", is_x86_feature_detected, "avx512ifma";
    AVX512VBMI = 17, "x86_64", is_x86_feature_detected, "avx512vbmi";
    AVX512VBMI2 = 18, "x86_64", is_x86_feature_detected, "avx512vbmi2";
    AVX512BITALG = 19, "x86_64", is_x86_feature_detected, "avx512bitalg";
    AVX512VPOPCNTDQ = 20, "x86_64", is_x86_feature_detected, "avx512vpopcntdq";
    GFNI = 21, "x86_64", is_x86_feature_detected, "gfni";
    /// Tile registers, which the system has to give to the process.
    AMX_TILE = 22, "x86_64", tiles, "amx-tile";
    AMX_BF16 = 23, "x86_64", tiles, "amx-bf16";
    AMX_INT8 = 24, "x86_64", tiles, "amx-int8";
}

/// Tile registers (AMX): a processor may have them, and the system gives them to a process that asks.
#[cfg(target_arch = "x86_64")]
mod tiles {
    use std::sync::OnceLock;

    /// Returns true if this processor has the feature of this word and this process may use tile registers.
    pub fn has(word: &str) -> bool {
        let bit = match word {
            "amx-bf16" => 22,
            "amx-tile" => 24,
            _ => 25,
        };
        static FEATURES: OnceLock<u32> = OnceLock::new();
        let granted = || if are_there() && permitted() { features() } else { 0 };
        FEATURES.get_or_init(granted) >> bit & 1 == 1
    }

    /// Returns true if this processor has tile registers, whether or not the system gives them.
    pub fn are_there() -> bool {
        features() >> 24 & 1 == 1
    }

    /// EDX of leaf 7 of `cpuid`.
    fn features() -> u32 {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        // SAFETY: every processor of this architecture has the instruction; leaf 7 is asked for where it exists.
        #[allow(unused_unsafe)]
        unsafe {
            if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).edx } else { 0 }
        }
    }

    /// Asks the system for the state of tile registers; Linux gives it to all threads of the process.
    #[cfg(target_os = "linux")]
    fn permitted() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        // SAFETY: the call takes two numbers and touches no memory of the process.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn permitted() -> bool {
        false
    }
}

/// The maker of this processor and the number of its design, by which its costs are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorId {
    /// The maker as `cpuid` gives it, such as `AuthenticAMD`.
    pub vendor: [u8; 12],
    /// The family, with its extension.
    pub family: u32,
    /// The model, with its extension.
    pub model: u32,
    /// It has tile registers (AMX), whether or not the system lets programs use them.
    pub has_tiles: bool,
}

impl ProcessorId {
    /// Of this processor; `None` where there is no `cpuid`.
    #[cfg(target_arch = "x86_64")]
    pub fn host() -> Option<ProcessorId> {
        use std::arch::x86_64::__cpuid;
        // SAFETY: every processor of this architecture has the instruction and the first two leaves.
        #[allow(unused_unsafe)]
        let (names, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
        let mut vendor = [0; 12];
        for (part, word) in vendor.chunks_exact_mut(4).zip([names.ebx, names.edx, names.ecx]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        let (family, model) = (version >> 8 & 0xf, version >> 4 & 0xf);
        let extended = if family == 0xf { version >> 20 & 0xff } else { 0 };
        let high = if matches!(family, 0x6 | 0xf) { version >> 12 & 0xf0 } else { 0 };
        Some(ProcessorId { vendor, family: family + extended, model: model | high, has_tiles: tiles::are_there() })
    }

    /// Of this processor; `None` where there is no `cpuid`.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn host() -> Option<ProcessorId> {
        None
    }
}

impl Features {
    /// Both sets together.
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// The features of this set that the other lacks.
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// True when every feature of `other` is in this set.
    pub const fn contains(self, other: Features) -> bool {
        other.0 & !self.0 == 0
    }

    /// True when the set has no feature.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The architecture of the features, in the words of Rust's `target_arch`; none of the empty set.
    pub fn architecture(self) -> Option<&'static str> {
        Features::ALL.iter().find(|row| self.contains(row.1)).map(|row| row.2)
    }

    /// All features of an architecture, in the words of Rust's `target_arch`.
    pub fn of_architecture(name: &str) -> Features {
        Features::ALL.iter().filter(|row| row.2 == name).fold(Features::default(), |set, row| set.with(row.1))
    }

    /// The words of all features.
    pub fn all_names() -> Vec<&'static str> {
        Features::ALL.iter().map(|row| row.0).collect()
    }

    /// The feature of this word; `None` where there is none.
    pub fn by_name(word: &str) -> Option<Features> {
        Features::ALL.iter().find(|row| row.0 == word).map(|row| row.1)
    }

    /// The words of the features, in the order of the table.
    pub fn names(self) -> Vec<&'static str> {
        Features::ALL.iter().filter(|row| self.contains(row.1)).map(|row| row.0).collect()
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl From<Features> for Vec<&'static str> {
    fn from(features: Features) -> Vec<&'static str> {
        features.names()
    }
}

impl TryFrom<Vec<String>> for Features {
    type Error = String;

    fn try_from(words: Vec<String>) -> std::result::Result<Features, String> {
        words.iter().try_fold(Features::default(), |set, word| {
            let feature = Features::by_name(word);
            feature.map(|f| set.with(f)).ok_or_else(|| unknown("processor feature", word, &Features::all_names()))
        })
    }
}

/// Requirements of the code of a module.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Platform {
    /// Processor architecture, in the words of Rust's `target_arch`.
    pub architecture: String,
    /// Calling convention of the kernels: `sysv64` or `aapcs64`, on every system.
    pub abi: String,
    /// Family of operating systems, in the words of Rust's `target_family`: kernels use more than a page of stack without
    /// probing it, which `unix` systems allow.
    pub system: String,
    /// Processor features that the code uses.
    pub features: Features,
}

impl Platform {
    /// x86-64 with these features.
    pub fn x86_64(features: Features) -> Platform {
        Platform { architecture: "x86_64".into(), abi: "sysv64".into(), system: "unix".into(), features }
    }

    /// AArch64 with these features.
    pub fn aarch64(features: Features) -> Platform {
        Platform { architecture: "aarch64".into(), abi: "aapcs64".into(), system: "unix".into(), features }
    }

    /// The platform of this process.
    pub fn host() -> Platform {
        let (architecture, system) = (std::env::consts::ARCH, std::env::consts::FAMILY);
        let platform = match architecture {
            "x86_64" => Platform::x86_64(Features::host()),
            _ => Platform::aarch64(Features::host()),
        };
        Platform { architecture: architecture.into(), system: system.into(), ..platform }
    }

    /// Checks that this process can run code for the platform.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what is missing.
    pub fn check_host(&self) -> Result<()> {
        let host = Platform::host();
        if self.architecture != host.architecture {
            return Err(Error::Unsupported(format!(
                "{} code, but this processor is {}",
                self.architecture, host.architecture
            )));
        }
        if self.abi != host.abi {
            return Err(Error::Unsupported(format!("code for the calling convention {}, not {}", self.abi, host.abi)));
        }
        if self.system != host.system {
            return Err(Error::Unsupported(format!(
                "code for {} systems, but this one is {}",
                self.system, host.system
            )));
        }
        let missing = self.features.without(host.features).names();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Unsupported(format!("code for a processor with {}, which this one lacks", missing.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_words() {
        let set = Features::FMA.with(Features::AVX2);
        assert_eq!(set.names(), ["avx2", "fma"]);
        assert!(set.contains(Features::AVX2) && !Features::AVX2.contains(set));
        assert_eq!(set.without(Features::AVX2), Features::FMA);
        for &(word, feature, _) in Features::ALL {
            assert_eq!(Features::try_from(vec![word.to_string()]).unwrap(), feature);
        }
        assert!(Features::try_from(vec!["avx2048".to_string()]).unwrap_err().contains("avx2048"));
    }

    #[test]
    fn what_is_missing_is_said() {
        let host = Platform::host();
        host.check_host().unwrap();
        let refused = |platform: Platform| platform.check_host().unwrap_err().to_string();
        assert!(refused(Platform { architecture: "z80".into(), ..host.clone() }).contains("z80"));
        assert!(refused(Platform { abi: "fastcall".into(), ..host.clone() }).contains("fastcall"));
        assert!(refused(Platform { system: "plan9".into(), ..host.clone() }).contains("plan9"));
        let foreign = Features(!0).without(host.features);
        let message = refused(Platform { features: foreign, ..host.clone() });
        assert!(foreign.names().iter().all(|word| message.contains(word)), "{message}");
    }
}
