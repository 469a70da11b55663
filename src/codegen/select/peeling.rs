//! Peeling of the last vector of loops whose lanes stand under a condition.
//!
//! In: a nest. Out: a nest of the same meaning in which `for t in a..b step n { vector k in 0..n { if t + k < b { … } } }`, of sums and
//! of stores that the target does by a mask, is a loop over whole vectors without the condition and a loop of at most one vector with
//! it. Loops that are expected to have no whole vector stay. With other statements, narrower vectors and single elements follow
//! whole vectors.

use crate::codegen::Target;
use crate::codegen::loopnest::dynamic_loops::{Tile, by_widths, substituted, vector_of};
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::masked_stores::stores_where;
use crate::codegen::select::overlapping::{Elements, overlapping};
use crate::codegen::select::strip_mine::copy_with;
use crate::expr::interval::Facts;
use crate::expr::{Affine, Bound, BufferId, Var};
use rustc_hash::FxHashMap;

/// Peels the loops of a nest.
pub fn peel(nest: &mut LoopNest, target: &Target) {
    let body = std::mem::take(&mut nest.body);
    nest.body = Peeler { nest, target, expected: FxHashMap::default() }.statements(body);
}

struct Peeler<'a> {
    nest: &'a mut LoopNest,
    target: &'a Target,
    /// Expected values of the variables that were read.
    expected: FxHashMap<Var, Bound>,
}

impl Peeler<'_> {
    fn statements(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        body.into_iter().flat_map(|s| self.statement(s)).collect()
    }

    fn statement(&mut self, stmt: Stmt) -> Vec<Stmt> {
        if let Stmt::Read { var, expected, .. } = &stmt {
            self.expected.insert(*var, expected.clone());
        }
        match self.peeled(&stmt) {
            Some(parts) => parts,
            // a phase stays one statement
            None => vec![stmt.map_body(|body| self.statements(body))],
        }
    }

    /// The parts of a loop over lanes before its end; `None` for other loops.
    fn peeled(&mut self, stmt: &Stmt) -> Option<Vec<Stmt>> {
        let Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body } = stmt else { return None };
        let [vector @ Stmt::Loop { var: lane, kind: LoopKind::Vector, body: masked, .. }] = &body[..] else {
            return None;
        };
        let [Stmt::If { conditions, body: inner }] = &masked[..] else { return None };
        let ([first], [end], [condition]) = (&lower[..], &upper[..], &conditions[..]) else { return None };
        let inside = end.affine.clone().offset(-1).plus(*var, -1).plus(*lane, -1);
        let plain = inner.iter().all(|s| matches!(s, Stmt::Store { .. }));
        if *step < 2 || first.divisor != 1 || end.divisor != 1 || *condition != inside || !plain {
            return None;
        }
        if !inner.iter().all(|s| self.is_masked(s, (*lane, *step))) || updates(inner, |b| self.nest.buffer(b).kind) {
            let (first, stop) = (&first.affine, &end.affine);
            let elements = Elements { tile: *var, lane: *lane, width: *step, first, stop, body: inner };
            if let Some(parts) = overlapping(self.nest, &elements) {
                return Some(parts);
            }
            return self.narrower((*var, *step), (first, stop), *lane, inner);
        }
        if self.expected_extent(first, end).is_some_and(|n| n < *step) {
            return None;
        }
        let whole = self.nest.new_var("whole");
        let extent = end.affine.add_scaled(&first.affine, -1);
        let after = first.affine.clone().plus(whole, *step);
        let rest = end.affine.add_scaled(&after, -1);
        let vectors = Stmt::Loop {
            var: *var,
            lower: lower.clone(),
            upper: vec![Bound { affine: end.affine.clone().offset(1 - step), divisor: 1 }],
            step: *step,
            kind: LoopKind::Serial,
            body: vec![vector.with_body(inner.clone())],
        };
        // where the end lies before the first element, so does what is after the whole vectors
        let conditions = [&extent, &rest].map(|elements| elements.clone().offset(-1)).to_vec();
        let mut place = FxHashMap::from_iter([(*var, after)]);
        let last = Stmt::If { conditions, body: copy_with(self.nest, std::slice::from_ref(vector), &mut place) };
        Some(vec![Stmt::Let { var: whole, value: extent, divisor: *step }, vectors, last])
    }

    /// Returns true for sums, whose lanes are chosen in registers, and for stores of some lanes.
    fn is_masked(&self, s: &Stmt, lanes: (Var, i64)) -> bool {
        let Stmt::Store { buffer, index, reduce, .. } = s else { return false };
        match self.nest.buffer(*buffer).kind {
            BufferKind::Local => reduce.is_some(),
            BufferKind::Argument { .. } => stores_where(self.nest, self.target, lanes, *buffer, index),
        }
    }

    /// Whole vectors, narrower ones and single elements of a loop that begins at a variable; `None` for other loops.
    fn narrower(
        &mut self,
        (var, width): (Var, i64),
        (first, stop): (&Affine, &Affine),
        lane: Var,
        body: &[Stmt],
    ) -> Option<Vec<Stmt>> {
        let [(start, 1)] = first.terms[..] else { return None };
        if first.constant != 0 {
            return None;
        }
        let (mut out, mut facts) = (vec![], Facts::new(self.nest.vars.len()));
        let tile = Tile { var, width, first: start, stop: stop.clone() };
        by_widths(self.nest, tile, &mut facts, &mut out, &mut |nest, tile, n| {
            let k = if n == width { lane } else { nest.new_var(nest.vars[lane.0 as usize].clone()) };
            let mut place = |v: Var| match v {
                v if v == var => Affine::var(tile),
                v if v == lane && n == 1 => Affine::constant(0),
                v if v == lane => Affine::var(k),
                v => Affine::var(v),
            };
            let body: Vec<Stmt> = body.iter().map(|s| substituted(s, &mut place)).collect();
            if n == 1 { body } else { vec![vector_of(k, n, body)] }
        });
        Some(out)
    }

    /// Elements between two bounds that were read, as they are expected.
    fn expected_extent(&self, first: &Bound, end: &Bound) -> Option<i64> {
        let of = |b: &Bound| match b.affine.terms[..] {
            [(v, 1)] if b.affine.constant == 0 => self.expected.get(&v),
            _ => None,
        };
        let (first, end) = (of(first)?, of(end)?);
        let extent = end.affine.scale(first.divisor).add_scaled(&first.affine, -end.divisor);
        extent.is_constant().then(|| extent.constant / (first.divisor * end.divisor))
    }
}

/// Returns true if a store to memory takes the place of elements that were read in the same iteration. The next row begins where a
/// mask ends, and its loads would wait until the lanes in front of them are in the cache.
fn updates(body: &[Stmt], kind: impl Fn(BufferId) -> BufferKind) -> bool {
    let mut read = vec![];
    body.iter().any(|s| {
        s.expressions().for_each(|e| e.visit_accesses(&mut |a| read.push(a.buffer)));
        let Stmt::Store { buffer, reduce, .. } = s else { return false };
        kind(*buffer) != BufferKind::Local && (reduce.is_some() || read.contains(buffer))
    })
}

#[cfg(test)]
mod tests {
    use super::peel;
    use crate::codegen::Target;
    use crate::codegen::loopnest::{interpret, parse, verify};
    use crate::runtime::Tensor;

    #[test]
    fn whole_vectors_are_summed_without_a_condition() {
        let rows = |about: &str| {
            let text = format!(
                "kernel rows {{ P: i32[5] argument 0; V: f32[23] argument 1; Y: f32[4] argument 2 written; acc: f32[1] local; parallel i in 0..4 {{
                     acc[0] = f32(0.0);
                     let a = clamp(cast i64(P[i]), 0, 23) about {about};
                     let b = clamp(cast i64(P[i + 1]), 0, 23) about {about} + 9;
                     for t in a..b step 8 {{ vector k in 0..8 {{ if b - t - k - 1 >= 0 {{ acc[0] add = V[t + k]; }} }} }}
                     Y[i] = acc[0]; }} }}"
            );
            parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
        };
        let before = rows("9*i");
        let mut after = before.clone();
        peel(&mut after, &Target::avx512());
        verify::verify(&after).unwrap_or_else(|e| panic!("{e}\n{after}"));
        let text = after.to_string();
        assert!(text.contains("for t in a..b - 7 step 8 {") && text.matches("for t").count() == 1, "{text}");
        assert!(text.matches("if ").count() == 2, "{text}");
        for rows in [[0, 5, 5, 9, 23], [3, 1, 20, 4, 12], [0, 8, 16, 23, 0], [-5, 7, 8, 16, 99]] {
            let run = |nest| {
                let values: Vec<f32> = (0..23).map(|k| (k * k % 7) as f32).collect();
                let mut all = [Tensor::new(&[5], &rows), Tensor::new(&[23], &values), Tensor::new(&[4], &[0f32; 4])];
                interpret::run(nest, &mut all).unwrap();
                all[2].to_vec::<f32>()
            };
            assert_eq!(run(&before), run(&after), "{rows:?}");
        }
        // elements of their own are stored by a mask, or by narrower vectors and one by one
        let text = before.to_string().replace("V: f32[23] argument 1", "V: f32[23] argument 1 written");
        let [filled, scaled] = ["V[t + k] = f32(2.0)", "V[t + k] mul = f32(2.0)"]
            .map(|store| parse::nest(&text.replace("acc[0] add = V[t + k]", store)).unwrap());
        for (target, loops) in [(Target::avx512(), [1, 3]), (Target::avx2(), [1, 3]), (Target::neon(), [3, 3])] {
            let peeled = [&filled, &scaled].map(|nest| {
                let mut after = nest.clone();
                peel(&mut after, &target);
                verify::verify(&after).unwrap_or_else(|e| panic!("{e}\n{after}"));
                after.to_string().matches("for t").count()
            });
            assert_eq!(peeled, loops, "{}", target.name);
        }
        // rows that are expected to be shorter than a vector
        let short = parse::nest(&before.to_string().replace("9*i + 9", "9*i + 7")).unwrap();
        let mut after = short.clone();
        peel(&mut after, &Target::avx512());
        assert_eq!(after, short);
    }
}
