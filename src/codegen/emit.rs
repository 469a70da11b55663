//! Emission of machine code: what is the same on every architecture.
//!
//! In: a function and its allocation. Out: position-independent bytes, constants included. The walk over the steps, control
//! flow, moves of the arguments and the dispatch of instructions stand here; an architecture encodes them ([`Encode`]).

mod counter;
pub mod operand;
mod outside;
mod reloads;

use crate::codegen::constant_pool::Pool;
use crate::codegen::emit::operand::{MemoryOperand, Source};
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::regalloc::allocation::{Allocation, Place, Step, Temporaries, slot_offset};
use crate::codegen::vcode::lanes::{Interleaved, Lanes, Widening};
use crate::codegen::vcode::operands::{Class, Group};
use crate::codegen::vcode::{
    Addr, Function, Gpr, GprOp, Inst, Lane, Operand, Shapes, ShiftOp, Tile, VBinary, VType, VUnary, Vreg, Zip,
};
use crate::expr::CompareOp;
use crate::runtime::{DType, Error, Result};
use dynasmrt::relocations::Relocation;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, VecAssembler};

/// The state of an emitter: the code so far, the bodies around, the step at hand, and `arch`, the architecture's own.
pub struct Emitter<'a, R: Relocation, S> {
    pub function: &'a Function,
    pub allocation: &'a Allocation,
    pub asm: VecAssembler<R>,
    pub pool: Pool,
    pub arch: S,
    /// Temporaries of the step at hand.
    pub temporaries: &'a Temporaries,
    /// The instruction of the function that the step at hand comes from.
    pub origin: usize,
    /// Open loops and conditionals: head and end.
    bodies: Vec<(DynamicLabel, DynamicLabel)>,
    /// The innermost loop is counted down already.
    counted: bool,
    /// Code that is emitted behind the function.
    outside: Vec<Outside>,
}

/// The code for a subscript outside of its dimension, see [`Inst::Inside`].
struct Outside {
    code: DynamicLabel,
    back: DynamicLabel,
    /// The register of the subscript, and that of what it becomes, which may be one that holds the table.
    value: u8,
    result: u8,
    extent: i64,
    mem: DType,
    extremes: [u32; 2],
    /// Where the table of arguments is.
    table: Place,
}

/// The encodings of an architecture. Registers are physical: `d` is written, others are read.
pub trait Encode: Frame + Scalars + LoadStore + Gather + Vectors + Tiles {}

impl<T: Frame + Scalars + LoadStore + Gather + Vectors + Tiles> Encode for T {}

/// Calling convention and stack frame.
pub trait Frame {
    /// Name in messages.
    const NAME: &'static str;
    /// Registers of the calling convention: argument table, first, last, scratch.
    const INCOMING: [u8; 4];

    fn prologue(&mut self);
    fn epilogue(&mut self);
    /// Moves a general-purpose register.
    fn move_gpr(&mut self, d: u8, s: u8);
    /// Does the first of `moves` (to, from), all of which wait for each other, or brings its source elsewhere.
    fn break_cycle(&mut self, moves: &mut Vec<(u8, u8)>);
    /// Stores a register to a spill slot.
    fn spill(&mut self, class: Class, s: u8, slot: u32);
    /// Loads a register from a spill slot.
    fn reload(&mut self, class: Class, d: u8, slot: u32);
}

/// A comparison of general-purpose registers, of i32 of their lower halves.
pub struct Comparison {
    pub op: CompareOp,
    pub lane: Lane,
    pub a: u8,
    pub b: Operand,
}

/// Integers, addresses and control flow.
pub trait Scalars {
    fn immediate(&mut self, d: u8, value: i64);
    fn int(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()>;
    /// See [`Inst::Word`].
    fn word(&mut self, op: GprOp, d: u8, a: u8, b: Operand) -> Result<()>;
    fn shift_int(&mut self, op: ShiftOp, lane: Lane, d: u8, a: u8, amount: u8);
    /// See [`Inst::Extend`].
    fn extend(&mut self, mem: DType, d: u8, a: u8);
    /// See [`Inst::Choose`].
    fn choose_int(&mut self, c: &Comparison, d: u8, yes: u8, no: u8);
    fn load_int(&mut self, d: u8, addr: &Addr, mem: DType) -> Result<()>;
    fn store_int(&mut self, s: u8, addr: &Addr, mem: DType) -> Result<()>;
    fn prefetch(&mut self, addr: &Addr) -> Result<()>;
    /// Jumps to `end` unless `count` is positive.
    fn skip_loop(&mut self, count: u8, end: DynamicLabel);
    /// Prepares the head of an innermost loop.
    fn align_loop(&mut self) {}
    /// Steps before the end of a loop where it is counted down.
    const COUNTED_AHEAD: usize = 0;
    fn count_down(&mut self, counter: Place);
    /// Jumps to `head` unless what was counted down is zero.
    fn repeat(&mut self, head: DynamicLabel);
    /// Jumps to `to` unless `a` is in 0..extent.
    fn jump_outside(&mut self, a: u8, extent: i64, to: DynamicLabel);
    fn jump(&mut self, to: DynamicLabel);
    /// Two registers beside those that are taken, and what gives them back their values; no flags, and no stack between.
    fn borrow(&mut self, taken: [u8; 3]) -> [u8; 2];
    fn give_back(&mut self, _registers: [u8; 2]) {}
    /// Jumps to `end` unless `op(a, b)` holds.
    fn jump_unless(&mut self, op: CompareOp, a: u8, b: Operand, end: DynamicLabel);
}

/// Neighbouring elements; see [`Inst::VLoad`] and the like.
pub trait LoadStore {
    fn load_lanes(&mut self, l: &Lanes, widening: Widening) -> Result<()>;
    fn store_lanes(&mut self, l: &Lanes, widening: Widening) -> Result<()>;
    fn broadcast(&mut self, l: &Lanes, widening: Widening) -> Result<()>;
    /// See [`Inst::VLoadWhere`] and [`Inst::VStoreWhere`]; false where no instruction moves lanes so.
    fn move_where(&mut self, _l: &Lanes, _mask: u8, _stores: bool) -> Result<bool> {
        Ok(false)
    }
    /// See [`Inst::VStoreInterleaved`].
    fn store_interleaved(&mut self, group: &Interleaved) -> Result<()>;
    /// Stores two neighbouring vectors, the lower address first; false where no instruction stores both.
    fn store_pair(&mut self, _low: &Lanes, _high: &Lanes) -> bool {
        false
    }
}

/// Elements apart.
pub trait Gather {
    fn gather(&mut self, l: &Lanes) -> Result<()>;
    fn scatter(&mut self, l: &Lanes) -> Result<()>;
    fn gather_index(&mut self, l: &Lanes, index: u8, index_lane: Lane) -> Result<()>;
}

/// Lanes in registers. Functions that return a bool return false where there is no such operation.
pub trait Vectors {
    fn constant(&mut self, d: u8, ty: VType, bits: u64);
    /// Loads a constant as wide as the register.
    fn pooled(&mut self, d: u8, bytes: Vec<u8>);
    fn copy(&mut self, d: u8, s: u8, ty: VType);
    /// An integer register in every lane; the first lane in an integer register, sign-extended.
    fn splat(&mut self, d: u8, s: u8, ty: VType);
    fn first_lane(&mut self, d: u8, s: u8, ty: VType);
    /// Lane 0 in every lane.
    fn spread(&mut self, d: u8, s: u8, ty: VType);
    /// Returns true if a register that is broadcast has its element in the lowest lane alone.
    fn in_lowest_lane(&self, _: Vreg) -> bool {
        false
    }
    /// The upper half of `s`, which `bytes` bytes fill twice.
    fn upper_half(&mut self, d: u8, s: u8, bytes: usize);
    fn unary(&mut self, op: VUnary, ty: VType, d: u8, a: u8) -> bool;
    fn binary(&mut self, op: VBinary, ty: VType, d: u8, a: u8, b: u8, temporaries: &[u8]) -> bool;
    fn zip(&mut self, op: Zip, ty: VType, d: u8, a: u8, b: u8);
    /// As [`Inst::VReduce`], by instructions that combine neighbours.
    fn reduce_all(&mut self, _op: VBinary, _ty: VType, _d: u8, _a: u8) -> bool {
        false
    }
    /// See [`Inst::VReduceFour`].
    fn reduce_four(&mut self, op: VBinary, ty: VType, d: u8, sources: [u8; 4]) -> bool;
    fn shift(&mut self, op: ShiftOp, ty: VType, d: u8, a: u8, amount: u8);
    fn multiply_add(&mut self, acc: u8, ty: VType, a: u8, b: u8, negate: bool) -> bool;
    /// Arithmetic on floats has operands in memory.
    const MEMORY_OPERANDS: bool = false;
    /// `d = sum ± product of the factors`, one of the three in memory; see [`Inst::VFmaSum`].
    fn fused_sum(&mut self, _d: u8, _ty: VType, _sum: Source, _factors: [Source; 2], _negate: bool) -> bool {
        false
    }
    /// See [`Inst::VBinaryMemory`].
    fn binary_memory(&mut self, _op: VBinary, _ty: VType, _d: u8, _a: u8, _b: &MemoryOperand) -> bool {
        false
    }
    /// See [`Inst::VTensorMemory`]: registers of the sums and of the operand that is not broadcast.
    fn tensor_memory(&mut self, _row: &TensorInstruction, _registers: [u8; 2], _addr: &Addr) -> bool {
        false
    }
    fn compare(&mut self, op: CompareOp, ty: VType, d: u8, a: u8, b: u8);
    fn select(&mut self, ty: VType, d: u8, mask: u8, a: u8, b: u8);
    /// `d = a / b`, of the operands a, b and the inverse of b.
    fn quotient(&mut self, _ty: VType, _d: u8, _operands: [u8; 3]) -> bool {
        false
    }
    /// `d = op(a, b) ? yes : no`, of the operands a, b, yes, no.
    fn choose(&mut self, _op: CompareOp, _ty: VType, _d: u8, _operands: [u8; 4]) -> bool {
        false
    }
    /// `d = table[index]`, of a table in four registers.
    fn lookup(&mut self, _ty: VType, _d: u8, _index: u8, _table: [u8; 4]) -> bool {
        false
    }
    /// Bytes `index` of the 16 bytes at an address.
    fn shuffle(&mut self, _ty: VType, _d: u8, _index: u8, _table: &Addr) -> bool {
        false
    }
    fn convert(&mut self, d: u8, to: VType, s: u8, from: Lane) -> bool;
}

/// Tile registers, whose rows lie `stride` bytes apart in memory; functions return false where there are none.
pub trait Tiles {
    fn configure(&mut self, _shapes: &Shapes) -> bool {
        false
    }
    fn release(&mut self) -> bool {
        false
    }
    fn zero_tile(&mut self, _d: Tile) -> bool {
        false
    }
    fn load_tile(&mut self, _t: Tile, _addr: &Addr, _stride: i64, _streamed: bool) -> Result<bool> {
        Ok(false)
    }
    fn store_tile(&mut self, _t: Tile, _addr: &Addr, _stride: i64) -> Result<bool> {
        Ok(false)
    }
}

static NO_TEMPORARIES: Temporaries = Temporaries { gpr: vec![], vector: vec![] };

impl<'a, R: Relocation, S> Emitter<'a, R, S>
where
    Self: Encode,
{
    /// The machine code of a function, where the code of each step starts and the last one ends, and the architecture's state at the end.
    pub fn emit(function: &'a Function, allocation: &'a Allocation, arch: S) -> Result<(Vec<u8>, Vec<usize>, S)> {
        let (asm, pool) = (VecAssembler::new(0), Pool::default());
        let temporaries = &NO_TEMPORARIES;
        let (origin, bodies, counted, outside) = (0, vec![], false, vec![]);
        let mut e = Self { function, allocation, asm, pool, arch, temporaries, origin, bodies, counted, outside };
        e.prologue();
        let mut starts = vec![e.asm.offset().0];
        let mut i = 0;
        while let Some(step) = allocation.steps.get(i) {
            if let Some((reloads, folded)) = operand::reloaded(&allocation.steps[i..]).filter(|_| Self::MEMORY_OPERANDS)
            {
                for (k, reload) in allocation.steps[i..i + reloads].iter().enumerate() {
                    if k != folded {
                        e.step(reload, false)?;
                    }
                    starts.push(e.asm.offset().0);
                }
                e.with_operand(&allocation.steps[i + reloads], &allocation.steps[i + folded])?;
                starts.push(e.asm.offset().0);
                i += reloads + 1;
                continue;
            }
            e.count_ahead(&allocation.steps[i..]);
            match allocation.steps.get(i + 1).is_some_and(|next| e.pair(step, next)) {
                // both steps begin where their instruction does
                true => {
                    let start = starts.last().copied().unwrap_or_default();
                    starts.push(start);
                    i += 1;
                }
                false => e.step(step, is_innermost(&allocation.steps[i..]))?,
            }
            starts.push(e.asm.offset().0);
            i += 1;
        }
        e.epilogue();
        for outside in std::mem::take(&mut e.outside) {
            e.record(&outside)?;
        }
        e.pool.emit(&mut e.asm);
        let code = e.asm.finalize().map_err(|error| Error::Internal(format!("{}: {error}", function.name)))?;
        Ok((code, starts, e.arch))
    }

    /// Number of loops and conditionals around the step at hand.
    pub fn depth(&self) -> usize {
        self.bodies.len()
    }

    /// The label of a constant.
    pub fn pool_label(&mut self, bytes: Vec<u8>) -> DynamicLabel {
        self.pool.label(bytes, &mut self.asm)
    }

    /// Brings the arguments of the calling convention to their places, all at once.
    pub fn move_arguments(&mut self) {
        let mut moves = vec![];
        for (place, from) in self.allocation.entry.iter().zip(Self::INCOMING) {
            match place {
                Some(Place::Slot(s)) => self.spill(Class::Gpr, from, *s),
                Some(Place::Register(to)) if *to != from => moves.push((*to, from)),
                _ => {}
            }
        }
        while !moves.is_empty() {
            match (0..moves.len()).find(|&i| moves.iter().all(|m| m.1 != moves[i].0)) {
                Some(i) => {
                    let (to, from) = moves.remove(i);
                    self.move_gpr(to, from);
                }
                None => self.break_cycle(&mut moves),
            }
        }
    }

    /// Two stores of neighbouring vectors by one instruction.
    fn pair(&mut self, first: &Step, second: &Step) -> bool {
        let whole = |step: &Step| match step {
            Step::Inst { inst: inst @ Inst::VStore { .. }, .. } => inst.lanes().filter(|l| {
                l.count == l.ty.lanes as usize && l.widening() == Some(Widening::Same) && l.addr.index.is_none()
            }),
            _ => None,
        };
        let (Some(a), Some(b)) = (whole(first), whole(second)) else { return false };
        let bytes = |l: &Lanes| l.count * l.mem.bytes();
        let (low, high) = if a.addr.disp < b.addr.disp { (a, b) } else { (b, a) };
        let next = i64::from(low.addr.disp) + bytes(&low) as i64 == i64::from(high.addr.disp);
        let alike = low.addr.base == high.addr.base && bytes(&low) == bytes(&high);
        next && alike && self.store_pair(&low, &high)
    }

    fn step(&mut self, step: &'a Step, innermost: bool) -> Result<()> {
        match step {
            Step::Inst { origin, inst, hidden, temporaries } => {
                (self.origin, self.temporaries) = (*origin as usize, temporaries);
                self.inst(inst, *hidden, innermost)?;
            }
            Step::Again { origin, inst, .. } => {
                (self.origin, self.temporaries) = (*origin as usize, &NO_TEMPORARIES);
                self.inst(inst, None, false)?;
            }
            Step::Store { class, register, slot } => self.spill(*class, *register, *slot),
            Step::Load { class, register, slot, .. } => self.reload(*class, *register, *slot),
        }
        Ok(())
    }

    fn inst(&mut self, inst: &Inst, hidden: Option<Place>, innermost: bool) -> Result<()> {
        let is_known = match inst.group() {
            Group::Scalar => self.scalar_inst(inst, hidden, innermost)?,
            Group::Load | Group::Store => self.memory_inst(inst)?,
            Group::Vector if matches!(inst, Inst::VTensor { .. } | Inst::VTensorMemory { .. }) => {
                self.tensor_inst(inst)?
            }
            Group::Vector => self.vector_inst(inst),
            Group::Tile => self.tile_inst(inst)?,
        };
        match is_known {
            true => Ok(()),
            false => Err(Error::Internal(format!("{}: no {} code for {inst:?}", self.function.name, Self::NAME))),
        }
    }

    fn scalar_inst(&mut self, inst: &Inst, hidden: Option<Place>, innermost: bool) -> Result<bool> {
        match *inst {
            Inst::Imm { dst, value } => self.immediate(dst.number(), value),
            Inst::Copy { dst, src } => self.move_gpr(dst.number(), src.number()),
            Inst::Int { op, dst, a, b } => self.int(op, dst.number(), a.number(), b)?,
            Inst::Word { op, dst, a, b } => self.word(op, dst.number(), a.number(), b)?,
            Inst::Shift { op, dst, lane, a, amount } => self.shift_int(op, lane, dst.number(), a.number(), amount),
            Inst::Extend { dst, mem, src } => self.extend(mem, dst.number(), src.number()),
            Inst::Choose { dst, op, lane, a, b, yes, no } => {
                self.choose_int(&Comparison { op, lane, a: a.number(), b }, dst.number(), yes.number(), no.number());
            }
            Inst::Inside { .. } => return Ok(self.inside(inst, hidden)),
            Inst::LoadInt { dst, addr, mem } => self.load_int(dst.number(), &addr, mem)?,
            Inst::Prefetch { addr } => self.prefetch(&addr)?,
            Inst::Expect { .. } => {}
            Inst::Argument { dst, slot } => {
                let table = self.argument(dst.number(), hidden)?;
                let addr = Addr { base: Gpr(u32::from(table)), index: None, disp: slot_offset(slot)? };
                self.load_int(dst.number(), &addr, DType::I64)?;
            }
            Inst::Range { dst, .. } | Inst::Scratch { dst } => {
                let from = self.argument(dst.number(), hidden)?;
                self.move_gpr(dst.number(), from);
            }
            Inst::LoopStart { count, at_least_once } => {
                let (end, head) = (self.asm.new_dynamic_label(), self.asm.new_dynamic_label());
                if !at_least_once {
                    self.skip_loop(count.number(), end);
                }
                match hidden {
                    Some(Place::Register(counter)) => self.move_gpr(counter, count.number()),
                    Some(Place::Slot(s)) => self.spill(Class::Gpr, count.number(), s),
                    None => return Ok(false),
                }
                if innermost {
                    self.align_loop();
                }
                self.asm.dynamic_label(head);
                self.bodies.push((head, end));
            }
            Inst::LoopEnd => {
                let (Some((head, end)), Some(counter)) = (self.bodies.pop(), hidden) else { return Ok(false) };
                self.count_and_repeat(counter, head);
                self.asm.dynamic_label(end);
            }
            Inst::IfStart { op, a, b } => {
                let end = self.asm.new_dynamic_label();
                self.jump_unless(op, a.number(), b, end);
                self.bodies.push((end, end));
            }
            Inst::IfEnd => {
                let Some((_, end)) = self.bodies.pop() else { return Ok(false) };
                self.asm.dynamic_label(end);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The register of an argument of the calling convention; loaded into `d` when it waits in a slot.
    fn argument(&mut self, d: u8, hidden: Option<Place>) -> Result<u8> {
        match hidden {
            Some(Place::Register(r)) => Ok(r),
            Some(Place::Slot(s)) => {
                self.reload(Class::Gpr, d, s);
                Ok(d)
            }
            None => Err(Error::Internal(format!("{}: an argument without a place", self.function.name))),
        }
    }

    fn memory_inst(&mut self, inst: &Inst) -> Result<bool> {
        if let Inst::StoreInt { mem, src, addr } = inst {
            self.store_int(src.number(), addr, *mem)?;
            return Ok(true);
        }
        if let Some(group) = inst.interleaved() {
            let fits = Interleaved::fits(group.members.len(), group.ty, group.mem);
            return if fits { self.store_interleaved(&group).map(|()| true) } else { Ok(false) };
        }
        let Some((l, widening)) = inst.lanes().and_then(|l| Some((l, l.widening()?))) else { return Ok(false) };
        match *inst {
            Inst::VLoad { .. } if widening != Widening::Rounded => self.load_lanes(&l, widening)?,
            Inst::VStore { .. } if widening != Widening::Number => self.store_lanes(&l, widening)?,
            _ if matches!(widening, Widening::Number | Widening::Rounded) => return Ok(false),
            Inst::VLoadWhere { mask, .. } => return self.move_where(&l, mask.number(), false),
            Inst::VStoreWhere { mask, .. } => return self.move_where(&l, mask.number(), true),
            Inst::VBroadcast { .. } => self.broadcast(&l, widening)?,
            Inst::VGather { .. } => self.gather(&l)?,
            Inst::VScatter { .. } => self.scatter(&l)?,
            Inst::VGatherIndex { index, index_lane, .. } => self.gather_index(&l, index.number(), index_lane)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn vector_inst(&mut self, inst: &Inst) -> bool {
        let vectors = &self.temporaries.vector[..];
        match *inst {
            Inst::VConst { dst, ty, bits } => self.constant(dst.number(), ty, bits),
            Inst::VCopy { dst, src, ty } => self.copy(dst.number(), src.number(), ty),
            Inst::VSplat { dst, ty, src } => self.splat(dst.number(), src.number(), ty),
            Inst::FirstLane { dst, ty, src } => self.first_lane(dst.number(), src.number(), ty),
            Inst::VIota { dst, ty } => {
                let lane = ty.lane.bytes();
                let lanes = (ty.lanes as usize).max(16 / lane) as u64;
                self.pooled(dst.number(), (0..lanes).flat_map(|i| i.to_le_bytes()[..lane].to_vec()).collect());
            }
            Inst::VUnary { op, dst, ty, a } => return self.unary(op, ty, dst.number(), a.number()),
            Inst::VBinary { op, dst, ty, a, b } => {
                return self.binary(op, ty, dst.number(), a.number(), b.number(), vectors);
            }
            Inst::VZip { op, dst, ty, a, b } => self.zip(op, ty, dst.number(), a.number(), b.number()),
            Inst::VShift { op, dst, ty, a, amount } => self.shift(op, ty, dst.number(), a.number(), amount),
            Inst::VFma { acc, ty, a, b, negate } => {
                let (acc, a, b) = (acc.number(), a.number(), b.number());
                if !self.multiply_add(acc, ty, a, b, negate) {
                    let op = if negate { VBinary::Sub } else { VBinary::Add };
                    return self.binary(VBinary::Mul, ty, vectors[0], a, b, &vectors[1..])
                        && self.binary(op, ty, acc, acc, vectors[0], &[]);
                }
            }
            Inst::VFmaSum { dst, ty, c, negate, a, b } => {
                let [c, a, b] = [c, a, b].map(|r| Source::Register(r.number()));
                return self.fused_sum(dst.number(), ty, c, [a, b], negate);
            }
            Inst::VFmaMemory { acc, ty, a, broadcast, addr, negate } => {
                let [sum, a] = [acc, a].map(|r| Source::Register(r.number()));
                let b = Source::Memory(MemoryOperand::At { addr, broadcast });
                return self.fused_sum(acc.number(), ty, sum, [a, b], negate);
            }
            Inst::VBinaryMemory { op, dst, ty, a, broadcast, addr } => {
                return self.binary_memory(op, ty, dst.number(), a.number(), &MemoryOperand::At { addr, broadcast });
            }
            Inst::VQuotient { dst, ty, a, b, inverse } => {
                return self.quotient(ty, dst.number(), [a, b, inverse].map(|r| r.number()));
            }
            Inst::VCompare { op, dst, ty, a, b } => self.compare(op, ty, dst.number(), a.number(), b.number()),
            Inst::VSelect { dst, ty, mask, a, b } => {
                self.select(ty, dst.number(), mask.number(), a.number(), b.number());
            }
            Inst::VChoose { op, dst, ty, a, b, yes, no } => {
                return self.choose(op, ty, dst.number(), [a, b, yes, no].map(|r| r.number()));
            }
            Inst::VLookup { dst, ty, index, a, b, c, d } => {
                return self.lookup(ty, dst.number(), index.number(), [a, b, c, d].map(|r| r.number()));
            }
            Inst::VShuffle { dst, ty, index, addr } => {
                return self.shuffle(ty, dst.number(), index.number(), &addr);
            }
            Inst::VConvert { dst, to, src, from } => return self.convert(dst.number(), to, src.number(), from),
            Inst::VReduce { op, dst, ty, a, first } => {
                return !matches!(
                    op,
                    VBinary::Sub
                        | VBinary::Div
                        | VBinary::Scale
                        | VBinary::MulHigh
                        | VBinary::MulPairs
                        | VBinary::AndNot
                        | VBinary::ShiftLeft
                        | VBinary::ShiftRight
                        | VBinary::ShiftRightSigned
                ) && (self.reduce_all(op, ty, dst.number(), a.number())
                    || self.reduce(op, ty, dst.number(), a.number(), first));
            }
            Inst::VReduceFour { op, dst, ty, a, b, c, d } => {
                return op.combines_four(ty)
                    && self.reduce_four(op, ty, dst.number(), [a, b, c, d].map(|r| r.number()));
            }
            _ => return false,
        }
        true
    }

    /// A tensor instruction: the code of its row.
    fn tensor_inst(&mut self, inst: &Inst) -> Result<bool> {
        if let Inst::VTensorMemory { acc, row, other, addr, .. } = inst {
            let row = self.function.row(*row)?;
            return Ok(self.tensor_memory(row, [acc, other].map(|r| r.number()), addr));
        }
        let Inst::VTensor { acc, row, a, b, constant, .. } = *inst else { return Ok(false) };
        let row = self.function.row(row)?;
        let operands: Vec<u8> = [acc, a, b].into_iter().chain(constant).map(Vreg::number).collect();
        let temporaries = &self.temporaries.vector;
        let by_element = match self.function.insts[self.origin] {
            Inst::VTensor { a, b, .. } => self.in_lowest_lane(a) || self.in_lowest_lane(b),
            _ => false,
        };
        let code = match by_element {
            true => row.bytes_by_element(&operands, temporaries),
            false => row.bytes_of(&operands, temporaries),
        };
        self.asm.extend(code);
        Ok(true)
    }

    fn tile_inst(&mut self, inst: &Inst) -> Result<bool> {
        match *inst {
            Inst::TileShapes { shapes } => Ok(self.configure(&shapes)),
            Inst::TileRelease => Ok(self.release()),
            Inst::TileZero { tile } => Ok(self.zero_tile(tile)),
            Inst::TileLoad { tile, addr, stride, streamed } => self.load_tile(tile, &addr, stride, streamed),
            Inst::TileStore { tile, addr, stride } => self.store_tile(tile, &addr, stride),
            Inst::TileTensor { acc, row, a, b } => {
                let code = self.function.row(row)?.bytes_of(&[acc.0, a.0, b.0], &[]);
                self.asm.extend(code);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Lane `i` with lane `i + half`, until one is left; that one everywhere.
    fn reduce(&mut self, op: VBinary, ty: VType, d: u8, a: u8, first: bool) -> bool {
        let vectors = &self.temporaries.vector[..];
        let (mut from, mut lanes) = (a, ty.lanes);
        while lanes > 1 {
            lanes /= 2;
            self.upper_half(vectors[0], from, lanes as usize * ty.lane.bytes());
            if !self.binary(op, VType { lanes, ..ty }, d, from, vectors[0], &vectors[1..]) {
                return false;
            }
            from = d;
        }
        match first {
            true => self.copy(d, from, VType { lanes: 1, ..ty }),
            false => self.spread(d, from, ty),
        }
        true
    }
}

/// Returns true if a loop starts here that contains no other.
fn is_innermost(steps: &[Step]) -> bool {
    let inst = |s: &Step| match s {
        Step::Inst { inst: Inst::LoopStart { .. }, .. } => Some(true),
        Step::Inst { inst: Inst::LoopEnd, .. } => Some(false),
        _ => None,
    };
    inst(&steps[0]) == Some(true) && steps[1..].iter().find_map(inst) == Some(false)
}
