//! What there is to choose, and what it costs.
//!
//! In: an e-graph and the classes that are wanted. Out: the classes that can be needed with their candidates (e-nodes), and
//! for each pair of candidates the ways to put them into one kernel, with what each saves in ns.

use crate::graph::cost::{self, Operand};
use crate::graph::define::kind;
use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::extract::bounds::{Bounds, MAX_INPUTS};
use crate::graph::extract::constants::choose_constants;
use crate::graph::extract::required::Required;
use crate::graph::fusion::{Join, Way, affine_reshape, is_expensive, is_view, joins, reads_through};
use crate::graph::ir::TensorType;
use crate::graph::op::{FusionKind, Op};
use crate::graph::{Error, Result, Target};
use egg::Id;
use std::collections::BTreeMap;

/// A class and the position of a candidate in it.
pub type Site = (usize, usize);

/// An e-node that may stand for its class.
pub struct Candidate<'a> {
    /// Position of the e-node in its class.
    pub position: usize,
    /// `None` for inputs and for one output of several.
    pub op: Option<&'a Op>,
    /// As a kernel of its own without writing the result, in ns.
    pub cost: f64,
    /// What writing the result costs, in ns.
    pub write: f64,
    /// Another form of a value that there is already: a transposition, a reshape.
    pub converts: bool,
    /// Operand classes that are not constant, without repetition.
    pub children: Vec<usize>,
    /// What it saves, apart from writing, when all its readers read through it; `None` when they cannot.
    pub through: Option<f64>,
}

/// The e-nodes that may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terms {
    /// All that no rule replaced.
    Current,
    /// Those of the source graph: one for each class, without a cycle.
    Source,
}

/// A way to put the two candidates at the ends of an edge into one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub join: Join,
    pub producer: Site,
    pub reader: Site,
    /// In ns, apart from not writing the value.
    pub saved: f64,
}

pub struct Problem<'a> {
    pub network: &'a Network,
    pub ids: Vec<Id>,
    index: BTreeMap<Id, usize>,
    pub classes: Vec<Vec<Candidate<'a>>>,
    pub roots: Vec<usize>,
    pub edges: Vec<Edge>,
    /// For each class those that have a candidate which reads it.
    pub readers: Vec<Vec<usize>>,
    /// The value that each class is a form of, by its least class, and the number of forms of each value.
    pub value: Vec<usize>,
    pub forms: Vec<usize>,
    /// The tensor in memory that each class is, by its least class: a reshape is its operand under another shape.
    pub storage: Vec<usize>,
    /// For each value those that every way to compute it computes as well, itself among them.
    pub required: Required,
    /// Choices in classes that are computed from constants only.
    pub constants: BTreeMap<Id, usize>,
}

impl Candidate<'_> {
    /// Its operand under another shape.
    pub fn is_alias(&self) -> bool {
        matches!(self.op, Some(Op::Reshape { .. }))
    }
}

impl<'a> Problem<'a> {
    pub fn new(network: &'a Network, roots: &[Id], target: &Target, terms: Terms) -> Result<Problem<'a>> {
        let constants = choose_constants(network);
        let source = if terms == Terms::Source { network.source_terms() } else { BTreeMap::new() };
        let allowed = |id: Id, term: &Term| match terms {
            Terms::Current => network.is_current(term),
            Terms::Source => source.get(&id).is_some_and(|s| *s == network.canonical(term)),
        };
        let ids = needed_classes(network, roots, &constants, &allowed);
        let index: BTreeMap<Id, usize> = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let class_of = |id: Id| index.get(&network.find(id)).copied();
        let mut classes = vec![];
        for (own, &id) in ids.iter().enumerate() {
            let mut list: Vec<Candidate> = vec![];
            for (position, term) in network.terms(id).iter().enumerate() {
                let mut children: Vec<usize> = term.children.iter().filter_map(|&c| class_of(c)).collect();
                children.sort_unstable();
                children.dedup();
                if allowed(id, term) && !children.contains(&own) {
                    list.push(candidate(network, id, position, term, children, target));
                }
            }
            if list.is_empty() {
                return Err(Error::Internal("a class of the e-graph needs itself".into()));
            }
            classes.push(list);
        }
        let mut readers = vec![vec![]; ids.len()];
        for (c, list) in classes.iter().enumerate() {
            for &d in list.iter().flat_map(|k| &k.children) {
                if readers[d].last() != Some(&c) {
                    readers[d].push(c);
                }
            }
        }
        let mut roots: Vec<usize> = roots.iter().filter_map(|&r| class_of(r)).collect();
        roots.sort_unstable();
        roots.dedup();
        let value = united(&classes, |k| k.converts);
        let storage = united(&classes, |k| k.is_alias());
        let mut forms = vec![0; classes.len()];
        value.iter().for_each(|&v| forms[v] += 1);
        let required = Required::new(&classes, &value, None);
        let (edges, index) = (vec![], index);
        let mut problem =
            Problem { network, ids, index, classes, roots, edges, readers, value, forms, storage, required, constants };
        problem.add_edges(target);
        problem.add_views(target);
        Ok(problem)
    }

    pub fn candidate(&self, site: Site) -> &Candidate<'a> {
        &self.classes[site.0][site.1]
    }

    pub fn ty(&self, class: usize) -> &TensorType {
        self.network.ty(self.ids[class])
    }

    pub fn term(&self, site: Site) -> &Term {
        &self.network.terms(self.ids[site.0])[self.candidate(site).position]
    }

    /// The classes of a candidate's operands by position; `None` for constants.
    pub fn operands(&self, site: Site) -> Vec<Option<usize>> {
        self.term(site).children.iter().map(|&id| self.class_of(id)).collect()
    }

    /// The class of an operand; `None` when it is constant.
    pub fn class_of(&self, id: Id) -> Option<usize> {
        self.index.get(&self.network.find(id)).copied()
    }

    fn add_edges(&mut self, target: &Target) {
        let through_kernels = Required::new(&self.classes, &self.value, Some(&self.required));
        let mut bounds = Bounds::new(self.classes.len());
        let mut edges: Vec<Edge> = vec![];
        for (c, list) in self.classes.iter().enumerate() {
            for (k, op) in list.iter().enumerate().filter_map(|(k, candidate)| Some((k, candidate.op?))) {
                let first = edges.len();
                let operands = self.operands((c, k));
                if self.candidate((c, k)).children.len() > MAX_INPUTS {
                    continue;
                }
                for (position, &d) in operands.iter().enumerate() {
                    let Some(d) = d else { continue };
                    // Another operand is computed from this one by another kernel, which then would be a part of a cycle.
                    let v = self.value[d];
                    let others = operands.iter().flatten().map(|&o| self.value[o]).filter(|&o| o != v);
                    if others.into_iter().any(|o| through_kernels.has(o, v)) {
                        continue;
                    }
                    for (j, producer) in self.classes[d].iter().enumerate() {
                        let Some(made) = producer.op else { continue };
                        for join in joins(made, self.ty(d), op, position, self.ty(c)) {
                            let edge = Edge { join, producer: (d, j), reader: (c, k), saved: 0.0 };
                            let again = if join.repeats { self.repeated_work(&edge, target) } else { 0.0 };
                            let saved = target.launch_ns + cost::traffic(self.ty(d).bytes(), target) - again;
                            let same = |e: &Edge| (e.producer, e.join.way) == (edge.producer, join.way);
                            if saved > 0.0 && !edges[first..].iter().any(same) {
                                edges.push(Edge { saved, ..edge });
                            }
                        }
                    }
                }
                bounds.limit(self, (c, k), &mut edges, first);
            }
            bounds.close(c);
        }
        self.edges = edges;
    }

    /// What a producer costs beyond the first time when it runs for each element of its reader, in ns.
    fn repeated_work(&self, edge: &Edge, target: &Target) -> f64 {
        let (few, many) = (self.ty(edge.producer.0).elements(), self.ty(edge.reader.0).elements());
        let once = self.candidate(edge.producer).cost - target.launch_ns;
        once.max(0.0) * (many as f64 / few.max(1) as f64 - 1.0)
    }

    /// Marks the views that every reader can read through, if these are chosen.
    fn add_views(&mut self, target: &Target) {
        // Readers stand after what they read, nearly always: a second round finds the rest.
        for _ in 0..2 {
            for class in (0..self.classes.len()).rev().filter(|c| !self.roots.contains(c)) {
                for k in 0..self.classes[class].len() {
                    let saved = self.view_saves((class, k), target);
                    self.classes[class][k].through = saved;
                }
            }
        }
    }

    fn view_saves(&self, site: Site, target: &Target) -> Option<f64> {
        let candidate = self.candidate(site);
        let (op, [operand]) = (candidate.op?, &candidate.children[..]) else { return None };
        let saved = match op {
            Op::Transpose { .. } => cost::view(op, self.ty(*operand), self.ty(site.0), target),
            op if is_view(op) => candidate.cost,
            Op::Reshape { shape } => affine_reshape(&self.ty(*operand).shape, shape).map(|_| 0.0)?,
            _ => return None,
        };
        let readable = |&c: &usize| {
            (0..self.classes[c].len()).any(|k| {
                self.candidate((c, k)).children.contains(&site.0)
                    && (self.is_read_through(site, (c, k)) || self.candidate((c, k)).through.is_some())
            })
        };
        self.readers[site.0].iter().any(readable).then_some(saved.min(candidate.cost))
    }

    /// Whether a candidate that has a kernel may read its operand through a view.
    pub fn is_read_through(&self, view: Site, reader: Site) -> bool {
        let (Some(view_op), Some(op)) = (self.candidate(view).op, self.candidate(reader).op) else { return false };
        let operands = self.operands(reader);
        let mut positions = (0..operands.len()).filter(|&p| operands[p] == Some(view.0)).peekable();
        positions.peek().is_some() && positions.all(|p| reads_through(view_op, self.ty(view.0), op, p))
    }

    pub fn is_expensive(&self, site: Site) -> bool {
        self.candidate(site).op.is_some_and(is_expensive)
    }

    /// Edges into the kernel of whose reader the producer goes, when that reader is not injective.
    pub fn leads_reduction(&self, edge: &Edge) -> bool {
        edge.join.way == Way::Before
            && self.candidate(edge.reader).op.is_some_and(|op| kind(op) != FusionKind::Injective)
    }
}

/// Classes in depth-first post-order: operands mostly before what uses them.
fn needed_classes(
    network: &Network,
    roots: &[Id],
    constants: &BTreeMap<Id, usize>,
    allowed: &dyn Fn(Id, &Term) -> bool,
) -> Vec<Id> {
    let mut ids = vec![];
    let mut seen = std::collections::BTreeSet::new();
    let mut stack: Vec<(Id, bool)> = roots.iter().rev().map(|&r| (network.find(r), false)).collect();
    while let Some((id, done)) = stack.pop() {
        if done {
            ids.push(id);
            continue;
        }
        if constants.contains_key(&id) || !seen.insert(id) {
            continue;
        }
        stack.push((id, true));
        let operands = network.terms(id).iter().filter(|t| allowed(id, t)).flat_map(|t| &t.children);
        stack.extend(operands.rev().map(|&c| (network.find(c), false)));
    }
    ids
}

fn candidate<'a>(
    network: &'a Network,
    class: Id,
    position: usize,
    term: &'a Term,
    children: Vec<usize>,
    target: &Target,
) -> Candidate<'a> {
    let op = match &term.head {
        Head::Op(op) => Some(op),
        _ => None,
    };
    let result = network.facts(class).types.first();
    let operands: Vec<Operand> =
        term.children.iter().map(|&c| Operand { ty: network.ty(c), constant: network.is_constant(c) }).collect();
    let (cost, write) = match (op, result) {
        // Between equal costs the smaller graph: an alias is not quite free.
        (Some(Op::Reshape { .. }), _) => (1.0, 0.0),
        (Some(op), Some(result)) => {
            (cost::node(op, &operands, result, target) + 1.0, cost::traffic(result.bytes(), target))
        }
        _ => (0.0, 0.0),
    };
    let converts =
        matches!(op, Some(Op::Transpose { .. } | Op::Reshape { .. } | Op::Block { .. } | Op::Unblock { .. }));
    Candidate { position, op, cost, write, converts, children, through: None }
}

/// Each class's least among those that are joined by candidates with `link`.
fn united(classes: &[Vec<Candidate>], link: impl Fn(&Candidate) -> bool) -> Vec<usize> {
    let mut least: Vec<usize> = (0..classes.len()).collect();
    fn find(least: &mut [usize], mut c: usize) -> usize {
        while least[c] != c {
            least[c] = least[least[c]];
            c = least[c];
        }
        c
    }
    for (c, list) in classes.iter().enumerate() {
        for &d in list.iter().filter(|k| link(k)).flat_map(|k| &k.children) {
            let (a, b) = (find(&mut least, c), find(&mut least, d));
            least[a.max(b)] = a.min(b);
        }
    }
    (0..classes.len()).map(|c| find(&mut least, c)).collect()
}
