//! Products and convolutions of integers of 8 bits through the whole compiler, on every target of this processor: equal to a
//! plain loop over i32, for random shapes. Convolutions between quantisations are one kernel that reads and writes integers,
//! and their results are those of the definition in real numbers, or the other one of a tie.

mod common;

use common::host_targets;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::internal::expr::{BinaryOp, UnaryOp};
use tilewright::internal::graph::op::{Layout, Op, Window};
use tilewright::{DType, EgraphOptions, GraphBuilder, KernelReport, Model, Options, Tensor, ValueId};

const BYTES: [DType; 2] = [DType::U8, DType::I8];

/// Numbers that depend on the seed alone.
struct Random(StdRng);

impl Random {
    fn new(seed: u64) -> Random {
        Random(StdRng::seed_from_u64(seed))
    }

    /// A number from 0 to `count - 1`.
    fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// All bytes, the extremes more often; of i16, bytes less a zero point.
    fn bytes(&mut self, dtype: DType, shape: &[i64]) -> Tensor {
        if dtype == DType::I16 {
            let (bytes, zero) = (numbers(&self.bytes(DType::U8, shape)), self.pick(&[0, 100, 255]));
            return Tensor::new(shape, &bytes.into_iter().map(|v| (v - zero) as i16).collect::<Vec<i16>>());
        }
        let mut tensor = Tensor::zeros(dtype, shape);
        for byte in tensor.data.iter_mut() {
            let extreme = self.below(8);
            *byte = if extreme < 3 { [0, 255, 128][extreme] } else { self.0.random() };
        }
        tensor
    }

    fn words(&mut self, shape: &[i64]) -> Tensor {
        let count = shape.iter().product::<i64>();
        let words: Vec<i32> = (0..count).map(|_| self.0.random_range(-50_000..50_000)).collect();
        Tensor::new(shape, &words)
    }
}

fn numbers(tensor: &Tensor) -> Vec<i32> {
    match tensor.dtype {
        DType::U8 => tensor.data.iter().map(|&b| i32::from(b)).collect(),
        DType::I16 => tensor.to_vec::<i16>().into_iter().map(i32::from).collect(),
        DType::I8 => tensor.data.iter().map(|&b| i32::from(b as i8)).collect(),
        _ => tensor.to_vec::<i32>(),
    }
}

/// An operator of these operands, on every target of this processor; operands after the first are constants where `constant`.
fn compiled(op: &Op, operands: &[Tensor], constant: bool, what: &str) -> Vec<(String, Tensor)> {
    let mut b = GraphBuilder::new("bytes");
    let mut given = vec![];
    let mut ids = vec![];
    for (i, tensor) in operands.iter().enumerate() {
        if i > 0 && constant {
            ids.push(b.constant(tensor.clone()));
        } else {
            let name = format!("x{i}");
            ids.push(b.input(&name, tensor.dtype, &tensor.shape));
            given.push((name, tensor));
        }
    }
    let y = b.op(op.clone(), &ids).unwrap()[0];
    b.output("y", y).unwrap();
    let model = Model::from_graph(b.build().unwrap());
    let given: Vec<(&str, &Tensor)> = given.iter().map(|(name, tensor)| (name.as_str(), *tensor)).collect();
    let on = |target: tilewright::Target| {
        let name = target.name.clone();
        let options = Options { target: Some(target), threads: 2, ..Options::default() };
        let compiled = model.compile(&options).unwrap_or_else(|e| panic!("{what} on {name}: {e}"));
        let got = compiled.run(&given).unwrap().remove(0);
        (name, got)
    };
    host_targets().into_iter().chain(tilewright::Target::host()).map(on).collect()
}

#[test]
fn products_of_bytes() {
    let random = &mut Random::new(1);
    for case in 0..32 {
        let (a, b) = if case < 24 { (random.pick(&BYTES), random.pick(&BYTES)) } else { (DType::I16, DType::I16) };
        let [m, n, k] =
            [random.pick(&[1, 2, 7, 16, 33, 50]), 1 + random.below(70) as i64, 1 + random.below(200) as i64];
        let batch = random.pick(&[1, 1, 3]);
        let (transpose_a, transpose_b) = (random.below(4) == 0, random.below(2) == 0);
        let shape =
            |rows, columns, turned| if turned { vec![batch, columns, rows] } else { vec![batch, rows, columns] };
        let operands = [random.bytes(a, &shape(m, k, transpose_a)), random.bytes(b, &shape(k, n, transpose_b)[1..])];
        let what = format!("case {case}: {a} {m}x{k} (turned: {transpose_a}) by {b} {k}x{n} (turned: {transpose_b})");
        let (x, y) = (numbers(&operands[0]), numbers(&operands[1]));
        let at = |i: i64, j: i64, rows: i64, columns: i64, turned| {
            if turned { (j * rows + i) as usize } else { (i * columns + j) as usize }
        };
        let mut wanted = vec![];
        for image in 0..batch {
            let x = &x[(image * m * k) as usize..];
            for i in 0..m {
                wanted.extend((0..n).map(|j| {
                    let term = |l| x[at(i, l, m, k, transpose_a)] * y[at(l, j, k, n, transpose_b)];
                    (0..k).map(term).sum::<i32>()
                }));
            }
        }
        let op = Op::MatMul { transpose_a, transpose_b };
        for (target, got) in compiled(&op, &operands, random.below(2) == 0, &what) {
            assert_eq!((got.dtype, got.to_vec::<i32>()), (DType::I32, wanted.clone()), "{what} on {target}");
        }
    }
}

#[test]
fn bytes_of_a_table() {
    let random = &mut Random::new(3);
    for count in [1, 31, 64, 65, 200, 5000] {
        for dtype in BYTES {
            let operands = [random.bytes(dtype, &[256]), random.bytes(DType::U8, &[count])];
            let wanted: Vec<u8> = operands[1].data.iter().map(|&place| operands[0].data[place as usize]).collect();
            for (target, got) in compiled(&Op::Table, &operands, false, "a table") {
                assert_eq!((got.dtype, &got.data[..]), (dtype, &wanted[..]), "{count} of {dtype} on {target}");
            }
        }
    }
}

/// A convolution over N, C, H, W by its definition.
fn convolution(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, window: &Window, group: i64, out: &[i64]) -> Vec<i32> {
    let (image, weights) = (numbers(x), numbers(w));
    let bias = bias.map(|b| b.to_vec::<i32>());
    let (c, h, width) = (x.shape[1], x.shape[2], x.shape[3]);
    let (per_group, r, s) = (w.shape[1], w.shape[2], w.shape[3]);
    let mut y = vec![];
    for place in 0..out.iter().product::<i64>() {
        let (j, i) = (place % out[3], place / out[3] % out[2]);
        let (f, n) = (place / (out[3] * out[2]) % out[1], place / (out[3] * out[2] * out[1]));
        let mut sum = bias.as_ref().map_or(0, |b| b[f as usize]);
        for (channel, p, q) in (0..per_group * r * s).map(|t| (t / (r * s), t / s % r, t % s)) {
            let row = i * window.stride[0] + p * window.dilation[0] - window.pad_before[0];
            let column = j * window.stride[1] + q * window.dilation[1] - window.pad_before[1];
            if (0..h).contains(&row) && (0..width).contains(&column) {
                let of_group = f / (out[1] / group) * per_group + channel;
                let pixel = image[(((n * c + of_group) * h + row) * width + column) as usize];
                sum += pixel * weights[(((f * per_group + channel) * r + p) * s + q) as usize];
            }
        }
        y.push(sum);
    }
    y
}

#[test]
fn convolutions_of_bytes() {
    let random = &mut Random::new(2);
    for case in 0..32 {
        let (a, b) = if case < 24 { (random.pick(&BYTES), random.pick(&BYTES)) } else { (DType::I16, DType::I16) };
        let group = random.pick(&[1, 1, 1, 2, 4]);
        let depthwise = group == 4 && random.below(2) == 0;
        let per_group = if depthwise { 1 } else { 1 + random.below(20) as i64 };
        let filters = group * if depthwise { 1 } else { 1 + random.below(24) as i64 };
        let kernel: Vec<i64> = (0..2).map(|_| random.pick(&[1, 1, 2, 3, 3, 5])).collect();
        let mut each = |list: &[i64]| -> Vec<i64> { (0..2).map(|_| random.pick(list)).collect() };
        let (stride, dilation) = (each(&[1, 1, 2]), each(&[1, 1, 2]));
        let (pad_before, pad_after) = (each(&[0, 1, 2]), each(&[0, 1, 2]));
        let (size, batch) = (each(&[9, 10, 13]), each(&[1, 1, 2])[0]);
        let extent =
            |d: usize| (size[d] + pad_before[d] + pad_after[d] - (kernel[d] - 1) * dilation[d] - 1) / stride[d] + 1;
        let out = [batch, filters, extent(0), extent(1)];
        let x = random.bytes(a, &[batch, per_group * group, size[0], size[1]]);
        let w = random.bytes(b, &[filters, per_group, kernel[0], kernel[1]]);
        let window = Window { kernel, stride, dilation, pad_before, pad_after };
        let mut operands = vec![x, w];
        if random.below(2) == 0 {
            operands.push(random.words(&[filters]));
        }
        let what = format!("case {case}: {a} {:?} by {b} {:?}, {window:?}", operands[0].shape, operands[1].shape);
        let wanted = convolution(&operands[0], &operands[1], operands.get(2), &window, group, &out);
        let op = Op::Conv { window, group, layout: Layout::Nchw };
        for (target, got) in compiled(&op, &operands, case % 4 != 0, &what) {
            assert_eq!((got.dtype, &got.shape[..]), (DType::I32, &out[..]), "{what} on {target}");
            assert!(got.to_vec::<i32>() == wanted, "{what} on {target}");
        }
    }
}

/// A convolution between quantisations: types, zero points and scales of what it reads and writes.
struct Quantised {
    from: (DType, i32, f32),
    to: (DType, i32, f32),
    weights: Tensor,
    /// One for each filter.
    scales: Vec<f32>,
    bias: Vec<f32>,
    activation: bool,
    window: Window,
}

impl Quantised {
    fn random(random: &mut Random) -> Quantised {
        let mut side = |scale: f32| {
            let dtype = random.pick(&BYTES);
            let zero = random.pick(&[0, 0, 3, 100]) - if dtype == DType::I8 { 128 } else { 0 };
            (dtype, zero, scale * (1.0 + random.below(100) as f32 / 100.0))
        };
        let (from, to) = (side(0.01), side(0.3));
        let filters = 1 + random.below(20) as i64;
        let channels = 1 + random.below(12) as i64;
        let kernel = random.pick(&[1, 3]);
        let pad = if kernel == 3 { random.pick(&[0, 1]) } else { 0 };
        let mut real = |scale: f32| -> Vec<f32> {
            (0..filters).map(|_| scale * (1.0 + random.below(1000) as f32 / 500.0)).collect()
        };
        let (scales, bias) = (real(0.01), real(2.0));
        let (kernel, stride) = (vec![kernel; 2], vec![random.pick(&[1, 2]); 2]);
        let weights = random.bytes(DType::I8, &[filters, channels, kernel[0], kernel[1]]);
        let (pad_before, pad_after) = (vec![pad; 2], vec![pad; 2]);
        let window = Window { kernel, stride, dilation: vec![1; 2], pad_before, pad_after };
        Quantised { from, to, weights, scales, bias, activation: random.below(2) == 0, window }
    }

    fn range(dtype: DType) -> (f32, f32) {
        if dtype == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) }
    }

    /// The graph as an importer builds it.
    fn model(&self, shape: &[i64]) -> Model {
        let mut b = GraphBuilder::new("quantised");
        let filters = self.weights.shape[0];
        fn of(b: &mut GraphBuilder, v: f32) -> ValueId {
            b.constant(Tensor::new(&[], &[v]))
        }
        let one = |b: &mut GraphBuilder, op: Op, operands: &[ValueId]| b.op(op, operands).unwrap()[0];
        let q = b.input("q", self.from.0, shape);
        let x = one(&mut b, Op::Cast(DType::F32), &[q]);
        let (zero, scale) = (of(&mut b, self.from.1 as f32), of(&mut b, self.from.2));
        let x = b.binary(BinaryOp::Sub, x, zero).unwrap();
        let x = b.mul(x, scale).unwrap();
        let w = b.constant(self.weights.clone());
        let w = one(&mut b, Op::Cast(DType::F32), &[w]);
        let scales = b.constant(Tensor::new(&[filters, 1, 1, 1], &self.scales));
        let w = b.mul(w, scales).unwrap();
        let bias = b.constant(Tensor::new(&[filters], &self.bias));
        let op = Op::Conv { window: self.window.clone(), group: 1, layout: Layout::Nchw };
        let mut y = one(&mut b, op, &[x, w, bias]);
        if self.activation {
            y = b.relu(y).unwrap();
        }
        let scale = of(&mut b, self.to.2);
        y = b.binary(BinaryOp::Div, y, scale).unwrap();
        y = one(&mut b, Op::Unary(UnaryOp::Round), &[y]);
        let (low, high) = Quantised::range(self.to.0);
        for (op, v) in [(BinaryOp::Add, self.to.1 as f32), (BinaryOp::Max, low), (BinaryOp::Min, high)] {
            let v = of(&mut b, v);
            y = b.binary(op, y, v).unwrap();
        }
        let y = one(&mut b, Op::Cast(self.to.0), &[y]);
        b.output("y", y).unwrap();
        Model::from_graph(b.build().unwrap())
    }

    /// Each result before it is rounded, by the definition in real numbers, and the size of its largest term.
    fn real(&self, x: &Tensor, out: &[i64]) -> Vec<(f64, f64)> {
        let centred: Vec<i32> = numbers(x).iter().map(|v| v - self.from.1).collect();
        let centred = Tensor::new(&x.shape, &centred);
        let sums = convolution(&centred, &self.weights, None, &self.window, 1, out);
        let area = (out[2] * out[3]) as usize;
        let real = |(i, sum): (usize, i32)| {
            let f = i / area % self.scales.len();
            let product = f64::from(sum) * f64::from(self.from.2) * f64::from(self.scales[f]);
            let value = product + f64::from(self.bias[f]);
            let value = if self.activation { value.max(0.0) } else { value };
            let scale = f64::from(self.to.2);
            (value / scale, product.abs().max(f64::from(self.bias[f])) / scale)
        };
        sums.into_iter().enumerate().map(real).collect()
    }
}

#[test]
fn convolutions_between_quantisations() {
    let random = &mut Random::new(3);
    for case in 0..12 {
        let q = Quantised::random(random);
        let (channels, size) = (q.weights.shape[1], random.pick(&[7, 8]));
        let x = random.bytes(q.from.0, &[1, channels, size, size]);
        let extent = (size + 2 * q.window.pad_before[0] - q.window.kernel[0]) / q.window.stride[0] + 1;
        let out = [1, q.weights.shape[0], extent, extent];
        let real = q.real(&x, &out);
        let (low, high) = Quantised::range(q.to.0);
        for (target, byte_products) in host_targets().into_iter().flat_map(|t| [(t.clone(), Some(true)), (t, None)]) {
            let name = format!("{} {byte_products:?}", target.name);
            let egraph = EgraphOptions { byte_products, ..EgraphOptions::default() };
            let options = Options { target: Some(target), egraph, ..Options::default() };
            let compiled = q.model(&x.shape).compile(&options).unwrap();
            let got = numbers(&compiled.run(&[("q", &x)]).unwrap()[0]);
            for (&got, &(value, size)) in got.iter().zip(&real) {
                let wanted = |v: f64| (v.round_ties_even() + f64::from(q.to.1)).clamp(low.into(), high.into()) as i32;
                let near = 1e-6 * size.max(1.0);
                let fits = got == wanted(value) || got == wanted(value - near) || got == wanted(value + near);
                assert!(fits, "case {case} on {name}: {got} of {value}");
            }
            if byte_products.is_none() {
                continue;
            }
            let report = compiled.report(&[("q", &x)]).unwrap();
            let computing = |k: &&KernelReport| k.operators.iter().any(|op| op != "transpose");
            let kernels: Vec<_> = report.kernels.iter().filter(computing).collect();
            let convolutions = kernels.iter().filter(|k| k.operators.iter().any(|op| op.starts_with("conv"))).count();
            let pads = kernels.iter().filter(|k| k.operators.iter().any(|op| op.starts_with("pad"))).count();
            let words: Vec<_> = kernels.iter().map(|k| k.operators.join(" ")).collect();
            assert!(convolutions == 1 && kernels.len() <= 1 + pads + 1, "case {case} on {name}: {words:?}");
            let last = words.iter().find(|w| w.contains("conv")).unwrap();
            assert!(last.contains("round") && last.contains("min"), "case {case} on {name}: {words:?}");
        }
    }
}

/// The first layer of a network: three channels fill no group of four terms, and are joined with the columns of the filter.
#[test]
fn convolutions_of_few_channels_are_products_of_bytes() {
    let random = &mut Random::new(4);
    let targets: Vec<_> = host_targets().into_iter().filter(|t| t.name.contains("vnni")).collect();
    for (channels, kernel, pad) in [(3, 7, 3), (3, 3, 1), (1, 5, 2), (6, 3, 0)] {
        let filters = 32;
        let each = |v: i64| vec![v; 2];
        let (pad_before, pad_after) = (each(pad), each(pad));
        let window = Window { kernel: each(kernel), stride: each(2), dilation: each(1), pad_before, pad_after };
        let q = Quantised {
            from: (DType::U8, 100, 0.01),
            to: (DType::U8, 3, 0.3),
            weights: random.bytes(DType::I8, &[filters, channels, kernel, kernel]),
            scales: vec![0.01; filters as usize],
            bias: vec![0.5; filters as usize],
            activation: true,
            window,
        };
        let x = random.bytes(DType::U8, &[1, channels, 41, 38]);
        for target in &targets {
            let name = &target.name;
            let options = Options { target: Some(target.clone()), ..Options::default() };
            let compiled = q.model(&x.shape).compile(&options).unwrap();
            let report = compiled.report(&[("q", &x)]).unwrap();
            let phases = report.kernels.iter().flat_map(|k| &k.phases);
            let of_bytes = phases.filter_map(|p| p.instruction.as_deref()).any(|i| i.starts_with("vpdpbusd"));
            assert!(of_bytes, "{channels} channels, {kernel}x{kernel} on {name}: {report}");
            let got = numbers(&compiled.run(&[("q", &x)]).unwrap()[0]);
            let out = |size: i64| (size + 2 * pad - kernel) / 2 + 1;
            for (&got, (value, _)) in got.iter().zip(q.real(&x, &[1, filters, out(41), out(38)])) {
                let wanted = (value.round_ties_even() + 3.0).clamp(0.0, 255.0);
                assert!((f64::from(got) - wanted).abs() <= 1.0, "{channels} channels on {name}: {got} of {value}");
            }
        }
    }
}

/// Rows of f32 by weights of 8 bits with a scale for each column: whole numbers are exact, others within the bound of sums of f32, and
/// what is not a number reaches the results of its row alone.
#[test]
fn few_rows_by_weights_of_bytes() {
    let random = &mut Random::new(8);
    for (rows, depth, columns) in [(1, 1000, 600), (3, 700, 530), (16, 512, 512)] {
        let w = random.bytes(DType::I8, &[depth, columns]);
        let weights = numbers(&w);
        let scales: Vec<f32> = (0..columns).map(|_| random.pick(&[0.5, 1.0, 2.0])).collect();
        let mut b = GraphBuilder::new("rows");
        let x = b.input("x", DType::F32, &[rows, depth]);
        let (w, s) = (b.constant(w), b.constant(Tensor::new(&[columns], &scales)));
        let w = b.op(Op::Cast(DType::F32), &[w]).unwrap()[0];
        let w = b.binary(BinaryOp::Mul, w, s).unwrap();
        let y = b.matmul(x, w).unwrap();
        b.output("y", y).unwrap();
        let model = Model::from_graph(b.build().unwrap());
        let units = [(1.0, None), (0.3, None), (1e-30, None), (1.0, Some(f32::NAN)), (1.0, Some(f32::INFINITY))];
        check_rows(random, &model, [rows, depth, columns], &units, |unit, row, j| {
            let column = weights.iter().skip(j).step_by(columns as usize);
            let terms = row.iter().zip(column).map(|(&x, &w)| f64::from(x) * f64::from(w));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let scale = f64::from(scales[j]);
            (sum * scale, if unit == 1.0 { 0.0 } else { 1e-5 * size * scale })
        });
    }
}

/// Compares products of rows `x` with a matrix, on each target of this host, with what `expected` says for a row and a column: the sum
/// and how far off it may be. Rows are whole numbers times a unit; a last number that is none reaches the results of its row alone.
fn check_rows(
    random: &mut Random,
    model: &Model,
    [rows, depth, columns]: [i64; 3],
    units: &[(f32, Option<f32>)],
    expected: impl Fn(f32, &[f32], usize) -> (f64, f64),
) {
    for &(unit, hole) in units {
        let mut x: Vec<f32> = (0..rows * depth).map(|_| (random.below(401) as f32 - 200.0) * unit).collect();
        if let Some(hole) = hole {
            x[depth as usize - 1] = hole;
        }
        let input = Tensor::new(&[rows, depth], &x);
        for target in host_targets().into_iter().chain(tilewright::Target::host()) {
            let name = target.name.clone();
            let options = Options { target: Some(target), ..Options::default() };
            let y = model.compile(&options).unwrap().run(&[("x", &input)]).unwrap()[0].to_vec::<f32>();
            assert_eq!(y.len() as i64, rows * columns);
            for (at, &y) in y.iter().enumerate() {
                let (i, j) = (at / columns as usize, at % columns as usize);
                let what = format!("{rows}x{depth}x{columns}, unit {unit}, hole {hole:?}: {y} at {i}, {j} on {name}");
                if hole.is_some() && i == 0 {
                    assert!(!y.is_finite(), "{what}");
                    continue;
                }
                let (sum, allowed) = expected(unit, &x[i * depth as usize..(i + 1) * depth as usize], j);
                let error = (f64::from(y) - sum).abs();
                assert!(error <= allowed, "{what} is off by {error:e} from {sum}");
            }
        }
    }
}

/// Weights that have so many bits and a scale for each block of each column: numbers (blocks, terms, columns), from `low` on in each block, and scales.
fn weights_in_blocks(random: &mut Random, shape: [i64; 3], (low, bits): (i32, usize)) -> (Vec<i8>, Vec<f32>) {
    let [blocks, terms, columns] = shape;
    let zeros: Vec<i32> =
        (0..blocks * columns).map(|_| low + if low == 0 { -(random.below(16) as i32) } else { 0 }).collect();
    let number = |random: &mut Random, i: i64| {
        let zero = zeros[(i / (terms * columns) * columns + i % columns) as usize];
        (zero + random.below(1 << bits) as i32) as i8
    };
    let numbers = (0..blocks * terms * columns).map(|i| number(random, i)).collect();
    (numbers, (0..blocks * columns).map(|_| random.pick(&[0.5, 1.0, 2.0])).collect())
}

/// Rows of f32 by weights with a scale for each block of each column, as `MatMulNBits` has them and as block-wise dequantisation does: within the
/// bound of the digits that the row may be rounded to, and what is not a number reaches the results of its row alone.
#[test]
fn few_rows_by_weights_in_blocks() {
    let random = &mut Random::new(9);
    let cases = [
        (1, [8, 32, 600], (-8, 4), 3),
        (1, [5, 16, 130], (0, 4), 3),
        (1, [4, 32, 70], (-128, 8), 2),
        (1, [6, 64, 200], (-8, 4), 3),
        (1, [9, 32, 333], (-8, 4), 1),
        (1, [3, 12, 50], (-8, 4), 1),
        (2, [4, 32, 96], (-8, 4), 3),
        (1, [2, 7, 40], (-8, 4), 3),
    ];
    for (case, &(rows, [blocks, terms, columns], numbers, digits)) in cases.iter().enumerate() {
        let (w, scales) = weights_in_blocks(random, [blocks, terms, columns], numbers);
        let mut b = GraphBuilder::new("blocks");
        let x = b.input("x", DType::F32, &[rows, blocks * terms]);
        let reshaped =
            |b: &mut GraphBuilder, v, shape: &[i64]| b.op(Op::Reshape { shape: shape.to_vec() }, &[v]).unwrap()[0];
        let weights = b.constant(Tensor::new(&[blocks, terms, columns], &w));
        let y = if case % 2 == 0 {
            let x = reshaped(&mut b, x, &[rows, blocks, terms]);
            let scales = b.constant(Tensor::new(&[blocks, columns], &scales));
            b.op(Op::BlockProduct { digits, packed: false }, &[x, weights, scales]).unwrap()[0]
        } else {
            let scales = b.constant(Tensor::new(&[blocks, 1, columns], &scales));
            let weights = b.op(Op::Cast(DType::F32), &[weights]).unwrap()[0];
            let weights = b.binary(BinaryOp::Mul, weights, scales).unwrap();
            let weights = reshaped(&mut b, weights, &[blocks * terms, columns]);
            b.matmul(x, weights).unwrap()
        };
        b.output("y", y).unwrap();
        let model = Model::from_graph(b.build().unwrap());
        let bound = if case % 2 == 0 { [8e-3, 3.1e-5, 1e-6][digits as usize - 1] } else { 1e-6 };
        let units = [(1.0, None), (0.3, None), (1.0, Some(f32::NAN)), (1.0, Some(f32::INFINITY))];
        check_rows(random, &model, [rows, blocks * terms, columns], &units, |unit, row, j| {
            let (mut sum, mut size) = (0.0, 0.0);
            for (k, &x) in row.iter().enumerate() {
                let scale = scales[k / terms as usize * columns as usize + j];
                let weight = f64::from(w[k * columns as usize + j]) * f64::from(scale);
                (sum, size) = (sum + f64::from(x) * weight, size + weight.abs());
            }
            (sum, bound * 200.0 * f64::from(unit) * size)
        });
    }
}

/// Products with weights of 4 bits read them from memory as they are packed, and have one kernel that scales the sums of blocks.
#[test]
fn weights_of_four_bits_stay_so() {
    let random = &mut Random::new(10);
    let targets: Vec<_> = host_targets().into_iter().filter(|t| t.name.contains("x86-64")).collect();
    let (w, scales) = weights_in_blocks(random, [32, 32, 1024], (-8, 4));
    let mut b = GraphBuilder::new("nibbles");
    let x = b.input("x", DType::F32, &[1, 32, 32]);
    let (w, s) = (b.constant(Tensor::new(&[32, 32, 1024], &w)), b.constant(Tensor::new(&[32, 1024], &scales)));
    let y = b.op(Op::BlockProduct { digits: 1, packed: false }, &[x, w, s]).unwrap()[0];
    b.output("y", y).unwrap();
    let model = Model::from_graph(b.build().unwrap());
    let input = Tensor::new(&[1, 32, 32], &(0..1024).map(|i| (i % 17) as f32 - 8.0).collect::<Vec<_>>());
    for target in targets {
        let name = target.name.clone();
        let row =
            if name.contains("vnni") || name.contains("amx") { "vpdpbusd_signed" } else { "vpmaddubsw_of_4_bits" };
        let of = |max_error: f64| {
            let options = Options { target: Some(target.clone()), max_error, ..Options::default() };
            let compiled = model.compile(&options).unwrap();
            let report = compiled.report(&[("x", &input)]).unwrap();
            let phases = report.kernels.iter().flat_map(|k| &k.phases);
            let rows: Vec<String> = phases.filter_map(|p| p.instruction.clone()).collect();
            (
                rows.iter().any(|of_kernel| of_kernel.starts_with(row)),
                compiled.run(&[("x", &input)]).unwrap().remove(0),
                report,
            )
        };
        let (of_bytes, y, report) = of(1e-4);
        assert!(of_bytes, "{name}: {report}");
        let (of_bytes, exact, report) = of(0.0);
        assert!(!of_bytes, "{name}: {report}");
        let (y, exact) = (y.to_vec::<f32>(), exact.to_vec::<f32>());
        assert!(y != exact && y.iter().zip(&exact).all(|(a, b)| (a - b).abs() < 20.0), "{name}");
    }
}

/// Products as dynamic quantisation writes them: bytes less a zero point that comes with them, by weights less zero points of
/// columns. The sums are exact, also where they are too large for f32.
#[test]
fn products_of_bytes_less_zero_points_are_exact() {
    let random = &mut Random::new(5);
    for (case, (m, k, n)) in [(1, 700, 40), (5, 33, 17), (32, 1500, 24), (7, 64, 3)].into_iter().enumerate() {
        let wide = case % 2 == 0;
        let q = random.bytes(DType::U8, &[m, k]);
        let w = random.bytes(if wide { DType::U8 } else { DType::I8 }, &[k, n]);
        let zero = Tensor::new(&[], &[random.pick(&[0u8, 128, 255])]);
        let zeros: Vec<i32> = (0..n).map(|_| if wide { random.below(256) as i32 } else { 0 }).collect();
        let mut b = GraphBuilder::new("dynamic");
        let (x, z) = (b.input("q", DType::U8, &[m, k]), b.input("z", DType::U8, &[]));
        let whole = |b: &mut GraphBuilder, v: ValueId| b.op(Op::Cast(DType::I32), &[v]).unwrap()[0];
        let (x, z) = (whole(&mut b, x), whole(&mut b, z));
        let x = b.binary(BinaryOp::Sub, x, z).unwrap();
        let weights = b.constant(w.clone());
        let weights = whole(&mut b, weights);
        let shift = b.constant(Tensor::new(&[n], &zeros));
        let weights = b.binary(BinaryOp::Sub, weights, shift).unwrap();
        let y = b.matmul(x, weights).unwrap();
        b.output("y", y).unwrap();
        let model = Model::from_graph(b.build().unwrap());
        let (x, w, z) = (numbers(&q), numbers(&w), i32::from(zero.data[0]));
        let wanted: Vec<i32> = (0..m * n)
            .map(|at| {
                let (i, j) = (at / n, at % n);
                let term = |l: i64| (x[(i * k + l) as usize] - z) * (w[(l * n + j) as usize] - zeros[j as usize]);
                (0..k).map(term).sum()
            })
            .collect();
        for target in host_targets() {
            let name = target.name.clone();
            let compiled = model.compile(&Options { target: Some(target), ..Options::default() }).unwrap();
            let inputs = [("q", &q), ("z", &zero)];
            assert!(compiled.run(&inputs).unwrap()[0].to_vec::<i32>() == wanted, "case {case} on {name}");
            let report = compiled.report(&inputs).unwrap();
            let mut rows = report.kernels.iter().flat_map(|k| &k.phases).filter_map(|p| p.instruction.as_deref());
            let of_integers = rows.any(|row| row.starts_with("vpmaddwd") || row.starts_with("vpdp"));
            assert!(n < 24 || of_integers || !name.starts_with("x86"), "case {case} on {name}: {report}");
        }
    }
}
