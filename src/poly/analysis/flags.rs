//! Exact flags of a schedule: which loops carry nothing, and which bands are permutable.
//!
//! In: a Scop, its dependences, a tree. Out: the tree, its statements sorted in rows and filters. The tree is walked from the root with the
//! pairs of instances that are left ([`Unsatisfied`]).

use crate::poly::analysis::dependence::{Dependence, Dependences};
use crate::poly::analysis::legality::Unsatisfied;
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;
use crate::runtime::Result;

/// Returns the tree with exact flags, statements sorted in rows and filters: a row is coincident when no dependence
/// that is left at its band has a distance in φ, a band permutable when none has a negative one.
pub fn flag(scop: &Scop, dependences: &Dependences, schedule: &Schedule) -> Result<Schedule> {
    let live = dependences.list.iter().map(|d| (d, Unsatisfied::new(d))).collect();
    Ok(Schedule { root: flag_node(scop, &Isl::default(), &schedule.root, live)? })
}

/// [`flag`] of a tree whose flags are exact outside of the node of the statements `part`.
pub fn flag_part(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    part: &[StatementId],
    answers: &Answers,
) -> Result<Schedule> {
    let inside = dependences.list.iter().filter(|d| part.contains(&d.source) && part.contains(&d.sink));
    let live = inside.map(|d| (d, Unsatisfied::new(d))).collect();
    Ok(Schedule { root: flag_below(scop, &Isl::with_answers(answers), &schedule.root, part, live)? })
}

fn flag_below(
    scop: &Scop,
    isl: &Isl,
    node: &Node,
    part: &[StatementId],
    mut live: Vec<(&Dependence, Unsatisfied)>,
) -> Result<Node> {
    match node {
        Node::Sequence(children) if !children.iter().all(|(ids, _)| part.contains(&ids[0])) => {
            let mut out = children.clone();
            if let Some((ids, child)) = out.iter_mut().find(|(ids, _)| ids.contains(&part[0])) {
                *child = flag_below(scop, isl, child, part, live)?;
                ids.sort();
            }
            Ok(Node::Sequence(out))
        }
        Node::Band(band, child) if band.rows.iter().any(|row| row.phi.len() > part.len()) => {
            for row in &band.rows {
                live = live.into_iter().filter_map(|(d, l)| Some((d, l.after(scop, d, row)?))).collect();
            }
            Ok(Node::Band(band.clone(), Box::new(flag_below(scop, isl, child, part, live)?)))
        }
        node => flag_node(scop, isl, node, live),
    }
}

fn flag_node(scop: &Scop, isl: &Isl, node: &Node, live: Vec<(&Dependence, Unsatisfied)>) -> Result<Node> {
    Ok(match node {
        Node::Leaf => Node::Leaf,
        Node::Sequence(children) => {
            let inside = |ids: &[StatementId]| {
                let both = |d: &Dependence| ids.contains(&d.source) && ids.contains(&d.sink);
                live.iter().filter(|(d, _)| both(d)).cloned().collect()
            };
            let flagged = |(ids, child): &(Vec<StatementId>, Node)| {
                let mut sorted = ids.clone();
                sorted.sort();
                Ok((sorted, flag_node(scop, isl, child, inside(ids))?))
            };
            Node::Sequence(children.iter().map(flagged).collect::<Result<_>>()?)
        }
        Node::Band(band, child) => {
            let mut flagged = Band { rows: vec![], permutable: true };
            let mut unsatisfied = live.clone();
            for row in &band.rows {
                let point = Row { tile: 1, kind: RowKind::Serial, ..row.clone() };
                let mut coincident = true;
                for (d, l) in &live {
                    coincident = coincident && l.coincides(scop, d, &point, isl)?;
                    flagged.permutable =
                        flagged.permutable && (d.reduction || coincident || l.respects(scop, d, &point, isl)?);
                }
                let mut phi = row.phi.clone();
                phi.sort();
                flagged.rows.push(Row { phi, coincident, ..row.clone() });
                unsatisfied = unsatisfied.into_iter().filter_map(|(d, l)| Some((d, l.after(scop, d, row)?))).collect();
            }
            let mut left = vec![];
            for (d, l) in unsatisfied {
                if !l.is_empty(isl)? {
                    left.push((d, l));
                }
            }
            Node::Band(flagged, Box::new(flag_node(scop, isl, child, left)?))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::analysis::dependence;

    /// `A[i][j] = A[i - 1][j] + A[i][j - 1]` has the distances (1, 0) and (0, 1); with `j + 1` the first is (1, -1).
    #[test]
    fn a_band_is_permutable_unless_a_dependence_goes_back_in_a_row() {
        for (column, permutable) in [("j", true), ("j + 1", false)] {
            let text = format!(
                "scop stencil {{ A: f32[8][8] inout;
                   S(i < 8, j < 8) if i - 1 >= 0 && j - 1 >= 0 && -j + 6 >= 0: A[i][j] = (A[i - 1][{column}] + A[i][j - 1]);
                   order band i [serial] S(i) j [serial] S(j) leaf }}"
            );
            let scop = crate::poly::parse::scop(&text).unwrap();
            let flagged = flag(&scop, &dependence::analyze(&scop).unwrap(), &scop.order).unwrap();
            let Node::Band(band, _) = &flagged.root else { panic!("a band") };
            assert_eq!(band.permutable, permutable, "{column}");
            assert!(band.rows.iter().all(|r| !r.coincident), "{column}");
        }
    }

    /// In a band of its own the row `j` has the distance (1, 1) behind it; in one band both rows carry it.
    #[test]
    fn a_band_inside_carries_what_the_one_around_it_leaves() {
        for (between, coincident) in [("band", true), ("", false)] {
            let text = format!(
                "scop diagonal {{ A: f32[8][8] inout;
                   S(i < 8, j < 8) if i - 1 >= 0 && j - 1 >= 0: A[i][j] = A[i - 1][j - 1];
                   order band i [serial] S(i) {between} j [serial] S(j) leaf }}"
            );
            let scop = crate::poly::parse::scop(&text).unwrap();
            let flagged = flag(&scop, &dependence::analyze(&scop).unwrap(), &scop.order).unwrap();
            let mut last = None;
            flagged.for_each_band(&mut |band| last = band.rows.last().map(|r| r.coincident));
            assert_eq!(last, Some(coincident), "{text}");
        }
    }
}
