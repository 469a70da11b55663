//! The report of `compare`: the machine, programs and networks.

use crate::compare::limits::Machine;
use crate::compare::network::Network;
use crate::compare::program::Program;
use serde::Serialize;

/// The output of `--json`. Names and fields are a contract; times are in milliseconds, rates in GFLOP/s and GB/s,
/// shares between 0 and 1, sizes in bytes.
#[derive(Serialize)]
pub struct ComparisonReport {
    pub file: String,
    pub version: &'static str,
    pub target: String,
    pub threads: usize,
    /// Peak rates of all threads together.
    pub machine: Machine,
    /// One for each program of a `.tile` file.
    pub programs: Vec<Program>,
    /// For an ONNX file.
    pub network: Option<Network>,
}

impl ComparisonReport {
    /// Lists the schedules that were refused and those with wrong results.
    pub fn failures(&self) -> Vec<String> {
        let schedules = self.programs.iter().flat_map(|p| p.schedules.iter().map(move |s| (&p.name, s)));
        let failed = schedules.filter(|(_, s)| s.measurement.is_none());
        failed.map(|(program, s)| format!("{} for {program} ({})", s.name, s.status)).collect()
    }
}
