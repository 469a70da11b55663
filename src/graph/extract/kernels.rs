//! Kernels of an answer, and the conditions on them that no row expresses.
//!
//! In: the values of the variables. Out: an [`Answer`], and for each rule that it breaks (a cycle among e-nodes or
//! kernels, a kernel that is too big, repeated work) a cut: a row that this answer breaks and no legal one.

use crate::graph::extract::bounds::{MAX_EXPRESSION, MAX_INPUTS};
use crate::graph::extract::candidate::Site;
use crate::graph::extract::constraint_set::Constraints;
use crate::graph::extract::problem::Problem;
use crate::graph::extract::program::Constraint;
use crate::graph::fusion::{Stored, Way};
use crate::graph::op::FusionKind;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of tensors that one kernel writes. Unmeasured.
const MAX_OUTPUTS: usize = 4;

/// The choice for every class that is needed.
pub struct Answer {
    /// The chosen candidate of each class; `None` where the class is not needed.
    pub chosen: Vec<Option<usize>>,
    /// The edge by which a class's node joins the kernel of another.
    pub joined: Vec<Option<usize>>,
    /// Views that have no kernel.
    pub through: Vec<bool>,
}

impl Answer {
    /// Reads the variables, without the classes that the roots do not need.
    pub fn new(problem: &Problem, rows: &Constraints, values: &[bool]) -> Answer {
        let n = problem.classes.len();
        let mut answer = Answer { chosen: vec![None; n], joined: vec![None; n], through: vec![false; n] };
        let mut stack = problem.roots.clone();
        while let Some(class) = stack.pop() {
            if answer.chosen[class].is_none()
                && let Some(k) = rows.x[class].iter().position(|&x| values[x])
            {
                answer.chosen[class] = Some(k);
                answer.through[class] = rows.a.get(&(class, k)).is_some_and(|&a| values[a]);
                stack.extend(&problem.classes[class][k].children);
            }
        }
        for (i, edge) in problem.edges.iter().enumerate().filter(|(i, _)| values[rows.f[*i]]) {
            let (member, _) = ends(problem, i);
            if answer.has(edge.producer) && answer.has(edge.reader) {
                answer.joined[member] = Some(i);
            }
        }
        answer
    }

    pub fn has(&self, site: Site) -> bool {
        self.chosen[site.0] == Some(site.1)
    }

    /// The operand classes of the chosen candidate.
    fn children<'a>(&self, problem: &'a Problem, class: usize) -> &'a [usize] {
        self.chosen[class].map_or(&[], |k| &problem.classes[class][k].children)
    }

    /// Returns for each class the class whose kernel it runs in, if the joins have no cycle.
    pub fn kernels(&self, problem: &Problem) -> Vec<usize> {
        let mut kernel: Vec<Option<usize>> = vec![None; self.chosen.len()];
        for class in 0..kernel.len() {
            let mut path = vec![class];
            let end = loop {
                let class = path[path.len() - 1];
                match (kernel[class], self.joined[class]) {
                    (Some(k), _) => break k,
                    (None, Some(edge)) => path.push(ends(problem, edge).1),
                    (None, None) => break class,
                }
            };
            path.into_iter().for_each(|c| kernel[c] = Some(end));
        }
        kernel.into_iter().flatten().collect()
    }

    /// Returns the cycles of fusion edges: lists of edges by which nodes stand in each other's kernels.
    fn rounds(&self, problem: &Problem) -> Vec<Vec<usize>> {
        let mut rounds = vec![];
        let mut first: Vec<Option<usize>> = vec![None; self.chosen.len()];
        for class in 0..first.len() {
            let (mut current, mut path) = (class, vec![]);
            while let (None, Some(edge)) = (first[current], self.joined[current]) {
                first[current] = Some(class);
                path.push(edge);
                current = ends(problem, edge).1;
            }
            if first[current] == Some(class)
                && let Some(from) = path.iter().position(|&e| ends(problem, e).0 == current)
            {
                rounds.push(path.split_off(from));
            }
        }
        rounds
    }
}

/// Returns the classes of an edge: the one that joins the other's kernel, and the other.
fn ends(problem: &Problem, edge: usize) -> (usize, usize) {
    let e = &problem.edges[edge];
    match e.join.way {
        Way::After => (e.reader.0, e.producer.0),
        Way::Before => (e.producer.0, e.reader.0),
    }
}

/// Returns cuts: rows that the answer violates and every legal answer satisfies; none if it is legal.
pub fn cuts(problem: &Problem, rows: &Constraints, values: &[bool], answer: &Answer) -> Vec<Constraint> {
    let nodes: Vec<usize> = (0..answer.chosen.len()).filter(|&c| answer.chosen[c].is_some()).collect();
    let arcs = |c: usize| answer.children(problem, c).to_vec();
    let cycles = find_cycles(&nodes, answer.chosen.len(), arcs);
    if !cycles.is_empty() {
        let chosen = |c: &usize| rows.x[*c][answer.chosen[*c].unwrap_or(0)];
        return cycles.iter().map(|cycle| forbid(cycle.iter().map(chosen))).collect();
    }
    let rounds = answer.rounds(problem);
    if !rounds.is_empty() {
        return rounds.into_iter().map(|edges| forbid(edges.into_iter().map(|e| rows.f[e]))).collect();
    }
    let check = Check { problem, rows, values, answer, kernel: answer.kernels(problem) };
    let mut cuts = check.kernel_cycles(&nodes);
    cuts.extend(nodes.iter().filter_map(|&c| check.repeated(c)));
    cuts.extend(nodes.iter().filter_map(|&c| check.gathered(c)));
    if cuts.is_empty() {
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        nodes.iter().for_each(|&c| members.entry(check.kernel[c]).or_default().push(c));
        cuts.extend(members.iter().filter_map(|(&root, members)| check.size(root, members)));
    }
    cuts
}

/// Not all of these variables.
fn forbid(variables: impl Iterator<Item = usize>) -> Constraint {
    let mut list: Vec<usize> = variables.collect();
    list.sort_unstable();
    list.dedup();
    let least = 1 - list.len() as i32;
    Constraint { terms: list.into_iter().map(|v| (v, -1)).collect(), least, equal: false }
}

struct Check<'a> {
    problem: &'a Problem<'a>,
    rows: &'a Constraints,
    values: &'a [bool],
    answer: &'a Answer,
    kernel: Vec<usize>,
}

impl Check<'_> {
    fn x(&self, class: usize) -> usize {
        self.rows.x[class][self.answer.chosen[class].unwrap_or(0)]
    }

    /// Edges from a class up to the one whose kernel it runs in.
    fn path(&self, class: usize) -> Vec<usize> {
        let above = |&edge: &usize| self.answer.joined[ends(self.problem, edge).1];
        std::iter::successors(self.answer.joined[class], above).collect()
    }

    /// Cycles through kernels: what leads through each of them, and what is chosen on the way.
    fn kernel_cycles(&self, nodes: &[usize]) -> Vec<Constraint> {
        let mut outside: Vec<Vec<(usize, usize)>> = vec![vec![]; self.kernel.len()];
        for &c in nodes {
            for &d in self.answer.children(self.problem, c) {
                if self.kernel[c] != self.kernel[d] {
                    outside[self.kernel[c]].push((c, d));
                }
            }
        }
        let kernels: Vec<usize> = (0..outside.len()).filter(|&k| !outside[k].is_empty()).collect();
        let arcs = |k: usize| outside[k].iter().map(|&(_, d)| self.kernel[d]).collect();
        let around = |cycle: Vec<usize>| {
            // The member that reads from the next kernel, and the one there that it reads.
            let crossings: Vec<(usize, usize)> = (0..cycle.len())
                .filter_map(|i| {
                    let next = cycle[(i + 1) % cycle.len()];
                    outside[cycle[i]].iter().copied().find(|&(_, d)| self.kernel[d] == next)
                })
                .collect();
            let mut variables = vec![];
            for i in 0..crossings.len() {
                let (entered, left) = (crossings[i].1, crossings[(i + 1) % crossings.len()].0);
                let (a, b) = (self.path(entered), self.path(left));
                let between = a.iter().filter(|e| !b.contains(e)).chain(b.iter().filter(|e| !a.contains(e)));
                variables.extend(between.map(|&e| self.rows.f[e]));
                variables.extend([self.x(entered), self.x(left)]);
            }
            forbid(variables.into_iter())
        };
        find_cycles(&kernels, outside.len(), arcs).into_iter().map(around).collect()
    }

    /// Work far before a repetition or a reduction, in a chain of which the rows saw only neighbours.
    fn repeated(&self, class: usize) -> Option<Constraint> {
        let path = self.path(class);
        let site = (class, self.answer.chosen[class]?);
        let before = path.iter().take_while(|&&e| self.problem.edges[e].join.way == Way::Before);
        for (i, &e) in before.enumerate() {
            let edge = &self.problem.edges[e];
            let edges = path[..=i].iter().map(|&e| self.rows.f[e]);
            if edge.join.repeats && self.problem.is_expensive(site) {
                return Some(forbid(edges));
            }
            if i > 1 && self.problem.leads_reduction(edge) {
                let w = self.rows.w[&self.problem.storage[class]];
                match (self.problem.prologue(site, edge), self.values[w]) {
                    (None, _) => return Some(forbid(edges)),
                    (Some(Stored::Never), true) => return Some(forbid(edges.chain([w]))),
                    (Some(Stored::Always), false) => {
                        let mut row = forbid(edges);
                        row.terms.push((w, 1));
                        return Some(row);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// A gather in the kernel of one of its operands, both having joined a third node: its subscripts are checked before the
    /// kernel runs, so that they must be in memory.
    fn gathered(&self, class: usize) -> Option<Constraint> {
        let op = self.problem.candidate((class, self.answer.chosen[class]?)).op?;
        if !op.is_gather() {
            return None;
        }
        let inside = self.answer.children(self.problem, class).iter().find(|&&d| self.kernel[d] == self.kernel[class]);
        inside.map(|&d| forbid(self.links(&BTreeSet::from([class, d])).map(|e| self.rows.f[e])))
    }

    /// A kernel that reads or writes too many tensors, or computes too much for one element.
    fn size(&self, root: usize, members: &[usize]) -> Option<Constraint> {
        if members.len() < 2 {
            return None;
        }
        let mut inputs = vec![];
        let mut expression: BTreeMap<usize, usize> = BTreeMap::new();
        let mut open = members.to_vec();
        while let Some(&c) = open.last() {
            let inside = self.answer.children(self.problem, c).iter().filter(|&&d| self.kernel[d] == root);
            let missing: Vec<usize> = inside.copied().filter(|d| !expression.contains_key(d)).collect();
            if !missing.is_empty() {
                open.extend(missing);
                continue;
            }
            open.pop();
            let site = (c, self.answer.chosen[c].unwrap_or(0));
            let term = self.problem.term(site);
            let mut size = 1;
            for (operand, id) in self.problem.operands(site).iter().zip(&term.children) {
                let id = self.problem.network.find(*id);
                match operand {
                    Some(d) if self.kernel[*d] == root => size += expression[d],
                    _ => {
                        let number =
                            self.problem.network.is_constant(id) && self.problem.network.ty(id).elements() == 1;
                        if !number && !inputs.contains(&id) {
                            inputs.push(id);
                        }
                    }
                }
            }
            if size > MAX_EXPRESSION {
                return Some(forbid(self.links(&self.substituted(c)).map(|e| self.rows.f[e])));
            }
            expression.insert(c, if self.is_substituted(c) { size } else { 1 });
        }
        let read_outside = |&&c: &&usize| {
            let readers = self.problem.readers[c].iter();
            self.problem.roots.contains(&c)
                || readers
                    .into_iter()
                    .any(|&r| self.kernel[r] != root && self.answer.children(self.problem, r).contains(&c))
        };
        let outputs = members.iter().filter(read_outside).count();
        let fits = inputs.len() <= MAX_INPUTS && outputs <= MAX_OUTPUTS;
        let edges = members.iter().filter_map(|&c| self.answer.joined[c]).map(|e| self.rows.f[e]);
        (!fits).then(|| forbid(edges))
    }

    /// Returns true if a value is substituted where it is read; a reduced value is kept in a tensor of its own.
    fn is_substituted(&self, class: usize) -> bool {
        let site = (class, self.answer.chosen[class].unwrap_or(0));
        self.problem.candidate(site).op.is_some_and(|op| op.kind() == FusionKind::Injective)
    }

    /// The members of a kernel that make up the expression of one of them.
    fn substituted(&self, class: usize) -> BTreeSet<usize> {
        let mut members = BTreeSet::from([class]);
        let mut open = vec![class];
        while let Some(c) = open.pop() {
            if c == class || self.is_substituted(c) {
                let inside = self.answer.children(self.problem, c).iter();
                open.extend(inside.filter(|&&d| self.kernel[d] == self.kernel[c] && members.insert(d)));
            }
        }
        members
    }

    /// The edges that hold some members of a kernel together: their paths, as far as not all of them have it.
    fn links(&self, members: &BTreeSet<usize>) -> impl Iterator<Item = usize> {
        let mut passed: BTreeMap<usize, usize> = BTreeMap::new();
        for edge in members.iter().flat_map(|&c| self.path(c)) {
            *passed.entry(edge).or_default() += 1;
        }
        let count = members.len();
        passed.into_iter().filter(move |&(_, n)| n < count).map(|(edge, _)| edge)
    }
}

/// Cycles among nodes, whose numbers are below `count`: nodes, each followed by one that it has an arc to. One for each arc that closes a path of the depth-first search,
/// until they have as many nodes as there are; none only if there is no cycle.
fn find_cycles(nodes: &[usize], count: usize, arcs: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; count];
    let (mut cycles, mut length) = (vec![], 0);
    for &start in nodes {
        if state[start] != State::New {
            continue;
        }
        state[start] = State::Open;
        let mut path = vec![(start, arcs(start).into_iter())];
        while let Some((node, successors)) = path.last_mut() {
            let node = *node;
            match successors.next() {
                None => {
                    state[node] = State::Done;
                    path.pop();
                }
                Some(next) => match state[next] {
                    State::Done => {}
                    State::Open => {
                        let from = path.iter().rposition(|p| p.0 == next).unwrap_or(0);
                        length += path.len() - from;
                        cycles.push(path[from..].iter().map(|p| p.0).collect());
                        if length >= nodes.len() {
                            return cycles;
                        }
                    }
                    State::New => {
                        state[next] = State::Open;
                        path.push((next, arcs(next).into_iter()));
                    }
                },
            }
        }
    }
    cycles
}
