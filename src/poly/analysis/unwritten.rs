//! Reads of elements that nothing has written.
//!
//! In: a Scop in its original order. Out: a read of an element of a temporary that no assignment has given before, or nothing.
//! The reads that see a write are the projections of the pairs of a read and an earlier write of its element (array data flow:
//! Feautrier, "Dataflow analysis of array and scalar references", 1991); what is left over of the reads sees none. Of a selection the
//! value that is not chosen does not count, so that reads inside of one are not asked for; a write at a subscript out of data
//! may be that of any element.

use super::dependence::{meeting, orders};
use crate::expr::{Access, Affine, BufferId, Expr, Index};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::{Role, Statement, StatementId};
use crate::runtime::{Error, Result};

/// Operations of isl for one program; beyond them reads are not refused.
pub const MAX_OPERATIONS: u64 = 1 << 20;

/// A read of an element that no assignment has given before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnwrittenRead {
    pub statement: StatementId,
    pub tensor: BufferId,
    /// The iterators of the instance that reads.
    pub point: Vec<i64>,
    pub element: Vec<i64>,
}

/// The first read of the first statement that reads an unwritten element of a temporary; `None` where there is none, or the question is
/// too large.
///
/// # Errors
/// `Internal` where isl fails.
pub fn unwritten_read(scop: &Scop) -> Result<Option<UnwrittenRead>> {
    let isl = Isl::with_operations(MAX_OPERATIONS);
    for id in scop.ids() {
        for (tensor, index, guard) in reads(scop, id) {
            match point(scop, id, tensor, (&index, &guard), &isl) {
                Ok(None) => {}
                Ok(Some(point)) => {
                    let element = index.iter().map(|a| a.evaluate(|v| point[v.0 as usize])).collect();
                    return Ok(Some(UnwrittenRead { statement: id, tensor, point, element }));
                }
                Err(Error::Limit(_)) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
    Ok(None)
}

/// The reads of temporaries that take place whatever the data, with subscripts and guards. An update of an element is not an assignment to it, and
/// its own read counts where another statement reads what it makes.
fn reads(scop: &Scop, id: StatementId) -> Vec<(BufferId, Vec<Affine>, Vec<Affine>)> {
    let s = scop.statement(id);
    let mut loads = vec![];
    certain_loads(&s.body, &mut loads);
    let mut out = vec![];
    let mut add = |tensor: BufferId, index: &[Index], guard: &[Affine]| {
        let affine: Option<Vec<Affine>> = index.iter().map(|i| i.affine().cloned()).collect();
        if let Some(index) = affine.filter(|_| scop.tensor(tensor).role == Role::Temporary) {
            out.push((tensor, index, guard.to_vec()));
        }
    };
    loads.iter().for_each(|a| add(a.buffer, &a.index, &a.guard));
    out
}

/// The loads of an expression outside of the branches of selections.
fn certain_loads<'a>(e: &'a Expr, out: &mut Vec<&'a Access>) {
    match e {
        Expr::Load(access) => out.push(access),
        Expr::Select(condition, _, _) => certain_loads(condition, out),
        e => e.children().for_each(|e| certain_loads(e, out)),
    }
}

/// The first instance of statement `id` that reads the element at `index` of a tensor before anything assigns it.
pub fn point(
    scop: &Scop,
    id: StatementId,
    tensor: BufferId,
    (index, guard): (&[Affine], &[Affine]),
    isl: &Isl,
) -> Result<Option<Vec<i64>>> {
    let reader = scop.statement(id);
    let index: Vec<Index> = index.iter().cloned().map(Index::Affine).collect();
    let mut instances = Polyhedron::domain(reader);
    guard.iter().for_each(|g| instances.inequalities.push(instances.form(g, 0)));
    let assigns = |s: &Statement| s.target == tensor && s.reduce.is_none();
    let (earlier, later): (Vec<StatementId>, Vec<StatementId>) =
        scop.ids().filter(|&w| assigns(scop.statement(w))).partition(|w| w.0 < id.0);
    // The nearest write before the read is the one that it most likely sees.
    let writes = earlier.into_iter().rev().chain(later).flat_map(|w| {
        let writer = scop.statement(w);
        let (n, m) = (reader.iterators.len(), writer.iterators.len());
        let pairs = meeting(reader, guard, &index, writer);
        let variables: Vec<usize> = (n..n + m).chain(0..n).collect();
        orders(scop, w, id).into_iter().rev().map(move |order| {
            let mut pairs = pairs.clone();
            pairs.conjoin(&order, &variables);
            pairs
        })
    });
    isl.first_point_outside(&instances, writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The element that is read unwritten, with the statement and its instance.
    fn unwritten(text: &str) -> Option<(u32, Vec<i64>, Vec<i64>)> {
        let scop = crate::poly::parse::scop(text).unwrap();
        unwritten_read(&scop).unwrap().map(|read| (read.statement.0, read.point, read.element))
    }

    #[test]
    fn elements_beyond_what_is_written_before_are_found() {
        for (written, from, expected) in
            [(8, 0, None), (7, 0, Some((1, vec![7], vec![7]))), (8, 1, Some((1, vec![0], vec![0])))]
        {
            let text = format!(
                "scop copy {{ A: f32[8] input; t: f32[8] temporary; B: f32[8] output;
                   S(i < {written}) if i - {from} >= 0: t[i] = A[i];
                   R(i < 8): B[i] = t[i];
                   order sequence {{S}} band i [serial] S(i) leaf {{R}} band i [serial] R(i) leaf }}"
            );
            assert_eq!(unwritten(&text), expected, "{written} {from}");
        }
    }

    /// Elements that a later iteration writes are not there yet; those of earlier ones are.
    #[test]
    fn the_order_of_iterations_counts() {
        for (subscript, guard, expected) in
            [("i", "", None), ("i - 1", " if i - 1 >= 0", None), ("i + 1", "", Some((1, vec![0], vec![1])))]
        {
            let text = format!(
                "scop carry {{ A: f32[8] input; t: f32[9] temporary; B: f32[8] output;
                   S(i < 8): t[i] = A[i];
                   R(i < 8){guard}: B[i] = t[{subscript}];
                   order band i [serial] S(i), R(i) sequence {{S}} leaf {{R}} leaf }}"
            );
            assert_eq!(unwritten(&text), expected, "{subscript}");
        }
    }

    #[test]
    fn an_update_is_no_assignment() {
        let text = |body: &str| {
            format!(
                "scop sums {{ A: f32[8] input; t: f32[8] temporary; B: f32[8] output;
                   {body}
                   order sequence {{S}} band i [serial] S(i) leaf {{R}} band i [serial] R(i) leaf }}"
            )
        };
        assert_eq!(unwritten(&text("S(i < 8): t[i] add= A[i]; R(i < 8): B[i] = t[i];")), Some((1, vec![0], vec![0])));
        assert_eq!(unwritten(&text("S(i < 8): t[i] add= A[i]; R(i < 8): B[i] = A[i];")), None);
        assert_eq!(unwritten(&text("S(i < 4): t[2*i] = A[i]; R(i < 4): B[i] = t[2*i];")), None);
        let odd = unwritten(&text("S(i < 4): t[2*i] = A[i]; R(i < 8): B[i] = t[i];"));
        assert_eq!(odd, Some((1, vec![1], vec![1])));
    }
}
