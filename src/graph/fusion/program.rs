//! The tensor expression of a group.
//!
//! In: a graph and a group of its nodes. Out: one program, the concatenation of the nodes' rows of the operator table, with
//! the values inside as temporaries. Invariant: names do not depend on the graph, so that equal kernels have equal programs.

use crate::expr::scalar::Value;
use crate::expr::{Access, BufferId, Expr, Index, Literals, Scalar};
use crate::expr::{Affine, Var};
use crate::graph::define::define;
use crate::graph::fusion::group::Group;
use crate::graph::fusion::parts::Parts;
use crate::graph::fusion::{Slice, affine_reshape};
use crate::graph::ir::{Graph, ValueId};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::poly::statement::{Definition, Iterator, Program, Role, TensorDecl};
use crate::runtime::{DType, Error, Result, Tensor};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The tensor expression of a group: its inputs, its outputs, then temporaries. Tensor names do not depend on the graph,
/// so that equal kernels have equal programs.
pub fn program(graph: &Graph, group: &Group) -> Result<Program> {
    let mut out = Program::default();
    let mut buffers: BTreeMap<ValueId, BufferId> = BTreeMap::new();
    let mut parts = Parts::default();
    let declare = |out: &mut Program, role: Role, ty: &TensorType| {
        let prefix = match role {
            Role::Input => "x",
            Role::Constant => "w",
            Role::Output | Role::InOut => "y",
            Role::Temporary | Role::Check => "t",
        };
        let id = BufferId(out.tensors.len() as u32);
        let name = format!("{prefix}{}", id.0);
        out.tensors.push(TensorDecl::new(name, ty.dtype, &ty.shape[..], role));
        id
    };
    for &v in &group.inputs {
        let role = if graph.constant(v).is_some() { Role::Constant } else { Role::Input };
        let buffer = declare(&mut out, role, &graph.value(v).ty);
        out.tensors[buffer.0 as usize].literals = graph.constant(v).and_then(|t| literals(t));
        buffers.insert(v, buffer);
    }
    for &v in &group.outputs {
        buffers.insert(v, declare(&mut out, Role::Output, &graph.value(v).ty));
    }
    for &n in &group.nodes {
        let node = &graph.nodes[n as usize];
        let in_place = |s: &Slice| s.value == node.inputs[0] && s.whole == node.outputs[0];
        let types: Vec<TensorType> = node.inputs.iter().map(|&v| graph.value(v).ty.clone()).collect();
        let piece = match &node.op {
            Op::Reshape { shape } => reshape_program(&types[0], shape)?,
            Op::Pad { before, after, value } if group.slices.iter().any(in_place) => {
                border_program(&types[0], before, after, *value)
            }
            op => define(op, &types)?,
        };
        let mut map: Vec<Bound> = Vec::with_capacity(piece.tensors.len());
        for (i, decl) in piece.tensors.iter().enumerate() {
            let ty = TensorType { dtype: decl.dtype, shape: decl.shape.clone() };
            let value = node.inputs.iter().chain(&node.outputs).nth(i).copied();
            let slice = value.and_then(|v| group.slices.iter().find(|s| s.value == v));
            if let Some(slice) = slice {
                map.push(Bound::Slice(whole(group, slice)?, slice.first.clone()));
                continue;
            }
            map.push(match value {
                None => Bound::Buffer(declare(&mut out, Role::Temporary, &ty)),
                Some(v) => match (buffers.get(&v), scalar_constant(graph, v)) {
                    (Some(&b), _) => Bound::Buffer(b),
                    (None, Some(s)) if i < node.inputs.len() => Bound::Scalar(s),
                    (None, _) if i < node.inputs.len() => {
                        return Err(Error::Internal(format!("group {} reads %{}, not its input", group.name, v.0)));
                    }
                    (None, _) => {
                        let b = declare(&mut out, Role::Temporary, &ty);
                        buffers.insert(v, b);
                        Bound::Buffer(b)
                    }
                },
            });
        }
        let mut definitions = vec![];
        for definition in piece.definitions {
            let mut split = parts.split(renumber(definition, &map)?)?;
            if split.len() > 1 {
                parts.add(&mut out, &mut split);
            }
            definitions.extend(split);
        }
        if matches!(node.op, Op::Concat { .. }) {
            parts.add(&mut out, &mut definitions);
        }
        out.definitions.extend(definitions);
    }
    Ok(out)
}

/// The values of a constant that the code of the kernel may depend on: a small matrix of finite floats with many elements
/// whose products are not arithmetic, 0, 1 and -1. Other constants are read from memory alone, so that kernels that differ
/// in their weights only stay equal.
pub fn literals(t: &Tensor) -> Option<Literals> {
    const MOST: usize = 64;
    if !matches!(t.dtype, DType::F32 | DType::F64) || t.shape.len() < 2 || t.is_empty() || t.len() > MOST {
        return None;
    }
    let values: Vec<Scalar> = t.data.chunks_exact(t.dtype.bytes()).map(|bytes| scalar(t.dtype, bytes)).collect();
    let floats = || values.iter().map(|s| Value::from(*s).as_f64());
    let trivial = floats().filter(|v| [0.0, 1.0, -1.0].contains(v)).count();
    (floats().all(f64::is_finite) && 4 * trivial >= values.len()).then(|| Literals::new(values.iter().copied()))
}

/// The counterpart in the group's program of a tensor of an operator's program.
enum Bound {
    Buffer(BufferId),
    /// It lies in a buffer, from an element on.
    Slice(BufferId, Vec<i64>),
    Scalar(Scalar),
}

/// The buffer that a slice lies in, an input or an output of the group.
fn whole(group: &Group, slice: &Slice) -> Result<BufferId> {
    let position = group.inputs.iter().chain(&group.outputs).position(|&v| v == slice.whole);
    let position = position.ok_or_else(|| Error::Internal(format!("group {} has a slice of nothing", group.name)))?;
    Ok(BufferId(position as u32))
}

fn renumber(mut definition: Definition, map: &[Bound]) -> Result<Definition> {
    match map[definition.target.0 as usize] {
        Bound::Buffer(b) => definition.target = b,
        Bound::Slice(b, ref first) => {
            definition.target = b;
            for (place, &first) in definition.write.iter_mut().zip(first) {
                *place = std::mem::take(place).offset(first);
            }
        }
        Bound::Scalar(_) => return Err(Error::Internal("an operator writes its input".into())),
    }
    let mut bound = |mut access: Access| match map[access.buffer.0 as usize] {
        Bound::Buffer(b) => {
            access.buffer = b;
            Expr::Load(access)
        }
        Bound::Slice(b, ref first) => {
            access.buffer = b;
            for (place, &first) in access.index.iter_mut().zip(first) {
                if let Index::Affine(place) = place {
                    *place = std::mem::take(place).offset(first);
                }
            }
            Expr::Load(access)
        }
        Bound::Scalar(s) => guarded(s, &access.guard, access.otherwise),
    };
    definition.body = definition.body.rewrite_loads(&mut bound);
    definition.computed.iter_mut().for_each(|(_, e)| *e = e.rewrite_loads(&mut bound));
    Ok(definition)
}

/// A guarded read of a scalar: a choice between it and the value outside.
fn guarded(value: Scalar, guard: &[Affine], otherwise: Option<Scalar>) -> Expr {
    use crate::expr::CompareOp::Ge;
    let outside = otherwise.unwrap_or(value);
    guard.iter().fold(Expr::Const(value), |inner, g| {
        let holds = Expr::compare(Ge, Expr::Index(g.clone()), Expr::Const(Scalar::i64(0)));
        Expr::select(holds, inner, Expr::Const(outside))
    })
}

/// The value of a constant of one element.
pub fn scalar_constant(graph: &Graph, v: ValueId) -> Option<Scalar> {
    graph.constant(v).and_then(|t| scalar_of(t))
}

fn scalar_of(t: &Tensor) -> Option<Scalar> {
    (t.len() == 1).then(|| scalar(t.dtype, &t.data))
}

fn scalar(dtype: DType, little_endian: &[u8]) -> Scalar {
    let mut bytes = [0; 8];
    bytes[..little_endian.len()].copy_from_slice(little_endian);
    Scalar { dtype, bits: u64::from_le_bytes(bytes) }
}

/// Padding of a value that lies in its place already: a definition for each side of each dimension that has some.
fn border_program(ty: &TensorType, before: &[i64], after: &[i64], value: u64) -> Program {
    let shape: Vec<i64> = (0..before.len()).map(|d| before[d] + ty.shape[d] + after[d]).collect();
    let side = |d: usize, first: i64, count: i64| {
        // Dimensions before this one have their sides already.
        let extent = |k: usize| match k.cmp(&d) {
            Ordering::Less => ty.shape[k],
            Ordering::Equal => count,
            Ordering::Greater => shape[k],
        };
        let place = |k: usize| match k.cmp(&d) {
            Ordering::Less => before[k],
            Ordering::Equal => first,
            Ordering::Greater => 0,
        };
        Definition {
            target: BufferId(1),
            outer: shape.len(),
            iterators: (0..shape.len()).map(|k| Iterator::new(format!("i{k}"), extent(k))).collect(),
            write: (0..shape.len()).map(|k| Affine::var(Var(k as u32)).offset(place(k))).collect(),
            computed: vec![],
            reduce: None,
            conditions: vec![],
            body: Expr::Const(Scalar { dtype: ty.dtype, bits: value }),
        }
    };
    let sides = (0..shape.len()).flat_map(|d| [(d, 0, before[d]), (d, before[d] + ty.shape[d], after[d])]);
    Program {
        definitions: sides.filter(|s| s.2 > 0).map(|(d, first, count)| side(d, first, count)).collect(),
        tensors: vec![
            TensorDecl::new("x", ty.dtype, &ty.shape[..], Role::Input),
            TensorDecl::new("y", ty.dtype, shape, Role::Output),
        ],
    }
}

fn reshape_program(ty: &TensorType, shape: &[i64]) -> Result<Program> {
    let Some(index) = affine_reshape(&ty.shape, shape) else {
        return Err(Error::Internal(format!("a reshape from {:?} to {shape:?} inside a group", ty.shape)));
    };
    let decl = |name: &str, shape: &[i64], role| TensorDecl::new(name, ty.dtype, shape, role);
    let iterators: Vec<Iterator> =
        shape.iter().enumerate().map(|(i, &extent)| Iterator::new(format!("i{i}"), extent)).collect();
    Ok(Program {
        tensors: vec![decl("x", &ty.shape, Role::Input), decl("y", shape, Role::Output)],
        definitions: vec![Definition {
            target: BufferId(1),
            outer: iterators.len(),
            write: (0..shape.len() as u32).map(|i| Affine::var(Var(i))).collect(),
            computed: vec![],
            iterators,
            reduce: None,
            conditions: vec![],
            body: Expr::load(BufferId(0), index),
        }],
    })
}
