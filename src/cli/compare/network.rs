//! A network twice: every kernel by the ILP, and every kernel in its original order.

use super::contest::{self, Times};
use super::limits::{Machine, Work};
use super::program::ModelledTraffic;
use crate::compare::arguments::Arguments;
use crate::inputs::outside_bytes;
use crate::model_arguments::ModelArguments;
use crate::progress::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tilewright::Session;
use tilewright::Target;
use tilewright::internal::pipeline::Compilation;
use tilewright::internal::poly::cost::traffic::traffic;
use tilewright::{DType, Error, Model, Result, Tensor};

/// A network and its kernels.
#[derive(Serialize)]
pub struct Network {
    pub name: String,
    pub work: Work,
    /// The sum over all steps of a run.
    pub ilp: Times,
    pub untransformed: Times,
    /// The largest difference of the two results, relative to the largest value.
    pub difference: f64,
    /// In the order in which they run.
    pub kernels: Vec<Kernel>,
    /// Functions that no schedule is for, and their time.
    pub opaque: Vec<Opaque>,
}

#[derive(Serialize)]
pub struct Kernel {
    pub name: String,
    /// The graph operators in it.
    pub operators: Vec<String>,
    pub flops: f64,
    pub ilp: Order,
    pub untransformed: Order,
    /// Time of the untransformed order over this time.
    pub ratio: f64,
}

/// One kernel in one order.
#[derive(Serialize)]
pub struct Order {
    pub time_ms: Times,
    pub gflops: f64,
    pub share_of_peak: Option<f64>,
    pub traffic: ModelledTraffic,
    /// The loops as text.
    pub loops: String,
}

#[derive(Serialize)]
pub struct Opaque {
    pub name: String,
    pub time_ms: Times,
}

/// A network that is compiled in both orders, and whose results agree.
pub struct Prepared {
    target: Target,
    sessions: [Session; 2],
    compilations: [Compilation; 2],
    inputs: Vec<(String, Tensor)>,
    difference: f64,
}

/// Compiles and runs both.
pub fn prepare(arguments: &Arguments, model: &ModelArguments, progress: &Progress) -> Result<Prepared> {
    let loaded = arguments.run.load(model, progress)?;
    let (network, options) = (loaded.model.clone(), loaded.options.clone());
    let compile = |what: &str, model: &Model| {
        progress.stage(format!("compiling {} {what}", arguments.file.display()));
        let compilation = model.compile_stages(&options)?;
        let session = Session::new(Arc::new(compilation.module.clone()), arguments.run.threads())?;
        Ok((session, compilation))
    };
    let (ilp, planned) = compile("by the ILP", &network)?;
    let (untransformed, original) = compile("in the original order", &network.untransformed())?;
    let inputs = arguments.run.fill(&ilp, loaded.tensors()?, &BTreeMap::new())?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    progress.stage("running both");
    let results = [ilp.run(&named)?, untransformed.run(&named)?];
    let names: Vec<String> = ilp.module().outputs().iter().map(|o| o.tensor.name.clone()).collect();
    let agreement = contest::agreement(&names, &results[0], &results[1]);
    if let Some(complaint) = agreement.complaint {
        return Err(Error::Internal(format!("the two orders compute different results: {complaint}")));
    }
    Ok(Prepared {
        target: model.target()?,
        sessions: [ilp, untransformed],
        compilations: [planned, original],
        inputs,
        difference: agreement.difference,
    })
}

impl Prepared {
    /// Runs both in turn, `seconds` each.
    pub fn measure(self, machine: &Machine, seconds: f64, progress: &Progress) -> Result<Network> {
        let module = self.sessions[0].module();
        progress.stage(format!("measuring {} for {seconds} s each", module.name()));
        let inputs: Vec<(&str, &Tensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let mut turns: Vec<Box<dyn FnMut() -> Result<Vec<Duration>>>> = vec![];
        for session in &self.sessions {
            let inputs = &inputs;
            turns.push(Box::new(move || session.profile(inputs)));
        }
        let profiles = contest::rounds(&mut turns, seconds)?;
        drop(turns);
        let work: Vec<Vec<usize>> = self.sessions.iter().map(steps_of_work).collect();
        let reports = [&self.compilations[0].report.kernels, &self.compilations[1].report.kernels];
        if work[0].len() != work[1].len() || reports.iter().any(|r| r.len() != work[0].len()) {
            return Err(Error::Internal("the two orders have different kernels".into()));
        }
        let times = |order: usize, step: usize| {
            Times::of(profiles[order].iter().map(|p| p[step].as_secs_f64() * 1e3).collect())
        };
        let total = |order: usize| {
            let sums = profiles[order].iter().map(|p| p.iter().sum::<Duration>().as_secs_f64() * 1e3);
            Times::of(sums.collect())
        };
        let (mut kernels, mut opaque) = (vec![], vec![]);
        for (k, report) in reports[0].iter().enumerate() {
            let Some(code) = report.code else {
                opaque.push(Opaque { name: report.name.clone(), time_ms: times(0, work[0][k]) });
                continue;
            };
            let flops = self.compilations[0].kernels[code].kernel.report.flops * report.runs as f64;
            let in_order = |order: usize| -> Result<Order> {
                let compilation = &self.compilations[order];
                let code = compilation.report.kernels[k].code;
                let kernel = code.and_then(|c| compilation.kernels.get(c));
                let kernel = kernel.ok_or_else(|| Error::Internal(format!("kernel `{}` is missing", report.name)))?;
                let time_ms = times(order, work[order][k]);
                let gflops = if time_ms.median > 0.0 { flops / time_ms.median / 1e6 } else { 0.0 };
                let dtype = kernel.scop.statements.last().map(|s| kernel.scop.tensor(s.target).dtype);
                Ok(Order {
                    gflops,
                    share_of_peak: dtype.and_then(|t| machine.peak(t)).map(|peak| gflops / peak),
                    traffic: ModelledTraffic::new(traffic(&kernel.kernel.nest, &self.target)),
                    loops: kernel.kernel.nest.to_string(),
                    time_ms,
                })
            };
            let (ilp, untransformed) = (in_order(0)?, in_order(1)?);
            let ratio = untransformed.time_ms.median / ilp.time_ms.median.max(1e-6);
            let (name, operators) = (report.name.clone(), report.operators.clone());
            kernels.push(Kernel { name, operators, flops, ilp, untransformed, ratio });
        }
        let flops = kernels.iter().map(|k| k.flops).sum();
        Ok(Network {
            name: module.name().to_string(),
            work: Work::new(machine, DType::F32, flops, outside_bytes(module)? + module.weights().len()),
            ilp: total(0),
            untransformed: total(1),
            difference: self.difference,
            kernels,
            opaque,
        })
    }
}

/// The steps that are kernels or opaque functions.
fn steps_of_work(session: &Session) -> Vec<usize> {
    let steps = session.module().all_steps().into_iter().enumerate();
    steps.filter(|(_, (s, _))| s.action.is_work()).map(|(i, _)| i).collect()
}
