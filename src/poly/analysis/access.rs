//! Access strides: how far each access of a statement moves in memory along each iterator.

use crate::codegen::loopnest::row_major;
use crate::expr::interval::{ceil_div, gcd};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::poly::analysis::{constant_factor, conversion};
use crate::poly::schedule::Row;
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, Statement, StatementId};
use crate::runtime::DType;

/// Size of a page of memory, in bytes.
pub const PAGE: i64 = 4096;

/// One distinct access of a statement.
#[derive(Clone, Debug)]
pub struct Reference {
    pub tensor: BufferId,
    pub bytes: i64,
    /// Elements between neighbours along each iterator; `None` where a subscript is computed from it.
    pub strides: Vec<Option<i64>>,
    /// The read; `None` for the write.
    pub access: Option<Access>,
    /// Subscripts that are affine, with the extent of their dimension, innermost last.
    pub subscripts: Vec<(Affine, i64)>,
    pub constant: bool,
    /// Some statement may write the tensor.
    pub written: bool,
    /// For a factor of the products of a sum with literals: the share of these that are not zero.
    pub nonzero: Option<f64>,
    /// The type to which a sum converts each element of an operand of 16 bits.
    pub converted: Option<DType>,
    /// Of a constant that memory has packed: an affine subscript and the elements of a panel along it.
    pub panel: Option<(Affine, i64)>,
}

/// The memory access pattern of a vector along one iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Along {
    Invariant,
    Unit,
    Strided(i64),
    Gathered,
}

impl Reference {
    pub fn along(&self, v: Var) -> Along {
        match self.strides[v.0 as usize] {
            Some(0) => Along::Invariant,
            Some(1) => Along::Unit,
            Some(s) => Along::Strided(s),
            None => Along::Gathered,
        }
    }

    pub fn depends(&self, v: Var) -> bool {
        self.strides[v.0 as usize] != Some(0)
    }

    /// Returns true if a subscript is computed: its dimension, which is not among [`Reference::subscripts`], may lie between two
    /// of these, whose elements then are not neighbours.
    fn is_gathered(&self) -> bool {
        self.strides.iter().any(Option::is_none)
    }

    /// Returns true if a packed copy made before the kernel is right and has no more elements than the tensor: nothing
    /// writes it, no iterator of `statement` is in two subscripts, none has more values than its dimension, and only
    /// zero is read outside.
    pub fn packable(&self, statement: &Statement) -> bool {
        let Some(access) = &self.access else { return false };
        let mut seen = vec![];
        !self.written
            && access.otherwise.is_none_or(|o| o.bits == 0)
            && self.subscripts.len() == access.index.len()
            && self.subscripts.iter().all(|(a, size)| {
                let values: i64 = a.terms.iter().map(|t| statement.iterators[t.0.0 as usize].extent).product();
                let fresh = a.terms.iter().all(|t| !seen.contains(&t.0));
                seen.extend(a.terms.iter().map(|t| t.0));
                fresh && values <= *size
            })
    }

    /// Bytes of an element of a packed copy: one that is made at run time has converted elements.
    pub fn packed_bytes(&self) -> i64 {
        self.converted.filter(|_| !self.constant).map_or(self.bytes, |to| to.bytes() as i64)
    }

    /// Bytes of the cache lines that are touched when iterator `i` takes `extent(i)` neighbouring values. Whole rows lie next
    /// to each other, so that short ones share lines.
    pub fn footprint(&self, extent: &impl Fn(Var) -> i64, line: i64) -> f64 {
        let mut run = self.bytes;
        let mut rows = 1.0;
        let gathered = self.is_gathered();
        let mut ended = false;
        for (a, size) in self.subscripts.iter().rev() {
            let (lo, hi) = a.bounds(|v| (0, extent(v) - 1));
            let span = (hi - lo + 1).min(*size);
            // A strided subscript with few values touches fewer elements than its range.
            let points: i64 = a.terms.iter().map(|t| extent(t.0)).product();
            let count = span.min(points.max(1));
            let sparse = (hi - lo + 1) / count.max(1);
            match (ended, sparse * run >= line) {
                (true, _) => rows *= count as f64,
                (false, true) if sparse > 1 => {
                    rows *= count as f64;
                    run = run.max(line);
                }
                (false, _) => run *= span,
            }
            ended |= span < *size || sparse > 1 || gathered;
        }
        let bytes = if self.subscripts.is_empty() { self.bytes } else { ceil_div(run, line) * line };
        rows * bytes as f64
    }

    /// Bytes that lie next to each other when the iterators take `extent` values.
    pub fn run(&self, extent: &impl Fn(Var) -> i64) -> i64 {
        let mut run = self.bytes;
        for (a, size) in self.subscripts.iter().rev() {
            let (lo, hi) = a.bounds(|v| (0, extent(v) - 1));
            let count = (hi - lo + 1).min(*size);
            run *= count;
            if count < *size || self.is_gathered() {
                break;
            }
        }
        run
    }

    /// Pages that are touched when the iterators take `extent` values.
    pub fn pages(&self, extent: &impl Fn(Var) -> i64) -> i64 {
        let (mut pitch, mut span, mut pages) = (self.bytes, self.bytes, 1);
        for (a, size) in self.subscripts.iter().rev() {
            let (lo, hi) = a.bounds(|v| (0, extent(v) - 1));
            let count = (hi - lo + 1).min(*size);
            if pitch < PAGE {
                span += (count - 1) * pitch;
            } else {
                pages *= count;
            }
            pitch *= size;
        }
        pages * (span + PAGE - 1).div_euclid(PAGE)
    }

    /// Share of a cache that the rows of the reference can use when the iterators take `extent` values: rows at a
    /// multiple of a power of two meet in the same sets. Sets are counted within a page, as neighbouring pages lie
    /// anywhere.
    pub fn spread(&self, extent: &impl Fn(Var) -> i64, line: i64) -> f64 {
        let Some((last, _)) = self.subscripts.last() else { return 1.0 };
        let run = self.run(extent).max(line);
        let rows = self.strides.iter().enumerate().filter_map(|(v, stride)| {
            let v = Var(v as u32);
            stride.filter(|_| !last.uses(v) && extent(v) > 1).map(|s| s.abs() * self.bytes)
        });
        let apart = rows.filter(|s| *s > 0).fold(0, gcd);
        if apart == 0 { 1.0 } else { (run as f64 / gcd(apart, PAGE).max(line) as f64).min(1.0) }
    }
}

/// The distinct accesses of a statement: reads, then the write.
pub fn references(scop: &Scop, id: StatementId) -> Vec<Reference> {
    let s = scop.statement(id);
    let mut out: Vec<Reference> = vec![];
    s.body.visit_accesses(&mut |a| {
        if !out.iter().any(|r| r.access.as_ref() == Some(a)) {
            out.push(reference(scop, s, a.buffer, &a.index, Some(a.clone())));
        }
    });
    out.push(reference(scop, s, s.target, &s.subscripts(), None));
    out
}

fn reference(scop: &Scop, s: &Statement, tensor: BufferId, index: &[Index], access: Option<Access>) -> Reference {
    let t = scop.tensor(tensor);
    let row_major = row_major(&t.shape);
    let mut strides = vec![Some(0); s.iterators.len()];
    let mut subscripts = vec![];
    for (d, i) in index.iter().enumerate() {
        match i {
            Index::Affine(a) => {
                for &(v, c) in &a.terms {
                    if let Some(x) = &mut strides[v.0 as usize] {
                        *x += c * row_major[d];
                    }
                }
                subscripts.push((a.clone(), t.shape[d]));
            }
            Index::Value(e) => {
                let (affine, rest) = e.affine_terms();
                for v in s.vars() {
                    match &mut strides[v.0 as usize] {
                        unknown if rest.as_ref().is_some_and(|e| uses(e, v)) => *unknown = None,
                        Some(x) => *x += affine.coefficient(v) * row_major[d],
                        None => {}
                    }
                }
            }
        }
    }
    let (constant, written) = (t.role == Role::Constant, t.role.is_written());
    let nonzero = access.as_ref().and_then(|a| nonzero_share(scop, s, a));
    let panel = t.panel.and_then(|panel| match index.get(panel.dimension) {
        Some(Index::Affine(subscript)) => Some((subscript.clone(), panel.points)),
        _ => None,
    });
    let bytes = t.dtype.bytes() as i64;
    let converted = access.as_ref().filter(|_| s.reduce.is_some()).and_then(|a| conversion::converted(scop, s, a));
    Reference { tensor, bytes, strides, access, subscripts, constant, written, nonzero, converted, panel }
}

/// The share of the products of a sum that remains where the literals of their factor `access` are known.
fn nonzero_share(scop: &Scop, s: &Statement, access: &Access) -> Option<f64> {
    let literals = scop.tensor(access.buffer).literals.as_ref()?;
    let is = |e: &Expr| matches!(e, Expr::Load(a) if a == access);
    let factor = matches!(&s.body, Expr::Binary(BinaryOp::Mul, a, b) if is(a) || is(b));
    (factor && s.reduce == Some(BinaryOp::Add)).then(|| literals.nonzero_share())
}

fn uses(e: &Expr, v: Var) -> bool {
    e.any(&mut |e| match e {
        Expr::Index(a) => a.uses(v),
        Expr::Load(access) => access.index.iter().filter_map(Index::affine).any(|a| a.uses(v)),
        _ => false,
    })
}

/// Vector instructions of one evaluation of the body, and of combining it; a product that is summed is one, and a constant
/// factor of a sum none.
pub fn operations(scop: &Scop, id: StatementId) -> f64 {
    let s = scop.statement(id);
    let factor = constant_factor::of_sum(scop, id);
    let body = factor.as_ref().map_or(&s.body, |f| &f.1);
    let fused = s.reduce == Some(BinaryOp::Add) && matches!(body, Expr::Binary(BinaryOp::Mul, ..));
    expression(body) + if s.reduce.is_some() && !fused { 1.0 } else { 0.0 }
}

fn expression(e: &Expr) -> f64 {
    let of_root = match e {
        Expr::Const(_) | Expr::Index(_) | Expr::Load(_) => 0.0,
        Expr::Unary(op, _) => op.cost().cycles,
        Expr::Binary(op, ..) => op.cost().cycles,
        Expr::Compare(..) | Expr::Select(..) | Expr::Cast(..) | Expr::Bitcast(..) => 1.0,
    };
    e.operands().fold(of_root, |sum, e| sum + expression(e))
}

/// Returns true if all accesses of `statements` to a temporary have the loop's index as one of their subscripts: its iterations have
/// elements of their own.
pub fn is_subscript(scop: &Scop, tensor: BufferId, statements: &[StatementId], row: &Row) -> bool {
    let mut subscripts: Vec<Vec<Option<Affine>>> = vec![];
    for &id in statements {
        let s = scop.statement(id);
        let mut note = |index: &[Index]| {
            subscripts.push(index.iter().map(|i| Some(i.affine()?.add_scaled(row.of(id), -1))).collect());
        };
        if s.target == tensor {
            note(&s.subscripts());
        }
        s.body.visit_accesses(&mut |a| {
            if a.buffer == tensor {
                note(&a.index);
            }
        });
    }
    let Some((first, others)) = subscripts.split_first() else { return false };
    let own = |d: usize| first[d].as_ref().is_some_and(Affine::is_constant) && others.iter().all(|s| s[d] == first[d]);
    (0..first.len()).any(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::normalize::build;
    use crate::poly::samples;

    #[test]
    fn whole_rows_share_lines_and_parts_of_rows_do_not() {
        // 100 rows of 8 elements of 4 bytes
        let scop = build::build("product", &samples::matmul(100, 8, 8)).unwrap();
        let update = scop.ids().last().unwrap();
        let read = references(&scop, update).into_iter().find(|r| r.access.is_some()).unwrap();
        let [row, column] = [0, 1].map(|d: usize| read.subscripts[d].0.terms[0].0);
        let footprint = |read: &Reference, rows: i64, columns: i64| {
            let extent = |v: Var| {
                if v == row {
                    rows
                } else if v == column {
                    columns
                } else {
                    1
                }
            };
            read.footprint(&extent, 64)
        };
        assert_eq!(footprint(&read, 100, 8), 3200.0);
        assert_eq!(footprint(&read, 3, 8), 128.0);
        assert_eq!(footprint(&read, 1, 8), 64.0);
        assert_eq!(footprint(&read, 100, 4), 6400.0);
        // rows of which each may lie anywhere
        let gathered = Reference { strides: vec![None; read.strides.len()], ..read.clone() };
        assert_eq!(footprint(&gathered, 100, 8), 6400.0);
        assert_eq!([&read, &gathered].map(|r| r.run(&|v| if v == row { 100 } else { 8 })), [3200, 32]);
    }
}
