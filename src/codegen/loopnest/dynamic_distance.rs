//! Vectors in recurrences whose distance is known when the loop begins.
//!
//! In: a verified nest with serial loops like `x[v] = f(x[v - s], …)`, where s is no number but the same in all iterations. Out: a nest of the
//! same meaning in which such a loop runs in vectors where no iteration of a vector reads what another one of it writes, and as it was where
//! s is smaller. This is loop versioning on a dependence distance (R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures",
//! on breaking conditions).
//!
//! The distance is read before the loop.

use crate::codegen::loopnest::dynamic_loops::{substituted, vector_of};
use crate::codegen::loopnest::invariant::may_read;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::{Access, Affine, BinaryOp, Bound, BufferId, Expr, Index, Scalar, Var};

/// Bytes that a vector of the widest elements has: two registers of AVX2. Distances below it are served one by one. Unmeasured.
const VECTOR: i64 = 64;

/// Makes vectors in the loops of a nest.
pub fn vectorize(nest: &mut LoopNest) {
    nest.replace_statements(&mut |nest, stmt, facts| match stmt {
        Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Serial, body } => {
            Versions { nest }.versions(&Serial { var: *var, lower, upper, body }, facts)
        }
        _ => None,
    });
}

struct Versions<'a> {
    nest: &'a mut LoopNest,
}

/// A serial loop with step 1 over stores.
struct Serial<'a> {
    var: Var,
    lower: &'a [Bound],
    upper: &'a [Bound],
    body: &'a [Stmt],
}

impl Versions<'_> {
    /// The loop in vectors where its distance allows it; `None` where it has none that is read before it.
    fn versions(&mut self, l: &Serial, facts: &Facts) -> Option<Vec<Stmt>> {
        let distance = self.distance(l, facts)?;
        let plain = |b: &Bound| (b.divisor == 1).then(|| Expr::Index(b.affine.clone()));
        let extreme = |bounds: &[Bound], op| {
            let all = bounds.iter().map(plain).collect::<Option<Vec<_>>>()?;
            all.into_iter().reduce(|a, b| Expr::binary(op, a, b))
        };
        let (first, end) = (extreme(l.lower, BinaryOp::Max)?, extreme(l.upper, BinaryOp::Min)?);
        let mut inside = facts.clone();
        inside.enter_loop(l.var, l.lower, l.upper, 1);
        let (low, high) = inside.bounds(&Affine::var(l.var));
        let lanes = VECTOR / self.bytes(l.body);
        if low > high || high - low < 2 * lanes {
            return None;
        }
        let name = self.nest.vars[l.var.0 as usize].clone();
        let [from, to, least] = ["from", "to", "distance"].map(|word| self.nest.new_var(format!("{name}_{word}")));
        let [blocks, block, lane, rest] = ["s", "b", "", ""].map(|word| self.nest.new_var(format!("{name}{word}")));
        // costs take the bound that was added last for the one that decides
        let expected = |bounds: &[Bound]| bounds.last().cloned().unwrap_or(Bound::constant(low));
        let read =
            |var, value, range, expected| Stmt::Read { var, value, range, checked: false, expected, recorded: None };
        let mut out = vec![
            read(from, first, (low, high + 1), expected(l.lower)),
            read(to, end, (low, high + 1), expected(l.upper)),
            read(least, distance, (0, lanes), Bound::constant(lanes)),
        ];
        let length = Affine::var(to).plus(from, -1);
        let place = Affine::var(from).plus(block, lanes).plus(lane, 1);
        let serial = |var, lower, upper, body| Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Serial, body };
        let vector = vector_of(lane, lanes, at(l.body, l.var, &place));
        let count = vec![Bound { affine: length.clone(), divisor: lanes }];
        let done = Bound { affine: Affine::var(from).plus(blocks, lanes), divisor: 1 };
        let tail = [l.lower, &[done]].concat();
        let body = vec![
            serial(block, vec![Bound::constant(0)], count, vec![vector]),
            Stmt::Let { var: blocks, value: length, divisor: lanes },
            serial(rest, tail, l.upper.to_vec(), at(l.body, l.var, &Affine::var(rest))),
        ];
        let far = Affine::var(least).offset(-lanes);
        let near = far.scale(-1).offset(-1);
        out.push(Stmt::If { conditions: vec![far], body });
        let (lower, upper) = (l.lower.to_vec(), l.upper.to_vec());
        let one_by_one = serial(l.var, lower, upper, l.body.to_vec());
        out.push(Stmt::If { conditions: vec![near], body: vec![one_by_one] });
        Some(out)
    }

    /// Bytes of the widest elements that a body reads or writes.
    fn bytes(&self, body: &[Stmt]) -> i64 {
        let mut widest = 1;
        let mut of = |b: BufferId| widest = widest.max(self.nest.buffer(b).dtype.bytes() as i64);
        for s in body {
            s.expressions().for_each(|e| e.visit_accesses(&mut |a| of(a.buffer)));
            if let Stmt::Store { buffer, .. } = s {
                of(*buffer);
            }
        }
        widest
    }

    /// The least number of iterations after which the loop reads what it has written; `None` where it may read that in another way, or in no
    /// iteration but its own.
    fn distance(&self, l: &Serial, facts: &Facts) -> Option<Expr> {
        let mut written: Vec<(BufferId, &[Index])> = vec![];
        for s in l.body {
            let Stmt::Store { buffer, index, .. } = s else { return None };
            let other = written.iter().any(|(b, i)| b == buffer && *i != &index[..]);
            let b = self.nest.buffer(*buffer);
            let in_memory = matches!(b.kind, BufferKind::Argument { .. });
            if other || !in_memory || b.strides.last() != Some(&1) || !is_along(index, l.var) {
                return None;
            }
            written.push((*buffer, index));
        }
        let mut inside = facts.clone();
        inside.enter_loop(l.var, l.lower, l.upper, 1);
        let mut distances: Option<Vec<Expr>> = Some(vec![]);
        for e in l.body.iter().flat_map(Stmt::expressions) {
            e.visit_accesses(&mut |a| {
                let found = match written.iter().find(|w| w.0 == a.buffer) {
                    None => is_plain(a, l.var).then_some(None),
                    Some((_, index)) if a.index == *index && a.guard.is_empty() => Some(None),
                    Some((_, index)) => self.distance_of(l, a, index, facts, &inside).map(Some),
                };
                match (found, &mut distances) {
                    (Some(found), Some(all)) => all.extend(found),
                    _ => distances = None,
                }
            });
        }
        distances?.into_iter().reduce(|a, b| if a == b { a } else { Expr::binary(BinaryOp::Min, a, b) })
    }

    /// The distance from a store to a read along the last dimension.
    fn distance_of(&self, l: &Serial, read: &Access, stored: &[Index], facts: &Facts, inside: &Facts) -> Option<Expr> {
        let (last, outer) = read.index.split_last()?;
        let (to, before) = stored.split_last()?;
        if outer != before || !read.guard.is_empty() {
            return None;
        }
        let read = last.value()?;
        let (affine, rest) = read.affine_terms();
        let affine = to.affine()?.add_scaled(&affine, -1);
        let zero = Expr::Const(Scalar::i64(0));
        let rest = match rest? {
            Expr::Binary(BinaryOp::Sub, a, b) if *a == zero => *b,
            rest => Expr::binary(BinaryOp::Sub, zero, rest),
        };
        let invariant = !affine.uses(l.var)
            && !rest.any(&mut |e| match e {
                Expr::Index(a) => a.uses(l.var),
                Expr::Load(access) => access.affine_forms().any(|a| a.uses(l.var)),
                _ => false,
            });
        let constant = affine == Affine::constant(0);
        let distance = if constant { rest } else { Expr::binary(BinaryOp::Add, Expr::Index(affine), rest) };
        // neither the subscript nor the distance wraps
        let is_exact = [read, &distance].into_iter().all(|e| self.nest.exact_range(e, inside).is_some());
        (invariant && is_exact && may_read(self.nest, &distance, facts)).then_some(distance)
    }
}

/// Returns true for subscripts of which the last one grows with the loop's index, and no other one uses it.
fn is_along(index: &[Index], var: Var) -> bool {
    let Some((last, outer)) = index.split_last() else { return false };
    let grows = last.affine().is_some_and(|a| a.coefficient(var) == 1);
    grows && outer.iter().all(|i| i.affine().is_some_and(|a| !a.uses(var)))
}

/// Returns true for a read of neighbours in neighbouring iterations, or of the same element in all.
fn is_plain(access: &Access, var: Var) -> bool {
    let unused = |i: &Index| i.affine().is_some_and(|a| !a.uses(var));
    access.guard.is_empty() && (is_along(&access.index, var) || access.index.iter().all(unused))
}

/// A body of stores with another form for the index of the loop.
fn at(body: &[Stmt], var: Var, to: &Affine) -> Vec<Stmt> {
    let mut map = |v: Var| if v == var { to.clone() } else { Affine::var(v) };
    body.iter().map(|s| substituted(s, &mut map)).collect()
}

#[cfg(test)]
mod tests {
    use super::vectorize;
    use crate::codegen::loopnest::interpret::assert_same_results;
    use crate::codegen::loopnest::parse;
    use crate::runtime::Tensor;

    /// A nest with distances below, at and above the length of a vector; its results are those of the nest before.
    fn vectorized(statements: &str) -> String {
        let text = format!(
            "kernel rows {{ S: i32[4] argument 0; X: f32[400] argument 1 written; Y: f32[400] argument 2;
             parallel once in 0..1 {{ for r in 0..4 {{ {statements} }} }} }}"
        );
        let before = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut after = before.clone();
        vectorize(&mut after);
        for distances in [[1, 2, 3, 5], [7, 8, 15, 16], [17, 31, 33, 50], [0, 50, 16, 15]] {
            let numbers = || Tensor::new(&[400], &(0..400).map(|k| (k * k % 23) as f32).collect::<Vec<f32>>());
            assert_same_results(&before, &after, &[Tensor::new(&[4], &distances), numbers(), numbers()]);
        }
        after.to_string()
    }

    #[test]
    fn recurrences_over_a_distance_from_data_run_in_vectors() {
        let text = vectorized("for v in 50..400 { X[v] max = (X[@(index(v) - cast i64(S[r]))] + Y[v]); }");
        assert!(text.contains("vector v") && text.contains("v_distance = clamp(cast i64(S[r]), 0, 16)"), "{text}");
        let two = vectorized(
            "for v in 60..390 { X[v + 1] = ((X[@(index(v) - cast i64(S[r]))] + X[@(index(v - 2) - cast i64(S[r]))]) + X[v + 1]); }",
        );
        assert!(two.contains("vector v"), "{two}");
    }

    #[test]
    fn other_loops_stay() {
        for statements in [
            // the distance changes; another array; a distance that is known; two places; a read of all
            "for v in 50..54 { X[v] = X[@(index(v) - cast i64(S[v - 50]))]; }",
            "for v in 50..400 { X[v] = Y[@(index(v) - cast i64(S[r]))]; }",
            "for v in 50..400 { X[v] = X[v - 3]; }",
            "for v in 50..390 { X[v] = X[@(index(v) - cast i64(S[r]))]; X[v + 1] = Y[v]; }",
            "for v in 50..400 { X[v] = (X[@(index(v) - cast i64(S[r]))] + X[7]); }",
        ] {
            let text = vectorized(statements);
            assert!(!text.contains("vector"), "{text}");
        }
    }
}
