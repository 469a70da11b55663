//! The planner of loop programs: candidates, priced by one model.
//!
//! In: a Scop, its dependences and the ILP's schedule. Out: a tiled schedule. Candidates are the ILP's order and the
//! original one, each in the [`STYLES`]: with and without tiles, with tiles in waves, with vectors along any loop, along
//! contiguous ones, along the outermost one that carries nothing and without vectors, and with the loop over vectors inside or
//! outside of loops that carry something, divided into strips for threads or not, and with loops unrolled and jammed around those ([`Style::jam`]); where there are short sums both with register blocks for unrolled ones
//! ([`Style::unrolled`]); the ILP's with contiguous loops innermost, where it has others ([`ilp::schedule_contiguous`]), with more loops fused ([`fused`]), and
//! with sums in nests of their own ([`apart`]). [`cost`] prices the loops that
//! lowering makes of each, and the machine code of the cheapest ([`REFINED`]); the first candidate, the ILP's order in the default style, counts unless another one takes less than
//! [`GAIN`] of its time (of a long program [`Candidate::rank`]). Nothing is measured, so the same program has
//! the same plan wherever target and constants of cost are the same. `tile` alone plans kernels of networks, whose order is free and in which no statement waits for itself, and programs of nothing but register
//! blocks whose sums are long, whose prices are its own.

mod apart;
mod fused;

pub mod describe;
pub mod order;

use crate::codegen::Target;
use crate::codegen::loopnest::simplify::simplify;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::select::prepare::lay_out_locals;
use crate::codegen::select::wrapping::as_signed;
use crate::poly::analysis::dependence::Dependences;
use crate::poly::analysis::{flags, legality};
use crate::poly::cost::{self, Cost};
use crate::poly::plan::order::Order;
use crate::poly::schedule::{RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::tile::cache::Constants;
use crate::poly::tile::report::{Tiled, TilingReport};
use crate::poly::tile::{Style, Vectors, tile_in};
use crate::poly::{ilp, lower, tile};
use crate::runtime::{Error, Result};
use std::cell::RefCell;

/// Share of the default's predicted time that another candidate may take at most. Measured on the cheapest candidates of 76 programs of the
/// suites `loops` and `programs`: with 0.93 to 1 the chosen ones take 1.07 times as long as the best, with 0.8 to 0.9 1.08 times.
pub const GAIN: f64 = 0.95;

/// Predicted time on one thread of waves and strips, at most, over that of the best of the others, where that one takes [`LONG`]. Unmeasured.
const MOST_FOR_THREADS: f64 = 1.25;

/// As [`MOST_FOR_THREADS`], of shorter programs: what is priced are tiles one after the other, and waves of short tiles take longer. Measured by
/// sums over boxes of a table (0.94, and 1.7 when run), band-limited time warping, and a knapsack in place, which has vectors in waves alone (0.13).
const MOST_WHERE_SHORT: f64 = 0.9;

/// Predicted time on one thread from which a program gains so much by threads that one thread may pay for it, in ns. Unmeasured.
const LONG: f64 = 10_000_000.0;

/// Shortest predicted time of the default from which a time on two threads counts, in ns. Below, one thread alone decides. Unmeasured.
const LEAST_FOR_THREADS: f64 = 200_000.0;

/// The share of the time on two threads in the mean by which candidates are compared, from [`LEAST_FOR_THREADS`] to [`LONG`]; half from there
/// on. A half for all makes Horner's rule, whose sum takes a second loop for threads, and a moving average 1.4 times as long on one thread.
const SHARE_OF_THREADS: f64 = 0.25;

/// Number of candidates whose machine code is priced, if so many are near the cheapest. On all candidates of 70 programs of the suites `loops` and `programs`, Zen 4,
/// the chosen ones take 1.11 times as long as the best with none, 1.07 times with 3 and more. Six since fused orders are candidates as well.
const REFINED: usize = 6;

/// Entries of the constraint matrices of the questions to isl after which no more candidates are lowered. All-pairs shortest paths take
/// 800,000, the other programs of `datasets` less.
pub const MOST_ENTRIES: usize = 1_000_000;

/// As [`MOST_ENTRIES`], of a program with split domains or statements. The programs of `datasets` take up to 34,000; four loops over remainders of
/// each other, in 24 statements, would take 3,500,000.
pub const MOST_ENTRIES_WHERE_SPLIT: usize = 150_000;

/// Predicted time, over that of the cheapest, up to which a candidate's machine code is priced. Rows that registers transpose are estimated at up to twice the price of
/// their code; the products of small odd matrices and of blocks of sparse rows lose their best order with 1.3.
const NEAR: f64 = 1.75;

/// A tiled schedule, with its price.
#[derive(Clone)]
pub struct Candidate {
    pub order: Order,
    pub style: Style,
    pub tiled: Tiled,
    pub cost: Cost,
    /// The loops that are priced.
    nest: LoopNest,
    /// Time that two threads wait at the ends of waves, in ns.
    waiting: f64,
    /// The price is that of the machine code.
    refined: bool,
}

impl Candidate {
    /// A tiling with the price of its loops; `None` if it cannot be lowered.
    ///
    /// # Errors
    /// [`Error::Internal`], a defect.
    fn new(
        scop: &Scop,
        order: Order,
        style: Style,
        tiled: Tiled,
        target: &Target,
        answers: &Answers,
    ) -> Result<Option<Candidate>> {
        let nest = unless_refused(lowered(scop, &tiled, answers)).map_err(|e| of_candidate(e, order, style))?;
        Ok(nest.map(|nest| {
            let cost = priced(&nest, target);
            let waiting = (waves(&nest) + waves_of_tiles(scop, &tiled)) as f64 * target.machine.wave_ns;
            Candidate { order, style, tiled, cost, nest, waiting, refined: false }
        }))
    }

    fn is_default(&self) -> bool {
        self.order == Order::Ilp && self.style == Style::default()
    }

    /// Returns true if threads run it in waves.
    fn has_waves(&self) -> bool {
        let mut found = waves(&self.nest) > 0;
        self.tiled.schedule.for_each_band(&mut |band| found |= band.rows.iter().any(|r| r.kind == RowKind::Wavefront));
        found
    }

    /// Returns true if it divides work for threads. Waves of tiles are in the default as well.
    fn is_divided(&self) -> bool {
        self.style.waves || self.style.strips || self.has_waves()
    }

    fn is_for_one_thread(&self) -> bool {
        !self.is_divided() && self.style.jam == 1
    }

    /// The tiling with the predicted time in its report.
    pub fn predicted(&self) -> Tiled {
        let report = TilingReport { predicted_ns: self.cost.nanoseconds(), ..self.tiled.report.clone() };
        Tiled { report, ..self.tiled.clone() }
    }

    /// Geometric mean of the predicted times on one thread and on two.
    pub fn rank(&self) -> f64 {
        self.mean(0.5)
    }

    /// Geometric mean of the predicted times on one thread and on two, which has this share.
    fn mean(&self, share: f64) -> f64 {
        let report = &self.tiled.report;
        let time = |parallel: bool| -> f64 {
            report.phases.iter().filter(|p| p.parallel || !parallel).map(|p| p.predicted_ns).sum()
        };
        let divided = time(true) / time(false).max(1.0);
        let alone = self.cost.nanoseconds();
        alone.powf(1.0 - share) * (alone * (1.0 - divided / 2.0) + self.waiting).powf(share)
    }
}

/// The best plan of `scop`, and what it was chosen among, within a limit of work ([`MOST_ENTRIES`]): itself first, then the others by predicted time;
/// empty where there was no choice.
///
/// # Errors
/// Those of tiling the ILP's schedule, and [`Error::Internal`] where a candidate ends in it.
pub fn plan(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    target: &Target,
    most_entries: usize,
) -> Result<(Tiled, Vec<Candidate>)> {
    let default = tile::tile(scop, schedule, target)?;
    let recurs = dependences.list.iter().any(|d| d.source == d.sink && !d.reduction);
    if scop.order == Schedule::in_sequence(&scop.statements) && !recurs {
        return Ok((default, vec![]));
    }
    // Phases with register blocks of `tile` have its prediction.
    if is_blocks(&default) && !has_short_sums(scop, target) {
        return Ok((default, vec![]));
    }
    let mut candidates = self::candidates(scop, dependences, schedule, default.clone(), target, most_entries)?;
    if candidates.first().is_none_or(|c| !c.is_default()) {
        return Ok((default, vec![]));
    }
    choose(scop, dependences, &mut candidates, target)?;
    Ok((candidates[0].predicted(), candidates))
}

/// Puts another candidate first than the one that is now, which is not legal: chosen as if the best one on one thread that is legal were the default.
/// Without others that are legal none is left.
///
/// # Errors
/// [`Error::Internal`] where a proof or code generation ends in it.
pub fn without_first(
    scop: &Scop,
    dependences: &Dependences,
    candidates: &mut Vec<Candidate>,
    target: &Target,
) -> Result<()> {
    let illegal = candidates.remove(0).tiled.schedule;
    candidates.retain(|c| c.tiled.schedule != illegal);
    let proofs = Proofs { scop, dependences, known: RefCell::default(), answers: Answers::default() };
    let proven = |c: &Candidate| proofs.is_legal(&c.tiled.schedule);
    let mut first = first_legal(candidates, Candidate::is_for_one_thread, proven)?;
    if first.is_none() {
        first = first_legal(candidates, |_| true, proven)?;
    }
    let Some(first) = first else {
        candidates.clear();
        return Ok(());
    };
    candidates.swap(0, first);
    choose(scop, dependences, candidates, target)
}

/// The number of the candidate of this kind that takes the least time on one thread and is legal.
///
/// # Errors
/// Those of `proven`.
fn first_legal(
    candidates: &[Candidate],
    is_such: impl Fn(&Candidate) -> bool,
    proven: impl Fn(&Candidate) -> Result<bool>,
) -> Result<Option<usize>> {
    let mut such: Vec<usize> = (0..candidates.len()).filter(|&c| is_such(&candidates[c])).collect();
    let time = |c: usize| candidates[c].cost.nanoseconds();
    such.sort_by(|&a, &b| time(a).total_cmp(&time(b)));
    for c in such {
        if proven(&candidates[c])? {
            return Ok(Some(c));
        }
    }
    Ok(None)
}

/// Puts the chosen candidate first and the others, by predicted time, behind it. The first one is the default.
///
/// # Errors
/// [`Error::Internal`] where a proof or code generation ends in it.
fn choose(scop: &Scop, dependences: &Dependences, candidates: &mut Vec<Candidate>, target: &Target) -> Result<()> {
    let share = match candidates[0].cost.nanoseconds() {
        time if time >= LONG => 0.5,
        time if time >= LEAST_FOR_THREADS => SHARE_OF_THREADS,
        _ => 0.0,
    };
    let rank = |c: &Candidate| rank(c, share);
    let proofs = Proofs { scop, dependences, known: RefCell::default(), answers: Answers::default() };
    let proven = |c: &Candidate| proofs.is_legal(&c.tiled.schedule);
    let best = loop {
        refine(candidates, target, rank)?;
        let best = best(candidates, share, proven)?;
        if best == 0 || proven(&candidates[best])? {
            break candidates[best].clone();
        }
        // what is not legal is no alternative, however cheap
        let illegal = candidates[best].tiled.schedule.clone();
        candidates.retain(|c| c.tiled.schedule != illegal);
    };
    candidates.retain(|c| c.tiled.schedule != best.tiled.schedule || c.tiled.packings != best.tiled.packings);
    candidates.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    candidates.insert(0, best);
    Ok(())
}

/// The measure by which candidates are compared; time on two threads has this share of it.
fn rank(c: &Candidate, share: f64) -> f64 {
    // the model counts neither the registers of unrolled and jammed loops before their code is priced, nor how unequal the tiles of a wave
    // are, nor all that conditions cost which stand in fused loops
    let gain = |is: bool| if is { GAIN } else { 1.0 };
    let margin = gain(c.style.jam > 1 && !c.refined || c.style.waves) * gain(c.order == Order::Fused);
    c.mean(share) / margin
}

/// The measure of a plan, by which programs that compute the same are compared: that of the first candidate, or of the loops where there was
/// no choice; infinite where they cannot be lowered.
///
/// # Errors
/// [`Error::Internal`] where lowering or code generation ends in it.
pub fn rank_of(scop: &Scop, tiled: &Tiled, candidates: &[Candidate], target: &Target) -> Result<f64> {
    if let Some(best) = candidates.first() {
        return Ok(best.rank());
    }
    let Some(only) = Candidate::new(scop, Order::Ilp, Style::default(), tiled.clone(), target, &Answers::default())?
    else {
        return Ok(f64::INFINITY);
    };
    let mut only = [only];
    refine(&mut only, target, Candidate::rank)?;
    Ok(only[0].rank())
}

/// The number of the candidate that is chosen, if it is legal: the first, or one that gains enough over it, or one that takes so much less
/// on one thread than the first one's waves.
///
/// # Errors
/// Those of `proven`.
fn best(candidates: &[Candidate], share: f64, proven: impl Fn(&Candidate) -> Result<bool>) -> Result<usize> {
    let first = &candidates[0];
    let rank = |c: &Candidate| rank(c, share);
    let mut better: Vec<usize> = (1..candidates.len()).filter(|&c| rank(&candidates[c]) < GAIN * rank(first)).collect();
    better.sort_by(|&a, &b| rank(&candidates[a]).total_cmp(&rank(&candidates[b])));
    let style = |c: usize| candidates[c].style;
    let mut default = 0;
    if first.is_divided() || better.iter().any(|&c| candidates[c].is_divided() || style(c).jam > 1) {
        // what one thread pays for waves and strips, and what it gains by loops that are unrolled and jammed
        let other = first_legal(candidates, Candidate::is_for_one_thread, proven)?.unwrap_or(0);
        let time = |c: usize| candidates[c].cost.nanoseconds();
        let most = time(other) * if share >= 0.5 { MOST_FOR_THREADS } else { MOST_WHERE_SHORT };
        better.retain(|&c| style(c).jam == 1 || time(c) <= GAIN * time(other));
        better.retain(|&c| !candidates[c].is_divided() || share > 0.0 && time(c) <= most);
        if time(0) > MOST_FOR_THREADS * time(other) {
            default = other;
        }
    }
    Ok(better.first().copied().unwrap_or(default))
}

/// Proofs of schedules of one program, each done once.
struct Proofs<'a> {
    scop: &'a Scop,
    dependences: &'a Dependences,
    known: RefCell<Vec<(Schedule, bool)>>,
    answers: Answers,
}

impl Proofs<'_> {
    /// Returns true for a legal schedule.
    ///
    /// # Errors
    /// [`Error::Internal`] where the proof ends in it.
    fn is_legal(&self, schedule: &Schedule) -> Result<bool> {
        if let Some((_, legal)) = self.known.borrow().iter().find(|(known, _)| known == schedule) {
            return Ok(*legal);
        }
        let proof = legality::check_with(self.scop, self.dependences, schedule, &self.answers);
        let legal = unless_refused(proof)?.is_some();
        self.known.borrow_mut().push((schedule.clone(), legal));
        Ok(legal)
    }
}

/// Prices the machine code of the cheapest candidates: of those not priced yet, again and again the cheapest, as long as it is
/// near the cheapest of all, by rank or on one thread; at least [`REFINED`], and until the cheapest of all is priced. Candidates with the
/// same loops count once.
///
/// # Errors
/// [`Error::Internal`] where code generation ends in it.
fn refine(candidates: &mut [Candidate], target: &Target, rank: impl Fn(&Candidate) -> f64) -> Result<()> {
    let mut distinct = candidates.iter().filter(|c| c.refined).count();
    let cheapest = |candidates: &[Candidate], open: bool| {
        let among = (0..candidates.len()).filter(|&c| !open || !candidates[c].refined);
        among.min_by(|&a, &b| rank(&candidates[a]).total_cmp(&rank(&candidates[b])))
    };
    while let (Some(least), Some(next)) = (cheapest(candidates, false), cheapest(candidates, true)) {
        let near = |time: &dyn Fn(&Candidate) -> f64| time(&candidates[next]) <= NEAR * time(&candidates[least]);
        if !near(&rank) && !near(&|c| c.cost.nanoseconds()) || distinct >= REFINED && candidates[least].refined {
            break;
        }
        let same = candidates.iter().find(|c| c.refined && c.nest == candidates[next].nest).map(|c| c.cost);
        distinct += usize::from(same.is_none());
        let next = &mut candidates[next];
        let cost = match same {
            None => unless_refused(cost::refine(&next.cost, &next.nest, target))
                .map_err(|e| of_candidate(e, next.order, next.style))?,
            same => same,
        };
        (next.cost, next.refined) = (cost.unwrap_or(next.cost), true);
    }
    Ok(())
}

/// The loops that lowering makes of `tiled`, as one thread runs them.
fn lowered(scop: &Scop, tiled: &Tiled, answers: &Answers) -> Result<LoopNest> {
    let kernel = lower::lower_on_one_thread(scop, tiled, answers)?;
    Ok(simplify(&kernel.nest))
}

/// The number of waves of tiles; of them the nest for one thread has none.
fn waves_of_tiles(scop: &Scop, tiled: &Tiled) -> i64 {
    let mut count = 0;
    tiled.schedule.for_each_band(&mut |band| {
        let pairs = band.rows.windows(2).filter(|pair| pair[0].kind == RowKind::Wavefront);
        count += pairs.map(|pair| pair[0].waves(&pair[1], scop)).sum::<i64>();
    });
    count
}

/// The number of waves of a nest.
fn waves(nest: &LoopNest) -> i64 {
    let of = |stmt: &Stmt| match stmt {
        Stmt::Loop { upper, kind: LoopKind::Waves { width }, .. } => {
            upper.iter().map(|b| b.affine.constant.div_euclid(b.divisor * width)).min().unwrap_or(0)
        }
        _ => 0,
    };
    nest.body.iter().map(of).sum()
}

/// The time of loops.
fn priced(nest: &LoopNest, target: &Target) -> Cost {
    let mut nest = nest.clone();
    as_signed(&mut nest);
    lay_out_locals(&mut nest, target);
    cost::price(&nest, target)
}

/// Returns true if all phases are register blocks of `tile`.
fn is_blocks(tiled: &Tiled) -> bool {
    tiled.report.tensorized && tiled.report.phases.iter().all(|p| p.instruction.is_some())
}

/// Returns true if lowering may unroll a sum as a whole.
fn has_short_sums(scop: &Scop, target: &Target) -> bool {
    scop.statements.iter().filter(|s| s.reduce.is_some()).any(|s| {
        let summed = s.vars().filter(|&v| !s.writes_along(v));
        let steps = summed.map(|v| s.extent(v)).try_fold(1i64, i64::checked_mul);
        steps.is_some_and(|n| n > 1 && target.machine.unrolls(n as f64))
    })
}

/// The candidates that can be lowered, within a limit of work ([`MOST_ENTRIES`]); the ILP's order in the default style is the first.
///
/// # Errors
/// [`Error::Internal`] where one of them ends in it.
fn candidates(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    default: Tiled,
    target: &Target,
    most_entries: usize,
) -> Result<Vec<Candidate>> {
    let short = has_short_sums(scop, target).then_some(Style { unrolled: true, ..Style::default() });
    let others = STYLES.into_iter().filter(|_| !is_blocks(&default));
    let styles: Vec<Style> = others.chain(short).collect();
    let mut out: Vec<Candidate> = vec![];
    let answers = Answers::default();
    let mut add = |order, style, tiled: Tiled| {
        if !out.iter().any(|c| same_rows(scop, &c.tiled, &tiled)) {
            out.extend(Candidate::new(scop, order, style, tiled, target, &answers)?);
        }
        Ok(())
    };
    add(Order::Ilp, Style::default(), default)?;
    let apart = apart::apart(scop, dependences, schedule, target, Style::default());
    if let Some(tiled) = unless_refused(apart)?.flatten() {
        add(Order::Apart, Style::default(), tiled)?;
    }
    let original = unless_refused(flags::flag(scop, dependences, &scop.order))?;
    let contiguous = unless_refused(ilp::schedule_contiguous(scop, dependences, schedule))?.flatten();
    let proofs = Answers::default();
    let fused = unless_refused(fused::fused(scop, dependences, schedule, &proofs))?.unwrap_or_default();
    let orders = [
        Some((Order::Ilp, schedule)),
        original.as_ref().map(|o| (Order::Original, o)),
        contiguous.as_ref().map(|o| (Order::Contiguous, o)),
    ];
    let orders = orders.into_iter().flatten().chain(fused.iter().map(|o| (Order::Fused, o)));
    for (order, schedule) in orders {
        // the first candidate is the default of the ILP's order
        let styles_of_order = styles.iter().filter(|style| order != Order::Ilp || **style != Style::default());
        for &style in styles_of_order {
            if answers.entries() > most_entries {
                return Ok(out);
            }
            if let Some(tiled) =
                unless_refused(tile_in(scop, Some(dependences), schedule, target, Constants::Memory, style))?
            {
                add(order, style, tiled)?;
            }
        }
    }
    Ok(out)
}

/// A part of a candidate; `None` where it is refused or goes beyond a limit, and there is no candidate.
///
/// # Errors
/// [`Error::Internal`], a defect.
fn unless_refused<T>(part: Result<T>) -> Result<Option<T>> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(defect @ Error::Internal(_)) => Err(defect),
        Err(_) => Ok(None),
    }
}

/// A defect with the name of the candidate that ends in it.
fn of_candidate(error: Error, order: Order, style: Style) -> Error {
    match error {
        Error::Internal(why) => Error::Internal(format!("{}: {why}", order::name(order, style))),
        other => other,
    }
}

/// Returns true if all instances have the same times, however the rows are divided into bands.
fn same_rows(scop: &Scop, a: &Tiled, b: &Tiled) -> bool {
    a.packings == b.packings && scop.ids().all(|id| a.schedule.path(id) == b.schedule.path(id))
}

const PLAIN: Style = Style {
    boxes: false,
    tiles: false,
    vectors: Vectors::Contiguous,
    inside: false,
    strips: false,
    waves: false,
    sums: true,
    unrolled: false,
    jam: 1,
};
const STYLES: [Style; 13] = [
    Style { boxes: true, tiles: true, vectors: Vectors::Any, sums: false, ..PLAIN },
    Style { boxes: true, tiles: true, waves: true, vectors: Vectors::Any, sums: false, ..PLAIN },
    Style { tiles: true, vectors: Vectors::Any, ..PLAIN },
    Style { tiles: true, ..PLAIN },
    Style { tiles: true, vectors: Vectors::Outermost, ..PLAIN },
    Style { vectors: Vectors::Any, ..PLAIN },
    PLAIN,
    Style { inside: true, ..PLAIN },
    Style { inside: true, strips: true, ..PLAIN },
    Style { vectors: Vectors::None, ..PLAIN },
    Style { vectors: Vectors::None, jam: 4, ..PLAIN },
    Style { vectors: Vectors::Contiguous, jam: 4, ..PLAIN },
    Style { vectors: Vectors::Outermost, jam: 2, ..PLAIN },
];

#[cfg(test)]
mod tests;
