//! A graph ready for its kernels: rewritten, divided into groups, with the graphs inside of its operators.
//!
//! In: a graph and the options. Out: the groups of all graphs, and their tensor expressions, equal ones once. A value that a
//! graph inside captures and that is constant is a constant there, so that its operands are packed when the model is
//! compiled.

use crate::codegen::Target;
use crate::graph::egraph::{self, EgraphOptions, Optimized};
use crate::graph::fold::memo::Memo;
use crate::graph::fusion::views::{View, views};
use crate::graph::fusion::{self, group::Group};
use crate::graph::ir::Graph;
use crate::graph::op::Op;
use crate::graph::subgraph::{self, MAX_DEPTH};
use crate::pipeline::options::{Options, exceeds};
use crate::pipeline::sharing::Sharing;
use crate::poly::predict;
use crate::poly::statement::Program;
use crate::poly::tile::cache::Constants;
use crate::runtime::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// A graph after rewriting and fusion.
pub struct Unit {
    pub graph: Graph,
    /// Origins of nodes whose values became constants.
    pub folded: Vec<Arc<str>>,
    pub groups: Vec<Group>,
    /// Values that lie in the memory of others.
    pub views: Vec<View>,
    /// Run-time work of each group.
    pub work: Vec<Work>,
}

/// Run-time work of a group.
pub enum Work {
    /// Number of its tensor expression.
    Kernel(usize),
    /// The only node of the group.
    Opaque(u32),
    /// The only node of the group, and the graphs inside of it.
    Nested(u32, Vec<Nested>),
}

/// A graph inside of an operator.
pub struct Nested {
    pub unit: Unit,
    /// For each input of the graph, its position among the inputs of the body. The others are constants.
    pub inputs: Vec<usize>,
}

/// Tensor expressions with the names of their kernels, equal ones once.
pub struct Programs<'a> {
    pub list: Vec<(String, Program)>,
    numbers: HashMap<Program, usize>,
    sharing: &'a Sharing,
}

impl<'a> Programs<'a> {
    /// None yet; `sharing` knows the order of constants that memory has packed.
    pub fn new(sharing: &'a Sharing) -> Programs<'a> {
        Programs { list: vec![], numbers: HashMap::new(), sharing }
    }

    /// The expression of a group, with sums in f16 where the target wants them.
    fn program(&self, graph: &Graph, group: &Group, target: &Target) -> Result<Program> {
        let mut program = fusion::program(graph, group)?;
        for (tensor, &value) in program.tensors.iter_mut().zip(&group.inputs) {
            tensor.panel = graph.constant(value).and_then(|constant| self.sharing.panel(constant));
        }
        Ok(predict::in_half_sums(&program, target, Constants::Memory)?.unwrap_or(program))
    }

    /// The number of the expression of a group. A kernel is called after the first group that has it.
    fn add(&mut self, group: &Group, program: Program) -> usize {
        let next = self.list.len();
        *self.numbers.entry(program).or_insert_with_key(|program| {
            self.list.push((format!("{}_{next}", group.name), program.clone()));
            next
        })
    }
}

impl Unit {
    /// Finds the tensor expressions of the groups of a rewritten graph. The graphs inside of its operators are rewritten, as
    /// `options` say.
    ///
    /// # Errors
    /// `Invalid` where a graph inside is not well formed; `Limit` where one has too large a tensor.
    pub fn new(
        rewritten: Optimized,
        groups: Vec<Group>,
        target: &Target,
        options: &Options,
        programs: &mut Programs,
        depth: usize,
    ) -> Result<Unit> {
        let Optimized { graph, folded, .. } = rewritten;
        let mut work = vec![];
        for group in &groups {
            if let [node] = group.nodes[..] {
                let op = &graph.nodes[node as usize].op;
                if let Op::Opaque { .. } = op {
                    work.push(Work::Opaque(node));
                    continue;
                }
                if !subgraph::bodies(op).is_empty() {
                    work.push(Work::Nested(node, nested(&graph, node, target, options, programs, depth)?));
                    continue;
                }
            }
            work.push(Work::Kernel(programs.add(group, programs.program(&graph, group, target)?)));
        }
        let views = views(&graph, &groups);
        Ok(Unit { graph, folded, groups, views, work })
    }

    /// Calls `visit` with the unit and all inside of it, in the order in which they run, and with how often each runs at most.
    pub fn visit<'a>(&'a self, runs: u64, visit: &mut impl FnMut(&'a Unit, usize, u64)) {
        for (i, work) in self.work.iter().enumerate() {
            visit(self, i, runs);
            if let Work::Nested(node, inside) = work {
                let times = match self.graph.nodes[*node as usize].op {
                    Op::Scan { trips, .. } => trips as u64,
                    _ => 1,
                };
                // A loop without steps has no body in the module.
                let inside = inside.iter().filter(|_| times > 0);
                inside.for_each(|n| n.unit.visit(runs.saturating_mul(times), visit));
            }
        }
    }
}

/// The graphs inside of a node.
fn nested(
    graph: &Graph,
    node: u32,
    target: &Target,
    options: &Options,
    programs: &mut Programs,
    depth: usize,
) -> Result<Vec<Nested>> {
    if depth == MAX_DEPTH {
        return Err(Error::Limit(format!("graphs are nested more than {MAX_DEPTH} deep")));
    }
    let node = &graph.nodes[node as usize];
    // Positions of the body's captured inputs among the operands, and of the first of them in the body.
    let (skipped, captured) = match &node.op {
        Op::Scan { carried, reverse, body, .. } => {
            let stacked = body.outputs().len() - carried;
            (0, carried + reverse.len() - stacked)
        }
        _ => (1, 0),
    };
    let constants: Vec<_> = (node.inputs.iter().skip(skipped).enumerate())
        .map(|(i, &v)| graph.constant(v).filter(|_| i >= captured).cloned())
        .collect();
    let compiled = subgraph::bodies(&node.op).into_iter().map(|body| {
        let mut body = subgraph::graph(body)?;
        let inputs = subgraph::bind(&mut body, &constants);
        body.verify()?;
        check_sizes(&body, options.limits.tensor_bytes)?;
        // What an operator of the file adds to its body is its own.
        for inner in body.nodes.iter_mut().filter(|inner| inner.origins.is_empty()) {
            inner.origins = node.origins.clone();
        }
        let body = rewrite(&body, target, options, &Memo::default())?;
        let groups = fusion::fuse(&body.graph, &body.placements)?;
        Ok(Nested { unit: Unit::new(body, groups, target, options, programs, depth + 1)?, inputs })
    });
    compiled.collect::<Result<Vec<Nested>>>().map_err(|e| e.context(&node.name))
}

/// Refuses a graph with a tensor larger than `limit` bytes.
///
/// # Errors
/// `Limit` with the tensor.
pub fn check_sizes(graph: &Graph, limit: u64) -> Result<()> {
    for value in &graph.values {
        let extents = value.ty.shape.iter().filter(|_| !value.ty.shape.contains(&0));
        let size = extents.copied().try_fold(value.ty.dtype.bytes() as u64, |n, d| n.checked_mul(d as u64));
        let what = || format!("tensor `{}` of shape {:?} needs", value.name, value.ty.shape);
        exceeds(size.unwrap_or(u64::MAX), limit, what, "tensor_bytes")?;
    }
    Ok(())
}

/// The cheapest equal graph that was found, checked.
///
/// # Errors
/// `Invalid` where a rule is unknown.
pub fn rewrite(graph: &Graph, target: &Target, options: &Options, memo: &Memo) -> Result<Optimized> {
    let Options { algorithm, max_error, compile_threads, precision, egraph, .. } = options;
    let egraph = &EgraphOptions { precision: *precision, ..egraph.clone() };
    let rewritten = egraph::optimize(graph, target, *algorithm, *max_error, *compile_threads, egraph, memo)?;
    rewritten.graph.verify()?;
    Ok(rewritten)
}
