//! Sums that are cut into parts: the loops that clear the sums are fused with those of the first part, the loops that read them with
//! those of the last part.
//!
//! In: a nest with loops over blocks that assign to sums, a serial loop over parts of the terms with the same loops over blocks in it, and perhaps
//! loops over blocks that read the sums. Out: the first and the last part peeled, and the loops fused as far as their
//! iterations work on elements of the sums that are apart. A block begins and ends its sums where they are in registers or in the
//! first cache, without passes over memory of their own (Kennedy, Allen, "Optimizing Compilers for Modern Architectures", 2001, on
//! peeling and fusion).

use crate::codegen::loopnest::invariant::written_in;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt, accesses};
use crate::expr::interval::constant_range;
use crate::expr::{Access, Affine, Bound, BufferId, Index, Var};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Fuses the loops around all sums that are cut into parts.
pub fn fuse(nest: &mut LoopNest) {
    let body = std::mem::take(&mut nest.body);
    nest.body = in_body(nest, body);
}

fn in_body(nest: &mut LoopNest, body: Vec<Stmt>) -> Vec<Stmt> {
    let body: Vec<Stmt> = body.into_iter().map(|stmt| stmt.map_body(|body| in_body(nest, body))).collect();
    if (0..body.len()).all(|first| Fusion::at(&body[first..]).is_none()) {
        return body;
    }
    let mut out = vec![];
    let mut left = &body[..];
    while let [stmt, after @ ..] = left {
        match Fusion::at(left) {
            Some((fusion, count)) => {
                out.extend(fusion.fused(nest));
                left = &left[count..];
            }
            None => {
                out.push(stmt.clone());
                left = after;
            }
        }
    }
    out
}

/// A serial loop with constant bounds.
#[derive(Clone, Copy)]
struct Serial<'a> {
    var: Var,
    first: i64,
    end: i64,
    step: i64,
    body: &'a [Stmt],
}

impl<'a> Serial<'a> {
    fn new(stmt: &'a Stmt) -> Option<Serial<'a>> {
        let Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body } = stmt else { return None };
        let (first, end) = constant_range(lower, upper)?;
        (first < end).then_some(Serial { var: *var, first, end, step: *step, body })
    }

    fn bounds(&self) -> [i64; 3] {
        [self.first, self.end, self.step]
    }
}

/// Loops over the same blocks: the variables of each, from outside inwards, and what is in the innermost one.
struct Blocks<'a> {
    vars: Vec<Var>,
    body: &'a [Stmt],
}

/// Loops that are fused.
struct Fusion<'a> {
    parts: Serial<'a>,
    begin: Blocks<'a>,
    sums: Blocks<'a>,
    end: Option<Blocks<'a>>,
}

impl<'a> Fusion<'a> {
    /// The fusion of the first statements of a body, and their number.
    fn at(body: &'a [Stmt]) -> Option<(Fusion<'a>, usize)> {
        let [begin, parts, after @ ..] = body else { return None };
        let whole = after.first().and_then(|end| Fusion::new(begin, parts, Some(end)));
        whole.map(|f| (f, 3)).or_else(|| Some((Fusion::new(begin, parts, None)?, 2)))
    }

    /// The fusion of statements that follow each other; `None` where they are no such loops or where it would change a result.
    fn new(begin: &'a Stmt, parts: &'a Stmt, end: Option<&'a Stmt>) -> Option<Fusion<'a>> {
        let (parts, _) = (Serial::new(parts)?, Serial::new(begin)?);
        let [inside] = parts.body else { return None };
        Serial::new(inside)?;
        let all: Vec<&[Stmt]> =
            [Some(begin), Some(inside), end].into_iter().flatten().map(std::slice::from_ref).collect();
        let binds = |s: &Stmt| matches!(s, Stmt::Let { .. } | Stmt::Read { .. });
        let any = |body: &[Stmt], f: &dyn Fn(&Stmt) -> bool| {
            let mut found = false;
            body.iter().for_each(|s| s.visit(&mut |s| found |= f(s)));
            found
        };
        if all.iter().any(|body| any(body, &binds)) {
            return None;
        }
        let shared = shared(&all);
        let ranges = ranges(&all);
        let mut bodies = all.clone();
        let mut vars: Vec<Vec<Var>> = vec![vec![]; all.len()];
        while let Some(loops) = bodies.iter().map(|b| if let [s] = b { Serial::new(s) } else { None }).collect() {
            let loops: Vec<Serial> = loops;
            let step = loops[0].step;
            let same = loops.iter().all(|l| l.bounds() == loops[0].bounds());
            let around: Vec<Vec<Var>> = vars.iter().zip(&loops).map(|(v, l)| [&v[..], &[l.var]].concat()).collect();
            let apart = |&buffer: &BufferId| are_apart(buffer, &all, &around, &ranges, step);
            if !same || shared.is_empty() || !shared.iter().all(apart) {
                break;
            }
            (bodies, vars) = (loops.iter().map(|l| l.body).collect(), around);
        }
        if vars[0].is_empty() {
            return None;
        }
        let mut blocks = vars.into_iter().zip(bodies).map(|(vars, body)| Blocks { vars, body });
        Some(Fusion { parts, begin: blocks.next()?, sums: blocks.next()?, end: blocks.next() })
    }

    fn fused(&self, nest: &mut LoopNest) -> Vec<Stmt> {
        let Serial { var, first, end, step, body } = self.parts;
        let last = first + (end - 1 - first) / step * step;
        let mut out = vec![self.part(nest, first, true, last == first)];
        // the parts that neither begin nor end the sums
        let (rest, stop) = (first + step, if self.end.is_some() { last } else { end });
        if rest < stop {
            let [lower, upper] = [rest, stop].map(|c| vec![Bound::constant(c)]);
            out.push(Stmt::Loop { var, lower, upper, step, kind: LoopKind::Serial, body: body.to_vec() });
        }
        if first < last && self.end.is_some() {
            out.push(self.part(nest, last, false, true));
        }
        out
    }

    /// A part as loops of its own, with what begins or ends the sums.
    fn part(&self, nest: &mut LoopNest, value: i64, begins: bool, ends: bool) -> Stmt {
        let map = &mut FxHashMap::from_iter([(self.parts.var, Affine::constant(value))]);
        let mut part = nest.copies(self.parts.body, map).remove(0);
        let vars: Vec<Affine> = self.sums.vars.iter().map(|v| map[v].clone()).collect();
        let mut copy = |blocks: &Blocks| {
            let mut map = blocks.vars.iter().copied().zip(vars.iter().cloned()).collect();
            nest.copies(blocks.body, &mut map)
        };
        let before = if begins { copy(&self.begin) } else { vec![] };
        let after = self.end.as_ref().filter(|_| ends).map_or(vec![], copy);
        let mut innermost = &mut part;
        for _ in 1..vars.len() {
            innermost = match innermost {
                Stmt::Loop { body, .. } => &mut body[0],
                _ => unreachable!("the loops over blocks are perfectly nested"),
            };
        }
        if let Stmt::Loop { body, .. } = innermost {
            *body = [before, std::mem::take(body), after].concat();
        }
        part
    }
}

/// The buffers that pass values between what begins the sums, the parts and what ends them.
fn shared(all: &[&[Stmt]]) -> Vec<BufferId> {
    let (written, used): (Vec<_>, Vec<_>) = all.iter().map(|body| (written_in(body), accesses(body))).unzip();
    let mut out: Vec<BufferId> = vec![];
    for (n, written) in written.iter().enumerate() {
        let elsewhere = |b: &&BufferId| used.iter().enumerate().any(|(m, used)| m != n && used.contains_key(*b));
        out.extend(written.iter().filter(elsewhere));
    }
    out
}

/// The values of the variables of all loops; `None` where a bound varies.
fn ranges(all: &[&[Stmt]]) -> FxHashMap<Var, Option<(i64, i64)>> {
    let mut out = FxHashMap::default();
    let mut add = |s: &Stmt| {
        if let Stmt::Loop { var, lower, upper, .. } = s {
            out.insert(*var, constant_range(lower, upper).map(|(first, end)| (first, end - 1)));
        }
    };
    all.iter().for_each(|body| body.iter().for_each(|s| s.visit(&mut add)));
    out
}

/// Returns true if iterations of the innermost loops of `around` (one for each of `all`) work on elements of a buffer that are apart: in one
/// dimension their subscripts lie within one step of the loop.
fn are_apart(
    buffer: BufferId,
    all: &[&[Stmt]],
    around: &[Vec<Var>],
    ranges: &FxHashMap<Var, Option<(i64, i64)>>,
    step: i64,
) -> bool {
    let mut subscripts: Vec<(usize, Vec<Index>)> = vec![];
    for (n, body) in all.iter().enumerate() {
        let mut add = |s: &Stmt| {
            if let Stmt::Store { buffer: b, index, .. } = s
                && *b == buffer
            {
                subscripts.push((n, index.clone()));
            }
            let mut load = |a: &Access| {
                if a.buffer == buffer {
                    subscripts.push((n, a.index.clone()))
                }
            };
            s.expressions().for_each(|e| e.visit_accesses(&mut load));
        };
        body.iter().for_each(|s| s.visit(&mut add));
    }
    let depth = around[0].len() - 1;
    // The coefficients of loops around, by their depth, those of variables from outside, and the range of the rest.
    let form = |n: usize, index: &Index| {
        let affine = index.affine()?;
        let (mut fixed, mut range) = (BTreeMap::new(), (affine.constant, affine.constant));
        for &(v, c) in &affine.terms {
            match (around[n].iter().position(|x| *x == v), ranges.get(&v)) {
                (Some(d), _) => drop(fixed.insert((0, d as u32), c)),
                (None, Some(&values)) => {
                    let (lo, hi) = values?;
                    range = (range.0 + (c * lo).min(c * hi), range.1 + (c * lo).max(c * hi));
                }
                (None, None) => drop(fixed.insert((1, v.0), c)),
            }
        }
        Some((fixed, range))
    };
    let Some((_, first)) = subscripts.first() else { return true };
    (0..first.len()).any(|d| {
        let forms: Option<Vec<_>> = subscripts.iter().map(|(n, index)| form(*n, index.get(d)?)).collect();
        let Some(forms) = forms else { return false };
        let fixed = &forms[0].0;
        let own = fixed.get(&(0, depth as u32)).copied().unwrap_or(0).abs();
        let low = forms.iter().map(|f| f.1.0).min().unwrap_or(0);
        let high = forms.iter().map(|f| f.1.1).max().unwrap_or(0);
        own > 0 && forms.iter().all(|f| f.0 == *fixed) && high - low < own * step
    })
}

#[cfg(test)]
mod tests {
    use super::fuse;
    use crate::codegen::loopnest::interpret::assert_same_results;
    use crate::codegen::loopnest::parse;
    use crate::runtime::Tensor;

    /// Sums of 4 blocks of 3 rows over so many parts of 2 terms, and what the nest becomes.
    fn fused(parts: i64, begin: &str, update: &str, end: &str) -> String {
        let text = format!(
            "kernel sums {{ A: f32[12][20] argument 0; Y: f32[12] argument 1 written; Z: f32[12] argument 2 written; T: f32[12] local;
             parallel t in 0..1 {{
               for b in 0..4 {{ for i in 0..3 {{ {begin} }} }}
               for kb in 0..{parts} {{ for b in 0..4 {{ for i in 0..3 {{ for k in 0..2 {{ {update} }} }} }} }}
               for b in 0..4 {{ for i in 0..3 {{ {end} }} }}
             }} }}"
        );
        let before = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut after = before.clone();
        fuse(&mut after);
        let a: Vec<f32> = (0..240).map(|k| (k * k % 23) as f32).collect();
        let y: Vec<f32> = (0..12).map(|k| k as f32).collect();
        let y = Tensor::new(&[12], &y);
        assert_same_results(&before, &after, &[Tensor::new(&[12, 20], &a), y.clone(), y]);
        after.to_string()
    }

    const CLEAR: &str = "T[3*b + i] = f32(0.0);";
    const ADD: &str = "T[3*b + i] add = A[3*b + i][2*kb + k];";
    const STORE: &str = "Y[3*b + i] = (T[3*b + i] * f32(2.0));";

    #[test]
    fn the_first_part_begins_the_sums_and_the_last_one_ends_them() {
        for (parts, loops) in [(1, 1), (2, 2), (5, 3)] {
            let text = fused(parts, CLEAR, ADD, STORE);
            let count = |word: &str| text.matches(word).count();
            assert_eq!((count("add = A["), count("= f32(0.0)"), count("Y[3*")), (loops, 1, 1), "{text}");
            assert_eq!(count(" in 0..4"), loops, "{text}");
        }
    }

    #[test]
    fn sums_that_nothing_ends_are_begun_in_the_first_part() {
        let (add, end) = ("T[3*b + i] add = Z[11 - 3*b - i];", "Z[3*b + i] = T[3*b + i];");
        for (add, end) in [(ADD, "Y[3*b + i] = (T[11 - 3*b - i] * f32(2.0));"), (add, end)] {
            let text = fused(3, CLEAR, add, end);
            assert_eq!((text.matches(" in 0..4").count(), text.matches("add =").count()), (3, 2), "{text}");
        }
    }

    #[test]
    fn what_blocks_share_keeps_the_loops_apart() {
        for (begin, update, end) in [
            ("T[i] = f32(0.0);", "T[i] add = A[3*b + i][2*kb + k];", "Y[3*b + i] = T[i];"),
            ("T[11 - 3*b - i] = f32(0.0);", ADD, STORE),
            (
                "T[3*b + i] = Y[3*b + i];",
                "Y[3*b + i] add = (A[3*b + i][2*kb + k] + T[11 - 3*b - i]);",
                "Z[3*b + i] = Y[11 - 3*b - i];",
            ),
        ] {
            let text = fused(3, begin, update, end);
            assert_eq!(text.matches("add =").count(), 1, "{text}");
        }
    }
}
