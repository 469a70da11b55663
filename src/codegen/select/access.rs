//! Reads and writes: subscripts to addresses, guards to lane ranges, branches or masks.

use crate::codegen::select::state::Val;
use crate::codegen::select::state::{Address, Branch};
use crate::codegen::select::state::{LANE, LocalMode, MOST_READS, Selected, Selector, lane_range};
use crate::codegen::select::statements::Span;
use crate::codegen::select::tree::{MAX_DISPLACEMENT, Node, Pointer, Root};
use crate::codegen::target::Isa;
use crate::codegen::vcode::{Addr, Gpr, GprOp, Inst, Lane, LaneRange, VBinary, VType, Vreg};
use crate::expr::Affine;
use crate::expr::{Access, BufferId, CompareOp, Expr, Index, Scalar};
use crate::runtime::{DType, Result};

impl Selector<'_> {
    pub fn address(&mut self, buffer: BufferId, index: &[Index]) -> Selected<Address> {
        let strides = self.nest.buffer(buffer).strides.clone();
        let mut out = Address { buffer, linear: Affine::constant(0), gather: vec![] };
        for (d, i) in index.iter().enumerate() {
            match i {
                Index::Affine(a) => out.linear = out.linear.add_scaled(&self.resolve(a), strides[d]),
                Index::Value(e) => {
                    let (affine, rest) = e.affine_terms();
                    if rest.as_ref().is_some_and(|rest| self.varies(rest)) {
                        out.gather.push(((**e).clone(), strides[d]));
                        continue;
                    }
                    let affine = self.resolve(&affine);
                    out.linear = out.linear.add_scaled(&affine, strides[d]);
                    if let Some(rest) = rest {
                        let ((least, most), size) = (self.facts.bounds(&affine), self.nest.buffer(buffer).shape[d]);
                        let inside = (most.saturating_neg(), (size - 1).saturating_sub(least));
                        out.linear = out.linear.add_scaled(&self.integer_within(&rest, inside)?, strides[d]);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Returns true if the value of `e` differs between lanes.
    pub fn varies(&self, e: &Expr) -> bool {
        let uses = |a: &Affine| self.resolve(a).uses(LANE);
        e.any(&mut |e| match e {
            Expr::Index(a) => uses(a),
            Expr::Load(access) => access.affine_forms().any(uses),
            _ => false,
        })
    }

    /// The address operand for byte `bytes + constant` of a buffer, and what it touches when `size` bytes are meant.
    pub fn operand(&mut self, buffer: BufferId, bytes: &Affine, size: i64) -> (Addr, Span) {
        let (root, offset) = match (self.nest.buffer(buffer).kind, self.locals[buffer.0 as usize]) {
            (crate::codegen::loopnest::BufferKind::Argument { slot, .. }, _) => (Root::Argument(slot), 0),
            (_, LocalMode::Memory { offset }) => (Root::Scratch, offset),
            _ => (Root::Scratch, 0),
        };
        let bytes_from_base = bytes.constant + offset;
        let mut pointer = bytes.clone().offset(-bytes.constant);
        let far = if bytes_from_base.abs() < MAX_DISPLACEMENT { 0 } else { bytes_from_base };
        pointer.constant = far;
        let base = self.pointer(Pointer { root, bytes: pointer });
        let disp = bytes_from_base - far;
        (Addr { base, index: None, disp: disp as i32 }, Span { buffer, bytes: Some((base, disp, disp + size)) })
    }

    /// The address operand of an element that is one for all lanes.
    pub fn element_address(&mut self, a: &Address) -> Addr {
        self.bytes_at(a, self.element(a.buffer)).0
    }

    /// The address operand for `size` bytes at an element that is one for all lanes, and these bytes.
    pub fn bytes_at(&mut self, a: &Address, size: i64) -> (Addr, Span) {
        self.operand(a.buffer, &a.linear.clone().scale(self.element(a.buffer)), size)
    }

    /// Bytes of an element in memory.
    pub(super) fn element(&self, b: BufferId) -> i64 {
        self.nest.buffer(b).dtype.bytes() as i64
    }

    /// The lanes that elements are loaded into.
    pub fn memory_lane(&self, dtype: DType) -> Result<Lane> {
        if dtype.is_half() { Ok(Lane::I32) } else { self.lane(dtype) }
    }

    /// The type as which elements of a buffer are loaded.
    fn loaded_type(&self, b: BufferId) -> DType {
        self.view.map_or(self.nest.buffer(b).dtype, |view| view.dtype)
    }

    /// The value outside of a guard, as wide as what is loaded.
    fn outside(&self, access: &Access) -> Scalar {
        let dtype = self.nest.buffer(access.buffer).dtype;
        let otherwise = access.otherwise.unwrap_or(Scalar { dtype, bits: 0 });
        let Some(view) = self.view else { return otherwise };
        let bits = (0..view.group).fold(0, |pattern, n| pattern | otherwise.bits << (8 * n * dtype.bytes() as i64));
        Scalar { dtype: view.dtype, bits }
    }

    /// The lanes at work as a part of the vector, when they are not all.
    fn part(&self, first: i64, count: i64) -> Option<LaneRange> {
        (first > 0 || count < self.chunk.lanes as i64).then_some(LaneRange { first: first as u8, count: count as u8 })
    }

    /// The value of an unguarded element.
    pub fn load_address(&mut self, a: &Address) -> Selected<Val> {
        if !self.masked.is_empty() && a.varies() && !self.in_registers(a.buffer) {
            let masked = self.masked.clone();
            if let Some(v) = self.load_where(a, &masked)? {
                return Ok(v);
            }
            if self.view.is_some() {
                return self.internal("a gather of groups of elements");
            }
            let dtype = self.loaded_type(a.buffer);
            let lane = self.memory_lane(dtype)?;
            let (first, count) = (self.chunk.first as i64, self.chunk.count as i64);
            let reg = self.gather(a, Some((masked, lane)), first, count)?;
            return self.loaded(reg, lane, dtype, false);
        }
        self.load_lanes(a, self.chunk.first as i64, self.chunk.count as i64)
    }

    fn load_lanes(&mut self, a: &Address, first: i64, count: i64) -> Selected<Val> {
        let dtype = self.loaded_type(a.buffer);
        if let Some(slot) = self.slot(a)? {
            self.read_slot(a)?;
            return Ok(Val { reg: slot.reg, lane: slot.lane, dtype, uniform: slot.uniform });
        }
        let lane = self.memory_lane(dtype)?;
        if !a.gather.is_empty() {
            if self.view.is_some() {
                return self.internal("a gather of groups of elements");
            }
            let v = self.gather(a, None, first, count)?;
            return self.loaded(v, lane, dtype, false);
        }
        let (element, size) = (self.element(a.buffer), dtype.bytes() as i64);
        let per_lane = a.linear.coefficient(LANE) * element;
        let bytes = a.linear.clone().plus(LANE, -a.linear.coefficient(LANE)).scale(element);
        let mem = memory_type(dtype);
        if per_lane == 0 {
            let (addr, span) = self.operand(a.buffer, &bytes, size);
            let ty = self.full(lane);
            let reg = self.emit_from(Some(span), |dst| Inst::VBroadcast { dst, ty, mem, addr });
            return self.loaded(reg, lane, dtype, true);
        }
        let part = self.part(first, count);
        let ty = self.ty(lane, false);
        if dtype == DType::F16 && per_lane == size && part.is_none() && ty.lanes >= 4 {
            let (addr, span) = self.operand(a.buffer, &bytes, size * ty.lanes as i64);
            let ty = VType { lane: Lane::F32, ..ty };
            let reg = self.emit_from(Some(span), |dst| Inst::VLoad { dst, ty, mem, addr, part });
            return Ok(Val { reg, lane: Lane::F32, dtype, uniform: false });
        }
        let reg = if per_lane == size {
            let (addr, span) = self.operand(a.buffer, &bytes, size * ty.lanes as i64);
            self.emit_from(Some(span), |dst| Inst::VLoad { dst, ty, mem, addr, part })
        } else {
            let (addr, span) = self.operand(a.buffer, &bytes, size);
            let span = Span { bytes: None, ..span };
            self.emit_from(Some(span), |dst| Inst::VGather { dst, ty, mem, addr, stride: per_lane, part })
        };
        self.loaded(reg, lane, dtype, false)
    }

    /// Loaded bytes of a bool become a mask, the bits of a half its value.
    fn loaded(&mut self, reg: Vreg, lane: Lane, dtype: DType, uniform: bool) -> Selected<Val> {
        let v = Val { reg, lane, dtype, uniform };
        if dtype != DType::Bool {
            return self.from_memory(v);
        }
        let ty = if uniform { self.full(lane) } else { self.ty(lane, false) };
        let zero = self.bits(lane, 0);
        let reg = self.emit(|dst| Inst::VCompare { op: CompareOp::Ne, dst, ty, a: reg, b: zero });
        Ok(Val { reg, ..v })
    }

    /// Reads an element for each of the lanes `first..first + count`; where `mask` is given and false, element 0 of the
    /// buffer instead.
    fn gather(&mut self, a: &Address, mask: Option<(Vec<Affine>, Lane)>, first: i64, count: i64) -> Selected<Vreg> {
        let (dtype, size) = (self.nest.buffer(a.buffer).dtype, self.element(a.buffer));
        let small = self.nest.buffer(a.buffer).span() * size < i32::MAX as i64;
        let index_lane = if small { Lane::I32 } else { Lane::I64 };
        if self.chunk.widest < 4 {
            return self.lookup(a, mask.is_some());
        }
        let ty = self.ty(index_lane, false);
        let uniform = a.linear.clone().plus(LANE, -a.linear.coefficient(LANE));
        // with a mask everything is in the lanes, so that a lane that is masked out can stay at element 0
        let (base, in_lanes) = match mask {
            None => (uniform.clone(), a.linear.clone().add_scaled(&uniform, -1)),
            Some(_) => (Affine::constant(0), a.linear.clone()),
        };
        let mut index = self.lane_value(&in_lanes, index_lane);
        let zero = index;
        for (e, stride) in &a.gather {
            let v = self.value(e)?;
            let v = self.with_lane(v, index_lane)?;
            let mut scaled = v.reg;
            if *stride != 1 {
                let stride = self.bits(index_lane, *stride as u64);
                scaled = self.emit(|dst| Inst::VBinary { op: VBinary::Mul, dst, ty, a: v.reg, b: stride });
            }
            index = match in_lanes == Affine::constant(0) && index == zero {
                true => scaled,
                false => self.emit(|dst| Inst::VBinary { op: VBinary::Add, dst, ty, a: index, b: scaled }),
            };
        }
        // an index that is 0 there already stays
        let is_zero = in_lanes == Affine::constant(0);
        if let Some((guards, lane)) =
            mask.filter(|(guards, _)| !(is_zero && a.gather.iter().all(|(e, _)| self.is_zero_outside(e, guards))))
        {
            let m = self.guard_mask(&guards, lane);
            let m = self.mask_as(m, lane, index_lane, false);
            index = self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: index, b: m });
        }
        if let Some(found) = self.lookup_words(a.buffer, (index, ty), &base, self.part(first, count)) {
            return Ok(found);
        }
        let (addr, span) = self.operand(a.buffer, &base.scale(size), size);
        // the whole address of the gather is in its pointer
        let pointer = self.tree.pointers[addr.base.0 as usize].clone();
        let bytes = pointer.bytes.offset(addr.disp as i64);
        let base = self.pointer(Pointer { bytes, ..pointer });
        let (lane, mem) = (self.memory_lane(dtype)?, memory_type(dtype));
        let ty = self.ty(lane, false);
        let part = self.part(first, count);
        let span = Span { bytes: None, ..span };
        Ok(self.emit_from(Some(span), |dst| Inst::VGatherIndex { dst, ty, mem, base, index, index_lane, part }))
    }

    /// Returns true for what is read as 0 where a guard fails.
    fn is_zero_outside(&self, e: &Expr, guards: &[Affine]) -> bool {
        match e {
            Expr::Cast(dtype, e) => !dtype.is_float() && self.is_zero_outside(e, guards),
            Expr::Load(access) => {
                let own: Vec<Affine> = access.guard.iter().map(|g| self.resolve(g)).collect();
                access.otherwise.is_some_and(|o| o.bits == 0) && guards.iter().all(|g| own.contains(g))
            }
            _ => false,
        }
    }

    /// An affine form in each lane.
    pub fn lane_value(&mut self, a: &Affine, lane: Lane) -> Vreg {
        let k = a.coefficient(LANE);
        let uniform = a.clone().plus(LANE, -k);
        let full = self.full(lane);
        let splat =
            if uniform.is_constant() { self.bits(lane, uniform.constant as u64) } else { self.splat(&uniform, full) };
        if k == 0 {
            return splat;
        }
        let ty = self.ty(lane, false);
        let mut v = self.emit(|dst| Inst::VIota { dst, ty: full });
        if k != 1 {
            let scale = self.bits(lane, k as u64);
            v = self.emit(|dst| Inst::VBinary { op: VBinary::Mul, dst, ty, a: v, b: scale });
        }
        if uniform == Affine::constant(0) {
            return v;
        }
        self.emit(|dst| Inst::VBinary { op: VBinary::Add, dst, ty, a: v, b: splat })
    }

    /// `value` in every lane; known afterwards under the address-free key of its integer.
    fn splat(&mut self, value: &Affine, ty: VType) -> Vreg {
        let name = self.value_name(value);
        let key = (Inst::VSplat { dst: Vreg(u32::MAX), ty, src: name }, [0; MOST_READS]);
        if let Some(reg) = self.known(&key) {
            return reg;
        }
        let dst = self.fresh();
        self.out.push(Node::Splat { dst, ty, value: value.clone() });
        self.remember(key, dst, None);
        dst
    }

    /// A number for an affine value, to be told apart from other values.
    fn value_name(&mut self, value: &Affine) -> Gpr {
        self.pointer(Pointer { root: Root::Scratch, bytes: value.clone() })
    }

    /// The mask of lanes (of `lane`'s width) where all guards hold.
    fn guard_mask(&mut self, guards: &[Affine], lane: Lane) -> Vreg {
        let lane = Lane::integer(lane.bytes());
        let ty = self.ty(lane, false);
        let zero = self.bits(lane, 0);
        let mut mask = None;
        for g in guards {
            let (op, value, least) = match g.coefficient(LANE) {
                -1 => {
                    let (op, value) = compared_with_lane(&g.clone().plus(LANE, 1));
                    (op, self.lane_value(&value, lane), self.lane_value(&Affine::var(LANE), lane))
                }
                _ => (CompareOp::Ge, self.lane_value(g, lane), zero),
            };
            let m = self.emit(|dst| Inst::VCompare { op, dst, ty, a: value, b: least });
            mask = Some(match mask {
                None => m,
                Some(other) => self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: other, b: m }),
            });
        }
        mask.unwrap_or_else(|| self.bits(lane, u64::MAX))
    }

    /// The value of a read with its guard.
    pub fn load(&mut self, access: &Access) -> Selected<Val> {
        let dtype = self.loaded_type(access.buffer);
        let otherwise = self.outside(access);
        if let (Some(literal), None) = (self.literal(access), self.view) {
            return self.constant(literal);
        }
        let (mut uniform, mut masked) = (vec![], vec![]);
        let (from, to) = (self.chunk.first as i64, (self.chunk.first + self.chunk.count) as i64);
        let (mut first, mut end) = (from, to);
        for g in &access.guard {
            let g = self.resolve(g);
            match self.facts.decide(&g) {
                Some(true) => {}
                Some(false) => return self.constant(otherwise),
                None => match lane_range(&g) {
                    Some((lo, hi)) => (first, end) = (first.max(lo), end.min(hi)),
                    None if g.uses(LANE) => masked.push(g),
                    None => uniform.push(g),
                },
            }
        }
        if first >= end {
            return self.constant(otherwise);
        }
        let address = self.address(access.buffer, &access.index)?;
        let partial = first > from || end < to;
        if !uniform.is_empty() {
            let lanes = partial.then_some((first, end));
            let key = Branch { address, guards: uniform, masked, lanes, otherwise, chunk: self.chunk };
            return self.branch_load(access, key);
        }
        let in_registers = self.in_registers(access.buffer);
        if masked.is_empty() && !(partial && in_registers) {
            let v = if partial { self.load_lanes(&address, first, end - first)? } else { self.load_address(&address)? };
            if !partial || otherwise.bits == 0 && !v.uniform {
                return Ok(v);
            }
            let mask = self.range_mask(v.lane.bytes(), first, end);
            return self.choose(mask, v, otherwise);
        }
        if partial {
            masked.push(Affine::var(LANE).offset(-first));
            masked.push(Affine::var(LANE).scale(-1).offset(end - 1));
        }
        let lane = self.memory_lane(dtype)?;
        let v = if in_registers {
            self.load_address(&address)?
        } else if !address.varies() {
            let address = self.inside(address);
            self.load_address(&address)?
        } else if let Some(v) = self.load_where(&address, &masked)? {
            if otherwise.bits == 0 {
                return Ok(v);
            }
            v
        } else {
            if self.view.is_some() {
                return self.internal("a gather of groups of elements");
            }
            let reg = self.gather(&address, Some((masked.clone(), lane)), from, to - from)?;
            let v = self.loaded(reg, lane, dtype, false)?;
            if otherwise.bits == 0 {
                let (mask, ty) = (self.guard_mask(&masked, v.lane), self.ty(v.lane, false));
                let reg = self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: v.reg, b: mask });
                return Ok(Val { reg, ..v });
            }
            v
        };
        let mask = self.guard_mask(&masked, v.lane);
        self.choose(mask, v, otherwise)
    }

    /// Neighbouring elements where all guards hold, zeros elsewhere; `None` where no instruction loads them so.
    fn load_where(&mut self, a: &Address, guards: &[Affine]) -> Selected<Option<Val>> {
        let dtype = self.loaded_type(a.buffer);
        let (lane, size) = (self.memory_lane(dtype)?, dtype.bytes() as i64);
        let ty = self.ty(lane, false);
        if self.view.is_some() || !self.moves_where(a, lane, size) {
            return Ok(None);
        }
        let mask = self.mask_at_work(guards, lane);
        let bytes = a.linear.clone().plus(LANE, -1).scale(size);
        let (addr, span) = self.operand(a.buffer, &bytes, size * i64::from(ty.lanes));
        let mem = memory_type(dtype);
        let reg = self.emit_from(Some(span), |dst| Inst::VLoadWhere { dst, ty, mem, addr, mask });
        Ok(Some(self.loaded(reg, lane, dtype, false)?))
    }

    /// Returns true if instructions move neighbouring elements of `size` bytes where a mask is set.
    fn moves_where(&self, a: &Address, lane: Lane, size: i64) -> bool {
        let whole = size >= 4 && size == lane.bytes() as i64 && size * i64::from(self.ty(lane, false).lanes) >= 16;
        self.target.isa != Isa::Neon && whole && a.gather.is_empty() && a.linear.coefficient(LANE) == 1
    }

    /// The mask of the lanes at work where all guards hold.
    fn mask_at_work(&mut self, guards: &[Affine], lane: Lane) -> Vreg {
        let mask = self.guard_mask(guards, lane);
        let (first, count) = (self.chunk.first as i64, self.chunk.count as i64);
        if self.part(first, count).is_none() {
            return mask;
        }
        let at_work = self.range_mask(lane.bytes(), first, first + count);
        let ty = self.ty(Lane::integer(lane.bytes()), false);
        self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: mask, b: at_work })
    }

    /// The address of one element that is read for all lanes, where it may be that none needs it: moved into the buffer,
    /// which changes nothing where a lane does.
    fn inside(&mut self, mut a: Address) -> Address {
        let last = self.nest.buffer(a.buffer).span() - self.view.map_or(1, |view| view.group);
        let (low, high) = self.facts.bounds(&a.linear);
        if low < 0 {
            a.linear = self.limited(GprOp::Max, a.linear, 0, (0, high.max(0)));
        }
        if high > last {
            a.linear = self.limited(GprOp::Min, a.linear, last, (low.clamp(0, last), last));
        }
        a
    }

    fn limited(&mut self, op: GprOp, a: Affine, limit: i64, range: (i64, i64)) -> Affine {
        let b = Affine::constant(limit);
        Affine::var(self.integer_node(range, None, |var| Node::Integer { var, op, a: a.clone(), b: b.clone() }))
    }

    /// `mask ? v : otherwise`.
    fn choose(&mut self, mask: Vreg, v: Val, otherwise: Scalar) -> Selected<Val> {
        let other = self.constant(otherwise)?;
        let other = self.with_lane(other, v.lane)?;
        let ty = self.ty(v.lane, false);
        let reg = self.emit(|dst| Inst::VSelect { dst, ty, mask, a: v.reg, b: other.reg });
        Ok(Val { reg, uniform: false, ..v })
    }

    /// A read behind a branch: `v = otherwise; if guards { v = element }`.
    fn branch_load(&mut self, access: &Access, key: Branch) -> Selected<Val> {
        let (guards, otherwise) = (key.guards.clone(), key.otherwise);
        if let Some(v) = self.known_branch(&key) {
            return Ok(v);
        }
        let other = self.constant(otherwise)?;
        let lane = self.lane(otherwise.dtype)?;
        let other = self.with_lane(other, lane)?;
        let facts = self.facts.clone();
        guards.iter().for_each(|g| self.facts.assume(g.clone()));
        if guards.iter().any(|g| self.facts.decide(g) != Some(true)) {
            return self.internal("a guard that does not decide itself");
        }
        if Expr::Load(access.clone()).any(&mut |e| matches!(e, Expr::Load(a) if self.in_registers(a.buffer))) {
            self.settle_all();
        }
        let outer = std::mem::take(&mut self.out);
        let saved = self.known_values();
        let v = self.load(access)?;
        let v = self.with_lane(v, lane)?;
        self.forget_since(saved);
        self.facts = facts;
        let mut body = std::mem::replace(&mut self.out, outer);
        let uniform = v.uniform && other.uniform;
        let (reg, ty) = (self.fresh(), if uniform { self.full(lane) } else { self.ty(lane, false) });
        self.out.push(Node::Inst(Inst::VCopy { dst: reg, src: other.reg, ty }));
        body.push(Node::Inst(Inst::VCopy { dst: reg, src: v.reg, ty }));
        self.out.push(Node::If { conditions: guards, body });
        self.changed(reg);
        let v = Val { reg, uniform, ..v };
        self.remember_branch(key, v);
        Ok(v)
    }

    /// Writes `v` to an element or, where lanes differ, to the elements of the lanes at work.
    pub fn store_value(&mut self, a: &Address, v: Val) -> Selected<()> {
        let dtype = self.nest.buffer(a.buffer).dtype;
        if let Some(slot) = self.slot(a)? {
            return self.write_slot(a, slot, v);
        }
        let lane = self.lane(dtype)?;
        let scalar = !a.varies();
        if !a.gather.is_empty() || scalar && !v.uniform {
            return self.internal("a store of lanes to one element or to subscripts from data");
        }
        let v = self.stored(v, lane)?;
        self.store_lanes(a, v, memory_type(dtype))
    }

    /// Writes lanes as elements of type `mem`, as wide as those of the buffer, which is in memory.
    pub fn store_lanes(&mut self, a: &Address, v: Val, mem: DType) -> Selected<()> {
        if !self.masked.is_empty() {
            return self.store_where(a, v, mem);
        }
        let size = self.element(a.buffer);
        let per_lane = a.linear.coefficient(LANE) * size;
        let bytes = a.linear.clone().plus(LANE, -a.linear.coefficient(LANE)).scale(size);
        let lane = v.lane;
        if !a.varies() {
            let (addr, span) = self.operand(a.buffer, &bytes, size);
            let ty = VType { lane, lanes: 1 };
            self.out.push(Node::Inst(Inst::VStore { src: v.reg, ty, mem, addr, part: None }));
            self.written(span);
            return Ok(());
        }
        let (first, count) = (self.chunk.first as i64, self.chunk.count as i64);
        let part = self.part(first, count);
        let ty = self.ty(lane, false);
        if per_lane == size {
            let (addr, mut span) = self.operand(a.buffer, &bytes, 0);
            if let Some((_, from, to)) = &mut span.bytes {
                (*from, *to) = (*from + first * size, *from + (first + count) * size);
            }
            self.out.push(Node::Inst(Inst::VStore { src: v.reg, ty, mem, addr, part }));
            self.written(span);
        } else {
            let (addr, span) = self.operand(a.buffer, &bytes, size);
            self.out.push(Node::Inst(Inst::VScatter { src: v.reg, ty, mem, addr, stride: per_lane, part }));
            self.written(Span { bytes: None, ..span });
        }
        Ok(())
    }

    /// Writes the lanes for which the conditions around hold to neighbouring elements; other elements are not touched.
    fn store_where(&mut self, a: &Address, v: Val, mem: DType) -> Selected<()> {
        let size = self.element(a.buffer);
        if !self.moves_where(a, v.lane, size) {
            return self.internal("a store of lanes under a condition that no instruction does");
        }
        let (masked, ty) = (self.masked.clone(), self.ty(v.lane, false));
        let mask = self.mask_at_work(&masked, v.lane);
        let bytes = a.linear.clone().plus(LANE, -1).scale(size);
        let (addr, span) = self.operand(a.buffer, &bytes, size * i64::from(ty.lanes));
        self.out.push(Node::Inst(Inst::VStoreWhere { src: v.reg, ty, mem, addr, mask }));
        self.written(span);
        Ok(())
    }

    /// `v` in the lane type and form that memory takes: masks as 0 and 1, halves as their bits.
    fn stored(&mut self, v: Val, lane: Lane) -> Selected<Val> {
        if v.dtype.is_half() {
            return Ok(self.value_to_half(v));
        }
        if v.dtype != DType::Bool {
            return self.with_lane(v, lane);
        }
        let (one, ty) = (self.bits(v.lane, 1), self.ty(v.lane, v.uniform));
        let reg = self.emit(|dst| Inst::VBinary { op: VBinary::And, dst, ty, a: v.reg, b: one });
        Ok(Val { reg, ..v })
    }
}

/// The comparison of a form with the number of a lane that holds where `u` is at least that number: of a limit, less by one, the limit
/// is greater.
pub fn compared_with_lane(u: &Affine) -> (CompareOp, Affine) {
    if u.constant == -1 { (CompareOp::Gt, u.clone().offset(1)) } else { (CompareOp::Ge, u.clone()) }
}

/// Memory types of instructions: a bool and an element of a storage type are bytes, unsigned integers of 32 and 64 bits the
/// bits of their width.
pub fn memory_type(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::U8,
        DType::U32 => DType::I32,
        DType::U64 => DType::I64,
        dtype if dtype.is_storage() => DType::U8,
        dtype => dtype,
    }
}
