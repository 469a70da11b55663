//! Primitives for phases: the parts that run on several threads, and their order.

use crate::expr::syntax::Name;
use crate::poly::schedule::{Node, Row, RowKind, Schedule, child_of};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::transform::argument::Loop;
use crate::poly::transform::tree_edit::{apart, find, refuse, replace, single, statements, together};
use crate::runtime::Result;

/// `sequence B, A`: statements, or the loops around them, one after the other in this order, at the places that they had.
///
/// ```text
/// for i               for i
///   A(i)                B(i)
/// for i               for i
///   B(i)                A(i)
/// ```
pub fn sequence(scop: &Scop, schedule: &Schedule, names: &[Name]) -> Result<Schedule> {
    let wanted: Vec<Vec<StatementId>> = names.iter().map(|n| statements(scop, n)).collect::<Result<_>>()?;
    Ok(Schedule { root: together(sequence_below(&apart(&schedule.root), &wanted)?) })
}

fn sequence_below(node: &Node, wanted: &[Vec<StatementId>]) -> Result<Node> {
    match node {
        Node::Leaf => refuse("these are the same statement"),
        Node::Band(band, child) => Ok(Node::Band(band.clone(), Box::new(sequence_below(child, wanted)?))),
        Node::Sequence(children) => {
            let place = |ids: &Vec<StatementId>| child_of(children, ids[0]);
            let Some(places) = wanted.iter().map(place).collect::<Option<Vec<usize>>>() else {
                return refuse("these statements are in different loops");
            };
            let mut out = children.clone();
            if places.iter().all(|p| *p == places[0]) {
                out[places[0]].1 = sequence_below(&children[places[0]].1, wanted)?;
                return Ok(Node::Sequence(out));
            }
            let mut sorted = places.clone();
            sorted.sort();
            if sorted.windows(2).any(|w| w[0] == w[1]) {
                return refuse("two of these statements share a loop");
            }
            for (to, from) in sorted.iter().zip(&places) {
                out[*to] = children[*from].clone();
            }
            Ok(Node::Sequence(out))
        }
    }
}

/// `wavefront i`: this loop and the next one in waves, in the order of their sum; what has one sum runs in parallel.
///
/// ```text
/// for i in 0..M       for w in 0..M + N - 1
///   for j in 0..N       parallel for j
///     S(i, j)             S(w - j, j)
/// ```
pub fn wavefront(scop: &Scop, schedule: &Schedule, which: &Loop) -> Result<Schedule> {
    let row = find(scop, schedule, which)?;
    let outermost = matches!(&schedule.root, Node::Band(band, _) if band.rows.first() == Some(&row));
    let first = |c: &(Vec<StatementId>, Node)| matches!(&c.1, Node::Band(band, _) if band.rows.first() == Some(&row));
    if !outermost && !matches!(&schedule.root, Node::Sequence(children) if children.iter().any(first)) {
        return refuse(format!("`{which}` is not the outermost loop: only outermost loops run in waves"));
    }
    replace(schedule, &row, &mut |row, below| match below {
        Node::Band(..) => Ok(single(Row { kind: RowKind::Wavefront, ..row }, below)),
        _ => refuse(format!("`{which}` has no loop directly inside of it to form wavefronts with")),
    })
}

/// `serial`: all of the program on one thread, with no barrier between its parts.
///
/// ```text
/// parallel for i      once
///   A(i)                for i
/// parallel for i          A(i)
///   B(i)                for i
///                         B(i)
/// ```
pub fn serial(scop: &Scop, schedule: &Schedule) -> Result<Schedule> {
    Ok(Schedule { root: together(single(Row::once(scop.ids()), apart(&schedule.root))) })
}
