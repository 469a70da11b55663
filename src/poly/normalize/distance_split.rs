//! Splitting at distances: divides a loop where the recurrence of a loop in it becomes as long as a vector.
//!
//! In: a Scop in its original order. Out: the same instances in the same order, where a loop around a recurrence whose distance grows with
//! the iterations of that loop has become two (index-set splitting: Griebl, Feautrier, Lengauer, "Index Set Splitting", IJPP 2000):
//! `for k: for j: A[j] min= A[j - 3*k - 1]` is `for k in 0..5`, where an element waits for one of the same vector, and `for k in 5..K`, where
//! vectors of 16 elements wait for whole ones. Everything in the loop is divided with it.
//!
//! A loop is divided where more than half of its iterations are on the side of the vectors.

use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Index, Var};
use crate::poly::schedule::{Band, Node, Row, Schedule, SequencePart, TimeDimension, in_sequence};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::{Statement, StatementId, number};
use crate::runtime::Result;

/// Bytes of the longest vectors.
const VECTOR_BYTES: i64 = 64;

/// Divides the loops of `scop`.
///
/// # Errors
/// Those of isl.
pub fn split(scop: &Scop) -> Result<Scop> {
    let cuts: Vec<Cut> = scop.ids().filter_map(|id| cut(scop, id)).collect();
    if cuts.is_empty() {
        return Ok(scop.clone());
    }
    let out = Scop { statements: vec![], ..scop.clone() };
    let mut splitter = Splitter { scop, cuts, out, origin: vec![], isl: Isl::default() };
    let root = splitter.node(&scop.order.root, &scop.ids().collect::<Vec<_>>(), None)?;
    let mut out = splitter.out;
    out.order = Schedule { root: root.map_or(Node::Leaf, |part| part.1) };
    number(&mut out.statements);
    Ok(out)
}

/// A loop, and the first value of its φ on the second side.
struct Cut {
    row: Row,
    time: i64,
}

/// The loop that is to be divided for the sake of a statement.
fn cut(scop: &Scop, id: StatementId) -> Option<Cut> {
    let s = scop.statement(id);
    let rows = scop.order.path(id).into_iter().filter_map(|step| match step {
        TimeDimension::Row(row) => Some(row),
        TimeDimension::Position(_) => None,
    });
    let rows: Vec<&Row> = rows.collect();
    let (innermost, around) = rows.split_last()?;
    let [(v, direction @ (1 | -1))] = innermost.of(id).terms[..] else { return None };
    let lanes = VECTOR_BYTES / scop.tensor(s.target).dtype.bytes() as i64;
    let mut cuts = vec![];
    s.body.visit_accesses(&mut |read| {
        let form = (read.buffer == s.target && !s.is_scatter()).then(|| distance(s, &read.index, v)).flatten();
        let Some(form) = form.map(|form| form.scale(direction)) else { return };
        let [(u, slope)] = form.terms[..] else { return };
        let row = around.iter().find(|row| matches!(row.of(id).terms[..], [(w, 1)] if w == u) && row.tile == 1);
        let (Some(row), extent) = (row, s.extent(u)) else { return };
        // the first iteration of the second side, and how many have vectors
        let (first, vectors) = match slope {
            1.. => {
                let first = ceil_div(lanes - form.constant, slope);
                (first, extent - first)
            }
            _ => {
                let first = (form.constant - lanes).div_euclid(-slope) + 1;
                (first, first)
            }
        };
        if 0 < first && first < extent && 2 * vectors > extent {
            cuts.push(Cut { row: (*row).clone(), time: first + row.of(id).constant });
        }
    });
    cuts.into_iter().next()
}

/// By how much the subscript of the iterator `v` of a write is above that of a read, where all other subscripts are the same.
fn distance(s: &Statement, read: &[Index], v: Var) -> Option<Affine> {
    let mut distance = None;
    for (write, read) in s.write.iter().zip(read) {
        let between = write.add_scaled(read.affine()?, -1);
        match write.coefficient(v) {
            sign @ (1 | -1) if distance.is_none() && !between.uses(v) => distance = Some(between.scale(sign)),
            0 if between == Affine::constant(0) => {}
            _ => return None,
        }
    }
    distance
}

/// Values of φ of a row, from the first one up to the second one.
type Side<'a> = (&'a Row, Option<i64>, Option<i64>);

struct Splitter<'a> {
    scop: &'a Scop,
    cuts: Vec<Cut>,
    out: Scop,
    /// The original statement of each new one.
    origin: Vec<StatementId>,
    isl: Isl,
}

impl Splitter<'_> {
    /// The tree over the new statements: those of `ids` that have instances on this side of a loop.
    fn node(&mut self, node: &Node, ids: &[StatementId], side: Option<Side>) -> Result<Option<SequencePart>> {
        match node {
            Node::Sequence(children) => {
                let mut parts = vec![];
                for (ids, child) in children {
                    parts.extend(self.node(child, ids, side)?);
                }
                Ok(in_sequence(parts))
            }
            Node::Band(band, child) => {
                let is_cut = |row: &Row| self.cuts.iter().any(|c| c.row == *row);
                let Some(place) = band.rows.iter().position(is_cut).filter(|_| side.is_none()) else {
                    let below = self.node(child, ids, side)?;
                    return Ok(below.map(|below| self.around(band, &band.rows, below)));
                };
                let row = &band.rows[place];
                let mut times: Vec<i64> = self.cuts.iter().filter(|c| c.row == *row).map(|c| c.time).collect();
                times.sort_unstable();
                times.dedup();
                let ends = || times.iter().copied().map(Some);
                let mut parts = vec![];
                for (from, to) in std::iter::once(None).chain(ends()).zip(ends().chain([None])) {
                    let below = self.node(child, ids, Some((row, from, to)))?;
                    parts.extend(below.map(|below| self.around(band, &band.rows[place..], below)));
                }
                Ok(in_sequence(parts).map(|part| self.around(band, &band.rows[..place], part)))
            }
            Node::Leaf => {
                let Some(id) = ids.first() else { return Ok(None) };
                let new = self.copy(*id, side)?;
                Ok(new.map(|new| (vec![new], Node::Leaf)))
            }
        }
    }

    /// The statement on one side, unless no instance of it is there.
    fn copy(&mut self, id: StatementId, side: Option<Side>) -> Result<Option<StatementId>> {
        let mut s = self.scop.statement(id).clone();
        if let Some((row, from, to)) = side {
            let phi = row.of(id);
            s.domain.extend(from.map(|from| phi.clone().offset(-from)));
            s.domain.extend(to.map(|to| phi.scale(-1).offset(to - 1)));
            if self.isl.is_empty(&Polyhedron::domain(&s))? {
                return Ok(None);
            }
        }
        let new = StatementId(self.out.statements.len() as u32);
        self.out.statements.push(s);
        self.origin.push(id);
        Ok(Some(new))
    }

    /// The loops of these rows around a part of the new tree.
    fn around(&self, band: &Band, rows: &[Row], (ids, node): SequencePart) -> SequencePart {
        if rows.is_empty() {
            return (ids, node);
        }
        let phi = |row: &Row| ids.iter().map(|id| (*id, row.of(self.origin[id.0 as usize]).clone())).collect();
        let rows = rows.iter().map(|row| Row { phi: phi(row), ..row.clone() }).collect();
        (ids, Node::Band(Band { rows, ..band.clone() }, Box::new(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::reference;
    use crate::poly::samples::loops;
    use crate::runtime::Tensor;

    #[test]
    fn recurrences_become_as_long_as_a_vector() {
        let data: Vec<i32> = (0..90).map(|i| i * 11 % 17 + 1).collect();
        for (statements, first) in [
            ("for k in 0..20 for w in 3*k+1..N { a[w] = (a[w] + a[w-3*k-1]) % 97  b[w] min= b[w-3*k-1] + 1 }", 5),
            ("for k in 0..20 for w in 0..N-40 step -1 a[w] min= a[w+2*k] + 1", 8),
            ("for k in 0..20 for w in 50..N a[w] min= a[w-50+2*k] + 1", 18),
        ] {
            let scop = loops(&format!("loop p(N = 90) {{ i32 a[N]\ni32 b[N]\n{statements} }}"));
            let divided = split(&scop).unwrap();
            divided.verify().unwrap();
            assert_eq!(divided.statements.len(), 2 * scop.statements.len(), "{statements}");
            let ends: Vec<&Affine> = divided.statements.iter().filter_map(|s| s.domain.last()).collect();
            assert_eq!(ends[0].constant, first - 1, "{statements}: {divided}");
            let given = || vec![Tensor::new(&[90], &data), Tensor::new(&[90], &data)];
            let (mut expected, mut got) = (given(), given());
            reference::run(&scop, &scop.order, &mut expected);
            reference::run(&divided, &divided.order, &mut got);
            assert!(got == expected && got[0].data != given()[0].data, "{statements}");
        }
    }

    #[test]
    fn loops_with_few_vectors_stay_whole() {
        for statement in [
            // five iterations of ten, and all
            "for k in 0..10 for w in 3*k+1..N a[w] += a[w-3*k-1]",
            "for k in 6..30 for w in 3*k+1..N a[w] += a[w-3*k-1]",
            // the distance is that of another loop, or of both
            "for k in 1..9 for w in 20..N a[w] += a[w-k]",
            "for w in 40..N for k in 0..20 a[w] += a[w-2*k]",
        ] {
            let scop = loops(&format!("loop p(N = 90) {{ i32 a[N]\n{statement} }}"));
            assert_eq!(split(&scop).unwrap(), scop, "{statement}");
        }
    }
}
