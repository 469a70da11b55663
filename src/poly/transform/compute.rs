//! Primitives `compute_at` and `store_at`: the values of a temporary are computed at the beginning of an iteration of the
//! loop that uses them, with memory for one iteration of that loop or of one around it. `value.rs` checks that the new
//! program computes the same.

use super::cache::tensor;
use super::insert::{ElementAccess, InsertionPoint, element_accesses, insert, path_to, private, remove, settled};
use super::value::{Value, check_given, check_sources};
use crate::expr::BufferId;
use crate::expr::syntax::Name;
use crate::expr::{Affine, Var};
use crate::poly::schedule::{Node, Row, Schedule, child_of};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::{Iterator, StatementId, ranges, unused_name};
use crate::poly::transform::argument::Loop;
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{apart, children_of, find, refuse, together};
use crate::runtime::{Error, Result};

/// `compute_at Bx at y`: what one iteration of y uses of Bx is computed at its beginning, again where iterations use
/// the same elements. With `store_at Bx at yo` its memory lives for one iteration of the outer loop yo, and each
/// element is computed once in it, in the iteration of y that uses it first (a sliding window).
///
/// ```text
/// for y for x         for y                          compute_at Bx at y; store_at Bx at yo:
///   Bx(y, x) = …        for yy in y..y + 3           for yo
/// for y for x             for x  Bx(yy, x) = …         for y in -2..
///   Out(y, x) =         for x                            for x  Bx(y + 2, x) = …
///     … Bx(y..y+2, x)     Out(y, x) = …                  if y >= 0  for x  Out(y, x) = …
/// ```
pub fn compute_at(before: &Transformed, name: &Name, at: &Loop) -> Result<Transformed> {
    let tensor = tensor(&before.scop, name)?;
    match before.scop.private(tensor) {
        Some(p) if p.source.is_none() => slide(before, name, at),
        _ => recompute(before, name, at),
    }
}

/// `store_at Bx at yo`: memory for what one iteration of yo uses of Bx, which is computed at its beginning unless
/// `compute_at` says further in.
///
/// ```text
/// for y               for yo
///   Bx(y) = …           Bx of this iteration = …
/// for yo for yi         for yi
///   Out(y) = … Bx         Out(y) = … Bx
/// ```
pub fn store_at(before: &Transformed, name: &Name, at: &Loop) -> Result<Transformed> {
    recompute(before, name, at)
}

/// The writers below the innermost row of `path`, with an iterator for each loop around.
fn recompute(before: &Transformed, name: &Name, at: &Loop) -> Result<Transformed> {
    let isl = Isl::default();
    let (mut scop, schedule) = (before.scop.clone(), &before.schedule);
    let row = &find(&scop, schedule, at)?;
    let value = Value::new(&scop, name)?;
    let inside: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
    if let Some(&id) = value.writers.iter().find(|id| inside.contains(id)) {
        return refuse(format!("`{}` is already in loop `{at}`", scop.statement(id).name));
    }
    if let Some(&id) = value.readers.iter().find(|id| !inside.contains(id)) {
        return refuse(format!("`{}` reads `{name}` and is not in loop `{at}`", scop.statement(id).name));
    }
    let path = path_to(schedule, row);
    let all: Vec<StatementId> = value.writers.iter().chain(&inside).copied().collect();
    let common = schedule.around(&all).len();
    let same = path[..common].to_vec();
    let computation = alone(schedule, common, &value, inside[0], &scop)?;
    check_given(&scop, &value, &same, &isl)?;
    check_sources(&scop, &value, &same, &isl)?;
    let around = InsertionPoint::new(&scop, path)?;
    let reads: Vec<ElementAccess> = element_accesses(&scop, &inside, value.tensor, false);
    let shape = scop.tensor(value.tensor).shape.clone();
    let Some(reach) = around.reach(&scop, &reads, &shape, &isl)? else {
        return refuse(format!("no instance in loop `{at}` reads `{name}`"));
    };
    // Each writer gets an iterator for each loop around it that it is new to, or that runs over tiles.
    let mut phis: Vec<Vec<Affine>> = vec![];
    for &w in &value.writers {
        let s = &mut scop.statements[w.0 as usize];
        let mut values = vec![];
        let mut phi = vec![];
        for (j, r) in around.rows.iter().enumerate() {
            if j < common && r.tile == 1 {
                values.push(r.of(w).clone().offset(-around.first[j]));
                phi.push(r.of(w).clone());
                continue;
            }
            let v = Var(s.iterators.len() as u32);
            let name = unused_name(&s.iterators, &around.iterators[j].name);
            s.iterators.push(Iterator::new(name, around.iterators[j].extent));
            let time = Affine::constant(around.first[j] * r.tile).plus(v, r.tile);
            if j < common {
                let offset = r.of(w).add_scaled(&time, -1);
                s.domain.extend([offset.scale(-1).offset(r.tile - 1), offset]);
            }
            values.push(Affine::var(v));
            phi.push(time);
        }
        values.extend(s.write.iter().cloned());
        s.domain.extend(reach.iter().map(|c| c.compose(&values)));
        phis.push(phi);
    }
    let place = |id: StatementId| value.writers.iter().position(|w| *w == id).expect("a writer");
    let Some(others) = remove(&apart(&schedule.root), &value.writers) else {
        return refuse("the program would have no statements");
    };
    let (depth, writers) = (around.rows.len(), value.writers.clone());
    let others = Schedule { root: together(others) };
    let schedule =
        insert(&others, (depth, inside[0]), &writers, &|j, id| phis[place(id)][j].clone(), &mut |node, old| {
            Ok(Node::Sequence([computation.clone(), children_of(&node, &old)].concat()))
        })?;
    let mut private = private(value.tensor, None, &around, &[]);
    for (j, r) in private.rows.iter_mut().enumerate() {
        r.phi.retain(|p| !value.writers.contains(&p.0));
        r.phi.extend(writers.iter().map(|&w| (w, phis[place(w)][j].clone())));
    }
    scop.privates.push(private);
    Ok(settled(scop, schedule, before))
}

/// The parts of the tree below the first `common` rows that hold the writers and nothing else, all before the one that
/// holds `user`.
fn alone(
    schedule: &Schedule,
    common: usize,
    value: &Value,
    user: StatementId,
    scop: &Scop,
) -> Result<Vec<(Vec<StatementId>, Node)>> {
    let root = apart(&schedule.root);
    let mut node = &root;
    let mut depth = 0;
    let holds = |ids: &[StatementId]| value.writers.iter().any(|w| ids.contains(w));
    loop {
        match node {
            Node::Leaf => return refuse("these are the same statement"),
            Node::Band(_, child) => {
                if depth == common {
                    return refuse("these statements share all loops");
                }
                depth += 1;
                node = child;
            }
            Node::Sequence(children) => {
                let user_at = child_of(children, user);
                if let Some(k) = user_at
                    && children.iter().filter(|c| holds(&c.0)).count() == 1
                    && holds(&children[k].0)
                {
                    node = &children[k].1;
                    continue;
                }
                let mut out = vec![];
                for (k, (ids, child)) in children.iter().enumerate().filter(|(_, c)| holds(&c.0)) {
                    if let Some(other) = ids.iter().find(|id| !value.writers.contains(id)) {
                        return refuse(format!(
                            "`{}` shares loops with the statements that compute `{}`: distribute them",
                            scop.statement(*other).name,
                            scop.tensor(value.tensor).name
                        ));
                    }
                    if user_at.is_none_or(|u| k > u) {
                        return refuse(format!("`{}` is computed after its use", scop.tensor(value.tensor).name));
                    }
                    out.push((ids.clone(), child.clone()));
                }
                return Ok(out);
            }
        }
    }
}

/// The writers of a temporary that lives for one iteration of a loop, in the iterations of the loops down to `at` that use
/// their elements first.
fn slide(before: &Transformed, name: &Name, at: &Loop) -> Result<Transformed> {
    let isl = Isl::default();
    let (scop, schedule) = (&before.scop, &before.schedule);
    let tensor = tensor(scop, name)?;
    let row = find(scop, schedule, at)?;
    let value = Value::of(scop, tensor);
    let Value { writers, readers, .. } = &value;
    if let Some(&id) = readers.iter().find(|id| !row.phi.iter().any(|p| p.0 == **id)) {
        return refuse(format!("`{}` reads `{name}` and is not in loop `{at}`", scop.statement(id).name));
    }
    let path = path_to(schedule, &row);
    let all: Vec<StatementId> = writers.iter().chain(readers).copied().collect();
    let common = schedule.around(&all).len();
    if path.len() <= common {
        return refuse(format!("loop `{at}` is not inside of the loop in which `{name}` is stored"));
    }
    let mut phis: Vec<Vec<Affine>> = vec![];
    for r in &path[common..] {
        let first = first_use(scop, tensor, r, readers, &isl)?;
        let of = |w: &StatementId| first.substitute(|d| scop.statement(*w).write[d.0 as usize].clone());
        phis.push(writers.iter().map(of).collect());
    }
    let computation = alone(schedule, common, &value, row.phi[0].0, scop)?;
    let Some(rest) = remove(&apart(&schedule.root), writers) else {
        return refuse("the program would have no statements");
    };
    let place = |id: StatementId| writers.iter().position(|w| *w == id).expect("a writer");
    let phi = |j: usize, id: StatementId| match j < common {
        true => schedule.around(&all)[j].of(id).clone(),
        false => phis[j - common][place(id)].clone(),
    };
    let rest = Schedule { root: together(rest) };
    let schedule = insert(&rest, (path.len(), row.phi[0].0), writers, &phi, &mut |node, old| {
        Ok(Node::Sequence([computation.clone(), children_of(&node, &old)].concat()))
    })?;
    Ok(Transformed { schedule, ..before.clone() })
}

/// φ of a row at the first use of an element, as an affine form of its subscripts: at most φ of every use.
fn first_use(scop: &Scop, tensor: BufferId, row: &Row, readers: &[StatementId], isl: &Isl) -> Result<Affine> {
    let rank = scop.tensor(tensor).shape.len();
    let uses = element_accesses(scop, readers, tensor, false);
    let unknown = || {
        let name = &scop.tensor(tensor).name;
        Error::refused(format!(
            "the first iteration of loop `{}` that uses an element of `{name}` is not an affine function of the element",
            row.name
        ))
    };
    // The subscript that moves with the row.
    let moves = |d: usize| {
        uses.iter().all(|u| {
            let (phi, index) = (row.of(u.statement), u.index[d].affine());
            matches!((&phi.terms[..], index), ([(v, 1)], Some(i)) if i.coefficient(*v) == 1)
        })
    };
    let along = (0..rank).find(|d| moves(*d));
    let mut least = i64::MAX;
    for u in &uses {
        let s = scop.statement(u.statement);
        let mut distance = row.of(u.statement).clone();
        if let Some(d) = along {
            distance = distance.add_scaled(u.index[d].affine().ok_or_else(unknown)?, -1);
        }
        let mut p = Polyhedron::domain(s);
        u.guard.iter().for_each(|g| p.inequalities.push(p.form(g, 0)));
        let low = distance.bounds(ranges(&s.iterators)).0;
        if isl.is_empty(&p)? {
            continue;
        }
        least = least.min(low);
    }
    if least == i64::MAX {
        return Err(unknown());
    }
    Ok(along.map_or(Affine::constant(least), |d| Affine::var(Var(d as u32)).offset(least)))
}
