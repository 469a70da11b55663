//! Schedule: a tree that says when each statement instance runs.
//!
//! The terms are isl's (Verdoolaege et al., "Schedule Trees", IMPACT 2014): bands of rows, sequences of filters, marks.

use crate::codegen::instruction::InstructionName;
use crate::expr::{Affine, Var};
use crate::poly::statement::{self, Statement, StatementId};
use serde::{Deserialize, Serialize};

/// A schedule of all statements of one Scop.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Schedule {
    pub root: Node,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Node {
    /// Nested loops, outermost first, over all statements below.
    Band(Band, Box<Node>),
    /// The children run one after the other. Each names the statements below it.
    Sequence(Vec<(Vec<StatementId>, Node)>),
    #[default]
    Leaf,
}

/// The statements below a child of a sequence, and the child.
pub type SequencePart = (Vec<StatementId>, Node);

/// Parts that run one after the other as one; `None` of none.
pub fn in_sequence(mut parts: Vec<SequencePart>) -> Option<SequencePart> {
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some((parts.iter().flat_map(|p| p.0.iter().copied()).collect(), Node::Sequence(parts))),
    }
}

/// The place of the child of a sequence that a statement is below.
pub fn child_of(children: &[(Vec<StatementId>, Node)], id: StatementId) -> Option<usize> {
    children.iter().position(|c| c.0.contains(&id))
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Band {
    pub rows: Vec<Row>,
    /// The rows may be interchanged and tiled: every dependence is non-negative in each of them.
    pub permutable: bool,
}

/// One loop: statement instance `i` runs at time `⌊φ(i) / tile⌋`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The name of the loop variable.
    pub name: String,
    /// φ of each statement below, over its iterators.
    pub phi: Vec<(StatementId, Affine)>,
    /// 1 for a loop over φ itself; a tile loop has its tile size here, and φ returns in a row further in.
    pub tile: i64,
    /// No dependence is carried: iterations may run in parallel.
    pub coincident: bool,
    pub kind: RowKind,
    /// The loop runs a multiple of this many iterations; those beyond its values do nothing.
    pub pad: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RowKind {
    Serial,
    Parallel,
    /// This row and the next one in waves: in the order of their sum, those of one sum in parallel. Dependences are
    /// non-negative in both. Only at the root.
    Wavefront,
    Unroll,
    Vector,
    /// The terms that one tensor instruction sums, innermost below a vector row.
    Instruction(InstructionName),
}

impl Schedule {
    /// Every statement completely before the next, each over its iterators in order.
    pub fn in_sequence(statements: &[Statement]) -> Schedule {
        let mut children: Vec<(Vec<StatementId>, Node)> = statements
            .iter()
            .zip((0..).map(StatementId))
            .map(|(s, id)| {
                let row = |(it, v): (&statement::Iterator, Var)| Row::serial(&*it.name, vec![(id, Affine::var(v))]);
                let rows: Vec<Row> = s.iterators.iter().zip(s.vars()).map(row).collect();
                let node = if rows.is_empty() {
                    Node::Leaf
                } else {
                    Node::Band(Band { rows, permutable: false }, Box::new(Node::Leaf))
                };
                (vec![id], node)
            })
            .collect();
        let root = if children.len() == 1 { children.remove(0).1 } else { Node::Sequence(children) };
        Schedule { root }
    }
}

/// The work of one step of a serial outermost row, beside that before and after the row.
#[derive(Clone, PartialEq, Debug)]
pub struct SchedulePart {
    pub statements: Vec<StatementId>,
    pub node: Node,
}

impl SchedulePart {
    /// Returns the row whose iterations the threads share.
    pub fn parallel(&self) -> Option<&Row> {
        self.first().filter(|r| r.kind == RowKind::Parallel)
    }

    /// The outermost row.
    pub fn first(&self) -> Option<&Row> {
        if let Node::Band(band, _) = &self.node { band.rows.first() } else { None }
    }
}

/// The parts of each step of the first row of a band that is outermost in its phase, where that row is serial and some part
/// is divided over threads: the parts run one after the other, with a barrier between two.
pub fn parts_of(band: &Band, child: &Node) -> Option<Vec<SchedulePart>> {
    let parts = steps_of(band, child)?;
    parts.iter().any(|p| p.parallel().is_some()).then_some(parts)
}

/// The parts of each step of the first row of a band, which is serial and over single values.
pub fn steps_of(band: &Band, child: &Node) -> Option<Vec<SchedulePart>> {
    let (row, rest) = band.rows.split_first()?;
    let plain = row.kind == RowKind::Serial && row.tile == 1 && row.pad == 1;
    let statements = || row.phi.iter().map(|p| p.0).collect();
    let parts = match child {
        _ if !rest.is_empty() => {
            let inner = Band { rows: rest.to_vec(), permutable: band.permutable };
            vec![SchedulePart { statements: statements(), node: Node::Band(inner, Box::new(child.clone())) }]
        }
        Node::Sequence(children) => {
            children.iter().map(|(s, node)| SchedulePart { statements: s.clone(), node: node.clone() }).collect()
        }
        node => vec![SchedulePart { statements: statements(), node: node.clone() }],
    };
    plain.then_some(parts)
}

/// One dimension of the time of an instance: a row of a band, or a position in a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeDimension<'a> {
    Row(&'a Row),
    /// The child of a sequence.
    Position(usize),
}

impl Schedule {
    /// The rows and sequence positions above `statement`, outermost first.
    pub fn path(&self, statement: StatementId) -> Vec<TimeDimension<'_>> {
        let mut steps = vec![];
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf => return steps,
                Node::Band(band, child) => {
                    steps.extend(band.rows.iter().map(TimeDimension::Row));
                    node = child;
                }
                Node::Sequence(children) => match child_of(children, statement) {
                    Some(i) => {
                        steps.push(TimeDimension::Position(i));
                        node = &children[i].1;
                    }
                    None => return steps,
                },
            }
        }
    }

    /// The statements of the tree.
    pub fn ids(&self) -> Vec<StatementId> {
        match &self.root {
            Node::Leaf => vec![StatementId(0)],
            Node::Band(band, _) => band.rows.first().map_or(vec![], |r| r.phi.iter().map(|p| p.0).collect()),
            Node::Sequence(children) => children.iter().flat_map(|c| c.0.iter().copied()).collect(),
        }
    }

    /// The rows above all of these statements, outermost first.
    pub fn around(&self, statements: &[StatementId]) -> Vec<&Row> {
        self.root.bands_to(statements).into_iter().flat_map(|(band, _)| &band.rows).collect()
    }

    /// When the instance `point` of `statement` runs: lexicographic order is the order of execution.
    pub fn time(&self, statement: StatementId, point: &[i64]) -> Vec<i64> {
        self.path(statement)
            .into_iter()
            .map(|step| match step {
                TimeDimension::Position(i) => i as i64,
                TimeDimension::Row(row) => row.of(statement).evaluate(|v| point[v.0 as usize]).div_euclid(row.tile),
            })
            .collect()
    }

    /// Calls `f` on every band, parents first.
    pub fn for_each_band<'a>(&'a self, f: &mut impl FnMut(&'a Band)) {
        self.root.for_each_band(f);
    }
}

impl Node {
    /// The child of a band, or those of a sequence.
    pub fn children(&self) -> impl Iterator<Item = &Node> {
        let (below, parts): (Option<&Node>, &[(Vec<StatementId>, Node)]) = match self {
            Node::Leaf => (None, &[]),
            Node::Band(_, child) => (Some(child), &[]),
            Node::Sequence(children) => (None, children),
        };
        below.into_iter().chain(parts.iter().map(|p| &p.1))
    }

    /// Variant of [`Node::children`] for edits.
    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        let (below, parts): (Option<&mut Node>, &mut [(Vec<StatementId>, Node)]) = match self {
            Node::Leaf => (None, &mut []),
            Node::Band(_, child) => (Some(child), &mut []),
            Node::Sequence(children) => (None, children),
        };
        below.into_iter().chain(parts.iter_mut().map(|p| &mut p.1))
    }

    /// A copy of this node whose children are the results of `f`, called in order.
    ///
    /// # Errors
    /// The first of `f`.
    pub fn try_map_children<E>(mut self, f: &mut impl FnMut(Node) -> Result<Node, E>) -> Result<Node, E> {
        for child in self.children_mut() {
            *child = f(std::mem::take(child))?;
        }
        Ok(self)
    }

    /// A copy of this node whose children are the results of `f`, called in order.
    pub fn map_children(mut self, f: &mut impl FnMut(Node) -> Node) -> Node {
        self.children_mut().for_each(|child| *child = f(std::mem::take(child)));
        self
    }

    /// Calls `f` on every band, parents first.
    pub fn for_each_band<'a>(&'a self, f: &mut impl FnMut(&'a Band)) {
        if let Node::Band(band, _) = self {
            f(band);
        }
        self.children().for_each(|c| c.for_each_band(f));
    }

    /// Variant of [`Node::for_each_band`] for edits.
    pub fn for_each_band_mut(&mut self, f: &mut impl FnMut(&mut Band)) {
        if let Node::Band(band, _) = self {
            f(band);
        }
        self.children_mut().for_each(|c| c.for_each_band_mut(f));
    }

    /// The bands above all of these statements and the node below each, outermost first.
    pub fn bands_to(&self, statements: &[StatementId]) -> Vec<(&Band, &Node)> {
        let mut bands = vec![];
        let mut next = Some(self);
        while let Some(node) = next {
            next = match node {
                Node::Leaf => None,
                Node::Band(band, child) => {
                    bands.push((band, &**child));
                    Some(child)
                }
                Node::Sequence(children) => {
                    children.iter().find(|c| statements.iter().all(|s| c.0.contains(s))).map(|c| &c.1)
                }
            };
        }
        bands
    }

    /// Merges nested sequences into one and removes those of a single part.
    pub fn flattened(self) -> Node {
        match self {
            Node::Leaf => Node::Leaf,
            Node::Band(band, child) => Node::Band(band, Box::new(child.flattened())),
            Node::Sequence(children) => {
                let mut out = vec![];
                for (ids, child) in children {
                    match child.flattened() {
                        Node::Sequence(inner) => out.extend(inner),
                        child => out.push((ids, child)),
                    }
                }
                if out.len() == 1 { out.remove(0).1 } else { Node::Sequence(out) }
            }
        }
    }

    /// The tree for some of its statements.
    pub fn restricted(&self, ids: &[StatementId]) -> Node {
        match self {
            Node::Leaf => Node::Leaf,
            Node::Band(band, child) => {
                let phi = |row: &Row| row.phi.iter().filter(|p| ids.contains(&p.0)).cloned().collect();
                let rows = band.rows.iter().map(|row| Row { phi: phi(row), ..row.clone() }).collect();
                Node::Band(Band { rows, ..band.clone() }, Box::new(child.restricted(ids)))
            }
            Node::Sequence(children) => {
                let inside = |of: &[StatementId]| of.iter().copied().filter(|id| ids.contains(id)).collect::<Vec<_>>();
                let mut remaining: Vec<_> = children.iter().map(|(of, child)| (inside(of), child)).collect();
                remaining.retain(|(of, _)| !of.is_empty());
                match &remaining[..] {
                    [(_, child)] => child.restricted(ids),
                    _ => Node::Sequence(remaining.into_iter().map(|(of, child)| (of, child.restricted(ids))).collect()),
                }
            }
        }
    }
}

impl RowKind {
    /// Returns true if threads share the iterations.
    pub fn is_shared(self) -> bool {
        matches!(self, RowKind::Parallel | RowKind::Wavefront)
    }
}

impl Row {
    /// ⌊φ / tile⌋ of `statement` where it is affine: of points, and of what was put into a loop over tiles.
    pub fn exact(&self, statement: StatementId) -> Option<Affine> {
        let phi = self.of(statement);
        let whole = phi.constant % self.tile == 0 && phi.terms.iter().all(|t| t.1 % self.tile == 0);
        let terms =
            || phi.terms.iter().fold(Affine::constant(phi.constant / self.tile), |a, t| a.plus(t.0, t.1 / self.tile));
        whole.then(terms)
    }

    /// A serial loop over the values of φ, of which nothing else is known.
    pub fn serial(name: impl Into<String>, phi: Vec<(StatementId, Affine)>) -> Row {
        Row { name: name.into(), phi, tile: 1, coincident: false, kind: RowKind::Serial, pad: 1 }
    }

    /// A loop of one iteration, which makes one phase of what is below.
    pub fn once(statements: impl IntoIterator<Item = StatementId>) -> Row {
        let phi = statements.into_iter().map(|id| (id, Affine::constant(0))).collect();
        Row { coincident: true, kind: RowKind::Parallel, ..Row::serial("once", phi) }
    }

    /// φ of `statement`; panics when the row does not cover it.
    pub fn of(&self, statement: StatementId) -> &Affine {
        &self.phi.iter().find(|p| p.0 == statement).expect("the row covers the statement").1
    }
}
