//! Strongly connected components of statements, and their topological order.

use crate::poly::ilp::scheduler::LiveDependences;
use crate::poly::statement::StatementId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The dependences between statements of `group`.
pub(super) fn within<'a>(group: &[StatementId], live: &LiveDependences<'a>) -> LiveDependences<'a> {
    let group: FxHashSet<StatementId> = group.iter().copied().collect();
    live.iter().filter(|(d, _)| group.contains(&d.source) && group.contains(&d.sink)).cloned().collect()
}

/// Strongly connected components, in an order of execution (Sharir's algorithm: two depth-first searches).
pub(super) fn components(group: &[StatementId], live: &LiveDependences) -> Vec<Vec<StatementId>> {
    let n = group.len();
    let position: FxHashMap<StatementId, usize> = group.iter().copied().zip(0..).collect();
    let (mut successors, mut predecessors) = (vec![vec![]; n], vec![vec![]; n]);
    for (d, _) in live {
        let (source, sink) = (position[&d.source], position[&d.sink]);
        successors[source].push(sink);
        predecessors[sink].push(source);
    }
    let (mut finished, mut visited) = (vec![], vec![false; n]);
    (0..n).for_each(|start| visit(start, &successors, &mut visited, &mut finished));
    let (mut members, mut visited) = (vec![], vec![false; n]);
    for start in finished.into_iter().rev() {
        let mut component = vec![];
        visit(start, &predecessors, &mut visited, &mut component);
        component.sort_unstable();
        members.extend((!component.is_empty()).then_some(component));
    }
    let clusters: Vec<Vec<_>> = members.into_iter().map(|m| m.into_iter().map(|i| group[i]).collect()).collect();
    order(&clusters, live).expect("components have no cycle")
}

/// Adds the nodes that `start` reaches by `edges` over nodes that were not visited, each after those that it leads to.
fn visit(start: usize, edges: &[Vec<usize>], visited: &mut [bool], finished: &mut Vec<usize>) {
    if std::mem::replace(&mut visited[start], true) {
        return;
    }
    let mut path = vec![(start, edges[start].iter())];
    while let Some((node, targets)) = path.last_mut() {
        match targets.next() {
            None => {
                finished.push(*node);
                path.pop();
            }
            Some(&target) if !std::mem::replace(&mut visited[target], true) => {
                path.push((target, edges[target].iter()))
            }
            Some(_) => {}
        }
    }
}

/// The clusters in an order of execution, the earliest statements first; `None` when they depend on each other in a cycle.
pub(super) fn order(clusters: &[Vec<StatementId>], live: &LiveDependences) -> Option<Vec<Vec<StatementId>>> {
    let mut sorted: Vec<&Vec<StatementId>> = clusters.iter().collect();
    sorted.sort_by_key(|c| c.iter().min().copied());
    let cluster: FxHashMap<StatementId, usize> =
        sorted.iter().zip(0..).flat_map(|(c, i)| c.iter().map(move |&id| (id, i))).collect();
    let mut successors = vec![BTreeSet::new(); sorted.len()];
    let mut predecessors = vec![0; sorted.len()];
    for (d, _) in live {
        if let (Some(&source), Some(&sink)) = (cluster.get(&d.source), cluster.get(&d.sink))
            && source != sink
            && successors[source].insert(sink)
        {
            predecessors[sink] += 1;
        }
    }
    let mut ready: BTreeSet<usize> = (0..sorted.len()).filter(|&i| predecessors[i] == 0).collect();
    let mut out = vec![];
    while let Some(first) = ready.pop_first() {
        out.push(sorted[first].clone());
        for &sink in &successors[first] {
            predecessors[sink] -= 1;
            ready.extend((predecessors[sink] == 0).then_some(sink));
        }
    }
    (out.len() == sorted.len()).then_some(out)
}
