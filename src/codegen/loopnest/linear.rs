//! Subscripts that are linear in the variables of a loop: an affine form of these, products of such forms and what is the same in all iterations, and what is
//! the same.

use crate::codegen::loopnest::LoopNest;
use crate::codegen::loopnest::invariant::may_read_before;
use crate::expr::interval::Facts;
use crate::expr::narrow::dtype_range;
use crate::expr::scalar::Value;
use crate::expr::{Affine, BinaryOp, BufferId, Expr, Scalar, Var};
use crate::runtime::DType;
use rustc_hash::FxHashSet;

/// Greatest value of what is the same in all iterations, far from the limits of 64 bits.
pub const FAR: i64 = 1 << 38;

/// Greatest factor of an index out of data, and greatest index that it multiplies: their products are as far.
pub const FACTOR: i64 = 1 << 19;

/// `affine + Σ index · factor + rest`: the affine form and the indices over variables of the loop, the factors and the rest the same in all iterations.
#[derive(Default)]
pub struct Linear {
    pub affine: Affine,
    pub products: Vec<(Affine, Expr)>,
    pub rest: Option<Expr>,
}

impl Linear {
    /// An integer as a linear form over the variables `own` of a loop.
    pub fn new(nest: &LoopNest, e: &Expr, own: &[Var], facts: &Facts) -> Option<Linear> {
        Linear::of(&widened(nest, e, facts), own)
    }

    /// Returns true if a form may be read before the loop.
    pub fn may_read(&self, nest: &LoopNest, written: &FxHashSet<BufferId>, before: &Facts) -> bool {
        let may = |e: &Expr| may_read_before(nest, e, before, Some(written)) && !e.any(&mut |e| is_division_by_data(e));
        self.rest.iter().chain(self.products.iter().map(|(_, factor)| factor)).all(may)
    }

    /// Returns true if nothing overflows where a form is computed, whatever its factors are; products are over the variable of the loop alone.
    pub fn is_near(&self, var: Var, facts: &Facts) -> bool {
        let near = |a: &Affine, limit: i64| {
            let (low, high) = facts.bounds(a);
            -limit < low && low <= high && high < limit
        };
        let product = |a: &Affine| a.terms.iter().all(|t| t.0 == var) && near(a, FACTOR);
        near(&self.affine, FAR) && self.products.len() <= 2 && self.products.iter().all(|(i, _)| product(i))
    }

    /// A 64-bit integer as a linear form over variables of the loop.
    fn of(e: &Expr, own: &[Var]) -> Option<Linear> {
        let is_own = |a: &Affine| own.iter().any(|v| a.uses(*v));
        let add = |a: Option<Expr>, b: Option<Expr>, op| match (a, b) {
            (a, None) => a,
            (None, Some(b)) if op == BinaryOp::Add => Some(b),
            (a, Some(b)) => Some(Expr::binary(op, a.unwrap_or(Expr::Const(Scalar::i64(0))), b)),
        };
        match e {
            Expr::Index(a) => {
                let (mine, others): (Vec<_>, Vec<_>) = a.terms.iter().partition(|t| own.contains(&t.0));
                let others = Affine { terms: others, constant: 0 };
                let rest = (!others.is_constant()).then_some(Expr::Index(others));
                Some(Linear { affine: Affine { terms: mine, constant: a.constant }, products: vec![], rest })
            }
            Expr::Const(s) => {
                let number = Some(Value::from(*s).as_i64()).filter(|n| (-FAR..FAR).contains(n))?;
                Some(Linear { affine: Affine::constant(number), ..Linear::default() })
            }
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let (a, b) = (Linear::of(a, own)?, Linear::of(b, own)?);
                let sign = if *op == BinaryOp::Add { 1 } else { -1 };
                let negated = b.products.iter().map(|(i, factor)| (i.scale(sign), factor.clone()));
                let products = a.products.iter().cloned().chain(negated).collect();
                Some(Linear { affine: a.affine.add_scaled(&b.affine, sign), products, rest: add(a.rest, b.rest, *op) })
            }
            Expr::Binary(BinaryOp::Mul, a, b) => {
                let (first, second) = (Linear::of(a, own)?, Linear::of(b, own)?);
                let is_same = |l: &Linear| l.affine.is_constant() && l.products.is_empty();
                let (moving, (same, factor)) = match (is_same(&first), is_same(&second)) {
                    (true, true) => return Some(Linear { rest: Some(e.clone()), ..Linear::default() }),
                    (true, false) => (second, (first, a)),
                    (false, true) => (first, (second, b)),
                    (false, false) => return None,
                };
                if !moving.products.is_empty() || !is_own(&moving.affine) {
                    return None;
                }
                let times = |e: Expr| Expr::binary(BinaryOp::Mul, e, (**factor).clone());
                let number = same.rest.is_none().then_some(same.affine.constant);
                let (constant, index) = (moving.affine.constant, Affine { constant: 0, ..moving.affine.clone() });
                match number {
                    Some(k) if is_small(&moving.affine, k) => {
                        Some(Linear { affine: moving.affine.scale(k), rest: moving.rest.map(times), products: vec![] })
                    }
                    _ => {
                        let shift = (constant != 0).then(|| times(Expr::Const(Scalar::i64(constant))));
                        let rest = add(shift, moving.rest.map(times), BinaryOp::Add);
                        let products = vec![(index, (**factor).clone())];
                        Some(Linear { affine: Affine::constant(0), products, rest })
                    }
                }
            }
            _ => {
                let moves = e.any(&mut |e| match e {
                    Expr::Index(a) => is_own(a),
                    Expr::Load(access) => access.affine_forms().any(is_own),
                    _ => false,
                });
                (!moves).then(|| Linear { rest: Some(e.clone()), ..Linear::default() })
            }
        }
    }
}

/// An integer of 64 bits with the same value. What may have wrapped around is one term of it.
fn widened(nest: &LoopNest, e: &Expr, facts: &Facts) -> Expr {
    let of = |b: BufferId| nest.buffer(b).dtype;
    let dtype = e.dtype(&of);
    let Some(range) = dtype_range(dtype) else { return Expr::cast(DType::I64, e.clone()) };
    let wide = match e {
        Expr::Const(s) => Some(Expr::Const(Scalar::i64(Value::from(*s).as_i64()))),
        Expr::Cast(_, a) if dtype_range(a.dtype(&of)).is_some() => Some(widened(nest, a, facts)),
        Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), a, b) => {
            Some(Expr::binary(*op, widened(nest, a, facts), widened(nest, b, facts)))
        }
        _ => None,
    };
    let fits = |e: &Expr| {
        let exact = || nest.exact_range(e, facts).is_some_and(|(a, b)| range.0 <= a && b <= range.1);
        dtype == DType::I64 || exact()
    };
    match (wide.filter(fits), dtype) {
        (Some(wide), _) => wide,
        (None, DType::I64) => e.clone(),
        (None, _) => Expr::cast(DType::I64, e.clone()),
    }
}

/// Returns true if the numbers of a form times another one are far from the limits of 64 bits.
fn is_small(a: &Affine, times: i64) -> bool {
    let within = |n: i64, limit: i64| n.checked_mul(times).is_some_and(|n| -limit < n && n < limit);
    within(a.constant, FAR) && a.terms.iter().all(|t| within(t.1, FACTOR))
}

fn is_division_by_data(e: &Expr) -> bool {
    matches!(e, Expr::Binary(BinaryOp::Div | BinaryOp::Mod, _, b) if !matches!(**b, Expr::Const(_)))
}
