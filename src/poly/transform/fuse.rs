//! Primitive `fuse`: collapses two loops into one.

use super::insert::settled;
use crate::expr::syntax::Name;
use crate::expr::{Affine, Var};
use crate::poly::schedule::{Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, StatementId, unused_name};
use crate::poly::transform::argument::{Loop, Loops};
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{check_new, find, refuse, replace, single};
use crate::runtime::Result;

/// ⌊φ / tile⌋ of a row as an affine form for one of its statements: where it is a loop over tiles, a new iterator of the
/// statement. The row over this iterator, which tells its instances apart, has to be in the tree as well.
pub fn value_of(scop: &mut Scop, row: &Row, id: StatementId) -> Affine {
    let phi = row.of(id).clone();
    if row.tile == 1 {
        return phi;
    }
    let (lo, hi) = row.values(scop);
    let s = &mut scop.statements[id.0 as usize];
    let v = Var(s.iterators.len() as u32);
    s.iterators.push(Iterator::new(unused_name(&s.iterators, &row.name), hi - lo + 1));
    let offset = phi.plus(v, -row.tile).offset(-lo * row.tile);
    s.domain.extend([offset.scale(-1).offset(row.tile - 1), offset]);
    Affine::var(v).offset(lo)
}

/// `fuse i, j -> f`: two loops directly inside of each other become one over all pairs of their values. The old ones stay
/// below it with the one value that f leaves them.
///
/// ```text
/// for i in 0..M       for f in 0..M*N
///   for j in 0..N       i = f / N
///     S(i, j)           j = f % N
///                       S(i, j)
/// ```
pub fn fuse(before: &Transformed, which: &Loops, into: &Name) -> Result<Transformed> {
    let (mut scop, schedule) = (before.scop.clone(), &before.schedule);
    let [outer, inner] = &which.names[..] else {
        return refuse(format!("two loops are fused, not {}", which.names.len()));
    };
    let loop_of = |name: &Name| Loop { statement: which.statement.clone(), name: name.clone() };
    let (first, second) = (find(&scop, schedule, &loop_of(outer))?, find(&scop, schedule, &loop_of(inner))?);
    check_new(schedule, &first, &[into])?;
    for row in [&first, &second] {
        if row.kind != RowKind::Serial || row.pad > 1 {
            return refuse(format!("loop `{}` is already marked: fuse it before", row.name));
        }
    }
    if first.phi.len() != second.phi.len() || !first.phi.iter().all(|p| second.phi.iter().any(|q| q.0 == p.0)) {
        return refuse(format!(
            "loop `{inner}` is not directly inside of `{outer}`: other statements are between them"
        ));
    }
    let ((lo, _), (low, high)) = (first.values(&scop), second.values(&scop));
    let width = high - low + 1;
    let mut fused = Row { name: into.text.clone(), phi: vec![], tile: 1, ..first.clone() };
    // The rows over iterators that are new.
    let mut digits = [(&first, vec![]), (&second, vec![])];
    for (id, _) in &first.phi {
        let mut value = |row: &Row| value_of(&mut scop, row, *id);
        let (a, b) = (value(&first), value(&second));
        fused.phi.push((*id, a.clone().offset(-lo).scale(width).add_scaled(&b, 1).offset(-low)));
        digits[0].1.push((*id, a));
        digits[1].1.push((*id, b));
    }
    let root: Schedule = replace(schedule, &first, &mut |row, below| {
        let Node::Band(mut band, child) = below else {
            return refuse(format!("loop `{inner}` is not directly inside of `{outer}`"));
        };
        if band.rows[0] != second {
            return refuse(format!("loop `{inner}` is not directly inside of `{outer}`"));
        }
        let (mut node, second) = (*child, band.rows.remove(0));
        for (own, (_, phi)) in [(second, &digits[1]), (row, &digits[0])] {
            let tiles = own.tile > 1;
            let (name, phi) = (format!("{}_{into}", own.name), phi.clone());
            let digit = Row { name, phi, tile: 1, ..own.clone() };
            node = single(own, node);
            if tiles {
                node = single(digit, node);
            }
        }
        Ok(single(fused.clone(), node))
    })?;
    match scop == before.scop {
        true => Ok(Transformed { schedule: root, ..before.clone() }),
        false => Ok(settled(scop, root, before)),
    }
}
