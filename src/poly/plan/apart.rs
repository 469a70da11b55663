//! Sums in loop nests of their own, as products in register blocks.
//!
//! In: a legal schedule of a loop program. Out: a tiled schedule in which each sum over a domain that is not a box, whose
//! operands are read again for other elements, stands alone: loops around it and other statements are distributed (Kennedy
//! and McKinley, "Maximizing Loop Parallelism and Improving Data Locality via Loop Fusion and Distribution", 1993), and its
//! own loops are those of a matrix product (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
//! 2008): tiles for the second cache, a cut of the sum whose panels stay in the first one, blocks of accumulators.
//!
//! Invariant: nothing is proven here. The planner proves what it chooses.

use crate::codegen::Target;
use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Var};
use crate::poly::analysis::access::{Along, Reference, references};
use crate::poly::analysis::dependence::Dependences;
use crate::poly::analysis::flags;
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::tile::cache::Constants;
use crate::poly::tile::report::{PhaseReport, Tiled};
use crate::poly::tile::{Style, tile_in};
use crate::runtime::Result;

/// Vectors of one row of a block, at most. Unmeasured.
const MOST_VECTORS: i64 = 4;
/// Share of a cache that the panels of a product may fill. Unmeasured.
const PANELS: f64 = 0.6;

/// The loops of one sum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Product {
    id: StatementId,
    /// The iterators of its target: the rows and the lanes of blocks, then the others.
    rows: Var,
    lanes: Var,
    others: Vec<Var>,
    summed: Vec<Var>,
    /// Rows and lanes of a block.
    pub block: [i64; 2],
    /// Lanes of a tile, and steps of the first summed iterator.
    tile: [i64; 2],
}

/// The tiling of `schedule` with its sums apart; `None` where there are none, or where phases are too short to be apart.
///
/// # Errors
/// Those of isl, and of tiling the other statements.
pub(super) fn apart(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    target: &Target,
    style: Style,
) -> Result<Option<Tiled>> {
    let products: Vec<Product> = scop.ids().filter_map(|id| product(scop, id, target)).collect();
    if products.is_empty() {
        return Ok(None);
    }
    let mut parts = vec![(schedule.ids(), schedule.root.clone().flattened())];
    for product in &products {
        parts = parts.into_iter().flat_map(|(ids, node)| distributed(ids, node, product.id)).collect();
    }
    let root = Node::Sequence(parts.into_iter().map(|(ids, node)| (ids, points(node))).collect()).flattened();
    let flagged = flags::flag(scop, dependences, &Schedule { root })?;
    let mut tiled = tile_in(scop, Some(dependences), &flagged, target, Constants::Memory, style)?;
    let Node::Sequence(phases) = &mut tiled.schedule.root else {
        return Ok(match &products[..] {
            [only] if scop.statements.len() == 1 => Some(alone(scop, tiled, only, target)),
            _ => None,
        });
    };
    for ((ids, node), report) in phases.iter_mut().zip(&mut tiled.report.phases) {
        if let Some(product) = products.iter().find(|p| ids[..] == [p.id]) {
            (*node, *report) = product.nest(scop, report, target);
        }
    }
    Ok(Some(tiled))
}

/// The tiling of a program of one statement, which is a product.
fn alone(scop: &Scop, mut tiled: Tiled, product: &Product, target: &Target) -> Tiled {
    if let [report] = &mut tiled.report.phases[..] {
        (tiled.schedule.root, *report) = product.nest(scop, report, target);
    }
    tiled
}

/// The parts of a tree that is distributed around one of its statements, in their order.
fn distributed(ids: Vec<StatementId>, node: Node, of: StatementId) -> Vec<(Vec<StatementId>, Node)> {
    if !ids.contains(&of) || ids.len() == 1 {
        return vec![(ids, node)];
    }
    match node {
        Node::Leaf => vec![(ids, Node::Leaf)],
        Node::Band(band, child) => {
            let around = |(ids, child): (Vec<StatementId>, Node)| {
                let node = Node::Band(band.clone(), Box::new(child)).restricted(&ids);
                (ids, node)
            };
            distributed(ids, *child, of).into_iter().map(around).collect()
        }
        Node::Sequence(children) => {
            let (mut before, mut around_it, mut after) = (vec![], vec![], vec![]);
            for (ids, child) in children {
                match ids.contains(&of) {
                    true => around_it = distributed(ids, child, of),
                    false if around_it.is_empty() => before.push((ids, child)),
                    false => after.push((ids, child)),
                }
            }
            let together = |parts: Vec<(Vec<StatementId>, Node)>| {
                let ids: Vec<StatementId> = parts.iter().flat_map(|p| p.0.iter().copied()).collect();
                (!ids.is_empty()).then(|| (ids, Node::Sequence(parts).flattened()))
            };
            together(before).into_iter().chain(around_it).chain(together(after)).collect()
        }
    }
}

/// The tree without rows of tiles, whose points follow further in.
fn points(node: Node) -> Node {
    match node {
        Node::Band(band, child) if band.rows.iter().any(|r| r.tile > 1) => points(*child),
        node => node.map_children(&mut points),
    }
}

/// The loops of a statement that is a sum of products over a domain that is not a box; `None` for others.
pub(super) fn product(scop: &Scop, id: StatementId, target: &Target) -> Option<Product> {
    let s = scop.statement(id);
    let (read, written): (Vec<Reference>, Vec<Reference>) =
        references(scop, id).into_iter().partition(|r| r.access.is_some());
    if s.reduce.is_none() || s.domain.is_empty() || s.is_scatter() {
        return None;
    }
    let (free, summed): (Vec<Var>, Vec<Var>) = s.vars().partition(|&v| s.writes_along(v));
    if summed.is_empty() || !free.iter().all(|&v| s.is_subscript(v)) {
        return None;
    }
    let contiguous = |v: Var| {
        let step = |r: &Reference| matches!(r.along(v), Along::Invariant | Along::Unit);
        written.iter().all(|r| r.along(v) == Along::Unit) && read.iter().all(step)
    };
    let extent = |v: Var| s.extent(v);
    let lanes = *free.iter().find(|&&v| contiguous(v) && extent(v) >= target.machine.least_vector_points)?;
    // What changes along the lanes is read again for other rows, and the other way round.
    let of_lanes: Vec<&Reference> = read.iter().filter(|r| r.depends(lanes)).collect();
    let of_rows: Vec<&Reference> = read.iter().filter(|r| !r.depends(lanes)).collect();
    let shares = |v: Var| {
        let both = of_rows.iter().any(|r| r.depends(v)) && !of_lanes.is_empty();
        both && of_lanes.iter().all(|r| !r.depends(v)) && extent(v) >= target.machine.least_vector_points
    };
    let rows = *free.iter().find(|&&v| v != lanes && shares(v))?;
    let bytes = written.iter().chain(&read).map(|r| r.bytes).max()?;
    let width = target.lanes(bytes as usize) as i64;
    let [height, vectors] = block(target, [extent(rows), extent(lanes)], [of_rows.len(), of_lanes.len()], width);
    // A panel of each operand for one block in the first cache, a tile of them in the second.
    let fills = |level: usize| target.machine.cache_bytes[level] as f64 * PANELS;
    let step = (height * of_rows.len() as i64 + vectors * width * of_lanes.len() as i64) * bytes;
    let depth = whole(fills(0) / step as f64, extent(summed[0]), 8);
    let most = whole(fills(1) / (depth * bytes * of_lanes.len() as i64) as f64, extent(lanes), vectors * width);
    let balanced = (extent(lanes) / target.machine.busy_steps + vectors * width - 1) / (vectors * width);
    let across = most.min((balanced * vectors * width).max(vectors * width));
    let others = free.into_iter().filter(|v| ![lanes, rows].contains(v)).collect();
    Some(Product { id, rows, lanes, others, summed, block: [height, vectors * width], tile: [across, depth] })
}

/// The largest multiple of `unit` up to `most`, or the whole extent where that is not more.
fn whole(most: f64, extent: i64, unit: i64) -> i64 {
    let most = (most as i64 / unit * unit).max(unit);
    if most >= extent { ceil_div(extent, unit) * unit } else { most }
}

/// The rows and vectors of a block: those that load least for each operation and compute least beyond the extents, with
/// the accumulators and what one step reads in registers.
fn block(target: &Target, [rows, lanes]: [i64; 2], [of_rows, of_lanes]: [usize; 2], width: i64) -> [i64; 2] {
    let machine = &target.machine;
    let (of_rows, of_lanes) = (of_rows as i64, of_lanes as i64);
    let mut best = ([1, 1], f64::INFINITY);
    for vectors in 1..=MOST_VECTORS {
        let free = target.vector_registers as i64 - 1 - of_rows - vectors * of_lanes;
        for height in 1..=(free / vectors).max(1) {
            let sums = (height * vectors) as f64;
            let loads = (height * of_rows + vectors * of_lanes) as f64 / machine.loads_per_cycle as f64;
            let sums_cycles = sums / machine.fma_per_cycle as f64;
            let most = sums_cycles.max(loads);
            let ports = most + machine.port_overlap * (sums_cycles + loads - most);
            let busy = ports.max(machine.fma_latency as f64) + machine.loop_cycles;
            let beyond = |extent: i64, size: i64| (ceil_div(extent, size) * size) as f64 / extent as f64;
            let border = 1.0 + (height + vectors * width) as f64 / lanes.min(rows).max(1) as f64;
            let cost = busy / sums * beyond(rows, height) * beyond(lanes, vectors * width) * border;
            if cost < best.1 {
                best = ([height, vectors], cost);
            }
        }
    }
    best.0
}

impl Product {
    /// The tree of the statement, and what the report says of it.
    fn nest(&self, scop: &Scop, report: &PhaseReport, target: &Target) -> (Node, PhaseReport) {
        let s = scop.statement(self.id);
        let name = |v: Var, suffix: &str| format!("{}{suffix}", s.iterator(v).name);
        let row = |v: Var, suffix: &str, tile: i64| Row {
            name: name(v, suffix),
            phi: vec![(self.id, Affine::var(v))],
            tile,
            coincident: !self.summed.contains(&v),
            kind: RowKind::Serial,
            pad: 1,
        };
        let [height, lanes] = self.block;
        let [across, depth] = self.tile;
        let extent = |v: Var| s.extent(v);
        let mut rows: Vec<Row> = self.others.iter().map(|&v| row(v, "", 1)).collect();
        if across < extent(self.lanes) {
            rows.push(row(self.lanes, "t", across));
        }
        if depth < extent(self.summed[0]) {
            rows.push(row(self.summed[0], "t", depth));
        }
        rows.extend([row(self.rows, "o", height), row(self.lanes, "o", lanes)]);
        rows.extend(self.summed.iter().map(|&v| row(v, "", 1)));
        let divided = report.predicted_ns >= target.machine.serial_ns && rows[0].coincident;
        if divided {
            rows[0].kind = RowKind::Parallel;
        }
        let point = |v: Var, kind: RowKind| Row { kind, ..row(v, "", 1) };
        let block = vec![point(self.rows, RowKind::Unroll), point(self.lanes, RowKind::Vector)];
        let inside = Node::Band(Band { rows: block, permutable: true }, Box::new(Node::Leaf));
        let tiles = rows.iter().filter(|r| r.tile > 1).map(|r| format!("{}/{}", r.name, r.tile));
        let report = PhaseReport {
            vector: Some(name(self.lanes, "")),
            block: format!("{} {height} × {} {lanes}", name(self.rows, ""), name(self.lanes, "")),
            tiles: tiles.collect::<Vec<_>>().join(" "),
            parallel: divided,
            ..report.clone()
        };
        (Node::Band(Band { rows, permutable: true }, Box::new(inside)), report)
    }
}
