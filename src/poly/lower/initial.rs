//! Initial values of sums: a tile that starts from a constant does not read it from memory.
//!
//! In: the loops that set elements to a constant, and those that follow: they copy the same elements into a local tile,
//! accumulate in it and store it. Out: the tile starts from the constant, and the first loops are gone. What the last loops
//! store is what the first ones set, since a tile is copied and stored by the same loops.

use crate::codegen::loopnest::Stmt;
use crate::expr::{Affine, BufferId, Expr, Index, Var};
use std::collections::BTreeMap;

/// Gives `sums`, which copies what `initial` sets, sums it up and stores it, the constants instead of the copies; returns
/// false where it does not.
pub fn forward(initial: &[Stmt], sums: &mut [Stmt]) -> bool {
    let count = initial.len();
    if count == 0 || sums.len() < 2 * count {
        return false;
    }
    let stores = &sums[sums.len() - count..];
    let each = initial.iter().zip(sums.iter().zip(stores));
    let values: Option<Vec<Expr>> = each
        .map(|(set, (copy, store))| {
            let value = paired(set, copy, &mut BTreeMap::new(), &|set, copy, vars| match (set, copy) {
                (Element { value: value @ Expr::Const(_), .. }, Element { value: Expr::Load(read), .. }) => {
                    let same = read.guard.is_empty() && set.is_at(read.buffer, &read.index, vars);
                    (same && copy.buffer != set.buffer).then(|| value.clone())
                }
                _ => None,
            })?;
            // The tile goes back to where it came from.
            paired(copy, store, &mut BTreeMap::new(), &|copy, store, vars| match (copy.value, store.value) {
                (Expr::Load(from), Expr::Load(tile)) => {
                    let target = Element { buffer: from.buffer, index: &from.index, value: store.value };
                    (target.is_at(store.buffer, store.index, vars) && copy.is_at(tile.buffer, &tile.index, vars))
                        .then_some(())
                }
                _ => None,
            })?;
            Some(value)
        })
        .collect();
    let Some(values) = values else { return false };
    let between = &sums[count..sums.len() - count];
    if initial.iter().filter_map(stored).any(|set| between.iter().any(|s| touches(s, set))) {
        return false;
    }
    for (copy, constant) in sums.iter_mut().zip(values) {
        copy.visit_mut(&mut |s| {
            if let Stmt::Store { value, .. } = s {
                *value = constant.clone();
            }
        });
    }
    true
}

/// The store inside of perfectly nested loops.
#[derive(Clone, Copy)]
struct Element<'a> {
    buffer: BufferId,
    index: &'a [Index],
    value: &'a Expr,
}

/// The buffer that a perfect nest of loops stores to.
fn stored(nest: &Stmt) -> Option<BufferId> {
    match nest {
        Stmt::Store { buffer, .. } => Some(*buffer),
        other => other.body().first().and_then(stored),
    }
}

/// Returns true if the statement reads or writes `buffer`.
fn touches(stmt: &Stmt, of: BufferId) -> bool {
    let mut touched = false;
    stmt.visit(&mut |s| {
        touched |= matches!(s, Stmt::Store { buffer, .. } if *buffer == of);
        s.expressions().for_each(|e| e.visit_accesses(&mut |a| touched |= a.buffer == of));
    });
    touched
}

/// Variables of one nest of loops, and those that take their place in another.
type Renaming = BTreeMap<Var, Var>;

fn renamed(a: &Affine, vars: &Renaming) -> Affine {
    a.substitute(|v| Affine::var(vars.get(&v).copied().unwrap_or(v)))
}

impl Element<'_> {
    /// Returns true if the element, with its variables renamed, is that of `buffer` at `index`.
    fn is_at(&self, buffer: BufferId, index: &[Index], vars: &Renaming) -> bool {
        let same =
            |(a, b): (&Index, &Index)| matches!((a.affine(), b.affine()), (Some(a), Some(b)) if renamed(a, vars) == *b);
        self.buffer == buffer && self.index.len() == index.len() && self.index.iter().zip(index).all(same)
    }
}

/// The result of `found` for the two stores inside of perfect nests of the same loops.
fn paired<T>(
    first: &Stmt,
    second: &Stmt,
    vars: &mut Renaming,
    found: &dyn Fn(Element, Element, &Renaming) -> Option<T>,
) -> Option<T> {
    match (first, second) {
        (
            Stmt::Loop { var: v, lower: l, upper: u, step: s, kind: k, body: inner },
            Stmt::Loop { var, lower, upper, step, kind, body },
        ) => {
            let mut bounds = l.iter().chain(u).zip(lower.iter().chain(upper));
            let same = bounds.all(|(a, b)| a.divisor == b.divisor && renamed(&a.affine, vars) == b.affine);
            let ([inner], [body]) = (&inner[..], &body[..]) else { return None };
            if !same || (l.len(), u.len(), s, k) != (lower.len(), upper.len(), step, kind) {
                return None;
            }
            vars.insert(*v, *var);
            paired(inner, body, vars, found)
        }
        (
            Stmt::Store { buffer: b, index: i, value: v, reduce: None },
            Stmt::Store { buffer, index, value, reduce: None },
        ) => found(Element { buffer: *b, index: i, value: v }, Element { buffer: *buffer, index, value }, vars),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::loopnest::parse;

    /// The loops of a kernel: the first `count` are the initial values.
    fn forwarded(count: usize, body: &str) -> Option<String> {
        let text = format!(
            "kernel p {{ T: f32[4][8] argument 0 written; U: f32[4][8] argument 1 written; s: f32[8] local; {body} }}"
        );
        let mut nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}"));
        let Stmt::Loop { body, .. } = &mut nest.body[0] else { panic!("one loop") };
        let mut sums = body.split_off(count);
        let done = forward(body, &mut sums);
        *body = sums;
        done.then(|| nest.to_string())
    }

    const SET: &str = "vector f in 0..8 { T[i][f] = f32(0.0); }";
    const COPY: &str = "vector g in 0..8 { s[g] = T[i][g]; }";
    const SUM: &str = "for k in 0..3 { vector h in 0..8 { s[h] add = U[k][h]; } }";
    const STORE: &str = "vector j in 0..8 { T[i][j] = s[j]; }";

    #[test]
    fn a_tile_starts_from_the_constant() {
        let text = forwarded(1, &format!("for i in 0..4 {{ {SET} {COPY} {SUM} {STORE} }}")).unwrap();
        assert!(text.contains("s[g] = f32(0.0)") && !text.contains("T[i][f]"), "{text}");
    }

    #[test]
    fn elements_that_are_read_elsewhere_keep_their_initial_value() {
        let refused = [
            // stored elsewhere, not at all, or in part
            [SET, COPY, SUM, "vector j in 0..8 { U[i][j] = s[j]; }"],
            [SET, COPY, SUM, "vector j in 0..8 { T[i][j] = U[i][j]; }"],
            [SET, COPY, SUM, "vector j in 0..4 { T[i][j] = s[j]; }"],
            // read or written by the sum
            [SET, COPY, "for k in 0..3 { vector h in 0..8 { s[h] add = T[k][h]; } }", STORE],
            [SET, COPY, "for k in 0..3 { vector h in 0..8 { T[k][h] = s[h]; } }", STORE],
            // another row, or no constant
            [SET, "vector g in 0..8 { s[g] = T[0][g]; }", SUM, STORE],
            ["vector f in 0..8 { T[i][f] = U[i][f]; }", COPY, SUM, STORE],
        ];
        for body in refused {
            assert_eq!(forwarded(1, &format!("for i in 0..4 {{ {} }}", body.join(" "))), None, "{body:?}");
        }
    }
}
