//! Primitives for operands that are read from a copy made before the loops.

use super::cache::cache_read_at;
use super::layout::{copy_of, lay_out};
use crate::expr::Access;
use crate::expr::Var;
use crate::expr::syntax::Style;
use crate::expr::syntax::{Expr, Kind, Name, Operator};
use crate::poly::packing::{PackedDim, Packing};
use crate::poly::scop::Scop;
use crate::poly::statement::Statement;
use crate::poly::transform::argument::Loop;
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::refuse;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};

/// `cache_read B`: everything reads B from a copy that is made before the loops, in the order of the subscripts until
/// `pack` gives it another. `cache_read B at ko`: [`cache_read_at`].
///
/// ```text
/// for i for j            for k for j  P(k, j) = B(k, j)
///   S(A(i), B(k, j))     for i for j
///                          S(A(i), P(k, j))
/// ```
pub fn cache_read(before: &Transformed, tensor: &Name, at: Option<&Loop>) -> Result<Transformed> {
    if let Some(at) = at {
        return cache_read_at(before, tensor, at);
    }
    let scop = &before.scop;
    let Some(id) = scop.tensors.iter().position(|t| t.name == tensor.text) else {
        let names: Vec<&str> = scop.tensors.iter().map(|t| t.name.as_str()).collect();
        return refuse(unknown("array", tensor, &names));
    };
    if scop.tensors[id].role.is_written() {
        return refuse(format!("`{tensor}` is written by the program: a copy made before the loops would be stale"));
    }
    let mut packings = before.packings.clone();
    for statement in scop.ids() {
        let s = scop.statement(statement);
        let mut reads: Vec<Access> = vec![];
        s.body.visit_accesses(&mut |a| {
            if a.buffer.0 as usize == id && !reads.contains(a) {
                reads.push(a.clone());
            }
        });
        for access in reads {
            let Some(iterators) = iterators(&access) else {
                return refuse(format!("`{}` reads `{tensor}` at computed subscripts", s.name));
            };
            let packing =
                Packing { statement, access, dims: iterators.into_iter().map(|v| (v, PackedDim::Whole)).collect() };
            if packings.iter().any(|p| (p.statement, &p.access) == (statement, &packing.access)) {
                return refuse(format!("`{tensor}` is already read from a copy"));
            }
            packings.push(packing);
        }
    }
    if packings.len() == before.packings.len() {
        return refuse(format!("nothing reads `{tensor}`"));
    }
    Ok(Transformed { packings, ..before.clone() })
}

/// `pack B as (n / 32, k, n % 32)`: the copy that `cache_read B` made has these dimensions, over the loops of the program
/// that the subscripts of B are in. A copy in an iteration of a loop: [`lay_out`].
///
/// ```text
/// P(k, n) = B(k, n)      P(n / 32, k, n % 32) = B(k, n)
/// ```
pub fn pack(before: &Transformed, tensor: &Name, layout: &[Expr]) -> Result<Transformed> {
    let scop = &before.scop;
    if let Some(copy) = copy_of(scop, &tensor.text) {
        return lay_out(before, copy, layout);
    }
    let mut packings = before.packings.clone();
    let (mut found, mut changed) = (false, false);
    for packing in packings.iter_mut().filter(|p| scop.tensor(p.access.buffer).name == tensor.text) {
        found = true;
        let dims: Vec<(Var, PackedDim)> = match layout
            .iter()
            .map(|e| dimension(scop.statement(packing.statement), e))
            .collect::<Result<Option<_>>>()?
        {
            Some(dims) => dims,
            None => continue,
        };
        let read = iterators(&packing.access).unwrap_or_default();
        if read.iter().all(|v| covers(&dims, *v)) && dims.iter().all(|d| read.contains(&d.0)) {
            (packing.dims, changed) = (dims, true);
        }
    }
    match (found, changed) {
        (false, _) => refuse(format!("`{tensor}` has no copy: add `cache_read {tensor}` first")),
        (true, false) => {
            refuse(format!("no read of `{tensor}` has the loops of this layout, each whole or as `n / 8` and `n % 8`"))
        }
        _ => Ok(Transformed { packings, ..before.clone() }),
    }
}

/// The layout of a copy over the loops of its reader, as [`pack`] reads it.
pub fn layout(scop: &Scop, packing: &Packing) -> Vec<Expr> {
    let expression = |kind| Expr { kind, span: Default::default() };
    let dimension = |&(v, part): &(Var, PackedDim)| {
        let name = &scop.statement(packing.statement).iterators[v.0 as usize].name;
        let by = |operator, t| {
            let operands = [Kind::Name(name.clone()), Kind::Integer(t)].map(|k| Box::new(expression(k)));
            let [a, b] = operands;
            expression(Kind::Binary(operator, a, b))
        };
        match part {
            PackedDim::Whole => expression(Kind::Name(name.clone())),
            PackedDim::Tile(t) => by(Operator::Div, t),
            PackedDim::Point(t) => by(Operator::Mod, t),
            PackedDim::Middle(t, p) => {
                let operands = [by(Operator::Mod, t), expression(Kind::Integer(p))].map(Box::new);
                let [a, b] = operands;
                expression(Kind::Binary(Operator::Div, a, b))
            }
        }
    };
    packing.dims.iter().map(dimension).collect()
}

/// The iterators in the subscripts of a read, `None` where one is computed.
fn iterators(access: &Access) -> Option<Vec<Var>> {
    let mut out = vec![];
    for index in &access.index {
        for (v, _) in &index.affine()?.terms {
            if !out.contains(v) {
                out.push(*v);
            }
        }
    }
    Some(out)
}

/// A dimension of a layout; `None` when the statement has no such loop.
fn dimension(s: &Statement, e: &Expr) -> Result<Option<(Var, PackedDim)>> {
    let iterator = |e: &Expr| match &e.kind {
        Kind::Name(name) => Some(s.iterators.iter().position(|i| i.name == *name).map(|v| Var(v as u32))),
        _ => None,
    };
    let dimension = match &e.kind {
        Kind::Binary(Operator::Div, a, b) if matches!(&a.kind, Kind::Binary(Operator::Mod, ..)) => {
            let Kind::Binary(_, i, whole) = &a.kind else { unreachable!("matched above") };
            match (iterator(i), &whole.kind, &b.kind) {
                (Some(v), Kind::Integer(t), Kind::Integer(p)) if *p > 0 && *t > 0 && t % p == 0 => {
                    Some(v.map(|v| (v, PackedDim::Middle(*t, *p))))
                }
                _ => None,
            }
        }
        Kind::Binary(operator @ (Operator::Div | Operator::Mod), a, b) => match (iterator(a), &b.kind) {
            (Some(v), Kind::Integer(t)) if *t > 0 => {
                let part = if *operator == Operator::Div { PackedDim::Tile(*t) } else { PackedDim::Point(*t) };
                Some(v.map(|v| (v, part)))
            }
            _ => None,
        },
        _ => iterator(e).map(|v| v.map(|v| (v, PackedDim::Whole))),
    };
    let written = e.show(Style::Round);
    dimension.ok_or_else(|| {
        Error::refused(format!("`{written}` is not a loop `n`, nor `n / 8`, `n % 8` or `n % 8 / 2` of one"))
    })
}

/// Returns true if a layout has all of an iterator: whole, or a tile and the point in it.
fn covers(dims: &[(Var, PackedDim)], v: Var) -> bool {
    let mut parts: Vec<PackedDim> = dims.iter().filter(|d| d.0 == v).map(|d| d.1).collect();
    parts.sort_by_key(|p| match p {
        PackedDim::Whole | PackedDim::Tile(_) => 0,
        PackedDim::Middle(..) => 1,
        PackedDim::Point(_) => 2,
    });
    match parts[..] {
        [PackedDim::Whole] => true,
        [PackedDim::Tile(a), PackedDim::Point(b)] => a == b,
        [PackedDim::Tile(a), PackedDim::Middle(b, p), PackedDim::Point(c)] => a == b && p == c,
        _ => false,
    }
}
