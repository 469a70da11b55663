//! Verifier of tensor expressions, Scops and their schedules: ranks, variables, ids, bounds of subscripts, rows of private temporaries.

use crate::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, Scalar, Var};
use crate::poly::schedule::{Node, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, orthogonal_complement};
use crate::poly::statement::{Definition, Program, Role, Statement, StatementId, TensorDecl, ranges};
use crate::poly::storage::is_fixed;
use crate::runtime::{Error, Result};

impl Program {
    /// Checks ids, ranks, variables, reductions and the order of definitions; bounds of subscripts are checked on the Scop.
    ///
    /// # Errors
    /// `Invalid` with the first definition that is not sound.
    pub fn verify(&self) -> Result<()> {
        let mut last_write = vec![None; self.tensors.len()];
        for (i, d) in self.definitions.iter().enumerate() {
            *last_write.get_mut(d.target.0 as usize).ok_or_else(|| {
                Error::Invalid(format!("definition {i} writes tensor {}, which does not exist", d.target.0))
            })? = Some(i);
        }
        for (i, d) in self.definitions.iter().enumerate() {
            let target = &self.tensors[d.target.0 as usize];
            let fault = definition_fault(d, target)
                .or_else(|| self.read_fault(d, &|t| last_write[t.0 as usize].is_some_and(|w| w < i)));
            if let Some(fault) = fault {
                return Err(Error::Invalid(format!("definition {i} of {}: {fault}", target.name)));
            }
        }
        Ok(())
    }

    /// The first fault of what a definition reads; `is_complete` knows the tensors that earlier definitions write.
    fn read_fault(&self, d: &Definition, is_complete: &dyn Fn(BufferId) -> bool) -> Option<&'static str> {
        let mut fault = None;
        d.body.visit_accesses(&mut |a| {
            let found = match self.tensors.get(a.buffer.0 as usize) {
                None => Some("a read of a tensor that does not exist"),
                Some(t) if t.shape.len() != a.index.len() => Some("a read with the wrong number of subscripts"),
                // a tensor without elements is complete
                Some(t) if t.shape.contains(&0) || t.role.is_given() || is_complete(a.buffer) => None,
                Some(_) => Some("a tensor is read before it is complete"),
            };
            fault = fault.or(found);
        });
        fault
    }
}

/// The first fault of a definition, but for its reads.
fn definition_fault(d: &Definition, target: &TensorDecl) -> Option<&'static str> {
    let is_known = |a: &Affine| a.terms.iter().all(|t| (t.0.0 as usize) < d.iterators.len());
    let mut sound = d.conditions.iter().all(is_known);
    d.body.visit(&mut |e| match e {
        Expr::Index(a) => sound &= is_known(a),
        Expr::Load(access) => sound &= access.affine_forms().all(is_known),
        _ => {}
    });
    let is_reduction = d.outer < d.iterators.len();
    let faults = [
        (d.is_scatter() && is_reduction, "a scatter has reduced iterators"),
        (
            d.outer > d.iterators.len() || is_reduction && d.reduce.is_none(),
            "reduced iterators and the reduction operator do not agree",
        ),
        (
            !matches!(d.reduce, None | Some(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max)),
            "only sums, products, minima and maxima reduce",
        ),
        (d.reduce.is_some_and(|op| Scalar::neutral(op, target.dtype).is_err()), "the reduction has no neutral element"),
        (d.write.len() != target.shape.len(), "the write does not have one subscript for each dimension"),
        (
            d.write.iter().any(|w| w.terms.iter().any(|t| t.0.0 as usize >= d.outer)),
            "the write uses a reduced iterator",
        ),
        (target.role.is_given(), "an input is written"),
        (d.iterators.iter().any(|it| it.extent < 0), "an extent is negative"),
        (!sound, "a subscript, a condition or a guard uses an iterator that does not exist"),
    ];
    faults.into_iter().find(|fault| fault.0).map(|fault| fault.1)
}

impl Scop {
    /// Checks ranks, variables and ids, the original order, and that every subscript lies in its dimension for every
    /// instance that accesses it.
    pub fn verify(&self) -> Result<()> {
        let right =
            |t: &TensorDecl| t.literals.as_ref().is_none_or(|l| t.role == Role::Constant && l.fit(t.dtype, &t.shape));
        if let Some(t) = self.tensors.iter().find(|t| !right(t)) {
            return Err(Error::Invalid(format!("the literals of `{}` of `{}` do not fit it", t.name, self.name)));
        }
        let isl = Isl::default();
        for s in &self.statements {
            let fail = |what: String| Err(Error::Invalid(format!("statement `{}` of `{}`: {what}", s.name, self.name)));
            let in_range = |a: &Affine| a.terms.iter().all(|t| (t.0.0 as usize) < s.iterators.len());
            let mut affines: Vec<&Affine> = s.domain.iter().chain(&s.write).collect();
            let expressions = || s.computed.iter().map(|c| &c.1).chain([&s.body]);
            for e in expressions() {
                e.visit(&mut |e| {
                    if let Expr::Index(a) = e {
                        affines.push(a);
                    }
                });
                e.visit_accesses(&mut |a| affines.extend(a.affine_forms()));
            }
            if !affines.into_iter().all(in_range) {
                return fail("an affine form uses an iterator that does not exist".into());
            }
            if s.iterators.iter().any(|it| it.extent < 1) {
                return fail("an iterator has no values".into());
            }
            if self.tensors.get(s.target.0 as usize).is_none_or(|t| !t.role.is_written()) {
                return fail("it writes no output or temporary".into());
            }
            if s.computed.iter().any(|c| s.write.get(c.0) != Some(&Affine::constant(0))) {
                return fail("a subscript from data has no place".into());
            }
            let index = s.subscripts();
            let mut accesses = vec![Access { buffer: s.target, index, guard: vec![], otherwise: None }];
            expressions().for_each(|e| e.visit_accesses(&mut |a| accesses.push(a.clone())));
            for a in accesses {
                let Some(tensor) = self.tensors.get(a.buffer.0 as usize) else {
                    return fail(format!("it accesses tensor {}, which does not exist", a.buffer.0));
                };
                if tensor.shape.len() != a.index.len() {
                    return fail(format!(
                        "an access to `{}` does not have one subscript for each dimension",
                        tensor.name
                    ));
                }
                for (d, index) in a.index.iter().enumerate() {
                    if let Index::Affine(i) = index
                        && !s.in_bounds(i, &a.guard, tensor.shape[d], &isl)?
                    {
                        return fail(format!("subscript {d} of `{}` leaves 0..{}", tensor.name, tensor.shape[d]));
                    }
                }
            }
        }
        self.order.verify(self)?;
        check(self, &self.order)
    }
}

impl Statement {
    /// Returns true if `0 ≤ subscript < extent` wherever `guard` and the domain hold.
    ///
    /// # Errors
    /// `Limit` where isl takes too many operations.
    fn in_bounds(&self, subscript: &Affine, guard: &[Affine], extent: i64, isl: &Isl) -> Result<bool> {
        let range = ranges(&self.iterators);
        let below = Affine::constant(extent - 1).add_scaled(subscript, -1);
        for form in [subscript, &below] {
            let implied = form.bounds(range).0 >= 0
                || guard.iter().chain(&self.domain).any(|g| form.add_scaled(g, -1).bounds(range).0 >= 0);
            if !implied {
                let mut outside = Polyhedron::domain(self);
                let form = form.scale(-1).offset(-1);
                for a in guard.iter().chain([&form]) {
                    outside.inequalities.push(outside.form(a, 0));
                }
                if !isl.is_empty(&outside)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Refuses a tree in which a private temporary would have to outlive an iteration of its rows.
pub fn check(scop: &Scop, schedule: &Schedule) -> Result<()> {
    for p in &scop.privates {
        let users = scop.users(p.tensor);
        let around = schedule.around(&users);
        if let Some(row) = p.rows.iter().find(|r| !is_fixed(r, &users, &around)) {
            return Err(Error::refused(format!(
                "`{}` is private to loop `{}`, which does not contain all of its uses",
                scop.tensor(p.tensor).name,
                row.name
            )));
        }
    }
    Ok(())
}

impl Schedule {
    /// Checks that each statement is covered exactly once, by rows over its own iterators that tell its instances apart.
    ///
    /// # Errors
    /// `Schedule` where the tree is malformed; `Limit` where isl takes too many operations.
    pub fn verify(&self, scop: &Scop) -> Result<()> {
        let all: Vec<StatementId> = scop.ids().collect();
        verify_node(&self.root, &all, scop)?;
        for id in scop.ids() {
            let s = scop.statement(id);
            let single = s.vars().filter(|v| s.extent(*v) == 1);
            let unit = |v: Var| (0..s.iterators.len()).map(|i| i64::from(i == v.0 as usize)).collect();
            let mut rows: Vec<Vec<i64>> = single.map(unit).collect();
            for step in self.path(id) {
                if let TimeDimension::Row(row) = step
                    && let Some(exact) = row.exact(id)
                {
                    let mut vector = vec![0; s.iterators.len()];
                    for &(v, c) in &exact.terms {
                        vector[v.0 as usize] = c;
                    }
                    rows.push(vector);
                }
            }
            if !orthogonal_complement(&rows, s.iterators.len()).is_empty() {
                return Err(Error::refused(format!("several instances of `{}` run at the same time", s.name)));
            }
        }
        Ok(())
    }
}

fn verify_node(node: &Node, ids: &[StatementId], scop: &Scop) -> Result<()> {
    let names = |ids: &[StatementId]| {
        ids.iter()
            .map(|&id| scop.statements.get(id.0 as usize).map_or(id.to_string(), |s| s.name.clone()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let same = |mut a: Vec<StatementId>| {
        a.sort();
        a == ids
    };
    match node {
        Node::Leaf if ids.len() == 1 => Ok(()),
        Node::Leaf => Err(Error::refused(format!("a leaf has the statements {{{}}}, not one", names(ids)))),
        Node::Band(band, child) => {
            for row in &band.rows {
                let covered: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
                if !same(covered.clone()) {
                    return Err(Error::refused(format!(
                        "loop `{}` covers {{{}}} where {{{}}} are scheduled",
                        row.name,
                        names(&covered),
                        names(ids)
                    )));
                }
                let is_over_iterators = |p: &(StatementId, Affine)| {
                    p.1.terms.iter().all(|t| (t.0.0 as usize) < scop.statement(p.0).iterators.len())
                };
                if row.tile < 1 || row.pad < 1 || !row.phi.iter().all(is_over_iterators) {
                    return Err(Error::refused(format!("loop `{}` is malformed", row.name)));
                }
            }
            verify_node(child, ids, scop)
        }
        Node::Sequence(children) => {
            let covered: Vec<StatementId> = children.iter().flat_map(|c| c.0.iter().copied()).collect();
            if !same(covered.clone()) || children.iter().any(|c| c.0.is_empty()) {
                return Err(Error::refused(format!(
                    "a sequence covers {{{}}} where {{{}}} are scheduled",
                    names(&covered),
                    names(ids)
                )));
            }
            children.iter().try_for_each(|(ids, child)| {
                let mut ids = ids.clone();
                ids.sort();
                verify_node(child, &ids, scop)
            })
        }
    }
}
