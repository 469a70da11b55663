//! Cache traffic: an estimate of the bytes that a loop nest brings into each cache, for loops in any order, tiled or
//! not, packed or not.
//!
//! In: the loops of a proven schedule, as they are written for code generation, and the caches of a target. Out: the
//! bytes that come into each cache from behind it in one run that begins with empty caches. Invariant: never less than
//! what is touched.
//!
//! From the innermost loops outwards each loop is described by the regions of the buffers that one run of it touches
//! (footprints as in Ferrante, Sarkar, Thrash, "On Estimating and Enhancing Cache Effectiveness", 1991). When what one
//! iteration touches fits the cache, data stays there until the next iteration: the loop brings in each line
//! of its footprint once. When it does not fit, every iteration brings in what it would alone. Unlike the model that
//! chooses tiles (`tile/cache.rs`), which knows one statement between loops over blocks, this one takes loops as they are.
//! Tiles that a loop moves pass the first cache by a hint.
//! The length of a loop whose bounds depend on loops around it is its mean over points of these that are spread evenly, and
//! so is the share of the iterations in which a condition holds.

mod conflicts;
mod region;

use super::tile_loops::{TileLoops, tile_loops};
use crate::codegen::Target;
use crate::codegen::loopnest::{Buffer, LoopNest, Stmt};
use crate::expr::Bound;
use crate::expr::{Access, BufferId, Expr, Index};
use crate::expr::{Affine, Var};

/// Bytes that one run moves.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Traffic {
    /// Bytes of all lines that are touched.
    pub touched: f64,
    /// Bytes that come into each cache, the first cache first.
    pub fetched: [f64; 3],
    /// Bytes of the lines among these that are written, which leave the cache again.
    pub written: [f64; 3],
    /// Rows of neighbouring lines among these: each starts where no prefetcher follows.
    pub starts: [f64; 3],
    /// Lines that come into few sets of the first cache one after the other: as many as take that time in one set.
    pub crowded: f64,
}

/// Mean counts of one run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counts {
    /// Iterations of the loop of each variable, for each time that it is entered.
    pub trips: Vec<f64>,
    /// Share of the times that each condition holds, in textual order, without those in loops that have no iterations.
    pub shares: Vec<f64>,
}

/// The traffic of all phases of `nest`, one after the other.
pub fn traffic(nest: &LoopNest, target: &Target) -> Traffic {
    traffic_and_counts(nest, target).0
}

/// The traffic of all phases of `nest`, one after the other, and the counts that it follows from.
pub fn traffic_and_counts(nest: &LoopNest, target: &Target) -> (Traffic, Counts) {
    let samples = vec![Sample { iteration: vec![], weight: 1.0 }; SAMPLES];
    let counts = Counts { trips: vec![0.0; nest.vars.len()], shares: vec![] };
    let values = vec![None; nest.vars.len()];
    let streams = tile_loops(nest, target) == TileLoops::Streaming;
    let mut model = Model { nest, target, streams, values, samples, lengths: vec![], innermost: 0, counts };
    let all = model.body(&nest.body);
    let touched = model.bytes(&all.regions);
    let fetched = all.fetched.map(|f| f.bytes.max(touched));
    let [written, starts] = [|f: Lines| f.written, |f: Lines| f.starts].map(|of| all.fetched.map(of));
    let crowded = all.fetched[0].crowded;
    (Traffic { touched, fetched, written, starts, crowded }, model.counts)
}

/// An affine form over the loops around, each counted from 0 in steps of 1.
#[derive(Clone, PartialEq, Debug)]
struct Form {
    /// Loop, coefficient; ordered by loop, no zeros.
    terms: Vec<(usize, f64)>,
    constant: f64,
}

impl Form {
    fn constant(constant: f64) -> Form {
        Form { terms: vec![], constant }
    }

    fn coefficient(&self, l: usize) -> f64 {
        self.terms.iter().find(|t| t.0 == l).map_or(0.0, |t| t.1)
    }

    fn at(&self, point: &[f64]) -> f64 {
        self.terms.iter().map(|&(l, c)| c * point[l]).sum::<f64>() + self.constant
    }

    fn add_scaled(&mut self, other: &Form, k: f64) {
        self.constant += k * other.constant;
        for &(l, c) in &other.terms {
            match self.terms.binary_search_by_key(&l, |t| t.0) {
                Ok(i) => self.terms[i].1 += k * c,
                Err(i) => self.terms.insert(i, (l, k * c)),
            }
        }
        self.terms.retain(|t| t.1 != 0.0);
    }
}

/// The values of a subscript: from `low` on, `count` of them within `width`, for each value of the subscript that a region's diagonals follow.
#[derive(Clone, PartialEq, Debug)]
struct Range {
    low: Form,
    width: f64,
    count: f64,
    /// How far the values move with that subscript.
    slope: f64,
    /// The width of the values for all of its values.
    hull: f64,
    /// The loops in which the subscript comes from data: each of their iterations may have any value.
    data: Vec<usize>,
}

/// A part of a buffer that the loops inside touch, for each iteration of those around.
#[derive(Clone, PartialEq, Debug)]
struct Region {
    buffer: BufferId,
    dimensions: Vec<Range>,
    /// The dimension that others follow along diagonals, as in `A[i][j - i]` where i is swept before j.
    row: Option<usize>,
    /// Distinct accesses, at most.
    points: f64,
    written: bool,
}

/// Rows of neighbouring elements.
struct Rows {
    /// Bytes of each.
    run: f64,
    /// For each dimension along which they follow one another, their number and the bytes from one to the next.
    across: Vec<(f64, f64)>,
}

/// Footprint and traffic of one run of some statements.
#[derive(Default)]
struct Footprint {
    regions: Vec<Region>,
    fetched: [Lines; 3],
}

/// Lines of memory.
#[derive(Clone, Copy, Default)]
struct Lines {
    bytes: f64,
    /// Those of lines that are written.
    written: f64,
    /// Rows of neighbouring lines.
    starts: f64,
    /// See [`Traffic::crowded`].
    crowded: f64,
}

impl Lines {
    fn times(self, n: f64) -> Lines {
        Lines { bytes: self.bytes * n, written: self.written * n, starts: self.starts * n, crowded: self.crowded * n }
    }

    fn plus(self, other: Lines) -> Lines {
        Lines {
            bytes: self.bytes + other.bytes,
            written: self.written + other.written,
            starts: self.starts + other.starts,
            crowded: self.crowded + other.crowded,
        }
    }

    /// The one of fewer bytes; of equal ones `other`.
    fn min(self, other: Lines) -> Lines {
        if other.bytes <= self.bytes { other } else { self }
    }

    /// The one of more bytes; of equal ones `other`.
    fn max(self, other: Lines) -> Lines {
        if other.bytes >= self.bytes { other } else { self }
    }
}

struct Model<'a> {
    nest: &'a LoopNest,
    target: &'a Target,
    /// The first cache need not keep what a loop moves.
    streams: bool,
    /// Each variable in terms of the loops around.
    values: Vec<Option<Form>>,
    samples: Vec<Sample>,
    /// Iterations of each loop around.
    lengths: Vec<Length>,
    /// The number of the loop whose body is looked at; loops from there on are parts of it.
    innermost: usize,
    counts: Counts,
}

/// Iterations of a loop.
#[derive(Clone, Copy)]
struct Length {
    /// Of one run, on average.
    mean: f64,
    /// From the first of any run to the last of any, where loops around move its bounds.
    reach: f64,
}

/// One iteration of all loops around.
#[derive(Clone)]
struct Sample {
    /// The iteration of each loop, counted from 0 at its lower bound.
    iteration: Vec<f64>,
    /// Number of iterations that the sample stands for.
    weight: f64,
}

/// Number of sampled iterations of the loops around. Unmeasured.
const SAMPLES: usize = 64;
/// Tolerance for rounding errors in sums of fractions.
const ROUNDING: f64 = 1e-6;
/// Their square roots are irrational, and no two are multiples: points in steps of them lie evenly (Richtmyer 1951).
const PRIMES: [f64; 16] = [2., 3., 5., 7., 11., 13., 17., 19., 23., 29., 31., 37., 41., 43., 47., 53.];

/// The place of sample `i` in a loop that `depth` loops are around, as a share of its iterations.
pub(super) fn spread(i: usize, depth: usize) -> f64 {
    ((i + 1) as f64 * PRIMES[depth % PRIMES.len()].sqrt()).fract()
}

impl Model<'_> {
    fn body(&mut self, body: &[Stmt]) -> Footprint {
        let children: Vec<Footprint> = body.iter().map(|s| self.statement(s)).collect();
        let mut all = Footprint::default();
        for child in &children {
            child.regions.iter().for_each(|r| self.add(&mut all.regions, r.clone()));
        }
        let touched = self.touched(&all.regions);
        for (level, fetched) in all.fetched.iter_mut().enumerate() {
            let apart = children.iter().map(|c| c.fetched[level]).fold(Lines::default(), Lines::plus);
            *fetched = if self.fits(&all.regions, touched.bytes, level) { touched.min(apart) } else { apart };
        }
        all
    }

    fn statement(&mut self, statement: &Stmt) -> Footprint {
        match statement {
            Stmt::Loop { var, lower, upper, step, body, .. } => self.repeat(*var, lower, upper, *step, body),
            Stmt::Let { var, value, divisor } => {
                self.divide(*var, value, *divisor);
                Footprint::default()
            }
            Stmt::Read { var, value, expected, .. } => {
                self.values[var.0 as usize] = Some(self.form(&expected.affine, expected.divisor));
                let mut regions = vec![];
                self.loads(value, &mut regions);
                let touched = self.touched(&regions);
                Footprint { regions, fetched: [touched; 3] }
            }
            Stmt::If { conditions, body } => self.guarded(conditions, body),
            Stmt::Store { buffer, index, value, .. } => {
                let mut regions = vec![];
                let store = Region { written: true, ..self.region(*buffer, index) };
                self.add(&mut regions, store);
                self.loads(value, &mut regions);
                for i in index {
                    if let Index::Value(e) = i {
                        self.loads(e, &mut regions);
                    }
                }
                let touched = self.touched(&regions);
                Footprint { regions, fetched: [touched; 3] }
            }
        }
    }

    fn repeat(&mut self, var: Var, lower: &[Bound], upper: &[Bound], step: i64, body: &[Stmt]) -> Footprint {
        let forms =
            |bounds: &[Bound]| -> Vec<Form> { bounds.iter().map(|b| self.form(&b.affine, b.divisor)).collect() };
        let (lower, upper) = (forms(lower), forms(upper));
        let Some(mut first) = lower.iter().max_by(|a, b| self.mean(a).total_cmp(&self.mean(b))).cloned() else {
            return Footprint::default();
        };
        let outside = (self.samples.clone(), self.values.clone(), self.innermost);
        self.innermost = self.lengths.len();
        let length = self.enter(&lower, &upper, &first, step as f64);
        self.counts.trips[var.0 as usize] = length.mean;
        first.terms.push((self.lengths.len(), step as f64));
        self.lengths.push(length);
        self.values[var.0 as usize] = Some(first);
        let mut all = if length.mean > 0.0 { self.body(body) } else { Footprint::default() };
        for (l, length) in self.lengths.split_off(self.innermost).into_iter().enumerate() {
            all = self.sweep(&all, self.innermost + l, length);
        }
        (self.samples, self.values, self.innermost) = outside;
        all
    }

    /// Returns the footprint of all iterations of loop `l`, given that of one iteration.
    fn sweep(&self, iteration: &Footprint, l: usize, length: Length) -> Footprint {
        let (mut regions, mut moving, mut kept) = (vec![], vec![], vec![]);
        for region in &iteration.regions {
            let swept = region.swept(l, length);
            let one = if swept != *region { &mut moving } else { &mut kept };
            one.push(region.clone());
            self.add(&mut regions, swept);
        }
        let (inside, touched) = (self.bytes(&iteration.regions), self.touched(&regions));
        // an access that has one row for itself is followed by its own address
        moving.retain(|r| self.lines_of(r).starts > 1.0);
        let moving = self.touched(&moving).starts;
        let mut fetched = [touched; 3];
        for (level, fetched) in fetched.iter_mut().enumerate() {
            let apart = iteration.fetched[level].times(length.mean);
            let fits = match self.streams && level == 0 {
                true => self.fits(&kept, self.bytes(&kept), level),
                false => self.fits(&iteration.regions, inside, level),
            };
            if !fits {
                *fetched = touched.max(apart);
            } else if iteration.fetched[level].starts.min(moving) > self.target.machine.row_streams {
                // more rows than the prefetcher follows: the next iteration starts each anew
                let fresh = (touched.bytes / apart.bytes).min(1.0);
                fetched.starts = fetched.starts.max(fresh * apart.starts);
            }
            // however they are walked, all lines together lie in more sets
            let fresh = (touched.bytes / apart.bytes.max(1.0)).min(1.0);
            fetched.crowded = fetched.crowded.max(fresh * apart.crowded);
        }
        Footprint { regions, fetched }
    }

    /// `var = ⌊value / divisor⌋`: the quotient of a loop becomes a loop around it, which keeps the remainder.
    fn divide(&mut self, var: Var, value: &Affine, divisor: i64) {
        let form = self.form(value, 1);
        let l = match form.terms[..] {
            [(l, 1.0)] if form.constant == 0.0 && divisor > 1 && l >= self.innermost => l,
            _ => {
                self.values[var.0 as usize] = Some(self.form(value, divisor));
                return;
            }
        };
        let (quotient, d) = (self.lengths.len(), divisor as f64);
        let Length { mean, reach } = self.lengths[l];
        self.lengths.push(Length { mean: (mean / d).ceil(), reach: (reach / d).ceil() });
        self.lengths[l] = Length { mean: mean.min(d), reach: reach.min(d) };
        for sample in &mut self.samples {
            sample.iteration.push((sample.iteration[l] / d).floor());
            sample.iteration[l] = sample.iteration[l].rem_euclid(d);
        }
        for value in self.values.iter_mut().flatten() {
            let c = value.coefficient(l);
            value.terms.extend((c != 0.0).then_some((quotient, c * d)));
        }
        self.values[var.0 as usize] = Some(Form { terms: vec![(quotient, 1.0)], constant: 0.0 });
    }

    /// A body that is executed where all conditions hold, in its share of the iterations.
    fn guarded(&mut self, conditions: &[Affine], body: &[Stmt]) -> Footprint {
        let forms: Vec<Form> = conditions.iter().map(|c| self.form(c, 1)).collect();
        let weights: Vec<f64> = self.samples.iter().map(|s| s.weight).collect();
        let total: f64 = weights.iter().sum();
        for sample in &mut self.samples {
            if forms.iter().any(|f| f.at(&sample.iteration) < -ROUNDING) {
                sample.weight = 0.0;
            }
        }
        let mut share = self.samples.iter().map(|s| s.weight).sum::<f64>() / total;
        let restore = |model: &mut Self| model.samples.iter_mut().zip(&weights).for_each(|(s, w)| s.weight = *w);
        if share == 0.0 {
            // Rare: it is taken to happen once.
            share = (SAMPLES as f64 / total).min(1.0);
            restore(self);
        }
        self.counts.shares.push(share);
        let mut footprint = self.body(body);
        restore(self);
        footprint.fetched = footprint.fetched.map(|f| f.times(share));
        footprint
    }

    /// `affine / divisor` over the loops around.
    fn form(&self, affine: &Affine, divisor: i64) -> Form {
        let mut out = Form::constant(affine.constant as f64 / divisor as f64);
        for &(v, c) in &affine.terms {
            if let Some(value) = &self.values[v.0 as usize] {
                out.add_scaled(value, c as f64 / divisor as f64);
            }
        }
        out
    }

    /// The mean of a form over the iterations of the loops around.
    fn mean(&self, form: &Form) -> f64 {
        let total: f64 = self.samples.iter().map(|s| s.weight).sum();
        self.samples.iter().map(|s| s.weight * form.at(&s.iteration)).sum::<f64>() / total
    }

    /// Adds a loop that is counted from `first` on to the samples; its length, 0 when it is always empty.
    fn enter(&mut self, lower: &[Form], upper: &[Form], first: &Form, step: f64) -> Length {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        let before: f64 = self.samples.iter().map(|s| s.weight).sum();
        for (i, sample) in self.samples.iter_mut().enumerate() {
            let value = |f: &Form| f.at(&sample.iteration);
            let start = lower.iter().map(|f| (value(f) - ROUNDING).ceil()).fold(f64::NEG_INFINITY, f64::max);
            let end = upper.iter().map(|f| (value(f) + ROUNDING).floor()).fold(f64::INFINITY, f64::min);
            let length = ((end - start) / step).ceil().max(0.0);
            let share = spread(i, sample.iteration.len());
            let offset = (start - value(first)) / step;
            sample.iteration.push(offset + (share * length).floor());
            sample.weight *= length;
            if sample.weight > 0.0 {
                (from, to) = (from.min(offset), to.max(offset + length));
            }
        }
        let mean = self.samples.iter().map(|s| s.weight).sum::<f64>() / before;
        Length { mean, reach: (to - from).max(mean) }
    }

    fn loads(&self, e: &Expr, regions: &mut Vec<Region>) {
        e.visit_accesses(&mut |Access { buffer, index, .. }| self.add(regions, self.region(*buffer, index)));
    }

    /// The element of one access; a subscript from data may be any.
    fn region(&self, buffer: BufferId, index: &[Index]) -> Region {
        let shape = &self.nest.buffer(buffer).shape;
        let range = |(i, &size): (&Index, &i64)| match i {
            Index::Affine(a) => {
                Range { low: self.form(a, 1), width: 0.0, count: 1.0, slope: 0.0, hull: 0.0, data: vec![] }
            }
            Index::Value(e) => {
                let (low, width) = (Form::constant(0.0), (size - 1).max(0) as f64);
                Range { low, width, count: 1.0, slope: 0.0, hull: width, data: self.loops_of(e) }
            }
        };
        Region {
            buffer,
            dimensions: index.iter().zip(shape).map(range).collect(),
            row: None,
            points: 1.0,
            written: false,
        }
    }

    /// The loops on which the value of an expression depends.
    fn loops_of(&self, e: &Expr) -> Vec<usize> {
        let mut loops = vec![];
        let mut add = |a: &Affine| loops.extend(self.form(a, 1).terms.iter().map(|t| t.0));
        e.visit(&mut |e| {
            if let Expr::Index(a) = e {
                add(a);
            }
        });
        e.visit_accesses(&mut |a| a.index.iter().filter_map(Index::affine).for_each(&mut add));
        loops
    }

    fn bytes(&self, regions: &[Region]) -> f64 {
        self.touched(regions).bytes
    }

    /// The lines of all regions.
    fn touched(&self, regions: &[Region]) -> Lines {
        let mut total = Lines::default();
        for (i, r) in regions.iter().enumerate() {
            if regions[..i].iter().all(|o| o.buffer != r.buffer) {
                let buffer = self.nest.buffer(r.buffer);
                let parts = regions.iter().filter(|o| o.buffer == r.buffer).map(|o| self.lines_of(o));
                let parts = parts.fold(Lines::default(), Lines::plus);
                let line = self.target.machine.line_bytes as f64;
                let whole = (buffer.span() as f64 * buffer.dtype.bytes() as f64 / line).ceil() * line;
                let whole = Lines { bytes: whole, written: whole.min(parts.written), starts: 1.0, crowded: 0.0 };
                total = total.plus(whole.min(parts));
            }
        }
        total
    }

    /// Bytes of the lines of a region.
    fn lines(&self, region: &Region) -> f64 {
        self.lines_of(region).bytes
    }

    /// The rows of neighbouring elements of a region.
    fn rows_of(&self, region: &Region) -> Rows {
        let line = self.target.machine.line_bytes as f64;
        let buffer: &Buffer = self.nest.buffer(region.buffer);
        let element = buffer.dtype.bytes() as f64;
        let (mut run, mut across, mut dense, mut next) = (element, vec![], true, 1);
        let dimensions = region.dimensions.iter().zip(&buffer.shape).zip(&buffer.strides);
        for ((range, &size), &stride) in dimensions.rev() {
            let extent = (range.width + 1.0).min(size as f64);
            let count = range.count.min(extent);
            dense &= stride == next && extent / count * run < line.max(run + 0.5);
            if dense {
                run *= extent;
                dense = extent >= size as f64;
            } else {
                across.push((count, (extent / count).round().max(1.0) * stride as f64 * element));
            }
            next = stride * size;
        }
        Rows { run, across }
    }

    fn lines_of(&self, region: &Region) -> Lines {
        let line = self.target.machine.line_bytes as f64;
        let Rows { run, across } = self.rows_of(region);
        let rows: f64 = across.iter().map(|a| a.0).product();
        let bytes = (rows * (run / line).ceil() * line).min(region.points * line);
        let written = if region.written { bytes } else { 0.0 };
        Lines { bytes, written, starts: rows.min(bytes / line), crowded: self.crowded(region, bytes / line) }
    }

    /// Returns true if a whole line lies between the neighbouring elements of two regions.
    fn are_apart(&self, a: &Region, b: &Region) -> bool {
        let buffer: &Buffer = self.nest.buffer(a.buffer);
        let Some(d) = buffer.strides.iter().position(|&s| s == 1) else { return false };
        let (x, y) = (&a.dimensions[d], &b.dimensions[d]);
        let gap = x.low.constant.max(y.low.constant) - (x.low.constant + x.hull).min(y.low.constant + y.hull);
        gap * buffer.dtype.bytes() as f64 > self.target.machine.line_bytes as f64
    }

    /// Adds a region, joined with one that differs by a constant where that saves lines. Those with lines between them stay two
    /// until loops around have brought them together: of their hull, the lines in between would count.
    fn add(&self, regions: &mut Vec<Region>, region: Region) {
        for other in regions.iter_mut() {
            if let Some(hull) = other.hull(&region)
                && let saved = self.lines(other) + self.lines(&region) - self.lines(&hull)
                && (saved > 0.0 || saved == 0.0 && !self.are_apart(other, &region))
            {
                *other = hull;
                return;
            }
        }
        regions.push(region);
    }
}

#[cfg(test)]
mod tests;
