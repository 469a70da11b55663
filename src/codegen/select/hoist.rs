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
/// has another value where the loop is empty: registers from `own` on belong to the loop. Of a branch those leave whose results nothing outside of it reads.
/// `carried` has the registers of values that a later iteration
/// loads; `is_inside` is true for addresses of so many bytes that may be loaded where the loop is empty.
pub fn hoist_invariants(
    mut l: Loop,
    own: u32,
    registers: usize,
    pointers: &[Pointer],
    carried: impl Fn(&Loop) -> usize,
    is_inside: impl Fn(&Pointer, i64) -> bool,
) -> Vec<Node> {
    if !is_innermost(&l.body) {
        return vec![Node::Loop(l)];
    }
    let mut integers: Vec<Var> = vec![l.var];
    each(&l.body, &mut |n| integers.extend(n.defines()));
    let registers = registers.saturating_sub(1);
    let pressure = RegisterPressure::of(&l.body);
    let room = registers.saturating_sub(pressure.greatest() + within_branches(&l.body));
    let mut mover = Mover {
        own,
        at_least_once: l.at_least_once,
        pointers,
        is_inside: &is_inside,
        integers,
        loads: false,
        pressure,
        room,
        most: usize::MAX,
        definitions: FxHashMap::default(),
        read: FxHashSet::default(),
        stored: FxHashSet::default(),
        before: vec![],
    };
    for loads in [false, true] {
        if loads && mover.room > 0 {
            mover.pressure.carry(carried(&l));
        }
        (mover.loads, mover.most) = (loads, if loads { registers } else { usize::MAX });
        mover.definitions.clear();
        l.body.iter().flat_map(defined).for_each(|r| *mover.definitions.entry(r).or_insert(0) += 1);
        mover.read.clear();
        each(&l.body, &mut |n| mover.stored.extend(stored_root(n, pointers)));
        l.body = mover.kept(l.body, None);
    }
    let mut before = mover.before;
    before.push(Node::Loop(l));
    before
}

struct Mover<'a, F> {
    own: u32,
    at_least_once: bool,
    pointers: &'a [Pointer],
    is_inside: &'a F,
    /// Variables that the loop changes.
    integers: Vec<Var>,
    /// Loads leave now, otherwise what reads no memory.
    loads: bool,
    pressure: RegisterPressure,
    /// Registers that are left.
    room: usize,
    /// Most registers in use.
    most: usize,
    /// Definitions of each register in the loop.
    definitions: FxHashMap<u32, usize>,
    /// Registers that the iteration has read.
    read: FxHashSet<u32>,
    /// Roots of the memory that the loop stores to.
    stored: FxHashSet<Root>,
    before: Vec<Node>,
}

impl<F: Fn(&Pointer, i64) -> bool> Mover<'_, F> {
    /// The nodes of a body, or of a branch, that stay. `others` are the registers that are read outside of the branch.
    fn kept(&mut self, nodes: Vec<Node>, others: Option<&FxHashSet<u32>>) -> Vec<Node> {
        let mut kept = vec![];
        let readers: Vec<FxHashSet<u32>> = nodes.iter().map(|n| used(n).into_iter().collect()).collect();
        for (at, node) in nodes.into_iter().enumerate() {
            match node {
                Node::If { conditions, body } => {
                    let apart = |other: &usize| *other != at;
                    let mut outside: FxHashSet<u32> =
                        (0..readers.len()).filter(apart).flat_map(|n| &readers[n]).copied().collect();
                    outside.extend(others.into_iter().flatten());
                    let body = self.kept(body, Some(&outside));
                    kept.push(Node::If { conditions, body });
                }
                node if self.is_movable(&node, others) => {
                    defined(&node).iter().for_each(|r| {
                        self.definitions.remove(r);
                    });
                    self.before.push(node);
                    self.room -= 1;
                }
                node => {
                    self.read.extend(used(&node));
                    kept.push(node);
                }
            }
        }
        kept
    }

    /// Returns true for a node that leaves. Its registers live in all of the loop then.
    fn is_movable(&mut self, node: &Node, others: Option<&FxHashSet<u32>>) -> bool {
        let constant = |r: &u32| !self.definitions.contains_key(r);
        let leaves = |r: &u32| {
            let runs = self.at_least_once && others.is_none();
            let alone = others.is_none_or(|others| !others.contains(r));
            self.definitions[r] == 1 && !self.read.contains(r) && alone && (runs || *r >= self.own)
        };
        let moves = |a: &Affine| a.terms.iter().any(|t| self.integers.contains(&t.0));
        let computes = match node {
            Node::Inst(inst) => match inst.address() {
                None => inst.only_computes(),
                Some(a) => {
                    let p = &self.pointers[a.base.0 as usize];
                    let is_inside = matches!(inst, Inst::VBroadcast { .. }) && (self.is_inside)(p, a.disp.into());
                    let runs = others.is_none() && (self.at_least_once || p.bytes.is_constant());
                    self.loads
                        && inst.only_computes()
                        && !moves(&p.bytes)
                        && (runs || is_inside)
                        && !self.stored.contains(&p.root)
                }
            },
            Node::Splat { value, .. } => !moves(value),
            _ => false,
        };
        let movable = computes && self.room > 0 && defined(node).iter().all(leaves) && used(node).iter().all(constant);
        movable && defined(node).into_iter().all(|r| self.pressure.leave(Vreg(r), self.most))
    }
}

/// Returns true if no loop is in a body or in its branches.
fn is_innermost(body: &[Node]) -> bool {
    body.iter().all(|n| match n {
        Node::Loop(_) => false,
        Node::If { body, .. } => is_innermost(body),
        _ => true,
    })
}

/// Calls `f` on the nodes of a body and of its branches.
fn each(body: &[Node], f: &mut impl FnMut(&Node)) {
    for node in body {
        f(node);
        if let Node::If { body, .. } = node {
            each(body, f);
        }
    }
}

/// The greatest number of registers that live in a branch alone.
fn within_branches(body: &[Node]) -> usize {
    let inside = body.iter().map(|n| match n {
        Node::If { body, .. } => RegisterPressure::of(body).greatest() + within_branches(body),
        _ => 0,
    });
    inside.max().unwrap_or(0)
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
    fn what_a_branch_computes_leaves_where_it_alone_reads_it() {
        let branch = "let c = within(cast i64(gt(V[k], f64(3.0))), 0, 1) about 1; if c - 1 >= 0";
        check_rows(&format!(
            "for k in 0..30 {{ {branch} {{ V[k] add = (S[i] * f64(3.0)); w[0] = S[i]; V[k] add = w[0]; }} }}"
        ));
        // the value of the last branch that ran
        check_rows(&format!("for k in 0..30 {{ {branch} {{ q[0] = (S[i] * f64(3.0)); }} V[k] add = q[0]; }}"));
        check_rows(&format!("for k in 0..30 {{ V[k] add = q[0]; {branch} {{ q[0] = S[0]; V[k] add = q[0]; }} }}"));
        check_rows(&format!("for k in a..b {{ {branch} {{ q[0] = S[i]; V[k] add = q[0]; }} }}"));
    }

    #[test]
    fn a_value_of_before_an_empty_loop_stays() {
        check_rows("for k in a..b { V[k] add = S[i]; q[0] = (S[i] - f64(1.0)); }");
    }
}
