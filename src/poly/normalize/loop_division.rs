//! Loop division: a loop whose index is divided by a number becomes a loop over the quotient and one over the remainder.
//!
//! In: a Scop in its original order. Out: the same instances in the same order, where `i` is `3 * q + r` and the subscript
//! `i % 3` is r (strip mining: Loveman, "Program Improvement by Source-to-Source Transformation", JACM 1977). A few remainders are copies
//! of the statements (loop unrolling), more of them are a loop. A loop is divided where dependences follow from the quotient or
//! the remainder, or neighbouring elements are read by it, which takes more values than [`piecewise`](crate::expr::piecewise)
//! enumerates, and where that makes it affine.

use crate::expr::interval::{ceil_div, gcd};
use crate::expr::piecewise::{self, PERIODS, digits, division, pieces};
use crate::expr::{Affine, Expr, Var};
use crate::poly::analysis::quasi_affine::{QuasiAffine, quasi_affine};
use crate::poly::schedule::{Band, Node, Row, Schedule, SequencePart, in_sequence};
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, Statement, StatementId, number, ranges};
use std::collections::BTreeMap;

/// Most remainders that are copies.
const COPIES: i64 = 4;

/// Greatest divisor.
const DIVISOR: i64 = 1 << 16;

/// Most divisions of a loop one after the other, as by 2 and then by 3.
const ROUNDS: usize = 3;

/// Divides loops as long as that makes a subscript or a condition affine; `None` where there are none to divide, or the
/// result has more than `most` statements.
pub fn divide(scop: &Scop, most: usize) -> Option<Scop> {
    let mut out = None;
    for _ in 0..ROUNDS {
        let current: &Scop = out.as_ref().unwrap_or(scop);
        let requests = requests(current);
        if requests.is_empty() || !has_plain_loops(current) {
            break;
        }
        out = Some(Division::new(current, &requests, most).run()?);
    }
    out
}

/// Returns true if the loops around each statement are over its iterators, in their order.
pub fn has_plain_loops(scop: &Scop) -> bool {
    let mut plain = true;
    scop.order.for_each_band(&mut |band| plain &= band.rows.iter().all(|r| r.tile == 1));
    plain
        && scop.ids().all(|id| {
            let rows = scop.order.around(&[id]);
            let is = |(d, row): (usize, &&Row)| matches!(row.of(id).terms[..], [(v, 1 | -1)] if v.0 as usize == d);
            rows.len() == scop.statement(id).iterators.len() && rows.iter().enumerate().all(is)
        })
}

/// Divisors of the loops around each statement, by statement and loop.
type Requests = BTreeMap<(StatementId, usize), i64>;

fn requests(scop: &Scop) -> Requests {
    let mut out = Requests::new();
    for id in scop.ids() {
        let s = scop.statement(id);
        for q in quasi_affine(s, &scop.tensors).iter().filter(|q| q.depends || q.contiguous) {
            for (v, divisor) in divisors(q, s) {
                let of = out.entry((id, v.0 as usize)).or_insert(1);
                *of = lcm(*of, divisor);
            }
        }
    }
    out.retain(|_, divisor| (2..=DIVISOR).contains(divisor));
    out
}

/// The divisors of iterators that make the divisions in an expression affine.
fn divisors(q: &QuasiAffine, s: &Statement) -> Vec<(Var, i64)> {
    let ranges = &ranges(&s.iterators);
    let mut out = vec![];
    q.e.visit(&mut |e| {
        let many = |d: &piecewise::Division| pieces(e, ranges).is_none_or(|pieces| pieces.len() as i64 > d.divisor);
        let Some(d) = division(e).filter(|d| d.divisor <= DIVISOR).filter(many) else { return };
        let Some([only]) = pieces(d.dividend, ranges).and_then(|p| <[_; 1]>::try_from(p).ok()) else { return };
        let (rest, _) = digits(&only.value, d.divisor);
        let by: Vec<(Var, i64)> = rest.terms.iter().map(|&(v, c)| (v, d.divisor / gcd(c.abs(), d.divisor))).collect();
        // what is left of a loop that becomes copies is a number
        let left = rest.terms.iter().zip(&by).filter(|(_, (_, by))| *by > COPIES);
        let values: i64 = left.map(|(&(_, c), (_, by))| c.abs() * (by - 1)).sum();
        if values / d.divisor < PERIODS - 1 {
            out.extend(by);
        }
    });
    if q.condition && !out.is_empty() {
        // a short loop that is compared with the remainder becomes copies as well
        let mut compared = vec![];
        q.e.visit(&mut |e| {
            if let Expr::Index(a) = e {
                compared.extend(a.terms.iter().map(|t| (t.0, s.extent(t.0))));
            }
        });
        out.extend(compared.into_iter().filter(|c| c.1 <= COPIES));
    }
    out
}

/// The least common multiple of two divisors; one that is too large for a divisor where it is.
fn lcm(a: i64, b: i64) -> i64 {
    (a / gcd(a, b)).saturating_mul(b).min(DIVISOR + 1)
}

/// A copy of a statement, as far as the loops around it are known.
#[derive(Clone, Default)]
struct Copy {
    iterators: Vec<Iterator>,
    domain: Vec<Affine>,
    /// Each iterator of the statement over those of the copy.
    values: Vec<Affine>,
}

impl Copy {
    /// The extent of the next iterator of `s`.
    fn next_extent(&self, s: &Statement) -> i64 {
        s.iterators[self.values.len()].extent
    }

    /// Adds an iterator; returns it.
    fn add(&mut self, name: &str, extent: i64) -> Affine {
        self.iterators.push(Iterator::new(name, extent));
        Affine::var(Var(self.iterators.len() as u32 - 1))
    }

    /// The next iterator of `s` is `value`, over the iterators up to the last one that was added.
    fn enter(&mut self, s: &Statement, value: Affine) {
        let index = s.iterators[self.values.len()].index.as_ref();
        self.values.push(value.clone());
        if let Some(&(v, _)) = value.terms.last() {
            let index = index.map_or(value, |index| index.compose(&self.values));
            self.iterators[v.0 as usize].index = Some(index).filter(|index| *index != Affine::var(v));
        }
    }
}

type Copies = BTreeMap<StatementId, Copy>;
/// The iterator of a loop for each statement.
type Loop = BTreeMap<StatementId, Affine>;

struct Division<'a> {
    scop: &'a Scop,
    requests: &'a Requests,
    /// Most statements.
    most: usize,
    out: Scop,
    /// The statement that each new one is a copy of.
    origin: Vec<StatementId>,
}

impl<'a> Division<'a> {
    fn new(scop: &'a Scop, requests: &'a Requests, most: usize) -> Division<'a> {
        Division { scop, requests, most, out: Scop { statements: vec![], ..scop.clone() }, origin: vec![] }
    }

    /// The divided program; `None` where it has too many statements.
    fn run(mut self) -> Option<Scop> {
        let copies = self.scop.ids().map(|id| (id, Copy::default())).collect();
        let parts = self.node(&self.scop.order.root, &copies);
        if self.out.statements.len() > self.most {
            return None;
        }
        self.out.order = Schedule { root: in_sequence(parts).map_or(Node::Sequence(vec![]), |p| p.1) };
        number(&mut self.out.statements);
        Some(self.out)
    }

    /// The parts of the tree below a node, one after the other, for statements that still have instances.
    fn node(&mut self, node: &Node, copies: &Copies) -> Vec<SequencePart> {
        match node {
            Node::Leaf => copies.iter().map(|(&id, copy)| (vec![self.add(id, copy)], Node::Leaf)).collect(),
            Node::Sequence(children) => {
                let below = |ids: &[StatementId]| -> Copies {
                    copies.iter().filter(|c| ids.contains(c.0)).map(|(id, copy)| (*id, copy.clone())).collect()
                };
                let parts = children.iter().map(|(ids, child)| (below(ids), child)).filter(|part| !part.0.is_empty());
                parts.flat_map(|(copies, child)| self.node(child, &copies)).collect()
            }
            Node::Band(band, child) => self.rows(&band.rows, child, copies),
        }
    }

    fn add(&mut self, id: StatementId, copy: &Copy) -> StatementId {
        let s = self.scop.statement(id);
        let over_copy = |a: &Affine| a.compose(&copy.values);
        let of = |e: &Expr| e.substitute(&mut |v| copy.values[v.0 as usize].clone());
        self.out.statements.push(Statement {
            iterators: copy.iterators.clone(),
            domain: s.domain.iter().map(over_copy).chain(copy.domain.iter().cloned()).collect(),
            write: s.write.iter().map(over_copy).collect(),
            computed: s.computed.iter().map(|(d, e)| (*d, of(e))).collect(),
            body: of(&s.body),
            ..s.clone()
        });
        self.origin.push(id);
        StatementId(self.origin.len() as u32 - 1)
    }

    fn rows(&mut self, rows: &[Row], child: &Node, copies: &Copies) -> Vec<SequencePart> {
        let Some((row, inner)) = rows.split_first() else { return self.node(child, copies) };
        if self.out.statements.len() > self.most {
            return vec![];
        }
        let below = (inner, child);
        let by = |(&id, copy): (&StatementId, &Copy)| self.requests.get(&(id, copy.values.len())).copied().unwrap_or(1);
        let divisor = copies.iter().map(by).fold(1, lcm);
        let extent = copies.iter().map(|(&id, copy)| copy.next_extent(self.scop.statement(id))).max().unwrap_or(0);
        // a loop that runs backwards stays
        let forwards = copies.keys().all(|&id| row.of(id).terms.iter().all(|t| t.1 == 1));
        match divisor {
            2..=COPIES if forwards => self.unrolled(row, below, copies, divisor, extent <= divisor),
            2..=DIVISOR if forwards && divisor < extent => self.strip_mined(row, below, copies, divisor),
            _ => self.whole(row, below, copies),
        }
    }

    /// The loop as it is.
    fn whole(&mut self, row: &Row, (inner, child): (&[Row], &Node), copies: &Copies) -> Vec<SequencePart> {
        let (mut below, mut iterators) = (copies.clone(), Loop::new());
        for (&id, copy) in &mut below {
            let s = self.scop.statement(id);
            let v = copy.add(&s.iterators[copy.values.len()].name, copy.next_extent(s));
            copy.enter(s, v.clone());
            iterators.insert(id, v.scale(row.of(id).terms.first().map_or(1, |t| t.1)));
        }
        let parts = self.rows(inner, child, &below);
        self.around(row, parts, &iterators)
    }

    /// A copy of the statements for each remainder, in a loop over the quotient unless that has one value.
    fn unrolled(
        &mut self,
        row: &Row,
        (inner, child): (&[Row], &Node),
        copies: &Copies,
        divisor: i64,
        single: bool,
    ) -> Vec<SequencePart> {
        let (mut parts, mut iterators) = (vec![], Loop::new());
        for rest in 0..divisor {
            let mut below = copies.clone();
            below.retain(|&id, copy| copy.next_extent(self.scop.statement(id)) > rest);
            for (&id, copy) in &mut below {
                let s = self.scop.statement(id);
                let mut value = Affine::constant(rest);
                if !single {
                    let extent = ceil_div(copy.next_extent(s) - rest, divisor);
                    let quotient = copy.add(&s.iterators[copy.values.len()].name, extent);
                    value = value.add_scaled(&quotient, divisor);
                    iterators.insert(id, quotient);
                }
                copy.enter(s, value);
            }
            if !below.is_empty() {
                parts.extend(self.rows(inner, child, &below));
            }
        }
        if single { parts } else { self.around(row, parts, &iterators) }
    }

    /// A loop over the quotient and one over the remainder.
    fn strip_mined(
        &mut self,
        row: &Row,
        (inner, child): (&[Row], &Node),
        copies: &Copies,
        divisor: i64,
    ) -> Vec<SequencePart> {
        let (mut below, mut quotients, mut remainders) = (copies.clone(), Loop::new(), Loop::new());
        let remainder_name = format!("{}_r", row.name);
        for (&id, copy) in &mut below {
            let s = self.scop.statement(id);
            let extent = copy.next_extent(s);
            let quotient = copy.add(&s.iterators[copy.values.len()].name, ceil_div(extent, divisor));
            let remainder = copy.add(&remainder_name, divisor);
            let value = remainder.add_scaled(&quotient, divisor);
            if extent % divisor != 0 {
                copy.domain.push(value.scale(-1).offset(extent - 1));
            }
            copy.enter(s, value);
            quotients.insert(id, quotient);
            remainders.insert(id, remainder);
        }
        let parts = self.rows(inner, child, &below);
        let parts = self.around(&Row { name: remainder_name, ..row.clone() }, parts, &remainders);
        self.around(row, parts, &quotients)
    }

    /// A loop around parts, whose index is given for each statement.
    fn around(&self, row: &Row, parts: Vec<SequencePart>, iterators: &Loop) -> Vec<SequencePart> {
        let Some((ids, child)) = in_sequence(parts) else { return vec![] };
        let phi = ids.iter().map(|&id| (id, iterators[&self.origin[id.0 as usize]].clone())).collect();
        let band = Band { rows: vec![Row { phi, ..row.clone() }], permutable: false };
        vec![(ids, Node::Band(band, Box::new(child)))]
    }
}
