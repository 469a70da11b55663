//! The copies of one statement as one statement on a longer vector.

use super::registers::{Edit, Registers, Seed, read, written};
use crate::codegen::Target;
use crate::codegen::select::dead_stores::{may_read, shares_root};
use crate::codegen::select::tree::{Node, Pointer};
use crate::codegen::vcode::lanes::Lanes;
use crate::codegen::vcode::{Addr, Inst, Lane, VBinary, VType, Vreg, Zip};
use crate::runtime::DType;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Bytes of the shortest vector that copies become. Unmeasured.
pub const SHORTEST: usize = 16;

/// The places in a run that define each register.
pub type Definitions = FxHashMap<u32, Vec<usize>>;

/// The definitions of a run of nodes.
pub fn definitions(body: &[Node], run: &Range<usize>) -> Definitions {
    let mut all = Definitions::default();
    for at in run.clone() {
        for (r, _) in written(&body[at]) {
            all.entry(r).or_default().push(at);
        }
    }
    all
}

/// Copies that are being joined.
pub struct Copies<'a> {
    body: &'a [Node],
    run: &'a Range<usize>,
    pointers: &'a [Pointer],
    registers: &'a mut Registers,
    target: &'a Target,
    /// Where the run defines each register.
    definitions: &'a Definitions,
    /// Lanes of one copy, and of all.
    each: u8,
    lanes: u8,
    /// The place of the last store, where the joined nodes will stand.
    last: usize,
    nodes: Vec<Node>,
    /// The joined values of definitions.
    joined: FxHashMap<Vec<usize>, Vreg>,
    /// Vectors that were loaded for every other group of elements.
    pairs: FxHashMap<(Addr, Lane), [Vreg; 2]>,
    constants: FxHashMap<(Lane, u64), Vreg>,
    /// The loads that are joined.
    loads: Vec<(usize, Lanes)>,
}

impl<'a> Copies<'a> {
    pub fn new(
        body: &'a [Node],
        (run, definitions): (&'a Range<usize>, &'a Definitions),
        pointers: &'a [Pointer],
        registers: &'a mut Registers,
        target: &'a Target,
    ) -> Copies<'a> {
        let nodes = vec![];
        let (joined, pairs, constants) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        let loads = vec![];
        Copies {
            body,
            run,
            pointers,
            registers,
            target,
            definitions,
            each: 0,
            lanes: 0,
            last: 0,
            nodes,
            joined,
            pairs,
            constants,
            loads,
        }
    }

    /// The edit that joins what neighbouring stores of type `ty` store; `None` where the copies differ, where memory changes between
    /// them, or where nothing is saved.
    pub fn joined(mut self, seeds: &[Seed], ty: VType) -> Option<Edit> {
        self.each = ty.lanes;
        self.lanes = ty.lanes * u8::try_from(seeds.len()).ok()?;
        let places: Vec<usize> = seeds.iter().map(|s| s.at).collect();
        let last = *places.iter().max()?;
        self.last = last;
        let sources: Vec<Vreg> = places.iter().map(|&at| stored(&self.body[at])).collect::<Option<_>>()?;
        let src = self.operand(&sources, &places)?;
        let Node::Inst(Inst::VStore { mem, addr, .. }) = self.body[places[0]] else { return None };
        let ty = VType { lanes: self.lanes, ..ty };
        self.nodes.push(Node::Inst(Inst::VStore { ty, mem, src, addr, part: None }));
        if !self.is_free(&places, last) || self.waits_for_stores(&places) {
            return None;
        }
        let dead = self.dead(&places);
        (self.nodes.len() < dead.len()).then_some(Edit { last, nodes: self.nodes, dead })
    }

    /// The joined value of registers that are read at these places.
    fn operand(&mut self, sources: &[Vreg], places: &[usize]) -> Option<Vreg> {
        if let Some(register) = self.uniform(sources) {
            return Some(register);
        }
        let reaching = |(r, at): (&Vreg, &usize)| {
            let all = self.definitions.get(&r.0)?;
            all[..all.partition_point(|d| d < at)].last().copied()
        };
        let definitions: Vec<usize> = sources.iter().zip(places).map(reaching).collect::<Option<_>>()?;
        if let Some(&register) = self.joined.get(&definitions) {
            return Some(register);
        }
        let register = self.value(&definitions)?;
        self.joined.insert(definitions, register);
        Some(register)
    }

    /// A register that has the one value of all sources in every lane.
    fn uniform(&mut self, sources: &[Vreg]) -> Option<Vreg> {
        let (first, ty) = self.registers.uniform.get(&sources[0])?.clone();
        let same = |r: &Vreg| {
            *r == sources[0]
                || first.is_some()
                    && self.registers.uniform.get(r).is_some_and(|(inst, _)| {
                        matches!((inst, &first), (Some(Inst::VConst { ty: t, bits: b, .. }), Some(Inst::VConst { ty, bits, .. }))
                            if t.lane == ty.lane && b == bits)
                    })
        };
        if !sources.iter().all(same) {
            return None;
        }
        match first {
            _ if ty.lanes >= self.lanes => Some(sources[0]),
            Some(Inst::VConst { ty, bits, .. }) => self.constant(ty.lane, bits),
            _ => None,
        }
    }

    /// A register with a constant in every lane.
    fn constant(&mut self, lane: Lane, bits: u64) -> Option<Vreg> {
        if let Some(&register) = self.constants.get(&(lane, bits)) {
            return Some(register);
        }
        let ty = self.long(lane)?;
        let dst = self.emit(|dst| Inst::VConst { dst, ty, bits });
        self.constants.insert((lane, bits), dst);
        Some(dst)
    }

    /// The totals of the lanes of four registers side by side, where these still hold them at the last store.
    fn reductions(&mut self, insts: &[&Inst], places: &[usize], op: VBinary, ty: VType) -> Option<Vreg> {
        let source = |(inst, &at): (&&Inst, &usize)| match **inst {
            Inst::VReduce { op: o, ty: t, a, .. } if (o, t) == (op, ty) => {
                let defined =
                    self.definitions.get(&a.0).is_some_and(|all| all.iter().any(|&d| at < d && d <= self.last));
                (!defined).then_some(a)
            }
            _ => None,
        };
        let sources: Vec<Vreg> = insts.iter().zip(places).map(source).collect::<Option<_>>()?;
        let [a, b, c, d] = sources[..] else { return None };
        if self.each != 1 || !op.combines_four(ty) {
            return None;
        }
        Some(self.emit(|dst| Inst::VReduceFour { dst, op, ty, a, b, c, d }))
    }

    fn emit(&mut self, inst: impl FnOnce(Vreg) -> Inst) -> Vreg {
        let dst = self.registers.fresh();
        self.nodes.push(Node::Inst(inst(dst)));
        dst
    }

    /// The type of all copies' lanes, if a register holds them.
    fn long(&self, lane: Lane) -> Option<VType> {
        let ty = VType { lane, lanes: self.lanes };
        (ty.bytes() <= self.target.vector_bytes).then_some(ty)
    }

    /// The joined value of instructions that do the same.
    fn value(&mut self, definitions: &[usize]) -> Option<Vreg> {
        let insts: Vec<&Inst> = definitions.iter().map(|&at| inst_of(&self.body[at])).collect::<Option<_>>()?;
        match *insts[0] {
            Inst::VLoad { ty, mem, part: None, .. } if ty.lanes == self.each => self.load(&insts, definitions, ty, mem),
            Inst::VBroadcast { ty, mem, .. } => self.load(&insts, definitions, ty, mem),
            Inst::VConst { ty, bits, .. } => {
                let same =
                    |i: &&Inst| matches!(**i, Inst::VConst { ty: t, bits: b, .. } if t.lane == ty.lane && b == bits);
                if insts.iter().all(same) { self.constant(ty.lane, bits) } else { None }
            }
            Inst::VReduce { op, ty, .. } => self.reductions(&insts, definitions, op, ty),
            Inst::VCopy { .. }
            | Inst::VUnary { .. }
            | Inst::VBinary { .. }
            | Inst::VShift { .. }
            | Inst::VCompare { .. }
            | Inst::VSelect { .. }
            | Inst::VConvert { .. }
            | Inst::VFma { .. } => self.operation(&insts, definitions),
            _ => None,
        }
    }

    /// The joined value of operations on registers.
    fn operation(&mut self, insts: &[&Inst], definitions: &[usize]) -> Option<Vreg> {
        let shape = |inst: &Inst| {
            let mut inst = inst.clone();
            inst.registers_mut(&mut |_, _, r| *r = 0);
            inst
        };
        let mut joined = shape(insts[0]);
        if insts.iter().any(|inst| shape(inst) != joined) {
            return None;
        }
        let read: Vec<Vec<Vreg>> = insts.iter().map(|inst| read(inst)).collect();
        let mut operands = vec![];
        for k in 0..read[0].len() {
            let sources: Vec<Vreg> = read.iter().map(|r| r[k]).collect();
            operands.push(self.operand(&sources, definitions)?);
        }
        match &mut joined {
            Inst::VConvert { to, from, .. } => {
                self.long(*from)?;
                *to = self.long(to.lane)?;
            }
            Inst::VFma { ty, .. } => {
                *ty = self.long(ty.lane)?;
                // the accumulator is the last operand: its joined value may be read elsewhere
                let (src, ty) = (operands.pop()?, *ty);
                operands.push(self.emit(|dst| Inst::VCopy { dst, ty, src }));
            }
            Inst::VCopy { ty, .. }
            | Inst::VUnary { ty, .. }
            | Inst::VBinary { ty, .. }
            | Inst::VShift { ty, .. }
            | Inst::VCompare { ty, .. }
            | Inst::VSelect { ty, .. } => *ty = self.long(ty.lane)?,
            _ => return None,
        }
        let mut dst = None;
        let fresh = self.registers.fresh();
        let mut operands = operands.into_iter();
        joined.registers_mut(&mut |_, access, r| {
            let register = if access.reads() { operands.next().expect("as many") } else { fresh };
            *r = register.0;
            if access.writes() {
                dst = Some(register);
            }
        });
        self.nodes.push(Node::Inst(joined));
        dst
    }

    /// The joined value of loads.
    fn load(&mut self, insts: &[&Inst], definitions: &[usize], ty: VType, mem: DType) -> Option<Vreg> {
        let first = insts[0].address()?;
        let alike = |inst: &&Inst| {
            let address = inst.address();
            let near = address.is_some_and(|a| a.index.is_none() && a.base == first.base);
            let same = match **inst {
                Inst::VLoad { ty: t, mem: m, part: None, .. } => {
                    matches!(insts[0], Inst::VLoad { .. }) && (t, m) == (ty, mem)
                }
                Inst::VBroadcast { ty: t, mem: m, .. } => {
                    matches!(insts[0], Inst::VBroadcast { .. }) && (t, m) == (ty, mem)
                }
                _ => false,
            };
            near && same && mem != DType::Bool
        };
        if !insts.iter().all(alike) {
            return None;
        }
        let disp = |k: usize| insts[k].address().map(|a| i64::from(a.disp));
        let step = disp(1)? - disp(0)?;
        for k in 1..insts.len() {
            if disp(k)? - disp(k - 1)? != step {
                return None;
            }
        }
        let broadcast = matches!(insts[0], Inst::VBroadcast { .. });
        let ty = self.long(ty.lane)?;
        let size = i64::from(self.each) * mem.bytes() as i64;
        let register = match step {
            0 if broadcast || self.each == 1 => self.emit(|dst| Inst::VBroadcast { dst, ty, mem, addr: first }),
            _ if broadcast && self.each > 1 => return None,
            s if s == size => self.emit(|dst| Inst::VLoad { dst, ty, mem, addr: first, part: None }),
            s if s == 2 * size => self.every_other(insts, ty, mem, first, size as i32)?,
            _ => return None,
        };
        let lanes = insts.iter().map(|inst| inst.lanes());
        for (at, lanes) in definitions.iter().zip(lanes) {
            self.loads.push((*at, lanes?));
        }
        Some(register)
    }

    /// Every other group of `size` bytes in memory, where the body reads the groups between as well.
    fn every_other(&mut self, insts: &[&Inst], ty: VType, mem: DType, first: Addr, size: i32) -> Option<Vreg> {
        let unit = match usize::from(self.each) * ty.lane.bytes() {
            4 => Lane::I32,
            8 => Lane::I64,
            _ => return None,
        };
        let read: FxHashSet<i32> =
            self.run.clone().filter_map(|at| self.group_read(&self.body[at], first, mem)).collect();
        let beside =
            |offset: i32| insts.iter().all(|inst| inst.address().is_some_and(|a| read.contains(&(a.disp + offset))));
        let (start, op) = match (beside(size), beside(-size)) {
            (true, _) => (first, Zip::Even),
            (_, true) => (Addr { disp: first.disp - size, ..first }, Zip::Odd),
            _ => return None,
        };
        if ty.bytes() < SHORTEST {
            return None;
        }
        let [a, b] = match self.pairs.get(&(start, ty.lane)) {
            Some(both) => *both,
            None => {
                let bytes = i32::from(ty.lanes) * mem.bytes() as i32;
                let both = [0, bytes].map(|offset| {
                    let addr = Addr { disp: start.disp + offset, ..start };
                    self.emit(|dst| Inst::VLoad { dst, ty, mem, addr, part: None })
                });
                self.pairs.insert((start, ty.lane), both);
                both
            }
        };
        let zipped = VType { lane: unit, lanes: (ty.bytes() / unit.bytes()) as u8 };
        Some(self.emit(|dst| Inst::VZip { dst, op, ty: zipped, a, b }))
    }

    /// Where a node reads the elements of one copy, behind the pointer of `near`.
    fn group_read(&self, node: &Node, near: Addr, mem: DType) -> Option<i32> {
        let (addr, m, lanes) = match *inst_of(node)? {
            Inst::VLoad { ty, mem, addr, part: None, .. } => (addr, mem, ty.lanes),
            Inst::VBroadcast { mem, addr, .. } => (addr, mem, 1),
            _ => return None,
        };
        (addr.index.is_none() && addr.base == near.base && m == mem && lanes >= self.each).then_some(addr.disp)
    }

    /// Returns true if the loads and the stores may all stand where the last store does.
    fn is_free(&self, places: &[usize], last: usize) -> bool {
        let stores: Vec<(usize, Lanes)> =
            places.iter().filter_map(|&at| Some((at, inst_of(&self.body[at])?.lanes()?))).collect();
        let first = places.iter().chain(self.loads.iter().map(|l| &l.0)).min().copied().unwrap_or(last);
        let before = |all: &'_ [(usize, Lanes)], at: usize| {
            all.iter().filter(move |s| s.0 < at).map(|s| s.1).collect::<Vec<_>>()
        };
        (first..=last).all(|at| match &self.body[at] {
            Node::Inst(inst) if places.contains(&at) => before(&stores, at).iter().all(|s| !self.meets(inst, s)),
            Node::Inst(inst) if inst.writes_memory() => {
                before(&stores, at).iter().chain(&before(&self.loads, at)).all(|s| !self.meets(inst, s))
            }
            Node::Inst(inst) => before(&stores, at).iter().all(|s| !may_read(inst, s, self.pointers)),
            Node::LoadInt { addr, .. } => before(&stores, at).iter().all(|s| !shares_root(*addr, s, self.pointers)),
            inside @ Node::Inside { .. } => {
                let moved = [before(&stores, at), before(&self.loads, at)].concat();
                moved.iter().all(|s| !inside.records_in(self.pointers[s.addr.base.0 as usize].root))
            }
            Node::Loop(_) | Node::If { .. } => false,
            Node::Splat { .. }
            | Node::Let { .. }
            | Node::Wrap { .. }
            | Node::Integer { .. }
            | Node::Choose { .. }
            | Node::FirstLane { .. } => true,
        })
    }

    /// Returns true if a store may write some of the same bytes.
    fn meets(&self, store: &Inst, lanes: &Lanes) -> bool {
        match store.lanes() {
            Some(l) => shares_root(l.addr, lanes, self.pointers) && !l.is_apart(lanes),
            None => store.address().is_some_and(|addr| shares_root(addr, lanes, self.pointers)),
        }
    }

    /// Returns true if a long load may read what several stores of this body have just written, which processors do not forward.
    fn waits_for_stores(&self, places: &[usize]) -> bool {
        let stores = self.body.iter().enumerate().filter(|(at, _)| !places.contains(at));
        let stores: Vec<Addr> = stores
            .filter_map(|(_, n)| {
                inst_of(n).filter(|i| i.writes_memory() && i.ty().is_none_or(|ty| ty.lanes < self.lanes))
            })
            .filter_map(Inst::address)
            .collect();
        self.loads.iter().any(|(_, l)| stores.iter().any(|&addr| shares_root(addr, l, self.pointers)))
    }

    /// The stores, and the nodes whose results nothing reads then.
    fn dead(&self, places: &[usize]) -> FxHashSet<usize> {
        let mut dead: FxHashSet<usize> = places.iter().copied().collect();
        let mut gone: FxHashMap<u32, u32> = FxHashMap::default();
        let mut kept: FxHashMap<u32, u32> = FxHashMap::default();
        for node in &self.nodes {
            inst_of(node).into_iter().flat_map(read).for_each(|r| *kept.entry(r.0).or_default() += 1);
        }
        let mut open: Vec<usize> = places.to_vec();
        while let Some(at) = open.pop() {
            let Some(inst) = inst_of(&self.body[at]) else { continue };
            for r in read(inst) {
                *gone.entry(r.0).or_default() += 1;
                let Some(definitions) = self.definitions.get(&r.0) else { continue };
                let own = definitions.iter().filter(|&&d| updates(&self.body[d], r)).count() as u32;
                let own_gone =
                    definitions.iter().filter(|d| updates(&self.body[**d], r) && dead.contains(d)).count() as u32;
                let left = self.registers.uses[r.index()] - gone[&r.0];
                let unread = left == own - own_gone && !kept.contains_key(&r.0);
                let all_here = self.registers.definitions[r.index()] as usize == definitions.len();
                if unread && all_here && definitions.iter().all(|&d| is_pure(&self.body[d])) {
                    open.extend(definitions.iter().filter(|&&d| dead.insert(d)));
                }
            }
        }
        dead
    }
}

fn inst_of(node: &Node) -> Option<&Inst> {
    match node {
        Node::Inst(inst) => Some(inst),
        _ => None,
    }
}

/// The register that a store reads.
fn stored(node: &Node) -> Option<Vreg> {
    match inst_of(node)? {
        Inst::VStore { src, .. } => Some(*src),
        _ => None,
    }
}

/// Returns true if a node gives a register a value that follows from the one before.
fn updates(node: &Node, register: Vreg) -> bool {
    let reads = || inst_of(node).is_some_and(|inst| read(inst).contains(&register));
    written(node).iter().any(|w| w.0 == register.0) && reads()
}

/// Returns true if a node does nothing but write registers.
fn is_pure(node: &Node) -> bool {
    match node {
        Node::Splat { .. } => true,
        Node::Inst(inst) => inst.only_computes() || matches!(inst, Inst::VCopy { .. } | Inst::VFma { .. }),
        _ => false,
    }
}
