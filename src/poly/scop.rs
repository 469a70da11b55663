//! Scop: what one fused group computes, as statements over affine domains.
//!
//! A tensor expression is a list of [`Definition`]s, `C(m,n) +=! A(m,k) * B(k,n)`. A [`Scop`] has the same tensors and
//! statements with one write each: a reduction has become an initialisation and an update.

use crate::codegen::expr::{Affine, BinaryOp, BufferId, Expr, Var};
use crate::poly::DType;
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
    Output,
    /// Exists only inside the program.
    Temporary,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Iterator {
    pub name: String,
    /// Values are `0..extent`.
    pub extent: i64,
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

/// The statements of one fused group in their original order: statement i runs completely before statement i+1.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Scop {
    pub name: String,
    pub tensors: Vec<TensorDecl>,
    pub statements: Vec<Statement>,
}

impl Scop {
    pub fn statement(&self, id: StatementId) -> &Statement {
        &self.statements[id.0 as usize]
    }
    pub fn tensor(&self, id: BufferId) -> &TensorDecl {
        &self.tensors[id.0 as usize]
    }
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = StatementId> + use<> {
        (0..self.statements.len() as u32).map(StatementId)
    }
}

impl Statement {
    pub fn vars(&self) -> impl DoubleEndedIterator<Item = Var> + use<> {
        (0..self.iterators.len() as u32).map(Var)
    }
}
