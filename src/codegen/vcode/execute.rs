//! Interpreter of VCode: the definition that machine code of every architecture is held to.
//!
//! In: a function and its arguments as byte buffers. Out: the buffers as the function leaves them. Addresses are virtual:
//! argument `k` starts at `(k + 1) << 40`, scratch memory behind the last, so that an access outside of a buffer is an
//! error here where it would be damage in machine code. Unspecified lanes hold a fixed pattern.

use crate::codegen::instruction::{TILE_ROW_BYTES, TILE_ROWS, TILES};
use crate::codegen::vcode::lanes::Lanes;
use crate::codegen::vcode::{
    Addr, Function, GprOp, Inst, Lane, Operand, Shapes, ShiftOp, Tile, VBinary, VType, VUnary, Vreg,
};
use crate::expr::scalar::number::{Number, f16_to_f32, f32_to_bf16, f32_to_f16, round_f16};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
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
                self.gprs[dst.index()] = match op {
                    GprOp::Add => a.wrapping_add(b),
                    GprOp::Sub => a.wrapping_sub(b),
                    GprOp::Mul => a.wrapping_mul(b),
                    GprOp::Min => a.min(b),
                    GprOp::Max => a.max(b),
                    GprOp::DivFloor if b > 0 => a.div_euclid(b),
                    GprOp::DivFloor => return Err(Error::Internal(format!("division by {b}"))),
                };
            }
            Inst::LoadInt { dst, addr, mem } => {
                let address = self.address(&addr);
                self.gprs[dst.index()] = self.element(address, mem)? as i64;
            }
            Inst::Prefetch { .. } => {}
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
            Inst::VIota { dst, ty } => self.write(dst, ty, |i| i as u64),
            Inst::VUnary { op, dst, ty, a } => {
                let a = self.vectors[a.index()];
                let value = |i| unary(op, ty.lane, lane(&a, ty.lane, i)).ok_or_else(|| undefined(inst));
                self.try_write(dst, ty, value)?;
            }
            Inst::VBinary { op, dst, ty, a, b } => {
                let (a, b) = (self.vectors[a.index()], self.vectors[b.index()]);
                let value =
                    |i| binary(op, ty.lane, lane(&a, ty.lane, i), lane(&b, ty.lane, i)).ok_or_else(|| undefined(inst));
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
            Inst::VFma { acc, ty, a, b, negate } => {
                let (c, a, b) = (self.vectors[acc.index()], self.vectors[a.index()], self.vectors[b.index()]);
                self.write(acc, ty, |i| {
                    fma(ty.lane, lane(&c, ty.lane, i), lane(&a, ty.lane, i), lane(&b, ty.lane, i), negate)
                });
            }
            Inst::VTensor { acc, row, a, b, .. } => {
                let [mut total, a, b] = [acc, a, b].map(|r| self.vectors[r.index()]);
                self.function.row(row)?.evaluate(&mut total, &[&a, &b])?;
                self.vectors[acc.index()] = total;
            }
            Inst::VCompare { .. } | Inst::VSelect { .. } | Inst::VChoose { .. } => self.choice_step(inst),
            Inst::VConvert { dst, to, src, from } => {
                let src = self.vectors[src.index()];
                self.write(dst, to, |i| convert(lane(&src, from, i), from, to.lane));
            }
            Inst::VReduce { op, dst, ty, a } => {
                let a = self.vectors[a.index()];
                let mut lanes: Vec<u64> = (0..ty.lanes as usize).map(|i| lane(&a, ty.lane, i)).collect();
                while lanes.len() > 1 {
                    let upper = lanes.split_off(lanes.len() / 2);
                    for (low, high) in lanes.iter_mut().zip(upper) {
                        *low = binary(op, ty.lane, *low, high).ok_or_else(|| undefined(inst))?;
                    }
                }
                self.write(dst, ty, |_| lanes[0]);
            }
            _ => return Err(undefined(inst)),
        }
        Ok(())
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
            Inst::TileLoad { tile, addr, stride } => {
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

    /// Comparisons and selections.
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
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(all);
        Ok(match mem {
            DType::I8 => bits as i8 as i64 as u64,
            DType::I16 => bits as i16 as i64 as u64,
            DType::I32 => bits as i32 as i64 as u64,
            _ => bits,
        })
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

/// A float without subnormal numbers: these are zero in arithmetic.
fn flush(lane: Lane, bits: u64) -> u64 {
    match lane {
        Lane::F32 if f32::from_bits(bits as u32).is_subnormal() => bits & 1 << 31,
        Lane::F64 if f64::from_bits(bits).is_subnormal() => bits & 1 << 63,
        _ => bits,
    }
}

/// A number in a lane, as its bits.
trait Bits: Number {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($t:ident: $of:expr, $bits:expr;)*) => {$(
        impl Bits for $t {
            fn of(bits: u64) -> $t {
                $of(bits)
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
        }
    )*};
}
bits! {
    f32: |b| f32::from_bits(b as u32), |x: f32| u64::from(x.to_bits());
    f64: f64::from_bits, f64::to_bits;
    i32: |b| b as i32, |x| x as u64;
    i64: |b| b as i64, |x| x as u64;
    i16: |b| b as i16, |x| x as u64;
    u16: |b| b as u16, u64::from;
    i8: |b| b as i8, |x| x as u64;
    u8: |b| b as u8, u64::from;
}

/// Runs `$body` with the type of the lane.
macro_rules! with_type {
    ($lane:expr, $t:ident => $body:expr) => {
        with_type!(@ $lane, $t => $body; F32 f32, F64 f64, I32 i32, I64 i64, I16 i16, U16 u16, I8 i8, U8 u8)
    };
    (@ $lane:expr, $t:ident => $body:expr; $($variant:ident $type:ident),*) => {
        match $lane {
            $(Lane::$variant => {
                type $t = $type;
                $body
            })*
        }
    };
}

fn compare_lane(op: CompareOp, lane: Lane, a: u64, b: u64) -> bool {
    let [a, b] = [a, b].map(|x| flush(lane, x));
    with_type!(lane, T => op.holds(&T::of(a), &T::of(b)))
}

fn rounded_to_bf16(bits: u64) -> u64 {
    u64::from(f32_to_bf16(f32::from_bits(flush(Lane::F32, bits) as u32)))
}

fn unary(op: VUnary, lane: Lane, a: u64) -> Option<u64> {
    let float = lane.is_float();
    let (op, a) = match op {
        VUnary::Not => return Some(!a),
        VUnary::WidenHalf | VUnary::NarrowHalf | VUnary::RoundHalf | VUnary::NarrowBf16 => {
            return (lane.bytes() == 4).then(|| match op {
                VUnary::WidenHalf => u64::from(f16_to_f32(a as u16).to_bits()),
                VUnary::NarrowHalf => u64::from(f32_to_f16(f32::from_bits(a as u32))),
                VUnary::NarrowBf16 => rounded_to_bf16(a),
                _ => u64::from(round_f16(f32::from_bits(a as u32)).to_bits()),
            });
        }
        VUnary::Neg => (UnaryOp::Neg, a),
        VUnary::Abs => (UnaryOp::Abs, a),
        _ if !float => return None,
        VUnary::Sqrt => (UnaryOp::Sqrt, flush(lane, a)),
        VUnary::Floor => (UnaryOp::Floor, flush(lane, a)),
        VUnary::Ceil => (UnaryOp::Ceil, flush(lane, a)),
        VUnary::Round => (UnaryOp::Round, flush(lane, a)),
    };
    with_type!(lane, T => T::unary(op, T::of(a)).map(T::bits))
}

fn binary(op: VBinary, lane: Lane, a: u64, b: u64) -> Option<u64> {
    let float = lane.is_float();
    let [x, y] = [a, b].map(|x| flush(lane, x));
    let (op, x, y) = match op {
        VBinary::And => return Some(a & b),
        VBinary::Or => return Some(a | b),
        VBinary::Xor => return Some(a ^ b),
        VBinary::AndNot => return Some(!a & b),
        VBinary::Add => (BinaryOp::Add, x, y),
        VBinary::Sub => (BinaryOp::Sub, x, y),
        VBinary::Mul => (BinaryOp::Mul, x, y),
        VBinary::MulHigh => {
            return match lane {
                Lane::I16 => Some(((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u64),
                Lane::U16 => Some(((a & 0xffff) * (b & 0xffff)) >> 16),
                _ => None,
            };
        }
        VBinary::MulPairs => {
            let half = |x: u64, n: u32| i32::from((x >> (16 * n)) as i16);
            let sum = |n| half(a, n).wrapping_mul(half(b, n));
            return (lane == Lane::I32).then(|| sum(0).wrapping_add(sum(1)) as u64);
        }
        VBinary::Div if !float => return None,
        VBinary::Div => (BinaryOp::Div, x, y),
        // the second operand where neither is less: the first of the scalar operation
        VBinary::Min => (BinaryOp::Min, y, x),
        VBinary::Max => (BinaryOp::Max, y, x),
    };
    with_type!(lane, T => T::binary(op, T::of(x), T::of(y)).map(|v| flush(lane, v.bits())))
}

/// `c + a·b` or `c - a·b`.
fn fma(lane: Lane, c: u64, a: u64, b: u64, negate: bool) -> u64 {
    let [a, b, c] = [a, b, c].map(|x| flush(lane, x));
    let value = match lane {
        Lane::F32 => {
            let [a, b, c] = [a, b, c].map(|x| f32::from_bits(x as u32));
            u64::from(if negate { -a } else { a }.mul_add(b, c).to_bits())
        }
        Lane::F64 => {
            let [a, b, c] = [a, b, c].map(f64::from_bits);
            if negate { -a } else { a }.mul_add(b, c).to_bits()
        }
        _ => {
            let product = a.wrapping_mul(b);
            if negate { c.wrapping_sub(product) } else { c.wrapping_add(product) }
        }
    };
    flush(lane, value)
}

fn shift(op: ShiftOp, lane: Lane, a: u64, amount: u8) -> u64 {
    let bits = 8 * lane.bytes() as u32;
    let wide = u32::from(amount);
    match (op, bits) {
        (ShiftOp::RightArithmetic, 8) => ((a as i8) >> wide.min(7)) as u64,
        (ShiftOp::RightArithmetic, 16) => ((a as i16) >> wide.min(15)) as u64,
        (ShiftOp::RightArithmetic, 32) => ((a as i32) >> wide.min(31)) as u64,
        (ShiftOp::RightArithmetic, _) => ((a as i64) >> wide.min(63)) as u64,
        _ if wide >= bits => 0,
        (ShiftOp::Left, _) => a << wide,
        (ShiftOp::RightLogical, _) => a >> wide,
    }
}

fn convert(a: u64, from: Lane, to: Lane) -> u64 {
    let a = flush(from, a);
    macro_rules! to {
        ($a:expr) => {{
            let a = $a;
            match to {
                Lane::F32 => u64::from((a as f32).to_bits()),
                Lane::F64 => (a as f64).to_bits(),
                Lane::I32 => a as i32 as u64,
                Lane::I64 => a as i64 as u64,
                Lane::I16 => a as i16 as u64,
                Lane::U16 => a as u16 as u64,
                Lane::I8 => a as i8 as u64,
                Lane::U8 => a as u8 as u64,
            }
        }};
    }
    let value = match from {
        Lane::F32 => to!(f32::from_bits(a as u32)),
        Lane::F64 => to!(f64::from_bits(a)),
        Lane::I32 => to!(a as i32),
        Lane::I64 => to!(a as i64),
        Lane::I16 => to!(a as i16),
        Lane::U16 => to!(a as u16),
        Lane::I8 => to!(a as i8),
        Lane::U8 => to!(a as u8),
    };
    flush(to, value)
}
