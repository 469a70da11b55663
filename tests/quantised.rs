//! Products and convolutions of integers of 8 bits through the whole compiler, on every target of this processor: equal to a
//! plain loop over i32, for random shapes.

mod common;

use common::host_targets;
use tilewright::internal::graph::op::{Layout, Op, Window};
use tilewright::{DType, GraphBuilder, Model, Options, Tensor};

const BYTES: [DType; 2] = [DType::U8, DType::I8];

/// Numbers that depend on the seed alone.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// A number from 0 to `count - 1`.
    fn below(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// All bytes, the extremes more often.
    fn bytes(&mut self, dtype: DType, shape: &[i64]) -> Tensor {
        let mut tensor = Tensor::zeros(dtype, shape);
        for byte in tensor.data.iter_mut() {
            let extreme = self.below(8);
            *byte = if extreme < 3 { [0, 255, 128][extreme] } else { self.next() as u8 };
        }
        tensor
    }

    fn words(&mut self, shape: &[i64]) -> Tensor {
        let count = shape.iter().product::<i64>();
        let words: Vec<i32> = (0..count).map(|_| self.next() as i32 % 100_000 - 50_000).collect();
        Tensor::new(shape, &words)
    }
}

fn numbers(tensor: &Tensor) -> Vec<i32> {
    match tensor.dtype {
        DType::U8 => tensor.data.iter().map(|&b| i32::from(b)).collect(),
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
    host_targets().into_iter().map(on).collect()
}

#[test]
fn products_of_bytes() {
    let random = &mut Random(1);
    for case in 0..24 {
        let (a, b) = (random.pick(&BYTES), random.pick(&BYTES));
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
    let random = &mut Random(2);
    for case in 0..24 {
        let (a, b) = (random.pick(&BYTES), random.pick(&BYTES));
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
