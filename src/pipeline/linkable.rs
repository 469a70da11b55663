//! A kernel as a module and its report need it, and the store that keeps such kernels from one compilation to the next.
//!
//! In: a [`CompiledKernel`]. Out: what is left of it once it is machine code. Invariant: a kernel that a store finds is the one
//! that compiling its tensor expression for the same target would make, but for its name.

use crate::codegen::Target;
use crate::codegen::assemble::Assembled;
use crate::expr::BufferId;
use crate::pipeline::kernel::CompiledKernel;
use crate::pipeline::report::{KernelReport, Vectorization};
use crate::poly::analysis::index_range::IndexRange;
use crate::poly::lower::state;
use crate::poly::packing::Pack;
use crate::poly::statement::Program;
use crate::poly::tile::report::PhaseReport;
use serde::{Deserialize, Serialize};

/// A kernel of a module that is yet to be linked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkableKernel {
    pub name: String,
    pub assembled: Assembled,
    pub arguments: Vec<Argument>,
    /// Ranges that subscripts from data must lie in.
    pub index_ranges: Vec<IndexRange>,
    /// Bytes of each argument, and whether it is written.
    pub slots: Vec<(u64, bool)>,
    /// Operations of one run.
    pub flops: u64,
    /// The entry of the report for one run, without operators and nodes.
    report: KernelReport,
}

/// An argument of a kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Argument {
    /// An external tensor of the tensor expression.
    Tensor(BufferId),
    /// A constant of this shape, packed when the model is compiled.
    Packed { pack: Pack, shape: Vec<i64> },
    /// Memory that the kernel needs while it runs; contents undefined.
    Workspace { bytes: usize },
}

/// A place where kernels are kept by their tensor expressions, for one target.
pub trait KernelStore: Sync {
    /// The kernel of an expression, if it is there.
    fn find(&self, program: &Program) -> Option<LinkableKernel>;

    /// Keeps kernels that were not there, as far as that is possible.
    fn keep(&self, kernels: &[(&Program, &LinkableKernel)]);
}

impl LinkableKernel {
    /// Takes what is needed of a kernel. `prices`: the target, where the report has the price of loops that were the planner's only
    /// choice.
    pub fn new(compiled: &CompiledKernel, prices: Option<&Target>) -> LinkableKernel {
        let argument = |argument: &state::Argument| match argument {
            state::Argument::Tensor(id) => Argument::Tensor(*id),
            state::Argument::Packed(pack) => {
                Argument::Packed { pack: pack.clone(), shape: compiled.scop.tensor(pack.source).shape.clone() }
            }
            state::Argument::Workspace { bytes } => Argument::Workspace { bytes: *bytes },
        };
        LinkableKernel {
            name: compiled.name.clone(),
            assembled: compiled.assembled.clone(),
            arguments: compiled.kernel.arguments.iter().map(argument).collect(),
            index_ranges: compiled.index_ranges.clone(),
            slots: compiled.slots.clone(),
            flops: compiled.flops,
            report: report(compiled, prices),
        }
    }

    /// The kernel under another name.
    pub fn named(self, name: &str) -> LinkableKernel {
        let report = KernelReport { name: name.into(), ..self.report };
        LinkableKernel { name: name.into(), report, ..self }
    }

    /// Returns true if no loop runs element by element.
    pub fn vectorized(&self) -> bool {
        self.report.vectorization == Vectorization::Whole
    }

    /// Returns true if a tensor instruction was matched.
    pub fn tensorized(&self) -> bool {
        self.report.tensorized
    }

    /// The entry of the report for the kernel, number `code` of the module, which computes these operators so many times in a
    /// run.
    pub fn report(&self, code: usize, operators: Vec<String>, runs: u64) -> KernelReport {
        KernelReport {
            operators,
            code: Some(code),
            runs,
            flops: self.flops.saturating_mul(runs),
            predicted_us: self.report.predicted_us * runs as f64,
            ..self.report.clone()
        }
    }
}

/// The entry of the report for one run of a kernel.
fn report(compiled: &CompiledKernel, prices: Option<&Target>) -> KernelReport {
    let report = &compiled.kernel.report;
    let vectorization = compiled.vectorization();
    // A vector that the machine code does not have is none.
    let has_vector = |p: &PhaseReport| match &vectorization {
        Vectorization::Whole => true,
        Vectorization::Part(statements) => !statements.contains(&p.statement),
        Vectorization::None => false,
    };
    let phases =
        report.phases.iter().map(|p| PhaseReport { vector: p.vector.clone().filter(|_| has_vector(p)), ..p.clone() });
    KernelReport {
        name: compiled.name.clone(),
        nodes: vec![],
        operators: vec![],
        code: None,
        runs: 1,
        flops: compiled.flops,
        predicted_us: report.predicted_ns / 1e3,
        measured_us: None,
        opaque: false,
        tensorized: report.tensorized,
        phases: phases.collect(),
        candidates: compiled.candidate_reports(prices),
        vectorization,
        fallback: compiled.fallback().map(str::to_string),
    }
}
