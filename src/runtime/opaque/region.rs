//! Pooling over regions of interest whose bounds are operands: how many elements a cell reads depends on its region.

use super::element::misuse;
use super::{View, ViewMut};
use crate::{DType, Error, Result};

/// The elements of a tensor of f32, as bytes.
fn numbers<'a>(view: &View<'a>) -> Option<&'a [[u8; 4]]> {
    (view.dtype == DType::F32).then_some(view.data.as_chunks::<4>().0)
}

/// Element `i` of a tensor of integers.
fn integer(view: &View, i: usize) -> Option<i64> {
    match view.dtype {
        DType::I64 => view.data.as_chunks::<8>().0.get(i).map(|bytes| i64::from_le_bytes(*bytes)),
        DType::I32 => view.data.as_chunks::<4>().0.get(i).map(|bytes| i64::from(i32::from_le_bytes(*bytes))),
        _ => None,
    }
}

/// An image of one channel.
struct Plane<'a> {
    data: &'a [[u8; 4]],
    height: usize,
    width: usize,
}

/// The planes of image `batch`, one for each channel.
fn planes<'a>(data: &'a [[u8; 4]], [channels, height, width]: [usize; 3]) -> impl Fn(i64, usize) -> Result<Plane<'a>> {
    move |batch, channel| {
        let size = height * width;
        let images = data.len() / (channels * size).max(1);
        let image = usize::try_from(batch).ok().filter(|&b| b < images);
        let image = image.ok_or_else(|| Error::Invalid(format!("a region of image {batch}, of {images} images")))?;
        Ok(Plane { data: &data[(image * channels + channel) * size..][..size], height, width })
    }
}

/// Channels, height and width of a tensor of images that has elements.
fn extents(x: &View) -> Option<[usize; 3]> {
    let &[_, c, h, w] = x.shape else { return None };
    let [c, h, w] = [c, h, w].map(|d| d as usize);
    (h > 0 && w > 0).then_some([c, h, w])
}

/// Attributes: cells along y and x, 1 for maxima, 1 for regions half an element before their coordinates, the bits of
/// the scale. Inputs: images, regions (x and y of two corners), the image of each region.
pub fn roi_align(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let misused = || misuse("roi_align");
    let (&[rows, columns, largest, half, scale], [x, regions, images], [output]) = (attributes, inputs, outputs) else {
        return Err(misused());
    };
    let scale = f32::from_bits(scale as u32);
    let shape = extents(x).ok_or_else(misused)?;
    let (data, corners) = (numbers(x).ok_or_else(misused)?, numbers(regions).ok_or_else(misused)?);
    let (rows, columns, count) = (rows as usize, columns as usize, corners.len() / 4);
    let of = planes(data, shape);
    let results = output.data.as_chunks_mut::<4>().0;
    if results.len() != count * shape[0] * rows * columns {
        return Err(misused());
    }
    let mut results = results.iter_mut();
    for (i, region) in corners.as_chunks::<4>().0.iter().enumerate() {
        let image = integer(images, i).ok_or_else(misused)?;
        let [x0, y0, x1, y1] = region.map(|v| f32::from_le_bytes(v) * scale - if half == 1 { 0.5 } else { 0.0 });
        let length = |from: f32, to: f32| if half == 1 { to - from } else { (to - from).max(1.0) };
        let along_y = Cells::new(y0, length(y0, y1), rows)?;
        let along_x = Cells::new(x0, length(x0, x1), columns)?;
        for channel in 0..shape[0] {
            let plane = of(image, channel)?;
            for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                let cell = plane.cell(&along_y, row, &along_x, column, largest == 1);
                *results.next().ok_or_else(misused)? = cell.to_le_bytes();
            }
        }
    }
    Ok(())
}

/// The cells of a region along one axis, each with as many points as elements that it covers.
struct Cells {
    start: f32,
    size: f32,
    points: usize,
}

/// Points of a cell along one axis.
const MAX_POINTS: f32 = 4096.0;

impl Cells {
    fn new(start: f32, length: f32, cells: usize) -> Result<Cells> {
        let size = length / cells as f32;
        if !size.is_finite() || size > MAX_POINTS {
            return Err(Error::Limit(format!("a region of length {length}: a cell has at most {MAX_POINTS} points")));
        }
        Ok(Cells { start, size, points: size.ceil().max(0.0) as usize })
    }

    fn point(&self, cell: usize, point: usize) -> f32 {
        self.start + cell as f32 * self.size + (point as f32 + 0.5) * self.size / self.points as f32
    }
}

impl Plane<'_> {
    fn at(&self, y: usize, x: usize) -> f32 {
        f32::from_le_bytes(self.data[y * self.width + x])
    }

    /// The mean or the maximum of the points of a cell.
    fn cell(&self, along_y: &Cells, row: usize, along_x: &Cells, column: usize, largest: bool) -> f32 {
        let mut sum = 0.0;
        let mut best: Option<f32> = None;
        for (i, j) in (0..along_y.points).flat_map(|i| (0..along_x.points).map(move |j| (i, j))) {
            let taps = self.taps(along_y.point(row, i), along_x.point(column, j));
            let most = taps.into_iter().fold(f32::NEG_INFINITY, f32::max);
            sum += taps.iter().sum::<f32>();
            best = Some(best.map_or(most, |b| b.max(most)));
        }
        if largest { best.unwrap_or(0.0) } else { sum / (along_y.points * along_x.points).max(1) as f32 }
    }

    /// The four weighted elements around a position; zeros for one outside.
    fn taps(&self, y: f32, x: f32) -> [f32; 4] {
        let (height, width) = (self.height as f32, self.width as f32);
        if !(-1.0..=height).contains(&y) || !(-1.0..=width).contains(&x) {
            return [0.0; 4];
        }
        let (y, x) = (y.clamp(0.0, height - 1.0), x.clamp(0.0, width - 1.0));
        let (low_y, low_x) = (y as usize, x as usize);
        let (high_y, high_x) = ((low_y + 1).min(self.height - 1), (low_x + 1).min(self.width - 1));
        let (ty, tx) = (y - low_y as f32, x - low_x as f32);
        let pixel = |y: usize, x: usize| self.at(y, x);
        [
            (1.0 - ty) * (1.0 - tx) * pixel(low_y, low_x),
            (1.0 - ty) * tx * pixel(low_y, high_x),
            ty * (1.0 - tx) * pixel(high_y, low_x),
            ty * tx * pixel(high_y, high_x),
        ]
    }
}

/// Attributes: cells along y and x, the bits of the scale. Inputs: images, regions (number of the image, x and y of two
/// corners, both inside).
pub fn max_roi_pool(attributes: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let misused = || misuse("max_roi_pool");
    let (&[rows, columns, scale], [x, regions], [output]) = (attributes, inputs, outputs) else {
        return Err(misused());
    };
    let scale = f32::from_bits(scale as u32);
    let shape = extents(x).ok_or_else(misused)?;
    let (data, regions) = (numbers(x).ok_or_else(misused)?, numbers(regions).ok_or_else(misused)?);
    let of = planes(data, shape);
    let results = output.data.as_chunks_mut::<4>().0;
    if results.len() as i64 * 5 != regions.len() as i64 * shape[0] as i64 * rows * columns {
        return Err(misused());
    }
    let mut results = results.iter_mut();
    for region in regions.as_chunks::<5>().0 {
        let region = region.map(f32::from_le_bytes);
        let [x0, y0, x1, y1] = [1, 2, 3, 4].map(|i| (region[i] * scale).round());
        for channel in 0..shape[0] {
            let plane = of(region[0] as i64, channel)?;
            for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                let ys = bounds(y0, y1, rows, row, plane.height);
                let xs = bounds(x0, x1, columns, column, plane.width);
                let cell = ys.flat_map(|y| xs.clone().map(move |x| (y, x))).map(|(y, x)| plane.at(y, x));
                let best = cell.fold(None, |best: Option<f32>, v| Some(best.map_or(v, |b| if v > b { v } else { b })));
                *results.next().ok_or_else(misused)? = best.unwrap_or(0.0).to_le_bytes();
            }
        }
    }
    Ok(())
}

/// The elements of one axis in a cell of a region from element `from` to element `to`.
fn bounds(from: f32, to: f32, cells: i64, cell: i64, extent: usize) -> std::ops::Range<usize> {
    let size = (to - from + 1.0).max(1.0) / cells as f32;
    let low = ((cell as f32 * size).floor() + from).clamp(0.0, extent as f32) as usize;
    let high = (((cell + 1) as f32 * size).ceil() + from).clamp(0.0, extent as f32) as usize;
    low..high.max(low)
}

/// Attributes: the shape of the result. Inputs: elements, and the position of each in the result, whose other elements are
/// zero. Of elements with one position the last one stays.
pub fn max_unpool(_: &[i64], inputs: &[View], outputs: &mut [ViewMut]) -> Result<()> {
    let ([x, positions], [output]) = (inputs, outputs) else { return Err(misuse("max_unpool")) };
    let size = x.dtype.bytes();
    if x.dtype != output.dtype || positions.shape != x.shape {
        return Err(misuse("max_unpool"));
    }
    output.data.fill(0);
    let count = output.data.len() / size;
    for (i, element) in x.data.chunks_exact(size).enumerate() {
        let position = integer(positions, i).ok_or_else(|| misuse("max_unpool"))?;
        let place = usize::try_from(position).ok().filter(|&a| a < count);
        let place = place.ok_or_else(|| Error::Invalid(format!("position {position} of {count} elements")))?;
        output.data[place * size..][..size].copy_from_slice(element);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::opaque::apply;
    use crate::{DType, Tensor};

    #[test]
    fn regions_have_means_and_maxima() {
        let x = Tensor::new(&[1, 1, 4, 4], &(0..16).map(|v| v as f32).collect::<Vec<f32>>());
        let one = i64::from(1f32.to_bits());
        let out = [(DType::F32, vec![1, 1, 1, 1])];
        // the region from element 0 to element 4: its points are the elements themselves
        let (region, image) = (Tensor::new(&[1, 4], &[0f32, 0.0, 4.0, 4.0]), Tensor::new(&[1], &[0i64]));
        let align = |largest| apply("roi_align", &[1, 1, largest, 1, one], &[&x, &region, &image], &out);
        assert_eq!(align(0).unwrap()[0].to_vec::<f32>(), [7.5]);
        assert_eq!(align(1).unwrap()[0].to_vec::<f32>(), [15.0]);
        let other = Tensor::new(&[1], &[1i64]);
        assert!(apply("roi_align", &[1, 1, 0, 1, one], &[&x, &region, &other], &out).is_err());
        let region = Tensor::new(&[1, 5], &[0f32, 1.0, 1.0, 2.0, 2.0]);
        let out = [(DType::F32, vec![1, 1, 2, 2])];
        let pooled = apply("max_roi_pool", &[2, 2, one], &[&x, &region], &out).unwrap();
        assert_eq!(pooled[0].to_vec::<f32>(), [5.0, 6.0, 9.0, 10.0]);
    }

    #[test]
    fn elements_return_to_their_positions() {
        let (x, places) = (Tensor::new(&[2], &[3f32, 4.0]), Tensor::new(&[2], &[4i64, 1]));
        let out = [(DType::F32, vec![5])];
        let y = apply("max_unpool", &[5], &[&x, &places], &out).unwrap();
        assert_eq!(y[0].to_vec::<f32>(), [0.0, 4.0, 0.0, 0.0, 3.0]);
        let outside = Tensor::new(&[2], &[5i64, 1]);
        assert!(apply("max_unpool", &[5], &[&x, &outside], &out).is_err());
    }
}
