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

/// Moves the invariant instructions of a loop before it, but for those of which an iteration reads what the one before left, and those whose register
/// has another value where the loop is empty: registers from `own` on belong to the loop. `carried` has the registers of values that a later iteration
/// loads; `is_inside` is true for addresses of so many bytes that may be loaded where the loop is empty.
pub fn hoist_invariants(
    mut l: Loop,
    own: u32,
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
        let (mut kept, mut read) = (vec![], FxHashSet::default());
        for node in l.body {
            let constant = |r: &u32| !definitions.contains_key(r);
            let leaves = |r: &u32| definitions[r] == 1 && !read.contains(r) && (l.at_least_once || *r >= own);
            let movable = room > 0
                && defined(&node).iter().all(leaves)
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
                read.extend(used(&node));
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

#[cfg(test)]
mod tests {
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::tests::check;

    /// `body` of loops over rows, some of which are empty, after which `q` is stored.
    fn check_rows(body: &str) {
        let text = format!(
            "kernel rows {{
               P: i64[9] argument 0; V: f64[40] argument 1 written; S: f64[8] argument 2; Y: f64[8] argument 3 written; q: f64[1] local; w: f64[1] local;
               parallel once in 0..1 {{ for i in 0..8 {{
                 q[0] = f64(4.0);
                 let a = clamp(P[i], 0, 40) about 5*i; let b = clamp(P[i + 1], 0, 40) about 5*i + 5;
                 {body}
                 Y[i] = q[0]; }} }} }}"
        );
        check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1);
    }

    #[test]
    fn a_value_that_the_first_iteration_reads_stays() {
        check_rows("w[0] = S[i]; for k in i..30 { V[k] add = q[0]; q[0] = (w[0] - w[0]); }");
    }

    #[test]
    fn a_value_of_before_an_empty_loop_stays() {
        check_rows("for k in a..b { V[k] add = S[i]; q[0] = (S[i] - f64(1.0)); }");
    }
}
