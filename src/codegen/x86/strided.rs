//! Elements a few apart: whole vectors and permutations between them instead of one access for each lane.
//!
//! A gather reads `stride` vectors that cover exactly the bytes from the first element to the last, and merges them: the
//! last vector begins so early that it ends with the last element. AVX-512 merges by permutations of two registers;
//! AVX2 blends vectors that overlap by a lane, so that no two elements share a lane, and permutes once. A scatter
//! (AVX-512) spreads its lanes over `stride` vectors and stores each under a mask.

use super::encode::{Encoding, Memory, Rm, Width};
use super::memory::{extension, width};
use super::opcode::{self, Op};
use crate::codegen::vcode::lanes::{Lanes, Widening};
use crate::codegen::vcode::{Addr, VType, Zip};
use crate::codegen::x86::emitter::{Emitter, at};
use crate::runtime::Result;

/// Elements between neighbours at most. Further apart, a gather reads less.
const FARTHEST: usize = 4;

/// Bytes of a block that a shuffle of bytes reads.
const BLOCK: usize = 16;

impl Lanes {
    /// The distance of neighbours in elements, where lanes as wide as elements fill a register and lie that close.
    fn distance(&self) -> Option<usize> {
        let lane = self.lane_bytes();
        let distance = usize::try_from(self.stride).ok()? / lane;
        let fits = lane >= 4
            && self.is_same()
            && self.stride as usize == distance * lane
            && (2..=FARTHEST).contains(&distance);
        (fits && self.ty.lanes as usize * lane >= 16).then_some(distance)
    }

    /// Returns the vectors that a scatter stores: the first element of each, and its mask. The last one ends with the last
    /// element, so that no load of what follows waits for a lane that is not stored.
    pub(super) fn spread(&self, evex: bool) -> Option<Vec<(usize, u64)>> {
        let distance = self.distance().filter(|_| evex)?;
        let (lanes, last) = (self.ty.lanes as usize, self.range().last()? * distance);
        let mut vectors: Vec<(usize, u64)> = (0..distance).map(|v| (v * lanes, 0)).collect();
        for p in self.range().map(|i| i * distance) {
            let (start, mask) = &mut vectors[p / lanes];
            if *mask == 0 {
                *start = (*start).min((last + 1).saturating_sub(lanes));
            }
            *mask |= 1 << (p - *start);
        }
        Some(vectors)
    }

    /// Returns the mask of the bytes of a register whose elements lie in memory as they do there: one in the low bytes of each lane.
    /// Those that a load widens with a sign do not.
    pub(super) fn in_place(&self, evex: bool, load: bool) -> Option<u64> {
        let (lane, size) = (self.lane_bytes(), self.mem.bytes());
        let bits = match self.widening()? {
            Widening::UnsignedByte | Widening::Half => true,
            Widening::SignedByte | Widening::SignedHalf | Widening::Word => !load,
            _ => false,
        };
        let element = (1u64 << size) - 1;
        (evex && bits && self.stride == lane as i64)
            .then(|| self.range().fold(0, |mask, i| mask | element << (i * lane)))
    }

    /// Returns the vectors that a gather reads: the first element of each, and for each lane its vector and its place
    /// there.
    fn vectors(&self, evex: bool) -> Option<(Vec<usize>, Vec<(usize, usize)>)> {
        let (distance, lanes) = (self.distance()?, self.ty.lanes as usize);
        if !self.is_whole() && !evex {
            return None;
        }
        let end = distance * (lanes - 1) + 1;
        let step = if evex { lanes } else { lanes - 1 };
        let starts: Vec<usize> = (0..distance).map(|v| (v * step).min(end - lanes)).collect();
        let place = |i: usize| {
            let v = (i * distance / step).min(distance - 1);
            (v, i * distance - starts[v])
        };
        let places: Vec<_> = (0..lanes).map(place).collect();
        let distinct = (0..lanes).all(|p| places.iter().filter(|e| e.1 == p).count() == 1);
        (evex || distinct).then_some((starts, places))
    }

    /// Returns true if a gather reads whole vectors.
    pub(super) fn is_gathered_by_vectors(&self, evex: bool) -> bool {
        self.vectors(evex).is_some()
    }

    /// Returns the first bytes of the blocks of 16 that a gather of bytes or halves reads for the first 16 bytes of its elements,
    /// or all if there are fewer; those of the next 16 lie as far from their own first element. They cover exactly the bytes from
    /// the first element to the last. `None` where they are not read so: elements far apart, or parts of a vector.
    pub(super) fn narrow_blocks(&self) -> Option<Vec<usize>> {
        let (size, lanes) = (self.mem.bytes(), usize::from(self.ty.lanes));
        let widening = self.widening()?;
        let simple = match widening {
            Widening::Same => size <= 2,
            Widening::SignedByte | Widening::UnsignedByte | Widening::SignedHalf | Widening::Half => true,
            Widening::Number | Widening::Rounded | Widening::Bool | Widening::Word => false,
        };
        let stride = usize::try_from(self.stride).ok().filter(|s| s % size == 0 && *s > size)?;
        let part = lanes.min(BLOCK / size);
        let span = stride.checked_mul(part - 1)? + size;
        let fits = simple && self.is_whole();
        let blocks = span.div_ceil(BLOCK);
        let reached = at(&self.addr, stride.checked_mul(lanes)? as i64).is_ok();
        (fits && reached && span >= BLOCK && blocks <= FARTHEST)
            .then(|| (0..blocks).map(|b| (b * BLOCK).min(span - BLOCK)).collect())
    }

    /// Returns the first byte of each 16 bytes from which a gather of bytes or halves shuffles four lanes into place: all are in one
    /// register, or in two of 16 bytes that begin and end with the elements. Unlike [`Lanes::narrow_blocks`] this widens, too. `None` where
    /// the elements of four lanes lie further apart.
    pub(super) fn lane_blocks(&self, evex: bool) -> Option<Vec<usize>> {
        let (size, lanes, lane) = (self.mem.bytes(), usize::from(self.ty.lanes), self.lane_bytes());
        let widening = self.widening()?;
        let simple =
            matches!(widening, Widening::UnsignedByte | Widening::SignedByte | Widening::Half | Widening::SignedHalf);
        self.narrow_blocks().filter(|_| simple && lane == 4)?;
        let (stride, four) = (self.stride as usize, BLOCK / lane);
        let (blocks, span) = (lanes / four, stride * (lanes - 1) + size);
        let fits = stride * (four - 1) + size <= BLOCK && if blocks == 4 { evex && span <= 64 } else { blocks == 2 };
        fits.then(|| match blocks {
            2 => vec![0, (stride * four).min(span - BLOCK)],
            _ => (0..blocks).map(|b| b * stride * four).collect(),
        })
    }

    /// The bytes that [`Lanes::lane_blocks`] loads into one register.
    pub(super) fn span_mask(&self) -> u64 {
        u64::MAX >> (64 - (self.stride as usize * (usize::from(self.ty.lanes) - 1) + self.mem.bytes()))
    }

    /// Returns true if a gather by [`Lanes::narrow_blocks`] joins several parts of 16 bytes.
    pub(super) fn has_narrow_parts(&self) -> bool {
        usize::from(self.ty.lanes) * self.mem.bytes() > BLOCK
    }

    /// The address of an element.
    fn element(&self, e: usize) -> Result<Memory> {
        at(&self.addr, (e * self.lane_bytes()) as i64)
    }
}

impl Emitter<'_> {
    /// Returns false where the elements are not read by whole vectors.
    pub(super) fn gather_by_vectors(&mut self, l: &Lanes) -> Result<bool> {
        let Some((starts, places)) = l.vectors(self.arch.evex) else { return Ok(false) };
        let whole = l.is_whole();
        match self.arch.evex {
            true if whole => self.merge_by_permutations(l, &starts, &places)?,
            true => self.merge_parts(l)?,
            false => self.merge_by_blends(l, &starts, &places)?,
        }
        Ok(true)
    }

    /// Bytes or halves a few apart: each block is shuffled to where its elements belong, 16 bytes of elements after the other, then
    /// all are widened.
    pub(super) fn gather_by_shuffles(&mut self, l: &Lanes, starts: &[usize]) -> Result<()> {
        let (d, t, size) = (l.register.number(), self.temporaries.vector[0], l.mem.bytes());
        let block_of = |byte: usize| starts.iter().position(|&s| (s..s + BLOCK).contains(&byte));
        let bytes = size * usize::from(l.ty.lanes);
        for part in 0..bytes.div_ceil(BLOCK) {
            let all = if part == 0 { d } else { self.temporaries.vector[1] };
            let first = part * BLOCK / size * l.stride as usize;
            for (b, &start) in starts.iter().enumerate() {
                let to = if b == 0 { all } else { t };
                let from = |i: usize| {
                    let byte = i / size * l.stride as usize + i % size;
                    let here = i < bytes && block_of(byte) == Some(b);
                    if here { (byte - start) as u8 } else { 0x80 }
                };
                self.load(opcode::LOAD_PS, Width::X, to, at(&l.addr, (first + start) as i64)?);
                self.op3_constant(opcode::SHUFFLE_B, Width::X, to, to, (0..BLOCK).map(from).collect());
                if b > 0 {
                    self.op3(opcode::OR, Width::X, all, all, t);
                }
            }
            if part > 0 {
                let width = if part == 1 { Width::Y } else { Width::Z };
                self.op3i(opcode::INSERT_128, width, d, d, all, part as u8);
            }
        }
        if let Some(widening) = l.widening().filter(|w| *w != Widening::Same) {
            self.op2(extension(widening, l.lane_bytes()), l.width(), d, d);
        }
        Ok(())
    }

    /// Bytes or halves of which four lanes lie within 16 bytes: these bytes are moved into the block of the register where the lanes
    /// are, and shuffled into place.
    pub(super) fn gather_by_blocks(&mut self, l: &Lanes, starts: &[usize]) -> Result<()> {
        let (d, w, lane, size, stride) =
            (l.register.number(), l.width(), l.lane_bytes(), l.mem.bytes(), l.stride as usize);
        if let [_, second] = *starts {
            self.load(opcode::LOAD_PS, Width::X, d, at(&l.addr, 0)?);
            let e = self.plain(opcode::INSERT_128, w, d, d, Rm::Memory(at(&l.addr, second as i64)?));
            self.vector(Encoding { immediate: Some(1), ..e });
        } else {
            self.load_masked(opcode::LOAD_B, w, d, at(&l.addr, 0)?, Some(l.span_mask()));
            let word = |i: usize| (starts[i / 4] / 4 + i % 4).min(w.bytes() / 4 - 1) as u32;
            let index = (0..w.bytes() / 4).flat_map(|i| word(i).to_le_bytes()).collect();
            let index = self.constant_register(w, self.temporaries.vector[0], index);
            self.op3(opcode::PERMUTE_PS, w, d, index, d);
        }
        // an element with a sign lies at the upper end of its lane
        let signed = matches!(l.widening(), Some(Widening::SignedByte | Widening::SignedHalf));
        let offset = if signed { lane - size } else { 0 };
        let from = |p: usize| {
            let (i, byte) = (p / lane, p % lane);
            let element = stride * i - starts[p / BLOCK];
            if (offset..offset + size).contains(&byte) { (element + byte - offset) as u8 } else { 0x80 }
        };
        self.op3_constant(opcode::SHUFFLE_B, w, d, d, (0..w.bytes()).map(from).collect());
        if signed {
            self.shift_by(opcode::SHIFT_D, w, 4, d, d, 8 * offset as u8);
        }
        Ok(())
    }

    /// `d[i] = (d, vector at start)[index[i]]`, of lanes.
    fn merge(&mut self, l: &Lanes, index: Vec<usize>, rm: Rm, mask: u8) {
        let (d, t, w) = (l.register.number(), self.temporaries.vector[0], l.width());
        let op = if l.lane_bytes() == 4 { opcode::PERMUTE_TWO_PS } else { opcode::PERMUTE_TWO_PD };
        let lane = l.lane_bytes();
        let index = index.iter().flat_map(|i| i.to_le_bytes().into_iter().take(lane)).collect();
        let t = self.constant_register(w, t, index);
        self.vector(Encoding { mask, zeroing: mask != 0, ..self.plain(op, w, d, t, rm) });
    }

    fn merge_by_permutations(&mut self, l: &Lanes, starts: &[usize], places: &[(usize, usize)]) -> Result<()> {
        let lanes = l.ty.lanes as usize;
        self.load(opcode::LOAD_PS, l.width(), l.register.number(), l.element(0)?);
        for (v, &start) in starts.iter().enumerate().skip(1) {
            let index = |(i, &(from, place)): (usize, &(usize, usize))| match from {
                _ if from == v => lanes + place,
                0 if v == 1 => place,
                _ => i,
            };
            let index = places.iter().enumerate().map(index).collect();
            self.merge(l, index, Rm::Memory(l.element(start)?), 0);
        }
        Ok(())
    }

    /// A part of the lanes: vectors are read under masks, and the other lanes become zero.
    fn merge_parts(&mut self, l: &Lanes) -> Result<()> {
        let (lanes, distance) = (l.ty.lanes as usize, l.distance().expect("checked"));
        let (d, u, lane, w) = (l.register.number(), self.temporaries.vector[1], l.lane_bytes(), l.width());
        let op: Op = if lane == 4 { opcode::LOAD_PS } else { opcode::LOAD_PD };
        let used = l.first * distance..(l.first + l.count - 1) * distance + 1;
        for v in 0..distance {
            let mask = (0..lanes).filter(|p| used.contains(&(v * lanes + p))).fold(0u64, |m, p| m | 1 << p);
            let to = if v == 0 { d } else { u };
            if mask == 0 {
                self.zero(to);
            } else {
                self.load_masked(op, w, to, l.element(v * lanes)?, Some(mask));
            }
            if v == 0 {
                continue;
            }
            let index = |i: usize| match i * distance / lanes {
                from if from == v => lanes + i * distance % lanes,
                0 if v == 1 => i * distance,
                _ => i,
            };
            let mask = if v + 1 == distance { self.mask(l.mask()) } else { 0 };
            self.merge(l, (0..lanes).map(index).collect(), Rm::Register(u), mask);
        }
        Ok(())
    }

    fn merge_by_blends(&mut self, l: &Lanes, starts: &[usize], places: &[(usize, usize)]) -> Result<()> {
        let (d, w, words) = (l.register.number(), l.width(), l.lane_bytes() / 4);
        self.load(opcode::LOAD_PS, w, d, l.element(0)?);
        for (v, &start) in starts.iter().enumerate().skip(1) {
            let bits = |p: usize| ((1 << words) - 1) << (p * words);
            let immediate = places.iter().filter(|e| e.0 == v).fold(0u8, |m, e| m | bits(e.1) as u8);
            if immediate != 0 {
                let e = self.plain(opcode::BLEND_PS, w, d, d, Rm::Memory(l.element(start)?));
                self.vector(Encoding { immediate: Some(immediate), ..e });
            }
        }
        if places.iter().enumerate().all(|(i, e)| e.1 == i) {
            return Ok(());
        }
        let from = places.iter().flat_map(|e| (0..words).map(|k| e.1 * words + k));
        if words == 2 && w == Width::Y {
            let order = places.iter().enumerate().fold(0, |order, (i, e)| order | (e.1 as u8) << (2 * i));
            self.op2i(opcode::PERMUTE_Q, w, d, d, order);
        } else if w == Width::X {
            let bytes = from.flat_map(|word| (0..4).map(move |b| (word * 4 + b) as u8)).collect();
            self.op3_constant(opcode::SHUFFLE_B, w, d, d, bytes);
        } else {
            let words = from.flat_map(|word| (word as u32).to_le_bytes()).collect();
            let index = self.constant_register(w, self.temporaries.vector[0], words);
            self.op3(opcode::PERMUTE_PS, w, d, index, d);
        }
        Ok(())
    }

    /// AVX-512: one permutation of two registers, which overwrites its table or its first source.
    pub(super) fn zip_by_table(&mut self, op: Zip, ty: VType, d: u8, a: u8, b: u8) {
        let (lanes, lane, w) = (ty.lanes as usize, ty.lane.bytes(), width(ty));
        let over_first = d == a || d == b;
        // the first source is the destination: `b` may be that as well
        let swapped = if d == b && d != a { lanes } else { 0 };
        let index = (0..lanes).flat_map(|i| (op.source(i, lanes) ^ swapped).to_le_bytes().into_iter().take(lane));
        let index = index.collect();
        let table = match over_first {
            true => self.constant_register(w, self.temporaries.vector[0], index),
            false => {
                self.op3_constant(opcode::LOAD_PS, w, d, 0, index);
                d
            }
        };
        let (first, index) = if lane == 4 {
            (opcode::PERMUTE_TWO_PS, opcode::PERMUTE_BY_PS)
        } else {
            (opcode::PERMUTE_TWO_PD, opcode::PERMUTE_BY_PD)
        };
        match over_first {
            true => self.op3(first, w, d, table, if swapped > 0 { a } else { b }),
            false => self.op3(index, w, d, a, b),
        }
    }

    /// AVX2: halves of 128 bits are zipped by themselves, then put in order.
    pub(super) fn zip_by_unpacking(&mut self, op: Zip, ty: VType, d: u8, a: u8, b: u8) {
        let (wide, w) = (ty.lane.bytes() == 8, width(ty));
        let (low, high) = match wide {
            true => (opcode::UNPACK_LOW_Q, opcode::UNPACK_HIGH_Q),
            false => (opcode::UNPACK_LOW_D, opcode::UNPACK_HIGH_D),
        };
        match op {
            Zip::Low if w == Width::X => self.op3(low, w, d, a, b),
            Zip::High if w == Width::X => self.op3(high, w, d, a, b),
            Zip::Low | Zip::High => {
                let t = self.temporaries.vector[0];
                self.op3(low, w, t, a, b);
                self.op3(high, w, d, a, b);
                self.op3i(opcode::PERMUTE_128, w, d, t, d, if op == Zip::Low { 0x20 } else { 0x31 });
            }
            Zip::Even | Zip::Odd => {
                match (wide, op) {
                    (true, Zip::Even) => self.op3(low, w, d, a, b),
                    (true, _) => self.op3(high, w, d, a, b),
                    (false, Zip::Even) => self.op3i(opcode::SHUFFLE_PS, w, d, a, b, 0x88),
                    (false, _) => self.op3i(opcode::SHUFFLE_PS, w, d, a, b, 0xdd),
                }
                if w == Width::Y {
                    self.op2i(opcode::PERMUTE_Q, w, d, d, 0xd8);
                }
            }
        }
    }

    /// Lanes of 8 and 16 bits: zipped, or sorted into even and odd ones, in each 16 bytes by itself; then the quarters or halves
    /// of these are put in order.
    pub(super) fn zip_narrow(&mut self, op: Zip, ty: VType, d: u8, a: u8, b: u8) {
        let (lane, w) = (ty.lane.bytes(), width(ty));
        let (t, u) = (self.temporaries.vector[0], self.temporaries.vector[1]);
        // 8 bytes are a unit: where each is in the two registers, one behind the other
        let (units, blocks) = (w.bytes() / 8, w.bytes() / 16);
        let from: Vec<usize> = match op {
            Zip::Low | Zip::High => {
                let (low, high) = match lane {
                    1 => (opcode::UNPACK_LOW_B, opcode::UNPACK_HIGH_B),
                    _ => (opcode::UNPACK_LOW_W, opcode::UNPACK_HIGH_W),
                };
                self.op3(low, w, t, a, b);
                self.op3(high, w, u, a, b);
                let first = if op == Zip::Low { 0 } else { blocks };
                let block = |k: usize| (first + k) / 2 + (first + k) % 2 * blocks;
                (0..units).map(|i| 2 * block(i / 2) + i % 2).collect()
            }
            Zip::Even | Zip::Odd => {
                let sorted = |i: usize| (i % (8 / lane) * 2 + i / (8 / lane)) * lane;
                let order: Vec<u8> = (0..16).map(|i| (sorted(i / lane) + i % lane) as u8).collect();
                self.op3_constant(opcode::SHUFFLE_B, w, t, a, order.repeat(blocks));
                self.op3_constant(opcode::SHUFFLE_B, w, u, b, order.repeat(blocks));
                (0..units).map(|i| 2 * i + usize::from(op == Zip::Odd)).collect()
            }
        };
        self.merge_units(w, d, t, u, &from);
    }

    /// `d[i] = (t, u)[from[i]]`, of units of 8 bytes, in one of the orders of [`Emitter::zip_narrow`].
    fn merge_units(&mut self, w: Width, d: u8, t: u8, u: u8, from: &[usize]) {
        if self.arch.evex {
            let index = from.iter().flat_map(|i| i.to_le_bytes()).collect();
            self.op3_constant(opcode::LOAD_PS, w, d, 0, index);
            return self.op3(opcode::PERMUTE_BY_PD, w, d, t, u);
        }
        match *from {
            [0, 1] => self.copy_width(w, d, t),
            [2, 3] => self.copy_width(w, d, u),
            [0, 2] => self.op3(opcode::UNPACK_LOW_Q, w, d, t, u),
            [1, 3] => self.op3(opcode::UNPACK_HIGH_Q, w, d, t, u),
            [0, 1, 4, 5] => self.op3i(opcode::PERMUTE_128, w, d, t, u, 0x20),
            [2, 3, 6, 7] => self.op3i(opcode::PERMUTE_128, w, d, t, u, 0x31),
            _ => {
                let op = if from[0] == 0 { opcode::UNPACK_LOW_Q } else { opcode::UNPACK_HIGH_Q };
                self.op3(op, w, d, t, u);
                self.op2i(opcode::PERMUTE_Q, w, d, d, 0xd8);
            }
        }
    }

    /// Lane 0 at the address, the others before it: a load and a permutation.
    pub(super) fn load_reversed(&mut self, l: &Lanes) -> Result<()> {
        let (d, lane, lanes) = (l.register.number(), l.lane_bytes(), l.ty.lanes as usize);
        let addr = Addr { disp: l.addr.disp - ((lanes - 1) * lane) as i32, ..l.addr };
        if !l.is_whole() {
            self.zero(d);
        }
        self.load_same(&Lanes { addr, first: lanes - l.first - l.count, ..*l })?;
        self.reverse(l, d, d);
        Ok(())
    }

    /// Lane 0 at the address, the others before it, all of them: a permutation and a store.
    pub(super) fn store_reversed(&mut self, l: &Lanes) -> Result<()> {
        let t = self.temporaries.vector[0];
        self.reverse(l, t, l.register.number());
        let before = (usize::from(l.ty.lanes) - 1) * l.lane_bytes();
        self.store(opcode::STORE_PS, l.width(), t, at(&l.addr, -(before as i64))?);
        Ok(())
    }

    /// Lanes of `s` in `d`, the last one first.
    fn reverse(&mut self, l: &Lanes, d: u8, s: u8) {
        let (lane, lanes, w) = (l.lane_bytes(), l.ty.lanes as usize, l.width());
        let words = lane / 4;
        if w == Width::X {
            self.op2i(opcode::SHUFFLE_D, w, d, s, if words == 1 { 0x1b } else { 0x4e });
            return;
        }
        let from = (0..lanes * words).map(|i| (lanes - 1 - i / words) * words + i % words);
        let from = from.flat_map(|i| (i as u32).to_le_bytes()).collect();
        let index = self.constant_register(w, self.temporaries.vector[0], from);
        self.op3(opcode::PERMUTE_PS, w, d, index, s);
    }

    /// Returns false where the lanes are not stored by whole vectors.
    pub(super) fn scatter_by_vectors(&mut self, l: &Lanes) -> Result<bool> {
        let Some(vectors) = l.spread(self.arch.evex) else { return Ok(false) };
        let (lanes, lane, words) = (l.ty.lanes as usize, l.lane_bytes(), l.lane_bytes() / 4);
        let (distance, t, w) = (vectors.len(), self.temporaries.vector[0], l.width());
        let op = if lane == 4 { opcode::STORE_PS } else { opcode::STORE_PD };
        for &(start, mask) in vectors.iter().filter(|v| v.1 != 0) {
            // the instruction permutes 32 bytes at least
            let room = w.max(Width::Y).bytes() / 4;
            let from = |word: usize| ((start + word / words).div_ceil(distance) % lanes * words + word % words) as u32;
            let index = (0..room).flat_map(|word| from(word).to_le_bytes()).collect();
            let from = self.constant_register(w.max(Width::Y), t, index);
            self.op3(opcode::PERMUTE_PS, w.max(Width::Y), t, from, l.register.number());
            let mask = self.mask(mask);
            self.vector(Encoding { mask, ..self.plain(op, w, t, 0, Rm::Memory(l.element(start)?)) });
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::vcode::{Addr, Gpr, Inst, Lane, VType, Vreg};
    use crate::runtime::DType;

    #[test]
    fn elements_that_lie_apart_as_their_lanes_do_are_moved_in_place() {
        let bytes = |lane: Lane, lanes: u8, mem: DType, stride: i64, load: bool| {
            let addr = Addr { base: Gpr(0), index: None, disp: 0 };
            let gather = Inst::VGather { dst: Vreg(0), ty: VType { lane, lanes }, mem, addr, stride, part: None };
            gather.lanes().unwrap().in_place(true, load)
        };
        assert_eq!(bytes(Lane::I32, 16, DType::U8, 4, true), Some(0x1111_1111_1111_1111));
        assert_eq!(bytes(Lane::I32, 4, DType::U16, 4, false), Some(0x3333));
        assert_eq!(bytes(Lane::I16, 8, DType::U8, 2, true), Some(0x5555));
        // a sign is extended, other distances, elements that fill their lanes
        assert_eq!(bytes(Lane::I32, 16, DType::I8, 4, true), None);
        assert_eq!(bytes(Lane::I32, 2, DType::I8, 4, false), Some(0x11));
        assert_eq!(bytes(Lane::I32, 16, DType::U8, 3, true), None);
        assert_eq!(bytes(Lane::I32, 16, DType::I32, 4, false), None);
    }

    #[test]
    fn bytes_a_few_apart_are_read_by_blocks_for_all_lanes() {
        let blocks = |lane: Lane, lanes: u8, mem: DType, stride: i64| {
            let addr = Addr { base: Gpr(0), index: None, disp: 0 };
            let gather = Inst::VGather { dst: Vreg(0), ty: VType { lane, lanes }, mem, addr, stride, part: None };
            gather.lanes().unwrap().narrow_blocks()
        };
        // 16 elements each: 46 bytes, whatever the number of lanes
        for (lane, lanes) in [(Lane::I32, 16), (Lane::I16, 32), (Lane::U8, 64)] {
            assert_eq!(blocks(lane, lanes, DType::U8, 3), Some(vec![0, 16, 30]));
        }
        assert_eq!(blocks(Lane::I16, 32, DType::I16, 4), Some(vec![0, 14]));
        assert_eq!(blocks(Lane::I32, 16, DType::U8, 5), None);
    }
}
