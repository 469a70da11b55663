//! One level of Strassen's recursion for products with constant weights ("Gaussian Elimination is not Optimal", Numerische
//! Mathematik 13, 1969): seven products of halves instead of eight, beside the product by its definition.
//!
//! The sums of weights are constants. Those of the image and of the products are operators as others are, so that they join
//! the kernels of products.

use crate::expr::BinaryOp;
use crate::graph::egraph::network::Network;
use crate::graph::op::Op;
use crate::graph::rules::pattern::Match;
use crate::graph::rules::toom_cook::rounding_error;
use crate::runtime::DType;
use egg::Id;

/// Fewest multiply-adds of a product that competes: with fewer the sums take longer than the product that they save.
/// Measured by `make bench SUITE=products`, of which 2048³ takes as long both ways.
pub const LEAST_WORK: i64 = 1 << 33;

/// Factor by which rounding errors grow, as `Transforms::amplification`: for an element of the first quarter √5 for the weights
/// of its own column, in two products, and √12 for those of the other column, in three that cancel.
const AMPLIFICATION: f64 = 5.71;

/// Bound of the error of a product over `steps` steps, relative to the largest result that inputs of the size of the actual
/// ones can have with the weights of the column whose sum is largest, `max|x| · max Σ|w|`. Rounding errors are taken as
/// independent, as in [`toom_cook::error_bound`](crate::graph::rules::toom_cook::error_bound).
pub fn error_bound(steps: i64) -> f64 {
    AMPLIFICATION * rounding_error(steps / 2)
}

/// Returns true for a product that is one of the seven, or that competes with seven.
pub fn is_considered(rows: i64, weights: [i64; 2]) -> bool {
    work(rows, weights) >= LEAST_WORK / 8
}

/// Multiply-adds of a product of `rows` rows with a matrix.
fn work(rows: i64, [steps, columns]: [i64; 2]) -> i64 {
    rows.saturating_mul(steps).saturating_mul(columns)
}

/// Elements of f32 in a cache line of every target.
const LINE: i64 = 16;

/// The product by seven halves, where it is large enough to be faster. Halves whose rows are not whole cache lines are no
/// candidates: all seven have remainders along vectors, which the tile model does not price. Measured: 514×4098×4098 takes
/// 1.08 times as long by halves.
pub fn competing(network: &mut Network, m: &Match) -> Option<Id> {
    let product = Product::of(network, m)?;
    if [product.steps, product.columns].iter().any(|extent| extent % (2 * LINE) != 0) {
        return None;
    }
    let large = work(product.rows, [product.steps, product.columns]) >= network.least_halved?;
    large.then(|| product.halved(network))?
}

/// The product by seven halves, wherever it can be halved.
pub fn always(network: &mut Network, m: &Match) -> Option<Id> {
    Product::of(network, m)?.halved(network)
}

/// A product of a matrix with constant weights, of even extents.
struct Product {
    x: Id,
    w: Id,
    transpose_b: bool,
    rows: i64,
    steps: i64,
    columns: i64,
    shape: Vec<i64>,
}

impl Product {
    fn of(network: &Network, m: &Match) -> Option<Product> {
        let (&Op::MatMul { transpose_a: false, transpose_b }, operands) = m.root() else { return None };
        // what becomes a whole number stays as exact as it is
        if network.becomes_whole(m.class) {
            return None;
        }
        let [x, w] = *operands else { return None };
        let [a, b] = network.shape(w)[..] else { return None };
        let (steps, columns) = if transpose_b { (b, a) } else { (a, b) };
        let shape = network.shape(m.class).to_vec();
        let rows: i64 = shape[..shape.len() - 1].iter().product();
        let even = [rows, steps, columns].iter().all(|n| n % 2 == 0 && *n > 0);
        let usable = network.ty(x).dtype == DType::F32 && network.is_constant(w) && !network.is_constant(x);
        let exact = error_bound(steps) <= network.max_error;
        let whole = shape.len() > 1 && shape.last() == Some(&columns) && !is_half(network, w);
        (usable && exact && whole && even).then_some(Product { x, w, transpose_b, rows, steps, columns, shape })
    }

    fn halved(&self, network: &mut Network) -> Option<Id> {
        use BinaryOp::{Add, Sub};
        let x = network.reshape(self.x, &[self.rows, self.steps])?;
        let mut a = vec![];
        let mut b = vec![];
        for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            a.push(quadrant(network, x, row, column)?);
            let (row, column) = if self.transpose_b { (column, row) } else { (row, column) };
            b.push(quadrant(network, self.w, row, column)?);
        }
        let [a11, a12, a21, a22] = a[..] else { return None };
        let [b11, b12, b21, b22] = b[..] else { return None };
        let mut sums = |op, x, y| network.binary(op, x, y);
        let factors = [
            (sums(Add, a11, a22)?, sums(Add, b11, b22)?),
            (sums(Add, a21, a22)?, b11),
            (a11, sums(Sub, b12, b22)?),
            (a22, sums(Sub, b21, b11)?),
            (sums(Add, a11, a12)?, b22),
            (sums(Sub, a21, a11)?, sums(Add, b11, b12)?),
            (sums(Sub, a12, a22)?, sums(Add, b21, b22)?),
        ];
        let product = Op::MatMul { transpose_a: false, transpose_b: self.transpose_b };
        let products: Option<Vec<Id>> = factors.iter().map(|&(a, b)| network.op(product.clone(), &[a, b])).collect();
        let [m1, m2, m3, m4, m5, m6, m7] = products?[..] else { return None };
        let mut sum = |first, terms: &[(BinaryOp, Id)]| {
            terms.iter().try_fold(first, |sum, &(op, term)| network.binary(op, sum, term))
        };
        let c11 = sum(m1, &[(Add, m4), (Sub, m5), (Add, m7)])?;
        let c12 = sum(m3, &[(Add, m5)])?;
        let c21 = sum(m2, &[(Add, m4)])?;
        let c22 = sum(m1, &[(Sub, m2), (Add, m3), (Add, m6)])?;
        let above = network.op(Op::Concat { axis: 1 }, &[c11, c12])?;
        let below = network.op(Op::Concat { axis: 1 }, &[c21, c22])?;
        let whole = network.op(Op::Concat { axis: 0 }, &[above, below])?;
        network.reshape(whole, &self.shape)
    }
}

/// A quarter of a matrix.
fn quadrant(network: &mut Network, x: Id, row: i64, column: i64) -> Option<Id> {
    let half: Vec<i64> = network.shape(x).iter().map(|extent| extent / 2).collect();
    let starts = vec![row * half[0], column * half[1]];
    let ends = starts.iter().zip(&half).map(|(start, extent)| start + extent).collect();
    network.op(Op::Slice { starts, ends, steps: vec![1, 1] }, &[x])
}

/// Returns true for weights that the recursion made.
fn is_half(network: &Network, w: Id) -> bool {
    let sliced = |id| network.applications(id).any(|(op, _)| matches!(op, Op::Slice { .. }));
    sliced(w)
        || network.applications(w).any(|(op, operands)| {
            matches!(op, Op::Binary(BinaryOp::Add | BinaryOp::Sub)) && operands.iter().any(|&id| sliced(id))
        })
}
