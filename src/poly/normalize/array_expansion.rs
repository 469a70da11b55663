//! Array expansion (privatization): copies of temporaries, so that loops that only share their memory may run in any order.
//!
//! In: a Scop in its original order. Out: the same values, with scalar temporaries (arrays where all domains are boxes)
//! that have a dimension for each loop around all of their uses in which every iteration writes what it reads, and a
//! name for each part of the program that does so by itself (Feautrier, "Array Expansion", ICS 1988, for loops as a
//! whole). `t = 0; for k: t += …; C[i][j] = t` in loops over i and j becomes `t[i][j] = 0 …`, and the loops over i and
//! j carry nothing any more.
//!
//! A read is covered by writes that name its element: the iterators of each follow from the common loops and from its
//! subscripts, it runs before, and one of them writes it whatever the element is. Where that does not show, the temporary stays as
//! it is.

use crate::expr::{Access, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::poly::analysis::access::is_subscript;
use crate::poly::schedule::{Node, Row, child_of};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, minus};
use crate::poly::statement::{Role, StatementId, TensorDecl};
use crate::runtime::Result;

/// Bytes up to which a temporary grows.
const MAX_BYTES: i64 = 1 << 26;

/// Parts of the reads of an element that are looked at one by one, at most. Unmeasured.
const MAX_PARTS: u32 = 500;

/// Gives temporaries the dimensions that their loops leave them free to have.
pub fn expand(scop: &Scop) -> Result<Scop> {
    let mut out = scop.clone();
    let isl = Isl::default();
    let boxes = scop.statements.iter().all(|s| s.domain.is_empty());
    for (t, decl) in
        scop.tensors.iter().enumerate().filter(|(_, t)| t.role == Role::Temporary && (is_scalar(t) || boxes))
    {
        let tensor = BufferId(t as u32);
        let regions = Expander { scop, isl: &isl, tensor }.regions()?;
        for (k, region) in regions.iter().enumerate() {
            // up to the last one that needs a dimension: lowering contracts dimensions in the order of the loops
            let added = region.rows.iter().rposition(|row| !is_subscript(scop, tensor, &region.statements, row));
            let rows = &region.rows[..added.map_or(0, |last| last + 1)];
            let mut shape: Vec<i64> = vec![];
            let bytes = |shape: &[i64]| shape.iter().chain(&decl.shape).product::<i64>() * decl.dtype.bytes() as i64;
            for row in rows {
                let (first, v) = (row.phi[0].0, iterator(row, row.phi[0].0));
                let extent = v.map_or(1, |v| scop.statement(first).extent(v));
                if bytes(&shape).saturating_mul(extent) > MAX_BYTES {
                    break;
                }
                shape.push(extent);
            }
            let rows = &rows[..shape.len()];
            let target = if k == 0 { tensor } else { BufferId(out.tensors.len() as u32) };
            let name = if k == 0 { decl.name.clone() } else { format!("{}_{}", decl.name, k + 1) };
            let expanded = TensorDecl {
                name,
                shape: [shape, decl.shape.clone()].concat(),
                literals: None,
                panel: None,
                ..decl.clone()
            };
            if k == 0 {
                out.tensors[t] = expanded
            } else {
                out.tensors.push(expanded)
            }
            for &id in &region.statements {
                let index: Vec<Affine> =
                    rows.iter().map(|r| Affine::var(iterator(r, id).expect("one iterator"))).collect();
                let s = &mut out.statements[id.0 as usize];
                if s.target == tensor {
                    s.target = target;
                    s.write.splice(0..0, index.iter().cloned());
                    s.computed.iter_mut().for_each(|(d, _)| *d += index.len());
                }
                s.rewrite_reads(tensor, &mut |mut a| {
                    a.buffer = target;
                    a.index.splice(0..0, index.iter().cloned().map(Index::Affine));
                    Expr::Load(a)
                });
            }
        }
    }
    Ok(out)
}

/// Copies of arrays move more bytes than their loops gain, but where all domains are boxes: there lowering leaves of a copy
/// what one iteration of the loops touches.
fn is_scalar(t: &TensorDecl) -> bool {
    t.shape.iter().all(|&n| n == 1)
}

/// A part of the program that writes all elements of a temporary that it reads, in each iteration of `rows`.
struct Region {
    statements: Vec<StatementId>,
    rows: Vec<Row>,
}

struct Expander<'a> {
    scop: &'a Scop,
    isl: &'a Isl,
    tensor: BufferId,
}

/// The iterator that a row is for a statement.
fn iterator(row: &Row, id: StatementId) -> Option<Var> {
    match row.of(id).terms[..] {
        [(v, 1 | -1)] => Some(v),
        _ => None,
    }
}

impl Expander<'_> {
    fn uses(&self, id: StatementId) -> bool {
        self.scop.statement(id).uses(self.tensor)
    }

    /// The regions of all statements that use the temporary.
    fn regions(&self) -> Result<Vec<Region>> {
        let statements: Vec<StatementId> = self.scop.ids().filter(|&id| self.uses(id)).collect();
        let mut out = vec![];
        if !statements.is_empty() && !self.closed(&self.scop.order.root, &statements, &mut vec![], &mut out)? {
            out.push(Region { statements, rows: vec![] });
        }
        Ok(out)
    }

    /// Adds the regions of `users`, which are below `node` in the loops `rows`, when there are such that have as many
    /// loops as possible around them.
    fn closed(&self, node: &Node, users: &[StatementId], rows: &mut Vec<Row>, out: &mut Vec<Region>) -> Result<bool> {
        match node {
            Node::Leaf => Ok(false),
            Node::Sequence(children) => {
                let (mut expanded, mut open) = (vec![], vec![vec![]]);
                for (ids, child) in children {
                    let inside: Vec<StatementId> = users.iter().copied().filter(|id| ids.contains(id)).collect();
                    if inside.is_empty() {
                        continue;
                    }
                    match self.closed(child, &inside, rows, &mut expanded)? {
                        true => open.push(vec![]),
                        false => open.last_mut().expect("one").extend(inside),
                    }
                }
                // what uses it between two regions is one more, where it reads nothing that came before
                for between in open.into_iter().filter(|between| !between.is_empty()) {
                    if expanded.is_empty() || !self.covered(node, &between, rows)? {
                        return Ok(false);
                    }
                    expanded.push(Region { statements: between, rows: rows.clone() });
                }
                out.extend(expanded);
                Ok(true)
            }
            Node::Band(band, child) => {
                let single = |r: &Row| {
                    let first = r.of(users[0]);
                    users.iter().all(|&id| {
                        let phi = r.of(id);
                        let same = |f: &Affine| (f.constant, f.terms.first().map(|t| t.1));
                        iterator(r, id).is_some() && same(phi) == same(first)
                    })
                };
                if !band.rows.iter().all(single) {
                    return Ok(false);
                }
                let depth = rows.len();
                rows.extend(band.rows.iter().cloned());
                let mut closed = self.closed(child, users, rows, out)?;
                if !closed && self.covered(child, users, rows)? {
                    out.push(Region { statements: users.to_vec(), rows: rows.clone() });
                    closed = true;
                }
                rows.truncate(depth);
                Ok(closed)
            }
        }
    }

    /// Returns true if every read below `node` is covered by a write below it in the same iteration of `rows`.
    fn covered(&self, node: &Node, users: &[StatementId], rows: &[Row]) -> Result<bool> {
        for &reader in users {
            let s = self.scop.statement(reader);
            let mut reads: Vec<Access> = vec![];
            if s.target == self.tensor && s.reduce.is_some() {
                let index = s.subscripts();
                reads.push(Access { buffer: self.tensor, index, guard: vec![], otherwise: None });
            }
            s.visit_accesses(&mut |a| {
                if a.buffer == self.tensor {
                    reads.push(a.clone());
                }
            });
            for read in reads {
                let covers = users.iter().filter_map(|&writer| self.cover(node, rows, writer, reader, &read));
                let mut reading = Polyhedron::domain(s);
                for g in &read.guard {
                    reading.inequalities.push(reading.form(g, 0));
                }
                if !self.within(&reading, &covers.collect::<Vec<_>>(), &mut { MAX_PARTS })? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The conditions (`≥ 0`), over the iterators of `reader`, under which an instance of `writer` in the same iteration of `rows`
    /// writes what `reader` reads, before it does; `None` where no such instance is known.
    fn cover(
        &self,
        node: &Node,
        rows: &[Row],
        writer: StatementId,
        reader: StatementId,
        read: &Access,
    ) -> Option<Vec<Affine>> {
        let w = self.scop.statement(writer);
        if w.target != self.tensor || w.reduce.is_some() || w.is_scatter() {
            return None;
        }
        // The iterators of the writer over those of the reader.
        let mut value: Vec<Option<Affine>> = vec![None; w.iterators.len()];
        for row in rows {
            if let (Some(a), Some(b)) = (iterator(row, writer), iterator(row, reader)) {
                value[a.0 as usize] = Some(Affine::var(b));
            }
        }
        // digits come last: another subscript may be an iterator itself
        for (subscript, index) in w.write.iter().zip(&read.index) {
            let index = index.affine()?;
            if let [(v, 1)] = subscript.terms[..]
                && value[v.0 as usize].is_none()
            {
                value[v.0 as usize] = Some(index.clone().offset(-subscript.constant));
            }
        }
        for (subscript, index) in w.write.iter().zip(&read.index) {
            add_digits(subscript, index.affine()?, &mut value);
        }
        let value = value.into_iter().collect::<Option<Vec<Affine>>>()?;
        if !runs_before(node, writer, reader, &value) {
            return None;
        }
        let mut conditions: Vec<Affine> = w.domain.iter().map(|c| c.compose(&value)).collect();
        for (v, it) in value.iter().zip(&w.iterators) {
            conditions.extend([v.clone(), v.scale(-1).offset(it.extent - 1)]);
        }
        for (subscript, index) in w.write.iter().zip(&read.index) {
            let apart = subscript.compose(&value).add_scaled(index.affine()?, -1);
            conditions.extend([apart.scale(-1), apart]);
        }
        conditions.retain(|c| !c.is_constant() || c.constant < 0);
        Some(conditions)
    }

    /// Returns true if all conditions of one of `covers` hold at every point of a set; false where it takes more than so many parts
    /// to show that.
    fn within(&self, set: &Polyhedron, covers: &[Vec<Affine>], parts: &mut u32) -> Result<bool> {
        if self.isl.is_empty(set)? {
            return Ok(true);
        }
        let Some((first, others)) = covers.split_first().filter(|_| *parts > 0) else { return Ok(false) };
        *parts -= 1;
        let mut inside = set.clone();
        for condition in first {
            let form = set.form(condition, 0);
            let mut outside = inside.clone();
            outside.inequalities.push(minus(-1, &form));
            if !self.within(&outside, others, parts)? {
                return Ok(false);
            }
            inside.inequalities.push(form);
        }
        Ok(true)
    }
}

/// Adds the values of the iterators that a subscript of several ones leaves open, as in `2 * a + b` = `index`: its digits in mixed radix, where the iterators have so many
/// values. Whether they have is for the conditions of the cover to say.
fn add_digits(subscript: &Affine, index: &Affine, value: &mut [Option<Affine>]) {
    let (mut open, known): (Vec<(Var, i64)>, Vec<(Var, i64)>) =
        subscript.terms.iter().partition(|(v, _)| value[v.0 as usize].is_none());
    if open.iter().any(|&(_, c)| c < 1) {
        return;
    }
    let known = Affine { terms: known, constant: subscript.constant };
    let mut rest = index.add_scaled(&known.substitute(|v| value[v.0 as usize].clone().unwrap_or_default()), -1);
    open.sort_by_key(|&(_, c)| -c);
    for (v, c) in open {
        let terms = rest.terms.iter().filter(|(_, k)| k % c == 0).map(|&(u, k)| (u, k / c)).collect();
        let digit = Affine { terms, constant: rest.constant.div_euclid(c) };
        rest = rest.add_scaled(&digit, -c);
        value[v.0 as usize] = Some(digit);
    }
}

/// Returns true if the instance of `writer` with the iterators `value`, over those of `reader`, runs before that of `reader`,
/// below `node`.
pub fn runs_before(mut node: &Node, writer: StatementId, reader: StatementId, value: &[Affine]) -> bool {
    loop {
        match node {
            Node::Leaf => return false,
            Node::Sequence(children) => {
                let (a, b) = (child_of(children, writer), child_of(children, reader));
                if a != b {
                    return a < b;
                }
                let Some(k) = a else { return false };
                node = &children[k].1;
            }
            Node::Band(band, child) => {
                for row in &band.rows {
                    let later = row.of(reader).add_scaled(&row.of(writer).compose(value), -1);
                    if !later.is_constant() || later.constant < 0 {
                        return false;
                    }
                    if later.constant > 0 {
                        return true;
                    }
                }
                node = child;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;
    use crate::language::lowered::Computation;
    use crate::poly::analysis::dependence;
    use crate::poly::ilp;
    use std::collections::BTreeMap;

    fn expanded(text: &str) -> Scop {
        let file = language::parse("test", text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        let Computation::Loop(scop) = lowered.computation else { panic!("a loop program") };
        let out = expand(&scop).unwrap();
        out.verify().unwrap();
        out
    }

    fn shape<'a>(scop: &'a Scop, name: &str) -> &'a [i64] {
        &scop.tensors.iter().find(|t| t.name == name).unwrap().shape
    }

    #[test]
    fn a_sum_in_a_scalar_leaves_its_loops_parallel() {
        let scop = expanded(
            "loop p(N = 12) { f64 A[N][N], C[N][N]\n temp f64 t
               for i in 0..N for j in 0..N { t = 0.0  for k in 0..i t += A[i][k] * A[k][j]  C[i][j] = C[i][j] + t } }",
        );
        assert_eq!(shape(&scop, "t"), [12, 12]);
        let (schedule, _) = ilp::schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
        let mut parallel = 0;
        schedule.for_each_band(&mut |band| parallel += band.rows.iter().filter(|r| r.coincident).count());
        assert!(parallel >= 2, "{}", schedule.print(&scop));
    }

    #[test]
    fn each_part_has_a_copy_and_carried_values_stay() {
        let scop = expanded(
            "loop p(N = 9) { f64 A[N][N], B[N][N], x[N]\n temp f64 t, u
               for i in 0..N { t = 0.0  for j in 0..N { A[i][j] = A[i][j] + t  t = A[i][j] } }
               for j in 0..N { t = 1.0  for i in 0..N { B[i][j] = B[i][j] * t  t = B[i][j] } }
               u = 0.0
               for i in 0..N { x[i] = x[i] + u  u = x[i] } }",
        );
        assert_eq!((shape(&scop, "t"), shape(&scop, "t_2"), shape(&scop, "u")), (&[9][..], &[9][..], &[][..]));
    }

    #[test]
    fn a_scalar_that_is_used_again_between_loops_has_another_copy_there() {
        let text = |first: &str| {
            format!(
                "loop p(N = 9) {{ f64 A[N][N], x[N], y[1]\n temp f64 t
                   for i in 0..N {{ t = 0.0  for j in 0..N t += A[i][j]  x[i] = t }}
                   {first} for i in 0..N t += x[i]
                   y[0] = t }}"
            )
        };
        let scop = expanded(&text("t = 1.0"));
        assert_eq!((shape(&scop, "t"), shape(&scop, "t_2")), (&[9][..], &[][..]));
        // the last value of the first loop goes on
        assert!(shape(&expanded(&text("")), "t").is_empty());
        let after = "loop p(N = 9) { f64 x[N], y[1]\n temp f64 t
                       t = 0.0  for i in 0..N { t = 1.0 + f64(i)  x[i] = t }  y[0] = t }";
        assert!(shape(&expanded(after), "t").is_empty());
    }

    #[test]
    fn loops_that_are_subscripts_add_no_dimension() {
        let scop = expanded(
            "loop p(N = 9) { f64 A[N][N][4], B[N][N][4]\n temp f64 row[4]
               for i in 0..N for j in 0..N for c in 0..4 { row[c] = A[i][j][c] * 2.0  B[i][j][c] = row[c] + 1.0 } }",
        );
        assert_eq!(shape(&scop, "row"), [9, 9, 4]);
        // an element for each t, in the order of the loops
        let scop = expanded(
            "loop p(N = 9) { f64 A[N][N][4], B[N]\n temp f64 x[N]
               for i in 0..N for t in 0..4 { x[i] = A[i][0][t] * 2.0  B[i] = B[i] + x[i] } }",
        );
        assert_eq!(shape(&scop, "x"), [9, 4, 9]);
        // one of the accesses is to an element that all iterations share
        let scop = expanded(
            "loop p(N = 9) { f64 A[N][N], B[N][N]\n temp f64 x[N]
               for i in 0..N for j in 0..N { x[j] = A[i][j]  x[0] = A[i][0] * 2.0  B[i][j] = x[0] + 1.0 } }",
        );
        assert_eq!(shape(&scop, "x"), [9, 9, 9]);
    }

    #[test]
    fn elements_that_statements_of_their_own_write_are_expanded() {
        let scop = |last: &str| {
            expanded(&format!(
                "loop p(N = 9) {{ f64 A[N][N], B[N]\n temp f64 x[3]
                   for i in 0..N {{ x[0] = A[i][0]  x[1] = A[i][1]  {last}  for q in 0..3 B[i] = B[i] + x[q] * 2.0 }} }}"
            ))
        };
        assert_eq!(shape(&scop("x[2] = A[i][2]"), "x"), [9, 3]);
        assert_eq!(shape(&scop("for q in 1..3 x[q] = A[i][q]"), "x"), [9, 3]);
        // one of them in some iterations alone, later iterations read what it wrote
        assert_eq!(shape(&scop("if i < 1 x[2] = A[i][2]"), "x"), [3]);
    }

    #[test]
    fn elements_at_sums_of_indices_are_expanded() {
        let scop = |written: &str, read: &str| {
            expanded(&format!(
                "loop p(N = 9) {{ f64 A[N][12], B[N]\n temp f64 x[12]
                   for i in 0..N {{ {written}  {read} }} }}"
            ))
        };
        let all = "for a in 0..3 for b in 0..4 x[4 * a + b] = A[i][4 * a + b]";
        for read in ["B[i] = x[0] + x[6] * x[11]", "for c in 0..2 for d in 0..4 B[i] += x[4 * c + d + 4]"] {
            assert_eq!(shape(&scop(all, read), "x"), [9, 12], "{read}");
        }
        assert_eq!(
            shape(
                &scop("for a in 0..2 for c in 0..3 for b in 0..2 x[6 * a + b + 2 * c] = A[i][a]", "B[i] = x[9]"),
                "x"
            ),
            [9, 12]
        );
        // elements between those that are written
        let some = "for a in 0..3 for b in 0..3 x[4 * a + b] = A[i][4 * a + b]";
        assert_eq!(shape(&scop(some, "B[i] = x[0] + x[6]"), "x"), [9, 12]);
    }

    #[test]
    fn what_is_not_always_written_and_arrays_stay() {
        let scop = expanded(
            "loop p(N = 9) { f64 A[N][N]\n temp f64 t, row[N]
               t = 0.0
               for i in 0..N { if i < 5 t = A[i][0]  A[i][1] = t + 1.0 }
               for i in 0..N { for j in 0..N row[j] = A[i][j]  for j in 0..N A[i][j] = row[N-1-j] + 1.0 } }",
        );
        assert_eq!((shape(&scop, "t"), shape(&scop, "row")), (&[][..], &[9][..]));
    }
}
