//! Weights of minimal filtering: each filter transformed along its axes, in f64, as `define/tiles.rs` defines it.
//!
//! Lanes run over filters. The filters of a channel are widened, multiplied with the matrix of one axis after the other
//! and rounded; a strip of lanes is a contiguous piece of the result. Products are added in the order of the definition,
//! so that the bits are its bits.

use crate::runtime::{DType, Tensor};

/// Filters that are transformed at once: as many f32 as a cache line holds.
const LANES: usize = 16;
/// Channels of one strip of filters before the next strip: their taps fill whole cache lines.
const CHANNELS: usize = 16;

/// The matrix of an axis, in row-major order, and the number of positions of the axes before and after it.
struct Stage {
    matrix: Vec<f64>,
    taps: usize,
    rows: usize,
    before: usize,
    after: usize,
}

/// Weights (F, C, taps..) as places, C, F; `shape` is the type's, as [`infer`](crate::graph::infer) checks it.
pub(super) fn transform(weights: &Tensor, matrices: &[&Tensor], shape: &[i64]) -> Tensor {
    let mut out = Tensor::zeros(DType::F32, shape);
    let [_, channels, filters] = [0, 1, 2].map(|d| shape[d] as usize);
    let taps: usize = weights.shape[2..].iter().product::<i64>() as usize;
    if out.is_empty() {
        return out;
    }
    let stages = stages(&weights.shape[2..], matrices);
    let source = weights.data.as_chunks::<4>().0;
    let target = out.data.as_chunks_mut::<4>().0;
    let (mut from, mut to): (Vec<f64>, Vec<f64>) = (vec![], vec![]);
    for first in (0..channels).step_by(CHANNELS) {
        for f0 in (0..filters).step_by(LANES) {
            let lanes = LANES.min(filters - f0);
            for c in first..(first + CHANNELS).min(channels) {
                // Lanes without a filter keep numbers that nothing reads.
                from.resize(taps * LANES, 0.0);
                for lane in 0..lanes {
                    let filter = &source[((f0 + lane) * channels + c) * taps..][..taps];
                    let column = from.iter_mut().skip(lane).step_by(LANES);
                    column.zip(filter).for_each(|(x, w)| *x = f64::from(f32::from_le_bytes(*w)));
                }
                for stage in &stages {
                    stage.apply(&from, &mut to);
                    std::mem::swap(&mut from, &mut to);
                }
                for (place, x) in from.chunks_exact(LANES).enumerate() {
                    let strip = &mut target[(place * channels + c) * filters + f0..][..lanes];
                    strip.iter_mut().zip(x).for_each(|(y, &x)| *y = (x as f32).to_le_bytes());
                }
            }
        }
    }
    out
}

/// The stages of the axes with more than one tap, first to last.
fn stages(taps: &[i64], matrices: &[&Tensor]) -> Vec<Stage> {
    let mut extents: Vec<usize> = taps.iter().map(|&e| e as usize).collect();
    let mut stages = vec![];
    for (d, matrix) in matrices.iter().enumerate().filter(|(d, _)| taps[*d] > 1) {
        let (rows, taps) = (matrix.shape[0] as usize, extents[d]);
        let (before, after) = (extents[..d].iter().product(), extents[d + 1..].iter().product());
        stages.push(Stage { matrix: matrix.to_vec(), taps, rows, before, after });
        extents[d] = rows;
    }
    stages
}

impl Stage {
    fn apply(&self, from: &[f64], to: &mut Vec<f64>) {
        let run = self.after * LANES;
        to.resize(self.before * self.rows * run, 0.0);
        let outer = from.chunks_exact(self.taps * run).zip(to.chunks_exact_mut(self.rows * run));
        for (from, to) in outer {
            for (row, sums) in self.matrix.chunks_exact(self.taps).zip(to.chunks_exact_mut(run)) {
                // Slices of any length become vector code, which arrays of one strip do not. A sum begins with 0.
                if let &[a, b, c] = row {
                    let (x, rest) = from.split_at(run);
                    let (y, z) = rest.split_at(run);
                    for (((sum, x), y), z) in sums.iter_mut().zip(x).zip(y).zip(z) {
                        *sum = 0.0 + a * x + b * y + c * z;
                    }
                } else {
                    sums.fill(0.0);
                    for (g, x) in row.iter().zip(from.chunks_exact(run)) {
                        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += g * x);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::define::define;
    use crate::graph::fold;
    use crate::graph::op::Op;
    use crate::graph::tensor_type::TensorType;
    use crate::poly::reference;
    use crate::runtime::{DType, Tensor};

    /// Weights of this shape, transformed to so many places along each axis.
    fn transformed(shape: &[i64], places: &[i64], seed: u64) -> Tensor {
        let mut operands = vec![Tensor::seeded(DType::F32, shape, seed, 0, 2)];
        for (d, (&rows, &taps)) in places.iter().zip(&shape[2..]).enumerate() {
            let mut matrix = Tensor::seeded(DType::F64, &[rows, taps], seed, 1 + d as u64, 2);
            // Some zeros, and numbers that are not f32.
            let numbers = matrix.to_vec::<f64>().into_iter().enumerate();
            let numbers: Vec<f64> = numbers.map(|(i, g)| if i % 5 == 1 { 0.0 } else { g / 3.0 }).collect();
            matrix = Tensor::new(&matrix.shape, &numbers);
            operands.push(matrix);
        }
        let operands: Vec<&Tensor> = operands.iter().collect();
        let types: Vec<TensorType> = operands.iter().map(|t| TensorType::of(t)).collect();
        let defined = reference::evaluate(&define(&Op::WinogradWeights, &types).unwrap(), &operands).unwrap();
        let folded = fold::evaluate(&Op::WinogradWeights, &operands).unwrap();
        assert!(folded == defined, "{shape:?} to {places:?}: folding differs from the definition");
        folded.into_iter().next().unwrap()
    }

    #[test]
    fn transformed_weights_are_the_definition() {
        let shapes: [(&[i64], &[i64]); 9] = [
            (&[1, 1, 3], &[4]),
            (&[37, 3, 5], &[8]),
            (&[5, 19, 3, 3], &[6, 6]),
            (&[16, 16, 3, 3], &[8, 4]),
            (&[33, 17, 3, 5], &[4, 6]),
            (&[18, 2, 1, 7], &[1, 8]),
            (&[18, 2, 7, 1], &[8, 1]),
            (&[17, 3, 3, 1, 3], &[4, 1, 6]),
            (&[3, 2, 3, 3, 3], &[4, 5, 6]),
        ];
        for (seed, (shape, places)) in shapes.into_iter().enumerate() {
            let u = transformed(shape, places, seed as u64);
            assert_eq!(u.shape, [places.iter().product(), shape[1], shape[0]]);
        }
        assert!(transformed(&[0, 3, 3], &[4], 1).is_empty() && transformed(&[4, 0, 3], &[4], 1).is_empty());
    }

    #[test]
    fn transformed_weights_are_rounded_once() {
        // In f32 the sum would be 0; after a rounding of the first axis too.
        let w = Tensor::new(&[1, 1, 1, 2], &[1f32, 1.0]);
        let (one, g) = (Tensor::new(&[1, 1], &[1f64]), Tensor::new(&[1, 2], &[1.0 + 1e-10, -1.0]));
        let u = fold::evaluate(&Op::WinogradWeights, &[&w, &one, &g]).unwrap().remove(0);
        assert_eq!(u.to_vec::<f32>(), [(1.0 + 1e-10 - 1.0f64) as f32]);
    }

    #[test]
    fn products_are_added_in_the_order_of_the_taps() {
        for rest in [0, 2] {
            let g = [&[1.0, 1e16, -1e16], &vec![0.0; rest][..]].concat();
            let w = Tensor::new(&[1, 1, g.len() as i64], &vec![1f32; g.len()]);
            let g = Tensor::new(&[1, g.len() as i64], &g);
            let u = fold::evaluate(&Op::WinogradWeights, &[&w, &g]).unwrap().remove(0);
            assert_eq!(u.to_vec::<f32>(), [0.0], "{} taps", 3 + rest);
        }
    }
}
