//! Greedy extraction: the start of the ILP, its upper bound, and the answer where the ILP is not solved.
//!
//! In: a [`Problem`] and its rows. Out: values of the variables that satisfy every row and need no cut. Bottom-up, each
//! class takes the candidate whose graph, each class counted once, is cheapest; then candidates are exchanged as long as
//! the graph of the roots becomes cheaper (`exchange.rs`); then edges and views join kernels, the largest saving first.

use crate::graph::extract::candidate::Site;
use crate::graph::extract::constraint_set::Constraints;
use crate::graph::extract::exchange::Exchange;
use crate::graph::extract::kernels::{Answer, cuts};
use crate::graph::extract::problem::Problem;
use crate::graph::extract::program::Constraint;
use crate::graph::extract::required::Bands;
use crate::graph::extract::work;
use crate::runtime::{Error, Result};
use std::collections::BTreeSet;

/// Largest number of passes of the bottom-up choice. Unmeasured.
const MAX_PASSES: usize = 32;
/// Largest number of rows that moves are checked against: a value with many readers is in a row for each of them. Unmeasured.
const MAX_CHECKS: usize = 50_000_000;
/// Number of times that edges are taken again after some were given up for cuts. No network that was measured needs one.
const MAX_RETRIES: usize = 16;

/// A candidate for each class, needed or not, without a cycle.
pub struct Greedy {
    pub chosen: Vec<Option<usize>>,
    /// Classes, each after those that its candidate reads.
    order: Vec<usize>,
}

/// The greedy choice, and values of the variables for it. Adds the cuts that were needed to the rows.
pub fn solve(problem: &Problem, rows: &mut Constraints) -> Result<(Greedy, Vec<bool>)> {
    let mut greedy = choose_once(problem)?;
    let savings = Savings::new(problem);
    let mut exchange = Exchange::new(problem, &greedy.chosen);
    exchange.run(&|site, answer| {
        let candidate = problem.candidate(site);
        candidate.cost + candidate.write - savings.of(site, answer)
    });
    greedy = Greedy::acyclic(problem, &exchange.chosen, &greedy);
    let values = fuse(problem, rows, &greedy.chosen, None, &mut { usize::MAX })?;
    Ok((greedy, values))
}

/// The candidates of an answer of the program as a legal answer: where they lie on a cycle the greedy ones stand for them,
/// and as many of the edges as are legal join kernels. `None` when the candidates do not fit
/// together then, or when that takes more than `rounds` of cuts.
pub fn mend(
    problem: &Problem,
    rows: &mut Constraints,
    greedy: &Greedy,
    answer: &Answer,
    values: &[bool],
    rounds: &mut usize,
) -> Option<Vec<bool>> {
    let chosen = Greedy::acyclic(problem, &greedy.completed(answer), greedy).chosen;
    fuse(problem, rows, &chosen, Some(values), rounds).ok()
}

/// The answer with candidates exchanged for those with fewer multiply-adds; `None` when it still has more than `budget`.
pub fn with_less_work(
    problem: &Problem,
    rows: &mut Constraints,
    greedy: &Greedy,
    answer: &Answer,
    budget: u64,
) -> Option<Vec<bool>> {
    let mut exchange = Exchange::new(problem, &greedy.completed(answer));
    exchange.run(&|site, _| work::of_term(problem.network, problem.ids[site.0], problem.term(site)) as f64);
    let chosen = Greedy::acyclic(problem, &exchange.chosen, greedy).chosen;
    let values = fuse(problem, rows, &chosen, None, &mut { usize::MAX }).ok()?;
    (work::of(problem, &chosen) <= budget).then_some(values)
}

/// Values of the variables for chosen candidates, of which those count that the roots need. Edges and views of `first` are
/// taken before others. Each round of cuts takes one of `rounds`.
pub fn fuse(
    problem: &Problem,
    rows: &mut Constraints,
    chosen: &[Option<usize>],
    first: Option<&[bool]>,
    rounds: &mut usize,
) -> Result<Vec<bool>> {
    let mut values = vec![false; rows.program.cost.len()];
    let mut stack = problem.roots.clone();
    while let Some(class) = stack.pop() {
        let Some(k) = chosen[class] else {
            return Err(Error::Internal("the e-graph holds no graph without a cycle".into()));
        };
        if !std::mem::replace(&mut values[rows.x[class][k]], true) {
            stack.extend(&problem.classes[class][k].children);
        }
    }
    rows.w.keys().for_each(|&s| rows.store_if_read(problem, &mut values, s));
    let moves = moves(problem, rows, first);
    let (mut place, mut concerned) = (vec![None; values.len()], vec![vec![]; values.len()]);
    moves.iter().enumerate().for_each(|(i, m)| place[m.1] = Some(i));
    let mut checks = 0;
    concern(&mut concerned, &rows.program.rows, 0);
    // Rows that may not hold since values were given up.
    let mut doubtful = BTreeSet::new();
    for round in 0.. {
        *rounds = rounds.checked_sub(1).ok_or_else(|| Error::Limit("the cuts of an answer took all rounds".into()))?;
        let mut moved = round <= MAX_RETRIES;
        while moved {
            moved = false;
            for &(_, variable, s) in &moves {
                let Some(&w) = rows.w.get(&s).filter(|_| !values[variable] && checks < MAX_CHECKS) else { continue };
                checks += 1 + concerned[variable].len() + concerned[w].len();
                let stored = values[w];
                values[variable] = true;
                rows.store_if_read(problem, &mut values, s);
                let written = f64::from(u8::from(values[w])) - f64::from(u8::from(stored));
                let better = rows.program.cost[variable] + rows.program.cost[w] * written < 0.0;
                let touched = concerned[variable].iter().chain(&concerned[w]);
                if better && touched.into_iter().all(|&i| rows.program.rows[i].holds(&values)) {
                    moved = true;
                } else {
                    values[variable] = false;
                    values[w] = stored;
                }
            }
        }
        let new = cuts(problem, rows, &values, &Answer::new(problem, rows, &values));
        if new.is_empty() {
            break;
        }
        // One edge of each cut is given up while others may take its place, then ever more.
        let count = 1 << round.saturating_sub(MAX_RETRIES).min(16);
        for row in &new {
            // An edge that was given up for another cut may satisfy this one.
            if row.holds(&values) {
                continue;
            }
            let edges: Vec<usize> = row.terms.iter().filter(|t| values[t.0]).filter_map(|t| place[t.0]).collect();
            if edges.is_empty() {
                return Err(Error::Internal("the greedy extraction chose a cycle".into()));
            }
            for edge in given_up(edges, &moves, count) {
                let (_, variable, s) = moves[edge];
                values[variable] = false;
                rows.store_if_read(problem, &mut values, s);
                doubtful.extend(concerned[variable].iter().chain(&concerned[rows.w[&s]]));
            }
        }
        leave_stored(problem, rows, &moves, &place, &concerned, &mut doubtful, &mut values);
        let known = rows.program.rows.len();
        doubtful.extend(known..known + new.len());
        rows.program.rows.extend(new);
        concern(&mut concerned, &rows.program.rows, known);
    }
    match rows.program.rows.iter().find(|row| !row.holds(&values)) {
        Some(row) => Err(Error::Internal(format!("the greedy extraction breaks {row:?}"))),
        None => Ok(values),
    }
}

/// Edges and views with their savings, variables and the tensors that they read: those of `first`, then the largest savings.
fn moves(problem: &Problem, rows: &Constraints, first: Option<&[bool]>) -> Vec<(f64, usize, usize)> {
    let mut moves: Vec<(f64, usize, usize)> = vec![];
    let storage = &problem.storage;
    moves.extend(problem.edges.iter().zip(&rows.f).map(|(e, &f)| (e.saved, f, storage[e.producer.0])));
    moves.extend(rows.a.iter().map(|(&s, &a)| (problem.candidate(s).through.unwrap_or(0.0), a, storage[s.0])));
    let early = |v: usize| first.is_some_and(|f| f[v]);
    moves.sort_by(|a, b| early(b.1).cmp(&early(a.1)).then(b.0.total_cmp(&a.0)).then(a.1.cmp(&b.1)));
    moves
}

/// Lists the rows from `first` on with each variable in them.
fn concern(concerned: &mut [Vec<usize>], rows: &[Constraint], first: usize) {
    for (i, row) in rows.iter().enumerate().skip(first) {
        row.terms.iter().for_each(|t| concerned[t.0].push(i));
    }
}

/// Gives up the joins that need a value out of memory which is stored by now, since another join of it was given up: those in
/// the `doubtful` rows, and in the rows that become doubtful by it.
fn leave_stored(
    problem: &Problem,
    rows: &Constraints,
    moves: &[(f64, usize, usize)],
    place: &[Option<usize>],
    concerned: &[Vec<usize>],
    doubtful: &mut BTreeSet<usize>,
    values: &mut [bool],
) {
    while let Some(row) = doubtful.pop_first().map(|i| &rows.program.rows[i]) {
        let edge = row.terms.iter().filter(|t| t.1 < 0 && values[t.0]).find_map(|t| place[t.0]);
        if let Some(edge) = edge.filter(|_| !row.holds(values)) {
            let (_, variable, s) = moves[edge];
            values[variable] = false;
            rows.store_if_read(problem, values, s);
            doubtful.extend(concerned[variable].iter().chain(&concerned[rows.w[&s]]));
        }
    }
}

/// The `count` edges of a cut that are given up. One is the edge that saves least; several stand evenly among those that save
/// at most what the median does, so that the pieces of a kernel that is too large have about one size.
fn given_up(mut edges: Vec<usize>, moves: &[(f64, usize, usize)], count: usize) -> Vec<usize> {
    edges.sort_unstable();
    if count == 1 {
        return edges.last().copied().into_iter().collect();
    }
    let median = moves[edges[edges.len() / 2]].0;
    edges.retain(|&e| moves[e].0 <= median);
    edges.sort_unstable_by_key(|&e| moves[e].1);
    let mut places: Vec<usize> = (1..=count).map(|i| i * edges.len() / (count + 1)).collect();
    places.dedup();
    places.into_iter().map(|i| edges[i]).collect()
}

impl Constraints {
    /// Stores a tensor exactly if the rows ask for it.
    fn store_if_read(&self, problem: &Problem, values: &mut [bool], storage: usize) {
        let w = self.w[&storage];
        let mut asking = self.stores.get(&storage).into_iter().flatten();
        values[w] = false;
        values[w] = problem.roots.iter().any(|&r| problem.storage[r] == storage)
            || asking.any(|&i| !self.program.rows[i].holds(values));
    }
}

/// The choice in which no value is computed twice in different forms: where one is, the dearer way is not allowed and the
/// choice made again.
fn choose_once(problem: &Problem) -> Result<Greedy> {
    let mut banned: Vec<Vec<bool>> = problem.classes.iter().map(|list| vec![false; list.len()]).collect();
    loop {
        let greedy = choose(problem, &banned)?;
        let mut computed: Vec<Option<Site>> = vec![None; banned.len()];
        let mut again = false;
        for (class, k) in needed(problem, &greedy.chosen)?.into_iter().enumerate() {
            let Some(site) = k.map(|k| (class, k)).filter(|&s| !problem.candidate(s).converts) else { continue };
            let Some(other) = computed[problem.value[class]].replace(site) else { continue };
            let replaceable = |s: &&Site| (0..problem.classes[s.0].len()).any(|k| k != s.1 && !banned[s.0][k]);
            let dearest = |a: &&Site, b: &&Site| problem.candidate(**a).cost.total_cmp(&problem.candidate(**b).cost);
            let Some(&(c, k)) = [site, other].iter().filter(replaceable).max_by(dearest) else { continue };
            banned[c][k] = true;
            again = true;
        }
        if !again {
            return Ok(greedy);
        }
    }
}

/// Returns the choices for the classes that the roots need.
fn needed(problem: &Problem, chosen: &[Option<usize>]) -> Result<Vec<Option<usize>>> {
    let mut needed = vec![None; chosen.len()];
    let mut stack = problem.roots.clone();
    while let Some(class) = stack.pop() {
        let Some(k) = chosen[class] else {
            return Err(Error::Internal("the e-graph holds no graph without a cycle".into()));
        };
        if needed[class].is_none() {
            needed[class] = Some(k);
            stack.extend(&problem.classes[class][k].children);
        }
    }
    Ok(needed)
}

/// Bottom-up: the candidate that is not banned and whose graph, each class counted once, is cheapest. Graphs are compared
/// as far as the sets of classes reach.
fn choose(problem: &Problem, banned: &[Vec<bool>]) -> Result<Greedy> {
    let n = problem.classes.len();
    let savings = Savings::new(problem);
    let mut answer: Vec<Option<usize>> = vec![None; n];
    let mut start = Greedy { chosen: vec![None; n], order: vec![] };
    let mut alone = vec![0f64; n];
    let mut total = vec![f64::INFINITY; n];
    let mut needs = Bands::new(n, 0);
    let mut set = vec![0u64; needs.width];
    let mut changed = true;
    for _ in 0..MAX_PASSES {
        if !std::mem::replace(&mut changed, false) {
            break;
        }
        for class in 0..n {
            let list = &problem.classes[class];
            for (k, candidate) in list.iter().enumerate() {
                let open = |&c: &usize| answer[c].is_none() || needs.has(c, class);
                if banned[class][k] || candidate.children.iter().any(open) {
                    continue;
                }
                set.fill(0);
                candidate.children.iter().for_each(|&c| needs.unite(c, class, &mut set));
                let cost = candidate.cost + candidate.write - savings.of((class, k), &answer);
                // A sole candidate is compared with nothing: what it costs does not matter here.
                let sole = list.len() == 1;
                if sole && answer[class].is_some() {
                    needs.mark(class, &mut set);
                    alone[class] = cost;
                    changed |= needs.put(class, &set);
                    continue;
                }
                let sum = if sole { 0.0 } else { cost + needs.list(class, &set).map(|c| alone[c]).sum::<f64>() };
                if sum < total[class] - 1e-3 {
                    needs.mark(class, &mut set);
                    (answer[class], alone[class], total[class]) = (Some(k), cost, sum);
                    needs.put(class, &set);
                    changed = true;
                    if start.chosen[class].is_none() {
                        start.chosen[class] = Some(k);
                        start.order.push(class);
                    }
                }
            }
        }
    }
    Ok(Greedy::acyclic(problem, &answer, &start))
}

impl Greedy {
    /// The candidates of an answer, and the greedy one of each class that it does not need.
    fn completed(&self, answer: &Answer) -> Vec<Option<usize>> {
        answer.chosen.iter().zip(&self.chosen).map(|(a, b)| a.or(*b)).collect()
    }

    /// The `preferred` candidates, with those of `other` where they lie on a cycle.
    pub fn acyclic(problem: &Problem, preferred: &[Option<usize>], other: &Greedy) -> Greedy {
        let n = preferred.len();
        let mut out = Greedy { chosen: vec![None; n], order: vec![] };
        let mut missing = vec![usize::MAX; n];
        let mut users: Vec<Vec<usize>> = vec![vec![]; n];
        let mut ready = vec![];
        for (class, k) in preferred.iter().enumerate() {
            let Some(k) = *k else { continue };
            let children = &problem.classes[class][k].children;
            missing[class] = children.len();
            children.iter().for_each(|&c| users[c].push(class));
            if children.is_empty() {
                ready.push((class, k));
            }
        }
        let mut remaining = other.order.iter();
        loop {
            while let Some((class, k)) = ready.pop() {
                if out.chosen[class].is_some() {
                    continue;
                }
                out.chosen[class] = Some(k);
                out.order.push(class);
                for &user in &users[class] {
                    missing[user] -= 1;
                    ready.extend(preferred[user].filter(|_| missing[user] == 0).map(|k| (user, k)));
                }
            }
            // All that stands before the first open class in the other order is done: so are its operands there.
            let Some(&class) = remaining.find(|&&c| out.chosen[c].is_none()) else { return out };
            ready.extend(other.chosen[class].map(|k| (class, k)));
        }
    }
}

/// Largest savings of a candidate in one kernel with the producer of an operand.
struct Savings {
    /// For each candidate: the producer, the savings, and whether the producer goes to the candidate's kernel.
    with: Vec<Vec<Vec<(Site, f64, bool)>>>,
}

impl Savings {
    fn new(problem: &Problem) -> Savings {
        let mut with: Vec<Vec<Vec<(Site, f64, bool)>>> =
            problem.classes.iter().map(|list| vec![vec![]; list.len()]).collect();
        // The values that are computed from each value.
        let mut users: Vec<Vec<usize>> = vec![vec![]; problem.classes.len()];
        for (c, list) in problem.classes.iter().enumerate() {
            for &d in list.iter().filter(|k| !k.converts).flat_map(|k| &k.children) {
                if !users[problem.value[d]].contains(&problem.value[c]) {
                    users[problem.value[d]].push(problem.value[c]);
                }
            }
        }
        let unwritten = |site: Site| {
            let sole = users[problem.value[site.0]].len() == 1;
            if sole { problem.candidate(site).write } else { 0.0 }
        };
        for e in &problem.edges {
            let leads = problem.leads_reduction(e);
            with[e.reader.0][e.reader.1].push((e.producer, e.saved + unwritten(e.producer), leads));
        }
        for (c, list) in problem.classes.iter().enumerate() {
            for k in 0..list.len() {
                for &d in &list[k].children {
                    for j in 0..problem.classes[d].len() {
                        if let Some(saved) = problem.classes[d][j].through
                            && problem.is_read_through((d, j), (c, k))
                        {
                            with[c][k].push(((d, j), saved + unwritten((d, j)), true));
                        }
                    }
                }
            }
        }
        Savings { with }
    }

    fn of(&self, site: Site, answer: &[Option<usize>]) -> f64 {
        let best = |site: Site, leading: bool| {
            let list = self.with[site.0][site.1].iter().filter(move |w| leading || !w.2);
            list.filter(|(p, ..)| answer[p.0] == Some(p.1))
        };
        // What leads the kernel gives up what it would save in the kernel of its own producer.
        let given_up = |p: Site| best(p, false).map(|w| w.1).fold(0.0, f64::max);
        let net = best(site, true).map(|&(p, saved, leads)| if leads { saved - given_up(p) } else { saved });
        net.fold(0.0, f64::max)
    }
}
