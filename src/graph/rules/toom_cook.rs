//! Transforms of minimal filtering F(m, r): m outputs of a filter with r taps by m + r - 1 products.
//!
//! `y = Aᵀ((G g) ⊙ (Bᵀ d))` for an input d of m + r - 1 elements (Winograd, "Arithmetic Complexity of Computations", 1980;
//! Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016), constructed after Toom and Cook from
//! rational points, one of them infinite: the product polynomials are evaluated at the points and interpolated. All
//! arithmetic is exact; a matrix is rounded once, when it becomes a tensor.

use num_rational::Ratio;

type Rational = Ratio<i64>;
type Matrix = Vec<Vec<Rational>>;

/// The finite points, best first: small numerators and denominators keep the transforms well conditioned (Barabasz,
/// Anderson, Soodhalter and Gregg, "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
/// Networks", 2020).
const POINTS: [(i64, i64); 11] =
    [(0, 1), (1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2), (4, 1), (-4, 1), (1, 4), (-1, 4)];

/// The transforms of F(m, r) along one axis.
pub struct Transforms {
    /// Bᵀ, α × α, of the input.
    pub input: Matrix,
    /// G, α × r, of the filter.
    pub filter: Matrix,
    /// Aᵀ, m × α, of the products.
    pub output: Matrix,
}

impl Transforms {
    /// The transforms of F(outputs, taps); `None` where there are too few points. One tap is not a transform: α = m.
    pub fn new(outputs: i64, taps: i64) -> Option<Transforms> {
        let (m, r) = (usize::try_from(outputs).ok()?, usize::try_from(taps).ok()?);
        if m == 0 || r == 0 || m + r - 2 > POINTS.len() {
            return None;
        }
        let points: Vec<Rational> = POINTS[..m + r - 2].iter().map(|&(n, d)| Ratio::new(n, d)).collect();
        let (zero, one) = (Ratio::from(0), Ratio::from(1));
        let power = |p: Rational, n: usize| (0..n).fold(one, |product, _| product * p);
        let at_infinity = |degree: usize, last: usize| if degree == last { one } else { zero };
        let mut input = vec![];
        let mut filter = vec![];
        for (j, &p) in points.iter().enumerate() {
            let others: Vec<Rational> = points.iter().enumerate().filter(|(l, _)| *l != j).map(|(_, &q)| q).collect();
            let scale = others.iter().fold(one, |product, &q| product * (p - q));
            let mut row = with_roots(&others);
            row.push(zero);
            input.push(row);
            filter.push((0..r).map(|k| power(p, k) / scale).collect());
        }
        input.push(with_roots(&points));
        filter.push((0..r).map(|k| at_infinity(k, r - 1)).collect());
        let output =
            (0..m).map(|i| points.iter().map(|&p| power(p, i)).chain([at_infinity(i, m - 1)]).collect()).collect();
        Some(Transforms { input, filter, output })
    }

    /// Factor by which rounding errors of one axis grow: the root of the sum, over the products of an output, of the
    /// squares of what an error of the product becomes, where each input is at most 1 and the filter has one tap that is 1.
    fn amplification(&self) -> f64 {
        let abs = |v: &Rational| (*v.numer() as f64 / *v.denom() as f64).abs();
        let reached: Vec<f64> = self.input.iter().map(|row| row.iter().map(abs).sum()).collect();
        let taps = 0..self.filter[0].len();
        let of = |row: &Vec<Rational>, tap: usize| -> f64 {
            let error = |j: usize| abs(&row[j]) * abs(&self.filter[j][tap]) * reached[j];
            (0..row.len()).map(|j| error(j).powi(2)).sum::<f64>().sqrt()
        };
        let errors = self.output.iter().flat_map(|row| taps.clone().map(move |tap| of(row, tap)));
        errors.fold(0.0, f64::max)
    }
}

/// Bound of the error of a filter with these transforms along its axes over `channels` channels, relative to the largest
/// output that inputs of the size of the actual ones can have, `max|x| · Σ|w|`. Rounding errors are taken as independent
/// (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019): they grow with the root of the
/// number of terms. They are not where many channels have equal products: then they grow with the number, up to `5·√channels`
/// times as far as this. Numbers that overflow or vanish on the way (below 1e-30 or above 1e30 at worst) are not counted.
pub fn error_bound(axes: &[Transforms], channels: i64) -> f64 {
    let amplified: f64 = axes.iter().map(Transforms::amplification).product();
    amplified * rounding_error(channels)
}

/// Error of a sum of so many products of rounded factors, relative to the largest result, where rounding errors are independent.
pub fn rounding_error(terms: i64) -> f64 {
    f64::from(f32::EPSILON) / 2.0 * (2.0 + (terms as f64).sqrt() / 5.0)
}

/// The numbers of a matrix, in row-major order.
pub fn numbers(matrix: &[Vec<Rational>]) -> Vec<f64> {
    matrix.iter().flatten().map(|v| *v.numer() as f64 / *v.denom() as f64).collect()
}

/// The coefficients of the monic polynomial with these roots, that of degree 0 first.
fn with_roots(roots: &[Rational]) -> Vec<Rational> {
    roots.iter().fold(vec![Ratio::from(1)], |polynomial, &root| {
        let mut product = vec![Ratio::from(0); polynomial.len() + 1];
        for (degree, &c) in polynomial.iter().enumerate() {
            product[degree + 1] += c;
            product[degree] -= c * root;
        }
        product
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_computed_exactly() {
        for (m, r) in (1..=8).flat_map(|m| (1..=7).map(move |r| (m, r))).filter(|(m, r)| m + r <= 13) {
            let t = Transforms::new(m, r).unwrap();
            let g: Vec<Rational> = (0..r).map(|k| Ratio::from(3 * k * k - 7 * k + 2)).collect();
            let d: Vec<Rational> = (0..m + r - 1).map(|i| Ratio::from(5 * i * i - 11 * i + 4)).collect();
            let times = |row: &Vec<Rational>, v: &[Rational]| row.iter().zip(v).map(|(a, b)| a * b).sum::<Rational>();
            let products: Vec<Rational> =
                t.input.iter().zip(&t.filter).map(|(b, f)| times(b, &d) * times(f, &g)).collect();
            for (i, row) in t.output.iter().enumerate() {
                assert_eq!(times(row, &products), times(&g, &d[i..i + r as usize]), "F({m}, {r}), output {i}");
            }
        }
        assert!(Transforms::new(8, 7).is_none() && Transforms::new(0, 3).is_none());
    }

    #[test]
    fn the_input_transform_of_four_outputs_is_the_published_one() {
        let t = Transforms::new(4, 3).unwrap();
        assert_eq!(numbers(&t.input[..1]), [4.0, 0.0, -5.0, 0.0, 1.0, 0.0]);
        assert_eq!(numbers(&t.input[5..]), [0.0, 4.0, 0.0, -5.0, 0.0, 1.0]);
        assert_eq!(numbers(&t.filter[..1]), [0.25, 0.0, 0.0]);
    }

    #[test]
    fn bounds_grow_with_outputs_taps_and_channels() {
        let bound = |m, r, channels| {
            let axis = || Transforms::new(m, r).unwrap();
            error_bound(&[axis(), axis()], channels)
        };
        assert!(bound(2, 3, 64) < bound(4, 3, 64) && bound(4, 3, 64) < bound(6, 3, 64));
        assert!(bound(4, 3, 512) < 1e-4 && bound(2, 3, 512) < 1e-5, "{} {}", bound(4, 3, 512), bound(2, 3, 512));
        assert!(bound(2, 5, 64) > bound(2, 3, 64) && bound(4, 3, 256) > bound(4, 3, 64));
        println!("{} {} {} {}", bound(6, 3, 64), bound(2, 5, 64), bound(4, 5, 64), bound(2, 7, 64));
    }
}
