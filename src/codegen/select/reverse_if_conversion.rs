//! Reverse if-conversion: branches around statements that a condition keeps from doing anything.
//!
//! In: a nest. Out: a nest of the same meaning in which statements that follow each other, `a[i] = select(c, v, a[i])` and `s add= select(c, w, neutral)` after
//! if-conversion, are a branch `if c { a[i] = v; s add= w }` again where they stand outside of vector loops (N. J. Warter, S. A. Mahlke, W. W. Hwu, B. R. Rau, *Reverse
//! if-conversion*, PLDI 1993). Statements under the opposite condition follow in a branch of their own, and scalars that only a branch reads are
//! computed in it. A branch that is predicted wrong costs some 15 to 20 cycles, so that there is one around three kinds of statements alone:
//! - **Much work**: what is skipped takes longer than the predictions that are wrong, if most are right.
//! - **A chain through memory**: a store at a subscript from data that the innermost loop moves by way of memory alone. A subscript that only the condition moves, as
//!   that of a stream compaction (`if c { h[n] = v  n += 1 }`), makes the load of what is kept wait for the store of the iteration before: some 7 cycles for each
//!   iteration, condition or not.
//! - **A chain through the condition**: an assignment to what is a subscript in its own condition, as the place of the least element
//!   (`if x[i] < x[m] m = i`). A selection makes each iteration wait for the load and the comparison of the one before.

use crate::codegen::loopnest::invariant::written_in;
use crate::codegen::loopnest::{Accesses, BufferKind, LoopNest, Stmt, accesses, is_kept};
use crate::codegen::select::expansion_cost::cost;
use crate::codegen::select::unswitching::{Part, all_of, depends, test, without};
use crate::expr::logic::Condition as _;
use crate::expr::{Access, Affine, BufferId, Expr, Index, Var};

/// Instructions of the least work that a branch skips. On a core of 2023 (Sapphire Rapids), two updates of 15 to 25 instructions take three times as long without a branch under a
/// condition that holds every fiftieth time, 1.3 times under one of every tenth, and .6 to .8 of the time where it holds every second time at random.
const LEAST_WORK: i64 = 12;

/// Instructions of a subscript from data: its load, extension and place.
const SUBSCRIPT: i64 = 3;

/// Puts statements inside of the phases of `nest` into branches. A phase stays one statement.
pub fn branch(nest: &mut LoopNest, phases: Vec<Stmt>) -> Vec<Stmt> {
    let mut pass = Pass { nest, accesses: accesses(&phases) };
    phases.into_iter().map(|p| if p.is_vector_loop() { p } else { pass.within(p, None) }).collect()
}

struct Pass<'a> {
    nest: &'a mut LoopNest,
    /// Those of the nest as it was.
    accesses: Accesses,
}

/// Statements that do nothing unless a condition is as they say.
struct Run {
    /// The parts of the condition.
    shared: Vec<Part>,
    /// Statements under the condition and under its opposite by turns, each with whether the condition holds.
    branches: Vec<(bool, Vec<Stmt>)>,
    /// The places of scalars that are computed in a branch, with its number and their place in it.
    moved: Vec<(usize, usize, usize)>,
    /// The number of statements.
    length: usize,
}

impl Pass<'_> {
    /// A loop or a condition with branches, within the loop over a variable.
    fn within(&mut self, stmt: Stmt, around: Option<Var>) -> Stmt {
        let around = if let Stmt::Loop { var, .. } = &stmt { Some(*var) } else { around };
        if stmt.is_vector_loop() { stmt } else { stmt.map_body(|body| self.inside(body, around)) }
    }

    fn inside(&mut self, mut rest: Vec<Stmt>, around: Option<Var>) -> Vec<Stmt> {
        let mut out: Vec<Stmt> = vec![];
        while !rest.is_empty() {
            let run = self.run(&rest).map(|run| self.with_scalars_before(&out, run));
            let after = rest.split_off(run.as_ref().map_or(1, |run| run.1.length));
            let first = std::mem::replace(&mut rest, after);
            let run = run.filter(|(_, run)| self.pays(&first, run, around));
            match run.or_else(|| Some((0, alternatives(&first)?))) {
                None => out.extend(first.into_iter().map(|s| self.within(s, around))),
                Some((before, run)) => {
                    out.truncate(out.len() - before);
                    self.emit(run, around, &mut out);
                }
            }
        }
        out
    }

    /// A run with the scalars at the end of what stands before it that its first branch alone reads, and their number.
    fn with_scalars_before(&self, before: &[Stmt], mut run: Run) -> (usize, Run) {
        let mut number = 0;
        for scalar in before.iter().rev().take_while(|s| matches!(s, Stmt::Store { .. })) {
            if !self.is_for(scalar, &run.branches[0].1) {
                break;
            }
            run.branches[0].1.insert(0, simplified(scalar.clone(), &run.shared));
            number += 1;
        }
        (number, run)
    }

    /// The run at the front of a body, with the scalars between its statements that one branch alone reads.
    fn run(&self, body: &[Stmt]) -> Option<Run> {
        let mut body = body;
        loop {
            let run = self.run_of(body)?;
            let is_for_others = |&(at, branch, place): &(usize, usize, usize)| {
                let (before, after) = run.branches[branch].1.split_at(place);
                let Stmt::Store { buffer, .. } = &body[at] else { return true };
                accesses(before).contains_key(buffer) || !self.is_for(&body[at], &after[1..])
            };
            match run.moved.iter().find(|moved| is_for_others(moved)) {
                Some((at, ..)) => body = &body[..*at],
                None => return Some(run),
            }
        }
    }

    /// Variant of [`Pass::run`] with whatever scalars.
    fn run_of(&self, body: &[Stmt]) -> Option<Run> {
        let shared = parts(self.nest, body.first()?);
        let mut run = Run { shared, branches: vec![], moved: vec![], length: 0 };
        if run.shared.is_empty() {
            return None;
        }
        // the statements under the condition, each with the parts that its branch says
        let mut taken: Vec<(usize, Option<Part>)> = vec![(0, None)];
        for (at, s) in body.iter().enumerate().skip(1).take_while(|(_, s)| matches!(s, Stmt::Store { .. })) {
            let own = parts(self.nest, s);
            if own.is_empty() && self.is_scalar(s) {
                continue;
            }
            let opposite = own.first().filter(|part| opposes(part, &run.shared)).cloned();
            let is_final = taken.iter().any(|t| t.1.is_some());
            let both: Vec<Part> = run.shared.iter().filter(|part| own.contains(part)).cloned().collect();
            let before = written_in(&body[..at]);
            let changes = |shared: &[Part]| shared.iter().any(|part| depends(&part.0, &before));
            match opposite {
                Some(_) if !changes(&run.shared) => {}
                None if !both.is_empty() && !changes(&both) && (both == run.shared || !is_final) => run.shared = both,
                _ => break,
            }
            taken.push((at, opposite));
        }
        for (at, opposite) in taken {
            let holds = opposite.is_none();
            if run.branches.last().is_none_or(|b| b.0 != holds) {
                run.branches.push((holds, vec![]));
            }
            let said = opposite.map_or(run.shared.clone(), |part| vec![part]);
            let number = run.branches.len() - 1;
            let statements = &mut run.branches[number].1;
            for (between, s) in body.iter().enumerate().take(at).skip(run.length) {
                run.moved.push((between, number, statements.len()));
                statements.push(simplified(s.clone(), &said));
            }
            statements.push(without(body[at].clone(), &said));
            run.length = at + 1;
        }
        Some(run)
    }

    /// Returns true for an assignment to a buffer of one element that no other call sees.
    fn is_scalar(&self, s: &Stmt) -> bool {
        let Stmt::Store { buffer, value, reduce: None, .. } = s else { return false };
        let b = self.nest.buffer(*buffer);
        b.kind == BufferKind::Local && b.shape.iter().all(|n| *n == 1) && !value.reads(*buffer)
    }

    /// Returns true for a scalar that is assigned here alone, and that these statements alone read.
    fn is_for(&self, s: &Stmt, statements: &[Stmt]) -> bool {
        let Stmt::Store { buffer, .. } = s else { return false };
        let here = || accesses(statements).get(buffer).map_or(1, |n| n + 1);
        self.is_scalar(s) && self.accesses.get(buffer) == Some(&here())
    }

    /// Returns true if branches around a run are faster than what they skip, or iterations wait for it otherwise.
    fn pays(&self, statements: &[Stmt], run: &Run, around: Option<Var>) -> bool {
        let waits = |s: &Stmt| match s {
            Stmt::Store { buffer, index, reduce: None, .. } => {
                let own = parts(self.nest, s);
                let from_data = index.iter().any(|i| matches!(i, Index::Value(_)));
                let moves = around.is_some_and(|var| index.iter().any(|i| changes(i, var)));
                let is_place =
                    |e: &Expr| e.any(&mut |e| matches!(e, Expr::Load(a) if is_subscript((*buffer, index), a)));
                !moves && (from_data && !own.is_empty() || own.iter().any(|(e, _)| is_place(e)))
            }
            _ => false,
        };
        statements.iter().any(waits) || run.branches.iter().map(|(_, body)| work(body)).sum::<i64>() >= LEAST_WORK
    }

    fn emit(&mut self, run: Run, around: Option<Var>, out: &mut Vec<Stmt>) {
        let (flag, read) = test(self.nest, &run.shared);
        out.push(read);
        for (holds, body) in run.branches {
            let condition = if holds { Affine::var(flag).offset(-1) } else { Affine::var(flag).scale(-1) };
            out.push(Stmt::If { conditions: vec![condition], body: self.inside(body, around) });
        }
    }
}

/// An assignment of one of two values, of which one is much work, as a run.
fn alternatives(first: &[Stmt]) -> Option<Run> {
    let [Stmt::Store { buffer, index, value: Expr::Select(condition, yes, no), reduce }] = first else { return None };
    if !condition.any(&mut |e| matches!(e, Expr::Load(_))) {
        return None;
    }
    let store = |value: &Expr| {
        vec![Stmt::Store { buffer: *buffer, index: index.clone(), value: value.clone(), reduce: *reduce }]
    };
    let branches = vec![(true, store(yes)), (false, store(no))];
    let is_much = branches.iter().any(|(_, body)| work(body) >= LEAST_WORK);
    is_much.then(|| Run { shared: vec![((**condition).clone(), true)], branches, moved: vec![], length: 1 })
}

/// The parts of the condition, on data, without which a statement changes nothing.
fn parts(nest: &LoopNest, s: &Stmt) -> Vec<Part> {
    let Stmt::Store { buffer, index, value: Expr::Select(condition, yes, no), reduce } = s else { return vec![] };
    let stays = |e: &Expr| is_kept(&nest.buffers, (*buffer, index), *reduce, e);
    let truth = match (stays(no), stays(yes)) {
        (true, _) => true,
        (_, true) => false,
        _ => return vec![],
    };
    let parts = condition.parts(truth).into_iter().map(|(e, holds)| (e.clone(), holds));
    parts.filter(|(e, _)| e.any(&mut |e| matches!(e, Expr::Load(_)))).collect()
}

/// Returns true for a part that fails where all of the others hold, and holds where they do not.
fn opposes(part: &Part, shared: &[Part]) -> bool {
    let fails = !part.1 && part.0 == all_of(shared);
    fails || matches!(shared, [(e, holds)] if *e == part.0 && *holds != part.1)
}

/// A condition that is kept in a scalar, without the parts that are said.
fn simplified(s: Stmt, said: &[Part]) -> Stmt {
    match s {
        Stmt::Store { buffer, index, value, reduce } if value.parts(true).len() > 1 => {
            let is_said = |(e, holds): &(&Expr, bool)| said.iter().any(|part| part.0 == **e && part.1 == *holds);
            let rest = Expr::all(value.parts(true).into_iter().filter(|part| !is_said(part)));
            Stmt::Store { buffer, index, value: rest.unwrap_or(value), reduce }
        }
        s => s,
    }
}

/// Instructions of statements.
fn work(body: &[Stmt]) -> i64 {
    let mut subscripts = 0;
    let mut note = |index: &[Index]| subscripts += index.iter().filter(|i| matches!(i, Index::Value(_))).count() as i64;
    for s in body {
        if let Stmt::Store { index, value, .. } = s {
            note(index);
            value.visit_accesses(&mut |a| note(&a.index));
        }
    }
    cost(body) + SUBSCRIPT * subscripts
}

/// Returns true if an element says where an access is.
fn is_subscript((buffer, index): (BufferId, &[Index]), access: &Access) -> bool {
    let is_element = |e: &Expr| matches!(e, Expr::Load(a) if a.buffer == buffer && a.index == index);
    access.index.iter().any(|i| matches!(i, Index::Value(e) if e.any(&mut |e| is_element(e))))
}

fn changes(index: &Index, var: Var) -> bool {
    match index {
        Index::Affine(a) => a.uses(var),
        Index::Value(e) => e.depends_on(var),
    }
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
        assert!(text.contains("N add = i32(1); }"), "{text}");
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

    /// A nest with the arrays of much work.
    fn worked(body: &str) -> String {
        let text = format!(
            "kernel h {{ X: f32[40] argument 0; P: i32[40] argument 1; A: f32[40] argument 2 written; B: f32[40] argument 3 written; s: f32[1] local; c: bool[1] local;
             parallel once in 0..1 {{ for i in 0..40 {{ {body} }} }} }}"
        );
        passed(&text, branch, "40 {")
    }

    /// A long sum.
    fn much() -> String {
        (0..12).fold("X[i]".into(), |sum, n| format!("({sum} * (X[i] + f32({n}.0)))"))
    }

    #[test]
    fn much_work_is_in_branches_of_a_condition_and_its_opposite() {
        let (c, much) = ("gt(X[i], f32(20.0))", much());
        let both = format!(
            "A[i] = select({c}, {much}, A[i]); B[i] add = select({c}, {much}, f32(-0.0)); B[i] = select({c}, B[i], f32(1.0)); A[i] mul = select(not({c}), f32(2.0), f32(1.0));"
        );
        let text = worked(&both);
        assert_eq!((text.matches("let holds").count(), text.contains("select")), (1, false), "{text}");
        assert!(text.contains(&format!("if holds - 1 >= 0 {{ A[i] = {much}; B[i] add = {much}; }} if -holds >= 0 {{ B[i] = f32(1.0); A[i] mul = f32(2.0); }}")), "{text}");
        let text = worked(&format!("A[i] = select({c}, X[i], A[i]);"));
        assert!(!text.contains("holds"), "{text}");
    }

    #[test]
    fn one_of_two_values_is_computed_alone() {
        let much = much();
        let text = worked(&format!("A[i] = select(gt(X[i], f32(20.0)), {much}, (X[i] + f32(1.0)));"));
        let stores = format!("if holds - 1 >= 0 {{ A[i] = {much}; }} if -holds >= 0 {{ A[i] = (X[i] + f32(1.0)); }}");
        assert!(text.contains(&stores), "{text}");
        let text = worked("A[i] = select(gt(X[i], f32(20.0)), (X[i] * f32(2.0)), (X[i] + f32(1.0)));");
        assert!(!text.contains("holds"), "{text}");
    }

    #[test]
    fn conditions_within_conditions_are_branches_within_branches() {
        let much = much();
        let inner = format!("select(eq(P[i], i32(3)), {much}, A[i])");
        let text = worked(&format!(
            "A[i] = select(gt(X[i], f32(20.0)), {inner}, A[i]); B[i] = select(and(gt(X[i], f32(20.0)), lt(P[i], i32(9))), {much}, B[i]);"
        ));
        assert_eq!((text.matches("let holds").count(), text.contains("select")), (3, false), "{text}");
    }

    #[test]
    fn scalars_of_a_branch_are_computed_in_it() {
        let much = much();
        let of = |reads: &str| {
            worked(&format!(
                "s[0] = {much}; c[0] = and(gt(X[i], f32(20.0)), lt(P[i], i32(9)));
                 A[i] = select(gt(X[i], f32(20.0)), select(c[0], s[0], A[i]), A[i]); {reads}"
            ))
        };
        let text = of("");
        assert!(
            text.contains(&format!("{{ s[0] = {much}; c[0] = lt(P[i], i32(9)); A[i] = select(c[0], s[0], A[i]); }}")),
            "{text}"
        );
        let text = of("B[i] = s[0];");
        assert!(text.starts_with("s[0]"), "{text}");
        // the condition reads it
        let text = worked(&format!("s[0] = X[i]; A[i] = select(gt(s[0], f32(20.0)), {much}, A[i]);"));
        assert!(text.starts_with("s[0] = X[i]; let holds"), "{text}");
    }

    #[test]
    fn the_place_of_the_least_element_is_in_a_branch() {
        let text =
            branches("C[0] = select(lt(X[i], X[@min(max(C[0], i32(0)), i32(39))]), cast i32(index(i)), C[0]);", "for");
        assert!(text.contains("if holds - 1 >= 0 { C[0] = cast i32(index(i)); }"), "{text}");
        // each iteration has a place of its own
        let text = worked("A[i] = select(lt(X[i], X[@min(max(cast i32(A[i]), i32(0)), i32(39))]), X[i], A[i]);");
        assert!(!text.contains("holds"), "{text}");
    }

    #[test]
    fn a_branch_that_changes_the_condition_ends() {
        let (c, much) = ("gt(A[i], f32(20.0))", much());
        let text = worked(&format!("A[i] = select({c}, {much}, A[i]); B[i] = select({c}, {much}, B[i]);"));
        assert_eq!(text.matches("let holds").count(), 2, "{text}");
    }
}
