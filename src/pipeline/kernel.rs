//! One kernel's way from its tensor expression to machine code, stage by stage.
//!
//! In: a Program and a target. Out: a [`CompiledKernel`], or the text of one stage. Invariant: what a stage makes is
//! verified before the next stage sees it.

use crate::codegen::assemble::{Assembled, assemble};
use crate::codegen::loopnest::{BufferKind, LoopNest};
use crate::codegen::{self, Target};
use crate::pipeline::report::Vectorization;
use crate::poly::analysis::dependence::Dependences;
use crate::poly::analysis::index_range::IndexRange;
use crate::poly::schedule::{RowKind, Schedule, Step};
use crate::poly::scop::Scop;
use crate::poly::statement::{Program, Statement, StatementId};
use crate::poly::tile::report::Tiled;
use crate::poly::transform::state::Transformed;
use crate::poly::{self, lower, tile};
use crate::{Error, Result};
use std::time::Instant;

/// What can be shown of a compilation, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// The imported graph.
    Graph,
    /// The graph after the e-graph, and its groups.
    Rewritten,
    /// A program of the text language as plain C, untransformed.
    C,
    /// Statements of each kernel.
    Scop,
    /// The ILP's schedule, then the tiled one.
    Schedule,
    /// Explicit loops.
    Loops,
    /// Machine instructions over virtual registers.
    Vcode,
    /// Disassembled machine code.
    Asm,
}

/// Name, stage.
pub const STAGES: &[(&str, Stage)] = &[
    ("graph", Stage::Graph),
    ("rewritten", Stage::Rewritten),
    ("c", Stage::C),
    ("scop", Stage::Scop),
    ("schedule", Stage::Schedule),
    ("loops", Stage::Loops),
    ("vcode", Stage::Vcode),
    ("asm", Stage::Asm),
];

/// The stages of one kernel that are timed.
pub const TIMED: [&str; 7] = ["scop", "dependences", "schedule", "tile", "legality", "loops", "code"];

/// A kernel with machine code and what led to it.
pub struct CompiledKernel {
    pub name: String,
    pub scop: Scop,
    pub schedule: Schedule,
    pub ilp: crate::poly::ilp::report::Report,
    pub tiled: crate::poly::tile::report::Tiled,
    pub kernel: lower::Kernel,
    pub assembled: Assembled,
    /// What subscripts from data must satisfy.
    pub index_ranges: Vec<IndexRange>,
    /// Bytes of each argument, and whether it is written.
    pub slots: Vec<(u64, bool)>,
    pub flops: u64,
    /// Milliseconds of each of [`TIMED`].
    pub times: [f64; TIMED.len()],
}

impl CompiledKernel {
    /// No loop runs element by element; what computes single elements has no loops.
    pub fn vectorized(&self) -> bool {
        self.vectorization() == Vectorization::Whole
    }

    /// Which part of the kernel works on vectors. What computes single elements has no loops and counts as vectors.
    pub fn vectorization(&self) -> Vectorization {
        let single = |s: &Statement| s.iterators.iter().all(|i| i.extent <= 1);
        if self.assembled.vectorized || self.scop.statements.iter().all(single) {
            return Vectorization::Whole;
        }
        if !self.assembled.has_vectors {
            return Vectorization::None;
        }
        let in_lanes = |step: &Step| matches!(step, Step::Row(row) if row.kind == RowKind::Vector);
        let scalar =
            |id: &StatementId| !single(self.scop.statement(*id)) && !self.tiled.schedule.path(*id).iter().any(in_lanes);
        Vectorization::Part(self.scop.ids().filter(scalar).map(|id| self.scop.statement(id).name.clone()).collect())
    }

    pub fn tensorized(&self) -> bool {
        self.kernel.report.tensorized
    }
}

/// What there is to see after a stage.
pub struct Seen<'a> {
    pub text: &'a dyn Fn() -> Result<String>,
    /// At [`Stage::Schedule`]: the statements and their order.
    pub scheduled: Option<(&'a Scop, &'a crate::poly::tile::report::Tiled)>,
}

impl<'a> Seen<'a> {
    fn text(text: &'a dyn Fn() -> Result<String>) -> Seen<'a> {
        Seen { text, scheduled: None }
    }
}

/// Is told after each stage what there is to see; `false` stops there.
pub type Observer<'a> = dyn FnMut(Stage, &Seen) -> Result<bool> + 'a;

/// Compiles a tensor expression. `None` when `after` has stopped it.
pub fn compile(name: &str, program: &Program, target: &Target, after: &mut Observer) -> Result<Option<CompiledKernel>> {
    let start = Instant::now();
    let index_ranges = crate::poly::analysis::index_range::index_ranges(program)?;
    let scop = crate::poly::normalize::build::build(name, program)?;
    compile_statements(scop, None, index_ranges, target, after, start)
}

/// Compiles a loop program. `None` when `after` has stopped it.
pub fn compile_loops(scop: &Scop, target: &Target, after: &mut Observer) -> Result<Option<CompiledKernel>> {
    let start = Instant::now();
    let index_ranges = crate::poly::analysis::index_range::index_ranges(&scop.as_definitions())?;
    let scop = crate::poly::normalize::array_expansion::expand(&crate::poly::normalize::index_set_split::split(scop)?)?;
    compile_statements(scop, None, index_ranges, target, after, start)
}

/// Compiles a tensor expression in its original order: its statements one after the other, without tiles and vectors. `None`
/// when `after` has stopped it.
pub fn compile_untransformed(
    name: &str,
    program: &Program,
    target: &Target,
    after: &mut Observer,
) -> Result<Option<CompiledKernel>> {
    let index_ranges = crate::poly::analysis::index_range::index_ranges(program)?;
    compile_as_given(
        &Transformed::new(crate::poly::normalize::build::build(name, program)?),
        index_ranges,
        target,
        after,
    )
}

/// Compiles a program, whose subscripts from data have these ranges, in the order of a schedule by hand. `None` when `after`
/// has stopped it.
pub fn compile_as_given(
    given: &Transformed,
    index_ranges: Vec<IndexRange>,
    target: &Target,
    after: &mut Observer,
) -> Result<Option<CompiledKernel>> {
    let start = Instant::now();
    compile_statements(given.scop.clone(), Some(given), index_ranges, target, after, start)
}

/// From the Scop on, which was begun at `start`.
fn compile_statements(
    scop: Scop,
    given: Option<&Transformed>,
    index_ranges: Vec<IndexRange>,
    target: &Target,
    after: &mut Observer,
    start: Instant,
) -> Result<Option<CompiledKernel>> {
    let mut times = [0.0; TIMED.len()];
    let mut clock = start;
    let mut lap = |stage: &str| {
        let now = Instant::now();
        if let Some(i) = TIMED.iter().position(|s| *s == stage) {
            times[i] += (now - clock).as_secs_f64() * 1e3;
        }
        clock = now;
    };
    lap("scop");
    if !after(Stage::Scop, &Seen::text(&|| Ok(scop.to_string())))? {
        return Ok(None);
    }
    let dependences = crate::poly::analysis::dependence::analyze(&scop)?;
    lap("dependences");
    let (schedule, mut ilp) = match given {
        Some(given) => (given.schedule.clone(), crate::poly::ilp::report::Report::default()),
        None => poly::ilp::schedule(&scop, &dependences)?,
    };
    lap("schedule");
    let mut tiled = match given {
        Some(given) => tile::described(tile::as_given(&scop, &given.schedule, &given.packings), &scop, target),
        None => tile::tile(&scop, &schedule, target)?,
    };
    lap("tile");
    let mut built = build(&scop, &dependences, &tiled, target, &mut lap);
    if let (Err(why), None) = (&built, given)
        && may_fall_back(why)
    {
        ilp.fallback = Some(format!("without tiles and vectors, because with them: {why}"));
        tiled = tile::as_given(&scop, &schedule, &[]);
        built = build(&scop, &dependences, &tiled, target, &mut lap);
    }
    let (kernel, assembled) = built?;
    let shown = || match given {
        Some(given) => Ok(given.schedule.print(&scop)),
        None => {
            let kept = ilp.fallback.as_ref().map_or(String::new(), |why| format!("{why}\n"));
            let (functions, tree) = (schedule.print_functions(&scop), schedule.print(&scop));
            Ok(format!("{kept}{functions}\n{tree}\ntiled:\n{}", tiled.schedule.print(&scop)))
        }
    };
    if !after(Stage::Schedule, &Seen { text: &shown, scheduled: Some((&scop, &tiled)) })? {
        return Ok(None);
    }
    if !after(Stage::Loops, &Seen::text(&|| Ok(kernel.nest.to_string())))? {
        return Ok(None);
    }
    let vcode = || {
        let functions =
            crate::codegen::select::lower(&crate::codegen::loopnest::simplify::simplify(&kernel.nest), target)?;
        Ok(functions.iter().map(|f| f.to_string()).collect::<Vec<_>>().join("\n"))
    };
    if !after(Stage::Vcode, &Seen::text(&vcode))? {
        return Ok(None);
    }
    let listing = || {
        let phases = assembled.phases.iter().map(|p| codegen::disassemble::disassemble(&p.code, target.isa));
        Ok(phases.collect::<Result<Vec<_>>>()?.join("\n"))
    };
    if !after(Stage::Asm, &Seen::text(&listing))? {
        return Ok(None);
    }
    let slots = slots(&kernel.nest, kernel.arguments.len())?;
    let flops = given.map_or(kernel.report.flops, |g| g.flops) as u64;
    let name = scop.name.clone();
    Ok(Some(CompiledKernel { name, scop, schedule, ilp, tiled, kernel, assembled, index_ranges, slots, flops, times }))
}

/// Returns true if a kernel whose tiles or vectors end in this error is built without them instead, with a note in the
/// report: where they are refused, or need what is not done here. A defect of ours is an error wherever it is found with
/// debug assertions, so that tests fail on it; others get the slow kernel and the note.
fn may_fall_back(error: &Error) -> bool {
    match error {
        Error::Schedule(_) | Error::Unsupported(_) => true,
        Error::Internal(_) => !cfg!(debug_assertions),
        _ => false,
    }
}

/// Loops and machine code of a tree that is proven first.
fn build(
    scop: &Scop,
    dependences: &Dependences,
    tiled: &Tiled,
    target: &Target,
    lap: &mut dyn FnMut(&str),
) -> Result<(lower::Kernel, Assembled)> {
    crate::poly::analysis::legality::check(scop, dependences, &tiled.schedule)?;
    lap("legality");
    let kernel = poly::lower::lower(scop, tiled)?;
    crate::codegen::loopnest::verify::verify(&kernel.nest)?;
    lap("loops");
    let assembled = assemble(&kernel.nest, target)?;
    lap("code");
    Ok((kernel, assembled))
}

/// Bytes that the loops may touch through each argument, and whether they write there.
fn slots(nest: &LoopNest, count: usize) -> Result<Vec<(u64, bool)>> {
    let mut slots = vec![(0, false); count];
    for buffer in &nest.buffers {
        let BufferKind::Argument { slot, written } = buffer.kind else { continue };
        let Some(entry) = slots.get_mut(slot as usize) else {
            return Err(Error::Internal(format!("kernel `{}` has no argument for slot {slot}", nest.name)));
        };
        entry.0 = entry.0.max(buffer.span() as u64 * buffer.dtype.bytes() as u64);
        entry.1 |= written;
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_of_the_planner_is_no_slow_kernel() {
        assert!(may_fall_back(&Error::Unsupported("a form of tile".into())));
        for error in [Error::Internal("a bound that does not hold".into()), Error::Limit("too large".into())] {
            assert!(!may_fall_back(&error), "{error}");
        }
    }
}
