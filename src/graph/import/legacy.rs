//! Operators as operator sets 1 to 6 had them: operands stretched along a named axis, and attributes where later sets have
//! operands.

use super::node::Source;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::graph::proto::NodeProto;
use crate::runtime::{DType, Error, Result};

/// The operators whose second operand stretches to the first along `axis`, where `broadcast` is 1.
const STRETCHING: [&str; 11] = ["Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"];

/// The first operator set in which operands broadcast as in NumPy.
const NUMPY_SINCE: i64 = 7;

/// The operands of a node, so that they broadcast as in NumPy.
pub(super) fn aligned(
    g: &mut Importer,
    node: &NodeProto,
    opset: i64,
    mut inputs: Vec<Option<ValueId>>,
) -> Result<Vec<Option<ValueId>>> {
    if opset >= NUMPY_SINCE {
        return Ok(inputs);
    }
    let (Some(Some(a)), Some(Some(b))) = (inputs.first().copied(), inputs.get(1).copied()) else { return Ok(inputs) };
    let axis = if STRETCHING.contains(&node.op_type.as_str()) {
        let number = |name: &str| node.attribute.iter().find(|a| a.name == name).map(|a| a.i);
        if number("broadcast") != Some(1) {
            return Ok(inputs);
        }
        number("axis")
    } else if node.op_type == "PRelu" && g.rank(a) >= 2 && g.rank(b) == 1 {
        // one slope for each channel
        Some(1)
    } else {
        return Ok(inputs);
    };
    let (rank, shape) = (g.rank(a), g.shape(b).to_vec());
    let first = match axis {
        Some(axis) => g.axis(axis, rank)?,
        None => return Ok(inputs),
    };
    let misfit =
        || Error::Invalid(format!("an operand of shape {shape:?} does not fit {rank} dimensions from axis {first} on"));
    // an operand of one element stretches from anywhere
    let after = rank.checked_sub(first + shape.len());
    let mut wide = vec![1; first];
    wide.extend(&shape);
    match after {
        Some(after) => wide.extend(vec![1; after]),
        None if shape.iter().all(|d| *d == 1) => wide = vec![],
        None => return Err(misfit()),
    }
    inputs[1] = Some(g.reshape_to(b, wide)?);
    Ok(inputs)
}

/// Copies along one axis, whose number and count are operands.
pub(super) fn tile(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, tiles, axis) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let whole = |g: &Importer, id, what| g.known_number(id, what).map(|v| v as i64);
    let (tiles, axis) = (whole(g, tiles, "tiles")?, whole(g, axis, "axis")?);
    let axis = g.axis(axis, g.rank(x))?;
    if !(1..=1 << 20).contains(&tiles) {
        return Err(Error::Invalid(format!("`tiles` is {tiles}, not within 1 to 1048576")));
    }
    let mut shape = g.shape(x).to_vec();
    let y = g.unsqueezed(x, axis)?;
    let mut wide = g.shape(y).to_vec();
    wide[axis] = tiles;
    let y = g.emit(Op::Expand { shape: wide }, &[y])?;
    shape[axis] *= tiles;
    Ok(vec![g.reshape_to(y, shape)?])
}

/// The type that a name stands for, as in `Cast` before operator set 6.
pub(super) fn type_named(name: &str) -> Result<DType> {
    let lower = name.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "float" => DType::F32,
        "double" => DType::F64,
        "float16" => DType::F16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "bool" => DType::Bool,
        _ => return Err(Error::Unsupported(format!("the type `{name}`"))),
    })
}
