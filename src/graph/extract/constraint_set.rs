//! The integer program: 0-1 variables, their costs, and rows that an answer must satisfy.
//!
//! In: a [`Problem`]. Out: [`Constraints`]. The variables are
//!
//! ```text
//!   x(n)    e-node n is computed
//!   f(e)    the two ends of edge e run in one kernel
//!   a(n)    view n has no kernel: its readers read through it
//!   w(v)    value v goes to memory
//!
//!   minimise  Σ cost(n)·x(n) + Σ write(v)·w(v) − Σ saved(e)·f(e) − Σ saved(n)·a(n)
//! ```
//!
//! and the rows, for every class v, candidate n, edge e = p→n that runs the reader after its producer (A) or the producer
//! before its reader (B):
//!
//! ```text
//!   Σ x(roots) = 1,   x(n) ≤ Σ x(operand of n)         operands of computed nodes are computed
//!   Σ A(·→n) + Σ B(n→·) + a(n) ≤ x(n)                  a node has one place: kernels are trees
//!   Σ A(p→·) + a(p) ≤ x(p)     for each class read     it joins a computed node with a kernel
//!   B(p→n) + Σ A(·→n) + a(n) ≤ x(n)                    of A(p→n) alone where p and n are elementwise
//!   w(v) ≥ Σ x(n) − Σ f(v→n) − Σ a(v)   for each reading class: a value that some reader takes from memory is there
//!   f(e) ≤ w(v) or f(e) + w(v) ≤ 1                     as the join requires
//!   a(p) ≤ 1 − x(n) + a(n)                             for readers n that cannot read through p
//! ```
//!
//! Constraints beyond these (a value computed once, dominators, pairs of edges) only tighten the relaxation or forbid kernels that
//! `kernels.rs` refuses.

use crate::graph::extract::candidate::{Candidate, Edge, Site};
use crate::graph::extract::problem::Problem;
use crate::graph::extract::program::{BinaryProgram, Constraint};
use crate::graph::fusion::{Stored, Way, before_reduction};
use crate::graph::op::Op;
use std::collections::BTreeMap;

/// The integer program, with costs in ns, and the meaning of its variables.
#[derive(Default)]
pub struct Constraints {
    pub program: BinaryProgram,
    /// The variable of each candidate of each class.
    pub x: Vec<Vec<usize>>,
    /// Of each edge.
    pub f: Vec<usize>,
    /// Of each view.
    pub a: BTreeMap<Site, usize>,
    /// Of each tensor in memory that may stay inside a kernel.
    pub w: BTreeMap<usize, usize>,
    /// For each of these the rows that ask for it.
    pub stores: BTreeMap<usize, Vec<usize>>,
}

/// A row under construction.
#[derive(Clone, Default)]
struct Sum(Vec<(usize, i32)>);

impl Sum {
    fn plus(mut self, variables: impl IntoIterator<Item = usize>) -> Sum {
        self.0.extend(variables.into_iter().map(|v| (v, 1)));
        self
    }
    fn minus(mut self, variables: impl IntoIterator<Item = usize>) -> Sum {
        self.0.extend(variables.into_iter().map(|v| (v, -1)));
        self
    }
}

impl Constraints {
    pub fn new(problem: &Problem) -> Constraints {
        let mut rows = Constraints::variables(problem);
        rows.choose(problem);
        rows.place(problem);
        rows.store(problem);
        rows.view(problem);
        rows.pair(problem);
        rows
    }

    fn variables(problem: &Problem) -> Constraints {
        let mut out = Constraints::default();
        let mut held = vec![false; problem.classes.len()];
        problem.edges.iter().for_each(|e| held[problem.storage[e.producer.0]] = true);
        for (c, list) in problem.classes.iter().enumerate() {
            held[problem.storage[c]] |= list.iter().any(|k| k.through.is_some() && !k.is_alias());
        }
        for (c, list) in problem.classes.iter().enumerate() {
            let written = |k: &Candidate| if held[problem.storage[c]] { 0.0 } else { k.write };
            let of_class = list.iter().map(|k| out.variable(k.cost + written(k))).collect();
            out.x.push(of_class);
        }
        for (c, list) in problem.classes.iter().enumerate() {
            for (k, candidate) in list.iter().enumerate() {
                if let Some(saved) = candidate.through {
                    let a = out.variable(-saved);
                    out.a.insert((c, k), a);
                }
            }
        }
        let mut write = vec![0f64; held.len()];
        for (c, list) in problem.classes.iter().enumerate() {
            let most = list.iter().map(|k| k.write).fold(0.0, f64::max);
            write[problem.storage[c]] = write[problem.storage[c]].max(most);
        }
        for s in (0..held.len()).filter(|&s| held[s]) {
            let w = out.variable(write[s]);
            out.w.insert(s, w);
        }
        out.f = problem.edges.iter().map(|e| out.variable(-e.saved)).collect();
        out
    }

    fn variable(&mut self, cost: f64) -> usize {
        self.program.cost.push(cost);
        self.program.cost.len() - 1
    }

    fn at_least(&mut self, sum: Sum, least: i32) {
        self.program.rows.push(Constraint { terms: sum.0, least, equal: false });
    }

    fn at_most(&mut self, sum: Sum, most: i32) {
        self.at_least(Sum::default().minus(sum.0.into_iter().map(|t| t.0)), -most);
    }

    fn equal(&mut self, sum: Sum, to: i32) {
        self.program.rows.push(Constraint { terms: sum.0, least: to, equal: true });
    }

    /// Adds the rows that give computed nodes their operands and compute each value once.
    fn choose(&mut self, problem: &Problem) {
        let Problem { value, forms, .. } = problem;
        let of = |rows: &Constraints, class: usize| rows.x[class].clone();
        let mut computed = vec![vec![]; value.len()];
        // For each value the ways to compute it, with the values that each reads.
        let required = &problem.required;
        let mut ways: Vec<Vec<(usize, Vec<usize>)>> = vec![vec![]; value.len()];
        for (c, list) in problem.classes.iter().enumerate() {
            for (k, candidate) in list.iter().enumerate() {
                let x = self.x[c][k];
                if !candidate.converts {
                    computed[value[c]].push(x);
                    ways[value[c]].push((x, candidate.children.iter().map(|&d| value[d]).collect()));
                }
                for &d in &candidate.children {
                    if forms[value[d]] > 1 || value[d] == value[c] {
                        self.at_least(Sum::default().plus(of(self, d)).minus([x]), 0);
                    }
                }
            }
            if list.len() > 1 {
                self.at_most(Sum::default().plus(of(self, c)), 1);
            }
        }
        for &r in &problem.roots {
            self.equal(Sum::default().plus(of(self, r)), 1);
        }
        for (c, &v) in value.iter().enumerate().filter(|(_, v)| forms[**v] > 1) {
            self.at_least(Sum::default().plus(computed[v].clone()).minus(of(self, c)), 0);
        }
        for list in &ways {
            let mut needed: Vec<usize> = list.iter().flat_map(|way| way.1.iter().copied()).collect();
            needed.sort_unstable();
            needed.dedup();
            for v in needed {
                let uses = |way: &&(usize, Vec<usize>)| way.1.contains(&v) || way.1.iter().any(|&d| required.has(d, v));
                let users = list.iter().filter(uses).map(|way| way.0);
                self.at_least(Sum::default().plus(computed[v].clone()).minus(users), 0);
            }
        }
        let sole = |v: usize| match &ways[v][..] {
            [(_, reads)] => reads.clone(),
            _ => vec![],
        };
        let always = required.always(problem.roots.iter().map(|&r| value[r]), sole);
        for v in (0..value.len()).filter(|&v| forms[v] > 0) {
            let choices = Sum::default().plus(computed[v].clone());
            if always[v] {
                self.equal(choices, 1);
                continue;
            }
            self.at_most(choices, 1);
            for u in required.members(v).filter(|&u| u != v && !always[u]) {
                self.at_least(Sum::default().plus(computed[u].clone()).minus(computed[v].clone()), 0);
            }
        }
    }

    /// Adds the rows that give a node one place and join it only with computed nodes that have a kernel.
    fn place(&mut self, problem: &Problem) {
        let mut places: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
        let mut after: BTreeMap<Site, Vec<(usize, usize)>> = BTreeMap::new();
        let mut joined: BTreeMap<(Site, Reader), Vec<usize>> = BTreeMap::new();
        for (edge, &f) in problem.edges.iter().zip(&self.f) {
            match edge.join.way {
                Way::After => {
                    places.entry(edge.reader).or_default().push(f);
                    after.entry(edge.reader).or_default().push((edge.producer.0, f));
                    joined.entry((edge.producer, problem.reader(edge.reader))).or_default().push(f);
                }
                Way::Before => places.entry(edge.producer).or_default().push(f),
            }
        }
        for (&site, &a) in &self.a {
            places.entry(site).or_default().push(a);
        }
        for (site, list) in places {
            let x = self.x[site.0][site.1];
            self.at_least(Sum::default().plus([x]).minus(list), 0);
        }
        for ((site, _), list) in joined {
            let x = self.x[site.0][site.1];
            let through = self.a.get(&site).copied();
            self.at_least(Sum::default().plus([x]).minus(list).minus(through), 0);
        }
        for (edge, &f) in problem.edges.iter().zip(&self.f.clone()).filter(|(e, _)| e.join.way == Way::Before) {
            let x = self.x[edge.reader.0][edge.reader.1];
            // Another operand of an epilogue may be computed in it, element by element.
            let apart = |&&(producer, _): &&(usize, usize)| producer == edge.producer.0 || !problem.is_by_element(edge);
            let joins = after.get(&edge.reader).into_iter().flatten().filter(apart).map(|&(_, f)| f);
            let through = self.a.get(&edge.reader).copied();
            self.at_least(Sum::default().plus([x]).minus([f]).minus(joins).minus(through), 0);
        }
    }

    /// A value that some reader takes from memory is there.
    fn store(&mut self, problem: &Problem) {
        let storage = &problem.storage;
        for &r in &problem.roots {
            if let Some(&w) = self.w.get(&storage[r]) {
                self.equal(Sum::default().plus([w]), 1);
            }
        }
        let mut reads: BTreeMap<(usize, Reader), Vec<usize>> = BTreeMap::new();
        for (c, list) in problem.classes.iter().enumerate() {
            for (k, candidate) in list.iter().enumerate().filter(|(_, k)| !k.is_alias()) {
                let mut from: Vec<usize> = candidate.children.iter().map(|&d| storage[d]).collect();
                from.sort_unstable();
                from.dedup();
                for s in from.into_iter().filter(|s| self.w.contains_key(s)) {
                    reads.entry((s, problem.reader((c, k)))).or_default().push(self.x[c][k]);
                }
            }
        }
        let mut shared: BTreeMap<(usize, Reader), Vec<usize>> = BTreeMap::new();
        for (edge, &f) in problem.edges.iter().zip(&self.f) {
            shared.entry((storage[edge.producer.0], problem.reader(edge.reader))).or_default().push(f);
        }
        let mut absent: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&site, &a) in self.a.iter().filter(|(s, _)| !problem.candidate(**s).is_alias()) {
            absent.entry(storage[site.0]).or_default().push(a);
        }
        for ((s, reader), reads) in reads {
            let inside = shared.get(&(s, reader)).into_iter().flatten().copied();
            let views = absent.get(&s).into_iter().flatten().copied();
            self.stores.entry(s).or_default().push(self.program.rows.len());
            self.at_least(Sum::default().plus([self.w[&s]]).plus(inside).plus(views).minus(reads), 0);
        }
        for (i, edge) in problem.edges.iter().enumerate() {
            let (f, w) = (self.f[i], self.w[&storage[edge.producer.0]]);
            match edge.join.stored {
                Stored::Maybe => {}
                Stored::Never => self.at_most(Sum::default().plus([f, w]), 1),
                Stored::Always => self.at_least(Sum::default().plus([w]).minus([f]), 0),
            }
        }
    }

    /// All readers of a view that has no kernel read through it.
    fn view(&mut self, problem: &Problem) {
        for (&site, &a) in &self.a.clone() {
            for &c in &problem.readers[site.0] {
                let mut sum = Sum::default().plus([a]);
                for k in 0..problem.classes[c].len() {
                    let reader = (c, k);
                    if problem.candidate(reader).children.contains(&site.0) && !problem.is_read_through(site, reader) {
                        sum = sum.plus([self.x[c][k]]).minus(self.a.get(&reader).copied());
                    }
                }
                let row =
                    Constraint { terms: sum.0.into_iter().map(|(v, k)| (v, -k)).collect(), least: -1, equal: false };
                self.program.rows.push(row);
            }
            if let (Some(Op::Reshape { .. }), [operand]) =
                (problem.candidate(site).op, &problem.candidate(site).children[..])
            {
                let below = (0..problem.classes[*operand].len()).filter_map(|k| self.a.get(&(*operand, k)).copied());
                let below: Vec<usize> = below.collect();
                self.at_least(Sum::default().plus(below).minus([a]), 0);
            }
        }
    }

    /// Two edges that follow each other, where the joins of the first forbid the second.
    fn pair(&mut self, problem: &Problem) {
        let mut into: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
        let mut out_of: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
        for (i, edge) in problem.edges.iter().enumerate() {
            match edge.join.way {
                Way::Before => into.entry(edge.reader).or_default().push(i),
                Way::After => out_of.entry(edge.producer).or_default().push(i),
            }
        }
        let both = |rows: &Constraints, i: usize, j: usize| Sum::default().plus([rows.f[i], rows.f[j]]);
        for (i, edge) in problem.edges.iter().enumerate().filter(|(_, e)| e.join.way == Way::Before) {
            for &j in into.get(&edge.producer).into_iter().flatten() {
                let earlier = &problem.edges[j];
                if edge.join.repeats && problem.is_expensive(earlier.producer) {
                    self.at_most(both(self, i, j), 1);
                }
                if !problem.leads_reduction(edge) {
                    continue;
                }
                let w = |rows: &Constraints, site: Site| [rows.w[&problem.storage[site.0]]];
                match problem.prologue(earlier.producer, edge) {
                    None => self.at_most(both(self, i, j), 1),
                    Some(stored) => {
                        // What is stored is read again from memory: the prologue ends there.
                        self.at_most(both(self, i, j).plus(w(self, edge.producer)), 2);
                        match stored {
                            Stored::Maybe => {}
                            Stored::Never => self.at_most(both(self, i, j).plus(w(self, earlier.producer)), 2),
                            Stored::Always => {
                                let sum = Sum::default().plus(w(self, earlier.producer)).minus([self.f[i], self.f[j]]);
                                self.at_least(sum, -1);
                            }
                        }
                    }
                }
            }
            // What reads a value from before a reduction belongs elsewhere.
            if problem.leads_reduction(edge) {
                for &j in out_of.get(&edge.producer).into_iter().flatten() {
                    self.at_most(both(self, i, j), 1);
                }
            }
        }
    }
}

/// Returns sets of candidates of which at most one is chosen: those that compute a value, or convert it to one class.
type Reader = (bool, usize);

impl Problem<'_> {
    fn reader(&self, site: Site) -> Reader {
        let converts = self.candidate(site).converts;
        (converts, if converts { site.0 } else { self.value[site.0] })
    }

    /// Returns true if both ends of an edge are elementwise over the same elements.
    fn is_by_element(&self, edge: &Edge) -> bool {
        let elementwise = |site: Site| self.candidate(site).op.is_some_and(Op::is_elementwise);
        let same = self.ty(edge.producer.0).shape == self.ty(edge.reader.0).shape;
        same && elementwise(edge.producer) && elementwise(edge.reader)
    }

    /// Returns the place of a candidate's value if it may run before the reduction at the end of `edge`, through the
    /// producer there; `None` if it may not.
    pub fn prologue(&self, site: Site, edge: &Edge) -> Option<Stored> {
        let (op, reduction) = (self.candidate(site).op?, self.candidate(edge.reader).op?);
        let fits = op.is_elementwise() && self.ty(site.0).shape == self.ty(edge.producer.0).shape;
        fits.then(|| before_reduction(reduction, op)).flatten()
    }
}
