//! Scop: what one fused group computes, as statements over affine domains.
//!
//! A tensor expression is a list of [`Definition`]s, `C(m,n) +=! A(m,k) * B(k,n)`. A [`Scop`] has the same tensors and
//! statements with one write each: a reduction has become an initialisation and an update, and each statement runs
//! completely before the next. A loop program is a Scop with an order of its own: arrays updated in place, statements
//! interleaved in common loops, triangular domains. In both the original order is a schedule tree like any other.

use crate::codegen::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, Var};
use crate::poly::isl::Isl;
use crate::poly::polyhedron::{Polyhedron, Reduced};
use crate::poly::private::Private;
use crate::poly::schedule::Schedule;
use crate::poly::{DType, Error, Result, private};
use serde::{Deserialize, Serialize};

/// A tensor of a program. Row-major, contiguous.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TensorDecl {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Known only at run time.
    Input,
    /// Known at compile time: packing it is free.
    Constant,
    /// Undefined before the program has written it.
    Output,
    /// Has values before, which the program reads and overwrites. Never in a tensor expression.
    InOut,
    /// Exists only inside the program.
    Temporary,
}

impl Role {
    /// Whether statements may write it.
    pub fn is_written(self) -> bool {
        matches!(self, Role::Output | Role::InOut | Role::Temporary)
    }

    /// Whether it has values before the program runs.
    pub fn is_given(self) -> bool {
        matches!(self, Role::Input | Role::Constant | Role::InOut)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Iterator {
    pub name: String,
    /// Values are `0..extent`.
    pub extent: i64,
    /// The index of the text's loop, over the iterators up to this one, where that is not the iterator itself.
    pub index: Option<Affine>,
}

impl Iterator {
    /// An iterator that is the index of its loop.
    pub fn new(name: impl Into<String>, extent: i64) -> Iterator {
        Iterator { name: name.into(), extent, index: None }
    }
}

/// One equation of a tensor expression, over the box of its iterators ([`Var`] i is iterator i). The first `outer`
/// iterators are free (they name an element of the target); the rest are reduced with `reduce`, from its neutral
/// element: `target[write] = reduce over the rest of body`. Where a condition (`affine ≥ 0`) fails nothing is combined.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Definition {
    pub target: BufferId,
    pub iterators: Vec<Iterator>,
    pub outer: usize,
    /// One subscript for each dimension of the target, in the first `outer` iterators; injective. Usually the
    /// iterators themselves. Several definitions may write disjoint parts of one tensor (concatenation).
    pub write: Vec<Affine>,
    /// `Add`, `Mul`, `Min` or `Max`; `None` when there are no reduced iterators.
    pub reduce: Option<BinaryOp>,
    pub conditions: Vec<Affine>,
    pub body: Expr,
}

/// A tensor expression: definitions in an order in which each tensor is complete before it is read.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    pub tensors: Vec<TensorDecl>,
    pub definitions: Vec<Definition>,
}

/// Index into [`Scop::statements`]; prints as `S3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct StatementId(pub u32);

/// One statement: a domain, one write, the reads in its body.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Statement {
    pub name: String,
    pub iterators: Vec<Iterator>,
    /// Restricts the box of the iterators: each is `affine ≥ 0`.
    pub domain: Vec<Affine>,
    pub target: BufferId,
    pub write: Vec<Affine>,
    /// `target = reduce(target, body)` instead of `target = body`. Instances that differ only in the order in which they
    /// update one element may be reordered.
    pub reduce: Option<BinaryOp>,
    pub body: Expr,
}

/// The statements of one fused group or loop program, and the order that says what they mean.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Scop {
    pub name: String,
    pub tensors: Vec<TensorDecl>,
    pub statements: Vec<Statement>,
    /// The original order. Every other schedule is measured against it.
    pub order: Schedule,
    /// Temporaries of which each iteration of some loops has its own.
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
    /// How iterations have a temporary of their own; `None` where they share it.
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
    /// Checks ranks, variables and ids, the original order, and that every subscript lies in its dimension for every
    /// instance that accesses it.
    pub fn verify(&self) -> Result<()> {
        let isl = Isl::default();
        for s in &self.statements {
            let fail = |what: String| Err(Error::Invalid(format!("statement {} of {}: {what}", s.name, self.name)));
            let known = |a: &Affine| a.terms.iter().all(|t| (t.0.0 as usize) < s.iterators.len());
            let mut affines: Vec<&Affine> = s.domain.iter().chain(&s.write).collect();
            s.body.visit(&mut |e| {
                if let Expr::Index(a) = e {
                    affines.push(a);
                }
            });
            s.body.visit_accesses(&mut |a| {
                affines.extend(a.index.iter().filter_map(Index::affine));
                affines.extend(&a.guard);
            });
            if !affines.into_iter().all(known) {
                return fail("an affine form uses an iterator that does not exist".into());
            }
            if s.iterators.iter().any(|it| it.extent < 1) {
                return fail("an iterator has no values".into());
            }
            if self.tensors.get(s.target.0 as usize).is_none_or(|t| !t.role.is_written()) {
                return fail("it writes no output or temporary".into());
            }
            let mut accesses = vec![Access {
                buffer: s.target,
                index: s.write.iter().cloned().map(Index::Affine).collect(),
                guard: vec![],
                otherwise: None,
            }];
            s.body.visit_accesses(&mut |a| accesses.push(a.clone()));
            for a in accesses {
                let Some(tensor) = self.tensors.get(a.buffer.0 as usize) else {
                    return fail(format!("it accesses tensor {}, which does not exist", a.buffer.0));
                };
                if tensor.shape.len() != a.index.len() {
                    return fail(format!("an access to {} has not one subscript for each dimension", tensor.name));
                }
                for (d, index) in a.index.iter().enumerate() {
                    if let Index::Affine(i) = index
                        && !s.in_bounds(i, &a.guard, tensor.shape[d], &isl)?
                    {
                        return fail(format!("subscript {d} of {} leaves 0..{}", tensor.name, tensor.shape[d]));
                    }
                }
            }
        }
        self.order.verify(self)?;
        private::check(self, &self.order)
    }
}

impl Statement {
    /// Whether `0 ≤ subscript < extent` wherever `guard` and the domain hold.
    fn in_bounds(&self, subscript: &Affine, guard: &[Affine], extent: i64, isl: &Isl) -> Result<bool> {
        let range = |v: Var| (0, self.iterators[v.0 as usize].extent - 1);
        let below = Affine::constant(extent - 1).add_scaled(subscript, -1);
        for form in [subscript, &below] {
            let implied = form.bounds(range).0 >= 0
                || guard.iter().chain(&self.domain).any(|g| form.add_scaled(g, -1).bounds(range).0 >= 0);
            if !implied {
                let mut outside = Polyhedron::domain(self);
                let form = form.scale(-1).offset(-1);
                for a in guard.iter().chain([&form]) {
                    outside.inequalities.push(outside.form(a, 0));
                }
                if !Reduced::new(&outside).empty && !isl.is_empty(&outside)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether the statement reads or writes the tensor.
    pub fn uses(&self, tensor: BufferId) -> bool {
        let mut found = self.target == tensor;
        self.body.visit_accesses(&mut |a| found |= a.buffer == tensor);
        found
    }

    pub fn vars(&self) -> impl DoubleEndedIterator<Item = Var> + use<> {
        (0..self.iterators.len() as u32).map(Var)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::samples::v;

    /// `y[i] = x[subscript]` for i < 6 where x has 6 elements.
    fn copy(subscript: Affine, guard: Vec<Affine>) -> Result<()> {
        let tensor = |name: &str, role| TensorDecl { name: name.into(), dtype: DType::F32, shape: vec![6], role };
        let access = Access { buffer: BufferId(0), index: vec![Index::Affine(subscript)], guard, otherwise: None };
        let statement = Statement {
            name: "S".into(),
            iterators: vec![Iterator::new("i", 6)],
            domain: vec![],
            target: BufferId(1),
            write: vec![v(0)],
            reduce: None,
            body: Expr::Load(access),
        };
        let tensors = vec![tensor("x", Role::Input), tensor("y", Role::Output)];
        Scop::in_sequence("t", tensors, vec![statement]).verify()
    }

    #[test]
    fn subscripts_stay_in_bounds_where_they_are_read() {
        assert!(copy(v(0), vec![]).is_ok());
        let outside = "invalid: statement S of t: subscript 0 of x leaves 0..6";
        assert_eq!(copy(v(0).offset(1), vec![]).unwrap_err().to_string(), outside);
        assert!(copy(v(0).offset(1), vec![v(0).scale(-1).offset(4)]).is_ok());
        // 2·i − 3 with 7 ≥ 2·i ≥ 3: over the integers i is 2 or 3.
        let guard = vec![v(0).scale(-2).offset(7), v(0).scale(2).offset(-3)];
        assert!(copy(v(0).scale(2).offset(-3), guard.clone()).is_ok());
        assert_eq!(copy(v(0).scale(2).offset(-5), guard).unwrap_err().to_string(), outside);
    }
}
