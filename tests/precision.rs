//! Products and convolutions whose operands are rounded to 16 bits, through the whole compiler on every target of this processor:
//! what their definition says of the rounded operands, with sums in f32, in weights of half the size. Approximate quotients and roots.

mod common;

use common::host_targets;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::internal::expr::BinaryOp;
use tilewright::internal::expr::scalar::number::{f16_to_f32, f32_to_bf16, f32_to_f16};
use tilewright::internal::graph::op::{Layout, Op, Window};
use tilewright::internal::language;
use tilewright::{
    Accumulate, Algorithm, Compiled, DType, GraphBuilder, Model, Options, Precision, Quotients, Target, Tensor, ValueId,
};

const HALVES: [Precision; 2] = [Precision::Bf16, Precision::F16];

/// The targets of this processor, and the default one with the dot products that it has: on any core of these features, and on this one.
fn targets() -> Vec<Target> {
    let mut targets = host_targets();
    if let Some(host) = Target::host().filter(|host| targets.iter().all(|t| t.name != host.name)) {
        targets.extend([Target::by_name(&host.name).unwrap(), host]);
    }
    targets
}

fn rounded(precision: Precision, v: f32) -> f32 {
    match precision {
        Precision::F32 => v,
        Precision::Bf16 => f32::from_bits(u32::from(f32_to_bf16(v)) << 16),
        Precision::F16 => f16_to_f32(f32_to_f16(v)),
    }
}

/// The tensor with rounded elements.
fn half(precision: Precision, tensor: &Tensor) -> Tensor {
    let values: Vec<f32> = tensor.to_vec::<f32>().into_iter().map(|v| rounded(precision, v)).collect();
    Tensor::new(&tensor.shape, &values)
}

/// Numbers between -1 and 1 with 24 bits.
fn random(seed: u64, shape: &[i64]) -> Tensor {
    Tensor::seeded(DType::F32, shape, seed, 0, 2)
}

/// An operator of a given tensor and constants.
struct Case {
    name: &'static str,
    op: Op,
    x: Tensor,
    /// Weights, and perhaps a bias.
    constants: Vec<Tensor>,
}

fn cases() -> Vec<Case> {
    let window = |kernel: i64, stride: i64, pad: i64| Window {
        kernel: vec![kernel; 2],
        stride: vec![stride; 2],
        dilation: vec![1; 2],
        pad_before: vec![pad; 2],
        pad_after: vec![pad; 2],
    };
    let conv = |window, group| Op::Conv { window, group, layout: Layout::Nchw };
    let case = |name, op, x: &[i64], constants: &[&[i64]]| Case {
        name,
        op,
        x: random(1, x),
        constants: constants.iter().zip(2..).map(|(shape, seed)| random(seed, shape)).collect(),
    };
    let product = |transpose_b| Op::MatMul { transpose_a: false, transpose_b };
    let transposed =
        Op::ConvTranspose { window: window(2, 2, 0), group: 1, output_pad: vec![0; 2], layout: Layout::Nchw };
    vec![
        case("product", product(false), &[17, 65], &[&[65, 33]]),
        case("turned product", product(true), &[1, 130], &[&[47, 130]]),
        case("batch", product(false), &[3, 9, 20], &[&[20, 18]]),
        case("convolution", conv(window(3, 1, 1), 1), &[1, 20, 9, 10], &[&[19, 20, 3, 3], &[19]]),
        case("wide convolution", conv(window(3, 1, 1), 1), &[1, 40, 14, 14], &[&[35, 40, 3, 3], &[35]]),
        case("pointwise convolution", conv(window(1, 1, 0), 1), &[1, 96, 7, 9], &[&[50, 96, 1, 1]]),
        case("strided convolution", conv(window(7, 2, 3), 1), &[1, 3, 21, 20], &[&[16, 3, 7, 7]]),
        case("depthwise", conv(window(3, 1, 1), 18), &[1, 18, 8, 9], &[&[18, 1, 3, 3]]),
        case("groups", conv(window(3, 1, 1), 6), &[1, 18, 8, 9], &[&[12, 3, 3, 3]]),
        case("transposed convolution", transposed, &[1, 12, 5, 6], &[&[12, 7, 2, 2]]),
    ]
}

fn model(case: &Case) -> Model {
    let mut b = GraphBuilder::new("precision");
    let mut operands = vec![b.input("x", case.x.dtype, &case.x.shape)];
    operands.extend(case.constants.iter().map(|t| b.constant(t.clone())).collect::<Vec<ValueId>>());
    let y = b.op(case.op.clone(), &operands).unwrap()[0];
    b.output("y", y).unwrap();
    Model::from_graph(b.build().unwrap())
}

fn compiled(model: &Model, target: &tilewright::Target, precision: Precision) -> Compiled {
    let options = Options { target: Some(target.clone()), precision, threads: 2, max_error: 0.0, ..Options::default() };
    model.compile(&options).unwrap_or_else(|e| panic!("{precision} on {}: {e}", target.name))
}

fn difference(got: &Tensor, wanted: &Tensor) -> f32 {
    let (got, wanted) = (got.to_vec::<f32>(), wanted.to_vec::<f32>());
    assert_eq!(got.len(), wanted.len());
    let scale = wanted.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    got.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale
}

/// Returns true for a target with instructions that multiply pairs of these halves, on a core where they pay.
fn multiplies(target: &Target, precision: Precision) -> bool {
    precision == Precision::Bf16 && target.sums_products([DType::BF16; 2], DType::F32)
}

/// Operands that are rounded before have the same results in f32, up to the order of sums.
#[test]
fn operands_are_rounded_and_sums_are_not() {
    for case in cases() {
        for precision in HALVES {
            let mut constants = case.constants.clone();
            constants[0] = half(precision, &constants[0]);
            let before = Case { x: half(precision, &case.x), constants, op: case.op.clone(), name: case.name };
            for target in targets() {
                let what = format!("{} in {precision} on {}", case.name, target.name);
                let got = compiled(&model(&case), &target, precision).run(&[("x", &case.x)]).unwrap().remove(0);
                let exact =
                    compiled(&model(&before), &target, Precision::F32).run(&[("x", &before.x)]).unwrap().remove(0);
                let plain = compiled(&model(&case), &target, Precision::F32).run(&[("x", &case.x)]).unwrap().remove(0);
                // no instruction multiplies halves in these, or few lanes of one: to widen them is dearer
                let widened = ["depthwise", "groups", "transposed convolution"].contains(&case.name);
                if (widened || !multiplies(&target, precision)) && difference(&got, &plain) == 0.0 {
                    continue;
                }
                assert!(difference(&got, &exact) < 2e-6, "{what}: off by {}", difference(&got, &exact));
                let lost = difference(&got, &plain);
                assert!(lost > 1e-5 && lost < 2e-2, "{what}: rounding changes {lost}");
            }
        }
    }
}

/// Two convolutions with an activation and a sum: scales are in the weights, which take half the memory.
#[test]
fn weights_take_half_the_memory() {
    let mut b = GraphBuilder::new("two");
    let x = b.input("x", DType::F32, &[1, 16, 12, 12]);
    let weights = [b.constant(random(2, &[32, 16, 3, 3])), b.constant(random(3, &[16, 32, 3, 3]))];
    let scale = b.constant(random(4, &[32, 1, 1]));
    let y = b.conv2d(x, weights[0], 1, 1).unwrap();
    let y = b.binary(BinaryOp::Mul, y, scale).unwrap();
    let y = b.relu(y).unwrap();
    let y = b.conv2d(y, weights[1], 1, 1).unwrap();
    let y = b.add(y, x).unwrap();
    b.output("y", y).unwrap();
    let model = Model::from_graph(b.build().unwrap());
    let x = random(1, &[1, 16, 12, 12]);
    for target in targets() {
        let options =
            |precision| Options { target: Some(target.clone()), precision, max_error: 0.0, ..Options::default() };
        let module = |precision| model.compile_module(&options(precision)).unwrap();
        let whole = module(Precision::F32).1.weights_bytes;
        for precision in HALVES {
            let (_, report) = module(precision);
            let bytes = report.weights_bytes;
            if !multiplies(&target, precision) {
                assert!(bytes <= whole, "{precision} on {}: {bytes} of {whole} bytes", target.name);
                continue;
            }
            assert!(bytes * 2 <= whole + 1024, "{precision} on {}: {bytes} of {whole} bytes", target.name);
            let run = |precision| compiled(&model, &target, precision).run(&[("x", &x)]).unwrap().remove(0);
            let lost = difference(&run(precision), &run(Precision::F32));
            assert!(lost > 1e-5 && lost < 2e-2, "{precision} on {}: rounding changes {lost}", target.name);
            let instructions: Vec<String> =
                report.kernels.iter().flat_map(|k| &k.phases).filter_map(|p| p.instruction.clone()).collect();
            assert!(instructions.iter().any(|i| i.contains("dpbf16ps")), "{instructions:?}");
        }
    }
}

/// A file of halves, whose operators compute in f32: where the target has products of them, they are multiplied as they are stored.
#[test]
fn stored_halves_are_multiplied_as_they_are() {
    let mut b = GraphBuilder::new("stored");
    let x = b.input("x", DType::BF16, &[1, 64, 14, 14]);
    let weights = half(Precision::Bf16, &random(2, &[64, 64, 3, 3]));
    let w = b.constant(weights.clone());
    let wide = b.op(Op::Cast(DType::F32), &[x]).unwrap()[0];
    let y = b.conv2d(wide, w, 1, 1).unwrap();
    b.output("y", y).unwrap();
    let stored = Model::from_graph(b.build().unwrap());
    let image = half(Precision::Bf16, &random(1, &[1, 64, 14, 14]));
    let bits: Vec<u8> = image.to_vec::<f32>().into_iter().flat_map(|v| f32_to_bf16(v).to_le_bytes()).collect();
    let x = Tensor { dtype: DType::BF16, shape: image.shape.clone(), data: bits.into() };
    let window = Window {
        kernel: vec![3; 2],
        stride: vec![1; 2],
        dilation: vec![1; 2],
        pad_before: vec![1; 2],
        pad_after: vec![1; 2],
    };
    let op = Op::Conv { window, group: 1, layout: Layout::Nchw };
    let wide = model(&Case { name: "wide", op, x: image.clone(), constants: vec![weights] });
    for target in targets() {
        let exact = compiled(&wide, &target, Precision::F32).run(&[("x", &image)]).unwrap().remove(0);
        let got = compiled(&stored, &target, Precision::F32).run(&[("x", &x)]).unwrap().remove(0);
        assert!(difference(&got, &exact) < 2e-6, "{}: off by {}", target.name, difference(&got, &exact));
        let options = Options { target: Some(target.clone()), max_error: 0.0, ..Options::default() };
        let report = stored.compile_module(&options).unwrap().1;
        let mut instructions = report.kernels.iter().flat_map(|k| &k.phases).filter_map(|p| p.instruction.clone());
        let tiles = target.features.names().contains(&"amx-bf16");
        assert!(!tiles || instructions.any(|i| i.contains("tdpbf16ps")), "{}", target.name);
    }
}

#[test]
fn precisions_have_names() {
    for &name in Precision::NAMES {
        assert_eq!(name.parse::<Precision>().unwrap().to_string(), name);
    }
    assert!("f64".parse::<Precision>().unwrap_err().to_string().contains("bf16"));
}

/// Sums in f16 are what is asked for, or nothing is compiled.
#[test]
fn sums_in_f16_need_a_processor_that_adds_in_f16() {
    for &name in Accumulate::NAMES {
        assert_eq!(name.parse::<Accumulate>().unwrap().to_string(), name);
    }
    assert!("f64".parse::<Accumulate>().unwrap_err().to_string().contains("there is no type of sums `f64`"));
    let op = Op::MatMul { transpose_a: false, transpose_b: false };
    let case = Case { name: "product", op, x: random(1, &[40, 256]), constants: vec![random(2, &[256, 96])] };
    let compile = |target: &str, accumulate| {
        let target = Some(Target::by_name(target).unwrap());
        let options = Options { target, precision: Precision::F16, accumulate, ..Options::default() };
        let report = model(&case).compile_module(&options)?.1;
        let phases = report.kernels.iter().flat_map(|k| &k.phases).filter_map(|p| p.instruction.clone());
        Ok::<String, tilewright::Error>(phases.collect())
    };
    for target in ["x86-64-avx512-vnni+avx512bf16", "x86-64-avx2", "aarch64-neon+dotprod"] {
        let error = compile(target, Accumulate::F16).unwrap_err().to_string();
        assert!(error.contains(&format!("target {target} has no instruction that sums products of f16")), "{error}");
    }
    for (target, row) in [("x86-64-avx512-vnni+avx512fp16", "vfmadd231ph"), ("aarch64-neon+fp16", "fmla_8h")] {
        assert_eq!(compile(target, Accumulate::F16).unwrap(), row);
        assert!(!compile(target, Accumulate::F32).unwrap().contains(row));
    }
}

/// Minimal filtering transforms what halves would be rounded from: nothing of it is rounded.
#[test]
fn fast_convolutions_read_operands_that_are_not_rounded() {
    let case = cases().into_iter().find(|c| c.name == "convolution").unwrap();
    let options = |target: &Target, algorithm, precision| Options {
        target: Some(target.clone()),
        algorithm,
        precision,
        ..Options::default()
    };
    for target in targets() {
        let run = |algorithm, precision| {
            let compiled = model(&case).compile(&options(&target, algorithm, precision)).unwrap();
            compiled.run(&[("x", &case.x)]).unwrap().remove(0)
        };
        let plain = run(Algorithm::Direct, Precision::F32);
        for precision in HALVES {
            let lost = difference(&run(Algorithm::Winograd(2), precision), &plain);
            assert!(lost < 1e-5, "{precision} on {}: off by {lost}", target.name);
        }
    }
}

/// The distance of an f32 from the exact number, in units in the last place of the latter; 0 where both are not-a-number, the same
/// zero or the same infinity.
fn units(got: f32, exact: f64) -> f64 {
    // subnormal numbers count as zero
    let got = if got.is_subnormal() { 0f32.copysign(got) } else { got };
    let flushed = if exact.abs() < f64::from(f32::MIN_POSITIVE) { 0f64.copysign(exact) as f32 } else { exact as f32 };
    if got.to_bits() == flushed.to_bits() || got.is_nan() && flushed.is_nan() {
        return if flushed.is_normal() { (f64::from(got) - exact).abs() / unit(exact) } else { 0.0 };
    }
    if got.is_finite() && flushed.is_finite() { (f64::from(got) - exact).abs() / unit(exact) } else { f64::INFINITY }
}

fn unit(exact: f64) -> f64 {
    2f64.powi((exact.abs().log2().floor() as i32).max(-126) - 23)
}

#[test]
fn approximate_quotients_are_within_their_bounds() {
    let text = "def p(f32(N) X, f32(N) Y) -> (Q, R, I, S, C) {
        Q(i) = X(i) / Y(i)  R(i) = sqrt(Y(i))  I(i) = 1 / sqrt(Y(i))  S(i) = X(i) / sqrt(Y(i))  C(i) = X(i) / 3.7 }";
    let special = [0.0, 1.0, 2.0, 3.0, f32::INFINITY, f32::NAN, 1e-40, f32::MIN_POSITIVE, 8e37, 1e-30, 1e30];
    let special: Vec<f32> = special.iter().flat_map(|&x| [x, -x]).collect();
    let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
    let mut rng = StdRng::seed_from_u64(1);
    let mut random = || (rng.random::<f32>() * 2048.0 + 1e-6) * if rng.random_ratio(1, 8) { -1.0 } else { 1.0 };
    pairs.extend((0..1 << 16).map(|_| (random(), random())));
    let [x, y] = [|p: &(f32, f32)| p.0, |p: &(f32, f32)| p.1]
        .map(|part| Tensor::new(&[pairs.len() as i64], &pairs.iter().map(part).collect::<Vec<f32>>()));
    let model = Model::from_program(language::parse("p.tile", text).unwrap(), None, None).unwrap();
    for target in host_targets() {
        let run = |quotients| {
            let dims = [("N".to_string(), pairs.len() as i64)].into();
            let options = Options { target: Some(target.clone()), quotients, dims, ..Options::default() };
            let outputs = model.compile(&options).unwrap().run(&[("X", &x), ("Y", &y)]).unwrap();
            outputs.iter().map(|t| t.to_vec::<f32>()).collect::<Vec<_>>()
        };
        let (exact, approximate) = (run(Quotients::Exact), run(Quotients::Approximate));
        let flushed = |x: f32| f64::from(if x.is_subnormal() { 0f32.copysign(x) } else { x });
        for (i, (x, y)) in pairs.iter().map(|&(x, y)| (flushed(x), flushed(y))).enumerate() {
            let exactly = [x / y, y.sqrt(), 1.0 / y.sqrt(), x / y.sqrt(), x / f64::from(3.7f32)];
            for (k, (bound, wanted)) in [2.0, 2.0, 2.0, 3.0, 2.0].into_iter().zip(exactly).enumerate() {
                let [got, rounded] = [approximate[k][i], exact[k][i]];
                let units = units(got, wanted);
                assert!(units <= bound, "{}: result {k} of {x:e} and {y:e} is {got:e}, off by {units}", target.name);
                let is_exact = target.name.contains("avx2");
                assert!(!is_exact || got.to_bits() == rounded.to_bits() || got.is_nan(), "{}: {k}", target.name);
            }
        }
    }
}
