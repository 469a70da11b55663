//! The ILP's order with more loops fused, whether they are parallel or not.
//!
//! The ILP shares a row between strongly connected components only where it is parallel, and distributes a parallel loop from a serial sum
//! over what it computes. That is what threads want; one thread may want the other extreme of Bondhugula et al. (PLDI 2008), *maximal fusion*:
//! what one loop computes is read while it is in registers, or in the first cache.
//!
//! In: a schedule. Out: schedules in which loops that follow each other run as one, where they have the same values and that is legal: one
//! whose parallel loops stay parallel, and one of all loops that fit.

use crate::poly::analysis::dependence::Dependences;
use crate::poly::analysis::{flags, legality};
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::statement::StatementId;
use crate::runtime::{Error, Result};

/// Pairs of loops that are tried.
const PAIRS: usize = 16;

type Child = (Vec<StatementId>, Node);

/// The schedules with loops fused, with exact flags; none where no two fit together. The schedule is legal, so that what is left to prove
/// of a fused pair are the dependences between its loops.
///
/// # Errors
/// [`Error::Internal`] where a proof ends in it.
pub fn fused(scop: &Scop, dependences: &Dependences, schedule: &Schedule, answers: &Answers) -> Result<Vec<Schedule>> {
    let mut out: Vec<Schedule> = vec![];
    if merged(scop, &schedule.root, &mut 0).is_none() {
        return Ok(out);
    }
    let flagged = flags::flag(scop, dependences, schedule)?;
    let mut trials = Trials { scop, dependences, answers, known: vec![] };
    for parallel in [true, false] {
        let (mut best, mut rows) = (flagged.clone(), parallel_rows(schedule));
        let mut skipped = 0;
        for _ in 0..PAIRS {
            let mut nth = skipped;
            let Some((root, pair)) = merged(scop, &best.root, &mut nth) else { break };
            match trials.legal(Schedule { root: root.flattened() }, &pair)? {
                Some(legal) if !parallel || parallel_rows(&legal) >= rows => {
                    rows = parallel_rows(&legal);
                    best = legal;
                }
                _ => skipped += 1,
            }
        }
        if best != flagged && !out.contains(&best) {
            out.push(best);
        }
    }
    Ok(out)
}

/// Statements of two loops.
type Pair = [Vec<StatementId>; 2];

/// Schedules that were tried, each with exact flags if it is legal.
struct Trials<'a> {
    scop: &'a Scop,
    dependences: &'a Dependences,
    answers: &'a Answers,
    known: Vec<(Schedule, Option<Schedule>)>,
}

impl Trials<'_> {
    /// A legal schedule in which two loops were merged, with exact flags, if it is still legal.
    fn legal(&mut self, schedule: Schedule, pair: &Pair) -> Result<Option<Schedule>> {
        if let Some((_, legal)) = self.known.iter().find(|(known, _)| *known == schedule) {
            return Ok(legal.clone());
        }
        let (scop, dependences, answers) = (self.scop, self.dependences, self.answers);
        let legal = match legality::check_between(scop, dependences, &schedule, pair, answers) {
            Ok(()) => Some(flags::flag_part(scop, dependences, &schedule, &pair.concat(), answers)?),
            Err(defect @ Error::Internal(_)) => return Err(defect),
            Err(_) => None,
        };
        self.known.push((schedule, legal.clone()));
        Ok(legal)
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

/// The tree with one pair of neighbouring loops merged, and their statements: the first pair that fits, after `nth` others.
fn merged(scop: &Scop, node: &Node, nth: &mut usize) -> Option<(Node, Pair)> {
    match node {
        Node::Leaf => None,
        Node::Band(band, child) => {
            let (child, pair) = merged(scop, child, nth)?;
            Some((Node::Band(band.clone(), Box::new(child)), pair))
        }
        Node::Sequence(children) => {
            for at in 0..children.len() {
                let pair = children.get(at + 1).and_then(|next| together(scop, &children[at], next));
                let (child, pair, taken) = match pair {
                    Some(child) if *nth == 0 => (child, [at, at + 1].map(|at| children[at].0.clone()), 2),
                    pair => {
                        *nth -= usize::from(pair.is_some());
                        let Some((inside, pair)) = merged(scop, &children[at].1, nth) else { continue };
                        ((children[at].0.clone(), inside), pair, 1)
                    }
                };
                let mut out = children[..at].to_vec();
                out.push(child);
                out.extend_from_slice(&children[at + taken..]);
                return Some((Node::Sequence(out), pair));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;
    use crate::poly::analysis::dependence;
    use crate::poly::ilp;

    /// Proofs and flags of a pair of loops agree with those of the whole schedule.
    #[test]
    fn fused_schedules_are_legal_and_have_exact_flags() {
        let mut found = 0;
        for body in [
            "for i in 0..8 for j in 0..9 a[i][j] = x[i][j] * 2
             for i in 0..8 for j in 1..9 b[i][j] = b[i][j - 1] + a[i][j]
             for i in 0..8 for j in 0..9 x[i][j] = b[i][j]",
            "for t in 0..3 {
               for i in 1..8 for j in 0..9 a[i][j] = a[i - 1][j] + x[i][j]
               for i in 1..8 for j in 0..9 b[i][j] = a[i][j]
               for i in 1..8 for j in 0..8 x[i][j] = b[i][j + 1] }",
            "for i in 0..8 { for j in 0..9 a[i][j] = x[i][j]  for j in 1..9 x[i][j] = x[i][j - 1] + a[i][j] }
             for i in 1..8 for j in 0..9 b[i][j] = a[i - 1][j] + b[i - 1][j]",
        ] {
            let text = format!("loop p() {{ inout f32 x[8][9], a[8][9], b[8][9] {body} }}");
            let file = language::parse("t.tile", &text).unwrap();
            let scop = file.lower(file.program(None).unwrap(), &Default::default(), None).unwrap().normal().unwrap();
            let dependences = dependence::analyze(&scop).unwrap();
            for schedule in [ilp::schedule(&scop, &dependences).unwrap().0, scop.order.clone()] {
                for fused in fused(&scop, &dependences, &schedule, &Answers::default()).unwrap() {
                    legality::check(&scop, &dependences, &fused).unwrap();
                    assert_eq!(flags::flag(&scop, &dependences, &fused).unwrap(), fused, "{text}");
                    found += 1;
                }
            }
        }
        assert!(found >= 3, "{found}");
    }
}
