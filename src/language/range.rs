//! The ranges of the indices of an equation, from the shapes of the arrays that it reads and writes.
//!
//! In: the subscripts with their dimensions, and the ranges that `where` gives. Out: for every index the largest
//! interval of numbers from 0 for which every subscript is inside. First the indices that stand alone in some
//! subscript, those on the left also by what they share with indices that have a range given; then those that are the
//! only unknown one of a subscript (after Vasilache et al., "Tensor Comprehensions", 2018, made exact). Invariant: a
//! range is a function of the text and the sizes alone; where two answers are possible there is none.

use super::source::{Checked, Diagnostic};
use crate::expr::syntax::Span;
use crate::expr::{Affine, Var};
use crate::runtime::text::quoted;

/// First and last value.
pub type Interval = (i64, i64);

/// A subscript of a dimension of `extent` elements.
pub struct Subscript {
    pub form: Affine,
    pub extent: i64,
    /// As it is written, with its array.
    pub text: String,
}

/// Completes `known`; the first `left` of the indices name the element. `span` is the equation's.
pub fn infer(
    indices: &[String],
    left: usize,
    mut known: Vec<Option<Interval>>,
    subscripts: &[Subscript],
    span: Span,
) -> Checked<Vec<Interval>> {
    let alone = |v: Var, s: &Subscript| matches!(s.form.terms[..], [(w, _)] if w == v);
    let at_start = known.clone();
    for v in (0..indices.len() as u32).map(Var) {
        if at_start[v.0 as usize].is_none() {
            let beside = |s: &Subscript| {
                let others = s.form.terms.iter().all(|(w, _)| *w == v || at_start[w.0 as usize].is_some());
                (v.0 as usize) < left && others && s.form.uses(v)
            };
            known[v.0 as usize] = meet(v, subscripts.iter().filter(|s| alone(v, s) || beside(s)), &at_start);
        }
    }
    loop {
        let before = known.clone();
        for v in (0..indices.len() as u32).map(Var).filter(|v| before[v.0 as usize].is_none()) {
            let others_known =
                |s: &&Subscript| s.form.terms.iter().all(|(w, _)| *w == v || before[w.0 as usize].is_some());
            let usable = subscripts.iter().filter(|s| s.form.uses(v)).filter(others_known);
            known[v.0 as usize] = meet(v, usable, &before);
        }
        if known == before {
            break;
        }
    }
    let mut out = vec![];
    for (i, range) in known.into_iter().enumerate() {
        let (name, v) = (&indices[i], Var(i as u32));
        let using: Vec<&str> = subscripts.iter().filter(|s| s.form.uses(v)).map(|s| s.text.as_str()).collect();
        let Some((lo, hi)) = range else {
            let why = match using[..] {
                [] => "it is in no subscript of an array of known shape".to_string(),
                [only] => format!("`{only}` has another index without a range"),
                _ => format!("each of {} has another index without a range", quoted(&using)),
            };
            let message =
                format!("the range of `{name}` cannot be inferred: {why}; give it, as in `where {name} in 0..N`");
            return Err(Diagnostic::invalid(span, message));
        };
        if lo > hi {
            let message = match at_start[i] {
                Some(_) => format!("the range of `{name}` is empty: {lo}..{}", hi + 1),
                None => format!("no value of `{name}` keeps {} inside", quoted(&using)),
            };
            return Err(Diagnostic::invalid(span, message));
        }
        out.push((lo, hi));
    }
    Ok(out)
}

/// The values ≥ 0 of `v` that keep all subscripts inside whatever the other indices are; `None` without subscripts.
fn meet<'a>(v: Var, subscripts: impl Iterator<Item = &'a Subscript>, known: &[Option<Interval>]) -> Option<Interval> {
    let mut out = None;
    for s in subscripts {
        let c = s.form.coefficient(v);
        let rest = s.form.clone().plus(v, -c);
        let (least, most) = rest.bounds(|w| known[w.0 as usize].unwrap_or((0, 0)));
        // 0 ≤ c·v + least and c·v + most ≤ extent − 1
        let (low, high) = (-least, s.extent - 1 - most);
        let ceil = |a: i64, b: i64| -((-a).div_euclid(b));
        let (lo, hi) =
            if c > 0 { (ceil(low, c), high.div_euclid(c)) } else { (ceil(-high, -c), (-low).div_euclid(-c)) };
        let (a, b) = out.unwrap_or((0, i64::MAX));
        out = Some((lo.max(a), hi.min(b)));
    }
    out
}
