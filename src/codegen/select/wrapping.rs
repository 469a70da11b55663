//! Unsigned integers of 32 bits whose values wrap become signed ones.
//!
//! In: a nest. Out: the same, in which a buffer of u32 is one of i32 where all that is done with its elements takes low bits to low
//! bits: sums, differences, products, bitwise operations, shifts to the left. Vectors have lanes of 32 bits for i32, and lanes of
//! 64 bits, whose values are brought back into range, for u32.

use crate::codegen::loopnest::{LoopNest, Stmt};
use crate::expr::scalar::{Value, cast};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Index, Scalar, UnaryOp};
use crate::runtime::DType;
use rustc_hash::FxHashSet;

/// Replaces the u32 of `nest`, as far as they wrap.
pub fn as_signed(nest: &mut LoopNest) {
    let unsigned = nest.buffers.iter().enumerate().filter(|(_, b)| b.dtype == DType::U32 && b.literals.is_none());
    let mut wrapping: FxHashSet<BufferId> = unsigned.map(|(i, _)| BufferId(i as u32)).collect();
    loop {
        let before = wrapping.len();
        for statement in &nest.body {
            statement.visit(&mut |s| keep(nest, s, &mut wrapping));
        }
        if wrapping.is_empty() {
            return;
        }
        if wrapping.len() == before {
            break;
        }
    }
    let body = std::mem::take(&mut nest.body);
    nest.body = body.into_iter().map(|s| rewritten(nest, s, &wrapping)).collect();
    for b in &wrapping {
        nest.buffers[b.0 as usize].dtype = DType::I32;
    }
}

/// Removes the buffers whose elements a statement uses otherwise.
fn keep(nest: &LoopNest, s: &Stmt, wrapping: &mut FxHashSet<BufferId>) {
    let Stmt::Store { buffer, index, value, reduce } = s else { return };
    for i in index.iter().filter_map(Index::value) {
        i.visit_accesses(&mut |a| {
            wrapping.remove(&a.buffer);
        });
    }
    let wraps = reduce.is_none_or(takes_low_bits);
    if wrapping.contains(buffer) && wraps && low(nest, value, wrapping).is_some() {
        return;
    }
    wrapping.remove(buffer);
    value.visit_accesses(&mut |a| {
        wrapping.remove(&a.buffer);
    });
}

fn rewritten(nest: &LoopNest, s: Stmt, wrapping: &FxHashSet<BufferId>) -> Stmt {
    match s {
        Stmt::Store { buffer, index, value, reduce } if wrapping.contains(&buffer) => {
            let value = low(nest, &value, wrapping).unwrap_or(value);
            Stmt::Store { buffer, index, value, reduce }
        }
        other => other.map_body(|body| body.into_iter().map(|s| rewritten(nest, s, wrapping)).collect()),
    }
}

fn takes_low_bits(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor)
}

/// An expression in i32 with the bits of `e`, whose type is u32; `None` where they do not follow from low bits.
fn low(nest: &LoopNest, e: &Expr, wrapping: &FxHashSet<BufferId>) -> Option<Expr> {
    let dtype = |e: &Expr| e.dtype(&|b: BufferId| nest.buffer(b).dtype);
    let signed = |s: &Scalar| Scalar::from(cast(DType::I32, Value::from(*s)));
    let untouched = |e: &Expr| !e.any(&mut |e| matches!(e, Expr::Load(a) if wrapping.contains(&a.buffer)));
    match e {
        Expr::Const(s) => Some(Expr::Const(signed(s))),
        Expr::Load(a) => {
            let wraps = wrapping.contains(&a.buffer) && a.index.iter().all(|i| i.value().is_none_or(untouched));
            let otherwise = a.otherwise.as_ref().map(signed);
            wraps.then(|| Expr::Load(Access { otherwise, ..a.clone() }))
        }
        Expr::Cast(_, a) if dtype(a) == DType::U32 => low(nest, a, wrapping),
        Expr::Cast(_, a) if dtype(a) == DType::I32 && untouched(a) => Some((**a).clone()),
        Expr::Cast(_, a) => {
            let narrow = matches!(dtype(a), DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I64);
            (narrow && untouched(a)).then(|| Expr::cast(DType::I32, (**a).clone()))
        }
        Expr::Unary(op @ (UnaryOp::Neg | UnaryOp::Not), a) => Some(Expr::unary(*op, low(nest, a, wrapping)?)),
        Expr::Select(c, a, b) if untouched(c) => {
            Some(Expr::select((**c).clone(), low(nest, a, wrapping)?, low(nest, b, wrapping)?))
        }
        Expr::Binary(op, a, b) if takes_low_bits(*op) => {
            Some(Expr::binary(*op, low(nest, a, wrapping)?, low(nest, b, wrapping)?))
        }
        Expr::Binary(op @ BinaryOp::ShiftLeft, a, b) => match **b {
            Expr::Const(n) if (0..32).contains(&Value::from(n).as_i64()) => {
                Some(Expr::binary(*op, low(nest, a, wrapping)?, Expr::Const(signed(&n))))
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::lower;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::{Inst, Lane};

    /// Instructions that work on lanes of 64 bits, for AVX-512.
    fn wide(value: &str) -> usize {
        let text = format!(
            "kernel p {{ H: u32[64] argument 0 written; X: u32[64] argument 1; F: f32[64] argument 2;
             parallel t in 0..1 {{ for k in 0..3 {{ vector i in 0..64 {{ H[i] = {value}; }} }} }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 3);
        let functions = lower(&nest, &Target::avx512()).unwrap();
        let wide = |i: &&Inst| i.ty().is_some_and(|ty| ty.lane == Lane::I64);
        functions.iter().flat_map(|f| &f.insts).filter(wide).count()
    }

    #[test]
    fn what_wraps_has_lanes_of_its_own_width() {
        assert_eq!(wide("((H[i] * u32(33)) + X[i])"), 0);
        assert_eq!(wide("xor(shl(H[i], u32(5)), (X[i] - u32(4000000000)))"), 0);
        assert_eq!(wide("(H[i] + cast u32(index(i)))"), 0);
        // the upper bits count
        assert!(wide("(shr(H[i], u32(7)) + X[i])") > 0);
        assert!(wide("(H[i] + (X[i] / u32(3)))") > 0);
        assert!(wide("max(H[i], X[i])") > 0);
        assert!(wide("(H[i] + select(lt(X[i], u32(7)), u32(1), u32(2)))") > 0);
        assert!(wide("(H[i] + cast u32(cast f32(X[i])))") > 0);
    }
}
