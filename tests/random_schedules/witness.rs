//! Checks that the two instances of a refusal are a counterexample: both run, both access the element, and the refused tree
//! runs them against their original order. Nothing here asks isl.

use tilewright::internal::expr::Affine;
use tilewright::internal::expr::Index;
use tilewright::internal::poly::schedule::{RowKind, Schedule, TimeDimension};
use tilewright::internal::poly::scop::Scop;
use tilewright::internal::poly::statement::StatementId;

/// Two instances and what is said of them.
#[derive(Debug)]
struct Claim {
    sink: (StatementId, Vec<i64>),
    source: (StatementId, Vec<i64>),
    order: String,
    tensor: String,
    /// A subscript from data is unknown.
    element: Vec<Option<i64>>,
    why: String,
}

/// Checks the counterexample of a refusal of `tree`; an error says what is not so.
pub fn confirm(message: &str, scop: &Scop, tree: &Schedule) -> Result<(), String> {
    let claim = parse(message, scop).ok_or_else(|| format!("no counterexample can be read from: {message}"))?;
    let fail = |what: &str| Err(format!("{what}: {claim:?} in: {message}"));
    for (id, point) in [&claim.sink, &claim.source] {
        let s = scop.statement(*id);
        let inside = point.iter().zip(&s.iterators).all(|(x, i)| (0..i.extent).contains(x));
        if !inside || s.domain.iter().any(|a| value(a, point) < 0) {
            return fail("an instance does not run");
        }
    }
    let (writer, reader) = if claim.why.contains("reads") && !claim.why.contains("that it reads") {
        (&claim.sink, &claim.source)
    } else {
        (&claim.source, &claim.sink)
    };
    if !writes(scop, writer, &claim) {
        return fail("the writer does not write the element");
    }
    let both_write = claim.why.contains("too");
    if both_write && !writes(scop, reader, &claim) || !both_write && !reads(scop, reader, &claim) {
        return fail("the other instance does not touch the element");
    }
    let updates = claim.source.0 == claim.sink.0 && scop.statement(claim.sink.0).reduce.is_some();
    if !claim.why.contains("updates") && times(&scop.order, &claim.source) >= times(&scop.order, &claim.sink) {
        return fail("the original order does not have the source first");
    }
    if claim.why.contains("updates") && !updates {
        return fail("these are not updates of one reduction");
    }
    match together(tree, &claim) {
        Ok(true) => Ok(()),
        Ok(false) => fail("the refused tree keeps their order"),
        Err(e) => fail(&e),
    }
}

/// Checks the instances of the refusal to compute a value elsewhere; `None` when it names none.
pub fn confirm_values(message: &str, scop: &Scop) -> Option<Result<(), String>> {
    let start = message.find("iteration ")?;
    let line = message[start..].lines().next()?;
    let instances: Vec<(StatementId, Vec<i64>)> = line.split("iteration ").filter_map(|t| instance(t, scop)).collect();
    let runs = |(id, point): &(StatementId, Vec<i64>)| {
        let s = scop.statement(*id);
        point.iter().zip(&s.iterators).all(|(x, i)| (0..i.extent).contains(x))
            && s.domain.iter().all(|a| value(a, point) >= 0)
    };
    let verdict =
        |good: bool| Some(if good { Ok(()) } else { Err(format!("these instances show nothing: {message}")) });
    if let ([over, reader, user], true) = (&instances[..], line.contains(" overwrites ")) {
        let order = [reader, over, user].map(|i| times(&scop.order, i));
        let good = instances.iter().all(runs) && order.is_sorted() && order[0] != order[1] && order[1] != order[2];
        return verdict(good && meets(scop, over, reader) && meets(scop, reader, user));
    }
    if let ([reader], true) = (&instances[..], line.contains("which no assignment gives")) {
        let (tensor, element) = line.split(" reads ").nth(1)?.split_once('(')?;
        let element: Vec<Option<i64>> =
            element.split(')').next()?.split(',').filter_map(|n| n.parse().ok()).map(Some).collect();
        return verdict(runs(reader) && reads_element(scop, reader, tensor, &element));
    }
    None
}

/// `i=1,j=0 of S …`.
fn instance(text: &str, scop: &Scop) -> Option<(StatementId, Vec<i64>)> {
    let (values, rest) = text.split_once(" of ")?;
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let id = scop.ids().find(|id| scop.statement(*id).name == name)?;
    Some((id, point(values, scop, id)?))
}

/// Returns true if the first instance writes an element that the second reads.
fn meets(scop: &Scop, (writer, at): &(StatementId, Vec<i64>), reader: &(StatementId, Vec<i64>)) -> bool {
    let s = scop.statement(*writer);
    let element: Vec<Option<i64>> = s.subscripts().iter().map(|i| i.affine().map(|a| value(a, at))).collect();
    reads_element(scop, reader, &scop.tensor(s.target).name, &element)
}

/// Returns true if the tree runs the instances as the claim says, against their original order.
fn together(tree: &Schedule, claim: &Claim) -> Result<bool, String> {
    let (source, sink) = (times(tree, &claim.source), times(tree, &claim.sink));
    let first = source.iter().zip(&sink).position(|(a, b)| a != b);
    let path = tree.path(claim.source.0);
    let same = |at: usize, kind: RowKind| matches!(path[at], TimeDimension::Row(r) if r.kind == kind);
    Ok(match claim.order.as_str() {
        "at the same time as" => first.is_none(),
        "before" => first.is_some_and(|at| match wave(&path, at) {
            Some(at) => sink[at] + sink[at + 1] < source[at] + source[at + 1],
            None => sink[at] < source[at],
        }),
        "in parallel with" => first.is_some_and(|at| match wave(&path, at) {
            Some(at) => sink[at] + sink[at + 1] == source[at] + source[at + 1],
            None => same(at, RowKind::Parallel),
        }),
        "in one vector with" => first.is_some_and(|at| same(at, RowKind::Vector)),
        other => match other.strip_prefix("in another iteration of loop ") {
            Some(name) => {
                let of = |step: &TimeDimension| matches!(step, TimeDimension::Row(r) if r.name == name);
                path.iter().position(of).is_some_and(|at| source[at] != sink[at])
            }
            None => return Err(format!("an order that is unknown here, {other}")),
        },
    })
}

/// The first of the two rows in waves that a step is one of.
fn wave(path: &[TimeDimension], at: usize) -> Option<usize> {
    let waves = |at: &usize| matches!(path.get(*at), Some(TimeDimension::Row(r)) if r.kind == RowKind::Wavefront);
    [at, at.wrapping_sub(1)].into_iter().find(waves)
}

/// The time of an instance in each step of its path.
fn times(tree: &Schedule, (id, point): &(StatementId, Vec<i64>)) -> Vec<i64> {
    let step = |s: &TimeDimension| match s {
        TimeDimension::Row(r) => value(r.of(*id), point).div_euclid(r.tile),
        TimeDimension::Position(p) => *p as i64,
    };
    tree.path(*id).iter().map(step).collect()
}

fn value(a: &Affine, point: &[i64]) -> i64 {
    a.evaluate(|v| point[v.0 as usize])
}

fn writes(scop: &Scop, (id, point): &(StatementId, Vec<i64>), claim: &Claim) -> bool {
    let s = scop.statement(*id);
    scop.tensor(s.target).name == claim.tensor && may_be(&s.subscripts(), point, &claim.element)
}

/// Returns true if the subscripts are those of the element, as far as both are known.
fn may_be(index: &[Index], point: &[i64], element: &[Option<i64>]) -> bool {
    let same = |(i, e): (&Index, &Option<i64>)| i.affine().zip(*e).is_none_or(|(a, e)| value(a, point) == e);
    index.len() == element.len() && index.iter().zip(element).all(same)
}

fn reads(scop: &Scop, instance: &(StatementId, Vec<i64>), claim: &Claim) -> bool {
    let update = scop.statement(instance.0).reduce.is_some() && writes(scop, instance, claim);
    update || reads_element(scop, instance, &claim.tensor, &claim.element)
}

/// Returns true if the body of an instance reads this element, or may read it by a computed subscript.
fn reads_element(scop: &Scop, (id, point): &(StatementId, Vec<i64>), tensor: &str, element: &[Option<i64>]) -> bool {
    let mut found = false;
    scop.statement(*id).body.visit_accesses(&mut |a| {
        found |= scop.tensor(a.buffer).name == tensor
            && may_be(&a.index, point, element)
            && a.guard.iter().all(|g| value(g, point) >= 0);
    });
    found
}

/// `iteration i=1,j=0 of S would run before i=0,j=2 of T, which writes A(1,0) that it reads, in loop j`.
fn parse(message: &str, scop: &Scop) -> Option<Claim> {
    let line = &message[message.find("iteration ")?..];
    let line = line.lines().next()?.strip_prefix("iteration ")?;
    let (left, right) = line.split_once(" would run ")?;
    let named = |name: &str| scop.ids().find(|id| scop.statement(*id).name == name);
    let (sink, name) = left.rsplit_once(" of ")?;
    let sink_id = named(name)?;
    let (who, why) = right.split_once(", which ")?;
    let orders = ["in parallel with", "in one vector with", "at the same time as", "before"];
    let (order, who) = match who.split_once(" than ") {
        Some(both) => both,
        None => who.split_at(orders.into_iter().find(|o| who.starts_with(o))?.len()),
    };
    let who = who.trim_start();
    let (source, source_id) = match who.rsplit_once(" of ") {
        Some((point, name)) => (point, named(name)?),
        None => (who, sink_id),
    };
    let (why, element) = why.split_once('(')?;
    let (element, rest) = element.split_once(')')?;
    let tensor = why.rsplit(' ').next()?.to_string();
    let number = |text: &str| if text == "?" { Some(None) } else { text.parse().ok().map(Some) };
    let numbers = |text: &str| text.split(',').filter(|t| !t.is_empty()).map(number).collect::<Option<Vec<_>>>();
    Some(Claim {
        sink: (sink_id, point(sink, scop, sink_id)?),
        source: (source_id, point(source, scop, source_id)?),
        order: order.into(),
        tensor,
        element: numbers(element)?,
        why: format!("{why}{rest}"),
    })
}

/// `i=1,j=0`, or `the instance` of a statement without loops.
fn point(text: &str, scop: &Scop, id: StatementId) -> Option<Vec<i64>> {
    let s = scop.statement(id);
    if s.iterators.is_empty() {
        return (text == "the instance").then(Vec::new);
    }
    let values: Vec<(&str, i64)> = text
        .split(',')
        .map(|p| p.split_once('=').and_then(|(n, v)| Some((n, v.parse().ok()?))))
        .collect::<Option<_>>()?;
    let named = s.iterators.iter().map(|i| i.name.as_str()).eq(values.iter().map(|v| v.0));
    let mut point = vec![];
    for ((_, index), (it, v)) in values.into_iter().zip(s.iterators.iter().zip(s.vars())) {
        let at = |x: i64| it.index.as_ref().map_or(x, |a| a.evaluate(|w| if w == v { x } else { point[w.0 as usize] }));
        let (first, step) = (at(0), at(1) - at(0));
        point.push(Some(index - first).filter(|d| d % step == 0)? / step);
    }
    named.then_some(point)
}
