//! Sums of products of 16 bits, two terms at a time.
//!
//! x86-64 multiplies the halves of lanes of 32 bits and adds both products in one instruction (`vpmaddwd`). In the loop nest, a sum
//! over the lanes of a vector loop becomes one over half as many lanes with two terms each ([`split_sums`]). In the selection, two
//! iterations of an unrolled loop that adds products to numbers of 32 bits are done at once ([`Selector::adds_pairs`]) where each
//! factor is either an element of 16 bits beside the one of the next iteration, so that one load brings both, or the same in all
//! lanes. Sums of integers wrap, and are equal in any order.

use crate::codegen::Target;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::state::{LANE, Selected, Selector, Val, View};
use crate::codegen::select::strip_mine::copied;
use crate::codegen::target::Isa;
use crate::codegen::vcode::{Lane, ShiftOp, VBinary};
use crate::expr::interval::constant_range;
use crate::expr::scalar::Value;
use crate::expr::{Access, Affine, BinaryOp, Bound, BufferId, Expr, Index, Var};
use crate::runtime::DType;

/// The elements of 16 bits that a factor loads, and their place in memory: no guards, affine subscripts.
fn word_load<'e>(nest: &LoopNest, factor: &'e Expr) -> Option<(&'e Access, Affine)> {
    match factor {
        Expr::Cast(DType::I32 | DType::I64, e) => word_load(nest, e),
        Expr::Load(a) => {
            let buffer = nest.buffer(a.buffer);
            let place = buffer.place(&a.index)?;
            (a.guard.is_empty() && buffer.dtype == DType::I16).then_some((a, place))
        }
        _ => None,
    }
}

/// The factors of a product that is added to a number of 32 bits.
fn factors<'s>(
    nest: &LoopNest,
    (buffer, index): (BufferId, &[Index]),
    value: &'s Expr,
    reduce: Option<BinaryOp>,
) -> Option<[&'s Expr; 2]> {
    let (Expr::Binary(BinaryOp::Mul, a, b), Some(BinaryOp::Add)) = (value, reduce) else { return None };
    let plain = index.iter().all(|i| i.affine().is_some());
    (plain && nest.buffer(buffer).dtype == DType::I32).then_some([&**a, &**b])
}

/// Returns true if a sum along `terms` takes two of them at a time: a statement `target[…] add= value` in lanes along `lanes`, which may be
/// the terms themselves.
pub fn adds_pairs_along(
    nest: &LoopNest,
    target: &Target,
    (buffer, index): (BufferId, &[Index]),
    value: &Expr,
    reduce: Option<BinaryOp>,
    (terms, lanes): (Var, Option<Var>),
) -> bool {
    let Some(factors) = factors(nest, (buffer, index), value, reduce) else { return false };
    let stays = index.iter().all(|i| i.affine().is_some_and(|a| !a.uses(terms)));
    let along = |f: &&Expr| {
        let (_, at) = word_load(nest, f)?;
        let apart = lanes.filter(|l| *l != terms).map_or(0, |l| at.coefficient(l));
        match (at.coefficient(terms), apart) {
            (1, 0 | 2) => Some(true),
            (_, 0) => Some(false),
            _ => None,
        }
    };
    let along = factors.each_ref().map(along);
    target.isa != Isa::Neon && stays && along.iter().all(Option::is_some) && along.contains(&Some(true))
}

/// Divides vector loops that add products of neighbours in memory to one number into lanes of two terms each.
pub fn split_sums(nest: &mut LoopNest, target: &Target, body: Vec<Stmt>) -> Vec<Stmt> {
    if target.isa == Isa::Neon {
        return body;
    }
    body.into_iter()
        .flat_map(|stmt| match split(nest, target, &stmt) {
            Some(parts) => parts,
            None => vec![stmt.map_body(|body| split_sums(nest, target, body))],
        })
        .collect()
}

fn split(nest: &mut LoopNest, target: &Target, stmt: &Stmt) -> Option<Vec<Stmt>> {
    let Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Vector, body } = stmt else { return None };
    let (0, extent) = constant_range(lower, upper)? else { return None };
    // at least a vector of pairs
    if extent < 2 * target.lanes(4) as i64 {
        return None;
    }
    for stmt in body {
        let Stmt::Store { buffer, index, value, reduce } = stmt else { return None };
        let stays = index.iter().all(|i| i.affine().is_some_and(|a| !a.uses(*var)));
        let neighbours = factors(nest, (*buffer, index), value, *reduce)?.iter().all(|f| {
            word_load(nest, f).is_some_and(|(a, place)| {
                nest.buffer(a.buffer).kind != BufferKind::Local && place.coefficient(*var) == 1
            })
        });
        if !stays || !neighbours {
            return None;
        }
    }
    let name = nest.vars[var.0 as usize].clone();
    let (lane, term) = (nest.new_var(name.clone()), nest.new_var(format!("{name}_term")));
    let constant_loop = |var, extent, kind, body| {
        let (lower, upper) = (vec![Bound::constant(0)], vec![Bound::constant(extent)]);
        Stmt::Loop { var, lower, upper, step: 1, kind, body }
    };
    let terms = copied(nest, body, *var, &Affine::var(term).plus(lane, 2));
    let terms = constant_loop(term, 2, LoopKind::Unroll, terms);
    let mut parts = vec![constant_loop(lane, extent / 2, LoopKind::Vector, vec![terms])];
    if extent % 2 == 1 {
        parts.extend(copied(nest, body, *var, &Affine::constant(extent - 1)));
    }
    Some(parts)
}

impl Selector<'_> {
    /// Returns true if all that the body of an unrolled loop over `var` does is to add products of which two iterations are one
    /// instruction.
    pub fn adds_pairs(&mut self, var: Var, body: &[Stmt]) -> bool {
        if self.target.isa == Isa::Neon || self.pair.is_some() || body.is_empty() {
            return false;
        }
        body.iter().all(|stmt| match stmt {
            Stmt::Loop { kind: LoopKind::Unroll, lower, upper, body, .. } => {
                !lower.iter().chain(upper).any(|b| b.affine.uses(var)) && self.adds_pairs(var, body)
            }
            Stmt::Loop { var: lanes, kind: LoopKind::Vector, body, .. } => {
                let (chunk, outside) = (self.chunk, self.env[lanes.0 as usize].clone());
                self.env[lanes.0 as usize] = Affine::var(LANE);
                self.chunk.widest = self.widths.get(lanes).copied().unwrap_or(8);
                let pairs = self.adds_pairs(var, body);
                self.env[lanes.0 as usize] = outside;
                self.chunk = chunk;
                pairs
            }
            Stmt::Store { buffer, index, value, reduce } => {
                let stays = index.iter().all(|i| i.affine().is_some_and(|a| !a.uses(var)));
                let Some(factors) = factors(self.nest, (*buffer, index), value, *reduce) else { return false };
                let pairs = factors.map(|f| self.loads_pair(var, f));
                // a product of what is the same in all lanes needs no instruction for lanes
                let words = self.chunk.widest == 4 && stays;
                words && pairs.contains(&true) && factors.iter().zip(pairs).all(|(f, p)| p || self.is_uniform_word(f))
            }
            _ => false,
        })
    }

    /// Returns true if one load brings the factors of two iterations to each lane.
    fn loads_pair(&self, var: Var, factor: &Expr) -> bool {
        word_load(self.nest, factor).is_some_and(|(a, place)| {
            let lanes = self.resolve(&place).coefficient(LANE);
            place.coefficient(var) == 1 && (lanes == 0 || lanes == 2) && !self.in_registers(a.buffer)
        })
    }

    /// Returns true for a factor of 16 bits that all lanes share.
    fn is_uniform_word(&self, factor: &Expr) -> bool {
        let fixed = !factor.any(&mut |e| match e {
            Expr::Index(_) => true,
            Expr::Load(a) => !a.guard.is_empty() || a.index.iter().any(|i| i.affine().is_none()),
            _ => false,
        });
        fixed && !self.varies(factor) && self.range(factor).is_some_and(|r| -32768 <= r.0 && r.1 <= 32767)
    }

    /// The products of two iterations of the loop over `var`, of which this is the first, and their sum.
    pub fn pair_of_products(&mut self, var: Var, a: &Expr, b: &Expr) -> Selected<Val> {
        let a = self.pair_of_words(var, a)?;
        let b = self.pair_of_words(var, b)?;
        Ok(self.vector_binary(VBinary::MulPairs, a, b))
    }

    /// A factor in the lower half of each lane, and that of the next iteration in the upper half.
    fn pair_of_words(&mut self, var: Var, factor: &Expr) -> Selected<Val> {
        if let Some((access, _)) = word_load(self.nest, factor).filter(|_| self.loads_pair(var, factor))
            && self.literal(access).is_none()
        {
            return self.viewed(View { dtype: DType::I32, group: 2 }, access);
        }
        let first = self.env[var.0 as usize].clone();
        let (low, low_bits) = (self.value(factor)?, self.known_word(factor));
        self.env[var.0 as usize] = first.clone().offset(1);
        let (high, high_bits) = (self.value(factor)?, self.known_word(factor));
        self.env[var.0 as usize] = first;
        if let (Some(low_bits), Some(high_bits)) = (low_bits, high_bits) {
            let bits = self.bits(Lane::I32, u64::from(low_bits) | u64::from(high_bits) << 16);
            return Ok(Val { reg: bits, lane: Lane::I32, dtype: DType::I32, uniform: true });
        }
        let (low, high) = (self.with_lane(low, Lane::I32)?, self.with_lane(high, Lane::I32)?);
        let half = Val { reg: self.bits(Lane::I32, 0xffff), uniform: true, ..low };
        let low = self.vector_binary(VBinary::And, low, half);
        let high = self.shift(ShiftOp::Left, high, 16);
        Ok(Val { dtype: DType::I32, ..self.vector_binary(VBinary::Or, low, high) })
    }

    /// The bits of a factor that is known.
    fn known_word(&self, factor: &Expr) -> Option<u16> {
        let known = match factor {
            Expr::Const(s) => Some(*s),
            Expr::Cast(_, e) => return self.known_word(e),
            Expr::Load(a) => self.literal(a),
            _ => None,
        };
        known.filter(|s| !s.dtype.is_float()).map(|s| Value::from(s).as_i64() as u16)
    }
}
