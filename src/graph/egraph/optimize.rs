//! The driver: graph to e-graph, saturation, extraction, and back.
//!
//! In: a graph. Out: the cheapest equal graph of the e-graph, the kernel of each of its nodes, and a report. First the rules
//! that clean up and recognise run to the end, then those that give products operands of 16 bits where these are stored or asked for, then
//! all but these with those for layouts; constants are folded once chosen.

use crate::codegen::Target;
use crate::graph::cost;
use crate::graph::egraph::convert::{first_nodes, load, store};
use crate::graph::egraph::origins::{folded, trace};
use crate::graph::egraph::saturate::{Budget, Stop, saturate};
use crate::graph::extract;
use crate::graph::fold::memo::Memo;
use crate::graph::fusion::Placement;
use crate::graph::ir::Graph;
use crate::graph::price::{Prices, Resident};
use crate::graph::row_blocks::{self, RowBlocks};
use crate::graph::rules::algorithm::Algorithm;
use crate::graph::rules::pattern::Rule;
use crate::graph::rules::precision::{self, Precision};
use crate::graph::rules::{self, constants, strassen};
use crate::poly::tile::cache::Constants;
use crate::runtime::error::unknown;
use crate::runtime::{DType, Error, Result};
use egg::Id;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::sync::Arc;

/// Effort and rules of the rewriting.
#[derive(Clone, Debug)]
pub struct EgraphOptions {
    /// Passes over the e-graph.
    pub max_iterations: usize,
    /// E-nodes, as a multiple of the graph's nodes (and at least 2,000).
    pub max_growth: usize,
    /// Variables of one program of the extraction; larger ones are solved in parts of that size.
    pub max_ilp_variables: usize,
    /// Also consider convolutions over blocks of channels. The cost model takes them where channels-last is dearer, which
    /// is nowhere in the networks that were measured; considering them takes time.
    pub blocked: bool,
    /// Products of quantised tensors are sums in i32, or in f32; `None`: in i32 where the target has instructions for them.
    pub byte_products: Option<bool>,
    /// The type of the operands of products of f32; of a compilation it is that of its
    /// [`Options::precision`](crate::Options::precision).
    pub precision: Precision,
    /// Rules not to use, by name.
    pub without: Vec<String>,
    /// Rewrites to make; the rest is left out. The rewrite that breaks a model is found by halving this.
    pub stop_after: Option<usize>,
}

impl Default for EgraphOptions {
    fn default() -> EgraphOptions {
        EgraphOptions {
            max_iterations: 8,
            max_growth: 16,
            max_ilp_variables: 5000,
            blocked: false,
            byte_products: None,
            precision: Precision::F32,
            without: vec![],
            stop_after: None,
        }
    }
}

/// The effort and the result of the rewriting and the extraction, as users read it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OptimizationReport {
    /// Rule and how often it found something new; in the order of the tables.
    #[serde(deserialize_with = "known_rules")]
    pub rules: Vec<(&'static str, usize)>,
    /// Nodes of the imported graph.
    pub nodes_before: usize,
    /// Nodes of the rewritten graph.
    pub nodes_after: usize,
    /// E-nodes at the end.
    pub enodes: usize,
    /// Classes of the e-graph at the end.
    pub classes: usize,
    /// Passes over the e-graph.
    pub iterations: usize,
    /// Reason for the end of the saturation.
    pub stop: Stop,
    /// Report of the extraction.
    pub extraction: extract::ExtractionReport,
    /// Convolutions for which algorithms competed.
    pub algorithms: extract::AlgorithmReport,
    /// Convolutions that run in blocks of rows.
    pub row_blocks: Vec<RowBlocks>,
    /// Milliseconds of the saturation.
    pub saturate_ms: f64,
    /// Milliseconds of the extraction.
    pub extract_ms: f64,
    /// Milliseconds of the folding of constants.
    pub fold_ms: f64,
}

impl std::fmt::Display for OptimizationReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let OptimizationReport { nodes_before, nodes_after, enodes, classes, iterations, stop, .. } = self;
        writeln!(f, "graph: {nodes_before} operators, {nodes_after} after rewriting")?;
        writeln!(
            f,
            "e-graph: {enodes} nodes in {classes} classes after {iterations} iterations, stopped because {stop}"
        )?;
        write!(f, "{}{}", self.extraction, self.algorithms)?;
        self.row_blocks.iter().try_for_each(|blocks| writeln!(f, "  {blocks}"))?;
        writeln!(
            f,
            "rewriting: saturation {:.1} ms, extraction {:.1} ms, folding of constants {:.1} ms",
            self.saturate_ms, self.extract_ms, self.fold_ms
        )?;
        self.rules.iter().try_for_each(|(rule, count)| writeln!(f, "  {rule:<40} {count:>6}"))
    }
}

/// A graph and the kernel that each of its nodes runs in.
#[derive(Clone, Debug)]
pub struct Optimized {
    pub graph: Graph,
    pub placements: Vec<Placement>,
    /// Origins of the nodes of the source graph whose values are constants.
    pub folded: Vec<Arc<str>>,
    pub report: OptimizationReport,
}

/// Rewrites the graph and returns the cheapest equal one of the e-graph that computes convolutions by `algorithm`. Those with
/// a bound of their error above `max_error` are left out
/// ([`Network::max_error`](crate::graph::egraph::network::Network::max_error)); `threads` threads work on prices and fold
/// constants, those left out that `memo` has from earlier compilations of the model.
pub fn optimize(
    graph: &Graph,
    target: &Target,
    algorithm: Algorithm,
    max_error: f64,
    threads: usize,
    options: &EgraphOptions,
    memo: &Memo,
) -> Result<Optimized> {
    let start = std::time::Instant::now();
    check_names(&options.without)?;
    // A tile that no rule has is refused as its text is.
    algorithm.to_string().parse::<Algorithm>()?;
    let mut loaded = load(graph)?;
    let block = options.blocked.then(|| target.lanes(4));
    let used = |list: Vec<Rule>| -> Vec<Rule> {
        list.into_iter().filter(|r| !options.without.iter().any(|name| name == r.name)).collect()
    };
    let mut budget = Budget {
        iterations: options.max_iterations,
        nodes: (options.max_growth * graph.nodes.len()).max(2000),
        rewrites: options.stop_after.unwrap_or(usize::MAX),
    };
    loaded.network.max_error = max_error;
    let resident = Resident::of(graph, target);
    loaded.network.least_halved = Some(strassen::LEAST_WORK);
    loaded.network.constants_cached = resident.place(0, 0) != Constants::Memory;
    let of_target = cost::byte_products(target);
    let chosen = |used: bool| used.then(|| of_target.unwrap_or(DType::U8));
    loaded.network.byte_products = options.byte_products.map_or(of_target, chosen);
    let four_bits = cost::four_bit_instructions(target).is_some();
    loaded.network.four_bit_products = options.byte_products != Some(false) && four_bits;
    loaded.network.word_products = options.byte_products != Some(false) && cost::word_products(target);
    loaded.network.tile_products = cost::tile_products(target);
    let cleaning = saturate(&mut loaded.network, &used(rules::clean()), budget);
    budget.rewrites = budget.rewrites.saturating_sub(cleaning.rewrites());
    loaded.network.halves = options.precision.half();
    loaded.network.half_products = cost::half_products(target);
    let halves = loaded.network.halves.is_some() || graph.values.iter().any(|v| v.ty.dtype.is_half());
    let narrowing = halves.then(|| saturate(&mut loaded.network, &used(precision::rules()), budget));
    budget.rewrites = budget.rewrites.saturating_sub(narrowing.as_ref().map_or(0, |n| n.rewrites()));
    let mut growth = saturate(&mut loaded.network, &used(rules::with_algorithm(algorithm, block)), budget);
    growth.add(cleaning);
    narrowing.into_iter().for_each(|narrowing| growth.add(narrowing));
    let saturate_ms = ms(start);
    let start = std::time::Instant::now();
    let roots: Vec<Id> = graph.outputs.iter().map(|v| loaded.class[v.0 as usize]).collect();
    let place = |weights, moved| resident.place(weights, moved);
    let prices = Prices::new(target, extract::applications(&loaded.network), place, threads);
    for term in extract::slower(&loaded.network, &prices) {
        loaded.network.leave_out(&term);
    }
    let (chosen, extraction) = extract::extract(&loaded.network, &roots, &prices, options.max_ilp_variables)?;
    let sources = first_nodes(graph, &loaded);
    let named = |class: Id| sources.get(&class).map(|&n| (n, graph.nodes[n as usize].name.as_str()));
    let algorithms = extract::AlgorithmReport::new(&loaded.network, &prices, &chosen.choice, &named);
    let extract_ms = ms(start);
    let start = std::time::Instant::now();
    let mut unfolded = store(graph, &loaded, &chosen)?;
    trace(graph, &loaded, &mut unfolded.graph, &unfolded.nodes);
    let (result, placements) = constants::fold(&unfolded.graph, &unfolded.placements, threads, memo)?;
    let fold_ms = ms(start);
    let (result, placements, row_blocks) = row_blocks::divide(result, placements, target, threads)?;
    let report = OptimizationReport {
        rules: growth.fired,
        nodes_before: graph.nodes.len(),
        nodes_after: result.nodes.len(),
        enodes: loaded.network.egraph.total_size(),
        classes: loaded.network.egraph.number_of_classes(),
        iterations: growth.iterations,
        stop: growth.stop,
        extraction,
        algorithms,
        row_blocks,
        saturate_ms,
        extract_ms,
        fold_ms,
    };
    Ok(Optimized { graph: result, placements, folded: folded(graph, &loaded), report })
}

/// Reads rules by their names.
fn known_rules<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<(&'static str, usize)>, D::Error> {
    let names = rules::names();
    let named = |(name, count): (String, usize)| {
        let rule = names.iter().find(|named| **named == name);
        rule.map(|name| (*name, count)).ok_or_else(|| de::Error::custom(format!("there is no rule `{name}`")))
    };
    Vec::<(String, usize)>::deserialize(deserializer)?.into_iter().map(named).collect()
}

fn ms(start: std::time::Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Refuses names that no rule has.
fn check_names(names: &[String]) -> Result<()> {
    let rules = rules::names();
    match names.iter().find(|name| !rules.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::Invalid(unknown("rule", name, &rules))),
    }
}
