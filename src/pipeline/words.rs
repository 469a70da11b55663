//! Schedules of kernels in the words of the text language: printed, and taken back.
//!
//! In: a compiled kernel and the statements that its schedule begins with. Out: a block `schedule … for KERNEL { … }`, of
//! which [`apply`] makes the same loops; or why the order has no words. A schedule that is taken back is proven as every
//! schedule by hand is: its refusal has two statement instances and the place in the text.

use crate::codegen::Target;
use crate::expr::syntax::Span;
use crate::language::source::{Diagnostic, Source};
use crate::language::syntax::File;
use crate::pipeline::kernel::{CompiledKernel, Stage, Statements};
use crate::poly::analysis::index_range::index_ranges;
use crate::poly::normalize::build;
use crate::poly::scop::Scop;
use crate::poly::statement::Program;
use crate::poly::tile::report::Tiled;
use crate::poly::transform;
use crate::poly::transform::primitive::{Placed, Schedule};
use crate::poly::transform::state::{Proven, SourceProgram};
use crate::poly::transform::to_primitives;
use crate::runtime::error::unknown;
use crate::{Error, Result};
use std::iter;

/// The name of the schedules that are printed.
const NAME: &str = "ilp";

/// The order of `tiled` as a schedule for `program`; the inner error is the reason why it has no words.
pub fn express(
    original: &SourceProgram,
    program: &str,
    scop: &Scop,
    tiled: &Tiled,
) -> Result<std::result::Result<Schedule, String>> {
    let placed = |primitive| Placed { primitive, span: Span::default() };
    Ok(match to_primitives::express(original, scop, tiled) {
        Ok(list) => {
            let primitives = list.into_iter().map(placed).collect();
            Ok(Schedule { name: NAME.into(), program: program.into(), primitives })
        }
        Err(Error::Unsupported(reason)) => Err(reason),
        Err(Error::Schedule(refusal)) => Err(refusal.headline()),
        Err(e) => return Err(e),
    })
}

/// The text of stage `stage` of a kernel of a network: of its schedule the trees, as comments, and its words; or what it was
/// chosen among. `by_hand`: the schedule that it was given.
pub fn of_kernel(
    kernel: &CompiledKernel,
    name: &str,
    stage: Stage,
    by_hand: Option<&Schedule>,
    target: &Target,
) -> Result<String> {
    let original = SourceProgram { written: kernel.scop.clone(), normal: &|| Ok(kernel.scop.clone()), target };
    if stage == Stage::Candidates {
        return candidates(&original, name, kernel, by_hand);
    }
    let words = match by_hand {
        Some(schedule) => Ok(schedule.clone()),
        None => express(&original, name, &kernel.scop, &kernel.tiled)?,
    };
    Ok(comment(&kernel.text(stage, target.isa)?) + &text(words, ""))
}

/// The lines of a text as comments of the text language.
pub fn comment(text: &str) -> String {
    text.lines().fold(String::new(), |out, line| out + "# " + line + "\n")
}

/// The text of a schedule, or a comment that says why there is none.
pub fn text(words: std::result::Result<Schedule, String>, sizes: &str) -> String {
    match words {
        Ok(schedule) => format!("# The same order as primitives{sizes}:\n{schedule}"),
        Err(reason) => comment(&format!("This order cannot be expressed as primitives: {reason}")),
    }
}

/// The schedules that a kernel's was chosen among: each with its predicted time and its words, all but the chosen one
/// as comments. `by_hand`: the words of a schedule by hand.
pub fn candidates(
    original: &SourceProgram,
    program: &str,
    kernel: &CompiledKernel,
    by_hand: Option<&Schedule>,
) -> Result<String> {
    let mut out = String::new();
    let others = kernel.candidates.iter().skip(1).map(|c| &c.tiled);
    for (i, (report, tiled)) in
        kernel.candidate_reports(Some(original.target)).iter().zip(iter::once(&kernel.tiled).chain(others)).enumerate()
    {
        let what = if i == 0 { "chosen" } else { "runner-up" };
        out += &comment(&format!("{what}: {report}"));
        let words = match by_hand {
            Some(schedule) => Ok(schedule.clone()),
            None => express(original, program, &kernel.scop, tiled)?,
        };
        out += &match words {
            Ok(schedule) if i == 0 => schedule.to_string(),
            Ok(schedule) => {
                comment(&Schedule { name: format!("runner_up_{i}").as_str().into(), ..schedule }.to_string())
            }
            Err(reason) => comment(&format!("It cannot be expressed as primitives: {reason}")),
        };
    }
    Ok(out)
}

/// The program that `schedule` makes of `original`, proven. A refusal shows its place in `source`.
///
/// # Errors
/// `Schedule` when a primitive is refused.
pub fn apply(source: &Source, original: &SourceProgram, schedule: &Schedule) -> Result<Proven> {
    transform::apply_all(original, &schedule.primitives).map_err(|(index, error)| {
        let span = schedule.primitives.get(index).map_or(schedule.name.span, |p| p.span);
        source.error(Diagnostic { span, error })
    })
}

/// The statements of kernel `name` of a network, in the order of the file's schedule for it, or free where it has none.
///
/// # Errors
/// Those of [`apply`].
pub fn statements(file: &File, name: &str, program: &Program, target: &Target) -> Result<Statements> {
    let Some(schedule) = file.schedules.iter().find(|s| *s.program == *name) else {
        return Statements::of_expression(name, program);
    };
    let written = build::build(name, program)?;
    let original = SourceProgram { written: written.clone(), normal: &|| Ok(written.clone()), target };
    Ok(Statements::by_hand(apply(&file.source, &original, schedule)?, index_ranges(program)?))
}

/// Refuses schedules for kernels that a network does not have, and several for one kernel.
///
/// # Errors
/// `Invalid` at the first such schedule, with the kernel whose name is nearest.
pub fn check_names(file: &File, kernels: &[&str]) -> Result<()> {
    for (i, schedule) in file.schedules.iter().enumerate() {
        let kernel = &schedule.program;
        let message = if !kernels.contains(&&**kernel) {
            format!("`{}`: {}", schedule.name, unknown("kernel", kernel, kernels))
        } else if let Some(other) = file.schedules[..i].iter().find(|s| s.program == *kernel) {
            format!("kernel `{kernel}` has two schedules, `{}` and `{}`", other.name, schedule.name)
        } else {
            continue;
        };
        return Err(file.source.error(Diagnostic::invalid(kernel.span, message)));
    }
    Ok(())
}
