use super::*;
use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::define::define;
use crate::graph::fold;
use crate::graph::infer::infer;
use crate::graph::op::{F32, FusionKind, Layout, Op, PoolKind, ReduceOp, Window};
use crate::poly::reference;
use crate::runtime::DType;

/// Small integers, so that sums are exact and equal in any order.
fn tensor(shape: &[i64], seed: u32) -> Tensor {
    let count = shape.iter().product::<i64>() as u32;
    let value = |i: u32| (((i + seed).wrapping_mul(2654435761) >> 13) % 9) as f32 - 4.0;
    Tensor::new(shape, &(0..count).map(value).collect::<Vec<_>>())
}

fn apply(op: &Op, inputs: &[&Tensor]) -> Tensor {
    let folded = fold::evaluate(op, inputs).unwrap_or_else(|e| panic!("{op}: {e}"));
    let types: Vec<TensorType> = inputs.iter().map(|t| TensorType::of(t)).collect();
    if !matches!(op, Op::Reshape { .. }) && op.kind() != FusionKind::Opaque {
        let defined = reference::evaluate(&define(op, &types).unwrap(), inputs).unwrap_or_else(|e| panic!("{op}: {e}"));
        assert!(folded == defined, "{op}: folding differs from the definition");
    }
    folded.into_iter().next().unwrap()
}

fn window(rank: usize) -> Vec<Window> {
    let w = |k: [i64; 2], s: [i64; 2], d: [i64; 2], before: [i64; 2], after: [i64; 2]| Window {
        kernel: k[..rank].to_vec(),
        stride: s[..rank].to_vec(),
        dilation: d[..rank].to_vec(),
        pad_before: before[..rank].to_vec(),
        pad_after: after[..rank].to_vec(),
    };
    vec![
        w([1, 1], [1, 1], [1, 1], [0, 0], [0, 0]),
        w([3, 3], [1, 1], [1, 1], [1, 1], [1, 1]),
        w([3, 2], [2, 3], [1, 2], [0, 1], [2, 0]),
        w([2, 5], [2, 1], [3, 1], [1, 2], [1, 2]),
        w([1, 2], [3, 2], [1, 1], [0, 0], [0, 0]),
    ]
}

/// Calls `f(output position, tap, input position)` for every pair that meets inside both images, in two dimensions.
fn slide(w: &Window, input: &[i64], output: &[i64], mut f: impl FnMut([i64; 2], [i64; 2], [i64; 2])) {
    for oh in 0..output[0] {
        for ow in 0..output[1] {
            for r in 0..w.kernel[0] {
                for s in 0..w.kernel[1] {
                    let ih = oh * w.stride[0] + r * w.dilation[0] - w.pad_before[0];
                    let iw = ow * w.stride[1] + s * w.dilation[1] - w.pad_before[1];
                    if (0..input[0]).contains(&ih) && (0..input[1]).contains(&iw) {
                        f([oh, ow], [r, s], [ih, iw]);
                    }
                }
            }
        }
    }
}

const LAYOUTS: [Layout; 3] = [Layout::Nchw, Layout::Nhwc, Layout::Blocked(4)];

/// `op`, which works in `layout`, applied to an NCHW image: transposed or blocked before, undone after.
fn through(layout: Layout, x: &Tensor, channels: i64, op: &Op, rest: &[&Tensor]) -> Result<Tensor> {
    let with = |x: &Tensor| -> Result<Tensor> {
        let inputs: Vec<&Tensor> = [x].into_iter().chain(rest.iter().copied()).collect();
        Ok(fold::evaluate(op, &inputs)?.remove(0))
    };
    let undo = match layout {
        Layout::Nchw => return with(x),
        Layout::Nhwc => Op::Transpose { perm: vec![0, 3, 1, 2] },
        Layout::Blocked(_) => Op::Unblock { channels },
    };
    let to = match layout {
        Layout::Blocked(block) => Op::Block { block },
        _ => Op::Transpose { perm: vec![0, 2, 3, 1] },
    };
    Ok(apply(&undo, &[&with(&apply(&to, &[x]))?]))
}

#[test]
fn convolutions_agree_with_the_book_in_every_layout() {
    for w in window(2) {
        for (c, f, group) in [(6, 5, 1), (8, 8, 8), (8, 16, 2), (4, 12, 4)] {
            let x = tensor(&[2, c, 7, 8], 1);
            let weights = tensor(&[f, c / group, w.kernel[0], w.kernel[1]], 7);
            let bias = tensor(&[f], 3);
            let op = |layout| Op::Conv { window: w.clone(), group, layout };
            let ty = infer(&op(Layout::Nchw), &[&TensorType::of(&x), &TensorType::of(&weights)]).unwrap().remove(0);
            let (oh, ow) = (ty.shape[2], ty.shape[3]);
            let (xs, ws, bs) = (x.to_vec::<f32>(), weights.to_vec::<f32>(), bias.to_vec::<f32>());
            let mut y: Vec<f32> = (0..2 * f * oh * ow).map(|i| bs[(i / (oh * ow) % f) as usize]).collect();
            slide(&w, &[7, 8], &[oh, ow], |o, k, i| {
                for (n, fi, ci) in
                    (0..2 * f * (c / group)).map(|i| (i / (f * (c / group)), i / (c / group) % f, i % (c / group)))
                {
                    let from = ci + fi / (f / group) * (c / group);
                    y[(((n * f + fi) * oh + o[0]) * ow + o[1]) as usize] += xs
                        [(((n * c + from) * 7 + i[0]) * 8 + i[1]) as usize]
                        * ws[(((fi * (c / group) + ci) * w.kernel[0] + k[0]) * w.kernel[1] + k[1]) as usize];
                }
            });
            let expected = Tensor::new(&ty.shape, &y);
            for layout in LAYOUTS {
                match through(layout, &x, f, &op(layout), &[&weights, &bias]) {
                    Ok(y) => assert_eq!(y, expected, "{}", op(layout)),
                    // groups that are not whole blocks
                    Err(_) => assert_eq!((layout, group), (Layout::Blocked(4), 4)),
                }
            }
        }
    }
}

#[test]
fn transposed_convolutions_scatter_what_convolutions_gather() {
    for w in window(2) {
        for (c, f, group) in [(6, 5, 1), (8, 8, 8), (16, 8, 2)] {
            let x = tensor(&[1, c, 4, 3], 1);
            let weights = tensor(&[c, f / group, w.kernel[0], w.kernel[1]], 7);
            let bias = tensor(&[f], 3);
            let output_pad = vec![w.stride[0] - 1, 0];
            let op = |layout| Op::ConvTranspose { window: w.clone(), group, output_pad: output_pad.clone(), layout };
            let types = [TensorType::of(&x), TensorType::of(&weights)];
            let Ok(ty) = infer(&op(Layout::Nchw), &[&types[0], &types[1]]) else {
                continue; // the padding leaves nothing
            };
            let (oh, ow) = (ty[0].shape[2], ty[0].shape[3]);
            let (xs, ws, bs) = (x.to_vec::<f32>(), weights.to_vec::<f32>(), bias.to_vec::<f32>());
            let mut y: Vec<f32> = (0..f * oh * ow).map(|i| bs[(i / (oh * ow)) as usize]).collect();
            slide(&w, &[oh, ow], &[4, 3], |i, k, o| {
                for ci in 0..c {
                    for fi in 0..f / group {
                        let to = ci / (c / group) * (f / group) + fi;
                        y[((to * oh + o[0]) * ow + o[1]) as usize] += xs[((ci * 4 + i[0]) * 3 + i[1]) as usize]
                            * ws[(((ci * (f / group) + fi) * w.kernel[0] + k[0]) * w.kernel[1] + k[1]) as usize];
                    }
                }
            });
            let expected = Tensor::new(&ty[0].shape, &y);
            for layout in LAYOUTS {
                assert_eq!(
                    through(layout, &x, f, &op(layout), &[&weights, &bias]).unwrap(),
                    expected,
                    "{}",
                    op(layout)
                );
            }
        }
    }
}

#[test]
fn pooling_counts_what_lies_inside() {
    let x = tensor(&[1, 8, 7, 8], 5);
    let xs = x.to_vec::<f32>();
    for w in window(2) {
        for kind in
            [PoolKind::Max, PoolKind::Average { count_padding: true }, PoolKind::Average { count_padding: false }]
        {
            let op = |layout| Op::Pool { kind, window: w.clone(), layout };
            let ty = infer(&op(Layout::Nchw), &[&TensorType::of(&x)]).unwrap().remove(0);
            let (oh, ow) = (ty.shape[2], ty.shape[3]);
            let mut seen = vec![vec![]; ty.elements() as usize];
            slide(&w, &[7, 8], &[oh, ow], |o, _, i| {
                for c in 0..8 {
                    seen[((c * oh + o[0]) * ow + o[1]) as usize].push(xs[((c * 7 + i[0]) * 8 + i[1]) as usize]);
                }
            });
            let all = (w.kernel[0] * w.kernel[1]) as f32;
            let of = |v: &Vec<f32>| match kind {
                PoolKind::Max => v.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                PoolKind::Average { count_padding: true } => v.iter().sum::<f32>() / all,
                PoolKind::Average { .. } => v.iter().sum::<f32>() / v.len() as f32,
            };
            let expected: Vec<f32> = seen.iter().map(of).collect();
            for layout in LAYOUTS {
                let y = through(layout, &x, 8, &op(layout), &[]).unwrap();
                assert_eq!(y.shape, ty.shape);
                for (a, b) in y.to_vec::<f32>().iter().zip(&expected) {
                    assert!((a - b).abs() <= 1e-6 * b.abs() || a == b, "{}: {a} instead of {b}", op(layout));
                }
            }
        }
    }
}

#[test]
fn products_broadcast_and_transpose() {
    let (a, b) = (tensor(&[2, 1, 3, 40], 1), tensor(&[3, 40, 50], 2));
    let (x, y) = (a.to_vec::<f32>(), b.to_vec::<f32>());
    let mut expected = vec![];
    for (i, j) in (0..6).map(|i| (i / 3, i % 3)) {
        for (m, n) in (0..150).map(|i| (i / 50, i % 50)) {
            expected.push((0..40).map(|k| x[(i * 3 + m) * 40 + k] * y[(j * 40 + k) * 50 + n]).sum::<f32>());
        }
    }
    let expected = Tensor::new(&[2, 3, 3, 50], &expected);
    let at = apply(&Op::Transpose { perm: vec![0, 1, 3, 2] }, &[&a]);
    let bt = apply(&Op::Transpose { perm: vec![0, 2, 1] }, &[&b]);
    for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let op = Op::MatMul { transpose_a, transpose_b };
        let y = apply(&op, &[if transpose_a { &at } else { &a }, if transpose_b { &bt } else { &b }]);
        assert_eq!(y, expected, "{op}");
    }
}

#[test]
fn gathers_wrap_negative_subscripts_and_refuse_others() {
    let data = Tensor::new(&[2, 3], &[0i64, 1, 2, 10, 11, 12]);
    let op = Op::Gather { axis: 1 };
    assert_eq!(apply(&op, &[&data, &Tensor::new(&[2], &[-1i32, 0])]), Tensor::new(&[2, 2], &[2i64, 0, 12, 10]));
    for wrong in [3i64, -4, i64::MIN, i64::MAX] {
        let e = fold::evaluate(&op, &[&data, &Tensor::new(&[], &[wrong])]).unwrap_err();
        assert!(matches!(&e, Error::Invalid(m) if m.contains("dimension 1")), "{e}");
    }
    assert_eq!(apply(&Op::Lookup, &[&data, &Tensor::new(&[1], &[1i32])]), Tensor::new(&[1, 3], &[10i64, 11, 12]));
    for wrong in [2i64, -1, i64::MIN, i64::MAX] {
        let e = fold::evaluate(&Op::Lookup, &[&data, &Tensor::new(&[], &[wrong])]).unwrap_err();
        assert!(matches!(&e, Error::Invalid(m) if m.contains("dimension 0")), "{e}");
    }
    let elements = Tensor::new(&[2, 2], &[2i64, -3, 1, 1]);
    assert_eq!(apply(&Op::GatherElements { axis: 1 }, &[&data, &elements]), Tensor::new(&[2, 2], &[2i64, 0, 11, 11]));
    let pairs = Tensor::new(&[3, 2], &[0i64, 1, -1, -1, 1, 0]);
    assert_eq!(apply(&Op::GatherNd { batch_dims: 0 }, &[&data, &pairs]), Tensor::new(&[3], &[1i64, 12, 10]));
    let one = Tensor::new(&[2, 1], &[-1i64, 0]);
    assert_eq!(apply(&Op::GatherNd { batch_dims: 1 }, &[&data, &one]), Tensor::new(&[2], &[2i64, 10]));
}

#[test]
fn data_moves_where_it_should() {
    let x = Tensor::new(&[2, 3], &[0i32, 1, 2, 3, 4, 5]);
    let y = |op: Op| apply(&op, &[&x]).to_vec::<i32>();
    assert_eq!(y(Op::Transpose { perm: vec![1, 0] }), [0, 3, 1, 4, 2, 5]);
    assert_eq!(y(Op::Reshape { shape: vec![3, 2] }), [0, 1, 2, 3, 4, 5]);
    assert_eq!(y(Op::Slice { starts: vec![1, 2], ends: vec![2, -1], steps: vec![1, -2] }), [5, 3]);
    assert_eq!(y(Op::Pad { before: vec![1, 0], after: vec![0, 1], value: 9 }), [9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9]);
    assert_eq!(y(Op::Upsample { factors: vec![1, 2] }), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    assert_eq!(y(Op::Expand { shape: vec![2, 2, 3] }), [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
    assert_eq!(apply(&Op::Concat { axis: 1 }, &[&x, &x]).to_vec::<i32>(), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    // reshapes by definition, with and without division
    for shape in [vec![3, 2], vec![6], vec![1, 2, 1, 3]] {
        let op = Op::Reshape { shape };
        let program = define(&op, &[TensorType::of(&x)]).unwrap();
        assert_eq!(evaluate(&program, &[&x]).unwrap()[0].data, x.data, "{op}");
    }
}

#[test]
fn reductions_agree_with_their_formulas() {
    let x = Tensor::new(&[2, 3], &[1f32, -2.0, 3.0, 0.5, 4.0, -1.0]);
    for &op in ReduceOp::ALL {
        let row = |v: [f64; 3]| match op {
            ReduceOp::Sum => v.iter().sum(),
            ReduceOp::Mean => v.iter().sum::<f64>() / 3.0,
            ReduceOp::Max => v.iter().copied().fold(f64::MIN, f64::max),
            ReduceOp::Min => v.iter().copied().fold(f64::MAX, f64::min),
            ReduceOp::Prod => v.iter().product(),
            ReduceOp::SumSquare => v.iter().map(|x| x * x).sum(),
            ReduceOp::L1 => v.iter().map(|x| x.abs()).sum(),
            ReduceOp::L2 => v.iter().map(|x| x * x).sum::<f64>().sqrt(),
            ReduceOp::LogSum => v.iter().sum::<f64>().ln(),
            ReduceOp::LogSumExp => v.iter().map(|x| x.exp()).sum::<f64>().ln(),
        };
        let y = apply(&Op::Reduce { op, axes: vec![1], keep: false }, &[&x]).to_vec::<f32>();
        for (a, b) in y.iter().zip([row([1.0, -2.0, 3.0]), row([0.5, 4.0, -1.0])]) {
            assert!((*a as f64 - b).abs() < 1e-5, "{}: {a} instead of {b}", op.name());
        }
    }
    let all = apply(&Op::Reduce { op: ReduceOp::Sum, axes: vec![0, 1], keep: false }, &[&x]);
    assert_eq!((all.shape.len(), all.to_vec::<f32>()[0]), (0, 5.5));
}

#[test]
fn softmax_and_layer_norm_normalize() {
    let x = tensor(&[2, 37, 3], 3);
    let p = apply(&Op::Softmax { axis: 1, log: false }, &[&x]).to_vec::<f32>();
    let l = apply(&Op::Softmax { axis: 1, log: true }, &[&x]).to_vec::<f32>();
    let xs = x.to_vec::<f32>();
    for (n, j) in (0..6).map(|i| (i / 3, i % 3)) {
        let at = |k: usize| (n * 37 + k) * 3 + j;
        let total: f32 = (0..37).map(|k| p[at(k)]).sum();
        assert!((total - 1.0).abs() < 1e-6);
        assert!((0..37).all(|k| (p[at(k)].ln() - l[at(k)]).abs() < 1e-4));
        assert!((0..37).all(|k| (l[at(k)] - l[at(0)] - xs[at(k)] + xs[at(0)]).abs() < 1e-4));
    }
    let (scale, bias) = (Tensor::new(&[3], &[1f32, 2.0, 3.0]), Tensor::new(&[3], &[0f32, 10.0, 20.0]));
    let op = Op::LayerNorm { axis: 2, epsilon: F32::new(0.0) };
    let row = Tensor::new(&[1, 1, 3], &[1f32, 2.0, 6.0]);
    let deviation = (14f32 / 3.0).sqrt();
    let expected = [-2.0 / deviation, -1.0 / deviation * 2.0 + 10.0, 3.0 / deviation * 3.0 + 20.0];
    for (a, b) in apply(&op, &[&row, &scale, &bias]).to_vec::<f32>().iter().zip(expected) {
        assert!((a - b).abs() < 1e-5, "{a} instead of {b}");
    }
}

#[test]
fn elementwise_functions_agree_with_their_formulas() {
    let xs = [-30f32, -3.5, -0.25, 0.0, 0.75, 2.0, 40.0];
    let x = Tensor::new(&[7], &xs);
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let hard = |a: f32, b: f32, x: f32| (a * x + b).clamp(0.0, 1.0);
    type Formula<'a> = Box<dyn Fn(f32) -> f32 + 'a>;
    let table: Vec<(Op, Formula)> = vec![
        (Op::Sigmoid, Box::new(sigmoid)),
        (Op::Silu, Box::new(|x| x * sigmoid(x))),
        (Op::HardSigmoid { alpha: F32::new(0.2), beta: F32::new(0.5) }, Box::new(|x| hard(0.2, 0.5, x))),
        (Op::HardSwish, Box::new(|x| x * hard(1.0 / 6.0, 0.5, x))),
        (Op::Gelu, Box::new(|x| 0.5 * x * (1.0 + crate::expr::scalar::number::erf(x as f64 / 2f64.sqrt()) as f32))),
        (
            Op::Elu { alpha: F32::new(1.5), scale: F32::new(1.25), divisor: F32::new(0.5) },
            Box::new(|x| if x > 0.0 { 1.25 * x } else { 1.25 * 1.5 * ((x / 0.5).exp() - 1.0) }),
        ),
        (Op::ThresholdedRelu { alpha: F32::new(0.75) }, Box::new(|x| if x > 0.75 { x } else { 0.0 })),
        (Op::Unary(UnaryOp::Tanh), Box::new(f32::tanh)),
    ];
    for (op, formula) in table {
        for (y, x) in apply(&op, &[&x]).to_vec::<f32>().iter().zip(xs) {
            assert!((y - formula(x)).abs() <= 1e-6 * y.abs().max(1e-3), "{op} of {x}: {y}");
        }
    }
    let condition = Tensor { dtype: DType::Bool, shape: vec![2, 1], data: vec![1, 0].into() };
    let (a, b) = (Tensor::new(&[2], &[1i64, 2]), Tensor::new(&[], &[7i64]));
    assert_eq!(apply(&Op::Select, &[&condition, &a, &b]), Tensor::new(&[2, 2], &[1i64, 2, 7, 7]));
    let quotient = apply(&Op::Binary(BinaryOp::Div), &[&Tensor::new(&[2], &[-7i64, 7]), &Tensor::new(&[], &[2i64])]);
    assert_eq!(quotient.to_vec::<i64>(), [-3, 3]);
}

#[test]
fn strips_and_pieces_do_not_change_a_sum() {
    // longer than one strip, both as lanes and as the reduced iterator
    let x = tensor(&[2500, 3], 1);
    for axes in [vec![0], vec![1]] {
        let y = apply(&Op::Reduce { op: ReduceOp::Sum, axes: axes.clone(), keep: false }, &[&x]).to_vec::<f32>();
        let xs = x.to_vec::<f32>();
        for (i, y) in y.iter().enumerate() {
            let expected: f32 =
                if axes[0] == 0 { xs[i..].iter().step_by(3).sum() } else { xs[3 * i..3 * i + 3].iter().sum() };
            assert_eq!(*y, expected);
        }
    }
}

#[test]
fn malformed_programs_are_refused() {
    let good = define(
        &Op::MatMul { transpose_a: false, transpose_b: false },
        &[TensorType::new(DType::F32, &[3, 4]), TensorType::new(DType::F32, &[4, 5])],
    )
    .unwrap();
    let (a, b) = (tensor(&[3, 4], 1), tensor(&[4, 5], 2));
    assert!(evaluate(&good, &[&a, &b]).is_ok());
    assert!(matches!(evaluate(&good, &[&a]), Err(Error::Invalid(_))));
    assert!(matches!(evaluate(&good, &[&b, &a]), Err(Error::Invalid(_))));
    let break_it = |f: &dyn Fn(&mut Definition)| {
        let mut p = good.clone();
        f(&mut p.definitions[0]);
        evaluate(&p, &[&a, &b])
    };
    assert!(matches!(break_it(&|d| d.iterators[2].extent = 5), Err(Error::Invalid(_))));
    assert!(matches!(break_it(&|d| d.iterators[0].extent = 4), Err(Error::Invalid(_))));
    assert!(matches!(break_it(&|d| d.reduce = None), Err(Error::Invalid(_))));
    assert!(matches!(break_it(&|d| d.write[0] = Affine::var(Var(2))), Err(Error::Invalid(_))));
    assert!(matches!(break_it(&|d| d.write[0] = Affine::var(Var(9))), Err(Error::Invalid(_))));
    assert!(matches!(break_it(&|d| d.body = Expr::load(d.target, d.write.clone())), Err(Error::Invalid(_))));
    assert!(matches!(break_it(&|d| d.body = Expr::cast(DType::F64, d.body.clone())), Err(Error::Invalid(_))));
}

#[test]
fn samples_of_the_operator_table_are_interpreted() {
    for (op, types) in Op::samples() {
        let inputs: Vec<Tensor> = types.iter().map(|t| Tensor::seeded(t.dtype, &t.shape, 1, 0, 2)).collect();
        let outputs = fold::evaluate(op, &inputs.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{op}: {e}"));
        let inferred = infer(op, &types.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(outputs.iter().map(TensorType::of).collect::<Vec<_>>(), inferred, "{op}");
    }
    let functions = crate::runtime::opaque::FUNCTIONS.iter().map(|(name, _)| *name);
    assert_eq!(functions.filter(|name| Op::named(name).is_none()).collect::<Vec<_>>(), [""; 0]);
}
