//! Transforms of the overlapping tiles of an image, and of the products of tiles: minimal filtering F(m, r) along each axis.
//!
//! Operands beside the first are the matrices of the axes, applied one axis after the other; an axis whose matrix has one
//! column is left as it is. What lies beyond the image is zero; what lies beyond the result is left out.

use crate::expr::{Affine, BinaryOp, BufferId, Expr};
use crate::graph::define::space::{Build, Space};
use crate::runtime::DType;

const POSITION: [[&str; 3]; 3] = [["w", "", ""], ["h", "w", ""], ["d", "h", "w"]];
const PLACE: [[&str; 3]; 3] = [["b", "", ""], ["a", "b", ""], ["z", "a", "b"]];

/// One axis of a stage of a transform: iterators over phases (where there are several), tiles or positions, and places.
#[derive(Clone)]
struct Along {
    phase: Option<Affine>,
    position: Affine,
    place: Option<Affine>,
}

impl Along {
    /// The subscripts of the axis in the result of a stage, with this place in it.
    fn subscripts(&self, place: Option<Affine>) -> impl Iterator<Item = Affine> {
        self.phase.clone().into_iter().chain([self.position.clone()]).chain(place)
    }

    /// Element `k` of the tile, among elements `dilation` apart.
    fn element(&self, tile: i64, dilation: i64, k: &Affine) -> Affine {
        let element = self.position.scale(tile).add_scaled(k, 1).scale(dilation);
        self.phase.iter().fold(element, |e, phase| e.add_scaled(phase, 1))
    }
}

/// Subscripts of transformed tiles: places.., images, tiles.., channels, where the last place has the groups of channels
/// and an image its phases.
fn transformed(
    mut places: Vec<Affine>,
    [group, n, channel]: [&Affine; 3],
    groups: i64,
    along: &[Along],
    dilation: &[i64],
) -> Vec<Affine> {
    if let Some(last) = places.last_mut() {
        *last = last.scale(groups).add_scaled(group, 1);
    }
    let image = along.iter().zip(dilation).fold(n.clone(), |n, (axis, &d)| {
        let n = n.scale(d);
        axis.phase.iter().fold(n, |n, phase| n.add_scaled(phase, 1))
    });
    let tiles = along.iter().map(|axis| axis.position.clone());
    places.into_iter().chain([image]).chain(tiles).chain([channel.clone()]).collect()
}

/// The iterator over the phases of an axis that has several.
fn phase(space: &mut Space, name: &str, dilation: i64) -> Option<Affine> {
    (dilation > 1).then(|| space.iterator(format!("p{name}"), dilation))
}

/// `V[a.., n, t.., c] = Σ over k.. of P[a,k].. · x[n, m·t + k - pad.., c]` with tiles `m..`, numbers of tiles `t..`. With
/// dilations the positions are `d·(m·t + k) + p - pad` for each phase p, and n is `n·d + p`; with groups g the last place is
/// `a·groups + g` and the channel of x `g·C + c`.
pub(super) fn winograd_input(b: &mut Build, [tile, pad, tiles]: [&[i64]; 3], dilation: &[i64], group: i64) {
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
        let mut g = Affine::constant(0);
        if result {
            (0..dims).for_each(|e| places[e] = space.iterator(PLACE[dims - 1][e], alpha[e]));
            if group > 1 {
                g = space.iterator("g", group);
            }
        }
        let n = space.iterator("n", image[0]);
        // The tile along an axis, or the position where that is transformed later; padding is part of the first tile.
        let mut along: Vec<Along> = vec![];
        for e in 0..dims {
            let later = !result && axes[stage + 1..].contains(&e);
            let name = POSITION[dims - 1][e];
            let covered = dilation[e] * (tile[e] * (tiles[e] - 1) + alpha[e]);
            let phase = if later { None } else { phase(&mut space, name, dilation[e]) };
            let iterator =
                if later { space.iterator(name, covered) } else { space.iterator(format!("t{name}"), tiles[e]) };
            let placed = !result && (is_done(e) || e == d);
            let place = placed.then(|| space.iterator(PLACE[dims - 1][e], alpha[e]));
            places[e] = place.clone().unwrap_or(places[e].clone());
            along.push(Along { phase, position: iterator, place });
        }
        let channels = if result { image[dims + 1] / group } else { image[dims + 1] };
        let c = space.iterator("c", channels);
        let write = match result {
            true => transformed(places.clone(), [&g, &n, &c], group, &along, dilation),
            false => space.subscripts(),
        };
        let target = match result {
            true => b.target(),
            false => b.temporary("t", &extents(&space)),
        };
        space.reduced();
        let k = space.iterator("k", alpha[d]);
        let position =
            |e: usize| if e == d { along[e].element(tile[e], dilation[e], &k) } else { along[e].position.clone() };
        let mut index = vec![n];
        let mut conditions = vec![];
        for e in 0..dims {
            match from {
                None => {
                    let position = match alpha[e] {
                        1 => along[e].element(tile[e], dilation[e], &Affine::constant(0)),
                        _ => position(e).offset(-pad[e]),
                    };
                    conditions.extend(space.inside(&position, image[1 + e]));
                    index.push(position);
                }
                Some(_) if is_done(e) => index.extend(along[e].subscripts(Some(places[e].clone()))),
                Some(_) if alpha[e] == 1 => index.extend(along[e].subscripts(None)),
                Some(_) => index.push(position(e)),
            }
        }
        index.push(g.scale(channels).add_scaled(&c, 1));
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
            let position: Vec<Affine> = (0..dims).map(|e| space.iterator(PLACE[dims - 1][e], shape[2 + e])).collect();
            let (c, f) = (space.iterator("c", shape[1]), space.iterator("f", shape[0]));
            let place =
                position.iter().zip(&shape[2..]).fold(Affine::constant(0), |p, (a, &e)| p.scale(e).add_scaled(a, 1));
            target = b.temporary_of(DType::F64, "u", &b.output.shape.clone());
            write = vec![place, c.clone(), f.clone()];
            index = [vec![f, c], position].concat();
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

/// `y[n, m·t + i.., f] = Σ over k.. of A[i,k].. · M[k.., n, t.., f]`; with dilations and groups as [`winograd_input`] has
/// them, `y[n, d·(m·t + i) + p.., g·F + f]`.
pub(super) fn winograd_output(b: &mut Build, size: &[i64], dilation: &[i64], group: i64) {
    let dims = size.len();
    let products = b.inputs[0].shape.clone();
    let tiles = &products[dims + 1..2 * dims + 1];
    let alpha: Vec<i64> = (0..dims).map(|d| b.inputs[1 + d].shape[1]).collect();
    let tile: Vec<i64> = (0..dims).map(|d| b.inputs[1 + d].shape[0]).collect();
    let covered: Vec<i64> = (0..dims).map(|d| dilation[d] * tiles[d] * tile[d]).collect();
    let (batch, filters) = (b.output.shape[0], products[2 * dims + 1]);
    let uncut = [&[batch], &covered[..], &[group * filters]].concat();
    let axes: Vec<usize> = (0..dims).filter(|&d| alpha[d] > 1).collect();
    let mut from: Option<BufferId> = None;
    for (stage, &d) in axes.iter().enumerate() {
        let result = stage + 1 == axes.len();
        let mut space = Space::new();
        let n = space.iterator("n", batch);
        let mut along: Vec<Along> = vec![];
        for e in 0..dims {
            let name = POSITION[dims - 1][e];
            let phase = phase(&mut space, name, dilation[e]);
            let iterator = space.iterator(format!("t{name}"), tiles[e]);
            let extent = if axes[stage + 1..].contains(&e) { alpha[e] } else { tile[e] };
            let only = result && extent == 1;
            let place = (!only).then(|| space.iterator(PLACE[dims - 1][e], extent));
            along.push(Along { phase, position: iterator, place });
        }
        let g = (group > 1).then(|| space.iterator("g", group));
        let f = space.iterator("f", filters);
        let place_of = |e: usize| along[e].place.clone().unwrap_or(Affine::constant(0));
        let (target, write) = if result {
            let to = (0..dims).map(|e| along[e].element(tile[e], dilation[e], &place_of(e)));
            let filter = g.iter().fold(f.clone(), |f, g| f.add_scaled(g, filters));
            let write = [n.clone()].into_iter().chain(to).chain([filter]).collect();
            (if covered == size { b.target() } else { b.temporary("uncut", &uncut) }, write)
        } else {
            (b.temporary("s", &extents(&space)), space.subscripts())
        };
        space.reduced();
        let k = space.iterator("k", alpha[d]);
        let place = |e: usize| if e == d { k.clone() } else { place_of(e) };
        let index: Vec<Affine> = match from {
            None => {
                let part = g.clone().unwrap_or_default();
                transformed((0..dims).map(place).collect(), [&part, &n, &f], group, &along, dilation)
            }
            Some(_) => {
                let subscripts = (0..dims).flat_map(|e| along[e].subscripts(Some(place(e))));
                [n].into_iter().chain(subscripts).chain(g).chain([f]).collect()
            }
        };
        let matrix = Expr::load(b.input(1 + d), vec![place_of(d), k.clone()]);
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
