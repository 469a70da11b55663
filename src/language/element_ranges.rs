//! Ranges in which elements of arrays must lie: their declarations, and initial values that lie in them.

use super::bound_checks::checked_bound;
use super::syntax::{Assign, Equation};
use crate::expr::syntax::{Expr as Text, Kind, Name, Operator, Span};
use crate::expr::{BufferId, Expr};
use crate::poly::analysis::element_function::type_range;
use crate::poly::analysis::index_range::IndexRange;
use crate::poly::scop::Scop;
use crate::poly::statement::{ElementRange, Role, TensorDecl};

/// Initial values of the arrays that bound loops, where `given` has none: numbers that grow from the first to the last value of the range, by a
/// share of it that differs from element to element. A range up to the greatest number of the type says nothing of them. `bounding` are ranges of
/// arrays whose elements the program records ([`bounding`]).
pub fn initial(arrays: &[TensorDecl], bounding: &[(BufferId, ElementRange)], given: &[Equation]) -> Vec<Equation> {
    let of = |(id, array): (BufferId, &TensorDecl)| {
        let recorded = bounding.iter().filter(|(of, _)| array.ranges.is_empty() && *of == id).map(|(_, range)| range);
        let ranges: Vec<&ElementRange> = array.ranges.iter().chain(recorded).collect();
        let ([range], [elements]) = (&ranges[..], &array.shape[..]) else { return None };
        let named = given.iter().any(|e| *e.target == *array.name);
        // a bound with a number added may be negative
        let lower = range.lower.max(range.upper.min(0));
        let (rows, count) = ((elements - 1).max(1), range.upper.checked_sub(lower)?);
        // (1024 · i + 421 · (i mod rows) mod 1024) · count / (1024 · rows)
        rows.checked_mul(1024)?.checked_mul(count.max(1))?;
        let open = type_range(array.dtype).is_none_or(|(_, most)| i128::from(range.upper) == most);
        if named || array.role != Role::Input || (range.offset, range.stride) != (0, 1) || open {
            return None;
        }
        let mut index = "i".to_string();
        while arrays.iter().any(|a| a.name == index) {
            index.push('_');
        }
        let at = |kind: Kind| Text { kind, span: Span::default() };
        let number = |n: i64| at(Kind::Integer(n));
        let join = |operator, a: Text, b: Text| at(Kind::Binary(operator, Box::new(a), Box::new(b)));
        let i = || at(Kind::Name(index.clone()));
        let uneven = join(Operator::Mul, join(Operator::Mod, i(), number(rows)), number(421));
        let uneven = join(Operator::Mod, uneven, number(1024));
        let steps = join(Operator::Add, join(Operator::Mul, i(), number(1024)), uneven);
        let share = join(Operator::Div, join(Operator::Mul, steps, number(count)), number(1024 * rows));
        let value = at(Kind::Cast(array.dtype, Box::new(join(Operator::Add, share, number(lower)))));
        Some(Equation {
            target: Name::from(&*array.name),
            subscripts: vec![i()],
            assign: Assign::Set,
            value,
            conditions: vec![],
            span: Span::default(),
        })
    };
    (0..).map(BufferId).zip(arrays).filter_map(of).collect()
}

/// The ranges of arrays with the elements that bound loops where the program computes which of them, as it records them: of each array from the first
/// value of such a loop to the end of its range.
pub fn bounding(scop: &Scop) -> Vec<(BufferId, ElementRange)> {
    let mut out: Vec<(BufferId, ElementRange)> = vec![];
    for s in &scop.statements {
        let check = scop.tensor(s.target);
        let Some((lower, upper)) = check.limits().filter(|_| checked_bound(&check.name).is_some()) else { continue };
        let mut loads = vec![];
        values(&s.body, &mut loads);
        for array in loads {
            let new = ElementRange { offset: 0, stride: 1, lower: lower.max(0), upper };
            match out.iter_mut().find(|(known, _)| *known == array) {
                Some((_, known)) => {
                    (known.lower, known.upper) = (known.lower.max(new.lower), known.upper.min(new.upper));
                }
                None => out.push((array, new)),
            }
        }
    }
    out
}

/// The arrays whose elements an expression may have as its value, or as a part of a sum.
fn values(e: &Expr, out: &mut Vec<BufferId>) {
    match e {
        Expr::Load(access) => out.push(access.buffer),
        Expr::Select(_, a, b) => [a, b].into_iter().for_each(|e| values(e, out)),
        e => e.operands().for_each(|e| values(e, out)),
    }
}

/// Adds what must hold of the elements of arrays to their declarations.
pub fn declare(arrays: &mut [TensorDecl], ranges: &[IndexRange]) {
    for range in ranges {
        let BufferId(array) = range.tensor;
        let new = ElementRange { offset: range.offset, stride: range.stride, lower: range.lower, upper: range.upper };
        let known = &mut arrays[array as usize].ranges;
        match known.iter_mut().find(|known| (known.offset, known.stride) == (new.offset, new.stride)) {
            Some(known) => {
                known.lower = known.lower.max(new.lower);
                known.upper = known.upper.min(new.upper);
            }
            None => known.push(new),
        }
    }
}
