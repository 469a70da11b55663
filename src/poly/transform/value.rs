//! Values of a temporary: their definition and uses, and whether they may be computed elsewhere or again.
//!
//! In: a program, a temporary of it, rows whose iterations compute their own values. Out: nothing, or a refusal with
//! the instances that stand in the way. Invariant: where nothing is refused, each use reads what exactly one definition
//! gives, and no write to an element that the definition reads lies between it and the use.

use super::cache::{instance_conditions, solve, tensor, violation};
use super::insert::element_accesses;
use crate::expr::Affine;
use crate::expr::BufferId;
use crate::expr::syntax::Name;
use crate::poly::analysis::dependence::{meeting, orders};
use crate::poly::analysis::legality::instance_name;
use crate::poly::schedule::Row;
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::{Role, Statement, StatementId};
use crate::poly::transform::tree_edit::refuse;
use crate::runtime::Result;

/// A temporary, the statements that write it, and those that only read it.
pub struct Value {
    pub tensor: BufferId,
    pub writers: Vec<StatementId>,
    pub readers: Vec<StatementId>,
}

impl Value {
    /// Collects the statements that write and read a tensor.
    pub fn of(scop: &Scop, tensor: BufferId) -> Value {
        let writes = |id: &StatementId| scop.statement(*id).target == tensor;
        let (writers, readers) = scop.users(tensor).into_iter().partition(writes);
        Value { tensor, writers, readers }
    }

    /// Finds the temporary of this name, which must be in memory for the whole program.
    ///
    /// # Errors
    /// `Schedule` where there is none, or nothing computes or reads it.
    pub fn new(scop: &Scop, name: &Name) -> Result<Value> {
        let tensor = tensor(scop, name)?;
        if scop.tensor(tensor).role != Role::Temporary {
            return refuse(format!("`{name}` is not a temporary: its values are part of the result"));
        }
        if scop.private(tensor).is_some() {
            return refuse(format!("`{name}` is already private to a loop"));
        }
        let value = Value::of(scop, tensor);
        match (value.writers.is_empty(), value.readers.is_empty()) {
            (true, _) => refuse(format!("nothing computes `{name}`")),
            (_, true) => refuse(format!("nothing reads `{name}`")),
            _ => Ok(value),
        }
    }
}

fn instance(s: &Statement, point: &[i64]) -> String {
    format!("iteration {} of {}", instance_name(s, point), s.name)
}

/// Refuses where a source of `value` is written after the computation and before a use of the result. `same`
/// are rows whose iterations compute their own.
pub fn check_sources(scop: &Scop, value: &Value, same: &[Row], isl: &Isl) -> Result<()> {
    for read in element_accesses(scop, &value.readers, value.tensor, false) {
        for &w in &value.writers {
            let (x, y) = (scop.statement(read.statement), scop.statement(w));
            let (n, m) = (x.iterators.len(), y.iterators.len());
            let mut both = meeting(x, &read.guard, &read.index, y);
            for row in same {
                let (a, b) = (both.form(row.of(read.statement), 0), both.form(row.of(w), n));
                both.same_tile(a, b, row.tile);
            }
            let mut sources = vec![];
            y.visit_accesses(&mut |a| sources.push(a.clone()));
            for source in sources.iter().filter(|a| a.buffer != value.tensor) {
                let overwrites = scop.ids().filter(|id| scop.statement(*id).target == source.buffer);
                for o in overwrites.filter(|o| !value.writers.contains(o)) {
                    let z = scop.statement(o);
                    let (xs, ys): (Vec<usize>, Vec<usize>) = ((0..n).collect(), (n..n + m).collect());
                    let mut all = both.clone();
                    let zs: Vec<usize> = all.add_variables(z.iterators.len()).collect();
                    all.conjoin(&meeting(y, &source.guard, &source.index, z), &[&ys[..], &zs].concat());
                    for after in orders(scop, w, o) {
                        for before in orders(scop, o, read.statement) {
                            let mut p = all.clone();
                            p.conjoin(&after, &[&ys[..], &zs].concat()[..after.dims.min(ys.len() + zs.len())]);
                            p.conjoin(&before, &[&zs[..], &xs].concat()[..before.dims.min(zs.len() + xs.len())]);
                            if isl.is_empty(&p)? {
                                continue;
                            }
                            let point = isl.first_point(&p)?.unwrap_or_default();
                            return refuse(format!(
                                "{} overwrites {}, which {} reads, before {} uses the result",
                                instance(z, &zs.iter().map(|&v| point[v]).collect::<Vec<i64>>()),
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
pub fn check_given(scop: &Scop, value: &Value, same: &[Row], isl: &Isl) -> Result<()> {
    let name = &scop.tensor(value.tensor).name;
    for read in element_accesses(scop, &value.readers, value.tensor, false) {
        let x = scop.statement(read.statement);
        let index: Option<Vec<Affine>> = read.index.iter().map(|i| i.affine().cloned()).collect();
        let Some(index) = index else {
            return refuse(format!("`{}` reads elements of `{name}` that depend on data", x.name));
        };
        let mut domain = Polyhedron::domain(x);
        read.guard.iter().for_each(|g| domain.inequalities.push(domain.form(g, 0)));
        let mut missing = None;
        for &w in value.writers.iter().filter(|w| scop.statement(**w).reduce.is_none()) {
            let y = scop.statement(w);
            let Some(instance) = solve_with(y, &index, same.iter().map(|r| (r, w, read.statement))) else { continue };
            if !same.iter().all(|r| r.of(w).compose(&instance) == *r.of(read.statement)) {
                continue;
            }
            let conditions: Vec<Affine> = instance_conditions(y).iter().map(|c| c.compose(&instance)).collect();
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
            None => {
                return refuse(format!(
                    "cannot find the assignment that computes the elements of `{name}` that `{}` reads",
                    x.name
                ));
            }
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

/// Refuses where an element is read before it is written.
pub fn check_first(scop: &Scop, value: &Value, isl: &Isl) -> Result<()> {
    for read in element_accesses(scop, &value.readers, value.tensor, false) {
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
