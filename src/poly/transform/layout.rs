//! The layout of a copy in memory.

use crate::expr::syntax::{Expr, Kind, Operator};
use crate::expr::{Affine, BufferId, Var};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Form, Polyhedron, difference, plus, unit};
use crate::poly::statement::Statement;
use crate::poly::storage::{Digit, Private};
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::refuse;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};

/// The copy that `name` speaks of: a private temporary, or the last copy of a tensor of this name.
pub fn copy_of(scop: &Scop, name: &str) -> Option<usize> {
    let named =
        |p: &Private| scop.tensor(p.tensor).name == name || p.source.is_some_and(|t| scop.tensor(t).name == name);
    scop.privates.iter().rposition(named)
}

/// `pack B as (n / 16, k, n % 16)`: where the elements of the copy that `cache_read` or `cache_write` made lie in
/// memory. The dimensions are called as the loops that fill the copy, or d0, d1 …, and begin at 0 in each iteration.
///
/// ```text
/// B_cache[k][n]       B_cache[n / 16][k][n % 16]
/// ```
pub fn lay_out(before: &Transformed, which: usize, layout: &[Expr]) -> Result<Transformed> {
    let mut out = before.clone();
    let tensor = out.scop.privates[which].tensor;
    if let Some(s) = out.scop.statements.iter().find(|s| gathers(s, tensor)) {
        let name = &out.scop.tensor(tensor).name;
        return refuse(format!("`{}` reads `{name}` at computed subscripts, which have no place in a layout", s.name));
    }
    let shape = out.scop.tensor(tensor).shape.clone();
    let names = names_of(&out.scop, &out.scop.privates[which]);
    let digits = layout.iter().map(|e| digit(e, &names)).collect::<Result<Vec<_>>>()?;
    let range = |v: Var| (0, shape[v.0 as usize] - 1);
    if let Some(k) = digits.iter().position(|d| d.form.bounds(range).0 < 0) {
        return refuse(format!("subscript {k} of the layout is negative for some elements"));
    }
    if let Some((a, b)) = collision(&digits, &shape)? {
        let name = &out.scop.tensor(tensor).name;
        let show = |p: &[i64]| p.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        return refuse(format!("elements ({}) and ({}) of `{name}` would share one location", show(&a), show(&b)));
    }
    out.scop.privates[which].layout = digits;
    Ok(out)
}

/// Returns true if a statement reads a tensor at subscripts from data.
fn gathers(s: &Statement, tensor: BufferId) -> bool {
    let mut found = false;
    s.visit_accesses(&mut |a| found |= a.buffer == tensor && a.index.iter().any(|i| i.affine().is_none()));
    found
}

/// The iterators of the statement that fills the copy, or that writes it.
fn names_of(scop: &Scop, private: &Private) -> Vec<String> {
    let rank = scop.tensor(private.tensor).shape.len();
    let s = scop.statements.iter().rev().find(|s| s.target == private.tensor && s.reduce.is_none());
    let name = |d: usize| match s.map(|s| (s, &s.write[d].terms[..])) {
        Some((s, [(v, 1)])) => s.iterator(*v).name.clone(),
        _ => format!("d{d}"),
    };
    (0..rank).map(name).collect()
}

/// An expression of the dimensions as a digit.
fn digit(e: &Expr, names: &[String]) -> Result<Digit> {
    let plain = |form: Affine| Digit { form, divisor: 1, modulo: None };
    let number = |e: &Expr| match e.kind {
        Kind::Integer(c) if c > 0 => Ok(c),
        _ => refuse("a layout divides by positive numbers only"),
    };
    let affine = |e: &Expr| match digit(e, names)? {
        Digit { form, divisor: 1, modulo: None } => Ok(form),
        _ => refuse("a layout may divide sums, but not add quotients or remainders"),
    };
    let same =
        |what: i64, of: i64| format!("{what} does not divide {of}: the subscript is not a digit of a mixed radix");
    match &e.kind {
        Kind::Integer(c) => Ok(plain(Affine::constant(*c))),
        Kind::Name(name) => {
            let numbered = |d: &usize| *name == format!("d{d}");
            match names.iter().position(|n| n == name).or_else(|| (0..names.len()).find(numbered)) {
                Some(d) => Ok(plain(Affine::var(Var(d as u32)))),
                None => refuse(unknown("dimension of the copy", name, names)),
            }
        }
        Kind::Binary(Operator::Add, a, b) => Ok(plain(affine(a)?.add_scaled(&affine(b)?, 1))),
        Kind::Binary(Operator::Sub, a, b) => Ok(plain(affine(a)?.add_scaled(&affine(b)?, -1))),
        Kind::Binary(Operator::Mul, a, b) => match (affine(a)?, affine(b)?) {
            (a, b) if b.is_constant() => Ok(plain(a.scale(b.constant))),
            (a, b) if a.is_constant() => Ok(plain(b.scale(a.constant))),
            _ => refuse("a layout is affine, except for `/` and `%` by numbers"),
        },
        Kind::Binary(Operator::Div, a, by) => {
            let (d, by) = (digit(a, names)?, number(by)?);
            let divisor = d.divisor.checked_mul(by).ok_or_else(|| Error::refused("a divisor is too large"))?;
            match d.modulo {
                None => Ok(Digit { divisor, ..d }),
                Some(m) if m % by == 0 => Ok(Digit { divisor, modulo: Some(m / by), ..d }),
                Some(m) => refuse(same(by, m)),
            }
        }
        Kind::Binary(Operator::Mod, a, by) => {
            let (d, by) = (digit(a, names)?, number(by)?);
            match d.modulo {
                Some(m) if m % by != 0 => refuse(same(by, m)),
                _ => Ok(Digit { modulo: Some(by), ..d }),
            }
        }
        _ => refuse("a layout is made of dimensions, numbers, + - * / and %"),
    }
}

/// Two elements of a box with the same digits.
fn collision(digits: &[Digit], shape: &[i64]) -> Result<Option<(Vec<i64>, Vec<i64>)>> {
    let m = shape.len();
    let mut p = Polyhedron::universe(2 * m);
    for v in 0..2 * m {
        p.bound(&unit(2 * m, v), 0, shape[v % m] - 1);
    }
    for d in digits {
        let mut value = |first: usize| {
            let form = p.form(&d.form, first);
            let quotient = p.quotient(form, d.divisor);
            let Some(m) = d.modulo else { return quotient };
            let more = p.quotient(quotient.clone(), m);
            let more: Form = p.widen(more).iter().map(|c| c * m).collect();
            if m == 1 { vec![0; p.dims + 1] } else { difference(&p.widen(quotient), &more) }
        };
        let (a, b) = (value(0), value(m));
        p.equalities.push(difference(&p.widen(a), &p.widen(b)));
    }
    let isl = Isl::default();
    for d in 0..m {
        let mut apart = p.clone();
        let step = difference(&unit(p.dims, m + d), &unit(p.dims, d));
        apart.inequalities.push(plus(&step, -1));
        if let Some(point) = isl.first_point(&apart)? {
            return Ok(Some((point[..m].to_vec(), point[m..2 * m].to_vec())));
        }
    }
    Ok(None)
}
