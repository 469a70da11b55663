//! Exchange of candidates: local search on the graph that the roots need, each chosen e-node counted once.
//!
//! In: a candidate for each class. Out: candidates whose graph is cheaper by some measure, or the same ones. Bottom-up
//! choices see the graph below one class; a class that others need anyway is free here. One exchange takes another
//! candidate for one needed class: classes without readers fall away, the operands of the candidate become needed.

use crate::graph::extract::candidate::Site;
use crate::graph::extract::problem::Problem;

/// Largest number of passes over all classes. Unmeasured.
const MAX_SWEEPS: usize = 4;
/// Largest number of classes that one exchange adds. Unmeasured.
const MAX_ADDED: usize = 256;
/// Largest number of classes that the search for a cycle visits. Unmeasured.
const MAX_VISITED: usize = 4096;

/// Cost of a candidate, given the candidates chosen for the classes.
pub type Measure<'m> = &'m dyn Fn(Site, &[Option<usize>]) -> f64;

pub struct Exchange<'p> {
    problem: &'p Problem<'p>,
    pub chosen: Vec<Option<usize>>,
    /// Candidates and roots that need each class; 0 where none does.
    uses: Vec<usize>,
    /// Chosen candidates that compute each value.
    computed: Vec<usize>,
}

impl<'p> Exchange<'p> {
    pub fn new(problem: &'p Problem<'p>, chosen: &[Option<usize>]) -> Exchange<'p> {
        let n = chosen.len();
        let mut out = Exchange { problem, chosen: chosen.to_vec(), uses: vec![0; n], computed: vec![0; n] };
        for &r in &problem.roots {
            out.add(r, &mut vec![]);
        }
        out
    }

    /// Exchanges candidates as long as the measure falls.
    pub fn run(&mut self, measure: Measure) {
        for _ in 0..MAX_SWEEPS {
            let mut changed = false;
            for class in 0..self.chosen.len() {
                for k in 0..self.problem.classes[class].len() {
                    let open = self.uses[class] > 0 && self.chosen[class].is_some_and(|now| now != k);
                    changed |= open && self.exchange(class, k, measure);
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn cost(&self, class: usize, measure: Measure) -> f64 {
        let chosen = self.chosen[class].filter(|_| self.uses[class] > 0);
        chosen.map_or(0.0, |k| measure((class, k), &self.chosen))
    }

    /// Takes candidate `k` of `class` if that is cheaper.
    fn exchange(&mut self, class: usize, k: usize, measure: Measure) -> bool {
        if !self.fits(class, k) {
            return false;
        }
        let before = self.chosen[class];
        let (mut added, mut removed) = (vec![], vec![]);
        self.replace(class, Some(k), &mut added, &mut removed);
        let mut concerned: Vec<usize> = added.iter().chain(&removed).copied().chain([class]).collect();
        let readers: Vec<usize> = concerned.iter().flat_map(|&c| self.problem.readers[c].iter().copied()).collect();
        concerned.extend(readers);
        concerned.sort_unstable();
        concerned.dedup();
        let once = added.iter().chain([&class]).all(|&c| self.computed[self.problem.value[c]] <= 1);
        let after: f64 = concerned.iter().map(|&c| self.cost(c, measure)).sum();
        self.replace(class, before, &mut vec![], &mut vec![]);
        let now: f64 = concerned.iter().map(|&c| self.cost(c, measure)).sum();
        if !once || after >= now - 1e-3 || self.reaches(class, k) {
            return false;
        }
        self.replace(class, Some(k), &mut vec![], &mut vec![]);
        true
    }

    /// Returns true if every class that a candidate would add has a candidate, and they are at most [`MAX_ADDED`].
    fn fits(&self, class: usize, k: usize) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        let mut open: Vec<usize> = self.operands(class, Some(k)).to_vec();
        while let Some(c) = open.pop() {
            if self.chosen[c].is_none() || seen.len() > MAX_ADDED {
                return false;
            }
            if self.uses[c] == 0 && seen.insert(c) {
                open.extend(self.operands(c, self.chosen[c]));
            }
        }
        true
    }

    /// Chooses `k` for `class`; lists the classes that become needed and those that are not needed any more.
    fn replace(&mut self, class: usize, k: Option<usize>, added: &mut Vec<usize>, removed: &mut Vec<usize>) {
        let old = self.chosen[class];
        self.count(class, -1);
        self.chosen[class] = k;
        self.count(class, 1);
        // What stays is counted before what goes, so that it does not fall away in between.
        for &c in self.operands(class, k) {
            self.add(c, added);
        }
        for &c in self.operands(class, old) {
            self.remove(c, removed);
        }
    }

    fn operands(&self, class: usize, k: Option<usize>) -> &'p [usize] {
        let problem = self.problem;
        k.map_or(&[], |k| &problem.classes[class][k].children)
    }

    /// Counts what `class` computes.
    fn count(&mut self, class: usize, by: isize) {
        let site = self.chosen[class].map(|k| (class, k));
        if site.is_some_and(|s| !self.problem.candidate(s).converts) {
            let computed = &mut self.computed[self.problem.value[class]];
            *computed = computed.saturating_add_signed(by);
        }
    }

    /// One more use of a class.
    fn add(&mut self, class: usize, added: &mut Vec<usize>) {
        let mut open = vec![class];
        while let Some(c) = open.pop() {
            self.uses[c] += 1;
            if self.uses[c] == 1 {
                self.count(c, 1);
                added.push(c);
                open.extend(self.operands(c, self.chosen[c]));
            }
        }
    }

    fn remove(&mut self, class: usize, removed: &mut Vec<usize>) {
        let mut open = vec![class];
        while let Some(c) = open.pop() {
            self.uses[c] -= 1;
            if self.uses[c] == 0 {
                self.count(c, -1);
                removed.push(c);
                open.extend(self.operands(c, self.chosen[c]));
            }
        }
    }

    /// Returns true if a candidate needs its own class, or if finding out visits too many classes.
    fn reaches(&self, class: usize, k: usize) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        let mut open: Vec<usize> = self.operands(class, Some(k)).to_vec();
        while let Some(c) = open.pop() {
            if c == class || seen.len() > MAX_VISITED {
                return true;
            }
            if seen.insert(c) {
                open.extend(self.operands(c, self.chosen[c]));
            }
        }
        false
    }
}
