//! The forms of instructions on general-purpose registers.

use crate::codegen::select::uses::{Uses, uses};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{
    Addr, Function, Gpr, GprOp, Inst, Lane, LaneRange, Operand, Part, ShiftOp, VBinary, VType, VUnary, Vreg,
};
use crate::expr::CompareOp;
use crate::runtime::DType;
use std::collections::BTreeMap;

/// The integer of a lane of 32 or 64 bits.
pub fn number(lane: Lane, bits: u64) -> Option<i64> {
    match lane {
        Lane::I32 => Some(i64::from(bits as i32)),
        Lane::I64 => Some(bits as i64),
        _ => None,
    }
}

/// Returns true for integers of 32 or 64 bits of which there is one.
pub fn is_one_integer(ty: VType) -> bool {
    ty.lanes == 1 && matches!(ty.lane, Lane::I32 | Lane::I64)
}

/// Conversion to f64, product with an inverse, conversion to i32: a quotient of i32 by a constant.
#[derive(Clone, Copy)]
pub struct Quotient {
    dividend: Vreg,
    divisor: u64,
    /// The first two of the three instructions.
    parts: [usize; 2],
}

/// The instructions of a function, with what is around them.
pub struct Forms {
    uses: Uses,
    /// For each instruction the number of loops and conditionals that begin or end before it.
    blocks: Vec<usize>,
    /// By the last of their instructions.
    quotients: BTreeMap<usize, Quotient>,
    /// The other instructions of quotients.
    parts: BTreeMap<usize, usize>,
}

impl Forms {
    pub fn of(function: &Function) -> Forms {
        let mut block = 0;
        let blocks = function.insts.iter().map(|inst| {
            block += usize::from(inst.is_control());
            block
        });
        let blocks = blocks.collect();
        let mut forms =
            Forms { uses: uses(function, Class::Vector), blocks, quotients: BTreeMap::new(), parts: BTreeMap::new() };
        for last in 0..function.insts.len() {
            if let Some(quotient) = forms.quotient(function, last) {
                forms.parts.extend(quotient.parts.map(|part| (part, last)));
                forms.quotients.insert(last, quotient);
            }
        }
        forms
    }

    /// The vector registers of an instruction that may be general-purpose ones.
    pub fn movable(&self, index: usize, inst: &Inst) -> Vec<Vreg> {
        match *inst {
            Inst::VLoad { dst, ty, part, .. } if is_one_integer(ty) && is_first(part) => vec![dst],
            Inst::VStore { src, ty, part, .. } if is_one_integer(ty) && is_first(part) => vec![src],
            Inst::VConst { dst, ty, .. } | Inst::VSplat { dst, ty, .. } if is_one_integer(ty) => vec![dst],
            Inst::VCopy { dst, ty, src } if is_one_integer(ty) => vec![src, dst],
            Inst::FirstLane { ty, src, .. } if is_one_integer(ty) => vec![src],
            Inst::VUnary { dst, ty, a, op: VUnary::Abs | VUnary::Neg | VUnary::Not } if is_one_integer(ty) => {
                vec![a, dst]
            }
            Inst::VBinary { op: VBinary::ShiftLeft | VBinary::ShiftRight | VBinary::ShiftRightSigned, .. } => vec![],
            Inst::VBinary { dst, ty, a, b, .. } if is_one_integer(ty) => vec![a, b, dst],
            Inst::VShift { dst, ty, a, .. } if is_one_integer(ty) => vec![a, dst],
            Inst::VCompare { dst, ty, a, b, .. } if is_one_integer(ty) => vec![a, b, dst],
            Inst::VSelect { dst, ty, mask, a, b } if is_one_integer(ty) => vec![mask, a, b, dst],
            Inst::VConvert { dst, to, from, src } if to.lanes == 1 => match (is_integer(from), is_integer(to.lane)) {
                (true, true) => vec![src, dst],
                (true, false) if to.lane.is_float() => vec![src],
                (false, true) => self.quotients.get(&index).map_or(vec![], |q| vec![q.dividend, dst]),
                _ => vec![],
            },
            Inst::VGatherIndex { dst, ty, index, index_lane, part, .. } if ty.lanes == 1 && is_first(part) => {
                let index = is_integer(index_lane).then_some(index);
                index.into_iter().chain(is_one_integer(ty).then_some(dst)).collect()
            }
            _ => vec![],
        }
    }

    /// Returns true for a part of a quotient, which needs no instruction of its own.
    pub fn is_part(&self, index: usize) -> bool {
        self.parts.contains_key(&index)
    }

    /// The dividend of the quotient whose last instruction this is.
    pub fn dividend(&self, index: usize) -> Option<Vreg> {
        self.quotients.get(&index).map(|q| q.dividend)
    }

    /// The dividend of the quotient of which this is a part.
    pub fn dividend_of_part(&self, index: usize) -> Option<Vreg> {
        self.parts.get(&index).map(|last| self.quotients[last].dividend)
    }

    /// Returns true if a register still has the value of one place at another of the same block.
    fn stays(&self, r: Vreg, from: usize, to: usize) -> bool {
        self.blocks[from] == self.blocks[to] && self.uses.stays(r.index(), from, to)
    }

    /// The only instruction that writes a register, where it stands before `index` in the same block.
    fn definition(&self, r: Vreg, index: usize) -> Option<usize> {
        match self.uses.written(r.index()) {
            [only] if *only < index && self.blocks[*only] == self.blocks[index] => Some(*only),
            _ => None,
        }
    }

    fn quotient(&self, function: &Function, last: usize) -> Option<Quotient> {
        const F64: VType = VType { lane: Lane::F64, lanes: 1 };
        let alone = |r: Vreg| self.definition(r, last).filter(|_| self.uses.read(r.index()).len() == 1);
        let Inst::VConvert { to: VType { lane: Lane::I32, lanes: 1 }, from: Lane::F64, src, .. } = function.insts[last]
        else {
            return None;
        };
        let product = alone(src)?;
        let Inst::VBinary { op: VBinary::Mul, ty: F64, a, b, .. } = function.insts[product] else { return None };
        let converted = alone(a)?;
        let Inst::VConvert { to: F64, from: Lane::I32, src: dividend, .. } = function.insts[converted] else {
            return None;
        };
        let [constant] = self.uses.written(b.index()) else { return None };
        let Inst::VConst { ty: VType { lane: Lane::F64, .. }, bits, .. } = function.insts[*constant] else {
            return None;
        };
        let divisor = (1.0 / f64::from_bits(bits)).round();
        // what `constant_division` writes
        let inverts = (3.0..2147483648.0).contains(&divisor) && (1.0 / divisor).next_up().to_bits() == bits;
        let divisor = divisor as u64;
        (inverts && !divisor.is_power_of_two() && self.stays(dividend, converted, last)).then_some(Quotient {
            dividend,
            divisor,
            parts: [converted, product],
        })
    }
}

fn is_integer(lane: Lane) -> bool {
    is_one_integer(VType { lane, lanes: 1 })
}

/// Returns true if the first lane takes part.
fn is_first(part: Part) -> bool {
    part.is_none_or(|p| p == LaneRange { first: 0, count: 1 })
}

/// A comparison, whose mask is known.
#[derive(Clone, Copy)]
struct Comparison {
    op: CompareOp,
    lane: Lane,
    a: Vreg,
    b: Vreg,
}

/// Rewrites the instructions of a function.
pub struct Rewriter<'a> {
    forms: &'a Forms,
    constants: &'a BTreeMap<u32, i64>,
    moved: BTreeMap<u32, Gpr>,
    gprs: u32,
    vregs: u32,
    insts: &'a [Inst],
    out: Vec<Inst>,
}

impl<'a> Rewriter<'a> {
    /// `function` with the registers `moved` in general-purpose registers.
    pub fn rewrite(
        function: &mut Function,
        forms: &'a Forms,
        constants: &'a BTreeMap<u32, i64>,
        moved: impl IntoIterator<Item = u32>,
    ) {
        let insts = std::mem::take(&mut function.insts);
        let (gprs, vregs) = (function.gprs, function.vregs);
        let mut rewriter =
            Rewriter { forms, constants, moved: BTreeMap::new(), gprs, vregs, insts: &insts, out: vec![] };
        for r in moved {
            let register = rewriter.temporary();
            rewriter.moved.insert(r, register);
        }
        for (index, inst) in insts.iter().enumerate() {
            let movable = forms.movable(index, inst);
            if rewriter.moves(&movable) {
                for r in movable.iter().filter(|r| constants.contains_key(&r.0)) {
                    let register = rewriter.temporary();
                    rewriter.moved.entry(r.0).or_insert(register);
                }
            }
        }
        for index in 0..insts.len() {
            rewriter.inst(index);
        }
        let Rewriter { gprs, vregs, out, .. } = rewriter;
        *function = Function { insts: out, gprs, vregs, ..std::mem::take(function) };
    }

    fn temporary(&mut self) -> Gpr {
        self.gprs += 1;
        Gpr(self.gprs - 1)
    }

    fn immediate(&mut self, value: i64) -> Gpr {
        let dst = self.temporary();
        self.out.push(Inst::Imm { dst, value });
        dst
    }

    fn register(&self, r: Vreg) -> Gpr {
        self.moved[&r.0]
    }

    fn operand(&self, r: Vreg) -> Operand {
        self.constants.get(&r.0).map_or(Operand::Reg(self.moved[&r.0]), |&value| Operand::Imm(value))
    }

    fn is_constant(&self, r: Vreg) -> bool {
        self.constants.contains_key(&r.0)
    }

    /// Returns true if an instruction has a register that moved, constants aside.
    fn moves(&self, movable: &[Vreg]) -> bool {
        movable.iter().any(|r| self.moved.contains_key(&r.0) && !self.is_constant(*r))
    }

    fn inst(&mut self, index: usize) {
        let inst = &self.insts[index];
        if let Inst::VConst { dst, .. } = *inst
            && let (Some(&value), Some(&constant)) = (self.constants.get(&dst.0), self.moved.get(&dst.0))
        {
            self.out.extend([inst.clone(), Inst::Imm { dst: constant, value }]);
            return;
        }
        if let Some(last) = self.forms.parts.get(&index) {
            let quotient = &self.forms.quotients[last];
            if !self.moves(&[quotient.dividend]) {
                self.out.push(inst.clone());
            }
            return;
        }
        if !self.moves(&self.forms.movable(index, inst)) {
            self.out.push(inst.clone());
            return;
        }
        match *inst {
            Inst::VLoad { dst, mem, addr, .. } => self.load(dst, mem, addr),
            Inst::VStore { src, mem, addr, .. } => {
                let mut src = self.register(src);
                if mem == DType::Bool {
                    let bit = self.temporary();
                    self.out.push(Inst::Word { op: GprOp::And, dst: bit, a: src, b: Operand::Imm(1) });
                    src = bit;
                }
                self.out.push(Inst::StoreInt { mem, src, addr });
            }
            Inst::VConst { dst, ty, bits } => {
                let dst = self.register(dst);
                self.out.push(Inst::Imm { dst, value: number(ty.lane, bits).unwrap_or_default() });
            }
            Inst::VSplat { dst, src, .. } => self.out.push(Inst::Copy { dst: self.register(dst), src }),
            Inst::VCopy { dst, src, .. } => self.copy(dst, src),
            Inst::FirstLane { dst, ty, src } => {
                // what was loaded is sign-extended
                let signed = |mem| matches!(mem, DType::I32 | DType::I16 | DType::U16 | DType::I8 | DType::U8);
                let loads = |at: usize| matches!(self.insts[at], Inst::VLoad { mem, .. } if signed(mem));
                let wide = ty.lane == Lane::I64 || self.forms.definition(src, index).is_some_and(loads);
                let src = self.register(src);
                self.out.push(if wide { Inst::Copy { dst, src } } else { Inst::Extend { dst, mem: DType::I32, src } });
            }
            Inst::VUnary { op, dst, ty, a } => self.unary(op, ty.lane, dst, a),
            Inst::VBinary { op, dst, ty, a, b } => self.binary(index, (op, ty.lane), dst, a, b),
            Inst::VShift { op, dst, ty, a, amount } => self.shift(index, (op, ty.lane), dst, a, amount),
            Inst::VCompare { dst, op, ty, a, b } => {
                let (yes, no) = (self.immediate(-1), self.immediate(0));
                self.choose(self.register(dst), Comparison { op, lane: ty.lane, a, b }, yes, no);
            }
            Inst::VSelect { dst, ty, mask, a, b } => {
                let (dst, yes, no) = (self.register(dst), self.register(a), self.register(b));
                match self.comparison(mask, index) {
                    Some(comparison) => self.choose(dst, comparison, yes, no),
                    None => {
                        let (a, b) = (self.register(mask), Operand::Imm(0));
                        self.out.push(Inst::Choose { dst, op: CompareOp::Ne, lane: ty.lane, a, b, yes, no });
                    }
                }
            }
            Inst::VConvert { dst, to, from, src } => self.convert(index, dst, to, from, src),
            Inst::VGatherIndex { dst, ty, mem, base, index, index_lane, part } => {
                let mut index = self.register(index);
                if index_lane == Lane::I32 {
                    let wide = self.temporary();
                    self.out.push(Inst::Extend { dst: wide, mem: DType::I32, src: index });
                    index = wide;
                }
                let addr = Addr { base, index: Some((index, mem.bytes() as u8)), disp: 0 };
                match self.moved.contains_key(&dst.0) {
                    true => self.load(dst, mem, addr),
                    false => self.out.push(Inst::VLoad { dst, ty, mem, addr, part }),
                }
            }
            _ => self.out.push(inst.clone()),
        }
    }

    fn load(&mut self, dst: Vreg, mem: DType, addr: Addr) {
        let dst = self.register(dst);
        if mem != DType::Bool {
            self.out.push(Inst::LoadInt { dst, mem, addr });
            return;
        }
        let (bit, zero) = (self.temporary(), self.immediate(0));
        self.out.push(Inst::LoadInt { dst: bit, mem, addr });
        self.out.push(Inst::Int { op: GprOp::Sub, dst, a: zero, b: Operand::Reg(bit) });
    }

    fn copy(&mut self, dst: Vreg, src: Vreg) {
        let dst = self.register(dst);
        self.out.push(match self.operand(src) {
            Operand::Reg(src) => Inst::Copy { dst, src },
            Operand::Imm(value) => Inst::Imm { dst, value },
        });
    }

    /// `dst = op(a, b)` of 32 or 64 bits.
    fn int(&mut self, op: GprOp, lane: Lane, dst: Gpr, a: Gpr, b: Operand) {
        self.out.push(match lane {
            Lane::I32 => Inst::Word { op, dst, a, b },
            _ => Inst::Int { op, dst, a, b },
        });
    }

    fn unary(&mut self, op: VUnary, lane: Lane, dst: Vreg, a: Vreg) {
        let (dst, a) = (self.register(dst), self.register(a));
        if op == VUnary::Not {
            return self.int(GprOp::Xor, lane, dst, a, Operand::Imm(-1));
        }
        let zero = self.immediate(0);
        if op == VUnary::Neg {
            return self.int(GprOp::Sub, lane, dst, zero, Operand::Reg(a));
        }
        let negative = self.temporary();
        self.int(GprOp::Sub, lane, negative, zero, Operand::Reg(a));
        self.int(GprOp::Max, lane, dst, negative, Operand::Reg(a));
    }

    fn binary(&mut self, index: usize, (op, lane): (VBinary, Lane), dst: Vreg, a: Vreg, b: Vreg) {
        let to = self.register(dst);
        let int = match op {
            VBinary::Add => GprOp::Add,
            VBinary::Sub => GprOp::Sub,
            VBinary::Mul => GprOp::Mul,
            VBinary::Min => GprOp::Min,
            VBinary::Max => GprOp::Max,
            VBinary::Or => GprOp::Or,
            VBinary::Xor => GprOp::Xor,
            VBinary::MulPairs => return self.product_of_halves(index, to, a, b),
            _ => {
                let masks = [(a, b), (b, a)].map(|(mask, other)| Some((self.comparison(mask, index)?, other)));
                let [first, second] = masks;
                if let Some((comparison, other)) = first.or(second.filter(|_| op == VBinary::And)) {
                    let (zero, other) = (self.immediate(0), self.register(other));
                    let (yes, no) = if op == VBinary::And { (other, zero) } else { (zero, other) };
                    return self.choose(to, comparison, yes, no);
                }
                if op != VBinary::And {
                    let inverted = self.temporary();
                    self.int(GprOp::Xor, lane, inverted, self.register(a), Operand::Imm(-1));
                    return self.int(GprOp::And, lane, to, inverted, self.operand(b));
                }
                GprOp::And
            }
        };
        let (a, b) = if self.is_constant(a) && int != GprOp::Sub { (b, a) } else { (a, b) };
        self.int(int, lane, to, self.register(a), self.operand(b));
    }

    /// The product of the signed lower halves plus that of the upper halves.
    fn product_of_halves(&mut self, index: usize, dst: Gpr, a: Vreg, b: Vreg) {
        let (a, b) = if self.is_constant(a) { (b, a) } else { (a, b) };
        let low = self.low_half(a, index);
        if let Some(&factor) = self.constants.get(&b.0)
            && (factor as u64 >> 16) & 0xffff == 0
        {
            return self.int(GprOp::Mul, Lane::I32, dst, low, Operand::Imm(i64::from(factor as i16)));
        }
        let other = self.low_half(b, index);
        let [product, above, other_above] = std::array::from_fn(|_| self.temporary());
        self.int(GprOp::Mul, Lane::I32, product, low, Operand::Reg(other));
        for (half, of) in [(above, a), (other_above, b)] {
            let (op, lane, a) = (ShiftOp::RightArithmetic, Lane::I32, self.register(of));
            self.out.push(Inst::Shift { dst: half, op, lane, a, amount: 16 });
        }
        let second = self.temporary();
        self.int(GprOp::Mul, Lane::I32, second, above, Operand::Reg(other_above));
        self.int(GprOp::Add, Lane::I32, dst, product, Operand::Reg(second));
    }

    /// A register with the signed lower half of a number, which may be the number itself.
    fn low_half(&mut self, r: Vreg, index: usize) -> Gpr {
        let is_short = self.forms.definition(r, index).is_some_and(|first| match self.insts[first] {
            Inst::VLoad { mem: DType::I16 | DType::I8 | DType::U8, .. } => true,
            Inst::VShift { op: ShiftOp::RightArithmetic, ty, amount, .. } => ty.lane == Lane::I32 && amount >= 16,
            _ => false,
        });
        if is_short {
            return self.register(r);
        }
        let low = self.temporary();
        self.out.push(Inst::Extend { dst: low, mem: DType::I16, src: self.register(r) });
        low
    }

    fn shift(&mut self, index: usize, (op, lane): (ShiftOp, Lane), dst: Vreg, a: Vreg, amount: u8) {
        let to = self.register(dst);
        if let Some((mem, source)) = self.extended(index, (op, lane), a, amount) {
            return self.out.push(Inst::Extend { dst: to, mem, src: self.register(source) });
        }
        let a = self.register(a);
        if usize::from(amount) >= 8 * lane.bytes() {
            match op {
                ShiftOp::RightArithmetic => {
                    self.out.push(Inst::Shift { dst: to, op, lane, a, amount: 8 * lane.bytes() as u8 - 1 });
                }
                _ => self.out.push(Inst::Imm { dst: to, value: 0 }),
            }
            return;
        }
        self.out.push(Inst::Shift { dst: to, op, lane, a, amount });
    }

    /// The type and the source of a number that is shifted to the left and back.
    fn extended(&self, index: usize, (op, lane): (ShiftOp, Lane), a: Vreg, amount: u8) -> Option<(DType, Vreg)> {
        let first = self.forms.definition(a, index)?;
        let Inst::VShift { op: ShiftOp::Left, a: source, amount: left, .. } = self.insts[first] else { return None };
        let mem = match (op, 8 * lane.bytes() - usize::from(amount)) {
            (ShiftOp::RightArithmetic, 8) => DType::I8,
            (ShiftOp::RightArithmetic, 16) => DType::I16,
            (ShiftOp::RightArithmetic, 32) => DType::I32,
            (ShiftOp::RightLogical, 8) => DType::U8,
            (ShiftOp::RightLogical, 16) => DType::U16,
            (ShiftOp::RightLogical, 32) => DType::U32,
            _ => return None,
        };
        (left == amount && amount > 0 && self.forms.stays(source, first, index)).then_some((mem, source))
    }

    /// The comparison that wrote a mask, whose operands are the same still.
    fn comparison(&self, mask: Vreg, index: usize) -> Option<Comparison> {
        let first = self.forms.definition(mask, index)?;
        let Inst::VCompare { op, ty, a, b, .. } = self.insts[first] else { return None };
        let same = |r| self.is_constant(r) || self.forms.stays(r, first, index);
        (same(a) && same(b)).then_some(Comparison { op, lane: ty.lane, a, b })
    }

    fn choose(&mut self, dst: Gpr, c: Comparison, yes: Gpr, no: Gpr) {
        let mirrored = match c.op {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            op => op,
        };
        let (op, a, b) = if self.is_constant(c.a) { (mirrored, c.b, c.a) } else { (c.op, c.a, c.b) };
        let (a, b) = (self.register(a), self.operand(b));
        self.out.push(Inst::Choose { dst, op, lane: c.lane, a, b, yes, no });
    }

    fn convert(&mut self, index: usize, dst: Vreg, to: VType, from: Lane, src: Vreg) {
        if let Some(&Quotient { dividend, divisor, .. }) = self.forms.quotients.get(&index) {
            return self.quotient(self.register(dst), self.register(dividend), divisor);
        }
        if to.lane.is_float() {
            let lane = VType { lane: from, lanes: 1 };
            let vector = Vreg(self.vregs);
            self.vregs += 1;
            self.out.push(Inst::VSplat { dst: vector, ty: lane, src: self.register(src) });
            return self.out.push(Inst::VConvert { dst, to, from, src: vector });
        }
        if from == Lane::I32 && to.lane == Lane::I64 && !self.is_constant(src) {
            let (dst, src) = (self.register(dst), self.register(src));
            return self.out.push(Inst::Extend { dst, mem: DType::I32, src });
        }
        self.copy(dst, src);
    }

    /// The quotient of i32, rounded to zero: the upper part of the product with 2^s / divisor rounded up, s being 31 and the bits of
    /// the divisor, which is one less than the quotient for all dividends below zero (Granlund and Montgomery 1994).
    fn quotient(&mut self, dst: Gpr, dividend: Gpr, divisor: u64) {
        let shift = 31 + (64 - divisor.leading_zeros());
        let factor = (1u64 << shift).div_ceil(divisor) as i64;
        let [wide, product, above, sign] = std::array::from_fn(|_| self.temporary());
        let sar = |dst, a, amount| Inst::Shift { dst, op: ShiftOp::RightArithmetic, lane: Lane::I64, a, amount };
        self.out.extend([
            Inst::Extend { dst: wide, mem: DType::I32, src: dividend },
            Inst::Int { op: GprOp::Mul, dst: product, a: wide, b: Operand::Imm(factor) },
            sar(above, product, shift as u8),
            sar(sign, wide, 63),
            Inst::Word { op: GprOp::Sub, dst, a: above, b: Operand::Reg(sign) },
        ]);
    }
}
