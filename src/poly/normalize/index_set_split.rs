//! Index-set splitting: divides a loop at the iterations that touch an element of its target that it also reads.
//!
//! In: a Scop in its original order. Out: the same instances in the same order, where a statement that is alone in a
//! loop and reads its own target has become one statement for the iterations before those that touch the element that
//! is read, one for these, and one for those after (Griebl, Feautrier, Lengauer, "Index Set Splitting", IJPP 2000, with
//! the hyperplanes where a read meets the write). `for j: A[i][j] min= A[i][k] + A[k][j]` carries the value of A[i][k]
//! from j = k to all j > k; each of the three parts carries nothing. Before it, loops are divided where recurrences become as long as a
//! vector ([`distance_split`]).

use crate::expr::Affine;
use crate::expr::Index;
use crate::poly::normalize::distance_split;
use crate::poly::schedule::{Band, Node, Row, Schedule, SequencePart};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, plus};
use crate::poly::statement::{Statement, StatementId};
use crate::runtime::Result;

/// Largest number of pieces that one statement becomes. Unmeasured.
const MAX_PIECES: usize = 9;

/// Divides the loops of `scop`.
pub fn split(scop: &Scop) -> Result<Scop> {
    let scop = &distance_split::split(scop)?;
    let out = Scop { statements: vec![], ..scop.clone() };
    let mut s = Splitter { out, origin: vec![], isl: Isl::default() };
    let (_, root) = s.node(scop, &scop.order.root, &scop.ids().collect::<Vec<_>>())?;
    s.out.order = Schedule { root };
    Ok(s.out)
}

struct Splitter {
    out: Scop,
    /// The original statement of each new one.
    origin: Vec<StatementId>,
    isl: Isl,
}

impl Splitter {
    /// The tree over the new statements. Statements below `node` that are not divided keep their order.
    fn node(&mut self, scop: &Scop, node: &Node, ids: &[StatementId]) -> Result<SequencePart> {
        if let &[id] = ids {
            return self.alone(scop.statement(id), id, node);
        }
        Ok(match node {
            Node::Sequence(children) => {
                let mut parts = vec![];
                for (ids, child) in children {
                    parts.push(self.node(scop, child, ids)?);
                }
                (parts.iter().flat_map(|p| p.0.clone()).collect(), Node::Sequence(parts))
            }
            Node::Band(band, child) => {
                let (below, child) = self.node(scop, child, ids)?;
                let row = |r: &Row| Row {
                    phi: below.iter().map(|id| (*id, r.of(self.origin[id.0 as usize]).clone())).collect(),
                    ..r.clone()
                };
                let rows = band.rows.iter().map(row).collect();
                (below.clone(), Node::Band(Band { rows, ..band.clone() }, Box::new(child)))
            }
            Node::Leaf => (self.copy(scop.statement(ids[0]), ids[0], 0, vec![]), Node::Leaf),
        })
    }

    fn copy(&mut self, s: &Statement, origin: StatementId, piece: usize, domain: Vec<Affine>) -> Vec<StatementId> {
        self.origin.push(origin);
        let id = StatementId(self.out.statements.len() as u32);
        let name = if piece == 0 { s.name.clone() } else { format!("{}_{piece}", s.name) };
        self.out.statements.push(Statement { name, domain: [s.domain.clone(), domain].concat(), ..s.clone() });
        vec![id]
    }

    /// Splits a statement that is alone in its loops.
    fn alone(&mut self, s: &Statement, id: StatementId, node: &Node) -> Result<SequencePart> {
        let mut rows = vec![];
        let mut below = node;
        while let Node::Band(band, child) = below {
            rows.extend(band.rows.iter().cloned());
            below = child;
        }
        // For each row the forms that are 0 where a read meets the write, innermost row first to be decided.
        let mut cuts: Vec<(usize, Affine)> = vec![];
        for form in meetings(s) {
            let Some((v, _)) = form.terms.iter().rev().find(|t| t.1.abs() == 1).copied() else { continue };
            let single = |r: &Row| matches!(r.of(id).terms[..], [(w, 1 | -1)] if w == v);
            let innermost = form.terms.iter().all(|t| t.0 <= v);
            let Some(row) = rows.iter().position(single).filter(|_| innermost) else { continue };
            if !cuts.iter().any(|c| c.0 == row) && self.crosses(s, &form)? {
                let k = form.coefficient(v) * rows[row].of(id).coefficient(v);
                cuts.push((row, form.scale(k)));
            }
        }
        cuts.sort_by_key(|c| c.0);
        if 3usize.pow(cuts.len() as u32) > MAX_PIECES {
            cuts.clear();
        }
        let mut piece = if cuts.is_empty() { 0 } else { 1 };
        self.pieces(s, id, (&rows, &cuts), 0, vec![], &mut piece)
    }

    /// The pieces from row `row` inwards, where the rows and the forms that cut them are given.
    fn pieces(
        &mut self,
        s: &Statement,
        id: StatementId,
        (rows, cuts): (&[Row], &[(usize, Affine)]),
        row: usize,
        domain: Vec<Affine>,
        piece: &mut usize,
    ) -> Result<SequencePart> {
        if row == rows.len() {
            let ids = self.copy(s, id, *piece, domain);
            *piece += usize::from(*piece > 0);
            return Ok((ids, Node::Leaf));
        }
        let Some((_, form)) = cuts.iter().find(|c| c.0 == row) else {
            let (ids, child) = self.pieces(s, id, (rows, cuts), row + 1, domain, piece)?;
            return Ok((ids.clone(), around(&rows[row], id, &ids, child)));
        };
        let mut parts = vec![];
        let on = vec![form.clone(), form.scale(-1)];
        for more in [vec![form.scale(-1).offset(-1)], on, vec![form.clone().offset(-1)]] {
            let domain = [domain.clone(), more].concat();
            let mut exists = Polyhedron::domain(s);
            domain.iter().for_each(|c| exists.inequalities.push(exists.form(c, 0)));
            if !self.isl.is_empty(&exists)? {
                let (ids, child) = self.pieces(s, id, (rows, cuts), row + 1, domain, piece)?;
                parts.push((ids.clone(), around(&rows[row], id, &ids, child)));
            }
        }
        Ok((parts.iter().flat_map(|p| p.0.clone()).collect(), Node::Sequence(parts)))
    }

    /// Returns true if a form takes both signs in the domain.
    fn crosses(&self, s: &Statement, form: &Affine) -> Result<bool> {
        for side in [1, -1] {
            let mut p = Polyhedron::domain(s);
            let row = p.form(&form.scale(side), 0);
            p.inequalities.push(plus(&row, -1));
            if self.isl.is_empty(&p)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the forms that are not constant and 0 where an instance reads, in one dimension, the element that it writes. What differs in
/// another dimension by a constant was written in another iteration of a loop around, wherever these forms are 0.
fn meetings(s: &Statement) -> Vec<Affine> {
    let mut out: Vec<Affine> = vec![];
    s.body.visit_accesses(&mut |a| {
        if a.buffer != s.target || s.is_scatter() {
            return;
        }
        let difference = |(w, r): (&Affine, &Index)| r.affine().map(|r| w.add_scaled(r, -1));
        let forms: Vec<Affine> = s.write.iter().zip(&a.index).filter_map(difference).collect();
        if forms.iter().any(|form| form.is_constant() && form.constant != 0) {
            return;
        }
        for form in forms {
            if !form.is_constant() && !out.contains(&form) {
                out.push(form);
            }
        }
    });
    out
}

fn around(row: &Row, id: StatementId, ids: &[StatementId], child: Node) -> Node {
    let phi = ids.iter().map(|&new| (new, row.of(id).clone())).collect();
    Node::Band(Band { rows: vec![Row { phi, ..row.clone() }], permutable: false }, Box::new(child))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::analysis::dependence;
    use crate::poly::samples::loops;
    use crate::poly::{ilp, reference};
    use crate::runtime::Tensor;

    #[test]
    fn shortest_paths_are_parallel_for_each_step() {
        let scop = loops(
            "loop p(N = 7) { i32 path[N][N]
               for k in 0..N for i in 0..N for j in 0..N path[i][j] min= path[i][k] + path[k][j] }",
        );
        let divided = split(&scop).unwrap();
        divided.verify().unwrap();
        assert_eq!(divided.statements.len(), 9);
        let data: Vec<i32> = (0..49).map(|i| i * 11 % 17 + 1).collect();
        let (mut expected, mut got) = (vec![Tensor::new(&[7, 7], &data)], vec![Tensor::new(&[7, 7], &data)]);
        reference::run(&scop, &scop.order, &mut expected);
        reference::run(&divided, &divided.order, &mut got);
        assert!(got == expected && got[0].data != Tensor::new(&[7, 7], &data).data);
        let (schedule, report) = ilp::schedule(&divided, &dependence::analyze(&divided).unwrap()).unwrap();
        assert_eq!(report.fallback, None);
        let mut carried = 0;
        schedule
            .for_each_band(&mut |band| carried += band.rows.iter().filter(|r| r.tile == 1 && !r.coincident).count());
        assert_eq!(carried, 1, "{}", schedule.print(&divided));
    }

    #[test]
    fn what_reads_on_one_side_only_stays_whole() {
        let scop = loops(
            "loop p(N = 7) { f64 A[N][N]
               for i in 0..N for j in 0..i for k in 0..j A[i][j] -= A[i][k] * A[j][k]
               for i in 1..N for j in 0..N A[i][j] = A[i-1][j]
               for i in 1..N for j in 0..N for k in 0..N A[i][j] max= A[i-1][k] }",
        );
        assert_eq!(split(&scop).unwrap(), scop);
    }
}
