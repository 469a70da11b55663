//! Minimal filtering and Strassen's recursion beside the definition: random shapes against double precision, and inputs that
//! are hard.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::operators::{Layout, Op, Window};
use tilewright::{
    Algorithm, AlgorithmReport, Calibration, DType, GraphBuilder, Model, Options, RowBlocks, Target, Tensor,
};

/// A convolution over one batch in N, C, H, W.
#[derive(Debug)]
struct Layer {
    image: [i64; 4],
    filters: i64,
    kernel: [i64; 2],
    before: [i64; 2],
    after: [i64; 2],
    dilation: [i64; 2],
    groups: i64,
}

impl Layer {
    fn random(rng: &mut StdRng) -> Layer {
        let mut of = |list: &[i64]| list[rng.random_range(0..list.len())];
        let kernel = [[3, 3], [1, 3], [3, 1], [5, 5], [1, 7], [5, 3]][of(&[0, 0, 1, 2, 3, 4, 5]) as usize];
        let [before, after] = [0, 1].map(|_| kernel.map(|taps| of(&[0, taps / 2, taps - 1])));
        let image = [of(&[1, 1, 2]), of(&[8, 9, 16, 40]), of(&[7, 8, 11, 14, 21]), of(&[7, 9, 12, 14, 25])];
        Layer { image, filters: of(&[8, 13, 16, 33]), kernel, before, after, dilation: [1; 2], groups: 1 }
    }

    /// A layer with dilations, groups or both.
    fn in_parts(rng: &mut StdRng) -> Layer {
        let mut of = |list: &[i64]| list[rng.random_range(0..list.len())];
        let kernel = [[3, 3], [1, 3], [3, 1], [3, 5]][of(&[0, 0, 1, 2, 3]) as usize];
        let (dilation, groups) = ([of(&[1, 2, 3]), of(&[1, 2, 5])], of(&[1, 2, 3]));
        let pads = [0, 1].map(|d| dilation[d] * (kernel[d] - 1) / 2);
        let [before, after] = [0, 1].map(|_| pads.map(|p| of(&[p, p, p + 1])));
        let image = [of(&[1, 2]), groups * of(&[8, 9, 16]), of(&[11, 14, 23]), of(&[9, 16, 22])];
        Layer { image, filters: groups * of(&[8, 11]), kernel, before, after, dilation, groups }
    }

    fn size(&self) -> [i64; 2] {
        let reach = |d: usize| self.dilation[d] * (self.kernel[d] - 1);
        [0, 1].map(|d| self.image[2 + d] + self.before[d] + self.after[d] - reach(d))
    }

    fn model(&self, weights: &[f32], bias: &[f32]) -> Model {
        let mut b = GraphBuilder::new("layer");
        let x = b.input("x", DType::F32, &self.image);
        let shape = [self.filters, self.image[1] / self.groups, self.kernel[0], self.kernel[1]];
        let w = b.constant(Tensor::new(&shape, weights));
        let bias = b.constant(Tensor::new(&[self.filters], bias));
        let window = Window {
            kernel: self.kernel.to_vec(),
            stride: vec![1; 2],
            dilation: self.dilation.to_vec(),
            pad_before: self.before.to_vec(),
            pad_after: self.after.to_vec(),
        };
        let y = b.op(Op::Conv { window, group: self.groups, layout: Layout::Nchw }, &[x, w, bias]).unwrap()[0];
        b.output("y", y).unwrap();
        Model::from_graph(b.build().unwrap())
    }

    /// The result in double precision, and the largest one that inputs of this size can have.
    fn exact(&self, x: &[f32], weights: &[f32], bias: &[f32]) -> (Vec<f64>, f64) {
        let [n, channels, h, w] = self.image;
        let (c, filters) = (channels / self.groups, self.filters / self.groups);
        let ([r, s], [oh, ow]) = (self.kernel, self.size());
        let mut out = vec![];
        for (b, f) in (0..n).flat_map(|b| (0..self.filters).map(move |f| (b, f))) {
            for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
                let mut sum = f64::from(bias[f as usize]);
                for (k, u, v) in (0..c).flat_map(|k| (0..r).flat_map(move |u| (0..s).map(move |v| (k, u, v)))) {
                    let (y, z) = (i + u * self.dilation[0] - self.before[0], j + v * self.dilation[1] - self.before[1]);
                    if (0..h).contains(&y) && (0..w).contains(&z) {
                        let at = ((b * channels + f / filters * c + k) * h + y) * w + z;
                        sum += f64::from(x[at as usize]) * f64::from(weights[(((f * c + k) * r + u) * s + v) as usize]);
                    }
                }
                out.push(sum);
            }
        }
        let largest = x.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
        let sums = weights.chunks((c * r * s) as usize).map(|row| row.iter().map(|v| f64::from(v.abs())).sum::<f64>());
        (out, largest * sums.fold(0.0, f64::max))
    }
}

/// The largest error relative to the largest output that inputs of this size can have, and the bound of the report.
fn error(layer: &Layer, algorithm: Algorithm, x: &[f32], weights: &[f32], threads: usize) -> (f64, Option<f64>) {
    let bias = vec![0.25; layer.filters as usize];
    let model = layer.model(weights, &bias);
    let options = Options { algorithm, max_error: 1.0, threads, ..Options::default() };
    let (_, report) = model.compile_module(&options).unwrap();
    let bound = report.rewriting.unwrap().algorithms.error_bound;
    let image = Tensor::new(&layer.image, x);
    let found = model.compile(&options).unwrap().run(&[("x", &image)]).unwrap()[0].to_vec::<f32>();
    let (exact, range) = layer.exact(x, weights, &bias);
    assert_eq!(found.len(), exact.len());
    let worst = found.iter().zip(&exact).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    // The bias is rounded as in any convolution.
    ((worst - 3e-8).max(0.0) / range.max(f64::MIN_POSITIVE), bound)
}

fn values(rng: &mut StdRng, count: i64, of: impl Fn(usize, f32) -> f32) -> Vec<f32> {
    (0..count as usize).map(|i| of(i, rng.random_range(-1.0f32..1.0))).collect()
}

/// Compares so many layers with double precision, in each tile in turn; returns how many are computed by minimal filtering.
fn compare(rng: &mut StdRng, count: usize, layer: impl Fn(&mut StdRng) -> Layer) -> usize {
    let mut filtered = 0;
    for case in 0..count {
        let layer = layer(rng);
        let x = values(rng, layer.image.iter().product(), |_, v| v);
        let taps = layer.image[1] / layer.groups * layer.kernel[0] * layer.kernel[1];
        let weights = values(rng, layer.filters * taps, |_, v| v);
        let algorithm = Algorithm::Winograd([2, 4, 6][case % 3]);
        let (error, bound) = error(&layer, algorithm, &x, &weights, 1 + case % 2);
        let what = format!("{layer:?}, {algorithm}: {error:e}");
        filtered += usize::from(bound.is_some());
        assert!(error <= bound.unwrap_or(1e-6), "{what}, bound {bound:?}");
    }
    filtered
}

#[test]
fn random_layers_are_within_their_bounds_in_every_tile() {
    let filtered = compare(&mut StdRng::seed_from_u64(11), 18, Layer::random);
    assert!(filtered >= 12, "{filtered} of 18 layers");
}

#[test]
fn layers_with_dilations_and_groups_are_within_their_bounds() {
    let filtered = compare(&mut StdRng::seed_from_u64(13), 18, Layer::in_parts);
    assert!(filtered >= 12, "{filtered} of 18 layers");
}

#[test]
fn offsets_cancelling_channels_and_subnormal_numbers_stay_within_the_bound() {
    let mut rng = StdRng::seed_from_u64(12);
    let (before, after, dilation) = ([1, 1], [1, 1], [1, 1]);
    let layer = Layer { image: [1, 64, 14, 13], filters: 16, kernel: [3, 3], before, after, dilation, groups: 1 };
    let (pixels, taps) = (14 * 13, 9);
    let plain = values(&mut rng, 16 * 64 * taps, |_, v| v);
    // Neighbouring channels have the same weights, and inputs of opposite sign.
    let paired: Vec<f32> = (0..16 * 64 * 9usize).map(|i| plain[i / 18 * 18 + i % 9]).collect();
    let half = values(&mut rng, 64 * pixels, |_, v| v);
    let channel = |i: usize| i / pixels as usize;
    let offset: Vec<f32> = half.iter().map(|v| 1000.0 + v).collect();
    let cancelling: Vec<f32> = (0..half.len())
        .map(|i| if channel(i) % 2 == 0 { half[i] } else { -half[i - pixels as usize] } * 100.0)
        .collect();
    let subnormal: Vec<f32> = half.iter().map(|v| v * 1e-39).collect();
    for (name, x, weights) in
        [("offset", &offset, &plain), ("cancelling", &cancelling, &paired), ("subnormal", &subnormal, &plain)]
    {
        for tile in [2, 4, 6] {
            let (error, bound) = error(&layer, Algorithm::Winograd(tile), x, weights, 2);
            // Subnormal numbers are zero inside kernels: all of them may be lost.
            let bound = if name == "subnormal" { 1.0 } else { bound.expect("minimal filtering") };
            assert!(error <= bound, "{name}, tile {tile}: {error:e}, bound {bound:e}");
        }
    }
}

/// The constants of cost of a processor whose memory is slow, and whose caches hold few of these maps.
fn small_caches() -> Calibration {
    let mut calibration = Calibration::of(&Target::host().unwrap());
    calibration.machine.cache_bytes = [2 << 10, 20 << 10, 128 << 10];
    calibration.machine.bandwidth = [200.0, 100.0, 2.0, 1.0];
    calibration.machine.launch_ns = 50.0;
    calibration
}

#[test]
fn layers_in_blocks_of_rows_are_within_their_bounds_and_the_same_on_more_threads() {
    let mut rng = StdRng::seed_from_u64(14);
    let mut divided = 0;
    for case in 0..12 {
        let mut layer = if case % 2 == 0 { Layer::random(&mut rng) } else { Layer::in_parts(&mut rng) };
        layer.image = [layer.image[0], layer.image[1], layer.image[2] + 40, layer.image[3] + 20];
        let x = values(&mut rng, layer.image.iter().product(), |_, v| v);
        let taps = layer.image[1] / layer.groups * layer.kernel[0] * layer.kernel[1];
        let weights = values(&mut rng, layer.filters * taps, |_, v| v);
        let bias = vec![0.25; layer.filters as usize];
        let model = layer.model(&weights, &bias);
        let algorithm = Algorithm::Winograd([2, 4][case / 2 % 2]);
        let run = |threads| {
            let machine = Some(small_caches());
            let options = Options { algorithm, max_error: 1.0, threads, machine, ..Options::default() };
            let rewriting = model.compile_module(&options).unwrap().1.rewriting.unwrap();
            let image = Tensor::new(&layer.image, &x);
            let found = model.compile(&options).unwrap().run(&[("x", &image)]).unwrap()[0].to_vec::<f32>();
            (found, rewriting)
        };
        let ((found, rewriting), (again, _)) = (run(1), run(2));
        assert!(found.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{layer:?}");
        let (exact, range) = layer.exact(&x, &weights, &bias);
        let worst = found.iter().zip(&exact).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        let bound = rewriting.algorithms.error_bound.unwrap_or(1e-6);
        assert!(worst - 3e-8 <= bound * range, "{layer:?}, {algorithm}: {worst:e}, bound {bound:e} of {range}");
        let wholes =
            rewriting.row_blocks.iter().all(|RowBlocks { blocks, tile_rows, .. }| *blocks > 1 && *tile_rows > 0);
        assert!(wholes, "{:?}", rewriting.row_blocks);
        divided += rewriting.row_blocks.len();
    }
    assert!(divided >= 6, "{divided} of 12 layers");
}

/// A product of an image of `leading` dimensions and `steps` with constant weights.
#[derive(Debug)]
struct Product {
    leading: Vec<i64>,
    steps: i64,
    columns: i64,
    transposed: bool,
}

impl Product {
    fn random(rng: &mut StdRng) -> Product {
        let mut of = |list: &[i64]| list[rng.random_range(0..list.len())];
        let leading = [vec![of(&[2, 6, 30, 34])], vec![of(&[1, 2]), of(&[8, 26])]][of(&[0, 1]) as usize].clone();
        Product { leading, steps: of(&[2, 10, 64, 130]), columns: of(&[2, 18, 32, 66]), transposed: of(&[0, 1]) == 1 }
    }

    fn model(&self, weights: &[f32]) -> Model {
        let mut b = GraphBuilder::new("product");
        let x = b.input("x", DType::F32, &[&self.leading[..], &[self.steps]].concat());
        let shape = if self.transposed { [self.columns, self.steps] } else { [self.steps, self.columns] };
        let w = b.constant(Tensor::new(&shape, weights));
        let op = Op::MatMul { transpose_a: false, transpose_b: self.transposed };
        let y = b.op(op, &[x, w]).unwrap()[0];
        b.output("y", y).unwrap();
        Model::from_graph(b.build().unwrap())
    }

    /// The largest error relative to the largest output that inputs of this size can have, and the report.
    fn error(&self, x: &[f32], weights: &[f32], threads: usize) -> (f64, AlgorithmReport) {
        let model = self.model(weights);
        let options = Options { algorithm: Algorithm::Strassen, max_error: 1.0, threads, ..Options::default() };
        let report = model.compile_module(&options).unwrap().1.rewriting.unwrap().algorithms;
        let image = Tensor::new(&[&self.leading[..], &[self.steps]].concat(), x);
        let found = model.compile(&options).unwrap().run(&[("x", &image)]).unwrap()[0].to_vec::<f32>();
        let (steps, columns) = (self.steps as usize, self.columns as usize);
        let weight = |k: usize, j: usize| {
            f64::from(if self.transposed { weights[j * steps + k] } else { weights[k * columns + j] })
        };
        let at = |i: usize| {
            let row = x[i / columns * steps..][..steps].iter();
            row.enumerate().map(|(k, &v)| f64::from(v) * weight(k, i % columns)).sum::<f64>()
        };
        let worst = found.iter().enumerate().map(|(i, &v)| (f64::from(v) - at(i)).abs()).fold(0.0, f64::max);
        let largest = x.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
        let sums = (0..columns).map(|j| (0..steps).map(|k| weight(k, j).abs()).sum::<f64>());
        (worst / (largest * sums.fold(0.0, f64::max)).max(f64::MIN_POSITIVE), report)
    }
}

#[test]
fn products_of_halves_are_within_their_bounds() {
    let mut rng = StdRng::seed_from_u64(15);
    for case in 0..16 {
        let product = Product::random(&mut rng);
        let x = values(&mut rng, product.leading.iter().product::<i64>() * product.steps, |_, v| v);
        // Quarters of different sizes, and columns that cancel others in the sums.
        let scale = |i: usize| if case % 4 == 3 && (i / 7) & 1 == 0 { 1e3 } else { 1.0 };
        let weights = values(&mut rng, product.steps * product.columns, |i, v| scale(i) * v);
        let (error, report) = product.error(&x, &weights, 1 + case % 2);
        let bound = report.error_bound.unwrap_or_else(|| panic!("{product:?} is not divided"));
        assert!(error <= bound, "{product:?}: {error:e}, bound {bound:e}");
        let [layer] = &report.layers[..] else { panic!("{product:?}: {report}") };
        assert_eq!((layer.chosen.algorithm, &layer.runner_up), (Algorithm::Strassen, &None));
        assert_eq!(layer.chosen.weights_bytes * 4, layer.source_weights_bytes * 7);
    }
}

#[test]
fn products_with_an_odd_extent_and_small_ones_keep_their_definition() {
    let mut rng = StdRng::seed_from_u64(16);
    for [rows, steps, columns] in [[5, 8, 8], [8, 5, 8], [8, 8, 5]] {
        let product = Product { leading: vec![rows], steps, columns, transposed: false };
        let x = values(&mut rng, rows * steps, |_, v| v);
        let weights = values(&mut rng, steps * columns, |_, v| v);
        let (error, report) = product.error(&x, &weights, 1);
        assert!(error < 1e-6 && report.layers.is_empty(), "{product:?}: {error:e}, {report}");
    }
    let product = Product { leading: vec![64], steps: 64, columns: 64, transposed: false };
    let model = product.model(&values(&mut rng, 64 * 64, |_, v| v));
    let report = model.compile_module(&Options::default()).unwrap().1.rewriting.unwrap();
    assert!(report.rules.iter().all(|(rule, _)| *rule != "product-strassen") && report.algorithms.layers.is_empty());
}
