//! The driver from VCode to bytes: allocates registers, checks the allocation, encodes instructions.

use crate::codegen::regalloc::allocation::{Allocation, RegisterFile};
use crate::codegen::regalloc::checker;
use crate::codegen::vcode::Function;
use crate::codegen::{Isa, Target, aarch64, regalloc, select, x86};
use crate::runtime::Result;
use serde::{Deserialize, Serialize};

/// The machine code of one kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assembled {
    pub phases: Vec<Phase>,
    /// True if no innermost loop works on single elements (see [`lower::vectorized`]).
    pub vectorized: bool,
    /// Some instruction loads or stores several lanes.
    pub has_vectors: bool,
}

/// The machine code of one phase: position-independent, with its constants; the convention is that of VCode.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub code: Vec<u8>,
    /// Iterations of the parallel loop; `None` for a serial phase.
    pub parallel: Option<i64>,
    /// Iterations between two barriers of the parallel loop.
    pub wave: Option<i64>,
    /// Scratch memory that each thread brings, 64-byte aligned.
    pub scratch_bytes: u64,
}

/// The machine code of the phases of a kernel.
pub fn assemble_functions(functions: &[Function], target: &Target) -> Result<Assembled> {
    let phases = functions.iter().map(|f| assemble_function(f, target)).collect::<Result<_>>()?;
    let vectorized = functions.iter().all(select::vectorized);
    Ok(Assembled { phases, vectorized, has_vectors: functions.iter().any(select::has_vectors) })
}

fn assemble_function(function: &Function, target: &Target) -> Result<Phase> {
    let allocation = regalloc::allocate(function, target)?;
    checker::check(function, &allocation, target)?;
    let code = emit(function, &allocation, target.isa)?;
    let &Function { parallel, wave, scratch_bytes, .. } = function;
    Ok(Phase { code, parallel, wave, scratch_bytes })
}

/// The machine code of a function whose registers are chosen.
pub fn emit(function: &Function, allocation: &Allocation, isa: Isa) -> Result<Vec<u8>> {
    Ok(emit_steps(function, allocation, isa)?.0)
}

/// The machine code, and where the code of each step starts; the last entry is the end of the last step.
pub fn emit_steps(function: &Function, allocation: &Allocation, isa: Isa) -> Result<(Vec<u8>, Vec<usize>)> {
    match isa {
        Isa::Avx2 | Isa::Avx512 => x86::emit(function, allocation, isa),
        Isa::Neon => aarch64::emit(function, allocation),
    }
}

impl RegisterFile {
    pub fn of(isa: Isa) -> RegisterFile {
        match isa {
            Isa::Avx2 | Isa::Avx512 => x86::register_file(isa),
            Isa::Neon => aarch64::register_file(),
        }
    }
}
