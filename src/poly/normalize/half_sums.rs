//! Sums in f16: sums of products of f16 that are added up in f32 become sums in f16.
//!
//! In: a tensor expression. Out: the same, in which each sum over f32(a) · f32(b), where `a` and `b` are elements of f16, is one in
//! f16 of `a · b`, which is widened to f32. A sum of many terms is divided into blocks of at most [`MOST_TERMS`], each with a sum in
//! f16 of its own, and these are added in f32: the error of a sum of n terms grows with n, and what is added to a sum that is
//! 2048 times as large is lost. Where no block of at least [`LEAST_TERMS`] divides the terms, the sum stays as it is.
//!
//! ```text
//! C(m, n) +=! f32(A(m, k)) * f32(B(k, n))     S(q, m, n) +=! A(m, 512 q + k) * B(512 q + k, n)
//!                                             C(m, n)    +=! f32(S(q, m, n))
//! ```

use crate::expr::{Affine, BinaryOp, BufferId, Expr, Var};
use crate::poly::statement::{Definition, Iterator, Program, Role, TensorDecl};
use crate::runtime::DType;

/// Terms of a sum in f16 at most.
pub const MOST_TERMS: i64 = 512;

/// Terms of a block at least, where a sum has several.
const LEAST_TERMS: i64 = 64;

/// The program with sums in f16, and their number; `None` where it has none.
pub fn with_half_sums(program: &Program) -> Option<(Program, usize)> {
    let mut out = Program { tensors: program.tensors.clone(), definitions: vec![] };
    let mut count = 0;
    for d in &program.definitions {
        match divided(d, &mut out.tensors) {
            Some(both) => {
                out.definitions.extend(both);
                count += 1;
            }
            None => out.definitions.push(d.clone()),
        }
    }
    (count > 0).then_some((out, count))
}

/// The sums of a definition in f16, and the definition of what it defined from them.
fn divided(d: &Definition, tensors: &mut Vec<TensorDecl>) -> Option<[Definition; 2]> {
    let body = product_of_halves(d, tensors)?;
    let blocks = Blocks::of(&d.iterators[d.outer..])?;
    // The iterators of the blocks stand between those of the target and those of the terms in a block.
    let (outer, counts) = (d.outer, blocks.extents());
    let named = |i: usize, extent: i64, suffix: &str| Iterator::new(format!("{}{suffix}", d.iterators[i].name), extent);
    let mut iterators: Vec<Iterator> = d.iterators[..outer].to_vec();
    iterators.extend(counts.iter().map(|&(r, count)| named(outer + r, count, "_block")));
    let sums = iterators.len();
    let mut map: Vec<Affine> = (0..outer as u32).map(|v| Affine::var(Var(v))).collect();
    for (r, &terms) in blocks.terms.iter().enumerate() {
        let block = counts.iter().position(|&(of, _)| of == r).map(|n| Var((outer + n) as u32));
        let mut form = block.map_or(Affine::constant(0), |v| Affine::constant(0).plus(v, terms));
        if terms > 1 {
            form = form.plus(Var(iterators.len() as u32), 1);
            iterators.push(named(outer + r, terms, ""));
        }
        map.push(form);
    }
    let shape: Vec<i64> = iterators[..sums].iter().map(|i| i.extent).collect();
    let name = format!("{}_halves", tensors[d.target.0 as usize].name);
    let target = BufferId(tensors.len() as u32);
    tensors.push(TensorDecl::new(name, DType::F16, &shape[..], Role::Temporary));
    let subscripts: Vec<Affine> = (0..sums as u32).map(|v| Affine::var(Var(v))).collect();
    let of_blocks = Definition {
        target,
        iterators: iterators.clone(),
        outer: sums,
        write: subscripts.clone(),
        computed: vec![],
        reduce: d.reduce,
        // A sum without terms, such as those outside of an image, is zero.
        conditions: d.conditions.iter().map(|c| c.substitute(&mut |v: Var| map[v.0 as usize].clone())).collect(),
        body: body.substitute(&mut |v| map[v.0 as usize].clone()),
    };
    let total = Definition {
        iterators: iterators[..sums].to_vec(),
        reduce: (sums > outer).then_some(BinaryOp::Add),
        conditions: vec![],
        body: Expr::cast(DType::F32, Expr::load(target, subscripts)),
        ..d.clone()
    };
    Some([of_blocks, total])
}

/// The product without its conversions, where the definition is a sum of products of f16 in f32.
fn product_of_halves(d: &Definition, tensors: &[TensorDecl]) -> Option<Expr> {
    let plain = d.computed.is_empty() && d.outer < d.iterators.len();
    let sums = d.reduce == Some(BinaryOp::Add) && tensors[d.target.0 as usize].dtype == DType::F32;
    let half = |e: &Expr| match e {
        Expr::Cast(DType::F32, e) => match &**e {
            Expr::Load(a) if tensors[a.buffer.0 as usize].dtype == DType::F16 => Some((**e).clone()),
            _ => None,
        },
        _ => None,
    };
    match &d.body {
        Expr::Binary(BinaryOp::Mul, a, b) if plain && sums => Some(Expr::binary(BinaryOp::Mul, half(a)?, half(b)?)),
        _ => None,
    }
}

/// The division of the points of reduced iterators into blocks.
struct Blocks {
    /// The extent of each iterator, and the points of a block along it.
    all: Vec<i64>,
    terms: Vec<i64>,
}

impl Blocks {
    /// As few blocks as there can be: short iterators count them whole, one more is divided.
    fn of(reduced: &[Iterator]) -> Option<Blocks> {
        let all: Vec<i64> = reduced.iter().map(|i| i.extent).collect();
        let mut terms = all.clone();
        let mut shortest: Vec<usize> = (0..all.len()).collect();
        shortest.sort_by_key(|&i| all[i]);
        for i in shortest {
            let others = terms.iter().product::<i64>() / terms[i].max(1);
            if others * terms[i] <= MOST_TERMS {
                break;
            }
            terms[i] = match others >= MOST_TERMS {
                true => 1,
                false => (1..=MOST_TERMS / others.max(1)).rev().find(|n| all[i] % n == 0)?,
            };
        }
        let (block, whole) = (terms.iter().product::<i64>(), all.iter().product::<i64>());
        (block == whole || block >= LEAST_TERMS).then_some(Blocks { all, terms })
    }

    /// The iterators that have several blocks, by their positions, with the number of blocks.
    fn extents(&self) -> Vec<(usize, i64)> {
        let counts = self.all.iter().zip(&self.terms).map(|(all, terms)| all / terms.max(&1));
        counts.enumerate().filter(|&(_, count)| count > 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(extents: &[i64]) -> Option<Vec<i64>> {
        let iterators: Vec<Iterator> = extents.iter().map(|&n| Iterator::new("k", n)).collect();
        Blocks::of(&iterators).map(|b| b.terms)
    }

    #[test]
    fn sums_of_many_terms_are_divided() {
        assert_eq!(blocks(&[512]), Some(vec![512]));
        assert_eq!(blocks(&[768]), Some(vec![384]));
        assert_eq!(blocks(&[4608]), Some(vec![512]));
        // taps count blocks, then channels are divided
        assert_eq!(blocks(&[64, 3, 3]), Some(vec![64, 1, 3]));
        assert_eq!(blocks(&[1024, 3, 3]), Some(vec![512, 1, 1]));
        assert_eq!(blocks(&[7, 7, 3]), Some(vec![7, 7, 3]));
        // nothing divides a prime number of terms
        assert_eq!(blocks(&[1021]), None);
        assert_eq!(blocks(&[509]), Some(vec![509]));
    }
}
