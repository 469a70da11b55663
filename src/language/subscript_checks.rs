//! Subscripts from arrays that a loop program writes: kept inside of their dimension, and recorded for a check at the end.
//!
//! In: an access over the iterators around it. Out: the access, of which a subscript that reads written arrays is brought into its dimension
//! unless its operations keep it there already; and what is to run just before the statement, two statements that keep the least and
//! the greatest value of the subscript in tensors of [`Role::Check`]. A run ends with an error where one of them has been outside.
//! Invariant: no data lead out of an array.

use crate::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, Scalar};
use crate::poly::analysis::index_range::{is_inside, type_range};
use crate::poly::analysis::value_range::ValueRanges;
use crate::poly::schedule::{Node, SequencePart};
use crate::poly::scop::Scop;
use crate::poly::statement::{ElementRange, Iterator, Role, Statement, StatementId, TensorDecl};
use crate::runtime::{DType, Result};
use std::cell::RefCell;

/// A subscript from written arrays: its value over iterators, and the tensors of its least and greatest values.
struct Record {
    value: Expr,
    extremes: [BufferId; 2],
}

/// A dimension of an array.
pub(super) type Dimension = (BufferId, usize);

/// A dimension and the first of the two tensors of its least and greatest subscripts.
pub(super) type Check = (Dimension, BufferId);

/// The checks of one program.
pub(super) struct SubscriptChecks<'a> {
    arrays: &'a [TensorDecl],
    /// Dimensions whose subscripts are known to be inside.
    needless: &'a [Dimension],
    dimensions: RefCell<Vec<Check>>,
    /// Follow the arrays.
    tensors: RefCell<Vec<TensorDecl>>,
    /// Of the statement that is being made.
    records: RefCell<Vec<Record>>,
}

impl<'a> SubscriptChecks<'a> {
    /// `needless` are dimensions that [`needless`] has found.
    pub fn new(arrays: &'a [TensorDecl], needless: &'a [Dimension]) -> SubscriptChecks<'a> {
        SubscriptChecks {
            arrays,
            needless,
            dimensions: RefCell::default(),
            tensors: RefCell::default(),
            records: RefCell::default(),
        }
    }

    /// Brings subscripts from written arrays into their dimension. `over_iterators` replaces the variables of the access.
    pub fn keep_inside(&self, access: &mut Access, iterators: &[Iterator], over_iterators: &dyn Fn(&Expr) -> Expr) {
        for (d, index) in access.index.iter_mut().enumerate() {
            let Index::Value(e) = index else { continue };
            let written = |e: &Expr| matches!(e, Expr::Load(a) if self.arrays[a.buffer.0 as usize].role.is_written());
            let extent = self.arrays[access.buffer.0 as usize].shape[d];
            let value = over_iterators(e);
            if !e.any(&mut |e| written(e)) || is_inside(self.arrays, iterators, &value, extent) {
                continue;
            }
            let dtype = e.dtype(&|b| self.arrays[b.0 as usize].dtype);
            let Some(limits) = limits(dtype, extent) else { continue };
            let [least, greatest] = limits.map(|limit| Box::new(Expr::Const(limit)));
            let above = Box::new(Expr::Binary(BinaryOp::Max, e.clone(), least));
            *index = Index::Value(Box::new(Expr::Binary(BinaryOp::Min, above, greatest)));
            if self.needless.contains(&(access.buffer, d)) {
                continue;
            }
            let extremes = self.extremes((access.buffer, d), dtype, extent);
            let mut records = self.records.borrow_mut();
            if !records.iter().any(|r| r.extremes == extremes && r.value == value) {
                records.push(Record { value, extremes });
            }
        }
    }

    /// The tensors of the least and the greatest subscript of a dimension.
    fn extremes(&self, dimension: Dimension, dtype: DType, extent: i64) -> [BufferId; 2] {
        let (mut dimensions, mut tensors) = (self.dimensions.borrow_mut(), self.tensors.borrow_mut());
        let place = |n: usize| BufferId((self.arrays.len() + n) as u32);
        let of = |b: BufferId| tensors[b.0 as usize - self.arrays.len()].dtype;
        let known = dimensions.iter().find(|(own, first)| *own == dimension && of(*first) == dtype);
        let first = known.map(|known| known.1).unwrap_or_else(|| {
            let first = place(tensors.len());
            dimensions.push((dimension, first));
            for word in ["least", "greatest"] {
                let array = &self.arrays[dimension.0.0 as usize];
                let number = if array.shape.len() > 1 { format!("_{}", dimension.1) } else { String::new() };
                let mut name = format!("{word}_subscript{number}_of_{}", array.name);
                while self.arrays.iter().chain(tensors.iter()).any(|t| t.name == name) {
                    name.push('_');
                }
                let ranges = vec![ElementRange { offset: 0, stride: 1, lower: 0, upper: extent - 1 }];
                tensors.push(TensorDecl { ranges, ..TensorDecl::new(name, dtype, [], Role::Check) });
            }
            first
        });
        [first, BufferId(first.0 + 1)]
    }

    /// The statements that record the subscripts of the statement that has been made, in these loops.
    pub fn take(&self, iterators: &[Iterator], domain: &[Affine]) -> Vec<Statement> {
        let statement = |target, op, body| Statement {
            iterators: iterators.to_vec(),
            domain: domain.to_vec(),
            ..self.of_check(target, Some(op), body)
        };
        let records = self.records.take();
        let both = records.into_iter().flat_map(|Record { value, extremes: [least, greatest] }| {
            [statement(least, BinaryOp::Min, value.clone()), statement(greatest, BinaryOp::Max, value)]
        });
        both.collect()
    }

    /// The checks and their tensors, and the statements that give these their first value, 0, with their place in the order.
    pub fn finish(self, first: u32) -> (Vec<Check>, Vec<TensorDecl>, Vec<Statement>, Vec<SequencePart>) {
        let tensors = self.tensors.take();
        let statements: Vec<Statement> = tensors
            .iter()
            .zip(self.arrays.len() as u32..)
            .map(|(t, target)| {
                let zero = Expr::Const(Scalar::of(t.dtype, 0.0));
                Statement { name: t.name.clone(), ..self.of_check(BufferId(target), None, zero) }
            })
            .collect();
        let order = (first..).map(StatementId).take(statements.len()).map(|id| (vec![id], Node::Leaf)).collect();
        (self.dimensions.take(), tensors, statements, order)
    }

    fn of_check(&self, target: BufferId, reduce: Option<BinaryOp>, body: Expr) -> Statement {
        Statement {
            name: "check".into(),
            iterators: vec![],
            domain: vec![],
            target,
            write: vec![],
            computed: vec![],
            reduce,
            body,
        }
    }
}

/// The dimensions among `checks` of which the program's own assignments keep all subscripts inside.
pub(super) fn needless(scop: &Scop, checks: &[Check]) -> Result<Vec<Dimension>> {
    if checks.is_empty() {
        return Ok(vec![]);
    }
    let values = ValueRanges::new(scop)?;
    let inside = |s: &Statement| {
        let extent = |r: &ElementRange| r.upper + 1;
        let extent = scop.tensor(s.target).ranges.first().map_or(0, extent);
        values.range(&s.iterators, &s.body).is_some_and(|(low, high)| 0 <= low && high < extent)
    };
    let is_needless = |dimension: &Dimension| {
        let firsts = checks.iter().filter(|c| c.0 == *dimension).map(|c| c.1);
        firsts.into_iter().all(|first| {
            let mut records = scop.statements.iter().filter(|s| s.target == first && s.reduce.is_some());
            records.all(inside)
        })
    };
    Ok(checks.iter().map(|c| c.0).filter(is_needless).collect())
}

/// The least and the greatest subscript of a dimension, in a type; `None` for types that have no subscripts.
fn limits(dtype: DType, extent: i64) -> Option<[Scalar; 2]> {
    let (_, most) = type_range(dtype)?;
    Some([0, most.min(i128::from(extent - 1))].map(|limit| Scalar::of(dtype, limit as f64)))
}
