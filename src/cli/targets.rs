//! `targets`: the table of targets, those that this processor runs, and its peak rates.

use super::output;
use super::progress::Progress;
use std::fmt::Write;
use tilewright::internal::codegen::machine::Core;
use tilewright::internal::codegen::probe::{self, Level, Limits, Rates};
use tilewright::internal::language::instruction;
use tilewright::{Calibration, Result, Target};

#[derive(clap::Args)]
pub struct Arguments {
    /// Measure clock, multiply-adds and bandwidth of one core of this processor on each target that runs here
    #[arg(long)]
    measure: bool,
    /// List the built-in tensor instructions: features, extents of their iterators, semantics and code
    #[arg(long, conflicts_with = "measure")]
    instructions: bool,
    /// Print the measurement as JSON
    #[arg(long, requires = "measure")]
    json: bool,
}

const SECONDS: f64 = 2.0;

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        if self.instructions {
            return instructions();
        }
        if !self.measure {
            return Ok(table());
        }
        let mut limits = vec![];
        for target in Target::all().into_iter().filter(Target::runs_on_host) {
            progress.stage(format!("measuring {}", target.name));
            limits.push(probe::measure(&target, SECONDS)?);
        }
        if self.json {
            return output::json(&limits);
        }
        Ok(limits.iter().map(limit_lines).collect())
    }
}

fn limit_lines(limits: &Limits) -> String {
    let mut text = format!("{}, one core at {:.2} GHz\n", limits.target, limits.clock_ghz);
    for (name, rates) in [("f32", limits.f32), ("f64", limits.f64)] {
        let Rates { from_registers, from_l1 } = rates;
        writeln!(text, "  {name} {from_registers:6.1} GFLOP/s from registers, {from_l1:6.1} from L1")
            .expect("a string takes all text");
    }
    for Level { name, bytes, gb_per_second } in &limits.bandwidth {
        writeln!(text, "  {gb_per_second:6.1} GB/s from {name} ({} KiB)", bytes >> 10)
            .expect("a string takes all text");
    }
    text
}

fn instructions() -> Result<String> {
    let mut text = String::new();
    let file = instruction::built_in_file()?;
    for (declared, row) in file.instructions.iter().zip(instruction::declare(&file)?) {
        let mark = if row.runs_on_host() { ", runs here" } else { "" };
        let extents: Vec<String> = row.iterators.iter().map(|i| format!("{} = {}", i.name, i.extent)).collect();
        let (name, features) = (row.name.to_string(), row.features.names().join(" "));
        let operands: Vec<String> = declared.reads.iter().map(|o| format!("read {o}")).collect();
        let mut line = |indent: usize, line: String| {
            writeln!(text, "{:indent$}{line}", "").expect("a string takes all text");
        };
        line(0, format!("{name}: {features}, {}{mark}", extents.join(", ")));
        line(4, format!("acc {}, {}", declared.accumulator, operands.join(", ")));
        line(4, declared.semantics.to_string());
        declared.code.iter().for_each(|code| line(4, code.to_string()));
    }
    Ok(text)
}

fn table() -> String {
    let host = Target::host();
    let mut text = String::new();
    let targets = Target::all();
    let width = targets.iter().map(|target| target.name.len()).max().unwrap_or(0);
    for target in targets {
        let more = host.as_ref().and_then(|host| host.name.strip_prefix(&target.name));
        let mark = match (more, target.runs_on_host()) {
            (Some(""), _) => "  runs here, the default".to_string(),
            (Some(more), _) if more.starts_with('+') => format!("  runs here, the default with {}", &more[1..]),
            (_, true) => "  runs here".to_string(),
            (_, false) => String::new(),
        };
        let line = format!(
            "{:width$} {:2} registers of {:3} bits, {:3.0} GFLOP/s f32 a core{mark}",
            target.name,
            target.vector_registers,
            target.vector_bytes * 8,
            target.peak_gflops(4),
        );
        writeln!(text, "{line}").expect("a string takes all text");
    }
    let own = Core::host().map_or("generic", |core| core.name);
    let mark = |name: &&str| if *name == own { format!("{name} (this processor)") } else { name.to_string() };
    let cores: Vec<String> = Calibration::cores().iter().map(mark).collect();
    writeln!(text, "constants of the cost model for --machine: {}", cores.join(", ")).expect("a string takes all text");
    text
}
