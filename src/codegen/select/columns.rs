//! Serial loops that walk along the rows that lie in the lanes of a vector.
//!
//! In: a serial loop around vector loops. Out: how many of its iterations stand one after the other, so that their gathers, which
//! read neighbouring columns, become loads of parts of rows (`interleave.rs`).

use crate::codegen::Target;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::select::expansion_cost::vector_statements;
use crate::expr::interval::{ceil_div, constant_range};
use crate::expr::{Access, Affine, BufferId, Expr, Index, Var};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of vector statements of the iterations that are unrolled. Unmeasured.
const MOST: i64 = 96;
/// Elements from lane to lane up to which whole stretches are loaded.
pub const CLOSE: i64 = 4;
/// Columns that are transposed together, at least.
const LEAST_COLUMNS: i64 = 4;
/// Columns that one iteration reads side by side, at most.
const MOST_BESIDE: i64 = 8;

/// The iterations of `stmt` that are unrolled for the columns that they read; `None` where they read none.
pub fn iterations(nest: &LoopNest, target: &Target, stmt: &Stmt) -> Option<i64> {
    let Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial | LoopKind::Parallel, body } = stmt else {
        return None;
    };
    let (first, end) = constant_range(lower, upper)?;
    let lanes = (target.vector_bytes / 4) as i64;
    if !body.iter().all(|s| is_alone(nest, s)) {
        return None;
    }
    let size = vector_statements(body, lanes)?;
    let columns = body.iter().flat_map(|s| columns_of(nest, s, *var, *step));
    let (bytes, beside) = columns.max_by_key(|(bytes, beside)| *bytes as i64 * beside)?;
    let most = target.vector_bytes as i64 / (bytes as i64 * beside);
    let fits = |n: &i64| *n <= most && n * size <= MOST && *n <= ceil_div(end - first, *step);
    [16, 8, 4, 2].into_iter().filter(|n| together(n * beside, bytes).is_some()).find(fits)
}

/// How many of `beside` neighbouring columns of elements of `bytes` bytes are transposed together: a power of two, of vectors of
/// at least 16 bytes; `None` where these are too few.
pub fn together(beside: i64, bytes: usize) -> Option<i64> {
    let least = LEAST_COLUMNS.max(16 / bytes as i64);
    [16, 8, 4].into_iter().find(|&n| n <= beside && n >= least)
}

/// Returns true if columns are all that the vector loops of `stmt` reach apart.
fn is_alone(nest: &LoopNest, stmt: &Stmt) -> bool {
    let mut alone = true;
    stmt.visit(&mut |s| {
        let Stmt::Loop { var: lane, kind: LoopKind::Vector, body, .. } = s else { return };
        let mut note = |s: &Stmt| {
            if let Stmt::Store { buffer, index, value, .. } = s {
                alone &= pays(nest, *buffer, index, value, *lane);
            }
        };
        body.iter().for_each(|s| s.visit(&mut note));
    });
    alone
}

/// Returns false beside lanes that are stored apart or read by subscripts from data: these take longer than gathers of columns.
/// Measured by solvers of tridiagonal systems along rows and by a sparse product.
fn pays(nest: &LoopNest, buffer: BufferId, index: &[Index], value: &Expr, lane: Var) -> bool {
    let stored = along(nest, buffer, index, lane).is_some_and(|n| n.abs() <= CLOSE);
    stored && !reads_by_data(value)
}

/// Returns true if a subscript comes from data.
pub fn reads_by_data(value: &Expr) -> bool {
    let mut computed = false;
    value.visit_accesses(&mut |a| computed |= a.index.iter().any(|i| i.value().is_some()));
    computed
}

/// The sizes of the elements that neighbouring iterations of the loop over `var` read side by side, in rows that are lanes, and how
/// many of them one iteration reads.
fn columns_of(nest: &LoopNest, stmt: &Stmt, var: Var, step: i64) -> Vec<(usize, i64)> {
    let mut out = vec![];
    stmt.visit(&mut |s| {
        let Stmt::Loop { var: lane, kind: LoopKind::Vector, body, .. } = s else { return };
        let mut read: BTreeMap<BufferId, BTreeSet<Affine>> = BTreeMap::new();
        let mut note = |a: &Access| {
            if element(nest, a, *lane).is_some()
                && let Some(place) = nest.buffer(a.buffer).place(&a.index)
            {
                read.entry(a.buffer).or_default().insert(place);
            }
        };
        body.iter().for_each(|s| s.visit(&mut |s| s.expressions().for_each(|e| e.visit_accesses(&mut note))));
        for (buffer, places) in &read {
            for place in places {
                let beside = (place.coefficient(var) * step).abs();
                let all_beside = || (1..beside).all(|k| places.contains(&place.clone().offset(k)));
                if (1..=MOST_BESIDE).contains(&beside) && all_beside() {
                    out.push((nest.buffer(*buffer).dtype.bytes(), beside));
                }
            }
        }
    });
    out
}

/// The size of the elements of an access whose lanes read rows that lie apart; `None` for others.
pub fn element(nest: &LoopNest, access: &Access, lane: Var) -> Option<usize> {
    let bytes = nest.buffer(access.buffer).dtype.bytes();
    let apart = along(nest, access.buffer, &access.index, lane).is_some_and(|n| n > CLOSE);
    (access.guard.is_empty() && matches!(bytes, 4 | 8) && apart).then_some(bytes)
}

/// Elements from one iteration of the loop over `v` to the next; `None` where a subscript comes from data.
fn along(nest: &LoopNest, buffer: BufferId, index: &[Index], v: Var) -> Option<i64> {
    let bytes = |(i, stride): (&Index, &i64)| i.affine().map(|a: &Affine| a.coefficient(v) * stride);
    index.iter().zip(&nest.buffer(buffer).strides).map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::loopnest::parse;

    #[test]
    fn iterations_that_read_neighbouring_columns_stand_together() {
        let of = |store: &str| {
            let text = format!(
                "kernel p {{ S: f32[64] argument 0 written; X: f32[64][1300] argument 1; D: f64[64][500] argument 2;
                 Y: f32[64][500] argument 3 written; J: i64[64] argument 4;
                 for j in 0..400 {{ vector i in 0..16 {{ {store}; }} }} }}"
            );
            let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            iterations(&nest, &Target::avx512(), &nest.body[0])
        };
        assert_eq!(of("S[i] = (S[i] + X[i][j])"), Some(16));
        assert_eq!(of("S[i] = (S[i] + cast f32(D[i][j]))"), Some(8));
        // both of two columns in each iteration, three of which one is left out
        assert_eq!(of("S[i] = (S[i] + (X[i][2*j] * X[i][2*j + 1]))"), Some(8));
        assert_eq!(of("S[i] = (S[i] + (X[i][3*j] * X[i][3*j + 1]))"), None);
        // every second column, one row for all lanes, a stride between iterations
        assert_eq!(of("S[i] = (S[i] + X[i][2*j])"), None);
        assert_eq!(of("S[i] = (S[i] + X[j][i])"), None);
        // lanes that are stored apart, and subscripts from data
        assert_eq!(of("Y[i][j] = X[i][j]"), None);
        assert_eq!(of("S[i] = (S[i] + (X[i][j] * S[@J[i]]))"), None);
        // more than the code may hold
        let long: String = (0..40).fold("X[i][j]".into(), |e, _| format!("({e} * S[i])"));
        assert_eq!(of(&format!("S[i] = {long}")), Some(4));
    }
}
