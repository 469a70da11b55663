//! `compare`: every schedule of a program beside the ILP's and the untransformed program; every kernel of a network in the
//! ILP's order beside its original order.
//!
//! Each schedule is proven, compiled and run; its results must be those of the untransformed program before its time counts.
//! The times come from rounds in which all take turns, so that a drift of the clock meets all of them. What is refused or
//! computes something else is shown with its reason, does not keep the others from running, and makes the exit code 1.

pub mod arguments;
mod contest;
mod difference;
mod limits;
mod network;
mod page;
mod plot;
mod program;
mod report;
mod table;

use super::inputs;
use super::progress::Progress;
use crate::compare::arguments::Arguments;
use crate::compare::report::ComparisonReport;
use crate::model_arguments::{LimitArguments, ModelArguments};
use crate::output::{self, print};
use limits::Machine;
use tilewright::internal::runtime::{file, text};
use tilewright::{Error, Result};

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        let model = ModelArguments {
            model: self.file.clone(),
            program: self.program.clone(),
            schedule: None,
            size: self.size.clone(),
            target: self.target.clone(),
            instructions: None,
            machine: None,
            prices: false,
            dims: self.dims.iter().map(|(name, size)| (name.clone(), vec![*size])).collect(),
            stop_after: None,
            max_error: None,
            precision: None,
            accumulate: None,
            quotients: None,
            algorithm: None,
            limits: LimitArguments::default(),
            grow: vec![],
        };
        let target = model.target()?;
        if !target.runs_on_host() {
            return Err(Error::Unsupported(format!("this processor does not run code for {}", target.name)));
        }
        let is_program = inputs::is_program(&model)?;
        if !is_program && !self.schedules.is_empty() {
            let name = self.file.display();
            return Err(Error::Invalid(format!("{name} is not a .tile file: do not pass `--schedule`")));
        }
        inputs::refuse_module(&self.file)?;
        if let Some(page) = &self.html {
            // Known before minutes are spent on it.
            file::check_writable(page)?;
        }
        let machine = |progress: &Progress| {
            progress.stage("measuring the limits of this processor");
            Machine::measure(&target, self.run.threads())
        };
        let (machine, programs, network) = if is_program {
            let prepared = program::prepare(&self, &model, progress)?;
            let machine = machine(progress)?;
            let measure = |p: program::Prepared| p.measure(&machine, self.seconds, progress);
            let programs = prepared.into_iter().map(measure).collect::<Result<Vec<_>>>()?;
            (machine, programs, None)
        } else {
            let prepared = network::prepare(&self, &model, progress)?;
            let machine = machine(progress)?;
            let network = prepared.measure(&machine, self.seconds, progress)?;
            (machine, vec![], Some(network))
        };
        let report = ComparisonReport {
            file: self.file.display().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            target: target.name.clone(),
            threads: self.run.threads(),
            machine,
            programs,
            network,
        };
        progress.stage("");
        if let Some(path) = &self.html {
            let page = text::lines(&page::page(&report)).into_owned();
            file::write(path, |out| out.write_all(page.as_bytes()))?;
        }
        let text = match self.json {
            true => output::json(&report)?,
            false => table::text(&report),
        };
        let failed = report.failures();
        if failed.is_empty() {
            return Ok(text);
        }
        // The others' results are printed in any case; the exit code says that something is wrong.
        print(&text)?;
        Err(Error::refused(format!("not all schedules took part: {}", failed.join(", "))))
    }
}
