//! Scalar expansion: a temporary of one element that each iteration of a vector loop sets before it reads it gets an
//! element for each lane, so that the loop can run on vectors. (Allen and Kennedy, Optimizing Compilers for Modern
//! Architectures, 5.3.)
//!
//! In: the body of a vector loop from 0. Out: the body with a last dimension, along the loop's variable, for each such
//! temporary. [`contracted`] cuts that dimension to the lanes that strip-mining leaves at work at a time.

use crate::codegen::loopnest::{Buffer, BufferKind, LoopNest, Stmt};
use crate::expr::{Affine, BufferId, Expr, Index, Var};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::ControlFlow::{self, Break, Continue};

/// `body` with a last dimension of `extent` elements along `var` for each temporary that is private to an iteration;
/// the new buffers are added to `nest`. None if there is no such temporary.
pub fn expanded(nest: &mut LoopNest, var: Var, extent: i64, body: &[Stmt]) -> Option<(Vec<Stmt>, Vec<BufferId>)> {
    let private = private(nest, var, body);
    if private.is_empty() {
        return None;
    }
    let mut new = FxHashMap::default();
    for &b in &private {
        let old = nest.buffer(b);
        let shape: Vec<i64> = old.shape.iter().copied().chain([extent]).collect();
        let buffer = Buffer::dense(old.name.clone(), old.dtype, &shape, BufferKind::Local);
        new.insert(b, BufferId(nest.buffers.len() as u32));
        nest.buffers.push(buffer);
    }
    let body = body.iter().map(|s| with_lane(s, &new, var)).collect();
    Some((body, private.iter().map(|b| new[b]).collect()))
}

/// `body` with `place` as the last subscript of `buffers`, whose last dimension becomes `group`.
pub fn contracted(nest: &mut LoopNest, buffers: &[BufferId], group: i64, place: Var, body: &[Stmt]) -> Vec<Stmt> {
    for &b in buffers {
        let old = nest.buffer(b);
        let mut shape = old.shape.clone();
        shape.pop();
        shape.push(group);
        nest.buffers[b.0 as usize] = Buffer::dense(old.name.clone(), old.dtype, &shape, BufferKind::Local);
    }
    body.iter().map(|s| at_place(s, buffers, place)).collect()
}

/// The local buffers of which each iteration of `body`, along subscripts that do not depend on `var`, stores every element before it
/// reads it, and so does every iteration of another loop that works on them: the rest that vectors or tiles leave.
fn private(nest: &LoopNest, var: Var, body: &[Stmt]) -> Vec<BufferId> {
    let mut candidates: Vec<BufferId> = vec![];
    for stmt in body {
        if let Stmt::Store { buffer, .. } = stmt
            && nest.buffer(*buffer).kind == BufferKind::Local
            && !candidates.contains(buffer)
        {
            candidates.push(*buffer);
        }
    }
    candidates.retain(|&b| is_set_first(body, b, var) && is_set_first_elsewhere(&nest.body, b, var));
    candidates
}

/// Returns true if each access to `buffer` but those in the loop over `var` lies in a loop whose iterations set what they read.
fn is_set_first_elsewhere(body: &[Stmt], buffer: BufferId, var: Var) -> bool {
    let mut accessed = false;
    each_access(body, &mut |b, _| accessed |= b == buffer);
    !accessed
        || body.iter().all(|stmt| match stmt {
            Stmt::Loop { var: v, body, .. } => {
                *v == var || is_set_first(body, buffer, *v) || is_set_first_elsewhere(body, buffer, var)
            }
            Stmt::If { body, .. } => is_set_first_elsewhere(body, buffer, var),
            Stmt::Let { .. } | Stmt::Read { .. } => true,
            Stmt::Store { .. } => {
                let mut accessed = false;
                each_access(std::slice::from_ref(stmt), &mut |b, _| accessed |= b == buffer);
                !accessed
            }
        })
}

fn each_access(body: &[Stmt], f: &mut impl FnMut(BufferId, &[Index])) {
    body.iter().for_each(|s| {
        s.visit(&mut |stmt| {
            if let Stmt::Store { buffer, index, .. } = stmt {
                f(*buffer, index);
                stmt.expressions().for_each(|e| e.visit_accesses(&mut |a| f(a.buffer, &a.index)));
            }
        })
    });
}

/// Returns true if each element of `buffer` that `body` reads was stored before by a statement of `body` itself, under no
/// condition. Elements are told apart by constant subscripts; subscripts in variables must all be the same.
fn is_set_first(body: &[Stmt], buffer: BufferId, var: Var) -> bool {
    let mut lists: FxHashSet<Option<Vec<Affine>>> = FxHashSet::default();
    each_access(body, &mut |b, index| {
        if b == buffer {
            lists.insert(index.iter().map(|i| i.affine().cloned()).collect());
        }
    });
    let constant = |list: &[Affine]| list.iter().all(|a| a.terms.is_empty());
    let named = |list: &Option<Vec<Affine>>| list.as_ref().is_some_and(|l| !l.iter().any(|a| a.uses(var)));
    if !lists.iter().all(named) || lists.len() > 1 && !lists.iter().flatten().all(|l| constant(l)) {
        return false;
    }
    // a subscript of an inner loop would name several elements
    let bound_inside = |v: Var| {
        let mut defined = false;
        body.iter().for_each(|s| {
            s.visit(&mut |s| {
                defined |=
                    matches!(s, Stmt::Loop { var, .. } | Stmt::Let { var, .. } | Stmt::Read { var, .. } if *var == v)
            })
        });
        defined
    };
    if lists.iter().flatten().flatten().any(|a| a.terms.iter().any(|t| bound_inside(t.0))) {
        return false;
    }
    let mut set: FxHashSet<Vec<Affine>> = FxHashSet::default();
    let walked = body.iter().try_for_each(|stmt| -> ControlFlow<()> {
        let mut fits = true;
        let mut read = |index: &[Index]| {
            let list: Option<Vec<Affine>> = index.iter().map(|i| i.affine().cloned()).collect();
            fits &= list.is_some_and(|l| set.contains(&l));
        };
        stmt.visit(&mut |inner| {
            let Stmt::Store { buffer: b, index, reduce, .. } = inner else { return };
            for e in inner.expressions() {
                e.visit_accesses(&mut |a| {
                    if a.buffer == buffer {
                        read(&a.index);
                    }
                });
            }
            // a store inside of a loop or a condition sets nothing: what it names must be set already
            if *b == buffer && (reduce.is_some() || !std::ptr::eq(inner, stmt)) {
                read(index);
            }
        });
        if !fits {
            return Break(());
        }
        if let Stmt::Store { buffer: b, index, reduce: None, .. } = stmt
            && *b == buffer
        {
            set.insert(index.iter().filter_map(|i| i.affine().cloned()).collect());
        }
        Continue(())
    });
    walked.is_continue()
}

/// `stmt` with the new buffers in place of the old ones, at the lane `var`.
fn with_lane(stmt: &Stmt, new: &FxHashMap<BufferId, BufferId>, var: Var) -> Stmt {
    rewritten(stmt, &mut |buffer, index| {
        if let Some(&lanes) = new.get(buffer) {
            *buffer = lanes;
            index.push(Index::Affine(Affine::var(var)));
        }
    })
}

fn at_place(stmt: &Stmt, buffers: &[BufferId], place: Var) -> Stmt {
    rewritten(stmt, &mut |buffer, index| {
        if buffers.contains(buffer) {
            index.pop();
            index.push(Index::Affine(Affine::var(place)));
        }
    })
}

/// `stmt` with `f` applied to each access.
fn rewritten(stmt: &Stmt, f: &mut impl FnMut(&mut BufferId, &mut Vec<Index>)) -> Stmt {
    match stmt {
        Stmt::Store { buffer, index, value, reduce } => {
            let value = value.rewrite_loads(&mut |mut a| {
                f(&mut a.buffer, &mut a.index);
                Expr::Load(a)
            });
            let (mut buffer, mut index) = (*buffer, index.clone());
            f(&mut buffer, &mut index);
            Stmt::Store { buffer, index, value, reduce: *reduce }
        }
        other => other.with_body(other.body().iter().map(|s| rewritten(s, f)).collect()),
    }
}

#[cfg(test)]
mod tests;
