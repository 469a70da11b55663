//! Statements over affine domains, and the definitions of a tensor expression.

use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, Literals};
use crate::expr::{Affine, Var};
use crate::runtime::DType;
use serde::{Deserialize, Serialize};

/// A tensor of a program. Row-major, contiguous.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TensorDecl {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub role: Role,
    /// The values of a small constant, where the code of a kernel may depend on them.
    pub literals: Option<Literals>,
    /// Intervals in which its elements lie, as a run checks before it begins: elements that bound loops; of [`Role::Check`] when it ends. Of
    /// temporaries and outputs, what all assignments keep, as an analysis of the program has proven.
    pub ranges: Vec<ElementRange>,
    /// The order in which memory has a packed copy of a constant already: kernels that can read it so do.
    pub panel: Option<Panel>,
}

/// Elements `offset, offset + stride, …` lie in `lower..=upper`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ElementRange {
    pub offset: u64,
    pub stride: u64,
    pub lower: i64,
    pub upper: i64,
}

/// Panels of a packed constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// Dimension of the constant along which vectors run.
    pub dimension: usize,
    /// Elements of each panel along it.
    pub points: i64,
}

impl TensorDecl {
    /// A tensor without literals.
    pub fn new(name: impl Into<String>, dtype: DType, shape: impl Into<Vec<i64>>, role: Role) -> TensorDecl {
        TensorDecl { name: name.into(), dtype, shape: shape.into(), role, literals: None, ranges: vec![], panel: None }
    }

    /// The interval in which all elements of an input lie, as a run checks before it begins.
    pub fn given(&self) -> Option<(i64, i64)> {
        let all = self.ranges.iter().filter(|r| (r.offset, r.stride) == (0, 1)).map(|r| (r.lower, r.upper));
        all.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1))).filter(|r| self.role == Role::Input && r.0 <= r.1)
    }

    /// The interval in which the element of a check must lie when a run ends.
    pub fn limits(&self) -> Option<(i64, i64)> {
        self.ranges.first().filter(|_| self.role == Role::Check).map(|r| (r.lower, r.upper))
    }

    /// The interval that the program's own assignments keep its elements in, where it is known.
    pub fn assigned(&self) -> Option<(i64, i64)> {
        let range = self.ranges.first().filter(|r| (r.offset, r.stride) == (0, 1))?;
        matches!(self.role, Role::Temporary | Role::Output).then_some((range.lower, range.upper))
    }
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
    /// Subscripts that a run has met, which it checks when it ends: no array of the text.
    Check,
}

impl Role {
    /// Returns true if statements may write it.
    pub fn is_written(self) -> bool {
        matches!(self, Role::Output | Role::InOut | Role::Temporary | Role::Check)
    }

    /// Returns true if it has values before the program runs.
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

/// The values of each iterator.
pub fn ranges(iterators: &[Iterator]) -> impl Fn(Var) -> (i64, i64) + Copy {
    |v| (0, iterators[v.0 as usize].extent - 1)
}

/// `name`, or a longer one where an iterator is called so.
pub fn unused_name(iterators: &[Iterator], name: &str) -> String {
    let mut out = name.to_string();
    while iterators.iter().any(|it| it.name == out) {
        out.push('_');
    }
    out
}

/// Numbers the names of statements where several have one.
pub fn number(statements: &mut [Statement]) {
    let names: Vec<String> = statements.iter().map(|s| s.name.clone()).collect();
    let mut out: Vec<String> = vec![];
    for name in &names {
        let several = names.iter().filter(|n| *n == name).count() > 1;
        let mut k = 1;
        let mut numbered = if several { format!("{name}_{k}") } else { name.clone() };
        while out.contains(&numbered) || (several && names.contains(&numbered)) {
            k += 1;
            numbered = format!("{name}_{k}");
        }
        out.push(numbered);
    }
    statements.iter_mut().zip(out).for_each(|(s, name)| s.name = name);
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
    /// Subscripts of the write from data: dimension and value; `write` is 0 there. A definition that has some is a
    /// scatter: its iterators are all free, its points run in their order and each replaces an element that an earlier
    /// definition gave, or combines with it by `reduce`.
    pub computed: Vec<(usize, Expr)>,
    /// `Add`, `Mul`, `Min` or `Max`; `None` when there are no reduced iterators.
    pub reduce: Option<BinaryOp>,
    pub conditions: Vec<Affine>,
    pub body: Expr,
}

impl Definition {
    /// Returns true if the elements that it writes depend on data.
    pub fn is_scatter(&self) -> bool {
        !self.computed.is_empty()
    }

    /// The subscripts of the write, those from data too.
    pub fn subscripts(&self) -> Vec<Index> {
        subscripts(&self.write, &self.computed)
    }
}

fn subscripts(write: &[Affine], computed: &[(usize, Expr)]) -> Vec<Index> {
    let mut all: Vec<Index> = write.iter().cloned().map(Index::Affine).collect();
    computed.iter().for_each(|(d, e)| all[*d] = Index::Value(Box::new(e.clone())));
    all
}

/// The inverse of [`Statement::subscripts`]: affine subscripts with 0 in place of those from data, and these.
pub fn write_and_computed(subscripts: Vec<Index>) -> (Vec<Affine>, Vec<(usize, Expr)>) {
    let (mut write, mut computed) = (vec![], vec![]);
    for (d, i) in subscripts.into_iter().enumerate() {
        match i {
            Index::Affine(a) => write.push(a),
            Index::Value(e) => {
                write.push(Affine::constant(0));
                computed.push((d, *e));
            }
        }
    }
    (write, computed)
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
    /// Subscripts of the write from data: dimension and value; `write` is 0 there.
    pub computed: Vec<(usize, Expr)>,
    /// `target = reduce(target, body)` instead of `target = body`. Instances that differ only in the order in which they
    /// update one element may be reordered.
    pub reduce: Option<BinaryOp>,
    pub body: Expr,
}

impl Statement {
    /// Returns true if the statement reads or writes the tensor.
    pub fn uses(&self, tensor: BufferId) -> bool {
        self.target == tensor || self.body.reads(tensor) || self.computed.iter().any(|c| c.1.reads(tensor))
    }

    /// Calls `f` on each access of the body and of the subscripts that are data.
    pub fn visit_accesses(&self, f: &mut impl FnMut(&Access)) {
        self.body.visit_accesses(f);
        self.computed.iter().for_each(|(_, e)| e.visit_accesses(f));
    }

    /// Rewrites each read of the body and of the subscripts that are data.
    pub fn rewrite_loads(&mut self, f: &mut impl FnMut(Access) -> Expr) {
        self.body = self.body.rewrite_loads(f);
        self.computed.iter_mut().for_each(|(_, e)| *e = e.rewrite_loads(f));
    }

    /// As [`Statement::rewrite_loads`], of one tensor.
    pub fn rewrite_reads(&mut self, tensor: BufferId, f: &mut impl FnMut(Access) -> Expr) {
        self.rewrite_loads(&mut |a| if a.buffer == tensor { f(a) } else { Expr::Load(a) });
    }

    /// Returns true if the element that it writes depends on data.
    pub fn is_scatter(&self) -> bool {
        !self.computed.is_empty()
    }

    /// The subscripts of the write, those from data too.
    pub fn subscripts(&self) -> Vec<Index> {
        subscripts(&self.write, &self.computed)
    }

    pub fn vars(&self) -> impl DoubleEndedIterator<Item = Var> + use<> {
        (0..self.iterators.len() as u32).map(Var)
    }

    pub fn iterator(&self, v: Var) -> &Iterator {
        &self.iterators[v.0 as usize]
    }

    pub fn extent(&self, v: Var) -> i64 {
        self.iterator(v).extent
    }

    /// Returns true if a subscript of the write uses the iterator. One that none uses is reduced.
    pub fn writes_along(&self, v: Var) -> bool {
        self.write.iter().any(|w| w.uses(v))
    }

    /// Returns true if a subscript of the write is the iterator itself.
    pub fn is_subscript(&self, v: Var) -> bool {
        self.write.iter().any(|w| w.terms[..] == [(v, 1)])
    }
}
