//! Branches around updates at subscripts from data that the condition of the update keeps inside.
//!
//! In: a nest. Out: a nest of the same meaning in which `if g[i] >= 0 && g[i] < N h[g[i]] += v`, that after if-conversion adds a selection of `v` and the neutral
//! element at `min(max(g[i], 0), N - 1)`, is a branch again where it stands outside of vector loops. The subscript is read once and its bounds are known in the branch, so
//! that there is neither a clamp nor a selection, and nothing is loaded and stored where the condition fails. Such a condition says whether an element counts at all
//! and holds for nearly all of them or changes rarely, so that processors predict it; other conditions stay selections.

use crate::codegen::loopnest::clamps::{clamped, number, widened};
use crate::codegen::loopnest::{LoopNest, Stmt, is_kept};
use crate::expr::dynamic_bounds::swapped;
use crate::expr::logic::Condition;
use crate::expr::narrow::{Interval, dtype_range};
use crate::expr::{Access, Affine, Bound, BufferId, CompareOp, Expr, Index, Var};
use crate::runtime::DType;

/// Puts updates inside of the phases of `nest` into branches. A phase stays one statement.
pub fn branch(nest: &mut LoopNest, phases: Vec<Stmt>) -> Vec<Stmt> {
    phases.into_iter().map(|p| if p.is_vector_loop() { p } else { p.map_body(|body| inside(nest, body)) }).collect()
}

fn inside(nest: &mut LoopNest, body: Vec<Stmt>) -> Vec<Stmt> {
    let (mut out, mut last): (Vec<Stmt>, Option<Guard>) = (vec![], None);
    for stmt in body {
        if stmt.is_vector_loop() {
            (last, out) = (None, [out, vec![stmt]].concat());
            continue;
        }
        let Some((guard, update)) = guarded(nest, &stmt) else {
            last = None;
            out.push(stmt.map_body(|body| inside(nest, body)));
            continue;
        };
        let guard = match last {
            Some(before) if before.elements == guard.elements && !writes(&out, &guard) => before,
            _ => {
                let vars = guard.elements.iter().map(|e| (nest.new_var("place"), e)).collect::<Vec<_>>();
                let mut conditions = vec![];
                for (var, e) in vars {
                    let value = Expr::cast(DType::I64, e.value.clone());
                    let expected = Bound::constant(e.within.0);
                    out.push(Stmt::Read { var, value, range: e.range, checked: false, expected, recorded: None });
                    conditions.push(Affine::var(var).offset(-e.within.0));
                    conditions.push(Affine::var(var).scale(-1).offset(e.within.1));
                }
                out.push(Stmt::If { conditions, body: vec![] });
                Guard { vars: nest.vars.len() - guard.elements.len(), ..guard }
            }
        };
        let update = guard.placed(update);
        if let Some(Stmt::If { body, .. }) = out.last_mut() {
            body.push(update);
        }
        last = Some(guard);
    }
    out
}

/// An integer out of data that is a subscript, and what the condition around says of it.
#[derive(Clone, PartialEq)]
struct Element {
    value: Expr,
    within: Interval,
    range: Interval,
}

/// The elements that a condition limits.
#[derive(Clone, PartialEq)]
struct Guard {
    elements: Vec<Element>,
    /// The number of the first one's variable.
    vars: usize,
}

impl Guard {
    /// The update with variables as subscripts.
    fn placed(&self, update: Stmt) -> Stmt {
        let place = |i: &Index| match i {
            Index::Value(e) => clamped(e).and_then(|(value, ..)| {
                let n = self.elements.iter().position(|e| e.value == *value)?;
                Some(Index::Affine(Affine::var(Var((self.vars + n) as u32))))
            }),
            Index::Affine(_) => None,
        };
        let all = |index: &[Index]| index.iter().map(|i| place(i).unwrap_or_else(|| i.clone())).collect::<Vec<_>>();
        match update {
            Stmt::Store { buffer, index, value, reduce } => {
                let value = value.rewrite_loads(&mut |access| {
                    let index = all(&access.index);
                    Expr::Load(Access { index, ..access })
                });
                Stmt::Store { buffer, index: all(&index), value, reduce }
            }
            other => other,
        }
    }
}

/// The guard of an update, and the update without its selection.
fn guarded(nest: &LoopNest, stmt: &Stmt) -> Option<(Guard, Stmt)> {
    let Stmt::Store { buffer, index, value: Expr::Select(condition, value, otherwise), reduce } = stmt else {
        return None;
    };
    let keeps = is_kept(&nest.buffers, (*buffer, index), *reduce, otherwise);
    let parts = condition.parts(true);
    let mut elements: Vec<Element> = vec![];
    for (d, i) in index.iter().enumerate() {
        let Index::Value(e) = i else { continue };
        let (value, low, high) = clamped(e)?;
        if elements.iter().any(|e| e.value == *value) {
            continue;
        }
        let within = parts.iter().filter_map(|&part| limits(part, value)).fold((i64::MIN, i64::MAX), both);
        let inside = low <= within.0 && within.1 <= high && 0 <= within.0 && within.1 < nest.buffer(*buffer).shape[d];
        let Expr::Load(access) = value else { return None };
        let range = match nest.buffer(access.buffer).dtype {
            DType::I64 => (within.0.saturating_sub(1), within.1.saturating_add(1)),
            dtype if dtype.is_storage() || dtype == DType::Bool => return None,
            dtype => dtype_range(dtype)?,
        };
        let affine = access.guard.is_empty() && access.index.iter().all(|i| i.affine().is_some());
        if !inside || !affine || within.0 > within.1 {
            return None;
        }
        elements.push(Element { value: value.clone(), within, range });
    }
    // what the conditions leave to be selected
    let is_limit = |part: (&Expr, bool)| elements.iter().any(|e| limits(part, &e.value).is_some());
    if !keeps || elements.is_empty() {
        return None;
    }
    let value = match Expr::all(parts.into_iter().filter(|&part| !is_limit(part))) {
        None => (**value).clone(),
        Some(rest) => Expr::select(rest, (**value).clone(), (**otherwise).clone()),
    };
    let update = Stmt::Store { buffer: *buffer, index: index.clone(), value, reduce: *reduce };
    Some((Guard { elements, vars: 0 }, update))
}

/// The interval in which a comparison that holds, or that does not, says that `value` lies.
fn limits((e, holds): (&Expr, bool), value: &Expr) -> Option<Interval> {
    let Expr::Compare(op, a, b) = e else { return None };
    let op = if holds { *op } else { op.opposite() };
    let (op, limit) = match (widened(a) == value, widened(b) == value) {
        (true, _) => (op, number(b)?),
        (_, true) => (swapped(op), number(a)?),
        _ => return None,
    };
    match op {
        CompareOp::Lt => Some((i64::MIN, limit.checked_sub(1)?)),
        CompareOp::Le => Some((i64::MIN, limit)),
        CompareOp::Gt => Some((limit.checked_add(1)?, i64::MAX)),
        CompareOp::Ge => Some((limit, i64::MAX)),
        CompareOp::Eq => Some((limit, limit)),
        CompareOp::Ne => None,
    }
}

fn both(a: Interval, b: Interval) -> Interval {
    (a.0.max(b.0), a.1.min(b.1))
}

/// Returns true if the branch that is last writes an array in which an element of the guard lies.
fn writes(out: &[Stmt], guard: &Guard) -> bool {
    let read: Vec<BufferId> = guard
        .elements
        .iter()
        .filter_map(|e| if let Expr::Load(a) = &e.value { Some(a.buffer) } else { None })
        .collect();
    out.last().is_some_and(|branch| {
        branch.body().iter().any(|s| matches!(s, Stmt::Store { buffer, .. } if read.contains(buffer)))
    })
}

#[cfg(test)]
mod tests {
    use super::branch;
    use crate::codegen::select::tests::passes::passed;

    /// The loop over `update`, with branches.
    fn branches(update: &str, kind: &str) -> String {
        let text = format!(
            "kernel h {{ P: i32[40] argument 0; X: f32[40] argument 1; H: f32[9] argument 2 written; C: f32[9] argument 3 written; Q: i32[9] argument 4 written;
             {kind} i in 0..40 {{ {update} }} }}"
        );
        passed(&text, branch, "40 {")
    }

    const INSIDE: &str = "and(ge(P[i], i32(0)), lt(P[i], i32(9)))";
    const PLACE: &str = "@min(max(P[i], i32(0)), i32(8))";

    #[test]
    fn updates_whose_condition_limits_their_subscript_share_a_branch() {
        let text = branches(
            &format!(
                "H[{PLACE}] add = select({INSIDE}, X[i], f32(-0.0)); C[{PLACE}] = select({INSIDE}, H[{PLACE}], C[{PLACE}]);"
            ),
            "for",
        );
        assert_eq!(text.matches("let place").count(), 1, "{text}");
        assert!(
            text.contains("if place >= 0 && -place + 8 >= 0 { H[place] add = X[i]; C[place] = H[place]; }"),
            "{text}"
        );
    }

    #[test]
    fn negated_comparisons_limit_too() {
        let negated = "not(or(lt(P[i], i32(0)), gt(P[i], i32(8))))";
        let text = branches(&format!("H[{PLACE}] add = select({negated}, X[i], f32(-0.0));"), "for");
        assert!(text.contains("if place >= 0 && -place + 8 >= 0 { H[place] add = X[i]; }"), "{text}");
        let rest = format!("and({INSIDE}, not(gt(X[i], f32(0.0))))");
        let text = branches(&format!("H[{PLACE}] add = select({rest}, X[i], f32(-0.0));"), "for");
        assert!(text.contains("{ H[place] add = select(not(gt(X[i], f32(0.0))), X[i], f32(-0.0)); }"), "{text}");
    }

    #[test]
    fn other_conditions_stay_selections() {
        // the element counts where another one does
        let other = format!("H[{PLACE}] add = select(gt(X[i], f32(0.0)), X[i], f32(-0.0));");
        // the condition lets more through than the array has
        let wide = format!("H[{PLACE}] add = select({}, X[i], f32(-0.0));", INSIDE.replace("i32(9)", "i32(10)"));
        // 0 makes 0 of -0
        let zero = format!("H[{PLACE}] add = select({INSIDE}, X[i], f32(0.0));");
        for update in [other, wide, zero] {
            let text = branches(&update, "for");
            assert!(!text.contains("place"), "{text}");
        }
        let both = format!("H[{PLACE}] add = select(and({INSIDE}, gt(X[i], f32(0.0))), X[i], f32(-0.0));");
        let text = branches(&both, "for");
        assert!(text.contains("{ H[place] add = select(gt(X[i], f32(0.0)), X[i], f32(-0.0)); }"), "{text}");
    }

    #[test]
    fn a_subscript_that_an_update_changes_is_read_again() {
        let text = branches(
            "Q[@min(max(Q[0], i32(0)), i32(8))] = select(and(ge(Q[0], i32(0)), lt(Q[0], i32(9))), P[i], Q[@min(max(Q[0], i32(0)), i32(8))]);
                 H[@min(max(Q[0], i32(0)), i32(8))] add = select(and(ge(Q[0], i32(0)), lt(Q[0], i32(9))), X[i], f32(-0.0));",
            "for",
        );
        assert_eq!(text.matches("let place").count(), 2, "{text}");
    }
}
