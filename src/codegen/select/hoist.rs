//! Loop-invariant code motion out of innermost loops, while registers last.
//!
//! Constants and what is computed from them leave first, then loads of memory that the loop does not write. A value that
//! leaves the loop occupies a register in all of it; so the number of registers in use is counted at each instruction. Values that
//! one iteration stores and a later one loads have registers before loads leave: iterations wait for them.

use crate::codegen::select::register_pressure::{RegisterPressure, defined, used};
use crate::codegen::select::tree::{Loop, Node, Pointer, Root};
use crate::codegen::vcode::{Inst, Vreg};
use crate::expr::{Affine, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// Moves the invariant instructions of a loop before it. `carried` has the registers of values that a later iteration loads; `is_inside` is
/// true for addresses of so many bytes that may be loaded where the loop is empty.
pub fn hoist_invariants(
    mut l: Loop,
    registers: usize,
    pointers: &[Pointer],
    carried: impl Fn(&Loop) -> usize,
    is_inside: impl Fn(&Pointer, i64) -> bool,
) -> Vec<Node> {
    if l.body.iter().any(|n| matches!(n, Node::Loop(_) | Node::If { .. })) {
        return vec![Node::Loop(l)];
    }
    let integers: Vec<Var> = l.body.iter().filter_map(Node::defines).chain([l.var]).collect();
    let moves = |a: &Affine| a.terms.iter().any(|t| integers.contains(&t.0));
    let mut before = vec![];
    let registers = registers.saturating_sub(1);
    let mut pressure = RegisterPressure::of(&l.body);
    let mut room = registers.saturating_sub(pressure.greatest());
    for loads in [false, true] {
        if loads && room > 0 {
            pressure.carry(carried(&l));
        }
        let most = if loads { registers } else { usize::MAX };
        let mut definitions: FxHashMap<u32, usize> = FxHashMap::default();
        l.body.iter().flat_map(defined).for_each(|r| *definitions.entry(r).or_insert(0) += 1);
        let stored: FxHashSet<Root> = l.body.iter().filter_map(|n| stored_root(n, pointers)).collect();
        let mut kept = vec![];
        for node in l.body {
            let constant = |r: &u32| !definitions.contains_key(r);
            let movable = room > 0
                && defined(&node).iter().all(|r| definitions[r] == 1)
                && used(&node).iter().all(constant)
                && match &node {
                    Node::Inst(inst) => match inst.address() {
                        None => inst.only_computes(),
                        Some(a) => {
                            let p = &pointers[a.base.0 as usize];
                            loads
                                && inst.only_computes()
                                && !moves(&p.bytes)
                                && (l.at_least_once
                                    || p.bytes.is_constant()
                                    || matches!(inst, Inst::VBroadcast { .. }) && is_inside(p, a.disp.into()))
                                && !stored.contains(&p.root)
                        }
                    },
                    Node::Splat { value, .. } => !moves(value),
                    _ => false,
                };
            if movable && defined(&node).into_iter().all(|r| pressure.leave(Vreg(r), most)) {
                defined(&node).iter().for_each(|r| {
                    definitions.remove(r);
                });
                before.push(node);
                room -= 1;
            } else {
                kept.push(node);
            }
        }
        l.body = kept;
    }
    before.push(Node::Loop(l));
    before
}

fn stored_root(node: &Node, pointers: &[Pointer]) -> Option<Root> {
    match node {
        Node::Inst(i) if i.writes_memory() => i.address().map(|a| pointers[a.base.0 as usize].root),
        _ => None,
    }
}
