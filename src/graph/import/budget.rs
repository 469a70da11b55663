//! The budgets of an import: bytes and work of the constants that it computes.

use super::tensor::checked_len;
use crate::graph::define::define;
use crate::graph::import::importer::Importer;
use crate::graph::op::Op;
use crate::graph::subgraph;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Error, Result, text};

impl Importer<'_> {
    /// Subtracts the bytes of a constant from the budget of computed constants.
    ///
    /// # Errors
    /// `Limit` where they exceed it.
    pub(super) fn claim(&mut self, shape: &[i64], dtype: DType) -> Result<()> {
        let bytes = checked_len(shape, dtype, "a constant")? * dtype.bytes();
        self.budget = self.budget.checked_sub(bytes as u64).ok_or_else(|| {
            let (left, most) = (text::bytes(self.budget), text::bytes(self.limits.constant_bytes));
            let bytes = text::bytes(bytes as u64);
            Error::Limit(format!(
                "a computed constant of shape {shape:?} takes {bytes}, {left} are left: the limit for all of them is {most} \
                 and four times the weights (`--max-memory`, `Limits::constant_bytes`)"
            ))
        })?;
        Ok(())
    }

    /// Subtracts the work of computing `op` on constants from the budget.
    ///
    /// # Errors
    /// `Limit` where it exceeds the budget.
    pub(super) fn claim_work(&mut self, op: &Op, operands: &[TensorType]) -> Result<()> {
        let work = work(op, operands)?;
        self.work_left = self.work_left.checked_sub(work).ok_or_else(|| {
            Error::Limit(format!(
                "computing a constant by {} takes {work} operations, {} are left of the {} that all of them may take \
                 (`--max-work`, `Limits::constant_work`)",
                op.mnemonic(),
                self.work_left,
                self.limits.constant_work
            ))
        })?;
        Ok(())
    }
}

/// Points of the tensor expressions of `op`, or elements of the operands of what has none.
fn work(op: &Op, operands: &[TensorType]) -> Result<u64> {
    let elements = operands.iter().map(|t| t.elements() as u64).sum::<u64>();
    if matches!(op, Op::Opaque { .. } | Op::Reshape { .. }) || !subgraph::bodies(op).is_empty() {
        return Ok(elements);
    }
    let points = |extents: &mut dyn Iterator<Item = i64>| extents.fold(1u64, |n, d| n.saturating_mul(d.max(0) as u64));
    let program = define(op, operands)?;
    let each = program.definitions.iter().map(|d| points(&mut d.iterators.iter().map(|i| i.extent)));
    Ok(each.fold(elements, u64::saturating_add))
}
