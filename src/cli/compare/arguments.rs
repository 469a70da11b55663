//! The arguments of `compare`.

use crate::inputs::RunArguments;
use crate::model_arguments::parse_dim;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// A `.tile` file, or an ONNX file
    pub file: PathBuf,
    #[command(flatten)]
    pub run: RunArguments,
    /// Only this program of the file; by default every program that has a schedule, or else the first
    #[arg(long, value_name = "NAME")]
    pub program: Option<String>,
    /// Only this schedule of the file, beside the ILP's and the untransformed program; may be given several times
    #[arg(long = "schedule", value_name = "NAME")]
    pub schedules: Vec<String>,
    /// Set of sizes of the programs, for sizes that --dim does not give
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
    /// Value of a size or of a dynamic dimension
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    pub dims: Vec<(String, i64)>,
    /// Compile for this target, one that this processor runs; the best one by default
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Measure each contestant for this long
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::bench::parse_seconds)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained page with bars, a roofline plot and the loops side by side
    #[arg(long, value_name = "OUT.html")]
    pub html: Option<PathBuf>,
}
