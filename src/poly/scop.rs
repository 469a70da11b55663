//! Scop: what one fused group computes, as statements over affine domains.
//!
//! A tensor expression is a list of [`Definition`]s, `C(m,n) +=! A(m,k) * B(k,n)`. A [`Scop`] has the same tensors and
//! statements with one write each: a reduction has become an initialisation and an update, and each statement runs
//! completely before the next. A loop program is a Scop with an order of its own: arrays updated in place, statements
//! interleaved in common loops, triangular domains. In both the original order is a schedule tree like any other.

use crate::expr::BufferId;
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule, SchedulePart};
use crate::poly::statement::{Definition, Program, Statement, StatementId, TensorDecl, ranges};
use crate::poly::storage::Private;
use serde::{Deserialize, Serialize};

/// A static control part: the statements of one fused group or loop program, and the order that defines their meaning.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Scop {
    pub name: String,
    pub tensors: Vec<TensorDecl>,
    pub statements: Vec<Statement>,
    /// The original order. Every other schedule is measured against it.
    pub order: Schedule,
    /// Private temporaries: those of which each iteration of some loops has a copy.
    pub privates: Vec<Private>,
}

impl Scop {
    /// A Scop whose statements run one completely after the other.
    pub fn in_sequence(name: &str, tensors: Vec<TensorDecl>, statements: Vec<Statement>) -> Scop {
        let order = Schedule::in_sequence(&statements);
        Scop { name: name.into(), tensors, statements, order, privates: vec![] }
    }

    pub fn statement(&self, id: StatementId) -> &Statement {
        &self.statements[id.0 as usize]
    }
    pub fn tensor(&self, id: BufferId) -> &TensorDecl {
        &self.tensors[id.0 as usize]
    }
    /// Returns the private storage of a temporary; `None` if all iterations share it.
    pub fn private(&self, id: BufferId) -> Option<&Private> {
        self.privates.iter().find(|p| p.tensor == id)
    }
    /// The statements that read or write a tensor.
    pub fn users(&self, tensor: BufferId) -> Vec<StatementId> {
        self.ids().filter(|id| self.statement(*id).uses(tensor)).collect()
    }
    /// Each statement as a definition, without the order: for questions about what is read.
    pub fn as_definitions(&self) -> Program {
        let definition = |s: &Statement| Definition {
            target: s.target,
            iterators: s.iterators.clone(),
            outer: s.iterators.len(),
            write: s.write.clone(),
            computed: s.computed.clone(),
            reduce: s.reduce,
            conditions: s.domain.clone(),
            body: s.body.clone(),
        };
        Program { tensors: self.tensors.clone(), definitions: self.statements.iter().map(definition).collect() }
    }

    pub fn ids(&self) -> impl DoubleEndedIterator<Item = StatementId> + use<> {
        (0..self.statements.len() as u32).map(StatementId)
    }
}

impl Scop {
    /// Returns true if each temporary with private memory is used in at most one of these parts.
    pub fn private_to(&self, parts: &[SchedulePart]) -> bool {
        self.privates.iter().all(|p| {
            let users = self.users(p.tensor);
            let within = |part: &&SchedulePart| users.iter().any(|id| part.statements.contains(id));
            parts.iter().filter(within).count() <= 1
        })
    }
}

impl Schedule {
    /// Removes loops over one value unless a temporary lives for one iteration of them. Keeps one that makes a phase of
    /// several parts, as [`Row::once`].
    pub fn without_single_loops(&self, scop: &Scop) -> Schedule {
        match scop.privates.is_empty() {
            true => Schedule { root: without_single_loops(self.root.clone(), scop, true, true).flattened() },
            false => self.clone(),
        }
    }
}

/// Removes loops over one value below a node: the root, a phase, or a node further in.
pub fn without_single_loops(node: Node, scop: &Scop, root: bool, phase: bool) -> Node {
    match node {
        Node::Leaf | Node::Sequence(_) => {
            node.map_children(&mut |child| without_single_loops(child, scop, false, root))
        }
        Node::Band(Band { rows, permutable }, child) => {
            let phase = phase && rows.iter().all(|r| r.is_single(scop));
            let child = without_single_loops(*child, scop, false, phase);
            let mut remaining: Vec<Row> = vec![];
            let mut waves = false;
            for row in rows {
                let single = row.is_single(scop);
                if single && std::mem::take(&mut waves) {
                    remaining.iter_mut().rev().take(1).for_each(|r| r.kind = RowKind::Serial);
                }
                if single && phase && matches!(child, Node::Sequence(_)) {
                    remaining = vec![Row::once(row.phi.into_iter().map(|p| p.0))];
                } else if !single {
                    waves = row.kind == RowKind::Wavefront;
                    remaining.push(row);
                }
            }
            if remaining.is_empty() { child } else { Node::Band(Band { rows: remaining, permutable }, Box::new(child)) }
        }
    }
}

impl Row {
    /// The values of φ over the boxes of all statements, as an interval.
    pub fn range(&self, scop: &Scop) -> (i64, i64) {
        let bounds = self.phi.iter().map(|(id, phi)| phi.bounds(ranges(&scop.statement(*id).iterators)));
        bounds.fold((i64::MAX, i64::MIN), |a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The values of ⌊φ / tile⌋ over the boxes of all statements, as an interval.
    pub fn values(&self, scop: &Scop) -> (i64, i64) {
        let (lo, hi) = self.range(scop);
        (lo.div_euclid(self.tile), hi.div_euclid(self.tile))
    }

    /// The number of waves of this row and the next one: of the values of their sum.
    pub fn waves(&self, next: &Row, scop: &Scop) -> i64 {
        let ((first, last), (low, high)) = (self.values(scop), next.values(scop));
        last - first + high - low + 1
    }

    /// Returns the number of values of φ over the boxes of all statements.
    pub fn extent(&self, scop: &Scop) -> i64 {
        let (lo, hi) = self.range(scop);
        hi - lo + 1
    }

    /// Returns true if the loop has one iteration.
    pub fn is_single(&self, scop: &Scop) -> bool {
        let (first, last) = self.values(scop);
        first == last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Access, Affine, Expr, Index};
    use crate::poly::samples::v;
    use crate::poly::statement::{Iterator, Role};
    use crate::runtime::{DType, Result};

    /// `y[i] = x[subscript]` for i < 6 where x has 6 elements.
    fn copy(subscript: Affine, guard: Vec<Affine>) -> Result<()> {
        let tensor = |name: &str, role| TensorDecl::new(name, DType::F32, [6], role);
        let access = Access { buffer: BufferId(0), index: vec![Index::Affine(subscript)], guard, otherwise: None };
        let statement = Statement {
            name: "S".into(),
            iterators: vec![Iterator::new("i", 6)],
            domain: vec![],
            target: BufferId(1),
            write: vec![v(0)],
            computed: vec![],
            reduce: None,
            body: Expr::Load(access),
        };
        let tensors = vec![tensor("x", Role::Input), tensor("y", Role::Output)];
        Scop::in_sequence("t", tensors, vec![statement]).verify()
    }

    #[test]
    fn subscripts_stay_in_bounds_where_they_are_read() {
        assert!(copy(v(0), vec![]).is_ok());
        let outside = "invalid: statement `S` of `t`: subscript 0 of `x` leaves 0..6";
        assert_eq!(copy(v(0).offset(1), vec![]).unwrap_err().to_string(), outside);
        assert!(copy(v(0).offset(1), vec![v(0).scale(-1).offset(4)]).is_ok());
        // 2·i − 3 with 7 ≥ 2·i ≥ 3: over the integers i is 2 or 3.
        let guard = vec![v(0).scale(-2).offset(7), v(0).scale(2).offset(-3)];
        assert!(copy(v(0).scale(2).offset(-3), guard.clone()).is_ok());
        assert_eq!(copy(v(0).scale(2).offset(-5), guard).unwrap_err().to_string(), outside);
    }
}
