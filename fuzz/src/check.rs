//! The claims that every input is held to: an answer or one clear sentence, the same numbers from the machine code as from the
//! interpreter, the same text again from what a text was read as.

use super::corpus;
use tilewright::internal::expr::scalar::Value as Scalar;
use tilewright::internal::graph::import::value_file;
use tilewright::internal::graph::interpret;
use tilewright::internal::graph::op::Op;
use tilewright::internal::graph::subgraph;
use tilewright::internal::runtime::npy;
use tilewright::{
    DType, Dim, Error, File, Graph, Limits, Model, Module, Options, Precision, Target, Tensor, Value, graph_text,
};

/// Bytes that an input may make the library use: a tenth of what the process may have.
const MOST_BYTES: u64 = 128 << 20;
/// Operations that a run may take.
const MOST_WORK: u64 = 50_000_000;

/// True for an input that was accepted, or a complaint.
pub type Verdict = Result<bool, String>;

/// Returns true for a result and false for an error; a complaint where that is a defect or its message is not a sentence.
pub fn verdict<T>(result: Result<T, Error>) -> Verdict {
    match result {
        Ok(_) => Ok(true),
        Err(error @ Error::Internal(_)) => Err(error.to_string()),
        Err(error) => sentence(&error),
    }
}

fn sentence(error: &Error) -> Verdict {
    let text = error.to_string();
    let active = |c: char| c.is_control() && !"\n\t".contains(c);
    match text.len() < 10 || text.contains(active) {
        true => Err(format!("no message: {text:?}")),
        false => Ok(false),
    }
}

fn options(bytes: &[u8]) -> Options {
    let all: Vec<Target> = Target::all().into_iter().filter(Target::runs_on_host).collect();
    // the input chooses, so that a replay takes the same
    let sum = bytes.iter().fold(0usize, |s, &b| s.wrapping_mul(31).wrapping_add(b.into()));
    let target = all.get(sum % all.len().max(1)).cloned();
    let threads = [1, 1, 1, 2, 3, 5][sum / 5 % 6];
    Options { target, threads, compile_threads: 1, limits: Limits::within(MOST_BYTES), ..Options::default() }
}

/// Operands of 16 bits for some inputs, which then run so too: they need an answer, whose numbers are not compared.
fn halves(bytes: &[u8]) -> Option<Precision> {
    let sum = bytes.iter().fold(0usize, |s, &b| s.wrapping_mul(37).wrapping_add(b.into()));
    [Precision::Bf16, Precision::F16].get(sum % 10).copied()
}

/// A file, to its static graph.
pub fn onnx_read(bytes: &[u8]) -> Verdict {
    verdict(Model::parse(bytes, "nowhere").and_then(|m| m.graph(&Default::default())))
}

/// A file, to the outputs of a run, which the interpreter confirms.
pub fn onnx_run(bytes: &[u8]) -> Verdict {
    let model = match Model::parse(bytes, "nowhere") {
        Ok(model) => model,
        Err(error) => return verdict::<()>(Err(error)),
    };
    let options = options(bytes);
    let Some(inputs) = inputs(&model) else { return Ok(false) };
    let named: Vec<(&str, &Value)> = inputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
    if let Some(precision) = halves(bytes) {
        let options = Options { precision, ..options.clone() };
        verdict(model.compile(&options).and_then(|compiled| compiled.run_values(&named)))?;
    }
    let compiled = match model.compile(&options) {
        Ok(compiled) => compiled,
        Err(error) => return verdict::<()>(Err(error)),
    };
    let outputs = match compiled.run_values(&named) {
        Ok(outputs) => outputs,
        Err(error) => return verdict::<()>(Err(error)),
    };
    let tensors: Option<Vec<Tensor>> = inputs.iter().map(|(_, v)| Some(Tensor::clone(v.tensor().ok()?))).collect();
    let (Some(tensors), Ok(graph)) = (tensors, model.graph(&Default::default())) else { return Ok(true) };
    if graph.values.iter().map(|v| v.ty.elements() as u64).sum::<u64>() > 100_000 {
        return Ok(true);
    }
    let outputs: Option<Vec<Tensor>> = outputs.iter().map(|v| Some(Tensor::clone(v.tensor().ok()?))).collect();
    compare(&graph, &tensors, &outputs.unwrap_or_default())
}

/// Seeded inputs of a model; `None` where one is too large or of another kind.
fn inputs(model: &Model) -> Option<Vec<(String, Value)>> {
    let mut inputs = vec![];
    for (i, spec) in (0..).zip(model.inputs()) {
        let shape: Vec<i64> = spec.shape.iter().map(|d| if let Dim::Fixed(d) = d { *d } else { 1 }).collect();
        let bytes = shape.iter().try_fold(8i64, |n, &d| n.checked_mul(d))?;
        if spec.any_rank || spec.kind != tilewright::Kind::Tensor || bytes as u64 > MOST_BYTES / 16 {
            return None;
        }
        inputs.push((spec.name.clone(), Tensor::seeded(spec.dtype, &shape, 3, i, 2).into()));
    }
    Some(inputs)
}

/// Complains of outputs that are not those of the interpreter, within rounding: an element may differ by as much as a change of
/// the inputs in their last digits changes it.
pub fn compare(graph: &Graph, inputs: &[Tensor], outputs: &[Tensor]) -> Verdict {
    let Ok(expected) = interpret::run(graph, inputs) else { return Ok(true) };
    let zeroed = std::cell::LazyCell::new(|| without_subnormals(graph, inputs));
    // only where something differs: the interpreter takes its time
    let nudged = std::cell::LazyCell::new(|| -> Vec<Vec<Tensor>> {
        let factors = [3e-6, -5e-6, 1e-6, -1e-6, 1e-5, -2e-5, 7e-7].map(|nudge| 1.0 + nudge);
        let run = |factor: &f64| {
            let inputs: Vec<Tensor> = inputs.iter().map(|t| scaled(t, *factor)).collect();
            interpret::run(graph, &inputs).ok()
        };
        factors.iter().filter_map(run).collect()
    });
    for (i, (actual, expected)) in outputs.iter().zip(&expected).enumerate() {
        if (actual.dtype, &actual.shape) != (expected.dtype, &expected.shape) {
            return Err(format!(
                "output {i} is {} {:?}, not {} {:?}",
                actual.dtype, actual.shape, expected.dtype, expected.shape
            ));
        }
        let (found, wanted) = (reals(actual), reals(expected));
        let others = std::cell::LazyCell::new(|| nudged.iter().map(|o| reals(&o[i])).collect::<Vec<Vec<f64>>>());
        let scale = wanted.iter().filter(|v| v.is_finite()).fold(0f64, |a, v| a.max(v.abs()));
        let tolerance = if actual.dtype.bytes() == 2 { 2e-2 } else { 1e-3 };
        let close = |a: f64, e: f64| {
            a == e
                || (a.is_nan() && e.is_nan())
                || (actual.dtype.is_float() && (a - e).abs() <= tolerance * scale + 1e-5)
        };
        for (at, (a, e)) in found.iter().zip(&wanted).enumerate() {
            let moves = |o: &Vec<f64>| !(o[at] - e).is_finite() || (a - e).abs() <= 100.0 * (o[at] - e).abs();
            let same = close(*a, *e) || zeroed.as_ref().is_some_and(|z| close(*a, element(&z[i], at)));
            if !same && !others.iter().any(moves) {
                return Err(format!("output {i}, element {at}, is {a} instead of {e}, where the largest is {scale}"));
            }
        }
    }
    Ok(true)
}

/// The outputs of the interpreter where subnormal operands are zeros, as they are in kernels.
fn without_subnormals(graph: &Graph, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let zeroed = |tensor: &&Tensor| {
        let mut tensor = Tensor::clone(tensor);
        let dtype = tensor.dtype;
        let least = match dtype {
            DType::F32 => f32::MIN_POSITIVE.into(),
            DType::F64 => f64::MIN_POSITIVE,
            _ => return tensor,
        };
        for bytes in tensor.data.chunks_exact_mut(dtype.bytes()) {
            let value = Scalar::load(dtype, bytes).as_f64();
            if value.abs() < least {
                bytes[..dtype.bytes() - 1].fill(0);
                bytes[dtype.bytes() - 1] &= 0x80;
            }
        }
        tensor
    };
    let apply = |op: &Op, operands: &[&Tensor]| {
        let operands: Vec<Tensor> = operands.iter().map(zeroed).collect();
        interpret::apply(op, &operands.iter().collect::<Vec<_>>())
    };
    subgraph::run(graph, &inputs.iter().collect::<Vec<_>>(), &apply).ok()
}

fn element(tensor: &Tensor, at: usize) -> f64 {
    let size = tensor.dtype.bytes();
    Scalar::load(tensor.dtype, &tensor.data[at * size..][..size]).as_f64()
}

fn reals(tensor: &Tensor) -> Vec<f64> {
    tensor.data.chunks_exact(tensor.dtype.bytes()).map(|b| Scalar::load(tensor.dtype, b).as_f64()).collect()
}

/// The elements times factors near 1, every other one the other way; integers as they are.
fn scaled(tensor: &Tensor, factor: f64) -> Tensor {
    let nudge = |i: usize| if i % 3 == 1 { 2.0 - factor } else { factor };
    match tensor.dtype {
        DType::F32 => {
            let values: Vec<f32> =
                (0..).zip(tensor.to_vec::<f32>()).map(|(i, v)| (f64::from(v) * nudge(i)) as f32).collect();
            Tensor::new(&tensor.shape, &values)
        }
        DType::F64 => {
            let values: Vec<f64> = (0..).zip(tensor.to_vec::<f64>()).map(|(i, v)| v * nudge(i)).collect();
            Tensor::new(&tensor.shape, &values)
        }
        _ => tensor.clone(),
    }
}

/// A program text, to its statements and its schedules; what is printed is read as the same text.
pub fn tile_read(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let file = match File::parse("fuzz.tile", text) {
        Ok(file) => file,
        Err(error) => return verdict::<()>(Err(error)),
    };
    let printed = file.to_string();
    match File::parse("fuzz.tile", &printed) {
        Ok(again) if again.to_string() == printed => {}
        Ok(again) => return Err(format!("another text when it is printed again:\n{printed}\n{again}")),
        Err(error) => return Err(format!("its own text is refused: {error}\n{printed}")),
    }
    let mut accepted = true;
    for program in &file.programs {
        let dims = program.sizes().into_iter().map(|name| (name, 5)).collect();
        accepted &= verdict(file.lower(program, &dims, None))?;
    }
    Ok(accepted)
}

/// A program text, to the outputs of a run by the ILP's order and by each schedule, which agree with the original order.
pub fn tile_run(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let file = match File::parse("fuzz.tile", text) {
        Ok(file) => file,
        Err(error) => return verdict::<()>(Err(error)),
    };
    let mut options = options(bytes);
    for program in file.programs.iter().take(2) {
        options.dims = program.sizes().into_iter().zip([5, 7, 6, 4].into_iter().cycle()).collect();
        let model = match Model::from_program(file.clone(), Some(&program.name), None) {
            Ok(model) => model,
            Err(error) => return verdict::<()>(Err(error)),
        };
        let expected = program_outputs(&model.clone().untransformed(), &options)?;
        let schedules = file.schedules_of(program).into_iter().take(2);
        let by_hand = schedules.filter_map(|s| model.clone().with_schedule(&s.name).ok());
        for order in std::iter::once(model.clone()).chain(by_hand) {
            let outputs = program_outputs(&order, &options)?;
            if let (Some(expected), Some(outputs)) = (&expected, outputs) {
                agree(&outputs, expected)?;
            }
        }
    }
    Ok(true)
}

/// The outputs of a program; `None` where it is refused or takes long.
fn program_outputs(model: &Model, options: &Options) -> Result<Option<Vec<Tensor>>, String> {
    let (module, report) = match model.compile_module(options) {
        Ok(compiled) => compiled,
        Err(error) => return verdict::<()>(Err(error)).map(|_| None),
    };
    if report.kernels.iter().map(|k| k.flops).sum::<u64>() > MOST_WORK {
        return Ok(None);
    }
    let session = tilewright::Session::new(module.into(), 1).map_err(|e| e.to_string())?;
    let mut given: std::collections::BTreeMap<String, Tensor> =
        session.initial_values().map_err(|e| e.to_string())?.into_iter().collect();
    for (i, spec) in (0..).zip(session.module().inputs()) {
        given.entry(spec.name.clone()).or_insert_with(|| Tensor::seeded(spec.dtype, &spec.shape, 3, i, 2));
    }
    let named: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
    match session.run(&named) {
        Ok(outputs) => Ok(Some(outputs)),
        Err(error) => verdict::<()>(Err(error)).map(|_| None),
    }
}

/// Fails where outputs of two orders differ beyond rounding; what is large or not finite is left out.
fn agree(outputs: &[Tensor], expected: &[Tensor]) -> Result<(), String> {
    for (i, (a, e)) in outputs.iter().zip(expected).enumerate() {
        let (found, wanted) = (reals(a), reals(e));
        let scale = wanted.iter().fold(0f64, |s, v| s.max(v.abs()));
        if !scale.is_finite() || wanted.iter().any(|v| v.is_nan()) || scale > 1e6 {
            continue;
        }
        let near = |a: &f64, e: &f64| a == e || (a - e).abs() <= 2e-2 * scale;
        if let Some(at) = (0..wanted.len()).find(|&at| !near(&found[at], &wanted[at])) {
            return Err(format!("output {i}, element {at}: {} in one order, {} in another", found[at], wanted[at]));
        }
    }
    Ok(())
}

/// The text of a graph; what is printed is read as the same graph.
pub fn graph_text(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let graph = match graph_text::parse(text) {
        Ok(graph) => graph,
        Err(error) => return verdict::<()>(Err(error)),
    };
    if !verdict(graph.verify())? {
        return Ok(false);
    }
    let printed = graph_text::print(&graph);
    match graph_text::parse(&printed) {
        Ok(again) if graph_text::print(&again) == printed => Ok(true),
        Ok(_) => Err(format!("another text when it is printed again:\n{printed}")),
        Err(error) => Err(format!("its own text is refused: {error}\n{printed}")),
    }
}

/// The bytes of a module, up to its verification: what it contains never runs.
pub fn module(bytes: &[u8]) -> Verdict {
    // SAFETY: the module is not run.
    verdict(unsafe { Module::from_bytes(bytes) })
}

pub fn npy(bytes: &[u8]) -> Verdict {
    verdict(npy::read(&mut &bytes[..]))
}

/// A value as each of the kinds.
pub fn value(bytes: &[u8]) -> Verdict {
    let mut accepted = false;
    for kind in corpus::kinds() {
        accepted |= verdict(value_file::decode_value(bytes, &kind))?;
    }
    Ok(accepted)
}
