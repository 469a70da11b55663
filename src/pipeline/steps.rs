//! The entries of the report for the steps of a module.
//!
//! In: the units of a model and its kernels. Out: an entry for each kernel and opaque function in the order of the module's
//! steps, one for each loop and branch, and the nodes of the model file that none of them computes.

use crate::graph::fusion::group::{Group, Slice};
use crate::graph::ir::{Graph, Source};
use crate::graph::op::{Op, add_new};
use crate::graph::subgraph;
use crate::pipeline::linkable::LinkableKernel;
use crate::pipeline::report::{ControlReport, KernelReport, Report};
use crate::pipeline::unit::{Unit, Work};
use std::collections::HashSet;
use std::sync::Arc;

/// Adds the steps of `unit`, which `source` was rewritten to, to a report.
pub fn add_steps(report: &mut Report, source: &Graph, unit: &Unit, kernels: &[LinkableKernel]) {
    let mut folded: HashSet<Arc<str>> = unit.folded.iter().cloned().collect();
    unit.visit(1, &mut |unit: &Unit, i, runs| {
        let group = &unit.groups[i];
        let nodes = names(origins(unit, group));
        let operators = || {
            let mnemonic = |&n: &u32| unit.graph.nodes[n as usize].op.mnemonic().to_string();
            group.nodes.iter().map(mnemonic).collect()
        };
        match &unit.work[i] {
            Work::Opaque(_) => report.kernels.push(KernelReport {
                name: group.name.clone(),
                nodes,
                operators: operators(),
                opaque: true,
                runs,
                ..Default::default()
            }),
            Work::Kernel(k) => {
                report.kernels.push(KernelReport { nodes, ..kernels[*k].report(*k, operators(), runs) });
            }
            Work::Nested(node, inside) => {
                let node = &unit.graph.nodes[*node as usize];
                let trips = if let Op::Scan { trips, .. } = node.op { Some(trips as u64) } else { None };
                // A loop without steps is a copy.
                if trips != Some(0) {
                    report.control.push(ControlReport {
                        name: node.name.clone(),
                        nodes,
                        trips,
                        runs,
                        measured_us: None,
                    });
                }
                inside.iter().for_each(|nested| folded.extend(nested.unit.folded.iter().cloned()));
            }
        }
    });
    let computed: HashSet<&str> = report.computed_nodes().collect();
    let uncomputed = subgraph::origins(source).into_iter().filter(|origin| !computed.contains(&**origin));
    let (constant, alias): (Vec<_>, Vec<_>) = uncomputed.partition(|origin| folded.contains(origin));
    (report.folded, report.aliases) = (names(constant), names(alias));
}

fn names(origins: Vec<Arc<str>>) -> Vec<String> {
    origins.iter().map(|origin| origin.to_string()).collect()
}

/// The origins of the nodes of a group, and of the concatenations that it writes parts of, which no group has.
fn origins(unit: &Unit, group: &Group) -> Vec<Arc<str>> {
    let graph = &unit.graph;
    let mut origins = vec![];
    add_new(&mut origins, group.nodes.iter().flat_map(|&n| &graph.nodes[n as usize].origins));
    let writes = |slice: &&Slice| match graph.value(slice.value).source {
        Source::Node(n, _) => group.nodes.contains(&n),
        _ => false,
    };
    let wholes = group.slices.iter().filter(writes).filter_map(|slice| graph.producer(slice.whole));
    add_new(&mut origins, wholes.flat_map(|(concat, _)| &concat.origins));
    let parts = unit.views.iter().filter(|view| group.outputs.contains(&view.value));
    add_new(&mut origins, parts.filter_map(|part| graph.producer(part.of)).flat_map(|(concat, _)| &concat.origins));
    origins
}
