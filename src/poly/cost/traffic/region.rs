//! Regions of buffers: their union over the iterations of a loop, and the least one around two.
//!
//! In and out: parts of buffers that loops touch. Invariant: what a region stands for is never less than what is touched.

use super::{Form, Length, Range, Region};

impl Region {
    /// Returns the union over all iterations of loop `l`. Where a loop moves along several dimensions at once, as over `A[i][j - i]`,
    /// the region becomes a band along the diagonal, which later loops widen where they leave its direction.
    pub(super) fn swept(&self, l: usize, Length { mean, reach }: Length) -> Region {
        let mut out = self.clone();
        let [far, farthest] = [mean, reach].map(|n| (n - 1.0).max(0.0));
        let moves = |r: &Range| if r.data.contains(&l) { 0.0 } else { r.low.coefficient(l) };
        let mut moving = (0..self.dimensions.len()).filter(|&d| moves(&self.dimensions[d]) != 0.0);
        let (first, second) = (moving.next(), moving.next());
        out.row = self.row.or(first.filter(|_| second.is_some()));
        // the motion of the rows, and how many of them one iteration touches
        let rows = out.row.map(|row| (moves(&self.dimensions[row]), self.dimensions[row].width));
        for (d, range) in out.dimensions.iter_mut().enumerate() {
            let c = moves(range);
            if range.data.contains(&l) {
                range.count = (range.count * mean).min(range.width + 1.0);
                continue;
            }
            let wider = match rows {
                Some((by, rows)) if out.row != Some(d) => match self.row {
                    Some(_) => (c - range.slope * by).abs() * far,
                    None => {
                        range.slope = c / by;
                        range.slope.abs() * rows.min(by.abs() * far)
                    }
                },
                _ => c.abs() * far,
            };
            if c != 0.0 || wider != 0.0 {
                range.low.terms.retain(|t| t.0 != l);
                range.low.constant += (c * far).min(0.0);
                range.hull += c.abs() * farthest;
                range.width = (range.width + wider).min(range.hull);
                range.count = (range.count * mean).clamp(1.0, range.width + 1.0);
            }
        }
        if out != *self {
            out.points *= mean.max(1.0);
        }
        out
    }

    /// The least region around both, when they lie alike for all iterations of the loops around.
    pub(super) fn hull(&self, b: &Region) -> Option<Region> {
        let a = self;
        let alike = |(x, y): (&Range, &Range)| x.low.terms == y.low.terms;
        let slopes = |r: &Region| r.dimensions.iter().map(|d| d.slope).collect::<Vec<f64>>();
        if a.buffer != b.buffer
            || a.row != b.row
            || slopes(a) != slopes(b)
            || !a.dimensions.iter().zip(&b.dimensions).all(alike)
        {
            return None;
        }
        // how far the rows of the second lie behind those of the first
        let behind = a.row.map_or(0.0, |row| b.dimensions[row].low.constant - a.dimensions[row].low.constant);
        let join = |(x, y): (&Range, &Range)| {
            let joined = |first: f64, second: f64, widths: (f64, f64)| {
                (first + widths.0).max(second + widths.1) - first.min(second)
            };
            let (low, second) = (x.low.constant.min(y.low.constant), y.low.constant - x.slope * behind);
            let hull = joined(x.low.constant, y.low.constant, (x.hull, y.hull));
            let width = joined(x.low.constant, second, (x.width, y.width)).min(hull);
            let count = if x == y { x.count } else { (x.count + y.count).min(width + 1.0).max(x.count.max(y.count)) };
            let (low, data) = (Form { constant: low, ..x.low.clone() }, [&x.data[..], &y.data].concat());
            Range { low, width, count, slope: x.slope, hull, data }
        };
        let same = a.dimensions == b.dimensions;
        let points = if same { a.points.max(b.points) } else { a.points + b.points };
        let dimensions = a.dimensions.iter().zip(&b.dimensions).map(join).collect();
        Some(Region { buffer: a.buffer, dimensions, row: a.row, points, written: a.written || b.written })
    }
}
