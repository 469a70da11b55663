//! The nodes of a model file against those that a report names.

use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tilewright::Report;
use tilewright::internal::graph::import::walk::needed_order;
use tilewright::internal::graph::proto::{GraphProto, ModelProto};

/// Operators that may leave nothing to compute: their result is an operand under another shape or name, they undo another
/// one, or they do nothing for some attributes (sums over no axes, powers of 1).
const MAY_COMPUTE_NOTHING: &str = "Clip DequantizeLinear Dropout Expand Flatten Identity If Pow QuantizeLinear ReduceLogSumExp ReduceMax \
                                   ReduceSum Reshape Slice Squeeze Transpose Unsqueeze";

/// Checks that every node of a file is computed by some kernel, loop or branch, or is listed as one that leaves nothing to
/// compute; and that every kernel names nodes of the file.
pub fn check_nodes(path: &Path, report: &Report) -> Result<(), String> {
    let file = ModelProto::decode(&std::fs::read(path).unwrap()[..]).unwrap();
    let mut known = BTreeMap::new();
    let computed: BTreeSet<&str> = report.computed_nodes().collect();
    let elsewhere: BTreeSet<&str> = report.folded.iter().chain(&report.aliases).map(String::as_str).collect();
    let fail = |what: String| Err(format!("{}: {what}", path.display()));
    if let Some(both) = computed.intersection(&elsewhere).next() {
        return fail(format!("`{both}` is computed and is not"));
    }
    if let Some(kernel) = report.kernels.iter().find(|kernel| kernel.nodes.is_empty()) {
        return fail(format!("kernel `{}` computes no node of the file", kernel.name));
    }
    let reported: BTreeSet<&str> = computed.union(&elsewhere).copied().collect();
    if !file.functions.is_empty() {
        return Ok(());
    }
    graph(file.graph.as_ref().unwrap(), "", &reported, true, &mut known)
        .map_err(|what| format!("{}: {what}", path.display()))?;
    if let Some(unknown) = reported.iter().find(|name| !known.contains_key(**name)) {
        return fail(format!("`{unknown}` is no node of the file"));
    }
    let arithmetic = |name: &&String| !MAY_COMPUTE_NOTHING.split_whitespace().any(|op| known[name.as_str()] == op);
    match report.aliases.iter().find(arithmetic) {
        Some(name) => fail(format!("`{name}`, a {}, is computed nowhere", known[name.as_str()])),
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
