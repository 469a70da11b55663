//! Register pressure of straight-line loop bodies: how many vector registers are live at each instruction.
//!
//! In: the nodes of an innermost loop. Out: live ranges, which the passes before register allocation lengthen while
//! registers last. A register that is read before it is written is carried around the loop and live in all of it. A
//! branch counts as one instruction.

use crate::codegen::select::tree::Node;
use crate::codegen::vcode::Vreg;
use crate::codegen::vcode::operands::Class;
use rustc_hash::{FxHashMap, FxHashSet};

/// Live vector registers of a loop body.
pub struct RegisterPressure {
    /// Live registers after each instruction.
    live: Vec<usize>,
    /// The instruction that defines each register first.
    first: FxHashMap<u32, usize>,
    /// The last instruction that uses each register, or defines it where nothing uses it.
    last: FxHashMap<u32, usize>,
    carried: FxHashSet<u32>,
}

impl RegisterPressure {
    pub fn of(body: &[Node]) -> RegisterPressure {
        let (mut first, mut last) = (FxHashMap::default(), FxHashMap::default());
        let mut carried = FxHashSet::default();
        for (i, node) in body.iter().enumerate() {
            for r in used(node) {
                if !first.contains_key(&r) {
                    carried.insert(r);
                }
                first.entry(r).or_insert(i);
                last.insert(r, i);
            }
            for r in defined(node) {
                first.entry(r).or_insert(i);
                last.insert(r, i);
            }
        }
        let mut live = vec![carried.len(); body.len()];
        for (r, &from) in first.iter().filter(|f: &(&u32, _)| !carried.contains(f.0)) {
            live[from..last[r]].iter_mut().for_each(|l| *l += 1);
        }
        RegisterPressure { live, first, last, carried }
    }

    /// The greatest number of registers that are live at once.
    pub fn greatest(&self) -> usize {
        self.live.iter().copied().max().unwrap_or(self.carried.len())
    }

    /// Takes `count` registers for the whole body.
    pub fn carry(&mut self, count: usize) {
        self.live.iter_mut().for_each(|l| *l += count);
    }

    /// Lets the definition of `value` leave the loop, so that it is live in all of it; returns false, and changes nothing, where that makes
    /// more than `registers` live.
    pub fn leave(&mut self, value: Vreg, registers: usize) -> bool {
        if self.carried.contains(&value.0) {
            return true;
        }
        let from = self.first.get(&value.0).copied().unwrap_or(0);
        let end = self.last.get(&value.0).copied().unwrap_or(from);
        let apart = |i: usize| !(from..end).contains(&i);
        if self.live.iter().enumerate().any(|(i, &l)| apart(i) && l >= registers) {
            return false;
        }
        self.live.iter_mut().enumerate().filter(|(i, _)| apart(*i)).for_each(|(_, l)| *l += 1);
        self.carried.insert(value.0);
        true
    }

    /// Lets `value`, defined at `from`, take the place of `replaced`, defined at `to`; returns false, and changes nothing,
    /// where that makes more than `registers` live.
    pub fn extend(&mut self, value: Vreg, from: usize, replaced: Vreg, to: usize, registers: usize) -> bool {
        let end = self.last.get(&replaced.0).copied().unwrap_or(to);
        if self.carried.contains(&value.0) {
            return true;
        }
        let end_of_value = self.last.get(&value.0).copied().unwrap_or(from).max(from);
        let gap = end_of_value.min(to)..to;
        if self.live[gap.clone()].iter().any(|&l| l >= registers) {
            return false;
        }
        self.live[gap].iter_mut().for_each(|l| *l += 1);
        self.last.insert(value.0, end_of_value.max(end));
        true
    }
}

/// Vector registers that a node reads.
pub fn used(node: &Node) -> Vec<u32> {
    registers(node, true)
}

/// Vector registers that a node writes.
pub fn defined(node: &Node) -> Vec<u32> {
    registers(node, false)
}

fn registers(node: &Node, read: bool) -> Vec<u32> {
    let mut out = vec![];
    match node {
        Node::Inst(inst) => inst.registers(|class, access, r| {
            if class == Class::Vector && if read { access.reads() } else { access.writes() } {
                out.push(r);
            }
        }),
        Node::Splat { dst, .. } if !read => out.push(dst.0),
        Node::FirstLane { src, .. } if read => out.push(src.0),
        Node::If { body, .. } => out.extend(body.iter().flat_map(|n| registers(n, read))),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::{Addr, Gpr, Inst, Lane, VBinary, VType};
    use crate::runtime::DType;

    const TY: VType = VType { lane: Lane::F32, lanes: 16 };

    fn load(dst: u32) -> Node {
        let addr = Addr { base: Gpr(0), index: None, disp: 0 };
        Node::Inst(Inst::VLoad { dst: Vreg(dst), ty: TY, mem: DType::F32, addr, part: None })
    }

    fn add(dst: u32, a: u32, b: u32) -> Node {
        Node::Inst(Inst::VBinary { op: VBinary::Add, dst: Vreg(dst), ty: TY, a: Vreg(a), b: Vreg(b) })
    }

    #[test]
    fn registers_that_are_read_first_are_live_everywhere() {
        let body = [load(1), add(9, 9, 1), load(2), add(9, 9, 2)];
        let pressure = RegisterPressure::of(&body);
        assert_eq!(pressure.live, [2, 1, 2, 1]);
        assert_eq!(pressure.greatest(), 2);
    }

    #[test]
    fn a_value_that_leaves_is_live_where_it_was_not() {
        let body = [load(1), add(9, 9, 1), load(2), add(9, 9, 2)];
        let mut pressure = RegisterPressure::of(&body);
        assert!(!pressure.leave(Vreg(1), 1));
        assert!(pressure.leave(Vreg(1), 3));
        assert_eq!(pressure.live, [2, 2, 3, 2]);
        // already there
        assert!(pressure.leave(Vreg(1), 2));
        assert!(pressure.leave(Vreg(2), 3));
        assert_eq!(pressure.live, [3, 3, 3, 3]);
    }

    #[test]
    fn a_value_is_kept_only_while_registers_last() {
        // v1 is free between its use and the second load of the same address, v3
        let body = [load(1), add(9, 9, 1), load(2), load(4), add(9, 2, 4), load(3), add(9, 9, 3)];
        assert!(!RegisterPressure::of(&body).extend(Vreg(1), 0, Vreg(3), 5, 3));
        let mut pressure = RegisterPressure::of(&body);
        assert!(pressure.extend(Vreg(1), 0, Vreg(3), 5, 4));
        assert_eq!(pressure.greatest(), 4);
        // lengthened once, the value is there
        assert!(pressure.extend(Vreg(1), 0, Vreg(3), 5, 4));
    }
}
