//! Accesses of a loop body, as scalar replacement compares them.
//!
//! In: a body and its pointers. Out: what each access touches, as affine forms in bytes, and whether two of them may meet.

use crate::codegen::select::scalar_replacement::registers::{Registers, instructions, read_anywhere};
use crate::codegen::select::table::SHUFFLED;
use crate::codegen::select::tree::{Node, Pointer, Root};
use crate::codegen::vcode::{Addr, Inst, Lane, LaneRange, VType, Vreg};
use crate::expr::interval::Facts;
use crate::expr::{Affine, Var};
use crate::runtime::DType;
use rustc_hash::FxHashSet;

/// The content of an access's register.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// One element, in one or more lanes.
    Element { lane: Lane, mem: DType },
    /// An element `stride` bytes after the other in each lane, or in the first lanes alone (`part`).
    Lanes { ty: VType, mem: DType, stride: i64, part: Option<LaneRange> },
}

impl Shape {
    /// The type of the register.
    pub fn ty(self, lanes: u8) -> VType {
        match self {
            Shape::Element { lane, .. } => VType { lane, lanes },
            Shape::Lanes { ty, .. } => ty,
        }
    }
}

/// Memory that an instruction reads or writes.
#[derive(Clone, Debug)]
pub struct Reference {
    pub at: usize,
    pub store: bool,
    pub root: Root,
    /// First byte of lane 0.
    pub bytes: Affine,
    /// Bytes touched, relative to `bytes`: first, one past the last.
    pub span: (i64, i64),
    /// Bytes from one lane to the next and of one element, where lanes are not neighbours.
    pub strided: Option<(i64, i64)>,
    /// Read as an integer into a general-purpose register: the register of `value` stands for none.
    pub integer: bool,
    /// Register, shape and lanes in use, for accesses that run in every iteration and move memory as it is.
    pub value: Option<(Vreg, Shape, u8)>,
}

/// The accesses of a body.
pub struct Accesses {
    pub all: Vec<Reference>,
    /// Roots of which any byte may be written, with the places.
    pub clobbered: Vec<(usize, Root)>,
    /// Roots of which any byte may be read: by subscripts from data, or as an integer.
    pub read_anywhere: FxHashSet<Root>,
}

impl Accesses {
    /// The accesses of a body.
    pub fn of(body: &[Node], pointers: &[Pointer], registers: &Registers) -> Accesses {
        let read_anywhere = read_anywhere(body, pointers);
        let mut out = Accesses { all: vec![], clobbered: vec![], read_anywhere };
        for (index, node) in body.iter().enumerate() {
            match node {
                Node::Inst(inst) => out.add(inst, index, true, pointers, registers),
                Node::LoadInt { addr, mem, .. } if addr.index.is_none() => {
                    out.all.extend(integer(index, addr, *mem, pointers))
                }
                Node::If { body, .. } => {
                    instructions(body, &mut |inst| out.add(inst, index, false, pointers, registers))
                }
                _ => {}
            }
        }
        out
    }

    fn add(&mut self, inst: &Inst, at: usize, always: bool, pointers: &[Pointer], registers: &Registers) {
        let Some(a) = inst.address() else { return };
        let pointer = &pointers[a.base.0 as usize];
        let store = inst.writes_memory();
        if a.index.is_some() {
            if store {
                self.clobbered.push((at, pointer.root));
            }
            return;
        }
        let bytes = pointer.bytes.clone().offset(a.disp as i64);
        let lanes = |ty: &VType, mem: &DType, stride: i64, part: &Option<LaneRange>| {
            let LaneRange { first, count } = part.unwrap_or(LaneRange { first: 0, count: ty.lanes });
            let (near, far) = (stride * first as i64, stride * (first + count - 1) as i64);
            (near.min(far), near.max(far) + mem.bytes() as i64)
        };
        // the lanes before the first one are no part of a value
        let moves = |ty: &VType, mem: &DType, part: &Option<LaneRange>| {
            part.is_none_or(|p| p.first == 0) && is_plain(*mem, ty.lane)
        };
        let (span, value) = match inst {
            Inst::VLoad { dst: r, ty, mem, part, .. } | Inst::VStore { src: r, ty, mem, part, .. } => {
                let size = mem.bytes() as i64;
                let shape = match ty.lanes {
                    1 => Shape::Element { lane: ty.lane, mem: *mem },
                    _ => Shape::Lanes { ty: *ty, mem: *mem, stride: size, part: *part },
                };
                (lanes(ty, mem, size, part), moves(ty, mem, part).then_some((*r, shape, ty.lanes)))
            }
            Inst::VLoadWhere { ty, mem, .. } | Inst::VStoreWhere { ty, mem, .. } => {
                (lanes(ty, mem, mem.bytes() as i64, &None), None)
            }
            Inst::VBroadcast { dst: r, ty, mem, .. } => {
                let shape = Shape::Element { lane: ty.lane, mem: *mem };
                let value = is_plain(*mem, ty.lane).then_some((*r, shape, ty.lanes));
                ((0, mem.bytes() as i64), value)
            }
            Inst::VGather { dst: r, ty, mem, stride, part, .. }
            | Inst::VScatter { src: r, ty, mem, stride, part, .. } => {
                let shape = Shape::Lanes { ty: *ty, mem: *mem, stride: *stride, part: *part };
                (lanes(ty, mem, *stride, part), moves(ty, mem, part).then_some((*r, shape, ty.lanes)))
            }
            // a piece of a table
            Inst::VShuffle { .. } => ((0, SHUFFLED), None),
            _ => return,
        };
        // The other lanes of a stored element follow from the definitions of its register.
        let value = value.filter(|_| always).map(|(r, shape, lanes)| match (store, shape) {
            (true, Shape::Element { .. }) => (r, shape, registers.written.get(&r).copied().unwrap_or(1)),
            _ => (r, shape, lanes),
        });
        let strided = match inst {
            Inst::VGather { mem, stride, .. } | Inst::VScatter { mem, stride, .. } => {
                Some((stride.abs(), mem.bytes() as i64)).filter(|(stride, size)| stride > size)
            }
            _ => None,
        };
        self.all.push(Reference { at, store, root: pointer.root, bytes, span, strided, integer: false, value });
    }
}

/// An integer that is read into a general-purpose register; `None` for types of which vector registers hold something else.
fn integer(at: usize, addr: &Addr, mem: DType, pointers: &[Pointer]) -> Option<Reference> {
    let lane = [Lane::I32, Lane::I64].into_iter().find(|&lane| is_plain(mem, lane))?;
    let pointer = &pointers[addr.base.0 as usize];
    let bytes = pointer.bytes.clone().offset(addr.disp.into());
    let value = Some((Vreg(u32::MAX), Shape::Element { lane, mem }, 1));
    let span = (0, mem.bytes() as i64);
    Some(Reference { at, store: false, root: pointer.root, bytes, span, strided: None, integer: true, value })
}

/// Returns true if the write `w`, at a value of `var` that is `back` less, is nowhere near the read `c`. Variables that are
/// `unknown` have no useful range.
pub fn is_apart(w: &Reference, back: i64, var: Var, c: &Reference, facts: &Facts, unknown: &FxHashSet<Var>) -> bool {
    let ahead = w.bytes.add_scaled(&c.bytes, -1).offset(-back * w.bytes.coefficient(var));
    if ahead.terms.iter().any(|t| unknown.contains(&t.0)) {
        return false;
    }
    // elements of other columns of the same rows
    if let (Some((stride, wide)), Some((other, size))) = (w.strided, c.strided)
        && stride == other
        && ahead.terms.iter().all(|t| t.1 % stride == 0)
        && let column = ahead.constant.rem_euclid(stride)
        && size <= column
        && column + wide <= stride
    {
        return true;
    }
    let (least, most) = facts.scaled_bounds(&ahead);
    most + w.span.1 <= c.span.0 || least + w.span.0 >= c.span.1
}

/// Returns true if a load of what was stored gives the lanes that they were: memory has their bits, or they are integers in
/// the range of the narrower type, as the selection stores them.
pub fn is_plain(mem: DType, lane: Lane) -> bool {
    let narrow = matches!(mem, DType::I8 | DType::U8 | DType::I16 | DType::U16);
    match lane {
        Lane::F32 => mem == DType::F32,
        Lane::F64 => mem == DType::F64,
        Lane::I32 => mem == DType::I32 || narrow,
        Lane::I64 => mem == DType::I64,
        Lane::I16 | Lane::U16 | Lane::I8 | Lane::U8 => narrow,
    }
}
