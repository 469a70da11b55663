//! Lowering from a tiled schedule to explicit loops.
//!
//! In: a Scop and a [`Tiled`] schedule. Out: a [`Kernel`]: a LoopNest whose phases are one parallel loop each (a serial
//! phase has one iteration), its arguments, and the report.
//!
//! A *class* is one φ on its way from a whole range to one value: φ = base + 0..extent, base affine in loop variables. A
//! tile row splits the extent into full tiles and one copy of everything further in with the smaller extent that
//! remains, so that all extents further in are constants. Iterators follow from the classes with extent 1. What the loops
//! do not imply (domains, shifts against the other statements, skewed bounds) becomes a condition around the store.
//!
//! Invariant: where all loops around the statements that touch a temporary are coincident, or follow from the subscripts of
//! its elements, no value of it survives an iteration of them, so the temporary shrinks to what one iteration touches (array
//! contraction, Lefebvre and Feautrier 1998, with boxes instead of moduli).

mod bounds;
mod contraction;
mod initial;
mod pack;
mod parallel;
mod placement;
mod scan;
mod solve;

use crate::codegen::loopnest::simplify::take_divisions;
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt, row_major};
use crate::expr::Bound;
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, Scalar};
use crate::expr::{Affine, Var};
use crate::poly::analysis::constant_factor;
use crate::poly::lower::state::Solution;
use crate::poly::lower::state::{Argument, Lowering, Mode, Placed, RowValues, Site};
use crate::poly::packing::Pack;
use crate::poly::schedule::{Node, Row, RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId};
use crate::poly::tile::report::{Tiled, TilingReport};
use crate::runtime::{Error, Result};

/// One compiled group before code generation.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub nest: LoopNest,
    /// Contents of the argument table, slot by slot.
    pub arguments: Vec<Argument>,
    pub report: TilingReport,
}

/// Writes the loops of `tiled`. `Unsupported` for a schedule that fixes iterators only up to a stride.
pub fn lower(scop: &Scop, tiled: &Tiled) -> Result<Kernel> {
    lower_as(scop, tiled, !is_rectangular(scop, &tiled.schedule))
}

/// Lowers by the scan of polyhedra (`scans`) or by classes.
fn lower_as(scop: &Scop, tiled: &Tiled, scans: bool) -> Result<Kernel> {
    let mut l = Lowering::new(scop, tiled)?;
    let statements: Vec<StatementId> = scop.ids().collect();
    l.phase_packs()?;
    let phases: Vec<(Vec<StatementId>, &Node)> = match &tiled.schedule.root {
        Node::Sequence(children) => children.iter().map(|(s, n)| (s.clone(), n)).collect(),
        node => vec![(statements.clone(), node)],
    };
    if scans {
        l.contractions = contraction::contractions(scop, &tiled.schedule);
        l.place_all();
    } else {
        l.place_across_phases(&phases)?;
    }
    for (statements, node) in phases {
        if scans {
            let body = l.scan_phase(node, &statements)?;
            l.nest.body.extend(body);
            continue;
        }
        let site = Site::default();
        let body = match node {
            Node::Band(band, child) if band.rows.first().is_some_and(|r| r.kind == RowKind::Parallel) => {
                l.parallel(band, child, &statements, &site)?
            }
            _ => {
                let body = l.node(node, &statements, &site)?;
                if body.is_empty() { vec![] } else { vec![l.once(body)] }
            }
        };
        l.nest.body.extend(body);
    }
    Ok(l.finish())
}

/// Returns true if boxes describe all loops: no temporary is private to an iteration, the points of a tile are values
/// of the same φ, and the original order is that of a tensor expression, or every domain is a box and every row is one
/// iterator of each statement, unshifted; and no row follows from others, as those below a fused loop do.
fn is_rectangular(scop: &Scop, schedule: &Schedule) -> bool {
    let rows =
        |id| schedule.path(id).into_iter().filter_map(|s| if let TimeDimension::Row(r) = s { Some(r) } else { None });
    let points = |id, tile: &Row| rows(id).any(|r| r.tile == 1 && r.of(id) == tile.of(id));
    let serial = |r: &&Row| r.kind != RowKind::Wavefront && r.kind != RowKind::Parallel;
    let outermost = |id| rows(id).skip_while(|r| r.kind == RowKind::Parallel).all(|r| serial(&r));
    let tiles = |id| outermost(id) && rows(id).all(|r| r.tile == 1 || points(id, r));
    let independent = |id| {
        let mut points: Vec<&Affine> = rows(id).filter(|r| r.tile == 1).map(|r| r.of(id)).collect();
        points.retain(|phi| !phi.is_constant());
        points.sort();
        points.dedup();
        points.len() <= scop.statement(id).iterators.len()
    };
    if !scop.privates.is_empty() || !scop.ids().all(|id| tiles(id) && independent(id)) {
        return false;
    }
    let mut plain = scop.statements.iter().all(|s| s.domain.is_empty());
    let mut padded = false;
    schedule.for_each_band(&mut |band| {
        let single = |a: &Affine| a.constant == 0 && matches!(a.terms[..], [] | [(_, 1)]);
        padded |= band.rows.iter().any(|r| r.pad > 1);
        plain &= band.rows.iter().all(|r| r.phi.iter().all(|p| single(&p.1)));
    });
    !padded && (plain || scop.order == Schedule::in_sequence(&scop.statements))
}

impl<'a> Lowering<'a> {
    fn new(scop: &'a Scop, tiled: &'a Tiled) -> Result<Lowering<'a>> {
        let nest = LoopNest { name: scop.name.clone(), buffers: vec![], vars: vec![], body: vec![] };
        let mut l = Lowering {
            scop,
            tiled,
            nest,
            arguments: vec![],
            tensors: vec![None; scop.tensors.len()],
            packed: vec![],
            locals: vec![],
            ranges: vec![],
            stores: 0,
            contractions: vec![],
            laid: vec![],
        };
        for (id, t) in scop.tensors.iter().enumerate() {
            if t.role != Role::Temporary {
                let id = BufferId(id as u32);
                let buffer = l.argument(&t.name, t.dtype, &t.shape, t.role.is_written(), Argument::Tensor(id));
                l.nest.buffers[buffer.0 as usize].literals = t.literals.clone();
                l.tensors[id.0 as usize] = Some(buffer);
            }
        }
        Ok(l)
    }

    fn argument(
        &mut self,
        name: &str,
        dtype: crate::runtime::DType,
        shape: &[i64],
        written: bool,
        argument: Argument,
    ) -> BufferId {
        let kind = BufferKind::Argument { slot: self.arguments.len() as u32, written };
        self.arguments.push(argument);
        self.nest.buffers.push(Buffer::dense(name, dtype, shape, kind));
        BufferId(self.nest.buffers.len() as u32 - 1)
    }

    /// Arguments for the packed operands, and a phase for each one that is not constant.
    fn phase_packs(&mut self) -> Result<()> {
        let mut written: Vec<(Pack, BufferId)> = vec![];
        for packing in &self.tiled.packings {
            let pack = packing.pack(self.scop)?;
            if let Some((_, buffer)) = written.iter().find(|k| k.0 == pack) {
                self.packed.push(*buffer);
                continue;
            }
            let source = self.scop.tensor(pack.source);
            let name = format!("{}_packed", source.name);
            let shape = pack.shape.clone();
            let buffer = if source.role == Role::Constant {
                self.argument(&name, pack.dtype, &shape, false, Argument::Packed(pack.clone()))
            } else {
                let argument = Argument::Workspace { bytes: pack.bytes() };
                let buffer = self.argument(&name, pack.dtype, &shape, true, argument);
                self.pack_phase(&pack, buffer)?;
                buffer
            };
            written.push((pack, buffer));
            self.packed.push(buffer);
        }
        Ok(())
    }

    fn new_var(&mut self, name: &str, range: (i64, i64)) -> Var {
        self.ranges.push(range);
        self.nest.new_var(name)
    }

    fn range(&self) -> impl Fn(Var) -> (i64, i64) + '_ {
        |v| self.ranges[v.0 as usize]
    }

    /// Makes a serial phase: a parallel loop with one iteration.
    fn once(&mut self, body: Vec<Stmt>) -> Stmt {
        let t = self.new_var("once", (0, 0));
        loop_over(t, 1, LoopKind::Parallel, body)
    }

    fn node(&mut self, node: &Node, statements: &[StatementId], site: &Site) -> Result<Vec<Stmt>> {
        match node {
            Node::Band(band, child) => self.rows(&band.rows, child, statements, site),
            Node::Sequence(children) => {
                let mut site = site.clone();
                self.place(children, statements, &mut site)?;
                let (mut out, mut last) = (vec![], 0);
                for (statements, child) in children {
                    let mut body = self.node(child, statements, &site)?;
                    if initial::forward(&out[last..], &mut body) {
                        out.truncate(last);
                    }
                    last = out.len();
                    out.extend(body);
                }
                Ok(out)
            }
            Node::Leaf => {
                let mut site = site.clone();
                let each: Vec<(Vec<StatementId>, Node)> = statements.iter().map(|&s| (vec![s], Node::Leaf)).collect();
                if each.len() > 1 {
                    self.place(&each, statements, &mut site)?;
                }
                let mut out = vec![];
                for &s in statements {
                    out.extend(self.statement(s, &site)?);
                }
                Ok(out)
            }
        }
    }

    fn rows(&mut self, rows: &[Row], child: &Node, statements: &[StatementId], site: &Site) -> Result<Vec<Stmt>> {
        let Some((row, rest)) = rows.split_first() else { return self.node(child, statements, site) };
        if let Some(promoted) = self.promote(rows, child, statements, site)? {
            return Ok(promoted);
        }
        let mut site = site.clone();
        // Below, a temporary of lanes that depend on each other would be one element that they share.
        let coincident = site.coincident && rows.iter().all(|r| r.coincident);
        if contraction::expands(row) && !coincident && statements.len() > 1 {
            let each: Vec<(Vec<StatementId>, Node)> = statements.iter().map(|&s| (vec![s], Node::Leaf)).collect();
            self.place(&each, statements, &mut site)?;
        }
        let (class, mut site) = self.class(row, &site)?;
        let RowValues { base, extent, .. } = site.rows[class].clone();
        if site.mode != Mode::Body && self.reduces(row, statements[0]) {
            return self.rows(rest, child, statements, &site);
        }
        // The loop of an instruction says which one it is.
        let instruction = matches!(row.kind, RowKind::Instruction(_));
        if extent <= row.tile && !instruction {
            return self.rows(rest, child, statements, &site);
        }
        site.coincident &= row.coincident;
        let (full, left) = (extent / row.tile, extent % row.tile);
        let mut out = vec![];
        let mut inside = |l: &mut Self, base: Affine, extent: i64| {
            site.rows[class].base = base;
            site.rows[class].extent = extent;
            l.rows(rest, child, statements, &site)
        };
        if full == 1 && !instruction {
            out.extend(inside(self, base.clone(), row.tile)?);
        } else {
            let v = self.new_var(&row.name, (0, full - 1));
            let mut body = inside(self, base.clone().plus(v, row.tile), row.tile)?;
            out.extend(take_divisions(v, &mut body));
            if !body.is_empty() {
                out.push(loop_over(v, full, kind(row.kind), body));
            }
        }
        if left > 0 {
            out.extend(inside(self, base.offset(full * row.tile), left)?);
        }
        Ok(out)
    }

    /// The site with the class of `row` in it, and where.
    fn class(&self, row: &Row, site: &Site) -> Result<(usize, Site)> {
        let mut site = site.clone();
        site.loops += 1;
        let covers = |c: &RowValues| row.phi.iter().all(|p| c.phi.contains(p));
        if let Some(i) = site.rows.iter().position(covers) {
            return Ok((i, site));
        }
        if site.rows.iter().any(|c| row.phi.iter().any(|p| c.phi.contains(p) && !p.1.is_constant())) {
            return Err(Error::Unsupported(format!(
                "row {} of {} continues different rows for its statements",
                row.name, self.scop.name
            )));
        }
        let (lo, hi) = row.range(self.scop);
        let base = lo.div_euclid(row.tile) * row.tile;
        let class = RowValues { phi: row.phi.clone(), base: Affine::constant(base), extent: hi - base + 1 };
        site.rows.push(class);
        Ok((site.rows.len() - 1, site))
    }

    /// The store of one statement, with the conditions that the loops do not imply.
    fn statement(&mut self, id: StatementId, site: &Site) -> Result<Vec<Stmt>> {
        let s = self.scop.statement(id);
        let Solution { iterators: value, mut conditions, lets, .. } =
            self.iterators(id, site, site.mode != Mode::Body)?;
        if site.mode == Mode::Body {
            conditions.extend(s.domain.iter().map(|c| c.compose(&value)));
        }
        let range = self.range();
        if conditions.iter().any(|c| c.bounds(&range).1 < 0) {
            return Ok(vec![]);
        }
        conditions.retain(|c| c.bounds(&range).0 < 0);
        conditions.sort();
        conditions.dedup();
        let store = self.store(id, &value, site)?;
        let store = if conditions.is_empty() { store } else { Stmt::If { conditions, body: vec![store] } };
        Ok(lets.into_iter().chain([store]).collect())
    }

    /// The store of one instance, its iterators over loop variables; or the copy that stands for it.
    fn store(&self, id: StatementId, value: &[Affine], site: &Site) -> Result<Stmt> {
        let s = self.scop.statement(id);
        let write: Vec<Affine> = s.write.iter().map(|a| a.compose(value)).collect();
        let local = self.element(s.target, &write, &site.placed)?;
        if site.mode == Mode::Body {
            let body = site.factor.as_ref().map_or(&s.body, |f| &f.1);
            let body = self.expression(id, body, value, site)?;
            let mut index = affine_index(local.1);
            for (d, e) in &s.computed {
                let place = index.get_mut(*d).filter(|i| **i == Index::Affine(Affine::constant(0)));
                let place = place.ok_or_else(|| Error::Internal("a scatter to a contracted temporary".into()))?;
                *place = Index::Value(Box::new(self.expression(id, e, value, site)?));
            }
            return Ok(Stmt::Store { buffer: local.0, index, value: body, reduce: s.reduce });
        }
        let outer = &site.placed[..site.placed.len() - 1];
        let target = self.element(s.target, &write, outer)?;
        if let Some((c, _)) = site.factor {
            let zero = Scalar::neutral(BinaryOp::Add, c.dtype).expect("of floating point");
            let sum = || constant_factor::scaled(c, Expr::load(local.0, local.1.clone()));
            return Ok(match site.mode {
                Mode::Fill => Stmt::Store {
                    buffer: local.0,
                    index: affine_index(local.1),
                    value: Expr::Const(zero),
                    reduce: None,
                },
                _ => Stmt::Store { buffer: target.0, index: affine_index(target.1), value: sum(), reduce: s.reduce },
            });
        }
        let (to, from) = if site.mode == Mode::Fill { (local, target) } else { (target, local) };
        Ok(Stmt::Store { buffer: to.0, index: affine_index(to.1), value: Expr::load(from.0, from.1), reduce: None })
    }

    /// The buffer that holds a tensor here, and an element's subscripts in it.
    fn element(&self, tensor: BufferId, index: &[Affine], placed: &[Placed]) -> Result<(BufferId, Vec<Affine>)> {
        if let Some(p) = placed.iter().rev().find(|p| p.tensor == tensor) {
            let index = index.iter().zip(&p.origin).map(|(i, o)| i.add_scaled(o, -1)).collect();
            return Ok((p.buffer, self.in_memory(p.buffer, index)));
        }
        match self.tensors[tensor.0 as usize] {
            Some(buffer) => Ok((buffer, index.to_vec())),
            None => {
                let name = &self.scop.tensor(tensor).name;
                Err(Error::Internal(format!("{}: {name} has no memory", self.scop.name)))
            }
        }
    }

    /// The subscripts in memory of an element of a buffer.
    fn in_memory(&self, buffer: BufferId, index: Vec<Affine>) -> Vec<Affine> {
        match self.laid.iter().find(|l| l.0 == buffer && l.1 == index) {
            Some(laid) => laid.2.clone(),
            None => index,
        }
    }

    /// The number of the packed copy that a statement reads in place of `access`.
    fn packing_of(&self, id: StatementId, access: &Access) -> Option<usize> {
        self.tiled.packings.iter().position(|p| p.statement == id && p.access == *access)
    }

    /// A body over loop variables and buffers of the nest.
    fn expression(&self, id: StatementId, body: &Expr, value: &[Affine], site: &Site) -> Result<Expr> {
        let recurse = |e: &Expr| self.expression(id, e, value, site);
        let replace = |v: Var| value[v.0 as usize].clone();
        Ok(match body {
            Expr::Index(a) => Expr::Index(a.substitute(replace)),
            Expr::Load(access) => {
                if let Some(p) = self.packing_of(id, access) {
                    let subscripts = self.tiled.packings[p].subscripts(value, &self.range())?;
                    return Ok(Expr::load(self.packed[p], subscripts));
                }
                let placed = site.placed.iter().rev().find(|p| p.tensor == access.buffer && !p.sums);
                let affine: Option<Vec<Affine>> =
                    access.index.iter().map(|i| Some(i.affine()?.substitute(replace))).collect();
                let (buffer, index) = match (affine, placed) {
                    (Some(index), Some(p)) => {
                        let (buffer, index) = self.element(access.buffer, &index, std::slice::from_ref(p))?;
                        (buffer, affine_index(index))
                    }
                    (_, placed) => {
                        let whole = Affine::constant(0);
                        let mut index = vec![];
                        for (d, i) in access.index.iter().enumerate() {
                            let origin = placed.map_or(&whole, |p| &p.origin[d]);
                            index.push(match i {
                                Index::Affine(a) => Index::Affine(a.substitute(replace).add_scaled(origin, -1)),
                                Index::Value(e) if *origin == whole => Index::Value(Box::new(recurse(e)?)),
                                Index::Value(_) => {
                                    return Err(Error::Internal("a gather from a contracted temporary".into()));
                                }
                            });
                        }
                        let shared = || Ok::<_, Error>(self.element(access.buffer, &[], &[])?.0);
                        (placed.map_or_else(shared, |p| Ok(p.buffer))?, index)
                    }
                };
                let range = self.range();
                let guard: Vec<Affine> = access.guard.iter().map(|g| g.substitute(replace)).collect();
                let guard: Vec<Affine> = guard.into_iter().filter(|g| g.bounds(&range).0 < 0).collect();
                if let Some(outside) = access.otherwise
                    && guard.iter().any(|g| g.bounds(&range).1 < 0)
                {
                    return Ok(Expr::Const(outside));
                }
                let otherwise = if guard.is_empty() { None } else { access.otherwise };
                Expr::Load(Access { buffer, index, guard, otherwise })
            }
            e => e.try_map_children(&mut |e| recurse(e))?,
        })
    }

    /// Drops arguments that nothing reads and renumbers the slots.
    fn finish(mut self) -> Kernel {
        let mut used = vec![false; self.nest.buffers.len()];
        mark_used(&self.nest.body, &mut used);
        for (i, b) in self.nest.buffers.iter().enumerate() {
            let output = matches!(b.kind, BufferKind::Argument { slot, .. }
                if matches!(&self.arguments[slot as usize], Argument::Tensor(t) if self.scop.tensor(*t).role.is_written()));
            used[i] |= output;
        }
        let mut arguments = vec![];
        let mut places: Vec<Option<u32>> = vec![None; self.arguments.len()];
        let mut renumbered = vec![BufferId(0); used.len()];
        let mut buffers = vec![];
        for (i, mut b) in self.nest.buffers.drain(..).enumerate() {
            if !used[i] {
                continue;
            }
            if let BufferKind::Argument { slot, .. } = &mut b.kind {
                // Buffers of one argument keep one.
                *slot = *places[*slot as usize].get_or_insert_with(|| {
                    arguments.push(self.arguments[*slot as usize].clone());
                    arguments.len() as u32 - 1
                });
            }
            renumbered[i] = BufferId(buffers.len() as u32);
            buffers.push(b);
        }
        for (_, b) in &self.locals {
            if used[b.0 as usize] {
                let b = &mut buffers[renumbered[b.0 as usize].0 as usize];
                b.strides = row_major(&b.shape);
            }
        }
        self.nest.buffers = buffers;
        renumber(&mut self.nest.body, &renumbered);
        Kernel { nest: self.nest, arguments, report: self.tiled.report.clone() }
    }
}

fn mark_used(body: &[Stmt], used: &mut [bool]) {
    for s in body {
        s.visit(&mut |s| {
            if let Stmt::Store { buffer, .. } = s {
                used[buffer.0 as usize] = true;
            }
            for e in s.expressions() {
                e.visit_accesses(&mut |a| used[a.buffer.0 as usize] = true);
            }
        });
    }
}

fn renumber(body: &mut [Stmt], to: &[BufferId]) {
    for s in body {
        s.visit_mut(&mut |s| {
            if let Stmt::Store { buffer, index, value, .. } = s {
                *buffer = to[buffer.0 as usize];
                let mut moved = |mut a: Access| {
                    a.buffer = to[a.buffer.0 as usize];
                    Expr::Load(a)
                };
                *value = value.rewrite_loads(&mut moved);
                for i in index {
                    if let Index::Value(e) = i {
                        **e = e.rewrite_loads(&mut moved);
                    }
                }
            }
        });
    }
}

fn affine_index(index: Vec<Affine>) -> Vec<Index> {
    index.into_iter().map(Index::Affine).collect()
}

fn kind(kind: RowKind) -> LoopKind {
    match kind {
        // A parallel row further in than the outermost band has nothing left to divide.
        RowKind::Serial | RowKind::Parallel | RowKind::Wavefront => LoopKind::Serial,
        RowKind::Unroll => LoopKind::Unroll,
        RowKind::Vector => LoopKind::Vector,
        RowKind::Instruction(name) => LoopKind::Instruction(name),
    }
}

fn loop_over(var: Var, extent: i64, kind: LoopKind, body: Vec<Stmt>) -> Stmt {
    Stmt::Loop { var, lower: vec![Bound::constant(0)], upper: vec![Bound::constant(extent)], step: 1, kind, body }
}

pub mod state;
#[cfg(test)]
mod tests;
