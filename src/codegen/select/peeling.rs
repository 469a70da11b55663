//! Peeling of the last vector of loops whose lanes stand under a condition.
//!
//! In: a nest. Out: a nest of the same meaning in which `for t in a..b step n { vector k in 0..n { if t + k < b { … } } }`, of sums, is a
//! loop over whole vectors without the condition and a loop of at most one vector with it. Loops that are expected to have no whole vector stay.

use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::select::strip_mine::copy_with;
use crate::expr::{Bound, Var};
use rustc_hash::FxHashMap;

/// Peels the loops of a nest.
pub fn peel(nest: &mut LoopNest) {
    let body = std::mem::take(&mut nest.body);
    nest.body = Peeler { nest, expected: FxHashMap::default() }.statements(body);
}

struct Peeler<'a> {
    nest: &'a mut LoopNest,
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

    /// The parts of a loop of masked sums; `None` for other loops.
    fn peeled(&mut self, stmt: &Stmt) -> Option<Vec<Stmt>> {
        let Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body } = stmt else { return None };
        let [vector @ Stmt::Loop { var: lane, kind: LoopKind::Vector, body: masked, .. }] = &body[..] else {
            return None;
        };
        let [Stmt::If { conditions, body: sums }] = &masked[..] else { return None };
        let ([first], [end], [condition]) = (&lower[..], &upper[..], &conditions[..]) else { return None };
        let inside = end.affine.clone().offset(-1).plus(*var, -1).plus(*lane, -1);
        let plain = sums.iter().all(|s| matches!(s, Stmt::Store { reduce: Some(_), .. }));
        if *step < 2 || first.divisor != 1 || end.divisor != 1 || *condition != inside || !plain {
            return None;
        }
        if self.expected_extent(first, end).is_some_and(|n| n < *step) {
            return None;
        }
        let whole = self.nest.new_var("whole");
        let extent = end.affine.add_scaled(&first.affine, -1);
        let after = Bound { affine: first.affine.clone().plus(whole, *step), divisor: 1 };
        let vectors = Stmt::Loop {
            var: *var,
            lower: lower.clone(),
            upper: vec![Bound { affine: end.affine.clone().offset(1 - step), divisor: 1 }],
            step: *step,
            kind: LoopKind::Serial,
            body: vec![vector.with_body(sums.clone())],
        };
        let mut last = copy_with(self.nest, std::slice::from_ref(stmt), &mut FxHashMap::default());
        if let Some(Stmt::Loop { lower, .. }) = last.first_mut() {
            // where the end lies before the first element, so does what is after the whole vectors
            lower.push(after);
        }
        let mut out = vec![Stmt::Let { var: whole, value: extent, divisor: *step }, vectors];
        out.extend(last);
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

#[cfg(test)]
mod tests {
    use super::peel;
    use crate::codegen::loopnest::{interpret, parse, verify};
    use crate::runtime::Tensor;

    #[test]
    fn whole_vectors_are_summed_without_a_condition() {
        let rows = |about: &str| {
            let text = format!(
                "kernel rows {{ P: i32[5] argument 0; V: f32[23] argument 1; Y: f32[4] argument 2 written; parallel i in 0..4 {{
                     let a = clamp(cast i64(P[i]), 0, 23) about {about};
                     let b = clamp(cast i64(P[i + 1]), 0, 23) about {about} + 9;
                     for t in a..b step 8 {{ vector k in 0..8 {{ if b - t - k - 1 >= 0 {{ Y[i] add = V[t + k]; }} }} }} }} }}"
            );
            parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
        };
        let before = rows("9*i");
        let mut after = before.clone();
        peel(&mut after);
        verify::verify(&after).unwrap_or_else(|e| panic!("{e}\n{after}"));
        let text = after.to_string();
        assert!(
            text.contains("for t in a..b - 7 step 8 {") && text.contains("in max(a, a + 8*whole)..b step 8 {"),
            "{text}"
        );
        for rows in [[0, 5, 5, 9, 23], [3, 1, 20, 4, 12], [0, 8, 16, 23, 0], [-5, 7, 8, 16, 99]] {
            let run = |nest| {
                let values: Vec<f32> = (0..23).map(|k| (k * k % 7) as f32).collect();
                let mut all = [Tensor::new(&[5], &rows), Tensor::new(&[23], &values), Tensor::new(&[4], &[0f32; 4])];
                interpret::run(nest, &mut all).unwrap();
                all[2].to_vec::<f32>()
            };
            assert_eq!(run(&before), run(&after), "{rows:?}");
        }
        // rows that are expected to be shorter than a vector
        let short = parse::nest(&before.to_string().replace("9*i + 9", "9*i + 7")).unwrap();
        let mut after = short.clone();
        peel(&mut after);
        assert_eq!(after, short);
    }
}
