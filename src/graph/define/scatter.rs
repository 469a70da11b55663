//! Scatters: a copy of the data, then elements replaced or updated at subscripts from data, in the order of the indices.

use crate::expr::{Affine, BinaryOp, Expr, Index};
use crate::graph::define::movement::subscript;
use crate::graph::define::space::{Build, Space};

/// data, indices, updates: `axis` of each update's place is an index; those of one extent are stretched.
pub(super) fn elements(b: &mut Build, axis: usize, reduction: Option<BinaryOp>) {
    copy(b);
    let space = Space::over(&b.inputs[2].shape);
    let mut index: Vec<Index> = space.subscripts().into_iter().map(Index::Affine).collect();
    let stretched = |d: usize| b.inputs[1].shape[d] == 1 && b.inputs[2].shape[d] != 1;
    let subscripts = (0..index.len()).map(|d| if stretched(d) { Affine::constant(0) } else { space.var(d) });
    index[axis] = subscript(b, subscripts.collect(), b.inputs[0].shape[axis]);
    let body = Expr::load(b.input(2), space.subscripts());
    b.scatter(b.target(), space, index, reduction, body);
}

/// data, indices, updates: the last dimension of the indices has the first subscripts.
pub(super) fn slices(b: &mut Build, reduction: Option<BinaryOp>) {
    copy(b);
    let rank = b.inputs[1].shape.len() - 1;
    let depth = b.inputs[1].shape[rank];
    let space = Space::over(&b.inputs[2].shape);
    let chosen = |k: i64| {
        let subscripts: Vec<Affine> = (0..rank).map(|d| space.var(d)).chain([Affine::constant(k)]).collect();
        subscript(b, subscripts, b.inputs[0].shape[k as usize])
    };
    let within = (rank..space.outer()).map(|d| Index::Affine(space.var(d)));
    let index = (0..depth).map(chosen).chain(within).collect();
    let body = Expr::load(b.input(2), space.subscripts());
    b.scatter(b.target(), space, index, reduction, body);
}

fn copy(b: &mut Build) {
    let space = Space::over(&b.output.shape);
    let body = Expr::load(b.input(0), space.subscripts());
    b.assign(b.target(), space, body);
}
