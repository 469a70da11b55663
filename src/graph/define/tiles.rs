//! Transforms of the overlapping tiles of an image, and of the products of tiles: minimal filtering F(m, r) along each axis.
//!
//! Operands beside the first are the matrices of the axes, applied one axis after the other; an axis whose matrix has one
//! column is left as it is. What lies beyond the image is zero; what lies beyond the result is left out.

use crate::expr::{Affine, BinaryOp, BufferId, Expr};
use crate::graph::define::space::{Build, Space};
use crate::runtime::DType;
use std::slice::from_ref;

const POSITION: [[&str; 3]; 3] = [["w", "", ""], ["h", "w", ""], ["d", "h", "w"]];
const PLACE: [[&str; 3]; 3] = [["b", "", ""], ["a", "b", ""], ["z", "a", "b"]];

/// `V[a.., n, t.., c] = Σ over k.. of P[a,k].. · x[n, m·t + k - pad.., c]` with tiles `m..`, numbers of tiles `t..`.
pub(super) fn winograd_input(b: &mut Build, tile: &[i64], pad: &[i64], tiles: &[i64]) {
    let dims = tile.len();
    let image = b.inputs[0].shape.clone();
    let alpha: Vec<i64> = (0..dims).map(|d| b.inputs[1 + d].shape[1]).collect();
    let axes: Vec<usize> = (0..dims).filter(|&d| alpha[d] > 1).collect();
    let mut from: Option<BufferId> = None;
    for (stage, &d) in axes.iter().enumerate() {
        let result = stage + 1 == axes.len();
        let is_done = |e: usize| axes[..stage].contains(&e);
        let mut space = Space::new();
        let mut places: Vec<Affine> = vec![Affine::constant(0); dims];
        if result {
            (0..dims).for_each(|e| places[e] = space.iterator(PLACE[dims - 1][e], alpha[e]));
        }
        let n = space.iterator("n", image[0]);
        // The tile along an axis, or the position where that is transformed later; padding is part of the first tile.
        let mut at = vec![];
        for e in 0..dims {
            let later = !result && axes[stage + 1..].contains(&e);
            let name = POSITION[dims - 1][e];
            let covered = tile[e] * (tiles[e] - 1) + alpha[e];
            at.push(if later { space.iterator(name, covered) } else { space.iterator(format!("t{name}"), tiles[e]) });
            if !result && (is_done(e) || e == d) {
                places[e] = space.iterator(PLACE[dims - 1][e], alpha[e]);
            }
        }
        let c = space.iterator("c", image[dims + 1]);
        let write = match result {
            true => [&places[..], from_ref(&n), &at, from_ref(&c)].concat(),
            false => space.subscripts(),
        };
        let target = match result {
            true => b.target(),
            false => b.temporary("t", &extents(&space)),
        };
        space.reduced();
        let k = space.iterator("k", alpha[d]);
        let position = |e: usize| if e == d { at[e].scale(tile[e]).add_scaled(&k, 1) } else { at[e].clone() };
        let mut index = vec![n];
        let mut conditions = vec![];
        for e in 0..dims {
            match from {
                None => {
                    let position = position(e).offset(-pad[e]);
                    conditions.extend(space.inside(&position, image[1 + e]));
                    index.push(position);
                }
                Some(_) if is_done(e) => index.extend([at[e].clone(), places[e].clone()]),
                Some(_) => index.push(position(e)),
            }
        }
        index.push(c);
        let matrix = Expr::load(b.input(1 + d), vec![places[d].clone(), k]);
        let body = matrix * Expr::load(from.unwrap_or(b.input(0)), index);
        b.define(target, space, write, Some(BinaryOp::Add), conditions, body);
        from = Some(target);
    }
}

/// `U[a.., c, f] = Σ over k.. of G[a,k].. · w[f, c, k..]` in f64, cast to f32.
pub(super) fn winograd_weights(b: &mut Build) {
    let dims = b.inputs.len() - 1;
    let mut shape = b.inputs[0].shape.clone();
    let axes: Vec<usize> = (0..dims).filter(|&d| shape[2 + d] > 1).collect();
    let mut from: Option<BufferId> = None;
    for (stage, &d) in axes.iter().enumerate() {
        let taps = shape[2 + d];
        shape[2 + d] = b.inputs[1 + d].shape[0];
        let mut space = Space::new();
        let (target, write, mut index);
        if stage + 1 == axes.len() {
            let at: Vec<Affine> = (0..dims).map(|e| space.iterator(PLACE[dims - 1][e], shape[2 + e])).collect();
            let (c, f) = (space.iterator("c", shape[1]), space.iterator("f", shape[0]));
            let place = at.iter().zip(&shape[2..]).fold(Affine::constant(0), |p, (a, &e)| p.scale(e).add_scaled(a, 1));
            target = b.temporary_of(DType::F64, "u", &b.output.shape.clone());
            write = vec![place, c.clone(), f.clone()];
            index = [vec![f, c], at].concat();
        } else {
            let names = ["f", "c"].iter().chain(&PLACE[dims - 1]);
            index = names.zip(&shape).map(|(name, &extent)| space.iterator(*name, extent)).collect();
            target = b.temporary_of(DType::F64, "t", &shape);
            write = index.clone();
        }
        space.reduced();
        let k = space.iterator("k", taps);
        let row = std::mem::replace(&mut index[2 + d], k.clone());
        let value = match from {
            None => Expr::cast(DType::F64, Expr::load(b.input(0), index)),
            Some(from) => Expr::load(from, index),
        };
        let body = Expr::load(b.input(1 + d), vec![row, k]) * value;
        b.define(target, space, write, Some(BinaryOp::Add), vec![], body);
        from = Some(target);
    }
    if let Some(u) = from {
        let space = Space::over(&b.output.shape);
        let body = Expr::cast(b.output.dtype, Expr::load(u, space.subscripts()));
        b.assign(b.target(), space, body);
    }
}

/// `y[n, m·t + i.., f] = Σ over k.. of A[i,k].. · M[k.., n, t.., f]`.
pub(super) fn winograd_output(b: &mut Build, size: &[i64]) {
    let dims = size.len();
    let products = b.inputs[0].shape.clone();
    let (alpha, batch, tiles) = (&products[..dims], products[dims], &products[dims + 1..2 * dims + 1]);
    let tile: Vec<i64> = (0..dims).map(|d| b.inputs[1 + d].shape[0]).collect();
    let covered: Vec<i64> = (0..dims).map(|d| tiles[d] * tile[d]).collect();
    let uncut = [&[batch], &covered[..], &products[2 * dims + 1..]].concat();
    let axes: Vec<usize> = (0..dims).filter(|&d| alpha[d] > 1).collect();
    let mut from: Option<BufferId> = None;
    for (stage, &d) in axes.iter().enumerate() {
        let result = stage + 1 == axes.len();
        let mut space = Space::new();
        let n = space.iterator("n", batch);
        let (mut at, mut places) = (vec![], vec![]);
        for e in 0..dims {
            at.push(space.iterator(format!("t{}", POSITION[dims - 1][e]), tiles[e]));
            let extent = if axes[stage + 1..].contains(&e) { alpha[e] } else { tile[e] };
            let only = result && extent == 1;
            places.push(if only { Affine::constant(0) } else { space.iterator(PLACE[dims - 1][e], extent) });
        }
        let f = space.iterator("f", products[2 * dims + 1]);
        let (target, write) = if result {
            let to: Vec<Affine> = (0..dims).map(|e| at[e].scale(tile[e]).add_scaled(&places[e], 1)).collect();
            let target = if covered == size { b.target() } else { b.temporary("uncut", &uncut) };
            (target, [from_ref(&n), &to[..], from_ref(&f)].concat())
        } else {
            (b.temporary("s", &extents(&space)), space.subscripts())
        };
        space.reduced();
        let k = space.iterator("k", alpha[d]);
        let place = |e: usize| if e == d { k.clone() } else { places[e].clone() };
        let index: Vec<Affine> = match from {
            None => (0..dims).map(place).chain([n]).chain(at).chain([f]).collect(),
            Some(_) => [n].into_iter().chain((0..dims).flat_map(|e| [at[e].clone(), place(e)])).chain([f]).collect(),
        };
        let matrix = Expr::load(b.input(1 + d), vec![places[d].clone(), k.clone()]);
        let body = matrix * Expr::load(from.unwrap_or(b.input(0)), index);
        b.define(target, space, write, Some(BinaryOp::Add), vec![], body);
        from = Some(target);
    }
    if let Some(uncut) = from.filter(|_| covered != size) {
        let space = Space::over(&b.output.shape);
        let body = Expr::load(uncut, space.subscripts());
        b.assign(b.target(), space, body);
    }
}

fn extents(space: &Space) -> Vec<i64> {
    space.iterators.iter().map(|i| i.extent).collect()
}
