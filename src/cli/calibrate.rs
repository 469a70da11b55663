//! `calibrate`: the constants of this processor, measured, as a file.

use super::progress::Progress;
use crate::model_arguments::target;
use std::path::PathBuf;
use tilewright::internal::codegen::probe::calibrate;
use tilewright::internal::runtime::file;
use tilewright::{Calibration, Error, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// Measure for this target; the best one of this processor by default
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Measure for about this long
    #[arg(long, value_name = "S", default_value_t = 40.0, value_parser = parse_seconds)]
    seconds: f64,
    /// The file to write; standard output without it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number from 0.1 to 3600".into()),
    }
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        let target = target(self.target.as_deref())?;
        if !target.runs_on_host() {
            return Err(Error::Unsupported(format!("this processor does not run {}", target.name)));
        }
        if let Some(path) = &self.output {
            // Known before a minute is spent on it.
            file::check_writable(path)?;
        }
        progress.stage(format!("measuring {} for {} s", target.name, self.seconds));
        let measured = calibrate::measure(&target, self.seconds)?;
        let calibration = Calibration { target: target.name.clone(), machine: measured };
        let text = calibration.to_json();
        // What is written can be read.
        Calibration::parse(&text)?;
        let Some(path) = self.output else { return Ok(text) };
        file::write(&path, |out| out.write_all(text.as_bytes()))?;
        Ok(format!("{}: constants of {}\n", path.display(), target.name))
    }
}
