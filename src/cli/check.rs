//! `check`: proves or refuses every schedule of a file; says of a model what would run.

use super::inputs::{InputArguments, bind, refuse_module, values};
use super::instructions;
use super::progress::Progress;
use crate::model_arguments::{LimitArguments, bind_once, parse_dim, target};
use crate::output::print;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tilewright::instructions::TensorInstruction;
use tilewright::internal::language::syntax::Program;
use tilewright::internal::runtime::error::unknown;
use tilewright::internal::runtime::text::{self, count, name, quoted};
use tilewright::{Dim, Error, Model, Options, Result, Target};

#[derive(clap::Args)]
pub struct Arguments {
    /// A `.tile` file or an ONNX model
    file: PathBuf,
    /// Only the schedules for this program
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Set of sizes of the programs, for sizes that --dim does not give
    #[arg(long, value_name = "NAME")]
    size: Option<String>,
    /// Target whose instructions `tensorize` chooses from; the best one of this processor by default
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Use the tensor instructions that this file declares, beside the built-in ones; each is tried in a process of its own first
    #[arg(long, value_name = "FILE.tile")]
    instructions: Option<PathBuf>,
    /// Value of a size
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    limits: LimitArguments,
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        let rows = instructions::checked(self.instructions.as_deref(), progress)?;
        match self.file.extension().is_some_and(|e| e == "tile") {
            true => self.schedules(rows, progress),
            false => self.model(rows, progress),
        }
    }

    /// The verdict on every schedule of the file, where its programs are right.
    fn schedules(self, instructions: Arc<[TensorInstruction]>, progress: &Progress) -> Result<String> {
        let name = self.file.display();
        if !self.inputs.is_empty() {
            return Err(Error::Invalid(format!("{name} is not a network: do not pass `--input`")));
        }
        if self.limits.max_memory.or(self.limits.max_work).is_some() {
            return Err(Error::Invalid(format!("{name} is not a network: do not pass `--max-memory` or `--max-work`")));
        }
        let file = tilewright::File::load(&self.file)?;
        let dims = bind_once(&self.dims)?;
        let programs: Vec<&Program> = match &self.program {
            None if !file.programs.is_empty() => file.programs.iter().collect(),
            name => vec![file.program(name.as_deref())?],
        };
        let is_size = |name: &String| programs.iter().any(|p| p.sizes().contains(name));
        if let Some(name) = dims.keys().find(|name| !is_size(name)) {
            let names: Vec<String> = programs.iter().flat_map(|p| p.sizes()).collect();
            return Err(Error::Invalid(unknown("size", name, &names)));
        }
        let target = match self.target {
            None if Target::host().is_none() => Some(Target::avx2()),
            None => None,
            Some(_) => Some(target(self.target.as_deref())?),
        };
        let target = Options { target, instructions, ..Options::default() }.target()?;
        let (mut out, mut refused, mut count) = (String::new(), 0, 0);
        for program in &programs {
            let given = dims.iter().filter(|d| program.sizes().contains(d.0)).map(|d| (d.0.clone(), *d.1)).collect();
            if let Some(reason) = self.left_out(program, &programs, &given, &file) {
                out.push_str(&format!("{}: {reason}\n", program.name));
                continue;
            }
            let lowered = match file.lower(program, &given, self.size.as_deref()) {
                Ok(lowered) => lowered,
                Err(error) => {
                    print(&out)?;
                    return Err(error);
                }
            };
            let schedules = file.schedules_of(program);
            if schedules.is_empty() {
                out.push_str(&format!("{}: valid, without a schedule\n", program.name));
            }
            for schedule in schedules {
                progress.stage(format!("checking {} for {}", schedule.name, program.name));
                count += 1;
                let verdict =
                    file.schedule(&lowered, schedule, &target).map_or_else(|e| e.to_string(), |_| "legal".into());
                refused += usize::from(verdict != "legal");
                out.push_str(&format!("{} for {}: {verdict}\n", schedule.name, program.name));
            }
        }
        progress.stage("");
        match (count, refused) {
            (_, 0) => Ok(out),
            (_, _) => {
                print(&out)?;
                Err(Error::refused(format!("{refused} of {count} schedules refused")))
            }
        }
    }

    /// Why one of `programs` is not checked: it lacks the chosen set of sizes, which another one has; or it has no schedule and
    /// a size without a value, where others have schedules.
    fn left_out(
        &self,
        program: &Program,
        programs: &[&Program],
        given: &BTreeMap<String, i64>,
        file: &tilewright::File,
    ) -> Option<String> {
        let schedules = file.schedules_of(program).len();
        if let Some(name) = &self.size {
            let has_set = |p: &Program| p.sizes.iter().any(|set| *set.name == **name);
            let left_out = !has_set(program) && programs.iter().any(|p| has_set(p));
            return left_out.then(|| match schedules {
                0 => format!("has no set of sizes `{name}`, not checked"),
                _ => format!("has no set of sizes `{name}`, {} not checked", text::count(schedules, "schedule")),
            });
        }
        let open = program.unbound(given);
        let left_out = schedules == 0 && programs.iter().any(|p| !file.schedules_of(p).is_empty());
        (left_out && !open.is_empty()).then(|| format!("has no value for {}, not checked", quoted(&open)))
    }

    /// One page on a model: its inputs, its dynamic dimensions, what it is compiled to, or why it is not.
    fn model(&self, instructions: Arc<[TensorInstruction]>, progress: &Progress) -> Result<String> {
        if self.program.is_some() || self.size.is_some() {
            return Err(Error::Invalid(format!("{} has no programs or sizes", self.file.display())));
        }
        if self.target.is_some() {
            let file = self.file.display();
            return Err(Error::Invalid(format!("{file} has no schedules, which `--target` is for: do not pass it")));
        }
        refuse_module(&self.file)?;
        progress.stage(format!("reading {}", self.file.display()));
        let (model, given) = self.inputs.of(Model::load(&self.file)?)?;
        let mut text = String::new();
        for spec in model.inputs() {
            let dims: Vec<String> = spec.shape.iter().map(Dim::to_string).collect();
            let shape = if spec.any_rank { "any shape".into() } else { format!("[{}]", dims.join(", ")) };
            text += &format!("input {}: {} of {} {shape}\n", name(&spec.name), spec.kind, spec.dtype);
        }
        let symbols = model.symbols();
        if !symbols.is_empty() {
            text += &format!("dynamic dimensions, 1 unless bound: {}\n", symbols.join(", "));
        }
        let limits = self.limits.limits();
        let dims = bind(model.inputs(), &given, bind_once(&self.dims)?)?;
        let open: Vec<&String> = symbols.iter().filter(|name| !dims.contains_key(*name)).collect();
        let options =
            Options { instructions, dims: dims.clone(), values: values(&given), limits, ..Options::default() };
        let graph = match model.graph_within(&options) {
            Ok(graph) => graph,
            Err(reason) if model.depends_on_data(&options) => {
                return Ok(text + &format!("runs in parts, since it depends on data: {reason}\n"));
            }
            Err(reason) if model.depends_on_values(&options) => {
                return Ok(text + &format!("runs as one module for each such value: {reason}\n"));
            }
            Err(error) => {
                if !open.is_empty() {
                    let names: Vec<String> = open.iter().map(|name| format!("--dim {name}=N")).collect();
                    text +=
                        &format!("with 1 for what is not bound it is refused; other sizes: `{}`\n", names.join(" "));
                }
                print(&text)?;
                return Err(error);
            }
        };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for node in &graph.nodes {
            *counts.entry(node.op.mnemonic()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(op, n)| format!("{n} {op}")).collect();
        text += &format!("{} after folding: {}\n", count(graph.nodes.len(), "operator"), counts.join(", "));
        for &output in &graph.outputs {
            let value = graph.value(output);
            text += &format!("output {}: {}\n", name(&value.name), value.ty);
        }
        Ok(text + "runs as one module\n")
    }
}
