//! Loop distribution for statements that share loops but no values.
//!
//! In: the tree of one phase. Out: one plan, or one for each group of statements that exchange values, when a heavy
//! statement has a vector in loops of its own and none in those of the others: `x += A·y` runs along rows of A, `z +=
//! Aᵀ·y` along columns.
//!
//! Invariant: only a band without carried dependences is divided, so that its statements may run one completely after
//! the other.

use crate::poly::packing::Packing;
use crate::poly::schedule::{Band, Node, Row, RowKind};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::tile::plan::{Phase, Plan};
use crate::poly::tile::report::instances;
use crate::poly::tile::sums::{exchange, fused};

/// Smallest number of instances of a statement that decides, as a share of those of the dominant one. Unmeasured.
const HEAVY: f64 = 0.25;

impl Phase<'_> {
    /// The plans of the phase, in order; operands to pack are added to `packings`.
    pub fn plan_apart(&self, node: &Node, packings: &mut Vec<Packing>) -> Vec<(Vec<StatementId>, Plan)> {
        if let Some((plans, packed)) = self.plan_parts(node) {
            packings.extend(packed);
            return plans;
        }
        let with_sums = fused(self.scop, node);
        let node = with_sums.as_ref().unwrap_or(node);
        let mut packed = vec![];
        let together = self.plan(node, &mut packed);
        let groups = divide(self.scop, node);
        let mut packed_apart = vec![];
        let apart: Vec<(Vec<StatementId>, Plan)> = groups
            .into_iter()
            .map(|(statements, node)| {
                let plan = Phase { statements: &statements, ..*self }.plan(&node, &mut packed_apart);
                (statements, plan)
            })
            .collect();
        let most = self.statements.iter().map(|&s| instances(self.scop, s)).fold(0.0, f64::max);
        let gains = apart.iter().any(|(statements, plan)| {
            statements.iter().any(|&s| {
                let heavy = instances(self.scop, s) >= most * HEAVY;
                heavy && has_vector(&plan.node, s) && !has_vector(&together.node, s)
            })
        });
        if apart.len() > 1 && gains {
            packings.extend(packed_apart);
            return apart;
        }
        packings.extend(packed);
        vec![(self.statements.to_vec(), together)]
    }
}

/// Divides a band's statements into groups that exchange no values, each with its own loops; empty if there is only one.
fn divide(scop: &Scop, node: &Node) -> Vec<(Vec<StatementId>, Node)> {
    let Node::Band(band, child) = node else { return vec![] };
    let Node::Sequence(children) = &**child else { return vec![] };
    if !band.rows.iter().all(|r| r.coincident) {
        return vec![];
    }
    // Groups of children, in their order, that touch a tensor which one of them writes.
    let mut groups: Vec<Vec<&(Vec<StatementId>, Node)>> = vec![];
    for child in children {
        let joined = |g: &Vec<&(Vec<StatementId>, Node)>| g.iter().any(|other| exchange(scop, &other.0, &child.0));
        let (with, without): (Vec<_>, Vec<_>) = groups.into_iter().partition(joined);
        groups = without;
        groups.push(with.into_iter().flatten().chain([child]).collect());
    }
    if groups.len() < 2 {
        return vec![];
    }
    let own_loops = |group: Vec<&(Vec<StatementId>, Node)>| {
        let statements: Vec<StatementId> = group.iter().flat_map(|c| c.0.iter().copied()).collect();
        let rows = band.rows.iter().map(|r| {
            let phi = r.phi.iter().filter(|p| statements.contains(&p.0)).cloned().collect();
            Row { phi, ..r.clone() }
        });
        let inside = match &group[..] {
            [one] => one.1.clone(),
            all => Node::Sequence(all.iter().map(|&c| c.clone()).collect()),
        };
        let band = Band { rows: rows.collect(), permutable: band.permutable };
        (statements, Node::Band(band, Box::new(inside)))
    };
    groups.into_iter().map(own_loops).collect()
}

fn has_vector(node: &Node, id: StatementId) -> bool {
    let vector = |r: &Row| r.kind == RowKind::Vector && r.phi.iter().any(|p| p.0 == id);
    let mut found = false;
    node.for_each_band(&mut |band| found |= band.rows.iter().any(vector));
    found
}
