//! Tiling of bands of any shape, for loop programs; `phase.rs` tiles boxes.
//!
//! In: the tree of one phase, with the tile rows that the ILP found ([`crate::poly::ilp`]). Out: the same tree with tile
//! sizes from the caches, or without tiles where everything fits, and with vector and unrolled points in the leaves.
//!
//! **Tile sizes.** A tile row of size `n` runs the points of `n` values of φ at a time. Extents of iterators inside of
//! a tile follow from the rows; the footprint is the sum over tensors of the box that is touched. Of the sizes that
//! keep the footprint in the second cache the one with the least time counts:
//!
//! > tiles · footprint / bandwidth + runs of the innermost loop · RUN
//!
//! **Points.** A coincident row may be moved inwards past everything below, a row of a permutable band within its band:
//! both may become the vector, as may the row of a reduction that reads contiguous memory or rounds nothing (its lanes
//! are combined). The vector is the row with the least cost, from the stride of each access along it; a coincident row
//! along which reads are invariant is unrolled.
//!
//! Invariant: rows are only moved inwards where they carry nothing, so that the result is legal; it is checked like any
//! other.

pub mod context;
mod sizes;
mod sums;
mod unroll;
mod vector;

use crate::codegen::loopnest::row_major;
use crate::expr::Index;
use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Var};
use crate::poly::analysis::access::{Reference, operations, references};
use crate::poly::analysis::dependence;
use crate::poly::analysis::dynamic_loops::share;
use crate::poly::schedule::{Band, Node, Row, RowKind};
use crate::poly::statement::StatementId;
use crate::poly::tile::band::context::{Bands, SIZES, Vectors, direction};
use crate::poly::tile::plan::Plan;
use crate::poly::tile::report::{PhaseReport, instances};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use sums::BlockOfSums;

/// Vectors of a row that a thread updates at a time, of a scatter. Unmeasured.
const STRIP: i64 = 16;
/// Tiles along a row that runs in waves, at least. Unmeasured.
const LEAST_TILES: i64 = 4;
/// The surroundings of a place in the tree.
#[derive(Clone, Default)]
struct Surroundings {
    /// Rows over single values.
    rows: Vec<Row>,
    tiles: Vec<Row>,
    /// Rows whose points are still to come.
    splits: Vec<Split>,
}

/// A row that is strip-mined: its points go to the leaves.
#[derive(Clone)]
struct Split {
    /// The row as in its band.
    row: Row,
    /// φ shifted by rows outside.
    phi: Vec<(StatementId, Affine)>,
    tile: i64,
    kind: RowKind,
}

impl Bands<'_> {
    pub fn plan(&self, node: &Node) -> Plan {
        let dominant = self.dominant(self.statements);
        let mut report =
            PhaseReport { statement: self.scop.statement(dominant).name.clone(), ..PhaseReport::default() };
        let node = self.rewrite(node, &Surroundings::default(), &mut report);
        report.mismatch = "a loop program".into();
        let work: f64 = self.statements.iter().map(|&s| self.instances(s) * (operations(self.scop, s) + 1.0)).sum();
        report.predicted_ns = work / self.target.machine.clock_ghz;
        Plan { node, report, free_rows: 1 }
    }

    /// Points of the domain, roughly: each condition halves its box.
    fn instances(&self, s: StatementId) -> f64 {
        let share = share(self.scop, s) / (1 << self.scop.statement(s).domain.len().min(2)) as f64;
        instances(self.scop, s) * share
    }

    /// The statement with most instances, updates first.
    fn dominant(&self, statements: &[StatementId]) -> StatementId {
        let weight =
            |s: StatementId| self.instances(s) * (1.0 + self.scop.statement(s).reduce.is_some() as u8 as f64 * 0.1);
        let mut best = statements[0];
        for &s in statements {
            if weight(s) > weight(best) {
                best = s;
            }
        }
        best
    }

    fn rewrite(&self, node: &Node, around: &Surroundings, report: &mut PhaseReport) -> Node {
        match node {
            Node::Leaf => points(&around.splits, Node::Leaf),
            Node::Sequence(children) => {
                let child = |(ids, child): &(Vec<StatementId>, Node)| {
                    let splits = around.splits.iter().filter_map(|s| s.of(ids)).collect();
                    (ids.clone(), self.rewrite(child, &Surroundings { splits, ..around.clone() }, report))
                };
                Node::Sequence(children.iter().map(child).collect())
            }
            Node::Band(band, child) if band.rows.iter().any(|r| r.tile > 1) => {
                match self.tile_sizes(&band.rows, self.innermost(child, self.dominant(&covered(band)))) {
                    None => self.rewrite(child, around, report),
                    Some(rows) => {
                        report.tiles = describe(&rows);
                        let inside =
                            self.rewrite(child, &Surroundings { tiles: rows.clone(), ..around.clone() }, report);
                        Node::Band(Band { rows, permutable: true }, Box::new(inside))
                    }
                }
            }
            Node::Band(band, child) => {
                let carried = band.permutable && band.rows.len() > 1 && band.rows.iter().all(|r| !r.coincident);
                if carried
                    && (is_leaf(child) || self.style.waves)
                    && around.rows.is_empty()
                    && around.tiles.is_empty()
                    && let Some(rows) = self.tile_sizes(&band.rows, self.runs(band, node))
                {
                    report.tiles = describe(&rows);
                    let around = Surroundings { tiles: rows.clone(), ..around.clone() };
                    let inside = self.band(band, child, around, report);
                    return Node::Band(Band { rows, permutable: true }, Box::new(inside));
                }
                self.band(band, child, around.clone(), report)
            }
        }
    }

    /// Skews the rows (…, a, b) to (…, a + b, a) if the inner row carries distance 1: row a carries nothing once the
    /// sum is fixed.
    fn skewed(&self, rows: &[Row], id: StatementId) -> Option<Vec<Row>> {
        let [.., a, b] = rows else { return None };
        let s = self.scop.statement(id);
        let all: Vec<&Row> = rows.iter().collect();
        let d = direction(&all, b, id, s.iterators.len())?;
        let along = |form: &Affine| form.terms.iter().map(|t| t.1 * d[t.0.0 as usize]).sum::<i64>();
        let mut waits = false;
        s.body.visit_accesses(&mut |r| {
            let before = |(w, r): (&Affine, &Index)| {
                let step = r.affine().map(|r| r.add_scaled(w, -1));
                step.is_some_and(|step| step.is_constant() && step.constant == -along(w))
            };
            waits |= r.buffer == s.target && s.write.iter().zip(&r.index).all(before);
        });
        let sum = |(id, phi): &(StatementId, Affine)| (*id, phi.add_scaled(b.of(*id), 1));
        let wave = Row { phi: a.phi.iter().map(sum).collect(), ..b.clone() };
        let mut skewed = rows[..rows.len() - 2].to_vec();
        skewed.extend([wave, Row { coincident: true, ..a.clone() }]);
        waits.then_some(skewed)
    }

    fn band(&self, band: &Band, child: &Node, mut around: Surroundings, report: &mut PhaseReport) -> Node {
        let dominant = self.dominant(&covered(band));
        let inner = rows_to(child, dominant);
        let is_leaf = is_leaf(child);
        let mut cached = vec![];
        let vectors = |s: &Split| s.kind == RowKind::Vector && s.row.phi.iter().any(|p| p.0 == dominant);
        let looped = self.without_lanes(band, &mut around);
        if !around.splits.iter().any(vectors) {
            let all: Vec<&Row> = around.rows.iter().chain(&band.rows).chain(inner.iter().map(|r| r.0)).collect();
            let lanes = self.lanes(dominant);
            let independent = OnceCell::new();
            let apart = |r: &Row| {
                is_leaf
                    && band.rows.last() == Some(r)
                    && *independent.get_or_init(|| self.independent_iterations(r, &all, child) >= lanes)
            };
            let free = |r: &Row| r.coincident || apart(r);
            let movable = |r: &Row| free(r) || self.movable(r, band, is_leaf, &inner, &all);
            let vector = self.vector(&all, (&covered(band), child), dominant, &movable, &free);
            if let Some((row, _)) = vector
                && let Some(BlockOfSums { points, tile }) = self.block_of_sums(band, &all, dominant, row)
            {
                for (row, n) in points {
                    let split = self.split(row, n, RowKind::Unroll, &around);
                    let outer = tile.map(|tile| Row {
                        tile,
                        name: format!("{}t", row.name),
                        phi: split.phi.clone(),
                        ..row.clone()
                    });
                    cached.extend(outer);
                    around.splits.push(split);
                }
                report.tiles = describe(&cached);
            }
            if let Some((row, n)) = vector
                && band.rows.contains(row)
            {
                let shared: Vec<&Split> = around.splits.iter().filter(|s| s.kind == RowKind::Unroll).collect();
                let n = match band.rows.len() {
                    _ if !shared.is_empty() => self.lanes(dominant),
                    1 if is_leaf && row.coincident && self.dynamic(row, dominant).is_none() => self.strip_mined(row, n),
                    _ if self.carries_inside(row, &all) => n * self.copies(row, n),
                    _ => n,
                };
                let mut block: String = shared.iter().map(|s| format!("{} {} × ", s.row.name, s.tile)).collect();
                block += &format!("{} {n}", row.name);
                let mut found = vec![self.split(row, n, RowKind::Vector, &around)];
                if row.coincident
                    && let Some((other, m)) =
                        self.unrolled(&all, dominant, row, &|r| band.rows.contains(r) && r.coincident)
                {
                    found.push(self.split(other, m, RowKind::Unroll, &around));
                    block = format!("{} {m} × {block}", other.name);
                }
                if self.scop.statement(dominant).name == report.statement {
                    report.vector = Some(row.name.clone());
                    report.block = block;
                }
                around.splits.extend(found);
            }
        }
        around.splits.extend(self.jammed(band, dominant, &inner, &around));
        cached.extend(self.strips(band, dominant, is_leaf, &around));
        // Rows that carry something stay in their places; coincident ones around a leaf go outside.
        let (mut rows, mut lanes) = (cached, vec![]);
        for row in &band.rows {
            match around.splits.iter().find(|s| s.row == *row) {
                Some(s) => {
                    let tile = Row { tile: s.tile, name: format!("{}o", row.name), phi: s.phi.clone(), ..row.clone() };
                    if row.coincident && !self.style.inside { rows.push(tile) } else { lanes.push(tile) }
                }
                None => rows.push(row.clone()),
            }
        }
        if is_leaf && band.permutable && !self.style.inside {
            // A scatter updates neighbours before it goes on to the next index.
            let scatters = self.scop.statement(dominant).is_scatter();
            let vectors = |s: &Split, r: &Row| s.kind == RowKind::Vector && s.tile == r.tile && s.phi == r.phi;
            let of_lanes = |r: &Row| around.splits.iter().any(|s| vectors(s, r));
            rows.sort_by_key(|r| (scatters && of_lanes(r), !r.coincident));
        }
        rows.extend(lanes);
        rows.splice(0..0, looped);
        if is_leaf
            && band.permutable
            && around.splits.is_empty()
            && !around.tiles.is_empty()
            && let Some(skewed) = self.skewed(&rows, dominant)
        {
            rows = skewed;
        }
        if is_leaf
            && (rows.len() > 1 || !around.rows.is_empty())
            && let Some((last, before)) = rows.split_last_mut()
            && self.is_short(last, before.last().or(around.rows.last()), &around)
        {
            last.kind = RowKind::Unroll;
        }
        around.rows.extend(band.rows.iter().cloned());
        let inside = if is_leaf { points(&around.splits, child.clone()) } else { self.rewrite(child, &around, report) };
        Node::Band(Band { rows, permutable: band.permutable }, Box::new(inside))
    }

    /// The points of a row further out along whose lanes the statements of a band load or store element by element, where they move
    /// whole vectors along a row of their own: a loop around the band takes the place of the vectors. What recurs along memory has lanes
    /// across it, and what reads its results need not.
    fn without_lanes(&self, band: &Band, around: &mut Surroundings) -> Option<Row> {
        if self.style.vectors == Vectors::Outermost {
            return None;
        }
        let ids = covered(band);
        let at = around
            .splits
            .iter()
            .position(|s| s.kind == RowKind::Vector && s.row.phi.iter().any(|p| ids.contains(&p.0)))?;
        let all: Vec<&Row> = around.rows.iter().chain(&band.rows).collect();
        let whole = |row: &Row| ids.iter().all(|&id| self.moves_whole_vectors(&all, row, id));
        let own = band.rows.iter().any(|r| r.coincident && r.tile == 1 && whole(r)) && !whole(&around.splits[at].row);
        own.then(|| {
            let split = around.splits.remove(at);
            Row { phi: split.phi, ..split.row }
        })
    }

    /// The tiles along lanes that run inside of loops which carry something, or of a scatter, where the work is large: for threads to
    /// divide where no other loop carries nothing. At least two of them.
    fn strips(&self, band: &Band, id: StatementId, is_leaf: bool, around: &Surroundings) -> Option<Row> {
        let lanes = around.splits.iter().find(|s| s.kind == RowKind::Vector && band.rows.contains(&s.row))?;
        let free = |r: &&Row| r.coincident && **r != lanes.row;
        let alone = is_leaf && band.permutable && band.rows.len() > 1 && !band.rows.iter().any(|r| free(&r));
        let extent = lanes.row.extent(self.scop);
        let half = (extent + 1) / 2;
        let tile = (STRIP * lanes.tile).min((half + lanes.tile - 1) / lanes.tile * lanes.tile);
        let work = self.instances(id) * (operations(self.scop, id) + 1.0) / self.target.machine.clock_ghz;
        let large = work >= self.target.machine.serial_ns && extent > tile;
        let inside = (self.scop.statement(id).is_scatter() || self.style.strips) && lanes.row.coincident;
        let strip = || Row { tile, name: format!("{}t", lanes.row.name), phi: lanes.phi.clone(), ..lanes.row.clone() };
        (inside && alone && large).then(strip)
    }

    /// The strip-mined row, its φ that of a tile row around when both differ by outer rows only.
    fn split(&self, row: &Row, tile: i64, kind: RowKind, around: &Surroundings) -> Split {
        let fixed = |id: StatementId, difference: &Affine| {
            let iterator = |r: &Row| match r.phi.iter().find(|p| p.0 == id).map(|p| &p.1.terms[..]) {
                Some(&[(v, c)]) if c.abs() == 1 => Some(v),
                _ => None,
            };
            difference.terms.iter().all(|t| around.rows.iter().any(|r| iterator(r) == Some(t.0)))
        };
        let aligned = around
            .tiles
            .iter()
            .find(|t| t.tile % tile == 0 && row.phi.iter().all(|(id, phi)| fixed(*id, &t.of(*id).add_scaled(phi, -1))));
        let phi = match aligned {
            Some(t) => row.phi.iter().map(|(id, _)| (*id, t.of(*id).clone())).collect(),
            None => {
                let shift = self.alignment(row, tile);
                row.phi.iter().map(|(id, phi)| (*id, phi.clone().offset(shift))).collect()
            }
        };
        Split { row: row.clone(), phi, tile, kind }
    }

    /// Returns the constant to add to φ so that tiles start where the first statement writes whole cache lines.
    fn alignment(&self, row: &Row, tile: i64) -> i64 {
        let s = self.scop.statement(row.phi[0].0);
        let strides = row_major(&self.scop.tensor(s.target).shape);
        let step = s.write.last().map(|w| w.add_scaled(&row.phi[0].1, -1));
        match step {
            Some(step) if step.is_constant() && strides.iter().all(|n| *n == 1 || n % tile == 0) => {
                step.constant.rem_euclid(tile)
            }
            _ => 0,
        }
    }

    /// Returns true if a row may be the vector: it carries nothing, or only the sums of the one statement below its
    /// permutable band; with [`Style::sums`] those of several, in loops further in too, of which the proof says whether they carry more.
    fn movable(&self, row: &Row, band: &Band, is_leaf: bool, inner: &[(&Row, bool)], all: &[&Row]) -> bool {
        let sums = |id: StatementId| {
            let s = self.scop.statement(id);
            let others: Vec<Affine> = all
                .iter()
                .filter(|r| **r != row && r.phi.iter().any(|p| p.0 == id))
                .map(|r| r.of(id).clone())
                .collect();
            s.reduce.is_some()
                && !s.is_scatter()
                && row.of(id).terms.iter().all(|t| s.write.iter().all(|w| !w.uses(t.0)))
                && matches!(dependence::reads_sums(s, &others, &self.isl), Ok(false))
        };
        // Beside sums there may be statements that write an element of their own in each iteration: the proof decides.
        let writes = |id: StatementId| {
            let s = self.scop.statement(id);
            s.reduce.is_none() && row.of(id).terms.iter().all(|t| s.write.iter().any(|w| w.uses(t.0)))
        };
        let alone = row.phi.len() == 1;
        let reduces = || row.phi.iter().all(|p| sums(p.0) || !alone && self.style.sums && writes(p.0));
        if band.rows.contains(row) {
            return row.coincident || ((is_leaf || self.style.sums) && band.permutable && reduces());
        }
        inner.iter().any(|(r, last)| *r == row && (row.coincident || *last && reduces()))
    }

    /// The tile rows with their sizes, or `None` where tiles gain nothing.
    fn tile_sizes(&self, rows: &[Row], runs_along: Option<Var>) -> Option<Vec<Row>> {
        if !self.style.tiles {
            return None;
        }
        let machine = &self.target.machine;
        let ids: Vec<StatementId> = rows[0].phi.iter().map(|p| p.0).collect();
        let cache = machine.cache_bytes[1] as f64 * machine.tile_fill;
        let accesses: Vec<(StatementId, Vec<Reference>)> =
            ids.iter().map(|&id| (id, references(self.scop, id))).collect();
        let whole: BTreeMap<StatementId, Vec<i64>> =
            ids.iter().map(|&s| (s, self.scop.statement(s).iterators.iter().map(|i| i.extent).collect())).collect();
        if self.footprint(&accesses, &whole) <= cache && !self.style.waves {
            return None;
        }
        let extents: Vec<i64> = rows.iter().map(|r| r.extent(self.scop)).collect();
        let dominant = self.dominant(&ids);
        let choices: Vec<Vec<i64>> =
            extents.iter().map(|&n| SIZES.iter().copied().filter(|&s| s < n).chain([n]).collect()).collect();
        let sizes = sizes::best_sizes(&choices, &mut |sizes| {
            let inside: BTreeMap<StatementId, Vec<i64>> =
                ids.iter().map(|&s| (s, self.inside(rows, sizes, s))).collect();
            let print = self.footprint(&accesses, &inside);
            let tiles: f64 = extents.iter().zip(sizes).map(|(&e, &s)| ceil_div(e, s) as f64).product();
            let run = runs_along.map_or(1, |v| inside[&dominant][v.0 as usize]).max(1);
            let runs = self.instances(dominant) / run as f64;
            let waves = if self.style.waves { waves(&extents, sizes)? } else { 0 };
            let barriers = waves as f64 * machine.launch_ns;
            (print <= cache).then(|| tiles * print / machine.bandwidth[2] + runs * machine.run_ns + barriers)
        })?;
        let kept = rows.iter().zip(&sizes).zip(&extents).filter(|((_, s), e)| s < e);
        let rows: Vec<Row> =
            kept.map(|((r, &s), _)| Row { tile: s, name: format!("{}t", r.name), ..r.clone() }).collect();
        (!rows.is_empty()).then_some(rows)
    }

    /// The iterator of the innermost loop that a band of one leaf will have.
    fn runs(&self, band: &Band, node: &Node) -> Option<Var> {
        let id = self.dominant(&covered(band));
        match self.skewed(&band.rows, id) {
            Some(rows) => rows.last()?.of(id).terms.last().map(|t| t.0),
            None => self.innermost(node, id),
        }
    }

    /// The iterator of the innermost point loop of a statement.
    fn innermost(&self, child: &Node, id: StatementId) -> Option<Var> {
        let rows = rows_to(child, id);
        let all: Vec<&Row> = rows.iter().map(|r| r.0).collect();
        let band = Band { rows: vec![], permutable: true };
        let movable = |r: &Row| self.movable(r, &band, false, &rows, &all);
        let best = self.vector(&all, (&[], child), id, &movable, &|r| r.coincident).map(|b| b.0);
        best.or(all.last().copied())?.of(id).terms.last().map(|t| t.0)
    }

    /// Extents of the iterators of a statement inside of one tile.
    fn inside(&self, rows: &[Row], sizes: &[i64], id: StatementId) -> Vec<i64> {
        let iterators = &self.scop.statement(id).iterators;
        let mut extents: Vec<i64> = iterators.iter().map(|i| i.extent).collect();
        for (row, &size) in rows.iter().zip(sizes) {
            let phi = row.of(id);
            for &(v, c) in &phi.terms {
                let others: i64 =
                    phi.terms.iter().filter(|t| t.0 != v).map(|t| t.1.abs() * (extents[t.0.0 as usize] - 1)).sum();
                let here = (size - 1 + others) / c.abs() + 1;
                extents[v.0 as usize] = extents[v.0 as usize].min(here);
            }
        }
        extents
    }

    /// Bytes of all tensors that accesses of statements in boxes of these extents touch.
    fn footprint(&self, accesses: &[(StatementId, Vec<Reference>)], extents: &BTreeMap<StatementId, Vec<i64>>) -> f64 {
        let mut bytes: BTreeMap<u32, f64> = BTreeMap::new();
        for (id, references) in accesses {
            let extents = &extents[id];
            for r in references {
                let touched = r.footprint(&|v: Var| extents[v.0 as usize], self.target.machine.line_bytes as i64);
                let all = bytes.entry(r.tensor.0).or_default();
                *all = all.max(touched);
            }
        }
        bytes.values().sum()
    }
}

impl Split {
    /// The split for some of its statements.
    fn of(&self, ids: &[StatementId]) -> Option<Split> {
        let only = |phi: &[(StatementId, Affine)]| -> Vec<(StatementId, Affine)> {
            phi.iter().filter(|p| ids.contains(&p.0)).cloned().collect()
        };
        let phi = only(&self.phi);
        let row = Row { phi: only(&self.row.phi), ..self.row.clone() };
        (!phi.is_empty()).then(|| Split { row, phi, ..self.clone() })
    }
}

/// The waves of the tiles of the first two rows that are tiled; `None` where there are fewer than two, or where most waves
/// have too few tiles for threads.
fn waves(extents: &[i64], sizes: &[i64]) -> Option<i64> {
    let tiled = extents.iter().zip(sizes).filter(|(e, s)| s < e).map(|(&e, &s)| ceil_div(e, s));
    let &[first, second, ..] = &tiled.collect::<Vec<i64>>()[..] else { return None };
    (first.min(second) >= LEAST_TILES && first * second >= LEAST_TILES * LEAST_TILES * 2).then(|| first + second - 1)
}

/// The points of the splits around a leaf (or a sequence of leaves): unrolled, then the vector.
fn points(splits: &[Split], body: Node) -> Node {
    let mut rows: Vec<Row> = vec![];
    for kind in [RowKind::Unroll, RowKind::Vector] {
        let of_kind = splits.iter().filter(|s| s.kind == kind);
        rows.extend(of_kind.map(|s| Row { kind, phi: s.phi.clone(), ..s.row.clone() }));
    }
    if rows.is_empty() { body } else { Node::Band(Band { rows, permutable: true }, Box::new(body)) }
}

/// The rows over single values on the way to a statement; whether each is in the last band.
fn rows_to(node: &Node, id: StatementId) -> Vec<(&Row, bool)> {
    let mut rows = vec![];
    for (band, child) in node.bands_to(&[id]) {
        let last = is_leaf(child) && band.permutable;
        rows.extend(band.rows.iter().filter(|r| r.tile == 1).map(|r| (r, last)));
    }
    rows
}

/// The statements below a band.
fn covered(band: &Band) -> Vec<StatementId> {
    band.rows[0].phi.iter().map(|p| p.0).collect()
}

/// Nothing but statements.
fn is_leaf(node: &Node) -> bool {
    match node {
        Node::Leaf => true,
        Node::Sequence(children) => children.iter().all(|c| c.1 == Node::Leaf),
        Node::Band(..) => false,
    }
}

fn describe(rows: &[Row]) -> String {
    rows.iter().map(|r| format!("{}/{}", r.name, r.tile)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
