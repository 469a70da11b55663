//! One kernel's way from its tensor expression to machine code, stage by stage.
//!
//! In: the statements of a kernel, whose order is free or proven by hand, and a target. Out: a [`CompiledKernel`] with what
//! each stage made. Invariant: each representation is verified before the next stage reads it, and no code is made of an
//! order that is not proven. After Cranelift's `Context`, except that a stage returns its result and changes nothing.

use crate::codegen::assemble::{Assembled, assemble_functions};
use crate::codegen::disassemble::disassemble;
use crate::codegen::loopnest::simplify::simplify;
use crate::codegen::loopnest::{BufferKind, LoopNest, verify};
use crate::codegen::vcode::Function;
use crate::codegen::{Isa, Target, select};
use crate::expr::choice::choice;
use crate::language::c;
use crate::pipeline::laps::{Lap, Times};
use crate::pipeline::report::Vectorization;
use crate::poly::analysis::dependence::{self, Dependences};
use crate::poly::analysis::index_range::{IndexRange, index_ranges};
use crate::poly::analysis::legality;
use crate::poly::cost;
use crate::poly::ilp::integer_program::Effort;
use crate::poly::normalize::{array_expansion, build, coalesce, domain_split, index_set_split, statement_split};
use crate::poly::plan::Candidate;
use crate::poly::plan::describe::priced;
use crate::poly::schedule::{RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::{Program, Statement, StatementId};
use crate::poly::tile::report::{CandidateReport, Tiled};
use crate::poly::transform::state::Proven;
use crate::poly::{ilp, lower, plan, tile};
use crate::{Error, Result};

/// A stage of a compilation that can be shown, in order.
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
    /// The schedules that the planner compared, with the terms of their predicted times.
    Candidates,
    /// Explicit loops.
    Loops,
    /// The explicit loops as C that compiles: a whole program for one of the text language, a function for a kernel.
    LoopsC,
    /// Machine instructions over virtual registers.
    Vcode,
    /// Disassembled machine code.
    Asm,
}

choice!(
    Stage,
    "stage",
    [
        ("graph", Stage::Graph),
        ("rewritten", Stage::Rewritten),
        ("c", Stage::C),
        ("scop", Stage::Scop),
        ("schedule", Stage::Schedule),
        ("candidates", Stage::Candidates),
        ("loops", Stage::Loops),
        ("loops-c", Stage::LoopsC),
        ("vcode", Stage::Vcode),
        ("asm", Stage::Asm),
    ]
);

/// The first stage of a kernel: its statements.
pub struct Statements {
    order: Order,
    /// Ranges that subscripts from data must lie in.
    index_ranges: Vec<IndexRange>,
    times: Times,
}

/// The order of the statements.
enum Order {
    /// The ILP chooses; of several programs that compute the same, the one that is predicted to take the least time.
    Free(Vec<Scop>),
    ByHand(Box<Proven>),
}

impl Statements {
    /// The statements of a tensor expression.
    pub fn of_expression(name: &str, program: &Program) -> Result<Statements> {
        Statements::free(|| Ok((vec![build::build(name, program)?], index_ranges(program)?)))
    }

    /// The statements of a loop program, after loop coalescing, index-set splitting and array expansion; and those after domain
    /// splitting as well, where it divides any.
    pub fn of_loops(scop: &Scop) -> Result<Statements> {
        Statements::free(|| {
            let ranges = index_ranges(&scop.as_definitions())?;
            let split = Some(domain_split::split(scop)?).filter(|split| split != scop);
            let normalized = |scop| array_expansion::expand(&index_set_split::split(&coalesce::coalesce(scop))?);
            Ok(([Some(scop), split.as_ref()].into_iter().flatten().map(normalized).collect::<Result<_>>()?, ranges))
        })
    }

    fn free(work: impl FnOnce() -> Result<(Vec<Scop>, Vec<IndexRange>)>) -> Result<Statements> {
        let mut times = Times::default();
        let (scops, index_ranges) = times.time(Lap::Scop, work)?;
        Ok(Statements { order: Order::Free(scops), index_ranges, times })
    }

    /// The statements of a tensor expression in their original order: one after the other, without tiles and vectors.
    pub fn untransformed(name: &str, program: &Program) -> Result<Statements> {
        let mut times = Times::default();
        let (scop, ranges) =
            times.time(Lap::Scop, || Ok::<_, Error>((build::build(name, program)?, index_ranges(program)?)))?;
        let proven = times.time(Lap::Legality, || Proven::in_original_order(scop))?;
        Ok(Statements { order: Order::ByHand(Box::new(proven)), index_ranges: ranges, times })
    }

    /// The statements of a program in an order by hand. `index_ranges` are those of the program.
    pub fn by_hand(proven: Proven, index_ranges: Vec<IndexRange>) -> Statements {
        Statements { order: Order::ByHand(Box::new(proven)), index_ranges, times: Times::default() }
    }

    pub fn scop(&self) -> &Scop {
        match &self.order {
            Order::Free(scops) => &scops[0],
            Order::ByHand(proven) => &proven.state().scop,
        }
    }
}

/// The chosen schedule and three others.
const CANDIDATES: usize = 4;

/// A kernel with machine code and the results of all stages.
pub struct CompiledKernel {
    pub name: String,
    pub scop: Scop,
    /// By the ILP before tiling, or by hand.
    pub schedule: Schedule,
    /// Effort of the ILP; `None` for an order by hand.
    pub ilp: Option<ilp::report::SchedulingReport>,
    pub tiled: Tiled,
    /// The planner's candidates, the chosen one first; empty where it had no choice.
    pub candidates: Vec<Candidate>,
    pub kernel: lower::Kernel,
    /// A function for each phase.
    pub vcode: Vec<Function>,
    pub assembled: Assembled,
    /// Ranges that subscripts from data must lie in.
    pub index_ranges: Vec<IndexRange>,
    /// Bytes of each argument, and whether it is written.
    pub slots: Vec<(u64, bool)>,
    pub flops: u64,
    pub times: Times,
}

impl CompiledKernel {
    /// Returns true if no loop runs element by element.
    pub fn vectorized(&self) -> bool {
        self.vectorization() == Vectorization::Whole
    }

    /// The part of the kernel that works on vectors. Statements with one instance have no loops and count as vectorized.
    pub fn vectorization(&self) -> Vectorization {
        let single = |s: &Statement| s.iterators.iter().all(|i| i.extent <= 1);
        if self.assembled.vectorized || self.scop.statements.iter().all(single) {
            return Vectorization::Whole;
        }
        if !self.assembled.has_vectors {
            return Vectorization::None;
        }
        let in_lanes = |step: &TimeDimension| matches!(step, TimeDimension::Row(row) if row.kind == RowKind::Vector);
        let scalar =
            |id: &StatementId| !single(self.scop.statement(*id)) && !self.tiled.schedule.path(*id).iter().any(in_lanes);
        Vectorization::Part(self.scop.ids().filter(scalar).map(|id| self.scop.statement(id).name.clone()).collect())
    }

    /// The planner's candidates, the chosen one first, and at most three others. Where there was no choice it is the price of
    /// the loops on the target `prices`, which is computed here, or nothing.
    pub fn candidate_reports(&self, prices: Option<&Target>) -> Vec<CandidateReport> {
        if self.candidates.is_empty() {
            let Some(target) = prices else { return vec![] };
            let name = if self.ilp.is_some() { "ILP's order" } else { "by hand" };
            return vec![priced(name.into(), &cost::price(&simplify(&self.kernel.nest), target))];
        }
        self.candidates.iter().map(Candidate::report).take(CANDIDATES).collect()
    }

    pub fn tensorized(&self) -> bool {
        self.kernel.report.tensorized
    }

    /// The reason why the kernel keeps its original order or has no tiles; `None` if it does not.
    pub fn fallback(&self) -> Option<&str> {
        self.ilp.as_ref()?.fallback.as_deref()
    }

    /// The text of a stage.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the stages before [`Stage::Scop`], which are not of one kernel.
    pub fn text(&self, stage: Stage, isa: Isa) -> Result<String> {
        let join = |parts: Vec<String>| parts.join("\n");
        match stage {
            Stage::Graph | Stage::Rewritten | Stage::C => {
                Err(Error::Invalid("this stage is not divided into kernels".into()))
            }
            Stage::Scop => Ok(self.scop.to_string()),
            Stage::Schedule => Ok(self.schedule_text()),
            Stage::Candidates => Ok(self.candidates.iter().map(|c| format!("{}\n", c.report())).collect()),
            Stage::Loops => Ok(self.kernel.nest.to_string()),
            Stage::LoopsC => c::print_function(&self.kernel.nest),
            Stage::Vcode => Ok(join(self.vcode.iter().map(Function::to_string).collect())),
            Stage::Asm => {
                let listings = self.assembled.phases.iter().map(|p| disassemble(&p.code, isa));
                Ok(join(listings.collect::<Result<_>>()?))
            }
        }
    }

    fn schedule_text(&self) -> String {
        let (scop, tree) = (&self.scop, self.schedule.print(&self.scop));
        if self.ilp.is_none() {
            return tree;
        }
        let fallback = self.fallback().map_or(String::new(), |why| format!("{why}\n"));
        let functions = self.schedule.print_functions(scop);
        format!("{fallback}{functions}\n{tree}\ntiled:\n{}", self.tiled.schedule.print(scop))
    }
}

/// Compiles a kernel.
pub fn compile(statements: Statements, target: &Target) -> Result<CompiledKernel> {
    compile_by(statements, target, cfg!(debug_assertions), &prove_and_generate)
}

/// Proves the order of a tiling and makes its code.
type Generate<'a> = &'a dyn Fn(&Scop, &Dependences, Tiled, &Target, &mut Times) -> Result<Code>;

/// Variant of [`compile`] with another last stage. With `strict` a defect that it finds in a tiling is an error.
fn compile_by(statements: Statements, target: &Target, strict: bool, generate: Generate) -> Result<CompiledKernel> {
    let Statements { order, index_ranges, mut times } = statements;
    let (scop, schedule, ilp, candidates, code, flops) = match order {
        Order::Free(scops) => {
            let ChosenOrder { scop, schedule, report, candidates, code } =
                search(scops, target, &mut times, strict, generate)?;
            let flops = code.kernel.report.flops;
            (scop, schedule, Some(report), candidates, code, flops)
        }
        Order::ByHand(proven) => {
            let (tiled, kernel) = times.time(Lap::Loops, || proven.lower(target))?;
            let mut code = Code::generate(tiled, kernel, target, &mut times)?;
            let cost = times.time(Lap::Price, || cost::price(&simplify(&code.kernel.nest), target));
            code.kernel.report.predicted_ns = cost.nanoseconds();
            let state = proven.into_state();
            (state.scop, state.schedule, None, vec![], code, state.flops)
        }
    };
    let Code { tiled, kernel, vcode, assembled } = code;
    let slots = slots(&kernel.nest, kernel.arguments.len())?;
    let (name, flops) = (scop.name.clone(), flops as u64);
    Ok(CompiledKernel {
        name,
        scop,
        schedule,
        ilp,
        tiled,
        candidates,
        kernel,
        vcode,
        assembled,
        index_ranges,
        slots,
        flops,
        times,
    })
}

/// The order by the ILP, with its code.
struct ChosenOrder {
    scop: Scop,
    schedule: Schedule,
    report: ilp::report::SchedulingReport,
    candidates: Vec<Candidate>,
    code: Code,
}

/// The order by the ILP, and its code: with tiles and vectors, or without them where they are refused; of the first program, of another
/// one or of the program with split statements, where that is predicted to take less time.
fn search(
    scops: Vec<Scop>,
    target: &Target,
    times: &mut Times,
    strict: bool,
    generate: Generate,
) -> Result<ChosenOrder> {
    let mut scops = scops.into_iter();
    let first = scops.next().ok_or_else(|| Error::Internal("a kernel without statements".into()))?;
    let mut planned = Planned::new(first, target, WHOLE, times, strict)?;
    for other in scops {
        planned = planned.or_better(other, "domains", target, times, strict)?;
    }
    if !planned.candidates.is_empty() {
        let split = statement_split::split(&planned.scop)?;
        if split != planned.scop {
            planned = planned.or_better(split, "statements", target, times, strict)?;
        }
    }
    planned.finish(target, times, strict, generate)
}

/// Limits of the work for one program.
#[derive(Clone, Copy)]
struct Work {
    effort: Effort,
    /// See [`plan::plan`].
    entries: usize,
}

const WHOLE: Work = Work { effort: Effort { left: ilp::MAX_EFFORT }, entries: plan::MOST_ENTRIES };

/// Of a program with split domains or statements, which takes the place of another one only where that pays: five times what any in `datasets` takes.
const SPLIT: Work = Work { effort: Effort { left: 1_000_000 }, entries: plan::MOST_ENTRIES_WHERE_SPLIT };

/// The order by the ILP and the best plan of it.
struct Planned {
    scop: Scop,
    dependences: Dependences,
    schedule: Schedule,
    report: ilp::report::SchedulingReport,
    tiled: Tiled,
    candidates: Vec<Candidate>,
}

impl Planned {
    fn new(scop: Scop, target: &Target, work: Work, times: &mut Times, strict: bool) -> Result<Planned> {
        let dependences = times.time(Lap::Dependences, || dependence::analyze(&scop))?;
        let (schedule, mut report) =
            times.time(Lap::Schedule, || ilp::schedule_within(&scop, &dependences, work.effort))?;
        let plan = || plan::plan(&scop, &dependences, &schedule, target, work.entries);
        let first = || tile::tile(&scop, &schedule, target);
        let (tiled, candidates) = plan_or_first(times.time(Lap::Tile, plan), strict, &mut report.fallback, first)?;
        Ok(Planned { scop, dependences, schedule, report, tiled, candidates })
    }

    /// The plan of another program whose `what` are split, where it is predicted to take less time; otherwise this one.
    fn or_better(
        mut self,
        scop: Scop,
        what: &str,
        target: &Target,
        times: &mut Times,
        strict: bool,
    ) -> Result<Planned> {
        match Planned::new(scop, target, SPLIT, times, strict) {
            Err(defect @ Error::Internal(_)) if strict => Err(defect),
            Err(Error::Internal(why)) => {
                let note = || format!("without split {what}, because with them: {why}");
                self.report.fallback.get_or_insert_with(note);
                Ok(self)
            }
            Ok(other) => {
                let rank =
                    |planned: &Planned| plan::rank_of(&planned.scop, &planned.tiled, &planned.candidates, target);
                let (before, after) = times.time(Lap::Tile, || Ok::<_, Error>((rank(&self)?, rank(&other)?)))?;
                Ok(if after < plan::GAIN * before { other } else { self })
            }
            Err(_) => Ok(self),
        }
    }

    fn finish(self, target: &Target, times: &mut Times, strict: bool, generate: Generate) -> Result<ChosenOrder> {
        let Planned { scop, dependences, schedule, mut report, mut tiled, mut candidates } = self;
        let code = loop {
            match generate(&scop, &dependences, tiled, target, times) {
                // the planner proves what it prefers to the default, not the default
                Err(why @ Error::Schedule(_)) if candidates.len() > 1 => {
                    times.time(Lap::Tile, || plan::without_first(&scop, &dependences, &mut candidates, target))?;
                    tiled = candidates.first().ok_or(why)?.predicted();
                }
                Err(why) if may_fall_back(&why, strict) => {
                    report.fallback = Some(format!("without tiles and vectors, because with them: {why}"));
                    candidates.clear();
                    break generate(&scop, &dependences, tile::as_given(&scop, &schedule, &[]), target, times)?;
                }
                code => break code?,
            }
        };
        Ok(ChosenOrder { scop, schedule, report, candidates, code })
    }
}

/// The best plan and its candidates. Where a candidate ends in a defect of ours, the first plan alone, with a note, unless
/// `strict`.
fn plan_or_first(
    plan: Result<(Tiled, Vec<Candidate>)>,
    strict: bool,
    note: &mut Option<String>,
    first: impl FnOnce() -> Result<Tiled>,
) -> Result<(Tiled, Vec<Candidate>)> {
    match plan {
        Err(Error::Internal(why)) if !strict => {
            *note = Some(format!("without other candidates, because of one: {why}"));
            Ok((first()?, vec![]))
        }
        plan => plan,
    }
}

/// Returns true if a kernel whose tiles or vectors end in this error is built without them instead, with a note in the
/// report: where they are refused, or need what is not done here. A defect of ours is an error when `strict`, as with
/// debug assertions, so that tests fail on it; otherwise it is the slow kernel and the note.
fn may_fall_back(error: &Error, strict: bool) -> bool {
    match error {
        Error::Schedule(_) | Error::Unsupported(_) => true,
        Error::Internal(_) => !strict,
        _ => false,
    }
}

fn prove_and_generate(
    scop: &Scop,
    dependences: &Dependences,
    tiled: Tiled,
    target: &Target,
    times: &mut Times,
) -> Result<Code> {
    times.time(Lap::Legality, || legality::check(scop, dependences, &tiled.schedule))?;
    let kernel = times.time(Lap::Loops, || lower::lower(scop, &tiled))?;
    Code::generate(tiled, kernel, target, times)
}

/// The stages below a proven order.
struct Code {
    tiled: Tiled,
    kernel: lower::Kernel,
    vcode: Vec<Function>,
    assembled: Assembled,
}

impl Code {
    /// Machine code of loops. The allocation of registers verifies VCode: nesting, and that no register is read before it
    /// is written.
    fn generate(tiled: Tiled, kernel: lower::Kernel, target: &Target, times: &mut Times) -> Result<Code> {
        times.time(Lap::Loops, || verify::verify(&kernel.nest))?;
        let nest = times.time(Lap::Code, || simplify(&kernel.nest));
        let vcode = times.time(Lap::Code, || select::lower(&nest, target))?;
        let assembled = times.time(Lap::Code, || assemble_functions(&vcode, target))?;
        Ok(Code { tiled, kernel, vcode, assembled })
    }
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
    use crate::language;
    use crate::language::lowered::Computation;
    use crate::pipeline::linkable::LinkableKernel;
    use crate::pipeline::report::Report;
    use crate::poly::samples;
    use std::cell::Cell;

    fn product() -> Statements {
        Statements::of_expression("product", &samples::matmul(8, 32, 16)).unwrap()
    }

    fn loops(text: &str) -> Statements {
        let file = language::parse("t.tile", text).unwrap();
        let meaning = file.lower(file.program(None).unwrap(), &Default::default(), None).unwrap();
        let Computation::Loop(scop) = meaning.computation else { panic!("a loop program") };
        Statements::of_loops(&scop).unwrap()
    }

    fn report(compiled: &CompiledKernel) -> Report {
        Report { kernels: vec![LinkableKernel::new(compiled, None).report(0, vec![], 1)], ..Report::default() }
    }

    /// The product when the first tiling ends in `error`.
    fn compile_after(error: &Error, strict: bool) -> Result<CompiledKernel> {
        let first = Cell::new(true);
        compile_by(product(), &Target::avx512(), strict, &|scop, dependences, tiled, target, times| match first
            .replace(false)
        {
            true => Err(error.clone()),
            false => prove_and_generate(scop, dependences, tiled, target, times),
        })
    }

    #[test]
    fn a_defect_of_the_planner_is_an_error_in_tests_and_a_note_in_the_report_elsewhere() {
        let defect = Error::Internal("a bound that does not hold".into());
        let refused = Error::Unsupported("a form of tile".into());
        assert!(compile_after(&defect, true).is_err_and(|e| e == defect));
        assert!(compile_after(&Error::Limit("too large".into()), false).is_err());
        assert!(may_fall_back(&defect, false) && compile(product(), &Target::avx512()).unwrap().fallback().is_none());
        for (error, strict) in [(&defect, false), (&refused, false), (&refused, true)] {
            let report = report(&compile_after(error, strict).unwrap());
            let [(name, why)] = report.fallbacks()[..] else { panic!("{report}") };
            assert_eq!((name, why), ("product", &*format!("without tiles and vectors, because with them: {error}")));
            assert!(report.to_string().contains(why), "{report}");
        }
    }

    #[test]
    fn a_defect_of_a_candidate_is_an_error_in_tests_and_a_note_elsewhere() {
        let first = compile(product(), &Target::avx512()).unwrap().tiled;
        for (strict, tiled) in [(true, None), (false, Some(first.clone()))] {
            let (defect, mut note) = (Error::Internal("a bound that does not hold".into()), None);
            let plan = plan_or_first(Err(defect), strict, &mut note, || Ok(first.clone()));
            assert_eq!(plan.ok().map(|p| p.0.schedule), tiled.map(|t| t.schedule));
            assert_eq!(note.is_some_and(|n| n.contains("a bound that does not hold")), !strict);
        }
    }

    const SERIAL: &str = "inout f64 A[N] for i in 1..N S: A[i] = A[i-1] * 0.5 + x[i]";
    const WHOLE: &str = "out f64 B[N] for i in 0..N V: B[i] = x[i] * 0.5 + x[i]";

    /// The labels of a kernel say what its machine code does.
    #[test]
    fn labels_of_vectors_agree_with_the_code() {
        for target in [Target::avx512(), Target::avx2()] {
            for (label, body) in [
                ("  vectorized", WHOLE.to_string()),
                ("  partly vectorized", format!("inout f64 A[N] {WHOLE} {}", &SERIAL[15..])),
                ("  not vectorized", SERIAL.to_string()),
            ] {
                let text = format!("loop p(N = 640) {{ in f64 x[N] {body} }}");
                let compiled = compile(loops(&text), &target).unwrap();
                let (report, code) = (report(&compiled), compiled.text(Stage::Asm, target.isa).unwrap());
                let shown = report.to_string();
                // Arithmetic on whole vector registers and on single elements, which are in the shortest ones.
                let arithmetic: Vec<&str> =
                    code.lines().filter(|l| ["vmul", "vadd", "vfma"].iter().any(|op| l.contains(op))).collect();
                let vectors = arithmetic.iter().any(|l| l.contains("zmm") || l.contains("ymm"));
                let elements = arithmetic.iter().any(|l| !l.contains("zmm") && !l.contains("ymm"));
                assert_eq!((vectors, elements), (!label.contains("not"), body.contains("S:")), "{code}");
                assert!(shown.contains(label), "{label}: {shown}");
                assert_eq!(shown.contains("vector i"), vectors, "{label}: {shown}");
                assert_eq!(shown.contains("\nNOT VECTORIZED: p"), !vectors, "{shown}");
                assert_eq!(shown.contains("\nPARTLY VECTORIZED: p"), vectors && elements, "{shown}");
                assert_eq!(shown.contains("element by element: S"), vectors && elements, "{shown}");
                assert_eq!(report.unvectorized().is_empty(), !elements, "{shown}");
            }
        }
    }

    #[test]
    fn a_vector_that_the_code_does_not_have_is_not_reported() {
        let mut compiled = compile(product(), &Target::avx512()).unwrap();
        assert!(report(&compiled).to_string().contains("vector n;"), "{}", report(&compiled));
        (compiled.assembled.vectorized, compiled.assembled.has_vectors) = (false, false);
        let shown = report(&compiled).to_string();
        assert!(shown.contains("not vectorized") && shown.contains("no vector;"), "{shown}");
        assert!(!shown.contains("vector n"), "{shown}");
    }

    #[test]
    fn another_candidate_is_taken_where_the_first_one_is_refused() {
        // the ILP's order with its sums as vectors would read the greatest of all elements so far in one lane of another's
        let text = "loop drawdown(C = 4, N = 50000) { in f32 p[C][N]  temp f32 top[C]  inout f32 dd[C]
            for c in 0..C { top[c] = 0  for i in 0..N { top[c] = max(top[c], p[c][i])  dd[c] = max(dd[c], top[c] - p[c][i]) } } }";
        let compiled = compile(loops(text), &Target::avx512()).unwrap();
        assert!(compiled.fallback().is_none() && !compiled.candidates.is_empty(), "{:?}", compiled.fallback());
    }
}
