//! The schedules of one program of a `.tile` file: compiled, checked against each other, measured.

use super::contest::{self, Times};
use super::difference::{self, Difference};
use super::limits::{Machine, Work};
use crate::compare::arguments::Arguments;
use crate::model_arguments::ModelArguments;
use crate::progress::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tilewright::Session;
use tilewright::internal::language;
use tilewright::internal::pipeline::Compilation;
use tilewright::internal::poly::cost::traffic::{Traffic, traffic};
use tilewright::internal::poly::tile::report::PhaseReport;
use tilewright::internal::runtime::error::unknown;
use tilewright::{DType, Error, Model, Options, Result, Tensor};

/// A program and its schedules.
#[derive(Serialize)]
pub struct Program {
    pub name: String,
    pub sizes: BTreeMap<String, i64>,
    pub work: Work,
    /// First the untransformed program, then the ILP's schedule, then those of the file in their order.
    pub schedules: Vec<Schedule>,
}

#[derive(Serialize)]
pub struct Schedule {
    pub name: String,
    pub origin: Origin,
    pub status: Status,
    /// Why it did not take part: for a refused schedule with its counterexample.
    pub message: Option<String>,
    /// `null` when it did not take part.
    pub measurement: Option<Measurement>,
    /// The first difference between its tree and the ILP's; `null` when they are equal.
    pub differs_from_ilp: Option<Difference>,
    /// The statements that accumulate, with their tensor instructions.
    pub updates: Vec<Update>,
    /// The schedule tree and the loops as text; empty when there are none.
    pub tree: String,
    pub loops: String,
}

/// A statement that accumulates.
#[derive(Serialize)]
pub struct Update {
    pub statement: String,
    /// The tensor instruction; `null` where none matches.
    pub instruction: Option<String>,
    /// Why none matches, with the operand; empty otherwise.
    pub mismatch: String,
}

impl std::fmt::Display for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.instruction {
            Some(name) => write!(f, "{} is {name}", self.statement),
            None => write!(f, "{} is not one ({})", self.statement, self.mismatch),
        }
    }
}

impl Schedule {
    /// The tensor instructions in words.
    pub fn instructions(&self) -> String {
        let all: Vec<String> = self.updates.iter().map(|u| u.to_string()).collect();
        if all.is_empty() { "nothing accumulates in vectors".into() } else { all.join(", ") }
    }
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Untransformed,
    Ilp,
    Hand,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Proven, right, measured.
    Measured,
    /// Not proven: the message has the counterexample.
    Refused,
    /// Proven, but not compiled: the message says why.
    NotCompiled,
    /// Another result than the untransformed program's: a defect of tilewright.
    WrongResult,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Status::Measured => "measured",
            Status::Refused => "refused",
            Status::NotCompiled => "not compiled",
            Status::WrongResult => "wrong result",
        })
    }
}

#[derive(Serialize)]
pub struct Measurement {
    pub time_ms: Times,
    /// Rates at the median time.
    pub gflops: f64,
    /// Of the peak; `null` where no peak is known.
    pub share_of_peak: Option<f64>,
    /// The least time that moving the data takes, over the median time.
    pub share_of_bandwidth: f64,
    pub traffic: ModelledTraffic,
    pub compile_ms: f64,
    /// The largest difference to the untransformed program's results, relative to the largest value.
    pub difference: f64,
}

/// By the model of `poly/traffic.rs`, from empty caches.
#[derive(Serialize)]
pub struct ModelledTraffic {
    pub touched_bytes: f64,
    /// Bytes that come into each cache.
    pub into_l1_bytes: f64,
    pub into_l2_bytes: f64,
    pub into_l3_bytes: f64,
}

impl ModelledTraffic {
    pub fn new(traffic: Traffic) -> ModelledTraffic {
        let [into_l1_bytes, into_l2_bytes, into_l3_bytes] = traffic.fetched;
        ModelledTraffic { touched_bytes: traffic.touched, into_l1_bytes, into_l2_bytes, into_l3_bytes }
    }

    /// Bytes that come from level `home`, 0 for the first cache, where the data lie.
    pub fn bytes_from(&self, home: usize) -> f64 {
        match home {
            0 => self.touched_bytes,
            1 => self.into_l1_bytes,
            2 => self.into_l2_bytes,
            _ => self.into_l3_bytes,
        }
    }
}

/// A schedule on its way to be measured.
struct Contestant {
    name: String,
    origin: Origin,
    compiled: std::result::Result<Ready, (Status, String)>,
}

struct Ready {
    session: Session,
    compilation: Compilation,
    compile_ms: f64,
    traffic: Traffic,
    agreement: contest::Agreement,
}

/// A program whose schedules are compiled, and whose results are compared.
pub struct Prepared {
    name: String,
    sizes: BTreeMap<String, i64>,
    contestants: Vec<Contestant>,
    inputs: Vec<(String, Tensor)>,
}

/// Compiles and runs all schedules of the programs that are asked for.
pub fn prepare(arguments: &Arguments, model: &ModelArguments, progress: &Progress) -> Result<Vec<Prepared>> {
    let file = tilewright::File::load(&arguments.file)?;
    let chosen: Vec<&language::syntax::Program> = match &arguments.program {
        Some(name) => vec![file.program(Some(name))?],
        None => file.programs.iter().filter(|p| !file.schedules_of(p).is_empty()).collect(),
    };
    let chosen = if chosen.is_empty() { vec![file.program(None)?] } else { chosen };
    for name in &arguments.schedules {
        let schedules: Vec<&str> =
            chosen.iter().flat_map(|p| file.schedules_of(p)).map(|s| s.name.text.as_str()).collect();
        if !schedules.contains(&name.as_str()) {
            return Err(Error::Invalid(unknown("schedule", name, &schedules)));
        }
    }
    let dims = model.dims()?;
    if let Some(name) = dims.keys().find(|name| !chosen.iter().any(|p| p.sizes().contains(name))) {
        return Err(Error::Invalid(format!("none of the compared programs has a size `{name}`")));
    }
    let given = arguments.run.tensors()?;
    let mut unused: Vec<&String> = given.keys().collect();
    let mut prepared = vec![];
    for program in &chosen {
        let sizes = dims.iter().filter(|d| program.sizes().contains(d.0)).map(|d| (d.0.clone(), *d.1)).collect();
        let options = Options { target: Some(model.target()?), dims: sizes, ..Options::default() };
        let base = Model::from_program(file.clone(), Some(&program.name), arguments.size.as_deref())?;
        let mut models = vec![
            ("untransformed".to_string(), Origin::Untransformed, base.clone().untransformed()),
            ("ilp".to_string(), Origin::Ilp, base.clone()),
        ];
        for schedule in file.schedules_of(program) {
            let name = &schedule.name.text;
            if arguments.schedules.is_empty() || arguments.schedules.contains(name) {
                models.push((name.clone(), Origin::Hand, base.clone().with_schedule(name)?));
            }
        }
        let inputs = base.inputs().iter().filter_map(|i| Some((i.name.clone(), given.get(&i.name)?.clone()))).collect();
        unused.retain(|name| !base.inputs().iter().any(|i| i.name == **name));
        prepared.push(prepare_program(&program.name, models, &options, arguments, inputs, progress)?);
    }
    match unused.first() {
        Some(name) => Err(Error::Invalid(format!("none of the compared programs has an input `{name}`"))),
        None => Ok(prepared),
    }
}

fn prepare_program(
    name: &str,
    models: Vec<(String, Origin, Model)>,
    options: &Options,
    arguments: &Arguments,
    given: BTreeMap<String, Tensor>,
    progress: &Progress,
) -> Result<Prepared> {
    let target = options.target.clone().ok_or_else(|| Error::Internal("no target".into()))?;
    let (mut sizes, mut inputs, mut expected) = (BTreeMap::new(), vec![], vec![]);
    let mut contestants = vec![];
    for (schedule, origin, model) in models {
        progress.stage(format!("proving and compiling {schedule} for {name}"));
        let start = Instant::now();
        let compiled = model.compile_stages(options);
        let compile_ms = start.elapsed().as_secs_f64() * 1e3;
        let compilation = match (compiled, origin) {
            (Ok(compilation), _) => compilation,
            (Err(e), Origin::Untransformed) => return Err(e),
            (Err(e), _) => {
                let status = if matches!(e, Error::Schedule(_)) { Status::Refused } else { Status::NotCompiled };
                contestants.push(Contestant { name: schedule, origin, compiled: Err((status, e.to_string())) });
                continue;
            }
        };
        let session = Session::new(Arc::new(compilation.module.clone()), arguments.run.threads())?;
        if origin == Origin::Untransformed {
            sizes = session.module().dims().clone();
            inputs = arguments.run.fill(&session, given.clone(), &BTreeMap::new())?;
        }
        progress.stage(format!("running {schedule} for {name}"));
        let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let outputs = session.run(&named)?;
        if origin == Origin::Untransformed {
            expected = outputs.clone();
        }
        let names: Vec<String> = session.module().outputs().iter().map(|o| o.tensor.name.clone()).collect();
        let agreement = contest::agreement(&names, &outputs, &expected);
        let traffic = traffic(&compilation.kernels[0].kernel.nest, &target);
        let ready = Ready { session, compilation, compile_ms, traffic, agreement };
        contestants.push(Contestant { name: schedule, origin, compiled: Ok(ready) });
    }
    Ok(Prepared { name: name.into(), sizes, contestants, inputs })
}

impl Prepared {
    /// Measures the schedules with equal results in turn, `seconds` each.
    pub fn measure(self, machine: &Machine, seconds: f64, progress: &Progress) -> Result<Program> {
        progress.stage(format!("measuring {} for {seconds} s each", self.name));
        let work = self.work(machine)?;
        let inputs: Vec<(&str, &Tensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let agrees = |c: &&Contestant| c.compiled.as_ref().is_ok_and(|r| r.agreement.complaint.is_none());
        let mut turns: Vec<Box<dyn FnMut() -> Result<f64>>> = vec![];
        for ready in self.contestants.iter().filter(agrees).filter_map(|c| c.compiled.as_ref().ok()) {
            let mut outputs = ready.session.outputs();
            let inputs = &inputs;
            turns.push(Box::new(move || Ok(ready.session.time_into(inputs, &mut outputs)?.as_secs_f64() * 1e3)));
        }
        let mut times = contest::rounds(&mut turns, seconds)?.into_iter().map(Times::of);
        let ilp = self.contestants.iter().find(|c| c.origin == Origin::Ilp).and_then(|c| c.compiled.as_ref().ok());
        let ilp = ilp.map(Ready::tree);
        let mut schedules = vec![];
        for contestant in &self.contestants {
            let measured = agrees(&contestant).then(|| times.next()).flatten();
            schedules.push(contestant.schedule(measured, ilp.as_deref(), &work));
        }
        Ok(Program { name: self.name.clone(), sizes: self.sizes.clone(), work, schedules })
    }

    /// Counts the operations and bytes of the untransformed program.
    fn work(&self, machine: &Machine) -> Result<Work> {
        let Some(Ok(ready)) = self.contestants.first().map(|c| &c.compiled) else {
            return Err(Error::Internal("no untransformed program".into()));
        };
        let module = &ready.compilation.module;
        let specs = module.inputs().iter().chain(module.outputs().iter().map(|o| &o.tensor));
        let mut bytes = 0;
        for spec in specs {
            bytes += spec.bytes()?;
        }
        let dtype = module.outputs().iter().map(|o| o.tensor.dtype).find(|t| t.is_float());
        let dtype = dtype.or(module.outputs().first().map(|o| o.tensor.dtype)).unwrap_or(DType::F32);
        Ok(Work::new(machine, dtype, ready.compilation.kernels[0].kernel.report.flops, bytes))
    }
}

impl Ready {
    fn tree(&self) -> String {
        let kernel = &self.compilation.kernels[0];
        kernel.tiled.schedule.print(&kernel.scop)
    }

    fn updates(&self) -> Vec<Update> {
        let kernel = &self.compilation.kernels[0];
        let accumulates = |name: &str| kernel.scop.statements.iter().any(|s| s.name == name && s.reduce.is_some());
        let phases = kernel.kernel.report.phases.iter().filter(|p| accumulates(&p.statement));
        let update = |p: &PhaseReport| Update {
            statement: p.statement.clone(),
            instruction: p.instruction.clone(),
            mismatch: p.mismatch.clone(),
        };
        phases.map(update).collect()
    }
}

impl Contestant {
    fn schedule(&self, times: Option<Times>, ilp: Option<&str>, work: &Work) -> Schedule {
        let (name, origin) = (self.name.clone(), self.origin);
        let ready = match &self.compiled {
            Ok(ready) => ready,
            Err((status, message)) => {
                let (status, message) = (*status, Some(message.clone()));
                let (tree, loops) = (String::new(), String::new());
                return Schedule {
                    name,
                    origin,
                    status,
                    message,
                    measurement: None,
                    differs_from_ilp: None,
                    updates: vec![],
                    tree,
                    loops,
                };
            }
        };
        let measurement = times.map(|time_ms| {
            let gflops = work.flops / time_ms.median / 1e6;
            Measurement {
                gflops,
                share_of_peak: work.peak_gflops.map(|peak| gflops / peak),
                share_of_bandwidth: work.bandwidth_bound_ms / time_ms.median,
                traffic: ModelledTraffic::new(ready.traffic),
                compile_ms: ready.compile_ms,
                difference: ready.agreement.difference,
                time_ms,
            }
        });
        let tree = ready.tree();
        Schedule {
            name,
            origin,
            status: if measurement.is_some() { Status::Measured } else { Status::WrongResult },
            message: ready.agreement.complaint.clone(),
            measurement,
            differs_from_ilp: ilp.and_then(|ilp| difference::first(&tree, ilp)),
            updates: ready.updates(),
            tree,
            loops: ready.compilation.kernels[0].kernel.nest.to_string(),
        }
    }
}
