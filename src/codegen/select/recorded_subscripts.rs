//! Subscripts that are recorded for a check at the end of a run, joined with their uses.
//!
//! In: a nest that keeps the least and the greatest value of a subscript in two buffers with limits, and brings the subscript into these limits wherever it is used.
//! Out: outside of vector loops, a read of the subscript, which is compared once with the limits: nearly always it lies inside, nothing is recorded, and the uses
//! that follow take it as it is. Two extremes and two clamps of each use become a comparison and a branch. Invariant: memory holds the same.

use crate::codegen::loopnest::clamps::{clamped, widened};
use crate::codegen::loopnest::invariant::written_in;
use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::codegen::select::unswitching::depends;
use crate::expr::narrow::Interval;
use crate::expr::{Access, Affine, BinaryOp, Bound, BufferId, Expr, Index, Var};
use crate::runtime::DType;
use rustc_hash::{FxHashMap, FxHashSet};

/// Joins records of subscripts inside of the phases of `nest` with their uses. A phase stays one statement.
pub fn join(nest: &mut LoopNest, phases: Vec<Stmt>) -> Vec<Stmt> {
    if nest.buffers.iter().all(|b| b.limits.is_none()) {
        return phases;
    }
    let mut joined = joinable(nest, &phases);
    while !joined.is_empty() {
        // a buffer is accumulated by what records alone, so that registers need not hold it
        let mut others: FxHashSet<BufferId> = FxHashSet::default();
        phases.iter().for_each(|p| accumulated(nest, p, false, &joined, &mut others));
        let before = joined.len();
        joined.retain(|record| record.extremes.iter().all(|b| !others.contains(b)));
        if joined.len() == before {
            break;
        }
    }
    phases
        .into_iter()
        .map(|p| if p.is_vector_loop() { p } else { p.map_body(|body| inside(nest, body, &joined)) })
        .collect()
}

/// A subscript and the buffers of its extremes.
#[derive(Clone, PartialEq)]
struct Record {
    value: Expr,
    extremes: [BufferId; 2],
}

/// The value that a statement records: the buffer and the operation.
fn recorded<'a>(nest: &LoopNest, s: &'a Stmt) -> Option<(BufferId, BinaryOp, &'a Expr)> {
    match s {
        Stmt::Store { buffer, value, reduce: Some(op @ (BinaryOp::Min | BinaryOp::Max)), .. }
            if nest.buffer(*buffer).limits.is_some() =>
        {
            Some((*buffer, *op, value))
        }
        _ => None,
    }
}

/// The records with which neighbouring statements of a body keep both extremes of a subscript, at the first of the two.
fn pairs(nest: &LoopNest, body: &[Stmt]) -> FxHashMap<usize, (usize, Record)> {
    let mut out = FxHashMap::default();
    for (first, s) in body.iter().enumerate() {
        let Some((least, BinaryOp::Min, value)) = recorded(nest, s) else { continue };
        let mut run = body.iter().enumerate().skip(first + 1).map_while(|(at, s)| Some((at, recorded(nest, s)?)));
        let limits = nest.buffer(least).limits;
        let is_other = |&(_, (b, op, v)): &(usize, (BufferId, BinaryOp, &Expr))| {
            op == BinaryOp::Max && v == value && nest.buffer(b).limits == limits
        };
        let Some((second, (greatest, ..))) = run.find(is_other) else { continue };
        let dtype = nest.buffer(least).dtype;
        let fits = limits.is_some_and(|(low, high)| low == 0 && (0..i64::from(i32::MAX)).contains(&high));
        if fits && !dtype.is_float() && !matches!(dtype, DType::U64 | DType::Bool) && !dtype.is_storage() {
            out.insert(first, (second, Record { value: value.clone(), extremes: [least, greatest] }));
        }
    }
    out
}

/// All records of the phases outside of vector loops.
fn joinable(nest: &LoopNest, body: &[Stmt]) -> Vec<Record> {
    let inner = body.iter().filter(|s| !s.is_vector_loop()).flat_map(|s| joinable(nest, s.body()));
    pairs(nest, body).into_values().map(|(_, record)| record).chain(inner).collect()
}

/// Adds the buffers in which other statements than those of `joined` accumulate.
fn accumulated(nest: &LoopNest, s: &Stmt, expanded: bool, joined: &[Record], out: &mut FxHashSet<BufferId>) {
    let expanded = expanded || s.is_vector_loop();
    let pairs = if expanded { FxHashMap::default() } else { pairs(nest, s.body()) };
    let taken = |at: usize| {
        pairs.iter().any(|(first, (second, record))| (*first == at || *second == at) && joined.contains(record))
    };
    for (at, inner) in s.body().iter().enumerate() {
        match recorded(nest, inner) {
            Some((buffer, ..)) if !taken(at) => drop(out.insert(buffer)),
            _ => accumulated(nest, inner, expanded, joined, out),
        }
    }
}

/// A body with records before what uses their subscripts: extremes take them in any order.
fn records_first(nest: &LoopNest, body: Vec<Stmt>, joined: &[Record]) -> Vec<Stmt> {
    let mut pairs = pairs(nest, &body);
    pairs.retain(|_, (_, record)| joined.contains(record));
    let seconds: FxHashSet<usize> = pairs.values().map(|p| p.0).collect();
    let mut out: Vec<Stmt> = vec![];
    for (at, stmt) in body.iter().enumerate().filter(|(at, _)| !seconds.contains(at)) {
        let Some((second, record)) = pairs.get(&at) else {
            out.push(stmt.clone());
            continue;
        };
        let last = out.iter().rposition(|s| changes(s, &record.value)).map_or(0, |last| last + 1);
        let place = last + out[last..].iter().take_while(|s| recorded(nest, s).is_some()).count();
        out.splice(place..place, [stmt.clone(), body[*second].clone()]);
    }
    out
}

/// Returns true if a statement writes what a value reads, or defines a variable in it.
fn changes(s: &Stmt, value: &Expr) -> bool {
    let mut defines = false;
    s.visit(&mut |s| {
        if let Stmt::Let { var, .. } | Stmt::Read { var, .. } | Stmt::Loop { var, .. } = s {
            defines |= value.depends_on(*var);
        }
    });
    defines || depends(value, &written_in(std::slice::from_ref(s)))
}

fn inside(nest: &mut LoopNest, body: Vec<Stmt>, joined: &[Record]) -> Vec<Stmt> {
    let body = records_first(nest, body, joined);
    let mut pairs = pairs(nest, &body);
    pairs.retain(|_, (_, record)| joined.contains(record));
    let seconds: FxHashSet<usize> = pairs.values().map(|p| p.0).collect();
    let (mut out, mut known): (Vec<Stmt>, Vec<Known>) = (vec![], vec![]);
    for (at, stmt) in body.into_iter().enumerate() {
        if let Some((_, record)) = pairs.remove(&at) {
            let limits = nest.buffer(record.extremes[0]).limits.unwrap_or_default();
            let var = nest.new_var("subscript");
            let value = Expr::cast(DType::I64, replaced(&record.value, &known));
            let expected = Bound::constant(limits.0);
            let recorded = Some(record.extremes);
            out.push(Stmt::Read { var, value, range: limits, checked: false, expected, recorded });
            known.push(Known { value: record.value, limits, var });
        } else if !seconds.contains(&at) {
            let mut written = FxHashSet::default();
            stmt.visit(&mut |s| {
                if let Stmt::Store { buffer, .. } = s {
                    written.insert(*buffer);
                }
            });
            let is_store = matches!(stmt, Stmt::Store { .. });
            // a store reads its subscripts before it writes; a body may write what they are and go on
            let (stays, changes): (Vec<Known>, Vec<Known>) = known.into_iter().partition(|k| !k.reads(&written));
            let mut now = stays.clone();
            now.extend(changes.into_iter().filter(|_| is_store));
            out.push(match stmt.is_vector_loop() {
                true => stmt,
                false => placed(stmt, &now).map_body(|body| inside(nest, body, joined)),
            });
            known = stays;
        }
    }
    out
}

/// A subscript that a variable has.
#[derive(Clone)]
struct Known {
    value: Expr,
    limits: Interval,
    var: Var,
}

impl Known {
    fn reads(&self, written: &FxHashSet<BufferId>) -> bool {
        written.iter().any(|&buffer| self.value.reads(buffer))
    }
}

/// A statement, and what is in its body outside of vector loops, with variables as subscripts.
fn placed(s: Stmt, known: &[Known]) -> Stmt {
    if known.is_empty() || s.is_vector_loop() {
        return s;
    }
    match s {
        Stmt::Store { buffer, index, value, reduce } => {
            let index = index.iter().map(|i| place(i, known)).collect();
            Stmt::Store { buffer, index, value: replaced(&value, known), reduce }
        }
        Stmt::Read { var, value, range, checked, expected, recorded } => {
            Stmt::Read { var, value: replaced(&value, known), range, checked, expected, recorded }
        }
        s => s.map_body(|body| body.into_iter().map(|s| placed(s, known)).collect()),
    }
}

fn place(i: &Index, known: &[Known]) -> Index {
    let of = |e: &Expr| {
        let (value, low, high) = clamped(e)?;
        let same = known.iter().find(|k| k.limits == (low, high) && widened(&k.value) == value)?;
        Some(Index::Affine(Affine::var(same.var)))
    };
    match i {
        Index::Value(e) => of(e).unwrap_or_else(|| Index::Value(Box::new(replaced(e, known)))),
        Index::Affine(_) => i.clone(),
    }
}

fn replaced(e: &Expr, known: &[Known]) -> Expr {
    match known {
        [] => e.clone(),
        known => e.rewrite_loads(&mut |access| {
            let index = access.index.iter().map(|i| place(i, known)).collect();
            Expr::Load(Access { index, ..access })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::join;
    use crate::codegen::select::tests::passes::passed;

    /// The loop over `body`, joined.
    fn joined(kind: &str, body: &str) -> String {
        let text = format!(
            "kernel h {{ P: i32[40] argument 0; X: f32[40] argument 1; H: f32[9] argument 2 written; Q: i32[40] argument 3 written;
             least: i32 argument 4 written within 0 to 8; greatest: i32 argument 5 written within 0 to 8;
             parallel once in 0..1 {{ least = i32(0); greatest = i32(8); {kind} i in 0..40 {{ {body} }} }} }}"
        );
        passed(&text, join, "40 {")
    }

    const BOTH: &str = "least min = P[i]; greatest max = P[i];";

    #[test]
    fn a_subscript_is_compared_once_with_its_limits() {
        let text = joined("for", &format!("{BOTH} H[@min(max(P[i], i32(0)), i32(8))] add = X[i];"));
        let read = "let subscript = clamp(cast i64(P[i]), 0, 8) about 0 in least greatest;";
        assert!(text.contains(&format!("{read} H[subscript] add = X[i];")), "{text}");
        // both of one subscript before those of the other
        let two = "least min = P[i]; least min = Q[i]; greatest max = P[i]; greatest max = Q[i];
            H[@min(max(Q[i], i32(0)), i32(8))] = H[@min(max(P[i], i32(0)), i32(8))];";
        let text = joined("for", two);
        assert!(text.contains("H[subscript#2] = H[subscript];") && !text.contains("max"), "{text}");
    }

    #[test]
    fn a_record_behind_the_use_comes_first() {
        let text = joined("for", &format!("H[@min(max(P[i], i32(0)), i32(8))] add = X[i]; {BOTH}"));
        assert!(text.contains("in least greatest; H[subscript] add = X[i];"), "{text}");
        let text = joined(
            "for",
            "H[@min(max(Q[i], i32(0)), i32(8))] add = X[i]; Q[i] = P[i]; least min = Q[i]; greatest max = Q[i];",
        );
        assert!(text.contains("Q[i] = P[i]; let subscript"), "{text}");
    }

    #[test]
    fn a_subscript_that_changes_is_no_longer_known() {
        let text = joined(
            "for",
            "least min = Q[i]; greatest max = Q[i]; Q[i] = (P[@min(max(Q[i], i32(0)), i32(8))] + i32(1)); H[@min(max(Q[i], i32(0)), i32(8))] add = X[i];",
        );
        assert!(text.contains("Q[i] = (P[subscript] + i32(1)); H[@min(max(Q[i]"), "{text}");
    }

    #[test]
    fn other_records_stay() {
        // of one extreme, of vectors, of a buffer with limits that others accumulate in as well
        let use_of = "H[@min(max(P[i], i32(0)), i32(8))] add = X[i];";
        for (kind, body) in [
            ("for", format!("least min = P[i]; {use_of}")),
            ("vector", BOTH.to_string()),
            ("for", format!("{BOTH} {use_of} least min = Q[i];")),
        ] {
            let text = joined(kind, &body);
            assert!(!text.contains("subscript"), "{text}");
        }
    }
}
