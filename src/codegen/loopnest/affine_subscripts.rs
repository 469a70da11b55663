//! Subscripts from data that are affine in an innermost loop: `x[i + s]` with s the same in all iterations.
//!
//! In: a verified nest. Out: a nest of the same meaning in which s is read before the loop, brought into the range in which the subscript lies inside, and the subscript
//! is an affine form of the loop variable and of what has been read. Its address moves with the loop then, and lanes take neighbours.

use crate::codegen::loopnest::innermost::is_innermost;
use crate::codegen::loopnest::invariant::written_in;
use crate::codegen::loopnest::linear::{FAR, Linear};
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::expr::interval::Facts;
use crate::expr::narrow::Interval;
use crate::expr::{Access, Affine, Bound, BufferId, Expr, Index, Var};
use rustc_hash::FxHashSet;

/// Iterations of a loop that is short. Unmeasured.
const SHORT: i64 = 8;

/// Reads what the subscripts of innermost loops have in common with all iterations before them.
pub fn read_before(nest: &mut LoopNest) {
    nest.replace_statements(&mut |nest, stmt, facts| match stmt {
        Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body } if is_innermost(body) => {
            let mut inside = facts.clone();
            inside.enter_loop(*var, lower, upper, *step);
            let (first, last) = inside.range(*var);
            let (is_short, own) = (last - first < SHORT, vec![*var]);
            let mut pass = Pass { nest, outside: facts, written: written_in(body), own, is_short, read: vec![] };
            let body = pass.body(body, &mut inside);
            let read = pass.read.into_iter().map(|(e, range, var)| {
                let expected = Bound::constant(0.clamp(range.0, range.1));
                Stmt::Read { var, value: e, range, checked: false, expected, recorded: None }
            });
            let mut out: Vec<Stmt> = read.collect();
            if out.is_empty() {
                return None;
            }
            out.push(stmt.with_body(body));
            Some(out)
        }
        _ => None,
    });
}

struct Pass<'a> {
    nest: &'a mut LoopNest,
    outside: &'a Facts,
    /// Buffers that the loop stores to.
    written: FxHashSet<BufferId>,
    /// Variables of the loop, and of those in it.
    own: Vec<Var>,
    /// Few iterations run, so that bringing a value into a range pays nothing.
    is_short: bool,
    /// Values that are read before the loop, each with the range that it is brought into, and its variable.
    read: Vec<(Expr, Interval, Var)>,
}

impl Pass<'_> {
    fn body(&mut self, body: &[Stmt], facts: &mut Facts) -> Vec<Stmt> {
        let mut out = vec![];
        for stmt in body {
            out.push(match stmt {
                Stmt::Store { buffer, index, value, reduce } => {
                    let index = self.subscripts(*buffer, index, facts);
                    Stmt::Store { buffer: *buffer, index, value: self.expression(value, facts), reduce: *reduce }
                }
                stmt => {
                    let mut inside = facts.clone();
                    stmt.enter(&mut inside);
                    if let Stmt::Loop { var, .. } = stmt {
                        self.own.push(*var);
                    }
                    stmt.with_body(self.body(stmt.body(), &mut inside))
                }
            });
        }
        out
    }

    fn subscripts(&mut self, buffer: BufferId, index: &[Index], facts: &Facts) -> Vec<Index> {
        let mut out = vec![];
        for (d, i) in index.iter().enumerate() {
            let extent = self.nest.buffer(buffer).shape[d];
            out.push(match i {
                Index::Affine(_) => i.clone(),
                Index::Value(e) => match self.affine(e, extent, facts) {
                    Some(affine) => Index::Affine(affine),
                    None => Index::Value(Box::new(self.expression(e, facts))),
                },
            });
        }
        out
    }

    fn expression(&mut self, e: &Expr, facts: &Facts) -> Expr {
        match e {
            Expr::Load(access) if access.guard.is_empty() => {
                let index = self.subscripts(access.buffer, &access.index, facts);
                Expr::Load(Access { index, ..access.clone() })
            }
            Expr::Load(_) => e.clone(),
            e => e.map_children(&mut |e| self.expression(e, facts)),
        }
    }

    /// A subscript that lies inside wherever it is computed, as an affine form.
    fn affine(&mut self, e: &Expr, extent: i64, facts: &Facts) -> Option<Affine> {
        let linear = Linear::new(self.nest, e, &self.own, facts)?;
        let moves = self.own.iter().any(|v| linear.affine.uses(*v));
        let rest = linear.rest.clone().filter(|_| moves && linear.products.is_empty())?;
        let near = linear.is_near(self.own[0], facts) && extent < FAR;
        if !near || !linear.may_read(self.nest, &self.written, self.outside) {
            return None;
        }
        let (least, most) = facts.bounds(&linear.affine);
        // with a value beyond it no iteration computes the subscript, or not all do
        let range = match facts.is_box(&linear.affine) {
            true => (-least, extent - 1 - most),
            false => (-most, extent - 1 - least),
        };
        if range.0 > range.1 {
            return None;
        }
        let exact = self.nest.exact_range(&rest, self.outside);
        let is_certain = exact.is_some_and(|(low, high)| range.0 <= low && high <= range.1);
        if self.is_short && !is_certain {
            return None;
        }
        let known = self.read.iter().find(|(read, r, _)| *read == rest && *r == range).map(|(.., var)| *var);
        let var = known.unwrap_or_else(|| {
            let var = self.nest.new_var("base");
            self.read.push((rest, range, var));
            var
        });
        Some(linear.affine.plus(var, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::read_before;
    use crate::codegen::loopnest::interpret::assert_same_results;
    use crate::codegen::loopnest::parse;
    use crate::runtime::Tensor;

    /// The nest of a loop over rows, with shifts of 0, 3, 30 and 110, and what it becomes.
    fn affine(statements: &str) -> String {
        let text = format!(
            "kernel rows {{ S: i32[4] argument 0; X: f32[150] argument 1; Y: f32[4][150] argument 2 written; T: i32[4] argument 3 written;
             parallel r in 0..4 {{ {statements} }} }}"
        );
        let before = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut after = before.clone();
        read_before(&mut after);
        let x: Vec<f32> = (0..150).map(|k| (k * k % 23) as f32).collect();
        let shifts = Tensor::new(&[4], &[0, 3, 30, 110]);
        let y = Tensor::new(&[4, 150], &[0f32; 600]);
        assert_same_results(&before, &after, &[shifts.clone(), Tensor::new(&[150], &x), y, shifts]);
        after.to_string()
    }

    #[test]
    fn what_iterations_have_in_common_is_read_before_the_loop() {
        let text = affine("for i in 0..40 { Y[r][i] = X[@(index(i) + cast i64(S[r]))]; }");
        assert!(text.contains("let base = clamp(cast i64(S[r]), 0, 110) about 0;"), "{text}");
        assert!(text.contains("Y[r][i] = X[i + base];"), "{text}");
        // against the loop, beside an outer index, in vectors, stored to
        let text = affine(
            "for t in 0..9 { vector i in 0..4 { Y[r][@(index(2*r + 40) - index(4*t + i))] = X[@(index(4*t + i) + cast i64(S[r]))]; } }",
        );
        assert!(text.contains("= X[4*t + i + base#2];") && text.contains("Y[r][-4*t - i + base + 40]"), "{text}");
        // in some iterations
        let text = affine("for i in 0..60 { if -i - r + 39 >= 0 { Y[r][i] = X[@(index(i) + cast i64(S[r]))]; } }");
        assert!(text.contains("clamp(cast i64(S[r]), -39, 149)"), "{text}");
    }

    #[test]
    fn other_subscripts_stay() {
        for body in [
            "Y[r][i] = X[@cast i64(S[r])];",
            "unroll k in 0..1 { Y[r][i] = X[@cast i64(S[r])]; }",
            "Y[r][i] = X[@(index(i) * cast i64(S[0]))];",
            "Y[r][i] = X[@(index(i) + cast i64(T[r]))]; T[r] = S[0];",
            "Y[r][i] = X[@min((index(i) + cast i64(S[r])), i64(149))];",
        ] {
            let text = affine(&format!("for i in 0..40 {{ {body} }}"));
            assert!(!text.contains("base"), "{text}");
        }
    }
}
