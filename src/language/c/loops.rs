//! Loop nests as C: a Scop in its original order.
//!
//! Each row of the order is the loop of one iterator of all statements below it, forwards or backwards. What the domains of
//! all of them say of it are its bounds; conditions stand as far out as their variables are known.

use super::expression::{Names, type_of};
use crate::expr::dynamic_bounds::{DynamicBound, Target};
use crate::expr::narrow::range_over_elements;
use crate::expr::{Access, Affine, BufferId, Expr, Index, UnaryOp, Var};
use crate::language::kept_inside;
use crate::poly::schedule::{Band, Node, Row};
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, StatementId, ranges};
use crate::runtime::{DType, Error, Result};
use std::fmt::Write;

/// The statements of a Scop, indented; `arrays` are the names of its tensors.
pub fn print(scop: &Scop, arrays: &[String], reserved: &dyn Fn(&str) -> bool) -> Result<String> {
    let dtypes: Vec<DType> = scop.tensors.iter().map(|t| t.dtype).collect();
    let records = scop.statements.iter().filter(|s| s.reduce.is_some() && scop.tensor(s.target).role == Role::Check);
    let checked = scop.statements.iter().flat_map(|s| kept_inside::checked_before(scop, s));
    let recorded = records.map(kept_inside::recorded).chain(checked).collect();
    let mut printer = Printer { scop, arrays, dtypes, reserved, recorded, dynamic: vec![], out: String::new() };
    let all: Vec<StatementId> = scop.ids().collect();
    printer.node(&scop.order.root, &all, &[], &[], 1)?;
    Ok(printer.out)
}

/// `double tmp[2][3]`.
pub fn declaration(name: &str, dtype: DType, shape: &[i64]) -> Result<String> {
    let dimensions: String = shape.iter().map(|n| format!("[{n}]")).collect();
    Ok(format!("{} {name}{dimensions}", type_of(dtype)?))
}

/// An assignment to a place from data, as lines with their depth: what keeps the element does not touch it, since its place may be outside.
fn assignment_under_conditions(
    names: &Names,
    target: &Target,
    value: &Expr,
    depth: usize,
    lines: &mut Vec<(usize, String)>,
) -> Result<()> {
    fn keeps(target: &Target, e: &Expr) -> bool {
        match e {
            Expr::Select(_, yes, no) => keeps(target, yes) || keeps(target, no),
            e => target.is_kept_by(e),
        }
    }
    let Expr::Select(condition, yes, no) = value else {
        if !target.is_kept_by(value) {
            lines.push((depth, names.assignment(target.buffer, target.index, target.reduce, value)?));
        }
        return Ok(());
    };
    if !keeps(target, value) {
        lines.push((depth, names.assignment(target.buffer, target.index, target.reduce, value)?));
        return Ok(());
    }
    let kept = [yes, no].map(|e| target.is_kept_by(e));
    let negated = || Expr::unary(UnaryOp::Not, (**condition).clone());
    let condition = if kept[0] { names.expression(&negated())? } else { names.expression(condition)? };
    lines.push((depth, format!("if ({condition}) {{")));
    if !kept[0] {
        assignment_under_conditions(names, target, yes, depth + 1, lines)?;
    }
    if kept == [false, false] {
        lines.push((depth, "} else {".into()));
    }
    if !kept[1] {
        assignment_under_conditions(names, target, no, depth + 1, lines)?;
    }
    lines.push((depth, "}".into()));
    Ok(())
}

/// Temporaries that are single numbers, declared inside of the function.
pub fn is_local(t: &crate::poly::statement::TensorDecl) -> bool {
    t.role == Role::Temporary && t.shape.is_empty()
}

struct Printer<'a> {
    scop: &'a Scop,
    arrays: &'a [String],
    dtypes: Vec<DType>,
    reserved: &'a dyn Fn(&str) -> bool,
    /// Subscripts of which the program keeps the extremes, or that it checks before it runs.
    recorded: Vec<&'a Expr>,
    /// Bounds from data of the loops so far.
    dynamic: Vec<LoopBound>,
    out: String,
}

/// A bound from data of the loop over one iterator: `form ≥ limit`, or `form < limit`.
#[derive(Clone, PartialEq)]
struct LoopBound {
    lower: bool,
    form: Affine,
    limit: Expr,
}

impl LoopBound {
    fn is(&self, bound: &DynamicBound) -> bool {
        self.lower == bound.lower && self.form == bound.form && self.limit == *bound.limit
    }
}

impl Printer<'_> {
    /// `vars` are the loops so far, `said` the conditions that hold here.
    fn node(&mut self, node: &Node, ids: &[StatementId], vars: &[String], said: &[Affine], depth: usize) -> Result<()> {
        let uses_only_outer = |a: &Affine| a.terms.last().is_none_or(|t| (t.0.0 as usize) < vars.len());
        let conditions: Vec<Affine> = self.common(ids, said).into_iter().filter(uses_only_outer).collect();
        if !conditions.is_empty() {
            let text = self.names(vars).conditions(&conditions);
            self.line(depth, &format!("if ({text}) {{"));
            self.node(node, ids, vars, &[said, &conditions].concat(), depth + 1)?;
            self.line(depth, "}");
            return Ok(());
        }
        match node {
            Node::Leaf => ids.iter().try_for_each(|&id| self.statement(id, vars, depth)),
            Node::Sequence(children) => {
                children.iter().try_for_each(|(ids, child)| self.node(child, ids, vars, said, depth))
            }
            Node::Band(band, child) => {
                let Some((row, rest)) = band.rows.split_first() else {
                    return self.node(child, ids, vars, said, depth);
                };
                let inner = Node::Band(Band { rows: rest.to_vec(), permutable: false }, child.clone());
                let outside = self.dynamic.len();
                self.dynamic.extend(self.bounds_from_data(ids, Var(vars.len() as u32)));
                let (header, vars, said) = self.header(row, ids, vars, said, outside)?;
                self.line(depth, &format!("{header} {{"));
                self.node(&inner, ids, &vars, &said, depth + 1)?;
                self.line(depth, "}");
                self.dynamic.truncate(outside);
                Ok(())
            }
        }
    }

    /// `for (…)`, and the variables and conditions inside.
    fn header(
        &self,
        row: &Row,
        ids: &[StatementId],
        vars: &[String],
        said: &[Affine],
        outside: usize,
    ) -> Result<(String, Vec<String>, Vec<Affine>)> {
        let malformed = || Error::Internal(format!("loop `{}` of `{}` is not an iterator", row.name, self.scop.name));
        let var = Var(vars.len() as u32);
        let backwards = row.of(ids[0]).coefficient(var) < 0;
        let time = Affine::var(var).scale(if backwards { -1 } else { 1 });
        let extent = self.scop.statement(ids[0]).iterators.get(vars.len()).ok_or_else(malformed)?.extent;
        let same = |&id: &StatementId| {
            *row.of(id) == time
                && self.scop.statement(id).iterators.get(vars.len()).is_some_and(|it| it.extent == extent)
        };
        if !ids.iter().all(same) {
            return Err(malformed());
        }
        let mut name = row.name.clone();
        while (self.reserved)(&name) || self.arrays.contains(&name) || vars.contains(&name) {
            name.push('_');
        }
        let inside: Vec<String> = vars.iter().cloned().chain([name.clone()]).collect();
        let names = self.names(&inside);
        let iterators = &self.scop.statement(ids[0]).iterators;
        let range = ranges(iterators);
        let (mut lower, mut upper, mut said) = (vec![], vec![], said.to_vec());
        for c in self.common(ids, &said) {
            let k = c.coefficient(var);
            if k != 0 && c.terms.last().is_some_and(|t| t.0 == var) {
                // k·var + rest ≥ 0
                let rest = c.clone().plus(var, -k);
                if k > 0 {
                    lower.push((rest.scale(-1).offset(k - 1), k));
                } else {
                    upper.push((rest, -k));
                }
                said.push(c);
            }
        }
        let bound = |(a, k): &(Affine, i64)| match k {
            1 => names.affine(a),
            k => format!("FLOOR_DIV({}, {k})", names.affine(a)),
        };
        if !lower.iter().any(|(a, k)| a.bounds(range).0.div_euclid(*k) >= 0) {
            lower.insert(0, (Affine::constant(0), 1));
        }
        if !upper.iter().any(|(a, k)| a.bounds(range).1.div_euclid(*k) < extent) {
            upper.insert(0, (Affine::constant(extent - 1), 1));
        }
        let join = |word: &str, bounds: &[(Affine, i64)]| {
            let texts = bounds.iter().map(bound);
            texts.reduce(|a, b| format!("{word}({a}, {b})")).unwrap_or_default()
        };
        let low = join("MAX", &lower);
        let own = &self.dynamic[outside..];
        if !own.is_empty() && !backwards {
            let ends: Vec<(Affine, i64)> = upper.iter().map(|(a, k)| (a.clone().offset(*k), *k)).collect();
            let (low, high) = self.within(own, &names, low, join("MIN", &ends))?;
            return Ok((format!("for (long {name} = {low}; {name} < {high}; {name}++)"), inside, said));
        }
        let header = match (&upper[..], backwards) {
            ([(a, 1)], false) => {
                format!("for (long {name} = {low}; {name} < {}; {name}++)", names.affine(&a.clone().offset(1)))
            }
            (_, false) => format!("for (long {name} = {low}; {name} <= {}; {name}++)", join("MIN", &upper)),
            (_, true) => format!("for (long {name} = {}; {name} >= {low}; {name}--)", join("MIN", &upper)),
        };
        Ok((header, inside, said))
    }

    /// The first value of a loop and one past its last, within bounds from data. A run checks that elements with ranges lie in the static
    /// bounds.
    fn within(&self, bounds: &[LoopBound], names: &Names, low: String, high: String) -> Result<(String, String)> {
        let numbers = low.parse::<i64>().ok().zip(high.parse::<i64>().ok());
        let elements = |b: BufferId| {
            let ranges = &self.scop.tensor(b).ranges;
            let (low, high) = (ranges.iter().map(|r| r.lower).min()?, ranges.iter().map(|r| r.upper).max()?);
            Some((low, high))
        };
        let is_open = |b: &LoopBound| {
            let far = |_: &Affine| (i64::MIN, i64::MAX);
            let (Some((low, high)), Some(known)) =
                (numbers, range_over_elements(&|b| self.dtypes[b.0 as usize], &elements, &far, &b.limit))
            else {
                return true;
            };
            known.0 < low.saturating_add(b.form.constant) || known.1 > high.saturating_add(b.form.constant)
        };
        let (mut lower, mut upper) = (vec![], vec![]);
        for b in bounds {
            let limit = match &b.limit {
                Expr::Cast(_, inner) if matches!(**inner, Expr::Load(_)) => names.expression(inner)?,
                limit => names.expression(limit)?,
            };
            let limit = match b.form.constant {
                0 => limit,
                first => format!("{limit} - {first}"),
            };
            let (side, static_bound) = if b.lower { (&mut lower, &low) } else { (&mut upper, &high) };
            side.extend((is_open(b) && side.is_empty()).then(|| static_bound.clone()));
            side.push(limit);
        }
        let join = |word: &str, bounds: Vec<String>, other: String| {
            bounds.into_iter().reduce(|a, b| format!("{word}({a}, {b})")).unwrap_or(other)
        };
        Ok((join("MAX", lower, low), join("MIN", upper, high)))
    }

    /// The bounds from data that all statements have for the loop over an iterator.
    fn bounds_from_data(&self, ids: &[StatementId], var: Var) -> Vec<LoopBound> {
        let of = |id: StatementId| {
            let s = self.scop.statement(id);
            let index = s.subscripts();
            let dtype = self.scop.tensor(s.target).dtype;
            let target = Target { buffer: s.target, index: &index, reduce: s.reduce, dtype };
            let outside = |b: &DynamicBound| b.form.terms == [(var, 1)] && b.variables().iter().all(|v| *v < var);
            let bounds = target.bounds(&s.body).into_iter().filter(outside);
            bounds
                .map(|b| LoopBound { lower: b.lower, form: b.form.clone(), limit: b.limit.clone() })
                .collect::<Vec<_>>()
        };
        let mut out = ids.first().map_or(vec![], |&id| of(id));
        out.retain(|b| ids.iter().all(|&id| of(id).contains(b)));
        out
    }

    /// Returns the conditions that all statements share and that the loops and branches around do not imply.
    fn common(&self, ids: &[StatementId], said: &[Affine]) -> Vec<Affine> {
        let domain = |id: StatementId| &self.scop.statement(id).domain[..];
        let mut out: Vec<Affine> = vec![];
        for c in ids.first().map_or(&[][..], |&id| domain(id)) {
            let all = ids.iter().all(|&id| domain(id).contains(c));
            if all && !said.contains(c) && !out.contains(c) {
                out.push(c.clone());
            }
        }
        out
    }

    fn statement(&mut self, id: StatementId, vars: &[String], depth: usize) -> Result<()> {
        let s = self.scop.statement(id);
        if self.scop.tensor(s.target).role == Role::Check {
            return Ok(());
        }
        let names = self.names(vars);
        let guarded = kept_inside::guarded(self.scop, id);
        let index: Vec<Index> = s.subscripts().iter().map(|i| self.subscript(i, &guarded)).collect();
        let body = self.unchecked(&s.body, &guarded);
        let dtype = self.scop.tensor(s.target).dtype;
        let target = Target { buffer: s.target, index: &index, reduce: s.reduce, dtype };
        let said = |e: &Expr| DynamicBound::of(e).is_some_and(|b| self.dynamic.iter().any(|d| d.is(&b)));
        let value = target.without(&body, &said);
        let mut lines = vec![];
        match index.iter().any(|i| i.value().is_some()) {
            true => assignment_under_conditions(&names, &target, &value, 0, &mut lines)?,
            false => lines.push((0, names.assignment(s.target, &index, s.reduce, &value)?)),
        }
        lines.iter().for_each(|(inside, text)| self.line(depth + inside, text));
        Ok(())
    }

    /// `e` with the subscripts that the program records, and those that `guarded` brings into a dimension where conditions keep them there, as they are.
    fn unchecked(&self, e: &Expr, guarded: &[&Expr]) -> Expr {
        match e {
            Expr::Load(access) => {
                let index = access.index.iter().map(|i| self.subscript(i, guarded)).collect();
                Expr::Load(Access { index, ..access.clone() })
            }
            e => e.map_children(&mut |e| self.unchecked(e, guarded)),
        }
    }

    fn subscript(&self, index: &Index, guarded: &[&Expr]) -> Index {
        let Index::Value(e) = index else { return index.clone() };
        let is_kept = |value: &&Expr| self.recorded.contains(value) || guarded.contains(&&**e);
        let value = kept_inside::brought_inside(e).filter(is_kept).unwrap_or(e);
        Index::Value(Box::new(self.unchecked(value, guarded)))
    }

    fn names<'n>(&'n self, vars: &'n [String]) -> Names<'n> {
        Names { arrays: self.arrays, dtypes: &self.dtypes, vars, flat: &[] }
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(depth));
    }
}
