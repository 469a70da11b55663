//! Ranges in which elements of arrays must lie: their declarations, and initial values that lie in them.

use super::syntax::{Assign, Equation};
use crate::expr::BufferId;
use crate::expr::syntax::{Expr as Text, Kind, Name, Operator, Span};
use crate::poly::analysis::element_function::type_range;
use crate::poly::analysis::index_range::IndexRange;
use crate::poly::statement::{ElementRange, Role, TensorDecl};

/// Initial values of the arrays that bound loops, where `given` has none: numbers that grow from the first to the last value of the range, by a
/// share of it that differs from element to element. A range up to the greatest number of the type says nothing of them.
pub fn initial(arrays: &[TensorDecl], given: &[Equation]) -> Vec<Equation> {
    let of = |array: &TensorDecl| {
        let ([range], [elements]) = (&array.ranges[..], &array.shape[..]) else { return None };
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
    arrays.iter().filter_map(of).collect()
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
