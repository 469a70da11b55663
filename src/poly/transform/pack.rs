//! Primitives for operands that are read from a copy made before the loops.

use super::cache::cache_read_at;
use super::layout::{copy_of, lay_out};
use crate::expr::Access;
use crate::expr::Var;
use crate::expr::syntax::Style;
use crate::expr::syntax::{Expr, Kind, Name, Operator};
use crate::poly::packing::{PackedDim, Packing};
use crate::poly::scop::Scop;
use crate::poly::statement::{Statement, StatementId};
use crate::poly::transform::argument::{Loop, Read};
use crate::poly::transform::state::Transformed;
use crate::poly::transform::tree_edit::{refuse, statements};
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};

/// `cache_read B`: everything reads B from a copy that is made before the loops, in the order of the subscripts until
/// `pack` gives it another. `cache_read B at ko` copies what one iteration of ko reads ([`cache_read_at`]).
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
    let id = source(scop, tensor)?;
    let mut packings = before.packings.clone();
    for statement in scop.ids() {
        for (access, iterators) in reads(scop, statement, id)? {
            let dims = iterators.into_iter().map(|v| (v, PackedDim::Whole)).collect();
            add(&mut packings, scop, Packing { statement, access, dims })?;
        }
    }
    if packings.len() == before.packings.len() {
        return refuse(format!("nothing reads `{tensor}`"));
    }
    Ok(Transformed { packings, ..before.clone() })
}

/// `pack_read B as (n / 32, k, n % 32)`: statements read B from a copy that is made before the loops and has these dimensions,
/// over the loops of the program that the subscripts of B are in. `pack_read S(B)` is about the reads of one statement: others
/// may have copies in other layouts, or none. A constant is copied when the program is compiled.
///
/// ```text
/// for n for k            for no for k for ni  P(no, k, ni) = B(k, 8*no + ni)
///   S(B(k, n))           for n for k
///   T(B(k, n))             S(P(n / 8, k, n % 8))
///                          T(B(k, n))
/// ```
pub fn pack_read(before: &Transformed, read: &Read, layout: &[Expr]) -> Result<Transformed> {
    let (scop, tensor) = (&before.scop, &read.tensor);
    let id = source(scop, tensor)?;
    let mut packings = before.packings.clone();
    let chosen = match &read.statement {
        Some(name) => statements(scop, name)?,
        None => scop.ids().collect(),
    };
    for statement in chosen {
        let dimensions =
            layout.iter().map(|e| dimension(scop.statement(statement), e)).collect::<Result<Option<_>>>()?;
        let Some(dims): Option<Vec<(Var, PackedDim)>> = dimensions else { continue };
        for (access, iterators) in reads(scop, statement, id)? {
            if has_all(&dims, &iterators) {
                add(&mut packings, scop, Packing { statement, access, dims: dims.clone() })?;
            }
        }
    }
    if packings.len() == before.packings.len() {
        no_read(tensor)
    } else {
        Ok(Transformed { packings, ..before.clone() })
    }
}

/// An array that the program does not write.
fn source(scop: &Scop, tensor: &Name) -> Result<usize> {
    let Some(id) = scop.tensors.iter().position(|t| t.name == tensor.text) else {
        let names: Vec<&str> = scop.tensors.iter().map(|t| t.name.as_str()).collect();
        return refuse(unknown("array", tensor, &names));
    };
    if scop.tensors[id].role.is_written() {
        return refuse(format!("`{tensor}` is written by the program: a copy made before the loops would be stale"));
    }
    Ok(id)
}

/// The different reads of an array by a statement, each with the iterators in its subscripts.
fn reads(scop: &Scop, statement: StatementId, id: usize) -> Result<Vec<(Access, Vec<Var>)>> {
    let s = scop.statement(statement);
    let mut reads: Vec<Access> = vec![];
    s.body.visit_accesses(&mut |a| {
        if a.buffer.0 as usize == id && !reads.contains(a) {
            reads.push(a.clone());
        }
    });
    let with_iterators = |access: Access| match iterators(&access) {
        Some(iterators) => Ok((access, iterators)),
        None => refuse(format!("`{}` reads `{}` at computed subscripts", s.name, scop.tensors[id].name)),
    };
    reads.into_iter().map(with_iterators).collect()
}

/// Adds the copy of a read that has none.
fn add(packings: &mut Vec<Packing>, scop: &Scop, packing: Packing) -> Result<()> {
    if packings.iter().any(|p| (p.statement, &p.access) == (packing.statement, &packing.access)) {
        return refuse(format!("`{}` is already read from a copy", scop.tensor(packing.access.buffer).name));
    }
    packings.push(packing);
    Ok(())
}

fn no_read<T>(tensor: &Name) -> Result<T> {
    refuse(format!("no read of `{tensor}` has the loops of this layout, each whole or as `n / 8` and `n % 8`"))
}

/// Returns true if a layout has all of these iterators, and no others.
fn has_all(dims: &[(Var, PackedDim)], iterators: &[Var]) -> bool {
    iterators.iter().all(|v| covers(dims, *v)) && dims.iter().all(|d| iterators.contains(&d.0))
}

/// `pack B as (n / 32, k, n % 32)`: the copy that `cache_read B` made has these dimensions, over the loops of the program
/// that the subscripts of B are in. Those of a copy in an iteration of a loop are called as the loops that fill it ([`lay_out`]).
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
        if has_all(&dims, &read) {
            (packing.dims, changed) = (dims, true);
        }
    }
    match (found, changed) {
        (false, _) => refuse(format!("`{tensor}` has no copy: add `cache_read {tensor}` first")),
        (true, false) => no_read(tensor),
        _ => Ok(Transformed { packings, ..before.clone() }),
    }
}

/// The layout of a copy over the loops of its reader, as [`pack`] reads it.
pub fn layout(scop: &Scop, packing: &Packing) -> Vec<Expr> {
    let expression = |kind| Expr { kind, span: Default::default() };
    let dimension = |&(v, part): &(Var, PackedDim)| {
        let name = &scop.statement(packing.statement).iterator(v).name;
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
