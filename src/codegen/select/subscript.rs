//! Subscripts from data: integers in general-purpose registers.
//!
//! In: an integer expression that is one for all lanes. Out: an affine form over variables that general-purpose registers hold. Loads,
//! sums, products, extremes, masks and quotients by constants are computed there, as 64-bit integers that are brought back into their type
//! where they may have left it; anything else is computed in a vector register, whose first lane becomes the integer.

use crate::codegen::loopnest::BufferKind;
use crate::codegen::select::access::memory_type;
use crate::codegen::select::state::{Selected, Selector};
use crate::codegen::select::tree::Node;
use crate::codegen::select::value::{dtype_of, dtype_range, widest};
use crate::codegen::vcode::{GprOp, Inst, Lane, VBinary, VType};
use crate::expr::interval::{ceil_div, gcd};
use crate::expr::narrow::shifted;
use crate::expr::{Affine, BinaryOp, Bound, BufferId, CompareOp, Expr};
use crate::runtime::DType;

/// Wide enough for any subscript, small enough for sums of products.
const UNKNOWN: (i64, i64) = (-(1 << 40), 1 << 40);

/// Largest factor of integers of 32 bits whose products are far from the limits of 64 bits.
const MOST_FACTOR: u64 = 1 << 29;

/// The interval of products, where it is no wider than that of any subscript.
fn product(x: (i64, i64), y: (i64, i64)) -> Option<(i64, i64)> {
    let corners = [(x.0, y.0), (x.0, y.1), (x.1, y.0), (x.1, y.1)].map(|(a, b)| i128::from(a) * i128::from(b));
    let (least, most) = (i64::try_from(*corners.iter().min()?).ok()?, i64::try_from(*corners.iter().max()?).ok()?);
    (UNKNOWN.0 <= least && most <= UNKNOWN.1).then_some((least, most))
}

/// Returns true for integers of up to 32 bits.
fn wraps(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 | DType::U32)
}

impl Selector<'_> {
    /// Integers as affine forms over runtime variables, computed in general registers.
    pub(super) fn integer(&mut self, e: &Expr) -> Selected<Affine> {
        if let Some(a) = self.try_integer(e)? {
            return Ok(a);
        }
        let saved = self.chunk;
        if let Expr::Cast(DType::I64, condition) = e
            && dtype_of(self.nest, condition) == DType::Bool
        {
            // in lanes as the statements around have them, which may compute the same
            self.chunk.widest = widest(self.nest, &self.facts_of_nest(), &[], condition).max(4);
            let mask = self.value(condition)?;
            let lane = Lane::integer(mask.lane.bytes().max(4));
            let mask_reg = self.mask_as(mask.reg, mask.lane, lane, mask.uniform);
            let (one, ty) = (self.bits(lane, 1), self.ty(lane, mask.uniform));
            let src = self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: mask_reg, b: one });
            self.chunk = saved;
            let var = self.fresh_var();
            self.facts.set_range(var, (0, 1));
            self.out.push(Node::FirstLane { var, ty: VType { lane, lanes: 1 }, src });
            return Ok(Affine::var(var));
        }
        self.first_lane(e)
    }

    /// An integer that is computed as a vector, of which the first lane is the integer.
    fn first_lane(&mut self, e: &Expr) -> Selected<Affine> {
        let saved = self.chunk;
        self.chunk.widest = 8;
        let v = self.value(e)?;
        let v = self.with_lane(v, Lane::I64)?;
        self.chunk = saved;
        let var = self.fresh_var();
        let range = dtype_range(dtype_of(self.nest, e)).filter(|range| UNKNOWN.0 <= range.0 && range.1 <= UNKNOWN.1);
        self.facts.set_range(var, range.unwrap_or(UNKNOWN));
        self.out.push(Node::FirstLane { var, ty: VType { lane: Lane::I64, lanes: 1 }, src: v.reg });
        Ok(Affine::var(var))
    }

    /// An integer of which is known that it lies in an interval: a sum is not brought back into its type where no other number with the same
    /// low bits lies there.
    pub(super) fn integer_within(&mut self, e: &Expr, (low, high): (i64, i64)) -> Selected<Affine> {
        let mut sum = e;
        while let Expr::Cast(DType::I64, inner) = sum {
            sum = inner;
        }
        let dtype = dtype_of(self.nest, sum);
        if matches!(sum, Expr::Binary(BinaryOp::Add | BinaryOp::Sub, ..))
            && wraps(dtype)
            && let Some(value) = self.congruent(sum)?
        {
            let ((least, most), numbers) = (self.facts.bounds(&value), 1 << (8 * dtype.bytes()));
            if least > high.saturating_sub(numbers) && most < low.saturating_add(numbers) {
                return Ok(value);
            }
            if let Some(value) = self.wrapped(sum, value) {
                return Ok(value);
            }
        }
        self.integer(e)
    }

    /// An integer that is brought into an interval, or is known to lie there; what lies outside may be recorded.
    pub(super) fn read(
        &mut self,
        value: &Expr,
        (low, high): (i64, i64),
        checked: bool,
        expected: &Bound,
        recorded: Option<[BufferId; 2]>,
    ) -> Selected<Affine> {
        let mut value = self.integer(value)?;
        let (least, most) = self.facts.bounds(&value);
        if let Some([below, above]) = recorded
            && (least < low || most > high)
        {
            let slot = |b: BufferId| match self.nest.buffer(b).kind {
                BufferKind::Argument { slot, .. } => Ok(slot),
                BufferKind::Local => self.internal("a subscript is recorded in a local buffer"),
            };
            let (extremes, mem, outside) = ([slot(below)?, slot(above)?], self.nest.buffer(below).dtype, value);
            let var = self.fresh_var();
            self.facts.set_range(var, (low, high));
            self.out.push(Node::Inside { var, value: outside, extent: high + 1, mem, extremes });
            value = Affine::var(var);
        }
        if let ([(var, 1)], true) = (&value.terms[..], checked) {
            self.facts.set_range(*var, (low - value.constant, high - value.constant));
        }
        for (op, limit) in [(BinaryOp::Max, low), (BinaryOp::Min, high)] {
            let (least, most) = self.facts.bounds(&value);
            let open = if op == BinaryOp::Max { least < limit } else { most > limit };
            if open && let Some(clamped) = self.operation(op, value.clone(), Affine::constant(limit)) {
                value = clamped;
            }
        }
        let expected = Bound { affine: self.resolve(&expected.affine), divisor: expected.divisor };
        self.expected.push((value.clone(), expected));
        Ok(value)
    }

    /// Expects a quotient of integers that were read, where it is the same in all iterations around.
    pub(super) fn expect_quotient(&mut self, quotient: Affine, value: &Affine, divisor: i64) {
        let Some(expected) = self.expected_value(value) else { return };
        if expected.affine.is_constant() {
            let constant = expected.affine.constant.div_euclid(expected.divisor).div_euclid(divisor);
            self.expected.push((quotient, Bound::constant(constant)));
        }
    }

    /// Notes what the form of a condition is expected to be, where it follows from integers that were read and is the same in all
    /// iterations around.
    pub(super) fn expect_condition(&mut self, condition: &Affine) {
        let form = condition.clone().offset(-condition.constant);
        let Some(Bound { affine, divisor }) = self.expected_value(&form) else { return };
        let opposite = form.clone().scale(-1);
        let is_known = self.tree.expected.iter().any(|(known, _)| [&form, &opposite].contains(&known));
        if affine.is_constant() && !is_known {
            self.tree.expected.push((form, affine.constant.div_euclid(divisor)));
        }
    }

    /// A form with what is expected of the integers that were read; `None` where it has none.
    fn expected_value(&self, form: &Affine) -> Option<Bound> {
        let (mut out, mut any) = (Bound { affine: Affine::constant(form.constant), divisor: 1 }, false);
        for &(v, c) in &form.terms {
            let of = |(value, expected): &(Affine, Bound)| {
                (value.terms == [(v, 1)]).then(|| Bound {
                    affine: expected.affine.clone().offset(-value.constant * expected.divisor),
                    ..*expected
                })
            };
            let known = self.expected.iter().rev().find_map(of);
            any |= known.is_some();
            let Bound { affine, divisor } = known.unwrap_or(Bound { affine: Affine::var(v), divisor: 1 });
            let (factor, other) = (divisor / gcd(divisor, out.divisor), out.divisor / gcd(divisor, out.divisor));
            out = Bound {
                affine: out.affine.scale(factor).add_scaled(&affine, c * other),
                divisor: out.divisor * factor,
            };
        }
        any.then_some(out)
    }

    /// Iterations that a loop between integers that were read is expected to have; `None` for other loops, and where they depend on loops around.
    pub(super) fn expected_iterations(&self, lower: &[Bound], upper: &[Bound], step: i64) -> Option<i64> {
        let (mut least, mut is_read) = (None::<i64>, false);
        for (first, end) in lower.iter().flat_map(|l| upper.iter().map(move |u| (l, u))) {
            let of = |b: &Bound| self.expected_value(&b.affine).map(|e| Bound { divisor: e.divisor * b.divisor, ..e });
            let (from, to) = (of(first), of(end));
            is_read |= from.is_some() || to.is_some();
            let (from, to) = (from.unwrap_or(first.clone()), to.unwrap_or(end.clone()));
            let extent = to.affine.scale(from.divisor).add_scaled(&from.affine, -to.divisor);
            if !extent.is_constant() {
                return None;
            }
            let iterations = ceil_div(extent.constant, from.divisor * to.divisor * step).max(0);
            least = Some(least.map_or(iterations, |n| n.min(iterations)));
        }
        least.filter(|_| is_read)
    }

    fn try_integer(&mut self, e: &Expr) -> Selected<Option<Affine>> {
        Ok(match e {
            Expr::Const(s) if !s.dtype.is_float() => {
                Some(Affine::constant(crate::expr::scalar::Value::from(*s).as_i64()))
            }
            Expr::Index(a) => Some(self.resolve(a)),
            Expr::Load(access) => {
                let dtype = self.nest.buffer(access.buffer).dtype;
                let open = access.guard.iter().any(|g| self.facts.decide(&self.resolve(g)) != Some(true));
                let beyond = dtype == DType::U64 || dtype.is_storage();
                if dtype.is_float() || beyond || open {
                    return Ok(None);
                }
                if self.in_registers(access.buffer) {
                    let is_one = self.nest.buffer(access.buffer).shape.iter().all(|n| *n == 1);
                    let is_number = dtype_range(dtype).is_some() && dtype != DType::Bool;
                    return if is_one && is_number { self.first_lane(e).map(Some) } else { Ok(None) };
                }
                let a = self.address(access.buffer, &access.index)?;
                let size = self.element(a.buffer);
                let (addr, span) = self.operand(a.buffer, &a.linear.scale(size), size);
                let mem = if dtype == DType::U32 { dtype } else { memory_type(dtype) };
                let range = dtype_range(dtype).unwrap_or(UNKNOWN);
                let var = self.integer_node(range, Some(span), |var| Node::LoadInt { var, addr, mem });
                Some(Affine::var(var))
            }
            Expr::Cast(DType::I64, a) => self.try_integer(a)?,
            Expr::Cast(..) => self.exact(e)?,
            Expr::Binary(op, x, y) => {
                let narrow = |e: &Expr| matches!(e, Expr::Cast(t, _) if *t != DType::I64);
                let sums = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max);
                if !sums || dtype_of(self.nest, e) != DType::I64 || e.any(&mut |e| narrow(e)) {
                    return self.exact(e);
                }
                let (Some(a), Some(b)) = (self.try_integer(x)?, self.try_integer(y)?) else { return Ok(None) };
                self.operation(*op, a, b)
            }
            Expr::Select(c, yes, no) => {
                let Expr::Compare(op, x, y) = c.as_ref() else { return Ok(None) };
                let (Some(x), Some(y)) = (self.try_integer(x)?, self.try_integer(y)?) else { return Ok(None) };
                let (Some(yes), Some(no)) = (self.try_integer(yes)?, self.try_integer(no)?) else { return Ok(None) };
                let (more, less) = (x.add_scaled(&y, -1), y.add_scaled(&x, -1));
                let (conditions, swap) = match op {
                    CompareOp::Lt => (vec![less.offset(-1)], false),
                    CompareOp::Le => (vec![less], false),
                    CompareOp::Gt => (vec![more.offset(-1)], false),
                    CompareOp::Ge => (vec![more], false),
                    CompareOp::Eq => (vec![more, less], false),
                    CompareOp::Ne => (vec![more, less], true),
                };
                let (yes, no) = if swap { (no, yes) } else { (yes, no) };
                let ((ly, hy), (ln, hn)) = (self.facts.bounds(&yes), self.facts.bounds(&no));
                let var = self.integer_node((ly.min(ln), hy.max(hn)), None, |var| Node::Choose {
                    var,
                    conditions: conditions.clone(),
                    yes: yes.clone(),
                    no: no.clone(),
                });
                Some(Affine::var(var))
            }
            _ => None,
        })
    }

    /// The value of an integer expression, brought back into its type where it may have left it.
    fn exact(&mut self, e: &Expr) -> Selected<Option<Affine>> {
        let value = self.congruent(e)?;
        Ok(value.and_then(|value| self.wrapped(e, value)))
    }

    /// A number with the low bits of an integer expression, those of its type; far from the limits of 64 bits.
    fn congruent(&mut self, e: &Expr) -> Selected<Option<Affine>> {
        let value = match e {
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let (Some(a), Some(b)) = (self.congruent(a)?, self.congruent(b)?) else { return Ok(None) };
                self.operation(*op, a, b)
            }
            Expr::Binary(op, a, b) => {
                let (Some(a), Some(b)) = (self.exact(a)?, self.exact(b)?) else { return Ok(None) };
                let far = |a: &Affine| a.is_constant() && a.constant.unsigned_abs() > MOST_FACTOR;
                if *op == BinaryOp::Mul && (far(&a) || far(&b)) { None } else { self.operation(*op, a, b) }
            }
            Expr::Cast(to, a) if *to != DType::I64 && dtype_of(self.nest, a).bytes() >= to.bytes() => {
                let integer = wraps(dtype_of(self.nest, a)) || dtype_of(self.nest, a) == DType::I64;
                if integer { self.congruent(a)? } else { None }
            }
            Expr::Cast(_, a) => self.exact(a)?,
            _ => return Ok(self.try_integer(e)?.filter(|value| self.is_exact(e, value))),
        };
        Ok(value.and_then(|value| {
            let (least, most) = self.facts.bounds(&value);
            let near = UNKNOWN.0 <= least && most <= UNKNOWN.1;
            if near { Some(value) } else { self.wrapped(e, value) }
        }))
    }

    /// The value of the type of `e` with the low bits of `value`; `None` for types of 64 bits that `value` may leave.
    fn wrapped(&mut self, e: &Expr, value: Affine) -> Option<Affine> {
        if self.is_exact(e, &value) {
            return Some(value);
        }
        let mem = Some(dtype_of(self.nest, e)).filter(|&dtype| wraps(dtype))?;
        let range = dtype_range(mem)?;
        Some(Affine::var(self.integer_node(range, None, |var| Node::Wrap { var, mem, value: value.clone() })))
    }

    /// Returns true if the values of an integer expression, computed in 64 bits, are known to lie in its type.
    fn is_exact(&self, e: &Expr, value: &Affine) -> bool {
        let dtype = dtype_of(self.nest, e);
        let (least, most) = self.facts.bounds(value);
        match dtype {
            // a read of i64 may be beyond the bounds that subscripts have
            DType::I64 => UNKNOWN.0 < least && most < UNKNOWN.1,
            dtype => dtype_range(dtype).is_some_and(|(low, high)| low <= least && most <= high),
        }
    }

    /// An operation on integers; `None` for those that take more than a few instructions.
    fn operation(&mut self, op: BinaryOp, a: Affine, b: Affine) -> Option<Affine> {
        let ((la, ha), (lb, hb)) = (self.facts.bounds(&a), self.facts.bounds(&b));
        let amount = || Some(b.constant).filter(|n| b.is_constant() && (0..30).contains(n));
        let divisor = || Some(b.constant).filter(|&n| b.is_constant() && n > 0);
        let (op, range) = match op {
            BinaryOp::Add => return Some(a.add_scaled(&b, 1)),
            BinaryOp::Sub => return Some(a.add_scaled(&b, -1)),
            BinaryOp::Mul if b.is_constant() => return Some(a.scale(b.constant)),
            BinaryOp::Mul if a.is_constant() => return Some(b.scale(a.constant)),
            BinaryOp::ShiftLeft | BinaryOp::ShiftRight if !b.is_constant() => {
                let range = shifted(op == BinaryOp::ShiftLeft, (la, ha), (lb, hb))?;
                let near = UNKNOWN.0 <= range.0 && range.1 <= UNKNOWN.1;
                near.then_some(())?;
                (if op == BinaryOp::ShiftLeft { GprOp::ShiftLeft } else { GprOp::ShiftRight }, range)
            }
            BinaryOp::ShiftLeft => return Some(a.scale(1 << amount()?)),
            BinaryOp::ShiftRight => return Some(self.floor(a, 1 << amount()?)),
            BinaryOp::Div if la >= 0 => return Some(self.floor(a, divisor()?)),
            BinaryOp::Mod => {
                let divisor = divisor()?;
                let rest = self.floor(a.clone(), divisor).scale(divisor);
                let range = (0, divisor - 1);
                return Some(Affine::var(self.integer_node(range, None, |var| Node::Integer {
                    var,
                    op: GprOp::Sub,
                    a: a.clone(),
                    b: rest.clone(),
                })));
            }
            BinaryOp::And if lb >= 0 => (GprOp::And, (0, hb)),
            BinaryOp::And if la >= 0 => (GprOp::And, (0, ha)),
            BinaryOp::Or => {
                // as many bits as the longer one
                let most = [la, ha, lb, hb].map(|n| if n < 0 { !n } else { n }).into_iter().max().unwrap_or(0);
                let limit = i64::try_from((most as u64 + 1).next_power_of_two()).ok()?;
                (GprOp::Or, (-limit, limit - 1))
            }
            BinaryOp::Mul => (GprOp::Mul, product((la, ha), (lb, hb)).unwrap_or(UNKNOWN)),
            BinaryOp::Min => (GprOp::Min, (la.min(lb), ha.min(hb))),
            BinaryOp::Max => (GprOp::Max, (la.max(lb), ha.max(hb))),
            _ => return None,
        };
        Some(Affine::var(self.integer_node(range, None, |var| Node::Integer { var, op, a: a.clone(), b: b.clone() })))
    }

    /// The quotient by a positive constant, rounded down.
    fn floor(&mut self, value: Affine, divisor: i64) -> Affine {
        if divisor == 1 {
            return value;
        }
        let (least, most) = self.facts.bounds(&value);
        let range = (least.div_euclid(divisor), most.div_euclid(divisor));
        Affine::var(self.integer_node(range, None, |var| Node::Let { var, value: value.clone(), divisor }))
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::lower;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::{Function, Inst};

    /// Subscripts that are computed in vector registers, for AVX-512.
    fn vectors(index: &str) -> usize {
        let text = format!(
            "kernel p {{ P: u8[40] argument 0; Q: i32[40] argument 1; H: i32[1024] argument 2 written; L: i64[40] argument 3;
             U: u32[40] argument 4;
             for i in 0..40 {{ H[{index}] add = i32(1); }} }}"
        );
        let functions = check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1);
        functions[0].insts.iter().filter(|i| matches!(i, Inst::FirstLane { .. })).count()
    }

    #[test]
    fn integers_that_stay_in_their_type_are_computed_in_general_registers() {
        for index in [
            "@cast i32(P[i])",
            "@(cast i32(P[i]) * i32(3))",
            "@(cast i32(P[i]) / i32(7))",
            "@shr(cast i32(P[i]), i32(3))",
            "@and(Q[i], i32(15))",
            "@mod(cast i32(P[i]), i32(10))",
            "@or(cast i32(P[i]), and(Q[i], i32(7)))",
            "@cast i64(cast i32(P[i]))",
            "@and(U[i], u32(15))",
            "@(and(U[i], u32(63)) / u32(7))",
            "@mod((U[i] + u32(2)), u32(1000))",
            "@(cast i64(and(U[i], u32(15))) + i64(2))",
            "@shr(cast i64(P[i]), and(index(i), i64(7)))",
            "@shl(and(index(i), i64(3)), and(cast i64(P[i]), i64(7)))",
            "@and((and(index(i), i64(15)) * shl(i64(1), and(cast i64(P[i]), i64(7)))), i64(1023))",
        ] {
            assert_eq!(vectors(index), 0, "{index}");
        }
    }

    #[test]
    fn integers_that_wrap_are_brought_back_in_general_registers() {
        for index in [
            // 200 is -56 as i8
            "@(cast i32(cast i8(P[i])) + i32(128))",
            "@mod(((cast i32(index(i)) + Q[i]) + i32(200)), i32(200))",
            "@mod((Q[i] * i32(2147)), i32(150))",
            "@and((Q[i] * Q[i]), i32(1023))",
            "@mod(max((Q[i] + Q[i]), i32(-7)), i32(300))",
            "@mod((U[i] * U[i]), u32(1000))",
            "@cast u8((Q[i] - i32(3)))",
        ] {
            assert_eq!(vectors(index), 0, "{index}");
        }
    }

    #[test]
    fn sums_in_subscripts_wrap_as_their_type_does() {
        let functions = |rows: usize, index: &str| {
            let text = format!(
                "kernel p {{ P: u8[40] argument 0; Q: u8[40] argument 1; H: i32[{rows}] argument 2 written; J: i32[40] argument 3;
                 for i in 0..40 {{ H[{index}] add = i32(1); }} }}"
            );
            check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1)
        };
        let wraps = |functions: &[Function]| {
            functions.iter().map(|f| f.insts.iter().filter(|i| matches!(i, Inst::Extend { .. })).count()).sum::<usize>()
        };
        for index in ["(P[i] - Q[i])", "cast i64((P[i] + u8(1)))", "max((P[i] - Q[i]), u8(7))", "(P[i] * u8(3))"] {
            assert!(wraps(&functions(256, &format!("@{index}"))) > 0, "{index}");
        }
        // numbers that differ by 256 do not both lie in the array
        assert_eq!(wraps(&functions(200, "@cast i64(((P[i] / u8(2)) + (Q[i] / u8(4))))")), 0);
        // as here, where the check before the loop is of the number that has wrapped
        assert_eq!(wraps(&functions(4096, "@(and(J[i], i32(2047)) + i32(7))")), 0);
    }

    #[test]
    fn integers_of_64_bits_that_wrap_are_not() {
        // a quotient is a product only for dividends of a known range
        assert!(vectors("@mod(L[i], i64(10))") > 0);
        // a product that 64 bits do not hold
        assert!(vectors("@mod((U[i] * u32(2654435761)), u32(1000))") > 0);
    }

    #[test]
    fn indices_that_are_added_to_a_computed_subscript_are_neighbours() {
        let gathers = |index: &str| {
            let text = format!(
                "kernel p {{ X: f32[90] argument 0; Y: f32[16] argument 1 written; P: i64[9] argument 2;
                 for p in 0..9 {{ vector k in 0..16 {{ Y[k] add = X[{index}]; }} }} }}"
            );
            let function = check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1).remove(0);
            function.insts.iter().filter(|i| matches!(i, Inst::VGatherIndex { .. })).count()
        };
        assert_eq!(gathers("@(((index(3*p) / i64(4)) + i64(2)) + index(k))"), 0);
        assert_eq!(gathers("@(index(k) - (index(p) / i64(-9)))"), 0);
        assert!(gathers("@((index(k + p) / i64(2)) + index(k))") > 0);
    }

    #[test]
    fn iterations_are_expected_where_loops_around_do_not_matter() {
        let expected = |bounds: &str| {
            let text = format!(
                "kernel k {{ P: i32[9] argument 0; X: f32[160] argument 1; Y: f32[160] argument 2 written;
                 parallel once in 0..1 {{ for i in 0..8 {{
                   let end = clamp(cast i64(P[i]), 0, 160) about 40; for k in {bounds} {{ Y[k] = X[k]; }} }} }} }}"
            );
            let functions = lower(&parse::nest(&text).unwrap(), &Target::avx512()).unwrap();
            functions[0].insts.iter().find_map(|i| match i {
                Inst::Expect { iterations, .. } => Some(*iterations),
                _ => None,
            })
        };
        assert_eq!(expected("0..min(end, 160)"), Some(40));
        assert_eq!(expected("0..min(end, 30)"), Some(30));
        // a block of which the limit may be before, in or after
        assert_eq!(expected("20*i..min(end, 20*i + 20)"), None);
    }
}
