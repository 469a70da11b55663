//! The ILP's order with more loops fused, whether they are parallel or not.
//!
//! The ILP shares a row between strongly connected components only where it is parallel, and distributes a parallel loop from a serial sum
//! over what it computes. That is what threads want; one thread may want the other extreme of Bondhugula et al. (PLDI 2008), *maximal fusion*:
//! what one loop computes is read while it is in registers, or in the first cache.
//!
//! In: a schedule. Out: schedules in which loops that follow each other run as one, where they have the same values and that is legal: one
//! whose parallel loops stay parallel, and one of all loops that fit.

use crate::poly::analysis::dependence::Dependences;
use crate::poly::analysis::legality;
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::runtime::{Error, Result};

/// Pairs of loops that are tried.
const PAIRS: usize = 16;

type Child = (Vec<StatementId>, Node);

/// The schedules with loops fused, with exact flags; none where no two fit together.
///
/// # Errors
/// [`Error::Internal`] where a proof ends in it.
pub fn fused(scop: &Scop, dependences: &Dependences, schedule: &Schedule) -> Result<Vec<Schedule>> {
    let mut out: Vec<Schedule> = vec![];
    for parallel in [true, false] {
        let mut best = schedule.clone();
        let mut skipped = 0;
        for _ in 0..PAIRS {
            let mut nth = skipped;
            let Some(root) = merged(scop, &best.root, &mut nth) else { break };
            match tried(scop, dependences, &Schedule { root: root.flattened() })? {
                Some(tried) if !parallel || parallel_rows(&tried) >= parallel_rows(&best) => best = tried,
                _ => skipped += 1,
            }
        }
        if best != *schedule && !out.contains(&best) {
            out.push(best);
        }
    }
    Ok(out)
}

/// The schedule with exact flags, if it is legal.
fn tried(scop: &Scop, dependences: &Dependences, schedule: &Schedule) -> Result<Option<Schedule>> {
    match legality::check(scop, dependences, schedule) {
        Ok(()) => legality::flag(scop, dependences, schedule).map(Some),
        Err(defect @ Error::Internal(_)) => Err(defect),
        Err(_) => Ok(None),
    }
}

/// The number of statements in parallel loops, once for each loop.
fn parallel_rows(schedule: &Schedule) -> usize {
    let mut count = 0;
    schedule.for_each_band(&mut |band| {
        count += band.rows.iter().filter(|r| r.coincident).map(|r| r.phi.len()).sum::<usize>();
    });
    count
}

/// The tree with one pair of neighbouring loops merged: the first pair that fits, after `nth` others.
fn merged(scop: &Scop, node: &Node, nth: &mut usize) -> Option<Node> {
    match node {
        Node::Leaf => None,
        Node::Band(band, child) => Some(Node::Band(band.clone(), Box::new(merged(scop, child, nth)?))),
        Node::Sequence(children) => {
            for at in 0..children.len() {
                let pair = children.get(at + 1).and_then(|next| together(scop, &children[at], next));
                let (pair, taken) = match pair {
                    Some(pair) if *nth == 0 => (pair, 2),
                    pair => {
                        *nth -= usize::from(pair.is_some());
                        let Some(inside) = merged(scop, &children[at].1, nth) else { continue };
                        ((children[at].0.clone(), inside), 1)
                    }
                };
                let mut out = children[..at].to_vec();
                out.push(pair);
                out.extend_from_slice(&children[at + taken..]);
                return Some(Node::Sequence(out));
            }
            None
        }
    }
}

/// Two bands as one of the leading rows that have the same values in both.
fn together(scop: &Scop, a: &Child, b: &Child) -> Option<Child> {
    let (Node::Band(first, inside), Node::Band(second, after)) = (&a.1, &b.1) else { return None };
    let plain = |row: &Row| row.kind == RowKind::Serial && row.tile == 1 && row.pad == 1;
    let alike = |(x, y): &(&Row, &Row)| plain(x) && plain(y) && x.values(scop) == y.values(scop);
    let shared = first.rows.iter().zip(&second.rows).take_while(alike).count();
    if shared == 0 {
        return None;
    }
    let row = |(x, y): (&Row, &Row)| Row { phi: [&x.phi[..], &y.phi].concat(), coincident: false, ..x.clone() };
    let rows = first.rows.iter().zip(&second.rows).take(shared).map(row).collect();
    let ids = [&a.0[..], &b.0].concat();
    let rest = |band: &Band, child: &Node| match band.rows.len() == shared {
        true => child.clone(),
        false => Node::Band(Band { rows: band.rows[shared..].to_vec(), ..band.clone() }, Box::new(child.clone())),
    };
    let inner = Node::Sequence(vec![(a.0.clone(), rest(first, inside)), (b.0.clone(), rest(second, after))]);
    Some((ids, Node::Band(Band { rows, permutable: false }, Box::new(inner))))
}
