//! The indices of an equation: their order, ranges and conditions.

use super::Builder;
use crate::expr::syntax::{Expr as Text, Kind};
use crate::expr::{Affine, Var};
use crate::expr::{BufferId, Index};
use crate::language::condition;
use crate::language::environment::Scope;
use crate::language::range::{Interval, Subscript, infer};
use crate::language::scope::plain;
use crate::language::source::{Checked, Diagnostic};
use crate::language::syntax::{Assign, Condition, Equation, Range};
use crate::poly::statement::Role;

impl Builder<'_> {
    /// The indices: those on the left in their order, then the others in theirs.
    pub(super) fn indices(&self, e: &Equation) -> Vec<String> {
        let mut out: Vec<String> = vec![];
        let mut add = |name: &str| {
            let array = self.arrays.iter().any(|a| a.name == name && a.shape.is_empty());
            if !array && !self.sizes.contains_key(name) && !out.iter().any(|i| i == name) {
                out.push(name.into());
            }
        };
        let mut visit = |text: &Text| {
            text.visit(&mut |t| {
                if let Kind::Name(name) = &t.kind {
                    add(name);
                }
            })
        };
        e.subscripts.iter().for_each(&mut visit);
        visit(&e.value);
        for c in &e.conditions {
            match c {
                Condition::Holds(text) => visit(text),
                Condition::Range(name, range) => {
                    visit(&Text::new(Kind::Name(name.text.clone())));
                    visit(&range.lower);
                    visit(&range.upper);
                }
            }
        }
        out
    }

    /// The interval of each index.
    pub(super) fn ranges(&self, e: &Equation, indices: &[String]) -> Checked<Vec<Interval>> {
        let scope = self.scope(indices, &plain);
        let left = e.outer(indices);
        let mut bounds: Vec<Option<Interval>> = vec![None; indices.len()];
        let mut open: Vec<(usize, Affine, Affine)> = vec![];
        for c in &e.conditions {
            let Condition::Range(name, range) = c else { continue };
            let bound = |text: &Text| {
                let affine = scope.affine(text)?;
                affine.ok_or_else(|| {
                    Diagnostic::invalid(text.span, format!("the bound `{}` is not affine", self.show(text)))
                })
            };
            let (lower, upper) = (bound(&range.lower)?, bound(&range.upper)?);
            let v = scope.index(name).map_or(0, |v| v.0 as usize);
            if bounds[v].is_some() || open.iter().any(|o| o.0 == v) {
                return Err(Diagnostic::invalid(name.span, format!("`{name}` has two ranges")));
            }
            match lower.is_constant() && upper.is_constant() {
                true => bounds[v] = Some((lower.constant, upper.constant - 1)),
                false => open.push((v, lower, upper)),
            }
        }
        let mut subscripts = vec![];
        // A tensor without a declared shape is as large as its equations make it.
        let update = matches!(e.assign, Assign::Update(_));
        if let Some(target) = self.known(e).filter(|t| update || self.arrays[t.0 as usize].role != Role::Temporary) {
            self.collect(&scope, &e.target, &e.subscripts, target, &mut subscripts)?;
        }
        let mut failure = None;
        e.value.visit(&mut |text| {
            if let Kind::Element(name, list) = &text.kind {
                let array = scope.resolve(name.span.to(text.span), name, list.len());
                let result = array.and_then(|id| self.collect(&scope, name, list, id, &mut subscripts));
                failure = failure.take().or(result.err());
            }
        });
        failure.map_or(Ok(()), Err)?;
        // A range that depends on other indices: its box first, the rest is a condition.
        while !open.is_empty() {
            let boxes: Vec<Interval> = match open.iter().position(|(_, lo, hi)| {
                lo.terms.iter().chain(&hi.terms).all(|t| !open.iter().any(|o| o.0 == t.0.0 as usize))
            }) {
                None => {
                    let message =
                        format!("the ranges of `{}` and another index depend on each other", indices[open[0].0]);
                    return Err(Diagnostic::invalid(e.span, message));
                }
                Some(next) => {
                    open.swap(0, next);
                    let (_, lower, upper) = &open[0];
                    let used: Vec<Var> = lower.terms.iter().chain(&upper.terms).map(|t| t.0).collect();
                    let mut part: Vec<Option<Interval>> = bounds.clone();
                    for (i, k) in part.iter_mut().enumerate() {
                        if !used.contains(&Var(i as u32)) {
                            *k = k.or(Some((0, 0)));
                        }
                    }
                    infer(indices, 0, part, &subscripts, e.span)?
                }
            };
            let (v, lower, upper) = open.remove(0);
            let range = |w: Var| boxes[w.0 as usize];
            bounds[v] = Some((lower.bounds(range).0, upper.bounds(range).1 - 1));
        }
        infer(indices, left, bounds, &subscripts, e.span)
    }

    fn collect(
        &self,
        scope: &Scope,
        name: &str,
        texts: &[Text],
        array: BufferId,
        out: &mut Vec<Subscript>,
    ) -> Checked<()> {
        let decl = &self.arrays[array.0 as usize];
        if decl.shape.len() != texts.len() {
            return Ok(());
        }
        for (text, &extent) in texts.iter().zip(&decl.shape) {
            if let Index::Affine(form) = scope.subscript(text)? {
                out.push(Subscript { form, extent, text: format!("{} of {name}", self.show(text)) });
            }
        }
        Ok(())
    }

    /// Returns the conditions that restrict the box of the indices.
    pub(super) fn conditions(&self, e: &Equation, indices: &[String]) -> Checked<Vec<Affine>> {
        let scope = self.scope(indices, &plain);
        let mut out = vec![];
        for c in &e.conditions {
            match c {
                Condition::Holds(text) => match &condition::pieces(&scope, text, true)?[..] {
                    [piece] => out.extend(piece.iter().cloned()),
                    pieces => {
                        let message = format!("`{}` has {} cases, not one", self.show(text), pieces.len());
                        return Err(Diagnostic::unsupported(text.span, message));
                    }
                },
                Condition::Range(name, range) => {
                    let v = scope.index(name).map(Affine::var).unwrap_or_default();
                    let bounds = (scope.affine(&range.lower)?, scope.affine(&range.upper)?);
                    if let (Some(lower), Some(upper)) = bounds {
                        out.push(v.add_scaled(&lower, -1));
                        out.push(upper.add_scaled(&v, -1).offset(-1));
                    }
                    out.retain(|c| c.terms.len() > 1);
                }
            }
        }
        Ok(out)
    }
}

impl Equation {
    pub(super) fn range(&self, index: &str) -> Option<&Range> {
        self.conditions.iter().find_map(|c| match c {
            Condition::Range(name, range) if &**name == index => Some(range),
            _ => None,
        })
    }

    /// Counts the leading indices that name the element.
    pub(super) fn outer(&self, indices: &[String]) -> usize {
        let mut outer = 0;
        for e in &self.subscripts {
            e.visit(&mut |e| {
                if let Kind::Name(name) = &e.kind
                    && let Some(index) = indices.iter().position(|i| i == name)
                {
                    outer = outer.max(index + 1);
                }
            });
        }
        outer
    }
}
