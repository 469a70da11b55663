//! Loop unswitching: branches around loops of which a condition decides whether they do anything.
//!
//! In: a nest. Out: a nest of the same meaning in which `for j { a[j] = select(c, v, a[j]); }`, where `c` is the same in all iterations, is `if c { for j { a[j] = v; } }`
//! (Allen and Cocke, "A catalogue of optimizing transformations", 1971). A condition on data around a loop selects values after if-conversion, so that all
//! transformations hold for it; here it skips the loop again. Of neighbouring loops that share the condition there is one branch. An innermost loop whose values
//! are selected by such a condition, `for j { a[j] = select(c, v, w); }`, has two versions, each with the values that it needs. What stands in vector loops, and
//! work that costs less than a branch that is predicted wrong now and then, stays.

use crate::codegen::loopnest::innermost::is_innermost;
use crate::codegen::loopnest::invariant::written_in;
use crate::codegen::loopnest::simplify::conditions::decided;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt, is_kept};
use crate::codegen::select::expansion_cost::cost;
use crate::expr::interval::{Facts, constant_range};
use crate::expr::logic::Condition as _;
use crate::expr::{Access, Affine, Bound, BufferId, Expr, Index, Scalar, Var};
use crate::runtime::DType;
use rustc_hash::{FxHashMap, FxHashSet};

/// Instructions of the least work that a branch skips. Unmeasured.
const LEAST_WORK: i64 = 12;

/// Instructions that an iteration of a version has to take less, on the average of both. Unmeasured.
const LEAST_SAVING: i64 = 6;

/// Instructions of the longest loop that has two versions; of those of a version in turn half of them.
const LONGEST: i64 = 256;

/// Puts loops inside of the phases of `nest` into branches. A phase stays one statement.
pub fn unswitch(nest: &mut LoopNest, phases: Vec<Stmt>) -> Vec<Stmt> {
    let facts = Facts::new(nest.vars.len());
    phases.into_iter().map(|phase| inside(nest, phase, &facts, LONGEST)).collect()
}

/// A condition, and whether it holds.
pub(super) type Part = (Expr, bool);

fn is_expanded(s: &Stmt) -> bool {
    matches!(s, Stmt::Loop { kind: LoopKind::Vector | LoopKind::Unroll | LoopKind::Instruction(_), .. })
}

fn inside(nest: &mut LoopNest, stmt: Stmt, facts: &Facts, longest: i64) -> Stmt {
    if is_expanded(&stmt) {
        return stmt;
    }
    let mut facts = facts.clone();
    stmt.enter(&mut facts);
    stmt.map_body(|body| {
        let (mut out, mut rest) = (vec![], body.into_iter().peekable());
        while let Some(stmt) = rest.next() {
            stmt.bind(&mut facts);
            let mut shared = conditions(nest, &stmt, &facts);
            if shared.is_empty() || !matches!(stmt, Stmt::Loop { .. }) {
                match versions(nest, &stmt, &facts, longest) {
                    Some(versions) => out.extend(versions),
                    None => out.push(inside(nest, stmt, &facts, longest)),
                }
                continue;
            }
            let mut group = vec![stmt];
            while let Some(next) = rest.peek().filter(|next| matches!(next, Stmt::Loop { .. } | Stmt::Store { .. })) {
                let more = conditions(nest, next, &facts);
                let both: Vec<Part> = shared.iter().filter(|part| more.contains(part)).cloned().collect();
                if both.is_empty() || both.iter().any(|part| depends(&part.0, &written_in(&group))) {
                    break;
                }
                (shared, group) = (both, [group, rest.next().into_iter().collect()].concat());
            }
            if group.iter().map(work).sum::<i64>() < LEAST_WORK {
                out.extend(group.into_iter().map(|s| inside(nest, s, &facts, longest)));
                continue;
            }
            let (flag, read) = test(nest, &shared);
            let later: Vec<Stmt> = rest.clone().chain([read.clone()]).collect();
            while let Some(s) = out.pop_if(|s| is_for(s, &later)) {
                group.insert(0, s);
            }
            out.push(read);
            let group = group.into_iter().map(|s| without(s, &shared)).collect();
            let branch = Stmt::If { conditions: vec![Affine::var(flag).offset(-1)], body: group };
            out.push(inside(nest, branch, &facts, longest));
        }
        out
    })
}

/// The versions of an innermost loop for a condition that selects values in it, and the read of the condition; `None` where no condition saves enough.
fn versions(nest: &mut LoopNest, s: &Stmt, facts: &Facts, longest: i64) -> Option<Vec<Stmt>> {
    let Stmt::Loop { var, lower, upper, body, kind: LoopKind::Serial, .. } = s else { return None };
    let short = constant_range(lower, upper).is_some_and(|(first, end)| end - first < 4);
    if short || !is_innermost(body) || cost(body) > longest {
        return None;
    }
    let condition = selecting(nest, s, facts)?;
    let (flag, read) = test(nest, &[(condition.clone(), true)]);
    let mut out = vec![read];
    for (truth, holds) in [(true, Affine::var(flag).offset(-1)), (false, Affine::var(flag).scale(-1))] {
        let body = known(nest, body, (&condition, truth), facts);
        if body.is_empty() {
            continue;
        }
        let copy = nest.new_var(nest.vars[var.0 as usize].clone());
        let body = nest.copies(&body, &mut FxHashMap::from_iter([(*var, Affine::var(copy))]));
        let version = match s {
            Stmt::Loop { lower, upper, step, kind, .. } => {
                Stmt::Loop { var: copy, lower: lower.clone(), upper: upper.clone(), step: *step, kind: *kind, body }
            }
            s => s.clone(),
        };
        out.push(inside(nest, Stmt::If { conditions: vec![holds], body: vec![version] }, facts, longest / 2));
    }
    Some(out)
}

/// The condition that selects values in a loop, is the same in all iterations, and saves most where it is known.
fn selecting(nest: &LoopNest, s: &Stmt, facts: &Facts) -> Option<Expr> {
    let mut found: Vec<Expr> = vec![];
    let (body, is_invariant) = (s.body(), invariant(nest, s, facts));
    s.visit(&mut |s| {
        s.expressions().for_each(|e| {
            e.visit(&mut |e| {
                let Expr::Select(condition, ..) = e else { return };
                let parts = [true, false].into_iter().flat_map(|truth| condition.parts(truth));
                found.extend(parts.filter(|(e, _)| is_invariant(e)).map(|(e, _)| e.clone()));
            })
        })
    });
    let before = cost(body);
    let saving = |e: &Expr| {
        let after = [true, false].map(|truth| cost(&known(nest, body, (e, truth), facts)));
        2 * before - after[0] - after[1]
    };
    let (most, condition) = found.iter().map(|e| (saving(e), e)).rev().max_by_key(|(saving, _)| *saving)?;
    (most >= 2 * LEAST_SAVING).then(|| condition.clone())
}

/// A body where a condition is known, without the statements that change nothing then.
fn known(nest: &LoopNest, body: &[Stmt], (condition, truth): (&Expr, bool), facts: &Facts) -> Vec<Stmt> {
    let mut out = vec![];
    for s in body {
        let of = |e: &Expr| {
            e.rewrite(&mut |e| match e == *condition {
                true => Expr::Const(Scalar::bool(truth)),
                false => decided(e, facts),
            })
        };
        match s {
            Stmt::Store { buffer, index, value, reduce } => {
                let place = |i: &Index| i.value().map_or_else(|| i.clone(), |e| Index::Value(Box::new(of(e))));
                let (index, value): (Vec<Index>, Expr) = (index.iter().map(place).collect(), of(value));
                if !is_kept(&nest.buffers, (*buffer, &index), *reduce, &value) {
                    out.push(Stmt::Store { buffer: *buffer, index, value, reduce: *reduce });
                }
            }
            s => {
                let s = s.clone().map_body(|body| known(nest, &body, (condition, truth), facts));
                if !s.body().is_empty() {
                    out.push(s);
                }
            }
        }
    }
    out
}

/// Returns true if a statement, behind which one group stands, is an integer that the group alone may use: not its condition and what follows.
fn is_for(s: &Stmt, others: &[Stmt]) -> bool {
    let (Stmt::Let { var, .. } | Stmt::Read { var, recorded: None, .. }) = s else { return false };
    !others.iter().any(|s| s.names(*var))
}

/// A variable that is 1 where a condition holds, else 0, and the statement that reads it.
pub(super) fn test(nest: &mut LoopNest, condition: &[Part]) -> (Var, Stmt) {
    let var = nest.new_var("holds");
    let (value, expected) = (Expr::cast(DType::I64, all_of(condition)), Bound::constant(1));
    // a bool is 0 or 1 as it is
    (var, Stmt::Read { var, value, range: (0, 1), checked: true, expected, recorded: None })
}

/// Instructions of a statement, those of a loop that is not expanded often enough for any branch.
fn work(s: &Stmt) -> i64 {
    let mut total = cost(std::slice::from_ref(s));
    s.visit(&mut |s| {
        if let Stmt::Loop { lower, upper, .. } = s
            && !is_expanded(s)
        {
            let iterations = constant_range(lower, upper).map_or(LEAST_WORK, |(first, end)| end - first);
            total = total.max(iterations.min(LEAST_WORK) * cost(s.body()));
        }
    });
    total
}

/// The conditions without which a statement changes nothing, and which it does not change: they may be read before it.
fn conditions(nest: &LoopNest, s: &Stmt, facts: &Facts) -> Vec<Part> {
    let Some(all) = needed(nest, s) else { return vec![] };
    let is_invariant = invariant(nest, s, facts);
    all.into_iter().filter(|(e, _)| is_invariant(e)).collect()
}

/// The test whether an expression reads memory that a statement does not change, at the same places all the time: it may be read before it.
fn invariant<'a>(nest: &'a LoopNest, s: &Stmt, facts: &'a Facts) -> impl Fn(&Expr) -> bool + use<'a> {
    let (mut bound, written): (FxHashSet<Var>, _) = (FxHashSet::default(), written_in(std::slice::from_ref(s)));
    s.visit(&mut |s| {
        if let Stmt::Loop { var, .. } | Stmt::Let { var, .. } | Stmt::Read { var, .. } = s {
            bound.insert(*var);
        }
    });
    move |e: &Expr| {
        let varies = |a: &Affine| a.terms.iter().any(|t| bound.contains(&t.0));
        let moves = |e: &Expr| {
            e.any(&mut |e| match e {
                Expr::Index(a) => varies(a),
                Expr::Load(access) => access.affine_forms().any(varies) || !is_inside(nest, access, facts),
                _ => false,
            })
        };
        e.any(&mut |e| matches!(e, Expr::Load(_))) && !moves(e) && !depends(e, &written)
    }
}

/// Returns true if an access is certain to be of an element, wherever it stands.
fn is_inside(nest: &LoopNest, access: &Access, facts: &Facts) -> bool {
    let shape = &nest.buffer(access.buffer).shape;
    let lies = |(i, &extent): (&Index, &i64)| {
        i.affine().is_some_and(|a| {
            let (low, high) = facts.bounds(a);
            low >= 0 && high < extent
        })
    };
    access.guard.is_empty() && access.index.iter().zip(shape).all(lies)
}

/// The parts of conditions that all stores of a statement select by; `None` where some store does not, or there is none.
fn needed(nest: &LoopNest, s: &Stmt) -> Option<Vec<Part>> {
    match s {
        Stmt::Store { buffer, index, value: Expr::Select(condition, yes, no), reduce } => {
            let stays = |e: &Expr| is_kept(&nest.buffers, (*buffer, index), *reduce, e);
            let truth = if stays(no) { true } else { stays(yes).then_some(false)? };
            Some(condition.parts(truth).into_iter().map(|(e, holds)| (e.clone(), holds)).collect())
        }
        Stmt::Let { .. } | Stmt::Read { .. } | Stmt::Store { .. } => None,
        Stmt::Loop { kind: LoopKind::Instruction(_), .. } => None,
        Stmt::Loop { body, .. } | Stmt::If { body, .. } => {
            let stores = body.iter().filter(|s| !matches!(s, Stmt::Let { .. } | Stmt::Read { recorded: None, .. }));
            let mut all: Option<Vec<Part>> = None;
            for s in stores {
                let parts = needed(nest, s)?;
                all = Some(match all {
                    None => parts,
                    Some(before) => before.into_iter().filter(|part| parts.contains(part)).collect(),
                });
            }
            all.filter(|parts| !parts.is_empty())
        }
    }
}

/// A statement where the conditions hold.
pub(super) fn without(s: Stmt, said: &[Part]) -> Stmt {
    match s {
        Stmt::Store { buffer, index, value: Expr::Select(condition, yes, no), reduce } => {
            let is_said = |(e, holds): (&Expr, bool)| said.iter().any(|part| part.0 == *e && part.1 == holds);
            let truth = condition.parts(true).into_iter().any(is_said);
            let parts = condition.parts(truth).into_iter().filter(|&part| !is_said(part));
            let rest: Vec<Part> = parts.map(|(e, holds)| (e.clone(), holds)).collect();
            let (value, otherwise) = if truth { (*yes, *no) } else { (*no, *yes) };
            let value = match rest.is_empty() {
                true => value,
                false => Expr::select(all_of(&rest), value, otherwise),
            };
            Stmt::Store { buffer, index, value, reduce }
        }
        s => s.map_body(|body| body.into_iter().map(|s| without(s, said)).collect()),
    }
}

/// The condition that all parts are.
pub(super) fn all_of(parts: &[Part]) -> Expr {
    Expr::all(parts.iter().map(|(e, holds)| (e, *holds))).expect("some part")
}

/// Returns true if an expression reads one of the buffers.
pub(super) fn depends(e: &Expr, written: &FxHashSet<BufferId>) -> bool {
    written.iter().any(|&buffer| e.reads(buffer))
}

#[cfg(test)]
mod tests {
    use super::unswitch;
    use crate::codegen::select::tests::passes::passed;

    /// The body of a loop over `i`, unswitched.
    fn unswitched(body: &str) -> String {
        let text = format!(
            "kernel h {{ P: i32[40] argument 0; X: f32[40] argument 1; A: f32[40] argument 2 written; C: f32[9][40] argument 3 written; c: bool[1] local;
             parallel once in 0..1 {{ for i in 0..9 {{ c[0] = gt(X[i], f32(0.0)); {body} }} }} }}"
        );
        passed(&text, unswitch, "f32(0.0));")
    }

    #[test]
    fn loops_that_do_nothing_are_skipped() {
        let text = unswitched(
            "for j in 0..40 { A[j] = select(c[0], X[j], A[j]); C[i][j] add = select(c[0], X[i], f32(-0.0)); }",
        );
        let branch = "let holds = within(cast i64(c[0]), 0, 1) about 1; if holds - 1 >= 0 {";
        assert!(text.contains(&format!("{branch} for j in 0..40 {{ A[j] = X[j]; C[i][j] add = X[i]; }} }}")), "{text}");
        // the other branch, and a part of a condition
        let text = unswitched("for j in 0..40 { A[j] = select(or(c[0], lt(P[j], i32(3))), A[j], X[j]); }");
        assert!(text.contains("cast i64(not(c[0]))"), "{text}");
        assert!(text.contains("A[j] = select(not(lt(P[j], i32(3))), X[j], A[j]);"), "{text}");
    }

    #[test]
    fn neighbouring_loops_share_a_branch() {
        let loops = "vector j in 0..32 { C[i][j] = select(gt(P[i], i32(0)), (C[i][j] + C[0][j]), C[i][j]); }
            vector k in 0..8 { C[i][k + 32] = select(gt(P[i], i32(0)), (C[i][k + 32] + C[0][k + 32]), C[i][k + 32]); }";
        let text = unswitched(loops);
        assert_eq!((text.matches("if holds").count(), text.matches("= select").count()), (1, 0), "{text}");
    }

    #[test]
    fn values_that_a_condition_selects_are_those_of_two_versions() {
        let text =
            unswitched("for j in 0..40 { A[j] = select(c[0], ((X[j] * X[i]) + A[j]), ((X[j] - X[i]) / A[j])); }");
        assert!(text.contains("if holds - 1 >= 0 { for j in 0..40 { A[j] = ((X[j] * X[i]) + A[j]); } }"), "{text}");
        assert!(
            text.contains("if -holds >= 0 { for j#2 in 0..40 { A[j#2] = ((X[j#2] - X[i]) / A[j#2]); } }"),
            "{text}"
        );
        // one of a conjunction, beside what is done in any case
        let text = unswitched(
            "for j in 0..40 { A[j] = (X[j] * X[j]); C[i][j] = select(and(c[0], gt(A[j], f32(1.0))), ((X[j] - X[i]) / (A[j] + X[j])), C[i][j]); }",
        );
        assert!(text.contains("if -holds >= 0 { for j#2 in 0..40 { A[j#2] = (X[j#2] * X[j#2]); } }"), "{text}");
        assert!(text.contains("select(gt(A[j], f32(1.0)), ((X[j] - X[i]) / (A[j] + X[j])), C[i][j]);"), "{text}");
    }

    #[test]
    fn bounds_of_a_skipped_loop_are_read_in_the_branch() {
        let read = "let n = clamp(cast i64(P[i]), 0, 40) about 9;";
        let text = unswitched(&format!("{read} for j in 0..n {{ A[j] = select(c[0], X[j], A[j]); }}"));
        assert!(text.contains(&format!("if holds - 1 >= 0 {{ {read} for j in 0..n {{ A[j] = X[j]; }} }}")), "{text}");
        let text = unswitched(&format!(
            "{read} for j in 0..n {{ A[j] = select(c[0], X[j], A[j]); }} C[i][0] = cast f32(index(n));"
        ));
        assert!(text.starts_with(read), "{text}");
    }

    #[test]
    fn what_a_loop_changes_stays() {
        for body in [
            // the condition is written, differs from one iteration to the next, or is that of some stores alone
            "for j in 0..40 { A[j] = select(gt(A[i], f32(0.0)), X[j], A[j]); }",
            "for j in 0..40 { A[j] = select(gt(X[j], f32(0.0)), X[i], A[j]); }",
            "for j in 0..40 { A[j] = select(c[0], X[j], A[j]); C[i][j] = X[j]; }",
            // the element may be outside where the loop is empty
            "for j in i..4 { A[j] = select(gt(X[12*i], f32(0.0)), X[j], A[j]); }",
            // little work
            "for j in 0..40 { A[j] = select(c[0], X[j], (X[j] + A[j])); }",
            "for j in 0..2 { A[j] = select(c[0], X[j], A[j]); }",
        ] {
            let text = unswitched(body);
            assert!(!text.contains("holds"), "{text}");
        }
    }
}
