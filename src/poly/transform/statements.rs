//! Primitives `merge` and `distribute`: loop fusion and loop distribution.

use crate::expr::syntax::Name;
use crate::poly::schedule::{Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::transform::tree_edit::{apart, children_of, refuse, replace, restrict, single, statements, together};
use crate::runtime::Result;

/// `merge A, B at i`: the statements share their loops down to i.
///
/// ```text
/// for i               for i
///   A(i)                A(i)
/// for i                 B(i)
///   B(i)
/// ```
pub fn merge(scop: &Scop, schedule: &Schedule, names: &[Name], at: &Name) -> Result<Schedule> {
    let mut ids = vec![];
    for name in names {
        ids.extend(statements(scop, name)?);
    }
    let root = merge_below(&apart(&schedule.root), &ids, at)?;
    Ok(Schedule { root: together(root) })
}

fn merge_below(node: &Node, ids: &[StatementId], at: &Name) -> Result<Node> {
    match node {
        Node::Leaf => refuse("these statements already share all loops"),
        Node::Band(band, child) => Ok(single(band.rows[0].clone(), merge_below(child, ids, at)?)),
        Node::Sequence(children) => {
            let holds = |c: &(Vec<StatementId>, Node)| ids.iter().any(|id| c.0.contains(id));
            let places: Vec<usize> = (0..children.len()).filter(|&i| holds(&children[i])).collect();
            let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
                return refuse("these statements are in different loops");
            };
            let mut out = children.clone();
            if first == last {
                out[first].1 = merge_below(&children[first].1, ids, at)?;
                return Ok(Node::Sequence(out));
            }
            if last - first + 1 != places.len() {
                return refuse("another statement runs between these");
            }
            let merged = zip(&children[first..=last], at)?;
            let all = children[first..=last].iter().flat_map(|c| c.0.iter().copied()).collect();
            out.splice(first..=last, [(all, merged)]);
            Ok(Node::Sequence(out))
        }
    }
}

/// Makes one chain of rows down to `at` over all parts, with the rest of each part below it.
fn zip(parts: &[(Vec<StatementId>, Node)], at: &Name) -> Result<Node> {
    let mut rows: Vec<Row> = vec![];
    let mut rest = vec![];
    for (i, (ids, node)) in parts.iter().enumerate() {
        let (mut node, mut depth) = (node.clone(), 0);
        loop {
            let done = if i == 0 { rows.last().is_some_and(|r| r.name == at.text) } else { depth == rows.len() };
            if done {
                break;
            }
            let Node::Band(mut band, child) = node else {
                return refuse(format!("not all of these statements have loops down to `{at}`"));
            };
            let row = band.rows.remove(0);
            if i == 0 {
                rows.push(row);
            } else {
                let shared = &mut rows[depth];
                if (shared.tile, shared.kind, shared.pad) != (row.tile, row.kind, row.pad) {
                    return refuse(format!(
                        "loops `{}` and `{}` are split or marked differently",
                        shared.name, row.name
                    ));
                }
                shared.phi.extend(row.phi);
            }
            depth += 1;
            node = *child;
        }
        rest.push((ids.clone(), node));
    }
    Ok(rows.into_iter().rev().fold(Node::Sequence(rest), |below, row| single(row, below)))
}

/// `distribute A, B at i`: the statements have loops of their own from i inwards; those between them go with the one before.
///
/// ```text
/// for i               for i
///   A(i)                A(i)
///   B(i)              for i
///                       B(i)
/// ```
pub fn distribute(scop: &Scop, schedule: &Schedule, names: &[Name], at: &Name) -> Result<Schedule> {
    let mut starts = vec![];
    for name in names {
        starts.push(statements(scop, name)?);
    }
    let wanted = crate::poly::transform::argument::Loop { statement: names.first().cloned(), name: at.clone() };
    let row = crate::poly::transform::tree_edit::find(scop, schedule, &wanted)?;
    if let Some(outside) = starts.iter().flatten().find(|id| !row.phi.iter().any(|p| p.0 == **id)) {
        return refuse(format!("loop `{at}` does not contain `{}`", scop.statement(*outside).name));
    }
    replace(schedule, &row, &mut |row, below| {
        let all: Vec<StatementId> = row.phi.iter().map(|p| p.0).collect();
        let (mut chain, mut node) = (vec![row], below);
        while let Node::Band(mut band, child) = node {
            chain.push(band.rows.remove(0));
            node = *child;
        }
        let mut groups: Vec<Vec<(Vec<StatementId>, Node)>> = vec![];
        let mut current = None;
        for child in children_of(&node, &all) {
            let of = starts.iter().position(|ids| ids.iter().any(|id| child.0.contains(id)));
            match groups.last_mut() {
                Some(group) if of.is_none() || of == current => group.push(child),
                _ => groups.push(vec![child]),
            }
            current = of.or(current);
        }
        if groups.len() < 2 {
            return refuse("these statements share a loop further in, or are the same statement");
        }
        let parts = groups.into_iter().map(|group| {
            let ids: Vec<StatementId> = group.iter().flat_map(|c| c.0.iter().copied()).collect();
            let inner = Node::Sequence(group);
            let nest = chain.iter().rev().fold(inner, |below, row| single(restrict(row, &ids), below));
            (ids, nest)
        });
        Ok(Node::Sequence(parts.collect()))
    })
}
