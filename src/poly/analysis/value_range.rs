//! The values that the elements of arrays can have.
//!
//! In: a Scop. Out: for each temporary and each output of integers, and each scalar temporary of floats, of which every element that a statement reads has been assigned before,
//! an interval with all values of these elements, where the operations of the assignments bound them. An interval analysis (P. Cousot,
//! R. Cousot, "Abstract interpretation", POPL 1977) without an order of the statements; what still grows after a few rounds has only the bounds that
//! the operations of its assignments give it whatever their operands are (narrowing).

use crate::expr::float_interval::FloatInterval;
use crate::expr::narrow::{Interval, dtype_range, float_range_over_elements, range_over_elements};
use crate::expr::{Affine, BinaryOp, BufferId, Expr, Index, Scalar};
use crate::poly::analysis::unwritten::{MAX_OPERATIONS, point};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::{Iterator, Role, Statement, TensorDecl, ranges};
use crate::runtime::{DType, Error, Result};

/// Rounds until intervals that have not settled are given up: those of integers that double or are halved settle in as many as they have bits.
const ROUNDS: usize = 66;

/// Values that the elements of an array may have.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Values {
    /// No assignment has been looked at.
    Unassigned,
    Within(Interval),
    Floats(FloatInterval),
    Any,
}

/// The values of the elements that are read, for each tensor.
pub struct ValueRanges<'a> {
    tensors: &'a [TensorDecl],
    values: Vec<Values>,
}

impl<'a> ValueRanges<'a> {
    /// Finds the values of the arrays of `scop`.
    ///
    /// # Errors
    /// `Internal` where isl fails.
    pub fn new(scop: &'a Scop) -> Result<ValueRanges<'a>> {
        let isl = Isl::with_operations(MAX_OPERATIONS);
        let mut values = vec![];
        for (t, decl) in (0..).map(BufferId).zip(&scop.tensors) {
            let may = matches!(decl.role, Role::Temporary | Role::Output) && decl.dtype.is_integer() || is_float(decl);
            values.push(if may && is_assigned(scop, t, &isl)? { Values::Unassigned } else { Values::Any });
        }
        let first_values = values.clone();
        let mut out = ValueRanges { tensors: &scop.tensors, values };
        for round in 0.. {
            let mut next: Vec<Values> =
                (0..).map(BufferId).zip(&out.values).map(|(t, v)| out.next(scop, t, *v)).collect();
            if next == out.values {
                break;
            }
            for (new, old) in next.iter_mut().zip(&out.values) {
                if round >= ROUNDS && new != old {
                    *new = Values::Any;
                }
            }
            out.values = next;
        }
        let given_up: Vec<usize> = (0..first_values.len())
            .filter(|&t| first_values[t] == Values::Unassigned && out.values[t] == Values::Any)
            .collect();
        out.narrow(scop, &given_up);
        Ok(out)
    }

    /// Looks again at the assignments to tensors that have been given up, as many times as one of them may pass a bound on to the next: what such a look finds holds
    /// whatever they have, as of `bit_and(k, 255)` where `k` grows.
    fn narrow(&mut self, scop: &Scop, given_up: &[usize]) {
        for _ in 0..ROUNDS {
            let is_found = |(t, new): &(usize, Values)| {
                let whole = dtype_range(self.tensors[*t].dtype).map(Values::Within);
                ![Some(Values::Unassigned), Some(self.values[*t]), whole].contains(&Some(*new))
            };
            let look = |t: usize| (t, self.next(scop, BufferId(t as u32), Values::Unassigned));
            let found: Vec<(usize, Values)> = given_up.iter().map(|&t| look(t)).filter(is_found).collect();
            if found.is_empty() {
                return;
            }
            found.into_iter().for_each(|(t, new)| self.values[t] = new);
        }
    }

    /// The values of a tensor after one more look at its assignments.
    fn next(&self, scop: &Scop, tensor: BufferId, before: Values) -> Values {
        let writers = scop.statements.iter().filter(|s| s.target == tensor);
        writers.fold(before, |all, s| match (all, self.assigned(s)) {
            (Values::Any, _) | (_, Values::Any) => Values::Any,
            (Values::Within(a), Values::Within(b)) => Values::Within((a.0.min(b.0), a.1.max(b.1))),
            (Values::Floats(a), Values::Floats(b)) => Values::Floats(a.hull(b)),
            (Values::Within(_), Values::Floats(_)) | (Values::Floats(_), Values::Within(_)) => Values::Any,
            (Values::Unassigned, other) | (other, Values::Unassigned) => other,
        })
    }

    /// The values that a statement assigns.
    fn assigned(&self, s: &Statement) -> Values {
        let body = match s.reduce {
            Some(op) => Expr::binary(op, Expr::load(s.target, s.write.clone()), s.body.clone()),
            None => s.body.clone(),
        };
        let mut unassigned = false;
        body.visit_accesses(&mut |a| unassigned |= self.values[a.buffer.0 as usize] == Values::Unassigned);
        if unassigned {
            return Values::Unassigned;
        }
        if is_float(&self.tensors[s.target.0 as usize]) {
            let range = self.float_range(&s.iterators, &body);
            return if range == FloatInterval::ANY { Values::Any } else { Values::Floats(range) };
        }
        self.range(&s.iterators, &body).map_or(Values::Any, Values::Within)
    }

    /// The interval of an integer expression over iterators; `None` of floats and u64.
    fn range(&self, iterators: &[Iterator], e: &Expr) -> Option<Interval> {
        let dtype = |b: BufferId| self.tensors[b.0 as usize].dtype;
        range_over_elements(&dtype, &|b| self.integers(b), &|a| a.bounds(ranges(iterators)), &self.without_floats(e))
    }

    /// The interval of an expression of floats over iterators.
    fn float_range(&self, iterators: &[Iterator], e: &Expr) -> FloatInterval {
        let (dtype, e) = (|b: BufferId| self.tensors[b.0 as usize].dtype, self.without_floats(e));
        float_range_over_elements(&dtype, &|b| self.integers(b), &|a| a.bounds(ranges(iterators)), &e)
    }

    fn integers(&self, tensor: BufferId) -> Option<Interval> {
        match self.values[tensor.0 as usize] {
            Values::Within(range) => Some(range),
            Values::Unassigned | Values::Floats(_) | Values::Any => None,
        }
    }

    /// `e`, where each float that is bounded is brought between its least and its greatest value, or is one of the two.
    fn without_floats(&self, e: &Expr) -> Expr {
        e.rewrite_loads(&mut |a| match self.values[a.buffer.0 as usize] {
            Values::Floats(range) if a.guard.is_empty() => {
                let dtype = self.tensors[a.buffer.0 as usize].dtype;
                let [low, high] = [range.low, range.high].map(|v| Expr::Const(Scalar::of(dtype, v)));
                match range.may_be_nan {
                    true => Expr::binary(BinaryOp::Max, Expr::binary(BinaryOp::Min, Expr::Load(a), high), low),
                    false => Expr::select(Expr::Const(Scalar::bool(true)), low, high),
                }
            }
            _ => Expr::Load(a),
        })
    }

    /// The tensors whose elements are bounded by more than their type, with the intervals.
    pub fn bounded(&self) -> Vec<(BufferId, Interval)> {
        let of = |(t, values): (BufferId, &Values)| match values {
            Values::Within(range) if dtype_range(self.tensors[t.0 as usize].dtype) != Some(*range) => Some((t, *range)),
            _ => None,
        };
        (0..).map(BufferId).zip(&self.values).filter_map(of).collect()
    }
}

/// Returns true for the temporaries of floats that are looked at.
fn is_float(decl: &TensorDecl) -> bool {
    decl.role == Role::Temporary && decl.shape.is_empty() && matches!(decl.dtype, DType::F32 | DType::F64)
}

/// Returns true if each element of the tensor that a statement reads has been assigned before, in branches that are not taken too.
fn is_assigned(scop: &Scop, tensor: BufferId, isl: &Isl) -> Result<bool> {
    for id in scop.users(tensor) {
        let s = scop.statement(id);
        let mut reads: Vec<(Vec<Index>, Vec<Affine>)> = vec![];
        if s.target == tensor {
            if s.is_scatter() {
                return Ok(false);
            }
            reads.extend(s.reduce.map(|_| (s.subscripts(), vec![])));
        }
        s.visit_accesses(&mut |a| {
            if a.buffer == tensor {
                reads.push((a.index.clone(), a.guard.clone()));
            }
        });
        for (index, guard) in reads {
            let affine: Option<Vec<Affine>> = index.iter().map(|i| i.affine().cloned()).collect();
            let Some(affine) = affine else { return Ok(false) };
            match point(scop, id, tensor, (&affine, &guard), isl) {
                Ok(None) => {}
                Ok(Some(_)) | Err(Error::Limit(_)) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(statements: &str) -> Option<Interval> {
        let float = if statements.contains("f = ") { "temp f32 f" } else { "" };
        let array = if statements.contains("t[i]") { "temp i32 t[N]" } else { "" };
        let text =
            format!("loop p(N = 100) {{ in f32 x[N]; in i32 q[N]; out i32 a[N]\n {float}\n {array}\n {statements} }}");
        let scop = crate::poly::samples::loops(&text);
        let values = ValueRanges::new(&scop).unwrap();
        let a = (0..).map(BufferId).zip(&scop.tensors).find(|(_, t)| t.name == "a").unwrap().0;
        match values.values[a.0 as usize] {
            Values::Within(range) => Some(range),
            _ => None,
        }
    }

    #[test]
    fn selections_and_extremes_bound_elements() {
        let chosen = "for i in 0..N { t[i] = 0  a[i] = 0  for k in 0..16 a[i] = select(x[i] > f32(k), i32(k), a[i])  a[i] max= t[i] }";
        assert_eq!(range(chosen), Some((0, 15)));
        let chain = "for i in 0..N { t[i] = bit_and(q[i], 7)  a[i] = t[i] * 3 + 1 }";
        assert_eq!(range(chain), Some((1, 22)));
    }

    #[test]
    fn floats_on_the_way_are_bounded() {
        let limited = "for i in 0..N { f = max(0.0, min(7.9, x[i]))  f = f * 0.5  a[i] = i32(f) }";
        assert_eq!(range(limited), Some((0, 3)));
        let of_index = "for i in 0..N { f = f32(i) * 0.037  a[i] = i32(floor(f)) }";
        assert_eq!(range(of_index), Some((0, 3)));
        let all = Some((i64::from(i32::MIN), i64::from(i32::MAX)));
        assert_eq!(range("for i in 0..N { f = min(7.9, x[i])  a[i] = i32(f) }"), Some((i64::from(i32::MIN), 7)));
        assert_eq!(range("for i in 0..N { f = x[i] * 2  a[i] = i32(f) }"), all);
        assert_eq!(range("for i in 0..N { if i > 0 a[i] = i32(f)  f = 2.5 }"), Some((2, 2)));
        // what grows, and low bits of it
        assert_eq!(range("f = 0  for i in 0..N { f += 1  a[i] = i32(f) }"), None);
        assert_eq!(range("f = 1  for i in 0..N { f = f * 2  a[i] = bit_and(i32(f), 65535) + 1 }"), Some((1, 65536)));
    }

    #[test]
    fn what_grows_or_may_be_unassigned_is_unknown() {
        let counted = "for i in 0..N { t[i] = 0  a[i] = 0  for k in 0..4 a[i] += 1  t[i] = a[i] }";
        assert_eq!(range(counted), None);
        let open = "for i in 0..N t[i] = 0  for i in 1..N a[i] = select(x[i] > 0.0, 1, a[i - 1])";
        assert_eq!(range(open), None);
        let scattered = "for i in 0..N { t[i] = 0  a[bit_and(q[i], 63)] = 1 }";
        assert_eq!(range(scattered), None);
    }
}
