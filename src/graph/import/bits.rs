//! Operators on bits: shifts, inversion, and bits seen as another type.

use super::node::Source;
use super::tensor::dtype;
use crate::expr::scalar::storage::{canonical, width};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::{DType, Error, Result, Tensor};

fn require_integer(g: &Importer, value: ValueId) -> Result<()> {
    match g.ty(value).dtype {
        dtype if dtype.is_integer() => Ok(()),
        other => Err(Error::Unsupported(format!("elements of type {other}"))),
    }
}

/// `BitwiseAnd` and its kind: of integers alone, where `And` is of bools.
pub(super) fn bitwise(g: &mut Importer, n: &Source, op: BinaryOp) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    require_integer(g, a)?;
    Ok(vec![g.binary(op, a, b)?])
}

pub(super) fn bitwise_not(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    require_integer(g, x)?;
    Ok(vec![g.unary(UnaryOp::Not, x)?])
}

pub(super) fn shift(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    let op = match n.string("direction", "").as_str() {
        "LEFT" => BinaryOp::ShiftLeft,
        "RIGHT" => BinaryOp::ShiftRight,
        other => return Err(Error::Invalid(format!("its direction is `{other}`, not `LEFT` or `RIGHT`"))),
    };
    Ok(vec![g.binary(op, a, b)?])
}

/// A bool is a byte that is 0 or 1; types of less than a byte have their own width in the standard, a byte here.
pub(super) fn bitcast(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (from, to) = (g.ty(x).dtype, dtype(n.int("to", 0) as i32)?);
    if width(from) != width(to) {
        return Err(Error::Invalid(format!("{from} has {} bits, {to} has {}", width(from), width(to))));
    }
    if from == to {
        return Ok(vec![x]);
    }
    let bytes = if from == DType::Bool { g.cast_to(x, DType::U8)? } else { x };
    Ok(vec![match to {
        DType::Bool => {
            let bytes = g.view_as(bytes, DType::U8)?;
            g.cast_to(bytes, DType::Bool)?
        }
        to if width(to) < 8 => {
            let table: Vec<u8> = (0..=255).map(|b| canonical(to, b)).collect();
            let bytes = g.view_as(bytes, DType::U8)?;
            let byte = g.looked_up(Tensor::new(&[256], &table), bytes)?;
            g.view_as(byte, to)?
        }
        to => g.view_as(bytes, to)?,
    }])
}

impl Importer<'_> {
    /// The bits of `value` as elements of another type of the same size.
    pub(super) fn view_as(&mut self, value: ValueId, to: DType) -> Result<ValueId> {
        if self.ty(value).dtype == to { Ok(value) } else { self.emit(Op::Bitcast(to), &[value]) }
    }

    /// The elements of a table at the places that `bytes` names.
    pub(super) fn looked_up(&mut self, table: Tensor, bytes: ValueId) -> Result<ValueId> {
        let table = self.constant(table);
        let index = self.cast_to(bytes, DType::I32)?;
        self.emit(Op::Gather { axis: 0 }, &[table, index])
    }

    /// `condition ? constant : value`.
    pub(super) fn replaced(&mut self, condition: ValueId, constant: f64, value: ValueId) -> Result<ValueId> {
        let constant = self.scalar_like(value, constant)?;
        self.select(condition, constant, value)
    }

    /// `value op constant`.
    pub(super) fn with_constant(&mut self, op: BinaryOp, value: ValueId, constant: f64) -> Result<ValueId> {
        let constant = self.scalar_like(value, constant)?;
        self.binary(op, value, constant)
    }

    /// A comparison with a constant.
    pub(super) fn compared(&mut self, op: CompareOp, value: ValueId, constant: f64) -> Result<ValueId> {
        let constant = self.scalar_like(value, constant)?;
        self.compare(op, value, constant)
    }
}
