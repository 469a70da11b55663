//! Domain splitting: statements divided where subscripts and conditions with quotients, remainders, minima or maxima of
//! indices change from one affine form to another.
//!
//! In: a Scop in its original order. Out: the same instances in the same order, where
//! `for x: B[x] = A[(x + 1) % N]` is one statement for x = N - 1, which reads A[0], and one for the others, which read A[x + 1]
//! (index-set splitting: Griebl, Feautrier, Lengauer, "Index Set Splitting", IJPP 2000). Loops whose index is divided by a
//! number many times over become loops over the quotient first ([`super::loop_division`]). Quotients and remainders in values become affine too. A statement that replaces an element
//! by itself is gone, so that `if (i + j) % 2 == 0` decides which iterations run instead of what they compute.
//!
//! A loop is divided where it decides a form for at least half of its iterations, whatever the loops inside of it are. Parts that are
//! intervals become loops of their own, one after the other; others share the loop. Subscripts of
//! arrays that the program does not write have no dependences: they become affine in the largest part alone.

use super::loop_division;
use super::reassociate::reassociate;
use crate::expr::interval::Facts;
use crate::expr::piecewise::{Piece, division, pieces, truths};
use crate::expr::{Access, Affine, BinaryOp, Expr, Index, Scalar, Var};
use crate::poly::analysis::quasi_affine::{QuasiAffine, quasi_affine};
use crate::poly::schedule::{Band, Node, Row, Schedule, SequencePart, in_sequence};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::{Statement, StatementId, TensorDecl, number, ranges, write_and_computed};
use crate::runtime::{DType, Error, Result};

/// Most statements of the result. A program that would have more has its loops over remainders alone, or stays as it is. Unmeasured.
const STATEMENTS: usize = 64;

/// Most operations of isl, beyond which a program stays as it is: several times those of any program of `datasets`.
const OPERATIONS: u64 = 1 << 19;

/// Splits the statements of `scop`.
///
/// # Errors
/// Those of isl but its limit.
pub fn split(scop: &Scop) -> Result<Scop> {
    if !scop.statements.iter().any(|s| !quasi_affine(s, &scop.tensors).is_empty()) {
        return Ok(scop.clone());
    }
    let divided = loop_division::divide(scop, STATEMENTS).unwrap_or_else(|| scop.clone());
    if !loop_division::has_plain_loops(&divided) {
        return Ok(scop.clone());
    }
    for cuts in [true, false] {
        match decided(&divided, cuts) {
            Ok(out) if out.statements.len() <= STATEMENTS => return Ok(reassociate(&out)),
            // loops over remainders of each other, too many to tell apart which parts of them have instances
            Err(Error::Limit(_)) => break,
            out => out.map(|_| ())?,
        }
    }
    Ok(scop.clone())
}

/// A Scop with statements divided where that decides their forms (`cuts`), and affine where they are decided.
fn decided(scop: &Scop, cuts: bool) -> Result<Scop> {
    let out = Scop { statements: vec![], ..scop.clone() };
    let isl = Isl::with_operations(OPERATIONS);
    let mut splitter = Splitter { scop, cuts, out, origin: vec![], isl };
    let ids: Vec<StatementId> = scop.ids().collect();
    let root = splitter.node(&scop.order.root, &ids, &Part::default(), 0)?;
    let mut out = splitter.out;
    out.order = Schedule { root: root.map_or(Node::Sequence(vec![]), |(_, root)| root) };
    number(&mut out.statements);
    Ok(out)
}

/// A part of the iterations of the loops around a place.
#[derive(Clone, Default)]
struct Part {
    /// Each is ≥ 0, over the loops.
    conditions: Vec<Affine>,
    /// Subscripts without dependences stay as they are.
    rest: bool,
    /// Loops that run over a part of their values: loop, first and last value.
    intervals: Vec<(usize, i64, i64)>,
}

struct Splitter<'a> {
    scop: &'a Scop,
    /// Divides loops.
    cuts: bool,
    out: Scop,
    /// The statement that each new one is a part of, and its iterators over those of the part.
    origin: Vec<(StatementId, Vec<Affine>)>,
    isl: Isl,
}

impl Splitter<'_> {
    /// The tree of one part of the instances below `node`, inside of `depth` loops; `None` if there are none.
    fn node(&mut self, node: &Node, ids: &[StatementId], part: &Part, depth: usize) -> Result<Option<SequencePart>> {
        Ok(match node {
            Node::Leaf => self.copy(ids[0], part)?.map(|id| (vec![id], Node::Leaf)),
            Node::Sequence(children) => {
                let mut parts = vec![];
                for (ids, child) in children {
                    parts.extend(self.node(child, ids, part, depth)?);
                }
                in_sequence(parts)
            }
            Node::Band(band, child) => self.rows(&band.rows, child, ids, part, depth)?,
        })
    }

    fn rows(
        &mut self,
        rows: &[Row],
        child: &Node,
        ids: &[StatementId],
        part: &Part,
        depth: usize,
    ) -> Result<Option<SequencePart>> {
        let Some((row, inner)) = rows.split_first() else { return self.node(child, ids, part, depth) };
        if self.out.statements.len() > STATEMENTS {
            return Ok(None);
        }
        let parts = self.parts(ids, part.clone(), depth)?;
        let mut below = vec![];
        if let Some(parts) = self.intervals(&parts, (row, ids), part.conditions.len(), depth) {
            // one loop after the other
            for part in parts {
                let inside = self.rows(inner, child, ids, &part, depth + 1)?;
                below.extend(inside.map(|inside| self.around(row, inside)));
            }
            return Ok(in_sequence(below));
        }
        for part in parts {
            below.extend(self.rows(inner, child, ids, &part, depth + 1)?);
        }
        Ok(in_sequence(below).map(|inside| self.around(row, inside)))
    }

    /// A loop around new statements.
    fn around(&self, row: &Row, (ids, child): SequencePart) -> SequencePart {
        let phi = |id: &StatementId| {
            let (origin, values) = &self.origin[id.0 as usize];
            (*id, row.of(*origin).compose(values))
        };
        let row = Row { phi: ids.iter().map(phi).collect(), ..row.clone() };
        (ids, Node::Band(Band { rows: vec![row], permutable: false }, Box::new(child)))
    }

    /// Several parts in the order of their loop, where each is an interval of its values; `known` conditions are of the loops around it.
    fn intervals(
        &self,
        parts: &[Part],
        (row, ids): (&Row, &[StatementId]),
        known: usize,
        depth: usize,
    ) -> Option<Vec<Part>> {
        let v = Var(depth as u32);
        let is_bound = |c: &Affine| matches!(c.terms[..], [(w, 1 | -1)] if w == v);
        if parts.len() < 2 || !parts.iter().all(|p| p.conditions[known..].iter().all(is_bound)) {
            return None;
        }
        let extent = ids.iter().map(|&id| self.scop.statement(id).extent(v)).max()?;
        let with_interval = |p: &Part| {
            let mut facts = Facts::new(depth + 1);
            facts.set_range(v, (0, extent - 1));
            p.conditions[known..].iter().for_each(|c| facts.assume(c.clone()));
            let (first, last) = facts.range(v);
            Part { intervals: [&p.intervals[..], &[(depth, first, last)]].concat(), ..p.clone() }
        };
        let mut out: Vec<Part> = parts.iter().map(with_interval).collect();
        let sign = row.of(ids[0]).coefficient(v);
        out.sort_by_key(|p| p.intervals.last().map(|i| sign * i.1));
        Some(out)
    }

    /// The parts of the iterations of loop `depth` that decide what is not affine.
    fn parts(&self, ids: &[StatementId], part: Part, depth: usize) -> Result<Vec<Part>> {
        if !self.cuts {
            return Ok(vec![part]);
        }
        let (mut open, mut out) = (vec![part], vec![]);
        while let Some(part) = open.pop() {
            match self.cut(ids, &part, depth)? {
                Some(parts) if open.len() + out.len() < STATEMENTS => open.extend(parts),
                _ => out.push(part),
            }
        }
        Ok(out)
    }

    /// Divides a part at the first form that loop `depth` decides and the part does not.
    fn cut(&self, ids: &[StatementId], part: &Part, depth: usize) -> Result<Option<Vec<Part>>> {
        for &id in ids {
            let s = self.scop.statement(id);
            for q in quasi_affine(s, &self.scop.tensors).iter().filter(|q| q.depends || !part.rest) {
                for form in forms(q, s).into_iter().filter(|form| form.uses(Var(depth as u32))) {
                    let mut parts = vec![];
                    for (conditions, share) in sides(&form, depth, s) {
                        let conditions = [&part.conditions[..], &conditions].concat();
                        if self.any_exists(ids, &conditions)? {
                            parts.push((Part { conditions, ..part.clone() }, share));
                        }
                    }
                    if parts.len() < 2 {
                        continue;
                    }
                    let largest = parts.iter().map(|p| p.1).max();
                    let mut one = largest.filter(|_| !q.depends);
                    let with_rest = |(part, share): (Part, i64)| {
                        let is_one = one.take_if(|largest| *largest == share).is_some();
                        Part { rest: part.rest || !q.depends && !is_one, ..part }
                    };
                    return Ok(Some(parts.into_iter().map(with_rest).collect()));
                }
            }
        }
        Ok(None)
    }

    fn any_exists(&self, ids: &[StatementId], conditions: &[Affine]) -> Result<bool> {
        for &id in ids {
            if self.exists(self.scop.statement(id), conditions)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if some instance satisfies the conditions.
    fn exists(&self, s: &Statement, conditions: &[Affine]) -> Result<bool> {
        let mut p = Polyhedron::domain(s);
        conditions.iter().for_each(|c| p.inequalities.push(p.form(c, 0)));
        Ok(!self.isl.is_empty(&p)?)
    }

    /// Adds the statement of a part; `None` where it has no instances, or does nothing.
    fn copy(&mut self, id: StatementId, part: &Part) -> Result<Option<StatementId>> {
        let mut s = self.scop.statement(id).clone();
        if !self.exists(&s, &part.conditions)? {
            return Ok(None);
        }
        let implied = |c: &&Affine| c.bounds(ranges(&s.iterators)).0 >= 0;
        let more: Vec<Affine> = part.conditions.iter().filter(|c| !implied(c)).cloned().collect();
        s.domain.extend(more);
        let body = self.resolved(&s, &s.body)?;
        let mut subscripts = s.subscripts();
        for index in &mut subscripts {
            *index = self.subscript(&s, index.clone())?;
        }
        if is_identity(&subscripts, &body, &s, self.scop.tensor(s.target)) {
            return Ok(None);
        }
        (s.write, s.computed) = write_and_computed(subscripts);
        s.body = body;
        let values = restrict(&mut s, &part.intervals);
        let new = StatementId(self.out.statements.len() as u32);
        self.out.statements.push(s);
        self.origin.push((id, values));
        Ok(Some(new))
    }

    /// An expression of a statement with what its domain decides.
    fn resolved(&self, s: &Statement, e: &Expr) -> Result<Expr> {
        if let Expr::Select(c, a, b) = e
            && let Some(truth) = self.truth(s, c)?
        {
            return self.resolved(s, if truth { a } else { b });
        }
        let e = e.try_map_children(&mut |e| self.resolved(s, e))?;
        if division(&e).is_some() && e.dtype(&|_| DType::I64) == DType::I64 {
            let value = pieces(&e, &ranges(&s.iterators)).map_or(Ok(None), |pieces| self.only(s, pieces))?;
            return Ok(value.map_or(e, Expr::Index));
        }
        let Expr::Load(access) = e else { return Ok(e) };
        let index = access.index.iter().map(|i| self.subscript(s, i.clone())).collect::<Result<_>>()?;
        Ok(Expr::Load(Access { index, ..access }))
    }

    fn subscript(&self, s: &Statement, index: Index) -> Result<Index> {
        let Some(pieces) = index.value().and_then(|e| pieces(e, &ranges(&s.iterators))) else { return Ok(index) };
        Ok(self.only(s, pieces)?.map_or(index, Index::Affine))
    }

    /// The value of a condition with quotients or remainders, where it has one.
    fn truth(&self, s: &Statement, c: &Expr) -> Result<Option<bool>> {
        if !c.any(&mut |e| division(e).is_some()) {
            return Ok(None);
        }
        truths(c, &ranges(&s.iterators)).map_or(Ok(None), |pieces| self.only(s, pieces))
    }

    /// The value of all pieces that hold somewhere, if it is one.
    fn only<T: PartialEq>(&self, s: &Statement, pieces: Vec<Piece<T>>) -> Result<Option<T>> {
        let mut only = None;
        for p in pieces {
            if only.as_ref() != Some(&p.value) && self.exists(s, &p.conditions)? {
                if only.is_some() {
                    return Ok(None);
                }
                only = Some(p.value);
            }
        }
        Ok(only)
    }
}

/// Restricts iterators to intervals, and begins them at 0; returns the old iterators over the new ones.
fn restrict(s: &mut Statement, intervals: &[(usize, i64, i64)]) -> Vec<Affine> {
    let mut facts = Facts::new(s.iterators.len());
    s.vars().for_each(|v| facts.set_range(v, (0, s.extent(v) - 1)));
    for &(d, first, last) in intervals {
        let v = Var(d as u32);
        facts.set_range(v, (first, last.min(s.extent(v) - 1)));
    }
    let values: Vec<Affine> = s.vars().map(|v| Affine::var(v).offset(facts.range(v).0)).collect();
    let mut index = |v: Var| values[v.0 as usize].clone();
    for (v, it) in s.iterators.iter_mut().enumerate() {
        let (first, last) = facts.range(Var(v as u32));
        it.extent = last - first + 1;
        it.index = match &it.index {
            Some(of) => Some(of.substitute(&mut index)),
            None => Some(index(Var(v as u32))).filter(|_| first != 0),
        };
    }
    s.write = s.write.iter().map(|a| a.substitute(&mut index)).collect();
    s.computed.iter_mut().for_each(|(_, e)| *e = e.substitute(&mut index));
    s.body = s.body.substitute(&mut index);
    s.domain = s.domain.iter().map(|a| a.substitute(&mut index)).collect();
    let implied = |c: &Affine| c.bounds(ranges(&s.iterators)).0 >= 0;
    s.domain = s.domain.iter().filter(|c| !implied(c)).cloned().collect();
    values
}

/// The forms whose signs decide an expression of a statement.
fn forms(q: &QuasiAffine, s: &Statement) -> Vec<Affine> {
    let ranges = &ranges(&s.iterators);
    let conditions: Option<Vec<Vec<Affine>>> = match q.condition {
        true => truths(q.e, ranges).map(|pieces| pieces.into_iter().map(|p| p.conditions).collect()),
        false => pieces(q.e, ranges).map(|pieces| pieces.into_iter().map(|p| p.conditions).collect()),
    };
    conditions.unwrap_or_default().concat()
}

/// The conditions under which a form is ≥ 0, or is < 0, for all iterations of the loops inside of loop `depth`, and under which
/// neither; each with its number of values. None where the two decide less than half of the values.
fn sides(form: &Affine, depth: usize, s: &Statement) -> Vec<(Vec<Affine>, i64)> {
    let is_inner = |v: Var| v.0 as usize > depth;
    let (inner, outer): (Vec<_>, Vec<_>) = form.terms.iter().copied().partition(|t| is_inner(t.0));
    let (low, high) = Affine { terms: inner, constant: 0 }.bounds(ranges(&s.iterators));
    let outer = Affine { terms: outer, constant: form.constant };
    let (first, last) = outer.bounds(ranges(&s.iterators));
    let (always, never) = (outer.clone().offset(low), outer.scale(-1).offset(-high - 1));
    let count = |first: i64, last: i64| (last - first + 1).max(0);
    let (positive, negative) = (count(first.max(-low), last), count(first, last.min(-high - 1)));
    let between = count(first, last) - positive - negative;
    if 2 * between > count(first, last) {
        return vec![];
    }
    let mut out = vec![(vec![always.clone()], positive), (vec![never.clone()], negative)];
    if low < high {
        let (not_always, not_never) = (always.scale(-1).offset(-1), never.scale(-1).offset(-1));
        out.push((vec![not_always, not_never], between));
    }
    out
}

/// Returns true if a statement replaces each element by itself, or combines it with the neutral element.
fn is_identity(subscripts: &[Index], body: &Expr, s: &Statement, target: &TensorDecl) -> bool {
    match (s.reduce, body) {
        (None, Expr::Load(access)) => {
            access.buffer == s.target && access.index == *subscripts && access.guard.is_empty()
        }
        (Some(BinaryOp::Add), Expr::Const(value)) if target.dtype.is_float() => {
            *value == Scalar::of(target.dtype, -0.0)
        }
        (Some(op), Expr::Const(value)) => Scalar::neutral(op, target.dtype).is_ok_and(|neutral| neutral == *value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::reference;
    use crate::poly::samples::loops;
    use crate::runtime::Tensor;

    /// Splits, and compares what both programs compute; returns the statements and how many have subscripts that are not affine.
    fn statements(text: &str) -> (usize, usize) {
        let scop = loops(text);
        let split = split(&scop).unwrap();
        split.verify().unwrap_or_else(|e| panic!("{e}\n{text}"));
        let run = |scop: &Scop| {
            let tensor = |t: &TensorDecl| {
                let count = t.shape.iter().product::<i64>();
                Tensor::new(&t.shape, &(0..count).map(|i| i * 11 % 17 + 1).collect::<Vec<i64>>())
            };
            let mut tensors: Vec<Tensor> = scop.tensors.iter().map(tensor).collect();
            reference::run(scop, &scop.order, &mut tensors);
            tensors
        };
        assert!(run(&scop) == run(&split), "{text}\n{split}");
        let open = |s: &&Statement| !quasi_affine(s, &split.tensors).is_empty();
        (split.statements.len(), split.statements.iter().filter(open).count())
    }

    #[test]
    fn subscripts_become_affine() {
        let of = |body: &str| statements(&format!("loop p(N = 13) {{ inout i64 a[N], b[N], c[2][N] {body} }}"));
        assert_eq!(of("for i in 0..N a[i] = a[(i + 1) % N]"), (2, 0));
        assert_eq!(of("for i in 0..N a[i] = a[(i - 1) % N] + a[(i + 1) % N]"), (3, 0));
        assert_eq!(of("for i in 0..N a[max(i - 2, 0)] += b[i]"), (2, 0));
        assert_eq!(of("for t in 0..5 for i in 0..N c[(t + 1) % 2][i] = c[t % 2][i] + t"), (2, 0));
        assert_eq!(of("for i in 0..N if i % 3 == 1 a[i] = 2"), (1, 0));
        assert_eq!(of("for i in 0..N if i % 3 == 1 a[i] = 2 else a[i] = 3"), (3, 0));
        // a loop over the remainders
        assert_eq!(of("for i in 0..80 a[i % 5] += i"), (1, 0));
        // all statements of the loop are divided
        assert_eq!(of("for i in 0..N { b[i] = 1 a[i / 2] += 1 }"), (4, 0));
        // 7 · 5 + 3 · 5 in 16 are more values than are told apart
        assert_eq!(of("for i in 0..6 for j in 0..6 a[(7 * i + 3 * j) % 12] += 1"), (1, 1));
    }

    #[test]
    fn what_nothing_writes_becomes_affine_in_the_largest_part_alone() {
        let of = |body: &str| statements(&format!("loop p(N = 13) {{ in i64 a[N], d[N][N] out i64 b[N][N] {body} }}"));
        assert_eq!(of("for i in 0..N for j in 0..N b[i][j] = d[max(i - 1, 0)][min(j + 1, N - 1)]"), (3, 1));
        let window = "for k in 0..3 b[i][j] += a[min(max(i + k - 1, 0), N - 1)]";
        assert_eq!(of(&format!("for i in 0..N for j in 0..N {{ b[i][j] = 0 {window} }}")), (6, 2));
        // many values of a quotient, without dependences
        assert_eq!(of("for i in 0..N for j in 0..N b[i][j] = d[i / 2][j]"), (1, 1));
        // those of a row of elements become affine
        assert_eq!(of("for i in 0..N for j in 0..N b[i][j] = d[i / 2][j / 2]"), (2, 2));
        assert_eq!(of("for i in 0..N for j in 0..N b[i][j] = d[i][j / 2] * (j % 2)"), (2, 0));
        assert_eq!(of("for i in 0..N for j in 0..N b[i][j] = d[i][(j + 5) / 2] + d[(j + i) / 3][j]"), (2, 2));
    }

    #[test]
    fn quotients_and_remainders_of_indices_in_values_become_affine() {
        let text = "loop p(N = 24) { in i64 a[N] out i64 b[N] for i in 0..N b[i] = a[i / 3] + i % 3 * (i / 3) }";
        let split = split(&loops(text)).unwrap();
        let open = split.statements.iter().any(|s| s.body.any(&mut |e| division(e).is_some()));
        assert!(split.statements.len() == 3 && !open, "{split}");
    }

    #[test]
    fn programs_of_too_many_parts_have_fewer_or_none() {
        // 4 statements in 2 copies, and 9 parts of each
        let statement = |a: &str| {
            format!(
                "{a}[(t + 1) % 2][i][j] = {a}[t % 2][(i + 1) % N][(j + 1) % N] + {a}[t % 2][(i - 1) % N][(j - 1) % N]"
            )
        };
        let body: Vec<String> = ["a", "b", "c", "d"].map(statement).to_vec();
        let arrays = "inout i64 a[2][N][N], b[2][N][N], c[2][N][N], d[2][N][N]";
        let text = |body: &[String]| {
            format!("loop p(N = 4) {{ {arrays} for t in 0..7 for i in 0..N for j in 0..N {{ {} }} }}", body.join("  "))
        };
        assert_eq!(statements(&text(&body)), (8, 8));
        assert_eq!(statements(&text(&body[..3])), (54, 0));
        // 128 copies
        let loops: String = ["i", "j", "k", "l", "m", "n", "o"].map(|i| format!("for {i} in 0..3 ")).concat();
        let text =
            format!("loop p(N = 3) {{ inout i64 a[N] {loops} if (i + j + k + l + m + n + o) % 2 == 0 a[i] += j }}");
        assert_eq!(statements(&text), (1, 1));
    }

    #[test]
    fn random_subscripts_keep_their_values() {
        let mut state = 12345u64;
        let mut pick = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let (mut split, mut affine) = (0, 0);
        for _ in 0..150 {
            let form = |pick: &mut dyn FnMut(usize) -> usize| {
                let (c, d, k) = (pick(3), pick(3), pick(9));
                format!("{}{c} * i + {d} * j + {k}", if pick(5) == 0 { "40 - " } else { "" })
            };
            let mut subscript = || {
                let of = form(&mut pick);
                match pick(7) {
                    0 => "i".to_string(),
                    1 => format!("({of}) % {}", pick(6) + 1),
                    2 => format!("({of}) % 9"),
                    3 => format!("min(max({of} - 9, 0), 8)"),
                    4 => format!("min(bit_and({of}, 7) + {}, 8)", pick(2)),
                    5 => format!("min(abs({of} - 6) / {}, 8)", pick(4) + 1),
                    _ => format!("min(shr(abs({of}), {}), 8)", pick(3)),
                }
            };
            let (to, from, other) = (subscript(), subscript(), subscript());
            let condition = match pick(3) {
                0 => format!("if ({}) % {} == {} ", form(&mut pick), pick(4) + 1, pick(3)),
                1 => format!("if ({}) % 2 == t || i < {} ", form(&mut pick), pick(5)),
                _ => String::new(),
            };
            let lower = ["0", "i", "2"][pick(3)];
            let text = format!(
                "loop p(N = 8) {{ inout i64 a[9][9], b[9] in i64 c[9]
                for t in 0..2 for i in 0..N {{ b[i] += 1 for j in {lower}..N {condition}a[{to}][j] += 3 * a[{from}][i] + c[{other}] }} }}"
            );
            let (statements, open) = statements(&text);
            split += usize::from(statements > 2);
            affine += usize::from(open == 0);
        }
        assert!(split > 90 && affine > 60, "{split} split, {affine} affine");
    }
}
