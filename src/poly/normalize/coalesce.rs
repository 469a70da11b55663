//! Loop coalescing: `(n, h, w)` of a 1×1 convolution becomes one iterator, an elementwise group one loop.
//!
//! Two iterators of a statement become one, `i·extent(j) + j`, when every access uses them only as the subscripts of two
//! adjacent dimensions, `i` (plus a constant) and exactly `j`, with `j` covering its dimension. The two dimensions of the
//! tensor then become one, so every other access to it must allow that too: a merge is a closed set of pairs of iterators
//! and pairs of dimensions, found from one seed, and done completely or not at all. External tensors are reshaped
//! without moving data.

use crate::expr::{Affine, Var};
use crate::expr::{BufferId, Expr, Index};
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// A merge: the pair (i, j) of iterators by statement, the dimensions d (with d + 1) by tensor.
#[derive(Default)]
struct Merge {
    pairs: BTreeMap<usize, (Var, Var)>,
    dimensions: BTreeMap<BufferId, usize>,
}

/// Merges iterators and dimensions until nothing more can be merged.
pub fn merge_iterators(scop: &mut Scop) {
    while let Some(merge) = seeds(scop).into_iter().find_map(|(s, i, j)| close(scop, s, i, j)) {
        apply(scop, &merge);
    }
}

/// Pairs of iterators that appear side by side in a subscript list, innermost dimensions first.
fn seeds(scop: &Scop) -> Vec<(usize, Var, Var)> {
    let mut pairs = vec![];
    let mut seen = BTreeSet::new();
    for (s, statement) in scop.statements.iter().enumerate() {
        let mut collect = |index: &[Index]| {
            for d in (1..index.len()).rev() {
                if let (Some(i), Some(j)) = (leading(&index[d - 1]), exact(&index[d]))
                    && seen.insert((s, i, j))
                {
                    pairs.push((s, i, j));
                }
            }
        };
        for_each_access(statement, &mut |_, index, _| collect(index));
    }
    pairs
}

/// `v` when the subscript is `v + constant`.
fn leading(index: &Index) -> Option<Var> {
    match index.affine()?.terms[..] {
        [(v, 1)] => Some(v),
        _ => None,
    }
}

/// `v` when the subscript is `v`.
fn exact(index: &Index) -> Option<Var> {
    leading(index).filter(|_| index.affine().is_some_and(|a| a.constant == 0))
}

/// Calls `f(buffer, subscripts, guard)` for the write and every read.
fn for_each_access(statement: &Statement, f: &mut impl FnMut(BufferId, &[Index], &[Affine])) {
    let write: Vec<Index> = statement.write.iter().cloned().map(Index::Affine).collect();
    f(statement.target, &write, &[]);
    statement.body.visit_accesses(&mut |a| f(a.buffer, &a.index, &a.guard));
}

/// The smallest merge that joins iterators `i` and `j` of statement `s`, or `None` when there is none.
fn close(scop: &Scop, s: usize, i: Var, j: Var) -> Option<Merge> {
    let mut merge = Merge::default();
    let mut statements = vec![(s, i, j)];
    let mut tensors: Vec<(BufferId, usize)> = vec![];
    loop {
        if let Some((s, i, j)) = statements.pop() {
            match merge.pairs.get(&s) {
                Some(&pair) if pair == (i, j) => continue,
                Some(_) => return None,
                None => merge.pairs.insert(s, (i, j)),
            };
            let statement = &scop.statements[s];
            let extent = statement.iterators[j.0 as usize].extent;
            let uses = |a: &Affine| a.uses(i) || a.uses(j);
            if i == j || statement.domain.iter().any(uses) || uses_as_value(&statement.body, &uses) {
                return None;
            }
            let mut possible = true;
            for_each_access(statement, &mut |buffer, index, guard| {
                possible &= !guard.iter().any(uses);
                let mut d = 0;
                while d < index.len() {
                    if index[d].affine().is_some_and(uses) {
                        let next = index.get(d + 1);
                        possible &= leading(&index[d]) == Some(i)
                            && next.and_then(exact) == Some(j)
                            && scop.tensor(buffer).shape[d + 1..].first() == Some(&extent);
                        tensors.push((buffer, d));
                        d += 1;
                    }
                    d += 1;
                }
            });
            if !possible {
                return None;
            }
        } else if let Some((buffer, d)) = tensors.pop() {
            match merge.dimensions.get(&buffer) {
                Some(&known) if known == d => continue,
                Some(_) => return None,
                None => merge.dimensions.insert(buffer, d),
            };
            let extent = scop.tensor(buffer).shape[d + 1];
            let mut possible = true;
            for (s, statement) in scop.statements.iter().enumerate() {
                for_each_access(statement, &mut |other, index, _| {
                    if other != buffer {
                        return;
                    }
                    match (&index[d], &index[d + 1]) {
                        (Index::Affine(a), Index::Affine(_)) if a.is_constant() => {}
                        (a, b) => match (leading(a), exact(b)) {
                            (Some(i), Some(j)) if statement.iterators[j.0 as usize].extent == extent => {
                                statements.push((s, i, j))
                            }
                            _ => possible = false,
                        },
                    }
                });
            }
            if !possible {
                return None;
            }
        } else {
            return Some(merge);
        }
    }
}

/// Returns true if an affine form that `uses` accepts is a value of the expression.
fn uses_as_value(body: &Expr, uses: &impl Fn(&Affine) -> bool) -> bool {
    body.any(&mut |e| matches!(e, Expr::Index(a) if uses(a)))
}

fn apply(scop: &mut Scop, merge: &Merge) {
    let widths: BTreeMap<BufferId, i64> =
        merge.dimensions.iter().map(|(&b, &d)| (b, scop.tensor(b).shape[d + 1])).collect();
    // Two subscripts (a, b) of merged dimensions become a·width + b.
    let join = |buffer: BufferId, index: &mut Vec<Index>| {
        if let Some(&d) = merge.dimensions.get(&buffer) {
            let (a, b) = (index[d].affine().expect("affine"), index[d + 1].affine().expect("affine"));
            index[d] = Index::Affine(a.scale(widths[&buffer]).add_scaled(b, 1));
            index.remove(d + 1);
        }
    };
    for (s, statement) in scop.statements.iter_mut().enumerate() {
        let mut write = statement.write.drain(..).map(Index::Affine).collect();
        join(statement.target, &mut write);
        statement.write = write.into_iter().map(|i| i.affine().expect("affine").clone()).collect();
        statement.body = statement.body.rewrite_loads(&mut |mut a| {
            join(a.buffer, &mut a.index);
            Expr::Load(a)
        });
        if let Some(&(i, j)) = merge.pairs.get(&s) {
            merge_pair(statement, i, j);
        }
    }
    for (&b, &d) in &merge.dimensions {
        let shape = &mut scop.tensors[b.0 as usize].shape;
        shape[d] *= shape.remove(d + 1);
    }
}

/// Replaces `i` by the merged iterator m and removes `j`: forms are in `i·extent(j) + j`, so `j` becomes m and `i` 0.
fn merge_pair(statement: &mut Statement, i: Var, j: Var) {
    let iterators = &mut statement.iterators;
    let inner = iterators.remove(j.0 as usize);
    let at = |v: Var| if v > j { Var(v.0 - 1) } else { v };
    let outer = &mut iterators[at(i).0 as usize];
    *outer = Iterator::new(format!("{}{}", outer.name, inner.name), outer.extent * inner.extent);
    let mut map = |v: Var| match v {
        v if v == i => Affine::constant(0),
        v if v == j => Affine::var(at(i)),
        v => Affine::var(at(v)),
    };
    statement.write = statement.write.iter().map(|a| a.substitute(&mut map)).collect();
    statement.domain = statement.domain.iter().map(|a| a.substitute(&mut map)).collect();
    statement.body = statement.body.substitute(&mut map);
}
