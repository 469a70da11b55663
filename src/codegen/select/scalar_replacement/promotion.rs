//! Register promotion: an element that an innermost loop accesses in its branches stays in a register while the loop runs.
//!
//! In: an innermost loop that one thread runs. Out: the same loop with copies in place of its loads and stores of such an element, a load of it before the loop, and
//! behind the loop a store if the loop had one. What a branch does may or may not happen in an iteration, so that the value has one register which the
//! branches change (J. Lu, K. D. Cooper, *Register promotion in C programs*, PLDI 1997). The counter of `if c { h[n] = v  n += 1 }` is such an element: in memory, a next iteration
//! waits for the store of the one before.
//!
//! Invariants: the address does not move, and is a constant or accessed in every iteration, so that the element exists where it is loaded; all accesses of the
//! loop to its buffer are to this element alone, and move it as it is.

use crate::codegen::select::scalar_replacement::accesses::is_plain;
use crate::codegen::select::scalar_replacement::registers::Registers;
use crate::codegen::select::tree::{Loop, Node, Pointer, Root};
use crate::codegen::vcode::{Addr, Inst, Lane, VType, Vreg};
use crate::expr::{Affine, Var};
use crate::runtime::DType;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Loads before a loop, which fill registers of these types, and stores behind it: of iterations that run.
#[derive(Default)]
pub struct Around {
    pub loads: Vec<Node>,
    pub registers: Vec<(Vreg, VType)>,
    pub stores: Vec<Node>,
}

/// An element that stays in a register.
struct Cell {
    bytes: Affine,
    addr: Addr,
    /// As many lanes as a load fills with the element.
    ty: VType,
    mem: DType,
    /// Some access is in a branch, and some runs in every iteration.
    branches: bool,
    always: bool,
    /// Registers that are stored.
    stored: Vec<Vreg>,
}

/// Moves elements to registers, at most `room`. The loop defines the variables `defined` and its own.
pub fn promote(
    l: &mut Loop,
    pointers: &[Pointer],
    defined: &FxHashSet<Var>,
    registers: &mut Registers,
    room: usize,
) -> Around {
    let mut cells = BTreeMap::new();
    collect(&l.body, pointers, false, &mut cells);
    let stays = |cell: &Cell| {
        let moves = cell.bytes.terms.iter().any(|t| t.0 == l.var || defined.contains(&t.0));
        let lanes = |r: &Vreg| registers.written.get(r).is_some_and(|lanes| *lanes >= cell.ty.lanes);
        cell.branches && !moves && (cell.always || cell.bytes.is_constant()) && cell.stored.iter().all(lanes)
    };
    let cells = cells.into_iter().filter_map(|(root, cell)| Some((root, cell.filter(stays)?)));
    let cells: Vec<(Root, Cell)> = cells.take(room).collect();
    let promoted: BTreeMap<Root, (Cell, Vreg)> =
        cells.into_iter().map(|(root, cell)| (root, (cell, registers.fresh()))).collect();
    let mut around = Around::default();
    for (cell, register) in promoted.values() {
        let (dst, ty, mem, addr) = (*register, cell.ty, cell.mem, cell.addr);
        around.registers.push((dst, ty));
        around.loads.push(Node::Inst(Inst::VBroadcast { dst, ty, mem, addr }));
        if !cell.stored.is_empty() {
            let ty = VType { lanes: 1, ..ty };
            around.stores.push(Node::Inst(Inst::VStore { ty, mem, src: dst, addr, part: None }));
        }
    }
    if !promoted.is_empty() {
        replace(&mut l.body, pointers, &promoted);
    }
    around
}

/// The elements of the buffers that a body accesses; `None` for those of which it accesses more, or in another way.
fn collect(body: &[Node], pointers: &[Pointer], branch: bool, cells: &mut BTreeMap<Root, Option<Cell>>) {
    for node in body {
        let (addr, ty, mem, stored) = match node {
            Node::Loop(l) => {
                collect(&l.body, pointers, branch, cells);
                continue;
            }
            Node::If { body, .. } => {
                collect(body, pointers, true, cells);
                continue;
            }
            Node::Inside { extremes, .. } => {
                cells.extend(extremes.iter().map(|slot| (Root::Argument(*slot), None)));
                continue;
            }
            Node::LoadInt { addr, mem, .. } => (*addr, integer(*mem), *mem, None),
            Node::Inst(Inst::VBroadcast { ty, mem, addr, .. }) => (*addr, Some(*ty), *mem, None),
            Node::Inst(Inst::VLoad { ty, mem, addr, part: None, .. }) if ty.lanes == 1 => {
                (*addr, Some(*ty), *mem, None)
            }
            Node::Inst(Inst::VStore { ty, mem, src, addr, part: None }) if ty.lanes == 1 => {
                (*addr, Some(*ty), *mem, Some(*src))
            }
            Node::Inst(Inst::VGatherIndex { base, .. }) => {
                cells.insert(pointers[base.index()].root, None);
                continue;
            }
            Node::Inst(inst) => {
                cells.extend(inst.address().map(|a| (pointers[a.base.index()].root, None)));
                continue;
            }
            _ => continue,
        };
        let pointer = &pointers[addr.base.index()];
        let bytes = pointer.bytes.clone().offset(addr.disp.into());
        let is_whole = |ty: &VType| is_plain(mem, ty.lane) && mem.bytes() == ty.lane.bytes();
        let Some(ty) = ty.filter(is_whole).filter(|_| addr.index.is_none()) else {
            cells.insert(pointer.root, None);
            continue;
        };
        let new = || Some(Cell { bytes: bytes.clone(), addr, ty, mem, branches: false, always: false, stored: vec![] });
        let cell = cells.entry(pointer.root).or_insert_with(new);
        match cell {
            Some(known) if (&known.bytes, known.ty.lane, known.mem) == (&bytes, ty.lane, mem) => {
                known.ty.lanes = known.ty.lanes.max(ty.lanes);
                known.branches |= branch;
                known.always |= !branch;
                known.stored.extend(stored);
            }
            _ => *cell = None,
        }
    }
}

/// The register for a number that is read as an integer.
fn integer(mem: DType) -> Option<VType> {
    let lane = match mem {
        DType::I32 => Lane::I32,
        DType::I64 => Lane::I64,
        _ => return None,
    };
    Some(VType { lane, lanes: 1 })
}

/// A body with copies in place of accesses.
fn replace(body: &mut [Node], pointers: &[Pointer], promoted: &BTreeMap<Root, (Cell, Vreg)>) {
    let register = |addr: &Addr| promoted.get(&pointers[addr.base.index()].root).map(|(cell, r)| (cell.ty, *r));
    for node in body {
        let copy = match node {
            Node::Loop(Loop { body, .. }) | Node::If { body, .. } => {
                replace(body, pointers, promoted);
                None
            }
            Node::LoadInt { var, addr, .. } => {
                register(addr).map(|(ty, src)| Node::FirstLane { var: *var, ty: VType { lanes: 1, ..ty }, src })
            }
            Node::Inst(Inst::VBroadcast { dst, ty, addr, .. } | Inst::VLoad { dst, ty, addr, .. }) => {
                register(addr).map(|(_, src)| Node::Inst(Inst::VCopy { dst: *dst, ty: *ty, src }))
            }
            Node::Inst(Inst::VStore { src, addr, .. }) => {
                register(addr).map(|(ty, dst)| Node::Inst(Inst::VCopy { dst, ty, src: *src }))
            }
            _ => None,
        };
        if let Some(copy) = copy {
            *node = copy;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::scalar_replacement::tests::innermost;
    use crate::codegen::select::tests::check;

    /// Accesses in the innermost loops of the first phase, before and after.
    fn accesses(body: &str) -> (usize, usize) {
        let text = format!(
            "kernel p {{ X: f32[60] argument 0; N: i32[9] argument 1 written; H: f32[60] argument 2 written; W: i64[9] argument 3;
             {body} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\\n{text}"));
        check(&nest, 3);
        innermost(&nest, &|i| i.address().is_some())
    }

    const HOLDS: &str = "let h = within(cast i64(gt(X[i], f32(0.5))), 0, 1) about 1; if h - 1 >= 0";

    #[test]
    fn a_counter_of_a_branch_is_in_a_register() {
        let count = |kind: &str| {
            format!("{kind} once in 0..1 {{ for i in 0..57 {{ {HOLDS} {{ H[i] = X[i]; N[3] add = i32(1); }} }} }}")
        };
        let (before, after) = accesses(&count("parallel"));
        assert_eq!(before - after, 8, "a load and a store in each of four unrolled iterations");
        // another thread may have the element
        let text = count("parallel").replace("0..1 {", "0..4 {").replace("H[i]", "H[once]");
        let (before, after) = accesses(&text);
        assert_eq!(before, after);
    }

    #[test]
    fn elements_whose_loop_may_be_empty_stay_as_they_are() {
        let (before, after) = accesses(&format!(
            "for k in 0..9 {{ let n = clamp(W[k], 0, 60) about 9; for i in 0..n {{ H[i] = cast f32(N[k]); {HOLDS} {{ N[k] add = i32(1); }} }} }}"
        ));
        assert!(after + 2 <= before, "{before} {after}");
    }

    #[test]
    fn elements_beside_others_stay_in_memory() {
        for body in ["N[3] add = i32(1); N[4] = i32(7);", "N[3] add = N[@within(N[3], 0, 8)];"] {
            let body = body.replace("@within(N[3], 0, 8)", "@min(max(N[3], i32(0)), i32(8))");
            let (before, after) = accesses(&format!("for i in 0..57 {{ {HOLDS} {{ {body} }} }}"));
            assert_eq!(before, after, "{body}");
        }
    }
}
