//! Branches around stores at subscripts from data whose value a condition selects.
//!
//! In: a nest. Out: a nest of the same meaning in which statements that follow each other, `h[n] = select(c, v, h[n])` after if-conversion, are
//! a branch `if c h[n] = v` again where they stand outside of vector loops and the innermost loop moves the subscript by way of memory
//! alone. A subscript that only the condition moves, as that of a stream compaction (`if c { h[n] = v  n += 1 }`), makes the load of
//! what is kept wait for the store of the iteration before: some 7 cycles for each iteration, condition or not. A branch that is predicted
//! otherwise costs some 15, so that it is the faster one unless about half of all conditions are predicted wrongly, as those of random data that
//! hold every other time are. Neither is measured by `calibrate`. Stores at subscripts that each iteration reads anew stay selections, since
//! nothing waits for them; so do updates with a neutral element.

use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::codegen::select::guarded_updates::is_kept;
use crate::expr::{Affine, Bound, Expr, Index, Var};
use crate::runtime::DType;

/// Puts stores inside of the phases of `nest` into branches. A phase stays one statement.
pub fn branch(nest: &mut LoopNest, phases: Vec<Stmt>) -> Vec<Stmt> {
    phases.into_iter().map(|p| if p.is_vector_loop() { p } else { within(nest, p, None) }).collect()
}

/// A loop or a condition with branches, within the loop over a variable.
fn within(nest: &mut LoopNest, stmt: Stmt, around: Option<Var>) -> Stmt {
    let around = if let Stmt::Loop { var, .. } = &stmt { Some(*var) } else { around };
    stmt.map_body(|body| inside(nest, body, around))
}

fn inside(nest: &mut LoopNest, body: Vec<Stmt>, around: Option<Var>) -> Vec<Stmt> {
    let mut out: Vec<Stmt> = vec![];
    // the condition of the branch that is last
    let mut open: Option<Expr> = None;
    for stmt in body {
        if stmt.is_vector_loop() {
            open = None;
            out.push(stmt);
            continue;
        }
        let Some((condition, store)) = conditional(nest, &stmt, around) else {
            open = None;
            out.push(within(nest, stmt, around));
            continue;
        };
        let same = open.as_ref().is_some_and(|c| *c == condition) && !out.last().is_some_and(|b| writes(b, &condition));
        if !same {
            let var = nest.new_var("holds");
            let value = Expr::cast(DType::I64, condition.clone());
            // a bool is 0 or 1 as it is
            out.push(Stmt::Read {
                var,
                value,
                range: (0, 1),
                checked: true,
                expected: Bound::constant(1),
                recorded: None,
            });
            out.push(Stmt::If { conditions: vec![Affine::var(var).offset(-1)], body: vec![] });
            open = Some(condition);
        }
        if let Some(Stmt::If { body, .. }) = out.last_mut() {
            body.push(store);
        }
    }
    out
}

/// The condition of a store at a subscript from data that keeps its element otherwise, and the store where it holds; `None` where the subscript
/// follows from the variable of the loop around.
fn conditional(nest: &LoopNest, stmt: &Stmt, around: Option<Var>) -> Option<(Expr, Stmt)> {
    let Stmt::Store { buffer, index, value: Expr::Select(condition, value, kept), reduce: None } = stmt else {
        return None;
    };
    let keeps = is_kept(nest, (*buffer, index), None, kept);
    let from_data = index.iter().any(|i| matches!(i, Index::Value(_)));
    let moves = around.is_some_and(|var| index.iter().any(|i| changes(i, var)));
    let store = Stmt::Store { buffer: *buffer, index: index.clone(), value: (**value).clone(), reduce: None };
    (keeps && from_data && !moves).then(|| ((**condition).clone(), store))
}

fn changes(index: &Index, var: Var) -> bool {
    match index {
        Index::Affine(a) => a.uses(var),
        Index::Value(e) => e.depends_on(var),
    }
}

/// Returns true if a branch writes an array that a condition reads.
fn writes(branch: &Stmt, condition: &Expr) -> bool {
    branch.body().iter().any(|s| matches!(s, Stmt::Store { buffer, .. } if condition.reads(*buffer)))
}

#[cfg(test)]
mod tests {
    use super::branch;
    use crate::codegen::select::tests::passes::passed;

    /// The loop over `body`, with branches.
    fn branches(body: &str, kind: &str) -> String {
        let text = format!(
            "kernel h {{ X: f32[40] argument 0; H: f32[9] argument 1 written; C: i32[9] argument 2 written; N: i32 argument 3 written;
             {kind} i in 0..40 {{ {body} }} }}"
        );
        passed(&text, branch, "40 {")
    }

    const PLACE: &str = "@min(max(N, i32(0)), i32(8))";

    fn store(array: &str, condition: &str, value: &str) -> String {
        format!("{array}[{PLACE}] = select({condition}, {value}, {array}[{PLACE}]);")
    }

    #[test]
    fn stores_under_one_condition_share_a_branch() {
        let positive = "gt(X[i], f32(0.0))";
        let body = [store("H", positive, "X[i]"), store("C", positive, "cast i32(index(i))")].concat();
        let text = branches(&format!("{body} N add = select({positive}, i32(1), i32(0));"), "for");
        assert_eq!(text.matches("let holds").count(), 1, "{text}");
        assert!(text.contains(&format!("if holds - 1 >= 0 {{ H[{PLACE}] = X[i]; C[{PLACE}] =")), "{text}");
        assert!(text.contains("} N add = select("), "{text}");
    }

    #[test]
    fn a_condition_that_a_store_changes_is_read_again() {
        let body = [store("H", "gt(H[0], f32(0.0))", "f32(-1.0)"), store("C", "gt(H[0], f32(0.0))", "i32(1)")].concat();
        let text = branches(&body, "for");
        assert_eq!(text.matches("let holds").count(), 2, "{text}");
    }

    #[test]
    fn other_stores_stay_selections() {
        let affine = "H[0] = select(gt(X[i], f32(0.0)), X[i], H[0]);".to_string();
        let other = store("H", "gt(X[i], f32(0.0))", "X[i]").replace(&format!("H[{PLACE}])"), "H[0])");
        let update = format!("H[{PLACE}] add = select(gt(X[i], f32(0.0)), X[i], f32(-0.0));");
        // each iteration reads the subscript
        let place = "@min(max(cast i32(X[i]), i32(0)), i32(8))";
        let anew = store("H", "gt(X[i], f32(0.0))", "X[i]").replace(PLACE, place);
        for body in [affine, other, update, anew] {
            let text = branches(&body, "for");
            assert!(!text.contains("holds"), "{text}");
        }
    }
}
