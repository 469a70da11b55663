//! The nodes of a model file against those that a report names.

use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tilewright::internal::graph::import::walk::needed_order;
use tilewright::internal::graph::proto::{GraphProto, ModelProto};
use tilewright::{Report, StagedReport};

/// Operators that may leave nothing to compute: their result is an operand under another shape or name, they undo another
/// one, or they do nothing for some attributes (sums over no axes, powers of 1).
const MAY_COMPUTE_NOTHING: &str = "Cast Clip Concat DequantizeLinear Dropout Expand Flatten Identity If Pad Pow QuantizeLinear \
                                   ReduceLogSumExp ReduceMax ReduceProd ReduceSum Reshape Slice Squeeze Tile Transpose Unsqueeze";

/// Checks that every node of a file is computed by some kernel, loop or branch, or is listed as one that leaves nothing to
/// compute; and that every kernel names nodes of the file.
pub fn check_nodes(path: &Path, report: &Report) -> Result<(), String> {
    let file = ModelProto::decode(&std::fs::read(path).unwrap()[..]).unwrap();
    let computed: BTreeSet<&str> = report.computed_nodes().collect();
    let elsewhere: BTreeSet<&str> = report.folded.iter().chain(&report.aliases).map(String::as_str).collect();
    if let Some(both) = computed.intersection(&elsewhere).next() {
        return Err(format!("{}: `{both}` is computed and is not", path.display()));
    }
    check_graph(file.graph.as_ref().filter(|_| file.functions.is_empty()), &[report], &computed)
        .map_err(|what| format!("{}: {what}", path.display()))
}

/// As [`check_nodes`], of a model that runs in parts.
pub fn check_parts(file: &GraphProto, report: &StagedReport) -> Result<(), String> {
    let parts: Vec<&Report> = report.parts.iter().map(|part| &part.report).collect();
    let kernels = parts.iter().flat_map(|part| part.computed_nodes());
    let computed = kernels.chain(report.host.iter().map(|step| step.node.as_str())).collect();
    check_graph(Some(file), &parts, &computed)
}

fn check_graph(file: Option<&GraphProto>, reports: &[&Report], computed: &BTreeSet<&str>) -> Result<(), String> {
    let kernels = reports.iter().flat_map(|report| &report.kernels);
    if let Some(kernel) = kernels.into_iter().find(|kernel| kernel.nodes.is_empty()) {
        return Err(format!("kernel `{}` computes no node of the file", kernel.name));
    }
    let Some(file) = file else { return Ok(()) };
    let elsewhere = reports.iter().flat_map(|report| report.folded.iter().chain(&report.aliases));
    let reported: BTreeSet<&str> = elsewhere.map(String::as_str).chain(computed.iter().copied()).collect();
    let mut known = BTreeMap::new();
    graph(file, "", &reported, true, &mut known)?;
    if let Some(unknown) = reported.iter().find(|name| !known.contains_key(**name)) {
        return Err(format!("`{unknown}` is not a node of the file"));
    }
    let mut aliases = reports.iter().flat_map(|report| &report.aliases);
    let arithmetic = |name: &&String| !MAY_COMPUTE_NOTHING.split_whitespace().any(|op| known[name.as_str()] == op);
    match aliases.find(|name| arithmetic(name) && !computed.contains(name.as_str())) {
        Some(name) => Err(format!("`{name}`, a {}, is computed nowhere", known[name.as_str()])),
        None => Ok(()),
    }
}

/// Adds the nodes of a graph to `known`. All or none of a graph inside of a node are in the report, as the node's operands
/// decide; all of the file's graph.
fn graph(
    proto: &GraphProto,
    around: &str,
    reported: &BTreeSet<&str>,
    all: bool,
    known: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let mut names = vec![];
    for node in needed_order(proto).unwrap().into_iter().map(|n| &proto.node[n]) {
        let unique = !node.name.is_empty() && proto.node.iter().filter(|n| n.name == node.name).count() == 1;
        let first = node.output.iter().find(|o| !o.is_empty()).unwrap();
        let own = if unique { node.name.clone() } else { format!("{}({first})", node.op_type) };
        let name = format!("{around}{own}");
        for inside in node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)) {
            graph(inside, &format!("{name}/"), reported, false, known)?;
        }
        known.insert(name.clone(), node.op_type.clone());
        names.push(name);
    }
    let missing: Vec<&String> = names.iter().filter(|name| !reported.contains(name.as_str())).collect();
    match missing.first() {
        Some(name) if all || missing.len() < names.len() => Err(format!("`{name}` is nowhere in the report")),
        _ => Ok(()),
    }
}
