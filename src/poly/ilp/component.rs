//! Strongly connected components of statements, their topological order, and clusters of them.

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
    order(&clusters, live.iter().map(|(d, _)| (d.source, d.sink))).expect("components have no cycle")
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

/// The clusters in an order of execution, the earliest statements first; `None` when they depend on each other in a cycle. A pair is a
/// statement and one that depends on it.
pub(super) fn order(
    clusters: &[Vec<StatementId>],
    pairs: impl Iterator<Item = (StatementId, StatementId)>,
) -> Option<Vec<Vec<StatementId>>> {
    let mut sorted: Vec<&Vec<StatementId>> = clusters.iter().collect();
    sorted.sort_by_key(|c| c.iter().min().copied());
    let cluster: FxHashMap<StatementId, usize> =
        sorted.iter().zip(0..).flat_map(|(c, i)| c.iter().map(move |&id| (id, i))).collect();
    let mut successors = vec![BTreeSet::new(); sorted.len()];
    let mut predecessors = vec![0; sorted.len()];
    for (source, sink) in pairs {
        if let (Some(&source), Some(&sink)) = (cluster.get(&source), cluster.get(&sink))
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

/// Clusters of statements that are joined one by one, and those that cannot be: nor can what becomes of them.
pub(super) struct Clusters {
    /// Those that were joined to another one are empty.
    members: Vec<Vec<StatementId>>,
    place: FxHashMap<StatementId, usize>,
    apart: FxHashSet<[usize; 2]>,
}

impl Clusters {
    pub(super) fn new(members: Vec<Vec<StatementId>>) -> Clusters {
        let place = members.iter().zip(0..).flat_map(|(c, i)| c.iter().map(move |&id| (id, i))).collect();
        Clusters { members, place, apart: FxHashSet::default() }
    }

    /// The clusters of two statements, unless they are one or cannot be.
    pub(super) fn of(&self, a: StatementId, b: StatementId) -> Option<[usize; 2]> {
        let pair = sorted([self.place[&a], self.place[&b]]);
        (pair[0] != pair[1] && !self.apart.contains(&pair)).then_some(pair)
    }

    /// The statements of two clusters.
    pub(super) fn union(&self, [a, b]: [usize; 2]) -> Vec<StatementId> {
        let mut union = [&self.members[a][..], &self.members[b]].concat();
        union.sort_unstable();
        union
    }

    /// All clusters, with two of them joined.
    pub(super) fn with(&self, pair: [usize; 2]) -> Vec<Vec<StatementId>> {
        let others = (0..self.members.len()).filter(|c| !pair.contains(c) && !self.members[*c].is_empty());
        others.map(|c| self.members[c].clone()).chain([self.union(pair)]).collect()
    }

    pub(super) fn join(&mut self, pair: [usize; 2]) {
        let union = self.union(pair);
        let [a, b] = pair;
        self.place.extend(union.iter().map(|&id| (id, a)));
        self.members[b].clear();
        self.members[a] = union;
        let renamed = |c: usize| if c == b { a } else { c };
        self.apart = self.apart.iter().map(|pair| sorted(pair.map(renamed))).collect();
    }

    /// Notes that no cluster holds two of them.
    pub(super) fn keep_apart(&mut self, pair: [usize; 2]) {
        self.apart.insert(sorted(pair));
    }

    pub(super) fn into_members(self) -> Vec<Vec<StatementId>> {
        self.members.into_iter().filter(|c| !c.is_empty()).collect()
    }
}

fn sorted(mut pair: [usize; 2]) -> [usize; 2] {
    pair.sort_unstable();
    pair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_joined_cannot_be_after_others_join() {
        let [a, b, c, d] = [0, 1, 2, 3].map(StatementId);
        let mut clusters = Clusters::new(vec![vec![a], vec![b], vec![c], vec![d]]);
        clusters.keep_apart(clusters.of(a, d).unwrap());
        clusters.join(clusters.of(b, a).unwrap());
        clusters.join(clusters.of(d, c).unwrap());
        for (s, t) in [(a, b), (c, d), (a, c), (d, b)] {
            assert_eq!(clusters.of(s, t), None, "{s:?} {t:?}");
        }
        assert_eq!(clusters.into_members(), [vec![a, b], vec![c, d]]);
        let mut clusters = Clusters::new(vec![vec![a], vec![b], vec![c]]);
        clusters.keep_apart(clusters.of(a, b).unwrap());
        let pair = clusters.of(c, b).unwrap();
        assert_eq!(clusters.with(pair), [vec![a], vec![b, c]]);
    }
}
