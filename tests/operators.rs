//! Small models, one for each operator and its corners, against what ONNX Runtime computes (see fixtures/make.py).
//!
//! `TILEWRIGHT_CASE=word cargo test --test operators` runs those with the word in their name.

mod common;

use common::nodes::check_nodes;
use common::{bind, check_all, difference, fixtures, host_targets, read_tensors};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tilewright::Dim;
use tilewright::GraphBuilder;
use tilewright::Session;
use tilewright::internal::expr::BinaryOp;
use tilewright::internal::graph::ir::ValueId;
use tilewright::{DType, Model, Options, Tensor};

/// Of the largest absolute value of an output.
const TOLERANCE: f64 = 1e-4;

fn cases() -> Vec<PathBuf> {
    let word = std::env::var("TILEWRIGHT_CASE").unwrap_or_default();
    let mut paths = fixtures("operators", "onnx");
    assert!(paths.len() > 300, "only {} cases are there", paths.len());
    paths.retain(|p| p.file_stem().unwrap().to_string_lossy().contains(&word));
    paths
}

struct Case {
    name: String,
    model: Model,
    inputs: Vec<Tensor>,
    expected: Vec<Tensor>,
}

fn load(path: &Path) -> Result<Case, String> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let model = Model::load(path).map_err(|e| format!("{name}: {e}"))?;
    let mut inputs = read_tensors(&path.with_extension("npy"));
    let expected = inputs.split_off(model.inputs().len());
    Ok(Case { name, model, inputs, expected })
}

impl Case {
    fn compare(&self, what: &str, outputs: &[Tensor]) -> Result<(), String> {
        if outputs.len() != self.expected.len() {
            return Err(format!("{} {what}: {} outputs, not {}", self.name, outputs.len(), self.expected.len()));
        }
        for (i, (actual, expected)) in outputs.iter().zip(&self.expected).enumerate() {
            if let Some(why) = difference(actual, expected, TOLERANCE) {
                return Err(format!("{} {what}: output {i}: {why}", self.name));
            }
        }
        Ok(())
    }
}

#[test]
fn the_interpreter_gives_the_reference_outputs() {
    check_all(&cases(), |path| {
        let case = load(path)?;
        let graph = case.model.graph(&bind(&case.model, &case.inputs)).map_err(|e| format!("{}: {e}", case.name))?;
        let outputs = tilewright::internal::graph::interpret::run(&graph, &case.inputs)
            .map_err(|e| format!("{}: {e}", case.name))?;
        case.compare("interpreted", &outputs)
    });
}

#[test]
fn compiled_code_gives_the_reference_outputs_on_any_number_of_threads() {
    let targets = host_targets();
    assert!(!targets.is_empty(), "this processor runs none of the targets");
    check_all(&cases(), |path| {
        let case = load(path)?;
        for target in &targets {
            let what = &target.name;
            let say = |e| format!("{} on {what}: {e}", case.name);
            let dims = bind(&case.model, &case.inputs);
            let options = Options { target: Some(target.clone()), dims, ..Options::default() };
            let (module, report) = case.model.compile_module(&options).map_err(say)?;
            if let Some((kernel, reason)) = report.fallbacks().first() {
                return Err(format!("{} on {what}: {kernel}: {reason}", case.name));
            }
            check_nodes(path, &report)?;
            let module = Arc::new(module);
            let inputs: Vec<_> = case.model.inputs().iter().map(|s| s.name.as_str()).zip(&case.inputs).collect();
            let run = |threads| Session::new(module.clone(), threads)?.run(&inputs);
            let one = run(1).map_err(say)?;
            case.compare(what, &one)?;
            if bits(&one) != bits(&run(2).map_err(say)?) {
                return Err(format!("{} on {what}: other bits with two threads", case.name));
            }
        }
        Ok(())
    });
}

/// Where elements of the operand are not numbers, machine code gives what the interpreter gives.
#[test]
fn not_a_number_is_kept_by_reductions_and_pooling() {
    let words = ["reducemax", "reducemin", "max_pool", "argm", "softmax", "topk"];
    let mut paths = cases();
    paths.retain(|p| words.iter().any(|word| p.file_stem().unwrap().to_string_lossy().contains(word)));
    let targets = host_targets();
    check_all(&paths, |path| {
        let mut case = load(path)?;
        for x in case.inputs.iter_mut().filter(|x| x.dtype == DType::F32) {
            let elements = (0..).zip(x.to_vec::<f32>());
            let elements: Vec<f32> = elements.map(|(i, v)| if i % 23 == 2 { f32::NAN } else { v }).collect();
            *x = Tensor::new(&x.shape, &elements);
        }
        let dims = bind(&case.model, &case.inputs);
        let say = |e| format!("{}: {e}", case.name);
        case.expected =
            tilewright::internal::graph::interpret::run(&case.model.graph(&dims).map_err(say)?, &case.inputs)
                .map_err(say)?;
        for target in &targets {
            let options = Options { target: Some(target.clone()), dims: dims.clone(), ..Options::default() };
            let module = Arc::new(case.model.compile_module(&options).map_err(say)?.0);
            let inputs: Vec<_> = case.model.inputs().iter().map(|s| s.name.as_str()).zip(&case.inputs).collect();
            for threads in [1, 2] {
                case.compare(
                    &target.name,
                    &Session::new(module.clone(), threads).and_then(|s| s.run(&inputs)).map_err(say)?,
                )?;
            }
        }
        Ok(())
    });
}

/// Lengths and positions that are known at run time alone count from the start, and end a run where they lie outside. The error
/// names the model's input and its element, as it is.
#[test]
fn lengths_and_positions_outside_end_a_run() {
    for (name, input, most) in [
        ("lstm_lengths_run_time", "lengths", 5),
        ("gru_lengths_run_time", "lengths", 5),
        ("rnn_lengths_run_time", "lengths", 5),
        ("ms_dynamic_lstm_lengths_run_time", "n", 5),
        ("ms_embed", "w", 8),
        ("ms_embed", "s", 1),
        ("ms_rotary_0", "p", 8),
        ("rotary_whole", "p", 8),
        ("ms_grouped_step", "n", 4),
        ("ms_grouped_prompt", "n", 4),
    ] {
        let path = fixtures("operators", "onnx").into_iter().find(|p| p.file_stem().is_some_and(|stem| stem == name));
        let case = load(&path.unwrap_or_else(|| panic!("{name} is missing"))).unwrap();
        let options = Options { dims: bind(&case.model, &case.inputs), ..Options::default() };
        let session = Session::new(Arc::new(case.model.compile_module(&options).unwrap().0), 1).unwrap();
        let run = |inputs: &[Tensor]| {
            let named: Vec<_> = case.model.inputs().iter().map(|s| s.name.as_str()).zip(inputs).collect();
            session.run(&named)
        };
        let place = case.model.inputs().iter().position(|s| s.name == input).unwrap();
        for wrong in [-1, most + 1, -most - 1, i32::MIN, i32::MAX] {
            let mut inputs = case.inputs.clone();
            let (width, x) = (inputs[place].dtype.bytes(), &mut inputs[place]);
            let mut data = x.data.to_vec();
            let last = data.len() - width;
            data[last..].copy_from_slice(&i64::from(wrong).to_le_bytes()[..width]);
            x.data = data.into();
            let x_shape = x.shape.clone();
            let said = run(&inputs).unwrap_err().to_string();
            let last: Vec<i64> = x_shape.iter().map(|n| n - 1).collect();
            let place = if last.is_empty() { String::new() } else { format!(" at {last:?}") };
            let wanted = format!("index {wrong}{place} of tensor `{input}` lies outside of 0..={most}");
            assert!(said.ends_with(&wanted), "{name}: {said}");
        }
        case.compare("after an error", &run(&case.inputs).unwrap()).unwrap();
    }
}

/// Not-a-number is equal to itself in bits.
fn bits(tensors: &[Tensor]) -> Vec<&[u8]> {
    tensors.iter().map(|t| &t.data[..]).collect()
}

/// A value has one rounding wherever it is read, though its expression is copied to its readers and a product in a sum may
/// be fused with it.
#[test]
fn a_value_has_one_rounding() {
    type Build = fn(&mut GraphBuilder) -> tilewright::Result<ValueId>;
    let cases: [(&str, Build); 6] = [
        ("product", |b| {
            let x = b.input("x", DType::F32, &[8, 24]);
            b.mul(x, x)
        }),
        ("product with a constant", |b| {
            let x = b.input("x", DType::F32, &[8, 24]);
            let factor = b.constant(Tensor::new(&[1], &[0.3f32]));
            b.mul(x, factor)
        }),
        ("transposed product", |b| {
            let x = b.input("x", DType::F32, &[24, 8]);
            let product = b.mul(x, x)?;
            b.transpose(product, &[1, 0])
        }),
        ("softmax", |b| {
            let x = b.input("x", DType::F32, &[8, 24]);
            b.softmax(x, 1)
        }),
        ("matrix product of depth one", |b| {
            let x = b.input("x", DType::F32, &[8, 1]);
            let w = b.constant(Tensor::seeded(DType::F32, &[1, 24], 0, 7, 1));
            b.matmul(x, w)
        }),
        ("sum of products", |b| {
            let x = b.input("x", DType::F32, &[8, 24]);
            let product = b.mul(x, x)?;
            let y = b.input("y", DType::F32, &[8, 24]);
            b.add(product, y)
        }),
    ];
    for target in host_targets() {
        for (name, build) in &cases {
            let mut b = GraphBuilder::new(name);
            let value = build(&mut b).unwrap();
            let other = b.input("other", DType::F32, &[8, 24]);
            let difference = b.binary(BinaryOp::Sub, value, value).unwrap();
            let sum = b.add(value, other).unwrap();
            for (name, v) in [("value", value), ("difference", difference), ("sum", sum)] {
                b.output(name, v).unwrap();
            }
            let options = Options { target: Some(target.clone()), ..Options::default() };
            let model = Model::from_graph(b.build().unwrap());
            let compiled = model.compile(&options).unwrap();
            let inputs: Vec<(String, Tensor)> = (model.inputs().iter().enumerate())
                .map(|(i, spec)| {
                    let shape: Vec<i64> = spec.shape.iter().map(size).collect();
                    (spec.name.clone(), Tensor::seeded(DType::F32, &shape, 0, i as u64, 1))
                })
                .collect();
            let given: Vec<_> = inputs.iter().map(|(name, t)| (name.as_str(), t)).collect();
            let outputs: Vec<Vec<f32>> = compiled.run(&given).unwrap().iter().map(|t| t.to_vec()).collect();
            let other = inputs.iter().find(|i| i.0 == "other").unwrap().1.to_vec::<f32>();
            assert!(outputs[1].iter().all(|d| d.to_bits() == 0), "{name} on {}: {:?}", target.name, outputs[1]);
            let sums = outputs[0].iter().zip(&other).map(|(v, o)| v + o);
            assert!(sums.eq(outputs[2].iter().copied()), "{name} on {}: another value is added", target.name);
        }
    }
}

fn size(dim: &Dim) -> i64 {
    match dim {
        Dim::Fixed(n) => *n,
        _ => unreachable!("the graphs have no symbols"),
    }
}

#[test]
fn weights_of_a_single_row_stay_bytes() {
    // the elements of the matrix, and the most bytes: two for each in whole vectors where not all fit into i8
    for (name, elements, most) in [
        ("ms_row_4_bits", 48 * 21, None),
        ("ms_row_8_bits", 64 * 37, None),
        ("matmul_integer_row", 300 * 19, None),
        ("matmul_integer_row_shifted", 33 * 19, None),
        ("matmul_integer_row_wide", 33 * 19, Some(2 * 34 * 32)),
        ("type_matmul_row_of_halves", 60 * 45, None),
    ] {
        let path = common::root().join(format!("tests/fixtures/operators/{name}.onnx"));
        let report = Model::load(path).unwrap().compile_module(&Options::default()).unwrap().1;
        let bytes = report.weights_bytes;
        let right = match most {
            Some(most) => (2 * elements..=most).contains(&bytes),
            None => bytes < 3 * elements,
        };
        assert!(right, "{name}: {bytes} bytes of weights for {elements} elements");
    }
}
