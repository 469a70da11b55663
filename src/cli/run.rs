//! `run`: one run, and a line for each output; beside direct convolution where asked for.

use super::inputs::{self, Prepared, PreparedParts, Ready, RunArguments};
use super::progress::Progress;
use crate::model_arguments::{CacheArguments, ModelArguments};
use crate::output::numbers;
use clap::builder::PossibleValuesParser;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tilewright::internal::runtime::text::name;
use tilewright::{Accumulate, Algorithm, Error, Module, Precision, Report, Result, Tensor, Value};

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
    /// Also compile a network with `--algorithm direct` or `--precision f32`, run it on the same inputs, and print how far the
    /// outputs differ
    #[arg(long, value_name = "direct|f32", value_parser = PossibleValuesParser::new(["direct", "f32"]))]
    against: Option<String>,
}

impl Arguments {
    pub fn run(mut self, progress: &Progress) -> Result<String> {
        if self.against.is_some() {
            self.check_network()?;
        }
        let prepared = match self.run.prepare(&self.model, self.cache.options(), progress)? {
            Ready::Whole(prepared) => prepared,
            Ready::Parts(parts, _) => return self.run_in_parts(&parts, progress),
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
        if let Some(other) = self.against.clone() {
            self.take(&other);
            text += &self.against_other(&other, &prepared, &outputs, progress)?;
        }
        Ok(text)
    }

    /// Runs a network that depends on data.
    fn run_in_parts(&mut self, parts: &PreparedParts, progress: &Progress) -> Result<String> {
        progress.stage(format!("running {} in parts", self.model.model.display()));
        let outputs = parts.compiled.run_values(&parts.inputs())?;
        let names = parts.compiled.model().output_names();
        if let Some(folder) = &self.save {
            save_values(&names, &outputs, folder, &self.format)?;
        }
        let mut text = String::new();
        for (output, value) in names.iter().zip(&outputs) {
            writeln!(text, "{}  {}", name(output), described(value)).expect("a string takes all text");
        }
        if let Some(other) = self.against.clone() {
            self.take(&other);
            let Ready::Parts(compared, _) = self.run.prepare(&self.model, self.cache.options(), progress)? else {
                return Err(Error::Internal("the model depends on data by its algorithm".into()));
            };
            progress.stage(format!("running {} with {}", self.model.model.display(), way(&other)));
            let expected = compared.compiled.run_values(&parts.inputs())?;
            for ((output, found), expected) in names.iter().zip(&outputs).zip(&expected) {
                if let (Value::Tensor(found), Value::Tensor(expected)) = (found, expected) {
                    text += &against_text(&other, output, found, expected);
                }
            }
        }
        Ok(text)
    }

    /// Asks for what the outputs are compared with.
    fn take(&mut self, other: &str) {
        match other {
            "direct" => self.model.algorithm = Some(Algorithm::Direct),
            _ => {
                self.model.precision = Some(Precision::F32);
                self.model.accumulate = Some(Accumulate::F32);
            }
        }
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

    /// Runs the model of the arguments, which is that of the word `other`, on the inputs of `prepared`; a line for each output.
    fn against_other(
        &self,
        other: &str,
        prepared: &Prepared,
        outputs: &[Tensor],
        progress: &Progress,
    ) -> Result<String> {
        let compared = self.run.prepare(&self.model, self.cache.options(), progress)?.whole()?;
        progress.stage(format!("running {} with {}", compared.session.module().name(), way(other)));
        let expected = compared.session.run(&prepared.inputs())?;
        let mut text = String::new();
        for ((spec, output), expected) in compared.session.module().outputs().iter().zip(outputs).zip(&expected) {
            text += &against_text(other, &spec.tensor.name, output, expected);
        }
        Ok(text)
    }
}

/// The way of computing that a word after `--against` stands for.
fn way(other: &str) -> &'static str {
    if other == "direct" { "direct convolution" } else { "operands in f32" }
}

/// A line on how far an output is from what it is compared with.
fn against_text(other: &str, output: &str, result: &Tensor, expected: &Tensor) -> String {
    let values = |tensor: &Tensor| numbers(tensor.dtype, &tensor.data).collect::<Vec<f64>>();
    let error = relative_error(&values(result), &values(expected));
    format!("{}  against {other}: largest error {error:.1e} of the largest |value|\n", name(output))
}

/// The report's bound of the error of its algorithms; `None` where every convolution is direct and none was named.
fn bound_text(report: &Report, named: bool) -> Option<String> {
    let algorithms = &report.rewriting.as_ref()?.algorithms;
    (named || algorithms.error_bound.is_some()).then(|| algorithms.bound_text())
}

/// Largest difference as a share of the largest |expected|; infinite where one is finite and the other is not.
fn relative_error(result: &[f64], expected: &[f64]) -> f64 {
    let scale = expected.iter().filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
    let differences = result.iter().zip(expected).map(|(a, b)| match (a.is_finite(), b.is_finite()) {
        (true, true) => (a - b).abs(),
        (false, false) => 0.0,
        _ => f64::INFINITY,
    });
    let worst = differences.fold(0.0, f64::max);
    if worst == 0.0 { 0.0 } else { worst / scale }
}

/// Writes `folder/output_0.npy`, `folder/output_1.npy` …, or `.pb` where that is the format.
pub fn save_outputs(module: &Module, outputs: &[Tensor], folder: &Path, format: &str) -> Result<()> {
    make(folder)?;
    for (i, (spec, output)) in module.outputs().iter().zip(outputs).enumerate() {
        let path = folder.join(format!("output_{i}.{format}"));
        match format {
            "pb" => tilewright::onnx::write_tensor(path, &spec.tensor.name, output)?,
            _ => output.write_npy(path)?,
        }
    }
    Ok(())
}

/// As [`save_outputs`], of a model that runs in parts.
pub fn save_values(names: &[String], outputs: &[Value], folder: &Path, format: &str) -> Result<()> {
    make(folder)?;
    for (i, (name, value)) in names.iter().zip(outputs).enumerate() {
        let path = folder.join(format!("output_{i}.{format}"));
        match format {
            "pb" => tilewright::onnx::write_value(path, name, value)?,
            _ => match value.tensor() {
                Ok(tensor) => tensor.write_npy(path)?,
                Err(_) => {
                    return Err(Error::Invalid(format!(
                        "output `{name}` is a sequence or absent, which a .npy file cannot hold: pass `--format pb`"
                    )));
                }
            },
        }
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::Io(format!("cannot make {}: {e}", folder.display())))
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
        for value in numbers(tensor.dtype, part) {
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
    use tilewright::DType;

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
