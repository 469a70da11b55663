//! Planning of one phase: its tree with tile rows and point rows.

use super::cache::{TileLoop, Traffic};
use super::operands::Group;
use super::register_block::{Axis, Block, Problem, without_conversions};
use crate::expr::BufferId;
use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Var};
use crate::poly::analysis::access::{Along, operations, references};
use crate::poly::analysis::lanes::lane_bytes;
use crate::poly::instruction;
use crate::poly::instruction::group::{Grouped, closest};
use crate::poly::instruction::{Mismatch, MismatchPart};
use crate::poly::packing::Packing;
use crate::poly::schedule::{Band, Node, Row, RowKind};
use crate::poly::statement::{Role, StatementId};
use crate::poly::tile::plan::{Phase, Plan, Shared, unit};
use crate::poly::tile::report::{PhaseReport, instances};
use crate::poly::tile::sums::{rows_around, sums_beside};

/// A register block with the loops over blocks that suit it.
struct Choice {
    block: Block,
    order: Vec<TileLoop>,
    /// Exposed transfers and packing, and all that the phase takes.
    memory_ns: f64,
    total_ns: f64,
    /// Threads can divide the loops.
    parallel: bool,
    /// Loops that threads do not divide, and reduced iterators that may be cut into parts.
    uneven: Vec<Var>,
    divisible: Vec<Var>,
}

impl Phase<'_> {
    /// Returns the tiled tree of the phase and its report; adds operands to pack to `packings`.
    pub fn plan(&self, node: &Node, packings: &mut Vec<Packing>) -> Plan {
        let dominant = self.dominant(self.statements);
        let s = self.scop.statement(dominant);
        let (outer, child) = match node {
            Node::Band(band, child) => (band.clone(), (**child).clone()),
            node => (Band { rows: vec![], permutable: true }, node.clone()),
        };
        let refs = references(self.scop, dominant);
        let (outer, child) = self.sink_reductions(outer, child);
        let child = flatten(child);
        // Axes of the dominant statement: rows of the outer band, then rows further in.
        let inner = chain_of(&child, dominant);
        let mut axes: Vec<(Axis, Option<usize>)> = vec![];
        for (i, row) in outer.rows.iter().enumerate() {
            if let Some(axis) = self.axis(row, dominant, outer.permutable && row.coincident) {
                axes.push((axis, Some(i)));
            }
        }
        for (row, last) in &inner {
            if let Some(axis) = self.axis(row, dominant, *last) {
                axes.push((axis, None));
            }
        }
        let only: Vec<Axis> = axes.iter().map(|a| a.0.clone()).collect();
        let inside = |v: Var| axes.iter().any(|(a, row)| a.iterator == v && a.reduced && a.movable && row.is_none());
        let grouped = self.grouped(dominant, &refs, &only, &inside);
        let problem = Problem {
            statement: s,
            operations: without_conversions(operations(self.scop, dominant), &refs),
            references: &refs,
            axes: &only,
            target: self.target,
            element: self.widest(&[dominant]),
            elsewhere: &|v| {
                let row = axes.iter().find(|a| a.0.iterator == v).and_then(|a| a.1);
                // Sums of a vector further in are read and written by statements with vectors of their own.
                row.map_or_else(|| self.strided_sums(v, dominant), |i| self.elsewhere(&outer.rows[i], dominant))
            },
            grouped: &grouped,
            unrolled: self.unrolled,
            sums_beside: sums_beside(self.scop, &child, dominant),
            operand_parts: 1,
        };
        let row_of = |v: Var| axes.iter().find(|a| a.0.iterator == v).and_then(|a| a.1);
        let fixed = !outer.permutable || axes.iter().filter(|a| a.1.is_some()).count() != outer.rows.len();
        let in_outer: Vec<Var> = axes.iter().filter(|a| a.1.is_some()).map(|a| a.0.iterator).collect();
        let cuttable = !fixed && is_cuttable(&child, dominant);
        let (mut near, count) = problem.candidates();
        let far = near.split_off(count);
        let choices = near.into_iter().map(|b| self.order(&problem, dominant, b, &in_outer, fixed, cuttable));
        let choices: Vec<Choice> = choices.collect();
        let compared = choices.iter().map(|c| (&c.block, Some(c.total_ns))).chain(far.iter().map(|b| (b, None)));
        let blocks = self.block_reports(&problem, compared);
        let mut choices = choices.into_iter();
        let first = choices.next().expect("a block of scalars at least");
        // What threads cannot divide gains as much as two of them would by another choice.
        let divided = |c: &Choice| c.parallel && c.total_ns > self.target.machine.serial_ns;
        let margin = |c: &Choice, best: &Choice| if divided(best) && !c.parallel { 0.5 } else { 0.99 };
        let gains = |c: &Choice, best: &Choice| c.total_ns < best.total_ns * margin(c, best);
        let Choice { block, order, memory_ns, uneven, divisible, .. } =
            choices.fold(first, |best, c| if gains(&c, &best) { c } else { best });
        let points = |v: Var| points_of(&block, v);
        let blocked: Vec<(usize, i64)> =
            axes.iter().filter_map(|(a, row)| row.map(|r| (r, points(a.iterator)))).filter(|&(_, n)| n > 1).collect();
        let vector = block.vector.and_then(|(v, _)| row_of(v));
        let mut rows = vec![];
        if fixed {
            for (i, row) in outer.rows.iter().enumerate() {
                let tile = blocked.iter().find(|b| b.0 == i).map_or(1, |b| b.1);
                rows.push(Row { name: tile_name(row, tile, false), tile, kind: RowKind::Serial, ..row.clone() });
            }
        } else {
            for (k, l) in order.iter().enumerate() {
                let row = match row_of(l.iterator) {
                    Some(i) => &outer.rows[i],
                    None => {
                        inner.iter().map(|r| &r.0).find(|r| unit(r, dominant) == Some(l.iterator)).expect("its row")
                    }
                };
                let again = order[k + 1..].iter().any(|x| x.iterator == l.iterator);
                rows.push(Row {
                    name: tile_name(row, l.tile, again),
                    tile: l.tile,
                    kind: RowKind::Serial,
                    ..row.clone()
                });
            }
        }
        let parts = order.iter().filter(|l| divisible.contains(&l.iterator)).copied().collect();
        let shared = Shared { blocked, vector, dominant, block: block.clone(), parts };
        let mut groups = vec![];
        let child = self.rewrite(&child, self.statements, &outer, &shared, &mut groups);
        for g in &groups {
            let inside = rows_around(&child, g.statement);
            let around = if inside.is_empty() { &rows } else { &[&rows[..], &inside].concat() };
            packings.extend(self.packings(g, around, &shared, &only));
        }
        let report = PhaseReport { blocks, ..self.report(dominant, &block, &rows, memory_ns) };
        let cut = order.iter().position(|l| divisible.contains(&l.iterator)).unwrap_or(rows.len());
        let child = distribute(&rows.split_off(cut), child);
        let uneven = |r: &Row| unit(r, dominant).is_some_and(|v| uneven.contains(&v));
        let free_rows = rows.iter().take_while(|r| !uneven(r)).count();
        let node = if rows.is_empty() {
            child
        } else {
            Node::Band(Band { rows, permutable: outer.permutable }, Box::new(child))
        };
        Plan { node, report, free_rows }
    }

    /// The loops over blocks of the outer band, in the order of the model.
    fn order(
        &self,
        problem: &Problem,
        dominant: StatementId,
        block: Block,
        outer: &[Var],
        fixed: bool,
        cuttable: bool,
    ) -> Choice {
        let machine = &self.target.machine;
        let copying = problem.copying(&block);
        let axes = problem.axes;
        let block = self.trim(block, axes, problem.statement.reduce.is_some());
        let points = |v: Var| points_of(&block, v);
        let loops: Vec<TileLoop> = axes
            .iter()
            .filter(|a| outer.contains(&a.iterator) && points(a.iterator) < a.extent)
            .map(|a| TileLoop { iterator: a.iterator, tile: points(a.iterator) })
            .collect();
        let uneven: Vec<Var> =
            axes.iter().filter(|a| a.conditioned && points(a.iterator) > 1).map(|a| a.iterator).collect();
        let divisible = if cuttable { block.divisible(axes) } else { vec![] };
        let (references, panels) = problem.references_of(&block);
        let traffic = Traffic {
            uneven: &uneven,
            references: &references,
            held: self.held,
            constants: self.constants,
            packed: &panels,
            axes,
            target: self.target,
            block: &|v| points(v),
            compute_ns: block.cycles / machine.clock_ghz,
            divisible: &divisible,
            group: block.least_part(axes),
            tiles: block.is_of_tiles(),
            straight: problem.is_straight(&problem.points(&block)),
            known: Default::default(),
            strided_sums: block.vector.map_or(0.0, |(v, _)| self.strided_sums(v, dominant)),
        };
        let (order, memory_ns) = if fixed { (loops.clone(), traffic.cost(&loops)) } else { traffic.order(&loops) };
        let memory_ns = memory_ns + copying / machine.clock_ghz;
        let total_ns = block.cycles / machine.clock_ghz + memory_ns;
        let parallel = traffic.parallel_steps(&order) > 1;
        Choice { block, order, memory_ns, total_ns, parallel, uneven, divisible }
    }

    fn dominant(&self, statements: &[StatementId]) -> StatementId {
        let mut best = statements[0];
        for &s in statements {
            let (a, b) = (instances(self.scop, s), instances(self.scop, best));
            let reduces = |s: StatementId| self.scop.statement(s).reduce.is_some();
            if a > b || a == b && reduces(s) && !reduces(best) {
                best = s;
            }
        }
        best
    }

    /// Rows of a permutable outer band that carry a reduction of its only statement go into a band of their own inside.
    fn sink_reductions(&self, outer: Band, child: Node) -> (Band, Node) {
        let &[s] = self.statements else { return (outer, child) };
        if !outer.permutable || child != Node::Leaf {
            return (outer, child);
        }
        let reduced = |r: &Row| !r.coincident && self.axis(r, s, true).is_some_and(|a| a.reduced);
        let (inside, outside): (Vec<Row>, Vec<Row>) = outer.rows.into_iter().partition(reduced);
        let child = if inside.is_empty() {
            child
        } else {
            Node::Band(Band { rows: inside, permutable: true }, Box::new(child))
        };
        (Band { rows: outside, permutable: true }, child)
    }

    /// The axis that a row is for a statement whose φ is one iterator, shifted or not.
    pub(super) fn axis(&self, row: &Row, id: StatementId, movable: bool) -> Option<Axis> {
        let iterator = unit(row, id)?;
        let s = self.scop.statement(id);
        let written = s.write.iter().any(|w| w.uses(iterator));
        Some(Axis {
            iterator,
            extent: s.extent(iterator),
            parallel: written && row.coincident,
            reduced: !written && s.reduce.is_some(),
            movable,
            conditioned: s.domain.iter().any(|c| c.uses(iterator)),
        })
    }

    pub(super) fn widest(&self, statements: &[StatementId]) -> i64 {
        statements.iter().map(|&id| lane_bytes(self.scop, id)).max().unwrap_or(4)
    }

    /// Strided-access penalty of the non-dominant statements and of the stores of sums, in cycles, when the vector runs
    /// along `row`.
    fn elsewhere(&self, row: &Row, dominant: StatementId) -> f64 {
        let mut cycles = 0.0;
        let target = self.scop.statement(dominant).target;
        if let Some(v) = unit(row, dominant).filter(|_| !self.is_local(target)) {
            cycles += self.strided_sums(v, dominant);
        }
        for &id in self.statements.iter().filter(|s| **s != dominant) {
            let Some(v) = unit(row, id) else { continue };
            for r in references(self.scop, id) {
                // Temporaries become local, constants of updates are packed.
                let packed = r.constant && self.scop.statement(id).reduce.is_some();
                if !self.is_local(r.tensor) && !packed && matches!(r.along(v), Along::Strided(_) | Along::Gathered) {
                    cycles += instances(self.scop, id) * self.target.machine.lost_lane_cycles;
                }
            }
        }
        cycles
    }

    /// Cycles to write all sums of the dominant statement, lane by lane, where they are strided along the vector.
    fn strided_sums(&self, vector: Var, dominant: StatementId) -> f64 {
        let s = self.scop.statement(dominant);
        match references(self.scop, dominant).last() {
            Some(write) if s.reduce.is_some() && matches!(write.along(vector), Along::Strided(_)) => {
                let written = s.vars().filter(|&v| write.depends(v));
                written.map(|v| s.extent(v) as f64).product::<f64>() * self.target.machine.strided_sum_cycles
            }
            _ => 0.0,
        }
    }

    /// Returns true if a tensor is a temporary of this phase alone.
    fn is_local(&self, tensor: BufferId) -> bool {
        let touches = |id: StatementId| self.scop.statement(id).uses(tensor);
        self.scop.tensor(tensor).role == Role::Temporary
            && self.scop.ids().all(|id| self.statements.contains(&id) || !touches(id))
    }

    /// Cuts a vector that streams through memory to chunks, as few as leave work for all threads.
    fn trim(&self, mut block: Block, axes: &[Axis], reduces: bool) -> Block {
        let machine = &self.target.machine;
        if let Some((v, n)) = &mut block.vector
            && !reduces
            && !block.lanes_reduced
            && let Some(axis) = axes.iter().find(|a| a.iterator == *v)
            && *n >= axis.extent
            && axis.extent > machine.stream_elements
        {
            *n = machine.stream_elements;
        }
        block
    }

    /// The tree below the outer band, with the points of the block at the leaves. The reduction loops of the dominant
    /// statement are noted in their order.
    fn rewrite(
        &self,
        node: &Node,
        statements: &[StatementId],
        outer: &Band,
        shared: &Shared,
        groups: &mut Vec<Group>,
    ) -> Node {
        if let Some(group) = leaf_group(node) {
            return self.leaf(group, statements, outer, shared, groups);
        }
        match node {
            Node::Band(band, child) => {
                Node::Band(band.clone(), Box::new(self.rewrite(child, statements, outer, shared, groups)))
            }
            Node::Sequence(children) => Node::Sequence(
                children.iter().map(|(s, n)| (s.clone(), self.rewrite(n, s, outer, shared, groups))).collect(),
            ),
            Node::Leaf => Node::Leaf,
        }
    }

    fn leaf(
        &self,
        (chain, permutable, body): (Vec<Row>, bool, &Node),
        statements: &[StatementId],
        outer: &Band,
        shared: &Shared,
        groups: &mut Vec<Group>,
    ) -> Node {
        let main = self.dominant(statements);
        let s = self.scop.statement(main);
        let is_dominant = main == shared.dominant;
        let refs = references(self.scop, main);
        let axes: Vec<Axis> = chain.iter().filter_map(|r| self.axis(r, main, permutable)).collect();
        let shares_vector = shared.vector.is_some_and(|i| unit(&outer.rows[i], main).is_some());
        let block = if is_dominant {
            shared.block.clone()
        } else if shares_vector {
            Block::default()
        } else {
            Block { packed: vec![], ..self.problem(main, statements, &refs, &axes).best() }
        };
        let mut tiles = vec![];
        let mut sums = vec![];
        let mut points = vec![];
        let mut vector = None;
        let mut terms = None;
        // Sums in tiles pass through memory: what stands before and behind needs no unrolled rows.
        let tiled = shared.block.tensor.as_ref().is_some_and(Grouped::is_tile) && !is_dominant;
        let points_kind = if tiled { RowKind::Serial } else { RowKind::Unroll };
        for &(i, _) in &shared.blocked {
            let row = &outer.rows[i];
            if shared.vector == Some(i) && shares_vector {
                vector = Some(point_row(row, statements, RowKind::Vector));
            } else {
                points.push(point_row(row, statements, points_kind));
            }
        }
        for row in &chain {
            let Some(axis) = axes.iter().find(|a| Some(a.iterator) == unit(row, main)) else {
                tiles.push(row.clone());
                continue;
            };
            let n = points_of(&block, axis.iterator);
            let is_vector = block.vector.is_some_and(|(v, _)| v == axis.iterator);
            if n < axis.extent && !axis.reduced {
                tiles.push(Row { name: tile_name(row, n, false), tile: n, kind: RowKind::Serial, ..row.clone() });
            }
            if is_vector {
                vector = Some(point_row(row, statements, RowKind::Vector));
            } else if axis.reduced {
                let tile = block.terms(axis.iterator);
                sums.push((Row { name: tile_name(row, tile, false), tile, ..row.clone() }, axis.clone()));
                if let Some(t) = block.tensor.as_ref().filter(|t| t.group == axis.iterator) {
                    terms = Some(point_row(row, statements, RowKind::Instruction(t.row)));
                }
            } else if n > 1 {
                points.push(point_row(row, statements, RowKind::Unroll));
            }
        }
        // Reduction loops: the longest strides outermost, short innermost ones unrolled.
        if permutable {
            let stride = |a: &Axis| -> i64 {
                let read = refs.iter().enumerate().filter(|(i, _)| !block.packed.contains(i));
                read.map(|(_, r)| r.strides[a.iterator.0 as usize].unwrap_or(0).abs() * r.bytes).sum()
            };
            sums.sort_by_key(|(_, a)| -stride(a));
        }
        groups.push(Group {
            statement: main,
            axes: axes.clone(),
            reductions: sums.iter().map(|(_, a)| a.iterator).collect(),
            points: shared
                .blocked
                .iter()
                .filter_map(|&(i, n)| Some((unit(&outer.rows[i], main)?, n)))
                .chain(axes.iter().map(|a| (a.iterator, points_of(&block, a.iterator))).filter(|p| p.1 > 1))
                .collect(),
            vector: match shared.vector {
                Some(i) if shares_vector => unit(&outer.rows[i], main),
                _ => block.vector.filter(|_| !block.lanes_reduced).map(|v| v.0),
            },
            terms: block.tensor.as_ref().filter(|t| t.terms > 1).map(|t| (t.group, t.terms)),
        });
        let lanes = self.target.lanes(self.widest(statements) as usize) as i64;
        let mut operations: i64 = shared.blocked.iter().map(|b| b.1).product::<i64>().max(1);
        if !is_dominant || shared.vector.is_none() {
            let inner = block.unrolled.iter().map(|u| u.1).chain(block.vector.map(|v| v.1));
            operations *= inner.product::<i64>().max(1);
        }
        if vector.is_some() {
            operations = ceil_div(operations, lanes);
        }
        let blocked =
            |v: Var| points_of(&block, v) > 1 || shared.blocked.iter().any(|b| unit(&outer.rows[b.0], main) == Some(v));
        // Products with a literal 0 are not code.
        let share: f64 = refs.iter().filter_map(|r| r.nonzero).product();
        let mut unrolling = !block.lanes_reduced;
        let mut loops: Vec<Row> = vec![];
        for (row, axis) in sums.into_iter().rev() {
            // A condition with a loop variable would have to be decided inside of unrolled code.
            let together = block.terms(axis.iterator);
            let steps = ceil_div(shared.part(axis.iterator, main).unwrap_or(axis.extent), together);
            let decided = s
                .domain
                .iter()
                .filter(|c| c.uses(axis.iterator))
                .all(|c| c.terms.iter().all(|t| t.0 == axis.iterator || blocked(t.0)));
            unrolling &= together == 1 && decided && self.target.machine.unrolls((operations * steps) as f64 * share);
            if unrolling {
                operations *= steps;
            }
            let kind = if unrolling { RowKind::Unroll } else { RowKind::Serial };
            loops.insert(0, Row { kind, ..row });
        }
        tiles.extend(loops);
        tiles.extend(points);
        tiles.extend(vector);
        tiles.extend(terms);
        if tiles.is_empty() {
            return body.clone();
        }
        Node::Band(Band { rows: tiles, permutable }, Box::new(body.clone()))
    }

    fn report(&self, dominant: StatementId, block: &Block, rows: &[Row], memory_ns: f64) -> PhaseReport {
        let s = self.scop.statement(dominant);
        let name = |v: Var| s.iterator(v).name.clone();
        let mut parts: Vec<String> = block.unrolled.iter().map(|(v, m)| format!("{} {m}", name(*v))).collect();
        parts.extend(block.vector.map(|(v, n)| format!("{} {n}", name(v))));
        let tiles: Vec<String> =
            rows.iter().map(|r| if r.tile > 1 { format!("{}/{}", r.name, r.tile) } else { r.name.clone() }).collect();
        let lane = block.vector.map(|v| v.0);
        let matched = match lane {
            Some(lane) => {
                let rows = &self.target.instructions;
                let of_fused = instruction::select(rows, self.scop, dominant, lane);
                of_fused.map_err(|why| closest(why, rows, self.scop, dominant, lane))
            }
            None => {
                let reason = format!("`{}` has no iterator that a vector may run along", s.name);
                Err(Mismatch { part: MismatchPart::Body, reason })
            }
        };
        let (instruction, mismatch) = match matched {
            _ if block.tensor.is_some() => (block.tensor.as_ref().map(|t| t.row.to_string()), String::new()),
            Ok(m) => (Some(m.to_string()), String::new()),
            Err(why) => (None, why.reason),
        };
        // The other statements at a rate of one vector instruction a cycle.
        let others: f64 = self
            .statements
            .iter()
            .filter(|s| **s != dominant)
            .map(|&s| instances(self.scop, s) * (operations(self.scop, s) + 1.0) / self.target.lanes(4) as f64)
            .sum();
        PhaseReport {
            statement: s.name.clone(),
            vector: lane.map(name),
            block: parts.join(" × "),
            tiles: tiles.join(" "),
            instruction,
            mismatch,
            predicted_ns: (block.cycles + others) / self.target.machine.clock_ghz + memory_ns,
            parallel: false,
            blocks: vec![],
        }
    }
}

/// Returns true if a reduction of `id` may be cut into parts between whose loops the other statements of the tree run:
/// its own loops are one group, for it alone.
fn is_cuttable(node: &Node, id: StatementId) -> bool {
    match node {
        Node::Sequence(children) => {
            let own_child = children.iter().find(|c| c.0 == [id]);
            own_child.is_some_and(|c| leaf_group(&c.1).is_some_and(|(_, permutable, _)| permutable))
        }
        _ => false,
    }
}

/// `rows` around each child of a sequence, as far as they have its statements.
pub(super) fn distribute(rows: &[Row], node: Node) -> Node {
    let Node::Sequence(children) = node else { return node };
    let around = |(statements, child): (Vec<StatementId>, Node)| {
        let child_rows = rows.iter().map(|r| Row { phi: restrict(&r.phi, &statements), ..r.clone() });
        let child_rows: Vec<Row> = child_rows.filter(|r| !r.phi.is_empty()).collect();
        let child = match child {
            child if child_rows.is_empty() => child,
            Node::Band(inner, body) => {
                let permutable = inner.permutable;
                Node::Band(Band { rows: child_rows.into_iter().chain(inner.rows).collect(), permutable }, body)
            }
            child => Node::Band(Band { rows: child_rows, permutable: true }, Box::new(child)),
        };
        (statements, child)
    };
    Node::Sequence(children.into_iter().map(around).collect())
}

/// A sequence in which loops of their own that carry nothing are around each statement, not around several: so a loop that a
/// sum shares with its first value can be the vector of both.
fn flatten(node: Node) -> Node {
    let Node::Sequence(children) = node else { return node };
    let mut out = vec![];
    for (statements, child) in children {
        match child {
            Node::Band(band, inside)
                if band.rows.iter().all(|r| r.coincident)
                    && matches!(&*inside, Node::Sequence(c) if c.iter().any(|c| c.1 != Node::Leaf)) =>
            {
                let Node::Sequence(inside) = flatten(*inside) else { unreachable!("a sequence stays one") };
                let Node::Sequence(apart) = distribute(&band.rows, Node::Sequence(inside)) else { unreachable!() };
                out.extend(apart);
            }
            child => out.push((statements, child)),
        }
    }
    Node::Sequence(out)
}

fn restrict(phi: &[(StatementId, Affine)], statements: &[StatementId]) -> Vec<(StatementId, Affine)> {
    phi.iter().filter(|p| statements.contains(&p.0)).cloned().collect()
}

/// Points of a block along an iterator.
fn points_of(block: &Block, v: Var) -> i64 {
    let unrolled = block.unrolled.iter().find(|u| u.0 == v).map(|u| u.1);
    unrolled.or(block.vector.filter(|x| x.0 == v && !block.lanes_reduced).map(|x| x.1)).unwrap_or(1)
}

fn tile_name(row: &Row, tile: i64, outer: bool) -> String {
    match (tile, outer) {
        (1, _) => row.name.clone(),
        (_, false) => format!("{}o", row.name),
        (_, true) => format!("{}b", row.name),
    }
}

fn point_row(row: &Row, statements: &[StatementId], kind: RowKind) -> Row {
    Row { coincident: row.coincident, kind, ..Row::serial(&*row.name, restrict(&row.phi, statements)) }
}

/// Rows above a leaf (or a sequence of leaves) without a sequence between, whether they are all in permutable bands,
/// and what is below them.
pub(super) fn leaf_group(node: &Node) -> Option<(Vec<Row>, bool, &Node)> {
    match node {
        Node::Leaf => Some((vec![], true, node)),
        Node::Sequence(_) => None,
        Node::Band(band, child) => match &**child {
            Node::Sequence(children) if children.iter().all(|c| c.1 == Node::Leaf) => {
                Some((band.rows.clone(), band.permutable, child))
            }
            _ => {
                let (rows, permutable, body) = leaf_group(child)?;
                let all = band.rows.iter().cloned().chain(rows).collect();
                Some((all, permutable && band.permutable, body))
            }
        },
    }
}

/// Rows further in on the way to a statement; whether each may be moved to the points.
fn chain_of(node: &Node, id: StatementId) -> Vec<(Row, bool)> {
    if let Some((rows, permutable, _)) = leaf_group(node) {
        return rows.into_iter().map(|r| (r, permutable)).collect();
    }
    match node {
        Node::Leaf => vec![],
        Node::Band(band, child) => {
            let mut out: Vec<(Row, bool)> = band.rows.iter().map(|r| (r.clone(), false)).collect();
            out.extend(chain_of(child, id));
            out
        }
        Node::Sequence(children) => children.iter().find(|c| c.0.contains(&id)).map_or(vec![], |c| chain_of(&c.1, id)),
    }
}
