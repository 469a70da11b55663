//! Construction of a Scop from a Program, with the fewest statements and the fewest dimensions.
//!
//! In: a tensor expression. Out: a [`Scop`] with the same external tensors in the same order (reshaped without moving
//! data), and the temporaries that are left. In order:
//! 1. iterators and dimensions of extent 1 go; conditions and guards that the bounds imply go;
//! 2. injective temporaries are substituted into their readers, unless that would repeat much arithmetic; so are outputs
//!    where the reader would share their loops; products whose value has several uses stay rounded ([`super::rounding`]);
//! 3. temporaries that are written with a stride become one for each residue class ([`super::residue`]);
//! 4. dimensions of temporaries that are written with two digits become two ([`crate::poly::normalize::mixed_radix`]);
//! 5. a reduction becomes an initialisation and an update of a temporary, which its epilogue (or a copy) reads;
//! 6. adjacent iterators that every access uses as one are merged ([`crate::poly::normalize::coalesce`]).
//!
//! A scatter has none of this: its definitions become statements as they are.
//!
//! Invariant: element for element the Scop computes what the Program defines; only the order of a reduction is open.

use crate::expr::scalar::ROUND_TRIP;
use crate::expr::{Access, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar, UnaryOp};
use crate::expr::{Affine, Var};
use crate::poly::normalize::{coalesce, mixed_radix, residue, rounding};
use crate::poly::schedule::Schedule;
use crate::poly::scop::Scop;
use crate::poly::statement::{Definition, Iterator, Program, Role, Statement, TensorDecl, ranges};
use crate::runtime::{DType, Result};

/// Largest number of nodes of an expression that is substituted into others. Unmeasured.
const MAX_NODES: usize = 256;

/// Builds the Scop of `program`. Fails when the program is malformed.
pub fn build(name: &str, program: &Program) -> Result<Scop> {
    program.verify()?;
    if program.definitions.iter().any(Definition::is_scatter) {
        return in_order(name, program);
    }
    let mut tensors = program.tensors.clone();
    let mut definitions = drop_unit_dimensions(program, &mut tensors);
    definitions = definitions.into_iter().filter_map(|d| normalize(d, &tensors)).collect();
    rounding::round_repeated(&mut definitions, &tensors);
    inline(&mut definitions, &tensors);
    definitions.iter_mut().for_each(|d| rounding::tidy_root(d, &tensors));
    definitions = definitions.into_iter().filter_map(|d| normalize(d, &tensors)).map(hoist_guards).collect();
    definitions = residue::split_residues(definitions, &mut tensors);
    mixed_radix::split_digits(&mut definitions, &mut tensors);
    let mut scop = split(name, definitions, tensors);
    coalesce::merge_iterators(&mut scop);
    drop_unused_temporaries(&mut scop);
    unique_names(&mut scop);
    scop.order = Schedule::in_sequence(&scop.statements);
    scop.verify()?;
    Ok(scop)
}

/// The statements of a tensor expression with scatters, one for each definition or two for a reduction.
fn in_order(name: &str, program: &Program) -> Result<Scop> {
    let tensors = program.tensors.clone();
    let definitions = program.definitions.iter().filter_map(|d| normalize(d.clone(), &tensors)).collect();
    let mut scop = split(name, definitions, tensors);
    unique_names(&mut scop);
    scop.order = Schedule::in_sequence(&scop.statements);
    scop.verify()?;
    Ok(scop)
}

/// Removes the dimensions of extent 1 from every tensor and every subscript list.
fn drop_unit_dimensions(program: &Program, tensors: &mut [TensorDecl]) -> Vec<Definition> {
    let unit: Vec<Vec<bool>> =
        program.tensors.iter().map(|t| t.shape.iter().map(|&extent| extent == 1).collect()).collect();
    for t in tensors.iter_mut() {
        t.shape.retain(|&extent| extent != 1);
    }
    let keep = |buffer: BufferId, d: usize| !unit[buffer.0 as usize][d];
    program
        .definitions
        .iter()
        .map(|d| Definition {
            write: (0..d.write.len()).filter(|&k| keep(d.target, k)).map(|k| d.write[k].clone()).collect(),
            body: d.body.rewrite_loads(&mut |a| {
                let index = (0..a.index.len()).filter(|&k| keep(a.buffer, k)).map(|k| a.index[k].clone()).collect();
                Expr::Load(Access { index, ..a })
            }),
            ..d.clone()
        })
        .collect()
}

/// Tightens reduced iterators by their conditions, removes iterators with one value and conditions that always hold.
/// `None` when nothing is defined.
fn normalize(mut d: Definition, tensors: &[TensorDecl]) -> Option<Definition> {
    if d.iterators[..d.outer].iter().any(|it| it.extent == 0) {
        return None;
    }
    // Values of iterator i are low[i] ..= high[i].
    let low = &mut vec![0; d.iterators.len()];
    let high = &mut d.iterators.iter().map(|it| it.extent - 1).collect::<Vec<_>>();
    if d.reduce.is_some() {
        for c in &d.conditions {
            // c + k·v ≥ 0 with v a reduced iterator
            if let [(v, k)] = c.terms[..]
                && v.0 as usize >= d.outer
            {
                let i = v.0 as usize;
                if k > 0 {
                    low[i] = low[i].max((-c.constant).div_euclid(k) + i64::from((-c.constant).rem_euclid(k) != 0));
                } else {
                    high[i] = high[i].min(c.constant.div_euclid(-k));
                }
            }
        }
    }
    let ranges: Vec<(i64, i64)> = low.iter().copied().zip(high.iter().copied()).collect();
    let empty_reduction = ranges[d.outer..].iter().any(|r| r.0 > r.1)
        || d.reduce.is_some()
            && d.conditions
                .iter()
                .any(|c| ranges.iter().all(|r| r.0 <= r.1) && c.bounds(|v| ranges[v.0 as usize]).1 < 0);
    if empty_reduction {
        let dtype = tensors[d.target.0 as usize].dtype;
        d.body = Expr::Const(neutral(d.reduce.expect("only reductions have reduced iterators"), dtype));
        d.iterators.truncate(d.outer);
        (d.conditions, d.reduce) = (vec![], None);
        return normalize(d, tensors);
    }
    d.conditions.retain(|c| c.bounds(|v| ranges[v.0 as usize]).0 < 0);
    if d.reduce.is_none() && d.conditions.iter().any(|c| c.bounds(|v| ranges[v.0 as usize]).1 < 0) {
        return None;
    }
    d.conditions.sort();
    d.conditions.dedup();
    // Iterators with one value are replaced by it, the others are shifted to start at 0 and renumbered.
    let mut map = vec![];
    let mut iterators = vec![];
    let mut outer = 0;
    for (i, it) in d.iterators.iter().enumerate() {
        let (lo, hi) = ranges[i];
        if lo == hi {
            map.push(Affine::constant(lo));
        } else {
            map.push(Affine::var(Var(iterators.len() as u32)).offset(lo));
            iterators.push(Iterator::new(&it.name, hi - lo + 1));
            outer += usize::from(i < d.outer);
        }
    }
    let mut replace = |v: Var| map[v.0 as usize].clone();
    d.write = d.write.iter().map(|a| a.substitute(&mut replace)).collect();
    d.computed.iter_mut().for_each(|(_, e)| *e = e.substitute(&mut replace));
    d.conditions = d.conditions.iter().map(|a| a.substitute(&mut replace)).collect();
    d.body = d.body.substitute(&mut replace);
    (d.iterators, d.outer) = (iterators, outer);
    if d.outer == d.iterators.len() && d.conditions.is_empty() && !d.is_scatter() {
        d.reduce = None;
    }
    d.body = simplify_guards(&d.body, &d.iterators, &d.conditions);
    Some(d)
}

/// Drops the guards that the bounds or one of the conditions imply; a read that never happens becomes its other value.
fn simplify_guards(body: &Expr, iterators: &[Iterator], conditions: &[Affine]) -> Expr {
    let range = ranges(iterators);
    body.rewrite_loads(&mut |mut a| {
        if a.guard.is_empty() {
            return Expr::Load(a);
        }
        if let Some(o) = a.otherwise
            && a.guard.iter().any(|g| g.bounds(range).1 < 0)
        {
            return Expr::Const(o);
        }
        a.guard
            .retain(|g| g.bounds(range).0 < 0 && !conditions.iter().any(|c| g.add_scaled(c, -1).bounds(range).0 >= 0));
        a.guard.sort();
        a.guard.dedup();
        if a.guard.is_empty() {
            a.otherwise = None;
        }
        Expr::Load(a)
    })
}

/// Turns a guard into a condition of the definition if reads outside of it make the body neutral for the reduction.
fn hoist_guards(mut d: Definition) -> Definition {
    /// Returns true if the body is neutral for `op` wherever `a` is outside its guard.
    fn decides(body: &Expr, op: BinaryOp, out: &mut Vec<Affine>) -> bool {
        match body {
            Expr::Load(a) if !a.guard.is_empty() => {
                let hit = a.otherwise.is_some_and(|o| o == neutral(op, o.dtype) || (op == BinaryOp::Add && is_zero(o)));
                if hit {
                    out.extend(a.guard.iter().cloned());
                }
                hit
            }
            Expr::Binary(BinaryOp::Mul, x, y) if op == BinaryOp::Add => {
                let hit = decides(x, op, out);
                decides(y, op, out) || hit
            }
            Expr::Cast(_, x) if op == BinaryOp::Add => decides(x, op, out),
            _ => false,
        }
    }
    if let Some(op) = d.reduce {
        let mut implied = vec![];
        if decides(&d.body, op, &mut implied) {
            d.conditions.extend(implied);
            d.conditions.sort();
            d.conditions.dedup();
            d.body = simplify_guards(&d.body, &d.iterators, &d.conditions);
        }
    }
    d
}

/// Substitutes injective temporaries into their readers where that is allowed and pays, and outputs into readers in the
/// same loops.
fn inline(definitions: &mut Vec<Definition>, tensors: &[TensorDecl]) {
    let mut index = 0;
    while index < definitions.len() {
        let bodies = substituted(&definitions[index], &definitions[index + 1..], definitions, tensors);
        let output = tensors[definitions[index].target.0 as usize].role == Role::Output;
        let inlined = bodies.is_some() && !output;
        for (reader, body) in bodies.into_iter().flatten() {
            definitions[index + 1 + reader].body = body;
        }
        match inlined {
            true => _ = definitions.remove(index),
            false => index += 1,
        }
    }
}

/// The new bodies of the definitions `after` that read the target of `producer`, with its body in place of the reads; `None`
/// to keep it.
fn substituted(
    producer: &Definition,
    after: &[Definition],
    all: &[Definition],
    tensors: &[TensorDecl],
) -> Option<Vec<(usize, Expr)>> {
    let target = &tensors[producer.target.0 as usize];
    let single = all.iter().filter(|d| d.target == producer.target).count() == 1;
    let is_output = target.role == Role::Output;
    if producer.reduce.is_some() || !producer.conditions.is_empty() || !single {
        return None;
    }
    // dimension[i]: the dimension of the target that iterator i indexes, alone and completely.
    let mut dimension = vec![None; producer.iterators.len()];
    for (k, w) in producer.write.iter().enumerate() {
        let [(v, 1)] = w.terms[..] else { return None };
        let i = v.0 as usize;
        if w.constant != 0 || dimension[i].is_some() || producer.iterators[i].extent != target.shape[k] {
            return None;
        }
        dimension[i] = Some(k);
    }
    let dimension: Vec<usize> = dimension.into_iter().collect::<Option<_>>()?;

    let volume = |extents: &mut dyn std::iter::Iterator<Item = i64>| extents.map(|e| e as f64).product::<f64>();
    let elements = volume(&mut target.shape.iter().copied());
    let (mut evaluations, mut uses, mut readers) = (0.0, usize::from(is_output), vec![]);
    for (i, d) in after.iter().enumerate() {
        let mut seen: Vec<&Access> = vec![];
        d.body.visit_accesses(&mut |a| {
            if a.buffer == producer.target {
                uses += 1;
                if !seen.contains(&a) {
                    seen.push(a);
                }
            }
        });
        if seen.is_empty() {
            continue;
        }
        readers.push(i);
        evaluations += volume(&mut d.iterators.iter().map(|it| it.extent)) * seen.len() as f64;
        // An output is stored anyway: its value is used again only by the iteration that computes it.
        let is_same_element =
            |a: &&Access| a.index.iter().map(Index::affine).eq(producer.write.iter().map(Some)) && a.guard.is_empty();
        let extents = |d: &Definition| d.iterators.iter().map(|it| it.extent).collect::<Vec<_>>();
        let same_loops = extents(d) == extents(producer) && d.reduce.is_none() && seen.iter().all(is_same_element);
        if is_output && !same_loops {
            return None;
        }
    }
    let cost = cost(&producer.body) as f64;
    if is_output && (evaluations == 0.0 || evaluations * cost > elements * ROUND_TRIP) {
        return None;
    }
    if evaluations > 0.0 && !is_copy(&producer.body) && evaluations * cost > elements * (cost + ROUND_TRIP) {
        return None;
    }
    let value = producer.body.clone();
    let value = if uses > 1 { rounding::round(value, tensors) } else { value };
    let substitute = |i: usize| {
        let mut possible = true;
        let body = after[i].body.rewrite_reads(producer.target, &mut |a| {
            expand(&a, &value, &dimension, tensors).unwrap_or_else(|| {
                possible = false;
                Expr::Load(a)
            })
        });
        let body = rounding::tidy(&body, tensors);
        (possible && size(&body) <= MAX_NODES).then_some((i, body))
    };
    readers.into_iter().map(substitute).collect()
}

/// The value that `access` reads, when iterator i of `body` is subscript `dimension[i]` of the access.
pub fn expand(access: &Access, body: &Expr, dimension: &[usize], tensors: &[TensorDecl]) -> Option<Expr> {
    let mut value = substitute_index(body, &|v| &access.index[dimension[v.0 as usize]])?;
    if access.guard.is_empty() {
        return Some(value);
    }
    let otherwise = access.otherwise?;
    let guarded = |value: &Expr, otherwise: &dyn Fn(&Access) -> Option<Scalar>| -> Option<Expr> {
        let mut possible = true;
        let guarded = value.rewrite_loads(&mut |mut a| {
            a.otherwise = otherwise(&a);
            possible &= a.otherwise.is_some();
            a.guard.extend(access.guard.iter().cloned());
            a.guard.sort();
            a.guard.dedup();
            Expr::Load(a)
        });
        possible.then_some(guarded)
    };
    if let Expr::Load(inner) = &value
        && (inner.guard.is_empty() || inner.otherwise == Some(otherwise))
        && inner.index.iter().all(|i| i.affine().is_some())
    {
        return guarded(&value, &|_| Some(otherwise));
    }
    let zero = |a: &Access| Scalar { dtype: tensors[a.buffer.0 as usize].dtype, bits: 0 };
    if is_zero(otherwise) && vanishes(&value) {
        let zero = |a: &Access| (a.guard.is_empty() || a.otherwise.is_some_and(is_zero)).then_some(zero(a));
        if let Some(v) = guarded(&value, &zero) {
            return Some(v);
        }
    }
    // Any value does where the selection takes the other side.
    value = guarded(&value, &|a| Some(a.otherwise.unwrap_or(zero(a))))?;
    let inside = access
        .guard
        .iter()
        .map(|g| Expr::compare(CompareOp::Ge, Expr::Index(g.clone()), Expr::Const(Scalar::i64(0))))
        .reduce(|a, b| Expr::binary(BinaryOp::And, a, b))?;
    Some(Expr::select(inside, value, Expr::Const(otherwise)))
}

/// `body` with each variable replaced by an index; `None` where a computed index would enter an affine form.
fn substitute_index<'a>(body: &Expr, index: &impl Fn(Var) -> &'a Index) -> Option<Expr> {
    let computed = |a: &Affine| a.terms.iter().any(|t| index(t.0).affine().is_none());
    let replace = |a: &Affine| a.substitute(|v| index(v).affine().expect("checked").clone());
    match body {
        Expr::Index(a) => (!computed(a)).then(|| Expr::Index(replace(a))),
        Expr::Load(a) => {
            if a.guard.iter().any(computed) {
                return None;
            }
            let mut subscripts = vec![];
            for i in &a.index {
                subscripts.push(match i {
                    Index::Value(e) => Index::Value(Box::new(substitute_index(e, index)?)),
                    Index::Affine(x) if !computed(x) => Index::Affine(replace(x)),
                    Index::Affine(x) => match x.terms[..] {
                        [(v, 1)] if x.constant == 0 => index(v).clone(),
                        _ => return None,
                    },
                });
            }
            Some(Expr::Load(Access { index: subscripts, guard: a.guard.iter().map(replace).collect(), ..a.clone() }))
        }
        e => e.try_map_children(&mut |e| substitute_index(e, index).ok_or(())).ok(),
    }
}

/// A read, possibly converted, that moves data without arithmetic.
fn is_copy(e: &Expr) -> bool {
    match e {
        Expr::Const(_) => true,
        Expr::Load(a) => a.index.iter().all(|i| i.affine().is_some()),
        Expr::Cast(_, x) => is_copy(x),
        _ => false,
    }
}

fn is_zero(s: Scalar) -> bool {
    s.bits == 0
}

/// Returns true if the expression is zero when every read is zero.
fn vanishes(e: &Expr) -> bool {
    match e {
        Expr::Const(s) => is_zero(*s),
        Expr::Load(_) => true,
        Expr::Index(_) | Expr::Compare(..) | Expr::Select(..) => false,
        Expr::Cast(_, x) | Expr::Bitcast(_, x) => vanishes(x),
        Expr::Unary(UnaryOp::Exp | UnaryOp::Log | UnaryOp::Not, _) => false,
        Expr::Unary(UnaryOp::Cos | UnaryOp::Acos | UnaryOp::Cosh | UnaryOp::Acosh, _) => false,
        Expr::Unary(_, x) => vanishes(x),
        Expr::Binary(BinaryOp::Mul, x, y) => vanishes(x) || vanishes(y),
        Expr::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Max | BinaryOp::Min, x, y) => vanishes(x) && vanishes(y),
        Expr::Binary(..) => false,
    }
}

/// Arithmetic of one evaluation, in additions.
pub(crate) fn cost(e: &Expr) -> i64 {
    let of_root = match e {
        Expr::Const(_) | Expr::Index(_) => 0,
        Expr::Load(_) => 4 * e.children().count() as i64,
        Expr::Unary(op, _) => op.cost().cycles as i64,
        Expr::Binary(op, ..) => op.cost().cycles as i64,
        Expr::Compare(..) | Expr::Select(..) | Expr::Cast(..) | Expr::Bitcast(..) => 1,
    };
    of_root + e.children().map(cost).sum::<i64>()
}

fn size(e: &Expr) -> usize {
    1 + e.children().map(size).sum::<usize>()
}

/// Returns the initial value of a reduction; [`verify`] has checked that there is one.
fn neutral(op: BinaryOp, dtype: DType) -> Scalar {
    Scalar::neutral(op, dtype).expect("verified")
}

/// Splits every reduction into initialisation and update of a temporary; one that defines an output gets a copy.
fn split(name: &str, definitions: Vec<Definition>, tensors: Vec<TensorDecl>) -> Scop {
    let mut scop = Scop { name: name.into(), tensors, ..Scop::default() };
    // Accumulators of outputs: readers in the same loops use them instead of the output.
    let mut accumulators: Vec<(BufferId, Vec<i64>, BufferId)> = vec![];
    for mut d in definitions {
        let extents: Vec<i64> = d.iterators.iter().map(|it| it.extent).collect();
        if d.reduce.is_none() {
            d.body = d.body.rewrite_loads(&mut |a| {
                let accumulator =
                    accumulators.iter().find(|(output, shape, _)| *output == a.buffer && *shape == extents);
                let identity = a.index.iter().map(Index::affine).eq(identity(extents.len()).iter().map(Some));
                match accumulator {
                    Some((_, _, accumulator)) if identity => Expr::Load(Access { buffer: *accumulator, ..a }),
                    _ => Expr::Load(a),
                }
            });
        }
        let target = scop.tensors[d.target.0 as usize].clone();
        let statement = |suffix: &str, n: usize, body: Expr| Statement {
            name: format!("{}{suffix}", target.name),
            iterators: d.iterators[..n].to_vec(),
            domain: vec![],
            target: d.target,
            write: d.write.clone(),
            computed: d.computed.clone(),
            reduce: None,
            body,
        };
        let all = d.iterators.len();
        if d.is_scatter() {
            let (reduce, domain) = (d.reduce, d.conditions.clone());
            scop.statements.push(Statement { reduce, domain, ..statement("_scatter", all, d.body.clone()) });
            continue;
        }
        let Some(op) = d.reduce else {
            scop.statements.push(Statement { domain: d.conditions.clone(), ..statement("", all, d.body.clone()) });
            continue;
        };
        let (accumulator, write) = if target.role == Role::Output {
            let shape: Vec<i64> = d.iterators[..d.outer].iter().map(|it| it.extent).collect();
            let name = format!("{}_acc", target.name);
            scop.tensors.push(TensorDecl::new(name, target.dtype, shape, Role::Temporary));
            let accumulator = BufferId(scop.tensors.len() as u32 - 1);
            if d.write == identity(d.outer) && target.shape == extents[..d.outer] {
                accumulators.push((d.target, extents[..d.outer].to_vec(), accumulator));
            }
            (accumulator, identity(d.outer))
        } else {
            (d.target, d.write.clone())
        };
        scop.statements.push(Statement {
            target: accumulator,
            write: write.clone(),
            ..statement("_init", d.outer, Expr::Const(neutral(op, target.dtype)))
        });
        scop.statements.push(Statement {
            target: accumulator,
            write: write.clone(),
            reduce: Some(op),
            domain: d.conditions.clone(),
            ..statement("_update", all, d.body.clone())
        });
        if target.role == Role::Output {
            scop.statements.push(statement("", d.outer, Expr::load(accumulator, write)));
        }
    }
    scop
}

/// The first `n` iterators as subscripts.
fn identity(n: usize) -> Vec<Affine> {
    (0..n as u32).map(|i| Affine::var(Var(i))).collect()
}

/// External tensors keep their ids; temporaries that no statement touches go.
fn drop_unused_temporaries(scop: &mut Scop) {
    let mut used: Vec<bool> = scop.tensors.iter().map(|t| t.role != Role::Temporary).collect();
    for s in &scop.statements {
        used[s.target.0 as usize] = true;
        s.visit_accesses(&mut |a| used[a.buffer.0 as usize] = true);
    }
    let mut renumbered = vec![BufferId(0); used.len()];
    let mut order: Vec<usize> = (0..used.len()).filter(|&i| used[i]).collect();
    order.sort_by_key(|&i| scop.tensors[i].role == Role::Temporary);
    for (new, &old) in order.iter().enumerate() {
        renumbered[old] = BufferId(new as u32);
    }
    scop.tensors = order.iter().map(|&i| scop.tensors[i].clone()).collect();
    for s in &mut scop.statements {
        s.target = renumbered[s.target.0 as usize];
        s.rewrite_loads(&mut |a| Expr::Load(Access { buffer: renumbered[a.buffer.0 as usize], ..a }));
    }
}

/// Gives tensors, statements and the iterators of each statement distinct names that the text language can read.
fn unique_names(scop: &mut Scop) {
    fn distinct<'a>(names: impl std::iter::Iterator<Item = &'a mut String>, default: &str) {
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            let mut clean: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
            if !clean.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                clean = format!("{default}{clean}");
            }
            let base = clean.clone();
            let mut k = 1;
            while !seen.insert(clean.clone()) {
                k += 1;
                clean = format!("{base}_{k}");
            }
            *name = clean;
        }
    }
    distinct(scop.tensors.iter_mut().map(|t| &mut t.name), "t");
    distinct(scop.statements.iter_mut().map(|s| &mut s.name), "S");
    for s in &mut scop.statements {
        distinct(s.iterators.iter_mut().map(|it| &mut it.name), "i");
    }
}

#[cfg(test)]
mod tests;
