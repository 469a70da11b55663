//! Translation of a schedule tree to the primitives that produce it.
//!
//! In: a program and the result of the ILP for it. Out: primitives of the text language, of which [`super::apply_all`] makes
//! the same Scop, tree, packings and loops; an error that names what they do not make. Where both trees have the same loops
//! around the same statements no primitive is needed. Elsewhere loops are distributed until each statement is alone, each is
//! given its rows ([`chain`]), and those that share loops are merged again. Loops over tiles have new names; the others
//! keep the names that they have in the program. Loops over one value do not count.

pub mod context;
mod loop_chain;

use super::apply_all;
use crate::codegen::loopnest::LoopNest;
use crate::expr::Affine;
use crate::expr::syntax::Name;
use crate::expr::syntax::Span;
use crate::poly::lower;
use crate::poly::normalize::{array_expansion, coalesce, domain_split, index_set_split, statement_split};
use crate::poly::packing::Packing;
use crate::poly::schedule::{Node, Row, RowKind, Schedule, SequencePart, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::tile::as_given;
use crate::poly::tile::report::Tiled;
use crate::poly::transform::primitive::{Loop, Loops, Placed, Primitive, Read};
use crate::poly::transform::state::{SourceProgram, Transformed};
use crate::poly::transform::to_primitives::context::{Emitter, kind};
use crate::poly::transform::tree_edit::{apart, children_of};
use crate::runtime::{Error, Result};
use std::collections::BTreeMap;

/// Returns the primitives that turn a program into `scop` in the order of `tiled`; `Unsupported` if they do not exist.
pub fn express(original: &SourceProgram, scop: &Scop, tiled: &Tiled) -> Result<Vec<Primitive>> {
    let mut emitter = Emitter { scop, primitives: program(original, scop)?, links: BTreeMap::new(), phases: true };
    let (from, mut target) = (emitter.rows_apart(&scop.order.root), emitter.plain(&tiled.schedule));
    if let Node::Band(band, child) = &target
        && band.rows[0].is_single(scop)
        && !emitter.begins_alike(&from, &target)
    {
        (target, emitter.phases) = ((**child).clone(), false);
    }
    emitter.name(&mut target, &mut vec![]);
    emitter.node(&from, &target, &scop.ids().collect::<Vec<_>>(), &[])?;
    emitter.mark(&target, 0);
    if !emitter.phases {
        emitter.primitives.push(Primitive::Serial);
    }
    emitter.packings(&tiled.packings);
    emitter.instructions(&tiled.schedule);
    let placed: Vec<Placed> =
        emitter.primitives.iter().map(|p| Placed { primitive: p.clone(), span: Span::default() }).collect();
    let made = apply_all(original, &placed).map_err(|(_, e)| e)?;
    match emitter.difference(made.state(), tiled)? {
        None => Ok(emitter.primitives),
        Some(what) => Err(Error::Unsupported(format!("{what} cannot be expressed as primitives"))),
    }
}

/// Returns the primitives that turn the program into `scop`.
fn program(original: &SourceProgram, scop: &Scop) -> Result<Vec<Primitive>> {
    let normal = (original.normal)()?;
    let mut first = vec![];
    if normal != original.written {
        first.push(Primitive::Normalize);
    }
    let (primitives, made) = normalized(&normal, scop)?;
    if made != *scop {
        let split = domain_split::split(&normal)?;
        if split != normal {
            let (more, made) = normalized(&split, scop)?;
            if made == *scop {
                return Ok([first, vec![Primitive::DomainSplit], more].concat());
            }
        }
    }
    Ok([first, primitives].concat())
}

/// The primitives by which `current` becomes `scop`, as far as they go, and what they make.
fn normalized(current: &Scop, scop: &Scop) -> Result<(Vec<Primitive>, Scop)> {
    let (mut primitives, mut current) = (vec![], current.clone());
    for (primitive, next) in [
        (Primitive::Coalesce, (|scop| Ok(coalesce::coalesce(scop))) as fn(&Scop) -> Result<Scop>),
        (Primitive::IndexSetSplit, index_set_split::split),
        (Primitive::ArrayExpand, array_expansion::expand),
        (Primitive::StatementSplit, statement_split::split),
    ] {
        if current != *scop {
            let changed = next(&current)?;
            if changed != current {
                primitives.push(primitive);
            }
            current = changed;
        }
    }
    Ok((primitives, current))
}

/// Returns true if two plain trees run the same instances in the same order; names of loops do not count.
fn same(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::Leaf, Node::Leaf) => true,
        (Node::Band(x, below), Node::Band(y, under)) => {
            let (x, y) = (&x.rows[0], &y.rows[0]);
            (x.tile, x.kind) == (y.tile, y.kind) && sorted(x) == sorted(y) && same(below, under)
        }
        (Node::Sequence(x), Node::Sequence(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| set(&x.0) == set(&y.0) && same(&x.1, &y.1))
        }
        _ => false,
    }
}

fn sorted(row: &Row) -> Vec<(StatementId, Affine)> {
    let mut phi = row.phi.clone();
    phi.sort();
    phi
}

fn covers(row: &Row) -> Vec<StatementId> {
    set(&row.phi.iter().map(|p| p.0).collect::<Vec<_>>())
}

fn set(ids: &[StatementId]) -> Vec<StatementId> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

impl Emitter<'_> {
    /// Returns the first difference between a result and that of the ILP path.
    fn difference(&self, made: &Transformed, tiled: &Tiled) -> Result<Option<&'static str>> {
        let loops = |tiled: &Tiled| -> Result<LoopNest> {
            Ok(LoopNest { vars: vec![], ..lower::lower(self.scop, tiled)?.nest })
        };
        Ok(if made.scop != *self.scop {
            Some("the changes of its statements")
        } else if !same(&self.plain(&made.schedule), &self.plain(&tiled.schedule)) {
            Some("the order of its loops")
        } else if made.packings != tiled.packings {
            Some("the packing of its operands")
        } else if loops(&as_given(self.scop, &made.schedule, &made.packings))? != loops(tiled)? {
            Some("the storage of its temporaries")
        } else {
            None
        })
    }

    /// Divides bands into one for each row and removes loops over one value.
    fn plain(&self, schedule: &Schedule) -> Node {
        self.rows_apart(&schedule.without_single_loops(self.scop).root)
    }

    /// The tree with a band for each row, times without iterators that are always 0.
    fn rows_apart(&self, node: &Node) -> Node {
        let mut node = apart(node);
        node.for_each_band_mut(&mut |band| {
            for (id, phi) in band.rows.iter_mut().flat_map(|r| &mut r.phi) {
                let iterators = &self.scop.statement(*id).iterators;
                phi.terms.retain(|t| iterators[t.0.0 as usize].extent > 1);
            }
        });
        node
    }

    fn statement(&self, id: StatementId) -> Name {
        Name::from(&*self.scop.statement(id).name)
    }

    fn one(&self, id: StatementId, name: &str) -> Loop {
        Loop { statement: Some(self.statement(id)), name: name.into() }
    }

    /// Gives loops over tiles names that nothing around them and no loop of the program below them has.
    fn name(&self, node: &mut Node, around: &mut Vec<String>) {
        match node {
            Node::Leaf => {}
            Node::Sequence(children) => children.iter_mut().for_each(|c| self.name(&mut c.1, around)),
            Node::Band(band, child) => {
                let row = &mut band.rows[0];
                let depth = around.len();
                if row.tile > 1 {
                    let written = |name: &String| {
                        let of = |id| self.scop.order.path(id).into_iter();
                        let rows = row.phi.iter().flat_map(|p| of(p.0));
                        rows.into_iter().any(|s| matches!(s, TimeDimension::Row(r) if r.name == *name))
                    };
                    let base = row.name.clone();
                    let mut k = 1;
                    let mut name = base.clone();
                    while around.contains(&name) || written(&name) {
                        k += 1;
                        name = format!("{base}{k}");
                    }
                    row.name = name;
                    around.push(row.name.clone());
                }
                self.name(child, around);
                around.truncate(depth);
            }
        }
    }

    /// Returns true if the outermost loop of the program is that of the target.
    fn begins_alike(&self, from: &Node, to: &Node) -> bool {
        let (Node::Band(from, _), Node::Band(to, _)) = (from, to) else { return false };
        let (source, target) = (&from.rows[0], &to.rows[0]);
        let is_single = |row: &Row| row.is_single(self.scop);
        target.tile == 1
            && (sorted(source) == sorted(target)
                || is_single(source) && is_single(target) && covers(source) == covers(target))
    }

    /// Emits the primitives that turn tree `from` into `to` below the common loops `fixed`.
    fn node(&mut self, from: &Node, to: &Node, ids: &[StatementId], fixed: &[Row]) -> Result<()> {
        let (mut from, mut to, mut fixed) = (from, to, fixed.to_vec());
        while let Node::Band(a, below) = from {
            let single = a.rows[0].is_single(self.scop);
            match to {
                Node::Band(b, under) if self.begins_alike(from, to) => {
                    fixed.push(Row { name: a.rows[0].name.clone(), ..b.rows[0].clone() });
                    to = under;
                }
                Node::Sequence(_) if single && self.phases && fixed.is_empty() => break,
                _ if single => {}
                _ => break,
            }
            from = below;
        }
        if let &[id] = ids {
            return self.chain(id, &fixed, &rows(from, id), &rows(to, id), false);
        }
        let (a, b) = (children_of(from, ids), children_of(to, ids));
        // Parts of which one tree has the same statements together as the other stay together.
        let alike = |x: &SequencePart| matches!(from, Node::Sequence(_)) && b.iter().any(|y| set(&x.0) == set(&y.0));
        let mut units: Vec<Vec<StatementId>> = vec![];
        for part in &a {
            match b.iter().find(|y| set(&part.0) == set(&y.0)).filter(|_| alike(part)) {
                Some(other) => {
                    self.node(&part.1, &other.1, &part.0, &fixed)?;
                    units.push(part.0.clone());
                }
                None => {
                    self.distribute(&[], &part.1);
                    let leaves = leaves(&part.1, &part.0);
                    for &id in &leaves {
                        let other = b.iter().find(|y| y.0.contains(&id)).expect("covered");
                        self.chain(id, &fixed, &rows(&part.1, id), &rows(&other.1, id), other.0.len() > 1)?;
                    }
                    units.extend(leaves.into_iter().map(|id| vec![id]));
                }
            }
        }
        let order = b.iter().flat_map(|y| leaves(&y.1, &y.0));
        let mut wanted: Vec<&Vec<StatementId>> = vec![];
        for id in order {
            let unit = units.iter().find(|u| u.contains(&id)).expect("covered");
            if !wanted.contains(&unit) {
                wanted.push(unit);
            }
        }
        if wanted.iter().copied().ne(&units) {
            let statements = wanted.iter().map(|u| self.statement(u[0])).collect();
            self.primitives.push(Primitive::Sequence { statements });
        }
        for (ids, node) in b.iter().filter(|y| !units.contains(&y.0) && y.0.len() > 1) {
            self.merge(node, ids, fixed.len());
        }
        Ok(())
    }

    /// Emits the primitives that leave every statement below `node` alone in its loops, below the rows `around`.
    fn distribute(&mut self, around: &[Row], node: &Node) {
        match node {
            Node::Leaf => {}
            Node::Band(band, child) => self.distribute(&[around, &band.rows].concat(), child),
            Node::Sequence(children) => {
                if let Some(row) = around.first() {
                    let statements = children.iter().map(|c| self.statement(leaves(&c.1, &c.0)[0])).collect();
                    let at = Name::from(&*row.name);
                    self.primitives.push(Primitive::Distribute { statements, at });
                }
                children.iter().for_each(|c| self.distribute(around, &c.1));
            }
        }
    }

    /// Emits the primitives that merge statements that are alone in their loops into `node`, below `depth` loops.
    fn merge(&mut self, node: &Node, ids: &[StatementId], depth: usize) {
        match node {
            Node::Leaf => {}
            Node::Band(_, child) => self.merge(child, ids, depth + 1),
            Node::Sequence(children) => {
                let ordered = leaves(node, ids);
                let at = Name::from(&*self.links[&ordered[0]][depth - 1].name);
                let statements = ordered.iter().map(|&id| self.statement(id)).collect();
                self.primitives.push(Primitive::Merge { statements, at });
                for (ids, child) in children.iter().filter(|c| c.0.len() > 1) {
                    self.merge(child, ids, depth);
                }
            }
        }
    }

    /// Emits the primitives for operands that are read from packed copies: all reads of an array by `cache_read` and `pack`
    /// where these make the packings, or else read by read.
    fn packings(&mut self, packings: &[Packing]) {
        let name = |p: &Packing| Name::from(&*self.scop.tensor(p.access.buffer).name);
        let mut by_array: Vec<Primitive> = vec![];
        for packing in packings {
            let (tensor, layout) = (name(packing), super::pack::layout(self.scop, packing));
            let read = Primitive::CacheRead { tensor: tensor.clone(), at: None };
            for primitive in [read, Primitive::Pack { tensor, layout }] {
                if !by_array.contains(&primitive) {
                    by_array.push(primitive);
                }
            }
        }
        let start = Transformed::new(self.scop.clone());
        let packed = by_array.iter().try_fold(start, |before, p| match p {
            Primitive::CacheRead { tensor, .. } => super::pack::cache_read(&before, tensor, None),
            Primitive::Pack { tensor, layout } => super::pack::pack(&before, tensor, layout),
            _ => Ok(before),
        });
        if packed.is_ok_and(|packed| packed.packings == packings) {
            self.primitives.extend(by_array);
            return;
        }
        for packing in packings {
            let read = Read { statement: Some(self.statement(packing.statement)), tensor: name(packing) };
            self.primitives.push(Primitive::PackRead { read, layout: super::pack::layout(self.scop, packing) });
        }
    }

    /// Emits the primitives for the loops over the terms of tensor instructions, which are innermost.
    fn instructions(&mut self, schedule: &Schedule) {
        for id in self.scop.ids() {
            let Some(TimeDimension::Row(row)) = schedule.path(id).pop() else { continue };
            let (RowKind::Instruction(name), Some(link)) = (row.kind, self.links[&id].last()) else { continue };
            let which = Loops { statement: Some(self.statement(id)), names: vec![link.name.as_str().into()] };
            self.primitives.push(Primitive::Tensorize { which, with: Some(name.as_str().into()) });
        }
    }

    /// Emits the primitives for shared loops that are not serial, below `depth` loops.
    fn mark(&mut self, node: &Node, depth: usize) {
        match node {
            Node::Leaf => {}
            Node::Sequence(children) => children.iter().for_each(|c| self.mark(&c.1, depth)),
            Node::Band(band, child) => {
                let row = &band.rows[0];
                let ids: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
                if ids.len() > 1 && !row.is_single(self.scop) {
                    let first = leaves(child, &ids)[0];
                    self.primitives.extend(kind(row.kind, self.one(first, &self.links[&first][depth].name)));
                }
                self.mark(child, depth + 1);
            }
        }
    }
}

/// The rows on the way to a statement, outermost first.
fn rows(node: &Node, id: StatementId) -> Vec<Row> {
    let schedule = Schedule { root: node.clone() };
    let path = schedule.path(id).into_iter();
    path.filter_map(|s| if let TimeDimension::Row(r) = s { Some(r.clone()) } else { None }).collect()
}

/// The statements below a node in their order.
fn leaves(node: &Node, ids: &[StatementId]) -> Vec<StatementId> {
    match node {
        Node::Leaf => ids.to_vec(),
        Node::Band(_, child) => leaves(child, ids),
        Node::Sequence(children) => children.iter().flat_map(|c| leaves(&c.1, &c.0)).collect(),
    }
}
