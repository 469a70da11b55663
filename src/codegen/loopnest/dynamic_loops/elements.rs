//! Statements of a tile of lanes as statements of its elements.

use crate::codegen::loopnest::Stmt;
use crate::expr::{Affine, Expr, Index, Var};

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

/// A store with other affine forms.
fn with_forms(s: &Stmt, form: &mut impl FnMut(&Affine) -> Affine) -> Stmt {
    let Stmt::Store { buffer, index, value, reduce } = s else { return s.clone() };
    let index = index.iter().map(|i| index_with(i, form)).collect();
    Stmt::Store { buffer: *buffer, index, value: expr_with(value, form), reduce: *reduce }
}

fn index_with(i: &Index, form: &mut impl FnMut(&Affine) -> Affine) -> Index {
    match i {
        Index::Affine(a) => Index::Affine(form(a)),
        Index::Value(e) => Index::Value(Box::new(expr_with(e, form))),
    }
}

fn expr_with(e: &Expr, form: &mut impl FnMut(&Affine) -> Affine) -> Expr {
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

/// A store of the element `single` of a tile that begins at `var`.
pub fn at_element(s: &Stmt, var: Var, lane: Var, single: Var) -> Stmt {
    substituted(s, &mut |v| match v {
        v if v == var => Affine::var(single),
        v if v == lane => Affine::constant(0),
        v => Affine::var(v),
    })
}
