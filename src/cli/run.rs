//! `run`: one run, and a line for each output.

use super::inputs::RunArguments;
use super::progress::Progress;
use crate::model_arguments::ModelArguments;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tilewright::internal::expr::scalar::f16_to_f32;
use tilewright::internal::runtime::text::name;
use tilewright::{DType, Error, Result, Tensor};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    run: RunArguments,
    /// Write the outputs to DIR/output_0.npy, DIR/output_1.npy … in the model's order
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        let prepared = self.run.prepare(&self.model, progress)?;
        progress.stage(format!("running {}", prepared.session.module().name()));
        let outputs = prepared.session.run(&prepared.inputs())?;
        if let Some(folder) = &self.save {
            save_outputs(&outputs, folder)?;
        }
        let mut text = String::new();
        for (spec, output) in prepared.session.module().outputs().iter().zip(&outputs) {
            let line =
                format!("{}  {} {:?}  {}", name(&spec.tensor.name), output.dtype, output.shape, statistics(output));
            writeln!(text, "{line}").expect("a string takes all text");
        }
        Ok(text)
    }
}

/// Writes `folder/output_0.npy`, `folder/output_1.npy` …
pub fn save_outputs(outputs: &[Tensor], folder: &Path) -> Result<()> {
    let io = |e| Error::Io(format!("cannot make {}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(io)?;
    for (i, output) in outputs.iter().enumerate() {
        output.write_npy(folder.join(format!("output_{i}.npy")))?;
    }
    Ok(())
}

/// Mean and extremes.
fn statistics(tensor: &Tensor) -> String {
    match tensor.dtype {
        DType::F64 => summary::<8>(tensor, f64::from_le_bytes),
        DType::F32 => summary::<4>(tensor, |b| f32::from_le_bytes(b).into()),
        DType::I64 => summary::<8>(tensor, |b| i64::from_le_bytes(b) as f64),
        DType::I32 => summary::<4>(tensor, |b| i32::from_le_bytes(b).into()),
        DType::I8 => summary::<1>(tensor, |b| i8::from_le_bytes(b).into()),
        DType::U8 | DType::Bool => summary::<1>(tensor, |[b]| b.into()),
        DType::F16 => summary::<2>(tensor, |b| f16_to_f32(u16::from_le_bytes(b)).into()),
        DType::BF16 => summary::<2>(tensor, |[low, high]| f32::from_le_bytes([0, 0, low, high]).into()),
    }
}

fn summary<const N: usize>(tensor: &Tensor, number: fn([u8; N]) -> f64) -> String {
    // The least of NaN and a number is the number.
    let (mut sum, mut least, mut most, mut wild) = (0.0, f64::NAN, f64::NAN, 0);
    let elements = tensor.data.as_chunks::<N>().0;
    for value in elements.iter().map(|e| number(*e)) {
        sum += value;
        (least, most) = (least.min(value), most.max(value));
        wild += usize::from(!value.is_finite());
    }
    if elements.is_empty() {
        return "no elements".into();
    }
    let mean = sum / elements.len() as f64;
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
    fn statistics_name_what_is_not_finite() {
        assert_eq!(statistics(&Tensor::new(&[3], &[1i64, 2, 6])), "mean 3.000000  min 1.000000  max 6.000000");
        assert!(statistics(&Tensor::new(&[2], &[1f32, f32::NAN])).ends_with("max 1.000000  1 not finite"));
        let broken = statistics(&Tensor::new(&[1], &[f32::NAN]));
        assert_eq!(broken, "mean NaN  min NaN  max NaN  1 not finite");
        assert_eq!(statistics(&Tensor::zeros(DType::F32, &[0])), "no elements");
    }
}
