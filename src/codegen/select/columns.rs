//! Serial loops that walk along the rows that lie in the lanes of a vector.
//!
//! In: a serial loop around vector loops. Out: how many of its iterations stand one after the other, so that their gathers, which
//! read neighbouring columns, become loads of parts of rows (`interleave.rs`).

use crate::codegen::Target;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::select::expansion_cost::{constant_range, vector_statements};
use crate::expr::interval::ceil_div;
use crate::expr::{Access, Affine, BufferId, Expr, Index, Var};

/// Largest number of vector statements of the iterations that are unrolled. Unmeasured.
const MOST: i64 = 96;

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
    let columns = body.iter().filter_map(|s| bytes_of_columns(nest, s, *var, *step)).max()?;
    let most = (target.vector_bytes / columns) as i64;
    [16, 8, 4].into_iter().find(|&n| n <= most && n * size <= MOST && n <= ceil_div(end - first, *step))
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
pub fn pays(nest: &LoopNest, buffer: BufferId, index: &[Index], value: &Expr, lane: Var) -> bool {
    let stored = along(nest, buffer, index, lane).is_some_and(|n| n.abs() <= 1);
    let mut computed = false;
    value.visit_accesses(&mut |a| computed |= a.index.iter().any(|i| i.value().is_some()));
    stored && !computed
}

/// The size of the elements that neighbouring iterations of the loop over `var` read side by side, in rows that are lanes.
fn bytes_of_columns(nest: &LoopNest, stmt: &Stmt, var: Var, step: i64) -> Option<usize> {
    let mut widest = None;
    stmt.visit(&mut |s| {
        let Stmt::Loop { var: lane, kind: LoopKind::Vector, body, .. } = s else { return };
        let mut note = |a: &Access| {
            let bytes = nest.buffer(a.buffer).dtype.bytes();
            if is_column(nest, a, *lane, var, step) {
                widest = widest.max(Some(bytes));
            }
        };
        body.iter().for_each(|s| s.visit(&mut |s| s.expressions().for_each(|e| e.visit_accesses(&mut note))));
    });
    widest
}

/// Returns true if lanes read rows that lie apart, of which iterations of the loop over `var` read neighbours.
pub fn is_column(nest: &LoopNest, access: &Access, lane: Var, var: Var, step: i64) -> bool {
    let along = |v: Var| along(nest, access.buffer, &access.index, v);
    access.guard.is_empty()
        && matches!(nest.buffer(access.buffer).dtype.bytes(), 4 | 8)
        && along(var).is_some_and(|n| (n * step).abs() == 1)
        && along(lane).is_some_and(|n| n > 4)
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
                "kernel p {{ S: f32[64] argument 0 written; X: f32[64][500] argument 1; D: f64[64][500] argument 2;
                 Y: f32[64][500] argument 3 written; J: i64[64] argument 4;
                 for j in 0..400 {{ vector i in 0..16 {{ {store}; }} }} }}"
            );
            let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            iterations(&nest, &Target::avx512(), &nest.body[0])
        };
        assert_eq!(of("S[i] = (S[i] + X[i][j])"), Some(16));
        assert_eq!(of("S[i] = (S[i] + cast f32(D[i][j]))"), Some(8));
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
