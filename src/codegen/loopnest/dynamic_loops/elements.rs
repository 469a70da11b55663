//! Statements of a tile of lanes as statements of its elements.

use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::{Affine, Bound, Expr, Index, Var};

/// A store with affine forms in place of variables.
pub fn substituted(s: &Stmt, map: &mut impl FnMut(Var) -> Affine) -> Stmt {
    match s {
        Stmt::Store { buffer, index, value, reduce } => {
            let index = index.iter().map(|i| i.substitute(map)).collect();
            Stmt::Store { buffer: *buffer, index, value: value.substitute(map), reduce: *reduce }
        }
        other => other.clone(),
    }
}

/// Statements over `tile` as ones in which the same variable is `lanes · tile + base`; `None` where a form is over a part of it.
pub fn of_elements(body: &[Stmt], tile: Var, lanes: i64, base: &Affine) -> Option<Vec<Stmt>> {
    let mut whole = true;
    let mut form = |a: &Affine| {
        let c = a.coefficient(tile);
        whole &= c % lanes == 0;
        a.clone().plus(tile, c / lanes - c).add_scaled(base, -(c / lanes))
    };
    let out = body.iter().map(|s| with_forms(s, &mut form)).collect();
    whole.then_some(out)
}

/// A statement with other affine forms in its stores and conditions.
fn with_forms(s: &Stmt, form: &mut dyn FnMut(&Affine) -> Affine) -> Stmt {
    match s {
        Stmt::Store { buffer, index, value, reduce } => {
            let index = index.iter().map(|i| index_with(i, form)).collect();
            Stmt::Store { buffer: *buffer, index, value: expr_with(value, form), reduce: *reduce }
        }
        Stmt::If { conditions, body } => {
            let conditions = conditions.iter().map(&mut *form).collect();
            Stmt::If { conditions, body: body.iter().map(|s| with_forms(s, form)).collect() }
        }
        s => s.with_body(s.body().iter().map(|s| with_forms(s, form)).collect()),
    }
}

fn index_with(i: &Index, form: &mut dyn FnMut(&Affine) -> Affine) -> Index {
    match i {
        Index::Affine(a) => Index::Affine(form(a)),
        Index::Value(e) => Index::Value(Box::new(expr_with(e, form))),
    }
}

fn expr_with(e: &Expr, form: &mut dyn FnMut(&Affine) -> Affine) -> Expr {
    match e {
        Expr::Index(a) => Expr::Index(form(a)),
        Expr::Load(access) => {
            let mut access = access.clone();
            access.index = access.index.iter().map(|i| index_with(i, form)).collect();
            access.guard = access.guard.iter().map(&mut *form).collect();
            Expr::Load(access)
        }
        e => {
            let mut operands = vec![];
            e.operands().for_each(|o| operands.push(expr_with(o, form)));
            let mut operands = operands.into_iter();
            e.map_children(&mut |e| operands.next().unwrap_or_else(|| e.clone()))
        }
    }
}

/// A vector loop.
pub fn vector_of(var: Var, lanes: i64, body: Vec<Stmt>) -> Stmt {
    let (lower, upper) = (vec![Bound::constant(0)], vec![Bound::constant(lanes)]);
    Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Vector, body }
}
