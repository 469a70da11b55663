//! Tensor instructions: a loop over the terms of one becomes one instruction for each vector of its accumulator.
//!
//! In: an accumulation in a vector loop and in a loop of kind [`LoopKind::Instruction`](crate::codegen::loopnest::LoopKind).
//! The reads of its value are those of the row's operands: the body of the row unifies with it, up to the order of factors.
//! The terms of one element are neighbours in memory, so that an operand is read by elements as wide as a group of terms. A value of
//! several summands is as many instructions; parts of bytes are shifted and masked in lanes as wide as a group.

use crate::codegen::instruction::{Form, InstructionName, Part, TensorInstruction};
use crate::codegen::loopnest::Stmt;
use crate::codegen::select::state::{Address, Selected, Selector, Stop, Val, View};
use crate::codegen::select::tree::Node;
use crate::codegen::vcode::{Inst, Lane, ShiftOp, VBinary, Vreg};
use crate::expr::{Access, Affine, BinaryOp, Expr, Var};
use crate::runtime::{DType, Error};

impl Selector<'_> {
    /// The loop over `terms` terms of the row called `name`.
    pub fn instruction_loop(&mut self, name: InstructionName, var: Var, terms: i64, body: &[Stmt]) -> Selected<()> {
        let rows = self.target.instructions.clone();
        let Some(row) = rows.iter().find(|r| r.name == name) else {
            return self.internal(&format!("`{name}` is not an instruction of {}", self.target.name));
        };
        if self.target.sums_throughout_loops(name) {
            let sums = match row.is_tile() {
                true => "tiles",
                false if row.is_matrix() => "matrices",
                false => "vectors of f16",
            };
            let text = format!(
                "{}: the loops around `{name}` are not those of rows, columns and terms of {sums}",
                self.nest.name
            );
            return Err(Stop::Failed(Error::Unsupported(text)));
        }
        match body {
            [Stmt::If { conditions, body }] => {
                self.env[var.0 as usize] = Affine::constant(0);
                self.under(conditions, &mut |s| s.instruction_loop(name, var, terms, body))
            }
            [Stmt::Store { buffer, index, value, reduce: Some(BinaryOp::Add) }] => {
                self.env[var.0 as usize] = Affine::constant(0);
                let target = self.address(*buffer, index)?;
                if !target.varies() {
                    // The vector loop has one element left.
                    return (0..terms).try_for_each(|term| {
                        self.env[var.0 as usize] = Affine::constant(term);
                        self.statements(body)
                    });
                }
                let fits = &mut |n: usize, part: &Part| {
                    let o = &row.operands[n];
                    let lanes = self.varies(&Expr::Load(part.access.clone()));
                    o.is_part(part, self.nest.buffer(part.access.buffer).dtype) && (o.form == Form::Vector || !lanes)
                };
                let summands = row.unify_sum(value, fits);
                let summands = summands.and_then(|all| all.into_iter().map(|parts| parts.try_into().ok()).collect());
                let Some(summands) = summands else {
                    return self.internal(&format!("the terms of a sum are not those of `{name}`"));
                };
                let summands: Vec<[Part; 2]> = summands;
                self.tensor(row, (var, terms), &target, &summands)
            }
            _ => self.internal(&format!("the loop of `{name}` is not around one sum")),
        }
    }

    fn tensor(
        &mut self,
        row: &TensorInstruction,
        (var, terms): (Var, i64),
        target: &Address,
        summands: &[[Part; 2]],
    ) -> Selected<()> {
        let mut operands = vec![];
        for [a, b] in summands {
            operands.push([self.part_of_group(row, 1, (var, terms), a)?, self.part_of_group(row, 2, (var, terms), b)?]);
        }
        let (constant, temporaries) = (self.constant_of(row), row.temporaries() as u8);
        let emit = |s: &mut Self, acc: Vreg, lane: Lane| {
            let ty = s.ty(lane, false);
            for [a, b] in &operands {
                let inst = Inst::VTensor { acc, row: row.name, ty, a: a.reg, b: b.reg, constant, temporaries };
                s.out.push(Node::Inst(inst));
            }
            s.changed(acc);
        };
        if let Some(slot) = self.slot(target)? {
            let whole = self.chunk.first == 0 && (self.chunk.count >= slot.valid || !self.blends(target.buffer));
            if whole && !slot.uniform {
                self.read_slot(target)?;
                emit(self, slot.reg, slot.lane);
                self.wrote_slot(target, false);
                return Ok(());
            }
        }
        let old = self.load_address(target)?;
        let total = Val { reg: self.fresh(), uniform: false, ..old };
        let ty = self.ty(old.lane, false);
        self.out.push(Node::Inst(Inst::VCopy { dst: total.reg, src: old.reg, ty }));
        emit(self, total.reg, total.lane);
        self.store_value(target, total)
    }

    /// The register of a row's constant.
    pub fn constant_of(&mut self, row: &TensorInstruction) -> Option<Vreg> {
        let (dtype, bits) = row.constant_bits()?;
        let lane = if dtype.bytes() == 8 { Lane::I64 } else { Lane::I32 };
        let copies = lane.bytes() / dtype.bytes();
        let repeated = (0..copies).fold(0, |all, n| all | bits << (8 * dtype.bytes() * n));
        Some(self.bits(lane, repeated))
    }

    /// [`Selector::group`] of the bits of each term that an operand is.
    fn part_of_group(
        &mut self,
        row: &TensorInstruction,
        operand: usize,
        along: (Var, i64),
        part: &Part,
    ) -> Selected<Val> {
        let group = self.group(row, operand, along.0, along.1, part.access)?;
        if part.is_whole() {
            return Ok(group);
        }
        let shifted = match part.shift {
            0 => group,
            amount => self.shift(ShiftOp::RightLogical, group, amount),
        };
        let bytes = u64::MAX / u64::from(u8::MAX);
        let mask = Val { reg: self.bits(group.lane, u64::from(part.mask) * bytes), uniform: true, ..group };
        Ok(self.vector_binary(VBinary::And, shifted, mask))
    }

    /// The terms of an operand in a register: those of each lane, or the same ones in every lane.
    pub fn group(
        &mut self,
        row: &TensorInstruction,
        operand: usize,
        var: Var,
        terms: i64,
        access: &Access,
    ) -> Selected<Val> {
        let o = &row.operands[operand];
        let (group, lanes) = (row.group(operand), self.varies(&Expr::Load(access.clone())));
        let bytes = group as usize * o.dtype.bytes();
        if !lanes && terms < group {
            let lane = if bytes == 8 { Lane::I64 } else { Lane::I32 };
            return self.partial_group(var, terms, (o.dtype, lane), access);
        }
        let dtype = match bytes {
            2 => DType::I16,
            4 => DType::I32,
            8 => DType::I64,
            _ => return self.internal(&format!("the terms of operand {} fill no lane", o.name)),
        };
        if self.in_registers(access.buffer) {
            return Err(Stop::Retry(access.buffer, super::state::LocalMode::Memory { offset: 0 }));
        }
        let loaded = self.viewed(View { dtype, group }, access)?;
        match loaded.uniform != lanes {
            true => Ok(loaded),
            false => self.internal(&format!("operand {} of `{}` does not stand as the row says", o.name, row.name)),
        }
    }

    /// Fewer terms than the row's, zeros above them, in every lane.
    fn partial_group(&mut self, var: Var, terms: i64, (dtype, lane): (DType, Lane), access: &Access) -> Selected<Val> {
        let neighbours = self.are_neighbours(var, dtype, access)?;
        if neighbours && let Some(word) = self.word_around(var, terms, (dtype, lane), access)? {
            return Ok(word);
        }
        let mut sum: Option<Val> = None;
        let mut first = 0;
        while first < terms {
            let size = if neighbours { 1 << (terms - first).ilog2() } else { 1 };
            let v = self.terms_from(
                var,
                first,
                View { dtype: unsigned(size as usize * dtype.bytes()), group: size },
                access,
            )?;
            let v = self.with_lane(v, lane)?;
            sum = Some(match sum {
                None => v,
                Some(lower) => {
                    let v = self.shift(ShiftOp::Left, v, (8 * first as usize * dtype.bytes()) as u8);
                    self.vector_binary(VBinary::Or, lower, v)
                }
            });
            first += size;
        }
        sum.map_or_else(|| self.internal("an instruction without terms"), Ok)
    }

    /// Returns true if the terms of an operand follow each other in memory.
    fn are_neighbours(&self, var: Var, dtype: DType, access: &Access) -> Selected<bool> {
        let affine = access.index.iter().all(|i| i.affine().is_some());
        let guarded = access.guard.iter().any(|g| g.uses(var));
        let free = affine && !guarded && !self.in_registers(access.buffer) && self.literal(access).is_none();
        Ok(free && self.stride(access.buffer, &access.index, Some((var, 0)))? == dtype.bytes() as i64)
    }

    /// A word with the terms in its low bits and zeros above them, read at once with elements after or before them; `None` where
    /// these may lie outside of the buffer.
    fn word_around(
        &mut self,
        var: Var,
        terms: i64,
        (dtype, lane): (DType, Lane),
        access: &Access,
    ) -> Selected<Option<Val>> {
        let (bits, group) = (8 * dtype.bytes() as i64, (lane.bytes() / dtype.bytes()) as i64);
        let view = View { dtype: if lane.bytes() == 8 { DType::I64 } else { DType::I32 }, group };
        self.env[var.0 as usize] = Affine::constant(0);
        let address = self.address(access.buffer, &access.index)?;
        let (low, high) = self.facts.bounds(&address.linear);
        if high + group <= self.nest.buffer(access.buffer).span() {
            let word = self.terms_from(var, 0, view, access)?;
            let mask = Val { reg: self.bits(lane, (1 << (bits * terms)) - 1), uniform: true, ..word };
            return Ok(Some(self.vector_binary(VBinary::And, word, mask)));
        }
        let more = group - terms;
        if low < more {
            return Ok(None);
        }
        let word = self.terms_from(var, -more, view, access)?;
        Ok(Some(self.shift(ShiftOp::RightLogical, word, (bits * more) as u8)))
    }

    /// The elements of an operand from its term `first` on, as one.
    fn terms_from(&mut self, var: Var, first: i64, view: View, access: &Access) -> Selected<Val> {
        self.env[var.0 as usize] = Affine::constant(first);
        let value = match view.group {
            1 => self.value(&Expr::bitcast(view.dtype, Expr::Load(access.clone()))),
            _ => self.viewed(view, access),
        };
        self.env[var.0 as usize] = Affine::constant(0);
        value
    }

    /// A read of elements as another type.
    pub fn viewed(&mut self, view: View, access: &Access) -> Selected<Val> {
        let outer = self.view.replace(view);
        let value = self.load(access);
        self.view = outer;
        value
    }
}

/// The unsigned integers of 1, 2 or 4 bytes.
fn unsigned(bytes: usize) -> DType {
    match bytes {
        1 => DType::U8,
        2 => DType::U16,
        _ => DType::U32,
    }
}
