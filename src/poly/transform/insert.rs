//! Insertion of statements into a tree: below a loop, with an iterator for each loop around them.

use crate::expr::{Affine, Var};
use crate::expr::{BufferId, Index};
use crate::poly::schedule::{Node, Row, RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, difference, plus, unit};
use crate::poly::statement::{Iterator, StatementId, TensorDecl};
use crate::poly::storage::Private;
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{apart, refuse, together};
use crate::runtime::Result;

/// One access: the statement, its subscripts, and where it takes place.
pub struct ElementAccess {
    pub statement: StatementId,
    pub index: Vec<Index>,
    pub guard: Vec<Affine>,
    pub write: bool,
}

/// The accesses of these statements to a tensor: the reads, and the writes when they count.
pub fn element_accesses(scop: &Scop, statements: &[StatementId], tensor: BufferId, writes: bool) -> Vec<ElementAccess> {
    let mut out = vec![];
    for &id in statements {
        let s = scop.statement(id);
        if s.target == tensor && writes {
            out.push(ElementAccess { statement: id, index: s.subscripts(), guard: vec![], write: true });
        }
        s.visit_accesses(&mut |a| {
            if a.buffer == tensor {
                out.push(ElementAccess { statement: id, index: a.index.clone(), guard: a.guard.clone(), write: false });
            }
        });
    }
    out
}

/// The rows above `row` and `row` itself, outermost first.
pub fn path_to(schedule: &Schedule, row: &Row) -> Vec<Row> {
    let mut out = vec![];
    for step in schedule.path(row.phi[0].0) {
        if let TimeDimension::Row(r) = step {
            out.push(r.clone());
            if r == row {
                break;
            }
        }
    }
    out
}

/// The loops around new statements, each an iterator of theirs: iterator j is ⌊φ / tile⌋ of row j less `first[j]`.
pub struct InsertionPoint {
    pub rows: Vec<Row>,
    pub first: Vec<i64>,
    pub iterators: Vec<Iterator>,
}

impl InsertionPoint {
    pub fn new(scop: &Scop, rows: Vec<Row>) -> Result<InsertionPoint> {
        if let Some(row) = rows.iter().find(|r| matches!(r.kind, RowKind::Vector | RowKind::Unroll)) {
            return refuse(format!(
                "loop `{}` is vectorized or unrolled: no statement can be inserted into it",
                row.name
            ));
        }
        let (mut first, mut iterators) = (vec![], vec![]);
        for row in &rows {
            let (lo, hi) = row.values(scop);
            first.push(lo);
            iterators.push(Iterator::new(&row.name, hi - lo + 1));
        }
        Ok(InsertionPoint { rows, first, iterators })
    }

    /// φ of row j for a statement whose iterator `position + j` it is.
    pub fn phi(&self, j: usize, position: usize) -> Affine {
        Affine::constant(self.first[j] * self.rows[j].tile).plus(Var((position + j) as u32), self.rows[j].tile)
    }

    /// Requires that variables `position ..` of `p` are the values of the rows for an instance of `id`, whose iterators are the
    /// variables `instance ..`.
    fn relate(&self, p: &mut Polyhedron, id: StatementId, position: usize, instance: usize) {
        for (j, row) in self.rows.iter().enumerate() {
            let form = plus(&p.form(row.of(id), instance), -self.first[j] * row.tile);
            if row.tile == 1 {
                let mut value = vec![0; p.dims + 1];
                value[position + j] = 1;
                p.equalities.push(difference(&form, &value));
            } else {
                p.divide(&form, position + j, row.tile);
            }
        }
    }

    /// Returns the elements that `accesses` reach in one iteration of the rows, as conditions over the rows' iterators
    /// and then subscripts of a tensor of this shape; `None` for nothing. May hold for more elements where the
    /// projection is not exact.
    pub fn reach(
        &self,
        scop: &Scop,
        accesses: &[ElementAccess],
        shape: &[i64],
        isl: &Isl,
    ) -> Result<Option<Vec<Affine>>> {
        let (n, keep) = (self.rows.len(), self.rows.len() + shape.len());
        let mut space = Polyhedron::universe(keep);
        let extents = self.iterators.iter().map(|it| it.extent).chain(shape.iter().copied());
        for (v, extent) in extents.enumerate() {
            space.bound(&unit(keep, v), 0, extent - 1);
        }
        let mut shadows = vec![];
        for t in accesses {
            let s = scop.statement(t.statement);
            let mut p = Polyhedron::universe(keep + s.iterators.len());
            p.add_domain(s, keep);
            t.guard.iter().for_each(|g| p.inequalities.push(p.form(g, keep)));
            self.relate(&mut p, t.statement, 0, keep);
            p.conjoin(&space, &(0..keep).collect::<Vec<_>>());
            for (d, index) in t.index.iter().enumerate() {
                if let Index::Affine(a) = index {
                    let mut equal = p.form(a, keep);
                    equal[n + d] -= 1;
                    p.equalities.push(equal);
                }
            }
            if !isl.is_empty(&p)? {
                shadows.push(isl.project(&p, keep)?);
            }
        }
        if shadows.is_empty() {
            return Ok(None);
        }
        let hull = isl.gist(&isl.hull(&shadows)?, &space)?;
        let affine = |f: Vec<i64>| {
            let terms = f[..keep].iter().enumerate().filter(|(_, c)| **c != 0);
            terms.fold(Affine::constant(f[keep]), |a, (v, &c)| a.plus(Var(v as u32), c))
        };
        Ok(Some(hull.as_inequalities().into_iter().map(affine).collect()))
    }
}

/// Inserts statements below the first `depth` rows and sequences around statement `inside`: row j covers them with
/// φ `phi(j, statement)`, and `edit` turns the subtree below into one that contains them.
pub fn insert(
    schedule: &Schedule,
    (depth, inside): (usize, StatementId),
    new: &[StatementId],
    phi: &dyn Fn(usize, StatementId) -> Affine,
    edit: &mut dyn FnMut(Node, Vec<StatementId>) -> Result<Node>,
) -> Result<Schedule> {
    let all = schedule.ids();
    let mut walk = Insertion { inside, depth, new, phi, edit };
    Ok(Schedule { root: together(walk.node(apart(&schedule.root), 0, all)?) })
}

struct Insertion<'a> {
    inside: StatementId,
    depth: usize,
    new: &'a [StatementId],
    phi: &'a dyn Fn(usize, StatementId) -> Affine,
    edit: &'a mut dyn FnMut(Node, Vec<StatementId>) -> Result<Node>,
}

impl Insertion<'_> {
    fn node(&mut self, node: Node, depth: usize, ids: Vec<StatementId>) -> Result<Node> {
        if depth == self.depth {
            return (self.edit)(node, ids);
        }
        Ok(match node {
            Node::Leaf => Node::Leaf,
            Node::Sequence(children) => {
                let mut out = vec![];
                for (mut ids, mut child) in children {
                    if ids.contains(&self.inside) {
                        child = self.node(child, depth, ids.clone())?;
                        ids.extend(self.new);
                    }
                    out.push((ids, child));
                }
                Node::Sequence(out)
            }
            Node::Band(mut band, child) => {
                band.rows[0].phi.extend(self.new.iter().map(|&id| (id, (self.phi)(depth, id))));
                Node::Band(band, Box::new(self.node(*child, depth + 1, ids)?))
            }
        })
    }
}

/// The tree without these statements; `None` when nothing is left.
pub fn remove(node: &Node, gone: &[StatementId]) -> Option<Node> {
    match node {
        Node::Leaf => Some(Node::Leaf),
        Node::Band(band, child) => {
            let mut band = band.clone();
            band.rows.iter_mut().for_each(|r| r.phi.retain(|p| !gone.contains(&p.0)));
            let left = band.rows.iter().all(|r| !r.phi.is_empty());
            if left { Some(Node::Band(band, Box::new(remove(child, gone)?))) } else { None }
        }
        Node::Sequence(children) => {
            let mut left: Vec<(Vec<StatementId>, Node)> = vec![];
            for (ids, child) in children {
                let ids: Vec<StatementId> = ids.iter().copied().filter(|id| !gone.contains(id)).collect();
                if !ids.is_empty() {
                    left.push((ids, remove(child, gone)?));
                }
            }
            match left.len() {
                0 => None,
                1 => left.pop().map(|c| c.1),
                _ => Some(Node::Sequence(left)),
            }
        }
    }
}

/// A chain of loops over these iterators of a statement.
pub fn nest(id: StatementId, iterators: &[Iterator], range: std::ops::Range<usize>) -> Node {
    let row = |v: usize| Row::serial(&*iterators[v].name, vec![(id, Affine::var(Var(v as u32)))]);
    range.rev().fold(Node::Leaf, |below, v| crate::poly::transform::tree_edit::single(row(v), below))
}

/// Adds a temporary to the Scop, with a new name that begins with `name`.
pub fn add_temporary(scop: &mut Scop, name: &str, like: &TensorDecl) -> BufferId {
    let taken = |scop: &Scop, name: &str| {
        scop.tensors.iter().any(|t| t.name == name) || scop.statements.iter().any(|s| s.name == name)
    };
    let mut unique = name.to_string();
    let mut k = 2;
    while taken(scop, &unique) {
        unique = format!("{name}_{k}");
        k += 1;
    }
    scop.tensors.push(TensorDecl::new(unique, like.dtype, &like.shape[..], crate::poly::statement::Role::Temporary));
    BufferId(scop.tensors.len() as u32 - 1)
}

/// A name that no statement has.
pub fn statement_name(scop: &Scop, name: &str) -> String {
    let mut unique = name.to_string();
    let mut k = 2;
    while scop.statements.iter().any(|s| s.name == unique) {
        unique = format!("{name}_{k}");
        k += 1;
    }
    unique
}

/// New statements that use a private temporary join its rows: those of `around` that are the same for its other users.
pub fn join_privates(scop: &mut Scop, around: &InsertionPoint, statements: &[(StatementId, usize)]) -> Result<()> {
    let mut privates = std::mem::take(&mut scop.privates);
    for p in &mut privates {
        for &(id, position) in statements.iter().filter(|s| scop.statement(s.0).uses(p.tensor)) {
            for row in &mut p.rows {
                if row.phi.iter().any(|q| q.0 == id) {
                    continue;
                }
                let same = |r: &&Row| r.tile == row.tile && row.phi.iter().any(|q| r.phi.contains(q));
                let Some(j) = around.rows.iter().find(same).and_then(|r| around.rows.iter().position(|s| s == r))
                else {
                    let name = &scop.tensor(p.tensor).name;
                    return refuse(format!(
                        "`{name}` is private to loop `{}`, which does not contain this place",
                        row.name
                    ));
                };
                row.phi.push((id, around.phi(j, position)));
            }
        }
    }
    scop.privates = privates;
    Ok(())
}

/// The tensor as private to each iteration of the rows of `around`, which cover `statements` as well.
pub fn private(
    tensor: BufferId,
    source: Option<BufferId>,
    around: &InsertionPoint,
    statements: &[(StatementId, usize)],
) -> Private {
    let row = |(j, r): (usize, &Row)| {
        let mut r = r.clone();
        r.phi.extend(statements.iter().map(|&(id, position)| (id, around.phi(j, position))));
        r.kind = RowKind::Serial;
        r
    };
    Private { tensor, source, rows: around.rows.iter().enumerate().map(row).collect(), layout: vec![] }
}

/// A Scop whose original order is its tree.
pub fn settled(scop: Scop, schedule: Schedule, before: &Transformed) -> Transformed {
    Transformed { scop: Scop { order: schedule.clone(), ..scop }, schedule, ..before.clone() }
}
