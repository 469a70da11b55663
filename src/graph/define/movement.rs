//! Operators that move data: every output element is one input element.

use crate::expr::Affine;
use crate::expr::{Access, BinaryOp, CompareOp, Expr, Index, Scalar};
use crate::graph::define::space::{Build, Space};
use crate::graph::op::Op;

pub(super) fn define(b: &mut Build, op: &Op) {
    let x = b.input(0);
    let shape = b.inputs[0].shape.clone();
    let output = b.output.shape.clone();
    let space = Space::over(&output);
    let body = match op {
        Op::Transpose { perm } => {
            let mut index = vec![Affine::constant(0); perm.len()];
            for (d, &p) in perm.iter().enumerate() {
                index[p] = space.var(d);
            }
            Expr::load(x, index)
        }
        Op::Expand { .. } => b.broadcast(0, &space),
        Op::Slice { starts, steps, .. } => {
            let index = (0..shape.len()).map(|d| space.var(d).scale(steps[d]).offset(starts[d])).collect();
            Expr::load(x, index)
        }
        Op::Pad { before, value, .. } => {
            let index: Vec<Affine> = before.iter().enumerate().map(|(d, &p)| space.var(d).offset(-p)).collect();
            let guard = index.iter().zip(&shape).flat_map(|(i, &extent)| space.inside(i, extent)).collect();
            guarded(x, index, guard, Scalar { dtype: b.output.dtype, bits: *value })
        }
        Op::Block { block } => {
            let mut index: Vec<Affine> = (0..shape.len()).map(|d| space.var(d)).collect();
            index[1] = space.var(1).scale(*block as i64).add_scaled(&space.var(shape.len()), 1);
            let guard = space.inside(&index[1], shape[1]);
            guarded(x, index, guard, Scalar::of(b.output.dtype, 0.0))
        }
        Op::Gather { axis } => {
            let rank = b.inputs[1].shape.len();
            let index = (*axis..axis + rank).map(|d| space.var(d)).collect();
            let chosen = subscript(b, index, shape[*axis]);
            let before = (0..*axis).map(|d| Index::Affine(space.var(d)));
            let after = (axis + rank..output.len()).map(|d| Index::Affine(space.var(d)));
            gather(b, before.chain([chosen]).chain(after).collect())
        }
        Op::Lookup => {
            let rank = b.inputs[1].shape.len();
            let chosen = Expr::load(b.input(1), (0..rank).map(|d| space.var(d)).collect());
            let after = (rank..output.len()).map(|d| Index::Affine(space.var(d)));
            gather(b, [Index::Value(Box::new(chosen))].into_iter().chain(after).collect())
        }
        Op::Table => {
            let place = Expr::load(b.input(1), space.subscripts());
            gather(b, vec![Index::Value(Box::new(place))])
        }
        Op::GatherElements { axis } => {
            let mut index: Vec<Index> = (0..output.len()).map(|d| Index::Affine(space.var(d))).collect();
            index[*axis] = subscript(b, space.subscripts(), shape[*axis]);
            gather(b, index)
        }
        Op::GatherNd { batch_dims } => {
            let rank = b.inputs[1].shape.len() - 1;
            let depth = b.inputs[1].shape[rank] as usize;
            let mut index: Vec<Index> = (0..*batch_dims).map(|d| Index::Affine(space.var(d))).collect();
            for k in 0..depth {
                let subscripts = (0..rank).map(|d| space.var(d)).chain([Affine::constant(k as i64)]).collect();
                index.push(subscript(b, subscripts, shape[batch_dims + k]));
            }
            index.extend((rank..output.len()).map(|d| Index::Affine(space.var(d))));
            gather(b, index)
        }
        Op::Reshape { .. } => return reshape(b),
        Op::Concat { axis } => return concat(b, *axis),
        Op::Unblock { .. } => return unblock(b),
        Op::Upsample { factors } => return upsample(b, factors),
        _ => unreachable!("only operators that move data come here"),
    };
    b.assign(b.target(), space, body);
}

fn guarded(buffer: crate::expr::BufferId, index: Vec<Affine>, guard: Vec<Affine>, otherwise: Scalar) -> Expr {
    let otherwise = (!guard.is_empty()).then_some(otherwise);
    Expr::Load(Access { buffer, index: index.into_iter().map(Index::Affine).collect(), guard, otherwise })
}

fn gather(b: &Build, index: Vec<Index>) -> Expr {
    Expr::Load(Access { buffer: b.input(0), index, guard: vec![], otherwise: None })
}

/// The element of the index tensor at `subscripts` as a subscript of a dimension; negative values count from its end.
pub(super) fn subscript(b: &Build, subscripts: Vec<Affine>, extent: i64) -> Index {
    let value = Expr::load(b.input(1), subscripts);
    let c = |v: i64| crate::graph::define::space::constant(b.inputs[1].dtype, v as f64);
    let wrapped = Expr::binary(BinaryOp::Add, value.clone(), c(extent));
    Index::Value(Box::new(Expr::select(Expr::compare(CompareOp::Lt, value.clone(), c(0)), wrapped, value)))
}

/// One definition for each operand.
fn concat(b: &mut Build, axis: usize) {
    let mut offset = 0;
    for i in 0..b.inputs.len() {
        let shape = b.inputs[i].shape.clone();
        let space = Space::over(&shape);
        let mut write = space.subscripts();
        let body = Expr::load(b.input(i), write.clone());
        write[axis] = write[axis].clone().offset(offset);
        b.define(b.target(), space, write, None, vec![], body);
        offset += shape[axis];
    }
}

/// Whole blocks, then the channels of a last, partial block.
fn unblock(b: &mut Build) {
    let shape = b.inputs[0].shape.clone();
    let output = b.output.shape.clone();
    let (last, block, channels) = (shape.len() - 1, shape[shape.len() - 1], output[1]);
    for (first, blocks, width) in [(0, channels / block, block), (channels / block, 1, channels % block)] {
        if blocks == 0 || width == 0 {
            continue;
        }
        let mut space = Space::new();
        let n = space.iterator("n", shape[0]);
        let outer = space.iterator("co", blocks).offset(first);
        let inner = space.iterator("ci", width);
        let spatial: Vec<Affine> = (2..last).map(|d| space.iterator(format!("i{d}"), shape[d])).collect();
        let channel = outer.scale(block).add_scaled(&inner, 1);
        let body = Expr::load(b.input(0), [&[n.clone(), outer], &spatial[..], &[inner]].concat());
        b.define(b.target(), space, [&[n, channel], &spatial[..]].concat(), None, vec![], body);
    }
}

fn upsample(b: &mut Build, factors: &[i64]) {
    let shape = b.inputs[0].shape.clone();
    let mut space = Space::new();
    let (mut index, mut write) = (vec![], vec![]);
    for (d, &f) in factors.iter().enumerate() {
        let i = space.iterator(format!("i{d}"), shape[d]);
        index.push(i.clone());
        write.push(if f == 1 {
            i
        } else {
            let repeat = space.iterator(format!("r{d}"), f);
            i.scale(f).add_scaled(&repeat, 1)
        });
    }
    let body = Expr::load(b.input(0), index);
    b.define(b.target(), space, write, None, vec![], body);
}

/// Over the coarsest dimensions into which those of input and output both split, when they do.
fn reshape(b: &mut Build) {
    let (from, to) = (b.inputs[0].shape.clone(), b.output.shape.clone());
    let count: i64 = from.iter().product();
    if count == 0 {
        let body = crate::graph::define::space::constant(b.output.dtype, 0.0);
        return b.assign(b.target(), Space::over(&to), body);
    }
    // Products of leading extents, the places where either shape is cut.
    let cuts = |shape: &[i64]| {
        shape.iter().fold(vec![1i64], |mut out, extent| {
            out.push(out[out.len() - 1] * extent);
            out
        })
    };
    let (from_cuts, to_cuts) = (cuts(&from), cuts(&to));
    let mut boundaries = [from_cuts.clone(), to_cuts.clone()].concat();
    boundaries.sort_unstable();
    boundaries.dedup();
    if boundaries.windows(2).any(|w| w[1] % w[0] != 0) {
        return reshape_by_division(b, &from, &to);
    }
    let mut space = Space::new();
    let vars: Vec<Affine> =
        boundaries.windows(2).enumerate().map(|(i, w)| space.iterator(format!("i{i}"), w[1] / w[0])).collect();
    let subscripts = |cuts: &[i64]| -> Vec<Affine> {
        cuts.windows(2)
            .map(|c| {
                let pieces = (0..vars.len()).filter(|&i| c[0] <= boundaries[i] && boundaries[i + 1] <= c[1]);
                pieces.fold(Affine::constant(0), |a, i| {
                    a.scale(boundaries[i + 1] / boundaries[i]).add_scaled(&vars[i], 1)
                })
            })
            .collect()
    };
    let body = Expr::load(b.input(0), subscripts(&from_cuts));
    let write = subscripts(&to_cuts);
    b.define(b.target(), space, write, None, vec![], body);
}

fn reshape_by_division(b: &mut Build, from: &[i64], to: &[i64]) {
    let space = Space::over(to);
    let mut stride = 1;
    let mut linear = Affine::constant(0);
    for d in (0..to.len()).rev() {
        linear = linear.add_scaled(&space.var(d), stride);
        stride *= to[d];
    }
    let c = |v: i64| Expr::Const(Scalar::i64(v));
    let mut stride: i64 = from.iter().product();
    let mut index = vec![];
    for &extent in from {
        stride /= extent;
        let quotient = Expr::binary(BinaryOp::Div, Expr::Index(linear.clone()), c(stride));
        index.push(Index::Value(Box::new(Expr::binary(BinaryOp::Mod, quotient, c(extent)))));
    }
    let body = gather(b, index);
    b.assign(b.target(), space, body);
}
