//! Dependences, legality and the ILP against enumeration: small random Scops, every pair of instances.

use crate::expr::{Access, BinaryOp, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::poly::analysis::dependence::{Dependences, analyze};
use crate::poly::analysis::legality;
use crate::poly::ilp;
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, Role, Statement, StatementId, TensorDecl};
use crate::runtime::DType;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

pub fn affine(rng: &mut StdRng, n: usize, span: i64) -> Affine {
    let mut a = Affine::constant(if rng.random_bool(0.6) { 0 } else { rng.random_range(-span..=span) });
    for v in 0..n as u32 {
        if rng.random_bool(0.5) {
            a = a.plus(Var(v), *[1, 1, 1, 2, -1].get(rng.random_range(0..5)).unwrap());
        }
    }
    a
}

/// One to three statements over one or two tensors; subscripts may leave the tensors, which no one here minds.
pub fn random_scop(rng: &mut StdRng) -> Scop {
    let tensors: Vec<TensorDecl> = (0..rng.random_range(1..=2))
        .map(|i| {
            let shape = vec![4; rng.random_range(1..=2)];
            let role = if rng.random_bool(0.5) { Role::Output } else { Role::InOut };
            TensorDecl::new(format!("T{i}"), DType::F32, shape, role)
        })
        .collect();
    let statements: Vec<Statement> = (0..rng.random_range(1..=3))
        .map(|i| {
            let n = rng.random_range(1..=3);
            let iterators: Vec<Iterator> =
                (0..n).map(|v| Iterator::new(format!("i{v}"), rng.random_range(2..=3))).collect();
            let subscripts = |rng: &mut StdRng, t: usize| -> Vec<Affine> {
                let identity = rng.random_bool(0.5);
                (0..tensors[t].shape.len())
                    .map(|d| if identity && d < n { Affine::var(Var(d as u32)) } else { affine(rng, n, 1) })
                    .collect()
            };
            let target = rng.random_range(0..tensors.len());
            let mut body = Expr::f32(1.0);
            for _ in 0..rng.random_range(0..=2) {
                let t = rng.random_range(0..tensors.len());
                let mut index: Vec<Index> = subscripts(rng, t).into_iter().map(Index::Affine).collect();
                if rng.random_bool(0.1) {
                    index[0] = Index::Value(Box::new(Expr::Index(Affine::constant(0))));
                }
                let guard = if rng.random_bool(0.2) { vec![affine(rng, n, 1)] } else { vec![] };
                let load = Expr::Load(Access { buffer: BufferId(t as u32), index, guard, otherwise: None });
                body = Expr::binary(BinaryOp::Add, body, load);
            }
            let mut write = subscripts(rng, target);
            let mut computed = vec![];
            if rng.random_bool(0.15) {
                write[0] = Affine::constant(0);
                computed.push((0, Expr::Index(affine(rng, n, 1))));
            }
            Statement {
                name: format!("S{i}"),
                domain: if rng.random_bool(0.3) { vec![affine(rng, n, 2)] } else { vec![] },
                write,
                computed,
                iterators,
                target: BufferId(target as u32),
                reduce: rng.random_bool(0.3).then_some(BinaryOp::Add),
                body,
            }
        })
        .collect();
    let mut scop = Scop::in_sequence("random", tensors, statements);
    if rng.random_bool(0.6) {
        scop.order = Schedule { root: random_order(&scop, &scop.ids().collect::<Vec<_>>(), 0, rng) };
    }
    scop
}

/// Statements interleaved in common loops, which may be shifted, reversed and skewed; `depth` iterators are used already.
fn random_order(scop: &Scop, ids: &[StatementId], depth: usize, rng: &mut StdRng) -> Node {
    let left = |id: StatementId| scop.statement(id).iterators.len() - depth;
    let share = ids.iter().all(|&id| left(id) > 0) && (ids.len() == 1 || rng.random_bool(0.7));
    if share {
        let phi = |&id: &StatementId| {
            let own = Affine::var(Var(depth as u32)).scale(if rng.random_bool(0.8) { 1 } else { -1 });
            let outer = if depth > 0 && rng.random_bool(0.2) { 1 } else { 0 };
            let shift = if rng.random_bool(0.7) { 0 } else { rng.random_range(-2..=2) };
            (id, own.plus(Var(depth.saturating_sub(1) as u32), outer).offset(shift))
        };
        let row = Row::serial(format!("t{depth}"), ids.iter().map(phi).collect());
        let child = random_order(scop, ids, depth + 1, rng);
        return Node::Band(Band { rows: vec![row], permutable: false }, Box::new(child));
    }
    if ids.len() == 1 {
        return Node::Leaf;
    }
    let (first, rest) = ids.split_at(rng.random_range(1..ids.len()));
    let mut children: Vec<_> =
        [first, rest].iter().map(|ids| (ids.to_vec(), random_order(scop, ids, depth, rng))).collect();
    if rng.random_bool(0.3) {
        children.reverse();
    }
    Node::Sequence(children)
}

fn instances(s: &Statement) -> Vec<Vec<i64>> {
    let mut points = vec![vec![]];
    for it in &s.iterators {
        points = points.into_iter().flat_map(|p| (0..it.extent).map(move |x| [p.clone(), vec![x]].concat())).collect();
    }
    points.retain(|p| s.domain.iter().all(|c| at(c, p) >= 0));
    points
}

fn at(a: &Affine, point: &[i64]) -> i64 {
    a.evaluate(|v| point[v.0 as usize])
}

/// Two instances in their original order that touch one element, one of them writing.
struct Pair {
    source: (StatementId, Vec<i64>),
    sink: (StatementId, Vec<i64>),
    /// Both update the same element of one reduction, and nothing else joins them.
    reduction: bool,
    /// But for updates of one reduction the source only reads these elements.
    read: bool,
}

fn pairs(scop: &Scop) -> Vec<Pair> {
    // An element is a subscript list in which None is any value.
    type Touch = (BufferId, Vec<Option<i64>>, bool, bool);
    let mut all: Vec<(StatementId, Vec<i64>, Vec<Touch>)> = vec![];
    for id in scop.ids() {
        let s = scop.statement(id);
        for p in instances(s) {
            let element: Vec<Option<i64>> = s.subscripts().iter().map(|w| w.affine().map(|w| at(w, &p))).collect();
            let mut touches: Vec<Touch> = vec![(s.target, element.clone(), true, s.reduce.is_some())];
            s.body.visit_accesses(&mut |a| {
                if a.guard.iter().all(|g| at(g, &p) >= 0) {
                    let element: Vec<_> = a.index.iter().map(|i| i.affine().map(|i| at(i, &p))).collect();
                    touches.push((a.buffer, element, false, false));
                }
            });
            all.push((id, p, touches));
        }
    }
    all.sort_by_key(|(id, p, _)| scop.order.time(*id, p));
    let mut out = vec![];
    for (k, (sink, q, right)) in all.iter().enumerate() {
        for (source, p, left) in &all[..k] {
            let meets = |a: &Touch, b: &Touch| {
                a.0 == b.0 && (a.2 || b.2) && a.1.iter().zip(&b.1).all(|(x, y)| x.is_none() || y.is_none() || x == y)
            };
            let (mut any, mut other, mut read) = (false, false, true);
            for a in left {
                for b in right.iter().filter(|b| meets(a, b)) {
                    any = true;
                    let update = source == sink && a.3 && b.3;
                    other |= !update;
                    read &= update || !a.2;
                }
            }
            if any {
                let (source, sink) = ((*source, p.clone()), (*sink, q.clone()));
                out.push(Pair { source, sink, reduction: !other, read });
            }
        }
    }
    out
}

/// Returns true if the schedule respects every pair.
fn legal(schedule: &Schedule, pairs: &[Pair]) -> bool {
    pairs.iter().all(|pair| respects(schedule, pair))
}

fn respects(schedule: &Schedule, pair: &Pair) -> bool {
    let a = schedule.time(pair.source.0, &pair.source.1);
    let b = schedule.time(pair.sink.0, &pair.sink.1);
    for (k, step) in schedule.path(pair.source.0).iter().enumerate() {
        let (x, y) = (a[k], b[k]);
        if x == y {
            continue;
        }
        let kind = if let TimeDimension::Row(row) = step { row.kind } else { RowKind::Serial };
        let together = match kind {
            RowKind::Parallel => true,
            RowKind::Vector => !pair.reduction && !in_lanes(schedule, pair, k + 1),
            _ => false,
        };
        return !together && (pair.reduction || x < y);
    }
    pair.reduction
}

/// Returns true if only a sequence of statements is below the first `depth` steps, in which the source comes first, or where one statement
/// reads what it writes in a later lane.
fn in_lanes(schedule: &Schedule, pair: &Pair, depth: usize) -> bool {
    let below = |id: StatementId| schedule.path(id)[depth..].to_vec();
    match (&below(pair.source.0)[..], &below(pair.sink.0)[..]) {
        ([] | [TimeDimension::Position(_)], _) if pair.source.0 == pair.sink.0 => pair.read,
        ([TimeDimension::Position(a)], [TimeDimension::Position(b)]) => a < b,
        _ => false,
    }
}

/// Returns true if the message names two instances that the schedule really runs in the wrong order.
fn is_true(message: &str, scop: &Scop, schedule: &Schedule, pairs: &[Pair]) -> bool {
    let instance = |(id, point): &(StatementId, Vec<i64>)| {
        let names = scop.statement(*id).iterators.iter().zip(point);
        names.map(|(it, x)| format!("{}={x}", it.name)).collect::<Vec<_>>().join(",")
    };
    let names = |a: &(StatementId, Vec<i64>), b: &(StatementId, Vec<i64>)| {
        message.contains(&format!("iteration {} of {} would run ", instance(b), scop.statement(b.0).name))
            && message.contains(&format!(" {}", instance(a)))
    };
    let named = |p: &Pair| names(&p.source, &p.sink) || (message.contains(" too") && names(&p.sink, &p.source));
    pairs.iter().any(|p| !respects(schedule, p) && named(p))
}

/// A random change: statements reordered, rows replaced, shifted, tiled, run in parallel or in lanes.
pub fn disturb(schedule: &mut Schedule, scop: &Scop, rng: &mut StdRng) {
    fn visit(node: &mut Node, scop: &Scop, rng: &mut StdRng) {
        match node {
            Node::Leaf => {}
            Node::Sequence(children) => {
                if rng.random_bool(0.3) {
                    children.shuffle(rng);
                }
                children.iter_mut().for_each(|c| visit(&mut c.1, scop, rng));
            }
            Node::Band(Band { rows, .. }, child) => {
                if rng.random_bool(0.4) {
                    rows.shuffle(rng);
                }
                for row in rows.iter_mut() {
                    if rng.random_bool(0.3) {
                        row.kind = [RowKind::Parallel, RowKind::Vector][rng.random_range(0..2)];
                    }
                    for (id, phi) in &mut row.phi {
                        if rng.random_bool(0.15) {
                            *phi = affine(rng, scop.statement(*id).iterators.len(), 2);
                        }
                    }
                }
                if rng.random_bool(0.3) {
                    let tile = rng.random_range(2..=3);
                    let k = rng.random_range(1..=rows.len());
                    let outer: Vec<Row> = rows[..k].iter().map(|r| Row { tile, ..r.clone() }).collect();
                    rows.iter_mut().for_each(|r| r.kind = RowKind::Serial);
                    rows.splice(0..0, outer);
                }
                visit(child, scop, rng);
            }
        }
    }
    visit(&mut schedule.root, scop, rng);
}

/// The tree without its tile rows, or with nothing below them and each over single values: what the flags of rows are about.
fn apart(node: &Node, tiles: bool) -> Node {
    match node {
        Node::Leaf => Node::Leaf,
        Node::Sequence(children) => {
            Node::Sequence(children.iter().map(|(ids, child)| (ids.clone(), apart(child, tiles))).collect())
        }
        Node::Band(band, child) if band.rows.iter().any(|r| r.tile > 1) && !tiles => apart(child, tiles),
        Node::Band(band, _) if band.rows.iter().any(|r| r.tile > 1) => {
            let rows = band.rows.iter().map(|r| Row { tile: 1, ..r.clone() }).collect();
            Node::Band(Band { rows, ..band.clone() }, Box::new(Node::Leaf))
        }
        Node::Band(band, child) => Node::Band(band.clone(), Box::new(apart(child, tiles))),
    }
}

/// The flags of the ILP's bands, from the pairs: `coincident` exactly, `permutable` as claimed.
fn assert_flags(schedule: &Schedule, pairs: &[Pair], context: &str) {
    fn visit(node: &Node, depth: usize, ids: &[StatementId], schedule: &Schedule, pairs: &[Pair], context: &str) {
        match node {
            Node::Leaf => {}
            Node::Sequence(children) => {
                children.iter().for_each(|(ids, child)| visit(child, depth + 1, ids, schedule, pairs, context))
            }
            Node::Band(band, child) => {
                let live: Vec<(Vec<i64>, Vec<i64>, bool)> = pairs
                    .iter()
                    .filter(|p| ids.contains(&p.source.0) && ids.contains(&p.sink.0))
                    .map(|p| {
                        let (a, b) = (schedule.time(p.source.0, &p.source.1), schedule.time(p.sink.0, &p.sink.1));
                        (a, b, p.reduction)
                    })
                    .filter(|(a, b, _)| a[..depth] == b[..depth])
                    .collect();
                for (k, row) in band.rows.iter().enumerate() {
                    let carried = live.iter().any(|(a, b, _)| a[depth + k] != b[depth + k]);
                    assert_eq!(row.coincident, !carried, "coincidence of row {} in\n{context}", row.name);
                    let backward = live.iter().any(|(a, b, reduction)| !reduction && a[depth + k] > b[depth + k]);
                    assert!(!(band.permutable && backward), "permutability of row {} in\n{context}", row.name);
                }
                visit(child, depth + band.rows.len(), ids, schedule, pairs, context);
            }
        }
    }
    let ids: Vec<StatementId> = schedule_ids(schedule);
    visit(&schedule.root, 0, &ids, schedule, pairs, context);
}

fn schedule_ids(schedule: &Schedule) -> Vec<StatementId> {
    match &schedule.root {
        Node::Band(band, _) => band.rows[0].phi.iter().map(|p| p.0).collect(),
        Node::Sequence(children) => children.iter().flat_map(|c| c.0.clone()).collect(),
        Node::Leaf => vec![StatementId(0)],
    }
}

/// Every pair lies in a dependence of its kind, or follows from two that do; no dependence has a pair that is none.
fn assert_dependences(scop: &Scop, d: &Dependences, pairs: &[Pair], context: &str) {
    for dependence in &d.list {
        for p in instances(scop.statement(dependence.source)) {
            for q in instances(scop.statement(dependence.sink)) {
                let point = [p.clone(), q.clone()].concat();
                if dependence.relation.contains(&point) && !(dependence.reduction && p == q) {
                    let (source, sink) = ((dependence.source, p.clone()), (dependence.sink, q.clone()));
                    let known = pairs.iter().any(|pair| {
                        pair.source == source && pair.sink == sink
                            || dependence.reduction && pair.source == sink && pair.sink == source
                    });
                    assert!(known, "{p:?} -> {q:?} of {dependence:?} in\n{context}");
                }
            }
        }
    }
}

#[test]
fn dependences_legality_and_schedules_agree_with_enumeration() {
    let rounds: u64 = std::env::var("TILEWRIGHT_FUZZ").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let first: u64 = std::env::var("TILEWRIGHT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (mut accepted, mut refused, mut malformed, mut fallbacks, mut fused, mut skewed) = (0, 0, 0, 0, 0, 0);
    for seed in first..first + rounds {
        let rng = &mut StdRng::seed_from_u64(seed);
        let scop = random_scop(rng);
        let pairs = pairs(&scop);
        let dependences = analyze(&scop).unwrap();
        let context = format!("seed {seed}\n{scop}");
        assert_dependences(&scop, &dependences, &pairs, &context);
        let initial = scop.order.clone();
        initial.verify(&scop).unwrap();
        assert!(legal(&initial, &pairs), "original order of {context}");
        legality::check(&scop, &dependences, &initial).unwrap_or_else(|e| panic!("original order: {e} in\n{context}"));
        let (schedule, report) = ilp::schedule(&scop, &dependences).unwrap();
        let context = format!("{context}\n{}", schedule.print(&scop));
        assert!(legal(&schedule, &pairs), "the ILP's schedule of {context}");
        match report.fallback {
            None => {
                for tiles in [false, true] {
                    assert_flags(&Schedule { root: apart(&schedule.root, tiles) }, &pairs, &context);
                }
            }
            Some(_) => fallbacks += 1,
        }
        schedule.for_each_band(&mut |band| {
            for row in &band.rows {
                fused += usize::from(row.phi.len() > 1);
                skewed += usize::from(row.phi.iter().any(|p| p.1.terms.len() > 1));
            }
        });
        for start in [&initial, &schedule] {
            for _ in 0..4 {
                let mut disturbed = start.clone();
                disturb(&mut disturbed, &scop, rng);
                if disturbed.verify(&scop).is_err() {
                    malformed += 1;
                    continue;
                }
                let expected = legal(&disturbed, &pairs);
                let got = legality::check(&scop, &dependences, &disturbed);
                let context = format!("seed {seed}\n{scop}\n{}\n{got:?}", disturbed.print(&scop));
                assert_eq!(got.is_ok(), expected, "{context}");
                if let Err(e) = got {
                    assert!(is_true(&e.to_string(), &scop, &disturbed, &pairs), "{context}");
                }
                if expected { accepted += 1 } else { refused += 1 }
            }
        }
    }
    println!(
        "{rounds} Scops from seed {first}: {accepted} disturbed schedules accepted, {refused} refused, {malformed} malformed; \
         {fallbacks} fallbacks, {fused} fused rows, {skewed} skewed rows"
    );
    if rounds >= 300 {
        assert!(accepted > 300 && refused > 300 && fused > 20 && skewed > 3 && fallbacks * 8 < rounds);
    }
}
