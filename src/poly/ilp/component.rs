//! Strongly connected components of statements, and their topological order.

use crate::poly::ilp::scheduler::LiveDependences;
use crate::poly::statement::StatementId;

/// The dependences between statements of `group`.
pub(super) fn within<'a>(group: &[StatementId], live: &LiveDependences<'a>) -> LiveDependences<'a> {
    live.iter().filter(|(d, _)| group.contains(&d.source) && group.contains(&d.sink)).cloned().collect()
}

/// Strongly connected components, in an order of execution.
pub(super) fn components(group: &[StatementId], live: &LiveDependences) -> Vec<Vec<StatementId>> {
    let n = group.len();
    let at = |id: StatementId| group.iter().position(|&g| g == id).expect("in the group");
    let mut reaches = vec![vec![false; n]; n];
    live.iter().for_each(|(d, _)| reaches[at(d.source)][at(d.sink)] = true);
    for k in 0..n {
        for i in 0..n {
            for j in 0..n {
                reaches[i][j] |= reaches[i][k] && reaches[k][j];
            }
        }
    }
    let mut out: Vec<Vec<StatementId>> = vec![];
    for i in 0..n {
        match out.iter_mut().find(|c| reaches[i][at(c[0])] && reaches[at(c[0])][i]) {
            Some(c) => c.push(group[i]),
            None => out.push(vec![group[i]]),
        }
    }
    order(&out, live).expect("components have no cycle")
}

/// The clusters in an order of execution, the earliest statements first; `None` when they depend on each other in a cycle.
pub(super) fn order(clusters: &[Vec<StatementId>], live: &LiveDependences) -> Option<Vec<Vec<StatementId>>> {
    let mut left: Vec<&Vec<StatementId>> = clusters.iter().collect();
    left.sort_by_key(|c| c.iter().min().copied());
    let mut out = vec![];
    while !left.is_empty() {
        let waits = |c: &Vec<StatementId>| {
            live.iter()
                .any(|(d, _)| c.contains(&d.sink) && left.iter().any(|other| *other != c && other.contains(&d.source)))
        };
        let next = left.iter().position(|c| !waits(c))?;
        out.push(left.remove(next).clone());
    }
    Some(out)
}
