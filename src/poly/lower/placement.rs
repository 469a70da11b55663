//! Placement of temporaries: a local buffer as small as one iteration of the enclosing loops needs (array contraction),
//! or a workspace.

use crate::codegen::loopnest::{Buffer, BufferKind};
use crate::expr::Affine;
use crate::expr::{BufferId, Index};
use crate::poly::lower::contraction::{expands, own_loops};
use crate::poly::lower::folding;
use crate::poly::lower::state::Local;
use crate::poly::lower::state::{Argument, Lowering, Placed, RowValues, Site};
use crate::poly::schedule::{Node, Row};
use crate::poly::statement::{Role, StatementId};
use crate::poly::storage;
use crate::runtime::Result;

/// Largest size of the local buffers of a thread, in bytes; larger ones go to a workspace that the runtime plans.
pub(super) const LOCAL_BYTES: i64 = 4 << 20;

/// The interval of a subscript around an affine centre: `centre + low ..= centre + high`.
struct Box1 {
    centre: Affine,
    low: i64,
    high: i64,
}

impl Lowering<'_> {
    /// Temporaries that statements of several phases touch become workspaces, and those that a statement has for itself.
    pub(super) fn place_across_phases(&mut self, phases: &[(Vec<StatementId>, &Node)]) -> Result<()> {
        for t in self.temporaries() {
            let touching = self.users(t);
            let shared = phases.iter().filter(|p| p.0.iter().any(|s| touching.contains(s))).count() > 1;
            if shared || touching.len() == 1 {
                self.workspace(t)?;
            }
        }
        Ok(())
    }

    /// Every temporary that is neither private nor contracted becomes a workspace.
    pub(super) fn place_all(&mut self) -> Result<()> {
        for t in self.temporaries() {
            let own = self.scop.private(t).is_some() || self.contractions.iter().any(|c| c.private.tensor == t);
            if !own && !self.users(t).is_empty() {
                self.workspace(t)?;
            }
        }
        Ok(())
    }

    fn temporaries(&self) -> Vec<BufferId> {
        let all = self.scop.tensors.iter().enumerate();
        all.filter(|(_, t)| t.role == Role::Temporary).map(|(i, _)| BufferId(i as u32)).collect()
    }

    /// Memory for all elements of a temporary, folded where the schedule allows it.
    pub(super) fn workspace(&mut self, tensor: BufferId) -> Result<()> {
        let t = self.scop.tensor(tensor);
        let packed = || self.tiled.packings.iter().any(|p| p.access.buffer == tensor);
        let fold = match self.scop.private(tensor).is_none() && !packed() {
            true => folding::fold(self.scop, self.storage, tensor, self.answers)?,
            false => None,
        };
        let shape = fold.as_ref().map_or(t.shape.clone(), |f| storage::shape(&f.layout, &t.shape));
        let bytes = shape.iter().product::<i64>() as usize * t.dtype.bytes();
        let buffer = self.argument(&t.name, t.dtype, &shape, true, Argument::Workspace { bytes });
        self.tensors[tensor.0 as usize] = Some(buffer);
        self.folds.extend(fold);
        Ok(())
    }

    /// A workspace of this shape for the elements of a temporary that one iteration of some loops touches, whoever runs it.
    pub(super) fn shared_workspace(&mut self, tensor: BufferId, shape: &[i64]) -> BufferId {
        let t = self.scop.tensor(tensor);
        let key = Local::Workspace(tensor);
        if let Some((_, buffer)) = self.locals.iter().find(|l| l.0 == key && self.nest.buffer(l.1).shape == shape) {
            return *buffer;
        }
        let bytes = shape.iter().product::<i64>() as usize * t.dtype.bytes();
        let buffer = self.argument(&t.name, t.dtype, shape, true, Argument::Workspace { bytes });
        self.locals.push((key, buffer));
        buffer
    }

    /// The site with memory for the temporaries that are to have it around these rows, or around the parts that follow one
    /// another where there are none; `None` when there are none.
    pub(super) fn place(&mut self, parts: &[&[StatementId]], rows: &[Row], site: &Site) -> Result<Option<Site>> {
        if !site.boxes {
            return self.place_private(&parts.concat(), site);
        }
        // Below a row of lanes that depend on each other, a temporary would be one element that they share.
        let coincident = site.coincident && rows.iter().all(|r| r.coincident);
        let around = rows.first().is_none_or(|row| expands(row) && !coincident);
        if around && parts.len() > 1 { self.place_in_boxes(parts, site) } else { Ok(None) }
    }

    /// Gives a place to each temporary whose statements are in several parts, and in no other.
    fn place_in_boxes(&mut self, parts: &[&[StatementId]], site: &Site) -> Result<Option<Site>> {
        let mut out = None;
        for t in self.temporaries() {
            if self.tensors[t.0 as usize].is_some() || site.placed.iter().any(|p| p.tensor == t) {
                continue;
            }
            let touching = self.scop.users(t);
            let split = parts.iter().filter(|part| part.iter().any(|s| touching.contains(s))).count() > 1;
            if !split || !touching.iter().all(|s| parts.iter().any(|part| part.contains(s))) {
                continue;
            }
            let own = site.coincident || site.loops <= own_loops(self.scop, self.storage, t);
            let contracted = if own { self.contract(t, &touching, site) } else { None };
            match contracted {
                Some((origin, shape)) => {
                    let buffer = self.local(Local::Temporary(t), &self.scop.tensor(t).name, t, &shape);
                    let placed = Placed { tensor: t, buffer, origin, sums: false };
                    out.get_or_insert_with(|| site.clone()).placed.push(placed);
                }
                None => self.workspace(t)?,
            }
        }
        Ok(out)
    }

    /// Origin and extents of the part of a temporary that is touched here, when the loops shift all accesses alike.
    pub(super) fn contract(
        &self,
        tensor: BufferId,
        touching: &[StatementId],
        site: &Site,
    ) -> Option<(Vec<Affine>, Vec<i64>)> {
        let shape = &self.scop.tensor(tensor).shape;
        let mut boxes: Vec<Option<Box1>> = shape.iter().map(|_| None).collect();
        for &id in touching {
            let s = self.scop.statement(id);
            let mut accesses: Vec<Vec<Index>> = vec![];
            if s.target == tensor {
                accesses.push(s.subscripts());
            }
            s.visit_accesses(&mut |a| {
                if a.buffer == tensor {
                    accesses.push(a.index.clone());
                }
            });
            for index in accesses {
                for (d, i) in index.iter().enumerate() {
                    let one = self.interval(id, i.affine()?, site)?;
                    boxes[d] = Some(match boxes[d].take() {
                        None => one,
                        Some(all) => {
                            let shift = one.centre.add_scaled(&all.centre, -1);
                            if !shift.is_constant() {
                                return None;
                            }
                            let (low, high) = (one.low + shift.constant, one.high + shift.constant);
                            Box1 { centre: all.centre, low: all.low.min(low), high: all.high.max(high) }
                        }
                    });
                }
            }
        }
        let mut origin = vec![];
        let mut extents = vec![];
        for (b, &n) in boxes.into_iter().zip(shape) {
            let b = b?;
            let extent = b.high - b.low + 1;
            if extent >= n {
                origin.push(Affine::constant(0));
                extents.push(n);
            } else {
                origin.push(b.centre.offset(b.low));
                extents.push(extent);
            }
        }
        let bytes = extents.iter().product::<i64>() * self.scop.tensor(tensor).dtype.bytes() as i64;
        (bytes <= LOCAL_BYTES).then_some((origin, extents))
    }

    /// The values of an affine form of a statement's iterators at this place.
    fn interval(&self, id: StatementId, a: &Affine, site: &Site) -> Option<Box1> {
        let s = self.scop.statement(id);
        let mut out = Box1 { centre: Affine::constant(a.constant), low: 0, high: 0 };
        for &(v, c) in &a.terms {
            let (centre, last) = self.iterator(id, v, site)?;
            let (centre, last) = match centre {
                Some(centre) => (centre, last),
                None => (Affine::constant(0), s.extent(v) - 1),
            };
            out.centre = out.centre.add_scaled(&centre, c);
            if c > 0 { out.high += c * last } else { out.low += c * last }
        }
        Some(out)
    }

    /// Returns the range of one iterator from the rows: `centre + 0..=last`. `None` inside when no row has it,
    /// `None` outside when one has it with others.
    fn iterator(&self, id: StatementId, v: crate::expr::Var, site: &Site) -> Option<(Option<Affine>, i64)> {
        for RowValues { phi, base, extent } in &site.rows {
            let Some((_, phi)) = phi.iter().find(|p| p.0 == id) else { continue };
            match phi.terms[..] {
                [(w, 1)] if w == v => return Some((Some(base.clone().offset(-phi.constant)), extent - 1)),
                _ if phi.uses(v) => return None,
                _ => {}
            }
        }
        Some((None, 0))
    }

    /// The local buffer of this shape for `key`. Full and partial tiles have buffers of their own, so that each store of a
    /// partial tile defines all that exists.
    pub(super) fn local(&mut self, key: Local, name: &str, tensor: BufferId, shape: &[i64]) -> BufferId {
        let mut same = self.locals.iter().filter(|l| l.0 == key).map(|l| l.1);
        if let Some(buffer) = same.clone().find(|b| self.nest.buffer(*b).shape == shape) {
            return buffer;
        }
        let name = match same.by_ref().count() {
            0 => name.to_string(),
            n => format!("{name}_{}", n + 1),
        };
        let dtype = self.scop.tensor(tensor).dtype;
        self.nest.buffers.push(Buffer::dense(name, dtype, shape, BufferKind::Local));
        let buffer = BufferId(self.nest.buffers.len() as u32 - 1);
        self.locals.push((key, buffer));
        buffer
    }
}
