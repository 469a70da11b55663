//! Primitives `cache_read` and `cache_write`: copies of the elements that one iteration touches, in private memory.

use super::insert::{
    ElementAccess, InsertionPoint, add_temporary, element_accesses, insert, join_privates, nest, path_to, private,
    settled, statement_name,
};
use crate::expr::syntax::Name;
use crate::expr::{Access, Affine, Var};
use crate::expr::{BufferId, Expr};
use crate::poly::normalize::array_expansion::runs_before;
use crate::poly::packing::Packing;
use crate::poly::schedule::{Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, minus};
use crate::poly::statement::{Iterator, Statement, StatementId};
use crate::poly::transform::argument::Loop;
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{children_of, find, refuse};
use crate::runtime::Result;
use crate::runtime::error::unknown;

/// The tensor of this name.
pub fn tensor(scop: &Scop, name: &Name) -> Result<BufferId> {
    match scop.tensors.iter().position(|t| t.name == name.text) {
        Some(t) => Ok(BufferId(t as u32)),
        None => {
            let names: Vec<&str> = scop.tensors.iter().map(|t| t.name.as_str()).collect();
            refuse(unknown("array", name, &names))
        }
    }
}

/// Names the dimensions of a tensor: by the iterators that are its subscripts, or d0, d1 … where they differ or a loop
/// of `around` has that name.
pub fn dimension_names(scop: &Scop, tensor: BufferId, around: &[Row]) -> Vec<String> {
    let all: Vec<StatementId> = scop.ids().collect();
    let accesses = element_accesses(scop, &all, tensor, true);
    let rank = scop.tensor(tensor).shape.len();
    let mut names: Vec<String> = vec![];
    for d in 0..rank {
        let name = |t: &super::insert::ElementAccess| match t.index[d].affine()?.terms[..] {
            [(v, 1)] => Some(scop.statement(t.statement).iterator(v).name.clone()),
            _ => None,
        };
        let mut names_used = accesses.iter().map(name);
        let first = names_used.next().flatten().filter(|f| names_used.all(|n| n.as_ref() == Some(f)));
        let free = first.filter(|n| !names.contains(n) && !around.iter().any(|r| r.name == *n));
        names.push(free.unwrap_or_else(|| format!("d{d}")));
    }
    names
}

/// `cache_read B at ko`: what one iteration of ko reads of B is copied first, and read from the copy.
///
/// ```text
/// for ko              for ko
///   for i               B_cache = B of this iteration
///     S reads B         for i
///                         S reads B_cache
/// ```
pub fn cache_read_at(before: &Transformed, name: &Name, at: &Loop) -> Result<Transformed> {
    let (mut scop, schedule) = (before.scop.clone(), &before.schedule);
    let row = find(&scop, schedule, at)?;
    let source = tensor(&scop, name)?;
    let inside: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
    if let Some(&writer) = inside.iter().find(|id| scop.statement(**id).target == source) {
        return refuse(format!(
            "`{}` in loop `{at}` writes `{name}`: a copy would not see it",
            scop.statement(writer).name
        ));
    }
    check_unpacked(before, source, &inside)?;
    let reads = element_accesses(&scop, &inside, source, false);
    if reads.is_empty() {
        return refuse(format!("nothing in loop `{at}` reads `{name}`"));
    }
    let around = InsertionPoint::new(&scop, path_to(schedule, &row))?;
    let shape = scop.tensor(source).shape.clone();
    let Some(domain) = around.reach(&scop, &reads, &shape, &Isl::default())? else {
        return refuse(format!("no instance in loop `{at}` reads `{name}`"));
    };
    let names = dimension_names(&scop, source, &around.rows);
    let decl = scop.tensor(source).clone();
    let copy = add_temporary(&mut scop, &format!("{name}_cache"), &decl);
    redirect(&mut scop, &inside, source, copy);
    let called = scop.tensor(copy).name.clone();
    let new = element_statement(&mut scop, &around, (&called, &names), domain, (copy, source));
    let schedule =
        insert(schedule, (around.rows.len(), inside[0]), &[new], &|j, _| around.phi(j, 0), &mut |node, old| {
            Ok(Node::Sequence([vec![(vec![new], loops_of(&scop, new, &around))], children_of(&node, &old)].concat()))
        })?;
    join_privates(&mut scop, &around, &[(new, 0)])?;
    scop.privates.push(private(copy, Some(source), &around, &[(new, 0)]));
    Ok(settled(scop, schedule, before))
}

/// `cache_write C at no`: one iteration of no works on a copy of what it touches of C, which is written back after it. The
/// copy is filled from C before (`C_fill`), unless the iteration itself begins with an assignment to all of it.
///
/// ```text
/// for no              for no
///   for k               C_cache = C of this iteration
///     S updates C       for k
///                         S updates C_cache
///                       C of this iteration = C_cache
/// ```
pub fn cache_write(before: &Transformed, name: &Name, at: &Loop) -> Result<Transformed> {
    let (mut scop, schedule) = (before.scop.clone(), &before.schedule);
    let isl = Isl::default();
    let row = find(&scop, schedule, at)?;
    let target = tensor(&scop, name)?;
    let inside: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
    if !inside.iter().any(|id| scop.statement(*id).target == target) {
        return refuse(format!("nothing in loop `{at}` writes `{name}`"));
    }
    check_unpacked(before, target, &inside)?;
    let around = InsertionPoint::new(&scop, path_to(schedule, &row))?;
    let shape = scop.tensor(target).shape.clone();
    let all = element_accesses(&scop, &inside, target, true);
    let written: Vec<ElementAccess> =
        element_accesses(&scop, &inside, target, true).into_iter().filter(|t| t.write).collect();
    let reached = (around.reach(&scop, &all, &shape, &isl)?, around.reach(&scop, &written, &shape, &isl)?);
    let (Some(touched), Some(back)) = reached else {
        return refuse(format!("no instance in loop `{at}` writes `{name}`"));
    };
    let names = dimension_names(&scop, target, &around.rows);
    let decl = scop.tensor(target).clone();
    let copy = add_temporary(&mut scop, &format!("{name}_cache"), &decl);
    let old = scop.clone();
    redirect(&mut scop, &inside, target, copy);
    let back = element_statement(&mut scop, &around, (&format!("{name}_back"), &names), back, (target, copy));
    let begins = begins_by_writing(&old, schedule, &row, &around, target, (scop.statement(back), &all), &isl)?;
    let fill = match begins {
        true => None,
        false => {
            // Elements that are written back were filled before, even where the hull holds more than is written.
            scop.statements[back.0 as usize].domain.extend(touched.iter().cloned());
            let called = format!("{name}_fill");
            Some(element_statement(&mut scop, &around, (&called, &names), touched, (copy, target)))
        }
    };
    let new: Vec<StatementId> = fill.into_iter().chain([back]).collect();
    let schedule =
        insert(schedule, (around.rows.len(), inside[0]), &new, &|j, _| around.phi(j, 0), &mut |node, old| {
            let one = |id: StatementId| (vec![id], loops_of(&scop, id, &around));
            let (first, last) = (fill.into_iter().map(one).collect::<Vec<_>>(), vec![one(back)]);
            Ok(Node::Sequence([first, children_of(&node, &old), last].concat()))
        })?;
    let joined: Vec<(StatementId, usize)> = new.iter().map(|&id| (id, 0)).collect();
    join_privates(&mut scop, &around, &joined)?;
    scop.privates.push(private(copy, Some(target), &around, &joined));
    Ok(settled(scop, schedule, before))
}

/// Returns true if each iteration of the rows around assigns, before anything else touches them, all elements that
/// `back` writes and all that are touched.
fn begins_by_writing(
    scop: &Scop,
    schedule: &Schedule,
    row: &Row,
    around: &InsertionPoint,
    target: BufferId,
    (back, touched): (&Statement, &[ElementAccess]),
    isl: &Isl,
) -> Result<bool> {
    let n = around.rows.len();
    let assigns = |id: &&StatementId| scop.statement(**id).target == target && scop.statement(**id).reduce.is_none();
    let inside: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
    for &writer in inside.iter().filter(assigns) {
        let w = scop.statement(writer);
        // The written element, over iterators of its own.
        let element: Vec<Affine> = (0..w.write.len()).map(|d| Affine::var(Var((n + d) as u32))).collect();
        let Some(value) = solve(w, &element) else { continue };
        let mut needed: Vec<Affine> = instance_conditions(w).iter().map(|c| c.compose(&value)).collect();
        for (j, r) in around.rows.iter().enumerate() {
            let offset = r.of(writer).compose(&value).add_scaled(&around.phi(j, 0), -1);
            needed.extend([offset.scale(-1).offset(r.tile - 1), offset]);
        }
        if !implied(&Polyhedron::domain(back), &needed, isl)? {
            continue;
        }
        let mut covers = true;
        for t in touched.iter().filter(|t| t.statement != writer || !t.write) {
            let s = scop.statement(t.statement);
            let index: Option<Vec<Affine>> = t.index.iter().map(|i| i.affine().cloned()).collect();
            let Some(value) = index.and_then(|index| solve(w, &index)) else { return Ok(false) };
            let mut domain = Polyhedron::domain(s);
            t.guard.iter().for_each(|g| domain.inequalities.push(domain.form(g, 0)));
            let same = around.rows.iter().all(|r| r.of(writer).compose(&value) == *r.of(t.statement));
            let conditions: Vec<Affine> = instance_conditions(w).iter().map(|c| c.compose(&value)).collect();
            let before = runs_before(&schedule.root, writer, t.statement, &value);
            covers &= same && before && implied(&domain, &conditions, isl)?;
        }
        if covers {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The iterators of the instance of `s` that writes this element, when its subscripts are single iterators.
pub fn solve(s: &Statement, element: &[Affine]) -> Option<Vec<Affine>> {
    let single = |it: &Iterator| (it.extent == 1).then(|| Affine::constant(0));
    let mut value: Vec<Option<Affine>> = s.iterators.iter().map(single).collect();
    for (w, e) in s.write.iter().zip(element) {
        if let [(v, 1)] = w.terms[..]
            && value[v.0 as usize].is_none()
        {
            value[v.0 as usize] = Some(e.clone().offset(-w.constant));
        }
    }
    let value: Vec<Affine> = value.into_iter().collect::<Option<_>>()?;
    s.write.iter().zip(element).all(|(w, e)| w.compose(&value) == *e).then_some(value)
}

/// Returns the conditions that hold for the iterators of each instance: the box and the domain.
pub fn instance_conditions(s: &Statement) -> Vec<Affine> {
    let bounds = s.vars().zip(&s.iterators);
    let bounds = bounds.flat_map(|(v, it)| [Affine::var(v), Affine::var(v).scale(-1).offset(it.extent - 1)]);
    bounds.chain(s.domain.iter().cloned()).collect()
}

/// Returns true if all conditions hold everywhere in `p`.
pub fn implied(p: &Polyhedron, conditions: &[Affine], isl: &Isl) -> Result<bool> {
    Ok(violation(p, conditions, isl)?.is_none())
}

/// A point of `p` in which some condition does not hold.
pub fn violation(p: &Polyhedron, conditions: &[Affine], isl: &Isl) -> Result<Option<Vec<i64>>> {
    for c in conditions {
        let mut outside = p.clone();
        let form = outside.form(c, 0);
        outside.inequalities.push(minus(-1, &form));
        if let Some(point) = isl.first_point(&outside)? {
            return Ok(Some(point));
        }
    }
    Ok(None)
}

/// `target[e] = source[e]` for each iteration of the loops around and each element in the domain.
fn element_statement(
    scop: &mut Scop,
    around: &InsertionPoint,
    (name, names): (&str, &[String]),
    domain: Vec<Affine>,
    (target, source): (BufferId, BufferId),
) -> StatementId {
    let n = around.rows.len();
    let shape = &scop.tensor(target).shape;
    let dimensions = names.iter().zip(shape).map(|(name, &extent)| Iterator::new(name, extent));
    let iterators = around.iterators.iter().cloned().chain(dimensions).collect();
    let element: Vec<Affine> = (0..shape.len()).map(|d| Affine::var(Var((n + d) as u32))).collect();
    let name = statement_name(scop, name);
    let body = Expr::load(source, element.clone());
    let (write, computed) = (element, vec![]);
    scop.statements.push(Statement { name, iterators, domain, target, write, computed, reduce: None, body });
    StatementId(scop.statements.len() as u32 - 1)
}

/// Returns the loops of a new statement over the iterators that the loops around it do not have.
fn loops_of(scop: &Scop, id: StatementId, around: &InsertionPoint) -> Node {
    let iterators = &scop.statement(id).iterators;
    nest(id, iterators, around.rows.len()..iterators.len())
}

/// Refuses where these statements read the tensor from a packed copy.
fn check_unpacked(before: &Transformed, tensor: BufferId, statements: &[StatementId]) -> Result<()> {
    let reads = |p: &Packing| p.access.buffer == tensor && statements.contains(&p.statement);
    match before.packings.iter().any(reads) {
        true => refuse(format!("`{}` is already read from a copy", before.scop.tensor(tensor).name)),
        false => Ok(()),
    }
}

/// Reads and writes of `from` in these statements go to `to`.
fn redirect(scop: &mut Scop, statements: &[StatementId], from: BufferId, to: BufferId) {
    for id in statements {
        let s = &mut scop.statements[id.0 as usize];
        if s.target == from {
            s.target = to;
        }
        s.rewrite_reads(from, &mut |a| Expr::Load(Access { buffer: to, ..a }));
    }
}
