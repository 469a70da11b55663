//! Fusion: which nodes end in one kernel.
//!
//! In: a graph. Out: its groups in an order that can be executed, each node but the reshapes in one of them (a copying
//! prologue may stand in several), and for each group one tensor expression, the concatenation of its nodes' rows of the
//! operator table. Invariant: no cycle runs through a group.
//!
//! A group is one of: an opaque node alone; a convolution or matrix product with copies before and injective operators
//! after; a reduction with elementwise operators before and after; a chain of injective operators. This is the
//! classification of TVM (Chen et al., OSDI 2018), with outputs allowed in the middle of a group. Reshapes never move
//! data: they are aliases between groups, and inside a group only where the old subscripts are affine in the new.

use crate::graph::define::{define, kind};
use crate::graph::expr::{Affine, BinaryOp, BufferId, Expr, Scalar, UnaryOp, Var};
use crate::graph::ir::{Graph, Node, Source, TensorType, ValueId};
use crate::graph::op::{FusionKind, Layout, Op, ReduceOp};
use crate::graph::scop::{Definition, Iterator, Program, Role, TensorDecl};
use crate::graph::{Error, Result, Target, Tensor};
use std::collections::BTreeMap;

/// Nodes that become one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The operators, joined: `conv_add_max`.
    pub name: String,
    /// Indices into [`Graph::nodes`], in topological order.
    pub nodes: Vec<u32>,
    /// Values from outside; constants of one element are written into the expression instead.
    pub inputs: Vec<ValueId>,
    /// Values used outside.
    pub outputs: Vec<ValueId>,
}

/// Expression nodes that one element of an output may take when the group's temporaries are substituted.
const MAX_EXPRESSION: usize = 160;
/// Tensors that one kernel reads.
const MAX_INPUTS: usize = 24;
const MAX_OUTPUTS: usize = 4;
/// Input channels up to which a convolution reads its input through a transposition.
const MAX_TRANSPOSED_CHANNELS: i64 = 4;

/// Partitions the graph into kernels.
pub fn fuse(graph: &Graph, _target: &Target) -> Result<Vec<Group>> {
    let mut fuser = Fuser::new(graph);
    for class in [FusionKind::ComplexOutFusable, FusionKind::Reduction] {
        for n in fuser.live_nodes() {
            if kind(&graph.nodes[n].op) == class {
                fuser.anchored[n] = true;
                if class == FusionKind::Reduction {
                    fuser.absorb_elementwise_prologue(n);
                }
                fuser.grow_epilogue(n);
            }
        }
    }
    fuser.absorb_copies();
    for n in fuser.live_nodes() {
        fuser.join_producers(n);
    }
    fuser.groups()
}

/// Reads of every element by one operator application: nothing but the position itself.
pub fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Sigmoid
            | Op::Silu
            | Op::HardSigmoid { .. }
            | Op::HardSwish
            | Op::Gelu
    )
}

/// Elementwise work that is not worth doing twice.
pub fn is_expensive(op: &Op) -> bool {
    match op {
        Op::Unary(u) => matches!(u, UnaryOp::Exp | UnaryOp::Log | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sqrt),
        Op::Binary(b) => matches!(b, BinaryOp::Pow | BinaryOp::Mod | BinaryOp::Div),
        Op::Sigmoid | Op::Silu | Op::Gelu => true,
        _ => false,
    }
}

/// The subscripts of the old shape as affine forms of the new one's, when each new dimension lies within an old one.
pub fn affine_reshape(from: &[i64], to: &[i64]) -> Option<Vec<Affine>> {
    let mut next = 0;
    let mut subscripts = Vec::with_capacity(from.len());
    for &extent in from {
        let first = next;
        let mut covered = 1;
        while covered < extent {
            covered = covered.checked_mul(*to.get(next)?)?;
            next += 1;
        }
        if covered != extent {
            return None;
        }
        let mut stride = 1;
        let mut subscript = Affine::default();
        for d in (first..next).rev() {
            if to[d] != 1 {
                subscript = subscript.plus(Var(d as u32), stride);
            }
            stride *= to[d];
        }
        subscripts.push(subscript);
    }
    to[next..].iter().all(|&e| e == 1).then_some(subscripts)
}

/// One line for each group: its operators, inputs and outputs.
pub fn describe(graph: &Graph, groups: &[Group]) -> String {
    let mut text = String::new();
    let shape = |v: &ValueId| {
        let ty = &graph.value(*v).ty;
        let extents: Vec<String> = ty.shape.iter().map(i64::to_string).collect();
        format!("%{} {}[{}]", v.0, ty.dtype, extents.join(","))
    };
    for (i, group) in groups.iter().enumerate() {
        let list = |values: &[ValueId]| values.iter().map(shape).collect::<Vec<_>>().join(", ");
        let (inputs, outputs) = (list(&group.inputs), list(&group.outputs));
        text += &format!("{i:4} {} ({inputs}) -> {outputs}\n", group.name);
    }
    text
}

/// The tensor expression of a group: its inputs, its outputs, then temporaries. Tensor names do not depend on the graph,
/// so that equal kernels have equal programs.
pub fn program(graph: &Graph, group: &Group) -> Result<Program> {
    let mut out = Program::default();
    let mut buffers: BTreeMap<ValueId, BufferId> = BTreeMap::new();
    let declare = |out: &mut Program, role: Role, ty: &TensorType| {
        let prefix = match role {
            Role::Input => "x",
            Role::Constant => "w",
            Role::Output | Role::InOut => "y",
            Role::Temporary => "t",
        };
        let id = BufferId(out.tensors.len() as u32);
        let name = format!("{prefix}{}", id.0);
        out.tensors.push(TensorDecl { name, dtype: ty.dtype, shape: ty.shape.clone(), role });
        id
    };
    for &v in &group.inputs {
        let role = if graph.constant(v).is_some() { Role::Constant } else { Role::Input };
        buffers.insert(v, declare(&mut out, role, &graph.value(v).ty));
    }
    for &v in &group.outputs {
        buffers.insert(v, declare(&mut out, Role::Output, &graph.value(v).ty));
    }
    for &n in &group.nodes {
        let node = &graph.nodes[n as usize];
        let types: Vec<TensorType> = node.inputs.iter().map(|&v| graph.value(v).ty.clone()).collect();
        let piece = match &node.op {
            Op::Reshape { shape } => reshape_program(&types[0], shape)?,
            op => define(op, &types)?,
        };
        let mut map: Vec<Bound> = Vec::with_capacity(piece.tensors.len());
        for (i, decl) in piece.tensors.iter().enumerate() {
            let ty = TensorType { dtype: decl.dtype, shape: decl.shape.clone() };
            let value = node.inputs.iter().chain(&node.outputs).nth(i).copied();
            map.push(match value {
                None => Bound::Buffer(declare(&mut out, Role::Temporary, &ty)),
                Some(v) => match (buffers.get(&v), scalar_constant(graph, v)) {
                    (Some(&b), _) => Bound::Buffer(b),
                    (None, Some(s)) if i < node.inputs.len() => Bound::Scalar(s),
                    (None, _) if i < node.inputs.len() => {
                        return Err(Error::Internal(format!("group {} reads %{}, not its input", group.name, v.0)));
                    }
                    (None, _) => {
                        let b = declare(&mut out, Role::Temporary, &ty);
                        buffers.insert(v, b);
                        Bound::Buffer(b)
                    }
                },
            });
        }
        for definition in piece.definitions {
            out.definitions.push(renumber(definition, &map)?);
        }
    }
    Ok(out)
}

/// What a tensor of an operator's own program becomes in the group's.
enum Bound {
    Buffer(BufferId),
    Scalar(Scalar),
}

fn renumber(mut definition: Definition, map: &[Bound]) -> Result<Definition> {
    match map[definition.target.0 as usize] {
        Bound::Buffer(b) => definition.target = b,
        Bound::Scalar(_) => return Err(Error::Internal("an operator writes its input".into())),
    }
    definition.body = definition.body.rewrite(&mut |e| match e {
        Expr::Load(mut access) => match map[access.buffer.0 as usize] {
            Bound::Buffer(b) => {
                access.buffer = b;
                Expr::Load(access)
            }
            Bound::Scalar(s) => guarded(s, &access.guard, access.otherwise),
        },
        e => e,
    });
    Ok(definition)
}

/// A guarded read of a scalar: a choice between it and the value outside.
fn guarded(value: Scalar, guard: &[Affine], otherwise: Option<Scalar>) -> Expr {
    use crate::graph::expr::CompareOp::Ge;
    let outside = otherwise.unwrap_or(value);
    guard.iter().fold(Expr::Const(value), |inner, g| {
        let holds = Expr::compare(Ge, Expr::Index(g.clone()), Expr::Const(Scalar::i64(0)));
        Expr::select(holds, inner, Expr::Const(outside))
    })
}

/// The value of a constant of one element.
pub fn scalar_constant(graph: &Graph, v: ValueId) -> Option<Scalar> {
    graph.constant(v).and_then(|t| scalar_of(t))
}

fn scalar_of(t: &Tensor) -> Option<Scalar> {
    (t.len() == 1).then(|| {
        let mut bytes = [0; 8];
        bytes[..t.data.len()].copy_from_slice(&t.data);
        Scalar { dtype: t.dtype, bits: u64::from_le_bytes(bytes) }
    })
}

fn reshape_program(ty: &TensorType, shape: &[i64]) -> Result<Program> {
    let Some(index) = affine_reshape(&ty.shape, shape) else {
        return Err(Error::Internal(format!("a reshape from {:?} to {shape:?} inside a group", ty.shape)));
    };
    let decl = |name: &str, shape: &[i64], role| TensorDecl {
        name: name.into(),
        dtype: ty.dtype,
        shape: shape.to_vec(),
        role,
    };
    let iterators: Vec<Iterator> =
        shape.iter().enumerate().map(|(i, &extent)| Iterator { name: format!("i{i}"), extent }).collect();
    Ok(Program {
        tensors: vec![decl("x", &ty.shape, Role::Input), decl("y", shape, Role::Output)],
        definitions: vec![Definition {
            target: BufferId(1),
            outer: iterators.len(),
            write: (0..shape.len() as u32).map(|i| Affine::var(Var(i))).collect(),
            iterators,
            reduce: None,
            conditions: vec![],
            body: Expr::load(BufferId(0), index),
        }],
    })
}

/// The state of the partition: every node in one set, sets named by their least member.
struct Fuser<'a> {
    graph: &'a Graph,
    /// The set of each node.
    set: Vec<usize>,
    members: Vec<Vec<usize>>,
    /// Sets (by name) that have a complex operator, a reduction, or an opaque node.
    anchored: Vec<bool>,
    /// Consumers of each value; nodes in topological order.
    consumers: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    live: Vec<bool>,
    /// Prologue copies of each anchored set (by name): nodes repeated inside it.
    copies: BTreeMap<usize, Vec<usize>>,
    /// Nodes that stand only in `copies`.
    absorbed: Vec<bool>,
}

impl<'a> Fuser<'a> {
    fn new(graph: &'a Graph) -> Fuser<'a> {
        let n = graph.nodes.len();
        let mut consumers = vec![vec![]; graph.values.len()];
        let mut is_output = vec![false; graph.values.len()];
        for &v in &graph.outputs {
            is_output[v.0 as usize] = true;
        }
        let mut live = vec![false; n];
        for (i, node) in graph.nodes.iter().enumerate().rev() {
            live[i] = node.outputs.iter().any(|v| is_output[v.0 as usize] || !consumers[v.0 as usize].is_empty());
            if live[i] {
                for v in &node.inputs {
                    if consumers[v.0 as usize].last() != Some(&i) {
                        consumers[v.0 as usize].push(i);
                    }
                }
            }
        }
        for list in &mut consumers {
            list.reverse();
        }
        let anchored = graph.nodes.iter().map(|node| kind(&node.op) == FusionKind::Opaque).collect();
        Fuser {
            graph,
            set: (0..n).collect(),
            members: (0..n).map(|i| vec![i]).collect(),
            anchored,
            consumers,
            is_output,
            live,
            copies: BTreeMap::new(),
            absorbed: vec![false; n],
        }
    }

    fn live_nodes(&self) -> Vec<usize> {
        (0..self.graph.nodes.len()).filter(|&n| self.live[n]).collect()
    }

    fn node(&self, n: usize) -> &'a Node {
        &self.graph.nodes[n]
    }

    fn shape(&self, v: ValueId) -> &'a [i64] {
        &self.graph.value(v).ty.shape
    }

    fn elements(&self, v: ValueId) -> i64 {
        self.shape(v).iter().product()
    }

    fn consumers(&self, v: ValueId) -> &[usize] {
        &self.consumers[v.0 as usize]
    }

    fn producer(&self, v: ValueId) -> Option<usize> {
        match self.graph.value(v).source {
            Source::Node(n, _) => Some(n as usize),
            _ => None,
        }
    }

    /// A node that is still a set of its own and may join another.
    fn is_free(&self, n: usize) -> bool {
        self.members[self.set[n]].len() == 1 && !self.anchored[n] && !self.absorbed[n] && self.live[n]
    }

    /// Values of the set that are used outside, or are outputs of the graph.
    fn outward(&self, set: usize) -> Vec<ValueId> {
        let mut out = vec![];
        for &m in &self.members[set] {
            for &v in &self.node(m).outputs {
                if self.is_output[v.0 as usize] || self.consumers(v).iter().any(|&c| self.set[c] != set) {
                    out.push(v);
                }
            }
        }
        out
    }

    /// Unites two sets unless that would close a cycle or make a kernel too big.
    fn unite(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.set[a], self.set[b]);
        if a == b || self.reaches(a, b) || self.reaches(b, a) {
            return false;
        }
        let (keep, drop) = (a.min(b), a.max(b));
        let moved = std::mem::take(&mut self.members[drop]);
        for &m in &moved {
            self.set[m] = keep;
        }
        let before = std::mem::take(&mut self.members[keep]);
        let mut merged: Vec<usize> = before.iter().chain(&moved).copied().collect();
        merged.sort_unstable();
        self.members[keep] = merged;
        let anchored = self.anchored[keep] || self.anchored[drop];
        if !self.fits(keep) {
            for &m in &moved {
                self.set[m] = drop;
            }
            self.members[keep] = before;
            self.members[drop] = moved;
            return false;
        }
        self.anchored[keep] = anchored;
        true
    }

    /// Whether the set is small enough for one kernel.
    fn fits(&self, set: usize) -> bool {
        let mut inputs: Vec<ValueId> = vec![];
        let mut size: BTreeMap<ValueId, usize> = BTreeMap::new();
        for &m in &self.members[set] {
            let node = self.node(m);
            let mut total = 1;
            for &v in &node.inputs {
                if let Some(s) = size.get(&v) {
                    total += s;
                } else if scalar_constant(self.graph, v).is_none() && !inputs.contains(&v) {
                    inputs.push(v);
                }
            }
            // What is reduced is kept in a tensor of its own.
            let total = if kind(&node.op) == FusionKind::Injective { total } else { 1 };
            if total > MAX_EXPRESSION {
                return false;
            }
            size.extend(node.outputs.iter().map(|&v| (v, total)));
        }
        inputs.len() <= MAX_INPUTS && self.outward(set).len() <= MAX_OUTPUTS
    }

    /// Whether a path leaves set `from`, passes another set, and enters set `to`.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.set.len()];
        let mut stack = vec![];
        let push = |set: usize, stack: &mut Vec<usize>, seen: &mut Vec<bool>, direct: bool| {
            for &m in &self.members[set] {
                for v in &self.node(m).outputs {
                    for &c in self.consumers(*v) {
                        let s = self.set[c];
                        if s == to && !direct {
                            return true;
                        }
                        if s != from && s != to && !seen[s] {
                            seen[s] = true;
                            stack.push(s);
                        }
                    }
                }
            }
            false
        };
        push(from, &mut stack, &mut seen, true);
        while let Some(s) = stack.pop() {
            if push(s, &mut stack, &mut seen, false) {
                return true;
            }
        }
        false
    }

    /// Takes elementwise consumers of the set's values, and transpositions that keep the last dimension.
    fn grow_epilogue(&mut self, anchor: usize) {
        let mut grown = true;
        while grown {
            grown = false;
            let set = self.set[anchor];
            let values: Vec<ValueId> =
                self.members[set].iter().flat_map(|&m| self.node(m).outputs.iter().copied()).collect();
            let candidates: Vec<usize> = values.iter().flat_map(|v| self.consumers(*v)).copied().collect();
            for c in candidates {
                let node = self.node(c);
                let from_set = |v: &&ValueId| self.producer(**v).is_some_and(|p| self.set[p] == set);
                let fits = match &node.op {
                    _ if self.set[c] == set || !self.is_free(c) => false,
                    op if is_elementwise(op) => {
                        // Broadcast over the elements of the anchor would repeat its work.
                        let same = |v: &ValueId| self.shape(*v) == self.shape(node.outputs[0]);
                        node.inputs.iter().filter(from_set).all(same) && !self.before_reduction(set, node)
                    }
                    Op::Transpose { perm } => {
                        perm.last() == Some(&(perm.len() - 1))
                            && self.consumers(node.inputs[0]).len() == 1
                            && !self.is_output[node.inputs[0].0 as usize]
                    }
                    _ => false,
                };
                if fits && self.unite(anchor, c) {
                    grown = true;
                    break;
                }
            }
        }
    }

    /// Whether the node reads a value that stands before the set's reduction (its prologue): it belongs elsewhere.
    fn before_reduction(&self, set: usize, node: &Node) -> bool {
        let anchor = self.members[set].iter().find(|&&m| kind(&self.node(m).op) != FusionKind::Injective);
        anchor.is_some_and(|&a| {
            node.inputs.iter().any(|&v| self.producer(v).is_some_and(|p| self.set[p] == set && p < a))
                && !node.inputs.iter().any(|&v| self.producer(v).is_some_and(|p| self.set[p] == set && p >= a))
        })
    }

    /// Takes elementwise producers of a reduction over whole rows. What a normalisation reads two or three times must be
    /// cheap, or be stored because it is used elsewhere too.
    fn absorb_elementwise_prologue(&mut self, anchor: usize) {
        let (rereads, may_store) = match &self.node(anchor).op {
            Op::Reduce { op, .. } => (!matches!(op, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::SumSquare), false),
            Op::Softmax { .. } | Op::LayerNorm { .. } => (true, true),
            _ => return,
        };
        let shape = self.shape(self.node(anchor).inputs[0]);
        let mut frontier = vec![self.node(anchor).inputs[0]];
        while let Some(v) = frontier.pop() {
            let Some(p) = self.producer(v) else { continue };
            let node = self.node(p);
            if !self.is_free(p) || !is_elementwise(&node.op) || self.shape(v) != shape {
                continue;
            }
            let set = self.set[anchor];
            let stored = self.is_output[v.0 as usize] || self.consumers(v).iter().any(|&c| self.set[c] != set);
            if (stored && !may_store) || (rereads && !stored && is_expensive(&node.op)) {
                continue;
            }
            if self.unite(anchor, p) && !stored {
                frontier.extend(&node.inputs);
            }
        }
    }

    /// Puts transpositions, slices and broadcasts into the complex operators that read them, when all consumers do.
    fn absorb_copies(&mut self) {
        for n in self.live_nodes().into_iter().rev() {
            let node = self.node(n);
            let copy = match &node.op {
                Op::Transpose { .. } | Op::Slice { .. } | Op::Expand { .. } => true,
                Op::Reshape { shape } => {
                    affine_reshape(self.shape(node.inputs[0]), shape).is_some()
                        && self.producer(node.inputs[0]).is_some_and(|p| {
                            self.is_free(p)
                                && matches!(
                                    self.node(p).op,
                                    Op::Transpose { .. } | Op::Slice { .. } | Op::Expand { .. }
                                )
                        })
                }
                _ => false,
            };
            if !copy || !self.is_free(n) || node.outputs.iter().any(|v| self.is_output[v.0 as usize]) {
                continue;
            }
            let readers = self.consumers(node.outputs[0]).to_vec();
            if readers.is_empty() || !readers.iter().all(|&c| self.reads_through(c, n)) {
                continue;
            }
            self.absorbed[n] = true;
            for c in readers {
                if self.absorbed[c] {
                    for copies in self.copies.values_mut().filter(|l| l.contains(&c)) {
                        copies.push(n);
                    }
                } else {
                    self.copies.entry(self.set[c]).or_default().push(n);
                }
            }
        }
    }

    /// Whether consumer `c` may read the result of copy `n` in place.
    fn reads_through(&self, c: usize, n: usize) -> bool {
        let node = self.node(c);
        let value = self.node(n).outputs[0];
        match &node.op {
            _ if self.absorbed[c] => true,
            Op::MatMul { .. } => true,
            Op::Conv { group, layout, .. } => {
                let shape = self.shape(value);
                let channels = match layout {
                    Layout::Nchw => shape[1],
                    Layout::Nhwc => shape[shape.len() - 1],
                    Layout::Blocked(_) => return false,
                };
                let permutes = matches!(self.node(n).op, Op::Transpose { .. });
                node.inputs[0] == value && (!permutes || (*group == 1 && channels <= MAX_TRANSPOSED_CHANNELS))
            }
            _ => false,
        }
    }

    /// Unites an injective node with the injective producers of its operands where no work is repeated.
    fn join_producers(&mut self, c: usize) {
        let node = self.node(c);
        let set = self.set[c];
        if self.absorbed[c] || self.anchored[set] || matches!(node.op, Op::Reshape { .. }) {
            return;
        }
        for &v in &node.inputs {
            let Some(p) = self.producer(v) else { continue };
            let producer = self.node(p);
            let inlines = match &producer.op {
                // Written in parts or in blocks: a reader cannot substitute them.
                Op::Concat { .. } | Op::Upsample { .. } | Op::Unblock { .. } | Op::Reshape { .. } => false,
                op => kind(op) == FusionKind::Injective,
            };
            if !inlines || self.anchored[self.set[p]] || self.absorbed[p] {
                continue;
            }
            let sole =
                self.outward(self.set[p]).len() == 1 && self.consumers(v) == [c] && !self.is_output[v.0 as usize];
            let repeats = self.elements(node.outputs[0]) > self.elements(v);
            let expensive = self.members[self.set[p]].iter().any(|&m| is_expensive(&self.node(m).op));
            let joins = match &node.op {
                Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } => false,
                op if is_elementwise(op) && self.shape(v) == self.shape(node.outputs[0]) => true,
                Op::Concat { .. } => sole,
                _ => sole && !(repeats && expensive),
            };
            if joins {
                self.unite(c, p);
            }
        }
    }

    /// The sets in an executable order, the earliest node first among those that are ready.
    fn groups(&self) -> Result<Vec<Group>> {
        let n = self.graph.nodes.len();
        let contents: BTreeMap<usize, Vec<usize>> = (0..n)
            .filter(|&s| !self.members[s].is_empty() && self.live[s] && !self.absorbed[s])
            .map(|s| {
                let mut nodes = self.members[s].clone();
                nodes.extend(self.copies.get(&s).into_iter().flatten());
                nodes.sort_unstable();
                nodes.dedup();
                (s, nodes)
            })
            .collect();
        let mut done = vec![false; self.graph.values.len()];
        for (i, value) in self.graph.values.iter().enumerate() {
            done[i] = !matches!(value.source, Source::Node(..));
        }
        let mut groups = vec![];
        let mut waiting: Vec<usize> = contents.keys().copied().collect();
        while !waiting.is_empty() {
            let ready = waiting.iter().position(|s| {
                let nodes = &contents[s];
                let inside = |v: &ValueId| self.producer(*v).is_some_and(|p| nodes.contains(&p));
                nodes.iter().flat_map(|&m| &self.node(m).inputs).all(|v| done[v.0 as usize] || inside(v))
            });
            let Some(position) = ready else {
                return Err(Error::Internal("a cycle through fused groups".into()));
            };
            let set = waiting.remove(position);
            let nodes = &contents[&set];
            for v in nodes.iter().flat_map(|&m| &self.node(m).outputs) {
                done[v.0 as usize] |= self.producer(*v).is_some_and(|p| !self.absorbed[p]);
            }
            if nodes.iter().all(|&m| matches!(self.node(m).op, Op::Reshape { .. })) {
                continue;
            }
            groups.push(self.group(nodes));
        }
        Ok(groups)
    }

    fn group(&self, nodes: &[usize]) -> Group {
        let inside = |v: ValueId| self.producer(v).is_some_and(|p| nodes.contains(&p));
        let mut inputs: Vec<ValueId> = vec![];
        let mut outputs = vec![];
        for &m in nodes {
            let opaque = kind(&self.node(m).op) == FusionKind::Opaque;
            for &v in &self.node(m).inputs {
                let written = scalar_constant(self.graph, v).is_some() && !opaque;
                if !inside(v) && !written && !inputs.contains(&v) {
                    inputs.push(v);
                }
            }
            for &v in &self.node(m).outputs {
                let used = opaque || self.consumers(v).iter().any(|c| !nodes.contains(c));
                if !self.absorbed[m] && (used || self.is_output[v.0 as usize]) {
                    outputs.push(v);
                }
            }
        }
        let words: Vec<&str> = nodes.iter().map(|&m| self.node(m).op.mnemonic()).collect();
        let name = match words.len() {
            0..=6 => words.join("_"),
            n => format!("{}_{}_more", words[..5].join("_"), n - 5),
        };
        Group { name, nodes: nodes.iter().map(|&m| m as u32).collect(), inputs, outputs }
    }
}

#[cfg(test)]
mod tests;
