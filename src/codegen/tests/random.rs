//! Random VCode: straight-line code, loops and conditionals with more live values than registers.

use super::cases::dtype;
use super::program::{Builder, Case, at, data};
use crate::codegen::select::{memory_operand, three_operands};
use crate::codegen::target::Isa;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, Lane, LaneRange, Operand, VBinary, VType, Vreg, Zip};
use crate::codegen::{Target, regalloc};
use crate::expr::CompareOp;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

struct Generator<'a> {
    b: Builder,
    rng: &'a mut StdRng,
    vectors: Vec<Vreg>,
    integers: Vec<Gpr>,
    pointers: Vec<Gpr>,
    ty: VType,
    depth: u32,
    budget: usize,
}

/// Vectors of each buffer.
const ROWS: usize = 8;

impl Generator<'_> {
    fn any(&mut self) -> Vreg {
        *self.vectors.choose(self.rng).unwrap()
    }

    fn integer(&mut self) -> Gpr {
        *self.integers.choose(self.rng).unwrap()
    }

    /// A destination: mostly an old register, sometimes a new one, visible from here on where `fresh` is allowed.
    fn target(&mut self) -> Vreg {
        self.any()
    }

    fn addr(&mut self) -> Addr {
        let row = self.rng.random_range(0..ROWS) as i32;
        let bytes = self.ty.bytes() as i32;
        let base = *self.pointers.choose(self.rng).unwrap();
        match self.rng.random_range(0..3) {
            0 => {
                // An index between 0 and 3.
                let index = self.b.gpr();
                let a = self.integer();
                self.b.push(Inst::Int { op: GprOp::Max, dst: index, a, b: Operand::Imm(0) });
                self.b.push(Inst::Int { op: GprOp::Min, dst: index, a: index, b: Operand::Imm(3) });
                let scale = self.ty.lane.bytes() as u8;
                let room = ((ROWS as i32 - 1) * bytes - 24) / i32::from(scale);
                let disp = self.rng.random_range(0..=room) * i32::from(scale);
                Addr { base, index: Some((index, scale)), disp }
            }
            _ => at(base, row * bytes),
        }
    }

    fn part(&mut self) -> Option<LaneRange> {
        let first = self.rng.random_range(0..self.ty.lanes);
        let count = self.rng.random_range(1..=self.ty.lanes - first);
        self.rng.random_bool(0.3).then_some(LaneRange { first, count })
    }

    fn body(&mut self) {
        let length = self.rng.random_range(3..25);
        for _ in 0..length {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            self.statement();
        }
    }

    fn statement(&mut self) {
        let (ty, mem) = (self.ty, dtype(self.ty.lane));
        match self.rng.random_range(0..30) {
            0..8 => {
                // The sign of a not-a-number is not defined, so floats have no bitwise operations here.
                let ops = [VBinary::Add, VBinary::Sub, VBinary::Mul, VBinary::Min, VBinary::Max, VBinary::Xor];
                let integer = !ty.lane.is_float();
                let op = ops[self.rng.random_range(0..5 + integer as usize)];
                let (a, b, dst) = (self.any(), self.any(), self.target());
                self.b.push(Inst::VBinary { op, dst, ty, a, b });
            }
            8..14 => {
                let (a, b, acc) = (self.any(), self.any(), self.target());
                self.b.push(Inst::VFma { acc, ty, a, b, negate: self.rng.random() });
            }
            14 => self.operand_from_memory(),
            15..17 => {
                let (dst, addr, part) = (self.target(), self.addr(), self.part());
                self.b.push(Inst::VLoad { dst, ty, mem, addr, part });
            }
            17..19 => {
                let (src, addr, part) = (self.any(), self.addr(), self.part());
                self.b.push(Inst::VStore { src, ty, mem, addr, part });
            }
            19 => {
                let (dst, addr) = (self.target(), self.addr());
                self.b.push(Inst::VBroadcast { dst, ty, mem, addr });
            }
            20 if self.rng.random() && ty.bytes() >= 16 => {
                let (a, b, dst) = (self.any(), self.any(), self.target());
                let op = *[Zip::Low, Zip::High, Zip::Even, Zip::Odd].choose(self.rng).unwrap();
                self.b.push(Inst::VZip { op, dst, ty, a, b });
            }
            20 => {
                let (src, dst) = (self.any(), self.target());
                self.b.push(Inst::VCopy { dst, src, ty });
                if self.rng.random() {
                    let (a, b) = (self.any(), self.any());
                    self.b.push(Inst::VFma { acc: dst, ty, a, b, negate: self.rng.random() });
                }
            }
            21 => {
                let dst = self.target();
                let bits = [0, 0x4000_0000_4000_0000, 0x3f80_0000_3f80_0000][self.rng.random_range(0..3)];
                self.b.push(Inst::VConst { dst, ty, bits });
            }
            22 => {
                let (a, dst) = (self.any(), self.target());
                self.b.push(Inst::VReduce { op: VBinary::Add, dst, ty, a, first: false });
            }
            23 => {
                let (mask, a, b, dst) = (self.any(), self.any(), self.any(), self.target());
                let (x, y) = (self.any(), self.any());
                let op = if self.rng.random() { CompareOp::Lt } else { CompareOp::Ne };
                self.b.push(Inst::VCompare { op, dst: mask, ty, a: x, b: y });
                self.b.push(Inst::VSelect { dst, ty, mask, a, b });
            }
            choice => self.scalar_statement(choice),
        }
    }

    /// A load or a broadcast that one or two instructions read, with something between them.
    fn operand_from_memory(&mut self) {
        let (ty, mem) = (self.ty, dtype(self.ty.lane));
        let (loaded, addr) = (self.b.vreg(), self.addr());
        self.b.push(match self.rng.random() {
            true => Inst::VBroadcast { dst: loaded, ty, mem, addr },
            false => Inst::VLoad { dst: loaded, ty, mem, addr, part: None },
        });
        if self.rng.random_bool(0.3) && self.budget > 0 {
            self.budget -= 1;
            self.statement();
        }
        for _ in 0..self.rng.random_range(1..3) {
            let (other, dst) = (self.any(), self.target());
            let (a, b) = if self.rng.random() { (other, loaded) } else { (loaded, other) };
            let op = *[VBinary::Add, VBinary::Sub, VBinary::Mul, VBinary::Max].choose(self.rng).unwrap();
            self.b.push(match self.rng.random() {
                true => Inst::VFma { acc: dst, ty, a, b, negate: self.rng.random() },
                false => Inst::VBinary { op, dst, ty, a, b },
            });
        }
    }

    /// Integer arithmetic, a loop, a conditional, or an integer to a vector.
    fn scalar_statement(&mut self, choice: u32) {
        let ty = self.ty;
        match choice {
            24 => {
                let (a, dst) = (self.integer(), self.integer());
                let other = self.integer();
                let op = *[GprOp::Add, GprOp::Sub, GprOp::Mul, GprOp::Min].choose(self.rng).unwrap();
                let b =
                    if self.rng.random() { Operand::Reg(other) } else { Operand::Imm(self.rng.random_range(-9..9)) };
                self.b.push(Inst::Int { op, dst, a, b });
            }
            25 => {
                let (a, dst) = (self.integer(), self.integer());
                self.b.push(Inst::Int { op: GprOp::DivFloor, dst, a, b: Operand::Imm(self.rng.random_range(1..9)) });
            }
            26..28 if self.depth < 4 => {
                let count = self.b.imm(self.rng.random_range(0..4));
                let at_least_once = false;
                self.b.push(Inst::LoopStart { count, at_least_once });
                self.depth += 1;
                let visible = self.integers.len();
                self.body();
                self.integers.truncate(visible);
                self.depth -= 1;
                self.b.push(Inst::LoopEnd);
                if self.rng.random() {
                    self.integers.push(count);
                }
            }
            28 if self.depth < 6 => {
                let (a, other) = (self.integer(), self.integer());
                let b = if self.rng.random() { Operand::Reg(other) } else { Operand::Imm(0) };
                self.b.push(Inst::IfStart { op: CompareOp::Le, a, b });
                self.depth += 1;
                let visible = self.integers.len();
                self.body();
                self.integers.truncate(visible);
                self.depth -= 1;
                self.b.push(Inst::IfEnd);
            }
            _ => {
                let (src, dst) = (self.integer(), self.target());
                let integer = !ty.lane.is_float();
                if integer {
                    self.b.push(Inst::VSplat { dst, ty, src });
                } else {
                    self.b.push(Inst::Copy { dst: src, src });
                }
            }
        }
    }
}

fn program(seed: u64, target: &Target) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let lane = if rng.random_bool(0.1) { Lane::F32 } else { *Lane::ALL.choose(&mut rng).unwrap() };
    let lanes = target.lanes(lane.bytes()) as u8 >> rng.random_range(0..2);
    let ty = VType { lane, lanes };
    let mut b = Builder::new(format!("random program {seed}"));
    let mut buffers: Vec<_> = (0..3).map(|k| data(dtype(lane), ROWS * lanes as usize, seed + k, true)).collect();
    let pointers: Vec<Gpr> = (0..3).map(|slot| b.argument(slot)).collect();
    let mut integers = vec![];
    for k in 0..rng.random_range(2..16) {
        integers.push(b.imm(k * 3 - 7));
    }
    for which in 0..2 {
        let dst = b.gpr();
        b.push(Inst::Range { dst, which });
        integers.push(dst);
    }
    let mut vectors = vec![];
    for k in 0..rng.random_range(4..48) {
        let dst = b.vreg();
        let addr = at(pointers[k % 3], ((k % ROWS) * lanes as usize * lane.bytes()) as i32);
        b.push(Inst::VLoad { dst, ty, mem: dtype(lane), addr, part: None });
        vectors.push(dst);
    }
    let budget = rng.random_range(20..250);
    let mut g = Generator { b, rng: &mut rng, vectors, integers, pointers, ty, depth: 0, budget };
    while g.budget > 0 {
        g.body();
    }
    // Everything is observed.
    let vectors = g.vectors.clone();
    let pointer = g.b.argument(3);
    buffers.push(data(dtype(lane), vectors.len() * lanes as usize, seed, true));
    for (k, src) in vectors.into_iter().enumerate() {
        let addr = at(pointer, (k * lanes as usize * lane.bytes()) as i32);
        g.b.push(Inst::VStore { src, ty, mem: dtype(lane), addr, part: None });
    }
    let mut case = Case { function: g.b.function, buffers, range: (2, 5) };
    let before = case.expected();
    memory_operand::fold(&mut case.function, target);
    three_operands::join(&mut case.function, target);
    assert_eq!(case.difference(&before, &case.expected()), None, "seed {seed}: operands in memory and results apart");
    case
}

/// Programs of the plain test run; `TILEWRIGHT_FUZZ` multiplies their number.
pub fn programs(target: &Target) -> Vec<Case> {
    let factor: u64 = std::env::var("TILEWRIGHT_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    (0..300 * factor).map(|seed| program(seed, target)).collect()
}

/// Reports the coverage of the programs.
pub fn coverage(programs: &[Case], target: &Target) -> String {
    let (mut insts, mut spilling, mut moves) = (0, 0, 0);
    let count = |wanted: fn(&&Inst) -> bool| -> usize {
        programs.iter().map(|case| case.function.insts.iter().filter(wanted).count()).sum()
    };
    let in_memory = count(|inst| matches!(inst, Inst::VFmaMemory { .. } | Inst::VBinaryMemory { .. }));
    let apart = count(|inst| matches!(inst, Inst::VFmaSum { .. }));
    let few = in_memory.min(apart) < programs.len() / 8;
    assert!(target.isa == Isa::Neon || !few, "{in_memory} operands in memory, {apart} results apart");
    for case in programs {
        let spills = regalloc::allocate(&case.function, target).unwrap().spills(0);
        insts += case.function.insts.len();
        spilling += (spills.gpr + spills.vector > 0) as usize;
        moves += spills.gpr + spills.vector;
    }
    assert!(spilling * 4 > programs.len(), "too few programs spill");
    format!("{} programs, {insts} instructions, {spilling} programs spill, {moves} moves", programs.len())
}
