//! Exact dependences of a Scop.
//!
//! In: a Scop and its original order. Out: for each pair of accesses to one tensor, one of them a write, the pairs of
//! instances in their original order, as integer polyhedra over both iteration vectors: one for each loop of the original
//! order around both statements, whose earlier iteration has the source, and one where the same iterations of all of
//! them run the source first.
//!
//! - The updates of one reduction may be reordered: their dependences on each other are kept, marked
//!   [`Dependence::reduction`], and order nothing; but they may not run in parallel. In exchange initialisation and
//!   consumers depend on **all** instances of the update, not only on the first and the last.
//! - A dependence through a statement that runs completely in between and writes the whole tensor is left out: it follows
//!   from the others.
//! - A computed subscript ([`Index::Value`]), of a read or of a write, may be anything in its dimension. So a scatter
//!   touches all of these dimensions: its instances keep their order, but along the iterators of its affine subscripts,
//!   and unless they update with an operation whose order is free.
//! - An element of a private temporary is one only within an iteration of its loops ([`crate::poly::storage`]).
//!
//! These are memory-based dependences. When each element is written once they are the flow of values; in general
//! their transitive closure is that of flow, anti and output dependences, which is what legality needs.

use crate::expr::Affine;
use crate::expr::{Access, BufferId, Index};
use crate::poly::schedule::{Node, child_of};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Polyhedron, Reduced, difference, plus};
use crate::poly::statement::{Statement, StatementId, ranges};
use crate::runtime::Result;

/// Kinds of dependences, in the order in which one stands for several with the same pairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Flow: the sink reads an element that the source writes.
    Flow,
    /// Output: the sink overwrites an element that the source writes.
    Output,
    /// Anti: the sink overwrites an element that the source reads.
    Anti,
}

/// Pairs of instances that must keep their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependence {
    pub source: StatementId,
    pub sink: StatementId,
    pub kind: Kind,
    pub tensor: BufferId,
    /// Between updates of one reduction: any order, but not at the same time.
    pub reduction: bool,
    /// Over the iterators of the source, then those of the sink, then quotients.
    pub relation: Polyhedron,
    /// The subscripts of the write that the dependence is about, over the iterators of its statement (the source's,
    /// except for [`Kind::Anti`]); those from data are unknown.
    pub element: Vec<Option<Affine>>,
    /// Size of the tensor.
    pub bytes: i64,
}

/// All dependences of one Scop, in the order of their sinks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dependences {
    pub list: Vec<Dependence>,
}

/// One access of a statement.
struct StatementAccess {
    statement: StatementId,
    tensor: BufferId,
    index: Vec<Index>,
    /// Least and largest value of each subscript.
    bounds: Vec<(i64, i64)>,
    guard: Vec<Affine>,
    write: bool,
    /// The read or the write that a reduction combines with; a read in its body is not.
    update: bool,
}

impl StatementAccess {
    /// Not where the boxes of their elements lie apart.
    fn may_meet(&self, other: &StatementAccess) -> bool {
        let mut both = self.bounds.iter().zip(&other.bounds);
        self.tensor == other.tensor && both.all(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
    }
}

/// Finds the dependences of `scop`.
pub fn analyze(scop: &Scop) -> Result<Dependences> {
    let isl = Isl::default();
    let mut out = Dependences::default();
    let touches: Vec<Vec<StatementAccess>> = scop.ids().map(|id| touches(scop, id)).collect();
    for (t, sinks) in touches.iter().enumerate() {
        for s in (0..=t).rev().chain(t + 1..touches.len()) {
            let mut pairs = vec![];
            for source in &touches[s] {
                let meets = |sink: &&StatementAccess| source.may_meet(sink) && (sink.write || source.write);
                pairs.extend(sinks.iter().filter(meets).map(|sink| (source, sink)));
            }
            if pairs.is_empty() {
                continue;
            }
            let orders = orders(scop, StatementId(s as u32), StatementId(t as u32));
            let first = out.list.len();
            for (source, sink) in pairs {
                if orders.is_empty() || s != t && covered_between(scop, source.tensor, s, t) {
                    continue;
                }
                add(scop, &isl, (source, sink), &orders, &mut out.list, first).map_err(|e| {
                    let [a, b] = [s, t].map(|i| &scop.statements[i].name);
                    e.context(&format!("the dependences of {b} on {a}"))
                })?;
            }
        }
    }
    Ok(out)
}

/// The pairs of instances of which the first runs before the second in the original order, over the iterators of both and
/// quotients, as disjoint polyhedra without the domains.
pub fn orders(scop: &Scop, first: StatementId, second: StatementId) -> Vec<Polyhedron> {
    let n = scop.statement(first).iterators.len();
    let mut same = Polyhedron::universe(n + scop.statement(second).iterators.len());
    let mut out = vec![];
    let mut node = &scop.order.root;
    loop {
        match node {
            Node::Leaf => return out,
            Node::Sequence(children) => {
                let child = |id: StatementId| child_of(children, id).expect("verified");
                let (a, b) = (child(first), child(second));
                if a != b {
                    out.extend((a < b).then_some(same));
                    return out;
                }
                node = &children[a].1;
            }
            Node::Band(band, child) => {
                for row in &band.rows {
                    let (first, second) = (same.form(row.of(first), 0), same.form(row.of(second), n));
                    let (first, second) = (same.quotient(first, row.tile), same.quotient(second, row.tile));
                    let step = difference(&same.widen(second), &same.widen(first));
                    let mut later = same.clone();
                    later.inequalities.push(plus(&step, -1));
                    out.push(later);
                    same.equalities.push(step);
                }
                node = child;
            }
        }
    }
}

/// The pairs of instances of which the first reads, under `guard`, the element at `index` that the second writes. A subscript out
/// of data may have any value.
pub fn meeting(reader: &Statement, guard: &[Affine], index: &[Index], writer: &Statement) -> Polyhedron {
    at_one_element((reader, guard, index), (writer, &[], &writer.subscripts()))
}

/// The pairs of instances of two statements, each with the guard and the subscripts of an access, whose accesses meet.
fn at_one_element(a: (&Statement, &[Affine], &[Index]), b: (&Statement, &[Affine], &[Index])) -> Polyhedron {
    let n = a.0.iterators.len();
    let mut both = Polyhedron::universe(n + b.0.iterators.len());
    for ((statement, guard, _), first) in [(a, 0), (b, n)] {
        both.add_domain(statement, first);
        guard.iter().for_each(|g| both.inequalities.push(both.form(g, first)));
    }
    for (x, y) in a.2.iter().zip(b.2) {
        if let (Index::Affine(x), Index::Affine(y)) = (x, y) {
            let equal = difference(&both.form(x, 0), &both.form(y, n));
            both.equalities.extend(equal.iter().any(|&c| c != 0).then_some(equal));
        }
    }
    both
}

/// Dependences that hold if the elements of a temporary whose subscripts in `dimension` are `period` apart, or more, share memory: each access to
/// the element of the less subscript (the greater one for a negative period) before each to the other, one of both a write. `None` where data name elements.
pub fn of_shared_memory(scop: &Scop, tensor: BufferId, dimension: usize, period: i64) -> Option<Vec<Dependence>> {
    let all: Vec<StatementAccess> =
        scop.users(tensor).iter().flat_map(|&id| touches(scop, id)).filter(|a| a.tensor == tensor).collect();
    if all.iter().any(|a| a.index.iter().any(|i| i.affine().is_none())) {
        return None;
    }
    let mut out: Vec<Dependence> = vec![];
    for source in &all {
        for sink in all.iter().filter(|sink| sink.write || source.write) {
            let (a, b) = (scop.statement(source.statement), scop.statement(sink.statement));
            let n = a.iterators.len();
            let others = |index: &[Index]| -> Vec<Index> {
                index.iter().enumerate().filter(|i| i.0 != dimension).map(|i| i.1.clone()).collect()
            };
            let mut relation =
                at_one_element((a, &source.guard, &others(&source.index)), (b, &sink.guard, &others(&sink.index)));
            let subscript = |a: &StatementAccess| a.index[dimension].affine().expect("affine").clone();
            let (x, y) = (relation.form(&subscript(source), 0), relation.form(&subscript(sink), n));
            let step = if period > 0 { difference(&y, &x) } else { difference(&x, &y) };
            relation.inequalities.push(plus(&step, -period.abs()));
            relation.inequalities.sort();
            relation.inequalities.dedup();
            let write = if source.write { source } else { sink };
            let kind = match (source.write, sink.write) {
                (true, false) => Kind::Flow,
                (true, true) => Kind::Output,
                (false, _) => Kind::Anti,
            };
            let known =
                |d: &Dependence| (d.source, d.sink) == (source.statement, sink.statement) && d.relation == relation;
            if out.iter().any(known) {
                continue;
            }
            out.push(Dependence {
                source: source.statement,
                sink: sink.statement,
                kind,
                tensor,
                reduction: false,
                relation,
                element: write.index.iter().map(|i| i.affine().cloned()).collect(),
                bytes: bytes(scop, tensor),
            });
        }
    }
    Some(out)
}

/// The write, which is also a read in a reduction, and the reads of the body.
fn touches(scop: &Scop, id: StatementId) -> Vec<StatementAccess> {
    let s = scop.statement(id);
    let index = s.subscripts();
    let update = s.reduce.is_some();
    let bounds = |index: &[Index]| -> Vec<(i64, i64)> {
        let range = ranges(&s.iterators);
        index.iter().map(|i| i.affine().map_or((i64::MIN, i64::MAX), |a| a.bounds(range))).collect()
    };
    let of_write = bounds(&index);
    let write = StatementAccess {
        statement: id,
        tensor: s.target,
        index,
        bounds: of_write,
        guard: vec![],
        write: true,
        update,
    };
    let mut out = vec![];
    if update {
        out.push(StatementAccess {
            index: write.index.clone(),
            bounds: write.bounds.clone(),
            write: false,
            guard: vec![],
            ..write
        });
    }
    let mut read = |a: &Access| {
        out.push(StatementAccess {
            statement: id,
            tensor: a.buffer,
            index: a.index.clone(),
            bounds: bounds(&a.index),
            guard: a.guard.clone(),
            write: false,
            update: false,
        })
    };
    s.computed.iter().for_each(|(_, e)| e.visit_accesses(&mut read));
    s.body.visit_accesses(&mut read);
    out.push(write);
    out
}

/// Returns true if a statement that runs completely between all of `s` and all of `t` writes every element of the
/// tensor.
fn covered_between(scop: &Scop, tensor: BufferId, s: usize, t: usize) -> bool {
    let Node::Sequence(children) = &scop.order.root else { return false };
    let child = |s: usize| child_of(children, StatementId(s as u32));
    let between = |k: usize| child(s) < child(k) && child(k) < child(t);
    scop.statements.iter().enumerate().any(|(i, k)| k.target == tensor && between(i) && writes_all(scop, k))
}

fn writes_all(scop: &Scop, s: &Statement) -> bool {
    let shape = &scop.tensor(s.target).shape;
    let mut seen = vec![false; s.iterators.len()];
    s.domain.is_empty()
        && !s.is_scatter()
        && s.write.iter().zip(shape).all(|(w, &extent)| match w.terms[..] {
            [(v, 1)] => {
                let i = v.0 as usize;
                w.constant == 0 && s.iterators[i].extent == extent && !std::mem::replace(&mut seen[i], true)
            }
            _ => false,
        })
}

/// Adds the dependences between two accesses to a list; those between the same statements begin at `first`.
fn add(
    scop: &Scop,
    isl: &Isl,
    (source, sink): (&StatementAccess, &StatementAccess),
    orders: &[Polyhedron],
    out: &mut Vec<Dependence>,
    first: usize,
) -> Result<()> {
    let (a, b) = (scop.statement(source.statement), scop.statement(sink.statement));
    let n = a.iterators.len();
    let mut relation = at_one_element((a, &source.guard, &source.index), (b, &sink.guard, &sink.index));
    if let Some(private) = scop.private(source.tensor) {
        for row in &private.rows {
            let (x, y) = (row.of(source.statement), row.of(sink.statement));
            let (x, y) = (relation.form(x, 0), relation.form(y, n));
            relation.same_tile(x, y, row.tile);
        }
    }
    relation.inequalities.sort();
    relation.inequalities.dedup();
    let same = source.statement == sink.statement;
    let reduction = same && source.update && sink.update;
    let kind = match (source.write, sink.write) {
        _ if reduction => Kind::Output,
        (true, false) => Kind::Flow,
        (false, _) => Kind::Anti,
        (true, true) => Kind::Output,
    };
    let write = if source.write { source } else { sink };
    let dependence = Dependence {
        source: source.statement,
        sink: sink.statement,
        kind,
        tensor: source.tensor,
        reduction,
        relation,
        element: write.index.iter().map(|i| i.affine().cloned()).collect(),
        bytes: bytes(scop, source.tensor),
    };
    let any = [Polyhedron::default()];
    for order in if reduction { &any } else { orders } {
        let mut d = dependence.clone();
        let both: Vec<usize> = (0..order.dims.min(n + b.iterators.len())).collect();
        d.relation.conjoin(order, &both);
        let same_access = |k: &Dependence| (k.tensor, k.reduction) == (d.tensor, reduction);
        if let Some(known) = out[first..].iter_mut().find(|k| same_access(k) && k.relation == d.relation) {
            if d.kind < known.kind {
                *known = d;
            }
            continue;
        }
        let reduced = Reduced::new(&d.relation);
        let exact = reduced.equalities.is_empty() && reduced.inequalities.is_empty();
        if !reduced.empty && (exact || !isl.is_empty_reduced(&d.relation, &reduced)?) {
            out.push(d);
        }
    }
    Ok(())
}

/// Returns true if an instance of an update reads, in its body, an element of the target that an instance with equal
/// values of all forms `same` writes: the sum of these instances then cannot be kept elsewhere until it is complete.
pub fn reads_sums(s: &Statement, same: &[Affine], isl: &Isl) -> Result<bool> {
    reads_sums_from(s, same, None, isl)
}

/// As [`reads_sums`], of reads that may run when the instance has written already: `order` is the outermost row of what runs
/// until the sums are complete, its φ and the values that one step of it has.
pub fn reads_sums_from(s: &Statement, same: &[Affine], order: Option<(&Affine, i64)>, isl: &Isl) -> Result<bool> {
    let n = s.iterators.len();
    let mut pairs = Polyhedron::universe(2 * n);
    pairs.add_domain(s, 0);
    pairs.add_domain(s, n);
    for form in same {
        pairs.equalities.push(difference(&pairs.form(form, 0), &pairs.form(form, n)));
    }
    if let Some((form, step)) = order {
        pairs.inequalities.push(plus(&difference(&pairs.form(form, n), &pairs.form(form, 0)), step - 1));
    }
    let mut reads = vec![];
    s.visit_accesses(&mut |a| {
        if a.buffer == s.target {
            reads.push(a.clone());
        }
    });
    for read in reads {
        let mut p = pairs.clone();
        read.guard.iter().for_each(|g| p.inequalities.push(p.form(g, n)));
        for (w, r) in s.subscripts().iter().zip(&read.index) {
            if let (Index::Affine(w), Index::Affine(r)) = (w, r) {
                p.equalities.push(difference(&p.form(w, 0), &p.form(r, n)));
            }
        }
        if !isl.is_empty(&p)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn bytes(scop: &Scop, tensor: BufferId) -> i64 {
    let t = scop.tensor(tensor);
    t.shape.iter().fold(t.dtype.bytes() as i64, |bytes, &extent| bytes.saturating_mul(extent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::normalize::build;
    use crate::poly::samples;

    fn summary(p: &crate::poly::statement::Program) -> Vec<String> {
        let scop = build::build("t", p).unwrap();
        let d = analyze(&scop).unwrap();
        let name = |id: StatementId| &scop.statement(id).name;
        let line = |d: &Dependence| {
            let tensor = &scop.tensor(d.tensor).name;
            let mark = if d.reduction { " (reduction)" } else { "" };
            format!("{} -> {} {:?} {tensor}{mark}", name(d.source), name(d.sink), d.kind)
        };
        d.list.iter().map(line).collect()
    }

    #[test]
    fn matrix_product() {
        assert_eq!(
            summary(&samples::matmul(8, 6, 4)),
            [
                "C_update -> C_update Output C_acc (reduction)",
                "C_init -> C_update Flow C_acc",
                "C_update -> C Flow C_acc"
            ]
        );
    }

    #[test]
    fn statements_in_one_time_loop() {
        let text = "scop stencil { A: f64[9] inout; B: f64[9] temporary;
          S(t < 4, i < 9) if i - 1 >= 0 && -i + 7 >= 0: B[i] = (A[i - 1] + A[i + 1]);
          T(t < 4, i < 9) if i - 1 >= 0 && -i + 7 >= 0: A[i] = B[i];
          order band t [serial] S(t), T(t) sequence {S} band i [serial] S(i) leaf {T} band i [serial] T(i) leaf }";
        let scop = crate::poly::parse::scop(text).unwrap();
        let d = analyze(&scop).unwrap();
        let count = |kind, source, sink| {
            let of = |d: &&Dependence| (d.kind, d.source.0, d.sink.0) == (kind, source, sink);
            d.list.iter().filter(of).count()
        };
        // Each pair of accesses in the same iteration of t and in a later one, as far as it exists.
        assert_eq!(count(Kind::Flow, 0, 1), 2);
        assert_eq!(count(Kind::Flow, 1, 0), 2);
        assert_eq!(count(Kind::Anti, 0, 1), 4);
        assert_eq!(count(Kind::Anti, 1, 0), 1);
        assert_eq!(count(Kind::Output, 0, 0), 1);
        assert_eq!(count(Kind::Output, 1, 1), 1);
        assert_eq!(d.list.len(), 11);
    }

    /// A write hides the ones before it from the reads after it only where it covers the whole tensor.
    #[test]
    fn a_statement_between_hides_what_it_writes_completely() {
        for (between, hides) in [
            ("T(i < 6, j < 6): A[i][j] = B[i];", true),
            ("T(i < 6, j < 6): A[j][i] = B[i];", true),
            ("T(i < 6, j < 5): A[i][j] = B[i];", false),
            ("T(i < 6, j < 5): A[i][j + 1] = B[i];", false),
            ("T(i < 6, j < 6): A[i][i] = B[i];", false),
            ("T(i < 6, j < 6) if i + j - 1 >= 0: A[i][j] = B[i];", false),
            ("T(i < 3, j < 6): A[2 * i][j] = B[i];", false),
        ] {
            let text = format!(
                "scop hidden {{ A: f32[6][6] temporary; B: f32[6] input; C: f32[6][6] output;
                   S(i < 6, j < 6): A[i][j] = B[j]; {between} U(i < 6, j < 6): C[i][j] = A[i][j];
                   order sequence {{S}} band i [serial] S(i) j [serial] S(j) leaf
                     {{T}} band i [serial] T(i) j [serial] T(j) leaf {{U}} band i [serial] U(i) j [serial] U(j) leaf }}"
            );
            let d = analyze(&crate::poly::parse::scop(&text).unwrap()).unwrap();
            let flow = d.list.iter().any(|d| (d.kind, d.source.0, d.sink.0) == (Kind::Flow, 0, 2));
            assert_eq!(flow, !hides, "{between}");
        }
    }

    /// Writes on one side of a diagonal and reads on the other have no element in common, which intervals do not tell.
    #[test]
    fn the_sides_of_a_diagonal_are_apart() {
        for (side, depends) in [("j - i - 1", false), ("j - i", true)] {
            let text = format!(
                "scop sides {{ A: f32[900][900] inout; B: f32[900][900] output; C: f32[900] input;
                   S(i < 900, j < 900) if i - j >= 0: A[i][j] = C[j];
                   T(i < 900, j < 900) if {side} >= 0: B[i][j] = A[i][j]; }}"
            );
            let d = analyze(&crate::poly::parse::scop(&text).unwrap()).unwrap();
            assert_eq!(d.list.iter().any(|d| d.kind == Kind::Flow), depends, "{side}");
        }
    }

    #[test]
    fn sums_that_are_read_again_are_seen() {
        let text = "scop sums { A: f32[6][6] input; B: f32[6] inout;
          S(i < 6, k < 6) if i - 1 >= 0: B[i] add= (A[i][k] * B[i - 1]);
          order band i [serial] S(i) k [serial] S(k) leaf }";
        let scop = crate::poly::parse::scop(text).unwrap();
        let reads = |same: &[Affine]| reads_sums(&scop.statements[0], same, &Isl::default()).unwrap();
        let v = |i: u32| Affine::var(crate::expr::Var(i));
        assert!(reads(&[]) && reads(&[v(1)]));
        assert!(!reads(&[v(0)]) && !reads(&[v(1), v(0)]));
        // Tiles of two rows read the sums of each other.
        assert!(reads(&[v(0).scale(0)]));
    }

    /// Instances outside of the domain write and read nothing.
    #[test]
    fn sums_are_written_and_read_in_the_domain_only() {
        for (first, reads) in [(4, false), (3, true)] {
            let text = format!(
                "scop sums {{ A: f32[8][6] input; B: f32[8] inout;
                   S(i < 8, k < 6) if i - 4 >= 0: B[i] add= (A[i][k] * B[i - {first}]);
                   order band i [serial] S(i) k [serial] S(k) leaf }}"
            );
            let scop = crate::poly::parse::scop(&text).unwrap();
            assert_eq!(reads_sums(&scop.statements[0], &[], &Isl::default()).unwrap(), reads, "{first}");
        }
    }

    /// Each instance reads the sum of the row before: with the rows backwards none that is complete or begun already, unless
    /// two rows run in one step.
    #[test]
    fn sums_are_read_in_the_order_of_a_row() {
        let text = "scop sums { A: f32[6][6] input; B: f32[6] inout;
          S(i < 6, k < 6) if i - 1 >= 0: B[i] add= (A[i][k] * B[i - 1]);
          order band i [serial] S(i) k [serial] S(k) leaf }";
        let scop = crate::poly::parse::scop(text).unwrap();
        let i = Affine::var(crate::expr::Var(0));
        let backwards = i.scale(-1);
        for (order, reads) in
            [(None, true), (Some((&i, 1)), true), (Some((&backwards, 1)), false), (Some((&backwards, 2)), true)]
        {
            let found = reads_sums_from(&scop.statements[0], &[], order, &Isl::default()).unwrap();
            assert_eq!(found, reads, "{order:?}");
        }
    }

    #[test]
    fn padding_lets_the_initial_value_through() {
        let g = samples::Conv { size: 8, channels: 4, filters: 4, kernel: 3, stride: 1, pad: 1 };
        let found = summary(&samples::conv(g));
        assert!(found.contains(&"conv_init -> Y Flow conv".to_string()), "{found:?}");
    }

    #[test]
    fn softmax() {
        assert_eq!(
            summary(&samples::softmax(2, 3, 4)),
            [
                "top_update -> top_update Output top (reduction)",
                "top_init -> top_update Flow top",
                "top_update -> e Flow top",
                "total_update -> total_update Output total (reduction)",
                "total_init -> total_update Flow total",
                "e -> total_update Flow e",
                "total_update -> Y Flow total",
                "e -> Y Flow e",
            ]
        );
    }
}
