//! Primitives that change loops. In the pictures `S` is the statements below.

use crate::expr::Affine;
use crate::expr::syntax::Name;
use crate::poly::schedule::{Node, Row, RowKind, Schedule, TimeDimension, steps_of};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::transform::argument::{Loop, Loops};
use crate::poly::transform::tree_edit::{check_new, find, refuse, replace, restrict, rows, single};
use crate::runtime::Result;

/// Iterations that a loop is padded to multiples of, at most.
const MAX_PAD: i64 = 1 << 16;

/// `split i by 8 -> io, ii`: one loop becomes two.
///
/// ```text
/// for i in 0..20      for io in 0..3
///   S                   for ii in 8*io..min(20, 8*io + 8)
///                         S
/// ```
pub fn split(scop: &Scop, schedule: &Schedule, which: &Loop, by: i64, into: &[Name; 2]) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    check_new(schedule, &row, &[&into[0], &into[1]])?;
    let Some(tile) = row.tile.checked_mul(by).filter(|_| by >= 1) else {
        return refuse(format!("a loop cannot be split by {by}"));
    };
    if row.kind != RowKind::Serial {
        return refuse(format!("loop `{which}` is already marked: split it before"));
    }
    if row.pad > 1 && row.pad % by != 0 {
        return refuse(format!("loop `{which}` is padded to {}, which is not a multiple of {by}", row.pad));
    }
    let (outer, within) = if row.pad > 1 { (row.pad / by, by) } else { (1, 1) };
    replace(schedule, &row, &mut |row, below| {
        let inner = Row { name: into[1].text.clone(), pad: within, ..row.clone() };
        Ok(single(Row { name: into[0].text.clone(), tile, pad: outer, ..row }, single(inner, below)))
    })
}

/// `pad i to 16`: as if the loop had a multiple of 16 iterations, in one loop without a copy for the partial tile; iterations beyond
/// the extent do nothing. The inner loop of a split by a multiple of 16 is padded to all of its tile.
///
/// ```text
/// for i in 0..N       for i in 0..16 * ceil(N / 16)
///   S                   if i < N  S
/// ```
pub fn pad(scop: &Scop, schedule: &Schedule, which: &Loop, to: i64) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    if to > MAX_PAD {
        return refuse(format!("a multiple of {to} is too large; at most {MAX_PAD} is allowed"));
    }
    let around = schedule.around(&row.phi.iter().map(|p| p.0).collect::<Vec<_>>());
    let tile =
        around.into_iter().take_while(|r| **r != row).filter(|r| row.phi.iter().all(|p| r.phi.contains(p))).last();
    if let Some(outer) = tile
        && (outer.tile / row.tile) % to != 0
    {
        let has = outer.tile / row.tile;
        return refuse(format!("`{which}` has {has} iterations in each tile, which is not a multiple of {to}"));
    }
    replace(schedule, &row, &mut |row, below| Ok(single(Row { pad: to, ..row }, below)))
}

/// The rows that `which` names, from the outermost on, when they are nested without anything between.
fn nested(scop: &Scop, schedule: &Schedule, which: &Loops) -> Result<Vec<Row>> {
    let row_of = |name: &Name| find(scop, schedule, &Loop { statement: which.statement.clone(), name: name.clone() });
    which.names.iter().map(row_of).collect()
}

/// `reorder j, i`: the loops in this order, at the places that they had.
///
/// ```text
/// for i               for j
///   for j               for i
///     S                   S
/// ```
pub fn reorder(scop: &Scop, schedule: &Schedule, which: &Loops) -> Result<Schedule> {
    let wanted = nested(scop, schedule, which)?;
    for (i, row) in wanted.iter().enumerate() {
        if wanted[..i].contains(row) {
            return refuse(format!("loop `{}` is named twice", row.name));
        }
    }
    let Some(first) = rows(schedule).into_iter().find(|r| wanted.contains(r)).cloned() else {
        return refuse("there is nothing to reorder");
    };
    replace(schedule, &first, &mut |row, below| {
        let (mut chain, mut node) = (vec![row], below);
        while !wanted.iter().all(|w| chain.contains(w)) {
            match node {
                Node::Band(mut band, child) => {
                    chain.push(band.rows.remove(0));
                    node = *child;
                }
                _ => {
                    let missing = wanted.iter().find(|w| !chain.contains(w)).map_or("", |w| &w.name);
                    return refuse(format!(
                        "loop `{missing}` is not directly inside of `{}`: other statements are between them",
                        chain.last().map_or("", |r| &r.name)
                    ));
                }
            }
        }
        let mut next = wanted.iter();
        let order: Vec<Row> = chain
            .iter()
            .map(|r| if wanted.contains(r) { next.next().unwrap_or(r).clone() } else { r.clone() })
            .collect();
        Ok(order.into_iter().rev().fold(node, |below, row| single(row, below)))
    })
}

/// `tile C(i, j) by (8, 16) -> io, jo, ii, ji`: splits each loop and puts the loops over tiles outside.
///
/// ```text
/// for i               for io
///   for j               for jo
///     S                   for ii
///                           for ji
///                             S
/// ```
pub fn tile(scop: &Scop, schedule: &Schedule, which: &Loops, by: &[i64], into: &[Name]) -> Result<Schedule> {
    let n = which.names.len();
    if by.len() != n || into.len() != 2 * n {
        return refuse(format!("{n} loops take {n} tile sizes and become {} loops", 2 * n));
    }
    let mut out = schedule.clone();
    for k in 0..n {
        let single = Loop { statement: which.statement.clone(), name: which.names[k].clone() };
        out = split(scop, &out, &single, by[k], &[into[k].clone(), into[n + k].clone()])?;
    }
    reorder(scop, &out, &Loops { statement: which.statement.clone(), names: into.to_vec() })
}

/// `row` with another φ for some statements.
fn with_phi(
    schedule: &Schedule,
    row: &Row,
    ids: &[StatementId],
    phi: &dyn Fn(StatementId, &Affine) -> Affine,
) -> Result<Schedule> {
    replace(schedule, row, &mut |mut row, below| {
        for (id, a) in row.phi.iter_mut().filter(|p| ids.contains(&p.0)) {
            *a = phi(*id, a);
        }
        Ok(single(row, below))
    })
}

fn covered(row: &Row) -> Vec<StatementId> {
    row.phi.iter().map(|p| p.0).collect()
}

/// The statements of `row` that `which` speaks of.
fn meant(scop: &Scop, row: &Row, which: &Loop) -> Result<Vec<StatementId>> {
    match &which.statement {
        None => Ok(covered(row)),
        Some(name) => {
            let named = crate::poly::transform::tree_edit::statements(scop, name)?;
            Ok(covered(row).into_iter().filter(|id| named.contains(id)).collect())
        }
    }
}

/// `skew j by 2*i`: j runs as j + 2·i, which turns dependences against j into ones along it.
///
/// ```text
/// for i               for i
///   for j in 0..N       for j in 2*i..2*i + N
///     S(i, j)             S(i, j - 2*i)
/// ```
pub fn skew(scop: &Scop, schedule: &Schedule, which: &Loop, factor: i64, by: &Name) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    let ids = covered(&row);
    let around = |r: &&Row| **r != row && r.name == by.text && ids.iter().all(|id| covered(r).contains(id));
    let Some(outer) = rows(schedule).into_iter().find(around) else {
        return refuse(format!("no loop `{by}` has all statements of `{which}`"));
    };
    if outer.tile != 1 || factor.unsigned_abs() > 1 << 20 {
        return refuse(format!(
            "`{which}` cannot be skewed by {factor}*{by}: it is a loop over tiles, or the factor is too large"
        ));
    }
    with_phi(schedule, &row, &ids, &|id, a| a.add_scaled(outer.of(id), factor))
}

/// `shift S(i) by 2`: the statement runs 2 iterations later than it would.
///
/// ```text
/// for i in 0..N       for i in 0..N + 2
///   S(i)                if i >= 2  S(i - 2)
///   T(i)                if i < N   T(i)
/// ```
pub fn shift(scop: &Scop, schedule: &Schedule, which: &Loop, by: i64) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    if by.unsigned_abs() > 1 << 31 {
        return refuse(format!("a shift by {by} is too large"));
    }
    with_phi(schedule, &row, &meant(scop, &row, which)?, &|_, a| a.clone().offset(by))
}

/// `reverse i`: from the last iteration to the first.
///
/// ```text
/// for i in 0..N       for i in 0..N step -1
///   S                   S
/// ```
pub fn reverse(scop: &Scop, schedule: &Schedule, which: &Loop) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    with_phi(schedule, &row, &covered(&row), &|_, a| a.scale(-1))
}

/// The tree where `which`, or the inner loop of its split by a number, has this kind.
fn mark(scop: &Scop, schedule: &Schedule, which: &Loop, by: Option<i64>, kind: RowKind) -> Result<Schedule> {
    let Some(by) = by else {
        let row = find(scop, schedule, which)?;
        if row.tile != 1 {
            return refuse(format!("`{which}` is a loop over tiles: its iterations are whole loops"));
        }
        let marked = replace(schedule, &row, &mut |row, below| Ok(single(Row { kind, ..row }, below)))?;
        check_copies(scop, &marked)?;
        return Ok(marked);
    };
    let inner = Name::from(&*format!("{}_{by}", which.name));
    let schedule = split(scop, schedule, which, by, &[which.name.clone(), inner.clone()])?;
    mark(scop, &schedule, &Loop { statement: which.statement.clone(), name: inner }, None, kind)
}

/// Largest number of copies of one statement that unrolling makes.
const COPIES: i64 = 4096;

/// Refuses more than [`COPIES`] copies of a statement by unrolling.
fn check_copies(scop: &Scop, schedule: &Schedule) -> Result<()> {
    for id in scop.ids() {
        let path = schedule.path(id);
        let rows: Vec<&Row> =
            path.iter().filter_map(|s| if let TimeDimension::Row(r) = s { Some(*r) } else { None }).collect();
        let mut copies = 1i64;
        for (k, row) in rows.iter().enumerate().filter(|(_, r)| r.kind == RowKind::Unroll) {
            let (lo, hi) = row.values(scop);
            let tile = rows[..k].iter().filter(|r| r.of(id) == row.of(id)).map(|r| r.tile / row.tile).min();
            copies = copies.saturating_mul(tile.map_or(hi - lo + 1, |t| t.min(hi - lo + 1)));
        }
        if copies > COPIES {
            let name = &scop.statement(id).name;
            return refuse(format!("{copies} copies of `{name}` would follow each other: at most {COPIES} may"));
        }
    }
    Ok(())
}

/// `unroll i`, or `unroll i by 4`: the iterations, or 4 of them, as statements one after the other.
///
/// ```text
/// for i in 0..4       S(0) S(1) S(2) S(3)
///   S(i)
/// ```
pub fn unroll(scop: &Scop, schedule: &Schedule, which: &Loop, by: Option<i64>) -> Result<Schedule> {
    mark(scop, schedule, which, by, RowKind::Unroll)
}

/// `vectorize i`, or `vectorize i by 8`: the iterations, or 8 of them, in the lanes of vectors.
///
/// ```text
/// for i in 0..N       for i in 0..N / 8
///   S(i)                S(8*i .. 8*i + 8)
/// ```
///
/// All lanes of a statement are read before they are written, and run before the next statement of the loop. An iteration may
/// therefore read what a later one of its vector overwrites, but not what an earlier one of the same statement writes.
pub fn vectorize(scop: &Scop, schedule: &Schedule, which: &Loop, by: Option<i64>) -> Result<Schedule> {
    mark(scop, schedule, which, by, RowKind::Vector)
}

/// `unroll_and_jam i by 4`: unrolled, the copies side by side inside of the inner loops.
///
/// ```text
/// for i               for i in 0..N / 4
///   for j               for j
///     S(i, j)             S(4*i, j) … S(4*i + 3, j)
/// ```
pub fn unroll_and_jam(scop: &Scop, schedule: &Schedule, which: &Loop, by: i64) -> Result<Schedule> {
    let inner = Name::from(&*format!("{}_{by}", which.name));
    let schedule = split(scop, schedule, which, by, &[which.name.clone(), inner.clone()])?;
    let row = find(scop, &schedule, &Loop { statement: which.statement.clone(), name: inner })?;
    let jam = &mut |row, below: Node| Ok(innermost(&Row { kind: RowKind::Unroll, ..row }, &below));
    let jammed = replace(&schedule, &row, jam)?;
    check_copies(scop, &jammed)?;
    Ok(jammed)
}

/// `row` below everything that is below it, outside of vector rows.
fn innermost(row: &Row, node: &Node) -> Node {
    match node {
        Node::Leaf => single(row.clone(), Node::Leaf),
        Node::Sequence(children) => {
            let inner = children.iter().map(|(ids, c)| (ids.clone(), innermost(&restrict(row, ids), c)));
            Node::Sequence(inner.collect())
        }
        Node::Band(band, _) if band.rows[0].kind == RowKind::Vector => single(row.clone(), node.clone()),
        Node::Band(band, child) => single(band.rows[0].clone(), innermost(row, child)),
    }
}

/// `parallel i`: iterations run on several threads. Only the outermost loop of a phase is divided, or the next one inside of
/// a serial loop; a barrier then follows each iteration of the serial loop.
///
/// ```text
/// for i               parallel for i
///   S                   S
/// ```
pub fn parallel(scop: &Scop, schedule: &Schedule, which: &Loop) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    let path = schedule.path(row.phi[0].0);
    let above = path.iter().take_while(|s| !matches!(s, TimeDimension::Row(r) if **r == row));
    let serial = above
        .filter_map(|s| if let TimeDimension::Row(r) = s { Some(r) } else { None })
        .find(|r| r.kind != RowKind::Parallel);
    if let Some(outer) = serial.filter(|_| !leads_steps(scop, schedule, &row)) {
        return refuse(format!(
            "`{which}` is inside of `{}`: only outermost loops run in parallel, and those next inside of one serial loop",
            outer.name
        ));
    }
    replace(schedule, &row, &mut |row, below| Ok(single(Row { kind: RowKind::Parallel, ..row }, below)))
}

/// Returns true if `row` is the first one inside of a serial outermost row, and no private memory lives longer.
fn leads_steps(scop: &Scop, schedule: &Schedule, row: &Row) -> bool {
    let leads = |node: &Node| {
        let Node::Band(band, child) = node else { return false };
        let parts = steps_of(band, child).unwrap_or_default();
        parts.iter().any(|p| p.first() == Some(row)) && scop.private_to(&parts)
    };
    match &schedule.root {
        Node::Sequence(children) => children.iter().any(|c| leads(&c.1)),
        node => leads(node),
    }
}

/// Refuses a loop on several threads, or in waves, in one of several parts of an iteration of another such loop.
pub fn check_outermost(node: &Node, around: Option<&Row>, apart: bool) -> Result<()> {
    let divided = |row: &&Row| matches!(row.kind, RowKind::Parallel | RowKind::Wavefront);
    match node {
        Node::Leaf => Ok(()),
        Node::Sequence(children) => children.iter().try_for_each(|c| check_outermost(&c.1, around, around.is_some())),
        Node::Band(band, child) => {
            let first = band.rows.iter().find(divided);
            match (around, first) {
                (Some(outer), Some(row)) if apart => refuse(format!(
                    "`{}` is parallel inside of `{}`: only outermost loops may be parallel",
                    row.name, outer.name
                )),
                _ => check_outermost(child, around.or(first), apart),
            }
        }
    }
}

/// `peel ii`: the iterations that do not fill the inner loop of a split run in a copy of it. Loops are always lowered so; the
/// primitive checks that `ii` is such a loop.
///
/// ```text
/// for io                        for io in 0..N / 8
///   for ii in 0..min(8, …)        for ii in 0..8
///     S                             S
///                               for ii in 0..N % 8
///                                 S
/// ```
pub fn peel(scop: &Scop, schedule: &Schedule, which: &Loop) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    let tiles = |r: &&Row| r.tile > row.tile && row.phi.iter().all(|p| r.phi.contains(p));
    match rows(schedule).into_iter().find(tiles) {
        None => refuse(format!("`{which}` is not an inner loop of a split: there is nothing to peel")),
        Some(_) => Ok(schedule.clone()),
    }
}
