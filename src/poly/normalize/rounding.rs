//! Rounding: marks the products that may not be contracted with a sum.
//!
//! Codegen computes `a·b + c` of floats with one rounding wherever the product, or its negation, is an operand of the sum
//! or is what a sum accumulates ([`crate::codegen::select::value`]); a product that is stored is rounded by itself. The rule that keeps
//! both consistent: **a value has one rounding, wherever it is read.** A product is contracted only where its value has
//! a single use. Substitution copies expressions, so the uses are counted before it:
//! - a product that defines a tensor has one use for each read of the tensor, and one more when the tensor is an output;
//! - a product inside of an expression has one use for each occurrence in the same iteration space.
//!
//! In: definitions, or one expression. Out: the same, where each product with several uses is cast to its own type. Such
//! a cast has no instruction; it says that the operand is rounded, as in C (ISO/IEC 9899 6.5.4), and no sum absorbs it.
//! Invariant: a cast of this kind stands only under a sum or a negation, or at the root of a body.

use crate::codegen::select::value::contracts;
use crate::expr::{BinaryOp, BufferId, Expr, UnaryOp};
use crate::poly::statement::{Definition, TensorDecl};
use crate::runtime::DType;
use rustc_hash::FxHashMap;

/// Rounds the products that occur more than once in the same iteration space.
pub fn round_repeated(definitions: &mut [Definition], tensors: &[TensorDecl]) {
    let extents = |d: &Definition| d.iterators.iter().map(|it| it.extent).collect::<Vec<_>>();
    let mut uses: FxHashMap<(Vec<i64>, Expr), usize> = FxHashMap::default();
    for d in definitions.iter() {
        let space = extents(d);
        d.body.visit(&mut |e| {
            let accumulated = d.reduce.is_some() && std::ptr::eq(e, without_sign(&d.body));
            if is_product(e, tensors) && !accumulated {
                *uses.entry((space.clone(), e.clone())).or_default() += 1;
            }
        });
    }
    uses.retain(|_, n| *n > 1);
    if uses.is_empty() {
        return;
    }
    for d in definitions {
        let mut key = (extents(d), d.body.clone());
        let accumulated = d.reduce.is_some() && is_product(without_sign(&d.body), tensors);
        let rounded = d.body.rewrite(&mut |e| {
            // operands are marked already: the key is the expression without marks
            key.1 = without_marks(&e, tensors);
            if uses.contains_key(&key) { round(e, tensors) } else { e }
        });
        d.body = tidy(&rounded, tensors);
        if accumulated {
            let body = std::mem::replace(&mut d.body, Expr::f32(0.0));
            d.body = match body {
                Expr::Unary(UnaryOp::Neg, e) => Expr::unary(UnaryOp::Neg, unmarked(*e, tensors)),
                e => unmarked(e, tensors),
            };
        }
    }
}

/// The body of one statement, where the products that occur more than once in it are rounded.
pub fn round_repeated_in(body: &Expr, reduce: Option<BinaryOp>, tensors: &[TensorDecl]) -> Expr {
    let mut d = Definition {
        target: BufferId(0),
        iterators: vec![],
        outer: 0,
        write: vec![],
        computed: vec![],
        reduce,
        conditions: vec![],
        body: body.clone(),
    };
    round_repeated(std::slice::from_mut(&mut d), tensors);
    tidy_root(&mut d, tensors);
    d.body
}

/// `e`, rounded by itself if it is a product.
pub fn round(e: Expr, tensors: &[TensorDecl]) -> Expr {
    if is_product(&e, tensors) { Expr::cast(dtype_of(&e, tensors), e) } else { e }
}

/// Removes the marks under operations that contract nothing; one at the root stays.
pub fn tidy(body: &Expr, tensors: &[TensorDecl]) -> Expr {
    let contracts = matches!(body, Expr::Binary(BinaryOp::Add | BinaryOp::Sub, ..) | Expr::Unary(UnaryOp::Neg, _));
    body.map_children(&mut |e| {
        let clean = tidy(e, tensors);
        if contracts { clean } else { unmarked(clean, tensors) }
    })
}

/// Removes the mark at the root of a body that is stored.
pub fn tidy_root(d: &mut Definition, tensors: &[TensorDecl]) {
    if d.reduce != Some(BinaryOp::Add) {
        d.body = unmarked(std::mem::replace(&mut d.body, Expr::f32(0.0)), tensors);
    }
}

fn without_marks(e: &Expr, tensors: &[TensorDecl]) -> Expr {
    e.rewrite(&mut |e| unmarked(e, tensors))
}

fn unmarked(e: Expr, tensors: &[TensorDecl]) -> Expr {
    match e {
        Expr::Cast(to, a) if is_product(&a, tensors) && dtype_of(&a, tensors) == to => *a,
        e => e,
    }
}

/// The operand of a negation, or the expression itself.
fn without_sign(e: &Expr) -> &Expr {
    match e {
        Expr::Unary(UnaryOp::Neg, e) => e,
        e => e,
    }
}

/// A product that codegen would contract.
fn is_product(e: &Expr, tensors: &[TensorDecl]) -> bool {
    matches!(e, Expr::Binary(BinaryOp::Mul, ..)) && contracts(dtype_of(e, tensors))
}

fn dtype_of(e: &Expr, tensors: &[TensorDecl]) -> DType {
    e.dtype(&|b: BufferId| tensors[b.0 as usize].dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poly::normalize::build::build;
    use crate::poly::samples::{define, tensor, vars};
    use crate::poly::scop::Scop;
    use crate::poly::statement::{Program, Role};

    /// Inputs X and Y, and `t = X·Y` in the role that is asked for, all of 8 elements.
    fn product(role: Role) -> (Program, Expr, Expr) {
        let mut p = Program::default();
        let [x, y] = ["X", "Y"].map(|name| Expr::load(tensor(&mut p, Role::Input, name, &[8]), vars(1)));
        let t = tensor(&mut p, role, "t", &[8]);
        define(&mut p, t, "i 8", 1, None, vec![], x.clone() * y);
        (p, x, Expr::load(t, vars(1)))
    }

    fn output(mut p: Program, body: Expr) -> Scop {
        let out = tensor(&mut p, Role::Output, "O", &[8]);
        define(&mut p, out, "i 8", 1, None, vec![], body);
        build("t", &p).unwrap()
    }

    fn marks(scop: &Scop) -> usize {
        let mut n = 0;
        for s in &scop.statements {
            s.body.visit(&mut |e| n += usize::from(matches!(e, Expr::Cast(DType::F32, _))));
        }
        n
    }

    #[test]
    fn a_product_is_contracted_only_where_its_value_has_one_use() {
        let sub = |a: Expr, b: Expr| Expr::binary(BinaryOp::Sub, a, b);
        let (p, x, t) = product(Role::Temporary);
        assert_eq!(marks(&output(p.clone(), t.clone() + x.clone())), 0, "one use");
        assert_eq!(marks(&output(p.clone(), sub(t.clone(), t.clone()))), 2, "two uses");
        let below =
            Expr::binary(BinaryOp::Max, t.clone(), Expr::f32(0.0)) + Expr::binary(BinaryOp::Min, t.clone(), x.clone());
        assert_eq!(marks(&output(p.clone(), below)), 0, "no sum has a product as its operand");
        let negative = Expr::unary(UnaryOp::Neg, t.clone());
        assert_eq!(marks(&output(p.clone(), negative.clone() + x.clone())), 0, "one use, subtracted");
        assert_eq!(marks(&output(p, negative + t)), 2, "subtracted and added");
        let (p, x, t) = product(Role::Output);
        assert_eq!(marks(&output(p, t + x)), 1, "stored and read");
    }

    #[test]
    fn copies_keep_the_rule() {
        let (mut p, x, t) = product(Role::Temporary);
        let copy = tensor(&mut p, Role::Temporary, "copy", &[8]);
        define(&mut p, copy, "i 8", 1, None, vec![], t.clone());
        let copied = Expr::load(copy, vars(1));
        assert_eq!(marks(&output(p.clone(), copied.clone() + x)), 0, "one use of the copy");
        assert_eq!(marks(&output(p.clone(), copied.clone() + copied.clone())), 2, "two uses of the copy");
        assert_eq!(marks(&output(p, copied + t)), 2, "one use of each");
    }

    #[test]
    fn what_is_written_twice_has_one_rounding_and_sums_of_products_none() {
        let (p, x, _) = product(Role::Temporary);
        let square = x.clone() * x.clone();
        assert_eq!(marks(&output(p.clone(), square.clone() + square.clone())), 2);
        assert_eq!(marks(&output(p.clone(), square.clone() + x.clone())), 0);
        let tensors = &p.tensors;
        assert_eq!(round_repeated_in(&square, Some(BinaryOp::Add), tensors), square);
        assert_eq!(round_repeated_in(&(square.clone() + x.clone()), None, tensors), square + x);
    }

    #[test]
    fn a_sum_contracts_the_product_that_it_alone_reads() {
        for (readers, expected) in [(1, 0), (2, 1)] {
            let (mut p, x, t) = product(Role::Temporary);
            let sum = tensor(&mut p, Role::Temporary, "sum", &[]);
            define(&mut p, sum, "i 8", 0, Some(BinaryOp::Add), vec![], t.clone());
            let total = Expr::load(sum, vec![]);
            let body = if readers == 2 { Expr::binary(BinaryOp::Max, t, total) } else { total * x };
            assert_eq!(marks(&output(p, body)), expected, "{readers} readers");
        }
    }
}
