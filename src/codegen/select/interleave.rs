//! Interleaved elements: gathers and scatters that together touch every element of a stretch become whole vectors.
//!
//! In: the tree of a phase. Out: the same, where lanes two or four elements apart at every offset from each other — the
//! real and the imaginary parts of complex numbers — are loaded as neighbours and separated, and zipped before they are
//! stored as neighbours. Elements of half a lane are loaded and stored by pairs, which shifts take apart and put together;
//! bytes of a quarter of a lane are stored by fours. Other scatters of two to four neighbours, as of the three colours of
//! pixels, are one store of interleaved elements ([`Inst::VStoreInterleaved`]).
//! Gathers of neighbouring columns whose lanes are rows load a part of each row, and transpose these in registers.
//! Invariant: no byte is read or written that was not before.

use crate::codegen::Target;
use crate::codegen::select::columns::{self, CLOSE};
use crate::codegen::select::tree::{Node, Pointer, Tree};
use crate::codegen::vcode::lanes::{Interleaved, Lanes};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Inst, Lane, ShiftOp, VBinary, VType, Vreg, Zip};
use crate::runtime::DType;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Replaces groups of gathers and of scatters.
pub fn interleave(mut tree: Tree, target: &Target) -> Tree {
    let mut pass = Pass { pointers: &tree.pointers, vregs: tree.vregs, registers: target.vector_registers };
    tree.nodes = pass.body(std::mem::take(&mut tree.nodes));
    tree.vregs = pass.vregs;
    tree
}

struct Pass<'a> {
    pointers: &'a [Pointer],
    vregs: u32,
    /// Vector registers of the target.
    registers: usize,
}

/// A gather or a scatter of whole registers.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Strided {
    at: usize,
    store: bool,
    register: Vreg,
    ty: VType,
    mem: DType,
    addr: Addr,
    distance: i64,
    /// Moved as whole vectors by zips and shifts: two or four elements apart that fill lanes, or parts of them.
    zipped: bool,
}

impl Strided {
    fn of(at: usize, node: &Node) -> Option<Strided> {
        let Node::Inst(inst) = node else { return None };
        let store = match inst {
            Inst::VGather { part: None, .. } => false,
            Inst::VScatter { part: None, .. } => true,
            _ => return None,
        };
        let l = inst.lanes()?;
        let (lane, size) = (l.ty.lane.bytes(), l.mem.bytes() as i64);
        let distance = l.stride / size;
        let halves = !l.ty.lane.is_float() && 2 * l.mem.bytes() == lane && lane <= 4;
        // loads of every fourth byte stand alone: with AVX-512 each is one masked instruction
        let quarters = l.ty.lane == Lane::I32 && l.mem.bytes() == 1 && distance == if store { 4 } else { 2 };
        let parts = halves || quarters;
        let together = store && Interleaved::fits(usize::try_from(distance).ok()?, l.ty, l.mem);
        let zipped = matches!(distance, 2 | 4) && (l.mem.bytes() == lane || parts);
        let whole = l.mem != DType::Bool && l.ty.lanes as usize * lane >= 16;
        let column = !store && l.mem.bytes() == lane && lane >= 4 && distance > CLOSE;
        let near = l.stride.checked_mul(i64::from(l.ty.lanes)).is_some_and(|bytes| i32::try_from(bytes).is_ok());
        let fits =
            whole && near && l.addr.index.is_none() && (column || zipped || together) && distance * size == l.stride;
        fits.then_some(Strided {
            at,
            store,
            register: l.register,
            ty: l.ty,
            mem: l.mem,
            addr: l.addr,
            distance,
            zipped,
        })
    }

    /// The memory type of the elements from one lane to the next, where these fill a lane or, of loads, a half of it.
    fn word(&self) -> Option<DType> {
        let word = match self.distance as usize * self.mem.bytes() {
            _ if self.ty.lane.bytes() == 2 => DType::I16,
            2 if self.mem == DType::I8 => DType::I16,
            2 if !self.store => DType::U16,
            _ => DType::I32,
        };
        (self.mem.bytes() < self.ty.lane.bytes()).then_some(word)
    }

    fn lanes(&self) -> Lanes {
        let stride = self.distance * self.mem.bytes() as i64;
        let Strided { register, ty, mem, addr, .. } = *self;
        Lanes { register, ty, mem, addr, stride, first: 0, count: usize::from(ty.lanes) }
    }

    /// How many of `alike` accesses at neighbouring elements, of which this is the first, make a group: none, as many as there are
    /// elements from one lane to the next, or a power of two of columns.
    fn members(&self, alike: usize) -> usize {
        let (distance, lanes) = (self.distance as usize, usize::from(self.ty.lanes));
        if self.distance <= CLOSE {
            return if alike >= distance { distance } else { 0 };
        }
        let all = alike.min(lanes).min(distance);
        columns::together(all as i64, self.ty.lane.bytes()).map_or(0, |n| n as usize)
    }

    /// The bytes of all elements from the first of this access on that the group touches.
    fn stretch(&self) -> (i64, i64) {
        let bytes = self.distance * i64::from(self.ty.lanes) * self.mem.bytes() as i64;
        (i64::from(self.addr.disp), i64::from(self.addr.disp) + bytes)
    }
}

impl Pass<'_> {
    fn fresh(&mut self) -> Vreg {
        self.vregs += 1;
        Vreg(self.vregs - 1)
    }

    fn body(&mut self, mut body: Vec<Node>) -> Vec<Node> {
        for node in &mut body {
            match node {
                Node::Loop(l) => l.body = self.body(std::mem::take(&mut l.body)),
                Node::If { body, .. } => *body = self.body(std::mem::take(body)),
                _ => {}
            }
        }
        let mut groups = groups(&body);
        if groups.is_empty() {
            return body;
        }
        groups.sort_by_key(|group| ends(group).1 - ends(group).0);
        let mut places: FxHashMap<usize, Vec<Node>> = FxHashMap::default();
        let mut held = vec![0; body.len()];
        let mut moved: Vec<(Strided, usize)> = vec![];
        for group in groups {
            let (first, last) = ends(&group);
            let place = if group[0].store { last } else { first };
            // The vectors of a group wait in registers from its first access to its last. Groups that overlap may fill half of the
            // registers where each load could stand alone, for one load more.
            let most = held[first..last].iter().max().copied().unwrap_or(0);
            let alone = !group[0].store && group[0].distance == 2 && group[0].word().is_none();
            let crowded = alone && most > 0 && most + group.len() > self.registers / 2;
            if crowded || !self.is_free(&body, &group, first..last + 1) || self.changes_order(&moved, &group, place) {
                continue;
            }
            moved.extend(group.iter().map(|s| (*s, place)));
            held[first..last].iter_mut().for_each(|n| *n += group.len());
            match group[0].store {
                true => {
                    group.iter().for_each(|s| drop(places.insert(s.at, vec![])));
                    places.insert(last, self.stores(&group));
                }
                false => {
                    let (before, values) = self.loads(&group);
                    for (s, value) in group.iter().zip(values) {
                        places.insert(s.at, value);
                    }
                    places.entry(first).or_default().splice(0..0, before);
                }
            }
        }
        if places.is_empty() {
            return body;
        }
        let replaced = |(index, node)| places.remove(&index).unwrap_or_else(|| vec![node]);
        body.into_iter().enumerate().flat_map(replaced).collect()
    }

    /// Returns true if an access of a group that stands at `place` would change places with one that was moved, of memory that one of them
    /// writes. `moved` has the places of the accesses of other groups.
    fn changes_order(&self, moved: &[(Strided, usize)], group: &[Strided], place: usize) -> bool {
        let root = |s: &Strided| self.pointers[s.addr.base.0 as usize].root;
        let meet =
            |a: &Strided, b: &Strided| (a.store || b.store) && root(a) == root(b) && !a.lanes().is_apart(&b.lanes());
        let passes = |s: &Strided| moved.iter().any(|(m, there)| (m.at < s.at) != (*there < place) && meet(m, s));
        group.iter().any(passes)
    }

    /// Returns true if all of a group may be loaded at its first access, or stored at its last.
    fn is_free(&self, body: &[Node], group: &[Strided], range: std::ops::Range<usize>) -> bool {
        let root = self.pointers[group[0].addr.base.0 as usize].root;
        let stretch = group[0].stretch();
        let touches = |index: usize, inst: &Inst| {
            // of the group, what changes places with the instruction
            let mut passing = group.iter().filter(|s| (s.at < index) == group[0].store);
            let lanes = inst.lanes().filter(|_| !matches!(inst, Inst::VGatherIndex { .. }));
            if lanes.is_some_and(|l| passing.all(|s| l.is_apart(&s.lanes()))) {
                return false;
            }
            let (base, near) = match inst {
                Inst::VGatherIndex { base, .. } => (*base, true),
                _ => match inst.address() {
                    None => return false,
                    Some(a) => {
                        let l = inst.lanes();
                        let near = l.is_none_or(|l| {
                            let far = l.stride * (i64::from(l.ty.lanes) - 1);
                            let start = i64::from(a.disp) + far.min(0);
                            let end = i64::from(a.disp) + far.max(0) + l.mem.bytes() as i64;
                            start < stretch.1 && stretch.0 < end
                        });
                        (a.base, near || a.base != group[0].addr.base || a.index.is_some())
                    }
                },
            };
            near && self.pointers[base.0 as usize].root == root
        };
        range.clone().filter(|index| group.iter().all(|s| s.at != *index)).all(|index| match &body[index] {
            Node::Inst(inst) if inst.writes_memory() => !touches(index, inst),
            Node::Inst(inst) => {
                let mut source_changes = false;
                inst.registers(|class, access, r| {
                    let source = |s: &Strided| s.at < index && s.register == Vreg(r);
                    source_changes |= class == Class::Vector && access.writes() && group.iter().any(source);
                });
                !group[0].store || !source_changes && !touches(index, inst)
            }
            Node::Splat { dst, .. } => !group[0].store || group.iter().all(|s| s.register != *dst),
            Node::LoadInt { addr, .. } => !group[0].store || self.pointers[addr.base.0 as usize].root != root,
            Node::Let { .. }
            | Node::Wrap { .. }
            | Node::Integer { .. }
            | Node::Choose { .. }
            | Node::FirstLane { .. } => true,
            inside @ Node::Inside { .. } => !inside.records_in(root),
            Node::Loop(_) | Node::If { .. } => false,
        })
    }

    fn zip(&mut self, out: &mut Vec<Node>, op: Zip, ty: VType, a: Vreg, b: Vreg) -> Vreg {
        let dst = self.fresh();
        out.push(Node::Inst(Inst::VZip { dst, op, ty, a, b }));
        dst
    }

    fn shift(&mut self, out: &mut Vec<Node>, op: ShiftOp, ty: VType, a: Vreg, amount: u8) -> Vreg {
        let dst = self.fresh();
        out.push(Node::Inst(Inst::VShift { dst, op, ty, a, amount }));
        dst
    }

    /// As [`Pass::loads`], of elements of half a lane or of a quarter: lanes of two elements, of which shifts keep one.
    fn loads_of_pairs(&mut self, group: &[Strided], pair: DType) -> (Vec<Node>, Vec<Vec<Node>>) {
        let Strided { ty, mem, addr, .. } = group[0];
        let mut out = vec![];
        let vectors: Vec<Vreg> = (0..group.len() / 2)
            .map(|v| {
                let (dst, addr) = (self.fresh(), vector_address(addr, ty, v));
                out.push(Node::Inst(Inst::VLoad { dst, ty, mem: pair, addr, part: None }));
                dst
            })
            .collect();
        let pairs = match vectors[..] {
            [a, b] => [Zip::Even, Zip::Odd].map(|op| self.zip(&mut out, op, ty, a, b)).to_vec(),
            _ => vectors,
        };
        let signed = matches!(mem, DType::I8 | DType::I16);
        let right = if signed { ShiftOp::RightArithmetic } else { ShiftOp::RightLogical };
        let bits = 8 * mem.bytes() as u8;
        let above = 8 * ty.lane.bytes() as u8 - bits;
        let mut values: Vec<Vec<Node>> = vec![];
        for (k, s) in group.iter().enumerate() {
            let (a, amount) = match k % 2 {
                0 => (self.shift(&mut out, ShiftOp::Left, ty, pairs[k / 2], above), above),
                _ => (pairs[k / 2], bits),
            };
            values.push(vec![Node::Inst(Inst::VShift { dst: s.register, op: right, ty, a, amount })]);
        }
        (out, values)
    }

    /// As [`Pass::stores`], of elements of a half or a quarter of a lane, which fill lanes together.
    fn stores_of_parts(&mut self, group: &[Strided], word: DType) -> Vec<Node> {
        let Strided { ty, mem, addr, .. } = group[0];
        let (bits, count) = (8 * mem.bytes() as u8, ty.lane.bytes() / mem.bytes());
        let first = bits * (count as u8 - 1);
        let mut out = vec![];
        let mut words = vec![];
        for parts in group.chunks_exact(count) {
            let mut word = None;
            for (k, s) in parts.iter().enumerate() {
                let upper = self.shift(&mut out, ShiftOp::Left, ty, s.register, first);
                let part = match first - bits * k as u8 {
                    0 => upper,
                    amount => self.shift(&mut out, ShiftOp::RightLogical, ty, upper, amount),
                };
                word = Some(word.map_or(part, |b| {
                    let dst = self.fresh();
                    out.push(Node::Inst(Inst::VBinary { op: VBinary::Or, dst, ty, a: part, b }));
                    dst
                }));
            }
            words.extend(word);
        }
        let vectors = match words[..] {
            [a, b] => [Zip::Low, Zip::High].map(|op| self.zip(&mut out, op, ty, a, b)).to_vec(),
            _ => words,
        };
        for (v, src) in vectors.into_iter().enumerate() {
            out.push(Node::Inst(Inst::VStore { ty, mem: word, src, addr: vector_address(addr, ty, v), part: None }));
        }
        out
    }

    /// The loads of a group, and the instructions that take the place of each gather.
    fn loads(&mut self, group: &[Strided]) -> (Vec<Node>, Vec<Vec<Node>>) {
        let Strided { ty, mem, addr, distance, .. } = group[0];
        if let Some(pair) = group[0].word() {
            return self.loads_of_pairs(group, pair);
        }
        if distance > CLOSE {
            return self.transposed(group);
        }
        let mut out = vec![];
        let vectors: Vec<Vreg> = (0..group.len())
            .map(|v| {
                let (dst, addr) = (self.fresh(), vector_address(addr, ty, v));
                out.push(Node::Inst(Inst::VLoad { dst, ty, mem, addr, part: None }));
                dst
            })
            .collect();
        // four apart: the even ones, then of these the even ones
        let pairs = match vectors[..] {
            [a, b, c, d] => {
                let halves =
                    [Zip::Even, Zip::Odd].map(|op| [(a, b), (c, d)].map(|(a, b)| self.zip(&mut out, op, ty, a, b)));
                vec![(Zip::Even, halves[0]), (Zip::Even, halves[1]), (Zip::Odd, halves[0]), (Zip::Odd, halves[1])]
            }
            _ => [Zip::Even, Zip::Odd].map(|op| (op, [vectors[0], vectors[1]])).to_vec(),
        };
        let values = group.iter().zip(pairs);
        let values = values.map(|(s, (op, [a, b]))| vec![Node::Inst(Inst::VZip { dst: s.register, op, ty, a, b })]);
        (out, values.collect())
    }

    /// As [`Pass::loads`], of columns: the group's part of each row is loaded. A zip of the vectors `k` and `k + n/2` of `n`
    /// moves the highest digit of the vector's number behind those of the place in it, and the highest of these behind the
    /// vector's, all in base two; so the numbers of the rows become places, and columns become vectors.
    fn transposed(&mut self, group: &[Strided]) -> (Vec<Node>, Vec<Vec<Node>>) {
        let Strided { ty, mem, addr, distance, .. } = group[0];
        let (lanes, columns) = (usize::from(ty.lanes), group.len());
        let mut out = vec![];
        let mut vectors: Vec<Vreg> = (0..lanes)
            .map(|row| {
                let (dst, ty) = (self.fresh(), VType { lanes: columns as u8, ..ty });
                let disp = addr.disp + row as i32 * distance as i32 * mem.bytes() as i32;
                out.push(Node::Inst(Inst::VLoad { dst, ty, mem, addr: Addr { disp, ..addr }, part: None }));
                dst
            })
            .collect();
        while vectors.len() > columns {
            let (a, b) = vectors.split_at(vectors.len() / 2);
            let ty = VType { lanes: (2 * lanes / vectors.len() * columns) as u8, ..ty };
            vectors = a.iter().zip(b).map(|(&a, &b)| self.zip(&mut out, Zip::Low, ty, a, b)).collect();
        }
        // a zip stands where the first column that needs it is used, so that what uses the first columns need not wait for all
        let mut levels = vec![vectors.iter().map(|&v| Some(v)).collect::<Vec<_>>()];
        levels.resize(columns.ilog2() as usize, vec![None; columns]);
        let mut order: Vec<usize> = (0..columns).collect();
        order.sort_by_key(|&c| group[c].at);
        let mut values = vec![vec![]; columns];
        for c in order {
            let [a, b] = self.sources(&mut values[c], &mut levels, columns.ilog2() as usize, c, ty);
            let op = if c % 2 == 0 { Zip::Low } else { Zip::High };
            values[c].push(Node::Inst(Inst::VZip { dst: group[c].register, op, ty, a, b }));
        }
        (out, values)
    }

    /// The two vectors of the level below that the zip `v` of `level` reads, with those zips that are not there yet.
    fn sources(
        &mut self,
        out: &mut Vec<Node>,
        levels: &mut [Vec<Option<Vreg>>],
        level: usize,
        v: usize,
        ty: VType,
    ) -> [Vreg; 2] {
        let below = level - 1;
        [v / 2, v / 2 + levels[below].len() / 2].map(|source| {
            if let Some(register) = levels[below][source] {
                return register;
            }
            let [a, b] = self.sources(out, levels, below, source, ty);
            let made = self.zip(out, if source % 2 == 0 { Zip::Low } else { Zip::High }, ty, a, b);
            levels[below][source] = Some(made);
            made
        })
    }

    fn stores(&mut self, group: &[Strided]) -> Vec<Node> {
        let Strided { ty, mem, addr, .. } = group[0];
        if !group[0].zipped {
            let member = |k: usize| group.get(k).map(|s| s.register);
            let (a, b) = (group[0].register, group[1].register);
            return vec![Node::Inst(Inst::VStoreInterleaved { ty, mem, addr, a, b, c: member(2), d: member(3) })];
        }
        if let Some(pair) = group[0].word() {
            return self.stores_of_parts(group, pair);
        }
        let mut out = vec![];
        let mut both =
            |out: &mut Vec<Node>, a: Vreg, b: Vreg| [Zip::Low, Zip::High].map(|op| self.zip(out, op, ty, a, b));
        let sources: Vec<Vreg> = group.iter().map(|s| s.register).collect();
        let vectors = match sources[..] {
            [a, b, c, d] => {
                let (even, odd) = (both(&mut out, a, c), both(&mut out, b, d));
                let (low, high) = (both(&mut out, even[0], odd[0]), both(&mut out, even[1], odd[1]));
                [low, high].concat()
            }
            _ => both(&mut out, sources[0], sources[1]).to_vec(),
        };
        for (v, src) in vectors.into_iter().enumerate() {
            out.push(Node::Inst(Inst::VStore { ty, mem, src, addr: vector_address(addr, ty, v), part: None }));
        }
        out
    }
}

/// The places of the first and of the last access of a group.
fn ends(group: &[Strided]) -> (usize, usize) {
    group.iter().fold((usize::MAX, 0), |(first, last), s| (first.min(s.at), last.max(s.at)))
}

/// The address of the vector `v` behind another.
fn vector_address(addr: Addr, ty: VType, v: usize) -> Addr {
    Addr { disp: addr.disp + (v * ty.bytes()) as i32, ..addr }
}

/// The accesses of a body that together touch each element of a stretch, by their offsets.
fn groups(body: &[Node]) -> Vec<Vec<Strided>> {
    let mut alike: BTreeMap<(u32, i64, usize, bool), Vec<Strided>> = BTreeMap::new();
    for s in body.iter().enumerate().filter_map(|(index, n)| Strided::of(index, n)) {
        let key = (s.addr.base.0, s.distance, s.ty.bytes(), s.store);
        alike.entry(key).or_default().push(s);
    }
    let mut out = vec![];
    for mut accesses in alike.into_values() {
        accesses.sort_by_key(|s| (s.addr.disp, s.at));
        let mut ungrouped = &accesses[..];
        while let Some(first) = ungrouped.first() {
            let fits = |(k, s): (usize, &Strided)| {
                s.ty == first.ty
                    && s.mem == first.mem
                    && s.addr.disp == first.addr.disp + (k * first.mem.bytes()) as i32
            };
            let alike = ungrouped.iter().enumerate().take_while(|&s| fits(s)).count();
            match first.members(alike) {
                0 => ungrouped = &ungrouped[1..],
                n => {
                    out.push(ungrouped[..n].to_vec());
                    ungrouped = &ungrouped[n..];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
