//! `bench --state`: steps of a model whose outputs are inputs of the next step.

use super::inputs::{self, RunArguments};
use super::progress::Progress;
use crate::model_arguments::ModelArguments;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;
use tilewright::{Dim, Error, InputSpec, Model, Options, Result, Stateful, Tensor};

#[derive(clap::Args)]
pub struct StateArguments {
    /// Measure steps of decoding: this output of one step is this input of the next. `past.*=present.*` is a pair for each input
    /// that begins and ends so. `--input` gives the state of the beginning; sizes that nothing else has begin with 0
    #[arg(long, value_name = "INPUT=OUTPUT", value_parser = parse_pair, conflicts_with_all = ["cache", "json", "interactive", "save", "seconds", "sort"])]
    state: Vec<(String, String)>,
    /// Dimension of the state that grows: it is compiled for capacities in powers of two, and the state is written in place. Of
    /// a dimension that grows with it, such as a mask's, `--dim` gives the size in the first step
    #[arg(long, value_name = "NAME", requires = "state")]
    grow: Vec<String>,
    /// Steps
    #[arg(long, value_name = "N", default_value_t = 512, requires = "state", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
}

impl StateArguments {
    /// Runs the steps; `None` where no state is given.
    pub fn run(&self, model: &ModelArguments, run: &RunArguments, progress: &Progress) -> Result<Option<String>> {
        if self.state.is_empty() {
            return Ok(None);
        }
        if inputs::is_module(&model.model)? {
            let name = model.model.display();
            return Err(Error::Invalid(format!("{name} is already machine code: do not pass `--state`")));
        }
        let loaded = run.load(model, progress)?;
        let (source, options) = (loaded.model.clone(), loaded.options.clone());
        let pairs = self.pairs(&source)?;
        let is_state = |spec: &&InputSpec| pairs.iter().any(|pair| pair.0 == spec.name);
        let (beginning, given): (BTreeMap<String, Tensor>, BTreeMap<String, Tensor>) =
            loaded.tensors()?.into_iter().partition(|given| pairs.iter().any(|pair| pair.0 == given.0));
        let own = symbols(source.inputs().iter().filter(is_state));
        let others: Vec<&InputSpec> = source.inputs().iter().filter(|spec| !is_state(spec)).collect();
        let of_others = symbols(others.iter().copied());
        let with_state = |name: &String| self.grow.contains(name) || in_results(&source, &pairs, name);
        let growing = symbols(others.iter().copied().filter(|spec| !given.contains_key(&spec.name)));
        let growing: Vec<String> = growing.into_iter().filter(|name| !own.contains(name) && with_state(name)).collect();
        let of_state =
            |name: &String| !growing.contains(name) && (self.grow.contains(name) || !of_others.contains(name));
        if let Some(name) = model.dims()?.keys().find(|name| of_state(name)) {
            return Err(Error::Invalid(format!("dimension `{name}` is the state's: do not pass `--dim {name}`")));
        }
        let first = options.dims.clone();
        if let Some(name) = growing.iter().find(|name| !first.contains_key(*name)) {
            return Err(Error::Invalid(format!(
                "dimension `{name}` of an input grows with the state: give its size in the first step, `--dim {name}=N`"
            )));
        }
        let options = Options {
            growing: self.grow.clone(),
            values: BTreeMap::new(),
            dims: BTreeMap::new(),
            threads: run.threads(),
            ..options
        };
        let compiled = source.compile(&options)?;
        let named: Vec<(&str, &str)> = pairs.iter().map(|(input, output)| (input.as_str(), output.as_str())).collect();
        let mut state = compiled.stateful(&named)?;
        beginning.iter().try_for_each(|(name, tensor)| state.set(name, tensor))?;
        let (mut steps, mut compiling, mut tensors) = (vec![], vec![], vec![]);
        for step in 0..self.steps {
            progress.stage(format!("step {} of {}", step + 1, self.steps));
            if step == 0 || !growing.is_empty() {
                let more = if step == 0 { 0 } else { growth(&source, &pairs, &first, &of_others, &state)? };
                let dims = first.iter().map(|(n, size)| (n.clone(), size + if growing.contains(n) { more } else { 0 }));
                tensors = fill(&others, &mut given.clone(), &dims.collect(), run.seed());
            }
            let inputs: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            let (before, start) = (compiled.compilations(), Instant::now());
            state.run(&inputs)?;
            let times = if compiled.compilations() == before { &mut steps } else { &mut compiling };
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(Some(summary(&mut steps, &compiling, compiled.compilations())))
    }

    /// The pairs of the arguments, for the inputs of the model.
    fn pairs(&self, model: &Model) -> Result<Vec<(String, String)>> {
        let mut pairs = vec![];
        for (input, output) in &self.state {
            let (Some((before, after)), Some((out_before, out_after))) =
                (input.split_once('*'), output.split_once('*'))
            else {
                pairs.push((input.clone(), output.clone()));
                continue;
            };
            let middle = |spec: &InputSpec| Some(spec.name.strip_prefix(before)?.strip_suffix(after)?.to_string());
            let states = model.inputs().iter().filter_map(|spec| Some((spec.name.clone(), middle(spec)?)));
            let before = pairs.len();
            pairs.extend(states.map(|(name, middle)| (name, format!("{out_before}{middle}{out_after}"))));
            if pairs.len() == before {
                return Err(Error::Invalid(format!("no input is like `{input}`")));
            }
        }
        Ok(pairs)
    }
}

/// The dynamic dimensions of inputs.
fn symbols<'a>(specs: impl Iterator<Item = &'a InputSpec>) -> Vec<String> {
    let symbol = |dim: &Dim| match dim {
        Dim::Symbol(name) => Some(name.clone()),
        _ => None,
    };
    let mut names: Vec<String> = specs.flat_map(|spec| &spec.shape).filter_map(symbol).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns true if the file declares an output of the state with this dimension.
fn in_results(model: &Model, pairs: &[(String, String)], name: &str) -> bool {
    pairs.iter().any(|pair| model.output_symbols(&pair.1).contains(&name))
}

/// The rows by which the state has grown since its beginning, along a dimension that no other input has.
fn growth(
    model: &Model,
    pairs: &[(String, String)],
    first: &BTreeMap<String, i64>,
    of_others: &[String],
    state: &Stateful,
) -> Result<i64> {
    for (input, _) in pairs {
        let Some(spec) = model.inputs().iter().find(|spec| spec.name == *input) else { continue };
        let is_own = |dim: &Dim| matches!(dim, Dim::Symbol(name) if !of_others.contains(name));
        let Some(axis) = spec.shape.iter().position(is_own) else { continue };
        let before = first.get(&spec.shape[axis].to_string()).copied().unwrap_or(0);
        return Ok(state.state(input)?.shape[axis] - before);
    }
    Ok(0)
}

/// Given inputs, which it takes, else values from the seed; sizes that nothing binds are 1.
fn fill(
    specs: &[&InputSpec],
    given: &mut BTreeMap<String, Tensor>,
    dims: &BTreeMap<String, i64>,
    seed: u64,
) -> Vec<(String, Tensor)> {
    let tensor = |(position, spec): (usize, &&InputSpec)| {
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => *size,
            Dim::Symbol(name) | Dim::Derived(name) => dims.get(name).copied().unwrap_or(1),
        };
        let shape: Vec<i64> = spec.shape.iter().map(size).collect();
        let seeded = || Tensor::seeded(spec.dtype, &shape, seed, position as u64, 2);
        (spec.name.clone(), given.remove(&spec.name).unwrap_or_else(seeded))
    };
    specs.iter().enumerate().map(tensor).collect()
}

fn summary(steps: &mut [f64], compiling: &[f64], compilations: usize) -> String {
    steps.sort_by(f64::total_cmp);
    let all: f64 = steps.iter().chain(compiling).sum();
    let count = steps.len() + compiling.len();
    let mut text = format!("{count} steps in {all:.1} ms, {compilations} compilations\n");
    if let (Some(least), Some(most)) = (steps.first(), steps.last()) {
        let (sum, median): (f64, f64) = (steps.iter().sum(), steps[steps.len() / 2]);
        let mean = sum / steps.len() as f64;
        let line = format!(
            "{} steps without compiling: min {least:.3} ms, median {median:.3} ms, mean {mean:.3} ms, max {most:.3} ms",
            steps.len()
        );
        writeln!(text, "{line}").expect("a string takes all text");
    }
    let compiling_ms: f64 = compiling.iter().sum();
    writeln!(text, "{} steps with compiling: {compiling_ms:.1} ms", compiling.len()).expect("a string takes all text");
    text
}

fn parse_pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((input, output)) if !input.is_empty() && !output.is_empty() => Ok((input.to_string(), output.to_string())),
        _ => Err("expected INPUT=OUTPUT".into()),
    }
}
