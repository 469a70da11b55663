//! Lowering from a tiled schedule to explicit loops.
//!
//! In: a Scop and a [`Tiled`] schedule. Out: a [`Kernel`]: a LoopNest whose phases are one parallel loop each (a serial
//! phase has one iteration), its arguments, and the report.
//!
//! One walk goes down the tree (`node`, `rows`, `instance`). At each place it knows what the rows around have said: φ of some
//! statements is base + 0..extent, base affine in loop variables. It places temporaries, sums on local tiles, solves for the
//! iterators where all rows are known and writes the store with the conditions that the loops do not imply. The bounds of a row
//! are those of a box, by intervals (`lower/boxes.rs`), or exact ones, by a scan of polyhedra (`lower/scan.rs`).
//!
//! Invariant: where all loops around the statements that touch a temporary are coincident, or follow from the subscripts of
//! its elements, no value of it survives an iteration of them, so the temporary shrinks to what one iteration touches (array
//! contraction, Lefebvre and Feautrier 1998, with boxes instead of moduli).

mod accumulate;
mod bounds;
mod boxes;
mod contraction;
mod folding;
mod initial;
mod pack;
mod placement;
mod scan;
mod solve;

use crate::codegen::loopnest::dynamic_loops::{self, CheckedElements};
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt, row_major};
use crate::codegen::loopnest::{affine_subscripts, check_hoisting, dynamic_distance, dynamic_split, fused_parts};
use crate::expr::Bound;
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, Scalar};
use crate::expr::{Affine, Var};
use crate::poly::analysis::{constant_factor, conversion};
use crate::poly::lower::state::{Argument, Lowering, Mode, Placed, Site, Subtree};
use crate::poly::packing::{Pack, Packing};
use crate::poly::schedule::{Node, Row, RowKind, Schedule, TimeDimension, parts_of};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::{Role, StatementId};
use crate::poly::tile::report::{Tiled, TilingReport};
use crate::runtime::{DType, Error, Result};

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
    lower_with(scop, tiled, &Answers::default())
}

/// As [`lower`], with answers of solvers that other lowerings of the same statements share.
pub fn lower_with(scop: &Scop, tiled: &Tiled, answers: &Answers) -> Result<Kernel> {
    lower_as(scop, tiled, &tiled.schedule, !is_rectangular(scop, &tiled.schedule), answers)
}

/// As [`lower_with`], with waves one after the other, as one thread runs them, in the memory that they have on several.
pub fn lower_on_one_thread(scop: &Scop, tiled: &Tiled, answers: &Answers) -> Result<Kernel> {
    let mut serial = tiled.clone();
    serial.schedule.root.for_each_band_mut(&mut |band| {
        band.rows.iter_mut().filter(|r| r.kind == RowKind::Wavefront).for_each(|r| r.kind = RowKind::Serial)
    });
    lower_as(scop, &serial, &tiled.schedule, !is_rectangular(scop, &tiled.schedule), answers)
}

/// Lowers by the scan of polyhedra (`scans`) or by boxes; temporaries have the memory that `storage`, the schedule with its waves, needs.
fn lower_as(scop: &Scop, tiled: &Tiled, storage: &Schedule, scans: bool, answers: &Answers) -> Result<Kernel> {
    let mut l = Lowering::new(scop, tiled, storage, answers)?;
    let statements: Vec<StatementId> = scop.ids().collect();
    l.phase_packs()?;
    let phases: Vec<(Vec<StatementId>, &Node)> = match &tiled.schedule.root {
        Node::Sequence(children) => children.iter().map(|(s, n)| (s.clone(), n)).collect(),
        node => vec![(statements.clone(), node)],
    };
    if scans {
        l.contractions = contraction::contractions(scop, storage);
        l.place_all()?;
    } else {
        l.place_across_phases(&phases)?;
    }
    for (statements, node) in phases {
        let body = l.phase(node, &statements, !scans)?;
        l.nest.body.extend(body);
    }
    let mut kernel = l.finish();
    fused_parts::fuse(&mut kernel.nest);
    let checks = checks(scop, &kernel);
    dynamic_loops::narrow(&mut kernel.nest, &checks);
    let checked = check_hoisting::hoist(&mut kernel.nest);
    dynamic_split::divide(&mut kernel.nest, &checked);
    dynamic_distance::vectorize(&mut kernel.nest);
    affine_subscripts::read_before(&mut kernel.nest);
    Ok(kernel)
}

/// The elements of arguments that a run checks before it begins.
fn checks(scop: &Scop, kernel: &Kernel) -> Vec<CheckedElements> {
    let mut out = vec![];
    for (buffer, b) in (0..).map(BufferId).zip(&kernel.nest.buffers) {
        let BufferKind::Argument { slot, written: false } = b.kind else { continue };
        let Argument::Tensor(id) = &kernel.arguments[slot as usize] else { continue };
        let tensor = scop.tensor(*id);
        if tensor.role != Role::Input || b.strides != row_major(&tensor.shape) {
            continue;
        }
        out.extend(tensor.ranges.iter().map(|r| {
            let (offset, stride) = (r.offset as i64, r.stride as i64);
            CheckedElements { buffer, offset, stride, lower: r.lower, upper: r.upper }
        }));
    }
    out
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
    fn new(scop: &'a Scop, tiled: &'a Tiled, storage: &'a Schedule, answers: &'a Answers) -> Result<Lowering<'a>> {
        let nest = LoopNest { name: scop.name.clone(), buffers: vec![], vars: vec![], body: vec![] };
        let mut l = Lowering {
            scop,
            tiled,
            storage,
            nest,
            arguments: vec![],
            users: (0..scop.tensors.len()).map(|id| scop.users(BufferId(id as u32))).collect(),
            tensors: vec![None; scop.tensors.len()],
            packed: vec![],
            locals: vec![],
            ranges: vec![],
            stores: 0,
            contractions: vec![],
            folds: vec![],
            laid: vec![],
            answers,
            isl: Isl::with_answers(answers),
        };
        for (id, t) in scop.tensors.iter().enumerate() {
            if t.role != Role::Temporary {
                let id = BufferId(id as u32);
                let buffer = l.argument(&t.name, t.dtype, &t.shape, t.role.is_written(), Argument::Tensor(id));
                l.nest.buffers[buffer.0 as usize].literals = t.literals.clone();
                l.nest.buffers[buffer.0 as usize].elements = t.given();
                l.nest.buffers[buffer.0 as usize].limits = t.limits();
                l.tensors[id.0 as usize] = Some(buffer);
            }
        }
        Ok(l)
    }

    fn argument(&mut self, name: &str, dtype: DType, shape: &[i64], written: bool, argument: Argument) -> BufferId {
        let kind = BufferKind::Argument { slot: self.arguments.len() as u32, written };
        self.arguments.push(argument);
        self.nest.buffers.push(Buffer::dense(name, dtype, shape, kind));
        BufferId(self.nest.buffers.len() as u32 - 1)
    }

    /// Arguments for the packed operands, and a phase for each one that is not constant.
    fn phase_packs(&mut self) -> Result<()> {
        let mut written: Vec<((Pack, DType), BufferId)> = vec![];
        for packing in &self.tiled.packings {
            let pack = packing.pack(self.scop)?;
            let dtype = self.dtype_of_copy(packing).unwrap_or(pack.dtype);
            if let Some((_, buffer)) = written.iter().find(|k| k.0.0 == pack && k.0.1 == dtype) {
                self.packed.push(*buffer);
                continue;
            }
            let source = self.scop.tensor(pack.source);
            let name = format!("{}_packed", source.name);
            let shape = pack.shape.clone();
            let buffer = if source.role == Role::Constant {
                self.argument(&name, pack.dtype, &shape, false, Argument::Packed(pack.clone()))
            } else {
                let bytes = pack.bytes() / pack.dtype.bytes() * dtype.bytes();
                let buffer = self.argument(&name, dtype, &shape, true, Argument::Workspace { bytes });
                self.pack_phase(&pack, buffer)?;
                buffer
            };
            written.push(((pack, dtype), buffer));
            self.packed.push(buffer);
        }
        Ok(())
    }

    /// The type of the elements of a copy that is made at run time, where its statement converts what it reads and no tensor
    /// instruction takes it as it is.
    fn dtype_of_copy(&self, packing: &Packing) -> Option<DType> {
        let is_instruction =
            |d: &TimeDimension| matches!(d, TimeDimension::Row(row) if matches!(row.kind, RowKind::Instruction(_)));
        let constant = self.scop.tensor(packing.access.buffer).role == Role::Constant;
        if constant || self.tiled.schedule.path(packing.statement).iter().any(is_instruction) {
            return None;
        }
        conversion::converted(self.scop, self.scop.statement(packing.statement), &packing.access)
    }

    /// The statements that read or write a tensor.
    fn users(&self, tensor: BufferId) -> &[StatementId] {
        &self.users[tensor.0 as usize]
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

    /// The loops of one phase.
    fn phase(&mut self, node: &Node, statements: &[StatementId], boxes: bool) -> Result<Vec<Stmt>> {
        self.isl = Isl::with_answers(self.answers);
        if let Node::Band(band, child) = node
            && let Some(parts) = parts_of(band, child)
        {
            return self.steps(&band.rows[0], &parts);
        }
        let site = Site { boxes, outermost: matches!(node, Node::Band(..)), ..Site::default() };
        let body = self.node(node, statements, &site)?;
        match &body[..] {
            [] => Ok(body),
            [Stmt::Loop { kind, .. }] if kind.is_parallel() => Ok(body),
            _ => Ok(self.phases_of(body)),
        }
    }

    /// Phases of statements of which parallel loops are not the only ones, as around a loop of one iteration: each parallel loop is one, and so is what stands
    /// between two of them. Where values would pass from phase to phase in registers, all are one phase without parallel loops.
    fn phases_of(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let is_parallel = |s: &Stmt| matches!(s, Stmt::Loop { kind, .. } if kind.is_parallel());
        let mut groups: Vec<Vec<Stmt>> = vec![];
        for s in body {
            match groups.last_mut() {
                Some(last) if !is_parallel(&s) && !last.iter().any(is_parallel) => last.push(s),
                _ => groups.push(vec![s]),
            }
        }
        let binds = |s: &Stmt| matches!(s, Stmt::Let { .. } | Stmt::Read { .. });
        let locals = |group: &[Stmt]| {
            let mut used = vec![false; self.nest.buffers.len()];
            mark_used(group, &mut used);
            let is_local = |i: &usize| self.nest.buffers[*i].kind == BufferKind::Local;
            (0..used.len()).filter(|&i| used[i]).filter(is_local).collect::<Vec<_>>()
        };
        let all: Vec<usize> = groups.iter().flat_map(|group| locals(group)).collect();
        let are_apart = (1..all.len()).all(|i| !all[..i].contains(&all[i]));
        if groups.len() > 1 && (!are_apart || groups.iter().flatten().any(binds)) {
            groups = vec![groups.concat()];
        }
        let phase = |l: &mut Self, group: Vec<Stmt>| match &group[..] {
            [s] if is_parallel(s) => group,
            _ => vec![l.once(group.into_iter().map(serial).collect())],
        };
        groups.into_iter().flat_map(|group| phase(self, group)).collect()
    }

    /// The loops of a node.
    fn node(&mut self, node: &Node, statements: &[StatementId], site: &Site) -> Result<Vec<Stmt>> {
        let parts: Vec<&[StatementId]> = match node {
            Node::Band(band, child) => return self.rows(Subtree { rows: &band.rows, child, statements }, site),
            Node::Sequence(children) => children.iter().map(|c| &c.0[..]).collect(),
            Node::Leaf => statements.chunks(1).collect(),
        };
        let placed = self.place(&parts, &[], site)?;
        let site = placed.as_ref().unwrap_or(site);
        let (mut out, mut last) = (vec![], 0);
        for (k, part) in parts.into_iter().enumerate() {
            let mut body = match node {
                Node::Sequence(children) => self.node(&children[k].1, part, site)?,
                _ => self.instance(part[0], site)?,
            };
            if initial::forward(&out[last..], &mut body) {
                out.truncate(last);
            }
            last = out.len();
            out.extend(body);
        }
        Ok(out)
    }

    /// The loops of the rows of a band, and what is below them.
    fn rows(&mut self, tree: Subtree, site: &Site) -> Result<Vec<Stmt>> {
        let Some(row) = tree.rows.first() else { return self.node(tree.child, tree.statements, site) };
        let parts: Vec<&[StatementId]> = tree.statements.chunks(1).collect();
        let placed = self.place(&parts, tree.rows, site)?;
        let site = placed.as_ref().unwrap_or(site);
        if let Some(sum) = self.accumulate(tree, site)? {
            return Ok(sum);
        }
        if site.mode != Mode::Body && self.reduces(row, tree.statements[0]) {
            return self.rows(tree.after(1), site);
        }
        if site.boxes { self.box_row(tree, site) } else { self.scan_row(tree, site) }
    }

    /// The store of one statement, with the conditions that the loops do not imply.
    fn instance(&mut self, id: StatementId, site: &Site) -> Result<Vec<Stmt>> {
        let s = self.scop.statement(id);
        let mut solution = self.iterators(id, site, site.mode != Mode::Body)?;
        let value = solution.iterators.clone();
        if site.mode == Mode::Body {
            solution.conditions.extend(s.domain.iter().map(|c| c.compose(&value)));
            for row in site.rows.iter().filter(|r| r.extent > 1) {
                if let Some((_, phi)) = row.phi.iter().find(|p| p.0 == id) {
                    let offset = phi.compose(&value).add_scaled(&row.base, -1);
                    solution.conditions.push(offset.scale(-1).offset(row.extent - 1));
                    solution.conditions.push(offset);
                }
            }
        }
        let lets = std::mem::take(&mut solution.lets);
        let open = if site.boxes { self.open_in_boxes(solution) } else { self.open(id, solution, &lets, site)? };
        let Some(conditions) = open else { return Ok(vec![]) };
        let divisions = self.lay_out(id, &value, site)?;
        let store = self.store(id, &value, site)?;
        self.stores += 1;
        Ok(lets.into_iter().chain(divisions).chain(condition(conditions, vec![store])).collect())
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
            Some(buffer) => Ok((buffer, self.in_memory(buffer, index.to_vec()))),
            None => {
                let name = &self.scop.tensor(tensor).name;
                Err(Error::Internal(format!("{}: {name} has no memory", self.scop.name)))
            }
        }
    }

    /// The subscripts in memory of an element of a buffer.
    fn in_memory(&self, buffer: BufferId, index: Vec<Affine>) -> Vec<Affine> {
        match self.laid.iter().rev().find(|l| l.0 == buffer && l.1 == index) {
            Some(laid) => laid.2.clone(),
            None => index,
        }
    }

    /// The number of the packed copy that a statement reads in place of `access`.
    fn packing_of(&self, id: StatementId, access: &Access) -> Option<usize> {
        self.tiled.packings.iter().position(|p| p.statement == id && p.access == *access)
    }

    /// Returns true for reads from a copy whose elements have been converted to a type.
    fn is_converted(&self, id: StatementId, operand: &Expr, to: DType) -> bool {
        let Expr::Load(access) = operand else { return false };
        let copy = self.packing_of(id, access).map(|p| self.nest.buffer(self.packed[p]).dtype);
        copy == Some(to) && self.scop.tensor(access.buffer).dtype != to
    }

    /// A body over loop variables and buffers of the nest.
    fn expression(&self, id: StatementId, body: &Expr, value: &[Affine], site: &Site) -> Result<Expr> {
        let recurse = |e: &Expr| self.expression(id, e, value, site);
        let replace = |v: Var| value[v.0 as usize].clone();
        Ok(match body {
            Expr::Index(a) => Expr::Index(a.substitute(replace)),
            Expr::Cast(to, operand) if self.is_converted(id, operand, *to) => recurse(operand)?,
            Expr::Load(access) => {
                if let Some(p) = self.packing_of(id, access) {
                    let subscripts = self.tiled.packings[p].subscripts(value, &self.range())?;
                    return Ok(Expr::load(self.packed[p], subscripts));
                }
                let placed = site.placed.iter().rev().find(|p| p.tensor == access.buffer && !p.sums);
                let affine: Option<Vec<Affine>> =
                    access.index.iter().map(|i| Some(i.affine()?.substitute(replace))).collect();
                let (buffer, index) = match (affine, placed) {
                    (Some(index), placed) => {
                        let placed = placed.map_or(&[][..], std::slice::from_ref);
                        let (buffer, index) = self.element(access.buffer, &index, placed)?;
                        (buffer, affine_index(index))
                    }
                    (None, placed) => {
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

/// A statement without parallel loops.
fn serial(s: Stmt) -> Stmt {
    match s.map_body(|body| body.into_iter().map(serial).collect()) {
        Stmt::Loop { var, lower, upper, step, kind, body } if kind.is_parallel() => {
            Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body }
        }
        s => s,
    }
}

fn condition(conditions: Vec<Affine>, body: Vec<Stmt>) -> Vec<Stmt> {
    if conditions.is_empty() || body.is_empty() { body } else { vec![Stmt::If { conditions, body }] }
}

fn loop_over(var: Var, extent: i64, kind: LoopKind, body: Vec<Stmt>) -> Stmt {
    Stmt::Loop { var, lower: vec![Bound::constant(0)], upper: vec![Bound::constant(extent)], step: 1, kind, body }
}

pub mod state;
#[cfg(test)]
mod tests;
