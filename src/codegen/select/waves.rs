//! Invariant code motion and unswitching for parallel loops in waves.
//!
//! In: the tree of a phase whose parallel loop runs in waves of `width` iterations. Out: the same without the divisions of
//! the loop variable by multiples of the width, which stand before the loop, over the first iteration of the call
//! ([`FIRST`]); and a loop of its own for each of several conditionals that exclude each other and whose conditions the
//! iterations of a wave share (loop unswitching; Allen and Cocke, A catalogue of optimizing transformations, 1971).
//! Invariant: a call runs iterations of one wave, as the runtime divides them.

use crate::codegen::select::state::FIRST;
use crate::codegen::select::tree::{Loop, Node, Tree};
use crate::expr::{Affine, Var};
use rustc_hash::FxHashSet;

/// Moves out of the parallel loop what the iterations of a wave of `width` share.
pub fn hoist(mut tree: Tree, width: Option<i64>) -> Tree {
    let Some(width) = width else { return tree };
    let nodes = std::mem::take(&mut tree.nodes);
    for node in nodes {
        match node {
            Node::Loop(l) if l.parallel && starts_at_zero(&l) => tree.nodes.extend(hoist_from(l, width)),
            node => tree.nodes.push(node),
        }
    }
    tree
}

fn starts_at_zero(l: &Loop) -> bool {
    l.step == 1 && l.lower.iter().all(|b| b.affine == Affine::constant(0))
}

fn hoist_from(mut l: Loop, width: i64) -> Vec<Node> {
    let mut shared: FxHashSet<Var> = FxHashSet::default();
    let (mut before, mut body) = (vec![], vec![]);
    for node in l.body {
        match node {
            Node::Let { var, value, divisor } if value == Affine::var(l.var) && divisor % width == 0 => {
                shared.insert(var);
                before.push(Node::Let { var, value: Affine::var(FIRST), divisor });
            }
            Node::Let { var, ref value, .. } if is_over(value, &shared) => {
                shared.insert(var);
                before.push(node);
            }
            node => body.push(node),
        }
    }
    l.body = body;
    match cases(&l, &shared) {
        Some(loops) => before.extend(loops),
        None => before.push(Node::Loop(l)),
    }
    before
}

/// Returns true if a form is over variables of `shared` alone, one at least.
fn is_over(value: &Affine, shared: &FxHashSet<Var>) -> bool {
    !value.is_constant() && value.terms.iter().all(|(v, _)| shared.contains(v))
}

/// A loop for each conditional of a body that has nothing else, under the conditions that are over `shared`; `None` where two
/// of them may hold at once: the second one may read what an iteration keeps of the first.
fn cases(l: &Loop, shared: &FxHashSet<Var>) -> Option<Vec<Node>> {
    let mut cases: Vec<(Vec<Affine>, Vec<Node>)> = vec![];
    for node in &l.body {
        let Node::If { conditions, body } = node else { return None };
        let (same, others): (Vec<Affine>, Vec<Affine>) = conditions.iter().cloned().partition(|c| is_over(c, shared));
        if same.is_empty() || cases.iter().any(|(earlier, _)| !exclude(earlier, &same)) {
            return None;
        }
        let inside =
            if others.is_empty() { body.clone() } else { vec![Node::If { conditions: others, body: body.clone() }] };
        cases.push((same, inside));
    }
    let nodes = cases
        .into_iter()
        .map(|(conditions, body)| Node::If { conditions, body: vec![Node::Loop(Loop { body, ..l.clone() })] });
    Some(nodes.collect())
}

/// Returns true if a condition of each list cannot both hold: their sum is negative.
fn exclude(a: &[Affine], b: &[Affine]) -> bool {
    a.iter().any(|a| b.iter().map(|b| a.add_scaled(b, 1)).any(|sum| sum.is_constant() && sum.constant < 0))
}
