//! Parts of a phase that share their outer loops and have register blocks of their own: the stages of a transform by small
//! constant matrices along one axis after the other.
//!
//! In: the tree of a phase whose parts sum products with literals. Out: the parts one after the other, each over all of
//! its domain, or all of them in each iteration of the shared loops where the second cache holds what a later part needs of
//! an earlier one: the same work with fewer transfers. Loops along which a part has its vector, or whose iterator is a
//! subscript of a literal, are those of each part: there they can be points of its block.
//!
//! Invariant: only a band without carried dependences is divided.

use crate::expr::{BufferId, Index};
use crate::poly::analysis::access::{Along, references};
use crate::poly::packing::Packing;
use crate::poly::schedule::{Band, Node, Row};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId};
use crate::poly::tile::phase::distribute;
use crate::poly::tile::plan::{Phase, Plan, unit};
use crate::poly::tile::report::PhaseReport;

type Child = (Vec<StatementId>, Node);

impl Phase<'_> {
    /// The plans of a phase with several parts that sum products with literals, and the operands to pack.
    pub(super) fn plan_parts(&self, node: &Node) -> Option<(Vec<(Vec<StatementId>, Plan)>, Vec<Packing>)> {
        let Node::Band(band, child) = node else { return None };
        let Node::Sequence(children) = &**child else { return None };
        let sums = |child: &&Child| child.0.iter().any(|&s| sums_literals(self.scop, s));
        if !band.rows.iter().all(|r| r.coincident) || children.iter().filter(sums).count() < 2 {
            return None;
        }
        let (point_rows, shared): (Vec<Row>, Vec<Row>) =
            band.rows.iter().cloned().partition(|row| children.iter().any(|c| self.is_point_of(row, &c.0)));
        let held = self.held_in(&shared);
        let mut packings = vec![];
        let apart = self.plans(&distributed(&band.rows, children), held.as_deref().unwrap_or(&[]), &mut packings);
        let Some(held) = held else { return Some((apart, packings)) };
        // The parts together take as long as one after the other, but for what they exchange.
        let predicted = apart.iter().map(|p| p.1.report.predicted_ns).sum();
        let mut packings = vec![];
        let parts = self.plans(&distributed(&point_rows, children), &held, &mut packings);
        Some((vec![(self.statements.to_vec(), around(shared, parts, predicted))], packings))
    }

    /// The plan of each part.
    fn plans(&self, parts: &[Child], held: &[BufferId], packings: &mut Vec<Packing>) -> Vec<(Vec<StatementId>, Plan)> {
        let plan = |(statements, node): &Child| {
            let plan = Phase { statements, held, ..*self }.plan(node, packings);
            (statements.clone(), plan)
        };
        parts.iter().map(plan).collect()
    }

    /// Returns true if a statement has its vector along the row, or its literals.
    fn is_point_of(&self, row: &Row, statements: &[StatementId]) -> bool {
        let is = |&id: &StatementId| {
            let Some(v) = unit(row, id) else { return false };
            let literal = |b: BufferId| self.scop.tensor(b).literals.is_some();
            references(self.scop, id).iter().any(|r| match &r.access {
                None => r.along(v) == Along::Unit,
                Some(a) => literal(r.tensor) && a.index.iter().filter_map(Index::affine).any(|i| i.uses(v)),
            })
        };
        statements.iter().any(is)
    }

    /// The temporaries of the phase, where those elements that one iteration of `shared` needs fit the second cache.
    fn held_in(&self, shared: &[Row]) -> Option<Vec<BufferId>> {
        let machine = &self.target.machine;
        let steps: i64 = shared.iter().map(|r| r.extent(self.scop)).product();
        if steps < 2 {
            return None;
        }
        let mut held: Vec<BufferId> = self.statements.iter().map(|&s| self.scop.statement(s).target).collect();
        held.retain(|&b| self.scop.tensor(b).role == Role::Temporary);
        held.sort();
        held.dedup();
        let bytes = |b: &BufferId| {
            let t = self.scop.tensor(*b);
            let elements: i64 = t.shape.iter().product();
            let writer = self.statements.iter().copied().find(|&s| self.scop.statement(s).target == *b);
            let along = |row: &&Row| {
                let v = writer.and_then(|s| Some((s, unit(row, s)?)));
                v.is_some_and(|(s, v)| self.scop.statement(s).writes_along(v))
            };
            let iterations: i64 = shared.iter().filter(along).map(|r| r.extent(self.scop)).product();
            (elements / iterations.max(1)) as f64 * t.dtype.bytes() as f64
        };
        (held.iter().map(bytes).sum::<f64>() <= machine.usable_bytes(1)).then_some(held)
    }
}

/// Returns true if a statement sums products with literals.
fn sums_literals(scop: &Scop, id: StatementId) -> bool {
    references(scop, id).iter().any(|r| r.nonzero.is_some())
}

fn distributed(rows: &[Row], children: &[Child]) -> Vec<Child> {
    match distribute(rows, Node::Sequence(children.to_vec())) {
        Node::Sequence(children) => children,
        node => vec![(children.iter().flat_map(|c| c.0.iter().copied()).collect(), node)],
    }
}

/// The plan of several parts inside of shared loops.
fn around(shared: Vec<Row>, parts: Vec<(Vec<StatementId>, Plan)>, predicted_ns: f64) -> Plan {
    let text = |of: fn(&PhaseReport) -> &str| parts.iter().map(|p| of(&p.1.report)).collect::<Vec<_>>().join("; ");
    let names: Vec<&str> = shared.iter().map(|r| r.name.as_str()).collect();
    let report = PhaseReport {
        statement: text(|r| &r.statement),
        block: text(|r| &r.block),
        tiles: format!("{} ({})", names.join(" "), text(|r| &r.tiles)),
        predicted_ns,
        // each part has its own
        blocks: vec![],
        ..parts.last().map(|p| p.1.report.clone()).unwrap_or_default()
    };
    let free_rows = shared.len();
    let children = parts.into_iter().map(|(statements, plan)| (statements, plan.node)).collect();
    let node = Node::Band(Band { rows: shared, permutable: true }, Box::new(Node::Sequence(children)));
    Plan { node, report, free_rows }
}
