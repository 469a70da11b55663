//! Answers to questions about polyhedra, kept so that no solver works on the same question twice.
//!
//! In: a question as plain constraint matrices. Out: the answer that was given before. Candidates of one plan differ in a few loops and ask
//! the same of most polyhedra: of 35,000 projections for a lattice Boltzmann method with 48 statements 1,000 differ.

use crate::poly::sets::polyhedron::Polyhedron;
use crate::runtime::Result;
use rustc_hash::FxHashMap;
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Answers that several solvers share: a copy has the same ones.
#[derive(Clone, Default)]
pub struct Answers(Rc<Known>);

/// Answers by the polyhedron that is asked about and by the rest of the question.
type Table<Q, A> = RefCell<FxHashMap<Polyhedron, Vec<(Q, A)>>>;

#[derive(Default)]
struct Known {
    /// Entries of the polyhedra that were asked about.
    entries: Cell<usize>,
    empty: Table<(), bool>,
    projections: Table<usize, Polyhedron>,
    hulls: Table<Vec<Polyhedron>, Polyhedron>,
    gists: Table<Polyhedron, Polyhedron>,
}

impl Answers {
    /// The work so far: entries of the constraint matrices of the questions that a solver has answered.
    pub fn entries(&self) -> usize {
        self.0.entries.get()
    }

    fn known<R: ToOwned + PartialEq + ?Sized, A: Clone>(
        &self,
        table: &Table<R::Owned, A>,
        p: &Polyhedron,
        rest: &R,
        solve: impl FnOnce() -> Result<A>,
    ) -> Result<A> {
        known(table, p, rest, || {
            let entries = (p.dims + 1) * (p.equalities.len() + p.inequalities.len());
            self.0.entries.set(self.0.entries.get() + entries);
            solve()
        })
    }

    /// Returns true if a polyhedron has no integer point.
    pub fn is_empty(&self, p: &Polyhedron, solve: impl FnOnce() -> Result<bool>) -> Result<bool> {
        self.known(&self.0.empty, p, &(), solve)
    }

    /// The projection on the first `keep` variables.
    pub fn projection(
        &self,
        p: &Polyhedron,
        keep: usize,
        solve: impl FnOnce() -> Result<Polyhedron>,
    ) -> Result<Polyhedron> {
        self.known(&self.0.projections, p, &keep, solve)
    }

    /// The hull of a polyhedron and others.
    pub fn hull(
        &self,
        first: &Polyhedron,
        others: &[Polyhedron],
        solve: impl FnOnce() -> Result<Polyhedron>,
    ) -> Result<Polyhedron> {
        self.known(&self.0.hulls, first, others, solve)
    }

    /// The constraints of `p` that `context` does not imply.
    pub fn gist(
        &self,
        p: &Polyhedron,
        context: &Polyhedron,
        solve: impl FnOnce() -> Result<Polyhedron>,
    ) -> Result<Polyhedron> {
        self.known(&self.0.gists, context, p, solve)
    }
}

/// The answer in the table, or the one of `solve`, which is kept. An error is no answer.
fn known<R: ToOwned + PartialEq + ?Sized, A: Clone>(
    table: &Table<R::Owned, A>,
    p: &Polyhedron,
    rest: &R,
    solve: impl FnOnce() -> Result<A>,
) -> Result<A> {
    let answers = |known: &FxHashMap<_, Vec<(R::Owned, A)>>| {
        known.get(p)?.iter().find(|(of, _)| of.borrow() == rest).map(|(_, answer)| answer.clone())
    };
    if let Some(answer) = answers(&table.borrow()) {
        return Ok(answer);
    }
    let answer = solve()?;
    table.borrow_mut().entry(p.clone()).or_default().push((rest.to_owned(), answer.clone()));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Error;

    #[test]
    fn a_question_is_answered_once_and_an_error_is_no_answer() {
        let answers = Answers::default();
        let p = Polyhedron::of_inequalities(1, vec![vec![1, 0]]);
        assert!(answers.is_empty(&p, || Err(Error::Limit("effort".into()))).is_err());
        assert!(!answers.is_empty(&p, || Ok(false)).unwrap());
        assert!(!answers.clone().is_empty(&p, || panic!("asked twice")).unwrap());
        let other = Polyhedron::of_inequalities(1, vec![vec![1, 1]]);
        assert!(answers.is_empty(&other, || Ok(true)).unwrap());
    }
}
