//! If-conversion: statements under a condition that is not affine become assignments of selected values.
//!
//! In: the statements of a loop program. Out: statements whose conditions are all affine. `if c x = v` is
//! `x = select(c, v, x)`, and an update takes the neutral element of its operation where `c` does not hold, so that it remains
//! a reduction. Of a temporary that only one branch names, and assigns before it reads it, nothing is kept: it is assigned where `c` does not hold too, the value where
//! that reads no element at a subscript from data, or else 0. Where the condition is on an index, as of loops with bounds from data, it stays. Two branches that assign to the same elements in the same order become one list of selections. A condition
//! whose arrays the branches write before its last use ([`super::branches`]) is kept in a temporary of its own, which is assigned before them; in a loop with bounds from data it keeps
//! its value where an index lies outside of these, as all that is assigned there. Affine parts of a
//! conjunction or a disjunction remain conditions. Source: J. R. Allen, K. Kennedy, C. Porterfield, J. Warren, *Conversion of
//! control dependence to data dependence*, POPL 1983.

use super::branches::{paired, put_last, taken_out, writes_of};
use super::condition;
use super::def;
use super::live_ranges::{assigned_before_read, occurrences};
use super::scope::plain;
use super::source::{Checked, Diagnostic};
use super::syntax::{Access as Use, Array, Assign, Assignment, Body, Combine, Program, Statement, assignments};
use crate::expr::scalar::Value;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator, Span, Style};
use crate::expr::{BinaryOp, CompareOp, Scalar};
use crate::language::environment::Scope;
use crate::poly::statement::TensorDecl;
use crate::runtime::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Most statements after conversion: conditions with affine parts and others double what stands behind `else`.
const STATEMENTS: usize = 2000;

/// The program with affine conditions alone; its new temporaries are the last of its arrays.
///
/// # Errors
/// `Invalid` where a condition names what is not defined, `Unsupported` for more than [`STATEMENTS`].
pub fn convert(program: &Program, sizes: &BTreeMap<String, i64>, known: &[TensorDecl]) -> Checked<Program> {
    let mut out = program.clone();
    if let Body::Loop { arrays, statements, .. } = &mut out.body {
        let occurrences = occurrences(statements);
        let within = assigned_before_read(program).into_iter();
        let within = within.filter_map(|name| occurrences.get_key_value(&name)).map(|(name, n)| (name.clone(), *n));
        let mut conversion = Conversion {
            sizes,
            known,
            indices: vec![],
            written: vec![],
            used: vec![],
            conditions: vec![],
            kept: BTreeSet::new(),
            begun: BTreeSet::new(),
            occurrences: within.collect(),
            private: BTreeSet::new(),
        };
        names(statements, &mut conversion.used);
        *statements = conversion.block(statements)?;
        arrays.extend(conversion.conditions);
    }
    Ok(out)
}

/// The indices of loops.
fn names(statements: &[Statement], out: &mut Vec<String>) {
    for s in statements {
        match s {
            Statement::For { index, body, .. } => {
                out.push(index.text.clone());
                names(body, out);
            }
            Statement::If { body, otherwise, .. } => {
                names(body, out);
                names(otherwise, out);
            }
            Statement::Assign(_) => {}
        }
    }
}

struct Conversion<'a> {
    sizes: &'a BTreeMap<String, i64>,
    known: &'a [TensorDecl],
    /// Indices of the loops around the statement.
    indices: Vec<String>,
    /// Targets of the assignments of each of these loops.
    written: Vec<BTreeSet<String>>,
    /// Indices of all loops.
    used: Vec<String>,
    /// Temporaries that conditions are kept in.
    conditions: Vec<Array>,
    /// Those of them, and temporaries of one branch, that keep their value where an index does not lie between bounds from data, so that such a loop
    /// runs between these.
    kept: BTreeSet<String>,
    /// Those of them that have a value before the loop.
    begun: BTreeSet<String>,
    /// Temporaries of which each read sees an assignment, with how often the program names them.
    occurrences: BTreeMap<String, usize>,
    /// Those that only one of the branches names which are being converted.
    private: BTreeSet<String>,
}

impl Conversion<'_> {
    fn block(&mut self, statements: &[Statement]) -> Checked<Vec<Statement>> {
        let mut out = vec![];
        for s in statements {
            match s {
                Statement::For { index, range, step, body } => {
                    self.indices.push(index.text.clone());
                    self.written.push(assignments(body).iter().map(|a| a.target.text.clone()).collect());
                    let body = self.block(body);
                    self.indices.pop();
                    self.written.pop();
                    out.extend(self.kept.difference(&self.begun).map(|name| self.begin(name, range.lower.span)));
                    self.begun.extend(self.kept.iter().cloned());
                    out.push(Statement::For { index: index.clone(), range: range.clone(), step: *step, body: body? });
                }
                Statement::If { condition, body, otherwise } => {
                    let private = self.private(condition, [body, otherwise]);
                    let (first, bounds) = (self.conditions.len(), self.bounds(condition));
                    if bounds {
                        self.kept.extend(self.named_alone([body, otherwise]));
                    }
                    let (body, otherwise) = (self.block(body)?, self.block(otherwise)?);
                    if bounds {
                        self.kept.extend(self.conditions[first..].iter().map(|c| c.name.text.clone()));
                    }
                    self.private = private;
                    out.extend(self.branches(condition, body, otherwise)?);
                }
                Statement::Assign(_) => out.push(s.clone()),
            }
        }
        Ok(out)
    }

    /// The temporaries that nothing beside one of two branches names, where no index is compared.
    fn private(&self, condition: &Text, branches: [&Vec<Statement>; 2]) -> BTreeSet<String> {
        match compares(condition, &self.indices) {
            true => BTreeSet::new(),
            false => self.named_alone(branches),
        }
    }

    /// The temporaries that nothing beside one of the branches names.
    fn named_alone(&self, branches: [&Vec<Statement>; 2]) -> BTreeSet<String> {
        let named = branches.into_iter().flat_map(|branch| occurrences(branch));
        named.filter(|(name, n)| self.occurrences.get(name) == Some(n)).map(|(name, _)| name).collect()
    }

    /// Returns true if one of the conditions is a comparison of an index with data, or with a product of indices, that are known where its loop begins.
    fn bounds(&self, condition: &Text) -> bool {
        operands(condition, Operator::And).into_iter().any(|part| {
            let compared = |index: &String| compares(part, std::slice::from_ref(index));
            let (Kind::Binary(Operator::Compare(op), a, b), Some(loop_of)) =
                (&part.kind, self.indices.iter().rposition(compared))
            else {
                return false;
            };
            let (inner, written) = (&self.indices[loop_of..], &self.written[loop_of]);
            let outside = [a, b].into_iter().find(|e| !compares(e, inner));
            let (mut is_data, mut changes) = (false, outside.is_none());
            outside.into_iter().for_each(|e| {
                e.visit(&mut |e| match &e.kind {
                    Kind::Binary(Operator::Mul, a, b) => {
                        is_data |= compares(a, &self.indices) && compares(b, &self.indices);
                    }
                    Kind::Element(name, _) => {
                        is_data = true;
                        changes |= written.contains(&name.text);
                    }
                    Kind::Name(name) => {
                        is_data |= self.known.iter().any(|a| a.name == *name);
                        changes |= written.contains(name) || inner.contains(name);
                    }
                    _ => {}
                });
            });
            !matches!(op, CompareOp::Eq | CompareOp::Ne) && is_data && !changes
        })
    }

    /// The assignment before a loop of what each of its iterations assigns: what is kept of it comes from no other run of the loop.
    fn begin(&self, name: &str, span: Span) -> Statement {
        let target = Name { text: name.to_string(), span };
        let dtype = self.known.iter().find(|known| known.name == name).map_or(DType::Bool, |known| known.dtype);
        let (value, label) = (Text { kind: zero(dtype), span }, Name { text: format!("begin_{name}"), span });
        Statement::Assign(Assignment {
            label: Some(label),
            target,
            subscripts: vec![],
            assign: Assign::Set,
            value,
            span,
        })
    }

    fn is_affine(&self, condition: &Text) -> Checked<bool> {
        condition::is_affine(&Scope::new(self.sizes, &self.indices, self.known, &plain, Style::Square), condition)
    }

    /// Converted branches under a condition.
    fn branches(
        &mut self,
        condition: &Text,
        body: Vec<Statement>,
        otherwise: Vec<Statement>,
    ) -> Checked<Vec<Statement>> {
        if self.is_affine(condition)? {
            return Ok(vec![Statement::If { condition: condition.clone(), body, otherwise }]);
        }
        if let Kind::Not(a) = &condition.kind {
            return self.branches(a, otherwise, body);
        }
        if let Kind::Binary(operator @ (Operator::And | Operator::Or), ..) = condition.kind {
            let (mut affine, mut rest) = (None, None);
            for part in operands(condition, operator) {
                let joined = if self.is_affine(part)? { &mut affine } else { &mut rest };
                *joined = Some(match joined.take() {
                    None => part.clone(),
                    Some(before) => binary(operator, before, part.clone()),
                });
            }
            if let (Some(affine), Some(rest)) = (affine, rest) {
                let (body, otherwise) = match operator {
                    Operator::And => (self.branches(&rest, body, otherwise.clone())?, otherwise),
                    _ => (body.clone(), self.branches(&rest, body, otherwise)?),
                };
                if assignments(&body).len() + assignments(&otherwise).len() > STATEMENTS {
                    let message = format!("conditions that make more than {STATEMENTS} statements");
                    return Err(Diagnostic::unsupported(condition.span, message));
                }
                return Ok(vec![Statement::If { condition: affine, body, otherwise }]);
            }
        }
        Ok(self.selected(condition, body, otherwise))
    }

    /// Branches under a condition that is not affine.
    fn selected(&mut self, condition: &Text, body: Vec<Statement>, otherwise: Vec<Statement>) -> Vec<Statement> {
        let (mut out, mut condition, mut body, mut otherwise) = (vec![], condition.clone(), body, otherwise);
        let pairs = paired([&body, &otherwise], self.known);
        if pairs.is_none() {
            let scope = Scope::new(self.sizes, &self.indices, self.known, &plain, Style::Square);
            let of =
                |a: &Assignment| self.known.iter().find(|known| known.name == a.target.text).map(|known| known.dtype);
            let fits =
                |a: &Assignment| scope.dtype(&a.value).is_ok_and(|d| of(a).is_some() && (d.is_none() || d == of(a)));
            let both = taken_out(&condition, [&mut body, &mut otherwise], (&fits, self.known));
            out.extend(both.into_iter().map(|pair| selection(&condition, pair)));
        }
        let last = match pairs.as_ref().and_then(|pairs| pairs.split_last()) {
            Some((_, before)) => (!writes_of(&body[..before.len()], &condition)).then_some(1),
            None => put_last(&condition, [&mut body, &mut otherwise]),
        };
        if last.is_none() {
            let name = self.temporary(&condition);
            let value =
                std::mem::replace(&mut condition, Text { kind: Kind::Name(name.text.clone()), span: name.span });
            let span = value.span;
            let keeps = Assignment { label: None, target: name, subscripts: vec![], assign: Assign::Set, value, span };
            out.push(Statement::Assign(keeps));
        }
        if let Some(pairs) = pairs {
            out.extend(pairs.into_iter().map(|pair| selection(&condition, pair)));
            return out;
        }
        let negated = Text { kind: Kind::Not(Box::new(condition.clone())), span: condition.span };
        let mut branches = [(&condition, body), (&negated, otherwise)];
        if last == Some(0) {
            branches.reverse();
        }
        for (condition, block) in branches {
            out.extend(block.into_iter().map(|s| self.under(condition, s)));
        }
        out
    }

    /// A new temporary for a condition.
    fn temporary(&mut self, condition: &Text) -> Name {
        let taken = |name: &str| {
            self.known.iter().any(|a| a.name == name)
                || self.conditions.iter().any(|a| *a.name == *name)
                || self.used.iter().any(|i| i == name)
                || self.sizes.contains_key(name)
        };
        let name = (1..).map(|n| format!("condition_{n}")).find(|name| !taken(name)).unwrap_or_default();
        let name = Name { text: name, span: condition.span };
        self.conditions.push(Array {
            access: Some(Use::Temporary),
            dtype: DType::Bool,
            name: name.clone(),
            shape: vec![],
        });
        name
    }

    /// Returns true if `e` has a subscript that is not of indices and sizes alone.
    fn reads_at_data(&self, e: &Text) -> bool {
        let mut of_data = false;
        let is_data = |name: &str| !self.sizes.contains_key(name) && !self.used.iter().any(|i| i == name);
        e.visit(&mut |e| {
            if let Kind::Element(_, subscripts) = &e.kind {
                subscripts.iter().for_each(|e| {
                    e.visit(&mut |e| {
                        of_data |= match &e.kind {
                            Kind::Name(name) => is_data(name),
                            Kind::Element(..) => true,
                            _ => false,
                        }
                    });
                });
            }
        });
        of_data
    }

    /// A converted statement where `condition` holds.
    fn under(&self, condition: &Text, s: Statement) -> Statement {
        let all = |block: Vec<Statement>| block.into_iter().map(|s| self.under(condition, s)).collect();
        match s {
            Statement::For { index, range, step, body } => Statement::For { index, range, step, body: all(body) },
            Statement::If { condition: affine, body, otherwise } => {
                Statement::If { condition: affine, body: all(body), otherwise: all(otherwise) }
            }
            Statement::Assign(a) => Statement::Assign(self.assign_under(condition, a)),
        }
    }

    fn assign_under(&self, condition: &Text, mut a: Assignment) -> Assignment {
        if self.conditions.iter().any(|c| c.name == a.target) {
            // a condition within a branch
            let name = Text { kind: Kind::Name(a.target.text.clone()), span: a.target.span };
            a.value = match self.kept.contains(&a.target.text) {
                true => select(condition, a.value, name),
                false => binary(Operator::And, condition.clone(), a.value),
            };
            return a;
        }
        let is_private = self.private.contains(&a.target.text);
        if is_private && !self.reads_at_data(&a.value) {
            return a;
        }
        let element = match a.subscripts.is_empty() {
            true => Kind::Name(a.target.text.clone()),
            false => Kind::Element(a.target.clone(), a.subscripts.clone()),
        };
        let element = Text { kind: element, span: a.target.span };
        if let (Assign::Set, Kind::Call(Function::Binary(op @ (BinaryOp::Min | BinaryOp::Max)), o)) =
            (a.assign, &a.value.kind)
            && let Some(e) = [(0, 1), (1, 0)].into_iter().find(|&(x, _)| o[x] == element).map(|(_, e)| o[e].clone())
        {
            // `x = max(x, e)` is `x max= e`
            a.assign = Assign::Update(if *op == BinaryOp::Min { Combine::Min } else { Combine::Max });
            a.value = e;
        }
        let Assign::Update(combine) = a.assign else {
            // what keeps it elsewhere for a reason of its own has to go on
            let keeps = matches!(&a.value.kind, Kind::Call(Function::Select, o) if o.last() == Some(&element));
            let known = self.known.iter().find(|known| is_private && !keeps && known.name == a.target.text);
            let kept = known.map_or(element, |known| Text { kind: zero(known.dtype), span: a.span });
            a.value = select(condition, a.value, kept);
            return a;
        };
        if combine == Combine::Div {
            // no reduction: what is kept is read as it is
            a.value = select(condition, binary(Operator::Div, element.clone(), a.value), element);
            a.assign = Assign::Set;
            return a;
        }
        let dtype = self.known.iter().find(|known| known.name == a.target.text).map(|known| known.dtype);
        if let Some(neutral) = dtype.and_then(|dtype| neutral(combine, dtype, a.span)) {
            a.value = select(condition, a.value, Text { kind: neutral, span: a.span });
        } else if let Some(op) = dtype.and_then(|dtype| def::reduction(combine, dtype, a.span).ok()) {
            let updated = Kind::Call(Function::Binary(op), vec![element.clone(), a.value]);
            a.value = select(condition, Text { kind: updated, span: a.span }, element);
            a.assign = Assign::Set;
        }
        a
    }
}

fn zero(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Bool(false),
        dtype if dtype.is_float() => Kind::Real(0.0),
        _ => Kind::Integer(0),
    }
}

/// The value that leaves an element as it is: of a sum of floats -0, since 0 added to -0 is 0. `None` where it has no literal, as
/// the greatest u64, and where the type has no such update.
fn neutral(combine: Combine, dtype: DType, span: Span) -> Option<Kind> {
    match combine {
        Combine::Sub => return Some(Kind::Integer(0)),
        Combine::Add if dtype.is_float() => return Some(Kind::Real(-0.0)),
        _ => {}
    }
    let op = def::reduction(combine, dtype, span).ok()?;
    let value = Value::from(Scalar::neutral(op, dtype).ok()?);
    if dtype.is_float() {
        return Some(Kind::Real(value.as_f64()));
    }
    Some(value.as_i64()).filter(|v| *v >= 0 || dtype != DType::U64).map(Kind::Integer)
}

/// Operands of a chain of one operator, from left to right.
pub fn operands(e: &Text, operator: Operator) -> Vec<&Text> {
    match &e.kind {
        Kind::Binary(of, a, b) if *of == operator => [operands(a, operator), operands(b, operator)].concat(),
        _ => vec![e],
    }
}

/// Returns true if an index is a number in `e`, outside of subscripts.
fn compares(e: &Text, indices: &[String]) -> bool {
    match &e.kind {
        Kind::Name(name) => indices.contains(name),
        Kind::Call(_, operands) => operands.iter().any(|e| compares(e, indices)),
        Kind::Cast(_, a) | Kind::Negate(a) | Kind::Not(a) => compares(a, indices),
        Kind::Binary(_, a, b) => compares(a, indices) || compares(b, indices),
        Kind::Element(..) | Kind::Integer(_) | Kind::Unsigned(_) | Kind::Real(_) | Kind::Bool(_) => false,
    }
}

fn binary(operator: Operator, a: Text, b: Text) -> Text {
    let span = a.span.to(b.span);
    Text { kind: Kind::Binary(operator, Box::new(a), Box::new(b)), span }
}

/// The assignment of two branches.
fn selection(condition: &Text, (a, b): (Assignment, Assignment)) -> Statement {
    let value = select(condition, a.value, b.value);
    Statement::Assign(Assignment { value, ..a })
}

fn select(condition: &Text, a: Text, b: Text) -> Text {
    let span = a.span;
    Text { kind: Kind::Call(Function::Select, vec![condition.clone(), a, b]), span }
}

#[cfg(test)]
mod tests {
    use super::convert;
    use crate::language::loops::arrays;
    use crate::language::syntax::File;

    const ARRAYS: &str =
        "in f32 x[N]  in i32 k[N]  inout f32 y[N]  inout f32 best, second  inout i64 at  inout u64 least";

    /// Converted statements, in one line.
    fn converted(statements: &str) -> String {
        let text = format!("loop p(N = 8) {{ {ARRAYS} {statements} }}");
        let file = crate::language::parse("p.tile", &text).unwrap_or_else(|e| panic!("{e}"));
        let sizes =
            file.programs[0].bind(&Default::default(), None).unwrap_or_else(|e| panic!("{}", file.source.error(e)));
        let convert = || convert(&file.programs[0], &sizes, &arrays(&file.programs[0], &sizes)?);
        let program = convert().unwrap_or_else(|e| panic!("{}", file.source.error(e)));
        let out = File { programs: vec![program], ..File::default() }.to_string();
        let body = out.split_once("u64 least").expect("the arrays").1;
        body.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches(" }").to_string()
    }

    fn is(statements: &str, expected: &str) {
        assert_eq!(converted(statements), converted(expected), "{statements}");
    }

    #[test]
    fn assignments_select_and_updates_take_the_neutral_element() {
        is("for i in 0..N if x[i] > 0 y[i] = 1", "for i in 0..N y[i] = select(x[i] > 0, 1, y[i])");
        is("for i in 0..N if k[i] > 0 at += 2", "for i in 0..N at += select(k[i] > 0, 2, 0)");
        is("for i in 0..N if k[i] > 0 best -= 2", "for i in 0..N best -= select(k[i] > 0, 2, 0)");
        is("for i in 0..N if k[i] > 0 best *= x[i]", "for i in 0..N best *= select(k[i] > 0, x[i], 1.0)");
        is("for i in 0..N if k[i] > 0 best = max(best, x[i])", "for i in 0..N best max= select(k[i] > 0, x[i], -inf)");
        is("for i in 0..N if k[i] > 0 y[i] /= x[i]", "for i in 0..N y[i] = select(k[i] > 0, y[i] / x[i], y[i])");
        // the greatest u64 is no literal
        is("for i in 0..N if k[i] > 0 least min= 3", "for i in 0..N least = select(k[i] > 0, min(least, 3), least)");
        assert!(converted("for i in 0..N if k[i] > 0 best += x[i]").ends_with("best += select(k[i] > 0, x[i], -0.0)"));
    }

    #[test]
    fn two_branches_of_the_same_elements_are_one_list() {
        is(
            "for i in 0..N if x[i] > 0 y[i] = 1 else if k[i] > 0 y[i] = 2 else y[i] = 3",
            "for i in 0..N y[i] = select(x[i] > 0, 1, select(k[i] > 0, 2, 3))",
        );
        is(
            "for i in 0..N if x[i] > 0 y[i] = 1 else best = 2",
            "for i in 0..N { y[i] = select(x[i] > 0, 1, y[i])  best = select(!(x[i] > 0), 2, best) }",
        );
    }

    #[test]
    fn what_is_affine_stays_a_condition() {
        is("for i in 0..N if i > 2 y[i] = 1", "for i in 0..N if i > 2 y[i] = 1");
        is(
            "for i in 0..N if x[i] > 0 && i > 2 && k[i] > 1 y[i] = 1 else y[i] = 2",
            "for i in 0..N if i > 2 y[i] = select(x[i] > 0 && k[i] > 1, 1, 2) else y[i] = 2",
        );
        is(
            "for i in 0..N if !(i > 2 || x[i] > 0) y[i] = 1",
            "for i in 0..N if i > 2 {} else y[i] = select(!(x[i] > 0), 1, y[i])",
        );
        is("for i in 0..N if i % 2 == 0 y[i] = 1", "for i in 0..N y[i] = select(i % 2 == 0, 1, y[i])");
    }

    #[test]
    fn chains_that_double_are_refused() {
        let chain = |n: usize| {
            let tests: String = (0..n).map(|v| format!("if i > {v} && k[i] == {v} y[{v}] = 1 else ")).collect();
            crate::language::parse("p.tile", &format!("loop p(N = 64) {{ {ARRAYS} for i in 0..N {tests} best = 0 }}"))
                .and_then(|file| file.lower(&file.programs[0], &Default::default(), None).map(|_| ()))
        };
        assert!(chain(4).is_ok());
        let message = chain(40).expect_err("2^40 statements").to_string();
        assert!(message.contains("more than 2000 statements"), "{message}");
    }

    #[test]
    fn of_what_one_branch_names_alone_nothing_is_kept() {
        let has = |statements: &str, expected: &str| {
            let temporaries = if statements.contains("t = ") { "s, t" } else { "s" };
            let found = converted(&format!("temp f32 {temporaries} {statements}"));
            assert!(found.contains(expected), "{found}");
        };
        has(
            "for i in 0..N if k[i] > 0 { s = x[i]  t = s * s  y[i] = t }",
            "{ s = x[i] t = s * s y[i] = select(k[i] > 0, t",
        );
        has("for i in 0..N if k[i] > 0 { s = 1  s *= x[i]  y[i] = s }", "s = 1 s *= x[i] y[i] =");
        // a subscript from data counts where the condition holds
        has("for i in 0..N if k[i] > 0 { s = x[k[i]]  y[i] = s }", "s = select(k[i] > 0, x[k[i]], 0.0)");
        // in loops with bounds from data, elsewhere, and before it is assigned
        has(
            "for i in 0..N if i < k[0] { s = x[i]  y[i] = s }",
            "s = 0.0 for i in 0..N { s = select(i < k[0], x[i], s)",
        );
        has("for i in 0..N { s = 1  if k[i] > 0 { s = x[i]  y[i] = s } }", "s = select(k[i] > 0, x[i], s)");
        has("for i in 0..N if k[i] > 0 { y[i] = s  s = x[i] }", "s = select(k[i] > 0, x[i], s)");
    }

    #[test]
    fn what_changes_the_condition_comes_last() {
        is(
            "for i in 0..N if x[i] > best { best = x[i]  at = i }",
            "for i in 0..N { at = select(x[i] > best, i, at)  best = select(x[i] > best, x[i], best) }",
        );
        is(
            "for i in 0..N if x[i] > best { best = x[i]  at = 1 } else if x[i] == best at += 1",
            "for i in 0..N { at = select(x[i] > best, 1, at + select(x[i] == best, 1, 0))
                            best = select(x[i] > best, x[i], best) }",
        );
        is(
            "for i in 0..N if y[i] > 1 y[i] -= 2 else if y[i] < 0 y[i] += 2",
            "for i in 0..N y[i] += select(y[i] > 1, -2, select(y[i] < 0, 2, -0.0))",
        );
        is(
            "for i in 0..N if y[i] > 1 { second = y[i]  y[i] = 2 } else { second = 1  y[i] = 3 }",
            "for i in 0..N { second = select(y[i] > 1, y[i], 1)  y[i] = select(y[i] > 1, 2, 3) }",
        );
    }

    #[test]
    fn a_condition_that_the_branches_change_is_kept() {
        // a statement alone reads it first
        is("for i in 0..N if y[i] > 1 y[i] = 1", "for i in 0..N y[i] = select(y[i] > 1, 1, y[i])");
        let kept = "temp bool condition_1 for i in 0..N { condition_1 = x[i] > best best = select(condition_1, x[i], best) \
                    y[i] = select(condition_1, best, y[i])";
        assert_eq!(converted("for i in 0..N if x[i] > best { best = x[i]  y[i] = best }"), kept);
        // within another branch it holds where both do
        let nested = converted("for i in 0..N if k[i] > 0 { if x[i] > best { best = x[i]  second = best } }");
        assert!(nested.contains("condition_1 = k[i] > 0 && x[i] > best"), "{nested}");
        // and a loop changes it for its next iteration
        let looped = converted("for i in 0..N if best > 1 for j in 0..N best -= x[j]");
        assert!(looped.contains("condition_1 = best > 1"), "{looped}");
    }
}
