//! The greedy answer: it starts the ILP, bounds it from above, and stands where the ILP may not be solved.
//!
//! In: a [`Problem`] and its rows. Out: values of the variables that satisfy every row and need no cut. Bottom-up, each
//! class takes the candidate whose graph, each class counted once, is cheapest; then edges and views join kernels, what
//! saves most first.

use crate::graph::extract::kernels::{Answer, cuts};
use crate::graph::extract::problem::{Problem, Site, has, members};
use crate::graph::extract::rows::Rows;
use crate::graph::{Error, Result};

/// Values of the variables. Adds the cuts that were needed to the rows.
pub fn solve(problem: &Problem, rows: &mut Rows) -> Result<Vec<bool>> {
    let chosen = choose_once(problem)?;
    let mut values = vec![false; rows.program.cost.len()];
    for (class, k) in chosen.iter().enumerate() {
        if let Some(k) = k {
            values[rows.x[class][*k]] = true;
        }
    }
    rows.w.keys().for_each(|&s| rows.store_if_read(problem, &mut values, s));
    let mut moves: Vec<(f64, usize, usize)> = vec![];
    let storage = &problem.storage;
    moves.extend(problem.edges.iter().zip(&rows.f).map(|(e, &f)| (e.saved, f, storage[e.producer.0])));
    moves.extend(rows.a.iter().map(|(&s, &a)| (problem.candidate(s).through.unwrap_or(0.0), a, storage[s.0])));
    moves.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    loop {
        let mut concerned: Vec<Vec<usize>> = vec![vec![]; values.len()];
        for (i, row) in rows.program.rows.iter().enumerate() {
            row.terms.iter().for_each(|t| concerned[t.0].push(i));
        }
        let mut moved = true;
        while moved {
            moved = false;
            for &(_, variable, s) in &moves {
                let Some(&w) = rows.w.get(&s).filter(|_| !values[variable]) else { continue };
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
        for row in &new {
            // The last of the edges is given up: it saves least.
            let edges = moves.iter().rev().filter(|m| row.terms.contains(&(m.1, -1)) && values[m.1]);
            let Some(&(_, variable, s)) = edges.into_iter().next() else {
                return Err(Error::Internal("the greedy extraction chose a cycle".into()));
            };
            values[variable] = false;
            rows.store_if_read(problem, &mut values, s);
        }
        rows.program.rows.extend(new);
    }
    match rows.program.rows.iter().find(|row| !row.holds(&values)) {
        Some(row) => Err(Error::Internal(format!("the greedy extraction breaks {row:?}"))),
        None => Ok(values),
    }
}

impl Rows {
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
fn choose_once(problem: &Problem) -> Result<Vec<Option<usize>>> {
    let mut banned: Vec<Vec<bool>> = problem.classes.iter().map(|list| vec![false; list.len()]).collect();
    loop {
        let chosen = choose(problem, &banned)?;
        let mut computed: Vec<Option<Site>> = vec![None; chosen.len()];
        let mut again = false;
        for (class, k) in chosen.iter().enumerate() {
            let Some(site) = k.map(|k| (class, k)).filter(|&s| !problem.candidate(s).converts) else { continue };
            let Some(other) = computed[problem.value[class]].replace(site) else { continue };
            let replaceable = |s: &&Site| (0..problem.classes[s.0].len()).any(|k| k != s.1 && !banned[s.0][k]);
            let dearest = |a: &&Site, b: &&Site| problem.candidate(**a).cost.total_cmp(&problem.candidate(**b).cost);
            let Some(&(c, k)) = [site, other].iter().filter(replaceable).max_by(dearest) else { continue };
            banned[c][k] = true;
            again = true;
            break;
        }
        if !again {
            return Ok(chosen);
        }
    }
}

/// Bottom-up: the candidate that is not banned and whose graph, each class counted once, is cheapest.
fn choose(problem: &Problem, banned: &[Vec<bool>]) -> Result<Vec<Option<usize>>> {
    let n = problem.classes.len();
    let words = n.div_ceil(64);
    let savings = Savings::new(problem);
    let mut answer: Vec<Option<usize>> = vec![None; n];
    let mut own = vec![0f64; n];
    let mut total = vec![f64::INFINITY; n];
    let mut needs: Vec<Vec<u64>> = vec![vec![]; n];
    let mut changed = true;
    // Each pass can only lower totals; the number of passes is limited for certainty.
    for _ in 0..2 * n + 2 {
        if !changed {
            break;
        }
        changed = false;
        for class in 0..n {
            for (k, candidate) in problem.classes[class].iter().enumerate() {
                let open = |&c: &usize| answer[c].is_none() || has(&needs[c], class);
                if banned[class][k] || candidate.children.iter().any(open) {
                    continue;
                }
                let mut set = vec![0u64; words];
                for &c in &candidate.children {
                    set.iter_mut().zip(&needs[c]).for_each(|(a, b)| *a |= b);
                }
                let cost = candidate.cost + candidate.write - savings.of((class, k), &answer);
                let sum = cost + members(&set).map(|c| own[c]).sum::<f64>();
                if sum < total[class] - 1e-3 {
                    set[class / 64] |= 1 << (class % 64);
                    (answer[class], own[class], total[class], needs[class]) = (Some(k), cost, sum, set);
                    changed = true;
                }
            }
        }
    }
    let mut needed = vec![None; n];
    let mut stack = problem.roots.clone();
    while let Some(class) = stack.pop() {
        let Some(k) = answer[class] else {
            return Err(Error::Internal("the e-graph holds no graph without a cycle".into()));
        };
        if needed[class].is_none() {
            needed[class] = Some(k);
            stack.extend(&problem.classes[class][k].children);
        }
    }
    Ok(needed)
}

/// What a candidate saves at best in one kernel with the producer of an operand.
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
