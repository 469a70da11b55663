//! Interpreter of VCode: the definition that machine code of every architecture is held to.
//!
//! In: a function and its arguments as byte buffers. Out: the buffers as the function leaves them. Addresses are virtual:
//! argument `k` starts at `(k + 1) << 40`, scratch memory behind the last, so that an access outside of a buffer is an
//! error here where it would be damage in machine code. Unspecified lanes hold a fixed pattern.

use crate::codegen::instruction::{InstructionName, TILE_ROW_BYTES, TILE_ROWS, TILES};
use crate::codegen::vcode::arithmetic::{binary, compare_lane, convert, fma, quotient, rounded_to_bf16, shift, unary};
use crate::codegen::vcode::lanes::Lanes;
use crate::codegen::vcode::{Addr, Function, GprOp, Inst, Lane, Operand, Shapes, Tile, VBinary, VType, Vreg};
use crate::expr::scalar::number::f16_to_f32;
use crate::runtime::{DType, Error, Result};

type Register = [u8; 64];

/// Runs iterations `first..last`. Each argument is a buffer; scratch memory starts as zeros.
pub fn run(function: &Function, arguments: &mut [Vec<u8>], first: i64, last: i64) -> Result<()> {
    let scratch = vec![0; function.scratch_bytes as usize];
    let mut machine = Machine {
        function,
        gprs: vec![0; function.gprs as usize],
        vectors: vec![[0xa5; 64]; function.vregs as usize],
        memory: arguments.iter_mut().map(std::mem::take).chain([scratch]).collect(),
        range: [first, last],
        arguments: arguments.len(),
        tiles: Tiles::default(),
    };
    let result = machine.run(&function.insts);
    for (argument, memory) in arguments.iter_mut().zip(machine.memory) {
        *argument = memory;
    }
    result.map_err(|e| match e {
        Error::Internal(m) => Error::Internal(format!("{}: {m}", function.name)),
        other => other,
    })
}

struct Machine<'a> {
    function: &'a Function,
    gprs: Vec<i64>,
    vectors: Vec<Register>,
    memory: Vec<Vec<u8>>,
    range: [i64; 2],
    arguments: usize,
    tiles: Tiles,
}

/// Tile registers with their shapes, zeros beyond.
#[derive(Default)]
struct Tiles {
    shapes: Option<Shapes>,
    registers: [Vec<u8>; TILES],
}

/// Address of buffer `k`.
fn base(k: usize) -> i64 {
    (k as i64 + 1) << 40
}

impl Machine<'_> {
    fn run(&mut self, insts: &[Inst]) -> Result<()> {
        // Open loops: index of the start, iterations left.
        let mut loops: Vec<(usize, i64)> = vec![];
        let mut i = 0;
        while let Some(inst) = insts.get(i) {
            match inst {
                Inst::LoopStart { count, at_least_once } => {
                    let count = self.gprs[count.index()];
                    if count <= 0 && *at_least_once {
                        return Err(Error::Internal(format!(
                            "the loop at {i} was promised to run, with count {count}"
                        )));
                    }
                    match count > 0 {
                        true => loops.push((i, count)),
                        false => i = matching_end(insts, i)?,
                    }
                }
                Inst::LoopEnd => {
                    let (start, left) = loops.last_mut().ok_or_else(|| Error::Internal("no loop is open".into()))?;
                    *left -= 1;
                    if *left > 0 {
                        i = *start;
                    } else {
                        loops.pop();
                    }
                }
                Inst::IfStart { op, a, b } => {
                    let b = self.operand(*b);
                    if !op.holds(&self.gprs[a.index()], &b) {
                        i = matching_end(insts, i)?;
                    }
                }
                Inst::IfEnd => {}
                _ => self.step(inst)?,
            }
            i += 1;
        }
        Ok(())
    }

    fn operand(&self, operand: Operand) -> i64 {
        match operand {
            Operand::Reg(r) => self.gprs[r.index()],
            Operand::Imm(v) => v,
        }
    }

    fn step(&mut self, inst: &Inst) -> Result<()> {
        match *inst {
            Inst::Imm { dst, value } => self.gprs[dst.index()] = value,
            Inst::Copy { dst, src } => self.gprs[dst.index()] = self.gprs[src.index()],
            Inst::Int { op, dst, a, b } => {
                let (a, b) = (self.gprs[a.index()], self.operand(b));
                self.gprs[dst.index()] = integer(op, a, b)?;
            }
            Inst::Word { op: GprOp::DivFloor | GprOp::ShiftLeft | GprOp::ShiftRight, .. } => {
                return Err(undefined(inst));
            }
            Inst::Word { op, dst, a, b } => {
                let (a, b) = (self.gprs[a.index()] as i32, self.operand(b) as i32);
                self.gprs[dst.index()] = i64::from(integer(op, a.into(), b.into())? as u32);
            }
            Inst::Shift { op, dst, lane, a, amount } => {
                let value = shift(op, lane, self.gprs[a.index()] as u64 & lane.all_ones(), amount);
                self.gprs[dst.index()] = if lane == Lane::I32 { i64::from(value as u32) } else { value as i64 };
            }
            Inst::Extend { dst, mem, src } => {
                self.gprs[dst.index()] = extended(self.gprs[src.index()] as u64, mem) as i64
            }
            Inst::Choose { dst, op, lane, a, b, yes, no } => {
                let (a, b) = (self.gprs[a.index()] as u64, self.operand(b) as u64);
                let chosen = if compare_lane(op, lane, a, b) { yes } else { no };
                self.gprs[dst.index()] = self.gprs[chosen.index()];
            }
            Inst::Inside { dst, src, extent, mem, least, greatest } => {
                let value = self.gprs[src.index()];
                if !(0..extent).contains(&value) {
                    let place = base(if value < 0 { least } else { greatest } as usize);
                    let known = self.element(place, mem)? as i64;
                    let value = if value < 0 { value.min(known) } else { value.max(known) };
                    self.bytes(place, mem.bytes())?.copy_from_slice(&value.to_le_bytes()[..mem.bytes()]);
                }
                self.gprs[dst.index()] = value.clamp(0, extent - 1);
            }
            Inst::LoadInt { dst, addr, mem } => {
                let address = self.address(&addr);
                self.gprs[dst.index()] = self.element(address, mem)? as i64;
            }
            Inst::StoreInt { mem, src, addr } => {
                let (value, address, size) = (self.gprs[src.index()], self.address(&addr), mem.bytes());
                self.bytes(address, size)?.copy_from_slice(&value.to_le_bytes()[..size]);
            }
            Inst::Prefetch { .. } | Inst::Expect { .. } => {}
            Inst::Argument { dst, slot } if (slot as usize) < self.arguments => {
                self.gprs[dst.index()] = base(slot as usize)
            }
            Inst::Range { dst, which } => self.gprs[dst.index()] = self.range[which as usize],
            Inst::Scratch { dst } => self.gprs[dst.index()] = base(self.arguments),
            _ => return self.memory_step(inst),
        }
        Ok(())
    }

    fn memory_step(&mut self, inst: &Inst) -> Result<()> {
        if inst.is_tile() {
            return self.tile_step(inst);
        }
        let Some(l) = inst.lanes() else { return self.lanes_step(inst) };
        let start = self.address(&l.addr);
        if let Some(group) = inst.interleaved() {
            let registers: Vec<Register> = group.members.iter().map(|r| self.vectors[r.index()]).collect();
            let bytes = (0..group.bytes()).map(|byte| group.source(byte));
            let bytes: Vec<u8> = bytes.map(|(member, byte)| registers[member][byte]).collect();
            self.bytes(start, bytes.len())?.copy_from_slice(&bytes);
            return Ok(());
        }
        match *inst {
            Inst::VGatherIndex { index, index_lane, .. } => {
                let index = self.vectors[index.index()];
                self.load_lanes(&l, |i| {
                    let bits = lane(&index, index_lane, i);
                    let value = if index_lane.bytes() == 4 { bits as i32 as i64 } else { bits as i64 };
                    start.wrapping_add(value.wrapping_mul(l.mem.bytes() as i64))
                })
            }
            Inst::VLoadWhere { mask, .. } => {
                let (mask, size) = (self.vectors[mask.index()], l.lane_bytes());
                self.load_where(&l, start, |i| lane(&mask, Lane::integer(size), i) != 0)
            }
            Inst::VStoreWhere { mask, .. } => {
                let (source, mask) = (self.vectors[l.register.index()], self.vectors[mask.index()]);
                let size = l.lane_bytes();
                for i in l.range().filter(|&i| lane(&mask, Lane::integer(size), i) != 0) {
                    let bits = lane(&source, l.ty.lane, i);
                    self.bytes(start + i as i64 * l.stride, size)?.copy_from_slice(&bits.to_le_bytes()[..size]);
                }
                Ok(())
            }
            Inst::VStore { .. } | Inst::VScatter { .. } => {
                let (source, size) = (self.vectors[l.register.index()], l.mem.bytes());
                for i in l.range() {
                    let bits = match (l.mem, l.ty.lane, lane(&source, l.ty.lane, i)) {
                        (DType::Bool, _, bits) => bits & 1,
                        (DType::BF16, Lane::F32, bits) => rounded_to_bf16(bits),
                        (_, _, bits) => bits,
                    };
                    self.bytes(start + i as i64 * l.stride, size)?.copy_from_slice(&bits.to_le_bytes()[..size]);
                }
                Ok(())
            }
            _ => self.load_lanes(&l, |i| start + i as i64 * l.stride),
        }
    }

    /// An instruction that writes a vector register from registers.
    fn lanes_step(&mut self, inst: &Inst) -> Result<()> {
        match *inst {
            Inst::VConst { dst, ty, bits } => self.write(dst, ty, |_| bits),
            Inst::VCopy { dst, src, ty } => {
                let src = self.vectors[src.index()];
                self.write(dst, ty, |i| lane(&src, ty.lane, i));
            }
            Inst::VSplat { dst, ty, src } => {
                let value = self.gprs[src.index()] as u64;
                self.write(dst, ty, |_| value);
            }
            Inst::FirstLane { dst, ty, src } => {
                let bits = lane(&self.vectors[src.index()], ty.lane, 0);
                self.gprs[dst.index()] = if ty.lane == Lane::I32 { i64::from(bits as i32) } else { bits as i64 };
            }
            Inst::VIota { dst, ty } => self.write(dst, ty, |i| i as u64),
            Inst::VUnary { op, dst, ty, a } => {
                let a = self.vectors[a.index()];
                let value = |i| unary(op, ty.lane, lane(&a, ty.lane, i)).ok_or_else(|| undefined(inst));
                self.try_write(dst, ty, value)?;
            }
            Inst::VBinary { op, dst, ty, a, b } => {
                let operands = [a, b].map(|r| self.vectors[r.index()]);
                self.write_binary(inst, op, (dst, ty), operands)?;
            }
            Inst::VQuotient { dst, ty, a, b, inverse } => {
                let [a, b, y] = [a, b, inverse].map(|r| self.vectors[r.index()]);
                let value = |i| {
                    let [a, b, y] = [&a, &b, &y].map(|x| lane(x, ty.lane, i));
                    quotient(ty.lane, a, b, y).ok_or_else(|| undefined(inst))
                };
                self.try_write(dst, ty, value)?;
            }
            Inst::VZip { op, dst, ty, a, b } => {
                let (both, lanes) = ([self.vectors[a.index()], self.vectors[b.index()]], ty.lanes as usize);
                self.write(dst, ty, |i| {
                    let from = op.source(i, lanes);
                    lane(&both[from / lanes], ty.lane, from % lanes)
                });
            }
            Inst::VShift { op, dst, ty, a, amount } => {
                let a = self.vectors[a.index()];
                self.write(dst, ty, |i| shift(op, ty.lane, lane(&a, ty.lane, i), amount));
            }
            Inst::VFma { .. } | Inst::VFmaSum { .. } | Inst::VFmaMemory { .. } => self.fused_step(inst)?,
            Inst::VBinaryMemory { op, dst, ty, a, broadcast, addr } => {
                let operands = [self.vectors[a.index()], self.memory_operand(ty, broadcast, &addr)?];
                self.write_binary(inst, op, (dst, ty), operands)?;
            }
            Inst::VTensor { acc, row, a, b, .. } => {
                let [mut total, a, b] = [acc, a, b].map(|r| self.vectors[r.index()]);
                self.function.row(row)?.evaluate(&mut total, &[&a, &b])?;
                self.vectors[acc.index()] = total;
            }
            Inst::VTensorMemory { acc, row, other, addr, .. } => self.tensor_memory_step(acc, row, other, &addr)?,
            Inst::VCompare { .. } | Inst::VSelect { .. } | Inst::VChoose { .. } | Inst::VLookup { .. } => {
                self.choice_step(inst)
            }
            Inst::VShuffle { dst, ty, index, addr } => self.shuffle_step(dst, ty, index, &addr)?,
            Inst::VConvert { dst, to, src, from } => {
                let src = self.vectors[src.index()];
                self.write(dst, to, |i| convert(lane(&src, from, i), from, to.lane));
            }
            Inst::VReduce { op, dst, ty, a, first } => {
                let total = self.reduced(inst, op, ty, a)?;
                self.write(dst, VType { lanes: if first { 1 } else { ty.lanes }, ..ty }, |_| total);
            }
            Inst::VReduceFour { op, dst, ty, a, b, c, d } => {
                let [a, b, c, d] = [a, b, c, d].map(|r| self.reduced(inst, op, ty, r));
                let totals = [a?, b?, c?, d?];
                self.write(dst, VType { lanes: 4, ..ty }, |i| totals[i]);
            }
            _ => return Err(undefined(inst)),
        }
        Ok(())
    }

    /// Writes an operation on the lanes of two registers.
    fn write_binary(
        &mut self,
        inst: &Inst,
        op: VBinary,
        (dst, ty): (Vreg, VType),
        [a, b]: [Register; 2],
    ) -> Result<()> {
        self.try_write(dst, ty, |i| {
            binary(op, ty.lane, lane(&a, ty.lane, i), lane(&b, ty.lane, i)).ok_or_else(|| undefined(inst))
        })
    }

    /// All lanes of a register combined, halves first.
    fn reduced(&self, inst: &Inst, op: VBinary, ty: VType, a: Vreg) -> Result<u64> {
        let a = self.vectors[a.index()];
        let mut lanes: Vec<u64> = (0..ty.lanes as usize).map(|i| lane(&a, ty.lane, i)).collect();
        while lanes.len() > 1 {
            let upper = lanes.split_off(lanes.len() / 2);
            for (low, high) in lanes.iter_mut().zip(upper) {
                *low = binary(op, ty.lane, *low, high).ok_or_else(|| undefined(inst))?;
            }
        }
        Ok(lanes[0])
    }

    /// A tensor instruction whose operand that is broadcast is in memory.
    fn tensor_memory_step(&mut self, acc: Vreg, row: InstructionName, other: Vreg, addr: &Addr) -> Result<()> {
        let (row, start) = (self.function.row(row)?, self.address(addr));
        let Some(n) = row.memory_operand() else {
            return Err(Error::Internal(format!("`{}` has no operand in memory", row.name)));
        };
        let group = self.bytes(start, row.bytes(n))?.to_vec();
        let repeated = group.repeat(row.register_bytes() / group.len());
        let (mut total, other) = (self.vectors[acc.index()], self.vectors[other.index()]);
        let operands: [&[u8]; 2] = if n == 1 { [&repeated, &other] } else { [&other, &repeated] };
        row.evaluate(&mut total, &operands)?;
        self.vectors[acc.index()] = total;
        Ok(())
    }

    /// Bytes of 16 in memory.
    fn shuffle_step(&mut self, dst: Vreg, ty: VType, index: Vreg, addr: &Addr) -> Result<()> {
        let (index, start) = (self.vectors[index.index()], self.address(addr));
        let table = self.bytes(start, 16)?.to_vec();
        self.write(dst, ty, |i| u64::from(table[lane(&index, ty.lane, i) as usize % 16]));
        Ok(())
    }

    /// A product that is added to or taken from something, rounded once.
    fn fused_step(&mut self, inst: &Inst) -> Result<()> {
        let of = |r: Vreg| self.vectors[r.index()];
        let (dst, ty, c, a, b, negate) = match *inst {
            Inst::VFma { acc, ty, a, b, negate } => (acc, ty, of(acc), of(a), of(b), negate),
            Inst::VFmaSum { dst, ty, c, negate, a, b } => (dst, ty, of(c), of(a), of(b), negate),
            Inst::VFmaMemory { acc, ty, a, broadcast, addr, negate } => {
                let (c, a) = (of(acc), of(a));
                (acc, ty, c, a, self.memory_operand(ty, broadcast, &addr)?, negate)
            }
            _ => return Err(undefined(inst)),
        };
        self.write(dst, ty, |i| {
            let [c, a, b] = [&c, &a, &b].map(|x| lane(x, ty.lane, i));
            fma(ty.lane, c, a, b, negate)
        });
        Ok(())
    }

    /// The lanes of an operand in memory: elements as wide as lanes, or one of them in each lane.
    fn memory_operand(&mut self, ty: VType, broadcast: bool, addr: &Addr) -> Result<Register> {
        let (size, lanes, start) = (ty.lane.bytes(), ty.lanes as usize, self.address(addr));
        let mut register = [0xa5; 64];
        match broadcast {
            true => {
                let element = self.bytes(start, size)?.to_vec();
                register[..lanes * size].copy_from_slice(&element.repeat(lanes));
            }
            false => register[..lanes * size].copy_from_slice(self.bytes(start, lanes * size)?),
        }
        Ok(register)
    }

    /// An instruction on tile registers.
    fn tile_step(&mut self, inst: &Inst) -> Result<()> {
        match *inst {
            Inst::TileShapes { shapes } => {
                let zeros = || vec![0; TILE_ROWS * TILE_ROW_BYTES];
                self.tiles = Tiles { shapes: Some(shapes), registers: std::array::from_fn(|_| zeros()) };
            }
            Inst::TileRelease => self.tiles = Tiles::default(),
            Inst::TileZero { tile } => {
                self.shape(tile)?;
                self.tiles.registers[tile.0 as usize].fill(0);
            }
            Inst::TileLoad { tile, addr, stride, .. } => {
                let ((rows, width), start) = (self.shape(tile)?, self.address(&addr));
                let mut register = vec![0; TILE_ROWS * TILE_ROW_BYTES];
                for row in 0..rows {
                    let bytes = self.bytes(start.wrapping_add(row as i64 * stride), width)?;
                    register[row * TILE_ROW_BYTES..][..width].copy_from_slice(bytes);
                }
                self.tiles.registers[tile.0 as usize] = register;
            }
            Inst::TileStore { tile, addr, stride } => {
                let ((rows, width), start) = (self.shape(tile)?, self.address(&addr));
                let register = self.tiles.registers[tile.0 as usize].clone();
                for row in 0..rows {
                    let bytes = self.bytes(start.wrapping_add(row as i64 * stride), width)?;
                    bytes.copy_from_slice(&register[row * TILE_ROW_BYTES..][..width]);
                }
            }
            Inst::TileTensor { acc, row, a, b } => {
                let [of_acc, of_a, of_b] = [self.shape(acc)?, self.shape(a)?, self.shape(b)?];
                if of_acc.0 != of_a.0 || of_acc.1 != of_b.1 || of_a.1 != 4 * of_b.0 {
                    let text = format!("`{inst}` of tiles of {of_acc:?}, {of_a:?} and {of_b:?} rows and bytes");
                    return Err(Error::Internal(text));
                }
                let mut total = std::mem::take(&mut self.tiles.registers[acc.0 as usize]);
                let [a, b] = [a, b].map(|t| &self.tiles.registers[t.0 as usize][..]);
                self.function.row(row)?.evaluate(&mut total, &[a, b])?;
                self.tiles.registers[acc.0 as usize] = total;
            }
            _ => return Err(undefined(inst)),
        }
        Ok(())
    }

    /// Rows and bytes of a row of a tile register.
    fn shape(&self, tile: Tile) -> Result<(usize, usize)> {
        match self.tiles.shapes.map(|shapes| shapes.0[tile.0 as usize]) {
            Some((rows, bytes)) if rows > 0 && bytes > 0 => Ok((rows.into(), bytes.into())),
            _ => Err(Error::Internal(format!("tile register {} has no shape", tile.0))),
        }
    }

    /// Comparisons, selections and lookups.
    fn choice_step(&mut self, inst: &Inst) {
        match *inst {
            Inst::VCompare { op, dst, ty, a, b } => {
                let (a, b) = (self.vectors[a.index()], self.vectors[b.index()]);
                self.write(dst, ty, |i| match compare_lane(op, ty.lane, lane(&a, ty.lane, i), lane(&b, ty.lane, i)) {
                    true => u64::MAX,
                    false => 0,
                });
            }
            Inst::VSelect { dst, ty, mask, a, b } => {
                let [mask, a, b] = [mask, a, b].map(|r| self.vectors[r.index()]);
                self.write(dst, ty, |i| match lane(&mask, ty.lane, i) {
                    0 => lane(&b, ty.lane, i),
                    _ => lane(&a, ty.lane, i),
                });
            }
            Inst::VChoose { op, dst, ty, a, b, yes, no } => {
                let [a, b, yes, no] = [a, b, yes, no].map(|r| self.vectors[r.index()]);
                self.write(dst, ty, |i| match compare_lane(op, ty.lane, lane(&a, ty.lane, i), lane(&b, ty.lane, i)) {
                    true => lane(&yes, ty.lane, i),
                    false => lane(&no, ty.lane, i),
                });
            }
            Inst::VLookup { dst, ty, index, a, b, c, d } => {
                let table = [a, b, c, d].map(|r| self.vectors[r.index()]);
                let (index, lanes) = (self.vectors[index.index()], ty.lanes as usize);
                self.write(dst, ty, |i| {
                    let place = (lane(&index, ty.lane, i) & 0xff) as usize;
                    lane(&table[(place / lanes).min(3)], ty.lane, place % lanes)
                });
            }
            _ => {}
        }
    }

    fn address(&self, addr: &Addr) -> i64 {
        let index = addr.index.map_or(0, |(r, scale)| self.gprs[r.index()].wrapping_mul(i64::from(scale)));
        self.gprs[addr.base.index()].wrapping_add(index).wrapping_add(i64::from(addr.disp))
    }

    /// The `size` bytes at a virtual address.
    fn bytes(&mut self, address: i64, size: usize) -> Result<&mut [u8]> {
        let wrong = || Error::Internal(format!("access to {size} bytes at {address:#x}, outside of every buffer"));
        let buffer = usize::try_from((address >> 40) - 1).map_err(|_| wrong())?;
        let offset = (address & ((1 << 40) - 1)) as usize;
        let buffer = self.memory.get_mut(buffer).ok_or_else(wrong)?;
        buffer.get_mut(offset..offset + size).ok_or_else(wrong)
    }

    /// An element widened to 64 bits: integers by their sign, floats as bits.
    fn element(&mut self, address: i64, mem: DType) -> Result<u64> {
        let bytes = self.bytes(address, mem.bytes())?;
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        Ok(extended(u64::from_le_bytes(padded), mem))
    }

    fn load_lanes(&mut self, l: &Lanes, address: impl Fn(usize) -> i64) -> Result<()> {
        let mut lanes = [0; 64];
        for i in l.range() {
            let bits = self.element(address(i), l.mem)?;
            lanes[i] = match l.mem {
                DType::Bool => (bits & 1).wrapping_neg(),
                DType::F16 if l.ty.lane == Lane::F32 => u64::from(f16_to_f32(bits as u16).to_bits()),
                _ => bits,
            };
        }
        self.write(l.register, l.ty, |i| lanes[i]);
        Ok(())
    }

    /// Neighbours for the lanes where `takes` holds, zeros for others.
    fn load_where(&mut self, l: &Lanes, start: i64, takes: impl Fn(usize) -> bool) -> Result<()> {
        let mut lanes = [0; 64];
        for i in l.range().filter(|&i| takes(i)) {
            lanes[i] = self.element(start + i as i64 * l.stride, l.mem)?;
        }
        self.write(l.register, l.ty, |i| lanes[i]);
        Ok(())
    }

    fn write(&mut self, dst: Vreg, ty: VType, value: impl Fn(usize) -> u64) {
        let mut register = [0xa5; 64];
        let size = ty.lane.bytes();
        for i in 0..ty.lanes as usize {
            register[i * size..(i + 1) * size].copy_from_slice(&value(i).to_le_bytes()[..size]);
        }
        self.vectors[dst.index()] = register;
    }

    fn try_write(&mut self, dst: Vreg, ty: VType, value: impl Fn(usize) -> Result<u64>) -> Result<()> {
        let lanes: Vec<u64> = (0..ty.lanes as usize).map(value).collect::<Result<_>>()?;
        self.write(dst, ty, |i| lanes[i]);
        Ok(())
    }
}

/// The integer of type `mem` in the low bits, widened to 64 bits; floats as bits.
fn extended(bits: u64, mem: DType) -> u64 {
    match mem {
        DType::I8 => bits as i8 as i64 as u64,
        DType::I16 => bits as i16 as i64 as u64,
        DType::I32 => bits as i32 as i64 as u64,
        _ => bits & (u64::MAX >> (64 - 8 * mem.bytes())),
    }
}

/// The result of an operation on general-purpose registers.
///
/// # Errors
/// [`Error::Internal`] for a division by a number that is not positive.
pub fn integer(op: GprOp, a: i64, b: i64) -> Result<i64> {
    Ok(match op {
        GprOp::Add => a.wrapping_add(b),
        GprOp::Sub => a.wrapping_sub(b),
        GprOp::Mul => a.wrapping_mul(b),
        GprOp::Min => a.min(b),
        GprOp::Max => a.max(b),
        GprOp::And => a & b,
        GprOp::Or => a | b,
        GprOp::Xor => a ^ b,
        GprOp::ShiftLeft => a.wrapping_shl(b as u32),
        GprOp::ShiftRight => a.wrapping_shr(b as u32),
        GprOp::DivFloor if b > 0 => a.div_euclid(b),
        GprOp::DivFloor => return Err(Error::Internal(format!("division by {b}"))),
    })
}

fn undefined(inst: &Inst) -> Error {
    Error::Internal(format!("{inst:?} has no meaning"))
}

/// Index of the LoopEnd or IfEnd that belongs to the start at `start`.
fn matching_end(insts: &[Inst], start: usize) -> Result<usize> {
    let mut depth = 0;
    for (i, inst) in insts.iter().enumerate().skip(start) {
        match inst {
            Inst::LoopStart { .. } | Inst::IfStart { .. } => depth += 1,
            Inst::LoopEnd | Inst::IfEnd => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(i);
        }
    }
    Err(Error::Internal(format!("the body at {start} is not closed")))
}

/// The bits of lane `i`.
fn lane(register: &Register, lane: Lane, i: usize) -> u64 {
    let size = lane.bytes();
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&register[i * size..(i + 1) * size]);
    u64::from_le_bytes(bytes)
}
