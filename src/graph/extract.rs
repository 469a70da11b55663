//! Extraction: the cheapest graph, by an ILP.
//!
//! In: an e-graph and the classes that are wanted. Out: one e-node for each class that is needed, without a cycle, and a
//! report. The ILP has a variable `x` for each e-node and `f` for each edge that fuses, and minimises
//!
//! ```text
//!   Σ cost(n)·x(n) − Σ saving(e)·f(e)
//!   Σ x(n) = 1                    over the e-nodes n of a wanted class
//!   x(n) ≤ Σ x(m)                 over the e-nodes m of each operand class of n
//!   f(p→n) ≤ x(p),  Σ f(p→n) ≤ x(n)     a node joins the kernel of one producer
//!   Σ x(n) ≤ |cycle| − 1          for each cycle that an answer had
//! ```
//!
//! Every row joins few variables and the relaxation is nearly always integral. The greedy answer, bottom-up with each class
//! counted once in a graph, is the start and the fallback; the better of the two is returned, and the answer of the ILP only
//! after every row was checked again in integers.

use crate::graph::cost::{self, Operand};
use crate::graph::define::kind;
use crate::graph::egraph::{Choice, Head, Network, Options, Term};
use crate::graph::ir::TensorType;
use crate::graph::op::{FusionKind, Op};
use crate::graph::{Error, Result, Target};
use egg::Id;
use good_lp::{Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, microlp, variable};
use std::collections::BTreeMap;

/// Share of the cost below which a better answer is not looked for.
const GAP: f64 = 1e-5;
/// Choices that branch and bound may have to make: it has no guarantee of time.
const MAX_OPEN: usize = 100;
/// Solutions of the ILP with cycles that are cut off before giving up.
const MAX_ROUNDS: usize = 20;

/// What the extraction did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Variables and rows of the ILP (0 when nothing was left to choose).
    pub variables: usize,
    pub rows: usize,
    /// Predicted time of the greedy answer and of the answer, in ns.
    pub greedy_ns: f64,
    pub chosen_ns: f64,
    /// The relaxation's lower bound, when the ILP was solved.
    pub bound_ns: Option<f64>,
    /// Cuts that were added because an answer had a cycle.
    pub cuts: usize,
    pub reason: String,
}

impl Report {
    /// How far the answer may be from the optimum of the model, as a share.
    pub fn gap(&self) -> Option<f64> {
        self.bound_ns.map(|b| (self.chosen_ns - b) / self.chosen_ns.max(1.0))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let gap = self.gap().map_or("unknown".to_string(), |g| format!("{:.2} %", g * 100.0));
        writeln!(
            f,
            "extraction: {:.1} us predicted (greedy {:.1} us), gap {gap}; ILP of {} variables, {} rows, {} cuts: {}",
            self.chosen_ns / 1e3,
            self.greedy_ns / 1e3,
            self.variables,
            self.rows,
            self.cuts,
            self.reason
        )
    }
}

/// Chooses an e-node for every class that the roots need.
pub fn extract(network: &Network, roots: &[Id], target: &Target, options: &Options) -> Result<(Choice, Report)> {
    let mut problem = Problem::new(network, roots, target)?;
    let greedy = problem.greedy()?;
    let greedy_ns = problem.total(&greedy);
    let mut report = Report { greedy_ns, chosen_ns: greedy_ns, ..Report::default() };
    let best = problem.solve(&greedy, options, &mut report)?;
    report.chosen_ns = problem.total(&best);
    let mut choice = Choice::new();
    for (class, node) in best.iter().enumerate() {
        if let Some(n) = node {
            choice.insert(problem.ids[class], problem.classes[class][*n].position);
        }
    }
    choice.extend(problem.constants);
    Ok((choice, report))
}

/// A candidate of a class.
struct Candidate {
    /// Position of the e-node in its class.
    position: usize,
    cost: f64,
    /// Another form of a value that there is already: a transposition, a reshape.
    converts: bool,
    /// Operand classes that are not constant, without repetition.
    children: Vec<usize>,
    fusions: Vec<Fusion>,
}

/// A producer in whose kernel a candidate may run, or that may run in the candidate's.
#[derive(Clone, Copy)]
struct Fusion {
    /// The producer: a class and the position of a candidate there.
    producer: (usize, usize),
    /// What it saves, in ns.
    saved: f64,
    /// The candidate is the anchor of the kernel: the producer then joins no kernel of a producer of its own, unless
    /// both are copies.
    prologue: bool,
    /// The producer only copies.
    copy: bool,
}

struct Problem {
    ids: Vec<Id>,
    classes: Vec<Vec<Candidate>>,
    roots: Vec<usize>,
    /// Choices in classes that are computed from constants only.
    constants: BTreeMap<Id, usize>,
}

/// Values of the variables: of each candidate of each class, and of each fusion in order.
struct Values {
    x: Vec<Vec<f64>>,
    f: Vec<f64>,
}

/// The chosen candidate of each class; `None` where the class is not needed.
type Answer = Vec<Option<usize>>;

impl Problem {
    fn new(network: &Network, roots: &[Id], target: &Target) -> Result<Problem> {
        let constants = choose_constants(network);
        let mut problem = Problem { ids: vec![], classes: vec![], roots: vec![], constants };
        // Classes in depth-first post-order: operands mostly before what uses them.
        let mut index: BTreeMap<Id, Option<usize>> = BTreeMap::new();
        let mut stack: Vec<(Id, bool)> = roots.iter().rev().map(|&r| (network.find(r), false)).collect();
        while let Some((id, done)) = stack.pop() {
            if done {
                index.insert(id, Some(problem.ids.len()));
                problem.ids.push(id);
                continue;
            }
            if index.contains_key(&id) || problem.constants.contains_key(&id) {
                continue;
            }
            index.insert(id, None);
            stack.push((id, true));
            let operands = network.terms(id).iter().filter(|t| network.is_current(t)).flat_map(|t| &t.children);
            stack.extend(operands.rev().map(|&c| (network.find(c), false)));
        }
        let class_of = |id: Id| index.get(&network.find(id)).copied().flatten();
        for &id in &problem.ids {
            let own = class_of(id);
            let mut list: Vec<Candidate> = vec![];
            let current = |(_, t): &(usize, &Term)| network.is_current(t);
            for (position, term) in network.terms(id).iter().enumerate().filter(current) {
                let mut children: Vec<usize> = term.children.iter().filter_map(|&c| class_of(c)).collect();
                children.sort_unstable();
                children.dedup();
                if own.is_some_and(|o| children.contains(&o)) {
                    continue;
                }
                let cost = term_cost(network, id, term, target);
                let converts = match &term.head {
                    Head::Op(op) => {
                        matches!(op, Op::Transpose { .. } | Op::Reshape { .. } | Op::Block { .. } | Op::Unblock { .. })
                    }
                    _ => false,
                };
                list.push(Candidate { position, cost, converts, children, fusions: vec![] });
            }
            problem.classes.push(list);
        }
        problem.add_fusions(network, target, &class_of);
        problem.roots = roots.iter().filter_map(|&r| class_of(r)).collect();
        problem.roots.sort_unstable();
        problem.roots.dedup();
        if problem.classes.iter().any(Vec::is_empty) {
            return Err(Error::Internal("a class of the e-graph needs itself".into()));
        }
        Ok(problem)
    }

    fn add_fusions(&mut self, network: &Network, target: &Target, class_of: &impl Fn(Id) -> Option<usize>) {
        // The values that are computed from each value.
        let (value, _) = self.forms();
        let mut users: Vec<Vec<usize>> = vec![vec![]; self.classes.len()];
        for (c, list) in self.classes.iter().enumerate() {
            for &d in list.iter().filter(|k| !k.converts).flat_map(|k| &k.children) {
                if !users[value[d]].contains(&value[c]) {
                    users[value[d]].push(value[c]);
                }
            }
        }
        for class in 0..self.classes.len() {
            let id = self.ids[class];
            for k in 0..self.classes[class].len() {
                let Term { head: Head::Op(op), children } = &network.terms(id)[self.classes[class][k].position] else {
                    continue;
                };
                let mut list: Vec<Fusion> = vec![];
                let prologue = kind(op) != FusionKind::Injective;
                for (position, &child) in children.iter().enumerate() {
                    let Some(c) = class_of(child) else { continue };
                    let sole = users[value[c]].len() == 1;
                    for (j, candidate) in self.classes[c].iter().enumerate() {
                        let Head::Op(producer) = &network.terms(child)[candidate.position].head else { continue };
                        let saved =
                            cost::fusion(producer, network.ty(child), sole, op, position, network.ty(id), target);
                        let known = list.iter().any(|f| f.producer == (c, j));
                        if let Some(saved) = saved.filter(|_| !known) {
                            let saved = saved.min(self.classes[class][k].cost);
                            let copy = matches!(producer, Op::Transpose { .. } | Op::Slice { .. } | Op::Expand { .. });
                            list.push(Fusion { producer: (c, j), saved, prologue, copy });
                        }
                    }
                }
                self.classes[class][k].fusions = list;
            }
        }
    }

    /// What a candidate costs when these candidates are chosen for its operands.
    fn cost_within(&self, candidate: &Candidate, answer: &[Option<usize>]) -> f64 {
        let chosen = |f: &&Fusion| answer[f.producer.0] == Some(f.producer.1);
        let epilogue = |candidate: &Candidate, copies: bool| {
            let joins = candidate.fusions.iter().filter(|f| !f.prologue && (copies || !f.copy)).filter(chosen);
            joins.map(|f| f.saved).fold(0.0, f64::max)
        };
        // A prologue gives up what it would save in the kernel of its own producer.
        let given_up = |f: &Fusion| epilogue(&self.classes[f.producer.0][f.producer.1], false);
        let prologue = candidate.fusions.iter().filter(|f| f.prologue).filter(chosen);
        let prologue = prologue.map(|f| f.saved - given_up(f)).fold(0.0, f64::max);
        candidate.cost - epilogue(candidate, true).max(prologue)
    }

    /// Bottom-up: the candidate whose graph, each class counted once, is cheapest.
    fn greedy(&self) -> Result<Answer> {
        let n = self.classes.len();
        let words = n.div_ceil(64);
        let mut answer: Answer = vec![None; n];
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
                for (k, candidate) in self.classes[class].iter().enumerate() {
                    if candidate.children.iter().any(|&c| answer[c].is_none() || has(&needs[c], class)) {
                        continue;
                    }
                    let mut set = vec![0u64; words];
                    for &c in &candidate.children {
                        set.iter_mut().zip(&needs[c]).for_each(|(a, b)| *a |= b);
                    }
                    let cost = self.cost_within(candidate, &answer);
                    let sum = cost + members(&set).map(|c| own[c]).sum::<f64>();
                    let better = sum < total[class] - 1e-3;
                    if better {
                        set[class / 64] |= 1 << (class % 64);
                        (answer[class], own[class], total[class], needs[class]) = (Some(k), cost, sum, set);
                        changed = true;
                    }
                }
            }
        }
        if self.roots.iter().any(|&r| answer[r].is_none()) {
            return Err(Error::Internal("the e-graph holds no graph without a cycle".into()));
        }
        let answer = self.reached(&answer);
        match self.cycle(&answer) {
            None => Ok(answer),
            Some(_) => Err(Error::Internal("the greedy extraction chose a cycle".into())),
        }
    }

    /// The answer without what the roots do not need.
    fn reached(&self, answer: &Answer) -> Answer {
        let mut out = vec![None; answer.len()];
        let mut stack = self.roots.clone();
        while let Some(class) = stack.pop() {
            if out[class].is_some() {
                continue;
            }
            out[class] = answer[class];
            if let Some(k) = answer[class] {
                stack.extend(&self.classes[class][k].children);
            }
        }
        out
    }

    fn total(&self, answer: &Answer) -> f64 {
        let chosen = answer.iter().enumerate().filter_map(|(c, k)| k.map(|k| &self.classes[c][k]));
        chosen.map(|candidate| self.cost_within(candidate, answer)).sum()
    }

    /// Classes on a cycle of the answer.
    fn cycle(&self, answer: &Answer) -> Option<Vec<usize>> {
        // 0 new, 1 on the path, 2 done.
        let mut state = vec![0u8; answer.len()];
        for &root in &self.roots {
            let mut path: Vec<(usize, usize)> = vec![];
            if state[root] == 0 {
                state[root] = 1;
                path.push((root, 0));
            }
            while let Some((class, next)) = path.last_mut() {
                let (class, position) = (*class, *next);
                *next += 1;
                let children = answer[class].map_or(&[][..], |k| &self.classes[class][k].children);
                match children.get(position) {
                    None => {
                        state[class] = 2;
                        path.pop();
                    }
                    Some(&c) if state[c] == 1 => {
                        let start = path.iter().position(|p| p.0 == c)?;
                        return Some(path[start..].iter().map(|p| p.0).collect());
                    }
                    Some(&c) if state[c] == 0 => {
                        state[c] = 1;
                        path.push((c, 0));
                    }
                    Some(_) => {}
                }
            }
        }
        None
    }
}

fn has(set: &[u64], class: usize) -> bool {
    set.get(class / 64).is_some_and(|w| w >> (class % 64) & 1 == 1)
}

fn members(set: &[u64]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(i, &word)| {
        std::iter::successors((word != 0).then_some(word), |w| Some(w & (w - 1)).filter(|&w| w != 0))
            .map(move |w| 64 * i + w.trailing_zeros() as usize)
    })
}

fn term_cost(network: &Network, class: Id, term: &Term, target: &Target) -> f64 {
    let Head::Op(op) = &term.head else { return 0.0 };
    let operands: Vec<Operand> =
        term.children.iter().map(|&c| Operand { ty: network.ty(c), constant: network.is_constant(c) }).collect();
    let Some(result) = network.facts(class).types.first() else { return 0.0 };
    // Between equal costs the smaller graph: an alias is not quite free.
    cost::node(op, &operands, result, target) + 1.0
}

/// For each class of constants the expression with the least to compute.
fn choose_constants(network: &Network) -> BTreeMap<Id, usize> {
    let mut best: BTreeMap<Id, (f64, usize)> = BTreeMap::new();
    let mut ids: Vec<Id> = network.egraph.classes().filter(|c| c.data.constant).map(|c| c.id).collect();
    ids.sort_unstable();
    let mut changed = true;
    while changed {
        changed = false;
        for &id in &ids {
            for (position, term) in network.terms(id).iter().enumerate() {
                let own = match &term.head {
                    Head::Constant(_) => 0.0,
                    Head::Op(Op::Reshape { .. }) => 1.0,
                    _ => 10.0 + network.facts(id).types.iter().map(TensorType::bytes).sum::<usize>() as f64,
                };
                let operands: Option<f64> =
                    term.children.iter().map(|&c| best.get(&network.find(c)).map(|b| b.0)).sum();
                let Some(operands) = operands else { continue };
                if best.get(&id).is_none_or(|b| own + operands < b.0) {
                    best.insert(id, (own + operands, position));
                    changed = true;
                }
            }
        }
    }
    best.into_iter().map(|(id, (_, position))| (id, position)).collect()
}

/// The ILP.
impl Problem {
    /// Solves the ILP when it is small enough, and returns the better of its answer and `greedy`.
    fn solve(&mut self, greedy: &Answer, options: &Options, report: &mut Report) -> Result<Answer> {
        if self.classes.iter().all(|c| c.len() == 1) {
            report.reason = "nothing to choose".into();
            report.bound_ns = Some(report.greedy_ns);
            return Ok(greedy.clone());
        }
        let size: usize = self.classes.iter().flatten().map(|c| 1 + c.fusions.len()).sum();
        if size > options.max_ilp_variables {
            report.reason = format!("greedy, because {size} variables exceed {}", options.max_ilp_variables);
            return Ok(greedy.clone());
        }
        let mut cuts: Vec<Vec<(usize, usize)>> = vec![];
        let mut best = greedy.clone();
        for _ in 0..MAX_ROUNDS {
            // The relaxation first: it is nearly always integral, and it bounds what an answer can gain.
            let relaxed = match self.solve_rows(&cuts, None, report) {
                Ok(values) => values,
                Err(e) => {
                    report.reason = format!("greedy, because the solver said: {e}");
                    return Ok(best);
                }
            };
            let bound = self.objective(&relaxed);
            report.bound_ns = Some(bound.min(report.greedy_ns));
            if report.greedy_ns - bound <= GAP * report.greedy_ns {
                report.reason = "the greedy answer is optimal".into();
                return Ok(best);
            }
            let open = relaxed.x.iter().flatten().filter(|&&v| v > 1e-6 && v < 1.0 - 1e-6).count();
            let solved = match open {
                0 => Ok(relaxed),
                _ if open > MAX_OPEN => {
                    report.reason = format!("greedy, because the relaxation leaves {open} choices open");
                    return Ok(best);
                }
                // Branch and bound over what the relaxation left open.
                _ => self.solve_rows(&cuts, Some(&relaxed), report),
            };
            let answer: Answer = match solved {
                Ok(values) => values.x.iter().map(|list| list.iter().position(|&v| v > 0.5)).collect(),
                Err(e) => {
                    report.reason = format!("greedy, because the solver said: {e}");
                    return Ok(best);
                }
            };
            if let Err(row) = self.verify(&answer) {
                report.reason = format!("greedy, because the solver's answer breaks a row: {row}");
                return Ok(best);
            }
            let answer = self.reached(&answer);
            if let Some(classes) = self.cycle(&answer) {
                cuts.push(classes.iter().filter_map(|&c| answer[c].map(|k| (c, k))).collect());
                report.cuts += 1;
                continue;
            }
            let total = self.total(&answer);
            let whole = if open == 0 { "the relaxation is integral" } else { "branch and bound" };
            if total < report.greedy_ns {
                best = answer;
                report.reason = format!("optimal ({whole})");
            } else {
                report.reason = format!("greedy is no worse ({whole})");
            }
            return Ok(best);
        }
        report.reason = "greedy, because the answers kept having cycles".into();
        Ok(best)
    }

    /// The objective of a solution of the rows.
    fn objective(&self, values: &Values) -> f64 {
        let mut total = 0.0;
        for (list, x) in self.classes.iter().zip(&values.x) {
            total += list.iter().zip(x).map(|(candidate, x)| candidate.cost * x).sum::<f64>();
        }
        let savings = self.classes.iter().flatten().flat_map(|candidate| &candidate.fusions).map(|f| f.saved);
        total - savings.zip(&values.f).map(|(saved, f)| saved * f).sum::<f64>()
    }

    /// Classes that stand for one value in several forms, joined by transpositions and reshapes: the number of each
    /// class's value, and the number of forms of each value.
    fn forms(&self) -> (Vec<usize>, Vec<usize>) {
        let mut least: Vec<usize> = (0..self.classes.len()).collect();
        fn find(least: &mut [usize], mut c: usize) -> usize {
            while least[c] != c {
                least[c] = least[least[c]];
                c = least[c];
            }
            c
        }
        for (c, list) in self.classes.iter().enumerate() {
            for &d in list.iter().filter(|k| k.converts).flat_map(|k| &k.children) {
                let (a, b) = (find(&mut least, c), find(&mut least, d));
                least[a.max(b)] = a.min(b);
            }
        }
        let mut forms = vec![0; self.classes.len()];
        let value: Vec<usize> = (0..self.classes.len()).map(|c| find(&mut least, c)).collect();
        value.iter().for_each(|&v| forms[v] += 1);
        (value, forms)
    }

    /// For each value those that every way to compute it computes as well (dominators), itself among them.
    fn required(&self, value: &[usize]) -> Vec<Vec<u64>> {
        let n = self.classes.len();
        let words = n.div_ceil(64);
        let mut ways: Vec<Vec<Vec<usize>>> = vec![vec![]; n];
        for (c, list) in self.classes.iter().enumerate() {
            for candidate in list.iter().filter(|k| !k.converts) {
                ways[value[c]].push(candidate.children.iter().map(|&d| value[d]).collect());
            }
        }
        let mut required = vec![vec![u64::MAX; words]; n];
        let mut changed = true;
        while changed {
            changed = false;
            for v in 0..n {
                let mut set = vec![u64::MAX; words];
                for way in &ways[v] {
                    let mut union = vec![0u64; words];
                    for &d in way {
                        union.iter_mut().zip(&required[d]).for_each(|(a, b)| *a |= b);
                    }
                    set.iter_mut().zip(&union).for_each(|(a, b)| *a &= b);
                }
                set[v / 64] |= 1 << (v % 64);
                if set != required[v] {
                    required[v] = set;
                    changed = true;
                }
            }
        }
        required
    }

    /// Solves the rows over continuous variables; or over integers, with what `relaxed` decided held fast.
    fn solve_rows(
        &self,
        cuts: &[Vec<(usize, usize)>],
        relaxed: Option<&Values>,
        report: &mut Report,
    ) -> std::result::Result<Values, ResolutionError> {
        let mut variables = ProblemVariables::new();
        let declare = |c: usize, k: usize| match relaxed.map(|r| &r.x[c]) {
            None => variable().min(0).max(1),
            Some(x) if x[k] > 1.0 - 1e-6 => variable().min(1).max(1),
            Some(x) if x.iter().all(|v| *v < 1e-6 || *v > 1.0 - 1e-6) => variable().min(0).max(0),
            Some(_) => variable().binary(),
        };
        let x: Vec<Vec<Variable>> = (0..self.classes.len())
            .map(|c| (0..self.classes[c].len()).map(|k| variables.add(declare(c, k))).collect())
            .collect();
        let mut joins: Vec<Variable> = vec![];
        // Sums of the fusions of each candidate with its producers, and fusions as a prologue, by the producer.
        let mut joined_by: BTreeMap<(usize, usize), Expression> = BTreeMap::new();
        let mut leads: Vec<((usize, usize), Variable)> = vec![];
        let mut objective = Expression::default();
        let mut rows = vec![];
        let sum = |class: usize| x[class].iter().sum::<Expression>();
        let (value, forms) = self.forms();
        let mut computed = vec![Expression::default(); forms.len()];
        // What is computed of value u needs value v in some form.
        let mut needs: BTreeMap<(usize, usize), Expression> = BTreeMap::new();
        for (c, list) in self.classes.iter().enumerate() {
            for (k, candidate) in list.iter().enumerate() {
                objective += candidate.cost * x[c][k];
                let mut others: Vec<usize> = candidate.children.iter().map(|&d| value[d]).collect();
                others.sort_unstable();
                others.dedup();
                if !candidate.converts {
                    computed[value[c]] += x[c][k];
                    for v in others {
                        *needs.entry((value[c], v)).or_default() += x[c][k];
                    }
                }
                for &d in &candidate.children {
                    if forms[value[d]] > 1 || value[d] == value[c] {
                        rows.push((sum(d) - x[c][k]).geq(0));
                    }
                }
                let mut joined = Expression::default();
                let mut joined_to = Expression::default();
                for &Fusion { producer: (d, j), saved, prologue, copy } in &candidate.fusions {
                    let f = variables.add(variable().min(0).max(1));
                    joins.push(f);
                    objective -= saved * f;
                    joined += f;
                    if !copy {
                        joined_to += f;
                    }
                    if prologue && self.classes[d][j].fusions.iter().any(|f| !f.prologue && !f.copy) {
                        leads.push(((d, j), f));
                    } else {
                        rows.push((x[d][j] - f).geq(0));
                    }
                }
                if !candidate.fusions.is_empty() {
                    rows.push((x[c][k] - joined).geq(0));
                    joined_by.insert((c, k), joined_to);
                }
            }
            if list.len() > 1 {
                rows.push(sum(c).leq(1));
            }
        }
        for (p, f) in leads {
            let joined = joined_by.get(&p).cloned().unwrap_or_default();
            rows.push((x[p.0][p.1] - joined - f).geq(0));
        }
        for &r in &self.roots {
            rows.push(sum(r).eq(1));
        }
        for cut in cuts {
            let all: Expression = cut.iter().map(|&(c, k)| x[c][k]).sum();
            rows.push(all.leq(cut.len() as f64 - 1.0));
        }
        for (c, &v) in value.iter().enumerate().filter(|(_, v)| forms[**v] > 1) {
            rows.push((computed[v].clone() - sum(c)).geq(0));
        }
        for ((_, v), all) in needs {
            rows.push((computed[v].clone() - all).geq(0));
        }
        let required = self.required(&value);
        let always = |v: usize| self.roots.iter().any(|&r| has(&required[value[r]], v));
        for (v, all) in computed.iter().enumerate().filter(|(v, _)| forms[*v] > 0) {
            if always(v) {
                rows.push(all.clone().eq(1));
                continue;
            }
            rows.push(all.clone().leq(1));
            for u in members(&required[v]).filter(|&u| u != v && !always(u)) {
                rows.push((computed[u].clone() - all.clone()).geq(0));
            }
        }
        report.variables = self.classes.iter().flatten().map(|c| 1 + c.fusions.len()).sum();
        report.rows = rows.len();
        let mut model = variables.minimise(objective.clone()).using(microlp);
        for row in rows {
            model = model.with(row);
        }
        let solution = model.solve()?;
        let x = x.iter().map(|list| list.iter().map(|&v| solution.value(v)).collect()).collect();
        Ok(Values { x, f: joins.iter().map(|&v| solution.value(v)).collect() })
    }

    /// Checks an answer against the rows, in integers.
    fn verify(&self, answer: &Answer) -> std::result::Result<(), String> {
        if let Some(r) = self.roots.iter().find(|&&r| answer[r].is_none()) {
            return Err(format!("nothing is chosen for root {r}"));
        }
        for (class, k) in answer.iter().enumerate() {
            let Some(k) = k else { continue };
            if let Some(c) = self.classes[class][*k].children.iter().find(|&&c| answer[c].is_none()) {
                return Err(format!("class {class} needs class {c}"));
            }
        }
        Ok(())
    }
}
