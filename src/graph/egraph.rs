//! Graph to e-graph and back.
//!
//! In: a graph. Out: the cheapest graph found that computes the same, and a report. An e-graph (Willsey et al., "egg",
//! POPL 2021) holds all graphs that the rules reach; its classes carry the types of their values as an analysis.
//! Constants are leaves, equal constants one leaf; what the rules compute from constants stays an expression and is folded
//! only when it is chosen. There is no general commutativity or associativity: rules are directed and patterns match modulo
//! both. The limits are counts, never seconds, so the same graph gives the same result.

use crate::graph::expr::{BinaryOp, UnaryOp};
use crate::graph::extract::{self, Extraction};
use crate::graph::fusion::Place;
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Source, TensorType, ValueId};
use crate::graph::op::Op;
use crate::graph::rules::{self, Keep, Rule};
use crate::graph::{DType, Error, Result, Target, Tensor};
use egg::{Analysis, DidMerge, Id, Language};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use egg::StopReason;

/// An e-node: what is applied to which classes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Term {
    pub head: Head,
    pub children: Vec<Id>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Head {
    /// An input of the graph, by position.
    Input(u32),
    /// A constant, by its index in [`Values::constants`].
    Constant(u32),
    Op(Op),
    /// One output of an operator that has several.
    Output(u32),
}

impl Language for Term {
    type Discriminant = std::mem::Discriminant<Head>;

    fn discriminant(&self) -> Self::Discriminant {
        std::mem::discriminant(&self.head)
    }
    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.children.len() == other.children.len()
    }
    fn children(&self) -> &[Id] {
        &self.children
    }
    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// The analysis: what is known of the value of a class.
#[derive(Default)]
pub struct Values {
    pub constants: Vec<Arc<Tensor>>,
    by_sample: BTreeMap<u64, Vec<u32>>,
    inputs: Vec<TensorType>,
}

#[derive(Clone, Debug)]
pub struct Facts {
    /// One type for each output; empty when the term is not well typed.
    pub types: Arc<[TensorType]>,
    /// Computed from constants only.
    pub constant: bool,
}

impl Analysis<Term> for Values {
    type Data = Facts;

    fn make(egraph: &mut egg::EGraph<Term, Self>, term: &Term, _: Id) -> Facts {
        let facts = |i: &Id| &egraph[*i].data;
        match &term.head {
            Head::Input(i) => Facts { types: [egraph.analysis.inputs[*i as usize].clone()].into(), constant: false },
            Head::Constant(i) => {
                let t = &egraph.analysis.constants[*i as usize];
                Facts { types: [TensorType { dtype: t.dtype, shape: t.shape.clone() }].into(), constant: true }
            }
            Head::Output(i) => {
                let whole = facts(&term.children[0]);
                let types = whole.types.get(*i as usize).cloned();
                Facts { types: types.into_iter().collect(), constant: whole.constant }
            }
            Head::Op(op) => {
                let operands: Vec<Facts> = term.children.iter().map(|c| facts(c).clone()).collect();
                let types: Option<Vec<&TensorType>> = operands.iter().map(|f| f.types.first()).collect();
                let types = types.and_then(|t| infer(op, &t).ok()).unwrap_or_default();
                let opaque = matches!(op, Op::Opaque { .. });
                Facts { types: types.into(), constant: !opaque && operands.iter().all(|f| f.constant) }
            }
        }
    }

    fn merge(&mut self, a: &mut Facts, b: Facts) -> DidMerge {
        let either = a.constant || b.constant;
        let changed = DidMerge(either != a.constant, either != b.constant);
        a.constant = either;
        changed
    }
}

/// The e-graph of a network, with what rules need to read it and to add to it.
#[derive(Default)]
pub struct Network {
    pub egraph: egg::EGraph<Term, Values>,
    /// The classes of the outputs.
    pub outputs: Vec<Id>,
    /// E-nodes that a rule replaced: neither rules nor the extraction look at them. Operands are canonical.
    replaced: FxHashSet<Term>,
}

impl Network {
    pub fn find(&self, id: Id) -> Id {
        self.egraph.find(id)
    }

    /// The e-nodes of a class.
    pub fn terms(&self, id: Id) -> &[Term] {
        &self.egraph[self.find(id)].nodes
    }

    /// The applications of operators in a class.
    pub fn applications(&self, id: Id) -> impl Iterator<Item = (&Op, &[Id])> {
        self.terms(id).iter().filter_map(|t| match &t.head {
            Head::Op(op) => Some((op, &t.children[..])),
            _ => None,
        })
    }

    fn canonical(&self, term: &Term) -> Term {
        Term { head: term.head.clone(), children: term.children.iter().map(|&c| self.find(c)).collect() }
    }

    /// Whether no rule replaced the e-node.
    pub fn is_current(&self, term: &Term) -> bool {
        self.replaced.is_empty() || !self.replaced.contains(&self.canonical(term))
    }

    /// Forgets an e-node of which a class has an equal or better one.
    fn replace(&mut self, term: &Term) {
        let term = self.canonical(term);
        self.replaced.insert(term);
    }

    /// Whether the computed operands of an e-node of `class` are used by nothing else.
    fn is_sole_use(&self, class: Id, term: &Term) -> bool {
        let class = self.find(class);
        term.children.iter().filter(|&&c| !self.is_constant(c)).all(|&c| {
            let mut users = self.egraph[self.find(c)].parents();
            !self.outputs.iter().any(|&o| self.find(o) == self.find(c))
                && users.all(|p| self.find(p) == class || !self.is_current(self.egraph.id_to_node(p)))
        })
    }

    /// Restores the invariants of the e-graph after unions.
    fn rebuild(&mut self) {
        self.egraph.rebuild();
        let replaced = std::mem::take(&mut self.replaced);
        self.replaced = replaced.iter().map(|t| self.canonical(t)).collect();
    }

    /// The classes that the outputs need, by e-nodes that were not replaced.
    fn reachable(&self) -> FxHashSet<Id> {
        let mut seen = FxHashSet::default();
        let mut stack: Vec<Id> = self.outputs.iter().map(|&o| self.find(o)).collect();
        while let Some(id) = stack.pop() {
            if seen.insert(id) {
                let current = self.terms(id).iter().filter(|t| self.is_current(t));
                stack.extend(current.flat_map(|t| &t.children).map(|&c| self.find(c)));
            }
        }
        seen
    }

    pub fn facts(&self, id: Id) -> &Facts {
        &self.egraph[self.find(id)].data
    }

    pub fn ty(&self, id: Id) -> &TensorType {
        &self.facts(id).types[0]
    }

    pub fn shape(&self, id: Id) -> &[i64] {
        &self.ty(id).shape
    }

    pub fn rank(&self, id: Id) -> usize {
        self.shape(id).len()
    }

    pub fn is_constant(&self, id: Id) -> bool {
        self.facts(id).constant
    }

    /// The constant in a class.
    pub fn value(&self, id: Id) -> Option<&Arc<Tensor>> {
        self.terms(id).iter().find_map(|t| match t.head {
            Head::Constant(i) => Some(&self.egraph.analysis.constants[i as usize]),
            _ => None,
        })
    }

    /// The value of an f32 constant of one element.
    pub fn scalar(&self, id: Id) -> Option<f32> {
        let t = self.value(id)?;
        (t.dtype == DType::F32 && t.len() == 1).then(|| f32::from_le_bytes(t.data[..4].try_into().expect("4 bytes")))
    }

    /// Adds an operator's application; `None` when it is not well typed.
    pub fn op(&mut self, op: Op, children: &[Id]) -> Option<Id> {
        let children: Vec<Id> = children.iter().map(|&c| self.find(c)).collect();
        let types: Option<Vec<&TensorType>> = children.iter().map(|&c| self.facts(c).types.first()).collect();
        infer(&op, &types?).ok()?;
        Some(self.egraph.add(Term { head: Head::Op(op), children }))
    }

    pub fn binary(&mut self, op: BinaryOp, a: Id, b: Id) -> Option<Id> {
        self.op(Op::Binary(op), &[a, b])
    }

    pub fn unary(&mut self, op: UnaryOp, a: Id) -> Option<Id> {
        self.op(Op::Unary(op), &[a])
    }

    /// Adds a constant; an equal one is found again.
    pub fn constant(&mut self, tensor: Arc<Tensor>) -> Id {
        let sample = sample(&tensor);
        let values = &mut self.egraph.analysis;
        let list = values.by_sample.entry(sample).or_default();
        let known = list.iter().copied().find(|&i| {
            let other = &values.constants[i as usize];
            Arc::ptr_eq(other, &tensor) || **other == *tensor
        });
        let index = known.unwrap_or_else(|| {
            let index = values.constants.len() as u32;
            list.push(index);
            values.constants.push(tensor);
            index
        });
        self.egraph.add(Term { head: Head::Constant(index), children: vec![] })
    }

    pub fn scalar_f32(&mut self, value: f32) -> Id {
        self.constant(Arc::new(Tensor::new(&[], &[value])))
    }

    /// `x` as another shape; `x` itself when it has that shape.
    pub fn reshape(&mut self, x: Id, shape: &[i64]) -> Option<Id> {
        if self.shape(x) == shape {
            return Some(x);
        }
        let inner = self.applications(x).find_map(|(op, c)| matches!(op, Op::Reshape { .. }).then(|| c[0]));
        match inner {
            Some(y) if self.shape(y) == shape => Some(y),
            Some(y) => self.op(Op::Reshape { shape: shape.to_vec() }, &[y]),
            None => self.op(Op::Reshape { shape: shape.to_vec() }, &[x]),
        }
    }

    /// `x` transposed: output dimension i is dimension `perm[i]` of `x`. An inverse transposition cancels, and one that
    /// moves only dimensions of extent 1 is a reshape.
    pub fn transpose(&mut self, x: Id, perm: &[usize]) -> Option<Id> {
        let shape = self.shape(x).to_vec();
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Some(x);
        }
        let inner = self.applications(x).find_map(|(op, c)| match op {
            Op::Transpose { perm: q } => Some((q.clone(), c[0])),
            _ => None,
        });
        if let Some((q, y)) = inner {
            let composed: Vec<usize> = perm.iter().map(|&p| q[p]).collect();
            if composed.iter().enumerate().all(|(i, &p)| i == p) {
                return Some(y);
            }
        }
        if moves_only_units(&shape, perm) {
            let to: Vec<i64> = perm.iter().map(|&p| shape[p]).collect();
            return self.reshape(x, &to);
        }
        self.op(Op::Transpose { perm: perm.to_vec() }, &[x])
    }

    /// The operand and permutation of a transposition in the class.
    pub fn transposed(&self, id: Id) -> Option<(Vec<usize>, Id)> {
        self.applications(id).find_map(|(op, c)| match op {
            Op::Transpose { perm } => Some((perm.clone(), c[0])),
            _ => None,
        })
    }
}

/// Whether the dimensions with more than one element keep their order.
pub fn moves_only_units(shape: &[i64], perm: &[usize]) -> bool {
    let moved: Vec<usize> = perm.iter().copied().filter(|&p| shape[p] != 1).collect();
    moved.is_sorted()
}

/// The inverse permutation.
pub fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut out = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        out[p] = i;
    }
    out
}

/// A hash of the type and some of the bytes, for constants that may be large.
fn sample(t: &Tensor) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    (t.dtype, &t.shape).hash(&mut hasher);
    let stride = (t.data.len() / 256).max(1);
    for byte in t.data.iter().step_by(stride).chain(t.data.iter().rev().take(16)) {
        hasher.write_u8(*byte);
    }
    hasher.finish()
}

/// What the rewriting may spend and use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Passes over the e-graph.
    pub max_iterations: usize,
    /// E-nodes, as a multiple of the graph's nodes (and at least 2,000).
    pub max_growth: usize,
    /// Variables of one program of the extraction; larger ones are solved in parts of that size.
    pub max_ilp_variables: usize,
    /// Also consider convolutions over blocks of channels. The cost model takes them where channels-last is dearer, which
    /// is nowhere in the networks that were measured; considering them takes time.
    pub blocked: bool,
    /// Rules not to use, by name.
    pub without: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { max_iterations: 8, max_growth: 16, max_ilp_variables: 5000, blocked: false, without: vec![] }
    }
}

/// What happened during the rewriting and the extraction.
#[derive(Clone, Debug)]
pub struct Report {
    /// Rule and how often it found something new; in the order of the tables.
    pub rules: Vec<(&'static str, usize)>,
    pub nodes_before: usize,
    pub nodes_after: usize,
    pub enodes: usize,
    pub classes: usize,
    pub iterations: usize,
    pub stop: StopReason,
    pub extraction: extract::Report,
    pub rewrite_ms: f64,
    pub extract_ms: f64,
    pub fold_ms: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Report { nodes_before, nodes_after, enodes, classes, iterations, stop, .. } = self;
        writeln!(
            f,
            "rewriting: {nodes_before} nodes -> {nodes_after}; e-graph of {enodes} nodes in {classes} classes"
        )?;
        writeln!(f, "  {iterations} passes, stopped: {stop:?}")?;
        for (name, count) in &self.rules {
            writeln!(f, "  {count:5} × {name}")?;
        }
        write!(f, "{}", self.extraction)?;
        writeln!(
            f,
            "  rewrite {:.1} ms, extract {:.1} ms, fold {:.1} ms",
            self.rewrite_ms, self.extract_ms, self.fold_ms
        )
    }
}

/// A graph and the kernel that each of its nodes runs in.
#[derive(Clone, Debug)]
pub struct Optimized {
    pub graph: Graph,
    pub places: Vec<Place>,
    pub report: Report,
}

/// Rewrites the graph and returns the cheapest equal one that was found.
pub fn optimize(graph: &Graph, target: &Target, options: &Options) -> Result<Optimized> {
    let start = std::time::Instant::now();
    let mut loaded = load(graph)?;
    let block = options.blocked.then(|| target.lanes(4));
    let used = |list: Vec<Rule>| -> Vec<Rule> {
        list.into_iter().filter(|r| !options.without.iter().any(|name| name == r.name)).collect()
    };
    let limit = (options.max_growth * graph.nodes.len()).max(2000);
    let cleaning = saturate(&mut loaded.network, &used(rules::clean()), options.max_iterations, limit);
    let mut growth = saturate(&mut loaded.network, &used(rules::all(block)), options.max_iterations, limit);
    growth.add(cleaning);
    let rewrite_ms = ms(start);
    let start = std::time::Instant::now();
    let roots: Vec<Id> = graph.outputs.iter().map(|v| loaded.class[v.0 as usize]).collect();
    let (chosen, extraction) = extract::extract(&loaded.network, &roots, target, options)?;
    let extract_ms = ms(start);
    let start = std::time::Instant::now();
    let (unfolded, places) = store(graph, &loaded, &chosen)?;
    let (result, places) = rules::constants::fold(&unfolded, &places)?;
    let report = Report {
        rules: growth.fired,
        nodes_before: graph.nodes.len(),
        nodes_after: result.nodes.len(),
        enodes: loaded.network.egraph.total_size(),
        classes: loaded.network.egraph.number_of_classes(),
        iterations: growth.iterations,
        stop: growth.stop,
        extraction,
        rewrite_ms,
        extract_ms,
        fold_ms: ms(start),
    };
    Ok(Optimized { graph: result, places, report })
}

fn ms(start: std::time::Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// A graph in its e-graph.
pub struct Loaded {
    pub network: Network,
    /// The class of each value of the graph.
    pub class: Vec<Id>,
}

/// Adds every node of the graph to a new e-graph.
pub fn load(graph: &Graph) -> Result<Loaded> {
    let mut network = Network::default();
    let mut class: Vec<Option<Id>> = vec![None; graph.values.len()];
    network.egraph.analysis.inputs = graph.inputs.iter().map(|&v| graph.value(v).ty.clone()).collect();
    for (i, &v) in graph.inputs.iter().enumerate() {
        class[v.0 as usize] = Some(network.egraph.add(Term { head: Head::Input(i as u32), children: vec![] }));
    }
    for (i, value) in graph.values.iter().enumerate() {
        if let Source::Constant(t) = &value.source {
            class[i] = Some(network.constant(t.clone()));
        }
    }
    for node in &graph.nodes {
        let children: Option<Vec<Id>> = node.inputs.iter().map(|v| class[v.0 as usize]).collect();
        let Some(children) = children else {
            return Err(Error::Internal(format!("node {} reads a value that is not defined yet", node.name)));
        };
        let whole = network.egraph.add(Term { head: Head::Op(node.op.clone()), children });
        for (k, &v) in node.outputs.iter().enumerate() {
            let id = match node.outputs.len() {
                1 => whole,
                _ => network.egraph.add(Term { head: Head::Output(k as u32), children: vec![whole] }),
            };
            if network.facts(id).types.first() != Some(&graph.value(v).ty) {
                return Err(Error::Internal(format!("node {} has another type than its value", node.name)));
            }
            class[v.0 as usize] = Some(id);
        }
    }
    let undefined = || Error::Internal("a value is not defined".into());
    let class = class.into_iter().map(|c| c.ok_or_else(undefined)).collect::<Result<Vec<Id>>>()?;
    network.rebuild();
    network.outputs = graph.outputs.iter().map(|v| class[v.0 as usize]).collect();
    Ok(Loaded { network, class })
}

/// What the saturation did.
pub struct Growth {
    pub fired: Vec<(&'static str, usize)>,
    pub iterations: usize,
    pub stop: StopReason,
}

impl Growth {
    /// Counts in what was done before.
    fn add(&mut self, before: Growth) {
        for (name, count) in before.fired {
            match self.fired.iter_mut().find(|(n, _)| *n == name) {
                Some(entry) => entry.1 += count,
                None => self.fired.push((name, count)),
            }
        }
        self.iterations += before.iterations;
        if !matches!(before.stop, StopReason::Saturated) {
            self.stop = before.stop;
        }
    }
}

/// Applies the rules until nothing is new or a limit is reached. One pass goes through the classes in topological order, so
/// that what a rule finds at an operand is seen by the rules at its consumers in the same pass.
pub fn saturate(network: &mut Network, rules: &[Rule], max_iterations: usize, max_nodes: usize) -> Growth {
    let index = rules::Index::new(rules);
    let mut fired = vec![0; rules.len()];
    let mut injective = 0;
    let mut iterations = 0;
    let stop = 'run: loop {
        if iterations == max_iterations {
            break StopReason::IterationLimit(max_iterations);
        }
        iterations += 1;
        let mut changed = false;
        let nodes = network.egraph.nodes().len();
        let reachable = network.reachable();
        for start in 0..nodes {
            let mut work = vec![Id::from(start)];
            if !reachable.contains(&network.find(work[0])) {
                continue;
            }
            while let Some(id) = work.pop() {
                let before = network.egraph.nodes().len();
                let term = network.canonical(network.egraph.id_to_node(id));
                let class = network.find(id);
                for &r in index.candidates(&term) {
                    if network.replaced.contains(&term) {
                        break;
                    }
                    let sole = rules[r].keep == Keep::IfSole && network.is_sole_use(class, &term);
                    let found = rules[r].apply(network, class, &term);
                    for &new in &found {
                        if network.find(new) != network.find(class) {
                            debug_assert_eq!(network.ty(new), network.ty(class), "rule {}", rules[r].name);
                            network.egraph.union(new, class);
                            fired[r] += 1;
                            changed = true;
                        }
                    }
                    let itself = |new: &Id| network.canonical(network.egraph.id_to_node(*new)) == term;
                    if !found.is_empty() && !found.iter().any(itself) && (rules[r].keep == Keep::Instead || sole) {
                        network.replace(&term);
                    }
                }
                let after = network.egraph.nodes().len();
                work.extend((before..after).rev().map(Id::from));
                if after > max_nodes {
                    network.rebuild();
                    break 'run StopReason::NodeLimit(max_nodes);
                }
            }
        }
        network.rebuild();
        let equated = equate_operands(network);
        injective += equated;
        if !changed && equated == 0 {
            break StopReason::Saturated;
        }
    };
    let named = rules.iter().map(|r| r.name).zip(fired).chain([("copies-are-injective", injective)]);
    Growth { fired: named.filter(|(_, n)| *n > 0).collect(), iterations, stop }
}

/// Where two equal values are the same transposition or reshape of operands of one type, the operands are equal. Returns
/// how many classes were united.
fn equate_operands(network: &mut Network) -> usize {
    let mut pairs = vec![];
    let mut classes: Vec<Id> = network.egraph.classes().map(|c| c.id).collect();
    classes.sort_unstable();
    for id in classes {
        let copies: Vec<(&Op, Id)> = network
            .applications(id)
            .filter(|(op, _)| matches!(op, Op::Transpose { .. } | Op::Reshape { .. }))
            .map(|(op, c)| (op, c[0]))
            .collect();
        for (i, (op, a)) in copies.iter().enumerate() {
            let equal = copies[..i].iter().find(|(o, b)| o == op && network.ty(*b) == network.ty(*a));
            pairs.extend(equal.filter(|(_, b)| network.find(*a) != network.find(*b)).map(|(_, b)| (*a, *b)));
        }
    }
    let united = pairs.iter().filter(|(a, b)| network.egraph.union(*a, *b)).count();
    network.rebuild();
    united
}

/// Which e-node stands for each class, by position in the class.
pub type Choice = BTreeMap<Id, usize>;

/// The graph of the chosen e-nodes, with the inputs, outputs and names of `original`, and where each node runs.
pub fn store(original: &Graph, loaded: &Loaded, chosen: &Extraction) -> Result<(Graph, Vec<Place>)> {
    let network = &loaded.network;
    let mut out = Graph { name: original.name.clone(), ..Graph::default() };
    let mut names: BTreeMap<Id, &str> = BTreeMap::new();
    for (i, value) in original.values.iter().enumerate() {
        if let Source::Node(n, _) = value.source {
            names.entry(network.find(loaded.class[i])).or_insert(&original.nodes[n as usize].name);
        }
    }
    let mut values: BTreeMap<Id, Vec<ValueId>> = BTreeMap::new();
    let mut nodes: BTreeMap<Id, u32> = BTreeMap::new();
    for &v in &original.inputs {
        let id = out.push_value(original.value(v).name.clone(), original.value(v).ty.clone(), Source::Input);
        out.inputs.push(id);
        values.insert(network.find(loaded.class[v.0 as usize]), vec![id]);
    }
    for &v in &original.outputs {
        let root = network.find(loaded.class[v.0 as usize]);
        // Depth first with an explicit stack; a class on the path that is met again would be a cycle.
        let mut open: BTreeSet<Id> = BTreeSet::new();
        let mut stack = vec![(root, false)];
        while let Some((id, children_done)) = stack.pop() {
            if values.contains_key(&id) {
                continue;
            }
            let term = chosen.choice.get(&id).and_then(|&k| network.terms(id).get(k));
            let Some(term) = term else {
                return Err(Error::Internal("the extraction chose nothing for a value".into()));
            };
            let children: Vec<Id> = term.children.iter().map(|&c| network.find(c)).collect();
            if !children_done {
                if !open.insert(id) {
                    return Err(Error::Internal("the extraction chose a cycle".into()));
                }
                stack.push((id, true));
                stack.extend(children.iter().rev().filter(|c| !values.contains_key(c)).map(|&c| (c, false)));
                continue;
            }
            let name = names.get(&id).copied();
            let produced = match &term.head {
                Head::Input(_) => return Err(Error::Internal("an input was not defined".into())),
                Head::Constant(i) => {
                    let t = network.egraph.analysis.constants[*i as usize].clone();
                    let ty = TensorType { dtype: t.dtype, shape: t.shape.clone() };
                    vec![out.push_value(format!("constant_{i}"), ty, Source::Constant(t))]
                }
                Head::Output(k) => vec![values[&children[0]][*k as usize]],
                Head::Op(op) => {
                    let inputs = children.iter().map(|c| values[c][0]).collect();
                    nodes.insert(id, out.nodes.len() as u32);
                    out.push_node(name, op.clone(), inputs, &network.facts(id).types)
                }
            };
            values.insert(id, produced);
        }
        out.push_output(values[&root][0], &original.value(v).name)?;
    }
    let mut places = vec![Place::Own; out.nodes.len()];
    for (id, other) in &chosen.with {
        places[nodes[id] as usize] = Place::With(nodes[other]);
    }
    chosen.through.iter().for_each(|id| places[nodes[id] as usize] = Place::Through);
    Ok((out, places))
}

impl Graph {
    fn push_value(&mut self, name: String, ty: TensorType, source: Source) -> ValueId {
        self.values.push(crate::graph::ir::Value { name, ty, source });
        ValueId(self.values.len() as u32 - 1)
    }

    fn push_node(&mut self, name: Option<&str>, op: Op, inputs: Vec<ValueId>, types: &[TensorType]) -> Vec<ValueId> {
        let n = self.nodes.len() as u32;
        let name = match name {
            Some(name) => name.to_string(),
            None => format!("{}_{n}", op.mnemonic()),
        };
        let outputs: Vec<ValueId> = types
            .iter()
            .enumerate()
            .map(|(k, ty)| self.push_value(format!("{name}:{k}"), ty.clone(), Source::Node(n, k as u32)))
            .collect();
        self.nodes.push(crate::graph::ir::Node { name, op, inputs, outputs: outputs.clone() });
        outputs
    }

    /// Makes `v` the next output under `name`; a value that is an output or no node's result already gets an alias.
    fn push_output(&mut self, v: ValueId, name: &str) -> Result<()> {
        let alias = self.outputs.contains(&v) || !matches!(self.value(v).source, Source::Node(..));
        let v = if alias {
            let ty = self.value(v).ty.clone();
            let op = Op::Reshape { shape: ty.shape.clone() };
            self.push_node(Some(name), op, vec![v], std::slice::from_ref(&ty))[0]
        } else {
            v
        };
        self.values[v.0 as usize].name = name.to_string();
        self.outputs.push(v);
        Ok(())
    }
}
