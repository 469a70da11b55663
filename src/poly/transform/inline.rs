//! Primitive `compute_inline`: computes values again at each use.

use super::cache::solve;
use super::insert::remove;
use super::value::{Value, check_first, check_given, check_sources};
use crate::expr::Expr;
use crate::expr::syntax::Name;
use crate::expr::{Affine, Var};
use crate::poly::normalize::build::expand;
use crate::poly::normalize::rounding;
use crate::poly::schedule::{Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{apart, refuse, together};
use crate::runtime::Result;

/// `compute_inline Bx`: each use computes the value again.
///
/// ```text
/// for i               for i
///   B(i) = f(i)         C(i) = g(f(i), f(i + 1))
/// for i
///   C(i) = g(B(i), B(i+1))
/// ```
pub fn compute_inline(before: &Transformed, name: &Name) -> Result<Transformed> {
    let isl = Isl::default();
    let mut scop = before.scop.clone();
    let value = Value::new(&scop, name)?;
    let [writer] = value.writers[..] else {
        return refuse(format!(
            "`{name}` is computed by {} statements: only a single assignment can be inlined",
            value.writers.len()
        ));
    };
    let s = scop.statement(writer).clone();
    if s.reduce.is_some() {
        return refuse(format!("`{name}` is a reduction: use `compute_at` to compute it where it is used"));
    }
    if let Some(p) = scop.privates.iter().find(|p| s.uses(p.tensor)) {
        let (source, row) = (&scop.tensor(p.tensor).name, &p.rows[0].name);
        return refuse(format!("`{name}` is computed from `{source}`, which is private to loop `{row}`"));
    }
    let places = |&id: &StatementId| scop.statement(id).computed.iter().any(|c| c.1.reads(value.tensor));
    if let Some(&reader) = value.readers.iter().find(|id| places(id)) {
        return refuse(format!("`{}` takes a subscript of its target from `{name}`", scop.statement(reader).name));
    }
    let rank = scop.tensor(value.tensor).shape.len();
    // Iterators as subscripts of the element that is read.
    let subscripts: Vec<Affine> = (0..rank).map(|d| Affine::var(Var(d as u32))).collect();
    let Some(iterators) = solve(&s, &subscripts) else {
        return refuse(format!(
            "the subscripts do not determine the iteration of `{}` that computes an element of `{name}`",
            s.name
        ));
    };
    let common: Vec<Row> = vec![];
    check_given(&scop, &value, &common, &isl)?;
    check_first(&scop, &value, &isl)?;
    check_sources(&scop, &value, &common, &isl)?;
    let mut body = s.body.substitute(&mut |v| iterators[v.0 as usize].clone());
    let mut uses = 0;
    for &reader in &value.readers {
        scop.statement(reader).body.visit_accesses(&mut |a| uses += usize::from(a.buffer == value.tensor));
    }
    if uses > 1 {
        body = rounding::round(body, &scop.tensors);
    }
    let dimension: Vec<usize> = (0..rank).collect();
    for &reader in &value.readers {
        let mut possible = true;
        let inlined = scop.statement(reader).body.rewrite_reads(value.tensor, &mut |a| {
            expand(&a, &body, &dimension, &scop.tensors).unwrap_or_else(|| {
                possible = false;
                Expr::Load(a)
            })
        });
        if !possible {
            return refuse(format!(
                "`{}` reads `{name}` out of bounds, which has no counterpart for its value",
                scop.statement(reader).name
            ));
        }
        scop.statements[reader.0 as usize].body = rounding::tidy(&inlined, &scop.tensors);
    }
    without(scop, &before.schedule, before, writer)
}

/// Removes a statement from the program and renumbers those after it.
fn without(mut scop: Scop, schedule: &Schedule, before: &Transformed, gone: StatementId) -> Result<Transformed> {
    let lower = |id: &mut StatementId| id.0 -= u32::from(id.0 > gone.0);
    let tree = |schedule: &Schedule| -> Result<Schedule> {
        let Some(mut root) = remove(&apart(&schedule.root), &[gone]) else {
            return refuse("the program would have no statements");
        };
        renumber(&mut root, &lower);
        Ok(Schedule { root: together(root) })
    };
    let (schedule, order) = (tree(schedule)?, tree(&scop.order)?);
    scop.statements.remove(gone.0 as usize);
    for p in &mut scop.privates {
        p.rows.iter_mut().for_each(|r| {
            r.phi.retain(|q| q.0 != gone);
            r.phi.iter_mut().for_each(|q| lower(&mut q.0));
        });
    }
    let mut packings = before.packings.clone();
    packings.retain(|p| p.statement != gone);
    packings.iter_mut().for_each(|p| lower(&mut p.statement));
    Ok(Transformed { scop: Scop { order, ..scop }, schedule, packings, ..*before })
}

fn renumber(node: &mut Node, lower: &dyn Fn(&mut StatementId)) {
    match node {
        Node::Leaf => {}
        Node::Band(band, child) => {
            band.rows.iter_mut().flat_map(|r| &mut r.phi).for_each(|p| lower(&mut p.0));
            renumber(child, lower);
        }
        Node::Sequence(children) => children.iter_mut().for_each(|(ids, child)| {
            ids.iter_mut().for_each(lower);
            renumber(child, lower);
        }),
    }
}
