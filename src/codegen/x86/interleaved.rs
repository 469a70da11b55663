//! Stores of interleaved elements: lanes of several registers become whole vectors.
//!
//! Elements of one or two bytes are shuffled in blocks of 16 bytes, each to where it belongs in what the block makes, and joined;
//! AVX-512 then puts the blocks side by side, AVX2 stores them one by one. Wider elements of three members are permuted, so that
//! no two of a vector to be stored share a lane, and blended.

use super::encode::{Encoding, Rm, Width};
use super::memory::width;
use super::opcode;
use crate::codegen::regalloc::allocation::Needs;
use crate::codegen::vcode::lanes::Interleaved;
use crate::codegen::vcode::{Addr, Vreg};
use crate::codegen::x86::emitter::{Emitter, at};
use crate::runtime::Result;

/// Bytes of a block that a shuffle of bytes works on.
const BLOCK: usize = 16;
/// Bytes of the units in which blocks are put side by side.
const WORD: usize = 4;

impl Interleaved {
    fn is_narrow(&self) -> bool {
        self.mem.bytes() <= 2
    }

    /// Blocks of the registers, and the bytes that each of them makes.
    fn blocks(&self) -> (usize, usize) {
        let blocks = self.ty.bytes() / BLOCK;
        (blocks, self.bytes() / blocks)
    }

    /// Registers that the shuffled bytes of all blocks fill.
    fn rounds(&self) -> usize {
        self.blocks().1.div_ceil(BLOCK)
    }

    /// Returns true if blocks are put side by side in registers.
    fn joins_blocks(&self, evex: bool) -> bool {
        evex && self.blocks().0 > 1
    }

    pub(super) fn needs(&self, evex: bool) -> Needs {
        let vector = match (self.is_narrow(), self.joins_blocks(evex)) {
            (true, true) => self.rounds() as u8 + 2,
            (true, false) => 2,
            (false, _) => 4,
        };
        Needs { gpr: 0, vector }
    }

    /// Bytes of the vector `v` that is stored.
    fn stored(&self, v: usize) -> usize {
        let bytes = self.ty.bytes();
        bytes.min(self.bytes() - v * bytes)
    }

    /// The masks that AVX-512 uses.
    pub(super) fn masks(&self) -> Vec<u64> {
        if !self.is_narrow() {
            return (0..3).map(|rest| self.residue(rest)).collect();
        }
        let vectors = 0..self.bytes().div_ceil(self.ty.bytes());
        let parts = vectors.map(|v| self.stored(v)).filter(|bytes| !bytes.is_power_of_two() || *bytes < BLOCK);
        parts.filter(|_| self.joins_blocks(true)).map(words).collect()
    }

    /// The lanes `i` with `i % 3 == rest`.
    fn residue(&self, rest: usize) -> u64 {
        (0..self.ty.lanes as usize).filter(|i| i % 3 == rest).fold(0, |mask, i| mask | 1 << i)
    }
}

/// A mask of the words of so many bytes.
fn words(bytes: usize) -> u64 {
    (1 << (bytes / WORD)) - 1
}

/// The bytes of words, by their numbers.
fn word_indices(from: impl Iterator<Item = usize>) -> Vec<u8> {
    from.flat_map(|word| (word as u32).to_le_bytes()).collect()
}

impl Emitter<'_> {
    /// See [`Inst::VStoreInterleaved`](crate::codegen::vcode::Inst::VStoreInterleaved).
    pub(super) fn interleave(&mut self, group: &Interleaved) -> Result<()> {
        match (group.is_narrow(), group.joins_blocks(self.arch.evex)) {
            (true, true) => self.store_joined_blocks(group),
            (true, false) => self.store_blocks(group),
            (false, _) => self.store_by_blends(group),
        }
    }

    /// The bytes from `16 * round` on of what each block makes, in `to`.
    fn shuffle_members(&mut self, group: &Interleaved, round: usize, to: u8, spare: u8) {
        let (w, (blocks, made)) = (width(group.ty), group.blocks());
        let mut first = true;
        for (k, member) in group.members.iter().enumerate() {
            let from = |p: usize| match group.source(round * BLOCK + p) {
                (member, byte) if member == k && round * BLOCK + p < made => byte as u8,
                _ => 0x80,
            };
            let order: Vec<u8> = (0..BLOCK).map(from).collect();
            if order.iter().all(|&byte| byte == 0x80) {
                continue;
            }
            let d = if first { to } else { spare };
            self.op3_constant(opcode::SHUFFLE_B, w, d, member.number(), order.repeat(blocks));
            if !first {
                self.op3(opcode::OR, w, to, to, spare);
            }
            first = false;
        }
    }

    fn store_joined_blocks(&mut self, group: &Interleaved) -> Result<()> {
        let (w, (_, made), rounds) = (width(group.ty), group.blocks(), group.rounds());
        let temporaries = self.temporaries.vector.clone();
        let (registers, [joined, index]) = (&temporaries[..rounds], [0, 1].map(|k| temporaries[rounds + k]));
        for (round, &to) in registers.iter().enumerate() {
            self.shuffle_members(group, round, to, joined);
        }
        for v in 0..group.bytes().div_ceil(w.bytes()) {
            let places = (0..w.bytes() / WORD).map(|word| {
                let byte = (v * w.bytes() + word * WORD).min(group.bytes() - WORD);
                let (block, offset) = (byte / made, byte % made);
                (offset / BLOCK, (block * BLOCK + offset % BLOCK) / WORD)
            });
            let places: Vec<(usize, usize)> = places.collect();
            let from = if made == BLOCK { registers[0] } else { joined };
            if made != BLOCK {
                self.join_words(w, registers, &places, joined, index);
            }
            let to = at(&group.addr, (v * w.bytes()) as i64)?;
            match group.stored(v) {
                bytes @ (16 | 32 | 64) => self.store(opcode::STORE_PS, Width::of(bytes), from, to),
                bytes => {
                    let mask = self.mask(words(bytes));
                    self.vector(Encoding { mask, ..self.plain(opcode::STORE_PS, w, from, 0, Rm::Memory(to)) });
                }
            }
        }
        Ok(())
    }

    /// AVX-512: `d[i]` is the word of `registers` that `places[i]` says: a register, and a word in it.
    fn join_words(&mut self, w: Width, registers: &[u8], places: &[(usize, usize)], d: u8, index: u8) {
        let lanes = places.len();
        if let [register] = *registers {
            let index = self.constant_register(w, index, word_indices(places.iter().map(|p| p.1)));
            return self.op3(opcode::PERMUTE_PS, w, d, index, register);
        }
        let first = places.iter().map(|&(r, word)| if r < 2 { r * lanes + word } else { 0 });
        self.op3_constant(opcode::LOAD_PS, w, d, 0, word_indices(first));
        self.op3(opcode::PERMUTE_BY_PS, w, d, registers[0], registers[1]);
        for (r, &register) in registers.iter().enumerate().skip(2) {
            if places.iter().all(|p| p.0 != r) {
                continue;
            }
            let from = places.iter().enumerate().map(|(i, p)| if p.0 == r { lanes + p.1 } else { i });
            let index = self.constant_register(w, index, word_indices(from));
            self.op3(opcode::PERMUTE_TWO_PS, w, d, index, register);
        }
    }

    fn store_blocks(&mut self, group: &Interleaved) -> Result<()> {
        let (w, (blocks, made)) = (width(group.ty), group.blocks());
        let [joined, spare] = [0, 1].map(|k| self.temporaries.vector[k]);
        for round in 0..group.rounds() {
            self.shuffle_members(group, round, joined, spare);
            let piece = BLOCK.min(made - round * BLOCK);
            if made == BLOCK {
                self.store(opcode::STORE_PS, w, joined, at(&group.addr, 0)?);
                continue;
            }
            for block in 0..blocks {
                let to = at(&group.addr, (block * made + round * BLOCK) as i64)?;
                if block > 0 && piece == BLOCK {
                    let e = self.plain(opcode::EXTRACT_128, w, joined, 0, Rm::Memory(to));
                    self.vector(Encoding { immediate: Some(block as u8), ..e });
                    continue;
                }
                if block > 0 {
                    self.op2i(opcode::EXTRACT_128, w, joined, spare, block as u8);
                }
                let addr = Addr { disp: to.displacement, ..group.addr };
                self.store_bytes(if block > 0 { spare } else { joined }, 0..piece, &addr)?;
            }
        }
        Ok(())
    }

    fn store_by_blends(&mut self, group: &Interleaved) -> Result<()> {
        let (lanes, lane, w) = (group.ty.lanes as usize, group.ty.lane.bytes(), width(group.ty));
        let temporaries = self.temporaries.vector.clone();
        let ([a, b, c], out) = ([0, 1, 2].map(|k| temporaries[k]), temporaries[3]);
        for (k, (&to, member)) in [a, b, c].iter().zip(&group.members).enumerate() {
            // place p of one of the three vectors is a lane of this member
            let source = |p: usize| (0..3).map(|v| v * lanes + p).find(|e| e % 3 == k).map_or(0, |e| e / 3);
            self.permute_lanes(w, to, *member, (0..lanes).map(source), lane, out);
        }
        for v in 0..3 {
            // of lane i the member (v·lanes + i) % 3
            let of = |member: usize| group.residue((member + 3 - v * lanes % 3) % 3);
            self.blend_members(w, lane, out, a, b, of(1));
            self.blend_members(w, lane, out, out, c, of(2));
            self.store(opcode::STORE_PS, w, out, at(&group.addr, (v * w.bytes()) as i64)?);
        }
        Ok(())
    }

    /// `d[i] = a[from[i]]`, of lanes of four or eight bytes.
    fn permute_lanes(&mut self, w: Width, d: u8, a: Vreg, from: impl Iterator<Item = usize>, lane: usize, index: u8) {
        let words: Vec<usize> = from.flat_map(|i| (0..lane / WORD).map(move |k| i * lane / WORD + k)).collect();
        if w == Width::X {
            let bytes = words.iter().flat_map(|word| (0..WORD).map(move |b| (word * WORD + b) as u8)).collect();
            return self.op3_constant(opcode::SHUFFLE_B, w, d, a.number(), bytes);
        }
        let index = self.constant_register(w, index, word_indices(words.into_iter()));
        self.op3(opcode::PERMUTE_PS, w, d, index, a.number());
    }

    /// `d = mask ? b : a`, of lanes of four or eight bytes.
    fn blend_members(&mut self, w: Width, lane: usize, d: u8, a: u8, b: u8, mask: u64) {
        if self.arch.evex {
            let op = if lane == 4 { opcode::BLEND_MASK_PS } else { opcode::BLEND_MASK_PD };
            let mask = self.mask(mask);
            return self.vector(Encoding { mask, ..self.plain(op, w, d, a, Rm::Register(b)) });
        }
        let of_words = |i: usize| mask >> (i / (lane / WORD)) & 1;
        let immediate = (0..w.bytes() / WORD).fold(0, |bits, i| bits | (of_words(i) << i) as u8);
        self.op3i(opcode::BLEND_PS, w, d, a, b, immediate);
    }
}
