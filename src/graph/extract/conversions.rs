//! Conversions of layout inside of chains of elementwise operators, which no cheapest answer needs.
//!
//! In: the candidates of all classes. Out: the same without transpositions and reshapes of values inside of a chain, where the
//! chain ends or begins with a value of no more bytes that can be converted instead: the operators of the chain cost the
//! same in either layout. A quantisation is a chain of seven values, each of which every layout had a conversion of: most
//! variables of the program of a quantised network.

use crate::graph::extract::candidate::Candidate;
use crate::graph::op::{FusionKind, Op};

/// The classes while conversions are removed.
struct Chains<'a, 'b> {
    classes: &'a [Vec<Candidate<'b>>],
    value: &'a [usize],
    bytes: &'a [usize],
    /// The classes that are forms of each value.
    forms: Vec<Vec<usize>>,
    /// For each value the only one that is computed from it, element by element and from nothing else; `None` where there are
    /// others.
    next: Vec<Option<usize>>,
}

/// Removes the conversions of values inside of chains; `bytes` has the size of each class.
pub fn remove_inner(classes: &mut [Vec<Candidate>], value: &[usize], roots: &[usize], bytes: &[usize]) {
    let chains = Chains::new(classes, value, roots, bytes);
    let mut removed: Vec<Vec<bool>> = classes.iter().map(|list| vec![false; list.len()]).collect();
    for (c, list) in classes.iter().enumerate().filter(|(_, list)| !list.iter().all(|k| k.converts)) {
        for (k, candidate) in list.iter().enumerate().filter(|(_, k)| k.converts) {
            removed[c][k] = chains.is_later(c, candidate);
        }
    }
    for (c, list) in classes.iter().enumerate().filter(|(_, list)| !list.iter().all(|k| k.converts)) {
        for (k, candidate) in list.iter().enumerate().filter(|(_, k)| k.converts) {
            if !removed[c][k] && chains.is_earlier(c, candidate, &removed) {
                removed[c][k] = true;
            }
        }
    }
    for (list, removed) in classes.iter_mut().zip(removed) {
        let mut removed = removed.into_iter();
        list.retain(|_| !removed.next().unwrap_or(false));
    }
}

impl<'a, 'b> Chains<'a, 'b> {
    fn new(
        classes: &'a [Vec<Candidate<'b>>],
        value: &'a [usize],
        roots: &[usize],
        bytes: &'a [usize],
    ) -> Chains<'a, 'b> {
        let mut forms = vec![vec![]; classes.len()];
        value.iter().enumerate().for_each(|(c, &v)| forms[v].push(c));
        let mut next = vec![None; classes.len()];
        let mut several = vec![false; classes.len()];
        roots.iter().for_each(|&r| several[value[r]] = true);
        for (c, list) in classes.iter().enumerate() {
            for candidate in list.iter().filter(|k| !k.converts) {
                for &d in &candidate.children {
                    let v = value[d];
                    let alone = by_element(candidate) == Some(d) && next[v].is_none_or(|u| u == value[c]);
                    several[v] |= !alone;
                    next[v] = Some(value[c]);
                }
            }
        }
        for (next, several) in next.iter_mut().zip(several) {
            *next = next.filter(|_| !several);
        }
        Chains { classes, value, bytes, forms, next }
    }

    /// The form of a value that is computed from this form of the value before it, element by element.
    fn computed(&self, value: usize, from: usize) -> Option<usize> {
        let computes = |c: &usize| self.classes[*c].iter().any(|k| !k.converts && by_element(k) == Some(from));
        self.forms[value].iter().copied().find(computes)
    }

    /// The conversion of one class to another.
    fn conversion(&self, from: usize, to: usize) -> Option<usize> {
        self.classes[to].iter().position(|k| k.converts && k.children == [from])
    }

    /// The next value of a chain of two forms, and the form from which a conversion makes class `c`.
    fn inside(&self, c: usize, conversion: &Candidate) -> Option<(usize, usize)> {
        let v = self.value[c];
        let [from] = conversion.children[..] else { return None };
        (self.forms[v].len() == 2).then_some((self.next[v]?, from))
    }

    /// Returns true if the next value can be converted instead.
    fn is_later(&self, c: usize, conversion: &Candidate) -> bool {
        let Some((next, from)) = self.inside(c, conversion) else { return false };
        let joins =
            |k: &Candidate| k.op.is_some_and(|op| op.is_elementwise() || op.kind() == FusionKind::ComplexOutFusable);
        let (Some(before), Some(after)) = (self.computed(next, from), self.computed(next, c)) else { return false };
        self.classes[from].iter().any(joins)
            && self.bytes[before] <= self.bytes[c]
            && self.conversion(before, after).is_some()
    }

    /// Returns true if the value before can be converted instead, by a conversion that is still there.
    fn is_earlier(&self, c: usize, conversion: &Candidate, removed: &[Vec<bool>]) -> bool {
        let Some((_, from)) = self.inside(c, conversion) else { return false };
        let cheap = |k: &&Candidate| !k.converts && k.op.is_some_and(|op| !op.is_expensive());
        self.classes[c].iter().filter(cheap).filter_map(by_element).any(|p| {
            let source = self.forms[self.value[p]]
                .iter()
                .copied()
                .find(|&s| self.classes[from].iter().any(|k| !k.converts && by_element(k) == Some(s)) && s != p);
            let Some(source) = source.filter(|_| self.bytes[p] <= self.bytes[c]) else { return false };
            self.conversion(source, p).is_some_and(|k| !removed[p][k])
        })
    }
}

/// The only operand of an elementwise candidate that is not a constant.
fn by_element(candidate: &Candidate) -> Option<usize> {
    match candidate.children[..] {
        [operand] if candidate.op.is_some_and(Op::is_elementwise) => Some(operand),
        _ => None,
    }
}
