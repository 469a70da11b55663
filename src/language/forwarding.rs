//! Forward substitution: a subscript, or a bound of a loop, from a temporary becomes one from the temporary's value.
//!
//! In: a loop program. Out: the same program, where each subscript and each bound that names a temporary without dimensions has the value
//! which the one assignment to it gave, earlier in the same block or in one around it. Such a value reads indices, sizes
//! and arrays that the program does not write, so that it is the same wherever it is computed. In subscripts it has no floats: a temporary
//! out of floats stays, and becomes an array that is computed in vectors. Assignments stay.

use super::syntax::{Access, Array, Assign, Body, Program, Statement, assignments};
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator};
use crate::runtime::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Most operations of a value.
const OPERATIONS: usize = 200;

/// The program with values of temporaries in its subscripts.
pub fn forward(program: &Program) -> Program {
    let mut out = program.clone();
    if let Body::Loop { arrays, statements, .. } = &mut out.body {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        assignments(statements).iter().for_each(|a| *times.entry(a.target.text.clone()).or_default() += 1);
        let once = |a: &&Array| times.get(&a.name.text) == Some(&1);
        let temporaries = arrays.iter().filter(|a| a.access == Some(Access::Temporary) && a.shape.is_empty());
        let forwarding = Forwarding {
            temporaries: temporaries.filter(once).map(|a| (a.name.text.clone(), a)).collect(),
            written: times.keys().cloned().collect(),
            floats: arrays.iter().filter(|a| a.dtype.is_float()).map(|a| a.name.text.clone()).collect(),
        };
        forwarding.block(statements, Values::default());
    }
    out
}

/// Values of temporaries.
#[derive(Clone, Default)]
struct Values {
    /// For bounds.
    all: BTreeMap<String, Text>,
    /// For subscripts: those without floats.
    integers: BTreeMap<String, Text>,
    /// Elements in the bounds of the loops around.
    bounds: Vec<Text>,
}

struct Forwarding<'a> {
    /// Temporaries without dimensions that one statement writes.
    temporaries: BTreeMap<String, &'a Array>,
    written: BTreeSet<String>,
    /// Arrays of floats.
    floats: BTreeSet<String>,
}

impl Forwarding<'_> {
    fn block(&self, statements: &mut [Statement], mut values: Values) {
        for s in statements {
            match s {
                Statement::For { range, body, .. } => {
                    let mut inside = values.clone();
                    for bound in [&mut range.lower, &mut range.upper] {
                        *bound = replaced(bound, &values.all, &[], true);
                        bound.visit(&mut |e| {
                            if matches!(e.kind, Kind::Element(..)) {
                                inside.bounds.push(e.clone());
                            }
                        });
                    }
                    self.block(body, inside);
                }
                Statement::If { condition, body, otherwise } => {
                    let mut named = BTreeSet::new();
                    [&*body, &*otherwise].into_iter().for_each(|block| subscripts_in(block, &mut named));
                    *condition = guarding(condition, &values.integers, &values.bounds, named);
                    self.block(body, values.clone());
                    self.block(otherwise, values.clone());
                }
                Statement::Assign(a) => {
                    a.subscripts.iter_mut().for_each(|e| *e = replaced(e, &values.integers, &[], true));
                    if let Some(temporary) = self.temporaries.get(&a.target.text)
                        && a.assign == Assign::Set
                        && let value = replaced(&a.value, &values.all, &[], true)
                        && self.is_unchanged(&value)
                    {
                        // a temporary rounds, or wraps, to its type; subscripts are computed in i64
                        let kind = Kind::Cast(temporary.dtype, Box::new(value.clone()));
                        let of_type = Text { kind, span: value.span };
                        let value = if temporary.dtype == DType::I64 { value } else { of_type };
                        if self.has_no_floats(&value) {
                            values.integers.insert(a.target.text.clone(), value.clone());
                        }
                        values.all.insert(a.target.text.clone(), value);
                    }
                    a.value = replaced(&a.value, &values.integers, &values.bounds, false);
                }
            }
        }
    }

    /// Returns true for a value without elements, numbers and conversions of floating point.
    fn has_no_floats(&self, e: &Text) -> bool {
        let mut integers = true;
        e.visit(&mut |e| {
            integers &= match &e.kind {
                Kind::Real(_) => false,
                Kind::Cast(dtype, _) => !dtype.is_float(),
                Kind::Name(name) | Kind::Element(Name { text: name, .. }, _) => !self.floats.contains(name),
                _ => true,
            }
        });
        integers
    }

    /// Returns true if no statement changes what `e` reads, and it is small enough to be computed again.
    fn is_unchanged(&self, e: &Text) -> bool {
        let (mut operations, mut unchanged) = (0, true);
        e.visit(&mut |e| {
            operations += 1;
            unchanged &= match &e.kind {
                Kind::Name(name) => !self.written.contains(name),
                Kind::Element(name, _) => !self.written.contains(&name.text),
                _ => true,
            }
        });
        unchanged && operations <= OPERATIONS
    }
}

/// The names in the subscripts of statements.
fn subscripts_in(statements: &[Statement], out: &mut BTreeSet<String>) {
    for s in statements {
        match s {
            Statement::For { body, .. } => subscripts_in(body, out),
            Statement::If { condition, body, otherwise } => {
                names_in_subscripts(condition, out);
                subscripts_in(body, out);
                subscripts_in(otherwise, out);
            }
            Statement::Assign(a) => {
                a.subscripts.iter().for_each(|e| names(e, out));
                names_in_subscripts(&a.value, out);
            }
        }
    }
}

fn names_in_subscripts(e: &Text, out: &mut BTreeSet<String>) {
    e.visit(&mut |e| {
        if let Kind::Element(_, subscripts) = &e.kind {
            subscripts.iter().for_each(|e| names(e, out));
        }
    });
}

fn names(e: &Text, out: &mut BTreeSet<String>) {
    e.visit(&mut |e| {
        if let Kind::Name(name) = &e.kind {
            out.insert(name.clone());
        }
    });
}

/// A condition with values in its subscripts, and in the place of the temporaries that are subscripts where it decides, or whose elements are
/// bounds of the loops around, each out of one element: what it says of such a value it says of the subscript, or of the bound.
fn guarding(condition: &Text, values: &BTreeMap<String, Text>, bounds: &[Text], mut named: BTreeSet<String>) -> Text {
    names_in_subscripts(condition, &mut named);
    let is_of_bound = |value: &Text| {
        let mut found = false;
        value.visit(&mut |e| found |= matches!(e.kind, Kind::Element(..)) && bounds.contains(e));
        found
    };
    let is_guarded =
        |(name, value): &(&String, &Text)| (named.contains(*name) || is_of_bound(value)) && is_of_element(value);
    let guarded: BTreeMap<String, Text> =
        values.iter().filter(is_guarded).map(|(name, value)| (name.clone(), value.clone())).collect();
    replaced(&replaced(condition, &guarded, bounds, true), values, bounds, false)
}

/// Returns true for one element, converted, with numbers added and multiplied.
fn is_of_element(e: &Text) -> bool {
    let (mut elements, mut plain) = (0, true);
    let mut open = vec![e];
    while let Some(e) = open.pop() {
        match &e.kind {
            Kind::Element(..) => elements += 1,
            Kind::Integer(_) => {}
            Kind::Cast(_, a) | Kind::Negate(a) => open.push(a),
            Kind::Binary(Operator::Add | Operator::Sub | Operator::Mul, a, b) => open.extend([&**a, &**b]),
            _ => plain = false,
        }
    }
    plain && elements == 1
}

/// `e` with values in its subscripts, and where `everywhere` in all places.
fn replaced(e: &Text, values: &BTreeMap<String, Text>, bounds: &[Text], everywhere: bool) -> Text {
    let inner = |e: &Text| Box::new(replaced(e, values, bounds, everywhere));
    let kind = match &e.kind {
        Kind::Name(name) if everywhere => match values.get(name) {
            Some(value) => return Text { kind: value.kind.clone(), span: e.span },
            None => return e.clone(),
        },
        Kind::Element(name, subscripts) => {
            Kind::Element(name.clone(), subscripts.iter().map(|e| replaced(e, values, bounds, true)).collect())
        }
        Kind::Call(Function::Select, operands) if !everywhere => {
            let mut named = BTreeSet::new();
            operands[1..].iter().for_each(|e| names_in_subscripts(e, &mut named));
            let mut chosen = vec![guarding(&operands[0], values, bounds, named)];
            chosen.extend(operands[1..].iter().map(|e| *inner(e)));
            Kind::Call(Function::Select, chosen)
        }
        Kind::Call(function, operands) => {
            Kind::Call(*function, operands.iter().map(|e| replaced(e, values, bounds, everywhere)).collect())
        }
        Kind::Cast(dtype, a) => Kind::Cast(*dtype, inner(a)),
        Kind::Negate(a) => Kind::Negate(inner(a)),
        Kind::Not(a) => Kind::Not(inner(a)),
        Kind::Binary(operator, a, b) => Kind::Binary(*operator, inner(a), inner(b)),
        _ => return e.clone(),
    };
    Text { kind, span: e.span }
}

#[cfg(test)]
mod tests {
    use super::forward;
    use crate::language::syntax::File;

    /// The statements after forwarding, in one line.
    fn forwarded(statements: &str) -> String {
        let arrays = "in u8 k[8]  in f32 x[8]  inout f32 y[8]  temp i32 a, b  temp i64 n  temp u8 w  temp f32 f";
        let file = crate::language::parse("p.tile", &format!("loop p(N = 8) {{ {arrays} {statements} }}"));
        let program = forward(&file.unwrap_or_else(|e| panic!("{e}")).programs[0]);
        let text = File { programs: vec![program], ..File::default() }.to_string();
        text.split_once("for").expect("a loop").1.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn has(statements: &str, expected: &str) {
        let found = forwarded(statements);
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn subscripts_take_the_value_of_a_temporary() {
        has("for i in 0..N { a = i32(k[i]) / 2  y[a] += x[i] }", "y[i32(i32(k[i]) / 2)] += x[i]");
        has(
            "for i in 0..N { a = i32(k[i])  b = min(a, 5)  y[i] = x[b + 1] }",
            "y[i] = x[i32(min(i32(i32(k[i])), 5)) + 1]",
        );
        // what takes floats to compute is an array of its own
        has("for i in 0..N { f = x[i] * 3  a = i32(f)  y[i] = x[a] }", "y[i] = x[a]");
        has(
            "for i in 0..N { f = x[i] * 3  a = i32(f)  for j in a..8 y[j] = 1 }",
            "for j in i32(i32(f32(x[i] * 3)))..8",
        );
        // of i64 it is affine where the value is, of other types it wraps
        has("for i in 1..N { n = i - 1  y[i] = x[n] }", "y[i] = x[i - 1]");
        has("for i in 0..N { w = 200 + 100  y[i] = x[w] }", "y[i] = x[u8(200 + 100)]");
        has("for i in 0..N { a = i32(k[i])  for j in a..8 y[j] = x[j] }", "for j in i32(i32(k[i]))..8");
        // blocks within, and values that are no subscripts stay
        has("for i in 0..N { a = i32(k[i])  for j in 0..2 if x[a] > 0 y[a] = f32(a) }", "if x[i32(i32(k[i]))] > 0");
        has("for i in 0..N { a = i32(k[i])  y[i] = f32(a) }", "y[i] = f32(a)");
    }

    #[test]
    fn conditions_on_a_subscript_take_its_value_too() {
        let value = "i32(i32(k[i]))";
        has(
            "for i in 0..N { a = i32(k[i])  if a > 2 && a < 7 y[a] += 1 }",
            &format!("if {value} > 2 && {value} < 7 {{ y["),
        );
        has("for i in 0..N { a = i32(k[i])  y[i] = select(a > 2, x[a], 0) }", &format!("select({value} > 2, x["));
        has("for i in 0..N { a = i32(k[i])  if a > 2 && x[a] > 0 y[i] += 1 }", &format!("if {value} > 2 && x["));
        // no subscript, another temporary, and what takes more than a number added to compute
        has("for i in 0..N { a = i32(k[i])  if a > 2 y[i] += 1 }", "if a > 2");
        has("for i in 0..N { a = i32(k[i])  b = i32(k[0])  if b > 2 y[a] += 1 }", "if b > 2");
        has("for i in 0..N { a = i32(k[i]) / 2  if a > 2 y[a] += 1 }", "if a > 2");
    }

    #[test]
    fn what_may_have_another_value_stays() {
        // two assignments, what the program writes, an update, blocks that do not contain the use
        has("for i in 0..N { a = 1  a = i32(k[i])  y[i] = x[a] }", "x[a]");
        has("for i in 0..N { a = i32(y[i])  y[i] = x[a] }", "x[a]");
        has("for i in 0..N { a += i32(k[i])  y[i] = x[a] }", "x[a]");
        has("for i in 0..N { y[i] = x[a]  a = i32(k[i]) }", "x[a]");
        has("for i in 0..N { for j in 0..2 a = i32(k[j])  y[i] = x[a] }", "x[a]");
        has("for i in 0..N { if i > 2 a = i32(k[i])  y[i] = x[a] }", "x[a]");
    }
}
