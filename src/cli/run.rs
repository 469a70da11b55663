//! `run`: one run, and a line for each output; beside direct convolution where asked for.

use super::inputs::{self, Prepared, RunArguments};
use super::progress::Progress;
use crate::model_arguments::{CacheArguments, ModelArguments};
use clap::builder::PossibleValuesParser;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tilewright::internal::expr::scalar::number::f16_to_f32;
use tilewright::internal::expr::scalar::storage;
use tilewright::internal::runtime::text::name;
use tilewright::{Algorithm, DType, Error, Module, Report, Result, Tensor, Value};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    cache: CacheArguments,
    /// Write the outputs to DIR/output_0.npy, DIR/output_1.npy … in the model's order
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Format of the saved outputs; `pb` is ONNX's TensorProto, which has all element types
    #[arg(long, value_name = "FORMAT", default_value = "npy", requires = "save", value_parser = PossibleValuesParser::new(["npy", "pb"]))]
    format: String,
    /// Also compile a network with `--algorithm direct`, run it on the same inputs, and print how far the outputs differ
    #[arg(long, value_name = "direct", value_parser = PossibleValuesParser::new(["direct"]))]
    against: Option<String>,
}

impl Arguments {
    pub fn run(mut self, progress: &Progress) -> Result<String> {
        if self.against.is_some() {
            self.check_network()?;
        }
        let prepared = match self.run.prepare(&self.model, self.cache.options(), progress) {
            Ok(prepared) => prepared,
            Err(error @ Error::Limit(_)) => return Err(error),
            Err(error) => return self.run_in_parts(progress)?.ok_or(error),
        };
        progress.stage(format!("running {}", prepared.session.module().name()));
        let outputs = prepared.session.run(&prepared.inputs())?;
        if let Some(folder) = &self.save {
            save_outputs(prepared.session.module(), &outputs, folder, &self.format)?;
        }
        let mut text = String::new();
        for (spec, output) in prepared.session.module().outputs().iter().zip(&outputs) {
            let line =
                format!("{}  {} {:?}  {}", name(&spec.tensor.name), output.dtype, output.shape, statistics(output));
            writeln!(text, "{line}").expect("a string takes all text");
        }
        let named = self.model.algorithm.is_some_and(|a| a != Algorithm::Direct);
        if let Some(bound) = prepared.report.as_ref().and_then(|report| bound_text(report, named)) {
            writeln!(text, "{bound}").expect("a string takes all text");
        }
        if self.against.is_some() {
            self.model.algorithm = Some(Algorithm::Direct);
            text += &self.against_direct(&prepared, &outputs, progress)?;
        }
        Ok(text)
    }

    /// Runs a network that depends on data; `None` for all others.
    fn run_in_parts(&self, progress: &Progress) -> Result<Option<String>> {
        if inputs::is_module(&self.model.model)? || inputs::is_program(&self.model)? {
            return Ok(None);
        }
        let Some((compiled, inputs)) = self.run.prepare_parts(&self.model, self.cache.options(), progress)? else {
            return Ok(None);
        };
        progress.stage(format!("running {} in parts", self.model.model.display()));
        let inputs: Vec<(&str, &Value)> = inputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let outputs = compiled.run_values(&inputs)?;
        let mut text = String::new();
        for (i, (output, value)) in compiled.model().output_names().iter().zip(&outputs).enumerate() {
            if let Some(folder) = &self.save {
                let io = |e| Error::Io(format!("cannot make {}: {e}", folder.display()));
                std::fs::create_dir_all(folder).map_err(io)?;
                let path = folder.join(format!("output_{i}.{}", self.format));
                match (self.format.as_str(), value) {
                    ("pb", value) => tilewright::onnx::write_value(path, output, value)?,
                    (_, value) => value.tensor()?.write_npy(path)?,
                }
            }
            writeln!(text, "{}  {}", name(output), described(value)).expect("a string takes all text");
        }
        Ok(Some(text))
    }

    /// Refuses what has no other algorithm to be compared with.
    fn check_network(&self) -> Result<()> {
        let name = self.model.model.display();
        if inputs::is_module(&self.model.model)? {
            return Err(Error::Invalid(format!("{name} is already machine code: do not pass `--against`")));
        }
        if inputs::is_program(&self.model)? {
            return Err(Error::Invalid(format!("{name} is not a network: do not pass `--against`")));
        }
        Ok(())
    }

    /// Runs the model of the arguments, which is direct, on the inputs of `prepared`; a line for each output.
    fn against_direct(&self, prepared: &Prepared, outputs: &[Tensor], progress: &Progress) -> Result<String> {
        let direct = self.run.prepare(&self.model, self.cache.options(), progress)?;
        progress.stage(format!("running {} with direct convolution", direct.session.module().name()));
        let expected = direct.session.run(&prepared.inputs())?;
        let mut text = String::new();
        for ((spec, output), expected) in direct.session.module().outputs().iter().zip(outputs).zip(&expected) {
            let error = relative_error(&values(output.dtype, &output.data), &values(expected.dtype, &expected.data));
            let name = name(&spec.tensor.name);
            writeln!(text, "{name}  against direct: largest error {error:.1e} of the largest |value|")
                .expect("a string takes all text");
        }
        Ok(text)
    }
}

/// The report's bound of the error of its algorithms; `None` where every convolution is direct and none was named.
fn bound_text(report: &Report, named: bool) -> Option<String> {
    let algorithms = &report.rewriting.as_ref()?.algorithms;
    (named || algorithms.error_bound.is_some()).then(|| algorithms.bound_text())
}

/// Largest difference as a share of the largest |expected|; infinite where one is finite and the other is not.
fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    let scale = expected.iter().filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
    let differences = found.iter().zip(expected).map(|(a, b)| match (a.is_finite(), b.is_finite()) {
        (true, true) => (a - b).abs(),
        (false, false) => 0.0,
        _ => f64::INFINITY,
    });
    let worst = differences.fold(0.0, f64::max);
    if worst == 0.0 { 0.0 } else { worst / scale }
}

/// Writes `folder/output_0.npy`, `folder/output_1.npy` …, or `.pb` where that is the format.
pub fn save_outputs(module: &Module, outputs: &[Tensor], folder: &Path, format: &str) -> Result<()> {
    let io = |e| Error::Io(format!("cannot make {}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(io)?;
    for (i, (spec, output)) in module.outputs().iter().zip(outputs).enumerate() {
        let path = folder.join(format!("output_{i}.{format}"));
        match format {
            "pb" => tilewright::onnx::write_tensor(path, &spec.tensor.name, output)?,
            _ => output.write_npy(path)?,
        }
    }
    Ok(())
}

/// The elements as numbers.
fn values(dtype: DType, data: &[u8]) -> Vec<f64> {
    fn numbers<const N: usize>(data: &[u8], number: fn([u8; N]) -> f64) -> Vec<f64> {
        data.as_chunks::<N>().0.iter().map(|e| number(*e)).collect()
    }
    match dtype {
        DType::F64 => numbers::<8>(data, f64::from_le_bytes),
        DType::F32 => numbers::<4>(data, |b| f32::from_le_bytes(b).into()),
        DType::I64 => numbers::<8>(data, |b| i64::from_le_bytes(b) as f64),
        DType::I32 => numbers::<4>(data, |b| i32::from_le_bytes(b).into()),
        DType::I16 => numbers::<2>(data, |b| i16::from_le_bytes(b).into()),
        DType::I8 => numbers::<1>(data, |b| i8::from_le_bytes(b).into()),
        DType::U64 => numbers::<8>(data, |b| u64::from_le_bytes(b) as f64),
        DType::U32 => numbers::<4>(data, |b| u32::from_le_bytes(b).into()),
        DType::U16 => numbers::<2>(data, |b| u16::from_le_bytes(b).into()),
        DType::U8 | DType::Bool => numbers::<1>(data, |[b]| b.into()),
        DType::F16 => numbers::<2>(data, |b| f16_to_f32(u16::from_le_bytes(b)).into()),
        DType::BF16 => numbers::<2>(data, |[low, high]| f32::from_le_bytes([0, 0, low, high]).into()),
        dtype => data.iter().map(|&byte| storage::decode(dtype, byte)).collect(),
    }
}

/// Type, shape and statistics of a value; of a sequence those of each element.
fn described(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => format!("{} {:?}  {}", tensor.dtype, tensor.shape, statistics(tensor)),
        Value::Sequence(values) => {
            let elements: Vec<String> = values.iter().map(described).collect();
            format!("sequence of {}: [{}]", values.len(), elements.join("; "))
        }
        Value::Optional(None) => "absent".into(),
        Value::Optional(Some(value)) => format!("optional {}", described(value)),
    }
}

/// Elements that are converted at once.
const PART: usize = 1 << 16;

/// Mean and extremes.
fn statistics(tensor: &Tensor) -> String {
    // The least of NaN and a number is the number.
    let (mut sum, mut least, mut most, mut wild) = (0.0, f64::NAN, f64::NAN, 0);
    // a part at a time: all of them as f64 may need more memory than the run
    for part in tensor.data.chunks(PART * tensor.dtype.bytes()) {
        for value in values(tensor.dtype, part) {
            sum += value;
            (least, most) = (least.min(value), most.max(value));
            wild += usize::from(!value.is_finite());
        }
    }
    if tensor.is_empty() {
        return "no elements".into();
    }
    let mean = sum / tensor.len() as f64;
    let mut text = format!("mean {mean:.6}  min {least:.6}  max {most:.6}");
    if wild > 0 {
        write!(text, "  {wild} not finite").expect("a string takes all text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_expected_value() {
        assert_eq!(relative_error(&[1.0, -3.5], &[1.0, -4.0]), 0.125);
        assert_eq!(relative_error(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
        assert_eq!(relative_error(&[2.0], &[0.0]), f64::INFINITY);
        assert_eq!(relative_error(&[1.0, f64::NAN], &[1.0, f64::NAN]), 0.0);
        assert_eq!(relative_error(&[1.0, f64::NAN], &[1.0, 2.0]), f64::INFINITY);
    }

    #[test]
    fn statistics_name_what_is_not_finite() {
        assert_eq!(statistics(&Tensor::new(&[3], &[1i64, 2, 6])), "mean 3.000000  min 1.000000  max 6.000000");
        assert!(statistics(&Tensor::new(&[2], &[1f32, f32::NAN])).ends_with("max 1.000000  1 not finite"));
        let broken = statistics(&Tensor::new(&[1], &[f32::NAN]));
        assert_eq!(broken, "mean NaN  min NaN  max NaN  1 not finite");
        assert_eq!(statistics(&Tensor::zeros(DType::F32, &[0])), "no elements");
    }
}
