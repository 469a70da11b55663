//! `explain`: any stage as text, or the report of all choices with predicted and measured times.

mod page;

use super::inputs::{self, PreparedParts, Ready, RunArguments};
use super::output;
use super::progress::Progress;
use crate::model_arguments::{ModelArguments, choice};
use serde::Serialize;
use std::fmt::Display;
use std::path::PathBuf;
use tilewright::internal::pipeline;
use tilewright::internal::runtime::error::unknown;
use tilewright::internal::runtime::{file, text};
use tilewright::{Error, Report, Result, Sort, Stage};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    run: RunArguments,
    /// Show this stage instead of the report. `c` is the program as it is written, `loops-c` what its schedule makes of it;
    /// both compile
    #[arg(long, value_parser = choice::<Stage>(Stage::NAMES))]
    stage: Option<Stage>,
    /// Only kernels whose name contains this
    #[arg(long, value_name = "K")]
    kernel: Option<String>,
    /// Order of the kernels of the report: those that take longest first, or as they run
    #[arg(long, value_name = "ORDER", default_value = "time", value_parser = choice::<Sort>(Sort::NAMES))]
    sort: Sort,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "stage")]
    json: bool,
    /// Write the report as a page too: kernels, what the planner compared for each with the terms of its predicted times, and the
    /// schedules in words
    #[arg(long, value_name = "OUT.html", conflicts_with = "stage")]
    html: Option<PathBuf>,
}

impl Arguments {
    pub fn run(mut self, progress: &Progress) -> Result<String> {
        self.model.prices = true;
        inputs::refuse_module(&self.model.model)?;
        if let Some(page) = &self.html {
            // Known before minutes are spent on it.
            file::check_writable(page)?;
        }
        match self.stage {
            Some(stage) => self.stage(stage, progress),
            None => self.report(progress),
        }
    }

    fn stage(&self, stage: Stage, progress: &Progress) -> Result<String> {
        self.run.refuse_for("a stage is shown and nothing runs")?;
        let whole = [Stage::Graph, Stage::Rewritten, Stage::C].contains(&stage);
        if whole && self.kernel.is_some() {
            return Err(Error::Invalid("this stage is not divided into kernels: do not pass `--kernel`".into()));
        }
        if stage == Stage::C && self.model.schedule.is_some() {
            return Err(Error::Invalid(
                "this stage is the program before any schedule: do not pass `--schedule`".into(),
            ));
        }
        let loaded = self.run.load(&self.model, progress)?;
        progress.stage(format!("compiling {}", self.model.model.display()));
        let mut text = loaded.model.explain(&loaded.options, stage, self.kernel.as_deref())?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    fn report(&self, progress: &Progress) -> Result<String> {
        let mut report;
        if self.model.target()?.runs_on_host() {
            let threads = self.run.threads_or(1);
            let prepared = match self.run.prepare_on(threads, &self.model, None, progress)? {
                Ready::Whole(prepared) => prepared,
                Ready::Parts(parts, _) => return self.report_in_parts(&parts, progress),
            };
            report = prepared.report.ok_or_else(|| Error::Internal("a compiled model without a report".into()))?;
            progress.stage("measuring");
            let inputs: Vec<_> = prepared.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            prepared.session.profile(&inputs)?;
            let times = prepared.session.profile(&inputs)?;
            pipeline::add_measurements(&mut report, prepared.session.module(), &times, threads);
        } else {
            self.run.refuse_for("this processor does not run that target's code")?;
            report = self.run.load(&self.model, progress)?.compile(&self.model.model, progress)?.1;
        }
        self.select([&mut report])?;
        report.sort(self.sort);
        self.write_page(&report, progress)?;
        self.printed(&report)
    }

    /// Writes the page that is asked for.
    fn write_page(&self, report: &Report, progress: &Progress) -> Result<()> {
        let Some(path) = &self.html else { return Ok(()) };
        let loaded = self.run.load(&self.model, progress)?;
        progress.stage("finding words for the schedules");
        let words = loaded.model.explain(&loaded.options, Stage::Candidates, self.kernel.as_deref())?;
        let page = text::lines(&page::page(report, &words)).into_owned();
        file::write(path, |out| out.write_all(page.as_bytes()))
    }

    /// The report of a model that depends on data, of its second run.
    fn report_in_parts(&self, parts: &PreparedParts, progress: &Progress) -> Result<String> {
        if self.html.is_some() {
            return Err(Error::Unsupported("a model that runs in parts has no page: do not pass `--html`".into()));
        }
        progress.stage(format!("compiling {} in parts", self.model.model.display()));
        parts.compiled.report_in_parts(&parts.inputs())?;
        progress.stage("measuring");
        let mut report = parts.compiled.report_in_parts(&parts.inputs())?;
        self.select(report.parts.iter_mut().map(|part| &mut part.report))?;
        report.sort(self.sort);
        self.printed(&report)
    }

    /// Leaves the kernels that are asked for.
    fn select<'r>(&self, reports: impl IntoIterator<Item = &'r mut Report>) -> Result<()> {
        let Some(word) = &self.kernel else { return Ok(()) };
        let (mut names, mut any) = (vec![], false);
        for report in reports {
            names.extend(report.kernels.iter().map(|k| k.name.clone()));
            report.kernels.retain(|k| k.name.contains(word.as_str()));
            any |= !report.kernels.is_empty();
        }
        if any { Ok(()) } else { Err(Error::Invalid(unknown("kernel", word, &names))) }
    }

    fn printed(&self, report: &(impl Serialize + Display)) -> Result<String> {
        if !self.json {
            return Ok(report.to_string());
        }
        output::json(report)
    }
}
