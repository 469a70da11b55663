//! x86-64 code: AVX2 with VEX encodings, AVX-512 with EVEX encodings.
//!
//! In: a function and its allocation. Out: position-independent bytes, constants included. dynasm owns the buffer, the
//! labels, branches and scalar instructions; vector instructions go through the table in `x86/opcode.rs`.
//!
//! Frame, from the stack pointer upwards, each part only when used: two areas of 64 bytes through which lanes reach scalar
//! registers, vector spill slots, general-purpose spill slots, the caller's stack pointer. No register is reserved
//! besides `rsp`; mask register k1 is scratch, k2 to k7 hold the most used masks through the whole function, and vector
//! registers that nothing writes the constants most used in loops.

mod constants;
pub mod emitter;
mod encode;
mod fused;
mod gather;
mod interleaved;
mod memory;
mod opcode;
mod quotient;
mod reductions;
mod scalar;
mod strided;
mod tables;
mod tiles;
mod vector;

use crate::codegen::Isa;
use crate::codegen::emit::operand::MemoryOperand;
use crate::codegen::emit::{self, Frame as _};
use crate::codegen::regalloc::allocation::{Allocation, Needs, RegisterFile, Step, frame_size};
use crate::codegen::vcode::operands::{Class, PerClass};
use crate::codegen::vcode::{Function, Inst, VType};
use crate::codegen::x86::emitter::{Emitter, Frame, X86, at, on_stack, repeated};
use crate::runtime::Result;
use constants::Constants;
use dynasmrt::relocations::{Relocation, RelocationKind, RelocationSize};
use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynamicLabel, DynasmApi, DynasmLabelApi, dynasm};
use encode::{Encoding, Memory, Rm, Width, encode};
use opcode::Op;

/// MXCSR while kernels run: round to nearest, no exception traps, subnormal operands and results become zero.
const CONTROL_WORD: i32 = 0x9fc0;

/// The registers that may be allocated.
pub fn register_file(isa: Isa) -> RegisterFile {
    const VECTORS: [u8; 32] = {
        let mut all = [0; 32];
        let mut i = 0;
        while i < 32 {
            all[i] = i as u8;
            i += 1;
        }
        all
    };
    RegisterFile {
        registers: PerClass {
            gpr: &[0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15],
            vector: if isa == Isa::Avx512 { &VECTORS } else { &VECTORS[..16] },
        },
        incoming: Emitter::INCOMING,
        needs: if isa == Isa::Avx512 { |i| needs(i, true) } else { |i| needs(i, false) },
    }
}

/// Temporaries of an instruction.
fn needs(inst: &Inst, evex: bool) -> Needs {
    if let Some(group) = inst.interleaved() {
        return group.needs(evex);
    }
    match inst.lanes() {
        Some(l) => memory::needs(inst, &l, evex),
        None => vector::needs(inst, evex),
    }
}

/// The machine code of a function, and where the code of each step starts; the last entry is the end of the last step.
pub fn emit(function: &Function, allocation: &Allocation, isa: Isa) -> Result<(Vec<u8>, Vec<usize>)> {
    let evex = isa == Isa::Avx512;
    let frame = Frame::of(allocation, evex)?;
    let arch = X86 { evex, bytes: vec![], masks: vec![], compared: None, constants: Constants::default(), frame };
    let (code, starts, arch) = Emitter::emit(function, allocation, arch)?;
    let written = allocation.written().vector;
    let spare = register_file(isa).registers.vector.iter().copied().filter(|r| written >> r & 1 == 0);
    // once more, if a register is spare for a constant that loops load
    match arch.constants.chosen(spare) {
        None => Ok((code, starts)),
        Some(constants) => {
            let arch = X86 { evex, bytes: vec![], masks: vec![], compared: None, constants, frame };
            let (code, starts, _) = Emitter::emit(function, allocation, arch)?;
            Ok((code, starts))
        }
    }
}

impl Frame {
    fn of(allocation: &Allocation, evex: bool) -> Result<Frame> {
        let area = allocation.steps.iter().any(|s| match s {
            Step::Inst { inst, .. } => match inst.lanes() {
                Some(l) => memory::uses_area(inst, &l, evex),
                None => vector::uses_area(inst, evex),
            },
            _ => false,
        });
        let slot_bytes = if evex { 64 } else { 32 };
        let vector_slots = if area { 128 } else { 0 };
        let slots = |bytes: i32, n: u32| i64::from(bytes) * i64::from(n);
        let gpr_slots = i64::from(vector_slots) + slots(slot_bytes, allocation.slots.vector);
        let caller = gpr_slots + slots(8, allocation.slots.gpr);
        let size = frame_size(if caller == 0 { 0 } else { (caller + 8 + 63) & !63 })?;
        // below the size, which fits
        let (gpr_slots, caller) = (gpr_slots as i32, caller as i32);
        Ok(Frame { vector_slots, gpr_slots, caller, size, aligned: gpr_slots > 0, slot_bytes })
    }

    fn slot(&self, class: Class, slot: u32) -> i32 {
        match class {
            Class::Gpr => self.gpr_slots + 8 * slot as i32,
            Class::Vector => self.vector_slots + self.slot_bytes * slot as i32,
        }
    }
}

impl emit::Frame for Emitter<'_> {
    const NAME: &'static str = "x86";
    const INCOMING: [u8; 4] = [7, 6, 2, 1];

    fn prologue(&mut self) {
        let written = self.allocation.written();
        if written.vector != 0 {
            // Nothing of the caller's mode counts: it waits at the top of the frame.
            dynasm!(self.asm ; .arch x64
                ; sub rsp, 8 ; stmxcsr [rsp] ; mov DWORD [rsp + 4], CONTROL_WORD ; ldmxcsr [rsp + 4]);
        }
        for r in SAVED {
            if written.gpr >> r & 1 != 0 {
                dynasm!(self.asm ; .arch x64 ; push Rq(r));
            }
        }
        let Frame { size, caller, aligned, .. } = self.arch.frame;
        if aligned {
            // r11 carries no argument.
            dynasm!(self.asm ; .arch x64
                ; mov r11, rsp ; sub rsp, size ; and rsp, -64 ; mov [rsp + caller], r11);
        } else if size > 0 {
            dynasm!(self.asm ; .arch x64 ; sub rsp, size);
        }
        self.move_arguments();
        if self.arch.evex {
            self.load_masks();
        }
        self.load_constants();
    }

    fn epilogue(&mut self) {
        let written = self.allocation.written();
        if self.arch.frame.aligned {
            let caller = self.arch.frame.caller;
            dynasm!(self.asm ; .arch x64 ; mov rsp, [rsp + caller]);
        } else if self.arch.frame.size > 0 {
            let size = self.arch.frame.size;
            dynasm!(self.asm ; .arch x64 ; add rsp, size);
        }
        for r in SAVED.into_iter().rev() {
            if written.gpr >> r & 1 != 0 {
                dynasm!(self.asm ; .arch x64 ; pop Rq(r));
            }
        }
        if written.vector != 0 {
            dynasm!(self.asm ; .arch x64 ; vzeroupper ; ldmxcsr [rsp] ; add rsp, 8);
        }
        dynasm!(self.asm ; .arch x64 ; ret);
    }

    fn move_gpr(&mut self, d: u8, s: u8) {
        if d != s {
            dynasm!(self.asm ; .arch x64 ; mov Rq(d), Rq(s));
        }
    }

    fn break_cycle(&mut self, moves: &mut Vec<(u8, u8)>) {
        let (to, from) = moves.remove(0);
        dynasm!(self.asm ; .arch x64 ; xchg Rq(to), Rq(from));
        moves.iter_mut().filter(|m| m.1 == to).for_each(|m| m.1 = from);
        moves.retain(|m| m.0 != m.1);
    }

    fn spill(&mut self, class: Class, s: u8, slot: u32) {
        let offset = self.arch.frame.slot(class, slot);
        match class {
            Class::Gpr => dynasm!(self.asm ; .arch x64 ; mov [rsp + offset], Rq(s)),
            Class::Vector => self.store(opcode::STORE_PS, self.widest(), s, on_stack(offset)),
        }
    }

    fn reload(&mut self, class: Class, d: u8, slot: u32) {
        let offset = self.arch.frame.slot(class, slot);
        match class {
            Class::Gpr => dynasm!(self.asm ; .arch x64 ; mov Rq(d), [rsp + offset]),
            Class::Vector => self.load(opcode::LOAD_PS, self.widest(), d, on_stack(offset)),
        }
    }
}

impl Emitter<'_> {
    /// Fills k2 to k7 with the masks used in the deepest loops.
    fn load_masks(&mut self) {
        let mut weights: Vec<(u64, f64)> = vec![];
        let mut depth = 0;
        for step in &self.allocation.steps {
            let Step::Inst { inst, .. } = step else { continue };
            match inst {
                Inst::LoopStart { .. } => depth += 1,
                Inst::LoopEnd => depth -= 1,
                _ => {}
            }
            let masks = inst.interleaved().map_or_else(|| memory::masks_of(inst), |group| group.masks());
            for mask in masks {
                let weight = 10f64.powi(depth);
                match weights.iter_mut().find(|w| w.0 == mask) {
                    Some(w) => w.1 += weight,
                    None => weights.push((mask, weight)),
                }
            }
        }
        weights.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (k, (mask, _)) in (2..8).zip(weights) {
            self.load_mask(k, mask);
            self.arch.masks.push((mask, k));
        }
    }

    fn load_mask(&mut self, k: u8, mask: u64) {
        let label = self.pool_label(mask.to_le_bytes().to_vec());
        self.vector_relative(
            Encoding { evex: false, ..self.plain(opcode::MASK_LOAD, Width::X, k, 0, RELATIVE) },
            label,
        );
    }

    /// A mask register that holds `mask`.
    fn mask(&mut self, mask: u64) -> u8 {
        match self.arch.masks.iter().find(|m| m.0 == mask) {
            Some(&(_, k)) => k,
            None => {
                self.load_mask(1, mask);
                1
            }
        }
    }

    /// Loads the constants that lie in registers through the function.
    fn load_constants(&mut self) {
        for (bytes, r) in self.arch.constants.registers() {
            self.op3_pooled(opcode::LOAD_PS, Width::of(bytes.len()), r, 0, bytes);
        }
    }

    /// The register that holds a constant through the function.
    fn held(&mut self, constant: &[u8]) -> Option<u8> {
        let depth = self.depth();
        self.arch.constants.register(constant, depth)
    }

    /// A register that holds a constant as wide as one: `temporary`, if the constant lies in no other.
    fn constant_register(&mut self, width: Width, temporary: u8, constant: Vec<u8>) -> u8 {
        if let Some(r) = self.held(&constant) {
            return r;
        }
        self.op3_pooled(opcode::LOAD_PS, width, temporary, 0, constant);
        temporary
    }

    /// A mask in k1, which the instruction that follows may change.
    fn scratch_mask(&mut self, mask: u64) {
        match self.mask(mask) {
            1 => {}
            k => {
                self.vector(Encoding { evex: false, ..self.plain(opcode::MASK_LOAD, Width::X, 1, 0, Rm::Register(k)) })
            }
        }
    }

    fn widest(&self) -> Width {
        if self.arch.evex { Width::Z } else { Width::Y }
    }

    // ---- encoding

    /// An encoding without mask and immediate; VEX when the instruction has no other form.
    fn plain(&self, op: Op, width: Width, reg: u8, second: u8, rm: Rm) -> Encoding {
        let evex = self.arch.evex && op.forms != opcode::Forms::Vex;
        Encoding {
            op,
            evex,
            width,
            reg,
            second,
            rm,
            mask: 0,
            zeroing: false,
            towards_zero: false,
            broadcast: false,
            immediate: None,
            vector_index: false,
        }
    }

    fn vector(&mut self, e: Encoding) {
        self.arch.bytes.clear();
        encode(&e, &mut self.arch.bytes);
        self.asm.extend(self.arch.bytes.iter());
    }

    /// An instruction whose memory operand is the constant at `label`.
    fn vector_relative(&mut self, e: Encoding, label: DynamicLabel) {
        self.arch.bytes.clear();
        let position = encode(&e, &mut self.arch.bytes).expect("a relative operand");
        self.asm.extend(self.arch.bytes.iter());
        let kind = X64Relocation::from_size(RelocationKind::Relative, RelocationSize::DWord);
        self.asm.dynamic_relocation(label, 0, (self.arch.bytes.len() - position) as u8, 0, kind);
    }

    fn op2(&mut self, op: Op, width: Width, dst: u8, src: u8) {
        self.vector(self.plain(op, width, dst, 0, Rm::Register(src)));
    }

    fn op2i(&mut self, op: Op, width: Width, dst: u8, src: u8, immediate: u8) {
        self.vector(Encoding { immediate: Some(immediate), ..self.plain(op, width, dst, 0, Rm::Register(src)) });
    }

    fn op3(&mut self, op: Op, width: Width, dst: u8, a: u8, b: u8) {
        self.vector(self.plain(op, width, dst, a, Rm::Register(b)));
    }

    fn op3i(&mut self, op: Op, width: Width, dst: u8, a: u8, b: u8, immediate: u8) {
        self.vector(Encoding { immediate: Some(immediate), ..self.plain(op, width, dst, a, Rm::Register(b)) });
    }

    fn load(&mut self, op: Op, width: Width, dst: u8, from: Memory) {
        self.vector(self.plain(op, width, dst, 0, Rm::Memory(from)));
    }

    fn store(&mut self, op: Op, width: Width, src: u8, to: Memory) {
        self.vector(self.plain(op, width, src, 0, Rm::Memory(to)));
    }

    /// `dst = op(a, constant)`; `a` is 0 for an instruction with one operand.
    fn op3_constant(&mut self, op: Op, width: Width, dst: u8, a: u8, constant: Vec<u8>) {
        match self.held(&constant).filter(|&r| r < 16 || op.forms != opcode::Forms::Vex) {
            Some(r) if op == opcode::LOAD_PS => self.copy_width(width, dst, r),
            Some(r) => self.op3(op, width, dst, a, r),
            None => self.op3_pooled(op, width, dst, a, constant),
        }
    }

    /// As [`Emitter::op3_constant`], with the constant in memory.
    fn op3_pooled(&mut self, op: Op, width: Width, dst: u8, a: u8, constant: Vec<u8>) {
        let label = self.pool_label(constant);
        self.vector_relative(self.plain(op, width, dst, a, RELATIVE), label);
    }

    fn op3i_constant(&mut self, op: Op, width: Width, dst: u8, a: u8, constant: Vec<u8>, immediate: u8) {
        let label = self.pool_label(constant);
        let e = self.plain(op, width, dst, a, RELATIVE);
        self.vector_relative(Encoding { immediate: Some(immediate), ..e }, label);
    }

    /// `d = op(a, memory)`; false where the processor has no such operand.
    fn op3_memory(&mut self, op: Op, ty: VType, d: u8, a: u8, b: &MemoryOperand) -> bool {
        let (w, lane) = (memory::width(ty), ty.lane.bytes());
        match *b {
            MemoryOperand::At { ref addr, broadcast } => {
                let whole = broadcast || ty.lanes as usize * lane == w.bytes();
                let Ok(memory) = at(addr, 0) else { return false };
                if !whole || broadcast && !self.arch.evex {
                    return false;
                }
                let e = self.plain(op, w, d, a, Rm::Memory(memory));
                self.vector(Encoding { broadcast, ..e });
            }
            MemoryOperand::Slot(slot) => {
                let memory = on_stack(self.arch.frame.slot(Class::Vector, slot));
                self.vector(self.plain(op, w, d, a, Rm::Memory(memory)));
            }
            MemoryOperand::Constant(bits) if self.arch.evex => {
                let label = self.pool_label(bits.to_le_bytes()[..lane].to_vec());
                let e = self.plain(op, w, d, a, RELATIVE);
                self.vector_relative(Encoding { broadcast: true, ..e }, label);
            }
            MemoryOperand::Constant(bits) => self.op3_constant(op, w, d, a, repeated(bits, lane, w)),
        }
        true
    }

    fn copy_width(&mut self, width: Width, dst: u8, src: u8) {
        if dst != src {
            self.op2(opcode::MOVE, width, dst, src);
        }
    }

    fn zero(&mut self, dst: u8) {
        self.op3(opcode::XOR, Width::X, dst, dst, dst);
    }
}

/// Registers that the caller expects back.
const SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];

/// The operand that [`Emitter::vector_relative`] fills in.
const RELATIVE: Rm = Rm::Memory(Memory { base: None, index: None, displacement: 0 });
