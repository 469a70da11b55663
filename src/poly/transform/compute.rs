//! Primitives about where the values of a temporary are computed.
//!
//! A value may be computed elsewhere, or again, when what its definition reads is still there: no write to an element that the
//! definition reads lies between it and the use. Then, and when each use reads what exactly this definition gives, the new
//! program computes the same; its order is then the original one for all that follows.

use super::Transformed;
use super::cache::{instance_conditions, solve, tensor, violation};
use super::edit::{apart, children_of, find, refuse, together};
use super::insert::{Around, Touch, insert, path_to, private, remove, settled, touches};
use crate::poly::build::expand;
use crate::poly::dependence::orders;
use crate::poly::expr::{Affine, BufferId, Expr, Index, Var};
use crate::poly::isl::Isl;
use crate::poly::language::primitive::Loop;
use crate::poly::language::syntax::Name;
use crate::poly::polyhedron::{Polyhedron, Reduced, difference};
use crate::poly::schedule::{Node, Row, Schedule};
use crate::poly::scop::{Iterator, Role, Scop, Statement, StatementId};
use crate::poly::{Error, Result};

/// A temporary, the statements that write it, and those that only read it.
struct Value {
    tensor: BufferId,
    writers: Vec<StatementId>,
    readers: Vec<StatementId>,
}

impl Value {
    fn new(scop: &Scop, name: &Name) -> Result<Value> {
        let tensor = tensor(scop, name)?;
        let writes = |id: &StatementId| scop.statement(*id).target == tensor;
        let (writers, readers) = scop.users(tensor).into_iter().partition(writes);
        if scop.tensor(tensor).role != Role::Temporary {
            return refuse(format!("{name} is no temporary: its values are wanted where the program computes them"));
        }
        if scop.private(tensor).is_some() {
            return refuse(format!("{name} lives in an iteration of a loop already"));
        }
        let value = Value { tensor, writers, readers };
        match (value.writers.is_empty(), value.readers.is_empty()) {
            (true, _) => refuse(format!("nothing computes {name}")),
            (_, true) => refuse(format!("nothing reads {name}")),
            _ => Ok(value),
        }
    }
}

fn instance(s: &Statement, point: &[i64]) -> String {
    let values = s.iterators.iter().zip(point).map(|(it, x)| format!("{}={x}", it.name));
    format!("iteration {} of {}", values.collect::<Vec<_>>().join(","), s.name)
}

/// The pairs of instances of which the first reads, under `guard`, the element at `index` that the second writes.
fn meeting(reader: &Statement, guard: &[Affine], index: &[Index], writer: &Statement) -> Polyhedron {
    let n = reader.iterators.len();
    let mut both = Polyhedron { dims: n + writer.iterators.len(), ..Polyhedron::default() };
    both.add_domain(reader, 0);
    both.add_domain(writer, n);
    guard.iter().for_each(|g| both.inequalities.push(both.form(g, 0)));
    for (index, written) in index.iter().zip(&writer.write) {
        if let Index::Affine(a) = index {
            both.equalities.push(difference(&both.form(a, 0), &both.form(written, n)));
        }
    }
    both
}

/// Refuses where a write to what `value` is computed from comes after the computation and before a use of the result. `same`
/// are rows whose iterations compute their own.
fn check_sources(scop: &Scop, value: &Value, same: &[Row], isl: &Isl) -> Result<()> {
    for read in touches(scop, &value.readers, value.tensor, false) {
        for &w in &value.writers {
            let (x, y) = (scop.statement(read.statement), scop.statement(w));
            let (n, m) = (x.iterators.len(), y.iterators.len());
            let mut both = meeting(x, &read.guard, &read.index, y);
            for row in same {
                let (a, b) = (both.form(row.of(read.statement), 0), both.form(row.of(w), n));
                both.same_tile(a, b, row.tile);
            }
            let mut sources = vec![];
            y.body.visit_accesses(&mut |a| sources.push(a.clone()));
            for source in sources.iter().filter(|a| a.buffer != value.tensor) {
                let overwrites = scop.ids().filter(|id| scop.statement(*id).target == source.buffer);
                for o in overwrites.filter(|o| !value.writers.contains(o)) {
                    let z = scop.statement(o);
                    let first = both.dims;
                    let mut all = both.clone();
                    z.iterators.iter().for_each(|_| _ = all.add_variable());
                    all.add_domain(z, first);
                    source.guard.iter().for_each(|g| all.inequalities.push(all.form(g, n)));
                    for (index, written) in source.index.iter().zip(&z.write) {
                        if let Index::Affine(a) = index {
                            all.equalities.push(difference(&all.form(a, n), &all.form(written, first)));
                        }
                    }
                    let (xs, ys): (Vec<usize>, Vec<usize>) = ((0..n).collect(), (n..n + m).collect());
                    let zs: Vec<usize> = (first..first + z.iterators.len()).collect();
                    for after in orders(scop, w, o) {
                        for before in orders(scop, o, read.statement) {
                            let mut p = all.clone();
                            p.conjoin(&after, &[&ys[..], &zs].concat()[..after.dims.min(ys.len() + zs.len())]);
                            p.conjoin(&before, &[&zs[..], &xs].concat()[..before.dims.min(zs.len() + xs.len())]);
                            if Reduced::new(&p).empty || isl.is_empty(&p)? {
                                continue;
                            }
                            let point = isl.first_point(&p)?.unwrap_or_default();
                            return refuse(format!(
                                "{} overwrites {}, which {} reads, before {} uses the result",
                                instance(z, &point[first..first + zs.len()]),
                                scop.tensor(source.buffer).name,
                                instance(y, &point[n..n + m]),
                                instance(x, &point[..n]),
                            ));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Refuses a read of an element that no instance of an assignment gives before, in the same iteration of the rows `same`.
fn check_given(scop: &Scop, value: &Value, same: &[Row], isl: &Isl) -> Result<()> {
    let name = &scop.tensor(value.tensor).name;
    for read in touches(scop, &value.readers, value.tensor, false) {
        let x = scop.statement(read.statement);
        let index: Option<Vec<Affine>> = read.index.iter().map(|i| i.affine().cloned()).collect();
        let Some(index) = index else {
            return refuse(format!("{} reads elements of {name} that depend on data", x.name));
        };
        let mut domain = Polyhedron::domain(x);
        read.guard.iter().for_each(|g| domain.inequalities.push(domain.form(g, 0)));
        let mut missing = None;
        for &w in value.writers.iter().filter(|w| scop.statement(**w).reduce.is_none()) {
            let y = scop.statement(w);
            let Some(at) = solve_with(y, &index, same.iter().map(|r| (r, w, read.statement))) else { continue };
            let at = |a: &Affine| a.substitute(|v| at[v.0 as usize].clone());
            if !same.iter().all(|r| at(r.of(w)) == *r.of(read.statement)) {
                continue;
            }
            let conditions: Vec<Affine> = instance_conditions(y).iter().map(at).collect();
            match violation(&domain, &conditions, isl)? {
                None => {
                    missing = Some(None);
                    break;
                }
                point => missing = Some(point),
            }
        }
        match missing {
            Some(None) => {}
            Some(Some(point)) => {
                let element: Vec<String> =
                    index.iter().map(|a| a.evaluate(|v| point[v.0 as usize]).to_string()).collect();
                return refuse(format!(
                    "{} reads {name}({}), which no assignment gives in the same iteration",
                    instance(x, &point),
                    element.join(",")
                ));
            }
            None => return refuse(format!("which assignment gives what {} reads of {name} does not follow", x.name)),
        }
    }
    Ok(())
}

/// The iterators of the instance of `s` that writes this element in the same iteration of the rows.
fn solve_with<'a>(
    s: &Statement,
    element: &[Affine],
    rows: impl std::iter::Iterator<Item = (&'a Row, StatementId, StatementId)>,
) -> Option<Vec<Affine>> {
    let mut wider = s.clone();
    let mut element = element.to_vec();
    for (row, writer, reader) in rows.filter(|r| r.0.tile == 1) {
        if let [(_, 1)] = row.of(writer).terms[..] {
            wider.write.push(row.of(writer).clone());
            element.push(row.of(reader).clone());
        }
    }
    solve(&wider, &element)
}

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
            "{name} is computed by {} statements: only one assignment is inlined",
            value.writers.len()
        ));
    };
    let s = scop.statement(writer).clone();
    if s.reduce.is_some() {
        return refuse(format!("{name} is a reduction: compute_at computes it where it is used"));
    }
    let rank = scop.tensor(value.tensor).shape.len();
    // Iterators as subscripts of the element that is read.
    let subscripts: Vec<Affine> = (0..rank).map(|d| Affine::var(Var(d as u32))).collect();
    let Some(iterators) = solve(&s, &subscripts) else {
        return refuse(format!(
            "which iteration of {} gives an element of {name} does not follow from its subscripts",
            s.name
        ));
    };
    let common: Vec<Row> = vec![];
    check_given(&scop, &value, &common, &isl)?;
    check_first(&scop, &value, &isl)?;
    check_sources(&scop, &value, &common, &isl)?;
    let body = s.body.substitute(&mut |v| iterators[v.0 as usize].clone());
    let dimension: Vec<usize> = (0..rank).collect();
    for &reader in &value.readers {
        let mut possible = true;
        let inlined = scop.statement(reader).body.rewrite(&mut |e| match e {
            Expr::Load(a) if a.buffer == value.tensor => {
                expand(&a, &body, &dimension, &scop.tensors).unwrap_or_else(|| {
                    possible = false;
                    Expr::Load(a)
                })
            }
            e => e,
        });
        if !possible {
            return refuse(format!(
                "{} reads {name} outside of it, which cannot be said of its value",
                scop.statement(reader).name
            ));
        }
        scop.statements[reader.0 as usize].body = inlined;
    }
    without(scop, &before.schedule, before, writer)
}

/// Refuses where an element is read before it is written.
fn check_first(scop: &Scop, value: &Value, isl: &Isl) -> Result<()> {
    for read in touches(scop, &value.readers, value.tensor, false) {
        for &w in &value.writers {
            let (x, y) = (scop.statement(read.statement), scop.statement(w));
            let n = x.iterators.len();
            let both = meeting(x, &read.guard, &read.index, y);
            for order in orders(scop, read.statement, w) {
                let mut p = both.clone();
                p.conjoin(&order, &(0..order.dims.min(both.dims)).collect::<Vec<_>>());
                if let Some(point) = isl.first_point(&p)? {
                    let name = &scop.tensor(value.tensor).name;
                    return refuse(format!(
                        "{} reads {name} before {} writes it",
                        instance(x, &point),
                        instance(y, &point[n..])
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The program without one statement, whose number those after it take.
fn without(mut scop: Scop, schedule: &Schedule, before: &Transformed, gone: StatementId) -> Result<Transformed> {
    let lower = |id: &mut StatementId| id.0 -= u32::from(id.0 > gone.0);
    let tree = |schedule: &Schedule| -> Result<Schedule> {
        let Some(mut root) = remove(&apart(&schedule.root), &[gone]) else {
            return refuse("nothing would be left of the program");
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
    Ok(Transformed { scop: Scop { order, ..scop }, schedule, packings })
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

/// `compute_at Bx at y`: what one iteration of y uses of Bx is computed at its beginning, again where iterations use the same
/// elements. With `store_at Bx at yo` its memory lives for one iteration of the outer loop yo, and each element is computed
/// once in it, in the iteration of y that uses it first (a sliding window).
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

/// `store_at Bx at yo`: memory for what one iteration of yo uses of Bx, which is computed at its beginning unless `compute_at`
/// says further in.
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
        return refuse(format!("{} is in loop `{at}` already", scop.statement(id).name));
    }
    if let Some(&id) = value.readers.iter().find(|id| !inside.contains(id)) {
        return refuse(format!("{} reads {name} and is not in loop `{at}`", scop.statement(id).name));
    }
    let path = path_to(schedule, row);
    let all: Vec<StatementId> = value.writers.iter().chain(&inside).copied().collect();
    let common = schedule.around(&all).len();
    let same = path[..common].to_vec();
    let own = alone(schedule, common, &value, inside[0], &scop)?;
    check_given(&scop, &value, &same, &isl)?;
    check_sources(&scop, &value, &same, &isl)?;
    let around = Around::new(&scop, path)?;
    let reads: Vec<Touch> = touches(&scop, &inside, value.tensor, false);
    let shape = scop.tensor(value.tensor).shape.clone();
    let Some(reach) = around.reach(&scop, &reads, &shape, &isl)? else {
        return refuse(format!("nothing in loop `{at}` ever reads {name}"));
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
            let mut name = around.iterators[j].name.clone();
            while s.iterators.iter().any(|it| it.name == name) {
                name.push('_');
            }
            s.iterators.push(Iterator { name, extent: around.iterators[j].extent });
            let time = Affine::constant(around.first[j] * r.tile).plus(v, r.tile);
            if j < common {
                let rest = r.of(w).add_scaled(&time, -1);
                s.domain.extend([rest.scale(-1).offset(r.tile - 1), rest]);
            }
            values.push(Affine::var(v));
            phi.push(time);
        }
        values.extend(s.write.iter().cloned());
        s.domain.extend(reach.iter().map(|c| c.substitute(|v| values[v.0 as usize].clone())));
        phis.push(phi);
    }
    let place = |id: StatementId| value.writers.iter().position(|w| *w == id).expect("a writer");
    let Some(rest) = remove(&apart(&schedule.root), &value.writers) else {
        return refuse("nothing would be left of the program");
    };
    let (depth, writers) = (around.rows.len(), value.writers.clone());
    let rest = Schedule { root: together(rest) };
    let schedule =
        insert(&rest, (depth, inside[0]), &writers, &|j, id| phis[place(id)][j].clone(), &mut |node, old| {
            Ok(Node::Sequence([own.clone(), children_of(&node, &old)].concat()))
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
            Node::Leaf => return refuse("these statements are one"),
            Node::Band(_, child) => {
                if depth == common {
                    return refuse("these statements share all loops");
                }
                depth += 1;
                node = child;
            }
            Node::Sequence(children) => {
                let user_at = children.iter().position(|c| c.0.contains(&user));
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
                            "{} shares loops with what computes {}: distribute them",
                            scop.statement(*other).name,
                            scop.tensor(value.tensor).name
                        ));
                    }
                    if user_at.is_none_or(|u| k > u) {
                        return refuse(format!("{} is computed after its use", scop.tensor(value.tensor).name));
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
    let users = scop.users(tensor);
    let (writers, readers): (Vec<StatementId>, Vec<StatementId>) =
        users.into_iter().partition(|id| scop.statement(*id).target == tensor);
    if let Some(&id) = readers.iter().find(|id| !row.phi.iter().any(|p| p.0 == **id)) {
        return refuse(format!("{} reads {name} and is not in loop `{at}`", scop.statement(id).name));
    }
    let path = path_to(schedule, &row);
    let all: Vec<StatementId> = writers.iter().chain(&readers).copied().collect();
    let common = schedule.around(&all).len();
    if path.len() <= common {
        return refuse(format!("loop `{at}` is not inside of the loop in which {name} is stored"));
    }
    let mut phis: Vec<Vec<Affine>> = vec![];
    for r in &path[common..] {
        let first = first_use(scop, tensor, r, &readers, &isl)?;
        let of = |w: &StatementId| first.substitute(|d| scop.statement(*w).write[d.0 as usize].clone());
        phis.push(writers.iter().map(of).collect());
    }
    let value = Value { tensor, writers: writers.clone(), readers };
    let own = alone(schedule, common, &value, row.phi[0].0, scop)?;
    let Some(rest) = remove(&apart(&schedule.root), &writers) else {
        return refuse("nothing would be left of the program");
    };
    let place = |id: StatementId| writers.iter().position(|w| *w == id).expect("a writer");
    let phi = |j: usize, id: StatementId| match j < common {
        true => schedule.around(&all)[j].of(id).clone(),
        false => phis[j - common][place(id)].clone(),
    };
    let rest = Schedule { root: together(rest) };
    let schedule = insert(&rest, (path.len(), row.phi[0].0), &writers, &phi, &mut |node, old| {
        Ok(Node::Sequence([own.clone(), children_of(&node, &old)].concat()))
    })?;
    Ok(Transformed { schedule, ..before.clone() })
}

/// φ of a row at the first use of an element, as an affine form of its subscripts: at most φ of every use.
fn first_use(scop: &Scop, tensor: BufferId, row: &Row, readers: &[StatementId], isl: &Isl) -> Result<Affine> {
    let rank = scop.tensor(tensor).shape.len();
    let uses = touches(scop, readers, tensor, false);
    let unknown = || {
        let name = &scop.tensor(tensor).name;
        Error::Schedule(format!("when loop {} first uses an element of {name} is no affine function of it", row.name))
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
        let mut rest = row.of(u.statement).clone();
        if let Some(d) = along {
            rest = rest.add_scaled(u.index[d].affine().ok_or_else(unknown)?, -1);
        }
        let mut p = Polyhedron::domain(s);
        u.guard.iter().for_each(|g| p.inequalities.push(p.form(g, 0)));
        let low = rest.bounds(|v| (0, s.iterators[v.0 as usize].extent - 1)).0;
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
